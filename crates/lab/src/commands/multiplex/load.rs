//! The load: clients that pause for about a second between statements, 3 reads to 2 writes. The table has a UUID primary key and an
//! AUTO_INCREMENT sequence column.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::differential::Rng;
use lab::{Client, ConnectOptions, LabError, Server, Tidegate, wait};

/// Thinking takes from 0.4 to 1.6 s, in ms.
const THINK_MS: (u64, u64) = (400, 1600);
/// A client thread needs little.
const STACK: usize = 256 * 1024;
/// All clients are connected after this, or the machine is too slow.
const CONNECT_LIMIT: Duration = Duration::from_secs(120);
/// Clients that log in at a time.
const LOGINS: u64 = 16;
/// Length of one sleep while thinking: how soon a client sees that the run is over.
const NAP: Duration = Duration::from_millis(200);

/// The table, with some rows to read.
pub(super) fn create_table(server: &Server) -> Result<(), LabError> {
    let mut root = server.root()?;
    root.run("USE test")?;
    root.run(
        "CREATE TABLE orders(id CHAR(36) PRIMARY KEY, seq BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, state INT NOT NULL, note VARCHAR(100), \
         UNIQUE KEY(seq))",
    )?;
    for _ in 0..100 {
        root.run("INSERT INTO orders(id, state, note) VALUES(UUID(), 0, 'at first')")?;
    }
    Ok(())
}

/// One look at both sides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Seconds since all clients were connected.
    pub(super) second: u64,
    /// Clients connected to the proxy.
    pub(super) frontends: u64,
    /// Connections of the application's user at the server.
    pub(super) backends: u64,
    /// Statements answered so far.
    pub(super) queries: u64,
}

impl Sample {
    /// Backends for each frontend.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn share(&self) -> f64 {
        self.backends as f64 / self.frontends.max(1) as f64
    }
}

/// The settings of the load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) clients: usize,
    pub(super) length: Duration,
    pub(super) seed: u64,
}

/// Shared by the clients' threads.
#[derive(Default)]
struct Progress {
    connected: AtomicU64,
    logging_in: AtomicU64,
    queries: AtomicU64,
    go: AtomicBool,
    over: AtomicBool,
}

impl Load {
    /// Connects all clients, lets them work, and counts connections once a second.
    pub(super) fn run(&self, server: &Server, proxy: &Tidegate) -> Result<Vec<Sample>, LabError> {
        let progress = Progress::default();
        let options = proxy.options("app", "app-pass").database("test");
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for number in 0..self.clients {
                let (progress, options, seed) = (&progress, &options, self.seed);
                let work = move || client(options, progress, Rng::part(seed, number as u64));
                let spawned = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
                threads.push(spawned.map_err(|source| LabError::io("start a client's thread", source))?);
            }
            let samples = self.watch(server, &progress);
            progress.over.store(true, Ordering::Release);
            for thread in threads {
                match thread.join() {
                    Ok(result) => result?,
                    Err(_) => return Err(LabError::Protocol("a client's thread panicked".to_owned())),
                }
            }
            samples
        })
    }

    fn watch(&self, server: &Server, progress: &Progress) -> Result<Vec<Sample>, LabError> {
        let mut root = server.root()?;
        let all = self.clients as u64;
        wait::until("all clients to connect", CONNECT_LIMIT, || (progress.connected.load(Ordering::Acquire) == all).then_some(()))?;
        progress.go.store(true, Ordering::Release);
        let start = Instant::now();
        let mut samples = Vec::new();
        while start.elapsed() < self.length {
            thread::sleep(Duration::from_secs(1));
            let backends = root.scalar("SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'app'")?;
            samples.push(Sample {
                second: start.elapsed().as_secs(),
                frontends: progress.connected.load(Ordering::Acquire),
                backends: backends.and_then(|text| text.parse().ok()).unwrap_or(0),
                queries: progress.queries.load(Ordering::Acquire),
            });
        }
        Ok(samples)
    }
}

fn client(options: &ConnectOptions, progress: &Progress, mut rng: Rng) -> Result<(), LabError> {
    while progress.logging_in.fetch_add(1, Ordering::AcqRel) >= LOGINS {
        progress.logging_in.fetch_sub(1, Ordering::AcqRel);
        thread::sleep(Duration::from_millis(5));
    }
    let client = Client::connect(options);
    progress.logging_in.fetch_sub(1, Ordering::AcqRel);
    let mut client = client?;
    progress.connected.fetch_add(1, Ordering::AcqRel);
    let mut think = Duration::from_millis(rng.below(THINK_MS.1));
    while pause(progress, think) {
        one_statement(&mut client, &mut rng)?;
        progress.queries.fetch_add(1, Ordering::AcqRel);
        think = Duration::from_millis(THINK_MS.0 + rng.below(THINK_MS.1 - THINK_MS.0));
    }
    progress.connected.fetch_sub(1, Ordering::AcqRel);
    client.quit()
}

/// Thinks; false when the run is over.
fn pause(progress: &Progress, think: Duration) -> bool {
    let mut left = think;
    while !progress.over.load(Ordering::Acquire) {
        let nap = left.min(NAP);
        thread::sleep(nap);
        left -= nap;
        if left.is_zero() && progress.go.load(Ordering::Acquire) {
            return true;
        }
        if left.is_zero() {
            left = NAP;
        }
    }
    false
}

fn one_statement(client: &mut Client, rng: &mut Rng) -> Result<(), LabError> {
    let seq = 1 + rng.below(100);
    match rng.below(5) {
        0 => client.run("SELECT COUNT(*), MAX(seq) FROM orders")?,
        1 | 2 => client.run(format!("SELECT id, seq, state, note FROM orders WHERE seq = {seq}"))?,
        3 => client.run("INSERT INTO orders(id, state, note) VALUES(UUID(), 1, 'by a client')")?,
        _ => client.run(format!("UPDATE orders SET state = state + 1 WHERE seq = {seq}"))?,
    };
    Ok(())
}
