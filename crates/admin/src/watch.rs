//! `--declarative`: the configuration file is the truth, and is applied again when it or a file that it includes changes.
//!
//! A file is applied once it has looked the same at two looks in a row, so one that is being written is not read half. A file
//! with faults, or without anything in it, is named in the log and changes nothing; the next change is tried again. Only regular
//! files are read.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use model::libconfig::{Includes, LocalFiles, read_regular};

use crate::handle::WeakHandle;
use crate::reply::{Reply, Role, SessionInfo};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(500);

/// How files looked: name, size and time of the last change.
type Look = Vec<(PathBuf, Option<(u64, SystemTime)>)>;

/// Watches `path` on a thread of its own until the engine has no other handle.
pub(crate) fn start(path: PathBuf, engine: WeakHandle) -> std::io::Result<()> {
    thread::Builder::new().name("admin-watch".to_owned()).spawn(move || run(&path, &engine)).map(drop)
}

fn run(path: &Path, engine: &WeakHandle) {
    let (mut applied, mut before) = (Look::new(), look(path, &Look::new()));
    while engine.is_alive() {
        thread::sleep(LOOK);
        let now = look(path, &before);
        if now == before && now != applied {
            match apply(engine) {
                Some(Reply::Err { text, .. }) => tracing::warn!("{} changed and is not used: {text}", path.display()),
                Some(Reply::Ok { info, .. }) if info.is_empty() => tracing::debug!("{} is in force", path.display()),
                Some(Reply::Ok { info, .. }) => tracing::warn!("{} is in force: {info}", path.display()),
                Some(Reply::Rows { .. }) => {}
                None => return,
            }
            applied.clone_from(&now);
        }
        before = now;
    }
}

fn apply(engine: &WeakHandle) -> Option<Reply> {
    let session = SessionInfo { user: "declarative".to_owned(), ..SessionInfo::default() };
    engine.execute(Role::Admin, &session, "CONFIG APPLY FILE")
}

/// Remembers which files were read, and how they looked before that: one that changes while it is read looks different at the
/// next look, which then reads it again.
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

fn stamp(file: &Path) -> Option<(u64, SystemTime)> {
    let known = fs::metadata(file).ok()?;
    Some((known.len(), known.modified().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// Whoever looks while the file is being written sees it empty, with no word of what it includes.
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
