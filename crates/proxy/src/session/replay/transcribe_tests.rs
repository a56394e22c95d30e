use super::*;
use crate::session::bed::{Bed, error, ok, ok_open, told};
use wire::charset::Flavor::MySql;

const REPLAYS: &str = "mysql_variables = { transaction_replay = true }";

/// What is kept of an open transaction, in short.
fn kept(bed: &Bed) -> String {
    let Some(transcript) = bed.recovery.transcript.as_ref() else { return "nothing".to_owned() };
    let said: Vec<_> = transcript.statements().map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).collect();
    match transcript.progress {
        Progress::Opening => format!("opened: {}", said.join("; ")),
        Progress::Kept => said.join("; "),
        Progress::Lost(gap) => format!("{gap:?}"),
    }
}

fn check(config: &str, cases: &[(&[(&str, ReplyFacts)], &str)]) {
    for (said, expected) in cases {
        let mut bed = Bed::new(config).on(MySql);
        said.iter().for_each(|(text, reply)| bed.ran_and_noted(text, reply));
        let texts: Vec<&str> = said.iter().map(|(text, _)| *text).collect();
        assert_eq!(kept(&bed), *expected, "{config}: {texts:?}");
    }
}

#[tokio::test]
async fn what_a_transaction_said_is_kept_while_it_can_be_said_again() {
    let (begin, insert) = (("BEGIN", ok_open()), ("INSERT INTO t VALUES (1)", ok_open()));
    let set = |name: &str, value: &str| ReplyFacts { status: ok_open().status, ..told(&[(name, value)]) };
    check(
        REPLAYS,
        &[
            (&[("SELECT 1", ok())], "nothing"),
            (std::slice::from_ref(&begin), "opened: BEGIN"),
            (&[begin.clone(), insert.clone()], "BEGIN; INSERT INTO t VALUES (1)"),
            (&[begin.clone(), insert.clone(), ("COMMIT", ok())], "nothing"),
            (&[begin.clone(), insert.clone(), ("ROLLBACK", ok())], "nothing"),
            (&[begin.clone(), insert.clone(), ("COMMIT AND CHAIN", ok_open())], "opened: BEGIN"),
            (&[begin.clone(), ("SAVEPOINT a", ok_open()), ("ROLLBACK TO a", ok_open())], "BEGIN; SAVEPOINT a; ROLLBACK TO a"),
            (&[begin.clone(), insert.clone(), begin.clone()], "opened: BEGIN"),
            // A statement that failed and was undone is part of it: what comes again has to fail again.
            (&[begin.clone(), ("INSERT INTO t VALUES (1)", error(1062))], "BEGIN; INSERT INTO t VALUES (1)"),
            // What leaves something behind beside the transaction.
            (&[begin.clone(), ("SELECT GET_LOCK('a', 1)", ok_open())], "Unrepeatable"),
            (&[begin.clone(), ("SELECT a INTO OUTFILE 'f' FROM t", ok_open())], "Unrepeatable"),
            (&[begin.clone(), ("CALL p()", ok_open())], "Unrepeatable"),
            (&[begin.clone(), ("INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)", ok_open())], "Unrepeatable"),
            // What follows FOR commits, or is part of the transaction.
            (&[begin.clone(), insert.clone(), ("SET STATEMENT max_statement_time=1 FOR COMMIT AND CHAIN", ok_open())], "Unrepeatable"),
            (&[begin.clone(), ("SET STATEMENT max_statement_time=1 FOR ROLLBACK AND CHAIN", ok_open())], "Unrepeatable"),
            (
                &[begin.clone(), ("SET STATEMENT max_statement_time=1 FOR UPDATE t SET a = 1", ok_open())],
                "BEGIN; SET STATEMENT max_statement_time=1 FOR UPDATE t SET a = 1",
            ),
            // What it sees is as old as that.
            (&[("START TRANSACTION WITH CONSISTENT SNAPSHOT", ok_open())], "Unrepeatable"),
            (&[begin.clone(), ("SET sql_mode = 'ANSI'", set("sql_mode", "ANSI"))], "opened: BEGIN; SET sql_mode = 'ANSI'"),
            (
                &[("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", ok()), begin.clone()],
                "opened: SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; BEGIN",
            ),
        ],
    );
}

#[tokio::test]
async fn without_replay_only_the_opening_is_kept() {
    check(
        "",
        &[
            (&[("BEGIN", ok_open())], "opened: BEGIN"),
            (&[("BEGIN", ok_open()), ("SELECT 1", ok_open())], "Off"),
            (&[("BEGIN", ok_open()), ("SELECT 1", ok_open()), ("COMMIT", ok())], "nothing"),
            // The session carries it by itself.
            (&[("BEGIN", ok_open()), ("USE shop", ok_open())], "opened: BEGIN"),
        ],
    );
}

#[tokio::test]
async fn a_transaction_that_is_too_large_is_not_kept() {
    let small = "mysql_variables = { transaction_replay = true, transaction_replay_max_bytes = 500 }";
    let long = format!("INSERT INTO t VALUES ('{}')", "x".repeat(500));
    check(small, &[(&[("BEGIN", ok_open()), (&long, ok_open())], "TooLarge")]);
    let opening = format!("BEGIN /* {} */", "x".repeat(MAX_OPENING));
    check("", &[(&[(&opening, ok_open())], "TooLarge")]);
}

#[tokio::test]
async fn with_autocommit_off_any_statement_begins_a_transaction() {
    let off = |open: bool| {
        let status = if open { StatusFlags::IN_TRANS } else { StatusFlags::default() };
        ReplyFacts { status: Some(status), ..ReplyFacts::default() }
    };
    check(
        REPLAYS,
        &[
            (&[("SET autocommit = 0", off(false)), ("UPDATE t SET a = 1", off(true))], "UPDATE t SET a = 1"),
            (&[("SET autocommit = 0", off(false)), ("UPDATE t SET a = 1", off(true)), ("COMMIT", off(false))], "nothing"),
            (&[("SET autocommit = 0", off(false)), ("SELECT 1", off(false))], "nothing"),
            (&[("SET autocommit = 0", off(false)), ("SAVEPOINT a", off(false))], "SAVEPOINT a"),
        ],
    );
}

#[tokio::test]
async fn a_schema_that_is_chosen_by_a_command_is_carried_or_a_gap() {
    let mut bed = Bed::new(REPLAYS).on(MySql);
    bed.recovery.note_schema_command();
    assert_eq!(kept(&bed), "nothing");
    bed.ran_and_noted("BEGIN", &ok_open());
    bed.recovery.note_schema_command();
    assert!(bed.recovery.transcript.as_ref().unwrap().carried);
    let mut bed = Bed::new(REPLAYS).on(MySql);
    bed.ran_and_noted("BEGIN", &ok_open());
    bed.ran_and_noted("SELECT 1", &ok_open());
    bed.recovery.note_schema_command();
    assert_eq!(kept(&bed), "Unrepeatable");
}

#[tokio::test]
async fn a_transaction_that_wrote_is_counted_with_its_server() {
    let has_stake = |bed: &Bed| bed.recovery.transcript.as_ref().is_some_and(|transcript| transcript.stake.is_some());
    for (said, expected) in [
        (&["BEGIN"][..], false),
        (&["BEGIN", "SELECT a FROM t"], false),
        (&["BEGIN", "SELECT a FROM t FOR UPDATE"], true),
        (&["BEGIN", "INSERT INTO t VALUES (1)"], true),
        (&["BEGIN", "INSERT INTO t VALUES (1)", "CALL p()"], false),
    ] {
        let mut bed = Bed::new(REPLAYS).on(MySql);
        said.iter().for_each(|text| bed.ran_and_noted(text, &ok_open()));
        assert_eq!(has_stake(&bed), expected, "{said:?}");
        assert!(!bed.recovery.is_stranded());
        bed.place(model::snapshot::ServerStatus::OfflineHard, model::fleet::UnderWay::MayFinish, 0);
        assert_eq!(bed.recovery.is_stranded(), expected, "{said:?}");
    }
}
