//! Asynchronous replication: who is not read-only writes.
//!
//! Servers decide, the proxy follows. Two things are not taken at face value. A server that becomes writable while the writer
//! works must say so twice. And a server that returns writable after another one took over is kept out (fenced): an old primary
//! that was killed and restarted usually says `read_only=0`, and would take writes that nobody else has.
//!
//! A server beside a writer does not write for saying that it could: see [`second`].
//!
//! INVARIANT: a fence names who took over, and ends when its server says `read_only=1`, when all who took over do and nobody else
//! writes, when the other leaves the configuration, or when an operator orders it.

mod second;
mod stray;

pub(crate) use stray::is_judged as tells_strays;

use std::collections::{BTreeMap, BTreeSet};

use model::ServerAddr;
use model::fleet::UnderWay;
use serde::{Deserialize, Serialize};

use self::second::{Held, held};
use self::stray::Stray;
use crate::facts::{Facts, Troubles};
use crate::judgement::{Fitness, Judgement, Judgements, Scene, describe, small, under_way};
use crate::knowledge::pairs;

/// A writer whose port was found closed within this time counts as broken when another server becomes writable, though it may
/// have answered since: it was restarted while a failover was under way, ms.
const RECENT_MS: u64 = 60_000;
/// Answers in a row that make a second writer.
const CONFIRMED_AFTER: u32 = 2;

/// What has to be remembered of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Memory {
    /// Servers whose word that they are writable was accepted, and that have not taken it back.
    writable: BTreeSet<ServerAddr>,
    /// Servers that were read-only when they were seen last.
    read_only: BTreeSet<ServerAddr>,
    /// Servers that were down and have not been accepted as anything since.
    lost: BTreeSet<ServerAddr>,
    /// Servers that were down when another one was made a writer: who may have taken over from them.
    replaced: BTreeSet<(ServerAddr, ServerAddr)>,
    /// Writers that have not been seen since another server became one: who, and when.
    #[serde(with = "pairs")]
    doubted: BTreeMap<ServerAddr, (ServerAddr, u64)>,
    /// Servers that are kept out and have said since that they are writable.
    returned: BTreeSet<ServerAddr>,
    /// Servers that say that they are writable and are not to write for that.
    #[serde(with = "pairs")]
    held: BTreeMap<ServerAddr, Held>,
    /// Servers that an operator let write all the same, until they say that they are read-only.
    ordered: BTreeSet<ServerAddr>,
    /// Servers that do not replicate from the writer.
    #[serde(with = "pairs")]
    pub strays: BTreeMap<ServerAddr, Stray>,
    /// Servers that are kept out, and who took over.
    #[serde(with = "pairs")]
    pub fenced: BTreeMap<ServerAddr, ServerAddr>,
}

impl Memory {
    /// It was lost, and nothing more is known of what it is since: one that is held has been seen.
    fn has_come_back(&self, addr: &ServerAddr) -> bool {
        self.lost.contains(addr) && self.held.get(addr).is_none_or(|held| *held == Held::Awaited)
    }

    /// An operator wants this server to write, whoever took over from it: they are kept out, as are those who took over from
    /// them, and all who write now beside whom the operator did not write it as a writer too.
    pub(crate) fn pardon(&mut self, addr: &ServerAddr, is_explicit: impl Fn(&ServerAddr) -> bool) {
        let mut newer = self.fenced.remove(addr);
        let is_held = self.held.remove(addr).is_some();
        let is_kept_out = is_held || newer.is_some();
        if is_held {
            self.ordered.insert(addr.clone());
        }
        while let Some(heir) = newer.filter(|heir| heir != addr) {
            newer = self.fenced.insert(heir, addr.clone());
        }
        let others: Vec<ServerAddr> = self.writable.iter().filter(|other| *other != addr && is_kept_out).cloned().collect();
        for other in others.into_iter().filter(|other| !(is_explicit(addr) && is_explicit(other))) {
            self.fenced.entry(other).or_insert_with(|| addr.clone());
        }
        self.replaced.retain(|(older, _)| older != addr);
    }
}

/// Judges every server; `memory` is that of the instant before.
pub(crate) fn judge(scene: Scene<'_>, memory: &mut Memory) -> Judgements {
    forget(scene, memory);
    let before = memory.clone();
    memory.held = held(scene, &before);
    let is_free = |addr: &ServerAddr| !memory.held.contains_key(addr);
    let newcomers: Vec<&ServerAddr> = scene
        .known()
        .filter(|(addr, _, facts)| is_free(addr) && is_newcomer(scene, &before, &memory.held, addr, facts))
        .map(|(addr, ..)| addr)
        .collect();
    for (addr, _, facts) in scene.known() {
        note(addr, facts, scene.now_ms, memory);
    }
    for addr in &newcomers {
        admit(scene, &before, addr, memory);
    }
    // Who was admitted now may be why others are held.
    memory.held = held(scene, memory);
    dismiss_followers(memory);
    settle_doubts(scene, memory);
    lift_fences(memory);
    note_returns(scene, memory);
    stray::note(scene, memory);
    scene.known().map(|(addr, _, facts)| (addr.clone(), server(scene, addr, facts, memory))).collect()
}

/// Who replicates from a server that may write is no writer, though it was believed before.
fn dismiss_followers(memory: &mut Memory) {
    for (addr, _) in memory.held.iter().filter(|(_, held)| matches!(held, Held::Follows(_))) {
        if memory.writable.remove(addr) {
            memory.read_only.insert(addr.clone());
        }
    }
}

fn forget(scene: Scene<'_>, memory: &mut Memory) {
    let is_member = |addr: &ServerAddr| scene.members.contains_key(addr);
    memory.writable.retain(is_member);
    memory.read_only.retain(is_member);
    memory.lost.retain(is_member);
    memory.replaced.retain(|(addr, newer)| is_member(addr) && is_member(newer));
    memory.doubted.retain(|addr, (newer, _)| is_member(addr) && is_member(newer));
    memory.ordered.retain(is_member);
    memory.strays.retain(|addr, _| is_member(addr));
    memory.fenced.retain(|addr, _| is_member(addr));
}

fn is_down(facts: &Facts) -> bool {
    facts.is_down(Troubles::from(&facts.read_only))
}

/// Its check times out for so long that it counts as read-only.
fn is_timed_out(scene: Scene<'_>, facts: &Facts) -> bool {
    facts.read_only.timeouts >= small(scene.vars.monitor_read_only_max_timeout_count)
}

/// Says that it is writable, for the first time, and is believed.
fn is_newcomer(scene: Scene<'_>, before: &Memory, held: &BTreeMap<ServerAddr, Held>, addr: &ServerAddr, facts: &Facts) -> bool {
    if facts.read_only.last != Some(false) || before.writable.contains(addr) || is_outdated(scene, before, addr, facts) {
        return false;
    }
    let is_expected = !before.read_only.contains(addr) && scene.members.get(addr).is_some_and(|member| member.is_explicit_writer);
    is_expected || facts.read_only.repeats >= CONFIRMED_AFTER || !has_working_writer(scene, before, held, addr)
}

/// Whether it was lost after it said what it is, or cannot be asked now: what comes back may be something else.
fn is_outdated(scene: Scene<'_>, before: &Memory, addr: &ServerAddr, facts: &Facts) -> bool {
    is_down(facts)
        || is_timed_out(scene, facts)
        || (before.lost.contains(addr) && facts.unreachable_ms.is_some_and(|at_ms| facts.read_only.at_ms <= at_ms))
}

/// Whether somebody else writes, as far as is known.
fn has_working_writer(scene: Scene<'_>, before: &Memory, held: &BTreeMap<ServerAddr, Held>, but: &ServerAddr) -> bool {
    let works = |addr: &ServerAddr, facts: &Facts, is_explicit: bool| {
        let is_believed = before.writable.contains(addr) || (is_explicit && facts.read_only.last.is_none());
        is_believed
            && !before.fenced.contains_key(addr)
            && !held.contains_key(addr)
            && facts.read_only.last != Some(true)
            && !is_down(facts)
    };
    scene.known().any(|(addr, member, facts)| addr != but && works(addr, facts, member.is_explicit_writer))
}

/// What a server says of itself.
fn note(addr: &ServerAddr, facts: &Facts, now_ms: u64, memory: &mut Memory) {
    if facts.read_only.last == Some(true) {
        memory.writable.remove(addr);
        memory.doubted.remove(addr);
        memory.fenced.remove(addr);
        // What it said before it was lost says nothing of what it is now.
        let says_so_now = facts.read_only.at_ms == now_ms;
        memory.replaced.retain(|(older, newer)| newer != addr && (older != addr || !says_so_now));
        memory.read_only.insert(addr.clone());
        memory.lost.remove(addr);
        memory.ordered.remove(addr);
    }
    if is_down(facts) {
        memory.lost.insert(addr.clone());
    }
}

/// A server becomes writable: it takes over from writers that are broken, and is fenced itself when it comes back from a
/// restart while others write.
fn admit(scene: Scene<'_>, before: &Memory, addr: &ServerAddr, memory: &mut Memory) {
    let history = History { was_lost: before.has_come_back(addr), was_read_only: before.read_only.contains(addr) };
    memory.lost.remove(addr);
    memory.read_only.remove(addr);
    memory.writable.insert(addr.clone());
    let is_explicit = |addr: &ServerAddr| scene.members.get(addr).is_some_and(|member| member.is_explicit_writer);
    let newer = memory.replaced.iter().find(|(older, _)| older == addr).map(|(_, newer)| newer.clone());
    if let Some(newer) = newer {
        // Others who took over from it are remembered: one of them may be all that is left.
        memory.replaced.remove(&(addr.clone(), newer.clone()));
        return drop(memory.fenced.insert(addr.clone(), newer));
    }
    if history.was_read_only || !is_explicit(addr) {
        let down = before.lost.iter().filter(|older| *older != addr && !before.fenced.contains_key(*older));
        memory.replaced.extend(down.map(|older| (older.clone(), addr.clone())));
    }
    for older in before.writable.iter().filter(|older| !before.fenced.contains_key(*older)) {
        let Some(facts) = scene.facts.get(older).filter(|facts| facts.read_only.last == Some(false)) else { continue };
        match encounter(history, facts, is_explicit(addr) && is_explicit(older), scene.now_ms) {
            Encounter::TookOver => drop(memory.fenced.insert(older.clone(), addr.clone())),
            Encounter::Returned => return drop(memory.fenced.insert(addr.clone(), older.clone())),
            Encounter::Unclear => drop(memory.doubted.insert(older.clone(), (addr.clone(), scene.now_ms))),
            Encounter::Company => {}
        }
    }
}

/// What a server was before it said that it is writable; neither when it was never seen.
#[derive(Debug, Clone, Copy)]
struct History {
    was_lost: bool,
    was_read_only: bool,
}

/// What it means that a server becomes writable beside another one that was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encounter {
    /// The older one is gone or going.
    TookOver,
    /// The newer one was away, and is the one that is out of date.
    Returned,
    /// The older one looks well, but was not seen since.
    Unclear,
    /// Both were meant to write.
    Company,
}

fn encounter(newer: History, older: &Facts, are_explicit: bool, now_ms: u64) -> Encounter {
    let was_unreachable = older.unreachable_ms.is_some_and(|at_ms| at_ms + RECENT_MS > now_ms);
    let is_known = newer.was_read_only || newer.was_lost;
    match () {
        () if is_down(older) || (is_known && is_failing(older)) => Encounter::TookOver,
        // The operator wrote both as writers, and nothing else is known of it.
        () if !newer.was_read_only && are_explicit => Encounter::Company,
        () if newer.was_lost => Encounter::Returned,
        () if newer.was_read_only && was_unreachable => Encounter::TookOver,
        () if newer.was_read_only => Encounter::Unclear,
        () => Encounter::Company,
    }
}

/// It could write, were it not kept out.
pub(crate) fn could_write(facts: &Facts) -> bool {
    facts.read_only.last == Some(false) && !is_down(facts) && !is_failing(facts)
}

fn is_failing(facts: &Facts) -> bool {
    facts.read_only.is_troubled() || facts.ping.is_troubled() || facts.is_broken
}

/// A writer that is seen working after another one appeared writes beside it; one that breaks first was taken over from.
fn settle_doubts(scene: Scene<'_>, memory: &mut Memory) {
    for (addr, (newer, at_ms)) in memory.doubted.clone() {
        let Some(facts) = scene.facts.get(&addr) else { continue };
        if is_failing(facts) {
            memory.fenced.insert(addr.clone(), newer);
        } else if facts.read_only.at_ms <= at_ms {
            continue;
        }
        memory.doubted.remove(&addr);
    }
}

/// A fence falls with the writer it protects, unless another one took over from that.
fn lift_fences(memory: &mut Memory) {
    for (addr, newer) in memory.fenced.clone() {
        if memory.writable.contains(&newer) {
            continue;
        }
        let heir = memory.writable.iter().find(|other| **other != addr && !memory.fenced.contains_key(*other));
        // One who took over from it before that may be down now, and has what it lacks.
        let earlier = || memory.replaced.iter().find(|(older, _)| *older == addr).map(|(_, newer)| newer);
        match heir.or_else(earlier).cloned() {
            Some(heir) => {
                memory.replaced.remove(&(addr.clone(), heir.clone()));
                memory.fenced.insert(addr, heir);
            }
            None => drop(memory.fenced.remove(&addr)),
        }
    }
}

/// Who of those that are kept out is there.
fn note_returns(scene: Scene<'_>, memory: &mut Memory) {
    let Memory { returned, fenced, .. } = memory;
    returned.retain(|addr| fenced.contains_key(addr));
    for (addr, _, facts) in scene.known().filter(|(addr, ..)| fenced.contains_key(*addr)) {
        if is_down(facts) || is_timed_out(scene, facts) {
            returned.remove(addr);
        } else if !facts.read_only.is_troubled() && !facts.read_only.is_denied {
            returned.insert(addr.clone());
        }
    }
}

fn server(scene: Scene<'_>, addr: &ServerAddr, facts: &Facts, memory: &Memory) -> Judgement {
    let troubles = Troubles::from(&facts.read_only);
    let value = facts.read_only.last.map_or("read_only=?".to_owned(), |set| format!("read_only={}", u8::from(set)));
    let seen = [value, describe(troubles)].join(" ").trim_end().to_owned();
    let is_timed_out = is_timed_out(scene, facts);
    let held = memory.held.get(addr);
    let (fitness, why) = match facts.read_only.last {
        None => (Fitness::Unseen, "not seen yet".to_owned()),
        Some(true) => (Fitness::Reader, "read_only is on".to_owned()),
        Some(false) if is_timed_out && !memory.fenced.contains_key(addr) => {
            (Fitness::Reader, "its check times out, so it counts as read-only".to_owned())
        }
        Some(false) => match (memory.fenced.get(addr), held) {
            (Some(newer), _) => (Fitness::Fenced, fence(newer, memory.returned.contains(addr))),
            (None, Some(held)) => held.fitness(),
            (None, None) if memory.writable.contains(addr) => (Fitness::Writer, "read_only is off".to_owned()),
            (None, None) => (Fitness::Reader, "writable, to be confirmed".to_owned()),
        },
    };
    let (fitness, why) = match memory.strays.get(addr).filter(|stray| stray.is_out && fitness == Fitness::Reader) {
        Some(stray) => (Fitness::Fenced, stray.why.clone()),
        None => (fitness, why),
    };
    let is_awaited = match held {
        Some(held) => held.is_confirming(scene, facts),
        None => fitness == Fitness::Reader && facts.read_only.last == Some(false) && !is_timed_out,
    };
    let is_told = held.is_some_and(|held| *held != Held::Awaited) && facts.read_only.repeats >= CONFIRMED_AFTER;
    let is_down = is_down(facts);
    Judgement {
        is_down,
        is_silent: is_timed_out && (facts.ping.is_troubled() || facts.read_only.is_denied),
        kept_out: memory.returned.contains(addr).then_some("lost").or(is_told.then_some("reader")),
        under_way: under_way(scene, troubles, UnderWay::MayFinish),
        is_confirming: is_awaited
            || memory.doubted.contains_key(addr)
            || troubles.is_inconclusive(scene.vars.monitor_read_only_max_timeout_count),
        ..Judgement::new(fitness, why, seen)
    }
}

/// Why a server is kept out.
fn fence(newer: &ServerAddr, has_returned: bool) -> String {
    if !has_returned {
        format!(
            "{newer} took over while this server did not answer: excluded until {newer} stops writing or an operator orders a switchover"
        )
    } else {
        format!(
            "this server came back writable after {newer} had taken over: excluded until {newer} stops writing or an operator orders a \
             switchover"
        )
    }
}
