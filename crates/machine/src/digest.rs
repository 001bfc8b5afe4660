//! The digest: one number that two replicas have in common exactly when their states are equal.
//!
//! It is XXH3-128 over a canonical walk of everything apply can read: counters and limits, sessions
//! by client id, in each its subscriptions by filter, its window in order of beginning, its backlog
//! in order of commitment, its received ids ascending; share groups by filter with members in their
//! order and the cursor; retained messages by topic. The order of arrival shows only where it is
//! itself state (DET-05). Not walked: the trie and the deadlines, which say again what sessions and
//! retained messages say, and the counters of `statistics.rs`, which nothing reads.
//!
//! Every text and list carries its length, so no two states write the same bytes.

use std::collections::BTreeSet;

use quantumqtt_topics::Filter;
use xxhash_rust::xxh3::Xxh3;

use crate::backlog::Delivery;
use crate::codec::write_limits;
use crate::command::Origin;
use crate::effect::Subscription;
use crate::machine::Machine;
use crate::message::Message;
use crate::session::Session;
use crate::will::StoredWill;
use crate::window::Stage;

impl Machine {
    /// The digest of the whole state. Walks all of it: for checkpoints and comparisons, not for
    /// every entry.
    pub fn digest(&self) -> u128 {
        let mut walk = Walk::new();
        let mut limits = Vec::new();
        write_limits(&mut limits, &self.limits);
        walk.bytes(&limits);
        for number in [
            u64::from(self.partition),
            self.now_ms,
            self.next_offset,
            self.next_publish_seq,
            self.last_epoch,
            self.last_incarnation,
        ] {
            walk.number(number);
        }
        walk.number(self.sessions.len() as u64);
        for session in self.sessions.by_client_id() {
            walk.session(session);
        }
        self.walk_share_groups(&mut walk);
        walk.number(self.retained.len() as u64);
        for (_, message) in self.retained.iter() {
            walk.message(message);
        }
        walk.hash.digest128()
    }

    fn walk_share_groups(&self, walk: &mut Walk) {
        let filters = self.sessions.by_client_id().flat_map(|session| session.subscriptions.keys());
        let shared: BTreeSet<&str> =
            filters.map(AsRef::as_ref).filter(|filter| filter.starts_with("$share/")).collect();
        for text in shared {
            let Ok(filter) = Filter::parse(text) else {
                continue;
            };
            let group = self.subscriptions.find_group(&filter);
            let Some(group) = group.and_then(|id| self.subscriptions.group(id)) else {
                continue;
            };
            walk.text(text);
            walk.number(group.cursor() as u64);
            walk.number(group.len() as u64);
            for (key, _) in group.members() {
                walk.number(key);
            }
        }
    }
}

struct Walk {
    hash: Xxh3,
}

impl Walk {
    fn new() -> Self {
        Self { hash: Xxh3::new() }
    }

    fn number(&mut self, number: u64) {
        self.hash.update(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.hash.update(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn optional(&mut self, number: Option<u64>) {
        self.number(u64::from(number.is_some()));
        self.number(number.unwrap_or(0));
    }

    fn flag(&mut self, flag: bool) {
        self.number(u64::from(flag));
    }

    fn origin(&mut self, origin: Origin) {
        self.number(u64::from(origin.node));
        self.number(u64::from(origin.shard));
        self.number(origin.connection);
    }

    fn session(&mut self, session: &Session) {
        self.text(&session.client_id);
        self.text(&session.identity);
        self.number(session.incarnation);
        self.number(session.epoch);
        self.number(u64::from(session.expiry_s));
        self.optional(session.expires_at_ms);
        self.optional(session.detached_at_ms);
        self.optional(session.will_due_ms);
        self.flag(session.attachment.is_some());
        if let Some(attachment) = session.attachment {
            self.origin(attachment.origin);
            self.number(u64::from(attachment.level));
            self.number(u64::from(attachment.maximum_packet_bytes));
        }
        self.flag(session.will.is_some());
        if let Some(will) = &session.will {
            self.will(will);
        }
        self.number(session.subscriptions.len() as u64);
        for subscription in session.subscriptions.values() {
            self.subscription(subscription);
        }
        self.exchanges(session);
        self.number(session.backlog.len() as u64);
        for delivery in session.backlog.iter() {
            self.delivery(delivery);
        }
        self.number(session.received.len() as u64);
        for (packet_id, received) in &session.received {
            self.number(u64::from(*packet_id));
            self.number(received.publish_seq);
            self.number(received.content_hash);
        }
    }

    fn exchanges(&mut self, session: &Session) {
        self.number(u64::from(session.window.next_id()));
        self.number(u64::from(session.window.maximum()));
        self.number(session.window.len() as u64);
        for exchange in session.window.exchanges() {
            self.number(u64::from(exchange.packet_id));
            match &exchange.stage {
                Stage::Unsent(delivery) => {
                    self.number(0);
                    self.delivery(delivery);
                }
                Stage::Sent(delivery) => {
                    self.number(1);
                    self.delivery(delivery);
                }
                Stage::Released => self.number(2),
            }
        }
    }

    fn will(&mut self, will: &StoredWill) {
        self.text(&will.topic);
        self.bytes(&will.properties);
        self.bytes(&will.payload);
        self.number(u64::from(will.qos.bits()));
        self.flag(will.retain);
        self.number(u64::from(will.delay_s));
        self.optional(will.expiry_s.map(u64::from));
    }

    fn subscription(&mut self, subscription: &Subscription) {
        self.text(&subscription.filter);
        self.number(u64::from(subscription.options.to_byte()));
        self.optional(subscription.subscription_id.map(u64::from));
    }

    fn delivery(&mut self, delivery: &Delivery) {
        self.message(&delivery.message);
        self.number(u64::from(delivery.qos.bits()));
        self.flag(delivery.retain);
        self.number(delivery.subscription_ids.len() as u64);
        for id in &delivery.subscription_ids {
            self.number(u64::from(*id));
        }
        self.flag(delivery.share.is_some());
        if let Some(share) = &delivery.share {
            self.text(&share.filter);
            self.flag(share.retain);
        }
    }

    fn message(&mut self, message: &Message) {
        self.number(message.offset);
        self.number(message.accepted_ms);
        self.optional(message.expiry_s.map(u64::from));
        self.number(u64::from(message.qos.bits()));
        self.text(&message.topic);
        self.bytes(&message.properties);
        self.bytes(&message.payload);
    }
}
