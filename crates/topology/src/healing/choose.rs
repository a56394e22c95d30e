//! Who takes over from a primary that is dead, by which steps, and what is lost; or why nobody does.

use std::cmp::Reverse;

use model::ServerAddr;
use model::snapshot::{Healing, Loss, Promotion, SiteRule};

use super::assess::{Assessed, Found, Scene, shown, transactions};
use super::facts::{Facts, Replica};
use crate::gtids::GtidSet;

/// The steps besides detection and applying take about so long, ms.
const STEPS_MS: u64 = 300;

/// What would follow if the primary died now.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Every other server.
    pub servers: Vec<Assessed>,
    /// The plan, or why there is none.
    pub plan: Result<Plan, Blocked>,
}

/// How a server takes over.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Who.
    pub candidate: ServerAddr,
    /// Why it and not another one.
    pub because: String,
    /// What would be lost.
    pub lost: Lost,
    /// Time from the death to the first write, ms: an estimate.
    pub about_ms: u64,
    /// Everything that is done, in order.
    pub steps: Vec<Step>,
}

/// Transactions that are known and that the promoted server would not have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lost {
    /// How many; the primary may have written more that nobody has seen.
    pub count: u64,
    /// Which, as far as they are shown.
    pub gtids: String,
    /// Lossless semi-synchronous replication proves that no acknowledged commit is lost.
    pub is_proved: bool,
}

/// A step of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Where.
    pub server: ServerAddr,
    /// What.
    pub act: Act,
}

/// What a step does.
#[derive(Debug, Clone, PartialEq)]
pub enum Act {
    /// The receiver of this channel stops: what the server has grows no more.
    Freeze {
        /// The channel.
        channel: String,
    },
    /// The server gets from another one what it lacks.
    Fetch {
        /// The channel that is used.
        channel: String,
        /// From whom.
        from: ServerAddr,
        /// Where the channel points before.
        before: ServerAddr,
        /// Up to here, in the server's words.
        position: String,
        /// Longest, ms.
        limit_ms: u64,
    },
    /// The server applies all that it received.
    Apply {
        /// Up to here, in the server's words.
        position: String,
        /// Longest, ms.
        limit_ms: u64,
    },
    /// The old primary is made read-only, if it answers.
    Close,
    /// The server forgets its channel.
    TakeOff {
        /// The channel.
        channel: String,
        /// Where it pointed.
        before: ServerAddr,
    },
    /// The server takes writes from here on.
    Open,
    /// The server follows the promoted one.
    Follow {
        /// The channel.
        channel: String,
        /// Whom.
        source: ServerAddr,
        /// Where it pointed.
        before: ServerAddr,
    },
    /// The server is left alone, and serves no reads.
    Leave {
        /// Why.
        why: String,
    },
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq)]
pub enum Blocked {
    /// Nobody was seen to write.
    NoPrimary,
    /// There is no other server.
    NoReplica,
    /// Too few replicas answer and follow the primary.
    FewVotes {
        /// So many do.
        heard: usize,
        /// So many must.
        needed: usize,
    },
    /// No replica may take over.
    Nobody(
        /// Each with its reason.
        Vec<(ServerAddr, String)>,
    ),
    /// No replica has all that the others have.
    Diverged(
        /// Those that have something another one lacks, each with that.
        Vec<(ServerAddr, String)>,
    ),
    /// `loss` is `none`, and something would be lost or it cannot be proved that nothing is.
    Loss(
        /// Why.
        String,
    ),
    /// Too few replicas could follow the promoted server.
    FewFollowers {
        /// So many could.
        have: usize,
        /// So many must.
        needed: u64,
    },
}

impl std::fmt::Display for Blocked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoPrimary => write!(f, "no server was seen to write yet"),
            Self::NoReplica => write!(f, "the cluster has no other server"),
            Self::FewVotes { heard, needed } => {
                write!(f, "{heard} replicas answer and follow the writer, and {needed} must (votes)")
            }
            Self::Nobody(why) => write!(f, "no replica may take over: {}", list(why)),
            Self::Diverged(sets) => write!(f, "no replica has everything that the others have: {}", list(sets)),
            Self::Loss(why) => write!(f, "loss is none, and {why}"),
            Self::FewFollowers { have, needed } => {
                write!(f, "{have} replicas could follow the promoted server, and {needed} must (min_replicas)")
            }
        }
    }
}

/// Reasons with the servers that have each.
fn list(all: &[(ServerAddr, String)]) -> String {
    let servers =
        |why: &String| all.iter().filter(|(_, other)| other == why).map(|(server, _)| server.to_string()).collect::<Vec<_>>().join(", ");
    let first = |place: usize, why: &String| all.iter().position(|(_, other)| other == why) == Some(place);
    let reasons = all.iter().enumerate().filter(|(place, (_, why))| first(*place, why));
    reasons.map(|(_, (_, why))| format!("{}: {why}", servers(why))).collect::<Vec<_>>().join("; ")
}

/// See the module.
pub fn choose(facts: &Facts, policy: &Healing) -> Choice {
    let Some(primary) = &facts.primary else { return Choice { servers: Vec::new(), plan: Err(Blocked::NoPrimary) } };
    let scene = Scene::new(facts, primary, policy);
    let found = scene.find();
    let servers = found.iter().map(|one| one.assessed(&scene)).collect();
    Choice { servers, plan: plan(&scene, &found) }
}

fn plan(scene: &Scene<'_>, found: &[Found<'_>]) -> Result<Plan, Blocked> {
    if found.is_empty() {
        return Err(Blocked::NoReplica);
    }
    let heard = found.iter().filter(|one| one.is_heard()).count();
    let needed = votes(scene.facts, scene.policy);
    if heard < needed {
        return Err(Blocked::FewVotes { heard, needed });
    }
    let why = |one: &Found<'_>| match one.assessed(scene).why_not {
        // It may take over, and cannot get what it lacks.
        why if why.is_empty() && found.iter().any(|one| one.replica.unable.is_some()) => {
            "it lacks transactions of a server that could not apply them".to_owned()
        }
        why if why.is_empty() => "it lacks transactions that other servers have purged (gtid_purged)".to_owned(),
        why => why,
    };
    let nobody = || Blocked::Nobody(found.iter().map(|one| (one.replica.addr.clone(), why(one))).collect());
    if !found.iter().any(Found::is_eligible) {
        return Err(nobody());
    }
    let able: Vec<&Found<'_>> = found.iter().filter(|one| one.fault.is_none()).collect();
    let has_all = |one: &&&Found<'_>| able.iter().all(|other| one.has.contains(&other.has));
    let advanced: Vec<&Found<'_>> = able.iter().filter(has_all).copied().collect();
    if advanced.is_empty() {
        return Err(diverged(&able));
    }
    let to_apply = |one: &&&Found<'_>| one.has.missing_in(&one.replica.executed);
    let is_advanced = |one: &Found<'_>| advanced.iter().any(|other| other.replica.addr == one.replica.addr);
    let source = |one: &Found<'_>| {
        let can_serve = advanced.iter().filter(|source| source.replica.unable.is_none() && serves(source.replica, one.replica));
        can_serve.min_by_key(to_apply).filter(|_| !is_advanced(one)).copied()
    };
    let eligible = able.iter().filter(|one| one.is_eligible() && (is_advanced(one) || source(one).is_some()));
    let candidate = *eligible.min_by_key(|one| rank(scene, found, &advanced, one)).ok_or_else(nobody)?;
    promote(scene, found, candidate, source(candidate))
}

/// Whether `source` can still hand on all that `replica` lacks.
fn serves(source: &Replica, replica: &Replica) -> bool {
    replica.received.contains(&source.purged)
}

/// By this server, which gets from `source` what it lacks.
fn promote(scene: &Scene<'_>, found: &[Found<'_>], candidate: &Found<'_>, source: Option<&Found<'_>>) -> Result<Plan, Blocked> {
    let has = source.map_or(&candidate.has, |source| &source.has);
    let (candidate, from) = (candidate.replica, source.map(|source| source.replica));
    let lost = lost(scene, found, has);
    if scene.policy.loss == Loss::None {
        no_loss(scene, &lost)?;
    }
    let followers = followers(found, candidate, has);
    if (followers.len() as u64) < scene.policy.min_replicas {
        return Err(Blocked::FewFollowers { have: followers.len(), needed: scene.policy.min_replicas });
    }
    let behind = has.missing_in(&candidate.executed);
    let lag_ms = candidate.channel.as_ref().and_then(|channel| channel.lag_ms).filter(|_| behind > 0).unwrap_or_default();
    Ok(Plan {
        candidate: candidate.addr.clone(),
        because: because(candidate, from, behind),
        lost,
        about_ms: scene.policy.dead_ms + lag_ms + STEPS_MS,
        steps: steps(scene, found, candidate, from, &followers),
    })
}

/// Replicas that must answer and follow the primary: half of those that may be promoted, rounded up, unless the operator has said how many.
pub fn votes(facts: &Facts, policy: &Healing) -> usize {
    let may = facts.replicas.iter().filter(|replica| replica.promotion() != Promotion::Never).count();
    usize::try_from(policy.votes).ok().filter(|votes| *votes > 0).unwrap_or(may.div_ceil(2)).max(1)
}

fn diverged(able: &[&Found<'_>]) -> Blocked {
    let beyond = |one: &&&Found<'_>| {
        let others = able.iter().filter(|other| other.replica.addr != one.replica.addr);
        let common = others.fold(GtidSet::default(), |all, other| all.with(&other.has));
        let own = one.has.beyond(&common, &one.replica.id);
        if own.is_empty() { format!("has {}", shown(&one.has)) } else { format!("alone has {}", shown(&own)) }
    };
    Blocked::Diverged(able.iter().map(|one| (one.replica.addr.clone(), beyond(&one))).collect())
}

/// The smallest is the best: wanted, near, able to lead the others, with all data, heavy, applied, first by name.
fn rank<'a>(
    scene: &Scene<'_>,
    found: &[Found<'_>],
    advanced: &[&Found<'_>],
    one: &Found<'a>,
) -> (Promotion, bool, usize, bool, Reverse<u32>, u64, &'a ServerAddr) {
    let replica = one.replica;
    let is_far = scene.policy.site == SiteRule::Prefer && replica.site != scene.primary.site;
    let others = found.iter().filter(|other| other.replica.addr != replica.addr && other.replica.silence.is_none());
    let older = others.filter(|other| other.replica.version.series() < replica.version.series()).count();
    let lacks = !advanced.iter().any(|other| other.replica.addr == replica.addr);
    (replica.promotion(), is_far, older, lacks, Reverse(replica.weight), one.has.missing_in(&replica.executed), &replica.addr)
}

/// Against everything that any server was seen to have, without errant transactions. An errant replica counts too: it may be the only one
/// that received, and acknowledged, a commit. A replica of another replica counts too, and acknowledges nothing.
fn lost(scene: &Scene<'_>, found: &[Found<'_>], has: &GtidSet) -> Lost {
    let of_primary = scene.primary.executed.clone().unwrap_or_default().with(&scene.primary.acknowledged);
    let errant = found.iter().fold(GtidSet::default(), |all, one| all.with(&one.errant));
    let seen = found.iter().filter(|one| one.replica.silence.is_none()).fold(of_primary, |seen, one| {
        let has = one.has.without(&one.errant);
        // It may have errant transactions of its source, which do not count as its own.
        seen.with(&if one.is_heard() { has } else { has.without(&errant) })
    });
    let ackers = found.iter().filter(|one| one.is_heard() && one.replica.is_acker).count() as u64;
    let is_recent = scene.primary.age_ms <= scene.policy.max_lost_ms;
    // As many stopped that no further commit can be acknowledged: then each one that was is on one of them.
    let is_proved = scene.primary.semi_sync.is_some_and(|source| {
        is_recent && source.is_lossless() && source.acks > 0 && source.acks <= source.ackers && ackers > source.ackers - source.acks
    });
    let count = seen.missing_in(has);
    Lost { count, gtids: shown(&seen.beyond(has, &scene.primary.id)), is_proved: is_proved && count == 0 }
}

fn no_loss(scene: &Scene<'_>, lost: &Lost) -> Result<(), Blocked> {
    let why = match scene.primary.semi_sync {
        _ if lost.is_proved => return Ok(()),
        _ if lost.count > 0 => format!("at least {} would be lost: {}", transactions(lost.count), lost.gtids),
        None => "the writer does not replicate semi-synchronously, so nothing proves that no commit is lost".to_owned(),
        Some(_) if scene.primary.age_ms > scene.policy.max_lost_ms => format!(
            "the writer had not said for {} ms how it replicates (max_lost_ms is {})",
            scene.primary.age_ms, scene.policy.max_lost_ms
        ),
        Some(source) if !source.is_on => "commits of the writer do not wait for acknowledgements now".to_owned(),
        Some(source) if !source.keeps_waiting => {
            "rpl_semi_sync_source_wait_no_replica (rpl_semi_sync_master_wait_no_slave) is OFF, so commits do not wait for replicas that are not \
             connected"
                .to_owned()
        }
        Some(source) if !source.is_lossless() => {
            "semi-synchronous replication needs AFTER_SYNC and a timeout of at least 1000000 ms to lose nothing".to_owned()
        }
        Some(source) => format!(
            "too few replicas that acknowledge answer: of {} the writer needs {}, so a commit may be on another one only",
            source.ackers, source.acks
        ),
    };
    Err(Blocked::Loss(why))
}

/// Those that lack nothing but what the promoted server has, and replicate.
fn followers<'a>(found: &[Found<'a>], candidate: &Replica, has: &GtidSet) -> Vec<&'a Replica> {
    let could = |one: &&Found<'a>| {
        let is_other = one.replica.addr != candidate.addr && one.is_heard() && one.errant.is_empty();
        is_other
            && one.replica.channel.as_ref().is_some_and(|channel| channel.is_by_gtid)
            && has.contains(&one.has)
            && serves(candidate, one.replica)
    };
    found.iter().filter(could).map(|one| one.replica).collect()
}

fn because(candidate: &Replica, from: Option<&Replica>, behind: u64) -> String {
    let has = match from {
        None => "it has everything that any sound replica received".to_owned(),
        Some(from) => format!("it is preferred, and gets from {} what it lacks", from.addr),
    };
    let apply = if behind > 0 { format!(", with {} to apply", transactions(behind)) } else { String::new() };
    format!("{has}{apply} (promotion {}, weight {})", candidate.promotion().as_str(), candidate.weight)
}

fn steps(scene: &Scene<'_>, found: &[Found<'_>], candidate: &Replica, from: Option<&Replica>, followers: &[&Replica]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut add = |server: &ServerAddr, act: Act| steps.push(Step { server: server.clone(), act });
    for one in found.iter().filter(|one| one.is_heard()) {
        if let Some(channel) = &one.replica.channel {
            add(&one.replica.addr, Act::Freeze { channel: channel.name.clone() });
        }
    }
    let limit_ms = scene.policy.apply_ms;
    let position = |replica: &Replica| replica.channel.as_ref().map(|channel| channel.position.clone()).unwrap_or_default();
    if let Some(own) = &candidate.channel {
        let (channel, before) = (own.name.clone(), own.source.clone());
        if let Some(from) = from {
            // MariaDB deletes what was received and not applied when the channel is pointed elsewhere. It may be the last copy.
            let is_purged = candidate.version.is_mariadb;
            let limit_ms = limit_ms / if is_purged { 3 } else { 2 };
            // What it is to hand on, it must have applied.
            add(&from.addr, Act::Apply { position: position(from), limit_ms });
            if is_purged {
                add(&candidate.addr, Act::Apply { position: position(candidate), limit_ms });
            }
            let (channel, before) = (channel.clone(), before.clone());
            add(&candidate.addr, Act::Fetch { channel, from: from.addr.clone(), before, position: position(from), limit_ms });
        } else {
            add(&candidate.addr, Act::Apply { position: position(candidate), limit_ms });
        }
        add(&scene.primary.addr, Act::Close);
        add(&candidate.addr, Act::TakeOff { channel, before });
    }
    add(&candidate.addr, Act::Open);
    for one in found.iter().filter(|one| one.replica.addr != candidate.addr) {
        let follows = followers.iter().any(|follower| follower.addr == one.replica.addr);
        match (&one.replica.channel, follows) {
            (Some(own), true) => {
                let (channel, before) = (own.name.clone(), own.source.clone());
                add(&one.replica.addr, Act::Follow { channel, source: candidate.addr.clone(), before });
            }
            _ => add(&one.replica.addr, Act::Leave { why: left(one, candidate) }),
        }
    }
    let why = "it follows only after a comparison shows that it has nothing that the new writer lacks".to_owned();
    add(&scene.primary.addr, Act::Leave { why });
    steps
}

fn left(one: &Found<'_>, candidate: &Replica) -> String {
    let follows = one.replica.channel.as_ref().is_some_and(|channel| channel.source == candidate.addr);
    match &one.fault {
        _ if follows && one.errant.is_empty() => format!("it follows {} already", candidate.addr),
        Some(why) if !one.is_heard() || !one.errant.is_empty() => why.clone(),
        _ if !serves(candidate, one.replica) => "it lacks transactions that the promoted server has purged (gtid_purged)".to_owned(),
        _ => "it has received transactions that the promoted server has not".to_owned(),
    }
}

impl Choice {
    /// One line for people: what would follow if `primary` died, or should follow because it `is_dead`.
    pub fn line(&self, primary: &ServerAddr, is_dead: bool) -> String {
        let begin = if is_dead { format!("{primary} is dead") } else { format!("if {primary} died now") };
        match &self.plan {
            Err(blocked) => format!("{begin}: nobody takes over: {blocked}"),
            Ok(plan) if is_dead => format!("{begin}: {} should take over, {}", plan.candidate, plan.lost),
            Ok(plan) => format!("{begin}: {} in about {} s, {}", plan.candidate, plan.about_ms.div_ceil(1_000), plan.lost),
        }
    }
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.count {
            0 if self.is_proved => f.write_str("nothing lost"),
            0 => f.write_str("nothing known to be lost"),
            count => write!(f, "at least {} lost", transactions(count)),
        }
    }
}
