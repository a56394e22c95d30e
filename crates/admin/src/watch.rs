//! Files that the engine follows. With `--declarative` this is the configuration file with its included files: a change is applied. Always
//! these are the files with secrets that the configuration in force names: they are read again.
//!
//! A file counts once it looked the same twice in a row, so that a half-written one is not read. A file with faults, or an empty one, is
//! named in the log and changes nothing; its next change is tried again. Only regular files are read.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use model::libconfig::{Includes, LocalFiles, read_regular};
use model::{Config, SecretFiles};
use tokio::sync::watch;

use crate::handle::WeakHandle;
use crate::reply::{Reply, Role, SessionInfo};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(500);

/// How a file looked: size, time of the last change, and its number, which differs where a link leads to another file.
type Stamp = (u64, SystemTime, u64);
/// Paths with their stamps; None for a missing file.
type Look = Vec<(PathBuf, Option<Stamp>)>;

/// How files looked last, and when they were read.
#[derive(Default)]
struct Followed {
    read: Look,
    before: Look,
}

impl Followed {
    /// Whether they look as at the last look, and not as they were read.
    fn is_due(&mut self, now: Look) -> bool {
        let is_due = now == self.before && now != self.read;
        self.before = now;
        is_due
    }

    /// They are read, as they look now.
    fn are_read(&mut self) {
        self.read.clone_from(&self.before);
    }
}

/// Watches the file `truth`, if there is one, and those with secrets, on a thread of its own until the engine has no other handle.
pub(crate) fn start(truth: Option<PathBuf>, engine: WeakHandle, runtime: watch::Receiver<Arc<Config>>) -> std::io::Result<()> {
    let waits = tokio::runtime::Builder::new_current_thread().build()?;
    let body = move || run(truth.as_deref(), &engine, runtime, &waits);
    thread::Builder::new().name("admin-watch".to_owned()).spawn(body).map(drop)
}

fn run(truth: Option<&Path>, engine: &WeakHandle, mut runtime: watch::Receiver<Arc<Config>>, waits: &tokio::runtime::Runtime) {
    let (mut file, mut secrets) = (Followed::default(), Followed::default());
    file.before = truth.map(|path| look(path, &Look::new())).unwrap_or_default();
    let paths_of = |runtime: &mut watch::Receiver<Arc<Config>>| {
        let config = Arc::clone(&runtime.borrow_and_update());
        SecretFiles::paths(&config)
    };
    let mut paths = paths_of(&mut runtime);
    let mut is_put_off = false;
    while engine.is_alive() {
        if truth.is_none() && paths.is_empty() {
            if waits.block_on(runtime.changed()).is_err() {
                return;
            }
            paths = paths_of(&mut runtime);
        }
        thread::sleep(LOOK);
        if let Some(path) = truth
            && file.is_due(look(path, &file.before))
        {
            match apply(path, engine) {
                Applied::Read => {
                    file.are_read();
                    is_put_off = false;
                }
                Applied::Later if is_put_off => {}
                Applied::Later => {
                    tracing::info!("{} changed while another process takes over: applied here only if that fails", path.display());
                    is_put_off = true;
                }
                Applied::Gone => return,
            }
        }
        match runtime.has_changed() {
            Ok(true) => paths = paths_of(&mut runtime),
            Ok(false) => {}
            Err(_) => return,
        }
        if secrets.is_due(paths.iter().map(|path| (path.clone(), stamp(path))).collect()) {
            match ask(engine, "PROXYSQL RELOAD SECRETS") {
                // While another process takes over, and if that fails.
                Some(Reply::Err { text, .. }) => tracing::debug!("cannot read the files with secrets: {text}"),
                Some(_) => secrets.are_read(),
                None => return,
            }
        }
    }
}

/// What became of a changed configuration file.
enum Applied {
    /// It is in force, or its faults are in the log.
    Read,
    /// Not while another process takes over.
    Later,
    /// The engine is gone.
    Gone,
}

/// Applies the configuration file again.
fn apply(path: &Path, engine: &WeakHandle) -> Applied {
    match ask(engine, "CONFIG APPLY FILE") {
        Some(reply) if reply.is_frozen() => return Applied::Later,
        Some(Reply::Err { text, .. }) => tracing::warn!("{} changed, but cannot be applied: {text}", path.display()),
        Some(Reply::Ok { info, .. }) if info.is_empty() => tracing::debug!("{} is in force", path.display()),
        Some(Reply::Ok { info, .. }) => tracing::warn!("{} is in force: {info}", path.display()),
        Some(Reply::Rows { .. }) => {}
        None => return Applied::Gone,
    }
    Applied::Read
}

fn ask(engine: &WeakHandle, sql: &str) -> Option<Reply> {
    let session = SessionInfo { user: "declarative".to_owned(), ..SessionInfo::default() };
    engine.execute(Role::Admin, &session, sql)
}

/// The files that were read, with their looks before the read. If a file changes while it is read, it looks different at the next look and
/// is read again.
struct Noted(Look);

impl Noted {
    fn note(&mut self, path: &Path) {
        self.0.push((path.to_owned(), stamp(path)));
    }
}

impl Includes for Noted {
    fn read(&mut self, path: &Path) -> Result<Vec<u8>, String> {
        self.note(path);
        LocalFiles.read(path)
    }
}

/// How the file and those it includes look now. They are read again only when one of them changed.
fn look(path: &Path, before: &Look) -> Look {
    let same = |(file, known): &(PathBuf, _)| stamp(file) == *known;
    if !before.is_empty() && before.iter().all(same) {
        return before.clone();
    }
    let mut noted = Noted(Look::new());
    noted.note(path);
    if let Ok(bytes) = read_regular(path) {
        let _ = model::libconfig::parse(&bytes, &path.display().to_string(), &mut noted);
    }
    noted.0
}

fn stamp(file: &Path) -> Option<Stamp> {
    let known = fs::metadata(file).ok()?;
    Some((known.len(), known.modified().ok()?, known.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::{Wake, channel};
    use std::time::Instant;

    /// The process that takes over may fail.
    #[test]
    fn a_file_that_changes_during_an_upgrade_is_applied_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("main.cnf");
        fs::write(&path, "threads = 2").unwrap();
        let (handle, mut jobs) = channel(Arc::new(Config::default()));
        let clock = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        start(Some(path), handle.weak(), handle.runtime()).unwrap();
        for reply in [Reply::frozen(), Reply::frozen(), Reply::done()] {
            let Wake::Statement(job) = jobs.next_within(&clock, Duration::from_secs(20)) else { panic!("it was not asked again") };
            assert_eq!(job.sql, b"CONFIG APPLY FILE");
            job.answer.send(reply).unwrap();
        }
        assert!(matches!(jobs.next_within(&clock, LOOK * 3), Wake::Time), "it is read now");
    }

    /// While the file is being written it looks empty, without its includes.
    #[test]
    fn what_a_file_includes_is_known_though_it_was_read_half() {
        let dir = tempfile::tempdir().unwrap();
        let (main, part) = (dir.path().join("main.cnf"), dir.path().join("part.cnf"));
        fs::write(&part, "threads = 2").unwrap();
        let text = format!("@include \"{}\"", part.display());
        // At every moment of the writing, about.
        for turn in 0..2_000 {
            fs::write(&main, "").unwrap();
            let seen = thread::scope(|scope| {
                scope.spawn(|| fs::write(&main, &text).unwrap());
                let begin = Instant::now() + Duration::from_nanos(turn * 100);
                while Instant::now() < begin {}
                look(&main, &Look::new())
            });
            let files: Vec<PathBuf> = look(&main, &seen).into_iter().map(|(file, _)| file).collect();
            assert_eq!(files, [main.clone(), part.clone()]);
        }
    }
}
