//! Which server a replica that replicates by file and position read last: its position means something there only.
//!
//! One for the process. A dump by GTID goes on at any server, so it leaves nothing here. A replica is known by its user and its `server_id`.
//! INVARIANT: a position is never asked of another server than the one it was read on, unless nobody remembers that.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Replicas that are remembered at most; the one that began longest ago goes.
const MAX_REPLICAS: usize = 4096;

/// Where a replica read last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Position {
    /// Its user.
    pub user: Box<str>,
    /// Its `server_id`.
    pub server_id: u32,
    /// The server's address.
    pub server: Box<str>,
    /// What that server calls itself: `server_uuid` on MySQL, `server_id` on MariaDB.
    pub identity: Box<str>,
    /// The file and the position that it began from.
    pub from: Box<str>,
    /// When it began (process clock, ms).
    pub since_ms: u64,
    /// How often another server has refused it since.
    pub refused: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Positions(Mutex<BTreeMap<(Box<str>, u32), Position>>);

impl Positions {
    fn known(&self) -> MutexGuard<'_, BTreeMap<(Box<str>, u32), Position>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a replica may go on from its position at this server.
    ///
    /// # Errors
    /// It read at another one last: that one's address.
    pub(crate) fn may_go_on(&self, user: &str, server_id: u32, identity: &str) -> Result<(), Box<str>> {
        match self.known().get_mut(&(user.into(), server_id)).filter(|position| *position.identity != *identity) {
            None => Ok(()),
            Some(position) => {
                position.refused += 1;
                Err(position.server.clone())
            }
        }
    }

    /// A replica reads there from here on.
    pub(crate) fn reads(&self, position: Position) {
        let mut known = self.known();
        known.insert((position.user.clone(), position.server_id), position);
        if known.len() > MAX_REPLICAS
            && let Some(oldest) = known.iter().min_by_key(|(_, position)| position.since_ms).map(|(who, _)| who.clone())
        {
            known.remove(&oldest);
        }
    }

    pub(crate) fn goes_by_gtid(&self, user: &str, server_id: u32) {
        self.known().remove(&(user.into(), server_id));
    }

    /// Forgets where replicas with this `server_id` read. Returns how many there were.
    pub(crate) fn forget(&self, server_id: u32) -> usize {
        let mut known = self.known();
        let before = known.len();
        known.retain(|(_, id), _| *id != server_id);
        before - known.len()
    }

    /// All of them, by user and `server_id`.
    pub(crate) fn all(&self) -> Vec<Position> {
        self.known().values().cloned().collect()
    }

    /// Takes over what another process remembers, where it is newer.
    pub(crate) fn take_over(&self, all: Vec<Position>) {
        for position in all {
            let who = (position.user.clone(), position.server_id);
            if self.known().get(&who).is_none_or(|known| known.since_ms < position.since_ms) {
                self.reads(position);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(server_id: u32, server: &str, since_ms: u64) -> Position {
        let [user, server, identity, from] = ["repl", server, server, "bin.000001:4"].map(Box::from);
        Position { user, server_id, server, identity, from, since_ms, refused: 0 }
    }

    #[test]
    fn a_position_is_good_at_its_server_until_that_is_forgotten() {
        let positions = Positions::default();
        assert_eq!(positions.may_go_on("repl", 7, "b"), Ok(()), "nobody knows it");
        positions.reads(position(7, "a", 1));
        assert_eq!(positions.may_go_on("repl", 7, "a"), Ok(()));
        assert_eq!(positions.may_go_on("repl", 7, "b"), Err("a".into()));
        assert_eq!((positions.may_go_on("repl", 8, "b"), positions.may_go_on("other", 7, "b")), (Ok(()), Ok(())));
        assert_eq!(positions.all()[0].refused, 1);
        assert_eq!((positions.forget(8), positions.forget(7)), (0, 1));
        assert_eq!(positions.may_go_on("repl", 7, "b"), Ok(()));
        positions.reads(position(7, "b", 2));
        positions.goes_by_gtid("repl", 7);
        assert_eq!(positions.may_go_on("repl", 7, "a"), Ok(()));
    }

    #[test]
    fn the_one_that_began_longest_ago_goes() {
        let positions = Positions::default();
        for server_id in 0..=MAX_REPLICAS as u32 {
            positions.reads(position(server_id, "a", u64::from(server_id)));
        }
        assert_eq!((positions.all().len(), positions.all()[0].server_id), (MAX_REPLICAS, 1));
    }

    #[test]
    fn of_two_processes_the_later_one_is_right() {
        let positions = Positions::default();
        positions.reads(position(7, "b", 5));
        positions.take_over(vec![position(7, "a", 4), position(8, "a", 4)]);
        assert_eq!(positions.all(), [position(7, "b", 5), position(8, "a", 4)]);
        positions.take_over(vec![position(7, "a", 6)]);
        assert_eq!(positions.may_go_on("repl", 7, "b"), Err("a".into()));
    }
}
