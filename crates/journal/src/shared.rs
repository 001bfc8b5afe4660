//! What shards and the writer share: a buffer under a lock, and the durable watermark.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::error::{JournalError, Refusal};
use crate::format::RecordKind;
use crate::limits::STAGED_BYTES_MAX;
use crate::segment::{Records, head};

/// The number of a staged record; they rise by one across all groups of a node.
pub type Lsn = u64;

/// Whom to wake: the journal gives it back as it was given.
pub type WakeToken = usize;

/// Called from the writer, once per waiting shard, when something it waits for has happened.
pub type Wake = Arc<dyn Fn(WakeToken) + Send + Sync>;

/// Records that wait for the writer.
pub(crate) struct Staging {
    pub(crate) records: Records,
    pub(crate) next_lsn: Lsn,
    /// Shards that wait for what is staged.
    pub(crate) waiting: BTreeSet<WakeToken>,
    /// Whether somebody waits; lazily staged records alone start no batch.
    pub(crate) urgent: bool,
    /// Everyone who ever waited: told when the journal fails, fills up or recovers.
    pub(crate) known: BTreeSet<WakeToken>,
    pub(crate) stopping: bool,
}

pub(crate) struct Shared {
    pub(crate) staging: Mutex<Staging>,
    pub(crate) work: Condvar,
    pub(crate) wake: Wake,
    /// Everything up to here may be acknowledged.
    acknowledged: AtomicU64,
    /// Everything up to here was synced; the same under `Durability::Strict`.
    synced: AtomicU64,
    full: AtomicBool,
    failed: AtomicBool,
    failure: Mutex<Option<JournalError>>,
}

impl Shared {
    pub(crate) fn new(next_lsn: Lsn, wake: Wake) -> Self {
        Self {
            staging: Mutex::new(Staging {
                records: Records::default(),
                next_lsn,
                waiting: BTreeSet::new(),
                urgent: false,
                known: BTreeSet::new(),
                stopping: false,
            }),
            work: Condvar::new(),
            wake,
            acknowledged: AtomicU64::new(next_lsn - 1),
            synced: AtomicU64::new(next_lsn - 1),
            full: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    pub(crate) fn acknowledged(&self) -> Lsn {
        self.acknowledged.load(Ordering::Acquire)
    }

    pub(crate) fn synced(&self) -> Lsn {
        self.synced.load(Ordering::Acquire)
    }

    pub(crate) fn set_synced(&self, lsn: Lsn) {
        self.synced.store(lsn, Ordering::Release);
    }

    /// Nothing is acknowledged once the journal has failed, whatever was under way.
    pub(crate) fn acknowledge(&self, lsn: Lsn, waiting: &BTreeSet<WakeToken>) {
        self.acknowledged.store(lsn, Ordering::Release);
        for &token in waiting {
            (self.wake)(token);
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    pub(crate) fn set_full(&self, full: bool) {
        if self.full.swap(full, Ordering::AcqRel) != full {
            self.wake_all();
        }
    }

    pub(crate) fn failure(&self) -> Option<JournalError> {
        if self.failed.load(Ordering::Acquire) { self.failure.lock().clone() } else { None }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// The first failure stays; there is no way back.
    pub(crate) fn fail(&self, why: JournalError) {
        self.failure.lock().get_or_insert(why);
        self.failed.store(true, Ordering::Release);
        self.wake_all();
    }

    fn wake_all(&self) {
        let known = self.staging.lock().known.clone();
        for token in known {
            (self.wake)(token);
        }
    }

    /// Whether something may be staged now; asked before Raft is asked for what to stage.
    ///
    /// Who is refused is woken when it may try again, or when it never may.
    pub(crate) fn admit(&self, group: u64, token: WakeToken) -> Result<(), Refusal> {
        let mut staging = self.staging.lock();
        let refusal = if self.has_failed() {
            Refusal::Failed
        } else if self.is_full() {
            Refusal::Full
        } else if staging.records.bytes.len() >= STAGED_BYTES_MAX {
            staging.waiting.insert(token);
            Refusal::Busy { group }
        } else {
            return Ok(());
        };
        staging.known.insert(token);
        Err(refusal)
    }

    /// Opens the buffer for one group's records.
    pub(crate) fn stage(&self, group: u64, key_domain: u32) -> Stager<'_> {
        Stager { shared: self, staging: self.staging.lock(), group, key_domain }
    }
}

/// The buffer, held while one group adds its records.
pub(crate) struct Stager<'a> {
    shared: &'a Shared,
    staging: MutexGuard<'a, Staging>,
    group: u64,
    key_domain: u32,
}

impl Stager<'_> {
    /// Adds a record and returns its number.
    pub(crate) fn push(
        &mut self,
        kind: RecordKind,
        (first_index, term, count): (u64, u64, u16),
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Lsn {
        let lsn = self.staging.next_lsn;
        self.staging.next_lsn += 1;
        let mut head = head(kind, self.group, lsn);
        head.key_domain = self.key_domain;
        head.first_index = first_index;
        head.term = term;
        head.count = count;
        self.staging.records.push(head, write);
        lsn
    }

    /// Somebody waits for what was added: wakes the writer if it sleeps.
    pub(crate) fn finish(mut self, token: WakeToken) {
        self.staging.waiting.insert(token);
        self.staging.known.insert(token);
        let asleep = !self.staging.urgent;
        self.staging.urgent = true;
        drop(self.staging);
        if asleep {
            self.shared.work.notify_one();
        }
    }

    /// Nobody waits, but it shall be written soon.
    pub(crate) fn finish_unwatched(mut self) {
        self.staging.urgent = true;
        drop(self.staging);
        self.shared.work.notify_one();
    }

    /// Nobody waits: what was added goes with the next batch.
    pub(crate) fn finish_lazily(self) {
        drop(self.staging);
    }
}
