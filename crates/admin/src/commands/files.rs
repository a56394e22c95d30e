//! The configuration in memory as a file that can be read back.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use model::Config;
use model::config::text::to_text;

use super::layers::everything;
use super::{Command, done, open, refuse, single};
use crate::engine::Engine;
use crate::engine::statement::unquoted;
use crate::error::AdminError;
use crate::store::rows;

pub(super) const COMMANDS: &[Command] = &[
    open("SAVE CONFIG TO FILE", |engine, ask| {
        let path = unquoted(ask.statement.rest(4));
        write(engine, &path)?;
        Ok(done(0, format!("File {path} is saved.")))
    }),
    open("SELECT CONFIG INTO OUTFILE", |engine, ask| Ok(done(write(engine, &unquoted(ask.statement.rest(4)))?, ""))),
    super::exact("SELECT CONFIG FILE", |engine, _| Ok(single("Data", to_text(&configuration(engine)?)))),
];

fn configuration(engine: &Engine) -> Result<Config, AdminError> {
    rows::read(&engine.store.admin, "main", &everything(), &engine.runtime())
}

/// Writes what could be loaded; the rest is refused, as LOAD refuses it. Writes the file beside its place and moves it there, so that nobody sees half of it. Answers its size in bytes.
fn write(engine: &Engine, path: &str) -> Result<u64, AdminError> {
    if path.is_empty() {
        return refuse("the name of a file is needed");
    }
    let config = configuration(engine)?;
    engine.check(&config)?;
    let text = to_text(&config);
    replace(Path::new(path), text.as_bytes()).map_err(|error| AdminError::file(Path::new(path), error))?;
    Ok(u64::try_from(text.len()).unwrap_or(u64::MAX))
}

fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let place = place(path)?;
    let scratch = PathBuf::from(format!("{}.tidegate-new", place.display()));
    let mut file = private(&scratch)?;
    let written = file.write_all(text).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&scratch, &place));
    if written.is_err() {
        let _ = fs::remove_file(&scratch);
    }
    written
}

/// Where the file goes: through symbolic links, and never in the place of a device, pipe, socket or directory: a rename would
/// replace `/dev/null` for the whole machine.
fn place(path: &Path) -> io::Result<PathBuf> {
    match fs::metadata(path) {
        Ok(there) if !there.is_file() => Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file")),
        Ok(_) => path.canonicalize(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(path.to_owned()),
        Err(error) => Err(error),
    }
}

/// A new file that only its owner may read: passwords are in it.
fn private(path: &Path) -> io::Result<fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}
