//! Orders about healing through the real program: HEAL HOSTGROUP with a program of the operator's own, the history of its steps, REJOIN
//! SERVER, and `tidegate errant dump`.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use common::LIMIT;
use common::healing::{cluster, healing, wait_for, wait_standing, with_servers};
use lab::{Flavor, Tidegate, wait};

fn lines(proxy: &Tidegate, sql: &str) -> Vec<String> {
    let rows = proxy.admin().unwrap().run(sql).unwrap().table().unwrap();
    rows.iter().map(|row| row.iter().map(|field| field.clone().unwrap_or_default()).collect::<Vec<_>>().join("|")).collect()
}

/// Mode `rejoin`: the proxy promotes nobody by itself. The number of transactions that the operator loses must be the one that is shown.
fn an_operator_heals_and_saves_what_is_lost(flavor: Flavor) {
    let servers = cluster(flavor, 1);
    let (old, heir) = (&servers.primary, &servers.replicas[0]);
    let hooks = tempfile::tempdir().unwrap();
    let (hook, noted) = (hooks.path().join("note"), hooks.path().join("noted"));
    let text =
        "#!/bin/sh\necho \"$1 $TIDEGATE_MOMENT $TIDEGATE_OLD_WRITER_PORT $TIDEGATE_NEW_WRITER_PORT $TIDEGATE_LOST\" >> \"${0%/*}/noted\"\n";
    std::fs::write(&hook, text).unwrap();
    std::fs::set_permissions(&hook, PermissionsExt::from_mode(0o755)).unwrap();
    let builder = Tidegate::builder().app_user().variable("monitor_read_only_interval", 200).variable("monitor_read_only_timeout", 500);
    let builder = builder.variable("replication_username", "repl").variable("replication_password", "repl-pass");
    let builder = builder.admin_variable("healing_hooks_dir", hooks.path().to_str().unwrap());
    let builder = builder.row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())]);
    let proxy = with_servers(builder, &servers).start().unwrap();
    let mut admin = proxy.admin().unwrap();
    for sql in [
        "INSERT INTO mysql_healing (writer_hostgroup, mode, dead_ms) VALUES (0, 'rejoin', 1000)",
        "INSERT INTO mysql_healing_hooks (writer_hostgroup, moment, command, required) VALUES (0, 'before', 'note $HOME', 1)",
        "INSERT INTO mysql_healing_hooks (writer_hostgroup, moment, command) VALUES (0, 'after', 'note done'), (0, 'errant', 'note extra')",
        "LOAD MYSQL SERVERS TO RUNTIME",
    ] {
        admin.run(sql).unwrap();
    }
    wait_for(&proxy, "SELECT verdict || ready FROM stats_tidegate_healing", "alive1");
    let mut refused = |sql: &str| admin.query(sql).unwrap().err().unwrap().message.clone();
    assert!(refused("HEAL HOSTGROUP 0").contains("only a dead writer is replaced, and the writer answers"));
    assert!(refused("HEAL HOSTGROUP 7").contains("hostgroup 7"));

    let [stop, start] = match flavor {
        Flavor::Mariadb => ["STOP SLAVE IO_THREAD", "START SLAVE IO_THREAD"],
        Flavor::Mysql => ["STOP REPLICA IO_THREAD", "START REPLICA IO_THREAD"],
    };
    heir.sql(stop).unwrap();
    for id in [1, 2] {
        old.sql(&format!("INSERT INTO test.writes(n, id) VALUES({}, {id})", 100 + id)).unwrap();
    }
    wait_for(&proxy, "SELECT received_behind FROM stats_tidegate_healing_servers WHERE role <> 'writer'", "2");
    old.kill9();
    heir.sql(start).unwrap();
    wait_for(&proxy, "SELECT verdict || would_lose FROM stats_tidegate_healing", "dead2");
    assert!(refused("HEAL HOSTGROUP 0 FORCE LOSING 1").contains("would lose 2 transactions, not 1"));
    // The proxy has not seen the replica hear from the writer since it looks: max_lost_ms forbids it, and the operator may.
    let told = refused("HEAL HOSTGROUP 0");
    assert!(told.contains("within max_lost_ms") && told.contains("HEAL HOSTGROUP 0 FORCE LOSING 2 allows it"), "{told}");
    assert!(lines(&proxy, "HEAL HOSTGROUP 0 DRY RUN")[0].starts_with("refused|"));
    let dry = lines(&proxy, "HEAL HOSTGROUP 0 FORCE LOSING 2 DRY RUN");
    assert!(dry[0].starts_with(&format!("allowed|{}|", heir.address())) && !noted.exists(), "{dry:#?}");
    let told = proxy.admin().unwrap().query("HEAL HOSTGROUP 0 FORCE LOSING 2").unwrap().status().unwrap().info.clone();
    println!("{told}");
    assert!(told.contains("was promoted in place of") && told.contains("at least 2 transactions lost"), "{told}");
    assert_eq!(healing(&proxy, "last_plan"), told);
    proxy.connect_app().unwrap().run("INSERT INTO test.writes(n, id) VALUES(200, 3)").unwrap();
    let said = std::fs::read_to_string(&noted).unwrap();
    assert_eq!(said, format!("$HOME before {}  \ndone after {} {} 2\n", old.port(), old.port(), heir.port()));

    let steps = "SELECT plan, port, step, statement, result FROM stats_history.history_tidegate_healing ORDER BY rowid";
    let kept = lines(&proxy, steps);
    println!("{kept:#?}");
    let opened = format!("promotion|{}|it is opened|SET GLOBAL read_only = IF(", heir.port());
    assert!(kept.iter().any(|line| line.starts_with(&opened) && line.ends_with("|ok")), "{kept:#?}");
    assert!(kept.iter().any(|line| line.contains("|hook before (note)||ok")));

    old.restart().unwrap();
    wait_standing(&proxy, old, &["errant"]);
    let told = refused(&format!("REJOIN SERVER '{}' DISCARDING 2", old.address()));
    assert!(told.contains("the 2 transactions are still there") && told.contains("tidegate errant dump"), "{told}");
    wait::until("the hook", LIMIT, || std::fs::read_to_string(&noted).unwrap().contains("extra errant").then_some(())).unwrap();
    let file = hooks.path().join("errant.binlog");
    let dump = |more: &[&str]| {
        let mut command = Command::new(lab::tidegate::find_program().unwrap());
        let target = format!("127.0.0.1:{}", proxy.admin_port());
        command.args(["errant", "dump", &old.address(), &target, "--to"]).arg(&file).args(["-u", "admin", "-p", "admin"]).args(more);
        let done = command.output().unwrap();
        let said = [done.stdout, done.stderr].concat();
        (done.status.success(), String::from_utf8_lossy(&said).into_owned())
    };
    let (is_done, said) = dump(&["--limit-mib", "0"]);
    assert!(!is_done && said.contains("allow more with --limit-mib") && !file.exists(), "{said}");
    let (is_done, said) = dump(&[]);
    println!("{said}");
    assert!(is_done && said.contains(&format!("2 transactions of {} that {} lacks", old.address(), heir.address())), "{said}");
    let made = std::fs::metadata(&file).unwrap();
    assert_eq!(made.permissions().mode() & 0o777, 0o600);
    assert!(std::fs::read(&file).unwrap().starts_with(b"\xfebin"));
    let (is_done, said) = dump(&[]);
    assert!(!is_done && said.contains("exists: name another file"), "{said}");
}

lab::each!(an_operator_heals_and_saves_what_is_lost);
