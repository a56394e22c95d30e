use super::*;
use crate::bed;
use crate::session::bed::{Bed, HOME, OTHER, ok, ok_open, rows, told, worker};
use crate::takeover::hand_over_queue::{ForSuccessor, UNDER_WAY};
use crate::workers::mailbox::KillKind;
use std::task::{Context, Poll, Waker};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::LocalSet;
use wire::charset::Flavor::MySql;
use wire::reframe::ReplyFacts;

/// What another process reads of this session; None where it cannot go.
fn carried(session: &Session) -> Option<(SessionRecord, Vec<DetachedSocket>)> {
    let (record, sockets) = session.record(None)?;
    let bytes = ::handover::encode(&Offered::Session(Box::new(record))).unwrap();
    match ::handover::decode(&bytes).unwrap() {
        Offered::Session(record) => Some((*record, sockets)),
        Offered::Idle(..) => panic!("it is a session"),
    }
}

#[tokio::test]
async fn what_a_session_is_reaches_another_process() {
    let mut bed = Bed::new("").on(MySql);
    bed.ran("SET time_zone = '+02:00'", &told(&[("time_zone", "+02:00")]));
    bed.ran("SET @a = 5", &ok());
    bed.ran("SELECT GET_LOCK('a', 1)", &rows(1));
    bed.ran("CREATE TEMPORARY TABLE t (a INT)", &ok());
    bed.facts.insert_id.set(9);
    bed.facts.set_numbers((-1, 4, 0, 0));
    bed.hand.flag_in = 7;
    bed.facts.note_own_error(9001, *b"HY000", b"late");
    bed.wants.lex.ansi_quotes = true;
    bed.wants.chosen = Chosen::by_login(7);
    bed.handle.set_own_idle_limit(5_000);
    let (record, sockets) = carried(&bed).unwrap();
    assert_eq!((record.id, &*record.user, record.hostgroup), (bed.handle.id, "anna", HOME));
    assert_eq!((&record.state, record.lex, record.family), (&bed.wants.state, bed.wants.lex, bed.wants.family));
    assert_eq!(record.chosen, bed.wants.chosen);
    assert_eq!(record.pins.set(), bed.at.pins.set());
    assert_eq!(record.pins.temporary_tables(), bed.at.pins.temporary_tables());
    let facts = |facts: &SessionFacts| (facts.insert_id, facts.numbers());
    assert_eq!(facts(&record.facts), facts(&bed.facts));
    assert_eq!(record.facts.own_error().map(|error| error.signal()), bed.facts.own_error().map(|error| error.signal()));
    assert_eq!((record.flag_in, record.own_idle_ms, record.has_transcript), (7, 5_000, false));
    assert_eq!(
        (record.client.status, record.client.caps, record.client.scramble),
        (bed.client.status, bed.client.caps, bed.client.scramble)
    );
    assert_eq!((record.backend.is_some(), sockets.len()), (true, 2), "the client's socket, and the backend's");
}

#[tokio::test]
async fn what_a_session_left_elsewhere_goes_with_it() {
    let mut bed = Bed::new("").on(MySql);
    bed.ran("SELECT GET_LOCK('a', 1)", &rows(1));
    bed.door().travel(OTHER).await;
    bed.connect(MySql);
    bed.ran("CREATE TEMPORARY TABLE t (a INT)", &ok());
    let (record, sockets) = carried(&bed).unwrap();
    assert_eq!((record.hostgroup, record.places.len(), sockets.len()), (OTHER, 1, 3));
}

#[tokio::test]
async fn a_session_that_is_not_at_rest_stays() {
    type Change = fn(&mut Bed);
    let cases: [(&str, Change, bool); 8] = [
        ("at rest", |_| {}, true),
        ("in a transaction", |bed| bed.ran_and_noted("BEGIN", &ok_open()), true),
        (
            "with a part of a command",
            |bed| {
                let (input, pool) = (&mut bed.client.input, crate::net::buffer::BufferPool::default());
                input.reserve(8, &pool);
                input.space(&pool)[0] = 1;
                input.advance(1);
            },
            false,
        ),
        ("with a part of an answer", |bed| bed.client.is_half_told = true, false),
        (
            "while it says a transaction again",
            |bed| {
                let replaying = crate::hostgroups::replays::Replaying::begin(&bed.at.pool.shared);
                bed.at.replaying = Some(replaying);
            },
            false,
        ),
        (
            "with a transaction that was lost and can be said again",
            |bed| {
                bed.ran_and_noted("BEGIN", &ok_open());
                bed.ran_and_noted("INSERT INTO t VALUES (1)", &ok_open());
                bed.at.backend = None;
            },
            false,
        ),
        ("while collations stand in for its own", |bed| bed.wants.stand_ins = Some(Box::default()), false),
        ("while its backend owes an answer", |bed| bed.at.backend.as_mut().unwrap().start_exchange().unwrap(), false),
    ];
    for (what, change, expected) in cases {
        let mut bed = Bed::new("mysql_variables = { transaction_replay = true }").on(MySql);
        change(&mut bed);
        assert_eq!(carried(&bed).is_some(), expected, "{what}");
    }
}

/// The strongest signal stays, so one that waits may hide that another process takes over.
#[tokio::test]
async fn a_session_goes_whatever_else_it_is_told_at_that_moment() {
    for hides in [Signal::HandOver, Signal::Park, Signal::GiveBack, Signal::Demoted, Signal::KillQuery, Signal::Cut] {
        let mut bed = Bed::new("").on(MySql);
        let (handle, worker) = (Rc::clone(&bed.handle), Rc::clone(&bed.worker));
        // It waits for its client, and is not parked.
        handle.signal(Signal::KillQuery);
        let mut serve = Box::pin(Session::serve(&mut bed));
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(serve.as_mut().poll(cx).is_pending());
        assert_eq!(handle.pending(), None);
        handle.signal(hides);
        let (successor, mut offers) = HandOverQueue::new();
        worker.shared.set_successor(Some(successor));
        handle.signal(Signal::HandOver);
        assert!(serve.as_mut().poll(cx).is_pending(), "it waits for the answer");
        assert!(offers.try_recv().is_ok(), "{hides:?}");
    }
}

/// The KILL that goes to the other process next: the session, and whether it is of its statement only.
fn killed(queue: &mut UnboundedReceiver<ForSuccessor>) -> Option<(u64, bool)> {
    match queue.try_recv().ok()? {
        ForSuccessor::Kill { session, is_query } => Some((session, is_query)),
        ForSuccessor::Offer(_) => panic!("it is offered"),
    }
}

/// The client that sent the KILL was answered with OK.
#[tokio::test]
async fn a_session_that_is_killed_on_its_way_is_killed_in_the_other_process() {
    for (signal, is_query) in [(Signal::KillConnection, false), (Signal::KillQuery, true)] {
        let mut bed = Bed::new("").on(MySql);
        let (handle, worker) = (Rc::clone(&bed.handle), Rc::clone(&bed.worker));
        let (successor, mut queue) = HandOverQueue::new();
        worker.shared.set_successor(Some(successor));
        let mut serve = Box::pin(Session::serve(&mut bed));
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(serve.as_mut().poll(cx).is_pending());
        let Ok(ForSuccessor::Offer(offer)) = queue.try_recv() else { panic!("it is not offered") };
        handle.signal(signal);
        offer.answer.send(Ok(())).unwrap();
        assert!(matches!(serve.as_mut().poll(cx), Poll::Ready(End::HandedOver)));
        assert_eq!(killed(&mut queue), Some((handle.id, is_query)));
        // The next ones were sent before it was known that the session has gone.
        worker.kill(handle.id, KillKind::Connection);
        assert_eq!(killed(&mut queue), Some((handle.id, false)));
        worker.shared.kill(handle.id, KillKind::Query);
        assert_eq!(killed(&mut queue), Some((handle.id, true)));
        worker.shared.set_successor(None);
        worker.shared.kill(handle.id, KillKind::Connection);
        assert_eq!(killed(&mut queue), None);
    }
}

#[tokio::test]
async fn a_session_that_is_killed_before_it_goes_ends_here() {
    let mut bed = Bed::new("").on(MySql);
    let (handle, worker) = (Rc::clone(&bed.handle), Rc::clone(&bed.worker));
    let (successor, mut queue) = HandOverQueue::new();
    worker.shared.set_successor(Some(Arc::clone(&successor)));
    let mut turns = Vec::new();
    for _ in 0..UNDER_WAY {
        turns.push(successor.turn().await.unwrap());
    }
    tokio::task::yield_now().await;
    let mut serve = Box::pin(Session::serve(&mut bed));
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(serve.as_mut().poll(cx).is_pending(), "it waits for its turn");
    handle.signal(Signal::KillConnection);
    drop(turns);
    assert!(matches!(serve.as_mut().poll(cx), Poll::Ready(End::Killed)));
    assert_eq!(killed(&mut queue), None, "it is not offered");
}

#[tokio::test]
async fn a_session_whose_bytes_pass_unread_is_killed_before_it_goes() {
    let mut bed = Bed::new("").on(MySql);
    let (handle, worker) = (Rc::clone(&bed.handle), Rc::clone(&bed.worker));
    let (successor, mut queue) = HandOverQueue::new();
    let mut pump = Box::pin(Session::pump(&mut bed, Passage::default()));
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(pump.as_mut().poll(cx).is_pending());
    worker.shared.set_successor(Some(successor));
    handle.signal(Signal::KillConnection);
    assert!(matches!(pump.as_mut().poll(cx), Poll::Ready(End::Killed)));
    assert_eq!(killed(&mut queue), None, "it is not offered");
}

const ANNA: &str = "mysql_users = ( { username=\"anna\", password=\"x\", default_hostgroup=1 } )";

#[tokio::test]
async fn a_session_goes_on_in_another_process() {
    let all = async {
        let mut bed = Bed::new("").on(MySql);
        bed.ran_and_noted("BEGIN", &ok_open());
        bed.ran("SELECT GET_LOCK('a', 1)", &ReplyFacts { status: ok_open().status, ..rows(1) });
        bed.handle.set_own_idle_limit(5_000);
        bed.worker.shared.user("anna").learn(|secrets| secrets.clear = Some(b"x".to_vec()));
        let (record, sockets) = carried(&bed).unwrap();
        assert!(record.has_transcript, "what was said is not known there");
        let worker = worker(ANNA);
        record.resume(&worker, sockets).unwrap();
        let entries = worker.entries.borrow();
        let (_, handle) = entries.iter().next().unwrap();
        assert_eq!((entries.len(), handle.id, handle.own_idle_ms()), (1, bed.handle.id, 5_000));
        assert_eq!(handle.all_pins(), bed.at.all_pins());
        assert!(handle.is_idle() && handle.is_in_transaction());
        let held = handle.row.held.get().unwrap();
        assert_eq!((held.server, held.thread_id), ((HOME, 0), 7), "the same connection, by the server's number");
        assert_eq!(handle.user.borrow().as_ref().map(|user| user.name.to_string()).as_deref(), Some("anna"));
        assert_eq!(worker.shared.user_of(handle.id).as_deref(), Some("anna"), "KILL finds it");
        assert_eq!(worker.shared.frontends.load(Ordering::Acquire), 1);
        assert_eq!(worker.shared.user("anna").secrets().clear.as_deref(), Some(&b"x"[..]), "it logs in to servers");
    };
    LocalSet::new().run_until(all).await;
}

/// It may have redefined a routine, and its next command comes before the old process reports that.
#[tokio::test]
async fn what_a_session_defined_is_known_before_it_goes_on() {
    let all = async {
        let bed = Bed::new("").on(MySql);
        bed.worker.rights_changed();
        let (record, sockets) = carried(&bed).unwrap();
        let worker = worker(ANNA);
        let before = worker.shared.ddl_epoch.load(Ordering::Acquire);
        record.resume(&worker, sockets).unwrap();
        assert!(worker.shared.ddl_epoch.load(Ordering::Acquire) > before);
        let rights_changed_ms = |worker: &Worker| worker.shared.rights_changed_ms.load(Ordering::Acquire);
        assert_eq!(rights_changed_ms(&worker), rights_changed_ms(&bed.worker));
    };
    LocalSet::new().run_until(all).await;
}

#[tokio::test]
async fn a_backend_is_given_back_when_it_would_have_been() {
    let all = async {
        let config = format!("mysql_variables = {{ connection_delay_multiplex_ms = 500 }} {ANNA}");
        let bed = Bed::new("").on(MySql);
        let (record, sockets) = carried(&bed).unwrap();
        let worker = worker(&config);
        record.resume(&worker, sockets).unwrap();
        let entries = worker.entries.borrow();
        let held_until_ms = entries.iter().next().unwrap().1.held_until_ms();
        assert!(held_until_ms > worker.clock.now_ms() && held_until_ms <= worker.clock.now_ms() + 500);
    };
    LocalSet::new().run_until(all).await;
}

#[tokio::test]
async fn a_session_is_refused_that_cannot_go_on() {
    let all = async {
        let refusal = |more: &str, lose_socket: bool| {
            let bed = Bed::new("").on(MySql);
            let (record, mut sockets) = carried(&bed).unwrap();
            if lose_socket {
                sockets.pop();
            }
            let worker = worker(more);
            let refused = record.resume(&worker, sockets).unwrap_err();
            assert!(worker.entries.borrow().is_empty() && worker.shared.frontends.load(Ordering::Acquire) == 0, "{refused}");
            refused
        };
        let bert = ANNA.replace("anna", "bert");
        assert_eq!(refusal(&bert, false), "user 'anna' no longer exists");
        assert_eq!(refusal(ANNA, true), "a socket is missing");
        let elsewhere = bed::worker(bed::snapshot(&[(HOME.0, "db3")], ANNA));
        let bed = Bed::new("").on(MySql);
        let (record, sockets) = carried(&bed).unwrap();
        assert_eq!(record.resume(&elsewhere, sockets).unwrap_err(), "127.0.0.1:1 is not a server of hostgroup 1");
        let worker = worker(ANNA);
        let (record, sockets) = carried(&bed).unwrap();
        worker.shared.note_session(bed.handle.id, Some("bert"));
        let refused = record.resume(&worker, sockets).unwrap_err();
        assert_eq!(refused, format!("another session has the id {}", bed.handle.id));
        assert_eq!(worker.shared.user_of(bed.handle.id).as_deref(), Some("bert"), "KILL finds the other one");
    };
    LocalSet::new().run_until(all).await;
}

#[tokio::test]
async fn an_idle_connection_serves_in_another_process() {
    let mut bed = Bed::new("").on(MySql);
    let backend = bed.at.backend.take().unwrap();
    let (record, socket) = backend.record().unwrap();
    let worker = worker(ANNA);
    let offered = Offered::Idle("anna".into(), Box::new(record));
    assert_eq!(offered.place(4), None, "any worker may have it");
    offered.take_in(&worker, vec![socket]).unwrap();
    let found = worker.pool(HOME).take_any_idle().unwrap();
    assert_eq!((found.core.thread_id, *found.core.held.state() == bed.wants.state), (7, true));
}
