use super::*;
use crate::session::bed::{Bed, ok_open, result_of};
use crate::session::door::door;
use model::fleet::UnderWay;
use model::snapshot::ServerStatus;
use session_state::insert_id::Word;
use tokio::task::LocalSet;
use wire::charset::Flavor::MySql;
use wire::command::Command;

/// How the server of the session is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Used,
    /// A moment ago it lost its role.
    Left,
    /// The time to finish there is over.
    LeftForLong,
    Drains,
    DrainsForLong,
    Dead,
    /// The server closed the connection.
    Closed,
    /// There is no connection any more.
    Gone,
}

/// What becomes of the backend in each of these cases.
type Outcomes = &'static [(Case, &'static str)];

/// Time to finish, ms.
const LONG: u64 = 60_000;

async fn case(bed: &mut Bed, case: Case) {
    match case {
        Case::Used => {}
        Case::Left => bed.place(ServerStatus::Shunned, UnderWay::MayFinish, LONG),
        Case::LeftForLong => bed.place(ServerStatus::Shunned, UnderWay::MayFinish, 0),
        Case::Drains => bed.place(ServerStatus::OfflineSoft, UnderWay::MayFinish, LONG),
        Case::DrainsForLong => bed.place(ServerStatus::OfflineSoft, UnderWay::MayFinish, 0),
        Case::Dead => bed.place(ServerStatus::Online, UnderWay::Severed, LONG),
        Case::Closed => {
            bed.ends.truncate(1);
            let link = &mut bed.at.backend.as_mut().unwrap().link;
            std::future::poll_fn(|cx| link.poll_readable(cx)).await;
        }
        Case::Gone => bed.at.backend = None,
    }
}

/// What becomes of the backend, in short.
fn told(kept: Result<BackendAtStart, Fault>) -> &'static str {
    match kept {
        Ok(BackendAtStart::AtHand) => "stays",
        Ok(BackendAtStart::None) => "any",
        Ok(BackendAtStart::Moves) => "moves",
        Err(Fault::Error { code: codes::SERVER_LEFT, .. }) => "rolled back",
        Err(Fault::Error { .. }) => "error",
        Err(Fault::Lost { certainty: Certainty::NeverSent, .. }) => "lost unsent",
        Err(Fault::Lost { .. }) => "lost",
        Err(Fault::End(_)) => "ends",
        Err(Fault::Refused { .. }) => "refused",
    }
}

#[tokio::test]
async fn what_a_session_has_on_a_server_decides_when_it_leaves() {
    use Case::*;
    use PinReason::*;
    let cases: [(&[PinReason], Outcomes); 5] = [
        (&[], &[(Used, "stays"), (Left, "any"), (Drains, "any"), (Dead, "any"), (Closed, "lost unsent"), (Gone, "any")]),
        (&[Rule], &[(Used, "stays"), (Left, "any"), (Drains, "any"), (Dead, "any"), (Gone, "any")]),
        (
            &[Transaction],
            &[
                (Used, "stays"),
                (Left, "stays"),
                (LeftForLong, "rolled back"),
                (Drains, "stays"),
                (DrainsForLong, "stays"),
                (Dead, "lost unsent"),
                (Closed, "lost unsent"),
                (Gone, "rolled back"),
            ],
        ),
        (
            &[UserLock],
            &[
                (Used, "stays"),
                (Left, "stays"),
                (LeftForLong, "ends"),
                (Drains, "stays"),
                (DrainsForLong, "ends"),
                (Dead, "lost unsent"),
                (Closed, "lost unsent"),
                (Gone, "ends"),
            ],
        ),
        (&[Transaction, TemporaryTable], &[(Left, "stays"), (LeftForLong, "ends"), (DrainsForLong, "stays"), (Gone, "ends")]),
    ];
    let all = async {
        for (pins, cases) in cases {
            for (one, expected) in cases {
                let mut bed = Bed::new("").on(MySql);
                bed.pin(pins);
                case(&mut bed, *one).await;
                assert_eq!(
                    told({
                        let session = &mut *bed;
                        session.recovery.keeps_backend(&mut door!(session), Needs::default())
                    }),
                    *expected,
                    "{pins:?}: {one:?}"
                );
                let stays = *expected == "stays";
                assert_eq!(bed.at.backend.is_some(), stays, "{pins:?}: {one:?}");
            }
        }
    };
    LocalSet::new().run_until(all).await;
}

#[tokio::test]
async fn a_transaction_that_was_only_opened_moves_whenever_it_has_to() {
    let all = async {
        for (one, expected) in [
            (Case::Used, "stays"),
            (Case::Left, "moves"),
            (Case::Drains, "moves"),
            (Case::Dead, "moves"),
            (Case::Closed, "moves"),
            (Case::Gone, "moves"),
        ] {
            let mut bed = Bed::new("").on(MySql);
            bed.ran_and_noted("BEGIN", &ok_open());
            case(&mut bed, one).await;
            assert_eq!(
                told({
                    let session = &mut *bed;
                    session.recovery.keeps_backend(&mut door!(session), Needs::default())
                }),
                expected,
                "{one:?}"
            );
        }
        for (replays, expected) in [(false, "rolled back"), (true, "moves")] {
            let mut bed = Bed::new(&format!("mysql_variables = {{ transaction_replay = {replays} }}")).on(MySql);
            bed.ran_and_noted("BEGIN", &ok_open());
            bed.ran_and_noted("INSERT INTO t VALUES (1)", &ok_open());
            case(&mut bed, Case::LeftForLong).await;
            assert_eq!(
                told({
                    let session = &mut *bed;
                    session.recovery.keeps_backend(&mut door!(session), Needs::default())
                }),
                expected,
                "transaction_replay {replays}"
            );
        }
    };
    LocalSet::new().run_until(all).await;
}

#[tokio::test]
async fn a_transaction_that_was_rolled_back_is_told_once() {
    let mut bed = Bed::new("").on(MySql);
    bed.ran_and_noted("BEGIN", &ok_open());
    bed.ran_and_noted("INSERT INTO t VALUES (1)", &ok_open());
    case(&mut bed, Case::Gone).await;
    assert_eq!(
        told({
            let session = &mut *bed;
            session.recovery.keeps_backend(&mut door!(session), Needs::default())
        }),
        "rolled back"
    );
    assert!(bed.pins().is_empty() && bed.client.status == StatusFlags::AUTOCOMMIT);
    assert_eq!(
        told({
            let session = &mut *bed;
            session.recovery.keeps_backend(&mut door!(session), Needs::default())
        }),
        "any"
    );
}

#[tokio::test]
async fn the_last_look_keeps_what_begins_from_a_server_out_of_use() {
    use PinReason::*;
    let all = async {
        for (pins, one, expected) in [
            (&[][..], Case::Used, true),
            (&[], Case::Left, false),
            (&[], Case::Drains, false),
            (&[MultiplexingOff], Case::Left, false),
            // Part of what has begun, which may finish.
            (&[Transaction], Case::Left, true),
            (&[UserLock], Case::Drains, true),
            (&[], Case::Gone, true),
        ] {
            let mut bed = Bed::new("").on(MySql);
            bed.pin(pins);
            case(&mut bed, one).await;
            assert_eq!(
                {
                    let session = &mut *bed;
                    session.recovery.may_begin(&mut session.at, &mut session.facts)
                },
                expected,
                "{pins:?} {one:?}"
            );
            assert_eq!(bed.at.backend.is_some(), expected && one != Case::Gone, "{pins:?} {one:?}");
        }
        let mut bed = Bed::new("").on(MySql);
        bed.ran_and_noted("BEGIN", &ok_open());
        case(&mut bed, Case::Left).await;
        assert!(
            !{
                let session = &mut *bed;
                session.recovery.may_begin(&mut session.at, &mut session.facts)
            },
            "nothing ran in it: it may as well begin elsewhere"
        );
        let mut bed = Bed::new("").on(MySql);
        case(&mut bed, Case::Used).await;
        bed.at.backend.as_ref().unwrap().core.server.suspect(u64::MAX);
        assert!(
            !{
                let session = &mut *bed;
                session.recovery.may_begin(&mut session.at, &mut session.facts)
            },
            "its role is in doubt"
        );
    };
    LocalSet::new().run_until(all).await;
}

#[tokio::test]
async fn a_statement_that_is_overdue_finishes_moves_or_may_never_end() {
    let replays = "mysql_variables = { transaction_replay = true }";
    for (config, opens, text, began, expected) in [
        (replays, true, "SELECT a FROM t FOR UPDATE", true, Overdue::Finishes),
        (replays, true, "SELECT a FROM t FOR UPDATE", false, Overdue::Moves),
        (replays, true, "UPDATE t SET a = 1", false, Overdue::Moves),
        (replays, true, "ROLLBACK", false, Overdue::Moves),
        (replays, true, "COMMIT", false, Overdue::MayNeverEnd),
        (replays, true, "DROP TABLE t", false, Overdue::MayNeverEnd),
        (replays, true, "SELECT GET_LOCK('a', 1)", false, Overdue::MayNeverEnd),
        (replays, false, "UPDATE t SET a = 1", false, Overdue::MayNeverEnd),
        ("", true, "UPDATE t SET a = 1", false, Overdue::MayNeverEnd),
    ] {
        let mut bed = Bed::new(config).on(MySql);
        if opens {
            bed.ran_and_noted("BEGIN", &ok_open());
        }
        let analysis = bed.analysis(text);
        let plan = crate::session::plan::Plan::new(analysis);
        bed.recovery.reply_hasher = bed.recovery.reply_hasher_for(&bed.at, &bed.client, &plan, Default::default());
        assert_eq!(bed.recovery.when_overdue(&bed.at, &bed.client, &bed.facts, began, &analysis), expected, "{config} {opens} {text}");
    }
}

#[tokio::test]
async fn what_may_never_end_is_given_up_only_on_a_server_that_is_cut_off() {
    for (status, under_way, grace_ms, expected) in [
        (ServerStatus::Online, UnderWay::MayFinish, 0, [false, false, false]),
        (ServerStatus::Shunned, UnderWay::MayFinish, LONG, [false, false, false]),
        (ServerStatus::Shunned, UnderWay::MayFinish, 0, [false, true, false]),
        (ServerStatus::Shunned, UnderWay::EndsAfterGrace, LONG, [false, false, false]),
        (ServerStatus::Shunned, UnderWay::EndsAfterGrace, 0, [false, true, true]),
    ] {
        let all = async {
            [Overdue::Finishes, Overdue::Moves, Overdue::MayNeverEnd].map(|overdue| {
                let mut bed = Bed::new("").on(MySql);
                bed.place(status, under_way, grace_ms);
                overdue.give_up_if_due(&mut bed.at).is_some()
            })
        };
        let gives_up = LocalSet::new().run_until(all).await;
        assert_eq!(gives_up, expected, "{status:?} {under_way:?} {grace_ms}");
    }
}

#[tokio::test]
async fn after_a_killed_statement_the_next_one_of_the_transaction_is_hurried_too() {
    use crate::clients::session_handle::Signal;
    let all = async {
        let mut bed = Bed::new("").on(MySql);
        bed.pin(&[PinReason::Transaction]);
        bed.at.backend.as_mut().unwrap().core.killed = true;
        let now_ms = bed.worker.shared.clock.now_ms();
        bed.handle.begin_command(now_ms);
        case(&mut bed, Case::LeftForLong).await;
        let session = &mut *bed;
        assert!(session.hand.hurry_up(&mut session.at).is_ok());
        assert!(bed.at.backend.as_ref().unwrap().core.kill.is_some());
        bed.handle.check_deadlines(now_ms + 60_000);
        assert_eq!(bed.handle.pending(), Some(Signal::GiveUp));
    };
    LocalSet::new().run_until(all).await;
}

/// A connection that is kept by a wish alone is given up where the statement asks for less lag.
#[tokio::test]
async fn a_statement_that_needs_less_lag_chooses_again() {
    let all = async {
        for (pins, max_lag_ms, expected) in [
            (&[PinReason::Rule][..], Some(500), "any"),
            (&[PinReason::Rule], Some(8_000), "stays"),
            (&[PinReason::Rule], None, "stays"),
            (&[PinReason::TemporaryTable], Some(500), "stays"),
        ] {
            let mut bed = Bed::new("").on(MySql);
            bed.pin(pins);
            let server = &bed.at.backend.as_ref().unwrap().core.server;
            server.measurements.set(model::fleet::Measured { latency_us: 1, lag_ms: Some(8_000), is_source: false });
            let needs = Needs { max_lag_ms, ..Needs::default() };
            let session = &mut *bed;
            assert_eq!(told(session.recovery.keeps_backend(&mut door!(session), needs)), expected, "{pins:?} {max_lag_ms:?}");
        }
    };
    LocalSet::new().run_until(all).await;
}

/// A session with this pin, of whose last statement only its backend knows more than the reply said.
fn asks_its_backend(pin: PinReason) -> Bed {
    let mut bed = Bed::new("").on(MySql);
    bed.pin(&[pin]);
    bed.facts.set_numbers((3, 4, 1, 0));
    bed.facts.leave_found_rows();
    bed.facts.leave_row_count();
    let calls = Word { id: 9, changes_unseen: true, inserts: false, failed: false, is_certain: false };
    bed.facts.insert_id.replied(calls, None);
    bed
}

#[tokio::test]
async fn what_a_backend_knew_that_is_given_up_is_what_replies_said() {
    let is_lost = |bed: &Bed| {
        let is_known = !bed.facts.unread().any() && !bed.facts.is_with_backend(sql::Fact::RowCount);
        is_known && (bed.facts.insert_id.known(), bed.facts.numbers()) == (Some(9), (3, 4, 0, 0))
    };
    let all = async {
        for (pin, one, expected) in [
            (PinReason::Rule, Case::Used, false),
            (PinReason::Rule, Case::Left, true),
            (PinReason::MultiplexingOff, Case::Drains, true),
            (PinReason::Rule, Case::Gone, true),
            (PinReason::UserLock, Case::Left, false),
        ] {
            let mut bed = asks_its_backend(pin);
            case(&mut bed, one).await;
            let kept = {
                let session = &mut *bed;
                session.recovery.keeps_backend(&mut door!(session), Needs::default())
            };
            assert_eq!((told(kept) == "any", is_lost(&bed)), (expected, expected), "{pin:?} {one:?}");
            if one == Case::Gone {
                continue;
            }
            let mut bed = asks_its_backend(pin);
            case(&mut bed, one).await;
            let may_begin = {
                let session = &mut *bed;
                session.recovery.may_begin(&mut session.at, &mut session.facts)
            };
            assert_eq!((may_begin, is_lost(&bed)), (!expected, expected), "{pin:?} {one:?}: the last look");
        }
    };
    LocalSet::new().run_until(all).await;
}

#[tokio::test]
async fn a_backend_is_not_asked_for_what_another_one_knew() {
    let all = async {
        let mut bed = asks_its_backend(PinReason::Rule);
        case(&mut bed, Case::Gone).await;
        bed.another_rests(MySql);
        bed.answers(&[result_of(&[&["99"]])]);
        let packets = bed.serve(Command::Query, b"SELECT FOUND_ROWS()").await.unwrap();
        assert!(packets.iter().any(|packet| packet == b"\x014"), "{packets:?}");
    };
    LocalSet::new().run_until(all).await;
}
