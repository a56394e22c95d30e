//! CHECKSUM and the checksums of the configuration in force: FNV-1a, 64 bits. ProxySQL uses another hash.

use model::config::shared::is_local;
use model::settings::MysqlVariables;
use model::{Config, Setting};
use rusqlite::types::ValueRef;

use super::{Answer, Command, open, refuse, rows as reply};
use crate::engine::statement::Statement;
use crate::engine::{Ask, Engine};
use crate::error::AdminError;
use crate::store::rows::{Part, description};

/// A hash in progress.
struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// A value: its length stands before it, so that two values are never one.
    fn value(&mut self, value: Option<&[u8]>) {
        let length = value.map_or(u64::MAX, |value| u64::try_from(value.len()).unwrap_or(u64::MAX));
        self.add(&length.to_le_bytes());
        self.add(value.unwrap_or_default());
    }

    fn text(&self) -> String {
        format!("0x{:016X}", self.0)
    }
}

/// The checksum of a part of a configuration, without each proxy's own settings: peers compare it.
pub(super) fn of_config(config: &Config, part: &Part) -> String {
    sum(config, part, |setting| !is_local(setting))
}

fn sum(config: &Config, part: &Part, wanted: impl Fn(&Setting) -> bool) -> String {
    let mut hash = Fnv::new();
    for table in part.tables {
        hash.value(Some(table.as_bytes()));
        for cell in config.rows(table).iter().flat_map(|row| &row.cells) {
            hash.value(cell.to_sql().as_deref());
        }
    }
    let variables = config.mysql.iter().chain(config.admin.iter());
    for (setting, value) in variables.filter(|(setting, _)| Some(setting.module) == part.variables && wanted(setting)) {
        hash.value(Some(setting.name.as_bytes()));
        hash.value(Some(value.as_bytes()));
    }
    hash.text()
}

/// The subjects of CHECKSUM: their words and the table; variables have none.
const SUBJECTS: &[(&str, &str)] = &[
    ("MYSQL SERVERS", "mysql_servers"),
    ("MYSQL USERS", "mysql_users"),
    ("MYSQL QUERY RULES", "mysql_query_rules"),
    ("MYSQL VARIABLES", ""),
    ("MYSQL REPLICATION HOSTGROUPS", "mysql_replication_hostgroups"),
    ("MYSQL GROUP REPLICATION HOSTGROUPS", "mysql_group_replication_hostgroups"),
    ("MYSQL GALERA HOSTGROUPS", "mysql_galera_hostgroups"),
    ("MYSQL AURORA HOSTGROUPS", "mysql_aws_aurora_hostgroups"),
    ("MYSQL HOSTGROUP ATTRIBUTES", "mysql_hostgroup_attributes"),
    ("MYSQL SERVERS SSL PARAMS", "mysql_servers_ssl_params"),
];

pub(super) fn find(statement: &Statement) -> Option<Command> {
    parse(statement).map(|_| open("CHECKSUM", checksum))
}

/// Schema, words and table.
fn parse(statement: &Statement) -> Option<(&'static str, &'static str, &'static str)> {
    if !statement.is(0, "CHECKSUM") {
        return None;
    }
    let (schema, from) = match () {
        () if statement.is(1, "DISK") => ("disk", 2),
        () if statement.is(1, "MEMORY|MEM") => ("main", 2),
        () => ("main", 1),
    };
    let is_it = |(words, _): &&(&str, &str)| statement.has(from, words) && statement.head.len() == from + words.split(' ').count();
    SUBJECTS.iter().find(is_it).map(|(words, table)| (schema, *words, *table))
}

fn checksum(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let Some((schema, words, table)) = parse(ask.statement) else {
        return refuse("no such CHECKSUM");
    };
    let sql = match description(table) {
        Some(table) => format!("SELECT * FROM {schema}.{} ORDER BY {}", table.name, table.keys[0].join(", ")),
        None => format!("SELECT * FROM {schema}.global_variables WHERE variable_name LIKE '{}-%' ORDER BY 1", MysqlVariables::MODULE),
    };
    let text = of_query(engine, &sql)?;
    Ok(reply(&["table", "checksum"], vec![vec![Some(words.to_owned()), Some(text)]]))
}

fn of_query(engine: &Engine, sql: &str) -> Result<String, AdminError> {
    let mut hash = Fnv::new();
    let mut found = engine.store.admin.prepare(sql)?;
    let width = found.column_count();
    let mut rows = found.query([])?;
    while let Some(row) = rows.next()? {
        for index in 0..width {
            match row.get_ref(index)? {
                ValueRef::Null => hash.value(None),
                ValueRef::Integer(number) => hash.value(Some(number.to_string().as_bytes())),
                ValueRef::Real(number) => hash.value(Some(number.to_string().as_bytes())),
                ValueRef::Text(bytes) | ValueRef::Blob(bytes) => hash.value(Some(bytes)),
            }
        }
    }
    Ok(hash.text())
}

/// One number for everything that is in force.
pub(super) fn global(engine: &Engine) -> u64 {
    let mut hash = Fnv::new();
    for part in super::layers::everything() {
        hash.add(of_config(&engine.runtime(), &part).as_bytes());
    }
    hash.0
}

/// The checksum of a whole configuration.
pub(super) fn of_everything(config: &Config) -> String {
    let mut hash = Fnv::new();
    for part in super::layers::everything() {
        hash.add(sum(config, &part, |_| true).as_bytes());
    }
    hash.text()
}
