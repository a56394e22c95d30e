//! The admin port's values at one moment.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Result;

use ::admin::client::{Client, Field, Limit};

const GLOBAL: &str = "SELECT Variable_Name, Variable_Value FROM stats_mysql_global";
const POOL: &str = "SELECT hostgroup, srv_host, srv_port, status, ConnUsed, ConnFree, ConnERR, Queries, Bytes_data_sent, \
    Bytes_data_recv, Latency_us FROM stats_mysql_connection_pool ORDER BY hostgroup, srv_host, srv_port";
const PINS: &str = "SELECT reason, sessions, longest_ms FROM stats_tidegate_pins_summary WHERE sessions > 0 ORDER BY sessions DESC";
const DIGESTS: &str = "SELECT hostgroup, username, schemaname, digest_text, count_star, sum_time, max_time FROM stats_mysql_query_digest";
/// Far more than 100 digests and all servers have.
const LIMIT: Limit = Limit { bytes: 64 << 20, time: Duration::from_secs(60) };
/// Most digests that are asked for.
const MAX_DIGESTS: usize = 100;

/// By what digests are ordered, the largest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// Sum of all executions' times.
    Total,
    /// Time of one execution.
    Average,
    /// The slowest execution.
    Slowest,
    Count,
}

impl Sort {
    /// The word for people, and SQL's expression.
    const fn describe(self) -> (&'static str, &'static str) {
        match self {
            Self::Total => ("total time", "sum_time"),
            Self::Average => ("average time", "sum_time / max(count_star, 1)"),
            Self::Slowest => ("slowest", "max_time"),
            Self::Count => ("count", "count_star"),
        }
    }

    /// For the head line.
    pub(super) const fn name(self) -> &'static str {
        self.describe().0
    }

    /// The order when the user presses the key again.
    pub(super) const fn next(self) -> Self {
        match self {
            Self::Total => Self::Average,
            Self::Average => Self::Slowest,
            Self::Slowest => Self::Count,
            Self::Count => Self::Total,
        }
    }
}

/// A line of `stats_mysql_connection_pool`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ServerLine {
    /// As text, as all keys.
    pub hostgroup: String,
    /// `host:port`.
    pub address: String,
    /// `ONLINE`, `SHUNNED`, ...
    pub status: String,
    /// Connections in use.
    pub used: f64,
    /// Idle connections.
    pub free: f64,
    /// Connects that failed, since the start.
    pub errors: f64,
    /// Statements, since the start.
    pub queries: f64,
    /// Bytes to the server, since the start.
    pub sent: f64,
    /// Bytes from the server, since the start.
    pub received: f64,
    /// Last ping, microseconds.
    pub latency_us: f64,
}

/// Sessions that are pinned for one reason.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct PinLine {
    pub reason: String,
    /// Pinned sessions.
    pub sessions: f64,
    /// The longest pin, ms.
    pub longest_ms: f64,
}

/// A line of `stats_mysql_query_digest`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct DigestLine {
    pub hostgroup: String,
    pub user: String,
    pub schema: String,
    pub text: String,
    /// Executions.
    pub count: f64,
    /// Time of all of them, microseconds.
    pub total_us: f64,
    /// Time of the slowest, microseconds.
    pub slowest_us: f64,
}

/// Lines of a table, or why there are none.
pub(super) type Lines<T> = Result<Vec<T>, String>;

/// Everything at one moment.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    /// For rates between two samples.
    pub at: Instant,
    /// `stats_mysql_global`, without values that are no numbers.
    pub global: Lines<(String, f64)>,
    /// By hostgroup.
    pub servers: Lines<ServerLine>,
    /// By reason.
    pub pins: Lines<PinLine>,
    /// Digests, ordered.
    pub digests: Lines<DigestLine>,
}

impl Sample {
    /// Asks for everything. An error means that the connection is gone.
    pub(super) fn take(client: &mut Client, sort: Sort) -> Result<Self> {
        let digests = format!("{DIGESTS} ORDER BY {} DESC LIMIT {MAX_DIGESTS}", sort.describe().1);
        Ok(Self {
            global: client.rows(GLOBAL, LIMIT)?.map(|rows| rows.iter().filter_map(|row| variable(row)).collect()),
            servers: client.rows(POOL, LIMIT)?.map(|rows| rows.iter().map(|row| server(row)).collect()),
            pins: client.rows(PINS, LIMIT)?.map(|rows| rows.iter().map(|row| pin(row)).collect()),
            digests: client.rows(&digests, LIMIT)?.map(|rows| rows.iter().map(|row| digest(row)).collect()),
            at: Instant::now(),
        })
    }

    /// A global counter or gauge.
    pub(super) fn variable(&self, name: &str) -> Option<f64> {
        let all = self.global.as_ref().ok()?;
        all.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }

    /// Servers by hostgroup and address.
    pub(super) fn servers_by_name(&self) -> HashMap<(&str, &str), &ServerLine> {
        let lines = self.servers.as_deref().unwrap_or_default();
        lines.iter().map(|line| ((line.hostgroup.as_str(), line.address.as_str()), line)).collect()
    }
}

fn text(row: &[Field], index: usize) -> String {
    row.get(index).and_then(Clone::clone).unwrap_or_default()
}

fn number(row: &[Field], index: usize) -> f64 {
    row.get(index).and_then(|field| field.as_deref()?.parse().ok()).unwrap_or(0.0)
}

fn variable(row: &[Field]) -> Option<(String, f64)> {
    Some((text(row, 0), row.get(1)?.as_deref()?.parse().ok()?))
}

fn server(row: &[Field]) -> ServerLine {
    let address = match text(row, 2).as_str() {
        "0" => text(row, 1),
        port => format!("{}:{port}", text(row, 1)),
    };
    ServerLine {
        hostgroup: text(row, 0),
        address,
        status: text(row, 3),
        used: number(row, 4),
        free: number(row, 5),
        errors: number(row, 6),
        queries: number(row, 7),
        sent: number(row, 8),
        received: number(row, 9),
        latency_us: number(row, 10),
    }
}

fn pin(row: &[Field]) -> PinLine {
    PinLine { reason: text(row, 0), sessions: number(row, 1), longest_ms: number(row, 2) }
}

fn digest(row: &[Field]) -> DigestLine {
    DigestLine {
        hostgroup: text(row, 0),
        user: text(row, 1),
        schema: text(row, 2),
        text: text(row, 3),
        count: number(row, 4),
        total_us: number(row, 5),
        slowest_us: number(row, 6),
    }
}
