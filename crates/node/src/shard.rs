//! The MQTT service of one shard: packets in, commands and bytes out.
//!
//! A turn, seen from here: bytes become packets, packets become deliveries (QoS 0) or commands;
//! at the turn's end the commands of this turn become one entry per partition, entries are applied
//! where the partition lives, and effects leave for the connections. What is decided here about one
//! connection stays here; what another shard must know travels as [`Mail`].

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use quantumqtt_machine::{
    Command, ConnectionLost, Counters, Effect, EntryBuilder, Record,
    Statistics as MachineStatistics,
};
use quantumqtt_reactor::{
    Accepted, CloseCause, ConnectionId, Connections, Consumed, Deadline, Poster, Service, Then,
    Turn, TurnedAway,
};
use quantumqtt_wire::{
    AckKind, DecodeError, Packet, PacketType, PropertyBlock, Publish, QoS, ReasonCode, Version,
    decode, frame,
};

use crate::admission::Doors;
use crate::authentication::Answer;
use crate::checkpointer::Wanted;
use crate::config::NodeLimits;
use crate::connect::{Step, connection_event};
use crate::connection::{Connection, Session, State};
use crate::deliver::Encoder;
use crate::events::{Event, EventKind, EventQueue};
use crate::index::{Index, Router};
use crate::limits::RECORDS_PER_APPEND;
use crate::log_view::LogView;
use crate::message_log::MessageLog;
use crate::outbound::{self, Outbound, Sent};
use crate::packets::{write_disconnect, write_packet};
use crate::partition::{Partition, PartitionError};
use crate::playback::{PlaybackDesk, Played};
use crate::pressure::Pressure;
use crate::questions::Question;
use crate::reasons::{CloseReason, DropReason, RefusalReason};
use crate::registry::Registry;
use crate::retained::{PageWanted, PageWritten};
use crate::rights::{Policy, Principal, Rights};
use crate::run::Run;
use crate::settling::Settled;
use crate::statistics::ShardCells;
use crate::system::{SystemMessage, SystemTopics};
use crate::verdicts::Verdicts;

/// What all shards of a node share.
pub(crate) struct Shared {
    pub(crate) node_id: u32,
    /// What an acknowledgement means here; MQTT 5 clients are told.
    pub(crate) durability: &'static str,
    pub(crate) started_ms: u64,
    pub(crate) limits: NodeLimits,
    pub(crate) registry: Registry,
    pub(crate) verdicts: Verdicts,
    pub(crate) disconnect_denied: bool,
    pub(crate) client_id_is_user: bool,
    pub(crate) auth_methods: Vec<Box<str>>,
    pub(crate) tolerates_excess: bool,
    pub(crate) index: Arc<Index>,
    pub(crate) events: EventQueue,
    pub(crate) cells: Vec<ShardCells>,
    pub(crate) pressure: Pressure,
    pub(crate) settled: Settled,
    /// The log that acknowledgements wait for; None under durability `memory`.
    pub(crate) log: Option<Arc<LogView>>,
    /// What was committed, for readers; None under durability `memory`.
    pub(crate) message_log: Option<Arc<MessageLog>>,
    /// Subscriptions the machine routes to; with none, a committed publish reaches nobody there.
    pub(crate) stored_subscriptions: AtomicU64,
    /// The offset of the next record, as of the last commit.
    pub(crate) next_offset: AtomicU64,
    /// How many replays of the log there are.
    pub(crate) playbacks: Arc<AtomicU64>,
    /// By which threads of others reach the shards; there once they run.
    pub(crate) poster: OnceLock<Arc<Poster<Mail>>>,
}

/// What shards tell each other.
pub(crate) enum Mail {
    /// To a partition's owner: the commands a shard gathered in one turn.
    Commands(Box<EntryBuilder>),
    /// To the owner of sockets: what entries came to, in log order.
    Effects(Vec<Effect>),
    /// `claimer` wants the client id of `victim`.
    TakeOver { victim: ConnectionId, claimer: ConnectionId },
    /// The connection that had your client id is gone, and so is all it proposed.
    Fenced { claimer: ConnectionId },
    /// Python's answer.
    Verdict { connection: ConnectionId, code: ReasonCode, may_be_remembered: bool },
    /// Python's answer to a step of enhanced authentication.
    Answer { connection: ConnectionId, answer: Box<Answer> },
    /// To a partition's owner: what the broker says of itself.
    System(Vec<SystemMessage>),
    /// Python's new rules.
    Policy(Arc<Policy>),
    /// To a partition's owner: a shard lives by these rules now.
    PolicyTaken { generation: u64 },
    /// Something in the log has become durable, or it has failed; the end of the turn looks.
    LogMoved,
    /// The thread that writes a checkpoint asks the partition's owner for something.
    CheckpointWants(Wanted),
    /// To a partition's owner: somebody outside wants to know something of the state.
    Asked(Question),
    /// To a partition's owner: cut the log as soon as that is possible.
    CheckpointWanted,
    /// The log has caught up: publishers that were held may go on.
    LogHasRoom,
    /// A subscriber that a publisher waited for has caught up.
    ReadOn { connection: ConnectionId },
    /// Everybody has left: hand over what they left behind.
    Settle,
    /// To a partition's owner: a shard has.
    HandedOver,
    /// A retained QoS 0 publish is committed.
    Committed { connection: ConnectionId },
    /// To a partition's owner: a transient session wants a page of retained messages.
    RetainedWanted { connection: ConnectionId, wanted: Box<PageWanted> },
    /// And the answer.
    RetainedWritten { connection: ConnectionId, written: PageWritten },
    /// The buffer of somebody who replays the log was flushed.
    PlayOn { connection: ConnectionId },
    /// Readers of the log see what a playback waits for.
    CaughtUp { connection: ConnectionId, number: u64 },
    /// A reader thread answers a playback.
    Played { connection: ConnectionId, played: Box<Played> },
    /// Something was committed, and somebody replays the log.
    LogHasGrown,
}

/// The commands of this turn, on their way to the partition.
pub(crate) struct Proposals {
    shard: u16,
    /// The shard that owns the partition. One partition per tenant for now: the ring has one slot.
    owner: u16,
    gathering: Box<EntryBuilder>,
    /// Entries to commit here at the turn's end, in order of arrival.
    #[expect(clippy::vec_box, reason = "boxes are swapped with those that arrive by mail")]
    to_commit: Vec<Box<EntryBuilder>>,
}

impl Proposals {
    pub(crate) fn new(shard: u16, owner: u16) -> Self {
        Self { shard, owner, gathering: Box::default(), to_commit: Vec::new() }
    }

    pub(crate) fn owner(&self) -> u16 {
        self.owner
    }

    /// Add a command to this turn's entry.
    pub(crate) fn push(&mut self, turn: &mut Turn<ShardService>, command: &Command<'_>) {
        if self.gathering.is_full() {
            self.hand_over(turn);
        }
        // Full was just ruled out, and a packet is far below an entry's ceiling.
        let pushed = self.gathering.push(command);
        assert!(pushed.is_ok(), "a fresh entry takes any command: {pushed:?}");
    }

    pub(crate) fn hand_over(&mut self, turn: &mut Turn<ShardService>) {
        if self.gathering.is_empty() {
            return;
        }
        let gathered = std::mem::take(&mut self.gathering);
        if self.owner == self.shard {
            self.to_commit.push(gathered);
        } else {
            turn.post(self.owner, Mail::Commands(gathered));
        }
    }

    fn is_idle(&self) -> bool {
        self.gathering.is_empty() && self.to_commit.is_empty()
    }
}

/// A connection that is gone but whose predecessor may not be.
struct Unfenced {
    client_id: Arc<str>,
    /// Who took the id from it, and waits for the same fence.
    heir: Option<ConnectionId>,
}

pub(crate) struct ShardService {
    pub(crate) shard: u16,
    pub(crate) shared: Arc<Shared>,
    pub(crate) doors: Doors,
    pub(crate) rights: Rights,
    /// Who every connection is until it is let in.
    nobody: Arc<Principal>,
    pub(crate) router: Router,
    pub(crate) encoder: Encoder,
    pub(crate) proposals: Proposals,
    /// What the broker said last, on the shard that owns the partition.
    pub(crate) system: SystemTopics,
    /// The partition, on the shard that owns it.
    pub(crate) partition: Option<Partition>,
    /// Effects for connections of other shards, by shard.
    pub(crate) effects_out: Vec<Vec<Effect>>,
    effects: Vec<Effect>,
    /// Records of entries that were applied, on their way to the message log.
    pub(crate) committed: Vec<Record>,
    /// Claimers whose predecessor was closed in this turn, and those where that was a turn ago.
    fences_new: Vec<ConnectionId>,
    fences_owed: Vec<ConnectionId>,
    /// Connections that ended while they themselves waited for a fence; see `registry.rs`.
    unfenced: HashMap<ConnectionId, Unfenced>,
    /// Publishers that are not read until the log has caught up.
    held: Vec<ConnectionId>,
    /// Shards that have nothing left to propose, on the shard that owns the partition.
    pub(crate) handed_over: usize,
    /// What the machine had counted when we looked last; a replayed log counts for nothing.
    counted: Counters,
    pub(crate) playbacks: PlaybackDesk,
    /// Scratch: properties and bytes of the packet at hand.
    pub(crate) block: PropertyBlock,
    pub(crate) bytes: Vec<u8>,
}

impl ShardService {
    pub(crate) fn new(
        shard: u16,
        shards: u16,
        shared: Arc<Shared>,
        doors: Doors,
        rights: Rights,
        router: Router,
        partition: Option<Partition>,
    ) -> Self {
        let mut counted = Counters::default();
        if let Some(partition) = &partition {
            let stored = partition.machine().statistics();
            counted = stored.counters;
            shared.next_offset.store(stored.next_offset, Ordering::Release);
        }
        Self {
            shard,
            shared,
            doors,
            rights,
            nobody: Principal::nobody(),
            router,
            encoder: Encoder::default(),
            proposals: Proposals::new(shard, 0),
            system: SystemTopics::default(),
            partition,
            effects_out: (0..shards).map(|_| Vec::new()).collect(),
            effects: Vec::new(),
            committed: Vec::new(),
            fences_new: Vec::new(),
            fences_owed: Vec::new(),
            unfenced: HashMap::new(),
            held: Vec::new(),
            handed_over: 0,
            counted,
            playbacks: PlaybackDesk::default(),
            block: PropertyBlock::new(),
            bytes: Vec::new(),
        }
    }

    pub(crate) fn cells(&self) -> &ShardCells {
        &self.shared.cells[usize::from(self.shard)]
    }

    /// Tell Python who came or went, if anybody listens.
    pub(crate) fn tell_session(
        &self,
        turn: &Turn<Self>,
        kind: EventKind,
        connection: &Connection,
        reason: Option<CloseReason>,
    ) {
        let (events, index) = (&self.shared.events, &self.shared.index);
        if events.tells_sessions() || index.is_watched() {
            let mut event = connection_event(kind, turn.now_ms(), connection);
            event.session_epoch = Some(connection.session_ids().0);
            event.reason = reason.map(|reason| reason.label().into());
            events.tell(event);
        }
    }

    fn on_packet(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        packet: &Packet<'_>,
    ) -> Then {
        match (&connection.state, packet) {
            (State::Fresh, Packet::Connect(connect)) => self.on_connect(turn, connection, connect),
            // Anything else before CONNECT is no MQTT client [MQTT-3.1.0-1]; CONNECT comes once.
            (State::Fresh, _) => Then::Close(CloseReason::ProtocolError.into()),
            (State::Opening(_), _) => self.on_opening_packet(turn, connection, packet),
            (State::Connected, Packet::Connect(_)) => {
                close(turn, connection, CloseReason::ProtocolError)
            }
            (State::Connected, _) => self.on_connected_packet(turn, connection, packet),
        }
    }

    fn on_connected_packet(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        packet: &Packet<'_>,
    ) -> Then {
        match packet {
            Packet::PubAck(ack) => self.on_client_ack(turn, connection, AckKind::PubAck, ack),
            Packet::PubRec(ack) => self.on_client_ack(turn, connection, AckKind::PubRec, ack),
            Packet::PubComp(ack) => self.on_client_ack(turn, connection, AckKind::PubComp, ack),
            Packet::PubRel(ack) => self.on_pubrel(turn, connection, ack),
            Packet::Subscribe(subscribe) => self.on_subscribe(turn, connection, subscribe),
            Packet::Unsubscribe(unsubscribe) => self.on_unsubscribe(turn, connection, unsubscribe),
            Packet::PingReq => {
                write_packet(turn, &connection.outlet, connection.version, &Packet::PingResp);
                Then::Continue
            }
            Packet::Disconnect(disconnect) => {
                connection.disconnect_expiry_s = disconnect.properties.session_expiry_s();
                if connection.disconnect_expiry_s.is_some_and(|expiry_s| expiry_s > 0)
                    && !connection.is_stored()
                {
                    // Nothing was stored, so nothing can begin to be [MQTT-3.14.2-2].
                    return close(turn, connection, CloseReason::ProtocolError);
                }
                let with_will = disconnect.reason != ReasonCode::SUCCESS;
                let reason = if with_will { CloseReason::WithWill } else { CloseReason::Normal };
                // It must send no packet more [MQTT-3.14.4-1].
                Then::Close(CloseCause::PeerDone(reason as u16))
            }
            Packet::Auth(auth) => self.on_auth(turn, connection, auth),
            // Only servers send these, and PUBLISH of a connected client has taken the short way in
            // `on_bytes`.
            Packet::Connect(_)
            | Packet::Publish(_)
            | Packet::ConnAck(_)
            | Packet::SubAck(_)
            | Packet::UnsubAck(_)
            | Packet::PingResp => close(turn, connection, CloseReason::ProtocolError),
        }
    }

    /// Bytes that are no packet: the client hears why if it can, and goes.
    fn on_malformed(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        error: DecodeError,
    ) -> Then {
        if !matches!(connection.state, State::Fresh) {
            return close(turn, connection, error.into());
        }
        if let DecodeError::UnsupportedVersion { level } = error {
            // Speak as 3.1.1 to whoever is older than 5, and as 5 to the future [MQTT-3.1.2-2].
            let is_newer = level > Version::V5.level();
            connection.version = if is_newer { Version::V5 } else { Version::V311 };
            return self.refuse(turn, connection, RefusalReason::UnsupportedVersion);
        }
        self.note_refusal(turn.now_ms(), connection, RefusalReason::Malformed);
        Then::Close(CloseReason::from(error).into())
    }

    /// A client that begins a TLS handshake with a listener that has none.
    fn on_tls_instead(&self, turn: &mut Turn<Self>, connection: &Connection) -> Then {
        self.note_refusal(turn.now_ms(), connection, RefusalReason::TlsOnPlainListener);
        Then::Close(CloseReason::MalformedPacket.into())
    }

    /// The largest packet that may come in by the listener of a connection.
    #[inline]
    pub(crate) fn packet_bytes_max(&self, connection: &Connection) -> u32 {
        self.doors.packet_bytes_max[usize::from(connection.listener)]
    }

    /// `claimer` has the client id of `victim` now; answer when nothing of the victim can follow.
    fn on_take_over(
        &mut self,
        turn: &mut Turn<Self>,
        connection: Option<&mut Connection>,
        victim: ConnectionId,
        claimer: ConnectionId,
    ) {
        let is_waiting = match connection {
            Some(connection) => {
                let then = close(turn, connection, CloseReason::TakenOver);
                go_on(turn, connection, then);
                if is_waiting_for_fence(connection) {
                    let client_id = Arc::clone(&connection.client_id);
                    self.unfenced.insert(victim, Unfenced { client_id, heir: None });
                }
                is_waiting_for_fence(connection)
            }
            None => self.unfenced.contains_key(&victim),
        };
        match self.unfenced.get_mut(&victim).filter(|_| is_waiting) {
            Some(unfenced) => unfenced.heir = Some(claimer),
            None => self.fences_new.push(claimer),
        }
    }

    /// Commit what was gathered here and what came by mail, and carry out what it comes to.
    fn commit(&mut self, turn: &mut Turn<Self>, connections: &mut Connections<Self>) {
        let Some(mut partition) = self.partition.take() else {
            return;
        };
        let mut effects = std::mem::take(&mut self.effects);
        let now_ms = turn.now_ms();
        // Time first: what is due happened before what these commands ask for.
        let mut proposed = must(partition.propose_tick(now_ms));
        for mut builder in std::mem::take(&mut self.proposals.to_commit) {
            proposed += partition.propose(&mut builder, now_ms);
        }
        self.shared.pressure.add(proposed);
        must(partition.advance());
        if let Some(log) = &self.shared.log {
            self.shared.pressure.set_full(log.is_full());
        }
        while let Some(applied) = must(partition.apply_next(&mut effects)) {
            self.shared.pressure.settle(applied.bytes);
            self.cells().count_entry(applied.commands);
            // Before SUBACK: who has read it finds the machine asked about every publish.
            self.publish_totals(&partition.machine().statistics());
            self.dispatch(turn, connections, &mut effects);
            if self.committed.len() >= RECORDS_PER_APPEND {
                partition.record(&mut self.committed);
            }
        }
        partition.record(&mut self.committed);
        self.shared.pressure.set_behind(partition.is_behind());
        if self.shared.pressure.take_release() {
            for shard in (0..).take(self.effects_out.len()) {
                turn.post(shard, Mail::LogHasRoom);
            }
        }
        self.settle_if_all_did(&mut partition);
        partition.on_turn_end(now_ms);
        let stored = partition.machine().statistics();
        self.cells().set_stored(&stored);
        self.cells().count_machine(&self.counted, &stored.counters);
        self.counted = stored.counters;
        self.publish_totals(&stored);
        self.effects = effects;
        self.partition = Some(partition);
    }

    fn publish_totals(&self, stored: &MachineStatistics) {
        self.shared.stored_subscriptions.store(stored.subscriptions, Ordering::Release);
        self.shared.next_offset.store(stored.next_offset, Ordering::Release);
    }
}

impl ShardService {
    /// After a publish was proposed: go on, unless too much waits for the log already.
    pub(crate) fn hold_if_too_much_waits(&mut self, connection: &Connection) -> Then {
        if !self.shared.pressure.must_hold() {
            return Then::Continue;
        }
        self.held.push(connection.id);
        Then::Pause
    }
}

/// Say goodbye as the version allows, and close.
pub(crate) fn close(
    turn: &mut Turn<ShardService>,
    connection: &Connection,
    reason: CloseReason,
) -> Then {
    if matches!(connection.state, State::Connected) {
        write_disconnect(turn, &connection.outlet, connection.version, reason);
    }
    Then::Close(reason.into())
}

/// Act on a `Then` outside of `on_bytes`, where the reactor cannot.
pub(crate) fn go_on(turn: &mut Turn<ShardService>, connection: &Connection, then: Then) {
    match then {
        Then::Close(cause) => turn.close(connection.id, cause),
        Then::Pause => {}
        Then::Continue => {
            if matches!(connection.state, State::Connected) && connection.may_be_read() {
                turn.resume_reads(connection.id);
            }
        }
    }
}

/// Whether a CONNECT has got its client id but not yet the end of who had it before.
fn is_waiting_for_fence(connection: &Connection) -> bool {
    matches!(&connection.state, State::Opening(opening) if opening.step == Step::Fence)
}

/// Read a paused connection again, unless it waits for something else, too. Its silence was ours,
/// so it is forgiven.
fn read_on(turn: &mut Turn<ShardService>, connection: &mut Connection) {
    connection.paused_until_ms = 0;
    connection.last_packet_ms = turn.now_ms();
    if connection.may_be_read() {
        turn.resume_reads(connection.id);
    }
}

/// Without its log this state would diverge or acknowledge what is not kept: stop the node.
fn must<T>(outcome: Result<T, PartitionError>) -> T {
    match outcome {
        Ok(value) => value,
        Err(error) => panic!("the partition cannot go on: {error}"),
    }
}

impl Service for ShardService {
    type Connection = Connection;
    type Outbound = Outbound;
    type Mail = Mail;

    fn on_open(&mut self, turn: &mut Turn<Self>, accepted: Accepted<Outbound>) -> Connection {
        turn.set_deadline(
            accepted.id,
            accepted.accepted_ms + self.shared.limits.connect_timeout_ms,
        );
        let who = accepted.user.map_or_else(|| Arc::clone(&self.nobody), Principal::certified);
        Connection {
            id: accepted.id,
            outlet: accepted.outlet,
            peer: accepted.peer,
            listener: accepted.listener as u16,
            version: Version::V311,
            state: State::Fresh,
            session: Session::Transient,
            client_id: Arc::clone(&self.nobody.client_id),
            who,
            allowed: None,
            silence_ms_max: 0,
            last_packet_ms: turn.now_ms(),
            unacknowledged: 0,
            wants_reasons: false,
            takes_aliases: false,
            packet_bytes_max: u32::MAX,
            paused_until_ms: 0,
            awaits_commit: false,
            proposed: 0,
            disconnect_expiry_s: None,
            filters: BTreeSet::new(),
            rare: None,
        }
    }

    fn on_bytes(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        bytes: &[u8],
    ) -> Consumed {
        let packet_bytes_max = self.packet_bytes_max(connection) as usize;
        connection.last_packet_ms = turn.now_ms();
        if connection.awaits_commit {
            return Consumed { bytes: 0, then: Then::Pause }; // resumed twice, paused in between
        }
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            let peeked = match connection.version {
                Version::V31 => frame::peek_v31(rest, packet_bytes_max),
                Version::V311 | Version::V5 => frame::peek(rest, packet_bytes_max),
            };
            let frame = match peeked {
                Ok(Some(frame)) if rest.len() >= frame.total() => frame,
                Ok(_) => {
                    return Consumed { bytes: used, then: Then::Continue };
                }
                Err(error) => {
                    let then = match rest {
                        [0x16, 3, ..] if matches!(connection.state, State::Fresh) => {
                            self.on_tls_instead(turn, connection)
                        }
                        _ => self.on_malformed(turn, connection, error),
                    };
                    return Consumed { bytes: used, then };
                }
            };
            let body = &rest[frame.header_bytes..frame.total()];
            used += frame.total();
            let then = if frame.packet_type == PacketType::Publish
                && matches!(connection.state, State::Connected)
            {
                // The one packet that comes in floods goes past the enum of all of them.
                match Publish::decode(connection.version, frame.flags, body) {
                    Ok(publish) if Run::can_begin_with(&publish) => {
                        let run = Run::scan(rest, &frame, &publish, packet_bytes_max);
                        used += run.bytes.len() - frame.total();
                        self.on_run(turn, connection, &publish, &run)
                    }
                    Ok(publish) => self.on_publish(turn, connection, &publish),
                    Err(error) => self.on_malformed(turn, connection, error),
                }
            } else {
                match decode(connection.version, &frame, body) {
                    Ok(packet) => self.on_packet(turn, connection, &packet),
                    Err(error) => self.on_malformed(turn, connection, error),
                }
            };
            if then != Then::Continue {
                return Consumed { bytes: used, then };
            }
        }
    }

    fn on_room(&mut self, turn: &mut Turn<Self>, connection: &mut Connection) {
        self.deliver_waiting(turn, connection);
        let now_ms = turn.now_ms();
        loop {
            // Each write is followed by a flush, after which there may be room once more.
            let refilled = turn.write(&connection.outlet, |out| outbound::on_room(out, now_ms));
            self.cells().count_drop(DropReason::Expired, refilled.expired);
            self.cells().count_sent(QoS::AtMostOnce, refilled.loose);
            for publisher in refilled.publishers {
                turn.post(publisher.shard(), Mail::ReadOn { connection: publisher });
            }
            if refilled.sent == Sent::TooSlow {
                let then = close(turn, connection, CloseReason::SlowSubscriber);
                return go_on(turn, connection, then);
            }
            if !refilled.again {
                self.go_on_with_replay(turn, connection);
                return self.play_on(turn, connection);
            }
        }
    }

    fn on_deadline(&mut self, turn: &mut Turn<Self>, connection: &mut Connection) -> Deadline {
        match &connection.state {
            State::Fresh => Deadline::Close(CloseReason::ConnectTimeout.into()),
            State::Opening(opening) if opening.step == Step::Verdict => {
                let reason = if Self::is_clients_turn(connection) {
                    RefusalReason::AuthenticationTimeout
                } else {
                    RefusalReason::Busy
                };
                match self.refuse(turn, connection, reason) {
                    Then::Close(cause) => Deadline::Close(cause),
                    Then::Continue | Then::Pause => Deadline::None,
                }
            }
            // A fence or the machine always answers; no timer may go ahead of them.
            State::Opening(_) => Deadline::None,
            State::Connected if connection.paused_until_ms > turn.now_ms() => {
                Deadline::At(connection.paused_until_ms)
            }
            State::Connected => {
                if connection.paused_until_ms != 0 {
                    read_on(turn, connection);
                }
                let silent_until = connection.last_packet_ms + connection.silence_ms_max;
                if connection.silence_ms_max == 0 {
                    Deadline::None
                } else if turn.now_ms() < silent_until {
                    Deadline::At(silent_until)
                } else {
                    close(turn, connection, CloseReason::KeepAliveTimeout);
                    Deadline::Close(CloseReason::KeepAliveTimeout.into())
                }
            }
        }
    }

    fn on_mail(&mut self, turn: &mut Turn<Self>, connections: &mut Connections<Self>, mail: Mail) {
        match mail {
            Mail::Commands(builder) => self.proposals.to_commit.push(builder),
            Mail::Effects(effects) => {
                for effect in effects {
                    self.execute(turn, connections, effect);
                }
            }
            Mail::TakeOver { victim, claimer } => {
                self.on_take_over(turn, connections.get_mut(victim), victim, claimer);
            }
            Mail::Fenced { claimer } => {
                // First: a claimer that was taken over in this very turn is still to be found.
                if let Some(unfenced) = self.unfenced.remove(&claimer) {
                    match unfenced.heir {
                        Some(heir) => self.fences_new.push(heir),
                        None => self.shared.registry.release(&unfenced.client_id, claimer),
                    }
                } else if let Some(connection) = connections.get_mut(claimer) {
                    let then = self.open(turn, connection);
                    go_on(turn, connection, then);
                }
            }
            Mail::Policy(policy) => self.on_policy(turn, connections, &policy),
            Mail::PolicyTaken { generation } => self.on_policy_taken(generation),
            Mail::Verdict { connection, code, may_be_remembered } => {
                if let Some(connection) = connections.get_mut(connection) {
                    let then = self.on_verdict(turn, connection, code, may_be_remembered);
                    go_on(turn, connection, then);
                }
            }
            Mail::LogMoved => {}
            Mail::Asked(question) => {
                if let Some(partition) = &self.partition {
                    question.answer(partition);
                }
            }
            Mail::CheckpointWanted => {
                if let Some(partition) = &mut self.partition {
                    partition.want_checkpoint();
                }
            }
            Mail::CheckpointWants(wanted) => {
                if let Some(partition) = &mut self.partition {
                    partition.on_checkpoint_wanted(wanted);
                }
            }
            Mail::LogHasRoom => {
                for id in std::mem::take(&mut self.held) {
                    if let Some(connection) = connections.get_mut(id) {
                        read_on(turn, connection);
                    }
                }
            }
            Mail::System(messages) => self.on_system(turn, &messages),
            Mail::Answer { connection, answer } => {
                if let Some(connection) = connections.get_mut(connection) {
                    self.on_answer(turn, connection, *answer);
                }
            }
            Mail::ReadOn { connection } => {
                if let Some(connection) = connections.get_mut(connection) {
                    read_on(turn, connection);
                }
            }
            Mail::Settle => self.on_settle(turn),
            Mail::HandedOver => self.handed_over += 1,
            Mail::Committed { connection } => {
                if let Some(connection) = connections.get_mut(connection) {
                    connection.awaits_commit = false;
                    read_on(turn, connection);
                }
            }
            Mail::RetainedWanted { connection, wanted } => {
                self.write_retained(turn, connection, &wanted);
            }
            Mail::RetainedWritten { connection, written } => {
                if let Some(connection) = connections.get_mut(connection) {
                    self.on_retained_written(turn, connection, written);
                }
            }
            Mail::PlayOn { connection } => {
                if let Some(connection) = connections.get_mut(connection) {
                    self.play_on(turn, connection);
                }
            }
            Mail::CaughtUp { connection, number } => {
                if let Some(connection) = connections.get_mut(connection) {
                    self.on_caught_up(turn, connection, number);
                }
            }
            Mail::Played { connection, played } => {
                if let Some(connection) = connections.get_mut(connection) {
                    self.on_played(turn, connection, *played);
                }
            }
            Mail::LogHasGrown => self.on_growth(turn, connections),
        }
    }

    fn on_turn_end(&mut self, turn: &mut Turn<Self>, connections: &mut Connections<Self>) {
        self.proposals.hand_over(turn);
        // Connections are closed after a turn's end. So what a predecessor left behind (its lost
        // connection, its will) was handed over just now if it was closed a turn ago.
        for claimer in self.fences_owed.drain(..) {
            turn.post(claimer.shard(), Mail::Fenced { claimer });
        }
        std::mem::swap(&mut self.fences_owed, &mut self.fences_new);
        self.commit(turn, connections);
        if self.partition.is_some() {
            self.tell_of_growth(turn);
        }
        self.retry_playbacks(turn, connections);
        if self.rights.must_review_wills {
            self.review_wills(turn);
        }
        for (shard, effects) in (0..).zip(&mut self.effects_out) {
            if !effects.is_empty() {
                turn.post(shard, Mail::Effects(std::mem::take(effects)));
            }
        }
    }

    fn on_drain(&mut self, turn: &mut Turn<Self>, connections: &mut Connections<Self>) {
        for (_, connection) in connections.iter_mut() {
            let then = close(turn, connection, CloseReason::Draining);
            go_on(turn, connection, then);
        }
    }

    fn on_closed(&mut self, turn: &mut Turn<Self>, mut connection: Connection, cause: CloseCause) {
        let reason = match cause {
            CloseCause::PeerClosed => CloseReason::PeerClosed,
            CloseCause::SocketError => CloseReason::SocketError,
            CloseCause::Layer(fault) => fault.into(),
            CloseCause::Service(index) | CloseCause::PeerDone(index) => {
                CloseReason::from_index(index)
            }
            CloseCause::Stopping => CloseReason::Stopping,
        };
        self.cells().count_close(reason);
        self.router.index().remove_all(&connection.filters, connection.id);
        self.playbacks.forget(connection.id);
        if is_waiting_for_fence(&connection) {
            // The id stays ours until our predecessor is gone: who comes next must wait too.
            let client_id = Arc::clone(&connection.client_id);
            self.unfenced.entry(connection.id).or_insert(Unfenced { client_id, heir: None });
            return;
        }
        self.shared.registry.release(&connection.client_id, connection.id);
        if !matches!(connection.state, State::Connected) {
            return; // if a session is being opened for it, `give_back` returns it
        }
        let rare = connection.rare.as_mut();
        let (will, topic) =
            rare.map_or((None, None), |rare| (rare.will.take(), rare.will_topic.take()));
        let topic = topic.as_ref().or_else(|| will.as_ref().map(|will| &will.topic));
        // Nothing to fire is fired in peace; what is there is judged by the rules of now.
        let fires_will = reason.fires_will()
            && topic.is_none_or(|topic| self.may_fire_will(turn.now_ms(), &connection, topic));
        self.dismiss_guest(turn, &mut connection);
        let will_grace_s = if reason.defers_will() { self.shared.limits.will_grace_s } else { 0 };
        match connection.session {
            Session::Stored { epoch, .. } => {
                let command = Command::ConnectionLost(ConnectionLost {
                    client_id: &connection.client_id,
                    session_epoch: epoch,
                    fire_will: fires_will,
                    expiry_s: connection.disconnect_expiry_s,
                    will_grace_s,
                });
                self.proposals.push(turn, &command);
            }
            Session::Transient => {
                if let Some(will) = will.filter(|_| fires_will) {
                    if will_grace_s > 0 {
                        self.leave_will(turn, &connection, &will);
                    } else {
                        self.publish_will(turn, &connection, &will);
                    }
                }
            }
        }
        self.tell_session(turn, EventKind::SessionClosed, &connection, Some(reason));
    }

    fn on_revoked(&mut self, turn: &mut Turn<Self>, connection: &mut Connection) {
        let then = close(turn, connection, CloseReason::CertificateRevoked);
        go_on(turn, connection, then);
    }

    fn on_fault(&mut self, turn: &mut Turn<Self>, turned_away: TurnedAway) {
        let reason = RefusalReason::from(turned_away.fault);
        self.cells().count_refusal(reason);
        let mut event = Event::new(EventKind::ConnectionRefused, turn.now_ms());
        event.peer = Some(turned_away.peer);
        event.listener = Some(turned_away.listener);
        event.reason = Some(reason.label().into());
        self.shared.events.tell(event);
    }

    fn next_wake_ms(&self) -> Option<u64> {
        if !self.proposals.is_idle() || !self.fences_owed.is_empty() {
            return Some(0);
        }
        let partition = self.partition.as_ref().and_then(Partition::next_wake_ms);
        [partition, self.playbacks.next_wake_ms()].into_iter().flatten().min()
    }
}
