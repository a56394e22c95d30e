//! The configuration as operators write it: settings and rows of tables, checked but not yet compiled.
//!
//! `tables` describes each table once; `row` reads and checks rows by that description; `load` walks a file.
//! Compiling to what workers read is [`Snapshot::compile`](crate::Snapshot::compile).
//!
//! Paths: an `@include` is relative to the including file. Every other path is kept as written: `datadir` and TLS
//! files are then relative to the working directory, log files to `datadir`.

pub mod ddl;
pub mod diff;
mod futile;
pub mod inert;
mod load;
pub mod merge;
mod mirror;
pub mod references;
pub mod remarks;
mod row;
pub mod shared;
mod tables;
pub mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

pub use load::{faults, foreign_module, load, load_regular, load_strictly, parse, parse_with};
pub use row::{Cell, Field, Row, check_keys};
pub(crate) use tables::digest_of;
pub use tables::{Check, Column, ColumnDefault, ColumnKind, IGNORABLE, TABLES, Table, TableEffect};

use crate::error::Origin;
use crate::settings::{AdminVariables, GlobalSettings, MysqlVariables};

/// The content of a configuration file, with defaults for everything that it leaves out.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Settings outside of every group: `datadir`, `errorlog`, ...
    pub globals: GlobalSettings,
    /// The file's group `mysql_variables`, or the `mysql-*` rows of `global_variables`.
    pub mysql: MysqlVariables,
    /// The file's group `admin_variables`, or the `admin-*` rows of `global_variables`.
    pub admin: AdminVariables,
    /// Full names of the variables that a file gave, as `mysql-threads`.
    pub given: BTreeSet<String>,
    /// Rows by table name, in the order of the file. Tables that were not given are absent.
    pub tables: BTreeMap<&'static str, Vec<Row>>,
}

/// The tables that an operator fills. `mysql_collations` is none: its rows are the build's.
pub fn operator_tables() -> impl Iterator<Item = &'static Table> {
    TABLES.iter().filter(|table| table.name != "mysql_collations")
}

impl Config {
    /// In the order of the file; empty if the table was not given. `table` is a name in [`TABLES`].
    pub fn rows(&self, table: &str) -> &[Row] {
        self.tables.get(table).map_or(&[], Vec::as_slice)
    }

    /// Whether a file named no variable and no table: so looks one that a full disk or an editor has emptied.
    pub fn is_blank(&self) -> bool {
        self.given.is_empty() && self.tables.is_empty()
    }
}

/// Something an operator should know about a configuration that was accepted. One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The place of the value.
    pub at: Origin,
    /// `group.setting`, `table` or `table.column`.
    pub subject: String,
    /// One sentence without the place.
    pub text: String,
    /// It is about a fault with which ProxySQL starts. The setting `strict` refuses it.
    pub is_fault: bool,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.at, self.subject, self.text)
    }
}
