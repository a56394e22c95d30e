//! Session state of a new connection that no global variable shows: `init_connect`, the user's limits, the timeout of an interactive
//! client.
//!
//! A session that sets nothing has this state, whichever session used the connection before.

#![allow(clippy::unwrap_used)] // tests may panic

use lab::server::Options;
use lab::{Client, Flavor, Server, Tidegate};
use wire::Capabilities;

const BOTH: [Flavor; 2] = [Flavor::Mariadb, Flavor::Mysql];

fn proxy(server: &Server, init_connect: &str) -> Tidegate {
    let builder = Tidegate::builder().server_with(0, server.host(), server.port(), &[("max_connections", 1.into())]);
    builder.app_user().variable("threads", 1).variable("init_connect", init_connect).start().unwrap()
}

/// `a` sets these on a connection; `b` gets the same `query` result on it before and after it is reset and used again.
fn b_keeps(a: &mut Client, b: &mut Client, sets: &str, query: &str) {
    let before = b.scalar(query).unwrap();
    for _ in 0..2 {
        a.run(sets).unwrap();
        assert_eq!(b.scalar(query).unwrap(), before, "after {sets}");
        // A user variable that only `a` has leads to a reset.
        a.run("SET @mine = 1").unwrap();
        assert_eq!(b.scalar(query).unwrap(), before, "after a reset");
        a.reset_connection().unwrap().ok().unwrap();
    }
}

#[test]
fn of_the_proxys_init_connect() {
    for flavor in BOTH {
        let server = Server::start(flavor, &Options::new()).unwrap();
        let proxy = proxy(&server, "SET SESSION sql_mode=''");
        let (mut a, mut b) = (proxy.connect_app().unwrap(), proxy.connect_app().unwrap());
        assert_eq!(b.scalar("SELECT @@sql_mode").unwrap().as_deref(), Some(""));
        b_keeps(&mut a, &mut b, "SET sql_mode='TRADITIONAL'", "SELECT @@sql_mode");
        let mut late = proxy.connect_app().unwrap();
        assert_eq!(late.scalar("SELECT @@sql_mode").unwrap().as_deref(), Some(""));
    }
}

/// Whatever the client may send itself.
#[test]
fn of_an_init_connect_of_several_statements() {
    for flavor in BOTH {
        let server = Server::start(flavor, &Options::new()).unwrap();
        let proxy = proxy(&server, "SET SESSION sql_mode='';SET SESSION lock_wait_timeout=77;");
        let options = proxy.options("app", "app-pass");
        let with = options.clone().with(Capabilities::MULTI_STATEMENTS | Capabilities::MULTI_RESULTS);
        for (options, may) in [(options.without(Capabilities::MULTI_STATEMENTS), false), (with, true)] {
            let (mut a, mut b) = (Client::connect(&options).unwrap(), Client::connect(&options).unwrap());
            let query = "SELECT CONCAT(@@sql_mode, @@lock_wait_timeout)";
            assert_eq!(b.scalar(query).unwrap().as_deref(), Some("77"), "{flavor:?}, may send several: {may}");
            b_keeps(&mut a, &mut b, "SET sql_mode='TRADITIONAL', lock_wait_timeout=88", query);
            assert_eq!(a.query("DO 1; DO 2").unwrap().err().is_none(), may, "{flavor:?}");
        }
    }
}

#[test]
fn of_the_servers_init_connect() {
    for flavor in BOTH {
        let server = Server::start(flavor, &Options::new()).unwrap();
        server.sql("SET GLOBAL init_connect='SET autocommit=0, time_zone=\\'+04:00\\', NAMES latin1'").unwrap();
        server.sql("CREATE TABLE test.t(i INT)").unwrap();
        let proxy = proxy(&server, "");
        let (mut a, mut b) = (proxy.connect_app().unwrap(), proxy.connect_app().unwrap());
        assert_eq!(b.scalar("SELECT @@time_zone").unwrap().as_deref(), Some("+04:00"));
        b.run("COMMIT").unwrap();
        b_keeps(&mut a, &mut b, "SET autocommit=1, time_zone='+00:00'", "SELECT CONCAT(@@autocommit, @@time_zone)");
        a.run("SET autocommit=1").unwrap();
        a.run("INSERT INTO test.t VALUES(1)").unwrap();
        b.run("INSERT INTO test.t VALUES(2)").unwrap();
        b.run("ROLLBACK").unwrap();
        assert_eq!(a.scalar("SELECT COUNT(*) FROM test.t").unwrap().as_deref(), Some("1"), "nobody asked for autocommit");
        assert_eq!(a.scalar("SELECT @@character_set_client").unwrap().as_deref(), Some("utf8mb4"), "as the client logged in");
    }
}

#[test]
fn of_a_limited_user() {
    let server = Server::start(Flavor::Mariadb, &Options::new()).unwrap();
    server.sql("ALTER USER app WITH MAX_STATEMENT_TIME 0.5").unwrap();
    let proxy = proxy(&server, "");
    let (mut a, mut b) = (proxy.connect_app().unwrap(), proxy.connect_app().unwrap());
    b_keeps(&mut a, &mut b, "SET max_statement_time=3", "SELECT @@max_statement_time");
    assert_eq!(b.scalar("SELECT @@max_statement_time > 0.4").unwrap().as_deref(), Some("1"));
}

#[test]
fn of_an_interactive_client() {
    for flavor in BOTH {
        let server = Server::start(flavor, &Options::new()).unwrap();
        server.sql("SET GLOBAL interactive_timeout=1234").unwrap();
        let proxy = proxy(&server, "");
        let options = proxy.options("app", "app-pass").with(Capabilities::INTERACTIVE);
        let (mut a, mut b) = (Client::connect(&options).unwrap(), Client::connect(&options).unwrap());
        assert_eq!(b.scalar("SELECT @@wait_timeout").unwrap().as_deref(), Some("1234"));
        b_keeps(&mut a, &mut b, "SET wait_timeout=77", "SELECT @@wait_timeout");
    }
}

/// Values that a session cannot set are no defaults of it: the limits of an account, and the counters of the server.
#[test]
fn nothing_that_a_session_cannot_set() {
    for flavor in BOTH {
        let server = Server::start(flavor, &Options::new()).unwrap();
        server.sql("ALTER USER app WITH MAX_USER_CONNECTIONS 50").unwrap();
        let proxy = proxy(&server, "SET SESSION sql_mode=''");
        let (mut a, mut b) = (proxy.connect_app().unwrap(), proxy.connect_app().unwrap());
        for round in 0..5 {
            a.run(format!("SET @mine = {round}")).unwrap();
            assert_eq!(b.scalar("SELECT @mine").unwrap(), None);
        }
        let sql = "SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name = 'Server_Connections_created'";
        assert_eq!(proxy.admin().unwrap().scalar(sql).unwrap().as_deref(), Some("1"), "each reset was a login");
    }
}
