//! Reads of the session's own last write, through the readers' hostgroup, with a replica that lags.
//!
//! One session writes a row and reads it at once; a rule routes the SELECT to the readers. Without causal reads it gets old data; with them
//! it never may. The cost is the difference in the reads' latency.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Extent;
use super::report::ms;
use crate::client::Client;
use crate::error::LabError;
use crate::failover::median;
use crate::flavor::Flavor;
use crate::plot::{Chart, Shape};
use crate::replication::{self, Replication};
use crate::server::{Options, Server};
use crate::tidegate::{Builder, Tidegate};
use crate::topology::{READER, Topology, WRITER};

/// How a replica is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lag {
    /// As replication is: a fraction of a millisecond.
    Natural,
    /// The replica waits a second before it applies anything.
    OneSecond,
}

impl Lag {
    const ALL: [Lag; 2] = [Lag::Natural, Lag::OneSecond];

    fn name(self) -> &'static str {
        match self {
            Lag::Natural => "natural",
            Lag::OneSecond => "1 s",
        }
    }
}

/// One setting of causal reads with one lag.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Which servers.
    pub flavor: Flavor,
    /// `causal_reads`.
    pub mode: &'static str,
    /// The replica's lag.
    pub lag: Lag,
    /// Pairs of a write and a read.
    pub pairs: u64,
    /// Reads that did not see the write before.
    pub stale: u64,
    /// Reads that the writer served, as the proxy counted them.
    pub by_writer: u64,
    /// Latency of each read, us.
    latencies_us: Vec<u64>,
}

/// Pairs in each measurement.
fn pairs(extent: Extent, lag: Lag) -> u64 {
    match (extent, lag) {
        (Extent::Short, _) => 30,
        (Extent::Full, Lag::Natural) => 5_000,
        (Extent::Full, Lag::OneSecond) => 300,
    }
}

/// Measures off and session, with each lag.
pub fn run(flavor: Flavor, extent: Extent, mut news: impl FnMut(&Measured)) -> Result<Vec<Measured>, LabError> {
    let servers = Replication::start(flavor, 1, &Options::new())?.into_servers();
    let topology = Topology::Replication(servers);
    let mut all = Vec::new();
    for lag in Lag::ALL {
        set_lag(topology.servers()[1], lag)?;
        for mode in ["off", "session"] {
            let proxy = configuration(&topology, mode).start()?;
            let measured = measure(&topology, &proxy, flavor, mode, lag, pairs(extent, lag))?;
            news(&measured);
            all.push(measured);
        }
    }
    Ok(all)
}

/// SELECTs go to the readers.
fn configuration(topology: &Topology, mode: &str) -> Builder {
    let rule = [
        ("rule_id", 1.into()),
        ("active", 1.into()),
        ("match_digest", "^SELECT".into()),
        ("destination_hostgroup", READER.into()),
        ("apply", 1.into()),
    ];
    let builder = topology.proxied().row("mysql_query_rules", &rule).variable("causal_reads", mode);
    // Else the writer, which is heavier, serves most reads, and they are never stale.
    builder.variable("monitor_writer_is_also_reader", false)
}

fn set_lag(replica: &Server, lag: Lag) -> Result<(), LabError> {
    let seconds = if lag == Lag::OneSecond { 1 } else { 0 };
    let statements = match replica.flavor() {
        Flavor::Mariadb => ["STOP SLAVE".to_owned(), format!("CHANGE MASTER TO MASTER_DELAY={seconds}"), "START SLAVE".to_owned()],
        Flavor::Mysql => {
            ["STOP REPLICA".to_owned(), format!("CHANGE REPLICATION SOURCE TO SOURCE_DELAY={seconds}"), "START REPLICA".to_owned()]
        }
    };
    statements.iter().try_for_each(|statement| replica.sql(statement).map(drop))
}

fn measure(topology: &Topology, proxy: &Tidegate, flavor: Flavor, mode: &'static str, lag: Lag, pairs: u64) -> Result<Measured, LabError> {
    let servers = topology.servers();
    servers[0].sql("DROP TABLE IF EXISTS test.seen")?;
    servers[0].sql("CREATE TABLE test.seen(i BIGINT PRIMARY KEY)")?;
    replication::wait_for(servers[1], &replication::position(servers[0])?)?;
    let mut client = proxy.connect_app()?;
    let mut measured = Measured { flavor, mode, lag, pairs, stale: 0, by_writer: 0, latencies_us: Vec::new() };
    for number in 0..pairs {
        let (stale, took) = pair(&mut client, number)?;
        measured.stale += u64::from(stale);
        measured.latencies_us.push(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }
    let asked = format!(
        "SELECT IFNULL(SUM(count_star), 0) FROM stats_mysql_query_digest \
         WHERE hostgroup = {WRITER} AND digest_text LIKE 'SELECT COUNT(*) FROM test.seen%'"
    );
    measured.by_writer = proxy.admin()?.scalar(asked)?.and_then(|count| count.parse().ok()).unwrap_or(0);
    Ok(measured)
}

/// Writes and reads: whether the read did not see it, and how long the read took.
fn pair(client: &mut Client, number: u64) -> Result<(bool, Duration), LabError> {
    client.run(format!("INSERT INTO test.seen VALUES({number})"))?;
    let start = Instant::now();
    let found = client.scalar(format!("SELECT COUNT(*) FROM test.seen WHERE i = {number}"))?;
    Ok((found.as_deref() != Some("1"), start.elapsed()))
}

/// Charts: the share of reads that did not see the write before, and the time of a read.
pub fn charts(measured: &[Measured]) -> Vec<Chart> {
    let bars = |title: &str, y: &str, names: &[&str], values: &dyn Fn(&Measured) -> Vec<f64>| {
        let groups = measured.iter().map(|one| (format!("{}, lag {}", one.mode, one.lag.name()), values(one))).collect();
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Chart { title: title.to_owned(), x: "causal_reads".to_owned(), y: y.to_owned(), shape: Shape::Bars { names, groups } }
    };
    let as_ms = |us: Option<u64>| us.map_or(f64::NAN, |us| us as f64 / 1000.0);
    vec![
        bars("Reads that do not see the session's own write", "% of reads", &["stale"], &|one| {
            vec![one.stale as f64 * 100.0 / one.pairs.max(1) as f64]
        }),
        bars("What a read takes", "ms", &["median", "99 %"], &|one| vec![as_ms(median(&one.latencies_us)), as_ms(one.quantile(99))]),
    ]
}

/// Heading of [`Measured::line`].
pub const HEADING: &str = "servers  causal_reads  lag      pairs  stale  share   by writer  read, ms: median     p99     max";

impl Measured {
    /// One line of the table.
    pub fn line(&self) -> String {
        let share = self.stale.saturating_mul(1_000) / self.pairs.max(1);
        format!(
            "{:<9}{:<14}{:<9}{:>5}{:>7}{:>5}.{}%{:>11}{:>18}{:>8}{:>8}",
            self.flavor.name(),
            self.mode,
            self.lag.name(),
            self.pairs,
            self.stale,
            share / 10,
            share % 10,
            self.by_writer,
            ms(median(&self.latencies_us)),
            ms(self.quantile(99)),
            ms(self.latencies_us.iter().max().copied())
        )
    }

    /// Whether the promise held: with causal reads nothing is stale.
    pub fn is_kept(&self) -> bool {
        self.mode == "off" || self.stale == 0
    }

    /// For machines. Times in us.
    pub fn json(&self) -> Value {
        json!({
            "flavor": self.flavor.name(), "causal_reads": self.mode, "lag": self.lag.name(), "pairs": self.pairs,
            "stale": self.stale, "by_writer": self.by_writer, "median_us": median(&self.latencies_us),
            "p99_us": self.quantile(99), "max_us": self.latencies_us.iter().max(),
        })
    }

    fn quantile(&self, percent: usize) -> Option<u64> {
        let mut sorted = self.latencies_us.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len().saturating_sub(1) * percent / 100).copied()
    }
}
