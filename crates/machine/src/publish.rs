//! Publishes: accepted once, recorded, routed, answered.
//!
//! Rules:
//! - A publish of a stored session counts only under that session's epoch. A publish of a transient
//!   one (incarnation 0) counts only while no session is stored under its client id: if one is, its
//!   connection has been taken over. Everything else is an older connection's and changes nothing.
//! - `QoS` 2 from a stored session: the packet id is held until PUBREL. A repeat in between is
//!   answered with PUBREC and nothing else happens, whatever it carries: the first content won
//!   . After PUBREL the id is free and a PUBLISH under it is a new message.
//!   Id, record and deliveries are one command, hence one atomic step of the log.
//! - A publish with a key that is known (`dedupe.rs`) is answered as if it had been published, and
//!   nothing else happens: with `QoS` 2 its packet id is held like any other's.
//! - One committed publish is one record with the next offset, and one `publish_seq`.
//! - A message is routed when it is committed. Persistent sessions are matched here; the node
//!   matches transient ones when it sees the record. A captured `QoS` 0 message was delivered
//!   before it was proposed, so it is recorded only.
//! - A share group hands each message to one member: by turns, to one that can be sent to now; else
//!   to one that is connected; else to one that can keep it. When a member's session ends, what it
//!   was given and has not finished goes to another (SUB-15), in the same command. What a member
//!   may not read goes to those who joined after it, each asked once.

use std::sync::Arc;

use bytes::Bytes;
use quantumqtt_topics::{Filter, ShareGroup};
use quantumqtt_wire::{QoS, ReasonCode};
use xxhash_rust::xxh3::Xxh3;

use crate::backlog::{Delivery, Share};
use crate::command::{AckKind, ClientAck, Origin, PubRel, Publish, Source};
use crate::effect::{Effect, EndReason, Record};
use crate::machine::Machine;
use crate::message::{Message, keep_part};
use crate::registry::Sessions;
use crate::session::{Offered, Received, Session, SessionKey, Turn};
use crate::subscribe::{Granted, merge_matches};
use crate::will::DueWill;
use crate::window::AckOutcome;

/// A message about to be committed, with what its record says about where it came from.
struct Publication {
    message: Message,
    retain: bool,
    captured: bool,
    source: Source,
    client_id: Arc<str>,
    incarnation: u64,
    session_epoch: u64,
    publisher: Option<Origin>,
}

impl Machine {
    pub(crate) fn publish(
        &mut self,
        entry: &Bytes,
        publish: &Publish<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let Ok(key) = self.publisher_of(publish) else {
            self.counters.stale_commands += 1;
            return;
        };
        let is_held = publish.qos == QoS::ExactlyOnce;
        if let Some(key) = key.filter(|_| is_held)
            && self.is_repeated(key, publish)
        {
            effects.push(answer(publish, ReasonCode::SUCCESS));
            return;
        }
        if !self.has_room_for_id(key, publish) {
            return self.refuse_publish(publish, effects);
        }
        let is_known = |dedupe| self.dedupe.is_known(dedupe, self.now_ms);
        if publish.dedupe.is_some_and(is_known) {
            self.counters.deduplicated_publishes += 1;
            if let Some(key) = key.filter(|_| is_held) {
                self.hold_packet_id(key, publish);
            }
            effects.push(answer(publish, ReasonCode::SUCCESS));
            return;
        }
        if !self.has_room_to_retain(publish) {
            return self.refuse_publish(publish, effects);
        }
        if let Some(key) = key.filter(|_| is_held) {
            self.hold_packet_id(key, publish);
        }
        if let Some(dedupe) = publish.dedupe {
            let was_pressed_out = self.dedupe.remember(dedupe, self.now_ms);
            self.counters.dedupe_keys_pressed_out += u64::from(was_pressed_out);
        }
        let client_id = key.and_then(|key| self.sessions.get(key));
        let client_id = client_id.map_or_else(|| publish.client_id.into(), |s| s.client_id.clone());
        let publication = Publication {
            message: self.message_of(entry, publish),
            retain: publish.retain,
            captured: publish.captured,
            source: publish.source,
            client_id,
            incarnation: publish.incarnation,
            session_epoch: publish.session_epoch,
            publisher: Some(publish.origin),
        };
        // The answer stands before the deliveries: there may be many of them.
        let answer = (publish.qos != QoS::AtMostOnce).then(|| answer(publish, ReasonCode::SUCCESS));
        self.commit(publication, answer, effects);
    }

    /// The stored session a publish comes from, `None` if it is transient, an error if it is stale.
    fn publisher_of(&self, publish: &Publish<'_>) -> Result<Option<SessionKey>, StalePublish> {
        let stored = self.sessions.key_of(publish.client_id);
        let epoch = stored.and_then(|key| self.sessions.get(key)).map(|session| session.epoch);
        match stored {
            None if publish.incarnation == 0 => Ok(None),
            Some(key) if publish.incarnation == key && epoch == Some(publish.session_epoch) => {
                Ok(Some(key))
            }
            _ => Err(StalePublish),
        }
    }

    fn is_repeated(&mut self, key: SessionKey, publish: &Publish<'_>) -> bool {
        let session = self.sessions.get(key);
        let held = session.and_then(|session| session.received.get(&publish.packet_id));
        let Some(held) = held else { return false };
        self.counters.duplicate_publishes += 1;
        if held.content_hash != content_hash(publish) {
            self.counters.conflicting_duplicates += 1;
        }
        true
    }

    fn refuse_publish(&mut self, publish: &Publish<'_>, effects: &mut Vec<Effect>) {
        self.counters.publishes_refused += 1;
        // At QoS 0 nobody is told, but the connection waits for the end of it.
        effects.push(answer(publish, ReasonCode::QUOTA_EXCEEDED));
    }

    fn has_room_for_id(&self, key: Option<SessionKey>, publish: &Publish<'_>) -> bool {
        let received_max = usize::from(self.limits.received_max);
        let session = key.and_then(|key| self.sessions.get(key));
        publish.qos != QoS::ExactlyOnce
            || session.is_none_or(|session| session.received.len() < received_max)
    }

    fn has_room_to_retain(&self, publish: &Publish<'_>) -> bool {
        let bytes = publish.properties.len() + publish.payload.len();
        let bytes_max = self.limits.retained_bytes_max;
        let is_stored = publish.retain && !publish.payload.is_empty();
        !is_stored || self.retained.fits(publish.topic, bytes, bytes_max)
    }

    fn hold_packet_id(&mut self, key: SessionKey, publish: &Publish<'_>) {
        let received =
            Received { publish_seq: self.next_publish_seq, content_hash: content_hash(publish) };
        self.sessions.change(key, |session| session.received.insert(publish.packet_id, received));
    }

    fn message_of(&self, entry: &Bytes, publish: &Publish<'_>) -> Message {
        Message {
            offset: self.next_offset,
            accepted_ms: self.now_ms,
            expiry_s: publish.expiry_s,
            qos: publish.qos,
            topic: publish.topic.into(),
            properties: keep_part(entry, publish.properties),
            payload: keep_part(entry, publish.payload),
        }
    }

    /// Records one message, retains it if asked, answers, routes it.
    fn commit(
        &mut self,
        publication: Publication,
        answer: Option<Effect>,
        effects: &mut Vec<Effect>,
    ) {
        let message = Arc::new(publication.message);
        let client_id = publication.client_id.clone();
        effects.push(Effect::Append(Record {
            offset: self.next_offset,
            ts_ms: self.now_ms,
            message: message.clone(),
            retain: publication.retain,
            captured: publication.captured,
            source: publication.source,
            client_id: publication.client_id,
            incarnation: publication.incarnation,
            session_epoch: publication.session_epoch,
            publish_seq: self.next_publish_seq,
            publisher: publication.publisher,
        }));
        self.next_offset += 1;
        self.next_publish_seq += 1;
        effects.extend(answer);
        if publication.retain {
            self.retain(&message);
        }
        if !publication.captured {
            self.route(&message, publication.retain, &client_id, effects);
        }
    }

    /// Offers a message to every persistent session with a matching filter, once each, and to one
    /// member of every matching share group.
    fn route(
        &mut self,
        message: &Arc<Message>,
        retain: bool,
        publisher: &str,
        effects: &mut Vec<Effect>,
    ) {
        self.subscriptions.matches(&message.topic, &mut self.found);
        if self.found.matches.is_empty() {
            return;
        }
        let own_key = self.sessions.key_of(publisher);
        let mut overflowed = Vec::new();
        let mut turn = Turn {
            now_ms: self.now_ms,
            limits: &self.limits,
            retained: &self.retained,
            counters: &mut self.counters,
        };
        for matches in self.found.matches.by_subscriber() {
            let Some(&(key, _)) = matches.first() else {
                continue;
            };
            let Some((qos, keeps_retain, ids)) = merge_matches(matches, own_key == Some(key))
            else {
                continue;
            };
            let delivery = Delivery {
                message: message.clone(),
                qos: message.qos.min(qos),
                retain: retain && keeps_retain,
                subscription_ids: ids,
                share: None,
            };
            let offered =
                self.sessions.change(key, |session| session.offer(delivery, &mut turn, effects));
            if offered == Some(Offered::Overflowed) {
                overflowed.push(key);
            }
        }
        self.route_to_groups(message, retain, &mut overflowed, effects);
        for key in overflowed {
            self.end_session(key, EndReason::Overflowed, effects);
        }
    }

    fn route_to_groups(
        &mut self,
        message: &Arc<Message>,
        retain: bool,
        overflowed: &mut Vec<SessionKey>,
        effects: &mut Vec<Effect>,
    ) {
        let mut turn = Turn {
            now_ms: self.now_ms,
            limits: &self.limits,
            retained: &self.retained,
            counters: &mut self.counters,
        };
        for &group in self.found.matches.groups() {
            let Some(group) = self.subscriptions.group(group) else {
                continue;
            };
            let full =
                offer_to_group(group, &mut self.sessions, message, retain, &mut turn, effects);
            overflowed.extend(full.filter(|key| !overflowed.contains(key)));
        }
    }

    /// Gives what a member of share groups has left unfinished to those who are still there.
    ///
    /// What is handed on was never begun, or begun at `QoS` 1 and not acknowledged. A `QoS` 2
    /// message that was begun may have been received, so nobody else gets it [MQTT-4.8.2-5].
    pub(crate) fn hand_on(
        &mut self,
        orphans: impl Iterator<Item = Delivery>,
        effects: &mut Vec<Effect>,
    ) {
        let mut overflowed = Vec::new();
        for Delivery { message, share, .. } in orphans {
            let Some(share) = share else { continue };
            let mut turn = Turn {
                now_ms: self.now_ms,
                limits: &self.limits,
                retained: &self.retained,
                counters: &mut self.counters,
            };
            if message.is_expired(turn.now_ms) {
                turn.counters.expired_messages += 1;
                continue;
            }
            // Only filters that parsed were ever stored.
            let group = Filter::parse(&share.filter)
                .ok()
                .and_then(|filter| self.subscriptions.find_group(&filter));
            let Some(group) = group.and_then(|group| self.subscriptions.group(group)) else {
                turn.counters.share_unserved += 1;
                continue;
            };
            let (sessions, retain) = (&mut self.sessions, share.retain);
            let full = offer_to_group(group, sessions, &message, retain, &mut turn, effects);
            overflowed.extend(full.filter(|key| !overflowed.contains(key)));
        }
        for key in overflowed {
            self.end_session(key, EndReason::Overflowed, effects);
        }
    }

    /// Gives what a member of a share group may not read to the next in the row who can keep it, or
    /// in the end to one that is connected.
    fn pass_on(&mut self, from: SessionKey, declined: Delivery, effects: &mut Vec<Effect>) {
        let Delivery { message, share: Some(mut share), .. } = declined else { return };
        let mut turn = Turn {
            now_ms: self.now_ms,
            limits: &self.limits,
            retained: &self.retained,
            counters: &mut self.counters,
        };
        if message.is_expired(turn.now_ms) {
            turn.counters.expired_messages += 1;
            return;
        }
        // Only filters that parsed were ever stored.
        let group = Filter::parse(&share.filter)
            .ok()
            .and_then(|filter| self.subscriptions.find_group(&filter))
            .and_then(|group| self.subscriptions.group(group));
        let Some(group) = group else {
            turn.counters.share_unserved += 1;
            return;
        };
        let is_kept = |granted: &Granted| message.qos.min(granted.options.qos) != QoS::AtMostOnce;
        let keepers = group.members().filter(|(_, granted)| is_kept(granted)).count();
        share.declined += 1;
        let chosen = if (share.declined as usize) < keepers {
            group.next_after(from, |_, granted| !is_kept(granted))
        } else {
            let is_away = |key| !self.sessions.get(key).is_some_and(Session::is_attached);
            group.next_after(from, |key, granted| is_kept(granted) || is_away(key))
        };
        let Some((key, granted)) = chosen else {
            turn.counters.share_unserved += 1;
            return;
        };
        let full =
            offer_shared(key, granted, share, &message, &mut self.sessions, &mut turn, effects);
        if let Some(key) = full {
            self.end_session(key, EndReason::Overflowed, effects);
        }
    }

    /// Publishes the wills this command has made due. Publishing one may end a session and make
    /// another due; each ends a session or takes its will, so this comes to an end.
    pub(crate) fn publish_due_wills(&mut self, effects: &mut Vec<Effect>) {
        while let Some(DueWill { will, client_id, incarnation, session_epoch }) =
            self.due_wills.pop_front()
        {
            let bytes = will.properties.len() + will.payload.len();
            let bytes_max = self.limits.retained_bytes_max;
            let fits = will.payload.is_empty() || self.retained.fits(&will.topic, bytes, bytes_max);
            let message = Message {
                offset: self.next_offset,
                accepted_ms: self.now_ms,
                expiry_s: will.expiry_s,
                qos: will.qos,
                topic: will.topic,
                properties: will.properties,
                payload: will.payload,
            };
            self.counters.wills_published += 1;
            let publication = Publication {
                message,
                // Nobody is left to be told of a full quota; the message itself still goes out.
                retain: will.retain && fits,
                captured: false,
                source: Source::Will,
                client_id,
                incarnation,
                session_epoch,
                publisher: None,
            };
            self.commit(publication, None, effects);
        }
    }

    /// The publisher's PUBREL: its packet id is free again.
    pub(crate) fn pub_rel(&mut self, release: &PubRel<'_>, effects: &mut Vec<Effect>) {
        let stored = self.sessions.key_of(release.client_id);
        let key = self.sessions.key_at_epoch(release.client_id, release.session_epoch);
        if stored.is_some() && key.is_none() {
            self.counters.stale_commands += 1;
            return;
        }
        let release_id =
            |key| self.sessions.change(key, |session| session.received.remove(&release.packet_id));
        let is_known = key.and_then(release_id).flatten().is_some();
        effects.push(Effect::Acknowledge {
            origin: release.origin,
            kind: AckKind::PubComp,
            packet_id: release.packet_id,
            reason: if is_known { ReasonCode::SUCCESS } else { ReasonCode::PACKET_ID_NOT_FOUND },
        });
    }

    /// A subscriber's acknowledgement: makes room in the window, which the backlog then fills.
    pub(crate) fn client_ack(&mut self, ack: &ClientAck<'_>, effects: &mut Vec<Effect>) {
        let Some(key) = self.sessions.key_at_epoch(ack.client_id, ack.session_epoch) else {
            self.counters.stale_commands += 1;
            return;
        };
        let mut turn = Turn {
            now_ms: self.now_ms,
            limits: &self.limits,
            retained: &self.retained,
            counters: &mut self.counters,
        };
        if ack.kind == AckKind::Declined {
            let decline = |session: &mut Session| {
                let declined = session.window.decline(ack.packet_id);
                session.pump(&mut turn, effects);
                declined
            };
            if let Some(declined) = self.sessions.change(key, decline).flatten() {
                self.pass_on(key, declined, effects);
            }
            return;
        }
        self.sessions.change(key, |session| {
            let outcome = match ack.kind {
                AckKind::PubAck => session.window.on_puback(ack.packet_id),
                AckKind::PubRec => session.window.on_pubrec(ack.packet_id, ack.reason.is_error()),
                AckKind::PubComp => session.window.on_pubcomp(ack.packet_id),
                AckKind::Declined => AckOutcome::Unknown, // was met above
            };
            let is_pubrec = ack.kind == AckKind::PubRec && !ack.reason.is_error();
            let reason = match outcome {
                AckOutcome::Release => Some(ReasonCode::SUCCESS),
                AckOutcome::Unknown if is_pubrec => Some(ReasonCode::PACKET_ID_NOT_FOUND),
                AckOutcome::Unknown | AckOutcome::Finished => None,
            };
            if let (Some(reason), Some(attachment)) = (reason, session.attachment) {
                let origin = attachment.origin;
                effects.push(Effect::Release { origin, packet_id: ack.packet_id, reason });
            }
            session.pump(&mut turn, effects);
        });
    }
}

/// Gives one message to one member, by turns: one that can be sent to now; else one that is
/// connected; else one that can keep it. Returns the member if its backlog is full.
fn offer_to_group(
    group: &ShareGroup<SessionKey, Granted>,
    sessions: &mut Sessions,
    message: &Arc<Message>,
    retain: bool,
    turn: &mut Turn<'_>,
    effects: &mut Vec<Effect>,
) -> Option<SessionKey> {
    let is_away = |key| !sessions.get(key).is_some_and(Session::is_attached);
    let is_busy = |key| !sessions.get(key).is_some_and(Session::takes_at_once);
    let is_kept_for = |qos: QoS| message.qos.min(qos) != QoS::AtMostOnce;
    let chosen = group
        .next_round_robin(|key, granted| {
            is_away(key) || is_kept_for(granted.options.qos) && is_busy(key)
        })
        .or_else(|| group.next_round_robin(|key, _| is_away(key)))
        .or_else(|| group.next_round_robin(|_, granted| !is_kept_for(granted.options.qos)));
    let Some((key, granted)) = chosen else {
        turn.counters.share_unserved += 1;
        return None;
    };
    let filter = granted.shared.clone()?;
    let share = Share { filter, retain, declined: 0 };
    offer_shared(key, granted, share, message, sessions, turn, effects)
}

/// Gives a message of a share group to this member, which is returned if its backlog is full.
fn offer_shared(
    key: SessionKey,
    granted: &Granted,
    share: Share,
    message: &Arc<Message>,
    sessions: &mut Sessions,
    turn: &mut Turn<'_>,
    effects: &mut Vec<Effect>,
) -> Option<SessionKey> {
    let qos = message.qos.min(granted.options.qos);
    let keeps_retain = granted.options.retain_as_published;
    let mut delivery = Delivery::new(message.clone(), qos, share.retain && keeps_retain);
    delivery.subscription_ids.extend(granted.subscription_id);
    delivery.share = Some(share);
    let offered = sessions.change(key, |session| session.offer(delivery, turn, effects));
    (offered == Some(Offered::Overflowed)).then_some(key)
}

/// A publish of a connection that its session no longer has.
struct StalePublish;

fn answer(publish: &Publish<'_>, reason: ReasonCode) -> Effect {
    let kind = match publish.qos {
        QoS::ExactlyOnce => AckKind::PubRec,
        QoS::AtMostOnce | QoS::AtLeastOnce => AckKind::PubAck,
    };
    Effect::Acknowledge { origin: publish.origin, kind, packet_id: publish.packet_id, reason }
}

/// Tells two contents under one packet id apart; lengths keep the parts from running together.
fn content_hash(publish: &Publish<'_>) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&(publish.topic.len() as u64).to_le_bytes());
    hash.update(publish.topic.as_bytes());
    hash.update(publish.payload);
    hash.digest()
}
