//! One session as a person or a checker may see it: a copy, true at the moment it was asked for.
//! Plain values throughout, so that an exporter can spell it as it likes.

use std::sync::Arc;

use quantumqtt_wire::QoS;

use crate::command::Origin;
use crate::effect::Subscription;
use crate::machine::Machine;
use crate::session::{Session, is_guest};
use crate::will::StoredWill;
use crate::window::Stage;

/// Where an exchange with a subscriber stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExchangeStage {
    /// Begun on an earlier connection and not yet repeated on this one.
    Unsent,
    /// PUBLISH was sent on this connection.
    Sent,
    /// PUBREC was received: only PUBREL is left.
    Released,
}

impl From<&Stage> for ExchangeStage {
    fn from(stage: &Stage) -> Self {
        match stage {
            Stage::Unsent(_) => Self::Unsent,
            Stage::Sent(_) => Self::Sent,
            Stage::Released => Self::Released,
        }
    }
}

/// See the head of this file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionView {
    /// The client id.
    pub client_id: Arc<str>,
    /// Who owns it; empty if nobody authenticated has opened it.
    pub identity: Box<str>,
    /// The life of the session.
    pub incarnation: u64,
    /// The fence of its latest connection.
    pub session_epoch: u64,
    /// The connection it is attached to.
    pub origin: Option<Origin>,
    /// How long it outlives its connection.
    pub expiry_s: u32,
    /// When it ends, if it is away and not for ever.
    pub expires_at_ms: Option<u64>,
    /// When its will goes out, if it is away and has one that waits.
    pub will_due_ms: Option<u64>,
    /// When its latest connection was lost, if it is away.
    pub detached_at_ms: Option<u64>,
    /// Whether it holds a will.
    pub has_will: bool,
    /// The will it holds; its payload is its own business.
    pub will: Option<WillView>,
    /// Its subscriptions, by filter.
    pub subscriptions: Vec<Subscription>,
    /// Packet ids of unfinished exchanges in the order in which they would be repeated.
    pub in_flight: Vec<(u16, ExchangeStage)>,
    /// How many exchanges its latest connection takes at once.
    pub window_maximum: u16,
    /// Offsets of the messages that wait behind the window, oldest first.
    pub waiting: Vec<u64>,
    /// Their weight in bytes, as it counts against the bound.
    pub waiting_bytes: u64,
    /// Filters of subscriptions whose retained messages have not all been sent, in their order.
    pub replays: Vec<Arc<str>>,
    /// Packet ids of its own `QoS` 2 publishes that wait for their PUBREL.
    pub received: Vec<u16>,
}

/// A will as far as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WillView {
    /// Where it will be published.
    pub topic: Box<str>,
    /// At which `QoS`.
    pub qos: QoS,
    /// Whether it is retained.
    pub retain: bool,
    /// How long the session may be gone before it is published.
    pub delay_s: u32,
    /// Its message expiry.
    pub expiry_s: Option<u32>,
    /// How large its payload is.
    pub payload_bytes: usize,
}

impl From<&StoredWill> for WillView {
    fn from(will: &StoredWill) -> Self {
        Self {
            topic: will.topic.clone(),
            qos: will.qos,
            retain: will.retain,
            delay_s: will.delay_s,
            expiry_s: will.expiry_s,
            payload_bytes: will.payload.len(),
        }
    }
}

/// A will that waits for its delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingWill<'a> {
    /// The client that left it.
    pub client_id: &'a str,
    /// Who that client had proved to be.
    pub identity: &'a str,
    /// The epoch of the connection that was lost.
    pub session_epoch: u64,
    /// Where it will be published.
    pub topic: &'a str,
}

impl Machine {
    /// The wills of sessions whose connection is gone, as long as they wait, by client id.
    pub fn waiting_wills(&self) -> impl Iterator<Item = WaitingWill<'_>> {
        let waiting = self.sessions.by_client_id().filter(|session| session.will_due_ms.is_some());
        waiting.filter_map(|session| {
            let will = session.will.as_ref()?;
            Some(WaitingWill {
                client_id: &session.client_id,
                identity: &session.identity,
                session_epoch: session.epoch,
                topic: &will.topic,
            })
        })
    }

    /// The stored session of a client.
    pub fn session_view(&self, client_id: &str) -> Option<SessionView> {
        self.sessions.key_of(client_id).and_then(|key| self.sessions.get(key)).map(view_of)
    }

    /// Client id and epoch of every session that is attached to a connection, in order.
    pub fn attached_sessions(&self) -> impl Iterator<Item = (&str, u64)> {
        let attached = self.sessions.by_client_id().filter(|session| session.is_attached());
        attached.map(|session| (&*session.client_id, session.epoch))
    }

    /// The ids of all clients with a stored session, in order; guests are none of their own.
    pub fn client_ids(&self) -> impl Iterator<Item = &str> {
        let ids = self.sessions.by_client_id().map(|session| &*session.client_id);
        ids.filter(|client_id| !is_guest(client_id))
    }
}

fn view_of(session: &Session) -> SessionView {
    let exchanges = session.window.exchanges();
    SessionView {
        client_id: session.client_id.clone(),
        identity: session.identity.clone(),
        incarnation: session.incarnation,
        session_epoch: session.epoch,
        origin: session.attachment.map(|attachment| attachment.origin),
        expiry_s: session.expiry_s,
        expires_at_ms: session.expires_at_ms,
        will_due_ms: session.will_due_ms,
        detached_at_ms: session.detached_at_ms,
        has_will: session.will.is_some(),
        will: session.will.as_ref().map(WillView::from),
        subscriptions: session.subscriptions.iter().cloned().collect(),
        in_flight: exchanges.map(|found| (found.packet_id, (&found.stage).into())).collect(),
        waiting: session.backlog.iter().map(|delivery| delivery.message.offset).collect(),
        window_maximum: session.window.maximum(),
        waiting_bytes: session.backlog.weight_bytes(),
        replays: session.replays.iter().map(|replay| replay.filter.clone()).collect(),
        received: session.received.keys().copied().collect(),
    }
}
