//! Probes the servers and reports their roles to the data plane.
//!
//! One thread with its own runtime makes the checks that [`topology::Topology`] asks for, over its own connections. A changed layout goes
//! to the data plane at once. Signals from traffic are checked within milliseconds. The tables of the schemas `monitor` and `stats` show
//! the checks and the history of role changes.

mod binlog;
mod channels;
mod client;
mod clock;
mod counts;
mod dns;
mod error;
mod healing;
mod inbox;
mod kept;
mod kept_events;
mod lane;
mod log;
mod monitor;
#[cfg(test)]
mod monitor_tests;
mod operator;
mod probe;
mod scheduler;
mod statements;
mod stats;
mod survey;
#[cfg(test)]
mod testing;
mod thread;
mod timetable;

pub use binlog::{Dumped, ErrantDump, dump_errant};
pub use error::MonitorError;
pub use monitor::Monitor;
pub use survey::{Account, Membership, Survey, Visited, execute, existing_accounts, survey};
pub use thread::MonitorThread;

use std::path::{Path, PathBuf};

/// The files that the monitor makes in this data directory.
pub fn files(datadir: &Path) -> [PathBuf; 2] {
    [kept::file(datadir), kept_events::file(datadir)]
}
