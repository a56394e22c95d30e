//! Those who wait, in order of their turns, in a line for each kind of them.
//!
//! What holds for all of a kind is asked once a line, so that what one who waits costs does not grow with how many do.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// A place in the order of turns: since when (us), and a number that only grows.
pub(super) type LinePlace = (u64, u64);

/// Before everybody.
pub(super) const FRONT: LinePlace = (0, 0);

/// What one who waits keeps, to be found again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ticket {
    /// Where it stands.
    pub(super) place: LinePlace,
    /// Until when it waits, us.
    pub(super) deadline_us: u64,
}

/// See the module. `K` is the kind, `W` one who waits.
pub(super) struct Lines<K, W> {
    /// None of them is empty.
    lines: Vec<(K, BTreeMap<LinePlace, W>)>,
    /// By the deadline and the place's number.
    deadlines: BTreeMap<(u64, u64), W>,
    last: u64,
}

impl<K, W> Default for Lines<K, W> {
    fn default() -> Self {
        Self { lines: Vec::new(), deadlines: BTreeMap::new(), last: 0 }
    }
}

impl<K: PartialEq, W: Clone> Lines<K, W> {
    /// A ticket for one whose turn counts from `turn_us`: behind those who have the same.
    pub(super) fn ticket(&mut self, turn_us: u64, deadline_us: u64) -> Ticket {
        self.last += 1;
        Ticket { place: (turn_us, self.last), deadline_us }
    }

    /// One more waits.
    pub(super) fn insert(&mut self, kind: K, ticket: Ticket, waiter: W) {
        self.deadlines.insert((ticket.deadline_us, ticket.place.1), waiter.clone());
        match self.lines.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, line)) => drop(line.insert(ticket.place, waiter)),
            None => self.lines.push((kind, BTreeMap::from([(ticket.place, waiter)]))),
        }
    }

    /// It waits no more. None when it did not.
    pub(super) fn remove(&mut self, kind: &K, ticket: Ticket) -> Option<W> {
        let at = self.lines.iter().position(|(other, _)| other == kind)?;
        let (_, line) = self.lines.get_mut(at)?;
        let waiter = line.remove(&ticket.place)?;
        if line.is_empty() {
            self.lines.swap_remove(at);
        }
        self.deadlines.remove(&(ticket.deadline_us, ticket.place.1));
        Some(waiter)
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.deadlines.len()
    }

    /// Whether nobody does.
    pub(super) fn is_empty(&self) -> bool {
        self.deadlines.is_empty()
    }

    /// How many of these kinds wait.
    pub(super) fn count(&self, fits: impl Fn(&K) -> bool) -> usize {
        self.lines.iter().filter(|(kind, _)| fits(kind)).map(|(_, line)| line.len()).sum()
    }

    /// Everybody in these kinds' lines, line by line.
    pub(super) fn of(&self, fits: impl Fn(&K) -> bool) -> impl Iterator<Item = &W> {
        self.lines.iter().filter(move |(kind, _)| fits(kind)).flat_map(|(_, line)| line.values())
    }

    /// The first of each line, with its place and kind.
    pub(super) fn fronts(&self) -> impl Iterator<Item = (LinePlace, &K, &W)> {
        self.lines.iter().filter_map(|(kind, line)| line.first_key_value().map(|(place, waiter)| (*place, kind, waiter)))
    }

    /// The first of these kinds, of all their lines.
    pub(super) fn first(&self, fits: impl Fn(&K) -> bool) -> Option<&W> {
        let fronts = self.fronts().filter(|(_, kind, _)| fits(kind));
        fronts.min_by_key(|(place, _, _)| *place).map(|(_, _, waiter)| waiter)
    }

    /// The first of each of these kinds' lines that `suits`, from a place on, with its place.
    pub(super) fn first_of_each(
        &self,
        from: LinePlace,
        fits: impl Fn(&K) -> bool,
        suits: impl Fn(&W) -> bool,
    ) -> impl Iterator<Item = (LinePlace, &W)> {
        let lines = self.lines.iter().filter(move |(kind, _)| fits(kind));
        lines.filter_map(move |(_, line)| line.range(from..).find(|(_, waiter)| suits(waiter))).map(|(place, waiter)| (*place, waiter))
    }

    /// Those of these kinds in order, from a place on.
    pub(super) fn in_order(&self, from: LinePlace, fits: impl Fn(&K) -> bool) -> impl Iterator<Item = (LinePlace, &W)> {
        let mut lines: Vec<_> = self.lines.iter().filter(|(kind, _)| fits(kind)).map(|(_, line)| line.range(from..)).collect();
        let mut heads = BinaryHeap::new();
        let mut waiters: Vec<Option<&W>> = vec![None; lines.len()];
        for (at, (line, head)) in lines.iter_mut().zip(&mut waiters).enumerate() {
            if let Some((place, waiter)) = line.next() {
                *head = Some(waiter);
                heads.push(Reverse((*place, at)));
            }
        }
        std::iter::from_fn(move || {
            let Reverse((place, at)) = heads.pop()?;
            let (line, head) = (lines.get_mut(at)?, waiters.get_mut(at)?);
            let waiter = head.take()?;
            if let Some((next, behind)) = line.next() {
                *head = Some(behind);
                heads.push(Reverse((*next, at)));
            }
            Some((place, waiter))
        })
    }

    /// The one whose deadline comes first.
    pub(super) fn first_due(&self) -> Option<&W> {
        self.deadlines.first_key_value().map(|(_, waiter)| waiter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_is_gone_with_its_last_one() {
        let mut lines = Lines::default();
        let ticket = lines.ticket(5, 10);
        lines.insert("a", ticket, 1);
        assert_eq!((lines.len(), lines.fronts().count(), lines.remove(&"b", ticket)), (1, 1, None));
        assert_eq!((lines.remove(&"a", ticket), lines.remove(&"a", ticket)), (Some(1), None));
        assert!(lines.is_empty() && lines.fronts().next().is_none() && lines.first_due().is_none());
    }

    proptest! {
        /// As one list would have it, in which everybody is looked at.
        #[test]
        fn lines_are_one_order(steps in prop::collection::vec((0_u8..4, 0_u64..20, 0_u64..50, any::<bool>()), 0..60)) {
            let mut lines = Lines::default();
            let mut list: Vec<(u8, Ticket)> = Vec::new();
            for (kind, turn, deadline, leaves) in steps {
                if leaves && !list.is_empty() {
                    let (kind, ticket) = list.remove(turn as usize % list.len());
                    prop_assert_eq!(lines.remove(&kind, ticket), Some(ticket));
                } else {
                    let ticket = lines.ticket(turn, deadline);
                    lines.insert(kind, ticket, ticket);
                    list.push((kind, ticket));
                    list.sort_by_key(|(_, ticket)| ticket.place);
                }
                let odd = |kind: &u8| *kind % 2 == 1;
                let wanted: Vec<LinePlace> = list.iter().filter(|(kind, _)| odd(kind)).map(|(_, ticket)| ticket.place).collect();
                let found: Vec<LinePlace> = lines.in_order(FRONT, odd).map(|(place, _)| place).collect();
                prop_assert_eq!(&found, &wanted);
                prop_assert_eq!(lines.first(odd).map(|ticket| ticket.place), wanted.first().copied());
                prop_assert_eq!((lines.len(), lines.count(odd), lines.of(odd).count()), (list.len(), wanted.len(), wanted.len()));
                let from = (turn, 0);
                let behind = lines.in_order(from, odd).map(|(place, _)| place).collect::<Vec<_>>();
                prop_assert_eq!(behind, wanted.into_iter().filter(|place| *place >= from).collect::<Vec<_>>());
                let due = list.iter().map(|(_, ticket)| (ticket.deadline_us, ticket.place.1)).min();
                prop_assert_eq!(lines.first_due().map(|ticket| (ticket.deadline_us, ticket.place.1)), due);
            }
        }
    }
}
