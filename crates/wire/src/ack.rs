//! PUBACK, PUBREC, PUBREL and PUBCOMP (§3.4 to §3.7): one layout, four meanings.
//!
//! The short forms are the common ones: two bytes of packet id when all is well, one more for a
//! reason, and a property block only when there is something in it.

use crate::error::{DecodeError, EncodeError};
use crate::frame::{self, PacketType};
use crate::packet_id::PacketId;
use crate::properties::Properties;
use crate::property::Carrier;
use crate::reader::Reader;
use crate::reason::ReasonCode;
use crate::version::Version;

/// Which of the four acknowledgements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AckKind {
    /// Answer to QoS 1.
    PubAck,
    /// First answer to QoS 2.
    PubRec,
    /// Answer to PUBREC.
    PubRel,
    /// Answer to PUBREL.
    PubComp,
}

impl AckKind {
    /// All four, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::PubAck, Self::PubRec, Self::PubRel, Self::PubComp];

    /// The packet type.
    #[inline]
    pub const fn packet_type(self) -> PacketType {
        match self {
            Self::PubAck => PacketType::PubAck,
            Self::PubRec => PacketType::PubRec,
            Self::PubRel => PacketType::PubRel,
            Self::PubComp => PacketType::PubComp,
        }
    }
}

/// An acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack<'a> {
    /// The packet it answers.
    pub packet_id: PacketId,
    /// The outcome; always success before MQTT 5.
    pub reason: ReasonCode,
    /// Empty before MQTT 5.
    pub properties: Properties<'a>,
}

impl<'a> Ack<'a> {
    /// "All is well", without properties.
    #[inline]
    pub const fn success(packet_id: PacketId) -> Self {
        Self::with_reason(packet_id, ReasonCode::SUCCESS)
    }

    /// An outcome without properties.
    #[inline]
    pub const fn with_reason(packet_id: PacketId, reason: ReasonCode) -> Self {
        Self { packet_id, reason, properties: Properties::EMPTY }
    }

    /// Reads a body.
    #[inline]
    pub fn decode(version: Version, kind: AckKind, body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let packet_id = reader.packet_id()?;
        if reader.is_empty() {
            return Ok(Self::success(packet_id));
        }
        match version {
            Version::V31 | Version::V311 => Err(DecodeError::TrailingBytes),
            Version::V5 => Self::decode_outcome(packet_id, kind.packet_type(), reader),
        }
    }

    fn decode_outcome(
        packet_id: PacketId,
        packet_type: PacketType,
        mut reader: Reader<'a>,
    ) -> Result<Self, DecodeError> {
        let reason = reader.reason(packet_type)?;
        // A body of three bytes has no property length [§3.4.2.2.1].
        let properties = reader.optional_properties(packet_type)?;
        Ok(Self { packet_id, reason, properties })
    }

    /// Appends the packet as `kind`, in the shortest form.
    ///
    /// Before MQTT 5 a failing PUBACK or PUBREC is refused, because without its reason it would say
    /// the opposite. PUBREL and PUBCOMP are written without theirs: 3.x answers an unknown packet
    /// id with a plain PUBCOMP.
    pub fn encode(
        &self,
        kind: AckKind,
        version: Version,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let packet_type = kind.packet_type();
        let Self { packet_id, reason, properties } = *self;
        reason.check_legal_in(packet_type)?;
        let short =
            version != Version::V5 || (reason == ReasonCode::SUCCESS && properties.is_empty());
        if short {
            let is_answer = matches!(kind, AckKind::PubAck | AckKind::PubRec);
            if is_answer && reason.is_error() {
                return Err(EncodeError::ReasonNotInVersion { packet_type, reason, version });
            }
            let [high, low] = packet_id.get().to_be_bytes();
            out.extend_from_slice(&[packet_type.first_byte(), 2, high, low]);
            return Ok(());
        }
        frame::put(packet_type, out, |out| {
            out.extend_from_slice(&packet_id.get().to_be_bytes());
            out.push(reason.0);
            if properties.is_empty() {
                return Ok(());
            }
            properties.put(version, Carrier::Packet(packet_type), out)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: WIRE-05
    #[test]
    fn a_failure_is_never_written_as_a_success_for_an_older_peer() {
        let failed = Ack::with_reason(PacketId::MIN, ReasonCode::NOT_AUTHORIZED);
        for version in [Version::V31, Version::V311] {
            for kind in [AckKind::PubAck, AckKind::PubRec] {
                let mut out = vec![9];
                let refused = failed.encode(kind, version, &mut out);
                assert!(matches!(refused, Err(EncodeError::ReasonNotInVersion { .. })));
                assert_eq!(out, [9]);
            }
        }
    }

    // req: WIRE-05
    #[test]
    fn an_unknown_packet_id_is_completed_plainly_for_an_older_peer() {
        let mut out = Vec::new();
        Ack::with_reason(PacketId::MIN, ReasonCode::PACKET_ID_NOT_FOUND)
            .encode(AckKind::PubComp, Version::V311, &mut out)
            .unwrap();
        assert_eq!(out, [0x70, 2, 0, 1]);
    }
}
