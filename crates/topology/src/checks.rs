//! Which checks are due, and how often. A cluster is checked more often while it has no writer or a change has to be confirmed.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::ServerAddr;
use model::settings::MysqlVariables;
use model::snapshot::{RoleKind, Server, Snapshot};

use crate::check::{Check, CheckKind};
use crate::cluster::{Cluster, SourcesWanted};
use crate::facts::Facts;
use crate::member::{Member, is_checked};
use crate::{rds, replication};

/// After this time without a writer a cluster is probed less often: it may be meant to have none, ms.
pub(crate) const HASTE_MS: u64 = 60_000;
/// Factor on `monitor_fast_interval` for such a cluster.
const CALMER: u64 = 10;
/// Time between looks at a buffer pool that is being loaded, ms.
const BUFFER_POOL_INTERVAL_MS: u64 = 1_000;

/// How often a cluster is probed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    /// As the settings say.
    #[default]
    Calm,
    /// There has been no writer for longer than [`HASTE_MS`].
    Watchful,
    /// A change has to be confirmed, traffic reported an error, or the writer was lost less than [`HASTE_MS`] ago.
    Urgent,
}

/// The state that the checks of a cluster depend on, besides the configuration. If it changes, the monitor takes over new checks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClusterNeeds {
    urgency: Urgency,
    /// Of each member, how urgently its source is asked, and whether its GTIDs are awaited.
    members: Vec<(SourcesWanted, bool)>,
}

impl ClusterNeeds {
    pub(crate) fn of(cluster: &Cluster, facts: &BTreeMap<ServerAddr, Facts>, now_ms: u64) -> Self {
        let members = cluster.members.keys().map(|addr| (cluster.asks_sources(addr, facts), cluster.awaits(addr))).collect();
        Self { urgency: urgency(cluster, facts, now_ms), members }
    }
}

/// Every check, in a stable order.
pub(crate) fn checks(snapshot: &Snapshot, clusters: &[Cluster], facts: &BTreeMap<ServerAddr, Facts>, now_ms: u64) -> Vec<Check> {
    let vars = &snapshot.vars;
    let mut all: BTreeMap<(ServerAddr, CheckKind), Check> = BTreeMap::new();
    let (peers, foreign) = (peers(clusters), foreign(snapshot, clusters));
    let mut add = |server: &Arc<Server>, kind: CheckKind, (interval_ms, timeout_ms): (u64, u64)| {
        let addr = server.key.addr();
        let reads_channels = matches!(kind, CheckKind::Lag | CheckKind::Sources);
        let peers = peers.get(&addr).filter(|_| reads_channels).cloned().unwrap_or_default();
        let foreign = foreign.get(&addr).filter(|_| reads_channels).cloned().unwrap_or_default();
        let check = Check { addr: addr.clone(), server: Arc::clone(server), kind, interval_ms, timeout_ms, peers, foreign };
        let known = all.entry((addr, kind)).or_insert_with(|| check.clone());
        known.interval_ms = known.interval_ms.min(check.interval_ms);
    };
    let written = snapshot.hostgroups.values().flat_map(|h| &h.servers);
    for server in written.chain(found_replicas(clusters)).filter(|server| is_checked(server)) {
        add(server, CheckKind::Connect, (vars.monitor_connect_interval, vars.monitor_connect_timeout));
        add(server, CheckKind::Ping, (vars.monitor_ping_interval, vars.monitor_ping_timeout));
        if server.max_replication_lag > 0 {
            add(server, CheckKind::Lag, (vars.monitor_replication_lag_interval, vars.monitor_replication_lag_timeout));
        }
        if waits_for_buffer_pool(snapshot, server, facts) {
            add(server, CheckKind::BufferPool, (BUFFER_POOL_INTERVAL_MS, vars.monitor_ping_timeout));
        }
    }
    for cluster in clusters {
        let urgency = urgency(cluster, facts, now_ms);
        let (kind, (interval_ms, timeout_ms)) = role_check(&cluster.group.kind, vars);
        for server in cluster.members.values().filter_map(|member| member.any_row()).filter(|server| is_checked(server)) {
            // Operators want to see it, whether or not a row limits it.
            if has_successors(cluster) {
                add(server, CheckKind::Lag, (vars.monitor_replication_lag_interval, vars.monitor_replication_lag_timeout));
            }
            add(server, kind, (hasten(interval_ms, urgency, vars), timeout_ms));
            if counts_transactions(snapshot, cluster) || has_successors(cluster) {
                let urgency = if cluster.awaits(&server.key.addr()) { Urgency::Urgent } else { Urgency::Calm };
                let interval_ms = hasten(vars.monitor_replication_lag_interval, urgency, vars);
                add(server, CheckKind::Gtids, (interval_ms, vars.monitor_replication_lag_timeout));
            }
            add(server, CheckKind::Ping, (hasten(vars.monitor_ping_interval, urgency, vars), vars.monitor_ping_timeout));
            let interval_ms = match cluster.asks_sources(&server.key.addr(), facts) {
                SourcesWanted::No => None,
                SourcesWanted::Sometimes => Some(vars.monitor_replication_lag_interval.max(vars.monitor_read_only_interval)),
                SourcesWanted::Soon => Some(vars.monitor_read_only_interval),
                SourcesWanted::ForRoles => Some(hasten(vars.monitor_read_only_interval, urgency, vars)),
            };
            if let Some(interval_ms) = interval_ms {
                add(server, CheckKind::Sources, (interval_ms, vars.monitor_read_only_timeout));
            }
            if let (RoleKind::Replication(_), Some(interval_ms), true) =
                (&cluster.group.kind, rds::interval_ms(vars), rds::is_rds(&server.key.host))
            {
                // It logs in each time.
                add(server, CheckKind::RdsTopology, (interval_ms, vars.monitor_connect_timeout + vars.monitor_read_only_timeout));
            }
        }
    }
    let mut checks: Vec<Check> = all.into_values().collect();
    prefer_tls(&mut checks);
    checks
}

/// Of each server in a replication cluster, all members of that cluster. Lag and source checks compare names with them.
fn peers(clusters: &[Cluster]) -> BTreeMap<ServerAddr, Arc<[ServerAddr]>> {
    let mut peers = BTreeMap::new();
    for cluster in clusters.iter().filter(|cluster| matches!(cluster.group.kind, RoleKind::Replication(_))) {
        let members: Arc<[ServerAddr]> = cluster.members.keys().cloned().collect();
        peers.extend(members.iter().map(|addr| (addr.clone(), Arc::clone(&members))));
    }
    peers
}

/// Of each server, the listed channels of its clusters, active or not. Another cluster may use the same names within.
fn foreign(snapshot: &Snapshot, clusters: &[Cluster]) -> BTreeMap<ServerAddr, Arc<[Arc<str>]>> {
    let mut foreign: BTreeMap<ServerAddr, Vec<Arc<str>>> = BTreeMap::new();
    for channel in &snapshot.channels {
        for cluster in clusters.iter().filter(|cluster| cluster.group.writer == channel.writer) {
            for addr in cluster.members.keys() {
                foreign.entry(addr.clone()).or_default().push(Arc::clone(&channel.name));
            }
        }
    }
    foreign.into_iter().map(|(addr, names)| (addr, names.into())).collect()
}

/// Rows of servers that were found in replication clusters. Only a lag check tells how far they are behind; other kinds say it themselves.
fn found_replicas(clusters: &[Cluster]) -> impl Iterator<Item = &Arc<Server>> {
    let replication = clusters.iter().filter(|cluster| matches!(cluster.group.kind, RoleKind::Replication(_)));
    replication.flat_map(|cluster| cluster.members.values()).filter(|member| member.configured.is_empty()).flat_map(Member::rows)
}

/// A server that any row reaches with TLS is always checked with it.
fn prefer_tls(checks: &mut [Check]) {
    let with_tls = checks.iter().filter(|check| check.server.use_ssl);
    let rows: BTreeMap<ServerAddr, Arc<Server>> = with_tls.map(|check| (check.addr.clone(), Arc::clone(&check.server))).collect();
    for check in checks {
        if let Some(row) = rows.get(&check.addr) {
            check.server = Arc::clone(row);
        }
    }
}

fn waits_for_buffer_pool(snapshot: &Snapshot, server: &Server, facts: &BTreeMap<ServerAddr, Facts>) -> bool {
    let is_warming = facts.get(&server.key.addr()).is_some_and(|facts| facts.warming_since_ms.is_some());
    is_warming && snapshot.effective_in(server.key.hostgroup).wait_for_buffer_pool_load
}

/// Whether a server of the cluster can take over from another one. Their GTIDs are then sampled, to tell what a new writer lacks.
fn has_successors(cluster: &Cluster) -> bool {
    replication::tells_strays(&cluster.group.kind) && cluster.members.len() > 1
}

/// Whether transactions behind the writer are counted: the reader hostgroup has a limit (`max_transactions_behind`).
pub(crate) fn counts_transactions(snapshot: &Snapshot, cluster: &Cluster) -> bool {
    let is_limited = |id| snapshot.effective_in(id).max_transactions_behind > 0;
    matches!(cluster.group.kind, RoleKind::Replication(_)) && is_limited(cluster.group.reader)
}

/// The check that tells roles, its interval and its timeout.
fn role_check(kind: &RoleKind, vars: &MysqlVariables) -> (CheckKind, (u64, u64)) {
    match kind {
        RoleKind::Replication(check) => (CheckKind::ReadOnly(*check), (vars.monitor_read_only_interval, vars.monitor_read_only_timeout)),
        RoleKind::Galera => (CheckKind::Galera, (vars.monitor_galera_healthcheck_interval, vars.monitor_galera_healthcheck_timeout)),
        RoleKind::GroupReplication => {
            let timeout_ms = vars.monitor_groupreplication_healthcheck_timeout;
            (CheckKind::Group, (vars.monitor_groupreplication_healthcheck_interval, timeout_ms))
        }
        RoleKind::Aurora(aurora) => (CheckKind::Aurora, (aurora.check_interval_ms.into(), aurora.check_timeout_ms.into())),
    }
}

fn urgency(cluster: &Cluster, facts: &BTreeMap<ServerAddr, Facts>, now_ms: u64) -> Urgency {
    let is_suspected = |addr: &ServerAddr| facts.get(addr).is_some_and(|facts| facts.suspected_until_ms > now_ms);
    let is_confirming = cluster.judgements.values().any(|judgement| judgement.is_confirming);
    match cluster.writerless_since_ms() {
        _ if is_confirming || cluster.members.keys().any(is_suspected) => Urgency::Urgent,
        None => Urgency::Calm,
        Some(since_ms) if now_ms < since_ms + HASTE_MS => Urgency::Urgent,
        Some(_) => Urgency::Watchful,
    }
}

fn hasten(interval_ms: u64, urgency: Urgency, vars: &MysqlVariables) -> u64 {
    match urgency {
        Urgency::Calm => interval_ms,
        Urgency::Watchful => interval_ms.min(vars.monitor_fast_interval * CALMER),
        Urgency::Urgent => interval_ms.min(vars.monitor_fast_interval),
    }
}
