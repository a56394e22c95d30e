//! The tables that are there: the configuration's in `main` and `disk`, and those of the statistics' history.

use std::borrow::Cow;

use model::config::{TABLES, ddl};
use rusqlite::Connection;

use crate::error::AdminError;
use crate::history::healing::{COLUMNS as HEALING_COLUMNS, TABLE as HEALING_TABLE};
use crate::history::starts::TABLE as STARTS_TABLE;
use crate::history::{POOL_COLUMNS, series};

/// The table in `disk` that keeps configurations which were in force.
pub(crate) const HISTORY_TABLE: &str = "tidegate_config_history";

/// The table in `disk` that keeps the revision of the shared configuration which was in force last.
pub(crate) const SHARED_TABLE: &str = "tidegate_shared_config";

/// `global_variables`, which has no description in `model`: its rows are the registry's.
pub(crate) const VARIABLES_DDL: &str =
    "CREATE TABLE {} (\n    variable_name VARCHAR NOT NULL PRIMARY KEY,\n    variable_value VARCHAR NOT NULL\n)";

const DIGEST: &str = "hostgroup INT, schemaname VARCHAR NOT NULL, username VARCHAR NOT NULL, client_address VARCHAR NOT NULL, \
     digest VARCHAR NOT NULL, digest_text VARCHAR NOT NULL, count_star INTEGER NOT NULL, first_seen INTEGER NOT NULL, \
     last_seen INTEGER NOT NULL, sum_time INTEGER NOT NULL, min_time INTEGER NOT NULL, max_time INTEGER NOT NULL, \
     sum_rows_affected INTEGER NOT NULL, sum_rows_sent INTEGER NOT NULL";

/// Makes the missing tables of `main` or `disk`.
pub(crate) fn create_config(db: &Connection, schema: &str) -> Result<(), AdminError> {
    for table in TABLES {
        create_missing(db, schema, table.name, &ddl::create_table(table, &format!("{schema}.{}", table.name)))?;
    }
    create_missing(db, schema, "global_variables", &VARIABLES_DDL.replace("{}", &format!("{schema}.global_variables")))
}

/// Makes what only `disk` has.
pub(crate) fn create_disk(db: &Connection) -> Result<(), AdminError> {
    create_config(db, "disk")?;
    create_missing(db, "disk", "global_settings", &VARIABLES_DDL.replace("{}", "disk.global_settings"))?;
    db.execute_batch(&format!(
        "CREATE TABLE IF NOT EXISTS disk.{HISTORY_TABLE} (id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, time INT NOT NULL, \
         user VARCHAR NOT NULL, command VARCHAR NOT NULL, checksum VARCHAR NOT NULL, config BLOB NOT NULL);
         CREATE TABLE IF NOT EXISTS disk.{SHARED_TABLE} (one INTEGER PRIMARY KEY CHECK (one = 1), cluster VARCHAR NOT NULL, \
         number INT NOT NULL, revision_id VARCHAR NOT NULL, sha256 VARCHAR NOT NULL, text_sha256 VARCHAR NOT NULL, descent VARCHAR, config BLOB NOT NULL)"
    ))?;
    // Databases of older versions lack the column; an older version that comes back does not mind it.
    if db.prepare(&format!("SELECT changes FROM disk.{HISTORY_TABLE} LIMIT 0")).is_err() {
        db.execute_batch(&format!("ALTER TABLE disk.{HISTORY_TABLE} ADD COLUMN changes VARCHAR"))?;
    }
    Ok(())
}

/// Makes the missing tables of `stats_history`.
pub(crate) fn create_history(db: &Connection) -> Result<(), AdminError> {
    for table in series::TABLES {
        let columns: Vec<String> = table.columns.iter().map(|column| format!("{} INT NOT NULL", column.name)).collect();
        for twin in ["", "_hour", "_day"] {
            let name = format!("{}{twin}", table.name);
            let body = format!("timestamp INT NOT NULL, {}, PRIMARY KEY (timestamp)", columns.join(", "));
            create_missing(db, "stats_history", &name, &format!("CREATE TABLE stats_history.{name} ({body})"))?;
        }
    }
    let pool = POOL_COLUMNS.iter().map(|(name, sql_type)| format!("{name} {sql_type}")).collect::<Vec<_>>().join(", ");
    let key = "PRIMARY KEY (timestamp, hostgroup, srv_host, srv_port)";
    db.execute_batch(&format!(
        "CREATE TABLE IF NOT EXISTS stats_history.history_stats_mysql_connection_pool (timestamp INT NOT NULL, {pool}, {key});
         CREATE TABLE IF NOT EXISTS stats_history.history_mysql_query_digest (dump_time INT, {DIGEST});
         CREATE TABLE IF NOT EXISTS stats_history.history_mysql_query_events (\
             id INTEGER PRIMARY KEY AUTOINCREMENT, thread_id INTEGER, username TEXT, schemaname TEXT, \
             start_time INTEGER, end_time INTEGER, query_digest TEXT, query TEXT, server TEXT, client TEXT, \
             event_type INTEGER, hid INTEGER, extra_info TEXT, affected_rows INTEGER, last_insert_id INTEGER, \
             rows_sent INTEGER, client_stmt_id INTEGER, gtid TEXT, errno INT, error TEXT);
         CREATE TABLE IF NOT EXISTS stats_history.{HEALING_TABLE} ({HEALING_COLUMNS});
         CREATE TABLE IF NOT EXISTS stats_history.{STARTS_TABLE} (timestamp INT NOT NULL, kind VARCHAR NOT NULL, version VARCHAR NOT NULL);
         CREATE TABLE IF NOT EXISTS stats_history.history_mysql_status_variables (timestamp INT NOT NULL, variable_id INT NOT NULL, \
             variable_value VARCHAR NOT NULL, PRIMARY KEY (timestamp, variable_id));
         CREATE TABLE IF NOT EXISTS stats_history.history_mysql_status_variables_lookup (\
             variable_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, variable_name VARCHAR NOT NULL UNIQUE);"
    ))?;
    Ok(())
}

/// A table's content in one short sentence. Empty for tables that an administrator made.
pub(crate) fn help(schema: &str, name: &str) -> Cow<'static, str> {
    let fixed = match (schema, name) {
        ("main" | "disk", "global_variables") => "Values of the `mysql-*` and `admin-*` settings",
        ("disk", "global_settings") => "The configuration file that was last read, and the uuid of this proxy",
        ("disk", HISTORY_TABLE) => "Earlier configurations, for CONFIG ROLLBACK",
        ("disk", SHARED_TABLE) => "The last revision of the shared configuration that was in force",
        ("main" | "disk", _) => TABLES.iter().find(|table| table.name == name).map_or("", |table| table.help),
        ("stats_history", "history_stats_mysql_connection_pool") => "Samples of stats_mysql_connection_pool",
        ("stats_history", "history_mysql_query_digest") => "Saved rows of stats_mysql_query_digest",
        ("stats_history", "history_mysql_query_events") => "Logged queries that were moved to disk",
        ("stats_history", "history_mysql_status_variables") => "Samples of stats_mysql_global, by number of the variable",
        ("stats_history", HEALING_TABLE) => "Steps of promotions, returns and switchovers, with each statement and its result",
        ("stats_history", STARTS_TABLE) => "Starts and upgrades of this proxy: Unix time in s, start or upgrade, version",
        ("stats_history", "history_mysql_status_variables_lookup") => {
            "Numbers and names of the variables in history_mysql_status_variables"
        }
        ("stats_history", _) => return series_help(name),
        _ => "",
    };
    Cow::Borrowed(fixed)
}

/// A table of samples, or its twin by the hour or day.
fn series_help(name: &str) -> Cow<'static, str> {
    for (twin, each) in [("", ""), ("_hour", ", one row an hour"), ("_day", ", one row a day")] {
        let base = name.strip_suffix(twin);
        if let Some(table) = series::TABLES.iter().find(|table| Some(table.name) == base) {
            return format!("{}{each}", table.help).into();
        }
    }
    Cow::Borrowed("")
}

fn create_missing(db: &Connection, schema: &str, name: &str, ddl: &str) -> Result<(), AdminError> {
    if stored_ddl(db, schema, name)?.is_none() {
        db.execute_batch(ddl)?;
    }
    Ok(())
}

/// The statement that made a table, as SQLite keeps it; `None` when there is no such table.
pub(crate) fn stored_ddl(db: &Connection, schema: &str, name: &str) -> Result<Option<String>, AdminError> {
    let sql = format!("SELECT sql FROM {schema}.sqlite_master WHERE type IN ('table', 'view') AND name = ?1 COLLATE NOCASE");
    let mut found = db.prepare(&sql)?;
    let mut rows = found.query([name])?;
    Ok(rows.next()?.map(|row| row.get(0)).transpose()?)
}
