//! What was measured of a server: how long its pings take, how far it is behind its source, and whether it is the source of others.

use crate::servers::server::NEVER;
use model::fleet::Measured;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// In the place of a lag: it is not known.
const UNKNOWN: u64 = u64::MAX;

/// See the module.
pub(crate) struct Measurements {
    latency_us: AtomicU64,
    max_latency_us: AtomicU64,
    lag_ms: AtomicU64,
    is_source: AtomicBool,
}

impl Default for Measurements {
    fn default() -> Self {
        Self {
            latency_us: AtomicU64::new(0),
            max_latency_us: AtomicU64::new(NEVER),
            lag_ms: AtomicU64::new(UNKNOWN),
            is_source: AtomicBool::new(false),
        }
    }
}

impl Measurements {
    /// The longest ping that is allowed: of the server's row, ms, or `default_ms` where that says 0.
    pub(super) fn limit(&self, max_latency_ms: u32, default_ms: u64) {
        let max_latency_us = match max_latency_ms {
            0 => default_ms.saturating_mul(1000),
            ms => u64::from(ms) * 1000,
        };
        self.max_latency_us.store(max_latency_us, Ordering::Release);
    }

    /// Takes over what was measured.
    pub(crate) fn set(&self, measured: Measured) {
        self.latency_us.store(measured.latency_us, Ordering::Release);
        self.lag_ms.store(measured.lag_ms.unwrap_or(UNKNOWN), Ordering::Release);
        self.is_source.store(measured.is_source, Ordering::Release);
    }

    /// Average of the last pings, us; 0 while unknown.
    pub(crate) fn latency_us(&self) -> u64 {
        self.latency_us.load(Ordering::Acquire)
    }

    /// Whether pings take longer than is allowed.
    pub(crate) fn is_slow(&self) -> bool {
        self.latency_us.load(Ordering::Relaxed) > self.max_latency_us.load(Ordering::Relaxed)
    }

    /// How far the server is behind its source, ms, where that is known.
    pub(crate) fn lag_ms(&self) -> Option<u64> {
        Some(self.lag_ms.load(Ordering::Acquire)).filter(|lag| *lag != UNKNOWN)
    }

    /// Whether reads with a limit of lag spare the server, because others replicate from it.
    pub(crate) fn is_source(&self) -> bool {
        self.is_source.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_is_more_than_the_row_or_else_the_default_allows() {
        for (row_ms, default_ms, latency_us, is_slow) in [
            (5, 1000, 5_000, false),
            (5, 1000, 5_001, true),
            (0, 1, 1_000, false),
            (0, 1, 1_001, true),
            (0, u64::MAX, u64::MAX - 1, false),
            (5, 1000, 0, false),
        ] {
            let measurements = Measurements::default();
            measurements.limit(row_ms, default_ms);
            measurements.set(Measured { latency_us, lag_ms: None, is_source: false });
            assert_eq!(measurements.is_slow(), is_slow, "{row_ms} {default_ms} {latency_us}");
        }
    }

    #[test]
    fn a_lag_is_known_until_a_measurement_does_not_say() {
        let measurements = Measurements::default();
        assert_eq!(measurements.lag_ms(), None);
        for lag_ms in [Some(0), Some(1500), None] {
            measurements.set(Measured { latency_us: 1, lag_ms, is_source: false });
            assert_eq!(measurements.lag_ms(), lag_ms);
        }
    }
}
