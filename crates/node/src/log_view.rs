//! What anybody may know of the log without asking the shard that owns it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use quantumqtt_journal::{Journal, JournalError};

use crate::disk_use::DiskUse;
use crate::statistics::{LogStatistics, ScrubStatistics};

/// Written by the partition's owner, read by all.
pub(crate) struct LogView {
    journal: Arc<Journal>,
    pub(crate) is_full: AtomicBool,
    pub(crate) applied_index: AtomicU64,
    pub(crate) checkpoint_index: AtomicU64,
    checkpoints: AtomicU64,
    checkpoint_failures: AtomicU64,
    checkpoint_error: Mutex<Option<String>>,
    disk: Mutex<DiskUse>,
    scrub: Mutex<ScrubStatistics>,
    scrub_began: Instant,
    /// The end of the last pass over all that is at rest.
    scrub_ended: Mutex<Option<Instant>>,
}

impl LogView {
    pub(crate) fn new(journal: Arc<Journal>) -> Self {
        Self {
            journal,
            is_full: AtomicBool::new(false),
            applied_index: AtomicU64::new(0),
            checkpoint_index: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
            checkpoint_failures: AtomicU64::new(0),
            checkpoint_error: Mutex::new(None),
            disk: Mutex::default(),
            scrub: Mutex::default(),
            scrub_began: Instant::now(),
            scrub_ended: Mutex::new(None),
        }
    }

    pub(crate) fn set_disk(&self, found: DiskUse) {
        *self.disk.lock() = found;
    }

    pub(crate) fn scrubbed(&self, bytes: u64) {
        self.scrub.lock().bytes_total += bytes;
    }

    /// Something at rest does not check out.
    pub(crate) fn scrub_found(&self, said: &str, is_news: bool) {
        let mut scrub = self.scrub.lock();
        scrub.findings_total += u64::from(is_news);
        scrub.damage = Some(said.to_owned());
    }

    /// A pass is over; one that found nothing wrong takes back what an earlier one found.
    pub(crate) fn scrub_pass_done(&self, is_clean: bool) {
        let mut scrub = self.scrub.lock();
        scrub.passes_total += 1;
        if is_clean {
            scrub.damage = None;
        }
        *self.scrub_ended.lock() = Some(Instant::now());
    }

    fn scrub_statistics(&self) -> ScrubStatistics {
        let since = self.scrub_ended.lock().unwrap_or(self.scrub_began);
        let coverage_age_ms = since.elapsed().as_millis().try_into().unwrap_or(u64::MAX);
        ScrubStatistics { coverage_age_ms, ..self.scrub.lock().clone() }
    }

    /// Whether the disk has no room: nothing new is taken until it has.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    pub(crate) fn checkpoint_made(&self, index: u64) {
        self.checkpoint_index.store(index, Ordering::Relaxed);
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        *self.checkpoint_error.lock() = None;
    }

    pub(crate) fn checkpoint_failed(&self, error: &JournalError) {
        self.checkpoint_failures.fetch_add(1, Ordering::Relaxed);
        *self.checkpoint_error.lock() = Some(error.to_string());
    }

    pub(crate) fn statistics(&self, pending_bytes: u64) -> LogStatistics {
        let counted = self.journal.statistics();
        let disk = *self.disk.lock();
        let failure = self.journal.failure();
        let (state, reason) = match failure {
            Some(failure) => ("failed", Some(failure.to_string())),
            None if self.journal.is_full() => {
                ("full", Some("the disk has no room for another segment".to_owned()))
            }
            None => ("ok", None),
        };
        LogStatistics {
            state,
            reason,
            pending_bytes,
            written_bytes_total: counted.bytes,
            syncs_total: counted.syncs,
            sync_ns_total: counted.sync_us * 1000,
            segments: counted.segments_opened.saturating_sub(counted.segments_retired),
            applied_index: self.applied_index.load(Ordering::Relaxed),
            checkpoint_index: self.checkpoint_index.load(Ordering::Relaxed),
            checkpoints_total: self.checkpoints.load(Ordering::Relaxed),
            checkpoint_failures_total: self.checkpoint_failures.load(Ordering::Relaxed),
            checkpoint_error: self.checkpoint_error.lock().clone(),
            disk_level: disk.level.label(),
            disk_used_bytes: disk.used_bytes,
            disk_capacity_bytes: disk.capacity_bytes,
            scrub: self.scrub_statistics(),
        }
    }
}
