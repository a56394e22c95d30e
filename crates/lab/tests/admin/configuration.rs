//! CONFIG: the differences between layers, the history, and going back to an earlier configuration.

use std::fs;
use std::process::Command;

use lab::tidegate::find_program;

use crate::bed::{Operator, WHO, alone, before_a, code, get, insert_server, servers};

#[test]
fn what_waits_for_a_restart_is_pending_until_then() {
    let mut proxy = before_a().start().unwrap();
    let mut operator = Operator::of(&proxy);
    let pending = |operator: &mut Operator| {
        let found = operator.rows("CONFIG CHECK");
        found.into_iter().filter(|row| row.starts_with("pending|")).collect::<Vec<_>>()
    };
    assert_eq!(pending(&mut operator), Vec::<String>::new());
    operator.all(&["SET mysql-threads=7", "LOAD MYSQL VARIABLES TO RUNTIME", "SAVE MYSQL VARIABLES TO DISK"]);
    let found = pending(&mut operator);
    assert_eq!(found.len(), 1, "{found:?}");
    let place = "pending|global_variables|variable_name=mysql-threads|variable_value|'7' takes effect at the next start; until then ";
    assert!(found[0].starts_with(place), "{found:?}");
    drop(operator);
    proxy.start_again(&[]).unwrap();
    assert_eq!(pending(&mut Operator::of(&proxy)), Vec::<String>::new());
}

#[test]
fn differences_history_and_the_way_back() {
    let [a, b, _] = servers();
    let mut proxy = before_a().start().unwrap();
    let mut operator = Operator::of(&proxy);
    let mut client = proxy.connect_app().unwrap();
    operator.ok("CONFIG APPLY");
    operator.all(&[
        &format!("DELETE FROM mysql_servers WHERE port={}", a.port()),
        &insert_server(0, b),
        "UPDATE mysql_users SET max_connections=17",
        "SET mysql-default_query_timeout=12345",
    ]);
    let key = |port: u16| format!("mysql_servers|hostgroup_id=0, hostname=127.0.0.1, port={port}");
    let mut expected = [
        format!("{}|NULL|NULL|all columns are as their defaults", key(a.port())),
        format!("{}|NULL|all columns are as their defaults|NULL", key(b.port())),
        "mysql_users|username=app, backend=1|max_connections|17|10000".to_owned(),
        "global_variables|variable_name=mysql-default_query_timeout|variable_value|12345|86400000".to_owned(),
    ];
    expected.sort();
    for sql in ["CONFIG DIFF", "CONFIG DIFF MEMORY RUNTIME", "CONFIG DIFF DISK", "CONFIG DIFF FILE", "CONFIG DIFF HISTORY 1"] {
        let mut found = operator.rows(sql);
        found.sort();
        assert_eq!(found, expected, "{sql}");
    }
    assert_eq!(get(&mut client, WHO), "a");
    operator.ok("CONFIG APPLY");
    assert_eq!(get(&mut client, WHO), "b");
    assert_eq!(operator.rows("CONFIG DIFF"), Vec::<String>::new());
    let history: Vec<String> = operator.rows("SELECT id, user, command FROM disk.tidegate_config_history ORDER BY id DESC");
    assert_eq!(history, ["2|admin|CONFIG APPLY", "1||start"]);
    assert_eq!(operator.rows("CONFIG HISTORY").len(), 2);

    operator.ok("CONFIG ROLLBACK 1");
    assert_eq!(get(&mut client, WHO), "a");
    assert_eq!(operator.row("SELECT @@mysql-default_query_timeout"), "86400000");
    assert_eq!(operator.rows("CONFIG DIFF"), Vec::<String>::new());
    operator.ok("CONFIG ROLLBACK 2");
    assert_eq!(get(&mut client, WHO), "b");
    drop(operator);

    proxy.start_again(&[]).unwrap();
    let mut operator = Operator::of(&proxy);
    assert_eq!(get(&mut proxy.connect_app().unwrap(), WHO), "a", "it was not saved");
    assert_eq!(operator.rows("CONFIG HISTORY").len(), 5, "the history is on disk, and the start is part of it");
    operator.ok("CONFIG ROLLBACK 2");
    assert_eq!(get(&mut proxy.connect_app().unwrap(), WHO), "b");
}

#[test]
fn a_file_is_applied_whole() {
    let [_, b, _] = servers();
    let proxy = before_a().start().unwrap();
    let mut operator = Operator::of(&proxy);
    let copy = proxy.dir().join("copy.cnf");
    operator.ok(&format!("SELECT CONFIG INTO OUTFILE '{}'", copy.display()));
    assert_eq!(std::fs::read_to_string(&copy).unwrap(), operator.row("SELECT CONFIG FILE"));
    operator.all(&[&insert_server(0, b), "INSERT INTO mysql_users (username, password) VALUES ('x', 'y')", "CONFIG APPLY"]);
    operator.all(&["SAVE MYSQL SERVERS TO DISK", "SAVE MYSQL USERS TO DISK"]);
    operator.ok(&format!("CONFIG APPLY FILE '{}'", copy.display()));
    for table in ["mysql_servers", "runtime_mysql_servers", "disk.mysql_servers", "mysql_users", "disk.mysql_users"] {
        assert_eq!(operator.row(&format!("SELECT COUNT(*) FROM {table}")), "1", "{table}");
    }
    assert_eq!(code(&lab::Client::connect(&proxy.options("x", "y"))), 1045);
    let before = operator.row("SELECT GLOBAL_CHECKSUM()");
    std::fs::write(&copy, "mysql_servers = ( { address=\"db8\", port=70000 } )").unwrap();
    assert!(operator.refused(&format!("CONFIG APPLY FILE '{}'", copy.display())).contains("70000 is out of range"));
    assert_eq!(operator.row("SELECT GLOBAL_CHECKSUM()"), before);
    assert_eq!(operator.rows("CONFIG DIFF DISK"), Vec::<String>::new());
}

/// `tidegate check`: each remark has its place in the file; a remark, unlike an error, leaves the file usable.
#[test]
fn a_file_is_looked_through() {
    let proxy = alone().start().unwrap();
    let file = proxy.dir().join("looked-through.cnf");
    let text = "admin_variables = { pgsql_ifaces=\"0.0.0.0:6132\" } mysql_servers = ({ hostgroup=1, address=\"a\" }, { hostgroup=1, address=\"[::1]\" })\n\
        mysql_users = ({ username=\"app\", default_hostgroup=1 }, { username=\"lost\",\n  default_hostgroup=5 })\n\
        mysql_query_rules = ({ rule_id=1, active=1, match_digest=\"WHERE id=1\", apply=1 }, { rule_id=2, active=1, apply=1 },\n  \
        { rule_id=3, active=1, username=\"ghost\",\n  apply=1 })\n\
        scheduler = ({ id=1, interval_ms=1000,\n  filename=\"x.sh\" })\n";
    fs::write(&file, text).unwrap();
    let check = || Command::new(find_program().unwrap()).arg("check").arg(&file).output().unwrap();
    let checked = check();
    let out = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success(), "{checked:?}");
    for (line, part) in [
        (1, "mysql_servers, hostgroup_id=1, hostname=[::1], port=3306, column hostname: '[::1]' is neither a name"),
        (3, "mysql_users, username=lost, column default_hostgroup: hostgroup 5 has no servers"),
        (4, "mysql_query_rules, rule_id=1, column match_digest: matches '=1'"),
        (5, "mysql_query_rules, rule_id=3, column username: 'ghost' is not a client user"),
        (6, "mysql_query_rules, rule_id=3, column apply: never reached: rule 2"),
        (8, "scheduler, id=1, column filename: 'x.sh' is not an absolute path"),
    ] {
        let at = format!("warning: {}:{line}:", file.display());
        assert!(out.lines().any(|told| told.starts_with(&at) && told.contains(part)), "{at} {part}: {out}");
    }
    assert!(out.contains("column variable_value: this default login can run programs"), "{out}");
    assert!(out.contains("holds passwords and is readable for everybody"), "{out}");
    assert!(out.ends_with("usable, 1 note(s), 8 warning(s)\n"), "{out}");
    fs::write(&file, text.replace("WHERE id=1", "(")).unwrap();
    let refused = check();
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stdout).contains("match_digest of rule 1"), "{refused:?}");
    // As a Helm chart writes it.
    let chart = "mysql_replication_hostgroups = ( { rule_id=1 writer_hostgroup=1 reader_hostgroup=2 } )\nmysql_servers = ( { address=\"::1\" hostgroup=1 } )\n";
    fs::write(&file, chart).unwrap();
    let charted = check();
    let out = String::from_utf8_lossy(&charted.stdout).into_owned();
    let passed_over = format!("warning: {}:1:36: mysql_replication_hostgroups.rule_id: unknown column, ignored\n", file.display());
    assert!(charted.status.success() && out.contains(&passed_over), "{charted:?}");
    let strict = Command::new(find_program().unwrap()).arg("check").arg("--strict").arg(&file).output().unwrap();
    let out = String::from_utf8_lossy(&strict.stdout).into_owned();
    assert!(!strict.status.success() && out.contains("rule_id: unknown column\n"), "{strict:?}");
    fs::write(&file, "# nothing yet\n").unwrap();
    let blank = check();
    let out = String::from_utf8_lossy(&blank.stdout).into_owned();
    assert!(blank.status.success() && out.contains("sets no variable and no table") && out.ends_with("1 warning(s)\n"), "{blank:?}");
}
