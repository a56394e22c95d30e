//! `information_schema` and a little of `performance_schema`, for tools that look before they ask.

use std::borrow::Cow;

use model::stats::Value;
use rusqlite::Connection;

use super::{Content, LiveColumn, LiveTable};
use crate::store::layout;

/// A table of `information_schema`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// One row per schema.
    Schemata,
    /// One row per table and view.
    Tables,
    /// One row per column.
    Columns,
    /// A table that is always empty.
    Empty,
}

/// The schemas that an administrator sees.
pub(crate) const SCHEMAS: &[&str] = &["main", "disk", "stats", "monitor", "stats_history", "information_schema", "performance_schema"];

/// Schema, table, columns, and the kind of its rows.
const VIEWS: &[(&str, &str, &str, View)] = &[
    (
        "information_schema",
        "SCHEMATA",
        "CATALOG_NAME SCHEMA_NAME DEFAULT_CHARACTER_SET_NAME DEFAULT_COLLATION_NAME SQL_PATH",
        View::Schemata,
    ),
    (
        "information_schema",
        "TABLES",
        "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME TABLE_TYPE ENGINE VERSION ROW_FORMAT TABLE_ROWS AVG_ROW_LENGTH DATA_LENGTH MAX_DATA_LENGTH \
         INDEX_LENGTH DATA_FREE AUTO_INCREMENT CREATE_TIME UPDATE_TIME CHECK_TIME TABLE_COLLATION CHECKSUM CREATE_OPTIONS TABLE_COMMENT",
        View::Tables,
    ),
    (
        "information_schema",
        "COLUMNS",
        "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME COLUMN_NAME ORDINAL_POSITION COLUMN_DEFAULT IS_NULLABLE DATA_TYPE CHARACTER_MAXIMUM_LENGTH \
         CHARACTER_OCTET_LENGTH NUMERIC_PRECISION NUMERIC_SCALE DATETIME_PRECISION CHARACTER_SET_NAME COLLATION_NAME COLUMN_TYPE COLUMN_KEY \
         EXTRA PRIVILEGES COLUMN_COMMENT GENERATION_EXPRESSION",
        View::Columns,
    ),
    (
        "information_schema",
        "KEY_COLUMN_USAGE",
        "CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME TABLE_CATALOG TABLE_SCHEMA TABLE_NAME COLUMN_NAME ORDINAL_POSITION \
         POSITION_IN_UNIQUE_CONSTRAINT REFERENCED_TABLE_SCHEMA REFERENCED_TABLE_NAME REFERENCED_COLUMN_NAME",
        View::Empty,
    ),
    (
        "information_schema",
        "REFERENTIAL_CONSTRAINTS",
        "CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME UNIQUE_CONSTRAINT_SCHEMA UNIQUE_CONSTRAINT_NAME MATCH_OPTION UPDATE_RULE \
         DELETE_RULE TABLE_NAME REFERENCED_TABLE_NAME",
        View::Empty,
    ),
    (
        "information_schema",
        "TABLE_CONSTRAINTS",
        "CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME TABLE_SCHEMA TABLE_NAME CONSTRAINT_TYPE",
        View::Empty,
    ),
    ("information_schema", "CHECK_CONSTRAINTS", "CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME CHECK_CLAUSE", View::Empty),
    (
        "information_schema",
        "STATISTICS",
        "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME NON_UNIQUE INDEX_SCHEMA INDEX_NAME SEQ_IN_INDEX COLUMN_NAME COLLATION CARDINALITY SUB_PART \
         PACKED NULLABLE INDEX_TYPE COMMENT INDEX_COMMENT",
        View::Empty,
    ),
    (
        "information_schema",
        "ROUTINES",
        "SPECIFIC_NAME ROUTINE_CATALOG ROUTINE_SCHEMA ROUTINE_NAME ROUTINE_TYPE DATA_TYPE ROUTINE_BODY ROUTINE_DEFINITION CREATED LAST_ALTERED \
         ROUTINE_COMMENT DEFINER",
        View::Empty,
    ),
    (
        "information_schema",
        "PARAMETERS",
        "SPECIFIC_CATALOG SPECIFIC_SCHEMA SPECIFIC_NAME ORDINAL_POSITION PARAMETER_MODE PARAMETER_NAME DATA_TYPE",
        View::Empty,
    ),
    ("information_schema", "VIEWS", "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME VIEW_DEFINITION CHECK_OPTION IS_UPDATABLE DEFINER", View::Empty),
    (
        "information_schema",
        "TRIGGERS",
        "TRIGGER_CATALOG TRIGGER_SCHEMA TRIGGER_NAME EVENT_MANIPULATION EVENT_OBJECT_SCHEMA EVENT_OBJECT_TABLE ACTION_STATEMENT ACTION_TIMING",
        View::Empty,
    ),
    ("information_schema", "EVENTS", "EVENT_CATALOG EVENT_SCHEMA EVENT_NAME DEFINER STATUS", View::Empty),
    ("information_schema", "PARTITIONS", "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME PARTITION_NAME", View::Empty),
    (
        "information_schema",
        "FILES",
        "FILE_ID FILE_NAME FILE_TYPE TABLESPACE_NAME LOGFILE_GROUP_NAME ENGINE INITIAL_SIZE TOTAL_EXTENTS EXTENT_SIZE EXTRA",
        View::Empty,
    ),
    ("information_schema", "ENGINES", "ENGINE SUPPORT COMMENT TRANSACTIONS XA SAVEPOINTS", View::Empty),
    ("information_schema", "PLUGINS", "PLUGIN_NAME PLUGIN_VERSION PLUGIN_STATUS PLUGIN_TYPE", View::Empty),
    ("information_schema", "COLLATIONS", "COLLATION_NAME CHARACTER_SET_NAME ID IS_DEFAULT IS_COMPILED SORTLEN", View::Empty),
    ("information_schema", "CHARACTER_SETS", "CHARACTER_SET_NAME DEFAULT_COLLATE_NAME DESCRIPTION MAXLEN", View::Empty),
    ("information_schema", "COLUMN_STATISTICS", "SCHEMA_NAME TABLE_NAME COLUMN_NAME HISTOGRAM", View::Empty),
    ("information_schema", "USER_PRIVILEGES", "GRANTEE TABLE_CATALOG PRIVILEGE_TYPE IS_GRANTABLE", View::Empty),
    ("performance_schema", "session_variables", "VARIABLE_NAME VARIABLE_VALUE", View::Empty),
    ("performance_schema", "session_status", "VARIABLE_NAME VARIABLE_VALUE", View::Empty),
    ("performance_schema", "global_variables", "VARIABLE_NAME VARIABLE_VALUE", View::Empty),
];

/// The descriptions for the registry.
pub(super) fn tables() -> Vec<LiveTable> {
    let column = |name: &str| LiveColumn { name: name.to_owned(), sql_type: "VARCHAR COLLATE NOCASE".to_owned(), is_nullable: true };
    let table = |(schema, name, columns, view): &(&'static str, &'static str, &'static str, View)| LiveTable {
        schema,
        name: (*name).to_owned(),
        columns: columns.split_whitespace().map(column).collect(),
        key: Vec::new(),
        content: Content::Schema(*view),
    };
    VIEWS.iter().map(table).collect()
}

/// A connection's schemas, with their tables and views as they are now.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    schemas: Vec<&'static str>,
    relations: Vec<Relation>,
}

#[derive(Debug)]
struct Relation {
    schema: &'static str,
    name: String,
    is_view: bool,
    columns: Vec<Described>,
}

#[derive(Debug)]
struct Described {
    name: String,
    sql_type: String,
    is_nullable: bool,
    is_key: bool,
}

impl Catalog {
    /// Asks the connection itself.
    pub(crate) fn of(db: &Connection) -> rusqlite::Result<Self> {
        let attached: Vec<String> =
            db.prepare("SELECT name FROM pragma_database_list")?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
        let schemas: Vec<&str> = SCHEMAS.iter().copied().filter(|schema| attached.iter().any(|name| name == schema)).collect();
        let mut catalog = Self { schemas, relations: Vec::new() };
        for schema in catalog.schemas.clone() {
            catalog.add(db, schema, schema)?;
            if schema == "main" {
                // CREATE VIEW makes a TEMP view if `main` cannot hold it.
                catalog.add(db, schema, "temp")?;
            }
        }
        Ok(catalog)
    }

    fn add(&mut self, db: &Connection, schema: &'static str, kept_in: &str) -> rusqlite::Result<()> {
        let sql = format!(
            "SELECT name, type = 'view' FROM {kept_in}.sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite|_%' ESCAPE '|'"
        );
        let found: Vec<(String, bool)> =
            db.prepare(&sql)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
        for (name, is_view) in found {
            // A view whose tables are gone has no columns.
            let columns = described(db, kept_in, &name).unwrap_or_default();
            self.relations.push(Relation { schema, name, is_view, columns });
        }
        Ok(())
    }
}

fn described(db: &Connection, schema: &str, name: &str) -> rusqlite::Result<Vec<Described>> {
    let mut columns = db.prepare("SELECT name, type, \"notnull\", pk FROM pragma_table_info(?1, ?2)")?;
    let found = columns.query_map([name, schema], |row| {
        let (is_not_null, place_in_key): (bool, i64) = (row.get(2)?, row.get(3)?);
        let is_key = place_in_key > 0;
        Ok(Described { name: row.get(0)?, sql_type: row.get(1)?, is_nullable: !is_not_null && !is_key, is_key })
    })?;
    found.collect()
}

/// The rows of one table, limited to the tables in `catalog`.
pub(super) fn rows(view: View, live: &[LiveTable], catalog: &Catalog) -> Vec<Vec<Value>> {
    // In the statistics' connection, `main` has the tables of `stats`.
    let computed = |relation: &Relation| {
        let is_it = |table: &&LiveTable, schema: &str| table.schema == schema && table.name == relation.name;
        live.iter().find(|table| is_it(table, relation.schema)).or_else(|| {
            let in_main = relation.schema == "main" && !relation.is_view;
            live.iter().find(|table| in_main && is_it(table, "stats"))
        })
    };
    let relations = catalog.relations.iter();
    match view {
        View::Empty => Vec::new(),
        View::Schemata => catalog.schemas.iter().map(|name| texts(&["def", name, "utf8mb4", "utf8mb4_general_ci", ""])).collect(),
        View::Tables => {
            let kind = |relation: &Relation| match relation.is_view {
                true => "VIEW",
                false if computed(relation).is_some() => "SYSTEM VIEW",
                false => "BASE TABLE",
            };
            let comment = |relation: &Relation| -> Cow<'static, str> {
                match computed(relation).map(|table| table.content) {
                    Some(Content::Stats(table, _)) => table.help.into(),
                    Some(Content::Config(table)) => format!("Rows of {} in force", table.name).into(),
                    Some(Content::Variables) => "Values of the settings in force".into(),
                    Some(Content::Checksums) => "Version, load time and checksum of each configuration module".into(),
                    Some(Content::Schema(_)) => "".into(),
                    None => layout::help(relation.schema, &relation.name),
                }
            };
            let row = |relation: &Relation| table_row([relation.schema, &relation.name, kind(relation)], &comment(relation));
            relations.map(row).collect()
        }
        View::Columns => {
            let of = |relation: &Relation| match computed(relation) {
                Some(table) => {
                    let columns = table.columns.iter().enumerate();
                    let row = |(at, column): (usize, &LiveColumn)| {
                        let sql_type = column.sql_type.split(' ').next().unwrap_or_default();
                        let is_key = table.key.contains(&column.name);
                        column_row([relation.schema, &relation.name, &column.name], at, sql_type, column.is_nullable, is_key)
                    };
                    columns.map(row).collect::<Vec<_>>()
                }
                None => {
                    let columns = relation.columns.iter().enumerate();
                    let row = |(at, column): (usize, &Described)| {
                        let place = [relation.schema, &*relation.name, &*column.name];
                        column_row(place, at, &column.sql_type, column.is_nullable, column.is_key)
                    };
                    columns.map(row).collect()
                }
            };
            relations.flat_map(of).collect()
        }
    }
}

fn texts(values: &[&str]) -> Vec<Value> {
    values.iter().map(|value| Value::from(*value)).collect()
}

fn table_row([schema, name, kind]: [&str; 3], comment: &str) -> Vec<Value> {
    let mut row = texts(&["def", schema, name, kind, "SQLite"]);
    row.resize(20, Value::Null);
    row.push(comment.into());
    row
}

fn column_row([schema, table, column]: [&str; 3], at: usize, sql_type: &str, is_nullable: bool, is_key: bool) -> Vec<Value> {
    let (data_type, column_type) = if sql_type.starts_with("INT") { ("bigint", "bigint") } else { ("varchar", "varchar(255)") };
    let mut row = texts(&["def", schema, table, column]);
    row.push(Value::Integer(i64::try_from(at + 1).unwrap_or(i64::MAX)));
    row.push(Value::Null);
    row.extend(texts(&[if is_nullable { "YES" } else { "NO" }, data_type]));
    row.resize(15, Value::Null);
    row.extend(texts(&[column_type, if is_key { "PRI" } else { "" }, "", "select", "", ""]));
    row
}
