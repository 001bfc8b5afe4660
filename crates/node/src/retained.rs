//! Retained messages for transient subscribers, a page at a time.
//!
//! Theory of operation. What is retained is known where the partition lives; the subscriber may be
//! on another shard. A new subscription is put into its connection's row. The first of the row asks
//! the partition's owner for one page; the owner writes it and says where the next begins; and that
//! is asked for once the client has taken it: when nothing waits behind its window and its buffer
//! is below the soft limit. So neither shard does more than a page in a turn, nobody else is kept
//! waiting, and ten thousand messages cost no more memory than a page.
//!
//! The owner writes the page itself, in the turn in which it reads it: a message that replaces one
//! of them is committed and delivered before that or after it, so nobody sees the new one first.
//! What is committed after the subscription comes live and only live, and is held back until the
//! row is empty, or a message on its way past the machine would overtake the retained one it was
//! published behind. A subscription that is taken back or renewed leaves the row.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use quantumqtt_machine::{Message, SubscriptionOptions};
use quantumqtt_reactor::{ConnectionId, Turn};
use quantumqtt_topics::Filter;
use quantumqtt_wire::QoS;

use crate::connection::Connection;
use crate::deliver::{Outgoing, count_loose, deliver_retained};
use crate::effects::stored_properties;
use crate::index::Subscriber;
use crate::limits::{RETAINED_PAGE_BYTES, RETAINED_PAGE_MESSAGES, RETAINED_PAGE_VISITS};
use crate::outbound::{Sent, hold_live, let_live_go};
use crate::reasons::{CloseReason, DropReason};
use crate::shard::{Mail, ShardService, close, go_on};
use crate::system::is_system;

/// Retained messages of one filter, as a transient session wants them.
#[derive(Debug, Clone)]
pub(crate) struct RetainedWanted {
    pub(crate) filter: Box<str>,
    pub(crate) qos: QoS,
    pub(crate) subscription_id: Option<u32>,
    pub(crate) number: u64,
    /// What is committed from here on comes live, and not once more from the store.
    pub(crate) before_offset: u64,
    /// The last topic that was looked at; none at the beginning.
    pub(crate) after: Option<Box<str>>,
}

impl RetainedWanted {
    pub(crate) fn new(filter: Box<str>, qos: QoS, subscription_id: Option<u32>) -> Self {
        Self { filter, qos, subscription_id, number: 0, before_offset: u64::MAX, after: None }
    }
}

/// A question for one page.
pub(crate) struct PageWanted {
    wanted: RetainedWanted,
    subscriber: Subscriber,
}

/// The answer: it was written.
pub(crate) struct PageWritten {
    /// Where the next one begins; none when this was the last.
    after: Option<Box<str>>,
}

/// What a connection still has to be sent.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    row: VecDeque<RetainedWanted>,
    /// Tells a subscription from the one before it by the same filter.
    next_number: u64,
    /// A page of this one is being written.
    asked_for: Option<u64>,
    /// Live messages are held back.
    is_holding: bool,
}

impl Connection {
    /// Forget what is still to be sent for a filter.
    pub(crate) fn stop_replay(&mut self, filter: &str) {
        if let Some(replay) = self.rare.as_mut().and_then(|rare| rare.replay.as_mut()) {
            replay.row.retain(|wanted| *wanted.filter != *filter);
        }
    }
}

impl ShardService {
    /// A new subscription is about to be made live, and wants what is retained before that.
    pub(crate) fn hold_live(turn: &mut Turn<Self>, connection: &mut Connection) {
        turn.write(&connection.outlet, hold_live);
        connection.rare().replay.get_or_insert_default().is_holding = true;
    }

    /// Nothing retained is left to be sent: what was held back goes out.
    fn let_live_go(&self, turn: &mut Turn<Self>, connection: &mut Connection) {
        let replay = connection.rare.as_mut().and_then(|rare| rare.replay.as_mut());
        let Some(replay) = replay.filter(|replay| replay.is_holding) else { return };
        replay.is_holding = false;
        let gone = turn.write(&connection.outlet, let_live_go);
        count_loose(self.cells(), gone.loose);
        self.cells().count_drop(DropReason::Expired, gone.expired);
        if gone.sent == Sent::TooSlow {
            let then = close(turn, connection, CloseReason::SlowSubscriber);
            go_on(turn, connection, then);
        }
    }

    /// New subscriptions want what is retained.
    pub(crate) fn begin_replay(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        wanted: Vec<RetainedWanted>,
    ) {
        if wanted.is_empty() {
            return;
        }
        // Read after the subscription stands in the index, so nothing falls between the two.
        let before_offset = self.shared.next_offset.load(Ordering::Acquire);
        let replay = connection.rare().replay.get_or_insert_default();
        for mut wanted in wanted {
            wanted.number = replay.next_number;
            wanted.before_offset = before_offset;
            replay.next_number += 1;
            replay.row.push_back(wanted);
        }
        self.go_on_with_replay(turn, connection);
    }

    /// Ask for the next page, if there is one and the client has taken the one before.
    pub(crate) fn go_on_with_replay(&self, turn: &mut Turn<Self>, connection: &mut Connection) {
        let replay = connection.rare.as_ref().and_then(|rare| rare.replay.as_ref());
        let Some(replay) = replay.filter(|replay| replay.asked_for.is_none()) else { return };
        let Some(next) = replay.row.front() else {
            return self.let_live_go(turn, connection);
        };
        let has_taken = turn.write(&connection.outlet, |out| {
            !out.is_over_soft_limit() && out.outbound.nothing_waits()
        });
        if has_taken {
            let wanted = next.clone();
            let options = SubscriptionOptions::with_qos(wanted.qos);
            let subscriber = Subscriber::of(connection, options, wanted.subscription_id);
            let asked_for = Some(wanted.number);
            let wanted = Box::new(PageWanted { wanted, subscriber });
            let mail = Mail::RetainedWanted { connection: connection.id, wanted };
            turn.post(self.proposals.owner(), mail);
            if let Some(replay) = connection.rare().replay.as_mut() {
                replay.asked_for = asked_for;
            }
        }
    }

    /// Read one page and write it, on the shard that owns the partition.
    pub(crate) fn write_retained(
        &mut self,
        turn: &mut Turn<Self>,
        connection: ConnectionId,
        page: &PageWanted,
    ) {
        let PageWanted { wanted, subscriber } = page;
        let mut found: Vec<Arc<Message>> = Vec::new();
        let mut after = None;
        let filter = Filter::parse(&wanted.filter).ok();
        if let Some(filter) = filter.filter(|filter| is_system(filter.pattern)) {
            self.write_system(turn, subscriber, &filter);
        } else if let (Some(partition), Some(filter)) = (&self.partition, filter) {
            let (mut bytes, mut visits) = (0, 0);
            let from = wanted.after.as_deref();
            after = partition.machine().visit_retained(&filter, from, |message| {
                visits += 1;
                let is_wanted = |message: &&Arc<Message>| {
                    message.offset < wanted.before_offset && !message.is_expired(turn.now_ms())
                };
                if let Some(message) = message.filter(is_wanted) {
                    bytes += message.payload.len();
                    found.push(Arc::clone(message));
                }
                visits < RETAINED_PAGE_VISITS
                    && bytes < RETAINED_PAGE_BYTES
                    && found.len() < RETAINED_PAGE_MESSAGES
            });
        }
        let cells = &self.shared.cells[usize::from(self.shard)];
        for message in found {
            if !self.rights.may_read(subscriber.reader.who(), &message.topic) {
                cells.count_drop(DropReason::NotAuthorized, 1);
                continue;
            }
            let outgoing = Outgoing {
                topic: &message.topic,
                payload: &message.payload,
                properties: stored_properties(&message.properties),
                expiry_s: message.remaining_s(turn.now_ms()),
                qos: message.qos.min(wanted.qos),
                retain: true,
                publisher: None,
            };
            deliver_retained(&mut self.encoder, turn, cells, subscriber, &outgoing);
        }
        let written = PageWritten { after };
        turn.post(connection.shard(), Mail::RetainedWritten { connection, written });
    }

    /// A page was written for a transient subscriber of this shard.
    pub(crate) fn on_retained_written(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        written: PageWritten,
    ) {
        let replay = connection.rare.as_mut().and_then(|rare| rare.replay.as_mut());
        let Some(replay) = replay else { return };
        let was_asked_for = replay.asked_for.take();
        match replay.row.front_mut() {
            // Renewed meanwhile, a subscription begins anew: this was a page of the one before.
            Some(wanted) if Some(wanted.number) == was_asked_for => {
                if written.after.is_some() {
                    wanted.after = written.after;
                } else {
                    replay.row.pop_front();
                }
            }
            _ => {}
        }
        self.go_on_with_replay(turn, connection);
    }
}
