//! The servers of each hostgroup, and the traits between the monitor (watches the servers), the data plane (uses them) and the admin (gives
//! orders).
//!
//! Facts go up as [`Signal`]s, decisions come down as whole [`Layout`]s. A layout is observed state: it is never written back as
//! configuration. INVARIANT: of two layouts the one with the larger revision is the later; an older one is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::ids::{HostgroupId, ServerAddr};
use crate::snapshot::{Server, ServerStatus, Snapshot};

/// One server in one hostgroup, as it is to be used now.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// The row for connections. `server.key.hostgroup` is the hostgroup that it serves. The other values are those of its row of
    /// `mysql_servers` for that hostgroup, or of a derived row. `server.status` is the operator's.
    pub server: Arc<Server>,
    /// Whether it is used. Never better than the operator's status.
    pub status: ServerStatus,
    /// Whether its running statements may finish once it is no longer used.
    pub under_way: UnderWay,
    /// Why it is not ONLINE, or why it is in this hostgroup; empty if it is simply configured.
    pub why: Arc<str>,
}

impl Placement {
    /// As the operator wrote it.
    pub fn configured(server: &Arc<Server>) -> Self {
        Self { server: Arc::clone(server), status: server.status, under_way: UnderWay::MayFinish, why: "".into() }
    }
}

/// The fate of running statements on a server that is no longer used. Later variants are harder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum UnderWay {
    /// They end by themselves. An open transaction has `demotion_grace_ms`.
    #[default]
    MayFinish,
    /// They may never end, because the server is cut off from its cluster's majority or from the monitor. Statements without an answer
    /// after `demotion_grace_ms` are given up.
    EndsAfterGrace,
    /// The server is taken for dead: its connections are closed, also those at work.
    Severed,
}

/// Every server of every hostgroup.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Layout {
    /// Grows with each change.
    pub revision: u64,
    /// By hostgroup, in a stable order. A hostgroup that is not named has no servers.
    pub hostgroups: BTreeMap<HostgroupId, Vec<Placement>>,
}

impl Layout {
    /// As the operator wrote it: for a proxy whose monitor is off.
    pub fn as_configured(snapshot: &Snapshot) -> Self {
        let placed = |servers: &[Arc<Server>]| servers.iter().map(Placement::configured).collect();
        let hostgroups = snapshot.hostgroups.values().map(|h| (h.id, placed(&h.servers))).collect();
        Self { revision: 0, hostgroups }
    }
}

/// A report from traffic: a reason to check the server at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signal {
    /// The server that the session used.
    pub server: ServerAddr,
    /// The hostgroup for which the session used it.
    pub hostgroup: HostgroupId,
    /// The observation, for example a refused connect or a read-only error.
    pub kind: SignalKind,
}

/// The observations of the data plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SignalKind {
    /// No connection could be opened.
    ConnectFailed,
    /// A connection broke while a statement ran.
    ConnectionLost,
    /// It refuses writes as read-only: errors 1290 (`--read-only`, `--super-read-only`), 1792, 1836.
    ReadOnly,
    /// It is no part of the primary component: errors 1047, and at a commit 1180 (Galera) or 3100 (Group Replication).
    NotReady,
    /// It is shutting down: error 1053, or a connection that it closed with 1927 or 4031.
    ShuttingDown,
    /// Galera certification failed a statement: error 1213 or 1205 on a cluster's node, 3101 on a group's member.
    Certification,
    /// It answered a connect again after failures.
    Recovered,
}

impl SignalKind {
    /// As events and metrics name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConnectFailed => "connect_failed",
            Self::ConnectionLost => "connection_lost",
            Self::ReadOnly => "read_only",
            Self::NotReady => "not_ready",
            Self::ShuttingDown => "shutting_down",
            Self::Certification => "certification",
            Self::Recovered => "recovered",
        }
    }
}

/// Measured values of a server, which change too often for a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Measured {
    /// Average of the last pings, us; 0 while unknown.
    pub latency_us: u64,
    /// How far it is behind its source, ms; None while unknown or when it is no replica.
    pub lag_ms: Option<u64>,
    /// It is the source of replicas whose lag is limited: reads with a limit of lag spare it.
    pub is_source: bool,
}

/// The sessions that use a hostgroup or wait for it, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostgroupLoad {
    /// Sessions that wait for a backend.
    pub waiting: u32,
    /// Backends that a session has: statements that run, open transactions, other pins.
    pub in_use: u32,
    /// Of these, sessions with an open transaction.
    pub in_transaction: u32,
}

/// A session that keeps its connection for something that ends neither with a statement nor with a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// The session's number, for the operator.
    pub session: u64,
    /// The reason, as in `stats_tidegate_pins`.
    pub why: String,
}

/// Decides the role of each server. Called from any thread; must not block for longer than a computation.
pub trait RoleKeeper: Send + Sync {
    /// A configuration is about to be in force. Returns the layout under it. Observed states stay known.
    fn configure(&self, snapshot: &Arc<Snapshot>) -> Layout;

    /// Something was seen in traffic. Never blocks: signals about the same thing are merged, and beyond a bound dropped and
    /// counted.
    fn signal(&self, signal: Signal);
}

/// Uses the servers. Called from the monitor's thread; no call blocks for longer than a worker's turn.
pub trait Fleet: Send + Sync {
    /// Uses the servers as this says, at once. A layout that is older than the one in use is dropped.
    fn arrange(&self, layout: Layout);

    /// Passes new measured values to the workers. [`RoleKeeper::configure`] calls it too, on its own thread, so it takes no lock that a
    /// caller of that may hold.
    fn measured(&self, server: &ServerAddr, measured: Measured);

    /// A server was looked at, and whatever follows for its roles was arranged: what traffic said against it before is over.
    fn looked_at(&self, server: &ServerAddr);

    /// The addresses that a name no longer has, as a whole list. Connections to them serve no new session.
    fn moved(&self, host: &str, gone: &[IpAddr]);

    /// Holds or releases a hostgroup. While it is held, no statement begins there unless it is part of an open transaction or of another
    /// pin. Sessions wait in order, as long as they would wait for a server.
    fn hold(&self, hostgroup: HostgroupId, is_held: bool);

    /// The sessions that wait or work there now.
    fn load(&self, hostgroup: HostgroupId) -> HostgroupLoad;

    /// Sessions that keep a connection of a hostgroup for more than a transaction, by number.
    fn bound(&self, hostgroup: HostgroupId) -> Vec<Bound>;

    /// Connections in use to a server, in one hostgroup or (None) in all.
    fn in_use(&self, server: &ServerAddr, hostgroup: Option<HostgroupId>) -> u32;

    /// Bytes that came from a server since the process began, in all hostgroups: they grow while the server answers anybody. None if a
    /// worker did not say.
    fn received(&self, server: &ServerAddr) -> Option<u64>;

    /// Of each GTID whether a client of this process got OK for it lately. Servers report GTIDs while causal reads are on, so false says
    /// nothing.
    fn acknowledged(&self, gtids: &[String]) -> Vec<bool> {
        vec![false; gtids.len()]
    }

    /// The GTIDs for which clients of this process got OK lately, of all servers: at most 10,000 for each worker.
    fn acknowledged_lately(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The result of an order, for people.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Told {
    /// The steps that were done.
    pub text: String,
    /// Tasks that are left for the operator; they are in the text too.
    pub warnings: Vec<String>,
}

impl From<String> for Told {
    fn from(text: String) -> Self {
        Self { text, warnings: Vec::new() }
    }
}

/// A step that would heal a cluster, for people.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HealingStep {
    /// What it is for.
    pub step: String,
    /// Where; empty for the cluster as a whole.
    pub server: String,
    /// What would be sent, or what is to be known.
    pub statement: String,
    /// What would undo it; empty where there is nothing to undo.
    pub undo: String,
}

/// `HEAL HOSTGROUP`: a promotion that an operator orders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealOrder {
    /// The cluster, by its writer hostgroup.
    pub hostgroup: HostgroupId,
    /// The server that is to take over; None leaves the choice to the proxy.
    pub to: Option<ServerAddr>,
    /// `FORCE LOSING`: so many transactions are known to be lost, and may be.
    pub losing: Option<u64>,
}

/// A program to run for healing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The directory that it must be in.
    pub directory: String,
    /// Its name there, then its arguments.
    pub command: Vec<String>,
    /// Its environment, beside `PATH`.
    pub environment: Vec<(&'static str, String)>,
    /// Then it is ended, with all that it started.
    pub limit: Duration,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramEnd {
    /// None for success; else why not.
    pub fault: Option<String>,
    /// The end of what it wrote.
    pub output: String,
}

/// Something that ends.
pub type Running<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Runs programs.
pub trait Programs: Send + Sync + std::fmt::Debug {
    /// Runs one to its end, or until `stop` ends. On a runtime of tokio.
    fn run(&self, program: Program, stop: Running<()>) -> Running<ProgramEnd>;

    /// Whether it could be started.
    ///
    /// # Errors
    /// Why not, for people.
    fn check(&self, program: &Program) -> Result<(), String>;
}

/// A step of a plan that was done: a promotion, a return, a switchover, or what undoes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealedStep {
    /// When it ended, Unix us.
    pub at_unix_us: u64,
    /// `promotion`, `rejoin`, `semi-sync`, `switchover`, `rehearsal`, or `undo`.
    pub plan: &'static str,
    /// Steps of one plan have the same number. None: what an earlier process left is put back.
    pub number: Option<u64>,
    /// Of several proxies: the revision of the record that they share.
    pub epoch: Option<i64>,
    /// The proxy, as the others know it; empty where it is alone.
    pub by: String,
    /// The cluster, if it is known.
    pub writer: Option<HostgroupId>,
    /// Where.
    pub server: ServerAddr,
    /// What it is for.
    pub step: String,
    /// What the server was sent, without passwords; empty where something was found or decided.
    pub statement: String,
    /// `ok`, the error, or the reason.
    pub result: String,
    /// How long the server took, ms.
    pub took_ms: u64,
}

/// An order that holds until an operator takes it back.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum StandingOrder {
    /// Its hostgroup starts no new work: `PAUSE HOSTGROUP`.
    Paused(HostgroupId),
    /// The server gets no new work in any hostgroup: `DRAIN SERVER`.
    Drained(ServerAddr),
    /// The server that writes in this writer hostgroup, for clusters where the proxy chooses. Taken back by `FAILBACK HOSTGROUP`.
    Preferred(HostgroupId, ServerAddr),
}

/// What is known of the replication of a rehearsal's shadow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShadowState {
    /// It receives changes: by a channel, or as a member of a cluster.
    Replicates,
    /// It does not; in words.
    Alone(String),
    /// Nor does it since it left replication for a rehearsal in mode `all`, and it has not been restarted since; what the event said.
    Left(String),
    /// That is not known; why.
    Unknown(String),
}

/// A rehearsal in mode `all` is to begin: its shadow leaves replication first, while the sessions of the source wait.
pub struct ShadowOrder {
    /// Whose sessions are copied.
    pub source: HostgroupId,
    /// The hostgroup of the shadow alone.
    pub shadow: HostgroupId,
    /// Begins the rehearsal; called while nothing runs in the source's hostgroup. Returns what was begun.
    pub begin: Box<dyn FnOnce() -> Result<String, String> + Send>,
}

impl std::fmt::Debug for ShadowOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShadowOrder").field("source", &self.source).field("shadow", &self.shadow).finish_non_exhaustive()
    }
}

/// Hostgroups that wait for the sake of another proxy's switchover, for as long as this lives.
pub trait Held: Send {
    /// They wait until this server writes as far as this proxy sees, but no longer than `limit`. Blocks.
    fn until_writes(self: Box<Self>, writer: &ServerAddr, limit: Duration);
}

/// A switchover for which other proxies hold their sessions back, for as long as this lives.
pub trait CompanyHold: Send {
    /// Ends the hold: the other proxies continue once they see that this server writes. If `is_by_preference`, they cannot see it by
    /// themselves, so they are told.
    fn over(self: Box<Self>, writer: &ServerAddr, is_by_preference: bool);

    /// A warning for the operator, if there is one.
    fn warning(&self) -> Option<String>;
}

/// The other proxies that serve the same servers, as far as orders are shared with them.
pub trait Company: Send + Sync + std::fmt::Debug {
    /// Lets all other proxies hold the cluster's hostgroups, and waits until nothing runs there, at most `patience`. They continue after
    /// `limit`, whatever happens to this proxy. Blocks.
    ///
    /// # Errors
    /// The proxies that do not hold, and why. All continue then.
    fn hold(
        &self,
        writer: HostgroupId,
        hostgroups: &[HostgroupId],
        patience: Duration,
        limit: Duration,
    ) -> Result<Box<dyn CompanyHold>, String>;
}

/// What is known of who heals a cluster, of several proxies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HealingView {
    /// Why etcd is not reached; None if it is.
    pub away: Option<String>,
    /// The proxy that heals it.
    pub healer: Option<String>,
    /// This proxy does: when the last renewal of its lease was sent that succeeded.
    pub since: Option<Instant>,
    /// When it learnt that.
    pub obtained: Option<Instant>,
    /// Which lease that is: a lease that was lost and taken again is another one.
    pub term: Option<i64>,
    /// The record of the last plan, and its epoch.
    pub record: Option<(String, i64)>,
}

/// A change of a cluster's record: the new text, by the one that is there.
pub type RecordChange = Box<dyn FnMut(Option<&str>) -> Result<String, String> + Send>;

/// Decides which of several proxies heals a cluster, and keeps a record that all of them see.
pub trait Decider: Send + Sync + std::fmt::Debug {
    /// This proxy, as the others see it.
    fn name(&self) -> String;

    /// What is known now. Does not block.
    fn view(&self, writer: HostgroupId) -> HealingView;

    /// The clusters that have a record, as far as is known now. Does not block.
    fn clusters(&self) -> BTreeSet<HostgroupId>;

    /// Names the proxies that heal by the same leases, as letters and digits, at most 32; empty while there are none.
    fn scope(&self) -> String;

    /// This proxy would heal these clusters, and no others. It gives them up after `limit` unless this is said again.
    fn lead(&self, wanted: &BTreeSet<HostgroupId>, limit: Duration);

    /// Writes a cluster's record; `as_healer` only while this proxy heals it. Returns the epoch. Blocks.
    ///
    /// # Errors
    /// It was not written, or that is not known; why.
    fn write(&self, writer: HostgroupId, as_healer: bool, change: RecordChange) -> Result<i64, String>;
}

/// Carries out operators' orders about roles. Called from the admin's threads; a call may take as long as its work does.
pub trait Operator: Send + Sync {
    /// `SWITCHOVER HOSTGROUP`: makes `to` the writer without an error for clients, or leaves everything as it was. `timeout_ms` None takes
    /// the setting.
    ///
    /// # Errors
    /// Why it failed. It fails at once if `read_only` decides the writer and the proxy may not set it.
    fn switchover(&self, hostgroup: HostgroupId, to: &ServerAddr, timeout_ms: Option<u64>) -> Result<Told, String>;

    /// `SWITCHOVER ... WAIT FOR READ_ONLY`: the same, but sessions wait for another program to set `read_only` if the proxy does not.
    fn switchover_by_hand(&self, hostgroup: HostgroupId, to: &ServerAddr, timeout_ms: Option<u64>) -> Result<Told, String> {
        self.switchover(hostgroup, to, timeout_ms)
    }

    /// `FAILBACK HOSTGROUP`: the preferred server may be writer again.
    fn failback(&self, hostgroup: HostgroupId) -> Result<String, String>;

    /// `ACCEPT CLUSTER HOSTGROUP`: from now on the cluster is the one of servers that were refused as another cluster's. `from` is one of
    /// them; None if all belong to the same.
    fn accept(&self, hostgroup: HostgroupId, from: Option<&ServerAddr>) -> Result<String, String>;

    /// `PAUSE HOSTGROUP` and `RESUME HOSTGROUP`. Returns the effect in words.
    fn pause(&self, hostgroup: HostgroupId, is_paused: bool) -> Result<String, String>;

    /// `DRAIN SERVER`: nothing new goes to it in any hostgroup; answers when nothing runs on it any more, or at the deadline.
    /// It stays so until [`Operator::undrain`].
    fn drain(&self, server: &ServerAddr, timeout_ms: Option<u64>) -> Result<String, String>;

    /// `UNDRAIN SERVER`. Returns the effect in words.
    fn undrain(&self, server: &ServerAddr) -> Result<String, String>;

    /// `START REHEARSAL`: whether the server of this hostgroup replicates.
    fn shadow_state(&self, shadow: HostgroupId) -> ShadowState {
        ShadowState::Unknown(format!("the monitor does not run here and looks at no server of hostgroup {shadow}"))
    }

    /// `START REHEARSAL` in mode `all`: the shadow stops to replicate where the writer is, becomes writable, and the rehearsal begins. On an
    /// error everything is as before. Afterwards the shadow is a database of its own.
    ///
    /// # Errors
    /// Why it cannot be, and what would have to be different.
    fn detach_shadow(&self, order: ShadowOrder) -> Result<Told, String> {
        Err(format!("the monitor does not run here, and mode 'all' needs it: hostgroup {} keeps its replica", order.shadow))
    }

    /// An order that was given to another proxy holds for this one too, or no more. What holds already is no error.
    ///
    /// # Errors
    /// It cannot be carried out now, and may be later.
    fn stand(&self, order: &StandingOrder, holds: bool) -> Result<(), String> {
        let _ = (order, holds);
        Ok(())
    }

    /// The orders that hold here now, as [`Operator::stand`] takes them back. Some may hold since before the start of this process.
    fn standing(&self) -> Vec<StandingOrder> {
        Vec::new()
    }

    /// Whether every server was looked at since the start: before that, a fail-back finds no better writer.
    fn has_looked(&self) -> bool {
        true
    }

    /// `EXPLAIN HEALING HOSTGROUP`: what should be done if the writer of this cluster died, or (`dies`) another server of it, as steps in
    /// order. Nothing is sent.
    ///
    /// # Errors
    /// No advice is given for this hostgroup, or the server is not of its cluster.
    fn explain_healing(&self, hostgroup: HostgroupId, dies: Option<&ServerAddr>) -> Result<Vec<HealingStep>, String> {
        let _ = dies;
        Err(format!("the monitor does not run here: nothing is known of hostgroup {hostgroup}"))
    }

    /// `ADOPT SERVER`: a server that does not follow its writer is taken back (`mysql_healing`, mode `rejoin`), though somebody stopped it or
    /// earlier attempts failed. Returns the effect in words.
    ///
    /// # Errors
    /// It is not a server of such a cluster.
    fn adopt(&self, server: &ServerAddr) -> Result<String, String> {
        Err(format!("the monitor does not run here: {server} cannot be adopted"))
    }

    /// `REJOIN SERVER`: makes a server follow its writer now, if it has nothing that the writer lacks, in every mode but `off`. `discarding` is
    /// the operator's word that so many transactions may go: it is refused, as they are in the server's data. Blocks until it follows.
    ///
    /// # Errors
    /// Why it does not follow, and how to rebuild it. A former writer may have been closed.
    fn rejoin(&self, server: &ServerAddr, discarding: Option<u64>) -> Result<String, String> {
        let _ = discarding;
        Err(format!("the monitor does not run here: {server} cannot be taken back"))
    }

    /// `SUSPEND HEALING`: this proxy promotes no server of the cluster (None: of any cluster) and takes none back, for so long or until
    /// [`Operator::resume_healing`], over restarts. `by` ordered it. Returns the effect in words.
    ///
    /// # Errors
    /// The order cannot be kept; or the time is out of range.
    fn suspend_healing(&self, hostgroup: Option<HostgroupId>, limit: Option<Duration>, by: &str) -> Result<String, String> {
        let _ = (hostgroup, limit, by);
        Err("the monitor does not run here: nothing is healed".to_owned())
    }

    /// `RESUME HEALING`: ends the suspension of a cluster, or (None) every suspension.
    ///
    /// # Errors
    /// Healing of the cluster is not suspended; or the order cannot be kept.
    fn resume_healing(&self, hostgroup: Option<HostgroupId>) -> Result<String, String> {
        let _ = hostgroup;
        Err("the monitor does not run here: nothing is healed".to_owned())
    }

    /// `HEAL HOSTGROUP`: promotes a server in place of a dead writer, by the plan of mode `full`, in every mode but `off`. `by` ordered it.
    /// Blocks until the plan has ended. Returns what was done.
    ///
    /// # Errors
    /// Why no server was promoted: the writer is not dead, a brake holds that is about safety, or the plan failed and was undone.
    fn heal(&self, order: &HealOrder, by: &str) -> Result<String, String> {
        let _ = by;
        Err(format!("the monitor does not run here: hostgroup {} is not healed", order.hostgroup))
    }

    /// `HEAL HOSTGROUP ... DRY RUN`: whether the order would be carried out now, and its plan. Nothing is sent.
    ///
    /// # Errors
    /// The cluster is not looked at.
    fn explain_heal(&self, order: &HealOrder) -> Result<Vec<HealingStep>, String> {
        Err(format!("the monitor does not run here: nothing is known of hostgroup {}", order.hostgroup))
    }

    /// `ACKNOWLEDGE HEALING HOSTGROUP`: another promotion may follow the last one, and plans that failed count no more.
    ///
    /// # Errors
    /// The hostgroup is not healed with mode `full`; or the order cannot be kept.
    fn acknowledge_healing(&self, hostgroup: HostgroupId) -> Result<String, String> {
        Err(format!("the monitor does not run here: hostgroup {hostgroup} is not healed"))
    }

    /// The steps of plans that are not kept yet, oldest first, with their numbers.
    fn healed_steps(&self) -> Vec<(u64, HealedStep)> {
        Vec::new()
    }

    /// The steps up to this number are kept.
    fn forget_healed_steps(&self, last: u64) {
        let _ = last;
    }

    /// What keeps clusters with a row in `mysql_healing` from being healed, by writer hostgroup. Waits a moment for servers that were
    /// not looked at yet.
    fn healing_remarks(&self) -> Vec<(HostgroupId, String)> {
        Vec::new()
    }

    /// Holds these hostgroups for another proxy's switchover, once nothing runs there; blocks for as long as `limit`.
    ///
    /// # Errors
    /// What runs still; nothing is held then.
    fn hold_for(&self, hostgroups: &[HostgroupId], limit: Duration) -> Result<Box<dyn Held>, String> {
        let _ = (hostgroups, limit);
        Err("the monitor does not run here".to_owned())
    }

    /// Sets what decides which of several proxies heals.
    fn keep_decider(&self, decider: Arc<dyn Decider>) {
        drop(decider);
    }

    /// What the decider says may have changed. Does not block.
    fn decider_changed(&self) {}

    /// Sets what runs programs for healing. Without it none runs.
    fn keep_programs(&self, programs: Arc<dyn Programs>) {
        drop(programs);
    }

    /// Sets the other proxies, which a switchover asks to hold too.
    fn keep_company(&self, company: Arc<dyn Company>) {
        drop(company);
    }
}
