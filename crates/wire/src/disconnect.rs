//! DISCONNECT (§3.14): the last packet of a connection.

use crate::error::{DecodeError, EncodeError};
use crate::frame::{self, PacketType};
use crate::properties::Properties;
use crate::property::Carrier;
use crate::reader::Reader;
use crate::reason::ReasonCode;
use crate::version::Version;

const TYPE: PacketType = PacketType::Disconnect;

/// Goodbye, and in MQTT 5 why. Only MQTT 5 servers send it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disconnect<'a> {
    /// Why; always success (normal disconnection) before MQTT 5.
    pub reason: ReasonCode,
    /// Empty before MQTT 5.
    pub properties: Properties<'a>,
}

impl<'a> Disconnect<'a> {
    /// A reason without properties.
    pub const fn with_reason(reason: ReasonCode) -> Self {
        Self { reason, properties: Properties::EMPTY }
    }

    /// Reads a body.
    pub fn decode(version: Version, body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        if reader.is_empty() {
            return Ok(Self::with_reason(ReasonCode::SUCCESS));
        }
        if version != Version::V5 {
            return Err(DecodeError::TrailingBytes);
        }
        let reason = reader.reason(TYPE)?;
        let properties = reader.optional_properties(TYPE)?;
        Ok(Self { reason, properties })
    }

    /// Appends the packet in its shortest form.
    ///
    /// Before MQTT 5 only a normal disconnection exists; any other reason is a close without words.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let Self { reason, properties } = *self;
        reason.check_legal_in(TYPE)?;
        if version != Version::V5 && reason != ReasonCode::SUCCESS {
            return Err(EncodeError::ReasonNotInVersion { packet_type: TYPE, reason, version });
        }
        frame::put(TYPE, out, |out| {
            let nothing_to_say = reason == ReasonCode::SUCCESS && properties.is_empty();
            if version != Version::V5 || nothing_to_say {
                return Ok(());
            }
            out.push(reason.0);
            if properties.is_empty() {
                return Ok(());
            }
            properties.put(version, Carrier::Packet(TYPE), out)
        })
    }
}
