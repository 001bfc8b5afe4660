//! The items of a checkpoint as bytes: what is written, in which order, under which number.
//!
//! ```text
//! item: kind u8 · length varint · body        numbers, texts and byte strings as in `fields.rs`
//!
//! Header      once: bounds, clocks, counters
//! Session     by client id; behind each, as many as it announces of
//!               Subscription by filter · Exchange in order of repetition · Waiting in order ·
//!               Received by packet id · Replay in order
//! Group       share groups by filter; behind each, its Members in order
//! Retained    by topic
//! Dedupe      keys of accepted publishes, in order of commitment; since format 2
//! Message     before the first item that refers to it, under its offset: a message that waits for
//!             a thousand sessions is written once, and is one message again when it is read
//! End         once: how many of each, and the digest
//! ```
//!
//! One state has one spelling, so the digest of a state is the XXH3-128 of all items before `End`.
//! Whatever the checkpoint covers the digest covers, and the other way round.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Buf, Bytes};
use xxhash_rust::xxh3::Xxh3;

use crate::backlog::{BacklogPlace, Delivery};
use crate::codec::{write_dedupe_key, write_limits, write_will};
use crate::dedupe::Accepted;
use crate::effect::Subscription;
use crate::fields::{write_bytes, write_number, write_text};
use crate::machine::Machine;
use crate::message::Message;
use crate::replay::Replay;
use crate::session::{Received, Session};
use crate::subscription_index::GroupCopy;
use crate::subscription_set::SubscriptionPlace;
use crate::window::{Exchange, Stage};

/// The number of each kind of item on disk; never reused.
pub(crate) mod kind {
    pub(crate) const HEADER: u8 = 1;
    pub(crate) const MESSAGE: u8 = 2;
    pub(crate) const SESSION: u8 = 3;
    pub(crate) const SUBSCRIPTION: u8 = 4;
    pub(crate) const EXCHANGE: u8 = 5;
    pub(crate) const WAITING: u8 = 6;
    pub(crate) const RECEIVED: u8 = 7;
    pub(crate) const REPLAY: u8 = 8;
    pub(crate) const GROUP: u8 = 9;
    pub(crate) const MEMBER: u8 = 10;
    pub(crate) const RETAINED: u8 = 11;
    pub(crate) const END: u8 = 12;
    pub(crate) const DEDUPE: u8 = 13;
    pub(crate) const LAST: u8 = DEDUPE;
    pub(crate) const COUNT: usize = 14;

    /// What `End` of a format counts, in its order.
    pub(crate) fn counted(format: u8) -> impl Iterator<Item = u8> {
        (HEADER..END).chain((format >= 2).then_some(DEDUPE))
    }
}

/// How many items of each kind there are before `End`.
pub(crate) type Counts = [u64; kind::COUNT];

/// Parts this large are passed on without being copied.
const SHARED_PART_BYTES: usize = 4096;

pub(super) const SESSION_ATTACHED: u8 = 1;
pub(super) const SESSION_WILL: u8 = 1 << 1;
pub(super) const SESSION_EXPIRES: u8 = 1 << 2;
pub(super) const SESSION_DETACHED: u8 = 1 << 3;
pub(super) const SESSION_WILL_DUE: u8 = 1 << 4;
pub(super) const SESSION_WILL_DEFERRED: u8 = 1 << 5;
pub(super) const SESSION_FLAGS: u8 = (1 << 6) - 1;

pub(super) const MESSAGE_QOS: u8 = 0b11;
pub(super) const MESSAGE_EXPIRES: u8 = 1 << 2;
pub(super) const DELIVERY_RETAIN: u8 = 1 << 2;
pub(super) const DELIVERY_SHARED: u8 = 1 << 3;
pub(super) const DELIVERY_SHARE_RETAIN: u8 = 1 << 4;
pub(super) const DELIVERY_SHARE_DECLINED: u8 = 1 << 5;

pub(super) const STAGE_UNSENT: u8 = 0;
pub(super) const STAGE_SENT: u8 = 1;
pub(super) const STAGE_RELEASED: u8 = 2;

/// Offsets seen so far. Offsets are dense, so sixty-four neighbours share an entry.
#[derive(Debug, Default)]
struct Offsets {
    bits: BTreeMap<u64, u64>,
}

impl Offsets {
    /// Whether `offset` is new here.
    fn insert(&mut self, offset: u64) -> bool {
        let bits = self.bits.entry(offset >> 6).or_default();
        let bit = 1_u64 << (offset & 63);
        let is_new = *bits & bit == 0;
        *bits |= bit;
        is_new
    }
}

/// Items on their way out, hashed as they are taken.
pub(crate) struct Stream {
    /// Parts in order; `tail` comes behind them.
    parts: VecDeque<Bytes>,
    tail: Vec<u8>,
    body: Vec<u8>,
    len: usize,
    messages: Offsets,
    counts: Counts,
    hash: Box<Xxh3>,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Stream").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Stream {
    pub(crate) fn new() -> Self {
        Self {
            parts: VecDeque::new(),
            tail: Vec::new(),
            body: Vec::new(),
            len: 0,
            messages: Offsets::default(),
            counts: [0; kind::COUNT],
            hash: Box::new(Xxh3::new()),
        }
    }

    /// Bytes that have not been taken yet.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The digest of everything taken so far.
    pub(crate) fn digest(&self) -> u128 {
        self.hash.digest128()
    }

    /// Moves up to `bytes_max` bytes behind what stands in `out`.
    pub(crate) fn take(&mut self, bytes_max: usize, out: &mut Vec<u8>) {
        self.turn_tail();
        let mut left = bytes_max.min(self.len);
        out.reserve(left);
        self.len -= left;
        while let Some(part) = self.parts.front_mut() {
            let taken = left.min(part.len());
            self.hash.update(&part[..taken]);
            out.extend_from_slice(&part[..taken]);
            part.advance(taken);
            left -= taken;
            if !part.is_empty() {
                break;
            }
            self.parts.pop_front();
        }
    }

    /// Hashes and forgets everything written so far.
    fn digest_all(&mut self) {
        self.turn_tail();
        for part in self.parts.drain(..) {
            self.hash.update(&part);
        }
        self.len = 0;
    }

    fn turn_tail(&mut self) {
        if !self.tail.is_empty() {
            self.parts.push_back(Bytes::from(std::mem::take(&mut self.tail)));
        }
    }

    /// Writes an item; `shared` parts stand at its end, each with its length in front.
    fn item(&mut self, kind: u8, shared: &[&Bytes], write: impl FnOnce(&mut Vec<u8>)) {
        self.counts[usize::from(kind)] += 1;
        let before = self.tail.len();
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        write(&mut body);
        let shared_bytes: usize = shared.iter().map(|part| part.len() + length_bytes(part)).sum();
        self.tail.push(kind);
        write_number(&mut self.tail, (body.len() + shared_bytes) as u64);
        self.tail.extend_from_slice(&body);
        self.body = body;
        self.len += self.tail.len() - before;
        for &part in shared {
            let before = self.tail.len();
            write_number(&mut self.tail, part.len() as u64);
            self.len += self.tail.len() - before + part.len();
            if part.len() < SHARED_PART_BYTES {
                self.tail.extend_from_slice(part);
            } else {
                self.turn_tail();
                self.parts.push_back(part.clone());
            }
        }
    }

    pub(crate) fn header(&mut self, machine: &Machine) {
        self.item(kind::HEADER, &[], |out| {
            write_limits(out, &machine.limits);
            for number in [
                u64::from(machine.partition),
                machine.now_ms,
                machine.next_offset,
                machine.next_publish_seq,
                machine.last_epoch,
                machine.last_incarnation,
            ] {
                write_number(out, number);
            }
        });
    }

    fn message(&mut self, message: &Message) {
        if !self.messages.insert(message.offset) {
            return;
        }
        let shared = [&message.properties, &message.payload];
        self.item(kind::MESSAGE, &shared, |out| {
            write_number(out, message.offset);
            write_number(out, message.accepted_ms);
            let expires = if message.expiry_s.is_some() { MESSAGE_EXPIRES } else { 0 };
            out.push(message.qos.bits() | expires);
            write_optional(out, message.expiry_s.map(u64::from));
            write_text(out, &message.topic);
        });
    }

    fn session(&mut self, session: &Session) {
        self.item(kind::SESSION, &[], |out| {
            write_text(out, &session.client_id);
            write_text(out, &session.identity);
            write_number(out, session.incarnation);
            write_number(out, session.epoch);
            write_number(out, u64::from(session.expiry_s));
            let mut flags = 0;
            for (flag, is_set) in [
                (SESSION_ATTACHED, session.attachment.is_some()),
                (SESSION_WILL, session.will.is_some()),
                (SESSION_EXPIRES, session.expires_at_ms.is_some()),
                (SESSION_DETACHED, session.detached_at_ms.is_some()),
                (SESSION_WILL_DUE, session.will_due_ms.is_some()),
                (SESSION_WILL_DEFERRED, session.will_is_deferred),
            ] {
                flags |= if is_set { flag } else { 0 };
            }
            out.push(flags);
            if let Some(attachment) = session.attachment {
                write_number(out, u64::from(attachment.origin.node));
                write_number(out, u64::from(attachment.origin.shard));
                write_number(out, attachment.origin.connection);
                out.push(attachment.level);
                write_number(out, u64::from(attachment.maximum_packet_bytes));
            }
            if let Some(will) = &session.will {
                write_will(out, &will.as_command());
            }
            write_optional(out, session.expires_at_ms);
            write_optional(out, session.detached_at_ms);
            write_optional(out, session.will_due_ms);
            write_number(out, u64::from(session.window.next_id()));
            write_number(out, u64::from(session.window.maximum()));
            for count in [
                session.subscriptions.len(),
                session.window.len(),
                session.backlog.len(),
                session.received.len(),
                session.replays.len(),
            ] {
                write_number(out, count as u64);
            }
        });
    }

    fn subscription(&mut self, subscription: &Subscription) {
        self.item(kind::SUBSCRIPTION, &[], |out| {
            write_text(out, &subscription.filter);
            out.push(subscription.options.to_byte());
            write_number(out, u64::from(subscription.subscription_id.unwrap_or(0)));
        });
    }

    fn exchange(&mut self, exchange: &Exchange) {
        let (stage, delivery) = match &exchange.stage {
            Stage::Unsent(delivery) => (STAGE_UNSENT, Some(delivery)),
            Stage::Sent(delivery) => (STAGE_SENT, Some(delivery)),
            Stage::Released => (STAGE_RELEASED, None),
        };
        if let Some(delivery) = delivery {
            self.message(&delivery.message);
        }
        self.item(kind::EXCHANGE, &[], |out| {
            write_number(out, u64::from(exchange.packet_id));
            out.push(stage);
            if let Some(delivery) = delivery {
                write_delivery(out, delivery);
            }
        });
    }

    fn waiting(&mut self, delivery: &Delivery) {
        self.message(&delivery.message);
        self.item(kind::WAITING, &[], |out| write_delivery(out, delivery));
    }

    fn received(&mut self, packet_id: u16, received: &Received) {
        self.item(kind::RECEIVED, &[], |out| {
            write_number(out, u64::from(packet_id));
            write_number(out, received.publish_seq);
            write_number(out, received.content_hash);
        });
    }

    fn replay(&mut self, replay: &Replay) {
        self.item(kind::REPLAY, &[], |out| {
            write_text(out, &replay.filter);
            write_number(out, replay.before_offset);
            out.push(u8::from(replay.last_topic.is_some()));
            if let Some(topic) = &replay.last_topic {
                write_text(out, topic);
            }
        });
    }

    pub(crate) fn group(&mut self, group: &GroupCopy) {
        self.item(kind::GROUP, &[], |out| {
            write_text(out, &group.filter);
            write_number(out, group.cursor as u64);
            write_number(out, group.members.len() as u64);
        });
        for &key in &group.members {
            self.item(kind::MEMBER, &[], |out| write_number(out, key));
        }
    }

    pub(crate) fn retained(&mut self, message: &Message) {
        self.message(message);
        self.item(kind::RETAINED, &[], |out| write_number(out, message.offset));
    }

    pub(crate) fn dedupe(&mut self, accepted: &Accepted) {
        self.item(kind::DEDUPE, &[], |out| {
            write_number(out, accepted.at_ms);
            write_dedupe_key(out, accepted.key());
        });
    }

    /// Everything before it has been taken, so that the digest covers it.
    pub(crate) fn end(&mut self, format: u8) {
        debug_assert_eq!(self.len, 0, "the digest is that of what has been taken");
        let (counts, digest) = (self.counts, self.digest());
        self.item(kind::END, &[], |out| {
            kind::counted(format).for_each(|kind| write_number(out, counts[usize::from(kind)]));
            write_bytes(out, &digest.to_le_bytes());
        });
    }
}

/// Where the writing of one session stands. Between two steps the session does not change.
#[derive(Debug, Default)]
pub(crate) enum SessionWalk {
    #[default]
    Session,
    Subscriptions(SubscriptionPlace),
    Exchanges(Option<u64>),
    Backlog(BacklogPlace),
    Received(Option<u16>),
    Replays(usize),
    Over,
}

impl SessionWalk {
    /// Writes one item of the session, if it has another; false when there is none.
    pub(crate) fn step(&mut self, session: &Session, stream: &mut Stream) -> bool {
        loop {
            match self {
                Self::Session => {
                    stream.session(session);
                    *self = Self::Subscriptions(SubscriptionPlace::default());
                    return true;
                }
                Self::Subscriptions(place) => match session.subscriptions.walk(place) {
                    Some(subscription) => {
                        stream.subscription(subscription);
                        return true;
                    }
                    None => *self = Self::Exchanges(None),
                },
                Self::Exchanges(after) => match session.window.walk(*after) {
                    Some((place, exchange)) => {
                        stream.exchange(exchange);
                        *after = Some(place);
                        return true;
                    }
                    None => *self = Self::Backlog(BacklogPlace::default()),
                },
                Self::Backlog(place) => match session.backlog.walk(place) {
                    Some(delivery) => {
                        stream.waiting(delivery);
                        return true;
                    }
                    None => *self = Self::Received(None),
                },
                Self::Received(after) => {
                    let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
                    let mut ahead = session.received.range((from, std::ops::Bound::Unbounded));
                    match ahead.next() {
                        Some((&packet_id, received)) => {
                            stream.received(packet_id, received);
                            *after = Some(packet_id);
                            return true;
                        }
                        None => *self = Self::Replays(0),
                    }
                }
                Self::Replays(place) => match session.replays.get(*place) {
                    Some(replay) => {
                        stream.replay(replay);
                        *place += 1;
                        return true;
                    }
                    None => *self = Self::Over,
                },
                Self::Over => return false,
            }
        }
    }
}

/// The digest of a whole state, written nowhere.
pub(crate) fn digest_of(machine: &Machine) -> u128 {
    let mut stream = Stream::new();
    stream.header(machine);
    for session in machine.sessions.by_client_id() {
        let mut walk = SessionWalk::default();
        while walk.step(session, &mut stream) {}
        stream.digest_all();
    }
    for group in machine.subscriptions.groups() {
        stream.group(&group);
    }
    stream.digest_all();
    for (_, message) in machine.retained.iter() {
        stream.retained(message);
        stream.digest_all();
    }
    for accepted in machine.dedupe.iter() {
        stream.dedupe(accepted);
        stream.digest_all();
    }
    stream.digest_all();
    stream.digest()
}

fn length_bytes(part: &[u8]) -> usize {
    let bits = usize::BITS - part.len().leading_zeros();
    bits.div_ceil(7).max(1) as usize
}

/// Present only if a flag in front of it says so.
fn write_optional(out: &mut Vec<u8>, number: Option<u64>) {
    if let Some(number) = number {
        write_number(out, number);
    }
}

/// Its Subscription Identifiers stand last and end with the item.
fn write_delivery(out: &mut Vec<u8>, delivery: &Delivery) {
    write_number(out, delivery.message.offset);
    let share = delivery.share.as_ref();
    let mut flags = delivery.qos.bits();
    for (flag, is_set) in [
        (DELIVERY_RETAIN, delivery.retain),
        (DELIVERY_SHARED, share.is_some()),
        (DELIVERY_SHARE_RETAIN, share.is_some_and(|share| share.retain)),
        (DELIVERY_SHARE_DECLINED, share.is_some_and(|share| share.declined > 0)),
    ] {
        flags |= if is_set { flag } else { 0 };
    }
    out.push(flags);
    if let Some(share) = share {
        write_text(out, &share.filter);
        write_optional(out, Some(share.declined.into()).filter(|&declined| declined > 0));
    }
    for &id in &delivery.subscription_ids {
        write_number(out, u64::from(id));
    }
}
