//! `kill -9` of the real process at random moments, while configurations A and B are saved and loaded in turn.
//!
//! Each next start finds A or B, whole, and runs by it.

#![allow(clippy::unwrap_used, clippy::expect_used)] // tests may panic

#[path = "admin/bed.rs"]
mod bed;

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bed::{Operator, alone};
use lab::differential::Rng;
use lab::{Client, ConnectOptions, LabError, Tidegate};

const KILLS: u64 = 100;
/// Rows of each table in a configuration.
const ROWS: i64 = 50;
/// A round of both configurations takes a few times this long.
const LATEST_KILL_US: u64 = 120_000;

/// The tables that differ between A and B, and the column that says which it is.
const TABLES: &[(&str, &str)] = &[("mysql_servers", "comment"), ("mysql_users", "comment"), ("mysql_query_rules", "comment")];

/// Statements that make memory configuration `name`.
fn fill(name: &str) -> Vec<String> {
    let numbers = format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})");
    let mut statements: Vec<String> = TABLES.iter().map(|(table, _)| format!("DELETE FROM {table}")).collect();
    statements.extend([
        format!("INSERT INTO mysql_servers (hostgroup_id, hostname, comment) {numbers} SELECT 1, '127.9.9.' || i, '{name}' FROM n"),
        format!("INSERT INTO mysql_users (username, password, comment) {numbers} SELECT 'user' || i, '{name}', '{name}' FROM n"),
        format!("INSERT INTO mysql_query_rules (rule_id, active, match_digest, comment) {numbers} SELECT i, 1, 'x' || i, '{name}' FROM n"),
        format!("SET mysql-init_connect='{name}'"),
    ]);
    statements
}

/// How a configuration gets to disk and into force.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Module by module: each is whole by itself.
    Modules,
    /// `CONFIG APPLY FILE`: all modules are of one configuration.
    File,
}

impl Way {
    fn statements(self, name: &str) -> Vec<String> {
        match self {
            Way::File => vec![format!("CONFIG APPLY FILE '{name}.cnf'")],
            Way::Modules => {
                let modules = ["MYSQL SERVERS", "MYSQL USERS", "MYSQL QUERY RULES", "MYSQL VARIABLES"];
                let moves = modules.map(|module| [format!("SAVE {module} TO DISK"), format!("LOAD {module} TO RUNTIME")]);
                fill(name).into_iter().chain(moves.into_iter().flatten()).collect()
            }
        }
    }
}

/// Alternates between A and B, beginning with `first`, until the process is gone; how many statements were answered.
fn work(options: &ConnectOptions, dir: &std::path::Path, way: Way, first: usize) -> Result<u32, LabError> {
    let mut client = Client::connect(options)?;
    let mut answered = 0;
    for name in ["A", "B"].into_iter().cycle().skip(first) {
        for sql in way.statements(name) {
            let sql = sql.replace(&format!("'{name}.cnf'"), &format!("'{}'", dir.join(format!("{name}.cnf")).display()));
            match client.query(&sql) {
                Ok(reply) => drop(reply.check().unwrap_or_else(|e| panic!("{sql}: {e}"))),
                Err(_) => return Ok(answered),
            }
            answered += 1;
        }
    }
    Ok(answered)
}

/// Fails unless every table is of one configuration and complete, on disk as at runtime. Gives each module's configuration.
fn check(proxy: &Tidegate) -> String {
    let mut operator = Operator::of(proxy);
    let mut names = String::new();
    for (table, column) in TABLES {
        let sql = format!("SELECT {column}, COUNT(*) FROM disk.{table} GROUP BY 1");
        let found = operator.row(&sql);
        let (name, count) = found.split_once('|').unwrap();
        assert_eq!(count, ROWS.to_string(), "{sql}: {found}");
        names.push_str(name);
    }
    names.push_str(&operator.row("SELECT variable_value FROM runtime_global_variables WHERE variable_name='mysql-init_connect'"));
    assert_eq!(operator.rows("CONFIG DIFF"), Vec::<String>::new());
    assert_eq!(operator.rows("CONFIG DIFF DISK"), Vec::<String>::new());
    assert_eq!(operator.row("PRAGMA disk.integrity_check"), "ok");
    names
}

#[test]
fn a_kill_at_any_moment_leaves_one_configuration_whole() {
    let given = std::env::var("TIDEGATE_SEED").ok().and_then(|seed| seed.parse().ok());
    let clock = || u64::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos());
    let seed = given.unwrap_or_else(clock);
    println!("TIDEGATE_SEED={seed}");
    let mut random = Rng::new(seed);
    let mut proxy = alone().start().unwrap();
    let mut operator = Operator::of(&proxy);
    for name in ["B", "A"] {
        fill(name).iter().for_each(|sql| drop(operator.ok(sql)));
        operator.ok(&format!("SELECT CONFIG INTO OUTFILE '{}'", proxy.dir().join(format!("{name}.cnf")).display()));
    }
    operator.ok(&format!("CONFIG APPLY FILE '{}'", proxy.dir().join("A.cnf").display()));
    drop(operator);

    let start = Instant::now();
    let (mut last, mut changes) = (check(&proxy), 0);
    for kill in 0..KILLS {
        // Begins with the configuration that is not in force.
        let first = usize::from(last.starts_with('A'));
        let way = if kill % 2 == 0 { Way::File } else { Way::Modules };
        let options = ConnectOptions::tcp(format!("127.0.0.1:{}", proxy.admin_port()), "admin", "admin");
        let after = Duration::from_micros(random.below(LATEST_KILL_US));
        let dir = proxy.dir().to_owned();
        let worker = thread::spawn(move || work(&options, &dir, way, first));
        // The test is about the random moment, so nothing is waited for here.
        thread::sleep(after);
        proxy.kill9();
        let answered = worker.join().unwrap();
        proxy.start_again(&[]).unwrap_or_else(|e| panic!("kill {kill} after {after:?}, {way:?}: {e}\n{}", proxy.log()));
        let found = check(&proxy);
        println!("kill {kill}, {way:?}, after {after:?}, {answered:?} statements: {found}");
        // Modules that are saved one by one may be of different configurations; those that one command applies may not.
        let is_whole = match way {
            Way::File => ["AAAA", "BBBB", last.as_str()].contains(&found.as_str()),
            Way::Modules => found.len() == 4 && found.chars().all(|name| ['A', 'B'].contains(&name)),
        };
        assert!(is_whole, "kill {kill} after {after:?}: {found}, before it {last}");
        changes += u32::from(found != last);
        last = found;
    }
    println!("{KILLS} kills in {:?}, {changes} changes", start.elapsed());
    assert!(changes > 10, "the kills come too early: {changes} changes");
}
