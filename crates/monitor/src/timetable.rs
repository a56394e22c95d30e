//! When each check of one lane is due. Pure: the caller passes the time.
//!
//! A check keeps its phase: it is due at multiples of its interval after its first time. Missed checks are not made up for. A shorter
//! interval takes effect at once.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use topology::{Check, CheckKind};

#[derive(Debug, Clone, Copy)]
struct Slot {
    next: Instant,
    interval: Duration,
    begun: Option<Instant>,
    /// Due out of turn: no change of the interval puts it off.
    is_hurried: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Timetable {
    slots: BTreeMap<CheckKind, Slot>,
}

impl Timetable {
    /// Takes over which checks there are. New ones are due within `spread`, at a time that is their own.
    pub(crate) fn set(&mut self, checks: &[Check], now: Instant, spread: Duration) {
        self.slots.retain(|kind, _| checks.iter().any(|check| check.kind == *kind));
        for check in checks {
            let interval = Duration::from_millis(check.interval_ms.max(1));
            let first = || Slot { next: now + spread.min(interval).mul_f64(share(check)), interval, begun: None, is_hurried: false };
            let slot = self.slots.entry(check.kind).or_insert_with(first);
            if slot.interval != interval {
                slot.interval = interval;
                let due = slot.begun.map_or(now, |begun| begun + interval);
                slot.next = if slot.begun.is_some() && !slot.is_hurried { due } else { slot.next.min(due) };
            }
        }
    }

    /// The check that is due first, and when.
    pub(crate) fn next(&self) -> Option<(Instant, CheckKind)> {
        self.slots.iter().map(|(kind, slot)| (slot.next, *kind)).min()
    }

    /// Marks a check as begun, so that it is due again one interval later.
    pub(crate) fn begin(&mut self, kind: CheckKind, now: Instant) {
        let Some(slot) = self.slots.get_mut(&kind) else { return };
        (slot.begun, slot.is_hurried) = (Some(now), false);
        let missed = now.saturating_duration_since(slot.next).as_nanos() / slot.interval.as_nanos().max(1);
        slot.next += slot.interval.saturating_mul(u32::try_from(missed + 1).unwrap_or(u32::MAX));
    }

    /// Everything is due now.
    pub(crate) fn hurry(&mut self, now: Instant) {
        for slot in self.slots.values_mut() {
            (slot.next, slot.is_hurried) = (slot.next.min(now), true);
        }
    }
}

/// A check's own place in an interval, [0, 1).
fn share(check: &Check) -> f64 {
    let mut hasher = DefaultHasher::new();
    (&check.addr, check.kind).hash(&mut hasher);
    u32::try_from(hasher.finish() >> 40).map_or(0.0, f64::from) / f64::from(1u32 << 24)
}

#[cfg(test)]
mod tests {
    use model::ServerAddr;
    use proptest::prelude::*;

    use super::*;

    fn check(kind: CheckKind, interval_ms: u64) -> Check {
        let server = crate::testing::server("db", 3306);
        let addr = ServerAddr { host: "db".into(), port: 3306 };
        Check { addr, server, kind, interval_ms, timeout_ms: 800, peers: Default::default(), foreign: Default::default() }
    }

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn a_shorter_interval_takes_effect_at_once_and_a_longer_one_too() {
        let start = Instant::now();
        let mut table = Timetable::default();
        table.set(&[check(CheckKind::Ping, 8_000)], start, Duration::ZERO);
        assert_eq!(table.next(), Some((start, CheckKind::Ping)));
        table.begin(CheckKind::Ping, start);
        assert_eq!(table.next(), Some((start + ms(8_000), CheckKind::Ping)));
        table.set(&[check(CheckKind::Ping, 20)], start + ms(500), Duration::ZERO);
        assert_eq!(table.next(), Some((start + ms(20), CheckKind::Ping)));
        table.begin(CheckKind::Ping, start + ms(500));
        assert_eq!(table.next(), Some((start + ms(520), CheckKind::Ping)));
        table.set(&[check(CheckKind::Ping, 1_000)], start + ms(501), Duration::ZERO);
        assert_eq!(table.next(), Some((start + ms(1_500), CheckKind::Ping)));
    }

    #[test]
    fn a_check_that_is_gone_is_not_due() {
        let now = Instant::now();
        let mut table = Timetable::default();
        table.set(&[check(CheckKind::Ping, 10), check(CheckKind::Lag, 10)], now, Duration::ZERO);
        table.set(&[check(CheckKind::Lag, 10)], now, Duration::ZERO);
        table.begin(CheckKind::Lag, now);
        assert_eq!(table.next(), Some((now + ms(10), CheckKind::Lag)));
        table.hurry(now + ms(1));
        assert_eq!(table.next(), Some((now + ms(1), CheckKind::Lag)));
        table.set(&[check(CheckKind::Lag, 1_000)], now, Duration::ZERO);
        assert_eq!(table.next(), Some((now + ms(1), CheckKind::Lag)), "a longer interval does not put it off");
        table.begin(CheckKind::Lag, now + ms(2));
        assert!(table.next().is_some_and(|(due, _)| due > now + ms(900)));
    }

    proptest! {
        #[test]
        fn the_phase_is_kept_however_late_checks_begin(interval in 1u64..5_000, late in prop::collection::vec(0u64..20_000, 1..20)) {
            let start = Instant::now();
            let mut table = Timetable::default();
            table.set(&[check(CheckKind::Ping, interval)], start, Duration::ZERO);
            let mut begun = None;
            for late in late {
                let (due, kind) = table.next().unwrap();
                prop_assert_eq!((due - start).as_millis() % u128::from(interval), 0);
                prop_assert!(begun.is_none_or(|begun| due > begun), "at most one check is made up for");
                let now = due + ms(late);
                table.begin(kind, now);
                prop_assert!(table.next().unwrap().0 > now);
                prop_assert!(table.next().unwrap().0 <= now + ms(interval));
                begun = Some(now);
            }
        }

        #[test]
        fn new_checks_are_spread_and_never_late(spread in 0u64..3_000, interval in 1u64..10_000) {
            let now = Instant::now();
            let mut table = Timetable::default();
            table.set(&[check(CheckKind::Galera, interval)], now, ms(spread));
            let due = table.next().unwrap().0;
            prop_assert!(due >= now && due <= now + ms(spread.min(interval)));
        }
    }
}
