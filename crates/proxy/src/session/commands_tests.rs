use super::*;
use crate::session::bed::{Bed, error, ok, ok_open, packet_of, result_of};
use session_state::server_info::ServerInfo;
use tokio::task::LocalSet;
use wire::charset::Flavor::MySql;
use wire::flags::StatusFlags;
use wire::message::{EOF, ERR, OK};

/// The first byte of the answer, and its error's number.
fn told(packets: &[Vec<u8>]) -> (u8, u16) {
    let first = packets.first().unwrap();
    let code = if first[0] == ERR { u16::from_le_bytes([first[1], first[2]]) } else { 0 };
    (first[0], code)
}

#[tokio::test]
async fn short_commands_are_answered_here() {
    let (on, off, odd) = ([0, 0], [1, 0], [7, 0]);
    for (command, body, expected) in [
        (Command::Ping, &b""[..], (OK, 0)),
        (Command::SetOption, &on, (EOF, 0)),
        (Command::SetOption, &off, (EOF, 0)),
        (Command::SetOption, &odd, (ERR, 1047)),
        (Command::Sleep, b"", (ERR, 1047)),
        // A server may be stopped by nobody but who may do so on it.
        (Command::Shutdown, b"", (ERR, 1227)),
        (Command::BinlogDump, &[0; 10], (ERR, 1227)),
        (Command::StmtExecute, &[9, 0, 0, 0, 0, 1, 0, 0, 0], (ERR, 1243)),
        (Command::ResetConnection, b"", (OK, 0)),
    ] {
        let mut bed = Bed::new("");
        let answer = bed.serve(command, body).await.unwrap();
        assert_eq!(told(&answer), expected, "{command:?} {body:?}");
        assert!(bed.at.backend.is_none() && bed.client.input.is_empty());
    }
    assert!(matches!(Bed::new("").serve(Command::Quit, b"").await, Err(End::Quit)));
}

#[tokio::test]
async fn several_statements_at_once_are_another_class() {
    let mut bed = Bed::new("");
    let before = bed.at.lane.key.class;
    bed.serve(Command::SetOption, &[1, 0]).await.unwrap();
    assert!(!bed.client.caps.contains(Capabilities::MULTI_STATEMENTS) && bed.at.lane.key.class != before);
    bed.serve(Command::SetOption, &[0, 0]).await.unwrap();
    assert!(bed.at.lane.key.class == before);
}

#[tokio::test]
async fn a_reset_begins_the_rules_anew() {
    let mut bed = Bed::new("");
    bed.hand.flag_in = 7;
    bed.serve(Command::ResetConnection, b"").await.unwrap();
    assert_eq!(bed.hand.flag_in, 0);
}

#[tokio::test]
async fn backslashes_are_read_as_the_greeting_says_from_the_start() {
    for flags in [StatusFlags::AUTOCOMMIT, StatusFlags::AUTOCOMMIT | StatusFlags::NO_BACKSLASH_ESCAPES] {
        let expected = flags.contains(StatusFlags::NO_BACKSLASH_ESCAPES);
        let mut bed = Bed::new("");
        bed.worker.shared.info.set(ServerInfo { status: flags, ..crate::bed::info(MySql, "8.4.0") });
        bed.begin(None);
        assert_eq!((bed.wants.lex.no_backslash_escapes, bed.client.status), (expected, flags), "after the login");
        bed.wants.lex.no_backslash_escapes = !expected;
        bed.serve(Command::ResetConnection, b"").await.unwrap();
        assert_eq!((bed.wants.lex.no_backslash_escapes, bed.client.status), (expected, flags), "after a reset");
    }
}

#[tokio::test]
async fn a_statement_goes_to_the_server_and_its_answer_to_the_client() {
    let rows = result_of(&[&["1"], &["2"]]);
    for (text, reply, is_held) in [
        ("SELECT a FROM t", rows.clone(), false),
        ("UPDATE t SET a = 1", packet_of(&ok()), false),
        ("BEGIN", packet_of(&ok_open()), true),
        ("SELECT GET_LOCK('a', 1)", rows.clone(), true),
        ("UPDATE t SET a = 1", packet_of(&error(1213)), false),
    ] {
        let mut bed = Bed::new("").on(MySql);
        // After an error it is asked what it left, and its warnings are read.
        let warnings = result_of(&[&["Error", "1213", "deadlock"]]);
        bed.answers(&[reply.clone(), warnings.clone(), warnings]);
        let heard = bed.serve(Command::Query, text.as_bytes()).await.unwrap();
        let expected: Vec<Vec<u8>> = session_state::collected::packets(&reply).map(<[u8]>::to_vec).collect();
        assert_eq!(heard, expected, "{text}");
        let sent = bed.sent();
        assert_eq!(sent[0], text);
        assert_eq!(bed.at.backend.is_some(), is_held, "{text}: {sent:?}");
    }
}

#[tokio::test]
async fn a_transaction_stays_on_its_connection_to_its_end() {
    let mut bed = Bed::new("").on(MySql);
    for (text, reply, pins) in [
        ("BEGIN", ok_open(), &["transaction"][..]),
        ("INSERT INTO t VALUES (1)", ok_open(), &["transaction"]),
        ("SAVEPOINT a", ok_open(), &["transaction"]),
        ("ROLLBACK TO a", ok_open(), &["transaction"]),
        ("COMMIT", ok(), &[]),
    ] {
        bed.answers(&[packet_of(&reply)]);
        bed.serve(Command::Query, text.as_bytes()).await.unwrap();
        assert_eq!((bed.sent(), bed.pins().as_slice()), (vec![text.to_owned()], pins), "{text}");
    }
    assert!(bed.at.backend.is_none(), "others may have it");
    assert_eq!(bed.at.pool.take_any_idle().map(|backend| backend.core.thread_id), Some(7));
}

#[tokio::test]
async fn a_schema_is_the_servers_to_give() {
    for (reply, schema) in [(ok(), "other"), (error(codes::BAD_DB), "shop")] {
        let mut bed = Bed::new("").on(MySql);
        bed.answers(&[packet_of(&reply), result_of(&[&["Error", "1049", "unknown"]])]);
        let heard = bed.serve(Command::InitDb, b"other").await.unwrap();
        assert_eq!(told(&heard).0 == OK, reply.error.is_none());
        assert_eq!(bed.sent()[0], "InitDb other");
        assert_eq!(bed.wants.state.schema.as_deref(), Some(schema.as_bytes()));
    }
}

#[tokio::test]
async fn a_reset_forgets_all_but_schema_found_rows_and_roles() {
    let all = async {
        let mut bed = Bed::new("");
        bed.wants.state.variables.set("time_zone", Some(b"UTC"));
        bed.wants.state.user_variables.set("a", Some(b"1"));
        bed.facts.insert_id.set(7);
        bed.facts.set_numbers((3, 4, 1, 0));
        bed.client.status = StatusFlags::default();
        bed.wants.lex.ansi_quotes = true;
        bed.pin(&[PinReason::UserLock]);
        bed.serve(Command::ResetConnection, b"").await.unwrap();
        assert!(bed.wants.state.variables.get("time_zone").is_none() && bed.wants.state.user_variables.is_empty());
        assert_eq!(bed.wants.state.schema.as_deref(), Some(&b"shop"[..]));
        assert_eq!((bed.facts.insert_id.known(), bed.facts.numbers()), (Some(0), (0, 4, 0, 0)));
        assert!(bed.pins().is_empty() && bed.client.status == StatusFlags::AUTOCOMMIT && !bed.wants.lex.ansi_quotes);
        for (pins, sent, held) in [
            (&[PinReason::UserLock][..], &["Some(ResetConnection)"][..], false),
            // No reset brings a user's own roles back.
            (&[PinReason::Role], &["Some(ResetConnection)"], true),
            // MySQL keeps what was prepared: it is closed.
            (&[PinReason::Xa], &[], false),
        ] {
            let mut bed = Bed::new("").on(MySql);
            bed.pin(pins);
            bed.answers(&[packet_of(&ok()), packet_of(&ok())]);
            bed.serve(Command::ResetConnection, b"").await.unwrap();
            assert_eq!(bed.at.backend.is_some(), held, "{pins:?}");
            let first: Vec<String> = bed.sent().into_iter().take(1).collect();
            assert_eq!(first, sent, "{pins:?}");
        }
    };
    LocalSet::new().run_until(all).await;
}

#[tokio::test]
async fn a_kill_in_binary_names_a_session_or_a_servers_connection() {
    let own = crate::workers::worker::FIRST_SESSION_ID + 1;
    let mut bed = Bed::new("");
    bed.worker.shared.note_session(own, Some("anna"));
    let id = u32::try_from(own).unwrap().to_le_bytes();
    bed.facts.set_numbers((3, 4, 1, 0));
    assert_eq!(told(&bed.serve(Command::ProcessKill, &id).await.unwrap()), (OK, 0));
    assert_eq!(bed.facts.numbers(), (0, 4, 0, 0));
    bed.worker.shared.note_session(own, Some("bert"));
    assert_eq!(told(&bed.serve(Command::ProcessKill, &id).await.unwrap()), (ERR, 1095));
    assert_eq!(bed.facts.numbers(), (-1, 4, 1, 1));
    assert_eq!(told(&bed.serve(Command::ProcessKill, b"\x01").await.unwrap()), (ERR, 1835));
}

#[tokio::test]
async fn an_error_of_the_server_is_the_clients_and_its_session_goes_on() {
    let mut bed = Bed::new("").on(MySql);
    bed.answers(&[packet_of(&error(1146)), result_of(&[&["Error", "1146", "no such table"]])]);
    let heard = bed.serve(Command::Query, b"SELECT a FROM nowhere").await.unwrap();
    assert_eq!(told(&heard), (ERR, 1146));
    assert_eq!((bed.facts.numbers(), bed.facts.diagnostics().is_some()), ((-1, 0, 1, 1), true));
    let heard = bed.serve(Command::Query, b"SHOW WARNINGS").await.unwrap();
    assert!(heard.iter().any(|packet| packet.ends_with(b"no such table")), "from what was read");
}
