//! Writes that a rule mirrors on a second server: the fate of the copies, and their cost for the clients.
//!
//! Clients write single rows, each with an id that is written once: directly, through the proxy, and through the proxy with a mirroring
//! rule. In a last run the mirror stands still meanwhile. Afterwards the mirror's rows are compared with the clients' answers.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Extent;
use super::report::ms;
use crate::client::{Client, ConnectOptions};
use crate::error::LabError;
use crate::failover::median;
use crate::flavor::Flavor;
use crate::plot::{Chart, Shape};
use crate::server::{Options, Server};
use crate::tidegate::Tidegate;
use crate::wait;

/// Longest that the mirror may take to catch up.
const LIMIT: Duration = Duration::from_secs(120);
/// Hostgroup of the mirror.
const MIRROR: i64 = 2;

/// Which way writes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the server.
    Direct,
    /// Through the proxy.
    Proxied,
    /// Through the proxy, and mirrored.
    Mirrored,
    /// The same while the mirror stands still, with room for a quarter of the copies.
    Frozen,
}

impl Way {
    const ALL: [Way; 4] = [Way::Direct, Way::Proxied, Way::Mirrored, Way::Frozen];

    fn name(self) -> &'static str {
        match self {
            Way::Direct => "direct",
            Way::Proxied => "proxied",
            Way::Mirrored => "mirrored",
            Way::Frozen => "mirror frozen",
        }
    }

    fn is_mirrored(self) -> bool {
        matches!(self, Way::Mirrored | Way::Frozen)
    }
}

/// The fate of the copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// Writes of which the mirror has a row.
    pub arrived: u64,
    /// Acknowledged writes of which it has none.
    pub lost: u64,
    /// Rows beyond one for each write.
    pub doubled: u64,
    /// Copies that the proxy says it dropped, or that failed.
    pub told: u64,
    /// How long the mirror took to catch up, once the last client was done.
    pub behind_ms: u64,
}

/// One way, measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Which servers.
    pub flavor: Flavor,
    /// Which way.
    pub way: Way,
    /// Writes that clients were told are done.
    pub writes: u64,
    /// In a second.
    pub per_second: u64,
    /// The proxy's processor time for each, us.
    pub cpu_us: Option<u64>,
    /// The mirror.
    pub copies: Option<Copies>,
    latencies_us: Vec<u64>,
}

/// Clients, and writes of each.
fn load(extent: Extent) -> (u64, u64) {
    match extent {
        Extent::Short => (8, 50),
        Extent::Full => (40, 3_000),
    }
}

/// Measures all ways.
pub fn run(flavor: Flavor, extent: Extent, mut news: impl FnMut(&Measured)) -> Result<Vec<Measured>, LabError> {
    let (origin, mirror) = (Server::start(flavor, &Options::new())?, Server::start(flavor, &Options::new())?);
    let mut all = Vec::new();
    for way in Way::ALL {
        for server in [&origin, &mirror] {
            // Without a key, so that doubled rows can be seen.
            server.sql("DROP TABLE IF EXISTS test.written")?;
            server.sql("CREATE TABLE test.written(id BIGINT, client INT)")?;
        }
        let measured = measure(way, flavor, &origin, &mirror, load(extent))?;
        news(&measured);
        all.push(measured);
    }
    Ok(all)
}

fn measure(way: Way, flavor: Flavor, origin: &Server, mirror: &Server, (clients, each): (u64, u64)) -> Result<Measured, LabError> {
    let proxy = if way == Way::Direct { None } else { Some(start(way, origin, mirror, clients * each)?) };
    let address = proxy.as_ref().map_or_else(|| origin.address(), Tidegate::address);
    let options = ConnectOptions::tcp(address, "app", "app-pass").database("test");
    let cpu = |proxy: &Option<Tidegate>| proxy.as_ref().map(Tidegate::cpu_ticks).transpose();
    let before = cpu(&proxy)?;
    if way == Way::Frozen {
        mirror.sigstop();
    }
    let written = write(&options, clients, each);
    if way == Way::Frozen {
        mirror.sigcont();
    }
    let (latencies_us, took) = written?;
    let writes = latencies_us.len() as u64;
    let copies = match &proxy {
        Some(proxy) if way.is_mirrored() => Some(copies(proxy, mirror, writes)?),
        _ => None,
    };
    // With the copies: they are part of the price. A tick is 10 ms.
    let ticks = before.zip(cpu(&proxy)?).map(|(before, after)| after.saturating_sub(before));
    let cpu_us = ticks.map(|ticks| ticks * 10_000 / writes.max(1));
    let per_second = u64::try_from(u128::from(writes) * 1_000 / took.as_millis().max(1)).unwrap_or(u64::MAX);
    Ok(Measured { flavor, way, writes, per_second, cpu_us, copies, latencies_us })
}

fn start(way: Way, origin: &Server, mirror: &Server, writes: u64) -> Result<Tidegate, LabError> {
    let mut builder = Tidegate::builder().backend(1, origin).backend(MIRROR, mirror).user("app", "app-pass", 1);
    // Else it takes the mirror out, and its copies fail at once.
    builder = builder.variable("monitor_enabled", false);
    if way.is_mirrored() {
        let rule = [
            ("rule_id", 1.into()),
            ("active", 1.into()),
            ("match_digest", "^INSERT".into()),
            ("mirror_hostgroup", MIRROR.into()),
            ("apply", 1.into()),
        ];
        builder = builder.row("mysql_query_rules", &rule);
    }
    if way == Way::Frozen {
        builder = builder.variable("threads", 1).variable("mirror_max_queue_length", i64::try_from(writes / 4).unwrap_or(i64::MAX));
    }
    builder.start()
}

/// All clients write; how long each write took, and all of them together.
fn write(options: &ConnectOptions, clients: u64, each: u64) -> Result<(Vec<u64>, Duration), LabError> {
    let sessions = (0..clients).map(|_| Client::connect(options)).collect::<Result<Vec<_>, _>>()?;
    let barrier = Barrier::new(sessions.len() + 1);
    thread::scope(|scope| {
        let work = |(number, mut session): (u64, Client)| {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                (0..each).map(|n| timed(&mut session, number * each + n, number)).collect::<Result<Vec<u64>, LabError>>()
            })
        };
        let threads: Vec<_> = (0..).zip(sessions).map(work).collect();
        barrier.wait();
        let begun = Instant::now();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().map_err(|_| LabError::Protocol("a client panicked".to_owned()))??);
        }
        Ok((all, begun.elapsed()))
    })
}

fn timed(session: &mut Client, id: u64, client: u64) -> Result<u64, LabError> {
    let begun = Instant::now();
    session.run(format!("INSERT INTO test.written VALUES({id}, {client})"))?;
    Ok(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX))
}

/// Waits until no copy is under way, and counts what arrived.
fn copies(proxy: &Tidegate, mirror: &Server, writes: u64) -> Result<Copies, LabError> {
    let begun = Instant::now();
    let mut admin = proxy.admin()?;
    let mut sum = |names: &str| -> Result<u64, LabError> {
        let sql = format!("SELECT SUM(Variable_Value) FROM stats_mysql_global WHERE Variable_Name IN ({names})");
        number(admin.scalar(sql)?)
    };
    wait::try_until("the copies to be done", LIMIT, || {
        let left = sum("'Mirror_queue_length', 'Mirror_concurrency'")?;
        Ok((left == 0).then_some(()))
    })?;
    let behind_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let told = sum("'Mirror_dropped', 'Mirror_failed', 'Mirror_errors'")?;
    let arrived = number(mirror.scalar("SELECT COUNT(DISTINCT id) FROM test.written")?)?;
    let rows = number(mirror.scalar("SELECT COUNT(*) FROM test.written")?)?;
    Ok(Copies { arrived, lost: writes.saturating_sub(arrived), doubled: rows - arrived, told, behind_ms })
}

fn number(text: Option<String>) -> Result<u64, LabError> {
    let text = text.unwrap_or_default();
    text.parse::<f64>().map(|number| number as u64).map_err(|_| LabError::Protocol(format!("'{text}' is not a number")))
}

/// Charts: how fast clients write, how long they wait, and what became of the copies.
pub fn charts(measured: &[Measured]) -> Vec<Chart> {
    let bars = |title: &str, y: &str, names: &[&str], values: &dyn Fn(&Measured) -> Vec<f64>| {
        let groups = measured.iter().map(|one| (one.way.name().to_owned(), values(one))).collect();
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Chart { title: title.to_owned(), x: "way".to_owned(), y: y.to_owned(), shape: Shape::Bars { names, groups } }
    };
    let as_ms = |us: Option<u64>| us.map_or(f64::NAN, |us| us as f64 / 1000.0);
    let share = |one: &Measured, of: fn(&Copies) -> u64| {
        one.copies.as_ref().map_or(f64::NAN, |copies| of(copies) as f64 * 100.0 / one.writes.max(1) as f64)
    };
    vec![
        bars("What a write takes", "ms", &["median", "99 %"], &|one| vec![as_ms(median(&one.latencies_us)), as_ms(one.quantile(99))]),
        bars("Writes of all clients", "a second", &["writes"], &|one| vec![one.per_second as f64]),
        bars("What became of the copies", "% of writes", &["arrived", "lost", "doubled"], &|one| {
            vec![share(one, |copies| copies.arrived), share(one, |copies| copies.lost), share(one, |copies| copies.doubled)]
        }),
    ]
}

/// Heading of [`Measured::line`].
pub const HEADING: &str =
    "servers  way              writes  a second   write, ms: median     p99   proxy, us   arrived    lost    told  doubled  behind, ms";

impl Measured {
    /// One line of the table.
    pub fn line(&self) -> String {
        let shown = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
        let of = |part: fn(&Copies) -> u64| shown(self.copies.as_ref().map(part));
        format!(
            "{:<9}{:<15}{:>8}{:>10}{:>20}{:>8}{:>12}{:>10}{:>8}{:>8}{:>9}{:>12}",
            self.flavor.name(),
            self.way.name(),
            self.writes,
            self.per_second,
            ms(median(&self.latencies_us)),
            ms(self.quantile(99)),
            shown(self.cpu_us),
            of(|copies| copies.arrived),
            of(|copies| copies.lost),
            of(|copies| copies.told),
            of(|copies| copies.doubled),
            of(|copies| copies.behind_ms),
        )
    }

    /// Whether the promises held: no row is doubled, and every lost one is counted by the proxy.
    pub fn is_kept(&self) -> bool {
        self.copies.is_none_or(|copies| copies.doubled == 0 && copies.lost <= copies.told)
    }

    /// For machines. Times in us.
    pub fn json(&self) -> Value {
        let copies = self.copies.map(|copies| {
            json!({
                "arrived": copies.arrived, "lost": copies.lost, "told": copies.told, "doubled": copies.doubled, "behind_ms": copies.behind_ms,
            })
        });
        json!({
            "flavor": self.flavor.name(), "way": self.way.name(), "writes": self.writes, "per_second": self.per_second,
            "median_us": median(&self.latencies_us), "p99_us": self.quantile(99), "proxy_cpu_us": self.cpu_us, "copies": copies,
        })
    }

    fn quantile(&self, percent: usize) -> Option<u64> {
        let mut sorted = self.latencies_us.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len().saturating_sub(1) * percent / 100).copied()
    }
}
