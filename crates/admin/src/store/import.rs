//! Takes over the configuration database of an older version or of ProxySQL, in place and in one transaction.
//!
//! A table whose description differs is rebuilt: columns that it lacks get their defaults, columns that are not known here
//! are reported. A row that a table cannot hold is an error that names it; the file is then as it was.

use std::fs;
use std::path::Path;

use model::config::{Column, ColumnDefault, Config, Field, Row, TABLES, Table, check_keys, ddl, foreign_module, operator_tables, text};
use model::settings::{AdminVariables, MysqlVariables, retired_by_full_name};
use model::snapshot::masked_attributes;
use model::{ConfigError, ErrorKind, Origin, Setting};
use rusqlite::types::Value;
use rusqlite::{Connection, params, params_from_iter};

use super::layout::stored_ddl;
use super::rows::{self, transaction};
use crate::error::AdminError;

/// Whether `disk` has tables of another version.
pub(crate) fn is_due(db: &Connection) -> Result<bool, AdminError> {
    Ok(!others(db)?.is_empty())
}

/// Tables of `disk` that are not as this version describes them.
fn others(db: &Connection) -> Result<Vec<&'static Table>, AdminError> {
    let mut others = Vec::new();
    for table in TABLES {
        let is_other = stored_ddl(db, "disk", table.name)?.is_some_and(|old| old != ddl::create_table(table, table.name));
        others.extend(is_other.then_some(table));
    }
    Ok(others)
}

/// The ignored parts of `disk`, as in a file: unknown columns and variables, `false` for 0. Changes nothing.
pub(crate) fn tolerated(db: &Connection) -> Result<Vec<ConfigError>, AdminError> {
    let mut found = Vec::new();
    for table in operator_tables() {
        if stored_ddl(db, "disk", table.name)?.is_some() {
            let named = db.prepare(&format!("SELECT * FROM disk.{}", table.name))?;
            let unknown = named.column_names().filter(|name| table.column_index(name).is_none());
            found.extend(unknown.map(|name| {
                let at = Origin::Row(table.name.into());
                ConfigError::new(at, format!("{}.{name}", table.name), table.unknown_column(name))
            }));
        }
    }
    if stored_ddl(db, "disk", "global_variables")?.is_some() {
        for (name, value) in stored_variables(db)? {
            let kind = match Setting::by_full_name(&name) {
                Some(setting) if is_false_for_number(setting, &value) => ErrorKind::FalseForNumber,
                None if retired_by_full_name(&name).is_none() && foreign_module(&name).is_none() => Setting::unknown(&name).into(),
                _ => continue,
            };
            found.push(ConfigError::new(Origin::Row(format!("global_variables, variable_name={name}").into()), "", kind));
        }
    }
    Ok(found)
}

/// The names and values of the variables that `disk` has, by name.
pub(crate) fn stored_variables(db: &Connection) -> Result<Vec<(String, Value)>, AdminError> {
    let mut found = db.prepare("SELECT variable_name, variable_value FROM disk.global_variables ORDER BY 1")?;
    let stored = found.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(stored.collect::<Result<_, _>>()?)
}

/// Whether a stored value is a `false` that stands for 0.
fn is_false_for_number(setting: &Setting, value: &Value) -> bool {
    matches!(value, Value::Text(text) if setting.is_false_for_number(text))
}

/// Copies a variable of `disk` to `main`, as 0 if its value is a tolerated `false`. A read-only variable is not copied. Returns the number of
/// variables that were written.
pub(crate) fn take_variable(db: &Connection, setting: &Setting, mut value: Value) -> Result<usize, AdminError> {
    if text::is_read_only(setting) {
        return Ok(0);
    }
    if is_false_for_number(setting, &value) {
        value = Value::Text("0".to_owned());
    }
    Ok(db.execute("INSERT OR REPLACE INTO main.global_variables VALUES (?1, ?2)", params![setting.full_name(), value])?)
}

/// The configuration of `disk`, of any version, without unusable rows, and the faults of those rows. With `is_strict`, [`tolerated`] parts
/// are faults too. Changes nothing.
pub(crate) fn look_through(db: &Connection, is_strict: bool) -> Result<(Config, Vec<ConfigError>), AdminError> {
    let (mut config, mut errors) = (Config::default(), Vec::new());
    if is_strict {
        errors.extend(tolerated(db)?);
    }
    for table in operator_tables() {
        if stored_ddl(db, "disk", table.name)?.is_some() {
            let rows = rows_of(db, table, &mut errors)?;
            config.tables.insert(table.name, rows);
        }
    }
    if stored_ddl(db, "disk", "global_variables")?.is_some() {
        for module in [MysqlVariables::MODULE, AdminVariables::MODULE] {
            // Names that are not known, or not ours to set, are passed over.
            let is_known = |name: &str| model::Setting::by_full_name(name).is_some_and(|setting| !text::is_read_only(setting));
            rows::read_variables(db, "disk", module, is_known, &mut config, &mut errors)?;
        }
    }
    Ok((config, errors))
}

/// The rows of a table by the columns that are known.
fn rows_of(db: &Connection, table: &'static Table, errors: &mut Vec<ConfigError>) -> Result<Vec<Row>, AdminError> {
    let mut found = db.prepare(&format!("SELECT * FROM disk.{}", table.name))?;
    let names: Vec<Option<usize>> = found.column_names().map(|name| table.column_index(name)).collect();
    let places: Vec<Option<usize>> = (0..table.columns.len()).map(|index| names.iter().position(|name| *name == Some(index))).collect();
    let (mut all, mut found) = (Vec::new(), found.query([])?);
    while let Some(row) = found.next()? {
        let given = table.columns.iter().zip(&places).map(|(column, place)| match place {
            Some(at) => row.get_ref(*at).map(rows::field),
            None => Ok(left_out(column)),
        });
        let fields = given.collect::<rusqlite::Result<Vec<Field>>>()?;
        all.extend(Row::from_fields(table, &fields, errors));
    }
    check_keys(table, &all, errors);
    Ok(all)
}

/// The value of a column that a table of another version lacks.
fn left_out(column: &Column) -> Field {
    match column.default {
        ColumnDefault::Required | ColumnDefault::Null => Field::Null,
        ColumnDefault::Integer(number) => Field::Integer(number),
        ColumnDefault::Text(text) => Field::Bytes(text.as_bytes().to_vec()),
    }
}

/// Brings the tables of `disk`, which is `file`, up to this version; a copy of it as it was is kept beside it. Answers what its
/// operator should know, one line each.
pub(crate) fn upgrade(db: &Connection, file: &Path) -> Result<Vec<String>, AdminError> {
    let others = others(db)?;
    let mut notices = Vec::new();
    if !others.is_empty() {
        let copy = file.with_extension("db.before-import");
        fs::copy(file, &copy).map_err(|error| AdminError::file(&copy, error))?;
        notices.push(format!("proxysql.db: kept as it was: {}", copy.display()));
    }
    transaction(db, || {
        for table in &others {
            rebuild(db, table, &mut notices)?;
        }
        super::layout::create_disk(db)
    })?;
    Ok(notices)
}

fn rebuild(db: &Connection, table: &'static Table, notices: &mut Vec<String>) -> Result<(), AdminError> {
    let old = format!("{}_before_tidegate", table.name);
    db.execute_batch(&format!("DROP TABLE IF EXISTS disk.{old}; ALTER TABLE disk.{} RENAME TO {old}", table.name))?;
    db.execute_batch(&ddl::create_table(table, &format!("disk.{}", table.name)))?;
    let copied = copy(db, table, &old)?;
    db.execute_batch(&format!("DROP TABLE disk.{old}"))?;
    if copied > 0 {
        notices.push(format!("proxysql.db: {}: {copied} rows taken over from another version's table", table.name));
    }
    Ok(())
}

/// Copies the rows of `old` by the columns that both know. Returns how many.
fn copy(db: &Connection, table: &'static Table, old: &str) -> Result<usize, AdminError> {
    let mut found = db.prepare(&format!("SELECT * FROM disk.{old} ORDER BY rowid"))?;
    let names: Vec<String> = found.column_names().map(str::to_owned).collect();
    let known: Vec<(usize, &str)> =
        names.iter().enumerate().filter_map(|(at, name)| Some((at, table.columns[table.column_index(name)?].name))).collect();
    let columns: Vec<String> = known.iter().map(|(_, name)| ddl::quoted(name)).collect();
    let marks = vec!["?"; known.len()].join(",");
    let mut put = db.prepare(&format!("INSERT INTO disk.{} ({}) VALUES ({marks})", table.name, columns.join(", ")))?;
    let mut rows = found.query([])?;
    let mut copied = 0;
    while let Some(row) = rows.next()? {
        let values = known.iter().map(|(at, _)| row.get::<_, Value>(*at)).collect::<Result<Vec<_>, _>>()?;
        put.execute(params_from_iter(&values)).map_err(|error| {
            let shown: Vec<String> = known.iter().zip(&values).map(|((_, name), value)| format!("{name}={}", show(name, value))).collect();
            AdminError::Sql(format!("proxysql.db: {}, {}: {}", table.name, shown.join(", "), AdminError::from(error)))
        })?;
        copied += 1;
    }
    Ok(copied)
}

fn show(name: &str, value: &Value) -> String {
    match value {
        _ if name == "password" => "***".to_owned(),
        Value::Text(text) if name == "attributes" => masked_attributes(text),
        Value::Null => "NULL".to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Real(number) => number.to_string(),
        Value::Text(text) => text.clone(),
        Value::Blob(_) => "a blob".to_owned(),
    }
}
