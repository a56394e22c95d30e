//! `tidegate init` before real servers: the servers that it finds, the file that it writes, and the proxy that runs with it.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use lab::dirs;
use lab::port::Port;
use lab::process::Process;
use lab::tidegate::find_program;
use lab::{Client, ConnectOptions, Flavor, Galera, Group, Options, Replication, Server, wait};

const LIMIT: Duration = Duration::from_secs(60);

/// A folder of its own, with the file and the ports of one proxy.
struct Place {
    directory: PathBuf,
    port: Port,
    admin_port: Port,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Place {
    fn new() -> Self {
        Self { directory: dirs::instance("init").unwrap(), port: Port::reserve().unwrap(), admin_port: Port::reserve().unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.directory.join("tidegate.cnf")
    }

    fn init(&self, server: &str, more: &[&str]) -> Output {
        let mut command = Command::new(find_program().unwrap());
        command.current_dir(&self.directory).env("MYSQL_PWD", "").args(["init", "--server", server, "--database", "test"]);
        command.args(["--listen", &format!("127.0.0.1:{}", self.port.number())]);
        command.args(["--admin-listen", &format!("127.0.0.1:{}", self.admin_port.number())]).args(more).output().unwrap()
    }

    /// The value of `name` in the file.
    fn value(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.file()).unwrap();
        let rest = text.split_once(&format!("{name} = \"")).unwrap_or_else(|| panic!("{name} is not in {text}")).1;
        rest.split('"').next().unwrap().to_owned()
    }

    /// Starts the proxy with the file as it is.
    fn start(&self) -> Process {
        let mut command = Command::new(find_program().unwrap());
        command.current_dir(&self.directory).arg("-D").arg(&self.directory).arg("-c").arg(self.file());
        Process::start("tidegate", &command, &self.directory.join("log")).unwrap()
    }

    fn connect(&self, port: &Port, user: &str, password: &str) -> Client {
        wait::until("the proxy to take clients", LIMIT, || {
            Client::connect(&ConnectOptions::tcp(format!("127.0.0.1:{}", port.number()), user, password)).ok()
        })
        .unwrap()
    }

    fn admin(&self) -> Client {
        self.connect(&self.admin_port, "admin", self.value("admin_credentials").trim_start_matches("admin:"))
    }

    fn app(&self) -> Client {
        let text = std::fs::read_to_string(self.file()).unwrap();
        let users = text.split_once("mysql_users").unwrap().1;
        let password = users.split_once("password = \"").unwrap().1.split('"').next().unwrap().to_owned();
        self.connect(&self.port, "shop", &password)
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Init asks one server, and the proxy that runs with the file has all of them in their places, writes and reads.
fn works(first: &Server, all: usize, kind: &str) {
    let place = Place::new();
    let output = place.init(&first.address(), &["--create-accounts", "--app-user", "shop"]);
    assert!(output.status.success(), "{}", text(&output));
    let said = text(&output);
    assert!(said.contains(kind), "{said}");
    assert!(said.contains("usable, 0 note(s), 0 warning(s)"), "{said}");
    let proxy = place.start();
    let mut admin = place.admin();
    let online = "SELECT COUNT(DISTINCT hostname || port) FROM runtime_mysql_servers WHERE status = 'ONLINE'";
    wait::until("all servers online", LIMIT, || (admin.scalar(online).ok()??.parse() == Ok(all)).then_some(()))
        .unwrap_or_else(|e| panic!("{e}: {said}"));
    let writers = "SELECT COUNT(*) FROM runtime_mysql_servers WHERE hostgroup_id = 0 AND status = 'ONLINE'";
    wait::until("one writer", LIMIT, || (admin.scalar(writers).ok()?? == "1").then_some(())).unwrap();
    let mut client = place.app();
    client.run("CREATE TABLE test.init_t(i INT PRIMARY KEY)").unwrap();
    client.run("INSERT INTO test.init_t VALUES(7)").unwrap();
    wait::until("the row on a reader", LIMIT, || (client.scalar("SELECT i FROM test.init_t").ok()?.as_deref() == Some("7")).then_some(()))
        .unwrap();
    if all > 1 {
        let read = "SELECT COUNT(*) FROM stats_mysql_query_digest WHERE hostgroup = 1 AND digest_text LIKE 'SELECT i FROM%'";
        assert_eq!(admin.scalar(read).unwrap().as_deref(), Some("1"), "reads are split");
    }
    let log = std::fs::read_to_string(place.directory.join("log")).unwrap();
    assert!(!log.contains("Access denied"), "{log}");
    drop(proxy);
}

#[test]
fn one_server() {
    let server = Server::start(Flavor::Mariadb, &Options::new()).unwrap();
    works(&server, 1, "one server, without replicas");
}

#[test]
fn a_primary_is_found_from_its_replica_mariadb() {
    let servers = Replication::start(Flavor::Mariadb, 2, &Options::new()).unwrap().into_servers();
    works(&servers[1], 3, "a primary and its replicas");
}

#[test]
fn a_primary_is_found_from_its_replica_mysql() {
    let servers = Replication::start(Flavor::Mysql, 2, &Options::new()).unwrap().into_servers();
    works(&servers[2], 3, "a primary and its replicas");
}

#[test]
fn galera_nodes() {
    let cluster = Galera::start(3, &Options::new()).unwrap();
    // On one host, MariaDB reports AUTO for all of them.
    for node in &cluster.nodes {
        node.server.restart_with(&[format!("--wsrep-node-incoming-address={}", node.server.address())]).unwrap();
        node.wait_synced(Some(3)).unwrap();
    }
    works(cluster.server(1), 3, "a Galera cluster");
}

#[test]
fn members_of_a_group() {
    let group = Group::start(3, &Options::new()).unwrap();
    works(&group.members[1], 3, "a replication group");
}

#[test]
fn nothing_is_touched_without_being_asked() {
    let server = Server::start(Flavor::Mysql, &Options::new()).unwrap();
    let place = Place::new();
    let output = place.init(&server.address(), &["--app-user", "store"]);
    assert!(output.status.success(), "{}", text(&output));
    let said = text(&output);
    assert!(said.contains("CREATE USER 'tidegate_monitor'@'%' IDENTIFIED BY"), "{said}");
    let users = "SELECT COUNT(*) FROM mysql.user WHERE user IN ('tidegate_monitor', 'store')";
    assert_eq!(server.scalar(users).unwrap().as_deref(), Some("0"));
    let before = std::fs::read_to_string(place.file()).unwrap();
    let again = place.init(&server.address(), &[]);
    assert!(!again.status.success());
    assert!(text(&again).contains("--force"), "{}", text(&again));
    assert_eq!(std::fs::read_to_string(place.file()).unwrap(), before, "the file is as it was");
}

#[test]
fn a_refusal_leaves_no_file() {
    let server = Server::start(Flavor::Mariadb, &Options::new()).unwrap();
    let place = Place::new();
    for (server, more, why) in [
        (server.address(), vec!["--user", "nobody-known"], "Access denied"),
        ("127.0.0.1:1".to_owned(), vec![], "refused"),
        (server.address(), vec!["--app-user", "a\\b"], "backslashes"),
        (server.address(), vec!["--create-accounts"], "'app'@'%' exists"),
    ] {
        let output = place.init(&server, &more);
        assert!(!output.status.success() && text(&output).contains(why), "{}", text(&output));
        assert!(is_empty(&place.directory), "{server} {more:?}");
    }
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}
