//! What happens at a time: one ordered set of deadlines.
//!
//! The set answers two questions: what is due at the time of a `Tick`, and when a `Tick` is next
//! worth proposing. Between ticks nothing here happens, however late it gets: replicas agree on
//! time only through the log. The one exception is named in `session.rs`: a client that
//! returns too late finds its session gone, or its will published, even if no tick came first.
//!
//! Messages waiting in a backlog have no deadline; see `backlog.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::session::SessionKey;

/// What is due. The order decides between things due at the same millisecond, alike everywhere.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deadline {
    Will(SessionKey),
    Session(SessionKey),
    Retained(Arc<str>),
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    set: BTreeSet<(u64, Deadline)>,
}

impl Deadlines {
    pub(crate) fn insert(&mut self, at_ms: u64, deadline: Deadline) {
        self.set.insert((at_ms, deadline));
    }

    pub(crate) fn remove(&mut self, at_ms: u64, deadline: Deadline) {
        self.set.remove(&(at_ms, deadline));
    }

    /// The earliest deadline, if it is due.
    pub(crate) fn take_due(&mut self, now_ms: u64) -> Option<Deadline> {
        if self.next_ms()? > now_ms {
            return None;
        }
        self.set.pop_first().map(|(_, deadline)| deadline)
    }

    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.set.first().map(|(at_ms, _)| *at_ms)
    }

    pub(crate) fn len(&self) -> usize {
        self.set.len()
    }
}
