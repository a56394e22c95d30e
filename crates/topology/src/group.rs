//! Group Replication: the members elect the primary and the proxy follows. In multi-primary mode the proxy chooses the writers.
//!
//! A member says whether it is ONLINE and sees a majority (`viable`). If two members claim to be the only primary, the one that more viable
//! members name wins. Members that a view names are found. They serve after their first good check, because the proxy may not be able to
//! reach a member by its name in the group.
//! A member that was frozen and expelled repeats its old view until it notices. A member may also have founded a group of its own.
//! Therefore a member serves nothing if more members deny it than vouch for it. Members of another group vouch for no member: they may
//! still name one that they have not missed yet.
//! Source: the MySQL manual, `performance_schema.replication_group_members` and `_member_stats`.

use std::collections::{BTreeMap, BTreeSet};

use model::ServerAddr;
use model::fleet::UnderWay;

use crate::facts::{Facts, Troubles};
use crate::judgement::{Fitness, Judgement, Judgements, Outage, Scene, describe, outage, small, under_way};
use crate::observation::GroupView;

/// A view counts as lasting after this many answers in a row with the same view id.
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

pub(crate) fn judge(scene: Scene<'_>) -> Judgements {
    let mut judgements: Judgements = scene.known().map(|(addr, _, facts)| (addr.clone(), member(scene, facts))).collect();
    for (addr, _, facts) in scene.known() {
        let Some(judgement) = judgements.get_mut(addr) else { continue };
        // A silent member may still be the last resort.
        if matches!(judgement.fitness, Fitness::Out(_)) && !judgement.fitness.may_write() {
            continue;
        }
        let outside = outside(scene, addr, facts);
        // A member with a group of its own may keep it for ever, so there is nothing to confirm.
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
    /// More members deny it than vouch for it, but only once or long ago.
    Suspected,
    /// Most others are in another group, but may have been asked before it founded its own.
    Elsewhere,
    Yes,
}

fn outside(scene: Scene<'_>, addr: &ServerAddr, facts: &Facts) -> Outside {
    let Some(view) = last_word(addr, facts) else { return Outside::No };
    let is_foreign = |seen: &GroupView| group_of(seen) != group_of(view);
    // A denial holds until the member says something else or is out. To vouch, a member must have answered its last check.
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
    // Members are asked at different times: the denial must come from the same time as its own view, and both must be repeated.
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

/// The group that a view belongs to: the part of its id (`group:number`) that stays while members come and go. A newly founded group has a
/// new one.
fn group_of(view: &GroupView) -> &str {
    view.view_id.rsplit_once(':').map_or("", |(group, _)| group)
}

/// A member's last view, if the group can commit and names the member by its configured address.
fn last_word<'a>(addr: &ServerAddr, facts: &'a Facts) -> Option<&'a GroupView> {
    let view = facts.group.last.as_ref().filter(|_| !facts.group.is_denied)?;
    (view.viable && !view.view_id.is_empty() && is_in(view, addr)).then_some(view)
}

/// [`last_word`] of a member that is not out.
fn counting_word<'a>(scene: Scene<'_>, addr: &ServerAddr, facts: &'a Facts) -> Option<&'a GroupView> {
    let is_out = || outage(facts, Troubles::from(&facts.group), max_timeouts(scene), true).is_some();
    last_word(addr, facts).filter(|_| !is_out())
}

fn is_in(view: &GroupView, addr: &ServerAddr) -> bool {
    view.members.iter().any(|(name, state)| name.is_same(addr) && matches!(&**state, "ONLINE" | "RECOVERING"))
}

fn max_timeouts(scene: Scene<'_>) -> u32 {
    small(scene.vars.monitor_groupreplication_healthcheck_max_timeout_count)
}

/// Members that see a group alike; the greater is the better.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Support {
    /// Members that never stopped answering, or resumed long ago.
    settled: usize,
    all: usize,
    /// The most members in one of their views: not all need be configured.
    size: usize,
    /// The present writer is one of them.
    has_writer: bool,
}

impl Support {
    fn of<'a>(scene: Scene<'_>, votes: impl Iterator<Item = (&'a ServerAddr, &'a Facts, &'a GroupView)>) -> Self {
        votes.fold(Self::default(), |support, (addr, facts, view)| Self {
            settled: support.settled + usize::from(scene.has_settled(&facts.group)),
            all: support.all + 1,
            size: support.size.max(view.members.len()),
            has_writer: support.has_writer || scene.writers.contains(addr),
        })
    }
}

/// The member is in the group but has lost the majority, so it cannot commit. Its statements hang rather than fail until it leaves the
/// group. An operator or `group_replication_unreachable_majority_timeout` makes it leave; by default it never does.
fn is_minority(view: &GroupView) -> bool {
    !view.viable && view.members.iter().any(|(_, state)| state == "ONLINE")
}

/// More transactions behind than the limit, in as many samples as the settings ask for.
fn is_lagging(scene: Scene<'_>, facts: &Facts) -> bool {
    let limit = u64::from(scene.group.max_transactions_behind);
    let count = usize::try_from(scene.vars.monitor_groupreplication_max_transactions_behind_count).unwrap_or(1);
    limit > 0 && facts.behind.len() >= count && facts.behind.iter().rev().take(count).all(|behind| *behind > limit)
}

/// The members that claim to be the group's only primary.
fn primaries(scene: Scene<'_>, judgements: &Judgements) -> Vec<ServerAddr> {
    let is_fit = |addr: &ServerAddr| judgements.get(addr).is_some_and(|j| matches!(j.fitness, Fitness::Writer | Fitness::Hesitant));
    let claims = |facts: &Facts| facts.group.last.as_ref().is_some_and(|view| view.primary.is_some());
    scene.known().filter(|(addr, _, facts)| is_fit(addr) && claims(facts)).map(|(addr, ..)| addr.clone()).collect()
}

/// Whether a member that can commit names a primary. Then the proxy does not choose.
pub(crate) fn has_primary(scene: Scene<'_>) -> bool {
    let elected = |facts: &Facts| facts.group.last.as_ref().is_some_and(|view| view.viable && view.primary.is_some());
    scene.known().any(|(_, _, facts)| elected(facts))
}

/// The claimant that most viable members name. If the votes are equal, the present writer stays.
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

/// The members that viable members name. None while a configured member has not been asked, or if one that answers is missing from its own
/// view under its configured address: new names cannot be told from other names of known members then.
pub(crate) fn named(scene: Scene<'_>) -> Option<BTreeSet<ServerAddr>> {
    let is_asked = |addr: &ServerAddr| scene.facts.get(addr).is_some_and(|facts| facts.group.is_asked());
    if scene.members.iter().any(|(addr, member)| !member.configured.is_empty() && member.is_checked() && !is_asked(addr)) {
        return None;
    }
    let asked = asked_at(scene);
    let mut names = BTreeSet::new();
    for (addr, member, facts) in scene.known() {
        let Some(view) = facts.group.last.as_ref().filter(|view| view.viable && !facts.group.is_troubled()) else { continue };
        let seen: BTreeSet<&ServerAddr> = view.members.iter().map(|(name, _)| known_as(scene, &asked, view, name)).collect();
        if !seen.is_empty() && !seen.contains(addr) {
            // A server that was found under another name of a member is not named, so it leaves.
            if member.configured.is_empty() {
                continue;
            }
            return None;
        }
        names.extend(seen.into_iter().cloned());
    }
    Some(names)
}

/// The address at which each member was asked, by UUID. If there are two, the configured one.
fn asked_at<'a>(scene: Scene<'a>) -> BTreeMap<&'a str, &'a ServerAddr> {
    let mut asked: BTreeMap<&'a str, &'a ServerAddr> = BTreeMap::new();
    for (addr, member, facts) in scene.known() {
        let Some(view) = facts.group.last.as_ref().filter(|view| !view.uuid.is_empty()) else { continue };
        let known = asked.entry(view.uuid.as_str()).or_insert(addr);
        if !member.configured.is_empty() {
            *known = addr;
        }
    }
    asked
}

/// The address of the member that `view` calls `name`: where a member with its UUID was asked, else a member's own spelling of the name.
fn known_as<'a>(scene: Scene<'a>, asked: &BTreeMap<&'a str, &'a ServerAddr>, view: &'a GroupView, name: &'a ServerAddr) -> &'a ServerAddr {
    let uuid = view.uuids.iter().find(|(_, addr)| *addr == name).map(|(uuid, _)| uuid.as_str());
    let by_uuid = uuid.and_then(|uuid| asked.get(uuid).copied());
    by_uuid.or_else(|| scene.members.keys().find(|addr| addr.is_same(name))).unwrap_or(name)
}
