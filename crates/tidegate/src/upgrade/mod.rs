//! A new process takes over without a client noticing: `PROXYSQL UPGRADE`, `tidegate upgrade`, SIGUSR2.
//!
//! The old process starts the new one and gives it its state: listening sockets, the lock of the data directory, the configuration in
//! force. The new one prepares everything, checks the servers, and reports that it is ready. Until then nothing has changed, and the old
//! one serves. Then the new one accepts clients, and the old one hands over its sessions and idle connections, each when it is at rest.
//! Sessions that are not at rest within `mysql-drain_timeout` end with the old process.
//!
//! | step | the old process | the new process |
//! |---|---|---|
//! | 1 | starts it, sends [`ToHeir::Start`] | reads it, compiles, starts workers, monitor, admin interface |
//! | 2 | waits, serves, sends its counts | checks the servers, sends [`FromHeir::Ready`], or [`FromHeir::Failed`] if their roles differ |
//! | 3 | stops accepting, sends [`ToHeir::TakeOver`] | accepts clients and administrators, runs scripts that have ended there |
//! | 4 | offers sessions, one after the other | answers for each whether it has it |
//! | 5 | ends | continues alone |
//!
//! If the new process ends before step 5, the old one accepts clients again and keeps the sessions that it still has.

mod ask;
mod new;
mod old;
mod roles;

pub(crate) use ask::{UpgradeOptions, ask, serve, upgrade};
pub(crate) use new::{Predecessor, Seen};
pub(crate) use old::{Outcome, Successor, begin};

use model::ServerAddr;
use proxy::{Changes, Connections, Counts, Holdings, ProcessRecord};
use serde::{Deserialize, Serialize};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Version of the messages between the two: a process refuses any other version.
const PROTOCOL: u32 = 2;

/// The messages of the old process.
#[derive(Serialize, Deserialize)]
enum ToHeir {
    /// The state for the start. With it travel the lock of the data directory and the listening sockets, in order.
    Start(Box<Start>),
    /// It is in charge. The old process still has this.
    TakeOver(Holdings),
    /// The old process still has this.
    Left(Holdings),
    /// Rows of the scheduler of which the old process still has a run.
    Scripts(Vec<i64>),
    /// What was counted there since the last such message: all before it is in charge, the rest later.
    Counted(Box<Counts>),
    /// Something is to go on there; its sockets go with it.
    Offer { number: u64, record: Vec<u8> },
    /// KILL of a session that the new process has taken.
    Kill { session: u64, is_query: bool },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Start {
    protocol: u32,
    version: String,
    /// Addresses of the listening sockets.
    sockets: Vec<String>,
    /// The admin interface's state.
    layers: Vec<u8>,
    process: ProcessRecord,
    /// Servers that an operator drains.
    drained: Vec<ServerAddr>,
    /// The old process's open descriptors.
    open_files: u64,
    /// Which servers are used where, and how.
    placements: Vec<String>,
    /// The monitor's knowledge of the servers. It is encoded by itself, so that an unknown form does not spoil the rest. Older versions do
    /// not send it.
    #[serde(default)]
    knowledge: Option<Vec<u8>>,
    /// The old process understands [`FromHeir::Changed`]. Older versions do not, and would take the new process for gone.
    #[serde(default)]
    hears_changes: bool,
}

/// The messages of the new process.
#[derive(Serialize, Deserialize)]
enum FromHeir {
    /// It is ready to take over.
    Ready { version: String },
    /// It cannot, and ends.
    Failed(String),
    /// It has taken the offer with this number.
    Taken(u64),
    /// It does not take it, and why.
    Refused(u64, String),
    /// KILL of a session that the old process still has.
    Kill { session: u64, is_query: bool },
    /// It has opened these connections.
    Holds(Connections),
    /// Definitions and rights as its statements have changed them.
    Changed(Changes),
    /// It was told to stop: the old process must not continue in its place.
    Stops,
}

/// Whether the process before this one is still finishing. A third process would get the second one's counts, but none of the first one's.
/// So an upgrade does not begin meanwhile.
#[derive(Default)]
pub(crate) struct Leaving {
    is: Mutex<bool>,
    over: Condvar,
}

impl Leaving {
    fn set(&self, is: bool) {
        *self.is.lock().unwrap_or_else(PoisonError::into_inner) = is;
        self.over.notify_all();
    }

    /// Waits for its end; whether that came in time.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let is = self.is.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.over.wait_timeout_while(is, limit, |is| *is);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// How servers are used, in words that two processes can compare: a hostgroup's server, and its status.
fn placements(plane: &dyn model::control::DataPlane) -> Vec<String> {
    let word = |placement: &model::fleet::Placement| format!("{} {}", placement.server.key, placement.status.as_str());
    let mut words: Vec<String> = plane.placements().iter().map(word).collect();
    words.sort();
    words.dedup();
    words
}
