//! The effects of a change of roles in a recording: how long writes stood still, and the clients' errors.

use std::collections::BTreeMap;

use super::record::{ClientKind, Recording};

/// Errors by MySQL's number and where they happened, with one example.
pub(super) type Errors = BTreeMap<(u16, &'static str), (u64, String)>;

/// Length of a [`Slot`], ms.
pub const SLOT_MS: i64 = 20;

/// The works that ended within one slot of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Its begin, ms from the change on; negative before that.
    pub at_ms: i64,
    /// Works that went well.
    pub done: u32,
    /// Works that failed.
    pub failed: u32,
}

/// The figures of one run.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Works that went well, by kind of client.
    pub successes: BTreeMap<&'static str, u64>,
    /// Errors after the change began.
    pub errors: Errors,
    /// Longest time without a single write that went well, from the last before the change on, us.
    pub downtime_us: u64,
    /// The longest successful work from the change on, us.
    pub longest_stall_us: u64,
    /// From the moment the new writer takes writes to the first single write that went well, us. None when there was none.
    pub first_write_us: Option<u64>,
    /// The works by time, without a gap.
    pub timeline: Vec<Slot>,
}

impl Tally {
    /// Reads a recording. `change_us` is when the change began; `writable_us` when the new writer began to take writes.
    pub fn of(recording: &Recording, change_us: u64, writable_us: Option<u64>) -> Tally {
        let mut tally = Tally { timeline: timeline(recording, change_us), ..Tally::default() };
        for kind in ClientKind::ALL {
            tally.successes.insert(kind.name(), recording.successes(kind).count() as u64);
        }
        for (event, failure) in recording.failures().filter(|(event, _)| event.end_us >= change_us) {
            debug_assert!(event.begin_us <= event.end_us);
            let entry = tally.errors.entry((failure.code, failure.during)).or_insert_with(|| (0, failure.text.clone()));
            entry.0 += 1;
        }
        let writes: Vec<u64> = recording.successes(ClientKind::Writer).collect();
        tally.downtime_us = longest_gap(&writes, change_us);
        let slow = recording.events.iter().filter(|event| event.error.is_none() && event.end_us >= change_us);
        tally.longest_stall_us = slow.map(|event| event.end_us - event.begin_us).max().unwrap_or(0);
        tally.first_write_us = writable_us.and_then(|from| writes.iter().find(|end| **end >= from).map(|end| end.saturating_sub(from)));
        tally
    }

    /// All errors, whatever their number.
    pub fn error_count(&self) -> u64 {
        self.errors.values().map(|(count, _)| count).sum()
    }
}

/// All works by the time of their end.
fn timeline(recording: &Recording, change_us: u64) -> Vec<Slot> {
    let since_change = |end_us: u64| i64::try_from(end_us).unwrap_or(i64::MAX).saturating_sub_unsigned(change_us);
    let place = |end_us: u64| since_change(end_us).div_euclid(SLOT_MS * 1000);
    let places = || recording.events.iter().map(|event| place(event.end_us));
    let (Some(first), Some(last)) = (places().min(), places().max()) else { return Vec::new() };
    let mut slots: Vec<Slot> = (first..=last).map(|place| Slot { at_ms: place * SLOT_MS, ..Slot::default() }).collect();
    for event in &recording.events {
        let slot = usize::try_from(place(event.end_us) - first).ok().and_then(|index| slots.get_mut(index));
        if let Some(slot) = slot {
            match event.error {
                None => slot.done += 1,
                Some(_) => slot.failed += 1,
            }
        }
    }
    slots
}

/// Longest gap between successive ends that touches what comes after `from`.
fn longest_gap(ends: &[u64], from: u64) -> u64 {
    ends.windows(2).filter(|pair| pair[1] >= from).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
}

/// The median, the upper one of two; None of nothing.
pub fn median(values: &[u64]) -> Option<u64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::super::record::{Event, Failure};
    use super::*;

    fn write(begin_us: u64, end_us: u64, code: Option<u16>) -> Event {
        let error = code.map(|code| Failure { code, during: "write", text: "text".to_owned() });
        Event { kind: ClientKind::Writer, begin_us, end_us, error }
    }

    #[test]
    fn gaps_errors_and_the_first_write_are_found() {
        let events = vec![
            write(0, 500, None),
            write(600, 700, Some(1)),
            write(900, 1000, None),
            write(1100, 1200, Some(2013)),
            write(1900, 4000, None),
            write(4000, 4100, None),
        ];
        let tally = Tally::of(&Recording { events, ..Recording::default() }, 1100, Some(3500));
        assert_eq!((tally.downtime_us, tally.longest_stall_us, tally.first_write_us), (3000, 2100, Some(500)));
        assert_eq!(tally.errors.len(), 1);
        assert_eq!(tally.error_count(), 1);
        assert_eq!(tally.successes["writer"], 4);
        assert_eq!(tally.timeline, [Slot { at_ms: -20, done: 2, failed: 1 }, Slot { at_ms: 0, done: 2, failed: 1 }]);
    }

    #[test]
    fn the_median_of_two_is_the_upper() {
        assert_eq!(median(&[3, 1]), Some(3));
        assert_eq!(median(&[5, 1, 3]), Some(3));
        assert_eq!(median(&[]), None);
    }
}
