//! What a kind of cluster says of each of its servers, before it is decided who of them writes.

use std::collections::{BTreeMap, BTreeSet};

use model::ServerAddr;
use model::fleet::UnderWay;
use model::settings::{MysqlVariables, SecondWriters};
use model::snapshot::RoleGroup;

use crate::facts::{Facts, Track, Troubles};
use crate::identity::Identity;
use crate::member::Member;

/// What a server is fit for, by its own words and by what its cluster says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fitness {
    /// Nothing is known: it stays where the operator wrote it.
    Unseen,
    /// It may write.
    Writer,
    /// It reads, and writes only if nobody better is there: a donor, a member that is behind.
    Hesitant,
    /// It reads.
    Reader,
    /// It gets nothing new where it is. If it `may_write`, it does so rather than nobody.
    Leaving {
        /// Whether it would accept writes.
        may_write: bool,
    },
    /// It says that it may write, but another one has taken over since: it is kept out.
    Fenced,
    /// It is out.
    Out(Outage),
}

impl Fitness {
    /// Whether it would accept writes, were nobody better there.
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
    /// It does not answer in time: it may be slow. If it `may_write`, by its last words, it does so rather than nobody.
    Silent {
        /// Whether it would accept writes.
        may_write: bool,
    },
    /// Its port is closed.
    Down,
}

/// One server's judgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Judgement {
    /// What it is fit for.
    pub fitness: Fitness,
    /// Its port is closed, though its role is kept.
    pub is_down: bool,
    /// Nothing of it answers: it is out where others are in.
    pub is_silent: bool,
    /// What it was before it could write, if it is there and is not wanted to: `lost`, `read-only`.
    pub kept_out: Option<&'static str>,
    /// What becomes of what runs there, if it is out.
    pub under_way: UnderWay,
    /// It is too far behind to be read from.
    pub is_behind: bool,
    /// Transactions or ms behind, to find those that are least so.
    pub behind: u64,
    /// More sightings are awaited before its role changes.
    pub is_confirming: bool,
    /// The rule that decided. INVARIANT: it holds no measured values, else every sighting would change the layout.
    pub why: String,
    /// What was seen, with values.
    pub seen: String,
}

impl Judgement {
    /// It could write, and is not wanted to.
    pub(crate) fn is_kept_out(&self) -> bool {
        matches!(self.fitness, Fitness::Fenced | Fitness::Reader) && self.kept_out.is_some()
    }

    /// A judgement with nothing special about it.
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

/// Judgements by server.
pub(crate) type Judgements = BTreeMap<ServerAddr, Judgement>;

/// A member that was frozen or cut off may tell of its old cluster for so long after it is back, and so may all who share its
/// view: Galera's `evs.inactive_timeout`, ms.
pub(crate) const STALE_FOR_MS: u64 = 15_000;

/// What a kind looks at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scene<'a> {
    /// The cluster's row.
    pub group: &'a RoleGroup,
    /// The variables.
    pub vars: &'a MysqlVariables,
    /// Its servers.
    pub members: &'a BTreeMap<ServerAddr, Member>,
    /// What is known of all servers.
    pub facts: &'a BTreeMap<ServerAddr, Facts>,
    /// Those of its servers that belong to another cluster.
    pub strangers: &'a BTreeMap<ServerAddr, Identity>,
    /// Which of its servers may write beside the one that does.
    pub second_writers: SecondWriters,
    /// Whether a server that does not replicate from the writer serves no reads.
    pub shuns_strays: bool,
    /// Servers that an operator drains.
    pub drained: &'a BTreeSet<ServerAddr>,
    /// Who wrote before.
    pub writers: &'a BTreeSet<ServerAddr>,
    /// The present, ms.
    pub now_ms: u64,
}

impl<'a> Scene<'a> {
    /// The members with what is known of them. What strangers say is of another cluster.
    pub(crate) fn known(self) -> impl Iterator<Item = (&'a ServerAddr, &'a Member, &'a Facts)> {
        let own = self.members.iter().filter(move |(addr, _)| !self.strangers.contains_key(*addr));
        own.filter_map(move |(addr, member)| Some((addr, member, self.facts.get(addr)?)))
    }

    /// Its checks have not failed for so long that what it says is of the present.
    pub(crate) fn has_settled<T>(self, track: &Track<T>) -> bool {
        track.resumed_ms == 0 || self.now_ms >= track.resumed_ms + STALE_FOR_MS
    }
}

/// Why a server that was lost, and answers since without saying what it is, is out.
pub(crate) const NOT_KNOWN: &str = "the server refuses the monitor, so its state is unknown since it became unreachable";

/// A number of the settings; they are all small.
pub(crate) fn small(setting: u64) -> u32 {
    u32::try_from(setting).unwrap_or(u32::MAX)
}

/// What becomes of what runs on a server whose checks fail: it is severed when it was unreachable often enough, else `otherwise`.
pub(crate) fn under_way(scene: Scene<'_>, troubles: Troubles, otherwise: UnderWay) -> UnderWay {
    if troubles.unreachable >= small(scene.vars.monitor_ping_max_failures) { UnderWay::Severed } else { otherwise }
}

impl Outage {
    /// What becomes of what runs on a node of a cluster that is out so: one that does not answer may never do.
    pub(crate) fn under_way(self) -> UnderWay {
        match self {
            Self::Stated => UnderWay::MayFinish,
            Self::Silent { .. } | Self::Down => UnderWay::EndsAfterGrace,
        }
    }
}

/// Whether checks that tell the state of a cluster's node have failed so often that it is out. `may_write` is what it said
/// before.
pub(crate) fn outage(facts: &Facts, troubles: Troubles, max_timeouts: u32, may_write: bool) -> Option<(Outage, String)> {
    const FAILED_AFTER: u32 = 2;
    if facts.is_down(troubles) || troubles.unreachable + troubles.failed >= FAILED_AFTER {
        return Some(match troubles.unreachable > 0 {
            true if facts.is_denied() => (Outage::Down, NOT_KNOWN.to_owned()),
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
