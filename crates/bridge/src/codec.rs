//! The wire codec lent to Python's client: a read becomes one batch, a turn's writes one string.
//!
//! Decoding is in `codec_decode.rs`, the message in `codec_message.rs`; here is encoding. All are
//! pure functions. A packet is bytes already, a success acknowledgement is one number, a PUBLISH is
//! a tuple: [`encode_batch`] writes a row of them with one call.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList, PyTuple};
use quantumqtt_wire::{
    Ack, AckKind, Auth, Carrier, Connect, DecodeError, Disconnect, EncodeError, PacketId,
    PacketType, Properties, Property, PropertyBlock, PropertyId, Publish, QoS, ReasonCode, Secret,
    Subscribe, SubscribeBlock, SubscribeOptions, Unsubscribe, UnsubscribeBlock, Version, Will,
};

use crate::errors::from_encode;

/// The version behind a protocol level.
pub(crate) fn version_of(level: u8) -> PyResult<Version> {
    let found = Version::ALL.into_iter().find(|version| version.level() == level);
    found.ok_or_else(|| PyValueError::new_err("protocol levels are 3, 4 and 5"))
}

fn packet_id_of(number: u16) -> PyResult<PacketId> {
    PacketId::new(number).ok_or_else(|| from_encode(DecodeError::ZeroPacketId.into()))
}

fn qos_of(bits: u8) -> PyResult<QoS> {
    QoS::from_bits(bits).ok_or_else(|| PyValueError::new_err("qos is 0, 1 or 2"))
}

fn ack_kind_of(kind: u8) -> PyResult<AckKind> {
    let found = AckKind::ALL.into_iter().find(|ack| ack.packet_type() as u8 == kind);
    found.ok_or_else(|| PyValueError::new_err("acknowledgements are the packet types 4 to 7"))
}

/// A block from [`encode_properties`], checked against the packet that is to carry it.
fn block(carrier: Carrier, bytes: &[u8]) -> PyResult<Properties<'_>> {
    Properties::decode(carrier, bytes).map_err(|error| from_encode(error.into()))
}

fn packet_block(packet: PacketType, bytes: &[u8]) -> PyResult<Properties<'_>> {
    block(Carrier::Packet(packet), bytes)
}

fn written(
    py: Python<'_>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> PyResult<Bound<'_, PyBytes>> {
    let mut out = Vec::new();
    write(&mut out).map_err(from_encode)?;
    Ok(PyBytes::new(py, &out))
}

#[pyfunction]
pub(crate) fn encode_batch<'py>(
    version: u8,
    items: &Bound<'py, PyList>,
) -> PyResult<Bound<'py, PyBytes>> {
    let version = version_of(version)?;
    let mut out = Vec::with_capacity(items.len() * 32);
    for item in items {
        if let Ok(publish) = item.cast::<PyTuple>() {
            put_publish(version, publish, &mut out)?;
        } else if let Ok(bytes) = item.cast::<PyBytes>() {
            out.extend_from_slice(bytes.as_bytes());
        } else {
            put_success(version, item.cast::<PyInt>()?.extract()?, &mut out)?;
        }
    }
    Ok(PyBytes::new(items.py(), &out))
}

/// Topic, payload, header flags, packet id or 0, property block.
fn put_publish(version: Version, publish: &Bound<'_, PyTuple>, out: &mut Vec<u8>) -> PyResult<()> {
    let topic = publish.get_borrowed_item(0)?;
    let payload = publish.get_borrowed_item(1)?;
    let flags: u8 = publish.get_borrowed_item(2)?.extract()?;
    let properties = publish.get_borrowed_item(4)?;
    let publish = Publish {
        dup: flags & 0b1000 != 0,
        qos: qos_of(flags >> 1 & 0b11)?,
        retain: flags & 1 != 0,
        topic: topic.extract()?,
        packet_id: PacketId::new(publish.get_borrowed_item(3)?.extract()?),
        properties: packet_block(PacketType::Publish, properties.extract()?)?,
        payload: payload.extract()?,
    };
    publish.encode(version, out).map(drop).map_err(from_encode)
}

/// Packet type times 65536, plus the packet id.
fn put_success(version: Version, number: u32, out: &mut Vec<u8>) -> PyResult<()> {
    let kind = ack_kind_of(u8::try_from(number >> 16).unwrap_or(u8::MAX))?;
    let ack = Ack::success(packet_id_of((number & 0xFFFF) as u16)?);
    ack.encode(kind, version, out).map_err(from_encode)
}

#[pyfunction]
pub(crate) fn encode_ack(
    py: Python<'_>,
    version: u8,
    kind: u8,
    packet_id: u16,
    reason_code: u8,
) -> PyResult<Bound<'_, PyBytes>> {
    let ack = Ack::with_reason(packet_id_of(packet_id)?, ReasonCode(reason_code));
    let (kind, version) = (ack_kind_of(kind)?, version_of(version)?);
    written(py, |out| ack.encode(kind, version, out))
}

type WillParts<'a> = (&'a str, &'a [u8], u8, bool, &'a [u8]);

#[pyfunction]
#[pyo3(signature = (
    version, client_id, *, clean_start, keep_alive_s, user_name=None, password=None, will=None,
    properties=None
))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn encode_connect<'py>(
    py: Python<'py>,
    version: u8,
    client_id: &str,
    clean_start: bool,
    keep_alive_s: u16,
    user_name: Option<&str>,
    password: Option<&[u8]>,
    will: Option<WillParts<'_>>,
    properties: Option<&[u8]>,
) -> PyResult<Bound<'py, PyBytes>> {
    let version = version_of(version)?;
    let will = match will {
        None => None,
        Some((topic, payload, qos, retain, properties)) => Some(Will {
            qos: qos_of(qos)?,
            retain,
            topic,
            payload,
            properties: block(Carrier::Will, properties)?,
        }),
    };
    let connect = Connect {
        version,
        clean_start,
        keep_alive_s,
        client_id,
        will,
        user_name,
        password,
        properties: packet_block(PacketType::Connect, properties.unwrap_or_default())?,
    };
    written(py, |out| connect.encode(version, out))
}

#[pyfunction]
#[pyo3(signature = (version, packet_id, filters, properties=None))]
pub(crate) fn encode_subscribe<'py>(
    py: Python<'py>,
    version: u8,
    packet_id: u16,
    filters: Vec<(Bound<'py, pyo3::types::PyString>, u8)>,
    properties: Option<&[u8]>,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut listed = SubscribeBlock::new();
    for (filter, options) in &filters {
        let options = SubscribeOptions::from_byte(Version::V5, *options)
            .map_err(|error| from_encode(error.into()))?;
        listed.push(filter.to_str()?, options).map_err(from_encode)?;
    }
    let subscribe = Subscribe {
        packet_id: packet_id_of(packet_id)?,
        properties: packet_block(PacketType::Subscribe, properties.unwrap_or_default())?,
        filters: listed.as_filters(),
    };
    let version = version_of(version)?;
    written(py, |out| subscribe.encode(version, out))
}

#[pyfunction]
#[pyo3(signature = (version, packet_id, filters, properties=None))]
pub(crate) fn encode_unsubscribe<'py>(
    py: Python<'py>,
    version: u8,
    packet_id: u16,
    filters: Vec<Bound<'py, pyo3::types::PyString>>,
    properties: Option<&[u8]>,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut listed = UnsubscribeBlock::new();
    for filter in &filters {
        listed.push(filter.to_str()?).map_err(from_encode)?;
    }
    let unsubscribe = Unsubscribe {
        packet_id: packet_id_of(packet_id)?,
        properties: packet_block(PacketType::Unsubscribe, properties.unwrap_or_default())?,
        filters: listed.as_filters(),
    };
    let version = version_of(version)?;
    written(py, |out| unsubscribe.encode(version, out))
}

#[pyfunction]
#[pyo3(signature = (version, reason_code=0, properties=None))]
pub(crate) fn encode_disconnect<'py>(
    py: Python<'py>,
    version: u8,
    reason_code: u8,
    properties: Option<&[u8]>,
) -> PyResult<Bound<'py, PyBytes>> {
    let disconnect = Disconnect {
        reason: ReasonCode(reason_code),
        properties: packet_block(PacketType::Disconnect, properties.unwrap_or_default())?,
    };
    let version = version_of(version)?;
    written(py, |out| disconnect.encode(version, out))
}

#[pyfunction]
#[pyo3(signature = (reason_code, properties))]
pub(crate) fn encode_auth<'py>(
    py: Python<'py>,
    reason_code: u8,
    properties: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let auth = Auth {
        reason: ReasonCode(reason_code),
        properties: packet_block(PacketType::Auth, properties)?,
    };
    written(py, |out| auth.encode(Version::V5, out))
}

#[pyfunction]
pub(crate) fn encode_properties<'py>(
    py: Python<'py>,
    properties: Vec<(u32, Bound<'py, PyAny>)>,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut block = PropertyBlock::new();
    for (id, value) in &properties {
        push_property(&mut block, *id, value)?;
    }
    Ok(PyBytes::new(py, block.as_bytes()))
}

fn push_property(block: &mut PropertyBlock, id: u32, value: &Bound<'_, PyAny>) -> PyResult<()> {
    use Property as P;
    use PropertyId as I;
    let unknown = || from_encode(DecodeError::UnknownProperty { id }.into());
    let known = PropertyId::from_number(id).ok_or_else(unknown)?;
    let out_of_range = || from_encode(DecodeError::PropertyValue { id: known }.into());
    let property = match known {
        I::PayloadFormatIndicator => P::PayloadFormatIndicator(value.extract()?),
        I::MessageExpiryInterval => P::MessageExpiryInterval(value.extract()?),
        I::ContentType => P::ContentType(value.extract()?),
        I::ResponseTopic => P::ResponseTopic(value.extract()?),
        I::CorrelationData => P::CorrelationData(value.extract()?),
        I::SubscriptionId => P::SubscriptionId(value.extract()?),
        I::SessionExpiryInterval => P::SessionExpiryInterval(value.extract()?),
        I::AssignedClientId => P::AssignedClientId(value.extract()?),
        I::ServerKeepAlive => P::ServerKeepAlive(value.extract()?),
        I::AuthenticationMethod => P::AuthenticationMethod(value.extract()?),
        I::AuthenticationData => P::AuthenticationData(Secret(value.extract()?)),
        I::RequestProblemInformation => P::RequestProblemInformation(value.extract()?),
        I::WillDelayInterval => P::WillDelayInterval(value.extract()?),
        I::RequestResponseInformation => P::RequestResponseInformation(value.extract()?),
        I::ResponseInformation => P::ResponseInformation(value.extract()?),
        I::ServerReference => P::ServerReference(value.extract()?),
        I::ReasonString => P::ReasonString(value.extract()?),
        I::ReceiveMaximum => P::ReceiveMaximum(value.extract()?),
        I::TopicAliasMaximum => P::TopicAliasMaximum(value.extract()?),
        I::TopicAlias => P::TopicAlias(value.extract()?),
        I::MaximumQos => P::MaximumQos(QoS::from_bits(value.extract()?).ok_or_else(out_of_range)?),
        I::RetainAvailable => P::RetainAvailable(value.extract()?),
        I::UserProperty => {
            let pair: (Bound<'_, PyAny>, Bound<'_, PyAny>) = value.extract()?;
            return block
                .push(P::UserProperty(pair.0.extract()?, pair.1.extract()?))
                .map_err(from_encode);
        }
        I::MaximumPacketSize => P::MaximumPacketSize(value.extract()?),
        I::WildcardSubscriptionAvailable => P::WildcardSubscriptionAvailable(value.extract()?),
        I::SubscriptionIdAvailable => P::SubscriptionIdAvailable(value.extract()?),
        I::SharedSubscriptionAvailable => P::SharedSubscriptionAvailable(value.extract()?),
    };
    block.push(property).map_err(from_encode)
}
