//! Which server a replica that replicates by file and position read last: its position means something there only.
//!
//! One for the process. A dump by GTID goes on at any server, so it leaves nothing here. A replica is known by its user and its `server_id`.
//! INVARIANT: a position is never asked of another server than the one it was read on, unless nobody remembers that.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
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

/// A replica: its user and its `server_id`.
type Who = (Box<str>, u32);

#[derive(Default)]
struct Known {
    replicas: BTreeMap<Who, Position>,
    /// When the positions began that were removed. The process before this one may still remember them.
    removed: BTreeMap<Who, u64>,
}

impl Known {
    fn reads(&mut self, position: Position) {
        self.replicas.insert((position.user.clone(), position.server_id), position);
        if self.replicas.len() > MAX_REPLICAS
            && let Some(oldest) = self.replicas.iter().min_by_key(|(_, position)| position.since_ms).map(|(who, _)| who.clone())
        {
            self.replicas.remove(&oldest);
        }
    }

    /// Removes the positions that `is_gone` names, also for [`Positions::take_over`]. Returns how many there were.
    fn remove(&mut self, is_gone: impl Fn(&Who) -> bool) -> usize {
        let before = self.replicas.len();
        let removed = &mut self.removed;
        self.replicas.retain(|who, position| {
            let goes = is_gone(who);
            if goes {
                removed.insert(who.clone(), position.since_ms);
            }
            !goes
        });
        while removed.len() > MAX_REPLICAS {
            removed.pop_first();
        }
        before - self.replicas.len()
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Positions(Mutex<Known>);

impl Positions {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a replica may go on from its position at this server.
    ///
    /// # Errors
    /// It read at another one last: that one's address.
    pub(crate) fn may_go_on(&self, user: &str, server_id: u32, identity: &str) -> Result<(), Box<str>> {
        match self.known().replicas.get_mut(&(user.into(), server_id)).filter(|position| *position.identity != *identity) {
            None => Ok(()),
            Some(position) => {
                position.refused += 1;
                Err(position.server.clone())
            }
        }
    }

    /// A replica reads there from here on.
    pub(crate) fn reads(&self, position: Position) {
        self.known().reads(position);
    }

    pub(crate) fn goes_by_gtid(&self, user: &str, server_id: u32) {
        self.known().remove(|(name, id)| **name == *user && *id == server_id);
    }

    /// Forgets where replicas with this `server_id` read. Returns how many there were.
    pub(crate) fn forget(&self, server_id: u32) -> usize {
        self.known().remove(|(_, id)| *id == server_id)
    }

    /// All of them, by user and `server_id`.
    pub(crate) fn all(&self) -> Vec<Position> {
        self.known().replicas.values().cloned().collect()
    }

    /// Takes over all that another process remembers, where it is newer. What was removed here stays so until the replica begins there again.
    pub(crate) fn take_over(&self, all: Vec<Position>) {
        let mut known = self.known();
        let known = &mut *known;
        let there: BTreeSet<Who> = all.iter().map(|position| (position.user.clone(), position.server_id)).collect();
        known.removed.retain(|who, _| there.contains(who));
        for position in all {
            let who = (position.user.clone(), position.server_id);
            let is_newer = |since_ms: u64| since_ms < position.since_ms;
            let here = known.replicas.get(&who).map(|known| known.since_ms);
            if here.is_none_or(is_newer) && known.removed.get(&who).copied().is_none_or(is_newer) {
                known.reads(position);
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

    #[test]
    fn what_was_removed_does_not_come_back_from_the_other_process() {
        let positions = Positions::default();
        let all = || vec![position(7, "a", 4), position(8, "a", 4), position(9, "a", 4)];
        positions.take_over(all());
        assert_eq!(positions.forget(7), 1);
        positions.goes_by_gtid("repl", 8);
        positions.take_over(all());
        assert_eq!(positions.all(), [position(9, "a", 4)]);
        positions.take_over(vec![position(7, "b", 5), position(9, "a", 4)]);
        assert_eq!(positions.all(), [position(7, "b", 5), position(9, "a", 4)], "it began there again");
        assert_eq!(positions.forget(7), 1);
        positions.take_over(Vec::new());
        assert!(positions.known().removed.is_empty(), "the other process has ended");
    }
}
