//! The only module of virtual tables. It does not know the meaning of rows.
//!
//! `best_index` takes equality with one column, so that a join does not read all rows for each row of the other side. The cursor builds a
//! map of that column at first use.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use model::stats::Value;
use rusqlite::types::{Null, ValueRef};
use rusqlite::vtab::{
    Context, CreateVTab, Filters, IndexConstraintOp, IndexInfo, Module, VTab, VTabConfig, VTabConnection, VTabCursor, VTabKind,
    sqlite3_vtab, sqlite3_vtab_cursor,
};
use rusqlite::{Connection, Error, Result};

use super::{Live, Rows};
use crate::error::AdminError;

/// Below this many rows a map costs more than it saves.
const WORTH_A_MAP: usize = 32;

/// Makes the tables known; texts are shown up to `longest` bytes.
pub(super) fn register(db: &Connection, live: Arc<Live>, longest: usize) -> std::result::Result<(), AdminError> {
    const MODULE: &Module<'_, LiveVtab> = &Module::read_only_module();
    db.create_module(c"live", MODULE, Some((live, longest)))?;
    Ok(())
}

#[repr(C)]
struct LiveVtab {
    base: sqlite3_vtab,
    live: Arc<Live>,
    index: usize,
    longest: usize,
}

// SAFETY: `rusqlite` asks that the struct be `repr(C)` and begin with `sqlite3_vtab`, which it does.
#[allow(unsafe_code)]
unsafe impl<'vtab> VTab<'vtab> for LiveVtab {
    type Aux = (Arc<Live>, usize);
    type Cursor = LiveCursor<'vtab>;

    fn connect(
        db: &mut VTabConnection,
        aux: Option<&Self::Aux>,
        _module: &[u8],
        _database: &[u8],
        _table: &[u8],
        args: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Self)> {
        db.config(VTabConfig::Innocuous)?;
        let (live, longest) = aux.cloned().ok_or_else(|| failure("no registry"))?;
        let number = args.first().and_then(|arg| std::str::from_utf8(arg).ok()).and_then(|arg| arg.trim().parse().ok());
        let index: usize = number.ok_or_else(|| failure("no table"))?;
        let table = live.tables().get(index).ok_or_else(|| failure("no such table"))?;
        let columns: Vec<String> = table.columns.iter().map(|column| format!("\"{}\" {}", column.name, column.sql_type)).collect();
        let ddl = CString::new(format!("CREATE TABLE x({})", columns.join(", "))).map_err(|_| failure("a name with a NUL"))?;
        Ok((Cow::Owned(ddl), Self { base: sqlite3_vtab::default(), live, index, longest }))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        self.live.name(self.index);
        let by = info.constraints().enumerate().find_map(|(at, constraint)| {
            let is_equal = constraint.operator() == IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ;
            let is_exact = || info.collation(at).is_ok_and(|collation| collation == "BINARY");
            (is_equal && constraint.is_usable() && constraint.column() >= 0 && is_exact()).then(|| (at, constraint.column()))
        });
        match by {
            Some((at, column)) => {
                info.constraint_usage(at).set_argv_index(1);
                info.set_idx_num(column + 1);
                info.set_estimated_cost(10.0);
                info.set_estimated_rows(5);
            }
            None => {
                info.set_idx_num(0);
                info.set_estimated_cost(10_000.0);
                info.set_estimated_rows(10_000);
            }
        }
        Ok(true)
    }

    fn open(&'vtab mut self) -> Result<LiveCursor<'vtab>> {
        let cursor = LiveCursor {
            base: sqlite3_vtab_cursor::default(),
            live: self.live.clone(),
            index: self.index,
            longest: self.longest,
            rows: Rows::default(),
            chosen: Chosen::All,
            at: 0,
            maps: HashMap::new(),
            vtab: PhantomData,
        };
        Ok(cursor)
    }
}

impl CreateVTab<'_> for LiveVtab {
    const KIND: VTabKind = VTabKind::Default;
}

/// Values that SQLite calls equal have equal keys. Different values may share a key, because SQLite compares again.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Null,
    Number(i64),
    Text(Vec<u8>),
}

type Map = HashMap<Key, Arc<[usize]>>;

enum Chosen {
    All,
    These(Arc<[usize]>),
}

#[repr(C)]
struct LiveCursor<'vtab> {
    base: sqlite3_vtab_cursor,
    live: Arc<Live>,
    index: usize,
    longest: usize,
    rows: Rows,
    chosen: Chosen,
    at: usize,
    maps: HashMap<c_int, Map>,
    vtab: PhantomData<&'vtab LiveVtab>,
}

impl LiveCursor<'_> {
    /// The place of the row that the cursor is at.
    fn place(&self) -> Option<usize> {
        match &self.chosen {
            Chosen::All => (self.at < self.rows.len()).then_some(self.at),
            Chosen::These(places) => places.get(self.at).copied(),
        }
    }

    /// Rows whose column may equal `value`.
    fn choose(&mut self, column: c_int, value: ValueRef<'_>) -> Chosen {
        let Some(key) = key_of_ref(value) else {
            return Chosen::All;
        };
        let Ok(index) = usize::try_from(column) else {
            return Chosen::All;
        };
        let rows = &self.rows;
        let map = self.maps.entry(column).or_insert_with(|| {
            let mut map: HashMap<Key, Vec<usize>> = HashMap::new();
            for (place, row) in rows.iter().enumerate() {
                map.entry(key_of(row.get(index))).or_default().push(place);
            }
            map.into_iter().map(|(key, places)| (key, places.into())).collect()
        });
        map.get(&key).map_or_else(|| Chosen::These(Arc::new([])), |places| Chosen::These(places.clone()))
    }
}

// SAFETY: `rusqlite` asks that the struct be `repr(C)` and begin with `sqlite3_vtab_cursor`, which it does.
#[allow(unsafe_code)]
unsafe impl VTabCursor for LiveCursor<'_> {
    fn filter(&mut self, idx_num: c_int, _idx_str: Option<&str>, args: &Filters<'_>) -> Result<()> {
        // SQLite is C: a panic may not pass through it.
        let rows = catch_unwind(AssertUnwindSafe(|| self.live.rows(self.index)));
        let rows = rows.map_err(|_| failure("cannot compute the table's rows"))?;
        if !Arc::ptr_eq(&rows, &self.rows) {
            self.maps.clear();
            self.rows = rows;
        }
        self.at = 0;
        self.chosen = match args.iter().next() {
            Some(value) if idx_num > 0 && self.rows.len() >= WORTH_A_MAP => self.choose(idx_num - 1, value),
            _ => Chosen::All,
        };
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.at += 1;
        Ok(())
    }

    fn eof(&self) -> bool {
        self.place().is_none()
    }

    fn column(&self, context: &mut Context, column: c_int) -> Result<()> {
        let column = usize::try_from(column).unwrap_or(usize::MAX);
        match self.place().and_then(|place| self.rows.get(place)).and_then(|row| row.get(column)) {
            Some(Value::Integer(number)) => context.set_result(number),
            Some(Value::Text(text)) => context.set_result(beginning(text, self.longest)),
            Some(Value::Null) | None => context.set_result(Null),
        }
    }

    fn rowid(&self) -> Result<i64> {
        Ok(self.place().and_then(|place| i64::try_from(place).ok()).unwrap_or_default())
    }
}

/// The first characters of a text, `longest` bytes at most.
fn beginning(text: &str, longest: usize) -> &str {
    let end = (0..=longest.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or_default()).unwrap_or_default()
}

/// Text that is a number may equal the number, by the column's affinity: both get the number's key. NULL equals nothing.
fn key_of(value: Option<&Value>) -> Key {
    match value {
        Some(Value::Integer(number)) => Key::Number(*number),
        Some(Value::Text(text)) => key_of_text(text.as_bytes()),
        Some(Value::Null) | None => Key::Null,
    }
}

/// `None` when a value may equal rows with other keys: fractions.
fn key_of_ref(value: ValueRef<'_>) -> Option<Key> {
    match value {
        ValueRef::Null => Some(Key::Null),
        ValueRef::Integer(number) => Some(Key::Number(number)),
        ValueRef::Text(text) => Some(key_of_text(text)),
        ValueRef::Real(_) | ValueRef::Blob(_) => None,
    }
}

fn key_of_text(text: &[u8]) -> Key {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok());
    number.map_or_else(|| Key::Text(text.to_vec()), Key::Number)
}

fn failure(text: &str) -> Error {
    Error::ModuleError(text.to_owned())
}
