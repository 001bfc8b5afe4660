//! Carrying effects to where they happen.
//!
//! The shard that applied an entry executes what concerns no connection (`Append` is matched
//! against transient subscribers right here, in log order) and sends the rest to the shards that
//! own the connections, one mail per shard and turn, in order. An effect for a connection that is
//! gone means nothing any more, with one exception: a session that was opened for it must be told
//! that its connection is lost.

use quantumqtt_machine::{
    AckKind as MachineAck, Command, ConnectionLost, Deliver, Effect, Origin, Record, SessionEnded,
    SessionOpened, is_guest,
};
use quantumqtt_reactor::{ConnectionId, Connections, Then, Turn};
use quantumqtt_topics::Action;
use quantumqtt_wire::{
    PacketId, PacketType, Properties, Property, PropertyBlock, Publish, QoS, ReasonCode,
};

use crate::connection::{Connection, Session};
use crate::deliver::{Audience, Outgoing, deliver};
use crate::limits::DELIVERIES_WAITING_MAX;
use crate::outbound::push_publish;
use crate::packets::{write_ack, write_suback, write_unsuback};
use crate::reasons::{CloseReason, DropReason, RefusalReason};
use crate::shard::{Mail, ShardService, close, go_on};

/// The connection an effect is for; None when it is for nobody in particular.
fn addressee(effect: &Effect) -> Option<Origin> {
    match effect {
        Effect::SessionOpened(opened) => Some(opened.origin),
        Effect::OpenRefused { origin, .. }
        | Effect::Acknowledge { origin, .. }
        | Effect::Release { origin, .. } => Some(*origin),
        Effect::Subscribed(subscribed) => Some(subscribed.origin),
        Effect::Unsubscribed(unsubscribed) => Some(unsubscribed.origin),
        Effect::Deliver(deliver) => Some(deliver.origin),
        Effect::SessionEnded(ended) => ended.origin,
        Effect::Append(_) => None,
    }
}

impl ShardService {
    /// Execute what an entry of a partition of ours came to.
    pub(crate) fn dispatch(
        &mut self,
        turn: &mut Turn<Self>,
        connections: &mut Connections<Self>,
        effects: &mut Vec<Effect>,
    ) {
        for effect in effects.drain(..) {
            let effect = match effect {
                Effect::Append(record) => {
                    self.on_append(turn, &record);
                    if self.shared.message_log.is_some() {
                        self.committed.push(record);
                    }
                    continue;
                }
                effect => effect,
            };
            match &effect {
                Effect::SessionOpened(opened) => {
                    // Epoch 0: opened only to discard what was stored.
                    let is_stored = opened.session_epoch != 0;
                    if !is_guest(&opened.client_id) {
                        self.shared.registry.set_stored(&opened.client_id, is_stored);
                    }
                }
                Effect::SessionEnded(ended) if !is_guest(&ended.client_id) => {
                    self.shared.registry.set_stored(&ended.client_id, false);
                }
                _ => {}
            }
            let Some(origin) = addressee(&effect) else {
                continue;
            };
            if origin.shard == self.shard {
                self.execute(turn, connections, effect);
            } else if let Some(outbox) = self.effects_out.get_mut(usize::from(origin.shard)) {
                outbox.push(effect);
            }
        }
    }

    /// A committed publish: its transient subscribers get it now.
    fn on_append(&mut self, turn: &mut Turn<Self>, record: &Record) {
        let publisher = record.publisher.map(|origin| ConnectionId::from_bits(origin.connection));
        let message = &record.message;
        if !record.captured {
            let outgoing = Outgoing {
                topic: &message.topic,
                payload: &message.payload,
                properties: stored_properties(&message.properties),
                expiry_s: message.expiry_s,
                qos: message.qos,
                retain: record.retain,
                publisher,
            };
            let cells = &self.shared.cells[usize::from(self.shard)];
            let routes = self.router.routes(&message.topic);
            let audience = Audience::TransientOnly;
            deliver(&mut self.encoder, turn, cells, routes, &outgoing, audience);
        }
        let waits_for_commit = record.retain && message.qos == QoS::AtMostOnce;
        if let Some(id) = publisher.filter(|_| waits_for_commit) {
            turn.post(id.shard(), Mail::Committed { connection: id });
        }
    }

    /// Do to a connection of this shard what an effect says.
    pub(crate) fn execute(
        &mut self,
        turn: &mut Turn<Self>,
        connections: &mut Connections<Self>,
        effect: Effect,
    ) {
        let Some(origin) = addressee(&effect) else {
            return;
        };
        let id = ConnectionId::from_bits(origin.connection);
        let Some(connection) = connections.get_mut(id) else {
            if let Effect::SessionOpened(opened) = effect {
                self.give_back(turn, &opened);
            }
            return;
        };
        let then = match effect {
            Effect::SessionOpened(opened) if is_guest(&opened.client_id) => {
                self.on_guest_opened(turn, connection, &opened)
            }
            Effect::Subscribed(subscribed) if is_guest(&subscribed.client_id) => {
                self.on_guest_subscribed(turn, connection, &subscribed);
                Then::Continue
            }
            Effect::Unsubscribed(unsubscribed) if is_guest(&unsubscribed.client_id) => {
                self.on_guest_unsubscribed(turn, connection, &unsubscribed);
                Then::Continue
            }
            // A transient session has answered PUBREC by itself.
            Effect::Release { .. } if !connection.is_stored() => Then::Continue,
            Effect::SessionOpened(opened) => self.on_session_opened(turn, connection, &opened),
            Effect::OpenRefused { .. } => {
                self.refuse(turn, connection, RefusalReason::IdentityMismatch)
            }
            Effect::Subscribed(subscribed) => {
                for (filter, code) in subscribed.filters.iter().zip(&subscribed.codes) {
                    if !code.is_error() {
                        let id = filter.subscription_id;
                        self.index_filter(connection, &filter.filter, filter.options, id);
                        let (name, options) = (&filter.filter, filter.options);
                        self.begin_system_replay(turn, connection, name, options, id);
                    }
                }
                let codes: Vec<u8> = subscribed.codes.iter().map(|code| code.0).collect();
                if let Some(packet_id) = PacketId::new(subscribed.packet_id) {
                    let (outlet, version) = (&connection.outlet, connection.version);
                    write_suback(turn, outlet, version, packet_id, &codes);
                }
                Then::Continue
            }
            Effect::Unsubscribed(unsubscribed) => {
                for filter in &unsubscribed.filters {
                    self.unindex_filter(connection, filter);
                }
                let codes: Vec<u8> = unsubscribed.codes.iter().map(|code| code.0).collect();
                if let Some(packet_id) = PacketId::new(unsubscribed.packet_id) {
                    let (outlet, version) = (&connection.outlet, connection.version);
                    write_unsuback(turn, outlet, version, packet_id, &codes);
                }
                Then::Continue
            }
            Effect::Acknowledge { packet_id: 0, .. } => {
                // A retained QoS 0 message was refused; there is no record whose commit says so.
                connection.awaits_commit = false;
                Then::Continue
            }
            Effect::Acknowledge { kind, packet_id, reason, .. } => {
                acknowledge(turn, connection, kind, packet_id, reason);
                Then::Continue
            }
            Effect::Deliver(deliver) => self.on_deliver(turn, connection, deliver),
            Effect::Release { packet_id, reason, .. } => {
                if let Some(id) = PacketId::new(packet_id) {
                    write_ack(turn, connection, PacketType::PubRel, id, reason);
                }
                Then::Continue
            }
            Effect::SessionEnded(ended) => on_session_ended(turn, connection, &ended),
            Effect::Append(_) => Then::Continue,
        };
        go_on(turn, connection, then);
    }

    fn on_session_opened(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        opened: &SessionOpened,
    ) -> Then {
        let session = match opened.session_epoch {
            0 => Session::Transient,
            epoch => Session::Stored { epoch, incarnation: opened.incarnation },
        };
        let then = self.connected(turn, connection, session, opened.session_present);
        for stored in &opened.subscriptions {
            let id = stored.subscription_id;
            self.index_filter(connection, &stored.filter, stored.options, id);
        }
        then
    }

    /// The session was opened for a connection that has left meanwhile.
    fn give_back(&mut self, turn: &mut Turn<Self>, opened: &SessionOpened) {
        if opened.session_epoch == 0 {
            return;
        }
        let command = Command::ConnectionLost(ConnectionLost {
            client_id: &opened.client_id,
            session_epoch: opened.session_epoch,
            fire_will: true,
            expiry_s: None,
            will_grace_s: 0,
        });
        self.proposals.push(turn, &command);
    }

    /// A message for a stored session: now, or when the outlet has room.
    ///
    /// A whole window of large messages may be more than an outlet takes. They are in the state and
    /// in memory anyway, so they wait here as they are, and in order.
    fn on_deliver(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        deliver: Deliver,
    ) -> Then {
        if !connection.is_stored() {
            if !self.rights.may(connection, Action::Read, &deliver.message.topic) {
                return self.drop_forbidden(turn, connection, &deliver);
            }
            return self.deliver_to_guest(turn, connection, &deliver);
        }
        let waiting = connection.rare.as_ref().map_or(0, |rare| rare.deliveries.len());
        let has_room = turn.write(&connection.outlet, |out| !out.is_over_soft_limit());
        if waiting == 0 && has_room {
            return self.write_delivery(turn, connection, &deliver);
        }
        if deliver.qos == QoS::AtMostOnce && waiting >= DELIVERIES_WAITING_MAX {
            self.cells().count_drop(DropReason::SlowSubscriber, 1);
            return Then::Continue;
        }
        connection.rare().deliveries.push_back(deliver);
        Then::Continue
    }

    /// The outlet has room again.
    pub(crate) fn deliver_waiting(&mut self, turn: &mut Turn<Self>, connection: &mut Connection) {
        while turn.write(&connection.outlet, |out| !out.is_over_soft_limit()) {
            let next = connection.rare.as_mut().and_then(|rare| rare.deliveries.pop_front());
            let Some(deliver) = next else { return };
            let then = self.write_delivery(turn, connection, &deliver);
            if then != Then::Continue {
                return go_on(turn, connection, then);
            }
        }
    }

    fn write_delivery(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        deliver: &Deliver,
    ) -> Then {
        if !self.rights.may(connection, Action::Read, &deliver.message.topic) {
            return self.drop_forbidden(turn, connection, deliver);
        }
        self.block.clear();
        let stored = stored_properties(&deliver.message.properties);
        fill_block(&mut self.block, stored, deliver.expiry_s, &deliver.subscription_ids);
        let publish = Publish {
            dup: deliver.dup,
            qos: deliver.qos,
            retain: deliver.retain,
            topic: &deliver.message.topic,
            packet_id: deliver.packet_id.and_then(PacketId::new),
            properties: self.block.as_properties(),
            payload: &deliver.message.payload,
        };
        self.bytes.clear();
        if publish.encode(connection.version, &mut self.bytes).is_err() {
            return Then::Continue;
        }
        if self.bytes.len() > connection.packet_bytes_max as usize {
            // A backstop: the machine knows the same limit, and drops and settles what is larger.
            self.cells().count_drop(DropReason::PacketTooLarge, 1);
            return Then::Continue;
        }
        let bytes = &self.bytes;
        match turn.write(&connection.outlet, |out| push_publish(out, bytes)) {
            Ok(()) => {
                self.cells().count_sent(deliver.qos, 1);
                Then::Continue
            }
            Err(_) => close(turn, connection, CloseReason::SlowSubscriber),
        }
    }

    /// A message from the state that its reader may not read any more: settled, so that it does not
    /// hold a place in the window for ever. If a share group brought it, another member gets it.
    fn drop_forbidden(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &Connection,
        deliver: &Deliver,
    ) -> Then {
        // A QoS 2 message that was sent before may have been received [MQTT-4.8.2-5].
        let was_sent = deliver.dup && deliver.qos == QoS::ExactlyOnce;
        let goes_on = deliver.is_shared && deliver.packet_id.is_some() && !was_sent;
        if !goes_on {
            self.cells().count_drop(DropReason::NotAuthorized, 1);
        }
        if let Some(packet_id) = deliver.packet_id.and_then(PacketId::new) {
            let kind = if was_sent { MachineAck::PubRec } else { MachineAck::Declined };
            let reason = ReasonCode::NOT_AUTHORIZED;
            if connection.is_stored() {
                self.propose_client_ack(turn, connection, kind, packet_id, reason);
            } else {
                self.propose_guest_ack(turn, connection, kind, packet_id, reason);
            }
        }
        Then::Continue
    }
}

/// The machine gave the session up.
fn on_session_ended(
    turn: &mut Turn<ShardService>,
    connection: &Connection,
    ended: &SessionEnded,
) -> Then {
    let guest = connection.rare.as_ref().and_then(|rare| rare.guest.as_ref());
    let epoch = match guest.filter(|_| is_guest(&ended.client_id)) {
        Some(guest) => guest.epoch().unwrap_or(0),
        None => connection.session_ids().0,
    };
    if epoch != ended.session_epoch {
        return Then::Continue; // an earlier life of this session
    }
    close(turn, connection, CloseReason::SessionEnded)
}

/// Answer a publisher; a failure an older client cannot hear ends its connection [WIRE-05].
fn acknowledge(
    turn: &mut Turn<ShardService>,
    connection: &mut Connection,
    kind: MachineAck,
    packet_id: u16,
    reason: ReasonCode,
) {
    let Some(id) = PacketId::new(packet_id) else { return };
    if kind != MachineAck::PubComp {
        connection.proposed = connection.proposed.saturating_sub(1);
    }
    if kind != MachineAck::PubRec || reason.is_error() {
        connection.unacknowledged = connection.unacknowledged.saturating_sub(1);
    }
    if reason.is_error()
        && let Some(rare) = &mut connection.rare
    {
        rare.received_ids.remove(&packet_id);
    }
    let is_unspeakable = connection.version != quantumqtt_wire::Version::V5 && reason.is_error();
    if is_unspeakable && kind != MachineAck::PubComp {
        return turn.close(connection.id, CloseReason::SessionEnded.into());
    }
    let kind = match kind {
        MachineAck::PubAck => PacketType::PubAck,
        MachineAck::PubRec => PacketType::PubRec,
        MachineAck::PubComp => PacketType::PubComp,
        MachineAck::Declined => return, // of no use to a publisher
    };
    write_ack(turn, connection, kind, id, reason);
}

/// Properties that were validated before they were stored.
pub(crate) fn stored_properties(bytes: &[u8]) -> Properties<'_> {
    Properties::from_forwardable(bytes).unwrap_or(Properties::EMPTY)
}

/// Forwardable properties plus what belongs to this delivery; returns where the expiry ends.
pub(crate) fn fill_block(
    block: &mut PropertyBlock,
    forwardable: Properties<'_>,
    expiry_s: Option<u32>,
    subscription_ids: &[u32],
) -> Option<usize> {
    block.clear();
    forwardable.forwardable(block);
    // Neither can fail: the expiry is the only one, and identifiers came in as identifiers.
    if let Some(expiry_s) = expiry_s {
        let _ = block.push(Property::MessageExpiryInterval(expiry_s));
    }
    let expiry_ends = expiry_s.map(|_| block.as_bytes().len());
    for &id in subscription_ids {
        let _ = block.push(Property::SubscriptionId(id));
    }
    expiry_ends
}
