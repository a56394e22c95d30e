//! Which servers serve which hostgroups now, and who tells whom: the meeting point of those who watch the servers (the
//! monitor), those who use them (the data plane) and those who are asked about them (the admin).
//!
//! Facts flow up as [`Signal`]s, decisions flow down as whole [`Layout`]s. A layout is observed state: it is never written
//! back as configuration. INVARIANT: of two layouts the one with the larger revision is the later; an older one is dropped.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{HostgroupId, ServerAddr};
use crate::snapshot::{Server, ServerStatus, Snapshot};

/// One server in one hostgroup, as it is to be used now.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// How it is reached. `server.key.hostgroup` is the hostgroup that it serves; its other values are of its own row of
    /// `mysql_servers` for that hostgroup, or of the row that stands for it. `server.status` is what the operator said.
    pub server: Arc<Server>,
    /// Whether it is used. Never better than what the operator said.
    pub status: ServerStatus,
    /// What becomes of what runs there when it is not used any more.
    pub under_way: UnderWay,
    /// Why it is here and not ONLINE, or why it is here at all; empty for what is simply configured.
    pub why: Arc<str>,
}

impl Placement {
    /// As the operator wrote it.
    pub fn configured(server: &Arc<Server>) -> Self {
        Self { server: Arc::clone(server), status: server.status, under_way: UnderWay::MayFinish, why: "".into() }
    }
}

/// What becomes of statements that run on a server which is not used any more. Later ones are harder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum UnderWay {
    /// They end by themselves. An open transaction has `demotion_grace_ms`.
    #[default]
    MayFinish,
    /// They may never end, because the server is cut off (from its cluster's majority, or from the monitor): those that have
    /// not answered after `demotion_grace_ms` are given up.
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

/// What the data plane saw of a server: a reason to look at it at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signal {
    /// Which server.
    pub server: ServerAddr,
    /// The hostgroup it served.
    pub hostgroup: HostgroupId,
    /// What was seen.
    pub kind: SignalKind,
}

/// What the data plane may see of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SignalKind {
    /// A connect failed.
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

/// What is measured of a server and changes too often for a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Measured {
    /// Average of the last pings, us; 0 while unknown.
    pub latency_us: u64,
    /// How far it is behind its source, ms; None while unknown or when it is no replica.
    pub lag_ms: Option<u64>,
}

/// How busy a hostgroup is.
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
    /// Its number.
    pub session: u64,
    /// What for, as in `stats_tidegate_pins`.
    pub why: String,
}

/// Who decides which server has which role. Called from any thread; must not block for longer than a computation.
pub trait RoleKeeper: Send + Sync {
    /// A configuration is about to be in force: who serves what under it. What was observed before stays known.
    fn configure(&self, snapshot: &Arc<Snapshot>) -> Layout;

    /// Something was seen in traffic. Never blocks: signals about the same thing are merged, and beyond a bound dropped and
    /// counted.
    fn signal(&self, signal: Signal);
}

/// Who uses the servers. Called from the monitor's thread; no call blocks for longer than a worker's turn.
pub trait Fleet: Send + Sync {
    /// Uses the servers as this says, at once. A layout that is older than the one in use is dropped.
    fn arrange(&self, layout: Layout);

    /// What was measured of a server.
    fn measured(&self, server: &ServerAddr, measured: Measured);

    /// A server was looked at, and whatever follows for its roles was arranged: what traffic said against it before is over.
    fn looked_at(&self, server: &ServerAddr);

    /// The addresses that a name has no more, whatever was said of it before: connections to them serve nobody new.
    fn moved(&self, host: &str, gone: &[IpAddr]);

    /// Holds a hostgroup, or lets it go again: while it is held, no statement begins there that is not part of an open
    /// transaction (or of another pin); sessions wait in order, as long as they would for a server.
    fn hold(&self, hostgroup: HostgroupId, is_held: bool);

    /// How busy a hostgroup is.
    fn load(&self, hostgroup: HostgroupId) -> HostgroupLoad;

    /// Sessions that keep a connection of a hostgroup for more than a transaction, by number.
    fn bound(&self, hostgroup: HostgroupId) -> Vec<Bound>;

    /// Connections in use to a server, in one hostgroup or (None) in all.
    fn in_use(&self, server: &ServerAddr, hostgroup: Option<HostgroupId>) -> u32;
}

/// What became of an order, for people.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Told {
    /// What was done.
    pub text: String,
    /// What is to be seen to now; in the text too.
    pub warnings: Vec<String>,
}

impl From<String> for Told {
    fn from(text: String) -> Self {
        Self { text, warnings: Vec::new() }
    }
}

/// What holds from when an operator orders it until an operator takes it back.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum StandingOrder {
    /// `PAUSE HOSTGROUP`.
    Paused(HostgroupId),
    /// `DRAIN SERVER`.
    Drained(ServerAddr),
    /// Of this writer hostgroup this server is the writer, where the servers themselves do not say who is. Taken back by
    /// `FAILBACK HOSTGROUP`.
    Preferred(HostgroupId, ServerAddr),
}

/// Hostgroups that wait for the sake of another proxy's switchover, for as long as this lives.
pub trait Held: Send {
    /// They wait until this server writes as far as this proxy sees, but no longer than `limit`. Blocks.
    fn until_writes(self: Box<Self>, writer: &ServerAddr, limit: Duration);
}

/// A switchover for which other proxies hold their sessions back, for as long as this lives.
pub trait CompanyHold: Send {
    /// The others go on once they see that this server writes. If `is_by_preference`, nobody sees that who is not told: they are.
    fn over(self: Box<Self>, writer: &ServerAddr, is_by_preference: bool);

    /// What the operator should know of it.
    fn warning(&self) -> Option<String>;
}

/// The other proxies that serve the same servers, as far as orders are shared with them.
pub trait Company: Send + Sync + std::fmt::Debug {
    /// Has all of them hold the hostgroups of this cluster, and waits until nothing runs there, at most `patience`. They go on after
    /// `limit`, whatever becomes of this proxy. Blocks.
    ///
    /// # Errors
    /// Who does not, and why; all go on then.
    fn hold(
        &self,
        writer: HostgroupId,
        hostgroups: &[HostgroupId],
        patience: Duration,
        limit: Duration,
    ) -> Result<Box<dyn CompanyHold>, String>;
}

/// What an operator may ask of those who watch the servers. Called from the admin's threads; a call may take as long as the
/// work does.
pub trait Operator: Send + Sync {
    /// `SWITCHOVER HOSTGROUP`: makes `to` the writer without an error for clients, or leaves everything as it was.
    /// `timeout_ms` None takes the setting. Answers what was done.
    ///
    /// # Errors
    /// Why not; where `read_only` decides who writes and is not the proxy's to set, at once.
    fn switchover(&self, hostgroup: HostgroupId, to: &ServerAddr, timeout_ms: Option<u64>) -> Result<Told, String>;

    /// `SWITCHOVER ... WAIT FOR READ_ONLY`: the same, but sessions wait for somebody else to set `read_only` where the proxy does
    /// not.
    fn switchover_by_hand(&self, hostgroup: HostgroupId, to: &ServerAddr, timeout_ms: Option<u64>) -> Result<Told, String> {
        self.switchover(hostgroup, to, timeout_ms)
    }

    /// `FAILBACK HOSTGROUP`: the preferred server may be writer again.
    fn failback(&self, hostgroup: HostgroupId) -> Result<String, String>;

    /// `ACCEPT CLUSTER HOSTGROUP`: the cluster is from now on what servers belong to that were refused as another cluster's; `from` is
    /// one of them, None when they all belong to the same.
    fn accept(&self, hostgroup: HostgroupId, from: Option<&ServerAddr>) -> Result<String, String>;

    /// `PAUSE HOSTGROUP`, `RESUME HOSTGROUP`.
    fn pause(&self, hostgroup: HostgroupId, is_paused: bool) -> Result<String, String>;

    /// `DRAIN SERVER`: nothing new goes to it in any hostgroup; answers when nothing runs on it any more, or at the deadline.
    /// It stays so until [`Operator::undrain`].
    fn drain(&self, server: &ServerAddr, timeout_ms: Option<u64>) -> Result<String, String>;

    /// `UNDRAIN SERVER`.
    fn undrain(&self, server: &ServerAddr) -> Result<String, String>;

    /// An order that was given to another proxy holds for this one too, or no more. What holds already is no error.
    ///
    /// # Errors
    /// It cannot be carried out now, and may be later.
    fn stand(&self, order: &StandingOrder, holds: bool) -> Result<(), String> {
        let _ = (order, holds);
        Ok(())
    }

    /// Holds these hostgroups for another proxy's switchover, once nothing runs there; blocks for as long as `limit`.
    ///
    /// # Errors
    /// What runs still; nothing is held then.
    fn hold_for(&self, hostgroups: &[HostgroupId], limit: Duration) -> Result<Box<dyn Held>, String> {
        let _ = (hostgroups, limit);
        Err("the monitor does not run here".to_owned())
    }

    /// Whom a switchover asks to wait too.
    fn keep_company(&self, company: Arc<dyn Company>) {
        drop(company);
    }
}
