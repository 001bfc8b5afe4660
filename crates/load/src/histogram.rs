//! Durations counted in log-linear buckets: constant memory, constant time, 1.6 % of error.
//!
//! Each power of two is cut into [`STEPS`] equal buckets; values below `STEPS` have a bucket of
//! their own. So a bucket is never wider than 1/64 of what it holds, from nanoseconds to hours, and
//! two histograms are joined by adding them up.

/// Buckets per power of two.
const STEPS: u64 = 64;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// The largest value told apart from larger ones, about 73 minutes; those are counted as this.
const VALUE_MAX: u64 = (1 << 42) - 1;
const BUCKETS: usize = bucket_of(VALUE_MAX) + 1;

/// How often which duration was seen, in nanoseconds.
#[derive(Clone)]
pub struct Histogram {
    counts: Box<[u64]>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS].into(), count: 0, sum: 0, min: u64::MAX, max: 0 }
    }
}

impl Histogram {
    /// Counts one duration.
    #[inline]
    pub fn record(&mut self, nanoseconds: u64) {
        self.counts[bucket_of(nanoseconds.min(VALUE_MAX))] += 1;
        self.count += 1;
        self.sum += u128::from(nanoseconds);
        self.min = self.min.min(nanoseconds);
        self.max = self.max.max(nanoseconds);
    }

    /// Adds all that another histogram has counted.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// How many durations were counted.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The smallest duration; 0 when there was none.
    pub const fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// The largest duration, exactly.
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// The average duration; 0 when there was none.
    pub fn mean(&self) -> u64 {
        let count = u128::from(self.count);
        u64::try_from(self.sum.checked_div(count).unwrap_or(0)).unwrap_or(u64::MAX)
    }

    /// A duration that `share` of all do not exceed; `share` is between 0 and 1.
    ///
    /// The upper edge of the bucket is returned, so the answer errs towards slow, by at most 1/64.
    #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // counts stay far below 2^52
    pub fn percentile(&self, share: f64) -> u64 {
        let rank = ((share.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_edge(bucket).min(self.max);
            }
        }
        self.max
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Histogram")
            .field("count", &self.count)
            .field("p50", &self.percentile(0.5))
            .field("p99", &self.percentile(0.99))
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}

/// Values below `STEPS` are their own bucket; above, the top seven bits choose it.
#[inline]
const fn bucket_of(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let shift = (u64::BITS - 1 - value.leading_zeros()) - STEP_BITS;
    ((shift as u64 * STEPS) + (value >> shift)) as usize
}

const fn upper_edge(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * STEPS {
        return bucket;
    }
    let shift = bucket / STEPS - 1;
    ((bucket % STEPS + STEPS + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_values_are_exact() {
        let mut histogram = Histogram::default();
        for value in 1..=100 {
            histogram.record(value);
        }
        let at = |share| histogram.percentile(share);
        assert_eq!((at(0.0), at(0.5), at(0.99), at(1.0)), (1, 50, 99, 100));
        assert_eq!((histogram.count(), histogram.min(), histogram.mean()), (100, 1, 50));
    }

    #[test]
    fn an_empty_histogram_answers_zero() {
        let empty = Histogram::default();
        assert_eq!((empty.percentile(0.5), empty.max(), empty.min(), empty.mean()), (0, 0, 0, 0));
    }

    #[test]
    fn what_is_above_the_range_is_counted_and_remembered() {
        let mut histogram = Histogram::default();
        histogram.record(u64::MAX);
        assert_eq!((histogram.count(), histogram.max()), (1, u64::MAX));
        assert_eq!(histogram.percentile(1.0), VALUE_MAX);
    }

    proptest! {
        #[test]
        fn a_bucket_holds_its_value_and_is_narrow(value in 0..=VALUE_MAX) {
            let bucket = bucket_of(value);
            let (upper, below) = (upper_edge(bucket), bucket.checked_sub(1).map(upper_edge));
            prop_assert!(value <= upper);
            prop_assert!(below.is_none_or(|below| below < value));
            prop_assert!((upper - value) * STEPS <= value.max(STEPS));
        }

        #[test]
        fn merging_equals_recording_together(
            left in proptest::collection::vec(0..VALUE_MAX, 0..50),
            right in proptest::collection::vec(0..VALUE_MAX, 0..50),
        ) {
            let fill = |values: &[u64]| {
                let mut histogram = Histogram::default();
                for &value in values {
                    histogram.record(value);
                }
                histogram
            };
            let mut merged = fill(&left);
            merged.merge(&fill(&right));
            let together = fill(&[left, right].concat());
            prop_assert_eq!(&merged.counts, &together.counts);
            prop_assert_eq!(
                (merged.count(), merged.min(), merged.max(), merged.mean()),
                (together.count(), together.min(), together.max(), together.mean())
            );
        }
    }
}
