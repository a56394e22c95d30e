//! What a switchover is to do, decided from what is known before anything is touched.

use std::sync::Arc;

use model::fleet::{Layout, Placement};
use model::snapshot::{ReadOnlyCheck, RoleGroup, RoleKind, Server, ServerStatus, Snapshot};
use model::{HostgroupId, ServerAddr};
use topology::CheckKind;

/// How roles are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// `read_only` on both servers; who sets it.
    Replication(ReadOnlyCheck, Hand),
    /// By preference alone: every node can write.
    Galera,
    /// The group elects whom it is told to.
    Group,
}

/// Who sets `read_only`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hand {
    /// We, as the monitor's user (`switchover_manages_read_only`).
    Ours,
    /// Somebody else: it is waited for.
    Theirs,
}

/// A switchover that may begin.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    /// The cluster's writer hostgroup.
    pub(super) writer: HostgroupId,
    /// How.
    pub(super) way: Way,
    /// Who writes now.
    pub(super) old: Arc<Server>,
    /// Who is to write.
    pub(super) new: Arc<Server>,
}

impl Plan {
    /// The check that tells who writes.
    pub(super) fn kind(&self) -> CheckKind {
        match self.way {
            Way::Replication(check, _) => CheckKind::ReadOnly(check),
            Way::Galera => CheckKind::Galera,
            Way::Group => CheckKind::Group,
        }
    }
}

/// The plan, or why there is none.
pub(super) fn plan(snapshot: &Snapshot, layout: &Layout, writer: HostgroupId, to: &ServerAddr) -> Result<Plan, String> {
    let group = snapshot.roles.iter().find(|group| group.writer == writer);
    let group = group.ok_or_else(|| format!("hostgroup {writer} is the writer hostgroup of no cluster"))?;
    if !snapshot.vars.monitor_enabled {
        return Err("mysql-monitor_enabled is false: nobody knows who writes".into());
    }
    let way = way(group, snapshot)?;
    let placements: Vec<&Placement> = group.hostgroups().filter_map(|id| layout.hostgroups.get(&id)).flatten().collect();
    let of_target: Vec<&&Placement> = placements.iter().filter(|placement| placement.server.key.addr() == *to).collect();
    if of_target.is_empty() {
        return Err(format!("{to} is no server of the cluster with writer hostgroup {writer}"));
    }
    let serving = of_target.iter().find(|placement| {
        placement.status == ServerStatus::Online && placement.server.key.hostgroup != group.offline.unwrap_or(HostgroupId(u32::MAX))
    });
    let Some(target) = serving else {
        let why = of_target.first().map(|placement| format!("{}: {}", placement.status.as_str(), placement.why)).unwrap_or_default();
        return Err(format!("{to} is not healthy ({why})"));
    };
    let writers = writers(layout, writer);
    let old = match writers.as_slice() {
        [one] if one.key.addr() == *to => return Err(format!("{to} is the writer of hostgroup {writer} already")),
        [one] => Arc::clone(one),
        [] => return Err(format!("hostgroup {writer} has no writer to switch from; a failover is not a switchover")),
        several => several.iter().find(|server| server.key.addr() != *to).map(Arc::clone).ok_or("the writers are all the same server")?,
    };
    if writers.len() > 1 && way != Way::Galera {
        return Err(format!("hostgroup {writer} has {} writers; a switchover is from one to another", writers.len()));
    }
    Ok(Plan { writer, way, old, new: Arc::clone(&target.server) })
}

/// Servers that take writes.
pub(super) fn writers(layout: &Layout, writer: HostgroupId) -> Vec<Arc<Server>> {
    let placements = layout.hostgroups.get(&writer).map(Vec::as_slice).unwrap_or_default();
    placements.iter().filter(|placement| placement.status == ServerStatus::Online).map(|placement| Arc::clone(&placement.server)).collect()
}

fn way(group: &RoleGroup, snapshot: &Snapshot) -> Result<Way, String> {
    let hand = if snapshot.effective_in(group.writer).switchover_manages_read_only { Hand::Ours } else { Hand::Theirs };
    match &group.kind {
        RoleKind::Replication(check) => Ok(Way::Replication(*check, hand)),
        RoleKind::Galera => Ok(Way::Galera),
        RoleKind::GroupReplication => Ok(Way::Group),
        RoleKind::Aurora(_) => Err("the writer of an Aurora cluster is Aurora's choice: ask it for a failover".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::snapshot;

    const CLUSTER: &str = "mysql_servers = ( { address=\"a\", port=1, hostgroup=10 }, { address=\"b\", port=1, hostgroup=20 } )
        mysql_replication_hostgroups = ( { writer_hostgroup=10, reader_hostgroup=20 } )";

    fn addr(host: &str) -> ServerAddr {
        ServerAddr { host: host.into(), port: 1 }
    }

    fn planned(change: impl FnOnce(&mut Layout), text: &str, to: &str) -> Result<Plan, String> {
        let snapshot = snapshot(text);
        let mut layout = Layout::as_configured(&snapshot);
        change(&mut layout);
        plan(&snapshot, &layout, HostgroupId(10), &addr(to))
    }

    #[test]
    fn a_replica_may_take_over() {
        let plan = planned(|_| {}, CLUSTER, "b").unwrap();
        assert_eq!((&*plan.old.key.host, &*plan.new.key.host), ("a", "b"));
        assert_eq!(plan.way, Way::Replication(ReadOnlyCheck::ReadOnly, Hand::Theirs));
        let managed = format!("mysql_variables = {{ switchover_manages_read_only=true }}\n{CLUSTER}");
        assert_eq!(planned(|_| {}, &managed, "b").unwrap().way, Way::Replication(ReadOnlyCheck::ReadOnly, Hand::Ours));
    }

    #[test]
    fn what_cannot_be_is_said_before_anything_is_touched() {
        let error = |change: fn(&mut Layout), to| planned(change, CLUSTER, to).unwrap_err();
        assert!(error(|_| {}, "c").contains("no server of the cluster"));
        assert!(error(|_| {}, "a").contains("already"));
        assert!(error(|layout| drop(layout.hostgroups.remove(&HostgroupId(10))), "b").contains("no writer"));
        let shun = |layout: &mut Layout| layout.hostgroups.get_mut(&HostgroupId(20)).unwrap()[0].status = ServerStatus::Shunned;
        assert!(error(shun, "b").contains("not healthy (SHUNNED"));
        let off = format!("mysql_variables = {{ monitor_enabled=false }}\n{CLUSTER}");
        assert!(planned(|_| {}, &off, "b").unwrap_err().contains("monitor_enabled"));
        let other = CLUSTER.replace("writer_hostgroup=10", "writer_hostgroup=11");
        assert!(planned(|_| {}, &other, "b").unwrap_err().contains("no cluster"));
    }
}
