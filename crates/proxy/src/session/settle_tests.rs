use super::*;
use crate::session::bed::{Bed, error, ok, ok_open, packet_of, result_of, rows};
use sql::Fact::{FoundRows, RowCount};
use wire::charset::Flavor::MySql;

/// After this statement: what the server was asked, and whether the backend is still held.
async fn settled(bed: &mut Bed, text: &str, reply: &ReplyFacts, answers: &[Vec<u8>]) -> (Vec<String>, bool) {
    bed.ran(text, reply);
    bed.answers(answers);
    let analysis = bed.analysis(text);
    bed.settle(&analysis, reply, |_, _| true).await.unwrap();
    (bed.sent(), bed.at.backend.is_some())
}

#[tokio::test]
async fn a_backend_goes_back_when_nothing_keeps_it() {
    let off = "mysql_variables = { multiplexing = false }";
    let waits = "mysql_variables = { connection_delay_multiplex_ms = 5000 }";
    for (config, text, reply, is_held, pins) in [
        ("", "SELECT 1", rows(1), false, &[][..]),
        ("", "INSERT INTO t VALUES (1)", ok(), false, &[]),
        ("", "BEGIN", ok_open(), true, &["transaction"]),
        ("", "SELECT GET_LOCK('a', 1)", rows(1), true, &["user_lock"]),
        (off, "SELECT 1", rows(1), true, &["multiplexing_off"]),
        (waits, "SELECT 1", rows(1), true, &[]),
    ] {
        let mut bed = Bed::new(config).on(MySql);
        assert_eq!(settled(&mut bed, text, &reply, &[]).await, (vec![], is_held), "{config} {text}");
        assert_eq!(bed.pins(), pins, "{config} {text}");
    }
}

#[tokio::test]
async fn what_the_session_must_know_is_read_before_its_backend_goes() {
    let warned = ReplyFacts { warnings: 1, warned: true, ..ok() };
    let mut bed = Bed::new("").on(MySql);
    let warnings = result_of(&[&["Warning", "1292", "bad"]]);
    let (asked, is_held) = settled(&mut bed, "INSERT INTO t VALUES ('x')", &warned, std::slice::from_ref(&warnings)).await;
    assert!(asked.iter().any(|text| text.starts_with("SHOW WARNINGS")) && !is_held, "{asked:?}");
    assert_eq!((bed.facts.numbers().2, bed.facts.numbers().3), (1, 0));
    let lines: Vec<String> = bed.facts.diagnostics().unwrap().lines().collect();
    assert_eq!(lines, ["Warning 1292: bad"]);
    // A pin keeps them where they are.
    let mut bed = Bed::new("").on(MySql);
    bed.pin(&[PinReason::UserLock]);
    let (asked, is_held) = settled(&mut bed, "INSERT INTO t VALUES ('x')", &warned, &[]).await;
    assert!(asked.is_empty() && is_held && bed.facts.is_unread());
    // A connection that breaks meanwhile costs no more than the warnings.
    let mut bed = Bed::new("").on(MySql);
    bed.ran("INSERT INTO t VALUES ('x')", &warned);
    bed.ends.truncate(1);
    let analysis = bed.analysis("INSERT INTO t VALUES ('x')");
    tokio::task::LocalSet::new().run_until(bed.settle(&analysis, &warned, |_, _| true)).await.unwrap();
    assert!(bed.at.backend.is_none());
    assert_eq!(bed.facts.numbers().2, 0);
}

#[tokio::test]
async fn counts_and_ids_are_those_of_the_last_statement() {
    let changed = ReplyFacts { affected_rows: 3, ..ok() };
    let inserted = ReplyFacts { affected_rows: 1, last_insert_id: 9, ..ok() };
    for (text, reply, row_count, found_rows) in [
        ("SELECT a FROM t", rows(5), -1, 5),
        ("UPDATE t SET a = 1", changed.clone(), 3, 0),
        ("SELECT a INTO @a FROM t", ReplyFacts { affected_rows: 1, ..ok() }, 1, 1),
        ("SHOW WARNINGS", rows(2), -1, 0),
        ("CREATE TABLE t (a INT)", ok(), 0, 0),
    ] {
        let mut bed = Bed::new("").on(MySql);
        let analysis = bed.analysis(text);
        bed.remember(&analysis, &reply, |_, _| true);
        assert_eq!((bed.facts.numbers().0, bed.facts.numbers().1), (row_count, found_rows), "{text}");
        assert!(!bed.facts.is_with_backend(RowCount) && !bed.facts.is_with_backend(FoundRows), "{text}");
    }
    let mut bed = Bed::new("").on(MySql);
    let insert = bed.analysis("INSERT INTO t VALUES (NULL)");
    bed.remember(&insert, &inserted, |_, _| true);
    assert_eq!((bed.facts.insert_id.known(), bed.facts.unread().last_insert_id), (Some(9), false));
    bed.remember(&insert, &ReplyFacts { last_insert_id: 12, ..inserted }, |_, _| false);
    assert!(bed.facts.unread().last_insert_id, "a number of the text may have been answered: it is asked for");
    let mut bed = Bed::new("").on(MySql);
    let calls = bed.analysis("CALL p()");
    bed.remember(&calls, &changed, |_, _| true);
    assert!(bed.facts.is_with_backend(RowCount) && bed.facts.is_with_backend(FoundRows), "what ran there counts in ways of its own");
    let failed = bed.analysis("INSERT INTO t VALUES (1)");
    bed.remember(&failed, &error(1062), |_, _| true);
    assert_eq!((bed.facts.numbers(), bed.facts.unread().warnings), ((-1, 0, 1, 1), true));
}

#[tokio::test]
async fn an_error_that_may_have_ended_a_transaction_is_looked_after() {
    for (text, code, in_transaction, expected) in [
        ("UPDATE t SET a = 1", codes::LOCK_DEADLOCK, true, true),
        ("UPDATE t SET a = 1", codes::LOCK_WAIT_TIMEOUT, true, true),
        ("UPDATE t SET a = 1", 1062, true, false),
        ("COMMIT", 1180, true, true),
        // It commits before it fails.
        ("CREATE TABLE t (a INT)", 1050, true, true),
        ("UPDATE t SET a = 1", codes::LOCK_DEADLOCK, false, false),
    ] {
        let mut bed = Bed::new("").on(MySql);
        if in_transaction {
            bed.ran("BEGIN", &ok_open());
        }
        let analysis = bed.analysis(text);
        assert_eq!(bed.client.may_have_ended(&bed.at, &bed.hand, &analysis, &error(code)), expected, "{text} {code} {in_transaction}");
    }
    let mut bed = Bed::new("").on(MySql);
    bed.client.status = StatusFlags::default();
    assert!(
        bed.client.may_have_ended(&bed.at, &bed.hand, &bed.analysis("SELECT a FROM t"), &error(1146)),
        "with autocommit off it may have begun one"
    );
    // The answer to a ping has the status.
    let mut bed = Bed::new("").on(MySql);
    bed.ran("BEGIN", &ok_open());
    bed.answers(&[packet_of(&ok())]);
    let update = bed.analysis("UPDATE t SET a = 1");
    bed.ask_for_status(&update).await;
    assert_eq!((bed.sent(), bed.pins().len()), (vec!["Some(Ping)".to_owned()], 0));
}

#[tokio::test]
async fn autocommit_off_is_a_transaction_where_a_setting_says_so() {
    for (config, expected) in [("mysql_variables = { autocommit_false_is_transaction = true }", true), ("", false)] {
        let mut bed = Bed::new(config).on(MySql);
        let set = bed.analysis("SET autocommit = 0");
        bed.client.status = StatusFlags::default();
        {
            let session = &mut *bed;
            session.client.note_autocommit(&mut session.at, &set)
        };
        assert_eq!((bed.pins() == ["autocommit_off"], bed.handle.is_in_transaction()), (expected, expected), "{config}");
        bed.client.status = StatusFlags::AUTOCOMMIT;
        {
            let session = &mut *bed;
            session.client.note_autocommit(&mut session.at, &set)
        };
        assert!(bed.pins().is_empty() && !bed.handle.is_in_transaction(), "{config}");
    }
}
