//! A committed message as the state holds it.
//!
//! One publish makes one `Message`; the record, every delivery, every backlog and the retained
//! index share it. Where bytes live is decided once: a part that is large beside its entry is a
//! slice of the entry, a small one is copied out. Otherwise a hundred bytes waiting for a client
//! that never returns would keep sixty-four kilobytes of neighbours in memory.

use bytes::Bytes;
use quantumqtt_wire::QoS;

/// A slice may keep an entry alive that is at most this many times its own size.
const PINNED_FACTOR: usize = 4;

/// A committed message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its place in the partition's message log.
    pub offset: u64,
    /// The entry time at which it was committed.
    pub accepted_ms: u64,
    /// Its message expiry, counted from then.
    pub expiry_s: Option<u32>,
    /// At which `QoS` it was published.
    pub qos: QoS,
    /// Where to.
    pub topic: Box<str>,
    /// The publish properties in forwardable form: no expiry, no alias, no subscription ids.
    pub properties: Bytes,
    /// What.
    pub payload: Bytes,
}

impl Message {
    /// What it weighs against limits: the bytes a client sees.
    pub fn weight_bytes(&self) -> u64 {
        (self.topic.len() + self.properties.len() + self.payload.len()) as u64
    }

    /// When it expires, if ever.
    pub fn expires_at_ms(&self) -> Option<u64> {
        let expiry_ms = u64::from(self.expiry_s?) * 1000;
        Some(self.accepted_ms.saturating_add(expiry_ms))
    }

    /// Whether its time is over. At the moment of its commit it never is: who is there gets it,
    /// even with an expiry of zero.
    pub fn is_expired(&self, now_ms: u64) -> bool {
        now_ms > self.accepted_ms && self.expires_at_ms().is_some_and(|at_ms| at_ms <= now_ms)
    }

    /// What is left of its expiry, as it is forwarded [MQTT-3.3.2-6].
    pub fn remaining_s(&self, now_ms: u64) -> Option<u32> {
        let waited_s = now_ms.saturating_sub(self.accepted_ms) / 1000;
        let waited_s = u32::try_from(waited_s).unwrap_or(u32::MAX);
        self.expiry_s.map(|expiry_s| expiry_s.saturating_sub(waited_s))
    }
}

/// Keeps `part`, a piece of `entry`, beyond the entry's life: shared if large, copied if small.
pub(crate) fn keep_part(entry: &Bytes, part: &[u8]) -> Bytes {
    if part.is_empty() {
        Bytes::new()
    } else if part.len() * PINNED_FACTOR >= entry.len() {
        entry.slice_ref(part)
    } else {
        Bytes::copy_from_slice(part)
    }
}

#[cfg(test)]
mod tests {
    use super::{Message, keep_part};
    use bytes::Bytes;
    use quantumqtt_wire::QoS;

    fn message(expiry_s: Option<u32>) -> Message {
        Message {
            offset: 0,
            accepted_ms: 1_000,
            expiry_s,
            qos: QoS::AtLeastOnce,
            topic: "t".into(),
            properties: Bytes::new(),
            payload: Bytes::new(),
        }
    }

    #[test]
    fn small_parts_do_not_keep_their_entry_alive() {
        let entry = Bytes::from(vec![7_u8; 1000]);
        let small = keep_part(&entry, &entry[10..20]);
        let large = keep_part(&entry, &entry[0..900]);
        assert_eq!(small, entry.slice(10..20));
        assert_ne!(small.as_ptr(), entry[10..].as_ptr());
        assert_eq!(large.as_ptr(), entry.as_ptr());
    }

    #[test]
    fn remaining_time_shrinks_and_stops_at_zero() {
        let limited = message(Some(10));
        assert_eq!(limited.remaining_s(1_000), Some(10));
        assert_eq!(limited.remaining_s(4_999), Some(7));
        assert_eq!(limited.remaining_s(u64::MAX), Some(0));
        assert!(!limited.is_expired(10_999));
        assert!(limited.is_expired(11_000));
        assert!(!message(None).is_expired(u64::MAX));
        assert!(!message(Some(0)).is_expired(1_000), "whoever is there now gets it");
        assert!(message(Some(0)).is_expired(1_001));
    }
}
