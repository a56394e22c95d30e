//! The clients' notes: works with their begin, end and outcome, and acknowledged rows.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::error::LabError;

/// The permanent work of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientKind {
    /// Single INSERTs on one connection.
    Writer,
    /// SELECTs on one connection, from the readers.
    Reader,
    /// BEGIN, two INSERTs, COMMIT on one connection.
    Transaction,
    /// The same, on a new connection each time.
    Connector,
}

impl ClientKind {
    /// All of them.
    pub const ALL: [ClientKind; 4] = [ClientKind::Writer, ClientKind::Reader, ClientKind::Transaction, ClientKind::Connector];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            ClientKind::Writer => "writer",
            ClientKind::Reader => "reader",
            ClientKind::Transaction => "transaction",
            ClientKind::Connector => "connect per transaction",
        }
    }

    /// Rows that a committed work of this kind leaves.
    pub fn rows(self) -> u64 {
        match self {
            ClientKind::Writer => 1,
            ClientKind::Reader => 0,
            ClientKind::Transaction | ClientKind::Connector => 2,
        }
    }
}

/// Zero of all times of one run.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Starts now.
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    /// Now, us.
    pub fn now_us(self) -> u64 {
        self.at_us(Instant::now())
    }

    /// An instant, us; 0 if it is before the start.
    pub fn at_us(self, instant: Instant) -> u64 {
        u64::try_from(instant.saturating_duration_since(self.0).as_micros()).unwrap_or(u64::MAX)
    }
}

/// One work: a statement, a transaction, or an attempt to connect that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The client's kind.
    pub kind: ClientKind,
    /// Begin, us.
    pub begin_us: u64,
    /// End, us.
    pub end_us: u64,
    /// None if it succeeded.
    pub error: Option<Failure>,
}

/// An error as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failure {
    /// MySQL's number; the client libraries' 2003 for a connect that failed, 2013 for a connection that was lost.
    pub code: u16,
    /// The act that failed.
    pub during: &'static str,
    /// The text, once for each code in reports.
    pub text: String,
}

impl Failure {
    /// A connect failed.
    pub(super) fn connecting(error: &LabError) -> Failure {
        Failure::new(error, "connect", 2003)
    }

    /// A statement failed.
    pub(super) fn running(error: &LabError, during: &'static str) -> Failure {
        Failure::new(error, during, 2013)
    }

    fn new(error: &LabError, during: &'static str, lost: u16) -> Failure {
        Failure { code: error.code().unwrap_or(lost), during, text: error.to_string() }
    }
}

/// The notes of all clients of a run.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// Ordered by their ends.
    pub events: Vec<Event>,
    /// Ids that a client was told are committed, with the rows that each must have.
    pub acknowledged: Vec<(i64, u64)>,
    /// Ids that were tried.
    pub tried: BTreeSet<i64>,
}

impl Recording {
    /// Adds another client's notes.
    pub(super) fn add(&mut self, other: Recording) {
        self.events.extend(other.events);
        self.acknowledged.extend(other.acknowledged);
        self.tried.extend(other.tried);
    }

    pub(super) fn sort(&mut self) {
        self.events.sort_by_key(|event| event.end_us);
    }

    /// Ends of works that went well, us.
    pub fn successes(&self, kind: ClientKind) -> impl Iterator<Item = u64> + '_ {
        self.events.iter().filter(move |event| event.kind == kind && event.error.is_none()).map(|event| event.end_us)
    }

    /// Works that failed.
    pub fn failures(&self) -> impl Iterator<Item = (&Event, &Failure)> {
        self.events.iter().filter_map(|event| event.error.as_ref().map(|failure| (event, failure)))
    }
}
