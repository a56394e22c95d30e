//! Session scripts, direct and through the proxy: generated ones with fixed seeds, and past findings in their smallest form.
//!
//! `lab differential` plays more of them; `LAB_SEED` plays the generated ones with another seed.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{proxy_with, server};
use lab::differential::{Block, Campaign, Login, Readers, Round, Script, Step};
use lab::{ConnectOptions, Flavor, Tidegate};
use wire::Capabilities;

/// Fewer backends than sessions, so that no session can keep one.
const BACKENDS: usize = 2;
const SESSIONS: usize = 6;

/// The seed of the scripts.
fn seed() -> u64 {
    std::env::var("LAB_SEED").ok().map_or(20_250_101, |seed| seed.parse().unwrap())
}

/// The proxy of a campaign, and exclusive use of its server, because all campaigns use the same schemas.
struct Stage {
    proxy: Tidegate,
    _turn: MutexGuard<'static, ()>,
}

fn campaign(flavor: Flavor, backends: usize, threads: i64) -> (Campaign, Stage) {
    static MARIADB: Mutex<()> = Mutex::new(());
    static MYSQL: Mutex<()> = Mutex::new(());
    let turn = match flavor {
        Flavor::Mariadb => &MARIADB,
        Flavor::Mysql => &MYSQL,
    };
    // A test that failed leaves nothing behind that the next one does not clear away.
    let turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
    let server = server(flavor);
    let limit = i64::try_from(backends).unwrap();
    let proxy = proxy_with(server, limit, |builder| builder.variable("connect_timeout_server_max", 1500).variable("threads", threads));
    let campaign = Campaign {
        flavor,
        direct: ConnectOptions::tcp(server.address(), "app", "app-pass").timeout(common::LIMIT),
        proxied: proxy.options("app", "app-pass").timeout(common::LIMIT),
        root: ConnectOptions::unix(server.socket(), "root", ""),
        admin: Some(proxy.admin_options()),
        sessions: SESSIONS,
        backends,
        shrink_plays: 60,
    };
    (campaign, Stage { proxy, _turn: turn })
}

fn plays_the_same(flavor: Flavor, scripts: u64) {
    let (campaign, _stage) = campaign(flavor, BACKENDS, 2);
    plays(&campaign, scripts);
}

/// Other sessions leave no connection idle, and quick reads of all share them.
fn plays_the_same_beside_readers(flavor: Flavor) {
    let (campaign, stage) = campaign(flavor, BACKENDS, 2);
    let mut admin = stage.proxy.admin().unwrap();
    for order in ["SET mysql-pipeline_depth=8", "SET mysql-pipeline_max_statement_us=1000000", "LOAD MYSQL VARIABLES TO RUNTIME"] {
        admin.run(order).unwrap();
    }
    let readers = Readers::start(&campaign.root, &campaign.proxied.clone().database("test"), "read_beside", 8).unwrap();
    plays(&campaign, 12);
    assert!(readers.stop().unwrap() > 0);
    let shared = admin.scalar("SELECT SUM(pipelined) FROM stats_tidegate_waits").unwrap().unwrap();
    assert!(shared.parse::<u64>().unwrap() > 100, "{shared} statements shared a connection");
    server(flavor).sql("DROP TABLE test.read_beside").unwrap();
}

fn plays(campaign: &Campaign, scripts: u64) {
    let summary = campaign.run(seed(), scripts, |_| ()).unwrap();
    let shown: Vec<String> = summary.differences.iter().map(ToString::to_string).collect();
    assert!(shown.is_empty(), "{} scripts, {} steps:\n{}", summary.scripts, summary.steps, shown.join("\n"));
}

/// Sessions share backends only while no more of them are pinned than the tester knows of.
fn pins_where_it_says(flavor: Flavor) {
    let (campaign, _stage) = campaign(flavor, BACKENDS, 2);
    let found = campaign.unmarked_pins(seed(), 60).unwrap();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// A script without blocks that pin.
fn script(schema: &str, charset: u8, steps: Vec<Step>) -> Script {
    let login = Login { capabilities: ConnectOptions::MODERN, charset, schema: schema.to_owned(), with_schema: true };
    Script { login, blocks: vec![Block { pins: false, steps }] }
}

fn queries(all: &[&str]) -> Vec<Step> {
    all.iter().map(|sql| Step::Query((*sql).to_owned())).collect()
}

/// Both sessions take turns on one backend.
fn shares_a_backend(flavor: Flavor, first: Script, second: Script) {
    let (campaign, _stage) = campaign(flavor, 1, 1);
    let round = Round { scripts: vec![first, second], most_pinned: 0 };
    let (turns, found) = campaign.compare(&round).unwrap();
    assert!(found.is_none(), "{found:#?}");
    assert!(turns > 4, "{turns}");
}

/// A session that lost its schema has the collation of its own server character set, of which no server tells.
fn a_dropped_schema_leaves_its_collation(flavor: Flavor) {
    let first = queries(&[
        "SET collation_server = latin1_bin",
        "CREATE DATABASE test_d0_x",
        "USE test_d0_x",
        "DROP DATABASE test_d0_x",
        "SELECT DATABASE(), @@collation_database",
        "SELECT DATABASE(), @@collation_database",
        "USE test_d0",
        "SELECT DATABASE(), @@collation_database",
        "SELECT DATABASE(), @@collation_database",
    ]);
    let second = queries(&["SELECT DATABASE(), @@collation_database"; 9]);
    shares_a_backend(flavor, script("test_d0", 45, first), script("test_d1", 45, second));
}

/// MySQL warns of utf8mb3: the SET that brings a backend to that session's character set is none of the session's statements.
fn carrying_state_shows_no_warnings(flavor: Flavor) {
    let first = queries(&["SELECT 1", "SHOW WARNINGS", "SELECT 1", "SHOW WARNINGS", "SHOW WARNINGS", "SELECT @@warning_count"]);
    let second = queries(&["SELECT 1"; 6]);
    shares_a_backend(flavor, script("test_d0", 33, first), script("test_d1", 45, second));
}

/// A reset and another login leave the number of rows that the last SELECT found.
fn found_rows_outlast_resets(flavor: Flavor) {
    let three = "SELECT 1 UNION SELECT 2 UNION SELECT 3";
    let mut first = queries(&[three]);
    first.push(Step::ResetConnection);
    first.extend(queries(&["SELECT FOUND_ROWS()", three]));
    let mut script_of_first = script("test_d0", 45, first);
    let login = script_of_first.login.clone();
    script_of_first.blocks[0].steps.push(Step::ChangeUser(login));
    script_of_first.blocks[0].steps.extend(queries(&["SELECT FOUND_ROWS()"]));
    shares_a_backend(flavor, script_of_first, script("test_d1", 45, queries(&["SELECT 1"; 6])));
}

/// MariaDB keeps an error over statements that use no table, also the error that no server knows of.
fn errors_outlast_statements(flavor: Flavor) {
    let mut first = vec![Step::Prepare(0, "SELECT 1".to_owned()), Step::CloseStatement(0), Step::Execute(0, Vec::new())];
    first.extend(queries(&["SELECT 1", "SHOW COUNT(*) ERRORS", "SET time_zone = '+01:00'", "SHOW WARNINGS", "SELECT 1 + 'a'"]));
    first.extend(queries(&["SET time_zone = '+01:00'", "SHOW WARNINGS", "SET time_zone = '+01:00'", "SELECT @@warning_count"]));
    let second = queries(&["SELECT 2 + 'b'"; 12]);
    shares_a_backend(flavor, script("test_d0", 45, first), script("test_d1", 45, second));
}

/// MariaDB keeps warnings over statements that read no table, SHOW among them.
fn warnings_outlast_statements(flavor: Flavor) {
    let over = [
        "SELECT 1 FROM DUAL",
        "SHOW GRANTS",
        "SHOW CREATE PROCEDURE p",
        "SHOW CREATE DATABASE test_d0",
        "EXPLAIN SELECT 1",
        "HELP 'nothing of that name'",
        "SHOW TABLES",
        "SELECT 1 FROM DUAL",
    ];
    let mut first = vec!["CREATE PROCEDURE p() BEGIN END", "SELECT 1 + 'a'"];
    first.extend(over.iter().flat_map(|sql| [*sql, "SHOW WARNINGS"]));
    let second = vec!["SELECT 2 + 'b'"; first.len()];
    shares_a_backend(flavor, script("test_d0", 45, queries(&first)), script("test_d1", 45, queries(&second)));
}

/// A client flag decides how the text of a prepared statement is read, and on MariaDB what sql_mode is.
fn prepared_statements_know_ignore_space(flavor: Flavor) {
    let steps = || {
        let prepare = |sql: &str| [Step::Prepare(0, sql.to_owned()), Step::Execute(0, Vec::new()), Step::CloseStatement(0)];
        [prepare("SELECT @@sql_mode"), prepare("SELECT COUNT (*) FROM information_schema.engines WHERE 1 = 0")].concat()
    };
    let first = script("test_d0", 45, steps());
    // A prepared statement is identified by its schema too.
    let mut second = script("test_d0", 45, steps());
    second.login.capabilities.insert(Capabilities::IGNORE_SPACE);
    shares_a_backend(flavor, first, second);
}

/// A statement that was read with a cursor is not shared with sessions that prepare the same text.
fn a_cursor_spoils_no_statement(flavor: Flavor) {
    let sql = "SELECT 1 AS a, CAST('x' AS JSON) AS j, ST_GeomFromText('POINT(1 2)') AS g, NULL AS n, t.* FROM \
               (SELECT 1 AS i, REPEAT('y', 300) AS s UNION SELECT 2, NULL) t ORDER BY i";
    let sql = if flavor == Flavor::Mysql { sql.replace("'x' AS JSON", "'[1]' AS JSON") } else { sql.replace("'x' AS JSON", "'x' AS CHAR") };
    let first = vec![
        Step::Prepare(0, sql.clone()),
        Step::Cursor(0, Vec::new(), 1),
        Step::CloseStatement(0),
        Step::Prepare(1, sql.clone()),
        Step::Execute(1, Vec::new()),
        Step::Query("CREATE TABLE e(id INT PRIMARY KEY, ti TINYINT, i INT(8) UNSIGNED ZEROFILL, b1 BIT(1), tm TIME(6), y YEAR, en ENUM('a','b'), tt TINYTEXT)".to_owned()),
        Step::Query("INSERT INTO e VALUES(1, 1, 2, b'1', '1:00:00', 2024, 'a', 'x'), (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL)".to_owned()),
        Step::Prepare(2, "SELECT * FROM e ORDER BY id".to_owned()),
        Step::Cursor(2, Vec::new(), 1),
        Step::CloseStatement(2),
        Step::Prepare(3, "SELECT * FROM e ORDER BY id".to_owned()),
        Step::Execute(3, Vec::new()),
    ];
    let second = queries(&["SELECT 1"; 12]);
    shares_a_backend(flavor, script("test_d0", 45, first), script("test_d1", 45, second));
}

/// CLIENT_IGNORE_SPACE is part of sql_mode, also on a backend whose sql_mode another session had set.
fn ignore_space_stays(flavor: Flavor) {
    let mut first = script("test_d0", 45, queries(&["SELECT @@sql_mode"; 6]));
    let mut second = script("test_d1", 45, queries(&["SET sql_mode = 'ANSI'", "SELECT @@sql_mode", "SELECT 1", "SELECT 2"]));
    for login in [&mut first.login, &mut second.login] {
        login.capabilities.insert(Capabilities::IGNORE_SPACE);
    }
    shares_a_backend(flavor, first, second);
}

/// A reset leaves the schema, whose character set the next session has to find there.
fn a_reset_backend_knows_its_schema(flavor: Flavor) {
    let login = script("test_d0", 45, Vec::new()).login;
    let steps = vec![Step::Query("SET @a = 1".to_owned()), Step::ChangeUser(login), Step::Query("SELECT @@collation_database".to_owned())];
    let second = queries(&["SELECT @@collation_database"; 4]);
    shares_a_backend(flavor, script("test_d0", 45, steps), script("test_d0", 45, second));
}

/// MariaDB keeps the error of a pinned session over what ends the pin.
fn errors_outlast_pins(flavor: Flavor) {
    let first =
        queries(&["PREPARE ps FROM 'SELECT 1'", "PREPARE ps2 FROM 'SELEC'", "DROP PREPARE ps", "SHOW COUNT(*) ERRORS", "SHOW WARNINGS"]);
    let (campaign, _stage) = campaign(flavor, 2, 1);
    let round =
        Round { scripts: vec![script("test_d0", 45, first), script("test_d1", 45, queries(&["SELECT 2 + 'b'"; 5]))], most_pinned: 1 };
    let (_, found) = campaign.compare(&round).unwrap();
    assert!(found.is_none(), "{found:#?}");
}

lab::each!(
    plays_the_same_beside_readers,
    pins_where_it_says,
    a_dropped_schema_leaves_its_collation,
    carrying_state_shows_no_warnings,
    errors_outlast_statements,
    warnings_outlast_statements,
    prepared_statements_know_ignore_space,
    a_cursor_spoils_no_statement,
    ignore_space_stays,
    a_reset_backend_knows_its_schema,
    errors_outlast_pins,
    found_rows_outlast_resets
);

#[test]
fn mariadb() {
    plays_the_same(Flavor::Mariadb, 90);
}

#[test]
fn mysql() {
    plays_the_same(Flavor::Mysql, 60);
}
