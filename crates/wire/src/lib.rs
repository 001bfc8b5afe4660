//! MQTT on the wire: bytes to packets and back, for 3.1, 3.1.1 and 5.0.
//!
//! Rules of the house:
//!
//! 1. **Pure.** Nothing here opens, sleeps, reads a clock or remembers a packet. What needs a
//!    session or a direction (a server that sends SUBSCRIBE, an alias above the peer's maximum, a
//!    filter with `#` in the middle) is judged by the caller.
//! 2. **Borrowed.** A decoded packet points into the caller's buffer. Decoding allocates nothing;
//!    lists (properties, filters) are checked whole once and then walked lazily.
//! 3. **Announced lengths buy nothing.** No memory is reserved from a length field, and a body
//!    above the caller's limit is refused as soon as its header is there.
//! 4. **Symmetric.** Whatever `encode` accepts, `decode` accepts and returns unchanged, apart from
//!    what the older versions cannot say (properties, reason codes).
//! 5. **Linear.** No recursion, no look-back: the work is proportional to the bytes.
//!
//! The way in: [`frame::peek`] finds the packet at the start of a buffer, [`decode`] reads its
//! body. [`Publish::decode`] and [`Ack::decode`] are the same doors without the enum, for the hot
//! path. The way out: `encode` on every packet appends to a `Vec<u8>` and leaves it alone on error.
//!
//! ```
//! use quantumqtt_wire::{Packet, Version, decode, frame};
//!
//! let received = b"\x30\x0b\x00\x04testhello\xc0\x00";
//! let frame = frame::peek(received, 1024)?.expect("the header is there");
//! let body = frame.body(received).expect("the body is there, too");
//! let Packet::Publish(publish) = decode(Version::V311, &frame, body)? else { unreachable!() };
//! assert_eq!((publish.topic, publish.payload), ("test", &b"hello"[..]));
//!
//! // The next packet starts where this one ends.
//! let rest = &received[frame.total()..];
//! assert_eq!(frame::peek(rest, 1024)?.map(|frame| frame.total()), Some(2));
//! # Ok::<(), quantumqtt_wire::DecodeError>(())
//! ```

#![forbid(unsafe_code)]

mod ack;
mod auth;
mod connack;
mod connect;
mod disconnect;
mod error;
pub mod frame;
mod packet;
mod packet_id;
mod properties;
mod property;
mod publish;
mod qos;
mod reader;
mod reason;
mod suback;
mod subscribe;
pub mod text;
mod unsuback;
mod unsubscribe;
pub mod varint;
mod version;

pub use ack::{Ack, AckKind};
pub use auth::Auth;
pub use connack::ConnAck;
pub use connect::{Connect, Will};
pub use disconnect::Disconnect;
pub use error::{DecodeError, EncodeError};
pub use frame::{Frame, PacketType};
pub use packet::{Packet, decode};
pub use packet_id::PacketId;
pub use properties::{Properties, PropertyBlock};
pub use property::{Carrier, Property, PropertyId, Secret};
pub use publish::{EncodedPublish, Publish};
pub use qos::QoS;
pub use reason::ReasonCode;
pub use suback::SubAck;
pub use subscribe::{
    RetainHandling, Subscribe, SubscribeBlock, SubscribeFilterIter, SubscribeFilters,
    SubscribeOptions,
};
pub use unsuback::UnsubAck;
pub use unsubscribe::{Unsubscribe, UnsubscribeBlock, UnsubscribeFilterIter, UnsubscribeFilters};
pub use version::Version;
