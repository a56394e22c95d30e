use super::*;
use crate::session::bed::Bed;
use model::fleet::UnderWay;
use model::snapshot::ServerStatus;
use session_state::pins::PinReason;
use wire::charset::Flavor::MySql;

/// What these bytes are: a command and its length, nothing yet, or an error.
fn framed(bed: &mut Bed, bytes: &[u8]) -> Result<Option<(u8, usize, bool)>, u16> {
    bed.arrives(bytes);
    let session = &mut **bed;
    match session.client.framed(&session.at) {
        Ok(command) => Ok(command.map(|command| (command.byte, command.wire_len, command.joined))),
        Err(End::Protocol { code, .. }) => Err(code),
        Err(other) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_command_is_there_when_all_of_it_is() {
    for (bytes, expected) in [
        (&b""[..], Ok(None)),
        (b"\x02\0\0", Ok(None)),
        (b"\x02\0\0\0", Ok(None)),
        (b"\x02\0\0\0\x03", Ok(None)),
        (b"\x02\0\0\0\x03a", Ok(Some((3, 6, false)))),
        (b"\x02\0\0\0\x03a\x01\0\0\0\x0e", Ok(Some((3, 6, false)))),
        // Servers take it for COM_SLEEP.
        (b"\0\0\0\0", Ok(Some((0, 4, false)))),
        (b"\x02\0\0\x05\x03a", Err(codes::NET_PACKETS_OUT_OF_ORDER)),
    ] {
        assert_eq!(framed(&mut Bed::new(""), bytes), expected, "{bytes:?}");
    }
}

#[tokio::test]
async fn a_command_of_several_frames_is_joined() {
    let mut bed = Bed::new("");
    let first = [&[0xff, 0xff, 0xff, 0, 3][..], &vec![b'x'; MAX_PAYLOAD - 1]].concat();
    assert_eq!(framed(&mut bed, &first), Ok(None));
    assert_eq!(framed(&mut bed, b"\x02\0\0\x01yz"), Ok(Some((3, MAX_PAYLOAD + 10, true))));
    assert_eq!((bed.client.joined.len(), &bed.client.joined[MAX_PAYLOAD - 1..]), (MAX_PAYLOAD + 2, &b"xyz"[..]));
    assert_eq!(bed.client.command_seq, 2, "the answer counts on");
    let session = &mut *bed;
    session.client.command_done(&session.at, Incoming { byte: 3, wire_len: MAX_PAYLOAD + 10, joined: true, rewritten: false });
    assert!(session.client.input.is_empty() && session.client.joined.is_empty());
}

#[tokio::test]
async fn a_command_that_is_too_long_is_refused_by_its_header() {
    let small = "mysql_variables = { max_allowed_packet = 8192 }";
    assert_eq!(framed(&mut Bed::new(small), b"\x01\x20\0\0\x03"), Err(codes::NET_PACKET_TOO_LARGE));
    assert_eq!(framed(&mut Bed::new(small), b"\0\x20\0\0\x03"), Ok(None));
}

#[tokio::test]
async fn who_is_silent_is_left_in_peace_ended_or_moved() {
    use PinReason::*;
    type Expected = (&'static str, bool);
    let cases: [(Signal, &[PinReason], Expected); 9] = [
        // Nothing runs.
        (Signal::KillQuery, &[Transaction], ("goes on", true)),
        (Signal::QueryTimeout, &[], ("goes on", true)),
        (Signal::GiveBack, &[], ("goes on", false)),
        (Signal::GiveBack, &[UserLock], ("goes on", true)),
        (Signal::Drain, &[Transaction], ("goes on", true)),
        (Signal::Drain, &[], ("Shutdown", true)),
        (Signal::IdleTimeout, &[], ("Idle", true)),
        (Signal::TransactionTimeout, &[Transaction], ("TransactionTimeout", true)),
        (Signal::KillConnection, &[Transaction], ("Killed", true)),
    ];
    for (signal, pins, (expected, holds)) in cases {
        let mut bed = Bed::new("").on(MySql);
        bed.pin(pins);
        bed.handle.signal(signal);
        let told = bed.at.disturbed(signal).map_or_else(|end| format!("{end:?}"), |()| "goes on".to_owned());
        assert_eq!((&*told, bed.at.backend.is_some()), (expected, holds), "{signal:?} {pins:?}");
        assert_eq!(bed.handle.pending().is_none(), expected == "goes on", "{signal:?}");
    }
}

#[tokio::test]
async fn who_is_silent_on_a_server_that_is_left_loses_what_it_has_there_when_time_is_over() {
    for (pins, status, grace_ms, keeps) in [
        (&[][..], ServerStatus::Online, 0, true),
        (&[], ServerStatus::Shunned, 60_000, false),
        (&[PinReason::Transaction], ServerStatus::Shunned, 60_000, true),
        (&[PinReason::Transaction], ServerStatus::Shunned, 0, false),
        (&[PinReason::Transaction], ServerStatus::OfflineSoft, 0, true),
        (&[PinReason::UserLock], ServerStatus::OfflineSoft, 0, false),
    ] {
        let mut bed = Bed::new("").on(MySql);
        bed.pin(pins);
        bed.place(status, UnderWay::MayFinish, grace_ms);
        bed.at.leave_idle();
        assert_eq!(bed.at.backend.is_some(), keeps, "{pins:?} {status:?} {grace_ms}");
    }
}

#[tokio::test]
async fn a_silent_client_is_waited_for() {
    let mut bed = Bed::new("");
    bed.arrives(b"\x01\0\0\0");
    let waits = tokio::time::timeout(std::time::Duration::from_millis(1), bed.next_command()).await;
    assert!(waits.is_err(), "a part of a command");
    std::io::Write::write_all(&mut bed.ends[0], b"\x0e").unwrap();
    assert_eq!(bed.next_command().await.unwrap().map(|command| command.byte), Some(Command::Ping as u8));
    let mut bed = Bed::new("");
    bed.ends.clear();
    assert!(matches!(bed.next_command().await, Err(End::Quit)));
    let mut bed = Bed::new("");
    bed.handle.signal(Signal::Park);
    assert!(bed.next_command().await.unwrap().is_none(), "idle for a while");
}

#[tokio::test]
async fn a_client_that_stalls_in_the_next_command_is_idle() {
    let mut bed = Bed::new("");
    // A COM_PING, and the header of a command of two bytes.
    bed.arrives(b"\x01\0\0\0\x0e\x02\0\0\0");
    let ping = bed.next_command().await.unwrap().unwrap();
    bed.serve_command(ping).await.unwrap();
    assert_eq!(bed.handle.activity().0, Activity::Running);
    for (now_ms, more) in [(1_000, &b""[..]), (2_000, b"\x03")] {
        bed.worker.clock.set(now_ms);
        std::io::Write::write_all(&mut bed.ends[0], more).unwrap();
        let waits = tokio::time::timeout(std::time::Duration::from_millis(1), bed.next_command()).await;
        assert!(waits.is_err(), "a part of a command");
        assert_eq!(bed.handle.activity(), (Activity::Idle, 1_000), "from when it stalled");
    }
}
