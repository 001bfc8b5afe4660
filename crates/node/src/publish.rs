//! What a connected client publishes and acknowledges.
//!
//! QoS 0 goes straight from the read buffer to everybody online. The rest becomes a command: it is
//! acknowledged and delivered when the entry it stands in is committed. A *retained* QoS 0 publish
//! takes that way too, and its connection is not read until then, so that later messages of the
//! same publisher cannot overtake it (DESIGN §4, Order).

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use quantumqtt_machine::{
    AckKind as MachineAck, ClientAck, Command, DEDUPE_KEY_BYTES_MAX, DedupeKey, LeaveWill, PubRel,
    Source,
};
use quantumqtt_reactor::{Then, Turn};
use quantumqtt_topics::Action;
use quantumqtt_wire::{
    Ack, AckKind, PacketId, PacketType, PropertyId, Publish, QoS, ReasonCode, Version,
};

use crate::connection::Connection;
use crate::deliver::{Audience, Delivered, Outgoing, deliver};
use crate::limits::{ALIAS_BYTES_MAX, DEDUPE_KEY, RECEIVED_IDS_MAX, STALL_MS};
use crate::outbound::{Sent, on_puback, on_pubcomp, on_pubrec, send_waiting};
use crate::packets::{write_ack, write_ack_why};
use crate::reasons::{CloseReason, DropReason};
use crate::shard::{ShardService, close};
use crate::will::Will;

impl ShardService {
    pub(crate) fn on_publish(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        publish: &Publish<'_>,
    ) -> Then {
        if publish.properties.contains(PropertyId::SubscriptionId) {
            // Only a server sends it [MQTT-3.3.4-6].
            return close(turn, connection, CloseReason::ProtocolError);
        }
        self.cells().count_received(publish.qos, 1);
        let topic = match self.resolve_alias(connection, publish) {
            Ok(topic) => topic,
            Err(reason) => return close(turn, connection, reason),
        };
        if !self.rights.may(connection, Action::Write, &topic) {
            return self.refuse_publish(turn, connection, publish, &topic);
        }
        let Some(packet_id) = publish.packet_id else {
            return self.on_unacknowledged_publish(turn, connection, publish, &topic);
        };
        let is_exactly_once = publish.qos == QoS::ExactlyOnce;
        let dedupe_key = dedupe_key(publish);
        if dedupe_key.is_some_and(|key| !(1..=DEDUPE_KEY_BYTES_MAX).contains(&key.len())) {
            // As below: nothing of it is kept.
            let kind = if is_exactly_once { AckKind::PubRec } else { AckKind::PubAck };
            let reason = ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR;
            let why = "a qmq-dedupe-key has 1 to 256 bytes";
            write_ack_why(turn, connection, kind, packet_id, reason, why);
            return Then::Continue;
        }
        if self.shared.pressure.is_full() && connection.version == Version::V5 {
            // Nothing of it is kept, so the id is free again [MQTT-4.3.3-9].
            let kind = if is_exactly_once { PacketType::PubRec } else { PacketType::PubAck };
            write_ack(turn, connection, kind, packet_id, ReasonCode::QUOTA_EXCEEDED);
            return Then::Continue;
        }
        if is_exactly_once && !connection.is_stored() {
            let received_ids = &mut connection.rare().received_ids;
            if received_ids.contains(&packet_id.get()) {
                // Sent again before PUBREL: the same message, already taken [MQTT-4.3.3-10].
                write_ack(turn, connection, PacketType::PubRec, packet_id, ReasonCode::SUCCESS);
                return Then::Continue;
            }
            if received_ids.len() >= RECEIVED_IDS_MAX {
                return close(turn, connection, CloseReason::ReceiveMaximumExceeded);
            }
            received_ids.insert(packet_id.get());
        }
        let may_send = self.shared.limits.receive_maximum;
        let is_bound = connection.version == Version::V5 && !self.shared.tolerates_excess;
        if is_bound && connection.unacknowledged >= may_send {
            return close(turn, connection, CloseReason::ReceiveMaximumExceeded);
        }
        if dedupe_key.is_none() && self.may_skip_the_log(connection, publish) {
            return self.deliver_and_acknowledge(turn, connection, publish, &topic, packet_id);
        }
        connection.unacknowledged = connection.unacknowledged.saturating_add(1);
        connection.proposed = connection.proposed.saturating_add(1);
        self.propose_publish(turn, connection, publish, &topic, dedupe_key);
        self.hold_if_too_much_waits(connection)
    }

    /// Without durability a publish needs the machine only for what the machine keeps: retained
    /// messages, stored publishers' exchanges, stored subscribers. If none of them is concerned,
    /// the entry would change nothing and is not made.
    ///
    /// Nor may anything of this client still wait for its commit, or it would be overtaken.
    fn may_skip_the_log(&self, connection: &Connection, publish: &Publish<'_>) -> bool {
        self.shared.log.is_none()
            && !publish.retain
            && !connection.is_stored()
            && connection.proposed == 0
            && self.shared.stored_subscriptions.load(Ordering::Acquire) == 0
    }

    /// The short way of an acknowledged publish: out and answered in the same turn.
    fn deliver_and_acknowledge(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        publish: &Publish<'_>,
        topic: &str,
        packet_id: PacketId,
    ) -> Then {
        let message = Outgoing {
            topic,
            payload: publish.payload,
            properties: publish.properties,
            expiry_s: publish.properties.message_expiry_s(),
            qos: publish.qos,
            retain: false,
            publisher: Some(connection.id),
        };
        let delivered = self.route_now(turn, &message);
        let is_told = delivered.count == 0 && connection.version == Version::V5;
        let reason =
            if is_told { ReasonCode::NO_MATCHING_SUBSCRIBERS } else { ReasonCode::SUCCESS };
        let kind = if publish.qos == QoS::ExactlyOnce {
            connection.unacknowledged = connection.unacknowledged.saturating_add(1);
            PacketType::PubRec
        } else {
            PacketType::PubAck
        };
        write_ack(turn, connection, kind, packet_id, reason);
        pause_if(turn, connection, delivered.must_pause)
    }

    fn on_unacknowledged_publish(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        publish: &Publish<'_>,
        topic: &str,
    ) -> Then {
        if publish.retain {
            self.propose_publish(turn, connection, publish, topic, None);
            connection.awaits_commit = true;
            return Then::Pause; // until it is committed
        }
        let message = Outgoing {
            topic,
            payload: publish.payload,
            properties: publish.properties,
            expiry_s: publish.properties.message_expiry_s(),
            qos: QoS::AtMostOnce,
            retain: false,
            publisher: Some(connection.id),
        };
        let delivered = self.route_now(turn, &message);
        pause_if(turn, connection, delivered.must_pause)
    }

    /// Straight to everybody online.
    pub(crate) fn route_now(&mut self, turn: &mut Turn<Self>, message: &Outgoing<'_>) -> Delivered {
        // An acknowledged message takes this way only while the machine has no subscriptions. Who
        // is stored and has just subscribed is not told of what came before its SUBACK.
        let is_loose = message.qos == QoS::AtMostOnce;
        let audience = if is_loose { Audience::Everyone } else { Audience::TransientOnly };
        let Self { router, encoder, shared, .. } = self;
        let cells = &shared.cells[usize::from(self.shard)];
        let routes = router.routes(message.topic);
        let delivered = deliver(encoder, turn, cells, routes, message, audience);
        if !is_loose || self.router.group_count() == 0 {
            return delivered;
        }
        let shared = self.deliver_to_groups(turn, message);
        Delivered {
            count: delivered.count + shared.count,
            must_pause: delivered.must_pause || shared.must_pause,
        }
    }

    fn propose_publish(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &Connection,
        publish: &Publish<'_>,
        topic: &str,
        dedupe_key: Option<&str>,
    ) {
        self.block.clear();
        publish.properties.forwardable(&mut self.block);
        let (session_epoch, incarnation) = connection.session_ids();
        let command = Command::Publish(quantumqtt_machine::Publish {
            origin: connection.origin(self.shared.node_id),
            client_id: &connection.client_id,
            session_epoch,
            incarnation,
            packet_id: publish.packet_id.map_or(0, PacketId::get),
            qos: publish.qos,
            retain: publish.retain,
            dup: publish.dup,
            captured: false,
            dedupe: dedupe_key.map(|key| DedupeKey { identity: &connection.who.user, key }),
            source: Source::Mqtt,
            expiry_s: publish.properties.message_expiry_s(),
            topic,
            properties: self.block.as_bytes(),
            payload: publish.payload,
        });
        self.proposals.push(turn, &command);
    }

    /// The topic a publish means: its own, or the one its alias was set to [MQTT-3.3.2-12].
    fn resolve_alias<'a>(
        &self,
        connection: &mut Connection,
        publish: &Publish<'a>,
    ) -> Result<Cow<'a, str>, CloseReason> {
        let Some(alias) = publish.properties.topic_alias() else {
            return Ok(Cow::Borrowed(publish.topic));
        };
        if alias > self.shared.limits.topic_alias_max {
            return Err(CloseReason::TopicAliasInvalid);
        }
        let rare = connection.rare();
        if publish.topic.is_empty() {
            let topic = rare.aliases.get(&alias).ok_or(CloseReason::TopicAliasInvalid)?;
            return Ok(Cow::Owned(topic.to_string()));
        }
        let replaced = rare.aliases.insert(alias, publish.topic.into());
        rare.alias_bytes += publish.topic.len();
        rare.alias_bytes -= replaced.map_or(0, |topic| topic.len());
        if rare.alias_bytes > ALIAS_BYTES_MAX {
            return Err(CloseReason::TopicAliasesTooLarge);
        }
        Ok(Cow::Borrowed(publish.topic))
    }

    /// The will of a transient session that we ended ourselves, for as long as the client may need
    /// to return. Without a log it is lost with the node, as everything is.
    pub(crate) fn leave_will(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &Connection,
        will: &Will,
    ) {
        if self.shared.log.is_none() {
            return;
        }
        // From now on whoever comes by this name is put to the machine.
        self.shared.registry.set_stored(&connection.client_id, true);
        let command = Command::LeaveWill(LeaveWill {
            client_id: &connection.client_id,
            identity: &connection.who.user,
            will: will.as_command(),
            will_grace_s: self.shared.limits.will_grace_s,
        });
        self.proposals.push(turn, &command);
    }

    /// The will of a transient session whose connection is gone.
    pub(crate) fn publish_will(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &Connection,
        will: &Will,
    ) {
        if will.qos == QoS::AtMostOnce && !will.retain {
            let message = Outgoing {
                topic: &will.topic,
                payload: &will.payload,
                properties: will.publish_properties(),
                expiry_s: will.expiry_s,
                qos: will.qos,
                retain: false,
                publisher: None,
            };
            self.route_now(turn, &message);
            return;
        }
        let command = Command::Publish(quantumqtt_machine::Publish {
            origin: connection.origin(self.shared.node_id),
            client_id: &connection.client_id,
            session_epoch: 0,
            incarnation: 0,
            packet_id: 0,
            qos: will.qos,
            retain: will.retain,
            dup: false,
            captured: false,
            dedupe: None,
            source: Source::Will,
            expiry_s: will.expiry_s,
            topic: &will.topic,
            properties: &will.properties,
            payload: &will.payload,
        });
        self.proposals.push(turn, &command);
    }

    /// PUBREL: the publisher lets its packet id go.
    pub(crate) fn on_pubrel(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        ack: &Ack<'_>,
    ) -> Then {
        if connection.is_stored() {
            let (session_epoch, _) = connection.session_ids();
            let command = Command::PubRel(PubRel {
                origin: connection.origin(self.shared.node_id),
                client_id: &connection.client_id,
                session_epoch,
                packet_id: ack.packet_id.get(),
            });
            self.proposals.push(turn, &command);
            return Then::Continue;
        }
        let was_open = connection.rare().received_ids.remove(&ack.packet_id.get());
        let reason = if was_open { ReasonCode::SUCCESS } else { ReasonCode::PACKET_ID_NOT_FOUND };
        connection.unacknowledged = connection.unacknowledged.saturating_sub(was_open.into());
        write_ack(turn, connection, PacketType::PubComp, ack.packet_id, reason);
        Then::Continue
    }

    /// PUBACK, PUBREC or PUBCOMP: the client has something we sent.
    pub(crate) fn on_client_ack(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        kind: AckKind,
        ack: &Ack<'_>,
    ) -> Then {
        if connection.is_stored() {
            let kind = machine_kind(kind);
            self.propose_client_ack(turn, connection, kind, ack.packet_id, ack.reason);
            return Then::Continue;
        }
        let id = ack.packet_id;
        let (mut release, mut shared_id, mut expired) = (None, None, 0);
        let now_ms = turn.now_ms();
        let sent = turn.write(&connection.outlet, |out| {
            // An id we do not know is the client's confusion, not a reason to cut it off: 3.x
            // has no answer for it, and only PUBREC has one in MQTT 5.
            match kind {
                AckKind::PubAck if on_puback(out, id).is_ok() => {
                    shared_id = out.outbound.take_shared_id(id);
                }
                AckKind::PubComp if on_pubcomp(out, id).is_ok() => {
                    shared_id = out.outbound.take_shared_id(id);
                }
                AckKind::PubAck | AckKind::PubComp => {}
                AckKind::PubRec | AckKind::PubRel => {
                    let is_over = ack.reason.is_error();
                    release = match on_pubrec(out, id, is_over) {
                        Ok(true) => Some(ReasonCode::SUCCESS),
                        Ok(false) => None,
                        Err(_) => Some(ReasonCode::PACKET_ID_NOT_FOUND),
                    };
                    shared_id = if is_over {
                        out.outbound.take_shared_id(id)
                    } else {
                        out.outbound.shared_id(id)
                    };
                }
            }
            let sent = send_waiting(out, now_ms);
            expired = out.outbound.take_expired();
            sent
        });
        if expired > 0 {
            self.cells().count_drop(DropReason::Expired, expired);
        }
        if let Some(reason) = release {
            write_ack(turn, connection, PacketType::PubRel, id, reason);
        }
        if let Some(shared_id) = shared_id {
            let kind = machine_kind(kind);
            self.propose_guest_ack(turn, connection, kind, shared_id, ack.reason);
        }
        self.go_on_with_replay(turn, connection);
        self.play_on(turn, connection);
        match sent {
            Sent::Taken => Then::Continue,
            Sent::TooSlow => close(turn, connection, CloseReason::SlowSubscriber),
        }
    }

    pub(crate) fn propose_client_ack(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &Connection,
        kind: MachineAck,
        packet_id: PacketId,
        reason: ReasonCode,
    ) {
        let (session_epoch, _) = connection.session_ids();
        let command = Command::ClientAck(ClientAck {
            client_id: &connection.client_id,
            session_epoch,
            packet_id: packet_id.get(),
            kind,
            reason,
        });
        self.proposals.push(turn, &command);
    }
}

/// The key under which an acknowledged publish counts once, if it has one; the first of several.
///
/// Whether there is any user property is known without a look at the block, so a publish without
/// one pays a comparison of bits.
fn dedupe_key<'a>(publish: &Publish<'a>) -> Option<&'a str> {
    if !publish.properties.contains(PropertyId::UserProperty) {
        return None;
    }
    let mut named = publish.properties.user_properties().filter(|(name, _)| *name == DEDUPE_KEY);
    named.next().map(|(_, key)| key)
}

pub(crate) fn machine_kind(kind: AckKind) -> MachineAck {
    match kind {
        AckKind::PubAck => MachineAck::PubAck,
        AckKind::PubRec | AckKind::PubRel => MachineAck::PubRec,
        AckKind::PubComp => MachineAck::PubComp,
    }
}

/// Stop reading a publisher whose subscriber is behind, but never for long: by then the subscriber
/// has caught up, or it has stalled and loses messages instead of slowing anybody down.
pub(crate) fn pause_if(
    turn: &mut Turn<ShardService>,
    connection: &mut Connection,
    must_pause: bool,
) -> Then {
    if !must_pause {
        return Then::Continue;
    }
    connection.paused_until_ms = turn.now_ms() + STALL_MS;
    turn.set_deadline(connection.id, connection.paused_until_ms);
    Then::Pause
}
