//! Share groups: how transient sessions take part, and who gets a `QoS` 0 message.
//!
//! Acknowledged messages of a group are handed out by the machine, to stored sessions as to
//! transient ones, or no two replicas would agree on whose turn it is (DESIGN §5). So a transient
//! session that subscribes to `$share/…` is given a *guest* there: a session under a name that no
//! client can have, which holds those subscriptions, what they brought and nothing else, and ends
//! with the connection. The steps:
//! 1. SUBSCRIBE comes; the guest is opened if there is none yet, and the connection is not read
//!    until it is;
//! 2. the shared filters are proposed for the guest; the others took effect at once, and SUBACK
//!    waits for all;
//! 3. deliveries for the guest get packet ids here like all others of the connection, and beside
//!    each stands the machine's own; acknowledgements are proposed under that one;
//! 4. the connection closes, `ConnectionLost` is proposed for the guest, and the machine gives what
//!    was not acknowledged to other members.
//!
//! `QoS` 0 takes the short way past the machine. Every member that is online stands in the node's
//! index; the trie keeps whose turn it is, for all shards. A member that is behind is passed over
//! (SUB-14), unless all are.

use std::collections::VecDeque;

use quantumqtt_machine::{
    AckKind, Command, ConnectionLost, Deliver, OpenSession, SessionOpened, Subscribe,
    SubscribeFilter, Subscribed, SubscriptionOptions, Unsubscribe, Unsubscribed,
};
use quantumqtt_reactor::{Then, Turn};
use quantumqtt_topics::Filter;
use quantumqtt_wire::{PacketId, Publish, QoS, ReasonCode};

use crate::connect::IntoOrigin;
use crate::connection::Connection;
use crate::deliver::{Audience, Delivered, Outgoing, deliver, expires_at_ms};
use crate::effects::{fill_block, stored_properties};
use crate::outbound::{Encoded, Sent, send, send_loose};
use crate::packets::{write_suback, write_unsuback};
use crate::reasons::{CloseReason, DropReason};
use crate::shard::{ShardService, close};

/// The place of a transient session in share groups.
#[derive(Debug, Default)]
pub(crate) struct Guest {
    /// Its name in the machine.
    name: Box<str>,
    /// The fence of its commands; None until the machine has opened it.
    epoch: Option<u64>,
    /// The SUBSCRIBE that asked for it.
    parked: Option<SharedSubscribe>,
    /// What SUBACK and UNSUBACK will say of filters that are not the machine's, in the order in
    /// which the others were proposed.
    answers: VecDeque<Vec<Option<ReasonCode>>>,
}

impl Guest {
    pub(crate) fn epoch(&self) -> Option<u64> {
        self.epoch
    }
}

/// The shared filters of one SUBSCRIBE, owned because they may have to wait.
#[derive(Debug)]
pub(crate) struct SharedSubscribe {
    pub(crate) packet_id: u16,
    pub(crate) subscription_id: Option<u32>,
    pub(crate) filters: Vec<(Box<str>, SubscriptionOptions)>,
    /// One code per filter of the packet, None for those above.
    pub(crate) answer: Vec<Option<ReasonCode>>,
}

impl Connection {
    /// Whether nothing may be read from it before the machine has answered.
    pub(crate) fn awaits_guest(&self) -> bool {
        let guest = self.rare.as_ref().and_then(|rare| rare.guest.as_ref());
        guest.is_some_and(|guest| guest.epoch.is_none())
    }

    fn guest(&mut self) -> Option<&mut Guest> {
        self.rare.as_mut()?.guest.as_mut()
    }
}

impl ShardService {
    /// SUBSCRIBE of a transient session with shared filters: through the machine.
    pub(crate) fn subscribe_guest(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        subscribe: SharedSubscribe,
    ) -> Then {
        match connection.guest() {
            Some(guest) if guest.epoch.is_some() => {
                self.propose_shared(turn, connection, subscribe);
                return Then::Continue;
            }
            Some(_) => return Then::Pause, // cannot be: nothing is read meanwhile
            None => {}
        }
        let (node, started) = (self.shared.node_id, self.shared.started_ms);
        let name = format!("\0{node}/{started:x}/{:x}", connection.id.to_bits());
        let receive_maximum = turn.write(&connection.outlet, |out| out.outbound.window);
        let command = Command::OpenSession(OpenSession {
            origin: connection.id.into_origin(node),
            client_id: &name,
            identity: &connection.who.user,
            level: connection.version.level(),
            clean_start: true,
            expiry_s: 0,
            receive_maximum,
            maximum_packet_bytes: connection.packet_bytes_max,
            will: None,
        });
        self.proposals.push(turn, &command);
        let (name, parked) = (name.into(), Some(subscribe));
        connection.rare().guest = Some(Guest { name, parked, ..Guest::default() });
        Then::Pause
    }

    /// The machine has opened the guest.
    pub(crate) fn on_guest_opened(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        opened: &SessionOpened,
    ) -> Then {
        let Some(guest) = connection.guest() else { return Then::Continue };
        guest.epoch = Some(opened.session_epoch);
        if let Some(subscribe) = guest.parked.take() {
            self.propose_shared(turn, connection, subscribe);
        }
        Then::Continue
    }

    fn propose_shared(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        subscribe: SharedSubscribe,
    ) {
        let origin = connection.origin(self.shared.node_id);
        let Some(guest) = connection.guest() else { return };
        guest.answers.push_back(subscribe.answer);
        let command = Command::Subscribe(Subscribe {
            origin,
            client_id: &guest.name,
            session_epoch: guest.epoch.unwrap_or(0),
            packet_id: subscribe.packet_id,
            subscription_id: subscribe.subscription_id,
            filters: subscribe.filters.iter().map(as_command).collect(),
        });
        self.proposals.push(turn, &command);
    }

    /// UNSUBSCRIBE with shared filters; false when there is no guest, so it has none of them.
    pub(crate) fn unsubscribe_guest(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        packet_id: u16,
        filters: &[&str],
    ) -> bool {
        let origin = connection.origin(self.shared.node_id);
        if connection.guest().is_none() {
            return false;
        }
        let settle = |filter: &&str| {
            let is_ours = !is_shared(filter);
            is_ours.then(|| unsubscribed(self.unindex_filter(connection, filter)))
        };
        let answer = filters.iter().map(settle).collect();
        let Some(guest) = connection.guest() else { return false };
        guest.answers.push_back(answer);
        let command = Command::Unsubscribe(Unsubscribe {
            origin,
            client_id: &guest.name,
            session_epoch: guest.epoch.unwrap_or(0),
            packet_id,
            filters: filters.iter().copied().filter(|filter| is_shared(filter)).collect(),
        });
        self.proposals.push(turn, &command);
        true
    }

    /// The machine has judged the shared filters of a SUBSCRIBE.
    pub(crate) fn on_guest_subscribed(
        &self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        subscribed: &Subscribed,
    ) {
        for (filter, code) in subscribed.filters.iter().zip(&subscribed.codes) {
            if !code.is_error() {
                let id = filter.subscription_id;
                self.index_filter(connection, &filter.filter, filter.options, id);
            }
        }
        let codes = answer(connection, &subscribed.codes);
        if let Some(packet_id) = PacketId::new(subscribed.packet_id) {
            write_suback(turn, &connection.outlet, connection.version, packet_id, &codes);
        }
    }

    /// The machine has taken the shared filters of an UNSUBSCRIBE out.
    pub(crate) fn on_guest_unsubscribed(
        &self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        unsubscribed: &Unsubscribed,
    ) {
        for filter in &unsubscribed.filters {
            self.unindex_filter(connection, filter);
        }
        let codes = answer(connection, &unsubscribed.codes);
        if let Some(packet_id) = PacketId::new(unsubscribed.packet_id) {
            write_unsuback(turn, &connection.outlet, connection.version, packet_id, &codes);
        }
    }

    /// A message of a share group for a transient session.
    pub(crate) fn deliver_to_guest(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        deliver: &Deliver,
    ) -> Then {
        self.block.clear();
        let stored = stored_properties(&deliver.message.properties);
        fill_block(&mut self.block, stored, deliver.expiry_s, &deliver.subscription_ids);
        let publish = Publish {
            dup: false,
            qos: deliver.qos,
            retain: deliver.retain,
            topic: &deliver.message.topic,
            packet_id: deliver.packet_id.map(|_| PacketId::MIN),
            properties: self.block.as_properties(),
            payload: &deliver.message.payload,
        };
        self.bytes.clear();
        let Ok(encoded) = publish.encode(connection.version, &mut self.bytes) else {
            return Then::Continue;
        };
        let bytes = &self.bytes;
        let shared_id = deliver.packet_id.and_then(PacketId::new);
        if shared_id.is_none() {
            let at_ms = expires_at_ms(turn.now_ms(), deliver.expiry_s);
            let sent = turn.write(&connection.outlet, |out| send_loose(out, bytes, 1, at_ms, None));
            self.cells().count_sent(QoS::AtMostOnce, sent.taken);
            self.cells().count_drop(DropReason::SlowSubscriber, sent.dropped);
            return Then::Continue;
        }
        let encoded = Encoded {
            bytes,
            packet_id_at: encoded.packet_id_at.unwrap_or(0),
            qos: deliver.qos,
            expiry: None,
            shared_id,
        };
        let sent = turn.write(&connection.outlet, |out| send(out, encoded));
        match sent {
            Sent::Taken => {
                self.cells().count_sent(deliver.qos, 1);
                Then::Continue
            }
            Sent::TooSlow => close(turn, connection, CloseReason::SlowSubscriber),
        }
    }

    /// A transient session has acknowledged a message that the machine gave it.
    pub(crate) fn propose_guest_ack(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &Connection,
        kind: AckKind,
        shared_id: PacketId,
        reason: ReasonCode,
    ) {
        let guest = connection.rare.as_ref().and_then(|rare| rare.guest.as_ref());
        let Some((guest, epoch)) = guest.and_then(|guest| Some((guest, guest.epoch?))) else {
            return;
        };
        let command = Command::ClientAck(quantumqtt_machine::ClientAck {
            client_id: &guest.name,
            session_epoch: epoch,
            packet_id: shared_id.get(),
            kind,
            reason,
        });
        self.proposals.push(turn, &command);
    }

    /// The connection is gone, and with it its place in share groups.
    pub(crate) fn dismiss_guest(&mut self, turn: &mut Turn<Self>, connection: &mut Connection) {
        // One that is still being opened is given back when its opening is told.
        let Some((name, epoch)) = connection.guest().and_then(|guest| {
            let epoch = guest.epoch?;
            Some((std::mem::take(&mut guest.name), epoch))
        }) else {
            return;
        };
        let command = Command::ConnectionLost(ConnectionLost {
            client_id: &name,
            session_epoch: epoch,
            fire_will: false,
            expiry_s: None,
            will_grace_s: 0,
        });
        self.proposals.push(turn, &command);
    }

    /// A `QoS` 0 message: to one online member of each share group that matches.
    pub(crate) fn deliver_to_groups(
        &mut self,
        turn: &mut Turn<Self>,
        message: &Outgoing<'_>,
    ) -> Delivered {
        let Self { router, encoder, shared, .. } = self;
        let cells = &shared.cells[usize::from(self.shard)];
        let mut delivered = Delivered::default();
        for group in 0..router.group_count() {
            let member = router.member(group, message.topic, |subscriber| {
                turn.write(&subscriber.outlet, |out| out.is_over_soft_limit())
            });
            let Some(route) = member else { continue };
            let routes = std::slice::from_ref(&route);
            let one = deliver(encoder, turn, cells, routes, message, Audience::Everyone);
            delivered.count += one.count;
            delivered.must_pause |= one.must_pause;
        }
        delivered
    }
}

/// The codes of a packet: what was settled before, filled up with what the machine says.
fn answer(connection: &mut Connection, found: &[ReasonCode]) -> Vec<u8> {
    let settled = connection.guest().and_then(|guest| guest.answers.pop_front());
    let mut found = found.iter().copied();
    match settled {
        Some(settled) => {
            let code = |code: Option<ReasonCode>| code.or_else(|| found.next());
            settled.into_iter().filter_map(code).map(|code| code.0).collect()
        }
        None => found.map(|code| code.0).collect(),
    }
}

fn as_command((filter, options): &(Box<str>, SubscriptionOptions)) -> SubscribeFilter<'_> {
    SubscribeFilter { filter, options: *options, refused: None }
}

pub(crate) fn unsubscribed(was_there: bool) -> ReasonCode {
    if was_there { ReasonCode::SUCCESS } else { ReasonCode::NO_SUBSCRIPTION_EXISTED }
}

pub(crate) fn is_shared(filter: &str) -> bool {
    Filter::parse(filter).is_ok_and(|filter| filter.share.is_some())
}
