//! The newest events in a file of the data directory, for the next process. One JSON array, replaced as a whole.
//!
//! Written beside the monitor's work and at most once a second. An event that a crash takes is in the log.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::files;

use crate::log::Noted;
use crate::monitor::{Monitor, lock};

const FILE: &str = "tidegate_events.json";
const EVENTS_MAX: usize = 1_000;
/// Most bytes in it; the oldest events are left out.
const BYTES_MAX: usize = 4 << 20;
/// Largest time that can be shown, Unix ms.
const TIME_MAX_MS: u64 = 1 << 48;
/// Between two replacements of the file.
const PAUSE: Duration = Duration::from_secs(1);

/// The file in this data directory.
pub(crate) fn file(datadir: &Path) -> PathBuf {
    datadir.join(FILE)
}

/// The events in the file, oldest first; none if there is no file.
///
/// # Errors
/// The file cannot be read, or holds something else.
pub(crate) fn read(path: &Path) -> io::Result<Vec<Noted>> {
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let text = match std::fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
        Ok(found) if found.len() > BYTES_MAX as u64 => return Err(invalid("too large")),
        Ok(_) => std::fs::read(path)?,
    };
    let events: Vec<Noted> = serde_json::from_slice(&text)?;
    let is_in_order = events.is_sorted_by(|a, b| a.sequence < b.sequence);
    let is_in_range = events.iter().all(|noted| noted.sequence < u64::MAX / 2 && noted.at_unix_ms < TIME_MAX_MS);
    if is_in_order && is_in_range { Ok(events) } else { Err(invalid("no list of events")) }
}

/// The newest of these events as the file has them.
fn text<'a>(events: impl DoubleEndedIterator<Item = &'a Noted>) -> io::Result<Vec<u8>> {
    let mut lines = Vec::new();
    let mut bytes = 4;
    for noted in events.rev().take(EVENTS_MAX) {
        let line = serde_json::to_string(noted)?;
        bytes += line.len() + 2;
        if bytes > BYTES_MAX {
            break;
        }
        lines.push(line);
    }
    lines.reverse();
    Ok(format!("[\n{}\n]", lines.join(",\n")).into_bytes())
}

impl Monitor {
    /// Writes events to the file whenever there are new ones, for ever. On the monitor's thread.
    pub(crate) async fn keep_events(&self) {
        let mut was_kept = true;
        loop {
            self.noted.notified().await;
            let written = self.write_events().await;
            if let (Err(e), true) = (&written, was_kept) {
                tracing::warn!("events are not kept for a restart: {e}");
            }
            was_kept = written.is_ok();
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Brings the file up to date, where there is one and it is this process's.
    pub(crate) async fn write_events(&self) -> io::Result<()> {
        let Some(me) = self.me() else { return Ok(()) };
        tokio::task::spawn_blocking(move || me.write_events_now()).await.map_err(io::Error::other).flatten()
    }

    /// The same on the caller's thread: for a process that hands over.
    ///
    /// # Errors
    /// The system's words.
    pub fn write_events_now(&self) -> io::Result<()> {
        let Some(path) = self.events_file.get() else { return Ok(()) };
        // Held while it is written: an older text never replaces a newer one.
        let mut written = lock(&self.events_written);
        if !self.keeps_files() {
            return Ok(());
        }
        let (text, last) = {
            let history = lock(&self.history);
            (text(history.events())?, history.last_sequence())
        };
        if *written != last {
            files::replace(path, &text)?;
            *written = last;
        }
        Ok(())
    }

    /// The file is about to be this process's: goes on after the events that the other process has written since this one read it.
    pub(crate) fn read_events_again(&self) {
        let Some(path) = self.events_file.get() else { return };
        let mut written = lock(&self.events_written);
        match read(path) {
            Ok(events) => {
                let last = events.last().map_or(0, |noted| noted.sequence);
                if last > *written {
                    lock(&self.history).follow(events, *written);
                    *written = last;
                }
            }
            Err(e) => tracing::warn!("{}: the latest events of the other process are not shown: {e}", path.display()),
        }
    }

    /// Events are kept in this directory from now on, and those that are there are shown again. Before the first event.
    pub(crate) fn keep_events_in(&self, datadir: &Path) {
        let path = self.events_file.get_or_init(|| file(datadir));
        match read(path) {
            Ok(events) => {
                let mut history = lock(&self.history);
                history.recall(events);
                *lock(&self.events_written) = history.last_sequence();
            }
            Err(e) => tracing::warn!("{}: earlier events are not shown: {e}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use topology::{Event, EventKind};

    use super::*;

    fn noted(sequence: u64, why: &str) -> Noted {
        Noted {
            sequence,
            at_unix_ms: 1_800_000_000_123,
            cluster: Some(1),
            kind: "role".into(),
            host: Some("db \"1\"".into()),
            port: Some(3306),
            from: "reader".to_owned(),
            to: "writer".to_owned(),
            seen: "read_only=0".to_owned(),
            by: "probe".into(),
            why: why.to_owned(),
        }
    }

    #[test]
    fn the_newest_events_are_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = file(directory.path());
        assert_eq!(read(&path).unwrap(), []);
        let all: Vec<Noted> = (1..=EVENTS_MAX as u64 + 5).map(|sequence| noted(sequence, "why")).collect();
        std::fs::write(&path, text(all.iter()).unwrap()).unwrap();
        assert_eq!(read(&path).unwrap(), all[5..]);
        let long = "x".repeat(BYTES_MAX / 3);
        let all = [noted(1, &long), noted(2, &long), noted(3, &long)];
        std::fs::write(&path, text(all.iter()).unwrap()).unwrap();
        assert_eq!(read(&path).unwrap(), all[1..]);
        std::fs::write(&path, text([].iter()).unwrap()).unwrap();
        assert_eq!(read(&path).unwrap(), []);
    }

    #[test]
    fn the_process_that_takes_over_goes_on_after_the_events_of_the_other_one() {
        let note = |monitor: &Monitor, to: &str| {
            monitor.note(vec![Event {
                at_ms: 0,
                cluster: None,
                server: None,
                kind: EventKind::Writer,
                from: String::new(),
                to: to.to_owned(),
                seen: String::new(),
                by: "probe",
                why: String::new(),
            }]);
        };
        let directory = tempfile::tempdir().unwrap();
        let kept = || read(&file(directory.path())).unwrap().into_iter().map(|noted| (noted.sequence, noted.to)).collect::<Vec<_>>();
        let expected = |all: &[&str]| (1..).zip(all.iter().map(|to| (*to).to_owned())).collect::<Vec<(u64, String)>>();
        let (old, new) = (Monitor::new(), Monitor::new());
        old.keep_events_in(directory.path());
        note(&old, "a");
        old.write_events_now().unwrap();
        new.keep_events_in(directory.path());
        new.keep_standings_here(false);
        note(&old, "b");
        note(&new, "d");
        new.write_events_now().unwrap();
        note(&old, "c");
        old.keep_standings_here(false);
        new.keep_standings_here(true);
        new.write_events_now().unwrap();
        assert_eq!(kept(), expected(&["a", "b", "c", "d"]));
        // The new process fails, and the old one continues.
        note(&old, "e");
        old.write_events_now().unwrap();
        assert_eq!(kept(), expected(&["a", "b", "c", "d"]));
        old.keep_standings_here(true);
        old.write_events_now().unwrap();
        assert_eq!(kept(), expected(&["a", "b", "c", "d", "e"]));
    }

    #[test]
    fn another_file_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = file(directory.path());
        let twice = serde_json::to_string(&[noted(2, ""), noted(2, "")]).unwrap();
        let late = serde_json::to_string(&[Noted { at_unix_ms: u64::MAX, ..noted(1, "") }]).unwrap();
        for wrong in ["", "{}", "[1]", &twice, &late, &" ".repeat(BYTES_MAX + 1)] {
            std::fs::write(&path, wrong).unwrap();
            assert!(read(&path).is_err(), "{}", wrong.get(..wrong.len().min(40)).unwrap());
        }
    }
}
