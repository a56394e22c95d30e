//! Replicas that follow, refuse writes, and can take over; and a proxy before them whose monitor is switched off.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

use std::time::Duration;

use lab::replication::{fail_over, follow, promote, switch_over, wait_for};
use lab::{Flavor, Options, Replication, Server, Tidegate, wait};

fn follows_and_fails_over(flavor: Flavor) {
    let topology = Replication::start(flavor, 1, &Options::new()).unwrap();
    let (primary, replica) = (&topology.primary, &topology.replicas[0]);
    primary.sql("CREATE TABLE test.t(i INT PRIMARY KEY)").unwrap();
    topology.wait_caught_up().unwrap();
    assert_eq!(replica.scalar("SELECT COUNT(*) FROM test.t").unwrap().as_deref(), Some("0"));
    assert_eq!(replica.scalar("SELECT @@read_only").unwrap().as_deref(), Some("1"));
    primary.kill9();
    promote(replica).unwrap();
    replica.sql("INSERT INTO test.t VALUES(1)").unwrap();
    primary.restart().unwrap();
    follow(primary, replica).unwrap();
}

/// Back and forth in good order, then the crash of the primary.
fn changes_roles(flavor: Flavor) {
    let servers = Replication::start_semi_sync(flavor, 2, &Options::new()).unwrap().into_servers();
    let [a, b, c] = &servers[..] else { panic!("three servers") };
    a.sql("CREATE TABLE test.t(i INT PRIMARY KEY)").unwrap();
    a.sql("INSERT INTO test.t VALUES(1)").unwrap();
    switch_over(a, b, &[c]).unwrap();
    b.sql("INSERT INTO test.t VALUES(2)").unwrap();
    switch_over(b, a, &[c]).unwrap();
    a.sql("INSERT INTO test.t VALUES(3)").unwrap();
    wait_for(b, &lab::replication::position(a).unwrap()).unwrap();
    a.kill9();
    let alive = [b, c];
    let next: &Server = alive[fail_over(&alive).unwrap().place];
    next.sql("INSERT INTO test.t VALUES(4)").unwrap();
    assert_eq!(next.scalar("SELECT COUNT(*) FROM test.t").unwrap().as_deref(), Some("4"));
}

lab::each!(follows_and_fails_over);

lab::each!(changes_roles);

/// The old primary came back writable after a failover, and is kept out: it gets no write when the monitor is switched off.
#[test]
fn roles_are_frozen_while_the_monitor_is_off() {
    let cluster = Replication::start(Flavor::Mariadb, 1, &Options::new()).unwrap();
    let (old, new) = (&cluster.primary, &cluster.replicas[0]);
    old.sql("CREATE TABLE test.t(i INT PRIMARY KEY)").unwrap();
    cluster.wait_caught_up().unwrap();
    let builder = Tidegate::builder().app_user().backend(0, old).backend(1, new);
    let builder = builder.row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())]);
    let proxy = builder.start().unwrap();
    let mut admin = proxy.admin().unwrap();
    let mut shows = |what: &str, sql: &str| {
        let is_so = || (admin.run(sql).ok()?.scalar().ok()?? != "0").then_some(());
        wait::until(what, Duration::from_secs(30), is_so).unwrap();
    };
    let writes = |server: &Server| {
        format!("SELECT COUNT(*) FROM runtime_mysql_servers WHERE hostgroup_id=0 AND status='ONLINE' AND port={}", server.port())
    };
    shows("the writer", &writes(old));
    old.kill9();
    promote(new).unwrap();
    shows("the new writer", &writes(new));
    old.restart().unwrap();
    assert_eq!(old.scalar("SELECT @@read_only").unwrap().as_deref(), Some("0"));
    shows("it is kept out", "SELECT COUNT(*) FROM stats_tidegate_events WHERE to_state='kept out' OR why LIKE 'it came back writable%'");
    let mut order = proxy.admin().unwrap();
    order.run("SET mysql-monitor_enabled='false'").unwrap();
    order.run("LOAD MYSQL VARIABLES TO RUNTIME").unwrap();
    proxy.connect_app().unwrap().run("INSERT INTO test.t VALUES(1)").unwrap();
    let rows = |server: &Server| server.scalar("SELECT COUNT(*) FROM test.t").unwrap();
    assert_eq!((rows(new).as_deref(), rows(old).as_deref()), (Some("1"), Some("0")));
    shows("an event", "SELECT COUNT(*) FROM stats_tidegate_events WHERE to_state='frozen'");
    shows("the writer stays", &writes(new));
    // A LOAD that changes nothing says so; one that does is obeyed.
    let told = order.run("LOAD MYSQL SERVERS TO RUNTIME").unwrap().ok().unwrap().info.clone();
    let [kept_out, writer] = [old, new].map(|server| format!("127.0.0.1:{}", server.port()));
    assert!(told.contains(&format!("{writer} writes for hostgroup 0 without a row there, {kept_out} does not write")), "{told}");
    order.run(format!("UPDATE mysql_servers SET hostgroup_id=1 WHERE port={}", old.port())).unwrap();
    order.run(format!("UPDATE mysql_servers SET hostgroup_id=0 WHERE port={}", new.port())).unwrap();
    let told = order.run("LOAD MYSQL SERVERS TO RUNTIME").unwrap().ok().unwrap().info.clone();
    assert!(!told.contains("roles stay"), "{told}");
    shows("the writer stays", &writes(new));
}

/// A cut-over as public scripts do it: the old writer is SHUNNED by its row and goes on taking writes, and the new one is promoted.
///
/// No row that clients insert meanwhile is on the old one only.
fn cuts_over_with_a_shunned_row(flavor: Flavor) {
    let cluster = Replication::start(flavor, 1, &Options::new()).unwrap();
    let (old, new) = (&cluster.primary, &cluster.replicas[0]);
    old.sql("CREATE TABLE test.t(i INT PRIMARY KEY AUTO_INCREMENT)").unwrap();
    old.sql("INSERT INTO test.t VALUES(1)").unwrap();
    cluster.wait_caught_up().unwrap();
    let builder = Tidegate::builder().app_user().variable("demotion_grace_ms", 200);
    let builder = builder.row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())]);
    let proxy = builder.backend(0, old).backend(1, new).start().unwrap();
    let [mut admin, mut watch] = [(); 2].map(|()| proxy.admin().unwrap());
    let mut order = |sql: String| admin.run(sql).unwrap().check().unwrap();
    let mut shows = |what: &str, status: &str, server: &Server| {
        let sql =
            format!("SELECT COUNT(*) FROM runtime_mysql_servers WHERE hostgroup_id=0 AND status='{status}' AND port={}", server.port());
        let is_so = || (watch.run(&sql).ok()?.scalar().ok()?? == "1").then_some(());
        wait::until(what, Duration::from_secs(30), is_so).unwrap();
    };
    shows("the writer", "ONLINE", old);
    let mut open = proxy.connect_app().unwrap();
    open.run("BEGIN").unwrap();
    open.run("INSERT INTO test.t VALUES(0)").unwrap();
    order(format!("UPDATE mysql_servers SET status='SHUNNED' WHERE port={}", old.port()));
    order("LOAD MYSQL SERVERS TO RUNTIME".into());
    shows("the old one is out", "SHUNNED", old);
    wait::until("its transactions end", Duration::from_secs(30), || open.query("SELECT 1").ok()?.err().map(drop)).unwrap();
    promote(new).unwrap();
    shows("the new one writes", "ONLINE", new);
    for _ in 0..50 {
        proxy.connect_app().unwrap().run("INSERT INTO test.t VALUES(NULL)").unwrap();
    }
    let rows = |server: &Server| server.scalar("SELECT COUNT(*) FROM test.t").unwrap().unwrap();
    assert_eq!([rows(old), rows(new)], ["1", "51"]);
    shows("the old one is still out", "SHUNNED", old);
    // The status that an operator wrote is configuration; the observed one is not.
    order("SAVE MYSQL SERVERS FROM RUNTIME".into());
    let mut saved = |server: &Server| {
        let sql = format!("SELECT status FROM mysql_servers WHERE port={}", server.port());
        admin.run(sql).unwrap().scalar().unwrap().unwrap().clone()
    };
    assert_eq!([saved(old), saved(new)], ["SHUNNED", "ONLINE"]);
}

lab::each!(cuts_over_with_a_shunned_row);

/// A primary with a replica, and a proxy before them.
struct Pair {
    cluster: Replication,
    proxy: Tidegate,
}

impl Pair {
    fn start(flavor: Flavor) -> Pair {
        let cluster = Replication::start(flavor, 1, &Options::new()).unwrap();
        cluster.primary.sql("CREATE TABLE test.t(i INT PRIMARY KEY AUTO_INCREMENT)").unwrap();
        cluster.wait_caught_up().unwrap();
        let builder = Tidegate::builder().app_user();
        let builder = builder.row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())]);
        let proxy = builder.backend(0, &cluster.primary).backend(1, &cluster.replicas[0]).start().unwrap();
        let pair = Pair { cluster, proxy };
        pair.wait_writer(&pair.cluster.primary);
        pair
    }

    fn wait(&self, what: &str, sql: &str) {
        let mut admin = self.proxy.admin().unwrap();
        let is_so = || (admin.run(sql).ok()?.scalar().ok()?? != "0").then_some(());
        wait::until(what, Duration::from_secs(30), is_so).unwrap();
    }

    fn wait_writer(&self, server: &Server) {
        let sql = format!("SELECT COUNT(*) FROM runtime_mysql_servers WHERE hostgroup_id=0 AND status='ONLINE' AND port={}", server.port());
        self.wait("a writer", &sql);
    }

    fn wait_event(&self, why: &str) {
        self.wait(why, &format!("SELECT COUNT(*) FROM stats_tidegate_events WHERE why LIKE '{why}%'"));
    }

    /// Inserts 20 rows, each over a connection of its own.
    fn insert(&self) {
        for _ in 0..20 {
            self.proxy.connect_app().unwrap().run("INSERT INTO test.t VALUES(NULL)").unwrap();
        }
    }

    /// Rows on the primary and on the replica.
    fn rows(&self) -> [String; 2] {
        [&self.cluster.primary, &self.cluster.replicas[0]].map(|server| server.scalar("SELECT COUNT(*) FROM test.t").unwrap().unwrap())
    }
}

/// A power cut, and no configuration file sets `read_only`: the replica is back first and reports that it is writable.
///
/// All rows that clients insert are on the primary, until the replica is promoted.
fn has_a_power_cut(flavor: Flavor) {
    let pair = Pair::start(flavor);
    let (primary, replica) = (&pair.cluster.primary, &pair.cluster.replicas[0]);
    primary.kill9();
    replica.kill9();
    pair.wait("nobody writes", "SELECT COUNT(*)=0 FROM runtime_mysql_servers WHERE hostgroup_id=0 AND status='ONLINE'");
    replica.restart().unwrap();
    assert_eq!(replica.scalar("SELECT @@read_only").unwrap().as_deref(), Some("0"));
    pair.wait_event("writable, but a replica of");
    primary.restart().unwrap();
    pair.wait_writer(primary);
    pair.insert();
    pair.cluster.wait_caught_up().unwrap();
    assert_eq!(pair.rows(), ["20", "20"]);
    promote(replica).unwrap();
    pair.wait_writer(replica);
    pair.insert();
    assert_eq!(pair.rows(), ["20", "40"]);
}

/// A replica becomes writable, and then replicates no more, while the primary works. It writes when the primary is dead.
fn keeps_a_second_writer_out(flavor: Flavor) {
    let pair = Pair::start(flavor);
    let (primary, replica) = (&pair.cluster.primary, &pair.cluster.replicas[0]);
    lab::replication::set_read_only(replica, false).unwrap();
    pair.wait_event("writable, but");
    pair.insert();
    pair.cluster.wait_caught_up().unwrap();
    assert_eq!(pair.rows(), ["20", "20"]);
    let metrics = pair.proxy.admin().unwrap().run("SHOW PROMETHEUS METRICS").unwrap().scalar().unwrap().unwrap().clone();
    assert!(metrics.contains("tidegate_writable_servers{cluster=\"0\"} 2"), "{metrics}");
    promote(replica).unwrap();
    pair.wait("it is not read from", "SELECT COUNT(*) FROM runtime_mysql_servers WHERE hostgroup_id=1 AND status='SHUNNED'");
    pair.insert();
    assert_eq!(pair.rows(), ["40", "20"]);
    primary.kill9();
    pair.wait_writer(replica);
    pair.insert();
    assert_eq!(replica.scalar("SELECT COUNT(*) FROM test.t").unwrap().as_deref(), Some("40"));
}

lab::each!(keeps_a_second_writer_out);

lab::each!(has_a_power_cut);

/// Servers on Unix sockets are checked as on TCP: an old primary that returns writable gets no write.
fn fails_over_on_sockets(flavor: Flavor) {
    let cluster = Replication::start(flavor, 1, &Options::new()).unwrap();
    let (old, new) = (&cluster.primary, &cluster.replicas[0]);
    old.sql("CREATE TABLE test.t(i INT PRIMARY KEY AUTO_INCREMENT)").unwrap();
    cluster.wait_caught_up().unwrap();
    let socket = |server: &Server| server.socket().to_str().unwrap().to_owned();
    let builder = Tidegate::builder().app_user().variable("monitor_ping_interval", 200);
    let builder = builder.server(0, &socket(old), 0).server(1, &socket(new), 0);
    let builder = builder.row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())]);
    let proxy = builder.start().unwrap();
    let mut admin = proxy.admin().unwrap();
    let mut shows = |what: &str, sql: &str| {
        let is_so = || (admin.run(sql).ok()?.scalar().ok()?? != "0").then_some(());
        wait::until(what, Duration::from_secs(30), is_so).unwrap();
    };
    let writes = |server: &Server| {
        format!("SELECT COUNT(*) FROM runtime_mysql_servers WHERE hostgroup_id=0 AND status='ONLINE' AND hostname='{}'", socket(server))
    };
    for log in ["connect", "ping", "read_only"] {
        let error = if log == "read_only" { "error" } else { &format!("{log}_error") };
        let table = format!("mysql_server_{log}_log");
        shows(log, &format!("SELECT COUNT(*) FROM {table} WHERE hostname='{}' AND port=0 AND {error} IS NULL", socket(new)));
    }
    shows("the writer", &writes(old));
    proxy.connect_app().unwrap().run("INSERT INTO test.t VALUES(NULL)").unwrap();
    old.kill9();
    promote(new).unwrap();
    shows("the new writer", &writes(new));
    old.restart().unwrap();
    shows("it is kept out", "SELECT COUNT(*) FROM stats_tidegate_events WHERE to_state='kept out' OR why LIKE 'it came back writable%'");
    for _ in 0..50 {
        proxy.connect_app().unwrap().run("INSERT INTO test.t VALUES(NULL)").unwrap();
    }
    let rows = |server: &Server| server.scalar("SELECT COUNT(*) FROM test.t").unwrap();
    assert!(rows(old).is_some_and(|count| count.parse::<u32>().unwrap() <= 1), "{:?}", rows(old));
    assert!(rows(new).is_some_and(|count| count.parse::<u32>().unwrap() >= 50), "{:?}", rows(new));
}

lab::each!(fails_over_on_sockets);

/// The error for a session that waits for a writer says why: MySQL's offline_mode in the server's words, or a frozen server by its address.
#[test]
fn errors_name_the_writer_that_is_missed() {
    let cluster = Replication::start(Flavor::Mysql, 1, &Options::new()).unwrap();
    let (old, new) = (&cluster.primary, &cluster.replicas[0]);
    let builder = Tidegate::builder().app_user().variable("connect_timeout_server_max", 500);
    let builder = builder.variable("monitor_read_only_timeout", 200).variable("monitor_ping_timeout", 200);
    let builder = builder.row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())]);
    let proxy = builder.backend(0, old).backend(1, new).start().unwrap();
    let told = |what: &str, wanted: &str| {
        let mut client = proxy.connect_app().unwrap();
        let is_told = || {
            let error = client.query("SELECT @@port").ok()?.err().cloned()?;
            (error.code == 9001 && error.message.contains(wanted)).then_some(error.message)
        };
        wait::until(what, Duration::from_secs(30), is_told).unwrap()
    };
    let address = format!("127.0.0.1:{}", old.port());
    old.sql("SET GLOBAL offline_mode=1").unwrap();
    let text = told("the server's words", "it takes no connections: The server is currently in offline mode (error 3032)");
    assert!(text.contains(&address) && !text.contains("cannot be reached"), "{text}");
    old.sql("SET GLOBAL offline_mode=0").unwrap();
    wait::until("it writes again", Duration::from_secs(30), || {
        (proxy.connect_app().ok()?.scalar("SELECT @@port").ok()??.parse() == Ok(old.port())).then_some(())
    })
    .unwrap();
    old.sigstop();
    let text = told("the frozen writer", &format!("the hostgroup has no server: {address} "));
    assert!(text.contains(&format!("127.0.0.1:{} ONLINE in hostgroup 1 (read_only is on)", new.port())), "{text}");
    old.sigcont();
}
