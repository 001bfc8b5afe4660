//! A message as Python holds it: text and bytes that are Python's own, properties read on demand.
//!
//! Most messages are looked at once, topic and payload only. So the property block stays as it
//! came, validated, and each getter walks it when asked. The class is not tracked by Python's
//! cycle collector: it holds text and bytes only, and a flood of messages must not start it.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use quantumqtt_wire::{Carrier, PacketType, Properties, Publish, QoS};

use crate::errors;

const CARRIER: Carrier = Carrier::Packet(PacketType::Publish);

/// One PUBLISH.
#[pyclass(frozen, subclass, module = "quantumqtt._core")]
pub(crate) struct Message {
    topic: Py<PyString>,
    payload: Py<PyBytes>,
    qos: u8,
    retain: bool,
    dup: bool,
    packet_id: u16,
    session: u32,
    properties: Option<Box<[u8]>>,
}

impl Message {
    /// Copies a decoded PUBLISH; `topic` is its topic, perhaps shared with the message before it.
    pub(crate) fn from_wire(
        py: Python<'_>,
        publish: &Publish<'_>,
        topic: Py<PyString>,
        session: u32,
    ) -> Self {
        let properties = publish.properties.as_bytes();
        Self {
            topic,
            payload: PyBytes::new(py, publish.payload).unbind(),
            qos: publish.qos.bits(),
            retain: publish.retain,
            dup: publish.dup,
            packet_id: publish.packet_id.map_or(0, quantumqtt_wire::PacketId::get),
            session,
            properties: (!properties.is_empty()).then(|| properties.into()),
        }
    }

    /// The block was validated when it came in, so reading it again cannot fail.
    fn block(&self) -> Properties<'_> {
        let bytes = self.properties.as_deref().unwrap_or_default();
        Properties::decode(CARRIER, bytes).unwrap_or_default()
    }
}

#[pymethods]
impl Message {
    #[new]
    #[pyo3(signature = (
        topic, payload=None, *, qos=0, retain=false, dup=false, packet_id=None, session=0,
        properties=None
    ))]
    #[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools)]
    fn new(
        py: Python<'_>,
        topic: Py<PyString>,
        payload: Option<Py<PyBytes>>,
        qos: u8,
        retain: bool,
        dup: bool,
        packet_id: Option<u16>,
        session: u32,
        properties: Option<&[u8]>,
    ) -> PyResult<Self> {
        if QoS::from_bits(qos).is_none() {
            return Err(PyValueError::new_err("qos is 0, 1 or 2"));
        }
        let bytes = properties.unwrap_or_default();
        Properties::decode(CARRIER, bytes).map_err(|error| errors::from_encode(error.into()))?;
        Ok(Self {
            topic,
            payload: payload.unwrap_or_else(|| PyBytes::new(py, b"").unbind()),
            qos,
            retain,
            dup,
            packet_id: packet_id.unwrap_or(0),
            session,
            properties: (!bytes.is_empty()).then(|| bytes.into()),
        })
    }

    #[getter]
    fn topic(&self, py: Python<'_>) -> Py<PyString> {
        self.topic.clone_ref(py)
    }

    #[getter]
    fn payload(&self, py: Python<'_>) -> Py<PyBytes> {
        self.payload.clone_ref(py)
    }

    #[getter]
    fn qos(&self) -> u8 {
        self.qos
    }

    #[getter]
    fn retain(&self) -> bool {
        self.retain
    }

    #[getter]
    fn dup(&self) -> bool {
        self.dup
    }

    #[getter]
    fn packet_id(&self) -> Option<u16> {
        (self.packet_id != 0).then_some(self.packet_id)
    }

    #[getter]
    fn session(&self) -> u32 {
        self.session
    }

    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.properties.as_deref().unwrap_or_default())
    }

    #[getter]
    fn payload_is_utf8(&self) -> bool {
        self.block().payload_is_utf8().unwrap_or(false)
    }

    #[getter]
    fn message_expiry_s(&self) -> Option<u32> {
        self.block().message_expiry_s()
    }

    #[getter]
    fn content_type(&self) -> Option<&str> {
        self.block().content_type()
    }

    #[getter]
    fn response_topic(&self) -> Option<&str> {
        self.block().response_topic()
    }

    #[getter]
    fn correlation_data<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.block().correlation_data().map(|bytes| PyBytes::new(py, bytes))
    }

    #[getter]
    fn topic_alias(&self) -> Option<u16> {
        self.properties.as_ref().and_then(|_| self.block().topic_alias())
    }

    #[getter]
    fn user_properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.block().user_properties().collect::<Vec<_>>())
    }

    #[getter]
    fn subscription_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.block().subscription_ids().collect::<Vec<_>>())
    }

    fn with_topic(&self, py: Python<'_>, topic: Py<PyString>) -> Self {
        Self {
            topic,
            payload: self.payload.clone_ref(py),
            qos: self.qos,
            retain: self.retain,
            dup: self.dup,
            packet_id: self.packet_id,
            session: self.session,
            properties: self.properties.clone(),
        }
    }

    /// The payload's size only: payloads do not belong in logs.
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let topic = self.topic.bind(py).repr()?;
        let bytes = self.payload.as_bytes(py).len();
        Ok(format!(
            "Message(topic={topic}, payload=<{bytes} bytes>, qos={}, retain={})",
            self.qos,
            if self.retain { "True" } else { "False" },
        ))
    }
}
