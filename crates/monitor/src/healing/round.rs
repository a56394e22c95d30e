//! One cluster's looks: its servers are asked, what they say is put together, judged and shown. Lives on the monitor's thread from round
//! to round.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::fleet::Placement;
use model::snapshot::{Healing, HealingServer, Server, ServerStatus};
use model::{HostgroupId, ServerAddr};
use tokio::task::JoinSet;
use topology::healing::{Answer, Channel, Evidence, Facts, Primary, Replica, Verdict, Witness, choose, verdict, votes, witness};
use topology::{GtidSet, ProbeError, ServerId};

use super::board::Seen;
use super::look::{self, Sight};
use super::notes;
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
    /// What the writer said last.
    last: Option<Sight>,
    /// Since it does not answer.
    lost: Option<Lost>,
    /// Since sessions wait for acknowledgements while nothing is committed.
    stuck: Option<(Instant, GtidSet)>,
    /// When each replica heard something.
    heard: BTreeMap<ServerAddr, Heard>,
}

struct Line {
    access: Access,
    connection: Connection,
}

/// The writer does not answer.
#[derive(Debug, Clone, Copy)]
struct Lost {
    /// Since then.
    since: Instant,
    /// When the first look that missed it was over: what replicas hear later, it sent later.
    looked: Instant,
    /// Bytes that had come from it to the data plane.
    received: Option<u64>,
}

/// What a replica heard of the writer.
#[derive(Debug, Default)]
struct Heard {
    received: GtidSet,
    heartbeats: Option<u64>,
    /// When either of them changed.
    changed: Option<Instant>,
    /// When it was seen first.
    first: Option<Instant>,
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
    /// Channels from other clusters.
    foreign: Vec<Arc<str>>,
    timeout: Duration,
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
        let (primary, last, lost, stuck) = (None, None, None, None);
        Self { writer, primary, lines: BTreeMap::new(), last, lost, stuck, heard: BTreeMap::new() }
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
        let of_primary = self.primary.as_ref().and_then(|addr| said.remove(addr));
        let answer = self.take_answer(&monitor, &cluster, of_primary, begun);
        self.hear(&said);
        let mut facts = self.facts(&cluster, &said, answer);
        let mut choice = choose(&facts, &cluster.policy);
        if facts.is_alive && choice.servers.iter().any(|one| !one.errant.is_empty()) {
            // What is errant by this may have come to the writer since it was asked.
            self.ask_again(&cluster, &mut facts).await;
            choice = choose(&facts, &cluster.policy);
        }
        let verdict = self.verdict(&monitor, &cluster, &facts, answer);
        monitor.note_healing(Seen { policy: cluster.policy, verdict, facts, choice });
        self
    }

    /// Another server that writes is the primary from now on; one that is gone stays it.
    fn follow_writer(&mut self, cluster: &Cluster) {
        let is_known = |addr: &ServerAddr| cluster.servers.iter().any(|server| server.key.addr() == *addr);
        let still = self.primary.as_ref().filter(|addr| cluster.writers.contains(addr) || cluster.writers.is_empty());
        let now = still.filter(|addr| is_known(addr)).or_else(|| cluster.writers.first()).cloned();
        if now != self.primary {
            (self.last, self.lost, self.stuck) = (None, None, None);
            self.heard.clear();
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

    /// Keeps what the writer said, or since when it says nothing.
    fn take_answer(
        &mut self,
        monitor: &Monitor,
        cluster: &Cluster,
        said: Option<Result<Sight, (Answer, String)>>,
        begun: Instant,
    ) -> Answer {
        let answer = match said {
            Some(Ok(sight)) => {
                let is_closed = sight.is_read_only && cluster.writers.is_empty();
                let waits = sight.semi_sync.is_some_and(|source| source.waits > 0);
                self.stuck = match self.stuck.take() {
                    _ if !waits => None,
                    Some((since, had)) if had == sight.executed => Some((since, had)),
                    _ => Some((begun, sight.executed.clone())),
                };
                self.last = Some(sight);
                if is_closed { Answer::Closed } else { Answer::Open }
            }
            Some(Err((answer, _))) => answer,
            None => Answer::Silent,
        };
        if !matches!(answer, Answer::Refused | Answer::Silent) {
            self.lost = None;
        } else if self.lost.is_none() {
            let received = self.traffic(monitor);
            self.lost = Some(Lost { since: begun, looked: Instant::now(), received });
        }
        answer
    }

    fn traffic(&self, monitor: &Monitor) -> Option<u64> {
        monitor.running()?.fleet.received(self.primary.as_ref()?)
    }

    /// Notes what replicas heard of the writer.
    fn hear(&mut self, said: &BTreeMap<ServerAddr, Result<Sight, (Answer, String)>>) {
        let (now, primary, id) = (Instant::now(), self.primary.clone(), self.id());
        self.heard.retain(|addr, _| said.contains_key(addr));
        for (addr, sight) in said.iter().filter_map(|(addr, said)| Some((addr, said.as_ref().ok()?))) {
            let heard = self.heard.entry(addr.clone()).or_default();
            let is_first = heard.first.is_none();
            heard.first.get_or_insert(now);
            let Some(line) = sight.channels.iter().find(|line| is_at(line, primary.as_ref(), id.as_ref())) else { continue };
            let is_news = heard.received != line.received || heard.heartbeats != line.heartbeats;
            if is_news {
                (heard.received, heard.heartbeats) = (line.received.clone(), line.heartbeats);
                heard.changed = if is_first { heard.changed } else { Some(now) };
            }
        }
    }

    /// What the writer calls itself.
    fn id(&self) -> Option<ServerId> {
        self.last.as_ref().map(|sight| sight.id.clone())
    }

    fn facts(&self, cluster: &Cluster, said: &BTreeMap<ServerAddr, Result<Sight, (Answer, String)>>, answer: Answer) -> Facts {
        let Some(addr) = &self.primary else { return Facts::default() };
        let others = cluster.servers.iter().filter(|server| server.key.addr() != *addr);
        let replicas = others.map(|server| self.replica(cluster, server, said.get(&server.key.addr()))).collect();
        // Of one that was never seen its replicas know what it calls itself.
        let sights = || said.values().filter_map(|said| said.as_ref().ok());
        let by_replicas =
            || sights().flat_map(|sight| &sight.channels).find(|line| is_at(line, Some(addr), None)).map(|line| &line.source_id);
        let id = self.id().or_else(|| by_replicas().cloned()).unwrap_or_default();
        let last = self.last.as_ref();
        let primary = Primary {
            addr: addr.clone(),
            id,
            version: last.map(|sight| sight.version).or_else(|| sights().next().map(|sight| sight.version)).unwrap_or_default(),
            executed: last.map(|sight| sight.executed.clone()),
            latest: None,
            semi_sync: last.and_then(|sight| sight.semi_sync),
            site: cluster.site(addr),
        };
        Facts { primary: Some(primary), is_alive: matches!(answer, Answer::Open | Answer::Closed), replicas }
    }

    fn replica(&self, cluster: &Cluster, server: &Arc<Server>, said: Option<&Result<Sight, (Answer, String)>>) -> Replica {
        let addr = server.key.addr();
        let told = cluster.told.iter().find(|told| told.is_about(&addr));
        let standing = Replica {
            declared: told.and_then(|told| told.promotion),
            is_written_as_writer: cluster.as_writers.contains_key(&addr),
            weight: cluster.as_writers.get(&addr).copied().unwrap_or(server.weight),
            site: cluster.site(&addr),
            ..Replica::silent(addr.clone(), "it was not asked")
        };
        let sight = match said {
            Some(Ok(sight)) => sight,
            Some(Err((_, why))) => return Replica { silence: Some(why.clone()), ..standing },
            None => return standing,
        };
        let channel = self.channel(cluster, &addr, sight);
        let received = sight.channels.iter().filter(|line| !cluster.is_foreign(&line.channel.name));
        let received = received.fold(sight.executed.clone(), |all, line| all.with(&line.received));
        // MariaDB waits for positions, and takes no set.
        let position = (!sight.version.is_mariadb).then(|| received.to_string());
        let channel = channel.map(|channel| Channel { position: position.unwrap_or_else(|| channel.position.clone()), ..channel });
        Replica {
            silence: None,
            id: sight.id.clone(),
            version: sight.version,
            executed: sight.executed.clone(),
            received,
            has_gtids: sight.has_gtids,
            logs: sight.logs,
            logs_updates: sight.logs_updates,
            is_acker: sight.is_acker,
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
        let until = self.lost.map_or_else(Instant::now, |lost| lost.since);
        let changed = self.heard.get(addr).and_then(|heard| heard.changed);
        let heard_ms = changed.map(|changed| whole(until.saturating_duration_since(changed).as_millis()));
        Some(Channel { is_from_primary: from_primary.is_some(), heard_ms, ..line.channel.clone() })
    }

    fn verdict(&mut self, monitor: &Monitor, cluster: &Cluster, facts: &Facts, answer: Answer) -> Verdict {
        if facts.primary.is_none() {
            return Verdict::Unknown;
        }
        let witnesses: Vec<Witness> = facts.replicas.iter().map(|replica| self.witness(replica)).collect();
        let before = self.lost.and_then(|lost| lost.received);
        let received = self.lost.and_then(|_| self.traffic(monitor));
        if let Some(lost) = &mut self.lost {
            lost.received = received.or(lost.received);
        }
        let elapsed = |since: Instant| whole(since.elapsed().as_millis());
        verdict(&Evidence {
            answer,
            has_traffic: before.zip(received).is_some_and(|(before, now)| now > before),
            witnesses: &witnesses,
            votes: votes(facts, &cluster.policy),
            lost_ms: self.lost.map_or(0, |lost| elapsed(lost.since)),
            dead_ms: cluster.policy.dead_ms,
            stuck_ms: self.stuck.as_ref().map_or(0, |(since, _)| elapsed(*since)),
        })
    }

    fn witness(&self, replica: &Replica) -> Witness {
        if replica.silence.is_some() {
            return Witness::Mute;
        }
        let heard = self.heard.get(&replica.addr);
        let changed = heard.and_then(|heard| heard.changed);
        let has_heard = changed.zip(self.lost).is_some_and(|(changed, lost)| changed > lost.looked);
        let quiet = changed.or_else(|| heard.and_then(|heard| heard.first));
        let quiet_ms = quiet.map_or(0, |since| whole(since.elapsed().as_millis()));
        witness(replica.channel.as_ref(), has_heard, quiet_ms)
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

/// Whether a channel is from this server: names of hosts may differ, identities do not.
fn is_at(line: &look::Line, addr: Option<&ServerAddr>, id: Option<&ServerId>) -> bool {
    if let Some(id) = id.filter(|_| line.source_id != ServerId::default()) {
        return line.source_id.is_same(id);
    }
    addr.is_some_and(|addr| line.channel.source.port == addr.port && line.channel.source.host.eq_ignore_ascii_case(&addr.host))
}

/// The member from which most others replicate: it wrote before this proxy looked.
fn named_source(cluster: &Cluster, said: &BTreeMap<ServerAddr, Result<Sight, (Answer, String)>>) -> Option<ServerAddr> {
    let sources = said.values().filter_map(|said| said.as_ref().ok()).flat_map(|sight| &sight.channels);
    let mut counts: BTreeMap<ServerAddr, usize> = BTreeMap::new();
    for line in sources.filter(|line| !cluster.is_foreign(&line.channel.name)) {
        let members = cluster.servers.iter().map(|server| server.key.addr());
        for addr in members.filter(|addr| is_at(line, Some(addr), None)) {
            *counts.entry(addr).or_default() += 1;
        }
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(addr, _)| addr)
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
    monitor.consult(|snapshot, layout| {
        let group = snapshot.roles.iter().find(|group| group.writer == writer)?;
        let policy = Arc::clone(snapshot.healing.get(&writer)?);
        let mut servers: BTreeMap<ServerAddr, &Placement> = BTreeMap::new();
        let mut writers = Vec::new();
        for placement in group.hostgroups().filter_map(|id| layout.hostgroups.get(&id)).flatten() {
            let addr = placement.server.key.addr();
            if placement.server.status == ServerStatus::OfflineHard || strangers.contains(&addr) {
                continue;
            }
            if placement.server.key.hostgroup == writer && placement.status == ServerStatus::Online {
                writers.push(addr.clone());
            }
            servers.entry(addr).or_insert(placement);
        }
        let as_writers = snapshot.hostgroup(writer).map_or(&[][..], |hostgroup| &hostgroup.servers[..]);
        let vars = &snapshot.vars;
        Some(Cluster {
            servers: servers.into_values().map(|placement| Arc::clone(&placement.server)).collect(),
            writers,
            policy,
            told: Arc::clone(&snapshot.healing_servers),
            account: Account::of(snapshot),
            user: vars.monitor_username.clone(),
            as_writers: as_writers.iter().map(|server| (server.key.addr(), server.weight)).collect(),
            foreign: snapshot.channels.iter().filter(|channel| channel.writer == writer).map(|channel| Arc::clone(&channel.name)).collect(),
            timeout: Duration::from_millis(vars.monitor_read_only_timeout),
        })
    })
}
