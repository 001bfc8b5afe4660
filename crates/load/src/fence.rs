//! The proof that a broker has read what was published to nobody.
//!
//! At QoS 0 without a subscriber of ours nothing answers for a message, and socket buffers take
//! millions of them: counting what was *written* would measure the kernel. So a publisher ends with
//! a ping. A broker serves a connection in order, hence its answer means that everything before was
//! read, and the run lasts until then.

use quantumqtt_wire::QoS;

use crate::client::{Client, Phase, Publisher, Role};
use crate::error::Fault;
use crate::spec::Scenario;
use crate::worker::Worker;

impl Worker {
    /// Whether only a fence can tell when this scenario is over.
    pub(crate) fn needs_fences(&self) -> bool {
        let spec = &self.plan.spec;
        spec.scenario == Scenario::Publish && spec.qos == QoS::AtMostOnce
    }

    /// Sends the last ping of every publisher whose messages have all been written.
    pub(crate) fn raise_fences(&mut self) {
        for index in 0..self.publishers.len() {
            let publisher = &mut self.publishers[index];
            let has_left = publisher.block.unwritten(false).is_empty();
            if has_left && !publisher.is_fenced && self.clients[index].phase == Phase::Running {
                publisher.is_fenced = true;
                self.ping(index);
            }
        }
    }

    /// A ping was answered.
    pub(crate) fn on_pong(&mut self, index: usize) {
        let client = &mut self.clients[index];
        client.pings_unanswered = client.pings_unanswered.saturating_sub(1);
        if let Role::Publisher(publisher) = client.role
            && self.publishers[publisher].is_fenced
        {
            self.last_activity_ns = self.now_ns;
        }
    }

    /// Publishers whose last messages the broker may not have read yet.
    pub(crate) fn unread_publishers(&self) -> usize {
        let pairs = self.publishers.iter().zip(&self.clients);
        // One whose connection is gone was counted as a fault when it went.
        let is_unread = |(publisher, client): &(&Publisher, &Client)| {
            client.phase != Phase::Gone && (!publisher.is_fenced || client.pings_unanswered > 0)
        };
        pairs.filter(is_unread).count()
    }

    /// Counts the publishers of which we do not know, at the end.
    pub(crate) fn judge_fences(&mut self) {
        for _ in 0..self.unread_publishers() {
            self.tally.fault(Fault::Unread, || "no answer to the ping behind them".to_owned());
        }
    }
}
