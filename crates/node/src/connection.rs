//! One client's connection, as its own shard keeps it.
//!
//! States go one way: `Fresh` (nothing but CONNECT may come) → `Opening` (CONNECT is accepted or
//! not; reads are paused, so nothing comes) → `Connected` → closed, which is the connection's end
//! and no state. Whatever is held for a rare case is boxed: most connections are idle and many.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use quantumqtt_machine::{Deliver, Origin};
use quantumqtt_reactor::{ConnectionId, Outlet, Peer};
use quantumqtt_wire::Version;

use crate::authentication::Exchange;
use crate::connect::Opening;
use crate::guest::Guest;
use crate::outbound::Outbound;
use crate::playback::Playbacks;
use crate::retained::Replay;
use crate::rights::{Allowed, Principal};
use crate::will::Will;

pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) outlet: Arc<Outlet<Outbound>>,
    pub(crate) peer: Peer,
    pub(crate) listener: u16,
    pub(crate) version: Version,
    pub(crate) state: State,
    pub(crate) session: Session,
    pub(crate) client_id: Arc<str>,
    /// Who it is, as far as rules are concerned; nobody until it is let in, except that a
    /// certificate may have named its user before.
    pub(crate) who: Arc<Principal>,
    /// The topics rules allowed it last.
    pub(crate) allowed: Option<Box<Allowed>>,
    /// One and a half keep-alive intervals; 0 when the client asked for none.
    pub(crate) silence_ms_max: u64,
    pub(crate) last_packet_ms: u64,
    /// Acknowledged publishes of the client that we have not acknowledged yet.
    pub(crate) unacknowledged: u16,
    /// Whether it wants to hear in words why something was refused.
    pub(crate) wants_reasons: bool,
    /// Whether it lets us shorten topics.
    pub(crate) takes_aliases: bool,
    /// The largest packet the client takes.
    pub(crate) packet_bytes_max: u32,
    /// Not read until then at the latest, because a subscriber is behind; 0 when it is read.
    pub(crate) paused_until_ms: u64,
    /// A retained QoS 0 publish waits for its commit: nothing behind it is read.
    pub(crate) awaits_commit: bool,
    /// Acknowledged publishes of the client that wait for their commit.
    pub(crate) proposed: u16,
    /// The expiry an MQTT 5 DISCONNECT asked for.
    pub(crate) disconnect_expiry_s: Option<u32>,
    /// Filters this connection has in the node's index.
    pub(crate) filters: BTreeSet<Box<str>>,
    pub(crate) rare: Option<Box<Rare>>,
}

/// What few connections need.
#[derive(Default)]
pub(crate) struct Rare {
    /// The will of a transient session.
    pub(crate) will: Option<Will>,
    /// The topic of a will that the machine holds.
    pub(crate) will_topic: Option<Box<str>>,
    /// Open inbound QoS 2 exchanges of a transient session.
    pub(crate) received_ids: BTreeSet<u16>,
    /// Deliveries of a stored session that wait for room in the outlet; at most its window.
    pub(crate) deliveries: VecDeque<Deliver>,
    /// Its method of enhanced authentication, if it has one.
    pub(crate) exchange: Option<Box<Exchange>>,
    /// Its place in share groups, if the session is transient and takes part in any.
    pub(crate) guest: Option<Guest>,
    /// Retained messages that a new subscription still has to bring.
    pub(crate) replay: Option<Replay>,
    /// What it replays from the log.
    pub(crate) playbacks: Option<Box<Playbacks>>,
    /// Topic aliases the client has set, and the bytes of their topics.
    pub(crate) aliases: BTreeMap<u16, Box<str>>,
    pub(crate) alias_bytes: usize,
}

pub(crate) enum State {
    /// Accepted; CONNECT must come.
    Fresh,
    /// CONNECT came; somebody else must speak first.
    Opening(Box<Opening>),
    /// CONNACK is out.
    Connected,
}

/// Where the session of a connection lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Session {
    /// Here, on the connection.
    Transient,
    /// In the machine, under this epoch.
    Stored {
        /// The fence of this connection.
        epoch: u64,
        /// The life of the session.
        incarnation: u64,
    },
}

impl Connection {
    pub(crate) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Whether the machine has answered what nothing may overtake.
    pub(crate) fn may_be_read(&self) -> bool {
        !self.awaits_commit && !self.awaits_guest()
    }

    pub(crate) fn is_stored(&self) -> bool {
        matches!(self.session, Session::Stored { .. })
    }

    /// Epoch and incarnation; both 0 for a transient session.
    pub(crate) fn session_ids(&self) -> (u64, u64) {
        match self.session {
            Session::Transient => (0, 0),
            Session::Stored { epoch, incarnation } => (epoch, incarnation),
        }
    }

    pub(crate) fn origin(&self, node: u32) -> Origin {
        Origin { node, shard: self.id.shard(), connection: self.id.to_bits() }
    }
}
