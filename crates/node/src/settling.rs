//! The end of a drain: what the last connections left behind is in the log before the node stops.
//!
//! A drain is over for the reactor when every connection is closed, but their loss and their wills
//! may still be on the way to the partition, or to the disk. Each shard hands over what it has and
//! sends word behind it; when the owner has everybody's and its partition waits for nothing, the
//! thread that drains goes on. A node whose log has failed or is full never settles; it is waited
//! for no longer than for its clients.

use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use quantumqtt_reactor::Turn;

use crate::partition::Partition;
use crate::shard::{Mail, ShardService};

/// Where the thread that drains waits.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    is_settled: Mutex<bool>,
    changed: Condvar,
}

impl Settled {
    /// Nobody has to wait any more.
    pub(crate) fn tell(&self) {
        *self.is_settled.lock() = true;
        self.changed.notify_all();
    }

    /// True when it was in time.
    pub(crate) fn wait(&self, until: Instant) -> bool {
        let mut is_settled = self.is_settled.lock();
        while !*is_settled {
            if self.changed.wait_until(&mut is_settled, until).timed_out() {
                return *is_settled;
            }
        }
        true
    }
}

impl ShardService {
    /// No connection is left here: send what they left, and word behind it.
    pub(crate) fn on_settle(&mut self, turn: &mut Turn<Self>) {
        self.proposals.hand_over(turn);
        turn.post(self.proposals.owner(), Mail::HandedOver);
    }

    /// Everything that was handed over is proposed; see whether it is durable, too.
    pub(crate) fn settle_if_all_did(&mut self, partition: &mut Partition) {
        if self.handed_over == self.effects_out.len() && partition.is_settled() {
            self.handed_over = 0;
            self.shared.settled.tell();
        }
    }
}
