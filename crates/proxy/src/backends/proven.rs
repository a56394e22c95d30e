//! How a connection's login went, for another login on it.

use serde::{Deserialize, Serialize};
use wire::auth::Plugin;

/// What a login proved the password with; another one in the same connection begins with it.
pub(crate) struct Proven {
    /// The method.
    pub plugin: Plugin,
    /// What the server sent for it.
    pub scramble: Box<[u8]>,
    /// The collation that was asked for.
    pub collation: u8,
}

/// The same for another process.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProvenRecord {
    plugin: Box<str>,
    scramble: Box<[u8]>,
    collation: u8,
}

impl Proven {
    /// What another process needs of it.
    pub(crate) fn record(&self) -> ProvenRecord {
        let Self { plugin, scramble, collation } = self;
        ProvenRecord { plugin: plugin.name().into(), scramble: scramble.clone(), collation: *collation }
    }
}

impl ProvenRecord {
    /// What it was written of.
    pub(crate) fn proven(self) -> Proven {
        let Self { plugin, scramble, collation } = self;
        Proven { plugin: Plugin::from_name(plugin.as_bytes()).unwrap_or(Plugin::Native), scramble, collation }
    }
}
