//! Copy on first write: records as they were when a checkpoint began.
//!
//! A table of the state (sessions, share groups, retained messages) is handed out in the order of
//! its keys. A record that is about to change and has not been handed out yet is copied here first;
//! handing out then takes the copy instead of the live record. So what is handed out is the state
//! of the beginning, whatever has happened since, and nothing is ever copied twice.
//!
//! What an apply pays: for each record it changes, at most one look-up, and the first time one copy
//! of that record. Copies share their large parts (`backlog.rs` says how), so none is larger than a
//! window, whatever the record has grown to.

use std::collections::BTreeMap;
use std::ops::Bound;

/// The next record of a table that is being handed out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<V> {
    /// It has changed since: this is what it was.
    Copied(V),
    /// It stands in the table as it was, under this key.
    Live(String),
    /// There is no other.
    End,
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Copies<V> {
    is_running: bool,
    /// The last key that was handed out.
    passed: Option<String>,
    /// Behind `passed`: what was there when the checkpoint began, `None` for nothing.
    kept: BTreeMap<Box<str>, Option<V>>,
}

impl<V> Default for Copies<V> {
    fn default() -> Self {
        Self { is_running: false, passed: None, kept: BTreeMap::new() }
    }
}

impl<V> Copies<V> {
    /// From here on changes are announced to `keep`.
    pub(crate) fn begin(&mut self) {
        *self = Self { is_running: true, ..Self::default() };
    }

    /// Nothing is handed out any more.
    pub(crate) fn end(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn is_running(&self) -> bool {
        self.is_running
    }

    /// A record is about to be made, changed or removed; `record` says what it is now.
    pub(crate) fn keep(&mut self, key: &str, record: impl FnOnce() -> Option<V>) {
        let is_ahead = || self.passed.as_deref().is_none_or(|passed| key > passed);
        if self.is_running && is_ahead() && !self.kept.contains_key(key) {
            self.kept.insert(key.into(), record());
        }
    }

    /// Where what has not been handed out begins.
    pub(crate) fn ahead(&self) -> Bound<&str> {
        self.passed.as_deref().map_or(Bound::Unbounded, Bound::Excluded)
    }

    /// Whether a key's record was copied.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.kept.contains_key(key)
    }

    /// Hands out one record. `first_live` names the first key of the table within bounds.
    ///
    /// Records that did not exist at the beginning are passed over here; that costs less than
    /// making them has cost.
    pub(crate) fn take_next<'a>(
        &mut self,
        first_live: impl Fn(Bound<&str>) -> Option<&'a str>,
    ) -> Next<V> {
        loop {
            let live = first_live(self.ahead());
            let is_kept_first = match (self.kept.first_key_value(), live) {
                (None, None) => {
                    self.end();
                    return Next::End;
                }
                (Some((kept, _)), Some(live)) => **kept <= *live,
                (kept, _) => kept.is_some(),
            };
            if !is_kept_first {
                let key = live.unwrap_or_default();
                self.passed = Some(key.to_owned());
                return Next::Live(key.to_owned());
            }
            if let Some((key, record)) = self.kept.pop_first() {
                self.passed = Some(key.into());
                if let Some(record) = record {
                    return Next::Copied(record);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::Bound;

    use proptest::prelude::*;

    use super::{Copies, Next};

    type Table = BTreeMap<String, u8>;

    fn take(copies: &mut Copies<u8>, table: &Table) -> Option<(Option<String>, u8)> {
        let first = |from: Bound<&str>| {
            let mut ahead = table.range::<str, _>((from, Bound::Unbounded));
            ahead.next().map(|(key, _)| key.as_str())
        };
        match copies.take_next(first) {
            Next::Copied(value) => Some((None, value)),
            Next::Live(key) => {
                let value = table[&key];
                Some((Some(key), value))
            }
            Next::End => None,
        }
    }

    #[test]
    fn outside_a_checkpoint_nothing_is_copied() {
        let mut copies = Copies::default();
        copies.keep("a", || -> Option<u8> { panic!("nobody asked") });
        assert!(!copies.is_running());
    }

    proptest! {
        // Writes and removals at any moment: what is handed out is what was there at the beginning.
        #[test]
        fn what_is_handed_out_is_the_state_of_the_beginning(
            before in prop::collection::btree_map("[a-e]{0,2}", any::<u8>(), 0..12),
            steps in prop::collection::vec(
                ("[a-e]{0,2}", prop::option::of(any::<u8>()), any::<bool>()), 0..40),
        ) {
            let mut table: Table = before.clone();
            let mut copies = Copies::default();
            copies.begin();
            let mut handed_out = Vec::new();
            let mut is_over = false;
            for (key, value, takes) in steps {
                copies.keep(&key, || table.get(&key).copied());
                match value {
                    Some(value) => table.insert(key, value),
                    None => table.remove(&key),
                };
                if takes && !is_over {
                    match take(&mut copies, &table) {
                        Some((_, value)) => handed_out.push(value),
                        None => is_over = true,
                    }
                }
            }
            while !is_over {
                match take(&mut copies, &table) {
                    Some((_, value)) => handed_out.push(value),
                    None => is_over = true,
                }
            }
            prop_assert_eq!(handed_out, before.values().copied().collect::<Vec<_>>());
            prop_assert!(!copies.is_running());
        }
    }
}
