//! Placeholder, see below.

use std::sync::Arc;

/// The retained messages of a subscription that have not been sent yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replay {
    pub(crate) filter: Arc<str>,
    /// Messages from this offset on reached the subscription live.
    pub(crate) before_offset: u64,
    /// The topic that was looked at last.
    pub(crate) last_topic: Option<Box<str>>,
}
