//! Tables that are computed when they are read: `runtime_*`, `stats.*`, `monitor.*`, `information_schema.*`.
//!
//! Each is a virtual table of SQLite over one registry, so joins, views and aliases work, in any letter case. Nothing is copied for a
//! statement that may not need it. A statement sees each table once: rows are computed at first use and kept until it ends.
//!
//! INVARIANT: reading changes nothing, except that a `_reset` twin resets its counters once per statement. A table and its twin in one
//! statement show the same rows.

mod known;
mod runtime;
mod schema;
mod vtab;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use model::config::Table;
use model::control::DataPlane;
use model::stats::{Reading, StatsSchema, StatsSource, StatsTable, Value};
use rusqlite::Connection;

use crate::error::AdminError;
use crate::numbers::Numbers;
use crate::reply::Role;
pub(crate) use runtime::{Checksum, Runtime};
pub(crate) use schema::{Catalog, SCHEMAS};

/// Rows of one table, one value a column.
pub(crate) type Rows = Arc<Vec<Vec<Value>>>;

#[derive(Debug, Clone)]
pub(crate) struct LiveColumn {
    pub name: String,
    pub sql_type: String,
    /// Whether it may be NULL.
    pub is_nullable: bool,
}

#[derive(Debug)]
pub(crate) struct LiveTable {
    /// The schema of the table in SQL.
    pub schema: &'static str,
    pub name: String,
    /// In order.
    pub columns: Vec<LiveColumn>,
    /// Columns of its primary key. Shown, not enforced.
    pub key: Vec<String>,
    content: Content,
}

/// The source of a table's rows.
#[derive(Debug, Clone, Copy)]
enum Content {
    /// The configuration in force.
    Config(&'static Table),
    Variables,
    Checksums,
    /// A source of statistics.
    Stats(&'static StatsTable, Reading),
    /// Schemas, tables and columns.
    Schema(schema::View),
}

impl LiveTable {
    /// The table as SQL describes it.
    pub(crate) fn ddl(&self) -> String {
        let mut lines: Vec<String> = self.columns.iter().map(LiveColumn::line).collect();
        if !self.key.is_empty() {
            lines.push(format!("PRIMARY KEY ({})", self.key.join(", ")));
        }
        format!("CREATE TABLE {} (\n    {}\n)", self.name, lines.join(",\n    "))
    }

    fn reset_source(&self) -> Option<&'static StatsTable> {
        match self.content {
            Content::Stats(table, Reading::Reset) => Some(table),
            _ => None,
        }
    }
}

impl LiveColumn {
    fn line(&self) -> String {
        let null = if self.is_nullable { "" } else { " NOT NULL" };
        format!("{} {}{null}", model::config::ddl::quoted(&self.name), self.sql_type)
    }
}

/// The registry, and the state of the present statement.
pub(crate) struct Live {
    tables: Vec<LiveTable>,
    sources: Vec<Arc<dyn StatsSource>>,
    plane: Arc<dyn DataPlane>,
    /// The configuration in force.
    pub runtime: Mutex<Runtime>,
    statement: Mutex<Statement>,
    catalogs: Mutex<Catalogs>,
    numbers: Arc<Numbers>,
}

/// The tables of each role at the last look, and the role of the present statement.
#[derive(Debug, Default)]
struct Catalogs {
    admin: Catalog,
    reader: Catalog,
    asks: Option<Role>,
}

impl Catalogs {
    fn of(&mut self, who: Role) -> &mut Catalog {
        match who {
            Role::Admin => &mut self.admin,
            Role::Stats => &mut self.reader,
        }
    }
}

/// The tables that a statement named, and the rows of those that it read.
#[derive(Debug, Default)]
struct Statement {
    named: BTreeSet<usize>,
    seen: BTreeMap<usize, Rows>,
}

/// Longest text that a login which may only read statistics is shown, bytes: a few of them have to fit a row of its own.
const READER_TEXT: usize = 32 << 10;

impl Live {
    /// The registry of all tables of `plane` and `sources`, and of the configuration in force.
    pub(crate) fn new(plane: Arc<dyn DataPlane>, mut sources: Vec<Arc<dyn StatsSource>>, runtime: Runtime, version: String) -> Self {
        // The data plane's counters have metrics already.
        let numbers = Arc::new(Numbers::new(sources.clone(), version));
        sources.insert(0, plane.clone());
        let mut tables = runtime::tables();
        tables.extend(stats_tables(&sources));
        tables.extend(schema::tables());
        Self {
            tables,
            sources,
            plane,
            runtime: Mutex::new(runtime),
            statement: Mutex::new(Statement::default()),
            catalogs: Mutex::default(),
            numbers,
        }
    }

    /// Registers the module and makes the tables: all for an administrator; statistics alone, in `main` too, for a reader.
    pub(crate) fn install(self: &Arc<Self>, db: &Connection, is_admin: bool) -> Result<(), AdminError> {
        vtab::register(db, self.clone(), if is_admin { usize::MAX } else { READER_TEXT })?;
        for (index, table) in self.tables.iter().enumerate() {
            let is_stats = table.schema == "stats" || table.schema == "monitor";
            let schemas = match (is_admin, table.schema) {
                (true, schema) => vec![schema],
                (false, "main") => vec![],
                (false, "stats") => vec!["stats", "main"],
                (false, schema) if is_stats || schema.ends_with("_schema") => vec![schema],
                (false, _) => vec![],
            };
            for schema in schemas {
                db.execute_batch(&format!("CREATE VIRTUAL TABLE {schema}.\"{}\" USING live({index})", table.name))?;
            }
        }
        self.describe(if is_admin { Role::Admin } else { Role::Stats }, Some(db))
    }

    /// The statement at hand is `who`'s. It may ask what there is to read: of `db`, if that is given, else as it was before.
    pub(crate) fn describe(&self, who: Role, db: Option<&Connection>) -> Result<(), AdminError> {
        let catalog = db.map(Catalog::of).transpose()?;
        let mut catalogs = self.catalogs.lock().unwrap_or_else(PoisonError::into_inner);
        catalogs.asks = Some(who);
        if let Some(catalog) = catalog {
            *catalogs.of(who) = catalog;
        }
        Ok(())
    }

    /// Every table, in no order that matters.
    pub(crate) fn tables(&self) -> &[LiveTable] {
        &self.tables
    }

    /// A live table by name; letter case does not matter.
    pub(crate) fn find(&self, schema: Option<&str>, name: &str) -> Option<&LiveTable> {
        let is_it = |table: &&LiveTable| {
            table.name.eq_ignore_ascii_case(name) && schema.is_none_or(|schema| schema.eq_ignore_ascii_case(table.schema))
        };
        self.tables.iter().find(is_it)
    }

    /// A new statement begins: it has seen nothing.
    pub(crate) fn begin_statement(&self) {
        *self.statement.lock().unwrap_or_else(PoisonError::into_inner) = Statement::default();
    }

    /// Resets the counters of a table. Returns the number of its rows; `None` if there is no such table.
    pub(crate) fn reset(&self, name: &str) -> Option<usize> {
        let table = self.find(None, name)?;
        match table.content {
            Content::Stats(table, _) => Some(self.stats_rows(table, Reading::Reset).len()),
            _ => None,
        }
    }

    /// The rows of a table of statistics now, outside of any statement.
    pub(crate) fn read_stats(&self, name: &str, reading: Reading) -> Option<Vec<Vec<Value>>> {
        match self.find(Some("stats"), name)?.content {
            Content::Stats(table, _) => Some(self.stats_rows(table, reading)),
            _ => None,
        }
    }

    /// The metrics of all sources.
    pub(crate) fn metrics(&self) -> Vec<model::stats::Metric> {
        self.sources.iter().flat_map(|source| source.metrics()).chain(self.numbers.metrics()).collect()
    }

    /// The engine's own counters.
    pub(crate) fn numbers(&self) -> Arc<Numbers> {
        self.numbers.clone()
    }

    /// Notes how much memory the databases take, bytes, and what version of the servers is in force.
    pub(crate) fn note_memory(&self, bytes: u64) {
        let version = {
            let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
            runtime.checksums.iter().find(|line| line.name == "mysql_servers").map_or(0, |line| line.version)
        };
        self.numbers.note(bytes, u64::try_from(version).unwrap_or_default());
    }

    /// Notes how many files with secrets there are, and how many of them cannot be read.
    pub(crate) fn note_secrets(&self, counts: (usize, usize)) {
        self.numbers.note_secrets(counts);
    }

    /// The statement at hand names this table.
    fn name(&self, index: usize) {
        self.statement.lock().unwrap_or_else(PoisonError::into_inner).named.insert(index);
    }

    /// The rows of a table for the statement at hand.
    fn rows(&self, index: usize) -> Rows {
        let mut statement = self.statement.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rows) = statement.seen.get(&index) {
            return rows.clone();
        }
        let rows = Arc::new(self.compute(index, &statement.named));
        for twin in self.twins(index) {
            statement.seen.insert(twin, rows.clone());
        }
        rows
    }

    fn compute(&self, index: usize, named: &BTreeSet<usize>) -> Vec<Vec<Value>> {
        let runtime = || self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        match self.tables[index].content {
            Content::Config(table) => runtime::rows(table, &runtime().config, &self.plane.placements()),
            Content::Variables => runtime().variables(),
            Content::Checksums => runtime().checksums(),
            Content::Schema(view) => {
                let mut catalogs = self.catalogs.lock().unwrap_or_else(PoisonError::into_inner);
                let who = catalogs.asks.unwrap_or(Role::Stats);
                schema::rows(view, &self.tables, catalogs.of(who))
            }
            Content::Stats(table, _) => {
                let is_reset = self.twins(index).any(|twin| named.contains(&twin) && self.tables[twin].reset_source().is_some());
                self.stats_rows(table, if is_reset { Reading::Reset } else { Reading::Keep })
            }
        }
    }

    /// The table and its `_reset` twin or its original.
    fn twins(&self, index: usize) -> impl Iterator<Item = usize> + '_ {
        let source = |table: &LiveTable| match table.content {
            Content::Stats(source, _) => Some(source.name),
            _ => None,
        };
        let own = source(&self.tables[index]);
        let is_twin = move |other: &LiveTable| own.is_some() && source(other) == own;
        (0..self.tables.len()).filter(move |other| *other == index || is_twin(&self.tables[*other]))
    }

    fn stats_rows(&self, table: &'static StatsTable, reading: Reading) -> Vec<Vec<Value>> {
        let gives = |source: &&Arc<dyn StatsSource>| source.tables().iter().any(|other| other.name == table.name);
        let mut rows: Vec<Vec<Value>> = Vec::new();
        for source in self.sources.iter().filter(gives) {
            let own = source.tables().into_iter().find(|other| other.name == table.name).unwrap_or(table);
            rows.extend(source.rows(own, reading));
        }
        rows.extend(self.numbers.lines(table.name));
        rows
    }
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Live({} tables)", self.tables.len())
    }
}

/// The published tables, then ProxySQL's tables without a source: those are empty.
fn stats_tables(sources: &[Arc<dyn StatsSource>]) -> Vec<LiveTable> {
    let mut tables: Vec<LiveTable> = Vec::new();
    let published = sources.iter().flat_map(|source| source.tables());
    for table in published.chain(known::TABLES.iter()) {
        if tables.iter().any(|other| other.name == table.name) {
            continue;
        }
        tables.push(stats_table(table, Reading::Keep));
        if table.has_reset {
            tables.push(stats_table(table, Reading::Reset));
        }
    }
    tables
}

fn stats_table(table: &'static StatsTable, reading: Reading) -> LiveTable {
    let column = |column: &model::stats::StatsColumn| LiveColumn {
        name: column.name.to_owned(),
        sql_type: column.sql_type.to_owned(),
        is_nullable: column.is_nullable,
    };
    let suffix = if reading == Reading::Reset { "_reset" } else { "" };
    LiveTable {
        schema: if table.schema == StatsSchema::Monitor { "monitor" } else { "stats" },
        name: format!("{}{suffix}", table.name),
        columns: table.columns.iter().map(column).collect(),
        key: table.primary_key.iter().map(|name| (*name).to_owned()).collect(),
        content: Content::Stats(table, reading),
    }
}
