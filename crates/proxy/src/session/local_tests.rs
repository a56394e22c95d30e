use super::*;
use crate::session::bed::{Bed, analysis, told};
use session_state::pins::PinReason;
use std::io::Read;
use wire::charset::Flavor::{self, MariaDb, MySql};

/// Whether the proxy answers this itself, and the first byte of the answer.
async fn answered(bed: &mut Bed, text: &str) -> Option<u8> {
    let (command, analysis) = (bed.says(text), bed.analysis(text));
    let is_answered = bed.answered_here(command, 0, &analysis).await.unwrap();
    is_answered.then(|| {
        let mut bytes = [0; 4096];
        let len = bed.ends[0].read(&mut bytes).unwrap();
        assert!(len > HEADER, "{text}");
        bytes[HEADER]
    })
}

#[tokio::test]
async fn a_commit_without_anything_to_end_is_answered_here() {
    type Change = fn(&mut Bed);
    let nothing: Change = |_| {};
    let cases: [(&str, Change, bool); 12] = [
        ("COMMIT", nothing, true),
        ("rollback work;", nothing, true),
        ("COMMIT AND CHAIN", nothing, false),
        ("COMMIT RELEASE", nothing, false),
        ("ROLLBACK TO a", nothing, false),
        ("COMMIT; SELECT 1", nothing, false),
        ("COMMIT", |bed| bed.connect(MySql), false),
        ("COMMIT", |bed| bed.pin(&[PinReason::NextTransaction]), false),
        ("COMMIT", |bed| bed.client.status = StatusFlags::default(), false),
        ("COMMIT", |bed| bed.client.status |= StatusFlags::IN_TRANS, false),
        // It begins a new one, or the client wants to be told of it.
        ("COMMIT", |bed| bed.wants.state.variables.set("completion_type", Some(b"CHAIN")), false),
        ("COMMIT", |bed| bed.wants.state.variables.set("session_track_transaction_info", Some(b"STATE")), false),
    ];
    for (text, change, expected) in cases {
        let mut bed = Bed::new("");
        change(&mut bed);
        assert_eq!(answered(&mut bed, text).await, expected.then_some(OK), "{text}");
    }
}

/// A session without a backend, to which a server took this SET before.
fn taught(flavor: Flavor, text: &str, variables: &[(&str, &str)]) -> Bed {
    let mut bed = Bed::new("").on(flavor);
    bed.ran(text, &told(variables));
    bed.effects().remember_set(text.as_bytes(), &analysis(text), &told(variables), &[]);
    bed.at.backend = None;
    bed
}

#[tokio::test]
async fn a_set_that_a_server_took_before_is_answered_here_word_for_word() {
    let (zone, tells) = ("SET time_zone = '+02:00'", [("time_zone", "+02:00")]);
    for (text, expected) in [
        (zone, true),
        ("SET time_zone = '+03:00'", false),
        ("SET  time_zone = '+02:00'", false),
        ("SET @a = 1", false),
        ("SELECT 1", false),
    ] {
        let mut bed = taught(MySql, zone, &tells);
        bed.wants.state.variables.set("time_zone", None);
        assert_eq!(answered(&mut bed, text).await, expected.then_some(OK), "{text}");
        let value = bed.wants.state.variables.get("time_zone").map(|value| value.to_vec());
        assert_eq!(value, expected.then(|| b"+02:00".to_vec()), "{text}");
    }
    type Change = fn(&mut Bed);
    let changes: [(&str, Change); 4] = [
        ("it holds a backend", |bed| bed.connect(MySql)),
        ("something is pinned", |bed| bed.pin(&[PinReason::UserLock])),
        ("text is read otherwise", |bed| bed.wants.lex.ansi_quotes = true),
        ("names of character sets mean something else", |bed| bed.wants.state.variables.set("old_mode", Some(b"x"))),
    ];
    for (why, change) in changes {
        let mut bed = taught(MySql, zone, &tells);
        change(&mut bed);
        assert_eq!(answered(&mut bed, zone).await, None, "{why}");
    }
}

#[tokio::test]
async fn a_set_that_is_answered_here_changes_what_the_client_is_told() {
    let mode = "SET sql_mode = 'x'";
    for (flavor, value, expected) in [
        (MySql, "NO_BACKSLASH_ESCAPES", StatusFlags::AUTOCOMMIT | StatusFlags::NO_BACKSLASH_ESCAPES),
        (MariaDb, "ANSI_QUOTES", StatusFlags::AUTOCOMMIT | StatusFlags::ANSI_QUOTES),
        (MySql, "ANSI_QUOTES", StatusFlags::AUTOCOMMIT),
        (MySql, "STRICT_ALL_TABLES", StatusFlags::AUTOCOMMIT),
    ] {
        let mut bed = taught(flavor, "SET time_zone = 'SYSTEM'", &[]);
        bed.effects().note_learnt_variable("sql_mode", value.as_bytes());
        assert_eq!(bed.client.status, expected, "{flavor:?} {mode} {value}");
    }
    let mut bed = taught(MySql, "SET autocommit = 0", &[("autocommit", "OFF")]);
    bed.effects().note_learnt_variable("autocommit", b"ON");
    assert!(!bed.client.is_autocommit_off() && bed.wants.state.variables.get("autocommit").is_none());
    assert_eq!(answered(&mut bed, "SET autocommit = 0").await, Some(OK));
    assert!(bed.client.is_autocommit_off());
    assert_eq!(bed.wants.state.variables.get("autocommit").map(|value| value.to_vec()), Some(b"OFF".to_vec()));
}

#[tokio::test]
async fn a_kill_is_answered_here_for_sessions_of_the_proxy() {
    const ERR: u8 = wire::message::ERR;
    let (own, others) = (crate::workers::worker::FIRST_SESSION_ID + 1, crate::workers::worker::FIRST_SESSION_ID + 2);
    let me = crate::workers::worker::FIRST_SESSION_ID;
    for (text, expected) in [
        (format!("KILL QUERY {own}"), Some(OK)),
        (format!("KILL {own}"), Some(OK)),
        (format!("KILL {others}"), Some(ERR)),
        // A server's own id goes to it, as does what nobody has.
        ("KILL 7".to_owned(), None),
        (format!("KILL {}", others + 1), None),
        (format!("KILL QUERY {me}"), Some(ERR)),
        ("KILL nonsense".to_owned(), None),
    ] {
        let mut bed = Bed::new("");
        for (id, user) in [(me, "anna"), (own, "anna"), (others, "bert")] {
            bed.worker.shared.note_session(id, Some(user));
        }
        bed.facts.set_numbers((3, 4, 1, 0));
        assert_eq!(answered(&mut bed, &text).await, expected, "{text}");
        let numbers = match expected {
            Some(OK) => (0, 4, 0, 0),
            Some(_) => (-1, 4, 1, 1),
            None => (3, 4, 1, 0),
        };
        assert_eq!(bed.facts.numbers(), numbers, "{text}");
    }
}

#[tokio::test]
async fn warnings_are_shown_from_what_was_read() {
    let mut bed = Bed::new("");
    assert_eq!(answered(&mut bed, "SHOW WARNINGS").await, None, "nothing was read");
    let packet = |payload: &[u8]| {
        let mut out = Vec::new();
        packet::put_packet(&mut out, &mut 0, payload);
        out
    };
    let column = b"\x03def\0\0\0\x05Level\0\x0c\x21\0\x15\0\0\0\xfd\x01\0\x1f\0\0";
    let row = b"\x07Warning\x041292\x03bad";
    let packets =
        [packet(&[3]), packet(column), packet(column), packet(column), packet(b"\xfe\0\0\0\0"), packet(row), packet(b"\xfe\0\0\0\0")];
    let remembered = Diagnostics { packets: packets.concat(), caps: Capabilities::PROTOCOL_41 };
    for (text, holds, expected) in [
        ("SHOW WARNINGS", false, Some(3)),
        ("SHOW WARNINGS LIMIT 1", false, Some(3)),
        ("SHOW WARNINGS", true, Some(3)),
        ("SHOW COUNT(*) WARNINGS", false, None),
        ("SHOW WARNINGS; SELECT 1", false, None),
    ] {
        let mut bed = Bed::new("");
        if holds {
            bed.connect(MySql);
        }
        bed.facts.set_diagnostics(remembered.clone());
        assert_eq!(answered(&mut bed, text).await, expected, "{text} {holds}");
    }
    let mut facts = SessionFacts::default();
    facts.set_numbers((0, 0, 1, 0));
    facts.set_diagnostics(remembered);
    for (leaves, expected) in [(false, (0, false)), (true, (1, true))] {
        let mut facts = facts.clone();
        facts.note_success(leaves);
        assert_eq!((facts.numbers().2, facts.diagnostics().is_some()), expected);
    }
    assert!(known_warnings(&facts, b"SHOW WARNINGS", Kind::ShowWarnings).is_some());
    assert!(known_warnings(&SessionFacts::default(), b"SHOW WARNINGS", Kind::ShowWarnings).is_none());
}
