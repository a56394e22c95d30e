//! `runtime_*`: the configuration in force, with observed roles and statuses.

use std::sync::Arc;

use model::Config;
use model::config::{Cell, Column, Row, TABLES, Table, ddl};
use model::fleet::Placement;
use model::snapshot::Server;
use model::stats::Value;

use super::{Content, LiveColumn, LiveTable};

/// The configuration in force, and since when.
#[derive(Debug, Clone, Default)]
pub(crate) struct Runtime {
    /// As loaded: without observed values.
    pub config: Arc<Config>,
    /// One line a module.
    pub checksums: Vec<Checksum>,
}

/// A module's line in `runtime_checksums_values`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checksum {
    /// The module, as ProxySQL calls it.
    pub name: &'static str,
    /// How often it was loaded.
    pub version: i64,
    /// When it was last loaded, in Unix seconds.
    pub epoch: i64,
    /// `0x` and 16 digits.
    pub checksum: String,
}

impl Runtime {
    pub(super) fn variables(&self) -> Vec<Vec<Value>> {
        let variables = self.config.admin.iter().chain(self.config.mysql.iter());
        variables.map(|(setting, value)| vec![setting.full_name().into(), value.into()]).collect()
    }

    pub(super) fn checksums(&self) -> Vec<Vec<Value>> {
        let line = |line: &Checksum| vec![line.name.into(), line.version.into(), line.epoch.into(), line.checksum.clone().into()];
        self.checksums.iter().map(line).collect()
    }
}

/// The descriptions of all `runtime_*` tables.
pub(super) fn tables() -> Vec<LiveTable> {
    let mut tables: Vec<LiveTable> = TABLES.iter().filter(|table| table.name != "mysql_collations").map(table).collect();
    let fixed = |name: &str, columns: &[(&str, &str)], content| LiveTable {
        schema: "main",
        name: name.to_owned(),
        columns: columns
            .iter()
            .map(|(name, sql_type)| LiveColumn { name: (*name).to_owned(), sql_type: (*sql_type).to_owned(), is_nullable: false })
            .collect(),
        key: vec![columns[0].0.to_owned()],
        content,
    };
    let variables = [("variable_name", "VARCHAR"), ("variable_value", "VARCHAR")];
    tables.push(fixed("runtime_global_variables", &variables, Content::Variables));
    let checksums = [("name", "VARCHAR"), ("version", "INT"), ("epoch", "INT"), ("checksum", "VARCHAR")];
    tables.push(fixed("runtime_checksums_values", &checksums, Content::Checksums));
    tables
}

fn table(table: &'static Table) -> LiveTable {
    let column = |column: &model::config::Column| LiveColumn {
        name: column.name.to_owned(),
        sql_type: ddl::sql_type(column).to_owned(),
        is_nullable: ddl::is_nullable(table, column),
    };
    LiveTable {
        schema: "main",
        name: format!("runtime_{}", table.name),
        columns: table.columns.iter().map(column).collect(),
        key: table.keys.first().copied().unwrap_or_default().iter().map(|name| (*name).to_owned()).collect(),
        content: Content::Config(table),
    }
}

/// Active users and rules, servers as placed, and all rows of the other tables.
pub(super) fn rows(table: &'static Table, config: &Config, placements: &[Placement]) -> Vec<Vec<Value>> {
    let rows = config.rows(table.name);
    match table.name {
        "mysql_servers" => servers(table, rows, placements),
        "mysql_users" => active(rows).flat_map(|row| halves(table, row)).collect(),
        "mysql_query_rules" => active(rows).map(values).collect(),
        _ => rows.iter().map(values).collect(),
    }
}

fn active(rows: &[Row]) -> impl Iterator<Item = &Row> {
    rows.iter().filter(|row| row.flag("active"))
}

fn values(row: &Row) -> Vec<Value> {
    let value = |cell: &Cell| match cell {
        Cell::Null => Value::Null,
        Cell::Integer(number) => Value::Integer(*number),
        Cell::Text(text) => Value::Text(text.clone()),
        Cell::Secret(secret) => Value::Text(secret.expose_text()),
    };
    row.cells.iter().map(value).collect()
}

/// As in ProxySQL, a user that logs in to the proxy and to servers is two rows.
fn halves(table: &'static Table, row: &Row) -> Vec<Vec<Value>> {
    let (backend, frontend) = (table.column_index("backend"), table.column_index("frontend"));
    let half = |is_frontend: bool| {
        let mut values = values(row);
        for (index, is_set) in [(frontend, is_frontend), (backend, !is_frontend)] {
            if let Some(value) = index.and_then(|index| values.get_mut(index)) {
                *value = Value::Integer(i64::from(is_set));
            }
        }
        values
    };
    let wanted = [("frontend", true), ("backend", false)];
    wanted.into_iter().filter(|(column, _)| row.flag(column)).map(|(_, is_frontend)| half(is_frontend)).collect()
}

/// Servers in their present hostgroups and statuses. The other columns are those of their configured row.
fn servers(table: &'static Table, rows: &[Row], placements: &[Placement]) -> Vec<Vec<Value>> {
    let is_of = |server: &Server, row: &Row| {
        row.integer("hostgroup_id") == Some(i64::from(server.key.hostgroup.0))
            && row.text("hostname") == Some(&*server.key.host)
            && row.integer("port") == Some(i64::from(server.key.port))
    };
    let shown = |placement: &Placement| {
        let server = &placement.server;
        let known = rows.iter().find(|row| is_of(server, row));
        let mut line = known.map_or_else(|| columns_of(table, server), values);
        if let Some(status) = table.column_index("status").and_then(|index| line.get_mut(index)) {
            *status = shown_status(placement.status.as_str()).into();
        }
        line
    };
    placements.iter().map(shown).collect()
}

/// A server that has no row of its own in its hostgroup.
fn columns_of(table: &'static Table, server: &Server) -> Vec<Value> {
    let value = |column: &Column| match column.name {
        "hostgroup_id" => server.key.hostgroup.0.into(),
        "hostname" => (*server.key.host).into(),
        "port" => server.key.port.into(),
        "gtid_port" => server.gtid_port.into(),
        "weight" => server.weight.into(),
        "compression" => u32::from(server.compression).into(),
        "max_connections" => server.max_connections.into(),
        "max_replication_lag" => server.max_replication_lag.into(),
        "use_ssl" => u32::from(server.use_ssl).into(),
        "max_latency_ms" => server.max_latency_ms.into(),
        "comment" => (*server.comment).into(),
        _ => default(column),
    };
    table.columns.iter().map(value).collect()
}

/// A server that lags is shown as shunned, as in ProxySQL; `stats_mysql_connection_pool` says more.
fn shown_status(status: &'static str) -> &'static str {
    if status == "SHUNNED_REPLICATION_LAG" { "SHUNNED" } else { status }
}

fn default(column: &Column) -> Value {
    match column.default {
        model::config::ColumnDefault::Integer(number) => Value::Integer(number),
        model::config::ColumnDefault::Text(text) => Value::Text(text.to_owned()),
        model::config::ColumnDefault::Required | model::config::ColumnDefault::Null => Value::Null,
    }
}
