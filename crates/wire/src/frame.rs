//! The fixed header: finding where a packet starts and ends (§2.1).
//!
//! A receive buffer is a row of packets, the last one perhaps incomplete. [`peek`] looks at its
//! start and says one of three things: *wait* (all bytes so far are legal), *here is a frame* (its
//! header is complete; the body may still be under way), or *refuse*. Refusals come as early as
//! they can be known: bad flags with the first byte, a bad length with the byte that makes it bad,
//! an oversized body before any of it arrives. `peek` keeps no state; asking again after more bytes
//! came is cheap, since it reads at most five.

use crate::error::{DecodeError, EncodeError};
use crate::varint::{self, VARINT_BYTES_MAX};

/// The fifteen control packets, by their number on the wire (§2.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PacketType {
    /// Client asks to connect.
    Connect = 1,
    /// Server answers CONNECT.
    ConnAck = 2,
    /// A message, either way.
    Publish = 3,
    /// Answer to QoS 1.
    PubAck = 4,
    /// First answer to QoS 2.
    PubRec = 5,
    /// Answer to PUBREC.
    PubRel = 6,
    /// Answer to PUBREL.
    PubComp = 7,
    /// Client asks for messages.
    Subscribe = 8,
    /// Server answers SUBSCRIBE.
    SubAck = 9,
    /// Client wants no more of them.
    Unsubscribe = 10,
    /// Server answers UNSUBSCRIBE.
    UnsubAck = 11,
    /// Client says it is alive.
    PingReq = 12,
    /// Server says so too.
    PingResp = 13,
    /// The last packet.
    Disconnect = 14,
    /// A step of enhanced authentication; MQTT 5 only.
    Auth = 15,
}

impl PacketType {
    /// All types, by number.
    pub const ALL: [Self; 15] = [
        Self::Connect,
        Self::ConnAck,
        Self::Publish,
        Self::PubAck,
        Self::PubRec,
        Self::PubRel,
        Self::PubComp,
        Self::Subscribe,
        Self::SubAck,
        Self::Unsubscribe,
        Self::UnsubAck,
        Self::PingReq,
        Self::PingResp,
        Self::Disconnect,
        Self::Auth,
    ];

    /// The type of four bits, or `None` for 0 and for more than four bits.
    #[inline]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            1 => Self::Connect,
            2 => Self::ConnAck,
            3 => Self::Publish,
            4 => Self::PubAck,
            5 => Self::PubRec,
            6 => Self::PubRel,
            7 => Self::PubComp,
            8 => Self::Subscribe,
            9 => Self::SubAck,
            10 => Self::Unsubscribe,
            11 => Self::UnsubAck,
            12 => Self::PingReq,
            13 => Self::PingResp,
            14 => Self::Disconnect,
            15 => Self::Auth,
            _ => return None,
        })
    }

    /// The flags the standard prescribes; PUBLISH alone uses its own (table 2-2).
    #[inline]
    pub const fn fixed_flags(self) -> u8 {
        match self {
            Self::PubRel | Self::Subscribe | Self::Unsubscribe => 0b0010,
            _ => 0,
        }
    }

    #[inline]
    pub(crate) const fn first_byte(self) -> u8 {
        (self as u8) << 4 | self.fixed_flags()
    }
}

/// A packet found by [`peek`]: what it is and how long, but not yet whether its body arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// What kind of packet.
    pub packet_type: PacketType,
    /// The four low bits of the first byte, already checked against the type.
    pub flags: u8,
    /// Bytes of the fixed header: 2 to 5.
    pub header_bytes: usize,
    /// Bytes after the fixed header: the Remaining Length.
    pub body_bytes: usize,
}

impl Frame {
    /// Bytes of the whole packet.
    #[inline]
    pub const fn total(&self) -> usize {
        self.header_bytes + self.body_bytes
    }

    /// The body inside the buffer `peek` saw, or `None` while it is incomplete.
    #[inline]
    pub fn body<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        bytes.get(self.header_bytes..self.total())
    }
}

/// Looks at the start of `bytes` for a fixed header; `None` means that more bytes are needed.
///
/// A frame is returned as soon as its header is complete. Reserve nothing for `body_bytes`: it is a
/// claim by the peer, and only the limit `packet_bytes_max` has been checked. As everywhere in
/// MQTT, that counts the whole packet, fixed header included [MQTT-3.2.2-15].
#[inline]
pub fn peek(bytes: &[u8], packet_bytes_max: usize) -> Result<Option<Frame>, DecodeError> {
    let Some((&first, rest)) = bytes.split_first() else {
        return Ok(None);
    };
    let (packet_type, flags) = check_first_byte(first)?;
    let Some((body_bytes, length_bytes)) = varint::read(rest)? else {
        return Ok(None);
    };
    let frame = Frame {
        packet_type,
        flags,
        header_bytes: 1 + length_bytes,
        body_bytes: body_bytes as usize,
    };
    if frame.total() > packet_bytes_max {
        let packet_bytes = frame.total();
        return Err(DecodeError::PacketTooLarge { packet_bytes, packet_bytes_max });
    }
    Ok(Some(frame))
}

/// As [`peek`], for a client of MQTT 3.1: it may set DUP on what it sends again, which may be
/// PUBREL, SUBSCRIBE or UNSUBSCRIBE (3.1 §2.1). Later versions reserve that bit, and to us it says
/// nothing we act on.
#[inline]
pub fn peek_v31(bytes: &[u8], packet_bytes_max: usize) -> Result<Option<Frame>, DecodeError> {
    const DUP: u8 = 1 << 3;
    match bytes.first() {
        Some(&first) if matches!(first, 0x6A | 0x8A | 0xAA) => {
            let mut header = [0; 1 + VARINT_BYTES_MAX];
            let seen = bytes.len().min(header.len());
            header[..seen].copy_from_slice(&bytes[..seen]);
            header[0] = first & !DUP;
            peek(&header[..seen], packet_bytes_max)
        }
        _ => peek(bytes, packet_bytes_max),
    }
}

#[inline]
fn check_first_byte(first: u8) -> Result<(PacketType, u8), DecodeError> {
    let (type_bits, flags) = (first >> 4, first & 0x0F);
    let Some(packet_type) = PacketType::from_bits(type_bits) else {
        return Err(DecodeError::ReservedPacketType { packet_type: type_bits });
    };
    if packet_type == PacketType::Publish {
        check_publish_flags(flags)?;
    } else if flags != packet_type.fixed_flags() {
        return Err(DecodeError::ReservedHeaderFlags { packet_type, flags });
    }
    Ok((packet_type, flags))
}

#[inline]
pub(crate) const fn check_publish_flags(flags: u8) -> Result<(), DecodeError> {
    match flags & 0b1110 {
        0b0110 | 0b1110 => Err(DecodeError::QosThree),
        0b1000 => Err(DecodeError::DupAtQosZero),
        _ => Ok(()),
    }
}

/// Appends a packet whose body `write` appends, and takes everything back if that fails.
///
/// The length of the header is known only after the body: room is left for the longest and the
/// surplus closed afterwards. That moves the body once, which small packets never notice; PUBLISH
/// and the acknowledgements know their length beforehand and do not come here.
pub(crate) fn put(
    packet_type: PacketType,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let start = out.len();
    let written = put_with_room(packet_type, out, write);
    if written.is_err() {
        out.truncate(start);
    }
    written
}

fn put_with_room(
    packet_type: PacketType,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    out.push(packet_type.first_byte());
    let length_at = out.len();
    out.extend_from_slice(&[0; VARINT_BYTES_MAX]);
    let body_at = out.len();
    write(out)?;
    let (length, taken) = varint::to_bytes(out.len() - body_at)?;
    out.splice(length_at..body_at, length.into_iter().take(taken));
    Ok(())
}

/// Appends a fixed header for a body of known length.
#[inline]
pub(crate) fn put_header(
    first_byte: u8,
    body_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    if body_bytes > varint::VARINT_MAX as usize {
        return Err(EncodeError::PacketTooLarge { body_bytes });
    }
    out.push(first_byte);
    varint::put(body_bytes, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_LIMIT: usize = usize::MAX;

    // req: WIRE-10
    #[test]
    fn every_first_byte_is_judged_before_a_second_arrives() {
        for first in 0..=u8::MAX {
            let legal = match (first >> 4, first & 0x0F) {
                (0, _) => false,
                (3, flags) => matches!(flags, 0..=5 | 10..=13),
                (6 | 8 | 10, flags) => flags == 0b0010,
                (_, flags) => flags == 0,
            };
            assert_eq!(peek(&[first], NO_LIMIT).is_ok(), legal, "{first:#04x}");
            if legal {
                assert_eq!(peek(&[first], NO_LIMIT), Ok(None));
            }
        }
    }

    // hardening: five-byte-integer
    // req: WIRE-06
    #[test]
    fn a_fifth_length_byte_is_malformed_at_the_fourth() {
        assert_eq!(peek(&[0x30, 0xFF, 0xFF, 0xFF], NO_LIMIT), Ok(None));
        let refused = peek(&[0x30, 0xFF, 0xFF, 0xFF, 0xFF], NO_LIMIT);
        assert_eq!(refused, Err(DecodeError::VarintTooLong));
    }

    #[test]
    fn an_oversized_body_is_refused_before_it_arrives() {
        let header = [0x30, 0xFF, 0xFF, 0xFF, 0x7F];
        let error = peek(&header, 1024).unwrap_err();
        assert_eq!(
            error,
            DecodeError::PacketTooLarge { packet_bytes: 268_435_460, packet_bytes_max: 1024 }
        );
        let at_the_limit = peek(&[0x30, 0xFD, 0x07], 1024).unwrap().unwrap();
        assert_eq!((at_the_limit.header_bytes, at_the_limit.body_bytes), (3, 1021));
        assert!(peek(&[0x30, 0xFE, 0x07], 1024).is_err());
    }

    #[test]
    fn a_failed_body_leaves_the_output_alone() {
        let mut out = vec![1, 2, 3];
        let failed = put(PacketType::Connect, &mut out, |out| {
            out.extend_from_slice(&[9; 40]);
            Err(EncodeError::PacketTooLarge { body_bytes: 0 })
        });
        assert!(failed.is_err());
        assert_eq!(out, [1, 2, 3]);
    }

    #[test]
    fn the_header_closes_up_for_every_length_of_length() {
        for body in [0, 127, 128, 16_383, 16_384, 70_000] {
            let mut out = vec![0xEE];
            put(PacketType::Subscribe, &mut out, |out| {
                out.resize(out.len() + body, 0xAB);
                Ok(())
            })
            .unwrap();
            let frame = peek(&out[1..], NO_LIMIT).unwrap().unwrap();
            assert_eq!(frame.body_bytes, body);
            assert_eq!(frame.total() + 1, out.len());
            assert!(frame.body(&out[1..]).unwrap().iter().all(|&byte| byte == 0xAB));
        }
    }
}
