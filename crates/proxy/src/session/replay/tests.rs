use super::*;
use crate::session::bed::{Bed, ok, ok_open, packet_of};
use crate::session::door::door;
use crate::session::loss::{CLOSED, was_closed};
use session_state::insert_id::Word;
use tokio::task::LocalSet;
use wire::charset::Flavor::MySql;

const REPLAYS: &str = "mysql_variables = { transaction_replay = true }";

/// A session in a transaction in which this was said.
fn said(config: &str, texts: &[&str]) -> Bed {
    let mut bed = Bed::new(config).on(MySql);
    texts.iter().for_each(|text| bed.ran_and_noted(text, &ok_open()));
    bed
}

#[tokio::test]
async fn a_session_moves_if_all_that_it_has_can_be_said_again() {
    use PinReason::*;
    for (config, texts, pins, movable, more) in [
        ("", &[][..], &[][..], true, false),
        ("", &[], &[Rule, MultiplexingOff, AutoIncrementDelay], true, false),
        ("", &[], &[UserLock], false, false),
        ("", &[], &[UserVariable], false, false),
        ("", &["BEGIN"], &[], true, false),
        ("", &["BEGIN"], &[NextTransaction], true, false),
        ("", &["BEGIN"], &[Rule], true, false),
        ("", &["BEGIN"], &[TemporaryTable], false, false),
        ("", &["BEGIN", "SELECT 1"], &[], false, false),
        (REPLAYS, &["BEGIN", "SELECT 1"], &[], true, true),
        (REPLAYS, &["BEGIN", "INSERT INTO t VALUES (1)"], &[], true, true),
        (REPLAYS, &["BEGIN", "INSERT INTO t VALUES (1)"], &[Savepoint, FoundRows], true, true),
        (REPLAYS, &["BEGIN", "INSERT INTO t VALUES (1)"], &[UserLock], false, false),
        (REPLAYS, &["BEGIN", "CALL p()"], &[], false, false),
    ] {
        let mut bed = said(config, texts);
        bed.pin(pins);
        assert_eq!(
            (bed.recovery.is_movable(&bed.at, &bed.facts), bed.recovery.has_more_to_say(&bed.at, &bed.facts)),
            (movable, more),
            "{config} {texts:?} {pins:?}"
        );
        {
            let session = &mut *bed;
            session.recovery.replay_is_due(&mut session.at, &session.facts)
        };
        assert_eq!(bed.at.replaying.is_some(), more, "{config} {texts:?} {pins:?}");
    }
}

#[tokio::test]
async fn a_session_whose_insert_id_only_the_backend_knows_stays() {
    let mut bed = Bed::new("").on(MySql);
    bed.pin(&[PinReason::Rule]);
    bed.facts.insert_id = LastInsertId::of(3);
    bed.facts.insert_id.replied(Word { id: 0, changes_unseen: true, inserts: false, failed: false, is_certain: false }, None);
    assert!(!bed.recovery.is_movable(&bed.at, &bed.facts));
    bed.facts.insert_id.set(4);
    assert!(bed.recovery.is_movable(&bed.at, &bed.facts));
}

#[tokio::test]
async fn a_loss_says_why_there_was_no_replay_where_that_can_be_helped() {
    let big = "mysql_variables = { transaction_replay = true, transaction_replay_max_bytes = 1 }";
    let told = |bed: &Bed| bed.recovery.told_with_gap("gone");
    assert_eq!(told(&said("", &[])), "gone");
    assert_eq!(told(&said("", &["BEGIN", "SELECT 1"])), "gone");
    assert_eq!(told(&said(REPLAYS, &["BEGIN", "CALL p()"])), "gone");
    assert!(told(&said(big, &["BEGIN", "SELECT 1"])).contains("larger than transaction_replay_max_bytes"));
    let mut bed = said(REPLAYS, &["BEGIN"]);
    bed.scribe().lose_transcript(Gap::HandedOver);
    assert!(told(&bed).contains("before the proxy was upgraded"));
    bed.scribe().lose_transcript(Gap::TooLarge);
    assert!(told(&bed).contains("before the proxy was upgraded"), "what was lost first stays lost");
}

#[tokio::test]
async fn a_connection_tells_the_gtid_of_a_transaction_that_came_to_it() {
    let causal = "mysql_replication_hostgroups = ( { writer_hostgroup=1, reader_hostgroup=2 } )
mysql_variables = { causal_reads = \"session\" }";
    let all = async {
        let mut bed = said(causal, &["BEGIN"]);
        bed.another_rests(MySql);
        bed.at.backend = None;
        bed.answers(&vec![packet_of(&ok_open()); 6]);
        bed.reopen().await.unwrap();
        let sent: Vec<String> = bed.sent().into_iter().filter(|one| !one.contains("last_insert_id")).collect();
        assert_eq!(sent, ["SET SESSION session_track_gtids=OWN_GTID", "BEGIN"]);
        assert!(bed.at.backend.as_ref().unwrap().core.held.tells_gtids());
    };
    LocalSet::new().run_until(all).await;
}

#[tokio::test]
async fn a_transaction_that_is_over_leaves_nothing() {
    let mut bed = said(REPLAYS, &["BEGIN", "INSERT INTO t VALUES (1)"]);
    bed.pin(&[PinReason::Savepoint, PinReason::TemporaryTable]);
    {
        let session = &mut *bed;
        session.recovery.forget_transaction(&mut door!(session))
    };
    assert_eq!(bed.pins(), ["temporary_table"]);
    assert!(bed.recovery.transcript.is_none() && bed.client.status == StatusFlags::AUTOCOMMIT);
    bed.ran_and_noted("SELECT 1", &ok());
    assert!(bed.recovery.transcript.is_none());
}

#[tokio::test]
async fn a_replay_has_so_long_from_the_first_loss_on() {
    let mut bed = said("mysql_variables = { transaction_replay_timeout_ms = 4000 }", &[]);
    let bed = &mut *bed;
    assert_eq!(bed.recovery.time_to_replay(&bed.at, Progress::Opening), NO_LIMIT);
    let left = bed.recovery.time_to_replay(&bed.at, Progress::Kept);
    assert!(left <= Duration::from_secs(4) && left > Duration::from_secs(3), "{left:?}");
    bed.recovery.replay_until_us = Some(0);
    assert_eq!(bed.recovery.time_to_replay(&bed.at, Progress::Kept), Duration::ZERO);
    bed.recovery.forget_retries();
    assert!(bed.recovery.time_to_replay(&bed.at, Progress::Kept) > Duration::ZERO);
}

#[test]
fn an_error_in_a_replay_goes_elsewhere_or_ends_it() {
    let error = |code, message: &str| ServerError { code, sqlstate: *b"HY000", message: message.as_bytes().to_vec() };
    for (error, expected) in [
        (error(1290, "running with the --read-only option"), Some(Refusal::ReadOnly)),
        (error(1053, "Server shutdown in progress"), Some(Refusal::Leaving)),
        (error(1213, "Deadlock found"), Some(Refusal::Conflict)),
        // The client itself may have asked for that.
        (error(1792, "Cannot execute statement in a READ ONLY transaction"), None),
        (error(1062, "Duplicate handle"), None),
    ] {
        let code = error.code;
        match (refused_again(error), expected) {
            (Fault::Refused { refusal, .. }, Some(expected)) => assert_eq!(refusal, expected, "{code}"),
            (Fault::End(End::BackendLost(why)), None) => assert!(why.contains("could not be replayed"), "{why}"),
            (other, _) => panic!("{code}: {other:?}"),
        }
    }
}

#[test]
fn a_connection_that_was_closed_from_without_fails_so() {
    for kind in CLOSED {
        assert!(was_closed(&io::Error::from(kind)), "{kind:?}");
    }
    assert!(was_closed(&io::Error::from_raw_os_error(110)), "what the kernel says");
    assert!(!was_closed(&io::Error::from(io::ErrorKind::TimedOut)), "given up by the proxy itself");
    assert!(!was_closed(&io::Error::other("the proxy stopped using the server")));
}
