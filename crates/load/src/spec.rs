//! What to do to which broker: a run as data.

use std::net::IpAddr;
use std::time::Duration;

use quantumqtt_wire::{QoS, Version};

use crate::error::LoadError;
use crate::stamp::STAMP_BYTES;

/// Bounds of a run. They protect the machine that generates, not the broker.
pub mod limits {
    use std::time::Duration;

    /// Clients of one run; a table of descriptors this large is unusual, more is a mistake.
    pub const CLIENTS_MAX: u32 = 1_000_000;
    /// The largest payload: MQTT's largest packet, less room for header and topic.
    pub const PAYLOAD_BYTES_MAX: usize = 268_000_000;
    /// Streams checked per run: publishers × topics, times the subscribers that hear them.
    pub const CHECKS_MAX: u64 = 50_000_000;
    /// Topics one publisher may rotate over.
    pub const TOPICS_MAX: u32 = 1_000_000;
    /// Threads of the generator.
    pub const THREADS_MAX: usize = 256;
    /// No run lasts longer, whatever it was asked for.
    pub const DEADLINE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
}

/// The shape of the traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scenario {
    /// Connect clients; once each and kept, or again and again with `messages` or `duration`.
    Connect,
    /// Publish to nobody in particular; what is acknowledged is counted.
    Publish,
    /// Subscribe and count what others publish.
    Subscribe,
    /// Every publisher has one subscriber of its own.
    Pairs,
    /// Many publishers, and every subscriber hears them all.
    FanIn,
    /// Few publishers, and every one of many subscribers hears them all.
    FanOut,
    /// Connect clients and leave them alone but for pings.
    Idle,
    /// Pairs at a fixed rate: what waits in the generator counts as latency.
    Latency,
}

impl Scenario {
    /// Whether clients publish.
    pub const fn publishes(self) -> bool {
        !matches!(self, Self::Connect | Self::Subscribe | Self::Idle)
    }

    /// Whether what is published is also received and checked here.
    pub const fn checks(self) -> bool {
        matches!(self, Self::Pairs | Self::FanIn | Self::FanOut | Self::Latency)
    }

    /// Whether subscriber and publisher of the same number belong together, and no others.
    pub const fn is_paired(self) -> bool {
        matches!(self, Self::Pairs | Self::Latency)
    }
}

/// One run.
#[derive(Clone)]
pub struct Spec {
    /// Name or address of the broker.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Protocol version of every client.
    pub version: Version,
    /// The shape of the traffic.
    pub scenario: Scenario,
    /// Publishing clients; in [`Scenario::Connect`] and [`Scenario::Idle`] all clients.
    pub publishers: u32,
    /// Subscribing clients; with pairs as many as publishers.
    pub subscribers: u32,
    /// Topics each publisher rotates over.
    pub topics: u32,
    /// What `%i` counts from, so that several generators can share a topic tree.
    pub start_number: u32,
    /// Topic name; `%i` becomes the publisher's number, `%c` its client id, `%u` the user name.
    pub topic: Option<String>,
    /// QoS of publishes and subscriptions.
    pub qos: QoS,
    /// Messages under way per publisher, from leaving to the last acknowledgement; at QoS 0 until
    /// its subscribers have them. 0 pushes as fast as TCP and packet ids allow. In
    /// [`Scenario::Connect`] and [`Scenario::Idle`]: connections being opened at once.
    pub window: u32,
    /// Bytes of application payload.
    pub payload_bytes: usize,
    /// Messages per publisher, or connects per client; 0 is no bound.
    pub messages: u64,
    /// How long to publish; zero is no bound.
    pub duration: Duration,
    /// Open loop: messages per second over all publishers, sent when due, come what may.
    pub rate: Option<f64>,
    /// Pause between two connects; zero connects as fast as the window allows.
    pub connect_interval: Duration,
    /// Give every PUBLISH a write of its own, as most real publishers do.
    pub one_message_per_write: bool,
    /// Publish with RETAIN.
    pub retain: bool,
    /// Clean start. Without it subscribers have persistent sessions, which the run ends again.
    pub clean: bool,
    /// Session expiry for MQTT 5 subscribers that do not start clean.
    pub expiry_s: u32,
    /// Keep alive; pings are spread evenly over three quarters of it.
    pub keep_alive_s: u16,
    /// User name of every client.
    pub user_name: Option<String>,
    /// Password of every client.
    pub password: Option<String>,
    /// Client ids start with it.
    pub client_id_prefix: String,
    /// Addresses to connect from, in turn: one has ports for some 28 000 connections.
    pub source_addresses: Vec<IpAddr>,
    /// Process whose CPU and memory are to be reported.
    pub broker_pid: Option<u32>,
    /// Threads; a topic and all its clients stay together on one.
    pub threads: usize,
    /// How long to wait without progress: for a connection, and for the last messages.
    pub patience: Duration,
    /// The run ends after this, whatever happens.
    pub deadline: Duration,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 1883,
            version: Version::V311,
            scenario: Scenario::Pairs,
            publishers: 10,
            subscribers: 10,
            topics: 1,
            start_number: 0,
            topic: None,
            qos: QoS::AtMostOnce,
            window: 100,
            payload_bytes: 64,
            messages: 0,
            duration: Duration::ZERO,
            rate: None,
            connect_interval: Duration::ZERO,
            one_message_per_write: false,
            retain: false,
            clean: true,
            expiry_s: 3600,
            keep_alive_s: 300,
            user_name: None,
            password: None,
            client_id_prefix: "bench".to_owned(),
            source_addresses: Vec::new(),
            broker_pid: None,
            threads: 1,
            patience: Duration::from_secs(5),
            deadline: Duration::from_secs(3600),
        }
    }
}

impl Spec {
    /// Finds what cannot work before anything is opened.
    pub fn check(&self) -> Result<(), LoadError> {
        let refuse = |field, why: &str| Err(LoadError::Spec { field, why: why.to_owned() });
        let clients = u64::from(self.publishers) + u64::from(self.subscribers);
        if clients == 0 || clients > u64::from(limits::CLIENTS_MAX) {
            return refuse("publishers", "a run has between 1 and 1 000 000 clients");
        }
        if self.scenario.is_paired() && self.publishers != self.subscribers {
            return refuse("subscribers", "pairs have as many subscribers as publishers");
        }
        if self.scenario.checks() && (self.publishers == 0 || self.subscribers == 0) {
            return refuse("subscribers", "needs both publishers and subscribers");
        }
        if !(1..=limits::THREADS_MAX).contains(&self.threads) {
            return refuse("threads", "between 1 and 256");
        }
        if self.deadline.is_zero() || self.deadline > limits::DEADLINE_MAX {
            return refuse("deadline", "above zero and at most a week");
        }
        let endless = self.messages == 0 && self.duration.is_zero();
        if endless && self.scenario != Scenario::Connect {
            return refuse("duration", "say how long, or how many messages");
        }
        self.check_messages()
    }

    fn check_messages(&self) -> Result<(), LoadError> {
        let refuse = |field, why: String| Err(LoadError::Spec { field, why });
        if !self.scenario.publishes() {
            return Ok(());
        }
        if self.scenario.checks() && self.payload_bytes < STAMP_BYTES {
            let why = format!("checked payloads have at least {STAMP_BYTES} bytes");
            return refuse("payload_bytes", why);
        }
        if self.payload_bytes > limits::PAYLOAD_BYTES_MAX {
            return refuse("payload_bytes", "larger than an MQTT packet can be".to_owned());
        }
        if !(1..=limits::TOPICS_MAX).contains(&self.topics) {
            return refuse("topics", "between 1 and 1 000 000".to_owned());
        }
        let heard_by =
            if self.scenario.is_paired() { 1 } else { u64::from(self.subscribers.max(1)) };
        let streams = u64::from(self.publishers) * u64::from(self.topics);
        if streams.saturating_mul(heard_by) > limits::CHECKS_MAX {
            return refuse("topics", "more streams than can be checked".to_owned());
        }
        match self.rate {
            Some(rate) if !rate.is_finite() || rate <= 0.0 => {
                refuse("rate", "a number above zero".to_owned())
            }
            None if self.scenario == Scenario::Latency => {
                refuse("rate", "latency is measured at a fixed rate".to_owned())
            }
            _ => Ok(()),
        }
    }
}
