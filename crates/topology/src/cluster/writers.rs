//! The candidates of [`converge`](crate::converge): made from each server's judgement, the operator's rows and the fail-back policy.

use std::collections::{BTreeMap, BTreeSet};

use model::ServerAddr;
use model::settings::Failback;
use model::snapshot::{RoleKind, ServerStatus};

use super::{Choice, Cluster, Memory, Order, World, is_warming};
use crate::converge::{Candidate, Claim, Rank, Tier, choose};
use crate::facts::Facts;
use crate::group;
use crate::judgement::{Fitness, Judgement, Judgements, Outage};
use crate::member::Member;

impl Cluster {
    /// Chooses the writers among the servers that may write.
    pub(super) fn choose(&mut self, world: World<'_>, judgements: &Judgements, memory: &mut Memory, order: Order) -> BTreeSet<ServerAddr> {
        let segment = self.preferred_segment(world.facts, &memory.writers);
        let wanted = self.awaited.as_ref().filter(|_| !self.before.is_settled).or(self.preferred.as_ref());
        let mut candidates = Vec::new();
        for (addr, member) in &self.members {
            let tier = self.tier(world, addr, member, judgements.get(addr));
            let is_seen_fit = judgements.get(addr).is_some_and(|judgement| judgement.fitness == Fitness::Writer);
            if tier == Some(Tier::Fit) && is_seen_fit {
                memory.fit_since_ms.entry(addr.clone()).or_insert(world.now_ms);
            } else {
                memory.fit_since_ms.remove(addr);
            }
            let Some(tier) = tier else { continue };
            let claim = self.claim(world, addr, memory, order);
            let is_near = segment.is_some() && segment == segment_of(world.facts.get(addr));
            let (is_preferred, is_explicit) = (wanted == Some(addr), member.is_explicit_writer);
            let rank = Rank { is_preferred, is_explicit, is_near, weight: member.weight, addr: addr.clone() };
            candidates.push(Candidate { tier, claim, rank });
        }
        if memory.is_settled && order != Order::Failback {
            yield_to_equals(&mut candidates, &memory.writers);
        }
        let chosen = choose(&candidates, self.group.max_writers);
        self.await_comeback(world, &candidates, &chosen, memory);
        let (before, is_settled) = (memory.writers.clone(), memory.is_settled);
        let (is_free, comeback, is_first) = (self.chooses(), self.comeback, !memory.has_written);
        let awaited = self.awaited.clone();
        self.choice = Some(Choice { is_free, candidates, before, chosen: chosen.clone(), is_first, is_settled, awaited, order, comeback });
        chosen
    }

    /// The Galera segment of the server that should write by its row. If several are equal, the present writer's segment.
    fn preferred_segment(&self, facts: &BTreeMap<ServerAddr, Facts>, writers: &BTreeSet<ServerAddr>) -> Option<u32> {
        let rank = |addr: &ServerAddr, member: &Member| (member.is_explicit_writer, member.weight, writers.contains(addr), addr.clone());
        let own = self.members.iter().filter(|(addr, _)| !self.strangers.all.contains_key(*addr));
        let best = own.max_by_key(|(addr, member)| rank(addr, member));
        segment_of(best.and_then(|(addr, _)| facts.get(addr)))
    }

    /// How good a writer it would be; None if it cannot be one.
    pub(super) fn tier(&self, world: World<'_>, addr: &ServerAddr, member: &Member, judgement: Option<&Judgement>) -> Option<Tier> {
        if member.status(self.group.writer) != ServerStatus::Online || world.drained.contains(addr) {
            return None;
        }
        let Some(judgement) = judgement else { return member.is_explicit_writer.then_some(Tier::Unseen) };
        let tier = match judgement.fitness {
            Fitness::Writer => Tier::Fit,
            Fitness::Unseen if self.is_waited_for(world, addr, member) => Tier::Fit,
            Fitness::Unseen if member.is_explicit_writer => Tier::Unseen,
            Fitness::Hesitant => Tier::Hesitant,
            Fitness::Leaving { may_write: true } => Tier::Leaving,
            Fitness::Out(Outage::Silent { may_write: true }) => Tier::Silent,
            Fitness::Unseen | Fitness::Reader | Fitness::Leaving { .. } | Fitness::Fenced | Fitness::Out(_) => return None,
        };
        if self.chooses() && member.is_weightless(self.group.writer) {
            return Some(Tier::Weightless);
        }
        let is_warming = self.chooses() && world.policy(self.group.writer).waits_for_buffer_pool && is_warming(world.facts.get(addr));
        Some(if is_warming { tier.max(Tier::Hesitant) } else { tier })
    }

    /// If the proxy chooses, it waits for the writer of the last process, unless that server refuses the monitor. In Galera it also waits
    /// for the server configured as writer.
    fn is_waited_for(&self, world: World<'_>, addr: &ServerAddr, member: &Member) -> bool {
        let is_awaited = || self.awaited.as_ref() == Some(addr) && world.facts.get(addr).is_none_or(|facts| !facts.is_denied());
        match self.group.kind {
            RoleKind::Galera => member.is_explicit_writer || is_awaited(),
            RoleKind::GroupReplication => is_awaited() && !group::has_primary(self.scene(world, &self.memory.writers)),
            RoleKind::Replication(_) | RoleKind::Aurora(_) => false,
        }
    }

    /// Whether the proxy chooses among several that may write.
    pub(super) fn chooses(&self) -> bool {
        matches!(self.group.kind, RoleKind::Galera | RoleKind::GroupReplication)
    }

    fn claim(&self, world: World<'_>, addr: &ServerAddr, memory: &Memory, order: Order) -> Claim {
        let returned = || memory.fit_since_ms.get(addr).is_some_and(|since_ms| world.now_ms >= since_ms + self.comeback.delay_ms);
        let may_return = match self.comeback.policy {
            Failback::Immediate => memory.fit_since_ms.contains_key(addr),
            Failback::Delayed => returned(),
            Failback::Never | Failback::Command => false,
        };
        match () {
            () if order == Order::Prefer && self.preferred.as_ref() == Some(addr) => Claim::Ordered,
            () if !memory.is_settled || order == Order::Failback || may_return || memory.writers.contains(addr) => Claim::Entitled,
            () => Claim::Waiting,
        }
    }

    /// Notes when a better server than those that write will have been fit for long enough.
    fn await_comeback(&mut self, world: World<'_>, candidates: &[Candidate], chosen: &BTreeSet<ServerAddr>, memory: &Memory) {
        if self.comeback.policy != Failback::Delayed {
            return;
        }
        let worst = candidates.iter().filter(|candidate| chosen.contains(&candidate.rank.addr)).map(|c| c.rank.merit()).min();
        let better = candidates.iter().filter(|c| c.claim == Claim::Waiting && worst.is_some_and(|worst| c.rank.merit() > worst));
        let due = better.filter_map(|c| memory.fit_since_ms.get(&c.rank.addr)).map(|since_ms| since_ms + self.comeback.delay_ms);
        self.wake_at(due.filter(|at_ms| *at_ms > world.now_ms).min());
    }
}

/// A server that may come back but is no better than the writers waits for a free place.
fn yield_to_equals(candidates: &mut [Candidate], writers: &BTreeSet<ServerAddr>) {
    let writes = |candidate: &Candidate| writers.contains(&candidate.rank.addr);
    let Some(worst) = candidates.iter().filter(|candidate| writes(candidate)).map(|candidate| candidate.rank.merit()).min() else { return };
    for candidate in candidates.iter_mut().filter(|candidate| candidate.claim == Claim::Entitled && !writes(candidate)) {
        if candidate.rank.merit() <= worst {
            candidate.claim = Claim::Waiting;
        }
    }
}

fn segment_of(facts: Option<&Facts>) -> Option<u32> {
    facts.and_then(|facts| facts.galera.last.as_ref()).map(|view| view.segment)
}
