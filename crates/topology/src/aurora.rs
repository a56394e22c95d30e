//! Aurora: every instance answers with the whole topology, which may be stale. One of the instances in it is the writer.
//!
//! Views are weighed by the age of their rows. A new writer is believed if it says so itself or if two views agree. In both cases, fewer
//! fresh views must name another writer. Failed checks change no role. Instances that are found serve once they have answered a check
//! themselves.
//! Source: the Aurora user guide's `information_schema.replica_host_status`, the interface reference.

use std::collections::{BTreeMap, BTreeSet};

use model::ServerAddr;
use model::fleet::UnderWay;
use model::snapshot::Aurora;
use serde::{Deserialize, Serialize};

use crate::facts::{Facts, Troubles};
use crate::judgement::{Fitness, Judgement, Judgements, Scene, describe, under_way};
use crate::knowledge::pairs;
use crate::observation::{AuroraInstance, AuroraView};
use crate::roster::Roster;

/// In intervals between checks. A view is stale if each of its rows is older, by more than this, than the newest row seen of that instance.
const STALE_AFTER_CHECKS: u64 = 3;
/// Rows are no older than this, ms: the table keeps them no longer.
const OLDEST_ROW_MS: u64 = 180_000;
/// If a new writer does not name itself as writer, this many views must name it.
const AGREED_AFTER: usize = 2;

/// A timeout changes no role. The first one makes the proxy look again soon, later ones do not.
const FIRST_TIMEOUT: u64 = 2;

/// The cluster's state that outlives a decision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Memory {
    /// The writer that the last decision believed in.
    writer: Option<ServerAddr>,
    /// Of each instance, the newest update of its row that any view had, on the proxy's clock, ms.
    #[serde(with = "pairs")]
    updated_ms: BTreeMap<ServerAddr, u64>,
}

impl Memory {
    /// The part that is worth writing down: times change with every check.
    pub(crate) fn gist(&self) -> Self {
        Self { writer: self.writer.clone(), updated_ms: BTreeMap::new() }
    }
}

/// One instance's view of the topology.
#[derive(Debug, Clone, Copy)]
struct Answer<'a> {
    from: &'a ServerAddr,
    facts: &'a Facts,
    view: &'a AuroraView,
}

pub(crate) fn address(aurora: &Aurora, instance: &AuroraInstance) -> ServerAddr {
    ServerAddr { host: format!("{}{}", instance.server_id, aurora.domain_name).into(), port: aurora.port }
}

pub(crate) fn judge(scene: Scene<'_>, aurora: &Aurora, roster: &Roster, memory: &mut Memory) -> Judgements {
    learn_ages(scene, aurora, memory);
    let answers = fresh(scene, aurora, memory);
    let claimed = claims(aurora, &answers);
    let verdict = settle(&claimed, memory);
    let is_confirming = claimed.keys().any(|claim| Some(claim) != memory.writer.as_ref()) && verdict.is_none();
    if let Some(writer) = verdict {
        memory.writer = Some(writer);
    }
    let instance = |(addr, _, facts): (&ServerAddr, _, &Facts)| {
        let mut judgement = instance(scene, aurora, roster, memory, (addr, facts));
        judgement.is_confirming |= is_confirming;
        (addr.clone(), judgement)
    };
    scene.known().map(instance).collect()
}

fn answers<'a>(scene: Scene<'a>) -> impl Iterator<Item = Answer<'a>> {
    scene.known().filter_map(|(from, _, facts)| Some(Answer { from, facts, view: facts.aurora.last.as_ref()? }))
}

/// When an instance's row in an answer was updated, on the proxy's clock, ms.
fn updated_ms(answer: Answer<'_>, instance: &AuroraInstance) -> u64 {
    answer.facts.aurora.at_ms.saturating_sub(instance.age_ms)
}

fn learn_ages(scene: Scene<'_>, aurora: &Aurora, memory: &mut Memory) {
    memory.updated_ms.retain(|_, at_ms| *at_ms + OLDEST_ROW_MS > scene.now_ms);
    for answer in answers(scene) {
        for instance in &answer.view.instances {
            let known = memory.updated_ms.entry(address(aurora, instance)).or_default();
            *known = (*known).max(updated_ms(answer, instance));
        }
    }
}

/// The answers that are not stale, from instances whose last check succeeded. One row as new as the newest known one is enough.
fn fresh<'a>(scene: Scene<'a>, aurora: &Aurora, memory: &Memory) -> Vec<Answer<'a>> {
    let tolerated_ms = (STALE_AFTER_CHECKS * u64::from(aurora.check_interval_ms)).min(OLDEST_ROW_MS);
    let is_new = |answer: Answer<'_>, instance: &AuroraInstance| {
        let newest = memory.updated_ms.get(&address(aurora, instance)).copied().unwrap_or_default();
        updated_ms(answer, instance) + tolerated_ms >= newest
    };
    let is_fresh = |answer: &Answer<'_>| answer.view.instances.iter().any(|instance| is_new(*answer, instance));
    answers(scene).filter(|answer| !answer.facts.aurora.is_troubled()).filter(is_fresh).collect()
}

/// The answers by the writer that they name.
fn claims<'a>(aurora: &Aurora, answers: &[Answer<'a>]) -> BTreeMap<ServerAddr, Vec<Answer<'a>>> {
    let mut claims: BTreeMap<ServerAddr, Vec<Answer<'a>>> = BTreeMap::new();
    for answer in answers {
        if let Some(writer) = answer.view.instances.iter().find(|instance| instance.is_writer) {
            claims.entry(address(aurora, writer)).or_default().push(*answer);
        }
    }
    claims
}

/// When the writer's row was updated, in the newest of these answers.
fn newest_ms(answers: &[Answer<'_>]) -> u64 {
    let writer = |answer: &Answer<'_>| answer.view.instances.iter().find(|i| i.is_writer).map(|i| updated_ms(*answer, i));
    answers.iter().filter_map(writer).max().unwrap_or_default()
}

/// The new writer, if the claims suffice to believe in one; None if the known writer stays.
fn settle(claims: &BTreeMap<ServerAddr, Vec<Answer<'_>>>, memory: &Memory) -> Option<ServerAddr> {
    let known = memory.writer.as_ref();
    let best = claims.iter().filter(|(claim, _)| Some(*claim) != known).max_by_key(|(_, pro)| (newest_ms(pro), pro.len()))?;
    let (claim, pro) = best;
    let others: Vec<Answer<'_>> = claims.iter().filter(|(other, _)| *other != claim).flat_map(|(_, answers)| answers).copied().collect();
    // After a start there is no writer to protect, so one claim is enough.
    if known.is_none() {
        return Some(claim.clone());
    }
    let claimed_since_ms = pro.iter().map(|answer| answer.facts.aurora.since_ms).min().unwrap_or_default();
    let contra = others.iter().filter(|answer| answer.facts.aurora.at_ms >= claimed_since_ms).count();
    let says_so_itself = pro.iter().any(|answer| answer.from == claim);
    let agree: usize = pro.iter().map(|answer| usize::try_from(answer.facts.aurora.repeats).unwrap_or(AGREED_AFTER)).sum();
    let is_newer = newest_ms(pro) > newest_ms(&others);
    let is_believed = is_newer && pro.len() > contra && (says_so_itself || agree >= AGREED_AFTER);
    is_believed.then(|| claim.clone())
}

fn instance(scene: Scene<'_>, aurora: &Aurora, roster: &Roster, memory: &Memory, (addr, facts): (&ServerAddr, &Facts)) -> Judgement {
    let troubles = Troubles::from(&facts.aurora);
    let is_found = scene.members.get(addr).is_some_and(|member| member.configured.is_empty());
    let is_listed = roster.is_listed(addr) && !roster.is_gone(addr);
    let (fitness, why) = match () {
        () if is_found && facts.aurora.last.is_none() => (Fitness::Unseen, "found, but not probed yet"),
        () if memory.writer.as_ref() == Some(addr) => (Fitness::Writer, "the topology's writer"),
        () if roster.is_gone(addr) => (Fitness::Fenced, "no longer in the topology"),
        () if is_listed => (Fitness::Reader, "a replica in the topology"),
        () => (Fitness::Unseen, "not seen in the topology yet"),
    };
    let lag_ms = roster.lag_ms(addr, aurora).unwrap_or_default();
    let said = if lag_ms >= AuroraInstance::LAG_UNKNOWN_MS || !is_listed { "?".to_owned() } else { lag_ms.to_string() };
    let seen = format!("lag_ms={said} listed={} {}", u8::from(is_listed), describe(troubles));
    Judgement {
        is_down: facts.is_down(troubles),
        under_way: under_way(scene, troubles, UnderWay::MayFinish),
        is_behind: lag_ms > u64::from(aurora.max_lag_ms),
        behind: lag_ms,
        is_confirming: troubles.is_inconclusive(FIRST_TIMEOUT),
        ..Judgement::new(fitness, why, seen.trim_end())
    }
}

/// The instances that fresh views name.
pub(crate) fn named(scene: Scene<'_>, aurora: &Aurora, memory: &Memory) -> BTreeSet<ServerAddr> {
    let mut memory = memory.clone();
    learn_ages(scene, aurora, &mut memory);
    let instances = fresh(scene, aurora, &memory).into_iter().flat_map(|answer| &answer.view.instances);
    instances.map(|instance| address(aurora, instance)).collect()
}
