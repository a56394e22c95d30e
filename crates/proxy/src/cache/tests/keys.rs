//! A key changes with everything that changes the result, and with nothing else.

use super::super::{Asked, AskedExecution, Asker};
use super::*;
use crate::session_state::class::Class;
use crate::session_state::state::State;
use crate::statements::stmt_cache::{Meaning, StatementKey};
use model::HostgroupId;
use sql::LexMode;
use wire::flags::{Capabilities, StatusFlags};

fn state() -> State {
    let mut state = State { schema: Some(b"shop"[..].into()), ..State::default() };
    state.variables.set("time_zone", Some(b"UTC"));
    state
}

fn asker(state: &State) -> Asker<'_> {
    let class = Class::of(Capabilities::FOUND_ROWS);
    Asker { user: "app", hostgroup: HostgroupId(1), collation: 45, class, state, status: StatusFlags::AUTOCOMMIT }
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
    let (base, sql) = (state(), "SELECT a FROM t");
    let same = key_of(&hashing, &asker(&base), sql).unwrap();
    assert_eq!(key_of(&hashing, &asker(&base), sql).unwrap(), same);
    let changes: [Change; 4] = [
        |asker| asker.user = "other",
        |asker| asker.hostgroup = HostgroupId(2),
        |asker| asker.collation = 8,
        |asker| asker.class = Class::of(Capabilities::empty()),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let mut asker = asker(&base);
        change(&mut asker);
        assert_ne!(key_of(&hashing, &asker, sql).unwrap(), same, "{n}");
    }
    let mut states = vec![State { schema: None, ..state() }, State { schema: Some(b"other"[..].into()), ..state() }, state(), state()];
    states[2].variables.set("time_zone", Some(b"SYSTEM"));
    states[3].variables.set("sql_mode", Some(b"ANSI"));
    for state in &states {
        assert_ne!(key_of(&hashing, &asker(state), sql).unwrap(), same, "{state:?}");
    }
    assert_ne!(key_of(&hashing, &asker(&base), "SELECT a  FROM t").unwrap(), same);
}

#[test]
fn what_belongs_to_a_session_has_no_key() {
    let hashing = Hashing::default();
    let base = state();
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
    let mut with_variable = state();
    with_variable.user_variables.set("a", Some(b"1"));
    assert!(key_of(&hashing, &asker(&with_variable), "SELECT 1").is_none());
    let attributed = Asked::Text { sql: b"SELECT 1", attribute_count: 1 };
    assert!(hashing.key(&asker(&base), &attributed, &sql::analyze(b"SELECT 1", LexMode::default())).is_none());
}

/// COM_STMT_EXECUTE with one LONGLONG.
fn execute(flags: u8, value: i64) -> Vec<u8> {
    [&[0x17, 1, 0, 0, 0, flags, 1, 0, 0, 0, 0, 1, 8, 0], &value.to_le_bytes()[..]].concat()
}

fn statement(text: &str) -> StatementKey {
    let (schema, mode) = (Some(b"shop"[..].into()), b"\0\0\0"[..].into());
    Meaning { schema, mode, user_variables: None, text: text.as_bytes().into(), types: None }.into()
}

fn execution<'a>(statement: &'a StatementKey, payload: &'a [u8], types: &'a [u8]) -> AskedExecution<'a> {
    AskedExecution { statement, mode: b"\0\0\0", lex: LexMode::default(), params: 1, types, payload, caps: Capabilities::PROTOCOL_41 }
}

fn key_of_execution(hashing: &Hashing, asker: &Asker<'_>, execution: AskedExecution<'_>) -> Option<Key> {
    let analysis = sql::analyze(&execution.statement.text, LexMode::default());
    hashing.key(asker, &Asked::Execution(execution), &analysis)
}

#[test]
fn an_execution_has_the_key_of_its_text() {
    let hashing = Hashing::default();
    let base = state();
    let asker = asker(&base);
    let (statement, payload) = (statement("SELECT c FROM t WHERE id=?"), execute(0, 5));
    let key = |execution: AskedExecution<'_>| key_of_execution(&hashing, &asker, execution).unwrap();
    let same = key_of(&hashing, &asker, "SELECT c FROM t WHERE id=5").unwrap();
    assert_eq!(key(execution(&statement, &payload, &[])), same);
    assert_ne!(key(execution(&statement, &execute(0, 6), &[])), same);
    // Types that were sent before.
    let mut bound = execute(0, 5);
    bound.drain(11..14);
    bound.insert(11, 0);
    assert_eq!(key(execution(&statement, &bound, &[8, 0])), same);
    assert!(key_of_execution(&hashing, &asker, execution(&statement, &bound, &[])).is_none());
    // Another meaning than the text would have now.
    assert_ne!(key(AskedExecution { mode: b"ANSI_QUOTES\0\0\0", ..execution(&statement, &payload, &[]) }), same);
    let elsewhere = StatementKey::from(Meaning { schema: Some(b"other"[..].into()), ..(*statement).clone() });
    assert_ne!(key(execution(&elsewhere, &payload, &[])), same);
    // A cursor.
    assert!(key_of_execution(&hashing, &asker, execution(&statement, &execute(1, 5), &[])).is_none());
}

#[test]
fn an_execution_without_literals_has_a_key_of_its_own() {
    let hashing = Hashing::default();
    let base = state();
    let asker = asker(&base);
    let statement = statement("SELECT ?");
    let (five, six) = (execute(0, 5), execute(0, 6));
    let key = |payload: &[u8]| key_of_execution(&hashing, &asker, execution(&statement, payload, &[])).unwrap();
    assert_eq!(key(&five), key(&five));
    assert_ne!(key(&five), key(&six));
    assert_ne!(key(&five), key_of(&hashing, &asker, "SELECT 5").unwrap());
}
