//! What an operator ordered.

use model::{HostgroupId, ServerAddr};

/// An order; it holds until another one replaces it or its end is ordered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// This server is to be the writer of the cluster with this writer hostgroup, now, whatever the weights say. If it is lost
    /// later, the policy of fail-back holds for it as for the heaviest, in whose place it stands. For kinds where the servers' own state decides (replication, Group Replication) it only breaks ties.
    Prefer {
        /// The cluster's writer hostgroup.
        writer: HostgroupId,
        /// Which server; None takes the order back.
        server: Option<ServerAddr>,
    },
    /// The heaviest server may be writer again.
    Failback {
        /// The cluster's writer hostgroup.
        writer: HostgroupId,
    },
    /// The cluster is the one to which servers belong that were strangers until now, as after a restore from a backup.
    Accept {
        /// The cluster's writer hostgroup.
        writer: HostgroupId,
        /// One of those servers; None when they all belong to the same.
        from: Option<ServerAddr>,
    },
    /// Nothing new goes to this server.
    Drain {
        /// Which server.
        server: ServerAddr,
        /// False ends it.
        is_drained: bool,
    },
}
