//! What an error proves of the statement that it answers: that it was not applied, and may be sent elsewhere.
//!
//! Pure: an error and what is known of the statement come in, a word goes out. INVARIANT: no proof, no retry; an error that
//! is not in the table proves nothing.

use model::HostgroupId;
use model::snapshot::Snapshot;
use sql::{Analysis, Facts, Kind};
use wire::codes;
use wire::reframe::ReplyError;

/// How a server refused a statement that it has not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is read-only.
    ReadOnly,
    /// Its transactions are read-only, and the client did not ask for that.
    ReadOnlyTransaction,
    /// It is no part of the primary component.
    NotReady,
    /// It is going, or has closed the connection; a statement that writes may have been applied.
    Leaving,
    /// The statement was never read: the error was sent before it.
    NeverRead,
    /// It conflicts with another transaction, and the whole of its own was rolled back.
    Conflict,
    /// It commits implicitly, which the assigned GTID of its transaction does not allow.
    AssignedGtid,
}

/// What an error's number and text may mean. Two errors are missing on purpose, though they sound like proofs: each also comes to
/// who waited for the others' decision when its server was cut off from them, and the others may have decided to commit.
///
/// - 3100, "Error on observer while running replication hook 'before_commit'", of a Group Replication member that leaves. Seen on
///   MySQL 9.7: the row was there, on the majority (`lab/tests/undecided.rs`).
/// - 1180, ER_ERROR_DURING_COMMIT, of a Galera node that is not in the primary component any more: the same text whether the
///   write set was sent or not, and a node of which the others heard the last acknowledgement cannot know that it was heard.
///
/// Both reach the client (3100 only where the group cannot be asked, see `group_barrier`), and make the monitor look
/// (`servers/signals.rs` of the crate `proxy`).
///
/// Source: the servers' lists of messages (errmsg-utf8.txt, messages_to_clients.txt).
const REFUSALS: &[(u16, &[&str], Refusal)] = &[
    // ER_OPTION_PREVENTS_STATEMENT; other options come with the same number.
    (codes::OPTION_PREVENTS_STATEMENT, &["--read-only", "--read_only", "--super-read-only", "--super_read_only"], Refusal::ReadOnly),
    // ER_READ_ONLY_MODE: innodb_read_only, and Aurora's readers.
    (codes::READ_ONLY_MODE, &[], Refusal::ReadOnly),
    // ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION.
    (codes::CANT_EXECUTE_IN_READ_ONLY_TRANSACTION, &[], Refusal::ReadOnlyTransaction),
    // ER_UNKNOWN_COM_ERROR, as Galera uses it.
    (codes::UNKNOWN_COM, &["WSREP"], Refusal::NotReady),
    // ER_SERVER_SHUTDOWN.
    (codes::SERVER_SHUTDOWN, &[], Refusal::Leaving),
    // MariaDB's ER_CONNECTION_KILLED.
    (codes::CONNECTION_KILLED, &[], Refusal::Leaving),
    // MySQL's ER_SESSION_WAS_KILLED.
    (codes::SESSION_WAS_KILLED, &[], Refusal::Leaving),
    // ER_LOCK_DEADLOCK: InnoDB's deadlocks, and what Galera's certification refuses.
    (codes::LOCK_DEADLOCK, &[], Refusal::Conflict),
    // ER_TRANSACTION_ROLLBACK_DURING_COMMIT: Group Replication's certification refused it, as on every member.
    (codes::TRANSACTION_ROLLBACK_DURING_COMMIT, &[], Refusal::Conflict),
    // ER_CLIENT_INTERACTION_TIMEOUT.
    (codes::CLIENT_INTERACTION_TIMEOUT, &[], Refusal::Leaving),
];

/// Errors of a connection that was ended by KILL: MariaDB's ER_CONNECTION_KILLED, MySQL's ER_SESSION_WAS_KILLED.
const KILLED: [u16; 2] = [codes::CONNECTION_KILLED, codes::SESSION_WAS_KILLED];

/// Whether this error says that an operator ended the connection.
pub fn is_killed(code: u16) -> bool {
    KILLED.contains(&code)
}

/// What the first packet of an answer proves, if it is this error. A server numbers its answer after the command, from 1;
/// what it said unasked begins with 0, so it had not read the command.
pub fn refusal(error: &ReplyError<'_>) -> Option<Refusal> {
    if error.unasked {
        return Some(Refusal::NeverRead);
    }
    let says = |words: &[&str]| words.is_empty() || words.iter().any(|w| contains(error.message, w.as_bytes()));
    REFUSALS.iter().find(|(code, words, _)| *code == error.code && says(words)).map(|(.., refusal)| *refusal)
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|w| w == word)
}

/// What a hostgroup is to the clusters of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterPart {
    /// A cluster's writers.
    Writer,
    /// Another hostgroup of a cluster.
    Member,
    /// No cluster's: its servers are what they are.
    Elsewhere,
}

impl ClusterPart {
    /// Looks the hostgroup up.
    pub fn of(hostgroup: HostgroupId, snapshot: &Snapshot) -> Self {
        if snapshot.roles.iter().any(|g| g.writer == hostgroup) {
            return Self::Writer;
        }
        if snapshot.roles.iter().any(|g| g.hostgroups().any(|h| h == hostgroup)) { Self::Member } else { Self::Elsewhere }
    }
}

/// Who asked for read-only transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOnlyBy {
    /// The client.
    Client,
    /// Nobody but the server.
    Server,
}

/// May the refused statement go to another server of its hostgroup, without the client's knowing?
pub fn moves(refusal: Refusal, analysis: &Analysis, place: ClusterPart, read_only_by: ReadOnlyBy) -> bool {
    match (place, refusal) {
        (_, Refusal::NeverRead) => true,
        (_, Refusal::AssignedGtid) => false,
        (_, Refusal::Conflict) => fails_whole(analysis),
        (ClusterPart::Elsewhere, _) => false,
        (ClusterPart::Member, Refusal::ReadOnly | Refusal::ReadOnlyTransaction) => false,
        (ClusterPart::Writer, Refusal::ReadOnlyTransaction) => fails_whole(analysis) && read_only_by == ReadOnlyBy::Server,
        (ClusterPart::Writer, Refusal::ReadOnly) | (_, Refusal::NotReady) => fails_whole(analysis),
        (_, Refusal::Leaving) => is_plain_read(analysis),
    }
}

/// Facts of a statement that leaves something behind beside rows, or that runs code which might.
const LEAVES_TRACES: Facts = Facts::GET_LOCK
    .union(Facts::RELEASE_LOCK)
    .union(Facts::USER_VARIABLE_ASSIGN)
    .union(Facts::UNKNOWN_CODE)
    .union(Facts::INTO_FILE)
    .union(Facts::LAST_INSERT_ID_SET);

/// A statement that a server undoes as a whole when it fails. Of a procedure or a block the first part may stand, and of a bulk execution
/// the rows before.
pub fn fails_whole(analysis: &Analysis) -> bool {
    let parts = matches!(analysis.kind, Kind::Call | Kind::Compound | Kind::Do | Kind::Execute | Kind::Xa);
    !parts && !analysis.facts.intersects(LEAVES_TRACES | Facts::ROW_BY_ROW)
}

/// A statement without any effect, as far as its text tells: views behind which code writes no text shows (the session's `views`).
pub fn is_plain_read(analysis: &Analysis) -> bool {
    let changes = LEAVES_TRACES | Facts::LOCKING_READ | Facts::MULTI;
    matches!(analysis.kind, Kind::Select | Kind::Show | Kind::Explain) && !analysis.facts.intersects(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sql::LexMode;

    fn seen(code: u16, message: &str) -> Option<Refusal> {
        refusal(&ReplyError { code, sqlstate: *b"HY000", message: message.as_bytes(), unasked: false })
    }

    fn goes(refusal: Refusal, sql: &str, place: ClusterPart) -> bool {
        moves(refusal, &sql::analyze(sql.as_bytes(), LexMode::default()), place, ReadOnlyBy::Server)
    }

    #[test]
    fn only_the_options_that_make_a_server_read_only() {
        let text = |option: &str| format!("The MariaDB server is running with the {option} option so it cannot execute this statement");
        assert_eq!(seen(1290, &text("--read-only")), Some(Refusal::ReadOnly));
        assert_eq!(seen(1290, &text("--super-read-only")), Some(Refusal::ReadOnly));
        assert_eq!(seen(1290, &text("--skip-grant-tables")), None);
        assert_eq!(seen(1290, &text("--secure-file-priv")), None);
        assert_eq!(seen(1836, "Running in read-only mode"), Some(Refusal::ReadOnly));
        assert_eq!(seen(1047, "WSREP has not yet prepared node for application use"), Some(Refusal::NotReady));
        assert_eq!(seen(1047, "Unknown command"), None);
        assert_eq!(seen(1062, "Duplicate entry"), None);
        assert_eq!(seen(1213, "Deadlock found"), Some(Refusal::Conflict));
        assert_eq!(seen(3101, "Plugin instructed the server to rollback the current transaction."), Some(Refusal::Conflict));
        assert_eq!(seen(1205, "Lock wait timeout exceeded"), None);
    }

    #[test]
    fn who_was_cut_off_before_the_decision_proves_nothing() {
        assert_eq!(seen(3100, "Error on observer while running replication hook 'before_commit'."), None);
        let text = "Error while appending streaming replication fragment(provider status: Not connected to Primary Component)";
        assert_eq!(seen(1180, text), None);
    }

    #[test]
    fn what_was_said_before_the_statement_says_nothing_of_it() {
        let error = ReplyError { code: 4031, sqlstate: *b"HY000", message: b"", unasked: true };
        assert_eq!(refusal(&error), Some(Refusal::NeverRead));
        assert!(goes(Refusal::NeverRead, "CALL p()", ClusterPart::Elsewhere));
    }

    #[test]
    fn only_what_fails_as_a_whole_moves() {
        for sql in ["INSERT INTO t VALUES(1)", "UPDATE t SET a=1", "DELETE FROM t", "CREATE TABLE t(i INT)", "SELECT * FROM t FOR UPDATE"] {
            assert!(goes(Refusal::ReadOnly, sql, ClusterPart::Writer), "{sql}");
            assert!(!goes(Refusal::ReadOnly, sql, ClusterPart::Member), "{sql}");
            assert!(goes(Refusal::NotReady, sql, ClusterPart::Member), "{sql}");
            assert!(!goes(Refusal::NotReady, sql, ClusterPart::Elsewhere), "{sql}");
            assert!(!goes(Refusal::Leaving, sql, ClusterPart::Writer), "{sql}");
        }
        for sql in ["CALL p()", "INSERT INTO t SELECT f()", "UPDATE t SET a=(@x:=@x+1)", "SELECT GET_LOCK('a',1)", "DO f()"] {
            assert!(!goes(Refusal::ReadOnly, sql, ClusterPart::Writer), "{sql}");
        }
        let mut bulk = sql::analyze(b"UPDATE t SET a=a+1 WHERE i=?", LexMode::default());
        assert!(moves(Refusal::ReadOnly, &bulk, ClusterPart::Writer, ReadOnlyBy::Server));
        bulk.facts |= Facts::ROW_BY_ROW;
        assert!(!moves(Refusal::ReadOnly, &bulk, ClusterPart::Writer, ReadOnlyBy::Server));
        assert!(!moves(Refusal::Conflict, &bulk, ClusterPart::Writer, ReadOnlyBy::Server));
        assert!(goes(Refusal::Leaving, "SELECT 1", ClusterPart::Writer));
        assert!(!goes(Refusal::Leaving, "SELECT 1; DELETE FROM t", ClusterPart::Writer));
    }

    #[test]
    fn a_client_that_wants_read_only_transactions_gets_their_error() {
        let insert = sql::analyze(b"INSERT INTO t VALUES(1)", LexMode::default());
        assert!(moves(Refusal::ReadOnlyTransaction, &insert, ClusterPart::Writer, ReadOnlyBy::Server));
        assert!(!moves(Refusal::ReadOnlyTransaction, &insert, ClusterPart::Writer, ReadOnlyBy::Client));
    }
}
