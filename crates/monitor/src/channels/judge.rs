//! The steps for one channel: a pure function of the servers' answers.
//!
//! INVARIANT: no step starts a channel while another member that answers runs it, and none touches a channel of another name.

use model::ServerAddr;
use model::snapshot::Channel;
use topology::GtidSet;

use super::position::Position;

/// Times per [`Memory::contests`] that another program may take a channel away before the proxy leaves it alone.
pub(super) const CONTESTS_MAX: usize = 3;
/// Errors of a lost source: the client library's errors of the network, and those of a source that is full or shuts down.
const LOST: [std::ops::RangeInclusive<u64>; 4] = [2_000..=2_999, 1_040..=1_040, 1_053..=1_053, 1_158..=1_161];

/// The input of a judgement.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    /// Its row of `mysql_replication_channels`.
    pub(super) channel: &'a Channel,
    /// Of the receiving cluster.
    pub(super) kind: Kind,
    /// All servers of the cluster, those that are preferred as writers first.
    pub(super) members: &'a [Member],
    /// The earlier acts of this proxy.
    pub(super) memory: Memory<'a>,
    /// Whether the settings name an account for channels that have none yet.
    pub(super) has_credentials: bool,
    /// The source's own answer.
    pub(super) source: &'a Source,
}

/// How a cluster replicates within.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Replicas follow their primary.
    Replication,
    Galera,
    Group,
}

/// The earlier acts of this proxy.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Memory<'a> {
    /// The server on which the proxy last saw the channel run, or started it.
    pub(super) tended: Option<&'a ServerAddr>,
    /// Servers on which the channel has stood still since `active=0`. If it is started there later, the proxy leaves it.
    pub(super) released: &'a [ServerAddr],
    /// It was started a moment ago: errors of the network are no reason to start it again yet.
    pub(super) is_fresh: bool,
    /// How often another program took it away lately.
    pub(super) contests: usize,
}

/// One server of the receiving cluster.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) addr: ServerAddr,
    /// Whether it takes writes.
    pub(super) is_writer: bool,
    /// Its answer, or why there is none.
    pub(super) sight: Result<Sight, String>,
}

/// The answer of a server.
#[derive(Debug, Clone, Default)]
pub(super) struct Sight {
    /// False for MySQL, whose GTIDs differ.
    pub(super) is_mariadb: bool,
    /// Its channels, without those of a group itself.
    pub(super) links: Vec<Link>,
    /// MySQL: `gtid_mode=ON`.
    pub(super) has_gtids: bool,
    /// Settings, by name, that this member lacks to pass the source's GTIDs on to other members.
    pub(super) lacks: Vec<&'static str>,
    /// MySQL: `gtid_executed`.
    pub(super) executed: GtidSet,
    /// MariaDB: `gtid_slave_pos`.
    pub(super) replicated: Position,
    /// MariaDB: `gtid_binlog_pos`.
    pub(super) logged: Position,
    /// MariaDB: the domains in which it writes itself.
    pub(super) own_domains: Vec<u32>,
    /// MariaDB: `gtid_ignore_duplicates`.
    pub(super) ignores_duplicates: bool,
    /// How many nodes of a Galera cluster it sees.
    pub(super) nodes: Option<usize>,
}

/// A channel on a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Link {
    pub(crate) name: String,
    /// The configured source; None if there is none.
    pub(crate) source: Option<ServerAddr>,
    /// It reads from the source.
    pub(crate) receiver: Thread,
    /// It applies what the receiver read.
    pub(crate) applier: Thread,
    /// It finds its place by GTIDs.
    pub(crate) is_by_gtid: bool,
    /// MariaDB: domains that it takes only, or does not take.
    pub(crate) chosen_domains: String,
    /// MariaDB: domains that it does not take.
    pub(crate) ignored_domains: Vec<u32>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Thread {
    pub(crate) state: ThreadState,
    /// Its last error: number and text.
    pub(crate) error: Option<(u64, String)>,
}

/// A thread's state, as the server shows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ThreadState {
    #[default]
    Stopped,
    /// It tries to reach the source.
    Connecting,
    Runs,
}

/// The answer of a source.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// It is asked only before the channel starts.
    NotAsked,
    /// It did not answer, or there is no account to ask it with.
    Silent,
    /// GTIDs of a MySQL source.
    Mysql {
        /// `gtid_mode=ON`.
        has_gtids: bool,
        /// `gtid_purged`.
        purged: GtidSet,
        /// `gtid_executed`.
        executed: GtidSet,
        /// Its `server_uuid`.
        uuid: String,
    },
    /// GTIDs of a MariaDB source.
    Mariadb {
        /// `gtid_binlog_state`.
        logged: Position,
        /// `gtid_domain_id`.
        domain: u32,
    },
}

/// The channel's state, as tables and metrics show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It runs on the writer.
    Running,
    /// It runs, and does not reach its source.
    Connecting,
    /// The cluster has no writer, or another server's answer or change has to come first.
    Waiting,
    /// Steps are being taken.
    Moving,
    /// The servers stopped it with an error.
    Failed,
    /// It is not touched, as that would not be safe.
    Blocked,
    /// Its row has `active=0`.
    Inactive,
}

impl State {
    /// In the order of the metrics.
    pub(super) const ALL: [Self; 7] =
        [Self::Running, Self::Connecting, Self::Waiting, Self::Moving, Self::Failed, Self::Blocked, Self::Inactive];

    /// As tables and metrics name it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Connecting => "connecting",
            Self::Waiting => "waiting",
            Self::Moving => "moving",
            Self::Failed => "failed",
            Self::Blocked => "blocked",
            Self::Inactive => "inactive",
        }
    }
}

/// One thing to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) server: ServerAddr,
    pub(super) act: Act,
    /// For the event.
    pub(super) why: String,
}

/// A change of a channel on one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    /// Both threads are stopped.
    Stop,
    /// It is told its source, and to go by GTIDs.
    Point,
    /// MariaDB: `gtid_slave_pos` is set to this position.
    Place(Position),
    /// Both threads are started.
    Start,
}

/// The channel's state, and the steps to improve it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Judgement {
    pub(super) state: State,
    /// The server that runs the channel or should run it.
    pub(super) server: Option<ServerAddr>,
    /// Why it is so; empty where all is well.
    pub(super) reason: String,
    /// In order; when one fails the rest is left.
    pub(super) steps: Vec<Step>,
    /// Another program started it on a server that is not the writer.
    pub(super) is_contested: bool,
}

impl Judgement {
    /// Nothing is done.
    pub(super) fn rest(state: State, server: Option<&ServerAddr>, reason: impl Into<String>) -> Self {
        Self { state, server: server.cloned(), reason: reason.into(), steps: Vec::new(), is_contested: false }
    }

    fn act(server: &ServerAddr, steps: Vec<Step>) -> Self {
        let reason = steps.first().map(|step| step.why.clone()).unwrap_or_default();
        Self { steps, ..Self::rest(State::Moving, Some(server), reason) }
    }

    /// Whether it is about to be started here, or stopped to be started here.
    pub(super) fn moves(&self) -> bool {
        self.state == State::Moving && !self.steps.is_empty()
    }

    /// Whether it is about to be started.
    pub(super) fn starts(&self) -> bool {
        self.steps.iter().any(|step| step.act == Act::Start)
    }
}

impl Link {
    fn runs(&self) -> bool {
        self.receiver.state != ThreadState::Stopped || self.applier.state != ThreadState::Stopped
    }
}

impl Member {
    fn link(&self, channel: &Channel) -> Option<&Link> {
        self.sight.as_ref().ok()?.links.iter().find(|link| channel.is_called(&link.name))
    }

    fn runs(&self, channel: &Channel) -> bool {
        self.link(channel).is_some_and(Link::runs)
    }
}

/// See the module.
pub(super) fn judge(scene: &Scene<'_>) -> Judgement {
    if let Some((member, source)) = own_source(scene) {
        let why = format!("on {member} it replicates from {source}, a server of this cluster: it is the cluster's own");
        return Judgement::rest(State::Blocked, None, why);
    }
    if !scene.channel.is_active {
        return inactive(scene);
    }
    let Some(writer) = writer(scene) else {
        let runs = scene.members.iter().find(|member| member.runs(scene.channel));
        return Judgement::rest(State::Waiting, runs.map(|member| &member.addr), "the cluster has no writer: nothing is touched");
    };
    let sight = match &writer.sight {
        Ok(sight) => sight,
        Err(why) => return Judgement::rest(State::Waiting, Some(&writer.addr), format!("the writer cannot be asked: {why}")),
    };
    let elsewhere: Vec<&Member> = scene.members.iter().filter(|member| member.addr != writer.addr && member.runs(scene.channel)).collect();
    if !elsewhere.is_empty() {
        return stop_elsewhere(scene, writer, sight, &elsewhere);
    }
    let here = writer.link(scene.channel);
    let is_there = here.is_some_and(|link| link.source.as_ref().is_some_and(|source| source.is_same(&scene.channel.source)));
    match here.filter(|_| is_there) {
        Some(link) if link.receiver.state != ThreadState::Stopped && link.applier.state != ThreadState::Stopped => {
            running(writer, sight, link)
        }
        Some(link) => stopped(scene, writer, sight, link),
        None if is_moved(scene, writer) => start(scene, writer, sight, format!("{} is the writer now", writer.addr)),
        None => start(scene, writer, sight, format!("{} is to replicate from {}", writer.addr, scene.channel.source)),
    }
}

/// A member on which the channel of this name is one within the cluster.
fn own_source<'a>(scene: &'a Scene<'_>) -> Option<(&'a ServerAddr, &'a ServerAddr)> {
    let is_member = |addr: &ServerAddr| scene.members.iter().any(|member| member.addr.is_same(addr));
    let of = |member: &'a Member| Some((&member.addr, member.link(scene.channel)?.source.as_ref()?));
    scene.members.iter().filter_map(of).find(|(_, source)| is_member(source))
}

fn inactive(scene: &Scene<'_>) -> Judgement {
    let running = || scene.members.iter().filter(|member| member.runs(scene.channel));
    let ours: Vec<&Member> = running().filter(|member| !scene.memory.released.contains(&member.addr)).collect();
    let Some(first) = ours.first() else {
        return match running().next() {
            Some(other) => Judgement::rest(
                State::Inactive,
                Some(&other.addr),
                "another program started the channel again: the proxy leaves the channel alone",
            ),
            None => Judgement::rest(State::Inactive, None, ""),
        };
    };
    let why = "the channel is not active (active=0)";
    let stop = |member: &&Member| Step { server: member.addr.clone(), act: Act::Stop, why: why.to_owned() };
    Judgement { state: State::Inactive, ..Judgement::act(&first.addr, ours.iter().map(stop).collect()) }
}

/// The servers on which an inactive channel does not run.
pub(super) fn released(channel: &Channel, members: &[Member]) -> Vec<ServerAddr> {
    let is_idle = |member: &&Member| !channel.is_active && member.sight.is_ok() && !member.runs(channel);
    members.iter().filter(is_idle).map(|member| member.addr.clone()).collect()
}

/// Of several that write, the one that runs it already, else the first.
fn writer<'a>(scene: &'a Scene<'_>) -> Option<&'a Member> {
    let writers = || scene.members.iter().filter(|member| member.is_writer);
    writers().find(|member| member.runs(scene.channel)).or_else(|| writers().next())
}

/// Stops the channel beside the writer. It is started in a later round, since the writer's GTIDs must be read after the stop. If the writer
/// could not continue it, it stays where it runs.
fn stop_elsewhere(scene: &Scene<'_>, writer: &Member, sight: &Sight, elsewhere: &[&Member]) -> Judgement {
    let runs_on = elsewhere.first().map(|member| &member.addr);
    if let Err((state, why)) = may_start(scene, writer, sight) {
        return Judgement::rest(state, runs_on, format!("the proxy does not move the channel to the writer {}: {why}", writer.addr));
    }
    let is_contested = scene.memory.tended == Some(&writer.addr);
    if is_contested && scene.memory.contests >= CONTESTS_MAX {
        let where_ = elsewhere.iter().map(|member| member.addr.to_string()).collect::<Vec<_>>().join(", ");
        let why = format!(
            "another program keeps starting the channel on {where_}, but {} is the writer: the proxy leaves the channel alone for a while",
            writer.addr
        );
        return Judgement::rest(State::Blocked, runs_on, why);
    }
    let why = format!("{} is the writer, not this server", writer.addr);
    let stop = |member: &&Member| Step { server: member.addr.clone(), act: Act::Stop, why: why.clone() };
    Judgement { is_contested, ..Judgement::act(&writer.addr, elsewhere.iter().map(stop).collect()) }
}

fn running(writer: &Member, sight: &Sight, link: &Link) -> Judgement {
    if link.receiver.state == ThreadState::Connecting {
        return match &link.receiver.error {
            Some((code, text)) => Judgement::rest(State::Connecting, Some(&writer.addr), format!("{text} (error {code})")),
            None => Judgement::rest(State::Moving, Some(&writer.addr), "it is about to reach its source"),
        };
    }
    let warning = match () {
        () if !link.is_by_gtid => "the channel does not use GTIDs, so the proxy cannot move it".to_owned(),
        () if !sight.lacks.is_empty() => format!("the proxy could not move the channel from here: {}", lacking(sight)),
        () => String::new(),
    };
    Judgement::rest(State::Running, Some(&writer.addr), warning)
}

fn lacking(sight: &Sight) -> String {
    format!("this server lacks {}, so other servers do not get the source's GTIDs", sight.lacks.join(", "))
}

/// Whether the proxy last saw it on another server.
fn is_moved(scene: &Scene<'_>, writer: &Member) -> bool {
    scene.memory.tended.is_some_and(|tended| *tended != writer.addr)
}

/// The writer has the channel, but a thread of it is stopped.
fn stopped(scene: &Scene<'_>, writer: &Member, sight: &Sight, link: &Link) -> Judgement {
    // If the channel was last seen elsewhere, an error on this server is older than the move.
    let is_moved = is_moved(scene, writer);
    let is_lost = |thread: &Thread| thread.error.as_ref().is_some_and(|(code, _)| LOST.iter().any(|codes| codes.contains(code)));
    let ended = [&link.applier, &link.receiver].into_iter().filter(|thread| thread.state == ThreadState::Stopped);
    let error = ended.filter_map(|thread| thread.error.as_ref().map(|error| (thread, error))).next().filter(|_| !is_moved);
    match error {
        None if is_moved => start(scene, writer, sight, format!("{} is the writer now", writer.addr)),
        None => start(scene, writer, sight, "the channel is active but was stopped without an error".to_owned()),
        Some((thread, (code, text))) if is_lost(thread) => {
            if scene.memory.is_fresh {
                Judgement::rest(State::Connecting, Some(&writer.addr), format!("{text} (error {code})"))
            } else {
                start(scene, writer, sight, format!("the channel gave up reaching its source: {text} (error {code})"))
            }
        }
        Some((_, (code, text))) => Judgement::rest(
            State::Failed,
            Some(&writer.addr),
            format!("{text} (error {code}): the proxy leaves the channel as it is; repair it and start it"),
        ),
    }
}

/// The steps that start it on the writer, where that is safe.
fn start(scene: &Scene<'_>, writer: &Member, sight: &Sight, why: String) -> Judgement {
    if let Err((state, reason)) = may_start(scene, writer, sight) {
        return Judgement::rest(state, Some(&writer.addr), reason);
    }
    let link = writer.link(scene.channel);
    let mut acts = Vec::new();
    let is_right =
        link.is_some_and(|link| link.is_by_gtid && link.source.as_ref().is_some_and(|source| source.is_same(&scene.channel.source)));
    let place = sight.is_mariadb.then(|| place(scene, sight)).filter(|place| *place != sight.replicated);
    if link.is_some_and(Link::runs) && (!is_right || place.is_some()) {
        acts.push(Act::Stop);
    }
    if !is_right {
        acts.push(Act::Point);
    }
    acts.extend(place.map(Act::Place));
    acts.push(Act::Start);
    Judgement::act(&writer.addr, acts.into_iter().map(|act| Step { server: writer.addr.clone(), act, why: why.clone() }).collect())
}

/// The writer's position in foreign domains, from replication and from its binary log.
fn place(scene: &Scene<'_>, sight: &Sight) -> Position {
    let own = &sight.own_domains;
    let place = sight.replicated.clone().with(&sight.logged, own);
    match scene.kind {
        // All nodes have the same data, and the writer was last asked after it had applied all that the nodes had.
        Kind::Galera => {
            let nodes = scene.members.iter().filter_map(|member| member.sight.as_ref().ok());
            nodes.fold(place, |place, node| place.with(&node.replicated, own).with(&node.logged, own))
        }
        Kind::Replication | Kind::Group => place,
    }
}

fn may_start(scene: &Scene<'_>, writer: &Member, sight: &Sight) -> Result<(), (State, String)> {
    let blocked = |why: String| Err((State::Blocked, why));
    let link = writer.link(scene.channel);
    if !sight.is_mariadb && !sight.has_gtids {
        return blocked(format!("gtid_mode is not ON on {}", writer.addr));
    }
    if scene.kind == Kind::Galera && !sight.lacks.is_empty() {
        return blocked(format!("the start position of the channel is unknown: {}", lacking(sight)));
    }
    if let Some(why) = unseen(scene, sight) {
        return Err((State::Waiting, why));
    }
    if sight.is_mariadb {
        may_start_mariadb(scene, writer, sight)?;
    }
    if link.is_none() && !scene.has_credentials {
        return blocked(format!(
            "{} has no such channel and mysql-replication_channel_username is empty: set it, or create the channel there",
            writer.addr
        ));
    }
    suits(scene, writer, sight).map_err(|why| (State::Blocked, why))
}

/// A node of the cluster that cannot be asked may run the channel, and its changes reach all nodes.
fn unseen(scene: &Scene<'_>, sight: &Sight) -> Option<String> {
    let silent: Vec<String> = scene.members.iter().filter(|member| member.sight.is_err()).map(|member| member.addr.to_string()).collect();
    let answering = scene.members.len() - silent.len();
    let nodes = sight.nodes.filter(|nodes| !silent.is_empty() && *nodes > answering)?;
    Some(format!("only {answering} of {nodes} nodes answer: {} may still run the channel", silent.join(", ")))
}

/// Why MariaDB must not start it yet. It applies every transaction that it is sent, even twice.
fn may_start_mariadb(scene: &Scene<'_>, writer: &Member, sight: &Sight) -> Result<(), (State, String)> {
    let is_member = |addr: &ServerAddr| scene.members.iter().any(|member| member.addr.is_same(addr));
    let own = |link: &&Link| link.runs() && link.source.as_ref().is_some_and(is_member);
    let inner = sight.links.iter().find(|link| own(link) && link.chosen_domains.is_empty());
    if let Some(source) = inner.and_then(|link| link.source.as_ref()).filter(|_| !sight.ignores_duplicates) {
        return Err((
            State::Waiting,
            format!(
                "{} still replicates from {source}, a server of its own cluster, and may get transactions twice: stop that replication, \
                 or set gtid_ignore_duplicates=ON",
                writer.addr
            ),
        ));
    }
    let place = place(scene, sight);
    let others: Vec<&str> =
        sight.links.iter().filter(|link| link.runs() && !scene.channel.is_called(&link.name)).map(|link| link.name.as_str()).collect();
    if place != sight.replicated && !others.is_empty() {
        let why = format!(
            "gtid_slave_pos of {} must include {place}, and can be set only while no channel runs: '{}' runs",
            writer.addr,
            others.join("', '")
        );
        return Err((State::Blocked, why));
    }
    Ok(())
}

/// Whether the source can go on where the writer is.
fn suits(scene: &Scene<'_>, writer: &Member, sight: &Sight) -> Result<(), String> {
    let (source, to) = (&scene.channel.source, &writer.addr);
    match scene.source {
        Source::NotAsked | Source::Silent => Ok(()),
        Source::Mysql { .. } if sight.is_mariadb => Err(format!("{source} is MySQL, whose GTIDs MariaDB cannot use")),
        Source::Mariadb { .. } if !sight.is_mariadb => Err(format!("{source} is MariaDB, whose GTIDs MySQL cannot use")),
        Source::Mysql { has_gtids, purged, executed, uuid } => {
            let errant = sight.executed.of_source(uuid).missing_in(executed);
            let lost = purged.missing_in(&sight.executed);
            match () {
                () if !has_gtids => Err(format!("gtid_mode is not ON on the source {source}")),
                () if lost > 0 => Err(format!("the source {source} has purged {lost} transactions from its binlogs that {to} lacks")),
                () if errant > 0 => Err(format!("{to} has {errant} transactions of the source {source} that the source itself lacks")),
                () => Ok(()),
            }
        }
        Source::Mariadb { logged, domain } => {
            let ignored = writer.link(scene.channel).map(|link| link.ignored_domains.as_slice()).unwrap_or_default();
            let both = sight.own_domains.iter().find(|own| **own == *domain);
            let back = sight.own_domains.iter().find(|own| logged.has(**own) && !ignored.contains(own));
            match (both, back) {
                (Some(own), _) => Err(format!(
                    "the source {source} writes in GTID domain {own}, as {to} does: give each cluster a gtid_domain_id of its own"
                )),
                (None, Some(own)) => Err(format!(
                    "the source {source} has transactions of this cluster's own GTID domain {own}: make the channel with \
                     IGNORE_DOMAIN_IDS=({own}) on each server"
                )),
                (None, None) => Ok(()),
            }
        }
    }
}
