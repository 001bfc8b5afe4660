//! Command bodies as bytes: the fields of `command.rs`, in their order.
//!
//! Writing cannot fail; reading answers a `FieldError` for anything writing would not have written.
//! A body is part of the log format: it changes only with a new command kind or apply version.

use quantumqtt_wire::{QoS, ReasonCode};

use crate::command::{
    AckKind, ClientAck, Command, ConnectionLost, DedupeKey, LeaveWill, OpenSession, Origin, PubRel,
    Publish, Source, Subscribe, SubscribeFilter, SubscriptionOptions, Unsubscribe, Will,
};
use crate::dedupe::DEDUPE_KEY_BYTES_MAX;
use crate::fields::{FieldError, FieldReader, write_bytes, write_number, write_text};
use crate::limits::{Limits, Overflow};

/// The number of each command kind on disk; never reused.
pub(crate) mod kind {
    pub(crate) const OPEN_SESSION: u8 = 1;
    pub(crate) const CONNECTION_LOST: u8 = 2;
    pub(crate) const SUBSCRIBE: u8 = 3;
    pub(crate) const UNSUBSCRIBE: u8 = 4;
    pub(crate) const PUBLISH: u8 = 5;
    pub(crate) const PUB_REL: u8 = 6;
    pub(crate) const CLIENT_ACK: u8 = 7;
    pub(crate) const TICK: u8 = 8;
    pub(crate) const SET_LIMITS: u8 = 9;
    pub(crate) const PUBACK_RUN: u8 = 10;
    pub(crate) const LEAVE_WILL: u8 = 11;
    pub(crate) const FIRST: u8 = OPEN_SESSION;
    pub(crate) const LAST: u8 = LEAVE_WILL;
}

/// How many PUBACKs one record holds at most; bounds what one record costs to apply.
pub(crate) const PUBACK_RUN_MAX: u16 = 512;

/// Appends the body of `command` and returns its kind.
pub(crate) fn write_command(out: &mut Vec<u8>, command: &Command<'_>) -> u8 {
    match command {
        Command::OpenSession(open) => write_open_session(out, open),
        Command::ConnectionLost(lost) => write_connection_lost(out, lost),
        Command::LeaveWill(left) => write_leave_will(out, left),
        Command::Subscribe(subscribe) => write_subscribe(out, subscribe),
        Command::Unsubscribe(unsubscribe) => write_unsubscribe(out, unsubscribe),
        Command::Publish(publish) => write_publish(out, publish),
        Command::PubRel(release) => write_pub_rel(out, release),
        Command::ClientAck(ack) => write_client_ack(out, ack),
        Command::Tick => kind::TICK,
        Command::SetLimits(limits) => write_limits(out, limits),
    }
}

/// Reads a whole body. `None` when the kind is not one of ours.
pub(crate) fn read_command(
    command_kind: u8,
    body: &[u8],
) -> Option<Result<Command<'_>, FieldError>> {
    let mut reader = FieldReader::new(body);
    let command = match command_kind {
        kind::OPEN_SESSION => read_open_session(&mut reader).map(Command::OpenSession),
        kind::CONNECTION_LOST => read_connection_lost(&mut reader).map(Command::ConnectionLost),
        kind::SUBSCRIBE => read_subscribe(&mut reader).map(Command::Subscribe),
        kind::UNSUBSCRIBE => read_unsubscribe(&mut reader).map(Command::Unsubscribe),
        kind::PUBLISH => read_publish(&mut reader).map(Command::Publish),
        kind::PUB_REL => read_pub_rel(&mut reader).map(Command::PubRel),
        kind::CLIENT_ACK => read_client_ack(&mut reader).map(Command::ClientAck),
        kind::TICK => Ok(Command::Tick),
        kind::SET_LIMITS => read_limits(&mut reader).map(Command::SetLimits),
        kind::LEAVE_WILL => read_leave_will(&mut reader).map(Command::LeaveWill),
        _ => return None,
    };
    Some(command.and_then(|command| reader.finish().map(|()| command)))
}

fn write_origin(out: &mut Vec<u8>, origin: Origin) {
    write_number(out, u64::from(origin.node));
    write_number(out, u64::from(origin.shard));
    write_number(out, origin.connection);
}

fn read_origin(reader: &mut FieldReader<'_>) -> Result<Origin, FieldError> {
    Ok(Origin {
        node: reader.number_u32()?,
        shard: reader.number_u16()?,
        connection: reader.number()?,
    })
}

/// A flag byte in which no bit outside `known` may stand.
fn read_flags(reader: &mut FieldReader<'_>, known: u8) -> Result<u8, FieldError> {
    let flags = reader.byte()?;
    if flags & !known == 0 { Ok(flags) } else { Err(FieldError::Range) }
}

fn qos_of(bits: u8) -> Result<QoS, FieldError> {
    QoS::from_bits(bits).ok_or(FieldError::Range)
}

const OPEN_CLEAN_START: u8 = 1;
const OPEN_HAS_WILL: u8 = 1 << 1;

fn write_open_session(out: &mut Vec<u8>, open: &OpenSession<'_>) -> u8 {
    write_origin(out, open.origin);
    write_text(out, open.client_id);
    write_text(out, open.identity);
    out.push(open.level);
    let clean_start = if open.clean_start { OPEN_CLEAN_START } else { 0 };
    out.push(clean_start | if open.will.is_some() { OPEN_HAS_WILL } else { 0 });
    write_number(out, u64::from(open.expiry_s));
    write_number(out, u64::from(open.receive_maximum));
    write_number(out, u64::from(open.maximum_packet_bytes));
    if let Some(will) = &open.will {
        write_will(out, will);
    }
    kind::OPEN_SESSION
}

fn read_open_session<'a>(reader: &mut FieldReader<'a>) -> Result<OpenSession<'a>, FieldError> {
    let origin = read_origin(reader)?;
    let client_id = reader.text()?;
    let identity = reader.text()?;
    let level = reader.byte()?;
    let flags = read_flags(reader, OPEN_CLEAN_START | OPEN_HAS_WILL)?;
    Ok(OpenSession {
        origin,
        client_id,
        identity,
        level,
        clean_start: flags & OPEN_CLEAN_START != 0,
        expiry_s: reader.number_u32()?,
        receive_maximum: reader.number_u16()?,
        maximum_packet_bytes: reader.number_u32()?,
        will: if flags & OPEN_HAS_WILL != 0 { Some(read_will(reader)?) } else { None },
    })
}

const WILL_QOS: u8 = 0b11;
const WILL_RETAIN: u8 = 1 << 2;
const WILL_HAS_EXPIRY: u8 = 1 << 3;

pub(crate) fn write_will(out: &mut Vec<u8>, will: &Will<'_>) {
    let retain = if will.retain { WILL_RETAIN } else { 0 };
    let has_expiry = if will.expiry_s.is_some() { WILL_HAS_EXPIRY } else { 0 };
    out.push(will.qos.bits() | retain | has_expiry);
    write_number(out, u64::from(will.delay_s));
    if let Some(expiry_s) = will.expiry_s {
        write_number(out, u64::from(expiry_s));
    }
    write_text(out, will.topic);
    write_bytes(out, will.properties);
    write_bytes(out, will.payload);
}

pub(crate) fn read_will<'a>(reader: &mut FieldReader<'a>) -> Result<Will<'a>, FieldError> {
    let flags = read_flags(reader, WILL_QOS | WILL_RETAIN | WILL_HAS_EXPIRY)?;
    let delay_s = reader.number_u32()?;
    let expiry_s = reader.number_u32_if(flags & WILL_HAS_EXPIRY != 0)?;
    Ok(Will {
        topic: reader.text()?,
        properties: reader.bytes()?,
        payload: reader.bytes()?,
        qos: qos_of(flags & WILL_QOS)?,
        retain: flags & WILL_RETAIN != 0,
        delay_s,
        expiry_s,
    })
}

const LOST_FIRE_WILL: u8 = 1;
const LOST_HAS_EXPIRY: u8 = 1 << 1;
const LOST_HAS_GRACE: u8 = 1 << 2;

fn write_connection_lost(out: &mut Vec<u8>, lost: &ConnectionLost<'_>) -> u8 {
    write_text(out, lost.client_id);
    write_number(out, lost.session_epoch);
    let fire_will = if lost.fire_will { LOST_FIRE_WILL } else { 0 };
    let has_expiry = if lost.expiry_s.is_some() { LOST_HAS_EXPIRY } else { 0 };
    out.push(fire_will | has_expiry | if lost.will_grace_s > 0 { LOST_HAS_GRACE } else { 0 });
    if let Some(expiry_s) = lost.expiry_s {
        write_number(out, u64::from(expiry_s));
    }
    if lost.will_grace_s > 0 {
        write_number(out, u64::from(lost.will_grace_s));
    }
    kind::CONNECTION_LOST
}

fn read_connection_lost<'a>(
    reader: &mut FieldReader<'a>,
) -> Result<ConnectionLost<'a>, FieldError> {
    let client_id = reader.text()?;
    let session_epoch = reader.number()?;
    let flags = read_flags(reader, LOST_FIRE_WILL | LOST_HAS_EXPIRY | LOST_HAS_GRACE)?;
    Ok(ConnectionLost {
        client_id,
        session_epoch,
        fire_will: flags & LOST_FIRE_WILL != 0,
        expiry_s: reader.number_u32_if(flags & LOST_HAS_EXPIRY != 0)?,
        will_grace_s: match reader.number_u32_if(flags & LOST_HAS_GRACE != 0)? {
            Some(0) => return Err(FieldError::Range), // said without a flag
            grace_s => grace_s.unwrap_or(0),
        },
    })
}

fn write_leave_will(out: &mut Vec<u8>, left: &LeaveWill<'_>) -> u8 {
    write_text(out, left.client_id);
    write_text(out, left.identity);
    write_will(out, &left.will);
    write_number(out, u64::from(left.will_grace_s));
    kind::LEAVE_WILL
}

fn read_leave_will<'a>(reader: &mut FieldReader<'a>) -> Result<LeaveWill<'a>, FieldError> {
    Ok(LeaveWill {
        client_id: reader.text()?,
        identity: reader.text()?,
        will: read_will(reader)?,
        will_grace_s: reader.number_u32()?,
    })
}

fn write_subscribe(out: &mut Vec<u8>, subscribe: &Subscribe<'_>) -> u8 {
    write_origin(out, subscribe.origin);
    write_text(out, subscribe.client_id);
    write_number(out, subscribe.session_epoch);
    write_number(out, u64::from(subscribe.packet_id));
    // Zero is no Subscription Identifier, so it says "none" [MQTT-3.8.2.1.2].
    write_number(out, u64::from(subscribe.subscription_id.unwrap_or(0)));
    for filter in &subscribe.filters {
        write_text(out, filter.filter);
        out.push(filter.options.to_byte());
        // Zero is no failure code, so it says "not refused".
        out.push(filter.refused.map_or(0, |code| code.0));
    }
    kind::SUBSCRIBE
}

fn read_subscribe<'a>(reader: &mut FieldReader<'a>) -> Result<Subscribe<'a>, FieldError> {
    let origin = read_origin(reader)?;
    let client_id = reader.text()?;
    let session_epoch = reader.number()?;
    let packet_id = reader.number_u16()?;
    let subscription_id = Some(reader.number_u32()?).filter(|&id| id != 0);
    // The list has no count: it ends where the body ends, so no count can lie.
    let mut filters = Vec::new();
    while !reader.is_empty() {
        filters.push(SubscribeFilter {
            filter: reader.text()?,
            options: SubscriptionOptions::from_byte(reader.byte()?).ok_or(FieldError::Range)?,
            refused: Some(ReasonCode(reader.byte()?)).filter(|code| code.0 != 0),
        });
    }
    Ok(Subscribe { origin, client_id, session_epoch, packet_id, subscription_id, filters })
}

fn write_unsubscribe(out: &mut Vec<u8>, unsubscribe: &Unsubscribe<'_>) -> u8 {
    write_origin(out, unsubscribe.origin);
    write_text(out, unsubscribe.client_id);
    write_number(out, unsubscribe.session_epoch);
    write_number(out, u64::from(unsubscribe.packet_id));
    for filter in &unsubscribe.filters {
        write_text(out, filter);
    }
    kind::UNSUBSCRIBE
}

fn read_unsubscribe<'a>(reader: &mut FieldReader<'a>) -> Result<Unsubscribe<'a>, FieldError> {
    let origin = read_origin(reader)?;
    let client_id = reader.text()?;
    let session_epoch = reader.number()?;
    let packet_id = reader.number_u16()?;
    let mut filters = Vec::new();
    while !reader.is_empty() {
        filters.push(reader.text()?);
    }
    Ok(Unsubscribe { origin, client_id, session_epoch, packet_id, filters })
}

const PUBLISH_QOS: u8 = 0b11;
const PUBLISH_RETAIN: u8 = 1 << 2;
const PUBLISH_DUP: u8 = 1 << 3;
const PUBLISH_CAPTURED: u8 = 1 << 4;
const PUBLISH_HAS_EXPIRY: u8 = 1 << 5;
/// Since apply version 2.
const PUBLISH_HAS_DEDUPE: u8 = 1 << 6;
const PUBLISH_FLAGS: u8 = (1 << 7) - 1;

fn write_publish(out: &mut Vec<u8>, publish: &Publish<'_>) -> u8 {
    write_origin(out, publish.origin);
    write_text(out, publish.client_id);
    write_number(out, publish.session_epoch);
    write_number(out, publish.incarnation);
    write_number(out, u64::from(publish.packet_id));
    let mut flags = publish.qos.bits();
    for (flag, is_set) in [
        (PUBLISH_RETAIN, publish.retain),
        (PUBLISH_DUP, publish.dup),
        (PUBLISH_CAPTURED, publish.captured),
        (PUBLISH_HAS_EXPIRY, publish.expiry_s.is_some()),
        (PUBLISH_HAS_DEDUPE, publish.dedupe.is_some()),
    ] {
        flags |= if is_set { flag } else { 0 };
    }
    out.push(flags);
    out.push(publish.source as u8);
    if let Some(expiry_s) = publish.expiry_s {
        write_number(out, u64::from(expiry_s));
    }
    write_text(out, publish.topic);
    write_bytes(out, publish.properties);
    write_bytes(out, publish.payload);
    if let Some(dedupe) = publish.dedupe {
        write_dedupe_key(out, dedupe);
    }
    kind::PUBLISH
}

fn read_publish<'a>(reader: &mut FieldReader<'a>) -> Result<Publish<'a>, FieldError> {
    let origin = read_origin(reader)?;
    let client_id = reader.text()?;
    let session_epoch = reader.number()?;
    let incarnation = reader.number()?;
    let packet_id = reader.number_u16()?;
    let flags = read_flags(reader, PUBLISH_FLAGS)?;
    Ok(Publish {
        origin,
        client_id,
        session_epoch,
        incarnation,
        packet_id,
        qos: qos_of(flags & PUBLISH_QOS)?,
        retain: flags & PUBLISH_RETAIN != 0,
        dup: flags & PUBLISH_DUP != 0,
        captured: flags & PUBLISH_CAPTURED != 0,
        source: Source::from_byte(reader.byte()?).ok_or(FieldError::Range)?,
        expiry_s: reader.number_u32_if(flags & PUBLISH_HAS_EXPIRY != 0)?,
        topic: reader.text()?,
        properties: reader.bytes()?,
        payload: reader.bytes()?,
        dedupe: match flags & PUBLISH_HAS_DEDUPE {
            0 => None,
            _ => Some(read_dedupe_key(reader)?),
        },
    })
}

pub(crate) fn write_dedupe_key(out: &mut Vec<u8>, dedupe: DedupeKey<'_>) {
    write_text(out, dedupe.identity);
    write_text(out, dedupe.key);
}

pub(crate) fn read_dedupe_key<'a>(
    reader: &mut FieldReader<'a>,
) -> Result<DedupeKey<'a>, FieldError> {
    let dedupe = DedupeKey { identity: reader.text()?, key: reader.text()? };
    let is_key = (1..=DEDUPE_KEY_BYTES_MAX).contains(&dedupe.key.len());
    if is_key && !dedupe.key.contains('\0') { Ok(dedupe) } else { Err(FieldError::Range) }
}

fn write_pub_rel(out: &mut Vec<u8>, release: &PubRel<'_>) -> u8 {
    write_origin(out, release.origin);
    write_text(out, release.client_id);
    write_number(out, release.session_epoch);
    write_number(out, u64::from(release.packet_id));
    kind::PUB_REL
}

fn read_pub_rel<'a>(reader: &mut FieldReader<'a>) -> Result<PubRel<'a>, FieldError> {
    Ok(PubRel {
        origin: read_origin(reader)?,
        client_id: reader.text()?,
        session_epoch: reader.number()?,
        packet_id: reader.number_u16()?,
    })
}

fn write_client_ack(out: &mut Vec<u8>, ack: &ClientAck<'_>) -> u8 {
    write_text(out, ack.client_id);
    write_number(out, ack.session_epoch);
    write_number(out, u64::from(ack.packet_id));
    out.push(ack.kind as u8);
    out.push(ack.reason.0);
    kind::CLIENT_ACK
}

fn read_client_ack<'a>(reader: &mut FieldReader<'a>) -> Result<ClientAck<'a>, FieldError> {
    Ok(ClientAck {
        client_id: reader.text()?,
        session_epoch: reader.number()?,
        packet_id: reader.number_u16()?,
        kind: AckKind::from_byte(reader.byte()?).ok_or(FieldError::Range)?,
        reason: ReasonCode(reader.byte()?),
    })
}

/// PUBACKs of one client for ids that follow each other, as one record: what reading takes apart
/// again is what was written, command by command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PubAckRun<'a> {
    pub(crate) client_id: &'a str,
    pub(crate) session_epoch: u64,
    /// The id of the first.
    pub(crate) first: u16,
    /// At least 2: one alone is written as what it is.
    pub(crate) count: u16,
}

/// The id behind `packet_id` that is next given out.
pub(crate) fn id_after(packet_id: u16) -> u16 {
    packet_id.checked_add(1).unwrap_or(1)
}

pub(crate) fn write_puback_run(out: &mut Vec<u8>, run: &PubAckRun<'_>) {
    write_text(out, run.client_id);
    write_number(out, run.session_epoch);
    write_number(out, u64::from(run.first));
    write_number(out, u64::from(run.count));
}

pub(crate) fn read_puback_run(body: &[u8]) -> Result<PubAckRun<'_>, FieldError> {
    let mut reader = FieldReader::new(body);
    let run = PubAckRun {
        client_id: reader.text()?,
        session_epoch: reader.number()?,
        first: reader.number_u16()?,
        count: reader.number_u16()?,
    };
    reader.finish()?;
    let is_sound = run.first != 0 && (2..=PUBACK_RUN_MAX).contains(&run.count);
    if is_sound { Ok(run) } else { Err(FieldError::Range) }
}

pub(crate) fn write_limits(out: &mut Vec<u8>, limits: &Limits) -> u8 {
    write_number(out, u64::from(limits.window_max));
    write_number(out, u64::from(limits.queue_count_max));
    write_number(out, limits.queue_bytes_max);
    write_number(out, u64::from(limits.subscriptions_max));
    write_number(out, u64::from(limits.received_max));
    write_number(out, limits.retained_bytes_max);
    out.push(limits.overflow as u8);
    kind::SET_LIMITS
}

pub(crate) fn read_limits(reader: &mut FieldReader<'_>) -> Result<Limits, FieldError> {
    Ok(Limits {
        window_max: reader.number_u16()?,
        queue_count_max: reader.number_u32()?,
        queue_bytes_max: reader.number()?,
        subscriptions_max: reader.number_u32()?,
        received_max: reader.number_u16()?,
        retained_bytes_max: reader.number()?,
        overflow: Overflow::from_byte(reader.byte()?).ok_or(FieldError::Range)?,
    })
}
