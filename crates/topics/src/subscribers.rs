//! Who subscribed to exactly one pattern: the sessions, and the share groups.
//!
//! Nearly every pattern of a large trie has one subscriber, and a few have very many. So one is
//! kept inline and more go into an ordered map: a vector would make the hundred-thousandth
//! subscriber of a broadcast topic move all others aside. Both forms list the same order.

use std::collections::BTreeMap;

use crate::trie::GroupId;

#[derive(Debug)]
pub(crate) enum Subscribers<K, V> {
    Nobody,
    One(K, V),
    Crowd(Box<Crowd<K, V>>),
}

#[derive(Debug)]
pub(crate) struct Crowd<K, V> {
    plain: BTreeMap<K, V>,
    groups: BTreeMap<Box<str>, GroupId>,
}

impl<K: Copy + Ord, V> Subscribers<K, V> {
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Nobody)
    }

    pub(crate) fn get(&self, subscriber: K) -> Option<&V> {
        match self {
            Self::One(key, options) if *key == subscriber => Some(options),
            Self::Nobody | Self::One(..) => None,
            Self::Crowd(crowd) => crowd.plain.get(&subscriber),
        }
    }

    /// Adds a subscriber or replaces its options, which are returned.
    pub(crate) fn insert(&mut self, subscriber: K, options: V) -> Option<V> {
        match self {
            Self::Nobody => {
                *self = Self::One(subscriber, options);
                None
            }
            Self::One(key, stored) if *key == subscriber => {
                Some(std::mem::replace(stored, options))
            }
            Self::One(..) | Self::Crowd(_) => self.crowd().plain.insert(subscriber, options),
        }
    }

    pub(crate) fn remove(&mut self, subscriber: K) -> Option<V> {
        match self {
            Self::One(key, _) if *key == subscriber => {
                let Self::One(_, options) = std::mem::replace(self, Self::Nobody) else {
                    unreachable!("the arm matched `One`");
                };
                Some(options)
            }
            Self::Nobody | Self::One(..) => None,
            Self::Crowd(crowd) => {
                let options = crowd.plain.remove(&subscriber);
                self.settle();
                options
            }
        }
    }

    pub(crate) fn group(&self, name: &str) -> Option<GroupId> {
        match self {
            Self::Crowd(crowd) => crowd.groups.get(name).copied(),
            Self::Nobody | Self::One(..) => None,
        }
    }

    pub(crate) fn insert_group(&mut self, name: &str, group: GroupId) {
        self.crowd().groups.insert(name.into(), group);
    }

    pub(crate) fn remove_group(&mut self, name: &str) {
        if let Self::Crowd(crowd) = self {
            crowd.groups.remove(name);
            self.settle();
        }
    }

    /// Turns to the form that can hold more than one subscriber.
    fn crowd(&mut self) -> &mut Crowd<K, V> {
        if !matches!(self, Self::Crowd(_)) {
            let mut crowd = Box::new(Crowd { plain: BTreeMap::new(), groups: BTreeMap::new() });
            if let Self::One(subscriber, options) = std::mem::replace(self, Self::Nobody) {
                crowd.plain.insert(subscriber, options);
            }
            *self = Self::Crowd(crowd);
        }
        match self {
            Self::Crowd(crowd) => crowd,
            Self::Nobody | Self::One(..) => unreachable!("just made a crowd"),
        }
    }

    /// Returns to the smallest form that holds what is left.
    fn settle(&mut self) {
        if let Self::Crowd(crowd) = self
            && crowd.groups.is_empty()
            && crowd.plain.len() <= 1
        {
            *self = match crowd.plain.pop_first() {
                Some((subscriber, options)) => Self::One(subscriber, options),
                None => Self::Nobody,
            };
        }
    }
}

impl<K: Copy, V: Clone> Subscribers<K, V> {
    /// Appends all: subscribers by key, groups by name.
    pub(crate) fn list(&self, plain: &mut Vec<(K, V)>, groups: &mut Vec<GroupId>) {
        match self {
            Self::Nobody => {}
            Self::One(subscriber, options) => plain.push((*subscriber, options.clone())),
            Self::Crowd(crowd) => {
                plain.extend(crowd.plain.iter().map(|(key, options)| (*key, options.clone())));
                groups.extend(crowd.groups.values());
            }
        }
    }
}
