//! The log lines about a row's runs: the output of good runs, one line for a failed run, and fewer while it keeps failing.
//!
//! `stats_tidegate_scheduler` has the whole output of the last run.

use std::time::Duration;

use tokio::time::Instant;

use super::script::{Ended, Run};
use super::{Job, board};

/// Most lines of a good run's output that go to the log.
const MAX_LOG_LINES: usize = 100;
/// Between two lines about a row that keeps failing in the same way.
const EVERY: Duration = Duration::from_secs(60);
/// Most bytes of a failed run's last line in the log.
const MAX_REASON: usize = 300;

/// The last result of a scheduler row that was logged.
#[derive(Debug, Default)]
pub(super) struct Report {
    failing: Option<Failing>,
}

#[derive(Debug)]
struct Failing {
    code: i32,
    logged: Instant,
    /// Failed runs since the line before.
    unsaid: u64,
    /// Failed runs in a row.
    runs: u64,
}

/// A line for the log.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Info(String),
    Warn(String),
}

impl Report {
    /// Logs a run that has ended, if it is news.
    pub(super) fn log(&mut self, job: &Job, run: &Run, now: Instant) {
        for line in self.lines(job, run, now) {
            match line {
                Line::Info(text) => tracing::info!("scheduler {}: {text}", job.id),
                Line::Warn(text) => tracing::warn!("scheduler {}: {text}", job.id),
            }
        }
    }

    fn lines(&mut self, job: &Job, run: &Run, now: Instant) -> Vec<Line> {
        let code = run.ended.code();
        if code != 0 {
            return self.fails(code, now).map(|more| Line::Warn(failure(job, run) + &more)).into_iter().collect();
        }
        let output = board::output(run);
        let mut lines: Vec<Line> = output.lines().take(MAX_LOG_LINES).map(|line| Line::Info(line.to_owned())).collect();
        if let Some(failing) = self.failing.take() {
            lines.push(Line::Info(format!("{} succeeded; runs that failed before: {}", job.filename, failing.runs)));
        }
        lines
    }

    /// The end of the line about a run that failed with this code, if the line is due.
    fn fails(&mut self, code: i32, now: Instant) -> Option<String> {
        let Some(failing) = self.failing.as_mut().filter(|failing| failing.code == code) else {
            let runs = self.failing.as_ref().map_or(0, |failing| failing.runs) + 1;
            self.failing = Some(Failing { code, logged: now, unsaid: 0, runs });
            return Some(String::new());
        };
        failing.runs += 1;
        if now < failing.logged + EVERY {
            failing.unsaid += 1;
            return None;
        }
        failing.logged = now;
        let unsaid = std::mem::take(&mut failing.unsaid);
        Some(if unsaid == 0 { String::new() } else { format!(" ({unsaid} more runs failed since the last line)") })
    }
}

fn failure(job: &Job, run: &Run) -> String {
    let (output, code) = (board::output(run), run.ended.code());
    if matches!(run.ended, Ended::NotStarted { .. }) {
        return format!("not started: {output}");
    }
    let mut text = format!("{} ended with {code} after {} ms", job.filename, run.took.as_millis());
    if let Some(last) = output.lines().rev().find(|line| !line.trim().is_empty()) {
        text.push_str(": ");
        text.extend(last.trim().chars().take(MAX_REASON));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::capture::{Capture, Keep};
    use super::*;

    fn run(ended: Ended, printed: &str) -> Run {
        let mut stdout = Capture::new(Keep::Tail, 1_000);
        stdout.push(printed.as_bytes());
        Run { ended, stdout, stderr: Capture::new(Keep::Tail, 1_000), took: Duration::from_millis(7) }
    }

    #[test]
    fn a_row_that_keeps_failing_is_one_line_now_and_then() {
        let job = Job { id: 1, interval: EVERY, filename: "/bin/x".to_owned(), args: Vec::new() };
        let mut report = Report::default();
        let begun = Instant::now();
        let mut at = |seconds: u64, run: Run| report.lines(&job, &run, begun + Duration::from_secs(seconds));
        let warn = |text: &str| vec![Line::Warn(text.to_owned())];
        let fails = || run(Ended::Exited(3), "begin\nno such host\n\n");
        assert_eq!(at(0, fails()), warn("/bin/x ended with 3 after 7 ms: no such host"));
        assert_eq!(at(1, fails()), []);
        assert_eq!(at(2, fails()), []);
        assert_eq!(at(60, fails()), warn("/bin/x ended with 3 after 7 ms: no such host (2 more runs failed since the last line)"));
        let missing = || run(Ended::NotStarted { why: "/bin/x: gone".to_owned(), errno: None }, "");
        assert_eq!(at(61, missing()), warn("not started: /bin/x: gone"), "another fault is news");
        assert_eq!(at(62, missing()), []);
        let good = at(63, run(Ended::Exited(0), "fine\n"));
        assert_eq!(good, [Line::Info("fine".to_owned()), Line::Info("/bin/x succeeded; runs that failed before: 6".to_owned())]);
        assert_eq!(at(64, run(Ended::Exited(0), "")), []);
        assert_eq!(at(65, fails()).len(), 1, "a new failure is news");
    }
}
