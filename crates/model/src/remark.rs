//! Remarks: suspicious parts of a configuration that is valid.
//!
//! A remark never refuses anything. It names table, row and column, and says what will happen and what to do about it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::config::{Cell, Config, Row};
use crate::error::Origin;

/// One remark. Displays as `mysql_query_rules, rule_id=7, column apply: ...`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remark {
    /// The table's name in SQL.
    pub table: &'static str,
    /// The row, as [`row_name`] names it.
    pub row: RowName,
    /// The column at fault.
    pub column: &'static str,
    /// Decides how urgent the remark is, and where it appears.
    pub about: About,
    /// The effect and the remedy, in one line.
    pub text: String,
}

/// The columns that identify a row, with their values. Numbers sort as numbers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowName(Vec<(&'static str, Cell)>);

/// The kind of a remark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// The row names something that is not in this table.
    Missing(&'static str),
    /// The row, or a part of it, can do nothing.
    Dead,
    /// It has a harmful effect, together with rows of this table.
    Harm(&'static str),
    /// It is in force from the next start on.
    Pending,
    /// It works, and perhaps not as its author thinks.
    Advice,
}

/// How much is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Rows without any effect: reported at each LOAD.
    Dead,
    /// Advice too.
    All,
}

impl Remark {
    /// The same of other rows too.
    fn and_others(self, others: Vec<RowName>) -> Self {
        // Of one row there may be more than one.
        let others: BTreeSet<RowName> = others.into_iter().filter(|row| *row != self.row).collect();
        if others.is_empty() {
            return self;
        }
        let mut names: Vec<String> = others.iter().take(ROWS_NAMED).map(|row| format!("({row})")).collect();
        if others.len() > names.len() {
            names.push("...".to_owned());
        }
        let text = format!("{}; the same of {} more row(s): {}", self.text, others.len(), names.join(", "));
        Self { text, ..self }
    }

    /// Whether a change of these tables may have brought it about.
    pub fn follows_from(&self, tables: &[&str]) -> bool {
        let other = match self.about {
            About::Missing(table) | About::Harm(table) => table,
            About::Dead | About::Pending | About::Advice => self.table,
        };
        tables.contains(&self.table) || tables.contains(&other)
    }
}

impl std::fmt::Display for Remark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}, column {}: {}", self.table, self.row, self.column, self.text)
    }
}

/// How many rows a remark on several names.
const ROWS_NAMED: usize = 10;

/// One remark for each kind: the first, with the names of the other rows. Remarks with the same words are of one kind. For advice, the
/// numbers in the words may differ.
pub fn by_kind(remarks: Vec<Remark>) -> Vec<Remark> {
    let mut kinds: BTreeMap<(&'static str, &'static str, About, String), usize> = BTreeMap::new();
    let mut found: Vec<(Remark, Vec<RowName>)> = Vec::new();
    for remark in remarks {
        let words = match remark.about {
            About::Advice => remark.text.replace(|letter: char| letter.is_ascii_digit(), ""),
            About::Missing(_) | About::Dead | About::Harm(_) | About::Pending => remark.text.clone(),
        };
        // Each variable is a thing of its own.
        let words = if remark.table == "global_variables" { remark.row.to_string() + &words } else { words };
        match kinds.entry((remark.table, remark.column, remark.about, words)) {
            Entry::Occupied(kind) => found[*kind.get()].1.push(remark.row),
            Entry::Vacant(kind) => {
                kind.insert(found.len());
                found.push((remark, Vec::new()));
            }
        }
    }
    found.into_iter().map(|(remark, others)| remark.and_others(others)).collect()
}

/// The rows of a configuration by their names, to find the place of a remark.
#[derive(Debug)]
pub struct Places<'a>(BTreeMap<(&'static str, RowName), &'a Row>);

impl<'a> Places<'a> {
    /// The rows of a configuration.
    pub fn of(config: &'a Config) -> Self {
        let rows = config.tables.values().flatten();
        Self(rows.map(|row| ((row.table.name, row_name(row)), row)).collect())
    }

    /// The place of the remark's column; `None` if its row has no name there.
    pub fn find(&self, remark: &Remark) -> Option<Origin> {
        Some(self.0.get(&(remark.table, remark.row.clone()))?.position(remark.column))
    }
}

impl RowName {
    /// A row with a number of its own.
    pub fn numbered(column: &'static str, number: impl Into<i64>) -> Self {
        Self(vec![(column, Cell::Integer(number.into()))])
    }

    /// A row with a name of its own.
    pub fn called(column: &'static str, name: &str) -> Self {
        Self(vec![(column, Cell::Text(name.to_owned()))])
    }
}

impl std::fmt::Display for RowName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, (column, cell)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let value = cell.to_sql().map_or_else(|| "NULL".to_owned(), |bytes| String::from_utf8_lossy(&bytes).into_owned());
            write!(f, "{comma}{column}={value}")?;
        }
        Ok(())
    }
}

/// How a row is named: by its table's first key. A user is named without `backend`.
pub fn row_name(row: &Row) -> RowName {
    let columns = match row.table.name {
        "mysql_users" => &["username"],
        _ => row.table.keys.first().copied().unwrap_or_default(),
    };
    RowName(columns.iter().map(|column| (*column, row.cell(column).cloned().unwrap_or(Cell::Null))).collect())
}
