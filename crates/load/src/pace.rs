//! The timetable of an open loop: message `m` of the whole run is due at `start + m / rate`.
//!
//! Messages are dealt to the publishers in turn, so the due time of a publisher's `n`-th message is
//! a matter of arithmetic and nothing has to be queued: a publisher that was held up sends what it
//! owes as soon as it can, stamped with the times at which it was due.

/// When each message is due.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    interval_ns: f64,
    publishers: u64,
}

impl Pace {
    /// A timetable of `rate` messages per second over `publishers`.
    pub(crate) fn new(rate: f64, publishers: u32) -> Self {
        Self { interval_ns: 1e9 / rate, publishers: u64::from(publishers.max(1)) }
    }

    /// How many messages of all publishers are due `elapsed_ns` after the start.
    #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // exact below 2^52 ns: 52 days
    pub(crate) fn due_total(self, elapsed_ns: u64) -> u64 {
        (elapsed_ns as f64 / self.interval_ns) as u64 + 1
    }

    /// How many messages of one publisher are due when `due_total` of all are.
    #[inline]
    pub(crate) fn due_of(self, publisher: u32, due_total: u64) -> u64 {
        let publisher = u64::from(publisher);
        due_total.saturating_sub(publisher).div_ceil(self.publishers)
    }

    /// The publisher of a message.
    #[inline]
    pub(crate) fn publisher_of(self, message: u64) -> u64 {
        message % self.publishers
    }

    /// Nanoseconds from the start to message `message` of all.
    #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // as above
    pub(crate) fn due_at(self, message: u64) -> u64 {
        (message as f64 * self.interval_ns).ceil() as u64
    }

    /// Nanoseconds from the start to the `sequence`-th message of one publisher.
    #[inline]
    pub(crate) fn due_at_of(self, publisher: u32, sequence: u64) -> u64 {
        self.due_at(sequence * self.publishers + u64::from(publisher))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_message_is_due_at_once_and_the_others_follow_evenly() {
        let pace = Pace::new(1000.0, 3);
        assert_eq!((pace.due_total(0), pace.due_total(999_999)), (1, 1));
        assert_eq!((pace.due_total(1_000_000), pace.due_total(10_000_000)), (2, 11));
        assert_eq!((pace.due_at_of(0, 0), pace.due_at_of(2, 1)), (0, 5_000_000));
    }

    proptest! {
        #[test]
        fn what_is_due_is_divided_without_remainder(
            publishers in 1_u32..20, due_total in 0_u64..10_000, rate in 0.1_f64..1e6,
        ) {
            let pace = Pace::new(rate, publishers);
            let sum: u64 = (0..publishers).map(|one| pace.due_of(one, due_total)).sum();
            prop_assert_eq!(sum, due_total);
        }

        #[test]
        fn a_message_is_due_when_its_time_has_come_and_not_before(
            rate in 0.1_f64..1e6, message in 0_u64..1_000_000,
        ) {
            let pace = Pace::new(rate, 1);
            let at = pace.due_at(message);
            prop_assert!(pace.due_total(at + 1) > message);
            prop_assert!(at < 2 || pace.due_total(at - 2) <= message);
        }
    }
}
