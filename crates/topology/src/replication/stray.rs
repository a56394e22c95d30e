//! Servers that do not replicate from the writer, so that their data becomes stale (`mysql-shun_stray_replicas`). Examples: a former
//! primary after a switchover, its replicas, a replica whose receiver is stopped.
//!
//! INVARIANT: missing knowledge makes no server a stray. All direct and indirect sources of a stray are members of the cluster, and each of
//! them has reported its own sources.

use std::collections::BTreeSet;

use model::ServerAddr;
use model::snapshot::{ReadOnlyCheck, RoleKind};
use serde::{Deserialize, Serialize};

use super::second::{is_given_up, members_at, told};
use super::{Memory, is_down, is_timed_out};
use crate::facts::Facts;
use crate::judgement::Scene;
use crate::observation::SourcesView;

/// Time as a stray before reads stop, ms. A receiver that restarts, or changes its source, is stopped for a moment.
const STRAY_AFTER_MS: u64 = 5_000;

/// The state of a server that does not replicate from the writer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stray {
    /// When it was first seen so, ms.
    pub since_ms: u64,
    /// It was seen so for [`STRAY_AFTER_MS`] and serves no reads.
    pub is_out: bool,
    /// The reason in words, for its events.
    pub why: String,
}

/// Whether the writer's changes reach a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lineage {
    /// Directly or through other members.
    Reached,
    /// A server on the way has not reported its sources yet.
    Unknown,
    /// A source on the way is no member of the cluster, cannot be asked, or gets changes by other means than replication.
    Untold,
    /// No way leads to the writer.
    Apart,
}

/// Whether strays are judged in clusters of this kind. Aurora's instances report `innodb_read_only` and replicate by other means.
pub(crate) fn is_judged(kind: &RoleKind) -> bool {
    matches!(kind, RoleKind::Replication(ReadOnlyCheck::ReadOnly | ReadOnlyCheck::SuperReadOnly))
}

/// Updates the strays. Without a known writer no server becomes or stops being one, unless it stops being a reader.
pub(super) fn note(scene: Scene<'_>, memory: &mut Memory) {
    if !scene.shuns_strays || !is_judged(&scene.group.kind) {
        return memory.strays.clear();
    }
    let only_reads =
        |addr: &ServerAddr, facts: &Facts, memory: &Memory| facts.read_only.last == Some(true) || memory.held.contains_key(addr);
    let may_be = |addr: &ServerAddr, memory: &Memory| scene.facts.get(addr).is_some_and(|facts| only_reads(addr, facts, memory));
    let gone: Vec<ServerAddr> = memory.strays.keys().filter(|addr| !may_be(addr, memory)).cloned().collect();
    gone.iter().for_each(|addr| drop(memory.strays.remove(addr)));
    let writers = writers(scene, memory);
    let Some(writer) = writers.first() else { return };
    let readers: Vec<_> = scene.known().filter(|(addr, _, facts)| only_reads(addr, facts, memory)).collect();
    for (addr, _, facts) in readers {
        match lineage(scene, addr, &writers) {
            Lineage::Reached | Lineage::Untold => drop(memory.strays.remove(addr)),
            Lineage::Unknown => {}
            Lineage::Apart => {
                let stray = Stray { since_ms: scene.now_ms, is_out: false, why: String::new() };
                let stray = memory.strays.entry(addr.clone()).or_insert(stray);
                stray.is_out |= facts.sources.at_ms >= stray.since_ms + STRAY_AFTER_MS;
                stray.why = why(facts, writer);
            }
        }
    }
}

fn writers<'a>(scene: Scene<'a>, memory: &Memory) -> BTreeSet<&'a ServerAddr> {
    let writes = |addr: &ServerAddr, facts: &Facts| {
        memory.writable.contains(addr)
            && !memory.fenced.contains_key(addr)
            && !memory.held.contains_key(addr)
            && facts.read_only.last == Some(false)
            && !is_down(facts)
            && !is_timed_out(scene, facts)
    };
    scene.known().filter(|(addr, _, facts)| writes(addr, facts)).map(|(addr, ..)| addr).collect()
}

fn lineage(scene: Scene<'_>, addr: &ServerAddr, writers: &BTreeSet<&ServerAddr>) -> Lineage {
    let (mut all, mut next) = (BTreeSet::from([addr]), vec![addr]);
    let mut lineage = Lineage::Apart;
    while let Some(at) = next.pop() {
        if writers.contains(at) {
            return Lineage::Reached;
        }
        let facts = scene.facts.get(at);
        match facts.and_then(|facts| if at == addr { told(facts) } else { known(facts) }) {
            Some(view) => {
                let members: Vec<_> = view.sources.iter().map(|source| members_at(scene, source)).collect();
                if view.is_member || members.iter().any(Vec::is_empty) {
                    lineage = Lineage::Untold;
                }
                next.extend(members.into_iter().flatten().filter(|member| all.insert(member)));
            }
            None if facts.is_some_and(|facts| is_given_up(&facts.sources)) => lineage = Lineage::Untold,
            None if lineage == Lineage::Apart => lineage = Lineage::Unknown,
            None => {}
        }
    }
    lineage
}

/// The sources that a server on the way reported. They hold while it is down.
fn known(facts: &Facts) -> Option<&SourcesView> {
    facts.sources.last.as_ref().filter(|_| !facts.sources.is_denied && facts.sources.failed == 0)
}

fn why(facts: &Facts, writer: &ServerAddr) -> String {
    let sources: Vec<String> = told(facts).into_iter().flat_map(|view| &view.sources).map(|source| source.addr.to_string()).collect();
    let whom = if sources.is_empty() { "no server".to_owned() } else { sources.join(", ") };
    format!(
        "replicates from {whom}, not from the writer {writer}: serves no reads until it replicates from {writer} \
         (mysql-shun_stray_replicas)"
    )
}
