//! Who is online and wants what: the volatile subscription index of the node.
//!
//! It holds every subscription of every *connected* session, transient or stored, and nothing of
//! disconnected ones. QoS 0 is routed by it alone. Acknowledged messages are routed by it to
//! transient sessions when they are committed; stored sessions get those from the machine, which
//! has an index of its own, so routes say which kind they are (DESIGN §5, the two-index rule).
//!
//! Readers take the lock for a cache miss only: each shard keeps a route cache that is valid while
//! the trie's generation stands still, and the generation is readable without the lock.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::RwLock;
use quantumqtt_machine::SubscriptionOptions;
use quantumqtt_reactor::{ConnectionId, Outlet};
use quantumqtt_topics::{
    Action, CACHED_TOPICS_MAX, Filter, GroupId, Matches, RouteCache, RuleTable, SubscriptionTrie,
};
use quantumqtt_wire::Version;
use smallvec::SmallVec;

use crate::connection::Connection;
use crate::outbound::Outbound;
use crate::rights::{Principal, subject};
use crate::system::is_of_clients;

/// One subscription of a connected session.
#[derive(Debug, Clone)]
pub(crate) struct Subscriber {
    pub(crate) outlet: Arc<Outlet<Outbound>>,
    /// Who reads, for rules.
    pub(crate) reader: Arc<Principal>,
    pub(crate) version: Version,
    /// The largest packet the client takes.
    pub(crate) packet_bytes_max: u32,
    /// Whether what it gets is rewritten, one packet at a time.
    pub(crate) takes_aliases: bool,
    /// Held by the machine: only QoS 0 is routed here.
    pub(crate) is_stored: bool,
    pub(crate) options: SubscriptionOptions,
    pub(crate) subscription_id: Option<u32>,
}

impl Subscriber {
    pub(crate) fn of(
        connection: &Connection,
        options: SubscriptionOptions,
        subscription_id: Option<u32>,
    ) -> Self {
        Self {
            outlet: Arc::clone(&connection.outlet),
            reader: Arc::clone(&connection.who),
            version: connection.version,
            packet_bytes_max: connection.packet_bytes_max,
            takes_aliases: connection.takes_aliases,
            is_stored: connection.is_stored(),
            options,
            subscription_id,
        }
    }
}

/// Where a message of one topic goes for one session: its overlapping subscriptions made one.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) id: ConnectionId,
    pub(crate) subscriber: Subscriber,
    pub(crate) subscription_ids: SmallVec<[u32; 2]>,
}

/// The routes of one topic; shared between a cache and the turn that uses them.
#[derive(Debug, Clone)]
struct Routes {
    plain: Arc<[Route]>,
    /// Share groups that match, of whose members one is chosen for each message. Most topics have
    /// none, and pay nothing for those that do.
    groups: Option<Arc<[GroupId]>>,
}

type Trie = SubscriptionTrie<ConnectionId, Subscriber>;

/// The subscriptions of all connected sessions of one tenant.
#[derive(Debug)]
pub(crate) struct Index {
    trie: RwLock<Trie>,
    generation: AtomicU64,
    len: AtomicU64,
    /// How many of them want to hear from the broker who comes and goes.
    watchers: AtomicUsize,
}

impl Default for Index {
    fn default() -> Self {
        let trie = RwLock::new(Trie::with_seed(secret_seed()));
        let (generation, len) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { trie, generation, len, watchers: AtomicUsize::new(0) }
    }
}

impl Index {
    pub(crate) fn subscribe(&self, filter: &Filter<'_>, id: ConnectionId, who: Subscriber) {
        let is_new = self.change(|trie| trie.insert(filter, id, who).is_none());
        if is_new && is_of_clients(filter.pattern) {
            self.watchers.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// True when there was such a subscription.
    pub(crate) fn unsubscribe(&self, filter: &Filter<'_>, id: ConnectionId) -> bool {
        let was_there = self.change(|trie| trie.remove(filter, id).is_some());
        if was_there && is_of_clients(filter.pattern) {
            self.watchers.fetch_sub(1, Ordering::Relaxed);
        }
        was_there
    }

    /// Forget a connection that is gone.
    pub(crate) fn remove_all(&self, filters: &BTreeSet<Box<str>>, id: ConnectionId) {
        if filters.is_empty() {
            return;
        }
        let mut gone = 0;
        self.change(|trie| {
            for text in filters {
                if let Ok(filter) = Filter::parse(text)
                    && trie.remove(&filter, id).is_some()
                    && is_of_clients(filter.pattern)
                {
                    gone += 1;
                }
            }
        });
        if gone > 0 {
            self.watchers.fetch_sub(gone, Ordering::Relaxed);
        }
    }

    fn change<R>(&self, change: impl FnOnce(&mut Trie) -> R) -> R {
        let mut trie = self.trie.write();
        let result = change(&mut trie);
        // Published under the lock: whoever reads the new number finds the new trie.
        self.generation.store(trie.generation(), Ordering::Release);
        self.len.store(trie.len() as u64, Ordering::Relaxed);
        result
    }

    /// How many subscriptions connected sessions have.
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    /// Whether a connected session may want to hear who comes and goes.
    pub(crate) fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::Relaxed) > 0
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

/// One shard's way into the index: its cache, its scratch lists, and the routes used last.
///
/// A read buffer is mostly full of messages for one topic, so the last answer is kept at hand: a
/// comparison of names replaces the look-up.
pub(crate) struct Router {
    index: Arc<Index>,
    rules: Option<Arc<RuleTable>>,
    cache: RouteCache<Routes>,
    matches: Matches<ConnectionId, Subscriber>,
    last_topic: String,
    last_generation: u64,
    last_routes: Routes,
}

impl Router {
    pub(crate) fn new(index: Arc<Index>, rules: Option<Arc<RuleTable>>) -> Self {
        Self {
            index,
            rules,
            cache: RouteCache::with_seed(CACHED_TOPICS_MAX, secret_seed()),
            matches: Matches::new(),
            last_topic: String::new(),
            last_generation: u64::MAX,
            last_routes: Routes { plain: Arc::new([]), groups: None },
        }
    }

    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    /// New rules: every route found so far was found under others.
    pub(crate) fn set_rules(&mut self, rules: Option<Arc<RuleTable>>) {
        *self = Self::new(Arc::clone(&self.index), rules);
    }

    /// Everybody online who wants `topic` and may read it, each once.
    #[inline]
    pub(crate) fn routes(&mut self, topic: &str) -> &[Route] {
        let generation = self.index.generation();
        if generation != self.last_generation || topic != self.last_topic {
            self.last_routes = self.look_up(topic, generation);
            self.last_generation = generation;
            self.last_topic.clear();
            self.last_topic.push_str(topic);
        }
        &self.last_routes.plain
    }

    /// How many share groups want the topic whose routes were asked for last.
    #[inline]
    pub(crate) fn group_count(&self) -> usize {
        self.last_routes.groups.as_ref().map_or(0, |groups| groups.len())
    }

    /// The member of a group whose turn it is for `topic`: the next that may read it and is not
    /// behind, or the next that may read it.
    pub(crate) fn member(
        &mut self,
        group: usize,
        topic: &str,
        mut is_behind: impl FnMut(&Subscriber) -> bool,
    ) -> Option<Route> {
        let mut fallback = None;
        let mut left = usize::MAX;
        while left > 0 {
            let (id, subscriber, count) = self.next_member(group, topic)?;
            left = left.min(count) - 1;
            let subscription_ids = subscriber.subscription_id.into_iter().collect();
            let route = Route { id, subscriber, subscription_ids };
            if !is_behind(&route.subscriber) {
                return Some(route);
            }
            fallback.get_or_insert(route);
        }
        fallback
    }

    fn next_member(
        &mut self,
        group: usize,
        topic: &str,
    ) -> Option<(ConnectionId, Subscriber, usize)> {
        if self.index.generation() != self.last_generation {
            self.routes(topic); // somebody subscribed since: group ids are from another time
        }
        let rules = self.rules.as_deref();
        let may_not_read = |who: &Subscriber| {
            rules.is_some_and(|rules| !rules.may(who.reader.who(), Action::Read, subject(topic)))
        };
        let trie = self.index.trie.read();
        if trie.generation() != self.last_generation {
            return None; // twice in one instant: the message meets a group that is changing
        }
        let group = trie.group(*self.last_routes.groups.as_ref()?.get(group)?)?;
        let (id, subscriber) = group.next_round_robin(|_, who| may_not_read(who))?;
        Some((id, subscriber.clone(), group.len()))
    }

    fn look_up(&mut self, topic: &str, generation: u64) -> Routes {
        if let Some(routes) = self.cache.get(topic, generation) {
            return routes.clone();
        }
        self.index.trie.read().matches(topic, &mut self.matches);
        let rules = self.rules.as_deref();
        let may_read = |found: &&[(ConnectionId, Subscriber)]| {
            let who = found[0].1.reader.who();
            rules.is_none_or(|rules| rules.may(who, Action::Read, subject(topic)))
        };
        let found = self.matches.by_subscriber().filter(may_read);
        let plain = found.map(Route::from_overlapping).collect();
        let groups = self.matches.groups();
        let groups = (!groups.is_empty()).then(|| groups.into());
        let routes = Routes { plain, groups };
        // Matches hold outlets; kept until the next miss they would keep dead connections' memory.
        self.matches.clear();
        // Stored under the generation read *before* matching: if the trie moved on meanwhile the
        // entry is merely stale at once.
        self.cache.put(topic, generation, routes.clone());
        routes
    }
}

/// A seed that clients cannot know, so that they cannot prepare names that collide.
fn secret_seed() -> u64 {
    RandomState::new().hash_one("route")
}

impl Route {
    /// Overlapping subscriptions of one session yield one copy: the highest QoS, every identifier,
    /// and the gentlest of the other options (X-28, [MQTT-3.3.4-2]).
    fn from_overlapping(subscriptions: &[(ConnectionId, Subscriber)]) -> Self {
        let (id, first) = &subscriptions[0];
        let mut merged = first.clone();
        for (_, other) in &subscriptions[1..] {
            let (known, more) = (&mut merged.options, other.options);
            known.qos = known.qos.max(more.qos);
            known.no_local &= more.no_local;
            known.retain_as_published |= more.retain_as_published;
        }
        let ids = subscriptions.iter().filter_map(|(_, subscriber)| subscriber.subscription_id);
        Self { id: *id, subscriber: merged, subscription_ids: ids.collect() }
    }
}
