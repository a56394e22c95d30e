//! The thread of a capture: takes what workers queued, compresses, seals and writes it, and ends the capture at its limits.

use super::Desk;
use super::run::{Run, Stop};
use crate::workers::clock::Clock;
use capture::Writer;
use capture::seal::KeyError;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Only the proxy's own user reads it: it has literals.
const MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// Most files of a name.
const MOST: u32 = 99_999;
/// How often queues are looked at in any case.
const TICK: Duration = Duration::from_millis(50);
/// How often records of less than a frame are written, and how often the disk is looked at.
const FLUSH: Duration = Duration::from_secs(1);

/// Creates the next file of the capture's name, with these first bytes.
pub(super) fn create(run: &Run, head: &[u8]) -> Result<File, String> {
    let directory = &run.plan.directory;
    let failed = |path: &Path, e: &io::Error| format!("cannot write {}: {e}", path.display());
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory).map_err(|e| failed(directory, &e))?;
    if is_nearly_full(directory, run.plan.reserve_percent) {
        return Err(format!(
            "less than {} % of the disk of {} are free (mysql-capture_disk_reserve_percent)",
            run.plan.reserve_percent,
            directory.display()
        ));
    }
    for number in 1..=MOST {
        let path = directory.join(format!("{}.{number:05}.tgcap", run.plan.name));
        match OpenOptions::new().write(true).create_new(true).mode(MODE).open(&path) {
            Ok(mut file) => {
                file.write_all(head).map_err(|e| failed(&path, &e))?;
                run.bytes.store(head.len() as u64, Ordering::Relaxed);
                let _ = run.path.set(path);
                return Ok(file);
            }
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(failed(&path, &e)),
        }
    }
    Err(format!("{} has {MOST} files of capture '{}': remove some", directory.display(), run.plan.name))
}

/// Writes until the capture ends.
pub(super) fn write(desk: &Desk, run: &Arc<Run>, clock: Clock, (file, writer): (File, Writer)) {
    let mut output = Output { run, file, writer: Some(writer), flushed_at: Instant::now() };
    let mut looked_at: Option<Instant> = None;
    loop {
        run.wait(TICK);
        let ends = run.stopped().is_some();
        if let Err(e) = output.take_all(ends) {
            run.cannot_write(&e);
            desk.end(run, Stop::Write(e.to_string()));
            break;
        }
        if ends {
            break;
        }
        let looks_at_disk = looked_at.is_none_or(|looked_at| looked_at.elapsed() >= FLUSH);
        if looks_at_disk {
            looked_at = Some(Instant::now());
        }
        if let Some(why) = limit(run, clock, looks_at_disk) {
            desk.end(run, why);
        }
    }
    // Nothing more comes, also behind a write error.
    (0..run.plan.workers.max(1)).for_each(|worker| drop(run.take(worker, true)));
    output.finish(clock.now_us());
    let why = run.reason();
    let (commands, bytes) = (run.commands.load(Ordering::Relaxed), run.bytes.load(Ordering::Relaxed));
    tracing::info!("capture '{}' ended ({why}): {} has {commands} commands in {bytes} bytes", run.plan.name, run.file());
    run.written(clock.now_us());
}

/// The limit that is reached, if one is.
fn limit(run: &Run, clock: Clock, looks_at_disk: bool) -> Option<Stop> {
    let is_over = clock.now_us().saturating_sub(run.started_us) >= run.plan.seconds.saturating_mul(1_000_000);
    match () {
        () if is_over => Some(Stop::Time),
        () if run.bytes.load(Ordering::Relaxed) >= run.plan.max_bytes => Some(Stop::Size),
        () if looks_at_disk && is_nearly_full(&run.plan.directory, run.plan.reserve_percent) => Some(Stop::Disk),
        () => None,
    }
}

/// Whether less than this share of the disk is free. A disk that cannot be asked counts as free: writing shows the rest.
fn is_nearly_full(directory: &Path, reserve_percent: u64) -> bool {
    let Ok(disk) = rustix::fs::statvfs(directory) else { return false };
    u128::from(disk.f_bavail) * 100 < u128::from(disk.f_blocks) * u128::from(reserve_percent)
}

struct Output<'a> {
    run: &'a Run,
    file: File,
    writer: Option<Writer>,
    flushed_at: Instant,
}

impl Output<'_> {
    /// Writes what waits in all queues.
    fn take_all(&mut self, closes: bool) -> io::Result<()> {
        let Some(writer) = self.writer.as_mut() else { return Ok(()) };
        let mut out = Vec::new();
        for worker in 0..self.run.plan.workers.max(1) {
            let records = self.run.take(worker, closes);
            writer.feed(&records, &mut out).map_err(failed)?;
        }
        if self.flushed_at.elapsed() >= FLUSH {
            self.flushed_at = Instant::now();
            out.extend(writer.frame().map_err(failed)?.unwrap_or_default());
        }
        self.append(&out)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.run.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Writes the trailer. A file that could not be written has none, so readers see that it is cut off.
    fn finish(mut self, now_us: u64) {
        let Some(writer) = self.writer.take().filter(|_| self.run.is_written_so_far()) else { return };
        let written = writer.finish(&self.run.trailer(now_us)).map_err(failed).and_then(|bytes| self.append(&bytes));
        if let Err(e) = written.and_then(|()| self.file.sync_all()) {
            self.run.cannot_write(&e);
            tracing::error!("capture '{}': cannot complete the file: {e}", self.run.plan.name);
        }
    }
}

fn failed(e: KeyError) -> io::Error {
    io::Error::other(e)
}
