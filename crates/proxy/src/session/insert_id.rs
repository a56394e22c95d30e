//! LAST_INSERT_ID() of a session: its value, and whether the session or the backend that it is pinned to knows it.
//!
//! A reply tells an id only when its statement made one, and not every statement that changes LAST_INSERT_ID() says so. Where a reply
//! is no proof, the backend is asked before the session leaves it.

use serde::{Deserialize, Serialize};
use std::mem;

/// Who knows LAST_INSERT_ID().
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Owner {
    /// The session, which has kept it.
    #[default]
    Session,
    /// The backend that the session is pinned to.
    Backend,
    /// That backend, if it has another one than before; else the session.
    Either,
}

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LastInsertId {
    /// The last one that the session knew.
    value: u64,
    owner: Owner,
    /// The last id that a reply named since the session knew LAST_INSERT_ID() itself; 0 for none. It is the best word on it when
    /// the backend is lost before it was asked.
    replied: u64,
}

/// What a reply says of LAST_INSERT_ID().
#[derive(Clone, Copy, Debug)]
pub(super) struct Word {
    /// The reply's id; 0 for none.
    pub id: u64,
    /// The statement sets or shows LAST_INSERT_ID() itself: the backend was told the session's before.
    pub decides: bool,
    /// The statement inserts.
    pub inserts: bool,
    /// The statement failed.
    pub failed: bool,
    /// The id is certainly LAST_INSERT_ID().
    pub is_certain: bool,
}

impl LastInsertId {
    /// One that the session knows.
    pub(super) fn of(value: u64) -> Self {
        Self { value, ..Self::default() }
    }

    /// The value, where the session knows it.
    pub(super) fn known(self) -> Option<u64> {
        self.is_known().then_some(self.value)
    }

    /// Whether the session knows it.
    pub(super) fn is_known(self) -> bool {
        self.owner == Owner::Session
    }

    /// Whether the backend that the session is pinned to knows it.
    pub(super) fn is_with_backend(self) -> bool {
        self.owner == Owner::Backend
    }

    /// Whether the backend has to be asked who knows it.
    pub(super) fn is_undecided(self) -> bool {
        self.owner == Owner::Either
    }

    /// The last one that the session knew.
    pub(super) fn last_known(self) -> u64 {
        self.value
    }

    /// A server told that it is this.
    pub(super) fn set(&mut self, id: u64) {
        *self = Self { value: id, owner: Owner::Session, replied: self.replied };
    }

    /// The backend was asked and has `id`; it `had` this one when the session came to it. An id of before may be another session's:
    /// then the statements have left it alone, and the session's own holds.
    pub(super) fn read(&mut self, id: u64, had: Option<u64>) {
        if self.owner == Owner::Backend || had != Some(id) {
            self.value = id;
        }
        self.owner = Owner::Session;
    }

    /// A statement ran on a backend that `had` this one. True when the reply proves that the backend has its id from now on.
    pub(super) fn replied(&mut self, word: Word, had: Option<u64>) -> bool {
        let is_proof = !word.decides && word.id != 0 && word.inserts && word.is_certain;
        if word.decides {
            self.owner = Owner::Backend;
        } else if is_proof {
            (self.value, self.owner) = (word.id, Owner::Session);
        } else if self.is_known() && (word.id != 0 || word.inserts && word.failed) {
            // An id that differs from what the backend had must be the statement's.
            let knows = had == Some(self.value) || word.id != 0 && had == Some(word.id);
            self.owner = if knows { Owner::Backend } else { Owner::Either };
        }
        match (self.owner, word.id) {
            (Owner::Session, _) => self.replied = 0,
            (_, 0) => {}
            (_, id) => self.replied = id,
        }
        is_proof
    }

    /// The backend is gone: what replies named is the best word on it.
    pub(super) fn lose_backend(&mut self) {
        let replied = mem::take(&mut self.replied);
        if !self.is_known() && replied != 0 {
            self.value = replied;
        }
        self.owner = Owner::Session;
    }

    /// The backend is gone, and nothing happened on it that counts.
    pub(super) fn forget_backend(&mut self) {
        self.owner = Owner::Session;
    }

    /// Another backend was brought to where the lost one was: it knows what that one knew.
    pub(super) fn moved(&mut self) {
        if !self.is_known() {
            self.owner = Owner::Backend;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An INSERT that made this id.
    fn insert(id: u64, is_certain: bool) -> Word {
        Word { id, decides: false, inserts: true, failed: false, is_certain }
    }

    #[test]
    fn a_proof_is_kept_and_the_backend_has_it() {
        let mut id = LastInsertId::of(5);
        assert!(id.replied(insert(7, true), Some(5)));
        assert_eq!(id.known(), Some(7));
        assert!(!id.replied(Word { id: 0, inserts: false, ..insert(0, true) }, Some(7)), "a SELECT changes nothing");
        assert_eq!(id.known(), Some(7));
    }

    #[test]
    fn what_is_no_proof_is_asked_for() {
        let mut id = LastInsertId::of(5);
        assert!(!id.replied(insert(7, false), Some(5)));
        assert!(id.is_with_backend(), "the backend had the session's: whatever it has now is the session's");
        id.read(8, Some(5));
        assert_eq!(id.known(), Some(8));

        let mut id = LastInsertId::of(5);
        id.replied(insert(7, false), Some(99));
        assert!(id.is_undecided(), "the backend had another session's");
        let mut unchanged = id;
        unchanged.read(99, Some(99));
        assert_eq!(unchanged.known(), Some(5), "it has still the other session's");
        id.read(7, Some(99));
        assert_eq!(id.known(), Some(7));
    }

    #[test]
    fn a_failed_insert_may_have_changed_it() {
        let mut id = LastInsertId::of(5);
        id.replied(Word { failed: true, ..insert(0, false) }, None);
        assert!(id.is_undecided());
        let mut id = LastInsertId::of(5);
        id.replied(Word { failed: true, inserts: false, ..insert(0, false) }, None);
        assert_eq!(id.known(), Some(5));
    }

    #[test]
    fn a_statement_that_sets_it_leaves_it_with_the_backend() {
        let mut id = LastInsertId::of(5);
        assert!(!id.replied(Word { decides: true, ..insert(9, true) }, Some(5)));
        assert!(id.is_with_backend() && id.known().is_none());
        assert_eq!(id.last_known(), 5);
    }

    #[test]
    fn a_lost_backend_leaves_what_replies_named() {
        let mut id = LastInsertId::of(5);
        id.replied(insert(7, false), None);
        id.lose_backend();
        assert_eq!(id.known(), Some(7));
        id.lose_backend();
        assert_eq!(id.known(), Some(7), "what a reply named before counts once");

        let mut id = LastInsertId::of(5);
        id.replied(insert(7, false), None);
        id.forget_backend();
        assert_eq!(id.known(), Some(5), "what was rolled back with the connection does not count");
    }

    #[test]
    fn a_backend_that_was_brought_there_knows_it() {
        let mut id = LastInsertId::of(5);
        id.moved();
        assert_eq!(id.known(), Some(5));
        id.replied(insert(7, false), None);
        id.moved();
        assert!(id.is_with_backend());
    }
}
