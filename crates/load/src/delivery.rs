//! The few fields of an inbound PUBLISH that matter here, found without judging the rest.
//!
//! A generator must cost less than the broker it measures, so the topic is skipped, not validated:
//! brokers are tested for well-formed packets elsewhere.

use quantumqtt_wire::{QoS, Version, varint};

/// A message that arrived.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Delivery<'a> {
    pub(crate) qos: QoS,
    /// 0 at QoS 0.
    pub(crate) packet_id: u16,
    pub(crate) payload: &'a [u8],
}

impl<'a> Delivery<'a> {
    /// Finds the payload; `None` when lengths do not add up.
    #[inline]
    pub(crate) fn find(version: Version, flags: u8, body: &'a [u8]) -> Option<Self> {
        let qos = QoS::from_bits(flags >> 1 & 0b11)?;
        let (topic_bytes, rest) = body.split_first_chunk()?;
        let mut rest = rest.get(usize::from(u16::from_be_bytes(*topic_bytes))..)?;
        let mut packet_id = 0;
        if qos > QoS::AtMostOnce {
            let (id, after) = rest.split_first_chunk()?;
            packet_id = u16::from_be_bytes(*id);
            rest = after;
        }
        if version == Version::V5 {
            let (bytes, taken) = varint::read(rest).ok()??;
            rest = rest.get(taken + bytes as usize..)?;
        }
        Some(Self { qos, packet_id, payload: rest })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use quantumqtt_wire::{PacketId, Properties, Publish, frame};

    use super::*;

    proptest! {
        #[test]
        fn it_agrees_with_the_whole_decoder(
            topic in "[a-z/]{1,200}",
            payload in proptest::collection::vec(any::<u8>(), 0..100),
            qos in 0_u8..3,
            version in proptest::sample::select(&Version::ALL[..]),
        ) {
            let qos = QoS::from_bits(qos).unwrap();
            let packet_id = (qos > QoS::AtMostOnce).then(|| PacketId::new(77).unwrap());
            let publish = Publish {
                dup: false, qos, retain: false, topic: &topic, packet_id,
                properties: Properties::EMPTY, payload: &payload,
            };
            let mut packet = Vec::new();
            publish.encode(version, &mut packet).unwrap();
            let frame = frame::peek(&packet, 1 << 20).unwrap().unwrap();
            let body = frame.body(&packet).unwrap();
            let found = Delivery::find(version, frame.flags, body).unwrap();
            let expected_id = if qos > QoS::AtMostOnce { 77 } else { 0 };
            prop_assert_eq!(found.qos, qos);
            prop_assert_eq!((found.packet_id, found.payload), (expected_id, &payload[..]));
        }

        #[test]
        fn it_survives_anything(
            bytes in proptest::collection::vec(any::<u8>(), 0..40), flags in 0_u8..16,
        ) {
            for version in Version::ALL {
                if let Some(found) = Delivery::find(version, flags, &bytes) {
                    prop_assert!(found.payload.len() <= bytes.len());
                }
            }
        }
    }
}
