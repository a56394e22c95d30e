//! Operators' orders to the topology.

use model::{HostgroupId, ServerAddr};

/// Each one holds until another order replaces or ends it, as its variant says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// This server is to be the writer of the cluster with this writer hostgroup, now, whatever the weights say. If it is lost
    /// later, the policy of fail-back holds for it as for the heaviest, in whose place it stands. For kinds where the servers' own state decides (replication, Group Replication) it only breaks ties.
    Prefer {
        /// The writer hostgroup of the cluster that is ordered.
        writer: HostgroupId,
        /// Which server; None takes the order back.
        server: Option<ServerAddr>,
    },
    /// The heaviest server may be writer again.
    Failback {
        /// The writer hostgroup of the cluster that fails back.
        writer: HostgroupId,
    },
    /// The cluster is the one to which servers belong that were strangers until now, as after a restore from a backup.
    Accept {
        /// The writer hostgroup of the cluster whose identity is accepted.
        writer: HostgroupId,
        /// One of those servers; None when they all belong to the same.
        from: Option<ServerAddr>,
    },
    /// Nothing new goes to this server.
    Drain {
        /// The server to drain or to use again.
        server: ServerAddr,
        /// False ends it.
        is_drained: bool,
    },
}
