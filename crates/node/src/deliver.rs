//! One message to many subscribers: encode once per form, patch what differs, push.
//!
//! A *form* is what subscribers can share byte for byte: version, QoS, retain flag. Of a form's
//! bytes only the packet id differs between them, and it is patched while pushing. Subscribers with
//! subscription identifiers get an encoding of their own.

use std::sync::Arc;

use quantumqtt_reactor::{ConnectionId, Outlet, Turn};
use quantumqtt_wire::{PacketId, Properties, PropertyBlock, Publish, QoS, Version};

use crate::effects::fill_block;
use crate::index::Route;
use crate::outbound::{Outbound, Sent, send};
use crate::reasons::{CloseReason, DropReason};
use crate::shard::ShardService;
use crate::statistics::ShardCells;

/// A message on its way to subscribers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    pub(crate) topic: &'a str,
    pub(crate) payload: &'a [u8],
    /// Forwardable publish properties: no alias, no expiry, no subscription identifier.
    pub(crate) properties: Properties<'a>,
    /// What is left of the message expiry.
    pub(crate) expiry_s: Option<u32>,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    /// Who published it, for No Local.
    pub(crate) publisher: Option<ConnectionId>,
}

/// Which of the routes get it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Everybody online: the QoS 0 path.
    Everyone,
    /// Transient sessions: the machine has served the stored ones.
    TransientOnly,
}

#[derive(Debug, Default)]
struct Form {
    bytes: Vec<u8>,
    packet_id_at: usize,
    is_encoded: bool,
}

/// Reused buffers for the forms of the message at hand.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    /// Indexed by version (5 or not), QoS and retain flag.
    forms: [Form; 12],
    single: Form,
    block: PropertyBlock,
}

impl Encoder {
    /// Forget the last message, keep the memory.
    fn begin(&mut self) {
        for form in &mut self.forms {
            form.is_encoded = false;
        }
    }

    fn form(
        &mut self,
        message: &Outgoing<'_>,
        version: Version,
        qos: QoS,
        retain: bool,
        subscription_ids: &[u32],
    ) -> &Form {
        let is_v5 = version == Version::V5;
        if is_v5 && !subscription_ids.is_empty() {
            encode(
                &mut self.single,
                &mut self.block,
                message,
                version,
                qos,
                retain,
                subscription_ids,
            );
            return &self.single;
        }
        let at = usize::from(is_v5) * 6 + qos as usize * 2 + usize::from(retain);
        let form = &mut self.forms[at];
        if !form.is_encoded {
            encode(form, &mut self.block, message, version, qos, retain, &[]);
        }
        form
    }
}

fn encode(
    form: &mut Form,
    block: &mut PropertyBlock,
    message: &Outgoing<'_>,
    version: Version,
    qos: QoS,
    retain: bool,
    subscription_ids: &[u32],
) {
    form.bytes.clear();
    let mut properties = Properties::EMPTY;
    if version == Version::V5 {
        properties = message.properties;
        if message.expiry_s.is_some() || !subscription_ids.is_empty() {
            fill_block(block, message.properties, message.expiry_s, subscription_ids);
            properties = block.as_properties();
        }
    }
    let publish = Publish {
        dup: false,
        qos,
        retain,
        topic: message.topic,
        packet_id: (qos != QoS::AtMostOnce).then_some(PacketId::MIN),
        properties,
        payload: message.payload,
    };
    // What was decoded within limits encodes; if it ever does not, nothing is sent.
    match publish.encode(version, &mut form.bytes) {
        Ok(encoded) => form.packet_id_at = encoded.packet_id_at.unwrap_or(0),
        Err(_) => form.bytes.clear(),
    }
    form.is_encoded = true;
}

/// Push `message` to every route of the audience; returns how many it was for.
pub(crate) fn deliver(
    encoder: &mut Encoder,
    turn: &mut Turn<ShardService>,
    cells: &ShardCells,
    routes: &[Route],
    message: &Outgoing<'_>,
    audience: Audience,
) -> usize {
    encoder.begin();
    let mut count = 0;
    for route in routes {
        let subscriber = &route.subscriber;
        let is_own = message.publisher == Some(route.id);
        if subscriber.options.no_local && is_own {
            continue;
        }
        if audience == Audience::TransientOnly && subscriber.is_stored {
            continue;
        }
        count += 1;
        let qos = message.qos.min(subscriber.options.qos);
        // A live message loses its retain flag unless the subscriber asked to see it.
        let retain = message.retain && subscriber.options.retain_as_published;
        let form = encoder.form(message, subscriber.version, qos, retain, &route.subscription_ids);
        push(turn, cells, &subscriber.outlet, form, qos);
    }
    count
}

/// Push one retained message to one new subscriber.
pub(crate) fn deliver_retained(
    encoder: &mut Encoder,
    turn: &mut Turn<ShardService>,
    cells: &ShardCells,
    outlet: &Arc<Outlet<Outbound>>,
    version: Version,
    message: &Outgoing<'_>,
    subscription_id: Option<u32>,
) {
    encoder.begin();
    let ids = subscription_id.as_slice();
    let form = encoder.form(message, version, message.qos, true, ids);
    push(turn, cells, outlet, form, message.qos);
}

fn push(
    turn: &mut Turn<ShardService>,
    cells: &ShardCells,
    outlet: &Arc<Outlet<Outbound>>,
    form: &Form,
    qos: QoS,
) {
    if form.bytes.is_empty() {
        return;
    }
    let outcome = turn.write(outlet, |out| {
        if form.bytes.len() > out.outbound.packet_bytes_max as usize {
            return Err(DropReason::PacketTooLarge);
        }
        if qos != QoS::AtMostOnce {
            return Ok(send(out, &form.bytes, form.packet_id_at, qos));
        }
        if out.is_over_soft_limit() || out.push(&form.bytes).is_err() {
            return Err(DropReason::SlowSubscriber);
        }
        Ok(Sent::Taken)
    });
    match outcome {
        Ok(Sent::Taken) => cells.count_sent(qos),
        Ok(Sent::TooSlow) => turn.close(outlet.id(), CloseReason::SlowSubscriber.into()),
        Err(reason) => cells.count_drop(reason),
    }
}
