//! Judges the messages of one stream at one subscriber: lost, twice, or too late.
//!
//! The usual message is the expected next one and costs one comparison. Everything else goes the
//! long way: a jump forward opens a *gap*; a number inside a gap closes that part of it and counts
//! as out of order; any other old number is a duplicate. What is still open at the end is lost.
//!
//! Gaps are kept as ranges, oldest first, [`GAPS_MAX`] at most. When more are needed the oldest is
//! given up for lost, and should it arrive after all it counts as a duplicate: a run that bad has
//! failed either way, and memory stays bounded.

use std::ops::Range;

/// The most gaps remembered per stream and subscriber.
const GAPS_MAX: usize = 1024;

/// What one message meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The expected one, or one after a new gap.
    Next,
    /// Missed before and here now, behind messages that were sent after it.
    Late,
    /// Seen before.
    Duplicate,
}

/// What one subscriber has seen of one stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct SequenceCheck {
    next: u64,
    gaps: Vec<Range<u64>>,
    given_up: u64,
}

impl SequenceCheck {
    /// Takes note of a message.
    #[inline]
    pub(crate) fn observe(&mut self, sequence: u64) -> Verdict {
        if sequence == self.next {
            self.next = self.next.saturating_add(1);
            return Verdict::Next;
        }
        self.observe_unexpected(sequence)
    }

    #[cold]
    fn observe_unexpected(&mut self, sequence: u64) -> Verdict {
        if sequence > self.next {
            if self.gaps.len() == GAPS_MAX {
                let oldest = self.gaps.remove(0);
                self.given_up += oldest.end - oldest.start;
            }
            self.gaps.push(self.next..sequence);
            self.next = sequence.saturating_add(1);
            return Verdict::Next;
        }
        let found = self.gaps.binary_search_by(|gap| {
            if gap.end <= sequence {
                std::cmp::Ordering::Less
            } else if gap.start > sequence {
                std::cmp::Ordering::Greater
            } else {
                std::cmp::Ordering::Equal
            }
        });
        match found {
            Ok(index) => {
                self.close_in(index, sequence);
                Verdict::Late
            }
            Err(_) => Verdict::Duplicate,
        }
    }

    fn close_in(&mut self, index: usize, sequence: u64) {
        let Range { start, end } = self.gaps[index].clone();
        let rests = [start..sequence, sequence + 1..end];
        self.gaps.splice(index..=index, rests.into_iter().filter(|rest| !rest.is_empty()));
    }

    /// How many of the first `sent` messages never came.
    pub(crate) fn lost(&self, sent: u64) -> u64 {
        let open: u64 = self.gaps.iter().map(|gap| gap.end - gap.start).sum();
        self.given_up + open + sent.saturating_sub(self.next)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_clean_stream_has_nothing_to_say() {
        let mut check = SequenceCheck::default();
        assert!((0..100).all(|sequence| check.observe(sequence) == Verdict::Next));
        assert_eq!(check.lost(100), 0);
        assert_eq!(check.lost(103), 3, "the tail never came");
    }

    #[test]
    fn a_straggler_is_late_once_and_then_a_duplicate() {
        use Verdict::{Duplicate, Late, Next};

        let mut check = SequenceCheck::default();
        let verdicts: Vec<_> =
            [0, 3, 1, 1, 4, 2, 0].iter().map(|&sequence| check.observe(sequence)).collect();
        assert_eq!(verdicts, [Next, Next, Late, Duplicate, Next, Late, Duplicate]);
        assert_eq!(check.lost(5), 0);
    }

    #[test]
    fn gaps_beyond_the_bound_are_given_up_but_still_counted() {
        let mut check = SequenceCheck::default();
        let gaps = GAPS_MAX as u64 + 10;
        for gap in 0..gaps {
            check.observe(2 * gap + 1);
        }
        assert_eq!(check.gaps.len(), GAPS_MAX);
        assert_eq!(check.lost(2 * gaps), gaps);
        assert_eq!(check.observe(0), Verdict::Duplicate, "given up for lost");
        assert_eq!(check.observe(2 * gaps - 2), Verdict::Late);
    }

    proptest! {
        #[test]
        fn the_ranges_agree_with_a_set(
            arrivals in proptest::collection::vec(0_u64..60, 0..200),
        ) {
            let mut check = SequenceCheck::default();
            let mut seen = HashSet::new();
            for &sequence in &arrivals {
                let highest = seen.iter().max().copied();
                let expected = if !seen.insert(sequence) {
                    Verdict::Duplicate
                } else if highest.is_some_and(|highest| sequence < highest) {
                    Verdict::Late
                } else {
                    Verdict::Next
                };
                prop_assert_eq!(check.observe(sequence), expected);
            }
            prop_assert_eq!(check.lost(60), 60 - seen.len() as u64);
        }
    }
}
