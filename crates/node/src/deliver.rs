//! One message to many subscribers: encode once per form, patch what differs, push.
//!
//! A *form* is what subscribers can share byte for byte: version, QoS, retain flag. Of a form's
//! bytes only the packet id differs between them, and it is patched while pushing. Subscribers with
//! subscription identifiers get an encoding of their own. What may go on as it
//! came is not encoded at all: see `run.rs`.

use quantumqtt_reactor::{ConnectionId, Turn};
use quantumqtt_wire::{PacketId, Properties, PropertyBlock, PropertyId, Publish, QoS, Version};

use crate::effects::fill_block;
use crate::index::{Route, Subscriber};
use crate::outbound::{
    Encoded, Expiry, Sent, SentLoose, send, send_loose, send_loose_now, send_now,
};
use crate::reasons::{CloseReason, DropReason};
use crate::run::Run;
use crate::shard::ShardService;
use crate::statistics::ShardCells;

/// A message on its way to subscribers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    pub(crate) topic: &'a str,
    pub(crate) payload: &'a [u8],
    /// Publish properties; what must not be forwarded is left out while encoding.
    pub(crate) properties: Properties<'a>,
    /// What is left of the message expiry.
    pub(crate) expiry_s: Option<u32>,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    /// Who published it, for No Local.
    pub(crate) publisher: Option<ConnectionId>,
}

/// Which of the routes get it.
#[derive(Clone, Copy)]
pub(crate) enum Audience<'a> {
    /// Everybody online.
    Everyone,
    /// Transient sessions: the machine has served the stored ones.
    TransientOnly,
    /// Whoever could not take a run of packets (of MQTT 5 or not) as they are.
    NotServedBy(&'a Run<'a>, bool),
}

impl Audience<'_> {
    fn includes(self, route: &Route) -> bool {
        match self {
            Self::Everyone => true,
            Self::TransientOnly => !route.subscriber.is_stored,
            Self::NotServedBy(run, is_v5) => !run.suits(route, is_v5),
        }
    }
}

/// What of a delivery is part of the bytes.
#[derive(Debug, Clone, Copy)]
struct FormKey<'a> {
    version: Version,
    qos: QoS,
    retain: bool,
    subscription_ids: &'a [u32],
}

impl FormKey<'_> {
    fn is_v5(&self) -> bool {
        self.version == Version::V5
    }

    /// The place of a shareable form.
    fn index(&self) -> usize {
        usize::from(self.is_v5()) * 6 + self.qos as usize * 2 + usize::from(self.retain)
    }
}

/// Encoded bytes, and where the packet id is to be patched in (0 at QoS 0).
#[derive(Debug, Clone, Copy)]
struct Form<'a> {
    bytes: &'a [u8],
    packet_id_at: usize,
    /// Where what is left of the message expiry stands.
    expiry_at: Option<usize>,
}

impl<'a> Form<'a> {
    fn encoded(self, message: &Outgoing<'_>, at_ms: u64) -> Encoded<'a> {
        Encoded {
            bytes: self.bytes,
            packet_id_at: self.packet_id_at,
            qos: message.qos,
            expiry: message.expiry_s.map(|_| Expiry { at_ms, value_at: self.expiry_at }),
            shared_id: None,
        }
    }
}

#[derive(Debug, Default)]
struct FormBuffer {
    bytes: Vec<u8>,
    packet_id_at: usize,
    expiry_at: Option<usize>,
}

impl FormBuffer {
    fn form(&self) -> Form<'_> {
        Form { bytes: &self.bytes, packet_id_at: self.packet_id_at, expiry_at: self.expiry_at }
    }
}

/// Reused buffers for the forms of the message at hand.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    shared: [FormBuffer; 12],
    /// One bit per shared form that holds the message at hand.
    encoded: u16,
    single: FormBuffer,
    block: PropertyBlock,
}

impl Encoder {
    /// Forget the last message, keep the memory.
    fn begin(&mut self) {
        self.encoded = 0;
    }

    fn form(&mut self, message: &Outgoing<'_>, key: FormKey<'_>) -> Form<'_> {
        if key.is_v5() && !key.subscription_ids.is_empty() {
            encode(&mut self.single, &mut self.block, message, key);
            return self.single.form();
        }
        let index = key.index();
        if self.encoded & 1 << index == 0 {
            encode(&mut self.shared[index], &mut self.block, message, key);
            self.encoded |= 1 << index;
        }
        self.shared[index].form()
    }
}

fn encode(
    into: &mut FormBuffer,
    block: &mut PropertyBlock,
    message: &Outgoing<'_>,
    key: FormKey<'_>,
) {
    into.bytes.clear();
    into.expiry_at = None;
    let mut after_expiry = None;
    let mut properties = Properties::EMPTY;
    if key.is_v5() {
        properties = message.properties;
        let is_as_is = message.expiry_s.is_none()
            && key.subscription_ids.is_empty()
            && !properties.contains(PropertyId::TopicAlias);
        if !is_as_is {
            let expiry_ends =
                fill_block(block, message.properties, message.expiry_s, key.subscription_ids);
            properties = block.as_properties();
            after_expiry = expiry_ends.map(|at| properties.as_bytes().len() - at);
        }
    }
    let publish = Publish {
        dup: false,
        qos: key.qos,
        retain: key.retain,
        topic: message.topic,
        packet_id: (key.qos != QoS::AtMostOnce).then_some(PacketId::MIN),
        properties,
        payload: message.payload,
    };
    // What was decoded within limits encodes; if it ever does not, nothing is sent.
    match publish.encode(key.version, &mut into.bytes) {
        Ok(encoded) => {
            into.packet_id_at = encoded.packet_id_at.unwrap_or(0);
            let behind = |rest: usize| rest + message.payload.len() + size_of::<u32>();
            into.expiry_at = after_expiry.map(|rest| into.bytes.len() - behind(rest));
        }
        Err(_) => into.bytes.clear(),
    }
}

/// How a message fared with its subscribers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Delivered {
    /// How many it was for.
    pub(crate) count: usize,
    /// One of them is behind: the publisher should not be read until it has caught up.
    pub(crate) must_pause: bool,
}

/// Push `message` to every route of the audience.
pub(crate) fn deliver(
    encoder: &mut Encoder,
    turn: &mut Turn<ShardService>,
    cells: &ShardCells,
    routes: &[Route],
    message: &Outgoing<'_>,
    audience: Audience<'_>,
) -> Delivered {
    encoder.begin();
    let mut delivered = Delivered::default();
    for route in routes {
        let subscriber = &route.subscriber;
        let is_own = message.publisher == Some(route.id);
        if subscriber.options.no_local && is_own {
            continue;
        }
        if !audience.includes(route) {
            continue;
        }
        delivered.count += 1;
        let qos = message.qos.min(subscriber.options.qos);
        // A live message loses its retain flag unless the subscriber asked to see it.
        let retain = message.retain && subscriber.options.retain_as_published;
        let key = FormKey {
            version: subscriber.version,
            qos,
            retain,
            subscription_ids: &route.subscription_ids,
        };
        let form = encoder.form(message, key);
        delivered.must_pause |= push(turn, cells, subscriber, form, qos, message);
    }
    delivered
}

/// Push one retained message to one new subscriber.
pub(crate) fn deliver_retained(
    encoder: &mut Encoder,
    turn: &mut Turn<ShardService>,
    cells: &ShardCells,
    subscriber: &Subscriber,
    message: &Outgoing<'_>,
) {
    encoder.begin();
    let key = FormKey {
        version: subscriber.version,
        qos: message.qos,
        retain: true,
        subscription_ids: subscriber.subscription_id.as_slice(),
    };
    let form = encoder.form(message, key);
    if is_too_large(cells, subscriber, form) {
        return;
    }
    // As `push` does, but past what is held back for it.
    let outlet = &subscriber.outlet;
    let at_ms = expires_at_ms(turn.now_ms(), message.expiry_s);
    if message.qos == QoS::AtMostOnce {
        let sent = turn.write(outlet, |out| send_loose_now(out, form.bytes, 1, at_ms, None));
        count_loose(cells, sent);
        return;
    }
    let encoded = form.encoded(message, at_ms);
    match turn.write(outlet, |out| send_now(out, encoded)) {
        Sent::Taken => cells.count_sent(message.qos, 1),
        Sent::TooSlow => turn.close(outlet.id(), CloseReason::SlowSubscriber.into()),
    }
}

/// Whether there is nothing in a form that its subscriber takes.
#[inline]
fn is_too_large(cells: &ShardCells, subscriber: &Subscriber, form: Form<'_>) -> bool {
    if form.bytes.len() > subscriber.packet_bytes_max as usize {
        cells.count_drop(DropReason::PacketTooLarge, 1);
        return true;
    }
    form.bytes.is_empty()
}

/// Push one form; true when the publisher should pause.
#[inline]
fn push(
    turn: &mut Turn<ShardService>,
    cells: &ShardCells,
    subscriber: &Subscriber,
    form: Form<'_>,
    qos: QoS,
    message: &Outgoing<'_>,
) -> bool {
    if is_too_large(cells, subscriber, form) {
        return false;
    }
    let at_ms = expires_at_ms(turn.now_ms(), message.expiry_s);
    if qos == QoS::AtMostOnce {
        return push_loose(turn, cells, subscriber, form.bytes, 1, at_ms, message.publisher);
    }
    let outlet = &subscriber.outlet;
    let encoded = Encoded { qos, ..form.encoded(message, at_ms) };
    match turn.write(outlet, |out| send(out, encoded)) {
        Sent::Taken => cells.count_sent(qos, 1),
        Sent::TooSlow => turn.close(outlet.id(), CloseReason::SlowSubscriber.into()),
    }
    false
}

/// When a message that leaves now with `expiry_s` to go expires.
pub(crate) fn expires_at_ms(now_ms: u64, expiry_s: Option<u32>) -> u64 {
    expiry_s.map_or(u64::MAX, |expiry_s| now_ms + u64::from(expiry_s) * 1000)
}

/// Push QoS 0 packets; true when the publisher should pause.
#[inline]
pub(crate) fn push_loose(
    turn: &mut Turn<ShardService>,
    cells: &ShardCells,
    subscriber: &Subscriber,
    bytes: &[u8],
    messages: u64,
    expires_at_ms: u64,
    publisher: Option<ConnectionId>,
) -> bool {
    let sent = turn.write(&subscriber.outlet, |out| {
        send_loose(out, bytes, messages, expires_at_ms, publisher)
    });
    count_loose(cells, sent);
    sent.must_pause
}

#[inline]
pub(crate) fn count_loose(cells: &ShardCells, sent: SentLoose) {
    cells.count_sent(QoS::AtMostOnce, sent.taken);
    if sent.dropped > 0 {
        cells.count_drop(DropReason::SlowSubscriber, sent.dropped);
    }
}
