//! One line of the history of role changes: the decision and its reason.

use model::{HostgroupId, ServerAddr};

/// A change of a server's role or status, or of a cluster's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When it was decided, on the caller's clock, ms.
    pub at_ms: u64,
    /// The cluster's writer hostgroup; None for a server in no cluster.
    pub cluster: Option<HostgroupId>,
    /// The server concerned; None for the cluster as a whole.
    pub server: Option<ServerAddr>,
    /// The property that changed.
    pub kind: EventKind,
    /// Before: `writer`, `reader`, `offline`, a status, ...
    pub from: String,
    /// The value after.
    pub to: String,
    /// The values that decided, as `name=value`.
    pub seen: String,
    /// The origin of the decision: `probe`, `traffic`, `time`, `operator`, `configuration`, `resolver`.
    pub by: &'static str,
    /// The rule that decided, in words.
    pub why: String,
}

/// The subject of an event; tables and metrics show [`EventKind::as_str`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventKind {
    /// A server changed hostgroups.
    Role,
    /// A server's status changed in its hostgroup.
    Status,
    /// A cluster lost its last writer, or has one again.
    Writer,
    /// The reads of a read/write split go elsewhere than before.
    Reads,
    /// A server was found or has left.
    Discovery,
    /// A server's name was moved to another address.
    Address,
    /// Traffic reported something.
    Suspicion,
    /// A server belongs to another cluster, or to this one again.
    Identity,
    /// A replication channel from another cluster started, stopped or differs from its row.
    Channel,
    /// What is known of a cluster's writer, or of the server that should take over, has changed (`mysql_healing`).
    Healing,
    /// An operator's command took effect.
    Order,
}

impl EventKind {
    /// As tables and metrics name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Role => "role",
            Self::Status => "status",
            Self::Writer => "writer",
            Self::Reads => "reads",
            Self::Discovery => "discovery",
            Self::Address => "address",
            Self::Suspicion => "suspicion",
            Self::Identity => "identity",
            Self::Channel => "channel",
            Self::Healing => "healing",
            Self::Order => "order",
        }
    }
}
