//! The topology's state as a value: takeovers, excluded and drained servers, and each server's last answers.
//!
//! Another [`Topology`](crate::Topology) continues with it. Unchanged, it gives the same decisions for the same input; a process that takes
//! over from this one gets it that way. The part for a file leaves out values that change all the time. After a restart it holds until
//! servers answer otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::ServerAddr;
use model::snapshot::{RoleGroup, RoleKind};
use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, ClusterKnowledge};
use crate::facts::Facts;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Knowledge {
    /// With samples, as of this moment.
    is_exact: bool,
    /// The time of the last input, on the caller's clock, ms.
    pub(crate) now_ms: u64,
    clusters: Vec<ClusterKnowledge>,
    /// Servers that an operator drains. Files and processes of before have none.
    pub(crate) drained: BTreeSet<ServerAddr>,
    #[serde(with = "pairs")]
    facts: BTreeMap<ServerAddr, Facts>,
}

impl Knowledge {
    pub(crate) fn exact(now_ms: u64, clusters: &[Cluster], drained: &BTreeSet<ServerAddr>, facts: &BTreeMap<ServerAddr, Facts>) -> Self {
        let clusters = clusters.iter().map(Cluster::knowledge).collect();
        Self { is_exact: true, now_ms, clusters, drained: drained.clone(), facts: facts.clone() }
    }

    /// The part of it that is written down.
    pub(crate) fn kept(self) -> Self {
        let facts = self.facts.iter().map(|(addr, facts)| (addr.clone(), facts.kept())).collect();
        let clusters = self.clusters.into_iter().map(ClusterKnowledge::kept).collect();
        Self { is_exact: false, now_ms: self.now_ms, clusters, drained: self.drained, facts }
    }

    /// The same state, marked as past: it counts only for servers that refuse the monitor.
    pub(crate) fn of_then(self) -> Self {
        Self { is_exact: false, ..self }
    }

    /// The part whose changes are worth writing. Times, counts and measured values change all the time and are left out.
    pub fn gist(&self) -> Self {
        let facts = self.facts.iter().map(|(addr, facts)| (addr.clone(), facts.gist())).collect();
        let clusters = self.clusters.iter().map(ClusterKnowledge::gist).collect();
        Self { is_exact: self.is_exact, now_ms: 0, clusters, drained: self.drained.clone(), facts }
    }

    /// Whether it holds no clusters, no drained servers and no facts. There is then nothing to write.
    pub fn is_empty(&self) -> bool {
        self.clusters.is_empty() && self.drained.is_empty() && self.facts.is_empty()
    }

    /// The cluster of this row in its old state. If its members elect the writer, they are asked after a restart instead, unless the
    /// monitor is off.
    pub(crate) fn take_cluster(&mut self, group: &Arc<RoleGroup>, is_watching: bool) -> Option<Cluster> {
        let index = self.clusters.iter().position(|known| known.is_of(group))?;
        let known = self.clusters.swap_remove(index);
        let holds = self.is_exact || !is_watching || matches!(group.kind, RoleKind::Replication(_));
        holds.then(|| known.into_cluster(group))
    }

    /// The facts that hold, and those that count only for servers that refuse the monitor.
    pub(crate) fn take_facts(&mut self, is_watching: bool) -> (BTreeMap<ServerAddr, Facts>, BTreeMap<ServerAddr, Facts>) {
        let facts = std::mem::take(&mut self.facts);
        let facts: BTreeMap<_, _> = facts.into_iter().map(|(addr, facts)| (addr, facts.within_limits())).collect();
        if self.is_exact || !is_watching {
            return (facts, BTreeMap::new());
        }
        (facts.iter().map(|(addr, facts)| (addr.clone(), facts.clone().without_views())).collect(), facts)
    }
}

/// Maps as lists of pairs: JSON has no other keys than texts.
pub(crate) mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// See the module.
    pub(crate) fn serialize<K: Serialize, V: Serialize, S: Serializer>(map: &BTreeMap<K, V>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    /// See the module.
    pub(crate) fn deserialize<'de, K, V, D>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        K: Deserialize<'de> + Ord,
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        Vec::<(K, V)>::deserialize(deserializer).map(|pairs| pairs.into_iter().collect())
    }
}
