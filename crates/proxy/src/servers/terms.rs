//! What the configuration says of a hostgroup, as far as its servers' state depends on it.

use model::HostgroupId;
use model::snapshot::{RoleGroup, RoleKind, Snapshot};
use std::sync::Arc;

/// What part a hostgroup has in a cluster whose servers change roles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HostgroupRole {
    /// None: its servers are those that are configured.
    #[default]
    Plain,
    /// It takes a cluster's writes.
    Writer,
    /// It is another hostgroup of a cluster.
    Other,
}

/// What the configuration says of work in a hostgroup, as far as its servers' state depends on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Terms {
    /// How long pinned sessions may stay on a server that is not to be used any more, ms.
    pub grace_ms: u64,
    /// How long sessions whose pin is no transaction may stay on a server that drains, ms.
    pub drain_ms: u64,
    /// How long a server that came back takes to its whole weight, ms.
    pub ramp_ms: u64,
    /// How long a writer that refuses writes gets no new ones without being looked at, ms.
    pub suspicion_ms: u64,
    /// The longest ping, ms, where a server's row says nothing.
    pub default_max_latency_ms: u64,
    /// Its part in a cluster.
    pub role: HostgroupRole,
    /// The cluster is one of Galera.
    pub is_galera: bool,
}

impl Terms {
    pub(crate) fn of(snapshot: &Snapshot, id: HostgroupId) -> Self {
        let settings = snapshot.effective_in(id);
        let mut claims = snapshot.roles.iter().filter(|group| group.hostgroups().any(|claimed| claimed == id));
        let writes = |group: &&Arc<RoleGroup>| group.writer == id;
        let (role, group) = match (claims.clone().find(writes), claims.next()) {
            (Some(group), _) => (HostgroupRole::Writer, Some(group)),
            (None, Some(group)) => (HostgroupRole::Other, Some(group)),
            (None, None) => (HostgroupRole::Plain, None),
        };
        Self {
            grace_ms: settings.demotion_grace_ms,
            drain_ms: settings.drain_grace_ms,
            ramp_ms: settings.server_ramp_ms,
            suspicion_ms: settings.suspicion_ms,
            default_max_latency_ms: snapshot.vars.default_max_latency_ms,
            role,
            is_galera: group.is_some_and(|group| group.kind == RoleKind::Galera),
        }
    }
}
