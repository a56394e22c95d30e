//! Tables about statements: by digest, by command, by error, and those that are prepared.

use super::{Rows, Table, text};
use crate::stats::{ProxyStats, collect};
use meter::digest::shown;
use meter::digest_bounds;
use meter::digest_table::{DigestKey, Sums};
use meter::prepared::Side;
use meter::spread::Spread;
use model::stats::{Reading, StatsColumn, StatsSchema, StatsTable, Value, stat, stat_null};

/// Columns of `stats_mysql_query_digest`, and behind them those that ProxySQL does not have.
const OF_DIGESTS: &[StatsColumn] = &[
    stat_null("hostgroup", "INT"),
    stat("schemaname", "VARCHAR"),
    stat("username", "VARCHAR"),
    stat("client_address", "VARCHAR"),
    stat("digest", "VARCHAR"),
    stat("digest_text", "VARCHAR"),
    stat("count_star", "INTEGER"),
    stat("first_seen", "INTEGER"),
    stat("last_seen", "INTEGER"),
    stat("sum_time", "INTEGER"),
    stat("min_time", "INTEGER"),
    stat("max_time", "INTEGER"),
    stat("sum_rows_affected", "INTEGER"),
    stat("sum_rows_sent", "INTEGER"),
    stat_null("p50_us", "INTEGER"),
    stat_null("p95_us", "INTEGER"),
    stat_null("p99_us", "INTEGER"),
];
/// How many of them ProxySQL has.
const OF_PROXYSQL: usize = 14;
const KEY_OF_DIGESTS: &[&str] = &["hostgroup", "schemaname", "username", "client_address", "digest"];

/// See the module.
pub(super) const TABLES: &[Table] = &[
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_mysql_query_digest",
            columns: OF_DIGESTS.split_at(OF_PROXYSQL).0,
            primary_key: KEY_OF_DIGESTS,
            has_reset: true,
            help: "Statements by digest, times in us. Hostgroup -1: answered by the proxy",
        },
        rows: digests,
    },
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_tidegate_query_digest",
            columns: OF_DIGESTS,
            primary_key: KEY_OF_DIGESTS,
            has_reset: false,
            help: "Statements by digest with percentiles, exact to 1/4; NULL for digests with at most 16 runs on each worker",
        },
        rows: digests_with_percentiles,
    },
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_mysql_query_events",
            columns: &[
                stat("id", "INTEGER"),
                stat_null("thread_id", "INTEGER"),
                stat_null("username", "TEXT"),
                stat_null("schemaname", "TEXT"),
                stat_null("start_time", "INTEGER"),
                stat_null("end_time", "INTEGER"),
                stat_null("query_digest", "TEXT"),
                stat_null("query", "TEXT"),
                stat_null("server", "TEXT"),
                stat_null("client", "TEXT"),
                stat_null("event_type", "INTEGER"),
                stat_null("hid", "INTEGER"),
                stat_null("extra_info", "TEXT"),
                stat_null("affected_rows", "INTEGER"),
                stat_null("last_insert_id", "INTEGER"),
                stat_null("rows_sent", "INTEGER"),
                stat_null("client_stmt_id", "INTEGER"),
                stat_null("gtid", "TEXT"),
                stat_null("errno", "INT"),
                stat_null("error", "TEXT"),
            ],
            primary_key: &["id"],
            has_reset: false,
            help: "Logged queries moved here by DUMP EVENTSLOG FROM BUFFER TO MEMORY; times in us since 1970",
        },
        rows: |stats, _| stats.shared.logs.kept.table(),
    },
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_mysql_commands_counters",
            columns: &[
                stat("Command", "VARCHAR"),
                stat("Total_Time_us", "INT"),
                stat("Total_cnt", "INT"),
                stat("cnt_100us", "INT"),
                stat("cnt_500us", "INT"),
                stat("cnt_1ms", "INT"),
                stat("cnt_5ms", "INT"),
                stat("cnt_10ms", "INT"),
                stat("cnt_50ms", "INT"),
                stat("cnt_100ms", "INT"),
                stat("cnt_500ms", "INT"),
                stat("cnt_1s", "INT"),
                stat("cnt_5s", "INT"),
                stat("cnt_10s", "INT"),
                stat_null("cnt_INFs", ""),
            ],
            primary_key: &["Command"],
            has_reset: false,
            help: "Statements by command and duration",
        },
        rows: commands,
    },
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_mysql_errors",
            columns: &[
                stat("hostgroup", "INT"),
                stat("hostname", "VARCHAR"),
                stat("port", "INT"),
                stat("username", "VARCHAR"),
                stat("client_address", "VARCHAR"),
                stat("schemaname", "VARCHAR"),
                stat("errno", "INT"),
                stat("count_star", "INTEGER"),
                stat("first_seen", "INTEGER"),
                stat("last_seen", "INTEGER"),
                stat("last_error", "VARCHAR"),
            ],
            primary_key: &["hostgroup", "hostname", "port", "username", "schemaname", "errno"],
            has_reset: true,
            help: "Errors from servers, failed connects, and the proxy's own errors (no hostname, port 0)",
        },
        rows: errors,
    },
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_mysql_prepared_statements_info",
            columns: &[
                stat("global_stmt_id", "INT"),
                stat("schemaname", "VARCHAR"),
                stat("username", "VARCHAR"),
                stat("digest", "VARCHAR"),
                stat("ref_count_client", "INT"),
                stat("ref_count_server", "INT"),
                stat("num_columns", "INT"),
                stat("num_params", "INT"),
                stat("query", "VARCHAR"),
            ],
            primary_key: &[],
            has_reset: false,
            help: "Prepared statements by worker, with at most mysql-query_digests_max_query_length bytes of text",
        },
        rows: prepared,
    },
];

fn digests(stats: &ProxyStats, reading: Reading) -> Rows {
    let mut totals = stats.digests();
    collect::drain_digests(&stats.shared, &mut totals);
    let rows = totals.rows().map(|(key, sums, _)| digest(stats, key, sums)).collect();
    if reading == Reading::Reset {
        totals.clear(stats.shared.clock.now_ms());
    }
    rows
}

impl ProxyStats {
    /// All digests as rows. They no longer count, and are kept aside until [`Self::settle_digests`].
    pub(crate) fn take_digests(&self) -> Rows {
        // Those of a save that never ended.
        self.settle_digests(false);
        let mut totals = self.digests();
        collect::drain_digests(&self.shared, &mut totals);
        let taken = totals.take(self.shared.clock.now_ms());
        let rows = taken.rows().map(|(key, sums, _)| digest(self, key, sums)).collect();
        *self.saving() = Some(taken);
        rows
    }

    /// The digests of [`Self::take_digests`] are saved, or count again.
    pub(crate) fn settle_digests(&self, are_saved: bool) {
        let taken = self.saving().take();
        if let Some(taken) = taken.filter(|_| !are_saved) {
            let bounds = digest_bounds(&self.shared.in_force.load().snapshot.vars, self.shared.mailboxes.len());
            self.digests().put_back(taken, bounds);
        }
    }
}

fn digests_with_percentiles(stats: &ProxyStats, _: Reading) -> Rows {
    let mut totals = stats.digests();
    collect::drain_digests(&stats.shared, &mut totals);
    let row = |(key, sums, spread): (&DigestKey, &Sums, Option<&Spread>)| {
        let percentile = |per_mille| spread.map_or(Value::Null, |spread| spread.quantile(per_mille, sums.min_us, sums.max_us).into());
        let mut row = digest(stats, key, sums);
        row.extend([500, 950, 990].map(percentile));
        row
    };
    totals.rows().map(row).collect()
}

fn digest(stats: &ProxyStats, key: &DigestKey, sums: &Sums) -> Vec<Value> {
    vec![
        key.hostgroup.into(),
        text(&key.schema),
        (*key.user).into(),
        key.client.map(|client| client.to_string()).unwrap_or_default().into(),
        shown(key.digest.hash).into(),
        text(&key.digest.text),
        sums.count.into(),
        stats.unix_s(sums.first_ms).into(),
        stats.unix_s(sums.last_ms).into(),
        sums.sum_us.into(),
        sums.min_us.into(),
        sums.max_us.into(),
        sums.rows_affected.into(),
        sums.rows_sent.into(),
    ]
}

fn commands(stats: &ProxyStats, _: Reading) -> Rows {
    let table = collect::commands(&stats.shared);
    let rows = table.rows().map(|(name, sums)| {
        let mut row = vec![name.into(), sums.sum_us.into(), sums.count.into()];
        row.extend(sums.buckets.iter().map(|n| (*n).into()));
        row
    });
    rows.collect()
}

fn errors(stats: &ProxyStats, reading: Reading) -> Rows {
    let table = collect::errors(&stats.shared, reading);
    let rows = table.rows().into_iter().map(|(key, sums)| {
        vec![
            key.hostgroup.into(),
            (*key.host).into(),
            key.port.into(),
            (*key.user).into(),
            sums.client.map(|client| client.to_string()).unwrap_or_default().into(),
            text(&key.schema),
            key.code.into(),
            sums.count.into(),
            stats.unix_s(sums.first_ms).into(),
            stats.unix_s(sums.last_ms).into(),
            text(&sums.text),
        ]
    });
    rows.collect()
}

fn prepared(stats: &ProxyStats, _: Reading) -> Rows {
    let listed = collect::prepared(&stats.shared);
    let longest = stats.shared.in_force.load().snapshot.vars.query_digests_max_query_length;
    let longest = usize::try_from(longest).unwrap_or(usize::MAX);
    let rows = listed.iter().map(|statement| {
        let (columns, params) = statement.shape;
        let query = sql::shown_in_any_mode(&statement.key.text);
        vec![
            statement.id.into(),
            text(statement.key.schema.as_deref().unwrap_or_default()),
            (*statement.user).into(),
            shown(statement.digest.hash).into(),
            statement.holders(Side::Client).into(),
            statement.holders(Side::Server).into(),
            columns.into(),
            params.into(),
            text(query.get(..longest).unwrap_or(&query)),
        ]
    });
    rows.collect()
}
