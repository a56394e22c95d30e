//! What has to be kept over a restart of the proxy, because no server says it.

use std::collections::BTreeSet;

use model::{HostgroupId, ServerAddr};

use crate::identity::Identity;

/// Everything that is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standings {
    /// Who writes where the proxy chooses.
    pub writers: Vec<Standing>,
    /// What clusters are.
    pub identities: Vec<KnownIdentity>,
}

/// Where the proxy chooses who writes: whom it chose for another reason than weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The cluster's writer hostgroup.
    pub writer: HostgroupId,
    /// Which server.
    pub server: ServerAddr,
    /// An operator prefers it; otherwise it writes, and the policy of fail-back lets nobody take its place.
    pub is_preferred: bool,
}

/// What a cluster is, once that is settled: servers that belong to another one may be all that answers after a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownIdentity {
    /// The cluster's writer hostgroup.
    pub writer: HostgroupId,
    /// Its kind, as [`RoleKind::as_str`](model::snapshot::RoleKind::as_str) names it.
    pub kind: String,
    /// What tells it from others.
    pub identity: Identity,
    /// The servers that have said so.
    pub servers: BTreeSet<ServerAddr>,
}

impl Standings {
    /// Drops what is of clusters of which that is not so.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(HostgroupId) -> bool) {
        self.writers.retain(|standing| is_kept(standing.writer));
        self.identities.retain(|known| is_kept(known.writer));
    }

    /// Adds what others hold.
    pub(crate) fn extend(&mut self, other: Self) {
        self.writers.extend(other.writers);
        self.identities.extend(other.identities);
    }
}
