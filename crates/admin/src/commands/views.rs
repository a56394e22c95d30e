//! CREATE VIEW over tables of other schemas.
//!
//! In SQLite a view sees only the tables of its own schema, and a TEMP view sees all. `main` and TEMP both live in memory and are shared by
//! all administrators. So a view without a schema becomes a TEMP view if needed, without a visible difference.

use rusqlite::Connection;

use super::show::qualified;
use super::{Answer, Command, open, refuse};
use crate::engine::{Ask, Engine, sql};
use crate::error::AdminError;
use crate::store::layout::stored_ddl;

pub(super) const COMMANDS: &[Command] = &[open("CREATE VIEW", create).help(
    "CREATE VIEW name AS SELECT ...",
    "A view over tables of the admin interface.",
    "CREATE VIEW busy AS SELECT * FROM stats_mysql_processlist",
)];

/// SQLite's error for a view that names another schema.
const FOREIGN: &str = "cannot reference objects in database";

/// The view that is made to see whether one could be.
const TRIAL: &str = "tidegate_trial";

fn create(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let behind = if ask.statement.has(2, "IF NOT EXISTS") { 5 } else { 2 };
    let (schema, name, next) = qualified(ask.statement, behind);
    let place = schema.as_deref().unwrap_or("main");
    let db = &engine.store.admin;
    let run = |text: &str| sql::run(engine, ask.who, ask.session, text);
    let temporary = || run(&format!("CREATE TEMP VIEW {}", ask.statement.rest(2)));
    if schema.is_none() && stored_ddl(db, "temp", &name)?.is_some() {
        return temporary();
    }
    if !is_schema(db, place) || stored_ddl(db, place, &name)?.is_some() {
        return run(&ask.statement.text);
    }
    let made = run(&ask.statement.text);
    let reaches_out = match &made {
        Ok(_) => lacks_table(engine, place, &name),
        Err(error) => error.to_string().contains(FOREIGN),
    };
    if !reaches_out {
        return made;
    }
    // If no schema has the table, the view waits for it.
    let trial = run(&format!("CREATE TEMP VIEW {TRIAL} {}", ask.statement.rest(next)));
    let sees_all = trial.is_ok() && !lacks_table(engine, "temp", TRIAL);
    drop_view(db, "temp", TRIAL)?;
    if !sees_all {
        return made;
    }
    drop_view(db, place, &name)?;
    match schema {
        None => temporary(),
        Some(schema) => refuse(format!(
            "a view in {schema} reads tables of {schema} only. CREATE TEMP VIEW {name} (or CREATE VIEW without a schema) reads tables of \
             all schemas"
        )),
    }
}

fn drop_view(db: &Connection, schema: &str, name: &str) -> Result<(), AdminError> {
    Ok(db.execute_batch(&format!("DROP VIEW IF EXISTS {schema}.{}", quoted(name)))?)
}

fn is_schema(db: &Connection, name: &str) -> bool {
    db.prepare(&format!("SELECT 1 FROM {}.sqlite_master", quoted(name))).is_ok()
}

/// Whether a view that is there reads a table that its schema does not have.
fn lacks_table(engine: &Engine, schema: &str, view: &str) -> bool {
    let read = engine.store.admin.prepare(&format!("SELECT * FROM {schema}.{}", quoted(view))).map(drop);
    engine.live.begin_statement();
    read.is_err_and(|error| error.to_string().contains("no such table: "))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
