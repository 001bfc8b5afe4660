//! Sessions: what is kept of a client, and how it opens, is taken over, is left and ends.
//!
//! Two numbers, two roles (X-06):
//! - `session_epoch` names an attachment to a connection. Every opening gets a new one, higher than
//!   any before it in the partition, so a command that carries another than the present one comes
//!   from an older connection and changes nothing (SES-18).
//! - `incarnation` names the life of a session, from its creation to its end. It is carried across
//!   resumes and takeovers together with everything that is unfinished, and is never used twice. It
//!   is also the key under which the partition holds the session.
//!
//! States:
//!
//! ```text
//!            open                    lost                   open
//!   (none) ───────► attached ──────────────────► detached ───────► attached
//!                    │    ▲  open: takeover         │  deadlines: will, session expiry
//!                    │    └──── new epoch           │
//!                    └──────────── end ◄────────────┘
//!     clean start · expiry 0 and lost · expired · backlog overflow
//! ```
//!
//! Takeover, in order: the new client is who the session belongs to, or is refused while the old
//! connection stays; the old connection's will goes out or is dropped (`will.rs`); the epoch rises,
//! which fences whatever the old connection still has in the log; the session is attached to the
//! new origin; `SessionOpened` names the previous one; then releases and messages are repeated in
//! their original order, then the backlog (SES-20). A clean start ends the session first, so there
//! is nothing to repeat, and another incarnation begins.
//!
//! A client that asks for nothing to be kept (expiry 0) and finds nothing kept is not stored at
//! all: `SessionOpened` says so with incarnation 0.
//!
//! A *guest* is the exception: the session of one connection, which ends with it, under a name that
//! begins with a null character, as no client id can. A transient session is one where it takes
//! part in share groups, for whose turn it is must be the same on every replica (DESIGN §5).
//!
//! Time. A session's own expiry and its will's delay are checked when its client returns, besides
//! at each tick: a tick that was late must not resurrect what MQTT says has ended [MQTT-4.1.0-1],
//! nor cancel a will whose delay was over [MQTT-3.1.2-8].

use std::collections::BTreeMap;
use std::sync::Arc;

use quantumqtt_topics::Filter;
use quantumqtt_wire::{QoS, ReasonCode};

use crate::backlog::{Backlog, Delivery};
use crate::command::{ConnectionLost, EXPIRY_NEVER_S, LeaveWill, OpenSession, Origin};
use crate::effect::{Deliver, Effect, EndReason, SessionEnded, SessionOpened};
use crate::expiry::Deadline;
use crate::limits::{Limits, Overflow};
use crate::machine::Machine;
use crate::replay::Replay;
use crate::retained::Retained;
use crate::statistics::Counters;
use crate::subscription_set::SubscriptionSet;
use crate::will::{DueWill, StoredWill};
use crate::window::{Repeat, Window};

/// The incarnation, as key.
pub(crate) type SessionKey = u64;

/// Whether a session of this name is a guest; see the head of `session.rs`.
pub fn is_guest(client_id: &str) -> bool {
    client_id.starts_with('\0')
}

/// The connection a session is attached to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attachment {
    pub(crate) origin: Origin,
    pub(crate) level: u8,
    pub(crate) maximum_packet_bytes: u32,
}

/// An inbound `QoS` 2 exchange that waits for its PUBREL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) publish_seq: u64,
    /// Tells a repeat from a different message under the same id (X-05).
    pub(crate) content_hash: u64,
}

/// See the head of this file. A clone shares what may be large; `checkpoint/copies.rs` says why.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) client_id: Arc<str>,
    pub(crate) incarnation: SessionKey,
    pub(crate) epoch: u64,
    /// Who owns it; empty until an authenticated client has opened it.
    pub(crate) identity: Box<str>,
    pub(crate) attachment: Option<Attachment>,
    pub(crate) expiry_s: u32,
    /// Set while detached, unless the session never expires.
    pub(crate) expires_at_ms: Option<u64>,
    pub(crate) detached_at_ms: Option<u64>,
    pub(crate) will: Option<StoredWill>,
    /// Set while detached with a will that waits.
    pub(crate) will_due_ms: Option<u64>,
    /// The will waits because the server itself has ended the connection; see `will.rs`.
    pub(crate) will_is_deferred: bool,
    pub(crate) subscriptions: SubscriptionSet,
    pub(crate) window: Window,
    pub(crate) backlog: Backlog,
    /// Packet ids of inbound `QoS` 2 publishes until their PUBREL (X-04).
    pub(crate) received: BTreeMap<u16, Received>,
    /// Retained messages still to be sent, a subscription each, in the order of subscribing.
    pub(crate) replays: Vec<Replay>,
}

/// What became of a delivery that was offered to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offered {
    /// Sent, kept, or rightly dropped.
    Settled,
    /// The backlog is full and the policy is to end the session.
    Overflowed,
}

impl Session {
    fn new(client_id: &str, incarnation: SessionKey) -> Self {
        Self {
            client_id: client_id.into(),
            incarnation,
            epoch: 0,
            identity: "".into(),
            attachment: None,
            expiry_s: 0,
            expires_at_ms: None,
            detached_at_ms: None,
            will: None,
            will_due_ms: None,
            will_is_deferred: false,
            subscriptions: SubscriptionSet::default(),
            window: Window::new(),
            backlog: Backlog::default(),
            received: BTreeMap::new(),
            replays: Vec::new(),
        }
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.attachment.is_some()
    }

    /// Whether a message offered now would be sent now.
    pub(crate) fn takes_at_once(&self) -> bool {
        self.is_attached() && self.backlog.is_empty() && self.window.admits()
    }

    /// Whether its own expiry is over; it may be kept for longer, for its will.
    fn is_expired(&self, now_ms: u64) -> bool {
        let detached_at_ms = self.detached_at_ms.filter(|_| self.expires_at_ms.is_some());
        detached_at_ms.is_some_and(|at_ms| after(at_ms, self.expiry_s) <= now_ms)
    }

    /// Sends `delivery`, keeps it, or drops it, as `QoS` and limits say.
    pub(crate) fn offer(
        &mut self,
        delivery: Delivery,
        turn: &mut Turn<'_>,
        effects: &mut Vec<Effect>,
    ) -> Offered {
        if delivery.qos == QoS::AtMostOnce {
            if self.is_attached() {
                self.send(None, delivery, false, turn, effects);
            } else {
                turn.counters.offline_qos0_dropped += 1;
            }
            return Offered::Settled;
        }
        if self.takes_at_once() {
            self.begin(delivery, turn, effects);
            return Offered::Settled;
        }
        if !self.keep_room_for(&delivery, turn) {
            return match turn.limits.overflow {
                Overflow::ExpireSession => Offered::Overflowed,
                Overflow::DropNewest | Overflow::DropOldest => {
                    turn.counters.overflow_dropped += 1;
                    Offered::Settled
                }
            };
        }
        self.backlog.push(delivery);
        Offered::Settled
    }

    /// Whether the backlog has room, after making some as far as the policy allows.
    fn keep_room_for(&mut self, delivery: &Delivery, turn: &mut Turn<'_>) -> bool {
        let Limits { queue_count_max, queue_bytes_max, overflow, .. } = *turn.limits;
        if self.backlog.fits(delivery, queue_count_max, queue_bytes_max) {
            return true;
        }
        turn.counters.expired_messages += self.backlog.drop_expired(turn.now_ms);
        // What would not fit into an empty backlog must not empty this one in vain.
        let fits_alone = Backlog::default().fits(delivery, queue_count_max, queue_bytes_max);
        if overflow == Overflow::DropOldest && fits_alone {
            while !self.backlog.fits(delivery, queue_count_max, queue_bytes_max) {
                self.backlog.pop();
                turn.counters.overflow_dropped += 1;
            }
        }
        self.backlog.fits(delivery, queue_count_max, queue_bytes_max)
    }

    /// Sends whatever the window has room for: first what an earlier connection began, then the
    /// backlog, then retained messages that new subscriptions wait for, each in order.
    pub(crate) fn pump(&mut self, turn: &mut Turn<'_>, effects: &mut Vec<Effect>) {
        if !self.is_attached() {
            return;
        }
        while let Some((packet_id, delivery)) = self.window.take_unsent() {
            self.send(Some(packet_id), delivery, true, turn, effects);
        }
        while self.window.admits() {
            let Some(delivery) = self.backlog.pop() else {
                self.run_replays(turn, effects);
                return;
            };
            if delivery.message.is_expired(turn.now_ms) {
                turn.counters.expired_messages += 1;
                continue;
            }
            self.begin(delivery, turn, effects);
        }
    }

    /// Begins an exchange; the window has room.
    pub(crate) fn begin(
        &mut self,
        delivery: Delivery,
        turn: &mut Turn<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let packet_id = self.window.begin(delivery.clone());
        self.send(Some(packet_id), delivery, false, turn, effects);
    }

    /// Sends one PUBLISH to the attached connection. One that is larger than the client takes is
    /// dropped as if it had been acknowledged [MQTT-3.1.2-25].
    pub(crate) fn send(
        &mut self,
        packet_id: Option<u16>,
        delivery: Delivery,
        dup: bool,
        turn: &mut Turn<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(attachment) = self.attachment else {
            return;
        };
        if delivery.packet_bytes(attachment.level) > u64::from(attachment.maximum_packet_bytes) {
            turn.counters.oversized_dropped += 1;
            if let Some(packet_id) = packet_id {
                self.window.discard(packet_id);
            }
            return;
        }
        effects.push(Effect::Deliver(Deliver {
            origin: attachment.origin,
            session_epoch: self.epoch,
            packet_id,
            qos: delivery.qos,
            retain: delivery.retain,
            dup,
            expiry_s: delivery.message.remaining_s(turn.now_ms),
            subscription_ids: delivery.subscription_ids,
            is_shared: delivery.share.is_some(),
            message: delivery.message,
        }));
    }

    /// Attaches the session to the connection that opened it, under a new epoch.
    fn attach(&mut self, open: &OpenSession<'_>, epoch: u64) {
        self.epoch = epoch;
        self.attachment = Some(Attachment {
            origin: open.origin,
            level: open.level,
            maximum_packet_bytes: open.maximum_packet_bytes,
        });
        if self.identity.is_empty() {
            self.identity = open.identity.into();
        }
        self.expiry_s = open.expiry_s;
        self.detached_at_ms = None;
        self.will_is_deferred = false;
        self.will = open.will.as_ref().map(StoredWill::keep);
    }

    /// Repeats what is unfinished, then sends what waits.
    fn resume(&mut self, receive_maximum: u16, turn: &mut Turn<'_>, effects: &mut Vec<Effect>) {
        let Some(Attachment { origin, .. }) = self.attachment else {
            return;
        };
        let maximum = receive_maximum.min(turn.limits.window_max).max(1);
        for repeat in self.window.resume(maximum) {
            match repeat {
                Repeat::Publish(packet_id, delivery) => {
                    self.send(Some(packet_id), delivery, true, turn, effects);
                }
                Repeat::Release(packet_id) => {
                    let reason = ReasonCode::SUCCESS;
                    effects.push(Effect::Release { origin, packet_id, reason });
                }
            }
        }
        self.pump(turn, effects);
    }
}

/// What every step of one command sees alike.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    pub(crate) now_ms: u64,
    pub(crate) limits: &'a Limits,
    pub(crate) retained: &'a Retained,
    pub(crate) counters: &'a mut Counters,
}

impl Machine {
    pub(crate) fn open_session(&mut self, open: &OpenSession<'_>, effects: &mut Vec<Effect>) {
        let mut found = self.sessions.key_of(open.client_id);
        if let Some(key) = found {
            self.drop_deferred_will(key, open.identity);
        }
        let is_late = |session: &Session| session.is_expired(self.now_ms);
        if let Some(key) = found.filter(|&key| self.sessions.get(key).is_some_and(is_late)) {
            self.end_session(key, EndReason::Expired, effects);
            found = None;
        }
        let stored = found.and_then(|key| self.sessions.get(key));
        if stored.is_some_and(|session| belongs_to_another(session, open.identity)) {
            self.counters.opens_refused += 1;
            let reason = ReasonCode::NOT_AUTHORIZED;
            effects.push(Effect::OpenRefused { origin: open.origin, reason });
            return;
        }
        let attachment = stored.and_then(|session| session.attachment);
        let previous = attachment.map(|attachment| attachment.origin);
        match found {
            Some(key) if !open.clean_start => self.take_over(key),
            Some(key) => {
                self.detach_silently(key);
                self.end_session(key, EndReason::Discarded, effects);
                found = None;
            }
            None => {}
        }
        match found {
            Some(key) => self.attach_session(key, true, previous, open, effects),
            None if open.expiry_s == 0 && !is_guest(open.client_id) => {
                effects.push(not_stored(open, previous));
            }
            None => {
                self.last_incarnation += 1;
                let key = self.last_incarnation;
                self.sessions.insert(Session::new(open.client_id, key));
                self.attach_session(key, false, previous, open, effects);
            }
        }
    }

    /// The client is back in time: what the server ended is forgotten.
    fn drop_deferred_will(&mut self, key: SessionKey, identity: &str) {
        let now_ms = self.now_ms;
        self.sessions.change(key, |session| {
            let is_due = session.will_due_ms.is_none_or(|at_ms| at_ms <= now_ms);
            let is_back = session.will_is_deferred && !belongs_to_another(session, identity);
            if is_back && !is_due {
                session.will = None;
            }
        });
    }

    /// Ends what the previous opening of a session that goes on has left: its will and deadlines.
    fn take_over(&mut self, key: SessionKey) {
        let now_ms = self.now_ms;
        let is_due = |session: &mut Session| {
            let was_due = session.will_due_ms.is_some_and(|at_ms| at_ms <= now_ms);
            let will = session.will.take();
            will.filter(|will| was_due || session.is_attached() && will.delay_s == 0)
        };
        let will = self.sessions.change(key, is_due).flatten();
        self.cancel_deadlines(key);
        if let Some(will) = will {
            self.will_is_due(key, will);
        }
    }

    /// The connection of a discarded session is closed as the previous one of the new opening.
    fn detach_silently(&mut self, key: SessionKey) {
        self.sessions.change(key, |session| session.attachment = None);
    }

    fn attach_session(
        &mut self,
        key: SessionKey,
        session_present: bool,
        previous: Option<Origin>,
        open: &OpenSession<'_>,
        effects: &mut Vec<Effect>,
    ) {
        self.last_epoch += 1;
        let session_epoch = self.last_epoch;
        let mut turn = Turn {
            now_ms: self.now_ms,
            limits: &self.limits,
            retained: &self.retained,
            counters: &mut self.counters,
        };
        self.sessions.change(key, |session| {
            session.attach(open, session_epoch);
            effects.push(Effect::SessionOpened(SessionOpened {
                origin: open.origin,
                client_id: session.client_id.clone(),
                session_present,
                session_epoch,
                incarnation: key,
                subscriptions: session.subscriptions.iter().cloned().collect(),
                previous,
            }));
            session.resume(open.receive_maximum, &mut turn, effects);
        });
    }

    pub(crate) fn connection_lost(&mut self, lost: &ConnectionLost<'_>, effects: &mut Vec<Effect>) {
        let key = self.sessions.key_at_epoch(lost.client_id, lost.session_epoch);
        let is_attached =
            |&key: &SessionKey| self.sessions.get(key).is_some_and(Session::is_attached);
        if let Some(key) = key.filter(|key| !is_attached(key) && !lost.fire_will) {
            return self.take_back_will(key);
        }
        let Some(key) = key.filter(is_attached) else {
            self.counters.stale_commands += 1;
            return;
        };
        let now_ms = self.now_ms;
        self.sessions.change(key, |session| {
            session.attachment = None;
            session.detached_at_ms = Some(now_ms);
            session.expiry_s = lost.expiry_s.unwrap_or(session.expiry_s);
            session.will = session.will.take().filter(|_| lost.fire_will);
        });
        self.schedule_detached(key, lost.will_grace_s, effects);
    }

    /// A transient session leaves its will; see `will.rs`.
    pub(crate) fn leave_will(&mut self, left: &LeaveWill<'_>) {
        if self.sessions.key_of(left.client_id).is_some() {
            self.counters.stale_commands += 1;
            return;
        }
        self.last_epoch += 1;
        self.last_incarnation += 1;
        let key = self.last_incarnation;
        let mut session = Session::new(left.client_id, key);
        session.epoch = self.last_epoch;
        session.identity = left.identity.into();
        session.will = Some(StoredWill::keep(&left.will));
        session.detached_at_ms = Some(self.now_ms);
        self.sessions.insert(session);
        // It has a will, so with a grace there is nothing to be told.
        self.schedule_detached(key, left.will_grace_s.max(1), &mut Vec::new());
    }

    /// The connection was lost before, and its will still waits: it will not go out after all.
    fn take_back_will(&mut self, key: SessionKey) {
        let take = |session: &mut Session| {
            session.will = None;
            session.will_is_deferred = false;
            session.will_due_ms.take()
        };
        match self.sessions.change(key, take).flatten() {
            Some(at_ms) => self.deadlines.remove(at_ms, Deadline::Will(key)),
            None => self.counters.stale_commands += 1,
        }
    }

    /// Sets the deadlines of a session that has just been left, or meets those already due.
    fn schedule_detached(&mut self, key: SessionKey, grace_s: u32, effects: &mut Vec<Effect>) {
        let Some(session) = self.sessions.get(key) else {
            return;
        };
        let expiry_s = session.expiry_s;
        let will_wait_s = session.will.as_ref().map(|will| will.delay_s.max(grace_s));
        let will_is_deferred = will_wait_s.is_some() && grace_s > 0;
        if expiry_s == 0 && !will_is_deferred {
            self.end_session(key, EndReason::Closed, effects);
            return;
        }
        if will_wait_s == Some(0) {
            self.fire_will_of(key);
        }
        let after_s = |seconds: u32| after(self.now_ms, seconds);
        let will_due_ms = will_wait_s.filter(|&wait_s| wait_s > 0).map(after_s);
        let kept_until_ms = will_due_ms.filter(|_| will_is_deferred).unwrap_or(0);
        let expires_at_ms =
            (expiry_s != EXPIRY_NEVER_S).then(|| after_s(expiry_s).max(kept_until_ms));
        self.sessions.change(key, |session| {
            session.will_is_deferred = will_is_deferred;
            session.will_due_ms = will_due_ms;
            session.expires_at_ms = expires_at_ms;
        });
        if let Some(at_ms) = will_due_ms {
            self.deadlines.insert(at_ms, Deadline::Will(key));
        }
        if let Some(at_ms) = expires_at_ms {
            self.deadlines.insert(at_ms, Deadline::Session(key));
        }
    }

    fn cancel_deadlines(&mut self, key: SessionKey) {
        let taken = self
            .sessions
            .change(key, |session| (session.will_due_ms.take(), session.expires_at_ms.take()));
        let Some((will_due_ms, expires_at_ms)) = taken else {
            return;
        };
        if let Some(at_ms) = will_due_ms {
            self.deadlines.remove(at_ms, Deadline::Will(key));
        }
        if let Some(at_ms) = expires_at_ms {
            self.deadlines.remove(at_ms, Deadline::Session(key));
        }
    }

    /// Publishes the will a session holds, if it does, at the end of this command.
    pub(crate) fn fire_will_of(&mut self, key: SessionKey) {
        let take = |session: &mut Session| {
            session.will_due_ms = None;
            session.will_is_deferred = false;
            session.will.take()
        };
        if let Some(will) = self.sessions.change(key, take).flatten() {
            self.will_is_due(key, will);
        }
    }

    fn will_is_due(&mut self, key: SessionKey, will: StoredWill) {
        let Some(session) = self.sessions.get(key) else {
            return;
        };
        self.due_wills.push_back(DueWill {
            will,
            client_id: session.client_id.clone(),
            incarnation: key,
            session_epoch: session.epoch,
        });
    }

    /// Removes a session and everything that refers to it; publishes the will it still holds.
    pub(crate) fn end_session(
        &mut self,
        key: SessionKey,
        reason: EndReason,
        effects: &mut Vec<Effect>,
    ) {
        self.cancel_deadlines(key);
        self.fire_will_of(key);
        let Some(session) = self.sessions.remove(key) else {
            return;
        };
        for subscription in session.subscriptions.iter() {
            // Only filters that parsed were ever stored.
            if let Ok(filter) = Filter::parse(&subscription.filter) {
                self.subscriptions.remove(&filter, key);
            }
        }
        self.counters.count_end(reason);
        effects.push(Effect::SessionEnded(SessionEnded {
            client_id: session.client_id.clone(),
            session_epoch: session.epoch,
            origin: session.attachment.map(|attachment| attachment.origin),
            reason,
        }));
        let begun = session.window.into_deliveries().filter(|begun| !begun.is_exactly_once());
        self.hand_on(begun.chain(session.backlog.into_deliveries()), effects);
    }
}

fn after(now_ms: u64, seconds: u32) -> u64 {
    now_ms.saturating_add(u64::from(seconds) * 1000)
}

/// A session that nobody authenticated has opened so far belongs to whoever comes.
fn belongs_to_another(session: &Session, identity: &str) -> bool {
    !session.identity.is_empty() && *session.identity != *identity
}

fn not_stored(open: &OpenSession<'_>, previous: Option<Origin>) -> Effect {
    Effect::SessionOpened(SessionOpened {
        origin: open.origin,
        client_id: open.client_id.into(),
        session_present: false,
        session_epoch: 0,
        incarnation: 0,
        subscriptions: Vec::new(),
        previous,
    })
}
