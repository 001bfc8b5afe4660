//! What the owner of a journal decides.

use std::fmt;
use std::sync::Arc;

use crate::error::JournalError;
use crate::keys::{Entropy, SystemEntropy};
use crate::limits::{
    GROUP_BYTES_MAX, GROUP_DELAY_MS_MAX, SECTOR_BYTES, SEGMENT_BYTES_DEFAULT, SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN, SEGMENT_HEADER_BYTES,
};

/// When a record counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// After its sync. Many records share one, none counts before it.
    #[default]
    Strict,
    /// After its write; the sync follows within bounds (LOG-13). A crash of the process loses
    /// nothing, a cut of power up to that much.
    Group {
        /// The longest a written record stays unsynced.
        delay_ms: u64,
        /// The most that stays unsynced.
        bytes: u64,
    },
}

/// A monotone clock; the simulator gives its own.
pub trait Clock: Send + Sync {
    /// Microseconds since any fixed instant.
    fn now_us(&self) -> u64;
}

/// A clock that stands still: for journals that are pumped by hand and need no delays.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoClock;

impl Clock for NoClock {
    fn now_us(&self) -> u64 {
        0
    }
}

/// Who runs the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Drive {
    /// Threads of the journal's own.
    #[default]
    Threads,
    /// The owner, by `Journal::pump`: the same code, for the simulator and for tests.
    Pump,
}

/// How a journal is opened.
#[derive(Clone)]
pub struct JournalOptions {
    /// This node; 0 is nobody.
    pub node_id: u64,
    /// Bytes of a segment file.
    pub segment_bytes: u64,
    /// Where batches may start: 512, or 4096 for disks with sectors of that size.
    pub alignment: u32,
    /// When records count.
    pub durability: Durability,
    /// Who runs the writer.
    pub drive: Drive,
    /// Where salts come from.
    pub entropy: Arc<dyn Entropy>,
    /// What `Durability::Group` and the sync statistics measure time with.
    pub clock: Arc<dyn Clock>,
}

impl fmt::Debug for JournalOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JournalOptions")
            .field("node_id", &self.node_id)
            .field("segment_bytes", &self.segment_bytes)
            .field("alignment", &self.alignment)
            .field("durability", &self.durability)
            .field("drive", &self.drive)
            .finish_non_exhaustive()
    }
}

impl JournalOptions {
    /// Strict, segments of 64 MiB, threads, the system's clock and generator.
    pub fn new(node_id: u64) -> Self {
        Self {
            node_id,
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            alignment: SECTOR_BYTES as u32,
            durability: Durability::Strict,
            drive: Drive::Threads,
            entropy: Arc::new(SystemEntropy),
            clock: Arc::new(crate::thread::SystemClock::start()),
        }
    }

    pub(crate) fn check(&self) -> Result<(), JournalError> {
        let refuse =
            |option, value, allowed: String| Err(JournalError::Option { option, value, allowed });
        if self.node_id == 0 {
            return refuse("node_id", 0, "a number above 0".to_owned());
        }
        let whole = self.segment_bytes.is_multiple_of(SEGMENT_HEADER_BYTES as u64);
        if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&self.segment_bytes) || !whole {
            let allowed =
                format!("a multiple of 4096 in {SEGMENT_BYTES_MIN}..={SEGMENT_BYTES_MAX}");
            return refuse("segment_bytes", self.segment_bytes, allowed);
        }
        if ![512, 4096].contains(&self.alignment) {
            return refuse("alignment", self.alignment.into(), "512 or 4096".to_owned());
        }
        if let Durability::Group { delay_ms, bytes } = self.durability {
            if !(1..=GROUP_DELAY_MS_MAX).contains(&delay_ms) {
                return refuse("delay_ms", delay_ms, format!("in 1..={GROUP_DELAY_MS_MAX}"));
            }
            if !(1..=GROUP_BYTES_MAX).contains(&bytes) {
                return refuse("bytes", bytes, format!("in 1..={GROUP_BYTES_MAX}"));
            }
        }
        Ok(())
    }
}
