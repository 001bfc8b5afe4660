//! A load generator for MQTT brokers that checks what it measures.
//!
//! It must cost less per message than any broker it measures, and it must not believe anybody:
//! every message carries who sent it, which one it is and when it left, and every subscriber judges
//! what it gets. [`run`] makes one run of a [`Spec`] and returns a [`Report`].
//!
//! How it stays cheap: a thread owns its clients and shares nothing; packets are encoded once and
//! patched; what arrives is skimmed, not decoded; one read and one write per
//! socket and turn. How it stays honest: in a closed loop a window bounds what is under way, so
//! that the figure is the broker's and not that of socket buffers; in an open loop messages are
//! stamped with the time at which they were *due*, so that a stall of the broker shows in the
//! latency of every message it held up, and not only in those that were sent meanwhile.
//!
//! Nothing is opened but connections to the one address of the spec, and nothing lasts longer than
//! its deadline.

#![forbid(unsafe_code)]

mod block;
mod client;
mod delivery;
mod error;
mod farewell;
mod fence;
mod histogram;
mod inbound;
mod inflight;
mod link;
mod opening;
mod outbound;
mod pace;
mod plan;
mod process;
mod report;
mod run;
mod sequence;
mod spec;
mod stamp;
mod tally;
mod worker;

pub use error::{Fault, LoadError};
pub use histogram::Histogram;
pub use process::ProcessSample;
pub use quantumqtt_wire::{QoS, Version};
pub use report::{BrokerUsage, Report};
pub use run::{Progress, Stage, run};
pub use spec::{Scenario, Spec, limits};
pub use stamp::STAMP_BYTES;
