//! The choice of writers, if it is the proxy's: at most `max_writers`, the heaviest first. A writer stays unless the fail-back policy says
//! otherwise.
//!
//! Shared by all kinds of clusters. Pure: the candidates go in, the writers come out. INVARIANT: if there is a candidate, there is a
//! writer.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use model::ServerAddr;

/// How much a candidate is wanted; the greater is the better.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// The operator switched to it.
    pub is_preferred: bool,
    /// The operator wrote it to the writer hostgroup.
    pub is_explicit: bool,
    /// It is where the preferred writer is.
    pub is_near: bool,
    /// Its weight as a writer.
    pub weight: u32,
    /// Host and port, descending, as in ProxySQL: the last resort.
    pub addr: ServerAddr,
}

impl Rank {
    /// The order of candidates without the last resort. A candidate of equal merit replaces no writer.
    pub(crate) fn merit(&self) -> (bool, bool, bool, u32) {
        (self.is_preferred, self.is_explicit, self.is_near, self.weight)
    }
}

/// How good a writer the server would be, the best first. `Hesitant` and later tiers write only if there is no better candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    Fit,
    /// Configured as a writer, and not seen yet.
    Unseen,
    /// It has other work, or comes back.
    Hesitant,
    Leaving,
    /// It answers too slowly.
    Silent,
    /// Its weight as a writer is 0, so nothing would be sent to it.
    Weightless,
}

/// How a candidate stands towards those that are not writers now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Claim {
    /// An operator orders it, now.
    Ordered,
    /// It writes now, or the policy lets it come back.
    Entitled,
    /// It has to wait for a free place.
    Waiting,
}

/// A server that could write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// How good it would be.
    pub tier: Tier,
    pub claim: Claim,
    /// How much it is wanted.
    pub rank: Rank,
}

/// The writers, at most `max_writers`.
pub(crate) fn choose(candidates: &[Candidate], max_writers: u32) -> BTreeSet<ServerAddr> {
    let mut sorted: Vec<&Candidate> = candidates.iter().collect();
    sorted.sort_by_key(|candidate| (candidate.tier, candidate.claim, Reverse(&candidate.rank)));
    let regular = sorted.iter().any(|candidate| candidate.tier <= Tier::Unseen);
    let best = sorted.first().map(|candidate| candidate.tier);
    let serves = |candidate: &Candidate| if regular { candidate.tier <= Tier::Unseen } else { Some(candidate.tier) == best };
    let places = usize::try_from(max_writers).unwrap_or(usize::MAX);
    sorted.into_iter().filter(|candidate| serves(candidate)).take(places).map(|candidate| candidate.rank.addr.clone()).collect()
}
