//! The order rule of a replay: a command starts when all commands that had ended before it started at the original have ended.
//!
//! It keeps each order that a client could have seen, and lets all other commands overlap. Ends have numbers, so the rule is one
//! comparison: [`Order::may_start`]. A number is smaller than those of later ends, and `after < seq` holds for each command, so the command
//! with the smallest number of those that have not ended may always run.

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

/// See the module.
#[derive(Clone, Debug)]
pub struct Order {
    /// Commands that have not ended.
    open: Seqs,
}

impl Order {
    /// For a replay of the commands with these numbers.
    pub fn new(all: Seqs) -> Self {
        Self { open: all }
    }

    /// Whether a command may start that began when all up to `after` had ended.
    pub fn may_start(&self, after: u64) -> bool {
        self.open.first().is_none_or(|first| first > after)
    }

    /// The command with this number has ended, or will not run.
    pub fn ended(&mut self, seq: u64) {
        self.open.remove(seq);
    }

    /// The smallest number of a command that has not ended.
    pub fn first_open(&self) -> Option<u64> {
        self.open.first()
    }
}

#[cfg(test)]
#[path = "order_tests.rs"]
mod tests;
