//! The view of clients while servers, networks and other clients fail: an answer, an error with the reason, or a close with a reason in the
//! log.
//!
//! A client never hangs and never sees another's state. Connections and memory never exceed their limits.

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
