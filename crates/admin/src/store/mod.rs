//! The databases: their content, and how they are opened.
//!
//! One connection serves administrators: `main` in memory, `disk` (`proxysql.db`), `stats`, `monitor` and `information_schema` in memory,
//! `stats_history` (`proxysql_stats.db`). Another one serves logins that may only read statistics. It has neither `disk` nor the
//! configuration in its `main`, so it reaches no password.
//!
//! INVARIANT: `disk` changes in transactions with a rollback journal and `synchronous=EXTRA`. A crash at any moment leaves the old or the
//! new configuration, whole, in one file.

pub(crate) mod checksum;
mod functions;
mod guard;
pub(crate) mod import;
pub(crate) mod layout;
pub(crate) mod modules;
mod passwords;
pub(crate) mod past;
pub(crate) mod rows;
pub(crate) mod standing;

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use model::config::operator_tables;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, OpenFlags};

pub(crate) use functions::Facts;
pub(crate) use guard::{Guard, Level};

use crate::error::AdminError;
use crate::reply::Role;

/// The configuration's file, in the data directory.
pub const DISK_FILE: &str = "proxysql.db";
/// The file of the statistics' history.
pub(crate) const HISTORY_FILE: &str = "proxysql_stats.db";

/// Locked by the process that uses the data directory.
const LOCK_FILE: &str = "tidegate.lock";

/// How long a start waits for a process that ends, and a statement for another process that writes to a file of ours.
const BUSY: Duration = Duration::from_secs(5);
/// Largest value, and largest statement, in bytes.
const MAX_LENGTH: i32 = 64 << 20;
/// The same for a login that may only read statistics.
const READER_LENGTH: i32 = 256 << 10;
/// Longest pattern of its LIKE and GLOB, bytes.
const READER_PATTERN: i32 = 1_000;
/// Memory that SQLite may take in the whole process, bytes.
const HEAP_MAX: u64 = 512 << 20;

/// Both connections.
#[derive(Debug)]
pub(crate) struct Store {
    /// Of administrators' sessions and the engine itself.
    pub admin: Connection,
    /// Of logins that may only read statistics.
    pub stats: Connection,
    /// The rights of the present statement.
    pub guard: Arc<Guard>,
    /// The values of functions like `USER()`.
    pub facts: Arc<Facts>,
    /// Notices about the opening, for the operator, one line each.
    pub notices: Vec<String>,
    datadir: PathBuf,
    lock: File,
}

impl Store {
    /// Opens the files in `datadir` or makes them; `lock` is [`lock`]'s. Tables are not there yet: see [`layout`] and [`import`].
    pub(crate) fn open(datadir: &Path, lock: File) -> Result<Self, AdminError> {
        let (guard, facts) = (Arc::new(Guard::default()), Arc::new(Facts::default()));
        let admin = connection(&guard, &facts, Role::Admin)?;
        let stats = connection(&guard, &facts, Role::Stats)?;
        limit_reader(&stats)?;
        attach_disk(&admin, datadir)?;
        let notices = damaged_history_aside(&datadir.join(HISTORY_FILE))?.into_iter().collect();
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
        Ok(Self { admin, stats, guard, facts, notices, datadir: datadir.to_owned(), lock })
    }

    /// Bytes of the databases that are in memory, both connections' together.
    pub(crate) fn memory_bytes(&self) -> Result<u64, AdminError> {
        let mut sum = 0;
        for db in [&self.admin, &self.stats] {
            for schema in ["main", "stats", "monitor", "information_schema", "performance_schema"] {
                let sql = format!("SELECT page_count * page_size FROM pragma_page_count('{schema}'), pragma_page_size('{schema}')");
                sum += db.prepare(&sql)?.query_row([], |row| row.get::<_, i64>(0))?;
            }
        }
        Ok(u64::try_from(sum).unwrap_or_default())
    }

    /// A copy of the data directory's lock, for a process that takes over.
    pub(crate) fn lock(&self) -> std::io::Result<OwnedFd> {
        self.lock.try_clone().map(OwnedFd::from)
    }

    /// Closes `disk` and opens it again: its file may have been replaced.
    pub(crate) fn reopen_disk(&self) -> Result<(), AdminError> {
        self.admin.execute_batch("DETACH DATABASE disk")?;
        attach_disk(&self.admin, &self.datadir)
    }
}

/// The configuration's database with the files that SQLite has beside it.
pub fn database_files(datadir: &Path) -> Vec<PathBuf> {
    with_sqlites_own(datadir, DISK_FILE)
}

/// The databases that the data directory lacks, with the files that SQLite creates beside them. A journal beside an existing database
/// belongs to it, whichever process wrote it: SQLite may need it for recovery.
pub fn missing_files(datadir: &Path) -> Vec<PathBuf> {
    let missing = [DISK_FILE, HISTORY_FILE].into_iter().filter(|name| !datadir.join(name).exists());
    missing.flat_map(|name| with_sqlites_own(datadir, name)).collect()
}

/// The file whose lock [`lock`] takes. [`sign`] writes the process's id into it.
pub fn lock_file(datadir: &Path) -> PathBuf {
    datadir.join(LOCK_FILE)
}

fn with_sqlites_own(datadir: &Path, name: &str) -> Vec<PathBuf> {
    ["", "-wal", "-shm", "-journal"].map(|suffix| datadir.join(format!("{name}{suffix}"))).into()
}

/// Makes sure that no other process uses `datadir`, for as long as the descriptor is open. A process that is ending is waited for.
///
/// # Errors
/// Another process uses it, or the system's words.
pub fn lock(datadir: &Path) -> Result<OwnedFd, AdminError> {
    let path = lock_file(datadir);
    let failed = |error: std::io::Error| AdminError::file(&path, error);
    let open = || OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path).map_err(failed);
    let mut file = open()?;
    let until = Instant::now() + BUSY;
    loop {
        match file.try_lock() {
            Ok(()) if is_at(&file, &path) => return Ok(file.into()),
            // The process that had it has removed the file: a third one would lock another file of this name.
            Ok(()) => file = open()?,
            Err(TryLockError::WouldBlock) if Instant::now() < until => thread::sleep(Duration::from_millis(50)),
            Err(TryLockError::WouldBlock) => return Err(AdminError::file(&path, "another process uses this data directory")),
            Err(TryLockError::Error(e)) => return Err(failed(e)),
        }
    }
}

/// Whether `path` still names this file.
fn is_at(file: &File, path: &Path) -> bool {
    let id = |found: std::fs::Metadata| (found.dev(), found.ino());
    matches!((file.metadata().map(id), std::fs::metadata(path).map(id)), (Ok(ours), Ok(there)) if ours == there)
}

/// Writes this process's id into the lock's file, for programs that look for the user of the directory.
///
/// # Errors
/// The system's words.
pub fn sign(datadir: &Path) -> std::io::Result<()> {
    std::fs::write(datadir.join(LOCK_FILE), format!("{}\n", std::process::id()))
}

/// The process that uses a data directory.
///
/// # Errors
/// None does, or the system's words.
pub fn user_of(datadir: &Path) -> Result<u32, AdminError> {
    let path = datadir.join(LOCK_FILE);
    let text = std::fs::read_to_string(&path).map_err(|error| AdminError::file(&path, error))?;
    text.trim().parse().map_err(|_| AdminError::file(&path, "the file holds no process id"))
}

/// Whether no configuration is in this file: it is missing, or a first start was cut off before it had filled it.
pub(crate) fn is_blank(path: &Path) -> rusqlite::Result<bool> {
    if !path.exists() {
        return Ok(true);
    }
    // It may have to be rolled back to be read.
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    db.busy_timeout(BUSY)?;
    is_without_rows(&db)
}

/// Whether a database holds nothing, for a file that may be in use and is not to be changed.
pub fn looks_blank(path: &Path) -> rusqlite::Result<bool> {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    is_without_rows(&db)
}

/// A database as `disk` of a connection of its own, to read.
pub(crate) fn look_at(path: &Path) -> Result<Connection, AdminError> {
    let db = Connection::open_in_memory()?;
    db.busy_timeout(BUSY)?;
    attach(&db, "disk", &path_text(path))?;
    Ok(db)
}

/// Whether this process may write to the files that a start opens.
pub(crate) fn could_open(datadir: &Path) -> Result<(), AdminError> {
    let lock = datadir.join(LOCK_FILE);
    OpenOptions::new().create(true).append(true).mode(0o600).open(&lock).map_err(|error| AdminError::file(&lock, error))?;
    // Only SQLite may open its files: any other open and close ends this process's locks on them.
    let is_read_only = |path: &Path| Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?.is_readonly("main");
    for path in [DISK_FILE, HISTORY_FILE].map(|name| datadir.join(name)).iter().filter(|path| path.exists()) {
        match is_read_only(path) {
            Ok(false) => {}
            Ok(true) => return Err(AdminError::file(path, "no permission to write")),
            Err(error) => return Err(AdminError::file(path, AdminError::from(error))),
        }
    }
    Ok(())
}

fn is_without_rows(db: &Connection) -> rusqlite::Result<bool> {
    for name in operator_tables().map(|table| table.name).chain(["global_variables"]) {
        let is_there = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1 COLLATE NOCASE)";
        let is_there: bool = db.query_row(is_there, [name], |row| row.get(0))?;
        if is_there && db.query_row(&format!("SELECT EXISTS (SELECT 1 FROM {name})"), [], |row| row.get(0))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Renames a history that SQLite calls damaged, so that a new one is begun: it has numbers only, no reason not to start.
fn damaged_history_aside(path: &Path) -> Result<Option<String>, AdminError> {
    let why = match path.exists().then(|| read_through(path)) {
        Some(Err(error))
            if error.sqlite_error_code().is_some_and(|code| matches!(code, ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt)) =>
        {
            AdminError::from(error)
        }
        // Any other reason is named when it is opened.
        _ => return Ok(None),
    };
    let with = |path: &Path, suffix: &str| {
        let mut path = path.as_os_str().to_owned();
        path.push(suffix);
        PathBuf::from(path)
    };
    let aside = (1..).map(|n| with(path, &format!(".damaged{n}"))).find(|aside| !aside.exists()).unwrap_or_default();
    for suffix in ["-wal", "-shm", ""] {
        let from = with(path, suffix);
        if from.exists() {
            std::fs::rename(&from, with(&aside, suffix)).map_err(|error| AdminError::file(&from, error))?;
        }
    }
    Ok(Some(format!("{}: {why}; the file is kept as {}, and the history of statistics starts again", path.display(), aside.display())))
}

/// Reads the schema, and the first page of each table.
fn read_through(path: &Path) -> rusqlite::Result<()> {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    db.busy_timeout(BUSY)?;
    db.execute_batch("PRAGMA journal_mode=WAL")?;
    let mut found = db.prepare("SELECT name FROM sqlite_master WHERE type = 'table'")?;
    for name in found.query_map([], |row| row.get::<_, String>(0))? {
        db.query_row(&format!("SELECT EXISTS (SELECT 1 FROM \"{}\")", name?), [], |row| row.get::<_, bool>(0))?;
    }
    Ok(())
}

/// The file holds passwords and literals of statements: it is its owner's alone. SQLite gives its journals the same rights.
fn make_private(path: &Path) -> Result<(), AdminError> {
    let failed = |error: std::io::Error| AdminError::file(path, error);
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.permissions().mode() & 0o077 != 0 {
        // A file of another program may be used as it is.
        let _ = file.set_permissions(Permissions::from_mode(0o600));
    }
    Ok(())
}

fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn connection(guard: &Arc<Guard>, facts: &Arc<Facts>, who: Role) -> Result<Connection, AdminError> {
    let mut db = Connection::open_in_memory()?;
    db.busy_timeout(BUSY)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, false)?;
    db.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_LENGTH)?;
    db.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, MAX_LENGTH)?;
    functions::register(&db, facts, who)?;
    passwords::register(&db)?;
    guard::install(&mut db, guard)?;
    // Sorts and joins use no temporary file, and SQLite's memory is limited.
    db.execute_batch(&format!("PRAGMA temp_store=MEMORY; PRAGMA hard_heap_limit={HEAP_MAX};"))?;
    Ok(db)
}

/// A statistics' login cannot be stopped within one call of a function. So values are limited, to keep each call short.
fn limit_reader(db: &Connection) -> Result<(), AdminError> {
    db.set_limit(Limit::SQLITE_LIMIT_LENGTH, READER_LENGTH)?;
    db.set_limit(Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, READER_PATTERN)?;
    Ok(())
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
