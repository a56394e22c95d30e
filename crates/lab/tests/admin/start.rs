//! Which configuration a started process has: the database's, the file's, or that of another version.

use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};

use lab::tidegate::{Builder, find_program};
use lab::{LabError, Tidegate, wait};

use crate::bed::{LIMIT, Operator, WHO, alone, before_a, get, servers};

const SERVERS: &str = "SELECT hostgroup_id, hostname, weight FROM runtime_mysql_servers ORDER BY 1, 2";
const VARIABLE: &str = "SELECT variable_value FROM runtime_global_variables WHERE variable_name='mysql-max_connections'";

/// One server, with this weight, and a value of `mysql-max_connections`.
fn file(host: &str, weight: i64, max_connections: i64) -> Builder {
    alone().server_with(1, host, 3306, &[("weight", weight.into())]).variable("max_connections", max_connections)
}

/// Writes another file for a proxy that runs.
fn edit(proxy: &Tidegate, builder: &Builder) {
    fs::write(proxy.config_file(), builder.config(proxy.port(), proxy.admin_port(), proxy.dir())).unwrap();
}

fn seen(proxy: &Tidegate) -> (Vec<String>, String) {
    let mut operator = Operator::of(proxy);
    (operator.rows(SERVERS), operator.row(VARIABLE))
}

fn expected(servers: &[&str], variable: &str) -> (Vec<String>, String) {
    (servers.iter().map(|line| (*line).to_owned()).collect(), variable.to_owned())
}

const NOT_USED: &str = "was edited after proxysql.db was made, but the proxy uses the database";

#[test]
fn what_was_saved_holds_after_a_restart() {
    // The monitor is off: db7 does not exist, and observed values would come and go.
    let mut proxy = before_a().variable("monitor_enabled", false).start().unwrap();
    let mut operator = Operator::of(&proxy);
    operator.all(&[
        "INSERT INTO mysql_servers (hostgroup_id, hostname, max_connections, comment) VALUES (7, 'db7', 7, 'O''Hara; \"x\"')",
        "INSERT INTO mysql_replication_hostgroups VALUES (7, 8, 'read_only', 'pair')",
        "INSERT INTO mysql_hostgroup_attributes (hostgroup_id, max_num_online_servers) VALUES (7, 5)",
        "INSERT INTO mysql_users (username, password, default_hostgroup, comment) VALUES ('späť', 'p\\w', 7, '')",
        "INSERT INTO mysql_query_rules (rule_id, active, match_digest, negate_match_pattern, error_msg) VALUES (5, 1, '^DROP', 0, 'no')",
        "INSERT INTO mysql_query_rules_fast_routing (username, schemaname, flagIN, destination_hostgroup, comment) VALUES ('app', 'x', 0, 7, '')",
        "INSERT INTO scheduler (id, active, interval_ms, filename) VALUES (3, 0, 1000, '/bin/true')",
        "SET mysql-max_connections=321",
        "SET mysql-init_connect='SET @x=1'",
        "SET admin-config_history_size=5",
        "CONFIG APPLY",
    ]);
    for module in ["MYSQL SERVERS", "MYSQL USERS", "MYSQL QUERY RULES", "MYSQL VARIABLES", "ADMIN VARIABLES", "SCHEDULER"] {
        operator.ok(&format!("SAVE {module} TO DISK"));
    }
    let tables = ["mysql_servers", "mysql_hostgroup_attributes", "mysql_users", "mysql_query_rules", "scheduler", "global_variables"];
    let runtime = |operator: &mut Operator| tables.map(|t| operator.rows(&format!("SELECT * FROM runtime_{t} ORDER BY 1, 2")));
    let before = runtime(&mut operator);
    // Not saved, so gone.
    operator.all(&["SET mysql-max_connections=99", "LOAD MYSQL VARIABLES TO RUNTIME", "DELETE FROM mysql_servers"]);
    drop(operator);
    proxy.start_again(&[]).unwrap();
    let mut operator = Operator::of(&proxy);
    assert_eq!(runtime(&mut operator), before);
    assert_eq!(operator.rows("CONFIG DIFF"), Vec::<String>::new());
    assert_eq!(operator.rows("CONFIG DIFF DISK"), Vec::<String>::new());
    assert!(!proxy.log().contains(NOT_USED), "{}", proxy.log());
    assert_eq!(get(&mut proxy.connect_app().unwrap(), WHO), "a");
    assert_eq!(proxy.connect_app().unwrap().query("DROP TABLE who").unwrap().err().unwrap().message, "no");
}

/// Arguments, the file before the start, servers and variable that hold then, whether the log says that the file is not used.
type Start = (&'static [&'static str], Builder, &'static [&'static str], &'static str, bool);

/// Each start with its arguments: the file before it, and what holds then.
#[test]
fn the_file_and_the_database() {
    let mut proxy = file("one", 1, 101).start().unwrap();
    assert_eq!(seen(&proxy), expected(&["1|one|1"], "101"));
    let starts: [Start; 7] = [
        (&[], file("two", 2, 102), &["1|one|1"], "101", true),
        (&["--reload"], file("two", 2, 102), &["1|one|1", "1|two|2"], "102", false),
        (&["--reload"], file("two", 3, 103), &["1|one|1", "1|two|3"], "103", false),
        (&[], file("two", 3, 103), &["1|one|1", "1|two|3"], "103", false),
        (&["--initial"], file("three", 4, 104), &["1|three|4"], "104", false),
        (&["--declarative"], file("four", 5, 105), &["1|four|5"], "105", false),
        (&[], file("four", 5, 105), &["1|four|5"], "105", false),
    ];
    for (args, builder, servers, variable, warns) in &starts {
        edit(&proxy, builder);
        let before = proxy.log().len();
        proxy.start_again(args).unwrap();
        assert_eq!(seen(&proxy), expected(servers, variable), "{args:?}");
        let log = proxy.log_since(before as u64).0;
        assert_eq!(log.contains(NOT_USED), *warns, "{args:?}: {log}");
    }
    assert!(proxy.dir().join("proxysql.db.bak").exists());
}

#[test]
fn a_declared_file_is_followed() {
    let with_rule = |builder: Builder, pattern: &str| {
        builder.row("mysql_query_rules", &[("rule_id", 1.into()), ("active", 1.into()), ("match_pattern", pattern.into())])
    };
    let [a, b, _] = servers();
    let on = |server: &lab::Server| alone().backend(0, server).app_user();
    let proxy = on(a).arg("--declarative").start().unwrap();
    let mut operator = Operator::of(&proxy);
    let mut client = proxy.connect_app().unwrap();
    assert_eq!(get(&mut client, WHO), "a");
    operator.all(&["INSERT INTO mysql_users (username, password) VALUES ('by hand', 'x')", "LOAD MYSQL USERS TO RUNTIME"]);
    edit(&proxy, &on(b));
    operator.until("SELECT port FROM runtime_mysql_servers", &[&b.port().to_string()]);
    assert_eq!(get(&mut client, WHO), "b");
    assert_eq!(operator.rows("SELECT DISTINCT username FROM runtime_mysql_users"), ["app"], "what the file does not name is gone");

    // Faults in the syntax, in a value, and one that only the data plane finds.
    let before = operator.row("SELECT GLOBAL_CHECKSUM()");
    let faults = [("mysql_servers = (", "expected ')'"), ("mysql_variables = { threads=0 }", "out of range")];
    for (text, word) in faults {
        let at = proxy.log().len() as u64;
        fs::write(proxy.config_file(), text).unwrap();
        let log =
            lab::wait::until("a line in the log", LIMIT, || Some(proxy.log_since(at).0).filter(|log| log.contains("cannot be applied")))
                .unwrap();
        assert!(log.contains(word), "{log}");
    }
    let at = proxy.log().len() as u64;
    edit(&proxy, &with_rule(on(a), "("));
    let log = lab::wait::until("a line in the log", LIMIT, || Some(proxy.log_since(at).0).filter(|log| log.contains("cannot be applied")))
        .unwrap();
    assert!(log.contains("mysql_query_rules.match_pattern of rule 1"), "{log}");
    assert_eq!(operator.row("SELECT GLOBAL_CHECKSUM()"), before);
    assert_eq!(get(&mut client, WHO), "b");
    edit(&proxy, &with_rule(on(a), "^x"));
    operator.until("SELECT match_pattern FROM runtime_mysql_query_rules", &["^x"]);
    assert_eq!(get(&mut client, WHO), "a");
}

/// A database as ProxySQL 2.x may leave it: tables that lack columns or have unknown ones, and tables that are not known here.
const OLD_DATABASE: &str = "
    CREATE TABLE mysql_servers (hostgroup_id INT CHECK (hostgroup_id>=0) NOT NULL DEFAULT 0, hostname VARCHAR NOT NULL,
        port INT NOT NULL DEFAULT 3306, status VARCHAR NOT NULL DEFAULT 'ONLINE', weight INT NOT NULL DEFAULT 1,
        gear VARCHAR, PRIMARY KEY (hostgroup_id, hostname, port));
    CREATE TABLE mysql_users (username VARCHAR NOT NULL, password VARCHAR, active INT NOT NULL DEFAULT 1,
        default_hostgroup INT NOT NULL DEFAULT 0, backend INT NOT NULL DEFAULT 1, frontend INT NOT NULL DEFAULT 1,
        PRIMARY KEY (username, backend), UNIQUE (username, frontend));
    INSERT INTO mysql_users (username, password) VALUES ('app', 'app-pass');
    CREATE TABLE mysql_query_rules (rule_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, active INT NOT NULL DEFAULT 0,
        match_digest VARCHAR, error_msg VARCHAR, apply INT NOT NULL DEFAULT 0, from_the_future VARCHAR);
    INSERT INTO mysql_query_rules VALUES (3, 1, '^DROP', 'no', 1, 'x');
    CREATE TABLE global_variables (variable_name VARCHAR NOT NULL PRIMARY KEY, variable_value VARCHAR NOT NULL);
    INSERT INTO global_variables VALUES ('mysql-max_connections', '2048'), ('ldap-x', '1'), ('admin-version', '2.7.1-12-g50b7f85');
    CREATE TABLE mysql_servers_v2_0_11 (a); INSERT INTO mysql_servers_v2_0_11 VALUES (1);";

#[test]
fn a_database_of_proxysql_is_taken_over() {
    let a = &servers()[0];
    // The port for applications is in no database: ours is put there.
    let proxy = alone().start().unwrap();
    let interfaces = format!("INSERT INTO global_variables VALUES ('mysql-interfaces', '{}')", proxy.address());
    let admin = format!("INSERT INTO global_variables VALUES ('admin-mysql_ifaces', '127.0.0.1:{}')", proxy.admin_port());
    let server = format!("INSERT INTO mysql_servers VALUES (0, '127.0.0.1', {}, 'ONLINE', 9, 'x')", a.port());
    proxy.kill9();
    let mut proxy = replace_database(proxy, &[OLD_DATABASE, &interfaces, &admin, &server]);
    let at = proxy.log().len() as u64;
    proxy.start_again(&[]).unwrap();
    let mut operator = Operator::of(&proxy);
    let log = proxy.log_since(at).0;
    for word in ["mysql_servers, column gear: unknown column, ignored", "from_the_future", "1 of ldap", "1 rows taken over"] {
        assert!(log.contains(word), "{word}: {log}");
    }
    assert_eq!(operator.rows("SELECT hostgroup_id, weight, max_connections FROM runtime_mysql_servers"), ["0|9|1000"]);
    assert_eq!(operator.row(VARIABLE), "2048");
    assert_eq!(operator.rows("SELECT rule_id, flagIN, apply FROM runtime_mysql_query_rules"), ["3|0|1"]);
    assert_eq!(operator.rows("SELECT a FROM disk.mysql_servers_v2_0_11"), ["1"], "left alone");
    let mut client = proxy.connect_app().unwrap();
    assert_eq!(get(&mut client, WHO), "a");
    assert_eq!(client.query("DROP TABLE who").unwrap().err().unwrap().message, "no");

    let at = proxy.log().len() as u64;
    proxy.start_again(&[]).unwrap();
    assert_eq!(Operator::of(&proxy).row(VARIABLE), "2048");
    assert!(!proxy.log_since(at).0.contains("taken over"), "only once");
}

/// Puts a database made by these statements in the place of the proxy's own.
fn replace_database(proxy: Tidegate, sql: &[&str]) -> Tidegate {
    let path = proxy.dir().join("proxysql.db");
    fs::remove_file(&path).unwrap();
    let _ = fs::remove_file(proxy.dir().join("proxysql.db-journal"));
    let db = rusqlite::Connection::open(&path).unwrap();
    for statements in sql {
        db.execute_batch(statements).unwrap();
    }
    proxy
}

/// Starts that must fail, with the words of the error; the database stays as it was.
#[test]
fn a_start_that_cannot_be_right_fails() {
    let mut proxy = alone().start().unwrap();
    proxy.kill9();
    let cases = [
        (
            "CREATE TABLE mysql_servers (hostgroup_id INT, hostname VARCHAR, port INT); INSERT INTO mysql_servers VALUES (4, 'old', 99999)",
            "proxysql.db: mysql_servers, hostgroup_id=4, hostname=old, port=99999, column port: 99999 is out of range",
        ),
        (
            "CREATE TABLE global_variables (variable_name VARCHAR NOT NULL PRIMARY KEY, variable_value VARCHAR NOT NULL); \
             INSERT INTO global_variables VALUES ('mysql-threads', '0')",
            "mysql-threads",
        ),
        (
            "CREATE TABLE mysql_query_rules (rule_id INTEGER PRIMARY KEY, active INT, match_pattern VARCHAR); \
             INSERT INTO mysql_query_rules VALUES (6, 1, '(')",
            "proxysql.db: mysql_query_rules.match_pattern of rule 6",
        ),
        (
            "CREATE TABLE mysql_servers (hostgroup_id INT, hostname VARCHAR, port INT); INSERT INTO mysql_servers VALUES (4, 'old', 99999), \
             (5, NULL, 3306); CREATE TABLE mysql_query_rules (rule_id INTEGER PRIMARY KEY, active INT, match_pattern VARCHAR); \
             INSERT INTO mysql_query_rules VALUES (6, 1, '('), (7, 3, NULL)",
            "4 faults:",
        ),
    ];
    for (sql, word) in cases {
        proxy = replace_database(proxy, &[sql]);
        let at = proxy.log().len() as u64;
        let outcome: Result<(), LabError> = proxy.start_again(&[]);
        let log = proxy.log_since(at).0;
        assert!(outcome.is_err() && log.contains(word), "{word}: {outcome:?}: {log}");
        assert!(!log.contains("is ready"), "{log}");
    }
    // A first start that fails makes no database: the corrected file counts next time.
    fs::remove_file(proxy.dir().join("proxysql.db")).unwrap();
    let right = fs::read_to_string(proxy.config_file()).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    fs::write(proxy.config_file(), alone().config(port, proxy.admin_port(), proxy.dir())).unwrap();
    assert!(proxy.start_again(&[]).is_err());
    assert!(!proxy.dir().join("proxysql.db").exists());
    fs::write(proxy.config_file(), right).unwrap();
    proxy.start_again(&[]).unwrap();
    proxy.kill9();
    fs::write(proxy.dir().join("proxysql.db"), "this is no database, but it is long enough to be looked at".repeat(100)).unwrap();
    assert!(proxy.start_again(&[]).is_err());
}

/// Runs the program in this directory until it ends by itself.
fn run_in(directory: &Path, args: &[&str]) -> (Output, String) {
    let output = Command::new(find_program().unwrap()).args(args).current_dir(directory).output().unwrap();
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    (output, String::from_utf8(said).unwrap())
}

fn names(directory: &Path) -> Vec<String> {
    let mut found: Vec<String> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    found.sort();
    found
}

#[test]
fn a_start_that_fails_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // A configuration file of the machine would be read instead.
    if !Path::new("/etc/tidegate.cnf").exists() {
        let (output, said) = run_in(dir.path(), &[]);
        assert!(!output.status.success() && said.contains("no configuration was found") && said.contains("tidegate init"), "{said}");
        assert_eq!(names(dir.path()), Vec::<String>::new());
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = dir.path().join("new.sock");
    let text = format!(
        "pidfile=\"tidegate.pid\"\nadmin_variables={{ mysql_ifaces=\"{}\" }}\nmysql_variables={{ interfaces=\"{}\" have_ssl=true }}\n",
        taken.local_addr().unwrap(),
        socket.display()
    );
    fs::write(dir.path().join("t.cnf"), text).unwrap();
    let (output, said) = run_in(dir.path(), &["-c", "t.cnf", "-D", "a/b"]);
    assert!(!output.status.success() && said.contains("admin-mysql_ifaces: cannot listen on"), "{said}");
    assert_eq!(names(dir.path()), ["t.cnf"]);
    // A directory that was there before stays, with its files.
    fs::create_dir(dir.path().join("a")).unwrap();
    fs::write(dir.path().join("a/proxysql_stats.db"), "").unwrap();
    run_in(dir.path(), &["-c", "t.cnf", "-D", "a"]);
    assert_eq!((names(dir.path()), names(&dir.path().join("a"))), (vec!["a".into(), "t.cnf".into()], vec!["proxysql_stats.db".into()]));
}

/// It would hide the process that runs from its service manager.
#[test]
fn a_second_process_takes_no_pid_file() {
    let mut proxy = alone().start().unwrap();
    let text = format!("pidfile=\"tidegate.pid\"\n{}", fs::read_to_string(proxy.config_file()).unwrap());
    fs::write(proxy.config_file(), text).unwrap();
    proxy.start_again(&[]).unwrap();
    let pid_file = proxy.dir().join("tidegate.pid");
    let before = (fs::read_to_string(&pid_file).unwrap(), names(proxy.dir()));
    let (output, said) = run_in(proxy.dir(), &["-f", "-c", "proxysql.cnf", "-D", "."]);
    assert!(!output.status.success() && said.contains("another process uses this data directory"), "{said}");
    assert_eq!((fs::read_to_string(&pid_file).unwrap(), names(proxy.dir())), before);
}

/// A health check connects and closes, with or without a look at the greeting.
#[test]
fn a_good_start_warns_of_nothing() {
    let proxy = before_a().variable("monitor_enabled", false).start().unwrap();
    for reads in [false, true] {
        let mut probe = TcpStream::connect(proxy.address()).unwrap();
        if reads {
            probe.read_exact(&mut [0; 4]).unwrap();
        }
    }
    let mut greeted = TcpStream::connect(proxy.address()).unwrap();
    let mut greeting = [0; 4];
    greeted.read_exact(&mut greeting).unwrap();
    greeted.read_exact(&mut vec![0; usize::from(greeting[0])]).unwrap();
    drop(greeted);
    // By then the log contains every earlier record.
    assert!(lab::Client::connect(&proxy.options("nobody", "")).is_err());
    let log = wait::until("the log", LIMIT, || Some(proxy.log()).filter(|log| log.contains("Access denied"))).unwrap();
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains(" WARN ") && !line.contains("runs as root")).collect();
    assert!(matches!(warnings[..], [only] if only.contains("nobody")), "{log}");
}
