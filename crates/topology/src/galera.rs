//! Galera and Percona XtraDB Cluster: the roles that a node may have by its own words.
//!
//! If the node says that it must not serve, this acts at once. A donor, or a node that catches up, keeps its role for a moment. A node that
//! does not answer is out after as many failures as the settings say. [`converge`](crate::converge) chooses the writer among the fit nodes.
//! Source: the Galera manual's node states and `wsrep_*` variables, Percona's `pxc_maint_mode`, the interface reference's order of
//! decisions.
//! Of two primary components only the larger one serves. A component's size is a claim until as many nodes vouch for it as for the other
//! one, because a node that was frozen still reports the old size.

use model::ServerAddr;
use model::fleet::UnderWay;

use crate::facts::{Facts, Troubles};
use crate::judgement::{Fitness, Judgement, Judgements, Outage, STALE_FOR_MS, Scene, describe, outage, small, under_way};
use crate::observation::GaleraView;

/// Two nodes must disagree about the cluster's size for this long before one of them counts as cut off, ms. Views change, and nodes are
/// asked, at slightly different times.
const SPLIT_AFTER_MS: u64 = 1_000;
/// A node that missed a check or two is outdated if this many nodes see another cluster. These nodes must never have stopped answering,
/// and have said so [`EVICTED_AFTER`] times.
const EVICTED_BY: usize = 2;
const EVICTED_AFTER: u32 = 2;
/// Samples in a row over the limit that make a reader behind. ProxySQL takes one; receive queues come and go.
const BEHIND_AFTER: usize = 2;
/// During an incremental state transfer (IST) the donor says for a moment that it is a donor and catches up. Its role changes only after
/// this time, ms.
const GIVING_AFTER_MS: u64 = 1_000;

pub(crate) fn judge(scene: Scene<'_>) -> Judgements {
    scene.known().map(|(addr, _, facts)| (addr.clone(), node(scene, addr, facts))).collect()
}

fn node(scene: Scene<'_>, addr: &ServerAddr, facts: &Facts) -> Judgement {
    let troubles = Troubles::from(&facts.galera);
    let max_timeouts = small(scene.vars.monitor_galera_healthcheck_max_timeout_count);
    let may_write = facts.galera.last.as_ref().is_some_and(|view| state(view, view.local_state).0.may_write());
    if let Some((outage, why)) = outage(facts, troubles, max_timeouts, may_write) {
        return Judgement {
            under_way: under_way(scene, troubles, outage.under_way()),
            ..Judgement::new(Fitness::Out(outage), why, describe(troubles))
        };
    }
    let Some(view) = &facts.galera.last else {
        return Judgement { is_confirming: facts.galera.is_troubled(), ..Judgement::new(Fitness::Unseen, "not seen yet", "") };
    };
    if let Some(outage) = outdated(scene, addr, facts, view, max_timeouts, may_write) {
        let why = "the node is back and sees another cluster than the nodes that never stopped answering: to be confirmed";
        let judgement = Judgement::new(Fitness::Out(outage), why, words(view, troubles));
        return Judgement { under_way: outage.under_way(), is_confirming: true, ..judgement };
    }
    let split = split(scene, addr, facts, view);
    let gives_briefly = facts.giving_since_ms.is_some_and(|since_ms| facts.galera.at_ms < since_ms + GIVING_AFTER_MS);
    let (fitness, why) = match split {
        Split::CutOff => (Fitness::Out(Outage::Stated), "its part of the cluster is smaller than another part"),
        Split::Agreed | Split::Suspected if gives_briefly => state(view, GaleraView::SYNCED),
        Split::Agreed | Split::Suspected => state(view, view.local_state),
    };
    let limit = u64::from(scene.group.max_transactions_behind);
    let latest = facts.behind.iter().rev().take(BEHIND_AFTER);
    let is_cut_off = split == Split::CutOff || !view.primary_partition;
    Judgement {
        under_way: if is_cut_off { UnderWay::EndsAfterGrace } else { UnderWay::MayFinish },
        is_behind: limit > 0 && latest.clone().count() == BEHIND_AFTER && latest.clone().all(|behind| *behind > limit),
        behind: view.recv_queue,
        is_confirming: facts.galera.is_troubled() || split == Split::Suspected || gives_briefly,
        ..Judgement::new(fitness, why, words(view, troubles))
    }
}

/// The first condition that holds decides. `local_state` may differ from the view's: a donor of a moment counts as synced.
fn state(view: &GaleraView, local_state: u32) -> (Fitness, &'static str) {
    let stated = Fitness::Out(Outage::Stated);
    let may_write = !view.read_only;
    let donates = local_state == GaleraView::DONOR;
    match () {
        () if !view.primary_partition => (stated, "not in the primary component"),
        () if !(GaleraView::DONOR..=GaleraView::SYNCED).contains(&local_state) => (stated, "wsrep_local_state says that it is not synced"),
        () if view.reject_queries => (stated, "wsrep_reject_queries is set"),
        () if donates && view.sst_donor_rejects_queries => {
            (Fitness::Leaving { may_write: false }, "it is a donor and wsrep_sst_donor_rejects_queries is on")
        }
        () if local_state == GaleraView::JOINED => (Fitness::Leaving { may_write: false }, "it is catching up"),
        () if view.desync => (Fitness::Leaving { may_write }, "wsrep_desync is on"),
        () if view.maintenance => (Fitness::Leaving { may_write }, "pxc_maint_mode is not DISABLED"),
        () if view.read_only => (Fitness::Reader, "read_only is on"),
        () if donates => (Fitness::Hesitant, "it is a donor"),
        () => (Fitness::Writer, "synced"),
    }
}

/// Whether the nodes see one cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Split {
    Agreed,
    /// Another node sees a larger cluster, but not yet for long enough.
    Suspected,
    CutOff,
}

fn split(scene: Scene<'_>, addr: &ServerAddr, facts: &Facts, view: &GaleraView) -> Split {
    if view.cluster_size == 0 {
        return Split::Agreed;
    }
    let others = scene.known().filter(|(other, ..)| *other != addr).filter_map(|(_, _, other)| Some((other, component(other)?)));
    let larger = others.filter(|(other, size)| *size > view.cluster_size && other.galera.at_ms >= facts.galera.since_ms);
    let own = Support::of(scene, view.cluster_size);
    let is_believed = |(other, size): (&Facts, u32)| {
        // A component with less support is believed only after the time for which a node may repeat an old view.
        let needed_ms = if Support::of(scene, size).outweighs(own) { SPLIT_AFTER_MS } else { STALE_FOR_MS };
        disagreed_ms(facts, other) >= needed_ms
    };
    match larger.map(is_believed).max() {
        None => Split::Agreed,
        Some(true) => Split::CutOff,
        Some(false) => Split::Suspected,
    }
}

/// How long both nodes have said the same as now, ms. A view from before the other node's last change does not count.
fn disagreed_ms(one: &Facts, other: &Facts) -> u64 {
    let begun_ms = |facts: &Facts| facts.galera.since_ms.max(facts.galera.resumed_ms);
    let until_ms = other.galera.at_ms.min(one.galera.at_ms);
    until_ms.saturating_sub(begun_ms(other).max(begun_ms(one)))
}

/// Whether a node that was away has since agreed with another one, and then one or both saw the cluster change. Its view is then no relic
/// of the time before.
fn have_agreed(facts: &Facts, other: &Facts) -> bool {
    // The view before the last change, if the node returned before that change.
    let before = |of: &Facts| {
        let view = of.galera.before.as_ref().filter(|view| of.galera.since_ms > facts.galera.resumed_ms && view.primary_partition);
        view.map(|view| view.cluster_size)
    };
    let now = |of: &Facts| of.galera.last.as_ref().map(|view| view.cluster_size);
    let (own, others) = (before(facts), before(other));
    (own.is_some() && (own == now(other) || own == others)) || (others.is_some() && others == now(facts))
}

fn component(facts: &Facts) -> Option<u32> {
    let view = facts.galera.last.as_ref().filter(|view| view.primary_partition && view.cluster_size > 0)?;
    (!facts.galera.is_troubled() && !facts.galera.is_denied).then_some(view.cluster_size)
}

/// A node that answers again may repeat its view from before. While nodes with more support see another cluster, it stays out, but could
/// still be a last resort.
fn outdated(scene: Scene<'_>, addr: &ServerAddr, facts: &Facts, view: &GaleraView, max_timeouts: u32, may_write: bool) -> Option<Outage> {
    let size = component(facts).filter(|_| !scene.has_settled(&facts.galera))?;
    if outage(facts, facts.galera.missed, max_timeouts, may_write).is_none() {
        return is_evicted(scene, addr, facts, size).then_some(Outage::Silent { may_write });
    }
    let own = Support::of(scene, size);
    // Two that have agreed since see a change of the cluster at slightly different times, and are asked at different times.
    let is_to_be_heard = |other: &Facts| !have_agreed(facts, other) || disagreed_ms(facts, other) >= SPLIT_AFTER_MS;
    let others = scene.known().map(|(_, _, other)| other).filter(|other| is_to_be_heard(other)).filter_map(component);
    let others = others.filter(|other| *other != view.cluster_size);
    others.map(|other| Support::of(scene, other)).any(|other| other > own).then_some(Outage::Silent { may_write })
}

/// Whether the cluster evicted a node that missed checks but was not out. Two nodes that never stopped answering must say so, and have said
/// so before it answered last. A writer is not taken out for this: its commits fail until it notices.
fn is_evicted(scene: Scene<'_>, addr: &ServerAddr, facts: &Facts, size: u32) -> bool {
    let galera = &facts.galera;
    let own = Support::of(scene, size);
    let denies = |other: &Facts| {
        component(other).is_some_and(|smaller| smaller < size)
            && scene.has_settled(&other.galera)
            && other.galera.repeats >= EVICTED_AFTER
            && (other.galera.at_ms >= galera.since_ms && galera.at_ms >= other.galera.since_ms)
    };
    let others = scene.known().map(|(_, _, other)| other).filter(|other| denies(other));
    let is_outvoted = |size| {
        let support = Support::of(scene, size);
        support.settled >= EVICTED_BY && support > own
    };
    !scene.writers.contains(addr) && others.filter_map(component).any(is_outvoted)
}

/// The nodes that vouch for a component; the greater is the better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Support {
    /// Nodes that never stopped answering, or resumed more than [`STALE_FOR_MS`] ago.
    settled: usize,
    all: usize,
}

impl Support {
    /// The support for a component of this size.
    fn of(scene: Scene<'_>, size: u32) -> Self {
        let nodes = || scene.known().map(|(_, _, facts)| facts).filter(|facts| component(facts) == Some(size));
        Self { settled: nodes().filter(|facts| scene.has_settled(&facts.galera)).count(), all: nodes().count() }
    }

    /// Whether this larger component has at least as much support as the smaller one, and not only from nodes that just returned.
    fn outweighs(self, smaller: Self) -> bool {
        self > smaller || (self == smaller && self.settled > 0)
    }
}

fn words(view: &GaleraView, troubles: Troubles) -> String {
    let flag = |is_set: bool, name: &str| if is_set { format!(" {name}") } else { String::new() };
    format!(
        "wsrep_local_state={} wsrep_cluster_status={} read_only={} recv_queue={} cluster_size={}{}{}{}{}{}",
        view.local_state,
        if view.primary_partition { "Primary" } else { "non-Primary" },
        u8::from(view.read_only),
        view.recv_queue,
        view.cluster_size,
        flag(view.desync, "desync"),
        flag(view.reject_queries, "reject_queries"),
        flag(view.maintenance, "maintenance"),
        flag(view.sst_donor_rejects_queries, "sst_donor_rejects_queries"),
        match describe(troubles) {
            none if none.is_empty() => none,
            some => format!(" {some}"),
        },
    )
}
