//! A revision that some proxies try: when they do badly it is taken back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shared_config::Seen;

use super::Sharing;
use super::follow::ask;
use crate::handle::WeakHandle;
use crate::reply::Reply;

/// Time between samples while nothing is tried.
const SELDOM: Duration = Duration::from_secs(10);
/// How far back "before" goes.
const BEFORE: Duration = Duration::from_secs(60);
/// How far back "now" goes.
const NOW: Duration = Duration::from_secs(10);
/// Least statements that say anything.
const LEAST: u64 = 20;

/// Statements and errors since the start. Errors are those that clients were given: of servers and of the proxy.
const COUNTS: &str = "SELECT (SELECT variable_value FROM stats_mysql_global WHERE variable_name = 'Questions'), \
     (SELECT COALESCE(SUM(count_star), 0) FROM stats_mysql_errors) + \
     (SELECT variable_value FROM stats_mysql_global WHERE variable_name = 'generated_error_packets')";

/// How many statements there were, and how many of them failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Statements of clients.
    pub statements: u64,
    /// Error packets to clients.
    pub errors: u64,
}

impl Count {
    fn since(self, earlier: Self) -> Self {
        Self { statements: self.statements.saturating_sub(earlier.statements), errors: self.errors.saturating_sub(earlier.errors) }
    }

    /// Errors of 100 statements.
    fn percent(self) -> u64 {
        self.errors.saturating_mul(100) / self.statements.max(1)
    }
}

/// How many more of 100 statements may fail than before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Band(pub u64);

impl Band {
    /// Why the error rate is out of its band, if it is.
    pub(crate) fn judge(self, before: Count, now: Count) -> Option<String> {
        if now.statements < LEAST && now.errors < LEAST {
            return None;
        }
        let (was, is) = (before.percent(), now.percent());
        (is >= was + self.0).then(|| format!("{is} of 100 statements fail, {was} failed before"))
    }
}

/// The counts of this proxy before and during a trial.
#[derive(Debug, Default)]
pub(super) struct Trial {
    samples: VecDeque<(Instant, Count)>,
    /// The id of the revision on trial here, and the usual counts before.
    of: Option<(String, Count)>,
    /// Revisions that this proxy has asked to be taken back.
    ended: Option<String>,
}

impl Trial {
    /// Decides whether the revision on trial should be taken back, and does so.
    pub(super) async fn step(&mut self, sharing: &Arc<Sharing>, engine: &WeakHandle, seen: &Seen) {
        let me = sharing.me();
        let rollout = seen.head.as_ref().and_then(|head| Some((&head.manifest.revision, head.manifest.rollout.as_ref()?)));
        let Some((revision, rollout)) = rollout else {
            (self.of, self.ended) = (None, None);
            if self.samples.back().is_none_or(|(when, _)| when.elapsed() >= SELDOM) {
                self.sample(engine, BEFORE).await;
            }
            return;
        };
        if self.ended.as_ref() == Some(&revision.id) {
            return;
        }
        let why = match rollout.to.contains(&me.uuid) {
            true if !me.error.is_empty() && me.wanted == revision.number => Some(format!("{}: {}", me.name, me.error)),
            true if me.applied == revision.number => {
                self.out_of_band(sharing, engine, &revision.id).await.map(|why| format!("{}: {why}", me.name))
            }
            true => None,
            false => {
                let gone = rollout.to.iter().find(|uuid| !seen.proxies.iter().any(|proxy| proxy.uuid == **uuid));
                gone.map(|uuid| format!("proxy {uuid}, which tried the revision, is gone"))
            }
        };
        if let Some(why) = why {
            self.ended = Some(revision.id.clone());
            tracing::error!("shared configuration: revision {} is aborted: {why}", revision.number);
            let why: String = why.replace('\'', "''").chars().take(500).collect();
            if let Some(Reply::Err { text, .. }) = ask(engine, "rollout", &format!("CONFIG ABORT '{why}'")).await {
                tracing::warn!("shared configuration: CONFIG ABORT: {text}");
                self.ended = None;
            }
        }
    }

    async fn out_of_band(&mut self, sharing: &Arc<Sharing>, engine: &WeakHandle, id: &str) -> Option<String> {
        if self.of.as_ref().is_none_or(|(of, _)| of != id) {
            let (first, last) = (self.samples.front()?.1, self.samples.back()?.1);
            // Without traffic in the last minute, all since the start.
            let usual = Some(last.since(first)).filter(|count| count.statements >= LEAST).unwrap_or(last);
            self.of = Some((id.to_owned(), usual));
            self.samples.clear();
        }
        self.sample(engine, NOW).await;
        let now = self.samples.back()?.1.since(self.samples.front()?.1);
        let (_, usual) = self.of.as_ref()?;
        sharing.band().judge(*usual, now)
    }

    async fn sample(&mut self, engine: &WeakHandle, keep: Duration) {
        let Some(Reply::Rows { rows, .. }) = ask(engine, "shared", COUNTS).await else { return };
        let number = |column: usize| -> u64 {
            let text = rows.first().and_then(|row| row.get(column)?.clone()).unwrap_or_default();
            String::from_utf8_lossy(&text).parse().unwrap_or_default()
        };
        self.samples.push_back((Instant::now(), Count { statements: number(0), errors: number(1) }));
        while self.samples.len() > 2 && self.samples.get(1).is_some_and(|(when, _)| when.elapsed() > keep) {
            self.samples.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(statements: u64, errors: u64) -> Count {
        Count { statements, errors }
    }

    #[test]
    fn more_errors_than_before_are_out_of_the_band() {
        let band = Band(5);
        assert_eq!(band.judge(count(1_000, 10), count(100, 5)), None, "1 before, 5 now");
        assert!(band.judge(count(1_000, 10), count(100, 6)).is_some());
        assert!(band.judge(count(1_000, 400), count(100, 44)).is_none(), "it failed before, too");
        assert!(band.judge(count(0, 0), count(50, 50)).is_some());
        assert!(band.judge(count(0, 0), count(0, 50)).is_some(), "errors of clients that get no further");
    }

    #[test]
    fn few_statements_say_nothing() {
        assert_eq!(Band(1).judge(count(0, 0), count(19, 19)), None);
    }
}
