//! What a rehearsal in mode `all` makes of a statement by its text and its error alone: whether the shadow runs it, and what it did to the
//! transaction where the shadow does not.

use super::pipeline::{Form, Statement};
use super::route::TextCommand;
use super::settle::ROLLS_BACK;
use rehearsal::{Answer, Repeat, is_of_read_only, is_of_rows};
use sql::{Analysis, Facts, Kind, LexMode, Lexer, TokenKind};
use wire::codes;

/// ER_XAER_RMFAIL: the statement does not fit the state of the XA transaction.
const XAER_RMFAIL: u16 = 1399;

/// Whether the statement may have run, or a part of it, although the answer does not say so.
pub(super) fn may_have_run(statement: &Statement, answer: Option<&(Answer, u64)>) -> bool {
    let Some((answer, _)) = answer else { return true };
    Repeat::of(&statement.analysis, answer.error) == Repeat::Unknown
}

/// Whether the server may have rolled the whole transaction back with this statement, by its error. Of a deadlock that is certain.
pub(super) fn may_roll_back(analysis: &Analysis, error: Option<u16>) -> bool {
    // Other statements may have committed before they failed.
    let is_one = is_of_rows(analysis.kind) && !analysis.facts.contains(Facts::MULTI);
    is_one && error.is_some_and(|error| error != codes::LOCK_DEADLOCK && ROLLS_BACK.contains(&error))
}

/// Whether a statement that the shadow does not run may have ended the open transaction, which the shadow then ends in its place. None of
/// these has a long answer.
pub(super) fn may_end(analysis: &Analysis, error: Option<u16>) -> bool {
    let is_several = analysis.facts.contains(Facts::MULTI) || matches!(analysis.kind, Kind::Call | Kind::Compound);
    may_roll_back(analysis, error) || !is_several && !is_of_rows(analysis.kind)
}

/// What a statement did to the transaction that was open before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It is still open, or none was.
    None,
    /// It was committed.
    Commit,
    /// One or the other.
    Unknown,
}

impl Ending {
    /// Of a statement that the shadow does not run. `was_open`, `is_open`: a transaction was open before it, and is behind it.
    pub(super) fn of(analysis: &Analysis, error: Option<u16>, was_open: bool, is_open: bool) -> Self {
        let kind = analysis.kind;
        // It may have rolled back, or have ended one transaction and begun another.
        let is_several = analysis.facts.contains(Facts::MULTI) || matches!(kind, Kind::Call | Kind::Compound);
        match error {
            _ if !was_open => Self::None,
            _ if is_several => Self::Unknown,
            None if is_open || kind == Kind::Rollback => Self::None,
            None => Self::Commit,
            // What a server commits before a statement, it commits before it looks whether the statement may run (1792 too).
            Some(error) => Self::of_failed(kind, error),
        }
    }

    /// Of a statement that failed. An error does not say whether the transaction is still open.
    fn of_failed(kind: Kind, error: u16) -> Self {
        match kind {
            // An XA transaction is active, and is so still.
            _ if error == codes::PARSE || error == XAER_RMFAIL => Self::None,
            // The commit itself was refused, and the transaction rolled back, unless the statement was refused before.
            _ if is_of_read_only(error) && !is_of_rows(kind) => Self::Unknown,
            Kind::Grant | Kind::SetPassword | Kind::Flush | Kind::FlushReadLock => Self::Commit,
            Kind::Other | Kind::BackupLock => Self::Unknown,
            _ => Self::None,
        }
    }
}

/// Whether a statement changes the session wherever it runs.
pub(super) fn is_of_session(kind: Kind) -> bool {
    matches!(kind, Kind::Set | Kind::SetTransaction | Kind::SetRole | Kind::Use | Kind::Prepare | Kind::Deallocate)
}

/// Whether a statement is about the server, accounts, other sessions or locks by name.
pub(super) fn is_left_out(analysis: &Analysis, text: &[u8], lex: LexMode) -> bool {
    let locks = Facts::GET_LOCK | Facts::RELEASE_LOCK;
    match analysis.kind {
        Kind::Kill | Kind::Grant | Kind::SetPassword | Kind::Flush | Kind::FlushReadLock | Kind::BackupLock | Kind::Other => true,
        Kind::Select => analysis.facts.intersects(locks | Facts::INTO_FILE),
        Kind::Do => analysis.facts.intersects(locks),
        Kind::Set => assigned_to(text, lex).server,
        _ => false,
    }
}

pub(super) fn is_with_cursor(statement: &Statement) -> bool {
    matches!(statement.form, Form::Execution { phase, .. } if !matches!(phase, TextCommand::Execution))
}

/// Whether a SET may turn autocommit on, which commits what is open.
pub(super) fn names_autocommit(text: &[u8]) -> bool {
    const NAME: &[u8] = b"autocommit";
    text.windows(NAME.len()).any(|part| part.eq_ignore_ascii_case(NAME))
}

/// What a SET assigns to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AssignedTo {
    /// A variable of the server: GLOBAL, PERSIST.
    pub server: bool,
    /// A variable of the session.
    pub session: bool,
}

/// What a SET assigns to. A name without a scope behind one with GLOBAL may be of either.
pub(super) fn assigned_to(text: &[u8], lex: LexMode) -> AssignedTo {
    const OF_SERVER: [&[u8]; 3] = [b"global", b"persist", b"persist_only"];
    const OF_SESSION: [&[u8]; 2] = [b"session", b"local"];
    let (mut lexer, mut found, mut is_sticky) = (Lexer::new(text, lex), AssignedTo::default(), false);
    // Only the first word of an assignment, outside parentheses, can be a scope.
    let (mut is_first, mut depth) = (false, 0_u32);
    loop {
        let token = lexer.token();
        let word = token.text(text);
        let is = |words: &[&[u8]], word: &[u8]| words.iter().any(|one| word.eq_ignore_ascii_case(one));
        match token.kind {
            TokenKind::End => return found,
            TokenKind::Punct(b'(') => depth += 1,
            TokenKind::Punct(b')') => depth = depth.saturating_sub(1),
            TokenKind::Punct(b',') if depth == 0 => is_first = true,
            TokenKind::Punct(b';') => (is_first, depth) = (false, 0),
            TokenKind::Word if !is_first && depth == 0 && is(&[b"set"], word) => (is_first, is_sticky) = (true, false),
            _ if !std::mem::take(&mut is_first) => {}
            TokenKind::Word if is(&OF_SERVER, word) => (found.server, is_sticky) = (true, true),
            TokenKind::Word if is(&OF_SESSION, word) => (found.session, is_sticky) = (true, false),
            TokenKind::SystemVariable => {
                let scope = word.get(2..).and_then(|name| name.split(|byte| *byte == b'.').next()).unwrap_or_default();
                if is(&OF_SERVER, scope) { found.server = true } else { found.session = true }
            }
            TokenKind::Word | TokenKind::QuotedName => (found.session, found.server) = (true, found.server || is_sticky),
            _ => found.session = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::bed::{Bed, analysis};

    #[test]
    fn what_is_of_the_server_is_left_out() {
        let left_out = |text: &str| is_left_out(&analysis(text), text.as_bytes(), LexMode::default());
        for text in [
            "KILL 5",
            "CREATE USER a",
            "GRANT ALL ON *.* TO a",
            "SET PASSWORD = 'x'",
            "FLUSH TABLES WITH READ LOCK",
            "SET GLOBAL read_only=0",
            "SET @@global.read_only=0",
            "SET @a = IF(@b = 1, 2, 3), GLOBAL read_only = 0",
            "SET @a = 1; SET GLOBAL read_only = 0",
            "SET PERSIST max_connections=5",
            "SELECT GET_LOCK('a', 1)",
            "DO RELEASE_LOCK('a')",
            "SELECT 1 INTO OUTFILE '/tmp/x'",
            "SHUTDOWN",
        ] {
            assert!(left_out(text), "{text}");
        }
        for text in [
            "SET @a = 'global warming'",
            "SET @old = @@GLOBAL.sql_mode",
            "SET @old := @@global.sql_mode, sql_mode = ''",
            "SET sql_mode='ANSI'",
            "INSERT INTO t SELECT GET_LOCK('a', 1)",
            "UPDATE t SET a = 1",
            "TRUNCATE t",
            "CREATE TABLE t (a INT)",
            "CALL p()",
            "XA START 'a'",
        ] {
            assert!(!left_out(text), "{text}");
        }
    }

    #[tokio::test]
    async fn a_statement_that_was_stopped_may_have_run_in_part() {
        let mut bed = Bed::new("");
        let mut may = |text: &str, error| {
            let statement = Statement { command: bed.says(text), analysis: analysis(text), form: Form::Text { start: 0 } };
            may_have_run(&statement, Some(&(Answer { error, ..Answer::default() }, 0)))
        };
        for error in [1205, 1213, 1317, 1969, 3024] {
            assert!(!may("UPDATE t SET a = 1", Some(error)), "{error}");
            assert!(may("CALL p()", Some(error)) && may("ALTER TABLE t ADD b INT", Some(error)) && may("COMMIT", Some(error)), "{error}");
            assert!(may("UPDATE t SET a = 1; UPDATE t SET a = 2", Some(error)), "{error}");
        }
        assert!(!may("CALL p()", Some(1062)) && !may("CALL p()", None));
        assert!(may("CALL p()", Some(1290)) && !may("UPDATE t SET a = 1", Some(1290)) && !may("BEGIN", Some(1290)));
    }

    #[test]
    fn some_errors_may_end_the_whole_transaction() {
        for (text, error, expected) in [
            ("UPDATE t SET a = 1", Some(1205), true),
            ("SELECT a FROM t FOR UPDATE", Some(1020), true),
            ("UPDATE t SET a = 1", Some(1213), false),
            ("UPDATE t SET a = 1", Some(1062), false),
            ("UPDATE t SET a = 1", None, false),
            ("UPDATE t SET a = 1; COMMIT", Some(1020), false),
            ("CREATE TABLE t (a INT)", Some(1205), false),
            ("CALL p()", Some(1205), false),
        ] {
            assert_eq!(may_roll_back(&analysis(text), error), expected, "{text} {error:?}");
        }
    }

    #[test]
    fn what_a_set_assigns_to() {
        for (text, server, session) in [
            ("SET sql_mode='ANSI'", false, true),
            ("SET GLOBAL read_only=0", true, false),
            ("SET @@global.read_only = 0, @@persist.max_connections = 5", true, false),
            ("SET GLOBAL read_only = 0, GLOBAL max_connections = 5", true, false),
            ("SET GLOBAL TRANSACTION ISOLATION LEVEL READ COMMITTED", true, false),
            ("SET GLOBAL read_only = 0, @a = 5", true, true),
            ("SET sql_mode = '', GLOBAL read_only = 0", true, true),
            ("SET GLOBAL read_only = 0, SESSION sql_mode = ''", true, true),
            ("SET GLOBAL read_only = 0, sql_mode = ''", true, true),
            ("SET @a = IF(@b = 1, 2, 3), @@b.c = 5", false, true),
            ("SET NAMES latin1", false, true),
        ] {
            assert_eq!(assigned_to(text.as_bytes(), LexMode::default()), AssignedTo { server, session }, "{text}");
        }
    }

    #[test]
    fn failed_statements_may_have_committed_before() {
        for (text, error, ending) in [
            ("CREATE USER a", 1396, Ending::Commit),
            ("GRANT ALL ON *.* TO a", 1045, Ending::Commit),
            ("GRANT ALL TO TO a", 1064, Ending::None),
            ("SET PASSWORD FOR a = 'x'", 1133, Ending::Commit),
            ("FLUSH TABLES", 1227, Ending::Commit),
            ("KILL 5", 1094, Ending::None),
            ("SET GLOBAL read_only=0", 1227, Ending::None),
            ("SELECT GET_LOCK('a', 1)", 3058, Ending::None),
            ("RESET MASTER", 1186, Ending::Unknown),
            ("RESET RESET", 1064, Ending::None),
            ("CREATE USER a", 1399, Ending::None),
            ("CREATE USER a", 1792, Ending::Commit),
            ("CREATE USER a", 1290, Ending::Unknown),
            ("FLUSH TABLES", 1290, Ending::Unknown),
            ("BEGIN", 1290, Ending::Unknown),
            ("CREATE TABLE t (a INT)", 1290, Ending::Unknown),
            ("INSERT INTO t VALUES (1)", 1290, Ending::None),
        ] {
            assert_eq!(Ending::of(&analysis(text), Some(error), true, true), ending, "{text}");
            assert_eq!(Ending::of(&analysis(text), Some(error), false, false), Ending::None, "{text}");
        }
        for text in ["SET GLOBAL read_only=0; ROLLBACK", "CALL p()"] {
            assert_eq!([false, true].map(|is_open| Ending::of(&analysis(text), None, true, is_open)), [Ending::Unknown; 2], "{text}");
        }
        let succeeded = |was_open, is_open| Ending::of(&analysis("GRANT ALL ON *.* TO a"), None, was_open, is_open);
        assert_eq!([succeeded(true, false), succeeded(true, true), succeeded(false, false)], [Ending::Commit, Ending::None, Ending::None]);
    }
}
