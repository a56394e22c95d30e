//! Which statements begin pins, and which end them: docs/reference/pins.md, row by row.

use crate::backends::cleaning::outlives_reset;
use crate::session::bed::{Bed, error, ok, ok_open, rows, told};
use std::sync::atomic::Ordering;
use wire::charset::Flavor::{self, MariaDb, MySql};
use wire::flags::StatusFlags;
use wire::reframe::ReplyFacts;

/// Statements with what came of them, and the pins afterwards.
type Case<'a> = (&'a [(&'a str, ReplyFacts)], &'a [&'a str]);

fn check_on(flavor: Flavor, cases: &[Case<'_>]) {
    for (said, expected) in cases {
        let mut bed = Bed::new("").on(flavor);
        said.iter().for_each(|(text, reply)| bed.ran(text, reply));
        let texts: Vec<&str> = said.iter().map(|(text, _)| *text).collect();
        assert_eq!(bed.pins(), *expected, "{flavor:?}: {texts:?}");
    }
}

fn check(cases: &[Case<'_>]) {
    [MySql, MariaDb].into_iter().for_each(|flavor| check_on(flavor, cases));
}

/// Status flags after a statement, with autocommit off.
fn off(more: StatusFlags) -> ReplyFacts {
    ReplyFacts { status: Some(more), ..ReplyFacts::default() }
}

#[tokio::test]
async fn a_transaction_is_what_the_server_says_it_is() {
    check(&[
        (&[("BEGIN", ok_open())], &["transaction"]),
        (&[("BEGIN", ok_open()), ("COMMIT", ok())], &[]),
        (&[("BEGIN", ok_open()), ("ROLLBACK", ok())], &[]),
        (&[("BEGIN", ok_open()), ("COMMIT AND CHAIN", ok_open())], &["transaction"]),
        // DDL commits; a deadlock rolls back, and the next reply says so.
        (&[("BEGIN", ok_open()), ("CREATE TABLE t (a INT)", ok())], &[]),
        (&[("BEGIN", ok_open()), ("UPDATE t SET a = 1", error(1213))], &["transaction"]),
        (&[("BEGIN", ok_open()), ("UPDATE t SET a = 1", error(1213)), ("SELECT 1", rows(1))], &[]),
        (&[("SELECT 1", rows(1))], &[]),
    ]);
}

#[tokio::test]
async fn a_savepoint_holds_before_servers_call_it_a_transaction() {
    let (quiet, open) = (off(StatusFlags::default()), off(StatusFlags::IN_TRANS));
    check(&[
        (&[("SET autocommit = 0", quiet.clone()), ("SAVEPOINT a", quiet.clone())], &["savepoint"]),
        (&[("SET autocommit = 0", quiet.clone()), ("SAVEPOINT a", quiet.clone()), ("COMMIT", quiet.clone())], &[]),
        (&[("SET autocommit = 0", quiet.clone()), ("SAVEPOINT a", quiet.clone()), ("ROLLBACK", quiet.clone())], &[]),
        (&[("SET autocommit = 0", quiet.clone()), ("SAVEPOINT a", quiet.clone()), ("ROLLBACK TO a", quiet.clone())], &["savepoint"]),
        (&[("SET autocommit = 0", quiet.clone()), ("SAVEPOINT a", quiet.clone()), ("SET autocommit = 1", ok())], &[]),
        (&[("SET autocommit = 0", quiet.clone()), ("SAVEPOINT a", quiet.clone()), ("ALTER TABLE t ADD b INT", quiet.clone())], &[]),
        (
            &[("SET autocommit = 0", quiet.clone()), ("SAVEPOINT a", quiet.clone()), ("INSERT INTO t VALUES (1)", open)],
            &["transaction", "savepoint"],
        ),
        (&[("SET autocommit = 0", quiet.clone()), ("SAVEPOINT a", error(1064))], &[]),
        (&[("SAVEPOINT a", ok())], &[]),
    ]);
}

#[tokio::test]
async fn set_transaction_is_for_the_next_one() {
    let wish = "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE";
    check(&[
        (&[(wish, ok())], &["next_transaction"]),
        (&[("SET TRANSACTION READ ONLY", ok())], &["next_transaction"]),
        (&[(wish, error(1568))], &[]),
        (&[(wish, ok()), ("COMMIT", ok())], &[]),
        (&[(wish, ok()), ("ROLLBACK", ok())], &[]),
        (&[(wish, ok()), ("COMMIT", error(1180))], &["next_transaction"]),
        (&[(wish, ok()), ("SELECT 1", rows(1))], &["next_transaction"]),
        (&[(wish, ok()), ("BEGIN", ok_open())], &["transaction", "next_transaction"]),
        (&[(wish, ok()), ("BEGIN", ok_open()), ("COMMIT", ok())], &[]),
        (&[(wish, ok()), ("BEGIN", ok_open()), ("COMMIT AND CHAIN", ok_open())], &["transaction", "next_transaction"]),
    ]);
}

#[tokio::test]
async fn xa_ends_with_its_commit_or_rollback() {
    check(&[
        (&[("XA START 'a'", ok())], &["xa"]),
        (&[("XA START 'a'", error(1399))], &[]),
        (&[("XA START 'a'", ok()), ("XA END 'a'", ok()), ("XA PREPARE 'a'", ok())], &["xa"]),
        (&[("XA START 'a'", ok()), ("XA END 'a'", ok()), ("XA COMMIT 'a' ONE PHASE", ok())], &[]),
        (&[("XA START 'a'", ok()), ("XA END 'a'", ok()), ("XA ROLLBACK 'a'", ok())], &[]),
        (&[("XA START 'a'", ok()), ("XA ROLLBACK 'a'", error(1399))], &["xa"]),
        (&[("XA RECOVER", rows(0))], &[]),
        (&[("XA COMMIT 'prepared elsewhere'", ok())], &[]),
    ]);
}

#[tokio::test]
async fn temporary_tables_hold_until_the_last_is_dropped() {
    let warned = ReplyFacts { warnings: 1, ..ok() };
    check(&[
        (&[("CREATE TEMPORARY TABLE t (a INT)", ok())], &["temporary_table"]),
        (&[("CREATE TEMPORARY TABLE t (a INT)", error(1050))], &[]),
        (&[("CREATE TABLE t (a INT)", ok())], &[]),
        (&[("CREATE TEMPORARY TABLE t (a INT)", ok()), ("DROP TABLE t", ok())], &[]),
        (&[("CREATE TEMPORARY TABLE t (a INT)", ok()), ("DROP TEMPORARY TABLE IF EXISTS shop.t", ok())], &[]),
        (&[("CREATE TEMPORARY TABLE t (a INT)", ok()), ("DROP TABLE other.t", ok())], &["temporary_table"]),
        // The warning may say that there was none of that name.
        (&[("CREATE TEMPORARY TABLE t (a INT)", ok()), ("DROP TABLE IF EXISTS t", warned)], &["temporary_table"]),
        (&[("CREATE TEMPORARY TABLE t (a INT)", ok()), ("DROP TABLE t", error(1051))], &["temporary_table"]),
        (&[("CREATE TEMPORARY TABLE t (a INT)", ok()), ("DROP TABLE t; SELECT 1", rows(1))], &["temporary_table"]),
        (
            &[("CREATE TEMPORARY TABLE t (a INT)", ok()), ("CREATE TEMPORARY TABLE u (a INT)", ok()), ("DROP TABLE t", ok())],
            &["temporary_table"],
        ),
        (&[("CREATE TEMPORARY TABLE t (a INT)", ok()), ("CREATE TEMPORARY TABLE u (a INT)", ok()), ("DROP TABLE t, u", ok())], &[]),
        (&[("CREATE TEMPORARY TABLE t (a INT)", ok()), ("ALTER TABLE t RENAME TO u", ok()), ("DROP TABLE u", ok())], &["temporary_table"]),
    ]);
}

#[tokio::test]
async fn locked_tables_hold_until_they_are_unlocked() {
    check(&[
        (&[("LOCK TABLES t WRITE", ok())], &["lock_tables"]),
        (&[("LOCK TABLES t WRITE", error(1146))], &[]),
        (&[("LOCK TABLES t WRITE", ok()), ("UNLOCK TABLES", ok())], &[]),
        (&[("LOCK TABLES t WRITE", ok()), ("UNLOCK TABLES", error(1192))], &["lock_tables"]),
        (&[("LOCK TABLES t WRITE", ok()), ("COMMIT", ok())], &["lock_tables"]),
        (&[("LOCK TABLES t WRITE", ok()), ("BEGIN", ok_open())], &["transaction"]),
        (&[("FLUSH TABLES WITH READ LOCK", ok())], &["lock_tables"]),
        (&[("FLUSH TABLES WITH READ LOCK", ok()), ("BEGIN", ok_open())], &["transaction", "lock_tables"]),
        (&[("FLUSH TABLES WITH READ LOCK", ok()), ("UNLOCK TABLES", ok())], &[]),
        (&[("FLUSH TABLES", ok())], &[]),
        // Not every server runs what stands in such a comment.
        (&[("LOCK TABLES t WRITE", ok()), ("/*!80000 UNLOCK TABLES */", ok())], &["lock_tables", "session_state"]),
    ]);
    check_on(MySql, &[(&[("LOCK INSTANCE FOR BACKUP", ok())], &["session_state"])]);
    check_on(MariaDb, &[(&[("BACKUP STAGE START", ok())], &["session_state"]), (&[("BACKUP LOCK t", ok())], &["session_state"])]);
}

#[tokio::test]
async fn user_locks_hold_until_each_is_released() {
    let limited = told(&[("sql_select_limit", "0")]);
    check(&[
        (&[("SELECT GET_LOCK('a', 1)", rows(1))], &["user_lock"]),
        // It may have been taken before the statement failed.
        (&[("SELECT GET_LOCK('a', 1), nonsense", error(1054))], &["user_lock"]),
        (&[("SELECT GET_LOCK('a', 1)", rows(1)), ("SELECT RELEASE_LOCK('a')", rows(1))], &[]),
        (&[("SELECT GET_LOCK('a', 1)", rows(1)), ("DO RELEASE_LOCK('a')", ok())], &[]),
        (&[("SELECT GET_LOCK('a', 1)", rows(1)), ("SELECT RELEASE_LOCK('b')", rows(1))], &["user_lock"]),
        (&[("SELECT GET_LOCK('a', 1)", rows(1)), ("SELECT RELEASE_LOCK('a') LIMIT 0", rows(0))], &["user_lock"]),
        (&[("SELECT GET_LOCK('a', 1)", rows(1)), ("DO RELEASE_LOCK('a')", error(1317))], &["user_lock"]),
        // Servers count.
        (
            &[("SELECT GET_LOCK('a', 1)", rows(1)), ("SELECT GET_LOCK('a', 1)", rows(1)), ("SELECT RELEASE_LOCK('a')", rows(1))],
            &["user_lock"],
        ),
        (&[("SELECT GET_LOCK('a', 1)", rows(1)), ("SELECT GET_LOCK('b', 1)", rows(1)), ("SELECT RELEASE_ALL_LOCKS()", rows(1))], &[]),
        (&[("SELECT GET_LOCK(a, 1) FROM t", rows(3)), ("SELECT RELEASE_LOCK('a')", rows(1))], &["user_lock"]),
        (&[("SELECT GET_LOCK(a, 1) FROM t", rows(3)), ("SELECT RELEASE_ALL_LOCKS()", rows(1))], &[]),
        (
            &[("SELECT GET_LOCK('a', 1)", rows(1)), ("SET SESSION sql_select_limit = 0", limited), ("DO RELEASE_LOCK('a')", ok())],
            &["user_lock"],
        ),
        (&[("SELECT IS_FREE_LOCK('a'), IS_USED_LOCK('a')", rows(1))], &[]),
    ]);
}

#[tokio::test]
async fn prepared_text_holds_until_it_is_deallocated() {
    let prepare = "PREPARE s FROM 'SELECT 1'";
    check(&[
        (&[(prepare, ok())], &["text_prepare"]),
        (&[(prepare, error(1064))], &[]),
        (&[(prepare, ok()), ("DEALLOCATE PREPARE s", ok())], &[]),
        (&[(prepare, ok()), ("DROP PREPARE `S`", ok())], &[]),
        (&[(prepare, ok()), ("DEALLOCATE PREPARE t", error(1243))], &["text_prepare"]),
        // A PREPARE that fails deallocates what had the name.
        (&[(prepare, ok()), ("DEALLOCATE PREPARE s", error(1243))], &[]),
        (&[(prepare, ok()), (prepare, ok()), ("DEALLOCATE PREPARE s", ok())], &[]),
        (&[(prepare, ok()), ("EXECUTE s", rows(1))], &["text_prepare"]),
        (&[("EXECUTE s", error(1243))], &[]),
        (&[("PREPARE s FROM 'SET @a = 1'", ok()), ("EXECUTE s", ok())], &["text_prepare", "session_state"]),
        (&[("PREPARE s FROM 'SET ROLE r'", ok()), ("EXECUTE s", ok())], &["text_prepare", "session_state", "role"]),
        // What the text says is not known here.
        (&[("PREPARE s FROM @q", ok()), ("EXECUTE s", ok())], &["text_prepare", "session_state", "role"]),
    ]);
    check_on(
        MariaDb,
        &[
            (&[("EXECUTE IMMEDIATE 'SELECT 1'", rows(1))], &[]),
            (&[("EXECUTE IMMEDIATE 'CREATE TEMPORARY TABLE t (a INT)'", ok())], &["session_state"]),
        ],
    );
}

#[tokio::test]
async fn handlers_hold_until_each_is_closed() {
    check(&[
        (&[("HANDLER t OPEN", ok())], &["handler"]),
        (&[("HANDLER t OPEN", error(1146))], &[]),
        (&[("HANDLER t OPEN", ok()), ("HANDLER t READ FIRST", rows(1))], &["handler"]),
        (&[("HANDLER t OPEN", ok()), ("HANDLER t CLOSE", ok())], &[]),
        (&[("HANDLER t OPEN", ok()), ("HANDLER t CLOSE", error(1109))], &["handler"]),
        (&[("HANDLER t OPEN", ok()), ("HANDLER u OPEN", ok()), ("HANDLER t CLOSE", ok())], &["handler"]),
    ]);
}

#[tokio::test]
async fn found_rows_hold_until_the_next_result() {
    let counted = "SELECT SQL_CALC_FOUND_ROWS a FROM t LIMIT 1";
    check(&[
        (&[(counted, rows(1))], &["found_rows"]),
        (&[(counted, error(1146))], &[]),
        (&[(counted, rows(1)), ("SELECT FOUND_ROWS()", rows(1))], &[]),
        (&[(counted, rows(1)), ("SHOW WARNINGS", rows(0))], &["found_rows"]),
        (&[(counted, rows(1)), ("SELECT 1", rows(1))], &[]),
    ]);
}

#[tokio::test]
async fn user_variables_hold_where_no_text_tells_their_value() {
    check(&[
        (&[("SET @a = 1", ok())], &[]),
        (&[("SET @a = 'x', @b = NULL", ok())], &[]),
        (&[("SET @a = UUID()", ok())], &["user_variable"]),
        (&[("SET @a = @b", ok())], &["user_variable"]),
        (&[("SET @`\u{e9}` = 1", ok())], &["user_variable"]),
        (&[("SELECT @a := a FROM t", rows(1))], &["user_variable"]),
        (&[("SELECT a INTO @a FROM t", ok())], &["user_variable"]),
        (&[("SELECT @a", rows(1))], &[]),
        // It was not read, or no variable may be called so.
        (&[("SELECT @a := 1 FROM", error(1064))], &[]),
        (&[("SELECT @a := 1, nonsense", error(1054))], &["user_variable"]),
        (&[("LOAD DATA LOCAL INFILE 'f' INTO TABLE t (@a)", ok())], &["user_variable"]),
        (&[("GET DIAGNOSTICS @a = NUMBER", ok())], &["user_variable"]),
        (&[("SET @a = 1; SELECT 1", rows(1))], &[]),
    ]);
}

#[tokio::test]
async fn roles_hold_until_the_session_ends() {
    check(&[(&[("SET ROLE r", ok())], &["role"]), (&[("SET ROLE NONE", ok())], &["role"]), (&[("SET ROLE r", error(3530))], &[])]);
    check_on(MySql, &[(&[("SET RESOURCE GROUP g", ok())], &["session_state", "role"])]);
}

#[tokio::test]
async fn a_compound_statement_that_defines_ends_what_is_remembered() {
    for (text, expected) in [
        ("BEGIN NOT ATOMIC ALTER TABLE t ADD c INT; END", 1),
        ("BEGIN NOT ATOMIC EXECUTE IMMEDIATE CONCAT('ALTER TABLE t ADD ', 'c INT'); END", 1),
        ("BEGIN NOT ATOMIC INSERT INTO t VALUES ('DROP TABLE t'); END", 0),
        ("BEGIN NOT ATOMIC CREATE TEMPORARY TABLE u (a INT); END", 0),
        ("SET STATEMENT max_statement_time = 1 FOR BEGIN NOT ATOMIC DROP TABLE t; END", 1),
        ("SET STATEMENT max_statement_time = 1 FOR EXECUTE IMMEDIATE 'ALTER TABLE t ADD c INT'", 1),
        ("SET STATEMENT max_statement_time = 1 FOR EXECUTE IMMEDIATE 'SELECT 1'", 0),
    ] {
        let mut bed = Bed::new("").on(MariaDb);
        let before = bed.worker.shared.ddl_epoch.load(Ordering::Acquire);
        bed.ran(text, &ok());
        assert_eq!(bed.worker.shared.ddl_epoch.load(Ordering::Acquire) - before, expected, "{text}");
    }
}

#[tokio::test]
async fn a_function_of_mariadb_may_assign_its_arguments() {
    for (flavor, text, expected) in [
        (MariaDb, "SET sort_buffer_size = g(@e)", true),
        (MySql, "SET sort_buffer_size = g(@e)", false),
        (MariaDb, "SET sort_buffer_size = ABS(@e)", false),
        // Such a function cannot be called in a query.
        (MariaDb, "SELECT g(@e)", false),
    ] {
        let mut bed = Bed::new("").on(flavor);
        bed.ran(text, &ok());
        assert_eq!(bed.pins().contains(&"user_variable"), expected, "{flavor:?} {text}: {:?}", bed.pins());
    }
}

#[tokio::test]
async fn the_account_of_a_session_authorization_never_returns_to_the_pool() {
    let alone = [("SET @a = 1", ok()), ("SET SESSION AUTHORIZATION u@h", ok())];
    let behind_for = [("SET STATEMENT max_statement_time = 1 FOR SET SESSION AUTHORIZATION u@h", ok())];
    check_on(MariaDb, &[(&alone, &["session_state", "role"]), (&behind_for, &["session_state", "role"])]);
    let mut bed = Bed::new("").on(MariaDb);
    alone.iter().for_each(|(text, reply)| bed.ran(text, reply));
    assert!(outlives_reset(bed.at.backend.as_ref().unwrap(), bed.at.pins.set()));
    assert!(bed.wants.state.schema.is_none() && bed.wants.state.user_variables.is_empty(), "the server forgot both");
}

#[tokio::test]
async fn what_cannot_be_followed_is_session_state() {
    let changed = ReplyFacts { state_change: true, ..ok() };
    let garbled = ReplyFacts { state_change: true, is_garbled: true, ..ok() };
    check(&[
        // A trigger, or code behind a view.
        (&[("INSERT INTO t VALUES (1)", changed.clone())], &["session_state"]),
        (&[("SELECT a FROM v", ReplyFacts { state_change: true, ..rows(1) })], &["session_state"]),
        (&[("INSERT INTO t VALUES (1)", ok())], &[]),
        (&[("CREATE TABLE t SELECT * FROM v", changed.clone())], &["session_state"]),
        (&[("CREATE TABLE t (a INT)", changed.clone())], &["session_state"]),
        (&[("SELECT 1", garbled)], &["session_state", "role"]),
        // Variables that act once, or on the connection itself.
        (&[("SET insert_id = 7", told(&[("insert_id", "7")]))], &["session_state"]),
        (&[("SET pseudo_thread_id = 7", told(&[("pseudo_thread_id", "7")]))], &["session_state"]),
        (&[("SET profiling = 1", told(&[("profiling", "ON")]))], &["session_state"]),
        (&[("SET profiling = 0", told(&[("profiling", "OFF")]))], &[]),
        (&[("SET sql_mode = 'ANSI'", told(&[("sql_mode", "ANSI")]))], &[]),
        (&[("SET time_zone = '+02:00'", told(&[("time_zone", "+02:00")]))], &[]),
        // Which of several statements failed is not known.
        (&[("CREATE TEMPORARY TABLE t (a INT); SELECT nonsense", error(1054))], &["session_state"]),
        (&[("SELECT 1; SELECT nonsense", error(1054))], &[]),
    ]);
    check_on(MySql, &[(&[("SET gtid_next = 'AUTOMATIC'", told(&[("gtid_next", "AUTOMATIC")]))], &[])]);
    check_on(MariaDb, &[(&[("SET STATEMENT max_statement_time = 1 FOR CALL p()", ok())], &["session_state"])]);
}

#[tokio::test]
async fn a_statement_that_locks_without_waiting_is_no_change_on_mariadb() {
    let nowait = ReplyFacts { variables: told(&[("innodb_lock_wait_timeout", "50")]).variables, state_change: true, ..rows(1) };
    let said = ("SELECT a FROM t FOR UPDATE NOWAIT", nowait.clone());
    check_on(MariaDb, &[(std::slice::from_ref(&said), &[])]);
    check_on(MySql, &[(&[said], &["session_state"])]);
    check_on(MariaDb, &[(&[("SELECT a FROM t FOR UPDATE", nowait)], &["session_state"])]);
}

#[tokio::test]
async fn an_insert_id_holds_for_so_many_statements() {
    let inserted = ReplyFacts { last_insert_id: 7, affected_rows: 1, ..ok() };
    let mut bed = Bed::new("mysql_variables = { auto_increment_delay_multiplex = 2 }").on(MySql);
    bed.ran("INSERT INTO t VALUES (NULL)", &inserted);
    assert_eq!(bed.pins(), ["auto_increment_delay"]);
    bed.ran("SELECT 1", &rows(1));
    assert_eq!(bed.pins(), ["auto_increment_delay"]);
    bed.ran("SELECT 1", &rows(1));
    assert!(bed.pins().is_empty());
    let mut bed = Bed::new("mysql_variables = { auto_increment_delay_multiplex = 0 }").on(MySql);
    bed.ran("INSERT INTO t VALUES (NULL)", &inserted);
    assert!(bed.pins().is_empty());
}

#[test]
fn what_follows_a_change_of_how_text_is_read_is_read_anew() {
    // The server reads each of several statements under what those before it have set.
    let wants = crate::session::Wants::default();
    for (text, reply, expected) in [
        ("SET sql_mode = 'ANSI_QUOTES'; SELECT \"a\"", told(&[("sql_mode", "ANSI_QUOTES")]), true),
        ("SET sql_mode = 'STRICT_ALL_TABLES'; SELECT \"a\"", told(&[("sql_mode", "STRICT_ALL_TABLES")]), false),
        ("SET NAMES gbk; SELECT 'a'", told(&[("character_set_client", "gbk")]), true),
        ("SET NAMES latin1; SELECT 'a'", told(&[("character_set_client", "latin1")]), false),
        ("SET time_zone = 'UTC'; SELECT 'a'", told(&[("time_zone", "UTC")]), false),
    ] {
        assert_eq!(wants.is_read_anew(text.as_bytes(), &reply), expected, "{text}");
    }
    for (text, expected) in [
        ("SET @@sql_mode = 'ANSI_QUOTES'; SELECT \"a\"", true),
        ("SET @@sql_mode = 'STRICT_ALL_TABLES'; SELECT \"a\"", false),
        ("SET @@sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES'); SELECT 1", true),
        ("SET @@character_set_client = gbk; SELECT 'a'", true),
        ("SET @@time_zone = 'UTC'; SELECT 'a'", false),
    ] {
        assert_eq!(wants.is_read_anew_untold(text.as_bytes(), false), expected, "{text}");
    }
}
