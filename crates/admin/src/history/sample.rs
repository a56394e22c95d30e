//! One sample of each series, as it is put into its tables.

use std::cell::{Cell, OnceCell};

use model::control::DataPlane;
use model::settings::AdminVariables;
use model::stats::{Reading, Value};
use rusqlite::{Connection, params, params_from_iter, types};

use super::digests::stored;
use super::process::cpu_ticks;
use super::roll::{Keep, prune, roll};
use super::series::{SampleTable, Source, TABLES};
use crate::error::AdminError;
use crate::live::Live;

/// Columns of `history_stats_mysql_connection_pool` behind `timestamp`.
pub(crate) const POOL_COLUMNS: &[(&str, &str)] = &[
    ("hostgroup", "INT"),
    ("srv_host", "VARCHAR"),
    ("srv_port", "INT"),
    ("status", "VARCHAR"),
    ("ConnUsed", "INT"),
    ("ConnFree", "INT"),
    ("ConnOK", "INT"),
    ("ConnERR", "INT"),
    ("MaxConnUsed", "INT"),
    ("Queries", "INT"),
    ("Queries_GTID_sync", "INT"),
    ("Bytes_data_sent", "INT"),
    ("Bytes_data_recv", "INT"),
    ("Latency_us", "INT"),
];

/// Samples of one moment. What several series need is read once.
pub(super) struct Turn<'a> {
    /// The database of the samples.
    pub(super) db: &'a Connection,
    /// The source of the counters.
    pub(super) live: &'a Live,
    /// The source of the logged queries.
    pub(super) plane: &'a dyn DataPlane,
    /// The periods and limits.
    pub(super) settings: &'a AdminVariables,
    /// The moment, in Unix seconds.
    pub(super) now: i64,
    /// Logged queries up to this number were copied.
    pub(super) saved_queries: Cell<u64>,
    global: OnceCell<Vec<(String, String)>>,
}

impl<'a> Turn<'a> {
    pub(super) fn new(db: &'a Connection, live: &'a Live, plane: &'a dyn DataPlane, settings: &'a AdminVariables, now: i64) -> Self {
        Self { db, live, plane, settings, now, saved_queries: Cell::new(0), global: OnceCell::new() }
    }

    /// Samples the table `name`, and makes its hours and days.
    pub(super) fn sample(&self, name: &str) -> Result<(), AdminError> {
        let Some(table) = TABLES.iter().find(|table| table.name == name) else {
            return Ok(());
        };
        if let Some(numbers) = self.numbers(table) {
            put(self.db, table.name, self.now, &numbers)?;
        }
        roll(self.db, table, self.settings, self.now)
    }

    /// The numbers of a table now, in the order of its columns; `None` if no source counts them.
    fn numbers(&self, table: &SampleTable) -> Option<Vec<i64>> {
        let named = |known: &[(String, String)]| {
            let find = |name: &str| known.iter().find(|(other, _)| other == name).and_then(|(_, value)| value.parse().ok());
            table.columns.iter().map(|column| find(column.source).unwrap_or_default()).collect()
        };
        match table.source {
            Source::Global => Some(named(self.global())),
            Source::Cpu => cpu_ticks().map(|ticks| ticks.to_vec()),
            Source::Memory => Some(named(&read(self.live, "stats_memory_metrics"))),
        }
    }

    fn global(&self) -> &[(String, String)] {
        self.global.get_or_init(|| read(self.live, "stats_mysql_global"))
    }

    /// All of `stats_mysql_global`.
    pub(super) fn status_variables(&self) -> Result<(), AdminError> {
        let mut name_it =
            self.db.prepare("INSERT OR IGNORE INTO stats_history.history_mysql_status_variables_lookup (variable_name) VALUES (?1)")?;
        let mut put = self.db.prepare(
            "INSERT OR REPLACE INTO stats_history.history_mysql_status_variables SELECT ?1, variable_id, ?2 \
             FROM stats_history.history_mysql_status_variables_lookup WHERE variable_name = ?3",
        )?;
        for (name, value) in self.global() {
            if put.execute(params![self.now, value, name])? == 0 {
                name_it.execute([name])?;
                put.execute(params![self.now, value, name])?;
            }
        }
        self.prune("history_mysql_status_variables")
    }

    /// One row per server, with the sums over all its pools.
    pub(super) fn connection_pool(&self) -> Result<(), AdminError> {
        const NAME: &str = "stats_mysql_connection_pool";
        let Some(table) = self.live.find(Some("stats"), NAME) else {
            return Ok(());
        };
        let places: Vec<Option<usize>> =
            POOL_COLUMNS.iter().map(|(name, _)| table.columns.iter().position(|column| column.name == *name)).collect();
        let marks = vec!["?"; POOL_COLUMNS.len() + 1].join(",");
        let sql = format!("INSERT OR REPLACE INTO stats_history.history_{NAME} VALUES ({marks})");
        let mut put = self.db.prepare(&sql)?;
        for row in self.live.read_stats(NAME, Reading::Keep).unwrap_or_default() {
            let value = |place: &Option<usize>| place.and_then(|place| row.get(place)).map_or(types::Value::Null, stored);
            let values = std::iter::once(types::Value::Integer(self.now)).chain(places.iter().map(value));
            put.execute(params_from_iter(values.collect::<Vec<_>>()))?;
        }
        self.prune("history_stats_mysql_connection_pool")
    }

    fn prune(&self, table: &str) -> Result<(), AdminError> {
        prune(self.db, table, "timestamp", &Keep::days(self.settings.stats_history_days, self.settings, self.now))
    }
}

pub(super) fn put(db: &Connection, table: &str, now: i64, numbers: &[i64]) -> Result<(), AdminError> {
    let marks = vec!["?"; numbers.len() + 1].join(",");
    let mut put = db.prepare(&format!("INSERT OR REPLACE INTO stats_history.{table} VALUES ({marks})"))?;
    put.execute(params_from_iter(std::iter::once(now).chain(numbers.iter().copied())))?;
    Ok(())
}

/// A table of names and values.
fn read(live: &Live, table: &str) -> Vec<(String, String)> {
    let rows = live.read_stats(table, Reading::Keep).unwrap_or_default();
    let text = |value: Option<&Value>| match value {
        Some(Value::Text(text)) => text.clone(),
        Some(Value::Integer(number)) => number.to_string(),
        Some(Value::Null) | None => String::new(),
    };
    rows.iter().map(|row| (text(row.first()), text(row.get(1)))).collect()
}
