//! CONFIG HISTORY and CONFIG ROLLBACK: configurations that were in force, kept compressed in `disk`.
//!
//! A configuration equal to the newest one is not kept again, so a LOAD every minute pushes no older one out. Limited by
//! `admin-config_history_size` in number and by [`MAX_BYTES`] in size; the oldest go first.

use std::io::{Read, Write};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use model::Config;
use model::config::diff::{Sheet, VARIABLES, diff, summary};
use model::config::text::to_text;
use rusqlite::{Connection, OptionalExtension, params};

use super::layers::{MODULES, Module, everything};
use super::{Answer, checksum, refuse, rows as reply};
use crate::engine::{Ask, Engine, now};
use crate::error::AdminError;
use crate::remarks;
use crate::store::layout::HISTORY_TABLE;
use crate::store::rows;

/// Most bytes that the kept configurations take, compressed.
const MAX_BYTES: u64 = 64 << 20;
/// Most bytes of one configuration.
const MAX_TEXT: u64 = 1 << 30;
/// Most changes that its line names.
const NAMED_CHANGES: usize = 8;

/// Keeps the configuration that is now in force, with the user and the command.
pub(crate) fn remember(db: &Connection, config: &Config, user: &str, command: &str) -> Result<(), AdminError> {
    let size = config.admin.config_history_size;
    rows::transaction(db, || {
        if size > 0 {
            keep(db, config, user, command)?;
        }
        // Counted from the newest: those that are too many, and those behind too many bytes. The newest always stays.
        let sql = format!(
            "DELETE FROM disk.{HISTORY_TABLE} WHERE id IN (SELECT id FROM (SELECT id, \
             ROW_NUMBER() OVER (ORDER BY id DESC) AS place, SUM(LENGTH(config)) OVER (ORDER BY id DESC) AS bytes \
             FROM disk.{HISTORY_TABLE}) WHERE place > ?1 OR (bytes > ?2 AND place > 1))"
        );
        db.execute(&sql, params![i64::try_from(size).unwrap_or(i64::MAX), i64::try_from(MAX_BYTES).unwrap_or(i64::MAX)])?;
        Ok(())
    })
}

/// Adds a configuration, unless it is the newest one.
fn keep(db: &Connection, config: &Config, user: &str, command: &str) -> Result<(), AdminError> {
    let sum = checksum::of_everything(config);
    let newest = format!("SELECT checksum, config FROM disk.{HISTORY_TABLE} ORDER BY id DESC LIMIT 1");
    let newest: Option<(String, Vec<u8>)> = db.query_row(&newest, [], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    if newest.as_ref().map(|(newest, _)| newest) != Some(&sum) {
        let columns = "time, user, command, checksum, config, changes";
        let sql = format!("INSERT INTO disk.{HISTORY_TABLE} ({columns}) VALUES (?1, ?2, ?3, ?4, ?5, ?6)");
        let command: String = command.chars().take(200).collect();
        let changes = newest.and_then(|(_, kept)| changes(&kept, config));
        db.execute(&sql, params![now(), user, command, sum, compress(to_text(config).as_bytes())?, changes])?;
    }
    Ok(())
}

/// The differences from the previous revision; None if the previous revision cannot be read.
fn changes(before: &[u8], config: &Config) -> Option<String> {
    let (before, _) = model::parse(&expand(before).ok()?, "the configuration before").ok()?;
    Some(summary(&diff(&Sheet::of(&before), &Sheet::of(config)), NAMED_CHANGES))
}

fn compress(bytes: &[u8]) -> Result<Vec<u8>, AdminError> {
    let failed = |error: std::io::Error| AdminError::Refused(format!("compressing: {error}"));
    let mut out = ZlibEncoder::new(Vec::new(), Compression::fast());
    out.write_all(bytes).map_err(failed)?;
    out.finish().map_err(failed)
}

fn expand(bytes: &[u8]) -> Result<String, AdminError> {
    let mut text = String::new();
    let read = ZlibDecoder::new(bytes).take(MAX_TEXT).read_to_string(&mut text);
    read.map_err(|error| AdminError::Refused(format!("a configuration of CONFIG HISTORY cannot be read: {error}")))?;
    Ok(text)
}

/// `CONFIG HISTORY`
pub(super) fn list(engine: &mut Engine, _: &Ask<'_>) -> Answer {
    let sql = format!(
        "SELECT id, time, datetime(time, 'unixepoch'), user, command, changes, checksum, LENGTH(config) FROM disk.{HISTORY_TABLE} ORDER BY id DESC"
    );
    let mut found = engine.store.admin.prepare(&sql)?;
    let lines = found
        .query_map([], |row| (0..8).map(|index| row.get::<_, Option<rusqlite::types::Value>>(index).map(|v| v.map(show))).collect())?;
    let lines = lines.collect::<Result<Vec<Vec<Option<String>>>, _>>()?;
    Ok(reply(&["id", "time", "when_utc", "user", "command", "changes", "checksum", "bytes"], lines))
}

fn show(value: rusqlite::types::Value) -> String {
    match value {
        rusqlite::types::Value::Integer(number) => number.to_string(),
        rusqlite::types::Value::Text(text) => text,
        _ => String::new(),
    }
}

/// A kept configuration, by its id.
pub(super) fn recall(engine: &Engine, id: &str) -> Result<Config, AdminError> {
    let Ok(id) = id.parse::<i64>() else {
        return refuse(format!("'{id}' is not an id of CONFIG HISTORY"));
    };
    let sql = format!("SELECT config FROM disk.{HISTORY_TABLE} WHERE id = ?1");
    let kept: Option<Vec<u8>> = engine.store.admin.query_row(&sql, [id], |row| row.get(0)).optional()?;
    let Some(kept) = kept else {
        return refuse(format!("no configuration {id} in CONFIG HISTORY"));
    };
    let (mut config, _) = model::parse(&expand(&kept)?, &format!("configuration {id}")).map_err(AdminError::Config)?;
    config.globals = engine.runtime().globals.clone();
    Ok(config)
}

/// `CONFIG ROLLBACK n`: to memory and runtime at once. Disk stays as it is until SAVE.
pub(super) fn rollback(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let config = recall(engine, ask.statement.word(2))?;
    engine.roll_back(config, ask)
}

/// A hint at the SAVE that is missing, if the disk has another configuration than memory.
fn unsaved(db: &Connection) -> Result<Option<String>, AdminError> {
    let differences = diff(&rows::sheet(db, "main")?, &rows::sheet(db, "disk")?.completed());
    let is_of = |module: &Module| {
        differences.iter().any(|found| match module.part.variables {
            Some(prefix) => found.table == VARIABLES && found.key.starts_with(&format!("variable_name={prefix}-")),
            None => module.part.tables.contains(&found.table),
        })
    };
    let saves: Vec<String> = MODULES.iter().filter(|module| is_of(module)).map(|module| format!("SAVE {} TO DISK", module.words)).collect();
    let text =
        || format!("the disk still has another configuration, which the next start would use; to keep this one: {}", saves.join("; "));
    Ok((!saves.is_empty()).then(text))
}

impl Engine {
    /// Puts an old configuration in force and into memory.
    ///
    /// # Errors
    /// As those of [`Engine::adopt`].
    pub(super) fn roll_back(&mut self, config: Config, ask: &Ask<'_>) -> Answer {
        let kept = Arc::new(config.clone());
        self.check(&kept)?;
        let edits = diff(&Sheet::of(&self.runtime()), &rows::sheet(&self.store.admin, "main")?);
        let modules: Vec<&'static Module> = MODULES.iter().collect();
        let reply = self.adopt(config, &modules, ask)?;
        let db = &self.store.admin;
        rows::transaction(db, || rows::write(db, "main", &everything(), &kept))?;
        // The next start of a declarative proxy uses the file.
        let unsaved = if self.is_declarative { None } else { unsaved(db)? };
        let dropped =
            (!edits.is_empty()).then(|| format!("edits in memory that were not loaded are gone: {}", summary(&edits, NAMED_CHANGES)));
        Ok(remarks::passed_over(reply, &dropped.into_iter().chain(unsaved).collect::<Vec<_>>()))
    }
}
