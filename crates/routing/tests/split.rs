//! Which statements are certain to be reads, and when.
#![allow(clippy::unwrap_used)] // tests, helpers included, may panic

mod common;

use common::snapshot;
use model::{HostgroupId, ReadWriteSplit};
use routing::{Decider, Route, SessionFacts, Side, Statement, Transaction, side, split_of};
use sql::LexMode;

fn decide(text: &str, session: SessionFacts, safe: &[&str]) -> Side {
    let mode = LexMode::default();
    let statement = Statement { text: text.as_bytes(), mode, analysis: sql::analyze(text.as_bytes(), mode) };
    let safe: Vec<Box<str>> = safe.iter().map(|name| (*name).into()).collect();
    side(&statement, &session, &safe)
}

const READS: &[&str] = &[
    "SELECT 1",
    "select a from t where b = 'FOR UPDATE'",
    "(SELECT a FROM t) UNION (SELECT 1)",
    "\n /* c */ SELECT a FROM t;",
    "WITH c AS (SELECT 1) SELECT * FROM c",
    "TABLE t",
    "VALUES ROW(1)",
    "SELECT count(*), now(), coalesce(a, b) FROM t",
    "SELECT `for update` FROM t",
    "SELECT LAST_INSERT_ID()",
    "SELECT FOUND_ROWS()",
    "SELECT @a",
    "START TRANSACTION READ ONLY",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
];

const WRITES: &[&str] = &[
    "INSERT INTO t VALUES (1)",
    "UPDATE t SET a = 1",
    "DELETE FROM t",
    "REPLACE INTO t VALUES (1)",
    "WITH c AS (SELECT 1) DELETE FROM t",
    "SELECT a FROM t FOR UPDATE",
    "SELECT a FROM t FOR UPDATE;",
    "SELECT a FROM t\nFOR\n/* c */ UPDATE -- c",
    "SELECT a FROM t FOR UPDATE SKIP LOCKED",
    "SELECT a FROM t FOR UPDATE NOWAIT",
    "SELECT a FROM t FOR SHARE",
    "SELECT a FROM t FOR SHARE OF t SKIP LOCKED",
    "SELECT a FROM t LOCK IN SHARE MODE",
    "(SELECT a FROM t FOR UPDATE)",
    "SELECT a FROM (SELECT a FROM t FOR UPDATE) d",
    "SELECT a FROM t /*!50000 FOR UPDATE */",
    "SELECT GET_LOCK('a', 1)",
    "SELECT RELEASE_LOCK('a')",
    "SELECT IS_FREE_LOCK('a')",
    "SELECT IS_USED_LOCK('a')",
    "SELECT f(1)",
    "SELECT shop.f(1)",
    "SELECT NEXTVAL(s)",
    "SELECT DEFAULT(n) FROM t",
    "SELECT NEXT VALUE FOR s",
    "SELECT LAST_INSERT_ID(5)",
    "SELECT @a := 1",
    "SELECT a INTO @a FROM t",
    "SELECT a INTO OUTFILE '/tmp/x' FROM t",
    "SELECT @@server_id",
    "SELECT 1; DELETE FROM t",
    "CALL p()",
    "DO SLEEP(1)",
    "SET a = 1",
    "CREATE TABLE t (a INT)",
    "BEGIN",
    "START TRANSACTION",
    "START TRANSACTION READ WRITE",
    "START TRANSACTION /*!80000 READ ONLY */",
    "/*!80000 START TRANSACTION READ ONLY */",
    "COMMIT",
    "LOCK TABLES t READ",
    "LOAD DATA INFILE 'x' INTO TABLE t",
    "SHOW TABLES",
    "SHOW FULL COLUMNS FROM t",
    "SHOW CREATE TABLE t",
    "SHOW INDEX FROM t",
    "SHOW TABLE STATUS",
    "SHOW DATABASES",
    "EXPLAIN SELECT a FROM t",
    "EXPLAIN ANALYZE SELECT a FROM t",
    "ANALYZE SELECT a FROM t",
    "DESC t",
    "DESCRIBE t a",
    "SHOW MASTER STATUS",
    "SHOW BINARY LOG STATUS",
    "SHOW REPLICAS",
    "SHOW PROCESSLIST",
    "SHOW GLOBAL STATUS",
    "SHOW VARIABLES",
    "SHOW ENGINE INNODB STATUS",
    "EXPLAIN UPDATE t SET a = 1",
    "EXPLAIN FOR CONNECTION 5",
    "ANALYZE UPDATE t SET a = 1",
    "XA START 'x'",
    "HANDLER t OPEN",
    "PREPARE s FROM 'SELECT 1'",
    "OPTIMIZE TABLE t",
    "IMPORT WHATEVER",
    "nonsense",
    "",
];

#[test]
fn outside_transactions() {
    let session = SessionFacts::default();
    for text in READS {
        assert_eq!(decide(text, session, &[]), Side::Reader, "{text}");
    }
    for text in WRITES {
        assert_eq!(decide(text, session, &[]), Side::Writer, "{text}");
    }
}

#[test]
fn the_session_comes_first() {
    let pinned = SessionFacts { pinned: true, transaction: Transaction::ReadWrite, ..SessionFacts::default() };
    let writing = SessionFacts { transaction: Transaction::ReadWrite, ..SessionFacts::default() };
    let reading = SessionFacts { transaction: Transaction::ReadOnly, ..SessionFacts::default() };
    let off = SessionFacts { autocommit_off: true, ..SessionFacts::default() };
    for text in READS.iter().chain(WRITES) {
        assert_eq!(decide(text, pinned, &[]), Side::Stay, "{text}");
        assert_eq!(decide(text, writing, &[]), Side::Writer, "{text}");
        assert_eq!(decide(text, reading, &[]), Side::Reader, "{text}");
        let begins = text.starts_with("START TRANSACTION") && text.ends_with("READ ONLY");
        assert_eq!(decide(text, off, &[]), if begins { Side::Reader } else { Side::Writer }, "{text}");
    }
}

#[test]
fn functions_that_are_declared_safe() {
    let session = SessionFacts::default();
    let cases: [(&str, &[&str], Side); 8] = [
        ("SELECT f(1)", &["f"], Side::Reader),
        ("SELECT F(g(1))", &["f"], Side::Writer),
        ("SELECT F(g(1))", &["f", "g"], Side::Reader),
        ("SELECT shop.f(1)", &["f"], Side::Writer),
        ("SELECT `shop`.`F`(1)", &["shop.f"], Side::Reader),
        ("CALL report(1)", &["report"], Side::Reader),
        ("CALL report(@a)", &["report"], Side::Writer),
        ("SELECT f(1) FROM t FOR UPDATE", &["f"], Side::Writer),
    ];
    for (text, safe, expected) in cases {
        assert_eq!(decide(text, session, safe), expected, "{text} {safe:?}");
    }
}

#[test]
fn rules_win_over_the_split() {
    let config = |attributes: &str, settings: &str| {
        snapshot(&format!(
            r#"mysql_users = ( {{ username="u" default_hostgroup=1 attributes="{attributes}" }} )
               mysql_hostgroup_attributes = ( {{ hostgroup_id=1 hostgroup_settings="{settings}" }}, {{ hostgroup_id=5 hostgroup_settings="{settings}" }} )"#
        ))
    };
    let user = r#"{\"read_write_split\":{\"reader\":2}}"#;
    let off = r#"{\"read_write_split\":false}"#;
    let group = r#"{\"read_write_split\":{\"reader_hostgroup\":3}}"#;
    let to = |id: u32, decider| Route { destination_hostgroup: Some(HostgroupId(id)), decider, ..Route::default() };
    let pair = |writer, reader| Some(ReadWriteSplit { writer: HostgroupId(writer), reader: HostgroupId(reader) });
    let cases = [
        (config(user, ""), Route::default(), pair(1, 2)),
        (config(user, group), Route::default(), pair(1, 2)),
        (config("", group), Route::default(), pair(1, 3)),
        (config(off, group), Route::default(), None),
        (config("", ""), Route::default(), None),
        (config(user, group), to(5, Decider::Rule(1)), None),
        (config(user, group), to(5, Decider::Comment), None),
        (config(user, group), to(5, Decider::FastRouting), pair(5, 3)),
        (config(user, ""), to(5, Decider::FastRouting), None),
    ];
    for (snapshot, route, expected) in cases {
        assert_eq!(split_of(&snapshot, &snapshot.users["u"], &route), expected, "{route:?}");
    }
}
