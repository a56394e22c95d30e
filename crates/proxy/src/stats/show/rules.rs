//! Tables about query rules.

use super::{Rows, Table};
use crate::stats::ProxyStats;
use model::stats::{Reading, StatsSchema, StatsTable, stat};

/// See the module.
pub(super) const TABLES: &[Table] = &[Table {
    table: StatsTable {
        schema: StatsSchema::Stats,
        name: "stats_mysql_query_rules",
        columns: &[stat("rule_id", "INTEGER"), stat("hits", "INT")],
        primary_key: &["rule_id"],
        has_reset: false,
        help: "Matches of each active rule since it was loaded",
    },
    rows: hits,
}];

fn hits(stats: &ProxyStats, _: Reading) -> Rows {
    let in_force = stats.shared.in_force.load();
    in_force.rules.hits().map(|(id, hits)| vec![id.into(), hits.into()]).collect()
}
