//! The monitor's tables and metrics, as the admin interface asks for them.

use model::stats::{Metric, Reading, StatsSchema, StatsSource, StatsTable, Value, stat};

use crate::log;
use crate::monitor::{Monitor, lock};

/// Shared with the data plane, which has its own lines in it.
static GLOBAL: StatsTable = StatsTable {
    schema: StatsSchema::Stats,
    name: "stats_mysql_global",
    columns: &[stat("Variable_Name", "VARCHAR"), stat("Variable_Value", "VARCHAR")],
    primary_key: &["Variable_Name"],
    has_reset: false,
    help: "Numbers of the whole process",
};

impl StatsSource for Monitor {
    fn tables(&self) -> Vec<&'static StatsTable> {
        log::all().chain([&GLOBAL]).collect()
    }

    fn rows(&self, table: &'static StatsTable, _reading: Reading) -> Vec<Vec<Value>> {
        match table.name == GLOBAL.name {
            true => self.counts.global(&self.connector.resolver.counts),
            false => log::rows(self, table.name),
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut metrics = self.counts.metrics(&self.connector.resolver.counts);
        metrics.push(lock(&self.holds).metric());
        metrics
    }
}
