//! What the workers share of a user: how many connections there are, and what logins taught.

use model::pace::Pace;
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, PoisonError};

/// One user, for all workers.
#[derive(Default)]
pub(crate) struct UserShared {
    /// Frontend connections of this user.
    pub connections: AtomicU32,
    /// Its statements' places in time (`max_queries_per_second`).
    pub pace: Pace,
    secrets: Mutex<LearntSecrets>,
}

/// What logins taught us about a user's password, kept in memory only.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LearntSecrets {
    /// Clear text, from a full authentication against a stored hash.
    pub clear: Option<Vec<u8>>,
    /// SHA1(password), from a mysql_native_password login: enough to log in to servers with that plugin.
    pub sha1: Option<[u8; 20]>,
    /// SHA256(SHA256(password)): the fast path of caching_sha2_password.
    pub fast: Option<[u8; 32]>,
    /// The same of the additional password, of which nothing else is needed.
    pub additional_fast: Option<[u8; 32]>,
}

impl UserShared {
    /// What is known.
    pub(crate) fn secrets(&self) -> LearntSecrets {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps what a login proved.
    pub(crate) fn learn<T>(&self, update: impl FnOnce(&mut LearntSecrets) -> T) -> T {
        update(&mut self.secrets.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
