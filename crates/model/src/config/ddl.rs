//! The SQL of configuration tables, made from their one description in `tables`.
//!
//! What `SHOW CREATE TABLE` shows is what SQLite was given: column names, order, defaults and CHECKs are ProxySQL's.

use super::tables::{Column, ColumnDefault, ColumnKind, Table};

/// `CREATE TABLE` for `table` under the name `name`, which may be qualified by a schema.
pub fn create_table(table: &Table, name: &str) -> String {
    let mut lines: Vec<String> = table.columns.iter().map(|column| column_line(table, column)).collect();
    let checks = table.checks.iter().filter(|check| !check.sql.is_empty());
    lines.extend(checks.map(|check| format!("CHECK ({})", check.sql)));
    let mut keys = table.keys.iter();
    if let Some(primary) = keys.next().filter(|_| !numbers_itself(table)) {
        lines.push(format!("PRIMARY KEY ({})", columns(primary)));
    }
    lines.extend(keys.map(|key| format!("UNIQUE ({})", columns(key))));
    format!("CREATE TABLE {name} (\n    {}\n)", lines.join(",\n    "))
}

/// Whether rows that name no id are given the next one: one key column, which may be left out.
pub fn numbers_itself(table: &Table) -> bool {
    match table.keys.first() {
        Some([key]) => table.columns.iter().any(|column| column.name == *key && column.default == ColumnDefault::Null),
        _ => false,
    }
}

/// A name for SQL: in backquotes if it is a keyword.
pub fn quoted(name: &str) -> String {
    if name.eq_ignore_ascii_case("default") { format!("`{name}`") } else { name.to_owned() }
}

/// `INT`, `INT UNSIGNED` or `VARCHAR`.
pub fn sql_type(column: &Column) -> &'static str {
    // Hostgroups are smaller numbers, whatever ProxySQL calls these columns.
    let is_hostgroup = matches!(column.name, "mirror_hostgroup" | "gtid_from_hostgroup");
    match column.kind {
        ColumnKind::Integer { max, .. } if max == i64::from(u32::MAX) || is_hostgroup => "INT UNSIGNED",
        ColumnKind::Integer { .. } => "INT",
        ColumnKind::Text | ColumnKind::Secret | ColumnKind::Words(_) | ColumnKind::Json => "VARCHAR",
    }
}

/// Whether a column may hold NULL. `re_modifiers` has a default and may be NULL all the same.
pub fn is_nullable(table: &Table, column: &Column) -> bool {
    let is_modifiers = table.name == "mysql_query_rules" && column.name == "re_modifiers";
    (column.default == ColumnDefault::Null || is_modifiers) && !(numbers_itself(table) && table.keys[0] == [column.name])
}

fn columns(names: &[&str]) -> String {
    names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")
}

fn column_line(table: &Table, column: &Column) -> String {
    let name = quoted(column.name);
    if numbers_itself(table) && table.keys[0] == [column.name] {
        return format!("{name} INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL");
    }
    let null = if is_nullable(table, column) { "" } else { " NOT NULL" };
    format!("{name} {}{}{null}{}", sql_type(column), check(&name, column), default(column))
}

fn default(column: &Column) -> String {
    match column.default {
        ColumnDefault::Required | ColumnDefault::Null => String::new(),
        ColumnDefault::Integer(value) => format!(" DEFAULT {value}"),
        ColumnDefault::Text(text) => format!(" DEFAULT '{text}'"),
    }
}

/// The CHECK of a column. The largest numbers that fit are not named: loading says more about them than SQLite would.
fn check(name: &str, column: &Column) -> String {
    match column.kind {
        ColumnKind::Integer { min: 0, max: 1 } => format!(" CHECK ({name} IN (0,1))"),
        ColumnKind::Integer { min, max } if max >= i64::from(i32::MAX) => format!(" CHECK ({name} >= {min})"),
        ColumnKind::Integer { min, max } => format!(" CHECK ({name} >= {min} AND {name} <= {max})"),
        ColumnKind::Words(words) => {
            let words: Vec<String> = words.iter().map(|word| format!("'{}'", word.to_ascii_uppercase())).collect();
            format!(" CHECK (UPPER({name}) IN ({}))", words.join(","))
        }
        ColumnKind::Json => format!(" CHECK (JSON_VALID({name}) OR {name} = '')"),
        ColumnKind::Text | ColumnKind::Secret => String::new(),
    }
}
