//! Which cluster a server belongs to, by its own words, and which one is ours.
//!
//! An address may lead to a server of another cluster: names and addresses are used again. A cluster's identity is what most of
//! the servers that the operator wrote say; once more than half of them say it, it is settled, and holds whoever answers later.
//! Whoever says another one is a stranger: it serves nothing and has no vote, and nobody is found by its words.
//! INVARIANT: servers that were found have no vote, so a stranger that names others gains nothing by it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use model::snapshot::{RoleGroup, RoleKind};
use model::{HostgroupId, ServerAddr};
use serde::{Deserialize, Serialize};

use crate::facts::Facts;
use crate::member::Member;

/// What tells one cluster from another: the UUID and the name of a Galera cluster, the name of a group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Identity(Arc<str>);

impl Identity {
    /// Longer ones are cut: the words of a server that may be anybody's are kept and shown.
    const LENGTH_MAX: usize = 160;

    /// Of these words; None when they say nothing.
    pub fn new(words: &str) -> Option<Self> {
        let words = words.trim();
        (!words.is_empty()).then(|| Self(words.chars().take(Self::LENGTH_MAX).collect::<String>().into()))
    }

    /// Of `wsrep_cluster_state_uuid` and `wsrep_cluster_name`; None for a node that has not joined a cluster yet, whose UUID is zero.
    /// A cluster that was restored from the files of another one has its UUID, so the name counts too.
    pub fn of_galera(state_uuid: &str, name: &str) -> Option<Self> {
        let is_set = state_uuid.chars().any(|c| c != '0' && c != '-');
        Self::new(state_uuid).filter(|_| is_set).and_then(|_| Self::new(&format!("{} {name}", state_uuid.to_ascii_lowercase())))
    }

    /// Its words.
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

/// What has changed about who belongs to a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The server belongs to another cluster, this one.
    Strange(ServerAddr, Identity),
    /// It belongs to ours.
    Own(ServerAddr),
    /// It is settled what the cluster is: these say so.
    Known(BTreeSet<ServerAddr>),
    /// Nobody answers but servers of these other clusters.
    Usurped(BTreeSet<Identity>),
}

/// What one server of a cluster says of what it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberIdentity {
    /// The cluster's writer hostgroup.
    pub writer: HostgroupId,
    /// The server.
    pub server: ServerAddr,
    /// What it said last; None when it has not.
    pub identity: Option<Identity>,
    /// What the cluster is, as far as is known.
    pub cluster: Option<Identity>,
    /// That is settled: servers that say something else change it no more.
    pub is_settled: bool,
}

impl MemberIdentity {
    /// It belongs to another cluster.
    pub fn is_stranger(&self) -> bool {
        self.identity.is_some() && self.cluster.is_some() && self.identity != self.cluster
    }
}

/// Who is known to belong elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Strangers {
    /// Each with what it belongs to.
    pub all: BTreeMap<ServerAddr, Identity>,
    /// Nobody else answers.
    pub are_alone: bool,
}

impl Strangers {
    /// What has changed since `before`. Servers that have left are no members again.
    pub(crate) fn turns(&self, before: &Self, is_member: impl Fn(&ServerAddr) -> bool) -> Vec<Turn> {
        let new = self.all.iter().filter(|(addr, identity)| before.all.get(*addr) != Some(*identity));
        let over = before.all.keys().filter(|addr| !self.all.contains_key(*addr) && is_member(addr));
        let usurped = (self.are_alone && !before.are_alone).then(|| Turn::Usurped(self.all.values().cloned().collect()));
        let strange = new.map(|(addr, identity)| Turn::Strange(addr.clone(), identity.clone()));
        strange.chain(over.map(|addr| Turn::Own(addr.clone()))).chain(usurped).collect()
    }
}

/// What has to be remembered of a cluster's identity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Memory {
    own: Option<Identity>,
    /// More than half of the servers have said it, or an operator: votes change it no more.
    is_settled: bool,
    /// The servers that have said it.
    said_by: BTreeSet<ServerAddr>,
}

/// Those whose words count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Voices<'a> {
    /// The cluster's row.
    pub group: &'a RoleGroup,
    /// Its servers.
    pub members: &'a BTreeMap<ServerAddr, Member>,
    /// What is known of all servers.
    pub facts: &'a BTreeMap<ServerAddr, Facts>,
    /// Who wrote before.
    pub writers: &'a BTreeSet<ServerAddr>,
}

impl<'a> Voices<'a> {
    /// The members that have said what they belong to, with their last words.
    fn said(self) -> impl Iterator<Item = (&'a ServerAddr, &'a Member, &'a Identity)> {
        self.members.iter().filter_map(move |(addr, member)| Some((addr, member, said(&self.group.kind, self.facts.get(addr)?)?)))
    }

    /// The members whose last check was answered.
    fn answering(self) -> impl Iterator<Item = &'a ServerAddr> {
        let answers = move |addr: &&ServerAddr| self.facts.get(*addr).is_some_and(|facts| answers(&self.group.kind, facts));
        self.members.keys().filter(answers)
    }

    /// The members that the operator wrote and that are asked.
    fn electorate(self) -> impl Iterator<Item = (&'a ServerAddr, &'a Member)> {
        self.members.iter().filter(|(_, member)| is_elector(member))
    }
}

fn is_elector(member: &Member) -> bool {
    !member.configured.is_empty() && member.is_checked()
}

/// What a server said last of what it belongs to.
pub(crate) fn said<'a>(kind: &RoleKind, facts: &'a Facts) -> Option<&'a Identity> {
    match kind {
        RoleKind::Galera => facts.galera.last.as_ref()?.identity.as_ref(),
        RoleKind::GroupReplication => facts.group.last.as_ref()?.identity.as_ref(),
        RoleKind::Replication(_) | RoleKind::Aurora(_) => None,
    }
}

/// Whether servers of this kind tell what they belong to.
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
    /// What these servers said it is, when that was settled.
    pub(crate) fn recalled(identity: Identity, said_by: BTreeSet<ServerAddr>) -> Self {
        Self { own: Some(identity), is_settled: true, said_by }
    }

    /// What the cluster is, as far as is known.
    pub(crate) fn own(&self) -> Option<&Identity> {
        self.own.as_ref()
    }

    /// What it is and who said so, once that is settled.
    pub(crate) fn settled(&self) -> Option<(&Identity, &BTreeSet<ServerAddr>)> {
        Some((self.own.as_ref()?, &self.said_by)).filter(|_| self.is_settled)
    }

    /// Takes what the servers say. What no server said that the operator has left is forgotten: they have all been replaced.
    pub(crate) fn learn(&mut self, voices: Voices<'_>) {
        self.said_by.retain(|addr| voices.members.contains_key(addr));
        if !voices.electorate().any(|(addr, _)| self.said_by.contains(addr)) {
            *self = Self::default();
        }
        if !self.is_settled {
            self.elect(voices);
        }
        let own = self.own.as_ref();
        self.said_by.extend(voices.said().filter(|(_, _, identity)| Some(*identity) == own).map(|(addr, ..)| addr.clone()));
    }

    /// Most votes win; of equals the one that won before, then the one of those who write, then of those meant to.
    fn elect(&mut self, voices: Voices<'_>) {
        let mut votes: BTreeMap<&Identity, (usize, bool, bool, bool)> = BTreeMap::new();
        for (addr, member, identity) in voices.said().filter(|(_, member, _)| is_elector(member)) {
            let tally = votes.entry(identity).or_default();
            tally.0 += 1;
            tally.1 = self.own.as_ref() == Some(identity);
            tally.2 |= voices.writers.contains(addr);
            tally.3 |= member.is_explicit_writer;
        }
        let Some((winner, (count, ..))) = votes.into_iter().max_by_key(|(_, tally)| *tally) else { return };
        if self.own.as_ref() != Some(winner) {
            *self = Self { own: Some(winner.clone()), ..Self::default() };
        }
        self.is_settled = count * 2 > voices.electorate().count();
    }

    /// The members that say that they belong elsewhere.
    pub(crate) fn strangers(&self, voices: Voices<'_>) -> Strangers {
        let Some(own) = &self.own else { return Strangers::default() };
        let others = voices.said().filter(|(_, _, identity)| *identity != own);
        let all: BTreeMap<ServerAddr, Identity> = others.map(|(addr, _, identity)| (addr.clone(), identity.clone())).collect();
        let are_alone = !all.is_empty() && voices.answering().all(|addr| all.contains_key(addr));
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
