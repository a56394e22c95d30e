//! Latencies in buckets that grow with the value: constant memory, 3 % precision, no allocation when recording.

use std::time::Duration;

/// Buckets for each power of two, as a number of bits.
const SUB_BITS: u32 = 5;
const SUB: u64 = 1 << SUB_BITS;
/// Enough for every `u64`.
const BUCKETS: usize = 64 << SUB_BITS;

/// A histogram of durations.
#[derive(Clone)]
pub struct Histogram {
    counts: Box<[u64]>,
    total: u64,
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Histogram").field("total", &self.total).finish_non_exhaustive()
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: vec![0; BUCKETS].into_boxed_slice(), total: 0 }
    }
}

impl Histogram {
    /// Counts one duration; more than 584 years count as that.
    pub fn record(&mut self, value: Duration) {
        let nanos = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(nanos)] += 1;
        self.total += 1;
    }

    /// Counts what another one has counted.
    pub fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.total += other.total;
    }

    /// How many durations were recorded.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// The duration in microseconds that a share `quantile` (0 to 1) of all did not exceed, to 3 %; 0 when empty.
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        let wanted = (self.total as f64 * quantile).ceil().max(1.0);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if *count > 0 && seen as f64 >= wanted {
                return middle(index) / 1000.0;
            }
        }
        0.0
    }
}

/// The bucket of a value: itself while small, then its highest bit and the [`SUB_BITS`] below that.
fn bucket(value: u64) -> usize {
    if value < SUB {
        return usize::try_from(value).unwrap_or(0);
    }
    let shift = value.ilog2() - SUB_BITS;
    let sub = (value >> shift) - SUB;
    usize::try_from(u64::from(shift + 1) * SUB + sub).unwrap_or(BUCKETS - 1)
}

/// The middle of a bucket's range.
fn middle(index: usize) -> f64 {
    let (group, sub) = (index as u64 >> SUB_BITS, index as u64 & (SUB - 1));
    if group == 0 {
        return sub as f64;
    }
    let width = (1_u64 << (group - 1)) as f64;
    (SUB + sub) as f64 * width + width / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_near_the_middle_of_its_bucket() {
        for value in (0..63).flat_map(|bit| [1_u64 << bit, (1 << bit) + 1, (1 << bit) * 3 / 2]) {
            let error = (middle(bucket(value)) - value as f64).abs() / value as f64;
            assert!(error < 0.04, "{value}: {error}");
        }
        assert!(bucket(u64::MAX) < BUCKETS);
    }

    #[test]
    fn quantiles() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile_us(0.5), 0.0);
        for us in 1..=1000 {
            histogram.record(Duration::from_micros(us));
        }
        assert_eq!(histogram.count(), 1000);
        assert!((histogram.quantile_us(0.5) / 500.0 - 1.0).abs() < 0.04);
        assert!((histogram.quantile_us(0.99) / 990.0 - 1.0).abs() < 0.04);
    }
}
