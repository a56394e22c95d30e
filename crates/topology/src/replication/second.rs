//! Who says that it is writable beside a writer, and is not to write for that alone (`mysql-second_writers`).
//!
//! A replica whose file lacks `read_only` says so after a power cut, one that a tool promotes while the old primary hangs says so
//! too. Whom a server replicates from tells them apart: who is promoted replicates from nobody any more.

use std::collections::{BTreeMap, BTreeSet};

use model::ServerAddr;
use model::settings::SecondWriters;
use model::snapshot::ServerStatus;
use serde::{Deserialize, Serialize};

use super::{CONFIRMED_AFTER, Memory, RECENT_MS, is_down, is_failing, is_outdated, is_timed_out};
use crate::facts::{Facts, Track};
use crate::judgement::{Fitness, Scene};
use crate::member::Member;
use crate::seen::{Source, SourcesView};

/// Checks of the sources that fail in a row before it is decided without them.
const GIVEN_UP_AFTER: u32 = 3;

/// Why a server that says that it is writable does not write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Held {
    /// Whom it replicates from is not known yet.
    Awaited,
    /// It replicates from this one, which may write.
    Follows(ServerAddr),
    /// This one writes.
    Second {
        writer: ServerAddr,
        /// It replicates from nobody, so what it has grows old.
        is_apart: bool,
    },
}

impl Held {
    /// What it is fit for, and why.
    pub(super) fn fitness(&self) -> (Fitness, String) {
        const WHY: &str = "(mysql-second_writers)";
        match self {
            Self::Awaited => (Fitness::Reader, "writable; the proxy still has to read its replication source".to_owned()),
            Self::Follows(source) => {
                (Fitness::Reader, format!("writable, but a replica of {source}: serves reads only while it replicates {WHY}"))
            }
            Self::Second { writer, is_apart } => {
                let fitness = if *is_apart { Fitness::Fenced } else { Fitness::Reader };
                (fitness, format!("writable, but {writer} takes writes: excluded until {writer} stops writing {WHY}"))
            }
        }
    }

    /// What it says is to be heard again soon: it may be the first sign of a new writer.
    pub(super) fn is_confirming(&self, scene: Scene<'_>, facts: &Facts) -> bool {
        match self {
            Self::Awaited => true,
            Self::Follows(_) => false,
            Self::Second { writer, .. } => {
                let was_seen = |writer: &Facts| writer.read_only.at_ms > facts.read_only.since_ms;
                facts.read_only.repeats < CONFIRMED_AFTER || !scene.facts.get(writer).is_some_and(was_seen)
            }
        }
    }
}

/// The servers that say that they are writable and are not to write.
pub(super) fn held(scene: Scene<'_>, before: &Memory) -> BTreeMap<ServerAddr, Held> {
    let mut all = BTreeMap::new();
    if scene.second_writers == SecondWriters::Any {
        return all;
    }
    let claims = |addr: &ServerAddr, facts: &Facts| {
        let is_exempt = before.fenced.contains_key(addr) || before.ordered.contains(addr) || is_outdated(scene, before, addr, facts);
        facts.read_only.last == Some(false) && !is_exempt
    };
    let claimants: Vec<_> = scene.known().filter(|(addr, _, facts)| claims(addr, facts)).collect();
    for (addr, member, _) in &claimants {
        all.extend(followed(scene, before, addr, member).map(|held| ((*addr).clone(), held)));
    }
    let mut seconds = BTreeMap::new();
    for (addr, member, facts) in claimants {
        if !before.writable.contains(addr) && !all.contains_key(addr) {
            let writer = working(scene, before, &all, addr, facts);
            seconds.extend(second(scene, before, (addr, member, facts), writer).map(|held| (addr.clone(), held)));
        }
    }
    all.extend(seconds);
    all
}

/// Whether the operator lets it write.
fn serves(scene: Scene<'_>, addr: &ServerAddr, member: &Member) -> bool {
    member.status(scene.group.writer) == ServerStatus::Online && !scene.drained.contains(addr)
}

/// A server that is believed to write, and works.
fn working<'a>(
    scene: Scene<'a>,
    before: &Memory,
    held: &BTreeMap<ServerAddr, Held>,
    but: &ServerAddr,
    newer: &Facts,
) -> Option<(&'a ServerAddr, &'a Member)> {
    // A server may be promoted because the old one breaks. One that was seen well long after that is not the reason.
    let since_ms = newer.read_only.since_ms;
    let was_unreachable = |facts: &Facts| facts.unreachable_ms.is_some_and(|at_ms| at_ms.abs_diff(since_ms) < RECENT_MS);
    let breaks = |facts: &Facts| is_failing(facts) && facts.read_only.at_ms < since_ms + RECENT_MS;
    let is_broken = |facts: &Facts| is_down(facts) || is_timed_out(scene, facts) || breaks(facts) || was_unreachable(facts);
    let is_believed = |addr: &ServerAddr| before.writable.contains(addr) && !before.fenced.contains_key(addr) && !held.contains_key(addr);
    let works = |facts: &Facts| facts.read_only.last == Some(false) && !is_broken(facts);
    let mut others = scene.known().filter(|(addr, ..)| *addr != but && is_believed(addr));
    others.find(|(addr, member, facts)| works(facts) && serves(scene, addr, member)).map(|(addr, member, _)| (addr, member))
}

/// Whether a server does not write because of whom it replicates from: one of those works, or nobody has promoted the server, as far
/// as is known.
fn followed(scene: Scene<'_>, before: &Memory, addr: &ServerAddr, member: &Member) -> Option<Held> {
    let sources = ancestors(scene, addr);
    // In a ring each is as good as the other.
    if sources.contains(addr) {
        return None;
    }
    let was_restarted = if before.read_only.contains(addr) { before.lost.contains(addr) } else { !member.is_explicit_writer };
    let is_new = !before.writable.contains(addr) && was_restarted;
    let was_held = |source: &ServerAddr| before.held.get(addr) == Some(&Held::Follows(source.clone()));
    let known = |source: &ServerAddr| scene.facts.get(source);
    // What one that is down said last may be otherwise when it is back.
    let only_reads = |facts: &Facts| facts.read_only.last == Some(true) && !is_down(facts);
    let is_followed = |source: &&ServerAddr| {
        let Some(member) = scene.members.get(*source).filter(|_| !known(source).is_some_and(only_reads)) else { return false };
        // Before it is known whom that one replicates from, it may be a ring.
        let works = |facts: &Facts| facts.read_only.last == Some(false) && !is_down(facts) && is_asked(facts);
        let is_kept_out = before.fenced.contains_key(*source) || scene.strangers.contains_key(*source);
        serves(scene, source, member) && (is_new || (!is_kept_out && (was_held(source) || known(source).is_some_and(works))))
    };
    // One that only reads has what it has from somebody, who may be down: it is asked while nobody writes.
    let is_open = |source: &ServerAddr| known(source).is_some_and(|facts| only_reads(facts) && !is_asked(facts));
    match sources.iter().find(is_followed) {
        Some(source) => Some(Held::Follows(source.clone())),
        None => (is_new && sources.iter().any(is_open)).then_some(Held::Awaited),
    }
}

/// The members of the cluster from which comes what a server has, as far as servers said.
fn ancestors(scene: Scene<'_>, addr: &ServerAddr) -> BTreeSet<ServerAddr> {
    let mut all = BTreeSet::new();
    let mut next = vec![addr.clone()];
    while let Some(at) = next.pop() {
        // What others said before they were lost may still hold: a ring is one until it is known that it is not.
        let said = |facts| if at == *addr { told(facts) } else { facts.sources.last.as_ref() };
        let sources = scene.facts.get(&at).and_then(said).into_iter().flat_map(|view| &view.sources);
        let members = sources.flat_map(|source| members_at(scene, source));
        next.extend(members.filter(|member| all.insert((*member).clone())).cloned());
    }
    all
}

/// The members that a source may be: those that call themselves so, and the one at its address. Names may differ from those of the
/// configuration, so what servers call themselves counts too.
pub(super) fn members_at<'a>(scene: Scene<'a>, source: &Source) -> Vec<&'a ServerAddr> {
    let calls_itself = |addr: &ServerAddr| {
        let said = scene.facts.get(addr).and_then(|facts| facts.sources.last.as_ref());
        said.is_some_and(|view| view.id.is_same(&source.id))
    };
    let is_at = |addr: &ServerAddr| addr.port == source.addr.port && addr.host.eq_ignore_ascii_case(&source.addr.host);
    scene.members.keys().filter(|addr| is_at(addr) || calls_itself(addr)).collect()
}

/// What it said of its sources since it was last lost.
pub(super) fn told(facts: &Facts) -> Option<&SourcesView> {
    let is_of_now = facts.unreachable_ms.is_none_or(|at_ms| facts.sources.at_ms > at_ms);
    facts.sources.last.as_ref().filter(|_| is_of_now && !is_given_up(&facts.sources))
}

pub(super) fn is_given_up<T>(track: &Track<T>) -> bool {
    track.is_denied || track.failed > 0 || track.timeouts >= GIVEN_UP_AFTER || track.unreachable >= GIVEN_UP_AFTER
}

/// Whether it is known whom it replicates from, as far as it ever will be.
fn is_asked(facts: &Facts) -> bool {
    told(facts).is_some() || is_given_up(&facts.sources)
}

/// Whether a server that replicates from no writer, and was not believed before, is kept from being the second one. `writer` works.
fn second(
    scene: Scene<'_>,
    before: &Memory,
    (addr, member, facts): (&ServerAddr, &Member, &Facts),
    writer: Option<(&ServerAddr, &Member)>,
) -> Option<Held> {
    let was_read_only = before.read_only.contains(addr);
    let Some((writer, other)) = writer else {
        let may_follow = if was_read_only { before.lost.contains(addr) } else { !member.is_explicit_writer };
        let has_company = scene.members.len() > 1;
        return (may_follow && has_company && !is_asked(facts)).then_some(Held::Awaited);
    };
    // Who comes back while another one writes is fenced.
    if before.has_come_back(addr) {
        return None;
    }
    let sources = told(facts);
    let is_apart = facts.read_only.repeats >= CONFIRMED_AFTER && sources.is_some_and(|view| view.sources.is_empty());
    let held = Held::Second { writer: writer.clone(), is_apart };
    match member.is_explicit_writer && other.is_explicit_writer {
        false => (was_read_only || other.is_explicit_writer).then_some(held),
        true if !is_asked(facts) || !scene.facts.get(writer).is_some_and(is_asked) => Some(Held::Awaited),
        true => (was_read_only && sources.is_some() && !ancestors(scene, addr).contains(addr)).then_some(held),
    }
}
