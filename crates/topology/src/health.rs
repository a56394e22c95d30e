//! Health apart from roles: missed pings, replication lag, a cold buffer pool; and which of these shun a server in a hostgroup.
//!
//! Used for hostgroups of clusters and for all others. INVARIANT: the last server of a hostgroup is not shunned for lag, slow pings or
//! warming up; each of these states ends by a check or by time.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::HostgroupId;
use model::ServerAddr;
use model::fleet::{Placement, UnderWay};
use model::settings::MysqlVariables;
use model::snapshot::{Server, ServerStatus, Snapshot};
use serde::{Deserialize, Serialize};

use crate::facts::Facts;
use crate::gtids::GtidSet;
use crate::judgement::small;
use crate::member::is_checked;
use crate::observation::{Lag, ProbeError};

/// Longest that a server that came back waits for its buffer pool, ms.
pub(crate) const WARMING_LIMIT_MS: u64 = 600_000;
/// Timeouts alone make a lone server dead only after so many times `monitor_ping_max_failures`.
const PATIENCE: u32 = 3;

/// The result of a server's recent pings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vital {
    /// It answers, or has not failed often enough.
    Alive,
    /// It times out: dead, or slow.
    Slow,
    /// It does not answer.
    Dead,
}

/// Three times as many failures are tolerated if all are timeouts: a slow server is better than none.
pub(crate) fn vital(facts: &Facts, vars: &MysqlVariables) -> Vital {
    let ping = &facts.ping;
    let limit = small(vars.monitor_ping_max_failures);
    match ping.unreachable + ping.timeouts + ping.failed {
        failures if failures < limit => Vital::Alive,
        failures if ping.unreachable + ping.failed == 0 && failures < limit.saturating_mul(PATIENCE) => Vital::Slow,
        _ => Vital::Dead,
    }
}

/// Why a server with failing pings is out, with the last error.
pub(crate) fn missed_pings(facts: &Facts) -> String {
    let failure = facts.ping.failure.as_ref();
    match failure.and_then(ProbeError::text) {
        Some(text) => failure.and_then(ProbeError::closed).unwrap_or_else(|| format!("it misses pings: {text}")),
        None => "it misses pings".to_owned(),
    }
}

/// A lag beyond the limit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Behind {
    /// Ms or transactions. The servers with the least stay if the floor needs them.
    pub by: u64,
    /// The same in words, with the limit.
    pub words: String,
}

/// The servers beyond their limit, each with its lag in words.
pub(crate) type Lags = BTreeMap<ServerAddr, String>;

/// A time without a writer: replicas cannot fall further behind in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Quiet {
    /// When the lost writer last answered, ms.
    pub from_ms: u64,
    /// When there was a writer again, ms; None while there is none.
    pub to_ms: Option<u64>,
}

impl Quiet {
    /// How much of the time from `from_ms` to `to_ms` it covers, ms.
    fn within(self, from_ms: u64, to_ms: u64) -> u64 {
        self.to_ms.map_or(to_ms, |end_ms| end_ms.min(to_ms)).saturating_sub(self.from_ms.max(from_ms))
    }
}

/// The cluster's state that decides how an unknown lag counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sources {
    /// Since when the server should have a source, ms.
    pub to_follow_since_ms: Option<u64>,
    /// The last time without a writer.
    pub quiet: Option<Quiet>,
}

impl Sources {
    /// Whether a server that said at `at_ms` that it has no source should have had one.
    fn are_missing(self, at_ms: u64) -> bool {
        self.to_follow_since_ms.is_some_and(|since_ms| at_ms >= since_ms)
    }
}

/// The lag assumed at `at_ms`, ms: the last known lag plus the time with a writer since then, at most the policy's value. `known` is that
/// lag, and since when it is not known.
fn unknown_lag_ms(known: Option<(u64, u64)>, at_ms: u64, quiet: Option<Quiet>, policy: HostgroupPolicy) -> u64 {
    let Some((known_ms, since_ms)) = known else { return policy.lag_when_unknown_ms };
    let passed_ms = at_ms.saturating_sub(since_ms);
    let quiet_ms = quiet.map_or(0, |quiet| quiet.within(since_ms, at_ms));
    policy.lag_when_unknown_ms.min(known_ms.saturating_add(passed_ms.saturating_sub(quiet_ms)))
}

/// What a sample of this time says, ms.
fn told_lag_ms(facts: &Facts, at_ms: u64, lag: Lag, sources: Sources, policy: HostgroupPolicy) -> u64 {
    match lag {
        Lag::NotReplica if !sources.are_missing(at_ms) => 0,
        Lag::Member => 0,
        Lag::NotReplica | Lag::Unknown => unknown_lag_ms(facts.lag_until_unknown(), at_ms, sources.quiet, policy),
        Lag::Behind(ms) => ms,
    }
}

/// What a check of this time without an answer says, ms: since the last sample, the lag may have grown. None where it was no replica.
fn unanswered_lag_ms(facts: &Facts, at_ms: u64, sources: Sources, policy: HostgroupPolicy) -> Option<u64> {
    match *facts.lag.back()? {
        (since_ms, Lag::Behind(ms)) => Some(unknown_lag_ms(Some((ms, since_ms)), at_ms, sources.quiet, policy).max(ms)),
        (_, Lag::Unknown) => Some(unknown_lag_ms(facts.lag_until_unknown(), at_ms, sources.quiet, policy)),
        (_, Lag::NotReplica | Lag::Member) => None,
    }
}

/// The lags of a replica by its last checks, ms, the latest first.
fn latest_lags_ms(facts: &Facts, sources: Sources, policy: HostgroupPolicy) -> impl Iterator<Item = u64> + Clone {
    let unanswered = facts.lag_unanswered_ms.iter().rev();
    let unanswered = unanswered.filter_map(move |at_ms| unanswered_lag_ms(facts, *at_ms, sources, policy));
    unanswered.chain(facts.lag.iter().rev().map(move |(at_ms, lag)| told_lag_ms(facts, *at_ms, *lag, sources, policy)))
}

/// The lag of a replica, ms, if it exceeds the limit of `row` in as many samples as `monitor_replication_lag_count` says.
pub(crate) fn excessive_lag(
    facts: &Facts,
    row: &Server,
    sources: Sources,
    policy: HostgroupPolicy,
    vars: &MysqlVariables,
) -> Option<Behind> {
    let limit_s = row.max_replication_lag;
    let limit_ms = u64::from(limit_s) * 1_000;
    let count = usize::try_from(vars.monitor_replication_lag_count).unwrap_or(1);
    let mut latest = latest_lags_ms(facts, sources, policy).take(count);
    let is_excessive = limit_ms > 0 && latest.clone().count() >= count && latest.clone().all(|ms| ms > limit_ms);
    let by = latest.next().filter(|_| is_excessive)?;
    let unknown = || format!("counted as {} s; max_replication_lag={limit_s}", by / 1_000);
    let words = match facts.lag.back() {
        Some((_, Lag::Unknown)) => format!("lag unknown, {}", unknown()),
        Some((_, Lag::NotReplica)) => format!("no replication source, lag unknown, {}", unknown()),
        Some((_, Lag::Behind(_))) if !facts.lag_unanswered_ms.is_empty() => format!("lag check unanswered, {}", unknown()),
        _ => lag_in_words(by, limit_s),
    };
    Some(Behind { by, words })
}

/// How far a server is behind, for statements that limit it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Distance {
    /// Its lag, ms; None while unknown, or if no row of the server limits it. Aurora's views need no limit.
    pub lag_ms: Option<u64>,
    /// Other servers replicate from it and it from none, so such statements spare it. False where no lag is limited.
    pub is_source: bool,
}

impl Distance {
    /// By the server's own lag checks. A replica that does not know its lag, or does not answer, has the lag that is assumed.
    pub(crate) fn of(facts: &Facts, sources: Sources, policy: HostgroupPolicy) -> Self {
        match facts.lag.back() {
            None | Some((_, Lag::Member)) => Self::default(),
            Some((at_ms, Lag::NotReplica)) if !sources.are_missing(*at_ms) => Self { lag_ms: None, is_source: true },
            Some(_) => Self { lag_ms: latest_lags_ms(facts, sources, policy).next(), is_source: false },
        }
    }

    /// Both count: the greater lag, if one is known.
    pub(crate) fn with(self, other: Self) -> Self {
        Self { lag_ms: self.lag_ms.max(other.lag_ms), is_source: self.is_source || other.is_source }
    }
}

/// Whether the lag of a server is checked to limit it, not only for display.
pub(crate) fn limits_lag(row: &Server) -> bool {
    row.max_replication_lag > 0 && is_checked(row)
}

/// The last lag and its limit in words; None without a limit or without a known lag.
pub(crate) fn present_lag(facts: &Facts, limit_s: u32) -> Option<String> {
    match facts.lag.back().map(|(_, lag)| lag).filter(|_| limit_s > 0)? {
        Lag::Unknown => None,
        Lag::NotReplica => Some(format!("no replication source; max_replication_lag={limit_s}")),
        Lag::Member => Some(lag_in_words(0, limit_s)),
        Lag::Behind(ms) => Some(lag_in_words(*ms, limit_s)),
    }
}

fn lag_in_words(ms: u64, limit_s: u32) -> String {
    format!("{}.{} s behind; max_replication_lag={limit_s}", ms / 1_000, ms % 1_000 / 100)
}

/// The number of its writers' transactions that a replica lacks. None unless it exceeds the hostgroup's limit in as many samples as
/// `monitor_replication_lag_count` says.
///
/// A sample is compared with the last one of each writer before it: later writes cannot count as missing.
pub(crate) fn excessive_lack(replica: &Facts, writers: &[&Facts], policy: HostgroupPolicy, vars: &MysqlVariables) -> Option<Behind> {
    let count = usize::try_from(vars.monitor_replication_lag_count).unwrap_or(1);
    let lacks = |(at_ms, has): &(u64, GtidSet)| {
        let said_before =
            |writer: &&Facts| writer.gtids.iter().rev().find(|(said_ms, _)| said_ms <= at_ms).map(|(_, set)| set.ahead_of(has));
        writers.iter().filter_map(said_before).max()
    };
    let limit = policy.max_transactions_behind;
    let mut latest = replica.gtids.iter().rev().take(count).map(lacks);
    let is_excessive = limit > 0 && replica.gtids.len() >= count && latest.clone().all(|lacks| lacks.is_some_and(|n| n > limit));
    let by = latest.next().flatten().filter(|_| is_excessive)?;
    Some(Behind { by, words: format!("{by} transactions behind; max_transactions_behind={limit}") })
}

/// The limits of one hostgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HostgroupPolicy {
    /// ONLINE readers that are kept even if they lag.
    pub reader_floor: usize,
    /// Whether servers that come back wait for their buffer pool.
    pub waits_for_buffer_pool: bool,
    /// The most that an unknown lag counts as, ms.
    pub lag_when_unknown_ms: u64,
    /// Transactions that a replica may lack; 0 is no limit.
    pub max_transactions_behind: u64,
}

impl HostgroupPolicy {
    /// The effective settings of the hostgroup; seconds become ms.
    pub(crate) fn of(snapshot: &Snapshot, id: HostgroupId) -> Self {
        let settings = snapshot.effective_in(id);
        Self {
            reader_floor: usize::try_from(settings.reader_floor).unwrap_or(usize::MAX),
            waits_for_buffer_pool: settings.wait_for_buffer_pool_load,
            lag_when_unknown_ms: settings.monitor_slave_lag_when_null.saturating_mul(1_000),
            max_transactions_behind: settings.max_transactions_behind,
        }
    }
}

/// A server in a hostgroup, with all that may keep it from being ONLINE. The first that holds decides.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seat {
    pub row: Arc<Server>,
    pub is_drained: bool,
    /// The status by its role. Operators' statuses and health come on top.
    pub status: ServerStatus,
    /// Whether running statements may finish.
    pub under_way: UnderWay,
    /// Why it has this status, or is here.
    pub why: String,
    /// Its pings time out; the value says whether running statements may finish.
    pub slow: Option<UnderWay>,
    /// Its buffer pool is being loaded.
    pub is_warming: bool,
    /// Its lag, if it exceeds a limit.
    pub behind: Option<Behind>,
    /// It was in use here before: of those that are as far behind as each other it stays.
    pub serves: bool,
}

impl Seat {
    /// ONLINE, with no reason against it.
    pub(crate) fn new(row: &Arc<Server>) -> Self {
        Self {
            row: Arc::clone(row),
            is_drained: false,
            status: ServerStatus::Online,
            under_way: UnderWay::MayFinish,
            why: String::new(),
            slow: None,
            is_warming: false,
            behind: None,
            serves: false,
        }
    }

    pub(crate) fn shun(&mut self, under_way: UnderWay, why: impl Into<String>) {
        (self.status, self.under_way, self.why) = (ServerStatus::Shunned, under_way, why.into());
    }

    fn addr(&self) -> ServerAddr {
        self.row.key.addr()
    }

    fn is_online(&self) -> bool {
        self.status == ServerStatus::Online
    }
}

pub(crate) fn lags<'a>(seats: impl Iterator<Item = &'a Seat>) -> Lags {
    seats.filter_map(|seat| Some((seat.addr(), seat.behind.as_ref()?.words.clone()))).collect()
}

/// The statuses of one hostgroup's servers. The order matters: each step looks only at servers that the steps before left ONLINE.
pub(crate) fn place(mut seats: Vec<Seat>, policy: HostgroupPolicy) -> Vec<Placement> {
    seats.iter_mut().for_each(obey);
    shun_slow(&mut seats);
    shun_warming(&mut seats, policy);
    shun_behind(&mut seats, policy);
    let placed = |seat: Seat| Placement { server: seat.row, status: seat.status, under_way: seat.under_way, why: seat.why.into() };
    seats.into_iter().map(placed).collect()
}

/// An operator's status wins over health.
fn obey(seat: &mut Seat) {
    if seat.row.status != ServerStatus::Online {
        (seat.status, seat.why) = (seat.row.status, String::new());
    } else if seat.is_drained {
        (seat.status, seat.why) = (ServerStatus::OfflineSoft, "drained by an operator's order".to_owned());
    }
}

/// Shuns servers whose pings time out, unless no other server would be left.
fn shun_slow(seats: &mut [Seat]) {
    if !seats.iter().any(|seat| seat.is_online() && seat.slow.is_none()) {
        return;
    }
    for seat in seats.iter_mut().filter(|seat| seat.is_online()) {
        if let Some(under_way) = seat.slow {
            seat.shun(under_way, "its pings time out");
        }
    }
}

fn shun_warming(seats: &mut [Seat], policy: HostgroupPolicy) {
    if !policy.waits_for_buffer_pool || !seats.iter().any(|seat| seat.is_online() && !seat.is_warming) {
        return;
    }
    for seat in seats.iter_mut().filter(|seat| seat.is_online() && seat.is_warming) {
        seat.shun(UnderWay::MayFinish, "warming: its buffer pool is being loaded");
    }
}

/// Shuns servers that lag, but keeps as many readers as the floor says: those with the least lag. Lags count as equal up to a factor of
/// two, because the samples come from different moments. Of equals, a server in use stays: one with an unknown lag may have been stopped
/// long before it.
fn shun_behind(seats: &mut [Seat], policy: HostgroupPolicy) {
    let usable = seats.iter().filter(|seat| seat.is_online()).count();
    let floor = if usable == 1 { 1 } else { policy.reader_floor };
    let mut behind: Vec<usize> = (0..seats.len()).filter(|i| seats[*i].is_online() && seats[*i].behind.is_some()).collect();
    behind.sort_by_key(|i| (seats[*i].behind.as_ref().map(|behind| behind.by.max(1).ilog2()), !seats[*i].serves, seats[*i].addr()));
    let kept = floor.saturating_sub(usable - behind.len());
    for (position, index) in behind.into_iter().enumerate() {
        let seat = &mut seats[index];
        if position < kept {
            seat.why = "too far behind, but kept because the other servers are no better".to_owned()
        } else {
            (seat.status, seat.why) = (ServerStatus::ShunnedReplicationLag, "too far behind".to_owned());
        }
    }
}
