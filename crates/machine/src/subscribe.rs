//! SUBSCRIBE and UNSUBSCRIBE of stored sessions.
//!
//! A subscription stands in two places that change together: in its session, by filter, and in the
//! trie, under the session's key. Subscribing again replaces the options in both and loses no
//! message [MQTT-3.8.4-3]. The answer comes first, then retained messages in filter and topic
//! order, as the window drains (`replay.rs`).
//!
//! One code per filter, in order: what access control refused before the command was proposed, a
//! malformed filter, a full session, or the granted `QoS`.

use std::sync::Arc;

use quantumqtt_topics::Filter;
use quantumqtt_wire::{QoS, ReasonCode};
use smallvec::SmallVec;

use crate::command::{
    RetainHandling, Subscribe, SubscribeFilter, SubscriptionOptions, Unsubscribe,
};
use crate::effect::{Effect, Subscribed, Subscription, Unsubscribed};
use crate::machine::Machine;
use crate::session::{Session, SessionKey, Turn};

/// What the trie says about a subscriber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) options: SubscriptionOptions,
    pub(crate) subscription_id: Option<u32>,
    /// The whole filter of a member of a share group.
    pub(crate) shared: Option<Arc<str>>,
}

impl Granted {
    pub(crate) fn of(subscription: &Subscription) -> Self {
        let filter = &subscription.filter;
        let is_shared = Filter::parse(filter).is_ok_and(|filter| filter.share.is_some());
        Self {
            options: subscription.options,
            subscription_id: subscription.subscription_id,
            shared: is_shared.then(|| filter.clone()),
        }
    }
}

impl Machine {
    pub(crate) fn subscribe(&mut self, subscribe: &Subscribe<'_>, effects: &mut Vec<Effect>) {
        let key = self.sessions.key_at_epoch(subscribe.client_id, subscribe.session_epoch);
        let Some(key) = key else {
            self.counters.stale_commands += 1;
            return;
        };
        let Some(session) = self.sessions.get(key) else {
            return;
        };
        let client_id = session.client_id.clone();
        let mut codes = SmallVec::new();
        let mut filters = Vec::with_capacity(subscribe.filters.len());
        let mut replays = Vec::new();
        for asked in &subscribe.filters {
            let subscription = Subscription {
                filter: asked.filter.into(),
                options: asked.options,
                subscription_id: subscribe.subscription_id,
            };
            match self.add_subscription(key, asked, &subscription) {
                Ok(is_new) => {
                    codes.push(ReasonCode(asked.options.qos.bits()));
                    if wants_retained(asked, is_new) {
                        replays.push(subscription.filter.clone());
                    }
                }
                Err(code) => codes.push(code),
            }
            filters.push(subscription);
        }
        effects.push(Effect::Subscribed(Subscribed {
            origin: subscribe.origin,
            client_id,
            packet_id: subscribe.packet_id,
            codes,
            filters,
        }));
        let before_offset = self.next_offset;
        let mut turn = Turn {
            now_ms: self.now_ms,
            limits: &self.limits,
            retained: &self.retained,
            counters: &mut self.counters,
        };
        self.sessions.change(key, |session| {
            for filter in &replays {
                session.add_replay(filter, before_offset);
            }
            session.pump(&mut turn, effects);
        });
    }

    /// Whether the subscription is new, or the code that refuses it.
    fn add_subscription(
        &mut self,
        key: SessionKey,
        asked: &SubscribeFilter<'_>,
        subscription: &Subscription,
    ) -> Result<bool, ReasonCode> {
        if let Some(code) = asked.refused {
            return Err(code);
        }
        let filter = Filter::parse(asked.filter).map_err(|_| ReasonCode::TOPIC_FILTER_INVALID)?;
        let subscriptions_max = self.limits.subscriptions_max as usize;
        let add = self.sessions.change(key, |session| {
            let stored = &mut session.subscriptions;
            if !stored.contains(asked.filter) && stored.len() >= subscriptions_max {
                return Err(ReasonCode::QUOTA_EXCEEDED);
            }
            Ok(stored.insert(subscription.clone()).is_none())
        });
        let is_new = add.unwrap_or(Err(ReasonCode::UNSPECIFIED_ERROR))?;
        self.subscriptions.insert(&filter, key, Granted::of(subscription));
        Ok(is_new)
    }

    pub(crate) fn unsubscribe(&mut self, unsubscribe: &Unsubscribe<'_>, effects: &mut Vec<Effect>) {
        let key = self.sessions.key_at_epoch(unsubscribe.client_id, unsubscribe.session_epoch);
        let Some(key) = key else {
            self.counters.stale_commands += 1;
            return;
        };
        let Some(session) = self.sessions.get(key) else {
            return;
        };
        let client_id = session.client_id.clone();
        let codes = unsubscribe.filters.iter().map(|text| self.drop_subscription(key, text));
        let codes = codes.collect();
        effects.push(Effect::Unsubscribed(Unsubscribed {
            origin: unsubscribe.origin,
            client_id,
            packet_id: unsubscribe.packet_id,
            codes,
            filters: unsubscribe.filters.iter().map(|&text| Arc::from(text)).collect(),
        }));
    }

    fn drop_subscription(&mut self, key: SessionKey, text: &str) -> ReasonCode {
        let Ok(filter) = Filter::parse(text) else {
            return ReasonCode::TOPIC_FILTER_INVALID;
        };
        let remove = |session: &mut Session| {
            session.drop_replay(text);
            session.subscriptions.remove(text)
        };
        let removed = self.sessions.change(key, remove);
        match removed.flatten() {
            Some(_) => {
                self.subscriptions.remove(&filter, key);
                ReasonCode::SUCCESS
            }
            None => ReasonCode::NO_SUBSCRIPTION_EXISTED,
        }
    }
}

/// Shared subscriptions receive no retained messages, whatever they ask for (§4.8.2).
fn wants_retained(asked: &SubscribeFilter<'_>, is_new: bool) -> bool {
    let is_shared = Filter::parse(asked.filter).is_ok_and(|filter| filter.share.is_some());
    let is_asked_for = match asked.options.retain_handling {
        RetainHandling::Send => true,
        RetainHandling::SendIfNew => is_new,
        RetainHandling::DoNotSend => false,
    };
    is_asked_for && !is_shared
}

/// The copy of a message one session receives, however many of its filters match: the highest
/// granted `QoS`, every Subscription Identifier (X-28) [MQTT-3.3.4-2..4]. `None` if No Local keeps
/// it from its own publisher.
pub(crate) fn merge_matches(
    matches: &[(SessionKey, Granted)],
    is_own: bool,
) -> Option<(QoS, bool, SmallVec<[u32; 2]>)> {
    let mut merged: Option<(QoS, bool, SmallVec<[u32; 2]>)> = None;
    for (_, granted) in matches.iter().filter(|(_, granted)| !(is_own && granted.options.no_local))
    {
        let options = granted.options;
        let (qos, keeps_retain, ids) =
            merged.get_or_insert((QoS::AtMostOnce, false, SmallVec::new()));
        *qos = (*qos).max(options.qos);
        *keeps_retain |= options.retain_as_published;
        ids.extend(granted.subscription_id);
    }
    merged
}
