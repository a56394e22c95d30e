//! LAST_INSERT_ID() of a session: its value, and whether the session or the backend that it is pinned to knows it.
//!
//! A reply tells an id only when its statement made one, and not every statement that changes LAST_INSERT_ID() says so. Where a reply
//! is no proof, the backend is asked before the session leaves it.
//!
//! What a text proves says `sql::insert_id_is_certain`, what parameters prove says `wire::prepared::binary_values_may_equal`. They are
//! put together for a text in `query.rs`, for an execution in `execute.rs`. Decision 0003 says why.

use crate::facts::SessionFacts;
use crate::held::Held;
use crate::state::State;
use serde::{Deserialize, Serialize};
use sql::{Analysis, Facts, Kind};
use std::mem;
use wire::reframe::ReplyFacts;

/// Who knows LAST_INSERT_ID().
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Owner {
    /// The session, which has kept it.
    #[default]
    Session,
    /// The backend that the session is pinned to.
    Backend,
    /// That backend, if it has another one than before; else the session. Example: the backend had another session's 99. After an
    /// INSERT that proves nothing it has 99: nothing has changed. It has 7: that is this session's.
    Either,
}

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LastInsertId {
    /// The last one that the session knew.
    value: u64,
    owner: Owner,
    /// The last id that a reply named since the session knew LAST_INSERT_ID() itself; 0 for none. It is the best word on it when
    /// the backend is lost before it was asked.
    replied: u64,
}

/// What a reply says of LAST_INSERT_ID().
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// The reply's id; 0 for none.
    pub id: u64,
    /// The statement may change LAST_INSERT_ID() without its reply telling: the backend was told the session's own before.
    pub changes_unseen: bool,
    /// The statement inserts.
    pub inserts: bool,
    /// The statement failed.
    pub failed: bool,
    /// The id is certainly LAST_INSERT_ID().
    pub is_certain: bool,
}

impl LastInsertId {
    /// One that the session knows.
    pub fn of(value: u64) -> Self {
        Self { value, ..Self::default() }
    }

    /// The value, where the session knows it.
    pub fn known(self) -> Option<u64> {
        self.is_known().then_some(self.value)
    }

    /// Whether the session knows it.
    pub fn is_known(self) -> bool {
        self.owner == Owner::Session
    }

    /// Whether the backend that the session is pinned to knows it.
    pub fn is_with_backend(self) -> bool {
        self.owner == Owner::Backend
    }

    /// Whether the backend has to be asked who knows it.
    pub fn is_undecided(self) -> bool {
        self.owner == Owner::Either
    }

    /// The one that a backend is told ahead of a statement: the last that the session knew.
    pub fn to_tell(self) -> u64 {
        self.value
    }

    /// A server told that it is this.
    pub fn set(&mut self, id: u64) {
        *self = Self { value: id, owner: Owner::Session, replied: self.replied };
    }

    /// The backend was asked and has `id`; it `had` this one when the session came to it. An id of before may be another session's:
    /// then the statements have left it alone, and the session's own holds.
    pub fn read(&mut self, id: u64, had: Option<u64>) {
        if self.owner == Owner::Backend || had != Some(id) {
            self.value = id;
        }
        self.owner = Owner::Session;
    }

    /// A statement ran on a backend that `had` this one. True when the reply proves that the backend has its id from now on.
    pub fn replied(&mut self, word: Word, had: Option<u64>) -> bool {
        let is_proof = !word.changes_unseen && word.id != 0 && word.inserts && word.is_certain;
        if word.changes_unseen {
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
    pub fn lose_backend(&mut self) {
        let replied = mem::take(&mut self.replied);
        if !self.is_known() && replied != 0 {
            self.value = replied;
        }
        self.owner = Owner::Session;
    }

    /// The backend is gone, and nothing happened on it that counts.
    pub fn forget_backend(&mut self) {
        self.owner = Owner::Session;
    }

    /// Another backend was brought to where the lost one was: it knows what that one knew.
    pub fn moved(&mut self) {
        if !self.is_known() {
            self.owner = Owner::Backend;
        }
    }
}

impl SessionFacts {
    /// May the statement read LAST_INSERT_ID(), and does the session know it better than the backend? Stored code may read it, though
    /// the statement's text does not say so: procedures, unknown functions, and triggers (where `in_triggers`).
    pub fn needs_insert_id(&self, wants: &State, in_triggers: impl FnOnce() -> bool, analysis: &Analysis) -> bool {
        if self.insert_id.is_with_backend() {
            return false;
        }
        let triggers = matches!(analysis.kind, Kind::Insert | Kind::Update | Kind::Delete | Kind::Replace) && in_triggers();
        analysis.facts.contains(Facts::LAST_INSERT_ID)
            || triggers
            || changes_unseen(analysis)
            || !wants.variables.is_empty() && wants.variables.get("sql_auto_is_null").is_some()
    }
}

impl SessionFacts {
    /// Notes LAST_INSERT_ID(), as far as the reply proves it. Else the backend is asked when the session leaves it. `is_certain` says
    /// whether text and parameters prove that the reply's id was generated ([`may_prove`]).
    pub fn note_insert_id(&mut self, held: Option<&mut Held>, analysis: &Analysis, reply: &ReplyFacts, is_certain: bool) {
        let had = held.as_ref().and_then(|held| held.last_insert_id());
        let word = Word {
            id: reply.last_insert_id,
            changes_unseen: changes_unseen(analysis),
            inserts: inserts(analysis),
            failed: reply.error.is_some(),
            is_certain,
        };
        if self.insert_id.replied(word, had)
            && let Some(held) = held
        {
            held.has_insert_id(word.id);
        }
    }
}

/// Whether the reply may prove LAST_INSERT_ID(), if the text does: that is read only where it can matter.
pub fn may_prove(analysis: &Analysis, reply: &ReplyFacts) -> bool {
    reply.last_insert_id != 0 && inserts(analysis) && !changes_unseen(analysis)
}

fn inserts(analysis: &Analysis) -> bool {
    matches!(analysis.kind, Kind::Insert | Kind::Replace | Kind::LoadData)
}

/// May the statement change LAST_INSERT_ID() in a way that its reply does not tell? Then the backend has to know the
/// session's own before.
fn changes_unseen(analysis: &Analysis) -> bool {
    matches!(analysis.kind, Kind::Call | Kind::Compound | Kind::Execute | Kind::LoadData)
        || analysis.facts.intersects(Facts::LAST_INSERT_ID_SET | Facts::RETURNING | Facts::MULTI | Facts::UNKNOWN_CODE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn analysis(text: &str) -> Analysis {
        sql::analyze(text.as_bytes(), sql::LexMode::default())
    }

    #[test]
    fn who_may_change_the_insert_id_unseen_gets_the_sessions_own_before() {
        for text in [
            "CALL p()",
            "EXECUTE s",
            "LOAD DATA INFILE 'f' INTO TABLE t",
            "SELECT f()",
            "UPDATE t SET a = LAST_INSERT_ID(a + 1)",
            "INSERT INTO t VALUES (1) RETURNING a",
            "INSERT INTO t VALUES (1); SELECT 1",
        ] {
            assert!(changes_unseen(&analysis(text)), "{text}");
        }
        for text in ["INSERT INTO t VALUES (1)", "SELECT LAST_INSERT_ID()", "SELECT a FROM t", "UPDATE t SET a = 1"] {
            assert!(!changes_unseen(&analysis(text)), "{text}");
        }
    }

    #[test]
    fn the_id_goes_ahead_of_what_may_read_it() {
        for (in_triggers, text, expected) in [
            (false, "SELECT LAST_INSERT_ID()", true),
            (false, "CALL p()", true),
            (false, "SELECT a FROM t", false),
            (false, "INSERT INTO t VALUES (1)", false),
            (true, "INSERT INTO t VALUES (1)", true),
            (true, "SELECT a FROM t", false),
        ] {
            let (mut facts, wants, analysis) = (SessionFacts::default(), State::default(), analysis(text));
            assert_eq!(facts.needs_insert_id(&wants, || in_triggers, &analysis), expected, "{in_triggers} {text}");
            facts.insert_id.replied(Word { changes_unseen: true, ..insert(0, false) }, None);
            assert!(!facts.needs_insert_id(&wants, || in_triggers, &analysis), "{text}: the backend knows it better");
        }
    }

    /// An INSERT that made this id.
    fn insert(id: u64, is_certain: bool) -> Word {
        Word { id, changes_unseen: false, inserts: true, failed: false, is_certain }
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
    fn a_statement_that_changes_it_unseen_leaves_it_with_the_backend() {
        let mut id = LastInsertId::of(5);
        assert!(!id.replied(Word { changes_unseen: true, ..insert(9, true) }, Some(5)));
        assert!(id.is_with_backend() && id.known().is_none());
        assert_eq!(id.to_tell(), 5);
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
