//! The promotion of a replica where the writer is dead (mode `full`), from round to round: whether it begins, what became of it, and the
//! rights that it needs.
//!
//! INVARIANT: at most one promotion of a cluster is under way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::snapshot::{Healing, HealingMode, ReadOnlyCheck, Server};
use model::{HostgroupId, ServerAddr};
use tokio::task::JoinHandle;
use topology::healing::{Brakes, Choice, Death, Due, Facts, Verdict, due};

use crate::clock::whole;
use crate::monitor::{Monitor, lock};
use crate::operator::{Promote, Promotion, lacks_right, promote, thaw};

/// Rights are asked for again after so long.
const RIGHTS: Duration = Duration::from_secs(60);
/// And after so long where a server did not say.
const RIGHTS_UNKNOWN: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub(super) struct Promoting {
    /// Since when this proxy looks at the cluster.
    looks: Instant,
    /// Plans for the present death that failed, and when the last one did.
    failures: u32,
    failed: Option<(Instant, String)>,
    work: Option<JoinHandle<Promotion>>,
    asking: Option<JoinHandle<BTreeMap<ServerAddr, Right>>>,
    /// When rights are asked for again; at once for None.
    ask_at: Option<Instant>,
    thawing: Option<JoinHandle<()>>,
    /// Rights that are missing, by server.
    rights: BTreeMap<ServerAddr, String>,
    last: String,
}

/// The right that a server lacks, None if it has them all; or why that is not known.
type Right = Result<Option<String>, String>;

/// What is shown of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Healed {
    /// Why nothing is begun though the writer is dead, or would not be if it died.
    pub(super) blocked: Option<String>,
    /// When that may end, ms.
    pub(super) next_ms: Option<u64>,
    /// A plan is under way.
    pub(super) is_under_way: bool,
    /// What became of the last plan.
    pub(super) last: String,
}

/// The cluster, as far as a promotion needs it.
pub(super) struct Field<'a> {
    pub(super) policy: &'a Healing,
    pub(super) servers: &'a [Arc<Server>],
    pub(super) check: Option<ReadOnlyCheck>,
}

impl Promoting {
    /// Nothing was tried.
    pub(super) fn new() -> Self {
        let (looks, rights, last) = (Instant::now(), BTreeMap::new(), String::new());
        Self { looks, failures: 0, failed: None, work: None, asking: None, ask_at: None, thawing: None, rights, last }
    }

    /// The right that is missing on a server.
    pub(super) fn lacks(&self, server: &ServerAddr) -> Option<String> {
        self.rights.get(server).cloned()
    }

    /// Begins a plan where that is due. None in other modes.
    pub(super) async fn round(
        &mut self,
        monitor: &Arc<Monitor>,
        field: &Field<'_>,
        (facts, choice): (&Facts, &Choice),
        verdict: Verdict,
    ) -> Option<Healed> {
        let writer = field.policy.writer;
        self.take_outcome(writer).await;
        // In every mode: a mode that was changed leaves no receiver stopped.
        if self.work.is_none() {
            self.thaw(monitor, field, facts);
        }
        if field.policy.mode != HealingMode::Full {
            self.rights.clear();
            self.ask_at = None;
            return None;
        }
        self.ask_for_rights(monitor, field, facts).await;
        if monitor.healing.take_acknowledged(writer) || verdict == Verdict::Alive {
            (self.failures, self.failed) = (0, None);
        }
        if self.work.is_some() {
            return Some(Healed { is_under_way: true, last: self.last.clone(), ..Healed::default() });
        }
        // The plan runs when this round has ended, so that it finds this verdict on the board.
        let now = due(verdict, choice, &self.death(), &self.brakes(monitor, field));
        let is_under_way = now == Due::Now && self.begin(monitor, field, facts);
        let (blocked, next_ms) = match now {
            Due::Blocked(why, ms) => (Some(why), ms),
            Due::Rest | Due::Now => (None, None),
        };
        Some(Healed { blocked, next_ms, is_under_way, last: self.last.clone() })
    }

    fn death(&self) -> Death {
        let failed_ms = self.failed.as_ref().map(|(when, _)| whole(when.elapsed().as_millis()));
        let why = self.failed.as_ref().map(|(_, why)| why.clone()).unwrap_or_default();
        Death { failures: self.failures, failed_ms, why }
    }

    fn brakes(&self, monitor: &Monitor, field: &Field<'_>) -> Brakes {
        let writer = field.policy.writer;
        let promoted = monitor.healing.orders.promoted(writer);
        let busy = match () {
            () if !monitor.keeps_files() => Some("another process of this proxy is in charge".to_owned()),
            () if field.check.is_none() => Some("the hostgroup is no cluster of mysql_replication_hostgroups".to_owned()),
            () if self.thawing.as_ref().is_some_and(|thawing| !thawing.is_finished()) => {
                Some("receivers that an earlier plan stopped are started first".to_owned())
            }
            () => lock(&monitor.claims).is_taken(writer).then(|| "other work on the cluster is under way".to_owned()),
        };
        Brakes {
            looked_ms: whole(self.looks.elapsed().as_millis()),
            suspended: monitor.healing.orders.suspended(writer),
            promoted_ms: promoted.as_ref().map(|(_, ms)| *ms),
            is_acknowledged: promoted.is_some_and(|(promoted, _)| promoted.is_acknowledged),
            block_ms: field.policy.block_ms,
            dead_clusters: monitor.healing.others_lost(writer).saturating_add(1),
            max_clusters: monitor.snapshot().healing_max_clusters,
            busy,
        }
    }

    /// What became of the plan.
    async fn take_outcome(&mut self, writer: HostgroupId) {
        let Some(work) = self.work.take_if(|work| work.is_finished()) else { return };
        let promotion = work.await.unwrap_or_else(|e| Promotion::Failed(format!("the work has ended: {e}")));
        match promotion {
            Promotion::Done(told) => (self.failures, self.failed, self.last) = (0, None, told),
            Promotion::Failed(why) => {
                tracing::warn!("healing of hostgroup {writer}: {why}");
                self.failures += 1;
                self.last.clone_from(&why);
                self.failed = Some((Instant::now(), why));
            }
        }
    }

    fn begin(&mut self, monitor: &Arc<Monitor>, field: &Field<'_>, facts: &Facts) -> bool {
        let known = |addr: &ServerAddr| field.servers.iter().find(|server| server.key.addr() == *addr).cloned();
        let Some(primary) = &facts.primary else { return false };
        let (Some(old), Some(check)) = (known(&primary.addr), field.check) else { return false };
        let answering = facts.replicas.iter().filter(|replica| replica.silence.is_none());
        let plan = Promote {
            hostgroup: field.policy.writer,
            old,
            servers: answering.filter_map(|replica| known(&replica.addr)).collect(),
            check,
            channels: channels(facts),
            apply_ms: field.policy.apply_ms,
        };
        let (monitor, orders) = (Arc::clone(monitor), Arc::clone(&monitor.orders));
        self.work = Some(tokio::spawn(async move {
            let _under_way = orders.read().await;
            promote(&monitor, plan).await
        }));
        true
    }

    /// Starts receivers that an earlier plan left stopped, one attempt at a time, where their servers answer and do not write.
    fn thaw(&mut self, monitor: &Arc<Monitor>, field: &Field<'_>, facts: &Facts) {
        let writer = field.policy.writer;
        if self.thawing.as_ref().is_some_and(|thawing| !thawing.is_finished()) || !monitor.keeps_files() {
            return;
        }
        let frozen = monitor.healing.orders.frozen(writer);
        let answers = |addr: &ServerAddr| facts.replicas.iter().any(|one| one.addr == *addr && one.silence.is_none() && !one.is_open);
        let known = |addr: &ServerAddr| field.servers.iter().find(|server| server.key.addr() == *addr).cloned();
        let is_gone = |addr: &ServerAddr| {
            known(addr).is_none() || facts.primary.as_ref().is_some_and(|primary| primary.addr == *addr && facts.is_alive)
        };
        let due: Vec<_> =
            frozen.iter().filter(|(addr, _)| answers(addr)).filter_map(|(addr, name)| Some((known(addr)?, name.clone()))).collect();
        let mut left: Vec<_> = frozen.iter().filter(|(addr, _)| !is_gone(addr)).cloned().collect();
        if frozen.is_empty() || (due.is_empty() && left == frozen) {
            return;
        }
        let monitor = Arc::clone(monitor);
        self.thawing = Some(tokio::spawn(async move {
            for (server, name) in due {
                match thaw(&monitor, &server, &name).await {
                    Ok(()) => left.retain(|(addr, channel)| *addr != server.key.addr() || *channel != name),
                    Err(why) => tracing::warn!("{}: its receiver is stopped and cannot be started: {why}", server.key.addr()),
                }
            }
            let written = tokio::task::spawn_blocking(move || monitor.healing.orders.freeze(writer, left)).await;
            if let Ok(Err(why)) = written {
                tracing::warn!("{why}");
            }
        }));
    }

    /// So that a missing right is known before it is needed.
    async fn ask_for_rights(&mut self, monitor: &Arc<Monitor>, field: &Field<'_>, facts: &Facts) {
        if let Some(asking) = self.asking.take_if(|asking| asking.is_finished()) {
            let said = asking.await.unwrap_or_default();
            let again = if said.values().any(Result::is_err) { RIGHTS_UNKNOWN } else { RIGHTS };
            self.ask_at = Some(Instant::now() + again);
            self.rights = missing(&self.rights, said);
        }
        if self.asking.is_some() || self.ask_at.is_some_and(|at| Instant::now() < at) {
            return;
        }
        let is_asked = |server: &&Arc<Server>| facts.replicas.iter().any(|one| one.addr == server.key.addr() && one.silence.is_none());
        let servers: Vec<Arc<Server>> = field.servers.iter().filter(is_asked).cloned().collect();
        let monitor = Arc::clone(monitor);
        self.asking = Some(tokio::spawn(async move {
            let mut said = BTreeMap::new();
            for server in servers {
                said.insert(server.key.addr(), lacks_right(&monitor, &server).await);
            }
            said
        }));
    }
}

/// The channels by which servers replicate from the dead writer.
fn channels(facts: &Facts) -> Vec<(ServerAddr, String)> {
    let channels = facts.replicas.iter().filter_map(|one| Some((one.addr.clone(), one.channel.as_ref()?)));
    channels.filter(|(_, channel)| channel.is_from_primary).map(|(addr, channel)| (addr, channel.name.clone())).collect()
}

/// The rights that are missing. Of a server that did not say, what was known of it before.
fn missing(before: &BTreeMap<ServerAddr, String>, said: BTreeMap<ServerAddr, Right>) -> BTreeMap<ServerAddr, String> {
    let right = |(addr, said): (ServerAddr, Right)| {
        let lacks = said.unwrap_or_else(|_| before.get(&addr).cloned())?;
        Some((addr, lacks))
    };
    said.into_iter().filter_map(right).collect()
}

/// What a look after a change found.
#[derive(Debug, Clone)]
pub(crate) struct Looked {
    pub(crate) verdict: Verdict,
    pub(crate) facts: Facts,
    pub(crate) choice: Choice,
}

/// What a look finds that begins after this call. None if there is none within `limit`.
pub(crate) async fn look_again(monitor: &Arc<Monitor>, writer: HostgroupId, limit: Duration) -> Option<Looked> {
    let (monitor, until) = (Arc::clone(monitor), Instant::now() + limit);
    let seen = tokio::task::spawn_blocking(move || monitor.healing.seen_anew(writer, until)).await.ok().flatten()?;
    Some(Looked { verdict: seen.verdict, facts: seen.facts, choice: seen.choice })
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::healing::{Channel, LinkThread, Replica};

    fn addr(host: &str) -> ServerAddr {
        ServerAddr { host: host.into(), port: 3306 }
    }

    #[test]
    fn only_a_server_that_says_so_lacks_a_right() {
        let before = BTreeMap::from([(addr("b"), "old".to_owned()), (addr("c"), "old".to_owned())]);
        let said = BTreeMap::from([
            (addr("a"), Ok(Some("new".to_owned()))),
            (addr("b"), Ok(None)),
            (addr("c"), Err("timeout".to_owned())),
            (addr("d"), Err("too many connections".to_owned())),
        ]);
        let wanted = BTreeMap::from([(addr("a"), "new".to_owned()), (addr("c"), "old".to_owned())]);
        assert_eq!(missing(&before, said), wanted);
    }

    #[test]
    fn a_replica_of_a_replica_is_left_alone() {
        let replica = |host: &str, is_from_primary| {
            let (receiver, applier) = (LinkThread::default(), LinkThread::default());
            let channel = Channel {
                name: "x".to_owned(),
                source: addr("a"),
                is_from_primary,
                is_by_gtid: true,
                position: String::new(),
                receiver,
                applier,
                delay_s: 0,
                has_filters: false,
                lag_ms: None,
                heard_ms: None,
                heartbeat_ms: None,
            };
            Replica { channel: Some(channel), ..Replica::silent(addr(host), "") }
        };
        let facts = Facts { replicas: vec![replica("b", true), replica("c", false)], ..Facts::default() };
        assert_eq!(channels(&facts), [(addr("b"), "x".to_owned())]);
    }
}
