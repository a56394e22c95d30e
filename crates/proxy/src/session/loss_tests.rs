//! What a client notices of a lost connection, as docs/explanation/failures.md has it.

use crate::session::Session;
use crate::session::bed::{Bed, Closes, HOME, error, ok, ok_open, packet_of, result_of};
use crate::session::end::End;
use session_state::causal::Origin;
use session_state::pins::PinReason;
use tokio::task::LocalSet;
use wire::charset::Flavor::MySql;
use wire::command::Command;
use wire::message::ERR;

const REPLAYS: &str = "mysql_variables = { transaction_replay = true }";

/// What the client hears of a statement: `rows`, `ok`, an error's number, or the end.
async fn heard(bed: &mut Bed, text: &str) -> String {
    match bed.serve(Command::Query, text.as_bytes()).await {
        Ok(packets) => match packets.first().map(|first| (first[0], first.len())) {
            Some((ERR, _)) => u16::from_le_bytes([packets[0][1], packets[0][2]]).to_string(),
            Some((0, _)) => "ok".to_owned(),
            Some(_) => "rows".to_owned(),
            None => "nothing".to_owned(),
        },
        Err(End::BackendLost(_)) => "the end".to_owned(),
        Err(other) => panic!("{other:?}"),
    }
}

/// A session whose backend closes its connection so, and another one that answers then.
fn losing(config: &str, said: &[&str], closes: Closes, answers: &[Vec<u8>]) -> Bed {
    let mut bed = Bed::new(config).on(MySql);
    said.iter().for_each(|text| bed.ran_and_noted(text, &ok_open()));
    bed.closes(closes);
    bed.another_rests(MySql);
    bed.answers(answers);
    bed
}

#[tokio::test]
async fn what_a_lost_connection_costs() {
    use Closes::*;
    let (rows, done) = (result_of(&[&["1"]]), packet_of(&ok()));
    let all = async {
        for (closes, text, answer, expected, sent) in [
            // It was never sent, or only reads.
            (Now, "INSERT INTO t VALUES (1)", &done, "ok", 1),
            (Now, "SELECT 1", &rows, "rows", 1),
            (WithTheNextCommand, "SELECT 1", &rows, "rows", 1),
            (WithTheNextCommand, "BEGIN", &done, "ok", 1),
            // It may have been applied.
            (WithTheNextCommand, "INSERT INTO t VALUES (1)", &done, "1927", 0),
            (WithTheNextCommand, "CALL p()", &done, "1927", 0),
            (WithTheNextCommand, "SELECT 1 FOR UPDATE", &rows, "1927", 0),
        ] {
            let mut bed = losing("", &[], closes, std::slice::from_ref(answer));
            assert_eq!(heard(&mut bed, text).await, expected, "{closes:?} {text}");
            let statements: Vec<String> = bed.sent();
            assert_eq!(statements.iter().filter(|one| **one == text).count(), sent, "{closes:?} {text}: {statements:?}");
        }
    };
    LocalSet::new().run_until(all).await;
}

#[tokio::test]
async fn reads_do_not_trust_replicas_after_a_write_of_unknown_outcome() {
    let causal = "mysql_replication_hostgroups = ( { writer_hostgroup=1, reader_hostgroup=2 } )
mysql_variables = { causal_reads = \"session\" }";
    let all = async {
        let mut bed = losing(causal, &[], Closes::WithTheNextCommand, &[]);
        let backend = bed.at.backend.as_mut().unwrap();
        backend.core.held.asked_for_gtids();
        let shown = backend.shown();
        bed.handle.row.held.set(Some(shown));
        assert_eq!(heard(&mut bed, "INSERT INTO t VALUES (1)").await, "1927");
        let known = bed.causal.writes.as_ref().and_then(|writes| writes.known(Origin::Own, HOME));
        assert!(known.is_some_and(|written| !written.can_be_asked_for()));
    };
    LocalSet::new().run_until(all).await;
}

#[tokio::test]
async fn a_rule_that_forbids_retries_means_it() {
    let rule = r#"mysql_query_rules = ( { rule_id=1, active=1, match_digest="^SELECT", retries=0, apply=1 } )"#;
    let all = async {
        let mut bed = losing(rule, &[], Closes::WithTheNextCommand, &[]);
        assert_eq!(heard(&mut bed, "SELECT 1").await, "1927");
    };
    LocalSet::new().run_until(all).await;
}

#[tokio::test]
async fn a_transaction_is_said_again_where_it_can_be() {
    let enough = || vec![packet_of(&ok_open()); 6];
    let insert = "INSERT INTO t VALUES (1)";
    let all = async {
        for (config, said, closes, text, answers, expected, sent) in [
            // Nothing ran in it: it is as good as not begun.
            ("", &["BEGIN"][..], Closes::Now, insert, enough(), "ok", &["BEGIN", insert][..]),
            // What was in it is gone, and the client is told.
            ("", &["BEGIN", insert], Closes::Now, "COMMIT", vec![], "the end", &[]),
            (REPLAYS, &["BEGIN", insert], Closes::Now, "COMMIT", enough(), "ok", &["BEGIN", insert, "COMMIT"]),
            (REPLAYS, &["BEGIN", insert], Closes::WithTheNextCommand, "DELETE FROM t", enough(), "ok", &["BEGIN", insert, "DELETE FROM t"]),
            // It may have been committed.
            (REPLAYS, &["BEGIN", insert], Closes::WithTheNextCommand, "COMMIT", enough(), "the end", &[]),
            // It is answered otherwise than it was.
            (
                REPLAYS,
                &["BEGIN", insert],
                Closes::Now,
                "COMMIT",
                [enough()[..1].to_vec(), vec![packet_of(&error(1062)); 3]].concat(),
                "the end",
                &["BEGIN", insert],
            ),
        ] {
            let mut bed = losing(config, said, closes, &answers);
            let outcome = tokio::time::timeout(std::time::Duration::from_secs(30), heard(&mut bed, text)).await.unwrap_or("late".into());
            let asked: Vec<String> = bed.sent().into_iter().filter(|one| !one.starts_with("SET @@session.last_insert_id")).collect();
            assert_eq!(
                (&*outcome, asked.as_slice()),
                (expected, &sent.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>()[..]),
                "{config} {said:?} {closes:?} {text}"
            );
        }
    };
    LocalSet::new().run_until(all).await;
}

#[tokio::test]
async fn what_no_other_connection_has_ends_the_session() {
    let all = async {
        for (reason, closes) in [
            (PinReason::TemporaryTable, Closes::Now),
            (PinReason::UserLock, Closes::Now),
            (PinReason::UserVariable, Closes::Now),
            (PinReason::SessionState, Closes::WithTheNextCommand),
        ] {
            let mut bed = losing("", &[], closes, &[]);
            bed.pin(&[reason]);
            assert_eq!(heard(&mut bed, "SELECT 1").await, "the end", "{reason:?} {closes:?}");
            assert!(bed.sent().is_empty(), "{reason:?}");
        }
    };
    LocalSet::new().run_until(all).await;
}

#[tokio::test]
async fn a_session_is_as_it_was_on_its_new_connection() {
    let all = async {
        let mut bed = losing("", &[], Closes::Now, &[packet_of(&ok()), result_of(&[&["1"]])]);
        let session: &mut Session = &mut bed;
        session.wants.state.variables.set("time_zone", Some(b"+02:00"));
        assert_eq!(heard(&mut bed, "SELECT 1").await, "rows");
        assert_eq!(bed.sent(), ["SET @@session.time_zone='+02:00'", "SELECT 1"]);
    };
    LocalSet::new().run_until(all).await;
}
