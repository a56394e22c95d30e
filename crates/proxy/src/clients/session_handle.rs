//! What others may see of a session, and how they reach it: its id, what it does since when, signals to it.
//!
//! Lives on the session's worker; the sweep and KILL write signals, the session reads them while it waits.

use crate::clients::replica::Replica;
use crate::limits::addresses::AddressSlot;
use model::HostgroupId;
use session_state::pins::{Began, PinReason, PinSet, Pins};
use std::cell::{Cell, RefCell};
use std::task::{Context, Waker};
use wire::auth::hash::CERTIFICATE_PROOF;

/// Why a session is disturbed. Later ones are stronger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Signal {
    /// Another process takes this one's place: go there when the client is silent.
    HandOver,
    /// Idle for a while: let go of what only a busy session needs.
    Park,
    /// `connection_delay_multiplex_ms` is over: give the backend back.
    GiveBack,
    /// The server is not to be used any more, and the time to finish there is over.
    Demoted,
    /// The process stops: end when idle.
    Drain,
    /// KILL QUERY.
    KillQuery,
    /// The statement runs longer than `default_query_timeout`.
    QueryTimeout,
    /// The statement was killed and the server still does not answer.
    GiveUp,
    /// The server is taken for dead, or OFFLINE_HARD: its connections are lost.
    Cut,
    /// `max_transaction_time`, `max_transaction_idle_time`.
    TransactionTimeout,
    /// `wait_timeout`.
    IdleTimeout,
    /// KILL CONNECTION.
    KillConnection,
    /// The process stops now.
    Stop,
}

/// How a session leaves a server that is not to be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// When what it does there is done, or its time is over.
    Demoted,
    /// At once: the connection is lost.
    Cut,
}

/// What a session does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// Logs in.
    Login,
    /// Waits for the client.
    Idle,
    /// Has waited for the client for a while.
    Parked,
    /// Waits for a backend.
    Waiting,
    /// Its statement runs.
    Running,
    /// Its statement is held up by a rule's or a setting's delay.
    Delayed,
}

/// Number and text of an error.
pub(crate) type ErrorText = (u16, Box<[u8]>);

/// What few sessions have.
#[derive(Default)]
struct Rare {
    /// Pins that began while the first one held.
    later_pins: Vec<Began>,
    /// What the proxy itself answered the command at hand with.
    own_error: Option<ErrorText>,
    /// What is known of it as a replica.
    replica: Option<Replica>,
}

/// See the module.
pub(crate) struct SessionHandle {
    /// The id the client was told.
    pub id: u64,
    /// The user, once known.
    pub user: RefCell<Option<std::sync::Arc<model::snapshot::User>>>,
    /// Its place in its worker's table.
    pub key: Cell<usize>,
    activity: Cell<Activity>,
    since_ms: Cell<u64>,
    /// Idleness began by the coarse clock, which is late: it counts from the next sweep.
    idle_is_new: Cell<bool>,
    /// When the open transaction began; 0 when there is none.
    transaction_since_ms: Cell<u64>,
    /// The same for the open transaction.
    transaction_is_new: Cell<bool>,
    limits: Cell<Limits>,
    /// `wait_timeout`, as the client set it, ms; 0 for never.
    own_idle_ms: Cell<u64>,
    /// Limit of the running statement, ms, where a rule sets one; 0 when none does.
    statement_ms: Cell<u64>,
    /// Until when (ms) an unpinned backend is held; 0 when none is.
    held_until_ms: Cell<u64>,
    /// It keeps its backend only because that may serve nobody else: see [`crate::workers::worker::Worker::make_places`].
    pub keeps_unseen: Cell<bool>,
    /// The running statement has had its time limit's signal.
    timed_out: Cell<bool>,
    /// When (ms) a killed statement's connection is given up; 0 while none was killed.
    give_up_at_ms: Cell<u64>,
    /// What the server was told to end the statement at hand for: KILL QUERY, or its time limit.
    killed_by: Cell<Option<Signal>>,
    /// When (process clock, us) a client that is sent so many bytes a second has had its share of what was sent.
    pub paid_until_us: Cell<u64>,
    /// When (process clock, ms) the session must have left its server; `u64::MAX` while it may stay.
    leave_at_ms: Cell<u64>,
    /// The error of the command at hand was counted, with the server where it is the server's.
    pub error_is_counted: Cell<bool>,
    signal: Cell<Option<Signal>>,
    waits_for: Cell<HostgroupId>,
    waker: RefCell<Option<Waker>>,
    /// Pins, as last published.
    pub pins: Cell<PinSet>,
    first_pin: Cell<Option<PinReason>>,
    /// How it began: worker clock (ms), digest.
    first_pin_began: Cell<(u64, u64)>,
    rare: Cell<Option<Box<Rare>>>,
    /// When (process clock, ms) another process would not take it over; 0 for never.
    pub refused_ms: Cell<u64>,
    /// Its place among the connections of its address; none over a Unix socket.
    pub place: RefCell<Option<AddressSlot>>,
    /// What the login's OK is to say of the certificate, for clients without a CA.
    pub certificate_proof: Cell<Option<Box<[u8; CERTIFICATE_PROOF]>>>,
    /// What it keeps in other hostgroups than the one where it is.
    pub elsewhere: RefCell<Vec<PinnedElsewhere>>,
    /// What operators see of it.
    pub row: crate::clients::processlist::ProcesslistRow,
}

/// Why a session keeps a backend of a hostgroup where it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PinnedElsewhere {
    /// Where that is.
    pub hostgroup: HostgroupId,
    /// The reasons.
    pub pins: PinSet,
    /// How they began.
    pub began: Vec<Began>,
}

/// Time limits of a session, ms; 0 is none.
#[derive(Clone, Copy, Default)]
pub(crate) struct Limits {
    /// Client idle outside a transaction.
    pub idle_ms: u64,
    /// Client idle inside a transaction.
    pub transaction_idle_ms: u64,
    /// Age of a transaction.
    pub transaction_ms: u64,
    /// Run time of a statement.
    pub query_ms: u64,
}

impl Limits {
    pub(crate) fn from_settings(settings: &model::snapshot::Effective) -> Self {
        Self {
            idle_ms: settings.wait_timeout,
            transaction_idle_ms: settings.max_transaction_idle_time,
            transaction_ms: settings.max_transaction_time,
            query_ms: settings.default_query_timeout,
        }
    }
}

/// A session idle for this long lets go of what only a busy one needs, ms.
const PARK_AFTER_MS: u64 = 1000;

impl SessionHandle {
    /// An handle for a client that just came.
    pub(crate) fn new(id: u64, now_ms: u64) -> Self {
        Self {
            id,
            user: RefCell::default(),
            key: Cell::default(),
            activity: Cell::new(Activity::Login),
            since_ms: Cell::new(now_ms),
            idle_is_new: Cell::new(false),
            transaction_since_ms: Cell::new(0),
            transaction_is_new: Cell::new(false),
            limits: Cell::default(),
            own_idle_ms: Cell::new(0),
            statement_ms: Cell::new(0),
            held_until_ms: Cell::new(0),
            keeps_unseen: Cell::new(false),
            timed_out: Cell::new(false),
            give_up_at_ms: Cell::new(0),
            killed_by: Cell::new(None),
            paid_until_us: Cell::new(0),
            leave_at_ms: Cell::new(u64::MAX),
            error_is_counted: Cell::new(false),
            signal: Cell::new(None),
            waits_for: Cell::new(HostgroupId(0)),
            waker: RefCell::default(),
            pins: Cell::default(),
            first_pin: Cell::default(),
            first_pin_began: Cell::default(),
            rare: Cell::default(),
            refused_ms: Cell::new(0),
            place: RefCell::default(),
            certificate_proof: Cell::default(),
            elsewhere: RefCell::default(),
            row: Default::default(),
        }
    }

    /// The session does something else now. Where that has a time limit, `now_ms` is the process clock's; for [`Activity::Idle`]
    /// the coarse clock will do.
    pub(crate) fn set_activity(&self, activity: Activity, now_ms: u64) {
        self.activity.set(activity);
        self.since_ms.set(now_ms);
        self.idle_is_new.set(activity == Activity::Idle);
        self.timed_out.set(false);
        self.give_up_at_ms.set(0);
    }

    /// A command begins: what was to end the one before is not for it.
    pub(crate) fn begin_command(&self, now_ms: u64) {
        self.set_activity(Activity::Running, now_ms);
        self.end_command();
        if matches!(self.signal.get(), Some(Signal::KillQuery | Signal::QueryTimeout | Signal::GiveUp)) {
            self.signal.set(None);
        }
    }

    /// What ended the statement at hand is over with it.
    pub(crate) fn end_command(&self) {
        self.killed_by.set(None);
    }

    /// The session waits for a connection to this hostgroup.
    pub(crate) fn begin_wait(&self, hostgroup: HostgroupId, now_ms: u64) {
        self.waits_for.set(hostgroup);
        self.set_activity(Activity::Waiting, now_ms);
    }

    pub(crate) fn waits_for(&self) -> Option<HostgroupId> {
        (self.activity.get() == Activity::Waiting).then(|| self.waits_for.get())
    }

    /// The statement that begins is held up.
    pub(crate) fn begin_delay(&self) {
        self.activity.set(Activity::Delayed);
    }

    /// It may run now: its time limit counts from here.
    pub(crate) fn end_delay(&self, now_ms: u64) {
        self.set_activity(Activity::Running, now_ms);
    }

    /// Its pins in all hostgroups.
    pub(crate) fn all_pins(&self) -> PinSet {
        self.elsewhere.borrow().iter().fold(self.pins.get(), |all, place| all.union(place.pins))
    }

    /// What it does, and since when (ms).
    pub(crate) fn activity(&self) -> (Activity, u64) {
        (self.activity.get(), self.since_ms.get())
    }

    /// Whether it waits for the client.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.activity.get(), Activity::Idle | Activity::Parked)
    }

    pub(crate) fn is_in_transaction(&self) -> bool {
        self.transaction_since_us().is_some()
    }

    /// When the open transaction began (process clock, us, to the millisecond).
    pub(crate) fn transaction_since_us(&self) -> Option<u64> {
        Some(self.transaction_since_ms.get() * 1000).filter(|since_us| *since_us > 0)
    }

    /// The running statement was killed: without an answer its connection is given up at this time (ms), or when an earlier kill
    /// says.
    pub(crate) fn give_up_at(&self, at_ms: u64) {
        let before_ms = Some(self.give_up_at_ms.get()).filter(|before_ms| *before_ms > 0);
        self.give_up_at_ms.set(before_ms.map_or(at_ms, |before_ms| before_ms.min(at_ms)));
    }

    /// The server is told to end the running statement, for this reason.
    pub(crate) fn kill_statement(&self, by: Signal) {
        self.killed_by.set(Some(by));
    }

    /// Why the statement at hand was killed, or is to be: KILL QUERY, or its time limit.
    pub(crate) fn killed_by(&self) -> Option<Signal> {
        let pending = || self.signal.get().filter(|signal| matches!(signal, Signal::KillQuery | Signal::QueryTimeout));
        self.killed_by.get().or_else(pending)
    }

    /// The running statement was told that its time is over.
    pub(crate) fn is_timed_out(&self) -> bool {
        self.timed_out.get()
    }

    /// The idle session has let go of what it can; it is idle since when it was.
    pub(crate) fn set_parked(&self) {
        self.activity.set(Activity::Parked);
        self.row.park();
    }

    /// A transaction began or ended, by the coarse clock.
    pub(crate) fn set_transaction(&self, open: bool, now_ms: u64) {
        match (open, self.transaction_since_ms.get()) {
            (true, 0) => {
                self.transaction_since_ms.set(now_ms.max(1));
                self.transaction_is_new.set(true);
            }
            (false, _) => self.transaction_since_ms.set(0),
            _ => {}
        }
    }

    /// The session keeps its backend a little longer than it must.
    pub(crate) fn hold_backend_until(&self, at_ms: u64) {
        self.held_until_ms.set(at_ms);
    }

    /// Until when it does (process clock, ms); 0: no longer than it must.
    #[cfg(test)]
    pub(crate) fn held_until_ms(&self) -> u64 {
        self.held_until_ms.get()
    }

    /// The session must leave its server by this time (process clock, ms; `u64::MAX`: it may stay), and so.
    pub(crate) fn leave_by(&self, at_ms: u64, how: Leaving, now_ms: u64) {
        self.leave_at_ms.set(at_ms);
        match how {
            Leaving::Cut => self.signal(Signal::Cut),
            Leaving::Demoted if at_ms <= now_ms => self.signal(Signal::Demoted),
            Leaving::Demoted => {}
        }
    }

    /// By when (process clock, ms) it must leave; `u64::MAX` while it may stay.
    pub(crate) fn leave_at_ms(&self) -> u64 {
        self.leave_at_ms.get()
    }

    /// The session is on no server that it must leave.
    pub(crate) fn may_stay(&self) {
        self.leave_at_ms.set(u64::MAX);
    }

    /// The session's pins, for operators. Allocates only where they are several, and others than before.
    pub(crate) fn publish_pins(&self, pins: &Pins) {
        let (first, later) = pins.began();
        self.pins.set(pins.set());
        self.first_pin.set(first.map(|began| began.reason));
        self.first_pin_began.set(first.map_or((0, 0), |began| (began.since_ms, began.digest)));
        self.change_rare(!later.is_empty(), |rare| {
            if rare.later_pins != later {
                rare.later_pins = later.to_vec();
            }
        });
    }

    /// How the published pins began.
    pub(crate) fn pinned(&self) -> Vec<Began> {
        let rare = self.rare.take();
        let (since_ms, digest) = self.first_pin_began.get();
        let first = self.first_pin.get().map(|reason| Began { reason, since_ms, digest });
        let all = first.into_iter().chain(rare.iter().flat_map(|rare| rare.later_pins.iter().copied())).collect();
        self.rare.set(rare);
        all
    }

    /// What the proxy itself answers the command at hand with, where that is an error.
    pub(crate) fn set_own_error(&self, error: Option<ErrorText>) {
        self.change_rare(error.is_some(), |rare| rare.own_error = error);
    }

    /// The same, forgotten from here on.
    pub(crate) fn take_own_error(&self) -> Option<ErrorText> {
        let mut taken = None;
        self.change_rare(false, |rare| taken = rare.own_error.take());
        taken
    }

    /// Its number, which is kept.
    pub(crate) fn own_error_code(&self) -> Option<u16> {
        let mut code = None;
        self.change_rare(false, |rare| code = rare.own_error.as_ref().map(|(code, _)| *code));
        code
    }

    /// It streams the binlog to this replica.
    pub(crate) fn set_replica(&self, replica: Replica) {
        self.change_rare(true, |rare| rare.replica = Some(replica));
    }

    /// The replica that it streams the binlog to.
    pub(crate) fn replica(&self) -> Option<Replica> {
        let mut known = None;
        self.change_rare(false, |rare| known.clone_from(&rare.replica));
        known
    }

    /// A server sent so many bytes for its replica.
    pub(crate) fn count_replicated(&self, bytes: u64) {
        self.change_rare(false, |rare| {
            if let Some(replica) = &mut rare.replica {
                replica.bytes += bytes;
            }
        });
    }

    /// Changes what few sessions have, and lets go of it where nothing is left; does nothing to who has none, unless `makes`.
    fn change_rare(&self, makes: bool, change: impl FnOnce(&mut Rare)) {
        let Some(mut rare) = self.rare.take().or_else(|| makes.then(Box::default)) else { return };
        change(&mut rare);
        self.rare.set(Some(rare).filter(|rare| !rare.later_pins.is_empty() || rare.own_error.is_some() || rare.replica.is_some()));
    }

    pub(crate) fn set_limits(&self, limits: Limits) {
        self.limits.set(limits);
    }

    /// When (process clock, ms) the open transaction began; 0 when there is none.
    pub(crate) fn transaction_since_ms(&self) -> u64 {
        self.transaction_since_ms.get()
    }

    /// The client's own `wait_timeout`, ms; 0 when it set none.
    pub(crate) fn own_idle_ms(&self) -> u64 {
        self.own_idle_ms.get()
    }

    /// Sets the client's own `wait_timeout`, ms; 0 when it set none.
    pub(crate) fn set_own_idle_limit(&self, ms: u64) {
        self.own_idle_ms.set(ms);
    }

    /// A rule limits the statement that begins to this time, ms; 0 leaves it to the settings.
    pub(crate) fn set_statement_limit(&self, ms: u64) {
        self.statement_ms.set(ms);
    }

    /// Disturbs the session; the strongest signal stays.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.signal.get().is_none_or(|old| old < signal) {
            self.signal.set(Some(signal));
        }
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// The pending signal; stays until [`SessionHandle::clear_signal`].
    pub(crate) fn pending(&self) -> Option<Signal> {
        self.signal.get()
    }

    pub(crate) fn clear_signal(&self) {
        self.signal.set(None);
    }

    /// The pending signal; in any case the task is woken when another one comes.
    pub(crate) fn poll_signal(&self, cx: &Context<'_>) -> Option<Signal> {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        self.signal.get()
    }

    /// Whether nothing but its idleness can be overdue before it is disturbed.
    pub(crate) fn may_nap(&self) -> bool {
        let keeps_nothing = self.row.held.get().is_none() && self.transaction_since_ms.get() == 0 && self.held_until_ms.get() == 0;
        self.activity.get() == Activity::Parked && keeps_nothing && !self.row.passes_through.get()
    }

    /// Called by the sweep, with the process clock. No limit ends anything before its time; it may be two sweeps late, of a
    /// session that is parked a second.
    pub(crate) fn check_deadlines(&self, now_ms: u64) {
        if self.idle_is_new.take() {
            self.since_ms.set(now_ms);
        }
        if self.transaction_is_new.take() && self.is_in_transaction() {
            self.transaction_since_ms.set(now_ms.max(1));
        }
        let held_until = self.held_until_ms.get();
        if held_until > 0 && held_until <= now_ms && matches!(self.activity.get(), Activity::Idle | Activity::Parked) {
            self.held_until_ms.set(0);
            self.signal(Signal::GiveBack);
        }
        if self.leave_at_ms.get() <= now_ms {
            self.signal(Signal::Demoted);
        }
        let limits = self.limits.get();
        let statement_ms = match self.statement_ms.get() {
            0 => limits.query_ms,
            ms => ms,
        };
        let age = now_ms.saturating_sub(self.since_ms.get());
        let transaction = self.transaction_since_ms.get();
        let over = |age: u64, limit: u64| limit > 0 && age > limit;
        let in_transaction = transaction > 0;
        match self.activity.get() {
            Activity::Idle | Activity::Parked if over(age, self.own_idle_ms.get()) => self.signal(Signal::IdleTimeout),
            Activity::Idle | Activity::Parked if in_transaction && over(age, limits.transaction_idle_ms) => {
                self.signal(Signal::TransactionTimeout)
            }
            Activity::Idle | Activity::Parked if !in_transaction && over(age, limits.idle_ms) => self.signal(Signal::IdleTimeout),
            Activity::Idle if age > PARK_AFTER_MS => self.signal(Signal::Park),
            Activity::Running if self.give_up_at_ms.get() > 0 && self.give_up_at_ms.get() <= now_ms => self.signal(Signal::GiveUp),
            Activity::Running if over(age, statement_ms) && !self.timed_out.replace(true) => self.signal(Signal::QueryTimeout),
            _ => {}
        }
        if in_transaction && over(now_ms.saturating_sub(transaction), limits.transaction_ms) {
            self.signal(Signal::TransactionTimeout);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_keeps_something_is_looked_at_in_each_sweep() {
        let e = SessionHandle::new(1, 0);
        e.set_activity(Activity::Idle, 5_000);
        assert!(!e.may_nap());
        e.set_parked();
        assert!(e.may_nap());
        e.set_transaction(true, 5_000);
        assert!(!e.may_nap());
        e.set_transaction(false, 5_000);
        e.begin_command(6_000);
        assert!(!e.may_nap());
    }

    #[test]
    fn deadlines_depend_on_what_the_session_does() {
        let e = SessionHandle::new(1, 0);
        e.set_limits(Limits { idle_ms: 100, transaction_idle_ms: 50, transaction_ms: 1000, query_ms: 10 });
        e.check_deadlines(5000);
        assert_eq!(e.pending(), None, "login has its own limit");
        e.set_activity(Activity::Idle, 4950);
        e.check_deadlines(5000);
        e.check_deadlines(5100);
        assert_eq!(e.pending(), None);
        e.check_deadlines(5101);
        assert_eq!(e.pending(), Some(Signal::IdleTimeout));
        e.clear_signal();
        e.set_activity(Activity::Running, 5000);
        e.begin_delay();
        e.check_deadlines(5999);
        assert_eq!(e.pending(), None, "a statement that is held up does not run yet");
        e.end_delay(6000);
        e.check_deadlines(6010);
        assert_eq!(e.pending(), None);
        e.check_deadlines(6011);
        assert_eq!(e.pending(), Some(Signal::QueryTimeout));
        e.clear_signal();
        e.check_deadlines(6111);
        assert_eq!(e.pending(), None, "one signal a statement");
        e.give_up_at(6200);
        // It was killed again.
        e.give_up_at(10_200);
        e.check_deadlines(6211);
        assert_eq!(e.pending(), Some(Signal::GiveUp));
        e.clear_signal();
        e.set_transaction(true, 5950);
        e.set_activity(Activity::Idle, 5950);
        e.check_deadlines(6020);
        e.check_deadlines(6070);
        assert_eq!(e.pending(), None);
        e.check_deadlines(6071);
        assert_eq!(e.pending(), Some(Signal::TransactionTimeout));
    }

    /// The coarse clock is as late as the last sweep: what began since then has not lasted so long.
    #[test]
    fn what_began_since_the_last_sweep_is_not_older_than_it_is() {
        let e = SessionHandle::new(1, 0);
        e.set_limits(Limits { idle_ms: 50, transaction_idle_ms: 50, transaction_ms: 50, query_ms: 50 });
        let coarse_ms = 1000;
        e.set_transaction(true, coarse_ms);
        e.begin_command(1099);
        e.check_deadlines(1100);
        assert_eq!(e.pending(), None);
        e.set_transaction(false, coarse_ms);
        e.set_activity(Activity::Idle, coarse_ms);
        e.check_deadlines(1200);
        assert_eq!(e.pending(), None);
        e.set_parked();
        e.check_deadlines(1251);
        assert_eq!(e.pending(), Some(Signal::IdleTimeout));
    }

    #[test]
    fn what_was_to_end_a_statement_does_not_end_the_next_one() {
        let e = SessionHandle::new(1, 0);
        for signal in [Signal::KillQuery, Signal::QueryTimeout, Signal::GiveUp] {
            e.signal(signal);
            e.begin_command(1);
            assert_eq!((e.pending(), e.killed_by()), (None, None), "{signal:?}");
        }
        e.kill_statement(Signal::QueryTimeout);
        e.set_activity(Activity::Running, 1);
        assert_eq!(e.killed_by(), Some(Signal::QueryTimeout), "whatever it waits for");
        e.begin_command(1);
        assert_eq!(e.killed_by(), None);
        e.signal(Signal::Cut);
        e.begin_command(2);
        assert_eq!(e.pending(), Some(Signal::Cut));
    }

    #[test]
    fn the_strongest_signal_stays() {
        let e = SessionHandle::new(1, 0);
        e.signal(Signal::KillConnection);
        e.signal(Signal::Drain);
        assert_eq!(e.pending(), Some(Signal::KillConnection));
    }
}
