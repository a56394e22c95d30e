//! The checks that the monitor has to make.

use std::sync::Arc;

use model::ServerAddr;
use model::snapshot::{ReadOnlyCheck, Server};

/// One check to be made again and again.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// The server that is asked.
    pub addr: ServerAddr,
    /// How it is reached: the row that stands for it (TLS wins over none).
    pub server: Arc<Server>,
    /// The question, which decides the statement that is sent.
    pub kind: CheckKind,
    /// Time between the beginnings of two such checks, ms. Short while the cluster has no writer or is suspected.
    pub interval_ms: u64,
    /// Longest that it may take, ms.
    pub timeout_ms: u64,
    /// The servers of the cluster that it replicates in; empty where that is not asked for, or for a server in none.
    pub peers: Arc<[ServerAddr]>,
    /// The channels of `mysql_replication_channels` that bring other clusters' writes to a cluster of this server; empty as above.
    pub foreign: Arc<[Arc<str>]>,
}

/// The kind of a check: one statement, or one step of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CheckKind {
    /// A fresh login; only logged.
    Connect,
    /// COM_PING on an open connection.
    Ping,
    /// `read_only`, `super_read_only` or `innodb_read_only`, as the cluster's row says.
    ReadOnly(ReadOnlyCheck),
    /// Replication lag, ms.
    Lag,
    /// The GTIDs that the server has executed.
    Gtids,
    /// Galera's `wsrep_*` variables of one node.
    Galera,
    /// One member's view of its group, from `performance_schema`.
    Group,
    /// Aurora's topology table, `information_schema.replica_host_status`.
    Aurora,
    /// Whether the buffer pool has been loaded.
    BufferPool,
    /// The servers that this one replicates from.
    Sources,
    /// The topology table of an RDS Multi-AZ DB cluster.
    RdsTopology,
}

impl CheckKind {
    /// Whether the answer can change the server's role. Other checks only say that it lives, or how far it is behind.
    pub fn tells_role(self) -> bool {
        matches!(self, Self::ReadOnly(_) | Self::Galera | Self::Group | Self::Aurora)
    }
}
