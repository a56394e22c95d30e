use super::*;
use crate::session::bed::{Bed, error, ok, packet_of, result_of};
use crate::session::fault::Certainty;
use session_state::pins::PinReason;
use tokio::task::LocalSet;
use wire::charset::Flavor::{MariaDb, MySql};
use wire::reframe::ReplyFacts;

const CHANGED: &str = "SET @@session.time_zone='+02:00'";

/// The statements that go in one write with the one at hand.
fn ahead_of(ahead: &Ahead) -> Vec<String> {
    let text = |payload: &[u8]| String::from_utf8_lossy(&payload[1..]).into_owned();
    session_state::collected::packets(&ahead.packets).map(text).collect()
}

#[tokio::test]
async fn a_backend_that_is_as_wanted_is_told_nothing() {
    for text in ["SELECT 1", "BEGIN", "COMMIT", "SHOW TABLES"] {
        let mut bed = Bed::new("").on(MySql);
        let analysis = bed.analysis(text);
        assert!(
            {
                let session = &mut *bed;
                session.hand.is_in_sync(&mut session.at, &session.wants, &session.facts, &analysis)
            },
            "{text}"
        );
        let ahead = bed.sync(&analysis).await.unwrap();
        assert_eq!((ahead.replies, bed.sent().len()), (0, 0), "{text}");
    }
}

#[tokio::test]
async fn what_takes_more_than_a_look_is_no_match() {
    type Change = fn(&mut Bed);
    let cases: [(&str, &str, Change); 7] = [
        ("it shows how tracking is set", "SHOW VARIABLES", |_| {}),
        ("it enters a schema", "USE other", |_| {}),
        ("it reads the session's id", "SELECT LAST_INSERT_ID()", |_| {}),
        ("warnings of another session", "SELECT 1", |bed| bed.at.backend.as_mut().unwrap().core.held.failed()),
        ("it runs with autocommit on", "SELECT 1", |bed| bed.hand.directions.alone = true),
        ("another schema", "SELECT 1", |bed| bed.wants.state.schema = None),
        ("another variable", "SELECT 1", |bed| bed.wants.state.variables.set("time_zone", Some(b"UTC"))),
    ];
    for (why, text, change) in cases {
        let mut bed = Bed::new("").on(MySql);
        change(&mut bed);
        let analysis = bed.analysis(text);
        assert!(
            !{
                let session = &mut *bed;
                session.hand.is_in_sync(&mut session.at, &session.wants, &session.facts, &analysis)
            },
            "{why}"
        );
    }
}

#[tokio::test]
async fn a_setting_is_tried_once_and_goes_with_statements_from_then_on() {
    let mut bed = Bed::new("").on(MySql);
    let select = bed.analysis("SELECT 1");
    bed.wants.state.variables.set("time_zone", Some(b"+02:00"));
    bed.answers(&[packet_of(&ok())]);
    let ahead = bed.sync(&select).await.unwrap();
    assert_eq!((bed.sent(), ahead.replies), (vec![CHANGED.to_owned()], 0));
    assert!({
        let session = &mut *bed;
        session.hand.is_in_sync(&mut session.at, &session.wants, &session.facts, &select)
    });
    let mut there = bed.wants.state.clone();
    there.variables.set("time_zone", None);
    bed.at.backend.as_mut().unwrap().core.held.was_brought_to(&there);
    let ahead = bed.sync(&select).await.unwrap();
    assert_eq!((bed.sent().len(), ahead_of(&ahead), ahead.replies), (0, vec![CHANGED.to_owned()], 1));
}

#[tokio::test]
async fn a_schema_is_entered_before_the_statement_goes_out() {
    let mut bed = Bed::new("").on(MySql);
    let select = bed.analysis("SELECT 1");
    bed.wants.state.schema = Some(b"other"[..].into());
    bed.answers(&[packet_of(&ok())]);
    assert_eq!(bed.sync(&select).await.unwrap().replies, 0);
    assert_eq!(bed.sent(), ["InitDb other"]);
    assert!({
        let session = &mut *bed;
        session.hand.is_in_sync(&mut session.at, &session.wants, &session.facts, &select)
    });
    // USE leaves the one that it was in, which may be gone.
    bed.wants.state.schema = Some(b"gone"[..].into());
    let enters = bed.analysis("USE shop");
    bed.sync(&enters).await.unwrap();
    assert!(bed.sent().is_empty());
    assert_eq!(bed.wants.state.schema.as_deref(), Some(&b"gone"[..]));
}

#[tokio::test]
async fn without_its_schema_a_session_runs_what_needs_none() {
    let mut bed = Bed::new("").on(MySql);
    bed.at.backend.as_mut().unwrap().core.held.entered(None);
    let select = bed.analysis("SELECT 1");
    bed.answers(&[packet_of(&error(codes::BAD_DB))]);
    bed.sync(&select).await.unwrap();
    assert_eq!(bed.sent(), ["InitDb shop"]);
    assert_eq!(bed.wants.state.schema.as_deref(), Some(&b"shop"[..]), "it keeps the name");
    bed.pin(&[PinReason::UserLock]);
    bed.sync(&select).await.unwrap();
    assert!(bed.sent().is_empty(), "once is enough: the error takes the place of warnings");
}

#[tokio::test]
async fn a_setting_that_a_server_refuses_is_told() {
    let refused = |code, message: &str| packet_of(&ReplyFacts { message: message.as_bytes().into(), ..error(code) });
    let mut bed = Bed::new("").on(MySql);
    bed.pin(&[PinReason::UserLock]);
    bed.wants.state.variables.set("nonsense", Some(b"1"));
    bed.answers(&[refused(codes::UNKNOWN_SYSTEM_VARIABLE, "Unknown system variable 'nonsense'")]);
    let select = bed.analysis("SELECT 1");
    let fault = bed.sync(&select).await.err();
    assert!(matches!(fault, Some(Fault::Error { code: codes::UNKNOWN_SYSTEM_VARIABLE, .. })), "{fault:?}");
    assert!(bed.at.backend.is_none(), "which of its assignments stand is not known");
    assert!(bed.facts.is_refused, "the next SET may mend it");
    assert!(bed.wants.state.variables.get("nonsense").is_none(), "no server has it any more: the next statement runs");
}

#[tokio::test]
async fn a_session_takes_its_insert_id_to_what_reads_it() {
    for (text, config, expected) in [
        ("SELECT LAST_INSERT_ID()", "", true),
        ("INSERT INTO t VALUES (LAST_INSERT_ID())", "", true),
        // Code may read it, whatever the text says.
        ("CALL p()", "", true),
        ("SELECT f()", "", true),
        ("SELECT a FROM t", "", false),
        ("UPDATE t SET a = 1", "mysql_variables = { last_insert_id_in_triggers = true }", true),
        ("UPDATE t SET a = 1", "mysql_variables = { last_insert_id_in_triggers = false }", false),
    ] {
        let mut bed = Bed::new(config).on(MySql);
        bed.facts.insert_id.set(7);
        let analysis = bed.analysis(text);
        let ahead = bed.sync(&analysis).await.unwrap();
        let told = ahead_of(&ahead).contains(&"SET @@session.last_insert_id=7".to_owned());
        assert_eq!(told, expected, "{config} {text}");
        let again = bed.sync(&analysis).await.unwrap();
        assert_eq!(again.replies, 0, "{text}: the backend has it");
    }
}

#[tokio::test]
async fn warnings_of_another_session_are_not_shown() {
    for (flavor, text, expected) in [
        (MySql, "SHOW WARNINGS", true),
        (MySql, "SHOW COUNT(*) WARNINGS", true),
        (MySql, "SELECT 1", false),
        // It forgets them with any statement.
        (MySql, "BEGIN", false),
        (MariaDb, "BEGIN", true),
        (MariaDb, "SELECT 1", false),
    ] {
        let mut bed = Bed::new("").on(flavor);
        bed.at.backend.as_mut().unwrap().core.held.failed();
        let analysis = bed.analysis(text);
        let ahead = bed.sync(&analysis).await.unwrap();
        assert_eq!(ahead_of(&ahead).contains(&CLEAR_WARNINGS.to_owned()), expected, "{flavor:?} {text}");
        bed.pin(&[PinReason::UserLock]);
        bed.at.backend.as_mut().unwrap().core.held.failed();
        assert_eq!(bed.sync(&analysis).await.unwrap().replies, 0, "{flavor:?} {text}: those of a pinned backend are its own");
        bed.at.backend.as_mut().unwrap().core.held.ran_for(99);
        let ahead = bed.sync(&analysis).await.unwrap();
        assert_eq!(ahead_of(&ahead).contains(&CLEAR_WARNINGS.to_owned()), expected, "{flavor:?} {text}: it came to this one pinned");
    }
}

#[tokio::test]
async fn what_shows_tracking_sees_the_clients_own() {
    let mut bed = Bed::new("").on(MySql);
    let shows = bed.analysis("SHOW VARIABLES");
    bed.answers(&[packet_of(&ok())]);
    bed.sync(&shows).await.unwrap();
    let sent = bed.sent();
    assert!(sent.len() == 1 && sent[0].starts_with("SET SESSION session_track_system_variables="), "{sent:?}");
    assert_eq!(bed.at.backend.as_ref().unwrap().core.held.tracking(), Tracking::Clients);
    bed.sync(&shows).await.unwrap();
    assert!(bed.sent().is_empty(), "it has them");
}

#[tokio::test]
async fn what_runs_alone_runs_with_autocommit_on() {
    let mut bed = Bed::new("").on(MySql);
    bed.wants.state.variables.set(AUTOCOMMIT, Some(b"OFF"));
    bed.hand.directions.alone = true;
    let select = bed.analysis("SELECT 1");
    assert_eq!(bed.sync(&select).await.unwrap().replies, 0);
    assert!(bed.sent().is_empty());
    assert_eq!(bed.wants.state.variables.get(AUTOCOMMIT).map(|value| value.to_vec()), Some(b"OFF".to_vec()));
    bed.hand.directions.alone = false;
    bed.answers(&[packet_of(&ok())]);
    bed.sync(&select).await.unwrap();
    assert_eq!(bed.sent(), ["SET @@session.autocommit='OFF'"]);
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_statement_was_never_sent_it() {
    let all = async {
        let mut bed = Bed::new("").on(MySql);
        bed.wants.state.variables.set("time_zone", Some(b"+02:00"));
        bed.ends.truncate(1);
        let select = bed.analysis("SELECT 1");
        let fault = bed.sync(&select).await.err();
        assert!(matches!(fault, Some(Fault::Lost { certainty: Certainty::NeverSent, .. })), "{fault:?}");
        assert!(bed.at.backend.is_none());
    };
    LocalSet::new().run_until(all).await;
}

#[tokio::test]
async fn an_error_of_the_proxys_own_is_raised_where_it_is_asked_for() {
    let mut bed = Bed::new("").on(MySql);
    bed.facts.note_own_error(9001, *b"HY000", b"it's late");
    bed.answers(&[packet_of(&error(9001))]);
    bed.door().raise_own_error().await.unwrap();
    assert_eq!(bed.sent(), ["SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO=9001, MESSAGE_TEXT='it''s late'"]);
}

#[tokio::test]
async fn an_answer_is_read_as_a_server_sends_it() {
    let mut bed = Bed::new("").on(MySql);
    bed.answers(&[result_of(&[&["a", "b"], &["c", "d"]])]);
    let session = &mut *bed;
    let backend = session.at.backend.as_mut().unwrap();
    let reply = backend.query("SELECT a, b FROM t", &session.worker.buffers).await.unwrap();
    assert_eq!((reply.rows.len(), &*reply.rows[1]), (2, &b"\x01c\x01d"[..]));
    assert!(backend.is_even() && bed.sent() == ["SELECT a, b FROM t"]);
}
