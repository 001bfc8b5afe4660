//! Share groups: subscribers of one pattern of whom each message reaches exactly one.
//!
//! Rules. Members stand in the order in which they joined; one that subscribes again keeps its
//! place. Round robin serves the member at the cursor and moves the cursor behind it, so counts
//! differ by at most one while nobody is skipped (SUB-12). A hash names a place in the row, so a
//! key stays with its member while membership is unchanged (SUB-13). A member the caller cannot
//! serve now is passed over within the same call and loses its turn: the cursor moves behind the
//! one that was served, or the member after a stalled one would get a double share.
//!
//! The cursor is an atomic inside the group, not a counter of the caller's: several threads read
//! one trie through `&`, and counters of their own would each be even while their sum is not. For
//! a single thread it is a plain number that only moves by calls, so a deterministic state machine
//! can use it, store it ([`ShareGroup::cursor`]) and put it back ([`ShareGroup::set_cursor`]).
//!
//! Joining and leaving look through all members. Groups are pools of workers; the caller bounds
//! their size.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The members of one share name on one pattern.
#[derive(Debug)]
pub struct ShareGroup<K, V> {
    members: Vec<(K, V)>,
    /// Place of the member whose turn is next; below `members.len()` unless there are none.
    cursor: AtomicUsize,
}

impl<K: Copy + Ord, V> ShareGroup<K, V> {
    pub(crate) const fn new() -> Self {
        Self { members: Vec::new(), cursor: AtomicUsize::new(0) }
    }

    /// Adds a member behind all others, or replaces its options, which are returned.
    pub(crate) fn join(&mut self, subscriber: K, options: V) -> Option<V> {
        let member = self.members.iter_mut().find(|(key, _)| *key == subscriber);
        if let Some((_, stored)) = member {
            return Some(std::mem::replace(stored, options));
        }
        self.members.push((subscriber, options));
        None
    }

    /// Removes a member; whose turn it is stays as it was.
    pub(crate) fn leave(&mut self, subscriber: K) -> Option<V> {
        let place = self.members.iter().position(|(key, _)| *key == subscriber)?;
        let (_, options) = self.members.remove(place);
        let cursor = self.cursor.get_mut();
        if place < *cursor {
            *cursor -= 1;
        } else if *cursor == self.members.len() {
            *cursor = 0;
        }
        Some(options)
    }

    /// The member whose turn it is among those `skip` lets pass; `None` if it lets nobody pass.
    pub fn next_round_robin(&self, mut skip: impl FnMut(K, &V) -> bool) -> Option<(K, &V)> {
        let mut turn = self.cursor.load(Ordering::Relaxed);
        loop {
            let place = self.first_from(turn, &mut skip)?;
            let after = (place + 1) % self.members.len();
            // Relaxed: the number guards nothing but itself. Who loses the race asks again from
            // where the winner left the cursor, so no two threads take the same turn.
            let moved =
                self.cursor.compare_exchange(turn, after, Ordering::Relaxed, Ordering::Relaxed);
            match moved {
                Ok(_) => return self.member(place),
                Err(current) => turn = current,
            }
        }
    }

    /// The member a key's hash points at, or the next in the row whom `skip` lets pass.
    pub fn pick_by_hash(&self, hash: u64, mut skip: impl FnMut(K, &V) -> bool) -> Option<(K, &V)> {
        let start = hash.checked_rem(self.members.len() as u64)?;
        let place = self.first_from(start as usize, &mut skip)?;
        self.member(place)
    }

    /// The member behind `subscriber` in the row whom `skip` lets pass, all round but not itself.
    pub fn next_after(
        &self,
        subscriber: K,
        mut skip: impl FnMut(K, &V) -> bool,
    ) -> Option<(K, &V)> {
        let place = self.members.iter().position(|(key, _)| *key == subscriber);
        let start = place.map_or(0, |place| place + 1);
        let mut skip_itself = |key: K, options: &V| key == subscriber || skip(key, options);
        self.member(self.first_from(start, &mut skip_itself)?)
    }

    /// Members in the order in which they joined.
    pub fn members(&self) -> impl ExactSizeIterator<Item = (K, &V)> {
        self.members.iter().map(|(key, options)| (*key, options))
    }

    /// The options of one member.
    pub fn get(&self, subscriber: K) -> Option<&V> {
        self.members.iter().find(|(key, _)| *key == subscriber).map(|(_, options)| options)
    }

    /// How many members there are; at least one while the trie holds the group.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether nobody is left.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The place, in joining order, of the member whose turn is next.
    pub fn cursor(&self) -> usize {
        self.cursor.load(Ordering::Relaxed)
    }

    /// Puts back a cursor that was stored with the members. A place nobody has means the first.
    pub fn set_cursor(&self, place: usize) {
        let place = if place < self.members.len() { place } else { 0 };
        self.cursor.store(place, Ordering::Relaxed);
    }

    fn first_from(&self, start: usize, skip: &mut impl FnMut(K, &V) -> bool) -> Option<usize> {
        let count = self.members.len();
        (start..count).chain(0..start.min(count)).find(|&place| {
            let (key, options) = &self.members[place];
            !skip(*key, options)
        })
    }

    fn member(&self, place: usize) -> Option<(K, &V)> {
        self.members.get(place).map(|(key, options)| (*key, options))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn group(members: impl IntoIterator<Item = u8>) -> ShareGroup<u8, ()> {
        let mut group = ShareGroup::new();
        for member in members {
            group.join(member, ());
        }
        group
    }

    fn turns(group: &ShareGroup<u8, ()>, count: usize) -> Vec<u8> {
        (0..count).map(|_| group.next_round_robin(|_, ()| false).unwrap().0).collect()
    }

    #[test]
    fn members_are_served_in_the_order_they_joined() {
        let group = group([7, 3, 5]);
        assert_eq!(turns(&group, 7), [7, 3, 5, 7, 3, 5, 7]);
        assert_eq!(group.members().map(|(key, ())| key).collect::<Vec<_>>(), [7, 3, 5]);
    }

    #[test]
    fn subscribing_again_replaces_options_and_keeps_the_place() {
        let mut group = ShareGroup::new();
        assert_eq!(group.join(1, "old"), None);
        assert_eq!(group.join(2, "two"), None);
        assert_eq!(group.next_round_robin(|_, _| false), Some((1, &"old")));
        assert_eq!(group.join(1, "new"), Some("old"));
        assert_eq!(group.members().collect::<Vec<_>>(), [(1, &"new"), (2, &"two")]);
        assert_eq!((group.cursor(), group.get(1), group.get(9)), (1, Some(&"new"), None));
    }

    #[test]
    fn a_skipped_member_loses_its_turn_and_nobody_gets_it_twice() {
        let group = group([0, 1, 2, 3]);
        let served: Vec<_> =
            (0..6).map(|_| group.next_round_robin(|key, ()| key == 1).unwrap().0).collect();
        assert_eq!(served, [0, 2, 3, 0, 2, 3]);
        assert_eq!(group.next_round_robin(|_, ()| true), None);
        assert_eq!(group.cursor(), 0, "a round without a taker moves nothing");
    }

    #[test]
    fn who_comes_after_a_member_is_asked_all_round() {
        let group = group([4, 1, 7]);
        let after = |key| group.next_after(key, |_, ()| false).map(|(key, ())| key);
        assert_eq!([after(4), after(1), after(7)], [Some(1), Some(7), Some(4)]);
        assert_eq!(group.next_after(1, |key, ()| key == 7).map(|(key, ())| key), Some(4));
        assert_eq!(group.next_after(1, |_, ()| true), None, "never itself");
        assert_eq!(after(9), Some(4), "who has left stood nowhere");
        assert_eq!(group.cursor(), 0, "nobody loses a turn");
    }

    #[test]
    fn an_empty_group_serves_nobody() {
        let group = group([]);
        assert!(group.is_empty());
        assert_eq!(group.next_round_robin(|_, ()| false), None);
        assert_eq!(group.pick_by_hash(9, |_, ()| false), None);
    }

    #[test]
    fn a_stored_cursor_continues_where_it_was() {
        let original = group([1, 2, 3]);
        turns(&original, 2);
        let restored = group([1, 2, 3]);
        restored.set_cursor(original.cursor());
        assert_eq!(turns(&restored, 4), turns(&original, 4));
        restored.set_cursor(99);
        assert_eq!(turns(&restored, 1), [1]);
    }

    // What two threads do to each other, without the threads: the rival takes its turn while the
    // first is still asking whom to skip.
    // req: SUB-12
    #[test]
    fn a_turn_lost_to_a_rival_is_not_taken_twice() {
        let group = group([0, 1, 2]);
        let mut rival = None;
        let served = group.next_round_robin(|_, ()| {
            if rival.is_none() {
                rival = group.next_round_robin(|_, ()| false);
            }
            false
        });
        assert_eq!((rival, served), (Some((0, &())), Some((1, &()))));
        assert_eq!(turns(&group, 2), [2, 0]);
    }

    proptest! {
        // req: SUB-12
        #[test]
        fn round_robin_counts_stay_within_one(
            count in 1_u8..40,
            start in 0_usize..80,
            messages in 0_usize..500,
        ) {
            let group = group(0..count);
            group.set_cursor(start);
            let mut counts = vec![0_usize; usize::from(count)];
            for member in turns(&group, messages) {
                counts[usize::from(member)] += 1;
            }
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            prop_assert!(most - least <= 1, "{counts:?}");
        }

        // After any joins and leaves, whoever stayed keeps the relative order of turns: one full
        // round serves each remaining member exactly once.
        // req: SUB-12
        #[test]
        fn a_round_serves_everybody_once_after_any_changes(
            steps in prop::collection::vec((0_u8..10, 0_u8..3), 1..60)
        ) {
            let mut group = group([]);
            for (member, step) in steps {
                match step {
                    0 => drop(group.join(member, ())),
                    1 => drop(group.leave(member)),
                    _ => drop(group.next_round_robin(|_, ()| false)),
                }
            }
            let mut round = turns(&group, group.len());
            round.sort_unstable();
            let mut members: Vec<_> = group.members().map(|(key, ())| key).collect();
            members.sort_unstable();
            prop_assert_eq!(round, members);
        }

        // A member that leaves does not move the turn away from the one whose turn it is.
        #[test]
        fn leaving_keeps_the_turn(count in 2_u8..12, served in 0_usize..30, gone in 0_u8..12) {
            let mut group = group(0..count);
            turns(&group, served);
            let next = (served % usize::from(count)) as u8;
            let gone = gone % count;
            group.leave(gone);
            let expected = if gone == next { (next + 1) % count } else { next };
            prop_assert_eq!(turns(&group, 1), [expected]);
        }

        // req: SUB-13
        #[test]
        fn a_key_stays_with_its_member(
            members in prop::collection::btree_set(any::<u8>(), 1..20),
            hashes in prop::collection::vec(any::<u64>(), 1..50),
            slow in any::<u8>(),
        ) {
            let group = group(members.iter().copied());
            let pick = |hash| group.pick_by_hash(hash, |_, ()| false).unwrap().0;
            let first: Vec<_> = hashes.iter().map(|&hash| pick(hash)).collect();
            turns(&group, 5);
            let again: Vec<_> = hashes.iter().map(|&hash| pick(hash)).collect();
            prop_assert_eq!(&first, &again);
            for (&hash, &member) in hashes.iter().zip(&first) {
                let other = group.pick_by_hash(hash, |key, ()| key == slow).map(|(key, ())| key);
                if member == slow {
                    prop_assert_ne!(other, Some(slow));
                    prop_assert_eq!(other.is_none(), members.len() == 1);
                } else {
                    prop_assert_eq!(other, Some(member));
                }
            }
        }

        // req: SUB-13
        #[test]
        fn hashes_reach_every_member(count in 1_u8..30) {
            let group = group(0..count);
            let reached: std::collections::BTreeSet<_> = (0..u64::from(count))
                .map(|hash| group.pick_by_hash(hash, |_, ()| false).unwrap().0)
                .collect();
            prop_assert_eq!(reached.len(), usize::from(count));
        }
    }
}
