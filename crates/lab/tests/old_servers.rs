//! Servers that do not track session state: the same queries direct and through the proxy, while two sessions share a connection.
//!
//! MariaDB 10.2 tracks, and gets the same queries. Skipped where `scripts/setup old-servers` could not get the servers.

#![allow(clippy::unwrap_used, clippy::expect_used)] // tests may panic

mod common;

use std::sync::OnceLock;

use common::{LIMIT, Peer};
use lab::client::Encoding;
use lab::old::{Old, OldServer};
use lab::{ConnectOptions, Tidegate};

/// A test for each of them.
macro_rules! each_old {
    ($($name:ident),* $(,)?) => {$(
        mod $name {
            #[test]
            fn mysql_5_5() {
                super::run(lab::old::Old::Mysql55, super::$name);
            }
            #[test]
            fn mariadb_10_1() {
                super::run(lab::old::Old::Mariadb101, super::$name);
            }
            #[test]
            fn mariadb_10_2() {
                super::run(lab::old::Old::Mariadb102, super::$name);
            }
        }
    )*};
}

each_old!(settings, settings_that_one_session_left, what_was_set_for_replication, triggers_and_views, routines, schemas);

/// The target of a body: the server itself, or a proxy before it that has one connection.
struct World {
    which: Old,
    address: String,
    proxy: Option<Tidegate>,
    encoding: Encoding,
}

impl World {
    fn connect(&self) -> Peer {
        let options = ConnectOptions::tcp(&*self.address, "app", "app-pass").database("test").timeout(LIMIT);
        Peer::with(&options, self.encoding)
    }

    fn is_mariadb(&self) -> bool {
        self.which != Old::Mysql55
    }
}

fn server(which: Old) -> Option<&'static OldServer> {
    static SERVERS: [OnceLock<OldServer>; 3] = [const { OnceLock::new() }; 3];
    which.root()?;
    Some(SERVERS[which as usize].get_or_init(|| OldServer::start(which).unwrap()))
}

fn run(which: Old, body: fn(&World)) {
    let Some(server) = server(which) else {
        return eprintln!("skipped: {which:?} is not unpacked (scripts/setup old-servers)");
    };
    for encoding in [Encoding::Text, Encoding::Binary] {
        body(&World { which, address: format!("127.0.0.1:{}", server.port()), proxy: None, encoding });
        let proxy = Tidegate::builder()
            .server_with(0, "127.0.0.1", server.port(), &[("max_connections", 1.into())])
            .app_user()
            .variable("threads", 1)
            .start()
            .unwrap();
        body(&World { which, address: proxy.address(), proxy: Some(proxy), encoding });
        assert_eq!(server.process().exit_status(), None, "the server runs on");
    }
}

/// Each of these variables keeps its value after another session was on the connection.
fn settings(world: &World) {
    const ASKED: &str = "SELECT @@sql_mode, @@sql_warnings, @@long_query_time, @@old_alter_table, @@character_set_client, \
        @@character_set_results, @@collation_connection, @@collation_server, @@tx_isolation, @@max_join_size, @@sql_big_selects, \
        @@autocommit, CHARSET('a'), @@lc_time_names";
    let fresh = world.connect().row(ASKED);
    for set in [
        "SET NAMES utf8mb4",
        "SET NAMES utf8 COLLATE utf8_bin",
        "SET CHARACTER SET latin1",
        "SET character_set_results=NULL",
        "SET @@session.character_set_client=33,@@session.collation_connection=33,@@session.collation_server=8",
        "SET sql_warnings=TRUE",
        "SET long_query_time=1e1",
        "SET old_alter_table=1",
        "SET sql_mode=CONCAT(@@sql_mode, ',ANSI_QUOTES')",
        "SET sql_mode='ANSI', lc_time_names='de_DE'",
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "SET max_join_size=5",
        "SET autocommit=0",
        "SET autocommit=0, autocommit=DEFAULT, sql_mode=DEFAULT",
    ] {
        let (mut a, mut b) = (world.connect(), world.connect());
        a.exec(set);
        let now = a.row(ASKED);
        if world.is_mariadb() && set.contains("=33") {
            // Which collation goes with the results then, MariaDB does not tell: the session keeps its connection.
            continue;
        }
        for _ in 0..2 {
            a.exec("COMMIT");
            assert_eq!(b.row(ASKED), fresh, "another session after {set}");
            assert_eq!(a.row(ASKED), now, "{set}");
        }
    }
    if let Some(proxy) = &world.proxy {
        assert_eq!(proxy.admin().unwrap().scalar("SELECT COUNT(*) FROM stats_tidegate_pins").unwrap().as_deref(), Some("0"));
        let told = proxy.log().matches("does not track session state").count();
        assert_eq!(told, usize::from(world.which != Old::Mariadb102), "{}", proxy.log());
    }
}

/// A session that ended has left nothing.
fn settings_that_one_session_left(world: &World) {
    let table = format!("left_{:?}", world.encoding).to_lowercase();
    world.connect().exec(&format!("CREATE TABLE IF NOT EXISTS {table} (id INT AUTO_INCREMENT PRIMARY KEY, v INT)"));
    for (said, question, expected) in [
        (vec!["SET timestamp=86400".to_owned()], "SELECT UNIX_TIMESTAMP() < 100000", "0"),
        (vec![format!("INSERT INTO {table} (v) VALUES (1)")], "SELECT LAST_INSERT_ID()", "0"),
        (vec!["SET @a=1".to_owned()], "SELECT @a", "NULL"),
        (vec!["SET sql_log_bin=0".to_owned()], "SELECT @@sql_log_bin", "1"),
        (vec!["SET timestamp=86400".to_owned(), "CREATE TEMPORARY TABLE q (a INT)".to_owned()], "SELECT UNIX_TIMESTAMP() < 100000", "0"),
    ] {
        let mut leaves = world.connect();
        said.iter().for_each(|sql| drop(leaves.exec(sql)));
        drop(leaves);
        assert_eq!(world.connect().get(question), expected, "{said:?}");
    }
    let (mut a, mut b) = (world.connect(), world.connect());
    a.exec("SET timestamp=86400");
    assert_eq!(b.get("SELECT UNIX_TIMESTAMP() < 100000"), "0");
    assert_eq!(a.get("SELECT UNIX_TIMESTAMP()"), "86400");
    a.exec("SET timestamp=DEFAULT");
    assert_eq!(b.get("SELECT 1"), "1");
    assert_eq!(a.get("SELECT UNIX_TIMESTAMP() < 100000"), "0");
}

/// Settings of a replica or of mysqlbinlog end with its session.
fn what_was_set_for_replication(world: &World) {
    let mut sets = vec!["SET insert_id=77", "SET rand_seed1=5, rand_seed2=6", "SET last_insert_id=9", "SET pseudo_thread_id=12345"];
    if world.is_mariadb() {
        sets.extend(["SET gtid_seq_no=17", "SET server_id=99", "SET gtid_domain_id=3", "SET skip_replication=1"]);
    }
    for set in sets {
        let mut leaves = world.connect();
        leaves.exec(set);
        leaves.exec("SELECT 1");
        drop(leaves);
        let mut next = world.connect();
        assert_eq!(next.get("SELECT @@insert_id"), "0", "{set}");
        assert_eq!(next.get("SELECT LAST_INSERT_ID()"), "0", "{set}");
        assert_eq!(next.get("SELECT @@pseudo_thread_id = 12345"), "0", "{set}");
        if world.is_mariadb() {
            assert_eq!(next.row("SELECT @@server_id, @@gtid_domain_id, @@gtid_seq_no, @@skip_replication"), "1 0 0 0", "{set}");
        }
    }
}

/// Variables that triggers and functions behind views set reach no other session; their own keeps them until the connection is needed.
fn triggers_and_views(world: &World) {
    let names = format!("{:?}", world.encoding).to_lowercase();
    let mut a = world.connect();
    for sql in [
        "CREATE TABLE IF NOT EXISTS trg_{} (v INT)",
        "DROP TRIGGER IF EXISTS tr_{}",
        "CREATE TRIGGER tr_{} BEFORE INSERT ON trg_{} FOR EACH ROW SET @of_trigger=NEW.v",
        "DROP FUNCTION IF EXISTS f_{}",
        "CREATE FUNCTION f_{}() RETURNS INT BEGIN SET @of_view=5; SET sql_mode='ANSI'; RETURN 1; END",
        "CREATE OR REPLACE VIEW v_{} AS SELECT f_{}() AS a",
    ] {
        a.exec_text(&sql.replace("{}", &names));
    }
    drop(a);
    for (sql, own) in [("INSERT INTO trg_{} VALUES (66)", "66 NULL"), ("SELECT * FROM v_{}", "NULL 5")] {
        let (mut a, mut b) = (world.connect(), world.connect());
        a.exec(&sql.replace("{}", &names));
        if world.which != Old::Mariadb102 {
            assert_eq!(a.row("SELECT @of_trigger, @of_view"), own, "{sql}");
        }
        drop(a);
        assert_eq!(b.row("SELECT @of_trigger, @of_view, @@sql_mode LIKE '%ANSI%'"), "NULL NULL 0", "{sql}");
        if world.which == Old::Mariadb102 {
            // It tells, and the session keeps its connection.
            continue;
        }
        let mut a = world.connect();
        a.exec(&sql.replace("{}", &names));
        assert_eq!(b.row("SELECT @of_trigger, @of_view, @@sql_mode LIKE '%ANSI%'"), "NULL NULL 0", "{sql}");
    }
}

/// A session keeps the variables that a routine set, and other sessions do not see them.
fn routines(world: &World) {
    let name = format!("p_{:?}", world.encoding).to_lowercase();
    let mut a = world.connect();
    a.exec_text(&format!("DROP PROCEDURE IF EXISTS {name}"));
    a.exec_text(&format!("CREATE PROCEDURE {name}() SET @of_routine=8, sql_warnings=1"));
    a.exec(&format!("CALL {name}()"));
    assert_eq!(a.row("SELECT @of_routine, @@sql_warnings"), "8 1");
    drop(a);
    assert_eq!(world.connect().row("SELECT @of_routine, @@sql_warnings"), "NULL 0");
}

/// USE is followed without being told.
fn schemas(world: &World) {
    let (mut a, mut b) = (world.connect(), world.connect());
    a.exec_text("USE mysql");
    assert_eq!(b.get("SELECT DATABASE()"), "test");
    assert_eq!(a.get("SELECT DATABASE()"), "mysql");
    assert_eq!(b.get("SELECT DATABASE()"), "test");
    let gone = format!("gone_{:?}", world.encoding).to_lowercase();
    a.exec(&format!("CREATE DATABASE {gone}"));
    a.exec_text(&format!("USE {gone}"));
    a.exec(&format!("DROP DATABASE {gone}"));
    assert_eq!(b.get("SELECT DATABASE()"), "test");
    assert_eq!(a.get("SELECT DATABASE()"), "NULL");
}
