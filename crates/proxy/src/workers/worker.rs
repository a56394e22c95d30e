//! A worker: one thread, one single-threaded runtime, and all that lives on it.
//!
//! Sessions, pools, buffers, memories of statements and counters belong to one worker and are never shared.

use crate::backends::defaults::Defaults;
use crate::clients::session_handle::{Leaving, Limits, SessionHandle, Signal};
use crate::hostgroups::pool::HostgroupPool;
use crate::limits::mirror_room::Mirrors;
use crate::net::buffer::{BufferPool, Scratch};
use crate::statements::memory::Memory;
use crate::workers::clock::{CoarseClock, Random};
use crate::workers::counters::Counters;
use crate::workers::counters::count;
use crate::workers::in_force::{InForce, SnapshotInForce};
use crate::workers::lateness::{Lateness, within};
use crate::workers::mailbox::KillKind;
use crate::workers::shared::Shared;
use meter::digest::{self, Digest};
use meter::{Meter, MeterRules};
use model::HostgroupId;
use model::fleet::Bound;
use model::snapshot::Snapshot;
use session_state::acknowledged::Acknowledged;
use session_state::pins::{Began, PASSING, PinReason, WISHES, is_kept};
use slab::Slab;
use sql::{Analysis, LexMode, Shapes};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};

/// What one worker knows of a hostgroup's load.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkerLoad {
    /// Sessions that wait for a backend.
    pub waiting: u32,
    /// Sessions with an open transaction on one of its backends.
    pub in_transaction: u32,
    /// Backends that a change of roles need not wait for.
    pub at_rest: u32,
}

/// See the module.
pub(crate) struct Worker {
    /// Its number, from 0.
    pub index: usize,
    /// What all workers share.
    pub shared: Arc<Shared>,
    in_force: RefCell<Rc<InForce>>,
    /// What it remembers of the rules' answers.
    pub memo: RefCell<routing::Memo>,
    /// Buffers.
    pub buffers: BufferPool,
    /// For replies that are framed anew.
    pub scratch: Scratch,
    /// The coarse clock, moved by the sweep.
    pub clock: CoarseClock,
    /// How late it is itself.
    lateness: Lateness,
    /// What its clients got OK for.
    pub acknowledged: RefCell<Acknowledged>,
    /// For weighted choices.
    pub random: Random,
    /// What it holds of mirrored statements.
    pub mirrors: Mirrors,
    /// What it counts.
    pub counters: Counters,
    /// Its statistics.
    pub meter: Meter,
    /// What it remembers of texts.
    shapes: RefCell<Shapes>,
    /// What it remembers of statements.
    pub memory: RefCell<Memory>,
    /// What fresh connections had.
    pub defaults: RefCell<Defaults>,
    /// The sessions, as others may see and signal them.
    pub entries: RefCell<Slab<Rc<SessionHandle>>>,
    /// Their places there, by their ids.
    places: RefCell<HashMap<u64, usize>>,
    /// Until when (process clock, ms) each of them needs no look of the sweep, by its place there: most of many are idle for long.
    naps: RefCell<Vec<u64>>,
    /// Turns for passwords that take long to check.
    checks: Semaphore,
    /// A turn for the digest of a long text: one at a time, so that a helper thread is left for logins.
    long_digest: Semaphore,
    /// A connection was closed so that another can be opened for one who waits.
    pub has_room: Notify,
    /// Wakes the task that serves waiters.
    pub pool_wakeup: Notify,
    pools: RefCell<BTreeMap<HostgroupId, Rc<HostgroupPool>>>,
}

/// Helper threads of a worker: for checks of passwords, and lookups of names.
pub(crate) const CHECKS: usize = 2;
/// Where lines of the log come from for which an operator asked (SIGUSR1): all are written.
pub const REPORT: &str = "report";

/// How long the sweep passes over a session that is idle and keeps nothing.
const NAP_MS: u64 = 1_000;
/// Ids of sessions begin here, so that they are never mistaken for a server's own connection ids.
pub(crate) const FIRST_SESSION_ID: u64 = 1 << 30;

/// Pinned sessions listed one by one in a report.
const REPORTED_PINS: usize = 50;

/// Bytes of a long text that are read in one turn: about a millisecond.
const TURN: usize = 128 << 10;

/// Is a text so long that it is read in turns?
pub(crate) fn is_long(sql: &[u8]) -> bool {
    sql.len() > TURN
}

/// The text of an error of `statement` as it may be written down: of a statement that carries a password, or may do so in what it executes,
/// nothing is quoted, nor of one that is too long to be read for that.
pub(crate) fn shown_error<'a>(text: &'a [u8], statement: &[u8], lex: LexMode) -> Cow<'a, [u8]> {
    let is_secret = is_long(statement) || sql::error_may_carry_password(statement, lex);
    if is_secret { Cow::Owned(sql::without_quoted(text)) } else { Cow::Borrowed(text) }
}

impl Worker {
    /// A worker that does nothing yet.
    pub(crate) fn new(index: usize, shared: Arc<Shared>) -> Rc<Self> {
        let clock = CoarseClock::default();
        clock.set(shared.clock.now_ms());
        let seed = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(index as u64 + 1) ^ shared.clock.now_us();
        #[cfg(feature = "sim")]
        let seed = seed ^ shared.simulated.get().map_or(0, crate::sim::World::seed);
        Rc::new(Self {
            index,
            in_force: RefCell::new(Rc::new(InForce::clone(&shared.in_force.load()))),
            memo: RefCell::default(),
            meter: Meter::new(MeterRules::from_variables(&shared.in_force.load().snapshot.vars, shared.mailboxes.len())),
            shared,
            buffers: BufferPool::default(),
            scratch: Scratch::default(),
            clock,
            lateness: Lateness::default(),
            acknowledged: RefCell::default(),
            random: Random::new(seed),
            mirrors: Mirrors::default(),
            counters: Counters::default(),
            shapes: RefCell::default(),
            memory: RefCell::default(),
            defaults: RefCell::default(),
            entries: RefCell::default(),
            places: RefCell::default(),
            naps: RefCell::default(),
            checks: Semaphore::new(CHECKS),
            long_digest: Semaphore::new(1),
            has_room: Notify::new(),
            pool_wakeup: Notify::new(),
            pools: RefCell::default(),
        })
    }

    /// Runs a check that takes long by its input on a helper thread. Its client waits for a turn here: the check of one that has left, or
    /// whose login took too long, is never begun.
    pub(crate) async fn check<T: Send + 'static>(&self, check: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let _turn = self.checks.acquire().await.ok()?;
        tokio::task::spawn_blocking(check).await.ok()
    }

    pub(crate) fn mailbox(&self) -> &crate::workers::mailbox::Mailbox {
        // INVARIANT: `Shared` is built with one mailbox for each worker.
        &self.shared.mailboxes[self.index]
    }

    /// The configuration in force. A step that takes long keeps the one that it began with.
    pub(crate) fn snapshot(&self) -> SnapshotInForce {
        self.in_force().only_snapshot()
    }

    /// The same with what was compiled from it.
    pub(crate) fn in_force(&self) -> Rc<InForce> {
        Rc::clone(&self.in_force.borrow())
    }

    /// What a statement is, as [`sql::analyze_with`] finds.
    pub(crate) fn analyze(&self, sql: &[u8], lex: LexMode) -> Analysis {
        self.shapes.borrow_mut().analyze(sql, lex, self.meter.grouping())
    }

    /// The same for a long text: other sessions are served in between. Its digest is met as well, since that reads the text again.
    pub(crate) async fn analyze_in_turns(&self, sql: &[u8], lex: LexMode) -> Analysis {
        let mut reading = sql::AnalysisInTurns::new(sql, lex, self.meter.grouping());
        let analysis = loop {
            match reading.turn(TURN) {
                Some(analysis) => break analysis,
                None => tokio::task::yield_now().await,
            }
        };
        if self.meter.lacks_digest(&analysis).is_none() {
            return analysis;
        }
        let _turn = self.long_digest.acquire().await;
        // Another session may have met it meanwhile. The text is copied now and not before: those who wait hold no second copy.
        if let Some(rules) = self.meter.lacks_digest(&analysis) {
            let text = sql.to_vec();
            if let Some(digest) = self.check(move || rules.digest(&text, lex)).await {
                self.meter.learn_digest(&analysis, rules, digest);
            }
        }
        analysis
    }

    pub(crate) fn digest(&self, sql: &[u8], lex: LexMode, analysis: &Analysis) -> Arc<Digest> {
        self.meter.digest(analysis, sql, lex)
    }

    pub(crate) fn pool(&self, hostgroup: HostgroupId) -> Rc<HostgroupPool> {
        let mut pools = self.pools.borrow_mut();
        Rc::clone(pools.entry(hostgroup).or_insert_with(|| HostgroupPool::new(self.shared.hostgroup(hostgroup), &self.snapshot())))
    }

    /// Servers give new rights to new connections only, and those on a schema to whoever enters it anew.
    pub(crate) fn rights_changed(&self) {
        count(&self.counters.rights_changed);
        let shared = &self.shared;
        // What a user may prepare, enter and read the body of is asked anew, too.
        shared.ddl_epoch.fetch_add(1, Ordering::AcqRel);
        shared.rights_changed_ms.fetch_max(shared.clock.now_ms() + 1, Ordering::AcqRel);
    }

    /// The pools that were used so far.
    pub(crate) fn pools(&self) -> Vec<Rc<HostgroupPool>> {
        self.pools.borrow().values().cloned().collect()
    }

    /// Takes the configuration in force over.
    pub(crate) fn configure(self: &Rc<Self>) {
        let in_force = Rc::new(InForce::clone(&self.shared.in_force.load()));
        let snapshot = Arc::clone(&in_force.snapshot);
        *self.in_force.borrow_mut() = in_force;
        for (_, handle) in self.entries.borrow().iter() {
            if let Some(user) = handle.user.borrow().as_ref() {
                let user = snapshot.users.get(&user.name).unwrap_or(user);
                handle.set_limits(Limits::from_settings(&snapshot.effective(user, user.default_hostgroup)));
            }
        }
        self.shared.mirrors.resize(snapshot.vars.mirror_max_concurrency);
        self.meter.configure(MeterRules::from_variables(&snapshot.vars, self.shared.mailboxes.len()));
        for pool in self.pools() {
            pool.configure(self);
        }
        self.disturb_those_who_must_leave();
        self.disturb_those_who_keep_in_vain(&snapshot);
    }

    /// Tells idle sessions to give back what only a setting let them keep that says so no more.
    fn disturb_those_who_keep_in_vain(&self, snapshot: &Snapshot) {
        for (_, handle) in self.entries.borrow().iter().filter(|(_, handle)| handle.is_idle()) {
            let (Some(held), Some(user)) = (handle.row.held.get(), handle.user.borrow().clone()) else { continue };
            let user = snapshot.users.get(&user.name).unwrap_or(&user);
            if !is_kept(handle.pins.get(), &snapshot.effective(user, held.server.0)) {
                handle.signal(Signal::GiveBack);
            }
        }
    }

    /// Where somebody waits for a place on a full server, idle sessions give up connections that may serve nobody else, and that they
    /// need for nothing that is known.
    pub(crate) fn make_places(&self) {
        for (id, pool) in self.pools.borrow().iter() {
            if !pool.servers().iter().any(|server| server.is_known_silent.load(std::sync::atomic::Ordering::Relaxed)) {
                continue;
            }
            for (_, handle) in self.entries.borrow().iter().filter(|(_, handle)| handle.keeps_unseen.get() && handle.is_idle()) {
                let is_there = handle.row.held.get().is_some_and(|held| held.server.0 == *id);
                if is_there && handle.user.borrow().as_ref().is_some_and(|user| pool.shared.is_place_wanted(&user.name)) {
                    handle.signal(Signal::GiveBack);
                }
            }
        }
    }

    /// Takes over how servers are placed now.
    pub(crate) fn arranged(self: &Rc<Self>) {
        self.clock.set(self.shared.clock.now_ms());
        for pool in self.pools() {
            pool.arranged(self);
        }
        self.disturb_those_who_must_leave();
    }

    /// Tells sessions whose server is not to be used any more by when they must leave it, or that it is gone; those that
    /// keep a backend for no good reason leave at once, and where their hostgroup is held too.
    fn disturb_those_who_must_leave(&self) {
        let now_ms = self.shared.clock.now_ms();
        let pools = self.pools.borrow();
        for (_, handle) in self.entries.borrow().iter() {
            if !handle.elsewhere.borrow().is_empty() {
                handle.signal(Signal::Demoted);
            }
            let Some(held) = handle.row.held.get() else { continue };
            let Some(pool) = pools.get(&held.server.0) else { continue };
            let Some(server) = pool.servers().get(held.server.1).cloned() else { continue };
            let is_free = handle.is_idle() && handle.pins.get().without(WISHES).is_empty();
            let leave_at_ms = if is_free && (pool.shared.is_held() || !server.keeps_idle()) {
                now_ms
            } else {
                server.standing.disturb_at_ms(handle.pins.get(), now_ms)
            };
            handle.leave_by(leave_at_ms, if server.is_cut() { Leaving::Cut } else { Leaving::Demoted }, now_ms);
            if handle.is_idle() && handle.is_in_transaction() && pool.is_overtaken(&server, now_ms) {
                handle.signal(Signal::Demoted);
            }
        }
    }

    /// How busy a hostgroup is on this worker.
    pub(crate) fn load(&self, hostgroup: HostgroupId) -> WorkerLoad {
        let Some(pool) = self.pools.borrow().get(&hostgroup).cloned() else { return WorkerLoad::default() };
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let entries = self.entries.borrow();
        let in_transaction = |e: &&Rc<SessionHandle>| e.is_in_transaction() && e.row.held.get().is_some_and(|h| h.server.0 == hostgroup);
        WorkerLoad {
            waiting: count(pool.waiting().0),
            in_transaction: count(entries.iter().map(|(_, e)| e).filter(in_transaction).count()),
            at_rest: (0..pool.servers().len()).map(|server| self.at_rest(hostgroup, server)).sum(),
        }
    }

    /// Sessions that keep a backend of a hostgroup for more than a transaction.
    pub(crate) fn bound(&self, hostgroup: HostgroupId) -> Vec<Bound> {
        let of = |handle: &Rc<SessionHandle>| {
            let here = handle.row.held.get().filter(|held| held.server.0 == hostgroup).map(|_| handle.pins.get());
            let elsewhere = || handle.elsewhere.borrow().iter().find(|place| place.hostgroup == hostgroup).map(|place| place.pins);
            let pins = here.or_else(elsewhere)?.without(PASSING);
            let why = || pins.iter().map(PinReason::name).collect::<Vec<_>>().join(",");
            (!pins.is_empty()).then(|| Bound { session: handle.id, why: why() })
        };
        self.entries.borrow().iter().filter_map(|(_, handle)| of(handle)).collect()
    }

    /// Backends of one server of a hostgroup that a change of its role need not wait for: idle ones, and streams of the binlog that go on
    /// at another server.
    pub(crate) fn at_rest(&self, hostgroup: HostgroupId, server: usize) -> u32 {
        let idle = self.pools.borrow().get(&hostgroup).map_or(0, |pool| pool.idle(server));
        let streams = |handle: &SessionHandle| {
            handle.pins.get().contains(PinReason::ReplicationGtid) && handle.row.held.get().is_some_and(|h| h.server == (hostgroup, server))
        };
        idle + self.entries.borrow().iter().filter(|(_, handle)| streams(handle)).count() as u32
    }

    /// Writes sessions, pins and counters to the log.
    pub(crate) fn report(&self) {
        let entries = self.entries.borrow();
        let mut by_reason: Vec<(&str, usize)> = Vec::new();
        for reason in entries.iter().flat_map(|(_, e)| e.all_pins().iter().collect::<Vec<_>>()) {
            match by_reason.iter_mut().find(|(name, _)| *name == reason.name()) {
                Some((_, n)) => *n += 1,
                None => by_reason.push((reason.name(), 1)),
            }
        }
        tracing::info!(
            target: REPORT,
            "worker {}: {} sessions, pinned by reason {by_reason:?}, counters {:?}",
            self.index,
            entries.len(),
            self.counters.values()
        );
        for (_, handle) in entries.iter().filter(|(_, e)| !e.all_pins().is_empty()).take(REPORTED_PINS) {
            let Some(Began { since_ms, digest, .. }) = handle.pinned().into_iter().min_by_key(|began| began.since_ms) else { continue };
            let age_ms = self.clock.now_ms().saturating_sub(since_ms);
            let digest = self.meter.known_digest(digest).map(|d| digest::shown(d.hash)).unwrap_or_default();
            let user = handle.user.borrow().as_ref().map(|u| u.name.to_string()).unwrap_or_default();
            tracing::info!(
                target: REPORT,
                "worker {}: session {} of '{user}' pinned for {age_ms} ms: {}, digest {digest}",
                self.index,
                handle.id,
                handle.all_pins()
            );
        }
    }

    /// The worker that owns a session id.
    pub(crate) fn owner_of(id: u64, workers: usize) -> usize {
        usize::try_from(id).unwrap_or(0) % workers.max(1)
    }

    /// A session begins: its place in the table.
    pub(crate) fn register(&self, handle: &Rc<SessionHandle>) -> usize {
        let key = self.entries.borrow_mut().insert(Rc::clone(handle));
        self.places.borrow_mut().insert(handle.id, key);
        handle.key.set(key);
        self.wake(key);
        key
    }

    /// The session in this place has ended.
    pub(crate) fn unregister(&self, key: usize) -> Rc<SessionHandle> {
        let handle = self.entries.borrow_mut().remove(key);
        self.places.borrow_mut().remove(&handle.id);
        handle
    }

    /// KILL of one of its sessions. A session that has left since the KILL was sent may have gone to another process.
    pub(crate) fn kill(&self, id: u64, kind: KillKind) {
        let key = self.places.borrow().get(&id).copied();
        let Some(handle) = key.and_then(|key| self.entries.borrow().get(key).cloned()) else {
            self.shared.kill_in_successor(id, kind);
            return;
        };
        handle.signal(match kind {
            KillKind::Query => Signal::KillQuery,
            KillKind::Connection => Signal::KillConnection,
        });
    }

    /// Ends every session, as at the end of the process.
    pub(crate) fn end_sessions(self: &Rc<Self>) {
        self.signal_all(Signal::Stop);
    }

    /// Tells every session.
    pub(crate) fn signal_all(&self, signal: Signal) {
        for (_, handle) in self.entries.borrow().iter() {
            handle.signal(signal);
        }
    }

    /// Ends what is overdue. An idle session that keeps nothing is looked at once a second.
    pub(crate) fn look_at_sessions(&self, now_ms: u64) {
        let (entries, mut naps) = (self.entries.borrow(), self.naps.borrow_mut());
        naps.resize(entries.capacity(), 0);
        for (key, handle) in entries.iter() {
            let Some(nap_until_ms) = naps.get_mut(key).filter(|until_ms| **until_ms <= now_ms) else { continue };
            handle.check_deadlines(now_ms);
            *nap_until_ms = if handle.may_nap() { now_ms + NAP_MS } else { 0 };
        }
    }

    /// Waits `limit` for a peer, not counting by how much this worker is late meanwhile. None where that was not enough.
    pub(crate) async fn within<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        within(|| self.lateness.total_us(self.shared.clock.now_us()), limit, work).await
    }

    /// It has swept, and does so again then (process clock, us).
    pub(crate) fn swept(&self, now_us: u64, next_us: u64) {
        self.lateness.swept(now_us, next_us);
    }

    /// Time (us) since some moment, without that by which this worker was late: what peers take is measured by it.
    pub(crate) fn peers_us(&self) -> u64 {
        let now_us = self.shared.clock.now_us();
        now_us.saturating_sub(self.lateness.total_us(now_us))
    }

    /// The session in this place of the table has limits again that count from now.
    pub(crate) fn wake(&self, key: usize) {
        if let Some(nap_until_ms) = self.naps.borrow_mut().get_mut(key) {
            *nap_until_ms = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed;

    #[test]
    fn a_kill_finds_its_session_by_the_id() {
        let worker = bed::worker(bed::snapshot(&[(0, "127.0.0.1")], ""));
        let [one, other] = [FIRST_SESSION_ID, FIRST_SESSION_ID + 1].map(|id| Rc::new(SessionHandle::new(id, 0)));
        let key = worker.register(&one);
        worker.register(&other);
        worker.kill(one.id, KillKind::Query);
        assert_eq!((one.pending(), other.pending()), (Some(Signal::KillQuery), None));
        assert_eq!(worker.unregister(key).id, one.id);
        worker.kill(one.id, KillKind::Connection);
        worker.kill(other.id, KillKind::Connection);
        assert_eq!((one.pending(), other.pending()), (Some(Signal::KillQuery), Some(Signal::KillConnection)));
    }
}
