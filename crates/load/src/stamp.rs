//! What every checked payload begins with: whose message it is, which one, and when it left.
//!
//! Twenty-four bytes, big endian: run (4), stream (4), sequence (8), nanoseconds since the run
//! began (8). A *stream* is one publisher on one topic, the unit for which MQTT promises order
//! [MQTT-4.6.0-6]; its messages are numbered from 0 without gaps. The run number tells our messages
//! from those of another generator, or of an earlier one, on the same topic.

/// Bytes of a stamp, and so the least size of a checked payload.
pub const STAMP_BYTES: usize = 24;

/// The stamp of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) run: u32,
    pub(crate) stream: u32,
    pub(crate) sequence: u64,
    /// Open loop: when the message was due, not when it left, so that waiting in the generator
    /// counts as latency ("coordinated omission" is what happens otherwise).
    pub(crate) sent_ns: u64,
}

impl Stamp {
    #[inline]
    pub(crate) fn to_bytes(self) -> [u8; STAMP_BYTES] {
        let mut bytes = [0; STAMP_BYTES];
        bytes[..4].copy_from_slice(&self.run.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.stream.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[16..].copy_from_slice(&self.sent_ns.to_be_bytes());
        bytes
    }

    /// The stamp at the start of a payload; `None` when it is too short for one.
    #[inline]
    pub(crate) fn from_payload(payload: &[u8]) -> Option<Self> {
        let (run, rest) = payload.split_first_chunk()?;
        let (stream, rest) = rest.split_first_chunk()?;
        let (sequence, rest) = rest.split_first_chunk()?;
        let (sent_ns, _) = rest.split_first_chunk()?;
        Some(Self {
            run: u32::from_be_bytes(*run),
            stream: u32::from_be_bytes(*stream),
            sequence: u64::from_be_bytes(*sequence),
            sent_ns: u64::from_be_bytes(*sent_ns),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_survives_the_wire_and_needs_all_its_bytes() {
        let stamp = Stamp { run: 1, stream: 0x0203_0405, sequence: u64::MAX - 1, sent_ns: 7 << 40 };
        let mut payload = stamp.to_bytes().to_vec();
        payload.extend_from_slice(b"padding");
        assert_eq!(Stamp::from_payload(&payload), Some(stamp));
        assert_eq!(Stamp::from_payload(&payload[..STAMP_BYTES]), Some(stamp));
        assert_eq!(Stamp::from_payload(&payload[..STAMP_BYTES - 1]), None);
    }
}
