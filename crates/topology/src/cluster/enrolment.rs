//! Servers that the cluster's own views name: those without a row are added, and removed once the views no longer name them.
//!
//! INVARIANT: a server that an operator configured is never removed.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::ServerAddr;
use model::snapshot::{Address, RoleGroup, RoleKind, Server};

use super::{Cluster, World};
use crate::check::CheckKind;
use crate::member::Member;
use crate::{aurora, group, rds};

/// A server that came or left by the cluster's own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Enrolment {
    /// A server without a row was added.
    Found(ServerAddr),
    /// It was found earlier.
    Left(ServerAddr),
}

/// Servers of one cluster beyond which none are found any more.
const MAX_MEMBERS: usize = 128;

/// The row whose connection settings a found server gets. A row with a port is preferred, as sockets have neither TLS nor compression.
pub(super) fn like<'a>(group: &RoleGroup, members: &'a BTreeMap<ServerAddr, Member>) -> Option<&'a Arc<Server>> {
    let written = members.values().filter(|member| !member.configured.is_empty());
    let is_socket = |member: &&Member| member.any_row().is_some_and(|row| matches!(row.address, Address::Unix(_)));
    match group.kind {
        // In replication a row has a limit of its own on lag, and not every server need be RDS's.
        RoleKind::Replication(_) => {
            let reads = |member: &Member| member.configured.contains(&group.reader);
            let rank =
                |member: &&Member| (is_socket(member), member.any_row().is_none_or(|row| !rds::is_rds(&row.key.host)), !reads(member));
            let best = written.min_by_key(rank)?;
            best.row(group.reader).filter(|_| reads(best)).or_else(|| best.any_row())
        }
        RoleKind::Galera | RoleKind::GroupReplication | RoleKind::Aurora(_) => written.min_by_key(is_socket)?.any_row(),
    }
}

impl Cluster {
    /// Adds the servers that the cluster's own views name, and removes those that left. `reporter` named a new one in a check of this kind.
    pub(crate) fn enrol(&mut self, world: World<'_>, reporter: &ServerAddr, told: CheckKind) -> Vec<Enrolment> {
        self.identify(world, &mut self.memory.identity.clone());
        let named = match &self.group.kind {
            RoleKind::GroupReplication => group::named(self.scene(world, &self.memory.writers)),
            RoleKind::Aurora(row) => Some(aurora::named(self.scene(world, &self.memory.writers), row, &self.memory.aurora)),
            RoleKind::Replication(_) if told == CheckKind::RdsTopology => {
                rds::named(self.scene(world, &self.memory.writers), world.snapshot, reporter)
            }
            RoleKind::Replication(_) | RoleKind::Galera => None,
        };
        let Some(named) = named.filter(|named| !named.is_empty()) else { return Vec::new() };
        self.roster.call(&named);
        self.note_lags(world, reporter);
        let mut changes = self.dismiss();
        changes.extend(named.into_iter().filter_map(|addr| self.find(addr)));
        changes
    }

    /// Adds a server that was found.
    fn find(&mut self, addr: ServerAddr) -> Option<Enrolment> {
        let like = like(&self.group, &self.members)?;
        if self.members.keys().any(|known| known.is_same(&addr)) || self.members.len() >= MAX_MEMBERS {
            return None;
        }
        let member = Member::found(&self.group, &addr, like, &self.found_like);
        self.members.insert(addr.clone(), member);
        Some(Enrolment::Found(addr))
    }

    /// Removes servers that were found and have left.
    fn dismiss(&mut self) -> Vec<Enrolment> {
        let has_left =
            |(addr, member): (&ServerAddr, &Member)| (member.configured.is_empty() && self.roster.is_gone(addr)).then(|| addr.clone());
        let gone: Vec<ServerAddr> = self.members.iter().filter_map(has_left).collect();
        for addr in &gone {
            self.members.remove(addr);
            self.roster.strike(addr);
            self.memory.places.remove(addr);
        }
        gone.into_iter().map(Enrolment::Left).collect()
    }

    /// Aurora's views tell everybody's lag.
    fn note_lags(&mut self, world: World<'_>, reporter: &ServerAddr) {
        let RoleKind::Aurora(row) = &self.group.kind else { return };
        let Some(track) = world.facts.get(reporter).map(|facts| &facts.aurora) else { return };
        for instance in track.last.iter().flat_map(|view| &view.instances) {
            let addr = aurora::address(row, instance);
            self.roster.note_lag(&addr, (track.at_ms, reporter), instance.lag_ms, row.lag_num_checks);
        }
    }
}
