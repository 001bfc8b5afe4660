//! Commands, read from Python values by attribute and shown as records.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use quantumqtt_machine::{
    AckKind, ClientAck, Command, ConnectionLost, DedupeKey, EntryBuilder, LeaveWill, Limits,
    OpenSession, Origin, Overflow, PubRel, Publish, RetainHandling, Source, Subscribe,
    SubscribeFilter, SubscriptionOptions, Unsubscribe, Will,
};
use quantumqtt_wire::{QoS, ReasonCode};

use super::{NamedRecord, fields};
use crate::errors;

/// Node, shard, connection.
pub(super) type OriginFields = (u32, u16, u64);

fn origin_from((node, shard, connection): OriginFields) -> Origin {
    Origin { node, shard, connection }
}

pub(super) fn origin_fields(origin: Origin) -> OriginFields {
    (origin.node, origin.shard, origin.connection)
}

#[derive(FromPyObject)]
struct WillFields {
    topic: String,
    properties: Vec<u8>,
    payload: Vec<u8>,
    qos: u8,
    retain: bool,
    delay_s: u32,
    expiry_s: Option<u32>,
}

#[derive(FromPyObject)]
struct OpenSessionFields {
    origin: OriginFields,
    client_id: String,
    identity: String,
    level: u8,
    clean_start: bool,
    expiry_s: u32,
    receive_maximum: u16,
    maximum_packet_bytes: u32,
    will: Option<WillFields>,
}

#[derive(FromPyObject)]
struct ConnectionLostFields {
    client_id: String,
    session_epoch: u64,
    fire_will: bool,
    expiry_s: Option<u32>,
    will_grace_s: u32,
}

#[derive(FromPyObject)]
struct LeaveWillFields {
    client_id: String,
    identity: String,
    will: WillFields,
    will_grace_s: u32,
}

#[derive(FromPyObject)]
struct FilterFields {
    filter: String,
    qos: u8,
    no_local: bool,
    retain_as_published: bool,
    retain_handling: u8,
    refused: Option<u8>,
}

#[derive(FromPyObject)]
struct SubscribeFields {
    origin: OriginFields,
    client_id: String,
    session_epoch: u64,
    packet_id: u16,
    subscription_id: Option<u32>,
    filters: Vec<FilterFields>,
}

#[derive(FromPyObject)]
struct UnsubscribeFields {
    origin: OriginFields,
    client_id: String,
    session_epoch: u64,
    packet_id: u16,
    filters: Vec<String>,
}

#[derive(FromPyObject)]
struct PublishFields {
    origin: OriginFields,
    client_id: String,
    session_epoch: u64,
    incarnation: u64,
    packet_id: u16,
    qos: u8,
    retain: bool,
    dup: bool,
    captured: bool,
    dedupe: Option<(String, String)>,
    expiry_s: Option<u32>,
    topic: String,
    properties: Vec<u8>,
    payload: Vec<u8>,
}

#[derive(FromPyObject)]
struct PubRelFields {
    origin: OriginFields,
    client_id: String,
    session_epoch: u64,
    packet_id: u16,
}

#[derive(FromPyObject)]
struct ClientAckFields {
    client_id: String,
    session_epoch: u64,
    packet_id: u16,
    kind: String,
    reason: u8,
}

#[derive(FromPyObject)]
struct LimitsFields {
    window_max: u16,
    queue_count_max: u32,
    queue_bytes_max: u64,
    subscriptions_max: u32,
    received_max: u16,
    retained_bytes_max: u64,
    overflow: String,
}

fn qos_from(bits: u8) -> PyResult<QoS> {
    QoS::from_bits(bits).ok_or_else(|| errors::no_such("QoS", &bits.to_string()))
}

fn ack_kind_from(name: &str) -> PyResult<AckKind> {
    match name {
        "puback" => Ok(AckKind::PubAck),
        "pubrec" => Ok(AckKind::PubRec),
        "pubcomp" => Ok(AckKind::PubComp),
        "declined" => Ok(AckKind::Declined),
        _ => Err(errors::no_such("acknowledgement", name)),
    }
}

pub(super) fn ack_kind_name(kind: AckKind) -> &'static str {
    match kind {
        AckKind::PubAck => "puback",
        AckKind::PubRec => "pubrec",
        AckKind::PubComp => "pubcomp",
        AckKind::Declined => "declined",
    }
}

fn retain_handling_from(bits: u8) -> PyResult<RetainHandling> {
    match bits {
        0 => Ok(RetainHandling::Send),
        1 => Ok(RetainHandling::SendIfNew),
        2 => Ok(RetainHandling::DoNotSend),
        _ => Err(errors::no_such("retain handling", &bits.to_string())),
    }
}

pub(super) fn read_limits(limits: &Bound<'_, PyAny>) -> PyResult<Limits> {
    let fields: LimitsFields = limits.extract()?;
    let overflow = match fields.overflow.as_str() {
        "expire_session" => Overflow::ExpireSession,
        "drop_oldest" => Overflow::DropOldest,
        "drop_newest" => Overflow::DropNewest,
        name => return Err(errors::no_such("overflow policy", name)),
    };
    Ok(Limits {
        window_max: fields.window_max,
        queue_count_max: fields.queue_count_max,
        queue_bytes_max: fields.queue_bytes_max,
        subscriptions_max: fields.subscriptions_max,
        received_max: fields.received_max,
        retained_bytes_max: fields.retained_bytes_max,
        overflow,
    })
}

/// Adds the command a Python value stands for; its class names the kind.
pub(super) fn push(builder: &mut EntryBuilder, command: &Bound<'_, PyAny>) -> PyResult<()> {
    let name = command.get_type().name()?;
    match name.to_str()? {
        "OpenSession" => push_open_session(builder, &command.extract()?),
        "ConnectionLost" => {
            let fields: ConnectionLostFields = command.extract()?;
            add(
                builder,
                &Command::ConnectionLost(ConnectionLost {
                    client_id: &fields.client_id,
                    session_epoch: fields.session_epoch,
                    fire_will: fields.fire_will,
                    expiry_s: fields.expiry_s,
                    will_grace_s: fields.will_grace_s,
                }),
            )
        }
        "LeaveWill" => {
            let fields: LeaveWillFields = command.extract()?;
            add(
                builder,
                &Command::LeaveWill(LeaveWill {
                    client_id: &fields.client_id,
                    identity: &fields.identity,
                    will: will_of(&fields.will)?,
                    will_grace_s: fields.will_grace_s,
                }),
            )
        }
        "Subscribe" => push_subscribe(builder, &command.extract()?),
        "Unsubscribe" => {
            let fields: UnsubscribeFields = command.extract()?;
            add(
                builder,
                &Command::Unsubscribe(Unsubscribe {
                    origin: origin_from(fields.origin),
                    client_id: &fields.client_id,
                    session_epoch: fields.session_epoch,
                    packet_id: fields.packet_id,
                    filters: fields.filters.iter().map(String::as_str).collect(),
                }),
            )
        }
        "Publish" => push_publish(builder, &command.extract()?),
        "PubRel" => {
            let fields: PubRelFields = command.extract()?;
            add(
                builder,
                &Command::PubRel(PubRel {
                    origin: origin_from(fields.origin),
                    client_id: &fields.client_id,
                    session_epoch: fields.session_epoch,
                    packet_id: fields.packet_id,
                }),
            )
        }
        "ClientAck" => {
            let fields: ClientAckFields = command.extract()?;
            add(
                builder,
                &Command::ClientAck(ClientAck {
                    client_id: &fields.client_id,
                    session_epoch: fields.session_epoch,
                    packet_id: fields.packet_id,
                    kind: ack_kind_from(&fields.kind)?,
                    reason: ReasonCode(fields.reason),
                }),
            )
        }
        "Tick" => add(builder, &Command::Tick),
        "SetLimits" => add(builder, &Command::SetLimits(read_limits(&command.getattr("limits")?)?)),
        name => Err(errors::no_such("command", name)),
    }
}

fn add(builder: &mut EntryBuilder, command: &Command<'_>) -> PyResult<()> {
    builder.push(command).map_err(errors::from_entry)
}

fn will_of(will: &WillFields) -> PyResult<Will<'_>> {
    Ok(Will {
        topic: &will.topic,
        properties: &will.properties,
        payload: &will.payload,
        qos: qos_from(will.qos)?,
        retain: will.retain,
        delay_s: will.delay_s,
        expiry_s: will.expiry_s,
    })
}

fn push_open_session(builder: &mut EntryBuilder, fields: &OpenSessionFields) -> PyResult<()> {
    let will = fields.will.as_ref().map(will_of).transpose()?;
    add(
        builder,
        &Command::OpenSession(OpenSession {
            origin: origin_from(fields.origin),
            client_id: &fields.client_id,
            identity: &fields.identity,
            level: fields.level,
            clean_start: fields.clean_start,
            expiry_s: fields.expiry_s,
            receive_maximum: fields.receive_maximum,
            maximum_packet_bytes: fields.maximum_packet_bytes,
            will,
        }),
    )
}

fn push_subscribe(builder: &mut EntryBuilder, fields: &SubscribeFields) -> PyResult<()> {
    let filters = fields.filters.iter().map(|asked| {
        Ok(SubscribeFilter {
            filter: &asked.filter,
            options: SubscriptionOptions {
                qos: qos_from(asked.qos)?,
                no_local: asked.no_local,
                retain_as_published: asked.retain_as_published,
                retain_handling: retain_handling_from(asked.retain_handling)?,
            },
            refused: asked.refused.map(ReasonCode),
        })
    });
    add(
        builder,
        &Command::Subscribe(Subscribe {
            origin: origin_from(fields.origin),
            client_id: &fields.client_id,
            session_epoch: fields.session_epoch,
            packet_id: fields.packet_id,
            subscription_id: fields.subscription_id,
            filters: filters.collect::<PyResult<_>>()?,
        }),
    )
}

fn push_publish(builder: &mut EntryBuilder, fields: &PublishFields) -> PyResult<()> {
    add(
        builder,
        &Command::Publish(Publish {
            origin: origin_from(fields.origin),
            client_id: &fields.client_id,
            session_epoch: fields.session_epoch,
            incarnation: fields.incarnation,
            packet_id: fields.packet_id,
            qos: qos_from(fields.qos)?,
            retain: fields.retain,
            dup: fields.dup,
            captured: fields.captured,
            dedupe: fields.dedupe.as_ref().map(|(identity, key)| DedupeKey { identity, key }),
            source: Source::Mqtt,
            expiry_s: fields.expiry_s,
            topic: &fields.topic,
            properties: &fields.properties,
            payload: &fields.payload,
        }),
    )
}

/// A command as a record; what `push` reads, it can write.
pub(super) fn record_of<'py>(py: Python<'py>, command: &Command<'_>) -> PyResult<NamedRecord<'py>> {
    Ok(match command {
        Command::OpenSession(open) => ("OpenSession", open_session_fields(py, open)?),
        Command::ConnectionLost(lost) => (
            "ConnectionLost",
            fields!(py,
                client_id: lost.client_id,
                session_epoch: lost.session_epoch,
                fire_will: lost.fire_will,
                expiry_s: lost.expiry_s,
                will_grace_s: lost.will_grace_s,
            ),
        ),
        Command::LeaveWill(left) => (
            "LeaveWill",
            fields!(py,
                client_id: left.client_id,
                identity: left.identity,
                will: will_fields(py, &left.will)?,
                will_grace_s: left.will_grace_s,
            ),
        ),
        Command::Subscribe(subscribe) => ("Subscribe", subscribe_fields(py, subscribe)?),
        Command::Unsubscribe(unsubscribe) => (
            "Unsubscribe",
            fields!(py,
                origin: origin_fields(unsubscribe.origin),
                client_id: unsubscribe.client_id,
                session_epoch: unsubscribe.session_epoch,
                packet_id: unsubscribe.packet_id,
                filters: &unsubscribe.filters,
            ),
        ),
        Command::Publish(publish) => ("Publish", publish_fields(py, publish)?),
        Command::PubRel(release) => (
            "PubRel",
            fields!(py,
                origin: origin_fields(release.origin),
                client_id: release.client_id,
                session_epoch: release.session_epoch,
                packet_id: release.packet_id,
            ),
        ),
        Command::ClientAck(ack) => (
            "ClientAck",
            fields!(py,
                client_id: ack.client_id,
                session_epoch: ack.session_epoch,
                packet_id: ack.packet_id,
                kind: ack_kind_name(ack.kind),
                reason: ack.reason.0,
            ),
        ),
        Command::Tick => ("Tick", PyDict::new(py)),
        Command::SetLimits(limits) => {
            ("SetLimits", fields!(py, limits: limits_fields(py, limits)?))
        }
    })
}

fn will_fields<'py>(py: Python<'py>, will: &Will<'_>) -> PyResult<Bound<'py, PyDict>> {
    Ok(fields!(py,
        topic: will.topic,
        properties: PyBytes::new(py, will.properties),
        payload: PyBytes::new(py, will.payload),
        qos: will.qos.bits(),
        retain: will.retain,
        delay_s: will.delay_s,
        expiry_s: will.expiry_s,
    ))
}

fn open_session_fields<'py>(
    py: Python<'py>,
    open: &OpenSession<'_>,
) -> PyResult<Bound<'py, PyDict>> {
    let will = open.will.map(|will| will_fields(py, &will));
    Ok(fields!(py,
        origin: origin_fields(open.origin),
        client_id: open.client_id,
        identity: open.identity,
        level: open.level,
        clean_start: open.clean_start,
        expiry_s: open.expiry_s,
        receive_maximum: open.receive_maximum,
        maximum_packet_bytes: open.maximum_packet_bytes,
        will: will.transpose()?,
    ))
}

fn subscribe_fields<'py>(
    py: Python<'py>,
    subscribe: &Subscribe<'_>,
) -> PyResult<Bound<'py, PyDict>> {
    let filters = subscribe.filters.iter().map(|asked| {
        Ok::<_, PyErr>(fields!(py,
            filter: asked.filter,
            qos: asked.options.qos.bits(),
            no_local: asked.options.no_local,
            retain_as_published: asked.options.retain_as_published,
            retain_handling: asked.options.retain_handling as u8,
            refused: asked.refused.map(|reason| reason.0),
        ))
    });
    Ok(fields!(py,
        origin: origin_fields(subscribe.origin),
        client_id: subscribe.client_id,
        session_epoch: subscribe.session_epoch,
        packet_id: subscribe.packet_id,
        subscription_id: subscribe.subscription_id,
        filters: filters.collect::<PyResult<Vec<_>>>()?,
    ))
}

fn publish_fields<'py>(py: Python<'py>, publish: &Publish<'_>) -> PyResult<Bound<'py, PyDict>> {
    Ok(fields!(py,
        origin: origin_fields(publish.origin),
        client_id: publish.client_id,
        session_epoch: publish.session_epoch,
        incarnation: publish.incarnation,
        packet_id: publish.packet_id,
        qos: publish.qos.bits(),
        retain: publish.retain,
        dup: publish.dup,
        captured: publish.captured,
        dedupe: publish.dedupe.map(|dedupe| (dedupe.identity, dedupe.key)),
        expiry_s: publish.expiry_s,
        topic: publish.topic,
        properties: PyBytes::new(py, publish.properties),
        payload: PyBytes::new(py, publish.payload),
    ))
}

fn limits_fields<'py>(py: Python<'py>, limits: &Limits) -> PyResult<Bound<'py, PyDict>> {
    let overflow = match limits.overflow {
        Overflow::ExpireSession => "expire_session",
        Overflow::DropOldest => "drop_oldest",
        Overflow::DropNewest => "drop_newest",
    };
    Ok(fields!(py,
        window_max: limits.window_max,
        queue_count_max: limits.queue_count_max,
        queue_bytes_max: limits.queue_bytes_max,
        subscriptions_max: limits.subscriptions_max,
        received_max: limits.received_max,
        retained_bytes_max: limits.retained_bytes_max,
        overflow: overflow,
    ))
}
