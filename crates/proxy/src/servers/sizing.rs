//! How many connections to a server help: learnt from what they achieve while sessions wait for them.
//!
//! A turn is a connection given to one who waits. More connections help as long as turns come more often. While that is being
//! learnt the pool grows in steps; when a step has not helped, it keeps what it had before, and tries again later. Pure: no clock,
//! no server.
//!
//! INVARIANT: nothing is concluded from few turns. A pool whose connections are all kept by long work grows in small steps, as long
//! as connects succeed: a server that stalls gets no more of them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// Connections that a server gets at once.
pub(crate) const FIRST: u32 = 8;
/// Connections that it gets whether they help or not, when sessions wait for longer than a moment: a session that never waits costs
/// the proxy less.
pub(crate) const FREE: f64 = 64.0;
/// The same where most statements go to a server together with others: the more of them wait, the more go together.
const FREE_SHARED: f64 = 16.0;
/// Reports that are further apart than this have a time between them in which nobody waited, turns one in which the server stood
/// still, us.
const BREAK_US: u64 = 20_000;
/// The shortest time that counts as one sample, us.
const WINDOW_US: u64 = 50_000;
/// The same where there are many: a step is smaller then, and so is what it does.
const CAREFUL_WINDOW_US: u64 = 250_000;
/// Turns that a sample has at least, for each connection and in all.
const TURNS_EACH: f64 = 4.0;
const TURNS: f64 = 100.0;
/// How much of what a step adds to connections must come out as turns.
const HELPS: f64 = 0.4;
/// A step that has added such a share of connections is judged, though it may open some more.
const DONE: f64 = 0.25;
/// The best is forgotten when turns come less often than this share of it.
const LOST: f64 = 0.7;
/// How long nothing more is tried after a step that did not help: at first, and at most, us.
const PAUSE_US: u64 = 1_000_000;
const LONGEST_PAUSE_US: u64 = 60_000_000;
/// How long after it was seen last the best is had again at once, us.
const KNOWN_FOR_US: u64 = 60_000_000;
/// How long few turns are waited for before a small step, us.
const SMALL_STEP_US: u64 = 100_000;

/// What connections achieved while somebody always waited.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    /// Those that took turns, on average.
    pub connections: f64,
    /// Turns a second.
    pub rate: f64,
}

/// What those who waited got since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turns {
    /// Statements: each is one turn, also of those that went together.
    pub count: u64,
    /// Those of them that went together with others, behind the first.
    pub together: u64,
    /// How long the connections had been held together, us.
    pub held_us: u64,
}

impl Turns {
    pub(crate) fn add(&mut self, more: Self) {
        self.count += more.count;
        self.together += more.together;
        self.held_us += more.held_us;
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Each step is compared with what was before it.
    Learning { before: Option<Sample> },
    /// More connections did not help.
    Settled { best: Sample, until_us: u64 },
}

/// See the module. One for each server of a hostgroup.
#[derive(Debug)]
pub(crate) struct Sizing {
    phase: Phase,
    /// The window: its begin, the last report, the last turn, the turns in it and how long their connections were held together.
    since_us: u64,
    last_us: u64,
    turned_us: u64,
    turns: Turns,
    /// When there was a step last.
    stepped_us: u64,
    /// [`FREE`], or [`FREE_SHARED`].
    free: f64,
    /// Connections that may be opened now.
    permits: u32,
    /// Connections that the step under way has opened.
    opened: u32,
    /// Connections that a step opened in vain.
    surplus: u32,
    pause_us: u64,
    /// The last sample, and when that was.
    seen: Sample,
    judged_us: u64,
}

impl Default for Sizing {
    fn default() -> Self {
        Self {
            phase: Phase::Learning { before: None },
            since_us: 0,
            last_us: 0,
            turned_us: 0,
            turns: Turns::default(),
            stepped_us: 0,
            free: FREE,
            permits: FIRST,
            opened: 0,
            surplus: 0,
            pause_us: PAUSE_US,
            seen: Sample::default(),
            judged_us: 0,
        }
    }
}

impl Sizing {
    /// Somebody waits at `now_us`. There were these turns since the last report; `open` connections exist, `connecting` of them not
    /// yet. `helped` is what the hostgroup's servers had last: one that is new in its role gets that at once. Returns how many are to
    /// be closed.
    pub(crate) fn report(&mut self, now_us: u64, turns: Turns, (open, connecting): (u32, u32), helped: u32) -> u32 {
        if now_us.saturating_sub(self.last_us) > BREAK_US {
            (self.turned_us, self.stepped_us) = (0, now_us);
        }
        self.last_us = now_us;
        if turns.count > 0 {
            if now_us.saturating_sub(self.turned_us) > BREAK_US {
                (self.since_us, self.turns) = (now_us, Turns::default());
            } else {
                self.turns.add(turns);
            }
            self.turned_us = now_us;
        }
        let known = match self.phase {
            Phase::Settled { best, .. } if now_us.saturating_sub(self.judged_us) < KNOWN_FOR_US => best.connections.ceil() as u32,
            Phase::Learning { before: None } if self.judged_us == 0 => helped,
            Phase::Settled { .. } | Phase::Learning { .. } => 0,
        };
        self.permits = self.permits.max(known.max(FIRST).saturating_sub(open));
        let took_us = now_us.saturating_sub(self.since_us).max(1);
        let sample =
            Sample { connections: self.turns.held_us as f64 / took_us as f64, rate: self.turns.count as f64 * 1e6 / took_us as f64 };
        let has_enough = self.turns.count as f64 >= TURNS.max(sample.connections * TURNS_EACH);
        let stands_still = now_us.saturating_sub(self.turned_us) > BREAK_US;
        if has_enough && !stands_still && took_us >= self.window_us() {
            self.free = if self.turns.together * 2 > self.turns.count { FREE_SHARED } else { FREE };
            (self.since_us, self.turns) = (now_us, Turns::default());
            self.judge(sample, now_us);
        } else if (stands_still || !has_enough && took_us >= SMALL_STEP_US) && now_us.saturating_sub(self.stepped_us) >= SMALL_STEP_US {
            self.has_few_turns(sample, open, connecting, now_us);
        }
        std::mem::take(&mut self.surplus)
    }

    fn window_us(&self) -> u64 {
        match self.phase {
            Phase::Learning { before: Some(before) } if before.connections < self.free => WINDOW_US,
            Phase::Learning { before: Some(_) } => CAREFUL_WINDOW_US,
            // What is over sooner needs nothing.
            Phase::Learning { before: None } | Phase::Settled { .. } => 2 * WINDOW_US,
        }
    }

    fn judge(&mut self, sample: Sample, now_us: u64) {
        (self.seen, self.judged_us) = (sample, now_us);
        match self.phase {
            Phase::Learning { before: None } => self.learn_more(sample, now_us),
            Phase::Learning { before: Some(before) } => {
                if sample.connections < before.connections * 0.9 {
                    // Some were closed meanwhile: that is no step.
                    self.phase = Phase::Learning { before: None };
                    return;
                }
                let grown = sample.connections / before.connections.max(1e-3) - 1.0;
                let gained = sample.rate / before.rate.max(1e-3) - 1.0;
                if self.permits > 0 && grown < DONE {
                    // The step is not done: there are not so many who wait, or the server is full.
                    return;
                }
                if gained >= HELPS * grown.max(DONE / 2.0) || before.connections < self.free * 0.9 {
                    self.pause_us = PAUSE_US;
                    self.learn_more(sample, now_us);
                } else {
                    let best = if sample.rate > before.rate { Sample { rate: sample.rate, ..before } } else { before };
                    self.surplus = self.opened;
                    self.settle(best, now_us);
                }
            }
            Phase::Settled { best, .. } if sample.rate < best.rate * LOST => {
                self.phase = Phase::Learning { before: None };
                self.pause_us = PAUSE_US;
            }
            Phase::Settled { best, until_us } => {
                let best = if sample.rate > best.rate { sample } else { best };
                self.phase = Phase::Settled { best, until_us };
                if now_us >= until_us {
                    self.phase = Phase::Learning { before: None };
                }
            }
        }
    }

    /// The next step from what this sample has seen: the first ones are large and soon over.
    fn learn_more(&mut self, sample: Sample, now_us: u64) {
        self.phase = Phase::Learning { before: Some(sample) };
        let more =
            if sample.connections < self.free { sample.connections.min(self.free - sample.connections) } else { sample.connections / 4.0 };
        self.step((more.ceil() as u32).max(1), now_us);
    }

    fn settle(&mut self, best: Sample, now_us: u64) {
        (self.permits, self.opened) = (0, 0);
        self.phase = Phase::Settled { best, until_us: now_us + self.pause_us };
        self.pause_us = (self.pause_us * 2).min(LONGEST_PAUSE_US);
    }

    fn step(&mut self, connections: u32, now_us: u64) {
        (self.permits, self.opened, self.stepped_us) = (connections, 0, now_us);
    }

    /// Connections are kept for so long that nothing can be said: a small step, if the server lets in who connects.
    fn has_few_turns(&mut self, sample: Sample, open: u32, connecting: u32, now_us: u64) {
        let is_moving = now_us.saturating_sub(self.turned_us) <= BREAK_US;
        let is_as_good = matches!(self.phase, Phase::Settled { best, .. } if is_moving && sample.rate >= best.rate * LOST);
        if connecting == 0 && !is_as_good {
            // What nobody wanted yet adds up: there may be reasons to wait before one is opened.
            self.step((self.permits + 1 + open / 4).min(open.max(1)), now_us);
        }
    }

    pub(crate) fn may_open(&self) -> bool {
        self.permits > 0
    }

    pub(crate) fn opens(&mut self) {
        self.permits = self.permits.saturating_sub(1);
        self.opened += 1;
    }

    /// Others are welcome to what one took that was not opened after all.
    pub(crate) fn gave_up(&mut self) {
        self.permits += 1;
        self.opened = self.opened.saturating_sub(1);
    }

    /// What was seen last, and in words what follows from it.
    pub(crate) fn verdict(&self) -> (Sample, String) {
        let words = match self.phase {
            Phase::Learning { before: None } => "learning".to_owned(),
            Phase::Learning { before: Some(before) } => {
                format!("learning: {:.0} connections had {:.0} turns a second", before.connections, before.rate)
            }
            Phase::Settled { best, .. } => {
                format!("more connections do not help: {:.0} had {:.0} turns a second", best.connections, best.rate)
            }
        };
        (self.seen, words)
    }
}

/// The sizing of a server, for all workers.
#[derive(Debug)]
pub(crate) struct SharedSizing {
    sizing: Mutex<Sizing>,
    may_open: AtomicBool,
    surplus: AtomicU32,
}

impl Default for SharedSizing {
    fn default() -> Self {
        Self { sizing: Mutex::default(), may_open: AtomicBool::new(true), surplus: AtomicU32::new(0) }
    }
}

impl SharedSizing {
    fn with<T>(&self, ask: impl FnOnce(&mut Sizing) -> T) -> T {
        let mut sizing = self.sizing.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = ask(&mut sizing);
        self.may_open.store(sizing.may_open(), Ordering::Release);
        answer
    }

    /// See [`Sizing::report`].
    pub(crate) fn report(&self, now_us: u64, turns: Turns, connections: (u32, u32), helped: &AtomicU32) {
        let before = helped.load(Ordering::Relaxed);
        let (surplus, seen) =
            self.with(|sizing| (sizing.report(now_us, turns, connections, before), sizing.seen.connections.ceil() as u32));
        if seen > 0 && seen != before {
            helped.store(seen, Ordering::Relaxed);
        }
        if surplus > 0 {
            self.surplus.store(surplus, Ordering::Release);
        }
    }

    pub(crate) fn may_open(&self) -> bool {
        self.may_open.load(Ordering::Acquire)
    }

    /// Takes the right to open one.
    pub(crate) fn opens(&self) -> bool {
        self.with(|sizing| {
            let may_open = sizing.may_open();
            if may_open {
                sizing.opens();
            }
            may_open
        })
    }

    /// It was not opened after all.
    pub(crate) fn gave_up(&self) {
        self.with(Sizing::gave_up);
    }

    /// Whether the connection at hand is to be closed.
    pub(crate) fn takes_surplus(&self) -> bool {
        let is_any = self.surplus.load(Ordering::Relaxed) > 0;
        is_any && self.surplus.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1)).is_ok()
    }

    /// See [`Sizing::verdict`].
    pub(crate) fn verdict(&self) -> (Sample, String) {
        self.with(|sizing| sizing.verdict())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that has `best` connections' worth of work done at a time, each piece in `work_us`; sessions always wait.
    struct Bed {
        sizing: Sizing,
        open: u32,
        now_us: u64,
        best: f64,
        work_us: f64,
        turns: f64,
        most: u32,
        connecting: u32,
        helped: u32,
        /// Such a part of the statements goes there together with others.
        shared: f64,
    }

    impl Bed {
        fn new(best: f64, work_us: f64) -> Self {
            Self {
                sizing: Sizing::default(),
                open: 0,
                now_us: 1_000_000,
                best,
                work_us,
                turns: 0.0,
                most: 0,
                connecting: 0,
                helped: 0,
                shared: 0.0,
            }
        }

        /// So many ms pass. `busy`: connections that take no turns.
        fn pass(&mut self, ms: u64, busy: u32) {
            for _ in 0..ms {
                self.now_us += 1_000;
                let taking = f64::from(self.open.saturating_sub(busy));
                self.turns += taking.min(self.best) * 1_000.0 / self.work_us;
                let whole = self.turns.floor();
                self.turns -= whole;
                let count = whole as u64;
                let turns = Turns { count, together: (whole * self.shared) as u64, held_us: (taking * 1_000.0) as u64 };
                let surplus = self.sizing.report(self.now_us, turns, (self.open, self.connecting), self.helped);
                self.open -= surplus.min(self.open);
                while self.connecting == 0 && self.sizing.may_open() {
                    self.sizing.opens();
                    self.open += 1;
                }
                self.most = self.most.max(self.open);
            }
        }
    }

    #[test]
    fn where_statements_go_together_only_those_are_opened_that_help() {
        for (best, shared, fits) in [(2.0, 0.9, 16..=17), (40.0, 0.9, 30..=64), (2.0, 0.4, 64..=65)] {
            let mut bed = Bed { shared, ..Bed::new(best, 400.0) };
            bed.pass(3_000, 0);
            assert!(fits.contains(&bed.open), "{best} {shared}: {}", bed.open);
        }
    }

    #[test]
    fn no_more_are_opened_than_help() {
        let free = FREE as u32;
        for (best, fits) in [(2.0, free..=free + 1), (20.0, free..=free + 1), (100.0, 90..=160), (400.0, 350..=650)] {
            let mut bed = Bed::new(best, 400.0);
            bed.pass(5_000, 0);
            assert!(fits.contains(&bed.open), "{best}: {} are open", bed.open);
            assert!(bed.most <= fits.end() * 3 / 2 + 1, "{best}: {} were open", bed.most);
            bed.most = 0;
            bed.pass(60_000, 0);
            assert!(bed.most <= fits.end() * 3 / 2 + 1, "{best}: {} were tried later", bed.most);
            assert!(fits.contains(&bed.open), "{best}: {} are open in the end", bed.open);
        }
    }

    #[test]
    fn a_server_with_a_new_role_gets_what_the_one_before_had() {
        let mut bed = Bed::new(400.0, 5_000.0);
        bed.helped = 300;
        bed.pass(1, 0);
        assert_eq!(bed.open, 300);
    }

    #[test]
    fn connections_that_were_closed_are_no_step_back() {
        let mut bed = Bed::new(400.0, 5_000.0);
        bed.pass(5_000, 0);
        bed.open = 100;
        bed.now_us += 100_000_000;
        bed.pass(300, 0);
        bed.most = bed.open;
        let mut least = bed.open;
        for _ in 0..30 {
            bed.pass(100, 0);
            least = least.min(bed.open);
        }
        assert!(least >= 100 && bed.open >= 300, "{least} at least, {} now", bed.open);
    }

    #[test]
    fn long_work_gets_connections_in_small_steps() {
        // Each keeps its connection for five seconds.
        let mut bed = Bed::new(1_000.0, 5_000_000.0);
        bed.pass(100, 0);
        assert_eq!(bed.open, FIRST);
        bed.pass(1_200, 0);
        assert!(bed.open >= 60, "{}", bed.open);
    }

    #[test]
    fn a_server_that_lets_nobody_in_gets_no_more_connects() {
        let mut bed = Bed::new(8.0, 400.0);
        bed.pass(2_000, 0);
        let before = bed.open;
        // It hangs: no turns, and a connect that does not end.
        (bed.best, bed.connecting) = (0.0, 1);
        bed.pass(2_000, 0);
        assert_eq!(bed.open, before);
        (bed.best, bed.connecting) = (8.0, 0);
        bed.pass(2_000, 0);
        assert!(bed.open <= before + before / 2 + 1, "{}", bed.open);
    }

    #[test]
    fn a_server_that_stalls_gets_few_more_connections() {
        let mut bed = Bed::new(2.0, 400.0);
        bed.pass(3_000, 0);
        for _ in 0..10 {
            // It stands still, and a connect to it does not end. Then it works off what has gathered.
            (bed.best, bed.connecting) = (0.0, 1);
            bed.pass(500, 0);
            (bed.best, bed.connecting) = (2.0, 0);
            bed.pass(1_000, 0);
        }
        assert!(f64::from(bed.most) <= FREE * 1.5, "{}", bed.most);
    }

    #[test]
    fn work_that_gets_longer_is_learnt_anew() {
        let mut bed = Bed::new(4.0, 100.0);
        bed.pass(3_000, 0);
        assert!(f64::from(bed.open) <= FREE, "{}", bed.open);
        // From now on it waits for a disk that has many heads.
        (bed.best, bed.work_us) = (300.0, 5_000.0);
        bed.pass(5_000, 0);
        assert!(bed.open >= 250, "{}", bed.open);
    }

    #[test]
    fn connections_that_sessions_keep_do_not_count() {
        let mut bed = Bed::new(8.0, 400.0);
        bed.pass(3_000, 0);
        let busy = bed.open - 2;
        bed.pass(3_000, busy);
        assert!(bed.open >= busy + 6, "{} of {busy} are kept", bed.open);
    }

    #[test]
    fn a_burst_that_is_over_soon_opens_nothing() {
        let mut bed = Bed::new(100.0, 400.0);
        bed.pass(10, 0);
        let before = bed.open;
        for _ in 0..20 {
            bed.now_us += 1_000_000;
            bed.pass(30, 0);
        }
        assert_eq!(bed.open, before);
    }
}
