//! The one place of this crate that reads a clock; a turn reads it once and passes it on.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Monotone milliseconds, anchored to the wall clock at start.
///
/// Deadlines and log stamps use the same number, so a jump of the wall clock while we run can
/// neither fire nor delay a timer.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    started: Instant,
    started_unix_ms: u64,
}

impl Clock {
    /// Anchor a clock to the wall clock of this moment.
    pub fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            started: Instant::now(),
            started_unix_ms: u64::try_from(since_epoch.as_millis()).unwrap_or(0),
        }
    }

    /// Unix milliseconds, never going backwards.
    pub fn now_ms(&self) -> u64 {
        self.started_unix_ms + self.uptime_ms()
    }

    /// Milliseconds since [`Clock::start`].
    pub fn uptime_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
