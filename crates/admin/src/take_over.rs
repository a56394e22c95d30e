//! The engine's state for a process that takes over: the configuration in force and the one in memory.
//!
//! The disk is not touched. The new process begins from this state, never from the disk. So a configuration that was loaded and not saved
//! stays in force, and edits in memory continue.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::SecretFiles;
use model::config::text::to_text;
use rusqlite::Connection;
use rusqlite::types::{Value, ValueRef};
use serde::{Deserialize, Serialize};

use crate::error::AdminError;
use crate::live::Checksum;
use crate::sharing::{BehindModules, KeptBehind, KeptSharing, Sharing};
use crate::store::modules::everything;

/// The admin interface's part for a process that takes over.
#[derive(Debug)]
pub struct Successor {
    /// The program that it runs; None for this one's.
    pub program: Option<PathBuf>,
    /// The configuration in force and the one in memory, for [`crate::take_over()`].
    pub layers: Vec<u8>,
    /// The lock of the data directory, which stays locked as long as any process has it.
    pub lock: OwnedFd,
    /// How long it may take to be ready, ms: `admin-upgrade_timeout`.
    pub upgrade_timeout_ms: u64,
    /// Nothing is changed here while this is set.
    pub frozen: Frozen,
}

/// Whether another process is about to take over, or has. Changes from then on would be lost.
#[derive(Clone, Debug, Default)]
pub struct Frozen(Arc<AtomicBool>);

impl Frozen {
    /// Freezes, or thaws again.
    pub fn set(&self, is: bool) {
        self.0.store(is, Ordering::Release);
    }

    /// Whether it is so.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Freezes until the guard is dropped. A guard that is kept leaves it frozen.
    pub(crate) fn freeze(&self) -> Freeze {
        self.set(true);
        Freeze(Some(self.clone()))
    }

    /// The same as a plain flag.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

/// See [`Frozen::freeze`].
#[derive(Debug)]
#[must_use = "dropped, it thaws"]
pub(crate) struct Freeze(Option<Frozen>);

impl Freeze {
    /// The other process has taken over.
    pub(crate) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Freeze {
    fn drop(&mut self) {
        if let Some(frozen) = &self.0 {
            frozen.set(false);
        }
    }
}

/// The configuration of a process, as it hands it over.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TakenOver {
    /// The configuration in force, as [`to_text`] writes it.
    pub(crate) runtime: String,
    memory: BTreeMap<String, Table>,
    /// How often each module was loaded, and when last.
    pub(crate) loads: Vec<(String, i64, i64)>,
    /// `PROXYSQL READONLY` and `READWRITE`.
    pub(crate) read_only: Option<bool>,
    /// Modules of `main` that are behind the shared configuration. An older version does not know it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) behind: Vec<KeptBehind>,
    /// The content of files with secrets. An older version does not know it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) secrets: Vec<(PathBuf, Vec<u8>)>,
    /// Its part in a shared configuration. An older version does not know it.
    #[serde(default, skip_serializing_if = "KeptSharing::is_empty")]
    pub(crate) sharing: KeptSharing,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Cell {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Blob(Vec<u8>),
}

impl TakenOver {
    /// Collects the configuration in force and the tables of `main` in this database.
    pub(crate) fn of(
        runtime: &model::Config,
        checksums: &[Checksum],
        db: &Connection,
        read_only: Option<bool>,
        (behind, sharing): (&BehindModules, Option<&Sharing>),
        secrets: &SecretFiles,
    ) -> Result<Self, AdminError> {
        let memory = tables().map(|name| Ok((name.to_owned(), dump(db, name)?))).collect::<Result<_, AdminError>>()?;
        let loads = checksums.iter().map(|line| (line.name.to_owned(), line.version, line.epoch)).collect();
        let sharing = sharing.map(Sharing::keep).unwrap_or_default();
        Ok(Self { runtime: to_text(runtime), memory, loads, read_only, behind: behind.keep(), secrets: secrets.keep(), sharing })
    }

    /// Fills `main` of this database. The caller holds a transaction.
    pub(crate) fn fill(&self, db: &Connection) -> Result<(), AdminError> {
        for (name, table) in &self.memory {
            if !tables().any(|known| known == name) {
                return Err(AdminError::Refused(format!("the previous process has a table {name}, which this version does not know")));
            }
            db.execute(&format!("DELETE FROM main.{name}"), [])?;
            let places = vec!["?"; table.columns.len()].join(", ");
            let sql = format!("INSERT INTO main.{name} ({}) VALUES ({places})", table.columns.join(", "));
            let mut put = db.prepare(&sql)?;
            for row in &table.rows {
                put.execute(rusqlite::params_from_iter(row.iter().map(Cell::value)))?;
            }
        }
        Ok(())
    }
}

/// Every table of the configuration.
fn tables() -> impl Iterator<Item = &'static str> {
    everything().into_iter().flat_map(|part| part.tables.iter().copied()).chain(["global_variables"])
}

fn dump(db: &Connection, name: &str) -> Result<Table, AdminError> {
    let mut found = db.prepare(&format!("SELECT * FROM main.{name} ORDER BY rowid"))?;
    let columns: Vec<String> = found.column_names().map(str::to_owned).collect();
    let rows = found.query_map([], |row| (0..columns.len()).map(|at| row.get_ref(at).map(Cell::of)).collect())?;
    let rows = rows.collect::<Result<_, _>>()?;
    Ok(Table { columns, rows })
}

impl Cell {
    fn of(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(number) => Self::Integer(number),
            ValueRef::Real(number) => Self::Real(number),
            // Text that is not UTF-8 stays as bytes.
            ValueRef::Text(text) => match std::str::from_utf8(text) {
                Ok(text) => Self::Text(text.to_owned()),
                Err(_) => Self::Blob(text.to_vec()),
            },
            ValueRef::Blob(bytes) => Self::Blob(bytes.to_vec()),
        }
    }

    fn value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Integer(number) => Value::Integer(*number),
            Self::Real(number) => Value::Real(*number),
            Self::Text(text) => Value::Text(text.clone()),
            Self::Blob(bytes) => Value::Blob(bytes.clone()),
        }
    }
}
