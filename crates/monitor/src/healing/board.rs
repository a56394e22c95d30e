//! What was found at the last look, for operators: tables, metrics, events. It has a place for each row of `mysql_healing` that is in
//! force, no more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use model::snapshot::Healing as Policy;
use model::stats::{Metric, MetricKind, Sample, Value};
use model::{HostgroupId, ServerAddr};
use tokio::sync::Notify;
use topology::healing::{Assessed, Choice, Facts, Lost, Managed, Replica, Tended, Verdict, shown};
use topology::{Event, EventKind};

use super::by_hand;
use super::errant::{self, Read};
use super::orders::Orders;
use super::promote::Healed;
use crate::clock::whole;
use crate::monitor::{Monitor, lock};

/// Looks in a row that have to say the same before another choice is an event, while the one before is possible too: under load each look
/// may find another replica a little ahead.
const NEWS_AFTER: u32 = 3;
/// What an operator wants of a server or a cluster is forgotten after so long if no look has taken it up.
const WISH: Duration = Duration::from_secs(60);
/// Writers that are lost within this time may be lost for one reason.
const TOGETHER: Duration = Duration::from_secs(60);

/// What one look found.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// The row in force.
    pub(super) policy: Arc<Policy>,
    pub(super) verdict: Verdict,
    pub(super) facts: Facts,
    pub(super) choice: Choice,
    /// What `HEAL HOSTGROUP ... FORCE LOSING` would lose, where only what may be lost forbids a promotion.
    pub(super) forced: Option<Lost>,
    /// What each other server is to the writer, in the order of the facts; empty in modes that take nobody back.
    pub(super) tended: Vec<Tended>,
    /// What was read of servers that have transactions which the writer lacks.
    pub(super) errant: BTreeMap<ServerAddr, Arc<Read>>,
    /// What promotions wait for; None in other modes than `full`.
    pub(super) healed: Option<Healed>,
    /// Semi-synchronous replication; None where the proxy does not set it up.
    pub(super) acks: Option<Managed>,
    /// Of several proxies: the one that heals, and the epoch of the record.
    pub(super) healer: Option<String>,
    pub(super) epoch: Option<i64>,
    /// What became of the last plan.
    pub(super) last_plan: String,
    /// This proxy would heal the cluster.
    pub(super) would_lead: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Healing {
    /// Operators' orders, kept over restarts.
    pub(crate) orders: Orders,
    /// Servers that an operator has taken back, until the next look at them.
    pub(super) returned: Mutex<BTreeSet<ServerAddr>>,
    /// Promotions that an operator ordered and that have not begun.
    pub(super) by_hand: Mutex<by_hand::Orders>,
    board: Mutex<Board>,
    /// A look is over.
    looked: Condvar,
    due: Notify,
}

#[derive(Debug, Default)]
struct Board {
    clusters: BTreeMap<HostgroupId, Line>,
    /// Servers that the operator wants taken back, until the next look at them.
    adopted: BTreeMap<ServerAddr, Instant>,
    /// Clusters whose failed plans the operator has acknowledged, until the next look at them.
    acknowledged: BTreeMap<HostgroupId, Instant>,
    /// How often it was said that everything is to be looked at.
    asked: u64,
    /// The same when the last look that is over began.
    looked: u64,
}

#[derive(Debug)]
struct Line {
    seen: Seen,
    /// Since when the verdict is this one.
    since: Instant,
    /// Looks since the row was loaded.
    looks: u64,
    /// What operators were told, and how often something else was found since.
    told: Option<ServerAddr>,
    other: u32,
    /// When the writer was last seen as dead, or as about to be.
    lost: Option<Instant>,
}

impl Seen {
    fn chosen(&self) -> Option<&ServerAddr> {
        self.choice.plan.as_ref().ok().map(|plan| &plan.candidate)
    }

    fn is_eligible(&self, server: &ServerAddr) -> bool {
        self.choice.servers.iter().any(|one| one.addr == *server && one.is_eligible)
    }

    /// Whether servers are taken back.
    fn tends(&self) -> bool {
        self.policy.mode.takes_back()
    }

    /// A promotion is under way: its steps change what is found of the servers.
    fn is_under_way(&self) -> bool {
        self.healed.as_ref().is_some_and(|healed| healed.is_under_way)
    }

    /// Why no server would be promoted: by the choice, or by a brake of mode `full`.
    fn blocked_by(&self) -> Option<String> {
        if self.is_under_way() {
            return None;
        }
        let chosen = self.choice.plan.as_ref().err().map(ToString::to_string);
        let brake = self.healed.as_ref().and_then(|healed| healed.blocked.clone()).filter(|brake| chosen.as_ref() != Some(brake));
        match (brake, chosen) {
            (Some(brake), Some(chosen)) => Some(format!("{brake}; {chosen}")),
            (brake, chosen) => brake.or(chosen),
        }
    }

    /// What the proxy does next by itself.
    fn next_step(&self) -> String {
        match (&self.healed, self.verdict, self.chosen()) {
            (Some(_), ..) if self.is_under_way() => "a promotion is under way".to_owned(),
            (Some(healed), Verdict::Dead, _) if healed.blocked.is_some() => "wait: see blocked_by".to_owned(),
            (Some(healed), Verdict::Dead | Verdict::Suspected, _) if let Some(other) = &healed.other => {
                format!("wait: {other} heals this cluster")
            }
            (Some(_), Verdict::Dead | Verdict::Suspected, Some(server)) => format!("promote {server}"),
            _ => String::new(),
        }
    }

    /// One line: what would follow now.
    fn advice(&self) -> String {
        match &self.facts.primary {
            Some(primary) if self.is_under_way() => format!("{} is dead: a promotion is under way", primary.addr),
            Some(primary) => self.choice.line(&primary.addr, self.verdict == Verdict::Dead),
            None => Verdict::Unknown.meaning().to_owned(),
        }
    }
}

impl Healing {
    /// Everything is to be looked at now.
    pub(crate) fn look_now(&self) {
        lock(&self.board).asked += 1;
        self.due.notify_one();
    }

    /// A look at everything begins: what is handed to [`Healing::looked`] when it is over.
    pub(super) fn begin(&self) -> u64 {
        lock(&self.board).asked
    }

    /// It is over.
    pub(super) fn looked(&self, begun: u64) {
        lock(&self.board).looked = begun;
        self.looked.notify_all();
    }

    /// Waits until that is said.
    pub(super) async fn due(&self) {
        self.due.notified().await;
    }

    /// Only these have a place.
    pub(super) fn forget(&self, listed: &[HostgroupId]) {
        lock(&self.board).clusters.retain(|writer, _| listed.contains(writer));
    }

    /// What the last look at a cluster found. Waits for one that began after the last configuration and role change, at most until then.
    /// Blocks.
    pub(super) fn seen(&self, writer: HostgroupId, until: Instant) -> Option<Seen> {
        let board = lock(&self.board);
        let (asked, limit) = (board.asked, until.saturating_duration_since(Instant::now()));
        let waited = self.looked.wait_timeout_while(board, limit, |board| board.looked < asked).unwrap_or_else(PoisonError::into_inner);
        waited.0.clusters.get(&writer).map(|line| line.seen.clone())
    }

    /// What a look finds that begins after this call; None if there is none until then. Blocks.
    pub(super) fn seen_anew(&self, writer: HostgroupId, until: Instant) -> Option<Seen> {
        self.look_now();
        let board = lock(&self.board);
        let (asked, limit) = (board.asked, until.saturating_duration_since(Instant::now()));
        let waited = self.looked.wait_timeout_while(board, limit, |board| board.looked < asked).unwrap_or_else(PoisonError::into_inner);
        if waited.1.timed_out() { None } else { waited.0.clusters.get(&writer).map(|line| line.seen.clone()) }
    }

    /// What is known of the writer of a cluster.
    pub(crate) fn verdict(&self, writer: HostgroupId) -> Option<Verdict> {
        lock(&self.board).clusters.get(&writer).map(|line| line.seen.verdict)
    }

    /// How many other clusters have lost their writers lately.
    pub(super) fn others_lost(&self, writer: HostgroupId) -> u64 {
        let board = lock(&self.board);
        let is_lost = |line: &Line| line.lost.is_some_and(|lost| lost.elapsed() < TOGETHER);
        whole(board.clusters.iter().filter(|(id, line)| **id != writer && is_lost(line)).count() as u128)
    }

    /// The clusters that this proxy would heal, of several proxies.
    pub(super) fn would_lead(&self) -> BTreeSet<HostgroupId> {
        let board = lock(&self.board);
        board.clusters.iter().filter(|(_, line)| line.seen.would_lead).map(|(writer, _)| *writer).collect()
    }

    /// Whether the operator has acknowledged it since the last time.
    pub(super) fn take_acknowledged(&self, writer: HostgroupId) -> bool {
        lock(&self.board).acknowledged.remove(&writer).is_some_and(|at| at.elapsed() < WISH)
    }

    /// Notes what a look found: what is news, as the state before and after, and why.
    fn note(&self, seen: Seen) -> Vec<News> {
        let mut board = lock(&self.board);
        let mut news = Vec::new();
        let writer = seen.policy.writer;
        let before = board.clusters.remove(&writer);
        let was = before.as_ref().map(|line| line.seen.verdict);
        let lost = before.as_ref().and_then(|line| line.lost);
        if was != Some(seen.verdict) {
            let from = was.map_or("", Verdict::as_str).to_owned();
            news.push((from, seen.verdict.as_str().to_owned(), seen.verdict.meaning().to_owned()));
        }
        let (since, looks, told, other) = match before {
            None => (Instant::now(), 0, None, NEWS_AFTER),
            Some(line) => {
                let since = if was == Some(seen.verdict) { line.since } else { Instant::now() };
                (since, line.looks, line.told, line.other)
            }
        };
        let is_as_told = seen.chosen() == told.as_ref() && looks > 0;
        let other = if is_as_told { 0 } else { other.saturating_add(1) };
        let is_possible = told.as_ref().is_some_and(|told| seen.is_eligible(told));
        let is_news = !seen.is_under_way() && !is_as_told && (!is_possible || other >= NEWS_AFTER);
        if is_news {
            let name = |server: Option<&ServerAddr>| server.map_or_else(|| "nobody".to_owned(), ToString::to_string);
            let from = if looks == 0 { String::new() } else { format!("would promote {}", name(told.as_ref())) };
            let why = match &seen.choice.plan {
                Ok(plan) => plan.because.clone(),
                Err(blocked) => blocked.to_string(),
            };
            news.push((from, format!("would promote {}", name(seen.chosen())), why));
        }
        let (told, other) = if is_news { (seen.chosen().cloned(), 0) } else { (told, other) };
        let is_lost = matches!(seen.verdict, Verdict::Dead | Verdict::Suspected);
        let lost = if is_lost { Some(Instant::now()) } else { lost };
        board.clusters.insert(writer, Line { seen, since, looks: looks + 1, told, other, lost });
        news
    }

    /// The rows of `stats_tidegate_healing`.
    pub(crate) fn clusters(&self) -> Vec<Vec<Value>> {
        lock(&self.board).clusters.values().map(cluster).collect()
    }

    /// The rows of `stats_tidegate_healing_servers`.
    pub(crate) fn servers(&self) -> Vec<Vec<Value>> {
        lock(&self.board).clusters.values().flat_map(|line| servers(&line.seen)).collect()
    }

    /// A server is to be taken back, whatever was seen of it before.
    pub(crate) fn adopt(&self, server: &ServerAddr) -> Result<String, String> {
        let mut board = lock(&self.board);
        let is_beside = |seen: &Seen| seen.tends() && seen.tended.iter().any(|one| one.addr == *server);
        if !board.clusters.values().any(|line| is_beside(&line.seen)) {
            return Err(format!(
                "{server} is not beside the writer of a cluster in mysql_healing with mode 'rejoin': nothing was changed. \
                 stats_tidegate_healing_servers lists the servers"
            ));
        }
        board.adopted.retain(|_, at| at.elapsed() < WISH);
        board.adopted.insert(server.clone(), Instant::now());
        drop(board);
        self.look_now();
        Ok(format!("{server} is taken back if it has nothing that the writer lacks: see rejoin in stats_tidegate_healing_servers"))
    }

    /// The cluster that has this server beside its writer.
    pub(super) fn cluster_of(&self, server: &ServerAddr) -> Option<HostgroupId> {
        let board = lock(&self.board);
        let is_beside = |line: &Line| line.seen.facts.replicas.iter().any(|replica| replica.addr == *server);
        board.clusters.iter().find(|(_, line)| is_beside(line)).map(|(writer, _)| *writer)
    }

    /// Whether the operator has adopted this server since the last time.
    pub(super) fn take_adopted(&self, server: &ServerAddr) -> bool {
        lock(&self.board).adopted.remove(server).is_some_and(|at| at.elapsed() < WISH)
    }

    /// The rows of `stats_tidegate_errant`.
    pub(crate) fn errant(&self) -> Vec<Vec<Value>> {
        lock(&self.board).clusters.values().flat_map(|line| errant::rows(&line.seen)).collect()
    }

    /// Gauges of each cluster.
    pub(crate) fn metrics(&self) -> [Metric; 7] {
        let board = lock(&self.board);
        let clusters = &board.clusters;
        let label = |writer: &HostgroupId| ("cluster", writer.to_string());
        let gauge = |name, help, of: &dyn Fn(&Seen) -> Option<f64>| Metric {
            name,
            help,
            kind: MetricKind::Gauge,
            samples: clusters
                .iter()
                .filter_map(|(writer, line)| Some(Sample { suffix: "", labels: vec![label(writer)], value: of(&line.seen)? }))
                .collect(),
        };
        let verdicts = clusters.iter().flat_map(|(writer, line)| {
            Verdict::ALL.into_iter().map(move |verdict| Sample {
                suffix: "",
                labels: vec![label(writer), ("verdict", verdict.as_str().to_owned())],
                value: f64::from(u8::from(line.seen.verdict == verdict)),
            })
        });
        [
            gauge(
                "tidegate_healing_ready",
                "1 if a replica could take over should the writer of a cluster in mysql_healing die now (mode full: and nothing holds the promotion back), 0 otherwise",
                &|seen| Some(f64::from(u8::from(seen.blocked_by().is_none()))),
            ),
            gauge(
                "tidegate_healing_would_lose",
                "Transactions known to be lost should the writer of a cluster in mysql_healing die now. No sample while nobody could take over",
                &|seen| Some(seen.choice.plan.as_ref().ok()?.lost.count as f64),
            ),
            gauge(
                "tidegate_healing_outcasts",
                "Former writers of a cluster in mysql_healing (mode rejoin) that serve nothing because they are not proved clean",
                &|seen| Some(seen.tended.iter().filter(|one| one.is_out).count() as f64).filter(|_| seen.tends()),
            ),
            gauge(
                "tidegate_healing_errant_transactions",
                "Transactions that servers of a cluster in mysql_healing (mode rejoin) have and the writer lacks, at least",
                &|seen| Some(errant::count(seen) as f64).filter(|_| seen.tends()),
            ),
            gauge(
                "tidegate_healing_acks_missing",
                "Replicas that should acknowledge commits of a cluster in mysql_healing (semi_sync managed) and do not, by the column acks",
                &|seen| Some(seen.acks.as_ref()?.missing() as f64),
            ),
            gauge(
                "tidegate_healing_commits_waiting",
                "Sessions on the writer of a cluster in mysql_healing (semi_sync managed) that waited for an acknowledgement at the last look",
                &|seen| Some(seen.acks.as_ref()?.waiting as f64),
            ),
            Metric {
                name: "tidegate_healing_verdict",
                help: "What is known of the writer of a cluster in mysql_healing: 1 for the present verdict, 0 for the others",
                kind: MetricKind::Gauge,
                samples: verdicts.collect(),
            },
        ]
    }
}

/// From, to, why.
type News = (String, String, String);

fn cluster(line: &Line) -> Vec<Value> {
    let seen = &line.seen;
    let plan = seen.choice.plan.as_ref();
    let lost = plan.as_ref().ok().map(|plan| &plan.lost).or(seen.forced.as_ref());
    vec![
        seen.policy.writer.0.into(),
        seen.policy.mode.as_str().into(),
        seen.verdict.as_str().into(),
        whole(line.since.elapsed().as_millis()).into(),
        seen.facts.primary.as_ref().map(|primary| primary.addr.to_string()).into(),
        u32::from(seen.blocked_by().is_none()).into(),
        seen.chosen().map(ToString::to_string).into(),
        plan.map(|plan| plan.because.clone()).unwrap_or_default().into(),
        plan.ok().map(|plan| plan.about_ms).into(),
        lost.map(|lost| lost.count).into(),
        lost.map(|lost| lost.gtids.clone()).unwrap_or_default().into(),
        seen.blocked_by().unwrap_or_default().into(),
        seen.advice().into(),
        seen.next_step().into(),
        seen.healed.as_ref().and_then(|healed| healed.next_ms).into(),
        seen.last_plan.as_str().into(),
        seen.healer.clone().into(),
        seen.epoch.map(|epoch| u64::try_from(epoch).unwrap_or_default()).into(),
        seen.acks.as_ref().map(Managed::told).into(),
    ]
}

fn servers(seen: &Seen) -> Vec<Vec<Value>> {
    let writer = seen.policy.writer;
    let primary = seen.facts.primary.iter().map(|primary| {
        let mut row = vec![writer.0.into(), (&*primary.addr.host).into(), primary.addr.port.into(), "writer".into()];
        row.resize(12, Value::Null);
        row.extend([0_u32.into(), "".into(), "".into(), 0_u32.into(), "it writes".into(), (&*primary.site).into()]);
        row.extend([primary.version.to_string().into(), "".into(), Value::Null, "".into()]);
        row
    });
    let others = seen.facts.replicas.iter().zip(&seen.choice.servers);
    let others = others.enumerate().map(|(place, (replica, found))| {
        let tended = seen.tended.get(place);
        let mut row = server(writer, replica, found);
        row.push(tended.map(|one| one.standing.as_str()).into());
        row.push(tended.map(|one| one.why.clone()).unwrap_or_default().into());
        row
    });
    primary.chain(others).collect()
}

fn server(writer: HostgroupId, replica: &Replica, found: &Assessed) -> Vec<Value> {
    let channel = replica.channel.as_ref();
    let role = match channel {
        _ if replica.silence.is_some() => "unknown",
        Some(channel) if channel.is_from_primary => "replica",
        _ => "stray",
    };
    let version = if replica.silence.is_none() { replica.version.to_string() } else { String::new() };
    vec![
        writer.0.into(),
        (&*replica.addr.host).into(),
        replica.addr.port.into(),
        role.into(),
        channel.and_then(|channel| channel.heard_ms).into(),
        found.received_behind.into(),
        found.applied_behind.into(),
        channel.map(|channel| channel.receiver.state.as_str()).into(),
        channel.map(|channel| channel.receiver.error.unwrap_or_default()).into(),
        channel.map(|channel| channel.applier.state.as_str()).into(),
        channel.map(|channel| channel.applier.error.unwrap_or_default()).into(),
        channel.map(|channel| channel.delay_s).into(),
        u32::from(replica.is_acker).into(),
        shown(&found.errant).into(),
        found.promotion.as_str().into(),
        u32::from(found.is_eligible).into(),
        found.why_not.as_str().into(),
        (&*replica.site).into(),
        version.into(),
        replica.notes.join("; ").into(),
    ]
}

impl Monitor {
    /// `ACKNOWLEDGE HEALING`: another promotion may follow, and plans that failed count no more. Returns the effect in words. Blocks.
    pub(crate) fn acknowledge(&self, writer: HostgroupId) -> Result<String, String> {
        let is_full = lock(&self.healing.board).clusters.get(&writer).is_some_and(|line| line.seen.healed.is_some());
        let has_record = self.record(writer).1 > 0;
        if !is_full && !has_record {
            return Err(format!(
                "hostgroup {writer} is not a cluster in mysql_healing with mode 'full', and etcd has no record of it: nothing was changed"
            ));
        }
        let is_new = self.acknowledge_promotion(writer)?;
        if is_full {
            lock(&self.healing.board).acknowledged.insert(writer, Instant::now());
        }
        self.healing.look_now();
        let what = if is_new { "its last promotion is acknowledged" } else { "there is no promotion to acknowledge" };
        Ok(format!("hostgroup {writer}: {what}, and failed plans count no more"))
    }

    /// What a look found; events where that is news.
    pub(super) fn note_healing(&self, seen: Seen) {
        let (writer, primary) = (seen.policy.writer, seen.facts.primary.as_ref().map(|primary| primary.addr.clone()));
        let event = |(from, to, why): News| Event {
            at_ms: self.clock.now_ms(),
            cluster: Some(writer),
            server: primary.clone(),
            kind: EventKind::Healing,
            from,
            to,
            seen: String::new(),
            by: "probe",
            why,
        };
        let news = self.healing.note(seen);
        self.note(news.into_iter().map(event).collect());
    }
}
