//! The retained index: topic → retained message, asked by filter.
//!
//! Theory of operation. Topics are kept in one ordered map, by their bytes. All topics below a
//! prefix that ends with `/` stand side by side there, so a filter is answered by walking the map
//! and leaping: each topic met is compared with the filter level by level, and where it fails, the
//! first level that differs tells the smallest topic that could still match. The walk leaps there.
//! So `a/+/c` leaps from `a/x/c` to `a/y/c` without reading what else lies below `a/x`, and `a/#`
//! reads the subtree of `a` and nothing else.
//!
//! The order is that of bytes, not of levels: `a-b` stands between `a` and `a/b`, since `-` comes
//! before `/`. `leap_forward` has a case for this.
//!
//! Paging. The walk's only state is the topic it looked at last. A replay that must not hold up
//! its thread takes [`RetainedMatches::visit`], which looks at one topic per call, and continues
//! later with [`RetainedIndex::matching_after`] that topic, whatever has changed in between.

use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::ops::Bound;

use crate::filter::Filter;
use crate::name::{is_dollar, levels};

/// The smallest byte that sorts behind `/`: `a0` is the end of everything below `a/`.
const BEHIND_SLASH: char = '0';

/// The same for `$`: the end of all topics beginning with it.
const BEHIND_DOLLAR: &str = "%";

/// Retained messages `V` by topic.
#[derive(Debug)]
pub struct RetainedIndex<V> {
    messages: BTreeMap<Box<str>, V>,
    bytes: usize,
    weigh: fn(&V) -> usize,
}

impl<V> RetainedIndex<V> {
    /// An empty index. `weigh` tells how many bytes a message counts in [`Self::bytes`]; it must
    /// say the same whenever it is asked about the same message.
    pub const fn new(weigh: fn(&V) -> usize) -> Self {
        Self { messages: BTreeMap::new(), bytes: 0, weigh }
    }

    /// Stores a topic's message and returns the one it replaces.
    pub fn set(&mut self, topic: &str, message: V) -> Option<V> {
        self.bytes += (self.weigh)(&message);
        if let Some(stored) = self.messages.get_mut(topic) {
            let replaced = std::mem::replace(stored, message);
            self.bytes -= (self.weigh)(&replaced);
            return Some(replaced);
        }
        self.bytes += topic.len();
        self.messages.insert(topic.into(), message)
    }

    /// Removes a topic's message.
    pub fn clear(&mut self, topic: &str) -> Option<V> {
        let message = self.messages.remove(topic)?;
        self.bytes -= topic.len() + (self.weigh)(&message);
        Some(message)
    }

    /// A topic's message.
    pub fn get(&self, topic: &str) -> Option<&V> {
        self.messages.get(topic)
    }

    /// All messages a filter matches, topics in the order of their bytes.
    pub fn matching<'a>(&'a self, filter: &Filter<'a>) -> RetainedMatches<'a, V> {
        self.matching_from(filter, Bound::Included(literal_beginning(filter.pattern)))
    }

    /// The same, without topics up to and including `last_topic`, which need not exist any more.
    pub fn matching_after<'a>(
        &'a self,
        filter: &Filter<'a>,
        last_topic: &str,
    ) -> RetainedMatches<'a, V> {
        match literal_beginning(filter.pattern) {
            beginning if beginning > last_topic => {
                self.matching_from(filter, Bound::Included(beginning))
            }
            _ => self.matching_from(filter, Bound::Excluded(last_topic)),
        }
    }

    /// All messages, topics in the order of their bytes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &V)> {
        self.messages.iter().map(|(topic, message)| (&**topic, message))
    }

    /// The first message within a lower bound, by the bytes of topics: for walks that pause.
    pub fn first_from(&self, from: Bound<&str>) -> Option<(&str, &V)> {
        let mut ahead = self.messages.range::<str, _>((from, Bound::Unbounded));
        ahead.next().map(|(topic, message)| (&**topic, message))
    }

    /// How many topics have a message.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether no topic has one.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Bytes of all topics and of all messages as weighed.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn matching_from<'a>(
        &'a self,
        filter: &Filter<'a>,
        start: Bound<&str>,
    ) -> RetainedMatches<'a, V> {
        RetainedMatches {
            messages: &self.messages,
            pattern: filter.pattern,
            walk: Some(self.messages.range::<str, _>((start, Bound::Unbounded))),
            leap: String::new(),
        }
    }
}

/// What the walk met at one topic.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Visit<'a, V> {
    /// The filter matches.
    Match(&'a str, &'a V),
    /// The filter does not match; the next topic that might is not far.
    Passed(&'a str),
}

/// A walk through the messages that match a filter.
#[derive(Debug)]
pub struct RetainedMatches<'a, V> {
    messages: &'a BTreeMap<Box<str>, V>,
    pattern: &'a str,
    /// What lies ahead; `None` once nothing there can match.
    walk: Option<Range<'a, Box<str>, V>>,
    /// Where to leap to, rewritten in place.
    leap: String,
}

impl<'a, V> RetainedMatches<'a, V> {
    /// Looks at one stored topic. For callers that bound their work: between two matches there
    /// may be many topics that do not match.
    pub fn visit(&mut self) -> Option<Visit<'a, V>> {
        let (topic, message) = self.walk.as_mut()?.next()?;
        match compare(self.pattern, topic, &mut self.leap) {
            Outcome::Match => return Some(Visit::Match(topic, message)),
            Outcome::Step => {}
            Outcome::Leap => {
                let ahead = (Bound::Included(self.leap.as_str()), Bound::Unbounded);
                self.walk = Some(self.messages.range::<str, _>(ahead));
            }
            Outcome::End => self.walk = None,
        }
        Some(Visit::Passed(topic))
    }
}

impl<'a, V> Iterator for RetainedMatches<'a, V> {
    type Item = (&'a str, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Visit::Match(topic, message) = self.visit()? {
                return Some((topic, message));
            }
        }
    }
}

enum Outcome {
    Match,
    /// No match, and the next topic may be one.
    Step,
    /// No match before the topic now written in `leap`.
    Leap,
    /// No match any more.
    End,
}

/// Compares a topic with a pattern and finds, if it does not match, where the next match may be.
fn compare(pattern: &str, topic: &str, leap: &mut String) -> Outcome {
    if is_dollar(topic) && pattern.starts_with(['+', '#']) {
        leap.clear();
        leap.push_str(BEHIND_DOLLAR);
        return Outcome::Leap;
    }
    let mut topic_levels = levels(topic);
    let mut pattern_levels = levels(pattern).peekable();
    // Bytes of the topic's levels that match so far, with the `/` behind each.
    let mut matched = 0;
    while let Some(level) = pattern_levels.next() {
        if level == "#" {
            return Outcome::Match;
        }
        let Some(topic_level) = topic_levels.next() else {
            // The topic is a parent of topics that may match, which need not follow at once: a
            // leap from `a` to `a/` would miss `a-b/b` for the pattern `+/b`.
            return Outcome::Step;
        };
        if level != "+" && level != topic_level {
            let prefix = &topic[..matched];
            let has_more = pattern_levels.next().is_some();
            if leap_forward(topic, prefix, level, has_more, leap) {
                return Outcome::Leap;
            }
            return leap_out(pattern, prefix, leap);
        }
        matched += topic_level.len() + 1;
    }
    if topic_levels.next().is_none() {
        return Outcome::Match;
    }
    leap_out(pattern, &topic[..matched], leap)
}

/// Writes where `level` stands below the prefix that matched; whether that lies behind `topic`.
fn leap_forward(topic: &str, prefix: &str, level: &str, has_more: bool, leap: &mut String) -> bool {
    leap.clear();
    leap.push_str(prefix);
    leap.push_str(level);
    if leap.as_str() < topic && has_more {
        // The topic may stand behind `a` and yet before all of `a/`, as `a-b` does.
        leap.push('/');
    }
    leap.as_str() > topic
}

/// Leaps behind everything that begins with `prefix`: whole levels, each with its `/`.
fn leap_out(pattern: &str, prefix: &str, leap: &mut String) -> Outcome {
    if pattern.starts_with(prefix) {
        // Nothing outside the prefix begins as the pattern does; an empty prefix has no outside.
        return Outcome::End;
    }
    leap.clear();
    leap.push_str(prefix);
    leap.pop();
    leap.push(BEHIND_SLASH);
    Outcome::Leap
}

/// Where the first match may be: the pattern before its wildcard. Without the last `/`, for
/// `a/#` includes `a`.
fn literal_beginning(pattern: &str) -> &str {
    match pattern.split_once(['+', '#']) {
        None => pattern,
        Some((literal, _)) => literal.strip_suffix('/').unwrap_or(literal),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::strategies;

    fn filter(text: &str) -> Filter<'_> {
        Filter::parse(text).unwrap()
    }

    fn index_of<T: AsRef<str>>(topics: impl IntoIterator<Item = T>) -> RetainedIndex<()> {
        let mut index = RetainedIndex::new(|()| 0);
        for topic in topics {
            index.set(topic.as_ref(), ());
        }
        index
    }

    fn topics_of<'a>(matches: impl Iterator<Item = (&'a str, &'a ())>) -> Vec<&'a str> {
        matches.map(|(topic, ())| topic).collect()
    }

    /// How many stored topics a filter's whole answer looks at, and how many it finds.
    fn cost(index: &RetainedIndex<()>, text: &str) -> (usize, usize) {
        let mut walk = index.matching(&filter(text));
        let visits: Vec<_> = std::iter::from_fn(|| walk.visit()).collect();
        let found = visits.iter().filter(|visit| matches!(visit, Visit::Match(..))).count();
        (visits.len(), found)
    }

    #[test]
    fn set_replaces_and_clear_removes() {
        let mut index = RetainedIndex::new(Vec::len);
        assert_eq!(index.set("a/b", vec![1; 10]), None);
        assert_eq!((index.len(), index.bytes()), (1, 13));
        assert_eq!(index.set("a/b", vec![2; 4]), Some(vec![1; 10]));
        assert_eq!(index.set("a", vec![3]), None);
        assert_eq!((index.len(), index.bytes(), index.get("a/b")), (2, 9, Some(&vec![2; 4])));
        assert_eq!(index.clear("a/b/c"), None);
        assert_eq!(index.clear("a/b"), Some(vec![2; 4]));
        assert_eq!((index.len(), index.bytes(), index.get("a/b")), (1, 2, None));
        assert_eq!(index.iter().collect::<Vec<_>>(), [("a", &vec![3])]);
        assert_eq!(index.first_from(Bound::Unbounded), Some(("a", &vec![3])));
        assert_eq!(index.first_from(Bound::Excluded("a")), None);
        index.clear("a");
        assert_eq!((index.is_empty(), index.bytes()), (true, 0));
    }

    #[test]
    fn characters_before_the_slash_do_not_hide_a_subtree() {
        let index = index_of(["a", "a-b", "a-b/c", "a/b", "a/b-c", "a/b/c", "a0", "b/c"]);
        assert_eq!(topics_of(index.matching(&filter("a/#"))), ["a", "a/b", "a/b-c", "a/b/c"]);
        assert_eq!(topics_of(index.matching(&filter("a/b/#"))), ["a/b", "a/b/c"]);
        assert_eq!(topics_of(index.matching(&filter("+/c"))), ["a-b/c", "b/c"]);
        assert_eq!(topics_of(index.matching(&filter("a/b"))), ["a/b"]);
    }

    // req: SUB-03
    #[test]
    fn dollar_topics_are_replayed_by_name_only() {
        let index = index_of(["!", "$SYS", "$SYS/x", "$", "%", "a/$SYS"]);
        assert_eq!(topics_of(index.matching(&filter("#"))), ["!", "%", "a/$SYS"]);
        assert_eq!(topics_of(index.matching(&filter("+"))), ["!", "%"]);
        assert_eq!(topics_of(index.matching(&filter("$SYS/#"))), ["$SYS", "$SYS/x"]);
        let shared = index.matching(&filter("$share/g/$SYS/+"));
        assert_eq!(topics_of(shared), ["$SYS/x"]);
    }

    #[test]
    fn a_filter_reads_nothing_of_unrelated_subtrees() {
        let mut topics = BTreeSet::new();
        for room in 0..50 {
            for sensor in 0..50 {
                topics.insert(format!("home/{room}/sensor/{sensor}"));
                topics.insert(format!("home-{room}/{sensor}"));
                topics.insert(format!("other/{room}/{sensor}"));
            }
            topics.insert(format!("home/{room}/state"));
        }
        let index = index_of(&topics);
        for (text, found, visits_max) in [
            ("home/7/state", 1, 5),
            ("home/7/#", 51, 55),
            ("home/+/state", 50, 3 * 50 + 5),
            ("home/+/sensor/7", 50, 4 * 50 + 5),
            ("+/7/7", 1, 4 * 52),
            ("nobody/+/#", 0, 2),
            ("#", topics.len(), topics.len()),
        ] {
            let cost = cost(&index, text);
            assert_eq!(cost.1, found, "{text}");
            assert!(cost.0 <= visits_max, "{text} looked at {} topics", cost.0);
        }
    }

    #[test]
    fn a_page_begins_no_earlier_than_its_filter() {
        let index = index_of((0..100).map(|number| format!("a/{number:02}")));
        let mut walk = index.matching_after(&filter("a/77/#"), "a/12");
        assert_eq!(walk.visit(), Some(Visit::Match("a/77", &())));
        let mut walk = index.matching_after(&filter("a/#"), "a/97");
        assert_eq!(walk.visit(), Some(Visit::Match("a/98", &())));
    }

    #[test]
    fn ten_thousand_messages_are_replayed_page_by_page() {
        let index = index_of((0..10_000).map(|number| format!("a/{number:05}/b")));
        let (mut last, mut found, mut pages) = (String::new(), 0, 0);
        loop {
            let page = topics_of(index.matching_after(&filter("a/+/b"), &last).take(100));
            let Some(topic) = page.last() else { break };
            assert!(*topic > last.as_str(), "a page went back");
            (found, pages) = (found + page.len(), pages + 1);
            last = (*topic).to_owned();
        }
        assert_eq!((found, pages), (10_000, 100));
    }

    // hardening: deep-topics
    #[test]
    fn the_deepest_topics_need_no_stack() {
        let work = || {
            let deep = "/".repeat(65_534);
            let topics = ["a", "b"].map(|end| format!("{deep}{end}"));
            let index = index_of(&topics);
            let hash = format!("{deep}#");
            let plus = format!("{deep}+");
            let pluses = format!("{}#", "+/".repeat(32_000));
            for (text, found) in [(&topics[0], 1), (&hash, 2), (&plus, 2), (&pluses, 2)] {
                assert_eq!(cost(&index, text).1, found, "{} bytes", text.len());
            }
        };
        std::thread::Builder::new().stack_size(128 * 1024).spawn(work).unwrap().join().unwrap();
    }

    proptest! {
        // req: RET-03
        // req: SUB-02
        // req: SUB-03
        #[test]
        fn a_walk_equals_the_naive_matcher(
            topics in prop::collection::btree_set(strategies::topic(), 0..40),
            text in strategies::filter(),
        ) {
            let index = index_of(&topics);
            let filter = filter(&text);
            let expected: Vec<_> =
                topics.iter().map(String::as_str).filter(|topic| filter.matches(topic)).collect();
            prop_assert_eq!(topics_of(index.matching(&filter)), expected);
            prop_assert!(cost(&index, &text).0 <= topics.len(), "a topic was looked at twice");
        }

        // Pages of any length, the index changing between them: what was there all the time is
        // found once, and nothing is found that does not match.
        #[test]
        fn pages_join_without_gap_or_repetition(
            topics in prop::collection::btree_set(strategies::topic(), 0..30),
            text in strategies::plain_filter(),
            visits in 1_usize..5,
            changes in prop::collection::vec((strategies::topic(), any::<bool>()), 0..10),
        ) {
            let filter = filter(&text);
            let mut index = index_of(&topics);
            let mut changed = BTreeSet::new();
            let mut changes = changes.into_iter();
            let mut found = Vec::new();
            let mut last: Option<String> = None;
            loop {
                let mut walk = match &last {
                    None => index.matching(&filter),
                    Some(topic) => index.matching_after(&filter, topic),
                };
                let page: Vec<_> = std::iter::from_fn(|| walk.visit()).take(visits).collect();
                let Some(Visit::Match(topic, ()) | Visit::Passed(topic)) = page.last() else {
                    break;
                };
                prop_assert!(last.as_deref() < Some(*topic), "a page went back");
                last = Some((*topic).to_owned());
                for visit in &page {
                    if let Visit::Match(topic, ()) = visit {
                        found.push((*topic).to_owned());
                    }
                }
                if let Some((topic, is_set)) = changes.next() {
                    if is_set { index.set(&topic, ()); } else { index.clear(&topic); }
                    changed.insert(topic);
                }
            }
            prop_assert!(found.is_sorted_by(|left, right| left < right), "{found:?}");
            prop_assert!(found.iter().all(|topic| filter.matches(topic)));
            for topic in topics.iter().filter(|topic| !changed.contains(*topic)) {
                prop_assert_eq!(filter.matches(topic), found.contains(topic), "{}", topic);
            }
        }

        #[test]
        fn bytes_are_those_of_what_is_stored(
            steps in prop::collection::vec(
                (strategies::topic(), prop::option::of(0_usize..50)),
                0..40,
            ),
        ) {
            let mut index = RetainedIndex::new(|weight: &usize| *weight);
            for (topic, weight) in steps {
                match weight {
                    Some(weight) => drop(index.set(&topic, weight)),
                    None => drop(index.clear(&topic)),
                }
            }
            let expected: usize = index.iter().map(|(topic, weight)| topic.len() + weight).sum();
            prop_assert_eq!(index.bytes(), expected);
        }
    }
}
