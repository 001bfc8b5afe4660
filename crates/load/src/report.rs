//! What a run has shown.

use crate::histogram::Histogram;
use crate::process::ProcessSample;
use crate::spec::Scenario;
use quantumqtt_wire::QoS;

/// The figures of one run.
#[derive(Debug, Clone)]
pub struct Report {
    /// The shape of the traffic.
    pub scenario: Scenario,
    /// QoS of publishes and subscriptions.
    pub qos: QoS,
    /// Connections that got a CONNACK.
    pub connected: u64,
    /// From the first connect to the last client being ready.
    pub connect_seconds: f64,
    /// From the start to the last message, acknowledgement or connect.
    pub seconds: f64,
    /// Messages handed to sockets.
    pub sent: u64,
    /// Of those, answered with PUBACK or PUBCOMP.
    pub acknowledged: u64,
    /// Deliveries that should have come: messages times the subscribers that hear them.
    pub expected: u64,
    /// Deliveries that came, duplicates and foreign ones included.
    pub received: u64,
    /// Deliveries that never came.
    pub lost: u64,
    /// Deliveries that came again.
    pub duplicated: u64,
    /// Deliveries that came after a later message of their stream.
    pub out_of_order: u64,
    /// Messages that are not of this run, or not for the subscriber that got them.
    pub foreign: u64,
    /// Deliveries the window stopped waiting for; they are lost unless they came later.
    pub written_off: u64,
    /// From leaving (open loop: from being due) to arriving at a subscriber, nanoseconds.
    pub latency: Histogram,
    /// From leaving (open loop: from being due) to the last acknowledgement, nanoseconds.
    pub acknowledge_latency: Histogram,
    /// From the first SYN to CONNACK, nanoseconds.
    pub connect_latency: Histogram,
    /// What went wrong on connections, by stable short names.
    pub faults: Vec<(&'static str, u64)>,
    /// The first of them, in words.
    pub first_fault: Option<String>,
    /// The deadline or the caller ended the run early.
    pub was_cut_short: bool,
    /// What the broker's process used.
    pub broker: Option<BrokerUsage>,
    /// What this process used while measuring.
    pub generator: ProcessSample,
}

/// What the broker's process used, and held.
#[derive(Debug, Clone, Copy)]
pub struct BrokerUsage {
    /// Memory before the first connect; the other fields count since the process began.
    pub before: ProcessSample,
    /// Used while clients connected; memory with all of them ready.
    pub connecting: ProcessSample,
    /// Used while measuring; memory at its end.
    pub measuring: ProcessSample,
}

impl Report {
    /// What one unit of the broker's work is here: a delivery; a publish that nobody here hears;
    /// or a connect. What came twice or to the wrong place is no work anybody asked for.
    pub const fn units(&self) -> u64 {
        match self.scenario {
            Scenario::Connect | Scenario::Idle => self.connected,
            Scenario::Publish => self.sent,
            Scenario::Subscribe => self.received,
            _ => self.received.saturating_sub(self.duplicated + self.foreign),
        }
    }

    /// Units per second.
    pub fn units_per_second(&self) -> f64 {
        ratio(self.units(), self.seconds)
    }

    /// The broker's CPU per unit, microseconds; `None` without its process or without a unit.
    ///
    /// Idle clients cost nothing per unit while measuring, so there it is the cost of connecting.
    pub fn broker_us_per_unit(&self) -> Option<f64> {
        let broker = self.broker.as_ref()?;
        let usage = match self.scenario {
            Scenario::Idle => &broker.connecting,
            _ => &broker.measuring,
        };
        let units = self.units();
        (units > 0).then(|| usage.cpu_seconds() * 1e6 / to_f64(units))
    }

    /// The broker's own memory per connection, bytes; only where connections are what is counted.
    pub fn broker_bytes_per_connection(&self) -> Option<f64> {
        let broker = self.broker.as_ref()?;
        let grown = broker.connecting.anonymous_bytes.saturating_sub(broker.before.anonymous_bytes);
        let held = self.scenario == Scenario::Idle && self.connected > 0;
        held.then(|| to_f64(grown) / to_f64(self.connected))
    }

    /// What the chosen QoS forbids and yet happened, by stable short names; empty when all is well.
    ///
    /// Order holds at every QoS [MQTT-4.6.0-6]. QoS 0 may lose, QoS 1 may repeat, QoS 2 may do
    /// neither.
    pub fn violations(&self) -> Vec<(&'static str, u64)> {
        let lost = if self.qos > QoS::AtMostOnce { self.lost } else { 0 };
        let duplicated = if self.qos == QoS::AtLeastOnce { 0 } else { self.duplicated };
        let unanswered = match self.qos {
            QoS::AtMostOnce => 0,
            QoS::AtLeastOnce | QoS::ExactlyOnce => self.sent.saturating_sub(self.acknowledged),
        };
        let all = [
            ("lost", lost),
            ("duplicated", duplicated),
            ("out_of_order", self.out_of_order),
            ("unacknowledged", unanswered),
        ];
        all.into_iter().filter(|(_, count)| *count > 0).collect()
    }
}

fn ratio(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { to_f64(count) / seconds } else { 0.0 }
}

#[allow(clippy::cast_precision_loss)] // counts stay far below 2^52
fn to_f64(count: u64) -> f64 {
    count as f64
}
