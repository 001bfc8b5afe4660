//! What waits for one session: accepted messages its window or its absence keeps back.
//!
//! Order is the order of commitment and nothing ever overtakes (SES-22). Only `QoS` 1 and 2 wait
//! here; `QoS` 0 is sent at once or not at all. Messages are shared, so a message that waits for a
//! thousand sessions is in memory once, and its weight counts against each session's bound.
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

/// See the head of this file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Backlog {
    waiting: VecDeque<Delivery>,
    weight_bytes: u64,
    /// No waiting message expires before this; spares the search when nothing can have.
    earliest_expiry_ms: Option<u64>,
}

impl Backlog {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The sum of the waiting messages' weights.
    pub(crate) fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Delivery> {
        self.waiting.iter()
    }

    /// All of it, oldest first; for a session that is no more.
    pub(crate) fn into_deliveries(self) -> impl Iterator<Item = Delivery> {
        self.waiting.into_iter()
    }

    /// Whether `delivery` fits under both bounds.
    pub(crate) fn fits(&self, delivery: &Delivery, count_max: u32, bytes_max: u64) -> bool {
        self.waiting.len() < count_max as usize
            && self.weight_bytes.saturating_add(delivery.message.weight_bytes()) <= bytes_max
    }

    pub(crate) fn push(&mut self, delivery: Delivery) {
        self.weight_bytes += delivery.message.weight_bytes();
        if let Some(at_ms) = delivery.message.expires_at_ms() {
            let earliest_ms = self.earliest_expiry_ms.unwrap_or(u64::MAX);
            self.earliest_expiry_ms = Some(earliest_ms.min(at_ms));
        }
        self.waiting.push_back(delivery);
    }

    /// The oldest message, expired or not.
    pub(crate) fn pop(&mut self) -> Option<Delivery> {
        let delivery = self.waiting.pop_front()?;
        self.weight_bytes -= delivery.message.weight_bytes();
        if self.waiting.is_empty() {
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
        let before = self.waiting.len();
        self.waiting.retain(|delivery| !delivery.message.is_expired(now_ms));
        self.weight_bytes = self.weigh();
        self.earliest_expiry_ms =
            self.waiting.iter().filter_map(|delivery| delivery.message.expires_at_ms()).min();
        (before - self.waiting.len()) as u64
    }

    fn weigh(&self) -> u64 {
        self.waiting.iter().map(|delivery| delivery.message.weight_bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use quantumqtt_wire::QoS;

    use super::{Backlog, Delivery};
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
}
