//! Asynchronous replication: the server that is not read-only writes.
//!
//! The servers decide and the proxy follows, with two exceptions. A server that becomes writable while the writer works must say so twice.
//! A server that returns writable after another one took over is kept out (fenced): an old primary that was killed and restarted usually
//! reports `read_only=0`, and would take writes that no other server has.
//!
//! A server beside a writer does not write merely because it reports that it could: see [`second`].
//!
//! INVARIANT: a fence names the server that took over. It ends when the fenced server reports `read_only=1`, when all servers that took
//! over report it and no other server writes, when the server that took over leaves the configuration, or when an operator orders it. Where
//! this proxy promoted that server, or the fenced server is an outcast (`mysql_healing`), the answer `read_only=1` of the server that took
//! over ends nothing: it may have restarted. An outcast is never accepted as a writer.

mod second;
mod stray;

pub(crate) use stray::is_judged as tells_strays;

use std::collections::{BTreeMap, BTreeSet};

use model::ServerAddr;
use model::fleet::UnderWay;
use serde::{Deserialize, Serialize};

use self::second::{Held, held};
use self::stray::Stray;
use crate::cluster::Fork;
use crate::facts::{Facts, Troubles};
use crate::judgement::{Fitness, Judgement, Judgements, Scene, describe, small, under_way};
use crate::knowledge::pairs;

/// A writer whose port was closed within this time counts as broken if another server becomes writable, ms. It may have answered since: it
/// restarted during a failover.
const RECENT_MS: u64 = 60_000;
/// Answers in a row before a second writer is believed.
const CONFIRMED_AFTER: u32 = 2;

/// The cluster's state that outlives a decision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Memory {
    /// Servers that were believed to be writable and have not reported `read_only=1` since.
    writable: BTreeSet<ServerAddr>,
    /// Servers whose last answer was `read_only=1`.
    read_only: BTreeSet<ServerAddr>,
    /// Servers that were down and have not been accepted in a role since.
    lost: BTreeSet<ServerAddr>,
    /// Pairs of a server that was down, and a server that became a writer meanwhile and so may have taken over from it.
    replaced: BTreeSet<(ServerAddr, ServerAddr)>,
    /// Writers that have not answered since another server became one, with that server and the time, ms.
    #[serde(with = "pairs")]
    doubted: BTreeMap<ServerAddr, (ServerAddr, u64)>,
    /// Fenced servers that answer again as writable.
    returned: BTreeSet<ServerAddr>,
    /// Servers that report that they are writable, and the reason why they must not write.
    #[serde(with = "pairs")]
    held: BTreeMap<ServerAddr, Held>,
    /// Servers that an operator ordered to write although they were held. Ends with `read_only=1`.
    ordered: BTreeSet<ServerAddr>,
    /// Servers whose data does not come from the writer.
    #[serde(with = "pairs")]
    pub strays: BTreeMap<ServerAddr, Stray>,
    /// Servers that wrote under an earlier role and are not proved to have nothing else, each with the reason in words: they serve no
    /// reads (`mysql_healing`).
    #[serde(with = "pairs")]
    pub outcasts: BTreeMap<ServerAddr, String>,
    /// Servers that are kept out, each with the server that took over.
    #[serde(with = "pairs")]
    pub fenced: BTreeMap<ServerAddr, ServerAddr>,
}

impl Memory {
    /// Whether it was lost and is not understood since. A held server has answered, so it does not count.
    fn has_come_back(&self, addr: &ServerAddr) -> bool {
        self.lost.contains(addr) && self.held.get(addr).is_none_or(|held| *held == Held::Awaited)
    }

    /// An operator orders this server to write. The servers that took over from it are fenced instead. All present
    /// writers are fenced too, unless the operator configured both as writers.
    pub(crate) fn pardon(&mut self, addr: &ServerAddr, is_explicit: impl Fn(&ServerAddr) -> bool) {
        self.outcasts.remove(addr);
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

/// `memory` is that of the instant before, and is advanced.
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
    // A server admitted just now may be the reason to hold others.
    memory.held = held(scene, memory);
    dismiss_followers(memory);
    settle_doubts(scene, memory);
    lift_fences(scene, memory);
    note_returns(scene, memory);
    stray::note(scene, memory);
    scene.known().map(|(addr, _, facts)| (addr.clone(), server(scene, addr, facts, memory))).collect()
}

/// A server that replicates from a possible writer stops being a writer.
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
    memory.outcasts.retain(|addr, _| is_member(addr));
    memory.fenced.retain(|addr, _| is_member(addr));
}

fn is_down(facts: &Facts) -> bool {
    facts.is_down(Troubles::from(&facts.read_only))
}

/// Whether so many of its checks timed out that it counts as read-only.
fn is_timed_out(scene: Scene<'_>, facts: &Facts) -> bool {
    facts.read_only.timeouts >= small(scene.vars.monitor_read_only_max_timeout_count)
}

/// Whether the server's first report of being writable is believed.
fn is_newcomer(scene: Scene<'_>, before: &Memory, held: &BTreeMap<ServerAddr, Held>, addr: &ServerAddr, facts: &Facts) -> bool {
    let is_out = before.outcasts.contains_key(addr) || is_outdated(scene, before, addr, facts);
    if facts.read_only.last != Some(false) || before.writable.contains(addr) || is_out {
        return false;
    }
    let is_expected = !before.read_only.contains(addr) && scene.members.get(addr).is_some_and(|member| member.is_explicit_writer);
    is_expected || facts.read_only.repeats >= CONFIRMED_AFTER || !has_working_writer(scene, before, held, addr)
}

/// Whether its answer is from before it was lost, or it cannot be asked now. It may return in another role.
fn is_outdated(scene: Scene<'_>, before: &Memory, addr: &ServerAddr, facts: &Facts) -> bool {
    is_down(facts)
        || is_timed_out(scene, facts)
        || (before.lost.contains(addr) && facts.unreachable_ms.is_some_and(|at_ms| facts.read_only.at_ms <= at_ms))
}

/// Whether another server than `but` writes, as far as is known. A configured writer without an answer counts.
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

/// Takes a server's `read_only` and its outage into the memory.
fn note(addr: &ServerAddr, facts: &Facts, now_ms: u64, memory: &mut Memory) {
    if facts.read_only.last == Some(true) {
        memory.writable.remove(addr);
        memory.doubted.remove(addr);
        memory.fenced.remove(addr);
        // An answer from before the loss says nothing about its role now.
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

/// Accepts a writable server. It takes over from broken writers. It is fenced itself if it returns from a restart while others write.
fn admit(scene: Scene<'_>, before: &Memory, addr: &ServerAddr, memory: &mut Memory) {
    let history = History { was_lost: before.has_come_back(addr), was_read_only: before.read_only.contains(addr) };
    memory.lost.remove(addr);
    memory.read_only.remove(addr);
    memory.writable.insert(addr.clone());
    let is_explicit = |addr: &ServerAddr| scene.members.get(addr).is_some_and(|member| member.is_explicit_writer);
    let newer = memory.replaced.iter().find(|(older, _)| older == addr).map(|(_, newer)| newer.clone());
    if let Some(newer) = newer {
        // Other servers that took over from it stay recorded: one of them may be the only one left.
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

/// A server's state before it reported that it is writable. Both are false if it was never seen.
#[derive(Debug, Clone, Copy)]
struct History {
    was_lost: bool,
    was_read_only: bool,
}

/// The meaning of a server becoming writable beside another writable one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encounter {
    /// The older one is gone or going.
    TookOver,
    /// The newer one was away, and is the one that is out of date.
    Returned,
    /// The older one looks well, but has not answered since.
    Unclear,
    /// Both were meant to write.
    Company,
}

fn encounter(newer: History, older: &Facts, are_explicit: bool, now_ms: u64) -> Encounter {
    let was_unreachable = older.unreachable_ms.is_some_and(|at_ms| at_ms + RECENT_MS > now_ms);
    let is_known = newer.was_read_only || newer.was_lost;
    match () {
        () if is_down(older) || (is_known && is_failing(older)) => Encounter::TookOver,
        // The operator configured both as writers, and nothing else speaks against it.
        () if !newer.was_read_only && are_explicit => Encounter::Company,
        () if newer.was_lost => Encounter::Returned,
        () if newer.was_read_only && was_unreachable => Encounter::TookOver,
        () if newer.was_read_only => Encounter::Unclear,
        () => Encounter::Company,
    }
}

/// Whether it would accept writes if it were not kept out.
pub(crate) fn could_write(facts: &Facts) -> bool {
    facts.read_only.last == Some(false) && !is_down(facts) && !is_failing(facts)
}

fn is_failing(facts: &Facts) -> bool {
    facts.read_only.is_troubled() || facts.ping.is_troubled() || facts.is_broken
}

/// If the older writer answers after the newer one appeared, both write. If it breaks first, the newer one took over.
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

/// A fence ends when the server that took over stops writing, unless yet another one took over from that.
fn lift_fences(scene: Scene<'_>, memory: &mut Memory) {
    let is_promoted = |addr: &ServerAddr, heir: &ServerAddr| {
        let is_it = |fork: &Fork| fork.is_noted && fork.heir == *heir && fork.from.contains(addr);
        scene.forks.last().is_some_and(is_it)
    };
    for (addr, newer) in memory.fenced.clone() {
        if memory.writable.contains(&newer) {
            continue;
        }
        let heir = memory.writable.iter().find(|other| **other != addr && !memory.fenced.contains_key(*other));
        // An earlier successor may be down now, and has the transactions that the fenced server lacks.
        let earlier = || memory.replaced.iter().find(|(older, _)| *older == addr).map(|(_, newer)| newer);
        match heir.or_else(earlier).cloned() {
            Some(heir) => {
                memory.replaced.remove(&(addr.clone(), heir.clone()));
                memory.fenced.insert(addr, heir);
            }
            // It lacks what the server that took over has written.
            None if memory.outcasts.contains_key(&addr) || is_promoted(&addr, &newer) => {}
            None => drop(memory.fenced.remove(&addr)),
        }
    }
}

/// Updates which fenced servers answer again.
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
    let stray = memory.strays.get(addr).filter(|stray| stray.is_out).map(|stray| &stray.why);
    let (fitness, why) = match memory.outcasts.get(addr).or(stray).filter(|_| fitness == Fitness::Reader) {
        Some(why) => (Fitness::Fenced, why.clone()),
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
