//! The error log: the terminal, or a file that can be reopened after a rotation.
//!
//! A thread writes it, so that no worker waits for a terminal or disk ([`queue`]). Each kind of line has a share of each second
//! ([`limit`]).
//!
//! Peers' texts get into it. INVARIANT: a line is one event, whatever its text. Control characters are escaped as in Rust strings, and the
//! length of a line is limited.

mod limit;
mod queue;

use crate::cli::Cli;
use anyhow::{Context, Result};
use limit::Limit;
use model::MysqlVariables;
use model::stats::{Metric, MetricKind, Reading, Sample, StatsSource, StatsTable, Value};
use queue::{Queue, Target};
use std::fmt::{self, Debug, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{self, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

static LOG: OnceLock<Log> = OnceLock::new();

struct Log {
    queue: Arc<Queue>,
    limit: Limit,
    /// The error log file; None for the terminal.
    path: Option<PathBuf>,
    /// Dropped lines that the log has reported.
    told: AtomicU64,
}

/// How long the last lines may take when the process ends.
const END_WITHIN: Duration = Duration::from_secs(1);

/// Starts logging. `errorlog` is the file's setting: relative to the data directory, empty for the terminal.
pub(crate) fn start(cli: &Cli, errorlog: &str, datadir: &Path) -> Result<Ending> {
    let path = (!cli.foreground && !errorlog.is_empty()).then(|| datadir.join(errorlog));
    let target = path.as_deref().map_or(Ok(Target::Terminal), |path| open(path).map(Target::File))?;
    let queue = Queue::start(target).context("error log")?;
    let log = LOG.get_or_init(|| Log { queue, limit: Limit::default(), path, told: AtomicU64::new(0) });
    let builder = tracing_subscriber::fmt().with_max_level(cli.log_level).with_target(false).fmt_fields(one_line());
    builder.with_ansi(false).with_writer(|| Lines(&log.queue)).finish().with(log.limit.clone()).init();
    let earlier = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        log.queue.flush(END_WITHIN);
        earlier(info);
    }));
    Ok(Ending(()))
}

/// Dropped at the end of the process, after all lines are written.
pub(crate) struct Ending(());

impl Drop for Ending {
    fn drop(&mut self) {
        tell();
        if let Some(log) = LOG.get() {
            log.queue.flush(END_WITHIN);
        }
    }
}

/// Takes the settings over, and begins another second.
pub(crate) fn next_second(vars: &MysqlVariables) {
    let Some(log) = LOG.get() else { return };
    log.limit.set(vars.log_lines_per_second);
    log.queue.set_max_bytes(usize::try_from(vars.log_queue_max_mb << 20).unwrap_or(usize::MAX));
    tell();
}

/// Tells how many lines were left out or dropped.
fn tell() {
    let Some(log) = LOG.get() else { return };
    for line in log.limit.next_second() {
        tracing::warn!("{line}");
    }
    let dropped = log.queue.dropped();
    let news = dropped - log.told.load(Ordering::Relaxed);
    if news > 0 && log.queue.has_room() {
        log.told.store(dropped, Ordering::Relaxed);
        tracing::warn!("{news} lines are missing here: they came faster than the log could be written");
    }
}

/// Reopens the error log, after the old file was moved away.
pub(crate) fn reopen() {
    let Some(Log { queue, path: Some(path), .. }) = LOG.get() else { return };
    match open(path) {
        Ok(file) => queue.redirect(Target::File(file)),
        Err(e) => tracing::error!("{e:#}; the old file stays open"),
    }
}

fn open(path: &Path) -> Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o640).open(path).with_context(|| format!("error log {}", path.display()))
}

struct Lines(&'static Queue);

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.put(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The log's own numbers.
pub(crate) struct Numbers;

impl StatsSource for Numbers {
    fn tables(&self) -> Vec<&'static StatsTable> {
        Vec::new()
    }

    fn rows(&self, _: &'static StatsTable, _: Reading) -> Vec<Vec<Value>> {
        Vec::new()
    }

    fn metrics(&self) -> Vec<Metric> {
        let Some(log) = LOG.get() else { return Vec::new() };
        let sample = |why: &str, lines: u64| Sample { suffix: "", labels: vec![("reason", why.to_owned())], value: lines as f64 };
        vec![Metric {
            name: "tidegate_log_lines_left_out_total",
            help: "Lines missing from the error log: over mysql-log_lines_per_second, or the queue was full",
            kind: MetricKind::Counter,
            samples: vec![sample("kind", log.limit.left_out()), sample("queue", log.queue.dropped())],
        }]
    }
}

/// The longest text of one event, bytes.
const TEXT_MAX: usize = 16 << 10;

/// Writes an event's fields.
fn one_line() -> impl for<'w> FormatFields<'w> + Send + Sync + 'static {
    format::debug_fn(|writer: &mut format::Writer<'_>, field: &Field, value: &dyn Debug| {
        if field.name() != "message" {
            write!(writer, "{field}=")?;
        }
        let mut line = OneLine { out: &mut *writer, left: TEXT_MAX };
        match write!(line, "{value:?}") {
            Err(_) if line.left == 0 => write!(writer, "..."),
            outcome => outcome,
        }
    })
    .delimited(" ")
}

/// Lets no control character through, and no more than `left` bytes.
struct OneLine<W> {
    out: W,
    left: usize,
}

impl<W: fmt::Write> fmt::Write for OneLine<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(char::is_control) {
            let plain = part.trim_end_matches(char::is_control);
            self.put(plain)?;
            for control in part.chars().skip(plain.chars().count()) {
                self.put(&control.escape_debug().to_string())?;
            }
        }
        Ok(())
    }
}

impl<W: fmt::Write> OneLine<W> {
    fn put(&mut self, text: &str) -> fmt::Result {
        let end =
            if text.len() <= self.left { text.len() } else { (0..=self.left).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0) };
        let kept = text.get(..end).unwrap_or_default();
        self.out.write_str(kept)?;
        if kept.len() < text.len() {
            self.left = 0;
            Err(fmt::Error)
        } else {
            self.left -= kept.len();
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// The output of a log with our format.
    fn logged(act: impl FnOnce()) -> String {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&bytes);
        struct Sink(Arc<Mutex<Vec<u8>>>);
        impl Write for Sink {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().unwrap().write(bytes)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let builder = tracing_subscriber::fmt().with_target(false).without_time().with_level(false).fmt_fields(one_line());
        tracing::subscriber::with_default(builder.with_writer(move || Sink(Arc::clone(&sink))).finish(), act);
        let bytes = bytes.lock().unwrap();
        String::from_utf8(bytes.clone()).unwrap()
    }

    #[test]
    fn an_event_is_one_line() {
        let said = "x\n2026 ERROR forged\r\x1b[2J\0 \u{85}\x7f späť \\ \"q\"\n";
        let line = logged(|| tracing::warn!(user = said, "user '{said}'"));
        let shown = "x\\n2026 ERROR forged\\r\\u{1b}[2J\\0 \\u{85}\\u{7f} späť \\ \"q\"\\n";
        assert!(line.contains(&format!("user '{shown}'")), "{line}");
        assert_eq!((line.matches('\n').count(), line.chars().filter(|c| c.is_control()).count()), (1, 1), "{line}");
    }

    #[test]
    fn a_line_has_an_end() {
        let line = logged(|| tracing::warn!("{}ä{}", "u".repeat(TEXT_MAX - 1), "v".repeat(TEXT_MAX)));
        assert_eq!(line, format!("{}...\n", "u".repeat(TEXT_MAX - 1)));
        let line = logged(|| tracing::warn!("{}", "\0".repeat(TEXT_MAX)));
        assert_eq!(line, format!("{}...\n", "\\0".repeat(TEXT_MAX / 2)));
    }
}
