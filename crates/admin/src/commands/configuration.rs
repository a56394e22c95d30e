//! CONFIG: the differences between the layers, all modules at once, and earlier configurations.

use std::path::PathBuf;
use std::sync::Arc;

use model::config::diff::{Difference, Sheet, diff};
use model::{About, Remark, Scope};

use super::layers::load;
use super::{Answer, Command, done, exact, history, open, refuse, rows as reply, sharing};
use crate::engine::statement::Statement;
use crate::engine::{Ask, Engine};
use crate::error::AdminError;
use crate::remarks;
use crate::store::modules::{MODULES, Module, everything};
use crate::store::rows;

pub(super) const COMMANDS: &[Command] = &[
    open("CONFIG DIFF", differences).help(
        "CONFIG DIFF [left] [right]",
        "Rows and columns that differ between MEMORY, RUNTIME, DISK, FILE ['name'] and HISTORY n.",
        "CONFIG DIFF RUNTIME DISK",
    ),
    exact("CONFIG APPLY", apply).help("CONFIG APPLY", "Puts all of memory in force at once, or nothing.", "CONFIG APPLY"),
    open("CONFIG APPLY FILE", apply_file).help(
        "CONFIG APPLY FILE ['name']",
        "Replaces memory, runtime and disk by what a file says.",
        "CONFIG APPLY FILE '/etc/tidegate.cnf'",
    ),
    exact("CONFIG CHECK", check).help("CONFIG CHECK", "Fails as CONFIG APPLY would, or lists doubtful rows.", "CONFIG CHECK"),
    exact("CONFIG HISTORY", history::list).help(
        "CONFIG HISTORY",
        "Configurations that were in force, newest first, and what each changed.",
        "CONFIG HISTORY",
    ),
    exact("CONFIG ROLLBACK *", history::rollback).help(
        "CONFIG ROLLBACK n",
        "Puts an earlier configuration in memory and in force. Says what to save if the disk differs.",
        "CONFIG ROLLBACK 12",
    ),
];

/// `CONFIG APPLY`: memory to runtime, every module at once.
fn apply(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let modules: Vec<&'static Module> = MODULES.iter().collect();
    load(engine, &modules, ask)
}

/// `CONFIG APPLY FILE ['name']`: replaces memory, runtime and disk by the file. Settings that it does not name are removed.
fn apply_file(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    engine.refuse_read_only(ask)?;
    let path = file(engine, ask.statement.word(3))?;
    let (mut said, notices) = model::load_regular(&path).map_err(AdminError::Config)?;
    if said.is_blank() {
        return Err(AdminError::blank(&path));
    }
    let (db, runtime) = (&engine.store.admin, engine.runtime());
    said.globals = runtime.globals.clone();
    // The rows pass through memory, where rows without an id get one. Memory changes only after the file is in force.
    let config = rows::rolled_back(db, || {
        rows::write(db, "main", &everything(), &said)?;
        rows::read(db, "main", &everything(), &said)
    })?;
    engine.check(&Arc::new(config.clone()))?;
    let is_new = !diff(&Sheet::of(&config), &Sheet::of(&runtime)).is_empty();
    let modules: Vec<&'static Module> = MODULES.iter().collect();
    let reply = if is_new { engine.adopt(config, &modules, ask)? } else { done(0, "nothing differs from what is in force") };
    let (db, runtime) = (&engine.store.admin, engine.runtime());
    rows::transaction(db, || ["main", "disk"].iter().try_for_each(|schema| rows::write(db, schema, &everything(), &runtime)))?;
    engine.caught_up()?;
    Ok(remarks::passed_over(reply, &model::config::faults(&notices)))
}

/// The file that is named, else the configuration file.
fn file(engine: &Engine, named: &str) -> Result<PathBuf, AdminError> {
    match (named, &engine.config_file) {
        ("", Some(path)) => Ok(path.clone()),
        ("", None) => refuse("Config file unknown"),
        (named, _) => Ok(named.into()),
    }
}

/// `CONFIG CHECK`: a row for each thing that `tidegate check` would remark on. What CONFIG APPLY would refuse is an error, as
/// there: scripts rely on it.
fn check(engine: &mut Engine, _: &Ask<'_>) -> Answer {
    let (config, mut faults) = rows::read_what_can_be(&engine.store.admin, "main", &everything(), &engine.runtime())?;
    let config = Arc::new(config);
    let checked = match (engine.check(&config), faults.is_empty()) {
        (Ok(checked), true) => checked,
        (Ok(_), false) => return Err(AdminError::Config(faults)),
        // Rows without faults of their own are judged beside those that have some, so that one CONFIG CHECK names all.
        (Err(AdminError::Config(others)), _) => {
            faults.extend(others);
            return Err(AdminError::Config(faults));
        }
        (Err(error), _) => return Err(error),
    };
    engine.could_read(&config)?;
    let found = remarks::all(&config, &checked.snapshot, &*engine.plane, Scope::All);
    let line = |found: Remark| {
        let severity = match found.about {
            About::Missing(_) | About::Dead | About::Harm(_) => "warning",
            About::Pending => "pending",
            About::Advice => "note",
        };
        let texts = [severity.to_owned(), found.table.to_owned(), found.row.to_string(), found.column.to_owned(), found.text];
        texts.map(Some).to_vec()
    };
    Ok(reply(&["severity", "table", "row", "column", "text"], found.into_iter().map(line).collect()))
}

/// `CONFIG DIFF [left] [right]`: memory against runtime where nothing else is said.
fn differences(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let (first, next) = side(engine, ask.statement, 2)?;
    let (second, end) = side(engine, ask.statement, next)?;
    if ask.statement.head.len() > end {
        return refuse("CONFIG DIFF [MEMORY|RUNTIME|DISK|FILE 'name'|HISTORY n|SHARED] [the same]");
    }
    let memory = || rows::sheet(&engine.store.admin, "main");
    let memory = || Ok::<_, AdminError>(("memory".to_owned(), memory()?));
    let ((left_name, left), (right_name, right)) = match (first, second) {
        (Some(left), Some(right)) => (left, right),
        (Some(right), None) => (memory()?, right),
        (None, _) => (memory()?, ("runtime".to_owned(), Sheet::of(&engine.runtime()))),
    };
    let line = |found: Difference| {
        let column = (!found.column.is_empty()).then(|| found.column.to_owned());
        vec![Some(found.table.to_owned()), Some(found.key), column, found.left, found.right]
    };
    Ok(reply(&["table", "key", "column", &left_name, &right_name], diff(&left, &right).into_iter().map(line).collect()))
}

/// The layer that is named at `index` with its name for the column, and the index behind it.
fn side(engine: &Engine, statement: &Statement, index: usize) -> Result<(Option<(String, Sheet)>, usize), AdminError> {
    match statement.word(index).to_ascii_uppercase().as_str() {
        "" => Ok((None, index)),
        "MEMORY" | "MEM" => Ok((Some(("memory".to_owned(), rows::sheet(&engine.store.admin, "main")?)), index + 1)),
        "DISK" => Ok((Some(("disk".to_owned(), rows::sheet(&engine.store.admin, "disk")?.completed())), index + 1)),
        "RUNTIME" | "RUN" => Ok((Some(("runtime".to_owned(), Sheet::of(&engine.runtime()))), index + 1)),
        "FILE" => {
            let (config, _) = model::load_regular(&file(engine, statement.word(index + 1))?).map_err(AdminError::Config)?;
            Ok((Some(("file".to_owned(), Sheet::of(&config))), index + 2))
        }
        "SHARED" => Ok((Some(("shared".to_owned(), Sheet::of(&sharing::shared(engine)?))), index + 1)),
        "HISTORY" => {
            let id = statement.word(index + 1);
            Ok((Some((format!("history {id}"), Sheet::of(&history::recall(engine, id)?))), index + 2))
        }
        other => refuse(format!("'{other}' is not a layer: use MEMORY, RUNTIME, DISK, FILE 'name', HISTORY n or SHARED")),
    }
}
