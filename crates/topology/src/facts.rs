//! The facts about one server: the last answer to each kind of check, the failures since, and traffic's reports.
//!
//! There is one per server, whatever hostgroups and clusters it is in. Nothing is decided here; the kinds of clusters and
//! [`health`](crate::health) read it. INVARIANT: sightings of different servers touch different facts, so the order in which they arrive
//! cannot matter.

mod lasting;

use std::collections::VecDeque;

use model::fleet::SignalKind;
use model::snapshot::RoleKind;
use serde::{Deserialize, Serialize};

use crate::gtids::GtidSet;
use crate::observation::{AuroraView, GaleraView, GroupView, Lag, Observation, ProbeError, RdsView, SourcesView};

/// Samples that are kept where several in a row decide; the largest count that a setting may ask for.
const KEPT_SAMPLES: usize = 10;
/// Refusals or errors in a row, of a server that lives, after which earlier samples no longer count.
const FORGOTTEN_AFTER: u32 = 3;
/// Answers in a row that fail before a server counts as down, for its clusters.
const DOWN_AFTER: u32 = 2;
/// A report from traffic is reported again if the last one is older than this, ms.
const QUIET_AFTER_MS: u64 = 60_000;
/// A server whose uptime is longer was not restarted a moment ago, so its buffer pool is not waited for, s.
const YOUNG_UPTIME_S: u64 = 600;

/// The answers to one kind of check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Track<T> {
    /// The last good answer.
    pub last: Option<T>,
    /// The last good answer that differs from `last`.
    pub before: Option<T>,
    /// When `last` came, ms.
    pub at_ms: u64,
    /// Good answers in a row that are the same; what counts as the same depends on the check.
    pub repeats: u32,
    /// Since when the answers are the same, ms.
    pub since_ms: u64,
    /// When the first good answer after failures came, ms; 0 if none has failed yet.
    pub resumed_ms: u64,
    /// The failures between the last two good answers that had any.
    pub missed: Troubles,
    /// Refused or broken connections since the last good answer.
    pub unreachable: u32,
    /// Timeouts since the last good answer.
    pub timeouts: u32,
    /// Errors and nonsense since the last good answer.
    pub failed: u32,
    /// The monitor's user was refused since the last good answer.
    pub is_denied: bool,
    /// Why the last check failed, if it did.
    pub failure: Option<ProbeError>,
}

impl<T> Default for Track<T> {
    fn default() -> Self {
        Self {
            last: None,
            before: None,
            at_ms: 0,
            repeats: 0,
            since_ms: 0,
            resumed_ms: 0,
            missed: Troubles::default(),
            unreachable: 0,
            timeouts: 0,
            failed: 0,
            is_denied: false,
            failure: None,
        }
    }
}

impl<T> Track<T> {
    /// Takes an answer; `is_same` says whether two answers say the same, `loss` how it was lost since any check was answered.
    fn take(&mut self, now_ms: u64, loss: Loss, result: Result<T, ProbeError>, is_same: impl Fn(&T, &T) -> bool) {
        self.failure = result.as_ref().err().cloned();
        match result {
            Ok(answer) => {
                let repeats = self.last.as_ref().is_some_and(|last| is_same(last, &answer));
                let (count, since_ms) = if repeats { (self.repeats.saturating_add(1), self.since_ms) } else { (1, now_ms) };
                let (resumed_ms, missed) =
                    if self.is_troubled() { (now_ms, Troubles::from(&*self)) } else { (self.resumed_ms, self.missed) };
                let before = if repeats { self.before.take() } else { self.last.take() };
                *self = Self { last: Some(answer), before, at_ms: now_ms, repeats: count, since_ms, resumed_ms, missed, ..Self::default() };
            }
            Err(ProbeError::Timeout | ProbeError::Unresolved(_)) => self.timeouts = self.timeouts.saturating_add(1),
            Err(ProbeError::Unreachable(_) | ProbeError::Closed(_)) => self.unreachable = self.unreachable.saturating_add(1),
            Err(ProbeError::Failed(_)) => self.failed = self.failed.saturating_add(1),
            // It answers, so it is neither unreachable nor slow; more is not known. After it was lost it may be something else than
            // it said before, so it stays as it was then.
            Err(ProbeError::Denied(_)) => {
                let has_said = self.last.is_some();
                let was_unreachable = has_said && loss.unreachable_ms.is_some_and(|lost_ms| lost_ms >= self.at_ms);
                self.unreachable = if was_unreachable { self.unreachable.max(DOWN_AFTER) } else { 0 };
                self.timeouts = if has_said && loss.is_lost { self.timeouts } else { 0 };
                self.failed = 0;
                self.is_denied = true;
            }
        }
    }

    /// No good answer since the last failure.
    pub(crate) fn is_troubled(&self) -> bool {
        self.unreachable + self.timeouts + self.failed > 0
    }

    /// The last answer was a good one.
    pub(crate) fn is_answered(&self) -> bool {
        self.last.is_some() && !self.is_troubled() && !self.is_denied
    }

    /// Anything at all came back, good or bad.
    pub(crate) fn is_asked(&self) -> bool {
        self.last.is_some() || self.is_troubled() || self.is_denied
    }

    fn forgive(&mut self) {
        (self.unreachable, self.timeouts, self.failed) = (0, 0, 0);
    }
}

/// How a server was lost.
#[derive(Debug, Clone, Copy, Default)]
struct Loss {
    /// When a check last found its port closed or its connection broken, ms.
    unreachable_ms: Option<u64>,
    /// It was lost, and no good answer came since.
    is_lost: bool,
}

/// Samples of which several in a row decide, the latest last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Samples<T> {
    latest: VecDeque<T>,
    /// Answers since the last sample that were errors.
    failures: u32,
    /// Checks since the last sample that had no answer.
    unanswered: u32,
}

impl<T> Default for Samples<T> {
    fn default() -> Self {
        Self { latest: VecDeque::new(), failures: 0, unanswered: 0 }
    }
}

impl<T> std::ops::Deref for Samples<T> {
    type Target = VecDeque<T>;

    fn deref(&self) -> &Self::Target {
        &self.latest
    }
}

impl<T> Samples<T> {
    /// Refusals and errors in a row clear the samples, so an old one does not count for ever. Timeouts and closed ports keep them.
    fn take(&mut self, result: Result<T, ProbeError>) {
        match result {
            Ok(sample) => {
                (self.failures, self.unanswered) = (0, 0);
                keep(&mut self.latest, Some(sample));
            }
            Err(ProbeError::Failed(_) | ProbeError::Denied(_)) => {
                self.failures = self.failures.saturating_add(1);
                if self.is_forgotten() {
                    self.latest.clear();
                }
            }
            Err(ProbeError::Timeout | ProbeError::Unresolved(_) | ProbeError::Unreachable(_) | ProbeError::Closed(_)) => {
                self.unanswered = self.unanswered.saturating_add(1);
            }
        }
    }

    /// It has failed so often that nothing is known.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.failures >= FORGOTTEN_AFTER
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Facts {
    /// COM_PING: round trips, us.
    pub ping: Track<u64>,
    /// The value that the row's kind of check reads.
    pub read_only: Track<bool>,
    /// Galera's state; repeats count answers with the same size of the cluster.
    pub galera: Track<GaleraView>,
    /// Group Replication's state; repeats count answers from the same view.
    pub group: Track<GroupView>,
    /// Since when a Galera node says that it is a donor or catches up, ms. None unless it was synced and reachable until then.
    pub giving_since_ms: Option<u64>,
    /// Aurora's topology; repeats count answers that name the same writer.
    pub aurora: Track<AuroraView>,
    /// The cluster by RDS's table.
    pub rds: Track<RdsView>,
    /// The servers that it replicates from.
    pub sources: Track<SourcesView>,
    /// Replication lag, and when it was told (ms).
    pub lag: Samples<(u64, Lag)>,
    /// How far it was behind when it last knew.
    known_lag: Option<KnownLag>,
    /// When lag checks had no answer while the server lived, since the last sample, ms. The first does not count: one answer may be lost.
    pub lag_unanswered_ms: VecDeque<u64>,
    /// Its executed GTIDs, each sample with its time, ms.
    pub gtids: Samples<(u64, GtidSet)>,
    /// Transactions behind (Galera, Group Replication), the latest last.
    pub behind: VecDeque<u64>,
    /// Until when traffic's report makes it suspected, ms.
    pub suspected_until_ms: u64,
    /// Traffic's reports by kind, with the time of the last one, ms. Cleared when the server gets another role or status.
    pub reports: Vec<(SignalKind, u64)>,
    /// Traffic saw a connection break or fail since the last good answer.
    pub is_broken: bool,
    /// The last ping or role check was refused: the server lives, and its state is unknown.
    pub refuses: bool,
    /// When a check last found its port closed or its connection broken, ms.
    pub unreachable_ms: Option<u64>,
    /// It was lost, and no good answer came since.
    is_lost: bool,
    /// Since when it is back after it was lost, ms, as long as its buffer pool may be loading.
    pub warming_since_ms: Option<u64>,
}

/// How far a replica was behind when it last knew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownLag {
    /// The lag, ms.
    pub ms: u64,
    /// When it first said after that, that it does not know (ms).
    pub unknown_since_ms: Option<u64>,
}

/// The failures of the check that tells a server's role, without its answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Troubles {
    /// Refused or broken connections in a row.
    pub unreachable: u32,
    /// Timeouts in a row.
    pub timeouts: u32,
    /// Other errors in a row.
    pub failed: u32,
}

impl<T> From<&Track<T>> for Troubles {
    fn from(track: &Track<T>) -> Self {
        Self { unreachable: track.unreachable, timeouts: track.timeouts, failed: track.failed }
    }
}

impl Troubles {
    /// Something is wrong, and one more failure, or as many timeouts, would tell what. Errors are not waited for: they may
    /// last for ever.
    pub(crate) fn is_inconclusive(self, max_timeouts: u64) -> bool {
        self.unreachable == 1 || (self.timeouts > 0 && u64::from(self.timeouts) < max_timeouts)
    }
}

impl Facts {
    /// Takes the result of a check.
    pub(crate) fn observe(&mut self, now_ms: u64, seen: Observation, ping_max_failures: u32) {
        // That these could not be read says nothing else of the server.
        match seen {
            Observation::Rds(result @ Err(_)) => return self.rds.take(now_ms, Loss::default(), result, |a, b| a == b),
            Observation::Sources(result @ Err(_)) => return self.sources.take(now_ms, Loss::default(), result, |a, b| a == b),
            _ => {}
        }
        let is_good = seen.error().is_none();
        if matches!(seen.error(), Some(ProbeError::Unreachable(_) | ProbeError::Closed(_))) {
            self.unreachable_ms = Some(now_ms);
        }
        if !seen.is_aside() && !matches!(seen, Observation::BufferPool(_)) {
            self.refuses = matches!(seen.error(), Some(ProbeError::Denied(_)));
        }
        let loss = Loss { unreachable_ms: self.unreachable_ms, is_lost: self.is_lost };
        match seen {
            // Pings say no more than that it lives.
            Observation::Ping(result) => self.ping.take(now_ms, Loss::default(), result, |_, _| true),
            Observation::ReadOnly(result) => self.read_only.take(now_ms, loss, result, |a, b| a == b),
            Observation::Lag(result) => {
                self.note_lag(now_ms, result.as_ref().ok());
                self.lag.take(result.map(|lag| (now_ms, lag)));
                match self.lag.unanswered {
                    0 => self.lag_unanswered_ms.clear(),
                    1 => {}
                    _ => keep(&mut self.lag_unanswered_ms, Some(now_ms)),
                }
                self.known_lag = self.known_lag.filter(|_| !self.lag.is_forgotten());
            }
            Observation::Gtids(result) => self.gtids.take(result.map(|set| (now_ms, set))),
            Observation::Galera(result) => {
                keep(&mut self.behind, result.as_ref().ok().map(|view| view.recv_queue));
                self.giving_since_ms = self.giving_since(now_ms, &result);
                self.galera.take(now_ms, loss, result, |a, b| a.cluster_size == b.cluster_size);
            }
            Observation::Group(result) => {
                keep(&mut self.behind, result.as_ref().ok().map(|view| view.transactions_behind));
                self.group.take(now_ms, loss, result, |a, b| a.view_id == b.view_id);
            }
            Observation::Aurora(result) => self.aurora.take(now_ms, loss, result, |a, b| a.writer() == b.writer()),
            Observation::BufferPool(result) => self.warm(result),
            Observation::Sources(result) => self.sources.take(now_ms, Loss::default(), result, |a, b| a == b),
            Observation::Rds(result) => self.rds.take(now_ms, Loss::default(), result, |a, b| a == b),
        }
        if is_good {
            self.answered(now_ms)
        } else {
            self.is_lost |= self.is_gone(ping_max_failures)
        }
        // Answers from before the loss say nothing about the data with which the server returns.
        self.known_lag = self.known_lag.filter(|_| !self.is_lost);
        if self.is_lost {
            self.lag_unanswered_ms.clear();
        }
    }

    fn note_lag(&mut self, now_ms: u64, told: Option<&Lag>) {
        match (told, &mut self.known_lag) {
            (Some(Lag::Behind(ms)), known) => *known = Some(KnownLag { ms: *ms, unknown_since_ms: None }),
            (Some(Lag::Unknown | Lag::NotReplica), Some(known)) => drop(known.unknown_since_ms.get_or_insert(now_ms)),
            (Some(Lag::Member), known) => *known = None,
            (Some(Lag::Unknown | Lag::NotReplica) | None, _) => {}
        }
    }

    /// How far it was behind when it last knew, and since when it does not; None while it knows, or if it never did.
    pub(crate) fn lag_until_unknown(&self) -> Option<(u64, u64)> {
        self.known_lag.and_then(|known| Some((known.ms, known.unknown_since_ms?)))
    }

    /// Takes what traffic saw; `until_ms` is when the suspicion ends.
    pub(crate) fn signal(&mut self, kind: SignalKind, until_ms: u64) {
        match kind {
            SignalKind::ConnectFailed | SignalKind::ConnectionLost | SignalKind::ShuttingDown => self.is_broken = true,
            SignalKind::Recovered => self.is_broken = false,
            SignalKind::ReadOnly | SignalKind::NotReady => {}
            SignalKind::Certification => return,
        }
        self.suspected_until_ms = self.suspected_until_ms.max(until_ms);
    }

    /// Takes a report of traffic's; whether it is told: once, until it has not come for a while. One that `is_expected` is not.
    pub(crate) fn report(&mut self, kind: SignalKind, now_ms: u64, is_expected: bool) -> bool {
        match self.reports.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, last_ms)) => std::mem::replace(last_ms, now_ms) + QUIET_AFTER_MS <= now_ms && !is_expected,
            None if is_expected => false,
            None => {
                self.reports.push((kind, now_ms));
                true
            }
        }
    }

    /// Whether connections are refused or break, so often that its clusters take it for down.
    pub(crate) fn is_down(&self, troubles: Troubles) -> bool {
        let needed = if self.is_broken { 1 } else { DOWN_AFTER };
        troubles.unreachable >= needed
    }

    /// Whether a ping or role check was refused and has had no good answer since. It may be down by now: see `refuses`.
    pub(crate) fn is_denied(&self) -> bool {
        self.ping.is_denied || self.read_only.is_denied || self.galera.is_denied || self.group.is_denied || self.aurora.is_denied
    }

    /// Forgets refusals of role checks that no cluster of the server makes any more; `kinds` are those of its clusters.
    pub(crate) fn forget_refusals(&mut self, kinds: &[&RoleKind]) {
        let is_made = |is_kind: fn(&RoleKind) -> bool| kinds.iter().any(|kind| is_kind(kind));
        self.read_only.is_denied &= is_made(|kind| matches!(kind, RoleKind::Replication(_)));
        self.galera.is_denied &= is_made(|kind| matches!(kind, RoleKind::Galera));
        self.group.is_denied &= is_made(|kind| matches!(kind, RoleKind::GroupReplication));
        self.aurora.is_denied &= is_made(|kind| matches!(kind, RoleKind::Aurora(_)));
    }

    /// That it takes no connections, in its own words, if this is how the last check of its role failed.
    pub(crate) fn closed(&self) -> Option<String> {
        let roles = [&self.read_only.failure, &self.galera.failure, &self.group.failure, &self.aurora.failure];
        roles.into_iter().flatten().find_map(ProbeError::closed)
    }

    /// Other failures say nothing about donating, but a server with a closed port may be restarted.
    fn giving_since(&self, now_ms: u64, answer: &Result<GaleraView, ProbeError>) -> Option<u64> {
        match answer {
            Err(ProbeError::Unreachable(_) | ProbeError::Closed(_)) => None,
            Err(_) => self.giving_since_ms,
            Ok(view) if !view.gives_state() => None,
            Ok(_) => {
                let was_synced = self.galera.last.as_ref().is_some_and(GaleraView::is_synced);
                self.giving_since_ms.or_else(|| (was_synced && !self.galera.is_troubled()).then_some(now_ms))
            }
        }
    }

    /// It lives: what failed before is over, and it may have to warm up.
    fn answered(&mut self, now_ms: u64) {
        self.ping.forgive();
        self.is_broken = false;
        if std::mem::take(&mut self.is_lost) {
            // It could not be asked while it was away.
            self.sources.forgive();
            self.warming_since_ms = Some(now_ms);
        }
    }

    fn is_gone(&self, ping_max_failures: u32) -> bool {
        let roles = [self.read_only.unreachable, self.galera.unreachable, self.group.unreachable, self.aurora.unreachable];
        let pings = self.ping.unreachable + self.ping.timeouts + self.ping.failed;
        pings >= ping_max_failures || roles.into_iter().any(|count| count >= DOWN_AFTER)
    }

    /// Ends the wait for the buffer pool: it is loaded, the server was not restarted, or it cannot say.
    fn warm(&mut self, result: Result<(bool, u64), ProbeError>) {
        let is_over = match result {
            Ok((is_loaded, uptime_s)) => is_loaded || uptime_s > YOUNG_UPTIME_S,
            Err(ProbeError::Denied(_) | ProbeError::Failed(_)) => true,
            Err(ProbeError::Timeout | ProbeError::Unresolved(_) | ProbeError::Unreachable(_) | ProbeError::Closed(_)) => false,
        };
        if is_over {
            self.warming_since_ms = None;
        }
    }
}

fn keep<T>(samples: &mut VecDeque<T>, sample: Option<T>) {
    let Some(sample) = sample else { return };
    if samples.len() == KEPT_SAMPLES {
        samples.pop_front();
    }
    samples.push_back(sample);
}
