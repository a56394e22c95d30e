//! Why a server writes, and why it stopped, in words: for events.
//!
//! If the members decide among themselves, their judgements say why. This module words the proxy's own choices.

use std::collections::BTreeSet;

use model::ServerAddr;
use model::settings::Failback;

use super::{Order, Return};
use crate::converge::{Candidate, Claim, Rank, Tier};
use crate::judgement::{Fitness, Judgements};

/// The last choice of writers, with all that it was made from.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    /// The proxy chooses among several that may write.
    pub is_free: bool,
    /// All servers that could write.
    pub candidates: Vec<Candidate>,
    /// The writers of the decision before.
    pub before: BTreeSet<ServerAddr>,
    /// The writers of this decision.
    pub chosen: BTreeSet<ServerAddr>,
    /// Before this decision the cluster never had a writer.
    pub is_first: bool,
    /// Writers stay by now, unless the policy says otherwise.
    pub is_settled: bool,
    /// The writer when the last process ended, if its place is kept.
    pub awaited: Option<ServerAddr>,
    /// The operator's order behind this decision.
    pub order: Order,
    /// When the preferred writer comes back.
    pub comeback: Return,
}

impl Choice {
    /// Why a server writes; None where its judgement says it all.
    pub(crate) fn of_chosen(&self, addr: &ServerAddr, judgements: &Judgements) -> Option<String> {
        let own = self.candidate(addr).filter(|_| self.is_free)?;
        let why = judgements.get(addr).map_or("not seen yet", |judgement| &judgement.why);
        let rivals = || self.candidates.iter().filter(|rival| rival.tier == own.tier && !self.chosen.contains(&rival.rank.addr));
        let best = |all: &mut dyn Iterator<Item = &Candidate>| all.map(|rival| rival.rank.clone()).max();
        let rival = best(&mut rivals().filter(|rival| self.wrote(rival))).or_else(|| best(&mut rivals()));
        Some(match rival {
            _ if own.tier == Tier::Weightless => format!("no other server may write; its weight of 0 keeps statements away: {why}"),
            _ if own.tier == Tier::Unseen => "configured as writer, and not seen yet".to_owned(),
            _ if own.tier > Tier::Unseen => format!("no better server is left: {why}"),
            Some(rival) => self.preference(own, &rival),
            None if self.chosen.len() > 1 => format!("max_writers has room for all writable servers: {why}"),
            None => format!("the only server that may write: {why}"),
        })
    }

    /// Why a server that wrote does so no more; None where its judgement says it all.
    pub(crate) fn of_dismissed(&self, addr: &ServerAddr, judgements: &Judgements) -> Option<String> {
        let own = self.candidate(addr)?;
        let mut chosen: Vec<&Candidate> = self.chosen.iter().filter_map(|addr| self.candidate(addr)).collect();
        chosen.sort_by_key(|other| self.wrote(other));
        let other = *chosen.first()?;
        let name = &other.rank.addr;
        if judgements.get(addr).is_none_or(|judgement| judgement.fitness == Fitness::Unseen) {
            let why = judgements.get(name).map_or("", |judgement| &judgement.why);
            return Some(format!("{name} writes ({why}), and this server was not probed yet"));
        }
        if own.tier == Tier::Weightless && other.tier != Tier::Weightless {
            return Some(format!("its weight is 0: {name} writes"));
        }
        if !self.is_free || own.tier > other.tier {
            return None;
        }
        Some(match self.wrote(other) {
            false => format!("another server is preferred: {name}, {}", self.preference(other, &own.rank)),
            true if own.rank.merit() > other.rank.merit() => format!("{name} writes; {}", self.next_comeback()),
            true => format!("{name} writes"),
        })
    }

    fn candidate(&self, addr: &ServerAddr) -> Option<&Candidate> {
        self.candidates.iter().find(|candidate| candidate.rank.addr == *addr)
    }

    fn wrote(&self, candidate: &Candidate) -> bool {
        self.before.contains(&candidate.rank.addr)
    }

    /// Why one is preferred to another, and may be.
    fn preference(&self, own: &Candidate, rival: &Rank) -> String {
        let better = advantage(&own.rank, rival);
        match self.comeback.policy {
            _ if own.claim == Claim::Ordered => "an operator prefers it".to_owned(),
            _ if self.order == Order::Failback => format!("FAILBACK: {better}"),
            _ if !self.is_settled && self.awaited.as_ref() == Some(&own.rank.addr) => {
                "the server was the writer when this proxy last ran".to_owned()
            }
            _ if !self.is_settled || !self.before.contains(&rival.addr) => better,
            Failback::Delayed => format!("fail-back after {} of health: {better}", in_words(self.comeback.delay_ms)),
            Failback::Immediate => format!("fail-back at once: {better}"),
            Failback::Never | Failback::Command => better,
        }
    }

    fn next_comeback(&self) -> String {
        match self.comeback.policy {
            Failback::Delayed => format!("this server becomes the writer again after {} of health", in_words(self.comeback.delay_ms)),
            Failback::Immediate => "this server becomes the writer again at once".to_owned(),
            Failback::Never => "failback is never".to_owned(),
            Failback::Command => "this server waits for FAILBACK".to_owned(),
        }
    }
}

/// Why one candidate is better than another.
fn advantage(own: &Rank, rival: &Rank) -> String {
    let name = &rival.addr;
    match () {
        () if own.is_preferred != rival.is_preferred && own.is_preferred => "an operator prefers it".to_owned(),
        () if own.merit() < rival.merit() => format!("{name} would be preferred, but waits for its fail-back"),
        () if own.is_explicit != rival.is_explicit => format!("configured as writer ({name} is not)"),
        () if own.is_near != rival.is_near => format!("in the preferred writer's segment ({name} is not)"),
        () if own.weight != rival.weight => {
            format!("heaviest that may write (weight {}; {name} has {})", own.weight, rival.weight)
        }
        () => format!("as good as {name}"),
    }
}

fn in_words(ms: u64) -> String {
    if ms.is_multiple_of(1_000) { format!("{} s", ms / 1_000) } else { format!("{ms} ms") }
}
