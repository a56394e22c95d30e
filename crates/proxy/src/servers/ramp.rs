//! The share of a server that came back: it begins with a sixteenth of its weight and grows to all of it.
//!
//! Pure. Shares are counted in parts of a weight, so that a server of weight 1 can have less than its weight. A restarted server
//! has cold caches: what would be its share at once makes it slow for everybody.

/// The smallest share of the weight.
const SMALLEST: u64 = 16;

/// The parts of a weight of 1.
pub(crate) const PARTS: u64 = 1000;

/// The share of a server that has all of its weight.
pub(crate) fn whole(weight: u32) -> u64 {
    u64::from(weight) * PARTS
}

/// The share of a server `since_ms` after it came back, which has all of its weight after `ramp_ms`. 0 stays 0, and any
/// other share is at least 1: a server that is alone gets all the work.
pub(crate) fn share(weight: u32, since_ms: u64, ramp_ms: u64) -> u64 {
    let whole = whole(weight);
    if whole == 0 || since_ms >= ramp_ms {
        return whole;
    }
    let grown = ramp_ms.saturating_add(since_ms.saturating_mul(SMALLEST - 1));
    let part = u128::from(whole) * u128::from(grown) / u128::from(ramp_ms.saturating_mul(SMALLEST).max(1));
    u64::try_from(part).unwrap_or(whole).clamp(1, whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_from_a_sixteenth_to_all() {
        assert_eq!(share(16, 0, 10_000), 1_000);
        assert_eq!(share(16, 5_000, 10_000), 8_500);
        assert_eq!(share(16, 9_999, 10_000), 15_998);
        assert_eq!(share(16, 10_000, 10_000), 16_000);
        assert_eq!(share(16, 0, 0), 16_000);
    }

    #[test]
    fn the_smallest_weight_has_a_ramp_too() {
        assert_eq!([0, 5_000, 9_999, 10_000].map(|since_ms| share(1, since_ms, 10_000)), [62, 531, 999, 1_000]);
    }

    #[test]
    fn never_shrinks_never_vanishes_and_never_exceeds() {
        for full in [0, 1, 2, 15, 16, 17, 1000, 10_000_000, u32::MAX] {
            for ramp_ms in [0, 1, 7, 10_000, 3_600_000] {
                let mut last = 0;
                for step in 0..=40 {
                    let now = share(full, ramp_ms * step / 32, ramp_ms);
                    assert!(now >= last && now <= whole(full) && (now > 0) == (full > 0), "{full} {ramp_ms} {step}: {now}");
                    last = now;
                }
                assert_eq!(last, whole(full));
            }
        }
    }
}
