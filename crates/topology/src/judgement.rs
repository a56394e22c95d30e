//! A judgement of each server by its kind of cluster, made before writers are chosen.

use std::collections::{BTreeMap, BTreeSet};

use model::ServerAddr;
use model::fleet::UnderWay;
use model::settings::{MysqlVariables, SecondWriters};
use model::snapshot::RoleGroup;

use crate::cluster::Fork;
use crate::facts::{Facts, Track, Troubles};
use crate::identity::Identity;
use crate::member::Member;

/// The roles that a server may have, by its own answers and by those of its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fitness {
    /// Nothing is known: it keeps its configured hostgroups.
    Unseen,
    Writer,
    /// It reads, and writes only if there is no better server: a donor, a member that lags.
    Hesitant,
    Reader,
    /// It gets no new work. If it `may_write`, it writes if no other server can.
    Leaving {
        /// Whether it would accept writes.
        may_write: bool,
    },
    /// It says that it may write, but another server took over, or it must not serve for another reason. It gets no hostgroup of its role.
    Fenced,
    Out(Outage),
}

impl Fitness {
    /// Whether it would accept writes, so that it can be a last resort.
    pub(crate) fn may_write(self) -> bool {
        match self {
            Self::Writer | Self::Hesitant => true,
            Self::Leaving { may_write } | Self::Out(Outage::Silent { may_write }) => may_write,
            Self::Unseen | Self::Reader | Self::Fenced | Self::Out(Outage::Stated | Outage::Down) => false,
        }
    }
}

/// Why a server is out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outage {
    /// It says so itself, or its cluster does.
    Stated,
    /// Its checks time out: it may only be slow. If it `may_write` by its last answer, it writes if no other server can.
    Silent {
        /// Whether it would accept writes.
        may_write: bool,
    },
    /// Its port is closed.
    Down,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub fitness: Fitness,
    /// Its port is closed, though its role is kept.
    pub is_down: bool,
    /// Its role check times out, and it fails pings or refuses the monitor: it is shunned unless no other server is left.
    pub is_silent: bool,
    /// Why it does not write although it could: `lost` or `reader`, its state before. None if it is not excluded.
    pub kept_out: Option<&'static str>,
    /// Whether running statements may finish.
    pub under_way: UnderWay,
    /// It is too far behind to be read from.
    pub is_behind: bool,
    /// Transactions or ms behind, to find those that are least so.
    pub behind: u64,
    /// More sightings are awaited before its role changes.
    pub is_confirming: bool,
    /// The rule that decided. INVARIANT: it holds no measured values, else every sighting would change the layout.
    pub why: String,
    /// The values behind `why`, for events.
    pub seen: String,
}

impl Judgement {
    /// It could write, but another server does.
    pub(crate) fn is_kept_out(&self) -> bool {
        matches!(self.fitness, Fitness::Fenced | Fitness::Reader) && self.kept_out.is_some()
    }

    /// A judgement without lag, outage or doubt.
    pub(crate) fn new(fitness: Fitness, why: impl Into<String>, seen: impl Into<String>) -> Self {
        Self {
            fitness,
            is_down: false,
            is_silent: false,
            kept_out: None,
            under_way: UnderWay::MayFinish,
            is_behind: false,
            behind: 0,
            is_confirming: false,
            why: why.into(),
            seen: seen.into(),
        }
    }
}

pub(crate) type Judgements = BTreeMap<ServerAddr, Judgement>;

/// A member that was frozen or cut off may report its old cluster for this long after its return, as may all members with the same view.
/// Galera's `evs.inactive_timeout`, ms.
pub(crate) const STALE_FOR_MS: u64 = 15_000;

/// The input of a kind's judgement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scene<'a> {
    /// The cluster's row.
    pub group: &'a RoleGroup,
    pub vars: &'a MysqlVariables,
    pub members: &'a BTreeMap<ServerAddr, Member>,
    /// The answers of all servers.
    pub facts: &'a BTreeMap<ServerAddr, Facts>,
    /// Members that belong to another cluster. Their answers do not count.
    pub strangers: &'a BTreeMap<ServerAddr, Identity>,
    /// Servers that may not write, whatever they say, each for its reason.
    pub barred: &'a BTreeMap<ServerAddr, String>,
    /// Which servers may write beside the present writer.
    pub second_writers: SecondWriters,
    /// Whether a server that does not replicate from the writer serves no reads.
    pub shuns_strays: bool,
    /// Servers that an operator drains.
    pub drained: &'a BTreeSet<ServerAddr>,
    /// What servers had when they took over, the latest takeover last.
    pub forks: &'a [Fork],
    /// The writers before.
    pub writers: &'a BTreeSet<ServerAddr>,
    /// The present on the caller's clock, ms.
    pub now_ms: u64,
}

impl<'a> Scene<'a> {
    /// Whether the server may not write, and does not say that it is read-only: its answers do not count.
    pub(crate) fn is_barred(self, addr: &ServerAddr) -> bool {
        let is_closed = || self.facts.get(addr).is_some_and(|facts| facts.read_only.last == Some(true));
        self.barred.contains_key(addr) && !is_closed()
    }

    /// The members with their facts, without strangers and barred servers.
    pub(crate) fn known(self) -> impl Iterator<Item = (&'a ServerAddr, &'a Member, &'a Facts)> {
        let own = self.members.iter().filter(move |(addr, _)| !self.strangers.contains_key(*addr) && !self.is_barred(addr));
        own.filter_map(move |(addr, member)| Some((addr, member, self.facts.get(addr)?)))
    }

    /// Whether no check failed in the last [`STALE_FOR_MS`], so that the answer cannot be a relic.
    pub(crate) fn has_settled<T>(self, track: &Track<T>) -> bool {
        track.resumed_ms == 0 || self.now_ms >= track.resumed_ms + STALE_FOR_MS
    }
}

/// The reason for a server that was lost and now answers, but refuses the monitor.
pub(crate) const NOT_KNOWN: &str = "the server refuses the monitor, so its state is unknown since it became unreachable";

/// Settings of counts fit into 32 bits; larger values are capped.
pub(crate) fn small(setting: u64) -> u32 {
    u32::try_from(setting).unwrap_or(u32::MAX)
}

/// Whether statements on a server with failing checks may finish. They are severed after `monitor_ping_max_failures` refused connections.
pub(crate) fn under_way(scene: Scene<'_>, troubles: Troubles, otherwise: UnderWay) -> UnderWay {
    if troubles.unreachable >= small(scene.vars.monitor_ping_max_failures) { UnderWay::Severed } else { otherwise }
}

impl Outage {
    /// A node that states its outage still answers, so its statements may finish. A silent one may never answer.
    pub(crate) fn under_way(self) -> UnderWay {
        match self {
            Self::Stated => UnderWay::MayFinish,
            Self::Silent { .. } | Self::Down => UnderWay::EndsAfterGrace,
        }
    }
}

/// The outage of a cluster's node whose role checks failed often enough. `may_write` comes from its last good answer.
pub(crate) fn outage(facts: &Facts, troubles: Troubles, max_timeouts: u32, may_write: bool) -> Option<(Outage, String)> {
    const FAILED_AFTER: u32 = 2;
    if facts.is_down(troubles) || troubles.unreachable + troubles.failed >= FAILED_AFTER {
        return Some(match troubles.unreachable > 0 {
            true if facts.refuses => (Outage::Down, NOT_KNOWN.to_owned()),
            true => (Outage::Down, facts.closed().unwrap_or_else(|| "it cannot be reached".to_owned())),
            false => (Outage::Stated, "its check fails".to_owned()),
        });
    }
    (troubles.timeouts >= max_timeouts).then(|| (Outage::Silent { may_write }, "its check times out".to_owned()))
}

/// Failures in words, for events.
pub(crate) fn describe(troubles: Troubles) -> String {
    let counts = [(troubles.unreachable, "unreachable"), (troubles.timeouts, "timeouts"), (troubles.failed, "errors")];
    let words: Vec<String> = counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{what}={n}")).collect();
    words.join(" ")
}
