//! The retained messages of a new subscription, sent as the window drains.
//!
//! A subscription may match more retained messages than a window and a backlog hold, so they are
//! not queued. What is kept is a place in the retained index: the topic that was looked at last.
//! Whenever the window has room and nothing else waits, the walk goes on from there.
//!
//! Rules:
//! - First what an earlier connection began, then what waits, then replays in the order of
//!   subscribing: what is live never waits behind what is old.
//! - A message that was retained after the subscription was made reached it live; the walk passes
//!   it over, so nothing comes twice.
//! - The walk shows the index as it finds it: a message that is replaced, removed or expired before
//!   its turn is not sent.
//! - Subscribing again begins again, if it asks for retained messages; unsubscribing ends it. A
//!   lost connection does neither: the next one goes on.
//!
//! `QoS` 0 takes no room in the window, so nothing but the messages before it holds it up.

use std::sync::Arc;

use quantumqtt_topics::Filter;
use quantumqtt_wire::QoS;

use crate::backlog::Delivery;
use crate::effect::{Effect, Subscription};
use crate::message::Message;
use crate::session::{Session, Turn};

/// Where the replay of one subscription stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replay {
    /// The subscription, which says how to send.
    pub(crate) filter: Arc<str>,
    /// Messages from this offset on reached the subscription live.
    pub(crate) before_offset: u64,
    /// The topic that was looked at last.
    pub(crate) last_topic: Option<Box<str>>,
}

impl Session {
    /// A subscription asks for its retained messages; those from `before_offset` on are live.
    pub(crate) fn add_replay(&mut self, filter: &Arc<str>, before_offset: u64) {
        self.drop_replay(filter);
        self.replays.push(Replay { filter: filter.clone(), before_offset, last_topic: None });
    }

    pub(crate) fn drop_replay(&mut self, filter: &str) {
        self.replays.retain(|replay| *replay.filter != *filter);
    }

    /// Sends retained messages while the window has room. The caller has sent all that comes first.
    pub(crate) fn run_replays(&mut self, turn: &mut Turn<'_>, effects: &mut Vec<Effect>) {
        while self.window.admits() && !self.replays.is_empty() {
            let mut replay = self.replays.remove(0);
            if !self.run_replay(&mut replay, turn, effects) {
                self.replays.insert(0, replay);
                return;
            }
        }
    }

    /// Whether the replay is over; if not, the window is full.
    fn run_replay(
        &mut self,
        replay: &mut Replay,
        turn: &mut Turn<'_>,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Some(subscription) = self.subscriptions.get(&replay.filter).cloned() else {
            return true;
        };
        let Ok(filter) = Filter::parse(&subscription.filter) else {
            return true;
        };
        let mut last_topic = None;
        for (topic, message) in turn.retained.after(&filter, replay.last_topic.as_deref()) {
            if !self.window.admits() {
                replay.last_topic = last_topic.map(Into::into).or(replay.last_topic.take());
                return false;
            }
            last_topic = Some(topic);
            if message.offset < replay.before_offset && !message.is_expired(turn.now_ms) {
                self.send_retained(message, &subscription, turn, effects);
            }
        }
        true
    }

    fn send_retained(
        &mut self,
        message: &Arc<Message>,
        subscription: &Subscription,
        turn: &mut Turn<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let qos = message.qos.min(subscription.options.qos);
        let mut delivery = Delivery::new(message.clone(), qos, true);
        delivery.subscription_ids.extend(subscription.subscription_id);
        if qos == QoS::AtMostOnce {
            self.send(None, delivery, false, turn, effects);
        } else {
            self.begin(delivery, turn, effects);
        }
    }
}
