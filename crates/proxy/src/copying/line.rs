//! Which sessions have something that waits: the youngest one and the oldest job are found in O(log n).

use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct WaitingLine {
    /// Sessions by age, each with the time at which its first job was answered, process clock, us. None: that job has no time.
    by_age: BTreeMap<u64, Option<u64>>,
    by_time: BTreeSet<(u64, u64)>,
    /// Entries that were looked at.
    #[cfg(test)]
    pub(super) looks: u64,
}

impl WaitingLine {
    /// The first job of a session was answered at this time.
    pub(super) fn set(&mut self, session: u64, first_us: Option<u64>) {
        self.remove(session);
        self.by_age.insert(session, first_us);
        self.by_time.extend(first_us.map(|us| (us, session)));
    }

    /// Nothing of a session waits.
    pub(super) fn remove(&mut self, session: u64) {
        if let Some(Some(us)) = self.by_age.remove(&session) {
            self.by_time.remove(&(us, session));
        }
    }

    /// The youngest session of which something waits.
    pub(super) fn youngest(&mut self) -> Option<u64> {
        #[cfg(test)]
        (self.looks += 1);
        self.by_age.last_key_value().map(|(session, _)| *session)
    }

    /// When the oldest job that waits was answered: process clock, us.
    pub(super) fn oldest_us(&self) -> Option<u64> {
        self.by_time.first().map(|(us, _)| *us)
    }
}
