//! Bytes from a broker as one batch of packets per call.
//!
//! A client's reads are floods of a few kinds: QoS 0 messages, often many on one topic, and plain
//! acknowledgements. These come as runs, so that Python dispatches once per run and not once per
//! packet. Everything else is rare and comes as one object with everything in it.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use quantumqtt_wire::{
    Ack, AckKind, DecodeError, Frame, Packet, PacketType, Properties, Property, PropertyId,
    Publish, QoS, ReasonCode, Secret, Version, decode, frame,
};

use crate::codec::version_of;
use crate::codec_message::Message;
use crate::errors;

/// Successive acknowledgements of one kind with one outcome and nothing more to say.
#[pyclass(frozen, module = "quantumqtt._core")]
pub(crate) struct AckRun {
    #[pyo3(get)]
    kind: u8,
    #[pyo3(get)]
    reason_code: u8,
    #[pyo3(get)]
    packet_ids: Py<PyList>,
}

/// Any other packet a broker sends; fields that do not apply are empty.
#[pyclass(frozen, get_all, module = "quantumqtt._core")]
pub(crate) struct Control {
    kind: u8,
    packet_id: u16,
    reason_code: u8,
    session_present: bool,
    codes: Py<PyBytes>,
    properties: Py<PyList>,
}

/// Decodes the packets at the start of `data`.
///
/// Returns the batch, the bytes it took and, when a packet is still incomplete, its whole size as
/// far as it is known. What is wrong ends the batch as an exception in its last place, so that the
/// packets before it are not lost.
#[pyfunction]
#[pyo3(signature = (version, data, packet_bytes_max, session=0))]
pub(crate) fn decode_packets<'py>(
    py: Python<'py>,
    version: u8,
    data: &[u8],
    packet_bytes_max: usize,
    session: u32,
) -> PyResult<(Bound<'py, PyList>, usize, usize)> {
    let mut batch = Batch {
        py,
        version: version_of(version)?,
        session,
        items: PyList::empty(py),
        topic: None,
        run: Run::None,
    };
    let mut taken = 0;
    let wanted = loop {
        let rest = &data[taken..];
        let frame = match frame::peek(rest, packet_bytes_max) {
            Ok(Some(frame)) => frame,
            Ok(None) => break 0,
            Err(error) => {
                batch.refuse(error)?;
                break 0;
            }
        };
        let Some(body) = frame.body(rest) else { break frame.total() };
        if let Err(error) = batch.take(&frame, body)? {
            batch.refuse(error)?;
            break 0;
        }
        taken += frame.total();
    };
    batch.end_run()?;
    Ok((batch.items, taken, wanted))
}

/// The run being gathered.
enum Run<'py> {
    None,
    Messages(Bound<'py, PyList>),
    Acks { kind: AckKind, reason: ReasonCode, ids: Vec<u16> },
}

struct Batch<'py, 'a> {
    py: Python<'py>,
    version: Version,
    session: u32,
    items: Bound<'py, PyList>,
    /// The last topic, on the wire and in Python: floods repeat it.
    topic: Option<(&'a str, Bound<'py, PyString>)>,
    run: Run<'py>,
}

impl<'a> Batch<'_, 'a> {
    /// Takes one whole packet. The inner error is the peer's, the outer one Python's.
    fn take(&mut self, frame: &Frame, body: &'a [u8]) -> PyResult<Result<(), DecodeError>> {
        let ack = match frame.packet_type {
            PacketType::Publish => {
                return match Publish::decode(self.version, frame.flags, body) {
                    Ok(publish) => self.take_publish(&publish).map(Ok),
                    Err(error) => Ok(Err(error)),
                };
            }
            PacketType::PubAck => Some(AckKind::PubAck),
            PacketType::PubRec => Some(AckKind::PubRec),
            PacketType::PubRel => Some(AckKind::PubRel),
            PacketType::PubComp => Some(AckKind::PubComp),
            _ => None,
        };
        if let Some(kind) = ack {
            return match Ack::decode(self.version, kind, body) {
                Ok(ack) => self.take_ack(kind, &ack).map(Ok),
                Err(error) => Ok(Err(error)),
            };
        }
        self.end_run()?;
        match decode(self.version, frame, body) {
            Ok(packet) => self.take_control(&packet),
            Err(error) => Ok(Err(error)),
        }
    }

    fn take_publish(&mut self, publish: &Publish<'a>) -> PyResult<()> {
        let py = self.py;
        let (repeats, topic) = match &self.topic {
            Some((wire, python)) if *wire == publish.topic => (true, python.clone()),
            _ => {
                let python = PyString::new(py, publish.topic);
                self.topic = Some((publish.topic, python.clone()));
                (false, python)
            }
        };
        let message = Message::from_wire(py, publish, topic.unbind(), self.session);
        let message = Bound::new(py, message)?;
        let alone =
            publish.qos != QoS::AtMostOnce || publish.properties.contains(PropertyId::TopicAlias);
        if alone {
            self.end_run()?;
            return self.items.append(message);
        }
        if let (true, Run::Messages(run)) = (repeats, &self.run) {
            return run.append(message);
        }
        self.end_run()?;
        self.run = Run::Messages(PyList::new(py, [message])?);
        Ok(())
    }

    fn take_ack(&mut self, kind: AckKind, ack: &Ack<'_>) -> PyResult<()> {
        let packet_id = ack.packet_id.get();
        if !ack.properties.is_empty() {
            self.end_run()?;
            return self.append_control(
                kind.packet_type(),
                packet_id,
                ack.reason.0,
                false,
                &[],
                ack.properties,
            );
        }
        if let Run::Acks { kind: of, reason, ids } = &mut self.run
            && (*of, *reason) == (kind, ack.reason)
        {
            ids.push(packet_id);
            return Ok(());
        }
        self.end_run()?;
        self.run = Run::Acks { kind, reason: ack.reason, ids: vec![packet_id] };
        Ok(())
    }

    fn take_control(&mut self, packet: &Packet<'_>) -> PyResult<Result<(), DecodeError>> {
        let kind = packet.packet_type();
        let nothing = Properties::EMPTY;
        match packet {
            Packet::ConnAck(connack) => self.append_control(
                kind,
                0,
                connack.reason.0,
                connack.session_present,
                &[],
                connack.properties,
            )?,
            Packet::SubAck(suback) => self.append_control(
                kind,
                suback.packet_id.get(),
                0,
                false,
                suback.codes,
                suback.properties,
            )?,
            Packet::UnsubAck(unsuback) => self.append_control(
                kind,
                unsuback.packet_id.get(),
                0,
                false,
                unsuback.codes,
                unsuback.properties,
            )?,
            Packet::PingResp => self.append_control(kind, 0, 0, false, &[], nothing)?,
            Packet::Disconnect(disconnect) => self.append_control(
                kind,
                0,
                disconnect.reason.0,
                false,
                &[],
                disconnect.properties,
            )?,
            Packet::Auth(auth) => {
                self.append_control(kind, 0, auth.reason.0, false, &[], auth.properties)?;
            }
            // What only a client sends is refused like a type that does not exist.
            _ => return Ok(Err(DecodeError::ReservedPacketType { packet_type: kind as u8 })),
        }
        Ok(Ok(()))
    }

    fn append_control(
        &mut self,
        kind: PacketType,
        packet_id: u16,
        reason_code: u8,
        session_present: bool,
        codes: &[u8],
        properties: Properties<'_>,
    ) -> PyResult<()> {
        let control = Control {
            kind: kind as u8,
            packet_id,
            reason_code,
            session_present,
            codes: PyBytes::new(self.py, codes).unbind(),
            properties: property_list(self.py, properties)?.unbind(),
        };
        self.items.append(Bound::new(self.py, control)?)
    }

    fn refuse(&mut self, error: DecodeError) -> PyResult<()> {
        self.end_run()?;
        self.items.append(errors::from_decode(error).into_value(self.py))
    }

    fn end_run(&mut self) -> PyResult<()> {
        match std::mem::replace(&mut self.run, Run::None) {
            Run::None => Ok(()),
            Run::Messages(run) => self.items.append(run),
            Run::Acks { kind, reason, ids } => {
                let run = AckRun {
                    kind: kind.packet_type() as u8,
                    reason_code: reason.0,
                    packet_ids: PyList::new(self.py, ids)?.unbind(),
                };
                self.items.append(Bound::new(self.py, run)?)
            }
        }
    }
}

/// Decodes a property block without its length prefix into pairs of identifier and value.
fn property_list<'py>(py: Python<'py>, properties: Properties<'_>) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for property in properties.iter() {
        let id = property.id() as u8;
        list.append((id, property_value(py, property)?))?;
    }
    Ok(list)
}

fn property_value<'py>(py: Python<'py>, property: Property<'_>) -> PyResult<Bound<'py, PyAny>> {
    use Property as P;
    Ok(match property {
        P::PayloadFormatIndicator(flag)
        | P::RequestProblemInformation(flag)
        | P::RequestResponseInformation(flag)
        | P::RetainAvailable(flag)
        | P::WildcardSubscriptionAvailable(flag)
        | P::SubscriptionIdAvailable(flag)
        | P::SharedSubscriptionAvailable(flag) => flag.into_pyobject(py)?.to_owned().into_any(),
        P::MessageExpiryInterval(number)
        | P::SubscriptionId(number)
        | P::SessionExpiryInterval(number)
        | P::WillDelayInterval(number)
        | P::MaximumPacketSize(number) => number.into_pyobject(py)?.into_any(),
        P::ServerKeepAlive(number)
        | P::ReceiveMaximum(number)
        | P::TopicAliasMaximum(number)
        | P::TopicAlias(number) => number.into_pyobject(py)?.into_any(),
        P::MaximumQos(qos) => qos.bits().into_pyobject(py)?.into_any(),
        P::ContentType(text)
        | P::ResponseTopic(text)
        | P::AssignedClientId(text)
        | P::AuthenticationMethod(text)
        | P::ResponseInformation(text)
        | P::ServerReference(text)
        | P::ReasonString(text) => PyString::new(py, text).into_any(),
        P::CorrelationData(bytes) | P::AuthenticationData(Secret(bytes)) => {
            PyBytes::new(py, bytes).into_any()
        }
        P::UserProperty(name, value) => PyTuple::new(py, [name, value])?.into_any(),
    })
}
