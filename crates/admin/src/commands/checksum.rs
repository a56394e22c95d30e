//! CHECKSUM: of what is in memory and on disk.

use model::settings::MysqlVariables;
use rusqlite::types::ValueRef;

use super::{Answer, Command, open, refuse, rows as reply};
use crate::engine::statement::Statement;
use crate::engine::{Ask, Engine};
use crate::error::AdminError;
use crate::store::checksum::Fnv;
use crate::store::rows::description;

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
