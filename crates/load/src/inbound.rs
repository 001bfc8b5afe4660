//! What arrives: reading sockets, taking packets apart, keeping the books.

use quantumqtt_wire::{Ack, AckKind, ConnAck, Frame, PacketType, QoS, SubAck, frame};

use crate::client::{Phase, Role};
use crate::delivery::Delivery;
use crate::error::Fault;
use crate::inflight::Awaited;
use crate::link::Intake;
use crate::sequence::Verdict;
use crate::stamp::{STAMP_BYTES, Stamp};
use crate::worker::Worker;

/// Reads per client and turn.
const READS_PER_TURN: usize = 2;
/// A broker that announces more has lost its way: nothing we publish is larger.
const PACKET_BYTES_EXTRA: usize = 64 * 1024;

/// One payload in so many is compared byte by byte; of the others the length is.
const COMPARE_EVERY: u64 = 64;

/// What to do with a connection after its packets were looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    Stay,
    Close,
}

impl Worker {
    /// Reads a client's socket, within its part of the turn.
    ///
    /// A read that does not fill the buffer has emptied the socket, and what comes later is a new
    /// edge. Only the end of the stream may have come before, unseen; `may_end` asks for it.
    pub(crate) fn on_readable(&mut self, index: usize, may_end: bool) {
        let mut buffer = std::mem::take(&mut self.buffer);
        for round in 1.. {
            let Some(link) = &mut self.clients[index].link else { break };
            match link.read(&mut buffer) {
                Ok(Intake::Bytes { filled, more }) => {
                    self.now_ns = self.plan.now_ns();
                    if self.digest(index, &buffer[..filled]) == After::Close {
                        break;
                    }
                    if !(more || may_end) {
                        break;
                    }
                    if round == READS_PER_TURN {
                        self.read_again(index);
                        break;
                    }
                }
                Ok(Intake::Nothing) => break,
                Ok(Intake::End) => {
                    self.on_end(index);
                    break;
                }
                Err(error) => {
                    self.lose(index, &error);
                    break;
                }
            }
        }
        self.buffer = buffer;
        self.send_answers(index);
    }

    fn read_again(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if !client.is_queued {
            client.is_queued = true;
            self.unread.push(index);
        }
    }

    /// Sends acknowledgements; a publisher's leave with its next block instead.
    fn send_answers(&mut self, index: usize) {
        let waits = self.clients[index].link.as_ref().is_some_and(crate::link::Link::has_small);
        match self.clients[index].role {
            Role::Publisher(publisher) if self.is_measuring => self.make_eager(publisher),
            _ if waits => {
                self.flush(index, self.plan.spec.one_message_per_write);
            }
            _ => {}
        }
    }

    fn digest(&mut self, index: usize, bytes: &[u8]) -> After {
        let packet_bytes_max = self.plan.spec.payload_bytes + PACKET_BYTES_EXTRA;
        let mut rest = bytes;
        loop {
            let frame = match frame::peek(rest, packet_bytes_max) {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(error) => return self.close_for(index, Fault::Malformed, &error.to_string()),
            };
            let Some(body) = frame.body(rest) else { break };
            let after = if frame.packet_type == PacketType::Publish {
                self.on_publish(index, frame.flags, body)
            } else {
                self.on_other(index, &frame, body)
            };
            if after == After::Close {
                return After::Close;
            }
            rest = &rest[frame.total()..];
        }
        if let Some(link) = &mut self.clients[index].link {
            link.keep(rest);
        }
        After::Stay
    }

    fn close_for(&mut self, index: usize, fault: Fault, words: &str) -> After {
        self.tally.fault(fault, || words.to_owned());
        self.end(index);
        After::Close
    }

    #[inline]
    fn on_publish(&mut self, index: usize, flags: u8, body: &[u8]) -> After {
        let Some(delivery) = Delivery::find(self.plan.spec.version, flags, body) else {
            return self.close_for(
                index,
                Fault::Malformed,
                "a PUBLISH whose lengths do not add up",
            );
        };
        if let Some(link) = &mut self.clients[index].link {
            match delivery.qos {
                QoS::AtMostOnce => {}
                QoS::AtLeastOnce => link.acknowledge(AckKind::PubAck, delivery.packet_id),
                QoS::ExactlyOnce => link.acknowledge(AckKind::PubRec, delivery.packet_id),
            }
        }
        if self.tally.received == 0 {
            self.first_activity_ns = self.now_ns;
        }
        self.tally.received += 1;
        self.last_activity_ns = self.now_ns;
        self.check_stamp(index, delivery.payload);
        After::Stay
    }

    #[inline]
    fn check_stamp(&mut self, index: usize, payload: &[u8]) {
        let stamp = match Stamp::from_payload(payload) {
            Some(stamp) if stamp.run == self.plan.run => stamp,
            _ => {
                self.tally.foreign += 1;
                return;
            }
        };
        // The publisher of a stream we hear lives on our thread; a number it has not sent yet, or
        // a stream we do not hear, means that the broker mixed something up.
        let own = (stamp.stream / self.plan.spec.topics).wrapping_sub(self.share.publishers.start);
        let subscriber = match self.clients[index].role {
            Role::Subscriber(index) => self.subscribers.get_mut(index),
            Role::Publisher(_) | Role::Bare => None,
        };
        let check = subscriber.and_then(|subscriber| {
            let slot = stamp.stream.wrapping_sub(subscriber.first_stream);
            subscriber.checks.get_mut(slot as usize)
        });
        let (Some(check), Some(publisher)) = (check, self.publishers.get_mut(own as usize)) else {
            self.misrouted(stamp);
            return;
        };
        if stamp.sequence >= publisher.sent {
            self.misrouted(stamp);
            return;
        }
        if !is_intact(&self.filler, payload, stamp.sequence) {
            self.tally.fault(Fault::Altered, || {
                format!("{} bytes of message {}", payload.len(), stamp.sequence)
            });
        }
        match check.observe(stamp.sequence) {
            Verdict::Next => {}
            Verdict::Late => self.tally.out_of_order += 1,
            Verdict::Duplicate => {
                self.tally.duplicated += 1;
                return;
            }
        }
        self.tally.latency.record(self.now_ns.saturating_sub(stamp.sent_ns));
        publisher.delivered += 1;
        publisher.progress_ns = self.now_ns;
        if publisher.inflight.is_none() {
            self.make_eager(own as usize);
        }
    }

    #[cold]
    fn misrouted(&mut self, stamp: Stamp) {
        // It was received, but it is nobody's delivery.
        self.tally.foreign += 1;
        self.tally.fault(Fault::Misrouted, || {
            format!("message {} of stream {}", stamp.sequence, stamp.stream)
        });
    }

    fn on_other(&mut self, index: usize, frame: &Frame, body: &[u8]) -> After {
        match frame.packet_type {
            PacketType::PubAck => self.on_answer(index, AckKind::PubAck, body),
            PacketType::PubRec => self.on_answer(index, AckKind::PubRec, body),
            PacketType::PubComp => self.on_answer(index, AckKind::PubComp, body),
            PacketType::PubRel => self.on_release(index, body),
            PacketType::ConnAck => self.on_connack(index, body),
            PacketType::SubAck => self.on_suback(index, body),
            PacketType::PingResp => {
                self.on_pong(index);
                After::Stay
            }
            PacketType::Disconnect => {
                let reason = body.first().copied().unwrap_or(0);
                let words = format!("DISCONNECT with reason {reason:#04x}");
                self.close_for(index, Fault::Disconnected, &words)
            }
            PacketType::Connect
            | PacketType::Publish
            | PacketType::Subscribe
            | PacketType::Unsubscribe
            | PacketType::UnsubAck
            | PacketType::PingReq
            | PacketType::Auth => {
                let words = format!("{:?} has no place here", frame.packet_type);
                self.close_for(index, Fault::Malformed, &words)
            }
        }
    }

    /// PUBACK, PUBREC or PUBCOMP to a publisher.
    fn on_answer(&mut self, index: usize, kind: AckKind, body: &[u8]) -> After {
        let ack = match Ack::decode(self.plan.spec.version, kind, body) {
            Ok(ack) => ack,
            Err(error) => return self.close_for(index, Fault::Malformed, &error.to_string()),
        };
        let packet_id = ack.packet_id.get();
        if ack.reason.is_error() {
            let name = ack.reason.name();
            self.tally.fault(Fault::PublishRefused, || format!("{kind:?}: {name}"));
        }
        let inflight = match self.clients[index].role {
            Role::Publisher(publisher) => self.publishers[publisher].inflight.as_mut(),
            Role::Subscriber(_) | Role::Bare => None,
        };
        let Some(inflight) = inflight else {
            self.tally.fault(Fault::Unasked, || format!("{kind:?} to a client that does not ask"));
            return After::Stay;
        };
        let finished = match kind {
            AckKind::PubAck => inflight.finish(packet_id, Awaited::Acknowledgement),
            AckKind::PubComp => inflight.finish(packet_id, Awaited::Completion),
            // A refused QoS 2 publish ends with its PUBREC [MQTT-4.3.3-4].
            _ if ack.reason.is_error() => inflight.finish(packet_id, Awaited::Received),
            _ if inflight.on_received(packet_id) => {
                if let Some(link) = &mut self.clients[index].link {
                    link.acknowledge(AckKind::PubRel, packet_id);
                }
                return After::Stay;
            }
            _ => None,
        };
        let Some(sent_ns) = finished else {
            self.tally.fault(Fault::Unasked, || format!("{kind:?} for packet id {packet_id}"));
            return After::Stay;
        };
        self.unanswered -= 1;
        self.last_activity_ns = self.now_ns;
        if !ack.reason.is_error() {
            self.tally.acknowledged += 1;
            self.tally.acknowledge_latency.record(self.now_ns.saturating_sub(sent_ns));
        }
        After::Stay
    }

    /// PUBREL to a subscriber.
    fn on_release(&mut self, index: usize, body: &[u8]) -> After {
        match Ack::decode(self.plan.spec.version, AckKind::PubRel, body) {
            Ok(ack) => {
                if let Some(link) = &mut self.clients[index].link {
                    link.acknowledge(AckKind::PubComp, ack.packet_id.get());
                }
                After::Stay
            }
            Err(error) => self.close_for(index, Fault::Malformed, &error.to_string()),
        }
    }

    fn on_connack(&mut self, index: usize, body: &[u8]) -> After {
        if self.clients[index].phase != Phase::Greeting {
            return self.close_for(index, Fault::Malformed, "CONNACK out of turn");
        }
        let connack = match ConnAck::decode(self.plan.spec.version, body) {
            Ok(connack) => connack,
            Err(error) => return self.close_for(index, Fault::Malformed, &error.to_string()),
        };
        if connack.reason.is_error() {
            return self.close_for(index, Fault::ConnectRefused, connack.reason.name());
        }
        let receive_maximum = connack.properties.receive_maximum();
        self.on_admitted(index, receive_maximum);
        After::Stay
    }

    fn on_suback(&mut self, index: usize, body: &[u8]) -> After {
        if self.clients[index].phase != Phase::Subscribing {
            return self.close_for(index, Fault::Malformed, "SUBACK out of turn");
        }
        match SubAck::decode(self.plan.spec.version, body) {
            Ok(suback) if suback.codes == [self.plan.spec.qos.bits()] => {
                self.settle(index);
                After::Stay
            }
            Ok(suback) => {
                let words = format!("SUBACK says {:?}", suback.codes);
                self.close_for(index, Fault::SubscribeRefused, &words)
            }
            Err(error) => self.close_for(index, Fault::Malformed, &error.to_string()),
        }
    }
}

/// Whether a payload is what was sent, as far as it is looked at.
#[inline]
fn is_intact(filler: &[u8], payload: &[u8], sequence: u64) -> bool {
    let same_length = payload.len() == filler.len();
    same_length
        && (!sequence.is_multiple_of(COMPARE_EVERY)
            || payload[STAMP_BYTES..] == filler[STAMP_BYTES..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::filler;

    #[test]
    fn an_altered_payload_is_noticed() {
        let sent = filler(64);
        let mut flipped = sent.clone();
        flipped[40] ^= 1;
        let mut restamped = sent.clone();
        restamped[STAMP_BYTES - 1] ^= 1;
        assert!(is_intact(&sent, &sent, 0));
        assert!(is_intact(&sent, &restamped, 0), "the stamp differs from message to message");
        assert!(!is_intact(&sent, &flipped, COMPARE_EVERY));
        assert!(!is_intact(&sent, &sent[..63], 1), "lengths are compared every time");
    }
}
