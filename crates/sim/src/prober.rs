//! Stands in for the monitor. Probes over the simulated network feed the real reducers, and their layouts go to the real proxy. The proxy's
//! observations come back as signals.

use crate::fleet::Fleet;
use crate::net::{Node, server_of};
use crate::oracle::Oracle;
use crate::proxies::Proxies;
use crate::trace::Trace;
use model::fleet::{Layout, RoleKeeper, Signal, UnderWay};
use model::snapshot::{ServerStatus, Snapshot};
use model::{HostgroupId, ServerAddr};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use topology::{Check, CheckKind, Lag, Observation, ProbeError, SourcesView, Topology};

/// Its servers take writes.
pub(crate) const WRITER: HostgroupId = HostgroupId(0);

/// Decides roles: the real reducers behind a lock.
pub(crate) struct Keeper {
    topology: Mutex<Topology>,
    origin: Instant,
    signals: Mutex<Vec<Signal>>,
    signalled: Notify,
}

impl Keeper {
    /// Nothing is known yet.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { topology: Mutex::default(), origin: Instant::now(), signals: Mutex::default(), signalled: Notify::new() })
    }

    fn topology(&self) -> MutexGuard<'_, Topology> {
        self.topology.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signals(&self) -> MutexGuard<'_, Vec<Signal>> {
        self.signals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl RoleKeeper for Keeper {
    fn configure(&self, snapshot: &Arc<Snapshot>) -> Layout {
        let mut topology = self.topology();
        topology.configure(snapshot, self.now_ms());
        self.signalled.notify_one();
        topology.layout().clone()
    }

    fn signal(&self, signal: Signal) {
        let mut signals = self.signals();
        if signals.len() < 1000 && !signals.contains(&signal) {
            signals.push(signal);
            self.signalled.notify_one();
        }
    }
}

/// The task that probes.
pub(crate) struct Prober {
    /// Gets the results.
    pub keeper: Arc<Keeper>,
    /// The probed servers.
    pub fleet: Rc<Fleet>,
    /// Gets the layouts.
    pub proxies: Rc<Proxies>,
    /// Gets the layouts too, to judge the proxy by them.
    pub oracle: Rc<Oracle>,
    /// The log of the run.
    pub trace: Trace,
    /// Whether the proxy gets layouts after the first ones.
    pub tells_layouts: bool,
}

/// When each check began last.
type Begun = BTreeMap<(ServerAddr, CheckKind), Instant>;

impl Prober {
    /// Probes for ever.
    pub(crate) async fn run(self: Rc<Self>) {
        let mut begun = Begun::new();
        let mut told = None;
        loop {
            self.take_signals();
            let next = self.begin_checks(&mut begun);
            self.publish(&mut told);
            let _ = tokio::time::timeout(next, self.keeper.signalled.notified()).await;
        }
    }

    fn take_signals(&self) {
        let signals = std::mem::take(&mut *self.keeper.signals());
        let now_ms = self.keeper.now_ms();
        let mut topology = self.keeper.topology();
        for signal in &signals {
            self.trace.note(|| format!("signal {} of {} in {}", signal.kind.as_str(), signal.server, signal.hostgroup));
            topology.signal(now_ms, signal);
        }
        topology.tick(now_ms);
    }

    /// Begins the checks that are due; answers how long there is nothing to do.
    fn begin_checks(self: &Rc<Self>, begun: &mut Begun) -> Duration {
        let (checks, next_tick) = {
            let topology = self.keeper.topology();
            (topology.checks(), topology.next_tick())
        };
        let now = Instant::now();
        let mut next = now + Duration::from_millis(500);
        if let Some(at_ms) = next_tick {
            next = next.min(self.keeper.origin + Duration::from_millis(at_ms));
        }
        for check in checks {
            let interval = Duration::from_millis(check.interval_ms.max(1));
            let key = (check.addr.clone(), check.kind);
            let due = begun.get(&key).map_or(now, |at| *at + interval);
            if due <= now {
                begun.insert(key, now);
                next = next.min(now + interval);
                tokio::task::spawn_local(Rc::clone(self).check(check));
            } else {
                next = next.min(due);
            }
        }
        next.saturating_duration_since(now).max(Duration::from_millis(1))
    }

    /// One check: the question goes to the server, the answer comes back, if both do in time.
    async fn check(self: Rc<Self>, check: Check) {
        let limit = Duration::from_millis(check.timeout_ms.max(1));
        let began = Instant::now();
        let seen = match tokio::time::timeout(limit, self.ask(&check)).await {
            Ok(answer) => answer,
            Err(_) => Err(ProbeError::Timeout),
        };
        let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let seen = match check.kind {
            CheckKind::Ping => Observation::Ping(seen.map(|_| us)),
            CheckKind::ReadOnly(_) => Observation::ReadOnly(seen.map(|s| s.read_only)),
            CheckKind::Lag => Observation::Lag(seen.map(|s| s.lag)),
            // A writable server of the simulation has no source; the other ones get all writes.
            CheckKind::Sources => Observation::Sources(seen.map(|s| SourcesView { is_member: s.read_only, ..SourcesView::default() })),
            CheckKind::BufferPool => Observation::BufferPool(seen.map(|s| (true, s.uptime_s))),
            CheckKind::Connect | CheckKind::Gtids | CheckKind::Galera | CheckKind::Group | CheckKind::Aurora | CheckKind::RdsTopology => {
                return;
            }
        };
        self.keeper.topology().observe(self.keeper.now_ms(), &check.addr, seen);
        self.keeper.signalled.notify_one();
    }

    async fn ask(&self, check: &Check) -> Result<Sighting, ProbeError> {
        let network = &self.fleet.network;
        let Some(id) = server_of(&check.addr.host) else { return Err(ProbeError::Unreachable("no such host".into())) };
        let server = &self.fleet.servers[id];
        tokio::time::sleep(network.delay()).await;
        self.reach(id).await;
        if !server.state().is_up {
            return Err(ProbeError::Unreachable("connection refused".into()));
        }
        let slow = server.state().probe_slow_ms;
        tokio::time::sleep(Duration::from_millis(slow)).await;
        let sighting = {
            let state = server.state();
            let behind = (state.relay.len() - state.applied) as u64;
            let lag = if state.source.is_some() { Lag::Behind(if behind > 0 { state.lag_ms } else { 0 }) } else { Lag::NotReplica };
            (state.is_up, Sighting { read_only: state.claims_read_only.unwrap_or(state.read_only), lag, uptime_s: 1 })
        };
        self.reach(id).await;
        tokio::time::sleep(network.delay()).await;
        match sighting {
            (true, sighting) => Ok(sighting),
            (false, _) => Err(ProbeError::Unreachable("connection reset".into())),
        }
    }

    /// Waits until the monitor and a server hear each other; a machine that is gone is silent.
    async fn reach(&self, id: usize) {
        loop {
            let changed = self.fleet.network.changed();
            if self.fleet.network.hears(Node::Monitor, Node::Server(id)) && !self.fleet.network.is_silent(id) {
                return;
            }
            changed.await;
        }
    }

    /// Gives a changed layout to the proxy.
    fn publish(&self, told: &mut Option<u64>) {
        let (layout, events) = {
            let mut topology = self.keeper.topology();
            (topology.layout().clone(), topology.take_events())
        };
        for event in events {
            let server = event.server.map(|s| s.to_string()).unwrap_or_default();
            let kind = event.kind.as_str();
            self.trace
                .note(|| format!("event {kind} {server}: {} -> {} ({}; {}; {})", event.from, event.to, event.seen, event.by, event.why));
        }
        let is_silent = !self.tells_layouts && self.keeper.now_ms() > 1500;
        if is_silent || told.is_some_and(|revision| revision >= layout.revision) {
            return;
        }
        *told = Some(layout.revision);
        let placements = layout.hostgroups.get(&WRITER).map(Vec::as_slice).unwrap_or_default();
        let online = placements.iter().filter(|p| p.status == ServerStatus::Online);
        let writers: BTreeSet<usize> = online.filter_map(|p| server_of(&p.server.key.host)).collect();
        self.trace.note(|| format!("layout {}: {}", layout.revision, shown(&layout)));
        self.proxies.arrange(&layout);
        self.oracle.writers_are(&writers, self.fleet.servers.len());
    }
}

/// The result of a probe.
struct Sighting {
    read_only: bool,
    lag: Lag,
    uptime_s: u64,
}

fn shown(layout: &Layout) -> String {
    let of = |placements: &Vec<model::fleet::Placement>| {
        let each = placements.iter().map(|p| {
            format!("{} {}{}", p.server.key.host, p.status.as_str(), if p.under_way == UnderWay::Severed { " sever" } else { "" })
        });
        each.collect::<Vec<_>>().join(", ")
    };
    layout.hostgroups.iter().map(|(id, placements)| format!("{id}: {}", of(placements))).collect::<Vec<_>>().join("; ")
}
