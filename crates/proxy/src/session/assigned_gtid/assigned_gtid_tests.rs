use super::*;
use crate::session::bed::{Bed, ok_open};
use wire::charset::Flavor::{self, MariaDb, MySql};

const SETTLES: &str = "mysql_replication_hostgroups = ( { writer_hostgroup=1, reader_hostgroup=2 } )
mysql_variables = { settle_lost_writes = true }";

/// A session on a writer of a cluster in which lost writes are settled.
fn bed(flavor: Flavor) -> Bed {
    Bed::new(SETTLES).on(flavor)
}

/// What the assigned GTID is for that this statement gets.
fn scope(bed: &mut Bed, text: &str) -> Option<Scope> {
    let (plan, command) = (Plan::new(bed.analysis(text)), bed.says(text));
    bed.assign_gtid(command, &plan);
    bed.recovery.assigned_gtid.as_ref().map(|assignment| assignment.scope)
}

#[tokio::test]
async fn single_writes_and_plain_begins_get_a_gtid() {
    for (text, expected) in [
        ("INSERT INTO t VALUES (1)", Some(Scope::Statement)),
        ("UPDATE t SET a = 1", Some(Scope::Statement)),
        ("DELETE FROM t", Some(Scope::Statement)),
        ("REPLACE INTO t VALUES (1)", Some(Scope::Statement)),
        ("begin;", Some(Scope::Transaction)),
        ("START TRANSACTION", Some(Scope::Transaction)),
        // It has ways of its own.
        ("START TRANSACTION READ ONLY", None),
        ("BEGIN /* c */", None),
        ("SELECT a FROM t", None),
        ("COMMIT", None),
        // It commits implicitly, which an assigned GTID forbids.
        ("CREATE TABLE t (a INT)", None),
        // Of a part of it the rest may stand, or more than its transaction.
        ("CALL p()", None),
        ("INSERT INTO t VALUES (f())", None),
        ("INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)", None),
        ("INSERT INTO t VALUES (GET_LOCK('a', 1))", None),
        ("INSERT INTO t VALUES (@@gtid_next)", None),
    ] {
        assert_eq!(scope(&mut bed(MySql), text), expected, "{text}");
    }
}

#[tokio::test]
async fn an_assigned_gtid_is_for_what_is_alone_on_the_writer_of_a_mysql_cluster() {
    let insert = "INSERT INTO t VALUES (1)";
    type Change = fn(&mut Bed);
    let cases: [(&str, Change, bool); 9] = [
        ("as it is", |_| {}, true),
        ("a wish", |bed| bed.pin(&[PinReason::Rule]), true),
        ("in a transaction", |bed| bed.ran("BEGIN", &ok_open()), false),
        ("with a temporary table", |bed| bed.pin(&[PinReason::TemporaryTable]), false),
        ("autocommit is off", |bed| bed.client.status = StatusFlags::default(), false),
        ("completion_type", |bed| bed.wants.state.variables.set("completion_type", Some(b"CHAIN")), false),
        ("a rule forbids retries", |bed| bed.hand.directions.retries = Some(0), false),
        ("refused a moment ago", |bed| bed.at.lane.assign_none_until(u64::MAX), false),
        ("out of use", |bed| bed.place(model::snapshot::ServerStatus::Shunned, model::fleet::UnderWay::MayFinish, 0), false),
    ];
    for (what, change, expected) in cases {
        let mut bed = bed(MySql);
        change(&mut bed);
        assert_eq!(scope(&mut bed, insert).is_some(), expected, "{what}");
    }
    assert_eq!(scope(&mut bed(MariaDb), insert), None, "gtid_next is MySQL's");
    let cluster = "mysql_replication_hostgroups = ( { writer_hostgroup=1, reader_hostgroup=2 } )";
    assert_eq!(scope(&mut Bed::new(cluster).on(MySql), insert), None, "it is off");
    let alone = "mysql_variables = { settle_lost_writes = true }";
    assert_eq!(scope(&mut Bed::new(alone).on(MySql), insert), None, "no cluster");
}

#[tokio::test]
async fn an_assigned_gtid_goes_ahead_of_its_statement() {
    for (text, replies, standing_of_backend) in [("INSERT INTO t VALUES (1)", 2, "BEGIN"), ("BEGIN", 1, "gtid_next=")] {
        let mut bed = bed(MySql);
        scope(&mut bed, text);
        let mut ahead = Ahead::default();
        let bed = &mut *bed;
        bed.recovery.gtid_ahead(&mut bed.at, &mut ahead);
        let sent = String::from_utf8_lossy(&ahead.packets).into_owned();
        assert!(sent.contains("SET SESSION gtid_next='") && sent.contains(standing_of_backend), "{sent}");
        assert_eq!((ahead.replies, ahead.gtid_replies), (0, replies), "{text}");
        assert_eq!(bed.recovery.standing(), Some(GtidStanding::Set));
        assert!(bed.at.backend.as_ref().unwrap().core.has_assigned_gtid);
        assert_eq!(bed.recovery.is_in_assigned(&bed.at), text == "BEGIN");
    }
}

#[tokio::test]
async fn a_number_comes_back_only_where_it_was_certainly_not_used() {
    for (standing, is_unused, comes_back) in [
        (GtidStanding::Fresh, false, true),
        (GtidStanding::Refused, false, true),
        (GtidStanding::Set, false, false),
        (GtidStanding::Set, true, true),
        // A server skips, without a word, what is done under a GTID once more.
        (GtidStanding::InDoubt, true, false),
        (GtidStanding::Undecided, true, false),
        (GtidStanding::Disproved, false, false),
    ] {
        let mut bed = bed(MySql);
        scope(&mut bed, "INSERT INTO t VALUES (1)");
        let gtid = bed.recovery.assigned_gtid.as_ref().unwrap().gtid.clone();
        bed.recovery.set_standing(standing);
        let session = &mut *bed;
        session.recovery.drop_gtid(&session.at, is_unused);
        assert!(session.recovery.standing().is_none());
        let next = session.at.pool.shared.gtid_source.take().unwrap();
        assert_eq!(next == gtid, comes_back, "{standing:?} {is_unused}");
    }
}

#[tokio::test]
async fn a_commit_is_disproved_for_a_clients_transaction_alone() {
    for (text, standing, expected) in [
        ("BEGIN", GtidStanding::Disproved, true),
        ("BEGIN", GtidStanding::Claimed, true),
        ("BEGIN", GtidStanding::InDoubt, false),
        ("BEGIN", GtidStanding::Set, false),
        ("UPDATE t SET a = 1", GtidStanding::Disproved, false),
    ] {
        let mut bed = bed(MySql);
        scope(&mut bed, text);
        bed.recovery.set_standing(standing);
        assert_eq!(bed.recovery.is_commit_disproved(), expected, "{text} {standing:?}");
    }
}

#[tokio::test]
async fn a_server_that_refuses_gtids_is_let_alone_for_a_while() {
    let mut bed = bed(MySql);
    scope(&mut bed, "INSERT INTO t VALUES (1)");
    bed.at.backend.as_mut().unwrap().core.has_assigned_gtid = true;
    {
        let session = &mut *bed;
        session.recovery.gtid_refused(&mut session.at, "Access denied")
    };
    assert_eq!(bed.recovery.standing(), Some(GtidStanding::Refused));
    assert!(!bed.at.backend.as_ref().unwrap().core.has_assigned_gtid);
    let now_ms = bed.worker.shared.clock.now_ms();
    assert!(!bed.at.lane.may_assign_gtids(now_ms) && bed.at.lane.may_assign_gtids(now_ms + REFUSED_FOR_MS));
}
