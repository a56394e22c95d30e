//! Servers that change roles under sessions: which sessions move at once, which may finish, and which answer the client gets.
//!
//! The data plane runs inside this process, before real servers, and the test decides the roles. Each step is observed before the next, so
//! nothing depends on the speed of the machine.

#![allow(clippy::unwrap_used, clippy::expect_used)] // tests may panic

#[path = "fleet/bed.rs"]
mod bed;
#[path = "common/in_process.rs"]
mod in_process;

use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use bed::{Bed, LIMIT, Place, WHO, WRITER, error, get, writer, writer_is};
use lab::fault::Lost;
use lab::{Client, wait};
use model::HostgroupId;
use model::control::DataPlane;
use model::fleet::{Fleet, Measured, SignalKind, UnderWay};
use model::snapshot::ServerStatus;

const APP: &str = "SELECT COUNT(*) FROM information_schema.processlist WHERE user='app'";

fn port(bed: &Bed, server: usize) -> String {
    bed.servers[server].port().to_string()
}

#[test]
fn new_work_follows_the_layout_and_takes_the_sessions_state_along() {
    let bed = Bed::new(|b| b);
    let mut client = bed.connect();
    client.run("SET @who = 'me', sort_buffer_size = 262144").unwrap();
    client.run("SET autocommit = 0").unwrap();
    assert_eq!(get(&mut client, WHO), port(&bed, 0));
    client.run("COMMIT").unwrap();
    let state = "SELECT CONCAT(@@port, ' ', @who, ' ', @@sort_buffer_size, ' ', @@autocommit + 0)";
    for server in [1, 0, 1] {
        bed.arrange(&[writer(server)]);
        assert_eq!(get(&mut client, state), format!("{} me 262144 0", port(&bed, server)));
        client.run("COMMIT").unwrap();
    }
    // An older layout changes nothing.
    let old = bed.layout(&[writer(0)]);
    bed.arrange(&[writer(1)]);
    bed.control.arrange(old);
    assert_eq!(get(&mut client, WHO), port(&bed, 1));
}

#[test]
fn an_open_transaction_may_finish_on_the_old_writer() {
    let bed = Bed::new(|b| b);
    let mut client = bed.connect();
    client.run("BEGIN").unwrap();
    client.run("INSERT INTO t VALUES (1, 'before')").unwrap();
    bed.arrange(&[writer(1), Place { hostgroup: HostgroupId(1), ..writer(0) }]);
    client.run("INSERT INTO t VALUES (2, 'after')").unwrap();
    client.run("COMMIT").unwrap();
    assert_eq!((bed.ask(0, "SELECT COUNT(*) FROM test.t"), bed.ask(1, "SELECT COUNT(*) FROM test.t")), ("2".into(), "0".into()));
    client.run("INSERT INTO t VALUES (3, 'new writer')").unwrap();
    assert_eq!(bed.ask(1, "SELECT note FROM test.t"), "new writer");
    bed.until(0, APP, "0");
}

#[test]
fn after_the_grace_the_transaction_is_rolled_back_and_the_session_lives() {
    let bed = Bed::new(|b| b.variable("demotion_grace_ms", 300));
    let (mut idle, mut busy) = (bed.connect(), bed.connect());
    for (n, client) in [&mut idle, &mut busy].into_iter().enumerate() {
        client.run("BEGIN").unwrap();
        client.run(format!("INSERT INTO t VALUES ({n}, 'lost')")).unwrap();
    }
    busy.send_query("SELECT SLEEP(100)").unwrap();
    bed.until(0, "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP%'", "1");
    bed.arrange(&[writer(1)]);
    // The server is rid of both without a word from the clients: a statement that runs is ended by the server itself.
    let killed = busy.recv_reply(lab::client::Encoding::Text).unwrap();
    assert!(killed.err().is_some_and(|e| e.code == 1317) || killed.scalar().unwrap() == Some("1".to_owned()));
    bed.until(0, APP, "0");
    for (n, client) in [&mut idle, &mut busy].into_iter().enumerate() {
        let (code, text) = error(client, "INSERT INTO t VALUES (9, 'must not run outside of the transaction')");
        assert!(code == 9004 && text.contains("rolled back"), "{code}: {text}");
        client.run(format!("INSERT INTO t VALUES ({n}, 'again')")).unwrap();
    }
    assert_eq!(bed.ask(0, "SELECT COUNT(*) FROM test.t"), "0");
    assert_eq!(bed.ask(1, "SELECT GROUP_CONCAT(n ORDER BY n) FROM test.t"), "0,1");
}

/// A server that answers the monitor, and neither the statement nor a KILL: here it is frozen.
#[test]
fn after_the_grace_no_answer_is_waited_for() {
    let bed = Bed::new(|b| b.variable("demotion_grace_ms", 300));
    let mut client = bed.connect();
    client.run("BEGIN").unwrap();
    client.run("INSERT INTO t VALUES (1, 'lost')").unwrap();
    bed.servers[0].sigstop();
    client.send_query("INSERT INTO t VALUES (2, 'lost')").unwrap();
    bed.arrange(&[writer(1)]);
    let reply = client.recv_reply(lab::client::Encoding::Text);
    bed.servers[0].sigcont();
    let reply = reply.unwrap();
    assert!(reply.err().is_some_and(|e| e.code == lab::SERVER_LOST), "{reply:?}");
    assert_eq!(get(&mut bed.connect(), WHO), port(&bed, 1));
    bed.until(0, APP, "0");
    assert_eq!(bed.ask(0, "SELECT COUNT(*) FROM test.t"), "0");
}

/// A firewall that drops existing connections, and lets new ones pass or not: the monitor's own checks do not show the loss.
#[test]
fn a_statement_that_was_lost_on_the_way_ends_after_the_grace() {
    for (lost, is_cut_for_all) in [(Lost::Command, false), (Lost::Answer, false), (Lost::Command, true)] {
        let bed = Bed::far(|b| b.variable("demotion_grace_ms", 300));
        let network = bed.network.as_ref().unwrap();
        let [mut writes, mut reads, mut works] = [(); 3].map(|()| bed.connect());
        let lose = |client: &mut Client, n: usize, sql: &str| {
            network.trap(sql, lost);
            client.send_query(sql).unwrap();
            wait::until("it to be lost", LIMIT, || (network.sprung() == n).then_some(())).unwrap();
        };
        lose(&mut writes, 1, "INSERT INTO t VALUES (1, 'written')");
        lose(&mut reads, 2, "SELECT @@port, 'lost'");
        if is_cut_for_all {
            network.silence_all(true);
        } else {
            works.send_query("INSERT INTO t VALUES (2, SLEEP(5))").unwrap();
            bed.until(0, "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%SLEEP(%' AND user='app'", "1");
        }
        bed.arrange(&[writer(1)]);
        let text = lab::client::Encoding::Text;
        let reply = writes.recv_reply(text).unwrap();
        assert!(reply.err().is_some_and(|e| e.code == lab::SERVER_LOST && e.message.contains("its reply was lost")), "{reply:?}");
        assert_eq!(get(&mut writes, WHO), port(&bed, 1), "the session lives");
        assert_eq!(reads.recv_reply(text).unwrap().scalar().unwrap(), Some(port(&bed, 1)), "what only reads goes elsewhere");
        if !is_cut_for_all {
            assert!(works.recv_reply(text).unwrap().err().is_none(), "what runs is waited for");
            network.resume();
            bed.until(0, APP, "0");
            assert_eq!(bed.ask(0, "SELECT COUNT(*) FROM test.t WHERE n = 1"), if lost == Lost::Answer { "1" } else { "0" });
        }
    }
}

#[test]
fn state_that_cannot_be_carried_ends_the_session_after_the_grace_only() {
    let bed = Bed::new(|b| b.variable("demotion_grace_ms", 300));
    let mut client = bed.connect();
    client.run("CREATE TEMPORARY TABLE own (n INT)").unwrap();
    bed.arrange(&[writer(1)]);
    assert_eq!(get(&mut client, "SELECT COUNT(*) FROM own"), "0", "within the grace");
    bed.until(0, APP, "0");
    let (code, text) = error(&mut client, "SELECT COUNT(*) FROM own");
    assert!(code == lab::SERVER_LOST && text.contains("temporary_table"), "{code}: {text}");
}

#[test]
fn offline_soft_and_lag_end_nothing() {
    let bed = Bed::new(|b| b.variable("demotion_grace_ms", 0));
    for status in [ServerStatus::OfflineSoft, ServerStatus::ShunnedReplicationLag] {
        bed.arrange(&[writer(0)]);
        let mut client = bed.connect();
        client.run("BEGIN").unwrap();
        assert_eq!(get(&mut client, WHO), port(&bed, 0));
        bed.arrange(&[writer_is(0, status), writer(1)]);
        for _ in 0..3 {
            assert_eq!(get(&mut client, WHO), port(&bed, 0), "{status:?}");
        }
        client.run("COMMIT").unwrap();
        assert_eq!(get(&mut client, WHO), port(&bed, 1), "{status:?}");
    }
    // With no grace at all a shunned server's transactions end at once.
    bed.arrange(&[writer(0)]);
    let mut client = bed.connect();
    client.run("BEGIN").unwrap();
    assert_eq!(get(&mut client, WHO), port(&bed, 0));
    bed.arrange(&[writer_is(0, ServerStatus::Shunned), writer(1)]);
    assert_eq!(error(&mut client, WHO).0, 9004);
    assert_eq!(get(&mut client, WHO), port(&bed, 1));
    // One in which nothing was said yet begins elsewhere.
    client.run("BEGIN").unwrap();
    bed.arrange(&[writer(0)]);
    assert_eq!(get(&mut client, WHO), port(&bed, 0));
}

/// Desync, donor, maintenance, DRAIN SERVER: states of the server itself, not the administrator's status in `mysql_servers`.
#[test]
fn on_a_server_that_drains_what_is_no_transaction_has_a_limit() {
    const OWN: &str = "CREATE TEMPORARY TABLE own (n INT)";
    let bed = Bed::new(|b| b.variable("drain_grace_ms", 300));
    let (mut idle, mut both, mut plain, mut free) = (bed.connect(), bed.connect(), bed.connect(), bed.connect());
    idle.run(OWN).unwrap();
    both.run(OWN).unwrap();
    for (n, client) in [&mut both, &mut plain].into_iter().enumerate() {
        client.run("BEGIN").unwrap();
        client.run(format!("INSERT INTO t VALUES ({n}, 'may finish')")).unwrap();
    }
    assert_eq!(get(&mut free, WHO), port(&bed, 0));
    bed.arrange(&[writer_is(0, ServerStatus::OfflineSoft), writer(1)]);
    assert_eq!(get(&mut idle, "SELECT COUNT(*) FROM own"), "0", "within the grace");
    assert_eq!(get(&mut free, WHO), port(&bed, 1));
    bed.until(0, APP, "2");
    let (code, text) = error(&mut idle, "INSERT INTO t VALUES (9, 'on the old writer')");
    assert!(code == lab::SERVER_LOST && text.contains("temporary_table"), "{code}: {text}");
    thread::sleep(Duration::from_secs(1));
    for (n, client) in [&mut both, &mut plain].into_iter().enumerate() {
        client.run(format!("INSERT INTO t VALUES ({}, 'transactions may')", n + 10)).unwrap();
        client.run("COMMIT").unwrap();
    }
    // Without another word of the one whose temporary table is still there.
    bed.until(0, APP, "0");
    assert_eq!(error(&mut both, "SELECT COUNT(*) FROM own").0, lab::SERVER_LOST);
    assert_eq!(get(&mut plain, WHO), port(&bed, 1));
    assert_eq!(bed.ask(0, "SELECT GROUP_CONCAT(n ORDER BY n) FROM test.t"), "0,1,10,11");
}

#[test]
fn a_severed_server_loses_its_connections_at_once() {
    let bed = Bed::new(|b| b);
    let (mut write, mut read, mut open) = (bed.connect(), bed.connect(), bed.connect());
    open.run("BEGIN").unwrap();
    open.run("INSERT INTO t VALUES (5, 'open')").unwrap();
    write.send_query("INSERT INTO t SELECT 1 + SLEEP(100), 'in flight'").unwrap();
    read.send_query("SELECT @@port + SLEEP(3)").unwrap();
    bed.until(0, "SELECT COUNT(*) FROM information_schema.processlist WHERE user='app' AND info LIKE '%SLEEP%'", "2");
    bed.servers[0].sigstop();
    let began = Instant::now();
    bed.arrange(&[Place { under_way: UnderWay::Severed, ..writer_is(0, ServerStatus::Shunned) }, writer(1)]);
    let told = write.recv_reply(lab::client::Encoding::Text).unwrap();
    let told = told.err().unwrap();
    println!("the write in flight was answered after {:?}: {} {}", began.elapsed(), told.code, told.message);
    assert_eq!(told.code, lab::SERVER_LOST, "what became of it is not known");
    let who = read.recv_reply(lab::client::Encoding::Text).unwrap().scalar().unwrap();
    assert_eq!(who, Some(port(&bed, 1)), "a plain read is done again elsewhere");
    write.run("INSERT INTO t VALUES (2, 'goes on')").unwrap();
    assert_eq!(bed.ask(1, "SELECT GROUP_CONCAT(n) FROM test.t"), "2");
    let (code, text) = error(&mut open, "COMMIT");
    assert!(code == lab::SERVER_LOST && text.contains("transaction"), "{code}: {text}");
    bed.servers[0].sigcont();
}

#[test]
fn without_a_writer_work_waits_in_order_and_begins_when_there_is_one() {
    let bed = Bed::new(|b| b.variable("connect_timeout_server_max", 50_000));
    let mut first = bed.connect();
    first.run("INSERT INTO t VALUES (0, 'warm')").unwrap();
    bed.arrange(&[writer_is(0, ServerStatus::Shunned)]);
    let waiting: Vec<_> = (1..=4)
        .map(|n| {
            let mut client = bed.connect();
            let waiter = thread::spawn(move || {
                client.run(format!("INSERT INTO t VALUES ({n}, 'waited')")).unwrap();
                Instant::now()
            });
            bed.until_waiting(n);
            waiter
        })
        .collect();
    let began = Instant::now();
    bed.arrange(&[writer(1)]);
    let done: Vec<Duration> = waiting.into_iter().map(|w| w.join().unwrap() - began).collect();
    println!("from the layout to the answers: {done:?}");
    assert_eq!(bed.ask(1, "SELECT COUNT(*) FROM test.t"), "4");
    assert!(done.iter().all(|took| *took < Duration::from_secs(5)), "{done:?}");
    assert_eq!(bed.control.load(WRITER).waiting, 0);
}

#[test]
fn a_hold_lets_transactions_end_and_keeps_the_rest_waiting() {
    let bed = Bed::new(|b| b.variable("connect_timeout_server_max", 50_000));
    let (mut open, mut other) = (bed.connect(), bed.connect());
    open.run("BEGIN").unwrap();
    open.run("INSERT INTO t VALUES (1, 'open')").unwrap();
    other.run("SELECT 1").unwrap();
    bed.control.hold(WRITER, true);
    let load = bed.control.load(WRITER);
    assert_eq!((load.in_use, load.in_transaction, load.waiting), (1, 1, 0));
    let waiter = thread::spawn(move || other.run("INSERT INTO t VALUES (2, 'held')").map(|_| other));
    bed.until_waiting(1);
    open.run("COMMIT").unwrap();
    wait::until("the hostgroup to be quiet", LIMIT, || (bed.control.load(WRITER).in_use == 0).then_some(())).unwrap();
    assert_eq!(bed.control.in_use(&bed.addr(0), None), 0);
    assert_eq!(bed.ask(0, "SELECT COUNT(*) FROM test.t"), "1", "what was held has not begun");
    bed.control.hold(WRITER, false);
    waiter.join().unwrap().unwrap();
    assert_eq!(bed.ask(0, "SELECT COUNT(*) FROM test.t"), "2");
}

#[test]
fn the_error_names_the_pause_and_the_reason() {
    let bed = Bed::new(|b| b.variable("connect_timeout_server_max", 200));
    let mut client = bed.connect();
    bed.control.hold(WRITER, true);
    let (code, text) = error(&mut client, WHO);
    assert!(code == 9001 && text.contains("paused"), "{text}");
    bed.control.hold(WRITER, false);
    bed.arrange(&[writer_is(0, ServerStatus::Shunned)]);
    let (code, text) = error(&mut client, WHO);
    assert!(code == 9001 && text.contains("SHUNNED (the test says so)"), "{text}");
    // A writer that is frozen, or switched off, is in another hostgroup of its cluster.
    let place = |server, status| Place { hostgroup: HostgroupId(1), server, status, under_way: UnderWay::MayFinish };
    bed.arrange(&[place(1, ServerStatus::Online), place(0, ServerStatus::OfflineSoft)]);
    let (code, text) = error(&mut client, WHO);
    let [old, other] = [0, 1].map(|server| bed.addr(server));
    let wanted = format!(
        "the hostgroup has no server: {old} OFFLINE_SOFT in hostgroup 1 (the test says so), {other} ONLINE in hostgroup 1 (the test says so)"
    );
    assert!(code == 9001 && text.contains(&wanted), "{text}");
}

#[test]
fn who_waits_for_a_server_that_is_out_is_told_how_connects_to_it_failed() {
    let bed = Bed::new(|b| b.variable("connect_timeout_server_max", 1_000));
    bed.servers[0].kill9();
    let mut client = bed.connect();
    let (code, text) = error(&mut client, WHO);
    assert!(code == 9001 && text.contains("Connection refused"), "{text}");
    bed.arrange(&[writer_is(0, ServerStatus::Shunned)]);
    let (code, text) = error(&mut client, WHO);
    assert!(code == 9001 && text.contains("SHUNNED (the test says so), the last connect failed: Connection refused"), "{text}");
}

#[test]
fn a_writer_that_refuses_writes_is_told_and_gets_no_new_ones() {
    let bed = Bed::new(|b| b.variable("connect_timeout_server_max", 50_000).variable("suspicion_ms", 50_000));
    let mut client = bed.connect();
    client.run("INSERT INTO t VALUES (1, 'before')").unwrap();
    bed.servers[0].sql("SET GLOBAL read_only = 1").unwrap();
    let writer_thread = thread::spawn(move || {
        let refused = client.query("INSERT INTO t VALUES (2, 'refused or moved')").unwrap().err().map(|e| e.code);
        (client, refused)
    });
    bed.until_signal(0, SignalKind::ReadOnly);
    let mut other = bed.connect();
    let held = thread::spawn(move || get(&mut other, WHO));
    wait::until("new work to wait", LIMIT, || (bed.control.load(WRITER).waiting >= 1).then_some(())).unwrap();
    bed.arrange(&[writer(1)]);
    assert_eq!(held.join().unwrap(), port(&bed, 1));
    let (mut client, refused) = writer_thread.join().unwrap();
    assert!(matches!(refused, None | Some(1290)), "{refused:?}");
    client.run("INSERT INTO t VALUES (3, 'on the new writer')").unwrap();
    assert_eq!(bed.ask(1, "SELECT COUNT(*) FROM test.t WHERE n = 3"), "1");
    assert_eq!(bed.ask(0, "SELECT COUNT(*) FROM test.t"), "1");
}

#[test]
fn connects_that_fail_and_connections_that_break_are_told() {
    let bed = Bed::new(|b| b.variable("connect_timeout_server_max", 50_000));
    let mut client = bed.connect();
    client.run("BEGIN").unwrap();
    client.run("INSERT INTO t VALUES (1, 'open')").unwrap();
    client.send_query("SELECT SLEEP(100)").unwrap();
    bed.until(0, "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP%'", "1");
    bed.servers[0].kill9();
    bed.until_signal(0, SignalKind::ConnectionLost);
    assert!(client.recv_reply(lab::client::Encoding::Text).unwrap().err().is_some());
    let mut other = bed.connect();
    let waiter = thread::spawn(move || get(&mut other, WHO));
    bed.until_signal(0, SignalKind::ConnectFailed);
    bed.arrange(&[writer(1)]);
    assert_eq!(waiter.join().unwrap(), port(&bed, 1));
}

#[test]
fn a_load_leaves_the_roles_to_the_keeper() {
    let bed = Bed::new(|b| b);
    bed.arrange(&[writer(1)]);
    // As a script does that edits mysql_servers: the rows say something else.
    bed.control.apply(bed.control.snapshot()).unwrap();
    let mut client = bed.connect();
    assert_eq!(get(&mut client, WHO), port(&bed, 1));
    let placements = bed.control.placements();
    let online = placements.iter().filter(|p| p.status == ServerStatus::Online).map(|p| p.server.key.port.to_string()).collect::<Vec<_>>();
    assert_eq!(online, [port(&bed, 1)]);
}

#[test]
fn a_limit_of_lag_in_a_comment_chooses_the_server() {
    let bed = Bed::new(|b| b.variable("connect_timeout_server_max", 300));
    let mut client = bed.connect();
    bed.arrange(&[writer(0), writer(1)]);
    bed.control.measured(&bed.addr(0), Measured { latency_us: 100, lag_ms: Some(5_000), is_source: false });
    bed.control.measured(&bed.addr(1), Measured { latency_us: 100, lag_ms: Some(40), is_source: false });
    for _ in 0..20 {
        assert_eq!(get(&mut client, "/* max_lag_ms=100 */ SELECT @@port"), port(&bed, 1));
    }
    let (code, text) = error(&mut client, "/* max_lag_ms=10 */ SELECT @@port");
    assert!(code == 9001 && text.contains("max_lag_ms"), "{text}");

    let since = |ago_ms: u64| {
        let now_ms = UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
        format!("/* min_epoch_ms={} */ SELECT @@port", now_ms - ago_ms)
    };
    for _ in 0..20 {
        assert_eq!(get(&mut client, &since(2_000)), port(&bed, 1), "the other one is 5 s behind");
    }
    let served: HashSet<String> = (0..40).map(|_| get(&mut client, &since(60_000))).collect();
    assert_eq!(served.len(), 2, "both have what is a minute old");
    bed.control.measured(&bed.addr(1), Measured { latency_us: 100, lag_ms: Some(50_000), is_source: false });
    assert_eq!(error(&mut client, &since(2_000)).0, 9001);
}

/// A session that waits for a server with little lag blocks no other session, and gets no connection that it cannot use.
#[test]
fn who_waits_for_little_lag_holds_nobody_up() {
    let bed = Bed::new(|b| b.variable("connect_timeout_server_max", 60_000).variable("free_connections_pct", 100));
    bed.arrange(&[writer(0)]);
    let measured = |lag_ms| bed.control.measured(&bed.addr(0), Measured { latency_us: 100, lag_ms: Some(lag_ms), is_source: false });
    measured(5_000);
    let mut clients: Vec<_> = (0..6).map(|_| bed.connect()).collect();
    clients.iter_mut().for_each(|client| drop(client.run("SELECT 1").unwrap()));
    let mut choosy = bed.connect();
    choosy.send_query("/* max_lag_ms=1000 */ SELECT @@port").unwrap();
    bed.until_waiting(1);
    let opened = || bed.ask(0, "SELECT variable_value FROM information_schema.global_status WHERE variable_name='Connections'");
    let before: u32 = opened().parse().unwrap();
    thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(move || {
                for _ in 0..100 {
                    client.run("BEGIN").unwrap();
                    client.run("SELECT SLEEP(0.001)").unwrap();
                    client.run("COMMIT").unwrap();
                }
            });
        }
    });
    bed.until_waiting(1);
    let after: u32 = opened().parse().unwrap();
    assert!(after - before < 40, "{} connections for six clients", after - before);
    measured(500);
    assert_eq!(choosy.recv_reply(lab::client::Encoding::Text).unwrap().scalar().unwrap().unwrap(), port(&bed, 0));
}

/// If a server refuses a value that another server accepted, the next statement does not run there without the value.
#[test]
fn what_one_server_accepted_is_not_taken_for_granted_on_another() {
    let bed = Bed::new(|b| b.variable("threads", 1));
    let zone = ["INSERT INTO mysql.time_zone VALUES(1000, 'N')", "INSERT INTO mysql.time_zone_name VALUES('Lab/Zone', 1000)"];
    let kind = "INSERT INTO mysql.time_zone_transition_type VALUES(1000, 0, 3600, 0, 'LAB')";
    zone.into_iter().chain([kind]).for_each(|sql| drop(bed.servers[0].sql(sql).unwrap()));
    let (mut first, mut second) = (bed.connect(), bed.connect());
    for client in [&mut first, &mut second] {
        client.run("SET time_zone = 'Lab/Zone'").unwrap();
        assert_eq!(get(client, "SELECT @@time_zone"), "Lab/Zone");
        client.run("SELECT 1").unwrap();
    }
    let mut plain = bed.connect();
    plain.run("SELECT 1").unwrap();
    bed.arrange(&[writer(1)]);
    for (n, client) in [&mut first, &mut second].into_iter().enumerate() {
        for _ in 0..2 {
            assert_eq!(error(client, &format!("INSERT INTO t VALUES({n}, @@time_zone)")).0, 1298);
        }
    }
    // A session that sets the value now gets the error and goes on; one that had it before can choose another value.
    let mut third = bed.connect();
    assert_eq!(error(&mut third, "SET time_zone = 'Lab/Zone'").0, 1298);
    third.run("INSERT INTO t VALUES(7, @@time_zone)").unwrap();
    first.run("SET time_zone = '+01:00'").unwrap();
    first.run("INSERT INTO t VALUES(8, @@time_zone)").unwrap();
    assert_eq!(bed.ask(1, "SELECT GROUP_CONCAT(n, note ORDER BY n) FROM test.t"), "7SYSTEM,8+01:00");
}

/// A connect to a server of which nothing comes back is not waited for while another server is there.
#[test]
fn a_server_that_swallows_connects_holds_nobody_up() {
    let bed = Bed::new(|b| b.variable("connect_timeout_server", 9_000).variable("threads", 1));
    bed.arrange(&[writer(0), writer(1)]);
    bed.servers[1].sigstop();
    let mut clients = Vec::new();
    for _ in 0..8 {
        // Each session holds its connection, so that the next one needs a new connection.
        let mut client = bed.connect();
        let began = Instant::now();
        client.run("BEGIN").unwrap();
        assert!(began.elapsed() < Duration::from_secs(5), "it waited for {:?}", began.elapsed());
        assert_eq!(get(&mut client, WHO), port(&bed, 0));
        clients.push(client);
    }
    bed.servers[1].sigcont();
}
