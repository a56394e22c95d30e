//! What the workers share of a user: how many connections there are, and what logins taught.

use model::pace::Pace;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// One user, for all workers.
#[derive(Default)]
pub(crate) struct UserShared {
    /// Frontend connections of this user.
    pub connections: AtomicU32,
    /// Its statements' places in time (`max_queries_per_second`).
    pub pace: Pace,
    secrets: Mutex<LearntSecrets>,
    /// [`Self::untold_secrets`] has not answered the latest ones.
    is_untold: AtomicBool,
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

impl LearntSecrets {
    /// Adds what another process has learnt of the same passwords and this one has not.
    pub(crate) fn add(&mut self, there: Self) {
        let Self { clear, sha1, fast, additional_fast } = there;
        self.clear = self.clear.take().or(clear);
        self.sha1 = self.sha1.or(sha1);
        self.fast = self.fast.or(fast);
        self.additional_fast = self.additional_fast.or(additional_fast);
    }
}

impl UserShared {
    /// A frontend connection of this user is gone. The count may be 0: if a reload forgets a user between the look-up and the count of a
    /// session, the session is counted on the forgotten value.
    pub(crate) fn disconnected(&self) {
        let _ = self.connections.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1));
    }

    /// What is known.
    pub(crate) fn secrets(&self) -> LearntSecrets {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps what a login proved.
    pub(crate) fn learn<T>(&self, update: impl FnOnce(&mut LearntSecrets) -> T) -> T {
        let answer = update(&mut self.secrets.lock().unwrap_or_else(PoisonError::into_inner));
        self.is_untold.store(true, Ordering::Release);
        answer
    }

    /// What is known, if that may have changed since this was asked last.
    pub(crate) fn untold_secrets(&self) -> Option<LearntSecrets> {
        self.is_untold.swap(false, Ordering::AcqRel).then(|| self.secrets())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::snapshot;
    use crate::workers::in_force::InForce;
    use crate::workers::shared::Shared;
    use std::sync::Arc;

    #[test]
    fn a_session_that_was_counted_on_a_forgotten_user_leaves_the_count_at_zero() {
        let without_users = snapshot(&[(0, "a")], "");
        let shared = Shared::new(Arc::new(InForce::compile(Arc::clone(&without_users), None).unwrap()), None, 1, None);
        let found = shared.user("u");
        shared.configure_users(&without_users, &without_users);
        found.connections.fetch_add(1, Ordering::AcqRel);
        let user = shared.user("u");
        user.disconnected();
        assert_eq!(user.connections.load(Ordering::Acquire), 0);
        user.connections.fetch_add(2, Ordering::AcqRel);
        user.disconnected();
        assert_eq!(user.connections.load(Ordering::Acquire), 1);
    }
}
