//! What a connection keeps beside its unsent bytes: the sending half of a transient session.
//!
//! Theory of operation. Any shard may deliver to any connection, so packet ids, the window and the
//! messages behind it stand here, under the outlet's lock. A message is encoded once; its packet id
//! is patched in while it is pushed. With room in the window it goes out and the id is remembered;
//! otherwise the encoded bytes wait, shared with other subscribers, and leave in order as
//! acknowledgements come back. Nothing is ever sent twice: a transient session ends with its
//! connection, so there is no reconnect to resend for.
//!
//! QoS 0 messages have a place of their own behind a socket that is blocked with more than the
//! soft limit waiting: there, and only there, their borders are known, so that the oldest can be
//! dropped.
//!
//! While retained messages are on their way to a new subscription, live ones are held back, or a
//! message could overtake the one it was published behind. What is held is bounded: when it is too
//! much it goes out, for order is not worth a client's connection.
//!
//! A session that is held by the machine gets its packet ids there and uses none of this.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use quantumqtt_reactor::{ConnectionId, OutletGuard, Overflow};
use quantumqtt_wire::{PacketId, QoS};

use crate::aliases::Aliases;
use crate::limits::{
    HELD_BYTES_MAX, HELD_COUNT_MAX, STALL_MS, WAITING_BYTES_MAX, WAITING_COUNT_MAX,
};

/// The sending half of one connection.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    /// How many unacknowledged messages the client takes; 0 until CONNACK.
    pub(crate) window: u16,
    in_flight: InFlight,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    /// Messages that expired here and were not counted yet.
    expired: u64,
    /// Names the client lets us shorten; None nearly always.
    pub(crate) aliases: Option<Box<Aliases>>,
    /// Packet ids in flight that came from a share group, each with the machine's own.
    shared: BTreeMap<PacketId, PacketId>,
    /// QoS 0 messages behind a blocked socket; None nearly always.
    loose: Option<Box<LooseQueue>>,
    /// Publishers whose reads are paused until this client has caught up.
    paused: BTreeSet<ConnectionId>,
    /// Live messages behind retained ones; None nearly always.
    held: Option<Box<Held>>,
    /// QoS 0 messages that were held, and were not counted yet when they went out.
    uncounted: SentLoose,
}

/// What the client still owes for a packet id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing: acknowledged, or the id 0 that no packet may have.
    Settled,
    Acknowledge,
    Receive,
    Complete,
}

/// The packet ids that the client still owes something for.
///
/// Ids are given out in rising order and mostly settled in that order too, so they are kept as one
/// run: `stages[k]` belongs to the id `first + k`. The run begins with an unsettled id or is empty,
/// and spans at most all 65,535 ids, so a new id at its end is never in use.
#[derive(Debug)]
struct InFlight {
    first: u16,
    stages: VecDeque<Stage>,
    unsettled: u16,
}

impl Default for InFlight {
    fn default() -> Self {
        Self { first: 1, stages: VecDeque::new(), unsettled: 0 }
    }
}

impl InFlight {
    /// Give out the next id, unless the run spans them all.
    fn begin(&mut self, stage: Stage) -> Option<PacketId> {
        let next = |run: &Self| run.first.wrapping_add(run.stages.len() as u16);
        match (next(self), self.stages.is_empty()) {
            (0, true) => self.first = 1,
            (0, false) => self.stages.push_back(Stage::Settled),
            _ => {}
        }
        if self.stages.len() >= usize::from(u16::MAX) {
            return None;
        }
        let id = PacketId::new(next(self))?;
        self.stages.push_back(stage);
        self.unsettled += 1;
        Some(id)
    }

    fn stage_mut(&mut self, id: PacketId) -> Option<&mut Stage> {
        let at = usize::from(id.get().wrapping_sub(self.first));
        self.stages.get_mut(at).filter(|stage| **stage != Stage::Settled)
    }

    fn settle(&mut self, id: PacketId) {
        if let Some(stage) = self.stage_mut(id) {
            *stage = Stage::Settled;
            self.unsettled -= 1;
        }
        while self.stages.front() == Some(&Stage::Settled) {
            self.stages.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        if self.stages.is_empty() && self.stages.capacity() > 1024 {
            self.stages.shrink_to(0); // a burst must not be remembered for ever
        }
    }
}

/// A QoS 1 or 2 message, encoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Encoded<'a> {
    pub(crate) bytes: &'a [u8],
    /// Where its packet id is to be put.
    pub(crate) packet_id_at: usize,
    pub(crate) qos: QoS,
    pub(crate) expiry: Option<Expiry>,
    /// What the machine calls it, if it came from a share group.
    pub(crate) shared_id: Option<PacketId>,
}

impl Encoded<'_> {
    fn into_waiting(self) -> Waiting {
        let Self { bytes, packet_id_at, qos, expiry, shared_id } = self;
        Waiting { bytes: bytes.into(), packet_id_at, qos, expiry, shared_id }
    }
}

/// When nobody wants a message any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expiry {
    pub(crate) at_ms: u64,
    /// Where the four bytes stand that say what is left of it; none before MQTT 5.
    pub(crate) value_at: Option<usize>,
}

impl Expiry {
    pub(crate) fn is_over(self, now_ms: u64) -> bool {
        self.at_ms <= now_ms
    }
}

/// One that has to wait.
#[derive(Debug)]
struct Waiting {
    bytes: Box<[u8]>,
    packet_id_at: usize,
    qos: QoS,
    expiry: Option<Expiry>,
    shared_id: Option<PacketId>,
}

impl Waiting {
    /// The message as it is to be sent now: with what is left of its expiry [MQTT-3.3.2-6].
    fn encoded(&mut self, now_ms: u64) -> Encoded<'_> {
        if let Some(Expiry { at_ms, value_at: Some(at) }) = self.expiry
            && let Some(value) = self.bytes.get_mut(at..at + 4)
        {
            let left_s = at_ms.saturating_sub(now_ms).div_ceil(1000) as u32;
            value.copy_from_slice(&left_s.to_be_bytes());
        }
        let Self { packet_id_at, qos, expiry, shared_id, .. } = *self;
        Encoded { bytes: &self.bytes, packet_id_at, qos, expiry, shared_id }
    }
}

/// The client acknowledged something we never sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnknownId;

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It is on its way, or waits its turn.
    Taken,
    /// The subscriber is too slow for what it asked for: its connection must end.
    TooSlow,
}

type Guard<'a> = OutletGuard<'a, Outbound>;

impl Outbound {
    /// Whether nothing waits behind the window.
    pub(crate) fn nothing_waits(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Messages that expired behind the window since the last time.
    pub(crate) fn take_expired(&mut self) -> u64 {
        std::mem::take(&mut self.expired)
    }

    /// What the machine calls a message of a share group whose exchange goes on.
    pub(crate) fn shared_id(&self, id: PacketId) -> Option<PacketId> {
        self.shared.get(&id).copied()
    }

    /// And of one whose exchange is over.
    pub(crate) fn take_shared_id(&mut self, id: PacketId) -> Option<PacketId> {
        self.shared.remove(&id)
    }

    fn has_room(&self) -> bool {
        self.in_flight.unsettled < self.window
    }
}

/// What became of QoS 0 messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SentLoose {
    /// So many are in the socket's buffer.
    pub(crate) taken: u64,
    /// So many were lost to this client: older ones, or these if they are larger than all bounds.
    pub(crate) dropped: u64,
    /// The client is behind but drains: the publisher should pause.
    pub(crate) must_pause: bool,
}

/// QoS 0 packets in order, the oldest first.
#[derive(Debug, Default)]
struct LooseQueue {
    packets: VecDeque<Loose>,
    bytes: usize,
}

/// One packet, or several of one publisher that arrived side by side.
#[derive(Debug)]
struct Loose {
    bytes: Box<[u8]>,
    messages: u64,
    /// `u64::MAX` for never.
    expires_at_ms: u64,
}

/// Live messages in the order in which they came.
#[derive(Debug, Default)]
struct Held {
    messages: VecDeque<HeldBack>,
    bytes: usize,
}

#[derive(Debug)]
enum HeldBack {
    Acknowledged(Waiting),
    Loose(Loose),
}

/// Keep a live message behind the retained ones. If that would be too much, all that was kept goes
/// out instead, and it is the caller's to send this one.
#[cold]
fn hold(out: &mut Guard<'_>, bytes: usize, message: impl FnOnce() -> HeldBack) -> Result<(), Sent> {
    // What goes out at once must not be more than a reader that keeps up has room for.
    let bytes_max = HELD_BYTES_MAX.min(out.limits().out_bytes_soft / 2);
    let Some(held) = &mut out.outbound.held else { return Err(Sent::Taken) };
    if held.messages.len() < HELD_COUNT_MAX && held.bytes + bytes <= bytes_max {
        held.bytes += bytes;
        held.messages.push_back(message());
        return Ok(());
    }
    Err(send_held(out))
}

/// What became of messages that were held back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LetGo {
    pub(crate) sent: Sent,
    pub(crate) loose: SentLoose,
    pub(crate) expired: u64,
}

/// From now on live messages stay behind retained ones.
pub(crate) fn hold_live(out: &mut Guard<'_>) {
    out.outbound.held.get_or_insert_default();
}

/// The retained messages are out: what was held back follows them.
pub(crate) fn let_live_go(out: &mut Guard<'_>) -> LetGo {
    let sent = send_held(out);
    let loose = std::mem::take(&mut out.outbound.uncounted);
    LetGo { sent, loose, expired: out.outbound.take_expired() }
}

#[cold]
fn send_held(out: &mut Guard<'_>) -> Sent {
    let now_ms = out.now_ms();
    let held = out.outbound.held.take();
    for message in held.into_iter().flat_map(|held| held.messages) {
        match message {
            HeldBack::Acknowledged(mut waiting) => {
                if send_now(out, waiting.encoded(now_ms)) == Sent::TooSlow {
                    return Sent::TooSlow;
                }
            }
            HeldBack::Loose(Loose { messages, expires_at_ms, .. }) if expires_at_ms <= now_ms => {
                out.outbound.expired += messages;
            }
            HeldBack::Loose(Loose { bytes, messages, expires_at_ms }) => {
                let sent = send_loose_now(out, &bytes, messages, expires_at_ms, None);
                let uncounted = &mut out.outbound.uncounted;
                uncounted.taken += sent.taken;
                uncounted.dropped += sent.dropped;
            }
        }
    }
    Sent::Taken
}

impl LooseQueue {
    fn push(&mut self, bytes: &[u8], messages: u64, expires_at_ms: u64) {
        self.bytes += bytes.len();
        self.packets.push_back(Loose { bytes: bytes.into(), messages, expires_at_ms });
    }

    fn pop(&mut self) -> Option<Loose> {
        let oldest = self.packets.pop_front()?;
        self.bytes -= oldest.bytes.len();
        Some(oldest)
    }
}

/// Push one PUBLISH, its topic shortened if the client lets us.
///
/// Several may stand side by side in `bytes` only for a client that takes no aliases.
#[inline]
pub(crate) fn push_publish(out: &mut Guard<'_>, bytes: &[u8]) -> Result<(), Overflow> {
    match out.outbound.aliases.take() {
        None => out.push(bytes),
        Some(mut aliases) => {
            let pushed = out.push(aliases.shorten(bytes));
            out.outbound.aliases = Some(aliases);
            pushed
        }
    }
}

/// Whether more may be sent to a client that is to lose nothing and be sent no more than it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// It may.
    There,
    /// The window is full, or others wait for it: an acknowledgement makes room.
    NoId,
    /// The socket takes no more: the service hears when it does.
    Blocked,
    /// The buffer is full and nobody has tried to send it: the end of the turn does.
    Unflushed,
}

/// Whether there is room for another `bytes`, with a packet id if it `needs_id`.
pub(crate) fn room(out: &Guard<'_>, needs_id: bool, bytes: usize) -> Room {
    let free = out.limits().out_bytes_max.saturating_sub(out.waiting_bytes());
    let waits = out.outbound.loose.is_some() || out.is_over_soft_limit();
    if waits || bytes > free && out.waiting_bytes() > 0 {
        if out.is_blocked() { Room::Blocked } else { Room::Unflushed }
    } else if needs_id && !(out.outbound.has_room() && out.outbound.nothing_waits()) {
        Room::NoId
    } else {
        Room::There
    }
}

/// Send QoS 0 messages that stand side by side in `bytes`.
///
/// A client that is behind but drains slows its publishers down, so that nothing is lost while it
/// reads. One that has drained nothing for a while slows nobody: it loses its oldest messages.
#[inline]
pub(crate) fn send_loose(
    out: &mut Guard<'_>,
    bytes: &[u8],
    messages: u64,
    expires_at_ms: u64,
    publisher: Option<ConnectionId>,
) -> SentLoose {
    if out.outbound.held.is_some() {
        let loose = || Loose { bytes: bytes.into(), messages, expires_at_ms };
        match hold(out, bytes.len(), || HeldBack::Loose(loose())) {
            Ok(()) => return SentLoose::default(), // counted when it goes out
            Err(Sent::TooSlow) => return SentLoose { dropped: messages, ..SentLoose::default() },
            Err(Sent::Taken) => {}
        }
    }
    send_loose_now(out, bytes, messages, expires_at_ms, publisher)
}

/// The same for a retained message, which nothing holds back.
#[inline]
pub(crate) fn send_loose_now(
    out: &mut Guard<'_>,
    bytes: &[u8],
    messages: u64,
    expires_at_ms: u64,
    publisher: Option<ConnectionId>,
) -> SentLoose {
    // Not blocked means that a flush is on its way, after which nobody would look at the queue.
    let must_queue = out.outbound.loose.is_some() || out.is_over_soft_limit() && out.is_blocked();
    if must_queue {
        return queue_loose(out, bytes, messages, expires_at_ms, publisher);
    }
    match push_publish(out, bytes) {
        Ok(()) => SentLoose { taken: messages, ..SentLoose::default() },
        Err(Overflow) => SentLoose { dropped: messages, ..SentLoose::default() },
    }
}

#[cold]
fn queue_loose(
    out: &mut Guard<'_>,
    bytes: &[u8],
    messages: u64,
    expires_at_ms: u64,
    publisher: Option<ConnectionId>,
) -> SentLoose {
    let bytes_max = out.limits().out_bytes_max.saturating_sub(out.waiting_bytes());
    let bytes_soft = out.limits().out_bytes_soft;
    let is_stalled = out.stalled_ms() >= STALL_MS;
    let mut sent = SentLoose::default();
    if !out.is_open() || bytes.len() > bytes_max {
        sent.dropped = messages;
        return sent;
    }
    let outbound = &mut *out.outbound;
    let queue = outbound.loose.get_or_insert_default();
    // Whoever takes nothing gets no more memory for it, only newer messages for older ones.
    let allowed = if is_stalled { queue.bytes.max(bytes_soft).min(bytes_max) } else { bytes_max };
    while queue.bytes + bytes.len() > allowed {
        let Some(oldest) = queue.pop() else { break };
        sent.dropped += oldest.messages;
    }
    queue.push(bytes, messages, expires_at_ms);
    if let Some(publisher) = publisher.filter(|_| !is_stalled) {
        outbound.paused.insert(publisher);
        sent.must_pause = true;
    }
    sent
}

/// What came of new room.
#[derive(Debug)]
pub(crate) struct Refilled {
    pub(crate) sent: Sent,
    /// QoS 0 messages that are in the socket's buffer now.
    pub(crate) loose: u64,
    /// Messages that waited until their expiry was over.
    pub(crate) expired: u64,
    /// Publishers that may go on.
    pub(crate) publishers: BTreeSet<ConnectionId>,
    /// Something waits although the socket is not known to be full: flush and come back.
    pub(crate) again: bool,
}

/// The socket takes bytes again: send what waits, and name the publishers that may go on.
pub(crate) fn on_room(out: &mut Guard<'_>, now_ms: u64) -> Refilled {
    let sent = send_waiting(out, now_ms);
    let loose = send_queued_loose(out, now_ms);
    let expired = std::mem::take(&mut out.outbound.expired);
    let is_empty = out.outbound.loose.is_none();
    let may_go_on = is_empty && out.has_room_again();
    let paused = &mut out.outbound.paused;
    let publishers = if may_go_on { std::mem::take(paused) } else { BTreeSet::new() };
    Refilled { sent, loose, expired, publishers, again: !is_empty && !out.is_blocked() }
}

fn send_queued_loose(out: &mut Guard<'_>, now_ms: u64) -> u64 {
    let mut messages = 0;
    while !out.is_over_soft_limit() {
        let Some(queue) = &mut out.outbound.loose else { break };
        let Some(oldest) = queue.pop() else {
            out.outbound.loose = None;
            break;
        };
        if oldest.expires_at_ms <= now_ms {
            out.outbound.expired += oldest.messages;
            continue;
        }
        // Ring and queue together are within the maximum, so it fits.
        if push_publish(out, &oldest.bytes).is_ok() {
            messages += oldest.messages;
        }
    }
    messages
}

/// Send a QoS 1 or 2 message now, or let it wait behind the window.
///
/// Its bytes are only copied (and allocated) when it has to wait.
pub(crate) fn send(out: &mut Guard<'_>, message: Encoded<'_>) -> Sent {
    if out.outbound.held.is_some() {
        match hold(out, message.bytes.len(), || HeldBack::Acknowledged(message.into_waiting())) {
            Ok(()) => return Sent::Taken,
            Err(Sent::TooSlow) => return Sent::TooSlow,
            Err(Sent::Taken) => {}
        }
    }
    send_now(out, message)
}

/// The same for a retained message, which nothing holds back.
pub(crate) fn send_now(out: &mut Guard<'_>, message: Encoded<'_>) -> Sent {
    let must_wait =
        !out.outbound.waiting.is_empty() || !out.outbound.has_room() || out.is_over_soft_limit();
    if !must_wait {
        return push_with_id(out, message);
    }
    let bytes = message.bytes.len();
    let outbound = &mut *out.outbound;
    if outbound.waiting.len() >= WAITING_COUNT_MAX
        || outbound.waiting_bytes + bytes > WAITING_BYTES_MAX
    {
        return Sent::TooSlow;
    }
    outbound.waiting_bytes += bytes;
    outbound.waiting.push_back(message.into_waiting());
    Sent::Taken
}

fn push_with_id(out: &mut Guard<'_>, message: Encoded<'_>) -> Sent {
    let Encoded { bytes, packet_id_at, qos, shared_id, .. } = message;
    let stage = if qos == QoS::ExactlyOnce { Stage::Receive } else { Stage::Acknowledge };
    let Some(id) = out.outbound.in_flight.begin(stage) else {
        return Sent::TooSlow; // one id unanswered while all others went round
    };
    if let Some(shared_id) = shared_id {
        out.outbound.shared.insert(id, shared_id);
    }
    let id = id.get().to_be_bytes();
    if out.outbound.aliases.is_some() {
        let packet = [&bytes[..packet_id_at], &id, &bytes[packet_id_at + 2..]].concat();
        return match push_publish(out, &packet) {
            Ok(()) => Sent::Taken,
            Err(Overflow) => Sent::TooSlow,
        };
    }
    let pushed = out
        .push(&bytes[..packet_id_at])
        .and_then(|()| out.push(&id))
        .and_then(|()| out.push(&bytes[packet_id_at + 2..]));
    match pushed {
        Ok(()) => Sent::Taken,
        Err(Overflow) => Sent::TooSlow,
    }
}

/// Send what waits, as far as window and buffer allow; what has expired meanwhile is not sent.
///
/// A share group's message is sent all the same: to the machine its exchange has begun
/// [MQTT-4.3.3-7].
pub(crate) fn send_waiting(out: &mut Guard<'_>, now_ms: u64) -> Sent {
    while out.outbound.has_room() && !out.is_over_soft_limit() {
        let Some(mut next) = out.outbound.waiting.pop_front() else {
            return Sent::Taken;
        };
        out.outbound.waiting_bytes -= next.bytes.len();
        let is_over = next.expiry.is_some_and(|expiry| expiry.is_over(now_ms));
        if is_over && next.shared_id.is_none() {
            out.outbound.expired += 1;
        } else if push_with_id(out, next.encoded(now_ms)) == Sent::TooSlow {
            return Sent::TooSlow;
        }
    }
    Sent::Taken
}

/// The client sent PUBACK.
pub(crate) fn on_puback(out: &mut Guard<'_>, id: PacketId) -> Result<(), UnknownId> {
    settle_from(out, id, Stage::Acknowledge)
}

/// The client sent PUBREC; a failure ends the exchange [MQTT-4.3.3-4]. True: answer with PUBREL.
pub(crate) fn on_pubrec(
    out: &mut Guard<'_>,
    id: PacketId,
    failed: bool,
) -> Result<bool, UnknownId> {
    match out.outbound.in_flight.stage_mut(id) {
        Some(Stage::Receive) if failed => {
            out.outbound.in_flight.settle(id);
            Ok(false)
        }
        Some(stage @ (Stage::Receive | Stage::Complete)) => {
            *stage = Stage::Complete;
            Ok(true)
        }
        _ => Err(UnknownId),
    }
}

/// The client sent PUBCOMP.
pub(crate) fn on_pubcomp(out: &mut Guard<'_>, id: PacketId) -> Result<(), UnknownId> {
    settle_from(out, id, Stage::Complete)
}

fn settle_from(out: &mut Guard<'_>, id: PacketId, owed: Stage) -> Result<(), UnknownId> {
    if out.outbound.in_flight.stage_mut(id).copied() != Some(owed) {
        return Err(UnknownId);
    }
    out.outbound.in_flight.settle(id);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    // req: QOS-08
    #[test]
    fn ids_skip_zero_and_those_in_use() {
        let mut run = InFlight { first: 65_534, ..InFlight::default() };
        let ids: Vec<u16> = (0..4).map(|_| run.begin(Stage::Acknowledge).unwrap().get()).collect();
        assert_eq!(ids, [65_534, 65_535, 1, 2]);
    }

    #[test]
    fn unanswered_id_is_never_given_out_again() {
        let mut run = InFlight::default();
        let stuck = run.begin(Stage::Acknowledge).unwrap();
        let mut given = 1;
        while let Some(id) = run.begin(Stage::Acknowledge) {
            assert_ne!(id, stuck);
            run.settle(id);
            given += 1;
        }
        assert!(given > 65_000, "all others went round");
        run.settle(stuck);
        assert!(run.begin(Stage::Acknowledge).is_some());
    }

    proptest! {
        // req: QOS-08
        #[test]
        fn run_of_ids_equals_a_map(
            steps in proptest::collection::vec(any::<(bool, u8)>(), 1..400),
        ) {
            let mut run = InFlight { first: 65_500, ..InFlight::default() };
            let mut model = BTreeMap::new();
            for (is_begin, pick) in steps {
                if is_begin {
                    let id = run.begin(Stage::Receive).unwrap();
                    prop_assert_eq!(model.insert(id.get(), Stage::Receive), None);
                } else if !model.is_empty() {
                    let at = usize::from(pick) % model.len();
                    let id = *model.keys().nth(at).unwrap();
                    model.remove(&id);
                    run.settle(PacketId::new(id).unwrap());
                }
                prop_assert_eq!(usize::from(run.unsettled), model.len());
                for (&id, &stage) in &model {
                    let kept = run.stage_mut(PacketId::new(id).unwrap()).map(|stage| *stage);
                    prop_assert_eq!(kept, Some(stage));
                }
                prop_assert!(run.stages.front() != Some(&Stage::Settled));
            }
        }
    }
}
