//! The cost of a query for the proxy as clients grow: few active clients among many, many that ask at once, and all that ask all the time.
//!
//! The server has room for few connections, so most of a crowd waits in the proxy. The system's limit on open files bounds the number of
//! clients; the table shows the reached number.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use super::addresses::Addresses;
use super::fleet::{Fleet, Load, Run};
use super::peer::{Kind, Peer};
use super::work::Work;
use crate::client::Client;
use crate::error::LabError;
use crate::server::Server;
use crate::tidegate::Tidegate;

/// Queries a second of the active clients among many.
const PACE: u32 = 2_000;

/// How long a bystander is watched after a loss.
const AFTERWARDS: Duration = Duration::from_secs(3);

/// How long a fleet may take until its roles are found.
const SETTLED: Duration = Duration::from_secs(60);

/// One load on one number of clients.
#[derive(Clone, Debug)]
pub struct Row {
    /// How many are connected.
    pub clients: usize,
    /// The clients' work.
    pub load: &'static str,
    /// Queries a second.
    pub per_second: f64,
    /// Processor time of the proxy for each query, us.
    pub cost_us: f64,
    /// The median and the longest time of a query, ms.
    pub median_ms: f64,
    /// See `median_ms`.
    pub longest_ms: f64,
    /// Connections to the server afterwards.
    pub backends: u64,
}

/// The heading of what [`line()`] writes.
pub const HEADING: &str = "clients  load            queries/s  us/query  median ms  longest ms  backends";

/// A row as text.
pub fn line(row: &Row) -> String {
    let Row { clients, load, per_second, cost_us, median_ms, longest_ms, backends } = row;
    format!("{clients:7}  {load:14} {per_second:10.0} {cost_us:9.1} {median_ms:10.1} {longest_ms:11.1} {backends:9}")
}

/// Puts the loads on `clients` clients of a fresh proxy with at most `backends` connections. Each takes `window`.
pub fn measure(server: &Server, clients: usize, backends: i64, window: Duration, tell: &mut dyn FnMut(Row)) -> Result<(), LabError> {
    let clients = Kind::Tidegate.idle_clients(clients);
    let peer = Peer::tidegate(server, |builder| builder)?;
    let proxy = peer.as_tidegate().ok_or_else(|| LabError::Protocol("this measures Tidegate".to_owned()))?;
    let mut admin = proxy.admin()?;
    admin.run(format!("UPDATE mysql_servers SET max_connections={backends}"))?;
    admin.run("LOAD MYSQL SERVERS TO RUNTIME")?;
    let load = |pace| Load { address: peer.address(), clients, work: Work::PointText, pace };
    for (name, pace, window) in [
        ("some ask", Some(PACE), window),
        ("all at once", None, Duration::ZERO),
        ("all, again", None, window),
        ("some afterwards", Some(PACE), window),
    ] {
        let mut fleet = Fleet::open(&load(pace))?;
        let before = peer.usage()?;
        let run = fleet.run(window)?;
        let spent = peer.usage()?.since(&before).split_us().0;
        tell(row(clients, name, &run, spent, backends_of(&mut admin)?));
    }
    Ok(())
}

/// The effects on a bystander when many sessions lose their servers at once.
#[derive(Clone, Debug)]
pub struct Loss {
    /// Sessions that had a transaction open on the server that died.
    pub sessions: usize,
    /// The bystander's longest query before, ms.
    pub longest_before_ms: f64,
    /// The same in the seconds after.
    pub longest_ms: f64,
}

/// Opens a transaction in each of `sessions` sessions, kills their server, and watches a session on `other`.
pub fn lose_all(server: &Server, other: &Server, sessions: usize) -> Result<Loss, LabError> {
    let peer = Peer::tidegate(server, |builder| builder.backend(1, other).user("bystander", "bystander-pass", 1))?;
    let proxy = peer.as_tidegate().ok_or_else(|| LabError::Protocol("this measures Tidegate".to_owned()))?;
    let mut admin = proxy.admin()?;
    admin.run(format!("UPDATE mysql_servers SET max_connections={}", sessions + 10))?;
    admin.run("SET mysql-adaptive_connections='false'")?;
    admin.run("LOAD MYSQL SERVERS TO RUNTIME")?;
    admin.run("LOAD MYSQL VARIABLES TO RUNTIME")?;
    other.root()?.run("CREATE OR REPLACE USER bystander IDENTIFIED BY 'bystander-pass'")?;
    let mut held = Vec::new();
    for _ in 0..sessions {
        let mut client = Client::connect(&proxy.options(super::login::USER, super::login::PASSWORD))?;
        client.run("BEGIN")?;
        client.run("SELECT 1")?;
        held.push(client);
    }
    let mut bystander = Client::connect(&proxy.options("bystander", "bystander-pass"))?;
    let mut ask = || {
        let began = Instant::now();
        bystander.run("SELECT 1").map(|_| began.elapsed())
    };
    let mut longest_before = Duration::ZERO;
    for _ in 0..2_000 {
        longest_before = longest_before.max(ask()?);
    }
    let (began, mut longest) = (Instant::now(), Duration::ZERO);
    server.kill9();
    while began.elapsed() < AFTERWARDS {
        longest = longest.max(ask()?);
    }
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    Ok(Loss { sessions, longest_before_ms: ms(longest_before), longest_ms: ms(longest) })
}

/// The monitor's share of one processor, in percent, for `servers` servers in pairs of a writer and a reader. All are well, and the proxy
/// has nothing else to do.
pub fn monitor_pct(writable: &Server, read_only: &Server, servers: u16, window: Duration) -> Result<f64, LabError> {
    let address = |server: &Server| SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
    let addresses = Addresses::of(&[address(writable), address(read_only)], servers)?;
    let proxy = Tidegate::builder().start()?;
    let mut admin = proxy.admin()?;
    for (n, host) in addresses.hosts.iter().enumerate() {
        let (pair, is_reader) = (n / 2, n % 2);
        let (hostgroup, port) = (10 + 2 * pair + is_reader, addresses.port.number());
        admin.run(format!("INSERT INTO mysql_servers (hostgroup_id, hostname, port) VALUES ({hostgroup}, '{host}', {port})"))?;
        if is_reader == 0 {
            let row = format!("({hostgroup}, {}, 'pair')", hostgroup + 1);
            admin.run(format!("INSERT INTO mysql_replication_hostgroups (writer_hostgroup, reader_hostgroup, comment) VALUES {row}"))?;
        }
    }
    admin.run("LOAD MYSQL SERVERS TO RUNTIME")?;
    // All have been looked at, and no role changes any more.
    let well = "SELECT COUNT(DISTINCT srv_host) FROM stats_mysql_connection_pool WHERE status='ONLINE'";
    crate::wait::until("all servers to be ONLINE", SETTLED, || (admin.scalar(well).ok()?? == servers.to_string()).then_some(()))?;
    std::thread::sleep(window);
    let (before, began) = (proxy.cpu_ticks()?, Instant::now());
    std::thread::sleep(window);
    // A tick is 10 ms.
    Ok((proxy.cpu_ticks()? - before) as f64 / began.elapsed().as_secs_f64())
}

fn row(clients: usize, load: &'static str, run: &Run, spent_us: f64, backends: u64) -> Row {
    let (per_second, cost_us) = (run.completed as f64 / run.elapsed.as_secs_f64(), spent_us / run.completed.max(1) as f64);
    let ms = |quantile| run.latency.quantile_us(quantile) / 1000.0;
    Row { clients, load, per_second, cost_us, median_ms: ms(0.5), longest_ms: ms(1.0), backends }
}

/// Connections that the proxy has to its server.
fn backends_of(admin: &mut Client) -> Result<u64, LabError> {
    let count = admin.scalar("SELECT SUM(ConnUsed + ConnFree) FROM stats_mysql_connection_pool")?;
    Ok(count.and_then(|count| count.parse().ok()).unwrap_or_default())
}
