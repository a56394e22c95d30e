//! Which cluster a server belongs to by its own words, and which cluster is the configured one.
//!
//! An address may lead to a server of another cluster: names and addresses are reused. The identity that most configured servers report is
//! the cluster's. Once more than half of them report it, it is settled, and later answers do not change it.
//! A server that reports another identity is a stranger. It serves nothing, has no vote, and servers that it names are not added.
//! INVARIANT: found servers have no vote, so a stranger gains nothing by naming others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use model::snapshot::{RoleGroup, RoleKind};
use model::{HostgroupId, ServerAddr};
use serde::{Deserialize, Serialize};

use crate::facts::Facts;
use crate::member::Member;

/// The UUID and name of a Galera cluster, or the name of a group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Identity(Arc<str>);

impl Identity {
    /// Characters kept. Any server may answer at the address, and its text is stored and shown.
    const LENGTH_MAX: usize = 160;

    /// None if the text is blank.
    pub fn new(words: &str) -> Option<Self> {
        let words = words.trim();
        (!words.is_empty()).then(|| Self(words.chars().take(Self::LENGTH_MAX).collect::<String>().into()))
    }

    /// From `wsrep_cluster_state_uuid` and `wsrep_cluster_name`. None if the UUID is zero: the node has not joined a cluster yet. A cluster
    /// restored from another one's files has the same UUID, so the name counts too.
    pub fn of_galera(state_uuid: &str, name: &str) -> Option<Self> {
        let is_set = state_uuid.chars().any(|c| c != '0' && c != '-');
        Self::new(state_uuid).filter(|_| is_set).and_then(|_| Self::new(&format!("{} {name}", state_uuid.to_ascii_lowercase())))
    }

    /// The text, as tables and events show it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a stranger is out.
pub(crate) const STRANGER: &str = "it belongs to another cluster";

/// A change of a cluster's strangers or of its identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The server reports this identity, which is not the cluster's.
    Strange(ServerAddr, Identity),
    /// A former stranger reports the cluster's identity again.
    Own(ServerAddr),
    /// The identity is settled; these servers report it.
    Known(BTreeSet<ServerAddr>),
    /// All servers that answer belong to these other clusters.
    Usurped(BTreeSet<Identity>),
}

/// One row of the table of identities: a server's words, and the cluster's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberIdentity {
    /// The writer hostgroup of the server's cluster.
    pub writer: HostgroupId,
    /// The member that was asked.
    pub server: ServerAddr,
    /// The identity in its last answer; None if it never gave one.
    pub identity: Option<Identity>,
    /// The cluster's identity; None before the first vote.
    pub cluster: Option<Identity>,
    /// More than half of the servers agreed, or an operator accepted it. Other answers do not change it.
    pub is_settled: bool,
}

impl MemberIdentity {
    /// Whether both identities are known and differ.
    pub fn is_stranger(&self) -> bool {
        self.identity.is_some() && self.cluster.is_some() && self.identity != self.cluster
    }
}

/// The members that belong to another cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Strangers {
    /// Each with the identity that it reports.
    pub all: BTreeMap<ServerAddr, Identity>,
    /// No other member answers.
    pub are_alone: bool,
}

impl Strangers {
    /// The differences to `before`. A server that left the cluster does not count as back.
    pub(crate) fn turns(&self, before: &Self, is_member: impl Fn(&ServerAddr) -> bool) -> Vec<Turn> {
        let new = self.all.iter().filter(|(addr, identity)| before.all.get(*addr) != Some(*identity));
        let over = before.all.keys().filter(|addr| !self.all.contains_key(*addr) && is_member(addr));
        let usurped = (self.are_alone && !before.are_alone).then(|| Turn::Usurped(self.all.values().cloned().collect()));
        let strange = new.map(|(addr, identity)| Turn::Strange(addr.clone(), identity.clone()));
        strange.chain(over.map(|addr| Turn::Own(addr.clone()))).chain(usurped).collect()
    }
}

/// The cluster's identity and its witnesses, kept between decisions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Memory {
    own: Option<Identity>,
    /// More than half of the servers, or an operator, said so: votes no longer change it.
    is_settled: bool,
    /// The servers that have reported it. If all configured ones among them are gone, the identity is forgotten.
    said_by: BTreeSet<ServerAddr>,
}

/// The input of a vote.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Votes<'a> {
    /// The cluster's row.
    pub group: &'a RoleGroup,
    pub members: &'a BTreeMap<ServerAddr, Member>,
    /// The answers of all servers.
    pub facts: &'a BTreeMap<ServerAddr, Facts>,
    /// The writers before. Their identity wins between equals.
    pub writers: &'a BTreeSet<ServerAddr>,
}

impl<'a> Votes<'a> {
    /// The members that have reported an identity.
    fn said(self) -> impl Iterator<Item = (&'a ServerAddr, &'a Member, &'a Identity)> {
        self.members.iter().filter_map(move |(addr, member)| Some((addr, member, said(&self.group.kind, self.facts.get(addr)?)?)))
    }

    /// The members whose last check was answered.
    fn answering(self) -> impl Iterator<Item = &'a ServerAddr> {
        let answers = move |addr: &&ServerAddr| self.facts.get(*addr).is_some_and(|facts| answers(&self.group.kind, facts));
        self.members.keys().filter(answers)
    }

    /// The members that vote: configured by the operator and checked.
    fn electorate(self) -> impl Iterator<Item = (&'a ServerAddr, &'a Member)> {
        self.members.iter().filter(|(_, member)| is_elector(member))
    }
}

fn is_elector(member: &Member) -> bool {
    !member.configured.is_empty() && member.is_checked()
}

/// The identity in a server's last answer; None for kinds that report none.
pub(crate) fn said<'a>(kind: &RoleKind, facts: &'a Facts) -> Option<&'a Identity> {
    match kind {
        RoleKind::Galera => facts.galera.last.as_ref()?.identity.as_ref(),
        RoleKind::GroupReplication => facts.group.last.as_ref()?.identity.as_ref(),
        RoleKind::Replication(_) | RoleKind::Aurora(_) => None,
    }
}

pub(crate) fn is_told(kind: &RoleKind) -> bool {
    matches!(kind, RoleKind::Galera | RoleKind::GroupReplication)
}

fn answers(kind: &RoleKind, facts: &Facts) -> bool {
    match kind {
        RoleKind::Galera => facts.galera.is_answered(),
        RoleKind::GroupReplication => facts.group.is_answered(),
        RoleKind::Replication(_) => facts.read_only.is_answered(),
        RoleKind::Aurora(_) => facts.aurora.is_answered(),
    }
}

impl Memory {
    /// A settled identity from a file or an operator's order.
    pub(crate) fn recalled(identity: Identity, said_by: BTreeSet<ServerAddr>) -> Self {
        Self { own: Some(identity), is_settled: true, said_by }
    }

    pub(crate) fn own(&self) -> Option<&Identity> {
        self.own.as_ref()
    }

    /// The identity and its witnesses, if it is settled.
    pub(crate) fn settled(&self) -> Option<(&Identity, &BTreeSet<ServerAddr>)> {
        Some((self.own.as_ref()?, &self.said_by)).filter(|_| self.is_settled)
    }

    /// Counts the answers. If no configured server is left that ever reported the identity, all were replaced and it is forgotten.
    pub(crate) fn learn(&mut self, votes: Votes<'_>) {
        self.said_by.retain(|addr| votes.members.contains_key(addr));
        if !votes.electorate().any(|(addr, _)| self.said_by.contains(addr)) {
            *self = Self::default();
        }
        if !self.is_settled {
            self.elect(votes);
        }
        let own = self.own.as_ref();
        self.said_by.extend(votes.said().filter(|(_, _, identity)| Some(*identity) == own).map(|(addr, ..)| addr.clone()));
    }

    /// Most votes win. Between equals, the identity before wins, then the writers' one, then that of servers configured as writers.
    fn elect(&mut self, votes: Votes<'_>) {
        let mut tallies: BTreeMap<&Identity, (usize, bool, bool, bool)> = BTreeMap::new();
        for (addr, member, identity) in votes.said().filter(|(_, member, _)| is_elector(member)) {
            let tally = tallies.entry(identity).or_default();
            tally.0 += 1;
            tally.1 = self.own.as_ref() == Some(identity);
            tally.2 |= votes.writers.contains(addr);
            tally.3 |= member.is_explicit_writer;
        }
        let Some((winner, (count, ..))) = tallies.into_iter().max_by_key(|(_, tally)| *tally) else { return };
        if self.own.as_ref() != Some(winner) {
            *self = Self { own: Some(winner.clone()), ..Self::default() };
        }
        self.is_settled = count * 2 > votes.electorate().count();
    }

    /// The members that report another identity.
    pub(crate) fn strangers(&self, votes: Votes<'_>) -> Strangers {
        let Some(own) = &self.own else { return Strangers::default() };
        let others = votes.said().filter(|(_, _, identity)| *identity != own);
        let all: BTreeMap<ServerAddr, Identity> = others.map(|(addr, _, identity)| (addr.clone(), identity.clone())).collect();
        let are_alone = !all.is_empty() && votes.answering().all(|addr| all.contains_key(addr));
        Strangers { all, are_alone }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_without_a_cluster_says_nothing() {
        assert_eq!(Identity::of_galera("00000000-0000-0000-0000-000000000000", "prod"), None);
        assert_eq!(Identity::of_galera("", "prod"), None);
        let one = Identity::of_galera("6F3C-01", "prod").unwrap();
        assert_eq!(one.to_string(), "6f3c-01 prod");
        assert_ne!(Some(one), Identity::of_galera("6f3c-01", "staging"));
        assert_eq!(Identity::new(&"x".repeat(1_000)).unwrap().as_str().len(), Identity::LENGTH_MAX);
    }
}
