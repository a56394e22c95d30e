//! The share of a server that came back: it begins with a sixteenth of its weight and grows to all of it.
//!
//! Pure. A restarted server has cold caches: what would be its share at once makes it slow for everybody.

/// The smallest share of the weight.
const SMALLEST: u64 = 16;

/// The weight of a server `since_ms` after it came back, which has all of its weight after `ramp_ms`. 0 stays 0, and any
/// other weight is at least 1: a server that is alone gets all the work.
pub fn weight(weight: u64, since_ms: u64, ramp_ms: u64) -> u64 {
    if weight == 0 || since_ms >= ramp_ms {
        return weight;
    }
    let share = ramp_ms.saturating_add(since_ms.saturating_mul(SMALLEST - 1));
    let part = u128::from(weight) * u128::from(share) / u128::from(ramp_ms.saturating_mul(SMALLEST).max(1));
    u64::try_from(part).unwrap_or(weight).clamp(1, weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_from_a_sixteenth_to_all() {
        assert_eq!(weight(1600, 0, 10_000), 100);
        assert_eq!(weight(1600, 5_000, 10_000), 850);
        assert_eq!(weight(1600, 9_999, 10_000), 1599);
        assert_eq!(weight(1600, 10_000, 10_000), 1600);
        assert_eq!(weight(1600, 0, 0), 1600);
    }

    #[test]
    fn never_shrinks_never_vanishes_and_never_exceeds() {
        for full in [0, 1, 2, 15, 16, 17, 1000, 10_000_000] {
            for ramp_ms in [0, 1, 7, 10_000, 3_600_000] {
                let mut last = 0;
                for step in 0..=40 {
                    let now = weight(full, ramp_ms * step / 32, ramp_ms);
                    assert!(now >= last && now <= full && (now > 0) == (full > 0), "{full} {ramp_ms} {step}: {now}");
                    last = now;
                }
                assert_eq!(last, full);
            }
        }
    }
}
