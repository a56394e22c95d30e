//! The last results of every kind of check.
//!
//! Bounded in age by `monitor_history`, and in number, so that a fleet that is probed fast cannot fill the memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::ServerAddr;
use topology::{CheckKind, ProbeError};

use crate::clock::unix_us;
use crate::lane::Checked;
use crate::monitor::error_text;

/// Most results of one kind that are kept, for all servers together.
const RESULTS_MAX: usize = 20_000;
/// Most reasons of one check that fails which are told, and remembered.
const REASONS_MAX: usize = 16;
/// `mysql-monitor_history` by default, ms.
const HISTORY_MS: u64 = 7_200_000;

/// The class of a check that is refused by the login or for want of a right.
const DENIED: u8 = 2;
/// How the checks of an Aurora instance went.
#[derive(Debug, Clone, Default)]
pub(crate) struct CheckStatus {
    /// When the last one began, Unix us.
    pub(crate) last_us: u64,
    pub(crate) total: u64,
    /// Checks with an answer.
    pub(crate) ok: u64,
    /// Why the last one that failed did.
    pub(crate) last_error: Option<String>,
}

/// A check whose last result was an error.
#[derive(Debug, Default)]
struct Failing {
    /// How it did last.
    class: Option<u8>,
    /// The reasons that were told since it began, without the numbers in them.
    told: BTreeSet<String>,
}

impl Failing {
    /// It failed; whether that is told: in another way than before, or for a reason that was not told yet.
    fn is_news(&mut self, class: u8, reason: &str) -> bool {
        let words: String = reason.chars().filter(|c| !c.is_ascii_digit()).collect();
        let is_new = !self.told.contains(&words) && self.told.len() < REASONS_MAX;
        if is_new {
            self.told.insert(words);
        }
        self.class.replace(class) != Some(class) || is_new
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct CheckLog {
    keep_us: u64,
    results: BTreeMap<&'static str, VecDeque<Checked>>,
    aurora: BTreeMap<ServerAddr, CheckStatus>,
    /// Checks that failed last time.
    failing: BTreeMap<(ServerAddr, &'static str), Failing>,
}

impl Default for CheckLog {
    fn default() -> Self {
        Self { keep_us: HISTORY_MS * 1_000, results: BTreeMap::new(), aurora: BTreeMap::new(), failing: BTreeMap::new() }
    }
}

impl CheckLog {
    /// How long results are kept, ms.
    pub(crate) fn configure(&mut self, history_ms: u64) {
        self.keep_us = history_ms.saturating_mul(1_000);
    }

    /// Keeps a result, and tells the program's log of a check that fails.
    pub(crate) fn add(&mut self, checked: Checked) {
        if checked.kind == CheckKind::Aurora {
            self.count_aurora(&checked);
        }
        self.report(&checked);
        let results = self.results.entry(kind_name(checked.kind)).or_default();
        let keep_us = self.keep_us;
        let is_old = |oldest: &Checked| oldest.started_us.saturating_add(keep_us) < checked.started_us;
        while results.len() >= RESULTS_MAX || results.front().is_some_and(is_old) {
            results.pop_front();
        }
        results.push_back(checked);
    }

    /// The results of a kind that are not too old, oldest first.
    pub(crate) fn results(&self, kind: CheckKind) -> impl Iterator<Item = &Checked> {
        let oldest_us = unix_us().saturating_sub(self.keep_us);
        self.results.get(&kind_name(kind)).into_iter().flatten().filter(move |checked| checked.started_us >= oldest_us)
    }

    /// How the checks of each Aurora instance went.
    pub(crate) fn aurora(&self) -> &BTreeMap<ServerAddr, CheckStatus> {
        &self.aurora
    }

    /// Logs one line if a check begins to fail, fails in a new way, or succeeds again; not one line per check.
    fn report(&mut self, checked: &Checked) {
        let (addr, kind) = (&checked.addr, kind_name(checked.kind));
        let place = (addr.clone(), kind);
        let now = checked.outcome.as_ref().err().map(|error| (class(error), error_text(error, checked.timeout_ms)));
        let Some((class, text)) = now else {
            if self.failing.remove(&place).is_some() {
                tracing::info!("{kind} check of {addr} works again");
            }
            return;
        };
        if self.failing.entry(place).or_default().is_news(class, &text) {
            tracing::warn!("{kind} check of {addr}: {text}");
        }
    }

    /// How many servers refuse each kind of check that is made: the monitor cannot log in there, or may not ask.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let is_refused =
            |kind: &str, ((_, other), failing): (&(ServerAddr, &str), &Failing)| *other == kind && failing.class == Some(DENIED);
        self.results.keys().map(move |kind| (*kind, self.failing.iter().filter(|entry| is_refused(kind, *entry)).count()))
    }

    /// Drops the counts of servers that are no longer configured.
    pub(crate) fn forget_strangers(&mut self, is_known: impl Fn(&ServerAddr) -> bool) {
        self.failing.retain(|(addr, _), _| is_known(addr));
        self.aurora.retain(|addr, _| is_known(addr));
    }

    fn count_aurora(&mut self, checked: &Checked) {
        let status = self.aurora.entry(checked.addr.clone()).or_default();
        status.last_us = checked.started_us;
        status.total += 1;
        match &checked.outcome {
            Ok(_) => status.ok += 1,
            Err(error) => status.last_error = Some(error_text(error, checked.timeout_ms)),
        }
    }
}

fn class(error: &ProbeError) -> u8 {
    match error {
        ProbeError::Timeout | ProbeError::Unresolved(_) => 0,
        ProbeError::Unreachable(_) | ProbeError::Closed(_) => 1,
        ProbeError::Denied(_) => DENIED,
        ProbeError::Failed(_) => 3,
    }
}

/// As logs and metrics name it. All checks of `read_only` have one name, whatever their expression.
pub(crate) fn kind_name(kind: CheckKind) -> &'static str {
    match kind {
        CheckKind::Connect => "connect",
        CheckKind::Ping => "ping",
        CheckKind::ReadOnly(_) => "read_only",
        CheckKind::Lag => "replication_lag",
        CheckKind::Galera => "galera",
        CheckKind::Group => "group_replication",
        CheckKind::Aurora => "aws_aurora",
        CheckKind::BufferPool => "buffer_pool",
        CheckKind::Gtids => "gtids",
        CheckKind::Sources => "replication_sources",
        CheckKind::RdsTopology => "aws_rds_topology",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Found;

    fn checked(port: u16, started_us: u64) -> Checked {
        let addr = ServerAddr { host: "db".into(), port };
        Checked { addr, kind: CheckKind::Ping, started_us, took_us: 5, timeout_ms: 100, outcome: Ok(Found::Ping(5)) }
    }

    #[test]
    fn another_reason_is_told_and_each_once() {
        let mut failing = Failing::default();
        let mut news = |class, reason: &str| failing.is_news(class, reason);
        assert!(news(3, "User 'monitor' has exceeded the 'max_user_connections' resource (error 1226)"));
        assert!(!news(3, "User 'monitor' has exceeded the 'max_user_connections' resource (error 1226)"));
        assert!(news(3, "You must reset your password (error 1820)"));
        assert!(!news(3, "User 'monitor' has exceeded the 'max_user_connections' resource (error 1226)"), "they take turns");
        assert!(news(2, "Access denied") && !news(2, "Access denied") && news(3, "You must reset your password (error 1820)"));
        assert!(news(1, "connection 17 was lost") && !news(1, "connection 18 was lost"));
        let told = (0..100).filter(|n| news(1, &"x".repeat(*n))).count();
        assert!(told < REASONS_MAX, "{told}");
    }

    #[test]
    fn servers_that_refuse_a_check_are_counted_until_they_answer() {
        let mut log = CheckLog::default();
        let mut count = |port, outcome| {
            log.add(Checked { outcome, ..checked(port, unix_us()) });
            log.refused().filter(|(_, count)| *count > 0).collect::<Vec<_>>()
        };
        assert_eq!(count(1, Err(ProbeError::Timeout)), []);
        let denied = || Err(ProbeError::Denied("Access denied (error 1045)".into()));
        assert_eq!(count(1, denied()), [("ping", 1)]);
        assert_eq!(count(2, denied()), [("ping", 2)]);
        assert_eq!(count(2, denied()), [("ping", 2)]);
        assert_eq!(count(1, Ok(Found::Ping(5))), [("ping", 1)]);
        assert_eq!(count(2, Err(ProbeError::Timeout)), []);
    }

    #[test]
    fn results_are_bounded_in_age_and_number() {
        let now_us = unix_us();
        let mut log = CheckLog::default();
        log.configure(1_000);
        log.add(checked(1, now_us - 2_000_000));
        assert_eq!(log.results(CheckKind::Ping).count(), 0, "too old to be shown");
        log.add(checked(2, now_us));
        assert_eq!(log.results(CheckKind::Ping).map(|c| c.addr.port).collect::<Vec<_>>(), [2]);
        for _ in 0..RESULTS_MAX + 10 {
            log.add(checked(3, now_us));
        }
        assert_eq!(log.results.values().map(VecDeque::len).sum::<usize>(), RESULTS_MAX);
    }
}
