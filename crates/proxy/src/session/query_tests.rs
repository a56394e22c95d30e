use super::*;
use crate::session::bed::{Bed, rows};
use session_state::pins::PinReason;
use wire::charset::Flavor::{MariaDb, MySql};

/// A session of which these facts are known.
fn bed() -> Bed {
    let mut bed = Bed::new("").on(MySql);
    bed.facts.set_numbers((5, 7, 2, 1));
    bed
}

fn sent(bed: &Bed, text: &str) -> String {
    String::from_utf8(substituted(&bed.facts, &bed.at, &bed.wants, text.as_bytes(), &bed.analysis(text))).unwrap()
}

/// Which of these numbers stand in the text that is sent: the row count, found rows, warnings, errors, and the connection's id.
fn told(bed: &Bed, text: &str) -> Vec<i64> {
    let sent = sent(bed, text);
    let id = i64::try_from(bed.handle.id).unwrap();
    [5, 7, 2, 1, id]
        .into_iter()
        .flat_map(|number| vec![number; sent.matches(&format!("({number}|")).count() + sent.matches(&format!("IF(1,{number},")).count()])
        .collect()
}

#[tokio::test]
async fn what_the_session_knows_stands_in_the_text() {
    let bed = bed();
    for (text, expected) in [
        ("SELECT 1 + ROW_COUNT()", &[5][..]),
        ("SELECT IF(FOUND_ROWS() > 1, 'a', 'b')", &[7]),
        ("SELECT @@warning_count + @@error_count", &[2, 1]),
        ("INSERT INTO t VALUES (FOUND_ROWS())", &[7]),
        ("CREATE TABLE u AS SELECT ROW_COUNT()", &[5]),
        ("SELECT 'FOUND_ROWS()', `ROW_COUNT()` FROM t", &[]),
        // It asks when it is called, of whatever session calls it.
        ("CREATE PROCEDURE p() SELECT FOUND_ROWS()", &[]),
        ("ALTER VIEW v AS SELECT FOUND_ROWS()", &[]),
        ("ALTER EVENT e DO BEGIN DELETE FROM t; INSERT INTO log VALUES (ROW_COUNT()); END", &[]),
        // Tables know the connection by the server's own number.
        ("INSERT INTO t VALUES (CONNECTION_ID())", &[]),
    ] {
        assert_eq!(told(&bed, text), expected, "{text}: {}", sent(&bed, text));
    }
    assert_eq!(sent(&bed, "SELECT 1 + ROW_COUNT()"), "SELECT 1 + IF(1,5,ROW_COUNT()) AS `1 + ROW_COUNT()`", "the column keeps its name");
    let own = sent(&bed, "SELECT 1 + CONNECTION_ID()");
    assert!(own.contains(&bed.handle.id.to_string()), "{own}");
}

#[tokio::test]
async fn behind_the_first_statement_a_server_knows_better() {
    let bed = bed();
    for (text, expected) in [
        // The row count is that of the statement before.
        ("SELECT 1 + ROW_COUNT(); SELECT 1 + ROW_COUNT()", &[5][..]),
        ("UPDATE t SET a = 1; SELECT 1 + ROW_COUNT()", &[]),
        ("UPDATE t SET a = 1; SELECT 1 + FOUND_ROWS()", &[7]),
        ("SELECT a FROM t; SELECT 1 + FOUND_ROWS()", &[]),
        ("SELECT 1 + FOUND_ROWS(); SELECT 1 + FOUND_ROWS()", &[7]),
    ] {
        assert_eq!(told(&bed, text), expected, "{text}: {}", sent(&bed, text));
    }
}

#[tokio::test]
async fn a_pinned_backend_knows_what_ran_there() {
    let mut bed = bed();
    assert!(bed.facts.knows(bed.at.pins.set(), sql::Fact::FoundRows));
    bed.ran("SELECT GET_LOCK('a', 1)", &rows(1));
    assert!(bed.facts.knows(bed.at.pins.set(), sql::Fact::FoundRows), "what the session saw of it");
    bed.facts.leave_found_rows();
    assert!(!bed.facts.knows(bed.at.pins.set(), sql::Fact::FoundRows));
    assert_eq!(sent(&bed, "SELECT 1 + FOUND_ROWS()"), "SELECT 1 + FOUND_ROWS()");
    assert!(bed.facts.knows(bed.at.pins.set(), sql::Fact::ConnectionId), "it is the session's wherever it is");
    bed.ran("SELECT GET_LOCK('a', 1)", &rows(1));
    bed.pin(&[PinReason::SessionState]);
    assert!(!bed.facts.knows(bed.at.pins.set(), sql::Fact::PseudoThreadId), "it may have been set");
}

#[tokio::test]
async fn a_question_for_one_fact_is_answered_in_its_rows() {
    let bed = bed();
    for (text, expected) in [
        ("SELECT FOUND_ROWS()", Some(7)),
        ("SELECT ROW_COUNT()", Some(5)),
        ("SHOW COUNT(*) WARNINGS", Some(2)),
        ("SHOW COUNT(*) ERRORS", Some(1)),
        ("SELECT @@error_count", Some(1)),
        ("SELECT 1", None),
        ("SELECT FOUND_ROWS(), 1", None),
    ] {
        let number = match patch(&bed.facts, &bed.at, &bed.wants, text.as_bytes(), bed.analysis(text).kind) {
            Some(Patch::Number { value, binary: false }) => Some(value),
            Some(_) => panic!("{text}"),
            None => None,
        };
        assert_eq!(number, expected, "{text}");
    }
}

#[tokio::test]
async fn a_text_is_sent_as_it_came_unless_it_asks_for_facts() {
    for (text, rewrites, patches) in [
        ("SELECT a FROM t", false, 0),
        ("SELECT 1 + FOUND_ROWS()", true, 0),
        ("SELECT FOUND_ROWS()", false, 1),
        ("SHOW COUNT(*) WARNINGS; SELECT 1", false, 1),
    ] {
        let mut bed = bed();
        let (command, mut plan) = (bed.says(text), Plan::new(bed.analysis(text)));
        let session = &*bed;
        session.router().plan_text(&session.facts, command, 0, &mut plan);
        assert_eq!((plan.rewritten.is_some(), plan.patches.len()), (rewrites, patches), "{text}");
    }
}

#[tokio::test]
async fn statements_of_one_text_keep_what_all_of_them_keep() {
    let mut bed = Bed::new("").on(MariaDb);
    bed.facts.set_numbers((0, 0, 1, 0));
    for (text, found_rows) in [
        ("SET @a = 1; UPDATE t SET a = 1", true),
        ("BEGIN; INSERT INTO t VALUES (1); COMMIT", true),
        ("SELECT 1; UPDATE t SET a = 1", false),
        ("INSERT INTO t SELECT * FROM u; COMMIT", false),
        ("INSERT INTO t VALUES (f()); COMMIT", false),
    ] {
        assert_eq!(several_kept(&bed.facts, &bed.at, &bed.wants, text.as_bytes()).1, found_rows, "{text}");
    }
    assert!(
        several_kept(&bed.facts, &bed.at, &bed.wants, b"SET @a = 1; SET @b = 2").0,
        "MariaDB forgets warnings only when a table is read"
    );
    assert!(!several_kept(&bed.facts, &bed.at, &bed.wants, b"SET @a = 1; SELECT a FROM t").0);
}
