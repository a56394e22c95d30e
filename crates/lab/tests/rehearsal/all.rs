//! Rehearsals in mode `all`: whole sessions run on a copy that left replication, and its data stays equal.

use super::Rehearsal;
use super::common::{LIMIT, Peer};
use lab::client::{Encoding, Param, Prepared};
use lab::replication::{Replication, set_read_only, switchover_rights};
use lab::tidegate::Setting;
use lab::{Client, Flavor, LabError, Options, Server, Tidegate, wait};
use rustix::process::Signal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a shadow may be behind at the end of a test.
const CATCH_UP: Duration = Duration::from_secs(240);

/// A primary and the replica that becomes the shadow: of the next version where there is one.
pub(super) fn servers(flavor: Flavor) -> Replication {
    let options = Options::new();
    let shadow = if flavor == Flavor::Mariadb { options.clone().mariadb("11.8") } else { options.clone() };
    let servers = Replication::start_each(flavor, &options, &[shadow]).unwrap();
    servers.allow_switchover().unwrap();
    servers
}

/// A proxy with the rehearsal `new` of hostgroup 0 in hostgroup 9.
pub(super) fn proxy(servers: &Replication, more: &[(&str, Setting)]) -> Tidegate {
    let mut row: Vec<(&str, Setting)> = vec![
        ("name", "new".into()),
        ("source_hostgroup", 0.into()),
        ("shadow_hostgroup", 9.into()),
        ("mode", "all".into()),
        ("percent", "100".into()),
        ("warmup_s", 0.into()),
    ];
    row.extend(more.iter().cloned());
    let builder = Tidegate::builder().backend(0, &servers.primary).backend(9, &servers.replicas[0]).app_user();
    let builder = builder.row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())]);
    builder.variable("threads", 2).variable("switchover_timeout_ms", 6_000).row("mysql_rehearsals", &row).start().unwrap()
}

const TABLES: [&str; 5] = ["customers", "orders", "order_lines", "counters", "documents"];

fn create(primary: &Server) {
    let mut root = primary.root().unwrap();
    for sql in [
        "USE test",
        "CREATE TABLE customers (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(40))",
        "CREATE TABLE orders (id INT AUTO_INCREMENT PRIMARY KEY, customer INT NOT NULL, note VARCHAR(40), \
         FOREIGN KEY (customer) REFERENCES customers (id))",
        "CREATE TABLE order_lines (id INT AUTO_INCREMENT PRIMARY KEY, of_order INT NOT NULL, n INT, \
         FOREIGN KEY (of_order) REFERENCES orders (id))",
        "CREATE TABLE counters (name VARCHAR(10) PRIMARY KEY, n INT, seen INT)",
        "INSERT INTO counters VALUES ('a', 0, 0), ('b', 0, 0), ('c', 0, 0)",
        "CREATE TABLE documents (id INT AUTO_INCREMENT PRIMARY KEY, client INT, body LONGTEXT)",
        "CREATE TABLE moments (id INT PRIMARY KEY, at DATETIME DEFAULT CURRENT_TIMESTAMP)",
    ] {
        root.run(sql).unwrap();
    }
}

/// A client of a shop.
struct Shopper<'a> {
    peer: Peer,
    proxy: &'a Tidegate,
    client: usize,
    document: Prepared,
    line: Prepared,
}

impl<'a> Shopper<'a> {
    fn new(proxy: &'a Tidegate, client: usize) -> Self {
        // Clients may wait for the shadow.
        let options = proxy.options("app", "app-pass").database("test").timeout(CATCH_UP);
        let mut peer = Peer::with(&options, Encoding::Text);
        let (document, line) = Self::prepare(&mut peer);
        Self { peer, proxy, client, document, line }
    }

    fn prepare(peer: &mut Peer) -> (Prepared, Prepared) {
        let document = peer.prepare("INSERT INTO documents (client, body) VALUES (?, ?)").unwrap();
        (document, peer.prepare("INSERT INTO order_lines (of_order, n) VALUES (?, ?)").unwrap())
    }

    /// One transaction of those that shops have.
    fn shop(&mut self, round: usize) {
        let (client, counter) = (self.client, ["a", "b", "c"][round % 3]);
        let peer = &mut self.peer;
        match round % 8 {
            0 | 1 => {
                peer.exec("BEGIN");
                peer.exec(&format!("INSERT INTO customers (name) VALUES ('customer {client} {round}')"));
                peer.exec("INSERT INTO orders (customer, note) VALUES (LAST_INSERT_ID(), 'new')");
                peer.exec("SET @ordered = LAST_INSERT_ID()");
                peer.exec("INSERT INTO order_lines (of_order, n) VALUES (@ordered, 1), (@ordered, 2), (@ordered, 3)");
                let ordered: i64 = peer.get("SELECT @ordered").parse().unwrap();
                peer.execute(&self.line, &[Param::Int(ordered), Param::Int(4)]).unwrap().check().unwrap();
                peer.exec("UPDATE orders SET note = CONCAT('order ', id) WHERE id = @ordered");
                peer.exec("SELECT COUNT(*), SUM(n) FROM order_lines WHERE of_order = @ordered");
                peer.exec("COMMIT");
            }
            2 | 3 => {
                peer.exec("START TRANSACTION");
                peer.exec(&format!("INSERT INTO counters VALUES ('{counter}', 1, 1) ON DUPLICATE KEY UPDATE n = n + 1"));
                peer.exec(&format!("SELECT n FROM counters WHERE name = '{counter}' FOR UPDATE"));
                peer.exec("SAVEPOINT before_it");
                peer.exec(&format!("UPDATE counters SET n = n * 2 + {client} WHERE name = '{counter}'"));
                peer.exec(if round.is_multiple_of(2) { "ROLLBACK TO before_it" } else { "RELEASE SAVEPOINT before_it" });
                peer.exec(&format!("UPDATE counters SET seen = n, n = n % 100000 WHERE name = '{counter}'"));
                peer.exec("COMMIT");
            }
            4 => {
                for part in 0..2 {
                    peer.send_long_data(&self.document, 1, format!("part {part} of {client}, ").repeat(1 + round % 500).as_bytes())
                        .unwrap();
                }
                peer.execute(&self.document, &[Param::Int(client as i64), Param::Long]).unwrap().check().unwrap();
                peer.exec("SELECT LENGTH(body) FROM documents WHERE id = LAST_INSERT_ID()");
            }
            5 => {
                // Ids that nobody gets.
                peer.exec_all(&["BEGIN", "INSERT INTO customers (name) VALUES ('nobody'), ('no one')", "ROLLBACK"]);
                peer.exec(&format!("INSERT INTO moments (id) VALUES ({})", client * 1_000_000 + round));
            }
            6 => {
                peer.exec_all(&["SET sql_mode = 'ANSI'", "SET @@session.time_zone = '+02:00', @a = 5"]);
                peer.exec("PREPARE one FROM 'INSERT INTO customers (name) VALUES (CONCAT(''x'', ?))'");
                peer.exec_all(&["EXECUTE one USING @a", "DEALLOCATE PREPARE one", "SET sql_mode = DEFAULT, time_zone = DEFAULT"]);
                peer.exec("REPLACE INTO customers (id, name) VALUES (LAST_INSERT_ID(), 'replaced')");
            }
            _ => {
                if round.is_multiple_of(16) {
                    peer.reset_connection().unwrap().check().unwrap();
                } else {
                    peer.change_user(&self.proxy.options("app", "app-pass").database("test")).unwrap();
                }
                peer.exec_all(&["USE test", "CREATE TEMPORARY TABLE own (a INT)", "INSERT INTO own VALUES (1), (2)"]);
                peer.exec("INSERT INTO customers (name) SELECT CONCAT('own ', a) FROM own ORDER BY a LIMIT 1");
                peer.exec("DROP TEMPORARY TABLE own");
                (self.document, self.line) = Self::prepare(peer);
            }
        }
    }
}

/// Sums of all tables.
fn sums(server: &Server) -> Vec<Option<String>> {
    let mut root = server.root().unwrap();
    let names = TABLES.map(|table| format!("test.{table}")).join(", ");
    let rows = root.run(format!("CHECKSUM TABLE {names}")).unwrap().table().unwrap();
    rows.into_iter().map(|mut row| row.swap_remove(1)).collect()
}

/// Clients shop, and the rehearsal begins amid of that. If the proxy `stalls`, it stands still now and then, while servers work.
fn shop(proxy: &Tidegate, clients: usize, rounds: usize, stalls: bool) -> Rehearsal {
    let done = AtomicU64::new(0);
    let all = (clients * rounds) as u64;
    std::thread::scope(|scope| {
        for client in 0..clients {
            let done = &done;
            scope.spawn(move || {
                let mut shopper = Shopper::new(proxy, client);
                for round in 0..rounds {
                    shopper.shop(round + client);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let part = (clients * rounds / 4).min(1_000) as u64;
        wait::until("clients at work", Duration::from_secs(60), || (done.load(Ordering::Relaxed) >= part).then_some(())).unwrap();
        let mut admin = wait::until("the admin port", LIMIT, || proxy.admin().ok()).unwrap();
        let began = admin.run("START REHEARSAL 'new'").unwrap();
        println!("{began:?}; {} of {all} rounds done", done.load(Ordering::Relaxed));
        assert!(done.load(Ordering::Relaxed) < all, "the rehearsal began too late");
        let latest = Instant::now() + CATCH_UP;
        while stalls && done.load(Ordering::Relaxed) < all && Instant::now() < latest {
            proxy.signal(Signal::STOP);
            std::thread::sleep(Duration::from_millis(60));
            proxy.signal(Signal::CONT);
            std::thread::sleep(Duration::from_millis(60));
        }
        Rehearsal(admin)
    })
}

/// Waits until the tables are equal.
fn equal_in_the_end(servers: &Replication, rehearsal: &mut Rehearsal, catch_up: Duration) {
    let [primary, shadow] = [&servers.primary, &servers.replicas[0]];
    let mut is_done = || {
        let is_whole = rehearsal.number("given_up") == 0;
        assert!(is_whole, "{}\n{:#?}", rehearsal.page(), rehearsal.samples());
        (rehearsal.get("queued_bytes") == "0" && sums(primary) == sums(shadow)).then_some(())
    };
    let waited = wait::until("equal tables", catch_up, &mut is_done);
    assert!(waited.is_ok(), "{:?} and {:?}\n{}", sums(primary), sums(shadow), rehearsal.page());
}

fn whole_sessions(flavor: Flavor) {
    copy_whole_sessions(flavor, 40, 80, false, CATCH_UP);
}

/// Replies come late and in another order than the servers gave them.
fn whole_sessions_beside_stalls(flavor: Flavor) {
    copy_whole_sessions(flavor, 24, 60, true, CATCH_UP);
}

fn copy_whole_sessions(flavor: Flavor, clients: usize, rounds: usize, stalls: bool, catch_up: Duration) {
    let servers = servers(flavor);
    create(&servers.primary);
    servers.wait_caught_up().unwrap();
    // Clients wait for the shadow again and again.
    let proxy = proxy(&servers, &[("on_full", "wait".into()), ("wait_ms", 60_000.into()), ("queue_mb", 1.into())]);
    let mut rehearsal = shop(&proxy, clients, rounds, stalls);
    equal_in_the_end(&servers, &mut rehearsal, catch_up);
    let page = rehearsal.page();
    println!("{page}");
    assert_eq!((rehearsal.number("given_up"), rehearsal.number("bad"), rehearsal.get("error").as_str()), (0, 0, ""), "{page}");
    assert!(page.contains("incomplete: none") && rehearsal.number("compared") > (clients * rounds) as u64, "{page}");
    let moments = |server: &Server| -> Vec<i64> {
        let rows = server.root().unwrap().run("SELECT UNIX_TIMESTAMP(at) FROM test.moments ORDER BY id").unwrap().table().unwrap();
        rows.into_iter().map(|row| row[0].as_ref().unwrap().parse().unwrap()).collect()
    };
    let [of_primary, of_shadow] = [&servers.primary, &servers.replicas[0]].map(moments);
    assert_eq!(of_primary.len(), of_shadow.len());
    assert!(of_primary.iter().zip(&of_shadow).all(|(one, other)| one.abs_diff(*other) <= 1), "defaults have the original's time");
    // The shadow is a database of its own from now on, and an event says so.
    let events = "SELECT seen FROM stats_tidegate_events WHERE to_state='left replication'";
    let event = rehearsal.0.scalar(events).unwrap().unwrap_or_default();
    assert!(event.contains("rebuild it before it replicates again"), "{event}");
    rehearsal.0.run("STOP REHEARSAL 'new'").unwrap();
    let mut peer = Peer::through(&proxy, Encoding::Text);
    peer.exec("INSERT INTO customers (name) VALUES ('behind the end')");
    assert_eq!(servers.replicas[0].scalar("SELECT COUNT(*) FROM test.customers WHERE name = 'behind the end'").unwrap().unwrap(), "0");
    assert!(!is_replicating(&servers.replicas[0]));
}

fn is_replicating(server: &Server) -> bool {
    let (sql, columns) = match server.flavor() {
        Flavor::Mariadb => ("SHOW SLAVE STATUS", ["Slave_IO_Running", "Slave_SQL_Running"]),
        Flavor::Mysql => ("SHOW REPLICA STATUS", ["Replica_IO_Running", "Replica_SQL_Running"]),
    };
    let reply = server.sql(sql).unwrap();
    let rows = reply.rows().unwrap();
    columns.iter().all(|column| rows.field(0, column).as_deref() == Some("Yes"))
}

/// What is given up is given up whole, the youngest sessions first; the rows of the others are equal.
fn a_stopped_shadow_loses_the_youngest_sessions(flavor: Flavor) {
    lose_the_youngest_sessions(flavor, 8, 1);
}

fn lose_the_youngest_sessions(flavor: Flavor, clients: usize, queue_mb: i64) {
    let servers = servers(flavor);
    let shadow = &servers.replicas[0];
    let mut root = servers.primary.root().unwrap();
    for client in 0..clients {
        root.run(format!("CREATE TABLE test.own_{client} (id INT AUTO_INCREMENT PRIMARY KEY, filler TEXT)")).unwrap();
    }
    servers.wait_caught_up().unwrap();
    let proxy = proxy(&servers, &[("queue_mb", queue_mb.into())]);
    let mut rehearsal = Rehearsal::start(&proxy);
    let mut peers: Vec<Peer> = (0..clients).map(|_| Peer::through(&proxy, Encoding::Text)).collect();
    let filler = "x".repeat(5_000);
    let mut insert_all = || {
        for (client, peer) in peers.iter_mut().enumerate() {
            peer.exec(&format!("INSERT INTO own_{client} (filler) VALUES ('{filler}')"));
        }
    };
    (0..5).for_each(|_| insert_all());
    rehearsal.settled();
    shadow.sigstop();
    let mut rounds = 5;
    while rehearsal.number("given_up") < 3 {
        insert_all();
        rounds += 1;
        assert!(rounds < 2_000, "nothing is given up: {}", rehearsal.page());
    }
    assert!(rehearsal.number("queued_bytes") <= (queue_mb as u64) << 20);
    shadow.sigcont();
    rehearsal.settled();
    insert_all();
    rehearsal.settled();
    let page = rehearsal.page();
    println!("{page}");
    let lost = rehearsal.number("given_up") as usize;
    assert!((3..clients).contains(&lost) && page.contains(&format!("incomplete: {lost} queue full")), "{page}");
    let count = |server: &Server, client| server.scalar(&format!("SELECT COUNT(*) FROM test.own_{client}")).unwrap().unwrap();
    for client in 0..clients {
        let is_equal =
            wait::until("the rows", Duration::from_secs(2), || (count(&servers.primary, client) == count(shadow, client)).then_some(()));
        assert_eq!(is_equal.is_ok(), client < clients - lost, "client {client}\n{page}");
    }
    assert_eq!(rehearsal.number("bad"), 0, "{page}");
}

/// A statement that waited too long for a lock on the shadow alone runs again, in its transaction.
fn a_lock_on_the_shadow_is_waited_for(flavor: Flavor) {
    let servers = servers(flavor);
    create(&servers.primary);
    servers.wait_caught_up().unwrap();
    let proxy = proxy(&servers, &[("order_wait_ms", 1_000.into())]);
    let mut rehearsal = Rehearsal::start(&proxy);
    let mut holds = servers.replicas[0].root().unwrap();
    holds.run("BEGIN").unwrap();
    holds.run("SELECT n FROM test.counters WHERE name = 'b' FOR UPDATE").unwrap();
    let mut peer = Peer::through(&proxy, Encoding::Text);
    for name in ["a", "b"] {
        peer.exec("BEGIN");
        peer.exec(&format!("UPDATE counters SET n = n + 1 WHERE name = '{name}'"));
        peer.exec("UPDATE counters SET n = n + 1 WHERE name = 'b'");
        peer.exec("COMMIT");
    }
    let waits =
        "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT' AND trx_started < NOW() - INTERVAL 2 SECOND";
    let is_waiting = || (servers.replicas[0].scalar(waits).unwrap()? == "1").then_some(());
    wait::until_transactions("a statement to wait again", LIMIT, is_waiting).unwrap();
    holds.run("ROLLBACK").unwrap();
    equal_in_the_end(&servers, &mut rehearsal, CATCH_UP);
    let page = rehearsal.page();
    assert!(page.contains("incomplete: none") && rehearsal.number("bad") == 0, "{page}");
}

/// Without its index, an UPDATE locks all rows of a table on the shadow until its transaction ends. At the original other sessions have gone
/// on meanwhile, and its COMMIT came behind theirs.
fn the_transaction_that_holds_the_lock_goes_on(flavor: Flavor) {
    let servers = servers(flavor);
    create(&servers.primary);
    let mut root = servers.primary.root().unwrap();
    root.run("CREATE TABLE test.stock (id INT AUTO_INCREMENT PRIMARY KEY, place INT, n INT, KEY of_place (place))").unwrap();
    root.run(
        "INSERT INTO test.stock (place, n) SELECT seq.a * 10 + other.a, 0 FROM (SELECT 0 AS a UNION SELECT 1 UNION SELECT 2) seq, \
              (SELECT 0 AS a UNION SELECT 1 UNION SELECT 2 UNION SELECT 3) other",
    )
    .unwrap();
    servers.wait_caught_up().unwrap();
    let proxy = proxy(&servers, &[("order_wait_ms", 4_000.into())]);
    let mut rehearsal = Rehearsal::start(&proxy);
    servers.replicas[0].sql("ALTER TABLE test.stock DROP KEY of_place").unwrap();
    let [mut holder, mut other, mut third] = [(); 3].map(|()| Peer::through(&proxy, Encoding::Text));
    holder.exec_all(&["BEGIN", "UPDATE stock SET n = n + 1 WHERE place = 1"]);
    other.exec_all(&["BEGIN", "UPDATE stock SET n = n + 1 WHERE place = 2", "UPDATE stock SET n = n + 1 WHERE place = 3", "COMMIT"]);
    third.exec("UPDATE stock SET n = n + 1 WHERE place = 11");
    other.exec("INSERT INTO customers (name) VALUES ('behind it')");
    holder.exec_all(&["UPDATE stock SET n = n + 1 WHERE place = 2", "COMMIT"]);
    third.exec("INSERT INTO customers (name) VALUES ('behind all')");
    rehearsal.settled();
    let page = rehearsal.page();
    assert!(page.contains("incomplete: none") && rehearsal.number("bad") == 0, "{page}");
    for sql in ["SELECT GROUP_CONCAT(n ORDER BY id) FROM test.stock", "SELECT GROUP_CONCAT(id, name ORDER BY id) FROM test.customers"] {
        assert_eq!(servers.primary.scalar(sql).unwrap(), servers.replicas[0].scalar(sql).unwrap(), "{page}");
    }
}

lab::each!(
    whole_sessions,
    the_transaction_that_holds_the_lock_goes_on,
    whole_sessions_beside_stalls,
    a_lock_on_the_shadow_is_waited_for,
    a_stopped_shadow_loses_the_youngest_sessions
);

/// The same at size. Too long for each run: `cargo test -p lab --test rehearsal at_size -- --ignored --nocapture --test-threads 1`.
mod at_size {
    use super::{Flavor, copy_whole_sessions, lose_the_youngest_sessions};
    use std::time::Duration;

    /// Clients, transactions of each, and how long the shadow may be behind at the end.
    fn copies(flavor: Flavor) {
        let size = |name: &str, default| std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default);
        copy_whole_sessions(flavor, size("LAB_CLIENTS", 40), size("LAB_ROUNDS", 3_000), false, Duration::from_secs(3_600));
    }

    #[test]
    #[ignore = "40 clients and 120,000 transactions take long"]
    fn whole_sessions_mariadb() {
        copies(Flavor::Mariadb);
    }

    #[test]
    #[ignore = "40 clients and 120,000 transactions take long"]
    fn whole_sessions_mysql() {
        copies(Flavor::Mysql);
    }

    #[test]
    #[ignore = "40 clients fill a queue of 16 MiB"]
    fn a_stopped_shadow_mariadb() {
        lose_the_youngest_sessions(Flavor::Mariadb, 40, 16);
    }

    #[test]
    #[ignore = "40 clients fill a queue of 16 MiB"]
    fn a_stopped_shadow_mysql() {
        lose_the_youngest_sessions(Flavor::Mysql, 40, 16);
    }
}

fn fails(admin: &mut Client, sql: &str, named: &str) {
    let error = admin.run(sql).unwrap_err().to_string();
    println!("{error}");
    assert!(error.contains(named), "{sql}: {error}");
}

#[test]
fn a_shadow_that_cannot_be_is_refused_and_replicates_on() {
    let servers = Replication::start(Flavor::Mariadb, 1, &Options::new()).unwrap();
    let (primary, shadow) = (&servers.primary, &servers.replicas[0]);
    primary.sql("CREATE TABLE test.t (id INT AUTO_INCREMENT PRIMARY KEY)").unwrap();
    servers.wait_caught_up().unwrap();
    let proxy = proxy(&servers, &[]);
    let mut admin = wait::until("the admin port", LIMIT, || proxy.admin().ok()).unwrap();
    const START: &str = "START REHEARSAL 'new'";
    // Rights.
    fails(&mut admin, START, "REPLICATION SLAVE ADMIN ON *.*");
    primary.sql("GRANT REPLICATION SLAVE ADMIN ON *.* TO monitor@'%'").unwrap();
    servers.wait_caught_up().unwrap();
    fails(&mut admin, START, "READ_ONLY ADMIN");
    primary.sql(switchover_rights(Flavor::Mariadb)).unwrap();
    servers.wait_caught_up().unwrap();
    // In use.
    let port = shadow.port();
    let insert = format!("INSERT INTO mysql_servers (hostgroup_id, hostname, port) VALUES (1, '127.0.0.1', {port})");
    for (change, named) in [
        (insert.as_str(), "is in hostgroup 1 too"),
        ("DELETE FROM mysql_servers WHERE hostgroup_id = 1", ""),
        ("UPDATE mysql_replication_hostgroups SET reader_hostgroup = 9", "shadow_hostgroup 9 has 2 ONLINE servers"),
        ("UPDATE mysql_replication_hostgroups SET reader_hostgroup = 1", ""),
    ] {
        admin.run(change).unwrap();
        admin.run("LOAD MYSQL SERVERS TO RUNTIME").unwrap();
        if !named.is_empty() {
            fails(&mut admin, START, named);
        }
    }
    // An open transaction: all is undone.
    let mut peer = Peer::through(&proxy, Encoding::Text);
    peer.exec_all(&["BEGIN", "INSERT INTO t VALUES ()"]);
    fails(&mut admin, START, "1 sessions still use hostgroup 0, 1 of them in a transaction");
    peer.exec_all(&["COMMIT", "CREATE TEMPORARY TABLE own (a INT)"]);
    fails(&mut admin, START, "temporary_table");
    peer.exec("DROP TEMPORARY TABLE own");
    // Replication.
    set_read_only(shadow, false).unwrap();
    fails(&mut admin, START, "has read_only=0");
    set_read_only(shadow, true).unwrap();
    shadow.sql("STOP SLAVE SQL_THREAD").unwrap();
    fails(&mut admin, START, "does not replicate from");
    shadow.sql("START SLAVE").unwrap();
    wait::until("the replica", LIMIT, || is_replicating(shadow).then_some(())).unwrap();
    peer.exec("INSERT INTO t VALUES ()");
    servers.wait_caught_up().unwrap();
    assert!(is_replicating(shadow), "each refusal left it as it was");
    // It begins, and no other one does.
    admin.run(START).unwrap();
    assert!(!is_replicating(shadow));
    fails(&mut admin, START, "already runs");
    peer.exec("INSERT INTO t VALUES ()");
    let count = || shadow.scalar("SELECT COUNT(*) FROM test.t").unwrap().unwrap();
    wait::until("the copy", LIMIT, || (count() == "3").then_some(())).unwrap();
    // What cannot be copied is counted, and the session goes on behind it.
    peer.exec("SELECT GET_LOCK('a', 1)");
    peer.ask("SET GLOBAL max_connect_errors = 77");
    admin.run("STOP REHEARSAL 'new'").unwrap();
    let left_out = "SELECT skipped FROM stats_tidegate_rehearsals WHERE name = 'new'";
    assert_eq!(admin.scalar(left_out).unwrap().as_deref(), Some("2"));
    set_read_only(shadow, true).unwrap();
    for mode in ["all", "reads"] {
        admin.run(format!("UPDATE mysql_rehearsals SET mode = '{mode}'")).unwrap();
        admin.run("LOAD MYSQL QUERY RULES TO RUNTIME").unwrap();
        fails(&mut admin, START, "left replication at");
    }
}

#[test]
fn servers_that_do_not_replicate_are_refused() -> Result<(), LabError> {
    let [original, other] = [1, 2].map(|_| Server::start(Flavor::Mariadb, &Options::new()).unwrap());
    set_read_only(&other, true)?;
    let plain = Replication { primary: original, replicas: vec![other] };
    let proxy = proxy(&plain, &[]);
    let mut admin = wait::until("the admin port", LIMIT, || proxy.admin().ok())?;
    fails(&mut admin, "START REHEARSAL 'new'", "writes no GTIDs");
    let servers = Replication::start(Flavor::Mariadb, 0, &Options::new())?;
    let stranger = Server::start(Flavor::Mariadb, &Options::new())?;
    set_read_only(&stranger, true)?;
    let pair = Replication { primary: servers.primary, replicas: vec![stranger] };
    let proxy = self::proxy(&pair, &[]);
    let mut admin = wait::until("the admin port", LIMIT, || proxy.admin().ok())?;
    fails(&mut admin, "START REHEARSAL 'new'", "is not a replica of");
    Ok(())
}
