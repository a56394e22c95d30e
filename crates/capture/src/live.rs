//! The order rule ([`crate::Order`]) for a shadow that runs statements while the original still serves others.
//!
//! A statement gets its [`Place`] when its answer is complete, before the client has it. It starts on the shadow when all statements that had
//! ended before it began have ended there too: one counter of ends, one low-water mark. Writes that overlapped start in the order of their
//! [`Turn`]s, as far as the shadow knows of them. INVARIANT: as for [`crate::Order`], the place with the smallest key may always start.
//!
//! The shadow's pages differ from the original's, and so do its gap locks. A statement may wait there for a lock of a transaction whose next
//! statement waits for this one. The others may then [pass](LiveOrder::pass) it.

use crate::order::{Seqs, Turn};
use std::collections::{BTreeMap, BTreeSet};

/// What a statement does with locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Locks {
    /// It takes none that another session could wait for.
    #[default]
    None,
    /// It may write, or take locks.
    Takes,
    /// COMMIT, ROLLBACK, UNLOCK TABLES.
    Releases,
}

/// A statement that began at the original and has not ended there.
#[derive(Debug, PartialEq, Eq)]
pub struct Begun {
    after: u64,
    locks: Locks,
}

/// The place of a statement that ended at the original and not yet on the shadow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    after: u64,
    seq: u64,
    turn: Option<Turn>,
    /// A write of another session ran beside it, so that both orders are right, or it runs out of order on the shadow.
    pub is_raced: bool,
}

impl Place {
    /// The number of its end.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// It writes, or takes or releases locks.
    pub fn is_write(&self) -> bool {
        self.turn.is_some()
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct LiveOrder {
    ends: u64,
    /// Statements that have not ended on the shadow.
    open: Seqs,
    turns: BTreeSet<(Turn, u64)>,
    /// The last end of a write at the original.
    last_write: u64,
    /// Writes that run there.
    writing: u64,
    /// Writes that run on the shadow and that the others may pass.
    passed: u64,
}

impl LiveOrder {
    /// A statement begins at the original.
    pub fn begin(&mut self, locks: Locks) -> Begun {
        self.writing += u64::from(locks != Locks::None);
        Begun { after: self.ends, locks }
    }

    /// It has no end that the shadow shall see.
    pub fn forget(&mut self, begun: Begun) {
        self.writing -= u64::from(begun.locks != Locks::None);
    }

    /// Its answer is complete.
    pub fn end(&mut self, begun: Begun) -> Place {
        let Begun { after, locks } = begun;
        self.ends += 1;
        let (seq, is_write) = (self.ends, locks != Locks::None);
        self.writing -= u64::from(is_write);
        let is_raced = self.writing > 0 || self.last_write > after;
        let turn = match locks {
            Locks::None => None,
            Locks::Takes => Some(Turn::of_write(seq)),
            Locks::Releases => Some(Turn::of_release(after)),
        };
        if is_write {
            self.last_write = seq;
        }
        self.open.insert(seq);
        self.turns.extend(turn.map(|turn| (turn, seq)));
        Place { after, seq, turn, is_raced }
    }

    /// The same for the victim of a deadlock: the server rolled its transaction back, which released its locks.
    pub fn end_victim(&mut self, begun: Begun) -> Place {
        self.writing += u64::from(begun.locks == Locks::None);
        self.end(Begun { locks: Locks::Releases, ..begun })
    }

    /// Whether it may start on the shadow.
    pub fn may_start(&self, place: &Place) -> bool {
        self.has_seen(place.after) && place.turn.is_none_or(|turn| self.is_turn(turn))
    }

    /// Whether all statements have ended that had ended before a statement began. Once true, it stays true.
    fn has_seen(&self, after: u64) -> bool {
        self.open.first().is_none_or(|first| first > after)
    }

    fn is_turn(&self, turn: Turn) -> bool {
        self.turns.first().is_none_or(|(first, _)| *first >= turn)
    }

    /// This write runs on the shadow, and nobody waits for it any more. [`Self::done_passed`] follows in place of [`Self::done`].
    pub fn pass(&mut self, place: &Place) {
        self.done(place);
        self.passed += 1;
    }

    /// A write that the others could pass has ended on the shadow.
    pub fn done_passed(&mut self) {
        self.passed -= 1;
    }

    /// Whether such a write runs: what starts now may lack its effect.
    pub fn has_passed(&self) -> bool {
        self.passed > 0
    }

    /// It has ended on the shadow, or will not run there.
    pub fn done(&mut self, place: &Place) {
        self.open.remove(place.seq);
        if let Some(turn) = place.turn {
            self.turns.remove(&(turn, place.seq));
        }
    }

    /// Statements that have not ended on the shadow.
    pub fn waiting(&self) -> u64 {
        self.open.len()
    }
}

/// Those that wait until their place may start. An end on the shadow costs O(log n) for each that it lets start, however many wait.
#[derive(Debug)]
pub struct Waiting<W> {
    /// Those that wait for what they had seen, by `after` and number of the end.
    unseen: BTreeMap<(u64, u64), (Option<Turn>, W)>,
    /// Writes that wait for their turn, by turn and number of the end.
    in_turn: BTreeMap<(Turn, u64), W>,
    /// Entries that were looked at.
    #[cfg(test)]
    looks: u64,
}

impl<W> Default for Waiting<W> {
    fn default() -> Self {
        Self {
            unseen: BTreeMap::new(),
            in_turn: BTreeMap::new(),
            #[cfg(test)]
            looks: 0,
        }
    }
}

impl<W> Waiting<W> {
    /// `who` waits for this place, in place of whoever waited for it.
    pub fn insert(&mut self, order: &LiveOrder, place: &Place, who: W) {
        self.remove(place);
        match place.turn.filter(|_| order.has_seen(place.after)) {
            Some(turn) => drop(self.in_turn.insert((turn, place.seq), who)),
            None => drop(self.unseen.insert((place.after, place.seq), (place.turn, who))),
        }
    }

    /// Nobody waits for this place any more.
    pub fn remove(&mut self, place: &Place) {
        self.unseen.remove(&(place.after, place.seq));
        if let Some(turn) = place.turn {
            self.in_turn.remove(&(turn, place.seq));
        }
    }

    /// Takes out one whose place may start; None if there is none.
    pub fn pop(&mut self, order: &LiveOrder) -> Option<W> {
        while let Some(first) = self.unseen.first_entry() {
            #[cfg(test)]
            (self.looks += 1);
            let (after, seq) = *first.key();
            if !order.has_seen(after) {
                break;
            }
            match first.remove() {
                (Some(turn), who) => drop(self.in_turn.insert((turn, seq), who)),
                (None, who) => return Some(who),
            }
        }
        let first = self.in_turn.first_entry()?;
        #[cfg(test)]
        (self.looks += 1);
        order.is_turn(first.key().0).then(|| first.remove())
    }
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
