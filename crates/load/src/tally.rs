//! What one thread has counted; threads are added up when all is over.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::Fault;
use crate::histogram::Histogram;

/// The figures of one thread.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) sent: u64,
    pub(crate) acknowledged: u64,
    pub(crate) received: u64,
    pub(crate) duplicated: u64,
    pub(crate) out_of_order: u64,
    /// Messages that carry no stamp of this run.
    pub(crate) foreign: u64,
    /// Deliveries no longer waited for, so that a window which lost some can open again.
    pub(crate) written_off: u64,
    pub(crate) connected: u64,
    pub(crate) latency: Histogram,
    pub(crate) acknowledge_latency: Histogram,
    pub(crate) connect_latency: Histogram,
    pub(crate) first_fault: Option<String>,
    faults: [u64; Fault::ALL.len()],
}

impl Tally {
    /// Counts a fault; the first one is kept in words.
    pub(crate) fn fault(&mut self, fault: Fault, words: impl FnOnce() -> String) {
        self.faults[fault as usize] += 1;
        if self.first_fault.is_none() {
            self.first_fault = Some(format!("{}: {}", fault.label(), words()));
        }
    }

    /// How often each fault was seen, those that were not left out.
    pub(crate) fn faults(&self) -> impl Iterator<Item = (Fault, u64)> + use<'_> {
        let counted = Fault::ALL.into_iter().zip(self.faults);
        counted.filter(|(_, count)| *count > 0)
    }

    /// Messages of this run, each counted once per subscriber.
    pub(crate) const fn distinct(&self) -> u64 {
        self.received - self.duplicated - self.foreign
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.sent += other.sent;
        self.acknowledged += other.acknowledged;
        self.received += other.received;
        self.duplicated += other.duplicated;
        self.out_of_order += other.out_of_order;
        self.foreign += other.foreign;
        self.written_off += other.written_off;
        self.connected += other.connected;
        self.latency.merge(&other.latency);
        self.acknowledge_latency.merge(&other.acknowledge_latency);
        self.connect_latency.merge(&other.connect_latency);
        for (mine, theirs) in self.faults.iter_mut().zip(other.faults) {
            *mine += theirs;
        }
        self.first_fault = self.first_fault.take().or(other.first_fault);
    }
}

/// Where a thread shows how far it is, and is told to stop.
///
/// Each thread has its own; only the thread that waits for all of them reads it, a few times per
/// second, so relaxed order is enough and no thread ever waits.
#[derive(Default)]
pub(crate) struct Board {
    pub(crate) connected: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) acknowledged: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) stop: AtomicBool,
}

impl Board {
    pub(crate) fn show(&self, tally: &Tally) {
        self.connected.store(tally.connected, Ordering::Relaxed);
        self.sent.store(tally.sent, Ordering::Relaxed);
        self.acknowledged.store(tally.acknowledged, Ordering::Relaxed);
        self.received.store(tally.received, Ordering::Relaxed);
    }

    pub(crate) fn must_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
