//! What a node must be told before it starts, and whether that can work.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quantumqtt_reactor::{Endpoint, Network, SHARDS_MAX, WrappingSpec};
use quantumqtt_topics::RuleTable;

use crate::limits::PARTITIONS_MAX;

/// Where to listen and who may come in by this door.
#[derive(Debug, Clone)]
pub struct ListenerConfig {
    /// How logs and metrics call it.
    pub name: String,
    /// Where it is.
    pub endpoint: Endpoint,
    /// What lies between its sockets and MQTT.
    pub wrapping: WrappingSpec,
    /// Whom a PROXY header is believed.
    pub proxies: Vec<Network>,
    /// Its share of the connections.
    pub connections_max: usize,
    /// The largest packet that may come in by it.
    pub packet_bytes_max: u32,
    /// Whether a CONNECT that no one vouched for may pass.
    pub allow_anonymous: bool,
    /// Whether a password may travel by this door: nobody else can read it on the way.
    pub allow_passwords: bool,
}

impl ListenerConfig {
    /// Bare TCP on a port of the kernel's choice that lets everybody in.
    pub fn open_tcp(host: impl Into<String>) -> Self {
        Self {
            name: "tcp".to_owned(),
            endpoint: Endpoint::Tcp { host: host.into(), port: 0 },
            wrapping: WrappingSpec::default(),
            proxies: Vec::new(),
            connections_max: usize::MAX,
            packet_bytes_max: u32::MAX,
            allow_anonymous: true,
            allow_passwords: true,
        }
    }
}

/// Bounds the operator may set; `config/limits.py` explains each to them.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "named and explained in config/limits.py, the operator's page")]
pub struct NodeLimits {
    pub packet_bytes_max: u32,
    pub connect_timeout_ms: u64,
    pub keep_alive_s_max: u16,
    pub receive_maximum: u16,
    pub session_expiry_s_max: u32,
    pub topic_alias_max: u16,
    pub will_grace_s: u32,
    pub subscriptions_max: u32,
    pub offline_bytes_max: u64,
    pub offline_count_max: u32,
    pub out_buffer_bytes_soft: usize,
    pub out_buffer_bytes_max: usize,
    pub connections_max: usize,
    pub connections_per_address_max: Option<usize>,
    pub event_queue_count_max: usize,
    pub admission_timeout_ms: u64,
    pub log_pending_bytes_max: u64,
}

/// Where and how a node keeps its log.
#[derive(Debug, Clone)]
pub struct LogConfig {
    /// The node's own directory.
    pub directory: PathBuf,
    /// Its keys.
    pub key_file: PathBuf,
    /// How long a sync may wait for more to write; None never waits (`strict`).
    pub group_delay: Option<Duration>,
    /// Size of one file of the log.
    pub segment_bytes: u64,
    /// A checkpoint is made when the log has grown, at least this often …
    pub checkpoint_interval: Duration,
    /// … and whenever it has grown by this much.
    pub checkpoint_log_bytes: u64,
    /// How long committed messages stay in the message log; None is for ever.
    pub retention_age: Option<Duration>,
    /// How much of it stays; None is all.
    pub retention_bytes: Option<u64>,
    /// The message log is written in files of about this size, joined later.
    pub chunk_bytes: u64,
    /// How fast what is at rest is read again in the background; 0 never does.
    pub scrub_bytes_per_s: u64,
    /// From the beginning of one such pass to that of the next.
    pub scrub_interval: Duration,
    /// Bytes the directory may take, if that is less than the disk has.
    pub disk_bytes_max: Option<u64>,
}

/// All that a node needs to know.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "switches of the operator, each by itself")]
pub struct NodeConfig {
    /// Its number in the cluster; part of every entry's header.
    pub node_id: u32,
    /// The tenant whose clients come in by these listeners.
    pub tenant: String,
    /// Partitions of that tenant.
    pub partitions: u32,
    /// Shard threads.
    pub shards: u16,
    /// Doors.
    pub listeners: Vec<ListenerConfig>,
    /// Bounds.
    pub limits: NodeLimits,
    /// Whether a CONNECT that carries credentials, or may not be anonymous, is put to Python.
    pub ask_admission: bool,
    /// Who may do what; without rules everybody may everything.
    pub rules: Option<Arc<RuleTable>>,
    /// Whether an MQTT 5 client that publishes where it may not is told so and then ended.
    pub disconnect_denied: bool,
    /// Whether a client with a user name must have it as its client id.
    pub client_id_is_user: bool,
    /// Methods of enhanced authentication that Python answers.
    pub auth_methods: Vec<String>,
    /// Whether a client may have more unacknowledged publishes than it was told.
    pub tolerates_excess: bool,
    /// The log; None is durability `memory`.
    pub log: Option<LogConfig>,
}

/// The configuration cannot work. Python validates first and says it better; this is the backstop.
#[derive(Debug, thiserror::Error)]
#[error("{key} cannot be {value}: {why}")]
pub struct ConfigError {
    /// Which field.
    pub key: &'static str,
    /// What it was.
    pub value: String,
    /// Why that cannot work.
    pub why: &'static str,
}

impl NodeConfig {
    /// What an acknowledgement means, in the operator's word.
    pub fn durability(&self) -> &'static str {
        match &self.log {
            None => "memory",
            Some(LogConfig { group_delay: None, .. }) => "strict",
            Some(_) => "group",
        }
    }

    /// Refuse what would fail or hang later.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let limits = &self.limits;
        let refuse = |key, value: String, why| Err(ConfigError { key, value, why });
        if self.shards == 0 || self.shards > SHARDS_MAX {
            return refuse("shards", self.shards.to_string(), "there are 1 to 64 shards");
        }
        if self.partitions == 0 || self.partitions > PARTITIONS_MAX {
            let why = "this version runs one partition per tenant";
            return refuse("partitions", self.partitions.to_string(), why);
        }
        if self.listeners.is_empty() {
            return refuse("listeners", "empty".to_owned(), "nobody could connect");
        }
        if limits.receive_maximum == 0 {
            return refuse("limits.receive_maximum", "0".to_owned(), "MQTT forbids 0");
        }
        if limits.packet_bytes_max < 2 {
            let value = limits.packet_bytes_max.to_string();
            return refuse("limits.packet_bytes_max", value, "no packet is that small");
        }
        if limits.out_buffer_bytes_max < limits.packet_bytes_max as usize {
            let value = limits.out_buffer_bytes_max.to_string();
            let why = "the largest packet must fit into an output buffer";
            return refuse("limits.out_buffer_bytes_max", value, why);
        }
        if limits.connect_timeout_ms == 0 || limits.admission_timeout_ms == 0 {
            let why = "nobody connects in no time";
            return refuse("limits.connect_timeout_ms", "0".to_owned(), why);
        }
        if self.listeners.iter().any(|listener| listener.packet_bytes_max < 2) {
            let why = "no packet is that small";
            return refuse("listeners.packet_bytes_max", "below 2".to_owned(), why);
        }
        if limits.connections_max == 0 || limits.event_queue_count_max == 0 {
            return refuse("limits.connections_max", "0".to_owned(), "nobody could connect");
        }
        Ok(())
    }
}
