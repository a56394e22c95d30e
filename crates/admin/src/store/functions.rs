//! MySQL's functions that SQLite lacks and that clients and ProxySQL's users call.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::Value;

use crate::error::AdminError;
use crate::reply::{Role, SessionInfo};

/// The values of functions for the present session.
#[derive(Debug, Default)]
pub(crate) struct Facts(Mutex<Known>);

#[derive(Debug, Default, Clone)]
struct Known {
    session: SessionInfo,
    version: String,
    /// Values of `@@name` during one statement of a session with this role. An administrator's have passwords.
    variables: Option<(Role, Vec<(String, String)>)>,
}

impl Facts {
    /// From now on statements are `session`'s.
    pub(crate) fn enter(&self, session: &SessionInfo) {
        self.with(|known| known.session = session.clone());
    }

    /// Sets the value of VERSION().
    pub(crate) fn name_version(&self, version: String) {
        self.with(|known| known.version = version);
    }

    /// Sets the values of `@@name` until the statement [leaves](Self::leave), by name in lower case. Only the connection of `who` reads
    /// them.
    pub(crate) fn describe(&self, who: Role, variables: Vec<(String, String)>) {
        self.with(|known| known.variables = Some((who, variables)));
    }

    /// The statement is over: the values of `@@name` are gone.
    pub(crate) fn leave(&self) {
        self.with(|known| known.variables = None);
    }

    fn with<T>(&self, act: impl FnOnce(&mut Known) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

type Answer = fn(&Known) -> Value;

/// Functions without arguments.
const FACTS: &[(&str, Answer)] = &[
    ("version", |known| Value::Text(known.version.clone())),
    ("user", |known| Value::Text(account(known))),
    ("current_user", |known| Value::Text(account(known))),
    ("session_user", |known| Value::Text(account(known))),
    ("system_user", |known| Value::Text(account(known))),
    ("connection_id", |known| Value::Integer(i64::from(known.session.connection_id))),
    ("database", |known| schema(known)),
    ("schema", |known| schema(known)),
];

/// Functions that are another expression of SQLite's.
const TIMES: &[(&str, &str)] = &[
    ("now", "SELECT datetime('now')"),
    ("sysdate", "SELECT datetime('now')"),
    ("utc_timestamp", "SELECT datetime('now')"),
    ("curdate", "SELECT date('now')"),
    ("curtime", "SELECT time('now')"),
    ("unix_timestamp", "SELECT unixepoch()"),
];

fn account(known: &Known) -> String {
    if known.session.peer.is_empty() { known.session.user.clone() } else { format!("{}@{}", known.session.user, known.session.peer) }
}

fn schema(known: &Known) -> Value {
    Value::Text(known.session.schema.clone().unwrap_or_else(|| "main".to_owned()))
}

/// Registers the functions on the connection that serves sessions of `who`.
pub(super) fn register(db: &Connection, facts: &Arc<Facts>, who: Role) -> Result<(), AdminError> {
    let flags = FunctionFlags::SQLITE_UTF8;
    for (name, answer) in FACTS {
        let facts = facts.clone();
        db.create_scalar_function(*name, 0, flags, move |_| Ok(facts.with(|known| answer(known))))?;
    }
    for (name, sql) in TIMES {
        // A scratch database of its own: a function may not use the connection that calls it.
        let clock = Mutex::new(Connection::open_in_memory()?);
        db.create_scalar_function(*name, 0, flags, move |_| {
            let clock = clock.lock().unwrap_or_else(PoisonError::into_inner);
            clock.query_row(sql, [], |row| row.get::<_, Value>(0))
        })?;
    }
    let scratch = Mutex::new(Connection::open_in_memory()?);
    db.create_scalar_function("from_unixtime", 1, flags | FunctionFlags::SQLITE_DETERMINISTIC, move |context: &Context<'_>| {
        let scratch = scratch.lock().unwrap_or_else(PoisonError::into_inner);
        scratch.query_row("SELECT datetime(?1, 'unixepoch')", [context.get::<Value>(0)?], |row| row.get::<_, Value>(0))
    })?;
    // Django asks whether time zones are known: those that are the same are.
    db.create_scalar_function("convert_tz", 3, flags | FunctionFlags::SQLITE_DETERMINISTIC, |context: &Context<'_>| {
        let is_same = context.get::<Value>(1)? == context.get::<Value>(2)?;
        Ok(if is_same { context.get::<Value>(0)? } else { Value::Null })
    })?;
    db.create_scalar_function("timediff", 2, flags, |_| Ok("00:00:00"))?;
    let known = facts.clone();
    db.create_scalar_function("mysql_variable", 1, flags, move |context: &Context<'_>| {
        let name = context.get::<String>(0)?;
        let value = known.with(|known| variable(known, who, &name));
        value.ok_or_else(|| rusqlite::Error::UserFunctionError(format!("Unknown system variable '{}'", bare(&name)).into()))
    })?;
    Ok(())
}

/// The name in `@@session.Name`, in lower case.
fn bare(name: &str) -> String {
    let name = name.trim_start_matches('@').to_ascii_lowercase();
    let scopes = ["global.", "session.", "local."];
    scopes.iter().find_map(|scope| name.strip_prefix(scope)).unwrap_or(&name).trim_matches('`').to_owned()
}

fn variable(known: &Known, who: Role, name: &str) -> Option<Value> {
    let name = bare(name);
    let (_, variables) = known.variables.as_ref().filter(|(owner, _)| *owner == who)?;
    variables.iter().find(|(known, _)| *known == name).map(|(_, value)| Value::Text(value.clone()))
}
