//! Whether a replica may take over, and why not.

use model::ServerAddr;
use model::snapshot::{Healing, HealingMode, Loss, Promotion, SiteRule};

use super::facts::{Channel, Facts, LinkState, Primary, Replica};
use crate::gtids::GtidSet;
use crate::observation::ServerId;

/// Longest text of a set of GTIDs that is shown.
const SHOWN_MAX: usize = 200;

/// What is found of one replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assessed {
    /// Which.
    pub addr: ServerAddr,
    /// It may take over.
    pub is_eligible: bool,
    /// Why not; empty for one that may.
    pub why_not: String,
    /// Transactions that are known anywhere and that it has not received; None where it did not answer.
    pub received_behind: Option<u64>,
    /// Transactions that it has received and not applied.
    pub applied_behind: Option<u64>,
    /// What it has and nobody else: not of the primary either.
    pub errant: GtidSet,
    /// How much it is wanted.
    pub promotion: Promotion,
}

/// A cluster, with what is asked again and again.
pub(super) struct Scene<'a> {
    pub(super) facts: &'a Facts,
    pub(super) primary: &'a Primary,
    pub(super) policy: &'a Healing,
    /// Everything that any server was seen to have.
    pub(super) seen: GtidSet,
}

/// A replica with what speaks against it.
pub(super) struct Found<'a> {
    pub(super) replica: &'a Replica,
    /// What it had in the instant of the look at the primary, if that answered: later differences between replicas are of the order in
    /// which they were asked. Else what it has received.
    pub(super) has: GtidSet,
    pub(super) errant: GtidSet,
    /// Why nothing that it has can be handed on: it is no candidate, and nobody fetches from it.
    pub(super) fault: Option<String>,
    /// Why it is not to be the writer, though others could fetch from it.
    pub(super) unwanted: Option<String>,
}

impl Found<'_> {
    pub(super) fn is_eligible(&self) -> bool {
        self.fault.is_none() && self.unwanted.is_none()
    }

    /// Whether it answers and follows the primary: what it has counts.
    pub(super) fn is_heard(&self) -> bool {
        is_heard(self.replica)
    }

    pub(super) fn assessed(&self, scene: &Scene<'_>) -> Assessed {
        let replica = self.replica;
        let known = replica.silence.is_none();
        Assessed {
            addr: replica.addr.clone(),
            is_eligible: self.is_eligible(),
            why_not: self.fault.clone().or_else(|| self.unwanted.clone()).unwrap_or_default(),
            received_behind: known.then(|| scene.seen.missing_in(&self.has)),
            applied_behind: known.then(|| replica.received.missing_in(&replica.executed)),
            errant: self.errant.clone(),
            promotion: replica.promotion(),
        }
    }
}

impl<'a> Scene<'a> {
    pub(super) fn new(facts: &'a Facts, primary: &'a Primary, policy: &'a Healing) -> Self {
        let seen = primary.executed.clone().unwrap_or_default();
        let scene = Self { facts, primary, policy, seen };
        let answered = facts.replicas.iter().filter(|replica| replica.silence.is_none());
        let seen = answered.fold(scene.seen.clone(), |seen, replica| seen.with(&scene.had(replica)));
        Self { seen, ..scene }
    }

    /// See [`Found::has`].
    fn had(&self, replica: &Replica) -> GtidSet {
        let executed = self.primary.executed.as_ref().filter(|_| self.facts.is_alive);
        executed.filter(|executed| replica.received.contains(executed)).unwrap_or(&replica.received).clone()
    }

    pub(super) fn find(&self) -> Vec<Found<'a>> {
        self.facts.replicas.iter().map(|replica| self.found(replica)).collect()
    }

    fn found(&self, replica: &'a Replica) -> Found<'a> {
        let errant = self.errant(replica);
        let fault = replica.silence.as_ref().map(|why| format!("it does not answer: {why}")).or_else(|| {
            let channel = match &replica.channel {
                None => return Some("it replicates from nobody".to_owned()),
                Some(channel) if !channel.is_from_primary => {
                    return Some(format!("it replicates from {}, not from {}", channel.source, self.primary.addr));
                }
                Some(channel) => channel,
            };
            self.broken(replica, channel)
                .or_else(|| unfit(replica, channel))
                .or_else(|| self.unsafe_here(replica))
                .or_else(|| (!errant.is_empty()).then(|| self.told_errant(replica, &errant)))
        });
        let fault = fault.or_else(|| self.out_of_date(replica));
        let unwanted = self.unwanted(replica);
        Found { replica, has: self.had(replica), errant, fault, unwanted }
    }

    /// Threads that do not do what they should.
    fn broken(&self, replica: &Replica, channel: &Channel) -> Option<String> {
        let (receiver, applier) = (&channel.receiver, &channel.applier);
        match (applier.error, receiver.error) {
            (Some(code), _) if applier.state != LinkState::Runs => {
                let behind = replica.received.missing_in(&replica.executed);
                Some(format!("its applier has stopped with error {code} ({} not applied)", transactions(behind)))
            }
            _ if applier.state == LinkState::Stopped => Some("somebody stopped its applier (STOP REPLICA)".to_owned()),
            // The first step of a promotion stops receivers. Without a source they have nothing to receive either way.
            _ if !self.facts.is_alive => None,
            (_, Some(code)) if receiver.state == LinkState::Stopped && !receiver.has_lost_source() => {
                Some(format!("its receiver has stopped with error {code}"))
            }
            (_, None) if receiver.state == LinkState::Stopped => Some("somebody stopped its receiver (STOP REPLICA)".to_owned()),
            _ => None,
        }
    }

    /// What mode `full` does not do without.
    fn unsafe_here(&self, replica: &Replica) -> Option<String> {
        match () {
            () if self.policy.mode != HealingMode::Full => None,
            () if replica.addr.port == 0 => Some("its address is a Unix socket, which no replica could follow".to_owned()),
            () if replica.version.is_mariadb && !replica.is_strict => {
                Some("gtid_strict_mode is OFF, so a server with other transactions could follow it: set it to ON".to_owned())
            }
            () => replica.no_right.clone(),
        }
    }

    /// Transactions of this replica that the primary has not. If the primary is gone: those that it lacked before, and those that no other
    /// replica of it has either. What a replica got from the primary, other replicas may get yet.
    fn errant(&self, replica: &Replica) -> GtidSet {
        let is_fellow = |other: &Replica| other.addr != replica.addr && is_heard(other);
        let is_witness = |other: &&Replica| !self.facts.is_alive && is_fellow(other);
        let primary = [&self.primary.executed, &self.primary.latest].into_iter().flatten();
        let primary = primary.fold(GtidSet::default(), |all, has| all.with(has));
        let others = self.facts.replicas.iter().filter(is_witness).fold(primary, |all, other| all.with(&other.received));
        let own = replica.received.beyond(&others, &replica.id);
        let own = if self.primary.id == ServerId::default() { own } else { own.without_writes_of(&self.primary.id) };
        own.with(&self.was_errant(replica))
    }

    /// What the primary lacked when it answered last; empty while it answers, and for a server that was built anew since.
    fn was_errant(&self, replica: &Replica) -> GtidSet {
        let was = Some(&replica.was_errant).filter(|was| !self.facts.is_alive && replica.received.contains(was));
        was.cloned().unwrap_or_default()
    }

    fn told_errant(&self, replica: &Replica, errant: &GtidSet) -> String {
        let who = match () {
            () if self.facts.is_alive => "the writer lacks",
            () if self.was_errant(replica).is_empty() => "no other server has",
            () => "the writer lacked",
        };
        format!("it has transactions that {who}: {}", shown(errant))
    }

    /// It has not heard of the primary for too long, and lacks what the primary was seen to have.
    fn out_of_date(&self, replica: &Replica) -> Option<String> {
        let channel = replica.channel.as_ref()?;
        let limit = self.policy.max_lost_ms;
        // What the primary had long before it died proves nothing.
        let executed = self.primary.executed.as_ref().filter(|_| self.primary.age_ms <= limit);
        if self.policy.loss == Loss::Any || executed.is_some_and(|executed| replica.received.contains(executed)) {
            return None;
        }
        match channel.heard_ms {
            Some(ms) if ms <= limit => None,
            Some(ms) => Some(format!("it had heard nothing from {} for {ms} ms (max_lost_ms is {limit})", self.primary.addr)),
            None => Some(format!("it is not known to have heard from {} within max_lost_ms ({limit} ms)", self.primary.addr)),
        }
    }

    fn unwanted(&self, replica: &Replica) -> Option<String> {
        let policy = self.policy;
        let lag_ms = replica.channel.as_ref().and_then(|channel| channel.lag_ms);
        let is_behind = !replica.executed.contains(&replica.received);
        if replica.offline.is_some() {
            return replica.offline.clone();
        }
        match () {
            () if replica.unable.is_some() => replica.unable.clone(),
            () if replica.promotion() == Promotion::Never => Some(match replica.declared {
                Some(_) => "promotion is never (mysql_healing_servers)".to_owned(),
                None => "its weight is 0 (mysql_servers)".to_owned(),
            }),
            () if policy.site == SiteRule::Same && replica.site != self.primary.site => {
                Some(format!("it is on site '{}', and {} on '{}' (site is same)", replica.site, self.primary.addr, self.primary.site))
            }
            () if is_behind => match lag_ms {
                None => Some("its lag is not known, so the time to apply what it received is not known either".to_owned()),
                Some(ms) if ms <= policy.apply_ms => None,
                Some(ms) => {
                    Some(format!("it would need about {} s to apply what it received (apply_ms is {} ms)", ms / 1_000, policy.apply_ms))
                }
            },
            () => None,
        }
    }
}

fn is_heard(replica: &Replica) -> bool {
    replica.silence.is_none() && replica.channel.as_ref().is_some_and(|channel| channel.is_from_primary)
}

/// How a replica is set up.
pub(super) fn unfit(replica: &Replica, channel: &Channel) -> Option<String> {
    let log_updates = if replica.version.is_mariadb { "log_slave_updates" } else { "log_replica_updates" };
    let gtids = if replica.version.is_mariadb { "MASTER_USE_GTID" } else { "SOURCE_AUTO_POSITION" };
    Some(match () {
        () if channel.delay_s > 0 => format!("it is delayed by {} s on purpose", channel.delay_s),
        () if channel.has_filters => "its replication filters leave changes out".to_owned(),
        () if !replica.logs => "it has no binary log (log_bin), so no replica could follow it".to_owned(),
        () if !replica.logs_updates => format!("{log_updates} is off, so no replica could follow it"),
        () if !replica.has_gtids => "it writes no GTIDs (gtid_mode)".to_owned(),
        () if !channel.is_by_gtid => format!("its channel does not use GTIDs ({gtids})"),
        () if replica.version.number == (0, 0, 0) => "its version is not known".to_owned(),
        () => return None,
    })
}

/// So many, in words.
pub(super) fn transactions(count: u64) -> String {
    if count == 1 { "1 transaction".to_owned() } else { format!("{count} transactions") }
}

/// A set as text of at most 200 characters and `...`, for messages and tables.
pub fn shown(set: &GtidSet) -> String {
    let text = set.to_string();
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
