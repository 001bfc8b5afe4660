//! What apply returns: things to be done by whoever holds the sockets and the disk.
//!
//! The leader executes effects in the order given; followers discard them, except `Append`, which
//! every replica executes. An effect that names an `Origin` goes to that connection if it is still
//! there, and nowhere otherwise: everything that must not be lost is in the state already.

use std::sync::Arc;

use quantumqtt_wire::{QoS, ReasonCode};
use smallvec::SmallVec;

use crate::command::{AckKind, Origin, Source, SubscriptionOptions};
use crate::message::Message;

/// The Subscription Identifiers of one delivery; nearly always none or one.
pub type SubscriptionIds = SmallVec<[u32; 2]>;

/// One thing to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// A session is attached to a connection: close the previous one, send CONNACK.
    SessionOpened(SessionOpened),
    /// The client id belongs to someone else: refuse the connection.
    OpenRefused {
        /// The connection.
        origin: Origin,
        /// Why.
        reason: ReasonCode,
    },
    /// Send SUBACK.
    Subscribed(Subscribed),
    /// Send UNSUBACK.
    Unsubscribed(Unsubscribed),
    /// Answer a publisher.
    Acknowledge {
        /// The connection.
        origin: Origin,
        /// With which packet.
        kind: AckKind,
        /// For which packet id.
        packet_id: u16,
        /// With which reason.
        reason: ReasonCode,
    },
    /// Send PUBLISH to a subscriber.
    Deliver(Deliver),
    /// Send PUBREL to a subscriber.
    Release {
        /// The connection.
        origin: Origin,
        /// For which packet id.
        packet_id: u16,
        /// 0x92 when the client acknowledged an id that is not in use.
        reason: ReasonCode,
    },
    /// Write a record to the message log. Transient subscribers are matched when it is seen.
    Append(Record),
    /// A stored session is no more.
    SessionEnded(SessionEnded),
}

/// See [`Effect::SessionOpened`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOpened {
    /// The connection.
    pub origin: Origin,
    /// The client id.
    pub client_id: Arc<str>,
    /// What CONNACK says about an earlier session.
    pub session_present: bool,
    /// The fence of this connection; 0 when nothing is stored.
    pub session_epoch: u64,
    /// The life of the session; 0 when nothing is stored (expiry 0).
    pub incarnation: u64,
    /// The stored subscriptions, by filter.
    pub subscriptions: Vec<Subscription>,
    /// The connection that was taken over and must be closed with 0x8E.
    pub previous: Option<Origin>,
}

/// A subscription as it stands in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// The filter as the client wrote it.
    pub filter: Arc<str>,
    /// Its options.
    pub options: SubscriptionOptions,
    /// Its Subscription Identifier.
    pub subscription_id: Option<u32>,
}

/// See [`Effect::Subscribed`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribed {
    /// The connection.
    pub origin: Origin,
    /// The client id.
    pub client_id: Arc<str>,
    /// The packet id of the SUBSCRIBE.
    pub packet_id: u16,
    /// One code per filter, in order.
    pub codes: SmallVec<[ReasonCode; 4]>,
    /// The filters, in the same order, refused ones included.
    pub filters: Vec<Subscription>,
}

/// See [`Effect::Unsubscribed`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsubscribed {
    /// The connection.
    pub origin: Origin,
    /// The client id.
    pub client_id: Arc<str>,
    /// The packet id of the UNSUBSCRIBE.
    pub packet_id: u16,
    /// One code per filter, in order.
    pub codes: SmallVec<[ReasonCode; 4]>,
    /// The filters, in the same order.
    pub filters: Vec<Arc<str>>,
}

/// See [`Effect::Deliver`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deliver {
    /// The connection.
    pub origin: Origin,
    /// The epoch of that connection.
    pub session_epoch: u64,
    /// The packet id; none at `QoS` 0.
    pub packet_id: Option<u16>,
    /// At which `QoS`: the smaller of the publisher's and the subscriber's.
    pub qos: QoS,
    /// The retain flag to send.
    pub retain: bool,
    /// Whether it may have been sent before.
    pub dup: bool,
    /// What is left of the message expiry.
    pub expiry_s: Option<u32>,
    /// The Subscription Identifiers of every subscription that matched.
    pub subscription_ids: SubscriptionIds,
    /// Whether it came by a share group, so that another member may have it.
    pub is_shared: bool,
    /// The message; shared, so encodings can be cached by its address.
    pub message: Arc<Message>,
}

/// One committed publish in the partition's message log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Dense and monotone per partition.
    pub offset: u64,
    /// The entry time at which it was committed.
    pub ts_ms: u64,
    /// Topic, properties, payload, `QoS`, expiry.
    pub message: Arc<Message>,
    /// Whether the publisher asked for it to be retained.
    pub retain: bool,
    /// Delivered before it was committed: record it, do not match it again.
    pub captured: bool,
    /// Who made it.
    pub source: Source,
    /// The publisher.
    pub client_id: Arc<str>,
    /// The publisher's incarnation; 0 when transient.
    pub incarnation: u64,
    /// The publisher's epoch; 0 when transient.
    pub session_epoch: u64,
    /// With client id and incarnation, the identity of this publish.
    pub publish_seq: u64,
    /// The connection it came from; none for wills.
    pub publisher: Option<Origin>,
}

/// Why a stored session is no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// A clean start threw it away.
    Discarded,
    /// It had asked not to outlive its connection.
    Closed,
    /// It was away for longer than its expiry.
    Expired,
    /// Its backlog was full; tell the connection 0x97.
    Overflowed,
}

/// See [`Effect::SessionEnded`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEnded {
    /// The client id.
    pub client_id: Arc<str>,
    /// The last epoch it had.
    pub session_epoch: u64,
    /// The connection to close, when this end is what closes it. A connection that was taken over
    /// is named by `SessionOpened::previous` instead.
    pub origin: Option<Origin>,
    /// Why.
    pub reason: EndReason,
}
