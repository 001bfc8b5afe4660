//! What a spec means for single clients: which thread, which names, which streams.
//!
//! Nothing is shared between threads but counters for the progress bar. So a topic, its publishers
//! and its subscribers always live on one thread: pairs and lone clients are divided, fan-in and
//! fan-out stay whole.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Instant;

use crate::error::LoadError;
use crate::pace::Pace;
use crate::spec::{Scenario, Spec};

const TOPIC_DEFAULT_ROOT: &str = "bench";

/// A spec with everything settled that all threads must agree on.
pub(crate) struct Plan {
    pub(crate) spec: Spec,
    pub(crate) address: SocketAddr,
    /// Tells this run's messages from all others.
    pub(crate) run: u32,
    /// Where all nanoseconds of the run are counted from.
    pub(crate) epoch: Instant,
    pub(crate) pace: Option<Pace>,
}

/// The clients of one thread, by their numbers in the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) publishers: Range<u32>,
    pub(crate) subscribers: Range<u32>,
    /// Clients that neither publish nor subscribe.
    pub(crate) bare: Range<u32>,
}

impl Plan {
    /// Nanoseconds since the epoch.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// How many subscribers hear each publisher.
    pub(crate) fn hearers(&self) -> u32 {
        match self.spec.scenario {
            Scenario::Pairs | Scenario::Latency => 1,
            Scenario::FanIn | Scenario::FanOut => self.spec.subscribers,
            Scenario::Connect | Scenario::Publish | Scenario::Subscribe | Scenario::Idle => 0,
        }
    }

    /// The streams a subscriber hears: a range of `publisher × topics + topic`.
    pub(crate) fn heard_streams(&self, subscriber: u32) -> Range<u32> {
        let topics = self.spec.topics;
        match self.spec.scenario {
            Scenario::Pairs | Scenario::Latency => subscriber * topics..(subscriber + 1) * topics,
            Scenario::FanIn | Scenario::FanOut => 0..self.spec.publishers * topics,
            Scenario::Connect | Scenario::Publish | Scenario::Subscribe | Scenario::Idle => 0..0,
        }
    }

    /// Client ids keep to the 23 characters MQTT 3.1 allows as long as the prefix does.
    pub(crate) fn client_id(&self, role: char, number: u32) -> String {
        format!("{}-{:08x}-{role}{number}", self.spec.client_id_prefix, self.run)
    }

    /// The topic of a publisher, without the level that rotates.
    pub(crate) fn topic(&self, publisher: u32) -> String {
        let client_id = self.client_id('p', publisher);
        self.fill_in(&self.template(), &self.shown_number(publisher), &client_id)
    }

    /// What a subscriber asks for.
    pub(crate) fn filter(&self, subscriber: u32) -> String {
        let base = match self.spec.scenario {
            Scenario::Pairs | Scenario::Latency => self.topic(subscriber),
            Scenario::Subscribe => {
                let client_id = self.client_id('s', subscriber);
                return self.fill_in(&self.template(), &self.shown_number(subscriber), &client_id);
            }
            _ if self.spec.publishers == 1 => self.topic(0),
            _ => self.fill_in(&self.template(), "+", "+"),
        };
        if self.spec.topics > 1 { format!("{base}/+") } else { base }
    }

    fn template(&self) -> String {
        self.spec.topic.clone().unwrap_or_else(|| match self.spec.scenario {
            Scenario::Subscribe => format!("{TOPIC_DEFAULT_ROOT}/#"),
            _ => format!("{TOPIC_DEFAULT_ROOT}/{:08x}/%i", self.run),
        })
    }

    fn shown_number(&self, number: u32) -> String {
        (u64::from(self.spec.start_number) + u64::from(number)).to_string()
    }

    fn fill_in(&self, template: &str, number: &str, client_id: &str) -> String {
        let user_name = self.spec.user_name.as_deref().unwrap_or_default();
        template.replace("%i", number).replace("%c", client_id).replace("%u", user_name)
    }

    /// Refuses topics that would lead messages where they are not counted.
    pub(crate) fn check_topics(&self) -> Result<(), LoadError> {
        let spec = &self.spec;
        let template = self.template();
        let distinct = template.contains("%i") || template.contains("%c");
        if spec.scenario.is_paired() && spec.publishers > 1 && !distinct {
            let why = "pairs need %i or %c in their topic, or all would share one".to_owned();
            return Err(LoadError::Spec { field: "topic", why });
        }
        let split = |level: &str| (level.contains("%i") || level.contains("%c")) && level.len() > 2;
        let fans = matches!(spec.scenario, Scenario::FanIn | Scenario::FanOut);
        if fans && spec.publishers > 1 && template.split('/').any(split) {
            let why = "%i and %c must be whole levels here, since '+' stands in for them";
            return Err(LoadError::Spec { field: "topic", why: why.to_owned() });
        }
        Ok(())
    }

    /// Divides the clients among the threads; fewer threads than asked for when there are no more
    /// groups to divide.
    pub(crate) fn share_out(&self) -> Vec<Share> {
        let Spec { publishers, subscribers, threads, .. } = self.spec;
        let part = |count: u32, of: &Range<u32>, parts: u32| -> Range<u32> {
            let at = |edge: u32| (u64::from(count) * u64::from(edge) / u64::from(parts)) as u32;
            at(of.start)..at(of.end)
        };
        let divisible = match self.spec.scenario {
            Scenario::FanIn | Scenario::FanOut => 1,
            Scenario::Subscribe => subscribers,
            _ => publishers,
        };
        let parts = u32::try_from(threads).unwrap_or(u32::MAX).clamp(1, divisible.max(1));
        (0..parts)
            .map(|index| {
                let of = index..index + 1;
                let all = part(publishers, &of, parts);
                let heard = part(subscribers, &of, parts);
                match self.spec.scenario {
                    Scenario::Connect | Scenario::Idle => {
                        Share { publishers: 0..0, subscribers: 0..0, bare: all }
                    }
                    Scenario::Publish => Share { publishers: all, subscribers: 0..0, bare: 0..0 },
                    Scenario::Subscribe => {
                        Share { publishers: 0..0, subscribers: heard, bare: 0..0 }
                    }
                    Scenario::Pairs | Scenario::Latency | Scenario::FanIn | Scenario::FanOut => {
                        Share { publishers: all, subscribers: heard, bare: 0..0 }
                    }
                }
            })
            .collect()
    }

    /// Whether subscribers keep their session when they leave.
    pub(crate) fn is_persistent(&self) -> bool {
        !self.spec.clean
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::rotating_topic;

    fn plan(spec: Spec) -> Plan {
        let address = SocketAddr::from(([127, 0, 0, 1], 1883));
        Plan { spec, address, run: 0xAB, epoch: Instant::now(), pace: None }
    }

    #[test]
    fn every_client_has_one_thread_and_pairs_stay_together() {
        for threads in [1, 2, 3, 7, 50] {
            for scenario in [Scenario::Pairs, Scenario::FanIn, Scenario::Idle, Scenario::Publish] {
                let spec = Spec {
                    scenario,
                    threads,
                    publishers: 10,
                    subscribers: if scenario == Scenario::FanIn { 3 } else { 10 },
                    ..Spec::default()
                };
                let shares = plan(spec).share_out();
                let clients = |share: &Share| {
                    share.publishers.len() + share.subscribers.len() + share.bare.len()
                };
                assert!(shares.iter().all(|share| clients(share) > 0), "{scenario:?} {threads}");
                let total: usize = shares.iter().map(clients).sum();
                let expected = match scenario {
                    Scenario::Pairs => 20,
                    Scenario::FanIn => 13,
                    _ => 10,
                };
                assert_eq!(total, expected, "{scenario:?} {threads}");
                if scenario == Scenario::Pairs {
                    assert!(shares.iter().all(|share| share.publishers == share.subscribers));
                }
            }
        }
    }

    #[test]
    fn filters_match_the_topics_they_are_made_for() {
        let spec = |scenario, publishers, topics, topic: &str| Spec {
            scenario,
            publishers,
            topics,
            topic: Some(topic.to_owned()),
            ..Spec::default()
        };
        let pairs = plan(spec(Scenario::Pairs, 10, 1, "x/%i/%c"));
        assert_eq!(pairs.filter(3), pairs.topic(3));
        assert_eq!(pairs.topic(3), "x/3/bench-000000ab-p3");
        let fan_in = plan(spec(Scenario::FanIn, 10, 5, "x/%i"));
        assert_eq!(
            (rotating_topic(&fan_in.topic(3), 0), fan_in.filter(0)),
            ("x/3/0000000".into(), "x/+/+".into())
        );
        let fan_out = plan(spec(Scenario::FanOut, 1, 1, "x/%i"));
        assert_eq!((fan_out.topic(0), fan_out.filter(7)), ("x/0".into(), "x/0".into()));
        let subscribe = plan(spec(Scenario::Subscribe, 0, 1, "x/%i/#"));
        assert_eq!(subscribe.filter(7), "x/7/#");
    }

    #[test]
    fn topics_that_would_mix_streams_are_refused() {
        let topic = |scenario, topic: &str| {
            let spec = Spec { scenario, topic: Some(topic.to_owned()), ..Spec::default() };
            plan(spec).check_topics().is_ok()
        };
        assert!(!topic(Scenario::Pairs, "same"));
        assert!(topic(Scenario::Pairs, "own-%i"));
        assert!(!topic(Scenario::FanIn, "x/own-%i"));
        assert!(topic(Scenario::FanIn, "x/%i"));
        assert!(topic(Scenario::FanIn, "same"));
    }
}
