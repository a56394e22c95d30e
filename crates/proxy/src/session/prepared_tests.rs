//! Prepared statements, from the client's command to what a server is sent.

use crate::session::bed::{Bed, COLUMN, eof, error, numbered, ok, ok_open, packet_of, result_of, told};
use crate::session::end::End;
use wire::charset::Flavor::{MariaDb, MySql};
use wire::command::Command;
use wire::message::{ERR, OK};
use wire::reframe::ReplyFacts;

/// A server's answer to a PREPARE: this id, no columns, no parameters.
fn prepared(id: u32) -> Vec<u8> {
    numbered(&[[&[0][..], &id.to_le_bytes(), &[0; 7]].concat()])
}

/// COM_STMT_EXECUTE's body for a statement without parameters.
fn execution(id: u32) -> Vec<u8> {
    [&id.to_le_bytes()[..], &[0, 1, 0, 0, 0]].concat()
}

/// The client's id of the statement that it prepares.
async fn prepare(bed: &mut Bed, text: &str) -> u32 {
    let heard = bed.serve(Command::StmtPrepare, text.as_bytes()).await.unwrap();
    assert_eq!(heard[0][0], OK, "{text}");
    u32::from_le_bytes([heard[0][1], heard[0][2], heard[0][3], heard[0][4]])
}

#[tokio::test]
async fn a_client_has_ids_of_its_own() {
    let mut bed = Bed::new("").on(MySql);
    bed.ran("BEGIN", &ok_open());
    bed.answers(&[prepared(71), prepared(72)]);
    assert_eq!((prepare(&mut bed, "INSERT INTO t VALUES (1)").await, prepare(&mut bed, "DELETE FROM t").await), (1, 2));
    bed.sent();
    bed.answers(&[packet_of(&ok_open())]);
    let heard = bed.serve(Command::StmtExecute, &execution(2)).await.unwrap();
    assert_eq!((heard[0][0], bed.sent()), (OK, vec!["Some(StmtExecute)".to_owned()]));
    let unknown = bed.serve(Command::StmtExecute, &execution(3)).await.unwrap();
    assert_eq!(unknown[0][0], ERR);
    assert!(bed.sent().is_empty(), "no server is asked");
}

/// With ANSI_QUOTES `"c"` is a column, whose default may be any number.
#[tokio::test]
async fn what_proves_an_insert_id_is_read_as_it_was_prepared() {
    for (prepared_by, executed_by, is_certain) in [("", "", true), ("", "ANSI_QUOTES", true), ("ANSI_QUOTES", "", false)] {
        let mut bed = Bed::new("").on(MySql);
        bed.ran("BEGIN", &ok_open());
        let set = |mode: &str| format!("SET sql_mode = '{mode}'");
        bed.ran(&set(prepared_by), &told(&[("sql_mode", prepared_by)]));
        bed.answers(&[prepared(71)]);
        let id = prepare(&mut bed, "INSERT INTO t (id) VALUES (\"c\")").await;
        bed.ran(&set(executed_by), &told(&[("sql_mode", executed_by)]));
        bed.arrives(&[&[10, 0, 0, 0, Command::StmtExecute as u8][..], &execution(id)].concat());
        let command = bed.next_command().await.unwrap().unwrap();
        assert_eq!(
            bed.statements.execution_insert_id_is_certain(&bed.client, &bed.wants, command, id, 7),
            is_certain,
            "{prepared_by:?}, then {executed_by:?}"
        );
    }
}

/// A value that was bound may be the id that came back, which is no proof then that it was generated.
#[tokio::test]
async fn an_insert_id_that_an_execution_does_not_prove_is_asked_for() {
    const ASKS: &str = "SELECT LAST_INSERT_ID(),FOUND_ROWS()";
    let one_parameter = [vec![0, 71, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0], COLUMN.to_vec(), eof()];
    let bound = |id: u64| [&[0, 1, 8, 0][..], &id.to_le_bytes()].concat();
    for (text, prepared, parameters, asks, expected) in [
        ("INSERT INTO t (id) VALUES (?)", numbered(&one_parameter), bound(7), true, 5),
        ("INSERT INTO t (a) VALUES (?)", numbered(&one_parameter), bound(8), false, 7),
        ("INSERT INTO t (id) VALUES (NULL)", prepared(71), Vec::new(), false, 7),
    ] {
        let mut bed = Bed::new("mysql_variables = { last_insert_id_in_triggers = false }").on(MySql);
        bed.answers(&[prepared]);
        let id = prepare(&mut bed, text).await;
        bed.sent();
        let inserted = ReplyFacts { last_insert_id: 7, affected_rows: 1, ..ok() };
        bed.answers(&[packet_of(&inserted), result_of(&[&["5", "0"]])]);
        bed.serve(Command::StmtExecute, &[execution(id), parameters].concat()).await.unwrap();
        let sent = bed.sent();
        assert_eq!((&*sent[0], sent.contains(&ASKS.to_owned())), ("Some(StmtExecute)", asks), "{text}: {sent:?}");
        assert_eq!(bed.facts.insert_id.known(), Some(expected), "{text}");
    }
}

/// What is asked for ahead would take the place of what the backend alone knows: that is read first, as for a text.
#[tokio::test]
async fn an_execution_finds_what_the_statement_before_it_left() {
    let mut bed = Bed::new("").on(MySql);
    bed.ran("SELECT GET_LOCK('a', 1)", &ok());
    bed.answers(&[prepared(71)]);
    let id = prepare(&mut bed, "SELECT FOUND_ROWS(), LAST_INSERT_ID()").await;
    bed.facts.insert_id.set(5);
    bed.at.backend.as_mut().unwrap().core.held.has_insert_id(99);
    let insert = bed.analysis("INSERT INTO t VALUES (7)");
    bed.remember(&insert, &ReplyFacts { last_insert_id: 7, ..ok() }, |_, _| false);
    bed.facts.leave_found_rows();
    assert!(bed.facts.insert_id.is_undecided() && bed.facts.found_rows_are_with_backend());
    bed.sent();
    bed.answers(&[result_of(&[&["Note", "1", "a"]])]);
    let body = execution(id);
    let serves = bed.serve(Command::StmtExecute, &body);
    let _ = tokio::time::timeout(std::time::Duration::from_millis(100), serves).await;
    assert_eq!(bed.sent()[0], "SHOW WARNINGS");
}

#[tokio::test]
async fn a_statement_is_prepared_where_it_is_executed() {
    let mut bed = Bed::new("").on(MySql);
    bed.ran("BEGIN", &ok_open());
    bed.answers(&[prepared(71)]);
    let id = prepare(&mut bed, "INSERT INTO t VALUES (1)").await;
    bed.sent();
    // Another connection does not have it.
    bed.connect(MySql);
    bed.answers(&[prepared(5), packet_of(&ok_open())]);
    bed.serve(Command::StmtExecute, &execution(id)).await.unwrap();
    assert_eq!(bed.sent(), ["Some(StmtPrepare)", "Some(StmtExecute)"]);
    bed.answers(&[packet_of(&ok_open())]);
    bed.serve(Command::StmtExecute, &execution(id)).await.unwrap();
    assert_eq!(bed.sent(), ["Some(StmtExecute)"], "it has it now");
}

#[tokio::test]
async fn a_statement_that_cannot_be_prepared_is_none() {
    let mut bed = Bed::new("").on(MySql);
    bed.ran("BEGIN", &ok_open());
    bed.answers(&[packet_of(&error(1146))]);
    let heard = bed.serve(Command::StmtPrepare, b"SELECT a FROM nowhere").await.unwrap();
    assert_eq!(heard[0][0], ERR);
    assert_eq!(bed.statements.len(), 0);
}

#[tokio::test]
async fn a_statement_that_is_closed_is_gone_without_an_answer() {
    let mut bed = Bed::new("").on(MySql);
    bed.ran("BEGIN", &ok_open());
    bed.answers(&[prepared(71)]);
    let id = prepare(&mut bed, "DELETE FROM t").await;
    let heard = bed.serve(Command::StmtClose, &id.to_le_bytes()).await.unwrap();
    assert_eq!((heard.len(), bed.statements.len()), (0, 0));
    assert_eq!(bed.serve(Command::StmtExecute, &execution(id)).await.unwrap()[0][0], ERR);
    assert_eq!(bed.serve(Command::StmtReset, &id.to_le_bytes()).await.unwrap()[0][0], ERR);
}

/// Its execution would run without it.
#[tokio::test]
async fn long_data_that_no_server_takes_is_not_dropped() {
    let all = async {
        let mut bed = Bed::new("mysql_variables = { transaction_replay = true, transaction_replay_timeout_ms = 200 }").on(MySql);
        for text in ["BEGIN", "INSERT INTO t VALUES (1)"] {
            bed.ran_and_noted(text, &ok_open());
        }
        bed.answers(&[prepared(71)]);
        let id = prepare(&mut bed, "UPDATE t SET a = ?").await;
        bed.another_rests(MySql);
        bed.at.backend = None;
        // The replay is refused, and no other server is there.
        bed.answers(&[packet_of(&ok_open()), packet_of(&error(1053)), packet_of(&error(1053))]);
        let sent = bed.serve(Command::StmtSendLongData, &[&id.to_le_bytes()[..], &[0, 0], b"data"].concat()).await;
        assert!(matches!(sent, Err(End::BackendLost(_))), "{sent:?}");
    };
    tokio::task::LocalSet::new().run_until(all).await;
}

#[tokio::test]
async fn an_execution_that_a_rule_answers_uses_the_failure_of_its_long_data_up() {
    let rule = r#"mysql_query_rules = ( { rule_id=1, active=1, match_digest="^UPDATE", OK_msg="done", apply=1 } )"#;
    let mut bed = Bed::new(rule).on(MySql);
    bed.ran("BEGIN", &ok_open());
    bed.answers(&[prepared(71)]);
    let id = prepare(&mut bed, "UPDATE t SET a = 1").await;
    let why = session_state::collected::ServerError { code: 1153, sqlstate: *b"08S01", message: Vec::new() };
    bed.statements.get_mut(id).unwrap().failed = Some(why);
    assert_eq!(bed.serve(Command::StmtExecute, &execution(id)).await.unwrap()[0][0], OK);
    assert!(bed.statements.get(id).unwrap().failed.is_none());
}

#[tokio::test]
async fn an_execution_does_what_its_text_does() {
    for (text, reply, pins) in [
        ("BEGIN", ok_open(), &["transaction"][..]),
        ("SET @a = UUID()", ok_open(), &["transaction", "user_variable"]),
        ("CREATE TEMPORARY TABLE t (a INT)", ok_open(), &["transaction", "temporary_table"]),
        ("COMMIT", ok(), &[]),
    ] {
        let mut bed = Bed::new("").on(MariaDb);
        bed.ran("BEGIN", &ok_open());
        bed.answers(&[prepared(71), packet_of(&reply)]);
        let id = prepare(&mut bed, text).await;
        bed.serve(Command::StmtExecute, &execution(id)).await.unwrap();
        assert_eq!(bed.pins(), pins, "{text}");
    }
}

#[tokio::test]
async fn so_many_bytes_of_statements_a_client_may_have() {
    let mut bed = Bed::new("mysql_variables = { max_stmts_bytes_per_client = 65536 }").on(MySql);
    bed.ran("BEGIN", &ok_open());
    let long = format!("SELECT '{}'", "x".repeat(60_000));
    bed.answers(&[prepared(71)]);
    prepare(&mut bed, &long).await;
    let refused = bed.serve(Command::StmtPrepare, long.as_bytes()).await.unwrap();
    assert_eq!((refused[0][0], u16::from_le_bytes([refused[0][1], refused[0][2]])), (ERR, 1461));
}

#[tokio::test]
async fn what_is_cached_is_answered_without_a_server() {
    let rule = r#"mysql_query_rules = ( { rule_id=1, active=1, match_digest="^SELECT a", cache_ttl=60000, apply=1 } )"#;
    let mut bed = Bed::new(rule);
    let (text, rows) = (b"SELECT a FROM t", result_of(&[&["1"]]));
    // A backend that rests in the pool serves the first.
    bed.connect(MySql);
    bed.at.give_back();
    bed.answers(std::slice::from_ref(&rows));
    let first = bed.serve(Command::Query, text).await.unwrap();
    assert_eq!(bed.sent(), ["SELECT a FROM t"]);
    let second = bed.serve(Command::Query, text).await.unwrap();
    assert!(bed.sent().is_empty() && second == first, "the same without a server");
    // Never inside of anything.
    bed.pin(&[session_state::pins::PinReason::Transaction]);
    bed.connect(MySql);
    bed.answers(&[rows]);
    bed.serve(Command::Query, text).await.unwrap();
    assert_eq!(bed.sent(), ["SELECT a FROM t"]);
}

#[tokio::test]
async fn a_backend_that_rests_serves_the_next_statement_brought_to_the_sessions_state() {
    let mut bed = Bed::new("");
    bed.connect(MySql);
    bed.at.give_back();
    bed.wants.state.variables.set("time_zone", Some(b"+02:00"));
    bed.answers(&[packet_of(&ok()), result_of(&[&["1"]])]);
    bed.serve(Command::Query, b"SELECT a FROM t").await.unwrap();
    assert_eq!(bed.sent(), ["SET @@session.time_zone='+02:00'", "SELECT a FROM t"]);
    assert!(bed.at.backend.is_none(), "it rests again");
}

#[tokio::test]
async fn rules_answer_rewrite_and_refuse() {
    let rules = r#"mysql_query_rules = (
        { rule_id=1, active=1, match_digest="^DELETE", error_msg="not today", apply=1 },
        { rule_id=2, active=1, match_digest="^OPTIMIZE", OK_msg="done", apply=1 },
        { rule_id=3, active=1, match_pattern="old", replace_pattern="new", apply=1 } )"#;
    for (text, first, sent) in [
        ("DELETE FROM t", ERR, &[][..]),
        ("OPTIMIZE TABLE t", OK, &[]),
        ("UPDATE old SET a = 1", OK, &["UPDATE new SET a = 1"]),
        ("UPDATE t SET a = 1", OK, &["UPDATE t SET a = 1"]),
    ] {
        let mut bed = Bed::new(rules).on(MySql);
        bed.answers(&[packet_of(&ok())]);
        let heard = bed.serve(Command::Query, text.as_bytes()).await.unwrap();
        assert_eq!(heard[0][0], first, "{text}");
        assert_eq!(bed.sent(), sent, "{text}");
    }
}

#[tokio::test]
async fn a_session_ends_with_the_only_connection_that_had_its_state() {
    let all = async {
        for (pins, expected) in
            [(&[session_state::pins::PinReason::TemporaryTable][..], "ends"), (&[session_state::pins::PinReason::Transaction], "goes on")]
        {
            let mut bed = Bed::new("").on(MySql);
            bed.pin(pins);
            bed.at.backend = None;
            let heard = match bed.serve(Command::Query, b"SELECT a FROM t").await {
                Ok(packets) => {
                    assert_eq!((packets[0][0], u16::from_le_bytes([packets[0][1], packets[0][2]])), (ERR, 9004));
                    "goes on"
                }
                Err(End::BackendLost(why)) => {
                    assert!(why.contains("temporary_table"), "it names what is lost: {why}");
                    "ends"
                }
                Err(other) => panic!("{other:?}"),
            };
            assert_eq!(heard, expected, "{pins:?}");
        }
    };
    tokio::task::LocalSet::new().run_until(all).await;
}
