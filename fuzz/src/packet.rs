//! Invariant: bytes are refused, or they are a packet that can be walked, written and read back.
//!
//! Input: one byte for the version, then one packet and whatever follows it. Reading it never
//! panics and never looks past the frame; what was accepted encodes within its version, and the
//! encoding decodes to an equal packet.

use quantumqtt_wire::{Packet, Version, decode, frame};

use crate::version_of;

/// See the head of this file.
pub fn check(bytes: &[u8]) {
    let Some((&choice, rest)) = bytes.split_first() else { return };
    let version = version_of(choice);
    let Ok(Some(frame)) = frame::peek(rest, usize::MAX) else { return };
    let Some(body) = frame.body(rest) else { return };
    let Ok(packet) = decode(version, &frame, body) else { return };
    walk(&packet);
    let version = match packet {
        Packet::Connect(connect) => connect.version,
        _ => version,
    };
    let again = encode(version, &packet);
    let frame = frame::peek(&again, usize::MAX).expect("our own header").expect("whole");
    let body = frame.body(&again).expect("whole");
    assert_eq!(again.len(), frame.total(), "one packet and nothing behind it");
    assert_eq!(decode(version, &frame, body), Ok(packet), "{version:?} {again:02x?}");
}

pub(crate) fn encode(version: Version, packet: &Packet<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let encoded = packet.encode(version, &mut out);
    assert_eq!(encoded, Ok(()), "what was read can be written: {packet:?}");
    out
}

/// Touch everything a packet holds lazily; returns how much there is.
pub(crate) fn walk(packet: &Packet<'_>) -> usize {
    match packet {
        Packet::Connect(p) => {
            p.properties.iter().count() + p.will.map_or(0, |will| will.properties.iter().count())
        }
        Packet::Subscribe(p) => p.filters.iter().count() + p.properties.iter().count(),
        Packet::Unsubscribe(p) => p.filters.iter().count() + p.properties.iter().count(),
        Packet::ConnAck(p) => p.properties.iter().count(),
        Packet::Publish(p) => p.properties.iter().count(),
        Packet::PubAck(p) | Packet::PubRec(p) | Packet::PubRel(p) | Packet::PubComp(p) => {
            p.properties.iter().count()
        }
        Packet::SubAck(p) => p.properties.iter().count(),
        Packet::UnsubAck(p) => p.properties.iter().count(),
        Packet::Disconnect(p) => p.properties.iter().count(),
        Packet::Auth(p) => p.properties.iter().count(),
        Packet::PingReq | Packet::PingResp => 0,
    }
}
