//! Rehearsals that run or have run: one for the process, read by workers and by the admin interface.
//!
//! A worker reads two atomics for each statement while nothing is rehearsed. INVARIANT: a run counts whatever it left out, with the reason.

use crate::before::Before;
use crate::judge::Class;
use crate::tally::Tally;
use crate::verdict::Coverage;
use arc_swap::ArcSwap;
use model::snapshot::{Rehearsal, RehearsalMode};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Most rounds of second questions of a rehearsal that are under way at a time: a slow read runs on the original as often at most.
const MAX_ROUNDS: u64 = 2;

/// Why a read was not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// It ran in a transaction that may write.
    Transaction,
    /// The session has state that only its connection has, such as a temporary table.
    PinnedState,
    /// It reads a fact of the session, such as LAST_INSERT_ID().
    SessionFact,
    /// It has a cursor or long data.
    Form,
    /// The statement or a row of the answer is too long.
    TooLong,
    /// The original had no complete answer.
    Original,
    /// The shadow could not be asked.
    Failed,
    /// The shadow refused a write, for example of a function that a view calls.
    Writes,
    /// Its session was not whole at that time (mode `all`).
    Incomplete,
    /// It ran in another hostgroup (mode `all`).
    Elsewhere,
    /// It is about the server, accounts, other sessions or locks by name (mode `all`).
    LeftOut,
    /// It may read, but its text does not show what (mode `reads`): [`crate::Reads::Perhaps`].
    Hidden,
}

/// All of them, in the order of their numbers.
pub const SKIPS: [Skip; 12] = [
    Skip::Transaction,
    Skip::PinnedState,
    Skip::SessionFact,
    Skip::Form,
    Skip::TooLong,
    Skip::Original,
    Skip::Failed,
    Skip::Writes,
    Skip::Incomplete,
    Skip::Elsewhere,
    Skip::LeftOut,
    Skip::Hidden,
];

impl Skip {
    /// The name that tables and metrics show.
    pub fn name(self) -> &'static str {
        match self {
            Self::Transaction => "in a transaction",
            Self::PinnedState => "pinned state",
            Self::SessionFact => "session facts",
            Self::Form => "cursor or long data",
            Self::TooLong => "too long",
            Self::Original => "no answer of the original",
            Self::Failed => "shadow not reached",
            Self::Writes => "writes",
            Self::Incomplete => "session incomplete",
            Self::Elsewhere => "other hostgroup",
            Self::LeftOut => "left out",
            Self::Hidden => "EXECUTE or CALL",
        }
    }
}

/// Why a session is not repeated any more, or (mode `all`) is incomplete until its next boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GaveUp {
    /// The queue was full.
    QueueFull,
    /// The process is short of memory.
    Memory,
    /// The shadow refused the login.
    Login,
    /// It has state that only its connection has, so its copy cannot begin.
    PinnedState,
    /// Whether the original ran a statement is not known.
    Original,
    /// A command cannot be copied, for example LOAD DATA.
    Form,
    /// The shadow ended a transaction by a deadlock or a lock that it waited for.
    Order,
    /// The shadow cannot be reached, lost the connection, or did not answer in time.
    Failed,
}

/// All of them, in the order of their numbers.
pub const GIVE_UPS: [GaveUp; 8] =
    [GaveUp::QueueFull, GaveUp::Memory, GaveUp::Login, GaveUp::PinnedState, GaveUp::Original, GaveUp::Form, GaveUp::Order, GaveUp::Failed];

impl GaveUp {
    /// The name that tables and metrics show.
    pub fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue full",
            Self::Memory => "memory",
            Self::Login => "login refused",
            Self::PinnedState => "pinned state",
            Self::Original => "no answer of the original",
            Self::Form => "command not copied",
            Self::Order => "lock order",
            Self::Failed => "shadow not reached",
        }
    }
}

/// What became of a question for the plans of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanEnd {
    /// Both plans are known.
    Known,
    /// A server could not be asked, refused, or answered what cannot be read.
    Failed,
    /// The original's cluster has no server but writers.
    OnlyWriters,
    /// The statement is too long.
    TooLong,
}

/// All of them, in the order of their numbers.
pub const PLAN_ENDS: [PlanEnd; 4] = [PlanEnd::Known, PlanEnd::Failed, PlanEnd::OnlyWriters, PlanEnd::TooLong];

impl PlanEnd {
    /// The name that pages and metrics show.
    pub fn name(self) -> &'static str {
        match self {
            Self::Known => "known",
            Self::Failed => "failed",
            Self::OnlyWriters => "only writers",
            Self::TooLong => "too long",
        }
    }
}

/// What ended a rehearsal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// STOP REHEARSAL.
    Stop,
    /// Its seconds were over.
    Time,
    /// A LOAD without its active row.
    Load,
}

impl Ending {
    /// The name that the page and the log show.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "STOP",
            Self::Time => "time",
            Self::Load => "LOAD",
        }
    }
}

/// A server, as the page names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerName {
    /// `host:port`.
    pub address: String,
    /// What the server calls its version.
    pub version: String,
}

/// What only one thread at a time touches.
#[derive(Debug, Default)]
pub struct Findings {
    /// What was compared.
    pub tally: Tally,
    /// The last error of the rehearsal itself.
    pub error: String,
    /// Why a plan could not be had last.
    pub plan_error: String,
    /// Users whom the shadow does not let in, with its error.
    pub refused: BTreeMap<Box<str>, String>,
    /// The second (process clock) of the last round of questions, and how many were asked in it.
    asked: (u64, u32),
    /// The second (process clock) from which on plans may be asked for again.
    plans_from_s: u64,
    /// The rehearsal has ended, and the tally stays as it is.
    is_closed: bool,
}

/// One rehearsal, from START to the next START.
#[derive(Debug)]
pub struct Run {
    /// What the operator wrote.
    pub plan: Arc<Rehearsal>,
    /// When it began: process clock, ms.
    pub started_ms: u64,
    /// The same, Unix s.
    pub started_at: u64,
    /// When it ends by itself: process clock, ms.
    ends_at_ms: u64,
    /// When it was stopped: process clock, ms; 0 as long as it was not.
    stopped_ms: AtomicU64,
    /// What stopped it.
    stopped_by: OnceLock<Ending>,
    /// Its coverage at the end.
    coverage: OnceLock<Coverage>,
    /// The original's server.
    pub original: ServerName,
    /// The shadow's server.
    pub shadow: ServerName,
    /// What had run on the original before.
    pub before: Before,
    /// What the page says of the shadow's replication; empty if it replicates, or did until START.
    pub replication: String,
    /// Sessions that take or took part.
    pub sessions: AtomicU64,
    /// Statements that were queued.
    pub statements: AtomicU64,
    /// Statements of the warm-up, which do not count.
    pub warming: AtomicU64,
    /// Rounds of second questions.
    pub rechecks: AtomicU64,
    /// How long clients waited for room in the queue, us.
    pub waited_us: AtomicU64,
    /// How long the proxy's threads worked on what is repeated, ns. What sessions note for it is theirs.
    pub busy_ns: AtomicU64,
    /// Writes that later statements overtook, because they waited for a lock (mode `all`).
    pub overtaken: AtomicU64,
    /// Bytes that wait now.
    queued_bytes: AtomicU64,
    rechecking: AtomicU64,
    is_planning: AtomicBool,
    skipped: [AtomicU64; SKIPS.len()],
    given_up: [AtomicU64; GIVE_UPS.len()],
    planned: [AtomicU64; PLAN_ENDS.len()],
    findings: Mutex<Findings>,
}

impl Run {
    /// Begins now.
    pub fn new(plan: Arc<Rehearsal>, [original, shadow]: [ServerName; 2], (now_ms, unix_s): (u64, u64), seconds: Option<u64>) -> Self {
        Self {
            plan,
            started_ms: now_ms,
            started_at: unix_s,
            ends_at_ms: seconds.map_or(u64::MAX, |seconds| now_ms.saturating_add(seconds.saturating_mul(1000))),
            stopped_ms: AtomicU64::new(0),
            stopped_by: OnceLock::new(),
            coverage: OnceLock::new(),
            original,
            shadow,
            before: Before::default(),
            replication: String::new(),
            sessions: AtomicU64::new(0),
            statements: AtomicU64::new(0),
            warming: AtomicU64::new(0),
            rechecks: AtomicU64::new(0),
            waited_us: AtomicU64::new(0),
            busy_ns: AtomicU64::new(0),
            overtaken: AtomicU64::new(0),
            queued_bytes: AtomicU64::new(0),
            rechecking: AtomicU64::new(0),
            is_planning: AtomicBool::new(false),
            skipped: Default::default(),
            given_up: Default::default(),
            planned: Default::default(),
            findings: Mutex::default(),
        }
    }

    /// The same; this had run on the original before.
    pub fn with_before(self, before: Before) -> Self {
        Self { before, ..self }
    }

    /// When it ended (process clock, ms), if it did.
    pub fn ended_ms(&self, now_ms: u64) -> Option<u64> {
        match self.stopped_ms.load(Ordering::Acquire) {
            0 => (now_ms >= self.ends_at_ms).then_some(self.ends_at_ms),
            stopped_ms => Some(stopped_ms),
        }
    }

    /// What ended it, if it has ended.
    pub fn ending(&self, now_ms: u64) -> Option<Ending> {
        self.ended_ms(now_ms).map(|_| self.stopped_by.get().copied().unwrap_or(Ending::Time))
    }

    /// The coverage with which it ended. The first caller after the end has it made from the tally, to which nothing is added any more:
    /// neither later statements nor a reset of the statistics change the verdict.
    pub fn settle(&self, make: impl FnOnce(&Tally) -> Coverage) -> &Coverage {
        self.coverage.get_or_init(|| {
            let tally = {
                let mut findings = self.findings();
                findings.is_closed = true;
                findings.tally.clone()
            };
            make(&tally)
        })
    }

    /// How long it is to run, s; None: until it is stopped.
    pub fn planned_s(&self) -> Option<u64> {
        (self.ends_at_ms != u64::MAX).then(|| self.ends_at_ms.saturating_sub(self.started_ms) / 1000)
    }

    /// How long it ran, or has run so far, s.
    pub fn seconds(&self, now_ms: u64) -> u64 {
        self.ended_ms(now_ms).unwrap_or(now_ms).saturating_sub(self.started_ms) / 1000
    }

    /// Whether what is asked now only warms the shadow's caches.
    pub fn is_warming(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.started_ms) < self.plan.warmup_ms
    }

    /// Called under the desk's lock.
    fn stop(&self, now_ms: u64, by: Ending) {
        if self.ended_ms(now_ms).is_none() {
            // First, so that a run that was stopped says by what.
            let _ = self.stopped_by.set(by);
            self.stopped_ms.store(now_ms.max(1), Ordering::Release);
        }
    }

    /// Takes room for bytes that wait; false where the queue is full.
    pub fn take_room(&self, bytes: u64) -> bool {
        self.take_room_within(bytes, self.plan.queue_bytes)
    }

    /// The same with another limit, bytes.
    pub fn take_room_within(&self, bytes: u64, most: u64) -> bool {
        let taken = self.queued_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, |held| {
            let held = held.saturating_add(bytes);
            (held <= most).then_some(held)
        });
        taken.is_ok()
    }

    /// Bytes wait no more.
    pub fn give_room(&self, bytes: u64) {
        self.queued_bytes.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Bytes that wait now.
    pub fn queued_bytes(&self) -> u64 {
        self.queued_bytes.load(Ordering::Acquire)
    }

    /// Something of its sessions is missing on the shadow (mode `all`).
    pub fn is_incomplete(&self) -> bool {
        let is_of_all = self.plan.mode == RehearsalMode::All;
        is_of_all && (self.skipped(Skip::Incomplete) > 0 || GIVE_UPS.iter().any(|why| self.given_up(*why) > 0))
    }

    /// Something of its sessions is missing on the shadow, or was written in another order. A difference is not the version's then.
    pub fn may_lack_writes(&self) -> bool {
        self.is_incomplete() || self.overtaken.load(Ordering::Relaxed) > 0
    }

    /// Counts a statement that is not repeated.
    pub fn skip(&self, why: Skip) {
        if let Some(count) = self.skipped.get(why as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Statements that were not repeated for this reason.
    pub fn skipped(&self, why: Skip) -> u64 {
        self.skipped.get(why as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Counts a session that is not repeated any more.
    pub fn give_up(&self, why: GaveUp) {
        if let Some(count) = self.given_up.get(why as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sessions that were given up for this reason.
    pub fn given_up(&self, why: GaveUp) -> u64 {
        self.given_up.get(why as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// What it found. Held for a moment only: workers wait for it.
    pub fn findings(&self) -> MutexGuard<'_, Findings> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a round of second questions; None while two are under way. The round ends when the turn is dropped.
    pub fn turn(self: &Arc<Self>) -> Option<Turn> {
        let begun = self.rechecking.fetch_update(Ordering::AcqRel, Ordering::Acquire, |held| (held < MAX_ROUNDS).then_some(held + 1));
        begun.ok().map(|_| Turn(Arc::clone(self)))
    }

    /// Takes one of the second's rounds of questions; false where none is left.
    pub fn may_ask(&self, now_ms: u64) -> bool {
        let may = self.findings().take_question(now_ms, self.plan.rechecks_per_s);
        if may {
            self.rechecks.fetch_add(1, Ordering::Relaxed);
        }
        may
    }
}

impl Run {
    /// Why the plans of a digest are of interest ([`Tally::plan_reason`]). None as well if there is no question for them now.
    pub fn plan_reason(&self, digest: u64, class: Class, times_us: [u64; 2], now_ms: u64) -> Option<&'static str> {
        let findings = self.findings();
        let may = self.may_plan(&findings, digest, now_ms);
        may.then(|| findings.tally.plan_reason(digest, class, times_us, self.plan.slow_factor)).flatten()
    }

    /// Takes one of the questions for the plans of a digest; None where there is none. One is under way at a time, until it is dropped.
    pub fn plan_turn(self: &Arc<Self>, digest: u64, now_ms: u64) -> Option<PlanTurn> {
        let mut findings = self.findings();
        if !self.may_plan(&findings, digest, now_ms) || !findings.take_question(now_ms, self.plan.rechecks_per_s) {
            return None;
        }
        findings.plans_from_s = now_ms / 1000 + 1;
        findings.tally.note_plan(digest, now_ms);
        self.is_planning.store(true, Ordering::Release);
        Some(PlanTurn(Arc::clone(self)))
    }

    /// One in a second of all, twice in 15 minutes of the digest, and within the limit for second questions.
    fn may_plan(&self, findings: &Findings, digest: u64, now_ms: u64) -> bool {
        !self.is_planning.load(Ordering::Acquire)
            && now_ms / 1000 >= findings.plans_from_s
            && findings.has_question(now_ms, self.plan.rechecks_per_s)
            && findings.tally.may_plan(digest, now_ms)
    }

    /// Counts what became of a question for plans.
    pub fn note_plan(&self, end: PlanEnd) {
        if let Some(count) = self.planned.get(end as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Questions for plans that ended so.
    pub fn plans(&self, end: PlanEnd) -> u64 {
        self.planned.get(end as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

impl Findings {
    /// The rehearsal has ended: nothing may be added to the tally.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Takes one of the second's questions to both servers.
    fn take_question(&mut self, now_ms: u64, most: u32) -> bool {
        if !self.has_question(now_ms, most) {
            return false;
        }
        let second = now_ms / 1000;
        if self.asked.0 != second {
            self.asked = (second, 0);
        }
        self.asked.1 += 1;
        true
    }

    /// Whether one of the second's questions is left.
    fn has_question(&self, now_ms: u64, most: u32) -> bool {
        let asked = if self.asked.0 == now_ms / 1000 { self.asked.1 } else { 0 };
        asked < most
    }
}

/// The right to ask both servers again.
#[derive(Debug)]
pub struct Turn(Arc<Run>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.rechecking.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The right to ask both servers for plans.
#[derive(Debug)]
pub struct PlanTurn(Arc<Run>);

impl Drop for PlanTurn {
    fn drop(&mut self) {
        self.0.is_planning.store(false, Ordering::Release);
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Desk {
    runs: Mutex<BTreeMap<Box<str>, Arc<Run>>>,
    active: ArcSwap<Vec<Arc<Run>>>,
    /// Grows with each change of what runs; 0 as long as nothing ran.
    epoch: AtomicU64,
}

impl Desk {
    /// Grows with each change of what runs; 0 as long as nothing ran.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// What runs.
    pub fn active(&self) -> Arc<Vec<Arc<Run>>> {
        self.active.load_full()
    }

    /// Every rehearsal, also those that ended.
    pub fn runs(&self) -> Vec<Arc<Run>> {
        self.lock().values().cloned().collect()
    }

    /// The last run of a rehearsal.
    pub fn run(&self, name: &str) -> Option<Arc<Run>> {
        self.lock().get(name).cloned()
    }

    /// Puts a run in the place of the last one of its name.
    ///
    /// # Errors
    /// That one has not ended.
    pub fn start(&self, run: Run, now_ms: u64) -> Result<Arc<Run>, String> {
        self.start_with(run, now_ms, |_| {})
    }

    /// The same; `prepare` is called before anybody sees the run.
    ///
    /// # Errors
    /// As for [`Desk::start`].
    pub fn start_with(&self, run: Run, now_ms: u64, prepare: impl FnOnce(&Arc<Run>)) -> Result<Arc<Run>, String> {
        let mut runs = self.lock();
        let name = &run.plan.name;
        if runs.get(name).is_some_and(|before| before.ended_ms(now_ms).is_none()) {
            return Err(format!("rehearsal '{name}' already runs: STOP REHEARSAL '{name}' ends it"));
        }
        let (name, run) = (name.clone(), Arc::new(run));
        prepare(&run);
        runs.insert(name, Arc::clone(&run));
        self.publish(&runs, now_ms);
        Ok(run)
    }

    /// Ends a rehearsal.
    ///
    /// # Errors
    /// It does not run.
    pub fn stop(&self, name: &str, now_ms: u64) -> Result<Arc<Run>, String> {
        let runs = self.lock();
        let run = runs.get(name).filter(|run| run.ended_ms(now_ms).is_none());
        let run = Arc::clone(run.ok_or_else(|| format!("rehearsal '{name}' does not run"))?);
        run.stop(now_ms, Ending::Stop);
        self.publish(&runs, now_ms);
        Ok(run)
    }

    /// Takes over the rows at runtime: a run without an active row ends, and one without a row is forgotten. Returns the runs without an
    /// active row.
    pub fn configure(&self, rows: &[Arc<Rehearsal>], now_ms: u64) -> Vec<Arc<Run>> {
        let mut runs = self.lock();
        if runs.is_empty() {
            return Vec::new();
        }
        let row = |name: &str| rows.iter().find(|row| *row.name == *name);
        let ended: Vec<Arc<Run>> = runs.values().filter(|run| !row(&run.plan.name).is_some_and(|row| row.is_active)).cloned().collect();
        ended.iter().for_each(|run| run.stop(now_ms, Ending::Load));
        runs.retain(|name, _| row(name).is_some());
        self.publish(&runs, now_ms);
        ended
    }

    /// Some run has ended by itself.
    pub fn expire(&self, now_ms: u64) {
        self.publish(&self.lock(), now_ms);
    }

    fn publish(&self, runs: &BTreeMap<Box<str>, Arc<Run>>, now_ms: u64) {
        let active = runs.values().filter(|run| run.ended_ms(now_ms).is_none()).cloned().collect();
        self.active.store(Arc::new(active));
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Arc<Run>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(name: &str, more: &str) -> Arc<Rehearsal> {
        let text = format!("mysql_rehearsals = ( {{ name=\"{name}\", source_hostgroup=1, shadow_hostgroup=2{more} }} )");
        let (config, _) = model::parse(&text, "t.cnf").unwrap();
        Arc::clone(&model::Snapshot::compile(&config).unwrap().rehearsals[0])
    }

    fn run(name: &str, more: &str, now_ms: u64, seconds: Option<u64>) -> Run {
        Run::new(plan(name, more), Default::default(), (now_ms, 0), seconds)
    }

    #[test]
    fn a_rehearsal_runs_once_at_a_time() {
        let desk = Desk::default();
        assert_eq!((desk.epoch(), desk.active().len()), (0, 0));
        desk.start(run("a", "", 1000, None), 1000).unwrap();
        assert!(desk.start(run("a", "", 1000, None), 1000).unwrap_err().contains("already runs"));
        assert_eq!((desk.epoch(), desk.active().len()), (1, 1));
        let stopped = desk.stop("a", 5500).unwrap();
        assert_eq!((stopped.seconds(9000), desk.active().len()), (4, 0));
        assert!(desk.stop("a", 5500).unwrap_err().contains("does not run"));
        assert!(desk.run("a").is_some(), "what it found stays");
        desk.start(run("a", "", 6000, Some(2)), 6000).unwrap();
        assert_eq!(desk.run("a").unwrap().ended_ms(7999), None);
        assert_eq!(desk.run("a").unwrap().ended_ms(9000), Some(8000));
        desk.expire(9000);
        assert_eq!(desk.active().len(), 0);
    }

    #[test]
    fn what_ended_a_rehearsal_is_known() {
        let desk = Desk::default();
        for (name, seconds) in [("a", None), ("b", Some(5)), ("c", Some(5)), ("d", None)] {
            desk.start(run(name, "", 1000, seconds), 1000).unwrap();
        }
        desk.stop("a", 2000).unwrap();
        desk.stop("c", 3000).unwrap();
        let runs = desk.runs();
        desk.configure(&[plan("a", ""), plan("c", "")], 7000);
        assert_eq!(
            runs.iter().map(|run| run.ending(8000)).collect::<Vec<_>>(),
            [Some(Ending::Stop), Some(Ending::Time), Some(Ending::Stop), Some(Ending::Load)]
        );
        assert_eq!(
            runs.iter().map(|run| (run.planned_s(), run.seconds(9000))).collect::<Vec<_>>(),
            [(None, 1), (Some(5), 5), (Some(5), 2), (None, 6)]
        );
        assert_eq!(runs.iter().map(|run| run.ending(1500)).collect::<Vec<_>>()[1], None, "its time was not over");
    }

    #[test]
    fn the_coverage_of_the_end_stands() {
        let run = run("a", "", 0, Some(1));
        let percent = |percent| run.settle(|_| Coverage { percent, ..Coverage::default() }).percent;
        assert!(!run.findings().is_closed());
        assert_eq!([percent(97.0), percent(12.0)], [97.0, 97.0]);
        assert!(run.findings().is_closed());
    }

    #[test]
    fn a_load_ends_what_has_no_active_row() {
        let desk = Desk::default();
        for name in ["a", "b", "c"] {
            desk.start(run(name, "", 0, None), 0).unwrap();
        }
        let ended = desk.configure(&[plan("a", ""), plan("b", ", active=0")], 10);
        assert_eq!(ended.iter().map(|run| &*run.plan.name).collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!(desk.active().iter().map(|run| &*run.plan.name).collect::<Vec<_>>(), ["a"]);
        assert_eq!(desk.runs().len(), 2);
    }

    #[test]
    fn room_and_questions_are_bounded() {
        let run = run("a", ", queue_mb=1, rechecks_per_s=2", 0, None);
        assert!(run.take_room(1 << 19) && run.take_room(1 << 19) && !run.take_room(1));
        run.give_room(1);
        assert!(run.take_room(1) && !run.take_room(1));
        assert_eq!(run.queued_bytes(), 1 << 20);
        assert_eq!([1000, 1001, 1999, 2000].map(|now_ms| run.may_ask(now_ms)), [true, true, false, true]);
        assert!(run.is_warming(59_999) && !run.is_warming(60_000));
    }

    #[test]
    fn plans_are_asked_for_once_in_a_second_and_within_the_limit_of_questions() {
        let compared = |run: &Run, digest| {
            let class = crate::Class::Same;
            run.findings().tally.add(&crate::Compared { digest, text: b"", class, ignored: None, is_rechecked: false, times_us: [1, 1] });
        };
        let asks = |run: &Arc<Run>, digest, now_ms| {
            let is_free = run.plan_reason(digest, crate::Class::Rows, [1, 1], now_ms).is_some();
            let turn = run.plan_turn(digest, now_ms);
            assert_eq!(turn.is_some(), is_free, "a look takes none");
            is_free
        };
        let run = Arc::new(run("a", ", rechecks_per_s=2", 0, None));
        assert!(!asks(&run, 1, 1000), "the digest is not known");
        (1..9).for_each(|digest| compared(&run, digest));
        assert_eq!(
            [(1, 1000), (2, 1001), (2, 1999), (2, 2000), (3, 2001)].map(|(n, at)| asks(&run, n, at)),
            [true, false, false, true, false]
        );
        assert!(run.may_ask(3000) && run.may_ask(3001) && !asks(&run, 3, 3002), "second questions have used it up");
        assert!(asks(&run, 3, 4000) && run.may_ask(4001) && !run.may_ask(4002));
        assert_eq!(run.rechecks.load(Ordering::Relaxed), 3, "plans are no rechecks");
        let none = Arc::new(self::run("b", ", rechecks_per_s=0", 0, None));
        compared(&none, 1);
        assert!(!asks(&none, 1, 1000));
        // One is under way at a time, and leaves both turns to second questions.
        let turn = run.plan_turn(4, 5000);
        assert!(turn.is_some() && run.plan_turn(5, 6000).is_none() && run.turn().is_some_and(|_first| run.turn().is_some()));
        assert_eq!(run.plan_reason(5, crate::Class::Rows, [1, 1], 6000), None);
        drop(turn);
        assert!(asks(&run, 5, 6000));
        assert_eq!(run.plan_reason(6, crate::Class::Same, [1, 1], 7000), None);
    }

    #[test]
    fn two_rounds_are_under_way_at_most() {
        let run = Arc::new(run("a", "", 0, None));
        let turns = [run.turn(), run.turn(), run.turn()];
        assert_eq!(turns.each_ref().map(Option::is_some), [true, true, false]);
        drop(turns);
        assert!(run.turn().is_some());
    }

    #[test]
    fn reasons_have_their_numbers() {
        SKIPS.iter().enumerate().for_each(|(place, skip)| assert_eq!(*skip as usize, place));
        GIVE_UPS.iter().enumerate().for_each(|(place, why)| assert_eq!(*why as usize, place));
        PLAN_ENDS.iter().enumerate().for_each(|(place, end)| assert_eq!(*end as usize, place));
    }
}
