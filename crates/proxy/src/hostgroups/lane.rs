//! A lane: the backends of one hostgroup that may serve one kind of session on one worker.
//!
//! Backends of other users or classes never stand in. Idle ones are kept per server, the last one used first, so that
//! as few as possible stay busy.

use crate::backends::backend::Backend;
use crate::hostgroups::queue::{NOBODY, Queue};
use crate::hostgroups::quota::Quota;
use crate::servers::refusals::Refusals;
use crate::servers::server::ServerShared;
use crate::statements::habits::Habits;
use model::snapshot::{Effective, Snapshot, User};
use session_state::causal::CausalPart;
use session_state::class::LaneKey;
use session_state::state::{self, State};
use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

/// Idle backends of one lane.
pub(crate) struct Lane {
    /// What they have in common.
    pub key: LaneKey,
    /// What its user may have in its hostgroup.
    pub quota: Arc<Quota>,
    /// Who waits for one of them, on any worker.
    pub line: Arc<Queue>,
    /// What its statements are like, where they may be sent together.
    pub habits: Habits,
    /// Statements that might have been watched.
    watchable: Cell<u32>,
    /// Since when (process clock, us) there has always been somebody who waits for one of them on this worker, or [`NOBODY`].
    busy_since_us: Cell<u64>,
    /// When (process clock, us) other workers were asked last for one of them.
    asked_us: Cell<u64>,
    /// Sessions left an idle one to each other. They get it at the end of this turn of the loop.
    gathering: Cell<bool>,
    /// The last backend that went to another worker: since when (process clock, us) the session there had waited, and when it went.
    sent_for: Cell<(u64, u64)>,
    /// When (process clock, us) one who waited got one of them last on this worker, or one was opened because nobody did.
    turned_us: Cell<u64>,
    settings: RefCell<Rc<Effective>>,
    causal: Cell<CausalPart>,
    /// Process clock (ms) until which no GTID is chosen: a server refused one.
    no_gtids_until_ms: Cell<u64>,
    /// When (process clock, us) a connect for it failed last that concerned the server; 0 where one succeeded since.
    failed_us: Cell<u64>,
    /// What servers have refused it for a reason of its own.
    refusals: RefCell<Refusals>,
    /// Grows with each configuration that it takes over.
    generation: Cell<u64>,
    /// By the server's index in the hostgroup.
    idle: RefCell<Vec<Vec<Backend>>>,
}

/// A user who is not configured any more keeps what was.
fn user_of<'a>(key: &'a LaneKey, snapshot: &'a Snapshot) -> &'a User {
    snapshot.users.get(&key.user.name).unwrap_or(&key.user)
}

/// See [`Lane::watches`]. Odd, since sessions often repeat a few statements in turn.
const WATCHED_ONE_IN: u32 = 7;
/// How long statements are watched after somebody waited, us.
const WATCHES_FOR_US: u64 = 60_000_000;

/// How long statements are gathered after somebody waited, us.
const GATHERS_FOR_US: u64 = 10_000;

/// A backend that went to another worker has arrived there after so long, us, or was of no use.
const ARRIVES_WITHIN_US: u64 = 5_000;

/// How many idle backends are looked at for the nearest state; beyond, the last used one of those is good enough.
const MAX_LOOKED_AT: usize = 64;

impl Lane {
    pub(crate) fn new(key: LaneKey, quota: Arc<Quota>, snapshot: &Snapshot) -> Rc<Self> {
        let user = user_of(&key, snapshot);
        let settings = RefCell::new(Rc::new(snapshot.effective(user, key.hostgroup)));
        let causal = Cell::new(CausalPart::of(snapshot, user, key.hostgroup));
        let line = quota.line(key.class);
        Rc::new(Self {
            key,
            quota,
            line,
            habits: Habits::default(),
            watchable: Cell::new(0),
            busy_since_us: Cell::new(NOBODY),
            asked_us: Cell::new(0),
            gathering: Cell::default(),
            sent_for: Cell::default(),
            turned_us: Cell::new(0),
            settings,
            causal,
            no_gtids_until_ms: Cell::new(0),
            failed_us: Cell::new(0),
            refusals: RefCell::default(),
            generation: Cell::new(0),
            idle: RefCell::default(),
        })
    }

    /// Takes the configuration in force over.
    pub(crate) fn configure(&self, snapshot: &Snapshot) {
        let user = user_of(&self.key, snapshot);
        *self.settings.borrow_mut() = Rc::new(snapshot.effective(user, self.key.hostgroup));
        self.causal.set(CausalPart::of(snapshot, user, self.key.hostgroup));
        self.no_gtids_until_ms.set(0);
        // What was refused may be mended.
        *self.refusals.borrow_mut() = Refusals::default();
        self.generation.set(self.generation.get().wrapping_add(1));
    }

    /// The number of the configuration in force. A refusal of a connect that began under another one says nothing of this one.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.get()
    }

    /// Whether a server may be asked for a connection, as far as none was refused for a reason of the user's own.
    pub(crate) fn may_ask(&self, server: &ServerShared, now_ms: u64) -> bool {
        self.quota.may_ask(server) && !self.refusals.borrow().rests(server, now_ms)
    }

    /// Whether some server has refused the lane, and has let none in since.
    pub(crate) fn is_refused_somewhere(&self) -> bool {
        !self.refusals.borrow().is_empty()
    }

    /// Whether no server that is used is to be asked now, for each has refused the lane.
    pub(crate) fn is_refused(&self, servers: &[Arc<ServerShared>], now_ms: u64) -> bool {
        self.refusals.borrow().all_rest(servers, now_ms)
    }

    /// What a server said that refused the lane, where each that is used has.
    pub(crate) fn refusal(&self, servers: &[Arc<ServerShared>]) -> Option<String> {
        self.refusals.borrow().said(servers)
    }

    /// A connect is tried: after a refusal no other is meanwhile. Returns how many refusals of the lane there were.
    pub(crate) fn tries(&self, server: &ServerShared, now_ms: u64) -> u32 {
        self.refusals.borrow_mut().tries(server, now_ms)
    }

    /// A server refused the lane alone; `before` is how many refusals there were when it was tried.
    pub(crate) fn refused_by(&self, server: &ServerShared, error: String, before: u32, now_ms: u64) {
        self.refusals.borrow_mut().refused(server, error, before, now_ms);
    }

    pub(crate) fn let_in_by(&self, server: &ServerShared) {
        self.quota.let_in(server);
        self.failed_us.set(0);
        self.refusals.borrow_mut().let_in(server);
    }

    /// A connect for it failed, for a reason that concerns the server.
    pub(crate) fn failed(&self, now_us: u64) {
        self.failed_us.set(now_us);
    }

    /// When (process clock, us) that was last; 0 where one succeeded since.
    pub(crate) fn failed_us(&self) -> u64 {
        self.failed_us.get()
    }

    /// Who waits longest on this worker has waited since then; None when nobody does.
    pub(crate) fn note_first(&self, since_us: Option<u64>) {
        self.busy_since_us.set(since_us.map_or(NOBODY, |since_us| self.busy_since_us.get().min(since_us)));
    }

    /// One who waited got one of them, or one is opened because nobody did.
    pub(crate) fn turned(&self, now_us: u64) {
        self.turned_us.set(now_us);
    }

    /// Whether nobody who waits has got one for so long, us.
    pub(crate) fn stands_still(&self, now_us: u64, bound_us: u64) -> bool {
        now_us.saturating_sub(self.turned_us.get().max(self.busy_since_us.get())) >= bound_us
    }

    /// Whether other workers may be asked for one of them: not again within `pause_us`, however many wait. The caller asks then.
    pub(crate) fn may_ask_others(&self, now_us: u64, pause_us: u64) -> bool {
        let is_due = now_us >= self.asked_us.get().saturating_add(pause_us);
        if is_due {
            self.asked_us.set(now_us);
        }
        is_due
    }

    /// Whether statements that may share a backend wait for each other until the end of this turn of the loop, though a backend is idle:
    /// only if a session waited lately, or several statements came in one turn.
    pub(crate) fn gathers(&self, now_us: u64) -> bool {
        now_us < self.turned_us.get().saturating_add(GATHERS_FOR_US) && self.has_idle()
    }

    /// A statement waits for others of this turn. True for the first one.
    pub(crate) fn begins_to_gather(&self) -> bool {
        !self.gathering.replace(true)
    }

    /// Whether a statement waits for others of this turn.
    pub(crate) fn is_gathering(&self) -> bool {
        self.gathering.get()
    }

    /// They are served now.
    pub(crate) fn has_gathered(&self) {
        self.gathering.set(false);
    }

    /// Whether a backend may go to another worker, for a session that has waited there since `since_us`. Not while the last backend for
    /// the same session is on its way. If true, the caller sends it.
    pub(crate) fn is_first_for(&self, since_us: u64, now_us: u64) -> bool {
        let (last_us, sent_us) = self.sent_for.get();
        let is_first = since_us != last_us || now_us >= sent_us.saturating_add(ARRIVES_WITHIN_US);
        if is_first {
            self.sent_for.set((since_us, now_us));
        }
        is_first
    }

    /// Since when somebody has always waited on this worker, or [`NOBODY`].
    pub(crate) fn busy_since_us(&self) -> u64 {
        self.busy_since_us.get()
    }

    /// What its hostgroup is to its user's causal reads.
    pub(crate) fn causal(&self) -> CausalPart {
        self.causal.get()
    }

    /// Whether GTIDs may be chosen for its transactions, as far as servers let its user.
    pub(crate) fn may_assign_gtids(&self, now_ms: u64) -> bool {
        self.no_gtids_until_ms.get() <= now_ms
    }

    /// A server refused a GTID: none is tried before `until_ms`.
    pub(crate) fn assign_none_until(&self, until_ms: u64) {
        self.no_gtids_until_ms.set(until_ms);
    }

    /// What holds for its user in its hostgroup.
    pub(crate) fn settings(&self) -> Rc<Effective> {
        Rc::clone(&self.settings.borrow())
    }

    /// Whether statements of several sessions may be under way on one of its connections.
    pub(crate) fn pipelines(&self) -> bool {
        self.settings.borrow().pipeline_depth > 1
    }

    /// Whether what the statement at hand is like goes into its habits: each while somebody waits, and one of [`WATCHED_ONE_IN`] where
    /// somebody did lately, since watching costs time.
    pub(crate) fn watches(&self, now_ms: u64) -> bool {
        let has_waited = || now_ms * 1000 < self.turned_us.get().saturating_add(WATCHES_FOR_US);
        self.busy_since_us.get() != NOBODY || self.watchable.get().is_multiple_of(WATCHED_ONE_IN) && has_waited()
    }

    /// The next statement is at hand.
    pub(crate) fn note_watchable(&self) {
        self.watchable.set(self.watchable.get().wrapping_add(1));
    }

    /// Most connections of its user in its hostgroup, in all lanes and workers; 0 is no limit.
    pub(crate) fn limit(&self) -> u64 {
        self.settings.borrow().max_backend_connections_per_user
    }

    /// Whether its user's connections there are limited, by a setting or by a server.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit() > 0 || self.quota.is_refused()
    }

    /// Whether its user has as many connections there as it may.
    pub(crate) fn is_used_up(&self) -> bool {
        self.quota.is_used_up(self.limit())
    }

    /// Takes the idle backend of `server` whose state is nearest to `want`.
    pub(crate) fn take(&self, server: usize, want: &State) -> Option<Backend> {
        let mut idle = self.idle.borrow_mut();
        let list = idle.get_mut(server)?;
        let last = list.last()?;
        if state::distance(want, last.core.held.state()) == 0 {
            return list.pop();
        }
        let from = list.len().saturating_sub(MAX_LOOKED_AT);
        let nearest = list.iter().enumerate().skip(from).rev().min_by_key(|(_, b)| state::distance(want, b.core.held.state()));
        let (i, _) = nearest?;
        Some(list.remove(i))
    }

    /// Takes the idle backend of `server` at this address (None: Unix sockets) that was used last and is still open.
    pub(crate) fn take_to(&self, server: usize, peer: Option<IpAddr>) -> Option<Backend> {
        let mut idle = self.idle.borrow_mut();
        let list = idle.get_mut(server)?;
        let at = (0..list.len()).rev().find(|i| list.get_mut(*i).is_some_and(|b| b.core.peer == peer && b.link.is_silent()))?;
        Some(list.remove(at))
    }

    /// Keeps an idle backend.
    pub(crate) fn put(&self, mut backend: Backend) {
        backend.core.taken_us = 0;
        let mut idle = self.idle.borrow_mut();
        let index = backend.core.server.index;
        if idle.len() <= index {
            idle.resize_with(index + 1, Vec::new);
        }
        if let Some(list) = idle.get_mut(index) {
            list.push(backend);
        }
    }

    /// Takes the backend of `server` that was idle for longest.
    pub(crate) fn take_oldest(&self, server: usize) -> Option<Backend> {
        let mut idle = self.idle.borrow_mut();
        let list = idle.get_mut(server)?;
        if list.is_empty() { None } else { Some(list.remove(0)) }
    }

    /// Takes out the idle backends of `server` that no session has had since `since_ms` (process clock), but not the last used one.
    pub(crate) fn take_unused(&self, server: usize, since_ms: u64) -> Vec<Backend> {
        let mut idle = self.idle.borrow_mut();
        let Some(list) = idle.get_mut(server) else { return Vec::new() };
        let mut unused = Vec::new();
        let mut at = 0;
        while let Some(backend) = list.get(at).filter(|_| at + 1 < list.len()) {
            if backend.core.worked_ms < since_ms { unused.push(list.remove(at)) } else { at += 1 }
        }
        unused
    }

    /// Takes out every idle backend for which `leave` answers true.
    pub(crate) fn take_where(&self, leave: impl FnMut(&mut Backend) -> bool) -> Vec<Backend> {
        let mut taken = Vec::new();
        self.part_with(leave, |backend| taken.push(backend));
        taken
    }

    /// Closes every idle backend for which `leave` answers true. Each is closed before the next one is looked at: `leave` may count
    /// connections.
    pub(crate) fn close_where(&self, leave: impl FnMut(&mut Backend) -> bool) {
        self.part_with(leave, drop);
    }

    fn part_with(&self, mut leave: impl FnMut(&mut Backend) -> bool, mut part: impl FnMut(Backend)) {
        for list in self.idle.borrow_mut().iter_mut() {
            let mut i = 0;
            while let Some(backend) = list.get_mut(i) {
                if leave(backend) {
                    part(list.remove(i));
                } else {
                    i += 1;
                }
            }
        }
    }

    /// Looks at every idle backend.
    pub(crate) fn visit(&self, look: impl FnMut(&Backend)) {
        self.idle.borrow().iter().flatten().for_each(look);
    }

    pub(crate) fn has_idle(&self) -> bool {
        self.idle.borrow().iter().any(|list| !list.is_empty())
    }

    /// Number of idle backends, of one server.
    pub(crate) fn idle(&self, server: usize) -> usize {
        self.idle.borrow().get(server).map_or(0, Vec::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::{server, snapshot};
    use model::HostgroupId;
    use session_state::class::Class;
    use wire::flags::Capabilities;

    #[test]
    fn what_one_lane_is_refused_rests_for_that_lane_until_it_is_let_in_or_all_is_configured_anew() {
        let snapshot = snapshot(&[(0, "a")], "mysql_users = ( { username=\"u\" }, { username=\"v\" } )");
        let lane_of = |name: &str| {
            let key =
                LaneKey { hostgroup: HostgroupId(0), user: Arc::clone(&snapshot.users[name]), class: Class::of(Capabilities::default()) };
            Lane::new(key, Arc::new(Quota::new(1)), &snapshot)
        };
        let (lane, other, servers) = (lane_of("u"), lane_of("v"), [server("a", 1)]);
        let a = &servers[0];
        assert_eq!(lane.tries(a, 1000), 0);
        assert!(lane.may_ask(a, 1000) && !lane.is_refused_somewhere() && lane.refusal(&servers).is_none());
        lane.refused_by(a, "denied".into(), 0, 1000);
        assert!(!lane.may_ask(a, 1009) && lane.is_refused(&servers, 1009) && lane.may_ask(a, 1010));
        assert!(other.may_ask(a, 1000) && !other.is_refused(&servers, 1000));
        assert_eq!(lane.refusal(&servers).as_deref(), Some("a:3306: denied"));
        assert_eq!(lane.tries(a, 1010), 1);
        assert!(!lane.may_ask(a, 1011), "another one is not tried beside");
        lane.refused_by(a, "denied".into(), 1, 1011);
        assert!(!lane.may_ask(a, 1030) && lane.may_ask(a, 1031));
        lane.refused_by(a, "denied".into(), 100, 2000);
        assert!(!lane.may_ask(a, 2999) && lane.may_ask(a, 3000), "a second at most");
        assert!(!lane.is_refused(&[], 2000) && lane.refusal(&[]).is_none());
        lane.let_in_by(a);
        assert!(lane.may_ask(a, 2000) && !lane.is_refused_somewhere());
        lane.refused_by(a, "denied".into(), 0, 2000);
        lane.configure(&snapshot);
        assert!(lane.may_ask(a, 2000), "it may be mended");
    }
}
