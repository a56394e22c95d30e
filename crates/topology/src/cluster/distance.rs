//! How far the servers of a cluster are behind, for statements that limit it.

use model::ServerAddr;
use model::snapshot::RoleKind;

use super::{Cluster, World};
use crate::facts::Facts;
use crate::health::{Distance, Sources, limits_lag};
use crate::member::Member;

impl Cluster {
    /// By the server's own lag checks, if a row limits its lag, and by Aurora's views. Unknown if neither says. The source is known by its
    /// role, and a source has no lag.
    pub(crate) fn distance(&self, world: World<'_>, addr: &ServerAddr, facts: &Facts) -> Distance {
        let listed_ms = self.listed_lag_ms(addr);
        if self.is_source(addr) {
            return Distance { lag_ms: listed_ms, is_source: true };
        }
        let mut rows = self.members.get(addr).into_iter().flat_map(Member::rows);
        if !rows.any(|row| limits_lag(row)) {
            return Distance { lag_ms: listed_ms, is_source: false };
        }
        let to_follow_since_ms = self.to_follow_since_ms(world, facts, &self.memory.writers);
        let sources = Sources { to_follow_since_ms, quiet: self.memory.quiet };
        let checked = Distance::of(facts, sources, world.policy(self.group.reader));
        Distance { lag_ms: listed_ms.max(checked.lag_ms), is_source: false }
    }

    /// Whether it writes and the lag of its replicas is known. Nodes of Galera and members of a group are no replicas.
    fn is_source(&self, addr: &ServerAddr) -> bool {
        let mut rows = self.members.values().flat_map(Member::rows);
        self.memory.writers.contains(addr)
            && match &self.group.kind {
                RoleKind::Aurora(_) => true,
                RoleKind::Replication(_) => rows.any(|row| limits_lag(row)),
                RoleKind::Galera | RoleKind::GroupReplication => false,
            }
    }

    /// The lag by Aurora's views, ms; 0 for the writer. None for other kinds, and for an instance that the views do not name.
    fn listed_lag_ms(&self, addr: &ServerAddr) -> Option<u64> {
        let RoleKind::Aurora(row) = &self.group.kind else { return None };
        if self.memory.writers.contains(addr) {
            return Some(0);
        }
        self.roster.lag_ms(addr, row).filter(|_| !self.roster.is_gone(addr))
    }
}
