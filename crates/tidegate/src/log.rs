//! The log: the terminal, or the error log file that can be opened anew after a rotation.

use crate::cli::Cli;
use anyhow::{Context, Result};
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

static ERROR_LOG: OnceLock<ErrorLog> = OnceLock::new();

/// The error log file.
struct ErrorLog {
    path: PathBuf,
    file: Mutex<File>,
}

/// Starts logging. `errorlog` is the file's setting: relative to the data directory, empty for the terminal.
pub fn start(cli: &Cli, errorlog: &str, datadir: &Path) -> Result<()> {
    let builder = tracing_subscriber::fmt().with_max_level(cli.log_level).with_target(false);
    if cli.foreground || errorlog.is_empty() {
        builder.with_ansi(io::stderr().is_terminal()).with_writer(io::stderr).init();
        return Ok(());
    }
    let path = datadir.join(errorlog);
    let file = open(&path)?;
    let log = ERROR_LOG.get_or_init(|| ErrorLog { path, file: Mutex::new(file) });
    builder.with_ansi(false).with_writer(move || Writer(log)).init();
    Ok(())
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
