//! The logins of the page.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::front::AdminAccount;

/// Most sessions; one more ends the one that was used least recently.
const MOST: usize = 1_024;
/// How long a session lasts at most.
const LONGEST: Duration = Duration::from_secs(12 * 3600);

/// A login of the page.
#[derive(Debug, Clone)]
pub(super) struct Viewer {
    /// The session's id, which the cookie has.
    pub id: String,
    /// The token that every change must carry, against requests of other pages.
    pub token: String,
    pub user: String,
    /// The account as of the login: another password ends the session.
    pub account: AdminAccount,
    /// The session's number in the audit log.
    pub number: u64,
    began: Instant,
    used: Instant,
}

/// The running logins, by id.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    by_id: Mutex<HashMap<String, Viewer>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// 128 random bits, in hex.
fn secret() -> String {
    let mut bytes = [0_u8; 16];
    // INVARIANT: the system's generator does not fail once the process has started; an id that can be guessed must never be given.
    aws_lc_rs::rand::fill(&mut bytes).unwrap_or_else(|_| std::process::abort());
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Sessions {
    /// Starts a session of the page. Its id goes into a cookie, its token into the page.
    pub(super) fn begin(&self, user: String, account: AdminAccount, number: u64) -> Viewer {
        let now = Instant::now();
        let viewer = Viewer { id: secret(), token: secret(), user, account, number, began: now, used: now };
        let mut all = locked(&self.by_id);
        if all.len() >= MOST {
            let oldest = all.values().min_by_key(|viewer| viewer.used).map(|viewer| viewer.id.clone());
            oldest.and_then(|id| all.remove(&id));
        }
        all.insert(viewer.id.clone(), viewer.clone());
        viewer
    }

    /// The session with this id, if it has not ended: by time, or because `is_known` says that its account has changed.
    pub(super) fn find(&self, id: &str, idle: Duration, is_known: impl Fn(&Viewer) -> bool) -> Option<Viewer> {
        let mut all = locked(&self.by_id);
        let lives = |viewer: &Viewer| viewer.used.elapsed() < idle && viewer.began.elapsed() < LONGEST && is_known(viewer);
        match all.get_mut(id) {
            Some(viewer) if lives(viewer) => {
                viewer.used = Instant::now();
                Some(viewer.clone())
            }
            Some(_) => all.remove(id).and(None),
            None => None,
        }
    }

    pub(super) fn end(&self, id: &str) {
        locked(&self.by_id).remove(id);
    }
}
