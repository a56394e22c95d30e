//! What was said in an open transaction and what was answered, as far as it can be said again.
//!
//! Data only; [`crate::session::replay`] keeps and uses it. It begins with the statement that opens a transaction and ends with the
//! transaction. INVARIANT: once it has a gap it never becomes whole again.

use crate::hostgroups::replays::Stake;
use session_state::state::State;
use session_state::statement_key::StatementKey;
use sql::{Analysis, Facts, Kind, LexMode};
use std::sync::Arc;
use wire::codes;
use wire::reply_digest::ReplyDigest;

/// How far the transaction has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Progress {
    /// Nothing ran in it yet: it is as good as not begun.
    Opening,
    /// Everything that ran in it is here.
    Kept,
    /// Something ran in it that is not here.
    Lost(Gap),
}

/// Why something that ran is not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Gap {
    /// `transaction_replay` is off, or was when it ran.
    Off,
    /// It cannot be said again: session state beyond the transaction, files, several statements at once.
    Unrepeatable,
    /// `transaction_replay_max_bytes`.
    TooLarge,
    /// It was said to another process.
    HandedOver,
}

/// How a statement came.
#[derive(Clone, Debug)]
pub(in crate::session) enum How {
    /// COM_QUERY; kept is its payload without the command byte.
    Text,
    /// COM_STMT_EXECUTE of this statement; kept is its payload with the types of the parameters.
    Execution(Arc<StatementKey>),
}

/// What a statement has to do with generated ids.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::session) struct Ids {
    /// [`Said::generated`].
    pub generated: u64,
    /// [`Said::may_insert`].
    pub may_insert: bool,
}

/// One statement.
pub(in crate::session) struct Said {
    /// How it came.
    pub how: How,
    /// Where its bytes end.
    end: usize,
    /// What was answered; None where only success matters (an opening that is kept without `transaction_replay`).
    pub digest: Option<ReplyDigest>,
    /// The id that it was answered, as a rule the first that it generated; 0 for none.
    pub generated: u64,
    /// It may use up an id that is wanted of the next row.
    pub may_insert: bool,
}

/// See the module.
pub(in crate::session) struct Transcript {
    /// What the session wanted of a backend when the transaction began.
    pub state: State,
    /// LAST_INSERT_ID() then; None when only the backend knew.
    pub last_insert_id: Option<u64>,
    /// How far it has come.
    pub progress: Progress,
    /// A SET while nothing had run was not kept: the session carries it over by itself, but not to its place.
    pub carried: bool,
    /// Something that was said is no plain read.
    pub wrote: bool,
    /// BEGIN is among what was said, and not only `SET TRANSACTION`.
    pub is_open: bool,
    /// Counts it with its server, while it wrote and can be said again.
    pub stake: Option<Stake>,
    /// Why it could not be said again while the client was silent.
    pub failed: Option<Box<str>>,
    /// How many of the first statements open it.
    pub opening: usize,
    bytes: Vec<u8>,
    said: Vec<Said>,
}

/// What each statement takes beside its bytes.
const OVERHEAD: usize = size_of::<Said>();
/// Most bytes of an opening, where `transaction_replay` does not say.
pub(in crate::session) const MAX_OPENING: usize = 4096;

impl Transcript {
    /// For a transaction that begins.
    pub(in crate::session) fn new(state: State, last_insert_id: Option<u64>) -> Self {
        Self {
            state,
            last_insert_id,
            progress: Progress::Opening,
            carried: false,
            wrote: false,
            is_open: false,
            stake: None,
            failed: None,
            opening: 0,
            bytes: Vec::new(),
            said: Vec::new(),
        }
    }

    /// Keeps one statement more, whose bytes `put` appends; too much of it is a gap.
    pub(in crate::session) fn keep(&mut self, how: How, digest: Option<ReplyDigest>, ids: Ids, max: usize, put: impl FnOnce(&mut Vec<u8>)) {
        put(&mut self.bytes);
        let Ids { generated, may_insert } = ids;
        self.said.push(Said { how, end: self.bytes.len(), digest, generated, may_insert });
        if self.bytes.len() + self.said.len() * OVERHEAD > max {
            self.lose(Gap::TooLarge);
        }
    }

    /// From here on it cannot be said again. Returns whether that is new.
    pub(in crate::session) fn lose(&mut self, gap: Gap) -> bool {
        if matches!(self.progress, Progress::Lost(_)) {
            return false;
        }
        self.progress = Progress::Lost(gap);
        self.stake = None;
        self.bytes = Vec::new();
        self.said = Vec::new();
        true
    }

    /// Begins as `before` did, of which all is here.
    pub(in crate::session) fn open_as(&mut self, before: &Self) {
        for (said, bytes) in before.statements().take(before.opening) {
            self.keep(said.how.clone(), said.digest, Ids::default(), usize::MAX, |kept| kept.extend_from_slice(bytes));
        }
        self.opening = before.opening;
        self.is_open = before.is_open;
    }

    /// The ids that these statements were answered were in the rows that they wrote: none was generated.
    pub(in crate::session) fn forget_ids(&mut self, places: &[usize]) {
        for place in places {
            if let Some(said) = self.said.get_mut(*place) {
                said.generated = 0;
            }
        }
    }

    /// The statements with their bytes, in order.
    pub(in crate::session) fn statements(&self) -> impl Iterator<Item = (&Said, &[u8])> {
        let starts = std::iter::once(0).chain(self.said.iter().map(|s| s.end));
        starts.zip(&self.said).map(|(start, said)| (said, self.bytes.get(start..said.end).unwrap_or_default()))
    }
}

/// What cannot be said again in a transaction: it leaves the transaction, or leaves something behind.
const UNREPEATABLE: Facts =
    Facts::GET_LOCK.union(Facts::RELEASE_LOCK).union(Facts::INTO_FILE).union(Facts::MULTI).union(Facts::SESSION_TRACK).union(Facts::TORN);

/// A statement that is part of its transaction and of nothing else, so that it can be said again with it.
pub(in crate::session) fn is_repeatable(analysis: &Analysis) -> bool {
    let belongs = matches!(
        analysis.kind,
        Kind::Select
            | Kind::Insert
            | Kind::Replace
            | Kind::Update
            | Kind::Delete
            | Kind::Set
            | Kind::SetTransaction
            | Kind::Savepoint
            | Kind::RollbackTo
            | Kind::ReleaseSavepoint
            | Kind::Begin
            | Kind::Do
            | Kind::Show
            | Kind::ShowWarnings
            | Kind::ShowErrors
            | Kind::ShowCountWarnings
            | Kind::ShowCountErrors
            | Kind::Explain
            | Kind::Empty
    );
    belongs && !analysis.facts.intersects(UNREPEATABLE)
}

/// The same of MariaDB's `SET STATEMENT ... FOR`, whose text this is: what follows FOR runs as it would alone, and may end the
/// transaction.
pub(in crate::session) fn is_set_statement_repeatable(analysis: &Analysis, text: &[u8], lex: LexMode) -> bool {
    let inner = sql::set_statement_body(text, lex).map(|body| sql::analyze(body, lex));
    let stays = |inner: Analysis| inner.kind != Kind::Rollback && is_undone_with_its_transaction(&inner);
    !analysis.facts.intersects(UNREPEATABLE) && inner.is_some_and(stays)
}

/// A statement whose effect certainly goes with its connection while a transaction is open: it does not commit, on no way.
pub(in crate::session) fn is_undone_with_its_transaction(analysis: &Analysis) -> bool {
    // SET may set autocommit, BEGIN commits what was open.
    let may_commit = matches!(analysis.kind, Kind::Set | Kind::SetTransaction | Kind::Begin);
    is_repeatable(analysis) && !may_commit || analysis.kind == Kind::Rollback && !analysis.facts.contains(Facts::MULTI)
}

/// Errors that undo their statement and leave the transaction open (MySQL 8.4, "InnoDB Error Handling"): values that do not
/// fit, rows and names that are there or not, rights. After any other it is not known what is left.
const STATEMENT_ONLY: [u16; 29] = [
    codes::NO_DB,
    codes::BAD_NULL,
    codes::TABLE_EXISTS,
    codes::NON_UNIQ,
    codes::BAD_FIELD,
    codes::DUP_ENTRY,
    codes::PARSE,
    codes::UNKNOWN_TABLE,
    codes::WRONG_VALUE_COUNT_ON_ROW,
    codes::TABLEACCESS_DENIED,
    codes::COLUMNACCESS_DENIED,
    codes::NO_SUCH_TABLE,
    codes::NO_REFERENCED_ROW,
    codes::ROW_IS_REFERENCED,
    codes::SUBQUERY_NO_1_ROW,
    codes::WARN_DATA_OUT_OF_RANGE,
    codes::WARN_DATA_TRUNCATED,
    codes::TRUNCATED_WRONG_VALUE,
    codes::SP_DOES_NOT_EXIST,
    codes::NO_DEFAULT_FOR_FIELD,
    codes::DIVISION_BY_ZERO,
    codes::TRUNCATED_WRONG_VALUE_FOR_FIELD,
    codes::DATA_TOO_LONG,
    codes::ROW_IS_REFERENCED_2,
    codes::NO_REFERENCED_ROW_2,
    codes::DUP_ENTRY_WITH_KEY_NAME,
    codes::DATA_OUT_OF_RANGE,
    codes::CHECK_CONSTRAINT_VIOLATED,
    codes::CONSTRAINT_FAILED,
];

/// An error after which the transaction goes on.
pub(in crate::session) fn leaves_transaction(error: u16) -> bool {
    STATEMENT_ONLY.contains(&error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sql: &str) -> Analysis {
        sql::analyze(sql.as_bytes(), LexMode::default())
    }

    #[test]
    fn what_commits_is_never_taken_for_undone() {
        for sql in [
            "COMMIT",
            "COMMIT AND CHAIN",
            "BEGIN",
            "START TRANSACTION",
            "SET autocommit=1",
            "CREATE TABLE t(i INT)",
            "DROP TABLE t",
            "TRUNCATE t",
            "LOCK TABLES t READ",
            "UNLOCK TABLES",
            "CALL p()",
            "INSERT INTO t VALUES(1); COMMIT",
            "ROLLBACK; COMMIT",
            "XA COMMIT 'a'",
            "GRANT SELECT ON t TO u",
            "FLUSH TABLES",
            "EXECUTE s",
            "BEGIN NOT ATOMIC COMMIT; END",
            "ANALYZE TABLE t",
            "USE other",
            "LOAD DATA INFILE 'x' INTO TABLE t",
            "SET STATEMENT max_statement_time=1 FOR COMMIT AND CHAIN",
            "SET STATEMENT max_statement_time=1 FOR UPDATE t SET a = 1",
        ] {
            assert!(!is_undone_with_its_transaction(&of(sql)), "{sql}");
        }
        for sql in ["INSERT INTO t VALUES(1)", "SELECT 1 FOR UPDATE", "SAVEPOINT a", "ROLLBACK TO a", "ROLLBACK", "DELETE FROM t"] {
            assert!(is_undone_with_its_transaction(&of(sql)), "{sql}");
        }
    }

    #[test]
    fn deadlocks_and_timeouts_end_what_can_be_repeated() {
        for code in [1205, 1213, 1180, 1613, 1614, 1402, 3101, 1290, 1317] {
            assert!(!leaves_transaction(code), "{code}");
        }
        assert!(leaves_transaction(1062));
    }

    #[test]
    fn statements_come_back_as_they_were_and_too_much_is_a_gap() {
        let mut t = Transcript::new(State::default(), Some(0));
        for text in ["BEGIN", "", "SELECT 1"] {
            t.keep(How::Text, None, Ids::default(), 4096, |bytes| bytes.extend_from_slice(text.as_bytes()));
        }
        let all: Vec<&[u8]> = t.statements().map(|(_, bytes)| bytes).collect();
        assert_eq!(all, [&b"BEGIN"[..], b"", b"SELECT 1"]);
        t.keep(How::Text, None, Ids::default(), 4096, |bytes| bytes.resize(5000, b'x'));
        assert_eq!((t.progress, t.statements().count()), (Progress::Lost(Gap::TooLarge), 0));
        assert!(!t.lose(Gap::Off), "the first gap is the reason");
    }
}
