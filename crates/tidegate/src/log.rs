//! The log: the terminal, or the error log file that can be opened anew after a rotation.
//!
//! What peers say gets into it: INVARIANT: a line is one event, whatever was said. Control characters are written as `\n`, `\u{1b}`
//! and the like, and a line has an end.

use crate::cli::Cli;
use anyhow::{Context, Result};
use std::fmt::{self, Debug, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{self, FormatFields};

static ERROR_LOG: OnceLock<ErrorLog> = OnceLock::new();

/// The error log file.
struct ErrorLog {
    path: PathBuf,
    file: Mutex<File>,
}

/// Starts logging. `errorlog` is the file's setting: relative to the data directory, empty for the terminal.
pub fn start(cli: &Cli, errorlog: &str, datadir: &Path) -> Result<()> {
    let builder = tracing_subscriber::fmt().with_max_level(cli.log_level).with_target(false).fmt_fields(one_line());
    // A line that cannot be written is lost: told on a stderr that is just as full, it would end a thread.
    let builder = builder.log_internal_errors(false);
    if cli.foreground || errorlog.is_empty() {
        builder.with_ansi(false).with_writer(io::stderr).init();
        return Ok(());
    }
    let path = datadir.join(errorlog);
    let file = open(&path)?;
    let log = ERROR_LOG.get_or_init(|| ErrorLog { path, file: Mutex::new(file) });
    builder.with_ansi(false).with_writer(move || Writer(log)).init();
    Ok(())
}

/// The longest text of one event, bytes.
const TEXT_MAX: usize = 16 << 10;

/// Writes what an event says.
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
        match kept.len() < text.len() {
            true => {
                self.left = 0;
                Err(fmt::Error)
            }
            false => {
                self.left -= kept.len();
                Ok(())
            }
        }
    }
}

/// Opens the error log anew: after the old file was moved away.
pub fn reopen() {
    let Some(log) = ERROR_LOG.get() else { return };
    match open(&log.path) {
        Ok(file) => *log.file.lock().unwrap_or_else(PoisonError::into_inner) = file,
        Err(e) => tracing::error!("{e:#}; the old file stays open"),
    }
}

fn open(path: &Path) -> Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o640).open(path).with_context(|| format!("error log {}", path.display()))
}

struct Writer(&'static ErrorLog);

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.file.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// What a log with our format writes.
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
