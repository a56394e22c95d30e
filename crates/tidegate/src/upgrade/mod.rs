//! A new process takes this one's place without a client's noticing: `PROXYSQL UPGRADE`, `tidegate upgrade`, SIGUSR2.
//!
//! The old process starts the new one and gives it what it has: listening sockets, the lock of the data directory, the configuration in
//! force. The new one makes all ready, looks at the servers, and says so. Until then nothing has changed, and the old one serves. Then the
//! new one accepts clients, and the old one hands over its sessions and idle connections, each when it is at rest; what does not come to
//! rest within `mysql-drain_timeout` ends with it.
//!
//! | step | the old process | the new process |
//! |---|---|---|
//! | 1 | starts it, sends [`ToHeir::Start`] | reads it, compiles, starts workers, monitor, admin interface |
//! | 2 | waits, serves | looks at the servers, says [`FromHeir::Ready`], or [`FromHeir::Failed`] if it sees their roles otherwise |
//! | 3 | accepts nobody any more, sends [`ToHeir::TakeOver`] | accepts clients and administrators, runs scripts that have ended there |
//! | 4 | offers sessions, one after the other | says of each whether it has it |
//! | 5 | ends | goes on alone |
//!
//! When the new one is gone before step 5, the old one accepts clients again and goes on with what it has.

mod ask;
mod new;
mod old;
mod roles;

pub(crate) use ask::{UpgradeOptions, ask, serve, upgrade};
pub(crate) use new::{Predecessor, Seen};
pub(crate) use old::{Outcome, Successor, begin};

use model::ServerAddr;
use proxy::{Connections, Counts, Holdings, ProcessRecord};
use serde::{Deserialize, Serialize};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Version of the messages between the two: a process refuses another one.
const PROTOCOL: u32 = 2;

/// What the old process says.
#[derive(Serialize, Deserialize)]
enum ToHeir {
    /// What it is given. With it go the lock of the data directory and the listening sockets, in order.
    Start(Box<Start>),
    /// It is in charge. The old process still has this.
    TakeOver(Holdings),
    /// The old process still has this.
    Left(Holdings),
    /// Rows of the scheduler of which the old process still has a run.
    Scripts(Vec<i64>),
    /// What was counted so far: the last that it says.
    Counted(Box<Counts>),
    /// Something is to go on there; its sockets go with it.
    Offer { number: u64, record: Vec<u8> },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Start {
    protocol: u32,
    version: String,
    /// Addresses of the listening sockets.
    sockets: Vec<String>,
    /// What the admin interface gives.
    layers: Vec<u8>,
    process: ProcessRecord,
    /// Servers that an operator drains.
    drained: Vec<ServerAddr>,
    /// How many descriptors it has open.
    open_files: u64,
    /// Which servers are used where, and how.
    placements: Vec<String>,
    /// What the monitor knows of the servers, by itself so that one of another form does not keep the rest from being read. Processes of
    /// before do not send it.
    #[serde(default)]
    knowledge: Option<Vec<u8>>,
}

/// What the new process says.
#[derive(Serialize, Deserialize)]
enum FromHeir {
    /// It is ready to take over.
    Ready { version: String },
    /// It cannot, and ends.
    Failed(String),
    /// It has what was offered under this number.
    Taken(u64),
    /// It does not take it, and why.
    Refused(u64, String),
    /// KILL of a session that the old process still has.
    Kill { session: u64, is_query: bool },
    /// It has these connections.
    Holds(Connections),
    /// It was told to stop: nobody needs to go on in its place.
    Stops,
}

/// Whether the process before this one still finishes something. A third process would count what the second one has, and nothing of the
/// first one's: it does not begin meanwhile.
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
