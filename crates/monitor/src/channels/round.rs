//! One cluster's channels: its servers are asked, judged, told. Lives on the monitor's thread from round to round.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::fleet::Placement;
use model::snapshot::{Channel, RoleKind, Server, ServerStatus};
use model::{HostgroupId, ServerAddr};
use tokio::task::JoinSet;
use topology::{Event, EventKind};

use super::act;
use super::judge::{self, Act, Judgement, Kind, Member, Memory, Scene, Sight, Source, State, Step};
use super::look;
use crate::client::{Access, Connection, Fault, open};
use crate::monitor::{Account, Monitor, lock};
use crate::statements::Credentials;

/// Longest wait for a server's answer. Other checks decide the role of a server that is silent for longer.
const LOOK_LIMIT: Duration = Duration::from_millis(1_500);
/// A cluster must have the same writers for this long before anything is done. While a proxy starts or a cluster falls apart, the writer
/// may change every few ms, and two proxies may see different ones.
const SETTLED: Duration = Duration::from_millis(750);
/// Longest wait for a server that must first apply what the other members have.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(10);
/// Longest wait for one statement: STOP waits for the transaction that is being applied.
const STEP_LIMIT: Duration = Duration::from_secs(30);
/// Time before a channel that lost its source is started again.
const START_AGAIN: Duration = Duration::from_secs(10);
/// How long it counts that another program took a channel away.
const CONTEST_MEMORY: Duration = Duration::from_secs(60);

/// The state that one round leaves to the next, for one cluster.
#[derive(Debug)]
pub(super) struct Keeping {
    /// The key of the cluster.
    pub(super) writer: HostgroupId,
    /// Steps were taken: what came of them is to be looked at now.
    pub(super) is_moving: bool,
    /// The writers of the last round.
    writers: Vec<ServerAddr>,
    lines: BTreeMap<ServerAddr, Line>,
    known: BTreeMap<Arc<str>, Known>,
}

#[derive(Debug)]
struct Line {
    access: Access,
    connection: Connection,
}

/// The state of one channel between rounds.
#[derive(Debug, Default)]
struct Known {
    tended: Option<ServerAddr>,
    released: Vec<ServerAddr>,
    started: Option<Instant>,
    contests: VecDeque<Instant>,
    /// Steps that failed in a row.
    failures: u32,
}

impl Known {
    fn memory(&self) -> Memory<'_> {
        Memory {
            tended: self.tended.as_ref(),
            released: &self.released,
            is_fresh: self.started.is_some_and(|when| when.elapsed() < START_AGAIN),
            contests: self.contests.iter().filter(|when| when.elapsed() < CONTEST_MEMORY).count(),
        }
    }
}

/// The configured servers and channels of a cluster.
struct Cluster {
    kind: Kind,
    servers: Vec<(Arc<Server>, bool)>,
    channels: Vec<Arc<Channel>>,
    account: Account,
    credentials: Option<Credentials>,
}

impl Keeping {
    pub(super) fn new(writer: HostgroupId) -> Self {
        Self { writer, is_moving: false, writers: Vec::new(), lines: BTreeMap::new(), known: BTreeMap::new() }
    }

    /// Asks the servers once and takes the steps that follow.
    pub(super) async fn round(mut self, monitor: Arc<Monitor>) -> Self {
        self.is_moving = false;
        let Some(cluster) = self.settled(&monitor).await else {
            for channel in monitor.snapshot().channels.iter().filter(|channel| channel.writer == self.writer) {
                let judged = Judgement::rest(State::Waiting, None, "its hostgroup is not the writer_hostgroup of a cluster");
                monitor.note_channel(channel, &judged);
            }
            return self;
        };
        self.known.retain(|name, _| cluster.channels.iter().any(|channel| channel.name == *name));
        let mut members = self.look_at_all(&monitor, &cluster).await;
        for channel in &cluster.channels {
            self.keep(&monitor, &cluster, channel, &mut members).await;
            // The steps changed the answers that the next channel would be judged by.
            if self.is_moving {
                break;
            }
        }
        self
    }

    /// The cluster, once it has had the same writers for a while.
    async fn settled(&mut self, monitor: &Arc<Monitor>) -> Option<Cluster> {
        loop {
            let cluster = cluster(monitor, self.writer)?;
            let writers = cluster.servers.iter().filter(|(_, is_writer)| *is_writer).map(|(server, _)| server.key.addr()).collect();
            if self.writers == writers {
                return Some(cluster);
            }
            self.writers = writers;
            // Another proxy may have seen the new writers earlier and moved channels: that is no contest.
            self.known.values_mut().for_each(|known| known.contests.clear());
            tokio::time::sleep(SETTLED).await;
        }
    }

    async fn keep(&mut self, monitor: &Arc<Monitor>, cluster: &Cluster, channel: &Arc<Channel>, members: &mut [Member]) {
        let mut known = self.known.remove(&channel.name).unwrap_or_default();
        let judge = |known: &Known, members: &[Member], source: &Source| {
            let has_credentials = cluster.credentials.is_some();
            judge::judge(&Scene { channel, kind: cluster.kind, members, memory: known.memory(), has_credentials, source })
        };
        let mut judged = judge(&known, members, &Source::NotAsked);
        if let Some(writer) = judged.server.clone().filter(|_| judged.moves()) {
            let source = ask_source(monitor, cluster, channel).await;
            // After all other members, so that the writer has applied all that they had.
            self.look_again(monitor, cluster, members, &writer).await;
            judged = judge(&known, members, &source);
        }
        if judged.state == State::Running {
            known.tended.clone_from(&judged.server);
        }
        let idle = judge::released(channel, members);
        known.released.retain(|server| !channel.is_active && members.iter().any(|member| member.addr == *server));
        for server in idle {
            if !known.released.contains(&server) {
                known.released.push(server);
            }
        }
        if judged.steps.is_empty() {
            known.failures = 0;
        }
        // A repeated failure is reported once.
        if known.failures == 0 {
            monitor.note_channel(channel, &judged);
        }
        if judged.is_contested && !judged.steps.is_empty() {
            known.contests.push_back(Instant::now());
            let surplus = known.contests.len().saturating_sub(judge::CONTESTS_MAX);
            known.contests.drain(..surplus);
        }
        if !judged.steps.is_empty() {
            match self.take(monitor, cluster, channel, &judged.steps).await {
                Ok(()) => {
                    self.is_moving = true;
                    known.failures = 0;
                    if judged.starts() {
                        (known.tended, known.started) = (judged.server.clone(), Some(Instant::now()));
                    }
                }
                Err(reason) => {
                    known.failures = known.failures.saturating_add(1);
                    // Another proxy may have acted a moment earlier: then the next round finds all well.
                    if known.failures > 1 {
                        monitor.note_channel(channel, &Judgement { state: State::Blocked, reason, ..judged });
                    }
                }
            }
        }
        self.known.insert(Arc::clone(&channel.name), known);
    }

    /// Takes steps in order, an event each.
    async fn take(&mut self, monitor: &Arc<Monitor>, cluster: &Cluster, channel: &Channel, steps: &[Step]) -> Result<(), String> {
        for step in steps {
            // A switchover changes the writer: the next round decides again.
            if lock(&monitor.claims).is_taken(self.writer) {
                return Err("a switchover is under way".to_owned());
            }
            let what = described(channel, step);
            let outcome = match self.lines.get_mut(&step.server) {
                None => Err("its connection is lost".to_owned()),
                Some(line) => {
                    let acted = act::act(&mut line.connection, channel, &step.act, cluster.credentials.as_ref());
                    match tokio::time::timeout(STEP_LIMIT, acted).await {
                        Ok(outcome) => outcome,
                        Err(_) => Err(format!("no answer within {} s", STEP_LIMIT.as_secs())),
                    }
                }
            };
            if let Err(why) = outcome {
                self.lines.remove(&step.server);
                return Err(format!("{}: {what}: {why}", step.server));
            }
            monitor.note(vec![Event { server: Some(step.server.clone()), to: what, why: step.why.clone(), ..event(monitor, channel) }]);
        }
        Ok(())
    }

    /// Asks every server at once.
    async fn look_at_all(&mut self, monitor: &Arc<Monitor>, cluster: &Cluster) -> Vec<Member> {
        let mut asked = JoinSet::new();
        for (place, (server, is_writer)) in cluster.servers.iter().enumerate() {
            let (addr, access) = (server.key.addr(), cluster.account.access(server));
            let line = self.lines.remove(&addr).filter(|line| line.access == access);
            let (monitor, kind, is_writer) = (Arc::clone(monitor), cluster.kind, *is_writer);
            asked.spawn(async move {
                let (line, sight) = ask(&monitor, line, access, kind, false, LOOK_LIMIT).await;
                (place, line, Member { addr, is_writer, sight })
            });
        }
        let mut answers = asked.join_all().await;
        answers.sort_by_key(|(place, ..)| *place);
        self.lines.clear();
        let mut members = Vec::with_capacity(answers.len());
        for (_, line, member) in answers {
            self.lines.extend(line.map(|line| (member.addr.clone(), line)));
            members.push(member);
        }
        members
    }

    /// Asks one server again, once it has applied all that the other members have.
    async fn look_again(&mut self, monitor: &Arc<Monitor>, cluster: &Cluster, members: &mut [Member], server: &ServerAddr) {
        let Some((known, _)) = cluster.servers.iter().find(|(known, _)| known.key.addr() == *server) else { return };
        let line = self.lines.remove(server);
        let access = cluster.account.access(known);
        let (line, sight) = ask(monitor, line, access, cluster.kind, true, CATCH_UP_LIMIT).await;
        self.lines.extend(line.map(|line| (server.clone(), line)));
        if let Some(member) = members.iter_mut().find(|member| member.addr == *server) {
            member.sight = sight;
        }
    }
}

/// Asks a server, over the connection that there is, else a new one; a connection that failed is not kept.
async fn ask(
    monitor: &Monitor,
    line: Option<Line>,
    access: Access,
    kind: Kind,
    after_all: bool,
    limit: Duration,
) -> (Option<Line>, Result<Sight, String>) {
    let asked = async {
        // One that was idle may have been ended for that alone.
        if let Some(mut line) = line
            && let Ok(sight) = look::member(&mut line.connection, kind, after_all).await
        {
            return Ok::<_, Fault>((line, sight));
        }
        let mut connection = open(&monitor.connector, &access).await?;
        let sight = look::member(&mut connection, kind, after_all).await?;
        Ok((Line { access, connection }, sight))
    };
    match tokio::time::timeout(limit, asked).await {
        Ok(Ok((line, sight))) => (Some(line), Ok(sight)),
        Ok(Err(fault)) => (None, Err(fault.to_string())),
        Err(_) => (None, Err(format!("no answer within {} ms", limit.as_millis()))),
    }
}

/// The source's GTIDs, asked as the channel's user.
async fn ask_source(monitor: &Monitor, cluster: &Cluster, channel: &Channel) -> Source {
    let Some(credentials) = &cluster.credentials else { return Source::Silent };
    let access = Access {
        server: Arc::new(Server::at(&channel.source)),
        user: credentials.user.as_str().into(),
        password: credentials.password.clone(),
        wait_timeout_s: None,
    };
    let asked = async { look::source(&mut open(&monitor.connector, &access).await?).await };
    match tokio::time::timeout(LOOK_LIMIT, asked).await {
        Ok(Ok(source)) => source,
        // The server that replicates from it will say so itself.
        Ok(Err(_)) | Err(_) => Source::Silent,
    }
}

fn described(channel: &Channel, step: &Step) -> String {
    match &step.act {
        Act::Stop => "stopped".to_owned(),
        Act::Point => format!("source {}", channel.source),
        Act::Place(position) => format!("gtid_slave_pos {position}"),
        Act::Start => "started".to_owned(),
    }
}

fn event(monitor: &Monitor, channel: &Channel) -> Event {
    Event {
        at_ms: monitor.clock.now_ms(),
        cluster: Some(channel.writer),
        server: None,
        kind: EventKind::Channel,
        from: format!("channel '{}'", channel.name),
        to: String::new(),
        seen: String::new(),
        by: "probe",
        why: String::new(),
    }
}

/// Servers in the order of preference, each with whether it writes.
fn cluster(monitor: &Monitor, writer: HostgroupId) -> Option<Cluster> {
    let identities = monitor.identities();
    let strangers: Vec<&ServerAddr> =
        identities.iter().filter(|one| one.writer == writer && one.is_stranger()).map(|one| &one.server).collect();
    monitor.consult(|snapshot, layout| {
        let group = snapshot.roles.iter().find(|group| group.writer == writer)?;
        let kind = match group.kind {
            RoleKind::Replication(_) => Kind::Replication,
            RoleKind::Galera => Kind::Galera,
            RoleKind::GroupReplication => Kind::Group,
            RoleKind::Aurora(_) => return None,
        };
        let mut servers: BTreeMap<ServerAddr, (&Placement, bool)> = BTreeMap::new();
        for placement in group.hostgroups().filter_map(|id| layout.hostgroups.get(&id)).flatten() {
            let key = &placement.server.key;
            // Strangers and replicas set to OFFLINE_HARD are skipped. A node set to OFFLINE_HARD is still in its cluster.
            let is_out = kind == Kind::Replication && placement.server.status == ServerStatus::OfflineHard;
            if is_out || strangers.contains(&&key.addr()) {
                continue;
            }
            let writes = key.hostgroup == writer && placement.status == ServerStatus::Online;
            let known = servers.entry(key.addr()).or_insert((placement, writes));
            if writes {
                *known = (placement, true);
            }
        }
        let mut servers: Vec<(Arc<Server>, bool)> =
            servers.into_values().map(|(placement, writes)| (Arc::clone(&placement.server), writes)).collect();
        servers.sort_by_key(|(server, _)| std::cmp::Reverse(server.weight));
        let vars = &snapshot.vars;
        let credentials = (!vars.replication_channel_username.is_empty())
            .then(|| Credentials { user: vars.replication_channel_username.clone(), password: vars.replication_channel_password.clone() });
        let channels = snapshot.channels.iter().filter(|channel| channel.writer == writer).cloned().collect();
        Some(Cluster { kind, servers, channels, account: Account::of(snapshot), credentials })
    })
}

impl Monitor {
    /// Records a channel's state, with an event if it changed.
    fn note_channel(&self, channel: &Channel, judged: &Judgement) {
        let Some(was) = lock(&self.channels).note((channel.writer, Arc::clone(&channel.name)), judged) else { return };
        let to = judged.state.as_str().to_owned();
        // The steps have events of their own.
        if judged.state != State::Moving {
            let why = if judged.reason.is_empty() { "as its servers say".to_owned() } else { judged.reason.clone() };
            let from = format!("channel '{}' {was}", channel.name).trim_end().to_owned();
            self.note(vec![Event { server: judged.server.clone(), from, to, why, ..event(self, channel) }]);
        }
    }

    pub(super) fn forget_channels(&self) {
        let snapshot = self.snapshot();
        lock(&self.channels).forget(&snapshot);
    }
}
