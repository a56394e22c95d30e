//! What is known of statements that may be sent together with those of other sessions: how long they take, and whether what they read
//! runs code.
//!
//! One [`Habits`] a lane. A statement is known by its digest, the schema it runs in and how its text is read. It is learnt while it
//! runs alone, and goes on being watched. INVARIANT: an unknown statement is not quick, and one without a proof is not harmless.

use crate::session_state::state::Text;
use sql::LexMode;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// Runs after which a statement is known.
const LEARNT_RUNS: u32 = 32;
/// Runs after which both counts are halved, so that what was long ago counts less.
const MOST_RUNS: u32 = 1024;
/// One in so many runs may be slow: the limit is that of the 99th percentile.
const ONE_SLOW_IN: u32 = 100;
/// How long a statement runs alone after a run that was not like the others, ms.
const REST_MS: u64 = 10_000;
/// How long a question for a proof may take until another session asks, ms.
const ASKED_MS: u64 = 1_000;
/// Statements that are known at a time. If there are more, all are forgotten.
const MOST_KNOWN: usize = 4_096;

/// Which statement.
#[derive(Clone, PartialEq, Eq, Hash)]
struct HabitKey {
    digest: u64,
    schema: Option<Text>,
    lex: LexMode,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Habits(RefCell<HashMap<HabitKey, Rc<Habit>>>);

/// What was found of the code behind a statement's tables.
#[derive(Clone, Copy, Default)]
struct Proof {
    is_harmless: bool,
    ddl_epoch: u64,
    until_ms: u64,
}

/// What is known of one statement. Times are the process clock's.
#[derive(Default)]
pub(crate) struct Habit {
    runs: Cell<u32>,
    slow: Cell<u32>,
    rests_until_ms: Cell<u64>,
    proof: Cell<Proof>,
    asked_until_ms: Cell<u64>,
}

impl Habits {
    /// What is known of the statement, if it ran before.
    pub(crate) fn get(&self, digest: u64, schema: Option<&Text>, lex: LexMode) -> Option<Rc<Habit>> {
        self.0.borrow().get(&HabitKey { digest, schema: schema.cloned(), lex }).cloned()
    }

    /// The same; it is known from now on.
    pub(crate) fn get_or_begin(&self, digest: u64, schema: Option<&Text>, lex: LexMode) -> Rc<Habit> {
        let mut known = self.0.borrow_mut();
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        Rc::clone(known.entry(HabitKey { digest, schema: schema.cloned(), lex }).or_default())
    }
}

impl Habit {
    /// It ran, and its reply was as it should be.
    pub(crate) fn ran(&self, took_us: u64, limit_us: u64) {
        if self.runs.get() >= MOST_RUNS {
            self.runs.set(self.runs.get() / 2);
            self.slow.set(self.slow.get() / 2);
        }
        self.runs.set(self.runs.get() + 1);
        self.slow.set(self.slow.get() + u32::from(took_us > limit_us));
    }

    /// Its reply had an error or a warning, was long, late, or said that the session changed: it runs alone for a while.
    pub(crate) fn rests(&self, now_ms: u64) {
        self.rests_until_ms.set(now_ms + REST_MS);
    }

    /// Whether it ran often, nearly always within the limit, and like this for a while.
    pub(crate) fn is_quick(&self, now_ms: u64) -> bool {
        let (runs, slow) = (self.runs.get(), self.slow.get());
        runs >= LEARNT_RUNS && slow.saturating_mul(ONE_SLOW_IN) <= runs && self.rests_until_ms.get() <= now_ms
    }

    /// Whether it may be sent together with others: it is quick, and what it reads is proved to run no code.
    pub(crate) fn is_proven(&self, ddl_epoch: u64, now_ms: u64) -> bool {
        let proof = self.proof.get();
        proof.is_harmless && proof.ddl_epoch == ddl_epoch && now_ms < proof.until_ms && self.is_quick(now_ms)
    }

    /// Whether the caller is to look for a proof: it is quick, nothing is known, and nobody looks already.
    pub(crate) fn is_proof_due(&self, ddl_epoch: u64, now_ms: u64) -> bool {
        let proof = self.proof.get();
        let is_known = proof.ddl_epoch == ddl_epoch && now_ms < proof.until_ms;
        let is_due = self.is_quick(now_ms) && !is_known && self.asked_until_ms.get() <= now_ms;
        if is_due {
            self.asked_until_ms.set(now_ms + ASKED_MS);
        }
        is_due
    }

    /// What was found, which holds until `until_ms` or the next data definition.
    pub(crate) fn proved(&self, is_harmless: bool, ddl_epoch: u64, until_ms: u64) {
        self.proof.set(Proof { is_harmless, ddl_epoch, until_ms });
        self.asked_until_ms.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(habit: &Habit, quick: u32, slow: u32) {
        (0..quick).for_each(|_| habit.ran(900, 1000));
        (0..slow).for_each(|_| habit.ran(1001, 1000));
    }

    #[test]
    fn who_is_quick_ran_often_and_one_in_a_hundred_times_slowly_at_most() {
        for (quick, slow, expected) in [(0, 0, false), (31, 0, false), (32, 0, true), (60, 1, false), (99, 1, true), (198, 2, true)] {
            let habit = Habit::default();
            ran(&habit, quick, slow);
            assert_eq!(habit.is_quick(0), expected, "{quick} {slow}");
        }
        let habit = Habit::default();
        ran(&habit, 32, 20);
        ran(&habit, 100_000, 0);
        assert!(habit.is_quick(0), "what was long ago counts less");
        assert!(habit.runs.get() <= MOST_RUNS);
    }

    #[test]
    fn who_was_not_like_itself_runs_alone_for_a_while() {
        let habit = Habit::default();
        ran(&habit, 32, 0);
        habit.rests(5);
        assert!(!habit.is_quick(5 + REST_MS - 1) && habit.is_quick(5 + REST_MS));
    }

    #[test]
    fn a_proof_is_of_one_epoch_and_ages() {
        let habit = Habit::default();
        assert!(!habit.is_proof_due(1, 10), "it is not quick");
        ran(&habit, 32, 0);
        assert!(!habit.is_proven(1, 10));
        assert!(habit.is_proof_due(1, 10) && !habit.is_proof_due(1, 11), "one asks");
        assert!(habit.is_proof_due(1, 10 + ASKED_MS), "that one did not come back");
        habit.proved(true, 1, 100);
        assert!(habit.is_proven(1, 99) && !habit.is_proven(1, 100) && !habit.is_proven(2, 99));
        assert!(!habit.is_proof_due(1, 99) && habit.is_proof_due(2, 99));
        habit.proved(false, 2, 200);
        assert!(!habit.is_proven(2, 150) && !habit.is_proof_due(2, 150));
    }

    #[test]
    fn a_statement_is_its_digest_in_a_schema_read_in_one_way() {
        let (habits, shop): (Habits, Text) = (Habits::default(), b"shop"[..].into());
        let lex = LexMode::default();
        ran(&habits.get_or_begin(1, Some(&shop), lex), 32, 0);
        assert!(habits.get(1, Some(&shop), lex).unwrap().is_quick(0));
        assert!(habits.get(1, None, lex).is_none() && habits.get(2, Some(&shop), lex).is_none());
        assert!(habits.get(1, Some(&shop), LexMode { ansi_quotes: true, ..lex }).is_none());
        (0..MOST_KNOWN as u64).for_each(|digest| drop(habits.get_or_begin(digest, None, lex)));
        assert!(habits.0.borrow().len() <= MOST_KNOWN);
    }
}
