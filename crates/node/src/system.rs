//! What the broker itself says: `$SYS/…`, from Python, in batches.
//!
//! The messages are no one's but the broker's: no client may publish there, none of them is in the
//! log, and a restart begins anew. They go out at `QoS` 0 to whoever is online and wants them; the
//! last one of each topic is kept by the shard that owns the partition; new subscriptions get it
//! like a retained message, stored sessions too. A filter has to spell `$SYS`: no wildcard reaches
//! what begins with `$` [MQTT-4.7.2-1].

use std::sync::Arc;

use quantumqtt_machine::SubscriptionOptions;
use quantumqtt_reactor::Turn;
use quantumqtt_topics::{Filter, RetainedIndex};
use quantumqtt_wire::{Properties, QoS};

use crate::connection::Connection;
use crate::deliver::{Outgoing, deliver_retained};
use crate::index::Subscriber;
use crate::limits::SYSTEM_TOPICS_MAX;
use crate::retained::RetainedWanted;
use crate::shard::ShardService;

const SYSTEM: &str = "$SYS";
const FIGURES: &str = "$SYS/broker/";

/// Whether a topic, or a filter, is about the broker itself.
#[inline]
pub(crate) fn is_system(topic: &str) -> bool {
    topic.strip_prefix(SYSTEM).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a filter may ask who comes and goes: anything below `$SYS` but the broker's figures,
/// which every dashboard watches.
pub(crate) fn is_of_clients(pattern: &str) -> bool {
    is_system(pattern) && !pattern.starts_with(FIGURES)
}

/// One thing the broker says.
#[derive(Debug, Clone)]
pub struct SystemMessage {
    /// Where; begins with `$SYS/`.
    pub topic: Box<str>,
    /// What; an empty one ends what was kept.
    pub payload: Arc<[u8]>,
    /// Whether new subscriptions get it.
    pub keep: bool,
}

/// The last message of each topic.
#[derive(Debug)]
pub(crate) struct SystemTopics {
    kept: RetainedIndex<Arc<[u8]>>,
}

impl Default for SystemTopics {
    fn default() -> Self {
        Self { kept: RetainedIndex::new(|payload| payload.len()) }
    }
}

impl ShardService {
    /// Python says something, on the shard that owns the partition.
    pub(crate) fn on_system(&mut self, turn: &mut Turn<Self>, messages: &[SystemMessage]) {
        for message in messages.iter().filter(|message| is_system(&message.topic)) {
            let kept = &mut self.system.kept;
            let has_room = kept.len() < SYSTEM_TOPICS_MAX || kept.get(&message.topic).is_some();
            if message.keep && message.payload.is_empty() {
                kept.clear(&message.topic);
            } else if message.keep && has_room {
                kept.set(&message.topic, Arc::clone(&message.payload));
            }
            let outgoing =
                Outgoing { retain: message.keep, ..live(&message.topic, &message.payload) };
            self.route_now(turn, &outgoing);
        }
    }

    /// Send what is kept to a new subscription, behind a filter that spells `$SYS`.
    pub(crate) fn write_system(
        &mut self,
        turn: &mut Turn<Self>,
        subscriber: &Subscriber,
        filter: &Filter<'_>,
    ) {
        let cells = &self.shared.cells[usize::from(self.shard)];
        for (topic, payload) in self.system.kept.matching(filter) {
            if self.rights.may_read(subscriber.reader.who(), topic) {
                let outgoing = Outgoing { retain: true, ..live(topic, payload) };
                deliver_retained(&mut self.encoder, turn, cells, subscriber, &outgoing);
            }
        }
    }

    /// A stored session has subscribed: the machine knows nothing of what the broker says.
    pub(crate) fn begin_system_replay(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        filter: &str,
        options: SubscriptionOptions,
        subscription_id: Option<u32>,
    ) {
        if is_system(filter) {
            connection.stop_replay(filter);
            let wanted = RetainedWanted::new(filter.into(), options.qos, subscription_id);
            self.begin_replay(turn, connection, vec![wanted]);
        }
    }
}

fn live<'a>(topic: &'a str, payload: &'a [u8]) -> Outgoing<'a> {
    Outgoing {
        topic,
        payload,
        properties: Properties::EMPTY,
        expiry_s: None,
        qos: QoS::AtMostOnce,
        retain: false,
        publisher: None,
    }
}

#[cfg(test)]
mod tests {
    use super::{is_of_clients, is_system};

    #[test]
    fn only_the_level_itself_counts() {
        for topic in ["$SYS", "$SYS/broker", "$SYS/#", "$SYS/"] {
            assert!(is_system(topic), "{topic}");
        }
        for topic in ["$SYSTEM/x", "$sys/x", "SYS/x", "x/$SYS", "$", ""] {
            assert!(!is_system(topic), "{topic}");
        }
    }

    #[test]
    fn figures_alone_say_nothing_of_clients() {
        for pattern in ["$SYS/#", "$SYS/+/#", "$SYS/brokers/+/clients/#", "$SYS/brokers/1"] {
            assert!(is_of_clients(pattern), "{pattern}");
        }
        for pattern in ["$SYS/broker/#", "$SYS/broker/uptime", "#", "a/$SYS/#"] {
            assert!(!is_of_clients(pattern), "{pattern}");
        }
    }
}
