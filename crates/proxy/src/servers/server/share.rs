//! A server's share of its hostgroup's work: its weight, or less of it while the server has not been back for long.

use crate::servers::ramp;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// See the module.
#[derive(Default)]
pub(crate) struct Share {
    weight: AtomicU32,
    /// Process clock (ms) since when the server is back; 0 when it has its whole weight.
    back_since_ms: AtomicU64,
    ramp_ms: AtomicU64,
}

impl Share {
    /// What the configuration says of it.
    pub(super) fn configure(&self, weight: u32, ramp_ms: u64) {
        self.weight.store(weight, Ordering::Release);
        self.ramp_ms.store(ramp_ms, Ordering::Release);
    }

    /// The server is back, and cold.
    pub(super) fn grows_from(&self, now_ms: u64) {
        self.back_since_ms.store(now_ms.max(1), Ordering::Release);
    }

    /// The server is back, and takes its whole weight at once.
    pub(super) fn is_whole(&self) {
        self.back_since_ms.store(0, Ordering::Release);
    }

    /// The share as it was written.
    pub(crate) fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    /// The share now, in [`ramp::PARTS`] of the weight.
    pub(crate) fn at(&self, now_ms: u64) -> u64 {
        let weight = self.weight();
        match self.back_since_ms.load(Ordering::Relaxed) {
            0 => ramp::whole(weight),
            since => ramp::share(weight, now_ms.saturating_sub(since), self.ramp_ms.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_back_begins_small_from_the_first_millisecond_of_the_process() {
        let share = Share::default();
        share.configure(16, 1000);
        assert_eq!(share.at(0), 16_000, "nothing came back");
        share.grows_from(0);
        assert_eq!((share.at(0), share.at(501), share.at(1001)), (1_000, 8_500, 16_000));
        share.is_whole();
        assert_eq!(share.at(0), 16_000);
    }

    #[test]
    fn a_new_weight_keeps_the_place_on_the_ramp() {
        let share = Share::default();
        share.configure(16, 1000);
        share.grows_from(2000);
        share.configure(32, 1000);
        assert_eq!((share.weight(), share.at(2500), share.at(3000)), (32, 17_000, 32_000));
    }
}
