//! One client: where it stands in its life, and what it needs for its part.
//!
//! ```text
//! Unopened → Opening → Greeting → (Subscribing) → Running → Gone
//!              TCP      CONNECT     SUBSCRIBE        └─→ Leaving → Gone     churn only
//! ```
//!
//! Any phase may end in `Gone`. Only churn (connecting again and again) leads from there back to
//! `Opening`; nothing else reconnects, so that every loss stays visible.

use std::ops::Range;

use quantumqtt_wire::{EncodeError, QoS};

use crate::block::{Block, Pattern};
use crate::inflight::Inflight;
use crate::link::Link;
use crate::plan::Plan;
use crate::sequence::SequenceCheck;

/// A block is as large as one write is likely to be; more would only cost cache.
const BLOCK_BYTES_MAX: usize = 64 * 1024;
/// And all blocks together, so that a thousand publishers do not fill the memory.
const BLOCKS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Where a client stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not tried yet, or to be tried again.
    Unopened,
    /// TCP is being connected.
    Opening,
    /// CONNECT has left or is about to.
    Greeting,
    /// SUBSCRIBE, too.
    Subscribing,
    /// Ready for its part.
    Running,
    /// DISCONNECT has left; the broker is to close.
    Leaving,
    /// Over.
    Gone,
}

impl Phase {
    /// Whether the client counts against the number being connected at once.
    pub(crate) const fn is_busy(self) -> bool {
        matches!(self, Self::Opening | Self::Greeting | Self::Subscribing | Self::Leaving)
    }
}

/// What a client is here for; the index counts within its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Publisher(usize),
    Subscriber(usize),
    Bare,
}

/// A client's connection and phase.
pub(crate) struct Client {
    pub(crate) role: Role,
    /// Its number among those of its role, over all threads.
    pub(crate) number: u32,
    pub(crate) phase: Phase,
    pub(crate) link: Option<Link>,
    /// When the current phase chain began: the connect was started.
    pub(crate) opened_ns: u64,
    /// How many times it has connected.
    pub(crate) connects: u64,
    /// Pings the broker has not answered.
    pub(crate) pings_unanswered: u32,
    /// It stands in the list of those to be read again.
    pub(crate) is_queued: bool,
}

impl Client {
    pub(crate) const fn new(role: Role, number: u32) -> Self {
        Self {
            role,
            number,
            phase: Phase::Unopened,
            link: None,
            opened_ns: 0,
            connects: 0,
            pings_unanswered: 0,
            is_queued: false,
        }
    }
}

/// What a publishing client has sent and still waits for.
pub(crate) struct Publisher {
    pub(crate) number: u32,
    pub(crate) block: Block,
    /// At QoS 1 and 2.
    pub(crate) inflight: Option<Inflight>,
    pub(crate) sent: u64,
    /// Deliveries of its messages, over all its subscribers; at QoS 0 they open the window.
    pub(crate) delivered: u64,
    /// When the last of them came, for noticing that no more will.
    pub(crate) progress_ns: u64,
    /// The ping behind its last message has left; see [`crate::fence`].
    pub(crate) is_fenced: bool,
    /// It stands in the list of those that may send.
    pub(crate) is_queued: bool,
}

impl Publisher {
    pub(crate) fn new(plan: &Plan, number: u32) -> Result<Self, EncodeError> {
        let spec = &plan.spec;
        let topic = plan.topic(number);
        let pattern = Pattern {
            version: spec.version,
            qos: spec.qos,
            retain: spec.retain,
            topic: &topic,
            topics: spec.topics,
            payload_bytes: spec.payload_bytes,
        };
        let bytes_max = (BLOCKS_BYTES_MAX / spec.publishers.max(1) as usize).min(BLOCK_BYTES_MAX);
        let copies_max = if spec.window == 0 { usize::MAX } else { spec.window as usize };
        Ok(Self {
            number,
            block: Block::new(&pattern, bytes_max, copies_max)?,
            inflight: (spec.qos > QoS::AtMostOnce).then(|| Inflight::new(spec.window)),
            sent: 0,
            delivered: 0,
            progress_ns: 0,
            is_fenced: false,
            is_queued: false,
        })
    }
}

/// What a subscribing client has seen of the streams it hears.
pub(crate) struct Subscriber {
    pub(crate) first_stream: u32,
    pub(crate) checks: Vec<SequenceCheck>,
}

impl Subscriber {
    pub(crate) fn new(streams: Range<u32>) -> Self {
        let checks = vec![SequenceCheck::default(); streams.len()];
        Self { first_stream: streams.start, checks }
    }
}
