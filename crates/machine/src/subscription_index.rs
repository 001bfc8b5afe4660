//! Whose filters match a topic: the trie, and what a checkpoint needs to know of its share groups.
//!
//! Plain subscriptions stand in their sessions and are checkpointed there; the trie is made anew
//! from them. A share group has state of its own, the order of its members and whose turn it is,
//! so groups are a table of the state like sessions are: by filter, copied before their first
//! change (`checkpoint/copies.rs`).
//!
//! Whoever is told of a group may move its cursor, so [`SubscriptionIndex::matches`] and
//! [`SubscriptionIndex::find_group`] note where it stood. The note is by the group's place in the
//! trie, which stays the same until the group's members change; and whoever changes those makes the
//! copy first.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use quantumqtt_topics::{Filter, GroupId, Matches, ShareGroup, SubscriptionTrie};

use crate::checkpoint::{Copies, Next};
use crate::session::SessionKey;
use crate::subscribe::Granted;

/// A share group as a checkpoint holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupCopy {
    /// The filter as clients wrote it, `$share/…` included.
    pub(crate) filter: Arc<str>,
    pub(crate) cursor: usize,
    /// In the order in which they joined.
    pub(crate) members: Vec<SessionKey>,
}

/// What matched the topic that was asked for last.
///
/// A batch is mostly messages of few topics, one after the other: until subscriptions change, the
/// same question has the same answer.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) matches: Matches<SessionKey, Granted>,
    topic: String,
    /// Of the trie, when it was asked; None before that.
    generation: Option<u64>,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(crate) struct SubscriptionIndex {
    trie: SubscriptionTrie<SessionKey, Granted>,
    /// The filters of all share groups, which the trie cannot list.
    shared: BTreeSet<Arc<str>>,
    copies: Copies<GroupCopy>,
    /// Where cursors stood when the checkpoint began, of groups whose members are still the same.
    cursors: BTreeMap<GroupId, usize>,
}

impl SubscriptionIndex {
    pub(crate) fn insert(
        &mut self,
        filter: &Filter<'_>,
        key: SessionKey,
        granted: Granted,
    ) -> Option<Granted> {
        if let Some(text) = shared_text(filter) {
            self.keep_group(&text);
            self.shared.insert(text);
        }
        self.trie.insert(filter, key, granted)
    }

    pub(crate) fn remove(&mut self, filter: &Filter<'_>, key: SessionKey) -> Option<Granted> {
        let shared = shared_text(filter);
        if let Some(text) = &shared {
            self.keep_group(text);
        }
        let removed = self.trie.remove(filter, key);
        if let Some(text) = shared.filter(|_| self.trie.find_group(filter).is_none()) {
            self.shared.remove(&text);
        }
        removed
    }

    pub(crate) fn get(&self, filter: &Filter<'_>, key: SessionKey) -> Option<&Granted> {
        self.trie.get(filter, key)
    }

    pub(crate) fn group(&self, id: GroupId) -> Option<&ShareGroup<SessionKey, Granted>> {
        self.trie.group(id)
    }

    /// Writes all that matches `topic` into `found`, which is asked by this index only; the caller
    /// may move the cursors of its groups.
    pub(crate) fn matches(&mut self, topic: &str, found: &mut Found) {
        let generation = Some(self.trie.generation());
        if generation != found.generation || topic != found.topic {
            self.trie.matches(topic, &mut found.matches);
            found.generation = generation;
            found.topic.clear();
            found.topic.push_str(topic);
        }
        for &id in found.matches.groups() {
            self.note_cursor(id);
        }
    }

    /// The group a shared filter names; the caller may move its cursor.
    pub(crate) fn find_group(&mut self, filter: &Filter<'_>) -> Option<GroupId> {
        let id = self.trie.find_group(filter)?;
        self.note_cursor(id);
        Some(id)
    }

    fn note_cursor(&mut self, id: GroupId) {
        if self.copies.is_running() {
            let cursor = self.trie.group(id).map_or(0, ShareGroup::cursor);
            self.cursors.entry(id).or_insert(cursor);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.trie.len()
    }

    pub(crate) fn group_count(&self) -> usize {
        self.trie.group_count()
    }

    /// All share groups by filter.
    pub(crate) fn groups(&self) -> impl Iterator<Item = GroupCopy> {
        self.shared.iter().filter_map(|text| self.group_now(text))
    }

    /// Puts back whose turn it is; false if there is no such member, or no such group.
    pub(crate) fn restore_cursor(&self, filter: &Filter<'_>, cursor: usize) -> bool {
        let group = self.trie.find_group(filter).and_then(|id| self.trie.group(id));
        let Some(group) = group.filter(|group| cursor < group.len()) else {
            return false;
        };
        group.set_cursor(cursor);
        true
    }

    /// A checkpoint begins, or ends early.
    pub(crate) fn set_copying(&mut self, is_copying: bool) {
        self.cursors.clear();
        if is_copying { self.copies.begin() } else { self.copies.end() }
    }

    /// The next group, by filter, as it was when the checkpoint began.
    pub(crate) fn take_copy(&mut self) -> Option<GroupCopy> {
        let first = |from: Bound<&str>| {
            let mut ahead = self.shared.range::<str, _>((from, Bound::Unbounded));
            ahead.next().map(|text| &**text)
        };
        match self.copies.take_next(first) {
            Next::Copied(group) => Some(group),
            Next::Live(text) => self.group_then(self.shared.get(&*text)?),
            Next::End => {
                self.cursors.clear();
                None
            }
        }
    }

    /// The members of a group are about to change.
    fn keep_group(&mut self, text: &Arc<str>) {
        if self.copies.is_running() && !self.copies.has(text) {
            let copy = self.group_then(text);
            self.copies.keep(text, || copy);
        }
    }

    fn group_now(&self, text: &Arc<str>) -> Option<GroupCopy> {
        let filter = Filter::parse(text).ok()?;
        let group = self.trie.group(self.trie.find_group(&filter)?)?;
        Some(GroupCopy {
            filter: text.clone(),
            cursor: group.cursor(),
            members: group.members().map(|(key, _)| key).collect(),
        })
    }

    /// The group as it was when the checkpoint began, if its members have not changed since.
    fn group_then(&self, text: &Arc<str>) -> Option<GroupCopy> {
        let filter = Filter::parse(text).ok()?;
        let noted = self.trie.find_group(&filter).and_then(|id| self.cursors.get(&id));
        let group = self.group_now(text)?;
        Some(GroupCopy { cursor: noted.copied().unwrap_or(group.cursor), ..group })
    }
}

/// A shared filter as clients write it; there is only one way to.
fn shared_text(filter: &Filter<'_>) -> Option<Arc<str>> {
    filter.share.map(|name| format!("$share/{name}/{}", filter.pattern).into())
}
