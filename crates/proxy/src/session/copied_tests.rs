use super::*;
use crate::session::bed::{Bed, analysis};
use crate::session_state::pins::PinReason;
use model::snapshot::Rehearsal;
use rehearsal::{Run, ServerName};
use std::rc::Rc;

const ROW: &str = r#"mysql_rehearsals = ( { name="new", mode="all", source_hostgroup=1, shadow_hostgroup=2, percent=100, users="anna" } )"#;

/// A session of which a rehearsal in mode `all` runs.
fn bed() -> (Bed, Arc<Copying>) {
    let bed = Bed::new(ROW);
    let plan: Arc<Rehearsal> = Arc::clone(&bed.worker.snapshot().rehearsals[0]);
    let run = Run::new(plan, [ServerName::default(), ServerName::default()], (0, 0), None);
    let shared = &bed.worker.shared;
    shared.rehearsals.start_with(run, 0, |run| shared.copying.store(Some(Copying::new(Arc::clone(run))))).unwrap();
    let copying = bed.worker.shared.copying.load_full().unwrap();
    (bed, copying)
}

#[test]
fn what_is_of_the_server_is_left_out() {
    let left_out = |text: &str| is_left_out(&analysis(text), text.as_bytes(), LexMode::default());
    for text in [
        "KILL 5",
        "CREATE USER a",
        "GRANT ALL ON *.* TO a",
        "SET PASSWORD = 'x'",
        "FLUSH TABLES WITH READ LOCK",
        "SET GLOBAL read_only=0",
        "SET @@global.read_only=0",
        "SET @a = IF(@b = 1, 2, 3), GLOBAL read_only = 0",
        "SET @a = 1; SET GLOBAL read_only = 0",
        "SET PERSIST max_connections=5",
        "SELECT GET_LOCK('a', 1)",
        "DO RELEASE_LOCK('a')",
        "SELECT 1 INTO OUTFILE '/tmp/x'",
        "SHUTDOWN",
    ] {
        assert!(left_out(text), "{text}");
    }
    for text in [
        "SET @a = 'global warming'",
        "SET @old = @@GLOBAL.sql_mode",
        "SET @old := @@global.sql_mode, sql_mode = ''",
        "SET sql_mode='ANSI'",
        "INSERT INTO t SELECT GET_LOCK('a', 1)",
        "UPDATE t SET a = 1",
        "TRUNCATE t",
        "CREATE TABLE t (a INT)",
        "CALL p()",
        "XA START 'a'",
    ] {
        assert!(!left_out(text), "{text}");
    }
}

#[tokio::test]
async fn a_statement_that_was_stopped_may_have_run_in_part() {
    let mut bed = Bed::new(ROW);
    let mut may = |text: &str, error| {
        let statement = Statement { command: bed.says(text), analysis: analysis(text), form: Form::Text { start: 0 } };
        may_have_run(&statement, Some(&(Answer { error, ..Answer::default() }, 0)))
    };
    for error in [1205, 1213, 1317, 1969, 3024] {
        assert!(!may("UPDATE t SET a = 1", Some(error)), "{error}");
        assert!(may("CALL p()", Some(error)) && may("ALTER TABLE t ADD b INT", Some(error)) && may("COMMIT", Some(error)), "{error}");
        assert!(may("UPDATE t SET a = 1; UPDATE t SET a = 2", Some(error)), "{error}");
    }
    assert!(!may("CALL p()", Some(1062)) && !may("CALL p()", None));
}

#[tokio::test]
async fn statements_take_locks_or_release_them() {
    let (mut bed, _) = bed();
    for (text, locks) in [
        ("SELECT a FROM t", Locks::None),
        ("SELECT a FROM t FOR UPDATE", Locks::Takes),
        ("SELECT LAST_INSERT_ID()", Locks::None),
        ("SELECT LAST_INSERT_ID() FROM t FOR UPDATE", Locks::Takes),
        ("SELECT f(a), ROW_COUNT() FROM t", Locks::Takes),
        ("SELECT f(a) FROM t", Locks::Takes),
        ("INSERT INTO t VALUES (1)", Locks::Takes),
        ("LOCK TABLES t WRITE", Locks::Takes),
        ("ALTER TABLE t ADD b INT", Locks::Takes),
        ("BEGIN", Locks::None),
        ("SAVEPOINT a", Locks::None),
        ("SET sql_mode='ANSI'", Locks::None),
        ("SET @a = f(1)", Locks::Takes),
        ("COMMIT", Locks::Releases),
        ("ROLLBACK", Locks::Releases),
        ("UNLOCK TABLES", Locks::Releases),
        ("COMMIT; UPDATE t SET a = 1", Locks::Takes),
    ] {
        let (command, analysis) = (bed.says(text), bed.analysis(text));
        assert_eq!(bed.locks_of(&Statement { command, analysis, form: Form::Text { start: 0 } }), locks, "{text}");
    }
}

#[tokio::test]
async fn a_copy_begins_where_nothing_is_open_or_is_counted() {
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async {
            let (mut bed, copying) = bed();
            bed.client.status = StatusFlags::AUTOCOMMIT | StatusFlags::IN_TRANS;
            assert!(!bed.finds_copying() && !bed.finds_copying());
            assert_eq!(copying.run.given_up(GaveUp::PinnedState), 1, "once");
            bed.client.status = StatusFlags::AUTOCOMMIT;
            bed.pin(&[PinReason::TemporaryTable]);
            assert!(!bed.finds_copying());
            let (mut other, copying) = self::bed();
            assert!(other.finds_copying());
            assert_eq!((copying.run.sessions.load(Ordering::Relaxed), copying.run.given_up(GaveUp::PinnedState)), (1, 0));
            // Another user takes no part, and the same one begins anew.
            for (name, is_meant) in [("bert", false), ("anna", true)] {
                let mut user = (*other.at.user).clone();
                user.name = name.into();
                other.at.user = user.into();
                other.forget_rehearsal();
                assert_eq!(other.finds_copying(), is_meant, "{name}");
            }
            // The end of the rehearsal ends all of it.
            other.worker.shared.rehearsals.stop("new", 5).unwrap();
            assert!(!other.finds_copying());
            drop(Rc::clone(&other.worker));
        })
        .await;
}

#[test]
fn values_of_the_original_come_in_one_set() {
    let all = PinnedValues { time_us: Some(1_700_000_000_000_042), insert_id: Some(7), last_insert_id: Some(3) };
    assert_eq!(all.text().as_deref(), Some("SET timestamp=1700000000.000042, insert_id=7, last_insert_id=3"));
    assert_eq!(PinnedValues { insert_id: Some(7), ..PinnedValues::default() }.text().as_deref(), Some("SET insert_id=7"));
    assert_eq!(PinnedValues::default().text(), None);
}
