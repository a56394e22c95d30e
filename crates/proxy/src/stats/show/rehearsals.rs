//! Tables, metrics and the page of rehearsals.

use super::{Rows, Table};
use crate::stats::{ProxyStats, collect};
use meter::digest::shown;
use model::snapshot::{Rehearsal, RehearsalMode};
use model::stats::MetricKind::{Counter, Gauge};
use model::stats::{Metric, MetricKind, Reading, Sample, StatsSchema, StatsTable, Value, stat, stat_null};
use rehearsal::verdict::{About, Coverage, Limits, Ran, coverage, page, verdict};
use rehearsal::{Before, CLASSES, Class, GIVE_UPS, OfDigest, PLAN_ENDS, Reads, Run, SKIPS, Tally, Weight};
use sql::{Facts, Kind, LexMode};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// See the module.
pub(super) const TABLES: &[Table] = &[
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_tidegate_rehearsals",
            columns: &[
                stat("name", "VARCHAR"),
                stat("mode", "VARCHAR"),
                stat("state", "VARCHAR"),
                stat("started_at", "INTEGER"),
                stat("seconds", "INTEGER"),
                stat("original", "VARCHAR"),
                stat("shadow", "VARCHAR"),
                stat("sessions", "INTEGER"),
                stat("given_up", "INTEGER"),
                stat("statements", "INTEGER"),
                stat("warming", "INTEGER"),
                stat("skipped", "INTEGER"),
                stat("compared", "INTEGER"),
                stat("good", "INTEGER"),
                stat("bad", "INTEGER"),
                stat("look", "INTEGER"),
                stat("noise", "INTEGER"),
                stat("unchecked", "INTEGER"),
                stat("rechecks", "INTEGER"),
                stat("queued_bytes", "INTEGER"),
                stat("behind_ms", "INTEGER"),
                stat("waited_ms", "INTEGER"),
                stat("busy_ms", "INTEGER"),
                stat("coverage_percent", "REAL"),
                stat("verdict", "VARCHAR"),
                stat("reasons", "VARCHAR"),
                stat("error", "VARCHAR"),
            ],
            primary_key: &["name"],
            has_reset: false,
            help: "Rehearsals since the start of the process, with their verdicts",
        },
        rows: rehearsals,
    },
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_tidegate_rehearsal_digests",
            columns: &[
                stat("name", "VARCHAR"),
                stat("digest", "VARCHAR"),
                stat("digest_text", "VARCHAR"),
                stat("compared", "INTEGER"),
                stat("same", "INTEGER"),
                stat("same_unordered", "INTEGER"),
                stat("timing", "INTEGER"),
                stat("error_new", "INTEGER"),
                stat("rows", "INTEGER"),
                stat("count", "INTEGER"),
                stat("affected", "INTEGER"),
                stat("error_gone", "INTEGER"),
                stat("error_other", "INTEGER"),
                stat("timed_out", "INTEGER"),
                stat("reordered", "INTEGER"),
                stat("limited", "INTEGER"),
                stat("float", "INTEGER"),
                stat("columns", "INTEGER"),
                stat("insert_id", "INTEGER"),
                stat("warnings", "INTEGER"),
                stat("out_of_order", "INTEGER"),
                stat("noise", "INTEGER"),
                stat("unchecked", "INTEGER"),
                stat("ignored", "INTEGER"),
                stat("original_p50_us", "INTEGER"),
                stat("shadow_p50_us", "INTEGER"),
                stat("original_p99_us", "INTEGER"),
                stat("shadow_p99_us", "INTEGER"),
                stat("original_sum_us", "INTEGER"),
                stat("shadow_sum_us", "INTEGER"),
                stat_null("ignored_by", "VARCHAR"),
            ],
            primary_key: &["name", "digest"],
            has_reset: false,
            help: "What rehearsals compared, by digest: comparisons of each class, times on both servers",
        },
        rows: digests,
    },
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_tidegate_rehearsal_samples",
            columns: &[
                stat("name", "VARCHAR"),
                stat("digest", "VARCHAR"),
                stat("class", "VARCHAR"),
                stat("seen_at", "INTEGER"),
                stat("username", "VARCHAR"),
                stat_null("schemaname", "VARCHAR"),
                stat("statement", "VARCHAR"),
                stat("original", "VARCHAR"),
                stat("shadow", "VARCHAR"),
            ],
            primary_key: &[],
            has_reset: false,
            help: "The first differences of each digest and class. Literals are shown if mysql_rehearsals.show_literals is 1",
        },
        rows: samples,
    },
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_tidegate_rehearsal_plans",
            columns: &[
                stat("name", "VARCHAR"),
                stat("digest", "VARCHAR"),
                stat("digest_text", "VARCHAR"),
                stat("reason", "VARCHAR"),
                stat("seen_at", "INTEGER"),
                stat("change", "VARCHAR"),
                stat("original_plan", "VARCHAR"),
                stat("shadow_plan", "VARCHAR"),
            ],
            primary_key: &["name", "digest"],
            has_reset: false,
            help: "How both servers of a rehearsal run digests that are slower on the shadow or have other rows there. Plans have no literals",
        },
        rows: plans,
    },
];

/// Facts of statements that mode `all` leaves out.
const LEFT_OUT: Facts = Facts::INTO_FILE.union(Facts::GET_LOCK).union(Facts::RELEASE_LOCK);

/// A run with what can be said of it now.
struct JudgedRun {
    run: Arc<Run>,
    tally: Tally,
    error: String,
    plan_error: String,
    coverage: Coverage,
    limits: Limits,
}

impl JudgedRun {
    fn of(stats: &ProxyStats, run: &Arc<Run>) -> Self {
        // From the end on neither the tally nor the coverage changes.
        let settled = settle_rehearsal(stats, run).cloned();
        let (tally, error, plan_error) = {
            let findings = run.findings();
            (findings.tally.clone(), findings.error.clone(), findings.plan_error.clone())
        };
        let coverage = settled.unwrap_or_else(|| coverage_now(stats, run, &tally));
        Self { run: Arc::clone(run), tally, error, plan_error, coverage, limits: limits(run) }
    }

    fn weighing(&self, weight: Weight) -> u64 {
        CLASSES.iter().filter(|class| class.weight() == weight).map(|class| self.tally.count(*class)).sum()
    }

    fn about(&self, now_ms: u64) -> About {
        let run = &self.run;
        let seconds = run.seconds(now_ms);
        let state = match (run.ending(now_ms), run.planned_s()) {
            (Some(ending), _) => format!("ended after {seconds} s ({})", ending.name()),
            (None, Some(planned)) => format!("running, {seconds} of {planned} s"),
            (None, None) => format!("running for {seconds} s"),
        };
        let headline = format!(
            "{}: {state}, {} ({}) against {} ({}), {}, {} % of sessions",
            run.plan.name,
            run.original.address,
            run.original.version,
            run.shadow.address,
            run.shadow.version,
            mode(run),
            run.plan.percent
        );
        let given_up = listed(GIVE_UPS.iter().map(|why| (why.name(), run.given_up(*why))));
        let skipped = listed(SKIPS.iter().map(|why| (why.name(), run.skipped(*why))));
        let warming = run.warming.load(Ordering::Relaxed);
        let sessions = run.sessions.load(Ordering::Relaxed);
        let sessions = match run.plan.mode {
            RehearsalMode::Reads => format!("{sessions} repeated; given up: {given_up}"),
            RehearsalMode::All if GIVE_UPS.iter().all(|why| run.given_up(*why) == 0) => format!("{sessions} copied; incomplete: none"),
            RehearsalMode::All => format!("{sessions} copied; incomplete: {given_up}; later differences may follow from what is missing"),
        };
        let mut notes = vec![("sessions", sessions), ("skipped", format!("{skipped}; {warming} statements of the warm-up"))];
        if !run.replication.is_empty() {
            notes.push(("replication", run.replication.clone()));
        }
        if self.tally.others() > 0 {
            notes.push((
                "skipped",
                format!("{} comparisons of digests beyond the first {} are not told apart", self.tally.others(), rehearsal::MAX_DIGESTS),
            ));
        }
        if PLAN_ENDS.iter().any(|end| run.plans(*end) > 0) {
            let plans = listed(PLAN_ENDS.iter().map(|end| (end.name(), run.plans(*end))));
            notes.push(("plans", if self.plan_error.is_empty() { plans } else { format!("{plans}; last error: {}", self.plan_error) }));
        }
        let overtaken = run.overtaken.load(Ordering::Relaxed);
        if overtaken > 0 {
            notes.push(("order", format!("{overtaken} writes waited for a lock on the shadow, and later statements overtook them")));
        }
        if !self.error.is_empty() {
            notes.push(("error", self.error.clone()));
        }
        About { headline, notes }
    }
}

fn limits(run: &Run) -> Limits {
    Limits { slow_factor: run.plan.slow_factor, total_growth: run.plan.total_growth }
}

/// How much of what has run since START was compared.
fn coverage_now(stats: &ProxyStats, run: &Run, tally: &Tally) -> Coverage {
    let ran = run.before.since(reads(stats, &run.plan));
    Coverage { unknown: missing(run).or_else(|| forgotten(stats, run)), ..coverage(tally, ran) }
}

/// The coverage with which a run has ended. The first call after the end fixes it and logs the end. None: the run has not ended.
pub(crate) fn settle_rehearsal<'a>(stats: &ProxyStats, run: &'a Run) -> Option<&'a Coverage> {
    let now_ms = stats.shared.clock.now_ms();
    let ending = run.ending(now_ms)?;
    Some(run.settle(|tally| {
        let coverage = coverage_now(stats, run, tally);
        let word = verdict(tally, &coverage, limits(run)).word;
        let (name, seconds) = (&run.plan.name, run.seconds(now_ms));
        tracing::info!("rehearsal '{name}' ended after {seconds} s ({}): {word}", ending.name());
        coverage.in_short()
    }))
}

/// The mode as the page and tables show it.
fn mode(run: &Run) -> &'static str {
    match run.plan.mode {
        RehearsalMode::Reads => "reads",
        RehearsalMode::All => "all",
    }
}

/// How long the oldest command of a rehearsal in mode `all` waits for the shadow, ms.
fn behind_ms(stats: &ProxyStats, run: &Run) -> u64 {
    let copying = stats.shared.copying.load_full().filter(|copying| std::ptr::eq(&*copying.run, run));
    let oldest_us = copying.and_then(|copying| copying.oldest_us());
    oldest_us.map_or(0, |oldest_us| stats.shared.clock.now_us().saturating_sub(oldest_us) / 1000)
}

fn listed<'a>(counts: impl Iterator<Item = (&'a str, u64)>) -> String {
    let some: Vec<String> = counts.filter(|(_, count)| *count > 0).map(|(name, count)| format!("{count} {name}")).collect();
    if some.is_empty() { "none".to_owned() } else { some.join(", ") }
}

/// Why the shadow does not have all that ran.
fn missing(run: &Run) -> Option<&'static str> {
    run.is_incomplete().then_some("sessions were incomplete for a time, so the shadow may lack writes")
}

/// Why statistics by digest do not have all reads of a run.
fn forgotten(stats: &ProxyStats, run: &Run) -> Option<&'static str> {
    let is_counted = stats.shared.in_force.load().snapshot.vars.query_digests;
    let is_cleared = stats.digests().cleared_ms().is_some_and(|cleared_ms| cleared_ms >= run.started_ms);
    match () {
        () if !is_counted => Some("mysql-query_digests is off, so nothing is known of the other reads"),
        () if is_cleared => Some("stats_mysql_query_digest was reset since the rehearsal began, so nothing is known of the other reads"),
        () => None,
    }
}

/// Digests that are to be compared (mode `all`: writes too) and that the original's hostgroup has served, as far as statistics have them.
fn reads(stats: &ProxyStats, plan: &Rehearsal) -> Vec<Ran> {
    let mut totals = stats.digests();
    collect::drain_digests(&stats.shared, &mut totals);
    let mut all: HashMap<u64, Ran> = HashMap::new();
    let is_meant = |user: &str, schema: &[u8]| plan.is_for_user(user) && plan.is_for_schema(schema);
    let of_hostgroup = totals.rows().filter(|(key, ..)| key.hostgroup == i64::from(plan.source.0) && is_meant(&key.user, &key.schema));
    for (key, sums, _) in of_hostgroup {
        let analysis = sql::analyze(&key.digest.text, LexMode::default());
        let is_compared = match plan.mode {
            RehearsalMode::Reads => Reads::of(&key.digest.text, LexMode::default(), &analysis) != Reads::No,
            RehearsalMode::All => {
                let is_of_data = matches!(analysis.kind, Kind::Select | Kind::Insert | Kind::Replace | Kind::Update | Kind::Delete);
                is_of_data && !analysis.facts.intersects(LEFT_OUT)
            }
        };
        if !is_compared {
            continue;
        }
        let digest = key.digest.hash;
        let text = || String::from_utf8_lossy(&key.digest.text).into_owned();
        let ran = all.entry(digest).or_insert_with(|| Ran { digest, text: text(), count: 0, sum_us: 0 });
        ran.count += sums.count;
        ran.sum_us += sums.sum_us;
    }
    all.into_values().collect()
}

/// What has run so far of what a rehearsal by this plan is to compare.
pub(crate) fn ran_before(stats: &ProxyStats, plan: &Rehearsal) -> Before {
    Before::of(reads(stats, plan))
}

fn rehearsals(stats: &ProxyStats, _: Reading) -> Rows {
    let now_ms = stats.shared.clock.now_ms();
    stats.shared.rehearsals.runs().iter().map(|run| row(&JudgedRun::of(stats, run), behind_ms(stats, run), now_ms)).collect()
}

fn row(judged: &JudgedRun, behind_ms: u64, now_ms: u64) -> Vec<Value> {
    let (run, tally) = (&judged.run, &judged.tally);
    let verdict = verdict(tally, &judged.coverage, judged.limits);
    let state = match run.ended_ms(now_ms) {
        Some(_) => "ended",
        None if run.is_warming(now_ms) => "warming up",
        None => "running",
    };
    let server = |server: &rehearsal::ServerName| Value::Text(format!("{} ({})", server.address, server.version));
    vec![
        (*run.plan.name).into(),
        mode(run).into(),
        state.into(),
        run.started_at.into(),
        run.seconds(now_ms).into(),
        server(&run.original),
        server(&run.shadow),
        run.sessions.load(Ordering::Relaxed).into(),
        GIVE_UPS.iter().map(|why| run.given_up(*why)).sum::<u64>().into(),
        run.statements.load(Ordering::Relaxed).into(),
        run.warming.load(Ordering::Relaxed).into(),
        SKIPS.iter().map(|why| run.skipped(*why)).sum::<u64>().into(),
        tally.compared().into(),
        judged.weighing(Weight::Good).into(),
        judged.weighing(Weight::Bad).into(),
        judged.weighing(Weight::Look).into(),
        tally.count(Class::Noise).into(),
        tally.count(Class::Unchecked).into(),
        run.rechecks.load(Ordering::Relaxed).into(),
        run.queued_bytes().into(),
        behind_ms.into(),
        (run.waited_us.load(Ordering::Relaxed) / 1000).into(),
        (run.busy_ns.load(Ordering::Relaxed) / 1_000_000).into(),
        Value::Text(format!("{:.1}", judged.coverage.percent)),
        verdict.word.to_string().into(),
        verdict.reasons.join("; ").into(),
        judged.error.clone().into(),
    ]
}

fn digests(stats: &ProxyStats, _: Reading) -> Rows {
    let row = |run: &Run, hash: u64, digest: &OfDigest| {
        let mut row: Vec<Value> = vec![(*run.plan.name).into(), shown(hash).into(), (*digest.text).into(), digest.compared().into()];
        row.extend(CLASSES.iter().map(|class| digest.count(*class).into()));
        for percent in [50, 99] {
            row.extend(digest.times.iter().map(|times| times.percentile_us(percent).into()));
        }
        row.extend(digest.times.iter().map(|times| times.sum_us().into()));
        row.push(digest.ignored_by.as_deref().into());
        row
    };
    let mut rows = Vec::new();
    for run in stats.shared.rehearsals.runs() {
        let findings = run.findings();
        rows.extend(findings.tally.digests().into_iter().map(|(hash, digest)| row(&run, hash, digest)));
    }
    rows
}

fn samples(stats: &ProxyStats, _: Reading) -> Rows {
    let mut rows: Rows = Vec::new();
    for run in stats.shared.rehearsals.runs() {
        let findings = run.findings();
        rows.extend(findings.tally.samples().iter().map(|sample| {
            vec![
                (*run.plan.name).into(),
                shown(sample.digest).into(),
                sample.class.name().into(),
                sample.seen_at.into(),
                sample.user.clone().into(),
                Some(sample.schema.as_str()).filter(|schema| !schema.is_empty()).into(),
                sample.text.clone().into(),
                sample.original.clone().into(),
                sample.shadow.clone().into(),
            ]
        }));
    }
    rows
}

fn plans(stats: &ProxyStats, _: Reading) -> Rows {
    let mut rows: Rows = Vec::new();
    for run in stats.shared.rehearsals.runs() {
        let findings = run.findings();
        let planned = findings.tally.digests().into_iter().filter_map(|(hash, digest)| Some((hash, digest, digest.plans.as_deref()?)));
        rows.extend(planned.map(|(hash, digest, plans)| {
            vec![
                (*run.plan.name).into(),
                shown(hash).into(),
                (*digest.text).into(),
                plans.reason.into(),
                plans.seen_at.into(),
                plans.change.clone().into(),
                plans.original.clone().into(),
                plans.shadow.clone().into(),
            ]
        }));
    }
    rows
}

/// The page of SHOW REHEARSAL.
///
/// # Errors
/// The rehearsal was never started.
pub(crate) fn rehearsal_page(stats: &ProxyStats, name: &str) -> Result<Vec<(&'static str, String)>, String> {
    let run = stats.shared.rehearsals.run(name);
    let run = run.ok_or_else(|| format!("rehearsal '{name}' was never started here: START REHEARSAL '{name}' FOR 3600 SECONDS"))?;
    let judged = JudgedRun::of(stats, &run);
    let about = judged.about(stats.shared.clock.now_ms());
    Ok(page(&about, &judged.tally, &judged.coverage, judged.limits))
}

/// What is counted, by rehearsal.
pub(super) fn metrics(stats: &ProxyStats) -> Vec<Metric> {
    let runs = stats.shared.rehearsals.runs();
    let family = |name: &'static str, kind: MetricKind, help: &'static str, samples: Vec<Sample>| Metric { name, help, kind, samples };
    let each = |label: &'static str, values: &dyn Fn(&Run) -> Vec<(String, u64)>| {
        let of = |run: &Arc<Run>| {
            let of_run = values(run).into_iter().map(|(word, value)| {
                let mut labels = vec![("rehearsal", run.plan.name.to_string())];
                labels.extend((!label.is_empty()).then_some((label, word)));
                Sample { suffix: "", labels, value: value as f64 }
            });
            of_run.collect::<Vec<_>>()
        };
        runs.iter().flat_map(of).collect::<Vec<_>>()
    };
    let classes = |run: &Run| {
        let findings = run.findings();
        CLASSES.iter().map(|class| (class.name().to_owned(), findings.tally.count(*class))).collect()
    };
    let given_up = |run: &Run| GIVE_UPS.iter().map(|why| (why.name().to_owned(), run.given_up(*why))).collect();
    let skipped = |run: &Run| SKIPS.iter().map(|why| (why.name().to_owned(), run.skipped(*why))).collect();
    let planned = |run: &Run| PLAN_ENDS.iter().map(|end| (end.name().to_owned(), run.plans(*end))).collect();
    let queued = |run: &Run| vec![(String::new(), run.queued_bytes())];
    let rechecks = |run: &Run| vec![(String::new(), run.rechecks.load(Ordering::Relaxed))];
    let seconds = |value: &dyn Fn(&Run) -> f64| {
        let of = |run: &Arc<Run>| Sample { suffix: "", labels: vec![("rehearsal", run.plan.name.to_string())], value: value(run) };
        runs.iter().map(of).collect::<Vec<_>>()
    };
    let waited = seconds(&|run| run.waited_us.load(Ordering::Relaxed) as f64 / 1e6);
    let behind = seconds(&|run| behind_ms(stats, run) as f64 / 1e3);
    let busy = seconds(&|run| run.busy_ns.load(Ordering::Relaxed) as f64 / 1e9);
    vec![
        family("tidegate_rehearsal_busy_seconds_total", Counter, "How long the proxy's threads worked on what is repeated", busy),
        family("tidegate_rehearsal_waited_seconds_total", Counter, "How long clients waited for room in the queue (on_full=wait)", waited),
        family("tidegate_rehearsal_behind_seconds", Gauge, "Age of the oldest command that waits for the shadow (mode all)", behind),
        family("tidegate_rehearsal_compared_total", Counter, "Answers that were compared, by class", each("class", &classes)),
        family(
            "tidegate_rehearsal_sessions_given_up_total",
            Counter,
            "Sessions given up (mode reads) or incomplete for a time (mode all), by reason",
            each("reason", &given_up),
        ),
        family("tidegate_rehearsal_skipped_total", Counter, "Statements that were not repeated, by reason", each("reason", &skipped)),
        family("tidegate_rehearsal_queued_bytes", Gauge, "Bytes that wait for the shadow, of queue_mb", each("", &queued)),
        family(
            "tidegate_rehearsal_plans_total",
            Counter,
            "Questions to both servers for the plans of a statement, by what became of them",
            each("result", &planned),
        ),
        family("tidegate_rehearsal_rechecks_total", Counter, "Rounds of second questions to both servers", each("", &rechecks)),
    ]
}
