//! What clients see while servers, networks and other clients fail: an answer, an error that says why, or a close with a
//! reason in the log; never a hang, never another's state, never more connections or memory than was allowed.

#![allow(clippy::unwrap_used, clippy::expect_used)] // tests may panic

#[path = "faults/bed.rs"]
mod bed;
#[path = "faults/clients.rs"]
mod clients;
#[path = "faults/files.rs"]
mod files;
#[path = "faults/limits.rs"]
mod limits;
#[path = "faults/network.rs"]
mod network;
#[path = "faults/passthrough.rs"]
mod passthrough;
#[path = "faults/results.rs"]
mod results;
#[path = "faults/servers.rs"]
mod servers;
#[path = "faults/shutdown.rs"]
mod shutdown;
