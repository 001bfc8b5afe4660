//! One partition as its owner sees it: commands in, effects out.
//!
//! The owner is the only shard that proposes to a partition. What a shard gathered in one turn is
//! one entry. Between `finish` (the entry gets its header: leader, time, sequence) and `apply`
//! stands nothing yet; the journal's propose-persist-commit will stand there, and neither side
//! will notice but for the time that passes.

use quantumqtt_machine::{
    ApplyError, Command, Effect, Entry, EntryBuilder, EntryError, EntryHeader, Machine,
};

pub(crate) struct Partition {
    machine: Machine,
    header: EntryHeader,
    /// Commands that cost nothing to wait for the turn's end.
    own: EntryBuilder,
}

/// The log holds something this build cannot apply: the node stops, it never guesses.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommitError {
    #[error(transparent)]
    Entry(#[from] EntryError),
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

impl Partition {
    pub(crate) fn new(machine: Machine, header: EntryHeader) -> Self {
        Self { machine, header, own: EntryBuilder::new() }
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Propose what a shard gathered and execute it; the effects are in log order.
    pub(crate) fn commit(
        &mut self,
        builder: &mut EntryBuilder,
        now_ms: u64,
        effects: &mut Vec<Effect>,
    ) -> Result<u64, CommitError> {
        self.header.batch_seq += 1;
        // The leader's clock never goes back within its term; the machine clamps it over terms.
        self.header.now_ms = now_ms.max(self.header.now_ms);
        let entry = Entry::parse(builder.finish(&self.header))?;
        self.machine.apply(&entry, effects)?;
        Ok(u64::from(entry.count()))
    }

    /// Let time pass in the machine, if anything there waits for this moment.
    pub(crate) fn tick(
        &mut self,
        now_ms: u64,
        effects: &mut Vec<Effect>,
    ) -> Result<u64, CommitError> {
        if self.machine.next_deadline_ms().is_none_or(|due_ms| due_ms > now_ms) {
            return Ok(0);
        }
        let mut own = std::mem::take(&mut self.own);
        own.push(&Command::Tick)?;
        let applied = self.commit(&mut own, now_ms, effects);
        self.own = own;
        applied
    }
}
