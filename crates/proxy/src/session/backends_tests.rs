use super::*;
use crate::session::bed::{Bed, HOME, OTHER, ok, ok_open, rows};
use crate::session::route::TextCommand;
use wire::charset::Flavor::MySql;
use wire::reframe::ReplyFacts;

const CLUSTER: &str = "mysql_replication_hostgroups = ( { writer_hostgroup=1, reader_hostgroup=2 } )";

/// A session that ran this at home, and came to the other hostgroup since.
async fn elsewhere(config: &str, said: &[(&str, ReplyFacts)]) -> Bed {
    let mut bed = Bed::new(config).on(MySql);
    said.iter().for_each(|(text, reply)| bed.ran(text, reply));
    bed.door().travel(OTHER).await;
    bed
}

/// Where this text goes that is meant for the other hostgroup.
fn drawn_to(bed: &Bed, text: &str) -> HostgroupId {
    let asked = StatementText { text: text.as_bytes(), analysis: &bed.analysis(text), phase: TextCommand::Query };
    bed.router().drawn_to(&bed.worker.in_force(), asked, OTHER)
}

#[tokio::test]
async fn what_was_left_is_at_hand_again_where_it_was_left() {
    let mut bed = elsewhere("", &[("SELECT GET_LOCK('a', 1)", rows(1))]).await;
    let lock = PinSet::of(&[PinReason::UserLock]);
    assert_eq!((bed.at.pool.shared.id, bed.pins().len()), (OTHER, 0));
    assert!(bed.at.backend.is_none() && bed.at.is_pinned());
    assert_eq!((bed.at.all_pins(), bed.at.pins_in(HOME), bed.at.pins_in(OTHER)), (lock, lock, PinSet::default()));
    bed.connect(MySql);
    bed.ran("CREATE TEMPORARY TABLE t (a INT)", &ok());
    assert_eq!(bed.at.all_pins(), lock.union(PinSet::of(&[PinReason::TemporaryTable])));
    Places::publish(bed.at.places.as_deref(), &bed.handle);
    let shown: Vec<_> = bed.handle.elsewhere.borrow().iter().map(|place| (place.hostgroup, place.pins, place.began.len())).collect();
    assert_eq!(shown, [(HOME, lock, 1)]);
    bed.door().travel(HOME).await;
    assert_eq!((bed.pins(), bed.at.pool.shared.id), (vec!["user_lock"], HOME));
    assert_eq!(bed.at.backend.as_ref().unwrap().core.lane.hostgroup, HOME, "the connection that has the lock");
    bed.ran("SELECT RELEASE_LOCK('a')", &rows(1));
    bed.at.backend = None;
    bed.door().travel(OTHER).await;
    assert_eq!((bed.pins(), bed.at.places.is_none()), (vec!["temporary_table"], true));
    Places::publish(bed.at.places.as_deref(), &bed.handle);
    assert!(bed.handle.elsewhere.borrow().is_empty());
}

#[tokio::test]
async fn a_pin_stays_goes_or_is_left() {
    use PinReason::*;
    for (reason, is_there, left) in [
        // What ran elsewhere would be outside of the transaction, or not see what is locked.
        (Transaction, false, false),
        (Savepoint, false, false),
        (NextTransaction, false, false),
        (Xa, false, false),
        (LockTables, false, false),
        (LongData, false, false),
        (Replication, false, false),
        (TemporaryTable, true, true),
        (UserLock, true, true),
        (TextPrepare, true, true),
        (Handler, true, true),
        (Cursor, true, true),
        (SessionState, true, true),
        (Role, true, true),
        (Rule, true, true),
        // Wishes of where the session was, and what it knows itself as soon as it is elsewhere.
        (AutoIncrementDelay, true, false),
        (AutocommitOff, true, false),
        (FoundRows, true, false),
    ] {
        let mut bed = Bed::new("").on(MySql);
        bed.pin(&[reason]);
        bed.door().travel(OTHER).await;
        let is_left = bed.at.places.is_some();
        assert_eq!((bed.at.pool.shared.id == OTHER, is_left), (is_there, left), "{reason:?}");
        assert_eq!(bed.pins().is_empty(), is_there, "{reason:?}");
    }
}

#[tokio::test]
async fn a_statement_that_names_what_was_left_goes_there() {
    let table = ("CREATE TEMPORARY TABLE t (a INT)", ok());
    let (lock, handler, prepared) = (("SELECT GET_LOCK('a', 1)", rows(1)), ("HANDLER t OPEN", ok()), ("PREPARE s FROM 'SELECT 1'", ok()));
    for (left, text, expected) in [
        (&table, "SELECT a FROM t", HOME),
        (&table, "INSERT INTO shop.T VALUES (1)", HOME),
        (&table, "SELECT a FROM other.t", OTHER),
        (&table, "SELECT a FROM u", OTHER),
        (&table, "SELECT 't'", OTHER),
        (&lock, "SELECT RELEASE_LOCK('a')", HOME),
        (&lock, "DO GET_LOCK('b', 1)", HOME),
        (&lock, "SELECT a FROM t", OTHER),
        (&handler, "HANDLER t READ NEXT", HOME),
        (&handler, "SELECT a FROM t", OTHER),
        (&prepared, "EXECUTE s", HOME),
        (&prepared, "DEALLOCATE PREPARE S", HOME),
        (&prepared, "EXECUTE another", OTHER),
    ] {
        let bed = elsewhere("", std::slice::from_ref(left)).await;
        assert_eq!(drawn_to(&bed, text), expected, "{}: {text}", left.0);
    }
}

#[tokio::test]
async fn what_is_for_readers_follows_what_was_left_with_their_writer() {
    let lock = ("SELECT GET_LOCK('a', 1)", rows(1));
    for (config, left, expected) in [(CLUSTER, true, HOME), (CLUSTER, false, OTHER), ("", true, OTHER)] {
        let mut bed = Bed::new(config).on(MySql);
        if left {
            bed.ran(lock.0, &lock.1);
        }
        assert_eq!(drawn_to(&bed, "SELECT a FROM t"), expected, "{config} {left}");
    }
    let mut bed = Bed::new(CLUSTER).on(MySql);
    bed.pin(&[PinReason::MultiplexingOff]);
    assert_eq!(drawn_to(&bed, "SELECT a FROM t"), OTHER, "a wish leaves nothing that a read could miss");
}

#[tokio::test]
async fn user_variables_are_brought_from_where_they_were_computed() {
    let computed = [("SELECT @a := b FROM t", rows(1))];
    let bed = elsewhere("", &computed).await;
    for (text, hostgroup, expected) in [
        ("SELECT @a", OTHER, true),
        ("SELECT @b", OTHER, true),
        ("SELECT @a", HOME, false),
        ("SELECT a FROM t", OTHER, false),
        ("SELECT @@sql_mode", OTHER, false),
    ] {
        assert_eq!(bed.router().needs_variables(&bed.analysis(text), hostgroup), expected, "{text} in {hostgroup}");
    }
    let mut bed = elsewhere("", &computed).await;
    bed.connect(MySql);
    bed.ran("BEGIN", &ok_open());
    assert!(!bed.router().needs_variables(&bed.analysis("SELECT @a"), OTHER), "a transaction goes nowhere");
    let mut bed = elsewhere("", &computed).await;
    bed.ran("SET @a = 1", &ok());
    assert!(bed.at.pins_in(HOME).is_empty() && !bed.router().needs_variables(&bed.analysis("SELECT @a"), OTHER), "what is set is known");
}

#[tokio::test]
async fn a_read_runs_alone_where_nothing_is_open_that_it_is_part_of() {
    use PinReason::*;
    for (reasons, expected) in [
        (&[][..], true),
        (&[UserLock, TemporaryTable], true),
        (&[Transaction], false),
        (&[Savepoint], false),
        (&[LockTables], false),
        (&[AutocommitOff], false),
    ] {
        let mut bed = Bed::new("");
        bed.pin(reasons);
        assert_eq!(bed.at.may_read_alone(), expected, "{reasons:?}");
    }
    assert!(!Bed::new("mysql_variables = { autocommit_false_is_transaction = true }").at.may_read_alone());
}

#[tokio::test]
async fn a_begin_that_may_write_ends_a_transaction_that_only_reads() {
    use Flavor::*;
    use PinReason::*;
    let reads = StatusFlags::AUTOCOMMIT | StatusFlags::IN_TRANS_READONLY;
    let writes = StatusFlags::AUTOCOMMIT | StatusFlags::IN_TRANS;
    for (flavor, status, reasons, text, expected) in [
        (MySql, reads, &[Transaction][..], "START TRANSACTION READ WRITE", true),
        (MySql, reads, &[Transaction], "start  transaction read write;", true),
        (MySql, reads, &[Transaction], "START TRANSACTION READ ONLY", false),
        // MySQL leaves it READ ONLY if `transaction_read_only` is on.
        (MySql, reads, &[Transaction], "BEGIN", false),
        (MariaDb, reads, &[Transaction], "BEGIN", true),
        (MariaDb, reads, &[Transaction, Savepoint], "BEGIN WORK", true),
        (MariaDb, reads, &[Transaction, MultiplexingOff], "START TRANSACTION", true),
        (MariaDb, reads, &[Transaction, TemporaryTable], "BEGIN", false),
        (MariaDb, reads, &[Transaction, UserLock], "START TRANSACTION READ WRITE", false),
        (MariaDb, writes, &[Transaction], "BEGIN", false),
        (MariaDb, reads, &[Transaction], "BEGIN NOT ATOMIC SELECT 1; END", false),
    ] {
        let mut bed = Bed::new("").on(flavor);
        bed.pin(reasons);
        bed.client.status = status;
        assert_eq!(bed.client.may_leave_what_was_read(&bed.at, &bed.wants, text.as_bytes()), expected, "{flavor:?} {reasons:?} {text}");
    }
    let mut bed = Bed::new("").on(MariaDb);
    (bed.client.status, bed.wants.lex.oracle) = (reads, true);
    assert!(!bed.client.may_leave_what_was_read(&bed.at, &bed.wants, b"BEGIN"), "under ORACLE it begins a block");
    assert!(bed.client.may_leave_what_was_read(&bed.at, &bed.wants, b"START TRANSACTION READ WRITE"));
}
