//! The members of a cluster by its own views: servers that were found or left, and the lag of each by Aurora's views.
//!
//! A server is gone after several samples without it, so one odd view removes no server. INVARIANT: samples are kept by time and reporter,
//! not in the order of arrival.

use std::collections::{BTreeMap, BTreeSet};

use model::ServerAddr;
use model::snapshot::Aurora;
use serde::{Deserialize, Serialize};

use crate::knowledge::pairs;

/// Samples in a row without a server after which it has left.
const GONE_AFTER: u32 = 3;

/// Most servers of a cluster that are remembered; those that have left make room.
const ENTRIES_MAX: usize = 256;

/// The cluster's reports about one server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Entry {
    /// Samples since it was last named.
    unlisted: u32,
    /// Aurora's lag, ms, by time and reporting instance.
    #[serde(with = "pairs")]
    lags: BTreeMap<(u64, ServerAddr), u64>,
}

/// Every server that the cluster has named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Roster {
    #[serde(with = "pairs")]
    entries: BTreeMap<ServerAddr, Entry>,
}

impl Roster {
    /// The members without samples: the part worth writing down.
    pub(crate) fn gist(&self) -> Self {
        let listed = self.entries.keys().filter(|addr| !self.is_gone(addr));
        Self { entries: listed.map(|addr| (addr.clone(), Entry::default())).collect() }
    }

    /// A sample came in; `named` are the servers that current views name.
    pub(crate) fn call(&mut self, named: &BTreeSet<ServerAddr>) {
        for addr in named {
            if self.entries.contains_key(addr) || self.has_room() {
                self.entries.entry(addr.clone()).or_default().unlisted = 0;
            }
        }
        for (_, entry) in self.entries.iter_mut().filter(|(addr, _)| !named.contains(*addr)) {
            entry.unlisted = entry.unlisted.saturating_add(1);
        }
    }

    /// Whether there is room for one more, at the cost of the one that left first.
    fn has_room(&mut self) -> bool {
        if self.entries.len() >= ENTRIES_MAX {
            let left = self.entries.iter().filter(|(_, entry)| entry.unlisted >= GONE_AFTER).max_by_key(|(_, entry)| entry.unlisted);
            if let Some(addr) = left.map(|(addr, _)| addr.clone()) {
                self.entries.remove(&addr);
            }
        }
        self.entries.len() < ENTRIES_MAX
    }

    /// Was named once, and is not any more.
    pub(crate) fn is_gone(&self, addr: &ServerAddr) -> bool {
        self.entries.get(addr).is_some_and(|entry| entry.unlisted >= GONE_AFTER)
    }

    /// Whether any view has named it, even if later ones do not.
    pub(crate) fn is_listed(&self, addr: &ServerAddr) -> bool {
        self.entries.contains_key(addr)
    }

    /// Forgets a server that has left.
    pub(crate) fn strike(&mut self, addr: &ServerAddr) {
        self.entries.remove(addr);
    }

    /// Takes a lag that `from` told at some time; as many as `keep` are kept.
    pub(crate) fn note_lag(&mut self, addr: &ServerAddr, (at_ms, from): (u64, &ServerAddr), lag_ms: u64, keep: u32) {
        let Some(entry) = self.entries.get_mut(addr) else { return };
        entry.lags.insert((at_ms, from.clone()), lag_ms);
        while entry.lags.len() > usize::try_from(keep).unwrap_or(usize::MAX).max(1) {
            entry.lags.pop_first();
        }
    }

    /// The assumed lag of an instance, ms: the largest of its last samples, each raised as `add_lag_ms` and `min_lag_ms` say. None without
    /// a sample.
    pub(crate) fn lag_ms(&self, addr: &ServerAddr, aurora: &Aurora) -> Option<u64> {
        let estimate = |lag_ms: &u64| match *lag_ms {
            0 => 0,
            lag_ms => lag_ms.saturating_add(aurora.add_lag_ms.into()).max(aurora.min_lag_ms.into()),
        };
        self.entries.get(addr)?.lags.values().map(estimate).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_left_make_room() {
        let addr = |n: u16| ServerAddr { host: "a".into(), port: n };
        let mut roster = Roster::default();
        for first in 0..1_000u16 {
            roster.call(&(first..first + 10).map(addr).collect());
            assert!((first..first + 10).all(|n| roster.is_listed(&addr(n))) && roster.entries.len() <= ENTRIES_MAX);
        }
        roster.call(&(2_000..3_000).map(addr).collect());
        roster.call(&(2_000..3_000).map(addr).collect());
        assert_eq!(roster.entries.len(), ENTRIES_MAX);
    }
}
