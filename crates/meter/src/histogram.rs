//! Latencies in log-linear buckets: eight to each power of two, so a quantile is known to within a sixteenth.
//!
//! Bounded: 272 counters whatever is recorded. INVARIANT: every value has exactly one bucket, and buckets are in the
//! order of their values.

use serde::{Deserialize, Serialize};

/// Buckets to each power of two, as a power of two.
const SUB_BITS: u32 = 3;
const SUBS: u64 = 1 << SUB_BITS;
/// Values from 2^36 us (19 hours) on share the last bucket.
const MAX_EXPONENT: u32 = 35;
const BUCKETS: usize = ((MAX_EXPONENT - SUB_BITS + 2) as usize) << SUB_BITS;

/// See the module. Values are microseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "HistogramRecord", from = "HistogramRecord")]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    count: u64,
    sum: u64,
    max: u64,
}

/// The same for another process.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HistogramRecord {
    /// Up to the last that is not 0.
    counts: Vec<u64>,
    sum: u64,
    max: u64,
}

impl From<Histogram> for HistogramRecord {
    fn from(histogram: Histogram) -> Self {
        let len = histogram.counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        Self { counts: histogram.counts.get(..len).unwrap_or_default().to_vec(), sum: histogram.sum, max: histogram.max }
    }
}

impl From<HistogramRecord> for Histogram {
    fn from(record: HistogramRecord) -> Self {
        let mut histogram = Self { count: record.counts.iter().sum(), sum: record.sum, max: record.max, ..Self::default() };
        histogram.counts.iter_mut().zip(record.counts).for_each(|(to, from)| *to = from);
        histogram
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]), count: 0, sum: 0, max: 0 }
    }
}

fn bucket(value: u64) -> usize {
    if value < SUBS {
        return value as usize;
    }
    let exponent = value.ilog2();
    if exponent > MAX_EXPONENT {
        return BUCKETS - 1;
    }
    let sub = (value >> (exponent - SUB_BITS)) & (SUBS - 1);
    ((exponent - SUB_BITS + 1) as usize) << SUB_BITS | sub as usize
}

/// The least value of a bucket, and how many values it holds.
fn range(bucket: usize) -> (u64, u64) {
    let (octave, sub) = (bucket as u32 >> SUB_BITS, bucket as u64 & (SUBS - 1));
    match octave.checked_sub(1) {
        None => (sub, 1),
        Some(shift) => ((SUBS + sub) << shift, 1 << shift),
    }
}

impl Histogram {
    /// One more value.
    pub fn record(&mut self, value: u64) {
        if let Some(count) = self.counts.get_mut(bucket(value)) {
            *count += 1;
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        self.max = self.max.max(value);
    }

    /// Counts all that `other` has counted.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts.iter()) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// What was counted since `earlier`. The maximum is that of all values.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        since.counts.iter_mut().zip(earlier.counts.iter()).for_each(|(mine, theirs)| *mine = mine.saturating_sub(*theirs));
        since.count = since.counts.iter().sum();
        since.sum = since.sum.saturating_sub(earlier.sum);
        since
    }

    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The largest of them, exactly.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The value that `per_mille` thousandths of the values do not exceed, to within a sixteenth; 0 when there are none.
    pub fn quantile(&self, per_mille: u64) -> u64 {
        let rank = (u128::from(self.count) * u128::from(per_mille)).div_ceil(1000).max(1);
        let mut seen = 0_u128;
        for (i, count) in self.counts.iter().enumerate() {
            seen += u128::from(*count);
            if seen >= rank {
                let (least, width) = range(i);
                return (least + width / 2).min(self.max);
            }
        }
        0
    }

    /// Values below 2^`exponent`, exactly (for exponents up to 36).
    pub fn below_power(&self, exponent: u32) -> u64 {
        let end = bucket(1 << exponent.min(MAX_EXPONENT + 1));
        let last = exponent > MAX_EXPONENT;
        self.counts.iter().take(if last { BUCKETS } else { end }).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Histogram {
        let mut h = Histogram::default();
        values.iter().for_each(|v| h.record(*v));
        h
    }

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        for i in 1..BUCKETS {
            let (least, width) = range(i - 1);
            assert_eq!(range(i).0, least + width, "bucket {i}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    proptest! {
        #[test]
        fn a_value_is_in_its_bucket(value in 0..1_u64 << 36) {
            let (least, width) = range(bucket(value));
            prop_assert!(least <= value && value < least + width);
        }

        #[test]
        fn quantiles_are_right_to_within_a_sixteenth(mut values in proptest::collection::vec(0..1_u64 << 34, 1..300), per_mille in 0..=1000_u64) {
            let h = of(&values);
            values.sort_unstable();
            let rank = (values.len() as u64 * per_mille).div_ceil(1000).max(1) as usize;
            let exact = values[rank - 1];
            prop_assert!(h.quantile(per_mille).abs_diff(exact) <= exact / 16);
            prop_assert_eq!(h.max(), *values.last().unwrap());
        }

        #[test]
        fn merged_is_as_if_counted_together(a in proptest::collection::vec(any::<u64>(), 0..50), b in proptest::collection::vec(any::<u64>(), 0..50)) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            prop_assert_eq!(merged, of(&[a, b].concat()));
        }

        #[test]
        fn powers_of_two_are_exact_bounds(values in proptest::collection::vec(0..1_u64 << 40, 0..100), exponent in 0..36_u32) {
            let below = values.iter().filter(|v| **v < 1 << exponent).count() as u64;
            prop_assert_eq!(of(&values).below_power(exponent), below);
        }
    }

    #[test]
    fn an_empty_one_has_no_quantiles() {
        assert_eq!((of(&[]).quantile(500), of(&[]).max()), (0, 0));
    }
}
