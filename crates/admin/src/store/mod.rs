//! The databases: what is where, and how it is opened.
//!
//! One connection serves administrators: `main` in memory, `disk` (`proxysql.db`), `stats`, `monitor` and
//! `information_schema` in memory, `stats_history` (`proxysql_stats.db`). Another serves those who may only read
//! statistics: it has neither `disk` nor the configuration in its `main`, so no password is within its reach.
//!
//! INVARIANT: `disk` changes in transactions with a rollback journal and `synchronous=EXTRA`: a crash at any moment leaves
//! the old or the new configuration, whole, in one file.

mod functions;
mod guard;
pub mod import;
pub mod layout;
pub mod rows;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;

pub use functions::Facts;
pub use guard::{Guard, Level};

use crate::error::AdminError;

/// The configuration's file, in the data directory.
pub const DISK_FILE: &str = "proxysql.db";
/// The file of the statistics' history.
pub const HISTORY_FILE: &str = "proxysql_stats.db";

/// How long a statement waits for another process that writes to a file of ours.
const BUSY: Duration = Duration::from_secs(5);
/// Largest value, and largest statement, in bytes.
const MAX_LENGTH: i32 = 64 << 20;

/// Both connections.
#[derive(Debug)]
pub struct Store {
    /// For administrators.
    pub admin: Connection,
    /// For those who may only read statistics.
    pub stats: Connection,
    /// What statements may do now.
    pub guard: Arc<Guard>,
    /// What functions like `USER()` answer.
    pub facts: Arc<Facts>,
    datadir: PathBuf,
}

impl Store {
    /// Opens the files in `datadir` or makes them. Tables are not there yet: see [`layout`] and [`import`].
    pub fn open(datadir: &Path) -> Result<Self, AdminError> {
        let (guard, facts) = (Arc::new(Guard::default()), Arc::new(Facts::default()));
        let admin = connection(&guard, &facts)?;
        let stats = connection(&guard, &facts)?;
        attach(&admin, "disk", &path_text(&datadir.join(DISK_FILE)))?;
        admin.execute_batch("PRAGMA disk.journal_mode=DELETE; PRAGMA disk.synchronous=EXTRA;")?;
        for db in [&admin, &stats] {
            for schema in ["stats", "monitor", "information_schema", "performance_schema"] {
                attach(db, schema, ":memory:")?;
            }
            attach(db, "stats_history", &path_text(&datadir.join(HISTORY_FILE)))?;
            db.execute_batch("PRAGMA stats_history.journal_mode=WAL; PRAGMA stats_history.synchronous=NORMAL;")?;
        }
        Ok(Self { admin, stats, guard, facts, datadir: datadir.to_owned() })
    }

    /// Bytes of the databases that are in memory, both connections' together.
    pub fn memory_bytes(&self) -> Result<u64, AdminError> {
        let mut sum = 0;
        for db in [&self.admin, &self.stats] {
            for schema in ["main", "stats", "monitor", "information_schema", "performance_schema"] {
                let sql = format!("SELECT page_count * page_size FROM pragma_page_count('{schema}'), pragma_page_size('{schema}')");
                sum += db.prepare(&sql)?.query_row([], |row| row.get::<_, i64>(0))?;
            }
        }
        Ok(u64::try_from(sum).unwrap_or_default())
    }

    /// Closes `disk` and opens it anew: its file may have been replaced.
    pub fn reopen_disk(&self) -> Result<(), AdminError> {
        self.admin.execute_batch("DETACH DATABASE disk")?;
        attach(&self.admin, "disk", &path_text(&self.datadir.join(DISK_FILE)))?;
        self.admin.execute_batch("PRAGMA disk.journal_mode=DELETE; PRAGMA disk.synchronous=EXTRA;")?;
        Ok(())
    }
}

fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn connection(guard: &Arc<Guard>, facts: &Arc<Facts>) -> Result<Connection, AdminError> {
    let mut db = Connection::open_in_memory()?;
    db.busy_timeout(BUSY)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, false)?;
    db.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_LENGTH)?;
    db.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, MAX_LENGTH)?;
    functions::register(&db, facts)?;
    guard::install(&mut db, guard)?;
    Ok(db)
}

fn attach(db: &Connection, schema: &str, file: &str) -> Result<(), AdminError> {
    db.execute(&format!("ATTACH DATABASE ?1 AS {schema}"), [file])?;
    Ok(())
}
