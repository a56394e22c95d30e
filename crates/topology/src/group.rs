//! Group Replication: members decide among themselves who is primary, the proxy follows; in multi-primary mode it chooses.
//!
//! A member says whether it is ONLINE and sees a majority (`viable`). When two members say that they are the only primary,
//! the one that more viable members name is it. Members that a view names and nobody configured are found; they serve once
//! they were seen well themselves, because a member's name in the group may not be one that the proxy can reach.
//! A member that was frozen and expelled says what it saw before until it notices, and one may have founded a group of its
//! own: who is not in the view of as many others as vouch for it serves nothing. Those in another group than it vouch for nobody:
//! until they have missed it they name it.
//! Source: the MySQL manual, `performance_schema.replication_group_members` and `_member_stats`.

use std::collections::{BTreeMap, BTreeSet};

use model::ServerAddr;
use model::fleet::UnderWay;

use crate::facts::{Facts, Troubles};
use crate::judgement::{Fitness, Judgement, Judgements, Outage, Scene, describe, outage, small, under_way};
use crate::seen::GroupView;

/// Answers in a row from the same view after which it is no passing one.
const AGREED_AFTER: u32 = 2;

/// Which members a limit on transactions behind is for: `monitor_groupreplication_max_transactions_behind_for_read_only`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LagApplies {
    Writers,
    Readers,
    Both,
}

impl LagApplies {
    fn of(scene: Scene<'_>) -> Self {
        match scene.vars.monitor_groupreplication_max_transactions_behind_for_read_only {
            0 => Self::Writers,
            1 => Self::Readers,
            _ => Self::Both,
        }
    }
}

/// Judges every member.
pub(crate) fn judge(scene: Scene<'_>) -> Judgements {
    let mut judgements: Judgements = scene.known().map(|(addr, _, facts)| (addr.clone(), member(scene, facts))).collect();
    for (addr, _, facts) in scene.known() {
        let Some(judgement) = judgements.get_mut(addr) else { continue };
        // Silent, it may still be the last resort.
        if matches!(judgement.fitness, Fitness::Out(_)) && !judgement.fitness.may_write() {
            continue;
        }
        let outside = outside(scene, addr, facts);
        // One that has its own group may have it for ever.
        let may_pass = outside == Outside::Yes && !scene.has_settled(&facts.group);
        judgement.is_confirming |= matches!(outside, Outside::Suspected | Outside::Elsewhere) || may_pass;
        if matches!(outside, Outside::Elsewhere | Outside::Yes) {
            judgement.fitness = Fitness::Out(Outage::Stated);
            judgement.under_way = UnderWay::EndsAfterGrace;
            judgement.why = "the group, as more of its members see it, does not contain it".to_owned();
        }
    }
    let claims: Vec<ServerAddr> = primaries(scene, &judgements);
    if claims.len() > 1
        && let Some(elected) = elect(scene, &judgements, &claims)
    {
        for addr in claims.iter().filter(|addr| **addr != elected) {
            if let Some(judgement) = judgements.get_mut(addr) {
                judgement.fitness = Fitness::Reader;
                judgement.why = format!("the server reports itself as primary, but more members name {elected}");
            }
        }
        judgements.values_mut().for_each(|judgement| judgement.is_confirming = true);
    }
    judgements
}

fn member(scene: Scene<'_>, facts: &Facts) -> Judgement {
    let troubles = Troubles::from(&facts.group);
    let max_timeouts = max_timeouts(scene);
    let may_write = facts.group.last.as_ref().is_some_and(|view| view.viable && !view.read_only);
    if let Some((outage, why)) = outage(facts, troubles, max_timeouts, may_write) {
        let under_way = under_way(scene, troubles, outage.under_way());
        return Judgement { under_way, ..Judgement::new(Fitness::Out(outage), why, describe(troubles)) };
    }
    let is_confirming = facts.group.is_troubled();
    let Some(view) = &facts.group.last else {
        return Judgement { is_confirming, ..Judgement::new(Fitness::Unseen, "not seen yet", "") };
    };
    let is_lagging = is_lagging(scene, facts);
    let applies = LagApplies::of(scene);
    let (fitness, why) = match (view.viable, view.read_only) {
        (false, _) => (Fitness::Out(Outage::Stated), "not ONLINE, or it sees no majority"),
        (true, true) => (Fitness::Reader, "read_only is on"),
        (true, false) if is_lagging && applies != LagApplies::Readers => (Fitness::Hesitant, "too many transactions behind"),
        (true, false) => (Fitness::Writer, "writable member of the majority"),
    };
    Judgement {
        under_way: if is_minority(view) { UnderWay::EndsAfterGrace } else { UnderWay::MayFinish },
        is_behind: is_lagging && applies != LagApplies::Writers,
        behind: view.transactions_behind,
        is_confirming,
        ..Judgement::new(fitness, why, words(view, troubles))
    }
}

/// Whether a member is in a group of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outside {
    No,
    /// Others say so, once or long ago.
    Suspected,
    /// It is in another group than others, who may have been asked before it was founded.
    Elsewhere,
    Yes,
}

fn outside(scene: Scene<'_>, addr: &ServerAddr, facts: &Facts) -> Outside {
    let Some(view) = last_word(addr, facts) else { return Outside::No };
    let is_foreign = |seen: &GroupView| group_of(seen) != group_of(view);
    // Who denied it does so until it says something else, or is out; who vouches for it has just answered.
    let words = || scene.known().filter_map(|(other, _, facts)| Some((other, facts, counting_word(scene, other, facts)?)));
    let denies = |(other, _, seen): &(&ServerAddr, &Facts, &GroupView)| {
        *other != addr && (is_foreign(seen) || (seen.view_id != view.view_id && !is_in(seen, addr)))
    };
    let vouches = |(other, facts, seen): &(&ServerAddr, &Facts, &GroupView)| {
        (*other == addr || !facts.group.is_troubled()) && !is_foreign(seen) && is_in(seen, addr)
    };
    let against = Support::of(scene, words().filter(denies));
    let vouched = Support::of(scene, words().filter(vouches));
    if against <= vouched {
        return Outside::No;
    }
    // Both have said so since the other one does, and neither only once: members are asked at different times.
    let is_present = |other: &Facts| other.group.at_ms >= facts.group.since_ms && facts.group.at_ms >= other.group.since_ms;
    let is_repeated = |other: &Facts| other.group.repeats >= AGREED_AFTER && facts.group.repeats >= AGREED_AFTER;
    let is_certain = words().filter(denies).any(|(_, other, _)| is_present(other) && is_repeated(other));
    let was_out = !scene.has_settled(&facts.group) && outage(facts, facts.group.missed, max_timeouts(scene), true).is_some();
    match () {
        () if is_certain || was_out => Outside::Yes,
        () if words().filter(denies).any(|(_, _, seen)| is_foreign(seen)) => Outside::Elsewhere,
        () => Outside::Suspected,
    }
}

/// Which group a view is of: what stays of its id (`group:number`) while members come and go. Who founds a group gives it a new one.
fn group_of(view: &GroupView) -> &str {
    view.view_id.rsplit_once(':').map_or("", |(group, _)| group)
}

/// What a member said last of its group, if it is in one that can commit, and is named in it as the operator names it.
fn last_word<'a>(addr: &ServerAddr, facts: &'a Facts) -> Option<&'a GroupView> {
    let view = facts.group.last.as_ref().filter(|_| !facts.group.is_denied)?;
    (view.viable && !view.view_id.is_empty() && is_in(view, addr)).then_some(view)
}

/// [`last_word`] of one that is not out.
fn counting_word<'a>(scene: Scene<'_>, addr: &ServerAddr, facts: &'a Facts) -> Option<&'a GroupView> {
    let is_out = || outage(facts, Troubles::from(&facts.group), max_timeouts(scene), true).is_some();
    last_word(addr, facts).filter(|_| !is_out())
}

fn is_in(view: &GroupView, addr: &ServerAddr) -> bool {
    view.members.iter().any(|(name, state)| name == addr && matches!(&**state, "ONLINE" | "RECOVERING"))
}

fn max_timeouts(scene: Scene<'_>) -> u32 {
    small(scene.vars.monitor_groupreplication_healthcheck_max_timeout_count)
}

/// Members that see a group alike; the greater is the better.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Support {
    /// Those that were there all along.
    settled: usize,
    all: usize,
    /// Members of the largest of their views: not all of them need be configured.
    size: usize,
    /// Who writes is one of them.
    has_writer: bool,
}

impl Support {
    fn of<'a>(scene: Scene<'_>, voices: impl Iterator<Item = (&'a ServerAddr, &'a Facts, &'a GroupView)>) -> Self {
        voices.fold(Self::default(), |support, (addr, facts, view)| Self {
            settled: support.settled + usize::from(scene.has_settled(&facts.group)),
            all: support.all + 1,
            size: support.size.max(view.members.len()),
            has_writer: support.has_writer || scene.writers.contains(addr),
        })
    }
}

/// The member is in the group, and has lost so many others that it can commit nothing. It makes no statement fail until it
/// leaves the group, which an operator or `group_replication_unreachable_majority_timeout` orders, by default nobody.
fn is_minority(view: &GroupView) -> bool {
    !view.viable && view.members.iter().any(|(_, state)| state == "ONLINE")
}

/// More transactions behind than the limit, in as many samples as the settings ask for.
fn is_lagging(scene: Scene<'_>, facts: &Facts) -> bool {
    let limit = u64::from(scene.group.max_transactions_behind);
    let count = usize::try_from(scene.vars.monitor_groupreplication_max_transactions_behind_count).unwrap_or(1);
    limit > 0 && facts.behind.len() >= count && facts.behind.iter().rev().take(count).all(|behind| *behind > limit)
}

/// The members that say that they are the group's only primary.
fn primaries(scene: Scene<'_>, judgements: &Judgements) -> Vec<ServerAddr> {
    let is_fit = |addr: &ServerAddr| judgements.get(addr).is_some_and(|j| matches!(j.fitness, Fitness::Writer | Fitness::Hesitant));
    let claims = |facts: &Facts| facts.group.last.as_ref().is_some_and(|view| view.primary.is_some());
    scene.known().filter(|(addr, _, facts)| is_fit(addr) && claims(facts)).map(|(addr, ..)| addr.clone()).collect()
}

/// A member that can commit says that the group has elected.
pub(crate) fn has_primary(scene: Scene<'_>) -> bool {
    let elected = |facts: &Facts| facts.group.last.as_ref().is_some_and(|view| view.viable && view.primary.is_some());
    scene.known().any(|(_, _, facts)| elected(facts))
}

/// The one whom most viable members name. When as many name another one, the writer stays.
fn elect(scene: Scene<'_>, judgements: &Judgements, claims: &[ServerAddr]) -> Option<ServerAddr> {
    let mut votes: BTreeMap<&ServerAddr, u32> = BTreeMap::new();
    for (addr, _, facts) in scene.known() {
        let is_out = judgements.get(addr).is_none_or(|judgement| matches!(judgement.fitness, Fitness::Out(_)));
        let named = facts.group.last.as_ref().and_then(|view| view.primary.as_ref());
        if let Some(named) = named.filter(|_| !is_out && !facts.group.is_troubled()) {
            *votes.entry(named).or_default() += 1;
        }
    }
    let standing = |addr: &&ServerAddr| (votes.get(*addr).copied().unwrap_or_default(), scene.writers.contains(*addr));
    claims.iter().max_by_key(standing).cloned()
}

fn words(view: &GroupView, troubles: Troubles) -> String {
    let primary = view.primary.as_ref().map_or("-".to_owned(), ToString::to_string);
    let text = format!(
        "viable={} read_only={} transactions_behind={} primary={primary} members={} view_id={} {}",
        u8::from(view.viable),
        u8::from(view.read_only),
        view.transactions_behind,
        view.members.len(),
        view.view_id,
        describe(troubles),
    );
    text.trim_end().to_owned()
}

/// The members that viable members see, and whether every name in it is understood: when a server that answers is not in
/// its own view under the name that the operator wrote, nobody can tell which of the names are new.
pub(crate) fn named(scene: Scene<'_>) -> Option<BTreeSet<ServerAddr>> {
    let mut names = BTreeSet::new();
    for (addr, _, facts) in scene.known() {
        let Some(view) = facts.group.last.as_ref().filter(|view| view.viable && !facts.group.is_troubled()) else { continue };
        let is_named = view.members.iter().any(|(name, _)| name == addr);
        if !is_named && !view.members.is_empty() {
            return None;
        }
        names.extend(view.members.iter().map(|(name, _)| name.clone()));
    }
    Some(names)
}
