use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::strategies;

type Trie = SubscriptionTrie<u8, u16>;

/// What a trie should hold: the same subscriptions in the plainest container.
type Model = BTreeMap<(String, u8), u16>;

fn filter(text: &str) -> Filter<'_> {
    Filter::parse(text).unwrap()
}

fn trie_of(filters: &[&str]) -> Trie {
    let mut trie = Trie::new();
    for text in filters {
        trie.insert(&filter(text), 1, 0);
    }
    trie
}

fn found(trie: &Trie, topic: &str) -> Matches<u8, u16> {
    let mut matches = Matches::new();
    trie.matches(topic, &mut matches);
    matches
}

/// Group members by key: who joined first is history, which answers must not depend on.
fn group_members(trie: &Trie, matches: &Matches<u8, u16>) -> Vec<Vec<(u8, u16)>> {
    let sorted = |id: &GroupId| {
        let mut members: Vec<_> =
            trie.group(*id).unwrap().members().map(|(key, options)| (key, *options)).collect();
        members.sort_unstable();
        members
    };
    matches.groups().iter().map(sorted).collect()
}

fn rebuilt(model: &Model, seed: u64) -> Trie {
    let mut trie = Trie::with_seed(seed);
    for ((text, subscriber), options) in model {
        trie.insert(&filter(text), *subscriber, *options);
    }
    trie
}

/// Distinct beginnings of all patterns: the nodes a trie of them needs.
fn nodes_needed(model: &Model) -> usize {
    let mut beginnings = BTreeSet::new();
    for (text, _) in model.keys() {
        let mut path = Vec::new();
        for level in levels(filter(text).pattern) {
            path.push(level);
            beginnings.insert(path.clone());
        }
    }
    beginnings.len()
}

fn assert_matches_like_the_naive_matcher(trie: &Trie, model: &Model, topic: &str) {
    let mut plain = Vec::new();
    let mut groups: BTreeMap<(&str, &str), Vec<(u8, u16)>> = BTreeMap::new();
    for ((text, subscriber), options) in model {
        let filter = filter(text);
        match filter.share {
            _ if !filter.matches(topic) => {}
            None => plain.push((*subscriber, *options)),
            Some(name) => {
                groups.entry((name, filter.pattern)).or_default().push((*subscriber, *options));
            }
        }
    }
    let matches = found(trie, topic);
    let mut found_plain = matches.subscribers().to_vec();
    found_plain.sort_unstable();
    plain.sort_unstable();
    assert_eq!(found_plain, plain, "subscribers of {topic:?}");

    let mut found_groups = group_members(trie, &matches);
    found_groups.sort_unstable();
    let mut expected_groups: Vec<_> = groups.into_values().collect();
    expected_groups.sort_unstable();
    assert_eq!(found_groups, expected_groups, "groups of {topic:?}");
    assert!(matches.visited() <= trie.node_count() + 1, "a node was visited twice");
}

proptest! {
    // The one property behind most others: whatever was inserted, replaced and removed, the trie
    // answers like the naive matcher, in the order of a trie that never saw another subscription,
    // and keeps no node too many.
    // req: SUB-01
    // req: SUB-02
    // req: SUB-03
    // req: SUB-06
    #[test]
    fn trie_equals_naive_matcher_after_any_changes(
        pool in prop::collection::vec(strategies::filter(), 1..12),
        steps in prop::collection::vec(
            (any::<prop::sample::Index>(), 0_u8..5, any::<u16>(), 0_u8..5),
            1..80,
        ),
        topics in prop::collection::vec(strategies::topic(), 1..12),
    ) {
        let (mut trie, mut model) = (Trie::new(), Model::new());
        for (index, subscriber, options, step) in steps {
            let text = index.get(&pool);
            let key = (text.clone(), subscriber);
            let before = trie.generation();
            let stored = trie.get(&filter(text), subscriber).copied();
            prop_assert_eq!(stored, model.get(&key).copied());
            if step < 3 {
                prop_assert_eq!(trie.insert(&filter(text), subscriber, options), stored);
                model.insert(key, options);
                prop_assert!(trie.generation() > before);
            } else {
                prop_assert_eq!(trie.remove(&filter(text), subscriber), stored);
                model.remove(&key);
                prop_assert_eq!(trie.generation() > before, stored.is_some());
            }
            prop_assert_eq!(trie.len(), model.len());
            prop_assert_eq!(trie.node_count(), nodes_needed(&model));
        }
        let fresh = rebuilt(&model, 0x5eed);
        for topic in &topics {
            assert_matches_like_the_naive_matcher(&trie, &model, topic);
            let (worn, new) = (found(&trie, topic), found(&fresh, topic));
            prop_assert_eq!(worn.subscribers(), new.subscribers());
            prop_assert_eq!(group_members(&trie, &worn), group_members(&fresh, &new));
        }
        prop_assert_eq!(trie.group_count(), fresh.group_count());
        for (text, subscriber) in model.keys() {
            prop_assert!(trie.remove(&filter(text), *subscriber).is_some());
        }
        prop_assert_eq!((trie.node_count(), trie.len(), trie.group_count()), (0, 0, 0));
    }

    // req: SUB-08
    #[test]
    fn a_subscribers_matches_stand_together(
        subscriptions in prop::collection::btree_map(
            (strategies::plain_filter(), 0_u8..4),
            any::<u16>(),
            1..30,
        ),
        topic in strategies::topic(),
    ) {
        let trie = rebuilt(&subscriptions, 0);
        let mut matches = found(&trie, &topic);
        let in_filter_order = matches.subscribers().to_vec();
        let mut last = None;
        let mut total = 0;
        for run in matches.by_subscriber() {
            let subscriber = run[0].0;
            prop_assert!(last < Some(subscriber), "a subscriber came twice");
            last = Some(subscriber);
            let own: Vec<_> =
                in_filter_order.iter().copied().filter(|(key, _)| *key == subscriber).collect();
            prop_assert_eq!(run, &own[..]);
            total += run.len();
        }
        prop_assert_eq!(total, in_filter_order.len());
    }
}

#[test]
fn matches_come_in_the_documented_order() {
    let filters =
        ["+/+", "a/b", "#", "a/#", "+/b", "a/+", "+/#", "a/b/#", "+/b/#", "a/+/#", "+/+/#"];
    let expected =
        ["#", "a/#", "+/#", "a/b", "a/b/#", "a/+", "a/+/#", "+/b", "+/b/#", "+/+", "+/+/#"];
    let number = |text| expected.iter().position(|other| *other == text).unwrap() as u16;
    let mut trie = Trie::new();
    for text in filters {
        for subscriber in [9, 3, 5] {
            trie.insert(&filter(text), subscriber, number(text));
        }
    }
    let in_order: Vec<_> =
        (0..11).flat_map(|number| [3, 5, 9].map(|subscriber| (subscriber, number))).collect();
    assert_eq!(found(&trie, "a/b").subscribers(), in_order);
}

// req: SUB-06
#[test]
fn removing_a_filter_prunes_only_what_it_alone_needed() {
    let mut trie = trie_of(&["a/b/c/d", "a/b", "a/b/+/x", "$share/g/a/b/c/d/#"]);
    assert_eq!((trie.len(), trie.node_count()), (4, 7));
    assert_eq!(trie.remove(&filter("$share/g/a/b/c/d/#"), 1), Some(0));
    assert_eq!((trie.node_count(), trie.group_count()), (6, 0));
    assert_eq!(trie.remove(&filter("a/b/c/d"), 1), Some(0));
    assert_eq!(trie.node_count(), 4);
    assert_eq!(trie.remove(&filter("a/b"), 1), Some(0));
    assert_eq!(trie.node_count(), 4, "a/b/+/x still needs its parents");
    assert_eq!(trie.remove(&filter("a/b/+/x"), 1), Some(0));
    assert_eq!((trie.node_count(), trie.len()), (0, 0));
}

// req: SUB-06
#[test]
fn removing_what_is_not_there_changes_nothing() {
    let mut trie = trie_of(&["a/b", "$share/g/a"]);
    let generation = trie.generation();
    for text in ["a/b/c", "a", "+", "#", "$share/g/a/b", "$share/h/a"] {
        assert_eq!(trie.remove(&filter(text), 1), None, "{text}");
    }
    assert_eq!(trie.remove(&filter("a/b"), 2), None);
    assert_eq!(trie.remove(&filter("$share/g/a"), 2), None);
    assert_eq!((trie.generation(), trie.len(), trie.node_count()), (generation, 2, 2));
}

// req: SUB-03
//
#[test]
fn dollar_topics_are_reached_by_name_only() {
    let trie = trie_of(&["#", "+/x", "$SYS/#", "$SYS/+", "$share/g/#", "$share/g/$SYS/x"]);
    let matches = found(&trie, "$SYS/x");
    assert_eq!((matches.subscribers().len(), matches.groups().len()), (2, 1));
    let matches = found(&trie, "a/$SYS");
    assert_eq!((matches.subscribers().len(), matches.groups().len()), (1, 1));
}

#[test]
fn a_group_is_a_name_on_a_pattern() {
    let mut trie = Trie::new();
    for (text, subscriber) in
        [("$share/g/a", 1), ("$share/g/a", 2), ("$share/h/a", 1), ("$share/g/+", 3), ("a", 1)]
    {
        assert_eq!(trie.insert(&filter(text), subscriber, 7), None);
    }
    let matches = found(&trie, "a");
    assert_eq!(matches.subscribers(), [(1, 7)]);
    let expected = [vec![(1, 7), (2, 7)], vec![(1, 7)], vec![(3, 7)]];
    assert_eq!(group_members(&trie, &matches), expected);
    assert_eq!(trie.find_group(&filter("$share/g/a")), Some(matches.groups()[0]));
    assert_eq!(trie.find_group(&filter("$share/h/+")), None);
    assert_eq!(trie.find_group(&filter("a")), None);
    assert_eq!((trie.len(), trie.group_count()), (5, 3));
}

#[test]
fn serving_a_group_is_no_change_of_subscriptions() {
    let trie = trie_of(&["$share/g/a"]);
    let generation = trie.generation();
    let group = trie.group(found(&trie, "a").groups()[0]).unwrap();
    assert_eq!(group.next_round_robin(|_, _| false), Some((1, &0)));
    assert_eq!(trie.generation(), generation);
}

// req: SUB-01
#[test]
fn warm_buffers_are_used_again() {
    let mut trie = trie_of(&["a/+/c", "a/#", "#", "$share/g/a/b/c", "+/b/+"]);
    for subscriber in 0..100 {
        trie.insert(&filter("a/b/c"), subscriber, 0);
    }
    let mut matches = found(&trie, "a/b/c");
    let count = matches.subscribers().len();
    let buffers = |matches: &Matches<u8, u16>| {
        let rows = BTreeSet::from([matches.row.as_ptr(), matches.next_row.as_ptr()]);
        (matches.subscribers.as_ptr(), matches.groups.as_ptr(), rows)
    };
    let before = buffers(&matches);
    for topic in ["x", "a/b/c", "a/b/c/d/e", "$SYS", "a/b/c"] {
        trie.matches(topic, &mut matches);
    }
    assert_eq!((matches.subscribers().len(), matches.groups().len()), (count, 1));
    assert_eq!(buffers(&matches), before);
}

#[test]
fn a_match_does_not_grow_with_the_number_of_other_filters() {
    let visited = |count: u32| {
        let mut trie = SubscriptionTrie::new();
        for id in 0..count {
            trie.insert(&filter(&format!("device/{id}/state")), id, ());
        }
        let mut matches = Matches::new();
        trie.matches("device/3/state", &mut matches);
        assert_eq!(matches.subscribers(), [(3, ())]);
        matches.visited()
    };
    assert_eq!(visited(10), visited(20_000));
}

// hardening: wildcard-fans
#[test]
fn thousands_of_wildcard_filters_stay_cheap() {
    let mut trie = SubscriptionTrie::new();
    for id in 0..1_000_u32 {
        trie.insert(&filter(&format!("+/{id}/#")), id, ());
        trie.insert(&filter(&format!("+/+/{id}/+")), id, ());
    }
    let mut matches = Matches::new();
    trie.matches("a/7/9/x", &mut matches);
    assert_eq!(matches.subscribers(), [(7, ()), (9, ())]);
    assert!(matches.visited() <= 12, "{} of {} nodes", matches.visited(), trie.node_count());
}

// hardening: wildcard-fans
#[test]
fn a_fan_of_plus_filters_costs_each_node_once() {
    // All 4,096 filters of twelve levels `a` or `+`: every path of the trie matches.
    let mut trie = SubscriptionTrie::new();
    for choice in 0..1_u32 << 12 {
        let level = |place: u32| if choice >> place & 1 == 0 { "a" } else { "+" };
        let text = (0..12).map(level).collect::<Vec<_>>().join("/");
        trie.insert(&filter(&text), choice, ());
    }
    let topic = ["a"; 12].join("/");
    let mut matches = Matches::new();
    trie.matches(&topic, &mut matches);
    assert_eq!(matches.subscribers().len(), 1 << 12);
    assert_eq!(matches.visited(), trie.node_count() + 1);
}

/// Runs on a stack that any recursion per level would overflow.
fn on_a_small_stack(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(128 * 1024).spawn(work).unwrap().join().unwrap();
}

// hardening: deep-topics
#[test]
fn the_deepest_filters_need_no_stack() {
    on_a_small_stack(|| {
        let deep = "/".repeat(65_534);
        let topic = format!("{deep}a");
        let (literal, plus, hash) = (topic.clone(), format!("{deep}+"), format!("{deep}#"));
        let pluses = format!("{}+", "+/".repeat(32_767));
        let mut trie = Trie::new();
        for text in [&literal, &plus, &hash, &pluses] {
            trie.insert(&filter(text), 1, 0);
        }
        let matches = found(&trie, &topic);
        assert_eq!(matches.subscribers().len(), 3);
        assert!(matches.visited() <= trie.node_count() + 1);
        assert_eq!(found(&trie, &"/".repeat(32_767)).subscribers().len(), 1);
        for text in [&plus, &pluses, &hash, &literal] {
            assert_eq!(trie.remove(&filter(text), 1), Some(0));
        }
        assert_eq!(trie.node_count(), 0);
        trie.insert(&filter(&literal), 1, 0);
        drop(trie);
    });
}

#[test]
fn a_wide_flat_trie_costs_at_most_80_bytes_a_subscription() {
    // A session id and eight bytes of options; the worst case is a table just after doubling.
    let mut trie: SubscriptionTrie<u64, [u8; 8]> = SubscriptionTrie::new();
    for id in 0..60_000_u64 {
        trie.insert(&filter(&format!("{id:016x}")), id, [0; 8]);
        if id >= 20_000 && id % 1_000 == 0 {
            let share = trie.bytes() / trie.len();
            assert!(share <= 80, "{share} bytes each at {id}");
        }
    }
    assert_eq!(size_of::<Option<Node<u64, [u8; 8]>>>(), 64);
}

#[test]
fn an_emptied_trie_gives_its_memory_back_and_keeps_its_generation() {
    let mut trie = Trie::new();
    let empty = trie.bytes();
    let names: Vec<_> = (0..1_000).map(|id| format!("some/quite/long/topic/{id:0>30}")).collect();
    for name in &names {
        trie.insert(&filter(name), 1, 0);
    }
    assert!(trie.bytes() > empty + 30 * names.len());
    let generation = trie.generation();
    for name in &names {
        trie.remove(&filter(name), 1);
    }
    assert_eq!(trie.bytes(), empty);
    assert_eq!(trie.generation(), generation + names.len() as u64);
}
