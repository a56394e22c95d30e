//! Plans: both servers are asked how they run a statement that is slower on the shadow, seldom, and without any effect.

use super::common::{LIMIT, Peer};
use super::{Rehearsal, proxy, servers};
use lab::client::{Encoding, Param};
use lab::{Flavor, Server, wait};
use std::time::Duration;

/// Reads of a digest until it is slower.
const ENOUGH: i64 = 40;

/// 20,000 rows, and an index by which few of them are found.
fn fill(server: &Server) {
    let digits = "(SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 \
                  UNION SELECT 8 UNION SELECT 9)";
    let mut root = server.root().unwrap();
    for sql in [
        "CREATE TABLE test.items (id INT PRIMARY KEY, c INT, v INT, KEY ix_c (c))".to_owned(),
        format!(
            "INSERT INTO test.items SELECT n, n, n % 7 FROM (SELECT a.n + 10 * b.n + 100 * c.n + 1000 * d.n + 10000 * e.n AS n \
             FROM {digits} AS a, {digits} AS b, {digits} AS c, {digits} AS d, (SELECT 0 AS n UNION SELECT 1) AS e) AS numbers"
        ),
        "ANALYZE TABLE test.items".to_owned(),
        "SET GLOBAL log_output = 'TABLE', general_log = 1".to_owned(),
    ] {
        root.run(sql).unwrap();
    }
}

/// How often the server was asked for the plan of a statement that begins so.
fn explained(server: &Server, command: &str, text: &str) -> u64 {
    let sql = format!(
        "SELECT COUNT(*) FROM mysql.general_log WHERE command_type = '{command}' AND CONVERT(argument USING utf8mb4) LIKE 'EXPLAIN FORMAT=JSON {text}%'"
    );
    server.root().unwrap().scalar(sql).unwrap().unwrap().parse().unwrap()
}

/// Questions for plans on connections that were never told to write nothing.
fn unguarded(server: &Server) -> String {
    let log = "SELECT thread_id, event_time, command_type, CONVERT(argument USING utf8mb4) AS argument FROM mysql.general_log";
    let sql = format!(
        "WITH log AS ({log}) SELECT COUNT(*) FROM log AS asked WHERE argument LIKE 'EXPLAIN FORMAT=JSON SELECT%' AND NOT EXISTS \
         (SELECT 1 FROM log AS told WHERE told.thread_id = asked.thread_id AND told.event_time <= asked.event_time \
         AND told.argument LIKE 'SET %read_only%')"
    );
    server.root().unwrap().scalar(sql).unwrap().unwrap()
}

fn count(rehearsal: &mut Rehearsal, filter: &str) -> String {
    let sql = format!("SELECT COUNT(*) FROM stats_tidegate_rehearsal_plans WHERE name = 'new' AND {filter}");
    rehearsal.0.scalar(sql).unwrap().unwrap()
}

fn a_lost_index_is_named(flavor: Flavor) {
    // MySQL's version 2 does not tell which indexes are usable.
    let fate = if flavor == Flavor::Mysql { "not used" } else { "lost" };
    let lost = format!("index ix_c {fate}: full scan of items");
    let both = servers(flavor);
    both.iter().for_each(fill);
    both[1].sql("ALTER TABLE test.items DROP KEY ix_c").unwrap();
    let proxy = proxy(&both[0], &both[1], &[]);
    let mut rehearsal = Rehearsal::start(&proxy);
    let mut peer = Peer::through(&proxy, Encoding::Text);
    let statement = peer.prepare("SELECT v, id FROM items WHERE c = ?").unwrap();
    let is_named = |page: &str| {
        ["SELECT v FROM items WHERE c = ?", "SELECT v,id FROM items WHERE c = ?"].iter().all(|digest| {
            let line = format!("of all time: {digest}; plan: {lost}");
            page.lines().any(|found| found.starts_with("slower: ") && found.ends_with(&line))
        })
    };
    // On a machine that is busy elsewhere, more reads are needed until a median tells.
    let page = wait::until("plans of text and executions", Duration::from_secs(240), || {
        for n in 0..ENOUGH {
            peer.exec(&format!("SELECT v FROM items WHERE c = {}", 17_000 + n));
            peer.exec(&format!("SELECT v FROM items WHERE id = {n}"));
            peer.execute(&statement, &[Param::Int(17_000 + n)]).unwrap().check().unwrap();
        }
        rehearsal.settled();
        Some(rehearsal.page()).filter(|page| is_named(page))
    });
    let page = page.unwrap_or_else(|e| panic!("{e}\n{}", rehearsal.page()));
    println!("{page}");
    // A busy machine may make this one slower too. Its plan is the same.
    let is_same = |line: &str| line.ends_with("plan: the same") || line.ends_with("plan: no difference in what both servers tell");
    assert!(!page.lines().any(|line| line.contains("WHERE id = ?; plan:") && !is_same(line)), "{page}");
    assert!(page.contains("\nplans: ") && !page.contains("last error"), "{page}");
    let plans = rehearsal
        .0
        .run("SELECT original_plan, shadow_plan FROM stats_tidegate_rehearsal_plans WHERE change <> ''")
        .unwrap()
        .table()
        .unwrap();
    println!("{plans:?}");
    for row in plans {
        // The server's estimate of the table's rows may be an old one.
        let [original, shadow] = [0, 1].map(|column| row[column].clone().unwrap_or_default());
        assert!(original == "items lookup ix_c ~1" && shadow.starts_with("items full scan ~"), "{original}, {shadow}");
    }
    assert_eq!(count(&mut rehearsal, "change <> ''"), "2");
    for server in &both {
        assert!((1..=2).contains(&explained(server, "Query", "SELECT v FROM items WHERE c")), "{page}");
        assert!((1..=2).contains(&explained(server, "Execute", "SELECT v, id FROM items WHERE c")), "{page}");
        assert_eq!(unguarded(server), "0");
    }
    let metrics = format!("{:?}", rehearsal.0.run("SHOW PROMETHEUS METRICS").unwrap().table().unwrap());
    assert!(metrics.contains("tidegate_rehearsal_plans_total"), "{metrics}");
    // An operator may do without.
    let asked = |server: &Server| explained(server, "Query", "SELECT") + explained(server, "Execute", "SELECT");
    let before = both.each_ref().map(asked);
    for sql in [
        "STOP REHEARSAL 'new'",
        "UPDATE mysql_rehearsals SET explain = 0",
        "LOAD MYSQL QUERY RULES TO RUNTIME",
        "SAVE MYSQL QUERY RULES TO DISK",
        "START REHEARSAL 'new'",
    ] {
        rehearsal.0.run(sql).unwrap();
    }
    (0..ENOUGH).for_each(|n| drop(peer.exec(&format!("SELECT v FROM items WHERE c = {}", 17_000 + n))));
    rehearsal.settled();
    let page = rehearsal.page();
    assert!(!page.contains("plan"), "{page}");
    assert_eq!((both.each_ref().map(asked), count(&mut rehearsal, "1").as_str()), (before, "0"));
}

/// MariaDB runs functions behind views when it is asked for a plan. Of reads that such a function makes a write, none is asked for.
fn a_read_that_would_write_is_not_explained(flavor: Flavor) {
    let both = servers(flavor);
    for server in &both {
        let mut root = server.root().unwrap();
        for sql in [
            "SET GLOBAL log_bin_trust_function_creators = 1, log_output = 'TABLE', general_log = 1",
            "CREATE TABLE test.log (n INT)",
            "CREATE FUNCTION test.note() RETURNS INT DETERMINISTIC MODIFIES SQL DATA BEGIN INSERT INTO test.log VALUES (1); RETURN 1; END",
            "CREATE ALGORITHM=TEMPTABLE VIEW test.noted AS SELECT test.note() AS n",
        ] {
            root.run(sql).unwrap();
        }
    }
    let proxy = proxy(&both[0], &both[1], &[]);
    let mut rehearsal = Rehearsal::start(&proxy);
    let mut peer = Peer::through(&proxy, Encoding::Text);
    (0..ENOUGH).for_each(|_| assert_eq!(peer.get("SELECT n FROM noted"), "1"));
    let all = format!("skipped: {ENOUGH} writes;");
    wait::until("all to be refused", LIMIT, || rehearsal.page().contains(&all).then_some(())).unwrap();
    let rows = |server: &Server| server.scalar("SELECT COUNT(*) FROM test.log").unwrap().unwrap();
    assert_eq!(both.each_ref().map(rows), [ENOUGH.to_string(), "0".to_owned()], "{}", rehearsal.page());
    assert_eq!(both.each_ref().map(|server| explained(server, "Query", "SELECT")), [0; 2]);
}

lab::each!(a_lost_index_is_named, a_read_that_would_write_is_not_explained);
