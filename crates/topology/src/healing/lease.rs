//! Several proxies before one cluster: whose turn it is to heal it, what the record of the last plan says, and what follows from it for the
//! proxies that do not heal.
//!
//! etcd holds a lease (the healer) and a record for each cluster. The record's epoch is the revision of etcd that wrote it last: it only grows.
//! INVARIANT: a proxy counts its lease as lost before etcd gives it to another one.

use model::ServerAddr;
use model::snapshot::{Healing, Loss};
use serde::{Deserialize, Serialize};

use super::stopped::Stopped;
use crate::gtids::GtidSet;

/// The lease of a healer ends so long after the last renewal, ms.
pub const TTL_MS: u64 = 6_000;
/// A proxy stops so much earlier: clocks drift, and a statement takes its time, ms.
const MARGIN_MS: u64 = 1_500;

/// What a new healer still has to wait, by the time since it learnt that it heals, ms. etcd that was wiped, or restored from a backup, gives
/// a lease away that another proxy still counts as its own. By then that one is over.
pub fn waits_ms(obtained_ms: u64) -> u64 {
    TTL_MS.saturating_sub(obtained_ms)
}

/// What is left of a lease whose last successful renewal was sent so long ago, ms.
pub fn left_ms(sent_ms: u64) -> u64 {
    (TTL_MS - MARGIN_MS).saturating_sub(sent_ms)
}

/// Whether this proxy may heal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Lease {
    /// It is the only proxy, by the operator's word.
    #[default]
    Alone,
    /// It does not know who heals; why.
    Away(String),
    /// Another proxy heals, if any does.
    Other(Option<String>),
    /// It heals from then on, ms: a healer before it may still act.
    New(u64),
    /// It heals, for so long, ms.
    Own(u64),
}

impl Lease {
    /// Why no step of a plan may be done now.
    pub fn refusal(&self) -> Option<String> {
        match self {
            Self::Alone | Self::Own(1..) => None,
            Self::New(ms) => {
                Some(format!("this proxy became the healer just now, and waits {} s until an earlier one has stopped", ms.div_ceil(1_000)))
            }
            Self::Own(0) => Some("this proxy could not renew its lease as the healer in time".to_owned()),
            Self::Away(why) => Some(format!("{why}: without etcd no proxy promotes")),
            Self::Other(Some(healer)) => Some(format!("{healer} heals this cluster")),
            Self::Other(None) => Some("no proxy holds the lease of the healer yet".to_owned()),
        }
    }

    /// What is left of it, ms; None where it has no end.
    pub fn left_ms(&self) -> Option<u64> {
        match self {
            Self::Alone => None,
            Self::Own(left_ms) => Some(*left_ms),
            Self::Away(_) | Self::Other(_) | Self::New(_) => Some(0),
        }
    }

    /// Whether this proxy holds it.
    pub fn is_own(&self) -> bool {
        matches!(self, Self::Own(1..))
    }
}

/// How far a plan is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// No plan is under way.
    #[default]
    Rest,
    /// Servers were changed; none was opened.
    Plan,
    /// The point of no return: the heir may have been opened.
    Fork,
    /// The heir writes.
    Open,
}

/// `SUSPEND HEALING`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspension {
    /// Unix ms; None until `RESUME HEALING`.
    pub until_ms: Option<u64>,
    /// The operator.
    pub by: String,
}

impl Suspension {
    /// Whether it is in force.
    pub fn holds(&self, now_ms: u64) -> bool {
        self.until_ms.is_none_or(|until_ms| now_ms < until_ms)
    }

    /// In words; `resume` ends it.
    pub fn told(&self, now_ms: u64, resume: &str) -> String {
        let end = match self.until_ms {
            None => format!("until {resume}"),
            Some(until_ms) => format!("for {} s more", until_ms.saturating_sub(now_ms).div_ceil(1_000)),
        };
        format!("{} suspended healing {end}", self.by)
    }
}

/// A promotion that a later one replaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Promoted {
    /// When it was, Unix ms; 0 for never.
    pub at_ms: u64,
    /// An operator has acknowledged it.
    pub is_acknowledged: bool,
}

/// What all proxies know of the healing of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// How far the last plan is.
    pub phase: Phase,
    /// Its id.
    pub plan: String,
    /// The proxy whose plan it is.
    pub healer: String,
    /// The server that it promotes, from [`Phase::Fork`] on.
    pub heir: Option<ServerAddr>,
    /// The writer that it replaces.
    pub from: Option<ServerAddr>,
    /// What the heir had before its first write.
    pub had: GtidSet,
    /// Channels that the plan stopped, until they run again.
    pub stopped: Vec<Stopped>,
    /// Servers that wrote in an earlier epoch and are not proved clean.
    pub outcasts: Vec<ServerAddr>,
    /// When a server was last promoted, Unix ms; 0 for never.
    pub promoted_ms: u64,
    /// An operator has acknowledged that promotion.
    pub is_acknowledged: bool,
    /// The same of the promotion before, from [`Phase::Fork`] on: it holds again if the plan is undone.
    pub before: Promoted,
    /// When an operator acknowledged last, Unix ms; 0 for never. It grows each time, whatever the clocks of the proxies say.
    pub acknowledged_ms: u64,
    /// Plans for the present death that failed.
    pub failures: u32,
    /// When the last one did, Unix ms.
    pub failed_ms: u64,
    /// Why it failed.
    pub failed: String,
    /// An operator does not want this cluster to be healed.
    pub suspended: Option<Suspension>,
}

impl Record {
    /// Why a server may not write, whatever it says of itself.
    pub fn bars(&self, epoch: i64, server: &ServerAddr) -> Option<String> {
        let is_heir = self.heir.as_ref().is_some_and(|heir| heir.is_same(server));
        match &self.heir {
            _ if is_heir => None,
            Some(heir) if self.phase == Phase::Fork => {
                Some(format!("excluded from writes: {} promotes {heir} (epoch {epoch} in etcd)", self.healer))
            }
            _ if self.outcasts.iter().any(|out| out.is_same(server)) => {
                let heir = self.heir.as_ref().map(|heir| format!("{heir} took over from it")).unwrap_or_default();
                Some(format!(
                    "excluded: {heir} (epoch {epoch} in etcd), and it is not proved to have nothing else. It is let in when it follows the \
                     writer, or by ACKNOWLEDGE HEALING"
                ))
            }
            _ => None,
        }
    }

    /// A plan begins: these channels are about to be stopped, or were left so.
    pub fn begin(&mut self, plan: &str, healer: &str, from: &ServerAddr, stopped: Vec<Stopped>) {
        (self.phase, self.plan, self.healer) = (Phase::Plan, plan.to_owned(), healer.to_owned());
        (self.from, self.heir, self.stopped) = (Some(from.clone()), None, stopped);
        self.had = GtidSet::default();
    }

    /// The point of no return.
    pub fn fork(&mut self, heir: &ServerAddr, had: GtidSet, now_ms: u64) {
        (self.phase, self.heir, self.had) = (Phase::Fork, Some(heir.clone()), had);
        self.before = Promoted { at_ms: self.promoted_ms, is_acknowledged: self.is_acknowledged };
        (self.promoted_ms, self.is_acknowledged) = (now_ms, false);
        self.outcasts.retain(|out| !out.is_same(heir));
        if let Some(from) = self.from.clone().filter(|from| !self.outcasts.contains(from)) {
            self.outcasts.push(from);
        }
    }

    /// The heir writes.
    pub fn open(&mut self) {
        self.phase = Phase::Open;
        let heir = self.heir.clone();
        self.stopped.retain(|one| Some(&one.server) != heir.as_ref());
        (self.failures, self.failed) = (0, String::new());
    }

    /// The plan is over and the heir writes, also if that could not be written when it was opened. `left` is still stopped.
    pub fn end(&mut self, left: Vec<Stopped>) {
        if self.phase == Phase::Fork {
            self.open();
        }
        self.stopped = left;
    }

    /// No server was opened; what is `left` was not undone yet.
    pub fn undo(&mut self, why: &str, left: Vec<Stopped>, now_ms: u64) {
        if self.phase == Phase::Fork {
            let from = self.from.clone();
            self.outcasts.retain(|out| Some(out) != from.as_ref());
            let before = std::mem::take(&mut self.before);
            self.promoted_ms = before.at_ms;
            // An operator who acknowledged meanwhile has seen that one too.
            self.is_acknowledged |= before.is_acknowledged;
        }
        (self.phase, self.heir, self.had, self.stopped) = (Phase::Rest, None, GtidSet::default(), left);
        self.fail(why, now_ms);
    }

    /// A plan failed.
    pub fn fail(&mut self, why: &str, now_ms: u64) {
        (self.failures, self.failed_ms, self.failed) = (self.failures.saturating_add(1), now_ms, why.to_owned());
    }

    /// An operator has looked: another promotion may follow, failed plans count no more, and former writers are left to what each proxy sees.
    pub fn acknowledge(&mut self, now_ms: u64) {
        (self.is_acknowledged, self.failures) = (true, 0);
        self.acknowledged_ms = now_ms.max(self.acknowledged_ms.saturating_add(1));
        self.failed.clear();
        if self.phase != Phase::Fork {
            self.outcasts.clear();
        }
    }
}

/// What the proxy does about a writer that is dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// Nothing; why.
    Wait(String),
    /// Another healer's plan did not end: it is settled first.
    Settle,
    /// Its own plan may begin.
    Begin,
}

/// Whether this proxy may begin a plan. `record` is what is known of the last one.
pub fn turn(lease: &Lease, record: &Record) -> Turn {
    if let Some(why) = lease.refusal() {
        return Turn::Wait(why);
    }
    match record.phase {
        _ if *lease == Lease::Alone => Turn::Begin,
        Phase::Rest | Phase::Open => Turn::Begin,
        Phase::Plan | Phase::Fork => Turn::Settle,
    }
}

/// What became of a plan that another healer left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// No server was opened.
    Undone,
    /// The heir writes.
    Opened,
    /// Nobody knows; why.
    Unclear(String),
}

/// What is seen of the server that a plan promotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heir {
    /// It takes writes.
    Open,
    /// It takes none.
    Closed,
    /// It does not answer.
    Silent,
    /// No server has run there for so long, and so soon after the plan's point of no return, that another one may be promoted.
    Gone,
}

impl Heir {
    /// Of a server that answers.
    pub fn of(is_open: bool) -> Self {
        if is_open { Self::Open } else { Self::Closed }
    }
}

/// A host that refuses connections for so long runs no server that another proxy could be writing to, ms. It is longer than `dead_ms` has to
/// be: a server that restarts refuses for some seconds.
const GONE_MS: u64 = 10_000;

/// Whether a server that was about to be promoted is given up. `refused_ms` is the time for which its host has refused connections, and
/// `reign_ms` the longest that it can have taken writes: from the point of no return until it was first seen to refuse; `u64::MAX` if that is
/// not known. What it took in that time is lost, and nobody can count it.
pub fn is_gone(policy: &Healing, refused_ms: u64, reign_ms: u64) -> bool {
    let is_accepted = match policy.loss {
        Loss::None => false,
        Loss::Reported => reign_ms <= policy.max_lost_ms,
        Loss::Any => true,
    };
    is_accepted && refused_ms >= GONE_MS.max(policy.dead_ms)
}

/// What became of it, where the healer's connections are ended.
pub fn settle(record: &Record, seen: Heir) -> Settled {
    match (record.phase, &record.heir, seen) {
        (Phase::Rest | Phase::Plan, ..) => Settled::Undone,
        (Phase::Open, ..) | (Phase::Fork, _, Heir::Open) => Settled::Opened,
        (Phase::Fork, _, Heir::Closed | Heir::Gone) | (Phase::Fork, None, Heir::Silent) => Settled::Undone,
        // The operator's word.
        (Phase::Fork, ..) if record.is_acknowledged => Settled::Undone,
        (Phase::Fork, Some(heir), Heir::Silent) => Settled::Unclear(format!(
            "{} may have opened {heir}, which does not answer: look at it first, then ACKNOWLEDGE HEALING",
            record.healer
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::HostgroupId;
    use model::snapshot::{HealingMode, SemiSyncRule, SiteRule};

    fn at(host: &str) -> ServerAddr {
        ServerAddr { host: host.into(), port: 1 }
    }

    fn had() -> GtidSet {
        GtidSet::parse("0-1-7").unwrap()
    }

    /// A record at each phase of a plan that promotes b in place of a.
    fn record(phase: Phase) -> Record {
        let mut record = Record::default();
        if phase != Phase::Rest {
            let stopped = ["b", "c"].map(|host| Stopped::receiver(at(host), String::new(), Some(at("a"))));
            record.begin("p", "one", &at("a"), stopped.to_vec());
        }
        if matches!(phase, Phase::Fork | Phase::Open) {
            record.fork(&at("b"), had(), 5);
        }
        if phase == Phase::Open {
            record.open();
        }
        record
    }

    #[test]
    fn a_lease_is_over_before_etcd_ends_it() {
        for (sent_ms, wanted) in [(0, 4_500), (1_000, 3_500), (4_499, 1), (4_500, 0), (6_000, 0), (u64::MAX, 0)] {
            assert_eq!(left_ms(sent_ms), wanted, "{sent_ms}");
            assert!(left_ms(sent_ms) + sent_ms <= TTL_MS - MARGIN_MS || wanted == 0);
        }
    }

    /// Whatever became of etcd: no renewal of an earlier healer was sent after the new one has made its key.
    #[test]
    fn an_earlier_healer_has_stopped_when_a_new_one_begins() {
        for obtained_ms in 0..10_000 {
            assert!(left_ms(obtained_ms) == 0 || waits_ms(obtained_ms) > MARGIN_MS, "{obtained_ms}");
        }
        assert_eq!([waits_ms(0), waits_ms(5_999), waits_ms(6_000), waits_ms(u64::MAX)], [6_000, 1, 0, 0]);
    }

    #[test]
    fn who_may_begin() {
        let table = [
            (Lease::Alone, record(Phase::Rest), "begin"),
            (Lease::Alone, record(Phase::Fork), "begin"),
            (Lease::Own(1), record(Phase::Rest), "begin"),
            (Lease::Own(1), record(Phase::Plan), "settle"),
            (Lease::Own(1), record(Phase::Fork), "settle"),
            (Lease::Own(1), record(Phase::Open), "begin"),
            (Lease::Own(0), record(Phase::Rest), "in time"),
            (Lease::New(5_001), record(Phase::Rest), "waits 6 s until an earlier one has stopped"),
            (Lease::Other(Some("two".into())), record(Phase::Rest), "two heals this cluster"),
            (Lease::Other(None), record(Phase::Rest), "no proxy holds"),
            (Lease::Away("etcd is gone".into()), record(Phase::Rest), "etcd is gone: without etcd no proxy promotes"),
        ];
        for (lease, record, wanted) in table {
            let found = match turn(&lease, &record) {
                Turn::Begin => "begin".to_owned(),
                Turn::Settle => "settle".to_owned(),
                Turn::Wait(why) => why,
            };
            assert!(found.contains(wanted), "{lease:?} {:?}: {found}", record.phase);
            assert_eq!(lease.is_own(), lease == Lease::Own(1));
        }
    }

    #[test]
    fn who_may_write_at_each_phase() {
        let table = [
            (Phase::Rest, [true, true, true]),
            (Phase::Plan, [true, true, true]),
            (Phase::Fork, [false, true, false]),
            (Phase::Open, [false, true, true]),
        ];
        for (phase, wanted) in table {
            let record = record(phase);
            let may = ["a", "b", "c"].map(|host| record.bars(9, &at(host)).is_none());
            assert_eq!(may, wanted, "{phase:?}");
        }
        let why = record(Phase::Open).bars(9, &at("a")).unwrap();
        assert!(why.contains("b:1 took over from it (epoch 9 in etcd)"), "{why}");
    }

    #[test]
    fn a_plan_that_was_left_is_settled_by_what_its_heir_says() {
        let opened = |phase| settle(&record(phase), Heir::Open);
        assert_eq!(Phase::Rest, Record::default().phase);
        assert_eq!([opened(Phase::Plan), opened(Phase::Fork), opened(Phase::Open)], [Settled::Undone, Settled::Opened, Settled::Opened]);
        assert_eq!(settle(&record(Phase::Fork), Heir::Closed), Settled::Undone);
        assert_eq!(settle(&record(Phase::Plan), Heir::Silent), Settled::Undone);
        assert_eq!(settle(&record(Phase::Fork), Heir::Gone), Settled::Undone);
        assert_eq!(settle(&record(Phase::Open), Heir::Gone), Settled::Opened);
        assert_eq!(settle(&record(Phase::Open), Heir::Silent), Settled::Opened);
        let Settled::Unclear(why) = settle(&record(Phase::Fork), Heir::Silent) else { panic!("unclear") };
        assert!(why.contains("one may have opened b:1"), "{why}");
        let mut told = record(Phase::Fork);
        told.acknowledge(6);
        assert_eq!(settle(&told, Heir::Silent), Settled::Undone);
        assert_eq!(told.outcasts, [at("a")], "its plan is not over");
    }

    #[test]
    fn a_server_that_is_gone_is_given_up_as_the_operator_accepts_its_loss() {
        let policy = |loss| Healing {
            writer: HostgroupId(1),
            mode: HealingMode::Full,
            dead_ms: 4_000,
            votes: 0,
            apply_ms: 60_000,
            loss,
            max_lost_ms: 8_000,
            site: SiteRule::Same,
            min_replicas: 0,
            block_ms: 0,
            semi_sync: SemiSyncRule::Keep,
            acks: 1,
        };
        let table = [
            (Loss::Any, 9_999, 0, false),
            (Loss::Any, 10_000, 60_000, true),
            (Loss::Reported, 10_000, 8_000, true),
            (Loss::Reported, 10_000, 8_001, false),
            (Loss::None, 60_000, 0, false),
        ];
        for (loss, refused_ms, reign_ms, wanted) in table {
            assert_eq!(is_gone(&policy(loss), refused_ms, reign_ms), wanted, "{loss:?} {refused_ms} {reign_ms}");
        }
        let slow = Healing { dead_ms: 60_000, ..policy(Loss::Any) };
        assert!(!is_gone(&slow, 59_999, 0) && is_gone(&slow, 60_000, 0));
    }

    #[test]
    fn a_plan_that_fails_leaves_what_was_before() {
        let mut tried = record(Phase::Fork);
        assert_eq!((tried.outcasts.clone(), tried.promoted_ms, tried.had.clone()), (vec![at("a")], 5, had()));
        tried.undo("why", Vec::new(), 7);
        assert_eq!((tried.phase, tried.heir.clone(), tried.outcasts.len(), tried.promoted_ms), (Phase::Rest, None, 0, 0));
        assert_eq!((tried.failures, tried.failed_ms, tried.failed.as_str()), (1, 7, "why"));
        tried.acknowledge(9);
        assert_eq!((tried.failures, tried.acknowledged_ms), (0, 9));
        tried.acknowledge(8);
        assert_eq!(tried.acknowledged_ms, 10, "by a clock that is behind");
        let mut done = record(Phase::Open);
        assert_eq!(done.stopped.len(), 1, "the heir's channel is not started any more");
        done.acknowledge(9);
        assert!(done.is_acknowledged && done.outcasts.is_empty());
        // The promotion before the undone one holds again.
        for (was, meanwhile, wanted) in [(false, false, false), (true, false, true), (false, true, true)] {
            let mut second = record(Phase::Open);
            second.is_acknowledged = was;
            second.begin("q", "two", &at("b"), Vec::new());
            second.fork(&at("c"), had(), 9);
            assert_eq!((second.promoted_ms, second.is_acknowledged), (9, false));
            if meanwhile {
                second.acknowledge(10);
            }
            second.undo("why", Vec::new(), 11);
            assert_eq!((second.promoted_ms, second.is_acknowledged), (5, wanted), "{was} {meanwhile}");
        }
        // An outcast that is promoted is none.
        let mut back = record(Phase::Open);
        back.begin("q", "two", &at("b"), Vec::new());
        back.fork(&at("a"), had(), 9);
        assert_eq!(back.outcasts, [at("b")]);
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for phase in [Phase::Rest, Phase::Plan, Phase::Fork, Phase::Open] {
            let text = serde_json::to_string(&record(phase)).unwrap();
            assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record(phase), "{text}");
        }
        assert_eq!(serde_json::from_str::<Record>("{}").unwrap(), Record::default());
        assert!(serde_json::from_str::<Record>("{\"phase\": \"opening\"}").is_err());
    }
}
