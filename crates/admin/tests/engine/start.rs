//! Which configuration holds at the start.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use admin::{EngineOptions, Precedence, bootstrap, foresee};
use model::snapshot::rule_subject;
use model::{ConfigError, ErrorKind, Snapshot};
use rusqlite::Connection;

use crate::bed::{Bed, FILE, options};

const OTHER: &str = r#"mysql_servers = ( { hostgroup=7, address="db7" } )
mysql_variables = { threads=3 }"#;

fn hosts(bed: &Bed) -> Vec<String> {
    bed.rows("SELECT hostname FROM runtime_mysql_servers ORDER BY 1")
}

#[test]
fn the_database_wins_and_says_so() {
    let bed = Bed::new();
    assert_eq!((hosts(&bed), bed.notices.len()), (vec!["db1".to_owned(), "db2".to_owned()], 0));
    bed.ok("DELETE FROM mysql_servers WHERE hostname='db2'");
    bed.ok("SAVE MYSQL SERVERS TO DISK");
    let bed = Bed::open(bed.stop(), FILE, Precedence::Database);
    assert_eq!(hosts(&bed), ["db1"]);
    assert_eq!(bed.notices, Vec::<String>::new(), "the file says what it said");
    let bed = Bed::open(bed.stop(), OTHER, Precedence::Database);
    assert_eq!(hosts(&bed), ["db1"]);
    assert!(bed.notices[0].contains("was edited"), "{:?}", bed.notices);
    let bed = Bed::open(bed.stop(), OTHER, Precedence::Reload);
    assert_eq!(hosts(&bed), ["db1", "db7"]);
    assert_eq!(bed.rows("SELECT @@mysql-threads"), ["3"]);
    assert_eq!(bed.rows("SELECT COUNT(*) FROM mysql_users"), ["1"]);
    let bed = Bed::open(bed.stop(), OTHER, Precedence::Database);
    assert_eq!((hosts(&bed), bed.notices.len()), (vec!["db1".to_owned(), "db7".to_owned()], 0));
    let bed = Bed::open(bed.stop(), OTHER, Precedence::Initial);
    assert_eq!(hosts(&bed), ["db7"]);
    assert!(bed.datadir.path().join("proxysql.db.bak").exists());
    let bed = Bed::open(bed.stop(), FILE, Precedence::Declarative);
    assert_eq!(hosts(&bed), ["db1", "db2"]);
}

/// Its table has no column for changes.
#[test]
fn the_history_of_an_older_version_goes_on() {
    let datadir = Bed::new().stop();
    let db = Connection::open(datadir.path().join("proxysql.db")).unwrap();
    db.execute_batch("ALTER TABLE tidegate_config_history DROP COLUMN changes").unwrap();
    drop(db);
    let bed = Bed::open(datadir, FILE, Precedence::Database);
    bed.ok("UPDATE mysql_servers SET weight=5 WHERE hostgroup_id=1");
    bed.ok("LOAD MYSQL SERVERS TO RUNTIME");
    let history = bed.rows("SELECT id, changes FROM disk.tidegate_config_history ORDER BY id");
    assert_eq!(history, ["1|NULL", "2|server db1:3306 in hostgroup 1 weight 1 -> 5"]);
}

/// Its table has no column for plans.
#[test]
fn rehearsals_of_an_older_version_ask_for_plans() {
    let datadir = Bed::new().stop();
    let db = Connection::open(datadir.path().join("proxysql.db")).unwrap();
    db.execute_batch("ALTER TABLE mysql_rehearsals DROP COLUMN explain").unwrap();
    db.execute_batch("INSERT INTO mysql_rehearsals (name, source_hostgroup, shadow_hostgroup) VALUES ('new', 1, 2)").unwrap();
    drop(db);
    let bed = Bed::open(datadir, FILE, Precedence::Database);
    assert_eq!(bed.rows("SELECT name, explain FROM runtime_mysql_rehearsals"), ["new|1"]);
    bed.ok("UPDATE mysql_rehearsals SET explain=0");
    bed.ok("LOAD MYSQL QUERY RULES TO RUNTIME");
    bed.ok("SAVE MYSQL QUERY RULES TO DISK");
    assert_eq!(bed.rows("SELECT explain FROM runtime_mysql_rehearsals UNION ALL SELECT explain FROM disk.mysql_rehearsals"), ["0", "0"]);
}

#[test]
fn a_declared_file_is_followed() {
    let bed = Bed::open(Arc::new(tempfile::tempdir().unwrap()), FILE, Precedence::Declarative);
    let included = bed.datadir.path().join("servers.cnf");
    let file = bed.datadir.path().join("proxysql.cnf");
    let until = |wanted: &[&str]| {
        let deadline = Instant::now() + Duration::from_secs(30);
        while hosts(&bed) != wanted {
            assert!(Instant::now() < deadline, "{:?} is not {wanted:?}", hosts(&bed));
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    std::fs::write(&included, OTHER).unwrap();
    std::fs::write(&file, format!("@include \"{}\"", included.display())).unwrap();
    until(&["db7"]);
    assert_eq!(bed.rows("SELECT COUNT(*) FROM disk.mysql_users"), ["0"], "what the file does not name is gone");
    std::fs::write(&included, "mysql_servers = ( { address=\"db8\", port=70000 } )").unwrap();
    std::fs::write(&included, "mysql_servers = ( { address=\"db9\" } )").unwrap();
    until(&["db9"]);
    let history = bed.rows("SELECT user, command FROM disk.tidegate_config_history ORDER BY id");
    assert_eq!(history, ["|start", "declarative|CONFIG APPLY FILE", "declarative|CONFIG APPLY FILE"]);
    assert_eq!(bed.ok("CONFIG APPLY FILE"), "nothing differs from what is in force");
    std::fs::write(&included, "mysql_servers = ( { address=\"db8\", port=70000 } )").unwrap();
    let before = bed.rows("SELECT * FROM mysql_servers");
    assert!(bed.refused("CONFIG APPLY FILE").contains("70000 is out of range"));
    assert_eq!((hosts(&bed), bed.rows("SELECT * FROM mysql_servers")), (vec!["db9".to_owned()], before));
}

/// The file has no fault, but its port is taken.
#[test]
fn a_file_that_cannot_be_put_in_force_changes_no_layer() {
    let bed = Bed::new();
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let file = bed.datadir.path().join("other.cnf");
    std::fs::write(&file, format!("{OTHER} admin_variables = {{ mysql_ifaces=\"{}\" }}", holder.local_addr().unwrap())).unwrap();
    bed.ok("UPDATE mysql_servers SET comment='an edit' WHERE hostgroup_id=1");
    let layers = || ["main", "disk"].map(|layer| bed.rows(&format!("SELECT * FROM {layer}.mysql_servers, {layer}.global_variables")));
    let before = (layers(), hosts(&bed));
    let command = format!("CONFIG APPLY FILE '{}'", file.display());
    assert!(bed.refused(&command).contains("admin-mysql_ifaces: cannot listen on "));
    assert_eq!((layers(), hosts(&bed)), before);
    drop(holder);
    bed.ok(&command);
    assert_eq!(hosts(&bed), ["db7"]);
    assert_eq!(bed.rows("SELECT hostname FROM main.mysql_servers UNION ALL SELECT hostname FROM disk.mysql_servers"), ["db7", "db7"]);
}

#[test]
fn a_file_that_was_emptied_is_no_configuration() {
    let bed = Bed::open(Arc::new(tempfile::tempdir().unwrap()), FILE, Precedence::Declarative);
    let file = bed.datadir.path().join("proxysql.cnf");
    let included = bed.datadir.path().join("part.cnf");
    for text in ["", "\n\n", "# servers\n/* users */\n", "datadir=\"/tmp\"", "mysql_variables = { }"] {
        std::fs::write(&file, text).unwrap();
        let error = bed.refused("CONFIG APPLY FILE");
        assert!(error.contains("no group of variables and no table"), "{text}: {error}");
        // Longer than the watcher needs to take it.
        std::thread::sleep(Duration::from_millis(1200));
        assert_eq!((hosts(&bed), bed.rows("SELECT COUNT(*) FROM disk.mysql_users")), (vec!["db1".into(), "db2".into()], vec!["1".into()]));
    }
    let error = bootstrap(options(tempfile::tempdir().unwrap().path(), "", Precedence::Declarative)).unwrap_err().to_string();
    assert!(error.contains("no group of variables and no table"), "{error}");
    // Named settings are taken, all others are removed.
    std::fs::write(&file, format!("@include \"{}\"\nmysql_users = ()", included.display())).unwrap();
    std::fs::write(&included, OTHER).unwrap();
    bed.ok("CONFIG APPLY FILE");
    assert_eq!((hosts(&bed), bed.rows("SELECT COUNT(*) FROM disk.mysql_users")), (vec!["db7".to_owned()], vec!["0".to_owned()]));
}

/// No process writes to the FIFO: an open would wait for ever.
#[test]
fn only_regular_files_are_followed() {
    let bed = Bed::open(Arc::new(tempfile::tempdir().unwrap()), FILE, Precedence::Declarative);
    let (file, pipe) = (bed.datadir.path().join("proxysql.cnf"), bed.datadir.path().join("pipe"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::fs::write(&file, format!("@include \"{}\"", pipe.display())).unwrap();
    let error = bed.refused("CONFIG APPLY FILE");
    assert!(error.contains("pipe") && error.contains("not a regular file"), "{error}");
    let error = bed.refused(&format!("CONFIG APPLY FILE '{}'", pipe.display()));
    assert!(error.contains("not a regular file"), "{error}");
    std::thread::sleep(Duration::from_millis(1200));
    std::fs::write(&file, OTHER).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while hosts(&bed) != ["db7"] {
        assert!(Instant::now() < deadline, "the watcher stands still");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_holds_passwords_is_its_owners_alone() {
    let bed = Bed::new();
    let files = ["proxysql.db", "proxysql_stats.db"].map(|name| bed.datadir.path().join(name));
    let mode = |file: &Path| std::fs::metadata(file).unwrap().permissions().mode() & 0o777;
    assert_eq!([mode(&files[0]), mode(&files[1])], [0o600, 0o600]);
    std::fs::set_permissions(&files[0], Permissions::from_mode(0o644)).unwrap();
    let bed = Bed::open(bed.stop(), FILE, Precedence::Database);
    assert_eq!(mode(&files[0]), 0o600);
    drop(bed);
}

#[test]
fn a_data_directory_in_use_is_left_alone() {
    let bed = Bed::new();
    let error = bootstrap(options(bed.datadir.path(), OTHER, Precedence::Initial)).unwrap_err().to_string();
    assert!(error.contains("another process uses this data directory"), "{error}");
    bed.ok("SAVE MYSQL SERVERS TO DISK");
    let bed = Bed::open(bed.stop(), FILE, Precedence::Database);
    assert_eq!(hosts(&bed), ["db1", "db2"]);
}

#[test]
fn the_instance_keeps_its_name() {
    let bed = Bed::new();
    let name = || "SELECT variable_value FROM disk.global_settings WHERE variable_name='uuid'";
    let first = bed.rows(name());
    assert_eq!(first[0].len(), 36, "{first:?}");
    let bed = Bed::open(bed.stop(), FILE, Precedence::Database);
    assert_eq!(bed.rows(name()), first);
    let bed = Bed::open(bed.stop(), "uuid=\"mine\"", Precedence::Database);
    assert_eq!(bed.rows(name()), ["mine"]);
}

#[test]
fn a_database_of_proxysql_is_taken_over() {
    let datadir = Arc::new(tempfile::tempdir().unwrap());
    let db = Connection::open(datadir.path().join("proxysql.db")).unwrap();
    db.execute_batch(
        "CREATE TABLE mysql_servers (hostgroup_id INT NOT NULL DEFAULT 0, hostname VARCHAR NOT NULL, port INT NOT NULL DEFAULT 3306, \
             weight INT NOT NULL DEFAULT 1, gear VARCHAR, PRIMARY KEY (hostgroup_id, hostname, port));
         INSERT INTO mysql_servers VALUES (4, 'old', 3307, 9, 'x');
         CREATE TABLE global_variables (variable_name VARCHAR NOT NULL PRIMARY KEY, variable_value VARCHAR NOT NULL);
         INSERT INTO global_variables VALUES ('mysql-max_connections', '2048'), ('ldap-x', '1'), ('admin-version', '2.7.1-12-g50b7f85'),
             ('mysql-forward_autocommit', 'false'), ('mysql-automatic_detect_sqli', 'true'), ('mysql-auto_increment_delay_multiplex', '5'),
             ('mysql-server_version', '8.0.11');
         CREATE TABLE unrelated (a); INSERT INTO unrelated VALUES (1);",
    )
    .unwrap();
    drop(db);
    let bed = Bed::open(datadir, FILE, Precedence::Database);
    assert_eq!(
        bed.rows("SELECT hostgroup_id, hostname, port, weight, status, max_connections FROM runtime_mysql_servers"),
        ["4|old|3307|9|ONLINE|1000"]
    );
    assert_eq!(bed.rows("SELECT @@mysql-max_connections"), ["2048"]);
    assert_eq!(bed.rows("SELECT a FROM disk.unrelated"), ["1"]);
    assert_ne!(bed.rows("SELECT @@admin-version"), ["2.7.1-12-g50b7f85"]);
    let notices = bed.notices.join("\n");
    for word in [
        "mysql_servers, column gear: unknown column, ignored",
        "global_variables: 1 of ldap: not part of this proxy, left on disk",
        "1 rows taken over",
        "variable_name=mysql-forward_autocommit: retired, ignored: ",
        "variable_name=mysql-automatic_detect_sqli, column variable_value: kept, but has no effect yet",
        "variable_name=mysql-auto_increment_delay_multiplex, column variable_value: ProxySQL's default keeps the connection ",
        "variable_name=mysql-server_version, column variable_value: ProxySQL's default makes ",
    ] {
        assert!(notices.contains(word), "{notices}");
    }
    let again = Bed::open(bed.stop(), FILE, Precedence::Database);
    let notices = again.notices.join("\n");
    assert!(
        notices.contains("mysql-automatic_detect_sqli") && !notices.contains("taken over") && !notices.contains("default makes"),
        "{notices}"
    );
}

#[test]
fn what_a_file_may_have_a_database_may_have_unless_the_file_is_strict() {
    let datadir = Arc::new(tempfile::tempdir().unwrap());
    let file = datadir.path().join("proxysql.db");
    let db = Connection::open(&file).unwrap();
    db.execute_batch(
        "CREATE TABLE mysql_servers (hostgroup_id INT, hostname VARCHAR, port INT, wieght INT); INSERT INTO mysql_servers VALUES (4, 'old', 1, 2);
         CREATE TABLE global_variables (variable_name VARCHAR NOT NULL PRIMARY KEY, variable_value VARCHAR NOT NULL);
         INSERT INTO global_variables VALUES ('mysql-thread', '1'), ('mysql-set_query_lock_on_hostgroup', 'false'),
             ('mysql-forward_autocommit', 'false'), ('pgsql-threads', '1'), ('admin-pgsql_ifaces', ''), ('ours', 'x');",
    )
    .unwrap();
    drop(db);
    let before = std::fs::read(&file).unwrap();
    let strict = format!("{FILE} strict=true");
    let error = bootstrap(options(datadir.path(), &strict, Precedence::Database)).unwrap_err().to_string();
    let faults: Vec<&str> = error.lines().skip(1).filter_map(|line| line.split_once("proxysql.db: ")).map(|(_, fault)| fault).collect();
    assert_eq!(
        faults,
        [
            "mysql_servers, column wieght: unknown column; did you mean 'weight'?",
            "global_variables, variable_name=mysql-set_query_lock_on_hostgroup: must be a number, not false",
            "global_variables, variable_name=mysql-thread: unknown variable; did you mean 'threads'?",
            "global_variables, variable_name=ours: unknown variable",
        ],
        "{error}"
    );
    assert_eq!(std::fs::read(&file).unwrap(), before);
    let bed = Bed::open(datadir, FILE, Precedence::Database);
    let notices = bed.notices.join("\n");
    for line in [
        "proxysql.db: mysql_servers, column wieght: unknown column, ignored; did you mean 'weight'?",
        "proxysql.db: global_variables, variable_name=mysql-set_query_lock_on_hostgroup: must be a number, not false; read as 0",
        "proxysql.db: global_variables, variable_name=mysql-thread: unknown variable, ignored; did you mean 'threads'?",
        "proxysql.db: global_variables, variable_name=ours: unknown variable, ignored",
        "proxysql.db: global_variables: 2 of pgsql: not part of this proxy, left on disk",
    ] {
        assert!(bed.notices.iter().any(|notice| notice == line), "{line}: {notices}");
    }
    assert_eq!(bed.rows("SELECT @@mysql-set_query_lock_on_hostgroup"), ["0"]);
    // LOAD reads the disk as the start does.
    bed.ok("SET mysql-set_query_lock_on_hostgroup=1");
    for form in ["LOAD {} FROM DISK", "LOAD {} TO RUNTIME", "SAVE {} TO DISK"] {
        for module in ["MYSQL VARIABLES", "ADMIN VARIABLES"] {
            bed.ok(&form.replace("{}", module));
        }
    }
    assert_eq!(bed.rows("SELECT @@mysql-set_query_lock_on_hostgroup"), ["0"]);
    let known = "SELECT COUNT(*) FROM {}.global_variables WHERE variable_name IN ('mysql-thread', 'admin-pgsql_ifaces')";
    assert_eq!(["main", "disk"].map(|layer| bed.rows(&known.replace("{}", layer)).concat()), ["0", "2"]);
}

#[test]
fn a_row_that_cannot_be_taken_over_is_named() {
    let datadir = tempfile::tempdir().unwrap();
    let file = datadir.path().join("proxysql.db");
    let db = Connection::open(&file).unwrap();
    db.execute_batch(
        "CREATE TABLE mysql_servers (hostgroup_id INT, hostname VARCHAR, port INT); INSERT INTO mysql_servers VALUES (4, 'old', 99999)",
    )
    .unwrap();
    drop(db);
    let before = std::fs::read(&file).unwrap();
    let error = bootstrap(options(datadir.path(), FILE, Precedence::Database)).unwrap_err().to_string();
    assert!(error.contains("mysql_servers, hostgroup_id=4, hostname=old, port=99999"), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

/// As the data plane would say it.
fn patterns(snapshot: &Snapshot) -> Vec<ConfigError> {
    let bad = snapshot.rules.rules.iter().filter(|rule| rule.match_pattern.as_deref() == Some("("));
    bad.map(|rule| ConfigError {
        at: None,
        subject: rule_subject(rule.rule_id, "match_pattern"),
        kind: ErrorKind::Pattern("missing )".to_owned()),
    })
    .collect()
}

#[test]
fn every_fault_of_a_foreign_database_is_named_at_once() {
    let datadir = tempfile::tempdir().unwrap();
    let file = datadir.path().join("proxysql.db");
    let db = Connection::open(&file).unwrap();
    db.execute_batch(
        "CREATE TABLE mysql_servers (hostgroup_id INT, hostname VARCHAR, port INT);
         INSERT INTO mysql_servers VALUES (4, 'old', 99999), (5, NULL, 3306), (6, 'twin', 1), (6, 'twin', 1), (7, 'good', 3306);
         CREATE TABLE mysql_users (username VARCHAR, password VARCHAR, attributes VARCHAR);
         INSERT INTO mysql_users VALUES ('a', 'secret', '{'), ('b', 'secret', '{\"nonsense\":1}');
         CREATE TABLE mysql_query_rules (rule_id INTEGER PRIMARY KEY, active INT, client_addr VARCHAR, match_pattern VARCHAR);
         INSERT INTO mysql_query_rules VALUES (7, 1, 'a%b', NULL), (8, 1, NULL, '('), (9, 2, NULL, NULL);
         CREATE TABLE mysql_replication_hostgroups (writer_hostgroup INT, reader_hostgroup INT);
         INSERT INTO mysql_replication_hostgroups VALUES (1, 2), (3, 2);
         CREATE TABLE global_variables (variable_name VARCHAR NOT NULL PRIMARY KEY, variable_value VARCHAR NOT NULL);
         INSERT INTO global_variables VALUES ('mysql-threads', '0'), ('admin-admin_credentials', 'admin'), ('mysql-unheard_of', 'x');",
    )
    .unwrap();
    drop(db);
    let before = std::fs::read(&file).unwrap();
    let options = EngineOptions { faults: Some(patterns), ..options(datadir.path(), FILE, Precedence::Database) };
    let error = bootstrap(options).unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines[0], "12 faults:", "{error}");
    for part in [
        "mysql_servers, hostgroup_id=4, hostname=old, port=99999, column port: 99999 is out of range",
        "mysql_servers, hostgroup_id=5, hostname=NULL, port=3306, column hostname: must be given",
        "mysql_servers, hostgroup_id=6, hostname=twin, port=1: same hostgroup_id, hostname, port as the row",
        "mysql_users, username=a, backend=1, column attributes: bad JSON",
        "mysql_users, username=b, backend=1, column attributes: bad JSON: 'nonsense'",
        "mysql_query_rules, rule_id=7, column client_addr: ",
        "mysql_query_rules.match_pattern of rule 8: cannot be used: missing )",
        "mysql_query_rules, rule_id=9, column active: 2 is out of range",
        "mysql_replication_hostgroups",
        "global_variables, variable_name=mysql-threads",
        "global_variables, variable_name=admin-admin_credentials",
    ] {
        let named = format!("{}: {part}", file.display());
        assert!(lines.iter().any(|line| line.starts_with(&named)), "{part}: {error}");
    }
    assert!(!error.contains("secret"), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), before);
    assert!(!datadir.path().join("proxysql.db.before-import").exists());
}

/// The remains of a crash in the first start: nothing, tables, or tables and the instance's name.
#[test]
fn a_database_that_was_never_filled_does_not_count() {
    let tables = "CREATE TABLE global_variables (variable_name VARCHAR NOT NULL PRIMARY KEY, variable_value VARCHAR NOT NULL);
         CREATE TABLE global_settings (variable_name VARCHAR NOT NULL PRIMARY KEY, variable_value VARCHAR NOT NULL);
         INSERT INTO global_settings VALUES ('uuid', 'x');";
    for (precedence, sql) in [(Precedence::Database, ""), (Precedence::Database, tables), (Precedence::Reload, tables)] {
        let datadir = tempfile::tempdir().unwrap();
        let file = datadir.path().join("proxysql.db");
        std::fs::write(&file, "").unwrap();
        Connection::open(&file).unwrap().execute_batch(sql).unwrap();
        let boot = bootstrap(options(datadir.path(), FILE, precedence)).unwrap();
        assert!(boot.is_first && boot.notices.len() == 1, "{:?}", boot.notices);
        assert!(boot.notices[0].contains("proxysql.db: the database holds no configuration, so "), "{:?}", boot.notices);
        let bed = Bed::start(boot, Arc::new(datadir));
        assert_eq!((hosts(&bed), bed.rows("SELECT COUNT(*) FROM disk.mysql_users")), (vec!["db1".into(), "db2".into()], vec!["1".into()]));
        let bed = Bed::open(bed.stop(), OTHER, Precedence::Database);
        assert_eq!(hosts(&bed), ["db1", "db2"], "from here on the database holds");
    }
}

#[test]
fn an_initial_start_that_was_cut_off_leaves_the_backup_alone() {
    let datadir = Bed::new().stop();
    let [file, backup] = ["proxysql.db", "proxysql.db.bak"].map(|name| datadir.path().join(name));
    std::fs::rename(&file, &backup).unwrap();
    std::fs::write(&file, "").unwrap();
    let bed = Bed::open(datadir, OTHER, Precedence::Initial);
    assert_eq!(hosts(&bed), ["db7"]);
    let kept: i64 = Connection::open(&backup).unwrap().query_row("SELECT COUNT(*) FROM mysql_servers", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, 2);
}

#[test]
fn a_damaged_history_is_kept_and_begun_anew() {
    let mut datadir = Bed::new().stop();
    let file = datadir.path().join("proxysql_stats.db");
    let junk = "junk".repeat(5000);
    for round in 1..=2 {
        for suffix in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(file.with_extension(format!("db{suffix}")));
        }
        std::fs::write(&file, &junk).unwrap();
        let bed = Bed::open(datadir, FILE, Precedence::Database);
        let aside = file.with_extension(format!("db.damaged{round}"));
        assert!(bed.notices[0].contains("file is not a database; the file is kept as ") && bed.notices.len() == 1, "{:?}", bed.notices);
        assert_eq!(std::fs::read_to_string(&aside).unwrap(), junk);
        assert_eq!(bed.rows("SELECT COUNT(*) FROM stats_history.mysql_connections"), ["0"]);
        datadir = bed.stop();
    }
    assert!(Bed::open(datadir, FILE, Precedence::Database).notices.is_empty());
}

#[test]
fn a_file_that_is_no_database_is_named() {
    let datadir = tempfile::tempdir().unwrap();
    let file = datadir.path().join("proxysql.db");
    std::fs::write(&file, "this is no database, and long enough to be read as one".repeat(20)).unwrap();
    let error = bootstrap(options(datadir.path(), FILE, Precedence::Database)).unwrap_err().to_string();
    assert_eq!(error, format!("{}: file is not a database", file.display()));
}

/// The ports would refuse it once the start has read the configuration.
#[test]
fn an_admin_variable_that_the_ports_cannot_read_is_foreseen() {
    let bed = Bed::new();
    bed.ok("UPDATE disk.global_variables SET variable_value='lb.internal' WHERE variable_name='admin-web_trusted_proxies'");
    let datadir = bed.stop();
    let error = foresee(&options(datadir.path(), FILE, Precedence::Database)).unwrap_err().to_string();
    assert_eq!(error, "admin-web_trusted_proxies: 'lb.internal' is not an IP address");
}

#[test]
fn a_bad_row_on_disk_stops_the_start() {
    let bed = Bed::new();
    bed.ok("UPDATE disk.mysql_servers SET hostname='' WHERE hostgroup_id=2");
    let datadir = bed.stop();
    let error = bootstrap(options(datadir.path(), FILE, Precedence::Database)).unwrap_err().to_string();
    let file = datadir.path().join("proxysql.db");
    assert!(error.starts_with(&format!("{}: mysql_servers, hostgroup_id=2", file.display())), "{error}");
}
