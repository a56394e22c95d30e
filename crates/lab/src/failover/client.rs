//! The clients: threads that work until they are told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::peer::{Route, Way};
use super::record::{ClientKind, Clock, Event, Failure, Recording};
use crate::client::Client;
use crate::error::LabError;

/// Ids of one client: its number, then a count.
const IDS_EACH: i64 = 1 << 32;
/// After an error a client waits this long before it tries again.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(20);
/// Errors after which an application's driver does not go on with a connection: it has the wrong server, or none.
const USELESS_CONNECTION: &[u16] = &[1047, 1053, 1290, 1792, 1836, 1927, 2003, 2006, 2013, 4031];

/// How many clients of each kind, and how fast they work.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Autocommit writers.
    pub writers: u32,
    /// Readers.
    pub readers: u32,
    /// Clients with transactions.
    pub transactions: u32,
    /// Clients that connect for each transaction.
    pub connectors: u32,
    /// Pause between two works of a client.
    pub think: Duration,
}

impl Load {
    /// The load of experiments: eight writers, and four of each other kind, which leave this machine some idle time.
    pub const USUAL: Load = Load { writers: 8, readers: 4, transactions: 4, connectors: 4, think: Duration::from_millis(4) };

    /// For clusters whose members must all apply what clients write, on the same few processors as everything else.
    pub const LIGHT: Load = Load { writers: 4, readers: 2, transactions: 2, connectors: 2, think: Duration::from_millis(20) };

    fn clients(self) -> impl Iterator<Item = ClientKind> {
        let many = |kind, count: u32| std::iter::repeat_n(kind, count as usize);
        many(ClientKind::Writer, self.writers)
            .chain(many(ClientKind::Reader, self.readers))
            .chain(many(ClientKind::Transaction, self.transactions))
            .chain(many(ClientKind::Connector, self.connectors))
    }
}

/// Clients at work.
#[derive(Debug)]
pub struct Clients {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Recording>>,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    is_over: AtomicBool,
    /// End of the last write that went well, us.
    last_write_us: AtomicU64,
    think: Duration,
}

impl Clients {
    /// The table that they write to.
    pub const TABLE: &str = "CREATE TABLE test.writes(n BIGINT AUTO_INCREMENT PRIMARY KEY, id BIGINT NOT NULL)";

    /// Starts them.
    pub fn start(load: Load, route: &Route, clock: Clock) -> Clients {
        let shared = Arc::new(Shared { clock, is_over: AtomicBool::new(false), last_write_us: AtomicU64::new(0), think: load.think });
        let start = |(number, kind): (usize, ClientKind)| {
            let way = if kind == ClientKind::Reader { route.reads.clone() } else { route.writes.clone() };
            let first_id = i64::try_from(number + 1).unwrap_or(1) * IDS_EACH;
            let worker = Worker { kind, way, shared: Arc::clone(&shared), client: None, next_id: first_id, notes: Recording::default() };
            thread::spawn(move || worker.run())
        };
        let threads = load.clients().enumerate().map(start).collect();
        Clients { shared, threads }
    }

    /// End of the last single write that went well, us.
    pub fn last_write_us(&self) -> u64 {
        self.shared.last_write_us.load(Ordering::Acquire)
    }

    /// Lets each client finish its work, and collects their notes.
    pub fn stop(self) -> Recording {
        self.shared.is_over.store(true, Ordering::Release);
        let mut all = Recording::default();
        for thread in self.threads {
            if let Ok(notes) = thread.join() {
                all.add(notes);
            }
        }
        all.sort();
        all
    }
}

/// One client.
struct Worker {
    kind: ClientKind,
    way: Way,
    shared: Arc<Shared>,
    client: Option<Client>,
    next_id: i64,
    notes: Recording,
}

impl Worker {
    fn run(mut self) -> Recording {
        while !self.shared.is_over.load(Ordering::Acquire) {
            let begin_us = self.shared.clock.now_us();
            let outcome = self.work();
            let end_us = self.shared.clock.now_us();
            if self.kind == ClientKind::Writer && outcome.is_ok() {
                self.shared.last_write_us.fetch_max(end_us, Ordering::AcqRel);
            }
            let pause = if outcome.is_ok() { self.shared.think } else { PAUSE_AFTER_ERROR };
            self.notes.events.push(Event { kind: self.kind, begin_us, end_us, error: outcome.err() });
            thread::sleep(pause);
        }
        self.notes
    }

    /// One work, with a new connection where one is needed.
    fn work(&mut self) -> Result<(), Failure> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => self.way.connect().map_err(|error| Failure::connecting(&error))?,
        };
        let outcome = match self.kind {
            ClientKind::Writer => self.write(&mut client),
            ClientKind::Reader => run(&mut client, "SELECT id FROM test.writes ORDER BY n DESC LIMIT 1", "read"),
            ClientKind::Transaction | ClientKind::Connector => self.transaction(&mut client),
        };
        let keeps = outcome.as_ref().err().is_none_or(|failure| !USELESS_CONNECTION.contains(&failure.code));
        if self.kind == ClientKind::Connector {
            let _ = client.quit();
        } else if keeps {
            if outcome.is_err() {
                // As a driver does that gives a connection back; a transaction may still be open.
                let _ = client.query("ROLLBACK");
            }
            self.client = Some(client);
        }
        outcome
    }

    fn write(&mut self, client: &mut Client) -> Result<(), Failure> {
        let id = self.new_id();
        run(client, &insert(id), "write")?;
        self.notes.acknowledged.push((id, self.kind.rows()));
        Ok(())
    }

    fn transaction(&mut self, client: &mut Client) -> Result<(), Failure> {
        let id = self.new_id();
        run(client, "BEGIN", "BEGIN")?;
        run(client, &insert(id), "write in a transaction")?;
        run(client, &insert(id), "write in a transaction")?;
        run(client, "COMMIT", "COMMIT")?;
        self.notes.acknowledged.push((id, self.kind.rows()));
        Ok(())
    }

    fn new_id(&mut self) -> i64 {
        self.next_id += 1;
        self.notes.tried.insert(self.next_id);
        self.next_id
    }
}

fn insert(id: i64) -> String {
    format!("INSERT INTO test.writes(id) VALUES({id})")
}

fn run(client: &mut Client, statement: &str, during: &'static str) -> Result<(), Failure> {
    let done: Result<_, LabError> = client.run(statement);
    done.map(drop).map_err(|error| Failure::running(&error, during))
}
