//! What is known of statements that may be sent together with those of other sessions: how long they take, and whether what they read
//! runs code.
//!
//! One [`Habits`] a lane. A statement is known by its digest, the schema it runs in and how its text is read. It is learnt while it
//! runs alone, and goes on being watched. INVARIANT: an unknown statement is not quick, and one without a proof is not harmless.

use model::settings::MysqlVariables;
use session_state::state::Text;
use sql::LexMode;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// Runs after which a statement is known.
const LEARNT_RUNS: u32 = 32;
/// Runs after which both counts are halved, so that what was long ago counts less.
const MOST_RUNS: u32 = 1024;
/// One in so many runs may be slow: the limit is that of the 95th percentile. What is late besides has its own rules.
const ONE_SLOW_IN: u32 = 20;
/// A run within so many times what runs of all statements take is not slow: on a busy machine all take longer.
const SLOW_FACTOR: u64 = 8;
/// The typical time follows one run by one part in so many.
const TYPICAL_STEP: u64 = 32;
/// How long a statement runs alone after a reply that was not like the others, ms.
const REST_MS: u64 = 10_000;
/// How long it runs alone after it was late once, ms. The rest is doubled, up to [`REST_MS`], while it is late again soon.
const LATE_REST_MS: u64 = 100;
/// Late again within so many times the last rest is soon.
const SOON: u64 = 10;
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
pub(crate) struct Habits {
    known: RefCell<HashMap<HabitKey, Rc<Habit>>>,
    /// The median of the times of runs alone, us, as it moves.
    typical_us: Cell<u64>,
}

/// Times that settings give, us.
#[derive(Clone, Copy)]
pub(crate) struct QuickLimits {
    /// What a quick statement may take, whatever others take.
    pub quick_us: u64,
    /// What is late, whatever others take.
    pub late_us: u64,
}

impl QuickLimits {
    pub(crate) fn of(vars: &MysqlVariables) -> Self {
        Self { quick_us: vars.pipeline_max_statement_us, late_us: vars.pipeline_late_ms * 1000 }
    }
}

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
    /// How long it rested when it was late last, ms.
    late_rest_ms: Cell<u64>,
    /// The median of the times between the reply before and its own, of runs behind others on one connection, us, as it moves; 0 is
    /// not known.
    beside_us: Cell<u64>,
    proof: Cell<Proof>,
    asked_until_ms: Cell<u64>,
}

impl Habits {
    /// What is known of the statement, if it ran before.
    pub(crate) fn get(&self, digest: u64, schema: Option<&Text>, lex: LexMode) -> Option<Rc<Habit>> {
        self.known.borrow().get(&HabitKey { digest, schema: schema.cloned(), lex }).cloned()
    }

    /// The same; it is known from now on.
    pub(crate) fn get_or_begin(&self, digest: u64, schema: Option<&Text>, lex: LexMode) -> Rc<Habit> {
        let mut known = self.known.borrow_mut();
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        Rc::clone(known.entry(HabitKey { digest, schema: schema.cloned(), lex }).or_default())
    }

    /// A statement ran alone, and its reply was as it should be.
    pub(crate) fn ran_alone(&self, habit: &Habit, took_us: u64, limits: QuickLimits) {
        step_to(&self.typical_us, took_us);
        habit.ran(self.is_slow(took_us, limits));
    }

    /// The same of one that was sent together with others. Behind the first of them, the time is the server's work at it.
    pub(crate) fn ran_beside(&self, habit: &Habit, took_us: u64, is_first: bool, limits: QuickLimits) {
        if !is_first {
            step_to(&habit.beside_us, took_us);
        }
        habit.ran(self.is_slow(took_us, limits));
    }

    fn is_slow(&self, took_us: u64, limits: QuickLimits) -> bool {
        took_us > limits.quick_us.max((self.typical_us.get() * SLOW_FACTOR).min(limits.late_us))
    }
}

/// Moves what is to become the median a little towards this time.
fn step_to(median_us: &Cell<u64>, took_us: u64) {
    let us = median_us.get();
    let step_us = (us / TYPICAL_STEP).max(1);
    median_us.set(if took_us > us { us + step_us } else { us - step_us.min(us) });
}

impl Habit {
    /// How long the server works at it, us, as far as that is known: 0 before.
    pub(crate) fn beside_us(&self) -> u64 {
        self.beside_us.get()
    }

    fn ran(&self, is_slow: bool) {
        if self.runs.get() >= MOST_RUNS {
            self.runs.set(self.runs.get() / 2);
            self.slow.set(self.slow.get() / 2);
        }
        self.runs.set(self.runs.get() + 1);
        self.slow.set(self.slow.get() + u32::from(is_slow));
    }

    /// Its reply had an error or a warning, was long, or said that the session changed: it runs alone for a while.
    pub(crate) fn rests(&self, now_ms: u64) {
        self.rests_until_ms.set(now_ms + REST_MS);
    }

    /// It was late. Once may be the machine's fault, so that it runs alone for a moment only.
    pub(crate) fn was_late(&self, now_ms: u64) {
        let (last_ms, until_ms) = (self.late_rest_ms.get(), self.rests_until_ms.get());
        let rest_ms = match last_ms {
            // Its other runs of that moment are late for the same reason.
            last_ms if now_ms < until_ms => last_ms.max(LATE_REST_MS),
            last_ms if last_ms > 0 && now_ms < until_ms + last_ms * SOON => (last_ms * 2).min(REST_MS),
            _ => LATE_REST_MS,
        };
        self.late_rest_ms.set(rest_ms);
        self.rests_until_ms.set(until_ms.max(now_ms + rest_ms));
    }

    /// The server still works at the run that was late: the rest begins again.
    pub(crate) fn is_late_still(&self, now_ms: u64) {
        self.rests_until_ms.set(self.rests_until_ms.get().max(now_ms + self.late_rest_ms.get()));
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
        (0..quick).for_each(|_| habit.ran(false));
        (0..slow).for_each(|_| habit.ran(true));
    }

    #[test]
    fn slow_is_what_takes_much_longer_than_others() {
        const LIMITS: QuickLimits = QuickLimits { quick_us: 1_000, late_us: 50_000 };
        let (habits, usual, rare) = (Habits::default(), Habit::default(), Habit::default());
        let times = |each_us: u64, rare_us: u64| {
            for nth in 0..2_000 {
                habits.ran_alone(&usual, each_us, LIMITS);
                if nth % 10 == 0 {
                    habits.ran_alone(&rare, rare_us, LIMITS);
                }
            }
        };
        times(100, 900);
        assert!(usual.is_quick(0) && rare.is_quick(0), "the limit is time enough, whatever others take");
        times(3_000, 3_000);
        assert!(usual.is_quick(0), "on a busy machine all take longer");
        times(3_000, 40_000);
        assert!(usual.is_quick(0) && !rare.is_quick(0), "one that takes longer than the others is slow there too");
        times(100, 3_000);
        assert!(usual.is_quick(0) && !rare.is_quick(0));
        times(9_000, 60_000);
        assert!(usual.is_quick(0) && !rare.is_quick(0), "what is late is slow, whatever others take");
        let typical_us = habits.typical_us.get();
        habits.ran_beside(&usual, 1, false, LIMITS);
        assert_eq!(habits.typical_us.get(), typical_us, "a reply that waited behind others says nothing");
        assert_eq!(usual.beside_us(), 1);
        (0..1_000).for_each(|_| habits.ran_beside(&usual, 700, true, LIMITS));
        assert_eq!(usual.beside_us(), 1, "the first one's time has the way there and back");
        (0..1_000).for_each(|_| habits.ran_beside(&usual, 700, false, LIMITS));
        assert!((650..750).contains(&usual.beside_us()), "{}", usual.beside_us());
    }

    #[test]
    fn who_is_late_again_and_again_rests_longer_each_time() {
        let habit = Habit::default();
        ran(&habit, 32, 0);
        let rest_ms = |now_ms| {
            habit.was_late(now_ms);
            (1..).find(|ms| habit.is_quick(now_ms + ms)).unwrap()
        };
        habit.was_late(4);
        assert_eq!(rest_ms(5), LATE_REST_MS, "what is late at the same time is late once");
        let mut now_ms = 5 + LATE_REST_MS;
        for expected in [200, 400, 800, 1_600, 3_200, 6_400, REST_MS, REST_MS] {
            assert_eq!(rest_ms(now_ms), expected);
            now_ms += expected;
        }
        assert_eq!(rest_ms(now_ms + REST_MS * SOON), LATE_REST_MS, "it was like the others for long");
        habit.is_late_still(now_ms + 500 + REST_MS * SOON);
        assert!(!habit.is_quick(now_ms + 599 + REST_MS * SOON), "the run goes on");
        habit.rests(1);
        habit.was_late(2);
        assert!(!habit.is_quick(REST_MS), "a longer rest stands");
    }

    #[test]
    fn who_is_quick_ran_often_and_one_in_twenty_times_slowly_at_most() {
        for (quick, slow, expected) in [(0, 0, false), (31, 0, false), (32, 0, true), (34, 2, false), (19, 1, false), (38, 2, true)] {
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
        assert!(habits.known.borrow().len() <= MOST_KNOWN);
    }
}
