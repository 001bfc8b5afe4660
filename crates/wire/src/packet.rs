//! Any packet: the one place that knows all fifteen.

use crate::ack::{Ack, AckKind};
use crate::auth::Auth;
use crate::connack::ConnAck;
use crate::connect::Connect;
use crate::disconnect::Disconnect;
use crate::error::{DecodeError, EncodeError};
use crate::frame::{Frame, PacketType};
use crate::publish::Publish;
use crate::suback::SubAck;
use crate::subscribe::Subscribe;
use crate::unsuback::UnsubAck;
use crate::unsubscribe::Unsubscribe;
use crate::version::Version;

/// A decoded packet, borrowing from the buffer it came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet<'a> {
    /// Client asks to connect.
    Connect(Connect<'a>),
    /// Server answers CONNECT.
    ConnAck(ConnAck<'a>),
    /// A message, either way.
    Publish(Publish<'a>),
    /// Answer to QoS 1.
    PubAck(Ack<'a>),
    /// First answer to QoS 2.
    PubRec(Ack<'a>),
    /// Answer to PUBREC.
    PubRel(Ack<'a>),
    /// Answer to PUBREL.
    PubComp(Ack<'a>),
    /// Client asks for messages.
    Subscribe(Subscribe<'a>),
    /// Server answers SUBSCRIBE.
    SubAck(SubAck<'a>),
    /// Client wants no more of them.
    Unsubscribe(Unsubscribe<'a>),
    /// Server answers UNSUBSCRIBE.
    UnsubAck(UnsubAck<'a>),
    /// Client says it is alive.
    PingReq,
    /// Server says so too.
    PingResp,
    /// The last packet.
    Disconnect(Disconnect<'a>),
    /// A step of enhanced authentication.
    Auth(Auth<'a>),
}

/// Decodes the body that follows the header of `frame`.
///
/// `body` starts right after the fixed header and may go on beyond the packet; less than
/// `frame.body_bytes` is an error. CONNECT carries its own version and ignores the argument. Which
/// side may send which packet, and when, is the caller's to judge.
#[inline]
pub fn decode<'a>(
    version: Version,
    frame: &Frame,
    body: &'a [u8],
) -> Result<Packet<'a>, DecodeError> {
    let body = body.get(..frame.body_bytes).ok_or(DecodeError::Truncated { field: "body" })?;
    let ack = |kind| Ack::decode(version, kind, body);
    Ok(match frame.packet_type {
        PacketType::Connect => Packet::Connect(Connect::decode(body)?),
        PacketType::ConnAck => Packet::ConnAck(ConnAck::decode(version, body)?),
        PacketType::Publish => Packet::Publish(Publish::decode(version, frame.flags, body)?),
        PacketType::PubAck => Packet::PubAck(ack(AckKind::PubAck)?),
        PacketType::PubRec => Packet::PubRec(ack(AckKind::PubRec)?),
        PacketType::PubRel => Packet::PubRel(ack(AckKind::PubRel)?),
        PacketType::PubComp => Packet::PubComp(ack(AckKind::PubComp)?),
        PacketType::Subscribe => Packet::Subscribe(Subscribe::decode(version, body)?),
        PacketType::SubAck => Packet::SubAck(SubAck::decode(version, body)?),
        PacketType::Unsubscribe => Packet::Unsubscribe(Unsubscribe::decode(version, body)?),
        PacketType::UnsubAck => Packet::UnsubAck(UnsubAck::decode(version, body)?),
        PacketType::PingReq if body.is_empty() => Packet::PingReq,
        PacketType::PingResp if body.is_empty() => Packet::PingResp,
        PacketType::PingReq | PacketType::PingResp => return Err(DecodeError::TrailingBytes),
        PacketType::Disconnect => Packet::Disconnect(Disconnect::decode(version, body)?),
        PacketType::Auth => Packet::Auth(Auth::decode(version, body)?),
    })
}

impl Packet<'_> {
    /// Which of the fifteen this is.
    #[inline]
    pub const fn packet_type(&self) -> PacketType {
        match self {
            Self::Connect(_) => PacketType::Connect,
            Self::ConnAck(_) => PacketType::ConnAck,
            Self::Publish(_) => PacketType::Publish,
            Self::PubAck(_) => PacketType::PubAck,
            Self::PubRec(_) => PacketType::PubRec,
            Self::PubRel(_) => PacketType::PubRel,
            Self::PubComp(_) => PacketType::PubComp,
            Self::Subscribe(_) => PacketType::Subscribe,
            Self::SubAck(_) => PacketType::SubAck,
            Self::Unsubscribe(_) => PacketType::Unsubscribe,
            Self::UnsubAck(_) => PacketType::UnsubAck,
            Self::PingReq => PacketType::PingReq,
            Self::PingResp => PacketType::PingResp,
            Self::Disconnect(_) => PacketType::Disconnect,
            Self::Auth(_) => PacketType::Auth,
        }
    }

    /// Appends the packet; on error `out` is as it was.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Self::Connect(connect) => connect.encode(version, out),
            Self::ConnAck(connack) => connack.encode(version, out),
            Self::Publish(publish) => publish.encode(version, out).map(|_| ()),
            Self::PubAck(ack) => ack.encode(AckKind::PubAck, version, out),
            Self::PubRec(ack) => ack.encode(AckKind::PubRec, version, out),
            Self::PubRel(ack) => ack.encode(AckKind::PubRel, version, out),
            Self::PubComp(ack) => ack.encode(AckKind::PubComp, version, out),
            Self::Subscribe(subscribe) => subscribe.encode(version, out),
            Self::SubAck(suback) => suback.encode(version, out),
            Self::Unsubscribe(unsubscribe) => unsubscribe.encode(version, out),
            Self::UnsubAck(unsuback) => unsuback.encode(version, out),
            Self::PingReq | Self::PingResp => {
                out.extend_from_slice(&[self.packet_type().first_byte(), 0]);
                Ok(())
            }
            Self::Disconnect(disconnect) => disconnect.encode(version, out),
            Self::Auth(auth) => auth.encode(version, out),
        }
    }
}
