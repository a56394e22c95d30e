//! What the other process has, while one takes the other's place: it counts towards limits here, and KILL finds it.

use crate::clients::users::LearntSecrets;
use crate::servers::positions::Position;
use model::HostgroupId;
use serde::{Deserialize, Serialize};
use session_state::acknowledged::Acknowledged;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Sends a KILL to the other process: of a session, or (true) of its statement.
pub(crate) type SendKill = Box<dyn Fn(u64, bool) + Send>;

/// How many connections a process has to each server of a hostgroup.
#[derive(Serialize, Deserialize, Default)]
pub struct Connections(pub(crate) Vec<(HostgroupId, Arc<str>, u16, u32)>);

/// What statements of a process may have changed for all sessions, those of the other process too.
#[derive(Clone, Copy, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct Changes {
    /// How often something was defined. What the other process reported does not count.
    pub(crate) definitions: u64,
    /// When rights changed last (process clock, ms).
    pub(crate) rights_changed_ms: u64,
}

/// What a process has.
#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct Holdings {
    /// Ids and users of its sessions.
    pub(crate) sessions: Vec<(u64, Box<str>)>,
    /// How many connections it has.
    pub(crate) connections: Connections,
    /// Where replicas read last.
    #[serde(default)]
    pub(crate) positions: Vec<Position>,
    /// As in [`Changes`].
    #[serde(default)]
    pub(crate) rights_changed_ms: u64,
    /// As in [`Changes`].
    #[serde(default)]
    pub(crate) definitions: u64,
    /// GTIDs that clients got OK for since the last time.
    #[serde(default)]
    pub(crate) acknowledged: Vec<String>,
    /// No session of it has this id or a higher one.
    #[serde(default)]
    pub(crate) next_session_id: u64,
    /// What its logins taught of passwords since the last time.
    #[serde(default)]
    pub(crate) secrets: Vec<(Box<str>, LearntSecrets)>,
}

/// See the module.
pub(crate) struct OtherProcess(Mutex<There>);

#[derive(Default)]
struct There {
    sessions: HashMap<u64, Box<str>>,
    kill: Option<SendKill>,
    /// The highest count of definitions that it reported.
    definitions: u64,
    /// How often that was news here.
    learnt: u64,
    acknowledged: Acknowledged,
    /// How many of them the other process was told.
    told: u64,
}

impl OtherProcess {
    /// Another one than a process of so many workers. There is none yet.
    pub(crate) fn of_workers(workers: usize) -> Self {
        Self(Mutex::new(There { acknowledged: Acknowledged::of_workers(workers), ..There::default() }))
    }

    fn there(&self) -> MutexGuard<'_, There> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn user_of(&self, session: u64) -> Option<Box<str>> {
        self.there().sessions.get(&session).cloned()
    }

    /// A session has come from there; whether it was counted here already.
    pub(crate) fn has_come(&self, session: u64) -> bool {
        self.there().sessions.remove(&session).is_some()
    }

    /// Passes a KILL on: of a session, or of its statement.
    pub(crate) fn kill(&self, session: u64, is_query: bool) {
        if let Some(kill) = &self.there().kill {
            kill(session, is_query);
        }
    }

    /// Clients got OK for these GTIDs: there, or here while the other process takes over.
    pub(crate) fn acknowledge<'a>(&self, gtids: impl IntoIterator<Item = &'a [u8]>) {
        let mut there = self.there();
        gtids.into_iter().for_each(|gtids| there.acknowledged.add(gtids));
    }

    /// Asks the GTIDs of [`Self::acknowledge`].
    pub(crate) fn acknowledged<T>(&self, ask: impl FnOnce(&Acknowledged) -> T) -> T {
        ask(&self.there().acknowledged)
    }

    /// Those that the process which takes over was not told yet. They stay known here too, since that process may fail.
    pub(crate) fn take_acknowledged(&self) -> Vec<String> {
        let mut there = self.there();
        let untold = there.acknowledged.since(there.told);
        there.told = there.acknowledged.count();
        untold
    }

    /// The process that was to take over is gone: the next one knows nothing.
    pub(crate) fn failed(&self) {
        self.there().told = 0;
    }

    /// So often something was defined there. If that is more than before, `learn` counts one definition here.
    pub(crate) fn has_defined(&self, definitions: u64, learn: impl FnOnce()) {
        let mut there = self.there();
        if there.definitions < definitions {
            there.definitions = definitions;
            there.learnt += 1;
            learn();
        }
    }

    /// How many of `all` definitions are of this process. Without this the two would report each other's for ever.
    pub(crate) fn defined_here(&self, all: impl FnOnce() -> u64) -> u64 {
        let there = self.there();
        all().saturating_sub(there.learnt)
    }

    /// Another process begins to take over: it counts definitions from 0.
    pub(crate) fn begins(&self) {
        self.there().definitions = 0;
    }

    /// These sessions are there now. Answers the users of those that were not before, and of those that are no more.
    pub(crate) fn replace(&self, sessions: HashMap<u64, Box<str>>, kill: Option<SendKill>) -> (Vec<Box<str>>, Vec<Box<str>>) {
        let mut there = self.there();
        there.kill = kill.or_else(|| there.kill.take());
        let before = std::mem::replace(&mut there.sessions, sessions);
        let without = |of: &HashMap<u64, Box<str>>, than: &HashMap<u64, Box<str>>| {
            of.iter().filter(|(id, _)| !than.contains_key(id)).map(|(_, user)| user.clone()).collect()
        };
        (without(&there.sessions, &before), without(&before, &there.sessions))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each worker keeps ten thousand.
    #[test]
    fn what_all_workers_acknowledged_outlasts_an_upgrade_that_fails() {
        let process = OtherProcess::of_workers(2);
        for source in ["a", "b"] {
            let gtids: Vec<String> = (1..=10_000).map(|number| format!("{source}:{number}")).collect();
            process.acknowledge(gtids.iter().map(String::as_bytes));
        }
        let asked = ["a:1", "a:10000", "b:10000", "c:1"].map(str::to_owned);
        let known = || process.acknowledged(|known| known.which(&asked));
        assert_eq!(known(), [true, true, true, false]);
        assert_eq!(process.take_acknowledged().len(), 20_000);
        process.acknowledge([&b"c:1"[..]]);
        assert_eq!(process.take_acknowledged(), ["c:1"], "the others were told");
        process.failed();
        assert_eq!((known(), process.take_acknowledged().len()), (vec![false, true, true, true], 20_000), "the oldest one made room");
    }
}
