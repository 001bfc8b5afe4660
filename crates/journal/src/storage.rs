//! What Raft reads back: the entries of one group that are still in memory.

use std::collections::VecDeque;

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};

/// What index, term and type of an entry cost in a message, roughly.
const ENTRY_OVERHEAD: u64 = 24;

/// Entries from some index on, the hard state and the members.
#[derive(Debug, Default)]
pub(crate) struct GroupStorage {
    pub(crate) hard_state: HardState,
    pub(crate) conf_state: ConfState,
    /// The entry before the first one here.
    base_index: u64,
    base_term: u64,
    entries: VecDeque<Entry>,
    bytes: usize,
    /// The newest checkpoint, as Raft hands it to followers that are too far behind.
    pub(crate) snapshot: Option<Snapshot>,
}

impl GroupStorage {
    pub(crate) fn new(
        hard_state: HardState,
        conf_state: ConfState,
        base: (u64, u64),
        entries: VecDeque<Entry>,
    ) -> Self {
        let bytes = entries.iter().map(|entry| entry.data.len()).sum();
        let (base_index, base_term) = base;
        Self { hard_state, conf_state, base_index, base_term, entries, bytes, snapshot: None }
    }

    fn last(&self) -> u64 {
        self.base_index + self.entries.len() as u64
    }

    fn at(&self, index: u64) -> Option<&Entry> {
        self.entries.get(index.checked_sub(self.base_index + 1)? as usize)
    }

    /// Adds entries, which replace what had their indexes.
    pub(crate) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first().map(|entry| entry.index) else { return };
        assert!(first > self.base_index, "Raft never rewrites what is applied");
        assert!(first <= self.last() + 1, "Raft leaves no holes");
        while self.last() >= first {
            if let Some(void) = self.entries.pop_back() {
                self.bytes -= void.data.len();
            }
        }
        self.bytes += entries.iter().map(|entry| entry.data.len()).sum::<usize>();
        self.entries.extend(entries.iter().cloned());
    }

    /// Forgets applied entries until no more than `keep_bytes` are left.
    pub(crate) fn forget(&mut self, applied: u64, keep_bytes: usize) {
        while self.base_index < applied && self.bytes > keep_bytes {
            let Some(entry) = self.entries.pop_front() else { return };
            self.bytes -= entry.data.len();
            self.base_index = entry.index;
            self.base_term = entry.term;
        }
        if keep_bytes == 0 {
            // Empty entries have no bytes to go by.
            while self.base_index < applied {
                let Some(entry) = self.entries.pop_front() else { return };
                self.bytes -= entry.data.len();
                self.base_index = entry.index;
                self.base_term = entry.term;
            }
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Storage for GroupStorage {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard_state.clone(), self.conf_state.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.base_index {
            return Err(Error::Store(StorageError::Compacted));
        }
        if high > self.last() + 1 {
            return Err(Error::Store(StorageError::Unavailable));
        }
        let from = (low - self.base_index - 1) as usize;
        let to = (high - self.base_index - 1) as usize;
        let max = max_size.into().unwrap_or(u64::MAX);
        let mut size = 0;
        let within = self.entries.range(from..to).take_while(|entry| {
            let first = size == 0;
            size += entry.data.len() as u64 + ENTRY_OVERHEAD;
            first || size <= max
        });
        Ok(within.cloned().collect())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.base_index {
            return Ok(self.base_term);
        }
        if index < self.base_index {
            return Err(Error::Store(StorageError::Compacted));
        }
        self.at(index).map(|entry| entry.term).ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.base_index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, _: u64) -> raft::Result<Snapshot> {
        match &self.snapshot {
            Some(snapshot) if snapshot.get_metadata().index >= request_index => {
                Ok(snapshot.clone())
            }
            _ => Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable)),
        }
    }
}
