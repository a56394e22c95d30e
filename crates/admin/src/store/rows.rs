//! Rows of the configuration between SQLite and `model`.

use model::config::diff::Sheet;
use model::config::{Config, Field, Row, TABLES, Table, check_keys, ddl, operator_tables, shared, text};
use model::settings::{AdminVariables, MysqlVariables};
use model::{ConfigError, ErrorKind, Origin};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, params_from_iter};

use crate::error::AdminError;

/// A part of the configuration: tables, and variables by their module.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// The tables of this part.
    pub tables: &'static [&'static str],
    /// `mysql`, `admin` or none.
    pub variables: Option<&'static str>,
}

/// The description of a table of the configuration.
pub(crate) fn description(name: &str) -> Option<&'static Table> {
    TABLES.iter().find(|table| table.name.eq_ignore_ascii_case(name))
}

/// `base` with `parts` replaced by what `schema` says. Every row is checked; all faults are given.
pub(crate) fn read(db: &Connection, schema: &str, parts: &[Part], base: &Config) -> Result<Config, AdminError> {
    let (config, errors) = read_what_can_be(db, schema, parts, base)?;
    if errors.is_empty() { Ok(config) } else { Err(AdminError::Config(errors)) }
}

/// As [`read`]; with faults, the configuration lacks the rows that have them.
pub(crate) fn read_what_can_be(
    db: &Connection,
    schema: &str,
    parts: &[Part],
    base: &Config,
) -> Result<(Config, Vec<ConfigError>), AdminError> {
    let mut config = base.clone();
    let mut errors = Vec::new();
    for part in parts {
        for table in part.tables.iter().filter_map(|name| description(name)) {
            let rows = read_table(db, schema, table, &mut errors)?;
            config.tables.insert(table.name, rows);
        }
        if let Some(module) = part.variables {
            let is_ours = |name: &str| !name.eq_ignore_ascii_case("admin-version");
            read_variables(db, schema, module, is_ours, &mut config, &mut errors)?;
        }
    }
    Ok((config, errors))
}

fn read_table(db: &Connection, schema: &str, table: &'static Table, errors: &mut Vec<ConfigError>) -> Result<Vec<Row>, AdminError> {
    let mut rows = Vec::new();
    each_row(db, schema, table, |fields| rows.extend(Row::from_fields(table, fields, errors)))?;
    check_keys(table, &rows, errors);
    Ok(rows)
}

/// Calls `act` with each row of a table, in the order of its key where rows number themselves, else as they were inserted.
fn each_row(db: &Connection, schema: &str, table: &'static Table, mut act: impl FnMut(&[Field])) -> Result<(), AdminError> {
    let mut found = db.prepare(&format!("SELECT {} FROM {schema}.{} ORDER BY rowid", columns(table), table.name))?;
    let mut rows = found.query([])?;
    let mut fields = Vec::with_capacity(table.columns.len());
    while let Some(row) = rows.next()? {
        fields.clear();
        for index in 0..table.columns.len() {
            fields.push(field(row.get_ref(index)?));
        }
        act(&fields);
    }
    Ok(())
}

/// Takes over the stored variables of a module that are `wanted`.
pub(super) fn read_variables(
    db: &Connection,
    schema: &str,
    module: &str,
    wanted: impl Fn(&str) -> bool,
    config: &mut Config,
    errors: &mut Vec<ConfigError>,
) -> Result<(), AdminError> {
    for (name, value) in variables(db, schema, module)?.into_iter().filter(|(name, _)| wanted(name)) {
        let text = String::from_utf8_lossy(&value);
        let outcome = match module {
            MysqlVariables::MODULE => config.mysql.set(&name, &text),
            _ => config.admin.set(&name, &text),
        };
        if let Err(error) = outcome {
            let at = Origin::Row(format!("global_variables, variable_name={name}").into());
            errors.push(ConfigError::new(at, "", ErrorKind::Setting(error)));
        }
    }
    Ok(())
}

/// Variables of a module as they are stored, by full name.
pub(crate) fn variables(db: &Connection, schema: &str, module: &str) -> Result<Vec<(String, Vec<u8>)>, AdminError> {
    let sql =
        format!("SELECT variable_name, variable_value FROM {schema}.global_variables WHERE variable_name LIKE ?1 ORDER BY variable_name");
    let mut found = db.prepare(&sql)?;
    let rows = found
        .query_map([format!("{module}-%")], |row| Ok((row.get::<_, String>(0)?, field(row.get_ref(1)?).to_sql().unwrap_or_default())))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Writes `parts` of `config` over what `schema` has. The caller holds a transaction.
pub(crate) fn write(db: &Connection, schema: &str, parts: &[Part], config: &Config) -> Result<(), AdminError> {
    for part in parts {
        for table in part.tables.iter().filter_map(|name| description(name)) {
            db.execute(&format!("DELETE FROM {schema}.{}", table.name), [])?;
            if ddl::numbers_itself(table) {
                // Rows without an id are numbered from 1 again, so that the same file always makes the same rows.
                db.execute(&format!("DELETE FROM {schema}.sqlite_sequence WHERE name = ?1"), [table.name])?;
            }
            insert(db, schema, table, config.rows(table.name), "INSERT")?;
        }
        match part.variables {
            Some(MysqlVariables::MODULE) => write_variables(db, schema, config.mysql.iter())?,
            Some(_) => write_variables(db, schema, config.admin.iter())?,
            None => {}
        }
    }
    Ok(())
}

/// The same without each proxy's own variables.
pub(crate) fn write_shared(db: &Connection, schema: &str, parts: &[Part], config: &Config) -> Result<(), AdminError> {
    let is_shared = |(setting, _): &(&'static model::Setting, String)| !shared::is_local(setting);
    for part in parts {
        write(db, schema, &[Part { variables: None, ..*part }], config)?;
        match part.variables {
            Some(MysqlVariables::MODULE) => write_variables(db, schema, config.mysql.iter().filter(is_shared))?,
            Some(_) => write_variables(db, schema, config.admin.iter().filter(is_shared))?,
            None => {}
        }
    }
    Ok(())
}

fn write_variables(
    db: &Connection,
    schema: &str,
    settings: impl Iterator<Item = (&'static model::Setting, String)>,
) -> Result<(), AdminError> {
    let mut put = db.prepare(&format!("INSERT OR REPLACE INTO {schema}.global_variables VALUES (?1, ?2)"))?;
    for (setting, value) in settings {
        put.execute([setting.full_name(), value])?;
    }
    Ok(())
}

/// Inserts rows; `verb` is `INSERT` or `INSERT OR REPLACE`. A row without an id is given the next one.
pub(crate) fn insert(db: &Connection, schema: &str, table: &'static Table, rows: &[Row], verb: &str) -> Result<(), AdminError> {
    let marks = vec!["?"; table.columns.len()].join(",");
    let mut put = db.prepare(&format!("{verb} INTO {schema}.{} ({}) VALUES ({marks})", table.name, columns(table)))?;
    for row in rows {
        put.execute(params_from_iter(row.cells.iter().map(stored)))
            .map_err(|error| AdminError::Sql(format!("{}: {}", row.at, AdminError::from(error))))?;
    }
    Ok(())
}

fn stored(cell: &model::config::Cell) -> ToSqlOutput<'_> {
    use model::config::Cell;
    ToSqlOutput::Borrowed(match cell {
        Cell::Null => ValueRef::Null,
        Cell::Integer(number) => ValueRef::Integer(*number),
        Cell::Text(text) => ValueRef::Text(text.as_bytes()),
        Cell::Secret(secret) => ValueRef::Text(secret.expose()),
    })
}

/// The content of `schema` as text, without checks.
pub(crate) fn sheet(db: &Connection, schema: &str) -> Result<Sheet, AdminError> {
    let mut sheet = Sheet::default();
    for table in operator_tables() {
        each_row(db, schema, table, |fields| sheet.row(table, fields))?;
    }
    for module in [MysqlVariables::MODULE, AdminVariables::MODULE] {
        for (name, value) in variables(db, schema, module)? {
            let is_read_only = model::Setting::by_full_name(&name).is_some_and(text::is_read_only);
            if !is_read_only {
                sheet.variable(&name, &value);
            }
        }
    }
    Ok(sheet)
}

/// A table's columns, as SQL lists them.
pub(crate) fn columns(table: &Table) -> String {
    table.columns.iter().map(|column| ddl::quoted(column.name)).collect::<Vec<_>>().join(", ")
}

pub(super) fn field(value: ValueRef<'_>) -> Field {
    match value {
        ValueRef::Null => Field::Null,
        ValueRef::Integer(number) => Field::Integer(number),
        ValueRef::Real(number) => Field::Real(number),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Field::Bytes(bytes.to_vec()),
    }
}

/// Runs `act` in a transaction that is rolled back: only its result stays.
pub(crate) fn rolled_back<T>(db: &Connection, act: impl FnOnce() -> Result<T, AdminError>) -> Result<T, AdminError> {
    db.execute_batch("BEGIN IMMEDIATE")?;
    let outcome = act();
    let ended = db.execute_batch("ROLLBACK");
    let done = outcome?;
    ended?;
    Ok(done)
}

/// Runs `act` in a transaction: all of it or nothing.
pub(crate) fn transaction<T>(db: &Connection, act: impl FnOnce() -> Result<T, AdminError>) -> Result<T, AdminError> {
    db.execute_batch("BEGIN IMMEDIATE")?;
    match act() {
        Ok(done) => match db.execute_batch("COMMIT") {
            Ok(()) => Ok(done),
            Err(error) => {
                let _ = db.execute_batch("ROLLBACK");
                Err(error.into())
            }
        },
        Err(error) => {
            let _ = db.execute_batch("ROLLBACK");
            Err(error)
        }
    }
}
