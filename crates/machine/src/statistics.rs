//! What exporters read: present sizes, and counts of what happened since this machine was made.
//!
//! Counters are observations, not state: nothing in apply reads them, the digest leaves them out,
//! and a machine restored from a checkpoint starts them at zero.

use crate::effect::EndReason;

/// Things that happened and left no other trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Commands of an older connection, which changed nothing.
    pub stale_commands: u64,
    /// Openings refused because the client id belongs to someone else.
    pub opens_refused: u64,
    /// `QoS` 2 publishes repeated before their PUBREL.
    pub duplicate_publishes: u64,
    /// Those among them whose content differed from the first.
    pub conflicting_duplicates: u64,
    /// Publishes whose key was known: acknowledged, not published.
    pub deduplicated_publishes: u64,
    /// Keys forgotten before their time because there were too many.
    pub dedupe_keys_pressed_out: u64,
    /// Publishes refused with 0x97.
    pub publishes_refused: u64,
    /// Messages that expired before they could be sent.
    pub expired_messages: u64,
    /// Messages larger than their subscriber takes.
    pub oversized_dropped: u64,
    /// Messages dropped by `DropOldest` and `DropNewest`.
    pub overflow_dropped: u64,
    /// `QoS` 0 messages for sessions that were away.
    pub offline_qos0_dropped: u64,
    /// Messages of a share group none of whose members could take or keep them.
    pub share_unserved: u64,
    /// Sessions thrown away by a clean start.
    pub sessions_discarded: u64,
    /// Sessions that ended with their connection.
    pub sessions_closed: u64,
    /// Sessions that were away for too long.
    pub sessions_expired: u64,
    /// Sessions ended because their backlog was full.
    pub sessions_overflowed: u64,
    /// Wills published.
    pub wills_published: u64,
}

impl Counters {
    pub(crate) fn count_end(&mut self, reason: EndReason) {
        let counter = match reason {
            EndReason::Discarded => &mut self.sessions_discarded,
            EndReason::Closed => &mut self.sessions_closed,
            EndReason::Expired => &mut self.sessions_expired,
            EndReason::Overflowed => &mut self.sessions_overflowed,
        };
        *counter += 1;
    }
}

/// A frozen view of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics {
    /// Stored sessions, without guests.
    pub sessions: u64,
    /// Members of share groups whose session ends with their connection.
    pub guests: u64,
    /// Those attached to a connection.
    pub sessions_attached: u64,
    /// Subscriptions of stored sessions; each member of a share group is one.
    pub subscriptions: u64,
    /// Share groups.
    pub share_groups: u64,
    /// Retained messages.
    pub retained: u64,
    /// Their bytes, topics included.
    pub retained_bytes: u64,
    /// Messages that wait behind windows.
    pub queued: u64,
    /// Their bytes; a message waiting for two sessions counts twice.
    pub queued_bytes: u64,
    /// Exchanges subscribers have not finished.
    pub in_flight: u64,
    /// Deadlines that wait for a tick.
    pub deadlines: u64,
    /// De-duplication keys remembered.
    pub dedupe_keys: u64,
    /// The offset the next record will get.
    pub next_offset: u64,
    /// The machine's time.
    pub now_ms: u64,
    /// What happened.
    pub counters: Counters,
}
