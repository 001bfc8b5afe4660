//! What stands between proposing an entry and applying it.
//!
//! Under `memory` nothing does. With a journal an entry is proposed to the partition's Raft group,
//! staged for the node's one writer, synced, and committed once it is durable on a quorum; here the
//! only voter is this node. A shard never waits for any of it: it proposes and stages in its turn,
//! and the writer rings it when something has become durable.
//!
//! What the group cannot take at the moment (too much under way, no room on the disk) waits here,
//! in order. It is not lost and not acknowledged; publishers are held back by `pressure.rs`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use quantumqtt_journal::{Committed, Group, Journal, JournalError, Refusal};

use crate::log_view::LogView;

/// The log takes nothing more, for good: what it said until now is true, the rest is unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogFailure {
    #[error("the log has failed: {0}")]
    Failed(JournalError),
    #[error("the log refuses an entry: {0}")]
    Refused(Refusal),
}

/// See the head of this file.
pub(crate) enum Log {
    /// Nothing is kept: what is proposed is committed.
    Memory(VecDeque<Bytes>),
    /// The node's journal, and this partition's group on it.
    Journal(Box<DurableLog>),
}

/// A partition's group on the node's journal.
pub(crate) struct DurableLog {
    journal: Arc<Journal>,
    group: Group,
    view: Arc<LogView>,
    /// Proposed, and not yet taken by the group.
    waiting: VecDeque<Bytes>,
    committed: VecDeque<Committed>,
    /// Handed out last, and applied unless handing out is all that happened.
    handed_out: u64,
}

impl Log {
    /// Ask for an entry; it counts once `next_committed` gives it back.
    pub(crate) fn propose(&mut self, entry: Bytes) {
        match self {
            Self::Memory(committed) => committed.push_back(entry),
            Self::Journal(log) => log.waiting.push_back(entry),
        }
    }

    /// Hand on what was proposed and learn what has become durable; waits for nothing.
    pub(crate) fn advance(&mut self) -> Result<(), LogFailure> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Journal(log) => log.advance(),
        }
    }

    /// The next entry to apply, in log order.
    pub(crate) fn next_committed(&mut self) -> Option<Bytes> {
        match self {
            Self::Memory(committed) => committed.pop_front(),
            Self::Journal(log) => {
                let Committed { index, data, .. } = log.committed.pop_front()?;
                log.handed_out = index;
                Some(data)
            }
        }
    }

    /// Whether `advance` has something to do without waiting for anybody.
    pub(crate) fn has_more(&self) -> bool {
        self.as_durable().is_some_and(|log| log.group.has_work())
    }

    /// What `next_committed` gave last has been applied.
    pub(crate) fn applied(&mut self) {
        if let Self::Journal(log) = self {
            log.group.applied(log.handed_out);
            log.view.applied_index.store(log.handed_out, Ordering::Relaxed);
        }
    }

    pub(crate) fn as_durable(&self) -> Option<&DurableLog> {
        match self {
            Self::Memory(_) => None,
            Self::Journal(log) => Some(log),
        }
    }

    /// The group on the journal, if there is one.
    pub(crate) fn durable(&mut self) -> Option<&mut DurableLog> {
        match self {
            Self::Memory(_) => None,
            Self::Journal(log) => Some(log),
        }
    }
}

impl DurableLog {
    pub(crate) fn new(journal: Arc<Journal>, group: Group, view: Arc<LogView>) -> Self {
        let waiting = VecDeque::new();
        Self { journal, group, view, waiting, committed: VecDeque::new(), handed_out: 0 }
    }

    pub(crate) fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    pub(crate) fn group(&mut self) -> &mut Group {
        &mut self.group
    }

    pub(crate) fn applied_index(&self) -> u64 {
        self.handed_out
    }

    /// What the state holds, entries of Raft's own included.
    pub(crate) fn state_index(&self) -> u64 {
        self.group.status().applied
    }

    /// Bytes this journal wrote since it was opened.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.journal.statistics().bytes
    }

    pub(crate) fn view(&self) -> &Arc<LogView> {
        &self.view
    }

    /// Whether everything this log holds is committed and was handed out.
    pub(crate) fn is_settled(&self) -> bool {
        let status = self.group.status();
        let is_quiet = self.waiting.is_empty() && self.committed.is_empty();
        is_quiet && status.is_leader && status.commit == status.last_index && status.parked == 0
    }

    fn advance(&mut self) -> Result<(), LogFailure> {
        if let Some(failure) = self.journal.failure() {
            return Err(LogFailure::Failed(failure));
        }
        self.group.on_durable(&self.journal);
        loop {
            let has_proposed = self.propose_waiting()?;
            let has_staged = match self.group.stage(&self.journal) {
                Ok(has_staged) => has_staged,
                // Rung again when there is room, or never will be.
                Err(Refusal::Full | Refusal::Busy { .. }) => false,
                Err(refusal) => return Err(self.failure(refusal)),
            };
            self.committed.extend(self.group.take_committed());
            if !has_proposed && !has_staged {
                break;
            }
        }
        self.view.is_full.store(self.journal.is_full(), Ordering::Relaxed);
        Ok(())
    }

    /// Give the group what waits; true if it took any.
    fn propose_waiting(&mut self) -> Result<bool, LogFailure> {
        let mut has_proposed = false;
        while let Some(entry) = self.waiting.front() {
            match self.group.propose(entry.clone()) {
                Ok(_) => {
                    self.waiting.pop_front();
                    has_proposed = true;
                }
                Err(Refusal::Busy { .. } | Refusal::NotLeader { .. }) => break,
                Err(refusal) => return Err(self.failure(refusal)),
            }
        }
        Ok(has_proposed)
    }

    fn failure(&self, refusal: Refusal) -> LogFailure {
        match self.journal.failure() {
            Some(failure) => LogFailure::Failed(failure),
            None => LogFailure::Refused(refusal),
        }
    }
}
