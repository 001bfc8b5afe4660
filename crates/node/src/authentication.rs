//! Enhanced authentication (§4.12): AUTH packets between a client and Python, step by step.
//!
//! What a method means is Python's to know; here it is a name and opaque data. Steps:
//!
//! ```text
//! CONNECT with a method ──► Python ──continue──► AUTH 0x18 ──► client ──► AUTH 0x18 ──► Python …
//!                             ├──success──► CONNACK 0x00, with the last data
//!                             └──refusal──► CONNACK with its code, and the end
//! AUTH 0x19 once connected ─► Python, as above; success is AUTH 0x00, refusal a DISCONNECT
//! ```
//!
//! Before CONNACK the client may send AUTH and DISCONNECT only, and only when it is its turn
//! [MQTT-3.1.2-30]; while Python thinks it is not read at all. Once connected an exchange goes on
//! beside everything else. A method that was not announced in CONNECT, or is another than there, is
//! 0x8C [MQTT-4.12.0-1]; an AUTH that nobody waits for is 0x82. Each side's turn has a time limit
//! before CONNACK; an exchange has a bounded number of steps.
//!
//! A re-authentication that fails ends the connection, and its will with it: whoever cannot prove
//! any more who they are is no longer allowed to publish it (X-03).

use quantumqtt_reactor::{Then, Turn};
use quantumqtt_wire::{Auth, Connect, Packet, Property, PropertyBlock, ReasonCode, Secret};

use crate::connect::connection_event;
use crate::connection::{Connection, State};
use crate::events::{Event, EventKind};
use crate::limits::AUTHENTICATION_STEPS_MAX;
use crate::packets::write_packet;
use crate::reasons::{CloseReason, RefusalReason};
use crate::shard::{ShardService, close, go_on};

/// One client's method, and where the exchange stands.
#[derive(Debug)]
pub(crate) struct Exchange {
    method: Box<str>,
    turn_of: Party,
    steps: u32,
    /// What the success is told with.
    last_data: Option<Box<[u8]>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Party {
    /// Nobody: no exchange goes on.
    Nobody,
    Client,
    Python,
}

/// What Python says to a step.
#[derive(Debug)]
pub struct Answer {
    /// 0x18 to go on, 0x00 when the client has proved who it is, a refusal otherwise.
    pub code: u8,
    /// What the client is told with it.
    pub data: Option<Box<[u8]>>,
    /// Who the client is; counts with 0x00 only.
    pub user_name: Box<str>,
}

impl Exchange {
    /// The one a CONNECT asks for, if it does.
    pub(crate) fn of(connect: &Connect<'_>) -> Option<Self> {
        let method = connect.properties.authentication_method()?.into();
        Some(Self { method, turn_of: Party::Python, steps: 0, last_data: None })
    }

    /// What CONNACK says of it.
    pub(crate) fn facts(&self) -> [Option<Property<'_>>; 2] {
        let data = self.last_data.as_deref().map(|data| Property::AuthenticationData(Secret(data)));
        [Some(Property::AuthenticationMethod(&self.method)), data]
    }

    /// Forget what a CONNACK has told; the method stays, for re-authentication.
    pub(crate) fn settled(self) -> Self {
        Self { turn_of: Party::Nobody, steps: 0, last_data: None, ..self }
    }
}

impl ShardService {
    pub(crate) fn knows_method(&self, method: &str) -> bool {
        self.shared.auth_methods.iter().any(|known| **known == *method)
    }

    /// CONNECT brings the first step; the connection is not read until Python has answered.
    pub(crate) fn begin_authentication(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        data: Option<&[u8]>,
    ) -> Then {
        let event = step_event(turn.now_ms(), connection, "connect", data);
        if self.shared.events.ask(event).is_err() {
            return self.refuse(turn, connection, RefusalReason::Busy);
        }
        turn.set_deadline(connection.id, turn.now_ms() + self.shared.limits.admission_timeout_ms);
        Then::Pause
    }

    /// A packet between CONNECT and CONNACK: AUTH if the client was asked, DISCONNECT, or an error.
    pub(crate) fn on_opening_packet(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        packet: &Packet<'_>,
    ) -> Then {
        let exchange = exchange_of(connection).filter(|exchange| exchange.turn_of == Party::Client);
        let (Packet::Auth(auth), Some(exchange)) = (packet, exchange) else {
            let is_goodbye = matches!(packet, Packet::Disconnect(_));
            return if is_goodbye {
                Then::Close(CloseReason::Normal.into())
            } else {
                self.refuse(turn, connection, RefusalReason::AuthenticationOutOfTurn)
            };
        };
        if auth.reason != ReasonCode::CONTINUE_AUTHENTICATION {
            return self.refuse(turn, connection, RefusalReason::AuthenticationOutOfTurn);
        }
        if auth.properties.authentication_method() != Some(&*exchange.method) {
            return self.refuse(turn, connection, RefusalReason::BadAuthenticationMethod);
        }
        exchange.steps += 1;
        exchange.turn_of = Party::Python;
        if exchange.steps > AUTHENTICATION_STEPS_MAX {
            return self.refuse(turn, connection, RefusalReason::AuthenticationOutOfTurn);
        }
        let data = auth.properties.authentication_data();
        let event = step_event(turn.now_ms(), connection, "continue", data);
        if self.shared.events.ask(event).is_err() {
            return self.refuse(turn, connection, RefusalReason::Busy);
        }
        turn.set_deadline(connection.id, turn.now_ms() + self.shared.limits.admission_timeout_ms);
        Then::Pause
    }

    /// AUTH of a connected client: it begins once more, or goes on with what it began.
    pub(crate) fn on_auth(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        auth: &Auth<'_>,
    ) -> Then {
        let Some(exchange) = exchange_of(connection) else {
            return close(turn, connection, CloseReason::ProtocolError); // [MQTT-4.12.0-6]
        };
        if auth.properties.authentication_method() != Some(&*exchange.method) {
            return close(turn, connection, CloseReason::BadAuthenticationMethod);
        }
        let step = match (auth.reason, exchange.turn_of) {
            (ReasonCode::REAUTHENTICATE, Party::Nobody) => "again",
            (ReasonCode::CONTINUE_AUTHENTICATION, Party::Client) => "continue",
            _ => return close(turn, connection, CloseReason::ProtocolError),
        };
        exchange.steps += 1;
        exchange.turn_of = Party::Python;
        if exchange.steps > AUTHENTICATION_STEPS_MAX {
            return close(turn, connection, CloseReason::ProtocolError);
        }
        let data = auth.properties.authentication_data();
        let event = step_event(turn.now_ms(), connection, step, data);
        if self.shared.events.ask(event).is_err() {
            return close(turn, connection, CloseReason::ReauthenticationFailed);
        }
        Then::Continue
    }

    /// Python has answered a step.
    pub(crate) fn on_answer(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        answer: Answer,
    ) {
        let is_opening = matches!(connection.state, State::Opening(_));
        let exchange = exchange_of(connection).filter(|one| one.turn_of == Party::Python);
        let Some(exchange) = exchange else {
            return; // answered twice, or too late
        };
        let code = ReasonCode(answer.code);
        if code == ReasonCode::CONTINUE_AUTHENTICATION {
            exchange.turn_of = Party::Client;
            write_auth(turn, connection, code, answer.data.as_deref());
            if is_opening {
                let client_ms = self.shared.limits.connect_timeout_ms;
                turn.set_deadline(connection.id, turn.now_ms() + client_ms);
                turn.resume_reads(connection.id);
            }
            return;
        }
        exchange.turn_of = Party::Nobody;
        exchange.steps = 0;
        let then = if is_opening && code.is_error() {
            self.refuse_as(turn, connection, RefusalReason::NotAuthorized, code)
        } else if is_opening {
            exchange.last_data = answer.data;
            self.admit_as(turn, connection, answer.user_name)
        } else if code.is_error() || *answer.user_name != *connection.who.user {
            // Who proves to be somebody else has not proved to be who they were.
            close(turn, connection, CloseReason::ReauthenticationFailed)
        } else {
            return write_auth(turn, connection, ReasonCode::SUCCESS, answer.data.as_deref());
        };
        go_on(turn, connection, then);
    }

    /// Whether Python has answered and the client has not.
    pub(crate) fn is_clients_turn(connection: &mut Connection) -> bool {
        exchange_of(connection).is_some_and(|exchange| exchange.turn_of == Party::Client)
    }
}

fn exchange_of(connection: &mut Connection) -> Option<&mut Exchange> {
    match &mut connection.state {
        State::Opening(opening) => opening.exchange.as_deref_mut(),
        _ => connection.rare.as_mut()?.exchange.as_deref_mut(),
    }
}

fn step_event(
    now_ms: u64,
    connection: &mut Connection,
    step: &'static str,
    data: Option<&[u8]>,
) -> Event {
    let mut event = connection_event(EventKind::AuthenticationWanted, now_ms, connection);
    event.reason = Some(step.into());
    event.auth_method = exchange_of(connection).map(|exchange| exchange.method.clone());
    event.auth_data = data.map(Into::into);
    if let State::Opening(opening) = &connection.state {
        event.user_name.clone_from(&opening.user_name);
    }
    event
}

fn write_auth(
    turn: &mut Turn<ShardService>,
    connection: &mut Connection,
    reason: ReasonCode,
    data: Option<&[u8]>,
) {
    let mut block = PropertyBlock::new();
    let Some(exchange) = exchange_of(connection) else { return };
    // Each stands there once; data that is too long for a packet was Python's mistake and is left
    // out, which the client takes for a failure.
    let _ = block.push(Property::AuthenticationMethod(&exchange.method));
    if let Some(data) = data {
        let _ = block.push(Property::AuthenticationData(Secret(data)));
    }
    let auth = Auth { reason, properties: block.as_properties() };
    write_packet(turn, &connection.outlet, connection.version, &Packet::Auth(auth));
}
