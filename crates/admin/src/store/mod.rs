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

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

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

/// Locked by the process that uses the data directory.
const LOCK_FILE: &str = "tidegate.lock";

/// How long a start waits for a process that ends, and a statement for another process that writes to a file of ours.
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
    _lock: File,
}

impl Store {
    /// Opens the files in `datadir` or makes them; `lock` is [`lock`]'s. Tables are not there yet: see [`layout`] and [`import`].
    pub fn open(datadir: &Path, lock: File) -> Result<Self, AdminError> {
        let (guard, facts) = (Arc::new(Guard::default()), Arc::new(Facts::default()));
        let admin = connection(&guard, &facts)?;
        let stats = connection(&guard, &facts)?;
        attach_disk(&admin, datadir)?;
        make_private(&datadir.join(HISTORY_FILE))?;
        for db in [&admin, &stats] {
            for schema in ["stats", "monitor", "information_schema", "performance_schema"] {
                attach(db, schema, ":memory:")?;
            }
            let history = datadir.join(HISTORY_FILE);
            let named = |error: AdminError| AdminError::file(&history, error);
            attach(db, "stats_history", &path_text(&history)).map_err(named)?;
            let pragmas = "PRAGMA stats_history.journal_mode=WAL; PRAGMA stats_history.synchronous=NORMAL;";
            db.execute_batch(pragmas).map_err(|error| named(error.into()))?;
        }
        Ok(Self { admin, stats, guard, facts, datadir: datadir.to_owned(), _lock: lock })
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
        attach_disk(&self.admin, &self.datadir)
    }
}

/// Makes sure that no other process uses `datadir`, for as long as the file is open. One that is ending is waited for.
pub fn lock(datadir: &Path) -> Result<File, AdminError> {
    let path = datadir.join(LOCK_FILE);
    let failed = |error: std::io::Error| AdminError::file(&path, error);
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path).map_err(failed)?;
    let until = Instant::now() + BUSY;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < until => thread::sleep(Duration::from_millis(50)),
            Err(TryLockError::WouldBlock) => return Err(AdminError::file(&path, "another process uses this data directory")),
            Err(TryLockError::Error(e)) => return Err(failed(e)),
        }
    }
}

/// The file holds passwords and literals of statements: it is its owner's alone. SQLite gives its journals the same rights.
fn make_private(path: &Path) -> Result<(), AdminError> {
    let failed = |error: std::io::Error| AdminError::file(path, error);
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.permissions().mode() & 0o077 != 0 {
        // Somebody else's file may be used as it is.
        let _ = file.set_permissions(Permissions::from_mode(0o600));
    }
    Ok(())
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

/// See the invariant at the top.
fn attach_disk(db: &Connection, datadir: &Path) -> Result<(), AdminError> {
    let file = datadir.join(DISK_FILE);
    make_private(&file)?;
    let named = |error: AdminError| AdminError::file(&file, error);
    attach(db, "disk", &path_text(&file)).map_err(named)?;
    db.execute_batch("PRAGMA disk.journal_mode=DELETE; PRAGMA disk.synchronous=EXTRA;").map_err(|error| named(error.into()))
}

fn attach(db: &Connection, schema: &str, file: &str) -> Result<(), AdminError> {
    db.execute(&format!("ATTACH DATABASE ?1 AS {schema}"), [file])?;
    Ok(())
}
