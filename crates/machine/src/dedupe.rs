//! Keys of accepted publishes: what comes again under its key is acknowledged and not published.
//!
//! Rules:
//! - A key belongs to who published under it: the tenant, by this being the state of one of its
//!   partitions, and the identity. Clients nobody vouched for are one identity, the empty one.
//! - A key is remembered in the command that publishes the message, hence in the same atomic step
//!   of the log. A publish that was refused leaves no key behind.
//! - It counts for [`DEDUPE_HORIZON_MS`] from the time of its entry, and a repeat does not prolong
//!   that. Of more than [`DEDUPE_KEYS_MAX`] keys the oldest is forgotten, whatever its age.
//! - The order is that of commitment: times never go back, so a queue is the whole order, and every
//!   replica forgets the same key at the same command.
//!
//! Forgetting is bounded per command, so a day's keys do not fall due at once; a key whose time is
//! over does not count, whether it was swept or not.
//!
//! What a checkpoint needs from before it began and has since been forgotten is kept aside until
//! it was handed out, as in `copies.rs`; keys that came later lie behind its end.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::command::DedupeKey;

/// How long a key counts.
pub const DEDUPE_HORIZON_MS: u64 = 24 * 60 * 60 * 1000;
/// Keys a partition remembers, over all identities.
pub const DEDUPE_KEYS_MAX: usize = 1_000_000;
/// No key is longer; a publish with a longer one never becomes a command.
pub const DEDUPE_KEY_BYTES_MAX: usize = 256;
/// Keys that one command sweeps away because their time is over.
const SWEPT_MAX: usize = 64;

/// A key as it is remembered: identity, NUL, key. A key holds no NUL, so this reads one way only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) at_ms: u64,
    name: Arc<str>,
}

impl Accepted {
    pub(crate) fn new(at_ms: u64, key: DedupeKey<'_>) -> Self {
        Self { at_ms, name: name_of(key).into() }
    }

    pub(crate) fn key(&self) -> DedupeKey<'_> {
        let (identity, key) = self.name.rsplit_once('\0').unwrap_or(("", &self.name));
        DedupeKey { identity, key }
    }

    fn is_over(&self, now_ms: u64) -> bool {
        is_over(self.at_ms, now_ms)
    }
}

fn is_over(at_ms: u64, now_ms: u64) -> bool {
    at_ms.saturating_add(DEDUPE_HORIZON_MS) <= now_ms
}

fn name_of(key: DedupeKey<'_>) -> String {
    [key.identity, "\0", key.key].concat()
}

/// A checkpoint on its way: the keys numbered `next` to `end` are still to be handed out.
#[derive(Debug)]
struct Copying {
    next: u64,
    end: u64,
    /// Those of them that were forgotten meanwhile; they are the first.
    kept: VecDeque<Accepted>,
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Dedupe {
    keys_max: usize,
    /// When each key was accepted last.
    times: BTreeMap<Arc<str>, u64>,
    /// Every acceptance, oldest first; a key whose time was over may stand here twice.
    order: VecDeque<Accepted>,
    /// How many were forgotten: the number of the first in `order`.
    forgotten: u64,
    copying: Option<Copying>,
}

impl Default for Dedupe {
    fn default() -> Self {
        Self::with_room_for(DEDUPE_KEYS_MAX)
    }
}

impl Dedupe {
    fn with_room_for(keys_max: usize) -> Self {
        Self {
            keys_max,
            times: BTreeMap::new(),
            order: VecDeque::new(),
            forgotten: 0,
            copying: None,
        }
    }

    /// Whether a publish under this key was accepted and its time is not over.
    pub(crate) fn is_known(&self, key: DedupeKey<'_>, now_ms: u64) -> bool {
        !self.times.is_empty()
            && self.times.get(&*name_of(key)).is_some_and(|&at_ms| !is_over(at_ms, now_ms))
    }

    /// Remembers a key; true when another had to go before its time.
    pub(crate) fn remember(&mut self, key: DedupeKey<'_>, now_ms: u64) -> bool {
        self.sweep(now_ms);
        let is_full = self.order.len() >= self.keys_max;
        let was_pressed_out = is_full && self.forget_first().is_some_and(|it| !it.is_over(now_ms));
        self.push(Accepted::new(now_ms, key));
        was_pressed_out
    }

    /// Forgets some of those whose time is over.
    pub(crate) fn sweep(&mut self, now_ms: u64) {
        for _ in 0..SWEPT_MAX {
            if !self.order.front().is_some_and(|first| first.is_over(now_ms)) {
                break;
            }
            self.forget_first();
        }
    }

    /// Puts a key behind all others, as a checkpoint brings it: false if it can never have stood
    /// there.
    pub(crate) fn restore(&mut self, accepted: Accepted) -> bool {
        let is_in_order = self.order.back().is_none_or(|last| last.at_ms <= accepted.at_ms);
        let earlier = self.times.get(&accepted.name);
        let is_repeat = earlier.is_some_and(|&at_ms| !is_over(at_ms, accepted.at_ms));
        let fits = is_in_order && !is_repeat && self.order.len() < self.keys_max;
        if fits {
            self.push(accepted);
        }
        fits
    }

    fn push(&mut self, accepted: Accepted) {
        self.times.insert(accepted.name.clone(), accepted.at_ms);
        self.order.push_back(accepted);
    }

    fn forget_first(&mut self) -> Option<Accepted> {
        let first = self.order.pop_front()?;
        if self.times.get(&first.name) == Some(&first.at_ms) {
            self.times.remove(&first.name);
        }
        if let Some(copying) = &mut self.copying
            && (copying.next..copying.end).contains(&self.forgotten)
        {
            copying.kept.push_back(first.clone());
        }
        self.forgotten += 1;
        Some(first)
    }

    /// A checkpoint begins, or ends early.
    pub(crate) fn set_copying(&mut self, is_copying: bool) {
        let end = self.forgotten + self.order.len() as u64;
        let copying = Copying { next: self.forgotten, end, kept: VecDeque::new() };
        self.copying = is_copying.then_some(copying);
    }

    /// The next key, in order, as it was when the checkpoint began.
    pub(crate) fn take_copy(&mut self) -> Option<Accepted> {
        let copying = self.copying.as_mut().filter(|copying| copying.next < copying.end);
        let Some(copying) = copying else {
            self.copying = None;
            return None;
        };
        let place = copying.next.checked_sub(self.forgotten);
        copying.next += 1;
        match place {
            Some(place) => self.order.get(usize::try_from(place).ok()?).cloned(),
            None => copying.kept.pop_front(),
        }
    }

    /// All of them, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Accepted> {
        self.order.iter()
    }

    /// How many are remembered.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// What must be true between any two commands.
    pub(crate) fn is_sound(&self, now_ms: u64) -> bool {
        let in_order = self.order.iter().zip(self.order.iter().skip(1));
        self.order.len() <= self.keys_max
            && self.times.len() <= self.order.len()
            && self.order.back().is_none_or(|last| last.at_ms <= now_ms)
            && in_order.into_iter().all(|(earlier, later)| earlier.at_ms <= later.at_ms)
            && self.order.iter().all(|it| self.times.get(&it.name) >= Some(&it.at_ms))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::{Accepted, DEDUPE_HORIZON_MS, Dedupe, SWEPT_MAX};
    use crate::command::DedupeKey;

    const KEYS_MAX: usize = 5;
    const NAMES: [&str; 4] = ["k", "l", "mm", "a/k"];

    fn key(number: usize) -> DedupeKey<'static> {
        let identity = if number.is_multiple_of(2) { "" } else { "ada" };
        DedupeKey { identity, key: NAMES[number / 2] }
    }

    proptest! {
        // The naive table: a list of (key, time), searched from the end.
        #[test]
        fn it_knows_what_a_list_of_the_last_accepted_would_know(
            steps in proptest::collection::vec(
                (0..8_usize, prop_oneof![3 => Just(0_u64), 1 => 1..=DEDUPE_HORIZON_MS]), 1..80),
            begin in any::<prop::sample::Index>(),
            pace in proptest::collection::vec(0..2_usize, 80),
        ) {
            let mut dedupe = Dedupe::with_room_for(KEYS_MAX);
            let mut list: VecDeque<(usize, u64)> = VecDeque::new();
            let mut now_ms = 7;
            let begin = begin.index(steps.len());
            let (mut expected, mut taken) = (Vec::new(), Vec::new());
            for (step, ((number, later_ms), takes)) in steps.into_iter().zip(pace).enumerate() {
                if step == begin {
                    dedupe.set_copying(true);
                    expected = dedupe.iter().cloned().collect();
                }
                now_ms += later_ms;
                list.retain(|(_, at_ms)| at_ms + DEDUPE_HORIZON_MS > now_ms);
                let is_known = list.iter().any(|(known, _)| *known == number);
                prop_assert_eq!(dedupe.is_known(key(number), now_ms), is_known);
                if !is_known {
                    let is_full = list.len() == KEYS_MAX;
                    prop_assert_eq!(dedupe.remember(key(number), now_ms), is_full);
                    if is_full {
                        list.pop_front();
                    }
                    list.push_back((number, now_ms));
                }
                prop_assert!(dedupe.is_sound(now_ms));
                for _ in 0..takes {
                    taken.extend(dedupe.take_copy());
                }
            }
            taken.extend(std::iter::from_fn(|| dedupe.take_copy()));
            prop_assert_eq!(taken, expected, "what was there when the checkpoint began");
        }
    }

    #[test]
    fn a_day_of_keys_is_swept_in_steps_and_counts_for_nothing_meanwhile() {
        let mut dedupe = Dedupe::default();
        let names: Vec<String> = (0..3 * SWEPT_MAX).map(|number| number.to_string()).collect();
        let keys = names.iter().map(|name| DedupeKey { identity: "", key: name });
        keys.clone().for_each(|key| assert!(!dedupe.remember(key, 1)));
        let later_ms = 1 + DEDUPE_HORIZON_MS;
        assert!(keys.clone().all(|key| dedupe.is_known(key, later_ms - 1)));
        assert!(!keys.clone().any(|key| dedupe.is_known(key, later_ms)));
        dedupe.sweep(later_ms);
        assert_eq!(dedupe.len(), 2 * SWEPT_MAX);
        // One that is still in the queue with its old time comes again, and outlives that.
        let last = DedupeKey { identity: "", key: &names[names.len() - 1] };
        dedupe.remember(last, later_ms);
        dedupe.sweep(later_ms);
        assert_eq!(dedupe.len(), 1);
        assert!(dedupe.is_known(last, later_ms) && dedupe.is_sound(later_ms));
    }

    #[test]
    fn identity_and_key_do_not_run_into_each_other() {
        let mut dedupe = Dedupe::default();
        dedupe.remember(DedupeKey { identity: "ab", key: "c" }, 1);
        assert!(!dedupe.is_known(DedupeKey { identity: "a", key: "bc" }, 1));
        // No identity a client can prove holds a NUL; if one did, it would be read back whole.
        let accepted = Accepted::new(1, DedupeKey { identity: "a\0b", key: "c" });
        assert_eq!(accepted.key(), DedupeKey { identity: "a\0b", key: "c" });
    }
}
