//! Invariant: the trie and the one-line matcher agree, whatever filters and topics are made of.
//!
//! Input: text cut at line feeds; the first half of the lines are filters, the rest are topics.
//! Parsing never panics and never recurses per level. A line that is refused as a filter holds no
//! subscription; a topic that validates is found by the trie exactly where each filter matches it.

use std::collections::BTreeMap;

use quantumqtt_topics::{Filter, Matches, SubscriptionTrie, validate_topic};

const LINES_MAX: usize = 64;

/// See the head of this file.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let lines: Vec<&str> = text.split('\n').take(LINES_MAX).collect();
    let (filters, topics) = lines.split_at(lines.len() / 2);
    let mut trie: SubscriptionTrie<u16, u16> = SubscriptionTrie::with_seed(1);
    let mut plain = BTreeMap::new();
    for (number, filter) in (0u16..).zip(filters) {
        if let Ok(filter) = Filter::parse(filter) {
            trie.insert(&filter, number, number);
            plain.insert(number, filter);
        }
    }
    assert_eq!(trie.len(), plain.len());
    let mut found = Matches::new();
    for topic in topics.iter().filter(|topic| validate_topic(topic).is_ok()) {
        found.clear();
        trie.matches(topic, &mut found);
        let mut from_trie: Vec<u16> = found.subscribers().iter().map(|&(key, _)| key).collect();
        for &group in found.groups() {
            let group = trie.group(group).expect("a group that was found exists");
            from_trie.extend(group.members().map(|(key, _)| key));
        }
        from_trie.sort_unstable();
        let naive: Vec<u16> = plain
            .iter()
            .filter(|(_, filter)| filter.matches(topic))
            .map(|(&number, _)| number)
            .collect();
        assert_eq!(from_trie, naive, "topic {topic:?}");
    }
    for (number, filter) in &plain {
        assert_eq!(trie.remove(filter, *number), Some(*number));
    }
    assert_eq!((trie.len(), trie.node_count()), (0, empty_node_count()));
}

/// Nodes of a trie without subscriptions.
fn empty_node_count() -> usize {
    SubscriptionTrie::<u16, u16>::with_seed(1).node_count()
}
