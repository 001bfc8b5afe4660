//! One committed publish, borrowed from wherever it is.

use crate::error::{Error, Result};
use crate::limits::{PAYLOAD_BYTES_MAX, RECORD_BYTES_MAX};

/// By which door a record came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Source {
    /// An MQTT client published it.
    Mqtt = 0,
    /// A work queue.
    Queue = 1,
    /// The SQS-compatible endpoint.
    Sqs = 2,
    /// The will of a client that went away.
    Will = 3,
    /// A connector or job that publishes back.
    Sink = 4,
    /// The broker itself: a fact.
    System = 5,
}

impl Source {
    /// Every source, in the order of its code.
    pub const ALL: [Self; 6] =
        [Self::Mqtt, Self::Queue, Self::Sqs, Self::Will, Self::Sink, Self::System];

    /// The word in the column `source`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Mqtt => "mqtt",
            Self::Queue => "queue",
            Self::Sqs => "sqs",
            Self::Will => "will",
            Self::Sink => "sink",
            Self::System => "system",
        }
    }

    /// The source with this code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// The source that is written with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.word() == word)
    }
}

/// One committed publish. Tenant and partition are the log's, not the record's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Dense and monotone per partition.
    pub offset: u64,
    /// The entry time at which it was committed.
    pub now_ms: u64,
    /// Where to.
    pub topic: &'a str,
    /// What.
    pub payload: &'a [u8],
    /// 0, 1 or 2.
    pub qos: u8,
    /// Whether the publisher asked for it to be retained.
    pub retain: bool,
    /// By which door it came in.
    pub source: Source,
    /// The publisher.
    pub client_id: Option<&'a str>,
    /// Changes only on clean start or expiry.
    pub incarnation: Option<u64>,
    /// Fences everything older.
    pub session_epoch: Option<u64>,
    /// With client id and incarnation, the identity of this publish.
    pub publish_seq: Option<u64>,
    /// Transport order between partitions; none when local.
    pub forward_seq: Option<u64>,
    /// Which map of the ring was in force.
    pub routing_epoch: Option<u64>,
    /// The property of that name.
    pub content_type: Option<&'a str>,
    /// The property of that name.
    pub response_topic: Option<&'a str>,
    /// The property of that name.
    pub correlation_data: Option<&'a [u8]>,
    /// In the publisher's order; keys may repeat. None at all reads back as null.
    pub user_properties: &'a [(&'a str, &'a str)],
    /// The message expiry, counted from `now_ms`.
    pub expiry_s: Option<u32>,
    /// The Payload Format Indicator. Stored, because a delivery must repeat it [MQTT-3.3.2-4], but
    /// in no column that readers of the log see.
    pub payload_format: Option<u8>,
}

impl<'a> Record<'a> {
    /// A record of nothing but what every record has; for tests and for facts.
    pub fn bare(offset: u64, now_ms: u64, topic: &'a str, payload: &'a [u8]) -> Self {
        Self {
            offset,
            now_ms,
            topic,
            payload,
            qos: 1,
            retain: false,
            source: Source::Mqtt,
            client_id: None,
            incarnation: None,
            session_epoch: None,
            publish_seq: None,
            forward_seq: None,
            routing_epoch: None,
            content_type: None,
            response_topic: None,
            correlation_data: None,
            user_properties: &[],
            expiry_s: None,
            payload_format: None,
        }
    }

    /// The bytes of everything that varies in length.
    pub(crate) fn varying_bytes(&self) -> usize {
        let text = |text: Option<&str>| text.map_or(0, str::len);
        let pairs = |(key, value): &(&str, &str)| key.len() + value.len() + 8;
        self.topic.len()
            + self.payload.len()
            + text(self.client_id)
            + text(self.content_type)
            + text(self.response_topic)
            + self.correlation_data.map_or(0, <[u8]>::len)
            + self.user_properties.iter().map(pairs).sum::<usize>()
    }

    pub(crate) fn check(&self) -> Result<usize> {
        let too_large = |bytes, most| Error::TooLarge { offset: self.offset, bytes, most };
        if self.payload.len() > PAYLOAD_BYTES_MAX {
            return Err(too_large(self.payload.len(), PAYLOAD_BYTES_MAX));
        }
        let bytes = self.varying_bytes();
        if bytes > RECORD_BYTES_MAX {
            return Err(too_large(bytes, RECORD_BYTES_MAX));
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::{Record, Source};
    use crate::Error;
    use crate::limits::{PAYLOAD_BYTES_MAX, RECORD_BYTES_MAX};

    #[test]
    fn sources_are_found_by_code_and_by_word() {
        for (code, source) in (0_u8..).zip(Source::ALL) {
            assert_eq!(Source::from_code(code), Some(source));
            assert_eq!(Source::from_word(source.word()), Some(source));
        }
        assert_eq!(Source::from_code(6), None);
        assert_eq!(Source::from_word("kafka"), None);
    }

    #[test]
    fn the_largest_payload_fits_and_one_byte_more_does_not() {
        let payload = vec![7; PAYLOAD_BYTES_MAX + 1];
        assert!(Record::bare(0, 0, "t", &payload[1..]).check().is_ok());
        let refused = Record::bare(4, 0, "t", &payload).check();
        assert!(matches!(refused, Err(Error::TooLarge { offset: 4, .. })), "{refused:?}");
        let value = "v".repeat(RECORD_BYTES_MAX);
        let pairs = [("k", value.as_str())];
        let heavy = Record { user_properties: &pairs, ..Record::bare(5, 0, "t", b"") };
        assert!(matches!(heavy.check(), Err(Error::TooLarge { offset: 5, .. })));
    }

    // A node that commits what its message log refuses stops; no client may make it.
    // hardening: stored-lengths
    #[test]
    fn whatever_fits_into_the_largest_packet_fits_into_a_record() {
        let empty_pair_on_the_wire = 5;
        let pairs = vec![("", ""); PAYLOAD_BYTES_MAX / empty_pair_on_the_wire];
        let topic = "t".repeat(usize::from(u16::MAX));
        let worst = Record { user_properties: &pairs, ..Record::bare(0, 0, &topic, b"") };
        assert!(worst.check().is_ok());
        assert!(Record { client_id: Some(&topic), ..worst }.check().is_ok());
    }
}
