//! The order rule of a replay: a command starts when all commands that had ended before it started at the original have ended.
//!
//! It keeps each order that a client could have seen. Ends have numbers, so the rule is one comparison. Of commands that overlapped, reads
//! overlap again, and writes run one after another in the order in which they got their locks ([`Turn`]): a lock that one session
//! had before another one goes to the same session again.
//!
//! INVARIANT: a command waits for commands with smaller keys only, where the key is its turn, else the number of its end. So the command with
//! the smallest key of those that have not ended may always run.

use std::collections::BTreeMap;

const BITS: u64 = 64;

/// A set of numbers of ends, about a bit each where they are dense.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seqs(BTreeMap<u64, u64>);

impl Seqs {
    /// Adds a number; false if it was there.
    pub fn insert(&mut self, seq: u64) -> bool {
        let word = self.0.entry(seq / BITS).or_default();
        let bit = 1 << (seq % BITS);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Takes a number out; false if it was not there.
    pub fn remove(&mut self, seq: u64) -> bool {
        let Some(word) = self.0.get_mut(&(seq / BITS)) else { return false };
        let bit = 1 << (seq % BITS);
        let was_there = *word & bit != 0;
        *word &= !bit;
        if *word == 0 {
            self.0.remove(&(seq / BITS));
        }
        was_there
    }

    /// The smallest number.
    pub fn first(&self) -> Option<u64> {
        self.0.first_key_value().map(|(at, word)| at * BITS + u64::from(word.trailing_zeros()))
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.0.values().map(|word| u64::from(word.count_ones())).sum()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The place of a write among all writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn(u64);

impl Turn {
    /// Of a statement that takes locks: it has them when it ends.
    pub fn of_write(seq: u64) -> Self {
        Self(seq.saturating_mul(2))
    }

    /// Of COMMIT and ROLLBACK, which release locks: before the end of each command that ended after it began, for that may have waited
    /// for the locks.
    pub fn of_release(after: u64) -> Self {
        Self(after.saturating_mul(2).saturating_add(1))
    }
}

/// The writes of a capture. 9 bytes for each.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    sorted: Vec<Turn>,
    is_over: Vec<bool>,
    /// Those before this place are over.
    first: usize,
}

impl Turns {
    /// All writes.
    pub fn new(mut turns: Vec<Turn>) -> Self {
        turns.sort_unstable();
        Self { is_over: vec![false; turns.len()], sorted: turns, first: 0 }
    }

    fn may_start(&self, turn: Turn) -> bool {
        self.sorted.get(self.first).is_none_or(|first| *first >= turn)
    }

    fn ended(&mut self, turn: Turn) {
        let from = self.sorted.partition_point(|other| *other < turn);
        let of_turn = self.sorted.iter().zip(&mut self.is_over).skip(from).take_while(|(other, _)| **other == turn);
        if let Some((_, is_over)) = of_turn.into_iter().find(|(_, is_over)| !**is_over) {
            *is_over = true;
        }
        while self.is_over.get(self.first).is_some_and(|is_over| *is_over) {
            self.first += 1;
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Order {
    /// Commands that have not ended.
    open: Seqs,
    turns: Turns,
}

impl Order {
    /// For a replay of the commands with these numbers, and of these writes among them.
    pub fn new(all: Seqs, writes: Turns) -> Self {
        Self { open: all, turns: writes }
    }

    /// Whether all commands have ended that had ended before a command began.
    pub fn has_seen(&self, after: u64) -> bool {
        self.open.first().is_none_or(|first| first > after)
    }

    /// Whether it is this write's turn.
    pub fn is_turn(&self, turn: Turn) -> bool {
        self.turns.may_start(turn)
    }

    /// A command has ended, or will not run.
    pub fn ended(&mut self, seq: u64, turn: Option<Turn>) {
        self.open.remove(seq);
        if let Some(turn) = turn {
            self.turns.ended(turn);
        }
    }
}

#[cfg(test)]
#[path = "order_tests.rs"]
mod tests;
