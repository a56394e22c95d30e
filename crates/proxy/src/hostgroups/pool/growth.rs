//! Connections of a pool: when one more is opened, for whom, and what becomes of it.

use super::{AcquireError, FRONT, HostgroupPool, Kind, Needs, Outcome, Waiter};
use crate::backends::backend::Backend;
use crate::backends::connect::{self, ConnectError, Raw};
use crate::backends::side_connection::{Loss, end_given_up, end_lost_connection};
use crate::hostgroups::lane::Lane;
use crate::servers::server::{ServerShared, Slot};
use crate::workers::counters::count;
use crate::workers::mailbox::Mail;
use crate::workers::worker::Worker;
use model::ServerAddr;
use model::fleet::SignalKind;
use session_state::certainty;
use session_state::class::LaneKey;
use session_state::collected::ServerError;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use wire::codes;
use wire::reframe::ReplyError;

/// At most one more connect in progress for each so many connections that exist.
const GROWTH_STEP: usize = 8;

/// A connect that has taken so long is not waited for alone where there is another server: one that swallows packets would hold
/// everybody up for `connect_timeout_server`.
const STALLS_AFTER: Duration = Duration::from_millis(250);

/// How long (us) a waiter waits for its own worker's backends before other workers are asked for one.
const ASK_OTHERS_US: u64 = 10_000;

/// How long (us) nobody of a lane got a connection before one is opened for it, whether that helps the others or not.
const STANDS_STILL_US: u64 = 100_000;

/// How long (us) they are not asked again for one of the same lane.
const ASK_AGAIN_US: u64 = 500;

/// Who a connection is opened for.
enum Whose {
    /// Whoever waits longest.
    Anybodys,
    /// One who takes no connection that others have used.
    Only(Rc<Waiter>),
}

impl Whose {
    /// How its connection is opened, where that is not as all others are.
    fn raw(&self) -> Option<&Raw> {
        match self {
            Self::Only(waiter) => waiter.wish.raw.as_ref(),
            Self::Anybodys => None,
        }
    }

    /// A connect for it began, or ended.
    fn is_opening(&self, is_opening: bool) {
        if let Self::Only(waiter) = self {
            waiter.is_opening.set(is_opening);
        }
    }
}

/// How often a server had refused, when it was asked once more.
#[derive(Clone, Copy, Default)]
struct PriorRefusals {
    /// One more connection of the user.
    of_user: u32,
    /// Any of the lane.
    of_lane: u32,
    /// The lane's configuration then.
    generation: u64,
}

impl HostgroupPool {
    /// Another server's backend serves because the one whose turn it is has none: it is given one more beside if it has less than its
    /// share of the connections, or if it `is_starved` by those that it has, which may belong to other workers. So a server that came
    /// back gets its share of a load that is steady.
    pub(super) fn make_up_for(self: &Rc<Self>, worker: &Rc<Worker>, lane: &Rc<Lane>, chosen: usize, is_starved: bool) {
        let (now_us, servers) = (worker.shared.clock.now_us(), self.servers());
        let now_ms = now_us / 1000;
        let Some(server) = servers.get(chosen) else { return };
        if self.connecting.get() > 0
            || self.is_awaited_elsewhere(lane)
            || is_starved && server.connects.under_way() > 0
            || !server.takes_connects(now_ms)
        {
            return;
        }
        let used = || servers.iter().filter(|s| s.is_online());
        let shares: u128 = used().map(|s| u128::from(s.share.at(now_ms))).sum();
        let connections: u128 = used().map(|s| u128::from(s.connections())).sum();
        let (own, fair) = (u128::from(server.connections()) * shares, u128::from(server.share.at(now_ms)) * connections);
        // One that answers slowly is not to take all connections.
        let most = 2 * fair + worker.shared.mailboxes.len() as u128 * shares;
        if own < if is_starved { most } else { fair } {
            self.spawn_connect(worker, server, lane, 0, Whose::Anybodys, false);
        }
    }

    /// Opens one connection more beside, where a server has fewer than `connection_warming` wants. So nobody waits for it, and
    /// the pool is full before it is needed.
    pub(super) fn warm(self: &Rc<Self>, worker: &Rc<Worker>, lane: &Rc<Lane>) {
        let (now_us, servers) = (worker.shared.clock.now_us(), self.servers());
        let is_cold = |server: &&Arc<ServerShared>| {
            let is_wanted = server.standing.is_usable(now_us / 1000) && server.takes_connects(now_us / 1000);
            // What this worker would give away again as too many idle ones is not opened.
            is_wanted && server.share.weight() > 0 && lane.idle(server.index) < self.most_idle(worker, server)
        };
        let wants_more = |server: &&Arc<ServerShared>| {
            u64::from(server.connections()) * 100 < u64::from(server.room.max_connections()) * u64::from(self.shared.free_connections_pct())
        };
        if self.connecting.get() == 0
            && !self.is_awaited_elsewhere(lane)
            && let Some(server) = servers.iter().filter(is_cold).find(wants_more)
        {
            self.spawn_connect(worker, server, lane, 0, Whose::Anybodys, false);
        }
    }

    /// Whether sessions wait that a connection of this lane would not serve: what the limits allow is theirs.
    fn is_awaited_elsewhere(&self, lane: &Lane) -> bool {
        !self.shared.queue.is_empty() || self.waiters.borrow().fronts().any(|(_, kind, _)| !kind.takes_of(lane))
    }

    /// Idle connections to a server that each lane may have on this worker: its share of `free_connections_pct`, at least one; none
    /// where that is 0.
    pub(super) fn most_idle(&self, worker: &Worker, server: &ServerShared) -> usize {
        let workers = worker.shared.mailboxes.len().max(1);
        let pct = self.shared.free_connections_pct() as usize;
        let share = server.room.max_connections() as usize * pct / 100 / workers;
        if pct == 0 { 0 } else { share.max(1) }
    }

    /// Opens connections for waiters as far as the limits allow, if any may be opened: while the connections that there are take
    /// turns, and more would not help, only [`HostgroupPool::tick`] looks closer.
    pub(crate) fn grow(self: &Rc<Self>, worker: &Rc<Worker>) {
        if self.may_grow() {
            self.open_as_allowed(worker);
        }
        self.publish_room(worker);
    }

    /// Whether more connections may help, as far as that is seen without a closer look.
    pub(super) fn may_grow(&self) -> bool {
        let is_bound = self.settings.borrow().adaptive_connections && self.loners.get() == 0;
        !is_bound || self.servers.borrow().iter().any(|s| s.is_online() && s.sizing.may_open())
    }

    /// The same, whatever was learnt: others may have idle connections, or a lane may stand still.
    pub(super) fn grow_if_due(self: &Rc<Self>, worker: &Rc<Worker>) {
        self.open_as_allowed(worker);
        self.publish_room(worker);
    }

    fn open_as_allowed(self: &Rc<Self>, worker: &Rc<Worker>) {
        if self.shared.is_held() {
            return;
        }
        let now_ms = worker.shared.clock.now_ms();
        // For whom none can be opened who wants little lag: there may be room where those do not want to go.
        let mut refused = None;
        // The same for lanes that not every server lets in.
        let mut passed: Vec<Rc<Lane>> = Vec::new();
        loop {
            let waiting = self.wanting(now_ms);
            // A pool that has backends grows by steps: a stall of the server must not become a burst of connects.
            let have = self.connections() as usize;
            let is_adaptive = self.settings.borrow().adaptive_connections;
            let step = if have == 0 || is_adaptive { waiting } else { 1 + have / GROWTH_STEP };
            if self.connecting.get() >= waiting.min(step) {
                // The connects in progress may take long.
                if waiting > 0 {
                    self.borrow_for_first(worker, |kind| self.may_grow_in(kind, now_ms));
                }
                return;
            }
            // Those for whom one is being opened are not the next.
            let Some(waiter) = self.next_wanting(self.connecting_for_all(), refused, &passed, now_ms) else { return };
            let makes_room = refused.is_none() || !waiter.is_choosy();
            if !self.start_connect(worker, &waiter, have, makes_room) {
                if waiter.lane.is_refused_somewhere() {
                    passed.push(Rc::clone(&waiter.lane));
                    continue;
                }
                let Some(max_lag_ms) = waiter.wish.needs.max_lag_ms else { return };
                refused = Some(max_lag_ms);
            }
        }
    }

    /// Connects in progress that are for nobody alone.
    pub(super) fn connecting_for_all(&self) -> usize {
        let opening = match self.loners.get() {
            0 => 0,
            _ => self.waiters.borrow().of(|kind| !kind.takes_used).filter(|w| w.is_opening.get()).count(),
        };
        self.connecting.get().saturating_sub(opening)
    }

    /// How many wait for whom a connection may be opened: not those whose users have as many as they may, nor those who want
    /// what no server has.
    fn wanting(&self, now_ms: u64) -> usize {
        let waiters = self.waiters.borrow();
        let plain = waiters.count(|kind| !kind.is_choosy && self.may_grow_in(kind, now_ms));
        let choosy = || waiters.of(|kind| kind.is_choosy && self.may_grow_in(kind, now_ms)).filter(|w| self.has_hope(w, now_ms)).count();
        plain + if self.choosy.get() > 0 { choosy() } else { 0 }
    }

    /// The one of them that stands behind `skip` others, wants no server that those want who allow the lag `refused`, and is of none
    /// of the lanes `passed`. Where a server fails, few connects are tried: lanes have them in turn, so that one that never succeeds
    /// holds up no other.
    fn next_wanting(&self, skip: usize, refused: Option<u32>, passed: &[Rc<Lane>], now_ms: u64) -> Option<Rc<Waiter>> {
        let waiters = self.waiters.borrow();
        let may_grow = |kind: &Kind| self.may_grow_in(kind, now_ms);
        let wants = |w: &Rc<Waiter>| !w.is_opening.get() && (!w.is_choosy() || self.has_hope(w, now_ms));
        let (from, _) = waiters.in_order(FRONT, may_grow).filter(|(_, w)| wants(w)).nth(skip)?;
        let is_other = |kind: &Kind| may_grow(kind) && !passed.iter().any(|lane| Rc::ptr_eq(lane, &kind.lane));
        let wants_more = |w: &Rc<Waiter>| w.wish.needs.max_lag_ms.is_none_or(|max| refused.is_none_or(|refused| max > refused));
        let next = waiters.first_of_each(from, is_other, |w| wants(w) && wants_more(w));
        let next = if self.servers.borrow().iter().any(|s| s.is_online() && s.connects.are_failing()) {
            next.min_by_key(|(place, w)| (w.lane.failed_us(), *place))
        } else {
            next.min_by_key(|(place, _)| *place)
        };
        next.map(|(_, w)| Rc::clone(w))
    }

    /// Connections of the whole process to those of the hostgroup's servers that are used: what is left on others serves
    /// nobody who waits.
    pub(super) fn connections(&self) -> u32 {
        self.servers.borrow().iter().filter(|s| s.is_online()).map(|s| s.connections()).sum()
    }

    /// Starts one connect for the waiter, where there are `have` connections; false when that is not allowed now.
    fn start_connect(self: &Rc<Self>, worker: &Rc<Worker>, waiter: &Rc<Waiter>, have: usize, makes_room: bool) -> bool {
        let now_us = worker.shared.clock.now_us();
        let now_ms = now_us / 1000;
        let is_sized = self.settings.borrow().adaptive_connections && !waiter.is_loner();
        // Who gets none of those that there are is given one all the same, if the server lets in who connects.
        let stands_still = waiter.lane.stands_still(now_us, STANDS_STILL_US) && now_us.saturating_sub(waiter.since_us) >= STANDS_STILL_US;
        let may_open = |s: &ServerShared| !is_sized || s.sizing.may_open() || stands_still && s.connects.under_way() == 0;
        let Some(index) = self.choose_to_connect(worker, &waiter.lane, waiter.wish.needs, now_ms) else {
            if makes_room {
                self.make_room(worker, waiter, now_ms);
            }
            return false;
        };
        let Some(server) = self.servers.borrow().get(index).map(Arc::clone) else { return false };
        if !may_open(&server) {
            // Others are not asked in its place: what its weight gives it is its own.
            self.ask_others(worker, waiter);
            return false;
        }
        // Many who wait for few mean load that more connections serve better, and so do those who always wait, however short each
        // of them; a single one can wait for a moment.
        let crowded = self.waiters.borrow().len() * 2 > have;
        let delay = self.settings.borrow().connection_growth_delay_us;
        let busy_since_us = waiter.lane.busy_since_us().min(waiter.since_us);
        if waiter.wish.needs.takes_used() && have > 0 && !crowded && now_us.saturating_sub(busy_since_us) < delay {
            return false;
        }
        if let Some(per_second) = self.shared.connect_limit_reached(now_us) {
            self.throttled.set((now_us, per_second));
            if !waiter.is_throttled.replace(true) {
                count(&worker.counters.connects_throttled);
            }
            self.borrow_from_others(worker, waiter);
            return false;
        }
        let whose = if waiter.is_loner() { Whose::Only(Rc::clone(waiter)) } else { Whose::Anybodys };
        let is_counted = is_sized && server.sizing.opens();
        if is_sized && !is_counted && !stands_still {
            return false;
        }
        let is_begun = self.spawn_connect(worker, &server, &waiter.lane, waiter.wish.collation, whose, is_counted);
        match is_begun {
            true => waiter.lane.turned(now_us),
            false if is_counted => server.sizing.gave_up(),
            false => {}
        }
        if !is_begun {
            self.borrow_from_others(worker, waiter);
        }
        is_begun
    }

    /// The server for a new connection: one that keeps others waiting only where there is no other.
    fn choose_to_connect(&self, worker: &Worker, lane: &Lane, needs: Needs, now_ms: u64) -> Option<usize> {
        let at_once = self.choose_faster(worker, lane, needs, now_ms);
        at_once.or_else(|| self.choose_by_connections(worker, needs, now_ms, |s| s.takes_connects(now_ms) && lane.may_ask(s, now_ms)))
    }

    /// A server that takes connections and keeps nobody waiting for one.
    fn choose_faster(&self, worker: &Worker, lane: &Lane, needs: Needs, now_ms: u64) -> Option<usize> {
        let is_fast = |s: &Arc<ServerShared>| s.takes_connects(now_ms) && !s.connects.are_stalling() && lane.may_ask(s, now_ms);
        self.choose_by_connections(worker, needs, now_ms, is_fast)
    }

    fn choose_by_connections(
        &self,
        worker: &Worker,
        needs: Needs,
        now_ms: u64,
        fits: impl Fn(&Arc<ServerShared>) -> bool,
    ) -> Option<usize> {
        let servers = self.servers();
        let from = worker.random.below(servers.len() as u64) as usize;
        self.choice(&servers, needs, now_ms, &fits)?.fewest_connections(&fits, from)
    }

    /// A connect that takes long counts no more where another server may be faster: whoever waits for it gets one there beside.
    fn pass_by(self: &Rc<Self>, worker: &Rc<Worker>, lane: &Lane, whose: &Whose) -> bool {
        let now_ms = worker.shared.clock.now_ms();
        let is_passed = matches!(whose, Whose::Anybodys) && self.choose_faster(worker, lane, Needs::default(), now_ms).is_some();
        if is_passed {
            self.connecting.set(self.connecting.get() - 1);
            self.grow(worker);
        }
        is_passed
    }

    /// Starts one connect as far as the limits allow; false when they do not.
    fn spawn_connect(
        self: &Rc<Self>,
        worker: &Rc<Worker>,
        server: &Arc<ServerShared>,
        lane: &Rc<Lane>,
        collation: u8,
        whose: Whose,
        is_counted: bool,
    ) -> bool {
        let now_us = worker.shared.clock.now_us();
        if !lane.may_ask(server, now_us / 1000) {
            return false;
        }
        let Some(permit) = server.begin_connect(u32::try_from(self.settings().connect_concurrency).unwrap_or(u32::MAX)) else {
            return false;
        };
        let Some(slot) = server.reserve(&lane.quota, lane.limit()) else { return false };
        if !self.shared.take_connect_rate(now_us) {
            return false;
        }
        let before = PriorRefusals {
            of_user: lane.quota.tries(server, &self.servers(), now_us / 1000),
            of_lane: lane.tries(server, now_us / 1000),
            generation: lane.generation(),
        };
        self.connecting.set(self.connecting.get() + 1);
        whose.is_opening(true);
        let (pool, worker, lane, server) = (Rc::clone(self), Rc::clone(worker), Rc::clone(lane), Arc::clone(server));
        tokio::task::spawn_local(async move {
            let mut work = pin!(pool.open(&worker, &server, &lane, collation, &whose, slot));
            let (result, is_passed) = match worker.within(STALLS_AFTER, &mut work).await {
                Some(result) => (result, false),
                None => {
                    let _stall = server.connect_stalls();
                    let is_passed = pool.pass_by(&worker, &lane, &whose);
                    (work.await, is_passed)
                }
            };
            drop(permit);
            whose.is_opening(false);
            if !is_passed {
                pool.connecting.set(pool.connecting.get() - 1);
            }
            if is_counted && !matches!(result, Some(Ok(_))) {
                server.sizing.gave_up();
            }
            match result {
                Some(result) => pool.connected(&worker, &server, &lane, &whose, result, before),
                None => pool.grow(&worker),
            }
        });
        true
    }

    /// Opens a connection within `connect_timeout_server`; None when its server is not used any more before. What runs on one that
    /// is given up is ended, and it counts until then.
    async fn open(
        self: &Rc<Self>,
        worker: &Rc<Worker>,
        server: &Arc<ServerShared>,
        lane: &Lane,
        collation: u8,
        whose: &Whose,
        slot: Slot,
    ) -> Option<Result<Backend, ConnectError>> {
        let limit = Duration::from_millis(self.settings().connect_timeout_server);
        let (began_us, late) = (worker.peers_us(), || ConnectError::Server(too_late(worker, server, limit)));
        let entering = async {
            match whose.raw() {
                Some(raw) => connect::open_raw(worker, server, &lane.key, raw, collation, slot).await,
                None => connect::enter(worker, server, None, &lane.key, collation, slot).await,
            }
        };
        let entered = self.while_used(server, worker.within(limit, entering)).await?.unwrap_or_else(|| Err(late()));
        let mut backend = match entered {
            Ok(backend) if whose.raw().is_none() => backend,
            other => return Some(other),
        };
        let left = limit.saturating_sub(Duration::from_micros(worker.peers_us().saturating_sub(began_us)));
        let readied = self.while_used(server, worker.within(left, connect::make_ready(worker, &mut backend, collation))).await;
        let error = match readied {
            Some(Some(Ok(()))) => return Some(Ok(backend)),
            Some(Some(Err(error))) => {
                // Lost, mostly.
                if backend.is_owed() {
                    tokio::task::spawn_local(end_lost_connection(Rc::clone(worker), Rc::clone(self), backend, Loss::Closed));
                }
                return Some(Err(error));
            }
            Some(None) => Some(late()),
            None => None,
        };
        if !server.is_severed() {
            tokio::task::spawn_local(end_given_up(Rc::clone(worker), Rc::clone(self), backend));
        }
        error.map(Err)
    }

    /// Does `work` with a server for as long as the server is used; None when that ends before.
    async fn while_used<T>(&self, server: &ServerShared, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        loop {
            let laid_out = self.laid_out.notified();
            if !server.is_online() {
                return None;
            }
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                () = laid_out => {}
            }
        }
    }

    /// What became of a connect.
    fn connected(
        self: &Rc<Self>,
        worker: &Rc<Worker>,
        server: &ServerShared,
        lane: &Lane,
        whose: &Whose,
        result: Result<Backend, ConnectError>,
        before: PriorRefusals,
    ) {
        let now_us = worker.shared.clock.now_us();
        let now_ms = now_us / 1000;
        let counters = &worker.counters;
        connect::counted(worker, server, &lane.key, &result);
        match result {
            Ok(backend) => {
                if server.connects.succeeded() > 0 {
                    server.told.forget();
                    worker.shared.signal(server, SignalKind::Recovered);
                }
                lane.let_in_by(server);
                counters.backends_opened.set(counters.backends_opened.get() + 1);
                self.release_new(worker, whose, backend);
            }
            Err(ConnectError::Login(e)) if whose.raw().is_some() && is_of_schema(&e) => {
                self.fail(worker, lane, whose, || AcquireError::Refused(e.clone()));
            }
            // The password or what else was refused may be replaced: the next connect tells.
            Err(error) if before.generation != lane.generation() && is_of_settings(&error, server, lane) => {}
            Err(ConnectError::Login(e)) => {
                if self.refuse(worker, server, lane, &format!("the login was refused: {e}"), before.of_lane) {
                    self.fail(worker, lane, whose, || AcquireError::Refused(e.clone()));
                }
            }
            Err(ConnectError::Impossible(text)) => {
                if self.refuse(worker, server, lane, &text, before.of_lane) {
                    self.fail(worker, lane, whose, || AcquireError::Impossible(text.clone()));
                }
            }
            Err(ConnectError::NoSecret(text)) => {
                warn(worker, server, &format!("cannot log in to {} as '{}': {text}", server.key, lane.key.user.name));
                self.fail(worker, lane, whose, || AcquireError::Impossible(text.clone()));
            }
            Err(ConnectError::UsedUp(e)) => {
                let text = e.to_string();
                warn(worker, server, &format!("{} accepts no more connections of '{}': {text}", server.key, lane.key.user.name));
                lane.quota.refuse(server, &self.servers(), text, before.of_user, now_ms);
                self.look_for_limits();
                self.publish_lane(worker, lane);
                let user = lane.key.user.name.clone();
                self.make_room_at(worker, server, lane, move |other| other.user.name == user);
            }
            Err(ConnectError::InitConnect(e)) => {
                let is_last = self.refuse(worker, server, lane, &format!("init_connect failed: {e}"), before.of_lane);
                if passes(&e) {
                    worker.shared.signal(server, SignalKind::ConnectFailed);
                } else if is_last {
                    let message = [b"Tidegate: init_connect failed: ", e.message.as_slice()].concat();
                    let error = ServerError { message, ..e };
                    self.fail(worker, lane, whose, || AcquireError::Refused(error.clone()));
                }
            }
            Err(ConnectError::Lacks(text)) => {
                // What a `fast_forward` client was promised is its own. The lane's other clients may have been promised less.
                if whose.raw().is_some() || self.refuse(worker, server, lane, &text, before.of_lane) {
                    let message = format!("Tidegate: {text}; connect again").into_bytes();
                    let error = ServerError { code: codes::NOT_SUPPORTED_YET, sqlstate: *b"42000", message };
                    self.fail(worker, lane, whose, || AcquireError::Refused(error.clone()));
                }
            }
            Err(ConnectError::Tls(text)) if server.config().has_own_tls(&lane.key.user.name) => {
                if self.refuse(worker, server, lane, &text, before.of_lane) {
                    self.fail(worker, lane, whose, || AcquireError::Impossible(text.clone()));
                }
            }
            Err(error @ (ConnectError::Server(_) | ConnectError::Closed(_) | ConnectError::Unfit(_) | ConnectError::Tls(_))) => {
                lane.failed(now_us);
                let text = error.to_string();
                counters.connect_errors.set(counters.connect_errors.get() + 1);
                warn(worker, server, &format!("connect to {} failed: {text}", server.key));
                server.connects.failed(&text, matches!(error, ConnectError::Unfit(_)), now_ms);
                worker.shared.signal(server, SignalKind::ConnectFailed);
                if matches!(&error, ConnectError::Closed(e) if e.code == codes::CON_COUNT) {
                    self.make_room_at(worker, server, lane, |_| true);
                }
            }
        }
        self.grow(worker);
    }

    /// A server refused this lane alone: it rests for it, and for nobody else. Returns whether no server is left that has not.
    fn refuse(&self, worker: &Worker, server: &ServerShared, lane: &Lane, text: &str, before: u32) -> bool {
        warn(worker, server, &format!("connect to {} as '{}' failed: {text}", server.key, lane.key.user.name));
        lane.refused_by(server, text.to_owned(), before, worker.shared.clock.now_ms());
        self.has_refused.set(true);
        lane.refusal(&self.servers()).is_some()
    }

    /// Gives a new backend to the one it was opened for; to anybody when that one waits no more.
    fn release_new(self: &Rc<Self>, worker: &Rc<Worker>, whose: &Whose, backend: Backend) {
        let may_have_it = !self.shared.is_held() && backend.core.server.standing.is_usable(worker.clock.now_ms());
        let waiting = match whose {
            Whose::Only(waiter) if may_have_it => self.waiters.borrow_mut().remove(&waiter.kind(), waiter.ticket),
            Whose::Only(_) | Whose::Anybodys => None,
        };
        match waiting {
            Some(waiter) => {
                self.publish(worker, &waiter.lane);
                waiter.finish(Outcome::Ready(Box::new(backend)));
            }
            // It is in its client's state, which the pool does not know.
            None if whose.raw().is_some() => drop(backend),
            None => self.release(worker, backend),
        }
    }

    /// The login can never succeed for those who wait in this lane; one as a client logged in fails for that client alone.
    fn fail(&self, worker: &Worker, lane: &Lane, whose: &Whose, error: impl Fn() -> AcquireError) {
        let failed: Vec<_> = match whose {
            Whose::Only(only) if only.wish.raw.is_some() => vec![Rc::clone(only)],
            Whose::Only(_) | Whose::Anybodys => self.waiters.borrow().of(|kind| kind.lane.key == lane.key).cloned().collect(),
        };
        let is_waiting = |waiter: &Rc<Waiter>| self.waiters.borrow_mut().remove(&waiter.kind(), waiter.ticket).is_some();
        let failed: Vec<_> = failed.into_iter().filter(is_waiting).collect();
        self.publish(worker, lane);
        for waiter in failed {
            waiter.finish(Outcome::Failed(error()));
        }
    }

    /// Every server is full (or failing): close an idle backend of another lane, or ask other workers for one.
    fn make_room(&self, worker: &Worker, waiter: &Waiter, now_ms: u64) {
        let servers = self.servers();
        let full = servers.iter().filter(|s| s.room.is_full() && waiter.may_connect_to(s, now_ms));
        for server in full {
            let lanes = self.lanes.borrow().clone();
            // Its own lane's idle backends stand in the way of one that wants none of them.
            let others = lanes.iter().filter(|l| l.key != waiter.lane.key || !waiter.wish.needs.takes_used());
            if let Some(evicted) = others.filter_map(|l| l.take_oldest(server.index)).next() {
                drop(evicted);
                worker.has_room.notify_one();
                return;
            }
        }
        self.ask_others(worker, waiter);
    }

    /// A server says itself that it has no room: an idle backend to its address is closed for those who wait in the lane. It is one of
    /// another lane that `helps`, of whichever hostgroup; where this worker has none, each other worker closes one.
    fn make_room_at(&self, worker: &Worker, server: &ServerShared, lane: &Lane, helps: impl Fn(&LaneKey) -> bool + Clone + Send + 'static) {
        if !self.waiters.borrow().fronts().any(|(_, kind, _)| kind.lane.key == lane.key) {
            return;
        }
        let (address, key) = (server.key.addr(), lane.key.clone());
        let helps = move |other: &LaneKey| *other != key && helps(other);
        if worker.pools().iter().any(|pool| pool.close_idle_to(&address, &helps)) {
            worker.has_room.notify_one();
            return;
        }
        for (_, mailbox) in worker.shared.mailboxes.iter().enumerate().filter(|(to, _)| *to != worker.index) {
            let (address, helps) = (address.clone(), helps.clone());
            mailbox.send(Mail::Ask(Box::new(move |worker: &Rc<Worker>| {
                _ = worker.pools().iter().any(|pool| pool.close_idle_to(&address, &helps));
            })));
        }
    }

    /// Closes an idle backend to a server, of one of these lanes; false where there is none.
    fn close_idle_to(&self, address: &ServerAddr, fits: impl Fn(&LaneKey) -> bool) -> bool {
        let (lanes, servers) = (self.lanes.borrow().clone(), self.servers());
        let there: Vec<usize> = servers.iter().filter(|s| s.key.addr().is_same(address)).map(|s| s.index).collect();
        lanes.iter().filter(|lane| fits(&lane.key)).any(|lane| there.iter().any(|index| lane.take_oldest(*index).is_some()))
    }

    /// Asks other workers for a backend, or for room. This worker's own come back within a moment, as long as it has any at
    /// work.
    pub(super) fn ask_others(&self, worker: &Worker, waiter: &Waiter) {
        self.ask(worker, waiter, true);
    }

    /// Asks other workers for an idle backend of the waiter's own lane: room for a new one would not help it now.
    fn borrow_from_others(&self, worker: &Worker, waiter: &Waiter) {
        if waiter.wish.needs.takes_used() {
            self.ask(worker, waiter, false);
        }
    }

    /// The same for the first waiter of each line of these kinds.
    pub(super) fn borrow_for_first(&self, worker: &Worker, fits: impl Fn(&Kind) -> bool) {
        for (_, _, waiter) in self.waiters.borrow().fronts().filter(|(_, kind, _)| fits(kind)) {
            self.borrow_from_others(worker, waiter);
        }
    }

    fn ask(&self, worker: &Worker, waiter: &Waiter, makes_room: bool) {
        let now_us = worker.shared.clock.now_us();
        if now_us.saturating_sub(waiter.since_us) < ASK_OTHERS_US || !waiter.lane.may_ask_others(now_us, ASK_AGAIN_US) {
            return;
        }
        for (to, mailbox) in worker.shared.mailboxes.iter().enumerate() {
            if to != worker.index {
                let (lane, needs) = (waiter.lane.key.clone(), waiter.wish.needs);
                mailbox.send(Mail::Wanted { lane, needs, makes_room, from: worker.index });
            }
        }
    }
}

/// A lock, or the time, was waited for in vain; it was killed.
const INTERRUPTED: [u16; 4] = [codes::LOCK_WAIT_TIMEOUT, codes::QUERY_INTERRUPTED, codes::STATEMENT_TIMEOUT, codes::QUERY_TIMEOUT];

/// Whether an error says that the server does not do that now, whoever asks.
fn passes(error: &ServerError) -> bool {
    let ServerError { code, sqlstate, message } = error;
    INTERRUPTED.contains(code) || certainty::refusal(&ReplyError { code: *code, sqlstate: *sqlstate, message, unasked: false }).is_some()
}

/// Whether a connect failed for what the configuration says of a lane's user.
fn is_of_settings(error: &ConnectError, server: &ServerShared, lane: &Lane) -> bool {
    match error {
        ConnectError::Login(_) | ConnectError::Impossible(_) | ConnectError::NoSecret(_) | ConnectError::InitConnect(_) => true,
        ConnectError::Tls(_) => server.config().has_own_tls(&lane.key.user.name),
        ConnectError::Server(_) | ConnectError::Closed(_) | ConnectError::Unfit(_) | ConnectError::Lacks(_) | ConnectError::UsedUp(_) => {
            false
        }
    }
}

/// Whether a login was refused for the schema that it names. Only logins of `fast_forward` sessions name one, each its client's.
fn is_of_schema(error: &ServerError) -> bool {
    matches!(error.code, codes::BAD_DB | codes::DBACCESS_DENIED)
}

/// Logs why there is no connection to a server; the same only once in a while.
fn warn(worker: &Worker, server: &ServerShared, text: &str) {
    if let Some(line) = server.told.due(text, worker.shared.clock.now_ms()) {
        tracing::warn!("{line}");
    }
}

/// Why there is no connection after all that time.
fn too_late(worker: &Worker, server: &ServerShared, limit: Duration) -> String {
    let (host, limit_ms) = (&server.key.host, limit.as_millis());
    if worker.shared.names.is_unresolved(host) {
        format!("the name '{host}' was not resolved within {limit_ms} ms (the lookup continues)")
    } else {
        format!("no connection within {limit_ms} ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed;
    use crate::hostgroups::pool::Wish;
    use model::HostgroupId;
    use session_state::class::Class;
    use tokio::task::LocalSet;
    use wire::charset::Flavor;
    use wire::flags::Capabilities;

    /// A session waits as long as one server is left that has not refused its lane. The error is told when none is.
    #[tokio::test]
    async fn a_login_that_one_server_refuses_is_tried_on_the_others() {
        let denied = || ServerError { code: codes::ACCESS_DENIED, sqlstate: *b"28000", message: b"Access denied".to_vec() };
        // Each error, and how many sessions wait when one server of two has answered with it, and when both have.
        type Made = fn(ServerError) -> ConnectError;
        let cases: [(&str, Made, [usize; 2]); 3] = [
            ("refused", ConnectError::Login, [1, 0]),
            ("impossible", |e| ConnectError::Impossible(e.to_string()), [1, 0]),
            ("no password is known", |e| ConnectError::NoSecret(e.to_string()), [0, 0]),
        ];
        for (case, error, left) in cases {
            LocalSet::new()
                .run_until(async {
                    let snapshot = bed::snapshot(&[(0, "a"), (0, "b")], "mysql_users = ( { username=\"u\" } )");
                    let worker = bed::worker(Arc::clone(&snapshot));
                    let pool = worker.pool(HostgroupId(0));
                    let user = Arc::clone(&snapshot.users["u"]);
                    let lane = pool.lane(&worker, &LaneKey { hostgroup: HostgroupId(0), user, class: Class::of(Capabilities::default()) });
                    let now_us = worker.shared.clock.now_us();
                    let _waiting = pool.enqueue(&worker, &lane, Wish::default(), now_us, u64::MAX);
                    for (server, left) in pool.servers().iter().zip(left) {
                        pool.connected(&worker, server, &lane, &Whose::Anybodys, Err(error(denied())), PriorRefusals::default());
                        assert_eq!(pool.waiting().0, left, "{case}, {}", server.key);
                    }
                })
                .await;
        }
    }

    /// A schema or a capability of one `fast_forward` client is no fact about the other clients of its user.
    #[tokio::test]
    async fn what_a_client_of_its_own_is_refused_for_holds_up_no_other() {
        let login = |code| ConnectError::Login(ServerError { code, sqlstate: *b"42000", message: b"no".to_vec() });
        let cases = [login(codes::BAD_DB), login(codes::DBACCESS_DENIED), ConnectError::Lacks("a:3306 lacks protocol features".to_owned())];
        for error in cases {
            LocalSet::new()
                .run_until(async {
                    let snapshot = bed::snapshot(&[(0, "a"), (0, "b")], "mysql_users = ( { username=\"u\", fast_forward=1 } )");
                    let worker = bed::worker(Arc::clone(&snapshot));
                    let pool = worker.pool(HostgroupId(0));
                    let user = Arc::clone(&snapshot.users["u"]);
                    let lane = pool.lane(&worker, &LaneKey { hostgroup: HostgroupId(0), user, class: Class::of(Capabilities::default()) });
                    // Nothing is opened meanwhile.
                    pool.shared.hold(true);
                    let now_us = worker.shared.clock.now_us();
                    let wish = || Wish::own(45, Raw { capabilities: Capabilities::default(), schema: None });
                    let first = pool.enqueue(&worker, &lane, wish(), now_us, u64::MAX);
                    let second = pool.enqueue(&worker, &lane, wish(), now_us, u64::MAX);
                    let server = Arc::clone(&pool.servers()[0]);
                    let (case, before) = (error.to_string(), PriorRefusals::default());
                    pool.connected(&worker, &server, &lane, &Whose::Only(Rc::clone(&first.waiter)), Err(error), before);
                    assert!(matches!(*first.waiter.outcome.borrow(), Outcome::Failed(AcquireError::Refused(_))), "{case}");
                    assert!(matches!(*second.waiter.outcome.borrow(), Outcome::Waiting), "{case}");
                    assert!(lane.may_ask(&server, worker.shared.clock.now_ms()) && !lane.is_refused_somewhere(), "{case}");
                })
                .await;
        }
    }

    /// It may be full of idle connections of other users and hostgroups, which `max_connections` of no row says.
    #[tokio::test]
    async fn a_server_that_says_it_is_full_loses_an_idle_connection_to_who_waits() {
        type Made = fn(ServerError) -> ConnectError;
        // The error, whether a session of u waits in hostgroup 0, and what v and u have left in hostgroup 1.
        let cases: [(&str, Made, bool, [usize; 2]); 3] = [
            ("the server is full", ConnectError::Closed, true, [0, 1]),
            ("the user has too many", ConnectError::UsedUp, true, [1, 0]),
            ("nobody waits", ConnectError::Closed, false, [1, 1]),
        ];
        for (case, error, waits, left) in cases {
            LocalSet::new()
                .run_until(async {
                    let users = "mysql_users = ( { username=\"u\" }, { username=\"v\" } )";
                    let snapshot = bed::snapshot(&[(0, "a"), (1, "a")], users);
                    let worker = bed::worker(Arc::clone(&snapshot));
                    let lane_of = |hostgroup, name: &str| {
                        let (hostgroup, user) = (HostgroupId(hostgroup), Arc::clone(&snapshot.users[name]));
                        worker.pool(hostgroup).lane(&worker, &LaneKey { hostgroup, user, class: Class::of(Capabilities::default()) })
                    };
                    let (lane, others, pool) = (lane_of(0, "u"), [lane_of(1, "v"), lane_of(1, "u")], worker.pool(HostgroupId(0)));
                    let _ends = others.each_ref().map(|other| {
                        let (backend, end) = bed::backend(&worker, other, Flavor::MySql, "8.4.0");
                        other.put(backend);
                        end
                    });
                    // Nothing is opened meanwhile.
                    pool.shared.hold(true);
                    let now_us = worker.shared.clock.now_us();
                    let _waiting = waits.then(|| pool.enqueue(&worker, &lane, Wish::default(), now_us, u64::MAX));
                    let full = ServerError { code: codes::CON_COUNT, sqlstate: *b"08004", message: b"Too many connections".to_vec() };
                    let server = Arc::clone(&pool.servers()[0]);
                    pool.connected(&worker, &server, &lane, &Whose::Anybodys, Err(error(full)), PriorRefusals::default());
                    assert_eq!(others.each_ref().map(|other| other.idle(0)), left, "{case}");
                })
                .await;
        }
    }

    /// A LOAD replaced the password while a connect with the former one was under way.
    #[tokio::test]
    async fn a_refusal_of_what_was_replaced_meanwhile_fails_nobody() {
        LocalSet::new()
            .run_until(async {
                let snapshot = bed::snapshot(&[(0, "a")], "mysql_users = ( { username=\"u\" } )");
                let worker = bed::worker(Arc::clone(&snapshot));
                let pool = worker.pool(HostgroupId(0));
                let user = Arc::clone(&snapshot.users["u"]);
                let lane = pool.lane(&worker, &LaneKey { hostgroup: HostgroupId(0), user, class: Class::of(Capabilities::default()) });
                // Nothing is opened meanwhile.
                pool.shared.hold(true);
                let server = Arc::clone(&pool.servers()[0]);
                let before = PriorRefusals { of_lane: 7, generation: lane.generation(), ..PriorRefusals::default() };
                lane.configure(&snapshot);
                let _waiting = pool.enqueue(&worker, &lane, Wish::default(), worker.shared.clock.now_us(), u64::MAX);
                for left in [1, 0] {
                    let denied = ServerError { code: codes::ACCESS_DENIED, sqlstate: *b"28000", message: b"Access denied".to_vec() };
                    let before = PriorRefusals { generation: if left == 1 { before.generation } else { lane.generation() }, ..before };
                    pool.connected(&worker, &server, &lane, &Whose::Anybodys, Err(ConnectError::Login(denied)), before);
                    assert_eq!(pool.waiting().0, left);
                    assert_eq!(lane.may_ask(&server, worker.shared.clock.now_ms()), left == 1);
                }
            })
            .await;
    }

    #[test]
    fn who_may_not_is_told_from_who_may_not_now() {
        let passes = |code, message: &str| passes(&ServerError { code, sqlstate: *b"HY000", message: message.into() });
        assert!(passes(1290, "The MariaDB server is running with the --read-only option so it cannot execute this statement"));
        assert!(passes(1053, "Server shutdown in progress") && passes(1205, "Lock wait timeout exceeded; try restarting transaction"));
        assert!(!passes(1142, "INSERT command denied to user 'u'@'h' for table `audit`.`logins`") && !passes(1064, "syntax"));
        assert!(!passes(1290, "The MySQL server is running with the --secure-file-priv option so it cannot execute this statement"));
    }
}
