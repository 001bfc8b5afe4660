//! The route cache: the routes a topic had, as long as no subscription has changed.
//!
//! Rules.
//! - An entry is valid while the generation it was stored under is the current one. A changed
//!   generation costs nothing by itself: stale entries answer nothing and are replaced as their
//!   topics return (DP-18).
//! - It never holds more topics than its capacity. When one more comes, all go (DP-19): choosing
//!   victims would cost every hit something to speed up a case that hardly exists, because
//!   topics either fit or are too many to be worth it.
//! - Topics longer than [`CACHED_TOPIC_BYTES_MAX`] are not stored, or 10,000 of them would be a
//!   client's way to hold 640 MB.
//!
//! States (DP-20). *Watching*: lookups are answered and counted. After a window of twice the
//! capacity, which lets every topic that fits come once to be stored and once to be found, a hit
//! rate of at least one half opens the next window; a lower one empties the cache and switches it
//! off. *Off*: a lookup is one decrement. When the pause has been counted down, the cache starts
//! watching again, empty. Pauses double from 8 windows to 128 while probes fail, so a hopeless
//! load pays for one lookup in a hundred; one good window makes the next pause short again.
//! Everything is counted in lookups; nothing here reads a clock.

use hashbrown::HashTable;

use crate::level::hash_text;

/// Topics a cache holds unless told otherwise.
pub const CACHED_TOPICS_MAX: usize = 10_000;

/// Longer topics are matched anew each time.
pub const CACHED_TOPIC_BYTES_MAX: usize = 1_024;

const PAUSE_WINDOWS_FIRST: u64 = 8;
const PAUSE_WINDOWS_MAX: u64 = 128;

#[derive(Debug)]
struct Entry<R> {
    topic: Box<str>,
    generation: u64,
    routes: R,
}

#[derive(Debug)]
enum State {
    Watching { lookups: u64, hits: u64 },
    Off { pause: u64 },
}

/// What a cache has done so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct RouteCacheStatistics {
    /// Lookups answered.
    pub hits: u64,
    /// Lookups that found nothing valid while the cache was watching.
    pub misses: u64,
    /// Lookups while it was off.
    pub bypassed: u64,
    /// How often it overflowed and was emptied.
    pub overflows: u64,
    /// How often it switched itself off.
    pub switched_off: u64,
    /// Topics held now, stale ones included.
    pub topics: usize,
    /// Whether it is watching now.
    pub is_on: bool,
}

/// Topic → routes that the caller has matched and de-duplicated.
///
/// Routes drawn from several tries go under the sum of their generations: each only grows, so the
/// sum is the same only while all of them are.
#[derive(Debug)]
pub struct RouteCache<R> {
    entries: HashTable<Entry<R>>,
    topics_max: usize,
    seed: u64,
    state: State,
    pause_windows: u64,
    hits: u64,
    misses: u64,
    bypassed: u64,
    overflows: u64,
    switched_off: u64,
}

impl<R> Default for RouteCache<R> {
    fn default() -> Self {
        Self::new(CACHED_TOPICS_MAX)
    }
}

impl<R> RouteCache<R> {
    /// An empty cache of at most `topics_max` topics; none at all means always off.
    pub const fn new(topics_max: usize) -> Self {
        Self::with_seed(topics_max, 0)
    }

    /// The same, with its table keyed by `seed` so that publishers cannot prepare collisions.
    pub const fn with_seed(topics_max: usize, seed: u64) -> Self {
        Self {
            entries: HashTable::new(),
            topics_max,
            seed,
            state: State::Watching { lookups: 0, hits: 0 },
            pause_windows: PAUSE_WINDOWS_FIRST,
            hits: 0,
            misses: 0,
            bypassed: 0,
            overflows: 0,
            switched_off: 0,
        }
    }

    /// The routes stored for a topic under this generation.
    ///
    /// Ask once per message: asking is what the hit rate is counted by.
    #[inline]
    pub fn get(&mut self, topic: &str, generation: u64) -> Option<&R> {
        if let State::Off { pause } = &mut self.state {
            self.bypassed += 1;
            *pause -= 1;
            if *pause == 0 {
                self.state = State::Watching { lookups: 0, hits: 0 };
            }
            return None;
        }
        self.look_up(topic, generation)
    }

    /// Stores what `get` did not find, unless the cache is off.
    pub fn put(&mut self, topic: &str, generation: u64, routes: R) {
        if matches!(self.state, State::Off { .. })
            || topic.len() > CACHED_TOPIC_BYTES_MAX
            || self.topics_max == 0
        {
            return;
        }
        let hash = hash_text(self.seed, topic.as_bytes());
        if let Some(entry) = self.entries.find_mut(hash, |entry| &*entry.topic == topic) {
            entry.generation = generation;
            entry.routes = routes;
            return;
        }
        if self.entries.len() == self.topics_max {
            self.entries.clear();
            self.overflows += 1;
        }
        let seed = self.seed;
        let entry = Entry { topic: topic.into(), generation, routes };
        self.entries.insert_unique(hash, entry, |entry| hash_text(seed, entry.topic.as_bytes()));
    }

    /// What the cache has done so far.
    pub fn statistics(&self) -> RouteCacheStatistics {
        RouteCacheStatistics {
            hits: self.hits,
            misses: self.misses,
            bypassed: self.bypassed,
            overflows: self.overflows,
            switched_off: self.switched_off,
            topics: self.entries.len(),
            is_on: matches!(self.state, State::Watching { .. }),
        }
    }

    fn look_up(&mut self, topic: &str, generation: u64) -> Option<&R> {
        let window = self.window();
        let State::Watching { lookups, hits } = &mut self.state else {
            return None;
        };
        if *lookups == window {
            if *hits * 2 < window {
                self.switch_off(window);
                return None;
            }
            (*lookups, *hits) = (0, 0);
            self.pause_windows = PAUSE_WINDOWS_FIRST;
        }
        *lookups += 1;
        let hash = hash_text(self.seed, topic.as_bytes());
        let entry = self.entries.find(hash, |entry| &*entry.topic == topic);
        if let Some(entry) = entry.filter(|entry| entry.generation == generation) {
            *hits += 1;
            self.hits += 1;
            Some(&entry.routes)
        } else {
            self.misses += 1;
            None
        }
    }

    fn switch_off(&mut self, window: u64) {
        self.entries = HashTable::new();
        self.state = State::Off { pause: self.pause_windows * window };
        self.pause_windows = (self.pause_windows * 2).min(PAUSE_WINDOWS_MAX);
        self.switched_off += 1;
        self.bypassed += 1;
    }

    /// Lookups between two judgements. Never none, or a cache of no topics would watch for ever.
    fn window(&self) -> u64 {
        2 * (self.topics_max.max(1) as u64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::filter::Filter;
    use crate::strategies;
    use crate::trie::{Matches, SubscriptionTrie};

    const TOPICS_MAX: usize = 8;
    const WINDOW: u64 = 16;

    /// Looks a topic up and stores it after a miss, as a broker does; whether it was a hit.
    fn ask(cache: &mut RouteCache<String>, topic: &str) -> bool {
        if let Some(routes) = cache.get(topic, 0) {
            assert_eq!(routes, topic);
            return true;
        }
        cache.put(topic, 0, topic.to_owned());
        false
    }

    /// Publishes to topics that never return, until the cache is off; how many it took.
    fn lose_interest(cache: &mut RouteCache<String>) -> u64 {
        let switched_off = cache.statistics().switched_off;
        let mut count = 0;
        while cache.statistics().switched_off == switched_off {
            assert!(count <= 2 * WINDOW, "the cache never switched off");
            assert!(!ask(cache, &format!("never again {count}")));
            count += 1;
        }
        count
    }

    /// Publishes while the cache is off, until it watches again; how many it took.
    fn sit_out(cache: &mut RouteCache<String>) -> u64 {
        let mut count = 0;
        while !cache.statistics().is_on {
            cache.put("a", 0, "a".to_owned());
            assert_eq!(cache.statistics().topics, 0, "stored while off");
            assert_eq!(cache.get("a", 0), None);
            count += 1;
        }
        count
    }

    #[test]
    fn a_stored_topic_is_found_under_its_generation_only() {
        let mut cache = RouteCache::default();
        assert_eq!(cache.get("a", 1), None);
        cache.put("a", 1, "one");
        assert_eq!(cache.get("a", 1), Some(&"one"));
        assert_eq!(cache.get("b", 1), None);
        assert_eq!(cache.get("a", 2), None);
        cache.put("a", 2, "two");
        assert_eq!(cache.get("a", 2), Some(&"two"));
        assert_eq!(cache.statistics().topics, 1);
        assert_eq!(cache.get("a", 1), None);
        let statistics = cache.statistics();
        assert_eq!((statistics.hits, statistics.misses, statistics.bypassed), (2, 4, 0));
    }

    // req: DP-19
    #[test]
    fn one_topic_too_many_empties_the_cache() {
        let mut cache = RouteCache::default();
        for number in 0..CACHED_TOPICS_MAX {
            cache.put(&number.to_string(), 0, number);
        }
        assert_eq!(cache.statistics().topics, 10_000);
        assert_eq!(cache.get("0", 0), Some(&0));
        cache.put("one more", 0, 1);
        assert_eq!((cache.statistics().topics, cache.statistics().overflows), (1, 1));
        assert_eq!(cache.get("0", 0), None);
        assert_eq!(cache.get("one more", 0), Some(&1));
    }

    // req: DP-20
    #[test]
    fn topics_that_do_not_return_switch_it_off_and_returning_ones_on_again() {
        let mut cache = RouteCache::new(TOPICS_MAX);
        assert_eq!(lose_interest(&mut cache), WINDOW + 1);
        assert_eq!(sit_out(&mut cache), PAUSE_WINDOWS_FIRST * WINDOW);
        for round in 0..10 {
            for topic in ["a", "b", "c", "d"] {
                assert_eq!(ask(&mut cache, topic), round > 0, "{topic} in round {round}");
            }
        }
        assert!(cache.statistics().is_on);
    }

    // req: DP-20
    #[test]
    fn pauses_double_while_probes_fail_and_start_short_after_a_good_window() {
        let mut cache = RouteCache::new(TOPICS_MAX);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            lose_interest(&mut cache);
            pauses.push(sit_out(&mut cache) / WINDOW);
        }
        assert_eq!(pauses, [8, 16, 32, 64, 128, 128]);
        for _ in 0..=WINDOW {
            ask(&mut cache, "a");
        }
        lose_interest(&mut cache);
        assert_eq!(sit_out(&mut cache) / WINDOW, PAUSE_WINDOWS_FIRST);
    }

    // req: DP-20
    #[test]
    fn as_many_topics_as_fit_are_worth_it_from_a_cold_start() {
        let mut cache = RouteCache::new(TOPICS_MAX);
        for round in 0..20 {
            for number in 0..TOPICS_MAX {
                assert_eq!(ask(&mut cache, &number.to_string()), round > 0);
            }
        }
        let statistics = cache.statistics();
        assert_eq!((statistics.switched_off, statistics.overflows), (0, 0));
    }

    // req: DP-20
    #[test]
    fn subscriptions_that_change_all_the_time_switch_it_off() {
        let mut cache = RouteCache::new(TOPICS_MAX);
        for generation in 0..=WINDOW {
            assert_eq!(cache.get("a", generation), None);
            cache.put("a", generation, ());
        }
        assert!(!cache.statistics().is_on);
    }

    #[test]
    fn a_cache_of_no_topics_stores_none() {
        let mut cache = RouteCache::new(0);
        for _ in 0..100 {
            assert!(!ask(&mut cache, "a"));
        }
        assert_eq!(cache.statistics().topics, 0);
        assert!(cache.statistics().switched_off > 0);
    }

    #[test]
    fn long_topics_are_not_held() {
        let mut cache = RouteCache::default();
        let fits = "x".repeat(CACHED_TOPIC_BYTES_MAX);
        let long = "x".repeat(CACHED_TOPIC_BYTES_MAX + 1);
        cache.put(&fits, 0, 1);
        cache.put(&long, 0, 2);
        assert_eq!(cache.get(&fits, 0), Some(&1));
        assert_eq!(cache.get(&long, 0), None);
    }

    fn fresh_routes(trie: &SubscriptionTrie<u8, u8>, topic: &str) -> Vec<(u8, u8)> {
        let mut matches = Matches::new();
        trie.matches(topic, &mut matches);
        // As a broker fills it: one route for each subscriber, with its highest QoS.
        let highest = |run: &[(u8, u8)]| *run.iter().max_by_key(|(_, qos)| *qos).unwrap();
        matches.by_subscriber().map(highest).collect()
    }

    proptest! {
        // Small enough to overflow, to be switched off and to come back within one case.
        // req: DP-18
        #[test]
        fn a_cached_route_always_equals_a_fresh_match(
            filters in prop::collection::vec(strategies::plain_filter(), 1..6),
            topics in prop::collection::vec(strategies::topic(), 1..6),
            steps in prop::collection::vec(
                (any::<prop::sample::Index>(), 0_u8..4, 0_u8..3, 0_u8..12),
                1..200,
            ),
        ) {
            let mut trie = SubscriptionTrie::new();
            let mut cache = RouteCache::new(3);
            for (index, subscriber, qos, step) in steps {
                let filter = Filter::parse(index.get::<String>(&filters)).unwrap();
                match step {
                    0 => drop(trie.insert(&filter, subscriber, qos)),
                    1 => drop(trie.remove(&filter, subscriber)),
                    _ => {
                        let topic = index.get::<String>(&topics);
                        let fresh = fresh_routes(&trie, topic);
                        match cache.get(topic, trie.generation()) {
                            Some(routes) => prop_assert_eq!(routes, &fresh),
                            None => cache.put(topic, trie.generation(), fresh),
                        }
                        prop_assert!(cache.statistics().topics <= 3);
                    }
                }
            }
        }
    }
}
