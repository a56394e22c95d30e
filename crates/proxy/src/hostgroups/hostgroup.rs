//! One hostgroup, for all workers: its servers by number, who waits, what holds for work in it.
//!
//! A server keeps its number for as long as the process lives; one that leaves the hostgroup stays on the list as removed.
//! Placements are taken over by one thread at a time; workers read.

use crate::hostgroups::gtid_source::GtidSource;
use crate::hostgroups::queue::Queue;
use crate::hostgroups::quota::Quota;
use crate::hostgroups::replays::Replays;
use crate::servers::log_throttle::LogThrottle;
use crate::servers::server::{PlacedBy, ServerShared};
use crate::servers::terms::{HostgroupRole, Terms};
use arc_swap::ArcSwap;
use model::fleet::{Placement, UnderWay};
use model::snapshot::{HostgroupAttributes, ServerStatus};
use model::{HostgroupId, ServerAddr, ServerKey};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use wire::charset::Flavor;
use wire::flags::Capabilities;

/// A connection that is opened so much (us) after it was due does not put the next one off.
const MADE_UP_US: u64 = 2_000;

/// One hostgroup, for all workers.
pub(crate) struct HostgroupShared {
    /// Its number.
    pub id: HostgroupId,
    servers: ArcSwap<Vec<Arc<ServerShared>>>,
    /// Sessions that have to wait because the servers are full: a connection of other sessions is closed for them. Those of users
    /// who have as many as they may are left out.
    pub queue: Queue,
    /// Connections of a server that took turns when sessions last waited for some time: what one that is new in its role gets at once.
    pub helped: AtomicU32,
    quotas: RwLock<HashMap<Box<str>, Arc<Quota>>>,
    workers: usize,
    free_connections_pct: AtomicU32,
    is_warmed: AtomicBool,
    terms: ArcSwap<Terms>,
    held: AtomicBool,
    /// Reads that waited for it went to the writer, and nobody has seen since that it takes work.
    is_left: AtomicBool,
    /// More servers than this may not be ONLINE, and so many are.
    most_online: AtomicU32,
    online: AtomicU32,
    is_crowded: AtomicBool,
    /// New connections are spaced by this, us (from connections per second); the next one is due at `next_connect_us`.
    connect_interval_us: AtomicU64,
    next_connect_us: AtomicU64,
    /// The GTIDs that are chosen for its transactions (`settle_lost_writes`).
    pub gtid_source: GtidSource,
    /// Sessions that say a lost transaction again.
    pub replays: Replays,
    /// Whom it kept waiting in vain, as logged lately.
    pub told: LogThrottle,
}

impl HostgroupShared {
    pub(crate) fn new(id: HostgroupId, attributes: &HostgroupAttributes, terms: Terms, workers: usize) -> Self {
        let hostgroup = Self {
            id,
            servers: ArcSwap::default(),
            queue: Queue::new(workers),
            helped: AtomicU32::new(0),
            quotas: RwLock::default(),
            workers,
            terms: ArcSwap::default(),
            held: AtomicBool::new(false),
            is_left: AtomicBool::new(false),
            most_online: AtomicU32::new(u32::MAX),
            online: AtomicU32::new(0),
            is_crowded: AtomicBool::new(false),
            connect_interval_us: AtomicU64::new(0),
            free_connections_pct: AtomicU32::new(0),
            is_warmed: AtomicBool::new(false),
            next_connect_us: AtomicU64::new(0),
            gtid_source: GtidSource::default(),
            replays: Replays::default(),
            told: LogThrottle::default(),
        };
        hostgroup.configure(attributes, terms);
        hostgroup
    }

    /// Takes a new configuration over, but for the servers; [`HostgroupShared::look_whether_crowded`] belongs to both.
    pub(crate) fn configure(&self, attributes: &HostgroupAttributes, terms: Terms) {
        let per_second = u64::from(attributes.throttle_connections_per_sec).max(1);
        self.connect_interval_us.store(1_000_000 / per_second, Ordering::Release);
        self.free_connections_pct.store(u32::from(attributes.free_connections_pct), Ordering::Release);
        self.is_warmed.store(attributes.connection_warming, Ordering::Release);
        self.most_online.store(attributes.max_num_online_servers, Ordering::Release);
        self.terms.store(Arc::new(terms));
    }

    /// Begins and ends the time in which more servers are ONLINE than may be (`max_num_online_servers`): nothing new begins then.
    /// Only one thread does so at a time.
    pub(crate) fn look_whether_crowded(&self) {
        let (online, most) = (self.online.load(Ordering::Acquire), self.most_online.load(Ordering::Acquire));
        let is_crowded = online > most;
        if self.is_crowded.swap(is_crowded, Ordering::AcqRel) == is_crowded {
            return;
        }
        match self.crowd() {
            Some(why) => tracing::error!("hostgroup {}: {why}", self.id),
            None => tracing::info!(
                "hostgroup {}: {online} servers are ONLINE (max_num_online_servers is {most}): waiting statements continue",
                self.id
            ),
        }
    }

    /// Why nothing new begins, if that is for too many servers.
    pub(crate) fn crowd(&self) -> Option<String> {
        let (online, most) = (self.online.load(Ordering::Acquire), self.most_online.load(Ordering::Acquire));
        let text =
            || format!("{online} servers are ONLINE, more than max_num_online_servers={most}: statements wait until fewer are ONLINE");
        self.is_crowded.load(Ordering::Acquire).then(text)
    }

    /// Has these servers from now on; `lost` are those that are dead or cut off, in whatever hostgroup. Only one thread does so
    /// at a time.
    pub(crate) fn place(&self, placements: &[Placement], lost: &HashMap<ServerAddr, UnderWay>, by: PlacedBy, now_ms: u64) {
        let terms = self.terms();
        let mut all = Vec::clone(&self.servers.load());
        let numbers: HashMap<ServerKey, usize> = all.iter().map(|s| (s.key.clone(), s.index)).collect();
        let named: HashSet<&ServerKey> = placements.iter().map(|p| &p.server.key).collect();
        let placed = |server: &ServerShared| named.contains(&server.key);
        // Those who leave go first: nobody is ever given two writers where one was.
        for server in all.iter().filter(|server| !placed(server)) {
            server.remove(lost.get(&server.key.addr()).copied().unwrap_or_default(), &terms, now_ms);
        }
        let (used, unused): (Vec<_>, Vec<_>) =
            placements.iter().partition(|p| p.status == ServerStatus::Online && p.under_way != UnderWay::Severed);
        let online = placements.iter().filter(|p| p.status == ServerStatus::Online).count();
        self.online.store(u32::try_from(online).unwrap_or(u32::MAX), Ordering::Release);
        if online > self.most_online.load(Ordering::Acquire) as usize {
            // Before one too many is used.
            self.look_whether_crowded();
        }
        let is_new = |placement: &Placement| numbers.get(&placement.server.key).is_none_or(|&index| !all[index].is_online());
        let replaces = terms.role == HostgroupRole::Writer && !terms.is_galera && used.iter().any(|placement| is_new(placement));
        for (place, placement) in unused.iter().chain(&used).copied().enumerate() {
            if place == unused.len() && replaces {
                self.replays.replaced(now_ms * 1000);
            }
            match numbers.get(&placement.server.key) {
                Some(&index) => all[index].place(placement, &terms, by, now_ms),
                None => all.push(Arc::new(ServerShared::new(placement, all.len(), &terms, now_ms))),
            }
        }
        if all.len() > numbers.len() {
            self.servers.store(Arc::new(all));
        }
        self.look_whether_crowded();
    }

    /// What the configuration says of work in it.
    pub(crate) fn terms(&self) -> Arc<Terms> {
        self.terms.load_full()
    }

    /// Whether nothing new begins here: until the hold ends, or while too many servers are ONLINE.
    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire) || self.is_crowded.load(Ordering::Acquire)
    }

    /// Whether a statement that comes now can expect a server: nothing is held, and one is used that does not refuse connects.
    pub(crate) fn takes_work(&self, now_ms: u64) -> bool {
        !self.is_held() && self.servers.load().iter().any(|server| server.takes_work(now_ms) && !server.connects.are_backing_off(now_ms))
    }

    /// Whether reads are not to wait here: no server takes work, for another reason than a hold.
    pub(crate) fn lacks_servers(&self, now_ms: u64) -> bool {
        !self.is_held() && !self.takes_work(now_ms)
    }

    /// Reads that waited in vain go to the writer, and new ones follow them at once.
    pub(crate) fn leave(&self) {
        self.is_left.store(true, Ordering::Release);
    }

    /// Whether new reads go to the writer at once. It ends when a server takes work again.
    pub(crate) fn is_left(&self, now_ms: u64) -> bool {
        if !self.is_left.load(Ordering::Acquire) {
            return false;
        }
        let is_left = self.lacks_servers(now_ms);
        self.is_left.store(is_left, Ordering::Release);
        is_left
    }

    /// Begins or ends a hold.
    pub(crate) fn hold(&self, is_held: bool) {
        self.held.store(is_held, Ordering::Release);
    }

    /// Its servers by number, removed ones too.
    pub(crate) fn servers(&self) -> Arc<Vec<Arc<ServerShared>>> {
        self.servers.load_full()
    }

    /// Whether each server has these capabilities, as far as the servers were heard of.
    pub(crate) fn has(&self, capabilities: Capabilities) -> bool {
        let has = |server: &Arc<ServerShared>| server.info.load().as_ref().is_none_or(|info| info.capabilities.contains(capabilities));
        self.servers.load().iter().all(|server| server.is_removed() || has(server))
    }

    /// Whose servers they are, once somebody has connected to one.
    pub(crate) fn flavor(&self) -> Option<Flavor> {
        self.servers.load().iter().find_map(|server| server.info.load().as_ref().map(|info| info.flavor))
    }

    /// Whether connections are opened ahead of need (`connection_warming`).
    pub(crate) fn is_warmed(&self) -> bool {
        self.is_warmed.load(Ordering::Acquire)
    }

    /// Share of `max_connections` that may stay idle, percent.
    pub(crate) fn free_connections_pct(&self) -> u32 {
        self.free_connections_pct.load(Ordering::Acquire)
    }

    /// How many new connections a second it may have, where the next one is not due yet.
    pub(crate) fn connect_limit_reached(&self, now_us: u64) -> Option<u64> {
        let interval = self.connect_interval_us.load(Ordering::Relaxed);
        let is_early = interval > 1 && self.next_connect_us.load(Ordering::Acquire) > now_us;
        is_early.then(|| 1_000_000 / interval)
    }

    /// Takes one new connection from the hostgroup's rate, if it allows one now. A pause earns nothing; that connections are only
    /// opened at ticks costs nothing.
    pub(crate) fn take_connect_rate(&self, now_us: u64) -> bool {
        let interval = self.connect_interval_us.load(Ordering::Relaxed);
        let taken = self.next_connect_us.fetch_update(Ordering::AcqRel, Ordering::Acquire, |due| {
            (due <= now_us).then_some(due.max(now_us.saturating_sub(MADE_UP_US)) + interval)
        });
        taken.is_ok()
    }

    /// Whether somebody waits who could connect if a connection of this user's were closed, on any worker.
    pub(crate) fn is_place_wanted(&self, user: &str) -> bool {
        !self.queue.is_empty() || !self.quota(user).queue.is_empty()
    }

    /// What a user may have here, for all workers.
    pub(crate) fn quota(&self, user: &str) -> Arc<Quota> {
        if let Some(quota) = self.quotas.read().unwrap_or_else(PoisonError::into_inner).get(user) {
            return Arc::clone(quota);
        }
        let mut quotas = self.quotas.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(quotas.entry(user.into()).or_insert_with(|| Arc::new(Quota::new(self.workers))))
    }

    /// Forgets the quotas that no lane and no connection of any worker holds.
    pub(crate) fn drop_unused_quotas(&self) {
        let mut quotas = self.quotas.write().unwrap_or_else(PoisonError::into_inner);
        quotas.retain(|_, quota| Arc::strong_count(quota) > 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::{placement, snapshot};

    const ROLES: &str = r#"
mysql_replication_hostgroups = ( { writer_hostgroup=0, reader_hostgroup=1, comment="c" } )
mysql_galera_hostgroups = ( { writer_hostgroup=10, backup_writer_hostgroup=12, reader_hostgroup=11, offline_hostgroup=13, active=1,
                              max_writers=1, writer_is_also_reader=0, max_transactions_behind=10 } )
mysql_variables = { demotion_grace_ms=7, server_ramp_ms=8, suspicion_ms=9, default_max_latency_ms=10 }
"#;

    #[test]
    fn terms_know_the_hostgroups_part() {
        let snapshot = snapshot(&[(0, "a"), (5, "b")], ROLES);
        let of = |id| Terms::of(&snapshot, HostgroupId(id));
        let parts = |id| (of(id).role, of(id).is_galera);
        assert_eq!(parts(0), (HostgroupRole::Writer, false));
        assert_eq!(parts(1), (HostgroupRole::Other, false));
        assert_eq!(parts(5), (HostgroupRole::Plain, false));
        assert_eq!(parts(10), (HostgroupRole::Writer, true));
        assert_eq!(parts(13), (HostgroupRole::Other, true));
        let plain = of(5);
        assert_eq!((plain.grace_ms, plain.ramp_ms, plain.suspicion_ms, plain.default_max_latency_ms), (7, 8, 9, 10));
    }

    #[test]
    fn a_pause_earns_no_connection_beyond_the_rate_and_a_late_tick_costs_none() {
        let snapshot = snapshot(&[], "");
        let opened = |per_second: u32, tick_us: u64| {
            let attributes =
                HostgroupAttributes { throttle_connections_per_sec: per_second, ..HostgroupAttributes::from_variables(&snapshot.vars) };
            let hostgroup = HostgroupShared::new(HostgroupId(0), &attributes, Terms::default(), 1);
            let in_a_second = |from_us: u64| {
                let ticks = (from_us..from_us + 990_000).step_by(usize::try_from(tick_us).unwrap());
                ticks.map(|now_us| (0..1000).take_while(|_| hostgroup.take_connect_rate(now_us)).count()).sum::<usize>()
            };
            [in_a_second(1_000_000), in_a_second(60_000_000)]
        };
        assert_eq!(opened(2, 1_000), [2, 2]);
        assert_eq!(opened(5, 1_000), [5, 5]);
        assert_eq!(opened(1, 1_000), [1, 1]);
        for tick_us in [1_000, 1_700] {
            let [first, second] = opened(300, tick_us);
            assert!((295..=300).contains(&first) && (295..=300).contains(&second), "{tick_us}: {first}, {second}");
        }
        let [first, _] = opened(10_000, 1_000);
        assert!((9_800..=10_050).contains(&first), "{first}");
    }

    #[test]
    fn a_server_keeps_its_number_through_every_layout() {
        let snapshot = snapshot(&[], "");
        let attributes = HostgroupAttributes::from_variables(&snapshot.vars);
        let hostgroup = HostgroupShared::new(HostgroupId(0), &attributes, Terms::default(), 1);
        let online = |host: &str| placement(host, 1, ServerStatus::Online);
        let names = || hostgroup.servers().iter().filter(|s| s.is_online()).map(|s| (s.index, s.key.host.to_string())).collect::<Vec<_>>();
        hostgroup.place(&[online("a"), online("b")], &HashMap::new(), PlacedBy::Configuration, 0);
        hostgroup.place(&[online("b")], &HashMap::new(), PlacedBy::Observation, 1);
        assert_eq!(names(), [(1, "b".to_owned())]);
        hostgroup.place(&[online("c"), online("a")], &HashMap::new(), PlacedBy::Observation, 2);
        assert_eq!(names(), [(0, "a".to_owned()), (2, "c".to_owned())]);
        assert!(hostgroup.servers()[1].is_removed());
    }
}
