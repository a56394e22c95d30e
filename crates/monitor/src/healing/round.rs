//! One cluster's looks: its servers are asked, what they say is put together, judged and shown. Lives on the monitor's thread from round
//! to round.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::fleet::Placement;
use model::snapshot::{Healing, HealingServer, ReadOnlyCheck, RoleKind, Server, ServerStatus};
use model::{HostgroupId, ServerAddr};
use tokio::task::JoinSet;
use topology::healing::{
    Answer, Channel, Choice, Evidence, Facts, Lost, Primary, Replica, Sides, Verdict, Wish, Witness, choose, origin, verdict, votes,
};
use topology::{GtidSet, ProbeError, ServerId};

use super::acks::{Acking, Cast};
use super::board::Seen;
use super::hooks::Hooked;
use super::look::{self, Sight};
use super::notes;
use super::promote::{Field, Promoting};
use super::tend::{Beside, Ground, Tending, runs};
use super::watch::{Round, Watch};
use crate::client::{Access, Connection, Fault, open};
use crate::clock::whole;
use crate::monitor::{Account, Monitor};

/// The writer is asked first: so long its replicas wait for its answer, so that they have what it had.
const WRITER_FIRST: Duration = Duration::from_millis(100);

/// What is kept of a cluster.
pub(super) struct Keeping {
    /// Its writer hostgroup.
    pub(super) writer: HostgroupId,
    /// Who writes, or wrote last.
    primary: Option<ServerAddr>,
    lines: BTreeMap<ServerAddr, Line>,
    /// What the writer said last, and when it was asked.
    last: Option<(Instant, Sight)>,
    /// Since sessions wait for acknowledgements while nothing is committed.
    stuck: Option<(Instant, GtidSet)>,
    /// When the writer and its replicas were heard.
    watch: Watch,
    /// Replicas that acknowledged commits when the writer answered last.
    ackers: BTreeSet<ServerAddr>,
    /// What replicas had, and the writer lacked, when it answered last.
    errant: BTreeMap<ServerAddr, GtidSet>,
    /// Servers that do not follow the writer.
    tending: Tending,
    /// The promotion of another server.
    promoting: Promoting,
    /// Semi-synchronous replication that the proxy sets up.
    acking: Acking,
    /// Programs that run for what is found.
    hooked: Hooked,
}

struct Line {
    access: Access,
    connection: Connection,
}

/// What the proxy knows of a cluster.
struct Cluster {
    servers: Vec<Arc<Server>>,
    /// The servers that write.
    writers: Vec<ServerAddr>,
    policy: Arc<Healing>,
    told: Arc<Vec<HealingServer>>,
    account: Account,
    /// The monitor's user.
    user: String,
    /// Weights of rows in the writer hostgroup.
    as_writers: BTreeMap<ServerAddr, u32>,
    /// Servers that are out of use in any hostgroup of the cluster, and why.
    offline: BTreeMap<ServerAddr, String>,
    /// Channels from other clusters.
    foreign: Vec<Arc<str>>,
    timeout: Duration,
    /// How its writer is told; None for other kinds.
    check: Option<ReadOnlyCheck>,
    /// This is the only cluster that replicates, so numbers of MariaDB's servers are its own.
    is_only: bool,
}

/// What came of asking a server.
struct Asked {
    addr: ServerAddr,
    line: Option<Line>,
    said: Result<Sight, (Answer, String)>,
}

impl Keeping {
    /// Knows nothing.
    pub(super) fn new(writer: HostgroupId) -> Self {
        let (lines, ackers, errant) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        let (watch, tending, promoting) = (Watch::default(), Tending::default(), Promoting::new());
        let (acking, hooked) = (Acking::default(), Hooked::default());
        Self { writer, primary: None, lines, last: None, stuck: None, watch, ackers, errant, tending, promoting, acking, hooked }
    }

    /// Looks at the cluster once.
    pub(super) async fn round(mut self, monitor: Arc<Monitor>) -> Self {
        let Some(cluster) = cluster(&monitor, self.writer) else { return self };
        let begun = Instant::now();
        self.follow_writer(&cluster);
        let mut said = self.ask_all(&monitor, &cluster).await;
        if self.primary.is_none() {
            self.primary = named_source(&cluster, &said);
        }
        let sides = sides(&said);
        let of_primary = self.primary.as_ref().and_then(|addr| said.remove(addr));
        let answer = self.take_answer(&cluster, of_primary, begun);
        self.watch(&monitor, &said, matches!(answer, Answer::Refused | Answer::Silent), begun);
        let mut facts = self.facts(&cluster, &said, answer);
        add_acknowledged(&monitor, &cluster, &mut facts);
        let mut choice = choose(&facts, &cluster.policy);
        if facts.is_alive && choice.servers.iter().any(|one| !one.errant.is_empty()) {
            // What is errant by this may have come to the writer since it was asked.
            self.ask_again(&cluster, &mut facts).await;
            choice = choose(&facts, &cluster.policy);
        }
        self.remember(&facts, &choice);
        let verdict = self.verdict(&monitor, &cluster, &facts, answer);
        let Beside { tended, errant } = self.tend(&monitor, &cluster, &facts, verdict).await;
        let field = Field { policy: &cluster.policy, servers: &cluster.servers, check: cluster.check };
        let cast = Cast { facts: &facts, choice: &choice, tended: &tended, sides: &sides, stuck_ms: self.stuck_ms() };
        let (servers, writers) = (&cluster.servers[..], &cluster.writers[..]);
        let acks = self.acking.round(&monitor, &cluster.policy, (servers, writers), &cast, verdict).await;
        let healed = self.promoting.round(&monitor, &field, (&facts, &choice), verdict, &tended).await;
        self.hooked.round(&monitor, (self.writer, self.primary.as_ref()), (verdict, healed.as_ref()), &tended);
        let (healer, epoch) = (monitor.healer(self.writer), Some(monitor.record(self.writer).1).filter(|epoch| *epoch > 0));
        let would_lead = self.promoting.would_lead(&monitor, &cluster.policy, verdict);
        let (forced, last_plan) = (forced(&facts, &choice, &cluster.policy), self.promoting.last());
        let policy = cluster.policy;
        monitor.note_healing(Seen {
            policy,
            verdict,
            facts,
            choice,
            forced,
            tended,
            errant,
            healed,
            acks,
            healer,
            epoch,
            last_plan,
            would_lead,
        });
        self
    }

    /// Nothing is done in other modes. Work that is under way sees by itself that it is not wanted any more.
    async fn tend(&mut self, monitor: &Arc<Monitor>, cluster: &Cluster, facts: &Facts, verdict: Verdict) -> Beside {
        if !cluster.policy.mode.takes_back() {
            self.tending = Tending::default();
            return Beside::default();
        }
        let (servers, writers, foreign) = (&cluster.servers[..], &cluster.writers[..], &cluster.foreign[..]);
        self.tending.round(monitor, &Ground { writer: self.writer, servers, writers, foreign }, facts, verdict).await
    }

    /// Another server that writes is the primary from now on; one that is gone stays it.
    fn follow_writer(&mut self, cluster: &Cluster) {
        let is_known = |addr: &ServerAddr| cluster.servers.iter().any(|server| server.key.addr() == *addr);
        let still = self.primary.as_ref().filter(|addr| cluster.writers.contains(addr) || cluster.writers.is_empty());
        let now = still.filter(|addr| is_known(addr)).or_else(|| cluster.writers.first()).cloned();
        if now != self.primary {
            (self.last, self.stuck, self.watch) = (None, None, Watch::default());
            self.ackers.clear();
            self.errant.clear();
            self.primary = now;
        }
    }

    /// Asks every server, the writer first, and the others at the same time unless it answers at once.
    async fn ask_all(&mut self, monitor: &Arc<Monitor>, cluster: &Cluster) -> BTreeMap<ServerAddr, Result<Sight, (Answer, String)>> {
        let mut asked = JoinSet::new();
        let mut servers: Vec<&Arc<Server>> = cluster.servers.iter().collect();
        servers.sort_by_key(|server| self.primary.as_ref() != Some(&server.key.addr()));
        let mut said = BTreeMap::new();
        let mut lines = std::mem::take(&mut self.lines);
        for (place, server) in servers.into_iter().enumerate() {
            let (addr, access) = (server.key.addr(), cluster.account.access(server));
            let line = lines.remove(&addr).filter(|line| line.access == access);
            let (monitor, limit) = (Arc::clone(monitor), cluster.timeout);
            asked.spawn(async move { ask(&monitor, addr, line, access, limit).await });
            if place == 0
                && self.primary.is_some()
                && let Ok(Some(Ok(first))) = tokio::time::timeout(WRITER_FIRST, asked.join_next()).await
            {
                self.take(first, &mut said);
            }
        }
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(answer) => self.take(answer, &mut said),
                Err(e) => tracing::error!("a look at a server of mysql_healing has ended: {e}"),
            }
        }
        said
    }

    fn take(&mut self, asked: Asked, said: &mut BTreeMap<ServerAddr, Result<Sight, (Answer, String)>>) {
        self.lines.extend(asked.line.map(|line| (asked.addr.clone(), line)));
        said.insert(asked.addr, asked.said);
    }

    /// What the writer has by now.
    async fn ask_again(&mut self, cluster: &Cluster, facts: &mut Facts) {
        let Some(primary) = &mut facts.primary else { return };
        let Some(mut line) = self.lines.remove(&primary.addr) else { return };
        if let Ok(Ok(latest)) = tokio::time::timeout(cluster.timeout, look::executed(&mut line.connection)).await {
            primary.latest = Some(latest);
            self.lines.insert(primary.addr.clone(), line);
        }
    }

    /// Keeps what the writer said.
    fn take_answer(&mut self, cluster: &Cluster, said: Option<Result<Sight, (Answer, String)>>, begun: Instant) -> Answer {
        match said {
            Some(Ok(sight)) => {
                let is_closed = sight.is_read_only && cluster.writers.is_empty();
                let waits = sight.semi_sync.is_some_and(|source| source.waits > 0);
                self.stuck = match self.stuck.take() {
                    _ if !waits => None,
                    Some((since, had)) if had == sight.executed => Some((since, had)),
                    _ => Some((begun, sight.executed.clone())),
                };
                self.last = Some((begun, sight));
                if is_closed { Answer::Closed } else { Answer::Open }
            }
            Some(Err((answer, _))) => answer,
            None => Answer::Silent,
        }
    }

    fn traffic(&self, monitor: &Monitor) -> Option<u64> {
        monitor.running()?.fleet.received(self.primary.as_ref()?)
    }

    /// Notes what was heard of the writer.
    fn watch(&mut self, monitor: &Monitor, said: &BTreeMap<ServerAddr, Result<Sight, (Answer, String)>>, is_lost: bool, begun: Instant) {
        let (primary, id) = (self.primary.clone(), self.id());
        let sights = said.iter().filter_map(|(addr, said)| Some((addr, said.as_ref().ok()?)));
        let channels = sights.filter_map(|(addr, sight)| {
            let line = sight.channels.iter().find(|line| is_at(line, primary.as_ref(), id.as_ref()))?;
            Some((addr, line))
        });
        let received = self.traffic(monitor);
        self.watch.keep_only(|addr| said.contains_key(addr));
        self.watch.note(channels, is_lost, received, Round { begun, now: Instant::now() });
    }

    /// Keeps what counts when the writer does not answer any more.
    fn remember(&mut self, facts: &Facts, choice: &Choice) {
        if !facts.is_alive {
            return;
        }
        let answered = || facts.replicas.iter().zip(&choice.servers).filter(|(replica, _)| replica.silence.is_none());
        self.ackers = answered().filter(|(replica, _)| acknowledges_primary(replica)).map(|(replica, _)| replica.addr.clone()).collect();
        self.errant.retain(|addr, _| facts.replicas.iter().any(|replica| replica.addr == *addr));
        // What may have come to the writer since it was asked is not errant yet.
        let is_sure = facts.primary.as_ref().is_some_and(|primary| primary.latest.is_some());
        for (replica, found) in answered() {
            if found.errant.is_empty() {
                self.errant.remove(&replica.addr);
            } else if is_sure {
                self.errant.insert(replica.addr.clone(), found.errant.clone());
            }
        }
    }

    /// What the writer calls itself.
    fn id(&self) -> Option<ServerId> {
        self.last.as_ref().map(|(_, sight)| sight.id.clone())
    }

    fn facts(&self, cluster: &Cluster, said: &BTreeMap<ServerAddr, Result<Sight, (Answer, String)>>, answer: Answer) -> Facts {
        let Some(addr) = &self.primary else { return Facts::default() };
        let is_alive = matches!(answer, Answer::Open | Answer::Closed);
        let others = cluster.servers.iter().filter(|server| server.key.addr() != *addr);
        let replicas = others.map(|server| self.replica(cluster, server, said.get(&server.key.addr()), is_alive));
        // Of one that was never seen its replicas know what it calls itself.
        let sights = || said.values().filter_map(|said| said.as_ref().ok());
        let by_replicas =
            || sights().flat_map(|sight| &sight.channels).find(|line| is_at(line, Some(addr), None)).map(|line| &line.source_id);
        let id = self.id().or_else(|| by_replicas().cloned()).unwrap_or_default();
        let last = self.last.as_ref().map(|(_, sight)| sight);
        let age = self.last.as_ref().map(|(asked, _)| self.watch.until(Instant::now()).saturating_duration_since(*asked));
        let primary = Primary {
            addr: addr.clone(),
            id,
            version: last.map(|sight| sight.version).or_else(|| sights().next().map(|sight| sight.version)).unwrap_or_default(),
            executed: last.map(|sight| sight.executed.clone()),
            acknowledged: GtidSet::default(),
            latest: None,
            purged: last.map(|sight| sight.purged.clone()).unwrap_or_default(),
            is_strict: last.is_some_and(|sight| sight.is_strict),
            semi_sync: last.and_then(|sight| sight.semi_sync),
            age_ms: age.map_or(0, |age| whole(age.as_millis())),
            site: cluster.site(addr),
        };
        Facts { primary: Some(primary), is_alive, replicas: replicas.collect() }
    }

    fn replica(&self, cluster: &Cluster, server: &Arc<Server>, said: Option<&Result<Sight, (Answer, String)>>, is_alive: bool) -> Replica {
        let addr = server.key.addr();
        let told = cluster.told.iter().find(|told| told.is_about(&addr));
        let standing = Replica {
            declared: told.and_then(|told| told.promotion),
            is_written_as_writer: cluster.as_writers.contains_key(&addr),
            weight: cluster.as_writers.get(&addr).copied().unwrap_or(server.weight),
            site: cluster.site(&addr),
            offline: cluster.offline.get(&addr).cloned(),
            unable: self.promoting.unable(&addr),
            was_errant: self.errant.get(&addr).cloned().unwrap_or_default(),
            ..Replica::silent(addr.clone(), "it was not asked")
        };
        let sight = match said {
            Some(Ok(sight)) => sight,
            Some(Err((answer, why))) => {
                return Replica { silence: Some(why.clone()), refuses: *answer == Answer::Refused, ..standing };
            }
            None => return standing,
        };
        let channel = self.channel(cluster, &addr, sight);
        let own = || sight.channels.iter().filter(|line| !cluster.is_foreign(&line.channel.name));
        let received = own().fold(sight.executed.clone(), |all, line| all.with(&line.received));
        // MariaDB waits for positions, and takes no set.
        let position = (!sight.version.is_mariadb).then(|| received.to_string());
        let channel = channel.map(|channel| Channel { position: position.unwrap_or_else(|| channel.position.clone()), ..channel });
        Replica {
            silence: None,
            id: sight.id.clone(),
            version: sight.version,
            executed: sight.executed.clone(),
            received,
            purged: sight.purged.clone(),
            has_gtids: sight.has_gtids,
            is_open: !sight.is_read_only,
            is_closed: sight.is_closed,
            channels: own().count(),
            logs: sight.logs,
            logs_updates: sight.logs_updates,
            // A receiver that has lost the writer acknowledges nothing, and did before.
            is_acker: if is_alive { acknowledges(sight.is_acker, channel.as_ref()) } else { self.ackers.contains(&addr) },
            is_strict: sight.is_strict,
            no_right: self.promoting.lacks(&addr),
            notes: notes::of(sight, channel.as_ref(), &cluster.user),
            channel,
            ..standing
        }
    }

    /// The channel from the writer, else the first one that is not from another cluster.
    fn channel(&self, cluster: &Cluster, addr: &ServerAddr, sight: &Sight) -> Option<Channel> {
        let (primary, id) = (self.primary.as_ref(), self.id());
        let own = || sight.channels.iter().filter(|line| !cluster.is_foreign(&line.channel.name));
        let from_primary = own().find(|line| is_at(line, primary, id.as_ref()));
        let line = from_primary.or_else(|| own().next())?;
        let heard_ms = self.watch.heard_ms(addr, Instant::now());
        let lag_ms = line.channel.lag_ms.or_else(|| self.watch.lag_ms(addr));
        Some(Channel { is_from_primary: from_primary.is_some(), heard_ms, lag_ms, ..line.channel.clone() })
    }

    fn stuck_ms(&self) -> u64 {
        self.stuck.as_ref().map_or(0, |(since, _)| whole(since.elapsed().as_millis()))
    }

    fn verdict(&mut self, monitor: &Monitor, cluster: &Cluster, facts: &Facts, answer: Answer) -> Verdict {
        if facts.primary.is_none() {
            return Verdict::Unknown;
        }
        let now = Instant::now();
        let has_traffic = self.watch.has_traffic(self.traffic(monitor), now);
        let dead_ms = cluster.policy.dead_ms;
        let witnesses: Vec<Witness> = facts.replicas.iter().map(|replica| self.watch.witness(replica, dead_ms, now)).collect();
        let verdict = verdict(&Evidence {
            answer,
            has_traffic,
            witnesses: &witnesses,
            votes: votes(facts, &cluster.policy),
            lost_ms: self.watch.lost_ms(now),
            dead_ms,
            was_dead: self.watch.was_dead(),
            stuck_ms: self.stuck_ms(),
        });
        self.watch.judged(verdict);
        verdict
    }
}

impl Cluster {
    fn is_foreign(&self, channel: &str) -> bool {
        self.foreign.iter().any(|foreign| foreign.eq_ignore_ascii_case(channel))
    }

    fn site(&self, addr: &ServerAddr) -> Arc<str> {
        self.told.iter().find(|told| told.is_about(addr)).map_or_else(|| "".into(), |told| Arc::clone(&told.site))
    }
}

/// Whether a replica acknowledges commits of its source now. Its status (`is_on`) stays ON while the receiver only tries to connect.
fn acknowledges(is_on: bool, channel: Option<&Channel>) -> bool {
    is_on && channel.is_some_and(|channel| runs(&channel.receiver))
}

fn acknowledges_primary(replica: &Replica) -> bool {
    replica.is_acker && replica.channel.as_ref().is_some_and(|channel| channel.is_from_primary)
}

/// Semi-synchronous replication of each server that answered.
fn sides(said: &BTreeMap<ServerAddr, Result<Sight, (Answer, String)>>) -> BTreeMap<ServerAddr, Sides> {
    said.iter().filter_map(|(addr, said)| Some((addr.clone(), said.as_ref().ok()?.sides.clone()))).collect()
}

/// What clients of this proxy got OK for: the writer had more when it died than when it was asked last.
fn add_acknowledged(monitor: &Monitor, cluster: &Cluster, facts: &mut Facts) {
    let is_wanted = !facts.is_alive;
    let (Some(primary), Some(running)) = (facts.primary.as_mut().filter(|_| is_wanted), monitor.running()) else { return };
    let own = |gtids: &GtidSet| match (&primary.id.uuid, primary.id.number) {
        (Some(uuid), _) => gtids.of_source(uuid),
        (None, Some(number)) if cluster.is_only => gtids.of_server(number),
        _ => GtidSet::default(),
    };
    let mut lately = running.fleet.acknowledged_lately();
    lately.retain(|gtid| GtidSet::parse(gtid).is_some());
    primary.acknowledged = own(&GtidSet::parse(&lately.join(",")).unwrap_or_default());
}

/// What would be lost if an operator allowed any loss, where nobody takes over otherwise.
fn forced(facts: &Facts, choice: &Choice, policy: &Healing) -> Option<Lost> {
    choice.plan.as_ref().err()?;
    Wish { to: None, losing: Some(0) }.choose(facts, policy).plan.ok().map(|plan| plan.lost)
}

/// Whether a channel is from this server: names of hosts may differ, identities do not.
fn is_at(line: &look::Line, addr: Option<&ServerAddr>, id: Option<&ServerId>) -> bool {
    if let Some(id) = id.filter(|_| line.source_id != ServerId::default()) {
        return line.source_id.is_same(id);
    }
    addr.is_some_and(|addr| line.channel.source.is_same(addr))
}

/// Who wrote before this proxy looked.
fn named_source(cluster: &Cluster, said: &BTreeMap<ServerAddr, Result<Sight, (Answer, String)>>) -> Option<ServerAddr> {
    let members: Vec<ServerAddr> = cluster.servers.iter().map(|server| server.key.addr()).collect();
    let sights = said.iter().filter_map(|(addr, said)| Some((addr, said.as_ref().ok()?)));
    let lines = sights.flat_map(|(addr, sight)| sight.channels.iter().map(move |line| (addr, line)));
    let lines = lines.filter(|(_, line)| !cluster.is_foreign(&line.channel.name));
    let links: Vec<_> = lines
        .filter_map(|(addr, line)| Some((addr.clone(), members.iter().find(|member| is_at(line, Some(member), None))?.clone())))
        .collect();
    origin(&links)
}

/// Asks a server, over the connection that there is, else a new one; a connection that failed is not kept.
async fn ask(monitor: &Monitor, addr: ServerAddr, line: Option<Line>, access: Access, limit: Duration) -> Asked {
    let asked = async {
        // One that was idle may have been ended for that alone.
        if let Some(mut line) = line
            && let Ok(sight) = look::look(&mut line.connection).await
        {
            return Ok::<_, Fault>((line, sight));
        }
        let mut connection = open(&monitor.connector, &access).await?;
        let sight = look::look(&mut connection).await?;
        Ok((Line { access, connection }, sight))
    };
    match tokio::time::timeout(limit, asked).await {
        Ok(Ok((line, sight))) => Asked { addr, line: Some(line), said: Ok(sight) },
        Ok(Err(fault)) => {
            let said = fault.to_string();
            Asked { addr, line: None, said: Err((answer(fault), said)) }
        }
        Err(_) => Asked { addr, line: None, said: Err((Answer::Silent, format!("no answer within {} ms", limit.as_millis()))) },
    }
}

/// What an error says of a server's life.
fn answer(fault: Fault) -> Answer {
    if matches!(&fault, Fault::Io(e) if e.kind() == std::io::ErrorKind::ConnectionRefused) {
        return Answer::Refused;
    }
    match fault.into_probe_error() {
        ProbeError::Denied(_) | ProbeError::Failed(_) => Answer::Denied,
        ProbeError::Timeout | ProbeError::Unresolved(_) | ProbeError::Unreachable(_) | ProbeError::Closed(_) => Answer::Silent,
    }
}

/// The cluster as it is configured, with who writes now.
fn cluster(monitor: &Monitor, writer: HostgroupId) -> Option<Cluster> {
    let identities = monitor.identities();
    let strangers: BTreeSet<&ServerAddr> =
        identities.iter().filter(|one| one.writer == writer && one.is_stranger()).map(|one| &one.server).collect();
    let (drained, (_, fenced)) = (monitor.drained_servers(), monitor.past(writer));
    monitor.consult(|snapshot, layout| {
        let group = snapshot.roles.iter().find(|group| group.writer == writer)?;
        let policy = Arc::clone(snapshot.healing.get(&writer)?);
        let mut servers: BTreeMap<ServerAddr, &Placement> = BTreeMap::new();
        let (mut writers, mut offline) = (Vec::new(), BTreeMap::new());
        for placement in group.hostgroups().filter_map(|id| layout.hostgroups.get(&id)).flatten() {
            let addr = placement.server.key.addr();
            if placement.server.status == ServerStatus::OfflineHard || strangers.contains(&addr) {
                continue;
            }
            if placement.server.key.hostgroup == writer && placement.status == ServerStatus::Online {
                writers.push(addr.clone());
            }
            if placement.server.status != ServerStatus::Online {
                offline.insert(addr.clone(), format!("mysql_servers says {}", placement.server.status.as_str()));
            } else if drained.contains(&addr) {
                offline.insert(addr.clone(), "it is drained (DRAIN SERVER)".to_owned());
            } else if fenced.contains(&addr) {
                offline.insert(addr.clone(), "it is kept out, as another server took over from it".to_owned());
            }
            servers.entry(addr).or_insert(placement);
        }
        let as_writers = snapshot.hostgroup(writer).map_or(&[][..], |hostgroup| &hostgroup.servers[..]);
        let vars = &snapshot.vars;
        Some(Cluster {
            servers: servers.into_values().map(|placement| Arc::clone(&placement.server)).collect(),
            writers,
            offline,
            policy,
            told: Arc::clone(&snapshot.healing_servers),
            account: Account::of(snapshot),
            user: vars.monitor_username.clone(),
            as_writers: as_writers.iter().map(|server| (server.key.addr(), server.weight)).collect(),
            foreign: snapshot.channels.iter().filter(|channel| channel.writer == writer).map(|channel| Arc::clone(&channel.name)).collect(),
            timeout: Duration::from_millis(vars.monitor_read_only_timeout),
            check: if let RoleKind::Replication(check) = group.kind { Some(check) } else { None },
            is_only: snapshot.roles.len() == 1,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::healing::{LinkState, LinkThread};

    #[test]
    fn a_replica_that_does_not_receive_from_the_writer_acknowledges_nothing() {
        let addr = |host: &str| ServerAddr { host: host.into(), port: 1 };
        let channel = |is_from_primary, state| Channel {
            name: String::new(),
            source: addr("a"),
            is_from_primary,
            is_by_gtid: true,
            position: String::new(),
            receiver: LinkThread { state, error: None },
            applier: LinkThread::default(),
            delay_s: 0,
            has_filters: false,
            lag_ms: None,
            heard_ms: None,
            heartbeat_ms: None,
        };
        for (is_on, is_from_primary, state, wanted) in [
            (true, true, LinkState::Runs, [true, true]),
            (false, true, LinkState::Runs, [false, false]),
            (true, true, LinkState::Connecting, [false, false]),
            (true, true, LinkState::Stopped, [false, false]),
            (true, false, LinkState::Runs, [true, false]),
        ] {
            let channel = Some(channel(is_from_primary, state));
            let is_acker = acknowledges(is_on, channel.as_ref());
            let replica = Replica { is_acker, channel, ..Replica::silent(addr("b"), "") };
            assert_eq!([is_acker, acknowledges_primary(&replica)], wanted, "{is_on} {is_from_primary} {state:?}");
        }
        assert!(!acknowledges(true, None));
    }
}
