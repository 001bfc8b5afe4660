//! Topics and filters for property tests: few levels, so that they meet, and awkward ones.

use proptest::prelude::*;

/// Levels that sort around `/`, that are empty, that look like `$` or that outgrow inline storage.
const LEVELS: [&str; 10] =
    ["", "a", "b", "a-", "a0", "-", "$", "$a", "é", "a level too long to be stored inline"];

pub(crate) fn topic() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(&LEVELS[..]), 1..5)
        .prop_map(|levels| levels.join("/"))
        .prop_filter("a topic has a character", |topic| !topic.is_empty())
}

/// A filter without `$share`.
pub(crate) fn plain_filter() -> impl Strategy<Value = String> {
    let level = prop_oneof![
        3 => prop::sample::select(&LEVELS[..]),
        2 => Just("+"),
    ];
    (prop::collection::vec(level, 0..5), any::<bool>())
        .prop_map(|(mut levels, open)| {
            if open {
                levels.push("#");
            }
            levels.join("/")
        })
        .prop_filter("a filter has a character", |filter| !filter.is_empty())
}

/// A filter, shared or not.
pub(crate) fn filter() -> impl Strategy<Value = String> {
    let group = prop_oneof![
        3 => Just(""),
        1 => Just("$share/g/"),
        1 => Just("$share/h/"),
    ];
    (group, plain_filter()).prop_map(|(group, pattern)| format!("{group}{pattern}"))
}
