//! Wills: when the message a client left behind is published.
//!
//! Rules, which are the same for every version because 3.1 and 3.1.1 have a delay of zero:
//! - A normal DISCONNECT deletes the will (`ConnectionLost` with `fire_will` false)
//!   [MQTT-3.14.4-3].
//! - Any other loss publishes it after its delay, or when the session ends, whichever is first
//!   [MQTT-3.1.3-9, MQTT-3.1.2-8].
//! - A client that returns to its session in time cancels a delayed will (WILL-10). One that
//!   returns after its delay does not, even if no tick came in between. A takeover is both at once:
//!   the will goes out if its delay is zero, and is dropped if not.
//! - A connection that the server itself has ended (a drain, a stop, a crash) says nothing about
//!   its client. Its will waits for the larger of its delay and a grace, and is dropped if the
//!   client returns meanwhile, in whatever way. A session that would end sooner is kept for
//!   so long, though nobody is told that it is still there; of a transient one nothing but the will
//!   is kept.
//! - The end of a session publishes the will it still holds; so every rule above only decides
//!   whether the session holds it.
//!
//! Publishing is a normal publish: committed, recorded, routed, retained if asked. It is done at
//! the end of the command that caused it, never in the middle of another publish's routing.

use std::sync::Arc;

use bytes::Bytes;
use quantumqtt_wire::QoS;

use crate::command::Will;

/// A will as a session holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredWill {
    pub(crate) topic: Box<str>,
    pub(crate) properties: Bytes,
    pub(crate) payload: Bytes,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) delay_s: u32,
    pub(crate) expiry_s: Option<u32>,
}

impl StoredWill {
    /// Copies a will out of its entry: it may be held for as long as a client is connected.
    pub(crate) fn keep(will: &Will<'_>) -> Self {
        Self {
            topic: will.topic.into(),
            properties: Bytes::copy_from_slice(will.properties),
            payload: Bytes::copy_from_slice(will.payload),
            qos: will.qos,
            retain: will.retain,
            delay_s: will.delay_s,
            expiry_s: will.expiry_s,
        }
    }

    /// The will as it came.
    pub(crate) fn as_command(&self) -> Will<'_> {
        Will {
            topic: &self.topic,
            properties: &self.properties,
            payload: &self.payload,
            qos: self.qos,
            retain: self.retain,
            delay_s: self.delay_s,
            expiry_s: self.expiry_s,
        }
    }
}

/// A will whose time has come, with the names its record carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DueWill {
    pub(crate) will: StoredWill,
    pub(crate) client_id: Arc<str>,
    pub(crate) incarnation: u64,
    pub(crate) session_epoch: u64,
}
