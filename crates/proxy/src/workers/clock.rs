//! Time since the process started, and the worker's coarse copy of it.

use std::cell::Cell;
#[cfg(not(feature = "sim"))]
use std::time::Instant;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
// The simulator's runtime moves this one.
#[cfg(feature = "sim")]
use tokio::time::Instant;

/// The process clock; copies share the same origin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that starts now.
    #[allow(clippy::new_without_default)]
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now() }
    }

    /// Where it begins, ns of the system's monotonic clock: another process goes on from there.
    pub(crate) fn origin_ns(&self) -> u64 {
        monotonic_ns().saturating_sub(self.now_ns())
    }

    /// A clock that began then in another process.
    pub(crate) fn since_ns(origin_ns: u64) -> Self {
        let now = Instant::now();
        let age = Duration::from_nanos(monotonic_ns().saturating_sub(origin_ns));
        Self { origin: now.checked_sub(age).unwrap_or(now) }
    }

    /// Nanoseconds since the start.
    pub(crate) fn now_ns(&self) -> u64 {
        let elapsed = self.origin.elapsed();
        elapsed.as_secs() * 1_000_000_000 + u64::from(elapsed.subsec_nanos())
    }

    /// Microseconds since the start.
    pub(crate) fn now_us(&self) -> u64 {
        self.now_ns() / 1000
    }

    /// Milliseconds since the start.
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_us() / 1000
    }
}

/// The system's monotonic clock, which all processes share, ns.
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Milliseconds since the start, as of the last sweep: free to read on the hot path.
#[derive(Default)]
pub(crate) struct CoarseClock(Cell<u64>);

impl CoarseClock {
    /// The last value set, ms.
    pub(crate) fn now_ms(&self) -> u64 {
        self.0.get()
    }

    /// Moves the clock.
    pub(crate) fn set(&self, now_ms: u64) {
        self.0.set(now_ms);
    }
}

/// A small fast generator (xorshift64*) for weighted choices; nothing secret comes from it.
pub(crate) struct Random(Cell<u64>);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Cell::new(seed | 1))
    }

    /// A number in `0..limit`; 0 when `limit` is 0.
    pub(crate) fn below(&self, limit: u64) -> u64 {
        self.next().checked_rem(limit).unwrap_or(0)
    }

    /// Any number.
    pub(crate) fn next(&self) -> u64 {
        let mut x = self.0.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0.set(x);
        x.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// Microseconds since 1970.
pub(crate) fn unix_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
