//! What a new writer had when it took over, and which transactions of its predecessors it lacks. A predecessor counts with its last sample.
//!
//! INVARIANT: each takeover is reported at most once, by a check that came after it.

use std::collections::BTreeSet;

use model::snapshot::RoleKind;
use model::{HostgroupId, ServerAddr};
use serde::{Deserialize, Serialize};

use super::{Cluster, Memory, World};
use crate::gtids::GtidSet;
use crate::observation::ServerId;

/// Forks kept per cluster; beyond it the oldest are dropped.
const MAX_FORKS: usize = 16;

/// A server that this proxy promotes is seen to write within this time, ms.
const NOTED_MS: u64 = 60_000;

/// The promotion by this proxy whose server has not been seen to write yet, and until when that is waited for, ms. The writers before may
/// not come back meanwhile: a write that they took would be lost, and nobody could report it.
pub(super) fn pending(memory: &Memory, now_ms: u64) -> Option<(&Fork, u64)> {
    let fork = memory.forks.last().filter(|_| memory.awaits_heir)?;
    let until_ms = fork.at_ms + NOTED_MS;
    (now_ms < until_ms).then_some((fork, until_ms))
}

/// The GTIDs of a promoted server before its first write. Transactions of another server beyond them, which did not come from the promoted
/// server, are a fork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fork {
    /// The writer hostgroup of the cluster in which the promotion happened.
    pub writer: HostgroupId,
    /// The promoted server, which took over.
    pub heir: ServerAddr,
    /// When the takeover was seen, on the caller's clock, ms.
    pub at_ms: u64,
    /// The writers before, as far as they are known.
    pub from: Vec<ServerAddr>,
    /// Its GTIDs. If no sample precedes the promotion, they lack the server's own writes from earlier times.
    pub had: GtidSet,
    /// A sample preceded the promotion, and the server's own id is known.
    pub is_exact: bool,
    /// This proxy promoted the server, and read its GTIDs before it took a write.
    #[serde(default)]
    pub is_noted: bool,
}

/// A takeover that waits for the new writer's next GTID check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Takeover {
    heir: ServerAddr,
    at_ms: u64,
    /// A GTID check failed: further ones come at the usual interval.
    has_failed: bool,
    /// Its last sample before.
    had: Option<GtidSet>,
    /// The writers that stopped with this takeover.
    predecessors: Vec<ServerAddr>,
    /// The last samples of the predecessors that have one.
    from: Vec<(ServerAddr, GtidSet)>,
}

/// The result of the first GTID check after a takeover.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Succession {
    /// How many transactions of which predecessors are missing, in words.
    pub lacks: Option<String>,
    /// The new writer's GTIDs before its first write.
    pub fork: Option<Fork>,
}

impl Cluster {
    /// Records each new writer together with the writers that it replaces.
    pub(super) fn note_takeovers(&self, world: World<'_>, writers: &BTreeSet<ServerAddr>, memory: &mut Memory) {
        if writers.is_empty() || !matches!(self.group.kind, RoleKind::Replication(_)) {
            return;
        }
        memory.awaits_heir &= !memory.forks.last().is_some_and(|fork| writers.contains(&fork.heir));
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

    /// Takes a GTID check of a server that may have taken over. `has` is None if the check failed. `id` is the server's own id, empty if it
    /// is unknown.
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
            // A promotion by this proxy was noted before the server took its first write.
            let is_of = |fork: &&Fork| fork.is_noted && fork.heir == *heir && takeover.at_ms.abs_diff(fork.at_ms) < NOTED_MS;
            if let Some(noted) = self.memory.forks.last().filter(is_of) {
                return noted.clone();
            }
            Fork {
                writer: self.group.writer,
                heir: heir.clone(),
                at_ms: takeover.at_ms,
                from: takeover.predecessors.clone(),
                had: has.before_writes_of(id, takeover.had.as_ref().unwrap_or(&nothing)),
                is_exact: takeover.had.is_some() && *id != ServerId::default(),
                is_noted: false,
            }
        });
        if let Some(fork) = fork.clone().filter(|fork| !fork.is_noted) {
            self.add_fork(fork);
        }
        Succession { lacks, fork }
    }

    /// A second decision in this instant starts from `before`, so it must have the fork too.
    fn add_fork(&mut self, fork: Fork) {
        for memory in [&mut self.memory, &mut self.before] {
            memory.forks.push(fork.clone());
            let excess = memory.forks.len().saturating_sub(MAX_FORKS);
            memory.forks.drain(..excess);
        }
    }

    /// This proxy is about to promote a server, which has taken no write yet.
    pub(crate) fn note_fork(&mut self, fork: Fork) {
        self.add_fork(Fork { is_noted: true, ..fork });
        (self.memory.awaits_heir, self.before.awaits_heir) = (true, true);
    }

    /// The server was not promoted after all.
    pub(crate) fn forget_fork(&mut self, heir: &ServerAddr) {
        for memory in [&mut self.memory, &mut self.before] {
            if memory.forks.pop_if(|fork| fork.heir == *heir && fork.is_noted).is_some() {
                memory.awaits_heir = false;
            }
        }
    }

    /// The GTIDs of promoted servers before their first write, the oldest promotion first.
    pub(crate) fn forks(&self) -> &[Fork] {
        &self.memory.forks
    }

    /// Whether the server took over and has not yet answered or failed a GTID check.
    pub(crate) fn awaits(&self, heir: &ServerAddr) -> bool {
        self.memory.takeovers.iter().any(|takeover| takeover.heir == *heir && !takeover.has_failed)
    }
}
