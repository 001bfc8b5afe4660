//! Credentials that were checked before, so that a client that returns is not checked again.
//!
//! Theory of operation. Checking a password is slow on purpose; ten thousand clients that return
//! after a restart of their network would wait for minutes. So every *good* verdict that Python
//! allows to be remembered is kept here: not name and password, but a hash of both under keys that
//! were drawn when the process started and never leave it. It takes both halves of two keyed
//! 64-bit hashes to match, and nobody outside can compute either.
//!
//! Rules: only good verdicts are kept; the number is bounded and the oldest goes first; new users
//! or passwords drop everything. A verdict that was asked for before such a drop is not kept after
//! it: it carries the epoch of its question.

use std::collections::hash_map::RandomState;
use std::collections::{HashSet, VecDeque};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::limits::VERDICTS_MAX;

const PARTS: usize = 16;

/// The hash of a name and a password, and when it was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Credential {
    hash: u128,
    epoch: u64,
}

#[derive(Debug, Default)]
struct Part {
    epoch: u64,
    good: HashSet<u128>,
    /// Oldest first.
    order: VecDeque<u128>,
}

#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    keys: [RandomState; 2],
    epoch: AtomicU64,
    parts: [Mutex<Part>; PARTS],
}

impl Verdicts {
    /// What these two are known by.
    pub(crate) fn credential(&self, user_name: &str, password: &[u8]) -> Credential {
        let half = |key: &RandomState| {
            // Both hash their length, so no name and password run together with others.
            u128::from(key.hash_one((user_name.as_bytes(), password)))
        };
        let hash = half(&self.keys[0]) << 64 | half(&self.keys[1]);
        Credential { hash, epoch: self.epoch.load(Ordering::Acquire) }
    }

    fn part(&self, credential: Credential) -> &Mutex<Part> {
        &self.parts[credential.hash as usize % PARTS]
    }

    /// Whether they were good before.
    pub(crate) fn is_good(&self, credential: Credential) -> bool {
        let part = self.part(credential).lock();
        part.epoch == credential.epoch && part.good.contains(&credential.hash)
    }

    /// They are good; remember it unless everything was forgotten since the question.
    pub(crate) fn remember(&self, credential: Credential) {
        let mut part = self.part(credential).lock();
        if part.epoch != credential.epoch || !part.good.insert(credential.hash) {
            return;
        }
        part.order.push_back(credential.hash);
        if part.order.len() > VERDICTS_MAX / PARTS
            && let Some(oldest) = part.order.pop_front()
        {
            part.good.remove(&oldest);
        }
    }

    /// Users or passwords have changed.
    pub(crate) fn forget_all(&self) {
        let epoch = self.epoch.fetch_add(1, Ordering::AcqRel) + 1;
        for part in &self.parts {
            *part.lock() = Part { epoch, ..Part::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_same_credentials_are_known() {
        let verdicts = Verdicts::default();
        verdicts.remember(verdicts.credential("ada", b"secret"));
        assert!(verdicts.is_good(verdicts.credential("ada", b"secret")));
        for (name, password) in [("ada", &b"Secret"[..]), ("Ada", b"secret"), ("adas", b"ecret")] {
            assert!(!verdicts.is_good(verdicts.credential(name, password)), "{name}");
        }
    }

    #[test]
    fn what_was_asked_before_a_change_is_not_kept_after_it() {
        let verdicts = Verdicts::default();
        let early = verdicts.credential("ada", b"secret");
        verdicts.remember(early);
        verdicts.forget_all();
        assert!(!verdicts.is_good(early));
        assert!(!verdicts.is_good(verdicts.credential("ada", b"secret")));
        verdicts.remember(early);
        assert!(!verdicts.is_good(verdicts.credential("ada", b"secret")));
        verdicts.remember(verdicts.credential("ada", b"secret"));
        assert!(verdicts.is_good(verdicts.credential("ada", b"secret")));
    }

    #[test]
    fn the_number_is_bounded_and_the_newest_stay() {
        let verdicts = Verdicts::default();
        let numbered = |number: usize| verdicts.credential("ada", &number.to_le_bytes());
        let count = VERDICTS_MAX + VERDICTS_MAX / 4;
        (0..count).for_each(|number| verdicts.remember(numbered(number)));
        let kept = verdicts.parts.iter().map(|part| part.lock().good.len()).sum::<usize>();
        assert!(kept <= VERDICTS_MAX, "{kept}");
        assert!(verdicts.is_good(numbered(count - 1)));
        assert!(!verdicts.is_good(numbered(0)));
    }
}
