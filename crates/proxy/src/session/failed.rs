//! What a statement that failed may have left behind: an error packet tells of no change.
//!
//! Stored code may have set variables before it signalled, a trigger before a duplicate key was found, a function before the
//! next row failed. MySQL tells of it with its next OK, so it is asked for one. MariaDB tells of variables when the next change
//! is told, and of the rest never: a session keeps the backend on which code of its own failed, and one on which a trigger may
//! have left something is reset before it is lent on.

use super::effects::Effects;
use super::frontend::Frontend;
use super::query::shows_diagnostics;
use session_state::effects::changes_data_at_most;
use session_state::facts::FailedCalls;
use session_state::pins::PinReason;
use session_state::question::Question;
use sql::{Analysis, Facts, Kind};
use std::sync::atomic::Ordering;
use wire::charset::Flavor;
use wire::codes;
use wire::flags::Capabilities;
use wire::reframe::ReplyFacts;

/// Errors of what reads before anything ran: what the text says is not so, or not allowed. (Syntax, names, columns, rights, read-only.)
pub(super) const REFUSED: [u16; 31] = [
    codes::OPEN_AS_READONLY,
    codes::DBACCESS_DENIED,
    codes::ACCESS_DENIED,
    codes::NO_DB,
    codes::UNKNOWN_COM,
    codes::BAD_DB,
    codes::NON_UNIQ,
    codes::BAD_FIELD,
    codes::DUP_FIELDNAME,
    codes::PARSE,
    codes::EMPTY_QUERY,
    codes::NONUNIQ_TABLE,
    codes::WRONG_TABLE_NAME,
    codes::UNKNOWN_TABLE,
    codes::FIELD_SPECIFIED_TWICE,
    codes::INVALID_GROUP_FUNC_USE,
    codes::WRONG_VALUE_COUNT_ON_ROW,
    codes::TABLEACCESS_DENIED,
    codes::COLUMNACCESS_DENIED,
    codes::NO_SUCH_TABLE,
    codes::SYNTAX,
    codes::WRONG_ARGUMENTS,
    codes::WRONG_USAGE,
    codes::WRONG_NUMBER_OF_COLUMNS_IN_SELECT,
    codes::SPECIFIC_ACCESS_DENIED,
    codes::UNKNOWN_STMT_HANDLER,
    codes::DERIVED_MUST_HAVE_ALIAS,
    codes::OPTION_PREVENTS_STATEMENT,
    codes::VIEW_INVALID,
    codes::PROCACCESS_DENIED,
    codes::CANT_EXECUTE_IN_READ_ONLY_TRANSACTION,
];
/// Errors that data gives, and locks: no trigger's own.
const OF_DATA: [u16; 26] = [
    codes::CHECKREAD,
    codes::DUP_KEY,
    codes::BAD_NULL,
    codes::DUP_ENTRY,
    codes::RECORD_FILE_FULL,
    codes::DUP_UNIQUE,
    codes::LOCK_WAIT_TIMEOUT,
    codes::LOCK_DEADLOCK,
    codes::NO_REFERENCED_ROW,
    codes::ROW_IS_REFERENCED,
    codes::SUBQUERY_NO_1_ROW,
    codes::WARN_DATA_OUT_OF_RANGE,
    codes::WARN_DATA_TRUNCATED,
    codes::TRUNCATED_WRONG_VALUE,
    codes::NO_DEFAULT_FOR_FIELD,
    codes::DIVISION_BY_ZERO,
    codes::TRUNCATED_WRONG_VALUE_FOR_FIELD,
    codes::DATA_TOO_LONG,
    codes::CANT_CREATE_GEOMETRY_OBJECT,
    codes::ROW_IS_REFERENCED_2,
    codes::NO_REFERENCED_ROW_2,
    codes::NO_PARTITION_FOR_GIVEN_VALUE,
    codes::DUP_ENTRY_WITH_KEY_NAME,
    codes::DATA_OUT_OF_RANGE,
    codes::CHECK_CONSTRAINT_VIOLATED,
    codes::CONSTRAINT_FAILED,
];

/// Whether what failed with this error may have left anything on its connection.
pub(super) fn may_have_left(analysis: &Analysis, code: u16) -> bool {
    !analysis.facts.contains(Facts::MULTI) && (runs_code(analysis) && !is_unread(analysis, code) || data_may_have_left(analysis, code))
}

/// The same of triggers, and of functions behind views. A trigger may give any error: what its definer may not do, what it signals.
fn data_may_have_left(analysis: &Analysis, code: u16) -> bool {
    // What EXECUTE and SET STATEMENT run is looked at elsewhere: more than data, and it pins.
    let writes = matches!(
        analysis.kind,
        Kind::Insert | Kind::Update | Kind::Delete | Kind::Replace | Kind::LoadData | Kind::Execute | Kind::SetStatement
    );
    writes || changes_data_at_most(analysis.kind) && !REFUSED.contains(&code)
}

/// The text says that it runs code of the client's, or of the server's.
fn runs_code(analysis: &Analysis) -> bool {
    matches!(analysis.kind, Kind::Call | Kind::Compound) || analysis.facts.intersects(Facts::UNKNOWN_CODE)
}

/// A statement that the server could not read: `count (*)` is one. What `CALL` runs may hold such a text.
fn is_unread(analysis: &Analysis, code: u16) -> bool {
    code == codes::PARSE && changes_data_at_most(analysis.kind)
}

/// Statements that leave nothing that a later one's error could hide.
pub(super) fn leaves_nothing(analysis: &Analysis) -> bool {
    let loud = Facts::GET_LOCK | Facts::RELEASE_LOCK | Facts::USER_VARIABLE_ASSIGN | Facts::UNKNOWN_CODE;
    // The server's status tells of transactions, and its tracker of the schema.
    let is_told = matches!(analysis.kind, Kind::Begin | Kind::Commit | Kind::Rollback | Kind::Use | Kind::Empty);
    (is_told || changes_data_at_most(analysis.kind) || shows_diagnostics(analysis.kind)) && !analysis.facts.intersects(loud)
}

impl Effects<'_> {
    /// A statement failed that [`may_have_left`] something.
    pub(super) async fn look_after_failure(&mut self, analysis: &Analysis, code: u16) {
        let calls = std::mem::take(&mut self.facts.failed_calls);
        if calls == FailedCalls::Natives && !data_may_have_left(analysis, code) {
            return;
        }
        let runs_code = runs_code(analysis) && calls != FailedCalls::Natives;
        let tells = self.tells_after_failures();
        let Some(backend) = self.at.backend.as_mut() else { return };
        if tells {
            // The server says what it has not said yet. Its warnings are read by whoever wants them.
            if let Ok(reply) = self.door().ask(Question::Warnings).await {
                self.note_told(analysis, &ReplyFacts::told_by(reply.ok.status, &reply.ok.session_state));
            }
        } else if runs_code {
            if calls != FailedCalls::Judged {
                self.at.pin(PinReason::SessionState, analysis);
            }
        } else if !OF_DATA.contains(&code) || backend.core.server.has_loud_triggers.load(Ordering::Relaxed) {
            backend.core.held.ran_unseen();
        }
    }

    fn note_told(&mut self, analysis: &Analysis, told: &ReplyFacts) {
        self.note_status(analysis, told);
        self.note_changes(&[], analysis, told);
        if told.state_change {
            self.at.pin(PinReason::SessionState, analysis);
        }
    }

    /// Whether the server at hand tells with its next answer what a statement did that failed.
    pub(super) fn tells_after_failures(&self) -> bool {
        self.at.backend.as_ref().is_some_and(|backend| backend.core.info.flavor == Flavor::MySql && backend.core.held.tracks())
    }
}

impl Frontend {
    /// Whether the server refused the text before it ran anything: several statements, of a client that may say but one at a time.
    pub(super) fn is_refused_whole(&self, analysis: &Analysis, reply: &ReplyFacts) -> bool {
        let is_single = changes_data_at_most(analysis.kind)
            || shows_diagnostics(analysis.kind)
            || matches!(analysis.kind, Kind::Set | Kind::Use | Kind::Begin);
        reply.error == Some(codes::PARSE)
            && is_single
            && analysis.facts.contains(Facts::MULTI)
            && !analysis.facts.intersects(Facts::VERSIONED.union(Facts::TORN))
            && !self.caps.contains(Capabilities::MULTI_STATEMENTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_left() {
        let left = |sql: &str, code| may_have_left(&sql::analyze(sql.as_bytes(), sql::LexMode::default()), code);
        for (sql, code, expected) in [
            ("CALL p()", 1644, true),
            ("CALL p()", 1064, true),
            ("EXECUTE p", 1062, true),
            ("SELECT f(1)", 1054, true),
            ("SELECT count (*) FROM t", 1064, false),
            ("INSERT INTO t VALUES (1)", 1062, true),
            ("INSERT INTO t VALUES (1)", 1146, true),
            ("UPDATE t SET a = 1", 1142, true),
            ("SELECT * FROM t", 1142, false),
            ("INSERT INTO t VALUES (1)", 1317, true),
            ("SELECT nope", 1054, false),
            ("SELECT 1; CALL p()", 1644, false),
            ("DROP TABLE t", 1051, false),
        ] {
            assert_eq!(left(sql, code), expected, "{sql}: {code}");
        }
    }
    #[tokio::test]
    async fn mysql_is_asked_what_a_failed_statement_left_and_mariadb_cannot_be() {
        use crate::session::bed::{Bed, result_of};
        for (flavor, text, code, asks, pins, resets) in [
            (Flavor::MySql, "CALL p()", codes::DUP_ENTRY, true, false, false),
            (Flavor::MySql, "INSERT INTO t VALUES (1)", codes::DUP_ENTRY, true, false, false),
            // Stored code may have left anything.
            (Flavor::MariaDb, "CALL p()", codes::DUP_ENTRY, false, true, false),
            (Flavor::MariaDb, "SELECT f()", codes::DUP_ENTRY, false, true, false),
            // No trigger gives this error, and none was seen to leave anything; of another one it may be the trigger's.
            (Flavor::MariaDb, "INSERT INTO t VALUES (1)", codes::DUP_ENTRY, false, false, false),
            (Flavor::MariaDb, "INSERT INTO t VALUES (1)", 1644, false, false, true),
        ] {
            let mut bed = Bed::new("").on(flavor);
            if asks {
                bed.answers(&[result_of(&[])]);
            }
            let analysis = bed.analysis(text);
            bed.effects().look_after_failure(&analysis, code).await;
            let must_reset = bed.at.backend.as_ref().unwrap().core.held.must_reset();
            assert_eq!(
                (bed.sent().len(), !bed.pins().is_empty(), must_reset),
                (usize::from(asks), pins, resets),
                "{flavor:?} {text} {code}"
            );
        }
        let mut bed = Bed::new("").on(Flavor::MariaDb);
        bed.at.backend.as_ref().unwrap().core.server.has_loud_triggers.store(true, Ordering::Relaxed);
        let insert = bed.analysis("INSERT INTO t VALUES (1)");
        bed.effects().look_after_failure(&insert, codes::DUP_ENTRY).await;
        assert!(bed.at.backend.as_ref().unwrap().core.held.must_reset(), "triggers there leave something");
    }
}
