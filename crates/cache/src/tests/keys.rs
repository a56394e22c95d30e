//! A key changes with everything that changes the result, and with nothing else.

use super::super::{Asked, AskedExecution, AskedText, Asker};
use super::*;
use model::HostgroupId;
use sql::LexMode;
use wire::flags::{Capabilities, StatusFlags};

type Variables = [(Arc<str>, Arc<[u8]>)];

fn variable(name: &str, value: &[u8]) -> [(Arc<str>, Arc<[u8]>); 1] {
    [(name.into(), value.into())]
}

fn asker(variables: &Variables) -> Asker<'_> {
    Asker {
        user: "app",
        hostgroup: HostgroupId(1),
        collation: 45,
        meaning: Capabilities::FOUND_ROWS,
        schema: Some(b"shop"),
        variables,
        has_user_variables: false,
        status: StatusFlags::AUTOCOMMIT,
    }
}

fn key_of(hashing: &Hashing, asker: &Asker<'_>, sql: &str) -> Option<Key> {
    let asked = Asked::Text { sql: sql.as_bytes(), attribute_count: 0 };
    hashing.key(asker, &asked, &sql::analyze(sql.as_bytes(), LexMode::default()))
}

/// A change to who asks.
type Change = fn(&mut Asker<'_>);

#[test]
fn everything_that_changes_the_result_changes_the_key() {
    let hashing = Hashing::default();
    let (base, sql) = (variable("time_zone", b"UTC"), "SELECT a FROM t");
    let same = key_of(&hashing, &asker(&base), sql).unwrap();
    assert_eq!(key_of(&hashing, &asker(&base), sql).unwrap(), same);
    let changes: [Change; 6] = [
        |asker| asker.user = "other",
        |asker| asker.hostgroup = HostgroupId(2),
        |asker| asker.collation = 8,
        |asker| asker.meaning = Capabilities::empty(),
        |asker| asker.schema = None,
        |asker| asker.schema = Some(b"other"),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let mut asker = asker(&base);
        change(&mut asker);
        assert_ne!(key_of(&hashing, &asker, sql).unwrap(), same, "{n}");
    }
    for variables in [variable("time_zone", b"SYSTEM"), variable("sql_mode", b"ANSI")] {
        assert_ne!(key_of(&hashing, &asker(&variables), sql).unwrap(), same, "{variables:?}");
    }
    assert_ne!(key_of(&hashing, &asker(&[]), sql).unwrap(), same);
    assert_ne!(key_of(&hashing, &asker(&base), "SELECT a  FROM t").unwrap(), same);
}

#[test]
fn what_belongs_to_a_session_has_no_key() {
    let hashing = Hashing::default();
    let base = variable("time_zone", b"UTC");
    for sql in [
        "INSERT INTO t VALUES (1)",
        "SELECT LAST_INSERT_ID()",
        "SELECT @a",
        "SELECT @a := 1",
        "SELECT a FROM t FOR UPDATE",
        "SELECT a FROM t LOCK IN SHARE MODE",
        "SELECT GET_LOCK('a', 1)",
        "SELECT CONNECTION_ID()",
        "SELECT FOUND_ROWS()",
        "SELECT SQL_CALC_FOUND_ROWS a FROM t",
        "SELECT 1; SELECT 2",
        "SELECT a FROM t INTO OUTFILE '/tmp/x'",
        "SHOW WARNINGS",
        "SHOW VARIABLES",
        "CALL p()",
    ] {
        assert!(key_of(&hashing, &asker(&base), sql).is_none(), "{sql}");
    }
    assert!(key_of(&hashing, &asker(&base), "SHOW TABLES").is_some());
    for status in [StatusFlags::empty(), StatusFlags::AUTOCOMMIT | StatusFlags::IN_TRANS] {
        assert!(key_of(&hashing, &Asker { status, ..asker(&base) }, "SELECT 1").is_none());
    }
    assert!(key_of(&hashing, &Asker { has_user_variables: true, ..asker(&base) }, "SELECT 1").is_none());
    let attributed = Asked::Text { sql: b"SELECT 1", attribute_count: 1 };
    assert!(hashing.key(&asker(&base), &attributed, &sql::analyze(b"SELECT 1", LexMode::default())).is_none());
}

/// COM_STMT_EXECUTE with one LONGLONG.
fn execute(flags: u8, value: i64) -> Vec<u8> {
    [&[0x17, 1, 0, 0, 0, flags, 1, 0, 0, 0, 0, 1, 8, 0], &value.to_le_bytes()[..]].concat()
}

fn statement(text: &str) -> AskedText<'_> {
    AskedText { text: text.as_bytes(), schema: Some(b"shop"), mode: b"\0\0\0" }
}

fn execution<'a>(statement: AskedText<'a>, payload: &'a [u8], types: &'a [u8]) -> AskedExecution<'a> {
    AskedExecution { statement, mode: b"\0\0\0", lex: LexMode::default(), params: 1, types, payload, caps: Capabilities::PROTOCOL_41 }
}

fn key_of_execution(hashing: &Hashing, asker: &Asker<'_>, execution: AskedExecution<'_>) -> Option<Key> {
    let analysis = sql::analyze(execution.statement.text, LexMode::default());
    hashing.key(asker, &Asked::Execution(execution), &analysis)
}

#[test]
fn an_execution_has_the_key_of_its_text() {
    let hashing = Hashing::default();
    let base = variable("time_zone", b"UTC");
    let asker = asker(&base);
    let (statement, payload) = (statement("SELECT c FROM t WHERE id=?"), execute(0, 5));
    let key = |execution: AskedExecution<'_>| key_of_execution(&hashing, &asker, execution).unwrap();
    let same = key_of(&hashing, &asker, "SELECT c FROM t WHERE id=5").unwrap();
    assert_eq!(key(execution(statement, &payload, &[])), same);
    assert_ne!(key(execution(statement, &execute(0, 6), &[])), same);
    // Types that were sent before.
    let mut bound = execute(0, 5);
    bound.drain(11..14);
    bound.insert(11, 0);
    assert_eq!(key(execution(statement, &bound, &[8, 0])), same);
    assert!(key_of_execution(&hashing, &asker, execution(statement, &bound, &[])).is_none());
    // Another meaning than the text would have now.
    assert_ne!(key(AskedExecution { mode: b"ANSI_QUOTES\0\0\0", ..execution(statement, &payload, &[]) }), same);
    let elsewhere = AskedText { schema: Some(b"other"), ..statement };
    assert_ne!(key(execution(elsewhere, &payload, &[])), same);
    // A cursor.
    assert!(key_of_execution(&hashing, &asker, execution(statement, &execute(1, 5), &[])).is_none());
}

#[test]
fn an_execution_without_literals_has_a_key_of_its_own() {
    let hashing = Hashing::default();
    let base = variable("time_zone", b"UTC");
    let asker = asker(&base);
    let statement = statement("SELECT ?");
    let (five, six) = (execute(0, 5), execute(0, 6));
    let key = |payload: &[u8]| key_of_execution(&hashing, &asker, execution(statement, payload, &[])).unwrap();
    assert_eq!(key(&five), key(&five));
    assert_ne!(key(&five), key(&six));
    assert_ne!(key(&five), key_of(&hashing, &asker, "SELECT 5").unwrap());
}
