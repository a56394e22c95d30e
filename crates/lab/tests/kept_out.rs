//! The proxy's knowledge of roles survives its process: upgrades and restarts move no writer.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

use std::fs;
use std::time::Duration;

use lab::replication::{follow, promote, switch_over};
use lab::tidegate::Builder;
use lab::topology::{Placed, layout, wait_layout};
use lab::{Client, Flavor, Options, Replication, Server, Tidegate, wait};

/// Longest that anything may take on a machine that does other work too.
const LIMIT: Duration = Duration::from_secs(60);
/// The file with the roles, which the next start reads.
const FILE: &str = "tidegate_writers.json";

/// Which servers have a row in the writer hostgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    One,
    All,
}

/// How the process is replaced.
#[derive(Clone, Copy, Debug)]
enum Change {
    Upgrade,
    Stop,
    Kill,
}

const CHANGES: [Change; 4] = [Change::Upgrade, Change::Upgrade, Change::Stop, Change::Kill];

fn name(server: &Server) -> String {
    format!("{}:{}", server.host(), server.port())
}

fn writers(placed: &[Placed]) -> Vec<&str> {
    placed.iter().filter(|place| place.hostgroup == 0 && place.status == "ONLINE").map(|place| &*place.server).collect()
}

fn is_online(placed: &[Placed], server: &Server) -> bool {
    placed.iter().any(|place| place.status == "ONLINE" && place.server == name(server))
}

fn rows(server: &Server) -> u64 {
    server.scalar("SELECT COUNT(*) FROM test.t").unwrap().unwrap().parse().unwrap()
}

fn builder(servers: &[&Server], rows: Rows) -> Builder {
    let builder = Tidegate::builder().app_user().variable("threads", 2).variable("drain_timeout", 2_000);
    let builder = builder.row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())]);
    servers.iter().enumerate().fold(builder, |builder, (index, server)| match (rows, index) {
        (Rows::One, 0) => builder.backend(0, server),
        (Rows::One, _) => builder.backend(1, server),
        (Rows::All, _) => builder.backend(0, server).backend(1, server),
    })
}

/// A primary died, its replica was promoted, and the old primary came back with `read_only=0`: it is kept out.
struct FailedOver {
    cluster: Replication,
    proxy: Tidegate,
}

impl FailedOver {
    fn new(flavor: Flavor, rows: Rows) -> Self {
        let cluster = Replication::start(flavor, 1, &Options::new()).unwrap();
        let (old, new) = (&cluster.primary, &cluster.replicas[0]);
        old.sql("CREATE TABLE test.t(i INT PRIMARY KEY AUTO_INCREMENT)").unwrap();
        cluster.wait_caught_up().unwrap();
        let proxy = builder(&[old, new], rows).start().unwrap();
        wait_layout(&proxy, "the writer", LIMIT, |placed| writers(placed) == [name(old)]).unwrap();
        old.kill9();
        wait_layout(&proxy, "its end", LIMIT, |placed| !is_online(placed, old)).unwrap();
        promote(new).unwrap();
        wait_layout(&proxy, "the new writer", LIMIT, |placed| writers(placed) == [name(new)]).unwrap();
        old.restart().unwrap();
        assert_eq!(old.scalar("SELECT @@read_only").unwrap().as_deref(), Some("0"));
        let failed_over = Self { cluster, proxy };
        failed_over.wait_looked_at();
        failed_over.check("it is back");
        failed_over
    }

    fn old(&self) -> &Server {
        &self.cluster.primary
    }

    fn new_writer(&self) -> &Server {
        &self.cluster.replicas[0]
    }

    /// Two more answers of each server, which decide whatever can be decided by them.
    fn wait_looked_at(&self) {
        let mut admin = self.proxy.admin().unwrap();
        let mut count = |server: &Server| -> u64 {
            let sql = format!("SELECT COUNT(*) FROM monitor.mysql_server_read_only_log WHERE port={} AND error IS NULL", server.port());
            admin.scalar(sql).unwrap().unwrap().parse().unwrap()
        };
        for server in [self.old(), self.new_writer()] {
            let before = count(server);
            wait::until("two more answers", LIMIT, || (count(server) >= before + 2).then_some(())).unwrap();
        }
    }

    /// The new writer takes writes, and no session goes to the old one.
    fn check(&self, when: &str) {
        let placed = layout(&self.proxy).unwrap();
        assert_eq!(writers(&placed), [name(self.new_writer())], "{when}: {placed:?}");
        assert!(!is_online(&placed, self.old()), "{when}: {placed:?}");
    }

    fn write(&self, when: &str) {
        let (before, mut client) = (rows(self.new_writer()), self.proxy.connect_app().unwrap());
        for _ in 0..10 {
            client.run("INSERT INTO test.t VALUES(NULL)").unwrap().check().unwrap();
        }
        assert_eq!((rows(self.old()), rows(self.new_writer())), (0, before + 10), "{when}");
    }

    fn replace(&mut self, how: Change) {
        match how {
            Change::Upgrade => drop(self.proxy.upgrade(None).unwrap()),
            Change::Stop => {
                self.proxy.stop().unwrap();
                self.proxy.start_again(&[]).unwrap();
            }
            Change::Kill => self.proxy.start_again(&[]).unwrap(),
        }
    }
}

fn stays_kept_out(flavor: Flavor, rows: Rows) {
    let mut all = FailedOver::new(flavor, rows);
    all.write("before");
    for how in CHANGES {
        let when = format!("{rows:?} {how:?}");
        all.replace(how);
        all.check(&when);
        all.write(&when);
        all.wait_looked_at();
        all.check(&format!("{when}, looked at"));
    }
    // It ends as it would have without all that.
    let (old, new) = (all.old(), all.new_writer());
    old.sql("SET GLOBAL read_only=1").unwrap();
    follow(old, new).unwrap();
    wait_layout(&all.proxy, "it reads", LIMIT, |placed| is_online(placed, old) && writers(placed) == [name(new)]).unwrap();
}

#[test]
fn an_old_primary_stays_kept_out_mariadb() {
    stays_kept_out(Flavor::Mariadb, Rows::One);
}

#[test]
fn an_old_primary_stays_kept_out_mysql() {
    stays_kept_out(Flavor::Mysql, Rows::One);
}

#[test]
fn an_old_primary_stays_kept_out_beside_writer_rows_mariadb() {
    stays_kept_out(Flavor::Mariadb, Rows::All);
}

#[test]
fn an_old_primary_stays_kept_out_beside_writer_rows_mysql() {
    stays_kept_out(Flavor::Mysql, Rows::All);
}

fn order(admin: &mut Client, sql: &[&str]) {
    for sql in sql {
        admin.run(*sql).unwrap().check().unwrap();
    }
}

/// The monitor is off, or its logins are refused: roles stay as they were.
fn stay_frozen(flavor: Flavor, freeze: &[&str], is_frozen: &str) {
    let mut all = FailedOver::new(flavor, Rows::One);
    let mut admin = all.proxy.admin().unwrap();
    order(&mut admin, freeze);
    order(&mut admin, &["LOAD MYSQL VARIABLES TO RUNTIME", "SAVE MYSQL VARIABLES TO DISK"]);
    wait::until("an event", LIMIT, || (admin.scalar(is_frozen).ok()?? != "0").then_some(())).unwrap();
    for how in CHANGES {
        let when = format!("{how:?}");
        all.check(&when);
        all.write(&when);
        all.replace(how);
    }
    all.check("at the end");
    all.write("at the end");
}

#[test]
fn roles_stay_frozen_while_the_monitor_is_off() {
    let event = "SELECT COUNT(*) FROM stats_tidegate_events WHERE to_state='frozen'";
    stay_frozen(Flavor::Mariadb, &["SET mysql-monitor_enabled='false'"], event);
}

#[test]
fn roles_stay_frozen_while_the_monitor_is_refused() {
    let event = "SELECT COUNT(*) >= 2 FROM stats_tidegate_events WHERE to_state='unknown'";
    stay_frozen(Flavor::Mysql, &["SET mysql-monitor_username='nobody'"], event);
}

/// The old process has not looked since roles changed: the new one would write elsewhere, and does not take over.
#[test]
fn a_process_that_sees_roles_otherwise_does_not_take_over() {
    let cluster = Replication::start(Flavor::Mariadb, 1, &Options::new()).unwrap();
    let (old, new) = (&cluster.primary, &cluster.replicas[0]);
    let mut proxy = builder(&[old, new], Rows::One).variable("monitor_read_only_interval", 600_000).start().unwrap();
    wait_layout(&proxy, "both", LIMIT, |placed| writers(placed) == [name(old)] && is_online(placed, new)).unwrap();
    let mut client = proxy.connect_app().unwrap();
    client.run("SET @mine = 'kept'").unwrap();
    let kept = fs::read(proxy.dir().join(FILE)).ok();
    switch_over(old, new, &[]).unwrap();
    let (pid, mut admin) = (proxy.pid(), proxy.admin().unwrap());
    let error = admin.run("PROXYSQL UPGRADE").unwrap_err().to_string();
    let wanted = format!("0/{} is ONLINE there and absent here", name(old));
    assert!(error.contains("the new process sees servers in other roles") && error.contains(&wanted), "{error}");
    assert_eq!(proxy.pid(), pid);
    assert_eq!(client.scalar("SELECT @mine").unwrap().as_deref(), Some("kept"), "the old process serves on");
    assert_eq!(fs::read(proxy.dir().join(FILE)).ok(), kept, "who does not take over keeps nothing");
    // Once it has looked itself, both see the same.
    order(&mut admin, &["SET mysql-monitor_read_only_interval=500", "LOAD MYSQL VARIABLES TO RUNTIME"]);
    wait_layout(&proxy, "the new writer", LIMIT, |placed| writers(placed) == [name(new)]).unwrap();
    proxy.upgrade(None).unwrap();
    assert_eq!(client.scalar("SELECT @mine").unwrap().as_deref(), Some("kept"));
}

/// Of a newer version or broken: it is told, and the proxy starts.
#[test]
fn a_file_that_is_not_understood_is_told() {
    let cluster = Replication::start(Flavor::Mariadb, 1, &Options::new()).unwrap();
    let mut proxy = builder(&[&cluster.primary, &cluster.replicas[0]], Rows::One).start().unwrap();
    let path = proxy.dir().join(FILE);
    let texts = [
        (r#"{"writers": [], "clusters": [], "topology": {"format": 99, "known": {}}}"#, "its part topology has format 99"),
        (r#"{"writers": [], "clusters": [], "topology": {"format": 1, "known": {"facts": [[1]]}}}"#, "its part topology is broken"),
        ("\u{0}", "the proxy does not know which servers were writers"),
    ];
    for (text, wanted) in texts {
        proxy.kill9();
        fs::write(&path, text).unwrap();
        proxy.start_again(&[]).unwrap();
        assert!(proxy.log().contains(wanted), "{wanted}");
        wait_layout(&proxy, "the writer", LIMIT, |placed| writers(placed) == [name(&cluster.primary)]).unwrap();
        let is_whole = || fs::read_to_string(&path).is_ok_and(|kept| kept.contains("\"format\": 1")).then_some(());
        wait::until("it to be written anew", LIMIT, is_whole).unwrap();
    }
}
