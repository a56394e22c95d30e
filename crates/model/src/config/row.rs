//! One row of a table: read and checked by its table's description.

use std::collections::{BTreeMap, BTreeSet};

use super::tables::{Column, ColumnDefault, ColumnKind, Table};
use crate::error::{ConfigError, ErrorKind, Origin};
use crate::libconfig::{Entry, Position, Value};
use crate::secret::Secret;
use crate::suggest;

/// One value of a row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cell {
    /// SQL's NULL, distinct from an empty text.
    Null,
    /// The value of a number column.
    Integer(i64),
    /// Text.
    Text(String),
    /// Text that is never logged.
    Secret(Secret),
}

impl Cell {
    /// The value as SQL shows it; `None` is NULL. Secrets come out in clear.
    pub fn to_sql(&self) -> Option<Vec<u8>> {
        match self {
            Self::Null => None,
            Self::Integer(number) => Some(number.to_string().into_bytes()),
            Self::Text(text) => Some(text.clone().into_bytes()),
            Self::Secret(secret) => Some(secret.expose().to_vec()),
        }
    }
}

/// A value in a column of an SQL row, before it is checked.
#[derive(Debug, Clone, PartialEq)]
pub enum Field {
    /// SQL's NULL, as the client sent it.
    Null,
    /// A whole number.
    Integer(i64),
    /// A number with a fraction.
    Real(f64),
    /// Text or a blob.
    Bytes(Vec<u8>),
}

impl Field {
    /// The value as SQL shows it; `None` is NULL.
    pub fn to_sql(&self) -> Option<Vec<u8>> {
        match self {
            Self::Null => None,
            Self::Integer(number) => Some(number.to_string().into_bytes()),
            Self::Real(number) => Some(number.to_string().into_bytes()),
            Self::Bytes(bytes) => Some(bytes.clone()),
        }
    }
}

/// A row that keeps its table's rules.
#[derive(Debug, Clone)]
pub struct Row {
    /// The table that describes the cells.
    pub table: &'static Table,
    /// The place of the row's first byte, or its key in SQL.
    pub at: Origin,
    /// One value a column, in the table's order.
    pub cells: Vec<Cell>,
    /// The place of each given column; others are absent.
    given: BTreeMap<&'static str, Position>,
}

/// The fault of a repeated name: the same spelling, or another one.
pub(super) fn given_again(is_same_name: bool, first_line: u32) -> ErrorKind {
    if is_same_name { ErrorKind::GivenTwice { first_line } } else { ErrorKind::GivenAgain { first_line } }
}

impl Row {
    /// Reads the group `entries`, which begins at `at`. All faults are added to `errors`; a row with one that is not tolerated
    /// is `None`.
    pub(super) fn read(table: &'static Table, at: &Position, entries: &[Entry], errors: &mut Vec<ConfigError>) -> Option<Self> {
        let faults_before = errors.len();
        let mut row = Self { table, at: at.clone().into(), cells: vec![Cell::Null; table.columns.len()], given: BTreeMap::new() };
        let mut names: BTreeMap<&'static str, &str> = BTreeMap::new();
        for entry in entries {
            if let Err(kind) = row.take(entry, &mut names, errors) {
                errors.push(fault(table, entry, kind));
            }
        }
        row.fill_defaults(errors);
        let is_usable = |errors: &[ConfigError]| errors[faults_before..].iter().all(|error| error.kind.tolerated().is_some());
        if is_usable(errors) {
            row.check(errors);
        }
        is_usable(errors).then_some(row)
    }

    /// Checks a row of SQL: one field a column, in the table's order. All faults are added to `errors`, named after the row's
    /// key; a row with any is `None`.
    pub fn from_fields(table: &'static Table, fields: &[Field], errors: &mut Vec<ConfigError>) -> Option<Self> {
        let faults_before = errors.len();
        let at = Origin::Row(format!("{}, {}", table.name, table.row_key(fields)).into());
        let mut row = Self { table, at, cells: Vec::with_capacity(fields.len()), given: BTreeMap::new() };
        for (column, field) in table.columns.iter().zip(fields) {
            let cell = read_field(column, field).unwrap_or_else(|kind| {
                errors.push(ConfigError::new(row.at.clone(), format!("{}.{}", table.name, column.name), kind));
                Cell::Null
            });
            row.cells.push(cell);
        }
        if errors.len() == faults_before {
            row.check(errors);
        }
        (errors.len() == faults_before).then_some(row)
    }

    /// A number; `None` when NULL or not a number.
    pub fn integer(&self, column: &str) -> Option<i64> {
        match self.cell(column) {
            Some(Cell::Integer(value)) => Some(*value),
            _ => None,
        }
    }

    /// A text; `None` when NULL or not a text.
    pub fn text(&self, column: &str) -> Option<&str> {
        match self.cell(column) {
            Some(Cell::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// A secret; `None` when NULL or not a secret.
    pub fn secret(&self, column: &str) -> Option<&Secret> {
        match self.cell(column) {
            Some(Cell::Secret(secret)) => Some(secret),
            _ => None,
        }
    }

    /// False for NULL and for text too.
    pub fn flag(&self, column: &str) -> bool {
        self.integer(column) == Some(1)
    }

    /// The value of a column; `None` when there is no such column.
    pub fn cell(&self, column: &str) -> Option<&Cell> {
        self.cells.get(self.table.column_index(column)?)
    }

    /// The place of `column`, or the row's if the column was not given.
    pub fn position(&self, column: &str) -> Origin {
        self.given.get(column).map_or_else(|| self.at.clone(), |at| at.clone().into())
    }

    /// Columns without effect that were given a value other than their default.
    pub(super) fn inert_columns(&self) -> impl Iterator<Item = &'static Column> + '_ {
        let columns = self.table.columns.iter().zip(&self.cells);
        columns.filter(|(column, cell)| column.is_inert && cell_of(column.default).as_ref() != Some(cell)).map(|(c, _)| c)
    }

    /// Reads one column. A tolerated fault is added to `errors`. `names` has the spelling under which each column was given.
    fn take<'a>(
        &mut self,
        entry: &'a Entry,
        names: &mut BTreeMap<&'static str, &'a str>,
        errors: &mut Vec<ConfigError>,
    ) -> Result<(), ErrorKind> {
        let Some(index) = self.table.column_index(&entry.name) else {
            return Err(self.table.unknown_column(&entry.name));
        };
        let column = &self.table.columns[index];
        let first_name = names.insert(column.name, &entry.name);
        if let Some(first) = self.given.insert(column.name, entry.at.clone()) {
            match given_again(first_name == Some(&entry.name), first.line) {
                kind if kind.tolerated().is_some() => errors.push(fault(self.table, entry, kind)),
                kind => return Err(kind),
            }
        }
        let value = match (&entry.node.value, column.kind) {
            (Value::Boolean(false), ColumnKind::Integer { max, .. }) if max != 1 => {
                errors.push(fault(self.table, entry, ErrorKind::FalseForNumber));
                &Value::Integer(0)
            }
            (value, _) => value,
        };
        self.cells[index] = read_cell(column.kind, value)?;
        Ok(())
    }

    fn fill_defaults(&mut self, errors: &mut Vec<ConfigError>) {
        for (column, cell) in self.table.columns.iter().zip(&mut self.cells) {
            if self.given.contains_key(column.name) {
                continue;
            }
            match cell_of(column.file_default) {
                Some(default) => *cell = default,
                None => {
                    let subject = format!("{}.{}", self.table.name, column.name);
                    errors.push(ConfigError::new(self.at.clone(), subject, ErrorKind::Missing));
                }
            }
        }
    }

    fn check(&self, errors: &mut Vec<ConfigError>) {
        for check in self.table.checks.iter().filter(|check| !(check.holds)(self)) {
            let subject = format!("{}.{}", self.table.name, check.column);
            errors.push(ConfigError::new(self.position(check.column), subject, ErrorKind::Rule(check.rule)));
        }
    }
}

impl Table {
    /// The fault of naming a column that is not there.
    pub fn unknown_column(&self, name: &str) -> ErrorKind {
        let names = self.columns.iter().flat_map(|column| [column.name, column.alias]);
        ErrorKind::Unknown { what: "column", suggestion: suggest::nearest(name, names.filter(|name| !name.is_empty())) }
    }

    /// The key of a row of SQL, as errors and differences name it: `hostgroup_id=1, hostname=db1, port=3306`.
    pub fn row_key(&self, fields: &[Field]) -> String {
        let parts = self.keys.first().copied().unwrap_or_default().iter().map(|name| {
            let field = self.column_index(name).and_then(|index| fields.get(index));
            let value = field.and_then(Field::to_sql);
            value.map_or_else(|| format!("{name}=NULL"), |bytes| format!("{name}={}", String::from_utf8_lossy(&bytes)))
        });
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// Faults of the table as a whole: rows that share a key. A row is told once.
pub fn check_keys(table: &'static Table, rows: &[Row], errors: &mut Vec<ConfigError>) {
    let mut told = BTreeSet::new();
    for key in table.keys {
        let mut seen: BTreeMap<Vec<&Cell>, &Origin> = BTreeMap::new();
        for (index, row) in rows.iter().enumerate() {
            let cells: Vec<&Cell> = key.iter().filter_map(|column| row.cell(column)).collect();
            if cells.contains(&&Cell::Null) {
                continue;
            }
            if let Some(first) = seen.get(&cells) {
                if !told.insert(index) {
                    continue;
                }
                let kind = ErrorKind::DuplicateKey { columns: key.join(", "), first: first.row_name() };
                errors.push(ConfigError::new(row.at.clone(), table.name, kind));
            } else {
                seen.insert(cells, &row.at);
            }
        }
    }
}

/// The rows that stay where each replaces the earlier ones that share a key with it.
pub(super) fn latest_rows(table: &'static Table, rows: Vec<Row>) -> Vec<Row> {
    let mut seen = BTreeSet::new();
    let mut latest = Vec::with_capacity(rows.len());
    for row in rows.into_iter().rev() {
        let cells = |key: &&[&str]| key.iter().filter_map(|column| row.cell(column).cloned()).collect::<Vec<Cell>>();
        let keys = table.keys.iter().map(cells).enumerate().filter(|(_, cells)| !cells.contains(&Cell::Null));
        let keys: Vec<(usize, Vec<Cell>)> = keys.collect();
        if !keys.iter().any(|key| seen.contains(key)) {
            seen.extend(keys);
            latest.push(row);
        }
    }
    latest.reverse();
    latest
}

fn fault(table: &Table, entry: &Entry, kind: ErrorKind) -> ConfigError {
    ConfigError::new(entry.at.clone(), format!("{}.{}", table.name, entry.name), kind)
}

fn cell_of(default: ColumnDefault) -> Option<Cell> {
    match default {
        ColumnDefault::Required => None,
        ColumnDefault::Null => Some(Cell::Null),
        ColumnDefault::Integer(value) => Some(Cell::Integer(value)),
        ColumnDefault::Text(text) => Some(Cell::Text(text.to_owned())),
    }
}

/// One column of a row of SQL. NULL where the column's default is a text is that text's absence: empty.
fn read_field(column: &Column, field: &Field) -> Result<Cell, ErrorKind> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map(Value::Text).map_err(|_| ErrorKind::NotUtf8);
    match (field, column.kind, column.default) {
        (Field::Null, _, ColumnDefault::Null) => Ok(Cell::Null),
        (Field::Null, ColumnKind::Text, ColumnDefault::Text(_)) => Ok(Cell::Text(String::new())),
        (Field::Null, ..) => Err(ErrorKind::Missing),
        (Field::Bytes(bytes), ColumnKind::Secret, _) => Ok(Cell::Secret(Secret::new(bytes.as_slice()))),
        (Field::Bytes(bytes), kind, _) => read_cell(kind, &text(bytes)?),
        (Field::Integer(number), kind, _) => read_cell(kind, &Value::Integer(*number)),
        (Field::Real(number), kind, _) => read_cell(kind, &Value::Float(number.to_string())),
    }
}

fn read_cell(kind: ColumnKind, value: &Value) -> Result<Cell, ErrorKind> {
    if let Value::Bytes(bytes) = value {
        return if kind == ColumnKind::Secret { Ok(Cell::Secret(Secret::new(bytes.as_slice()))) } else { Err(ErrorKind::NotUtf8) };
    }
    if let ColumnKind::Integer { min, max } = kind {
        return read_integer(value, min, max).map(Cell::Integer);
    }
    let wrong = || ErrorKind::WrongType { expected: "a string", found: value.describe().to_owned() };
    let text = value.scalar_text().ok_or_else(wrong)?;
    match kind {
        ColumnKind::Words(words) => read_word(text, words),
        ColumnKind::Json => read_json(text),
        ColumnKind::Secret => Ok(Cell::Secret(Secret::new(text))),
        ColumnKind::Text | ColumnKind::Integer { .. } => Ok(Cell::Text(text)),
    }
}

fn read_integer(value: &Value, min: i64, max: i64) -> Result<i64, ErrorKind> {
    let number = match value {
        Value::Integer(number) => Some(*number),
        Value::Boolean(flag) if (min, max) == (0, 1) => Some(i64::from(*flag)),
        Value::Text(text) => text.trim().parse().ok(),
        _ => None,
    };
    let found = || match value {
        Value::Text(text) => format!("'{text}'"),
        other => other.describe().to_owned(),
    };
    let number = number.ok_or_else(|| ErrorKind::WrongType { expected: "an integer", found: found() })?;
    if (min..=max).contains(&number) { Ok(number) } else { Err(ErrorKind::OutOfRange { value: number, min, max }) }
}

fn read_word(text: String, words: &'static [&'static str]) -> Result<Cell, ErrorKind> {
    match words.iter().find(|word| word.eq_ignore_ascii_case(text.trim())) {
        Some(word) => Ok(Cell::Text((*word).to_owned())),
        None => Err(ErrorKind::NotAllowed { text, allowed: words }),
    }
}

fn read_json(text: String) -> Result<Cell, ErrorKind> {
    if text.is_empty() {
        return Ok(Cell::Text(text));
    }
    match serde_json::from_str::<serde_json::Value>(&text) {
        Ok(_) => Ok(Cell::Text(text)),
        Err(error) => Err(ErrorKind::BadJson(error.to_string())),
    }
}
