//! A publisher's packets, encoded once and sent again and again.
//!
//! A block is a row of equal copies of one PUBLISH. To send `n` messages, the parts that differ are
//! patched in the first `n` copies (stamp, packet id, digits of a rotating topic) and the bytes
//! leave in one write; no payload is copied twice. A block is refilled only when all of it has
//! left, so a partial write needs no bookkeeping but a cursor.

use quantumqtt_wire::{EncodeError, EncodedPublish, PacketId, Properties, Publish, QoS, Version};

use crate::stamp::{STAMP_BYTES, Stamp};

/// Digits of a rotating topic's last level; constant, so that all copies have one length.
const TOPIC_DIGITS: usize = 7;

/// How the packets of one publisher look.
pub(crate) struct Pattern<'a> {
    pub(crate) version: Version,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    /// Without the level that [`rotating_topic`] appends.
    pub(crate) topic: &'a str,
    /// How many topics to rotate over; with one, nothing is appended.
    pub(crate) topics: u32,
    pub(crate) payload_bytes: usize,
}

/// The row of copies, and how much of it is on its way.
pub(crate) struct Block {
    bytes: Vec<u8>,
    packet_bytes: usize,
    encoded: EncodedPublish,
    stamp_at: Option<usize>,
    digits_at: Option<usize>,
    /// End of the patched packets.
    filled: usize,
    /// End of what has left.
    written: usize,
}

/// A topic of a publisher that rotates over several.
pub(crate) fn rotating_topic(topic: &str, number: u32) -> String {
    format!("{topic}/{number:0TOPIC_DIGITS$}")
}

impl Block {
    /// Encodes as many copies as fit into `bytes_max`, at least one and at most `copies_max`.
    pub(crate) fn new(
        pattern: &Pattern<'_>,
        bytes_max: usize,
        copies_max: usize,
    ) -> Result<Self, EncodeError> {
        let rotates = pattern.topics > 1;
        let rotating = rotates.then(|| rotating_topic(pattern.topic, 0));
        let topic = rotating.as_deref().unwrap_or(pattern.topic);
        let payload = filler(pattern.payload_bytes);
        let publish = Publish {
            dup: false,
            qos: pattern.qos,
            retain: pattern.retain,
            topic,
            packet_id: (pattern.qos > QoS::AtMostOnce).then_some(PacketId::MIN),
            properties: Properties::EMPTY,
            payload: &payload,
        };
        let mut packet = Vec::new();
        let encoded = publish.encode(pattern.version, &mut packet)?;
        let packet_bytes = packet.len();
        let payload_at = packet_bytes - payload.len();
        let properties_bytes = usize::from(pattern.version == Version::V5);
        let id_bytes = if encoded.packet_id_at.is_some() { 2 } else { 0 };
        let topic_end = payload_at - properties_bytes - id_bytes;
        let copies = (bytes_max / packet_bytes).clamp(1, copies_max.max(1));
        Ok(Self {
            bytes: packet.repeat(copies),
            packet_bytes,
            encoded,
            stamp_at: (payload.len() >= STAMP_BYTES).then_some(payload_at),
            digits_at: rotates.then(|| topic_end - TOPIC_DIGITS),
            filled: 0,
            written: 0,
        })
    }

    /// How many messages one round can carry.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.len() / self.packet_bytes
    }

    /// Begins a round; everything of the last one must have left.
    #[inline]
    pub(crate) fn begin_round(&mut self) {
        debug_assert_eq!(self.written, self.filled, "the last round has not left");
        self.filled = 0;
        self.written = 0;
    }

    /// Adds a message to the round. Ask [`Self::capacity`] first.
    #[inline]
    pub(crate) fn push(&mut self, stamp: Stamp, packet_id: Option<PacketId>, topic: u32) {
        let end = self.filled + self.packet_bytes;
        let packet = &mut self.bytes[self.filled..end];
        if let Some(at) = self.stamp_at {
            packet[at..at + STAMP_BYTES].copy_from_slice(&stamp.to_bytes());
        }
        if let Some(packet_id) = packet_id {
            self.encoded.patch_packet_id(packet_id, packet);
        }
        if let Some(at) = self.digits_at {
            write_digits(topic, &mut packet[at..at + TOPIC_DIGITS]);
        }
        self.filled = end;
    }

    /// What is yet to leave; one packet at most if `one_packet`.
    #[inline]
    pub(crate) fn unwritten(&self, one_packet: bool) -> &[u8] {
        let end = if one_packet {
            let packet_end = (self.written / self.packet_bytes + 1) * self.packet_bytes;
            packet_end.min(self.filled)
        } else {
            self.filled
        };
        &self.bytes[self.written..end]
    }

    /// Notes that `bytes` more have left.
    #[inline]
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.written += bytes;
        debug_assert!(self.written <= self.filled, "more left than there was");
    }
}

fn write_digits(number: u32, digits: &mut [u8]) {
    let mut rest = number;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

/// Printable bytes that do not repeat within a line of a dump; what follows the stamp.
pub(crate) fn filler(bytes: usize) -> Vec<u8> {
    (b'!'..=b'~').cycle().take(bytes).collect()
}

#[cfg(test)]
mod tests {
    use quantumqtt_wire::frame;

    use super::*;

    fn pattern(version: Version, qos: QoS, topics: u32) -> Pattern<'static> {
        Pattern { version, qos, retain: false, topic: "a/b", topics, payload_bytes: 40 }
    }

    fn stamp(sequence: u64) -> Stamp {
        Stamp { run: 7, stream: 1, sequence, sent_ns: 99 }
    }

    #[test]
    fn every_copy_decodes_to_its_own_message() {
        for version in Version::ALL {
            for (qos, topics) in [(QoS::AtMostOnce, 1), (QoS::ExactlyOnce, 100)] {
                let mut block = Block::new(&pattern(version, qos, topics), 1000, 3).unwrap();
                assert_eq!(block.capacity(), 3);
                let has_id = qos > QoS::AtMostOnce;
                block.begin_round();
                for number in 0..3_u16 {
                    let id = PacketId::new(number + 1).filter(|_| has_id);
                    block.push(stamp(u64::from(number)), id, u32::from(number) + 41);
                }
                let mut rest = block.unwritten(false);
                for number in 0..3_u16 {
                    let found = frame::peek(rest, 1000).unwrap().unwrap();
                    let body = found.body(rest).unwrap();
                    let publish = Publish::decode(version, found.flags, body).unwrap();
                    let topic = format!("a/b/{:07}", number + 41);
                    assert_eq!(publish.topic, if topics > 1 { &topic } else { "a/b" });
                    assert_eq!(publish.packet_id.map(PacketId::get), has_id.then_some(number + 1));
                    let stamped = Stamp::from_payload(publish.payload);
                    assert_eq!(stamped, Some(stamp(u64::from(number))));
                    rest = &rest[found.total()..];
                }
                assert!(rest.is_empty());
            }
        }
    }

    #[test]
    fn one_packet_at_a_time_even_after_a_partial_write() {
        let mut block = Block::new(&pattern(Version::V311, QoS::AtMostOnce, 1), 1000, 2).unwrap();
        let packet_bytes = block.packet_bytes;
        block.begin_round();
        block.push(stamp(0), None, 0);
        block.push(stamp(1), None, 0);
        block.advance(5);
        assert_eq!(block.unwritten(true).len(), packet_bytes - 5);
        assert_eq!(block.unwritten(false).len(), 2 * packet_bytes - 5);
        block.advance(packet_bytes - 5);
        assert_eq!(block.unwritten(true).len(), packet_bytes);
        block.advance(packet_bytes);
        assert!(block.unwritten(true).is_empty());
    }

    #[test]
    fn a_packet_larger_than_the_block_still_has_its_copy() {
        let block = Block::new(&pattern(Version::V311, QoS::AtMostOnce, 1), 10, 100).unwrap();
        assert_eq!(block.capacity(), 1);
    }
}
