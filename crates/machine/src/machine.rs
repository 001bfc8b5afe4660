//! The machine: one partition's state, changed by entries in log order and by nothing else.
//!
//! `apply` is a function of the state and the entry. What it must never depend on: the clock (time
//! is the entry's `now_ms`), dice (ids are counters), the order of a hash table (everything is
//! walked in key order), the size of a batch (a command has the same effects wherever the entry's
//! boundaries fall), or who applies (followers run the same code and throw the effects away).
//!
//! Where to find what: `session.rs` opening, takeover, expiry · `publish.rs` accepting, routing ·
//! `window.rs` packet ids · `backlog.rs` offline queues · `subscribe.rs` filters · `retained.rs` ·
//! `replay.rs` retained messages on their way · `dedupe.rs` keys of accepted publishes ·
//! `will.rs` · `expiry.rs` deadlines ·
//! `checkpoint.rs` the state as bytes · `digest.rs` the proof that replicas agree ·
//! `invariants.rs` what is true between any two commands.
//!
//! Errors are for entries this build cannot apply. They leave the state as it was at the command
//! that failed, which no other replica may have; the caller stops the partition.

use std::collections::VecDeque;

use crate::checkpoint::Checkpoint;
use crate::command::Command;
use crate::dedupe::Dedupe;
use crate::effect::{Effect, EndReason};
use crate::entry::{Entry, EntryError};
use crate::expiry::{Deadline, Deadlines};
use crate::limits::Limits;
use crate::registry::Sessions;
use crate::retained::Retained;
use crate::statistics::{Counters, Statistics};
use crate::subscription_index::{Found, SubscriptionIndex};
use crate::will::DueWill;

/// Why an entry could not be applied. The partition must stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The entry was routed to the wrong machine.
    #[error("entry of partition {found} reached the machine of partition {expected}")]
    WrongPartition {
        /// The machine's.
        expected: u32,
        /// The entry's.
        found: u32,
    },
    /// A command could not be read.
    #[error(transparent)]
    Entry(#[from] EntryError),
}

/// See the head of this file.
#[derive(Debug)]
pub struct Machine {
    pub(crate) partition: u32,
    pub(crate) limits: Limits,
    /// The latest entry time; never goes back.
    pub(crate) now_ms: u64,
    pub(crate) next_offset: u64,
    pub(crate) next_publish_seq: u64,
    pub(crate) last_epoch: u64,
    pub(crate) last_incarnation: u64,
    pub(crate) sessions: Sessions,
    pub(crate) subscriptions: SubscriptionIndex,
    pub(crate) retained: Retained,
    pub(crate) dedupe: Dedupe,
    pub(crate) deadlines: Deadlines,
    /// Wills to publish before the present command ends; empty between commands.
    pub(crate) due_wills: VecDeque<DueWill>,
    /// Who wants the topic published last; no part of the state.
    pub(crate) found: Found,
    pub(crate) counters: Counters,
    /// What is being handed out at present; no part of the state.
    pub(crate) checkpoint: Option<Box<Checkpoint>>,
    /// Of the last one that was handed out whole.
    pub(crate) checkpoint_digest: Option<u128>,
}

impl Machine {
    /// The machine of a partition that has no log yet.
    pub fn new(partition: u32, limits: Limits) -> Self {
        Self {
            partition,
            limits,
            now_ms: 0,
            next_offset: 0,
            next_publish_seq: 1,
            last_epoch: 0,
            last_incarnation: 0,
            sessions: Sessions::default(),
            subscriptions: SubscriptionIndex::default(),
            retained: Retained::default(),
            dedupe: Dedupe::default(),
            deadlines: Deadlines::default(),
            due_wills: VecDeque::new(),
            found: Found::default(),
            counters: Counters::default(),
            checkpoint: None,
            checkpoint_digest: None,
        }
    }

    /// Applies one committed entry and appends what is to be done to `effects`.
    pub fn apply(&mut self, entry: &Entry, effects: &mut Vec<Effect>) -> Result<(), ApplyError> {
        let header = entry.header();
        if header.partition != self.partition {
            return Err(ApplyError::WrongPartition {
                expected: self.partition,
                found: header.partition,
            });
        }
        // A new leader's clock may be behind the old one's; time stands still until it catches up.
        self.now_ms = self.now_ms.max(header.now_ms);
        for command in entry.commands() {
            self.apply_command(entry, &command?, effects);
        }
        Ok(())
    }

    fn apply_command(&mut self, entry: &Entry, command: &Command<'_>, effects: &mut Vec<Effect>) {
        match command {
            Command::OpenSession(open) => self.open_session(open, effects),
            Command::ConnectionLost(lost) => self.connection_lost(lost, effects),
            Command::LeaveWill(left) => self.leave_will(left),
            Command::Subscribe(subscribe) => self.subscribe(subscribe, effects),
            Command::Unsubscribe(unsubscribe) => self.unsubscribe(unsubscribe, effects),
            Command::Publish(publish) => self.publish(entry.bytes(), publish, effects),
            Command::PubRel(release) => self.pub_rel(release, effects),
            Command::ClientAck(ack) => self.client_ack(ack, effects),
            Command::Tick => self.tick(effects),
            Command::SetLimits(limits) => self.limits = *limits,
        }
        self.publish_due_wills(effects);
    }

    fn tick(&mut self, effects: &mut Vec<Effect>) {
        self.dedupe.sweep(self.now_ms);
        while let Some(deadline) = self.deadlines.take_due(self.now_ms) {
            match deadline {
                Deadline::Will(key) => self.fire_will_of(key),
                Deadline::Session(key) => self.end_session(key, EndReason::Expired, effects),
                Deadline::Retained(topic) => self.expire_retained(&topic),
            }
        }
    }

    /// When a `Tick` is next worth proposing.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.deadlines.next_ms()
    }

    /// The bounds in force.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The partition this is the state of.
    pub fn partition(&self) -> u32 {
        self.partition
    }

    /// A frozen view for exporters; costs the same whatever the state's size.
    pub fn statistics(&self) -> Statistics {
        let totals = self.sessions.totals();
        Statistics {
            sessions: self.sessions.len() as u64 - totals.guests,
            guests: totals.guests,
            sessions_attached: totals.attached,
            subscriptions: self.subscriptions.len() as u64,
            share_groups: self.subscriptions.group_count() as u64,
            retained: self.retained.len() as u64,
            retained_bytes: self.retained.bytes() as u64,
            queued: totals.queued,
            queued_bytes: totals.queued_bytes,
            in_flight: totals.in_flight,
            deadlines: self.deadlines.len() as u64,
            dedupe_keys: self.dedupe.len() as u64,
            next_offset: self.next_offset,
            now_ms: self.now_ms,
            counters: self.counters,
        }
    }
}
