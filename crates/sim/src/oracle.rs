//! The truth of a run: every write with its fate as its client saw it, the servers that may take writes, and the violations.
//!
//! The first violation ends the run. INVARIANT: an op is a number that one statement of one client writes, once.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Interval of the proxy's sweep for sessions on demoted servers, ms; with some margin.
const SWEEP_MS: u64 = 300;

/// The fate of a group of writes, as far as their client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its COMMIT was not sent: no other session may see it.
    Open,
    /// It was sent, or its answer was lost: all of it is there, or nothing.
    Unknown,
    /// It was acknowledged at this time: it is there, once.
    Acknowledged(Instant),
    /// It was refused or rolled back, or its transaction was lost before COMMIT: it is not there.
    Failed,
}

struct Group {
    ops: Vec<i64>,
    fate: Fate,
}

#[derive(Default)]
struct State {
    violations: Vec<String>,
    last_insert_id: u64,
    last_transaction: u64,
    last_op: i64,
    groups: Vec<Group>,
    group_of: BTreeMap<i64, usize>,
    /// Since when a server must get no new write, as the proxy was told; absent while it may.
    demoted: BTreeMap<usize, Instant>,
    /// The server that has every acknowledged write.
    primary: Option<usize>,
    /// Since when a healthy writer has been visible to everybody.
    calm_since: Option<Instant>,
    faults: u64,
    counts: BTreeMap<&'static str, u64>,
    /// Ops that were acknowledged, for reads.
    known: Vec<i64>,
}

/// See the module.
pub struct Oracle {
    state: RefCell<State>,
    /// Something is wrong.
    pub found: Notify,
    /// How long a session may stay on a demoted server that it is bound to.
    grace: Duration,
}

impl Oracle {
    /// Nothing happened yet; `grace_ms` is `demotion_grace_ms`.
    pub fn new(grace_ms: u64) -> Self {
        let grace = Duration::from_millis(grace_ms + SWEEP_MS);
        Self { state: RefCell::default(), found: Notify::new(), grace }
    }

    /// Something is wrong.
    pub fn violation(&self, text: impl Into<String>) {
        self.state.borrow_mut().violations.push(text.into());
        self.found.notify_waiters();
        self.found.notify_one();
    }

    /// In words, in the order of time.
    pub fn violations(&self) -> Vec<String> {
        self.state.borrow().violations.clone()
    }

    /// Counts something, for the summary.
    pub fn count(&self, what: &'static str) {
        *self.state.borrow_mut().counts.entry(what).or_default() += 1;
    }

    /// By name, for the summary of a run.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.state.borrow().counts.clone()
    }

    /// A value for an AUTO_INCREMENT column.
    pub fn next_insert_id(&self) -> u64 {
        let mut state = self.state.borrow_mut();
        state.last_insert_id += 1;
        1_000_000 + state.last_insert_id
    }

    /// A number for a transaction.
    pub fn next_transaction(&self) -> u64 {
        let mut state = self.state.borrow_mut();
        state.last_transaction += 1;
        state.last_transaction
    }

    /// A new op, in a group of its own.
    pub fn new_op(&self, fate: Fate) -> (i64, usize) {
        let mut state = self.state.borrow_mut();
        state.last_op += 1;
        let (op, group) = (state.last_op, state.groups.len());
        state.groups.push(Group { ops: vec![op], fate });
        state.group_of.insert(op, group);
        (op, group)
    }

    /// A new op that shares the fate of a group.
    pub fn op_in(&self, group: usize) -> i64 {
        let mut state = self.state.borrow_mut();
        state.last_op += 1;
        let op = state.last_op;
        if let Some(group) = state.groups.get_mut(group) {
            group.ops.push(op);
        }
        state.group_of.insert(op, group);
        op
    }

    /// The client learnt something of a group.
    pub fn decide(&self, group: usize, fate: Fate) {
        let mut state = self.state.borrow_mut();
        let Some(found) = state.groups.get_mut(group) else { return };
        found.fate = fate;
        let ops = found.ops.clone();
        if matches!(fate, Fate::Acknowledged(_)) {
            state.known.extend(ops);
        }
    }

    /// This op alone failed; the other ops of its group are not affected.
    pub fn leave_out(&self, op: i64) {
        let mut state = self.state.borrow_mut();
        let Some(group) = state.group_of.get(&op).copied() else { return };
        if let Some(found) = state.groups.get_mut(group) {
            found.ops.retain(|o| *o != op);
        }
        let alone = state.groups.len();
        state.groups.push(Group { ops: vec![op], fate: Fate::Failed });
        state.group_of.insert(op, alone);
    }

    /// Ops that may be asked for: acknowledged ones, and any.
    pub fn some_op(&self, random: &mut crate::random::Random) -> Option<i64> {
        let state = self.state.borrow();
        let known = &state.known;
        if random.chance(70) && !known.is_empty() {
            let recent = known.len().saturating_sub(20);
            known.get(recent..).map(|r| *random.pick(r))
        } else {
            (state.last_op > 0).then(|| i64::try_from(random.below(state.last_op.unsigned_abs())).unwrap_or(0) + 1)
        }
    }

    /// The proxy was told where writes may go, just now.
    pub fn writers_are(&self, writers: &BTreeSet<usize>, servers: usize) {
        let mut state = self.state.borrow_mut();
        for server in 0..servers {
            if writers.contains(&server) {
                state.demoted.remove(&server);
            } else {
                state.demoted.entry(server).or_insert_with(Instant::now);
            }
        }
    }

    /// A write has come to a server. It was sent at `sent`, and the session was bound to the server since `began`.
    pub fn write_arrived(&self, server: usize, op: i64, began: Instant, sent: Instant) {
        let Some(since) = self.state.borrow().demoted.get(&server).copied() else { return };
        let ms = sent.saturating_duration_since(since).as_millis();
        if began > since {
            self.violation(format!("role safety: op {op} was sent to db{server} {ms} ms after the proxy was told not to write there"));
        } else if sent > since + self.grace {
            self.violation(format!("role safety: op {op} was sent to db{server} {ms} ms after it was demoted: the grace is over"));
        }
    }

    /// A server has answered how often an op was committed, for a question sent at `sent`.
    pub fn read(&self, server: usize, op: i64, committed: u32, sent: Instant) {
        let state = self.state.borrow();
        let fate = state.group_of.get(&op).and_then(|g| state.groups.get(*g)).map(|g| g.fate);
        let is_primary = state.primary == Some(server);
        drop(state);
        match (committed, fate) {
            (2.., _) => self.violation(format!("double effect: op {op} is on db{server} {committed} times")),
            (1, Some(Fate::Failed)) => self.violation(format!("op {op} failed and is on db{server}")),
            (1, Some(Fate::Open)) => self.violation(format!("op {op} is on db{server} before its COMMIT was sent")),
            (0, Some(Fate::Acknowledged(at))) if is_primary && at < sent => {
                self.violation(format!("lost acknowledgement: op {op} is not on the primary, db{server}"));
            }
            _ => {}
        }
    }

    /// A new primary: it must have everything acknowledged.
    pub fn primary_is(&self, primary: Option<usize>) {
        self.state.borrow_mut().primary = primary;
    }

    /// Whether a healthy writer is visible to everybody.
    pub fn calm(&self, is_calm: bool) {
        let mut state = self.state.borrow_mut();
        state.calm_since = if is_calm { state.calm_since.or_else(|| Some(Instant::now())) } else { None };
    }

    /// Since when a healthy writer has been visible to everybody.
    pub fn calm_since(&self) -> Option<Instant> {
        self.state.borrow().calm_since
    }

    /// Something was broken on purpose.
    pub fn fault(&self) {
        self.state.borrow_mut().faults += 1;
    }

    /// How much was broken so far.
    pub fn faults(&self) -> u64 {
        self.state.borrow().faults
    }

    /// Checks the rows of the surviving primary at the end of the run.
    pub fn check_rows(&self, rows: &BTreeMap<i64, u32>) {
        let state = self.state.borrow();
        let mut wrong = Vec::new();
        for group in &state.groups {
            let counts: Vec<u32> = group.ops.iter().map(|op| rows.get(op).copied().unwrap_or(0)).collect();
            let (least, most) = (counts.iter().min().copied().unwrap_or(0), counts.iter().max().copied().unwrap_or(0));
            let ops = &group.ops;
            match group.fate {
                _ if most > 1 => wrong.push(format!("double effect: ops {ops:?} are there {counts:?} times")),
                Fate::Acknowledged(_) if least == 0 => wrong.push(format!("lost acknowledgement: ops {ops:?} are there {counts:?} times")),
                Fate::Failed if most > 0 => wrong.push(format!("ops {ops:?} failed and are there {counts:?} times")),
                Fate::Open if most > 0 => wrong.push(format!("ops {ops:?} were never committed and are there {counts:?} times")),
                Fate::Unknown if least != most => wrong.push(format!("a transaction was torn: ops {ops:?} are there {counts:?} times")),
                _ => {}
            }
        }
        drop(state);
        wrong.into_iter().for_each(|text| self.violation(text));
    }
}
