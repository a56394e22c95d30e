//! The query cache through the real proxy: which statements it answers, for which sessions, and for how long.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests may panic

mod common;

use common::Peer;
use lab::client::Encoding;
use lab::tidegate::Setting;
use lab::{Flavor, Options, Server, Tidegate, wait};
use std::sync::OnceLock;
use std::time::Duration;

fn server(flavor: Flavor) -> &'static Server {
    static SERVERS: [OnceLock<Server>; 2] = [OnceLock::new(), OnceLock::new()];
    SERVERS[usize::from(flavor == Flavor::Mysql)].get_or_init(|| Server::start(flavor, &Options::new()).unwrap())
}

/// A proxy that caches reads of `test.<table>` for so long.
fn proxy(flavor: Flavor, table: &str, ttl_ms: i64) -> Tidegate {
    let server = server(flavor);
    server.sql(&format!("DROP TABLE IF EXISTS test.{table}")).unwrap();
    server.sql(&format!("CREATE TABLE test.{table} (id INT PRIMARY KEY, a INT, s VARCHAR(20), d DATETIME, x DOUBLE)")).unwrap();
    server.sql(&format!("INSERT INTO test.{table} VALUES (1, 10, 'one', '2026-01-02 03:04:05', 0.5), (2, 20, NULL, NULL, NULL)")).unwrap();
    let digest = format!("FROM {table}");
    let rule: [(&str, Setting); 4] =
        [("rule_id", 1.into()), ("active", 1.into()), ("match_digest", digest.as_str().into()), ("cache_ttl", ttl_ms.into())];
    Tidegate::builder().backend(0, server).app_user().variable("threads", 2).row("mysql_query_rules", &rule).start().unwrap()
}

fn change(flavor: Flavor, table: &str, a: i32) {
    server(flavor).sql(&format!("UPDATE test.{table} SET a = {a} WHERE id = 1")).unwrap();
}

lab::each!(
    answered_again,
    warnings_are_not_cached,
    rows_before_an_offset_are_found,
    calls_are_not_cached,
    expires,
    flushed_by_an_administrator,
);

fn answered_again(flavor: Flavor) {
    let proxy = proxy(flavor, "c1", 600_000);
    let [mut text, mut binary] = [Encoding::Text, Encoding::Binary].map(|encoding| Peer::through(&proxy, encoding));
    let by_id = "SELECT a, s, d FROM c1 WHERE id = 1";
    let first = text.table(by_id);
    assert_eq!(first, [["10", "one", "2026-01-02 03:04:05"]]);
    change(flavor, "c1", 11);
    assert_eq!(text.table(by_id), first, "from the cache");
    assert_eq!(binary.table(by_id)[0][..2], first[0][..2], "prepared statements share it");
    assert_eq!(text.get("SELECT a FROM c1 WHERE id = 1"), "11", "another text");
    let all = binary.table("SELECT * FROM c1 ORDER BY id");
    change(flavor, "c1", 12);
    assert_eq!(binary.table("SELECT * FROM c1 ORDER BY id"), all);
    text.exec("BEGIN");
    assert_eq!(text.table(by_id)[0][0], "12", "never inside a transaction");
    text.exec("COMMIT");
    text.exec("SET autocommit=0");
    assert_eq!(text.table(by_id)[0][0], "12", "never with autocommit=0");
    text.exec("COMMIT");
    text.exec("SET autocommit=1");
    assert_eq!(text.table(by_id), first);
    text.exec("SET time_zone='+03:00'");
    assert_eq!(text.table(by_id)[0][0], "12", "other session variables, other entries");
    assert_eq!(text.table("SELECT a FROM c1 WHERE id = 1 FOR UPDATE"), [["12"]], "locking reads are not cached");
    assert_eq!(text.fails("SELECT nothing FROM c1"), 1054);
    assert_eq!(text.fails("SELECT nothing FROM c1"), 1054);
    assert_eq!(text.get("SELECT 'the session goes on'"), "the session goes on");
}

/// A result from the cache has no warnings: neither does it announce any, nor does SHOW WARNINGS show any.
fn warnings_are_not_cached(flavor: Flavor) {
    let proxy = proxy(flavor, "c4", 600_000);
    let mut admin = proxy.admin().unwrap();
    for sql in ["SET mysql-query_cache_handle_warnings=1", "LOAD MYSQL VARIABLES TO RUNTIME"] {
        admin.run(sql).unwrap();
    }
    for (n, encoding) in [Encoding::Text, Encoding::Binary].into_iter().enumerate() {
        let sql = format!("SELECT a / 0, {n} FROM c4 WHERE id = 1");
        let mut peer = Peer::through(&proxy, encoding);
        let first = peer.ask(&sql).status().unwrap().warnings;
        assert_eq!((first, peer.query("SHOW WARNINGS").unwrap().table().unwrap().len()), (1, 1), "{encoding:?}: its own");
        change(flavor, "c4", 7);
        for encoding in [encoding, Encoding::Text, Encoding::Binary] {
            let mut peer = Peer::through(&proxy, encoding);
            for _ in 0..2 {
                assert_eq!(peer.fails("SELECT nothing FROM c4"), 1054);
                assert_eq!(peer.ask(&sql).status().unwrap().warnings, 0, "{encoding:?}: from the cache");
                // MySQL does not prepare the questions without a warning.
                assert_eq!(peer.scalar("SELECT @@warning_count").unwrap().as_deref(), Some("0"), "{encoding:?}");
                assert_eq!(peer.ask(&sql).status().unwrap().warnings, 0, "{encoding:?}: from the cache");
                assert!(peer.query("SHOW WARNINGS").unwrap().table().unwrap().is_empty(), "{encoding:?}");
            }
        }
    }
}

/// FOUND_ROWS() counts the rows that LIMIT leaves out at the front.
fn rows_before_an_offset_are_found(flavor: Flavor) {
    let proxy = proxy(flavor, "c5", 600_000);
    for encoding in [Encoding::Text, Encoding::Binary] {
        let mut peer = Peer::through(&proxy, encoding);
        for (limit, rows, found) in [("1, 1", 1, "2"), ("1 OFFSET 1", 1, "2"), ("9, 1", 0, "2"), ("1", 1, "1")] {
            for turn in 0..3 {
                assert_eq!(peer.table(&format!("SELECT id FROM c5 ORDER BY id LIMIT {limit}")).len(), rows);
                assert_eq!(peer.get("SELECT FOUND_ROWS()"), found, "LIMIT {limit}, {encoding:?}, turn {turn}");
            }
        }
    }
}

/// A sequence or a stored function may do something each time.
fn calls_are_not_cached(flavor: Flavor) {
    let proxy = proxy(flavor, "c6", 600_000);
    let server = server(flavor);
    if flavor == Flavor::Mysql {
        server.sql("SET GLOBAL log_bin_trust_function_creators=1").unwrap();
    }
    server.sql("DROP FUNCTION IF EXISTS test.c6_next").unwrap();
    server.sql("CREATE TABLE IF NOT EXISTS test.c6_n (n INT)").unwrap();
    server.sql("INSERT INTO test.c6_n VALUES (0)").unwrap();
    server
        .sql("CREATE FUNCTION test.c6_next() RETURNS INT MODIFIES SQL DATA BEGIN UPDATE c6_n SET n = n + 1; RETURN (SELECT n FROM c6_n); END")
        .unwrap();
    let mut calls = vec!["c6_next()"];
    if flavor == Flavor::Mariadb {
        server.sql("CREATE OR REPLACE SEQUENCE test.c6_s").unwrap();
        calls.extend(["NEXTVAL(c6_s)", "NEXT VALUE FOR c6_s"]);
    }
    for call in calls {
        let mut seen = Vec::new();
        for encoding in [Encoding::Text, Encoding::Binary, Encoding::Text, Encoding::Binary] {
            seen.push(Peer::through(&proxy, encoding).get(&format!("SELECT {call} FROM c6 WHERE id = 1")));
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 4, "{call}: {seen:?}");
    }
}

fn expires(flavor: Flavor) {
    let proxy = proxy(flavor, "c2", 300);
    let mut peer = Peer::through(&proxy, Encoding::Text);
    assert_eq!(peer.get("SELECT a FROM c2 WHERE id = 1"), "10");
    change(flavor, "c2", 11);
    wait::until("the entry expires", Duration::from_secs(10), || (peer.get("SELECT a FROM c2 WHERE id = 1") == "11").then_some(()))
        .unwrap();
}

fn flushed_by_an_administrator(flavor: Flavor) {
    let proxy = proxy(flavor, "c3", 600_000);
    let mut peer = Peer::through(&proxy, Encoding::Text);
    let mut admin = proxy.admin().unwrap();
    assert_eq!(peer.get("SELECT a FROM c3 WHERE id = 1"), "10");
    change(flavor, "c3", 11);
    assert_eq!(peer.get("SELECT a FROM c3 WHERE id = 1"), "10");
    let count = admin.scalar("SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name = 'Query_Cache_count_GET_OK'").unwrap();
    assert_eq!(count.as_deref(), Some("1"));
    admin.run("PROXYSQL FLUSH QUERY CACHE").unwrap();
    assert_eq!(peer.get("SELECT a FROM c3 WHERE id = 1"), "11");
    // A rule that is gone caches nothing more.
    admin.run("DELETE FROM mysql_query_rules").unwrap();
    admin.run("LOAD MYSQL QUERY RULES TO RUNTIME").unwrap();
    change(flavor, "c3", 12);
    assert_eq!(peer.get("SELECT a FROM c3 WHERE id = 1"), "12");
}
