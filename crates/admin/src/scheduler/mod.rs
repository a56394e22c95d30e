//! The table `scheduler`: scripts that run at an interval.
//!
//! One task for each active row. A row's runs never overlap, not even over an upgrade. A run that takes longer than the interval is
//! followed by the next due time after it. The first run comes one interval after the row was loaded; a LOAD leaves unchanged rows alone.
//! If a row is changed or removed, its running script ends by itself; at the shutdown all are ended.

mod board;
mod capture;
mod programs;
mod report;
mod script;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use model::Config;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

pub use board::{Board, MAX_OUTPUT};
pub use capture::{Capture, Keep};
pub use programs::Programs;
use report::Report;
pub use script::{Ended, GRACE, Run, Script, forbid, is_forbidden, run};

/// Names of the columns with arguments.
const ARGS: [&str; 5] = ["arg1", "arg2", "arg3", "arg4", "arg5"];

/// One active row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// `id` of the row.
    pub id: i64,
    /// Time from one start to the next.
    pub interval: Duration,
    /// The program's absolute path.
    pub filename: String,
    /// Arguments up to the first NULL.
    pub args: Vec<String>,
}

impl Job {
    /// The active rows. A row without an id is named by its place, negative.
    pub fn read(config: &Config) -> Vec<Self> {
        let rows = config.rows("scheduler").iter().zip(1i64..).filter(|(row, _)| row.flag("active"));
        let job = |(row, place): (&model::config::Row, i64)| Self {
            id: row.integer("id").unwrap_or(-place),
            interval: Duration::from_millis(row.integer("interval_ms").and_then(|ms| u64::try_from(ms).ok()).unwrap_or(u64::MAX).max(1)),
            filename: row.text("filename").unwrap_or_default().to_owned(),
            args: ARGS.iter().map_while(|name| row.text(name)).map(str::to_owned).collect(),
        };
        rows.map(job).collect()
    }
}

/// A row that is looked after.
#[derive(Debug)]
struct Kept {
    job: Job,
    retire: Arc<Notify>,
    task: JoinHandle<()>,
}

/// Runs the rows. One a process; lives on the runtime that calls [`Scheduler::apply`].
#[derive(Debug)]
pub struct Scheduler {
    board: Arc<Board>,
    stop: watch::Sender<bool>,
    kept: HashMap<i64, Kept>,
    /// Rows that are gone, whose last run may go on.
    retired: HashMap<i64, JoinHandle<()>>,
}

impl Scheduler {
    /// A scheduler without rows, which records its runs on `board`.
    pub fn new(board: Arc<Board>) -> Self {
        Self { board, stop: watch::Sender::new(false), kept: HashMap::new(), retired: HashMap::new() }
    }

    /// Looks after these rows from now on.
    pub fn apply(&mut self, jobs: Vec<Job>) {
        self.retired.retain(|_, task| !task.is_finished());
        let stays = |kept: &Kept| jobs.contains(&kept.job);
        let gone: Vec<i64> = self.kept.iter().filter(|(_, kept)| !stays(kept)).map(|(id, _)| *id).collect();
        for kept in gone.iter().filter_map(|id| self.kept.remove(id)) {
            kept.retire.notify_one();
            self.retired.insert(kept.job.id, kept.task);
        }
        for job in jobs {
            if !self.kept.contains_key(&job.id) {
                let (retire, previous) = (Arc::new(Notify::new()), self.retired.remove(&job.id));
                let task = look_after(job.clone(), Arc::clone(&self.board), self.stop.subscribe(), Arc::clone(&retire), previous);
                self.kept.insert(job.id, Kept { job, retire, task: tokio::spawn(task) });
            }
        }
    }

    /// Ends what runs and runs nothing more; returns when all are gone.
    pub async fn stop(&mut self) {
        self.stop.send_replace(true);
        let tasks = self.kept.drain().map(|(_, kept)| kept.task).chain(self.retired.drain().map(|(_, task)| task));
        for task in tasks.collect::<Vec<_>>() {
            let _ = timeout(GRACE * 2, task).await;
        }
    }
}

async fn look_after(job: Job, board: Arc<Board>, mut stop: watch::Receiver<bool>, retire: Arc<Notify>, previous: Option<JoinHandle<()>>) {
    if let Some(previous) = previous {
        // A row's runs never overlap: the last run of its old version ends first.
        let _ = previous.await;
    }
    board.add(&job);
    let (args, environment) = (job.args.clone(), Vec::new());
    let script = Script { program: job.filename.clone(), args, environment, limit: None, max_output: MAX_OUTPUT, keep: Keep::Tail };
    let mut report = Report::default();
    let mut due = interval_at(Instant::now() + job.interval, job.interval);
    due.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            () = retire.notified() => break,
            _ = due.tick() => {}
        }
        if board.runs_elsewhere(job.id) {
            continue;
        }
        board.begins(job.id);
        let run = script::run(&script, &mut stop).await;
        board.ends(job.id, &run);
        report.log(&job, &run, Instant::now());
    }
    board.remove(job.id);
}

#[cfg(test)]
mod tests;
