//! What waits for one session: accepted messages its window or its absence keeps back.
//!
//! Order is the order of commitment and nothing ever overtakes (SES-22). Only `QoS` 1 and 2 wait
//! here; `QoS` 0 is sent at once or not at all. Messages are shared, so a message that waits for a
//! thousand sessions is in memory once, and its weight counts against each session's bound.
//!
//! The queue is a row of blocks behind shared pointers, so a copy of a backlog shares all of its
//! blocks and a later change copies the one block it touches: a checkpoint that finds a million
//! messages waiting must not stop the partition while it copies them.
//!
//! An expired message is never sent: it falls out when it would be taken, and before a backlog is
//! called full. Between the two it still counts, so a bound errs on the safe side.

use std::collections::VecDeque;
use std::sync::Arc;

use quantumqtt_wire::QoS;

use crate::effect::SubscriptionIds;
use crate::message::Message;

/// The share group a message came by: what it takes to hand it to another member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Share {
    /// The filter as its members write it, `$share/…` included.
    pub(crate) filter: Arc<str>,
    /// The publisher's retain flag, which the next member may want to see.
    pub(crate) retain: bool,
    /// So many members could not be sent it, because they may not read it.
    pub(crate) declined: u32,
}

/// A message on its way to one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) message: Arc<Message>,
    /// The smaller of the publisher's and the subscriber's.
    pub(crate) qos: QoS,
    /// The retain flag to send.
    pub(crate) retain: bool,
    pub(crate) subscription_ids: SubscriptionIds,
    /// None for a subscription of the session's own.
    pub(crate) share: Option<Share>,
}

impl Delivery {
    pub(crate) fn new(message: Arc<Message>, qos: QoS, retain: bool) -> Self {
        Self { message, qos, retain, subscription_ids: SubscriptionIds::new(), share: None }
    }

    pub(crate) fn is_exactly_once(&self) -> bool {
        self.qos == QoS::ExactlyOnce
    }

    /// How large its PUBLISH is at protocol `level`, to the byte.
    pub(crate) fn packet_bytes(&self, level: u8) -> u64 {
        let has_packet_id = self.qos != QoS::AtMostOnce;
        let body = 2 + self.message.topic.len() + if has_packet_id { 2 } else { 0 };
        let body = body + self.message.payload.len();
        let body = if level >= 5 { body + self.properties_bytes() } else { body };
        (1 + varint_bytes(body) + body) as u64
    }

    fn properties_bytes(&self) -> usize {
        let expiry = if self.message.expiry_s.is_some() { 5 } else { 0 };
        let ids: usize =
            self.subscription_ids.iter().map(|&id| 1 + varint_bytes(id as usize)).sum();
        let properties = self.message.properties.len() + expiry + ids;
        varint_bytes(properties) + properties
    }
}

/// Bytes of an MQTT variable byte integer; four at most, whatever the value.
fn varint_bytes(value: usize) -> usize {
    match value {
        0..=0x7f => 1,
        0x80..=0x3fff => 2,
        0x4000..=0x001f_ffff => 3,
        _ => 4,
    }
}

/// Messages of one block: what the first change after a copy has to copy at most.
const BLOCK_COUNT_MAX: usize = 256;

/// See the head of this file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Backlog {
    /// None of them is empty.
    blocks: VecDeque<Arc<VecDeque<Delivery>>>,
    count: usize,
    weight_bytes: u64,
    /// No waiting message expires before this; spares the search when nothing can have.
    earliest_expiry_ms: Option<u64>,
}

/// A place in a backlog that does not change while it is walked.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BacklogPlace {
    block: usize,
    within: usize,
}

impl Backlog {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The sum of the waiting messages' weights.
    pub(crate) fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Delivery> {
        self.blocks.iter().flat_map(|block| block.iter())
    }

    /// The message at `place`, which moves on to the next.
    pub(crate) fn walk(&self, place: &mut BacklogPlace) -> Option<&Delivery> {
        let block = self.blocks.get(place.block)?;
        let delivery = block.get(place.within);
        place.within += 1;
        if place.within >= block.len() {
            *place = BacklogPlace { block: place.block + 1, within: 0 };
        }
        delivery
    }

    /// All of it, oldest first; for a session that is no more.
    pub(crate) fn into_deliveries(self) -> impl Iterator<Item = Delivery> {
        self.blocks.into_iter().flat_map(Arc::unwrap_or_clone)
    }

    /// Whether `delivery` fits under both bounds.
    pub(crate) fn fits(&self, delivery: &Delivery, count_max: u32, bytes_max: u64) -> bool {
        self.count < count_max as usize
            && self.weight_bytes.saturating_add(delivery.message.weight_bytes()) <= bytes_max
    }

    pub(crate) fn push(&mut self, delivery: Delivery) {
        self.weight_bytes += delivery.message.weight_bytes();
        self.count += 1;
        if let Some(at_ms) = delivery.message.expires_at_ms() {
            let earliest_ms = self.earliest_expiry_ms.unwrap_or(u64::MAX);
            self.earliest_expiry_ms = Some(earliest_ms.min(at_ms));
        }
        match self.blocks.back_mut().filter(|block| block.len() < BLOCK_COUNT_MAX) {
            Some(block) => Arc::make_mut(block).push_back(delivery),
            None => self.blocks.push_back(Arc::new(VecDeque::from([delivery]))),
        }
    }

    /// The oldest message, expired or not.
    pub(crate) fn pop(&mut self) -> Option<Delivery> {
        let block = Arc::make_mut(self.blocks.front_mut()?);
        let delivery = block.pop_front()?;
        if block.is_empty() {
            self.blocks.pop_front();
        }
        self.weight_bytes -= delivery.message.weight_bytes();
        self.count -= 1;
        if self.count == 0 {
            // An offline burst must not cost its peak memory for the rest of the session's life.
            *self = Self::default();
        }
        Some(delivery)
    }

    /// Drops what has expired and returns how many that were.
    pub(crate) fn drop_expired(&mut self, now_ms: u64) -> u64 {
        if self.earliest_expiry_ms.is_none_or(|at_ms| at_ms > now_ms) {
            return 0;
        }
        let before = self.count;
        let mut left = Self::default();
        for block in std::mem::take(&mut self.blocks) {
            let block = Arc::unwrap_or_clone(block);
            block.into_iter().filter(|d| !d.message.is_expired(now_ms)).for_each(|d| left.push(d));
        }
        *self = left;
        (before - self.count) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use proptest::prelude::*;
    use quantumqtt_wire::{PacketId, Properties, Property, PropertyBlock, Publish, QoS, Version};

    use super::{BLOCK_COUNT_MAX, Backlog, BacklogPlace, Delivery};
    use crate::message::Message;

    fn delivery(payload: &'static [u8], expiry_s: Option<u32>) -> Delivery {
        let message = Message {
            offset: 0,
            accepted_ms: 0,
            expiry_s,
            qos: QoS::AtLeastOnce,
            topic: "abc".into(),
            properties: Bytes::new(),
            payload: Bytes::from_static(payload),
        };
        Delivery::new(Arc::new(message), QoS::AtLeastOnce, false)
    }

    #[test]
    fn expired_messages_give_their_room_back() {
        let mut backlog = Backlog::default();
        backlog.push(delivery(b"12345", Some(1)));
        backlog.push(delivery(b"1", None));
        backlog.push(delivery(b"12", Some(5)));
        assert_eq!(backlog.weight_bytes(), 8 + 4 + 5);
        assert!(!backlog.fits(&delivery(b"", None), 3, 100));
        assert!(!backlog.fits(&delivery(b"", None), 9, 19));
        assert_eq!(backlog.drop_expired(999), 0);
        assert_eq!(backlog.drop_expired(1_000), 1);
        assert_eq!(backlog.weight_bytes(), 4 + 5);
        assert_eq!(backlog.drop_expired(5_000), 1);
        assert_eq!(backlog.len(), 1);
        assert_eq!(backlog.drop_expired(u64::MAX), 0);
    }

    #[test]
    fn a_copy_stays_as_it_was_and_shares_what_did_not_change() {
        let mut backlog = Backlog::default();
        let count = 3 * BLOCK_COUNT_MAX + 5;
        for _ in 0..count {
            backlog.push(delivery(b"x", None));
        }
        let copy = backlog.clone();
        backlog.pop();
        backlog.push(delivery(b"y", Some(1)));
        assert_eq!((copy.len(), copy.iter().count(), backlog.len()), (count, count, count));
        let is_shared = |at: usize| Arc::ptr_eq(&copy.blocks[at], &backlog.blocks[at]);
        assert_eq!([0, 1, 2, 3].map(is_shared), [false, true, true, false]);
        let mut place = BacklogPlace::default();
        let walked = std::iter::from_fn(|| backlog.walk(&mut place)).count();
        assert_eq!(walked, count);
    }

    #[test]
    fn packet_size_is_that_of_the_encoded_packet() {
        let mut delivery = delivery(b"payload", Some(9));
        // Header 2, topic 2 + 3, packet id 2, payload 7.
        assert_eq!(delivery.packet_bytes(4), 16);
        // Property length 1, expiry 5, subscription id 300 as 1 + 2.
        delivery.subscription_ids.push(300);
        assert_eq!(delivery.packet_bytes(5), 16 + 1 + 5 + 3);
        delivery.qos = QoS::AtMostOnce;
        assert_eq!(delivery.packet_bytes(4), 14);
    }

    /// Around the sizes at which a length takes one byte more.
    fn payload_bytes() -> impl Strategy<Value = usize> {
        prop_oneof![0..300_usize, 16_000..17_000_usize, 2_097_000..2_097_200_usize]
    }

    proptest! {
        // A size judged too small here would be refused further down, with its packet id in flight.
        //
        #[test]
        fn packet_size_is_the_size_on_the_wire(
            topic_bytes in 1..300_usize,
            payload_bytes in payload_bytes(),
            properties in prop::sample::select(vec![&b""[..], b"\x01\x01", b"\x03\x00\x02ab"]),
            expiry_s in proptest::option::of(any::<u32>()),
            ids in proptest::collection::vec(1..268_435_455_u32, 0..4),
            qos in prop::sample::select(vec![QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce]),
            level in 3..6_u8,
        ) {
            let message = Message {
                offset: 0,
                accepted_ms: 0,
                expiry_s,
                qos,
                topic: "t".repeat(topic_bytes).into(),
                properties: Bytes::from_static(properties),
                payload: Bytes::from(vec![0; payload_bytes]),
            };
            let mut delivery = Delivery::new(Arc::new(message), qos, false);
            delivery.subscription_ids.extend(ids.iter().copied());
            let mut block = PropertyBlock::new();
            let version = Version::ALL[usize::from(level) - 3];
            if version == Version::V5 {
                Properties::from_forwardable(properties).unwrap().forwardable(&mut block);
                if let Some(expiry_s) = expiry_s {
                    block.push(Property::MessageExpiryInterval(expiry_s)).unwrap();
                }
                for &id in &ids {
                    block.push(Property::SubscriptionId(id)).unwrap();
                }
            }
            let publish = Publish {
                dup: false,
                qos,
                retain: false,
                topic: &delivery.message.topic,
                packet_id: if qos == QoS::AtMostOnce { None } else { PacketId::new(1) },
                properties: block.as_properties(),
                payload: &delivery.message.payload,
            };
            let mut packet = Vec::new();
            publish.encode(version, &mut packet).unwrap();
            prop_assert_eq!(delivery.packet_bytes(level), packet.len() as u64);
        }
    }
}
