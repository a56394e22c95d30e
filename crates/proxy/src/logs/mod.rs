//! The query log, the slow log and the audit log, in files that are numbered and rotated by size. The query log's newest are kept in
//! memory too, if that is wanted.
//!
//! Each log has a thread that writes. Workers put records into a bounded queue: when it is full a record is dropped and
//! counted, so a slow disk never holds a client up. Trouble with a file is logged and counted, never fatal.

pub(crate) mod audit;
pub(crate) mod event;
mod file;
mod kept;
mod log;

use crate::clients::session_handle::SessionHandle;
use audit::{AuditEvent, AuditRecord};
use event::QueryEvent;
use file::LogFormat;
pub(crate) use file::LogTarget;
pub(crate) use kept::KeptRecords;
pub(crate) use log::{Log, LogCounts};
use model::MysqlVariables;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module. One for the process.
#[derive(Default)]
pub(crate) struct Logs {
    /// The query log.
    pub events: Log<QueryEvent>,
    /// The newest of it, in memory.
    pub kept: KeptRecords,
    /// Queries that took long.
    pub slow: Log<QueryEvent>,
    /// How long (us) a query of the slow log takes at least.
    slow_us: AtomicU64,
    /// The audit log.
    pub audits: Log<AuditRecord>,
    datadir: OnceLock<PathBuf>,
}

impl Logs {
    /// Starts writing where the variables say; files without a path are in `datadir`.
    pub(crate) fn start(&self, datadir: &Path, vars: &MysqlVariables) {
        let _ = self.datadir.set(datadir.to_path_buf());
        self.configure(vars);
    }

    /// The variables may have changed.
    pub(crate) fn configure(&self, vars: &MysqlVariables) {
        self.kept.configure(vars);
        let Some(datadir) = self.datadir.get() else { return };
        let target = |name: &str, size: u64, form: LogFormat| {
            (!name.is_empty()).then(|| LogTarget { base: datadir.join(name), max_bytes: size, form })
        };
        let events = if vars.eventslog_format == 2 { LogFormat::Json } else { LogFormat::Binary };
        let queue = usize::try_from(vars.log_queue_max_mb << 20).unwrap_or(usize::MAX);
        self.events.configure(target(&vars.eventslog_filename, vars.eventslog_filesize, events), queue);
        self.slow_us.store(vars.slowlog_threshold_ms.saturating_mul(1_000), Ordering::Relaxed);
        self.slow.configure(target(&vars.slowlog_filename, vars.slowlog_filesize, LogFormat::Slow), queue);
        self.audits.configure(target(&vars.auditlog_filename, vars.auditlog_filesize, LogFormat::Json), queue);
    }

    /// Whether queries are logged at all, to a file or in memory.
    pub(crate) fn wants_queries(&self) -> bool {
        self.events.is_on() || self.kept.is_on()
    }

    /// Whether a query that took so long (us) goes to the slow log.
    pub(crate) fn wants_slow(&self, duration_us: u64) -> bool {
        self.slow.is_on() && duration_us >= self.slow_us.load(Ordering::Relaxed)
    }

    pub(crate) fn write_query(&self, event: QueryEvent) {
        if self.kept.is_on() {
            self.kept.keep(event.clone());
        }
        if self.events.is_on() {
            self.events.write(event);
        }
    }

    /// Begins new files; an error when a log's thread does not answer.
    pub(crate) fn flush(&self) -> Result<(), String> {
        let (events, slow, audits) = (self.events.rotate(), self.slow.rotate(), self.audits.rotate());
        events.and(slow).and(audits)
    }

    /// As [`Logs::flush`], without waiting.
    pub(crate) fn flush_soon(&self) {
        drop((self.events.rotate_soon(), self.slow.rotate_soon(), self.audits.rotate_soon()));
    }

    /// Writes what waits, and closes the files.
    pub(crate) fn stop(&self) {
        self.events.stop();
        self.slow.stop();
        self.audits.stop();
    }

    /// Notes what a session did in the audit log.
    pub(crate) fn audit(&self, event: AuditEvent, handle: &SessionHandle, extra: Option<&str>) {
        if self.audits.is_on() {
            self.audits.write(AuditRecord::of(event, handle, extra));
        }
    }
}

/// A time of day here: `2026-11-21 04:38:00.123456`.
fn local_time(unix_us: u64, format: &str) -> String {
    let at = i64::try_from(unix_us).ok().and_then(|us| jiff::Timestamp::from_microsecond(us).ok()).unwrap_or_default();
    at.to_zoned(jiff::tz::TimeZone::system()).strftime(format).to_string()
}
