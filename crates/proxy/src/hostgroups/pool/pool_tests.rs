#![allow(clippy::unwrap_used)]

use super::*;
use crate::bed;
use crate::servers::server::{ConnectPermit, PlacedBy};
use crate::servers::terms::Terms;
use crate::workers::in_force::InForce;
use crate::workers::shared::Shared;
use model::fleet::{Measured, Placement};
use model::snapshot::Server;
use model::{Config, HostgroupId};
use session_state::class::Class;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tokio::task::LocalSet;
use wire::charset::Flavor;
use wire::flags::Capabilities;

/// The pools of workers that nobody runs, for a hostgroup with one server, at which nobody listens.
struct Bed {
    workers: Vec<Rc<Worker>>,
    /// The servers' ends of connections.
    ends: Vec<UnixStream>,
}

impl Bed {
    fn new(workers: usize, variables: &str) -> Self {
        let text = format!(
            "mysql_servers = ( {{ hostgroup=0, address=\"127.0.0.1\", port=1, max_connections=4 }} )\n\
             mysql_users = ( {{ username=\"u\" }} )\nmysql_variables = {{ {variables} }}"
        );
        let (config, _): (Config, _) = model::parse(&text, "test.cnf").unwrap();
        let in_force = Arc::new(InForce::compile(Arc::new(Snapshot::compile(&config).unwrap()), None).unwrap());
        let shared = Arc::new(Shared::new(in_force, None, workers, None));
        Self { workers: (0..workers).map(|index| Worker::new(index, Arc::clone(&shared))).collect(), ends: Vec::new() }
    }

    fn pool(&self, worker: usize) -> Rc<HostgroupPool> {
        self.workers[worker].pool(HostgroupId(0))
    }

    /// The lane of the only user on a worker.
    fn lane(&self, worker: usize) -> Rc<Lane> {
        let user = Arc::clone(&self.workers[worker].snapshot().users["u"]);
        let key = LaneKey { hostgroup: HostgroupId(0), user, class: Class::of(Capabilities::default()) };
        self.pool(worker).lane(&self.workers[worker], &key)
    }

    /// A connection of a worker.
    fn backend(&mut self, worker: usize) -> Backend {
        let (backend, end) = bed::backend(&self.workers[worker], &self.lane(worker), Flavor::MySql, "8.4.0");
        self.ends.push(end);
        backend
    }

    /// So many connections of a worker are idle.
    fn rest(&mut self, worker: usize, count: usize) {
        for _ in 0..count {
            let backend = self.backend(worker);
            self.lane(worker).put(backend);
        }
    }

    fn server(&self) -> Arc<ServerShared> {
        Arc::clone(&self.pool(0).servers()[0])
    }

    /// A LOAD changes `max_connections` of the server.
    fn limit(&self, max_connections: u32) {
        let before = self.server().placement();
        let server = Arc::new(Server { max_connections, ..Server::clone(&before.server) });
        let placement = Placement { server, ..Placement::clone(&before) };
        let now_ms = self.workers[0].shared.clock.now_ms();
        self.server().place(&placement, &Terms::default(), PlacedBy::Configuration, now_ms);
    }
}

impl Bed {
    /// One waits on the first worker for longer than for its own backends.
    fn waits(&self) -> Acquire {
        let now_us = self.workers[0].shared.clock.now_us();
        let acquire = self.pool(0).enqueue(&self.workers[0], &self.lane(0), Wish::default(), now_us, u64::MAX);
        std::thread::sleep(Duration::from_millis(12));
        acquire
    }

    /// Whether the second worker was asked for a backend, and may make room for one.
    async fn asked(&self) -> Option<bool> {
        match tokio::time::timeout(Duration::ZERO, self.workers[1].mailbox().receive()).await {
            Ok(Mail::Wanted { makes_room, from: 0, .. }) => Some(makes_room),
            Ok(_) => panic!("another mail"),
            Err(_) => None,
        }
    }
}

async fn run(test: impl Future<Output = ()>) {
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn a_lower_limit_closes_as_many_as_are_too_many() {
    run(async {
        let mut bed = Bed::new(1, "free_connections_pct=100");
        bed.rest(0, 4);
        bed.limit(3);
        bed.pool(0).arranged(&bed.workers[0]);
        assert_eq!((bed.lane(0).idle(0), bed.server().connections()), (3, 3));
        bed.limit(2);
        assert!(bed.pool(0).maintain(&bed.workers[0]).is_empty());
        assert_eq!((bed.lane(0).idle(0), bed.server().connections()), (2, 2));
    })
    .await;
}

#[tokio::test]
async fn a_user_that_is_removed_keeps_its_connections_for_its_sessions_only() {
    run(async {
        for (sessions, left) in [(0, (0, 0, 0)), (1, (2, 1, 2))] {
            let mut bed = Bed::new(1, "");
            bed.rest(0, 2);
            let (worker, pool, server) = (Rc::clone(&bed.workers[0]), bed.pool(0), bed.server());
            let quota = Arc::downgrade(&bed.lane(0).quota);
            worker.shared.user("u").connections.store(sessions, Ordering::Release);
            let without_users = bed::snapshot(&[(0, "127.0.0.1")], "");
            worker.shared.in_force.store(Arc::new(InForce::compile(without_users, None).unwrap()));
            worker.configure();
            let kept = || (pool.idle(0), pool.lanes.borrow().len(), server.connections());
            assert_eq!((kept(), quota.upgrade().is_some()), (left, sessions > 0), "{sessions} sessions");
            worker.shared.user("u").disconnected();
            assert!(pool.maintain(&worker).is_empty());
            assert_eq!((kept(), quota.upgrade().is_some()), ((0, 0, 0), false), "the last session has left");
        }
    })
    .await;
}

#[tokio::test]
async fn a_connection_with_old_rights_changes_no_worker() {
    run(async {
        let mut bed = Bed::new(2, "");
        bed.rest(1, 2);
        bed.workers[1].rights_changed();
        let mut new = bed.backend(1);
        new.core.opened_ms = u64::MAX;
        bed.lane(1).put(new);
        bed.pool(1).wanted(&bed.workers[1], &bed.lane(0).key, Needs::default(), true, 0);
        assert_eq!(bed.lane(1).idle(0), 3, "nobody waits");
        bed.lane(0).line.set_oldest(0, 1);
        bed.pool(1).wanted(&bed.workers[1], &bed.lane(0).key, Needs::default(), true, 0);
        assert_eq!((bed.lane(1).idle(0), bed.server().connections()), (0, 1), "those with old rights are closed");
        let Mail::Backend(sent) = bed.workers[0].mailbox().receive().await else { panic!("no connection") };
        bed.pool(0).received(&bed.workers[0], sent.attach().unwrap());
        assert_eq!(bed.lane(0).idle(0), 1);
        let old = bed.backend(0);
        bed.pool(0).received(&bed.workers[0], old);
        assert_eq!((bed.lane(0).idle(0), bed.server().connections()), (1, 1), "rights changed while it was on its way");
    })
    .await;
}

#[tokio::test]
async fn who_cannot_connect_now_asks_other_workers_for_what_they_have() {
    run(async {
        type Case = (&'static str, fn(&Bed) -> Option<ConnectPermit>);
        let cases: [Case; 3] = [
            ("connects are throttled", |bed| {
                assert!(bed.pool(0).shared.take_connect_rate(bed.workers[0].shared.clock.now_us()));
                None
            }),
            ("as many connects as may be are in progress", |bed| bed.server().begin_connect(1)),
            ("the connect for it takes long", |bed| {
                bed.pool(0).connecting.set(1);
                None
            }),
        ];
        for (why, begin) in cases {
            let variables = "throttle_connections_per_sec_to_hostgroup=1, connect_concurrency=1, adaptive_connections=false";
            let bed = Bed::new(2, variables);
            let _permit = begin(&bed);
            let _waiting = bed.waits();
            assert_eq!(bed.asked().await, None, "{why}: it waits for its own first");
            bed.pool(0).tick(&bed.workers[0]);
            assert_eq!(bed.asked().await, Some(false), "{why}");
            assert_eq!(bed.server().connections(), 0, "{why}");
        }
    })
    .await;
}

#[tokio::test]
async fn nothing_is_opened_ahead_of_need_while_others_wait() {
    run(async {
        for waits in [true, false] {
            let variables = "throttle_connections_per_sec_to_hostgroup=1, connection_warming=true, free_connections_pct=100";
            let mut bed = Bed::new(1, variables);
            bed.rest(0, 2);
            let (worker, pool, lane) = (Rc::clone(&bed.workers[0]), bed.pool(0), bed.lane(0));
            let other = LaneKey { class: Class::of(Capabilities::FOUND_ROWS), ..lane.key.clone() };
            let now_us = worker.shared.clock.now_us();
            // Nothing is opened for it here.
            pool.shared.hold(true);
            let _waiting = waits.then(|| pool.enqueue(&worker, &pool.lane(&worker, &other), Wish::default(), now_us, u64::MAX));
            pool.shared.hold(false);
            let taken = pool.try_acquire(&worker, &lane, &State::default(), Needs::default());
            assert!(taken.is_some());
            assert_eq!(pool.shared.take_connect_rate(worker.shared.clock.now_us()), waits, "the connection that is due is left");
        }
    })
    .await;
}

#[tokio::test]
async fn nothing_is_closed_for_who_could_not_connect_all_the_same() {
    run(async {
        let mut bed = Bed::new(2, "");
        bed.rest(1, 4);
        let mut other = bed.lane(0).key.clone();
        other.class = Class::of(Capabilities::FOUND_ROWS);
        for (makes_room, left) in [(false, 4), (true, 3)] {
            bed.pool(1).wanted(&bed.workers[1], &other, Needs::default(), makes_room, 0);
            assert_eq!(bed.lane(1).idle(0), left, "{makes_room}");
        }
    })
    .await;
}

#[tokio::test]
async fn no_connection_of_a_limited_user_is_closed_for_a_read_that_no_server_may_serve() {
    run(async {
        for (lag_ms, left) in [(1_000, 1), (10, 0)] {
            let mut bed = Bed::new(2, "max_backend_connections_per_user=1");
            bed.rest(0, 1);
            bed.rest(1, 1);
            bed.server().measured(Measured { latency_us: 1, lag_ms: Some(lag_ms), is_source: false });
            // Idle ones of another class serve nobody here.
            let mut other = bed.lane(0).key.clone();
            other.class = Class::of(Capabilities::FOUND_ROWS);
            let (worker, pool) = (Rc::clone(&bed.workers[0]), bed.pool(0));
            let lane = pool.lane(&worker, &other);
            let needs = Needs { max_lag_ms: Some(100), ..Needs::default() };
            let wish = Wish { needs, ..Wish::default() };
            let _waiting = pool.enqueue(&worker, &lane, wish, worker.shared.clock.now_us(), u64::MAX);
            pool.tick(&worker);
            assert_eq!(bed.lane(0).idle(0), left, "a lag of {lag_ms} ms");
            bed.pool(1).wanted(&bed.workers[1], &other, needs, true, 0);
            assert_eq!(bed.lane(1).idle(0), left, "a lag of {lag_ms} ms, on another worker");
        }
    })
    .await;
}

#[tokio::test]
async fn who_is_refused_by_every_server_asks_other_workers_for_what_they_have() {
    run(async {
        let bed = Bed::new(2, "");
        let now_ms = bed.workers[0].shared.clock.now_ms();
        bed.lane(0).refused_by(&bed.server(), "denied".into(), 100, now_ms);
        bed.pool(0).look_for_limits();
        let _waiting = bed.waits();
        assert_eq!(bed.asked().await, None, "it waits for its own first");
        bed.pool(0).tick(&bed.workers[0]);
        assert_eq!((bed.asked().await, bed.server().connections()), (Some(false), 0));
    })
    .await;
}
