//! UNSUBACK (§3.11): in MQTT 5 one code per filter, before that only the packet id.

use crate::error::{DecodeError, EncodeError};
use crate::frame::{self, PacketType};
use crate::packet_id::PacketId;
use crate::properties::Properties;
use crate::property::Carrier;
use crate::reader::Reader;
use crate::reason::ReasonCode;
use crate::version::Version;

const TYPE: PacketType = PacketType::UnsubAck;

/// The subscriptions are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnsubAck<'a> {
    /// The UNSUBSCRIBE it answers.
    pub packet_id: PacketId,
    /// Empty before MQTT 5.
    pub properties: Properties<'a>,
    /// One reason code per filter, in order. Empty before MQTT 5, and left out when written there.
    pub codes: &'a [u8],
}

impl<'a> UnsubAck<'a> {
    /// Reads a body.
    pub fn decode(version: Version, body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let packet_id = reader.packet_id()?;
        let properties = Properties::read(version, Carrier::Packet(TYPE), &mut reader)?;
        let unsuback = Self { packet_id, properties, codes: reader.rest() };
        match version {
            Version::V31 | Version::V311 => reader.finish()?,
            Version::V5 => unsuback.check_codes()?,
        }
        Ok(unsuback)
    }

    fn check_codes(&self) -> Result<(), DecodeError> {
        if self.codes.is_empty() {
            return Err(DecodeError::NoReasonCodes);
        }
        self.codes.iter().try_for_each(|&code| ReasonCode(code).check_legal_in(TYPE))
    }

    /// Appends the packet.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if version == Version::V5 {
            self.check_codes()?;
        }
        frame::put(TYPE, out, |out| {
            out.extend_from_slice(&self.packet_id.get().to_be_bytes());
            self.properties.put(version, Carrier::Packet(TYPE), out)?;
            if version == Version::V5 {
                out.extend_from_slice(self.codes);
            }
            Ok(())
        })
    }
}
