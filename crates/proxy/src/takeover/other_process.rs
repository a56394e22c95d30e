//! What the other process has, while one takes the other's place: it counts towards limits here, and KILL finds it.

use crate::servers::positions::Position;
use model::HostgroupId;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Sends a KILL to the other process: of a session, or (true) of its statement.
pub(crate) type SendKill = Box<dyn Fn(u64, bool) + Send>;

/// How many connections a process has to each server of a hostgroup.
#[derive(Serialize, Deserialize, Default)]
pub struct Connections(pub(crate) Vec<(HostgroupId, Arc<str>, u16, u32)>);

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
}

/// See the module.
#[derive(Default)]
pub(crate) struct OtherProcess(Mutex<There>);

#[derive(Default)]
struct There {
    sessions: HashMap<u64, Box<str>>,
    kill: Option<SendKill>,
}

impl OtherProcess {
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
