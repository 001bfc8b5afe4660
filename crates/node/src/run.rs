//! Runs of QoS 0 packets: one look-up and one copy for many messages.
//!
//! A publisher that sends fast fills a read buffer with packets that differ in nothing but their
//! payload: same first byte, same topic, same properties. They match the same subscribers, and to
//! those of the same kind of version every packet goes out exactly as it came in. So the whole run
//! is pushed to each of them at once. The first packet of a run was decoded and judged; of the
//! others only the framing is read and everything before the payload is compared with the first.
//!
//! Subscribers that need other bytes (another version, identifiers, a smaller limit) are served
//! packet by packet, as without runs.

use quantumqtt_reactor::{Then, Turn};
use quantumqtt_topics::Action;
use quantumqtt_wire::{Frame, PropertyId, Publish, QoS, Version, frame};

use crate::connection::Connection;
use crate::deliver::{Audience, Outgoing, deliver, expires_at_ms, push_loose};
use crate::index::Route;
use crate::limits::RUN_BYTES_MAX;
use crate::publish::pause_if;
use crate::shard::ShardService;

/// Packets that stand side by side and may be forwarded as they are.
pub(crate) struct Run<'a> {
    /// All of them.
    pub(crate) bytes: &'a [u8],
    count: u64,
    largest_bytes: usize,
    /// Bytes of a body before its payload; the same in all of them.
    head_bytes: usize,
}

impl<'a> Run<'a> {
    /// Whether a packet can begin a run: nothing in it is for us alone.
    pub(crate) fn can_begin_with(publish: &Publish<'_>) -> bool {
        let properties = &publish.properties;
        publish.qos == QoS::AtMostOnce
            && !publish.retain
            && !publish.dup
            && !properties.contains(PropertyId::TopicAlias)
            && !properties.contains(PropertyId::SubscriptionId)
    }

    /// The run at the start of `bytes`, whose first packet is `publish` in `first`.
    pub(crate) fn scan(
        bytes: &'a [u8],
        first: &Frame,
        publish: &Publish<'_>,
        packet_bytes_max: usize,
    ) -> Self {
        let head_bytes = first.body_bytes - publish.payload.len();
        let head = &bytes[first.header_bytes..first.header_bytes + head_bytes];
        let mut run = Self { bytes, count: 1, largest_bytes: first.total(), head_bytes };
        let mut end = first.total();
        while end < RUN_BYTES_MAX && bytes.get(end) == bytes.first() {
            let rest = &bytes[end..];
            let Ok(Some(next)) = frame::peek(rest, packet_bytes_max) else { break };
            let is_alike = next.body_bytes >= head_bytes
                && rest.len() >= next.total()
                && rest[next.header_bytes..].starts_with(head);
            if !is_alike {
                break;
            }
            end += next.total();
            run.count += 1;
            run.largest_bytes = run.largest_bytes.max(next.total());
        }
        run.bytes = &bytes[..end];
        run
    }

    /// The payloads, one per packet.
    fn payloads(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (mut rest, head_bytes) = (self.bytes, self.head_bytes);
        std::iter::from_fn(move || {
            // Framing was read before: this cannot fail, and ending is the mild answer.
            let next = frame::peek(rest, usize::MAX).ok()??;
            let (packet, after) = rest.split_at_checked(next.total())?;
            rest = after;
            packet.get(next.header_bytes + head_bytes..)
        })
    }

    /// Whether a subscriber may get the packets as they are.
    pub(crate) fn suits(&self, route: &Route, is_v5: bool) -> bool {
        let subscriber = &route.subscriber;
        (subscriber.version == Version::V5) == is_v5
            && route.subscription_ids.is_empty()
            && !subscriber.takes_aliases
            && self.largest_bytes <= subscriber.packet_bytes_max as usize
    }
}

impl ShardService {
    /// A run of QoS 0 messages: to everybody online, now.
    pub(crate) fn on_run(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        publish: &Publish<'_>,
        run: &Run<'_>,
    ) -> Then {
        if !self.rights.may(connection, Action::Write, publish.topic) {
            return self.refuse_publish(turn, connection, publish, publish.topic);
        }
        let Self { router, shared, .. } = self;
        let cells = &shared.cells[usize::from(self.shard)];
        cells.count_received(QoS::AtMostOnce, run.count);
        let is_v5 = connection.version == Version::V5;
        let publisher = Some(connection.id);
        let at_ms = expires_at_ms(turn.now_ms(), publish.properties.message_expiry_s());
        let routes = router.routes(publish.topic);
        let (mut must_pause, mut are_others) = (false, false);
        for route in routes {
            let subscriber = &route.subscriber;
            if subscriber.options.no_local && route.id == connection.id {
                continue;
            }
            if run.suits(route, is_v5) {
                must_pause |=
                    push_loose(turn, cells, subscriber, run.bytes, run.count, at_ms, publisher);
            } else {
                are_others = true;
            }
        }
        let has_groups = self.router.group_count() > 0;
        if are_others || has_groups {
            for payload in run.payloads() {
                let message = Outgoing {
                    topic: publish.topic,
                    payload,
                    properties: publish.properties,
                    expiry_s: publish.properties.message_expiry_s(),
                    qos: QoS::AtMostOnce,
                    retain: false,
                    publisher,
                };
                let others = Audience::NotServedBy(run, is_v5);
                let Self { router, encoder, shared, .. } = self;
                let cells = &shared.cells[usize::from(self.shard)];
                let routes = router.routes(publish.topic);
                must_pause |= deliver(encoder, turn, cells, routes, &message, others).must_pause;
                if has_groups {
                    must_pause |= self.deliver_to_groups(turn, &message).must_pause;
                }
            }
        }
        pause_if(turn, connection, must_pause)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn packet(topic: &str, payload: &[u8], qos: QoS, retain: bool) -> Vec<u8> {
        let publish = Publish {
            dup: false,
            qos,
            retain,
            topic,
            packet_id: (qos != QoS::AtMostOnce).then_some(quantumqtt_wire::PacketId::MIN),
            properties: quantumqtt_wire::Properties::EMPTY,
            payload,
        };
        let mut bytes = Vec::new();
        publish.encode(Version::V5, &mut bytes).unwrap();
        bytes
    }

    fn scan(bytes: &[u8]) -> Run<'_> {
        let first = frame::peek(bytes, usize::MAX).unwrap().unwrap();
        let body = &bytes[first.header_bytes..first.total()];
        let publish = Publish::decode(Version::V5, first.flags, body).unwrap();
        assert!(Run::can_begin_with(&publish));
        Run::scan(bytes, &first, &publish, usize::MAX)
    }

    #[test]
    fn run_ends_where_anything_but_the_payload_differs() {
        let same = packet("a/b", b"one", QoS::AtMostOnce, false);
        for other in [
            packet("a/c", b"one", QoS::AtMostOnce, false),
            packet("a", b"/b", QoS::AtMostOnce, false),
            packet("a/bb", b"", QoS::AtMostOnce, false),
            packet("a/b", b"one", QoS::AtLeastOnce, false),
            packet("a/b", b"one", QoS::AtMostOnce, true),
            same[..same.len() - 1].to_vec(),
            [0xC0, 0].to_vec(),
        ] {
            let bytes = [&same[..], &same, &other].concat();
            let run = scan(&bytes);
            assert_eq!((run.count, run.bytes.len()), (2, 2 * same.len()), "{other:02x?}");
        }
    }

    proptest! {
        #[test]
        fn run_carries_every_payload_in_order(
            payloads in vec(vec(any::<u8>(), 0..300), 1..40),
        ) {
            let bytes: Vec<u8> = payloads
                .iter()
                .flat_map(|payload| packet("t/1", payload, QoS::AtMostOnce, false))
                .collect();
            let run = scan(&bytes);
            prop_assert_eq!(run.bytes.len(), bytes.len());
            prop_assert_eq!(run.count, payloads.len() as u64);
            prop_assert!(run.payloads().eq(payloads.iter().map(Vec::as_slice)));
        }
    }
}
