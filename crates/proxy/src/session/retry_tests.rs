use super::*;
use crate::session::bed::{Bed, HOME, OTHER, ok_open};
use model::HostgroupId;
use tokio::task::LocalSet;
use wire::charset::Flavor::MySql;

const CLUSTER: &str = "mysql_replication_hostgroups = ( { writer_hostgroup=1, reader_hostgroup=2 } )";
const REPLAYS: &str = "mysql_variables = { transaction_replay = true }";

#[test]
fn connections_that_die_with_their_server_count_once() {
    let server = (HostgroupId(1), 0);
    let held = |opened_ms| HeldConnection { server, local: None, thread_id: 7, opened_ms };
    let lost_at_us = 5_000_000;
    assert!(!is_same_death(None, held(10), lost_at_us, lost_at_us), "the first loss");
    assert!(is_same_death(Some(server), held(10), lost_at_us, lost_at_us + 900));
    assert!(!is_same_death(Some((HostgroupId(1), 1)), held(10), lost_at_us, lost_at_us + 900), "another server died of it");
    assert!(!is_same_death(Some(server), held(5_001), lost_at_us, lost_at_us + 9_000), "it was there again");
    assert!(!is_same_death(Some(server), held(10), lost_at_us, lost_at_us + SAME_DEATH_US), "much later");
}

#[tokio::test]
async fn only_what_had_no_effect_is_sent_again() {
    use Certainty::*;
    use PinReason::*;
    for (certainty, text, pins, expected) in [
        (NeverSent, "INSERT INTO t VALUES (1)", &[][..], true),
        (NeverSent, "COMMIT", &[], true),
        (NeverSent, "SELECT 1", &[Rule], true),
        // What is pinned is lost with the connection.
        (NeverSent, "SELECT 1", &[UserLock], false),
        (NeverSent, "SELECT 1", &[Transaction], false),
        (Unknown, "SELECT a FROM t", &[], true),
        (Unknown, "SHOW TABLES", &[], true),
        (Unknown, "EXPLAIN SELECT 1", &[], true),
        (Unknown, "BEGIN", &[], true),
        (Unknown, "SELECT a FROM t FOR UPDATE", &[], false),
        (Unknown, "SELECT f(a) FROM t", &[], false),
        (Unknown, "SELECT @a := 1", &[], false),
        (Unknown, "SELECT GET_LOCK('a', 1)", &[], false),
        (Unknown, "SELECT a INTO OUTFILE 'f' FROM t", &[], false),
        (Unknown, "INSERT INTO t VALUES (1)", &[], false),
        (Unknown, "COMMIT", &[], false),
        (Unknown, "CALL p()", &[], false),
        (Unknown, "SELECT a FROM t", &[TemporaryTable], false),
        // The client cannot tell the rest from another answer.
        (Answering, "SELECT a FROM t", &[], false),
    ] {
        let mut bed = Bed::new("").on(MySql);
        bed.pin(pins);
        assert_eq!(
            bed.recovery.may_retry(&bed.at, &bed.client, &bed.facts, certainty, &bed.analysis(text)),
            expected,
            "{certainty:?} {text} {pins:?}"
        );
    }
}

#[tokio::test]
async fn what_only_the_lost_backend_knew_is_not_asked_of_another() {
    for (text, expected) in [("SELECT FOUND_ROWS()", false), ("SHOW WARNINGS", false), ("SELECT CONNECTION_ID()", true), ("SELECT 1", true)]
    {
        let mut bed = Bed::new("").on(MySql);
        bed.pin(&[PinReason::Rule]);
        let analysis = bed.analysis(text);
        let may_retry = |bed: &Bed| bed.recovery.may_retry(&bed.at, &bed.client, &bed.facts, Certainty::NeverSent, &analysis);
        assert!(may_retry(&bed), "{text}: the session knows the answer");
        bed.facts.leave_found_rows();
        assert_eq!(may_retry(&bed), expected, "{text}");
    }
}

#[tokio::test]
async fn a_statement_goes_with_its_transaction_where_both_are_said_again() {
    for (text, expected) in [
        ("UPDATE t SET a = 1", true),
        ("SELECT a FROM t FOR UPDATE", true),
        ("ROLLBACK", true),
        ("COMMIT", false),
        ("CREATE TABLE t (a INT)", false),
        ("SELECT GET_LOCK('a', 1)", false),
        ("BEGIN", false),
    ] {
        let mut bed = Bed::new(REPLAYS).on(MySql);
        let analysis = bed.analysis(text);
        assert!(!bed.recovery.is_undone_with_backend(&bed.at, &bed.client, &bed.facts, &analysis), "no transaction is open");
        bed.ran_and_noted("BEGIN", &ok_open());
        bed.ran_and_noted("INSERT INTO t VALUES (1)", &ok_open());
        assert_eq!(bed.recovery.is_undone_with_backend(&bed.at, &bed.client, &bed.facts, &analysis), expected, "{text}");
        assert_eq!(bed.recovery.may_retry(&bed.at, &bed.client, &bed.facts, Certainty::Unknown, &analysis), expected, "{text}");
    }
}

#[tokio::test]
async fn a_read_that_may_have_run_is_looked_into() {
    let lost = |certainty| Fault::Lost { certainty, text: "gone".into(), pins: Default::default() };
    let refused = |refusal| Fault::Refused { refusal, code: 1053, sqlstate: *b"08S01", text: b"closing".to_vec() };
    for (fault, text, expected) in [
        (lost(Certainty::Unknown), "SELECT a FROM v", Some("gone")),
        (lost(Certainty::NeverSent), "SELECT a FROM v", None),
        (lost(Certainty::Unknown), "INSERT INTO t VALUES (1)", None),
        (refused(Refusal::Leaving), "SELECT a FROM v", Some("closing")),
        (refused(Refusal::ReadOnly), "SELECT a FROM v", None),
        (Fault::error(9001, b"HY000", "no server"), "SELECT a FROM v", None),
    ] {
        let bed = Bed::new("");
        assert_eq!(
            bed.recovery.lost_read(&bed.at, &bed.client, &bed.facts, &fault, &bed.analysis(text)).as_deref(),
            expected,
            "{fault:?} {text}"
        );
    }
}

#[tokio::test]
async fn patience_is_what_settings_and_rules_say() {
    let three = "mysql_variables = { query_retries_on_failure = 3 }";
    for (config, retries, tries, losses) in [
        ("", None, 2, 1),
        (three, None, 4, 3),
        (three, Some(1), 2, 1),
        // A rule that says 0 means it.
        (three, Some(0), 0, 0),
    ] {
        let mut bed = Bed::new(config);
        bed.hand.directions.retries = retries;
        let mut patience = bed.hand.patience(&bed.at);
        assert_eq!((patience.tries, patience.losses), (tries, losses), "{config} {retries:?}");
        let had = (0..10).filter(|_| bed.recovery.has_patience(&bed.at, &bed.hand, &mut patience)).count() as u64;
        assert_eq!(had, tries, "{config} {retries:?}");
    }
    let mut patience = Bed::new("").hand.patience(&Bed::new("").at);
    let pauses: Vec<u64> = (0..8).map(|_| patience.next_pause_ms()).collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 50, 50]);
}

#[tokio::test]
async fn where_servers_have_roles_time_limits_retries() {
    let timed = |config: &str, retries| {
        let mut bed = Bed::new(config);
        bed.hand.directions.retries = retries;
        (bed.hand.is_timed(&bed.at), bed)
    };
    assert!(timed(CLUSTER, None).0 && timed(CLUSTER, Some(5)).0);
    assert!(!timed(CLUSTER, Some(0)).0 && !timed("", None).0);
    let (_, mut bed) = timed(&format!("{CLUSTER}\nmysql_variables = {{ connect_timeout_server_max = 3000 }}"), None);
    let mut patience = bed.hand.patience(&bed.at);
    bed.hand.began_us = bed.worker.shared.clock.now_us();
    assert!((0..100).all(|_| bed.recovery.has_patience(&bed.at, &bed.hand, &mut patience)), "their number does not count");
    assert_eq!(bed.recovery.retry_deadline_us(&bed.at, &bed.hand), bed.hand.began_us + 3_000_000);
    // The time that it ran before does not count.
    bed.recovery.lost_at_us = Some(bed.hand.began_us + 60_000_000);
    assert_eq!(bed.recovery.retry_deadline_us(&bed.at, &bed.hand), bed.hand.began_us + 63_000_000);
    // What was with a server that died may be what it died of.
    assert!(
        bed.recovery.may_be_lost_again(&bed.at, &bed.hand, &mut patience)
            && !bed.recovery.may_be_lost_again(&bed.at, &bed.hand, &mut patience)
    );
}

#[tokio::test]
async fn what_a_reader_refuses_goes_to_the_writer_of_its_split() {
    use PinReason::*;
    for (refusal, writer, pins, text, expected) in [
        (Refusal::ReadOnly, Some(HOME), &[][..], "SELECT a FROM v", true),
        (Refusal::ReadOnly, Some(HOME), &[Rule], "SELECT a FROM v", true),
        (Refusal::ReadOnly, None, &[], "SELECT a FROM v", false),
        (Refusal::ReadOnly, Some(HOME), &[Transaction], "SELECT a FROM v", false),
        (Refusal::ReadOnly, Some(HOME), &[], "UPDATE t SET a = 1", false),
        (Refusal::NotReady, Some(HOME), &[], "SELECT a FROM v", false),
    ] {
        let mut bed = Bed::new("");
        bed.pin(pins);
        bed.hand.directions.writer = writer;
        assert_eq!(bed.hand.is_for_writer(&bed.at, refusal, &bed.analysis(text)), expected, "{refusal:?} {pins:?} {text}");
    }
}

#[tokio::test]
async fn what_was_refused_moves_as_its_place_and_settings_allow() {
    let conflicts = "mysql_variables = { transaction_replay = true, transaction_replay_conflicts = true }";
    let clustered = |more: &str| format!("{CLUSTER}\n{more}");
    for (config, place, refusal, text, expected) in [
        (clustered(""), HOME, Refusal::ReadOnly, "INSERT INTO t VALUES (1)", true),
        (clustered(""), HOME, Refusal::NotReady, "INSERT INTO t VALUES (1)", true),
        (clustered(""), HOME, Refusal::ReadOnly, "CALL p()", false),
        // What a reader refuses is an answer.
        (clustered(""), OTHER, Refusal::ReadOnly, "INSERT INTO t VALUES (1)", false),
        (clustered(""), OTHER, Refusal::NotReady, "INSERT INTO t VALUES (1)", true),
        (clustered(""), HOME, Refusal::Leaving, "SELECT a FROM t", true),
        (clustered(""), HOME, Refusal::Leaving, "INSERT INTO t VALUES (1)", false),
        (String::new(), HOME, Refusal::ReadOnly, "INSERT INTO t VALUES (1)", false),
        (String::new(), HOME, Refusal::NeverRead, "INSERT INTO t VALUES (1)", true),
        // A deadlock is the client's to hear, unless it is to be hidden.
        (clustered(""), HOME, Refusal::Conflict, "UPDATE t SET a = 1", false),
        (clustered(REPLAYS), HOME, Refusal::Conflict, "UPDATE t SET a = 1", false),
        (clustered(conflicts), HOME, Refusal::Conflict, "UPDATE t SET a = 1", true),
    ] {
        let mut bed = Bed::new(&config);
        bed.door().travel(place).await;
        bed.hand.began_us = bed.worker.shared.clock.now_us();
        let analysis = bed.analysis(text);
        assert_eq!(bed.may_move(refusal, &analysis), expected, "{config} {place}: {refusal:?} {text}");
        bed.hand.directions.retries = Some(0);
        assert!(!bed.may_move(refusal, &analysis), "a rule forbids it");
        bed.hand.directions.retries = None;
        bed.pin(&[PinReason::UserLock]);
        assert!(!bed.may_move(refusal, &analysis), "the lock is there");
    }
}

#[tokio::test]
async fn a_client_that_wants_read_only_is_told_so() {
    let read_only = StatusFlags::AUTOCOMMIT | StatusFlags::IN_TRANS_READONLY;
    for (status, pins, variable, expected) in [
        (StatusFlags::AUTOCOMMIT, &[][..], None, false),
        (read_only, &[], None, true),
        (StatusFlags::AUTOCOMMIT, &[PinReason::NextTransaction], None, true),
        (StatusFlags::AUTOCOMMIT, &[], Some(("transaction_read_only", "ON")), true),
        (StatusFlags::AUTOCOMMIT, &[], Some(("tx_read_only", "1")), true),
        (StatusFlags::AUTOCOMMIT, &[], Some(("transaction_read_only", "OFF")), false),
    ] {
        let mut bed = Bed::new("");
        bed.client.status = status;
        bed.pin(pins);
        if let Some((name, value)) = variable {
            bed.wants.state.variables.set(name, Some(value.as_bytes()));
        }
        assert_eq!(bed.client.wants_read_only(&bed.at, &bed.wants), expected, "{pins:?} {variable:?}");
    }
}

#[tokio::test]
async fn a_commit_that_a_writer_refused_is_rolled_back_where_replays_were_promised() {
    let error = ReplyError { code: 1290, sqlstate: *b"HY000", message: b"running with the --read-only option", unasked: false };
    let other = ReplyError { code: 1290, message: b"running with the --secure-file-priv option", ..error };
    let promised = format!("{CLUSTER}\n{REPLAYS}");
    for (config, pins, error, text, expected) in [
        (&*promised, &[PinReason::Transaction][..], &error, "COMMIT", true),
        (&promised, &[PinReason::Transaction, PinReason::Rule], &error, "COMMIT", true),
        (&promised, &[PinReason::Transaction], &other, "COMMIT", false),
        (&promised, &[PinReason::Transaction], &error, "INSERT INTO t VALUES (1)", false),
        (&promised, &[PinReason::Transaction], &error, "COMMIT; SELECT 1", false),
        (&promised, &[PinReason::Transaction, PinReason::UserLock], &error, "COMMIT", false),
        (&promised, &[], &error, "COMMIT", false),
        (CLUSTER, &[PinReason::Transaction], &error, "COMMIT", false),
        (REPLAYS, &[PinReason::Transaction], &error, "COMMIT", false),
    ] {
        let mut bed = Bed::new(config);
        bed.pin(pins);
        assert_eq!(bed.at.is_commit_refused_for_good(error, &bed.analysis(text)), expected, "{config} {pins:?} {text}");
    }
}

#[tokio::test]
async fn a_fault_is_told_or_the_statement_is_sent_again() {
    let lost = |certainty| Fault::Lost { certainty, text: "gone".into(), pins: Default::default() };
    let all = async {
        for (fault, text, expected) in [
            (lost(Certainty::NeverSent), "INSERT INTO t VALUES (1)", "again again told"),
            (lost(Certainty::Unknown), "SELECT a FROM t", "again again told"),
            (lost(Certainty::Unknown), "INSERT INTO t VALUES (1)", "told told told"),
            (lost(Certainty::Answering), "SELECT a FROM t", "told told told"),
            (Fault::error(1045, b"28000", "denied"), "SELECT 1", "told told told"),
        ] {
            let mut bed = Bed::new("");
            let analysis = bed.analysis(text);
            let mut patience = bed.hand.patience(&bed.at);
            let mut heard = Vec::new();
            for _ in 0..3 {
                let again = match &fault {
                    Fault::Lost { certainty, .. } => lost(*certainty),
                    _ => Fault::error(1045, b"28000", "denied"),
                };
                heard.push(if bed.once_more(&mut patience, again, &analysis).await.is_ok() { "again" } else { "told" });
            }
            assert_eq!(heard.join(" "), expected, "{fault:?} {text}");
        }
    };
    LocalSet::new().run_until(all).await;
}

#[test]
fn who_waited_in_vain_hears_of_the_refusal_before() {
    let nothing = || Patience { tries: 0, losses: 0, lost_with: None, pause_ms: 1, refused: None, conflict: None, lost_read: None };
    let text = |fault| match fault {
        Fault::Error { text, .. } => String::from_utf8(text).unwrap(),
        other => panic!("{other:?}"),
    };
    let none = || Fault::error(codes::NO_CONNECTION, b"HY000", "no server in time");
    assert_eq!(text(nothing().explained(none())), "no server in time");
    let refused = Patience { refused: Some("ERROR 1290: read-only".into()), ..nothing() };
    assert_eq!(text(refused.explained(none())), "no server in time; before that a server refused the statement: ERROR 1290: read-only");
    assert_eq!(text(refused.explained(Fault::error(1045, b"28000", "denied"))), "denied");
}
