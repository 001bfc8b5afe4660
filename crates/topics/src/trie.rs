//! The subscription trie: which subscribers' filters match a topic.
//!
//! Theory of operation. A node is one level of a pattern below its parent; the path from the root
//! spells the pattern. Nodes live in an arena and name each other by number, so the trie drops as
//! flat as a vector, however deep it is. A node holds its `+` and `#` children itself; all literal
//! edges of the trie are entries of one hash table under (parent, level), which costs about ten
//! bytes an edge and is as quick for a root with a million children as for one with two. The edges
//! are only looked up, never listed: no answer depends on a hash.
//!
//! Matching goes level by level through the topic and keeps the row of nodes whose path matches so
//! far. A path leads to one node only, so a node is visited at most once: the cost of a publish is
//! bounded by the number of nodes at the topic's depths, whatever wildcards clients think of.
//!
//! What must stay true:
//! - every node but the root has a subscriber, a share group or a child (SUB-06);
//! - `generation` moves at every change of what a match may answer (DP-18);
//! - answers stand in one order, given by patterns and keys alone, which
//!   [`SubscriptionTrie::matches`] describes.
//!
//! A node costs about 75 bytes, and a pattern as many nodes as it has levels not yet there. Whoever
//! bounds a client's memory counts levels, not filters.

use hashbrown::HashTable;

use crate::arena::Arena;
use crate::filter::Filter;
use crate::level::{Level, hash_text};
use crate::name::{is_dollar, levels};
use crate::share::ShareGroup;
use crate::subscribers::Subscribers;

const ROOT: u32 = 0;

/// In `plus` and `hash`: there is none, for the root is nobody's child.
const NO_CHILD: u32 = ROOT;

/// Names a share group inside one trie, until the trie's next change.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct GroupId(u32);

#[derive(Debug)]
struct Node<K, V> {
    level: Level,
    parent: u32,
    plus: u32,
    hash: u32,
    /// How many entries of the edge table start here; none spares the look-up.
    literal_count: u32,
    subscribers: Subscribers<K, V>,
}

impl<K: Copy + Ord, V> Node<K, V> {
    fn new(parent: u32, level: Level) -> Self {
        Self {
            level,
            parent,
            plus: NO_CHILD,
            hash: NO_CHILD,
            literal_count: 0,
            subscribers: Subscribers::Nobody,
        }
    }

    fn is_needless(&self) -> bool {
        self.literal_count == 0
            && self.plus == NO_CHILD
            && self.hash == NO_CHILD
            && self.subscribers.is_empty()
    }
}

/// Subscriptions of subscribers `K` with options `V`, matched against topics.
#[derive(Debug)]
pub struct SubscriptionTrie<K, V> {
    nodes: Arena<Node<K, V>>,
    /// Ids of all nodes reached by a literal level, under the hash of (parent, level).
    edges: HashTable<u32>,
    groups: Arena<ShareGroup<K, V>>,
    seed: u64,
    generation: u64,
    subscription_count: usize,
    long_level_bytes: usize,
}

impl<K: Copy + Ord, V> Default for SubscriptionTrie<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Copy + Ord, V> SubscriptionTrie<K, V> {
    /// An empty trie.
    pub fn new() -> Self {
        Self::with_seed(0)
    }

    /// An empty trie whose edge table is keyed by `seed`.
    ///
    /// No answer depends on it. A seed that clients cannot know keeps them from preparing levels
    /// that collide.
    pub fn with_seed(seed: u64) -> Self {
        let mut nodes = Arena::new();
        nodes.insert(Node::new(ROOT, Level::new(b"")));
        Self {
            nodes,
            edges: HashTable::new(),
            groups: Arena::new(),
            seed,
            generation: 0,
            subscription_count: 0,
            long_level_bytes: 0,
        }
    }

    /// Adds a subscription, or replaces its options and returns those it had.
    pub fn insert(&mut self, filter: &Filter<'_>, subscriber: K, options: V) -> Option<V> {
        self.generation += 1;
        let mut id = ROOT;
        for level in levels(filter.pattern) {
            id = match self.child(id, level) {
                Some(child) => child,
                None => self.add_child(id, level),
            };
        }
        let replaced = match filter.share {
            None => self.nodes[id].subscribers.insert(subscriber, options),
            Some(name) => {
                let group = self.group_or_new(id, name);
                self.groups[group.0].join(subscriber, options)
            }
        };
        if replaced.is_none() {
            self.subscription_count += 1;
        }
        replaced
    }

    /// Removes a subscription and returns its options; the nodes only it needed go with it.
    pub fn remove(&mut self, filter: &Filter<'_>, subscriber: K) -> Option<V> {
        let id = self.find(filter.pattern)?;
        let options = match filter.share {
            None => self.nodes[id].subscribers.remove(subscriber)?,
            Some(name) => self.leave_group(id, name, subscriber)?,
        };
        self.generation += 1;
        self.subscription_count -= 1;
        self.prune(id);
        if self.subscription_count == 0 {
            // Nothing is left to move, so this is the moment to give the memory back.
            let generation = self.generation;
            *self = Self { generation, ..Self::with_seed(self.seed) };
        }
        Some(options)
    }

    /// The options of one subscription.
    pub fn get(&self, filter: &Filter<'_>, subscriber: K) -> Option<&V> {
        match filter.share {
            None => self.nodes[self.find(filter.pattern)?].subscribers.get(subscriber),
            Some(_) => self.group(self.find_group(filter)?)?.get(subscriber),
        }
    }

    /// The group a shared filter names, if it has members.
    pub fn find_group(&self, filter: &Filter<'_>) -> Option<GroupId> {
        self.nodes[self.find(filter.pattern)?].subscribers.group(filter.share?)
    }

    /// The group behind an id from the present generation.
    pub fn group(&self, id: GroupId) -> Option<&ShareGroup<K, V>> {
        self.groups.get(id.0)
    }

    /// Moves on at every change of subscriptions; a group's cursor is none.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// How many subscriptions there are; each member of a share group is one.
    pub fn len(&self) -> usize {
        self.subscription_count
    }

    /// Whether there is no subscription.
    pub fn is_empty(&self) -> bool {
        self.subscription_count == 0
    }

    /// How many nodes the patterns need, without the root.
    pub fn node_count(&self) -> usize {
        self.nodes.len() - 1
    }

    /// How many share groups have members.
    pub fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// Heap bytes, estimated: the parts that grow with clients are counted, maps by their entries.
    pub fn bytes(&self) -> usize {
        let crowded = self.subscription_count.saturating_sub(self.nodes.len());
        self.nodes.bytes()
            + self.edges.allocation_size()
            + self.groups.bytes()
            + self.long_level_bytes
            + crowded * size_of::<(K, V)>()
    }

    fn find(&self, pattern: &str) -> Option<u32> {
        levels(pattern).try_fold(ROOT, |id, level| self.child(id, level))
    }

    fn child(&self, parent: u32, level: &str) -> Option<u32> {
        let some = |id| (id != NO_CHILD).then_some(id);
        match level {
            "+" => some(self.nodes[parent].plus),
            "#" => some(self.nodes[parent].hash),
            literal => {
                let level_hash = hash_text(self.seed, literal.as_bytes());
                self.literal_child(parent, literal.as_bytes(), level_hash)
            }
        }
    }

    fn literal_child(&self, parent: u32, level: &[u8], level_hash: u64) -> Option<u32> {
        let is_edge = |&id: &u32| {
            let node = &self.nodes[id];
            node.parent == parent && node.level.as_bytes() == level
        };
        self.edges.find(edge_hash(parent, level_hash), is_edge).copied()
    }

    fn add_child(&mut self, parent: u32, level: &str) -> u32 {
        let text = Level::new(level.as_bytes());
        self.long_level_bytes += text.heap_bytes();
        let id = self.nodes.insert(Node::new(parent, text));
        match level {
            "+" => self.nodes[parent].plus = id,
            "#" => self.nodes[parent].hash = id,
            literal => {
                let hash = edge_hash(parent, hash_text(self.seed, literal.as_bytes()));
                let (nodes, seed) = (&self.nodes, self.seed);
                self.edges.insert_unique(hash, id, |&id| node_hash(seed, &nodes[id]));
                self.nodes[parent].literal_count += 1;
            }
        }
        id
    }

    /// Removes a node nobody needs, then its parent if it was needed for this only, and so on.
    fn prune(&mut self, mut id: u32) {
        while id != ROOT && self.nodes[id].is_needless() {
            let hash = node_hash(self.seed, &self.nodes[id]);
            let node = self.nodes.remove(id);
            self.long_level_bytes -= node.level.heap_bytes();
            let parent = &mut self.nodes[node.parent];
            if parent.plus == id {
                parent.plus = NO_CHILD;
            } else if parent.hash == id {
                parent.hash = NO_CHILD;
            } else {
                parent.literal_count -= 1;
                let edge = self.edges.find_entry(hash, |&other| other == id);
                edge.expect("a literal node has an edge").remove();
            }
            id = node.parent;
        }
    }

    fn group_or_new(&mut self, node: u32, name: &str) -> GroupId {
        if let Some(group) = self.nodes[node].subscribers.group(name) {
            return group;
        }
        let group = GroupId(self.groups.insert(ShareGroup::new()));
        self.nodes[node].subscribers.insert_group(name, group);
        group
    }

    fn leave_group(&mut self, node: u32, name: &str, subscriber: K) -> Option<V> {
        let id = self.nodes[node].subscribers.group(name)?;
        let group = &mut self.groups[id.0];
        let options = group.leave(subscriber)?;
        if group.is_empty() {
            self.groups.remove(id.0);
            self.nodes[node].subscribers.remove_group(name);
        }
        Some(options)
    }
}

impl<K: Copy + Ord, V: Clone> SubscriptionTrie<K, V> {
    /// Writes everything that matches `topic` into `found`, which is emptied first.
    ///
    /// A subscriber stands there once for each of its filters that match. Filters come in this
    /// order: those whose `#` stands for something, shortest first; then those that end with the
    /// topic, each before its own `/#`. Within either, a literal level comes before `+`, the
    /// leftmost difference deciding. Within one filter subscribers stand by key, groups by name.
    /// Nothing is allocated once the buffers of `found` have grown.
    pub fn matches(&self, topic: &str, found: &mut Matches<K, V>) {
        found.clear();
        if self.is_empty() {
            return;
        }
        // [MQTT-4.7.2-1]: the first level of a `$` topic is only reached by its name.
        let mut wildcards_apply = !is_dollar(topic);
        found.row.push(ROOT);
        for level in levels(topic) {
            self.advance(level.as_bytes(), wildcards_apply, found);
            if found.row.is_empty() {
                return;
            }
            wildcards_apply = true;
        }
        let row = std::mem::take(&mut found.row);
        for &id in &row {
            self.list(id, found);
            self.list_hash_child(&self.nodes[id], found);
        }
        found.row = row;
    }

    /// Goes from the nodes that match so far to those of their children that match `level` too.
    fn advance(&self, level: &[u8], wildcards_apply: bool, found: &mut Matches<K, V>) {
        let level_hash = hash_text(self.seed, level);
        let row = std::mem::take(&mut found.row);
        let mut next_row = std::mem::take(&mut found.next_row);
        for &id in &row {
            found.visited += 1;
            let node = &self.nodes[id];
            if wildcards_apply {
                self.list_hash_child(node, found);
            }
            if node.literal_count > 0 {
                next_row.extend(self.literal_child(id, level, level_hash));
            }
            if wildcards_apply && node.plus != NO_CHILD {
                next_row.push(node.plus);
            }
        }
        found.row = next_row;
        found.next_row = row;
        found.next_row.clear();
    }

    fn list_hash_child(&self, node: &Node<K, V>, found: &mut Matches<K, V>) {
        if node.hash != NO_CHILD {
            self.list(node.hash, found);
        }
    }

    fn list(&self, id: u32, found: &mut Matches<K, V>) {
        found.visited += 1;
        self.nodes[id].subscribers.list(&mut found.subscribers, &mut found.groups);
    }
}

/// Spreads a level's hash over its possible parents; the level itself is hashed once per topic.
fn edge_hash(parent: u32, level_hash: u64) -> u64 {
    // An odd factor keeps different parents different in the low bits, which choose the bucket.
    level_hash ^ u64::from(parent).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn node_hash<K, V>(seed: u64, node: &Node<K, V>) -> u64 {
    edge_hash(node.parent, hash_text(seed, node.level.as_bytes()))
}

/// What matched one topic, in buffers that are emptied and never freed between topics.
#[derive(Debug)]
pub struct Matches<K, V> {
    subscribers: Vec<(K, V)>,
    groups: Vec<GroupId>,
    row: Vec<u32>,
    next_row: Vec<u32>,
    visited: usize,
}

impl<K, V> Default for Matches<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V> Matches<K, V> {
    /// Empty buffers.
    pub const fn new() -> Self {
        Self {
            subscribers: Vec::new(),
            groups: Vec::new(),
            row: Vec::new(),
            next_row: Vec::new(),
            visited: 0,
        }
    }

    /// Every plain subscription that matched, overlapping ones of a subscriber each for itself.
    pub fn subscribers(&self) -> &[(K, V)] {
        &self.subscribers
    }

    /// Every share group that matched; the caller picks a member of each.
    pub fn groups(&self) -> &[GroupId] {
        &self.groups
    }

    /// How many nodes of the trie the match looked at: its cost, for metering and tests.
    pub fn visited(&self) -> usize {
        self.visited
    }

    /// Whether nothing matched.
    pub fn is_empty(&self) -> bool {
        self.subscribers.is_empty() && self.groups.is_empty()
    }

    /// Drops what was found and keeps the buffers; for options that hold on to something.
    pub fn clear(&mut self) {
        self.subscribers.clear();
        self.groups.clear();
        self.row.clear();
        self.next_row.clear();
        self.visited = 0;
    }
}

impl<K: Copy + Ord, V> Matches<K, V> {
    /// The matches of each subscriber side by side, subscribers by key, so that the caller can
    /// send one copy with the highest QoS and all identifiers [MQTT-3.3.4-2].
    ///
    /// One subscriber's matches keep the order of [`SubscriptionTrie::matches`]. Sorting may
    /// allocate; it is skipped where the order already holds, as it does for a single filter.
    pub fn by_subscriber(&mut self) -> impl Iterator<Item = &[(K, V)]> {
        if !self.subscribers.is_sorted_by_key(|(subscriber, _)| *subscriber) {
            self.subscribers.sort_by_key(|(subscriber, _)| *subscriber);
        }
        self.subscribers.chunk_by(|(left, _), (right, _)| left == right)
    }
}

#[cfg(test)]
mod tests;
