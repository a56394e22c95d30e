//! Tables of statistics: published by the parts that count, read by the parts that serve SQL.
//!
//! A table is one unit: its description stands beside the function that computes its rows, in the part that owns the numbers. Readers (the
//! admin's virtual tables, `/metrics`, `tidegate top`) know only this module.

/// A cell of a table of statistics.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// NULL in SQL.
    Null,
    /// A whole number, signed.
    Integer(i64),
    /// Text.
    Text(String),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<u64> for Value {
    /// Counters stop at SQLite's largest integer.
    fn from(number: u64) -> Self {
        Self::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Integer(i64::from(number))
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Self {
        Self::Integer(i64::from(number))
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// The SQL schema of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StatsSchema {
    /// Counters and states.
    Stats,
    /// Logs of the monitor's checks.
    Monitor,
}

/// One column of a table of statistics.
#[derive(Debug, Clone, Copy)]
pub struct StatsColumn {
    /// As in SQL.
    pub name: &'static str,
    /// Its type as `SHOW CREATE TABLE` says it: `INT`, `VARCHAR`, ...
    pub sql_type: &'static str,
    /// Whether it may be NULL.
    pub is_nullable: bool,
}

/// A column that is never NULL.
pub const fn stat(name: &'static str, sql_type: &'static str) -> StatsColumn {
    StatsColumn { name, sql_type, is_nullable: false }
}

/// The same for a column whose cells may be NULL.
pub const fn stat_null(name: &'static str, sql_type: &'static str) -> StatsColumn {
    StatsColumn { name, sql_type, is_nullable: true }
}

/// The description of a table; its rows come from [`StatsSource`].
#[derive(Debug)]
pub struct StatsTable {
    /// The table's schema in SQL.
    pub schema: StatsSchema,
    /// Unique within its schema.
    pub name: &'static str,
    /// In the order of the cells.
    pub columns: &'static [StatsColumn],
    /// Columns of its primary key; empty for none. Shown, not enforced.
    pub primary_key: &'static [&'static str],
    /// Whether a twin called `<name>_reset` exists. Reading the twin sets the counters to zero. Only for counters that their source can
    /// reset.
    pub has_reset: bool,
    /// One line for people.
    pub help: &'static str,
}

/// The effect of a read on the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// They stay.
    Keep,
    /// They are reset: the `_reset` twin was read, or the table was truncated.
    Reset,
}

/// Publishes tables of statistics and metrics: the data plane, the monitor, parts of the admin.
pub trait StatsSource: Send + Sync {
    /// Its tables. Two sources may give rows for one table; both must describe it alike.
    fn tables(&self) -> Vec<&'static StatsTable>;

    /// The rows of a table now, each with one value for every column. Never fails: what does not answer in time is left
    /// out. May block for a moment; never called from a worker.
    fn rows(&self, table: &'static StatsTable, reading: Reading) -> Vec<Vec<Value>>;

    /// Metrics for Prometheus, besides the tables.
    fn metrics(&self) -> Vec<Metric> {
        Vec::new()
    }
}

/// One family of metrics, as Prometheus' text format has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Its name, written as given: nothing is appended.
    pub name: &'static str,
    /// One line for people.
    pub help: &'static str,
    /// Counter, gauge or histogram.
    pub kind: MetricKind,
    /// One for each set of labels.
    pub samples: Vec<Sample>,
}

/// The kind of a metric, as Prometheus names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Buckets: each sample carries the suffix of its series.
    Histogram,
}

/// One line of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// `_bucket`, `_sum` or `_count` for histograms; else empty.
    pub suffix: &'static str,
    /// Names and values, in order; values are escaped by the writer.
    pub labels: Vec<(&'static str, String)>,
    /// For a counter, the total since the start or the last reset.
    pub value: f64,
}
