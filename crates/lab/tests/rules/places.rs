//! Pins keep a connection, not statements: what is left in one hostgroup, and where the other statements go.

use super::common::{LIMIT, Peer};
use super::{hostgroup, proxy, servers, sessions};
use lab::client::Encoding;
use lab::tidegate::Setting;
use lab::{Tidegate, wait};

const SPLIT: (&str, &str) = ("attributes", r#"{"read_write_split": {"writer": 1, "reader": 2}}"#);

/// A table that is on both servers, empty.
fn table(name: &str) {
    for server in servers() {
        server.sql(&format!("CREATE OR REPLACE TABLE test.{name} (n INT)")).unwrap();
    }
}

/// How many rows each server has of it.
fn rows(name: &str) -> [String; 2] {
    [0, 1].map(|server| servers()[server].scalar(&format!("SELECT COUNT(*) FROM test.{name}")).unwrap().unwrap())
}

fn split(more: &[(&str, Setting)]) -> Tidegate {
    let [one, two] = servers();
    let builder = Tidegate::builder().backend(1, one).backend(2, two).user_with("app", "app-pass", 1, &[(SPLIT.0, SPLIT.1.into())]);
    more.iter().fold(builder, |builder, (name, value)| builder.variable(name, value.clone())).start().unwrap()
}

fn pins(proxy: &Tidegate) -> String {
    let sql =
        "SELECT COALESCE(GROUP_CONCAT(hostgroup || reason), '') FROM (SELECT hostgroup, reason FROM stats_tidegate_pins ORDER BY 1, 2)";
    proxy.admin().unwrap().scalar(sql).unwrap().unwrap()
}

/// Without multiplexing a session has a connection of its own in each hostgroup, and statements go where they belong.
#[test]
fn without_multiplexing_a_split_session_writes_to_the_writer() {
    table("own_place");
    let proxy = split(&[("multiplexing", false.into())]);
    for (n, mut peer) in (1..).zip(sessions(&proxy)) {
        let mut ids = Vec::new();
        for _ in 0..3 {
            peer.exec("SELECT n FROM own_place");
            peer.exec("INSERT INTO own_place VALUES (1)");
            ids.push(peer.get("SELECT CONNECTION_ID() + 0"));
        }
        assert_eq!(rows("own_place"), [(3 * n).to_string(), "0".into()]);
        ids.dedup();
        assert_eq!(ids.len(), 1, "{ids:?}");
        assert_eq!(pins(&proxy), "1multiplexing_off,2multiplexing_off");
        drop(peer);
        wait::until("its connections to be free", LIMIT, || pins(&proxy).is_empty().then_some(())).unwrap();
    }
}

#[test]
fn a_pin_of_a_rule_keeps_the_connection_of_its_hostgroup() {
    table("ruled_place");
    let reads = [("match_digest", "^SELECT".into()), ("destination_hostgroup", 2.into()), ("multiplex", 0.into()), ("apply", 1.into())];
    let proxy = proxy(&[&reads]).start().unwrap();
    let [mut peer, _] = sessions(&proxy);
    let id = peer.get("SELECT CONNECTION_ID() + 0");
    peer.exec("INSERT INTO ruled_place VALUES (1)");
    peer.exec_all(&["BEGIN", "INSERT INTO ruled_place VALUES (2)"]);
    assert_eq!(hostgroup(&mut peer, "SELECT @@port"), 1, "a transaction stays where it is");
    peer.exec("COMMIT");
    assert_eq!(rows("ruled_place"), ["2", "0"]);
    assert_eq!(peer.get("SELECT CONNECTION_ID() + 0"), id);
}

/// What pins a session to one shard takes no statement to the wrong one.
#[test]
fn what_is_for_another_shard_goes_there() {
    table("shard2");
    let shard = [("match_digest", "shard2".into()), ("destination_hostgroup", 2.into()), ("apply", 1.into())];
    let reads = [("match_digest", "^SELECT @@port".into()), ("destination_hostgroup", 2.into()), ("apply", 1.into())];
    let proxy = proxy(&[&shard, &reads]).start().unwrap();
    let cases: [(&str, &str, &str); 4] = [
        ("SELECT GET_LOCK('place', 0)", "user_lock", "SELECT RELEASE_LOCK('place')"),
        ("CREATE TEMPORARY TABLE left_here (n INT)", "temporary_table", "DROP TEMPORARY TABLE left_here"),
        ("PREPARE left_here FROM 'SELECT 1'", "text_prepare", "DEALLOCATE PREPARE left_here"),
        ("EXECUTE IMMEDIATE 'SET @here = 1'", "session_state", ""),
    ];
    for (n, (begins, reason, ends)) in (1..).zip(cases) {
        let mut peer = Peer::through(&proxy, Encoding::Text);
        peer.exec("INSERT INTO shard2 VALUES (0)");
        peer.exec(begins);
        let id = peer.get("SELECT CONNECTION_ID() + 0");
        peer.exec("INSERT INTO shard2 VALUES (1)");
        assert_eq!(rows("shard2"), ["0".into(), (2 * n).to_string()], "{begins}");
        assert_eq!(pins(&proxy), format!("1{reason}"), "{begins}");
        assert_eq!(hostgroup(&mut peer, "SELECT @@port"), 2, "{begins}");
        assert_eq!(peer.get("SELECT CONNECTION_ID() + 0"), id, "{begins}: what was left is kept");
        if !ends.is_empty() {
            peer.exec("SELECT * FROM shard2");
            peer.exec(ends);
            wait::until("the pin to end", LIMIT, || pins(&proxy).is_empty().then_some(())).unwrap();
        }
    }
}

/// A statement that names a temporary table goes to it, whatever rules say.
#[test]
fn a_temporary_table_draws_statements() {
    let reads = [("match_digest", "^SELECT".into()), ("destination_hostgroup", 2.into()), ("apply", 1.into())];
    let proxy = proxy(&[&reads]).start().unwrap();
    for mut peer in sessions(&proxy) {
        peer.exec("CREATE TEMPORARY TABLE drawn (n INT)");
        peer.exec("INSERT INTO drawn VALUES (7)");
        assert_eq!(hostgroup(&mut peer, "SELECT @@port"), 2);
        assert_eq!(peer.get("SELECT n FROM `drawn`"), "7");
        assert_eq!(hostgroup(&mut peer, "SELECT @@port, 'drawn'"), 2, "that is no name");
        peer.exec("ALTER TABLE drawn RENAME TO other");
        assert_eq!(peer.get("SELECT n FROM other"), "7");
        peer.reset_connection().unwrap().check().unwrap();
        assert_eq!(peer.fails("SELECT n FROM other"), 1146);
        wait::until("the pin to end", LIMIT, || pins(&proxy).is_empty().then_some(())).unwrap();
    }
}

/// What a reader keeps for a session keeps it from writing nowhere.
#[test]
fn a_session_that_left_something_on_a_reader_writes() {
    table("of_reader");
    for server in servers() {
        server.sql("CREATE OR REPLACE FUNCTION test.sets() RETURNS INT BEGIN SET @of_view = 5; RETURN 1; END").unwrap();
        server.sql("CREATE OR REPLACE VIEW test.set_by_view AS SELECT test.sets() AS n").unwrap();
    }
    let proxy = split(&[]);
    for mut peer in sessions(&proxy) {
        let [before, _] = rows("of_reader");
        peer.exec("SELECT n FROM set_by_view");
        peer.exec("INSERT INTO of_reader VALUES (1)");
        assert_eq!(peer.get("SELECT SQL_CALC_FOUND_ROWS 1 UNION SELECT 2 LIMIT 1"), "1");
        peer.exec("INSERT INTO of_reader VALUES (2)");
        assert_eq!(peer.get("SELECT FOUND_ROWS()"), "2");
        peer.exec_all(&["BEGIN", "INSERT INTO of_reader VALUES (3)", "COMMIT"]);
        let [after, none] = rows("of_reader").map(|rows| rows.parse::<u32>().unwrap());
        assert_eq!((after - before.parse::<u32>().unwrap(), none), (3, 0));
    }
}

/// What was left on a server that is taken away ends the session only when it is wanted.
#[test]
fn what_was_left_is_lost_with_its_server() {
    table("lost_place");
    let shard = [("match_digest", "lost_place".into()), ("destination_hostgroup", 2.into()), ("apply", 1.into())];
    let proxy = proxy(&[&shard]).variable("monitor_enabled", false).start().unwrap();
    let mut peer = Peer::through(&proxy, Encoding::Text);
    peer.exec("CREATE TEMPORARY TABLE left_behind (n INT)");
    peer.exec("INSERT INTO lost_place VALUES (1)");
    let mut admin = proxy.admin().unwrap();
    let mut set = |status: &str| {
        admin.run(format!("UPDATE mysql_servers SET status='{status}' WHERE hostgroup_id=1")).unwrap();
        admin.run("LOAD MYSQL SERVERS TO RUNTIME").unwrap().check().unwrap();
    };
    set("OFFLINE_HARD");
    let used = "SELECT ConnUsed FROM stats_mysql_connection_pool WHERE hostgroup=1";
    wait::until("the connection to be closed", LIMIT, || {
        (proxy.admin().unwrap().scalar(used).unwrap().as_deref() == Some("0")).then_some(())
    })
    .unwrap();
    peer.exec("INSERT INTO lost_place VALUES (2)");
    set("ONLINE");
    peer.exec("INSERT INTO lost_place VALUES (3)");
    assert_eq!(peer.fails("SELECT n FROM left_behind"), 2013);
    assert_eq!(rows("lost_place"), ["0", "3"]);
}
