//! The monitor's state, shared by its own thread and by callers: configuration, signals, operators' orders and tables.
//!
//! One per process. The topology is behind one mutex, held only for computations.
//! INVARIANT: the data plane ([`Fleet`]) is never called while the mutex is held, because the data plane calls [`RoleKeeper::configure`]
//! under a lock of its own. There only [`Fleet::measured`] is called.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use model::fleet::{Company, Decider, Fleet, Layout, Measured, Programs, RoleKeeper, Signal, SignalKind};
use model::names::{AddressBook, Resolving};
use model::snapshot::{Server, Snapshot};
use model::{Secret, ServerAddr};
use tokio::runtime::Handle;
use tokio::sync::{Notify, RwLock, watch};
use topology::{Check, CheckKind, Distance, Event, EventKind, Fork, Knowledge, MemberIdentity, Observation, Order, ProbeError, Topology};

use crate::channels::Board;
use crate::client::{Access, Connector};
use crate::clock::Clock;
use crate::counts::Counts;
use crate::dns::{DnsSettings, Moved};
use crate::healing::Healing;
use crate::inbox::Inbox;
use crate::kept::{Kept, Memory};
use crate::lane::Checked;
use crate::log::{CheckLog, History, Since};
use crate::operator::{Claims, Holds, Journal};
use crate::probe::{self, Found, ProbeSettings};

/// Pings whose average is a server's latency.
const PINGS_KEPT: usize = 3;

/// Time between two attempts to write the file.
const KEEP_AGAIN: Duration = Duration::from_secs(3);

/// Time between two looks for changes without an event.
const KEEP_LOOK: Duration = Duration::from_secs(10);

/// Probes the servers, decides their roles, and keeps the history of both.
#[derive(Debug)]
pub struct Monitor {
    pub(crate) clock: Clock,
    pub(crate) connector: Connector,
    pub(crate) log: Mutex<CheckLog>,
    pub(crate) history: Mutex<History>,
    pub(crate) since: Mutex<Since>,
    pub(crate) counts: Counts,
    pub(crate) holds: Mutex<Holds>,
    pub(crate) claims: Mutex<Claims>,
    /// What plans did, until the admin interface keeps it.
    pub(crate) journal: Mutex<Journal>,
    /// Replication channels from other clusters.
    pub(crate) channels: Mutex<Board>,
    /// The channels have to be looked at now.
    pub(crate) channels_due: Notify,
    /// Who should take over from a writer that dies.
    pub(crate) healing: Healing,
    core: Mutex<Core>,
    inbox: Inbox,
    /// Results of checks that no decision has taken yet.
    sightings: Mutex<Vec<(ServerAddr, Observation)>>,
    sighted: Notify,
    stale: Notify,
    kept: OnceLock<Kept>,
    stood: Notify,
    /// See `kept_events`.
    pub(crate) events_file: OnceLock<PathBuf>,
    /// The last event that is in the file.
    pub(crate) events_written: Mutex<u64>,
    /// There are new events.
    pub(crate) noted: Notify,
    /// Whether the file belongs to this process, not to one that takes over from it.
    keeps: AtomicBool,
    running: OnceLock<Running>,
    /// The other proxies before the same servers.
    pub(crate) company: OnceLock<Arc<dyn Company>>,
    /// Which of several proxies heals.
    pub(crate) decider: OnceLock<Arc<dyn Decider>>,
    /// Runs programs for healing.
    pub(crate) programs: OnceLock<Arc<dyn Programs>>,
    /// What it says may have changed.
    pub(crate) decider_moved: Notify,
    /// Held by each running order: the thread does not end before they do.
    pub(crate) orders: Arc<RwLock<()>>,
    /// The thread is to end.
    pub(crate) stopping: watch::Sender<bool>,
    me: Weak<Self>,
}

/// The parts that exist once the monitor runs.
#[derive(Clone)]
pub(crate) struct Running {
    /// The data plane.
    pub(crate) fleet: Arc<dyn Fleet>,
    /// The runtime on the monitor's thread.
    pub(crate) runtime: Handle,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Running")
    }
}

/// The state of decisions and measurements.
#[derive(Debug, Default)]
struct Core {
    topology: Topology,
    snapshot: Arc<Snapshot>,
    /// The content that the file should have.
    memory: Memory,
    /// Checks that tell roles and have been made since the process was started.
    made: HashSet<(ServerAddr, CheckKind)>,
    /// Revision of the last layout that was handed out.
    published: u64,
    /// Members of groups, by the UUIDs that they told when they were asked under these addresses.
    members: HashMap<String, ServerAddr>,
    gauges: HashMap<ServerAddr, Gauge>,
}

/// The measured values of a server, for tables and for routing.
#[derive(Debug, Default)]
struct Gauge {
    pings_us: Vec<u64>,
    distance: Distance,
}

impl Gauge {
    fn measured(&self) -> Measured {
        let sum: u64 = self.pings_us.iter().sum();
        let latency_us = sum.checked_div(self.pings_us.len() as u64).unwrap_or_default();
        Measured { latency_us, lag_ms: self.distance.lag_ms, is_source: self.distance.is_source }
    }
}

/// The monitor's account, and the idle timeout of its sessions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Account {
    user: Arc<str>,
    password: Secret,
    wait_timeout_s: Option<u64>,
}

impl Account {
    /// `monitor_username` and its like.
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let vars = &snapshot.vars;
        // As ProxySQL does: ten ping intervals.
        let wait_timeout_s = vars.monitor_wait_timeout.then(|| (vars.monitor_ping_interval.saturating_mul(10) / 1_000).max(1));
        Self { user: vars.monitor_username.as_str().into(), password: vars.monitor_password.clone(), wait_timeout_s }
    }

    pub(crate) fn access(&self, server: &Arc<Server>) -> Access {
        Access {
            server: Arc::clone(server),
            user: Arc::clone(&self.user),
            password: self.password.clone(),
            wait_timeout_s: self.wait_timeout_s,
        }
    }
}

/// The scheduler's goal.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) checks: Vec<Check>,
    /// The account for all of them.
    pub(crate) account: Account,
    pub(crate) settings: ProbeSettings,
}

impl Monitor {
    /// A monitor without knowledge. It does nothing before it is started.
    pub fn new() -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            clock: Clock::new(),
            connector: Connector::new(),
            log: Mutex::default(),
            history: Mutex::default(),
            since: Mutex::default(),
            counts: Counts::default(),
            holds: Mutex::default(),
            claims: Mutex::default(),
            journal: Mutex::default(),
            channels: Mutex::default(),
            channels_due: Notify::new(),
            healing: Healing::default(),
            core: Mutex::default(),
            inbox: Inbox::default(),
            sightings: Mutex::default(),
            sighted: Notify::new(),
            stale: Notify::new(),
            kept: OnceLock::new(),
            stood: Notify::new(),
            events_file: OnceLock::new(),
            events_written: Mutex::default(),
            noted: Notify::new(),
            keeps: AtomicBool::new(true),
            running: OnceLock::new(),
            company: OnceLock::new(),
            decider: OnceLock::new(),
            programs: OnceLock::new(),
            decider_moved: Notify::new(),
            orders: Arc::default(),
            stopping: watch::channel(false).0,
            me: Weak::clone(me),
        })
    }

    /// Keeps the proxy's choices of writers in a file of this directory from now on. With `recall` the file's content holds again,
    /// otherwise it is dropped. Events are kept there too, and never dropped.
    /// Call it once, and before the first configuration.
    pub fn keep_in(&self, datadir: &Path, recall: bool) {
        self.keep_events_in(datadir);
        self.healing.orders.keep_in(datadir, recall);
        let kept = self.kept.get_or_init(|| Kept::new(datadir));
        let found = if recall { kept.read() } else { kept.forget().map(|()| Memory::default()) };
        match found {
            Ok(memory) => {
                let mut core = self.core();
                core.memory.clone_from(&memory);
                core.topology.recall(memory.standings);
                core.topology.learn(memory.knowledge);
            }
            Err(e) => tracing::warn!("the proxy does not know which servers were writers when it last ran: {e}"),
        }
    }

    /// The state of the servers, for the monitor of a process that takes over.
    pub fn knowledge(&self) -> Knowledge {
        self.core().topology.knowledge()
    }

    /// Continues with the state of another process's monitor, which wins over the file. Call it before the first configuration.
    pub fn learn(&self, knowledge: Knowledge) {
        self.core().topology.learn(knowledge);
    }

    /// Whether each check that tells a role was made once since the start, with any result.
    pub fn has_looked(&self) -> bool {
        let core = self.core();
        let is_wanted = core.snapshot.vars.monitor_enabled;
        let checks = if is_wanted { core.topology.checks() } else { Vec::new() };
        checks.into_iter().filter(|check| check.kind.tells_role()).all(|check| core.made.contains(&(check.addr, check.kind)))
    }

    /// Writes the file whenever its content has changed. Never returns. On the monitor's thread.
    pub(crate) async fn keep_standings(&self) {
        let mut was_kept = true;
        loop {
            let written = self.write_standings().await;
            match &written {
                Err(e) if was_kept => tracing::warn!("cannot save the current writers for a restart, the proxy tries again: {e}"),
                Ok(()) if !was_kept => tracing::info!("the current writers are saved for a restart again"),
                _ => {}
            }
            was_kept = written.is_ok();
            tokio::select! {
                () = self.stood.notified() => {}
                () = tokio::time::sleep(KEEP_AGAIN), if !was_kept => {}
                () = tokio::time::sleep(KEEP_LOOK) => self.keep(&mut self.core()),
            }
        }
    }

    /// Tells whether the files belong to this process, or (false) to a process that takes over. Blocks: it writes or reads the events.
    pub fn keep_standings_here(&self, is_own: bool) {
        if is_own {
            self.read_events_again();
        } else if let Err(e) = self.write_events_now() {
            tracing::warn!("the new process will not show the latest events: {e}");
        }
        self.keeps.store(is_own, Ordering::Release);
        // A write that began before has ended now.
        drop(lock(&self.events_written));
        if let Some(kept) = self.kept.get() {
            kept.doubt();
        }
        if is_own {
            self.healing.orders.read_again();
        }
        self.stood.notify_one();
        self.noted.notify_one();
    }

    /// Whether the files in the data directory are this process's.
    pub(crate) fn keeps_files(&self) -> bool {
        self.keeps.load(Ordering::Acquire)
    }

    /// Brings the file up to date, where there is one.
    pub(crate) async fn write_standings(&self) -> std::io::Result<()> {
        if !self.keeps_files() {
            return Ok(());
        }
        let Some(me) = self.me() else { return Ok(()) };
        let write = move || me.kept.get().map_or(Ok(()), |kept| kept.write(|| me.core().memory.clone()));
        tokio::task::spawn_blocking(write).await.map_err(std::io::Error::other).flatten()
    }

    /// Hands the monitor its data plane; false when it has one. On the monitor's thread.
    pub(crate) fn begin(&self, running: Running) -> bool {
        let fleet = Arc::clone(&running.fleet);
        if self.running.set(running).is_err() {
            return false;
        }
        let layout = self.layout();
        fleet.arrange(layout);
        let measured: Vec<_> = self.core().gauges.iter().map(|(addr, gauge)| (addr.clone(), gauge.measured())).collect();
        self.publish(measured);
        self.stale.notify_one();
        true
    }

    /// The data plane and the runtime, once there are any.
    pub(crate) fn running(&self) -> Option<&Running> {
        self.running.get()
    }

    /// Itself, for work that outlives a call.
    pub(crate) fn me(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }

    pub(crate) fn layout(&self) -> Layout {
        self.core().topology.layout().clone()
    }

    /// The configuration in force.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.core().snapshot)
    }

    /// Looks at configuration and layout of one instant. `look` must only compute: the topology's lock is held.
    pub(crate) fn consult<R>(&self, look: impl FnOnce(&Snapshot, &Layout) -> R) -> R {
        let core = self.core();
        look(&core.snapshot, core.topology.layout())
    }

    pub(crate) fn drained_servers(&self) -> Vec<ServerAddr> {
        self.core().topology.drained().iter().cloned().collect()
    }

    /// The server that an operator prefers in the cluster with this writer hostgroup.
    pub(crate) fn preferred(&self, writer: model::HostgroupId) -> Option<ServerAddr> {
        self.core().topology.preferred(writer).cloned()
    }

    /// How many servers of each replication cluster say that they are writable, by writer hostgroup.
    pub(crate) fn writable(&self) -> Vec<(model::HostgroupId, usize)> {
        self.core().topology.writable()
    }

    /// The servers that may not write by the record of healing, each for its reason in words, by writer hostgroup.
    pub(crate) fn barred(&self) -> BTreeMap<model::HostgroupId, BTreeMap<ServerAddr, String>> {
        self.core().topology.barred()
    }

    /// What the writers of a cluster had when they took over, the oldest first; and the servers that are kept out because of that.
    pub(crate) fn past(&self, writer: model::HostgroupId) -> (Vec<Fork>, Vec<ServerAddr>) {
        let core = self.core();
        let forks = core.topology.forks().into_iter().filter(|fork| fork.writer == writer).collect();
        (forks, core.topology.fenced(writer))
    }

    /// How many servers of each replication cluster serve no reads because they do not replicate from its writer, by writer hostgroup.
    pub(crate) fn strays(&self) -> Vec<(model::HostgroupId, usize)> {
        self.core().topology.strays()
    }

    /// The servers whose lag is measured.
    pub(crate) fn measured_for_lag(&self) -> HashSet<ServerAddr> {
        let checks = self.core().topology.checks();
        checks.into_iter().filter(|check| check.kind == CheckKind::Lag).map(|check| check.addr).collect()
    }

    /// Each server's last words about its cluster.
    pub(crate) fn identities(&self) -> Vec<MemberIdentity> {
        self.core().topology.identities()
    }

    /// The layout that an order would lead to now; nothing is changed.
    pub(crate) fn suppose(&self, order: &Order) -> Result<Layout, String> {
        let mut topology = self.core().topology.clone();
        topology.order(self.clock.now_ms(), order)?;
        Ok(topology.layout().clone())
    }

    /// Takes the pending results of checks, then changes the topology. Sends the layout, events and checks that follow to the data plane,
    /// the log and the scheduler. On the monitor's thread.
    pub(crate) fn decide<R>(&self, change: impl FnOnce(&mut Topology, u64) -> R) -> R {
        let now_ms = self.clock.now_ms();
        let sightings = std::mem::take(&mut *lock(&self.sightings));
        let looked_at: Vec<ServerAddr> = sightings.iter().filter(|(_, seen)| seen.tells_role()).map(|(addr, _)| addr.clone()).collect();
        let mut core = self.core();
        core.topology.observe_all(now_ms, sightings);
        let result = change(&mut core.topology, now_ms);
        let events = core.topology.take_events();
        let layout = core.unpublished();
        let measured = core.gauge_distances();
        let are_checks_changed = core.topology.take_checks_changed() || !events.is_empty();
        if !events.is_empty() {
            self.keep(&mut core);
        }
        // The data plane is called below, and may call back under a lock of its own.
        drop(core);
        self.note(events);
        if let Some(layout) = &layout {
            lock(&self.since).note(layout, now_ms);
        }
        if let (Some(layout), Some(running)) = (layout, self.running.get()) {
            running.fleet.arrange(layout);
            self.channels_due.notify_one();
            self.healing.look_now();
        }
        if let Some(running) = self.running.get() {
            looked_at.iter().for_each(|addr| running.fleet.looked_at(addr));
        }
        self.publish(measured);
        if are_checks_changed {
            self.stale.notify_one();
        }
        result
    }

    /// A check is over; [`Monitor::take_sightings`] decides by it. On the monitor's thread.
    pub(crate) fn checked(&self, checked: Checked) {
        self.counts.checked(&checked);
        if checked.kind.tells_role() {
            self.core().made.insert((checked.addr.clone(), checked.kind));
        }
        let measured = self.measure(&checked).map(|measured| (checked.addr.clone(), measured));
        let seen = probe::seen(checked.kind, &checked.outcome, |group| probe::group_view(group, &self.core().members));
        let addr = checked.addr.clone();
        // The log has the check before any decision that follows from it.
        lock(&self.log).add(checked);
        if let Some(seen) = seen {
            lock(&self.sightings).push((addr, seen));
            self.sighted.notify_one();
        }
        self.publish(measured);
    }

    /// Passes measured values to the data plane, if there is one.
    fn publish(&self, measured: impl IntoIterator<Item = (ServerAddr, Measured)>) {
        if let Some(running) = self.running.get() {
            measured.into_iter().for_each(|(addr, measured)| running.fleet.measured(&addr, measured));
        }
    }

    /// Records measured values. Returns them if they changed, for the data plane.
    fn measure(&self, checked: &Checked) -> Option<Measured> {
        let mut core = self.core();
        match &checked.outcome {
            Ok(Found::Group(group)) if !group.me.is_empty() => {
                core.learn_member(&group.me, &checked.addr);
                None
            }
            Ok(Found::Ping(us)) => {
                let gauge = core.gauges.entry(checked.addr.clone()).or_default();
                if gauge.pings_us.len() == PINGS_KEPT {
                    gauge.pings_us.remove(0);
                }
                gauge.pings_us.push(*us);
                Some(gauge.measured())
            }
            _ => None,
        }
    }

    /// Waits for the result of a check.
    pub(crate) async fn sighted(&self) {
        self.sighted.notified().await;
    }

    /// Decides by all pending results at once: if a large fleet fails, many checks end at the same time. On the monitor's thread.
    pub(crate) fn take_sightings(&self) {
        self.decide(|_, _| ());
    }

    /// Takes the reports of traffic. On the monitor's thread.
    pub(crate) fn take_signals(&self) {
        let signals = self.inbox.take();
        // A failed connect may mean that the name has moved to another address.
        for signal in signals.iter().filter(|signal| signal.kind == SignalKind::ConnectFailed) {
            self.connector.resolver.doubt(&signal.server.host);
        }
        self.decide(|topology, now_ms| signals.iter().for_each(|signal| topology.signal(now_ms, signal)));
    }

    /// Ends connections to addresses that a name no longer has, so that they do not serve for ever. On the monitor's thread.
    pub(crate) fn take_moved_names(&self) {
        let moved = self.connector.resolver.moved(Instant::now());
        if moved.is_empty() {
            return;
        }
        let known = servers(&self.layout());
        for name in moved {
            if let Some(running) = self.running.get() {
                running.fleet.moved(&name.host, &name.gone);
            }
            if !name.newly.is_empty() {
                let concerned = known.iter().filter(|addr| addr.host == name.host);
                self.note(concerned.map(|addr| moved_event(addr, &name, self.clock.now_ms())).collect());
            }
        }
    }

    /// Acts on deadlines that have passed. On the monitor's thread.
    pub(crate) fn tick(&self) {
        self.decide(Topology::tick);
    }

    /// When [`Monitor::tick`] is due.
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        let at_ms = self.core().topology.next_tick()?;
        Some(self.clock.instant(at_ms))
    }

    /// Waits for a signal.
    pub(crate) async fn signalled(&self) {
        self.inbox.filled().await;
    }

    /// Waits until checks may have changed.
    pub(crate) async fn stale(&self) {
        self.stale.notified().await;
    }

    /// The checks that are due, with account and settings.
    pub(crate) fn wanted(&self) -> Wanted {
        let core = self.core();
        let vars = &core.snapshot.vars;
        let checks = if vars.monitor_enabled { core.topology.checks() } else { Vec::new() };
        Wanted { checks, account: Account::of(&core.snapshot), settings: ProbeSettings::of(&core.snapshot) }
    }

    /// Adds events to the history, the log and the tables.
    pub(crate) fn note(&self, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let mut history = lock(&self.history);
        for event in events {
            self.counts.changed(&event);
            history.add(event, &self.clock);
        }
        self.noted.notify_one();
    }

    /// Lets the file be written if its content has changed.
    fn keep(&self, core: &mut Core) {
        let memory = Memory::new(core.topology.standings(), core.topology.knowledge_to_keep());
        if !memory.is_as(&core.memory) {
            core.memory = memory;
            self.stood.notify_one();
        }
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        lock(&self.core)
    }
}

impl Core {
    /// The layout, if it has changed since it was last handed out.
    fn unpublished(&mut self) -> Option<Layout> {
        let revision = self.topology.layout().revision;
        if revision <= self.published {
            return None;
        }
        self.published = revision;
        Some(self.topology.layout().clone())
    }

    /// Takes the servers' lags from the topology. Returns the measured values of those that changed.
    fn gauge_distances(&mut self) -> Vec<(ServerAddr, Measured)> {
        let mut changed = Vec::new();
        for (addr, distance) in self.topology.take_distances() {
            let known = self.gauges.get(&addr).map(|gauge| gauge.distance).unwrap_or_default();
            if known != distance {
                let gauge = self.gauges.entry(addr.clone()).or_default();
                gauge.distance = distance;
                changed.push((addr, gauge.measured()));
            }
        }
        changed
    }
}

impl RoleKeeper for Monitor {
    fn configure(&self, snapshot: &Arc<Snapshot>) -> Layout {
        self.connector.resolver.configure(DnsSettings::of(&snapshot.vars));
        lock(&self.log).configure(snapshot.vars.monitor_history);
        lock(&self.history).configure(snapshot);
        let mut core = self.core();
        core.snapshot = Arc::clone(snapshot);
        core.topology.configure(snapshot, self.clock.now_ms());
        let layout = core.topology.layout().clone();
        core.published = layout.revision;
        let known = servers(&layout);
        core.forget_strangers(&known);
        let measured = core.gauge_distances();
        let events = core.topology.take_events();
        self.keep(&mut core);
        drop(core);
        lock(&self.since).note(&layout, self.clock.now_ms());
        lock(&self.log).forget_strangers(|addr| known.contains(addr));
        self.note(events);
        self.publish(measured);
        self.stale.notify_one();
        self.channels_due.notify_one();
        self.healing.look_now();
        layout
    }

    fn signal(&self, signal: Signal) {
        let kind = signal.kind;
        self.counts.signalled(kind, self.inbox.put(signal));
    }
}

impl AddressBook for Monitor {
    fn find(&self, host: &str) -> Option<Arc<[IpAddr]>> {
        self.connector.resolver.find(host)
    }

    fn resolve<'a>(&'a self, host: &'a str) -> Resolving<'a> {
        Box::pin(self.connector.resolver.look_up(host))
    }

    fn is_unresolved(&self, host: &str) -> bool {
        self.connector.resolver.is_unresolved(host)
    }

    fn doubt(&self, host: &str) {
        self.connector.resolver.doubt(host);
    }
}

/// Members remembered under one address. More are new UUIDs of a server that is rebuilt.
const MEMBERS_OF_AN_ADDRESS: usize = 16;

impl Core {
    /// A member reported its UUID at this address. A configured address is kept if it also answers at one that was found.
    fn learn_member(&mut self, uuid: &str, addr: &ServerAddr) {
        let known = self.members.get(uuid).filter(|known| *known != addr);
        if known.is_some_and(|known| self.is_configured(known) && !self.is_configured(addr)) {
            return;
        }
        if !self.members.contains_key(uuid) && self.members.values().filter(|known| *known == addr).count() >= MEMBERS_OF_AN_ADDRESS {
            self.members.retain(|_, known| known != addr);
        }
        self.members.insert(uuid.to_owned(), addr.clone());
    }

    fn is_configured(&self, addr: &ServerAddr) -> bool {
        self.snapshot.hostgroups.values().flat_map(|hostgroup| &hostgroup.servers).any(|row| row.key.addr() == *addr)
    }

    /// Drops the values of servers that left the layout.
    fn forget_strangers(&mut self, known: &HashSet<ServerAddr>) {
        self.gauges.retain(|addr, _| known.contains(addr));
        self.members.retain(|_, addr| known.contains(addr));
        self.made.retain(|(addr, _)| known.contains(addr));
    }
}

/// A server is reached under another address than before.
fn moved_event(addr: &ServerAddr, name: &Moved, at_ms: u64) -> Event {
    let list = |addresses: &[IpAddr]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    Event {
        at_ms,
        cluster: None,
        server: Some(addr.clone()),
        kind: EventKind::Address,
        from: list(&name.newly),
        to: list(&name.addresses),
        seen: String::new(),
        by: "resolver",
        why: "the name has a new address: idle connections to the old address are closed now, other connections after use".to_owned(),
    }
}

fn servers(layout: &Layout) -> HashSet<ServerAddr> {
    layout.hostgroups.values().flatten().map(|placement| placement.server.key.addr()).collect()
}

/// A poisoned lock is used further: its data is consistent between statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As logs show it.
pub(crate) fn error_text(error: &ProbeError, timeout_ms: u64) -> String {
    match error {
        ProbeError::Timeout => format!("timeout: no answer within {timeout_ms} ms"),
        error => error.text().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configured_address_of_a_member_wins() {
        let addr = |host: &str| ServerAddr { host: host.into(), port: 3306 };
        let snapshot = crate::testing::snapshot("mysql_servers = ( { address=\"10.0.0.2\", port=3306, hostgroup=1 } )");
        let mut core = Core { snapshot, ..Core::default() };
        for host in ["db2", "10.0.0.2", "db2"] {
            core.learn_member("u2", &addr(host));
        }
        assert_eq!(core.members["u2"], addr("10.0.0.2"));
        for host in ["db3", "db4"] {
            core.learn_member("u3", &addr(host));
        }
        assert_eq!(core.members["u3"], addr("db4"), "neither is configured");
    }
}
