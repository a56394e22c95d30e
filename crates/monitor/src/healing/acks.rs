//! Semi-synchronous replication that the proxy sets up (`semi_sync` is `managed`), from round to round: what is judged of it, one change at a
//! time, and what operators are told.
//!
//! INVARIANT: at most one change of a cluster is under way, and none while it is not known who writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::snapshot::{Healing, Server};
use model::{HostgroupId, ServerAddr};
use tokio::task::JoinHandle;
use topology::healing::{AckStep, Choice, Facts, Managed, Outlook, Sides, Tended, Turn, Verdict, manage, turn};

use crate::clock::whole;
use crate::monitor::{Monitor, lock};
use crate::operator::{NotSet, SetAcks, lacks_right_to_acks, set_acks};

/// A server is left in peace for so long after a change that failed.
const FAILED_REST: Duration = Duration::from_secs(60);
/// And for so long after one that was made: the next look shows it.
const DONE_REST: Duration = Duration::from_secs(2);
/// A new writer is left in peace for so long: the tool that promoted it may still be at work.
const CALM: Duration = Duration::from_secs(5);
/// Attempts to get one lost acknowledgement. Each one that is in vain leaves a session that waits.
const NUDGES: u32 = 3;
/// Rights are asked for again after so long.
const RIGHTS: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Acking {
    /// Who writes, and since when this proxy sees it.
    writer: Option<(ServerAddr, Instant)>,
    work: Option<(AckStep, JoinHandle<Result<String, NotSet>>)>,
    /// Until when each server is left in peace, and why its last change failed.
    resting: BTreeMap<ServerAddr, (Instant, String)>,
    short: Option<Instant>,
    nudged: Option<Instant>,
    /// Attempts since sessions wait.
    nudges: u32,
    asking: Option<JoinHandle<BTreeMap<ServerAddr, String>>>,
    ask_at: Option<Instant>,
    /// Rights that are missing, by server.
    rights: BTreeMap<ServerAddr, String>,
    /// What operators were told: how many acknowledge, of how many, and whether commits wait for more.
    told: Option<(u64, u64, bool)>,
}

/// What the last look found.
pub(super) struct Cast<'a> {
    pub(super) facts: &'a Facts,
    pub(super) choice: &'a Choice,
    pub(super) tended: &'a [Tended],
    pub(super) sides: &'a BTreeMap<ServerAddr, Sides>,
    /// Sessions have waited for an acknowledgement, and nothing was committed, for so long, ms.
    pub(super) stuck_ms: u64,
}

impl Acking {
    /// Begins the next change where that is due. `servers` are all, `writers` those that write. None where the row does not ask for it.
    pub(super) async fn round(
        &mut self,
        monitor: &Arc<Monitor>,
        policy: &Healing,
        (servers, writers): (&[Arc<Server>], &[ServerAddr]),
        cast: &Cast<'_>,
        verdict: Verdict,
    ) -> Option<Managed> {
        self.take_outcome(monitor, policy.writer).await;
        if !policy.manages_acks() {
            *self = Self { work: self.work.take(), ..Self::default() };
            return None;
        }
        let primary = cast.facts.primary.as_ref()?;
        let now = Instant::now();
        if self.writer.as_ref().is_none_or(|(addr, _)| *addr != primary.addr) {
            self.writer = Some((primary.addr.clone(), now));
            (self.short, self.nudged, self.nudges) = (None, None, 0);
        }
        self.resting.retain(|_, (until, why)| *until > now || !why.is_empty());
        self.ask_for_rights(monitor, servers, cast.facts).await;
        let resting: BTreeSet<ServerAddr> =
            self.resting.iter().filter(|(_, (until, _))| *until > now).map(|(addr, _)| addr.clone()).collect();
        let ms = |since: Instant| whole(now.saturating_duration_since(since).as_millis());
        let outlook = Outlook {
            policy,
            facts: cast.facts,
            servers: &cast.choice.servers,
            tended: cast.tended,
            sides: cast.sides,
            resting: &resting,
            short_ms: self.short.map_or(0, ms),
            stuck_ms: cast.stuck_ms,
            nudged_ms: self.nudged.map(ms).filter(|_| self.nudges < NUDGES).or((self.nudges >= NUDGES).then_some(0)),
        };
        let mut managed = manage(&outlook);
        self.short = if managed.is_short { self.short.or(Some(now)) } else { None };
        if managed.waiting == 0 {
            self.nudges = 0;
        }
        let failed = self.resting.iter().filter(|(_, (_, why))| !why.is_empty()).map(|(_, (_, why))| why.clone());
        managed.faults.extend(self.rights.iter().map(|(addr, why)| format!("{addr}: {why}")).chain(failed));
        if !matches!(verdict, Verdict::Alive | Verdict::Stuck) {
            return Some(managed);
        }
        // A plan that is under way changes who acknowledges, and tells of it.
        if self.work.is_some() || !lock(&monitor.claims).is_taken(policy.writer) {
            self.tell(monitor, policy.writer, &managed);
        }
        if let Some(step) = managed.step.clone()
            && self.pause(monitor, policy.writer, writers, now).is_none()
        {
            self.begin(monitor, policy.writer, servers, cast.facts, step);
        }
        Some(managed)
    }

    /// Why nothing is begun now.
    fn pause(&self, monitor: &Monitor, hostgroup: HostgroupId, writers: &[ServerAddr], now: Instant) -> Option<String> {
        let (primary, since) = self.writer.as_ref()?;
        let lease = monitor.lease(hostgroup);
        match () {
            () if self.work.is_some() => Some("a change is under way".to_owned()),
            () if !monitor.keeps_files() => Some("another process of this proxy is in charge".to_owned()),
            () if let Some(why) = monitor.suspended(hostgroup) => Some(why),
            () if let Some(why) = lease.refusal() => Some(why),
            () if turn(&lease, &monitor.record(hostgroup).0) != Turn::Begin => Some("a plan is brought to its end first".to_owned()),
            () if *writers != [primary.clone()] => Some("the proxy waits until one server writes".to_owned()),
            () if now.saturating_duration_since(*since) < CALM => Some(format!("{primary} has just begun to write")),
            () if lock(&monitor.claims).is_taken(hostgroup) => Some("other work on the cluster is under way".to_owned()),
            () => None,
        }
    }

    fn begin(&mut self, monitor: &Arc<Monitor>, hostgroup: HostgroupId, servers: &[Arc<Server>], facts: &Facts, step: AckStep) {
        let Some(writer) = facts.primary.as_ref().map(|primary| primary.addr.clone()) else { return };
        let Some(server) = servers.iter().find(|server| server.key.addr() == *step.server()).cloned() else { return };
        let replica = facts.replicas.iter().find(|replica| replica.addr == *step.server());
        let channel = replica.and_then(|replica| replica.channel.as_ref()).map(|channel| channel.name.clone()).unwrap_or_default();
        if matches!(step, AckStep::Nudge(_)) {
            (self.nudged, self.nudges) = (Some(Instant::now()), self.nudges.saturating_add(1));
        }
        let work = SetAcks { hostgroup, server, channel, writer, step: step.clone() };
        let (monitor, orders) = (Arc::clone(monitor), Arc::clone(&monitor.orders));
        let work = tokio::spawn(async move {
            let _under_way = orders.read().await;
            set_acks(&monitor, work).await
        });
        self.work = Some((step, work));
    }

    async fn take_outcome(&mut self, monitor: &Monitor, hostgroup: HostgroupId) {
        let Some((step, work)) = self.work.take_if(|(_, work)| work.is_finished()) else { return };
        let outcome = work.await.unwrap_or_else(|e| Err(NotSet::Failed(format!("the work has ended: {e}"))));
        let server = step.server().clone();
        let (rest, why) = match outcome {
            Ok(told) => {
                monitor.note_rejoin(hostgroup, &server, "semi-synchronous", &told);
                (DONE_REST, String::new())
            }
            Err(NotSet::Postponed(why)) => {
                tracing::debug!("healing of hostgroup {hostgroup}: {server}: {why}");
                (DONE_REST, String::new())
            }
            Err(NotSet::Failed(why)) => {
                let is_new = self.resting.get(&server).is_none_or(|(_, before)| *before != why);
                if is_new {
                    tracing::warn!("healing of hostgroup {hostgroup}: {server}: semi-synchronous replication is not set: {why}");
                    monitor.note_rejoin(hostgroup, &server, "semi-synchronous replication not set", &why);
                }
                (FAILED_REST, why)
            }
        };
        self.resting.insert(server, (Instant::now() + rest, why));
    }

    /// Events where more or fewer replicas acknowledge than before, or commits begin or cease to wait for more.
    fn tell(&mut self, monitor: &Monitor, hostgroup: HostgroupId, managed: &Managed) {
        let now = (managed.ackers, managed.needed, managed.stopped.is_some());
        let Some(before) = self.told.replace(now) else { return self.tell_stopped(monitor, hostgroup, managed, false) };
        let Some((writer, _)) = &self.writer else { return };
        if (before.0, before.1) != (now.0, now.1) {
            monitor.note_rejoin(hostgroup, writer, "acknowledgements", &managed.told());
        }
        if before.2 && !now.2 {
            monitor.note_rejoin(hostgroup, writer, "commits go on", "enough replicas acknowledge");
        }
        self.tell_stopped(monitor, hostgroup, managed, before.2);
    }

    fn tell_stopped(&self, monitor: &Monitor, hostgroup: HostgroupId, managed: &Managed, was: bool) {
        if let (Some(why), Some((writer, _))) = (managed.stopped.as_ref().filter(|_| !was), &self.writer) {
            tracing::error!("healing of hostgroup {hostgroup}: {why}");
            monitor.note_rejoin(hostgroup, writer, "commits wait", why);
        }
    }

    /// So that a missing right is known before it is needed.
    async fn ask_for_rights(&mut self, monitor: &Arc<Monitor>, servers: &[Arc<Server>], facts: &Facts) {
        if let Some(asking) = self.asking.take_if(|asking| asking.is_finished()) {
            self.rights = asking.await.unwrap_or_default();
            self.ask_at = Some(Instant::now() + RIGHTS);
        }
        if self.asking.is_some() || self.ask_at.is_some_and(|at| Instant::now() < at) {
            return;
        }
        let is_asked = |server: &&Arc<Server>| {
            let addr = server.key.addr();
            let is_primary = facts.is_alive && facts.primary.as_ref().is_some_and(|primary| primary.addr == addr);
            is_primary || facts.replicas.iter().any(|one| one.addr == addr && one.silence.is_none())
        };
        let servers: Vec<Arc<Server>> = servers.iter().filter(is_asked).cloned().collect();
        let (monitor, before) = (Arc::clone(monitor), self.rights.clone());
        self.asking = Some(tokio::spawn(async move {
            let mut lacks = BTreeMap::new();
            for server in servers {
                let addr = server.key.addr();
                // Of a server that does not say, what was known of it before.
                let said = lacks_right_to_acks(&monitor, &server).await.unwrap_or_else(|_| before.get(&addr).cloned());
                lacks.extend(said.map(|why| (addr, why)));
            }
            lacks
        }));
    }
}
