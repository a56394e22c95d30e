use super::*;
use crate::session::bed::{Bed, error, ok, packet_of, result_of, rows};
use wire::charset::Flavor::MySql;

#[test]
fn an_error_is_the_replys_or_the_faults() {
    let refused = Fault::Refused { refusal: session_state::certainty::Refusal::ReadOnly, code: 1290, sqlstate: *b"HY000", text: vec![] };
    let lost = Fault::Lost { certainty: crate::session::fault::Certainty::Unknown, text: "gone".into(), pins: Default::default() };
    for (fault, expected) in [
        (Fault::error(9001, b"HY000", "late"), Some(9001)),
        (refused, Some(1290)),
        (lost, Some(SERVER_LOST)),
        (Fault::End(End::BackendLost("gone".into())), Some(SERVER_LOST)),
        (Fault::End(End::ClientGone), None),
    ] {
        assert_eq!(error_of(Err(&fault)).map(|(code, _)| code), expected, "{fault:?}");
    }
    assert_eq!(error_of(Ok(&error(1062))).map(|(code, _)| code), Some(1062));
    assert_eq!(error_of(Ok(&rows(1))), None);
}

#[test]
fn sets_are_counted_by_what_they_set() {
    for (text, names, autocommit) in [
        ("SET NAMES utf8mb4", true, false),
        ("  set character set latin1", true, false),
        ("SET autocommit = 0", false, true),
        ("SET SESSION AutoCommit=1", false, true),
        ("SET sql_mode = ''", false, false),
    ] {
        let is_names = begins_with_any(text.as_bytes(), &["SET NAMES", "SET CHARACTER SET", "SET CHARSET"]);
        assert_eq!((is_names, names_autocommit(text.as_bytes())), (names, autocommit), "{text}");
    }
}

#[tokio::test]
async fn statements_are_counted_where_they_are_answered() {
    let mut bed = Bed::new("").on(MySql);
    let count = |bed: &Bed| {
        let counters = &bed.worker.counters;
        [&counters.questions, &counters.commits, &counters.answered_here].map(|counter| counter.get())
    };
    bed.at.backend = None;
    bed.serve(Command::Query, b"COMMIT").await.unwrap();
    assert_eq!(count(&bed), [1, 1, 1], "there was nothing to commit");
    bed.connect(MySql);
    bed.answers(&[packet_of(&ok())]);
    bed.serve(Command::Query, b"UPDATE t SET a = 1").await.unwrap();
    assert_eq!(count(&bed), [2, 1, 1]);
}

#[tokio::test]
async fn an_error_never_quotes_a_password() {
    let bed = Bed::new("");
    for (text, message, expected) in [
        ("SELECT nonsense", "Unknown column 'nonsense'", "Unknown column 'nonsense'"),
        ("CREATE USER u IDENTIFIED BY 'secret'", "near 'secret'", ""),
    ] {
        let analysis = bed.analysis(text);
        let shown = bed.account().shown_error(message.as_bytes(), Some((Measured::Text(text.as_bytes()), &analysis)));
        let shown = String::from_utf8_lossy(&shown).into_owned();
        assert!(!shown.contains("secret"), "{shown}");
        assert!(expected.is_empty() || shown == expected, "{shown}");
    }
    let described = bed.account().described(Some((Measured::Text(b"SELECT 'secret'"), &bed.analysis("SELECT 'secret'"))));
    assert!(described.contains("user 'anna'") && described.contains("SELECT ?") && !described.contains("secret"), "{described}");
}

#[tokio::test]
async fn others_see_a_session_as_it_is_after_its_command() {
    let mut bed = Bed::new("").on(MySql);
    bed.answers(&[result_of(&[&["1"]])]);
    bed.serve(Command::Query, b"SELECT GET_LOCK('a', 1)").await.unwrap();
    assert_eq!(bed.handle.all_pins(), bed.at.pins.set());
    assert_eq!(bed.handle.row.held.get().map(|held| held.thread_id), Some(7));
    assert_eq!(bed.handle.pinned().first().map(|began| began.reason.name()), Some("user_lock"));
    bed.at.pins.clear();
    bed.at.give_back();
    bed.serve(Command::Ping, b"").await.unwrap();
    assert!(bed.handle.all_pins().is_empty() && bed.handle.row.held.get().is_none());
}
