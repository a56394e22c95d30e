//! Servers that say that they are writable beside a writer, and must not write for that alone (`mysql-second_writers`).
//!
//! A replica whose option file lacks `read_only` says so after a power cut. A server that a tool promotes while the old primary hangs says
//! so too. Their sources tell them apart: a promoted server replicates from no other one.

use std::collections::{BTreeMap, BTreeSet};

use model::ServerAddr;
use model::settings::SecondWriters;
use model::snapshot::ServerStatus;
use serde::{Deserialize, Serialize};

use super::{CONFIRMED_AFTER, Memory, RECENT_MS, is_down, is_failing, is_outdated, is_timed_out};
use crate::facts::{Facts, Track};
use crate::judgement::{Fitness, Scene};
use crate::member::Member;
use crate::observation::{Source, SourcesView};

/// Checks of the sources that fail in a row before it is decided without them.
const GIVEN_UP_AFTER: u32 = 3;

/// Why a server that says that it is writable gets no writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Held {
    /// Its source is not known yet.
    Awaited,
    /// It replicates from this server, which may write.
    Follows(ServerAddr),
    /// This server writes.
    Second {
        writer: ServerAddr,
        /// It has no source, so its data becomes stale.
        is_apart: bool,
    },
}

impl Held {
    /// The role that it still may have, and the reason in words.
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

    /// Whether its next answer is awaited soon: it may be the first sign of a new writer.
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
        // A fenced or ordered server is decided elsewhere; an outdated answer decides nothing.
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

/// Whether the operator lets it serve: ONLINE in the writer hostgroup and not drained.
fn serves(scene: Scene<'_>, addr: &ServerAddr, member: &Member) -> bool {
    member.status(scene.group.writer) == ServerStatus::Online && !scene.drained.contains(addr)
}

/// A server that is believed to write and answered well.
fn working<'a>(
    scene: Scene<'a>,
    before: &Memory,
    held: &BTreeMap<ServerAddr, Held>,
    but: &ServerAddr,
    newer: &Facts,
) -> Option<(&'a ServerAddr, &'a Member)> {
    // A promotion may react to a broken writer. A writer that looked well for [`RECENT_MS`] after it cannot be the reason.
    let since_ms = newer.read_only.since_ms;
    let was_unreachable = |facts: &Facts| facts.unreachable_ms.is_some_and(|at_ms| at_ms.abs_diff(since_ms) < RECENT_MS);
    let breaks = |facts: &Facts| is_failing(facts) && facts.read_only.at_ms < since_ms + RECENT_MS;
    let is_broken = |facts: &Facts| is_down(facts) || is_timed_out(scene, facts) || breaks(facts) || was_unreachable(facts);
    let is_believed = |addr: &ServerAddr| before.writable.contains(addr) && !before.fenced.contains_key(addr) && !held.contains_key(addr);
    let works = |facts: &Facts| facts.read_only.last == Some(false) && !is_broken(facts);
    let mut others = scene.known().filter(|(addr, ..)| *addr != but && is_believed(addr));
    others.find(|(addr, member, facts)| works(facts) && serves(scene, addr, member)).map(|(addr, member, _)| (addr, member))
}

/// Whether a server's source keeps it from writing. That is so if a writer is among its sources, or if the server just appeared and was not
/// promoted.
fn followed(scene: Scene<'_>, before: &Memory, addr: &ServerAddr, member: &Member) -> Option<Held> {
    let sources = ancestors(scene, addr);
    // In a ring every server is a source of every other one, so sources decide nothing.
    if sources.contains(addr) {
        return None;
    }
    let was_restarted = if before.read_only.contains(addr) { before.lost.contains(addr) } else { !member.is_explicit_writer };
    let is_new = !before.writable.contains(addr) && was_restarted;
    let was_held = |source: &ServerAddr| before.held.get(addr) == Some(&Held::Follows(source.clone()));
    let known = |source: &ServerAddr| scene.facts.get(source);
    // A server that is down may return with another answer.
    let only_reads = |facts: &Facts| facts.read_only.last == Some(true) && !is_down(facts);
    let is_followed = |source: &&ServerAddr| {
        let Some(member) = scene.members.get(*source).filter(|_| !known(source).is_some_and(only_reads)) else { return false };
        // Until the source's own sources are known, the two may form a ring.
        let works = |facts: &Facts| facts.read_only.last == Some(false) && !is_down(facts) && is_asked(facts);
        let is_kept_out = before.fenced.contains_key(*source) || scene.strangers.contains_key(*source);
        serves(scene, source, member) && (is_new || (!is_kept_out && (was_held(source) || known(source).is_some_and(works))))
    };
    // A source that only reads has another source, which may be down. It is asked while there is no writer.
    let is_open = |source: &ServerAddr| known(source).is_some_and(|facts| only_reads(facts) && !is_asked(facts));
    match sources.iter().find(is_followed) {
        Some(source) => Some(Held::Follows(source.clone())),
        None => (is_new && sources.iter().any(is_open)).then_some(Held::Awaited),
    }
}

/// The members that a server's data comes from, directly or not, as far as the servers reported their sources.
fn ancestors(scene: Scene<'_>, addr: &ServerAddr) -> BTreeSet<ServerAddr> {
    let mut all = BTreeSet::new();
    let mut next = vec![addr.clone()];
    while let Some(at) = next.pop() {
        // Old answers of lost servers may still hold: a ring counts as one until the opposite is known.
        let said = |facts| if at == *addr { told(facts) } else { facts.sources.last.as_ref() };
        let sources = scene.facts.get(&at).and_then(said).into_iter().flat_map(|view| &view.sources);
        let members = sources.flat_map(|source| members_at(scene, source));
        next.extend(members.filter(|member| all.insert((*member).clone())).cloned());
    }
    all
}

/// The members that a source may be: the one at its address, and those whose own id is the source's. Replication may use other names than
/// the configuration, so ids count too.
pub(super) fn members_at<'a>(scene: Scene<'a>, source: &Source) -> Vec<&'a ServerAddr> {
    let calls_itself = |addr: &ServerAddr| {
        let said = scene.facts.get(addr).and_then(|facts| facts.sources.last.as_ref());
        said.is_some_and(|view| view.id.is_same(&source.id))
    };
    let is_at = |addr: &ServerAddr| addr.is_same(&source.addr);
    scene.members.keys().filter(|addr| is_at(addr) || calls_itself(addr)).collect()
}

/// A server's sources, if it reported them after it was last lost.
pub(super) fn told(facts: &Facts) -> Option<&SourcesView> {
    let is_of_now = facts.unreachable_ms.is_none_or(|at_ms| facts.sources.at_ms > at_ms);
    facts.sources.last.as_ref().filter(|_| is_of_now && !is_given_up(&facts.sources))
}

pub(super) fn is_given_up<T>(track: &Track<T>) -> bool {
    track.is_denied || track.failed > 0 || track.timeouts >= GIVEN_UP_AFTER || track.unreachable >= GIVEN_UP_AFTER
}

/// Whether its sources are known, or will never be.
fn is_asked(facts: &Facts) -> bool {
    told(facts).is_some() || is_given_up(&facts.sources)
}

/// Why a server that was no writer before must not become a second one beside `writer`, which works. The server has no writer among its
/// sources.
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
    // A server that returns while another one writes is fenced elsewhere.
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
