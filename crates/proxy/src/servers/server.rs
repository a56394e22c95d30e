//! One server of one hostgroup, for all workers: what the operator wrote, and what was observed.
//!
//! It is made of values that each own their rules, in files of their names; here is what takes more than one of them. Counts are exact:
//! a connection exists only while a [`Slot`] is held. INVARIANT: once a placement that is not ONLINE is stored, nobody is given the
//! server for new work.

mod address_history;
mod connects;
mod heard_info;
mod measurements;
mod room;
mod share;
mod standing;

pub(crate) use address_history::AddressHistory;
pub(crate) use connects::{Connects, pause_ms};
pub(crate) use heard_info::{HeardInfo, Turned};
pub(crate) use measurements::Measurements;
pub(crate) use room::Room;
pub(crate) use share::Share;
pub(crate) use standing::{NEVER, ServerStanding};

use crate::hostgroups::quota::Quota;
use crate::servers::log_throttle::LogThrottle;
use crate::servers::signals::LastSignals;
use crate::servers::sizing::SharedSizing;
use crate::servers::terms::Terms;
use meter::server_counts::ServerCounts;
use model::ServerKey;
use model::fleet::{Measured, Placement, UnderWay};
use model::snapshot::{Server, ServerStatus};
use serde::{Deserialize, Serialize};
use session_state::server_info::ServerInfo;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Who changes how a server is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlacedBy {
    /// An operator loaded a configuration, and wants its servers tried at once.
    Configuration,
    /// Roles were observed.
    Observation,
}

/// See the module. It stays when the server leaves the hostgroup, so that its number there stays its own.
pub(crate) struct ServerShared {
    /// Which server.
    pub key: ServerKey,
    /// Its number in the hostgroup.
    pub index: usize,
    /// Whether it gets work, and who must leave it when.
    pub standing: ServerStanding,
    /// How much of the work it gets.
    pub share: Share,
    /// How many connections it has and may have.
    pub room: Room,
    /// How connects to it go.
    pub connects: Connects,
    /// How fast it answers, and how far it is behind.
    pub measurements: Measurements,
    /// What it said of itself at logins.
    pub info: HeardInfo,
    /// Which addresses its name had, and when it was started.
    pub addresses: AddressHistory,
    transport: AtomicU8,
    /// A trigger, or a function behind a view, has changed a session here.
    pub has_loud_triggers: AtomicBool,
    /// That it does not track sessions was told.
    pub is_known_silent: AtomicBool,
    /// Open transactions that would have to be said again if it were lost.
    stakes: AtomicU32,
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
}

/// What a server was given, in thousandths of a turn: servers that got as much as their weights say have got the same. A turn of a
/// hostgroup is one piece of work for any of its servers.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Given(pub AtomicU64);

/// How a server is to be connected to: `use_ssl` and `compression`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Transport(u8);

/// The right to hold one connection to a server; gives itself back.
pub(crate) struct Slot(Option<(Arc<ServerShared>, Arc<Quota>)>);

impl Slot {
    /// The right to one connection beside the counted ones, to send a KILL: the caller holds its server's turn.
    pub(crate) fn extra() -> Self {
        Self(None)
    }

    /// The connection is another process's from now on, and counts here as that one's.
    pub(crate) fn hand_over(&mut self) {
        if let Some((server, quota)) = self.0.take() {
            server.room.hand_over();
            quota.closed(&server);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some((server, quota)) = &self.0 {
            server.room.give_back();
            quota.closed(server);
        }
    }
}

/// The right to be connecting; gives itself back.
pub(crate) struct ConnectPermit(Arc<ServerShared>);

impl Drop for ConnectPermit {
    fn drop(&mut self) {
        self.0.connects.end();
    }
}

/// A connect that takes longer than it should.
pub(crate) struct Stall(Arc<ServerShared>);

impl Drop for Stall {
    fn drop(&mut self) {
        self.0.connects.end_stall();
    }
}

impl ServerShared {
    /// A server that was just placed in the hostgroup, with its whole weight.
    pub(crate) fn new(placement: &Placement, index: usize, terms: &Terms, now_ms: u64) -> Self {
        let new = Self {
            key: placement.server.key.clone(),
            index,
            standing: ServerStanding::new(placement),
            share: Share::default(),
            room: Room::default(),
            connects: Connects::default(),
            measurements: Measurements::default(),
            info: HeardInfo::default(),
            addresses: AddressHistory::default(),
            transport: AtomicU8::new(0),
            has_loud_triggers: AtomicBool::new(false),
            is_known_silent: AtomicBool::new(false),
            stakes: AtomicU32::new(0),
            kills: tokio::sync::Semaphore::new(1),
            given: Given::default(),
            sizing: SharedSizing::default(),
            counts: ServerCounts::default(),
            signals: LastSignals::default(),
            told: LogThrottle::default(),
        };
        new.place(placement, terms, PlacedBy::Configuration, now_ms);
        new
    }

    /// It is placed anew. A pause between connects ends where an operator loads servers, and where it was out.
    pub(crate) fn place(&self, placement: &Placement, terms: &Terms, by: PlacedBy, now_ms: u64) {
        let server = &placement.server;
        if by == PlacedBy::Configuration {
            self.connects.end_pause();
        }
        if self.standing.returns_by(placement) {
            self.connects.begin_anew();
            // One that only lagged is warm.
            if by == PlacedBy::Observation && self.standing.status() != ServerStatus::ShunnedReplicationLag {
                self.share.grows_from(now_ms)
            } else {
                self.share.is_whole()
            }
        }
        self.share.configure(server.weight, terms.ramp_ms);
        self.room.limit(server.max_connections);
        self.transport.store(u8::from(server.use_ssl) | u8::from(server.compression) << 1, Ordering::Release);
        self.measurements.limit(server.max_latency_ms, terms.default_max_latency_ms);
        self.standing.place(placement, terms, now_ms);
    }

    /// See [`ServerStanding::remove`].
    pub(crate) fn remove(&self, under_way: UnderWay, terms: &Terms, now_ms: u64) {
        self.standing.remove(under_way, terms, now_ms);
    }

    /// See [`ServerStanding::placement`].
    pub(crate) fn placement(&self) -> Arc<Placement> {
        self.standing.placement()
    }

    /// See [`ServerStanding::config`].
    pub(crate) fn config(&self) -> Arc<Server> {
        self.standing.config()
    }

    /// See [`ServerStanding::is_online`].
    pub(crate) fn is_online(&self) -> bool {
        self.standing.is_online()
    }

    /// See [`ServerStanding::is_removed`].
    pub(crate) fn is_removed(&self) -> bool {
        self.standing.is_removed()
    }

    /// See [`ServerStanding::is_cut`].
    pub(crate) fn is_cut(&self) -> bool {
        self.standing.is_cut()
    }

    /// See [`ServerStanding::is_severed`].
    pub(crate) fn is_severed(&self) -> bool {
        self.standing.is_severed()
    }

    /// See [`ServerStanding::suspect`].
    pub(crate) fn suspect(&self, until_ms: u64) {
        self.standing.suspect(until_ms);
    }

    /// See [`ServerStanding::status`].
    pub(crate) fn status(&self) -> ServerStatus {
        self.standing.status()
    }

    /// See [`Room::connections`].
    pub(crate) fn connections(&self) -> u32 {
        self.room.connections()
    }

    /// See [`Room::own`].
    pub(crate) fn own_connections(&self) -> u32 {
        self.room.own()
    }

    /// See [`Measurements::latency_us`].
    pub(crate) fn latency_us(&self) -> u64 {
        self.measurements.latency_us()
    }

    /// Whether idle connections to it serve new work: it is usable, and has a weight.
    pub(crate) fn takes_work(&self, now_ms: u64) -> bool {
        self.standing.is_usable(now_ms) && self.share.weight() > 0
    }

    /// Whether idle connections to it are kept.
    pub(crate) fn keeps_idle(&self) -> bool {
        self.is_online() && self.share.weight() > 0
    }

    /// Whether one more connection may be opened now.
    pub(crate) fn takes_connects(&self, now_ms: u64) -> bool {
        !self.connects.are_backing_off(now_ms) && !self.room.is_full()
    }

    /// Open transactions that would have to be said again if it were lost.
    pub(crate) fn stakes(&self) -> u32 {
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

    /// Takes over what was measured of it, which says nothing of its role.
    pub(crate) fn measured(&self, measured: Measured) {
        let is_answered = measured.latency_us > 0;
        self.measurements.set(measured);
        if is_answered {
            self.connects.answered();
        }
    }

    /// What its row says of TLS and of compression: a connection that was opened by another word serves nobody new.
    pub(crate) fn transport(&self) -> Transport {
        Transport(self.transport.load(Ordering::Relaxed))
    }

    /// See [`HeardInfo`]: it said this of itself at a login; whether it was another one before.
    pub(crate) fn heard(&self, info: ServerInfo, now_ms: u64) -> (Arc<ServerInfo>, Option<Turned>) {
        self.info.heard(info, now_ms)
    }

    /// Takes the right to hold a connection, if `max_connections` allows, and what its user may have: `limit` (0 is none).
    pub(crate) fn reserve(self: &Arc<Self>, quota: &Arc<Quota>, limit: u64) -> Option<Slot> {
        if !quota.take(limit) {
            return None;
        }
        if !self.room.take() {
            quota.give_back();
            return None;
        }
        Some(Slot(Some((Arc::clone(self), Arc::clone(quota)))))
    }

    /// The right to a connection that is there already, of another process: whatever the limits are.
    pub(crate) fn take_over(self: &Arc<Self>, quota: &Arc<Quota>) -> Slot {
        quota.take(0);
        self.room.take_over();
        Slot(Some((Arc::clone(self), Arc::clone(quota))))
    }

    /// See [`Room::count_elsewhere`].
    pub(crate) fn count_elsewhere(&self, count: u32) {
        self.room.count_elsewhere(count);
    }

    /// Takes the right to connect now: at most `concurrency` at a time; one at a time after failures.
    pub(crate) fn begin_connect(self: &Arc<Self>, concurrency: u32) -> Option<ConnectPermit> {
        self.connects.begin(concurrency).then(|| ConnectPermit(Arc::clone(self)))
    }

    /// A connect takes longer than it should; what is answered counts it until it is dropped.
    pub(crate) fn connect_stalls(self: &Arc<Self>) -> Stall {
        self.connects.begin_stall();
        Stall(Arc::clone(self))
    }
}

/// What the configuration says of a hostgroup in tests of servers.
#[cfg(test)]
const TERMS: Terms = Terms {
    grace_ms: 500,
    drain_ms: 800,
    ramp_ms: 1000,
    suspicion_ms: 100,
    default_max_latency_ms: 1000,
    role: crate::servers::terms::HostgroupRole::Plain,
    is_galera: false,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::{placement, server};

    fn observed(server: &ServerShared, status: ServerStatus, now_ms: u64) {
        server.place(&placement("a", 16, status), &TERMS, PlacedBy::Observation, now_ms);
    }

    #[test]
    fn what_comes_back_begins_small_but_not_after_lag_or_a_load() {
        let server = server("a", 16);
        assert_eq!(server.share.at(0), 16_000, "at the first start");
        observed(&server, ServerStatus::Shunned, 1000);
        observed(&server, ServerStatus::Online, 2000);
        assert_eq!((server.share.at(2000), server.share.at(2500), server.share.at(3000)), (1_000, 8_500, 16_000));
        observed(&server, ServerStatus::Online, 2400);
        assert_eq!(server.share.at(2500), 8_500, "a layout that changes nothing begins no ramp");
        observed(&server, ServerStatus::ShunnedReplicationLag, 5000);
        observed(&server, ServerStatus::Online, 6000);
        assert_eq!(server.share.at(6000), 16_000);
        observed(&server, ServerStatus::OfflineSoft, 7000);
        server.place(&placement("a", 16, ServerStatus::Online), &TERMS, PlacedBy::Configuration, 8000);
        assert_eq!(server.share.at(8000), 16_000);
    }

    #[test]
    fn a_pause_between_connects_outlasts_layouts_that_change_nothing() {
        let server = server("a", 16);
        server.connects.failed("refused", false, 1000);
        assert!(server.connects.are_backing_off(1005));
        observed(&server, ServerStatus::Online, 1005);
        assert!(server.connects.are_backing_off(1005));
        observed(&server, ServerStatus::Shunned, 1006);
        observed(&server, ServerStatus::Online, 1007);
        assert!(!server.connects.are_backing_off(1007) && server.connects.last_error().is_none(), "it was out, and is back");
        server.connects.failed("refused", false, 1007);
        server.measured(Measured { latency_us: 0, lag_ms: None, is_source: false });
        assert!(server.connects.are_backing_off(1008), "nothing answered");
        server.measured(Measured { latency_us: 100, lag_ms: None, is_source: false });
        assert!(!server.connects.are_backing_off(1008));
        server.connects.failed("init_connect failed", true, 1008);
        server.measured(Measured { latency_us: 100, lag_ms: None, is_source: false });
        assert!(server.connects.are_backing_off(1009), "it answered before");
        server.connects.failed("refused", false, 2000);
        server.measured(Measured { latency_us: 100, lag_ms: None, is_source: false });
        assert!(!server.connects.are_backing_off(2001));
    }

    #[test]
    fn who_answers_a_ping_may_have_lost_its_role() {
        let server = server("a", 16);
        server.suspect(1100);
        server.measured(Measured { latency_us: 100, lag_ms: None, is_source: false });
        assert!(!server.takes_work(1001) && server.keeps_idle());
        server.standing.looked_at();
        assert!(server.takes_work(1001));
    }

    #[test]
    fn a_full_server_takes_nothing_of_its_users_quota() {
        let (server, quota) = (server("a", 16), Arc::new(Quota::new(1)));
        server.room.limit(1);
        let slot = server.reserve(&quota, 2).unwrap();
        assert!(server.reserve(&quota, 2).is_none() && !server.takes_connects(0));
        assert_eq!((quota.connections(), server.connections()), (1, 1));
        drop(slot);
        assert_eq!((quota.connections(), server.connections()), (0, 0));
    }

    #[test]
    fn a_user_at_its_limit_takes_no_room_of_the_server() {
        let (server, quota) = (server("a", 16), Arc::new(Quota::new(1)));
        let _slot = server.reserve(&quota, 1).unwrap();
        assert!(server.reserve(&quota, 1).is_none() && server.takes_connects(0));
        assert_eq!(server.connections(), 1);
        let taken_over = server.take_over(&quota);
        assert_eq!((quota.connections(), server.connections()), (2, 2), "it is open already");
        drop(taken_over);
        assert_eq!((quota.connections(), server.connections()), (1, 1));
    }

    #[test]
    fn rights_give_themselves_back() {
        let server = server("a", 16);
        let (permit, stall) = (server.begin_connect(1).unwrap(), server.connect_stalls());
        assert!(server.begin_connect(1).is_none() && server.connects.are_stalling());
        drop((permit, stall));
        assert!(server.begin_connect(1).is_some() && !server.connects.are_stalling());
    }

    #[test]
    fn no_weight_is_no_work_and_nothing_idle() {
        let server = server("a", 0);
        assert!(server.is_online() && server.standing.is_usable(0));
        assert!(!server.takes_work(0) && !server.keeps_idle());
    }
}
