//! What should be looked at, how often.

use std::sync::Arc;

use model::ServerAddr;
use model::snapshot::{ReadOnlyCheck, Server};

/// One check to be made again and again.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// Which server.
    pub addr: ServerAddr,
    /// How it is reached: the row that stands for it (TLS wins over none).
    pub server: Arc<Server>,
    /// What is looked at.
    pub kind: CheckKind,
    /// Time between the beginnings of two such checks, ms. Short while the cluster has no writer or is suspected.
    pub interval_ms: u64,
    /// Longest that it may take, ms.
    pub timeout_ms: u64,
    /// The servers of the cluster that it replicates in; empty where that is not asked for, or for a server in none.
    pub peers: Arc<[ServerAddr]>,
}

/// What a check looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CheckKind {
    /// A fresh login; only logged.
    Connect,
    /// COM_PING.
    Ping,
    /// Who is read-only.
    ReadOnly(ReadOnlyCheck),
    /// Replication lag.
    Lag,
    /// What it has executed.
    Gtids,
    /// Galera's state.
    Galera,
    /// Group Replication's state.
    Group,
    /// Aurora's topology table.
    Aurora,
    /// Whether the buffer pool has been loaded.
    BufferPool,
    /// Whom it replicates from.
    Sources,
    /// The topology table of an RDS Multi-AZ DB cluster.
    RdsTopology,
}

impl CheckKind {
    /// Whether it says what a server is, not only that it lives.
    pub fn tells_role(self) -> bool {
        matches!(self, Self::ReadOnly(_) | Self::Galera | Self::Group | Self::Aurora)
    }
}
