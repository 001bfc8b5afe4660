//! Effects and session views as records.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use quantumqtt_machine::{
    Deliver, Effect, EndReason, ExchangeStage, Record, SessionEnded, SessionOpened, SessionView,
    Source, Subscribed, Subscription, Unsubscribed,
};
use quantumqtt_wire::ReasonCode;

use super::commands::{ack_kind_name, origin_fields};
use super::{NamedRecord, fields};

/// Filter, `QoS`, No Local, Retain As Published, Retain Handling, Subscription Identifier.
type SubscriptionFields<'a> = (&'a str, u8, bool, bool, u8, Option<u32>);

pub(super) fn record_of<'py>(py: Python<'py>, effect: &Effect) -> PyResult<NamedRecord<'py>> {
    Ok(match effect {
        Effect::SessionOpened(opened) => ("SessionOpened", opened_fields(py, opened)?),
        Effect::OpenRefused { origin, reason } => {
            ("OpenRefused", fields!(py, origin: origin_fields(*origin), reason: reason.0))
        }
        Effect::Subscribed(subscribed) => ("Subscribed", subscribed_fields(py, subscribed)?),
        Effect::Unsubscribed(gone) => ("Unsubscribed", unsubscribed_fields(py, gone)?),
        Effect::Acknowledge { origin, kind, packet_id, reason } => (
            "Acknowledge",
            fields!(py,
                origin: origin_fields(*origin),
                kind: ack_kind_name(*kind),
                packet_id: packet_id,
                reason: reason.0,
            ),
        ),
        Effect::Deliver(deliver) => ("Deliver", deliver_fields(py, deliver)?),
        Effect::Release { origin, packet_id, reason } => (
            "Release",
            fields!(py,
                origin: origin_fields(*origin),
                packet_id: packet_id,
                reason: reason.0,
            ),
        ),
        Effect::Append(record) => ("Append", append_fields(py, record)?),
        Effect::SessionEnded(ended) => ("SessionEnded", ended_fields(py, ended)?),
    })
}

fn subscription_fields(subscription: &Subscription) -> SubscriptionFields<'_> {
    let options = subscription.options;
    (
        &subscription.filter,
        options.qos.bits(),
        options.no_local,
        options.retain_as_published,
        options.retain_handling as u8,
        subscription.subscription_id,
    )
}

fn subscriptions<'py>(
    py: Python<'py>,
    subscriptions: &[Subscription],
) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, subscriptions.iter().map(subscription_fields))
}

fn codes<'py>(py: Python<'py>, codes: &[ReasonCode]) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, codes.iter().map(|code| code.0))
}

fn opened_fields<'py>(py: Python<'py>, opened: &SessionOpened) -> PyResult<Bound<'py, PyDict>> {
    Ok(fields!(py,
        origin: origin_fields(opened.origin),
        client_id: &*opened.client_id,
        session_present: opened.session_present,
        session_epoch: opened.session_epoch,
        incarnation: opened.incarnation,
        subscriptions: subscriptions(py, &opened.subscriptions)?,
        previous: opened.previous.map(origin_fields),
    ))
}

fn subscribed_fields<'py>(
    py: Python<'py>,
    subscribed: &Subscribed,
) -> PyResult<Bound<'py, PyDict>> {
    Ok(fields!(py,
        origin: origin_fields(subscribed.origin),
        client_id: &*subscribed.client_id,
        packet_id: subscribed.packet_id,
        codes: codes(py, &subscribed.codes)?,
        filters: subscriptions(py, &subscribed.filters)?,
    ))
}

fn unsubscribed_fields<'py>(py: Python<'py>, gone: &Unsubscribed) -> PyResult<Bound<'py, PyDict>> {
    Ok(fields!(py,
        origin: origin_fields(gone.origin),
        client_id: &*gone.client_id,
        packet_id: gone.packet_id,
        codes: codes(py, &gone.codes)?,
        filters: PyTuple::new(py, gone.filters.iter().map(|filter| &**filter))?,
    ))
}

fn deliver_fields<'py>(py: Python<'py>, deliver: &Deliver) -> PyResult<Bound<'py, PyDict>> {
    let message = &deliver.message;
    Ok(fields!(py,
        origin: origin_fields(deliver.origin),
        session_epoch: deliver.session_epoch,
        packet_id: deliver.packet_id,
        qos: deliver.qos.bits(),
        retain: deliver.retain,
        dup: deliver.dup,
        expiry_s: deliver.expiry_s,
        subscription_ids: PyTuple::new(py, deliver.subscription_ids.iter())?,
        offset: message.offset,
        topic: &*message.topic,
        properties: PyBytes::new(py, &message.properties),
        payload: PyBytes::new(py, &message.payload),
    ))
}

fn append_fields<'py>(py: Python<'py>, record: &Record) -> PyResult<Bound<'py, PyDict>> {
    let message = &record.message;
    Ok(fields!(py,
        offset: record.offset,
        ts_ms: record.ts_ms,
        source: source_name(record.source),
        client_id: &*record.client_id,
        incarnation: record.incarnation,
        session_epoch: record.session_epoch,
        publish_seq: record.publish_seq,
        publisher: record.publisher.map(origin_fields),
        retain: record.retain,
        captured: record.captured,
        qos: message.qos.bits(),
        expiry_s: message.expiry_s,
        topic: &*message.topic,
        properties: PyBytes::new(py, &message.properties),
        payload: PyBytes::new(py, &message.payload),
    ))
}

fn source_name(source: Source) -> &'static str {
    match source {
        Source::Mqtt => "mqtt",
        Source::Queue => "queue",
        Source::Sqs => "sqs",
        Source::Will => "will",
        Source::Sink => "sink",
        Source::System => "system",
    }
}

fn ended_fields<'py>(py: Python<'py>, ended: &SessionEnded) -> PyResult<Bound<'py, PyDict>> {
    let reason = match ended.reason {
        EndReason::Discarded => "discarded",
        EndReason::Closed => "closed",
        EndReason::Expired => "expired",
        EndReason::Overflowed => "overflowed",
    };
    Ok(fields!(py,
        client_id: &*ended.client_id,
        session_epoch: ended.session_epoch,
        origin: ended.origin.map(origin_fields),
        reason: reason,
    ))
}

pub(super) fn session_fields<'py>(
    py: Python<'py>,
    session: &SessionView,
) -> PyResult<Bound<'py, PyDict>> {
    let in_flight = session.in_flight.iter().map(|(packet_id, stage)| {
        let stage = match stage {
            ExchangeStage::Unsent => "unsent",
            ExchangeStage::Sent => "sent",
            ExchangeStage::Released => "released",
        };
        (*packet_id, stage)
    });
    Ok(fields!(py,
        client_id: &*session.client_id,
        identity: &*session.identity,
        incarnation: session.incarnation,
        session_epoch: session.session_epoch,
        origin: session.origin.map(origin_fields),
        expiry_s: session.expiry_s,
        expires_at_ms: session.expires_at_ms,
        will_due_ms: session.will_due_ms,
        has_will: session.has_will,
        subscriptions: subscriptions(py, &session.subscriptions)?,
        in_flight: PyTuple::new(py, in_flight)?,
        waiting: PyTuple::new(py, &session.waiting)?,
        replays: PyTuple::new(py, session.replays.iter().map(|filter| &**filter))?,
        received: PyTuple::new(py, &session.received)?,
    ))
}
