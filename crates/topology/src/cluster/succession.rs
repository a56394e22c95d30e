//! What a server lacks that took over: transactions that who wrote before it was seen to have, and that it has not when it is asked
//! the next time. Only where GTIDs are asked for.
//!
//! INVARIANT: each takeover is told of once at most, by a look that came after it.

use std::collections::BTreeSet;

use model::ServerAddr;
use model::snapshot::RoleKind;
use serde::{Deserialize, Serialize};

use super::{Cluster, Memory, World};
use crate::gtids::GtidSet;

/// A server took over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Takeover {
    heir: ServerAddr,
    /// When, ms.
    at_ms: u64,
    /// It could not be asked what it has: it is asked again as the settings say, without haste.
    has_failed: bool,
    /// Who wrote before and does so no more, and what it was seen to have.
    from: Vec<(ServerAddr, GtidSet)>,
}

impl Cluster {
    /// Notes who of the new writers takes over from whom.
    pub(super) fn note_takeovers(&self, world: World<'_>, writers: &BTreeSet<ServerAddr>, memory: &mut Memory) {
        if writers.is_empty() || !matches!(self.group.kind, RoleKind::Replication(_)) {
            return;
        }
        let before = std::mem::replace(&mut memory.last_writers, writers.clone());
        let said = |addr: &ServerAddr| Some((addr.clone(), world.facts.get(addr)?.gtids.back()?.1.clone()));
        let from: Vec<(ServerAddr, GtidSet)> = before.difference(writers).filter_map(said).collect();
        memory.takeovers.retain(|takeover| writers.contains(&takeover.heir));
        for heir in writers.difference(&before).filter(|_| !from.is_empty()) {
            memory.takeovers.push(Takeover { heir: heir.clone(), at_ms: world.now_ms, has_failed: false, from: from.clone() });
        }
    }

    /// A server was asked what it has executed: what it lacks of those it took over from, in words, if it does.
    pub(crate) fn lacks_of_predecessors(&mut self, heir: &ServerAddr, has: Option<&GtidSet>, now_ms: u64) -> Option<String> {
        let is_settled = |takeover: &Takeover| takeover.heir == *heir && takeover.at_ms < now_ms;
        let Some(has) = has else {
            let all = self.memory.takeovers.iter_mut().chain(&mut self.before.takeovers);
            all.filter(|takeover| is_settled(takeover)).for_each(|takeover| takeover.has_failed = true);
            return None;
        };
        let settled: Vec<Takeover> = self.memory.takeovers.extract_if(.., |takeover| is_settled(takeover)).collect();
        self.before.takeovers.retain(|takeover| !is_settled(takeover));
        let from = settled.iter().flat_map(|takeover| &takeover.from);
        let lacks = from.map(|(addr, had)| (had.missing_in(has), addr)).filter(|(count, _)| *count > 0);
        let words: Vec<String> = lacks.map(|(count, addr)| format!("{count} transactions of {addr}")).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// Whether a server took over a moment ago, and is still to say what it has.
    pub(crate) fn awaits(&self, heir: &ServerAddr) -> bool {
        self.memory.takeovers.iter().any(|takeover| takeover.heir == *heir && !takeover.has_failed)
    }
}
