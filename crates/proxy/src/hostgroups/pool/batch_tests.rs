#![allow(clippy::unwrap_used)]

use super::super::{Acquire, Batches, Got, Rider, Wish};
use super::*;
use crate::bed;
use crate::clients::session_handle::SessionHandle;
use crate::servers::server::PlacedBy;
use crate::servers::terms::Terms;
use crate::session::answers::{error, numbered, packet_of, result_of};
use crate::statements::execution::Execution;
use crate::statements::habits::{Habit, Habits, QuickLimits};
use meter::digest::Digest;
use meter::prepared::{PreparedList, Side};
use model::fleet::Placement;
use model::snapshot::{ServerStatus, Snapshot};
use model::{Config, HostgroupId};
use session_state::class::{Class, LaneKey};
use session_state::state::State;
use session_state::statement_key::{Meaning, StatementKey};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::LocalSet;
use wire::charset::Flavor;
use wire::flags::Capabilities;

/// A lane whose only connection a test has, and the server's end of that.
struct Queue {
    worker: Rc<Worker>,
    pool: Rc<HostgroupPool>,
    lane: Rc<Lane>,
    backend: Option<Backend>,
    server: UnixStream,
    /// What is known of the statement that all send.
    habit: Rc<Habit>,
    turns: u64,
}

/// What one got that waited.
#[derive(Debug, PartialEq)]
enum Had {
    Row(String),
    Alone,
    Changed,
    Lost,
    Backend,
}

impl Queue {
    fn new(variables: &str) -> Self {
        let text = format!(
            "mysql_servers = ( {{ hostgroup=0, address=\"127.0.0.1\", port=1, max_connections=1 }} )\n\
             mysql_users = ( {{ username=\"u\" }} )\nmysql_variables = {{ {variables} }}"
        );
        let (config, _): (Config, _) = model::parse(&text, "test.cnf").unwrap();
        let snapshot = Arc::new(Snapshot::compile(&config).unwrap());
        let worker = bed::worker(Arc::clone(&snapshot));
        let pool = worker.pool(HostgroupId(0));
        let user = Arc::clone(&snapshot.users["u"]);
        let lane = pool.lane(&worker, &LaneKey { hostgroup: HostgroupId(0), user, class: Class::of(Capabilities::default()) });
        let (backend, far) = bed::backend(&worker, &lane, Flavor::MySql, "8.4.0");
        far.set_nonblocking(true).unwrap();
        let habit = Rc::new(Habit::default());
        (0..100).for_each(|_| Habits::default().ran_alone(&habit, 1, QuickLimits { quick_us: 1000, late_us: 10_000 }));
        habit.proved(true, worker.shared.ddl_epoch.load(Ordering::Acquire), u64::MAX);
        Self { worker, pool, lane, backend: Some(backend), server: UnixStream::from_std(far).unwrap(), habit, turns: 1 }
    }

    fn wait(&mut self, rider: Option<Rider>) -> Acquire {
        self.turns += 1;
        let wish = Wish { rider: rider.map(Box::new), ..Wish::default() };
        self.pool.enqueue(&self.worker, &self.lane, wish, self.turns, u64::MAX)
    }

    /// One who waits with this text.
    fn rides(&mut self, text: &str) -> Acquire {
        self.rides_in(text, State::default())
    }

    fn rides_in(&mut self, text: &str, state: State) -> Acquire {
        let rider = self.rider(text, state);
        self.wait(Some(rider))
    }

    fn rider(&self, text: &str, state: State) -> Rider {
        let handle = Rc::new(SessionHandle::new(self.turns, 0));
        Rider { packet: query(text), execution: None, state, habit: Rc::clone(&self.habit), handle, gathers: false }
    }

    /// One who leaves an idle connection to those of the same turn.
    fn gathers(&mut self, text: &str) -> Acquire {
        let rider = Rider { gathers: true, ..self.rider(text, State::default()) };
        self.wait(Some(rider))
    }

    /// A session that waits with an execution of this statement for this number. Its client sent the type with an earlier execution.
    fn executes(&mut self, key: &Arc<StatementKey>, number: u8) -> Acquire {
        let handle = Rc::new(SessionHandle::new(self.turns, 0));
        let execution = Execution { key: Arc::clone(key), params: 1, types: TINY.to_vec(), caps: Capabilities::PROTOCOL_41 };
        let (packet, habit) = (execute(1, false, number), Rc::clone(&self.habit));
        self.wait(Some(Rider { packet, execution: Some(execution), state: State::default(), habit, handle, gathers: false }))
    }

    /// The connection has prepared it under this number.
    fn prepares(&mut self, key: &Arc<StatementKey>, id: u32) {
        let digest = || Arc::new(Digest { hash: 0, text: Box::default(), len: 0 });
        let holder = PreparedList::default().list("u", key, digest, (1, 1)).hold(Side::Server);
        self.backend.as_mut().unwrap().core.statements.insert(Arc::clone(key), id, holder);
    }

    fn all_ride(&mut self, texts: &[&str]) -> Vec<Acquire> {
        texts.iter().map(|text| self.rides(text)).collect()
    }

    /// A batch of these that has not begun, and the sessions that wait for its replies.
    fn batch(&mut self, texts: &[&str]) -> (Batch, Vec<Acquire>) {
        let waiting = self.all_ride(texts);
        let riders: Vec<_> = waiting.iter().map(|acquire| Rc::clone(&acquire.waiter)).collect();
        for waiter in &riders {
            self.pool.waiters.borrow_mut().remove(&waiter.kind(), waiter.ticket);
            *waiter.outcome.borrow_mut() = Outcome::Riding;
        }
        (Batch::new(&self.worker, &self.pool, &self.lane, self.backend.take().unwrap(), riders), waiting)
    }

    /// Its server lost its role, and the time to finish there is over.
    fn is_demoted(&self) {
        let servers = self.pool.servers();
        let placement = Placement { status: ServerStatus::Shunned, ..Placement::clone(&servers[0].placement()) };
        let terms = Terms { grace_ms: 0, ..Terms::default() };
        servers[0].place(&placement, &terms, PlacedBy::Observation, self.worker.shared.clock.now_ms());
    }

    /// The connection is given back.
    fn comes_free(&mut self) {
        let backend = self.backend.take().unwrap();
        self.pool.release_to(&self.worker, &self.lane, backend);
    }

    /// The server gets exactly these.
    async fn hears(&mut self, texts: &[&str]) {
        let packets: Vec<Vec<u8>> = texts.iter().map(|text| query(text)).collect();
        self.hears_packets(&packets).await;
    }

    async fn hears_packets(&mut self, packets: &[Vec<u8>]) {
        let expected = packets.concat();
        let mut heard = vec![0; expected.len()];
        self.server.read_exact(&mut heard).await.unwrap();
        assert_eq!(heard, expected);
        assert!(self.server.try_read(&mut [0]).is_err(), "nothing more");
    }

    async fn says(&mut self, bytes: &[u8]) {
        self.server.write_all(bytes).await.unwrap();
    }

    fn batches(&self) -> Batches {
        self.pool.batches(self.worker.shared.clock.now_ms())
    }
}

fn query(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    crate::backends::backend::put_command(&mut out, wire::Command::Query, text.as_bytes());
    out
}

/// A TINYINT, as a parameter's type.
const TINY: [u8; 2] = [1, 0];

/// A COM_STMT_EXECUTE with one parameter, which says its type or does not.
fn execute(id: u8, has_type: bool, number: u8) -> Vec<u8> {
    let head = [id, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    let types: &[u8] = if has_type { &[1, TINY[0], TINY[1]] } else { &[0] };
    let mut out = Vec::new();
    crate::backends::backend::put_command(&mut out, wire::Command::StmtExecute, &[&head[..], types, &[number]].concat());
    out
}

fn prepared(text: &str) -> Arc<StatementKey> {
    let meaning = Meaning { schema: None, mode: b""[..].into(), user_variables: None, text: text.as_bytes().into(), types: None };
    Arc::new(meaning.into())
}

fn row(text: &str) -> Vec<u8> {
    result_of(&[&[text]])
}

/// One row, after which the server says that the session's state changed.
fn row_that_changes() -> Vec<u8> {
    let mut reply = row("x");
    let status = StatusFlags::AUTOCOMMIT | StatusFlags::SESSION_STATE_CHANGED;
    let at = reply.len() - 2;
    reply[at..].copy_from_slice(&status.bits().to_le_bytes());
    reply
}

async fn had(acquire: &mut Acquire) -> Had {
    match poll_fn(|cx| acquire.poll_any(cx)).await.unwrap() {
        Got::Backend(_) => Had::Backend,
        Got::Ridden(Ridden::Alone) => Had::Alone,
        Got::Ridden(Ridden::Changed) => Had::Changed,
        Got::Ridden(Ridden::Lost(_)) => Had::Lost,
        Got::Ridden(Ridden::Answered(answer)) => {
            let known = ["a", "b", "c", "d", "e"].into_iter().find(|text| row(text) == answer.bytes);
            Had::Row(known.map_or_else(|| format!("{:?}", answer.bytes), str::to_owned))
        }
    }
}

async fn all_had(acquires: &mut [Acquire]) -> Vec<Had> {
    let mut all = Vec::new();
    for acquire in acquires {
        all.push(had(acquire).await);
    }
    all
}

fn rows(texts: &[&str]) -> Vec<Had> {
    texts.iter().map(|text| Had::Row((*text).to_owned())).collect()
}

async fn run(test: impl Future<Output = ()>) {
    LocalSet::new().run_until(test).await;
}

const DEPTH: &str = "pipeline_depth=4, pipeline_late_ms=20";

#[tokio::test]
async fn each_gets_its_own_reply_however_they_arrive() {
    run(async {
        let mut queue = Queue::new(DEPTH);
        let mut waiting = queue.all_ride(&["a", "b", "c", "d", "e", "a"]);
        queue.comes_free();
        queue.hears(&["a", "b", "c"]).await;
        let replies = [row("a"), row("b"), row("c")].concat();
        let (first, rest) = replies.split_at(row("a").len() + 7);
        queue.says(first).await;
        assert_eq!(had(&mut waiting[0]).await, Had::Row("a".into()));
        queue.says(rest).await;
        assert_eq!(all_had(&mut waiting[1..3]).await, rows(&["b", "c"]));
        // The connection serves half of those that are left.
        queue.hears(&["d", "e"]).await;
        queue.says(&[row("d"), row("e")].concat()).await;
        assert_eq!(all_had(&mut waiting[3..5]).await, rows(&["d", "e"]));
        assert_eq!(had(&mut waiting[5]).await, Had::Backend, "one alone has the connection");
        assert_eq!(queue.batches(), Batches { depth: 4, sent: 5, again: 0, dropped: 0 });
    })
    .await;
}

/// An idle connection is left to all who come in one turn of the loop, once somebody waited.
#[tokio::test]
async fn who_comes_in_one_turn_of_the_loop_shares_an_idle_connection() {
    run(async {
        let mut queue = Queue::new(DEPTH);
        queue.comes_free();
        let (soon_us, later_us) = (1_000_000, 2_000_000);
        assert!(!queue.lane.gathers(soon_us), "nobody waited");
        queue.lane.turned(soon_us);
        assert!(queue.lane.gathers(soon_us) && !queue.lane.gathers(later_us), "not for ever");
        let mut waiting: Vec<_> = ["a", "b", "c"].into_iter().map(|text| queue.gathers(text)).collect();
        drop(waiting.remove(1));
        queue.hears(&["a", "c"]).await;
        queue.says(&[row("a"), row("c")].concat()).await;
        assert_eq!(all_had(&mut waiting).await, rows(&["a", "c"]));
        let mut alone = queue.gathers("d");
        assert_eq!(had(&mut alone).await, Had::Backend, "one alone has the connection");
        assert_eq!(queue.worker.counters.waits.get(), 0, "none of them waited for a connection");
    })
    .await;
}

#[tokio::test]
async fn executions_ride_under_the_servers_own_numbers() {
    run(async {
        let (mut queue, one, other) = (Queue::new(DEPTH), prepared("SELECT ?"), prepared("SELECT 1 + ?"));
        queue.prepares(&one, 71);
        queue.prepares(&other, 72);
        let mut waiting = [queue.executes(&one, 5), queue.rides("b"), queue.executes(&other, 6), queue.executes(&one, 7)];
        let _more = queue.all_ride(&["d", "d", "d", "d"]);
        queue.comes_free();
        let packets = [execute(71, true, 5), query("b"), execute(72, true, 6), execute(71, false, 7)];
        queue.hears_packets(&packets).await;
        queue.says(&[row("a"), row("b"), row("c"), row("d")].concat()).await;
        assert_eq!(all_had(&mut waiting).await, rows(&["a", "b", "c", "d"]));
    })
    .await;
}

#[tokio::test]
async fn who_executes_what_the_connection_lacks_has_it_alone() {
    run(async {
        let (mut queue, one, other) = (Queue::new(DEPTH), prepared("SELECT ?"), prepared("SELECT 1 + ?"));
        queue.prepares(&one, 71);
        let mut waiting = [queue.executes(&one, 5), queue.executes(&one, 6), queue.executes(&other, 7), queue.executes(&one, 8)];
        let _more = queue.all_ride(&["d", "d", "d", "d"]);
        queue.comes_free();
        queue.hears_packets(&[execute(71, true, 5), execute(71, false, 6)]).await;
        queue.says(&[row("a"), row("b")].concat()).await;
        assert_eq!(all_had(&mut waiting[..2]).await, rows(&["a", "b"]));
        assert_eq!(had(&mut waiting[2]).await, Had::Backend, "it prepares there, by the rules for one");
    })
    .await;
}

#[tokio::test]
async fn a_statement_that_the_server_does_not_know_is_prepared_anew() {
    run(async {
        for (code, is_known) in [(1243, false), (1615, true)] {
            let (mut queue, one) = (Queue::new(DEPTH), prepared("SELECT ?"));
            queue.prepares(&one, 71);
            let mut waiting = [queue.executes(&one, 5), queue.rides("b"), queue.executes(&one, 6)];
            let mut next = queue.all_ride(&["d"]);
            queue.comes_free();
            queue.hears_packets(&[execute(71, true, 5), query("b")]).await;
            queue.says(&[packet_of(&error(code)), row("b")].concat()).await;
            assert_eq!(all_had(&mut waiting[..2]).await, [Had::Alone, Had::Row("b".into())], "{code}");
            let mut held = match poll_fn(|cx| waiting[2].poll_any(cx)).await.unwrap() {
                Got::Backend(backend) => backend,
                Got::Ridden(_) => panic!("the statement rests"),
            };
            assert_eq!(held.core.statements.find(&one).is_some(), is_known, "{code}");
            assert!(poll_fn(|cx| Poll::Ready(next[0].poll_any(cx).is_pending())).await);
        }
    })
    .await;
}

#[tokio::test]
async fn nobody_is_overtaken_and_nobody_rides_in_another_state() {
    run(async {
        for others in [false, true] {
            let mut queue = Queue::new(DEPTH);
            let state = State { schema: others.then(|| b"shop"[..].into()), ..State::default() };
            let mut first = if others { queue.rides_in("a", state) } else { queue.wait(None) };
            let mut behind = queue.all_ride(&["a", "b", "c"]);
            queue.comes_free();
            assert_eq!(had(&mut first).await, Had::Backend, "{others}");
            assert!(poll_fn(|cx| Poll::Ready(behind[0].poll_any(cx).is_pending())).await);
        }
        let mut queue = Queue::new(DEPTH);
        let mut rider = queue.rides("a");
        let _plain = queue.wait(None);
        let _behind = queue.all_ride(&["b", "c", "d"]);
        queue.comes_free();
        assert_eq!(had(&mut rider).await, Had::Backend, "who stands behind a session that wants a connection waits");
    })
    .await;
}

#[tokio::test]
async fn statements_go_one_by_one_unless_it_is_set_and_proved() {
    run(async {
        for (variables, is_proved) in [("pipeline_depth=1", true), (DEPTH, false)] {
            let mut queue = Queue::new(variables);
            if !is_proved {
                queue.habit.proved(false, queue.worker.shared.ddl_epoch.load(Ordering::Acquire), u64::MAX);
            }
            let mut waiting = queue.all_ride(&["a", "b", "c", "d"]);
            queue.comes_free();
            assert_eq!(had(&mut waiting[0]).await, Had::Backend, "{variables}");
            assert_eq!(queue.batches().sent, 0);
        }
    })
    .await;
}

#[tokio::test]
async fn who_left_gets_nothing_and_others_their_own() {
    run(async {
        let mut queue = Queue::new(DEPTH);
        let mut waiting = queue.all_ride(&["a", "b", "c", "d", "e", "e", "e", "e"]);
        queue.comes_free();
        drop(waiting.remove(3));
        queue.hears(&["a", "b", "c"]).await;
        drop(waiting.remove(1));
        queue.says(&[row("a"), row("b"), row("c")].concat()).await;
        assert_eq!(all_had(&mut waiting[..2]).await, rows(&["a", "c"]));
        queue.hears(&["e", "e"]).await;
        assert_eq!(queue.batches(), Batches { depth: 4, sent: 5, again: 0, dropped: 1 });
    })
    .await;
}

#[tokio::test]
async fn what_is_no_plain_reply_is_asked_for_alone() {
    run(async {
        let mut warned = row("b");
        let at = warned.len() - 4;
        warned[at] = 1;
        let long = result_of(&[&[&"x".repeat(1500)]]);
        for odd in [packet_of(&error(1064)), warned, long, packet_of(&ReplyFacts::default()), row_that_changes()] {
            let changes = odd == row_that_changes();
            let mut queue = Queue::new("pipeline_depth=4, pipeline_max_reply_bytes=1024");
            let mut waiting = queue.all_ride(&["a", "b", "c", "d", "d", "d"]);
            queue.comes_free();
            queue.hears(&["a", "b", "c"]).await;
            queue.says(&[row("a"), odd.clone(), row("c")].concat()).await;
            let second = had(&mut waiting[1]).await;
            assert_eq!(had(&mut waiting[0]).await, Had::Row("a".into()));
            if changes {
                // It may have had an effect, so it is not run again; what follows ran in another state.
                assert!(matches!(second, Had::Row(_)));
                assert_eq!(had(&mut waiting[2]).await, Had::Alone);
            } else {
                assert_eq!((second, had(&mut waiting[2]).await), (Had::Alone, Had::Row("c".into())));
            }
            assert!(!queue.habit.is_quick(queue.worker.shared.clock.now_ms()), "it runs alone for a while");
        }
    })
    .await;
}

#[tokio::test]
async fn a_statement_that_changed_its_session_never_runs_again() {
    run(async {
        let mut queue = Queue::new(DEPTH);
        let mut waiting = queue.all_ride(&["a", "b", "c", "d", "d", "d"]);
        queue.comes_free();
        queue.hears(&["a", "b", "c"]).await;
        let mut reply = row_that_changes();
        let warnings = reply.len() - 4;
        reply[warnings] = 1;
        queue.says(&[row("a"), reply].concat()).await;
        assert_eq!(all_had(&mut waiting[..3]).await, [Had::Row("a".into()), Had::Changed, Had::Alone]);
    })
    .await;
}

#[tokio::test]
async fn for_the_end_of_a_long_reply_nobody_waits() {
    run(async {
        let long = result_of(&[&[&"x".repeat(3_000)]]);
        let mut queue = Queue::new("pipeline_depth=4, pipeline_max_reply_bytes=1024, pipeline_late_ms=5000");
        let mut waiting = queue.all_ride(&["a", "b", "c", "d", "d", "d"]);
        queue.comes_free();
        queue.hears(&["a", "b", "c"]).await;
        queue.says(&long[..2_000]).await;
        assert_eq!(all_had(&mut waiting[..3]).await, [Had::Alone, Had::Alone, Had::Alone]);
        assert_eq!(queue.batches().again, 3);
        queue.says(&[&long[2_000..], &row("b"), &row("c")].concat()).await;
        assert_eq!(had(&mut waiting[3]).await, Had::Backend, "the connection, which is as good as before");
    })
    .await;
}

#[tokio::test]
async fn behind_a_late_one_nobody_waits() {
    run(async {
        let mut queue = Queue::new(DEPTH);
        let mut waiting = queue.all_ride(&["a", "b", "c", "d", "d", "d"]);
        queue.comes_free();
        queue.hears(&["a", "b", "c"]).await;
        let began = queue.worker.shared.clock.now_us();
        assert_eq!(all_had(&mut waiting[1..3]).await, [Had::Alone, Had::Alone]);
        let waited_us = queue.worker.shared.clock.now_us() - began;
        assert!((15_000..200_000).contains(&waited_us), "{waited_us} us");
        queue.says(&[row("a"), row("b"), row("c")].concat()).await;
        assert_eq!(had(&mut waiting[0]).await, Had::Row("a".into()), "that one is waited for");
        assert_eq!(had(&mut waiting[3]).await, Had::Backend, "the next one has the connection, and no reply of others");
        assert_eq!(queue.batches(), Batches { depth: 4, sent: 3, again: 2, dropped: 2 });
    })
    .await;
}

#[tokio::test]
async fn what_nobody_waits_for_is_ended_when_it_is_late() {
    run(async {
        let mut queue = Queue::new(DEPTH);
        let waiting = queue.all_ride(&["a", "b"]);
        let more = queue.all_ride(&["c", "d"]);
        queue.comes_free();
        queue.hears(&["a", "b"]).await;
        drop((waiting, more));
        assert_eq!(queue.server.read(&mut [0]).await.unwrap(), 0, "the connection is closed");
    })
    .await;
}

#[tokio::test]
async fn on_a_demoted_server_a_late_one_is_given_up_that_does_not_run() {
    run(async {
        let mut queue = Queue::new("pipeline_depth=8, pipeline_late_ms=5");
        let (mut batch, mut waiting) = queue.batch(&["a", "b"]);
        batch.watch = Some(Watch::over());
        tokio::task::spawn_local(batch.run());
        queue.hears(&["a", "b"]).await;
        assert_eq!(had(&mut waiting[1]).await, Had::Alone);
        assert!(poll_fn(|cx| Poll::Ready(waiting[0].poll_any(cx).is_pending())).await, "its server is used");
        queue.is_demoted();
        assert_eq!(had(&mut waiting[0]).await, Had::Lost);
    })
    .await;
}

#[tokio::test]
async fn with_the_connection_all_are_lost_that_were_under_way() {
    run(async {
        for says in [Vec::new(), row("a"), numbered(&[b"\xfbfile".to_vec()])] {
            let mut queue = Queue::new(DEPTH);
            let mut waiting = queue.all_ride(&["a", "b", "c", "d", "d", "d"]);
            queue.comes_free();
            queue.hears(&["a", "b", "c"]).await;
            queue.says(&says).await;
            queue.server.shutdown().await.unwrap();
            let first = if says == row("a") { Had::Row("a".into()) } else { Had::Lost };
            assert_eq!(all_had(&mut waiting[..3]).await, [first, Had::Lost, Had::Lost]);
        }
    })
    .await;
}
