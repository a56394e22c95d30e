//! The results of each row's runs: `stats_tidegate_scheduler`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use model::stats::{Reading, StatsColumn, StatsSchema, StatsSource, StatsTable, Value, stat, stat_null};

use super::Job;
use super::script::{Ended, Run};

/// Most bytes of the last output that are shown.
pub const MAX_OUTPUT: usize = 4 << 10;

const COLUMNS: &[StatsColumn] = &[
    stat("id", "INTEGER"),
    stat("filename", "VARCHAR"),
    stat("runs", "INT"),
    stat("running", "INT"),
    stat_null("last_start", "INT"),
    stat_null("last_duration_ms", "INT"),
    stat_null("last_exit", "INT"),
    stat_null("last_output", "VARCHAR"),
];

/// One row for each active row of `scheduler`.
pub(super) static TABLE: StatsTable = StatsTable {
    schema: StatsSchema::Stats,
    name: "stats_tidegate_scheduler",
    columns: COLUMNS,
    primary_key: &["id"],
    has_reset: false,
    help: "Scripts of the scheduler: number of runs, whether one runs now, and the last result",
};

/// One row's runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Line {
    filename: String,
    runs: u64,
    is_running: bool,
    last_start_s: Option<u64>,
    last_end: Option<(u64, i32, String)>,
}

/// All rows' runs. One per process, written by the scheduler and read by the table.
#[derive(Debug, Default)]
pub struct Board {
    lines: Mutex<BTreeMap<i64, Line>>,
    /// Rows of which the process before this one still has a run.
    elsewhere: Mutex<BTreeSet<i64>>,
}

impl Board {
    /// Rows of which a run goes on now.
    pub fn running(&self) -> Vec<i64> {
        self.lock().iter().filter(|(_, line)| line.is_running).map(|(id, _)| *id).collect()
    }

    /// The process before this one has a run of these rows: they are not begun here meanwhile.
    pub fn set_elsewhere(&self, ids: impl IntoIterator<Item = i64>) {
        *self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner) = ids.into_iter().collect();
    }

    pub(super) fn runs_elsewhere(&self, id: i64) -> bool {
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).contains(&id)
    }

    pub(super) fn add(&self, job: &Job) {
        self.lock().insert(job.id, Line { filename: job.filename.clone(), ..Line::default() });
    }

    pub(super) fn remove(&self, id: i64) {
        self.lock().remove(&id);
    }

    pub(super) fn begins(&self, id: i64) {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if let Some(line) = self.lock().get_mut(&id) {
            line.runs += 1;
            line.is_running = true;
            line.last_start_s = Some(now_s);
        }
    }

    pub(super) fn ends(&self, id: i64, run: &Run) {
        if let Some(line) = self.lock().get_mut(&id) {
            line.is_running = false;
            line.last_end = Some((u64::try_from(run.took.as_millis()).unwrap_or(u64::MAX), run.ended.code(), output(run)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<i64, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Both outputs, the standard one first; why it did not start when it did not. The end is kept.
pub(super) fn output(run: &Run) -> String {
    let text = match &run.ended {
        Ended::NotStarted { why, .. } => why.clone(),
        _ => run.stdout.text() + &run.stderr.text(),
    };
    let mut from = text.len().saturating_sub(MAX_OUTPUT);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text.get(from..).unwrap_or_default().to_owned()
}

impl StatsSource for Board {
    fn tables(&self) -> Vec<&'static StatsTable> {
        vec![&TABLE]
    }

    fn rows(&self, table: &'static StatsTable, _: Reading) -> Vec<Vec<Value>> {
        if table.name != TABLE.name {
            return Vec::new();
        }
        let row = |(id, line): (&i64, &Line)| {
            let (duration_ms, exit, output) =
                line.last_end.clone().map_or((None, None, None), |(d, e, o)| (Some(d), Some(i64::from(e)), Some(o)));
            vec![
                Value::Integer(*id),
                line.filename.as_str().into(),
                line.runs.into(),
                Value::Integer(line.is_running.into()),
                line.last_start_s.into(),
                duration_ms.into(),
                exit.into(),
                output.into(),
            ]
        };
        self.lock().iter().map(row).collect()
    }
}
