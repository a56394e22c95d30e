//! One cluster: its servers, its memory, and which server serves which of its hostgroups.
//!
//! Each sighting leads to a new decision from all facts. INVARIANT: a decision depends on the memory before the present instant and on the
//! facts, not on the order in which the facts of this instant arrived.

mod choice;
mod distance;
mod enrolment;
mod knowledge;
mod seating;
mod succession;
mod writers;

pub(crate) use choice::Choice;
pub(crate) use enrolment::Enrolment;
pub(crate) use knowledge::ClusterKnowledge;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::fleet::{Placement, UnderWay};
use model::settings::{Failback, SecondWriters};
use model::snapshot::{RoleGroup, RoleKind, ServerDefaults, ServerStatus, Snapshot};
use model::{HostgroupId, ServerAddr};
use serde::{Deserialize, Serialize};

pub use self::succession::Fork;
use self::succession::Takeover;
use crate::facts::Facts;
use crate::health::{HostgroupPolicy, Lags, Quiet, Vital, lags, missed_pings, place, vital};
use crate::identity::{self, Identity, MemberIdentity, STRANGER, Strangers, Turn, Votes};
use crate::judgement::{Fitness, Judgement, Judgements, Outage, Scene};
use crate::knowledge::pairs;
use crate::member::{self, Member};
use crate::roster::Roster;
use crate::standing::{KnownIdentity, Standing, Standings};
use crate::{aurora, galera, group, rds, replication};

/// The input of a decision, besides the cluster's own memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct World<'a> {
    pub snapshot: &'a Snapshot,
    /// The last answers of every server of the fleet.
    pub facts: &'a BTreeMap<ServerAddr, Facts>,
    /// Servers that an operator drains.
    pub drained: &'a BTreeSet<ServerAddr>,
    /// The limits of each hostgroup; the default holds where one is missing.
    pub policies: &'a BTreeMap<HostgroupId, HostgroupPolicy>,
    /// The present on the caller's clock, ms.
    pub now_ms: u64,
}

impl World<'_> {
    pub(crate) fn policy(&self, id: HostgroupId) -> HostgroupPolicy {
        self.policies.get(&id).copied().unwrap_or_default()
    }
}

/// The state that one instant leaves to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Memory {
    /// The servers chosen to write.
    writers: BTreeSet<ServerAddr>,
    /// Of each server, the hostgroups that it served when it last served any.
    #[serde(with = "pairs")]
    places: BTreeMap<ServerAddr, BTreeSet<HostgroupId>>,
    /// The servers that were ONLINE in the reader hostgroup.
    readers: BTreeSet<ServerAddr>,
    /// Of each server that is fit to write, since when, ms. Fail-back waits by it.
    #[serde(with = "pairs")]
    fit_since_ms: BTreeMap<ServerAddr, u64>,
    /// Every server that is checked was asked once: from now on writers stay.
    is_settled: bool,
    /// The writer hostgroup has had an ONLINE server.
    has_written: bool,
    /// Since when the writer hostgroup has had no ONLINE server, ms.
    writerless_since_ms: Option<u64>,
    /// The last time without a writer.
    quiet: Option<Quiet>,
    identity: identity::Memory,
    replication: replication::Memory,
    aurora: aurora::Memory,
    /// The writers of the last decision that had any.
    last_writers: BTreeSet<ServerAddr>,
    /// Takeovers whose new writer has not yet answered a GTID check.
    takeovers: Vec<Takeover>,
    /// The GTIDs of promoted servers before their first write, the latest promotion last.
    forks: Vec<Fork>,
    /// The latest of them is of a promotion by this proxy, and its server has not been seen to write yet.
    awaits_heir: bool,
}

/// When the preferred writer comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Return {
    /// The events that may bring it back.
    pub policy: Failback,
    /// How long it has to be fit to write before, ms.
    pub delay_ms: u64,
}

/// One row of a table of clusters, with its servers and its memory.
#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    pub group: Arc<RoleGroup>,
    /// Configured servers and those that were found.
    pub members: BTreeMap<ServerAddr, Member>,
    /// How long a report from traffic keeps a server suspected at most, ms.
    pub suspicion_ms: u64,
    /// The attributes of found servers, from the reader hostgroup's `servers_defaults`.
    found_like: ServerDefaults,
    /// Each server's judgement in the last decision.
    pub judgements: Judgements,
    /// Servers that belong to another cluster.
    strangers: Strangers,
    /// The strangers that [`Self::turns`] has reported.
    told_strangers: Strangers,
    /// The cluster's identity that [`Self::turns`] has reported.
    told_identity: Option<Identity>,
    /// Servers that were too far behind in the last decision, each with its lag in words.
    pub lags: Lags,
    /// How the writers were chosen in the last decision.
    pub choice: Option<Choice>,
    /// The server that an operator prefers.
    pub preferred: Option<ServerAddr>,
    /// The writer at the end of the last process. Its place is kept until it has been asked.
    awaited: Option<ServerAddr>,
    /// Servers that may not write, whatever they say, each for its reason: by the record that proxies share (`mysql_healing`).
    barred: BTreeMap<ServerAddr, String>,
    /// The same by the last decision, with the servers that a promotion of this proxy replaces.
    shut: BTreeMap<ServerAddr, String>,
    comeback: Return,
    second_writers: SecondWriters,
    shuns_strays: bool,
    /// Servers whose rows changed while the monitor was off, and when, ms. They are as configured until a check answers.
    rewritten: BTreeMap<ServerAddr, u64>,
    /// The servers that the cluster's own views name.
    roster: Roster,
    before: Memory,
    memory: Memory,
    at_ms: u64,
    /// When time alone changes something, ms.
    next_ms: Option<u64>,
}

/// How often a server's replication source is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourcesWanted {
    /// The answer would decide nothing.
    No,
    /// As often as its lag: the source is known and may change.
    Sometimes,
    /// As often as its role: the source is not known yet, or the server is a stray.
    Soon,
    /// As its role is, in haste too.
    ForRoles,
}

/// The operator's order that leads to this decision. Earlier events of the same instant count as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// The decision has another cause.
    None,
    /// An order that does not concern fail-back.
    Other,
    /// The preferred server writes at once. If it is lost later, the fail-back policy brings it back.
    Prefer,
    /// The heaviest may come back at once.
    Failback,
}

impl Cluster {
    /// `old` is the same cluster under the configuration before. While the monitor is off, fail-back is off too, as the servers' health is
    /// unknown. A server that the operator moves to other hostgroups then counts as new.
    pub(crate) fn new(group: &Arc<RoleGroup>, snapshot: &Snapshot, old: Option<Self>, now_ms: u64) -> Self {
        let settings = snapshot.effective_in(group.writer);
        let mut members = member::configured(group, snapshot);
        let barred = old.as_ref().map(|old| old.barred.clone()).unwrap_or_default();
        let (mut memory, preferred, awaited, roster, found, mut rewritten, (told_strangers, told_identity)) = match old {
            Some(old) => {
                (old.memory, old.preferred, old.awaited, old.roster, old.members, old.rewritten, (old.told_strangers, old.told_identity))
            }
            None => Default::default(),
        };
        if !snapshot.vars.monitor_enabled {
            rewritten.extend(moved(&found, &members, &memory.writers).into_iter().map(|addr| (addr, now_ms)));
        }
        let found_like = snapshot.hostgroup(group.reader).map(|h| h.attributes.servers_defaults.clone()).unwrap_or_default();
        let like = enrolment::like(group, &members).cloned();
        let is_kept = |addr: &ServerAddr| !matches!(group.kind, RoleKind::Replication(_)) || rds::may_be_found(snapshot, addr);
        for (addr, _) in found.into_iter().filter(|(addr, member)| member.configured.is_empty() && is_kept(addr)) {
            if let Some(like) = &like {
                members.entry(addr.clone()).or_insert_with(|| Member::found(group, &addr, like, &found_like));
            }
        }
        memory.places.retain(|addr, _| members.contains_key(addr) && rewritten.get(addr) != Some(&now_ms));
        rewritten.retain(|addr, _| members.contains_key(addr));
        if !snapshot.healing.get(&group.writer).is_some_and(|row| row.mode.takes_back()) {
            memory.replication.outcasts.clear();
        }
        let policy = if snapshot.vars.monitor_enabled { settings.failback } else { Failback::Never };
        Self {
            group: Arc::clone(group),
            suspicion_ms: settings.suspicion_ms,
            found_like,
            judgements: Judgements::new(),
            strangers: Strangers::default(),
            told_strangers,
            told_identity,
            lags: Lags::new(),
            choice: None,
            preferred: preferred.filter(|addr| members.contains_key(addr)),
            awaited: awaited.filter(|addr| members.contains_key(addr) && !memory.is_settled),
            roster,
            barred,
            shut: BTreeMap::new(),
            comeback: Return { policy, delay_ms: settings.failback_delay_ms },
            second_writers: settings.second_writers,
            shuns_strays: settings.shun_stray_replicas,
            rewritten,
            before: memory.clone(),
            memory,
            at_ms: 0,
            next_ms: None,
            members,
        }
    }

    /// When time alone can change the decision, ms.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.next_ms
    }

    pub(crate) fn writerless_since_ms(&self) -> Option<u64> {
        self.memory.writerless_since_ms
    }

    pub(crate) fn writers(&self) -> &BTreeSet<ServerAddr> {
        &self.memory.writers
    }

    /// Takes over the preferred server, the awaited writer and the identity that the last process kept.
    pub(crate) fn recall(&mut self, kept: &Standings) {
        let is_meant = |known: &&KnownIdentity| known.writer == self.group.writer && known.kind == self.group.kind.as_str();
        if let Some(known) = kept.identities.iter().find(is_meant) {
            self.memory.identity = identity::Memory::recalled(known.identity.clone(), known.servers.clone());
            self.before = self.memory.clone();
            self.told_identity = Some(known.identity.clone());
        }
        let is_own = |standing: &&Standing| standing.writer == self.group.writer && self.members.contains_key(&standing.server);
        for standing in kept.writers.iter().filter(is_own) {
            let server = Some(standing.server.clone());
            match standing.is_preferred {
                true => self.preferred = server,
                false if self.stays() => self.awaited = server,
                false => {}
            }
        }
        self.awaited = self.awaited.take().or_else(|| self.preferred.clone());
    }

    /// The choices and the identity that no server can report after a restart.
    pub(crate) fn standings(&self) -> Standings {
        let known = self.memory.identity.settled().map(|(identity, servers)| KnownIdentity {
            writer: self.group.writer,
            kind: self.group.kind.as_str().to_owned(),
            identity: identity.clone(),
            servers: servers.clone(),
        });
        Standings { writers: self.standing_writers(), identities: known.into_iter().collect() }
    }

    fn standing_writers(&self) -> Vec<Standing> {
        if !self.chooses() {
            return Vec::new();
        }
        let standing = |server: &ServerAddr, is_preferred| Standing { writer: self.group.writer, server: server.clone(), is_preferred };
        let preferred = self.preferred.iter().map(|addr| standing(addr, true));
        let is_known = self.stays() && self.group.max_writers == 1;
        preferred.chain(self.memory.writers.iter().filter(|_| is_known).map(|addr| standing(addr, false))).collect()
    }

    /// Whether a writer keeps its place until it is lost or an operator orders another one.
    fn stays(&self) -> bool {
        matches!(self.comeback.policy, Failback::Never | Failback::Command)
    }

    /// The operator orders this server to write, though another server took over from it.
    pub(crate) fn pardon(&mut self, addr: &ServerAddr) {
        let is_explicit = |addr: &ServerAddr| self.members.get(addr).is_some_and(|member| member.is_explicit_writer);
        self.memory.replication.pardon(addr, is_explicit);
        self.memory.awaits_heir = false;
        self.before = self.memory.clone();
    }

    /// How many of its servers serve no reads because they do not replicate from the writer; None where that is not judged.
    pub(crate) fn strays(&self) -> Option<usize> {
        let is_judged = self.shuns_strays && replication::tells_strays(&self.group.kind);
        is_judged.then(|| self.memory.replication.strays.values().filter(|stray| stray.is_out).count())
    }

    /// These servers serve no reads, each for its reason in words; others do as before. False if nothing changes.
    pub(crate) fn cast_out(&mut self, outcasts: &BTreeMap<ServerAddr, String>) -> bool {
        let is_other = self.memory.replication.outcasts != *outcasts;
        if is_other {
            self.memory.replication.outcasts.clone_from(outcasts);
            self.before = self.memory.clone();
        }
        is_other
    }

    /// These servers may not write, each for its reason in words; others do as before. False if nothing changes.
    pub(crate) fn bar(&mut self, barred: &BTreeMap<ServerAddr, String>) -> bool {
        let is_other = self.barred != *barred;
        if is_other {
            self.barred.clone_from(barred);
        }
        is_other
    }

    /// Servers that may not write, each for its reason in words.
    pub(crate) fn barred(&self) -> &BTreeMap<ServerAddr, String> {
        &self.barred
    }

    /// Servers that are excluded because another server took over from them.
    pub(crate) fn fenced(&self) -> impl Iterator<Item = &ServerAddr> {
        self.memory.replication.fenced.keys()
    }

    /// How often a server is asked for its source.
    pub(crate) fn asks_sources(&self, addr: &ServerAddr, facts: &BTreeMap<ServerAddr, Facts>) -> SourcesWanted {
        let is_stray = || self.memory.replication.strays.contains_key(addr);
        // One that refuses to say may do so for ever.
        let is_told =
            |facts: &Facts| facts.sources.at_ms >= facts.read_only.since_ms || facts.sources.is_denied || facts.sources.failed > 0;
        let is_new = || !facts.get(addr).is_some_and(is_told);
        match () {
            () if self.decides_by_sources(addr, facts) => SourcesWanted::ForRoles,
            () if !self.shuns_strays || self.members.len() < 2 || !replication::tells_strays(&self.group.kind) => SourcesWanted::No,
            () if is_stray() || is_new() => SourcesWanted::Soon,
            () => SourcesWanted::Sometimes,
        }
    }

    /// Whether a server's role depends on its source. That is so if it says that it is writable while another server writes or says so too.
    /// It is also so if there is no writer, and another server says that it is writable.
    fn decides_by_sources(&self, addr: &ServerAddr, facts: &BTreeMap<ServerAddr, Facts>) -> bool {
        let is_asked = matches!(self.group.kind, RoleKind::Replication(_)) && self.second_writers == SecondWriters::Configured;
        let is_writable = |addr: &ServerAddr| facts.get(addr).is_some_and(|facts| facts.read_only.last == Some(false));
        let is_other = || self.members.keys().any(|other| other != addr && is_writable(other));
        is_asked
            && if is_writable(addr) {
                !self.memory.writers.contains(addr) || is_other()
            } else {
                self.memory.writerless_since_ms.is_some() && is_other()
            }
    }

    /// Decides which server serves which hostgroup of the cluster. Called after each sighting, order, configuration and wake-up.
    pub(crate) fn decide(&mut self, world: World<'_>, order: Order) -> BTreeMap<HostgroupId, Vec<Placement>> {
        // Further decisions of the same instant start from the same memory, so the order of its sightings does not matter.
        if world.now_ms > self.at_ms || order != Order::None {
            self.before = self.memory.clone();
            self.at_ms = world.now_ms;
        }
        self.next_ms = None;
        self.shut = self.barred.clone();
        if let Some((fork, until_ms)) = succession::pending(&self.before, world.now_ms) {
            let why = format!("excluded from writes: this proxy promotes {} in its place", fork.heir);
            for from in &fork.from {
                self.shut.entry(from.clone()).or_insert_with(|| why.clone());
            }
            self.wake_at(Some(until_ms));
        }
        let mut memory = self.before.clone();
        self.identify(world, &mut memory.identity);
        let judgements = self.judge(world, &mut memory);
        let writers = self.choose(world, &judgements, &mut memory, order);
        let mut checked = self.members.iter().filter(|(_, member)| member.is_checked());
        memory.is_settled |= checked.all(|(addr, _)| world.facts.get(addr).is_some_and(|facts| self.is_asked(facts)));
        self.note_takeovers(world, &writers, &mut memory);
        let seats = self.seats(world, &judgements, &writers, &mut memory);
        self.lags = lags(seats.values().flatten());
        let layout: BTreeMap<_, _> = seats.into_iter().map(|(id, seats)| (id, place(seats, world.policy(id)))).collect();
        let has_writer = layout.get(&self.group.writer).is_some_and(|all| all.iter().any(|p| p.status == ServerStatus::Online));
        let readers = layout.get(&self.group.reader).map_or(&[][..], Vec::as_slice).iter();
        memory.readers = readers.filter(|p| p.status == ServerStatus::Online).map(|p| p.server.key.addr()).collect();
        memory.quiet = self.quiet(world, has_writer, &memory);
        memory.has_written |= has_writer;
        memory.writerless_since_ms = (!has_writer).then(|| memory.writerless_since_ms.unwrap_or(world.now_ms));
        memory.writers = writers;
        self.memory = memory;
        if order != Order::None {
            self.before = self.memory.clone();
        }
        self.judgements = judgements;
        layout
    }

    /// The last time without a writer. It begins when the lost writer last answered, because replicas may notice the loss before the proxy
    /// does.
    fn quiet(&self, world: World<'_>, has_writer: bool, memory: &Memory) -> Option<Quiet> {
        match (memory.quiet, has_writer) {
            (Some(quiet), true) => Some(Quiet { to_ms: quiet.to_ms.or(Some(world.now_ms)), ..quiet }),
            (Some(Quiet { to_ms: None, .. }), false) | (None, true) => memory.quiet,
            (_, false) if !memory.has_written => None,
            (_, false) => {
                let seen_ms = memory.last_writers.iter().filter_map(|addr| world.facts.get(addr)).map(|facts| self.seen_ms(facts));
                Some(Quiet { from_ms: seen_ms.max().unwrap_or(world.now_ms), to_ms: None })
            }
        }
    }

    fn is_asked(&self, facts: &Facts) -> bool {
        match self.group.kind {
            RoleKind::Replication(_) => facts.read_only.is_asked(),
            RoleKind::Galera => facts.galera.is_asked(),
            RoleKind::GroupReplication => facts.group.is_asked(),
            RoleKind::Aurora(_) => facts.aurora.is_asked(),
        }
    }

    /// Whether the check that tells its role was answered once.
    fn has_said(&self, facts: &Facts) -> bool {
        match self.group.kind {
            RoleKind::Replication(_) => facts.read_only.last.is_some(),
            RoleKind::Galera => facts.galera.last.is_some(),
            RoleKind::GroupReplication => facts.group.last.is_some(),
            RoleKind::Aurora(_) => facts.aurora.last.is_some(),
        }
    }

    /// When the check that tells its role was last answered, ms.
    fn seen_ms(&self, facts: &Facts) -> u64 {
        match self.group.kind {
            RoleKind::Replication(_) => facts.read_only.at_ms,
            RoleKind::Galera => facts.galera.at_ms,
            RoleKind::GroupReplication => facts.group.at_ms,
            RoleKind::Aurora(_) => facts.aurora.at_ms,
        }
    }

    fn scene<'a>(&'a self, world: World<'a>, writers: &'a BTreeSet<ServerAddr>) -> Scene<'a> {
        Scene {
            group: &self.group,
            vars: &world.snapshot.vars,
            members: &self.members,
            facts: world.facts,
            strangers: &self.strangers.all,
            barred: &self.shut,
            second_writers: self.second_writers,
            shuns_strays: self.shuns_strays,
            drained: world.drained,
            forks: &self.memory.forks,
            writers,
            now_ms: world.now_ms,
        }
    }

    /// Finds the servers that belong to another cluster.
    fn identify(&mut self, world: World<'_>, memory: &mut identity::Memory) {
        let votes = Votes { group: &self.group, members: &self.members, facts: world.facts, writers: &self.before.writers };
        memory.learn(votes);
        self.strangers = memory.strangers(votes);
    }

    /// The strangers that came or left since the last call, and a newly settled identity.
    pub(crate) fn turns(&mut self) -> Vec<Turn> {
        let before = std::mem::replace(&mut self.told_strangers, self.strangers.clone());
        let settled = self.memory.identity.settled();
        let known = settled.filter(|(identity, _)| self.told_identity.as_ref() != Some(*identity)).map(|(_, servers)| servers.clone());
        self.told_identity = settled.map(|(identity, _)| identity.clone());
        let turns = self.strangers.turns(&before, |addr| self.members.contains_key(addr));
        known.map(Turn::Known).into_iter().chain(turns).collect()
    }

    /// The operator declares a stranger's cluster to be the right one. Returns the identity before. Errors: `from` is no member or no
    /// stranger, or strangers of several clusters answer.
    pub(crate) fn accept(&mut self, from: Option<&ServerAddr>) -> Result<Option<Identity>, String> {
        let writer = self.group.writer;
        let others: BTreeSet<&Identity> = self.strangers.all.values().collect();
        let accepted = match (from, others.len()) {
            (Some(addr), _) if !self.members.contains_key(addr) => {
                return Err(format!("{addr} is not a server of the cluster with writer hostgroup {writer}"));
            }
            (Some(addr), _) => {
                let strange = self.strangers.all.get(addr);
                strange.ok_or_else(|| format!("{addr} is not known to belong to another cluster: nothing was changed"))?
            }
            (None, 0) => return Err(format!("no server of hostgroup {writer} belongs to another cluster: nothing was changed")),
            (None, 1) => others.into_iter().next().ok_or_else(String::new)?,
            (None, count) => {
                let all: Vec<String> = self.strangers.all.iter().map(|(addr, identity)| format!("{addr} ({identity})")).collect();
                return Err(format!(
                    "servers of {count} other clusters answer: {}. Nothing was changed; name one server with FROM 'host:port'",
                    all.join(", ")
                ));
            }
        };
        let said_by = self.strangers.all.iter().filter(|(_, identity)| *identity == accepted).map(|(addr, _)| addr.clone()).collect();
        let accepted = identity::Memory::recalled(accepted.clone(), said_by);
        self.told_identity = accepted.own().cloned();
        let before = std::mem::replace(&mut self.memory.identity, accepted);
        self.before = self.memory.clone();
        Ok(before.own().cloned())
    }

    /// Each server's last words about its cluster; empty for kinds that tell no identity.
    pub(crate) fn identities(&self, facts: &BTreeMap<ServerAddr, Facts>) -> Vec<MemberIdentity> {
        let said = |addr: &ServerAddr| facts.get(addr).and_then(|facts| identity::said(&self.group.kind, facts)).cloned();
        let row = |addr: &ServerAddr| MemberIdentity {
            writer: self.group.writer,
            server: addr.clone(),
            identity: said(addr),
            cluster: self.identity().cloned(),
            is_settled: self.memory.identity.settled().is_some(),
        };
        self.members.keys().filter(|_| identity::is_told(&self.group.kind)).map(row).collect()
    }

    /// How many of its servers say that they are writable, those that are kept out too; None for kinds where several may be.
    pub(crate) fn writable(&self, facts: &BTreeMap<ServerAddr, Facts>) -> Option<usize> {
        let is_writable = |addr: &&ServerAddr| {
            let facts = facts.get(*addr).filter(|_| !self.judgements.get(*addr).is_some_and(|judgement| judgement.is_down));
            facts.is_some_and(|facts| facts.read_only.last == Some(false))
        };
        matches!(self.group.kind, RoleKind::Replication(_)).then(|| self.members.keys().filter(is_writable).count())
    }

    /// The cluster's identity, once a vote has given one.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.memory.identity.own()
    }

    /// The kind's judgement of each server, corrected by strangers, changed rows and pings.
    fn judge(&self, world: World<'_>, memory: &mut Memory) -> Judgements {
        let vars = &world.snapshot.vars;
        let writers = memory.writers.clone();
        let scene = self.scene(world, &writers);
        let mut judgements = match &self.group.kind {
            RoleKind::Replication(_) => replication::judge(scene, &mut memory.replication),
            RoleKind::Galera => galera::judge(scene),
            RoleKind::GroupReplication => group::judge(scene),
            RoleKind::Aurora(row) => aurora::judge(scene, row, &self.roster, &mut memory.aurora),
        };
        let barred = self.shut.iter().filter(|(addr, _)| scene.is_barred(addr));
        // Like a stranger's: a transaction that ends there after the fork would be lost.
        let fenced = |why: &String| Judgement { under_way: UnderWay::Severed, ..Judgement::new(Fitness::Fenced, why.clone(), "") };
        judgements.extend(barred.map(|(addr, why)| (addr.clone(), fenced(why))));
        judgements.extend(self.strangers.all.iter().map(|(addr, identity)| (addr.clone(), self.stranger(identity))));
        for (addr, judgement) in &mut judgements {
            let at_ms = self.rewritten.get(addr);
            if at_ms.is_some_and(|at_ms| world.facts.get(addr).is_none_or(|facts| self.seen_ms(facts) <= *at_ms)) {
                *judgement = Judgement::new(Fitness::Unseen, "not seen since its rows were changed", "");
            }
            // Beside a writer, an added server must answer first: written to unseen, it could take conflicting writes.
            if memory.is_settled && vars.monitor_enabled && judgement.fitness == Fitness::Unseen && self.is_intruder(world, &writers, addr)
            {
                let fitness = if self.group.offline.is_some() { Fitness::Out(Outage::Stated) } else { Fitness::Fenced };
                *judgement = Judgement::new(fitness, "new in a cluster that has a writer: not seen yet", "");
            }
            if let Some(facts) = world.facts.get(addr) {
                self.add_pings(facts, vital(facts, vars), judgement);
            }
        }
        judgements
    }

    /// A stranger is excluded, and its statements are severed: they would change another cluster's data.
    fn stranger(&self, identity: &Identity) -> Judgement {
        let fitness = if self.group.offline.is_some() { Fitness::Out(Outage::Stated) } else { Fitness::Fenced };
        Judgement { under_way: UnderWay::Severed, ..Judgement::new(fitness, STRANGER, format!("identity={identity}")) }
    }

    /// Whether the operator added this server as a second writer, and its first check has not been answered yet.
    fn is_intruder(&self, world: World<'_>, writers: &BTreeSet<ServerAddr>, addr: &ServerAddr) -> bool {
        let is_awaited = world.facts.get(addr).is_none_or(|facts| !self.has_said(facts) && !facts.is_denied());
        let is_added = self.members.get(addr).is_some_and(|member| member.is_explicit_writer && member.is_checked());
        let has_writer = || writers.iter().any(|writer| self.members.contains_key(writer));
        is_awaited && is_added && !writers.contains(addr) && has_writer()
    }

    fn add_pings(&self, facts: &Facts, vital: Vital, judgement: &mut Judgement) {
        let may_write = judgement.fitness.may_write();
        match (vital, self.group.offline) {
            (Vital::Alive, _) | (Vital::Slow, None) => {}
            (Vital::Slow, Some(_)) => {
                judgement.fitness = Fitness::Out(Outage::Silent { may_write });
                judgement.why = "its pings time out".to_owned();
            }
            (Vital::Dead, offline) => {
                judgement.is_down = true;
                judgement.under_way = UnderWay::Severed;
                // Without an offline hostgroup the server keeps its role and its reason; it is only down.
                if offline.is_some() {
                    judgement.fitness = Fitness::Out(Outage::Down);
                    judgement.why = missed_pings(facts);
                }
            }
        }
    }

    fn wake_at(&mut self, at_ms: Option<u64>) {
        self.next_ms = [self.next_ms, at_ms].into_iter().flatten().min();
    }
}

/// Servers whose hostgroups the operator changed. If that leaves no writer, the servers configured as writers count as moved too.
fn moved(old: &BTreeMap<ServerAddr, Member>, new: &BTreeMap<ServerAddr, Member>, writers: &BTreeSet<ServerAddr>) -> BTreeSet<ServerAddr> {
    let changed = new.iter().filter(|(addr, member)| old.get(*addr).is_some_and(|old| old.configured != member.configured));
    let mut moved: BTreeSet<ServerAddr> = changed.map(|(addr, _)| addr.clone()).collect();
    let is_dismissed = |addr: &ServerAddr| new.get(addr).is_none_or(|member| moved.contains(addr) && !member.is_explicit_writer);
    if !writers.is_empty() && writers.iter().all(is_dismissed) {
        moved.extend(new.iter().filter(|(_, member)| member.is_explicit_writer).map(|(addr, _)| addr.clone()));
    }
    moved
}

fn is_warming(facts: Option<&Facts>) -> bool {
    facts.is_some_and(|facts| facts.warming_since_ms.is_some())
}
