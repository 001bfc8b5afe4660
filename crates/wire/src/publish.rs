//! PUBLISH (§3.3): the packet everything else exists for.
//!
//! Decoding copies nothing and allocates nothing: topic, properties and payload point into the
//! body. Encoding knows its length beforehand and writes once. For fan-out, encode once per
//! protocol version and QoS, copy the bytes per subscriber and patch packet id and flags in the
//! copy.

use std::fmt;

use crate::error::{DecodeError, EncodeError};
use crate::frame::{self, PacketType};
use crate::packet_id::PacketId;
use crate::properties::Properties;
use crate::property::{Carrier, PropertyId};
use crate::qos::QoS;
use crate::reader::Reader;
use crate::text::{self, TEXT_BYTES_MAX};
use crate::varint;
use crate::version::Version;

const DUP: u8 = 0b1000;
const RETAIN: u8 = 0b0001;
const CARRIER: Carrier = Carrier::Packet(PacketType::Publish);

/// A message on its way, in either direction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Publish<'a> {
    /// Sent before, under the same packet id.
    pub dup: bool,
    /// How hard to deliver.
    pub qos: QoS,
    /// To be kept; towards a subscriber: was kept.
    pub retain: bool,
    /// Never with wildcards; empty only in MQTT 5 and beside a topic alias.
    pub topic: &'a str,
    /// Present exactly when `qos` is above 0.
    pub packet_id: Option<PacketId>,
    /// Empty before MQTT 5.
    pub properties: Properties<'a>,
    /// The application's bytes.
    pub payload: &'a [u8],
}

impl<'a> Publish<'a> {
    /// Reads a body whose fixed header carried `flags`.
    #[inline]
    pub fn decode(version: Version, flags: u8, body: &'a [u8]) -> Result<Self, DecodeError> {
        frame::check_publish_flags(flags)?;
        let qos = QoS::from_bits(flags >> 1 & 0b11).ok_or(DecodeError::QosThree)?;
        let mut reader = Reader::new(body);
        let topic = reader.topic_name("topic name")?;
        let packet_id = match qos {
            QoS::AtMostOnce => None,
            QoS::AtLeastOnce | QoS::ExactlyOnce => Some(reader.packet_id()?),
        };
        let properties = Properties::read(version, CARRIER, &mut reader)?;
        let publish = Self {
            dup: flags & DUP != 0,
            qos,
            retain: flags & RETAIN != 0,
            topic,
            packet_id,
            properties,
            payload: reader.rest(),
        };
        publish.check_topic_present(version)?;
        Ok(publish)
    }

    #[inline]
    fn check_topic_present(&self, version: Version) -> Result<(), DecodeError> {
        let aliased = version == Version::V5 && self.properties.contains(PropertyId::TopicAlias);
        if self.topic.is_empty() && !aliased { Err(DecodeError::EmptyTopic) } else { Ok(()) }
    }

    /// The four flag bits of the fixed header.
    #[inline]
    pub const fn flags(&self) -> u8 {
        flag_bits(self.dup, self.qos, self.retain)
    }

    /// Bytes of the whole packet, to be held against the peer's Maximum Packet Size.
    #[inline]
    pub const fn encoded_bytes(&self, version: Version) -> usize {
        let body_bytes = self.body_bytes(version);
        1 + varint::encoded_bytes(body_bytes) + body_bytes
    }

    #[inline]
    const fn body_bytes(&self, version: Version) -> usize {
        let packet_id_bytes = if self.packet_id.is_some() { 2 } else { 0 };
        2 + self.topic.len()
            + packet_id_bytes
            + self.properties.encoded_bytes(version)
            + self.payload.len()
    }

    /// Appends the packet; returns where its patchable parts stand in `out`.
    #[inline]
    pub fn encode(
        &self,
        version: Version,
        out: &mut Vec<u8>,
    ) -> Result<EncodedPublish, EncodeError> {
        let encoded = self.encode_head(version, out)?;
        out.extend_from_slice(self.payload);
        Ok(encoded)
    }

    /// Appends everything but the payload, for callers that write the payload from where it is.
    #[inline]
    pub fn encode_head(
        &self,
        version: Version,
        out: &mut Vec<u8>,
    ) -> Result<EncodedPublish, EncodeError> {
        self.check(version)?;
        let flags_at = out.len();
        let first_byte = PacketType::Publish.first_byte() | self.flags();
        frame::put_header(first_byte, self.body_bytes(version), out)?;
        out.extend_from_slice(&(self.topic.len() as u16).to_be_bytes());
        out.extend_from_slice(self.topic.as_bytes());
        let packet_id_at = self.packet_id.map(|packet_id| {
            let at = out.len();
            out.extend_from_slice(&packet_id.get().to_be_bytes());
            at
        });
        if let Err(error) = self.properties.put(version, CARRIER, out) {
            out.truncate(flags_at);
            return Err(error);
        }
        Ok(EncodedPublish { flags_at, packet_id_at })
    }

    #[inline]
    fn check(&self, version: Version) -> Result<(), EncodeError> {
        if self.topic.len() > TEXT_BYTES_MAX {
            return Err(EncodeError::TooLong { field: "topic name", bytes: self.topic.len() });
        }
        text::refuse_nul_and_wildcards(self.topic)?;
        self.check_topic_present(version)?;
        frame::check_publish_flags(self.flags())?;
        if self.packet_id.is_some() != (self.qos > QoS::AtMostOnce) {
            return Err(EncodeError::PacketIdAgainstQos { qos: self.qos.bits() });
        }
        Ok(())
    }
}

impl fmt::Debug for Publish<'_> {
    /// Shows the payload's size only: payloads do not belong in logs.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Publish")
            .field("dup", &self.dup)
            .field("qos", &self.qos)
            .field("retain", &self.retain)
            .field("topic", &self.topic)
            .field("packet_id", &self.packet_id)
            .field("properties", &self.properties)
            .field("payload_bytes", &self.payload.len())
            .finish()
    }
}

/// Where the parts of an encoded PUBLISH stand that differ between its subscribers.
///
/// Offsets count from the start of the vector that was encoded into; encode into an empty one to
/// have them count from the start of the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodedPublish {
    /// Offset of the first byte: packet type, DUP, QoS, RETAIN.
    pub flags_at: usize,
    /// Offset of the packet id's two bytes; `None` at QoS 0.
    pub packet_id_at: Option<usize>,
}

impl EncodedPublish {
    /// Writes another packet id into `bytes`. At QoS 0 there is none and nothing happens.
    ///
    /// Panics when `bytes` is not the encoded packet: that is the caller's mistake.
    #[inline]
    pub fn patch_packet_id(self, packet_id: PacketId, bytes: &mut [u8]) {
        if let Some(at) = self.packet_id_at {
            bytes[at..at + 2].copy_from_slice(&packet_id.get().to_be_bytes());
        }
    }

    /// Writes other flags into `bytes`; QoS 1 and 2 may replace each other, QoS 0 only itself.
    ///
    /// Panics when `bytes` is not the encoded packet or the packet id says otherwise about `qos`.
    #[inline]
    pub fn patch_flags(self, dup: bool, qos: QoS, retain: bool, bytes: &mut [u8]) {
        let has_packet_id = self.packet_id_at.is_some();
        assert_eq!(has_packet_id, qos > QoS::AtMostOnce, "QoS 0 and QoS above 0 differ in length");
        bytes[self.flags_at] = PacketType::Publish.first_byte() | flag_bits(dup, qos, retain);
    }
}

#[inline]
const fn flag_bits(dup: bool, qos: QoS, retain: bool) -> u8 {
    let dup = if dup { DUP } else { 0 };
    let retain = if retain { RETAIN } else { 0 };
    dup | qos.bits() << 1 | retain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(qos: QoS) -> Publish<'static> {
        Publish {
            dup: false,
            qos,
            retain: false,
            topic: "test",
            packet_id: (qos > QoS::AtMostOnce).then_some(PacketId::MIN),
            properties: Properties::EMPTY,
            payload: b"hello",
        }
    }

    // req: DP-24
    #[test]
    fn patching_a_copy_equals_encoding_anew() {
        let mut template = Vec::new();
        let encoded = hello(QoS::AtLeastOnce).encode(Version::V5, &mut template).unwrap();
        let packet_id = PacketId::new(0xABCD).unwrap();
        let mut copy = template.clone();
        encoded.patch_packet_id(packet_id, &mut copy);
        encoded.patch_flags(true, QoS::ExactlyOnce, true, &mut copy);

        let anew = Publish {
            dup: true,
            retain: true,
            packet_id: Some(packet_id),
            ..hello(QoS::ExactlyOnce)
        };
        let mut expected = Vec::new();
        anew.encode(Version::V5, &mut expected).unwrap();
        assert_eq!(copy, expected);
    }

    #[test]
    fn head_and_payload_make_the_packet() {
        let mut whole = Vec::new();
        let mut head = Vec::new();
        hello(QoS::ExactlyOnce).encode(Version::V311, &mut whole).unwrap();
        hello(QoS::ExactlyOnce).encode_head(Version::V311, &mut head).unwrap();
        head.extend_from_slice(b"hello");
        assert_eq!(head, whole);
        assert_eq!(whole.len(), hello(QoS::ExactlyOnce).encoded_bytes(Version::V311));
    }

    #[test]
    fn what_a_peer_would_refuse_is_not_written() {
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        let good = hello(QoS::AtLeastOnce);
        let bad = [
            Publish { topic: "", ..good },
            Publish { topic: "a/+", ..good },
            Publish { topic: "nul\0", ..good },
            Publish { topic: &long, ..good },
            Publish { packet_id: None, ..good },
            Publish { packet_id: Some(PacketId::MIN), ..hello(QoS::AtMostOnce) },
            Publish { dup: true, ..hello(QoS::AtMostOnce) },
        ];
        for publish in bad {
            let mut out = vec![1, 2];
            assert!(publish.encode(Version::V5, &mut out).is_err(), "{publish:?}");
            assert_eq!(out, [1, 2]);
        }
    }
}
