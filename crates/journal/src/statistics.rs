//! What the writer counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// A snapshot of the writer's counters; all of them only rise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Batches written.
    pub batches: u64,
    /// Records in them, marks and tables not counted.
    pub records: u64,
    /// Bytes written, padding included.
    pub bytes: u64,
    /// Syncs of records.
    pub syncs: u64,
    /// Time they took, by the journal's clock.
    pub sync_us: u64,
    /// The longest of them.
    pub sync_us_max: u64,
    /// Segments opened.
    pub segments_opened: u64,
    /// Segments given up because nobody needs them.
    pub segments_retired: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    batches: AtomicU64,
    records: AtomicU64,
    bytes: AtomicU64,
    syncs: AtomicU64,
    sync_us: AtomicU64,
    sync_us_max: AtomicU64,
    segments_opened: AtomicU64,
    segments_retired: AtomicU64,
}

impl Counters {
    pub(crate) fn wrote(&self, records: u64, bytes: u64) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.records.fetch_add(records, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn synced(&self, took_us: u64) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.sync_us.fetch_add(took_us, Ordering::Relaxed);
        self.sync_us_max.fetch_max(took_us, Ordering::Relaxed);
    }

    pub(crate) fn rotated(&self) {
        self.segments_opened.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn retired(&self, segments: u64) {
        self.segments_retired.fetch_add(segments, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Statistics {
        Statistics {
            batches: self.batches.load(Ordering::Relaxed),
            records: self.records.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            syncs: self.syncs.load(Ordering::Relaxed),
            sync_us: self.sync_us.load(Ordering::Relaxed),
            sync_us_max: self.sync_us_max.load(Ordering::Relaxed),
            segments_opened: self.segments_opened.load(Ordering::Relaxed),
            segments_retired: self.segments_retired.load(Ordering::Relaxed),
        }
    }
}
