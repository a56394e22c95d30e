//! Statements that a server certainly has not applied go to another server, and the client does not notice. For all others the client gets
//! an error.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{LIMIT, Peer};
use lab::client::Encoding;
use lab::fault::Relay;
use lab::replication::set_read_only;
use lab::tidegate::Builder;
use lab::{Client, Flavor, Options, Server, Tidegate, wait};
use wire::command::Command as CommandByte;
use wire::flags::Capabilities;

lab::each!(
    refused_writes_go_to_the_other_server,
    a_write_waits_until_its_server_takes_writes,
    the_wait_ends_and_the_server_has_the_last_word,
    an_error_tells_the_whole_wait,
    a_rule_without_retries_passes_refusals_on,
    elsewhere_refusals_are_the_clients,
    a_transaction_in_which_nothing_ran_moves,
    a_transaction_keeps_its_characteristics,
    a_first_statement_that_is_refused_takes_its_transaction_along,
    a_transaction_in_which_something_ran_ends,
    what_a_program_is_told_of_a_loss,
    what_ends_nothing_asks_no_server,
    what_is_killed_wherever_it_runs_ends,
    a_view_that_writes_is_not_read_twice,
);

/// Matches a connection whose statement runs until it is killed; a PREPARE of the same text does not run, and does not match.
const RUNNING: &str = "user='app' AND command IN ('Query', 'Execute') AND (info LIKE '%SLEEP(100)%' OR info LIKE '%BENCHMARK%')";

const BOTH: [Encoding; 2] = [Encoding::Text, Encoding::Binary];

/// Servers that do not know each other, all of them writers of one cluster, behind a proxy.
struct Bed {
    // Dropped first, so that it does not complain of lost servers.
    proxy: Tidegate,
    servers: Vec<Server>,
}

impl Bed {
    fn new(flavor: Flavor, servers: usize, more: impl FnOnce(Builder) -> Builder) -> Bed {
        let servers: Vec<Server> = (0..servers).map(|_| Server::start(flavor, &Options::new()).unwrap()).collect();
        for server in &servers {
            server.sql("CREATE TABLE test.t(i INT PRIMARY KEY) ENGINE=InnoDB").unwrap();
        }
        let addresses: Vec<u16> = servers.iter().map(Server::port).collect();
        Bed { proxy: proxy(&addresses, more).start().unwrap(), servers }
    }

    fn peer(&self, encoding: Encoding) -> Peer {
        Peer::through(&self.proxy, encoding)
    }

    fn rows(&self, server: usize) -> String {
        self.servers[server].scalar("SELECT COUNT(*) FROM test.t").unwrap().unwrap()
    }

    fn counter(&self, name: &str) -> u64 {
        let mut admin = self.proxy.admin().unwrap();
        let sql = format!("SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name='{name}'");
        admin.scalar(sql).unwrap().unwrap_or_else(|| panic!("{name} is not there")).parse().unwrap()
    }

    fn wait_counter(&self, name: &str, least: u64) {
        wait::until(name, LIMIT, || (self.counter(name) >= least).then_some(())).unwrap();
    }

    /// Ends the connection of a statement that runs; whether there was one.
    fn kill_running(&self) -> bool {
        self.kill_one(RUNNING)
    }

    /// Whether such a statement runs.
    fn is_running(&self) -> bool {
        let count = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE {RUNNING}");
        self.servers.iter().any(|server| server.scalar(&count).unwrap().as_deref() != Some("0"))
    }

    /// Ends a connection of which this is true; whether there was one.
    fn kill_one(&self, is_it: &str) -> bool {
        let running = &format!("SELECT id FROM information_schema.processlist WHERE {is_it} LIMIT 1");
        self.servers.iter().any(|server| match server.scalar(running).unwrap() {
            Some(id) => {
                server.sql(&format!("KILL {id}")).is_ok()
                    && wait::until("its end", LIMIT, || {
                        let gone = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id={id}");
                        (server.scalar(&gone).unwrap().as_deref() == Some("0")).then_some(())
                    })
                    .is_ok()
            }
            None => false,
        })
    }

    /// Ends the connections of the proxy at the servers, those too whose login ends meanwhile: a slow connect has a second one beside it.
    fn kill_backends(&self) {
        for server in &self.servers {
            let mut root = server.root().unwrap();
            wait::until("the connections to end", LIMIT, || {
                let listed = root.query("SELECT id FROM information_schema.processlist WHERE user='app'").unwrap().table().unwrap();
                let ids: Vec<String> = listed.into_iter().flatten().flatten().collect();
                for id in &ids {
                    // It may be gone by now.
                    _ = root.run(format!("KILL {id}"));
                }
                ids.is_empty().then_some(())
            })
            .unwrap();
        }
    }
}

/// All servers are of the writer hostgroup of a cluster; the monitor leaves them alone.
fn proxy(ports: &[u16], more: impl FnOnce(Builder) -> Builder) -> Builder {
    let builder = Tidegate::builder()
        .app_user()
        .variable("threads", 1)
        .variable("monitor_enabled", false)
        .row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())]);
    // The first one is as good as always asked first.
    let weights = std::iter::once(10_000_000).chain(std::iter::repeat(1));
    let with = |builder: Builder, (port, weight): (&u16, i64)| builder.server_with(0, "127.0.0.1", *port, &[("weight", weight.into())]);
    more(ports.iter().zip(weights).fold(builder, with))
}

/// Logins are refused with 3032, which is no statement about the user.
#[test]
fn a_server_in_offline_mode_is_as_good_as_gone() {
    let bed = Bed::new(Flavor::Mysql, 2, |b| b);
    bed.servers[0].sql("SET GLOBAL offline_mode=ON").unwrap();
    for (n, encoding) in BOTH.into_iter().enumerate() {
        bed.peer(encoding).exec(&format!("INSERT INTO t VALUES({n})"));
    }
    assert_eq!([bed.rows(0), bed.rows(1)], ["0", "2"]);
}

fn refused_writes_go_to_the_other_server(flavor: Flavor) {
    let bed = Bed::new(flavor, 2, |b| b);
    set_read_only(&bed.servers[0], true).unwrap();
    for (turn, encoding) in BOTH.into_iter().enumerate() {
        for n in 0..20 {
            // New sessions, so that both servers are asked.
            bed.peer(encoding).exec(&format!("INSERT INTO t VALUES({})", turn * 20 + n));
        }
    }
    assert_eq!((bed.rows(0), bed.rows(1)), ("0".into(), "40".into()));
    assert!(bed.counter("tidegate_refusals_hidden") > 0, "the read-only server was never asked");
}

/// MariaDB runs a bulk UPDATE row by row. The server becomes read-only between two rows: no other server gets the rows that it has.
#[test]
fn a_bulk_update_that_is_refused_halfway_goes_nowhere_else() {
    let bed = Bed::new(Flavor::Mariadb, 2, |b| b);
    for server in &bed.servers {
        server.sql("CREATE TABLE test.n(i INT PRIMARY KEY, n INT) ENGINE=InnoDB").unwrap();
        server.sql("INSERT INTO test.n VALUES(1,0),(2,0),(3,0),(4,0)").unwrap();
    }
    let options = bed.proxy.options("app", "app-pass").database("test").with(Capabilities::MARIADB_CLIENT_STMT_BULK_OPERATIONS);
    let mut client = Client::connect(&options).unwrap();
    let statement = client.prepare("UPDATE n SET n = n + 1 + SLEEP(0.5) WHERE i = ?").unwrap();
    let mut body = statement.id.to_le_bytes().to_vec();
    body.extend_from_slice(&128_u16.to_le_bytes());
    body.extend_from_slice(&[3, 0]);
    for row in 1..=4_i32 {
        body.push(0);
        body.extend_from_slice(&row.to_le_bytes());
    }
    let updating = thread::spawn(move || client.command(CommandByte::StmtBulkExecute, &body).unwrap().err().map(|error| error.code));
    let updated = |server: usize| bed.servers[server].scalar("SELECT SUM(n) FROM test.n").unwrap();
    wait::until("the first row", LIMIT, || (updated(0).as_deref() == Some("1")).then_some(())).unwrap();
    set_read_only(&bed.servers[0], true).unwrap();
    assert_eq!(updating.join().unwrap(), Some(1290));
    assert_eq!(updated(1).as_deref(), Some("0"));
}

fn a_write_waits_until_its_server_takes_writes(flavor: Flavor) {
    for encoding in BOTH {
        let bed = Bed::new(flavor, 1, |b| b);
        set_read_only(&bed.servers[0], true).unwrap();
        let mut peer = bed.peer(encoding);
        let writing = thread::spawn(move || peer.exec("INSERT INTO t VALUES(1)").ok().unwrap().affected_rows);
        bed.wait_counter("tidegate_refusals_hidden", 1);
        if flavor == Flavor::Mysql {
            bed.servers[0].sql("SET GLOBAL super_read_only=0").unwrap();
        }
        set_read_only(&bed.servers[0], false).unwrap();
        assert_eq!(writing.join().unwrap(), 1);
        assert_eq!(bed.rows(0), "1");
    }
}

fn the_wait_ends_and_the_server_has_the_last_word(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, |b| b.variable("connect_timeout_server_max", 400).variable("suspicion_ms", 100));
    set_read_only(&bed.servers[0], true).unwrap();
    for encoding in BOTH {
        let mut peer = bed.peer(encoding);
        let start = Instant::now();
        let reply = peer.ask("INSERT INTO t VALUES(1)");
        let error = reply.err().unwrap();
        assert!(matches!(error.code, 1290 | 9001) && error.message.contains("read-only"), "{error:?}");
        assert!(start.elapsed() >= Duration::from_millis(300), "it was not waited for");
        assert_eq!(peer.get("SELECT COUNT(*) FROM t"), "0", "the session goes on");
    }
}

/// A refused statement tries again whenever its server may have changed its state; the last of these waits is short.
fn an_error_tells_the_whole_wait(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, |b| b.variable("connect_timeout_server_max", 1_000).variable("suspicion_ms", 700));
    set_read_only(&bed.servers[0], true).unwrap();
    let mut peer = bed.peer(Encoding::Text);
    let reply = peer.ask("INSERT INTO t VALUES(1)");
    let error = reply.err().unwrap();
    let waited_ms: Option<u64> = error.message.split(" after ").nth(1).and_then(|rest| rest.split("ms").next()?.parse().ok());
    assert_eq!(error.code, 9001, "{error:?}");
    assert!(waited_ms.is_some_and(|ms| ms >= 990), "{error:?}");
}

fn a_rule_without_retries_passes_refusals_on(flavor: Flavor) {
    let rule =
        [("rule_id", 1.into()), ("active", 1.into()), ("match_digest", "^INSERT".into()), ("retries", 0.into()), ("apply", 1.into())];
    let bed = Bed::new(flavor, 1, |b| b.row("mysql_query_rules", &rule));
    set_read_only(&bed.servers[0], true).unwrap();
    assert_eq!(bed.peer(Encoding::Text).fails("INSERT INTO t VALUES(1)"), 1290);
    assert_eq!(bed.counter("tidegate_refusals_hidden"), 0);
}

fn elsewhere_refusals_are_the_clients(flavor: Flavor) {
    let server = Server::start(flavor, &Options::new()).unwrap();
    server.sql("CREATE TABLE test.t(i INT PRIMARY KEY)").unwrap();
    set_read_only(&server, true).unwrap();
    let proxy = Tidegate::builder().backend(0, &server).app_user().variable("threads", 1).start().unwrap();
    for encoding in BOTH {
        assert_eq!(Peer::through(&proxy, encoding).fails("INSERT INTO t VALUES(1)"), 1290);
    }
}

fn a_transaction_in_which_nothing_ran_moves(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, |b| b);
    for (n, opening) in
        [&["BEGIN"][..], &["START TRANSACTION"], &["SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "BEGIN"]].into_iter().enumerate()
    {
        let mut peer = bed.peer(Encoding::Text);
        peer.exec("SET @mine = 5");
        peer.exec_all(opening);
        bed.kill_backends();
        // The state of the session comes along.
        peer.exec(&format!("INSERT INTO t VALUES({n} * 10 + @mine)"));
        assert!(peer.exec("DO 1").status().unwrap().in_transaction());
        peer.exec("ROLLBACK");
        assert_eq!(bed.rows(0), n.to_string(), "{opening:?}: it was no transaction");
        peer.exec_all(opening);
        bed.kill_backends();
        peer.exec(&format!("INSERT INTO t VALUES({n})"));
        peer.exec("COMMIT");
    }
    assert_eq!(bed.rows(0), "3");
    assert!(bed.counter("tidegate_sessions_moved") >= 6);
}

fn a_transaction_keeps_its_characteristics(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, |b| b);
    let mut peer = bed.peer(Encoding::Text);
    peer.exec("START TRANSACTION READ ONLY");
    bed.kill_backends();
    assert_eq!(peer.fails("INSERT INTO t VALUES(1)"), 1792, "the client's own wish, and no refusal");
    peer.exec("ROLLBACK");
    peer.exec_all(&["SET TRANSACTION READ ONLY", "BEGIN"]);
    bed.kill_backends();
    assert_eq!(peer.fails("INSERT INTO t VALUES(1)"), 1792);
    assert_eq!(bed.counter("tidegate_refusals_hidden"), 0);
    peer.exec("ROLLBACK");
    peer.exec("INSERT INTO t VALUES(1)");
}

fn a_first_statement_that_is_refused_takes_its_transaction_along(flavor: Flavor) {
    let bed = Bed::new(flavor, 2, |b| b);
    set_read_only(&bed.servers[0], true).unwrap();
    for n in 0..20 {
        let mut peer = bed.peer(BOTH[n % 2]);
        let opening: &[&str] = if n < 10 { &["BEGIN"] } else { &["SET autocommit=0"] };
        peer.exec_all(opening);
        peer.exec(&format!("INSERT INTO t VALUES({n})"));
        peer.exec(&format!("UPDATE t SET i = i + 100 WHERE i = {n}"));
        peer.exec(if n % 4 == 0 { "ROLLBACK" } else { "COMMIT" });
    }
    assert_eq!((bed.rows(0), bed.rows(1)), ("0".into(), "15".into()));
    assert!(bed.counter("tidegate_refusals_hidden") > 0, "the read-only server was never asked");
}

/// Without `transaction_replay` what ran in a transaction is lost with its connection, and the client is told.
fn a_transaction_in_which_something_ran_ends(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, |b| b);
    let mut peer = bed.peer(Encoding::Text);
    peer.exec_all(&["BEGIN", "INSERT INTO t VALUES(1)"]);
    bed.kill_backends();
    assert_eq!(peer.fails("INSERT INTO t VALUES(2)"), lab::SERVER_LOST);
    assert_eq!(bed.rows(0), "0");
}

/// A COMMIT or ROLLBACK of a session that has no transaction; rules and statistics see it all the same.
fn what_ends_nothing_asks_no_server(flavor: Flavor) {
    let rule = [("rule_id", 1.into()), ("active", 1.into()), ("match_digest", "^(COMMIT|ROLLBACK)".into())];
    let bed = Bed::new(flavor, 1, |b| b.row("mysql_query_rules", &rule));
    let ended = || -> u64 {
        let mut root = bed.servers[0].root().unwrap();
        let rows = root.query("SHOW GLOBAL STATUS WHERE variable_name IN ('Com_commit', 'Com_rollback')").unwrap().table().unwrap();
        rows.iter().map(|row| row[1].as_deref().unwrap().parse::<u64>().unwrap()).sum()
    };
    for encoding in BOTH {
        let mut peer = bed.peer(encoding);
        let before = ended();
        peer.exec_all(&["SELECT 1", "COMMIT", "ROLLBACK", "COMMIT WORK"]);
        assert_eq!(ended(), before, "{encoding:?}");
        peer.exec_all(&["BEGIN", "INSERT INTO t VALUES(1)", "ROLLBACK"]);
        peer.exec_all(&["SET autocommit = 0", "INSERT INTO t VALUES(1)", "ROLLBACK", "SET autocommit = 1"]);
        assert_eq!((ended(), bed.rows(0)), (before + 2, "0".into()), "{encoding:?}");
    }
    let mut admin = bed.proxy.admin().unwrap();
    for (asked, expected) in [
        // Plain COMMIT and ROLLBACK in text are not judged. Prepared ones are judged, at PREPARE as well.
        ("SELECT hits FROM stats_mysql_query_rules WHERE rule_id = 1", "11"),
        ("SELECT SUM(count_star) FROM stats_mysql_query_digest WHERE hostgroup = 0 AND digest_text LIKE 'COMMIT%'", "4"),
        ("SELECT SUM(Total_cnt) FROM stats_mysql_commands_counters WHERE Command IN ('COMMIT', 'ROLLBACK')", "10"),
    ] {
        assert_eq!(admin.scalar(asked).unwrap().as_deref(), Some(expected), "{asked}");
    }
    bed.servers[0].sigstop();
    let mut peer = bed.peer(Encoding::Text);
    peer.exec_all(&["COMMIT", "ROLLBACK"]);
    bed.servers[0].sigcont();
}

/// libmariadb passes the number, the SQLSTATE and the text on.
fn what_a_program_is_told_of_a_loss(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, |b| b);
    for sql in ["INSERT INTO t VALUES(1 + SLEEP(100))", "BEGIN; INSERT INTO t VALUES(2 + SLEEP(100))"] {
        let mut program = Command::new("mariadb");
        program.args(["--no-defaults", "-h127.0.0.1", "-uapp", "-papp-pass", "test", "-e", sql]).arg(format!("-P{}", bed.proxy.port()));
        let program = match program.stdout(Stdio::null()).stderr(Stdio::piped()).spawn() {
            Ok(program) => program,
            Err(error) => return println!("skipped: mariadb: {error}"),
        };
        wait::until("it to run", LIMIT, || bed.kill_running().then_some(())).unwrap();
        let told = String::from_utf8(program.wait_with_output().unwrap().stderr).unwrap();
        let error = format!("ERROR {} (08S01)", lab::SERVER_LOST);
        assert!(told.contains(&error) && told.contains("Lost connection to server during query"), "{sql}: {told}");
    }
}

/// It may be what servers die of: it is not tried on one after the other.
fn what_is_killed_wherever_it_runs_ends(flavor: Flavor) {
    let rule =
        [("rule_id", 1.into()), ("active", 1.into()), ("match_digest", "BENCHMARK".into()), ("retries", 3.into()), ("apply", 1.into())];
    let bed = Bed::new(flavor, 3, |b| b.variable("transaction_replay", true).row("mysql_query_rules", &rule));
    bed.servers.iter().for_each(|server| drop(server.sql("INSERT INTO test.t VALUES(1)").unwrap()));
    for encoding in BOTH {
        for (opening, dying, times) in [
            (&[][..], "SELECT SLEEP(100)", 2),
            (&[], "SELECT BENCHMARK(1000000000000, 1)", 4),
            (&["BEGIN", "UPDATE t SET i = 1 WHERE i = 1"], "UPDATE t SET i = 1 WHERE i = 1 AND SLEEP(100) = 0", 2),
        ] {
            let mut peer = bed.peer(encoding);
            peer.exec_all(opening);
            let running = thread::spawn(move || peer.ask(dying).err().cloned().unwrap());
            for time in 0..times {
                wait::until("it to run", LIMIT, || bed.is_running().then_some(())).unwrap_or_else(|_| panic!("{dying}: {time}"));
                // A connection from before the loss that breaks within a second after it counts as the same death of the server. The
                // statement runs again, so the proxy knows of the loss by now.
                thread::sleep(Duration::from_millis(if time == 1 { 1_100 } else { 0 }));
                assert!(bed.kill_running(), "{dying}: {time}");
            }
            let told = running.join().unwrap();
            assert!(told.code == lab::SERVER_LOST && told.message.contains("query_retries_on_failure"), "{dying}: {told:?}");
        }
    }
}

/// Its text says nothing of the code behind it: that is looked up before it is sent again.
fn a_view_that_writes_is_not_read_twice(flavor: Flavor) {
    let bed = Bed::new(flavor, 1, |b| b);
    let server = &bed.servers[0];
    for sql in [
        "SET GLOBAL log_bin_trust_function_creators=1",
        "INSERT INTO test.t VALUES(1)",
        "CREATE DATABASE hidden",
        // The KILL rolls nothing back.
        "CREATE TABLE test.w(v INT) ENGINE=MyISAM",
        "CREATE FUNCTION test.g() RETURNS INT MODIFIES SQL DATA BEGIN INSERT INTO test.w VALUES(1); DO SLEEP(1); RETURN 1; END",
        "CREATE VIEW test.gv AS SELECT test.g() AS x",
        "CREATE VIEW test.`view of` AS SELECT x FROM test.gv WHERE x = 1 GROUP BY x, 1",
        "CREATE VIEW hidden.gv AS SELECT x FROM test.gv",
        "CREATE DATABASE other",
        "GRANT SELECT ON other.* TO app@'%'",
        "CREATE VIEW other.gv AS SELECT x FROM test.gv",
        "CREATE VIEW test.th AS SELECT x FROM hidden.gv",
        "CREATE VIEW test.slow AS SELECT y.i, SLEEP(1) AS s FROM test.t y JOIN test.t z USING(i) GROUP BY y.i, z.i ORDER BY y.i, z.i",
        "CREATE VIEW test.slower AS WITH c AS (SELECT s FROM test.slow) SELECT CONCAT('\\'', s) AS s FROM c",
    ] {
        server.sql(sql).unwrap();
    }
    let killed = |peer: &mut Peer, sql: &str| {
        thread::scope(|scope| {
            let running = scope.spawn(|| peer.ask(sql));
            // Stored code runs as its definer.
            let is_killed = || (running.is_finished() || bed.kill_one("state LIKE 'User sleep%'")).then_some(!running.is_finished());
            let is_killed = wait::until("it to run", LIMIT, is_killed).unwrap();
            let reply = running.join().unwrap();
            assert!(is_killed || reply.err().is_some(), "{sql}: it did not run");
            reply
        })
    };
    let written = || server.scalar("SELECT COUNT(*) FROM test.w").unwrap().unwrap().parse::<u64>().unwrap();
    for encoding in BOTH {
        let reads =
            ["SELECT x FROM gv", "SELECT * FROM t, `view of`", "SELECT * FROM other.gv", "WITH z AS (SELECT * FROM th) SELECT * FROM z"];
        let more: &[&str] =
            if flavor == Flavor::Mysql { &["TABLE gv", "EXPLAIN ANALYZE SELECT * FROM gv"] } else { &["ANALYZE SELECT * FROM gv"] };
        for sql in reads.iter().chain(more) {
            let (mut peer, before) = (bed.peer(encoding), written());
            let reply = killed(&mut peer, sql);
            let error = reply.err().unwrap_or_else(|| panic!("{sql}: it was read again"));
            assert!(error.code == lab::SERVER_LOST && error.message.contains("behind a view"), "{sql}: {error:?}");
            assert_eq!(written(), before + 1, "{sql}");
            assert_eq!(peer.get("SELECT COUNT(*) FROM t"), "1", "{sql}: the session goes on");
        }
        for sql in ["SELECT i, s FROM slow", "SELECT s FROM slower", "SELECT i, SLEEP(1) FROM t"] {
            let reply = killed(&mut bed.peer(encoding), sql);
            assert!(reply.err().is_none(), "{sql}: {:?}", reply.err());
        }
    }
}

/// The server closes an idle connection, and says why, while the statement is on its way. (MariaDB closes without a word.)
#[test]
fn an_error_that_is_older_than_the_statement_says_nothing_of_it() {
    let server = Server::start(Flavor::Mysql, &Options::new()).unwrap();
    server.sql("CREATE TABLE test.t(i INT PRIMARY KEY)").unwrap();
    let relay = Relay::to(&server.address()).unwrap();
    // No role: a statement that the server never read may be sent again to any server.
    let proxy = Tidegate::builder().server(0, "127.0.0.1", relay.port()).app_user().variable("threads", 1).start().unwrap();
    let mut peer = Peer::through(&proxy, Encoding::Text);
    // Long enough for the connections to be silenced before the server closes one.
    peer.exec("SET SESSION wait_timeout=3");
    peer.exec("SELECT 1");
    relay.silence_connections();
    let mut root = server.root().unwrap();
    let gone = "SELECT COUNT(*) FROM information_schema.processlist WHERE user='app'";
    wait::until("the server to close", LIMIT, || (root.scalar(gone).unwrap().as_deref() == Some("0")).then_some(())).unwrap();
    let before = bytes_to_servers(&proxy);
    let writing = thread::spawn(move || peer.exec("INSERT INTO t VALUES(1)").ok().unwrap().affected_rows);
    wait::until("the statement to be sent", LIMIT, || (bytes_to_servers(&proxy) > before || is_running(&proxy)).then_some(())).unwrap();
    relay.resume();
    assert_eq!(writing.join().unwrap(), 1);
    assert_eq!(server.scalar("SELECT COUNT(*) FROM test.t").unwrap().as_deref(), Some("1"));
}

fn admin(proxy: &Tidegate) -> Client {
    proxy.admin().unwrap()
}

fn bytes_to_servers(proxy: &Tidegate) -> u64 {
    admin(proxy).scalar("SELECT SUM(Bytes_data_sent) FROM stats_mysql_connection_pool").unwrap().unwrap().parse().unwrap()
}

/// The statement is with a server, as far as the proxy knows.
fn is_running(proxy: &Tidegate) -> bool {
    let sql = "SELECT COUNT(*) FROM stats_mysql_processlist WHERE info LIKE 'INSERT INTO t%' AND srv_host IS NOT NULL AND srv_host<>''";
    admin(proxy).scalar(sql).unwrap().as_deref() == Some("1")
}
