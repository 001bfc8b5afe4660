//! One partition as its owner sees it: commands in, effects out.
//!
//! The owner is the only shard that proposes to a partition. What a shard gathered in one turn is
//! one entry. It gets its header here (leader, time, sequence) and goes to the log; what the log
//! gives back is committed, in the order in which it was proposed, and is applied here. Under
//! `memory` there is nothing in between. With a log the way is propose → stage → sync → commit
//! (`log.rs`), and between a proposal and its effects lie as many turns as the disk takes.

use std::sync::Arc;

use bytes::Bytes;
use quantumqtt_machine::{
    ApplyError, Command, Effect, Entry, EntryBuilder, EntryError, EntryHeader, Machine, Record,
};

use crate::checkpointer::{Checkpointer, Wanted};
use crate::keeper::KeeperThread;
use crate::log::{DurableLog, Log, LogFailure};
use crate::message_log::Intake;

pub(crate) struct Partition {
    machine: Machine,
    header: EntryHeader,
    log: Log,
    /// Commands of our own: time that passes.
    own: EntryBuilder,
    /// A tick is on its way; until it is applied its deadline is not due again.
    tick_is_proposed: bool,
    checkpointer: Option<Checkpointer>,
    records: Option<Recording>,
}

/// Where committed records go, and the thread that keeps them.
pub(crate) struct Recording {
    pub(crate) intake: Arc<Intake>,
    /// Ends with the partition.
    pub(crate) _keeper: KeeperThread,
}

/// The log holds something this build cannot apply, or holds nothing more: the node stops, it
/// never guesses.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PartitionError {
    #[error("committed entry cannot be read: {0}")]
    Entry(#[from] EntryError),
    #[error("committed entry cannot be applied: {0}")]
    Apply(#[from] ApplyError),
    #[error(transparent)]
    Log(#[from] LogFailure),
    #[error("the message log has failed: {0}")]
    Records(String),
}

/// What one committed entry came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Applied {
    pub(crate) entry: Bytes,
    pub(crate) commands: u64,
    /// Bytes that wait for the log no longer.
    pub(crate) bytes: usize,
}

impl Partition {
    pub(crate) fn new(machine: Machine, header: EntryHeader, log: Log) -> Self {
        let own = EntryBuilder::new();
        Self {
            machine,
            header,
            log,
            own,
            tick_is_proposed: false,
            checkpointer: None,
            records: None,
        }
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Both halves, for the hand crank: it makes checkpoints in steps of its own.
    pub(crate) fn parts(&mut self) -> (&mut Machine, &mut Log) {
        (&mut self.machine, &mut self.log)
    }

    /// From now on committed records are kept.
    pub(crate) fn keep_records(&mut self, records: Recording) {
        self.records = Some(records);
    }

    /// What entries came to since the last time; it has left `records` when this returns.
    pub(crate) fn record(&self, records: &mut Vec<Record>) {
        if let (Some(recording), Some(log)) = (&self.records, self.log.as_durable()) {
            recording.intake.hand_over(records, log.journal().durable_lsn());
        }
    }

    /// Whether the message log is not written as fast as it grows.
    pub(crate) fn is_behind(&self) -> bool {
        self.records.as_ref().is_some_and(|records| records.intake.is_behind())
    }

    /// A checkpoint is wanted as soon as there is something to put into it.
    pub(crate) fn want_checkpoint(&mut self) {
        if let Some(checkpointer) = &mut self.checkpointer {
            checkpointer.want();
        }
    }

    /// From now on checkpoints are made.
    pub(crate) fn keep_checkpoints(&mut self, checkpointer: Checkpointer) {
        self.checkpointer = Some(checkpointer);
    }

    /// What the thread that writes a checkpoint asks for.
    pub(crate) fn on_checkpoint_wanted(&mut self, wanted: Wanted) {
        if let (Some(checkpointer), Some(log), Some(records)) =
            (&mut self.checkpointer, self.log.durable(), &self.records)
        {
            checkpointer.on_wanted(wanted, &mut self.machine, log, &records.intake);
        }
    }

    /// Everything committed is applied: begin a checkpoint if one is due.
    pub(crate) fn on_turn_end(&mut self, now_ms: u64) {
        if let (Some(checkpointer), Some(log), Some(records)) =
            (&mut self.checkpointer, self.log.durable(), &self.records)
        {
            checkpointer.on_turn_end(now_ms, &mut self.machine, log, &records.intake);
        }
    }

    /// Put what a shard gathered into the log; the number of its bytes.
    pub(crate) fn propose(&mut self, builder: &mut EntryBuilder, now_ms: u64) -> usize {
        self.header.batch_seq += 1;
        // The leader's clock never goes back within its term; the machine clamps it over terms.
        self.header.now_ms = now_ms.max(self.header.now_ms);
        let entry = builder.finish(&self.header);
        let bytes = entry.len();
        self.log.propose(entry);
        bytes
    }

    /// Let time pass in the machine, if anything there waits for this moment.
    pub(crate) fn propose_tick(&mut self, now_ms: u64) -> Result<usize, PartitionError> {
        if self.next_tick_ms().is_none_or(|due_ms| due_ms > now_ms) {
            return Ok(0);
        }
        let mut own = std::mem::take(&mut self.own);
        own.push(&Command::Tick)?;
        let proposed = self.propose(&mut own, now_ms);
        self.own = own;
        self.tick_is_proposed = true;
        Ok(proposed)
    }

    /// Whether everything proposed is committed, and applied as far as it was handed out.
    pub(crate) fn is_settled(&mut self) -> bool {
        self.log.durable().is_none_or(|log| log.is_settled())
    }

    /// The index of the entry that was applied last; 0 without a log.
    pub(crate) fn applied_index(&self) -> u64 {
        self.log.as_durable().map_or(0, DurableLog::applied_index)
    }

    /// The last entry in the state, Raft's own included; under `memory` entries are not numbered.
    pub(crate) fn state_index(&self) -> u64 {
        self.log.as_durable().map_or(0, DurableLog::state_index)
    }

    /// Whether the disk has no room for what waits.
    pub(crate) fn log_is_full(&self) -> bool {
        self.log.as_durable().is_some_and(|log| log.view().is_full())
    }

    /// When time must pass in the machine; None while that is already under way.
    fn next_tick_ms(&self) -> Option<u64> {
        if self.tick_is_proposed { None } else { self.machine.next_deadline_ms() }
    }

    /// When the end of a turn is wanted although nothing happens.
    pub(crate) fn next_wake_ms(&self) -> Option<u64> {
        let log = self.log.as_durable();
        let checkpointer = self.checkpointer.as_ref().zip(log);
        let due_ms = checkpointer.and_then(|(checkpointer, log)| checkpointer.next_wake_ms(log));
        [self.next_tick_ms(), due_ms].into_iter().flatten().min()
    }

    /// Give the log what was proposed, and learn what has become durable.
    pub(crate) fn advance(&mut self) -> Result<(), PartitionError> {
        if let Some(why) = self.records.as_ref().and_then(|records| records.intake.failure()) {
            return Err(PartitionError::Records(why));
        }
        Ok(self.log.advance()?)
    }

    /// Apply the next committed entry; its effects are in log order. None when there is none yet.
    pub(crate) fn apply_next(
        &mut self,
        effects: &mut Vec<Effect>,
    ) -> Result<Option<Applied>, PartitionError> {
        let mut next = self.log.next_committed();
        if next.is_none() && self.log.has_more() {
            // The group hands out a long log in pieces, the next when the last is applied.
            self.log.advance()?;
            next = self.log.next_committed();
        }
        let Some(entry) = next else {
            return Ok(None);
        };
        let bytes = entry.len();
        let commands = self.apply(entry.clone(), effects)?;
        self.log.applied();
        Ok(Some(Applied { entry, commands, bytes }))
    }

    fn apply(&mut self, entry: Bytes, effects: &mut Vec<Effect>) -> Result<u64, PartitionError> {
        let entry = Entry::parse(entry)?;
        self.machine.apply(&entry, effects)?;
        if self.tick_is_proposed {
            // Any entry moves the clock, but only a tick meets deadlines: look whether ours did.
            let is_due = |due_ms| due_ms <= entry.header().now_ms;
            self.tick_is_proposed = self.machine.next_deadline_ms().is_some_and(is_due);
        }
        Ok(u64::from(entry.count()))
    }
}
