//! What a server had that took over, and what it lacks: transactions that who wrote before it was seen to have, and that it has not when
//! it is asked the next time.
//!
//! INVARIANT: each takeover is told of once at most, by a look that came after it.

use std::collections::BTreeSet;

use model::snapshot::RoleKind;
use model::{HostgroupId, ServerAddr};
use serde::{Deserialize, Serialize};

use super::{Cluster, Memory, World};
use crate::gtids::GtidSet;
use crate::seen::ServerId;

/// Forks that are kept of a cluster; beyond it the oldest go.
const MAX_FORKS: usize = 16;

/// What a promoted server had before its first write. What others have beyond it, and did not get from that server, is a fork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fork {
    /// The cluster's writer hostgroup.
    pub writer: HostgroupId,
    /// The server that was promoted.
    pub heir: ServerAddr,
    /// When it was seen to be, on the caller's clock, ms.
    pub at_ms: u64,
    /// Who wrote before, as far as is known.
    pub from: Vec<ServerAddr>,
    /// What the promoted server had. If it was not seen before, it lacks what that server had written itself in earlier times.
    pub had: GtidSet,
    /// It was seen before its promotion, and it is known what it calls itself.
    pub is_exact: bool,
}

/// A server took over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Takeover {
    heir: ServerAddr,
    /// When, ms.
    at_ms: u64,
    /// It could not be asked what it has: it is asked again as the settings say, without haste.
    has_failed: bool,
    /// What it was seen to have before.
    had: Option<GtidSet>,
    /// Who wrote before and does so no more.
    predecessors: Vec<ServerAddr>,
    /// What these were seen to have, as far as they said.
    from: Vec<(ServerAddr, GtidSet)>,
}

/// What is found when a server that took over is asked what it has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Succession {
    /// What it lacks of those it took over from, in words, if it does.
    pub lacks: Option<String>,
    /// What it had before its first write, if it took over.
    pub fork: Option<Fork>,
}

impl Cluster {
    /// Notes who of the new writers takes over from whom.
    pub(super) fn note_takeovers(&self, world: World<'_>, writers: &BTreeSet<ServerAddr>, memory: &mut Memory) {
        if writers.is_empty() || !matches!(self.group.kind, RoleKind::Replication(_)) {
            return;
        }
        let before = std::mem::replace(&mut memory.last_writers, writers.clone());
        let had = |addr: &ServerAddr| Some(world.facts.get(addr)?.gtids.back()?.1.clone());
        let predecessors: Vec<ServerAddr> = before.difference(writers).cloned().collect();
        let from: Vec<(ServerAddr, GtidSet)> = predecessors.iter().filter_map(|addr| Some((addr.clone(), had(addr)?))).collect();
        memory.takeovers.retain(|takeover| writers.contains(&takeover.heir));
        for heir in writers.difference(&before).filter(|_| !predecessors.is_empty()) {
            memory.takeovers.push(Takeover {
                heir: heir.clone(),
                at_ms: world.now_ms,
                has_failed: false,
                had: had(heir),
                predecessors: predecessors.clone(),
                from: from.clone(),
            });
        }
    }

    /// A server was asked what it has executed; `id` is what it calls itself, if that is known.
    pub(crate) fn succeeds(&mut self, heir: &ServerAddr, id: &ServerId, has: Option<&GtidSet>, now_ms: u64) -> Succession {
        let is_settled = |takeover: &Takeover| takeover.heir == *heir && takeover.at_ms < now_ms;
        let Some(has) = has else {
            let all = self.memory.takeovers.iter_mut().chain(&mut self.before.takeovers);
            all.filter(|takeover| is_settled(takeover)).for_each(|takeover| takeover.has_failed = true);
            return Succession::default();
        };
        let settled: Vec<Takeover> = self.memory.takeovers.extract_if(.., |takeover| is_settled(takeover)).collect();
        self.before.takeovers.retain(|takeover| !is_settled(takeover));
        let from = settled.iter().flat_map(|takeover| &takeover.from);
        let lacks = from.map(|(addr, had)| (had.missing_in(has), addr)).filter(|(count, _)| *count > 0);
        let words: Vec<String> = lacks.map(|(count, addr)| format!("{count} transactions of {addr}")).collect();
        let lacks = (!words.is_empty()).then(|| words.join(", "));
        let fork = settled.last().map(|takeover| {
            let nothing = GtidSet::default();
            Fork {
                writer: self.group.writer,
                heir: heir.clone(),
                at_ms: takeover.at_ms,
                from: takeover.predecessors.clone(),
                had: has.before_writes_of(id, takeover.had.as_ref().unwrap_or(&nothing)),
                is_exact: takeover.had.is_some() && *id != ServerId::default(),
            }
        });
        for memory in [&mut self.memory, &mut self.before] {
            memory.forks.extend(fork.clone());
            let excess = memory.forks.len().saturating_sub(MAX_FORKS);
            memory.forks.drain(..excess);
        }
        Succession { lacks, fork }
    }

    /// What promoted servers had before their first write, the oldest promotion first.
    pub(crate) fn forks(&self) -> &[Fork] {
        &self.memory.forks
    }

    /// Whether a server took over a moment ago, and is still to say what it has.
    pub(crate) fn awaits(&self, heir: &ServerAddr) -> bool {
        self.memory.takeovers.iter().any(|takeover| takeover.heir == *heir && !takeover.has_failed)
    }
}
