//! The configuration in memory as a file that can be read back.

use std::path::Path;
use std::sync::Arc;

use model::config::text::to_text;
use model::{Config, files};

use super::{Command, done, open, refuse, single};
use crate::engine::Engine;
use crate::engine::statement::unquoted;
use crate::error::AdminError;
use crate::store::modules::everything;
use crate::store::rows;

pub(super) const COMMANDS: &[Command] = &[
    open("SAVE CONFIG TO FILE", |engine, ask| {
        let path = unquoted(ask.statement.rest(4));
        write(engine, &path)?;
        Ok(done(0, format!("File {path} is saved.")))
    })
    .help("SAVE CONFIG TO FILE path", "Writes the configuration in memory into a file.", "SAVE CONFIG TO FILE /etc/tidegate.cnf"),
    open("SELECT CONFIG INTO OUTFILE", |engine, ask| Ok(done(write(engine, &unquoted(ask.statement.rest(4)))?, ""))).help(
        "SELECT CONFIG INTO OUTFILE path",
        "Writes the configuration in memory into a file.",
        "SELECT CONFIG INTO OUTFILE /tmp/tidegate.cnf",
    ),
    super::exact("SELECT CONFIG FILE", |engine, _| Ok(single("Data", to_text(&configuration(engine)?)))).help(
        "SELECT CONFIG FILE",
        "The configuration in memory as the text of a file.",
        "SELECT CONFIG FILE",
    ),
];

fn configuration(engine: &Engine) -> Result<Config, AdminError> {
    rows::read(&engine.store.admin, "main", &everything(), &engine.runtime())
}

/// Writes what could be loaded; the rest is refused, as LOAD refuses it. Answers its size in bytes.
fn write(engine: &Engine, path: &str) -> Result<u64, AdminError> {
    if path.is_empty() {
        return refuse("give the name of a file");
    }
    let config = Arc::new(configuration(engine)?);
    engine.check(&config)?;
    engine.could_read(&config)?;
    let text = to_text(&config);
    files::replace(Path::new(path), text.as_bytes()).map_err(|error| AdminError::file(Path::new(path), error))?;
    Ok(u64::try_from(text.len()).unwrap_or(u64::MAX))
}
