//! One Raft group, owned by one shard: proposals in, committed entries out.
//!
//! The group drives raft-rs on its asynchronous path. Rules, each with a test:
//!
//! 1. Between `ready` and `advance_append_async` nothing is stepped or proposed, and new entries
//!    can be read from the storage before the latter.
//! 2. A leader's messages go out at once; a follower's only after the sync of their ready.
//! 3. Readies are persisted in order; `on_persist_ready(n)` covers all up to n. Only then the
//!    node's own vote for an entry counts, so `has_ready` is asked again.
//! 4. Term and vote are synced with the entries they come with. A commit index that moved alone
//!    is written with the next entries, without a sync of its own.
//! 5. Nothing is handed out that is not both committed and persisted here.
//! 6. The election timeout is a function of seed, node, group, term and role; raft-rs would roll
//!    dice.
//!
//! Absent on purpose: clocks (ticks are calls), threads, the network (messages are values).

use std::collections::VecDeque;

use bytes::Bytes;
use raft::eraftpb::{ConfChange, ConfChangeV2, Entry, EntryType, HardState, Message, MessageType};
use raft::{Config, RawNode, StateRole};

use crate::body::{CheckpointMark, entry_bytes, put_entry, put_u64};
use crate::error::{Damage, Refusal};
use crate::format::RecordKind;
use crate::journal::{Journal, RecoveredGroup};
use crate::limits::{
    CACHE_BYTES_DEFAULT, COMMITTED_BYTES_PER_READY_MAX, RECORD_ENTRIES_MAX, REPLICATE_BYTES_MAX,
    REPLICATE_INFLIGHT_MAX, UNAPPLIED_BYTES_MAX, UNCOMMITTED_BYTES_MAX, record_bytes_close,
};
use crate::members::Members;
use crate::shared::{Lsn, WakeToken};
use crate::storage::GroupStorage;
use crate::writer::put_hard_state;

/// A message between replicas of a group; frames for the network are the transport's business.
pub type PeerMessage = Message;

/// How a group is run.
#[derive(Debug, Clone, Copy)]
pub struct GroupOptions {
    /// Which shard owns it: given to the journal's wake.
    pub token: WakeToken,
    /// Bytes proposed and not yet committed.
    pub uncommitted_bytes_max: u64,
    /// Bytes committed and not yet taken.
    pub unapplied_bytes_max: usize,
    /// Applied entries kept in memory for followers; a lone voter keeps none.
    pub cache_bytes: usize,
    /// Ticks between heartbeats.
    pub heartbeat_ticks: usize,
    /// Election timeouts are at least this many ticks.
    pub election_ticks_min: usize,
    /// Election timeouts are below this many ticks.
    pub election_ticks_max: usize,
    /// What election timeouts are drawn from.
    pub seed: u64,
}

impl GroupOptions {
    /// Ticks of 10 ms: heartbeats every 50 ms, elections after 150 to 300 ms.
    pub fn new(token: WakeToken) -> Self {
        Self {
            token,
            uncommitted_bytes_max: UNCOMMITTED_BYTES_MAX,
            unapplied_bytes_max: UNAPPLIED_BYTES_MAX,
            cache_bytes: CACHE_BYTES_DEFAULT,
            heartbeat_ticks: 5,
            election_ticks_min: 15,
            election_ticks_max: 30,
            seed: 0,
        }
    }
}

/// Where a proposal stands in the log, if this node stays the leader of that term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Its index.
    pub index: u64,
    /// The leader's term.
    pub term: u64,
}

/// One committed entry, durable here and on a quorum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Its index; rises, with holes where entries are Raft's own.
    pub index: u64,
    /// The term it was proposed in.
    pub term: u64,
    /// What was proposed.
    pub data: Bytes,
}

/// What a group is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupStatus {
    /// Raft's term.
    pub term: u64,
    /// Whether this node leads.
    pub is_leader: bool,
    /// Who leads, if that is known.
    pub leader: Option<u64>,
    /// The last index, staged ones included.
    pub last_index: u64,
    /// The last committed index.
    pub commit: u64,
    /// The last index the machine said it applied.
    pub applied: u64,
    /// The index up to which the log may be gone.
    pub compacted: u64,
    /// Readies that wait for the disk.
    pub parked: usize,
    /// Bytes of entries in memory.
    pub cached_bytes: usize,
    /// Why it is quarantined, if it is.
    pub quarantined: Option<Damage>,
}

struct Parked {
    lsn: Lsn,
    number: u64,
    messages: Vec<Message>,
}

/// A Raft group of this node.
pub struct Group {
    id: u64,
    node_id: u64,
    key_domain: u32,
    options: GroupOptions,
    entry_bytes_max: usize,
    node: RawNode<GroupStorage>,
    parked: VecDeque<Parked>,
    last_lsn: Lsn,
    outbox: Vec<Message>,
    committed: VecDeque<Committed>,
    committed_bytes: usize,
    /// The last index raft handed out, whether for the machine or for itself.
    seen: u64,
    /// The last index the machine was given.
    given: u64,
    applied: u64,
    compacted: u64,
    /// Members and the index they hold from.
    history: VecDeque<(u64, Members)>,
    /// Terms and the index each begins at, as far back as the log reaches.
    terms: VecDeque<(u64, u64)>,
    quarantined: Option<Damage>,
}

impl Group {
    /// Starts a group where the log left it; a lone voter begins to lead at once.
    ///
    /// The machine must have been restored from `recovered.checkpoint()`; entries follow from
    /// there.
    pub fn start(recovered: RecoveredGroup, options: GroupOptions) -> Self {
        let RecoveredGroup {
            id,
            node_id,
            row,
            mut entries,
            quarantined,
            entry_bytes_max,
            checkpoint,
            ..
        } = recovered;
        let (applied, members) = match &checkpoint {
            Some(checkpoint) => (checkpoint.index(), checkpoint.members().clone()),
            None => (0, row.members),
        };
        // Without entries nothing stands between the checkpoint and what comes next.
        let base = if entries.is_empty() {
            (row.last_index, row.last_term)
        } else {
            (row.compacted_index, row.compacted_term)
        };
        let mut terms = VecDeque::from([base]);
        note_terms(&mut terms, entries.make_contiguous());
        // raft 0.7.0 takes more applied than committed for a fault; what a checkpoint covers was
        // committed.
        let hard_state = HardState {
            term: row.term,
            vote: row.vote,
            commit: row.commit.max(applied),
            ..HardState::default()
        };
        let storage = GroupStorage::new(hard_state, (&members).into(), base, entries);
        let config = raft_config(node_id, applied, &options);
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&config, storage, &logger).expect("the log is consistent");
        let mut group = Self {
            id,
            node_id,
            key_domain: row.key_domain,
            options,
            entry_bytes_max,
            node,
            parked: VecDeque::new(),
            last_lsn: 0,
            outbox: Vec::new(),
            committed: VecDeque::new(),
            committed_bytes: 0,
            seen: applied,
            given: applied,
            applied,
            compacted: row.compacted_index,
            history: VecDeque::from([(applied, members)]),
            terms,
            quarantined,
        };
        group.campaign_if_alone();
        group.set_election_timeout();
        group
    }

    /// Its id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether this node leads the group.
    pub fn is_leader(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    /// Asks for an entry. It counts once it comes out of `take_committed`.
    ///
    /// Nothing is written before `stage`; many proposals of a turn share one ready.
    pub fn propose(&mut self, data: Bytes) -> Result<Position, Refusal> {
        let group = self.id;
        if self.quarantined.is_some() {
            return Err(Refusal::Quarantined { group });
        }
        if data.len() > self.entry_bytes_max {
            return Err(Refusal::TooLarge { bytes: data.len(), max: self.entry_bytes_max });
        }
        if !self.is_leader() {
            let leader = Some(self.node.raft.leader_id).filter(|&leader| leader != 0);
            return Err(Refusal::NotLeader { group, leader });
        }
        // A handover in progress drops proposals, like a log with too much under way.
        if self.node.raft.lead_transferee.is_some() {
            return Err(Refusal::Busy { group });
        }
        let mut message = Message { from: self.node_id, ..Message::default() };
        message.set_msg_type(MessageType::MsgPropose);
        message.entries = vec![Entry { data, ..Entry::default() }].into();
        match self.node.step(message) {
            Ok(()) => {
                let log = &self.node.raft.raft_log;
                Ok(Position { index: log.last_index(), term: self.node.raft.term })
            }
            Err(_) => Err(Refusal::Busy { group }),
        }
    }

    /// Time passes for elections and heartbeats.
    pub fn tick(&mut self) {
        if self.quarantined.is_none() {
            self.node.tick();
            self.set_election_timeout();
        }
    }

    /// Takes a message from another replica.
    pub fn step(&mut self, message: PeerMessage) {
        // Proposals are not forwarded, and snapshots travel as checkpoints, not inside messages.
        let refused = [MessageType::MsgPropose, MessageType::MsgSnapshot];
        if self.quarantined.is_some() || refused.contains(&message.get_msg_type()) {
            return;
        }
        // Messages of removed members and the like are refused by Raft; that is all there is to do.
        let _ = self.node.step(message);
        self.set_election_timeout();
    }

    /// Hands what Raft wants written to the journal; true if anything was handed over.
    ///
    /// On a refusal Raft was not asked, so nothing is lost: call again after the next wake.
    pub fn stage(&mut self, journal: &Journal) -> Result<bool, Refusal> {
        if self.quarantined.is_some() {
            return Err(Refusal::Quarantined { group: self.id });
        }
        let mut staged = false;
        while self.committed_bytes < self.options.unapplied_bytes_max && self.node.has_ready() {
            journal.admit(self.id, self.options.token)?;
            self.stage_ready(journal);
            staged = true;
        }
        Ok(staged)
    }

    fn stage_ready(&mut self, journal: &Journal) {
        let mut ready = self.node.ready();
        self.outbox.append(&mut ready.take_messages());
        for entry in ready.take_committed_entries() {
            self.receive(entry);
        }
        let entries = ready.take_entries();
        let hard_state = ready.hs().cloned();
        let commit = self.node.raft.raft_log.committed;
        let messages = ready.take_persisted_messages();
        let number = ready.number();
        assert!(ready.snapshot().is_empty(), "snapshots are refused in `step`");
        let waits = ready.must_sync();
        if waits {
            let mut stager = journal.stager(self.id, self.key_domain);
            if let Some(state) = &hard_state {
                let place = (0, state.term, 0);
                self.last_lsn = stager.push(RecordKind::HardState, place, |out| {
                    put_hard_state(out, state.vote, commit);
                });
            }
            let close = record_bytes_close(journal.options().segment_bytes);
            for run in runs(&entries, close) {
                let place = (run[0].index, run[0].term, run.len() as u16);
                self.last_lsn = stager.push(RecordKind::Entries, place, |out| {
                    put_u64(out, commit);
                    for entry in run {
                        put_entry(out, entry);
                    }
                });
            }
            stager.finish(self.options.token);
        }
        let storage = self.node.mut_store();
        if let Some(state) = hard_state {
            storage.hard_state = state;
        }
        storage.append(&entries);
        note_terms(&mut self.terms, &entries);
        self.node.advance_append_async(ready);
        if waits || !self.parked.is_empty() {
            self.parked.push_back(Parked { lsn: self.last_lsn, number, messages });
        } else {
            self.persisted(number, messages);
        }
        self.advance_applied();
    }

    fn persisted(&mut self, number: u64, mut messages: Vec<Message>) {
        self.node.on_persist_ready(number);
        self.outbox.append(&mut messages);
        self.set_election_timeout();
    }

    /// Takes note of what the disk has; true if `stage` has something to do now.
    pub fn on_durable(&mut self, journal: &Journal) -> bool {
        let durable = journal.durable_lsn();
        while self.parked.front().is_some_and(|parked| parked.lsn <= durable) {
            if let Some(Parked { number, messages, .. }) = self.parked.pop_front() {
                self.persisted(number, messages);
            }
        }
        self.has_work()
    }

    /// Whether `stage` has something to do without waiting for anything: after much was taken, or
    /// after `on_durable`.
    pub fn has_work(&self) -> bool {
        self.quarantined.is_none() && self.node.has_ready()
    }

    /// Both halves of a turn after a wake: what became durable, and what follows from it.
    pub fn advance(&mut self, journal: &Journal) -> Result<(), Refusal> {
        self.on_durable(journal);
        self.stage(journal).map(drop)
    }

    /// A committed entry from Raft: the machine's, or Raft's own.
    fn receive(&mut self, entry: Entry) {
        self.seen = entry.index;
        match entry.entry_type {
            EntryType::EntryNormal if entry.data.is_empty() => {}
            EntryType::EntryNormal => {
                self.committed_bytes += entry.data.len();
                let Entry { index, term, data, .. } = entry;
                self.committed.push_back(Committed { index, term, data });
            }
            EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => self.change(&entry),
        }
    }

    /// Members change where the entry is applied, as every replica does it.
    fn change(&mut self, entry: &Entry) {
        use protobuf::Message as _;
        let parsed = if entry.entry_type == EntryType::EntryConfChange {
            ConfChange::parse_from_bytes(&entry.data)
                .map(|change| self.node.apply_conf_change(&change))
        } else {
            ConfChangeV2::parse_from_bytes(&entry.data)
                .map(|change| self.node.apply_conf_change(&change))
        };
        let state = parsed.expect("we proposed it").expect("Raft checked it when it was proposed");
        self.history.push_back((entry.index, (&state).into()));
        self.node.mut_store().conf_state = state;
    }

    /// Entries for the machine, in order. Tell `applied` when they took effect.
    pub fn take_committed(&mut self) -> impl Iterator<Item = Committed> + use<> {
        let taken = std::mem::take(&mut self.committed);
        self.committed_bytes = 0;
        if let Some(last) = taken.back() {
            self.given = last.index;
        }
        taken.into_iter()
    }

    /// The machine has applied everything up to an index it was given.
    pub fn applied(&mut self, index: u64) {
        assert!(index <= self.given, "only what was taken can have been applied");
        self.applied = self.applied.max(index);
        self.advance_applied();
    }

    /// Entries of Raft's own behind the machine's last count as applied with it.
    fn advance_applied(&mut self) {
        let behind = self.applied < self.given || !self.committed.is_empty();
        if !behind {
            self.applied = self.seen;
            self.given = self.seen;
        }
        if self.applied > self.node.raft.raft_log.applied {
            self.node.advance_apply_to(self.applied);
            let alone = self.members().is_only_voter(self.node_id);
            let keep = if alone { 0 } else { self.options.cache_bytes };
            self.node.mut_store().forget(self.applied, keep);
            self.campaign_if_alone();
            self.set_election_timeout();
        }
    }

    fn campaign_if_alone(&mut self) {
        let waiting = self.node.raft.state != StateRole::Leader && self.quarantined.is_none();
        if waiting && self.members().is_only_voter(self.node_id) {
            // Refused while a change of members is not applied; asked again when it is.
            let _ = self.node.campaign();
        }
    }

    /// Messages for other replicas.
    pub fn take_messages(&mut self) -> Vec<PeerMessage> {
        std::mem::take(&mut self.outbox)
    }

    /// The members now in force.
    pub fn members(&self) -> &Members {
        &self.history.back().expect("members are known from the beginning").1
    }

    /// What the machine may put into a checkpoint taken at its applied index: index, term, members.
    pub fn checkpoint_place(&self) -> (Position, Members) {
        let index = self.applied;
        let term = self.term_at(index);
        let members = self.history.iter().rev().find(|(from, _)| *from <= index);
        let members = members.map(|(_, members)| members.clone()).unwrap_or_default();
        (Position { index, term }, members)
    }

    pub(crate) fn cover(&mut self, journal: &Journal, mark: &CheckpointMark) {
        let place = (mark.index, mark.term, 0);
        let mut stager = journal.stager(self.id, self.key_domain);
        self.last_lsn = stager.push(RecordKind::Checkpoint, place, |out| mark.encode(out));
        stager.finish_unwatched();
        self.compacted = self.compacted.max(mark.compacted_index);
        while self.history.len() > 1 && self.history[1].0 <= mark.index {
            self.history.pop_front();
        }
        while self.terms.len() > 1 && self.terms[1].0 <= mark.compacted_index {
            self.terms.pop_front();
        }
    }

    /// The term of an index the log reaches back to.
    pub(crate) fn term_at(&self, index: u64) -> u64 {
        let begun = self.terms.iter().rev().find(|(from, _)| *from <= index);
        begun.map_or(0, |&(_, term)| term)
    }

    pub(crate) fn token(&self) -> WakeToken {
        self.options.token
    }

    /// What the group is doing.
    pub fn status(&self) -> GroupStatus {
        let raft = &self.node.raft;
        GroupStatus {
            term: raft.term,
            is_leader: self.is_leader(),
            leader: Some(raft.leader_id).filter(|&leader| leader != 0),
            last_index: raft.raft_log.last_index(),
            commit: raft.raft_log.committed,
            applied: self.applied,
            compacted: self.compacted,
            parked: self.parked.len(),
            cached_bytes: self.node.store().bytes(),
            quarantined: self.quarantined.clone(),
        }
    }

    fn set_election_timeout(&mut self) {
        let raft = &mut self.node.raft;
        let role = raft.state as u64;
        let span = (self.options.election_ticks_max - self.options.election_ticks_min) as u64;
        let drawn = [self.node_id, self.id, raft.term, role]
            .iter()
            .fold(self.options.seed, |mixed, &part| mix(mixed ^ part));
        raft.set_randomized_election_timeout(
            self.options.election_ticks_min + (drawn % span) as usize,
        );
    }
}

fn raft_config(node_id: u64, applied: u64, options: &GroupOptions) -> Config {
    Config {
        id: node_id,
        applied,
        election_tick: options.election_ticks_min,
        heartbeat_tick: options.heartbeat_ticks,
        min_election_tick: options.election_ticks_min,
        max_election_tick: options.election_ticks_max,
        max_size_per_msg: REPLICATE_BYTES_MAX.min(options.uncommitted_bytes_max),
        max_inflight_msgs: REPLICATE_INFLIGHT_MAX,
        max_uncommitted_size: options.uncommitted_bytes_max,
        max_committed_size_per_ready: COMMITTED_BYTES_PER_READY_MAX,
        check_quorum: true,
        pre_vote: true,
        ..Config::default()
    }
}

/// The finalizer of `SplitMix64`: every bit of the answer depends on every bit of the question.
fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Notes where terms begin; entries replace what had their indexes.
fn note_terms(terms: &mut VecDeque<(u64, u64)>, entries: &[Entry]) {
    let Some(first) = entries.first() else { return };
    while terms.len() > 1 && terms.back().is_some_and(|&(from, _)| from >= first.index) {
        terms.pop_back();
    }
    for entry in entries {
        if terms.back().is_none_or(|&(_, term)| term != entry.term) {
            terms.push_back((entry.index, entry.term));
        }
    }
}

/// Cuts entries into records: one term each, closed once it is large.
fn runs(entries: &[Entry], close: usize) -> impl Iterator<Item = &[Entry]> {
    let mut rest = entries;
    std::iter::from_fn(move || {
        let term = rest.first()?.term;
        let mut bytes = 0;
        let fits = |entry: &&Entry| {
            let first = bytes == 0;
            bytes += entry_bytes(entry);
            entry.term == term && (first || bytes <= close)
        };
        let count = rest.iter().take(RECORD_ENTRIES_MAX).take_while(fits).count();
        let (run, behind) = rest.split_at(count);
        rest = behind;
        Some(run)
    })
}
