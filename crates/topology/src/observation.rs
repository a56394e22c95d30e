//! The results of the monitor's checks.

use std::collections::{BTreeMap, BTreeSet};

use model::ServerAddr;
use serde::{Deserialize, Serialize};

use crate::gtids::GtidSet;
use crate::identity::Identity;
use crate::rds;

/// Why a check has no result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProbeError {
    /// No answer in time: the server may be slow, or cut off.
    Timeout,
    /// The server's name was not resolved in time, so no server was asked.
    Unresolved(String),
    /// The connection was refused or broke.
    Unreachable(String),
    /// The server takes no connections: it is shutting down, or in `offline_mode`. It counts as unreachable.
    Closed(String),
    /// The server answers, but the monitor's user may not log in or ask: nothing is known of the server's health.
    Denied(String),
    /// The server answered with another error, or with something that cannot be understood.
    Failed(String),
}

impl ProbeError {
    /// The words for a server that takes no connections.
    pub(crate) fn closed(&self) -> Option<String> {
        let Self::Closed(text) = self else { return None };
        Some(format!("it takes no connections: {text}"))
    }

    /// The server's or the system's error text; None for a timeout.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Timeout => None,
            Self::Unresolved(text) | Self::Unreachable(text) | Self::Closed(text) | Self::Denied(text) | Self::Failed(text) => Some(text),
        }
    }
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq)]
pub enum Observation {
    /// COM_PING: time of the round trip, us.
    Ping(Result<u64, ProbeError>),
    /// `SELECT @@global.read_only` or as `check_type` says: whether it is set.
    ReadOnly(Result<bool, ProbeError>),
    /// How far a replica is behind.
    Lag(Result<Lag, ProbeError>),
    /// The GTIDs that it has executed.
    Gtids(Result<GtidSet, ProbeError>),
    /// A Galera node's state.
    Galera(Result<GaleraView, ProbeError>),
    /// A Group Replication member's state and view.
    Group(Result<GroupView, ProbeError>),
    /// An Aurora instance's view of its cluster.
    Aurora(Result<AuroraView, ProbeError>),
    /// Whether the buffer pool has been loaded since the start, and the server's uptime in seconds.
    BufferPool(Result<(bool, u64), ProbeError>),
    /// Its sources, and its own id.
    Sources(Result<SourcesView, ProbeError>),
    /// An RDS instance's view of its Multi-AZ DB cluster.
    Rds(Result<RdsView, ProbeError>),
}

impl Observation {
    /// Whether the result can change the server's role. Other checks only say that it lives, or how far it is behind.
    pub fn tells_role(&self) -> bool {
        let is_role = matches!(self, Self::ReadOnly(_) | Self::Galera(_) | Self::Group(_) | Self::Aurora(_));
        is_role && self.error().is_none()
    }

    /// Whether it says nothing of the server's health if it fails: another right or table than that of the other checks.
    pub(crate) fn is_aside(&self) -> bool {
        matches!(self, Self::Lag(_) | Self::Gtids(_) | Self::Sources(_) | Self::Rds(_))
    }

    /// Why nothing was seen; None for a good answer, which also proves that the server lives.
    pub fn error(&self) -> Option<&ProbeError> {
        match self {
            Self::Ping(result) => result.as_ref().err(),
            Self::ReadOnly(result) => result.as_ref().err(),
            Self::Lag(result) => result.as_ref().err(),
            Self::Gtids(result) => result.as_ref().err(),
            Self::Galera(result) => result.as_ref().err(),
            Self::Group(result) => result.as_ref().err(),
            Self::Aurora(result) => result.as_ref().err(),
            Self::BufferPool(result) => result.as_ref().err(),
            Self::Sources(result) => result.as_ref().err(),
            Self::Rds(result) => result.as_ref().err(),
        }
    }
}

/// The lag of one server, by its receiver's and applier's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lag {
    /// It has no source.
    NotReplica,
    /// It has no source and gets changes by other means: a member of Galera, Group Replication or Aurora.
    Member,
    /// It is one, and does not know: replication is stopped or broken.
    Unknown,
    /// So far behind, ms.
    Behind(u64),
}

/// The sources of a server, and its id by which other servers name it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourcesView {
    /// The id under which it appears in other servers' views.
    pub id: ServerId,
    /// The sources of its channels whose receiver runs, but for channels that are known to come from other clusters.
    pub sources: Vec<Source>,
    /// It also gets changes by other means: a member of Galera, Group Replication or Aurora.
    pub is_member: bool,
}

impl SourcesView {
    /// It replicates from the servers at these addresses, and that is all that is known.
    pub fn from_addresses(sources: impl IntoIterator<Item = ServerAddr>) -> Self {
        let sources = sources.into_iter().map(|addr| Source { addr, id: ServerId::default() }).collect();
        Self { sources, ..Self::default() }
    }
}

/// The source of one replication channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Its address as the replica spells it; it may have another name in the configuration.
    pub addr: ServerAddr,
    /// The id that it gave when the replica last connected.
    pub id: ServerId,
}

/// A server's id in replication, whatever its address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerId {
    /// `server_id`; None if unknown.
    pub number: Option<u64>,
    /// `server_uuid` in lower case; None if unknown. MariaDB has none.
    pub uuid: Option<Box<str>>,
}

impl ServerId {
    /// From the words of a server; empty ones and 0 say nothing.
    pub fn new(number: Option<u64>, uuid: Option<&str>) -> Self {
        let uuid = uuid.filter(|uuid| !uuid.is_empty()).map(|uuid| uuid.to_ascii_lowercase().into());
        Self { number: number.filter(|number| *number > 0), uuid }
    }

    /// Both are known, and of the same server. UUIDs tell more than numbers where both have one.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.uuid, &other.uuid) {
            (Some(own), Some(other)) => own == other,
            _ => self.number.is_some() && self.number == other.number,
        }
    }
}

/// One row of the Galera query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GaleraView {
    /// `wsrep_local_state`: 4 is Synced, 2 Donor/Desynced.
    pub local_state: u32,
    /// `read_only`.
    pub read_only: bool,
    /// `wsrep_local_recv_queue`.
    pub recv_queue: u64,
    /// `wsrep_desync`.
    pub desync: bool,
    /// `wsrep_reject_queries` is not NONE.
    pub reject_queries: bool,
    /// `wsrep_sst_donor_rejects_queries`.
    pub sst_donor_rejects_queries: bool,
    /// `wsrep_cluster_status` is Primary.
    pub primary_partition: bool,
    /// `pxc_maint_mode` is not DISABLED.
    pub maintenance: bool,
    /// `wsrep_gmcast_segment` of `wsrep_provider_options`; 0 if missing.
    pub segment: u32,
    /// `wsrep_cluster_size`; 0 if missing.
    pub cluster_size: u32,
    /// The cluster that it is part of; None outside a primary component.
    pub identity: Option<Identity>,
}

impl GaleraView {
    /// `wsrep_local_state` of a donor, or of a node that was taken out of sync.
    pub const DONOR: u32 = 2;
    /// It has the state and catches up.
    pub const JOINED: u32 = 3;
    /// It is part of the cluster.
    pub const SYNCED: u32 = 4;

    /// It is part of the cluster and keeps up.
    pub fn is_synced(&self) -> bool {
        self.local_state == Self::SYNCED
    }

    /// It gives its state to another node, or catches up, and answers all the while.
    pub fn gives_state(&self) -> bool {
        match self.local_state {
            Self::DONOR => !self.sst_donor_rejects_queries,
            other => other == Self::JOINED,
        }
    }
}

/// A Group Replication member's view of its group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupView {
    /// It is ONLINE and sees a majority.
    pub viable: bool,
    /// `read_only` or `super_read_only`.
    pub read_only: bool,
    /// Transactions in its applier's queue.
    pub transactions_behind: u64,
    /// The primary as it sees it, where there is a single one.
    pub primary: Option<ServerAddr>,
    /// Members as it sees them, with their states (`ONLINE`, `RECOVERING`, `UNREACHABLE`, ...).
    pub members: Vec<(ServerAddr, String)>,
    /// The view's id; empty if missing.
    pub view_id: String,
    /// The group that it is in; None while it is in none that can commit.
    pub identity: Option<Identity>,
    /// The UUID of the member that was asked; empty if it is in no group.
    #[serde(default)]
    pub uuid: String,
    /// The members by UUID, with their addresses in `members`. A member may have other names in the group than in the configuration.
    #[serde(default)]
    pub uuids: BTreeMap<String, ServerAddr>,
}

/// An Aurora instance's view of its cluster: `information_schema.replica_host_status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuroraView {
    /// One for each instance, fresh rows only.
    pub instances: Vec<AuroraInstance>,
}

impl AuroraView {
    /// The `SERVER_ID` of the writer.
    pub fn writer(&self) -> Option<&str> {
        self.instances.iter().find(|instance| instance.is_writer).map(|instance| instance.server_id.as_str())
    }
}

impl AuroraInstance {
    /// Stands for a lag that is not known: larger than any limit, and than any lag that is.
    pub const LAG_UNKNOWN_MS: u64 = 1 << 53;
}

/// One row of [`AuroraView`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuroraInstance {
    /// `SERVER_ID`.
    pub server_id: String,
    /// `SESSION_ID` is `MASTER_SESSION_ID`.
    pub is_writer: bool,
    /// `REPLICA_LAG_IN_MILLISECONDS`, rounded up; [`AuroraInstance::LAG_UNKNOWN_MS`] if missing.
    pub lag_ms: u64,
    /// Age of the row by the server's own clock, ms.
    pub age_ms: u64,
    /// `CPU`, percent.
    pub cpu: u32,
}

/// The members of an RDS Multi-AZ DB cluster by one instance: `mysql.rds_topology`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RdsView {
    instances: BTreeSet<ServerAddr>,
}

impl RdsView {
    /// From endpoints and ports. None unless they are `NAME-instance-1` to `NAME-instance-3` of one cluster, as in ProxySQL. The same table
    /// lists both sides of a blue/green deployment, and one of them must not serve.
    pub fn of<'a>(rows: impl IntoIterator<Item = (&'a str, u64)>) -> Option<Self> {
        Some(Self { instances: rds::instances(rows)? })
    }

    /// The instances, in lower case.
    pub fn instances(&self) -> impl Iterator<Item = &ServerAddr> {
        self.instances.iter()
    }
}
