#![allow(clippy::unwrap_used)]

use super::*;
use crate::session::bed::analysis;
use model::settings::MysqlVariables;
use session_state::pins::PinReason;

const STANDING: Standing = Standing {
    came: Came::Text,
    status: StatusFlags::AUTOCOMMIT,
    pins: PinSet::of(&[]),
    keeps_more: false,
    is_owed: false,
    is_causal: false,
    is_directed: false,
    is_again: false,
};

fn why(text: &str, standing: Standing, settings: &Effective) -> Option<Alone> {
    why_alone(&analysis(text), text.as_bytes(), &standing, settings)
}

#[test]
fn only_a_plain_select_rides() {
    let settings = Effective::from_variables(&MysqlVariables::default());
    for text in [
        "SELECT 1",
        "SELECT c FROM sbtest1 WHERE id=5",
        "select a, count(*) from t where b = 'x' group by a order by a limit 10",
        "SELECT /* from the shop */ NOW(), SLEEP(1)",
        "SELECT a FROM t UNION SELECT b FROM u",
    ] {
        assert_eq!(why(text, STANDING, &settings), None, "{text}");
    }
    for text in [
        "INSERT INTO t VALUES (1)",
        "UPDATE t SET a = 1",
        "CALL p()",
        "SHOW TABLES",
        "EXPLAIN SELECT 1",
        "SELECT a FROM t FOR UPDATE",
        "SELECT a FROM t LOCK IN SHARE MODE",
        "SELECT a FROM t LIMIT 10, 5",
        "SELECT @a",
        "SELECT @a := 1",
        "SELECT @@sql_mode",
        "SELECT f(1)",
        "SELECT NEXTVAL(s)",
        "SELECT LAST_INSERT_ID()",
        "SELECT FOUND_ROWS()",
        "SELECT ROW_COUNT()",
        "SELECT CONNECTION_ID()",
        "SELECT @@warning_count",
        "SELECT GET_LOCK('a', 1)",
        "SELECT RELEASE_LOCK('a')",
        "SELECT SQL_CALC_FOUND_ROWS a FROM t",
        "SELECT a INTO OUTFILE 'f' FROM t",
        "SELECT a INTO @a FROM t",
        "SELECT 1; SELECT 2",
        "SELECT 1; DELETE FROM t",
        "SELECT /*!99999 f() */ 1",
        "SELECT /*+ SET_VAR(sort_buffer_size = 16M) */ 1",
        "SELECT /*+ MAX_EXECUTION_TIME(1000) */ 1",
    ] {
        assert_eq!(why(text, STANDING, &settings), Some(Alone::Statement), "{text}");
    }
    let long = format!("SELECT '{}'", "x".repeat(LONGEST));
    assert_eq!(why(&long, STANDING, &settings), Some(Alone::Statement));
}

#[test]
fn an_execution_rides_that_leaves_nothing_with_a_backend() {
    let settings = Effective::from_variables(&MysqlVariables::default());
    let executed = Standing { came: Came::Execution, ..STANDING };
    for text in ["SELECT ?", "SELECT c FROM sbtest1 WHERE id = ?", "SELECT a FROM t WHERE b IN (?, ?) LIMIT ?"] {
        assert_eq!(why(text, executed, &settings), None, "{text}");
        assert_eq!(why(text, STANDING, &settings), Some(Alone::Statement), "as a text: {text}");
        assert_eq!(why(text, Standing { came: Came::Otherwise, ..STANDING }, &settings), Some(Alone::Execution), "{text}");
    }
    for text in
        ["SELECT a FROM t LIMIT ?, ?", "SELECT a FROM t LIMIT ? OFFSET ?", "SELECT ? INTO @a", "INSERT INTO t VALUES (?)", "SELECT f(?)"]
    {
        assert_eq!(why(text, executed, &settings), Some(Alone::Statement), "{text}");
    }
}

#[test]
fn only_a_session_that_nothing_keeps_rides() {
    let settings = Effective::from_variables(&MysqlVariables::default());
    let autocommit = StatusFlags::AUTOCOMMIT;
    for (standing, expected) in [
        (STANDING, None),
        (Standing { status: StatusFlags::default(), ..STANDING }, Some(Alone::Transaction)),
        (Standing { status: autocommit | StatusFlags::IN_TRANS, ..STANDING }, Some(Alone::Transaction)),
        (Standing { status: autocommit | StatusFlags::IN_TRANS_READONLY, ..STANDING }, Some(Alone::Transaction)),
        (Standing { pins: PinSet::of(&[PinReason::TemporaryTable]), ..STANDING }, Some(Alone::Pinned)),
        (Standing { pins: PinSet::of(&[PinReason::AutoIncrementDelay]), ..STANDING }, Some(Alone::Pinned)),
        (Standing { keeps_more: true, ..STANDING }, Some(Alone::Pinned)),
        (Standing { is_owed: true, ..STANDING }, Some(Alone::Owed)),
        (Standing { is_causal: true, ..STANDING }, Some(Alone::Causal)),
        (Standing { is_directed: true, ..STANDING }, Some(Alone::Directed)),
        (Standing { is_again: true, ..STANDING }, Some(Alone::Again)),
    ] {
        assert_eq!(why("SELECT 1", standing, &settings), expected, "{standing:?}");
    }
    for changed in [
        Effective { multiplexing: false, ..settings.clone() },
        Effective { connection_delay_multiplex_ms: 1, ..settings.clone() },
        Effective { auto_increment_delay_multiplex: 5, ..settings.clone() },
    ] {
        assert_eq!(why("SELECT 1", STANDING, &changed), Some(Alone::Settings), "{changed:?}");
    }
}
