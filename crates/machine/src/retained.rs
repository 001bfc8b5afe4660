//! Retained messages: the last one of each topic, for subscribers that come later.
//!
//! Rules: a retained publish replaces its topic's message; an empty one removes it and is itself
//! delivered like any other (RET-02) [MQTT-3.3.1-6]. A new subscription receives what its filter
//! matches, in topic order, as the session's window drains (`replay.rs`), flagged as retained; a
//! shared subscription receives none. An expired message is never sent, and a tick removes it. The
//! quota refuses new bytes and never a removal (RET-06).

use std::sync::Arc;

use quantumqtt_topics::{Filter, RetainedIndex, RetainedMatches, Visit};

use crate::checkpoint::{Copies, Next};
use crate::expiry::Deadline;
use crate::machine::Machine;
use crate::message::Message;

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Retained {
    index: RetainedIndex<Arc<Message>>,
    copies: Copies<Arc<Message>>,
}

impl Default for Retained {
    fn default() -> Self {
        let index = RetainedIndex::new(|message: &Arc<Message>| body_bytes(message));
        Self { index, copies: Copies::default() }
    }
}

/// The index counts the topic itself.
fn body_bytes(message: &Message) -> usize {
    message.properties.len() + message.payload.len()
}

impl Retained {
    /// A checkpoint begins, or ends early.
    pub(crate) fn set_copying(&mut self, is_copying: bool) {
        if is_copying { self.copies.begin() } else { self.copies.end() }
    }

    /// The next message, by topic, as it was when the checkpoint began.
    pub(crate) fn take_copy(&mut self) -> Option<Arc<Message>> {
        let index = &self.index;
        match self.copies.take_next(|from| index.first_from(from).map(|(topic, _)| topic)) {
            Next::Copied(message) => Some(message),
            Next::Live(topic) => index.get(&topic).cloned(),
            Next::End => None,
        }
    }

    fn set(&mut self, message: &Arc<Message>) -> Option<Arc<Message>> {
        self.copies.keep(&message.topic, || self.index.get(&message.topic).cloned());
        self.index.set(&message.topic, message.clone())
    }

    fn clear(&mut self, topic: &str) -> Option<Arc<Message>> {
        self.copies.keep(topic, || self.index.get(topic).cloned());
        self.index.clear(topic)
    }

    /// Whether a message of `bytes` beside its topic may be stored under a quota.
    pub(crate) fn fits(&self, topic: &str, bytes: usize, bytes_max: u64) -> bool {
        let replaced = self.index.get(topic).map_or(0, |old| topic.len() + body_bytes(old));
        let after = self.index.bytes() - replaced + topic.len() + bytes;
        after as u64 <= bytes_max
    }

    /// What `filter` matches behind a topic, expired messages included.
    pub(crate) fn after<'a>(
        &'a self,
        filter: &Filter<'a>,
        last_topic: Option<&str>,
    ) -> RetainedMatches<'a, Arc<Message>> {
        match last_topic {
            Some(topic) => self.index.matching_after(filter, topic),
            None => self.index.matching(filter),
        }
    }

    /// What a new subscription to `filter` receives.
    pub(crate) fn matching(&self, filter: &Filter<'_>, now_ms: u64) -> Vec<Arc<Message>> {
        let matching = self.index.matching(filter);
        matching.map(|(_, message)| message).filter(|m| !m.is_expired(now_ms)).cloned().collect()
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Arc<Message>)> {
        self.index.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.index.bytes()
    }
}

impl Machine {
    /// What a subscriber that is not stored here receives when it subscribes to `filter`.
    pub fn retained_matching(&self, filter: &Filter<'_>, now_ms: u64) -> Vec<Arc<Message>> {
        self.retained.matching(filter, now_ms)
    }

    /// Shows `look` one retained message after the other, those that `filter` matches and None for
    /// the others, until it says false; returns the topic to go on after, if there is more.
    ///
    /// For callers that bound their work: between two matches there may be many topics.
    pub fn visit_retained(
        &self,
        filter: &Filter<'_>,
        after: Option<&str>,
        mut look: impl FnMut(Option<&Arc<Message>>) -> bool,
    ) -> Option<Box<str>> {
        let index = &self.retained.index;
        let mut walk = match after {
            Some(topic) => index.matching_after(filter, topic),
            None => index.matching(filter),
        };
        while let Some(visit) = walk.visit() {
            let (topic, message) = match visit {
                Visit::Match(topic, message) => (topic, Some(message)),
                Visit::Passed(topic) => (topic, None),
            };
            if !look(message) {
                return Some(topic.into());
            }
        }
        None
    }

    /// Makes `message` its topic's retained one, or removes that if it is empty.
    pub(crate) fn retain(&mut self, message: &Arc<Message>) {
        let topic = &message.topic;
        let replaced = if message.payload.is_empty() {
            self.retained.clear(topic)
        } else {
            if let Some(at_ms) = message.expires_at_ms() {
                self.deadlines.insert(at_ms, Deadline::Retained((**topic).into()));
            }
            self.retained.set(message)
        };
        let old_deadline = replaced.and_then(|old| old.expires_at_ms());
        // The same millisecond is one entry of the set, and it is the new message's.
        let kept = if message.payload.is_empty() { None } else { message.expires_at_ms() };
        if let Some(at_ms) = old_deadline.filter(|_| old_deadline != kept) {
            self.deadlines.remove(at_ms, Deadline::Retained((**topic).into()));
        }
    }

    /// The deadline of a retained message has come.
    pub(crate) fn expire_retained(&mut self, topic: &str) {
        if self.retained.clear(topic).is_some() {
            self.counters.expired_messages += 1;
        }
    }
}
