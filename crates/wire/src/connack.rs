//! CONNACK (§3.2): the server's answer to CONNECT.
//!
//! One vocabulary for all versions: a 3.x return code is read as the reason code it means and a
//! reason code is written as the return code that comes closest ([`ReasonCode::to_v3_connack`]).

use crate::error::{DecodeError, EncodeError};
use crate::frame::{self, PacketType};
use crate::properties::Properties;
use crate::property::Carrier;
use crate::reader::Reader;
use crate::reason::ReasonCode;
use crate::version::Version;

const TYPE: PacketType = PacketType::ConnAck;
const SESSION_PRESENT: u8 = 0b1;

/// Whether the client may stay, and on what terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnAck<'a> {
    /// The server kept the client's session. MQTT 3.1 cannot say it.
    pub session_present: bool,
    /// The outcome.
    pub reason: ReasonCode,
    /// Empty before MQTT 5.
    pub properties: Properties<'a>,
}

impl<'a> ConnAck<'a> {
    /// Reads a body.
    pub fn decode(version: Version, body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let flags = reader.byte("acknowledge flags")?;
        let session_present = match (version, flags) {
            // 3.1 calls the byte unused; what stands in it means nothing.
            (Version::V31, _) | (_, 0) => false,
            (_, SESSION_PRESENT) => true,
            _ => return Err(DecodeError::ReservedConnAckFlags { flags }),
        };
        let reason = match version {
            Version::V5 => reader.reason(TYPE)?,
            Version::V31 | Version::V311 => {
                let code = reader.byte("return code")?;
                let illegal =
                    DecodeError::IllegalReason { packet_type: TYPE, reason: ReasonCode(code) };
                ReasonCode::from_v3_connack(code).ok_or(illegal)?
            }
        };
        let properties = Properties::read(version, Carrier::Packet(TYPE), &mut reader)?;
        reader.finish()?;
        let connack = Self { session_present, reason, properties };
        connack.check()?;
        Ok(connack)
    }

    fn check(&self) -> Result<(), DecodeError> {
        if self.session_present && self.reason != ReasonCode::SUCCESS {
            return Err(DecodeError::SessionPresentOnRefusal);
        }
        Ok(())
    }

    /// Appends the packet.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.reason.check_legal_in(TYPE)?;
        self.check()?;
        frame::put(TYPE, out, |out| {
            let says_session = self.session_present && version != Version::V31;
            out.push(if says_session { SESSION_PRESENT } else { 0 });
            out.push(match version {
                Version::V31 | Version::V311 => self.reason.to_v3_connack(),
                Version::V5 => self.reason.0,
            });
            self.properties.put(version, Carrier::Packet(TYPE), out)
        })
    }
}
