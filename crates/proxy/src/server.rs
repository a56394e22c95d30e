//! One server of one hostgroup, for all workers: how it is placed, its limits, its health.
//!
//! What the operator wrote and what was observed meet here: the placement says how it is reached and whether it is used,
//! and a few atomics say the same to those who ask with each statement. Counts are exact: a connection exists only while
//! a [`Slot`] is held. INVARIANT: once a placement that is not ONLINE is stored, nobody is given the server for new work.

use crate::log_throttle::LogThrottle;
use crate::pins::{PASSING, PinReason, PinSet};
use crate::quota::Quota;
use crate::ramp;
use crate::safety::Safety;
use crate::server_counts::ServerCounts;
use crate::server_info::{ServerInfo, TrackDefaults};
use crate::signals::LastSignals;
use crate::sizing::SharedSizing;
use crate::terms::Terms;
use arc_swap::{ArcSwap, ArcSwapOption};
use model::ServerKey;
use model::fleet::{Measured, Placement, UnderWay};
use model::snapshot::{Server, ServerStatus};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// In the place of a status: the server serves the hostgroup no more.
const REMOVED: u8 = u8::MAX;
/// In the place of a time: it never comes.
pub const NEVER: u64 = u64::MAX;
/// In the place of a lag: it is not known.
const UNKNOWN: u64 = u64::MAX;

/// Who changes how a server is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacedBy {
    /// An operator loaded a configuration, and wants its servers tried at once.
    Configuration,
    /// Roles were observed.
    Observation,
}

/// See the module. It stays when the server leaves the hostgroup, so that its number there stays its own.
pub struct ServerShared {
    /// Which server.
    pub key: ServerKey,
    /// Its number in the hostgroup.
    pub index: usize,
    placement: ArcSwap<Placement>,
    // What is asked for with each statement, beside the rest of the placement.
    status: AtomicU8,
    weight: AtomicU32,
    max_connections: AtomicU32,
    transport: AtomicU8,
    connections: AtomicU32,
    /// How many of them another process has, whose place this one takes.
    elsewhere: AtomicU32,
    connecting: AtomicU32,
    /// Process clock (ms) before which no new connection is tried; 0 when healthy.
    retry_at_ms: AtomicU64,
    failures: AtomicU32,
    /// The last of them was none of reaching it: that it answers pings ends no pause.
    is_unfit: AtomicBool,
    last_error: Mutex<Option<String>>,
    /// Process clock (ms) from which pinned sessions must leave; [`NEVER`] while they may stay.
    leave_at_ms: AtomicU64,
    /// Process clock (ms) from which sessions must leave whose pin is no transaction, because it drains; [`NEVER`] while they
    /// may stay.
    drained_at_ms: AtomicU64,
    /// An [`UnderWay`].
    under_way: AtomicU8,
    /// Process clock (ms) until which its role is in doubt; 0 when it is not.
    suspect_until_ms: AtomicU64,
    /// Process clock (ms) since when it is back; 0 when it has its whole weight.
    back_since_ms: AtomicU64,
    /// Process clock (ms) since when it is used without a break.
    used_since_ms: AtomicU64,
    /// Connects under way that take longer than they should.
    stalled: AtomicU32,
    /// A trigger, or a function behind a view, has changed a session here.
    pub has_loud_triggers: AtomicBool,
    /// Open transactions that would have to be said again if it were lost.
    stakes: AtomicU32,
    ramp_ms: AtomicU64,
    latency_us: AtomicU64,
    max_latency_us: AtomicU64,
    lag_ms: AtomicU64,
    /// Connections for KILL: one at a time.
    pub kills: tokio::sync::Semaphore,
    /// The work that it got.
    pub given: Given,
    /// How many connections to it help.
    pub sizing: SharedSizing,
    /// What is counted for it.
    pub counts: ServerCounts,
    /// When its troubles were last told.
    pub signals: LastSignals,
    /// What was logged of its connects.
    pub told: LogThrottle,
    /// What it said of itself at the last login.
    pub info: ArcSwapOption<ServerInfo>,
    /// The versions that were met at its address, the latest ones.
    versions: Mutex<Vec<Arc<ServerInfo>>>,
    /// How often another server was in its place, and when (process clock, ms) the last time.
    turns: AtomicU32,
    turned_ms: AtomicU64,
    /// A COM_CHANGE_USER of the proxy's own was refused.
    refuses_change_user: AtomicBool,
    /// Addresses that its name has no more, and whether there are any.
    gone: ArcSwap<Vec<IpAddr>>,
    has_moved: AtomicBool,
    /// See [`ServerShared::started_ms`].
    started_ms: AtomicU64,
}

/// What a server was given, in thousandths of a turn: servers that got as much as their weights say have got the same. A turn of a
/// hostgroup is one piece of work for any of its servers.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Given(pub AtomicU64);

/// How a server is to be connected to: `use_ssl` and `compression`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transport(u8);

/// The right to hold one connection to a server; gives itself back.
pub struct Slot(Option<(Arc<ServerShared>, Arc<Quota>)>);

impl Slot {
    /// The right to one connection beside the counted ones, to send a KILL: the caller holds its server's turn.
    pub fn extra() -> Self {
        Self(None)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some((server, quota)) = &self.0 {
            server.connections.fetch_sub(1, Ordering::AcqRel);
            quota.closed(server);
        }
    }
}

/// The right to be connecting; gives itself back.
pub struct ConnectPermit(Arc<ServerShared>);

impl Drop for ConnectPermit {
    fn drop(&mut self) {
        self.0.connecting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Another server in the place of one.
pub struct Turned {
    /// What was there.
    pub before: Arc<ServerInfo>,
    /// It is no mere change between several behind one address.
    pub is_news: bool,
}

/// Versions of which is remembered what was learnt.
const MAX_VERSIONS: usize = 4;
/// Where several versions answer at one address, a change between them is news again after this time, ms.
const NEWS_AGAIN_MS: u64 = 60_000;
/// First pause after a failed connect, ms; doubles with each further failure.
const RETRY_FIRST_MS: u64 = 10;
/// Time between looks at what is still done on a server that drains, ms.
const LOOK_AGAIN_MS: u64 = 100;
/// Longest pause between connects to a failing server, ms.
const RETRY_MAX_MS: u64 = 1000;

/// How long no connect is tried after one that failed behind so many others, ms.
pub fn pause_ms(failures: u32) -> u64 {
    (RETRY_FIRST_MS << failures.min(16)).min(RETRY_MAX_MS)
}

impl ServerShared {
    /// A server that was just placed in the hostgroup, with its whole weight.
    pub fn new(placement: &Placement, index: usize, terms: &Terms, now_ms: u64) -> Self {
        let new = Self {
            key: placement.server.key.clone(),
            index,
            placement: ArcSwap::from_pointee(placement.clone()),
            status: AtomicU8::new(REMOVED),
            weight: AtomicU32::new(0),
            max_connections: AtomicU32::new(0),
            transport: AtomicU8::new(0),
            connections: AtomicU32::new(0),
            elsewhere: AtomicU32::new(0),
            connecting: AtomicU32::new(0),
            retry_at_ms: AtomicU64::new(0),
            failures: AtomicU32::new(0),
            is_unfit: AtomicBool::new(false),
            last_error: Mutex::new(None),
            leave_at_ms: AtomicU64::new(NEVER),
            drained_at_ms: AtomicU64::new(NEVER),
            under_way: AtomicU8::new(UnderWay::MayFinish as u8),
            suspect_until_ms: AtomicU64::new(0),
            back_since_ms: AtomicU64::new(0),
            used_since_ms: AtomicU64::new(0),
            stalled: AtomicU32::new(0),
            has_loud_triggers: AtomicBool::new(false),
            stakes: AtomicU32::new(0),
            ramp_ms: AtomicU64::new(0),
            latency_us: AtomicU64::new(0),
            max_latency_us: AtomicU64::new(NEVER),
            lag_ms: AtomicU64::new(UNKNOWN),
            kills: tokio::sync::Semaphore::new(1),
            given: Given::default(),
            sizing: SharedSizing::default(),
            counts: ServerCounts::default(),
            signals: LastSignals::default(),
            told: LogThrottle::default(),
            info: ArcSwapOption::empty(),
            versions: Mutex::default(),
            turns: AtomicU32::new(0),
            turned_ms: AtomicU64::new(0),
            refuses_change_user: AtomicBool::new(false),
            gone: ArcSwap::default(),
            has_moved: AtomicBool::new(false),
            started_ms: AtomicU64::new(0),
        };
        new.place(placement, terms, PlacedBy::Configuration, now_ms);
        new
    }

    /// How it is placed; when it serves the hostgroup no more, how it was.
    pub fn placement(&self) -> Arc<Placement> {
        self.placement.load_full()
    }

    /// Its row of the configuration, or the row that stands for it; the last one, when it serves no more.
    pub fn config(&self) -> Arc<Server> {
        Arc::clone(&self.placement.load().server)
    }

    /// It is placed anew. A pause between connects ends where an operator loads servers, and where it was out.
    pub(crate) fn place(&self, placement: &Placement, terms: &Terms, by: PlacedBy, now_ms: u64) {
        let server = &placement.server;
        let is_used = placement.status == ServerStatus::Online && placement.under_way != UnderWay::Severed;
        let is_back = is_used && !self.is_online();
        if by == PlacedBy::Configuration || is_back {
            self.retry_at_ms.store(0, Ordering::Release);
        }
        if is_back {
            self.failures.store(0, Ordering::Release);
            self.used_since_ms.store(now_ms, Ordering::Release);
            // One that only lagged is warm.
            let ramps = by == PlacedBy::Observation && self.status() != ServerStatus::ShunnedReplicationLag;
            self.back_since_ms.store(if ramps { now_ms.max(1) } else { 0 }, Ordering::Release);
        }
        self.weight.store(server.weight, Ordering::Release);
        self.max_connections.store(server.max_connections, Ordering::Release);
        self.transport.store(u8::from(server.use_ssl) | u8::from(server.compression) << 1, Ordering::Release);
        self.max_latency_us.store(max_latency_us(server, terms), Ordering::Release);
        self.ramp_ms.store(terms.ramp_ms, Ordering::Release);
        self.under_way.store(placement.under_way as u8, Ordering::Release);
        self.suspect_until_ms.store(0, Ordering::Release);
        let leave_at_ms = leave_at(placement, self.leave_at_ms.load(Ordering::Acquire), terms.grace_ms, now_ms);
        self.leave_at_ms.store(leave_at_ms, Ordering::Release);
        let drained_at_ms = drained_at(placement, self.drained_at_ms.load(Ordering::Acquire), terms.drain_ms, now_ms);
        self.drained_at_ms.store(drained_at_ms, Ordering::Release);
        self.placement.store(Arc::new(placement.clone()));
        let is_severed = placement.under_way == UnderWay::Severed && placement.status == ServerStatus::Online;
        let status = if is_severed { ServerStatus::Shunned } else { placement.status };
        self.status.store(status as u8, Ordering::Release);
    }

    /// It serves the hostgroup no more: nothing new goes to it, and what has begun may finish, for a while; not on a dead one.
    pub(crate) fn remove(&self, under_way: UnderWay, terms: &Terms, now_ms: u64) {
        // Who had no time to notice that it was severed still will.
        if !self.is_severed() {
            self.under_way.store(under_way as u8, Ordering::Release);
        }
        if self.status.swap(REMOVED, Ordering::AcqRel) == REMOVED {
            return;
        }
        let before = self.leave_at_ms.load(Ordering::Acquire);
        self.leave_at_ms.store(before.min(now_ms.saturating_add(terms.grace_ms)), Ordering::Release);
    }

    /// Whether new work may go to it, as far as its placement says.
    pub fn is_online(&self) -> bool {
        self.status.load(Ordering::Acquire) == ServerStatus::Online as u8
    }

    /// Whether new work may go to it: it is ONLINE, and its role is not in doubt at `now_ms`.
    pub fn is_usable(&self, now_ms: u64) -> bool {
        if Safety::RoleCheck.is_off() {
            return true;
        }
        self.is_online() && !self.is_suspect(now_ms)
    }

    /// Whether idle connections to it serve new work: it is usable, and has a weight.
    pub fn takes_work(&self, now_ms: u64) -> bool {
        self.is_usable(now_ms) && self.configured_weight() > 0
    }

    /// Whether idle connections to it are kept.
    pub fn keeps_idle(&self) -> bool {
        self.is_online() && self.configured_weight() > 0
    }

    /// Whether traffic put its role in doubt, and nobody has looked since.
    pub fn is_suspect(&self, now_ms: u64) -> bool {
        self.suspect_until_ms.load(Ordering::Acquire) > now_ms
    }

    /// Its role is in doubt until `until_ms`, unless somebody looks before.
    pub fn suspect(&self, until_ms: u64) {
        self.suspect_until_ms.store(until_ms, Ordering::Release);
    }

    /// Whether its connections are closed, also those at work: it is taken for dead, or OFFLINE_HARD.
    pub fn is_cut(&self) -> bool {
        self.is_severed() || self.status.load(Ordering::Acquire) == ServerStatus::OfflineHard as u8
    }

    /// Why its connections are closed, for those who had something there; None where they are not.
    pub fn why_cut(&self) -> Option<&'static str> {
        match self.is_severed() {
            true => Some("the server is taken for dead"),
            false => self.is_cut().then_some("the server was taken out of service (OFFLINE_HARD)"),
        }
    }

    /// Whether it is taken for dead.
    pub fn is_severed(&self) -> bool {
        self.under_way.load(Ordering::Acquire) == UnderWay::Severed as u8
    }

    /// Whether statements that run there may never end: it is out, and cut off from its cluster or from the monitor.
    pub fn is_cut_off(&self) -> bool {
        self.under_way.load(Ordering::Acquire) == UnderWay::EndsAfterGrace as u8
    }

    /// Process clock (ms) from which pinned sessions must leave it; [`NEVER`] while they may stay.
    pub fn leave_at_ms(&self) -> u64 {
        if Safety::GraceEnd.is_off() {
            return NEVER;
        }
        self.leave_at_ms.load(Ordering::Acquire)
    }

    /// [`Self::leave_at_ms`] for a session with these pins: a transaction may finish on a server that drains, however long it
    /// takes, and what else binds a session may last for ever.
    pub fn leave_at_ms_with(&self, pins: PinSet) -> u64 {
        // The sooner such a client is cut, the sooner it follows the new writer.
        if pins.contains(PinReason::ReplicationGtid) && !self.is_online() {
            return 0;
        }
        let in_transaction = pins.contains(PinReason::Transaction) || pins.contains(PinReason::Xa);
        let is_bound = !in_transaction && !pins.without(PASSING).is_empty();
        let drained_at_ms = if is_bound { self.drained_at_ms.load(Ordering::Acquire) } else { NEVER };
        self.leave_at_ms().min(drained_at_ms)
    }

    /// When a session with these pins is to be disturbed: as it must leave, and time after time where it must once its
    /// transaction is over.
    pub fn disturb_at_ms(&self, pins: PinSet, now_ms: u64) -> u64 {
        match (self.leave_at_ms_with(pins), self.drained_at_ms.load(Ordering::Acquire)) {
            (NEVER, NEVER) => NEVER,
            (NEVER, drained_at_ms) if !pins.is_empty() => drained_at_ms.max(now_ms + LOOK_AGAIN_MS),
            (leave_at_ms, _) => leave_at_ms,
        }
    }

    /// Open transactions that would have to be said again if it were lost.
    pub fn stakes(&self) -> u32 {
        self.stakes.load(Ordering::Acquire)
    }

    /// One more of them.
    pub(crate) fn begin_stake(&self) {
        self.stakes.fetch_add(1, Ordering::AcqRel);
    }

    /// One fewer; answers whether it was the last.
    pub(crate) fn end_stake(&self) -> bool {
        self.stakes.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether it serves the hostgroup no more.
    pub fn is_removed(&self) -> bool {
        self.status.load(Ordering::Acquire) == REMOVED
    }

    /// Its status; one that serves no more is OFFLINE_HARD.
    pub fn status(&self) -> ServerStatus {
        let status = self.status.load(Ordering::Acquire);
        let all = [ServerStatus::Online, ServerStatus::Shunned, ServerStatus::OfflineSoft, ServerStatus::ShunnedReplicationLag];
        all.into_iter().find(|s| *s as u8 == status).unwrap_or(ServerStatus::OfflineHard)
    }

    /// Its share of the work now, in [`ramp::PARTS`] of its weight: less than all of it while it has not been back for long.
    pub fn share(&self, now_ms: u64) -> u64 {
        let weight = self.configured_weight();
        match self.back_since_ms.load(Ordering::Relaxed) {
            0 => ramp::whole(weight),
            since => ramp::share(weight, now_ms.saturating_sub(since), self.ramp_ms.load(Ordering::Relaxed)),
        }
    }

    /// Process clock (ms) since when it is used without a break: what was known of it before may not hold.
    pub fn used_since_ms(&self) -> u64 {
        self.used_since_ms.load(Ordering::Acquire)
    }

    /// Its share of the work as it was written.
    pub fn configured_weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    /// Its role is in doubt no more.
    pub fn looked_at(&self) {
        self.suspect_until_ms.store(0, Ordering::Release);
    }

    /// Takes over what was measured of it, which says nothing of its role.
    pub fn measured(&self, measured: Measured) {
        self.latency_us.store(measured.latency_us, Ordering::Release);
        self.lag_ms.store(measured.lag_ms.unwrap_or(UNKNOWN), Ordering::Release);
        if measured.latency_us > 0 && !self.is_unfit.load(Ordering::Acquire) {
            // It answers: the next connect need not wait.
            self.retry_at_ms.store(0, Ordering::Release);
        }
    }

    /// Average of its last pings, us; 0 while unknown.
    pub fn latency_us(&self) -> u64 {
        self.latency_us.load(Ordering::Acquire)
    }

    /// Whether its pings take longer than is allowed.
    pub fn is_slow(&self) -> bool {
        self.latency_us.load(Ordering::Relaxed) > self.max_latency_us.load(Ordering::Relaxed)
    }

    /// How far it is behind its source, ms, where that is known.
    pub fn lag_ms(&self) -> Option<u64> {
        Some(self.lag_ms.load(Ordering::Acquire)).filter(|lag| *lag != UNKNOWN)
    }

    /// What its row says of TLS and of compression: a connection that was opened by another word serves nobody new.
    pub fn transport(&self) -> Transport {
        Transport(self.transport.load(Ordering::Relaxed))
    }

    /// Most connections to it, from all workers together.
    pub fn max_connections(&self) -> u32 {
        self.max_connections.load(Ordering::Relaxed)
    }

    /// Connections that exist or are being made.
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Acquire)
    }

    /// Connections that are being made.
    pub fn connecting(&self) -> u32 {
        self.connecting.load(Ordering::Acquire)
    }

    /// Whether its connections may be reset by COM_CHANGE_USER.
    pub fn takes_change_user(&self) -> bool {
        !self.refuses_change_user.load(Ordering::Relaxed)
    }

    /// It refused one: what fails once fails always, and is an entry in the server's log each time.
    pub fn refused_change_user(&self) {
        self.refuses_change_user.store(true, Ordering::Relaxed);
    }

    /// It said this of itself at a login; whether it was another one before.
    pub(crate) fn heard(&self, mut info: ServerInfo, now_ms: u64) -> (Arc<ServerInfo>, Option<Turned>) {
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        let known = versions.iter().find(|known| known.version == info.version);
        let is_new = known.is_none();
        if let Some(known) = known {
            info.tracking = Arc::clone(&known.tracking);
        }
        let info = Arc::new(info);
        if is_new {
            if versions.len() >= MAX_VERSIONS {
                versions.remove(0);
            }
            versions.push(Arc::clone(&info));
        }
        let before = self.info.swap(Some(Arc::clone(&info))).filter(|before| before.version != info.version);
        let turned = before.map(|before| {
            let is_news = is_new || now_ms >= self.turned_ms.load(Ordering::Relaxed).saturating_add(NEWS_AGAIN_MS);
            if is_news {
                self.turned_ms.store(now_ms, Ordering::Relaxed);
                self.refuses_change_user.store(false, Ordering::Relaxed);
                self.turns.fetch_add(1, Ordering::AcqRel);
            }
            Turned { before, is_news }
        });
        drop(versions);
        (info, turned)
    }

    /// How often another server was in its place.
    pub fn turns(&self) -> u32 {
        self.turns.load(Ordering::Acquire)
    }

    /// Session tracking on it, once a connection has asked.
    pub fn track_defaults(&self) -> Option<TrackDefaults> {
        self.info.load().as_ref()?.tracking.get().map(|tracking| tracking.defaults.clone())
    }

    /// Its name has these addresses no more.
    pub(crate) fn moved(&self, gone: &[IpAddr]) {
        self.gone.store(Arc::new(gone.to_vec()));
        self.has_moved.store(!gone.is_empty(), Ordering::Release);
    }

    /// Whether its name has had other addresses.
    pub fn has_moved(&self) -> bool {
        self.has_moved.load(Ordering::Acquire)
    }

    /// It was started after this (process clock, ms).
    pub(crate) fn started_after(&self, at_ms: u64) {
        self.started_ms.fetch_max(at_ms, Ordering::AcqRel);
    }

    /// Connections that were opened before this (process clock, ms) ended when it was started; 0 where that is not known.
    pub(crate) fn started_ms(&self) -> u64 {
        // Where its name has had other addresses, it is not known which of them said so.
        if self.has_moved() { 0 } else { self.started_ms.load(Ordering::Acquire) }
    }

    /// Whether its name has this address no more.
    pub fn is_gone(&self, ip: IpAddr) -> bool {
        self.gone.load().contains(&ip)
    }

    /// True when `max_connections` is reached.
    pub fn is_full(&self) -> bool {
        self.connections() >= self.max_connections() && !Safety::ConnectionLimit.is_off()
    }

    /// A connect takes longer than it should; what is answered counts it until it is dropped.
    pub fn connect_stalls(self: &Arc<Self>) -> Stall {
        self.stalled.fetch_add(1, Ordering::AcqRel);
        Stall(Arc::clone(self))
    }

    /// True while a connect takes longer than it should.
    pub fn is_stalling(&self) -> bool {
        self.stalled.load(Ordering::Acquire) > 0
    }

    /// True while connects fail and the pause before the next try is not over.
    pub fn is_backing_off(&self, now_ms: u64) -> bool {
        self.retry_at_ms.load(Ordering::Acquire) > now_ms
    }

    /// True while connects fail: one is tried at a time.
    pub fn is_failing(&self) -> bool {
        self.failures.load(Ordering::Acquire) > 0
    }

    /// Whether one more connection may be opened now.
    pub fn takes_connects(&self, now_ms: u64) -> bool {
        !self.is_backing_off(now_ms) && !self.is_full()
    }

    /// Takes the right to hold a connection, if `max_connections` allows, and what its user may have: `limit` (0 is none).
    pub fn reserve(self: &Arc<Self>, quota: &Arc<Quota>, limit: u64) -> Option<Slot> {
        if !quota.take(limit) {
            return None;
        }
        let slot = self.reserve_for(Arc::clone(quota));
        if slot.is_none() {
            quota.give_back();
        }
        slot
    }

    fn reserve_for(self: &Arc<Self>, quota: Arc<Quota>) -> Option<Slot> {
        let max = if Safety::ConnectionLimit.is_off() { u32::MAX } else { self.max_connections() };
        let taken = self.connections.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < max).then_some(n + 1));
        taken.ok().map(|_| Slot(Some((Arc::clone(self), quota))))
    }

    /// The right to a connection that is there already, of another process: whatever the limits are.
    pub fn take_over(self: &Arc<Self>, quota: &Arc<Quota>) -> Slot {
        quota.take(0);
        let was_counted = self.elsewhere.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1)).is_ok();
        if !was_counted {
            self.connections.fetch_add(1, Ordering::AcqRel);
        }
        Slot(Some((Arc::clone(self), Arc::clone(quota))))
    }

    /// Another process has so many connections now: they count towards `max_connections`.
    pub fn count_elsewhere(&self, count: u32) {
        let before = self.elsewhere.swap(count, Ordering::AcqRel);
        if count != before {
            self.connections.fetch_add(count.wrapping_sub(before), Ordering::AcqRel);
        }
    }

    /// Takes the right to connect now: at most `concurrency` at a time; one at a time after failures.
    pub fn begin_connect(self: &Arc<Self>, concurrency: u32) -> Option<ConnectPermit> {
        let limit = if self.is_failing() { 1 } else { concurrency };
        let taken = self.connecting.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < limit).then_some(n + 1));
        taken.ok().map(|_| ConnectPermit(Arc::clone(self)))
    }

    /// A login succeeded; answers how many connects had failed before.
    pub fn connect_succeeded(&self) -> u32 {
        self.retry_at_ms.store(0, Ordering::Release);
        self.failures.swap(0, Ordering::AcqRel)
    }

    /// A connect failed for a reason that concerns the server, before it took the login or after it (`was_let_in`); pauses grow
    /// until one succeeds.
    pub fn connect_failed(&self, error: &str, was_let_in: bool, now_ms: u64) {
        self.is_unfit.store(was_let_in, Ordering::Release);
        let pause_ms = pause_ms(self.failures.fetch_add(1, Ordering::AcqRel));
        self.retry_at_ms.store(now_ms + pause_ms, Ordering::Release);
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_owned());
    }

    /// The last connect error, while connects fail.
    pub fn last_error(&self) -> Option<String> {
        if !self.is_failing() {
            return None;
        }
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The longest ping that is allowed, us.
fn max_latency_us(server: &Server, terms: &Terms) -> u64 {
    match server.max_latency_ms {
        0 => terms.default_max_latency_ms.saturating_mul(1000),
        ms => u64::from(ms) * 1000,
    }
}

/// From when (process clock, ms) pinned sessions must leave a server that is placed so. `before` is what held so far: time
/// that has begun to run goes on.
fn leave_at(placement: &Placement, before: u64, grace_ms: u64, now_ms: u64) -> u64 {
    match (placement.under_way, placement.status) {
        (UnderWay::Severed, _) | (_, ServerStatus::OfflineHard) => before.min(now_ms),
        // A transaction that only reads old rows harms nobody.
        (_, ServerStatus::Online | ServerStatus::OfflineSoft | ServerStatus::ShunnedReplicationLag) => NEVER,
        (_, ServerStatus::Shunned) => before.min(now_ms.saturating_add(grace_ms)),
    }
}

/// From when (process clock, ms) sessions whose pin is no transaction must leave a server that drains. Where its row says
/// OFFLINE_SOFT they may stay: so the administrator was promised.
fn drained_at(placement: &Placement, before: u64, drain_ms: u64, now_ms: u64) -> u64 {
    let drains = placement.status == ServerStatus::OfflineSoft && placement.server.status != ServerStatus::OfflineSoft;
    if drains { before.min(now_ms.saturating_add(drain_ms)) } else { NEVER }
}

/// A connect that takes longer than it should.
pub struct Stall(Arc<ServerShared>);

impl Drop for Stall {
    fn drop(&mut self) {
        self.0.stalled.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::{placement, server};

    const TERMS: Terms = Terms {
        grace_ms: 500,
        drain_ms: 800,
        ramp_ms: 1000,
        suspicion_ms: 100,
        default_max_latency_ms: 1000,
        role: crate::terms::HostgroupRole::Plain,
        is_galera: false,
    };

    const ALL: [ServerStatus; 5] = [
        ServerStatus::Online,
        ServerStatus::Shunned,
        ServerStatus::OfflineSoft,
        ServerStatus::OfflineHard,
        ServerStatus::ShunnedReplicationLag,
    ];

    fn observed(server: &ServerShared, status: ServerStatus, now_ms: u64) {
        server.place(&placement("a", 16, status), &TERMS, PlacedBy::Observation, now_ms);
    }

    /// Every status after every other: who is used, who must leave when.
    #[test]
    fn a_status_says_who_may_stay() {
        for before in ALL {
            for after in ALL {
                let server = server("a", 16);
                observed(&server, before, 1000);
                observed(&server, after, 2000);
                assert_eq!(server.is_online(), after == ServerStatus::Online);
                assert_eq!(server.is_cut(), after == ServerStatus::OfflineHard);
                assert_eq!(server.status(), after);
                let expected = match (before, after) {
                    (_, ServerStatus::Online | ServerStatus::OfflineSoft | ServerStatus::ShunnedReplicationLag) => NEVER,
                    (ServerStatus::OfflineHard, ServerStatus::Shunned | ServerStatus::OfflineHard) => 1000,
                    (ServerStatus::Shunned, ServerStatus::Shunned) => 1500,
                    (ServerStatus::Shunned, ServerStatus::OfflineHard) => 1500,
                    (_, ServerStatus::OfflineHard) => 2000,
                    (_, ServerStatus::Shunned) => 2500,
                };
                assert_eq!(server.leave_at_ms(), expected, "{before:?} then {after:?}");
            }
        }
    }

    #[test]
    fn on_a_server_that_drains_transactions_may_finish_and_other_pins_have_a_limit() {
        let server = server("a", 16);
        let bound = PinSet::of(&[PinReason::UserVariable]);
        let others = [
            PinSet::default(),
            PinSet::of(&[PinReason::Transaction]),
            PinSet::of(&[PinReason::Transaction, PinReason::UserVariable]),
            PinSet::of(&[PinReason::Xa]),
            PinSet::of(&[PinReason::Cursor, PinReason::MultiplexingOff]),
        ];
        observed(&server, ServerStatus::OfflineSoft, 1000);
        observed(&server, ServerStatus::OfflineSoft, 1400);
        assert_eq!((server.leave_at_ms_with(bound), server.disturb_at_ms(bound, 1400)), (1800, 1800), "time that runs goes on");
        for pins in others {
            assert_eq!(server.leave_at_ms_with(pins), NEVER, "{pins:?}");
            let looks = if pins.is_empty() { (NEVER, NEVER) } else { (1800, 2100) };
            assert_eq!((server.disturb_at_ms(pins, 1400), server.disturb_at_ms(pins, 2000)), looks, "{pins:?}");
        }
        observed(&server, ServerStatus::Online, 1500);
        assert_eq!((server.leave_at_ms_with(bound), server.disturb_at_ms(bound, 1500)), (NEVER, NEVER));
        let mut by_row = placement("a", 16, ServerStatus::OfflineSoft);
        by_row.server = Arc::new(Server { status: ServerStatus::OfflineSoft, ..Server::clone(&by_row.server) });
        server.place(&by_row, &TERMS, PlacedBy::Configuration, 3000);
        assert_eq!((server.leave_at_ms_with(bound), server.disturb_at_ms(bound, 9000)), (NEVER, NEVER), "an administrator's");
    }

    #[test]
    fn a_stream_by_gtid_leaves_at_once() {
        let server = server("a", 16);
        let stream = PinSet::of(&[PinReason::ReplicationGtid]);
        assert_eq!((server.leave_at_ms_with(stream), server.disturb_at_ms(stream, 900)), (NEVER, NEVER));
        server.remove(UnderWay::MayFinish, &TERMS, 1000);
        assert_eq!((server.leave_at_ms_with(stream), server.disturb_at_ms(stream, 1000)), (0, 0));
    }

    #[test]
    fn a_removed_server_gives_a_grace_once() {
        let server = server("a", 16);
        server.remove(UnderWay::MayFinish, &TERMS, 1000);
        server.remove(UnderWay::MayFinish, &TERMS, 1400);
        assert!(server.is_removed() && !server.is_online() && !server.is_cut());
        assert_eq!((server.leave_at_ms(), server.status()), (1500, ServerStatus::OfflineHard));
        observed(&server, ServerStatus::Online, 1450);
        assert_eq!(server.leave_at_ms(), NEVER);
    }

    #[test]
    fn severed_is_not_used_and_cut() {
        let server = server("a", 16);
        let severed = Placement { under_way: UnderWay::Severed, ..placement("a", 16, ServerStatus::Online) };
        server.place(&severed, &TERMS, PlacedBy::Observation, 1000);
        assert!(server.is_cut() && server.is_severed() && !server.is_online());
        assert!(server.leave_at_ms() <= 1000);
        server.remove(UnderWay::MayFinish, &TERMS, 2000);
        assert!(server.is_cut(), "who had no time to notice still will");
        observed(&server, ServerStatus::Online, 3000);
        assert!(!server.is_cut() && server.is_online());
    }

    #[test]
    fn who_is_cut_off_is_so_until_it_is_placed_otherwise() {
        let server = server("a", 16);
        let cut_off = Placement { under_way: UnderWay::EndsAfterGrace, ..placement("a", 16, ServerStatus::Shunned) };
        server.place(&cut_off, &TERMS, PlacedBy::Observation, 1000);
        assert!(server.is_cut_off() && !server.is_cut() && !server.is_online());
        assert_eq!(server.leave_at_ms(), 1500);
        server.remove(UnderWay::EndsAfterGrace, &TERMS, 1200);
        assert!(server.is_cut_off() && !server.is_cut());
        assert_eq!(server.leave_at_ms(), 1500, "the grace is given once");
        server.remove(UnderWay::MayFinish, &TERMS, 1300);
        assert!(!server.is_cut_off(), "it is back with its cluster, in another role");
        server.remove(UnderWay::Severed, &TERMS, 1400);
        server.remove(UnderWay::EndsAfterGrace, &TERMS, 1400);
        assert!(server.is_cut(), "a dead one stays so");
        observed(&server, ServerStatus::Online, 2000);
        assert!(!server.is_cut_off() && !server.is_cut() && server.is_online());
    }

    #[test]
    fn what_comes_back_begins_small_but_not_after_lag_or_a_load() {
        let server = server("a", 16);
        assert_eq!(server.share(0), 16_000, "at the first start");
        observed(&server, ServerStatus::Shunned, 1000);
        observed(&server, ServerStatus::Online, 2000);
        assert_eq!((server.share(2000), server.share(2500), server.share(3000)), (1_000, 8_500, 16_000));
        observed(&server, ServerStatus::Online, 2400);
        assert_eq!(server.share(2500), 8_500, "a layout that changes nothing begins no ramp");
        observed(&server, ServerStatus::ShunnedReplicationLag, 5000);
        observed(&server, ServerStatus::Online, 6000);
        assert_eq!(server.share(6000), 16_000);
        observed(&server, ServerStatus::OfflineSoft, 7000);
        server.place(&placement("a", 16, ServerStatus::Online), &TERMS, PlacedBy::Configuration, 8000);
        assert_eq!(server.share(8000), 16_000);
    }

    #[test]
    fn every_break_begins_its_use_anew() {
        let server = server("a", 16);
        for (at, status) in [ServerStatus::Shunned, ServerStatus::OfflineSoft, ServerStatus::ShunnedReplicationLag].into_iter().enumerate()
        {
            let now_ms = 1000 * (at as u64 + 1);
            observed(&server, status, now_ms);
            observed(&server, ServerStatus::Online, now_ms + 100);
            observed(&server, ServerStatus::Online, now_ms + 200);
            assert_eq!(server.used_since_ms(), now_ms + 100, "{status:?}");
        }
        server.remove(UnderWay::MayFinish, &TERMS, 5000);
        observed(&server, ServerStatus::Online, 6000);
        assert_eq!(server.used_since_ms(), 6000, "it had another role");
    }

    #[test]
    fn a_pause_between_connects_outlasts_layouts_that_change_nothing() {
        let server = server("a", 16);
        server.connect_failed("refused", false, 1000);
        assert!(server.is_backing_off(1005));
        observed(&server, ServerStatus::Online, 1005);
        assert!(server.is_backing_off(1005));
        observed(&server, ServerStatus::Shunned, 1006);
        observed(&server, ServerStatus::Online, 1007);
        assert!(!server.is_backing_off(1007) && server.last_error().is_none(), "it was out, and is back");
        server.connect_failed("refused", false, 1007);
        server.measured(Measured { latency_us: 0, lag_ms: None });
        assert!(server.is_backing_off(1008), "nothing answered");
        server.measured(Measured { latency_us: 100, lag_ms: None });
        assert!(!server.is_backing_off(1008));
        server.connect_failed("init_connect failed", true, 1008);
        server.measured(Measured { latency_us: 100, lag_ms: None });
        assert!(server.is_backing_off(1009), "it answered before");
        server.connect_failed("refused", false, 2000);
        server.measured(Measured { latency_us: 100, lag_ms: None });
        assert!(!server.is_backing_off(2001));
    }

    #[test]
    fn suspicion_ends_by_time_by_a_layout_or_a_look() {
        let server = server("a", 16);
        server.suspect(1100);
        assert!(!server.is_usable(1099) && server.is_usable(1100) && server.is_online());
        server.suspect(1100);
        observed(&server, ServerStatus::Online, 1000);
        assert!(server.is_usable(1001));
        server.suspect(1100);
        server.measured(Measured { latency_us: 100, lag_ms: None });
        assert!(!server.is_usable(1001), "who answers a ping may have lost its role");
        server.looked_at();
        assert!(server.is_usable(1001));
    }
}
