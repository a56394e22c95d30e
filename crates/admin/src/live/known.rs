//! ProxySQL's tables of statistics that have no source here: those of its cluster. They exist and are empty, so that dashboards and scripts
//! that name them keep working.

use model::stats::{StatsColumn, StatsSchema, StatsTable, stat};

const fn table(name: &'static str, columns: &'static [StatsColumn], primary_key: &'static [&'static str]) -> StatsTable {
    StatsTable {
        schema: StatsSchema::Stats,
        name,
        columns,
        primary_key,
        has_reset: false,
        help: "Part of ProxySQL's interface; always empty",
    }
}

pub(super) static TABLES: &[StatsTable] = &[
    table(
        "stats_proxysql_servers_clients_status",
        &[
            stat("uuid", "VARCHAR"),
            stat("hostname", "VARCHAR"),
            stat("port", "INT"),
            stat("admin_mysql_ifaces", "VARCHAR"),
            stat("last_seen_at", "INT"),
        ],
        &["uuid", "hostname", "port"],
    ),
    StatsTable {
        has_reset: true,
        ..table(
            "stats_proxysql_message_metrics",
            &[
                stat("message_id", "VARCHAR"),
                stat("filename", "VARCHAR"),
                stat("line", "INT"),
                stat("func", "VARCHAR"),
                stat("count_star", "INTEGER"),
                stat("first_seen", "INTEGER"),
                stat("last_seen", "INTEGER"),
            ],
            &["filename", "line", "func"],
        )
    },
];
