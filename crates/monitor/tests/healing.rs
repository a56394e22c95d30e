//! Advice on real servers: who should take over, as a careful human would say, beside a real death and a promotion by script.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::healing::{addrs, healed, words};
use common::{LIMIT, Row, Running, WRITERS, addr};
use lab::fault::Relay;
use lab::replication::{Replication, follow, promote};
use lab::{Flavor, Options, Server, wait};
use model::ServerAddr;
use model::fleet::Operator;
use model::snapshot::Snapshot;

const FAST: &str = "monitor_read_only_interval=100, monitor_read_only_timeout=800";

/// A cluster with these addresses; `healing` are more columns of its row, `servers` rows of `mysql_healing_servers`.
fn advised(addrs: &[ServerAddr], healing: &str, servers: &str) -> Arc<Snapshot> {
    healed(addrs, FAST, healing, &format!("mysql_healing_servers = ( {servers} )"))
}

fn all(servers: &Replication) -> Vec<ServerAddr> {
    addrs(std::iter::once(&servers.primary).chain(&servers.replicas))
}

fn wait_chosen(running: &Running, server: &Server) -> Row {
    let wanted = addr(server).to_string();
    running.wait_cluster(2 * LIMIT, &format!("{wanted} to be chosen"), |row| row["would_promote"] == wanted)
}

fn wait_out(running: &Running, server: &Server, why: &str) {
    let found = wait::until(why, 2 * LIMIT, || running.healing_server(server).get("why_not").filter(|said| said.contains(why)).map(drop));
    assert!(found.is_ok(), "{why}: {:#?}", running.healing_server(server));
}

/// Statements as a user that passes `read_only`, in or out of the binary log.
fn by_hand(server: &Server, is_logged: bool, statements: &[&str]) {
    let mut root = server.root().unwrap();
    let is_mysql = server.flavor() == Flavor::Mysql;
    root.query(format!("SET sql_log_bin={}", u8::from(is_logged))).unwrap();
    let open = if is_mysql { "SET GLOBAL super_read_only=0" } else { "SET GLOBAL read_only=0" };
    let close = if is_mysql { "SET GLOBAL super_read_only=1" } else { "SET GLOBAL read_only=1" };
    for sql in std::iter::once(&open).chain(statements).chain([&close]) {
        root.query(*sql).unwrap();
    }
}

/// The first step of a plan: receivers stop. Waits until the proxy has seen it.
fn freeze(running: &Running, replicas: &[Server]) {
    for replica in replicas {
        replica.sql(words(replica, "STOP SLAVE IO_THREAD", "STOP REPLICA IO_THREAD")).unwrap();
    }
    for replica in replicas {
        wait::until("a stopped receiver", LIMIT, || (running.healing_server(replica)["io_state"] == "stopped").then_some(())).unwrap();
    }
}

/// Waits until a replica's applier has stopped with an error.
fn wait_broken(server: &Server) {
    let (sql, column) = (words(server, "SHOW SLAVE STATUS", "SHOW REPLICA STATUS"), "Last_SQL_Errno");
    wait::until("an error of the applier", LIMIT, || {
        let errno = server.sql(sql).unwrap().rows().unwrap().field(0, column);
        errno.filter(|errno| errno != "0").map(drop)
    })
    .unwrap();
}

/// Three replicas: one whose applier broke, one delayed, one with a write of its own. Then one of them is repaired, the primary dies, and
/// a script promotes that one.
fn a_careful_human_would_say_the_same(flavor: Flavor) {
    let servers = Replication::start(flavor, 3, &Options::new()).unwrap();
    let (primary, [broken, delayed, errant]) = (&servers.primary, &servers.replicas[..]) else { panic!("three replicas") };
    primary.sql("CREATE TABLE test.t (id INT PRIMARY KEY, by_whom VARCHAR(20))").unwrap();
    servers.wait_caught_up().unwrap();
    let running = Running::start(&advised(&all(&servers), ", dead_ms=1000", ""));
    let row = running.wait_cluster(2 * LIMIT, "advice", |row| row["ready"] == "1" && row["verdict"] == "alive");
    println!("{}", row["advice"]);
    assert_eq!((row["writer"].as_str(), row["would_lose"].as_str()), (addr(primary).to_string().as_str(), "0"));
    assert!(row["advice"].contains("s, nothing known to be lost"), "{row:#?}");

    // Long ago.
    by_hand(broken, false, &["INSERT INTO test.t VALUES (1, 'nobody')"]);
    primary.sql("INSERT INTO test.t VALUES (1, 'primary')").unwrap();
    wait_broken(broken);
    wait_out(&running, broken, "its applier has stopped with error 1062 (1 transaction not applied)");
    let delay = words(delayed, "CHANGE MASTER TO MASTER_DELAY=3600", "CHANGE REPLICATION SOURCE TO SOURCE_DELAY=3600");
    for sql in [words(delayed, "STOP SLAVE", "STOP REPLICA"), delay, words(delayed, "START SLAVE", "START REPLICA")] {
        delayed.sql(sql).unwrap();
    }
    wait_out(&running, delayed, "it is delayed by 3600 s on purpose");
    wait_chosen(&running, errant);
    by_hand(errant, true, &["INSERT INTO test.t VALUES (77, 'errant')"]);
    wait_out(&running, errant, "it has transactions that the writer lacks: ");
    let row = running.wait_cluster(2 * LIMIT, "a refusal", |row| row["ready"] == "0");
    println!("{}\n{:#?}", row["advice"], running.healing_server(errant));
    assert!(row["blocked_by"].starts_with("no replica may take over: "), "{row:#?}");
    assert!(row["would_promote"] == "NULL" && row["would_lose"] == "NULL", "{row:#?}");
    let steps = running.monitor.explain_healing(WRITERS, None).unwrap();
    assert!(steps.len() == 4 && steps[0].step == "blocked" && steps[3].step == "out", "{steps:#?}");
    let remarks = running.monitor.healing_remarks();
    assert!(
        remarks.iter().any(|(_, text)| text.contains("nobody could take over now: ") && text.contains("it is delayed by 3600 s")),
        "{remarks:#?}"
    );

    // Somebody repairs the first one.
    by_hand(broken, false, &["DELETE FROM test.t WHERE id = 1"]);
    broken.sql(words(broken, "START SLAVE", "START REPLICA")).unwrap();
    wait_chosen(&running, broken);
    primary.sql("INSERT INTO test.t VALUES (2, 'primary')").unwrap();
    lab::replication::wait_for(broken, &lab::replication::position(primary).unwrap()).unwrap();
    let plan = running.monitor.explain_healing(WRITERS, Some(&addr(primary))).unwrap();
    plan.iter().for_each(|step| println!("{:10} {:16} {} | {}", step.step, step.server, step.statement, step.undo));
    let open: Vec<&String> = plan.iter().filter(|step| step.step == "open").map(|step| &step.server).collect();
    assert_eq!(open, [&addr(broken).to_string()]);
    let told = running.monitor.explain_healing(WRITERS, Some(&addr(delayed))).unwrap();
    assert!(told[0].statement.contains("it still writes") && told[1].statement.contains(&addr(broken).to_string()), "{told:#?}");

    // It dies. A script promotes whom the advice names.
    primary.kill9();
    let row = running.wait_cluster(2 * LIMIT, "death", |row| row["verdict"] == "dead");
    println!("{}", row["advice"]);
    assert_eq!((row["would_promote"].as_str(), row["ready"].as_str()), (addr(broken).to_string().as_str(), "1"));
    // The advice lasts through its own first step.
    freeze(&running, &servers.replicas);
    let row = running.cluster();
    assert_eq!((row["verdict"].as_str(), row["would_promote"].as_str()), ("dead", addr(broken).to_string().as_str()), "{row:#?}");
    promote(broken).unwrap();
    assert_eq!(broken.scalar("SELECT COUNT(*) FROM test.t").unwrap().as_deref(), Some("2"), "everything is there");
    let wanted = addr(broken).to_string();
    let row = running.wait_cluster(2 * LIMIT, "the new writer", |row| row["writer"] == wanted && row["verdict"] == "alive");
    println!("{}", row["advice"]);
    wait_out(&running, delayed, &format!("it replicates from {}, not from {wanted}", addr(primary)));
    let events = running.table("stats_tidegate_events");
    let events: Vec<_> = events.iter().filter(|row| row["kind"] == "healing").map(|row| (&row["from_state"], &row["to_state"])).collect();
    println!("{events:#?}");
    for (from, to) in [("alive", "suspected"), ("suspected", "dead"), ("", "alive")] {
        assert!(events.iter().any(|event| (event.0.as_str(), event.1.as_str()) == (from, to)), "{from} -> {to}");
    }
}

#[test]
fn a_careful_human_would_say_the_same_mariadb() {
    a_careful_human_would_say_the_same(Flavor::Mariadb);
}

#[test]
fn a_careful_human_would_say_the_same_mysql() {
    a_careful_human_would_say_the_same(Flavor::Mysql);
}

/// The general log of a server, while `body` runs.
fn logged(server: &Server, body: impl FnOnce()) -> Vec<String> {
    let mut root = server.root().unwrap();
    for sql in ["SET sql_log_bin=0", "SET GLOBAL log_output='TABLE'", "TRUNCATE mysql.general_log", "SET GLOBAL general_log=1"] {
        root.query(sql).unwrap();
    }
    body();
    server.sql("SET GLOBAL general_log=0").unwrap();
    let sql = "SELECT GROUP_CONCAT(CONVERT(argument USING utf8mb4) SEPARATOR '\\0') FROM mysql.general_log \
               WHERE user_host LIKE 'monitor%' AND command_type = 'Query'";
    root.query("SET SESSION group_concat_max_len=10000000").unwrap();
    let text = root.query(sql).unwrap().rows().unwrap().field(0, "GROUP_CONCAT(CONVERT(argument USING utf8mb4) SEPARATOR '\\0')");
    text.unwrap_or_default().split('\0').map(str::to_owned).collect()
}

/// One replica is behind, so the other one is chosen. Nothing but reads is sent, and without a row nothing is.
fn advice_only_reads(flavor: Flavor) {
    let servers = Replication::start(flavor, 2, &Options::new()).unwrap();
    let [first, second] = &servers.replicas[..] else { panic!("two replicas") };
    servers.primary.sql("CREATE TABLE test.t (id INT PRIMARY KEY)").unwrap();
    servers.wait_caught_up().unwrap();
    let running = Running::start(&advised(&all(&servers), ", mode=\"off\"", ""));
    running.wait_writer(&servers.primary);
    let asks = |statements: &[String]| statements.iter().filter(|sql| sql.contains("rpl_semi_sync")).count();
    let statements = logged(first, || std::thread::sleep(Duration::from_millis(500)));
    assert!(asks(&statements) == 0 && !statements.is_empty(), "{statements:#?}");
    assert!(running.table("stats_tidegate_healing").is_empty());
    assert!(running.monitor.explain_healing(WRITERS, None).unwrap_err().contains("add a row with this writer_hostgroup to mysql_healing"));

    let port = |server: &Server| format!("{{ address=\"{}\", port={}, promotion=\"neutral\" }}", server.host(), server.port());
    running.configure(&advised(&all(&servers), "", &[port(first), port(second)].join(", ")));
    running.wait_cluster(2 * LIMIT, "advice", |row| row["ready"] == "1");
    // The one that would be chosen applies nothing for a while.
    let chosen = running.cluster()["would_promote"].clone();
    let (held, other) = if chosen == addr(first).to_string() { (first, second) } else { (second, first) };
    let mut holder = held.root().unwrap();
    holder.query("FLUSH TABLES WITH READ LOCK").unwrap();
    let statements = logged(other, || {
        for id in 0..20 {
            servers.primary.sql(&format!("INSERT INTO test.t VALUES ({id})")).unwrap();
        }
        wait_chosen(&running, other);
        wait::until("a replica that is behind", LIMIT, || (running.healing_server(held)["applied_behind"] != "0").then_some(())).unwrap();
    });
    holder.query("UNLOCK TABLES").unwrap();
    assert!(asks(&statements) > 0, "{statements:#?}");
    let reads = ["SELECT ", "SHOW ", "SET SESSION ", "SET NAMES ", "SET wait_timeout", "SET @@session"];
    let others: Vec<_> = statements.iter().filter(|sql| !reads.iter().any(|read| sql.starts_with(read))).collect();
    assert!(others.is_empty(), "{others:#?}");
}

#[test]
fn advice_only_reads_mariadb() {
    advice_only_reads(Flavor::Mariadb);
}

#[test]
fn advice_only_reads_mysql() {
    advice_only_reads(Flavor::Mysql);
}

/// Heartbeats each second.
fn follow_closely(replica: &Server) {
    let sql = words(replica, "CHANGE MASTER TO MASTER_HEARTBEAT_PERIOD=1", "CHANGE REPLICATION SOURCE TO SOURCE_HEARTBEAT_PERIOD=1");
    for sql in [words(replica, "STOP SLAVE", "STOP REPLICA"), sql, words(replica, "START SLAVE", "START REPLICA")] {
        replica.sql(sql).unwrap();
    }
}

/// A primary that this proxy alone does not reach, one that is frozen, and replicas that do not answer.
fn verdicts(flavor: Flavor) {
    let servers = Replication::start(flavor, 2, &Options::new()).unwrap();
    let primary = &servers.primary;
    if flavor == Flavor::Mysql {
        primary.sql("GRANT SELECT ON performance_schema.* TO monitor@'%'").unwrap();
        servers.wait_caught_up().unwrap();
    }
    servers.replicas.iter().for_each(follow_closely);
    let relay = Relay::to(&primary.address()).unwrap();
    let mut addrs = all(&servers);
    addrs[0] = ServerAddr { host: "127.0.0.1".into(), port: relay.port() };
    let running = Running::start(&advised(&addrs, ", dead_ms=1000, votes=2", ""));
    let wait_verdict = |verdict: &str| running.wait_cluster(2 * LIMIT, verdict, |row| row["verdict"] == verdict);
    wait_verdict("alive");
    running.wait_cluster(2 * LIMIT, "advice", |row| row["ready"] == "1");

    relay.silence_all(true);
    wait_verdict("unreachable");
    // Clients of this proxy still hear it.
    let hears = |more| running.plane.change(|told| told.received += more);
    let alive = wait::until("alive", 2 * LIMIT, || {
        hears(1);
        Some(running.cluster()).filter(|row| row["verdict"] == "alive")
    });
    alive.unwrap();
    wait_verdict("unreachable");
    relay.silence_all(false);
    relay.cut_near();
    wait_verdict("alive");

    primary.sigstop();
    wait_verdict("silent");
    primary.sigcont();
    wait_verdict("alive");

    servers.replicas[0].sigstop();
    primary.kill9();
    wait_verdict("blind");
    servers.replicas[0].sigcont();
    wait_verdict("dead");
}

#[test]
fn verdicts_mariadb() {
    verdicts(Flavor::Mariadb);
}

#[test]
fn verdicts_mysql() {
    verdicts(Flavor::Mysql);
}

/// Lossless semi-synchronous replication proves that nothing is lost, as long as enough replicas that acknowledge answer.
fn no_loss(flavor: Flavor) {
    let servers = Replication::start_semi_sync(flavor, 2, &Options::new()).unwrap();
    let primary = &servers.primary;
    primary.sql("CREATE TABLE test.t (id INT PRIMARY KEY)").unwrap();
    let running = Running::start(&advised(&all(&servers), ", dead_ms=1000, loss=\"none\"", ""));
    let blocked = |why: &str| running.wait_cluster(2 * LIMIT, why, |row| row["ready"] == "0" && row["blocked_by"].contains(why));
    blocked("AFTER_SYNC and a timeout of at least 1000000 ms");
    let timeout = words(primary, "rpl_semi_sync_master_timeout", "rpl_semi_sync_source_timeout");
    primary.sql(&format!("SET GLOBAL {timeout}=100000000")).unwrap();
    let row = running.wait_cluster(2 * LIMIT, "advice", |row| row["ready"] == "1");
    println!("{}", row["advice"]);
    assert!(row["advice"].ends_with(" s, nothing lost"), "{row:#?}");

    servers.replicas[1].sigstop();
    blocked("too few replicas that acknowledge answer: of 2 the writer needs 1");
    servers.replicas[1].sigcont();
    running.wait_cluster(2 * LIMIT, "advice", |row| row["ready"] == "1");

    // Nobody acknowledges: a commit does not return, and that is no death.
    let stop = words(primary, "STOP SLAVE IO_THREAD", "STOP REPLICA IO_THREAD");
    servers.replicas.iter().for_each(|replica| drop(replica.sql(stop).unwrap()));
    std::thread::scope(|scope| {
        scope.spawn(|| primary.sql("INSERT INTO test.t VALUES (1)").unwrap());
        running.wait_cluster(2 * LIMIT, "a commit that hangs", |row| row["verdict"] == "stuck");
        let start = words(primary, "START SLAVE IO_THREAD", "START REPLICA IO_THREAD");
        servers.replicas.iter().for_each(|replica| drop(replica.sql(start).unwrap()));
    });
    running.wait_cluster(2 * LIMIT, "life", |row| row["verdict"] == "alive" && row["ready"] == "1");
    let enabled = words(primary, "rpl_semi_sync_master_enabled", "rpl_semi_sync_source_enabled");
    primary.sql(&format!("SET GLOBAL {enabled}=0")).unwrap();
    blocked("the writer does not replicate semi-synchronously");
}

#[test]
fn no_loss_mariadb() {
    no_loss(Flavor::Mariadb);
}

#[test]
fn no_loss_mysql() {
    no_loss(Flavor::Mysql);
}

/// The proof that nothing is lost lasts after the death, though receivers acknowledge nothing any more.
fn proof_outlives_the_writer(flavor: Flavor) {
    let servers = Replication::start_semi_sync(flavor, 2, &Options::new()).unwrap();
    let primary = &servers.primary;
    let set = |mariadb: &str, mysql: &str, value: &str| {
        drop(primary.sql(&format!("SET GLOBAL {}={value}", words(primary, mariadb, mysql))).unwrap())
    };
    set("rpl_semi_sync_master_timeout", "rpl_semi_sync_source_timeout", "100000000");
    let running = Running::start(&advised(&all(&servers), ", dead_ms=1000, loss=\"none\"", ""));
    running.wait_cluster(2 * LIMIT, "advice", |row| row["ready"] == "1");
    let wait_alone = |value| set("rpl_semi_sync_master_wait_no_slave", "rpl_semi_sync_source_wait_no_replica", value);
    wait_alone("OFF");
    running
        .wait_cluster(2 * LIMIT, "a source that does not wait", |row| row["blocked_by"].contains("rpl_semi_sync_source_wait_no_replica"));
    wait_alone("ON");
    running.wait_cluster(2 * LIMIT, "advice", |row| row["ready"] == "1");
    primary.kill9();
    running.wait_cluster(2 * LIMIT, "death", |row| row["verdict"] == "dead");
    freeze(&running, &servers.replicas);
    let row = running.cluster();
    assert!(row["verdict"] == "dead" && row["advice"].ends_with("should take over, nothing lost"), "{row:#?}");
}

#[test]
fn proof_outlives_the_writer_mariadb() {
    proof_outlives_the_writer(Flavor::Mariadb);
}

#[test]
fn proof_outlives_the_writer_mysql() {
    proof_outlives_the_writer(Flavor::Mysql);
}

/// Somebody closes the primary; the proxy says so, and that is no death.
#[test]
fn a_closed_primary_is_told() {
    let servers = Replication::start(Flavor::Mariadb, 1, &Options::new()).unwrap();
    let running = Running::start(&advised(&all(&servers), "", ""));
    running.wait_cluster(2 * LIMIT, "advice", |row| row["verdict"] == "alive");
    lab::replication::set_read_only(&servers.primary, true).unwrap();
    running.wait_cluster(2 * LIMIT, "closed", |row| row["verdict"] == "closed");
}

/// What the monitor's user may not see is named with its GRANT, and what makes advice worse with its cure.
#[test]
fn missing_rights_and_bad_settings_are_named() {
    let mysql = Replication::start(Flavor::Mysql, 1, &Options::new()).unwrap();
    let running = Running::start(&advised(&all(&mysql), "", ""));
    let has = |remarks: &[(model::HostgroupId, String)], text: &str| remarks.iter().any(|(_, said)| said.contains(text));
    let found =
        wait::until("remarks", LIMIT, || Some(running.monitor.healing_remarks()).filter(|remarks| has(remarks, "replica_net_timeout")));
    let remarks = found.unwrap_or_else(|_| panic!("{:#?}", running.monitor.healing_remarks()));
    println!("{remarks:#?}");
    assert!(has(&remarks, "GRANT SELECT ON performance_schema.* TO the monitor's user (monitor)"), "{remarks:#?}");
    assert!(has(&remarks, "replica_net_timeout is 60 s"), "{remarks:#?}");
    drop(running);

    let options = Options::new().args(["--log-slave-updates=0", "--gtid-strict-mode=0"]);
    let source = Server::start(Flavor::Mariadb, &Options::new().arg("--log-bin=bin")).unwrap();
    let replica = Server::start(Flavor::Mariadb, &options).unwrap();
    follow(&replica, &source).unwrap();
    lab::replication::set_read_only(&replica, true).unwrap();
    let running = Running::start(&advised(&[addr(&source), addr(&replica)], "", ""));
    running.wait_writer(&source);
    let found = wait::until("remarks", LIMIT, || {
        let remarks = running.monitor.healing_remarks();
        has(&remarks, "it has no binary log (log_bin), so no replica could follow it").then_some(remarks)
    });
    let remarks = found.unwrap_or_else(|_| panic!("{:#?}", running.monitor.healing_remarks()));
    println!("{remarks:#?}");
    assert!(has(&remarks, "gtid_strict_mode is OFF") && has(&remarks, "nobody could take over now"), "{remarks:#?}");
    // The right to see replication goes.
    by_hand(&replica, false, &["REVOKE REPLICATION CLIENT, REPLICA MONITOR ON *.* FROM monitor@'%'", "KILL USER monitor"]);
    wait_out(&running, &replica, "the monitor's user needs REPLICA MONITOR");
}
