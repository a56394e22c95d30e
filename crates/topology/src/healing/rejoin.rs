//! What becomes of servers that do not follow the writer: former writers that came back (outcasts), and replicas of another server or of
//! nobody (strays). For mode `rejoin`.
//!
//! Pure. [`tend`] says what each server is and which one is taken next; [`prove`] compares what a closed server has with what the writer
//! has. INVARIANT: neither names the writer, and nothing but a proof leads to a server that follows.

use std::collections::BTreeMap;

use model::ServerAddr;

use super::assess::shown;
use super::facts::{Channel, Facts, LinkState, LinkThread, Primary, Replica, ServerVersion};
use crate::cluster::Fork;
use crate::gtids::GtidSet;
use crate::observation::ServerId;

/// A writer is left in peace for so long before its cluster is changed: another tool may still be at work, ms.
const CALM_MS: u64 = 5_000;
/// A replica has to be astray for so long, ms.
const ASTRAY_MS: u64 = 10_000;
/// Time between two attempts at one replica, ms.
const APART_MS: u64 = 60_000;
/// Time after the first failed attempt, ms; it doubles with each further one.
const BACKOFF_MS: u64 = 30_000;
/// Failed attempts after which a server waits for an operator.
const ATTEMPTS: u32 = 3;

/// What a server has, for a comparison.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Holding {
    /// What it calls itself.
    pub id: ServerId,
    /// What it is.
    pub version: ServerVersion,
    /// What it has applied or written.
    pub executed: GtidSet,
    /// What its binary logs no longer hold.
    pub purged: GtidSet,
    /// It gives GTIDs to what it writes, and has a binary log, by which its own writes are known. A replica of MySQL that takes no writes
    /// needs no binary log for that.
    pub tells: bool,
    /// MariaDB: `gtid_strict_mode`.
    pub is_strict: bool,
}

/// What a comparison shows.
#[derive(Debug, Clone, PartialEq)]
pub enum Proof {
    /// It has nothing that the writer lacks, and the writer can hand on all that it lacks.
    Clean,
    /// It has these transactions, and the writer has not.
    Extra(GtidSet),
    /// The writer's binary logs no longer hold these transactions, which it lacks.
    Purged(GtidSet),
    /// It cannot be told; why.
    Unknown(String),
}

/// Compares a server that takes no writes, and was read first, with the writer. `fork` is what the writer had when it took over; `others`
/// are what the other members call themselves, and `is_former` says that this server is known to have written under an earlier role.
pub fn prove(server: &Holding, writer: &Holding, fork: Option<&Fork>, others: &[ServerId], is_former: bool) -> Proof {
    let unknown = |why: &str| Proof::Unknown(why.to_owned());
    match () {
        () if server.id == ServerId::default() || writer.id == ServerId::default() => {
            return unknown("a server does not tell its server_uuid or server_id");
        }
        () if server.id.is_same(&writer.id) => {
            return unknown("it has the writer's own server_uuid or server_id: it is the writer, or a copy of it");
        }
        () if server.version.is_mariadb != writer.version.is_mariadb => return unknown("it is of another kind than the writer"),
        () if others.iter().any(|other| other.is_same(&server.id)) => {
            return unknown("another server has the same server_uuid or server_id");
        }
        () if !server.tells => return unknown("it writes no GTIDs or has no binary log, so what it wrote itself is not known"),
        () if !writer.tells => return unknown("the writer writes no GTIDs or has no binary log"),
        () => {}
    }
    let (lacks, unclear) = server.executed.apart_from(&writer.executed);
    let past = if writer.version.is_mariadb { past_fork(server, writer, fork, others, is_former) } else { GtidSet::default() };
    let extra = lacks.with(&past);
    match () {
        () if !extra.is_empty() => Proof::Extra(extra),
        () if !unclear.is_empty() => Proof::Unknown(format!(
            "the writer names no transaction of these servers, so it cannot be told whether it has theirs: {}",
            shown(&unclear)
        )),
        () if writer.version.is_mariadb && fork.is_none() && !writer.is_strict => unknown(
            "gtid_strict_mode of the writer is OFF and the proxy has not seen how it took over, so equal numbers prove nothing: set it to ON",
        ),
        () if !server.executed.contains(&writer.purged) => Proof::Purged(writer.purged.without_all_of(&server.executed)),
        () => Proof::Clean,
    }
}

/// MariaDB: numbers of former writers beyond those that the present one had when it took over. Whatever it has by now, it did not get these.
fn past_fork(server: &Holding, writer: &Holding, fork: Option<&Fork>, others: &[ServerId], is_former: bool) -> GtidSet {
    let Some(fork) = fork else { return GtidSet::default() };
    let own = server.id.number.filter(|number| is_former || fork.had.names(*number));
    let others = others.iter().filter_map(|id| id.number).filter(|number| fork.had.names(*number));
    let numbers = own.into_iter().chain(others).filter(|number| Some(*number) != writer.id.number);
    numbers.fold(GtidSet::default(), |all, number| all.with(&server.executed.writes_past(number, &fork.had)))
}

/// What earlier looks left of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trail {
    /// It wrote under an earlier role, and has not followed the present writer since.
    pub is_former: bool,
    /// Somebody stopped or reset its replication while its source lived, or before this proxy looked.
    pub is_left: bool,
    /// It was closed, its clients are gone, and it has been closed since.
    pub is_settled: bool,
    /// It has not followed the writer for so long, ms.
    pub astray_ms: u64,
    /// Time since the last attempt, ms.
    pub tried_ms: Option<u64>,
    /// Attempts that failed in a row.
    pub failures: u32,
    /// Why the last one failed.
    pub failed: String,
}

/// What a server is to the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It follows the writer, or a server that does.
    Follows,
    /// It does not answer.
    Silent,
    /// It is left as it is: somebody stopped it, its applier has an error, or it is not a matter of this cluster.
    Left,
    /// A former writer that is not proved clean yet.
    Outcast,
    /// A replica of another server than the writer.
    Stray,
    /// It has transactions that the writer lacks.
    Errant,
    /// It has to be rebuilt from the writer.
    Rebuild,
    /// It cannot be told what it has.
    Unknown,
    /// Attempts failed; an operator has to look.
    Failed,
}

impl Standing {
    /// As tables name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Follows => "follows",
            Self::Silent => "silent",
            Self::Left => "left",
            Self::Outcast => "outcast",
            Self::Stray => "stray",
            Self::Errant => "errant",
            Self::Rebuild => "rebuild",
            Self::Unknown => "unknown",
            Self::Failed => "failed",
        }
    }
}

/// What is found of one server.
#[derive(Debug, Clone, PartialEq)]
pub struct Tended {
    /// Which.
    pub addr: ServerAddr,
    /// What it is.
    pub standing: Standing,
    /// Why, or what it waits for; empty where all is well.
    pub why: String,
    /// It must serve no reads: a former writer that does not follow.
    pub is_out: bool,
    /// What it has and the writer lacks, as far as the looks tell.
    pub extra: GtidSet,
    /// Something would be done about it now.
    pub is_due: bool,
}

/// Every server beside the writer, in the order of the facts. `pause` is why nothing is begun in this cluster now.
pub fn tend(facts: &Facts, trails: &BTreeMap<ServerAddr, Trail>, fork: Option<&Fork>, pause: Option<&str>) -> Vec<Tended> {
    let Some(primary) = &facts.primary else { return Vec::new() };
    let scene = Scene { facts, primary, fork, pause };
    let nothing = Trail::default();
    facts.replicas.iter().map(|replica| scene.tended(replica, trails.get(&replica.addr).unwrap_or(&nothing))).collect()
}

/// The one that is taken next: former writers first, those that acknowledge commits last.
pub fn next<'a>(facts: &Facts, tended: &'a [Tended]) -> Option<&'a Tended> {
    let is_acker = |addr: &ServerAddr| facts.replicas.iter().any(|replica| replica.addr == *addr && replica.is_acker);
    tended.iter().filter(|one| one.is_due).min_by_key(|one| (!one.is_out, is_acker(&one.addr), one.addr.clone()))
}

struct Scene<'a> {
    facts: &'a Facts,
    primary: &'a Primary,
    fork: Option<&'a Fork>,
    pause: Option<&'a str>,
}

/// What is wrong with a server, before brakes.
enum Found {
    Rests(Standing, String),
    /// A former writer.
    Former,
    /// A former writer that replicates from the writer, by whatever hand.
    Returned,
    /// A former writer whose replication from the writer somebody stopped.
    Halted,
    /// A replica of another server.
    Astray(String),
}

impl Scene<'_> {
    fn tended(&self, replica: &Replica, trail: &Trail) -> Tended {
        let rest = |standing, why: String| Tended {
            addr: replica.addr.clone(),
            standing,
            why,
            is_out: false,
            extra: GtidSet::default(),
            is_due: false,
        };
        match self.find(replica, trail) {
            Found::Rests(Standing::Silent, why) => Tended { is_out: trail.is_former, ..rest(Standing::Silent, why) },
            Found::Rests(standing, why) => rest(standing, why),
            Found::Former => self.judged(replica, trail, Tended { is_out: true, ..rest(Standing::Outcast, String::new()) }),
            Found::Returned => self.returned(replica, trail, rest(Standing::Follows, String::new())),
            Found::Halted => {
                let why = "somebody stopped its replication: start it, or ADOPT SERVER".to_owned();
                Tended { is_out: true, ..rest(Standing::Outcast, why) }
            }
            Found::Astray(_) if replica.is_open => {
                rest(Standing::Left, "it is writable (read_only=0): close it, so that it can be compared with the writer".to_owned())
            }
            Found::Astray(why) => self.judged(replica, trail, rest(Standing::Stray, why)),
        }
    }

    fn find(&self, replica: &Replica, trail: &Trail) -> Found {
        if let Some(why) = &replica.silence {
            return Found::Rests(Standing::Silent, format!("it does not answer: {why}"));
        }
        let left = |why: String| Found::Rests(Standing::Left, why);
        let Some(channel) = &replica.channel else {
            return match () {
                () if trail.is_former => Found::Former,
                () if replica.is_open && self.has_written(replica) => left(
                    "it is writable and wrote, but this proxy did not see it write for the cluster: close it (read_only=1), then ADOPT SERVER"
                        .to_owned(),
                ),
                () if trail.is_left => left("it replicates from nobody, and nobody knows why: ADOPT SERVER takes it back".to_owned()),
                () => Found::Astray("it replicates from nobody".to_owned()),
            };
        };
        if let Some(code) = channel.applier.error.filter(|_| channel.applier.state == LinkState::Stopped) {
            return left(format!("its applier has stopped with error {code}: repair it and start it"));
        }
        // The proxy would name the source, which resets the file and the position.
        let by_file = || left(format!("it replicates from {} by file and position: switch it to GTIDs", channel.source));
        let is_stopped = [&channel.receiver, &channel.applier].iter().any(|thread| thread.state == LinkState::Stopped);
        match () {
            () if channel.is_from_primary && !is_stopped && trail.is_former => Found::Returned,
            () if channel.is_from_primary && !is_stopped => Found::Rests(Standing::Follows, String::new()),
            () if channel.is_from_primary && trail.is_former && trail.is_left => Found::Halted,
            () if trail.is_former => Found::Former,
            () if replica.channels > 1 => left("it has several channels within the cluster".to_owned()),
            () if is_stopped && trail.is_left => {
                left("somebody stopped its replication: it is taken back once it is started, or by ADOPT SERVER".to_owned())
            }
            () if channel.is_from_primary && !channel.is_by_gtid => by_file(),
            () if channel.is_from_primary => self.stopped(channel),
            () if !self.is_member(&channel.source) => {
                left(format!("it replicates from {}, which is not a server of the cluster", channel.source))
            }
            () if self.leads_to_writer(replica) => Found::Rests(Standing::Follows, format!("through {}", channel.source)),
            () if !channel.is_by_gtid => by_file(),
            () => Found::Astray(format!("it replicates from {}, not from {}", channel.source, self.primary.addr)),
        }
    }

    /// A channel from the writer of which a thread stands still, and nobody is known to have stopped it.
    fn stopped(&self, channel: &Channel) -> Found {
        let code = |thread: &LinkThread| thread.error.filter(|_| thread.state == LinkState::Stopped);
        match code(&channel.receiver) {
            Some(code) if !channel.receiver.has_lost_source() => {
                Found::Rests(Standing::Left, format!("its receiver has stopped with error {code}: repair it and start it"))
            }
            _ => Found::Astray(format!("its replication from {} has stopped", self.primary.addr)),
        }
    }

    fn is_member(&self, addr: &ServerAddr) -> bool {
        self.primary.addr.is_same(addr) || self.facts.replicas.iter().any(|replica| replica.addr.is_same(addr))
    }

    /// Whether its source, or a source of that, follows the writer. A ring ends it.
    fn leads_to_writer(&self, replica: &Replica) -> bool {
        let mut at = replica;
        for _ in 0..self.facts.replicas.len() {
            let Some(channel) = at.channel.as_ref() else { return false };
            if channel.is_from_primary {
                return channel.receiver.state != LinkState::Stopped && channel.applier.state != LinkState::Stopped;
            }
            let is_source = |other: &&Replica| other.addr.is_same(&channel.source);
            let Some(source) = self.facts.replicas.iter().find(is_source).filter(|source| source.silence.is_none()) else { return false };
            at = source;
        }
        false
    }

    fn has_written(&self, replica: &Replica) -> bool {
        replica.executed != replica.executed.without_writes_of(&replica.id)
    }

    /// What a comparison by the looks says, then what the brakes say.
    fn judged(&self, replica: &Replica, trail: &Trail, one: Tended) -> Tended {
        let proof = self.proof(replica, trail);
        let extra = match &proof {
            Proof::Extra(extra) => extra.clone(),
            _ => GtidSet::default(),
        };
        let one = Tended { extra, ..one };
        // Whatever a former writer seems to have: it is closed and its clients are ended before it is believed.
        let is_read = !one.is_out || trail.is_settled;
        match self.fault(&proof).filter(|_| is_read) {
            Some((standing, why)) => Tended { standing, why, ..one },
            None if one.is_out
                && let Some(other) = self.follower_of(replica) =>
            {
                let why = format!("{other} replicates from it, so it may still be a writer: point {other} elsewhere");
                Tended { why, ..one }
            }
            None => self.braked(trail, one),
        }
    }

    /// Its channel runs, which alone proves nothing: MySQL lets a server with other transactions follow.
    fn returned(&self, replica: &Replica, trail: &Trail, one: Tended) -> Tended {
        let proof = self.proof(replica, trail);
        let Some((standing, why)) = self.fault(&proof) else { return one };
        let extra = if let Proof::Extra(extra) = proof { extra } else { GtidSet::default() };
        Tended { standing, why, extra, is_out: true, ..one }
    }

    /// What a proof says against a server; None if it is clean.
    fn fault(&self, proof: &Proof) -> Option<(Standing, String)> {
        let writer = &self.primary.addr;
        match proof {
            Proof::Clean => None,
            Proof::Extra(extra) => Some((Standing::Errant, format!("it has transactions that {writer} lacks: {}", shown(extra)))),
            Proof::Purged(purged) => {
                let why =
                    format!("{writer} has purged transactions that it lacks: {}. Rebuild it from a copy of the writer", shown(purged));
                Some((Standing::Rebuild, why))
            }
            Proof::Unknown(why) => Some((Standing::Unknown, why.clone())),
        }
    }

    /// An answering replica that receives from this server: another tool may have promoted it, or this proxy sees a part of the cluster only.
    fn follower_of(&self, server: &Replica) -> Option<&ServerAddr> {
        let receives = |channel: &Channel| channel.receiver.state == LinkState::Runs && channel.source.is_same(&server.addr);
        let mut others = self.facts.replicas.iter().filter(|other| other.addr != server.addr && other.silence.is_none());
        others.find(|other| other.channel.as_ref().is_some_and(receives)).map(|other| &other.addr)
    }

    fn proof(&self, replica: &Replica, trail: &Trail) -> Proof {
        let primary = self.primary;
        let server = Holding {
            id: replica.id.clone(),
            version: replica.version,
            executed: replica.received.clone(),
            purged: replica.purged.clone(),
            tells: replica.has_gtids && (replica.logs || !(replica.version.is_mariadb || trail.is_former || replica.is_open)),
            is_strict: false,
        };
        let executed = primary.latest.as_ref().or(primary.executed.as_ref()).cloned().unwrap_or_default();
        let writer = Holding {
            id: primary.id.clone(),
            version: primary.version,
            executed,
            purged: primary.purged.clone(),
            tells: true,
            is_strict: primary.is_strict,
        };
        prove(&server, &writer, self.fork, &self.ids(&replica.addr), trail.is_former)
    }

    fn ids(&self, but: &ServerAddr) -> Vec<ServerId> {
        self.facts.replicas.iter().filter(|other| other.addr != *but && other.silence.is_none()).map(|other| other.id.clone()).collect()
    }

    fn braked(&self, trail: &Trail, one: Tended) -> Tended {
        // No other tool is at work where this proxy promoted the writer itself.
        let is_replaced = self.fork.is_some_and(|fork| fork.is_noted && fork.from.contains(&one.addr));
        let calm_ms = if is_replaced { 0 } else { CALM_MS };
        let needed_ms = if one.is_out { calm_ms } else { ASTRAY_MS };
        let pause_ms = match trail.failures {
            0 if one.is_out => CALM_MS,
            0 => APART_MS,
            failures => (BACKOFF_MS << (failures - 1).min(ATTEMPTS)).max(if one.is_out { 0 } else { APART_MS }),
        };
        let waits_ms = trail.tried_ms.map_or(0, |tried_ms| pause_ms.saturating_sub(tried_ms));
        let add = |why: String| if one.why.is_empty() { why } else { format!("{}: {why}", one.why) };
        let failed = || if trail.failed.is_empty() { String::new() } else { format!(". The last attempt failed: {}", trail.failed) };
        match () {
            () if trail.failures >= ATTEMPTS => {
                let why = format!("{ATTEMPTS} attempts failed, and the proxy waits for you (ADOPT SERVER){}", failed());
                Tended { standing: Standing::Failed, why, ..one }
            }
            () if let Some(pause) = self.pause => Tended { why: add(pause.to_owned()), ..one },
            () if trail.astray_ms < needed_ms => Tended { why: add(format!("the proxy waits for {} s first", needed_ms / 1_000)), ..one },
            () if waits_ms > 0 => Tended { why: add(format!("the next attempt is in {} s{}", waits_ms.div_ceil(1_000), failed())), ..one },
            () => Tended { is_due: true, ..one },
        }
    }
}
