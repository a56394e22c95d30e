//! How long sessions wait beside statements that are slow though they were quick before. Many clients read, while a few sessions run a
//! statement that mostly takes no time, and now and then a third of a second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::builds::Build;
use super::fleet::{Fleet, Load};
use super::histogram::Histogram;
use super::login::{PASSWORD, USER};
use super::peer::{self, Peer};
use super::work::Work;
use crate::client::{Client, ConnectOptions};
use crate::error::LabError;
use crate::flavor::Flavor;
use crate::server::Server;

/// Sessions that run what is slow now and then.
const SLOW_SESSIONS: usize = 4;
/// Quick runs before each slow one.
const QUICK_RUNS: usize = 60;
const WINDOW: Duration = Duration::from_secs(4);
/// How long the table is locked, and how long it is not.
const LOCKED: Duration = Duration::from_millis(300);
const UNLOCKED: Duration = Duration::from_millis(700);

/// The heading of the lines that [`run`] tells.
pub const HEADING: &str = "beside      build          units/s  p50 ms  p99 ms  p99.9 ms  longest ms  together  sent again";

/// Why a statement is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// None is.
    Nothing,
    /// It sleeps.
    Sleep,
    /// Its table is locked.
    Lock,
}

/// For each build in turn, `repeats` times: latencies of `clients` that read points, beside each cause. Passes a line for each to `tell`.
pub fn run(builds: &[Build], flavor: Flavor, clients: usize, repeats: usize, tell: &mut dyn FnMut(String)) -> Result<(), LabError> {
    peer::raise_open_files()?;
    let server = peer::start_server(flavor)?;
    server.sql("CREATE TABLE test.locked (id INT PRIMARY KEY)")?;
    server.sql("INSERT INTO test.locked VALUES (1)")?;
    let peers: Vec<Peer> = builds.iter().map(|build| build.start(&server)).collect::<Result<_, _>>()?;
    for cause in [Cause::Nothing, Cause::Sleep, Cause::Lock] {
        let mut all = vec![(Histogram::default(), 0); peers.len()];
        let mut counts = vec![(0, 0); peers.len()];
        for _ in 0..repeats {
            for ((peer, (latency, completed)), (together, again)) in peers.iter().zip(&mut all).zip(&mut counts) {
                let before = shared(peer)?;
                *completed += measure(peer, &server, cause, clients, latency)?;
                let after = shared(peer)?;
                (*together, *again) = (*together + after.0 - before.0, *again + after.1 - before.1);
            }
        }
        for ((build, (latency, completed)), (together, again)) in builds.iter().zip(&all).zip(&counts) {
            let ms = |quantile: f64| latency.quantile_us(quantile) / 1000.0;
            let seconds = WINDOW.as_secs_f64() * repeats as f64;
            tell(format!(
                "{:<11} {:<12} {:>9.0}  {:>6.2}  {:>6.2}  {:>8.2}  {:>10.1}  {together:>8}  {again:>10}",
                format!("{cause:?}"),
                build.name,
                *completed as f64 / seconds,
                ms(0.5),
                ms(0.99),
                ms(0.999),
                ms(1.0),
            ));
        }
    }
    Ok(())
}

/// Adds a window's latencies. Returns how many commands it had.
fn measure(peer: &Peer, server: &Server, cause: Cause, clients: usize, latency: &mut Histogram) -> Result<u64, LabError> {
    let done = AtomicBool::new(false);
    let slow = match cause {
        Cause::Nothing => 0,
        Cause::Sleep | Cause::Lock => SLOW_SESSIONS,
    };
    let load = Load { address: peer.address(), clients, work: Work::PointText, pace: None };
    let mut fleet = Fleet::open(&load)?;
    let options = ConnectOptions::tcp(peer.address().to_string(), USER, PASSWORD);
    let run = thread::scope(|scope| {
        let sessions: Vec<_> = (0..slow).map(|_| scope.spawn(|| is_slow_at_times(&options, cause, &done))).collect();
        let locker = (cause == Cause::Lock).then(|| scope.spawn(|| locks(server, &done)));
        let run = fleet.run(WINDOW);
        done.store(true, Ordering::Release);
        for thread in sessions.into_iter().chain(locker) {
            thread.join().map_err(|_| LabError::Protocol("a session beside the load panicked".to_owned()))??;
        }
        run
    })?;
    latency.add(&run.latency);
    Ok(run.completed)
}

fn is_slow_at_times(options: &ConnectOptions, cause: Cause, done: &AtomicBool) -> Result<(), LabError> {
    let mut session = Client::connect(options)?;
    while !done.load(Ordering::Acquire) {
        for _ in 0..QUICK_RUNS {
            session.run(if cause == Cause::Lock { "SELECT id FROM test.locked WHERE id = 1" } else { "SELECT SLEEP(0)" })?;
        }
        if cause == Cause::Sleep {
            session.run("SELECT SLEEP(0.3)")?;
        }
    }
    Ok(())
}

fn locks(server: &Server, done: &AtomicBool) -> Result<(), LabError> {
    let mut root = server.root()?;
    while !done.load(Ordering::Acquire) {
        root.run("LOCK TABLES test.locked WRITE")?;
        thread::sleep(LOCKED);
        root.run("UNLOCK TABLES")?;
        thread::sleep(UNLOCKED);
    }
    Ok(())
}

/// How many statements have shared a connection, and how many of these were sent again.
fn shared(peer: &Peer) -> Result<(u64, u64), LabError> {
    let Some(tidegate) = peer.as_tidegate() else { return Ok((0, 0)) };
    let row = tidegate.admin()?.query("SELECT SUM(pipelined), SUM(pipelined_again) FROM stats_tidegate_waits")?.table()?;
    let mut numbers = row.into_iter().flatten().map(|n| n.and_then(|n| n.parse().ok()).unwrap_or(0));
    Ok((numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)))
}
