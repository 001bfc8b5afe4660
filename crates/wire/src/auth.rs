//! AUTH (§3.15): a step of enhanced authentication, MQTT 5 only.
//!
//! The standard both lets a successful AUTH have an empty body and forbids leaving out the method.
//! We take the empty body, and ask for the method in all others.

use crate::error::{DecodeError, EncodeError};
use crate::frame::{self, PacketType};
use crate::properties::Properties;
use crate::property::{Carrier, PropertyId};
use crate::reader::Reader;
use crate::reason::ReasonCode;
use crate::version::Version;

const TYPE: PacketType = PacketType::Auth;

/// One step, in either direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Auth<'a> {
    /// Success, continue, or start over.
    pub reason: ReasonCode,
    /// Method and data.
    pub properties: Properties<'a>,
}

impl<'a> Auth<'a> {
    /// Reads a body.
    pub fn decode(version: Version, body: &'a [u8]) -> Result<Self, DecodeError> {
        if version != Version::V5 {
            return Err(DecodeError::ReservedPacketType { packet_type: TYPE as u8 });
        }
        let mut reader = Reader::new(body);
        if reader.is_empty() {
            return Ok(Self { reason: ReasonCode::SUCCESS, properties: Properties::EMPTY });
        }
        let reason = reader.reason(TYPE)?;
        let properties = reader.optional_properties(TYPE)?;
        let auth = Self { reason, properties };
        auth.check_method()?;
        Ok(auth)
    }

    fn check_method(&self) -> Result<(), DecodeError> {
        if self.properties.contains(PropertyId::AuthenticationMethod) {
            return Ok(());
        }
        Err(DecodeError::AuthenticationMethodMissing)
    }

    /// Appends the packet.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if version != Version::V5 {
            return Err(EncodeError::NotInVersion { packet_type: TYPE, version });
        }
        self.reason.check_legal_in(TYPE)?;
        frame::put(TYPE, out, |out| {
            if self.reason == ReasonCode::SUCCESS && self.properties.is_empty() {
                return Ok(());
            }
            self.check_method()?;
            out.push(self.reason.0);
            self.properties.put(version, Carrier::Packet(TYPE), out)
        })
    }
}
