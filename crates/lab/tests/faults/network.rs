//! Networks that lose connections, with and without a word.

use std::thread;
use std::time::{Duration, Instant};

use lab::fault::{Lost, Relay};
use lab::{Options, Server, Tidegate, wait};

use crate::bed::{LIMIT, Report, SLEEPERS, Seen, attempt, connect, proxy, try_connect, wait_sessions};

/// A server behind a network that can fail.
struct Far {
    proxy: Tidegate,
    relay: Relay,
    server: Server,
}

impl Far {
    fn new(backends: i64, variables: &[(&str, i64)]) -> Far {
        let server = Server::start(lab::Flavor::Mariadb, &Options::new()).unwrap();
        let relay = Relay::to(&server.address()).unwrap();
        let more = |builder| variables.iter().fold(builder, |b: lab::tidegate::Builder, (name, value)| b.variable(name, *value));
        // One worker, so that it is known which backend a statement gets.
        let more = |builder: lab::tidegate::Builder| more(builder.variable("threads", 1));
        Far { proxy: proxy(relay.port(), backends, more), relay, server }
    }
}

/// Sends a statement, and waits until the proxy has begun with it.
fn begin(far: &Far, client: &mut lab::Client, sql: &str) {
    let before = Report::of(&far.proxy).counter("questions");
    client.send_query(sql).unwrap();
    wait::until("the statement to begin", LIMIT, || (Report::of(&far.proxy).counter("questions") > before).then_some(())).unwrap();
}

#[test]
fn idle_backends_of_a_silent_network_are_found_by_ping() {
    let far = Far::new(2, &[("ping_interval_server_msec", 1000)]);
    let mut client = connect(&far.proxy);
    client.run("SELECT 1").unwrap();
    far.relay.silence_connections();
    wait::until("a ping without answer", LIMIT, || far.proxy.log().contains("did not answer a ping").then_some(())).unwrap();
    assert_eq!(attempt(&mut client, "SELECT 1"), Seen::Done);
}

/// A statement that will never be answered ends with its time limit: error or close, and the session's place is free again.
#[test]
fn statement_on_a_silent_connection_ends_with_its_time_limit() {
    let far = Far::new(4, &[("default_query_timeout", 1000)]);
    let mut client = connect(&far.proxy);
    client.run("SELECT 1").unwrap();
    far.relay.silence_connections();
    let before = far.relay.accepted();
    let seen = attempt(&mut client, "UPDATE mysql.nothing SET a = 1");
    assert!(seen != Seen::Done, "{seen:?}");
    let opened = far.relay.accepted() - before;
    assert!(opened <= 8, "{opened} connections were opened to end one statement");
    let mut next = connect(&far.proxy);
    assert_eq!(attempt(&mut next, "SELECT 1"), Seen::Done);
}

/// The client gives up on a statement that hangs in a silent connection: nothing of it stays.
#[test]
fn client_leaves_a_statement_on_a_silent_connection() {
    let far = Far::new(1, &[]);
    let mut client = connect(&far.proxy);
    client.run("SELECT 1").unwrap();
    far.relay.silence_connections();
    begin(&far, &mut client, "SELECT 2");
    client.cut();
    wait_sessions(&far.proxy, 0);
    assert_eq!(attempt(&mut connect(&far.proxy), "SELECT 3"), Seen::Done, "the only connection was not replaced");
}

/// The same while the backend is brought to the session's state, before the statement itself is sent.
#[test]
fn client_leaves_a_state_change_on_a_silent_connection() {
    let far = Far::new(1, &[]);
    let mut client = connect(&far.proxy);
    client.run("SET NAMES latin1").unwrap();
    let mut other = connect(&far.proxy);
    other.run("SELECT 1").unwrap();
    far.relay.silence_connections();
    begin(&far, &mut client, "SELECT 2");
    client.cut();
    other.cut();
    wait_sessions(&far.proxy, 0);
    assert_eq!(attempt(&mut connect(&far.proxy), "SELECT 3"), Seen::Done, "the only connection was not replaced");
}

/// KILL ends a session whatever its backend does.
#[test]
fn kill_reaches_a_session_on_a_silent_connection() {
    for state_change in [false, true] {
        let far = Far::new(2, &[]);
        let mut victim = connect(&far.proxy);
        let mut other = connect(&far.proxy);
        victim.run(if state_change { "SET NAMES latin1" } else { "SELECT 1" }).unwrap();
        other.run("SELECT 1").unwrap();
        far.relay.silence_connections();
        let id = victim.connection_id();
        begin(&far, &mut victim, "SELECT 2");
        other.run(format!("KILL {id}")).unwrap();
        wait_sessions(&far.proxy, 1);
    }
}

/// All that is new waits for a network that is silent, and goes on when it works again.
#[test]
fn network_falls_silent_and_comes_back() {
    let far = Far::new(4, &[("connect_timeout_server_max", 60_000)]);
    let mut clients: Vec<_> = (0..4).map(|_| connect(&far.proxy)).collect();
    for client in &mut clients {
        client.run("SELECT 1").unwrap();
    }
    far.relay.silence_all(true);
    thread::scope(|scope| {
        let answers: Vec<_> = clients.iter_mut().map(|client| scope.spawn(|| attempt(client, "SELECT 2"))).collect();
        wait::until("a connect to fail", LIMIT, || far.proxy.log().contains("no connection within").then_some(())).unwrap();
        far.relay.resume();
        for answer in answers {
            assert_eq!(answer.join().unwrap(), Seen::Done);
        }
    });
}

/// A connection that is cut while a statement runs: a read is repeated or reported, a write is reported, never repeated.
#[test]
fn cut_in_the_middle_of_a_statement() {
    let far = Far::new(4, &[]);
    let root = |sql: &str| far.server.sql(sql).unwrap();
    root("CREATE TABLE test.t (a INT)");
    let sleeping = || (far.server.scalar(SLEEPERS).unwrap().as_deref() == Some("1")).then_some(());
    thread::scope(|scope| {
        let writing = scope.spawn(|| attempt(&mut connect(&far.proxy), "INSERT INTO t SELECT SLEEP(10)"));
        wait::until("the statement to run", LIMIT, sleeping).unwrap();
        far.relay.cut();
        assert!(matches!(writing.join().unwrap(), Seen::Error(lab::SERVER_LOST) | Seen::Closed));
    });
    // The server may still execute the statement: the client was told that the outcome is unknown.
    let rows = || (far.server.scalar(SLEEPERS).unwrap().as_deref() == Some("0")).then_some(());
    wait::until("the statement to end", LIMIT, rows).unwrap();
    let written = far.server.scalar("SELECT COUNT(*) FROM test.t").unwrap().unwrap();
    assert!(written == "0" || written == "1", "{written} rows of one INSERT");
}

/// A transaction whose connection is cut ends with an error or a close, is rolled back, and is not continued elsewhere.
#[test]
fn cut_in_the_middle_of_a_transaction() {
    let far = Far::new(4, &[]);
    far.server.sql("CREATE TABLE test.t (a INT)").unwrap();
    let mut client = connect(&far.proxy);
    client.run("BEGIN").unwrap();
    client.run("INSERT INTO t VALUES (1)").unwrap();
    far.relay.cut();
    let seen = attempt(&mut client, "INSERT INTO t VALUES (2)");
    assert!(matches!(seen, Seen::Error(lab::SERVER_LOST) | Seen::Closed), "{seen:?}");
    let mut next = try_connect(&far.proxy).unwrap();
    assert_eq!(next.scalar("SELECT COUNT(*) FROM t").unwrap().as_deref(), Some("0"));
    if seen == Seen::Closed {
        assert!(far.proxy.log().contains("closed: Lost connection"), "closed without a reason in the log");
    }
}

/// A statement that was killed is never sent again, also if its server answers neither it nor the KILL.
#[test]
fn what_was_killed_is_not_sent_again() {
    for (limit_ms, expected) in [(100_000, 1317), (1000, 1907)] {
        let far = Far::new(4, &[("default_query_timeout", limit_ms)]);
        let mut client = connect(&far.proxy);
        client.run("SELECT 1").unwrap();
        far.relay.silence_connections();
        begin(&far, &mut client, "SELECT 2");
        if expected == 1317 {
            connect(&far.proxy).run(format!("KILL QUERY {}", client.connection_id())).unwrap();
        }
        let reply = client.recv_reply(lab::client::Encoding::Text).unwrap();
        assert_eq!(reply.err().map(|e| e.code), Some(expected), "{reply:?}");
        assert_eq!(attempt(&mut client, "SELECT 3"), Seen::Done, "the session goes on");
    }
}

/// An idle connection that is half-open is not the only way to a server.
#[test]
fn a_kill_that_an_idle_connection_does_not_answer_takes_a_new_one() {
    let far = Far::new(4, &[("default_query_timeout", 1000), ("free_connections_pct", 100)]);
    let [mut busy, mut idle] = [(); 2].map(|()| connect(&far.proxy));
    for client in [&mut busy, &mut idle] {
        client.run("BEGIN").unwrap();
        client.run("SELECT 1").unwrap();
    }
    idle.run("COMMIT").unwrap();
    busy.send_query("SELECT SLEEP(100)").unwrap();
    let sleepers = |wanted: &str| (far.server.scalar(SLEEPERS).unwrap().as_deref() == Some(wanted)).then_some(());
    wait::until("the statement to run", LIMIT, || sleepers("1")).unwrap();
    far.relay.silence_connections();
    wait::until("the server to end it", LIMIT, || sleepers("0")).unwrap();
}

/// A KILL QUERY that could not be sent while its statement ran does not end the next one.
#[test]
fn a_late_kill_ends_nothing() {
    let far = Far::new(4, &[]);
    let [mut client, mut killer] = [(); 2].map(|()| connect(&far.proxy));
    let mut root = far.server.root().unwrap();
    root.run("SELECT GET_LOCK('held', 1)").unwrap();
    client.run("BEGIN").unwrap();
    client.send_query("SELECT GET_LOCK('held', 600)").unwrap();
    let running = |what: &str| {
        let sql = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE user='app' AND info LIKE 'SELECT {what}%'");
        wait::until(what, LIMIT, || (far.server.scalar(&sql).unwrap().as_deref() == Some("1")).then_some(())).unwrap();
    };
    running("GET_LOCK");
    far.relay.silence_new();
    let before = far.relay.accepted();
    killer.run(format!("KILL QUERY {}", client.connection_id())).unwrap();
    wait::until("the KILL to be on its way", LIMIT, || (far.relay.accepted() > before).then_some(())).unwrap();
    root.run("DO RELEASE_LOCK('held')").unwrap();
    let reply = |client: &mut lab::Client| client.recv_reply(lab::client::Encoding::Text).unwrap().scalar().unwrap();
    assert_eq!(reply(&mut client).as_deref(), Some("1"), "it was not killed");
    client.send_query("SELECT SLEEP(3)").unwrap();
    running("SLEEP");
    far.relay.resume();
    assert_eq!(reply(&mut client).as_deref(), Some("0"), "it was not meant");
}

/// Nor does one that an idle connection did not answer, though it was sent.
#[test]
fn a_kill_that_was_given_up_may_still_come() {
    let far = Far::new(4, &[("free_connections_pct", 100)]);
    let [mut client, mut idle, mut killer] = [(); 3].map(|()| connect(&far.proxy));
    for client in [&mut client, &mut idle] {
        client.run("BEGIN").unwrap();
        client.run("SELECT 1").unwrap();
    }
    idle.run("COMMIT").unwrap();
    let mut root = far.server.root().unwrap();
    root.run("SELECT GET_LOCK('held', 1)").unwrap();
    client.send_query("SELECT GET_LOCK('held', 600)").unwrap();
    let running = |what: &str| {
        let sql = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE user='app' AND info LIKE 'SELECT {what}%'");
        wait::until(what, LIMIT, || (far.server.scalar(&sql).unwrap().as_deref() == Some("1")).then_some(())).unwrap();
    };
    running("GET_LOCK");
    far.relay.trap("KILL QUERY", Lost::Command);
    killer.run(format!("KILL QUERY {}", client.connection_id())).unwrap();
    wait::until("the KILL to be on its way", LIMIT, || (far.relay.sprung() == 1).then_some(())).unwrap();
    let over = Instant::now();
    root.run("DO RELEASE_LOCK('held')").unwrap();
    let reply = |client: &mut lab::Client| client.recv_reply(lab::client::Encoding::Text).unwrap().scalar().unwrap();
    assert_eq!(reply(&mut client).as_deref(), Some("1"), "it was not killed");
    client.send_query("SELECT SLEEP(0.5)").unwrap();
    running("SLEEP");
    // As long as the proxy waits for one that is on its way.
    assert!(over.elapsed() >= Duration::from_secs(2), "the next statement began after {:?}", over.elapsed());
    assert_eq!(reply(&mut client).as_deref(), Some("0"));
}
