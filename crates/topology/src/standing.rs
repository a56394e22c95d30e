//! The state that survives a restart of the proxy, because no server reports it.

use std::collections::BTreeSet;

use model::{HostgroupId, ServerAddr};

use crate::identity::Identity;

/// Everything that is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standings {
    /// Writers in clusters where the proxy chooses.
    pub writers: Vec<Standing>,
    /// The settled identities of the clusters.
    pub identities: Vec<KnownIdentity>,
}

/// A writer that the proxy chose for another reason than weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The writer hostgroup of its cluster.
    pub writer: HostgroupId,
    /// The chosen server.
    pub server: ServerAddr,
    /// An operator prefers it. Otherwise it writes, and the fail-back policy keeps its place.
    pub is_preferred: bool,
}

/// A settled identity. After a restart, servers of another cluster may be the only ones that answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownIdentity {
    /// The writer hostgroup of the cluster with this identity.
    pub writer: HostgroupId,
    /// Its kind, as [`RoleKind::as_str`](model::snapshot::RoleKind::as_str) names it.
    pub kind: String,
    /// The text that tells it from other clusters.
    pub identity: Identity,
    /// The servers that have said so.
    pub servers: BTreeSet<ServerAddr>,
}

impl Standings {
    /// Drops the clusters for whose writer hostgroup `is_kept` is false.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(HostgroupId) -> bool) {
        self.writers.retain(|standing| is_kept(standing.writer));
        self.identities.retain(|known| is_kept(known.writer));
    }

    /// Appends the entries of `other`.
    pub(crate) fn extend(&mut self, other: Self) {
        self.writers.extend(other.writers);
        self.identities.extend(other.identities);
    }
}
