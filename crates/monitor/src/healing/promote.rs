//! The promotion of a replica where the writer is dead (mode `full`), from round to round: whether it begins, what became of it, and the
//! rights that it needs.
//!
//! INVARIANT: at most one promotion of a cluster is under way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::snapshot::{Healing, HealingMode, ReadOnlyCheck, Server};
use model::{HostgroupId, ServerAddr};
use tokio::task::JoinHandle;
use topology::healing::{
    Brakes, Choice, Death, Due, Facts, Heir, Lease, Phase, Record, Settled, Standing, Stopped, Tended, Turn, Verdict, due, is_gone, settle,
    turn,
};

use super::by_hand::Ordered;
use super::hooks;
use super::orders::unix_ms;
use super::thaw::Thaw;
use crate::clock::whole;
use crate::monitor::{Monitor, lock};
use crate::operator::{Promote, Promotion, Tenure, Unable, lacks_right, promote};

/// Rights are asked for again after so long.
const RIGHTS: Duration = Duration::from_secs(60);
/// And after so long where a server did not say.
const RIGHTS_UNKNOWN: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub(super) struct Promoting {
    /// Since when this proxy looks at the cluster.
    looks: Instant,
    /// Plans for the present death that failed, and when the last one did.
    failures: u32,
    failed: Option<(Instant, String)>,
    /// When etcd said last that no server is about to be opened; None while this process has not seen that.
    unforked: Option<Instant>,
    /// The plan whose server was seen to refuse connections, since when, and for how long it can have taken writes before, ms.
    refused: Option<(String, Instant, u64)>,
    /// Servers that failed in those plans, see [`Promote::unable`].
    unable: Unable,
    /// The last acknowledgement in the record that was taken up, Unix ms.
    acknowledged_ms: u64,
    work: Option<JoinHandle<Promotion>>,
    /// The order of the plan that is under way, if an operator gave one.
    pub(super) ordered: Option<Ordered>,
    asking: Option<JoinHandle<BTreeMap<ServerAddr, Right>>>,
    /// When rights are asked for again; at once for None.
    ask_at: Option<Instant>,
    thawing: Option<JoinHandle<()>>,
    /// The record is tidied up.
    tidying: Option<JoinHandle<()>>,
    /// Rights that are missing, by server.
    rights: BTreeMap<ServerAddr, String>,
    last: String,
}

/// The right that a server lacks, None if it has them all; or why that is not known.
type Right = Result<Option<String>, String>;

/// What is shown of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Healed {
    /// Why nothing is begun though the writer is dead, or would not be if it died.
    pub(super) blocked: Option<String>,
    /// When that may end, ms.
    pub(super) next_ms: Option<u64>,
    /// A plan is under way.
    pub(super) is_under_way: bool,
    /// Another proxy heals.
    pub(super) other: Option<String>,
}

/// The cluster, as far as a promotion needs it.
pub(super) struct Field<'a> {
    pub(super) policy: &'a Healing,
    pub(super) servers: &'a [Arc<Server>],
    pub(super) check: Option<ReadOnlyCheck>,
}

impl Promoting {
    /// Nothing was tried.
    pub(super) fn new() -> Self {
        let (looks, rights, last) = (Instant::now(), BTreeMap::new(), String::new());
        let (thawing, tidying) = (None, None);
        Self {
            looks,
            failures: 0,
            failed: None,
            unforked: None,
            refused: None,
            unable: Unable::default(),
            acknowledged_ms: 0,
            work: None,
            ordered: None,
            asking: None,
            ask_at: None,
            thawing,
            tidying,
            rights,
            last,
        }
    }

    /// What became of the last plan.
    pub(super) fn last(&self) -> String {
        self.last.clone()
    }

    /// The right that is missing on a server.
    pub(super) fn lacks(&self, server: &ServerAddr) -> Option<String> {
        self.rights.get(server).cloned()
    }

    /// Why a server could not be promoted for this death.
    pub(super) fn unable(&self, server: &ServerAddr) -> Option<String> {
        lock(&self.unable).get(server).cloned()
    }

    /// Begins a plan where that is due. None in other modes.
    pub(super) async fn round(
        &mut self,
        monitor: &Arc<Monitor>,
        field: &Field<'_>,
        (facts, choice): (&Facts, &Choice),
        verdict: Verdict,
        tended: &[Tended],
    ) -> Option<Healed> {
        let writer = field.policy.writer;
        self.take_outcome(writer).await;
        let lease = monitor.lease(writer);
        let record = monitor.record(writer).0;
        let heir = self.heir(&lease, &record, facts, field.policy);
        // In every mode: a mode that was changed leaves no channel stopped.
        if self.work.is_none() {
            self.thaw(monitor, field, facts, (&lease, &record, heir));
        }
        if lease.is_own() && field.policy.mode.takes_back() {
            self.tidy(monitor, writer, &record, verdict, tended);
        }
        let is_acknowledged = self.take_acknowledged(&record);
        if monitor.healing.take_acknowledged(writer) || is_acknowledged || verdict == Verdict::Alive {
            (self.failures, self.failed) = (0, None);
            lock(&self.unable).clear();
        }
        if self.work.is_some() && self.ordered.is_some() {
            return Some(Healed::under_way());
        }
        if self.work.is_none() && self.obey(monitor, field, facts, verdict, (&lease, &record)) {
            return Some(Healed::under_way());
        }
        if field.policy.mode != HealingMode::Full {
            self.rights.clear();
            self.ask_at = None;
            return None;
        }
        self.ask_for_rights(monitor, field, facts).await;
        if self.work.is_some() {
            return Some(Healed::under_way());
        }
        // The plan runs when this round has ended, so that it finds this verdict on the board.
        let (death, brakes) = (self.death(&lease, &record), self.brakes(monitor, field));
        let now = match (turn(&lease, &record), &lease) {
            // What would hold everybody.
            (Turn::Wait(_), Lease::Other(Some(_))) => due(Verdict::Alive, choice, &death, &brakes),
            (Turn::Wait(why), Lease::New(wait_ms)) => Due::Blocked(why, Some(*wait_ms)),
            (Turn::Wait(why), _) => Due::Blocked(why, None),
            (Turn::Settle, _) => Due::Blocked(unsettled(&record, heir), None),
            (Turn::Begin, _) => due(verdict, choice, &death, &brakes),
        };
        let is_under_way = now == Due::Now && self.begin(monitor, field, facts, record, None);
        let (blocked, next_ms) = match now {
            Due::Blocked(why, ms) => (Some(why), ms),
            Due::Rest | Due::Now => (None, None),
        };
        let other = if let Lease::Other(other) = lease { other } else { None };
        Some(Healed { blocked, next_ms, is_under_way, other })
    }

    /// Whether an operator has acknowledged the cluster on any proxy since the last time. The record is empty while it is not known.
    fn take_acknowledged(&mut self, record: &Record) -> bool {
        let is_new = record.acknowledged_ms > self.acknowledged_ms;
        self.acknowledged_ms = self.acknowledged_ms.max(record.acknowledged_ms);
        is_new
    }

    /// Whether this proxy would heal the cluster, of several. In other modes than `full`, only to set semi-synchronous replication up, and to
    /// end what a plan has left: channels that are stopped, and outcasts that follow by now.
    pub(super) fn would_lead(&self, monitor: &Monitor, policy: &Healing, verdict: Verdict) -> bool {
        let record = monitor.record(policy.writer).0;
        let has_left = !record.stopped.is_empty() || (policy.mode.takes_back() && !record.outcasts.is_empty());
        // Programs are run by one proxy.
        let has_hooks = policy.mode.takes_back() && hooks::has_any(monitor, policy.writer);
        let is_wanted = policy.mode == HealingMode::Full || policy.manages_acks() || monitor.healing.is_ordered(policy.writer);
        let is_due = is_wanted || has_left || has_hooks;
        // A proxy that sees too few servers is no healer.
        let sees = is_due && !matches!(verdict, Verdict::Blind | Verdict::Unknown);
        monitor.shares_healing() && monitor.keeps_files() && (sees || self.work.is_some())
    }

    /// Plans of all proxies count, where there are several.
    fn death(&self, lease: &Lease, record: &Record) -> Death {
        if *lease != Lease::Alone {
            // Its own failure may not be in the record.
            let own = self.failed.as_ref().map(|(when, why)| (whole(when.elapsed().as_millis()), why));
            let told = (record.failures > 0).then(|| (unix_ms().saturating_sub(record.failed_ms), &record.failed));
            let last = own.into_iter().chain(told).min_by_key(|(ms, _)| *ms);
            let (failed_ms, why) = last.map_or((None, String::new()), |(ms, why)| (Some(ms), why.clone()));
            return Death { failures: record.failures.max(u32::from(failed_ms.is_some())), failed_ms, why };
        }
        let failed_ms = self.failed.as_ref().map(|(when, _)| whole(when.elapsed().as_millis()));
        let why = self.failed.as_ref().map(|(_, why)| why.clone()).unwrap_or_default();
        Death { failures: self.failures, failed_ms, why }
    }

    pub(super) fn brakes(&self, monitor: &Monitor, field: &Field<'_>) -> Brakes {
        let writer = field.policy.writer;
        let promoted = monitor.promoted(writer);
        let busy = match () {
            () if !monitor.keeps_files() => Some("another process of this proxy is in charge".to_owned()),
            () if field.check.is_none() => Some("the hostgroup is no cluster of mysql_replication_hostgroups".to_owned()),
            () if self.thawing.as_ref().is_some_and(|thawing| !thawing.is_finished()) => {
                Some("channels that an earlier plan stopped are started first".to_owned())
            }
            () => lock(&monitor.claims).is_taken(writer).then(|| "other work on the cluster is under way".to_owned()),
        };
        Brakes {
            looked_ms: whole(self.looks.elapsed().as_millis()),
            suspended: monitor.suspended(writer).or_else(|| hooks::obstacle(monitor, writer)),
            promoted_ms: promoted.map(|(ms, _)| ms),
            is_acknowledged: promoted.is_some_and(|(_, is_acknowledged)| is_acknowledged),
            block_ms: field.policy.block_ms,
            dead_clusters: monitor.healing.others_lost(writer).saturating_add(1),
            max_clusters: monitor.snapshot().healing_max_clusters,
            busy,
        }
    }

    /// What became of the plan.
    async fn take_outcome(&mut self, writer: HostgroupId) {
        let Some(work) = self.work.take_if(|work| work.is_finished()) else { return };
        let promotion = work.await.unwrap_or_else(|e| Promotion::Failed(format!("the work has ended: {e}")));
        if let Some(ordered) = self.ordered.take() {
            ordered.tell(match &promotion {
                Promotion::Done(told) => Ok(told.clone()),
                Promotion::Failed(why) => Err(why.clone()),
            });
        }
        match promotion {
            Promotion::Done(told) => (self.failures, self.failed, self.last) = (0, None, told),
            Promotion::Failed(why) => {
                tracing::warn!("healing of hostgroup {writer}: {why}");
                self.failures += 1;
                self.last.clone_from(&why);
                self.failed = Some((Instant::now(), why));
            }
        }
    }

    /// False if the writer is not known.
    pub(super) fn begin(
        &mut self,
        monitor: &Arc<Monitor>,
        field: &Field<'_>,
        facts: &Facts,
        seen: Record,
        ordered: Option<&Ordered>,
    ) -> bool {
        let known = |addr: &ServerAddr| field.servers.iter().find(|server| server.key.addr() == *addr).cloned();
        let Some(primary) = &facts.primary else { return false };
        let (Some(old), Some(check)) = (known(&primary.addr), field.check) else { return false };
        let answering = facts.replicas.iter().filter(|replica| replica.silence.is_none());
        let plan = Promote {
            hostgroup: field.policy.writer,
            old,
            servers: answering.filter_map(|replica| known(&replica.addr)).collect(),
            check,
            channels: channels(facts),
            apply_ms: field.policy.apply_ms,
            unable: Arc::clone(&self.unable),
            seen,
            wish: ordered.map(|ordered| ordered.wish.clone()),
        };
        if let Some(ordered) = ordered {
            monitor.note_order_to_heal(field.policy.writer, ordered.by(), &ordered.wish);
        }
        let (monitor, orders) = (Arc::clone(monitor), Arc::clone(&monitor.orders));
        self.work = Some(tokio::spawn(async move {
            let _under_way = orders.read().await;
            promote(&monitor, plan).await
        }));
        true
    }

    /// Puts back what an earlier plan left, one attempt at a time, where its servers answer and do not write.
    fn thaw(&mut self, monitor: &Arc<Monitor>, field: &Field<'_>, facts: &Facts, (lease, record, heir): (&Lease, &Record, Heir)) {
        let writer = field.policy.writer;
        if self.thawing.as_ref().is_some_and(|thawing| !thawing.is_finished()) || !monitor.keeps_files() {
            return;
        }
        if lease.refusal().is_some() {
            return;
        }
        // What work of this proxy has stopped, it starts itself: ending its connections would break it off.
        if lock(&monitor.claims).is_taken(writer) {
            return;
        }
        let own = monitor.healing.orders.left(writer);
        let all = Thaw::all(field, facts, &own, lease, (record.clone(), heir));
        if all.is_empty() {
            return;
        }
        let (monitor, tenure) = (Arc::clone(monitor), Tenure::new(monitor, writer));
        self.thawing = Some(tokio::spawn(async move {
            for thaw in all {
                thaw.run(&monitor, &tenure, writer).await;
            }
        }));
    }

    /// What is seen of the server that a plan of another healer promotes.
    fn heir(&mut self, lease: &Lease, record: &Record, facts: &Facts, policy: &Healing) -> Heir {
        let now = Instant::now();
        // Without etcd, another healer may be further than the record says.
        if record.phase != Phase::Fork && !matches!(lease, Lease::Away(_) | Lease::Own(0)) {
            self.unforked = Some(now);
        }
        let refuses = |heir: &ServerAddr| facts.replicas.iter().any(|one| one.addr == *heir && one.refuses);
        let seen = heir_of(record, facts);
        if record.phase != Phase::Fork || seen != Heir::Silent || !record.heir.as_ref().is_some_and(refuses) {
            self.refused = None;
            return seen;
        }
        let before = self.refused.take().filter(|(plan, ..)| *plan == record.plan);
        let (plan, since, reign_ms) = before.unwrap_or_else(|| (record.plan.clone(), now, self.reign_ms(record, now)));
        let is_gone = is_gone(policy, whole(now.saturating_duration_since(since).as_millis()), reign_ms);
        self.refused = Some((plan, since, reign_ms));
        if is_gone { Heir::Gone } else { seen }
    }

    /// The longest that the server of a plan can have taken writes until now, ms: since this process saw the cluster before the point of no
    /// return. The time that the healer wrote is by another machine's clock, so it can only make that longer.
    fn reign_ms(&self, record: &Record, now: Instant) -> u64 {
        let seen_ms = self.unforked.map_or(u64::MAX, |seen| whole(now.saturating_duration_since(seen).as_millis()));
        seen_ms.max(unix_ms().saturating_sub(record.promoted_ms))
    }

    /// Takes out of the record what is over.
    fn tidy(&mut self, monitor: &Arc<Monitor>, writer: HostgroupId, record: &Record, verdict: Verdict, tended: &[Tended]) {
        if verdict != Verdict::Alive || self.tidying.as_ref().is_some_and(|tidying| !tidying.is_finished()) {
            return;
        }
        let over = proved(record, tended);
        if over.is_empty() && record.failures == 0 {
            return;
        }
        let monitor = Arc::clone(monitor);
        self.tidying = Some(tokio::spawn(async move {
            let written = monitor.write_record(writer, true, move |record| {
                record.outcasts.retain(|out| !over.contains(out));
                record.failures = 0;
                Ok(())
            });
            if let Err(why) = written.await {
                tracing::debug!("healing of hostgroup {writer}: {why}");
            }
        }));
    }

    /// So that a missing right is known before it is needed.
    async fn ask_for_rights(&mut self, monitor: &Arc<Monitor>, field: &Field<'_>, facts: &Facts) {
        if let Some(asking) = self.asking.take_if(|asking| asking.is_finished()) {
            let said = asking.await.unwrap_or_default();
            let again = if said.values().any(Result::is_err) { RIGHTS_UNKNOWN } else { RIGHTS };
            self.ask_at = Some(Instant::now() + again);
            self.rights = missing(&self.rights, said);
        }
        if self.asking.is_some() || self.ask_at.is_some_and(|at| Instant::now() < at) {
            return;
        }
        let is_asked = |server: &&Arc<Server>| facts.replicas.iter().any(|one| one.addr == server.key.addr() && one.silence.is_none());
        let servers: Vec<Arc<Server>> = field.servers.iter().filter(is_asked).cloned().collect();
        let monitor = Arc::clone(monitor);
        self.asking = Some(tokio::spawn(async move {
            let mut said = BTreeMap::new();
            for server in servers {
                said.insert(server.key.addr(), lacks_right(&monitor, &server).await);
            }
            said
        }));
    }
}

/// The outcasts of the record that follow the writer and are proved to have nothing else.
pub(super) fn proved(record: &Record, tended: &[Tended]) -> Vec<ServerAddr> {
    let follows = |out: &ServerAddr| tended.iter().any(|one| one.addr == *out && one.standing == Standing::Follows && !one.is_out);
    record.outcasts.iter().filter(|out| follows(out)).cloned().collect()
}

/// What a look says of the server that a plan promotes.
pub(super) fn heir_of(record: &Record, facts: &Facts) -> Heir {
    let Some(heir) = &record.heir else { return Heir::Silent };
    if facts.primary.as_ref().is_some_and(|primary| primary.addr == *heir) {
        return if facts.is_alive { Heir::Open } else { Heir::Silent };
    }
    let found = facts.replicas.iter().find(|one| one.addr == *heir && one.silence.is_none());
    found.map_or(Heir::Silent, |heir| Heir::of(heir.is_open))
}

/// Why a plan of another healer is first brought to its end.
pub(super) fn unsettled(record: &Record, heir: Heir) -> String {
    match settle(record, heir) {
        Settled::Unclear(why) => why,
        Settled::Undone | Settled::Opened => format!("the plan of {} is brought to its end first", record.healer),
    }
}

/// The plan did not fail: the next one may begin at once.
const LONG_AGO: u64 = 0;

/// A plan that another proxy left is over, and this is left of what it stopped. Returns whether the promotion ends by that: its server
/// writes, and no proxy had written so before. Errors: another plan has begun, or it is not known what became of this one.
pub(super) fn settle_record(now: &mut Record, plan: &str, left: &[Stopped], heir: Heir) -> Result<bool, String> {
    if now.plan != plan {
        return Err("another plan has begun".to_owned());
    }
    if matches!(now.phase, Phase::Rest | Phase::Open) {
        now.stopped = left.to_vec();
        return Ok(false);
    }
    let settled = settle(now, heir);
    let is_opened = settled == Settled::Opened;
    match settled {
        Settled::Opened => now.open(),
        Settled::Undone => {
            let unseen = now.heir.clone().filter(|_| matches!(heir, Heir::Silent | Heir::Gone));
            now.undo("the proxy that healed was lost in the middle", left.to_vec(), LONG_AGO);
            // No other server waits for it; but it may have been opened.
            now.outcasts.extend(unseen);
        }
        Settled::Unclear(why) => return Err(why),
    }
    now.stopped.retain(|one| left.contains(one));
    Ok(is_opened)
}

/// The channels by which servers replicate from the dead writer.
fn channels(facts: &Facts) -> Vec<(ServerAddr, String)> {
    let channels = facts.replicas.iter().filter_map(|one| Some((one.addr.clone(), one.channel.as_ref()?)));
    channels.filter(|(_, channel)| channel.is_from_primary).map(|(addr, channel)| (addr, channel.name.clone())).collect()
}

/// The rights that are missing. Of a server that did not say, what was known of it before.
fn missing(before: &BTreeMap<ServerAddr, String>, said: BTreeMap<ServerAddr, Right>) -> BTreeMap<ServerAddr, String> {
    let right = |(addr, said): (ServerAddr, Right)| {
        let lacks = said.unwrap_or_else(|_| before.get(&addr).cloned())?;
        Some((addr, lacks))
    };
    said.into_iter().filter_map(right).collect()
}

/// What a look after a change found.
#[derive(Debug, Clone)]
pub(crate) struct Looked {
    pub(crate) verdict: Verdict,
    pub(crate) facts: Facts,
    pub(crate) choice: Choice,
}

/// What a look finds that begins after this call. None if there is none within `limit`.
pub(crate) async fn look_again(monitor: &Arc<Monitor>, writer: HostgroupId, limit: Duration) -> Option<Looked> {
    let (monitor, until) = (Arc::clone(monitor), Instant::now() + limit);
    let seen = tokio::task::spawn_blocking(move || monitor.healing.seen_anew(writer, until)).await.ok().flatten()?;
    Some(Looked { verdict: seen.verdict, facts: seen.facts, choice: seen.choice })
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::healing::{Channel, LinkThread, Replica};

    fn addr(host: &str) -> ServerAddr {
        ServerAddr { host: host.into(), port: 3306 }
    }

    #[test]
    fn only_a_server_that_says_so_lacks_a_right() {
        let before = BTreeMap::from([(addr("b"), "old".to_owned()), (addr("c"), "old".to_owned())]);
        let said = BTreeMap::from([
            (addr("a"), Ok(Some("new".to_owned()))),
            (addr("b"), Ok(None)),
            (addr("c"), Err("timeout".to_owned())),
            (addr("d"), Err("too many connections".to_owned())),
        ]);
        let wanted = BTreeMap::from([(addr("a"), "new".to_owned()), (addr("c"), "old".to_owned())]);
        assert_eq!(missing(&before, said), wanted);
    }

    #[test]
    fn an_acknowledgement_on_another_proxy_counts_once() {
        let (mut promoting, mut record) = (Promoting::new(), Record::default());
        assert!(!promoting.take_acknowledged(&record));
        record.acknowledge(7);
        assert!(promoting.take_acknowledged(&record) && !promoting.take_acknowledged(&record));
        assert!(!promoting.take_acknowledged(&Record::default()), "etcd does not answer");
        assert!(!promoting.take_acknowledged(&record), "it is the same");
        record.acknowledge(7);
        assert!(promoting.take_acknowledged(&record));
    }

    #[test]
    fn a_plan_of_another_healer_is_brought_to_its_end() {
        let stopped = |host: &str| Stopped::receiver(addr(host), String::new(), Some(addr("a")));
        let at = |phase: Phase| {
            let mut record = Record::default();
            record.begin("p", "one", &addr("a"), vec![stopped("b"), stopped("c")]);
            if phase == Phase::Fork {
                record.fork(&addr("b"), topology::GtidSet::default(), 5);
            }
            record
        };
        let settled = |mut record: Record, heir| {
            settle_record(&mut record, "p", &[stopped("c")], heir)?;
            Ok::<_, String>(record)
        };
        let undone = settled(at(Phase::Plan), Heir::Silent).unwrap();
        assert_eq!((undone.phase, undone.failures, undone.failed_ms), (Phase::Rest, 1, LONG_AGO));
        assert_eq!(undone.stopped, [stopped("c")], "a server that did not answer");
        let opened = settled(at(Phase::Fork), Heir::Open).unwrap();
        assert_eq!((opened.phase, &opened.outcasts[..], &opened.stopped[..]), (Phase::Open, &[addr("a")][..], &[stopped("c")][..]));
        let undone = settled(at(Phase::Fork), Heir::Closed).unwrap();
        assert!(undone.phase == Phase::Rest && undone.outcasts.is_empty());
        assert!(settled(at(Phase::Fork), Heir::Silent).unwrap_err().contains("may have opened b:3306"));
        let mut told = at(Phase::Fork);
        told.acknowledge(6);
        let undone = settled(told, Heir::Silent).unwrap();
        assert_eq!((undone.phase, &undone.outcasts[..]), (Phase::Rest, &[addr("b")][..]), "it may have been opened");
        let gone = settled(at(Phase::Fork), Heir::Gone).unwrap();
        assert_eq!((gone.phase, &gone.outcasts[..], gone.promoted_ms), (Phase::Rest, &[addr("b")][..], 0), "another one may be promoted");
        assert_eq!(settle_record(&mut at(Phase::Plan), "q", &[], Heir::Silent).unwrap_err(), "another plan has begun");

        let mut twice = at(Phase::Fork);
        let mut opens = || settle_record(&mut twice, "p", &[], Heir::Open);
        assert_eq!([opens(), opens()], [Ok(true), Ok(false)], "the programs of `after` run once");
        assert_eq!(settle_record(&mut at(Phase::Plan), "p", &[], Heir::Open), Ok(false));
        // What its own healer could not write when it opened the server, it writes when it is done.
        let mut done = at(Phase::Fork);
        done.end(vec![stopped("c")]);
        assert_eq!((done.phase, &done.stopped[..]), (Phase::Open, &[stopped("c")][..]));
        assert_eq!(settle_record(&mut done, "p", &[], Heir::Open), Ok(false), "that healer has run them");

        let replica = |is_open| Replica { silence: None, is_open, ..Replica::silent(addr("b"), "") };
        let facts = |replica| Facts { replicas: vec![replica], ..Facts::default() };
        let record = at(Phase::Fork);
        assert_eq!(heir_of(&record, &facts(replica(true))), Heir::Open);
        assert_eq!(heir_of(&record, &facts(replica(false))), Heir::Closed);
        assert_eq!(heir_of(&record, &facts(Replica::silent(addr("b"), "gone"))), Heir::Silent);
        assert_eq!(heir_of(&Record::default(), &facts(replica(true))), Heir::Silent);
    }

    #[test]
    fn an_heir_is_given_up_by_this_machines_clock() {
        let shared = "admin_variables = { healing_alone=true }
            mysql_servers = ( { address=\"a\", hostgroup=10 } )
            mysql_replication_hostgroups = ( { writer_hostgroup=10, reader_hostgroup=11 } )
            mysql_healing = ( { writer_hostgroup=10, mode=\"full\", loss=\"reported\", max_lost_ms=10000 } )";
        let snapshot = crate::testing::snapshot(shared);
        let policy = &snapshot.healing[&HostgroupId(10)];
        let facts = Facts { replicas: vec![Replica { refuses: true, ..Replica::silent(addr("b"), "refused") }], ..Facts::default() };
        let mut record = Record::default();
        record.begin("p", "one", &addr("a"), Vec::new());
        let before = record.clone();
        record.fork(&addr("b"), topology::GtidSet::default(), unix_ms());
        let other = Lease::Other(Some("one".to_owned()));
        let ago = |ms| Instant::now().checked_sub(Duration::from_millis(ms));
        // What is seen of the heir after it has refused for 11 s. `reign_ms`: before it did, the record had a fork for so long.
        let judged = |reign_ms: Option<u64>, promoted_ms: u64| {
            let mut promoting = Promoting::new();
            promoting.unforked = reign_ms.and_then(ago);
            let record = Record { promoted_ms, ..record.clone() };
            assert_eq!(promoting.heir(&other, &record, &facts, policy), Heir::Silent);
            promoting.refused = promoting.refused.take().and_then(|(plan, _, reign_ms)| Some((plan, ago(11_000)?, reign_ms)));
            promoting.heir(&other, &record, &facts, policy)
        };
        assert_eq!(judged(Some(1_000), unix_ms()), Heir::Gone);
        assert_eq!(judged(Some(40_000), unix_ms() + 40_000), Heir::Silent, "the healer's clock was ahead");
        assert_eq!(judged(Some(1_000), unix_ms() - 40_000), Heir::Silent, "it was behind, or the record came late");
        assert_eq!(judged(None, unix_ms() + 40_000), Heir::Silent, "nobody knows for how long it wrote");

        let mut promoting = Promoting::new();
        for (lease, is_known) in [(Lease::Away("gone".to_owned()), false), (Lease::Own(0), false), (other.clone(), true)] {
            promoting.heir(&lease, &before, &facts, policy);
            assert_eq!(promoting.unforked.is_some(), is_known, "{lease:?}");
        }
        let seen = promoting.unforked;
        promoting.heir(&other, &record, &facts, policy);
        assert_eq!(promoting.unforked, seen, "it is past the point of no return");
    }

    /// A change of semi-synchronous replication writes the receiver down that it stops.
    #[tokio::test]
    async fn what_work_of_this_proxy_stopped_is_left_to_it() {
        let shared = "admin_variables = { healing_alone=true }
            mysql_servers = ( { address=\"a\", hostgroup=10 } )
            mysql_replication_hostgroups = ( { writer_hostgroup=10, reader_hostgroup=11 } )
            mysql_healing = ( { writer_hostgroup=10, mode=\"full\" } )";
        let snapshot = crate::testing::snapshot(shared);
        let servers = [crate::testing::server("b", 3306)];
        let field = Field { policy: &snapshot.healing[&HostgroupId(10)], servers: &servers, check: None };
        let facts = Facts { replicas: vec![Replica { silence: None, ..Replica::silent(addr("b"), "") }], ..Facts::default() };
        let stopped = vec![Stopped::receiver(addr("b"), String::new(), Some(addr("a")))];
        let record = Record { stopped, ..Record::default() };
        let (monitor, mut promoting, lease) = (Monitor::new(), Promoting::new(), Lease::Own(9));
        let claim = crate::operator::claimed(&monitor, HostgroupId(10)).unwrap();
        promoting.thaw(&monitor, &field, &facts, (&lease, &record, Heir::Silent));
        assert!(promoting.thawing.is_none());
        drop(claim);
        promoting.thaw(&monitor, &field, &facts, (&lease, &record, Heir::Silent));
        assert!(promoting.thawing.is_some());
    }

    #[test]
    fn a_replica_of_a_replica_is_left_alone() {
        let replica = |host: &str, is_from_primary| {
            let (receiver, applier) = (LinkThread::default(), LinkThread::default());
            let channel = Channel {
                name: "x".to_owned(),
                source: addr("a"),
                is_from_primary,
                is_by_gtid: true,
                position: String::new(),
                receiver,
                applier,
                delay_s: 0,
                has_filters: false,
                lag_ms: None,
                heard_ms: None,
                heartbeat_ms: None,
            };
            Replica { channel: Some(channel), ..Replica::silent(addr(host), "") }
        };
        let facts = Facts { replicas: vec![replica("b", true), replica("c", false)], ..Facts::default() };
        assert_eq!(channels(&facts), [(addr("b"), "x".to_owned())]);
    }
}
