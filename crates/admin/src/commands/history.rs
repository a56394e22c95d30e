//! CONFIG HISTORY and CONFIG ROLLBACK: configurations that were in force ([`past`]).

use std::sync::Arc;

use model::Config;
use model::config::diff::{Sheet, VARIABLES, diff, summary};
use rusqlite::Connection;

use super::{Answer, refuse, rows as reply};
use crate::engine::{Ask, Engine};
use crate::error::AdminError;
use crate::remarks;
use crate::store::layout::HISTORY_TABLE;
use crate::store::modules::{MODULES, Module, everything};
use crate::store::past::{self, NAMED_CHANGES};
use crate::store::rows;

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
    let Some(text) = past::text_of(&engine.store.admin, id)? else {
        return refuse(format!("no configuration {id} in CONFIG HISTORY"));
    };
    let (mut config, _) = model::parse(&text, &format!("configuration {id}")).map_err(AdminError::Config)?;
    config.globals = engine.runtime().globals.clone();
    Ok(config)
}

/// `CONFIG ROLLBACK n`: to memory and runtime at once. Disk stays as it is until SAVE.
pub(super) fn rollback(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    engine.refuse_read_only(ask)?;
    let config = recall(engine, ask.statement.word(2))?;
    engine.roll_back(config, ask)
}

/// The SAVE commands that are missing, if the disk has another configuration than memory.
pub(super) fn missing_saves(db: &Connection) -> Result<Vec<String>, AdminError> {
    let differences = diff(&rows::sheet(db, "main")?, &rows::sheet(db, "disk")?.completed());
    let is_of = |module: &Module| {
        differences.iter().any(|found| match module.part.variables {
            Some(prefix) => found.table == VARIABLES && found.key.starts_with(&format!("variable_name={prefix}-")),
            None => module.part.tables.contains(&found.table),
        })
    };
    Ok(MODULES.iter().filter(|module| is_of(module)).map(|module| format!("SAVE {} TO DISK", module.words)).collect())
}

/// A hint at the SAVE that is missing, if the disk has another configuration than memory.
fn unsaved(db: &Connection) -> Result<Option<String>, AdminError> {
    let saves = missing_saves(db)?;
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
        self.caught_up()?;
        let dropped =
            (!edits.is_empty()).then(|| format!("edits in memory that were not loaded are gone: {}", summary(&edits, NAMED_CHANGES)));
        Ok(remarks::passed_over(reply, &dropped.into_iter().chain(unsaved).collect::<Vec<_>>()))
    }
}
