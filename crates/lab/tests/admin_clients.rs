//! The admin port through clients that people use: the command line client, PyMySQL, go-sql-driver. A client that is not installed is
//! skipped with a reason.

#![allow(clippy::unwrap_used, clippy::expect_used)] // tests may panic

#[path = "admin/bed.rs"]
mod bed;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bed::{Operator, alone};
use lab::Tidegate;

/// A process that has ended: its status, standard output and standard error.
#[derive(Debug)]
struct Ended {
    is_success: bool,
    out: String,
    err: String,
}

/// Runs a program to its end with this input. `timeout` ends one that hangs.
fn run(command: &mut Command, input: &str) -> Ended {
    let mut guarded = Command::new("timeout");
    guarded.arg("60").arg(command.get_program()).args(command.get_args());
    guarded.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(dir) = command.get_current_dir() {
        guarded.current_dir(dir);
    }
    let mut child = guarded.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A client may end before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let ended = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ended { is_success: ended.status.success(), out: text(&ended.stdout), err: text(&ended.stderr) }
}

fn proxy() -> Tidegate {
    let proxy = alone().server(1, "db1", 3306).user("app", "x", 1).start().unwrap();
    Operator::of(&proxy).rows("CONFIG CHECK");
    proxy
}

/// The command line client as `admin`.
fn cli(proxy: &Tidegate, args: &[&str]) -> Command {
    let mut command = Command::new("mariadb");
    command.args(["--no-defaults", "-h127.0.0.1", "-uadmin", "-padmin"]).arg(format!("-P{}", proxy.admin_port())).args(args);
    command
}

/// Arguments, input, and the words that the output must contain.
const CLI: &[(&[&str], &str, &[&str])] = &[
    (&["-e", "SELECT hostgroup_id, hostname FROM mysql_servers"], "", &["hostgroup_id\thostname\n1\tdb1\n"]),
    (&["-N", "-B", "-e", "SELECT hostname FROM runtime_mysql_servers"], "", &["db1\n"]),
    (
        &["-t", "-e", "SELECT hostgroup_id, hostname, status FROM mysql_servers"],
        "",
        &["| hostgroup_id | hostname | status |\n", "| db1      | ONLINE |"],
    ),
    (&["-t", "-e", "SELECT NULL AS n, '' AS e, 'čaj' AS u"], "", &["| NULL |      | čaj  |"]),
    (&["-e", "SELECT hostname FROM mysql_servers\\G"], "", &["*** 1. row ***", "hostname: db1"]),
    (&["-vvv", "-e", "UPDATE mysql_servers SET weight=5"], "", &["Query OK, 1 row affected"]),
    (&["-e", "SELECT 1; SELECT 2; SHOW MYSQL USERS"], "", &["1\n1\n2\n2\n", "app"]),
    (&[], "SELECT 'a;b'; -- a comment\nSELECT 2\\G\n# another\n/* a third */ SELECT 'x';\n", &["a;b", "2: 2", "x"]),
    (&[], "DELIMITER //\nSELECT 'other'//\n", &["other"]),
    (&[], "status\n", &["Connection id:", "Current user:", "Server version:", "Protocol version:\t10", "Uptime:"]),
    (&["main"], "SELECT database();\nuse stats\nshow tables;\n", &["main", "stats_mysql_global"]),
    (
        &[
            "-e",
            "INSERT INTO mysql_query_rules (rule_id, active, username, apply) VALUES (5, 1, 'ghost', 1); LOAD MYSQL QUERY RULES TO RUNTIME; SHOW WARNINGS; \
             SHOW COUNT(*) WARNINGS; SELECT @@warning_count AS n; SELECT 1; SHOW COUNT(*) WARNINGS; DELETE FROM mysql_query_rules; LOAD MYSQL QUERY RULES TO RUNTIME",
        ],
        "",
        &[
            "Warning\t1105\tmysql_query_rules, rule_id=5, column username: 'ghost' is not a client user",
            "@@session.warning_count\n1\n",
            "n\n1\n1\n1\n@@session.warning_count\n0\n",
        ],
    ),
    (&["-X", "-e", "SELECT 1 AS one"], "", &["<field name=\"one\">1</field>"]),
    (&["-q", "-e", "SHOW VARIABLES LIKE 'mysql-threads'"], "", &["mysql-threads\t1"]),
    (&["--ssl", "--skip-ssl-verify-server-cert", "-e", "SELECT 'over TLS'"], "", &["over TLS"]),
    (&["--skip-ssl", "-e", "SELECT 'plain'"], "", &["plain"]),
    (&["--compress", "-e", "SELECT 'squeezed'"], "", &["squeezed"]),
    (&["--init-command=SET NAMES utf8mb4", "--default-character-set=utf8mb4", "-e", "SELECT 'init'"], "", &["init"]),
];

#[test]
fn the_command_line_client() {
    let proxy = proxy();
    for (args, input, words) in CLI {
        let ended = run(&mut cli(&proxy, args), input);
        assert!(ended.is_success, "{args:?} {input:?}: {ended:?}");
        for word in *words {
            assert!(ended.out.contains(word), "{args:?} {input:?}: {word:?}: {ended:?}");
        }
    }
    let refused = run(&mut cli(&proxy, &["-e", "SELECT 1; LOAD MYSQL SERVERS TO NOWHERE; SELECT 3"]), "");
    assert!(!refused.is_success && refused.err.contains("ProxySQL Admin Error") && !refused.out.contains('3'), "{refused:?}");
    let forced = run(&mut cli(&proxy, &["-f"]), "SELEC;\nSELECT 3;\n");
    assert!(forced.out.contains('3') && forced.err.contains("ERROR 1045 (28000)"), "{forced:?}");
    let stranger =
        run(Command::new("mariadb").args(["--no-defaults", "-h127.0.0.1", "-uadmin", "-pwrong", &format!("-P{}", proxy.admin_port())]), "");
    assert!(stranger.err.contains("ERROR 1045 (28000): Access denied for user 'admin'@'127.0.0.1'"), "{stranger:?}");
}

/// At a terminal the client reads the names of all tables and columns for completion, the prompt and the banner.
#[test]
fn the_command_line_client_at_a_terminal() {
    if Command::new("script").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("skipped: no program `script`, which gives a terminal");
        return;
    }
    let proxy = proxy();
    let line = format!(
        "mariadb --no-defaults --auto-rehash --prompt='(\\u@\\h) [\\d]> ' -h127.0.0.1 -P{} -uadmin -padmin main",
        proxy.admin_port()
    );
    for (input, words) in [
        ("SELECT hostname FROM mysql_servers;\nexit\n", ["| db1      |", "1 row in set"]),
        ("rehash\nuse stats\nSELECT COUNT(*) > 0 AS some FROM stats_mysql_global;\nexit\n", ["| some |", "Database changed"]),
        ("SHOW DATABASES;\nSHOW TABLES LIKE 'mysql_users';\nquit\n", ["stats_history", "| mysql_users |"]),
        ("SELECT hostname FROM mysql_serv\tNOTHING;\nexit\n", ["(admin@127.0.0.1) [main]>", "ERROR 1045 (28000)"]),
    ] {
        let ended = run(Command::new("script").args(["-qec", &line, "/dev/null"]), input);
        for word in words {
            assert!(ended.out.contains(word), "{input:?}: {word:?}: {}", ended.out);
        }
    }
}

/// COM_FIELD_LIST, which completion sends for each table, gives the columns that SELECT shows, and resets no counter.
#[test]
fn the_columns_of_every_table() {
    let proxy = proxy();
    let mut operator = Operator::of(&proxy);
    for schema in ["main", "disk", "stats", "monitor", "stats_history"] {
        operator.client().init_db(schema).unwrap().ok().unwrap();
        for table in operator.rows(&format!("SHOW TABLES FROM {schema}")) {
            let reply = operator.ask(&format!("SELECT * FROM {schema}.{table} LIMIT 0"));
            let columns = reply.rows().unwrap_or_else(|e| panic!("{schema}.{table}: {e}")).columns.len();
            let client = operator.client();
            client.send_command(wire::Command::FieldList, format!("{table}\0").as_bytes()).unwrap();
            let mut listed = 0;
            loop {
                let packet = client.recv_packet().unwrap();
                match packet.first() {
                    Some(0xfe) if packet.len() < 9 => break,
                    Some(0xff) => panic!("{schema}.{table}: {}", String::from_utf8_lossy(&packet)),
                    _ => listed += 1,
                }
            }
            assert_eq!(listed, columns, "{schema}.{table}");
        }
    }
}

/// Runs the program of another client, which prints its result, one line a step, ended by `done`.
fn see(name: &str, command: &mut Command, proxy: &Tidegate) {
    let ended = run(command.env("ADMIN_PORT", proxy.admin_port().to_string()), "");
    println!("{name}: {}", ended.out);
    assert!(ended.is_success && ended.out.ends_with("done\n"), "{name}: {ended:?}");
    let mut operator = Operator::of(proxy);
    let found = operator.rows("SELECT hostgroup_id, hostname, comment FROM runtime_mysql_servers WHERE hostgroup_id=9");
    assert_eq!(found, ["9|new|it's \"x\" \\ čaj"], "{name}");
    assert_eq!(operator.rows("CONFIG DIFF DISK"), Vec::<String>::new(), "{name}");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The directory into which `make drivers` puts drivers.
fn cache() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/tidegate");
    std::env::var_os("TIDEGATE_CACHE").map_or_else(home, PathBuf::from).join("drivers")
}

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/admin/programs").join(name)
}

#[test]
fn pymysql() {
    let places = [root().join(".venv/bin/python"), cache().join("venv/bin/python"), PathBuf::from("python3")];
    let has_driver = |python: &&PathBuf| {
        let asked = Command::new(python).args(["-c", "import pymysql"]).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    let Some(python) = places.iter().find(has_driver) else {
        println!("skipped: no Python with PyMySQL; `make drivers` installs one");
        return;
    };
    see("PyMySQL", Command::new(python).arg(program("pymysql_admin.py")), &proxy());
}

#[test]
fn go_sql_driver() {
    let proxy = proxy();
    let dir = proxy.dir().join("go");
    fs::create_dir(&dir).unwrap();
    fs::copy(program("go_admin.go"), dir.join("main.go")).unwrap();
    let module = "module admin\n\ngo 1.21\n\nrequire github.com/go-sql-driver/mysql v1.10.1\n";
    fs::write(dir.join("go.mod"), module).unwrap();
    // Builds with the modules that are already on the machine: a test fetches nothing.
    let build = "go mod tidy >/dev/null 2>&1 && go build -o admin .";
    let settings = [("GOFLAGS", "-mod=mod"), ("GOPROXY", "off"), ("GONOSUMDB", "*")];
    let mut shell = Command::new("sh");
    shell.args(["-c", build]).current_dir(&dir).envs(settings);
    let built = run(&mut shell, "");
    if !built.is_success {
        println!("skipped: go-sql-driver is not here; `make drivers` installs it: {}", built.err);
        return;
    }
    see("go-sql-driver", &mut Command::new(dir.join("admin")), &proxy);
}
