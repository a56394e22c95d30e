//! Servers that do not follow the writer, from round to round (mode `rejoin`): what was seen of each, and the work for one of them at a time.
//!
//! INVARIANT: at most one server of a cluster is worked on by this proxy, and none of them while it is not known who writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::snapshot::Server;
use model::{HostgroupId, ServerAddr};
use tokio::task::JoinHandle;
use topology::healing::{Facts, Lease, LinkState, LinkThread, Replica, Standing, Tended, Trail, Verdict, next, tend};
use topology::{Event, EventKind, Fork, GtidSet};

use super::errant::{Errant, Read};
use super::take_back::{Members, rejoin_of};
use crate::clock::whole;
use crate::monitor::{Monitor, lock};
use crate::operator::{Outcome, rejoin};

/// A new writer is left in peace for so long: the tool that promoted it may still be at work.
const CALM: Duration = Duration::from_secs(5);
/// Why a former writer serves no reads. Without measured values: it is the reason of a decision about roles.
const OUTCAST: &str =
    "it wrote under an earlier role and is not proved to have nothing that the writer lacks (stats_tidegate_healing_servers)";

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Tending {
    /// Who writes, and since when this proxy sees it.
    writer: Option<(ServerAddr, Instant)>,
    /// This proxy promoted it: no other tool is at work.
    is_own: bool,
    servers: BTreeMap<ServerAddr, Memory>,
    work: Option<(ServerAddr, JoinHandle<Outcome>)>,
    errant: Errant,
}

/// What a look at servers beside the writer found.
#[derive(Debug, Clone, Default)]
pub(super) struct Beside {
    pub(super) tended: Vec<Tended>,
    pub(super) errant: BTreeMap<ServerAddr, Arc<Read>>,
}

/// What was seen of a server.
#[derive(Debug, Default)]
struct Memory {
    /// Its channel ran at the last look at which it answered, and from whom; None before the first one.
    ran: Option<Option<ServerAddr>>,
    is_left: bool,
    /// It has followed the present writer.
    has_followed: bool,
    /// The shared record lists it as an outcast.
    is_listed: bool,
    /// It has not followed since.
    astray: Option<Instant>,
    is_settled: bool,
    tried: Option<Instant>,
    failures: u32,
    failed: String,
    standing: Option<Standing>,
}

/// The cluster, as far as work needs it.
pub(super) struct Ground<'a> {
    pub(super) writer: HostgroupId,
    pub(super) servers: &'a [Arc<Server>],
    /// The servers that write.
    pub(super) writers: &'a [ServerAddr],
    pub(super) foreign: &'a [Arc<str>],
}

impl Tending {
    /// What each server is after a look. Begins the work for one of them where that is due.
    pub(super) async fn round(&mut self, monitor: &Arc<Monitor>, ground: &Ground<'_>, facts: &Facts, verdict: Verdict) -> Beside {
        let now = Instant::now();
        self.take_outcome(monitor, ground.writer).await;
        let Some(primary) = &facts.primary else { return Beside::default() };
        self.follow_writer(&primary.addr, now);
        let (forks, former) = monitor.former(ground.writer);
        let fork = forks.last().filter(|fork| fork.heir == primary.addr).cloned();
        self.is_own = fork.as_ref().is_some_and(|fork| fork.is_noted);
        self.servers.retain(|addr, _| facts.replicas.iter().any(|replica| replica.addr == *addr));
        let at_work = self.work.as_ref().map(|(addr, _)| addr.clone());
        let outcasts = monitor.record(ground.writer).0.outcasts;
        // What is done to a server is no operator's doing.
        for replica in facts.replicas.iter().filter(|replica| Some(&replica.addr) != at_work.as_ref()) {
            let is_alive = |source: &ServerAddr| answers(facts, source);
            let memory = self.servers.entry(replica.addr.clone()).or_default();
            memory.look(replica, is_alive);
            memory.list(outcasts.iter().any(|out| out.is_same(&replica.addr)));
            memory.has_followed |= lock(&monitor.healing.returned).remove(&replica.addr);
            if monitor.healing.take_adopted(&replica.addr) {
                (memory.is_left, memory.is_settled, memory.failures, memory.tried) = (false, false, 0, None);
                memory.failed.clear();
            }
        }
        let trails = self.trails(&forks, &former, now);
        let pause = self.pause(monitor, ground, &primary.addr, verdict, now);
        let mut tended = tend(facts, &trails, fork.as_ref(), pause.as_deref());
        for one in tended.iter_mut().filter(|one| Some(&one.addr) == at_work.as_ref()) {
            // It may be put back yet.
            let is_out = trails.get(&one.addr).is_some_and(|trail| trail.is_former);
            let (standing, why) = (if is_out { Standing::Outcast } else { Standing::Stray }, "the proxy is at work on it".to_owned());
            *one = Tended { standing, why, is_out, is_due: false, ..one.clone() };
        }
        if verdict == Verdict::Alive && !self.is_new(now) {
            self.note(monitor, ground.writer, &tended, now);
        }
        Self::cast_out(monitor, ground.writer, &tended);
        let nothing = GtidSet::default();
        let has = || primary.latest.as_ref().or(primary.executed.as_ref());
        let had = fork.as_ref().map(|fork| &fork.had).or_else(has).unwrap_or(&nothing);
        let errant = self.errant.round(monitor, (ground.servers, facts), &tended, had).await;
        if let Some(one) = next(facts, &tended) {
            self.begin(monitor, ground, facts, one, &forks);
        }
        Beside { tended, errant }
    }

    /// Everything that was seen counts for one writer.
    fn follow_writer(&mut self, primary: &ServerAddr, now: Instant) {
        if self.writer.as_ref().is_some_and(|(addr, _)| addr == primary) {
            return;
        }
        self.writer = Some((primary.clone(), now));
        for memory in self.servers.values_mut() {
            let (ran, is_left) = (memory.ran.take(), memory.is_left);
            *memory = Memory { ran, is_left, ..Memory::default() };
        }
    }

    fn trails(&self, forks: &[Fork], former: &[ServerAddr], now: Instant) -> BTreeMap<ServerAddr, Trail> {
        let since_ms = |then: Instant| whole(now.saturating_duration_since(then).as_millis());
        let trail = |(addr, memory): (&ServerAddr, &Memory)| {
            let trail = Trail {
                is_former: !memory.has_followed && is_former((forks, former), addr),
                is_left: memory.is_left,
                is_settled: memory.is_settled,
                astray_ms: memory.astray.map_or(0, since_ms),
                tried_ms: memory.tried.map(since_ms),
                failures: memory.failures,
                failed: memory.failed.clone(),
            };
            (addr.clone(), trail)
        };
        self.servers.iter().map(trail).collect()
    }

    /// Another server wrote a moment ago: what is seen now may be the tool's work.
    fn is_new(&self, now: Instant) -> bool {
        !self.is_own && self.writer.as_ref().is_some_and(|(_, since)| now.saturating_duration_since(*since) < CALM)
    }

    /// Why nothing is begun now.
    fn pause(&self, monitor: &Monitor, ground: &Ground<'_>, primary: &ServerAddr, verdict: Verdict, now: Instant) -> Option<String> {
        match () {
            () if let Some(why) = monitor.suspended(ground.writer) => Some(why),
            () if let Some(why) = unsure(&monitor.lease(ground.writer)) => Some(why),
            // A writer that waits for acknowledgements gets them from the servers that are taken back.
            () if !matches!(verdict, Verdict::Alive | Verdict::Stuck) => Some(format!("the proxy waits: {}", verdict.meaning())),
            () if ground.writers != [primary.clone()] => Some("the proxy waits until one server writes".to_owned()),
            () if self.is_new(now) => {
                Some(format!("{primary} writes for less than {} s, and another tool may still be at work", CALM.as_secs()))
            }
            () if let Some((server, _)) = &self.work => Some(format!("{server} comes first")),
            () if lock(&monitor.claims).is_taken(ground.writer) => Some("a switchover or a promotion is under way".to_owned()),
            () => None,
        }
    }

    /// What became of the work.
    async fn take_outcome(&mut self, monitor: &Monitor, writer: HostgroupId) {
        let Some((server, work)) = self.work.take_if(|(_, work)| work.is_finished()) else { return };
        let outcome = work.await.unwrap_or_else(|e| Outcome::Failed(format!("the work has ended: {e}")));
        let memory = self.servers.entry(server.clone()).or_default();
        match outcome {
            Outcome::Follows => {
                (memory.failures, memory.has_followed) = (0, true);
                memory.failed.clear();
                monitor.note_rejoin(writer, &server, "follows the writer", "it has nothing that the writer lacks");
            }
            Outcome::Stays(_) => (memory.failures, memory.is_settled) = (0, true),
            Outcome::Postponed(why) => memory.failed = why,
            Outcome::Failed(why) => {
                memory.failures += 1;
                monitor.note_rejoin(writer, &server, "not taken back", &why);
                memory.failed = why;
            }
        }
    }

    /// Events where a server is something else than before.
    fn note(&mut self, monitor: &Monitor, writer: HostgroupId, tended: &[Tended], now: Instant) {
        for one in tended {
            let memory = self.servers.entry(one.addr.clone()).or_default();
            match one.standing {
                Standing::Follows => (memory.has_followed, memory.astray, memory.failures) = (true, None, 0),
                Standing::Silent => memory.astray = None,
                _ => drop(memory.astray.get_or_insert(now)),
            }
            let before = memory.standing.replace(one.standing);
            if before != Some(one.standing) && (before.is_some() || one.standing != Standing::Follows) {
                let from = before.map_or("", Standing::as_str);
                monitor.note_standing(writer, &one.addr, (from, one.standing.as_str()), &one.why);
            }
        }
    }

    /// A server that is down and wrote is out too: it must be proved when it comes back.
    fn cast_out(monitor: &Monitor, writer: HostgroupId, tended: &[Tended]) {
        let out: BTreeMap<ServerAddr, String> =
            tended.iter().filter(|one| one.is_out).map(|one| (one.addr.clone(), OUTCAST.to_owned())).collect();
        monitor.decide(|topology, now_ms| topology.cast_out(now_ms, writer, &out));
    }

    fn begin(&mut self, monitor: &Arc<Monitor>, ground: &Ground<'_>, facts: &Facts, one: &Tended, forks: &[Fork]) {
        let members = Members { writer: ground.writer, servers: ground.servers, foreign: ground.foreign };
        let Some(rejoin_it) = rejoin_of(&members, facts, &one.addr, one.is_out, forks) else { return };
        if let Some(memory) = self.servers.get_mut(&one.addr) {
            memory.tried = Some(Instant::now());
        }
        let (monitor, orders) = (Arc::clone(monitor), Arc::clone(&monitor.orders));
        let work = tokio::spawn(async move {
            let _under_way = orders.read().await;
            rejoin(&monitor, &rejoin_it).await
        });
        self.work = Some((one.addr.clone(), work));
    }
}

/// Why a proxy cannot know who writes: without etcd it hears of no promotion by another proxy.
fn unsure(lease: &Lease) -> Option<String> {
    match lease {
        Lease::Away(why) => Some(format!("the proxy waits until it knows the record in etcd: {why}")),
        Lease::Alone | Lease::Other(_) | Lease::New(_) | Lease::Own(_) => None,
    }
}

/// Whether a thread of a channel works.
pub(super) fn runs(thread: &LinkThread) -> bool {
    thread.state == LinkState::Runs
}

impl Memory {
    /// Takes a look at the server. `is_alive` says whether a server answers now.
    fn look(&mut self, replica: &Replica, is_alive: impl Fn(&ServerAddr) -> bool) {
        if replica.silence.is_some() || !replica.is_closed {
            self.is_settled = false;
        }
        if replica.silence.is_some() {
            return;
        }
        let is_still = |thread: &LinkThread| thread.state == LinkState::Stopped;
        let running = replica.channel.as_ref().filter(|channel| !is_still(&channel.receiver) && !is_still(&channel.applier));
        let runs = running.map(|channel| channel.source.clone());
        self.is_left = match (&self.ran, &runs) {
            (_, Some(_)) => false,
            // How it came to this, nobody has seen.
            (None, None) => true,
            (Some(Some(source)), None) => is_alive(source),
            (Some(None), None) => self.is_left,
        };
        self.ran = Some(runs);
    }

    /// Whether the record lists it. What it was proved to have before that says nothing of what it wrote since.
    fn list(&mut self, is_listed: bool) {
        self.has_followed &= self.is_listed || !is_listed;
        self.is_listed = is_listed;
    }
}

/// Whether a server wrote and another one took over, after it had taken over itself.
pub(super) fn has_stepped_down(forks: &[Fork], addr: &ServerAddr) -> bool {
    let last = forks.iter().rev().find(|fork| fork.heir == *addr || fork.from.contains(addr));
    last.is_some_and(|fork| fork.heir != *addr)
}

/// Whether a server wrote under an earlier role, see [`Monitor::former`].
pub(super) fn is_former((forks, former): (&[Fork], &[ServerAddr]), addr: &ServerAddr) -> bool {
    has_stepped_down(forks, addr) || former.iter().any(|one| one.is_same(addr))
}

fn answers(facts: &Facts, addr: &ServerAddr) -> bool {
    let is_primary = facts.primary.as_ref().is_some_and(|primary| primary.addr.is_same(addr));
    (is_primary && facts.is_alive) || facts.replicas.iter().any(|replica| replica.addr.is_same(addr) && replica.silence.is_none())
}

impl Monitor {
    /// The promotions of a cluster that this proxy knows, and servers that wrote under an earlier role besides: those that it fenced, and
    /// those that the shared record lists. It knows no promotion that was given up, and none before its data directory was made.
    pub(super) fn former(&self, writer: HostgroupId) -> (Vec<Fork>, Vec<ServerAddr>) {
        let (forks, mut former) = self.past(writer);
        former.extend(self.record(writer).0.outcasts);
        (forks, former)
    }

    /// A step by which a server comes back, or does not.
    pub(crate) fn note_rejoin(&self, writer: HostgroupId, server: &ServerAddr, what: &str, why: &str) {
        self.journal_says(writer, server, what, why);
        self.note_standing(writer, server, ("", what), why);
    }

    fn note_standing(&self, writer: HostgroupId, server: &ServerAddr, (from, to): (&str, &str), why: &str) {
        self.note(vec![Event {
            at_ms: self.clock.now_ms(),
            cluster: Some(writer),
            server: Some(server.clone()),
            kind: EventKind::Healing,
            from: from.to_owned(),
            to: to.to_owned(),
            seen: String::new(),
            by: "healing",
            why: why.to_owned(),
        }]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_etcd_no_server_is_taken_back() {
        assert!(unsure(&Lease::Away("gone".to_owned())).unwrap().ends_with("record in etcd: gone"));
        for lease in [Lease::Alone, Lease::Other(None), Lease::New(1), Lease::Own(1), Lease::Own(0)] {
            assert_eq!(unsure(&lease), None, "{lease:?}");
        }
    }
}
