//! Writes a [`Config`] as a configuration file that [`parse`](super::parse) reads back to the same configuration.
//!
//! Unlike ProxySQL's, the file holds every table: hostgroup attributes, fast routing and the firewall too. Values that
//! are their column's default in files are left out, so a file of many rules stays readable.

use std::fmt::Write;

use super::row::{Cell, Row};
use super::tables::{Column, ColumnDefault, Table};
use super::{Config, operator_tables};
use crate::settings::{AdminVariables, GlobalSettings, MysqlVariables, Setting};

/// The file's text. Passwords are in it, in clear.
pub fn to_text(config: &Config) -> String {
    to_text_of(config, |_, _| true)
}

/// The same, with only those variables that `wanted` says.
pub(super) fn to_text_of(config: &Config, wanted: impl Fn(&Setting, &str) -> bool) -> String {
    let mut page = String::new();
    let defaults = GlobalSettings::default();
    for (setting, value) in config.globals.iter().filter(|(setting, value)| defaults.get(setting.name).as_ref() != Some(value)) {
        let _ = writeln!(page, "{}={}", setting.name, quoted(&value));
    }
    let is_wanted = |(setting, value): &(&'static Setting, String)| wanted(setting, value);
    variables(&mut page, AdminVariables::MODULE, config.admin.iter().filter(is_wanted));
    variables(&mut page, MysqlVariables::MODULE, config.mysql.iter().filter(is_wanted));
    for table in operator_tables() {
        rows(&mut page, table, config.rows(table.name));
    }
    page
}

fn variables(page: &mut String, module: &str, settings: impl Iterator<Item = (&'static Setting, String)>) {
    let _ = writeln!(page, "\n{module}_variables =\n{{");
    for (setting, value) in settings.filter(|(setting, _)| !is_read_only(setting)) {
        let _ = writeln!(page, "    {}={}", setting.name, quoted(&value));
    }
    page.push_str("}\n");
}

/// Whether a setting describes the build and is not configuration: it is never stored or taken over.
pub fn is_read_only(setting: &Setting) -> bool {
    setting.module == AdminVariables::MODULE && setting.name == "version"
}

fn rows(page: &mut String, table: &Table, rows: &[Row]) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(page, "\n{} =\n(", table.file_name);
    for (index, row) in rows.iter().enumerate() {
        let comma = if index + 1 == rows.len() { "" } else { "," };
        let values = table.columns.iter().zip(&row.cells).filter(|(column, cell)| !is_default(column, cell));
        let values: Vec<String> = values.filter_map(|(column, cell)| Some(format!("{}={}", column.name, value(cell)?))).collect();
        let _ = writeln!(page, "    {{ {} }}{comma}", values.join(", "));
    }
    page.push_str(")\n");
}

fn is_default(column: &Column, cell: &Cell) -> bool {
    match (column.file_default, cell) {
        (ColumnDefault::Null, Cell::Null) => true,
        (ColumnDefault::Integer(default), Cell::Integer(value)) => default == *value,
        (ColumnDefault::Text(default), Cell::Text(value)) => default == value,
        _ => false,
    }
}

fn value(cell: &Cell) -> Option<String> {
    match cell {
        Cell::Null => None,
        Cell::Integer(number) => Some(number.to_string()),
        Cell::Text(text) => Some(quoted(text)),
        Cell::Secret(secret) => Some(quoted_bytes(secret.expose())),
    }
}

fn quoted(text: &str) -> String {
    quoted_bytes(text.as_bytes())
}

/// A string in quotes. Bytes that are not UTF-8 become hexadecimal escapes, so a password of another character set stays as it is.
fn quoted_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                other => out.push(other),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out.push('"');
    out
}
