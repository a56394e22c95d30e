//! A revision that some proxies try: when they do badly it is taken back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// The state of this proxy before it got the revision on trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Baseline {
    /// The id of the revision on trial.
    revision: String,
    /// The usual counts before; None if there were too few statements. The revision is not judged then.
    usual: Option<Count>,
}

/// The counts of this proxy before and during a trial.
#[derive(Debug, Default)]
pub(super) struct Trial {
    samples: VecDeque<(Instant, Count)>,
    /// Set while a revision is on trial here.
    baseline: Option<Baseline>,
    /// Revisions that this proxy has asked to be taken back.
    ended: Option<String>,
}

impl Trial {
    /// Continues the trial of the process before.
    pub(super) fn new(baseline: Option<Baseline>) -> Self {
        Self { baseline, ..Self::default() }
    }

    /// A revision is about to be put in force: takes the last counts before it.
    pub(super) async fn look_before(&mut self, engine: &WeakHandle) {
        self.add(counts(engine).await, BEFORE);
    }

    /// Decides whether the revision on trial should be taken back, and does so.
    pub(super) async fn step(&mut self, sharing: &Arc<Sharing>, engine: &WeakHandle, seen: &Seen) {
        let me = sharing.me();
        let rollout = seen.head.as_ref().and_then(|head| Some((&head.manifest.revision, head.manifest.rollout.as_ref()?)));
        let Some((revision, rollout)) = rollout else {
            // Before etcd was read, a trial may be under way.
            if !seen.is_known {
                return;
            }
            (self.baseline, self.ended) = (None, None);
            self.tell(sharing, String::new());
            if self.samples.back().is_none_or(|(when, _)| when.elapsed() >= SELDOM) {
                self.add(counts(engine).await, BEFORE);
            }
            return;
        };
        if self.ended.as_ref() == Some(&revision.id) {
            return;
        }
        let why = match rollout.to.contains(&me.uuid) {
            true if !me.error.is_empty() && me.wanted == revision.number => Some(format!("{}: {}", me.name, me.error)),
            true if me.applied == revision.number => {
                let now = counts(engine).await;
                self.out_of_band(&revision.id, sharing.band(), now).map(|why| format!("{}: {why}", me.name))
            }
            true => None,
            false => {
                let gone = rollout.to.iter().find(|uuid| !seen.proxies.iter().any(|proxy| proxy.uuid == **uuid));
                gone.map(|uuid| format!("proxy {uuid}, which tried the revision, is gone"))
            }
        };
        let is_unjudged = self.baseline.as_ref().is_some_and(|baseline| baseline.revision == revision.id && baseline.usual.is_none());
        let remark = is_unjudged
            .then(|| format!("revision {} cannot be judged here: there were fewer than {LEAST} statements before it", revision.number));
        self.tell(sharing, remark.unwrap_or_default());
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

    /// Publishes the state of the trial here.
    fn tell(&self, sharing: &Sharing, remark: String) {
        sharing.lock().trial.clone_from(&self.baseline);
        sharing.shared.report(|line| line.remark = remark);
    }

    /// Why the revision on trial, which is in force, does worse than before; None without a baseline.
    fn out_of_band(&mut self, revision: &str, band: Band, now: Option<Count>) -> Option<String> {
        if self.baseline.as_ref().is_none_or(|baseline| baseline.revision != revision) {
            self.baseline = Some(Baseline { revision: revision.to_owned(), usual: self.usual() });
            self.samples.clear();
        }
        self.add(now, NOW);
        let recent = self.samples.back()?.1.since(self.samples.front()?.1);
        band.judge(self.baseline.as_ref()?.usual?, recent)
    }

    /// The counts of the last minute, or since the start if there was no traffic in that minute. None before the first traffic.
    fn usual(&self) -> Option<Count> {
        let (first, last) = (self.samples.front()?.1, self.samples.back()?.1);
        [last.since(first), last].into_iter().find(|count| count.statements >= LEAST)
    }

    fn add(&mut self, count: Option<Count>, keep: Duration) {
        self.samples.extend(count.map(|count| (Instant::now(), count)));
        while self.samples.len() > 2 && self.samples.get(1).is_some_and(|(when, _)| when.elapsed() > keep) {
            self.samples.pop_front();
        }
    }
}

/// The counts now; None if the engine does not answer.
async fn counts(engine: &WeakHandle) -> Option<Count> {
    let Some(Reply::Rows { rows, .. }) = ask(engine, "shared", COUNTS).await else { return None };
    let number = |column: usize| -> u64 {
        let text = rows.first().and_then(|row| row.get(column)?.clone()).unwrap_or_default();
        String::from_utf8_lossy(&text).parse().unwrap_or_default()
    };
    Some(Count { statements: number(0), errors: number(1) })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use shared_config::{FORMAT, Head, Link, Manifest, ProxyLine, Revision, Rollout, SharedConfig};

    use super::super::State;
    use super::*;
    use crate::handle::channel;

    /// A proxy that has revision 2 in force, which only it tries; and that revision.
    fn trying() -> (Arc<Sharing>, Seen) {
        let revision = |number: u64| Revision {
            number,
            id: format!("r{number}"),
            sha256: String::new(),
            bytes: 0,
            parts: Vec::new(),
            author: String::new(),
            proxy: String::new(),
            time: 0,
            command: String::new(),
        };
        let manifest = Manifest {
            format: FORMAT,
            cluster: "c".to_owned(),
            version: String::new(),
            revision: revision(2),
            rollout: Some(Rollout { to: vec!["p1".to_owned()], before: revision(1) }),
            lineage: Vec::new(),
        };
        let me = ProxyLine { uuid: "p1".to_owned(), applied: 2, wanted: 2, ..ProxyLine::default() };
        let shared = SharedConfig::start(me, Arc::default()).unwrap();
        let sharing = Arc::new(Sharing { shared, state: Mutex::new(State { band: 5, ..State::default() }) });
        let head = Some(Arc::new(Head { manifest, mod_revision: 1 }));
        (sharing, Seen { link: Link::Up, is_known: true, head, ..Seen::default() })
    }

    /// Has the trial look three times while 6 of 100 statements fail. Returns other statements for the engine, the remark and the baseline.
    fn look(mut trial: Trial) -> (Vec<String>, String, Option<Baseline>) {
        let (sharing, seen) = trying();
        let (handle, jobs) = channel(Arc::default());
        let engine = std::thread::spawn(move || {
            let (mut statements, mut others) = (0_u64, Vec::new());
            for job in jobs {
                let reply = if job.sql == COUNTS.as_bytes() {
                    statements += 1_000;
                    let counts = [statements, statements / 100 * 6].map(|count| Some(count.to_string().into_bytes()));
                    Reply::Rows { columns: Vec::new(), rows: vec![counts.to_vec()] }
                } else {
                    others.push(String::from_utf8(job.sql).unwrap());
                    Reply::done()
                };
                let _ = job.answer.send(reply);
            }
            others
        });
        let weak = handle.weak();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for _ in 0..3 {
                trial.step(&sharing, &weak, &seen).await;
            }
        });
        drop(handle);
        sharing.stop();
        assert!(trial.samples.len() >= 2, "it samples");
        (engine.join().unwrap(), sharing.me().remark, sharing.keep().trial)
    }

    #[test]
    fn without_a_baseline_nothing_is_judged() {
        let (statements, remark, kept) = look(Trial::default());
        assert!(statements.is_empty(), "{statements:?}");
        assert_eq!(remark, "revision 2 cannot be judged here: there were fewer than 20 statements before it");
        assert_eq!(kept, Some(Baseline { revision: "r2".to_owned(), usual: None }));
    }

    #[test]
    fn the_process_that_takes_over_judges_by_the_same_baseline() {
        let before = |usual| Some(Baseline { revision: "r2".to_owned(), usual: Some(usual) });
        let (statements, remark, kept) = look(Trial::new(before(count(1_000, 50))));
        assert!(statements.is_empty(), "{statements:?}");
        assert_eq!((remark, kept), (String::new(), before(count(1_000, 50))));
        let (statements, ..) = look(Trial::new(before(count(1_000, 0))));
        assert_eq!(statements.len(), 1);
        assert!(statements[0].starts_with("CONFIG ABORT") && statements[0].contains("6 of 100 statements fail, 0 failed before"));
    }

    #[test]
    fn a_sample_from_before_the_first_traffic_is_no_baseline() {
        let mut trial = Trial::default();
        assert_eq!(trial.usual(), None);
        trial.add(Some(count(0, 0)), BEFORE);
        trial.add(Some(count(19, 0)), BEFORE);
        assert_eq!(trial.usual(), None);
        trial.add(Some(count(500, 25)), BEFORE);
        assert_eq!(trial.usual(), Some(count(500, 25)));
        assert_eq!(trial.out_of_band("r", Band(5), Some(count(600, 35))), None, "the first count since");
        assert_eq!(trial.out_of_band("r", Band(5), Some(count(700, 44))), None, "5 before, 9 now");
        assert!(trial.out_of_band("r", Band(5), Some(count(800, 65))).is_some());
    }

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
