//! What a process takes over from the one before it, beside its sessions.

use crate::clients::users::LearntSecrets;
use ::handover::Sockets;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a start takes over from another process.
pub struct Inheritance {
    /// The listening sockets.
    pub sockets: Arc<Sockets>,
    /// The rest.
    pub process: Option<ProcessRecord>,
}

impl Default for Inheritance {
    /// Nothing.
    fn default() -> Self {
        Self { sockets: Sockets::fresh(), process: None }
    }
}

/// What goes with the process as a whole.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessRecord {
    /// Where the process clock begins, ns of the system's monotonic clock.
    pub(crate) clock_origin_ns: u64,
    /// No session had this id or a higher one when the record was made.
    pub(crate) next_session_id: u64,
    pub(crate) secrets: Vec<(Box<str>, LearntSecrets)>,
    /// Clients are not accepted.
    pub is_paused: bool,
}
