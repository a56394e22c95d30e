//! The plan of a switchover, made from the known state before anything is changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::fleet::{Layout, Placement};
use model::snapshot::{ReadOnlyCheck, RoleGroup, RoleKind, Server, ServerStatus, Snapshot};
use model::{HostgroupId, ServerAddr};
use topology::CheckKind;

/// How roles are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// `read_only` on both servers, and who sets it.
    Replication(ReadOnlyCheck, Hand),
    /// By preference alone: every node can write.
    Galera,
    /// The group elects the member that it is told to elect.
    Group,
}

/// The party that sets `read_only`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hand {
    /// We, as the monitor's user (`switchover_manages_read_only`).
    Ours,
    /// Another program: the proxy waits for it.
    Theirs,
}

/// A switchover that may begin.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    /// The writer hostgroup of the cluster that switches over.
    pub(super) writer: HostgroupId,
    pub(super) way: Way,
    /// The present writer.
    pub(super) old: Arc<Server>,
    /// The server that shall write.
    pub(super) new: Arc<Server>,
    /// The writer hostgroups that are held: this one, and those of other clusters in which the old one writes too.
    pub(super) held: Vec<HostgroupId>,
    /// The other servers of these clusters.
    pub(super) others: Vec<Arc<Server>>,
}

impl Plan {
    /// The check that tells the writer.
    pub(super) fn kind(&self) -> CheckKind {
        match self.way {
            Way::Replication(check, _) => CheckKind::ReadOnly(check),
            Way::Galera => CheckKind::Galera,
            Way::Group => CheckKind::Group,
        }
    }

    /// An error if no party would set `read_only`: sessions would wait in vain, and everything would be undone.
    pub(super) fn has_a_hand(&self, asked: Hand) -> Result<(), String> {
        match self.way {
            Way::Replication(_, Hand::Theirs) if asked == Hand::Ours => Err(format!(
                "nothing was changed: mysql-switchover_manages_read_only is false, so the proxy does not set read_only on {} and {}. \
                 Set it to true and LOAD MYSQL VARIABLES TO RUNTIME. If you or a tool set read_only on both while sessions wait, add \
                 WAIT FOR READ_ONLY to the command",
                self.old.key.addr(),
                self.new.key.addr()
            )),
            _ => Ok(()),
        }
    }

    /// Whether it would do the same to the same servers.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let who = |plan: &Self| (plan.way, plan.old.key.addr(), plan.new.key.addr(), plan.held.clone());
        who(self) == who(other)
    }
}

/// The plan, or why there is none.
pub(super) fn plan(snapshot: &Snapshot, layout: &Layout, writer: HostgroupId, to: &ServerAddr) -> Result<Plan, String> {
    let group = cluster(snapshot, writer)?;
    let way = way(group, snapshot)?;
    let target = target(layout, group, to, |placement| placement.status == ServerStatus::Online)?;
    let writers = writers(layout, writer);
    let addrs: Vec<ServerAddr> = writers.iter().map(|server| server.key.addr()).collect();
    if addrs.contains(to) {
        let already = if addrs.len() > 1 { "a writer" } else { "the writer" };
        return Err(format!("{to} is {already} of hostgroup {writer} already"));
    }
    if way == Way::Galera && group.max_writers > 1 {
        return Err(format!(
            "max_writers of hostgroup {writer} is {}, but a switchover needs exactly one writer: DRAIN the server that must not write",
            group.max_writers
        ));
    }
    let [old] = writers.as_slice() else {
        return Err(match writers.len() {
            0 => format!("hostgroup {writer} has no writer, so there is nothing to switch over: wait for the failover"),
            several => format!("hostgroup {writer} has {several} writers, but a switchover needs exactly one: DRAIN the others first"),
        });
    };
    let groups = concerned(snapshot, layout, group, &old.key.addr(), to)?;
    groups.iter().try_for_each(|group| may_write(snapshot, group.writer, to))?;
    let members: BTreeMap<ServerAddr, Arc<Server>> = groups
        .iter()
        .flat_map(|group| placements(layout, group))
        .map(|placed| (placed.server.key.addr(), Arc::clone(&placed.server)))
        .collect();
    let others = members.into_iter().filter(|(addr, _)| *addr != *to && *addr != old.key.addr()).map(|(_, server)| server).collect();
    let held = groups.iter().map(|group| group.writer).collect();
    Ok(Plan { writer, way, old: Arc::clone(old), new: Arc::clone(&target.server), held, others })
}

/// Why the new one cannot become the writer any more, whatever is done; `plan` is being carried out.
pub(super) fn obstacle(snapshot: &Snapshot, layout: &Layout, plan: &Plan) -> Option<String> {
    // A lagging server may still catch up while sessions wait. If another program changes roles, it may restart servers.
    let is_borne = |placement: &Placement| match placement.status {
        ServerStatus::Online | ServerStatus::ShunnedReplicationLag => true,
        ServerStatus::Shunned => placement.server.status == ServerStatus::Online && matches!(plan.way, Way::Replication(_, Hand::Theirs)),
        ServerStatus::OfflineSoft | ServerStatus::OfflineHard => false,
    };
    let group = cluster(snapshot, plan.writer);
    let found = group.and_then(|group| match way(group, snapshot) {
        Ok(Way::Replication(check, _)) if matches!(plan.way, Way::Replication(planned, _) if planned == check) => Ok(group),
        Ok(way) if way == plan.way => Ok(group),
        _ => Err(format!("hostgroup {} belongs to another kind of cluster now", plan.writer)),
    });
    let to = plan.new.key.addr();
    found.and_then(|group| target(layout, group, &to, is_borne)).and_then(|_| may_write(snapshot, plan.writer, &to)).err()
}

/// Whether statements would be sent to it as a writer, as far as its row there says; one without a row there has a weight.
fn may_write(snapshot: &Snapshot, writer: HostgroupId, to: &ServerAddr) -> Result<(), String> {
    let mut rows = snapshot.hostgroup(writer).map_or(&[][..], |hostgroup| hostgroup.servers.as_slice()).iter();
    match rows.find(|row| row.key.addr() == *to).map(|row| (row.status, row.weight)) {
        Some((status, _)) if status != ServerStatus::Online => Err(format!(
            "{to} is {} in hostgroup {writer}, so the proxy would send it nothing as the writer: change its status in mysql_servers",
            status.as_str()
        )),
        Some((_, 0)) => Err(format!(
            "{to} has weight 0 in hostgroup {writer}, so the proxy would send it nothing as the writer: give its row there a weight"
        )),
        _ => Ok(()),
    }
}

fn cluster(snapshot: &Snapshot, writer: HostgroupId) -> Result<&Arc<RoleGroup>, String> {
    if !snapshot.vars.monitor_enabled {
        return Err("mysql-monitor_enabled is false, so the proxy does not know the writer: set it to true first".into());
    }
    let found = snapshot.roles.iter().find(|group| group.writer == writer);
    found.ok_or_else(|| format!("hostgroup {writer} is not a cluster's writer hostgroup"))
}

fn placements<'a>(layout: &'a Layout, group: &RoleGroup) -> impl Iterator<Item = &'a Placement> {
    group.hostgroups().filter_map(|id| layout.hostgroups.get(&id)).flatten().collect::<Vec<_>>().into_iter()
}

/// The new writer's present place, with a status that allows the switchover.
fn target<'a>(
    layout: &'a Layout,
    group: &RoleGroup,
    to: &ServerAddr,
    will_do: impl Fn(&Placement) -> bool,
) -> Result<&'a Placement, String> {
    let all: Vec<&Placement> = placements(layout, group).filter(|placement| placement.server.key.addr() == *to).collect();
    let serves = |placement: &&&Placement| will_do(placement) && Some(placement.server.key.hostgroup) != group.offline;
    match (all.iter().find(serves), all.first()) {
        (Some(serving), _) => Ok(serving),
        (None, Some(other)) => {
            let why = if other.why.is_empty() { "mysql_servers says so" } else { &*other.why };
            Err(format!("{to} is not healthy ({}: {why})", other.status.as_str()))
        }
        (None, None) => Err(format!("{to} is not a server of the cluster with writer hostgroup {}", group.writer)),
    }
}

/// The cluster, and other clusters in which the old writer also writes: they lose their writer too.
fn concerned<'a>(
    snapshot: &'a Snapshot,
    layout: &Layout,
    group: &'a RoleGroup,
    old: &ServerAddr,
    to: &ServerAddr,
) -> Result<Vec<&'a RoleGroup>, String> {
    let mut concerned = vec![group];
    if group.kind == RoleKind::Galera {
        return Ok(concerned);
    }
    for other in snapshot.roles.iter().filter(|other| other.writer != group.writer) {
        let also = other.writer;
        let writers = writers(layout, also);
        if !writers.iter().any(|server| server.key.addr() == *old) {
            continue;
        }
        let refused = |why: String| Err(format!("{old} is also a writer of hostgroup {also}: {why}"));
        if other.kind != group.kind {
            return refused("another kind of cluster decides the writer there".into());
        }
        if writers.len() > 1 {
            return refused(format!("that hostgroup has {} writers, but a switchover needs exactly one", writers.len()));
        }
        if let Err(why) = target(layout, other, to, |placement| placement.status == ServerStatus::Online) {
            return refused(format!("{why}, so no server could write there"));
        }
        concerned.push(other);
    }
    Ok(concerned)
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
        RoleKind::Aurora(_) => Err("Aurora chooses the writer of its cluster: start a failover with Aurora's own tools".into()),
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
        let refused = plan.has_a_hand(Hand::Ours).unwrap_err();
        assert!(refused.contains("mysql-switchover_manages_read_only") && refused.contains("WAIT FOR READ_ONLY"), "{refused}");
        assert_eq!(plan.has_a_hand(Hand::Theirs), Ok(()));
        let managed = format!("mysql_variables = {{ switchover_manages_read_only=true }}\n{CLUSTER}");
        assert_eq!(planned(|_| {}, &managed, "b").unwrap().has_a_hand(Hand::Ours), Ok(()));
        assert_eq!(planned(|_| {}, &managed, "b").unwrap().way, Way::Replication(ReadOnlyCheck::ReadOnly, Hand::Ours));
    }

    #[test]
    fn hostgroups_that_share_the_writer_are_held_together() {
        const SHARED: &str = "mysql_servers = ( { address=\"a\", port=1, hostgroup=10 }, { address=\"b\", port=1, hostgroup=20 },
            { address=\"a\", port=1, hostgroup=30 }, { address=\"c\", port=1, hostgroup=40 }, { address=\"b\", port=1, hostgroup=40 } )
            mysql_replication_hostgroups = ( { writer_hostgroup=10, reader_hostgroup=20 }, { writer_hostgroup=30, reader_hostgroup=40 } )";
        let plan = planned(|_| {}, SHARED, "b").unwrap();
        assert_eq!(plan.held, [HostgroupId(10), HostgroupId(30)]);
        assert_eq!(plan.others.iter().map(|server| &*server.key.host).collect::<Vec<_>>(), ["c"]);
        let error = planned(|_| {}, &SHARED.replace(", { address=\"b\", port=1, hostgroup=40 }", ""), "b").unwrap_err();
        assert!(error.contains("also a writer of hostgroup 30") && error.contains("not a server of the cluster"), "{error}");
        let apart = planned(|layout| drop(layout.hostgroups.remove(&HostgroupId(30))), SHARED, "b").unwrap();
        assert_eq!(apart.held, [HostgroupId(10)], "it does not write there");
    }

    #[test]
    fn with_several_writers_there_is_nobody_to_switch_from() {
        const GALERA: &str = "mysql_servers = ( { address=\"a\", port=1, hostgroup=10 }, { address=\"b\", port=1, hostgroup=20 } )
            mysql_galera_hostgroups = ( { writer_hostgroup=10, backup_writer_hostgroup=11, reader_hostgroup=20, offline_hostgroup=12,
            max_writers=2, writer_is_also_reader=0, max_transactions_behind=100 } )";
        let error = planned(|_| {}, GALERA, "b").unwrap_err();
        assert!(error.contains("max_writers of hostgroup 10 is 2"), "{error}");
        let both = |layout: &mut Layout| {
            let second = layout.hostgroups[&HostgroupId(20)].clone();
            layout.hostgroups.get_mut(&HostgroupId(10)).unwrap().extend(second);
        };
        assert!(planned(both, GALERA, "b").unwrap_err().contains("b:1 is a writer of hostgroup 10 already"));
    }

    #[test]
    fn a_target_that_would_be_sent_nothing_is_refused() {
        let both = CLUSTER
            .replace("port=1, hostgroup=20 }", "port=1, hostgroup=20, weight=0 }, { address=\"b\", port=1, hostgroup=10, weight=0 }");
        let out = |layout: &mut Layout| layout.hostgroups.get_mut(&HostgroupId(10)).unwrap().retain(|p| &*p.server.key.host == "a");
        let error = planned(out, &both, "b").unwrap_err();
        assert!(error.contains("b:1 has weight 0 in hostgroup 10"), "{error}");
        let reader = CLUSTER.replace("port=1, hostgroup=20 }", "port=1, hostgroup=20, weight=0 }");
        assert!(planned(|_| {}, &reader, "b").is_ok(), "it is not read from, and may write");
    }

    #[test]
    fn what_makes_a_target_unfit_later() {
        let snapshot = snapshot(CLUSTER);
        let mut layout = Layout::as_configured(&snapshot);
        let plan = plan(&snapshot, &layout, HostgroupId(10), &addr("b")).unwrap();
        let mut with = |status| {
            layout.hostgroups.get_mut(&HostgroupId(20)).unwrap()[0].status = status;
            obstacle(&snapshot, &layout, &plan)
        };
        assert_eq!([ServerStatus::Online, ServerStatus::ShunnedReplicationLag].map(&mut with), [None, None]);
        assert_eq!(with(ServerStatus::OfflineSoft).unwrap(), "b:1 is not healthy (OFFLINE_SOFT: mysql_servers says so)");
        assert_eq!(with(ServerStatus::Shunned), None, "who changes its role may have restarted it");
        let placed = &mut layout.hostgroups.get_mut(&HostgroupId(20)).unwrap()[0];
        placed.server = Arc::new(Server { status: ServerStatus::Shunned, ..Server::clone(&placed.server) });
        assert_eq!(obstacle(&snapshot, &layout, &plan).unwrap(), "b:1 is not healthy (SHUNNED: mysql_servers says so)");
        let other = self::snapshot(&CLUSTER.replace("writer_hostgroup=10", "writer_hostgroup=11"));
        assert!(obstacle(&other, &layout, &plan).unwrap().contains("not a cluster's writer hostgroup"));
        assert!(obstacle(&snapshot, &Layout::default(), &plan).unwrap().contains("not a server of the cluster"));
    }

    #[test]
    fn what_cannot_be_is_said_before_anything_is_touched() {
        let error = |change: fn(&mut Layout), to| planned(change, CLUSTER, to).unwrap_err();
        assert!(error(|_| {}, "c").contains("not a server of the cluster"));
        assert!(error(|_| {}, "a").contains("already"));
        assert!(error(|layout| drop(layout.hostgroups.remove(&HostgroupId(10))), "b").contains("no writer"));
        for status in ["SHUNNED", "OFFLINE_SOFT"] {
            let row = format!("port=1, hostgroup=20 }}, {{ address=\"b\", port=1, hostgroup=10, status=\"{status}\" }}");
            let error = planned(|_| {}, &CLUSTER.replace("port=1, hostgroup=20 }", &row), "b").unwrap_err();
            assert_eq!(
                error,
                format!(
                    "b:1 is {status} in hostgroup 10, so the proxy would send it nothing as the writer: change its status in mysql_servers"
                )
            );
        }
        let shun = |layout: &mut Layout| layout.hostgroups.get_mut(&HostgroupId(20)).unwrap()[0].status = ServerStatus::Shunned;
        assert!(error(shun, "b").contains("not healthy (SHUNNED"));
        let off = format!("mysql_variables = {{ monitor_enabled=false }}\n{CLUSTER}");
        assert!(planned(|_| {}, &off, "b").unwrap_err().contains("monitor_enabled"));
        let other = CLUSTER.replace("writer_hostgroup=10", "writer_hostgroup=11");
        assert!(planned(|_| {}, &other, "b").unwrap_err().contains("not a cluster's writer hostgroup"));
    }
}
