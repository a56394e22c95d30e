use super::*;
use crate::session::assigned_gtid::HeldReply;
use crate::session::bed::{Bed, HOME, error, ok, ok_open, packet_of, result_of};
use crate::session::door::door;
use crate::session::plan::Plan;
use session_state::causal::Origin;
use session_state::pins::PinReason;
use tokio::task::LocalSet;
use wire::charset::Flavor::MySql;

const SETTLES: &str = "mysql_replication_hostgroups = ( { writer_hostgroup=1, reader_hostgroup=2 } )
mysql_variables = { settle_lost_writes = true }";

/// A session that has lost the answer to this statement, which had an assigned GTID; on a new connection.
fn in_doubt(text: &str) -> Bed {
    in_doubt_under(SETTLES, text)
}

/// The same under this configuration.
fn in_doubt_under(config: &str, text: &str) -> Bed {
    let mut bed = Bed::new(config).on(MySql);
    let (plan, command) = (Plan::new(bed.analysis(text)), bed.says(text));
    bed.hand.began_us = bed.worker.shared.clock.now_us();
    bed.assign_gtid(command, &plan);
    bed.recovery.set_standing(GtidStanding::InDoubt);
    bed
}

/// What a server answers that is asked for an assigned GTID: whether it is there, whether the server is read-only, and what may still come.
fn found_there(there: &str, read_only: &str, coming: &str) -> Vec<Vec<u8>> {
    vec![packet_of(&ok()), packet_of(&ok_open()), result_of(&[&[there, read_only]]), result_of(&[&[coming]])]
}

/// It ends its transaction, and forgets the assigned GTID.
fn clears_gtid() -> [Vec<u8>; 2] {
    [packet_of(&ok()), packet_of(&ok())]
}

#[tokio::test]
async fn a_write_that_is_not_there_goes_on_under_its_own_gtid() {
    let mut bed = in_doubt("INSERT INTO t VALUES (1)");
    let gtid = bed.recovery.assigned_gtid.as_ref().unwrap().gtid.to_string();
    bed.answers(&found_there("0", "0", "0"));
    let reply = bed.settle_write(&mut Ahead::default()).await.unwrap();
    assert!(reply.is_none(), "it is to be sent");
    let sent = bed.sent();
    assert_eq!(sent[..2], [format!("SET SESSION gtid_next='{gtid}'"), "BEGIN".to_owned()]);
    assert!(sent[2].contains("GTID_SUBSET") && sent[3].contains("replication_connection_status"), "{sent:?}");
    assert_eq!(bed.recovery.standing(), Some(GtidStanding::Claimed));
    assert!(bed.at.backend.as_ref().unwrap().core.has_assigned_gtid);
}

#[tokio::test]
async fn a_write_that_is_there_is_answered_as_it_was() {
    let mut bed = in_doubt("INSERT INTO t VALUES (1)");
    let facts = ReplyFacts { affected_rows: 1, ..ok() };
    let answer = HeldReply { packets: packet_of(&facts), facts };
    bed.recovery.assigned_gtid.as_mut().unwrap().answer = Some(answer);
    bed.answers(&[found_there("1", "0", "0"), clears_gtid().to_vec()].concat());
    let reply = bed.settle_write(&mut Ahead::default()).await.unwrap();
    assert_eq!(reply.map(|reply| reply.affected_rows), Some(1));
    let sent = bed.sent();
    assert_eq!(sent[4..], ["ROLLBACK".to_owned(), crate::session::assigned_gtid::AUTOMATIC.to_owned()], "what was opened to ask");
    // What no table with transactions has may be there before its COMMIT: its answer is not known.
    let mut bed = in_doubt("INSERT INTO t VALUES (1)");
    bed.answers(&[found_there("1", "0", "0"), clears_gtid().to_vec()].concat());
    let fault = bed.settle_write(&mut Ahead::default()).await.unwrap_err();
    assert!(matches!(fault, Fault::Lost { certainty: Certainty::Unknown, .. }), "{fault:?}");
    assert_eq!(bed.recovery.standing(), Some(GtidStanding::Undecided));
}

#[tokio::test]
async fn a_commit_that_is_there_is_a_write_that_reads_wait_for() {
    let mut bed = in_doubt_under(&SETTLES.replace("true }", "true causal_reads = \"session\" }"), "BEGIN");
    let gtid = bed.recovery.assigned_gtid.as_ref().unwrap().gtid.to_string();
    bed.answers(&[found_there("1", "0", "0"), clears_gtid().to_vec()].concat());
    let (command, plan) = (bed.says("COMMIT"), Plan::new(bed.analysis("COMMIT")));
    assert!(bed.settle_commit(command, &plan).await.unwrap().is_some());
    let writes = bed.causal.writes.as_ref().unwrap();
    assert!(writes.known(Origin::Own, HOME).is_some_and(|written| written.question(50).contains(&gtid)));
    assert_eq!(bed.worker.acknowledged.borrow().all(), [gtid.to_ascii_lowercase()]);
}

#[tokio::test]
async fn a_commit_that_is_there_is_answered_unless_a_transaction_was_to_follow_it() {
    for (text, completion_type, is_answered) in [
        ("COMMIT", None, true),
        ("/* done */ commit work;", None, true),
        ("COMMIT AND NO CHAIN NO RELEASE -- done", None, true),
        ("COMMIT AND CHAIN", None, false),
        ("COMMIT /* c */ WORK AND CHAIN NO RELEASE", None, false),
        ("COMMIT RELEASE", None, false),
        ("COMMIT", Some("CHAIN"), false),
        ("COMMIT", Some("NO_CHAIN"), true),
    ] {
        let mut bed = in_doubt("BEGIN");
        bed.wants.state.variables.set("completion_type", completion_type.map(str::as_bytes));
        bed.answers(&[found_there("1", "0", "0"), clears_gtid().to_vec()].concat());
        let (command, plan) = (bed.says(text), Plan::new(bed.analysis(text)));
        match bed.settle_commit(command, &plan).await {
            Ok(Some(_)) if is_answered => assert!(!bed.client.status.contains(StatusFlags::IN_TRANS), "{text}"),
            Err(Fault::End(End::BackendLost(why))) if !is_answered => {
                assert!(why.contains("was committed") && bed.heard_by_client().is_empty(), "{text}: {why}");
            }
            other => panic!("{text} {completion_type:?}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn what_is_committed_for_a_statement_that_commits_implicitly_is_remembered() {
    let mut bed = in_doubt_under(&SETTLES.replace("true }", "true causal_reads = \"session\" }"), "BEGIN");
    bed.facts.insert_id.set(0);
    bed.at.backend.as_mut().unwrap().core.has_assigned_gtid = true;
    bed.answers(&clears_gtid());
    let session = &mut *bed;
    session.recovery.commit_for_implicit(&mut door!(session), &mut session.causal, &session.hand).await.unwrap();
    assert_eq!(bed.sent()[0], "COMMIT");
    assert!(bed.causal.writes.as_ref().is_some_and(|writes| writes.known(Origin::Own, HOME).is_some()));
}

#[tokio::test]
async fn without_a_proof_it_is_asked_again_or_told_to_be_unknown() {
    let denied = vec![packet_of(&error(1227)), packet_of(&ok()), result_of(&[&["0", "0"]]), result_of(&[&["0"]])];
    let cases = [
        ("it is read-only", found_there("0", "1", "0"), GtidStanding::InDoubt),
        ("it still follows a server", found_there("0", "0", "1"), GtidStanding::InDoubt),
        ("it does not let the user ask", denied, GtidStanding::Undecided),
    ];
    for (why, answers, expected) in cases {
        let mut bed = in_doubt("INSERT INTO t VALUES (1)");
        bed.answers(&[answers, clears_gtid().to_vec()].concat());
        let fault = bed.settle_write(&mut Ahead::default()).await.unwrap_err();
        assert!(matches!(fault, Fault::Lost { certainty: Certainty::Unknown, .. }), "{why}: {fault:?}");
        assert_eq!((bed.recovery.standing(), bed.at.backend.is_none()), (Some(expected), true), "{why}");
    }
    let all = async {
        let mut bed = in_doubt("INSERT INTO t VALUES (1)");
        bed.ends.truncate(1);
        let fault = bed.settle_write(&mut Ahead::default()).await.unwrap_err();
        assert!(matches!(fault, Fault::Lost { certainty: Certainty::Unknown, .. }), "lost again: {fault:?}");
    };
    LocalSet::new().run_until(all).await;
}

#[tokio::test]
async fn what_is_in_no_doubt_is_not_asked() {
    for (text, standing) in [
        ("INSERT INTO t VALUES (1)", GtidStanding::Fresh),
        ("INSERT INTO t VALUES (1)", GtidStanding::Set),
        ("INSERT INTO t VALUES (1)", GtidStanding::Refused),
        // A transaction is asked for at its COMMIT.
        ("BEGIN", GtidStanding::InDoubt),
    ] {
        let mut bed = in_doubt(text);
        bed.recovery.set_standing(standing);
        assert!(bed.settle_write(&mut Ahead::default()).await.unwrap().is_none());
        assert!(bed.sent().is_empty(), "{text} {standing:?}");
    }
}

#[tokio::test]
async fn while_there_is_time_what_is_in_doubt_is_looked_at_again() {
    let lost = || Fault::Lost { certainty: Certainty::Unknown, text: "gone".into(), pins: Default::default() };
    for (fault, standing, expected) in [
        (lost(), GtidStanding::InDoubt, "again"),
        (
            Fault::Refused { refusal: session_state::certainty::Refusal::ReadOnly, code: 1290, sqlstate: *b"HY000", text: vec![] },
            GtidStanding::InDoubt,
            "again",
        ),
        (lost(), GtidStanding::Undecided, "unknown"),
        // It is an answer to the question, of which no other server would know more.
        (Fault::error(1045, b"28000", "denied"), GtidStanding::InDoubt, "unknown"),
        (Fault::End(End::ClientGone), GtidStanding::InDoubt, "ends"),
    ] {
        let mut bed = in_doubt("INSERT INTO t VALUES (1)");
        bed.recovery.set_standing(standing);
        let (mut patience, shown) = (bed.hand.patience(&bed.at), format!("{fault:?} {standing:?}"));
        let session = &mut *bed;
        let heard = match session.recovery.doubt_again(&mut session.at, &session.hand, &mut patience, fault).await {
            Ok(()) => "again",
            Err(Fault::Lost { certainty: Certainty::Unknown, .. }) => "unknown",
            Err(Fault::End(_)) => "ends",
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(heard, expected, "{shown}");
    }
}

#[tokio::test]
async fn a_transaction_that_was_disproved_can_be_done_again() {
    for (pins, ends) in [(&[PinReason::Transaction][..], false), (&[PinReason::Transaction, PinReason::TemporaryTable], true)] {
        let mut bed = in_doubt("BEGIN");
        bed.pin(pins);
        let fault = {
            let session = &mut *bed;
            session.recovery.not_applied(&mut door!(session), "its replay differs")
        };
        match fault {
            Fault::Error { code: NOT_APPLIED, text, .. } if !ends => {
                let text = String::from_utf8(text).unwrap();
                assert!(text.contains("was not applied and can be run again (its replay differs)"), "{text}");
            }
            Fault::End(End::BackendLost(text)) if ends => assert!(text.contains("was not applied"), "{text}"),
            other => panic!("{pins:?}: {other:?}"),
        }
        assert!(bed.recovery.assigned_gtid.is_none() && !bed.at.pins.set().contains(PinReason::Transaction));
    }
}

#[tokio::test]
async fn a_backend_forgets_its_gtid_or_serves_nobody() {
    for (answers, verb, sent, keeps) in [
        (clears_gtid().to_vec(), Some("COMMIT"), 2, true),
        (vec![packet_of(&ok())], None, 1, true),
        (vec![packet_of(&ok()), packet_of(&error(1790))], Some("ROLLBACK"), 2, false),
    ] {
        let mut bed = in_doubt("INSERT INTO t VALUES (1)");
        bed.at.backend.as_mut().unwrap().core.has_assigned_gtid = true;
        bed.answers(&answers);
        assert_eq!(bed.door().clear_gtid(verb).await, keeps, "{verb:?}");
        assert_eq!(bed.sent().len(), sent, "{verb:?}");
        assert_eq!(bed.at.backend.as_ref().map(|backend| backend.core.has_assigned_gtid), keeps.then_some(false), "{verb:?}");
    }
}
