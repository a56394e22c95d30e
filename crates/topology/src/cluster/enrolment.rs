//! Servers that the cluster's own views name: those that nobody configured are found, and leave again.
//!
//! INVARIANT: a server that an operator wrote is never removed.

use model::ServerAddr;
use model::snapshot::RoleKind;

use super::{Cluster, World};
use crate::member::Member;
use crate::{aurora, group};

/// A server that came or left by the cluster's own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Enrolment {
    /// Nobody configured it.
    Found(ServerAddr),
    /// It was found earlier.
    Left(ServerAddr),
}

/// Servers of one cluster beyond which none are found any more.
const MAX_MEMBERS: usize = 128;

impl Cluster {
    /// Takes over whom the cluster's own views name, after `reporter` gave a new one; who came and who left.
    pub fn enrol(&mut self, world: World<'_>, reporter: &ServerAddr) -> Vec<Enrolment> {
        let named = match &self.group.kind {
            RoleKind::GroupReplication => group::named(self.scene(world, &self.memory.writers)),
            RoleKind::Aurora(row) => Some(aurora::named(self.scene(world, &self.memory.writers), row, &self.memory.aurora)),
            RoleKind::Replication(_) | RoleKind::Galera => None,
        };
        let Some(named) = named.filter(|named| !named.is_empty()) else { return Vec::new() };
        self.roll.call(&named);
        self.note_lags(world, reporter);
        let mut changes = self.dismiss();
        changes.extend(named.into_iter().filter_map(|addr| self.find(addr)));
        changes
    }

    /// Adds a server that was found.
    fn find(&mut self, addr: ServerAddr) -> Option<Enrolment> {
        let like = self.members.values().find(|member| !member.configured.is_empty())?.any_row()?;
        if self.members.contains_key(&addr) || self.members.len() >= MAX_MEMBERS {
            return None;
        }
        let member = Member::found(&self.group, &addr, like, &self.found_like);
        self.members.insert(addr.clone(), member);
        Some(Enrolment::Found(addr))
    }

    /// Removes servers that were found and have left.
    fn dismiss(&mut self) -> Vec<Enrolment> {
        let has_left =
            |(addr, member): (&ServerAddr, &Member)| (member.configured.is_empty() && self.roll.is_gone(addr)).then(|| addr.clone());
        let gone: Vec<ServerAddr> = self.members.iter().filter_map(has_left).collect();
        for addr in &gone {
            self.members.remove(addr);
            self.roll.strike(addr);
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
            self.roll.note_lag(&addr, (track.at_ms, reporter), instance.lag_ms, row.lag_num_checks);
        }
    }
}
