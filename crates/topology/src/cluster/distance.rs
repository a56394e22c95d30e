//! How far the servers of a cluster are behind, for statements that limit it.

use model::ServerAddr;
use model::snapshot::RoleKind;

use super::Cluster;
use crate::facts::Facts;
use crate::health::{Distance, limits_lag};
use crate::member::Member;

impl Cluster {
    /// By the server's own lag checks, if a row limits its lag, and by Aurora's views. Unknown if neither says.
    pub(crate) fn distance(&self, addr: &ServerAddr, facts: &Facts) -> Distance {
        let mut rows = self.members.get(addr).into_iter().flat_map(Member::rows);
        let checked = if rows.any(|row| limits_lag(row)) { Distance::of(facts) } else { Distance::default() };
        checked.with(Distance { lag_ms: self.listed_lag_ms(addr) })
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
