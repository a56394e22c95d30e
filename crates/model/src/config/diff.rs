//! The differences between two configurations, by row and column.
//!
//! Compares [`Sheet`]s, which hold only text: memory may hold rows that no [`Config`] would accept, and their differences count too.

use std::collections::BTreeMap;

use super::row::{Cell, Field};
use super::tables::{Column, ColumnDefault, ColumnKind, TABLES, Table};
use super::{Config, operator_tables, text};
use crate::settings::Setting;
use crate::snapshot::masked_attributes;

/// The rows of one table by key, one value a column.
type Rows = BTreeMap<String, Vec<Option<Vec<u8>>>>;

/// A configuration as text.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Sheet {
    tables: BTreeMap<&'static str, Rows>,
}

/// The name of the table of variables.
pub const VARIABLES: &str = "global_variables";

/// A changed value, or a row that one side lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The table's name in SQL; [`VARIABLES`] for a variable.
    pub table: &'static str,
    /// The row: `rule_id=7`.
    pub key: String,
    /// The column; empty when the whole row is on one side only.
    pub column: &'static str,
    /// The value on the left; NULL may also mean that there is no such row. Of a whole row, the columns that are not their
    /// default: `weight=3, comment=x`. Secrets are shown as `***`.
    pub left: Option<String>,
    /// As `left`, of the right side.
    pub right: Option<String>,
}

impl Sheet {
    /// A checked configuration.
    pub fn of(config: &Config) -> Self {
        let mut sheet = Self::default();
        for table in operator_tables() {
            for row in config.rows(table.name) {
                let fields: Vec<Field> = row.cells.iter().map(field).collect();
                sheet.row(table, &fields);
            }
        }
        let variables = config.mysql.iter().chain(config.admin.iter());
        for (setting, value) in variables.filter(|(setting, _)| !text::is_read_only(setting)) {
            sheet.variable(&setting.full_name(), value.as_bytes());
        }
        sheet
    }

    /// Completes the sheet of a database, which another version may have written. A missing variable gets its default, and an unknown one
    /// is ignored.
    #[must_use]
    pub fn completed(mut self) -> Self {
        let mut variables = Self::of(&Config::default()).tables.remove(VARIABLES).unwrap_or_default();
        for (key, value) in self.tables.remove(VARIABLES).unwrap_or_default() {
            variables.entry(key).and_modify(|known| *known = value);
        }
        self.tables.insert(VARIABLES, variables);
        self
    }

    /// Adds a row, one field a column.
    pub fn row(&mut self, table: &'static Table, fields: &[Field]) {
        let values = table.columns.iter().zip(fields).map(|(column, field)| as_loaded(column, field)).collect();
        self.tables.entry(table.name).or_default().insert(table.row_key(fields), values);
    }

    /// Adds a variable by its full name; its value as loading it leaves it.
    pub fn variable(&mut self, name: &str, value: &[u8]) {
        let key = format!("variable_name={name}");
        let text = Setting::by_full_name(name).zip(std::str::from_utf8(value).ok());
        let kept = text.and_then(|(setting, text)| setting.as_kept(text));
        let value = kept.map_or_else(|| value.to_vec(), String::into_bytes);
        self.tables.entry(VARIABLES).or_default().insert(key, vec![Some(value)]);
    }
}

/// Everything that differs, ordered by table and key.
pub fn diff(left: &Sheet, right: &Sheet) -> Vec<Difference> {
    let mut found = Vec::new();
    let empty = Rows::new();
    let names = operator_tables().map(|table| table.name).chain([VARIABLES]);
    for name in names {
        let (left, right) = (left.tables.get(name).unwrap_or(&empty), right.tables.get(name).unwrap_or(&empty));
        for (key, row) in left {
            match right.get(key) {
                Some(other) => columns(name, key, row, other, &mut found),
                None => {
                    found.push(Difference { table: name, key: key.clone(), column: "", left: Some(content(name, key, row)), right: None })
                }
            }
        }
        let only_right = right.iter().filter(|(key, _)| !left.contains_key(*key));
        found.extend(only_right.map(|(key, row)| {
            let right = Some(content(name, key, row));
            Difference { table: name, key: key.clone(), column: "", left: None, right }
        }));
    }
    found
}

/// The first `limit` changes from left to right in words, as `+rule 200; max_connections 2048 -> 4000`.
pub fn summary(found: &[Difference], limit: usize) -> String {
    let mut parts: Vec<String> = found.iter().take(limit).map(change).collect();
    if found.len() > limit {
        parts.push(format!("and {} more", found.len() - limit));
    }
    parts.join("; ")
}

fn change(found: &Difference) -> String {
    /// Most characters of a value.
    const SHOWN: usize = 60;
    let subject = subject(found.table, &found.key);
    let value = |value: &Option<String>| match value.as_deref() {
        None => "NULL".to_owned(),
        Some("") => "''".to_owned(),
        Some(text) if text.chars().count() > SHOWN => text.chars().take(SHOWN).chain("...".chars()).collect(),
        Some(text) => text.to_owned(),
    };
    let column = if found.table == VARIABLES { String::new() } else { format!(" {}", found.column) };
    match (found.column, &found.left, &found.right) {
        ("", None, _) => format!("+{subject}"),
        ("", _, _) => format!("-{subject}"),
        // Both are masked.
        (_, left, right) if left == right => format!("{subject}{column} changed"),
        (_, left, right) => format!("{subject}{column} {} -> {}", value(left), value(right)),
    }
}

/// A row as an operator calls it: `rule 200`, `server db1:3306 in hostgroup 2`.
fn subject(table: &str, key: &str) -> String {
    let short = match table {
        VARIABLES => key.strip_prefix("variable_name=").map(|name| name.strip_prefix("mysql-").unwrap_or(name).to_owned()),
        "mysql_query_rules" => key.strip_prefix("rule_id=").map(|id| format!("rule {id}")),
        "mysql_users" => {
            key.strip_prefix("username=").and_then(|rest| rest.rsplit_once(", backend=")).map(|(name, _)| format!("user {name}"))
        }
        "mysql_servers" => key.strip_prefix("hostgroup_id=").and_then(|rest| {
            let (hostgroup, server) = rest.split_once(", hostname=")?;
            let (host, port) = server.rsplit_once(", port=")?;
            Some(format!("server {host}:{port} in hostgroup {hostgroup}"))
        }),
        _ => None,
    };
    short.unwrap_or_else(|| format!("{table} {key}"))
}

/// A row without its key and without columns that have their default.
fn content(table: &str, key: &str, row: &[Option<Vec<u8>>]) -> String {
    let known = TABLES.iter().find(|other| other.name == table);
    let keys = known.and_then(|table| table.keys.first().copied()).unwrap_or_default();
    let is_default = |index: usize, value: &Option<Vec<u8>>| match known.and_then(|table| table.columns.get(index)).map(|c| c.default) {
        Some(ColumnDefault::Null) => value.is_none(),
        Some(ColumnDefault::Integer(number)) => value.as_deref() == Some(number.to_string().as_bytes()),
        Some(ColumnDefault::Text(text)) => value.as_deref() == Some(text.as_bytes()),
        Some(ColumnDefault::Required) | None => false,
    };
    let told = row.iter().enumerate().filter(|(index, value)| !is_default(*index, value)).filter_map(|(index, value)| {
        let (name, is_secret) = column(table, key, index);
        let text = shown(table, name, is_secret, value).unwrap_or_else(|| "NULL".to_owned());
        (!keys.contains(&name)).then(|| if table == VARIABLES { text } else { format!("{name}={text}") })
    });
    let told: Vec<String> = told.collect();
    if told.is_empty() { "all columns are as their defaults".to_owned() } else { told.join(", ") }
}

fn shown(table: &str, column: &str, is_secret: bool, value: &Option<Vec<u8>>) -> Option<String> {
    let value = String::from_utf8_lossy(value.as_ref()?);
    Some(match (table, column) {
        _ if is_secret => "***".to_owned(),
        ("mysql_users", "attributes") => masked_attributes(&value),
        _ => value.into_owned(),
    })
}

fn columns(table: &'static str, key: &str, left: &[Option<Vec<u8>>], right: &[Option<Vec<u8>>], found: &mut Vec<Difference>) {
    for (index, (a, b)) in left.iter().zip(right).enumerate().filter(|(_, (a, b))| a != b) {
        let (column, is_secret) = column(table, key, index);
        let shown = |value| shown(table, column, is_secret, value);
        found.push(Difference { table, key: key.to_owned(), column, left: shown(a), right: shown(b) });
    }
}

/// A column's name, and whether its value may not be shown.
fn column(table: &str, key: &str, index: usize) -> (&'static str, bool) {
    if table == VARIABLES {
        let name = key.strip_prefix("variable_name=").unwrap_or(key);
        return ("variable_value", Setting::by_full_name(name).is_some_and(Setting::is_secret));
    }
    let columns = TABLES.iter().find(|other| other.name == table).map_or(&[][..], |table| table.columns);
    columns.get(index).map_or(("", false), |column| (column.name, column.kind == ColumnKind::Secret))
}

/// A value as loading it leaves it: NULL is empty where a column's default is a text, and words are spelt as they are here. What could
/// not be loaded stays as it is.
fn as_loaded(column: &Column, field: &Field) -> Option<Vec<u8>> {
    let value = field.to_sql();
    match (column.kind, column.default) {
        (ColumnKind::Text, ColumnDefault::Text(_)) => Some(value.unwrap_or_default()),
        (ColumnKind::Words(words), _) => {
            let known = |value: &[u8]| words.iter().find(|word| value.trim_ascii().eq_ignore_ascii_case(word.as_bytes()));
            value.map(|value| known(&value).map_or(value.clone(), |word| word.as_bytes().to_vec()))
        }
        _ => value,
    }
}

fn field(cell: &Cell) -> Field {
    match cell {
        Cell::Null => Field::Null,
        Cell::Integer(number) => Field::Integer(*number),
        Cell::Text(text) => Field::Bytes(text.clone().into_bytes()),
        Cell::Secret(secret) => Field::Bytes(secret.expose().to_vec()),
    }
}
