//! MariaDB and MySQL behind one proxy, as in a migration: a session goes to both, and state set on one holds on the other.

#![allow(clippy::unwrap_used, clippy::expect_used)] // tests may panic

mod common;

use std::process::Command as Program;

use common::{LIMIT, server};
use lab::client::Reply;
use lab::fault::Relay;
use lab::{Client, ConnectOptions, Flavor, Server, Tidegate};
use wire::command::Command;
use wire::flags::Capabilities;

const BOTH: [Flavor; 2] = [Flavor::Mariadb, Flavor::Mysql];

fn other(flavor: Flavor) -> Flavor {
    if flavor == Flavor::Mariadb { Flavor::Mysql } else { Flavor::Mariadb }
}

/// Hostgroup 0 is `first`, hostgroup 1 the other flavor. The word `other` in a statement leads to hostgroup 1, as does the prefix `shard.`,
/// which the rule removes.
fn proxy(first: Flavor) -> Tidegate {
    let rule = [
        ("rule_id", 1.into()),
        ("active", 1.into()),
        ("match_pattern", "other".into()),
        ("destination_hostgroup", 1.into()),
        ("apply", 1.into()),
    ];
    let shard = [
        ("rule_id", 2.into()),
        ("active", 1.into()),
        ("match_pattern", r"shard\.".into()),
        ("replace_pattern", "".into()),
        ("destination_hostgroup", 1.into()),
        ("apply", 1.into()),
    ];
    let builder = Tidegate::builder().backend(0, server(first)).backend(1, server(other(first)));
    let builder = builder.row("mysql_query_rules", &rule).row("mysql_query_rules", &shard);
    builder.app_user().user("empty", "", 1).variable("threads", 1).start().unwrap()
}

fn options(proxy: &Tidegate) -> ConnectOptions {
    proxy.options("app", "app-pass").database("test").timeout(LIMIT)
}

/// Asks in text and prepared, here and there, and checks names and values.
fn asks(client: &mut Client) {
    for hint in ["", "/* other */", ""] {
        let sql = format!("SELECT 1 AS one, 'zwei' AS two {hint}");
        let is_right = |reply: Reply| {
            let names: Vec<String> = reply.rows().unwrap().columns.iter().map(|column| column.name.clone()).collect();
            assert_eq!(names, ["one", "two"], "{sql}");
            assert_eq!(reply.table().unwrap(), [[Some("1".to_owned()), Some("zwei".to_owned())]], "{sql}");
        };
        is_right(client.run(&sql).unwrap());
        let statement = client.prepare(format!("SELECT ? AS one, 'zwei' AS two {hint}")).unwrap();
        is_right(client.execute(&statement, &[lab::client::Param::Int(1)]).unwrap().check().unwrap());
        client.close_statement(&statement).unwrap();
    }
}

/// A client that was promised MariaDB's extended metadata reads MySQL's answers too.
#[test]
fn extended_metadata() {
    for first in BOTH {
        let proxy = proxy(first);
        for caps in [ConnectOptions::MODERN, ConnectOptions::CLASSIC] {
            let options = options(&proxy).capabilities(caps | Capabilities::MARIADB_CLIENT_EXTENDED_METADATA);
            let mut client = Client::connect(&options).unwrap();
            let is_promised = client.capabilities().contains(Capabilities::MARIADB_CLIENT_EXTENDED_METADATA);
            assert_eq!(is_promised, first == Flavor::Mariadb);
            asks(&mut client);
        }
        // A user whose own server is the other one; COM_FIELD_LIST too.
        let caps = ConnectOptions::MODERN | Capabilities::MARIADB_CLIENT_EXTENDED_METADATA;
        let options = proxy.options("empty", "").database("test").timeout(LIMIT).capabilities(caps);
        let mut client = Client::connect(&options).unwrap();
        asks(&mut client);
        client.run("CREATE TABLE IF NOT EXISTS fields (a INT)").unwrap();
        client.send_command(Command::FieldList, b"fields\0%").unwrap();
        let definition = client.recv_packet().unwrap();
        assert!(String::from_utf8_lossy(&definition).contains("fields"));
        assert_eq!(client.recv_packet().unwrap()[0], 0xfe);
        client.ping().unwrap();
    }
}

/// The command line client lists fields and shows results.
#[test]
fn the_command_line_client() {
    for first in BOTH {
        let proxy = proxy(first);
        let mut program = Program::new("mariadb");
        program.args(["--no-defaults", "-h127.0.0.1", "-N", "-B", "-uempty", "--auto-rehash", "test"]).arg(format!("-P{}", proxy.port()));
        let ended = match program.args(["-e", "SELECT 1, 'zwei'"]).output() {
            Ok(ended) => ended,
            Err(error) => return println!("skipped: mariadb: {error}"),
        };
        assert_eq!(String::from_utf8_lossy(&ended.stdout), "1\tzwei\n", "{}", String::from_utf8_lossy(&ended.stderr));
    }
}

/// utf8mb4_0900_ai_ci is of MySQL alone: on MariaDB it is the default of utf8mb4, and back on MySQL it is itself.
#[test]
fn collations_of_one_flavor() {
    const COLLATION: &str = "SELECT @@collation_connection, @@character_set_results";
    for first in BOTH {
        let proxy = proxy(first);
        for collation in [255, 45, 8] {
            let mut client = Client::connect(&options(&proxy).charset(collation)).unwrap();
            asks(&mut client);
        }
        // The effect of the client's own statement on one server is repeated on the other.
        let mut client = Client::connect(&options(&proxy)).unwrap();
        for hint in ["", "/* other */"] {
            client.run(format!("SET NAMES utf8mb4 {hint}")).unwrap();
            for _ in 0..2 {
                for there in ["", "/* other */"] {
                    let seen = client.run(format!("{COLLATION} {there}")).unwrap().table().unwrap();
                    let collation = seen[0][0].clone().unwrap();
                    assert!(collation.starts_with("utf8mb4_"), "{collation}");
                    assert_eq!(seen[0][1].as_deref(), Some("utf8mb4"));
                }
            }
            asks(&mut client);
        }
        if first == Flavor::Mysql {
            let mut client = Client::connect(&options(&proxy).charset(255)).unwrap();
            for (hint, wanted) in [("", "utf8mb4_0900_ai_ci"), ("/* other */", "utf8mb4_general_ci"), ("", "utf8mb4_0900_ai_ci")] {
                assert_eq!(client.scalar(format!("SELECT @@collation_connection {hint}")).unwrap().as_deref(), Some(wanted));
            }
        }
    }
}

/// A text computed by one server has a collation that the other does not know.
#[test]
fn user_variables_come_along() {
    for first in BOTH {
        let proxy = proxy(first);
        let mut client = Client::connect(&options(&proxy)).unwrap();
        let own = if first == Flavor::Mysql { "utf8mb4_0900_ai_ci" } else { "utf8mb4_uca1400_ai_ci" };
        client.run(format!("SET @v = CONCAT('a', 'b') COLLATE {own}")).unwrap();
        for _ in 0..2 {
            assert_eq!(client.scalar("SELECT @v /* other */").unwrap().as_deref(), Some("ab"), "{first:?}");
            assert_eq!(client.scalar("SELECT COLLATION(@v)").unwrap().as_deref(), Some(own), "{first:?}");
        }
    }
}

/// Prepared, too, a statement that a rule rewrites goes where that rule sends it.
#[test]
fn rewritten_writes_go_to_their_server() {
    for first in BOTH {
        let proxy = proxy(first);
        for flavor in BOTH {
            server(flavor).sql("CREATE TABLE IF NOT EXISTS test.split_up (n INT)").unwrap();
            server(flavor).sql("DELETE FROM test.split_up").unwrap();
        }
        let mut client = Client::connect(&options(&proxy)).unwrap();
        client.run("INSERT INTO shard.split_up VALUES (1)").unwrap();
        let statement = client.prepare("INSERT INTO shard.split_up VALUES (?)").unwrap();
        client.execute(&statement, &[lab::client::Param::Int(2)]).unwrap().check().unwrap();
        for (flavor, rows) in [(first, "0"), (other(first), "2")] {
            let count = server(flavor).root().unwrap().scalar("SELECT COUNT(*) FROM test.split_up").unwrap();
            assert_eq!(count.as_deref(), Some(rows), "{flavor:?}");
        }
    }
}

/// A server behind a relay, in whose place the other one comes.
struct Replaced {
    proxy: Tidegate,
    relay: Relay,
    other: &'static Server,
}

impl Replaced {
    fn new(first: Flavor) -> Self {
        let relay = Relay::to(&server(first).address()).unwrap();
        let builder = Tidegate::builder().server(0, "127.0.0.1", relay.port()).app_user().variable("threads", 1);
        Self { proxy: builder.start().unwrap(), relay, other: server(other(first)) }
    }

    fn connect(&self) -> Client {
        Client::connect(&options(&self.proxy)).unwrap()
    }

    /// Whether the other one answers.
    fn is_other(&self, client: &mut Client) -> bool {
        let own = |client: &mut Client| client.scalar("SELECT VERSION()").unwrap().unwrap();
        own(client) == own(&mut self.other.root().unwrap())
    }

    fn log_lines(&self) -> usize {
        self.proxy.log().lines().filter(|line| line.contains("reuses no older connection")).count()
    }
}

/// Sessions of before and later ones work as they do after a restart of the proxy.
#[test]
fn a_server_is_replaced_by_one_of_the_other_flavor() {
    for first in BOTH {
        let bed = Replaced::new(first);
        let only_there = if first == Flavor::Mariadb { "check_constraint_checks" } else { "windowing_use_high_precision" };
        let (mut old, mut chooser) = (bed.connect(), bed.connect());
        old.run("SET @x = 1, time_zone = '+03:00'").unwrap();
        assert!(!bed.is_other(&mut old));
        chooser.run(format!("SET {only_there} = 0")).unwrap();
        bed.relay.turn_to(&bed.other.address()).unwrap();
        bed.relay.cut();
        for _ in 0..2 {
            let mut new = bed.connect();
            for sql in ["SET time_zone = '+01:00'", "SET NAMES utf8mb4", "CREATE TEMPORARY TABLE t(i INT)", "INSERT INTO t VALUES(1)"] {
                new.run(sql).unwrap_or_else(|error| panic!("{first:?} {sql}: {error}"));
            }
            assert!(bed.is_other(&mut new));
            assert_eq!(new.scalar("SELECT @@time_zone").unwrap().as_deref(), Some("+01:00"));
            asks_here(&mut new);
        }
        assert!(bed.is_other(&mut old));
        assert_eq!(old.scalar("SELECT CONCAT(@x, @@time_zone)").unwrap().as_deref(), Some("1+03:00"));
        old.run("SET time_zone = '+02:00'").unwrap();
        asks_here(&mut old);
        let told = chooser.query("SELECT 1").unwrap().err().cloned().unwrap();
        assert_eq!(told.code, 1193, "{told:?}");
        assert_eq!(chooser.scalar("SELECT 1").unwrap().as_deref(), Some("1"), "it is told once");
        let last = bed.connect();
        let version = String::from_utf8_lossy(&last.greeting().server_version).into_owned();
        assert_eq!(version.contains("MariaDB"), first == Flavor::Mysql, "{version}");
        assert_eq!(bed.log_lines(), 1, "{}", bed.proxy.log());
    }
}

fn asks_here(client: &mut Client) {
    for _ in 0..3 {
        assert_eq!(client.scalar("SELECT 'zwei'").unwrap().as_deref(), Some("zwei"));
    }
    let statement = client.prepare("SELECT ?").unwrap();
    client.execute(&statement, &[lab::client::Param::Int(1)]).unwrap().check().unwrap();
    client.close_statement(&statement).unwrap();
}

/// The name leads to another server, and connections open at the old one stay open.
#[test]
fn connections_of_before_serve_nobody_new() {
    for first in BOTH {
        let bed = Replaced::new(first);
        let mut busy = bed.connect();
        busy.run("BEGIN").unwrap();
        assert!(!bed.is_other(&mut busy));
        bed.relay.turn_to(&bed.other.address()).unwrap();
        let mut clients = vec![busy];
        // Until a connection had to be opened.
        while !bed.is_other(clients.last_mut().unwrap()) {
            let mut client = bed.connect();
            client.run("BEGIN").unwrap();
            clients.push(client);
        }
        assert!(!bed.is_other(&mut clients[0]), "a transaction stays where it is");
        for client in &mut clients {
            client.run("COMMIT").unwrap();
        }
        for client in &mut clients {
            assert!(bed.is_other(client), "{first:?}");
        }
    }
}
