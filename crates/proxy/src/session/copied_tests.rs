use super::*;
use crate::session::bed::{Bed, error, ok, packet_of, result_of};
use crate::session::route::packets_of;
use rehearsal::{Run, ServerName};
use session_state::pins::PinReason;
use std::future::Future;
use std::io::Write;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use wire::charset::Flavor;

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
async fn what_commits_an_open_transaction_releases_its_locks() {
    let (mut bed, _) = bed();
    for (text, alone, in_transaction) in [
        ("BEGIN", Locks::None, Locks::Releases),
        ("START TRANSACTION READ ONLY", Locks::None, Locks::Releases),
        ("SET autocommit=1", Locks::None, Locks::Releases),
        ("SET @@session.AUTOCOMMIT = ON", Locks::None, Locks::Releases),
        ("SET sql_mode='ANSI'", Locks::None, Locks::None),
        ("SAVEPOINT a", Locks::None, Locks::None),
    ] {
        let (command, analysis) = (bed.says(text), bed.analysis(text));
        let statement = Statement { command, analysis, form: Form::Text { start: 0 } };
        for (status, expected) in [(StatusFlags::AUTOCOMMIT, alone), (StatusFlags::AUTOCOMMIT | StatusFlags::IN_TRANS, in_transaction)] {
            bed.client.status = status;
            assert_eq!(bed.locks_of(&statement), expected, "{text}");
        }
    }
}

/// How many bytes a client takes that reads nothing.
fn unread_bytes() -> usize {
    let (mut near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    std::iter::from_fn(|| near.write(&[0; 16_384]).ok()).sum()
}

/// Whether a statement that begins now would wait for one that has ended.
fn somebody_is_waited_for(copying: &Arc<Copying>) -> bool {
    let mut probe = Beginning::new(copying, Locks::None).end().unwrap();
    let turn = std::pin::pin!(probe.turn());
    turn.poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

#[tokio::test]
async fn the_shadow_does_not_wait_for_a_client_that_reads_slowly() {
    const TEXT: usize = 50_000;
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async {
            // A client that reads nothing takes about so much. Of a slightly longer answer, the proxy holds the rest, and its end.
            let taken = unread_bytes();
            for more in (0..40).map(|step| step * 4_096) {
                let (bed, copying) = bed();
                let mut bed = bed.on(Flavor::MariaDb);
                let row = "x".repeat(taken - 80_000 + more);
                bed.answers(&[result_of(&[&[&row]])]);
                let text = format!("SELECT a FROM t /* {} */", "y".repeat(TEXT));
                bed.arrives(&packets_of(&[&[Command::Query as u8], text.as_bytes()].concat()));
                let command = bed.next_command().await.unwrap().unwrap();
                let has_ended = async {
                    while copying.run.queued_bytes() < TEXT as u64 && !somebody_is_waited_for(&copying) {
                        tokio::task::yield_now().await;
                    }
                };
                let is_heard = tokio::select! {
                    biased;
                    _ = bed.serve_command(command) => false,
                    done = tokio::time::timeout(Duration::from_secs(20), has_ended) => done.is_ok(),
                };
                if is_heard {
                    assert!(copying.run.queued_bytes() >= TEXT as u64, "others wait for a statement that waits for its client");
                    return;
                }
            }
            unreachable!("the client has taken all");
        })
        .await;
}

/// The texts that wait in the session's strand. Nobody takes them meanwhile.
fn texts_of(strand: &CopyStrand) -> Vec<String> {
    let mut texts = Vec::new();
    loop {
        let next = std::pin::pin!(strand.next()).poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Some((job, _))) = next else { return texts };
        if let Job::Run(command) = job
            && let Act::Query(text) = &command.act
        {
            texts.push(String::from_utf8_lossy(text).into_owned());
        }
    }
}

impl Bed {
    /// The strand of its copy, which begins.
    fn strand(&mut self) -> Arc<CopyStrand> {
        assert!(self.finds_copying());
        Arc::clone(&self.beside.as_ref().unwrap().copied.strand.as_ref().unwrap().0)
    }

    /// A statement in a transaction is answered so. What its session knows then is not yet noted.
    fn is_answered_in_transaction(&mut self, text: &str, reply: &[u8]) -> Statement {
        self.client.status = StatusFlags::AUTOCOMMIT | StatusFlags::IN_TRANS;
        let (command, analysis) = (self.says(text), self.analysis(text));
        let statement = Statement { command, analysis, form: Form::Text { start: 0 } };
        self.copy_begins(command);
        self.listening_begins(&statement);
        let beside = self.beside.as_mut().unwrap();
        beside.reply_begins(Capabilities::PROTOCOL_41);
        assert!(beside.hears(reply));
        answer_ended(self);
        statement
    }
}

#[tokio::test]
async fn what_ended_the_whole_transaction_ends_it_on_the_shadow() {
    const TEXT: &str = "UPDATE t SET a = 1";
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async {
            for (code, is_open, expected) in [
                (1205, false, &["ROLLBACK"][..]),
                (1205, true, &[]),
                (1020, true, &[TEXT]),
                (1020, false, &["ROLLBACK"]),
                (1213, false, &["ROLLBACK"]),
                (1062, true, &[TEXT]),
            ] {
                let (mut bed, _copying) = bed();
                let strand = bed.strand();
                let statement = bed.is_answered_in_transaction(TEXT, &packet_of(&error(code)));
                if !is_open {
                    bed.client.status = StatusFlags::AUTOCOMMIT;
                }
                bed.copy_statement(&statement);
                assert_eq!(texts_of(&strand), expected, "{code} {is_open}");
            }
        })
        .await;
}

#[tokio::test]
async fn nobody_waits_for_what_the_shadow_does_not_run() {
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async {
            for (text, reply, is_waited_for) in [
                ("SELECT GET_LOCK('a', 1)", result_of(&[&["1"]]), false),
                // It may have committed, so the shadow has to.
                ("GRANT ALL ON *.* TO a", packet_of(&ok()), true),
                ("UPDATE t SET a = 1", packet_of(&error(1205)), true),
            ] {
                let (mut bed, copying) = bed();
                assert!(bed.finds_copying());
                bed.is_answered_in_transaction(text, &reply);
                assert_eq!(somebody_is_waited_for(&copying), is_waited_for, "{text}");
            }
        })
        .await;
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
