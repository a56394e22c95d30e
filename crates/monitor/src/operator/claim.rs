//! One switchover, promotion or return of a server at a time: each one first claims all servers of its cluster. Without the claim, nothing is planned, checked or changed.
//!
//! INVARIANT: no server is in two claims, so clusters that share servers exclude each other too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::fleet::Layout;
use model::snapshot::Snapshot;
use model::{HostgroupId, ServerAddr};

use super::plan::Plan;
use crate::clock::unix_us;
use crate::monitor::{Monitor, lock};

/// What a cluster is claimed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Switchover,
    /// A server is taken back (`mysql_healing`).
    Rejoin,
    /// A replica takes over from a dead writer (`mysql_healing`).
    Promotion,
    /// A replica becomes the shadow of a rehearsal in mode `all`.
    Rehearsal,
    /// Semi-synchronous replication is set up (`mysql_healing`).
    Acks,
}

impl Work {
    fn as_str(self) -> &'static str {
        match self {
            Self::Switchover => "switchover",
            Self::Rehearsal => "rehearsal",
            Self::Rejoin => "rejoin",
            Self::Acks => "semi-sync",
            Self::Promotion => "promotion",
        }
    }

    fn of(self, writer: HostgroupId) -> String {
        match self {
            Self::Switchover => format!("a switchover of hostgroup {writer}"),
            Self::Rehearsal => format!("the begin of a rehearsal of hostgroup {writer}"),
            Self::Rejoin => format!("the return of a server of hostgroup {writer} (mysql_healing)"),
            Self::Acks => format!("a change of semi-synchronous replication of hostgroup {writer} (mysql_healing)"),
            Self::Promotion => format!("a promotion in hostgroup {writer} (mysql_healing)"),
        }
    }
}

/// The claims of all running switchovers, promotions and returns.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    taken: Vec<(HostgroupId, BTreeSet<ServerAddr>, Work)>,
    /// The plan of each cluster that runs, or ran last.
    plans: BTreeMap<HostgroupId, Numbered>,
}

/// A plan, as the history of its steps names it.
#[derive(Debug, Clone, Copy)]
struct Numbered {
    work: Work,
    /// When it began, Unix us: no two plans of a cluster begin at the same time.
    number: u64,
    is_undone: bool,
}

impl Numbered {
    fn named(self) -> (&'static str, u64) {
        (if self.is_undone { "undo" } else { self.work.as_str() }, self.number)
    }
}

impl Claims {
    fn take(&mut self, writer: HostgroupId, servers: &BTreeSet<ServerAddr>, work: Work) -> Result<(), String> {
        for (other, claimed, present) in &self.taken {
            if *other == writer {
                return Err(format!("{} is under way", present.of(writer)));
            }
            if let Some(server) = servers.intersection(claimed).next() {
                return Err(format!("{}, which also has {server}, is under way", present.of(*other)));
            }
        }
        self.taken.push((writer, servers.clone(), work));
        self.plans.insert(writer, Numbered { work, number: unix_us(), is_undone: false });
        Ok(())
    }

    /// Whether a switchover of this hostgroup is under way, or a server of it is promoted or taken back.
    pub(crate) fn is_taken(&self, writer: HostgroupId) -> bool {
        self.taken.iter().any(|(taken, ..)| *taken == writer)
    }

    /// From now on the plan of this cluster undoes what it did.
    pub(super) fn undo(&mut self, writer: HostgroupId) {
        self.plans.get_mut(&writer).into_iter().for_each(|plan| plan.is_undone = true);
    }

    /// The plan of this cluster that runs, or ran last, with its number.
    pub(super) fn of_cluster(&self, writer: HostgroupId) -> Option<(&'static str, u64)> {
        self.plans.get(&writer).map(|plan| plan.named())
    }

    /// The cluster whose plan has this server now, and the plan.
    pub(super) fn of_server(&self, server: &ServerAddr) -> Option<(HostgroupId, (&'static str, u64))> {
        let (writer, ..) = self.taken.iter().find(|(_, servers, _)| servers.contains(server))?;
        Some((*writer, self.of_cluster(*writer)?))
    }

    /// What is under way, if anything is, in words.
    pub(crate) fn first(&self) -> Option<String> {
        self.taken.first().map(|(taken, _, work)| work.of(*taken))
    }

    fn give_back(&mut self, writer: HostgroupId) {
        self.taken.retain(|(other, ..)| *other != writer);
    }
}

/// The servers of a cluster, for as long as it lives.
pub(super) struct Claim {
    monitor: Arc<Monitor>,
    writer: HostgroupId,
    servers: BTreeSet<ServerAddr>,
}

impl Claim {
    /// Claims the servers of the cluster with this writer hostgroup; an error when any of them is claimed.
    pub(super) fn take(monitor: &Arc<Monitor>, writer: HostgroupId, work: Work) -> Result<Self, String> {
        let servers = monitor.consult(|snapshot, layout| servers(snapshot, layout, writer));
        lock(&monitor.claims).take(writer, &servers, work)?;
        Ok(Self { monitor: Arc::clone(monitor), writer, servers })
    }

    /// Both servers of a plan are claimed: they may have come into the cluster since.
    pub(super) fn covers(&self, plan: &Plan) -> Result<(), String> {
        match [&plan.old, &plan.new].into_iter().find(|server| !self.servers.contains(&server.key.addr())) {
            Some(server) => Err(format!("{} has just become a server of hostgroup {}: repeat the command", server.key.addr(), self.writer)),
            None => Ok(()),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&self.monitor.claims).give_back(self.writer);
        self.monitor.channels_due.notify_one();
    }
}

/// A claim like that of a change of semi-synchronous replication, for tests of other modules.
#[cfg(test)]
pub(crate) fn claimed(monitor: &Arc<Monitor>, writer: HostgroupId) -> Result<impl Sized, String> {
    Claim::take(monitor, writer, Work::Acks)
}

/// Every server of a cluster, those that were found too.
pub(crate) fn servers(snapshot: &Snapshot, layout: &Layout, writer: HostgroupId) -> BTreeSet<ServerAddr> {
    let groups = snapshot.roles.iter().filter(|group| group.writer == writer);
    let placed = groups.flat_map(|group| group.hostgroups()).filter_map(|id| layout.hostgroups.get(&id)).flatten();
    placed.map(|placement| placement.server.key.addr()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_claimed_once() {
        let servers = |hosts: &[&str]| hosts.iter().map(|host| ServerAddr { host: (*host).into(), port: 1 }).collect::<BTreeSet<_>>();
        let mut claims = Claims::default();
        assert_eq!(claims.first(), None);
        claims.take(HostgroupId(1), &servers(&["a", "b"]), Work::Switchover).unwrap();
        assert!(claims.take(HostgroupId(1), &servers(&[]), Work::Rejoin).unwrap_err().contains("hostgroup 1 is under way"));
        assert!(
            claims
                .take(HostgroupId(2), &servers(&["b", "c"]), Work::Switchover)
                .unwrap_err()
                .contains("hostgroup 1, which also has b:1, is under way")
        );
        claims.take(HostgroupId(3), &servers(&["c"]), Work::Rejoin).unwrap();
        assert!(claims.is_taken(HostgroupId(1)) && !claims.is_taken(HostgroupId(2)));
        assert_eq!(claims.first().as_deref(), Some("a switchover of hostgroup 1"));
        let told = claims.take(HostgroupId(3), &servers(&[]), Work::Switchover).unwrap_err();
        assert_eq!(told, "the return of a server of hostgroup 3 (mysql_healing) is under way");
        claims.give_back(HostgroupId(1));
        claims.take(HostgroupId(2), &servers(&["b"]), Work::Switchover).unwrap();
    }
}
