//! LOAD and SAVE: modules times moves between the layers (disk, memory, runtime, file), with all of ProxySQL's synonyms.

use std::sync::Arc;

use model::{Config, Setting};
use rusqlite::Connection;

use super::help::Topic;
use super::{Answer, Command, done, history, open, refuse};
use crate::engine::statement::{Statement, unquoted};
use crate::engine::{Ask, Engine};
use crate::error::AdminError;
use crate::remarks;
use crate::reply::Reply;
use crate::sharing::{Sharing, peers};
use crate::store::import;
use crate::store::modules::{MODULES, Module, merge};
use crate::store::rows::{self, Part};

/// Modules of ProxySQL that belong to things Tidegate does not have.
const FOREIGN: &[&str] = &["SQLITESERVER VARIABLES", "CLICKHOUSE USERS", "CLICKHOUSE VARIABLES", "LDAP VARIABLES", "DEBUG"];

/// From where to where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Move {
    DiskToMemory,
    MemoryToDisk,
    MemoryToRuntime,
    RuntimeToMemory,
    FileToMemory,
}

/// The forms of a move: the words before and behind the module.
const FORMS: &[(&str, &str, Move)] = &[
    ("LOAD", "TO MEMORY|MEM", Move::DiskToMemory),
    ("LOAD", "FROM DISK", Move::DiskToMemory),
    ("SAVE", "FROM MEMORY|MEM", Move::MemoryToDisk),
    ("SAVE", "TO DISK", Move::MemoryToDisk),
    ("LOAD", "FROM MEMORY|MEM", Move::MemoryToRuntime),
    ("LOAD", "TO RUNTIME|RUN", Move::MemoryToRuntime),
    ("SAVE", "TO MEMORY|MEM", Move::RuntimeToMemory),
    ("SAVE", "FROM RUNTIME|RUN", Move::RuntimeToMemory),
    ("LOAD", "FROM CONFIG", Move::FileToMemory),
];

/// The moves that HELP lists, one form each, with their effects; the other forms are synonyms.
const TOPICS: &[(&str, &str, &str)] = &[
    ("LOAD", "TO RUNTIME", "Checks what is in memory and puts it in force, or changes nothing."),
    ("SAVE", "TO DISK", "Saves what is in memory for the next start."),
    ("LOAD", "FROM DISK", "Copies what was saved into memory."),
    ("SAVE", "FROM RUNTIME", "Copies what is in force into memory."),
    ("LOAD", "FROM CONFIG", "Lays the configuration file's rows over memory."),
];

/// HELP's topics for LOAD and SAVE: one for each module and move.
pub(super) fn topics() -> impl Iterator<Item = Topic> {
    let of_module = |module: &'static Module| {
        TOPICS.iter().map(move |(verb, tail, what)| {
            let form = format!("{verb} {} {tail}", module.words);
            Topic { example: form.clone(), form, what: (*what).to_owned() }
        })
    };
    let user = Topic {
        form: "LOAD MYSQL USER name TO RUNTIME".to_owned(),
        what: "Puts one user in force.".to_owned(),
        example: "LOAD MYSQL USER app TO RUNTIME".to_owned(),
    };
    MODULES.iter().flat_map(of_module).chain([user])
}

/// The command, if a statement loads or saves.
pub(super) fn find(statement: &Statement) -> Option<Command> {
    let command = |run| open("LOAD|SAVE", run);
    if !statement.is(0, "LOAD|SAVE") {
        return None;
    }
    if parse(statement).is_some() {
        return Some(command(carry_out));
    }
    if one_user(statement).is_some() {
        return Some(command(load_user));
    }
    let foreign = FOREIGN.iter().any(|words| statement.has(1, words));
    foreign.then(|| command(|_, ask| refuse(format!("{} {}: not part of this proxy", ask.statement.word(1), ask.statement.word(2)))))
}

fn parse(statement: &Statement) -> Option<(&'static Module, Move)> {
    let module = MODULES.iter().find(|module| statement.has(1, module.words))?;
    let behind = 1 + module.words.split(' ').count();
    let is_form = |(verb, tail, _): &&(&str, &str, Move)| statement.is(0, verb) && statement.has(behind, tail);
    let (_, _, way) = FORMS.iter().find(is_form).filter(|_| statement.head.len() == behind + 2)?;
    Some((module, *way))
}

fn carry_out(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let Some((module, way)) = parse(ask.statement) else {
        return refuse("no such LOAD or SAVE");
    };
    if way != Move::MemoryToRuntime {
        engine.refuse_read_only(ask)?;
    }
    match way {
        Move::MemoryToRuntime => load(engine, &[module], ask),
        Move::MemoryToDisk => save_to_disk(engine, module),
        Move::DiskToMemory => load_from_disk(engine, module),
        Move::RuntimeToMemory => save_from_runtime(engine, module),
        Move::FileToMemory => load_file(engine, module),
    }
}

/// Puts memory's content of these modules in force, all at once.
pub(super) fn load(engine: &mut Engine, modules: &[&'static Module], ask: &Ask<'_>) -> Answer {
    engine.refuse_behind(modules)?;
    let parts: Vec<Part> = modules.iter().map(|module| module.part).collect();
    let config = rows::read(&engine.store.admin, "main", &parts, &engine.runtime())?;
    engine.adopt(config, modules, ask)
}

/// The name in `LOAD MYSQL USER name TO RUNTIME`, quoted or not.
fn one_user(statement: &Statement) -> Option<String> {
    let behind = statement.head.len().checked_sub(2).filter(|behind| *behind > 3)?;
    let is_form = statement.has(behind, "TO RUNTIME|RUN") || statement.has(behind, "FROM MEMORY|MEM");
    if !is_form || !statement.has(0, "LOAD MYSQL USER") {
        return None;
    }
    let (first, last) = (statement.head.get(3)?, statement.head.get(behind - 1)?);
    statement.text.get(first.start..last.end).map(unquoted)
}

/// Puts one user of memory in force.
fn load_user(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let name = one_user(ask.statement).unwrap_or_default();
    if !name.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '_' | '-')) {
        return refuse(format!(
            "Invalid name {name}: LOAD MYSQL USER takes the name of one user, of letters, digits, '+', '_' and '-', and no pattern. \
             LOAD MYSQL USERS TO RUNTIME loads all users"
        ));
    }
    let Some(module) = MODULES.iter().find(|module| module.words == "MYSQL USERS") else {
        return refuse("no such module");
    };
    engine.refuse_behind(&[module])?;
    let runtime = engine.runtime();
    let memory = rows::read(&engine.store.admin, "main", &[module.part], &runtime)?;
    let is_it = |row: &&model::config::Row| row.text("username") == Some(&name);
    if !memory.rows("mysql_users").iter().any(|row| is_it(&row)) {
        let runs = runtime.rows("mysql_users").iter().any(|row| is_it(&row));
        let rest = if runs { ", but the user is still in runtime: LOAD MYSQL USERS TO RUNTIME removes it" } else { "" };
        return refuse(format!("User {name} is not in mysql_users, so nothing was loaded{rest}"));
    }
    let mut config = Config::clone(&runtime);
    let others = runtime.rows("mysql_users").iter().filter(|row| !is_it(row));
    let rows = others.chain(memory.rows("mysql_users").iter().filter(is_it)).cloned().collect();
    config.tables.insert("mysql_users", rows);
    engine.adopt(config, &[module], ask)
}

/// Memory to disk. What could not be loaded is not saved: the proxy would not start with it. If the disk's other modules do not fit the
/// saved one, the answer names them.
fn save_to_disk(engine: &Engine, module: &Module) -> Answer {
    let config = Arc::new(rows::read(&engine.store.admin, "main", &[module.part], &engine.runtime())?);
    engine.check(&config)?;
    if module.is_for_admin() {
        engine.could_read(&config)?;
    }
    let db = &engine.store.admin;
    let reply = rows::transaction(db, || {
        let mut copied = copy_tables(db, "main", "disk", &module.part)?;
        if let Some(module) = module.part.variables {
            let sql = "INSERT OR REPLACE INTO disk.global_variables SELECT * FROM main.global_variables WHERE variable_name LIKE ?1";
            copied += db.execute(sql, [format!("{module}-%")])?;
        }
        Ok(copied_rows(copied))
    })?;
    Ok(match refused_at_start(engine) {
        Some(warning) => remarks::passed_over(reply, &[warning]),
        None => reply,
    })
}

/// A warning if a start would refuse what is on disk now. A start that lays other sources over the disk is not judged.
fn refused_at_start(engine: &Engine) -> Option<String> {
    let (db, runtime) = (&engine.store.admin, engine.runtime());
    if engine.is_declarative || Sharing::is_on(&runtime) || peers::is_on(&runtime) {
        return None;
    }
    let of_disk = || {
        let (config, errors) = import::look_through(db, runtime.globals.strict)?;
        if errors.is_empty() { engine.check(&Arc::new(config)).map(drop) } else { Err(AdminError::Config(errors)) }
    };
    let why = of_disk().err()?;
    let saves = history::missing_saves(db).unwrap_or_default();
    let rest = if saves.is_empty() { String::new() } else { format!("; save the other modules too: {}", saves.join("; ")) };
    Some(format!("saved, but a start would refuse what is on disk now: {why}{rest}"))
}

/// Disk to memory. As at a start, variables that are not known stay on disk.
fn load_from_disk(engine: &mut Engine, module: &Module) -> Answer {
    let db = &engine.store.admin;
    let copied = rows::transaction(db, || {
        let mut copied = copy_tables(db, "disk", "main", &module.part)?;
        if let Some(module) = module.part.variables {
            for (name, value) in import::stored_variables(db)? {
                if let Some(setting) = Setting::by_full_name(&name).filter(|setting| setting.module == module) {
                    copied += import::take_variable(db, setting, value)?;
                }
            }
        }
        Ok(copied)
    })?;
    engine.caught_up()?;
    Ok(copied_rows(copied))
}

fn save_from_runtime(engine: &mut Engine, module: &Module) -> Answer {
    let (db, runtime) = (&engine.store.admin, engine.runtime());
    rows::transaction(db, || rows::write(db, "main", &[module.part], &runtime))?;
    engine.caught_up()?;
    Ok(done(0, ""))
}

/// Replaces the tables of a part in one schema by those of another. Returns the number of rows.
fn copy_tables(db: &Connection, from: &str, to: &str, part: &Part) -> Result<usize, AdminError> {
    let mut copied = 0;
    for table in part.tables.iter().filter_map(|name| rows::description(name)) {
        let (name, columns) = (table.name, rows::columns(table));
        db.execute(&format!("DELETE FROM {to}.{name}"), [])?;
        copied += db.execute(&format!("INSERT INTO {to}.{name} ({columns}) SELECT {columns} FROM {from}.{name} ORDER BY rowid"), [])?;
    }
    Ok(copied)
}

fn copied_rows(count: usize) -> Reply {
    done(u64::try_from(count).unwrap_or(u64::MAX), "")
}

/// The configuration file to memory: rows are added to those that are there or replace them, as in ProxySQL.
fn load_file(engine: &Engine, module: &Module) -> Answer {
    let Some(path) = &engine.config_file else {
        return refuse("Config file unknown");
    };
    let (config, notices) = model::load_regular(path).map_err(AdminError::Config)?;
    let db = &engine.store.admin;
    let read = rows::transaction(db, || merge(db, &config, &module.part))?;
    Ok(remarks::passed_over(done(read, ""), &model::config::faults(&notices)))
}
