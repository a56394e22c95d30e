//! LOAD and SAVE: every form, and that a refused one changes nothing.

use admin::{Precedence, Reply, Role};

use crate::bed::{Bed, FILE};

const MODULES: &[&str] = &[
    "MYSQL USERS",
    "MYSQL SERVERS",
    "MYSQL QUERY RULES",
    "MYSQL VARIABLES",
    "ADMIN VARIABLES",
    "MYSQL FIREWALL",
    "SCHEDULER",
    "RESTAPI",
    "PROXYSQL SERVERS",
    "COREDUMP",
];

#[test]
fn every_form_of_every_module() {
    let bed = Bed::new();
    for module in MODULES {
        for form in [
            "SAVE {} TO DISK",
            "SAVE {} FROM MEMORY",
            "SAVE {} FROM MEM",
            "LOAD {} FROM DISK",
            "LOAD {} TO MEMORY",
            "LOAD {} TO MEM",
            "LOAD {} TO RUNTIME",
            "LOAD {} TO RUN",
            "LOAD {} FROM MEMORY",
            "LOAD {} FROM MEM",
            "SAVE {} TO MEMORY",
            "SAVE {} TO MEM",
            "SAVE {} FROM RUNTIME",
            "SAVE {} FROM RUN",
            "LOAD {} FROM CONFIG",
        ] {
            let command = form.replace("{}", module);
            bed.ok(&command);
            bed.ok(&format!("  {} ; ", command.to_lowercase().replace(' ', " \n ")));
        }
        bed.refused(&format!("LOAD {module} TO NOWHERE"));
        bed.refused(&format!("SAVE {module} TO RUNTIME"));
        bed.refused(&format!("LOAD {module} TO RUNTIME NOW"));
    }
    assert_eq!(bed.rows("SELECT COUNT(*) FROM mysql_servers"), ["2"]);
    assert_eq!(bed.rows("SELECT COUNT(*) FROM mysql_users"), ["1"]);
}

#[test]
fn a_change_goes_through_the_layers() {
    let bed = Bed::new();
    bed.ok("INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (3, 'db3')");
    let counts = || {
        ["mysql_servers", "runtime_mysql_servers", "disk.mysql_servers"]
            .map(|table| bed.rows(&format!("SELECT COUNT(*) FROM {table}"))[0].clone())
    };
    assert_eq!(counts(), ["3", "2", "2"]);
    bed.ok("LOAD MYSQL SERVERS TO RUNTIME");
    assert_eq!(counts(), ["3", "3", "2"]);
    assert_eq!(bed.plane.snapshot.lock().unwrap().hostgroups.len(), 3);
    bed.ok("DELETE FROM mysql_servers");
    bed.ok("SAVE MYSQL SERVERS FROM RUNTIME");
    bed.ok("SAVE MYSQL SERVERS TO DISK");
    assert_eq!(counts(), ["3", "3", "3"]);
    bed.ok("DELETE FROM mysql_servers");
    bed.ok("LOAD MYSQL SERVERS FROM DISK");
    assert_eq!(counts(), ["3", "3", "3"]);
}

/// A statement that makes memory invalid, the LOAD, and the names in its error.
const FAULTS: &[(&str, &str, &[&str])] = &[
    (
        "UPDATE mysql_servers SET hostname='' WHERE hostgroup_id=2",
        "MYSQL SERVERS",
        &["mysql_servers, hostgroup_id=2, hostname=, port=3306, column hostname", "must not be empty"],
    ),
    (
        "UPDATE mysql_servers SET weight='heavy', max_connections=1.5 WHERE hostgroup_id=1",
        "MYSQL SERVERS",
        &["hostgroup_id=1, hostname=db1, port=3306, column max_connections: must be an integer"],
    ),
    (
        "UPDATE mysql_servers SET max_connections=99999999999",
        "MYSQL SERVERS",
        &["2 faults", "column max_connections: 99999999999 is out of range"],
    ),
    (
        "UPDATE mysql_users SET default_hostgroup='x'",
        "MYSQL USERS",
        &["mysql_users, username=app, backend=1, column default_hostgroup", "'x'"],
    ),
    (
        "UPDATE mysql_users SET attributes='{\"spiffe_id\":\"x\"}'",
        "MYSQL USERS",
        &["mysql_users, username=app", "column attributes", "spiffe_id"],
    ),
    (
        "INSERT INTO mysql_query_rules (rule_id, proxy_port, flagIN) VALUES (7, 5, 'a')",
        "MYSQL QUERY RULES",
        &["mysql_query_rules, rule_id=7, column flagIN: must be an integer, not 'a'"],
    ),
    (
        "UPDATE global_variables SET variable_value='0' WHERE variable_name='mysql-threads'",
        "MYSQL VARIABLES",
        &["global_variables, variable_name=mysql-threads: 0 is out of range 1..255"],
    ),
    (
        "INSERT INTO global_variables VALUES ('mysql-thread', '1')",
        "MYSQL VARIABLES",
        &["variable_name=mysql-thread: unknown variable; did you mean 'threads'"],
    ),
    (
        "UPDATE global_variables SET variable_value='nonsense' WHERE variable_name='admin-admin_credentials'",
        "ADMIN VARIABLES",
        &["variable_name=admin-admin_credentials", "user:password"],
    ),
    (
        "INSERT INTO scheduler (interval_ms, filename) VALUES (1000, CAST(x'ff' AS TEXT))",
        "SCHEDULER",
        &["scheduler, id=1, column filename", "UTF-8"],
    ),
];

#[test]
fn bad_rows_are_named_and_change_nothing() {
    for (fault, module, words) in FAULTS {
        let bed = Bed::new();
        let before = (bed.rows("CONFIG DIFF RUNTIME DISK"), bed.rows("SELECT * FROM runtime_checksums_values"));
        bed.reply(admin::Role::Admin, "PRAGMA ignore_check_constraints=1");
        match bed.reply(admin::Role::Admin, fault) {
            admin::Reply::Ok { .. } => {}
            // SQLite's own CHECK refuses it already.
            admin::Reply::Err { text, .. } if text.contains("CHECK constraint failed") => {
                assert!(fault.contains("weight"), "{fault}: {text}");
                bed.ok(&fault.replace("weight='heavy', ", ""));
            }
            other => panic!("{fault}: {other:?}"),
        }
        for command in ["LOAD {} TO RUNTIME", "SAVE {} TO DISK", "CONFIG APPLY", "CONFIG CHECK"] {
            let text = bed.refused(&command.replace("{}", module));
            for word in *words {
                assert!(text.contains(word), "{fault}: {command}: {text}");
            }
        }
        let after = (bed.rows("CONFIG DIFF RUNTIME DISK"), bed.rows("SELECT * FROM runtime_checksums_values"));
        assert_eq!((before, bed.applied()), (after, 0), "{fault}");
    }
}

/// A fault that a row has by itself, and one that is found only when all is put together.
#[test]
fn one_check_names_the_faults_of_all_modules() {
    let bed = Bed::new();
    bed.reply(admin::Role::Admin, "PRAGMA ignore_check_constraints=1");
    bed.ok("UPDATE mysql_servers SET hostname='' WHERE hostgroup_id=2");
    bed.ok("INSERT INTO mysql_replication_hostgroups (writer_hostgroup, reader_hostgroup) VALUES (20, 21), (21, 22)");
    let text = bed.refused("CONFIG CHECK");
    for words in ["2 faults", "column hostname", "hostgroup 21 is"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// The next start reads all modules from disk, not only the one that was saved.
#[test]
fn a_save_names_the_modules_that_the_next_start_needs_too() {
    let bed = Bed::new();
    bed.ok("INSERT INTO mysql_replication_hostgroups (writer_hostgroup, reader_hostgroup) VALUES (1, 2)");
    bed.ok("UPDATE mysql_users SET attributes='{\"read_write_split\":true}'");
    bed.ok("CONFIG APPLY");
    let Reply::Ok { info, warnings, .. } = bed.reply(Role::Admin, "SAVE MYSQL USERS TO DISK") else { panic!() };
    assert!(info.starts_with("saved, but a start would refuse what is on disk now: ") && info.contains("username=app"), "{info}");
    assert!(info.ends_with("; save the other modules too: SAVE MYSQL SERVERS TO DISK"), "{info}");
    assert_eq!(warnings, [info]);
    assert_eq!(bed.ok("SAVE MYSQL SERVERS TO DISK"), "");
    let bed = Bed::open(bed.stop(), FILE, Precedence::Database);
    assert_eq!(bed.rows("SELECT COUNT(*) FROM runtime_mysql_replication_hostgroups"), ["1"]);
}

#[test]
fn an_admin_variable_that_no_start_can_read_is_not_saved() {
    let bed = Bed::new();
    let file = format!("SAVE CONFIG TO FILE {}", bed.datadir.path().join("saved.cnf").display());
    for (name, value) in [("admin-web_trusted_proxies", "lb.internal"), ("admin-shared_config_endpoints", "etcd1:2379")] {
        bed.ok(&format!("SET {name}='{value}'"));
        for command in ["LOAD ADMIN VARIABLES TO RUNTIME", "SAVE ADMIN VARIABLES TO DISK", "CONFIG CHECK", &file] {
            let text = bed.refused(command);
            assert!(text.contains(name) && text.contains(value), "{command}: {text}");
        }
        bed.ok("SAVE MYSQL USERS TO DISK");
        bed.ok("LOAD ADMIN VARIABLES FROM DISK");
        bed.ok("SAVE ADMIN VARIABLES TO DISK");
    }
}

#[test]
fn a_refusal_of_the_data_plane_changes_nothing() {
    let bed = Bed::new();
    bed.ok("INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (3, 'db3')");
    let error = model::ConfigError { at: None, subject: "mysql_servers.hostname".to_owned(), kind: model::ErrorKind::Rule("is not liked") };
    *bed.plane.refusal.lock().unwrap() = Some(error);
    assert!(bed.refused("LOAD MYSQL SERVERS TO RUNTIME").contains("is not liked"));
    assert_eq!(bed.rows("SELECT COUNT(*) FROM runtime_mysql_servers"), ["2"]);
    assert_eq!(bed.rows("CONFIG HISTORY").len(), 1, "that of the start");
    // Other faults do not hide it.
    bed.ok("INSERT INTO mysql_query_rules (rule_id, active, digest) VALUES (5, 1, 'FF'), (6, 1, NULL)");
    let faults = bed.refused("LOAD MYSQL QUERY RULES TO RUNTIME");
    assert!(faults.contains("column digest: ") && faults.contains("is not liked"), "{faults}");
}

#[test]
fn one_user() {
    let bed = Bed::new();
    bed.ok("INSERT INTO mysql_users (username, password) VALUES ('new', 'n'), ('other', 'o')");
    bed.ok("LOAD MYSQL USER new TO RUNTIME");
    assert_eq!(bed.rows("SELECT DISTINCT username FROM runtime_mysql_users ORDER BY 1"), ["app", "new"]);
    for name in ["`a b`", "f*o", "o%", "a b"] {
        let text = bed.refused(&format!("LOAD MYSQL USER {name} TO RUNTIME"));
        let is_clear = text.starts_with(&format!("Invalid name {}: ", name.trim_matches('`'))) && text.contains("no pattern");
        assert!(is_clear, "{text}");
    }
    assert_eq!(bed.refused("LOAD MYSQL USER nobody FROM MEMORY"), "User nobody is not in mysql_users, so nothing was loaded");
    bed.ok("DELETE FROM mysql_users WHERE username='new'");
    assert!(bed.refused("LOAD MYSQL USER new TO RUNTIME").ends_with("LOAD MYSQL USERS TO RUNTIME removes it"));
    bed.ok("INSERT INTO mysql_users (username, password) VALUES ('a+b', 'n')");
    bed.ok("LOAD MYSQL USER a+b TO RUN");
    assert_eq!(bed.rows("SELECT DISTINCT username FROM runtime_mysql_users ORDER BY 1"), ["a+b", "app", "new"]);
}

#[test]
fn variables() {
    let bed = Bed::new();
    bed.ok("SET mysql-max_connections=77, admin-refresh_interval = '3000'");
    assert_eq!(bed.rows("SELECT @@mysql-max_connections, @@admin-refresh_interval"), ["77|3000"]);
    assert_eq!(bed.rows("SELECT variable_value FROM runtime_global_variables WHERE variable_name='mysql-max_connections'"), ["10000"]);
    bed.ok("LOAD MYSQL VARIABLES TO RUNTIME");
    assert_eq!(bed.rows("SELECT variable_value FROM runtime_global_variables WHERE variable_name='mysql-max_connections'"), ["77"]);
    assert_eq!(bed.runtime().admin.refresh_interval, 2000, "admin variables were not loaded");
    bed.ok("SET mysql-threads=9");
    let restart = "mysql-threads takes effect after a restart";
    let Reply::Ok { info, warnings, .. } = bed.reply(Role::Admin, "LOAD MYSQL VARIABLES TO RUNTIME") else { panic!() };
    assert_eq!((info.as_str(), warnings), (restart, vec![restart.to_owned()]));
    bed.ok("SET mysql-default_schema=shop");
    bed.ok("set mysql-init_connect='SET @a=''x'';'");
    assert_eq!(bed.rows("SELECT variable_value FROM global_variables WHERE variable_name='mysql-init_connect'"), ["SET @a='x';"]);
    for (sql, name, value) in [
        ("SET mysql-init_connect=NULL", "mysql-init_connect", ""),
        ("SET mysql-init_connect='NULL'", "mysql-init_connect", "NULL"),
        ("SET mysql-default_schema = default", "mysql-default_schema", ""),
        ("SET mysql-threads=DEFAULT", "mysql-threads", "4"),
    ] {
        bed.ok(sql);
        assert_eq!(bed.rows(&format!("SELECT variable_value FROM global_variables WHERE variable_name='{name}'")), [value], "{sql}");
    }
    for (sql, word) in [
        ("SET mysql-threads=NULL", "is not an integer"),
        (r"SET mysql-init_connect='SET @a=\'x\''", "a quote within it is written twice"),
        ("SET mysql-init_connect=(SELECT 'x')", "a text in quotes"),
        ("SET mysql-init_connect=concat('a','b')", "a text in quotes"),
        ("SET mysql-init_connect='a'||'b'", "a text in quotes"),
        ("SET mysql-init_connect='a' 'b'", "a text in quotes"),
        ("SET mysql-init_connect=x'41'", "a text in quotes"),
        ("SET mysql-init_connect=@@mysql-server_version", "a text in quotes"),
        ("SET mysql-threadz=1", "Unknown global variable: 'mysql-threadz'. Did you mean 'mysql-threads'?"),
        ("SET threads=1", "Did you mean 'mysql-threads'?"),
        ("SET nonsense=1", "Unknown global variable: 'nonsense'"),
        ("SET mysql-threads=0", "0 is out of range 1..255"),
        ("SET mysql-max_connections=5, mysql-threads=many", "'many' is not an integer"),
        ("SET mysql-threads", "name = value"),
        ("SET admin-version='9'", "read only"),
    ] {
        let text = bed.refused(sql);
        assert!(text.contains(word), "{sql}: {text}");
    }
    assert_eq!(bed.rows("SELECT @@mysql-max_connections"), ["77"], "a refused SET sets nothing");
}

/// The proxy keeps running, and starts again, with the configuration that it reported.
#[test]
fn an_address_that_is_taken_is_refused() {
    let bed = Bed::new();
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap();
    let ifaces = bed.rows("SELECT variable_value FROM runtime_global_variables WHERE variable_name='admin-mysql_ifaces'");
    for (change, back, name) in [
        (format!("SET admin-mysql_ifaces='{};{taken}'", ifaces[0]), "SET admin-mysql_ifaces=DEFAULT", "admin-mysql_ifaces"),
        (
            format!("SET admin-restapi_enabled=1, admin-restapi_port={}", taken.port()),
            "SET admin-restapi_enabled=DEFAULT, admin-restapi_port=DEFAULT",
            "admin-restapi_port",
        ),
    ] {
        bed.ok(&change);
        let error = bed.refused("LOAD ADMIN VARIABLES TO RUNTIME");
        assert!(error.contains(&format!("{name}: cannot listen on {taken}: ")), "{error}");
        assert_eq!(bed.rows("SELECT variable_value FROM runtime_global_variables WHERE variable_name='admin-mysql_ifaces'"), ifaces);
        bed.ok(back);
        bed.ok("LOAD ADMIN VARIABLES TO RUNTIME");
    }
}

#[test]
fn a_saved_file_takes_the_place_of_files_only() {
    let bed = Bed::new();
    let dir = bed.datadir.path();
    let (file, link, socket) = (dir.join("saved.cnf"), dir.join("link.cnf"), dir.join("socket"));
    std::fs::write(&file, "old").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let names = || std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect::<std::collections::BTreeSet<_>>();
    let before = names();
    for other in [&socket, dir, std::path::Path::new("/dev/null")] {
        let error = bed.refused(&format!("SAVE CONFIG TO FILE {}", other.display()));
        assert!(error.contains("not a regular file"), "{error}");
    }
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
    bed.ok(&format!("SAVE CONFIG TO FILE {}", link.display()));
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), bed.rows("SELECT CONFIG FILE").concat());
    assert_eq!(names(), before);
}

#[test]
fn differences_that_rehearsals_ignore_are_loaded_and_saved() {
    let bed = Bed::new();
    bed.ok("INSERT INTO mysql_rehearsal_ignores (digest, class, comment) VALUES ('0x3F1CC2B2A4D2E0B1', 'columns', 'wider')");
    bed.ok("INSERT INTO mysql_rehearsal_ignores (schemaname, column_name) VALUES ('shop', 'changed_at')");
    bed.ok("LOAD MYSQL QUERY RULES TO RUNTIME");
    let runtime = "SELECT digest, schemaname, column_name, class, comment FROM runtime_mysql_rehearsal_ignores ORDER BY digest DESC";
    let rows = ["0x3F1CC2B2A4D2E0B1|||columns|wider", "|shop|changed_at||"];
    assert_eq!(bed.rows(runtime), rows);
    bed.ok("SAVE MYSQL QUERY RULES TO DISK");
    bed.ok("DELETE FROM mysql_rehearsal_ignores");
    // A row that cannot be meant changes nothing that is in force.
    for (row, named) in [
        ("('3F1C', '', '')", "as stats_tidegate_rehearsal_digests shows it"),
        ("('', '', '')", "the row would ignore all differences"),
        ("('', '', 'same')", "must be empty or one of 'error_new'"),
        ("('', 'changed_at', 'count')", "must be empty or 'rows' with column_name"),
    ] {
        bed.ok(&format!("INSERT INTO mysql_rehearsal_ignores (digest, column_name, class) VALUES {row}"));
        let refused = bed.refused("LOAD MYSQL QUERY RULES TO RUNTIME");
        assert!(refused.contains("mysql_rehearsal_ignores") && refused.contains(named), "{refused}");
        assert_eq!(bed.rows(runtime), rows);
        bed.ok("DELETE FROM mysql_rehearsal_ignores");
    }
    bed.ok("LOAD MYSQL QUERY RULES FROM DISK");
    bed.ok("LOAD MYSQL QUERY RULES TO RUNTIME");
    assert_eq!(bed.rows(runtime), rows);
}
