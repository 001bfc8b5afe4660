//! Joins the native rooms into one running broker.
//!
//! A [`Node`] is a reactor whose service speaks MQTT: `wire` reads packets, `topics` routes them,
//! `machine` keeps what must outlive a connection, and this crate carries effects back to the
//! connections that wait for them. Python starts a node, watches its events and reads its
//! statistics; it is never asked per message.
//!
//! Two ways through the node, told apart in `publish.rs`:
//! - QoS 0 goes from the publisher's read buffer straight into subscribers' write buffers.
//! - Everything that is acknowledged becomes a command. The commands of one turn are one entry;
//!   the shard that owns the partition applies it (`partition.rs`) and the effects go to the
//!   shards that own the sockets (`effects.rs`). While there is no journal, an entry is applied as
//!   soon as it is proposed; the journal will stand exactly between those two steps.

#![forbid(unsafe_code)]
#![allow(clippy::similar_names)] // `shard` is one of the `shards` that share `shared`

mod admission;
mod aliases;
mod authentication;
mod caretaker;
mod checkpointer;
mod config;
mod connect;
mod connection;
mod crank;
mod deliver;
mod disk_use;
mod effects;
mod events;
mod guest;
mod index;
mod keeper;
mod limits;
mod log;
mod log_view;
mod message_log;
mod node;
mod open_log;
mod open_records;
mod outbound;
mod packets;
mod partition;
mod playback;
mod pressure;
mod publish;
mod questions;
mod reasons;
mod recorded;
mod registry;
mod replay_from;
mod retained;
mod rights;
mod run;
mod settling;
mod shard;
mod statistics;
mod subscribe;
mod system;
mod utc;
mod verdicts;
mod will;

pub use authentication::Answer;
pub use config::{ConfigError, ListenerConfig, LogConfig, NodeConfig, NodeLimits};
pub use crank::{Crank, CrankSpec, CrankStatus, Stopped, Turned};
pub use events::{Event, EventKind};
pub use message_log::{LogStopped, MessageLog};
pub use node::{Node, StartError};
pub use open_log::{LogError, state_of};
pub use quantumqtt_machine::SessionView;
pub use quantumqtt_reactor::{
    BadNetwork, BoundListener, CertificateUser, Endpoint, Network, ProxyMode, TlsContext, TlsFiles,
    TlsRefused, TlsVersion, UpgradeRules, WrappingSpec,
};
pub use quantumqtt_topics::RuleTable;
pub use questions::StateDigest;
pub use reasons::{CloseReason, DenialReason, DropReason, RefusalReason};
pub use statistics::{LogStatistics, ScrubStatistics, Statistics};
pub use system::SystemMessage;
