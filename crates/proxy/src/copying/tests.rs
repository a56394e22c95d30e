use super::*;
use capture::Locks;
use model::snapshot::Rehearsal;
use rehearsal::ServerName;
use std::future::Future;
use std::task::{Context, Poll, Waker};

fn copying(more: &str) -> Arc<Copying> {
    let text = format!("mysql_rehearsals = ( {{ name=\"a\", mode=\"all\", source_hostgroup=1, shadow_hostgroup=2, percent=100{more} }} )");
    let (config, _) = model::parse(&text, "t.cnf").unwrap();
    let plan: Arc<Rehearsal> = Arc::clone(&model::Snapshot::compile(&config).unwrap().rehearsals[0]);
    Copying::new(Arc::new(Run::new(plan, [ServerName::default(), ServerName::default()], (0, 0), None)))
}

fn job(copying: &Arc<Copying>, bytes: usize) -> Job {
    job_of(Beginning::new(copying, Locks::Takes).end(), Act::Query(vec![b'x'; bytes].into()))
}

fn long_data(bytes: usize) -> Job {
    job_of(None, Act::LongData { id: 1, body: vec![b'x'; bytes] })
}

fn job_of(ticket: Option<OrderTicket>, act: Act) -> Job {
    let command = CopiedCommand {
        ticket,
        act,
        analysis: sql::Analysis::NONE,
        schema: None,
        digest: None,
        original: None,
        pins: PinnedValues::default(),
        ended_us: 5,
    };
    Job::Run(Box::new(command))
}

#[test]
fn the_youngest_are_given_up_whole() {
    let copying = copying(", queue_mb=1");
    let strands = [0; 4].map(|_| copying.strand());
    for strand in &strands {
        copying.admit(strand, job(&copying, 200 << 10));
    }
    assert_eq!(copying.oldest_us(), Some(5));
    // A fifth of a MiB more: the youngest session makes room, for an older one too.
    copying.admit(&strands[0], job(&copying, 300 << 10));
    assert_eq!(strands.each_ref().map(|strand| strand.is_gone()), [false, false, false, true]);
    copying.admit(&strands[3], job(&copying, 1));
    assert_eq!(strands.each_ref().map(|strand| strand.has_waiting()), [true, true, true, false], "nothing more of it");
    // One that fits nowhere costs no other session.
    copying.admit(&strands[0], job(&copying, 2 << 20));
    assert_eq!(strands.each_ref().map(|strand| strand.is_gone()), [true, false, false, true]);
    assert_eq!(copying.run.given_up(GaveUp::QueueFull), 2);
    strands.iter().for_each(|strand| copying.forget(strand));
    assert_eq!((copying.run.queued_bytes(), copying.oldest_us()), (0, None));
}

#[test]
fn what_clients_wait_for_is_in_the_queue() {
    let copying = copying(", queue_mb=1");
    let strands = [0; 2].map(|_| copying.strand());
    assert!(!copying.admit_beyond(&strands[0], job(&copying, 900 << 10), false));
    assert!(!copying.admit_beyond(&strands[1], job(&copying, 400 << 10), true), "its transaction goes on");
    assert!(copying.admit_beyond(&strands[1], job(&copying, 500 << 10), true), "its client waits");
    assert!(strands[1].has_waiting() && copying.run.given_up(GaveUp::QueueFull) == 0);
    // Beyond twice the limit, sessions are given up at once.
    copying.admit_beyond(&strands[0], job(&copying, 900 << 10), false);
    assert!(strands[1].is_gone() && copying.is_full());
    // After the wait the queue is within its limit.
    copying.make_room();
    assert!(strands[0].is_gone() && !copying.is_full());
}

#[test]
fn who_waits_for_a_turn_is_woken_by_what_is_dropped_too() {
    let copying = copying("");
    let [first, mut second] = [(); 2].map(|()| Beginning::new(&copying, Locks::Takes).end().unwrap());
    let mut cx = Context::from_waker(Waker::noop());
    let mut turn = std::pin::pin!(second.turn());
    assert!(turn.as_mut().poll(&mut cx).is_pending());
    drop(first);
    assert_eq!(turn.as_mut().poll(&mut cx), Poll::Ready(()));
    // A statement without an answer keeps nobody waiting.
    drop(Beginning::new(&copying, Locks::Takes));
    let alone = Beginning::new(&copying, Locks::None).end().unwrap();
    assert!(!alone.is_raced());
}

#[test]
fn who_passes_a_statement_is_woken_and_counts_as_raced() {
    let copying = copying("");
    let mut slow = Beginning::new(&copying, Locks::Takes).end().unwrap();
    let [mut next, mut later] = [(); 2].map(|()| Beginning::new(&copying, Locks::Takes).end().unwrap());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(std::pin::pin!(next.turn()).poll(&mut cx).is_pending());
    slow.pass();
    slow.pass();
    assert!(std::pin::pin!(next.turn()).poll(&mut cx).is_ready() && next.is_raced() && slow.is_raced());
    drop((slow, next));
    assert!(std::pin::pin!(later.turn()).poll(&mut cx).is_ready() && !later.is_raced());
    assert!(copying.run.overtaken.load(Ordering::Relaxed) == 1 && copying.run.may_lack_writes() && !copying.run.is_incomplete());
}

/// An INSERT waits on the shadow for a lock of an open transaction. Its session has gone on, and the transaction's next statement began
/// behind that at the original.
#[test]
fn the_transaction_that_holds_the_lock_goes_on() {
    let copying = copying("");
    let mut tickets = [(); 3].map(|()| Beginning::new(&copying, Locks::Takes).end().unwrap());
    let [insert, _behind_it, holder] = &mut tickets;
    let mut cx = Context::from_waker(Waker::noop());
    insert.pass();
    assert!(std::pin::pin!(holder.turn()).poll(&mut cx).is_pending(), "it waits for what the session did next");
    {
        let mut goes_on = std::pin::pin!(copying.is_stuck());
        assert!(goes_on.as_mut().poll(&mut cx).is_pending());
        insert.stick();
        insert.stick();
        assert!(goes_on.poll(&mut cx).is_ready());
    }
    holder.overtake();
    assert!(holder.is_raced() && copying.run.overtaken.load(Ordering::Relaxed) == 1);
    drop(tickets);
    assert!(std::pin::pin!(copying.is_stuck()).poll(&mut cx).is_pending(), "order again");
}

#[test]
fn nobody_passes_a_read() {
    let copying = copying("");
    let mut read = Beginning::new(&copying, Locks::None).end().unwrap();
    let mut next = Beginning::new(&copying, Locks::Takes).end().unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    read.pass();
    read.stick();
    assert!(std::pin::pin!(copying.is_stuck()).poll(&mut cx).is_pending());
    assert!(std::pin::pin!(next.turn()).poll(&mut cx).is_pending() && !read.is_raced() && !copying.run.may_lack_writes());
}

#[test]
fn the_end_of_a_rehearsal_drops_what_waits() {
    let copying = copying("");
    let strand = copying.strand();
    copying.admit(&strand, job(&copying, 10));
    copying.close();
    assert!(strand.is_gone() && !strand.has_waiting());
    assert_eq!((copying.run.queued_bytes(), copying.run.given_up(GaveUp::QueueFull)), (0, 0));
}

#[test]
fn the_youngest_session_is_found_without_a_look_at_the_others() {
    let looks = |idle: usize| {
        let copying = copying(", queue_mb=1");
        let busy = [0; 8].map(|_| copying.strand());
        let _idle: Vec<_> = (0..idle).map(|_| copying.strand()).collect();
        for strand in &busy {
            copying.admit(strand, job(&copying, 100 << 10));
        }
        lock(&copying.line).looks = 0;
        copying.admit(&busy[0], job(&copying, 700 << 10));
        assert_eq!(copying.run.given_up(GaveUp::QueueFull), 5);
        lock(&copying.line).looks
    };
    assert_eq!((looks(0), looks(1_000)), (5, 5));
}

#[test]
fn long_data_that_was_taken_is_in_the_queue_until_it_is_used() {
    let copying = copying(", queue_mb=1");
    let [old, young] = [0; 2].map(|_| copying.strand());
    copying.admit(&young, job(&copying, 700 << 10));
    let (_, bytes) = at_once(young.next()).unwrap();
    young.hold(bytes);
    assert!(!young.has_waiting() && copying.run.queued_bytes() == bytes);
    // It counts as something that waits.
    copying.admit(&old, job(&copying, 700 << 10));
    assert!(young.is_gone() && !old.is_gone());
    assert_eq!(young.let_go(bytes), 0, "it was given back already");
    let (_, bytes) = at_once(old.next()).unwrap();
    old.hold(bytes);
    copying.give_room(old.let_go(bytes));
    assert_eq!((copying.run.queued_bytes(), lock(&copying.line).youngest()), (0, None));
}

#[test]
fn long_data_beyond_the_queue_costs_its_own_session_only() {
    let copying = copying(", queue_mb=1");
    let [old, young] = [0; 2].map(|_| copying.strand());
    copying.admit_beyond(&old, long_data(600 << 10), false);
    let (_, bytes) = at_once(old.next()).unwrap();
    old.hold(bytes);
    copying.admit_beyond(&old, long_data(300 << 10), false);
    copying.admit_beyond(&young, job(&copying, 400 << 10), false);
    assert!(!copying.admit_beyond(&old, long_data(10), false) && copying.is_full(), "its client does not wait for its own execution");
    copying.admit_beyond(&old, long_data(200 << 10), false);
    assert!(old.is_gone() && !young.is_gone() && !copying.is_full());
    assert_eq!((old.long_data_bytes(), copying.run.given_up(GaveUp::QueueFull)), (0, 1));
    // What was given up holds nothing back.
    drop(at_once(young.next()));
    copying.give_room(401 << 10);
    assert_eq!(copying.run.queued_bytes(), 0);
}

/// What a future has at once.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("it is there"),
    }
}
