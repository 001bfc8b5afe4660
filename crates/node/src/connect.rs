//! CONNECT, from its arrival to CONNACK.
//!
//! The steps, each of which may have to wait for somebody while reads are paused:
//! 1. the packet itself is judged (`judge`),
//! 2. admission: a look, or Python's verdict (`admission.rs`),
//! 3. the client id is claimed; if it had an owner, the owner must be gone first (`registry.rs`),
//! 4. the machine opens the session, unless nothing is or will be stored (`must_be_opened`),
//! 5. CONNACK, and everything that waited behind it.

use std::sync::Arc;

use quantumqtt_machine::{Command, EXPIRY_NEVER_S, OpenSession};
use quantumqtt_reactor::{ConnectionId, Then, Turn};
use quantumqtt_wire::{ConnAck, Connect, Packet, Property, PropertyBlock, ReasonCode, Version};

use crate::admission::Verdict;
use crate::aliases::Aliases;
use crate::authentication::Exchange;
use crate::connection::{Connection, Session, State};
use crate::events::{Event, EventKind};
use crate::limits::V31_CLIENT_ID_CHARS;
use crate::packets::{write_packet, write_refusal};
use crate::reasons::{CloseReason, RefusalReason};
use crate::registry::Claim;
use crate::rights::Principal;
use crate::shard::{Mail, ShardService};
use crate::verdicts::Credential;
use crate::will::Will;

/// A CONNECT on its way, owned because the bytes are gone while it waits.
pub(crate) struct Opening {
    pub(crate) step: Step,
    /// Enhanced authentication, if CONNECT names a method.
    pub(crate) exchange: Option<Box<Exchange>>,
    pub(crate) user_name: Option<Box<str>>,
    pub(crate) password: Option<Box<[u8]>>,
    /// What the two are remembered by when they are good.
    pub(crate) credential: Option<Credential>,
    /// Who the client proved to be; empty until somebody vouched for it.
    pub(crate) identity: Box<str>,
    pub(crate) clean_start: bool,
    /// After our ceiling.
    pub(crate) expiry_s: u32,
    keep_alive_s: u16,
    id_was_assigned: bool,
    /// What CONNACK says because it is not what CONNECT asked for.
    other_expiry_s: Option<u32>,
    other_keep_alive_s: Option<u16>,
    receive_maximum: u16,
    packet_bytes_max: u32,
    /// How many topics we may shorten.
    aliases_max: u16,
    pub(crate) will: Option<Will>,
}

/// Who must speak next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Verdict,
    Fence,
    Machine,
}

impl ShardService {
    pub(crate) fn on_connect(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        connect: &Connect<'_>,
    ) -> Then {
        connection.version = connect.version;
        connection.wants_reasons = connect.version == Version::V5
            && connect.properties.request_problem_information() != Some(false);
        let mut opening = match self.judge(connection, connect) {
            Ok(opening) => opening,
            Err(reason) => return self.refuse(turn, connection, reason),
        };
        let certified = &connection.who.user;
        let verdict = if opening.exchange.is_some() {
            Verdict::Ask
        } else if certified.is_empty() {
            self.doors.look(connection.listener, &mut opening, &self.shared.verdicts)
        } else {
            // What CONNECT says of user and password is beside the point.
            opening.user_name = Some(certified.clone());
            Verdict::Known
        };
        if verdict == Verdict::Known {
            opening.identity = opening.user_name.clone().unwrap_or_default();
        }
        let has_method = opening.exchange.is_some();
        connection.state = State::Opening(Box::new(opening));
        if has_method {
            // A method stands for itself: what user name and password say is not looked at.
            let data = connect.properties.authentication_data();
            return self.begin_authentication(turn, connection, data);
        }
        match verdict {
            Verdict::Admit | Verdict::Known => self.claim(turn, connection),
            Verdict::Refuse(reason) => self.refuse(turn, connection, reason),
            Verdict::Ask => self.ask(turn, connection),
        }
    }

    /// Everything that is wrong with the packet alone, and its values within our limits.
    fn judge(
        &self,
        connection: &mut Connection,
        connect: &Connect<'_>,
    ) -> Result<Opening, RefusalReason> {
        let limits = &self.shared.limits;
        let properties = &connect.properties;
        if properties.authentication_method().is_some_and(|method| !self.knows_method(method)) {
            return Err(RefusalReason::BadAuthenticationMethod);
        }
        let id_was_assigned = connect.client_id.is_empty();
        match connect.version {
            Version::V31 if !V31_CLIENT_ID_CHARS.contains(&connect.client_id.chars().count()) => {
                return Err(RefusalReason::ClientIdInvalid);
            }
            Version::V311 if id_was_assigned && !connect.clean_start => {
                return Err(RefusalReason::ClientIdInvalid);
            }
            _ => {}
        }
        connection.client_id = if id_was_assigned {
            // Unique in the cluster's life: which node, when it started, which connection.
            let (node, started) = (self.shared.node_id, self.shared.started_ms);
            format!("qmq-{node}-{started:x}-{:x}", connection.id.to_bits()).into()
        } else {
            connect.client_id.into()
        };
        let asked_expiry_s = match connect.version {
            Version::V5 => properties.session_expiry_s().unwrap_or(0),
            _ if connect.clean_start => 0,
            _ => EXPIRY_NEVER_S,
        };
        let expiry_s = asked_expiry_s.min(limits.session_expiry_s_max);
        // 3.x cannot be told of a shorter interval, so its own is kept [MQTT-3.2.2-21].
        let ceiling_s = limits.keep_alive_s_max;
        let is_too_long = connect.keep_alive_s == 0 || connect.keep_alive_s > ceiling_s;
        let may_be_told = connect.version == Version::V5 && ceiling_s != 0;
        let other_keep_alive_s = (may_be_told && is_too_long).then_some(ceiling_s);
        Ok(Opening {
            step: Step::Verdict,
            exchange: Exchange::of(connect).map(Box::new),
            user_name: connect.user_name.map(Into::into),
            password: connect.password.map(Into::into),
            credential: None,
            identity: Box::default(),
            clean_start: connect.clean_start,
            expiry_s,
            keep_alive_s: other_keep_alive_s.unwrap_or(connect.keep_alive_s),
            id_was_assigned,
            other_expiry_s: (expiry_s != asked_expiry_s).then_some(expiry_s),
            other_keep_alive_s,
            receive_maximum: properties.receive_maximum().unwrap_or(u16::MAX),
            packet_bytes_max: properties.maximum_packet_bytes().unwrap_or(u32::MAX),
            aliases_max: properties.topic_alias_maximum().unwrap_or(0).min(limits.topic_alias_max),
            will: connect.will.as_ref().map(Will::from_wire),
        })
    }

    pub(crate) fn refuse(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &Connection,
        reason: RefusalReason,
    ) -> Then {
        self.refuse_as(turn, connection, reason, reason.connack_code())
    }

    /// The same with a code that Python chose.
    pub(crate) fn refuse_as(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &Connection,
        reason: RefusalReason,
        code: ReasonCode,
    ) -> Then {
        write_refusal(turn, &connection.outlet, connection.version, code);
        self.note_refusal(turn.now_ms(), connection, reason);
        Then::Close(CloseReason::Refused.into())
    }

    pub(crate) fn note_refusal(&self, now_ms: u64, connection: &Connection, reason: RefusalReason) {
        self.cells().count_refusal(reason);
        let mut event = connection_event(EventKind::ConnectionRefused, now_ms, connection);
        event.reason = Some(reason.label().into());
        if let State::Opening(opening) = &connection.state {
            event.user_name.clone_from(&opening.user_name);
        }
        self.shared.events.tell(event);
    }

    fn ask(&mut self, turn: &mut Turn<Self>, connection: &mut Connection) -> Then {
        let mut event = connection_event(EventKind::AdmissionWanted, turn.now_ms(), connection);
        if let State::Opening(opening) = &mut connection.state {
            event.user_name.clone_from(&opening.user_name);
            event.password = opening.password.take();
        }
        if self.shared.events.ask(event).is_err() {
            return self.refuse(turn, connection, RefusalReason::Busy);
        }
        turn.set_deadline(connection.id, turn.now_ms() + self.shared.limits.admission_timeout_ms);
        Then::Pause
    }

    /// Python has spoken about a connection that waited for it.
    pub(crate) fn on_verdict(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        code: ReasonCode,
        may_be_remembered: bool,
    ) -> Then {
        let State::Opening(opening) = &mut connection.state else {
            return Then::Continue;
        };
        if opening.step != Step::Verdict {
            return Then::Continue; // answered twice
        }
        if code.is_error() {
            write_refusal(turn, &connection.outlet, connection.version, code);
            self.note_refusal(turn.now_ms(), connection, RefusalReason::NotAuthorized);
            return Then::Close(CloseReason::Refused.into());
        }
        opening.identity = opening.user_name.clone().unwrap_or_default();
        if let Some(credential) = opening.credential.filter(|_| may_be_remembered) {
            self.shared.verdicts.remember(credential);
        }
        self.claim(turn, connection)
    }

    /// Enhanced authentication has come to its end: the client is who it says.
    pub(crate) fn admit_as(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        user_name: Box<str>,
    ) -> Then {
        if let State::Opening(opening) = &mut connection.state {
            opening.identity = user_name;
        }
        self.claim(turn, connection)
    }

    /// Who the client is, is settled: take its id, unless its own words forbid it.
    fn claim(&mut self, turn: &mut Turn<Self>, connection: &mut Connection) -> Then {
        let State::Opening(opening) = &mut connection.state else {
            return Then::Continue;
        };
        opening.password = None;
        let (user, client_id) = (opening.identity.clone(), Arc::clone(&connection.client_id));
        let is_foreign = *user != *client_id && !user.is_empty() && !opening.id_was_assigned;
        connection.who = Arc::new(Principal { user, client_id });
        if self.shared.client_id_is_user && is_foreign {
            return self.refuse(turn, connection, RefusalReason::ClientIdNotYours);
        }
        let State::Opening(opening) = &connection.state else {
            return Then::Continue;
        };
        if !self.may_leave_will(connection, opening.will.as_ref()) {
            return self.refuse(turn, connection, RefusalReason::WillNotAuthorized);
        }
        let State::Opening(opening) = &mut connection.state else {
            return Then::Continue;
        };
        let registry = &self.shared.registry;
        match registry.claim(&connection.client_id, connection.id, &opening.identity) {
            Claim::Refused => self.refuse(turn, connection, RefusalReason::IdentityMismatch),
            Claim::Free => self.open(turn, connection),
            Claim::TakenFrom(previous) => {
                opening.step = Step::Fence;
                let mail = Mail::TakeOver { victim: previous, claimer: connection.id };
                turn.post(previous.shard(), mail);
                Then::Pause
            }
        }
    }

    /// Whether the machine must be asked: something will be stored, or something is.
    fn must_be_opened(&self, client_id: &str, opening: &Opening) -> bool {
        opening.expiry_s > 0 || self.shared.registry.is_stored(client_id)
    }

    /// The id is ours alone: open the session.
    pub(crate) fn open(&mut self, turn: &mut Turn<Self>, connection: &mut Connection) -> Then {
        let State::Opening(opening) = &mut connection.state else {
            return Then::Continue;
        };
        if !self.must_be_opened(&connection.client_id, opening) {
            return self.connected(turn, connection, Session::Transient, false);
        }
        let State::Opening(opening) = &mut connection.state else {
            return Then::Continue;
        };
        // Whoever had the id before is gone, whatever becomes of us: the id is ours to give back.
        opening.step = Step::Machine;
        if self.shared.pressure.is_full() {
            return self.refuse(turn, connection, RefusalReason::LogFull);
        }
        let will = opening.will.as_ref().map(Will::as_command);
        let command = Command::OpenSession(OpenSession {
            origin: connection.outlet.id().into_origin(self.shared.node_id),
            client_id: &connection.client_id,
            identity: &opening.identity,
            level: connection.version.level(),
            clean_start: opening.clean_start,
            expiry_s: opening.expiry_s,
            receive_maximum: opening.receive_maximum,
            maximum_packet_bytes: opening.packet_bytes_max,
            will,
        });
        self.proposals.push(turn, &command);
        Then::Pause
    }

    /// The session is open: CONNACK, and the connection may speak.
    pub(crate) fn connected(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        session: Session,
        session_present: bool,
    ) -> Then {
        let State::Opening(opening) = std::mem::replace(&mut connection.state, State::Connected)
        else {
            return Then::Continue;
        };
        connection.session = session;
        match (session, opening.will) {
            (Session::Transient, Some(will)) => connection.rare().will = Some(will),
            (Session::Stored { .. }, Some(will)) => connection.rare().will_topic = Some(will.topic),
            (_, None) => {}
        }
        let (aliases_max, bytes_max) = (opening.aliases_max, opening.packet_bytes_max);
        connection.takes_aliases = aliases_max > 0;
        turn.write(&connection.outlet, |out| {
            out.outbound.window = opening.receive_maximum;
            let aliases = || Box::new(Aliases::new(aliases_max, bytes_max));
            out.outbound.aliases = (aliases_max > 0).then(aliases);
        });
        let mut opening = Opening { will: None, ..*opening };
        self.write_connack(turn, connection, &opening, session_present);
        if let Some(exchange) = opening.exchange.take() {
            connection.rare().exchange = Some(Box::new(exchange.settled()));
        }
        connection.packet_bytes_max = opening.packet_bytes_max;
        connection.last_packet_ms = turn.now_ms();
        connection.silence_ms_max = u64::from(opening.keep_alive_s) * 1500;
        let silence_ms = connection.silence_ms_max;
        let deadline = if silence_ms == 0 { u64::MAX } else { turn.now_ms() + silence_ms };
        turn.set_deadline(connection.id, deadline);
        self.tell_session(turn, EventKind::SessionOpened, connection, None);
        Then::Continue
    }

    fn write_connack(
        &self,
        turn: &mut Turn<Self>,
        connection: &Connection,
        opening: &Opening,
        session_present: bool,
    ) {
        let (limits, pressure) = (&self.shared.limits, &self.shared.pressure);
        let id = opening.id_was_assigned.then_some(&*connection.client_id);
        let facts = [
            opening.other_expiry_s.map(Property::SessionExpiryInterval),
            Some(Property::ReceiveMaximum(pressure.credit(limits.receive_maximum))),
            Some(Property::MaximumPacketSize(self.packet_bytes_max(connection))),
            id.map(Property::AssignedClientId),
            Some(Property::TopicAliasMaximum(limits.topic_alias_max)),
            Some(Property::SharedSubscriptionAvailable(true)),
            opening.other_keep_alive_s.map(Property::ServerKeepAlive),
            Some(Property::UserProperty("qmq-durability", self.shared.durability)),
        ];
        let exchange = opening.exchange.as_ref().map(|exchange| exchange.facts());
        let proof = exchange.into_iter().flatten();
        let mut block = PropertyBlock::new();
        if connection.version == Version::V5 {
            for fact in facts.into_iter().chain(proof).flatten() {
                // Each stands there once and was validated with the configuration.
                let _ = block.push(fact);
            }
        }
        let connack = ConnAck {
            // MQTT 3.1 has no such bit; its reserved byte stays zero.
            session_present: session_present && connection.version != Version::V31,
            reason: ReasonCode::SUCCESS,
            properties: block.as_properties(),
        };
        write_packet(turn, &connection.outlet, connection.version, &Packet::ConnAck(connack));
    }
}

/// The address of a connection inside commands and effects.
pub(crate) trait IntoOrigin {
    fn into_origin(self, node: u32) -> quantumqtt_machine::Origin;
}

impl IntoOrigin for ConnectionId {
    fn into_origin(self, node: u32) -> quantumqtt_machine::Origin {
        quantumqtt_machine::Origin { node, shard: self.shard(), connection: self.to_bits() }
    }
}

/// An event about a connection.
pub(crate) fn connection_event(kind: EventKind, now_ms: u64, connection: &Connection) -> Event {
    let mut event = Event::new(kind, now_ms);
    event.client_id = Some((*connection.client_id).into());
    event.connection = Some(connection.id.to_bits());
    event.peer = Some(connection.peer);
    event.listener = Some(usize::from(connection.listener));
    event.version = Some(connection.version);
    event.user_name = Some(connection.who.user.clone()).filter(|user| !user.is_empty());
    event
}
