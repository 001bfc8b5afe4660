//! SUBACK (§3.9): one code per filter of the SUBSCRIBE it answers.

use crate::error::{DecodeError, EncodeError};
use crate::frame::{self, PacketType};
use crate::packet_id::PacketId;
use crate::properties::Properties;
use crate::property::Carrier;
use crate::reader::Reader;
use crate::reason::ReasonCode;
use crate::version::Version;

const TYPE: PacketType = PacketType::SubAck;

/// The failure code of 3.1.1, and the lowest failure of MQTT 5.
const FAILURE: u8 = 0x80;

/// What became of each filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubAck<'a> {
    /// The SUBSCRIBE it answers.
    pub packet_id: PacketId,
    /// Empty before MQTT 5.
    pub properties: Properties<'a>,
    /// One reason code per filter, in order: 0 to 2 granted, 0x80 and above refused.
    pub codes: &'a [u8],
}

impl<'a> SubAck<'a> {
    /// Reads a body.
    pub fn decode(version: Version, body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let packet_id = reader.packet_id()?;
        let properties = Properties::read(version, Carrier::Packet(TYPE), &mut reader)?;
        let suback = Self { packet_id, properties, codes: reader.rest() };
        suback.check_codes(version)?;
        Ok(suback)
    }

    fn check_codes(&self, version: Version) -> Result<(), DecodeError> {
        if self.codes.is_empty() {
            return Err(DecodeError::NoReasonCodes);
        }
        let legal = |code: u8| match version {
            Version::V31 => code <= 2,
            Version::V311 => code <= 2 || code == FAILURE,
            Version::V5 => ReasonCode(code).legal_in(TYPE),
        };
        match self.codes.iter().find(|code| !legal(**code)) {
            None => Ok(()),
            Some(&code) => {
                Err(DecodeError::IllegalReason { packet_type: TYPE, reason: ReasonCode(code) })
            }
        }
    }

    /// Appends the packet.
    ///
    /// 3.1.1 knows one failure, 0x80, and every failure is written as that. 3.1 knows none: a
    /// refused filter cannot be said, and the caller closes instead.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.check_codes(Version::V5)?;
        frame::put(TYPE, out, |out| {
            out.extend_from_slice(&self.packet_id.get().to_be_bytes());
            self.properties.put(version, Carrier::Packet(TYPE), out)?;
            match version {
                Version::V31 => {
                    self.refuse_failures(version)?;
                    out.extend_from_slice(self.codes);
                }
                Version::V311 => out.extend(self.codes.iter().map(|&code| code.min(FAILURE))),
                Version::V5 => out.extend_from_slice(self.codes),
            }
            Ok(())
        })
    }

    fn refuse_failures(&self, version: Version) -> Result<(), EncodeError> {
        match self.codes.iter().find(|code| ReasonCode(**code).is_error()) {
            None => Ok(()),
            Some(&code) => Err(EncodeError::ReasonNotInVersion {
                packet_type: TYPE,
                reason: ReasonCode(code),
                version,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: SubAck<'static> =
        SubAck { packet_id: PacketId::MIN, properties: Properties::EMPTY, codes: &[1, 0x87, 0x8F] };

    // req: WIRE-05
    #[test]
    fn every_failure_is_0x80_in_3_1_1() {
        let mut out = Vec::new();
        REFUSED.encode(Version::V311, &mut out).unwrap();
        assert_eq!(out, [0x90, 5, 0, 1, 1, 0x80, 0x80]);
    }

    // req: WIRE-04
    #[test]
    fn a_failure_cannot_be_said_in_3_1() {
        let mut out = vec![9];
        let refused = REFUSED.encode(Version::V31, &mut out);
        assert!(matches!(refused, Err(EncodeError::ReasonNotInVersion { .. })));
        assert_eq!(out, [9]);
        assert!(SubAck::decode(Version::V31, &[0, 1, 0x80]).is_err());
    }
}
