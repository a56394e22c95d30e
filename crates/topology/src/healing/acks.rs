//! Semi-synchronous replication that the proxy sets up (`semi_sync` is `managed`): which replicas acknowledge, how the writer waits for
//! them, what is done next, and what is missing.
//!
//! Pure. INVARIANT: the source side of the writer is switched on only while enough replicas acknowledge, and is never switched off here:
//! commits that wait would return to their clients. With `loss` `none` a commit never waits for fewer than `acks` once it waits for so many.

use std::collections::{BTreeMap, BTreeSet};

use model::ServerAddr;
use model::snapshot::{Healing, Loss, Promotion, SiteRule};

use super::assess::{Assessed, unfit};
use super::facts::{Facts, LinkState, Primary, Replica, ServerVersion};
use super::rejoin::{Standing, Tended};

/// Commits wait for fewer replicas when so many have been missing for so long, ms.
const SHORT_MS: u64 = 3_000;
/// An acknowledgement counts as lost after so long, ms.
const LOST_MS: u64 = 5_000;
/// Time between two attempts to get a lost acknowledgement, ms.
const NUDGES_MS: u64 = 30_000;
/// A source that loses nothing waits so long, ms: the most that MySQL takes, 49 days.
const FOR_EVER_MS: u64 = 4_294_967_295;
/// What such a source waits once the operator accepts a loss and no replica is left, ms: the servers' default.
const FOR_A_WHILE_MS: u64 = 10_000;
/// Less does not count as waiting for ever, ms.
const LONG_MS: u64 = 1_000_000;

/// Both sides of semi-synchronous replication on one server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sides {
    /// None where its plugin is not installed.
    pub source: Option<SourceSide>,
    /// None where its plugin is not installed.
    pub replica: Option<ReplicaSide>,
}

/// Settings of the source side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceSide {
    /// It is switched on.
    pub is_enabled: bool,
    /// A commit waits before others can see it (`AFTER_SYNC`).
    pub is_after_sync: bool,
    /// A commit waits at most so long, ms.
    pub timeout_ms: u64,
    /// A commit waits also while too few replicas are connected.
    pub keeps_waiting: bool,
    /// Acknowledgements that a commit needs; None on MariaDB, where it is one.
    pub acks: Option<u64>,
}

/// The replica side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaSide {
    /// It is switched on. That takes effect when the receiver connects.
    pub is_enabled: bool,
    /// Its receiver is connected to acknowledge.
    pub acknowledges: bool,
}

/// What is known of a cluster whose writer answers.
#[derive(Debug, Clone, Copy)]
pub struct Outlook<'a> {
    /// The row of the cluster.
    pub policy: &'a Healing,
    /// What the last look found.
    pub facts: &'a Facts,
    /// What the choice says of each replica, in the order of the facts.
    pub servers: &'a [Assessed],
    /// What each replica is to the writer, in the order of the facts.
    pub tended: &'a [Tended],
    /// Of each server that answered.
    pub sides: &'a BTreeMap<ServerAddr, Sides>,
    /// Servers that are left in peace: a step was made or failed there a moment ago.
    pub resting: &'a BTreeSet<ServerAddr>,
    /// Fewer replicas have acknowledged than commits wait for, for so long, ms.
    pub short_ms: u64,
    /// Sessions have waited for an acknowledgement, and nothing was committed, for so long, ms.
    pub stuck_ms: u64,
    /// Time since the last attempt to get a lost acknowledgement, ms.
    pub nudged_ms: Option<u64>,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AckStep {
    /// A replica whose source side is on: its applier waits for acknowledgements. The source side is switched off.
    Release(ServerAddr),
    /// The replica side is switched on, and the receiver connects again.
    Acknowledge(ServerAddr),
    /// The replica side is switched off, and the receiver connects again.
    Quit(ServerAddr),
    /// The source side of the writer is set.
    Source(ServerAddr, Setting),
    /// An acknowledgement was lost. The writer logs a statement that touches no table: its acknowledgement stands for all before it.
    Nudge(ServerAddr),
}

impl AckStep {
    /// Where.
    pub fn server(&self) -> &ServerAddr {
        match self {
            Self::Release(server) | Self::Acknowledge(server) | Self::Quit(server) | Self::Source(server, _) | Self::Nudge(server) => {
                server
            }
        }
    }
}

/// What is changed of a source side; None, or false, is left as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Setting {
    /// To `AFTER_SYNC`.
    pub after_sync: bool,
    /// To so long, ms.
    pub timeout_ms: Option<u64>,
    /// Commits wait also while too few replicas are connected.
    pub keep_waiting: bool,
    /// Acknowledgements that a commit needs.
    pub acks: Option<u64>,
    /// It is switched on.
    pub switch_on: bool,
    /// So many replicas must be connected to acknowledge.
    pub needs: u64,
}

impl Setting {
    /// What a source side lacks so that commits wait for `acks` replicas as the row says.
    pub fn of(source: &SourceSide, loss: Loss, acks: u64) -> Self {
        let is_lossless = loss == Loss::None;
        Self {
            after_sync: !source.is_after_sync,
            timeout_ms: (is_lossless && source.timeout_ms < LONG_MS).then_some(FOR_EVER_MS),
            keep_waiting: is_lossless && !source.keeps_waiting,
            acks: source.acks.filter(|now| *now != acks).map(|_| acks),
            switch_on: !source.is_enabled,
            needs: acks,
        }
    }

    /// Whether nothing is to be changed.
    pub fn is_done(&self) -> bool {
        *self == Self { needs: self.needs, ..Self::default() }
    }

    /// In words.
    pub fn told(&self) -> String {
        let words = [
            self.after_sync.then(|| "AFTER_SYNC".to_owned()),
            self.timeout_ms.map(|ms| format!("timeout {ms} ms")),
            self.keep_waiting.then(|| "commits wait for replicas that are not connected".to_owned()),
            self.acks.map(|acks| format!("acknowledgements: {acks}")),
            self.switch_on.then(|| "switched on".to_owned()),
        ];
        words.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// What is found of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Managed {
    /// What is done next; None where nothing is to be done or can be done.
    pub step: Option<AckStep>,
    /// Replicas that acknowledge.
    pub ackers: u64,
    /// Replicas that must.
    pub needed: u64,
    /// Fewer acknowledge than commits wait for.
    pub is_short: bool,
    /// Sessions that wait for an acknowledgement.
    pub waiting: u64,
    /// Commits wait, and will until more replicas acknowledge: the operator wants no loss. In words.
    pub stopped: Option<String>,
    /// What is amiss, for people.
    pub faults: Vec<String>,
}

impl Managed {
    /// Replicas that are missing.
    pub fn missing(&self) -> u64 {
        self.needed.saturating_sub(self.ackers)
    }

    /// One line.
    pub fn told(&self) -> String {
        let (count, faults) = (self.counted(), self.stopped.iter().chain(&self.faults).map(String::as_str));
        std::iter::once(&*count).chain(faults).collect::<Vec<_>>().join("; ")
    }

    /// How many acknowledge and how many must, in words.
    pub fn counted(&self) -> String {
        let replicas = if self.ackers == 1 { "replica acknowledges" } else { "replicas acknowledge" };
        format!("{} {replicas}, and {} must", self.ackers, self.needed)
    }
}

/// See the module.
pub fn manage(outlook: &Outlook<'_>) -> Managed {
    let Some(primary) = &outlook.facts.primary else { return Managed::default() };
    let scene = Scene { of: outlook, primary, needed: needed(primary.version, outlook.policy.acks) };
    let ackers = scene.ackers();
    let live = ackers.len() as u64;
    let of_writer = outlook.sides.get(&primary.addr);
    let source = of_writer.and_then(|sides| sides.source);
    let mut managed = Managed {
        ackers: live,
        needed: scene.needed,
        is_short: source.is_some_and(|source| source.is_enabled && live < source.acks.unwrap_or(1)),
        waiting: primary.semi_sync.map_or(0, |source| source.waits),
        ..Managed::default()
    };
    managed.stopped = source.filter(|_| managed.is_short && outlook.policy.loss == Loss::None).map(|source| {
        format!(
            "COMMITS OF {} WAIT: {live} of {} replicas acknowledge, and loss is none. Start the replicas, or set loss to reported",
            primary.addr,
            source.acks.unwrap_or(1)
        )
    });
    if of_writer.is_none() {
        // It does not answer: nothing is known, and nothing is done.
        return managed;
    }
    managed.faults = scene.faults(source.as_ref(), &ackers, managed.waiting);
    managed.step = scene.step(source.as_ref(), &ackers, managed.waiting);
    managed
}

/// Acknowledgements that a commit can wait for: MariaDB knows one.
fn needed(version: ServerVersion, acks: u64) -> u64 {
    if version.is_mariadb { 1 } else { acks.max(1) }
}

/// Why this replica is not to acknowledge commits of a writer on `site`: what it acknowledges must be of use after the writer's death.
///
/// # Errors
/// The reason, for people.
pub fn may_acknowledge(replica: &Replica, site: &str, policy: &Healing) -> Result<(), String> {
    let Some(channel) = &replica.channel else { return Err("it has no replication source".to_owned()) };
    match unfit(replica, channel) {
        Some(why) => Err(why),
        None if replica.promotion() == Promotion::Never => Err("it is never promoted".to_owned()),
        None if policy.site == SiteRule::Same && *replica.site != *site => Err("it is on another site (site is same)".to_owned()),
        None => Ok(()),
    }
}

/// A replica whose acknowledgements could still complete a commit of the old writer: its receiver runs. None once a plan has stopped all.
pub fn not_revoked(facts: &Facts) -> Option<&ServerAddr> {
    let runs = |replica: &&Replica| {
        let channel = replica.channel.as_ref().filter(|channel| channel.is_from_primary);
        replica.is_acker && replica.silence.is_none() && channel.is_some_and(|channel| channel.receiver.state != LinkState::Stopped)
    };
    facts.replicas.iter().find(runs).map(|replica| &replica.addr)
}

struct Scene<'a> {
    of: &'a Outlook<'a>,
    primary: &'a Primary,
    /// Replicas that must acknowledge.
    needed: u64,
}

/// A replica with what is known of it.
struct One<'a> {
    replica: &'a Replica,
    sides: &'a Sides,
    /// It follows the writer and is no former writer without a proof.
    is_well: bool,
    is_eligible: bool,
}

impl<'a> Scene<'a> {
    /// Those that answer, and replicate from the writer.
    fn all(&self) -> impl Iterator<Item = One<'a>> + use<'a> {
        let of = self.of;
        of.facts.replicas.iter().zip(of.servers).enumerate().filter_map(move |(place, (replica, found))| {
            let channel = replica.channel.as_ref()?;
            let is_heard = replica.silence.is_none() && channel.is_from_primary;
            let is_well = of.tended.get(place).is_some_and(|one| one.standing == Standing::Follows && !one.is_out);
            let sides = of.sides.get(&replica.addr).filter(|_| is_heard)?;
            Some(One { replica, sides, is_well, is_eligible: found.is_eligible })
        })
    }

    fn ackers(&self) -> Vec<&'a ServerAddr> {
        let acknowledges = |one: &One<'_>| one.sides.replica.is_some_and(|side| side.acknowledges) && one.receives();
        self.all().filter(acknowledges).map(|one| &one.replica.addr).collect()
    }

    fn is_fit(&self, one: &One<'_>) -> bool {
        may_acknowledge(one.replica, &self.primary.site, self.of.policy).is_ok()
    }

    /// The first that is due: what lets appliers and commits go on comes first, then acknowledgements, then what waits for them.
    fn step(&self, source: Option<&SourceSide>, ackers: &[&ServerAddr], waiting: u64) -> Option<AckStep> {
        let rests = |one: &One<'_>| self.of.resting.contains(&one.replica.addr);
        // Its clients were ended when it was closed and proved clean.
        let is_held = |one: &One<'_>| one.is_well && one.replica.is_closed && one.sides.source.is_some_and(|side| side.is_enabled);
        let held = || self.all().find(|one| is_held(one) && !rests(one)).map(|one| AckStep::Release(one.replica.addr.clone()));
        let is_new =
            |one: &One<'_>| one.is_well && one.is_eligible && self.is_fit(one) && one.receives() && !ackers.contains(&&one.replica.addr);
        let is_new = |one: &One<'_>| is_new(one) && one.sides.replica.is_some() && !rests(one);
        let new = || self.all().find(is_new).map(|one| AckStep::Acknowledge(one.replica.addr.clone()));
        let set = || {
            let setting = self.setting(source?, ackers.len() as u64)?;
            let server = self.primary.addr.clone();
            (!self.of.resting.contains(&server)).then_some(AckStep::Source(server, setting))
        };
        held().or_else(new).or_else(set).or_else(|| self.quits(ackers)).or_else(|| self.nudge(source, ackers.len() as u64, waiting))
    }

    /// What the writer's source side lacks, by the replicas that acknowledge now.
    fn setting(&self, source: &SourceSide, live: u64) -> Option<Setting> {
        let loss = self.of.policy.loss;
        let now = source.acks.unwrap_or(1);
        let acks = match loss {
            Loss::None if live >= self.needed => self.needed,
            // The operator wants fewer than the server waits for. Nothing else is done while too few acknowledge.
            Loss::None if source.is_enabled && now > self.needed => {
                return Some(Setting { acks: source.acks.map(|_| self.needed), ..Setting::default() });
            }
            Loss::None => return None,
            // The operator accepts a loss now, and the proxy had made commits wait for ever.
            _ if live == 0 && source.is_enabled && source.timeout_ms == FOR_EVER_MS => {
                return Some(Setting { timeout_ms: Some(FOR_A_WHILE_MS), ..Setting::default() });
            }
            _ if live == 0 => return None,
            _ => live.min(self.needed),
        };
        // One that is missed for a moment only changes nothing.
        if source.is_enabled && acks < now && live < now && self.of.short_ms < SHORT_MS {
            return None;
        }
        let setting = Setting::of(source, loss, acks);
        (!setting.is_done()).then_some(setting)
    }

    /// A replica that acknowledges and whose word is of no use, once enough others do.
    fn quits(&self, ackers: &[&ServerAddr]) -> Option<AckStep> {
        let (fit, unfit): (Vec<One<'_>>, Vec<One<'_>>) =
            self.all().filter(|one| ackers.contains(&&one.replica.addr)).partition(|one| self.is_fit(one));
        let next = unfit.iter().find(|one| one.is_well && !self.of.resting.contains(&one.replica.addr))?;
        (fit.len() as u64 >= self.needed).then(|| AckStep::Quit(next.replica.addr.clone()))
    }

    fn is_lost(&self, source: Option<&SourceSide>, live: u64, waiting: u64) -> bool {
        let has_enough = source.is_some_and(|source| source.is_enabled && live >= source.acks.unwrap_or(1));
        has_enough && waiting > 0 && self.of.stuck_ms >= LOST_MS
    }

    fn nudge(&self, source: Option<&SourceSide>, live: u64, waiting: u64) -> Option<AckStep> {
        let is_due = self.of.nudged_ms.is_none_or(|ms| ms >= NUDGES_MS);
        (is_due && self.is_lost(source, live, waiting)).then(|| AckStep::Nudge(self.primary.addr.clone()))
    }

    fn faults(&self, source: Option<&SourceSide>, ackers: &[&ServerAddr], waiting: u64) -> Vec<String> {
        let (primary, policy, live) = (self.primary, self.of.policy, ackers.len() as u64);
        let mut faults = Vec::new();
        if source.is_none() {
            faults.push(format!("{}: {}", primary.addr, not_installed(primary.version, true)));
        }
        let fit: Vec<One<'_>> = self.all().filter(|one| self.is_fit(one)).collect();
        for one in fit.iter().filter(|one| one.sides.replica.is_none()) {
            faults.push(format!("{}: {}", one.replica.addr, not_installed(one.replica.version, false)));
        }
        for one in fit.iter().filter(|one| one.sides.source.is_none()) {
            faults.push(format!("{}: {}", one.replica.addr, not_installed(one.replica.version, true)));
        }
        if policy.acks > self.needed {
            faults.push(format!("MariaDB waits for one acknowledgement, so acks={} counts as 1", policy.acks));
        }
        if (fit.len() as u64) < self.needed {
            let count = fit.len();
            faults.push(format!(
                "acks is {}, and {count} {} may acknowledge: those that answer, follow the writer and may be promoted",
                self.needed,
                if count == 1 { "replica" } else { "replicas" }
            ));
        }
        match source {
            Some(source) if !source.is_enabled => {
                faults.push(format!("commits of {} wait for no acknowledgement yet", primary.addr));
            }
            Some(source) if source.acks.unwrap_or(1) < self.needed => {
                let acks = source.acks.unwrap_or(1);
                faults.push(format!("commits of {} wait for {acks}, and acks is {}", primary.addr, self.needed));
            }
            _ => {}
        }
        if self.is_lost(source, live, waiting) {
            faults.push(format!(
                "an acknowledgement may be lost: sessions that wait on {}: {waiting}, for {} s, while enough replicas acknowledge ({live}). The \
                 next write brings it",
                primary.addr,
                self.of.stuck_ms / 1_000
            ));
        }
        faults
    }
}

impl One<'_> {
    fn receives(&self) -> bool {
        self.replica.channel.as_ref().is_some_and(|channel| channel.receiver.state == LinkState::Runs)
    }
}

/// The statement that would install a side. A server takes either the new plugins or the old ones.
fn not_installed(version: ServerVersion, is_source: bool) -> String {
    let has_new_words = !version.is_mariadb && version.number >= (8, 0, 26);
    let (side, suffix) = match (has_new_words, is_source) {
        (true, true) => ("source", ".so"),
        (true, false) => ("replica", ".so"),
        (false, true) => ("master", if version.is_mariadb { "" } else { ".so" }),
        (false, false) => ("slave", if version.is_mariadb { "" } else { ".so" }),
    };
    format!("semi-synchronous replication is not installed: INSTALL PLUGIN rpl_semi_sync_{side} SONAME 'semisync_{side}{suffix}'")
}
