//! The will of a transient session, owned because its CONNECT is long gone when it is published.
//!
//! A transient session ends with its connection, so its Will Delay never has anything to wait for
//! [MQTT-3.1.3-9]. Wills of stored sessions live in the machine.

use quantumqtt_wire::{Properties, PropertyBlock, QoS, Will as WireWill};

#[derive(Debug, Clone)]
pub(crate) struct Will {
    pub(crate) topic: Box<str>,
    pub(crate) payload: Box<[u8]>,
    /// Forwardable publish properties.
    pub(crate) properties: Box<[u8]>,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) delay_s: u32,
    pub(crate) expiry_s: Option<u32>,
}

impl Will {
    pub(crate) fn from_wire(will: &WireWill<'_>) -> Self {
        let mut block = PropertyBlock::new();
        will.properties.forwardable(&mut block);
        Self {
            topic: will.topic.into(),
            payload: will.payload.into(),
            properties: block.as_properties().as_bytes().into(),
            qos: will.qos,
            retain: will.retain,
            delay_s: will.properties.will_delay_s().unwrap_or(0),
            expiry_s: will.properties.message_expiry_s(),
        }
    }

    /// The will as the machine knows it.
    pub(crate) fn as_command(&self) -> quantumqtt_machine::Will<'_> {
        quantumqtt_machine::Will {
            topic: &self.topic,
            properties: &self.properties,
            payload: &self.payload,
            qos: self.qos,
            retain: self.retain,
            delay_s: self.delay_s,
            expiry_s: self.expiry_s,
        }
    }

    /// Its properties, as they were validated in CONNECT.
    pub(crate) fn publish_properties(&self) -> Properties<'_> {
        Properties::from_forwardable(&self.properties).unwrap_or(Properties::EMPTY)
    }
}
