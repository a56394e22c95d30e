//! The whole fleet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::fleet::{Layout, Placement, Signal, SignalKind, UnderWay};
use model::snapshot::{ReadWriteSplit, RoleGroup, RoleKind, Server, ServerStatus, Snapshot, UserSplit};
use model::{HostgroupId, ServerAddr};

use crate::check::{Check, CheckKind};
use crate::checks::{ClusterNeeds, HASTE_MS, checks, counts_transactions};
use crate::cluster::{self, Cluster, Enrolment, Fork, World};
use crate::event::{Event, EventKind};
use crate::facts::{Facts, Troubles};
use crate::gtids::GtidSet;
use crate::health::{
    Distance, HostgroupPolicy, Lags, Seat, Sources, Vital, WARMING_LIMIT_MS, excessive_lag, lags, limits_lag, missed_pings, place,
    present_lag, vital,
};
use crate::identity::{Identity, MemberIdentity, Turn};
use crate::judgement::{Judgements, describe, small};
use crate::knowledge::Knowledge;
use crate::observation::{Observation, ProbeError};
use crate::order::Order;
use crate::replication;
use crate::standing::Standings;
use crate::story::{Cause, EventWriter, Part};

/// Events that are kept for [`Topology::take_events`]; beyond it the oldest go.
const MAX_EVENTS: usize = 10_000;

/// See the crate. Times are ms of any clock that does not go back.
#[derive(Debug, Clone, Default)]
pub struct Topology {
    known: Known,
    clusters: Vec<Cluster>,
    /// Hostgroups in no cluster.
    plain: BTreeSet<HostgroupId>,
    /// The clusters and hostgroups of each server.
    places: BTreeMap<ServerAddr, Places>,
    /// Each cluster's needs when [`Topology::take_checks_changed`] was last set for it.
    needs: Vec<ClusterNeeds>,
    /// The checks may have changed since [`Topology::take_checks_changed`].
    are_checks_changed: bool,
    /// The servers whose distance may have changed since [`Topology::take_distances`].
    distances_due: BTreeSet<ServerAddr>,
    layout: Layout,
    /// The read/write splits of the configuration, whose reads go to the writer while no reader takes work.
    splits: BTreeSet<ReadWriteSplit>,
    /// The splits without a usable reader, as already reported.
    left: BTreeSet<ReadWriteSplit>,
    /// The kept state of clusters that are not watched yet.
    kept: Standings,
    /// The state of another topology, until the first configuration.
    recalled: Knowledge,
    /// Answers from before a restart. They count only for servers that refuse the monitor.
    aside: BTreeMap<ServerAddr, Facts>,
    events: Vec<Event>,
    /// On the caller's clock, ms. It goes on while the monitor is off.
    now_ms: u64,
}

/// The input of all decisions.
#[derive(Debug, Clone, Default)]
struct Known {
    snapshot: Arc<Snapshot>,
    policies: BTreeMap<HostgroupId, HostgroupPolicy>,
    facts: BTreeMap<ServerAddr, Facts>,
    drained: BTreeSet<ServerAddr>,
    /// The time of the facts, ms: it stands still while the monitor is off.
    now_ms: u64,
}

/// A server's clusters and hostgroups.
#[derive(Debug, Clone, Default)]
struct Places {
    /// Clusters that it is a member of, by position.
    clusters: Vec<usize>,
    /// Its rows in hostgroups of no cluster.
    plain: Vec<Arc<Server>>,
}

/// The clusters and hostgroups that need a new decision.
#[derive(Debug, Default)]
struct Concerned {
    /// By position.
    clusters: BTreeSet<usize>,
    /// Hostgroups in no cluster.
    plain: BTreeSet<HostgroupId>,
}

impl Known {
    fn world(&self) -> World<'_> {
        World { snapshot: &self.snapshot, facts: &self.facts, drained: &self.drained, policies: &self.policies, now_ms: self.now_ms }
    }
}

impl Topology {
    /// A topology without a configuration: its layout is empty.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes over what [`Topology::standings`] told when the proxy was last up. Before the first configuration.
    pub fn recall(&mut self, kept: Standings) {
        self.kept = kept;
    }

    /// The state that has to survive a restart of the proxy, for [`Topology::recall`].
    pub fn standings(&self) -> Standings {
        let mut all = Standings::default();
        self.clusters.iter().map(Cluster::standings).chain([self.kept.clone()]).for_each(|part| all.extend(part));
        all
    }

    /// The whole state, for a topology that continues with it.
    pub fn knowledge(&self) -> Knowledge {
        Knowledge::exact(self.known.now_ms, &self.clusters, &self.known.drained, &self.known.facts)
    }

    /// The part of it that is written down; all while the monitor is off, as nothing changes then.
    pub fn knowledge_to_keep(&self) -> Knowledge {
        if self.is_watching() { self.knowledge().kept() } else { self.knowledge().of_then() }
    }

    /// Goes on with what another topology knew. Before the first configuration, which decides what of it is still of use.
    pub fn learn(&mut self, knowledge: Knowledge) {
        self.known.now_ms = knowledge.now_ms;
        self.recalled = knowledge;
    }

    /// The servers that an operator drains.
    pub fn drained(&self) -> &BTreeSet<ServerAddr> {
        &self.known.drained
    }

    /// How many servers of each replication cluster say that they are writable, by writer hostgroup.
    pub fn writable(&self) -> Vec<(HostgroupId, usize)> {
        let count = |cluster: &Cluster| Some((cluster.group.writer, cluster.writable(&self.known.facts)?));
        self.clusters.iter().filter_map(count).collect()
    }

    /// How many servers of each replication cluster serve no reads because they do not replicate from its writer, by writer hostgroup.
    pub fn strays(&self) -> Vec<(HostgroupId, usize)> {
        self.clusters.iter().filter_map(|cluster| Some((cluster.group.writer, cluster.strays()?))).collect()
    }

    /// The GTIDs of promoted servers before their first write, by cluster, the oldest promotion first.
    pub fn forks(&self) -> Vec<Fork> {
        self.clusters.iter().flat_map(Cluster::forks).cloned().collect()
    }

    /// Each server's last words about its cluster, for kinds that report an identity.
    pub fn identities(&self) -> Vec<MemberIdentity> {
        self.clusters.iter().flat_map(|cluster| cluster.identities(&self.known.facts)).collect()
    }

    /// Takes a configuration. Facts of servers that stay are kept. If it switches the monitor off, the facts freeze and decide alone from
    /// then on. Servers that are new by then are used as configured.
    pub fn configure(&mut self, snapshot: &Arc<Snapshot>, now_ms: u64) {
        self.advance(now_ms);
        let was_watching = std::mem::replace(&mut self.known.snapshot, Arc::clone(snapshot)).vars.monitor_enabled;
        let is_watching = self.is_watching();
        let mut old: BTreeMap<_, _> = std::mem::take(&mut self.clusters).into_iter().map(|cluster| (key(&cluster), cluster)).collect();
        let mut lasting = Vec::new();
        self.kept.retain(|writer| snapshot.roles.iter().any(|group| group.writer == writer));
        let mut recalled = std::mem::take(&mut self.recalled);
        for group in &snapshot.roles {
            let known = old.remove(&group_key(group)).or_else(|| recalled.take_cluster(group, is_watching));
            if known.is_some() {
                lasting.push(self.clusters.len());
            }
            if known.is_some() || is_watching {
                let is_new = known.is_none();
                let mut cluster = Cluster::new(group, snapshot, known, self.known.now_ms);
                if is_new {
                    cluster.recall(&self.kept);
                }
                self.kept.retain(|writer| writer != group.writer);
                self.clusters.push(cluster);
            }
        }
        let claimed: BTreeSet<HostgroupId> = self.clusters.iter().flat_map(|cluster| cluster.group.hostgroups()).collect();
        self.plain = snapshot.hostgroups.keys().copied().filter(|id| !claimed.contains(id)).collect();
        self.known.policies = self.plain.iter().chain(&claimed).map(|id| (*id, HostgroupPolicy::of(snapshot, *id))).collect();
        self.known.drained.append(&mut recalled.drained);
        if !recalled.is_empty() {
            (self.known.facts, self.aside) = recalled.take_facts(is_watching);
        }
        self.splits = splits(snapshot);
        self.find_places();
        if is_watching {
            self.forget_refusals();
        }
        self.distances_due.extend(self.places.keys().cloned());
        if is_watching != was_watching {
            lasting.into_iter().for_each(|index| self.tell_of_watch(index));
        }
        self.decide_all(Cause::Configuration);
    }

    /// A check of this server ended.
    pub fn observe(&mut self, now_ms: u64, server: &ServerAddr, seen: Observation) {
        self.observe_all(now_ms, [(server.clone(), seen)]);
    }

    /// Takes the results of checks in this order. Each hostgroup concerned is decided once. The layout is the same as after
    /// [`Topology::observe`] for each of them at this time.
    pub fn observe_all(&mut self, now_ms: u64, sightings: impl IntoIterator<Item = (ServerAddr, Observation)>) {
        self.advance(now_ms);
        if !self.is_watching() {
            return;
        }
        let mut concerned = Concerned::default();
        for (server, seen) in sightings {
            self.take(&server, seen, &mut concerned);
        }
        concerned.clusters.into_iter().for_each(|index| self.decide(index, Cause::Probe, cluster::Order::None));
        concerned.plain.into_iter().for_each(|id| self.decide_plain(id, Cause::Probe));
    }

    /// Takes the result of a check and adds the clusters and hostgroups that need a decision.
    fn take(&mut self, server: &ServerAddr, seen: Observation, concerned: &mut Concerned) {
        let now_ms = self.known.now_ms;
        let limit = small(self.known.snapshot.vars.monitor_ping_max_failures);
        let Some(facts) = self.known.facts.get(server) else { return };
        let was_denied = facts.is_denied();
        let is_distance = match seen {
            Observation::Lag(_) => self.limits_lag(server),
            Observation::Gtids(_) => self.counts_transactions(server),
            _ => false,
        };
        let is_aside = seen.is_aside();
        let denied = match seen.error() {
            Some(ProbeError::Denied(text)) if !is_aside => Some(text.clone()),
            _ => None,
        };
        let error = seen.error().and_then(ProbeError::text).map(str::to_owned).filter(|_| is_distance);
        let executed = match &seen {
            Observation::Gtids(result) => Some(result.as_ref().ok().cloned()),
            _ => None,
        };
        let was_warming = facts.warming_since_ms.is_some();
        let untold = match &seen {
            Observation::Sources(Err(ProbeError::Denied(text))) if !facts.sources.is_denied => Some(text.clone()),
            _ => None,
        };
        let was_forgotten = (facts.lag.is_forgotten(), facts.gtids.is_forgotten());
        let tells_members = match seen {
            Observation::Group(Ok(_)) => Some(CheckKind::Group),
            Observation::Aurora(Ok(_)) => Some(CheckKind::Aurora),
            Observation::Rds(Ok(_)) => Some(CheckKind::RdsTopology),
            _ => None,
        };
        let before = self.plain_seats(server);
        let mut is_forgotten = was_forgotten;
        if let Some(facts) = self.known.facts.get_mut(server) {
            if let Some(kept) = self.aside.get(server) {
                facts.recall(kept, &seen);
            }
            if seen.tells_role() {
                self.aside.remove(server);
            }
            if matches!(seen, Observation::Lag(_)) {
                self.distances_due.insert(server.clone());
            }
            facts.observe(now_ms, seen, limit);
            is_forgotten = (facts.lag.is_forgotten(), facts.gtids.is_forgotten());
            self.are_checks_changed |= facts.warming_since_ms.is_some() != was_warming;
        }
        if let Some(has) = executed {
            self.tell_of_lack(server, has.as_ref());
        }
        if let Some(error) = error.filter(|_| is_forgotten > was_forgotten) {
            let why = "the lag check fails, so the earlier lag no longer counts";
            self.tell(server, EventKind::Suspicion, ("", "lag unknown"), &error, Cause::Probe, why);
        }
        if let Some(text) = untold {
            let why = "the monitor cannot read the server's replication source: the server serves reads as before";
            self.tell(server, EventKind::Suspicion, ("", "source unknown"), &text, Cause::Probe, why);
        }
        if let Some(text) = denied.filter(|_| !was_denied) {
            self.tell(
                server,
                EventKind::Suspicion,
                ("", "unknown"),
                &text,
                Cause::Probe,
                "the monitor cannot log in or query, so the server's state is unknown",
            );
        }
        let knows = self.known.facts.get(server).is_some_and(|facts| !facts.is_denied());
        if was_denied && knows {
            let why = "the monitor can log in and query again";
            self.tell(server, EventKind::Suspicion, ("unknown", "known"), "", Cause::Probe, why);
        }
        if let Some(told) = tells_members {
            self.enrol(server, told);
        }
        if tells_members == Some(CheckKind::Aurora) {
            // Its view tells the lag of each instance.
            for index in self.clusters_of(server) {
                let members = self.clusters.get(index).into_iter().flat_map(|cluster| cluster.members.keys());
                self.distances_due.extend(members.cloned());
            }
        }
        concerned.clusters.extend(self.clusters_of(server));
        // Most sightings change nothing there, and such a hostgroup may be large.
        if before != self.plain_seats(server) {
            concerned.plain.extend(self.plain_rows(server).iter().map(|row| row.key.hostgroup));
        }
    }

    /// Whether a limit on transactions behind applies to this server.
    fn counts_transactions(&self, server: &ServerAddr) -> bool {
        let clusters = self.places.get(server).map(|places| places.clusters.as_slice()).unwrap_or_default();
        let mut all = clusters.iter().filter_map(|index| self.clusters.get(*index));
        all.any(|cluster| counts_transactions(&self.known.snapshot, cluster))
    }

    /// The servers whose distance may have changed since the last call, each with its distance now.
    pub fn take_distances(&mut self) -> Vec<(ServerAddr, Distance)> {
        let due = std::mem::take(&mut self.distances_due);
        let distance = |server: ServerAddr| {
            let known = self.distance(&server).unwrap_or_default();
            (server, known)
        };
        due.into_iter().map(distance).collect()
    }

    /// None while the monitor is off. A hostgroup in no cluster knows a lag if its row limits it.
    fn distance(&self, server: &ServerAddr) -> Option<Distance> {
        let places = self.places.get(server).filter(|_| self.is_watching())?;
        let facts = self.known.facts.get(server)?;
        let world = self.known.world();
        let plain = places.plain.iter().filter(|row| limits_lag(row));
        let plain = plain.map(|row| Distance::of(facts, Sources::default(), world.policy(row.key.hostgroup)));
        let clusters = places.clusters.iter().filter_map(|index| self.clusters.get(*index));
        let clusters = clusters.map(|cluster| cluster.distance(world, server, facts));
        Some(plain.chain(clusters).fold(Distance::default(), Distance::with))
    }

    /// Whether a row of this server has `max_replication_lag`. Without a limit its lag is measured for display only.
    fn limits_lag(&self, server: &ServerAddr) -> bool {
        let written = self.known.snapshot.hostgroups.values().flat_map(|hostgroup| &hostgroup.servers);
        let placed = self.layout.hostgroups.values().flatten().map(|placement| &placement.server);
        written.chain(placed).any(|row| row.max_replication_lag > 0 && row.key.addr() == *server)
    }

    /// Traffic saw something.
    pub fn signal(&mut self, now_ms: u64, signal: &Signal) {
        self.advance(now_ms);
        if !self.is_watching() {
            return;
        }
        let now_ms = self.known.now_ms;
        // A read-only error outside the writer hostgroup is the mistake of the client, not of the server.
        let refuses_writes = signal.kind == SignalKind::ReadOnly;
        let concerns = |cluster: &Cluster| !refuses_writes || cluster.group.writer == signal.hostgroup;
        let about = self.clusters_of(&signal.server).into_iter().filter_map(|index| self.clusters.get(index));
        let longest_ms = about.filter(|cluster| concerns(cluster)).map(|cluster| cluster.suspicion_ms).max().unwrap_or_default();
        let Some(facts) = self.known.facts.get_mut(&signal.server) else { return };
        let was_suspected = facts.suspected_until_ms > now_ms;
        facts.signal(signal.kind, now_ms + longest_ms);
        let is_new = facts.report(signal.kind, now_ms, was_suspected);
        if is_new && facts.suspected_until_ms > now_ms {
            let why = "traffic reported a failure, so the monitor probes at once";
            self.tell(&signal.server, EventKind::Suspicion, ("", signal.kind.as_str()), signal.kind.as_str(), Cause::Traffic, why);
        }
        self.decide_about(&signal.server, Cause::Traffic);
    }

    /// Carries out an order. Errors: the server or cluster is unknown, the monitor is off, or nothing would change. State and layout then
    /// stay as they were.
    pub fn order(&mut self, now_ms: u64, order: &Order) -> Result<(), String> {
        self.advance(now_ms);
        match order {
            Order::Drain { server, is_drained } => self.drain(server, *is_drained),
            Order::Prefer { writer, server } => self.prefer(*writer, server.as_ref()),
            Order::Failback { .. } if !self.is_watching() => {
                Err("mysql-monitor_enabled is false, so the proxy cannot know which server may write: nothing was changed".to_owned())
            }
            Order::Failback { writer } => self.failback(*writer),
            Order::Accept { .. } if !self.is_watching() => {
                Err("mysql-monitor_enabled is false, so the proxy cannot know which cluster the servers belong to: nothing was changed"
                    .to_owned())
            }
            Order::Accept { writer, from } => self.accept(*writer, from.as_ref()),
        }
    }

    /// The server that an operator prefers in the cluster with this writer hostgroup.
    pub fn preferred(&self, writer: HostgroupId) -> Option<&ServerAddr> {
        self.clusters.iter().find(|cluster| cluster.group.writer == writer)?.preferred.as_ref()
    }

    /// Undoes an order: this server is preferred as before. The present writer stays, and the fail-back policy applies.
    pub fn put_back_preferred(&mut self, now_ms: u64, writer: HostgroupId, server: Option<ServerAddr>) {
        self.advance(now_ms);
        let Ok(index) = self.cluster(writer) else { return };
        let server = server.filter(|addr| self.clusters[index].members.contains_key(addr));
        self.set_preferred(index, server, "a switchover was undone: preferred as before");
        self.decide(index, Cause::Operator, cluster::Order::Other);
    }

    /// These servers of a replication cluster serve no reads while they say that they are read-only, each for its reason in words; all others
    /// do as before. Holds until the next call.
    pub fn cast_out(&mut self, now_ms: u64, writer: HostgroupId, outcasts: &BTreeMap<ServerAddr, String>) {
        self.advance(now_ms);
        let Ok(index) = self.cluster(writer) else { return };
        if self.clusters[index].cast_out(outcasts) {
            self.decide(index, Cause::Probe, cluster::Order::Other);
        }
    }

    /// These servers of a replication cluster may not write, whatever they say of themselves, each for its reason in words. Holds until the
    /// next call.
    pub fn bar(&mut self, now_ms: u64, writer: HostgroupId, barred: &BTreeMap<ServerAddr, String>) {
        self.advance(now_ms);
        let Ok(index) = self.cluster(writer) else { return };
        if self.clusters[index].bar(barred) {
            self.decide(index, Cause::Probe, cluster::Order::Other);
        }
    }

    /// The servers that may not write by the last call for their cluster, each for its reason in words, by writer hostgroup.
    pub fn barred(&self) -> BTreeMap<HostgroupId, BTreeMap<ServerAddr, String>> {
        let barred = self.clusters.iter().map(|cluster| (cluster.group.writer, cluster.barred().clone()));
        barred.filter(|(_, barred)| !barred.is_empty()).collect()
    }

    /// This proxy is about to promote `fork.heir`. Kept like forks that are seen, until [`Topology::forget_fork`]. The writers before take no
    /// writes until that server is seen to write, at most for a minute.
    pub fn note_fork(&mut self, now_ms: u64, fork: &Fork) {
        self.advance(now_ms);
        let Ok(index) = self.cluster(fork.writer) else { return };
        self.clusters[index].note_fork(Fork { at_ms: self.known.now_ms, ..fork.clone() });
        let why = "noted what the server has before this proxy promotes it; other transactions of the old writer are not on it";
        self.tell(&fork.heir, EventKind::Writer, ("", "fork"), &in_short(&fork.had), Cause::Probe, why);
        self.decide(index, Cause::Probe, cluster::Order::Other);
    }

    /// The server was not promoted after all.
    pub fn forget_fork(&mut self, now_ms: u64, writer: HostgroupId, heir: &ServerAddr) {
        self.advance(now_ms);
        let Ok(index) = self.cluster(writer) else { return };
        self.clusters[index].forget_fork(heir);
        let why = "the promotion was undone: what was noted of the server is forgotten";
        self.tell(heir, EventKind::Writer, ("fork", ""), "", Cause::Probe, why);
        self.decide(index, Cause::Probe, cluster::Order::Other);
    }

    /// Servers that are excluded because another server took over from them, of one cluster.
    pub fn fenced(&self, writer: HostgroupId) -> Vec<ServerAddr> {
        self.clusters.iter().filter(|cluster| cluster.group.writer == writer).flat_map(Cluster::fenced).cloned().collect()
    }

    /// Acts on deadlines that have passed. The caller calls it at [`Topology::next_tick`].
    pub fn tick(&mut self, now_ms: u64) {
        self.advance(now_ms);
        if !self.is_watching() {
            return;
        }
        let now_ms = self.known.now_ms;
        for facts in self.known.facts.values_mut() {
            if facts.warming_since_ms.is_some_and(|since_ms| now_ms >= since_ms + WARMING_LIMIT_MS) {
                facts.warming_since_ms = None;
            }
        }
        self.decide_all(Cause::Time);
    }

    /// When [`Topology::tick`] would next change something: the layout, or how often is checked.
    pub fn next_tick(&self) -> Option<u64> {
        if !self.is_watching() {
            return None;
        }
        let clusters = self.clusters.iter().filter_map(Cluster::next_ms);
        let haste = self.clusters.iter().filter_map(|cluster| Some(cluster.writerless_since_ms()? + HASTE_MS));
        let warming = self.known.facts.values().filter_map(|facts| Some(facts.warming_since_ms? + WARMING_LIMIT_MS));
        let suspicion = self.known.facts.values().map(|facts| facts.suspected_until_ms);
        let next_ms = clusters.chain(haste).chain(warming).chain(suspicion).filter(|at_ms| *at_ms > self.known.now_ms).min()?;
        Some(next_ms - self.known.now_ms + self.now_ms)
    }

    /// The servers of each hostgroup, with their statuses. Its revision grows with every change.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The checks that are due. They change with the configuration, with found servers and with urgency.
    pub fn checks(&self) -> Vec<Check> {
        if self.is_watching() { checks(&self.known.snapshot, &self.clusters, &self.known.facts, self.known.now_ms) } else { Vec::new() }
    }

    /// The events since the last call, oldest first. At most 10,000 are kept.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    fn advance(&mut self, now_ms: u64) {
        let passed_ms = now_ms.saturating_sub(self.now_ms);
        self.now_ms += passed_ms;
        if self.is_watching() {
            self.known.now_ms += passed_ms;
        }
    }

    fn is_watching(&self) -> bool {
        self.known.snapshot.vars.monitor_enabled
    }

    /// Rebuilds the places of configured and found servers. Facts of other servers are dropped.
    fn find_places(&mut self) {
        let mut places: BTreeMap<ServerAddr, Places> = BTreeMap::new();
        for (id, hostgroup) in &self.known.snapshot.hostgroups {
            for row in &hostgroup.servers {
                let places = places.entry(row.key.addr()).or_default();
                if self.plain.contains(id) {
                    places.plain.push(Arc::clone(row));
                }
            }
        }
        for (index, cluster) in self.clusters.iter().enumerate() {
            for addr in cluster.members.keys() {
                places.entry(addr.clone()).or_default().clusters.push(index);
            }
        }
        self.known.facts.retain(|addr, _| places.contains_key(addr));
        self.aside.retain(|addr, _| places.contains_key(addr));
        self.known.drained.retain(|addr| places.contains_key(addr));
        for addr in places.keys() {
            self.known.facts.entry(addr.clone()).or_default();
        }
        self.places = places;
        self.are_checks_changed = true;
    }

    /// A refusal counts no more once the server is in no cluster that makes the check.
    fn forget_refusals(&mut self) {
        for (addr, places) in &self.places {
            let clusters = places.clusters.iter().filter_map(|index| self.clusters.get(*index));
            let kinds: Vec<&RoleKind> = clusters.map(|cluster| &cluster.group.kind).collect();
            if let Some(facts) = self.known.facts.get_mut(addr) {
                facts.forget_refusals(&kinds);
            }
        }
    }

    /// The clusters that a server is a member of, by position.
    fn clusters_of(&self, server: &ServerAddr) -> Vec<usize> {
        self.places.get(server).map(|places| places.clusters.clone()).unwrap_or_default()
    }

    /// Whether the checks may have changed since the last call.
    pub fn take_checks_changed(&mut self) -> bool {
        std::mem::take(&mut self.are_checks_changed)
    }

    /// A cluster was decided: other checks may be needed now. Checks themselves seldom change that; anything else may.
    fn look_at_needs(&mut self, index: usize, cause: Cause) {
        if cause != Cause::Probe {
            self.are_checks_changed = true;
            return;
        }
        let Some(cluster) = self.clusters.get(index) else { return };
        let needs = ClusterNeeds::of(cluster, &self.known.facts, self.known.now_ms);
        self.needs.resize_with(self.clusters.len(), ClusterNeeds::default);
        if let Some(known) = self.needs.get_mut(index)
            && *known != needs
        {
            *known = needs;
            self.are_checks_changed = true;
        }
    }

    /// Adds the servers without a row that a cluster's views name, and removes those that left.
    fn enrol(&mut self, reporter: &ServerAddr, told: CheckKind) {
        let mut is_changed = false;
        for index in self.clusters_of(reporter) {
            let changes = self.clusters[index].enrol(self.known.world(), reporter, told);
            is_changed |= !changes.is_empty();
            for change in changes {
                self.note_enrolment(index, &change);
            }
        }
        if is_changed {
            self.find_places();
        }
    }

    fn note_enrolment(&mut self, index: usize, change: &Enrolment) {
        let (addr, from, to, why) = match change {
            Enrolment::Found(addr) => (addr, "unknown", "found", "named by the cluster; serves after its own first probe"),
            Enrolment::Left(addr) => (addr, "found", "left", "missing from several samples of the cluster"),
        };
        let group = Arc::clone(&self.clusters[index].group);
        let (none, lags) = (Judgements::new(), Lags::new());
        let event_writer =
            EventWriter { group: Some(&group), judgements: &none, choice: None, lags: &lags, cause: Cause::Probe, at_ms: self.now_ms };
        self.remember(vec![event_writer.event(EventKind::Discovery, Some(addr), (from.to_owned(), to.to_owned()), why)]);
        // Its checks begin, and their results need a place.
        self.known.facts.entry(addr.clone()).or_default();
    }

    fn drain(&mut self, server: &ServerAddr, is_drained: bool) -> Result<(), String> {
        if !self.known.facts.contains_key(server) {
            return Err(format!("{server} is not in any hostgroup"));
        }
        let is_new = if is_drained { self.known.drained.insert(server.clone()) } else { self.known.drained.remove(server) };
        if !is_new && !is_drained {
            return Err(format!("{server} is not drained"));
        }
        let to = if is_drained { "draining" } else { "undrained" };
        self.tell(server, EventKind::Order, ("", to), "", Cause::Operator, "an operator's order");
        self.decide_about(server, Cause::Operator);
        Ok(())
    }

    fn prefer(&mut self, writer: HostgroupId, server: Option<&ServerAddr>) -> Result<(), String> {
        let index = self.cluster(writer)?;
        if let Some(addr) = server {
            let cluster = &mut self.clusters[index];
            if !cluster.members.contains_key(addr) {
                return Err(format!("{addr} is not a server of the cluster with writer hostgroup {writer}"));
            }
            cluster.pardon(addr);
        }
        self.set_preferred(index, server.cloned(), "an operator prefers this writer");
        self.decide(index, Cause::Operator, cluster::Order::Prefer);
        Ok(())
    }

    fn set_preferred(&mut self, index: usize, server: Option<ServerAddr>, why: &'static str) {
        let name = |addr: Option<&ServerAddr>| addr.map_or("none".to_owned(), ToString::to_string);
        let to = name(server.as_ref());
        let before = std::mem::replace(&mut self.clusters[index].preferred, server);
        self.tell_of_cluster(index, (EventKind::Order, Cause::Operator), (name(before.as_ref()), to), why);
    }

    fn failback(&mut self, writer: HostgroupId) -> Result<(), String> {
        let index = self.cluster(writer)?;
        let cluster = &mut self.clusters[index];
        let before = cluster.writers().clone();
        let rank = |addr: &ServerAddr| cluster.members.get(addr).map(|m| (m.is_explicit_writer, m.weight));
        let best = cluster.fenced().max_by_key(|addr| rank(addr)).cloned();
        // If only one server can be meant, it may come back even without being better.
        let is_only = cluster.fenced().count() == 1;
        let is_meant = |addr: &ServerAddr, writer| rank(addr) > rank(writer) || (is_only && rank(addr) == rank(writer));
        if let Some(addr) = best.filter(|addr| before.iter().all(|writer| is_meant(addr, writer))) {
            if !self.known.facts.get(&addr).is_some_and(replication::could_write) {
                return Err(format!("{addr}, the preferred server of hostgroup {writer}, cannot write now: nothing was changed"));
            }
            cluster.pardon(&addr);
        }
        // A server that an operator preferred until now is preferred no more.
        let preferred = self.clusters[index].preferred.take();
        self.decide(index, Cause::Operator, cluster::Order::Failback);
        if *self.clusters[index].writers() == before && preferred.as_ref().is_none_or(|addr| before.contains(addr)) {
            self.clusters[index].preferred = preferred;
            return Err(format!("no better server can write in hostgroup {writer}: nothing was changed"));
        }
        let change = (String::new(), "failback".to_owned());
        self.tell_of_cluster(index, (EventKind::Order, Cause::Operator), change, "an operator let the heaviest server write again");
        Ok(())
    }

    fn accept(&mut self, writer: HostgroupId, from: Option<&ServerAddr>) -> Result<(), String> {
        let index = self.cluster(writer)?;
        let before = self.clusters[index].accept(from)?;
        let name = |identity: Option<&Identity>| identity.map(ToString::to_string).unwrap_or_default();
        let change = (name(before.as_ref()), name(self.clusters[index].identity()));
        let why = "an operator says that this is the cluster from now on";
        self.tell_of_cluster(index, (EventKind::Order, Cause::Operator), change, why);
        self.decide(index, Cause::Operator, cluster::Order::Other);
        Ok(())
    }

    fn cluster(&self, writer: HostgroupId) -> Result<usize, String> {
        let found = self.clusters.iter().position(|cluster| cluster.group.writer == writer);
        found.ok_or_else(|| format!("hostgroup {writer} is not a cluster's writer hostgroup"))
    }

    fn decide_about(&mut self, server: &ServerAddr, cause: Cause) {
        self.decide_clusters_of(server, cause);
        self.decide_plain_of(server, cause);
    }

    fn decide_clusters_of(&mut self, server: &ServerAddr, cause: Cause) {
        for index in self.clusters_of(server) {
            let order = if cause == Cause::Operator { cluster::Order::Other } else { cluster::Order::None };
            self.decide(index, cause, order);
        }
    }

    fn decide_plain_of(&mut self, server: &ServerAddr, cause: Cause) {
        let plain: BTreeSet<HostgroupId> = self.plain_rows(server).iter().map(|row| row.key.hostgroup).collect();
        plain.into_iter().for_each(|id| self.decide_plain(id, cause));
    }

    /// Its rows in hostgroups of no cluster.
    fn plain_rows(&self, server: &ServerAddr) -> &[Arc<Server>] {
        self.places.get(server).map(|places| places.plain.as_slice()).unwrap_or_default()
    }

    fn plain_seats(&self, server: &ServerAddr) -> Vec<Seat> {
        self.plain_rows(server).iter().map(|row| self.plain_seat(row)).collect()
    }

    fn decide_all(&mut self, cause: Cause) {
        let used: BTreeSet<HostgroupId> =
            self.clusters.iter().flat_map(|cluster| cluster.group.hostgroups()).chain(self.plain.iter().copied()).collect();
        let gone: Vec<HostgroupId> = self.layout.hostgroups.keys().copied().filter(|id| !used.contains(id)).collect();
        for id in gone {
            self.layout.hostgroups.remove(&id);
            self.layout.revision += 1;
        }
        if cause == Cause::Configuration {
            self.left.retain(|split| self.splits.contains(split));
        }
        (0..self.clusters.len()).for_each(|index| self.decide(index, cause, cluster::Order::None));
        self.plain.clone().into_iter().for_each(|id| self.decide_plain(id, cause));
        self.tell_of_readers(cause);
    }

    /// A read/write split has no reader any more, or has one again.
    fn tell_of_readers(&mut self, by: Cause) {
        let takes_work = |id: HostgroupId| {
            let all = self.layout.hostgroups.get(&id).map(Vec::as_slice).unwrap_or_default();
            all.iter().any(|placed| placed.status == ServerStatus::Online && placed.server.weight > 0)
        };
        let left: BTreeSet<ReadWriteSplit> = self.splits.iter().copied().filter(|split| !takes_work(split.reader)).collect();
        if left == self.left {
            return;
        }
        let before = std::mem::replace(&mut self.left, left);
        let events = self.left.symmetric_difference(&before).map(|split| {
            let ReadWriteSplit { writer, reader } = split;
            let (to, why) = if self.left.contains(split) {
                let why = format!(
                    "no server of hostgroup {reader} takes reads: read/write split sends them to hostgroup {writer} \
                     (mysql-reads_to_writer_after_ms)"
                );
                (*writer, why)
            } else {
                (*reader, format!("hostgroup {reader} takes the reads of the read/write split again"))
            };
            let from = if to == *writer { reader } else { writer };
            let (from, to) = (format!("reads: {from}"), format!("reads: {to}"));
            Event {
                at_ms: self.now_ms,
                cluster: Some(*writer),
                server: None,
                kind: EventKind::Reads,
                from,
                to,
                seen: String::new(),
                by: by.as_str(),
                why,
            }
        });
        let events = events.collect();
        self.remember(events);
    }

    fn decide(&mut self, index: usize, cause: Cause, order: cluster::Order) {
        let cluster = &mut self.clusters[index];
        let before = std::mem::take(&mut cluster.judgements);
        let part = cluster.decide(self.known.world(), order);
        let group = Arc::clone(&cluster.group);
        let (judgements, lags) = (std::mem::take(&mut cluster.judgements), std::mem::take(&mut cluster.lags));
        let choice = cluster.choice.take();
        let at_ms = self.now_ms;
        let event_writer = EventWriter { group: Some(&group), judgements: &judgements, choice: choice.as_ref(), lags: &lags, cause, at_ms };
        let told = self.events.len();
        self.publish(part, event_writer);
        // A server that changes from dead to unwanted keeps its place in the layout. The operator is told anyway.
        let is_told = |addr: &ServerAddr| self.events.iter().skip(told).any(|event| event.server.as_ref() == Some(addr));
        let returned = event_writer.returned(&before).filter(|event| !event.server.as_ref().is_some_and(is_told)).collect();
        self.remember(returned);
        self.clusters[index].judgements = judgements;
        self.tell_of_strangers(index, cause);
        self.look_at_needs(index, cause);
    }

    /// Servers turned out to belong to another cluster, or belong to this one again.
    fn tell_of_strangers(&mut self, index: usize, by: Cause) {
        let turns = self.clusters[index].turns();
        let cluster = &self.clusters[index];
        let own = cluster.identity().map(ToString::to_string).unwrap_or_default();
        let writer = cluster.group.writer;
        let event = |turn: Turn| {
            let (server, from, to, seen, why) = match turn {
                Turn::Strange(addr, other) => {
                    let why = "the server belongs to another cluster: it serves nothing, and the proxy ignores what it reports";
                    (Some(addr), "member", "stranger", format!("identity={other} cluster={own}"), why)
                }
                Turn::Own(addr) => (Some(addr), "stranger", "member", format!("cluster={own}"), "it belongs to this cluster"),
                Turn::Known(servers) => {
                    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
                    (
                        None,
                        "unknown",
                        "known",
                        format!("cluster={own} servers={}", servers.join(",")),
                        "more than half of its servers say so",
                    )
                }
                Turn::Usurped(others) => {
                    let others: Vec<&str> = others.iter().map(Identity::as_str).collect();
                    let why = "only servers of another cluster answer: none serves until a server of this cluster answers or ACCEPT \
                               CLUSTER is run";
                    (None, "member", "stranger", format!("identity={} cluster={own}", others.join(",")), why)
                }
            };
            let (from, to, why) = (from.to_owned(), to.to_owned(), why.to_owned());
            Event { at_ms: self.now_ms, cluster: Some(writer), server, kind: EventKind::Identity, from, to, seen, by: by.as_str(), why }
        };
        let events = turns.into_iter().map(event).collect();
        self.remember(events);
    }

    /// A hostgroup in no cluster: as configured, but for health.
    fn decide_plain(&mut self, id: HostgroupId, cause: Cause) {
        self.are_checks_changed |= cause != Cause::Probe;
        let rows = self.known.snapshot.hostgroup(id).map_or(&[][..], |h| h.servers.as_slice());
        let seats: Vec<Seat> = rows.iter().map(|row| self.plain_seat(row)).collect();
        let (none, lags) = (Judgements::new(), lags(seats.iter()));
        let placements: Vec<Placement> = place(seats, self.known.world().policy(id));
        let at_ms = self.now_ms;
        let event_writer = EventWriter { group: None, judgements: &none, choice: None, lags: &lags, cause, at_ms };
        self.publish(Part::from([(id, placements)]), event_writer);
    }

    fn plain_seat(&self, row: &Arc<Server>) -> Seat {
        let mut seat = Seat::new(row);
        let addr = row.key.addr();
        seat.is_drained = self.known.drained.contains(&addr);
        let Some(facts) = self.known.facts.get(&addr).filter(|_| self.is_watching()) else { return seat };
        let vital = vital(facts, &self.known.snapshot.vars);
        if vital == Vital::Dead {
            seat.shun(UnderWay::Severed, missed_pings(facts));
        }
        seat.slow = (vital == Vital::Slow).then_some(UnderWay::Severed);
        seat.is_warming = facts.warming_since_ms.is_some();
        seat.behind =
            excessive_lag(facts, row, Sources::default(), self.known.world().policy(row.key.hostgroup), &self.known.snapshot.vars);
        seat
    }

    /// Puts hostgroups into the layout if they changed.
    fn publish(&mut self, part: Part, event_writer: EventWriter<'_>) {
        let old: Part = part.keys().map(|id| (*id, self.layout.hostgroups.get(id).cloned().unwrap_or_default())).collect();
        let is_new = part.keys().any(|id| !self.layout.hostgroups.contains_key(id));
        if old == part && !is_new {
            return;
        }
        let mut events = event_writer.tell(&old, &part);
        for event in events.iter_mut().filter(|event| event.from == ServerStatus::ShunnedReplicationLag.as_str()) {
            if let Some(lag) = self.lag_now(event, &part) {
                event.seen = format!("{lag} {}", event.seen).trim_end().to_owned();
            }
        }
        for event in &mut events {
            if let Some(pings) = self.pings_now(event) {
                event.seen = format!("{} {pings}", event.seen).trim_start().to_owned();
            }
        }
        for addr in events.iter().filter_map(|event| event.server.as_ref()) {
            if let Some(facts) = self.known.facts.get_mut(addr) {
                facts.reports.clear();
            }
        }
        self.remember(events);
        self.distances_due.extend(part.values().flatten().map(|placement| placement.server.key.addr()));
        self.layout.hostgroups.extend(part);
        self.layout.revision += 1;
        // Of a configuration it is told once, when all of it is in force.
        if event_writer.cause != Cause::Configuration {
            self.tell_of_readers(event_writer.cause);
        }
    }

    /// The last ping error of an event's server, if its pings fail.
    fn pings_now(&self, event: &Event) -> Option<String> {
        let facts = self.known.facts.get(event.server.as_ref()?)?;
        let words = describe(Troubles::from(&facts.ping));
        (!words.is_empty()).then(|| format!("pings: {words}"))
    }

    /// How far behind the server of an event is now.
    fn lag_now(&self, event: &Event, part: &Part) -> Option<String> {
        let addr = event.server.as_ref()?;
        let rows = part.values().flatten().map(|placement| &placement.server).filter(|server| server.key.addr() == *addr);
        present_lag(self.known.facts.get(addr)?, rows.map(|server| server.max_replication_lag).max()?)
    }

    /// Reports the transactions that a new writer lacks, and its fork, after its first GTID check.
    fn tell_of_lack(&mut self, heir: &ServerAddr, has: Option<&GtidSet>) {
        let now_ms = self.known.now_ms;
        let view = self.known.facts.get(heir).and_then(|facts| facts.sources.last.as_ref());
        let id = view.map(|view| view.id.clone()).unwrap_or_default();
        let found: Vec<_> = self.clusters.iter_mut().map(|cluster| cluster.succeeds(heir, &id, has, now_ms)).collect();
        for fork in found.iter().filter_map(|found| found.fork.as_ref()).filter(|fork| !fork.is_noted) {
            let why = "noted what the new writer had when it took over; other transactions of the old writer are not on it";
            self.tell(heir, EventKind::Writer, ("", "fork"), &in_short(&fork.had), Cause::Probe, why);
        }
        for lack in found.into_iter().filter_map(|found| found.lacks) {
            let why = "took over but lacks transactions of the previous writer: they exist only there and are lost unless you copy them";
            self.tell(heir, EventKind::Suspicion, ("", "lacks transactions"), &lack, Cause::Probe, why);
        }
    }

    fn tell(&mut self, server: &ServerAddr, kind: EventKind, (from, to): (&str, &str), seen: &str, by: Cause, why: &str) {
        let cluster = self.clusters_of(server).first().and_then(|index| self.clusters.get(*index)).map(|cluster| cluster.group.writer);
        let (from, to, seen, why) = (from.to_owned(), to.to_owned(), seen.to_owned(), why.to_owned());
        let server = Some(server.clone());
        self.remember(vec![Event { at_ms: self.now_ms, cluster, server, kind, from, to, seen, by: by.as_str(), why }]);
    }

    fn tell_of_cluster(&mut self, index: usize, (kind, cause): (EventKind, Cause), change: (String, String), why: &str) {
        let group = Arc::clone(&self.clusters[index].group);
        let (none, lags) = (Judgements::new(), Lags::new());
        let event_writer = EventWriter { group: Some(&group), judgements: &none, choice: None, lags: &lags, cause, at_ms: self.now_ms };
        self.remember(vec![event_writer.event(kind, None, change, why)]);
    }

    /// The monitor was switched off or on.
    fn tell_of_watch(&mut self, index: usize) {
        let ((from, to), why) = if !self.is_watching() {
            (("watched", "frozen"), "mysql-monitor_enabled is false: roles stay as they are even if servers fail")
        } else {
            (("frozen", "watched"), "mysql-monitor_enabled is true: roles follow the checks of the servers again")
        };
        self.tell_of_cluster(index, (EventKind::Status, Cause::Configuration), (from.to_owned(), to.to_owned()), why);
    }

    fn remember(&mut self, events: Vec<Event>) {
        self.events.extend(events);
        let excess = self.events.len().saturating_sub(MAX_EVENTS);
        self.events.drain(..excess);
    }
}

/// A server's GTIDs for an event; long sets are shortened.
fn in_short(had: &GtidSet) -> String {
    const CHARS_MAX: usize = 400;
    let text = format!("had={had}");
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// The read/write splits whose reads go to the writer while no reader takes work.
fn splits(snapshot: &Snapshot) -> BTreeSet<ReadWriteSplit> {
    let of_users = snapshot.users.values().filter_map(|user| match user.attributes.read_write_split {
        UserSplit::On(split) => Some(split),
        UserSplit::Unset | UserSplit::Off => None,
    });
    let of_hostgroups =
        snapshot.hostgroups.values().filter_map(|h| Some(ReadWriteSplit { writer: h.id, reader: h.attributes.split_reader? }));
    of_users.chain(of_hostgroups).filter(|split| snapshot.effective_in(split.reader).reads_to_writer_after_ms > 0).collect()
}

/// The key by which clusters of two configurations count as the same.
fn key(cluster: &Cluster) -> (HostgroupId, &'static str) {
    group_key(&cluster.group)
}

fn group_key(group: &Arc<RoleGroup>) -> (HostgroupId, &'static str) {
    (group.writer, group.kind.as_str())
}
