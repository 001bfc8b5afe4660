//! The commands: everything that can be asked of the state machine.
//!
//! A command borrows. The node fills it from the read buffer and the builder copies it once, into
//! the entry; on apply it borrows from that entry, and what must live longer is shared or copied
//! by `message.rs`. Each kind keeps its number for ever: numbers are on disk. A body is the fields
//! in the order they are declared here, options announced by a flag byte; `codec.rs` writes and
//! reads them.
//!
//! Commands that come from a connection carry the client id and the `session_epoch` it was opened
//! with. The epoch is the fence: a command of an older connection changes nothing (SES-18).

use quantumqtt_wire::{QoS, ReasonCode};

use crate::limits::Limits;

/// Session expiry that never comes, as MQTT 5 spells it.
pub const EXPIRY_NEVER_S: u32 = u32::MAX;

/// Where an answer goes. Opaque to the machine, yet part of its state: it is how a session knows
/// the connection it is attached to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Origin {
    /// The node that holds the socket.
    pub node: u32,
    /// The shard thread of that node.
    pub shard: u16,
    /// The connection of that shard, never reused within the node's life.
    pub connection: u64,
}

/// When a subscriber receives the retained messages of a new subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum RetainHandling {
    /// At every subscribe.
    #[default]
    Send = 0,
    /// Only if the subscription did not exist.
    SendIfNew = 1,
    /// Never.
    DoNotSend = 2,
}

/// The options of one subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscriptionOptions {
    /// The highest `QoS` the subscriber wants.
    pub qos: QoS,
    /// Do not send back what this client itself published.
    pub no_local: bool,
    /// Keep the publisher's retain flag on live messages.
    pub retain_as_published: bool,
    /// When retained messages are sent.
    pub retain_handling: RetainHandling,
}

impl SubscriptionOptions {
    /// Plain options, as an MQTT 3 SUBSCRIBE has them.
    pub fn with_qos(qos: QoS) -> Self {
        Self {
            qos,
            no_local: false,
            retain_as_published: false,
            retain_handling: RetainHandling::Send,
        }
    }

    /// The options byte exactly as MQTT 5 writes it.
    pub fn to_byte(self) -> u8 {
        self.qos as u8
            | u8::from(self.no_local) << 2
            | u8::from(self.retain_as_published) << 3
            | (self.retain_handling as u8) << 4
    }

    /// Reads MQTT 5's options byte; reserved bits and values are refused.
    pub fn from_byte(byte: u8) -> Option<Self> {
        let retain_handling = match byte >> 4 {
            0 => RetainHandling::Send,
            1 => RetainHandling::SendIfNew,
            2 => RetainHandling::DoNotSend,
            _ => return None,
        };
        Some(Self {
            qos: QoS::from_bits(byte & 0b11)?,
            no_local: byte & 0b100 != 0,
            retain_as_published: byte & 0b1000 != 0,
            retain_handling,
        })
    }
}

/// Who made a publish; the `source` column of the message log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Source {
    /// An MQTT PUBLISH.
    Mqtt = 0,
    /// A work queue.
    Queue = 1,
    /// The SQS endpoint.
    Sqs = 2,
    /// A will.
    Will = 3,
    /// A pipeline's sink.
    Sink = 4,
    /// The broker itself.
    System = 5,
}

impl Source {
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Mqtt),
            1 => Some(Self::Queue),
            2 => Some(Self::Sqs),
            3 => Some(Self::Will),
            4 => Some(Self::Sink),
            5 => Some(Self::System),
            _ => None,
        }
    }
}

/// The message a client leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Will<'a> {
    /// Where it will be published.
    pub topic: &'a str,
    /// The publish properties, already in forwardable form.
    pub properties: &'a [u8],
    /// What will be published.
    pub payload: &'a [u8],
    /// At which `QoS`.
    pub qos: QoS,
    /// Whether it is retained.
    pub retain: bool,
    /// How long the session may be gone before it is published.
    pub delay_s: u32,
    /// Its message expiry, counted from its publication.
    pub expiry_s: Option<u32>,
}

/// A connection asks for its stored session, or for one to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenSession<'a> {
    /// The connection.
    pub origin: Origin,
    /// The client id.
    pub client_id: &'a str,
    /// Who the client proved to be; empty for anonymous.
    pub identity: &'a str,
    /// MQTT's version level: 3, 4 or 5.
    pub level: u8,
    /// Whether any earlier session is thrown away.
    pub clean_start: bool,
    /// How long the session outlives its connection; 0 stores nothing, `EXPIRY_NEVER_S` never ends.
    pub expiry_s: u32,
    /// How many unacknowledged messages the client takes.
    pub receive_maximum: u16,
    /// The largest packet the client takes; `u32::MAX` for any.
    pub maximum_packet_bytes: u32,
    /// The will, if any.
    pub will: Option<Will<'a>>,
}

/// The network connection of a session is gone.
///
/// Said once more without `fire_will`, it takes back a will that still waits for its delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLost<'a> {
    /// The client id.
    pub client_id: &'a str,
    /// The epoch of the connection that is gone.
    pub session_epoch: u64,
    /// False after a normal DISCONNECT: the will is deleted.
    pub fire_will: bool,
    /// The expiry an MQTT 5 DISCONNECT asked for.
    pub expiry_s: Option<u32>,
    /// Not 0 when the server itself ended the connection: the will waits so long at least, and is
    /// dropped if the client returns.
    pub will_grace_s: u32,
}

/// The server itself has ended the connection of a transient session that leaves a will behind.
///
/// Nothing of the session goes on. What is stored under its name holds the will, and ends with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaveWill<'a> {
    /// The client id.
    pub client_id: &'a str,
    /// Who the client proved to be; empty for anonymous.
    pub identity: &'a str,
    /// What it leaves behind.
    pub will: Will<'a>,
    /// How long the will waits at least; it is dropped if the client returns.
    pub will_grace_s: u32,
}

/// One filter of a SUBSCRIBE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscribeFilter<'a> {
    /// The filter as the client wrote it, `$share/…` included.
    pub filter: &'a str,
    /// Its options.
    pub options: SubscriptionOptions,
    /// The verdict of access control: none, or the failure code the SUBACK repeats. It travels with
    /// the command so that the answer comes back complete and in order.
    pub refused: Option<ReasonCode>,
}

/// A SUBSCRIBE of a stored session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribe<'a> {
    /// The connection.
    pub origin: Origin,
    /// The client id.
    pub client_id: &'a str,
    /// The epoch of the connection.
    pub session_epoch: u64,
    /// The packet id of the SUBSCRIBE.
    pub packet_id: u16,
    /// The Subscription Identifier, 1 to 268 435 455.
    pub subscription_id: Option<u32>,
    /// The filters, in the order of the packet.
    pub filters: Vec<SubscribeFilter<'a>>,
}

/// An UNSUBSCRIBE of a stored session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsubscribe<'a> {
    /// The connection.
    pub origin: Origin,
    /// The client id.
    pub client_id: &'a str,
    /// The epoch of the connection.
    pub session_epoch: u64,
    /// The packet id of the UNSUBSCRIBE.
    pub packet_id: u16,
    /// The filters, in the order of the packet.
    pub filters: Vec<&'a str>,
}

/// A name its publisher gave a message, so that it can send it again without doubling it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DedupeKey<'a> {
    /// Who the publisher proved to be; empty for anonymous.
    pub identity: &'a str,
    /// The name: 1 to `DEDUPE_KEY_BYTES_MAX` bytes without NUL.
    pub key: &'a str,
}

/// A PUBLISH, of a stored session or of a transient one (`incarnation` 0).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish<'a> {
    /// The connection.
    pub origin: Origin,
    /// The client id of the publisher.
    pub client_id: &'a str,
    /// The epoch of the connection; 0 when transient.
    pub session_epoch: u64,
    /// The incarnation of the session; 0 when transient.
    pub incarnation: u64,
    /// The packet id, 0 for none.
    pub packet_id: u16,
    /// At which `QoS` it was published.
    pub qos: QoS,
    /// Whether it is retained.
    pub retain: bool,
    /// Whether the client says it sent this before.
    pub dup: bool,
    /// A `QoS` 0 message that was delivered at once and is only to be recorded: no routing here.
    pub captured: bool,
    /// Under which key it counts once; only `QoS` 1 and 2 have one.
    pub dedupe: Option<DedupeKey<'a>>,
    /// Who made it.
    pub source: Source,
    /// Its message expiry.
    pub expiry_s: Option<u32>,
    /// Where to.
    pub topic: &'a str,
    /// The publish properties, already in forwardable form (no expiry, alias, subscription ids).
    pub properties: &'a [u8],
    /// What.
    pub payload: &'a [u8],
}

/// A PUBREL from a publisher: the exchange of `packet_id` is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PubRel<'a> {
    /// The connection.
    pub origin: Origin,
    /// The client id.
    pub client_id: &'a str,
    /// The epoch of the connection.
    pub session_epoch: u64,
    /// The packet id the publisher chose.
    pub packet_id: u16,
}

/// Which acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum AckKind {
    /// `QoS` 1, the whole exchange.
    PubAck = 0,
    /// `QoS` 2, first half.
    PubRec = 1,
    /// `QoS` 2, second half.
    PubComp = 2,
    /// No acknowledgement: the subscriber was not sent it, for it may not read it. If it came by a
    /// share group it is another member's.
    Declined = 3,
}

impl AckKind {
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::PubAck),
            1 => Some(Self::PubRec),
            2 => Some(Self::PubComp),
            3 => Some(Self::Declined),
            _ => None,
        }
    }
}

/// A subscriber acknowledges something we sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientAck<'a> {
    /// The client id.
    pub client_id: &'a str,
    /// The epoch of the connection.
    pub session_epoch: u64,
    /// The packet id we chose.
    pub packet_id: u16,
    /// Which acknowledgement.
    pub kind: AckKind,
    /// Its reason code; 0x80 and above end the exchange.
    pub reason: ReasonCode,
}

/// One thing asked of the state machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command<'a> {
    /// See [`OpenSession`].
    OpenSession(OpenSession<'a>),
    /// See [`ConnectionLost`].
    ConnectionLost(ConnectionLost<'a>),
    /// See [`LeaveWill`].
    LeaveWill(LeaveWill<'a>),
    /// See [`Subscribe`].
    Subscribe(Subscribe<'a>),
    /// See [`Unsubscribe`].
    Unsubscribe(Unsubscribe<'a>),
    /// See [`Publish`].
    Publish(Publish<'a>),
    /// See [`PubRel`].
    PubRel(PubRel<'a>),
    /// See [`ClientAck`].
    ClientAck(ClientAck<'a>),
    /// Everything whose time has come, happens now.
    Tick,
    /// The bounds from here on.
    SetLimits(Limits),
}
