//! Commands of an operator that act on the process: pause, resume, stop, restart, kill.

use lab::{Client, LabError, Tidegate, wait};

use crate::bed::{LIMIT, Operator, WHO, before_a, get, servers};

/// Whether a new client is served.
fn is_served(outcome: Result<Client, LabError>) -> bool {
    outcome.is_ok_and(|mut client| client.scalar("SELECT 1").is_ok())
}

/// The port opens a moment after the answer.
fn wait_served(proxy: &Tidegate) {
    wait::until("clients to be served", LIMIT, || is_served(proxy.connect_app()).then_some(())).unwrap();
}

#[test]
fn a_pause_refuses_new_clients_and_keeps_the_old() {
    let proxy = before_a().start().unwrap();
    let mut operator = Operator::of(&proxy);
    let mut old = proxy.connect_app().unwrap();
    for _ in 0..3 {
        operator.ok("PROXYSQL PAUSE");
        assert!(!is_served(proxy.connect_app()));
        assert_eq!(get(&mut old, WHO), "a");
        operator.refused("PROXYSQL PAUSE");
        operator.ok("PROXYSQL RESUME");
        wait_served(&proxy);
        operator.refused("PROXYSQL RESUME");
    }
    operator.ok("PROXYSQL STOP");
    assert!(!is_served(proxy.connect_app()));
    wait::until("the session to end", LIMIT, || old.query("SELECT 1").is_err().then_some(())).unwrap();
    operator.ok("PROXYSQL START");
    wait_served(&proxy);
}

/// A DRAIN survives a LOAD, and its event survives a restart.
#[test]
fn a_drained_server_says_so() {
    let mut proxy = before_a().variable("monitor_enabled", false).start().unwrap();
    let mut operator = Operator::of(&proxy);
    let server = format!("127.0.0.1:{}", servers()[0].port());
    operator.ok(&format!("DRAIN SERVER '{server}'"));
    let pool = "SELECT status, reason FROM stats_mysql_connection_pool";
    operator.until(pool, &["OFFLINE_SOFT|drained by an operator's order"]);
    operator.ok("PAUSE HOSTGROUP 0");
    let info = operator.ok("LOAD MYSQL SERVERS TO RUNTIME").info;
    let told =
        [&*format!("{server} stays OFFLINE_SOFT: drained by an operator's order"), "hostgroup 0 stays paused until RESUME HOSTGROUP 0"];
    assert!(told.iter().all(|told| info.contains(told)), "{info}");
    let events = "SELECT sequence, time, time_ms, kind, to_state, why FROM stats_tidegate_events ORDER BY sequence";
    let before = operator.rows(events);
    assert!(before.iter().any(|event| event.contains("|order|drained|")), "{before:?}");
    let now = operator.row("SELECT COUNT(*) FROM stats_tidegate_events WHERE time LIKE '20__-__-__ __:__:__.___'");
    assert_eq!(now, before.len().to_string());
    drop(operator);
    proxy.stop().unwrap();
    proxy.start_again(&[]).unwrap();
    let mut operator = Operator::of(&proxy);
    let after = operator.rows(events);
    assert_eq!(after.get(..before.len()), Some(&before[..]));
    operator.until(pool, &["OFFLINE_SOFT|drained by an operator's order"]);
    operator.ok(&format!("UNDRAIN SERVER '{server}'"));
    operator.until(pool, &["ONLINE|NULL"]);
}

#[test]
fn a_session_is_killed() {
    let proxy = before_a().start().unwrap();
    let mut operator = Operator::of(&proxy);
    let [mut one, mut two] = [(), ()].map(|()| proxy.connect_app().unwrap());
    one.run("BEGIN").unwrap();
    get(&mut one, WHO);
    let listed = operator.rows("SELECT SessionID FROM stats_mysql_processlist ORDER BY 1");
    assert_eq!(listed, [one.connection_id().to_string(), two.connection_id().to_string()]);
    let why = "SELECT pins, last_digest_text FROM stats_mysql_processlist ORDER BY SessionID";
    assert_eq!(operator.rows(why), ["transaction|SELECT name FROM who", "NULL|NULL"]);
    assert!(operator.rows("SHOW PROCESSLIST")[0].ends_with("|transaction|SELECT name FROM who"));
    operator.ok(&format!("KILL CONNECTION {}", one.connection_id()));
    wait::until("the session to end", LIMIT, || one.query("SELECT 1").map_or(true, |r| r.err().is_some()).then_some(())).unwrap();
    assert_eq!(get(&mut two, WHO), "a");
    operator.until("SELECT SessionID FROM stats_mysql_processlist", &[&two.connection_id().to_string()]);
    operator.refused(&format!("KILL CONNECTION {}", one.connection_id()));
    two.send_query(format!("SELECT SLEEP(100), '{}'", "long ".repeat(1_000))).unwrap();
    operator.until("SELECT COUNT(*) FROM stats_mysql_processlist WHERE info LIKE 'SELECT SLEEP%'", &["1"]);
    let shown = "SELECT MAX(LENGTH(info)) FROM stats_mysql_processlist";
    assert_eq!(operator.row(shown), "4096");
    operator.all(&["SET mysql-processlist_max_query_length=1024", "LOAD MYSQL VARIABLES TO RUNTIME"]);
    operator.until(shown, &["1024"]);
    operator.ok(&format!("KILL {}", two.connection_id()));
    let told = two.recv_reply(lab::client::Encoding::Text);
    assert!(matches!(told, Err(lab::LabError::Io { .. })), "servers close without a word: {told:?}");
}

/// The words that end the process: whether an open transaction may finish first.
#[test]
fn the_process_ends_in_good_order() {
    for (command, drains) in [("PROXYSQL SHUTDOWN", true), ("PROXYSQL SHUTDOWN SLOW", true), ("PROXYSQL KILL", false)] {
        let proxy = before_a().variable("drain_timeout", 60_000).start().unwrap();
        let mut operator = Operator::of(&proxy);
        let mut open = proxy.connect_app().unwrap();
        open.run("BEGIN").unwrap();
        assert_eq!(get(&mut open, WHO), "a");
        operator.ok(command);
        if drains {
            assert_eq!(get(&mut open, WHO), "a", "{command}");
            open.run("COMMIT").unwrap();
        }
        let status = proxy.wait_exit().unwrap();
        assert!(status.success(), "{command}: {status}");
        assert!(open.query("SELECT 1").map_or(true, |reply| reply.err().is_some()), "{command}");
    }
}

/// Waits until so many starts are over: the ports are open before.
fn wait_starts(proxy: &Tidegate, starts: usize) {
    let are_over = || (proxy.log().matches("is ready").count() == starts).then_some(());
    wait::until("the new process to be ready", LIMIT, are_over).unwrap_or_else(|e| panic!("{e}: {}", proxy.log()));
}

#[test]
fn a_restart_reads_what_was_saved() {
    let proxy = before_a().start().unwrap();
    let mut operator = Operator::of(&proxy);
    operator.all(&["SET mysql-threads=3", "LOAD MYSQL VARIABLES TO RUNTIME", "SAVE MYSQL VARIABLES TO DISK"]);
    let pid = proxy.pid();
    operator.ok("PROXYSQL RESTART");
    wait_starts(&proxy, 2);
    assert_eq!(proxy.pid(), pid);
    assert!(proxy.exit_status().is_none(), "the same process");
    let mut operator = Operator::of(&proxy);
    assert_eq!(operator.row("SELECT @@mysql-threads"), "3");
    assert_eq!(get(&mut proxy.connect_app().unwrap(), WHO), "a");
}

/// Options that hold for one start do not undo a configuration that was saved since.
#[test]
fn a_restart_forgets_what_held_for_one_start() {
    for args in [&["--initial"][..], &["--reload"], &["--no-start"], &["--initial", "-n"]] {
        let mut proxy = before_a().start().unwrap();
        wait_starts(&proxy, 1);
        proxy.start_again(args).unwrap();
        wait_starts(&proxy, 2);
        let mut operator = Operator::of(&proxy);
        operator.all(&[
            "DELETE FROM mysql_users",
            "INSERT INTO mysql_users (username, password) VALUES ('saved', 'p')",
            "LOAD MYSQL USERS TO RUNTIME",
            "SAVE MYSQL USERS TO DISK",
        ]);
        operator.ok("PROXYSQL RESTART");
        wait_starts(&proxy, 3);
        let mut operator = Operator::of(&proxy);
        assert_eq!(operator.rows("SELECT DISTINCT username FROM runtime_mysql_users"), ["saved"], "{args:?}");
        wait::until("clients to be let in", LIMIT, || Client::connect(&proxy.options("saved", "p")).ok()).unwrap();
    }
}

/// A newer program at the same place is what starts; without any, nothing ends.
#[test]
fn a_restart_after_the_program_was_replaced() {
    let built = lab::tidegate::find_program().unwrap();
    let program = built.with_file_name(format!("tidegate-replaced-{}", std::process::id()));
    std::fs::hard_link(&built, &program).unwrap();
    let proxy = before_a().program(&program).start().unwrap();
    std::fs::remove_file(&program).unwrap();
    let mut operator = Operator::of(&proxy);
    let said = operator.refused("PROXYSQL RESTART");
    assert!(said.contains("tidegate-replaced") && said.contains("no longer exists"), "{said}");
    std::fs::hard_link(&built, &program).unwrap();
    operator.ok("PROXYSQL RESTART");
    wait_starts(&proxy, 2);
    std::fs::remove_file(&program).unwrap();
    assert_eq!(get(&mut proxy.connect_app().unwrap(), WHO), "a");
}

/// Occupies an address, so that the proxy cannot listen there.
fn take(address: &str) -> std::net::TcpListener {
    wait::until("the address to be free", LIMIT, || std::net::TcpListener::bind(address).ok()).unwrap()
}

#[test]
fn a_resume_tells_of_a_listener_that_is_not_open() {
    let proxy = before_a().start().unwrap();
    let mut operator = Operator::of(&proxy);
    operator.ok("PROXYSQL PAUSE");
    let taken = take(&proxy.address());
    for _ in 0..2 {
        let why = operator.refused("PROXYSQL RESUME");
        assert!(why.contains(&format!("cannot listen on {}: ", proxy.address())) && why.contains("the proxy keeps trying"), "{why}");
    }
    // It is tried five times a second.
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(proxy.log().matches("cannot listen on").count(), 1, "{}", proxy.log());
    drop(taken);
    wait_served(&proxy);
    assert!(operator.refused("PROXYSQL RESUME").contains("the proxy is not paused"));
}

#[test]
fn a_restart_that_would_fail_is_refused() {
    let proxy = before_a().start().unwrap();
    let mut operator = Operator::of(&proxy);
    let mut client = proxy.connect_app().unwrap();
    client.run("BEGIN").unwrap();
    let mut refused = |why: &str| {
        let said = operator.refused("PROXYSQL RESTART");
        assert!(said.contains("the proxy would not start again: ") && said.contains(why), "{why}: {said}");
    };
    // A certificate without its key.
    let key = proxy.dir().join("proxysql-key.pem");
    let kept = proxy.dir().join("kept.pem");
    std::fs::rename(&key, &kept).unwrap();
    refused("TLS: ");
    std::fs::rename(&kept, &key).unwrap();
    // A file that cannot be read counts at no start before it is looked at.
    let file = std::fs::read_to_string(proxy.config_file()).unwrap();
    std::fs::write(proxy.config_file(), "mysql_servers = (").unwrap();
    refused("is not usable");
    std::fs::write(proxy.config_file(), file).unwrap();
    // A database with a fault, and one that is none.
    let database = proxy.dir().join("proxysql.db");
    let good = std::fs::read(&database).unwrap();
    rusqlite::Connection::open(&database).unwrap().execute("UPDATE mysql_servers SET hostname=''", []).unwrap();
    refused("proxysql.db: mysql_servers, hostgroup_id=0");
    std::fs::write(&database, "no database, and long enough to be looked at".repeat(100)).unwrap();
    refused("proxysql.db: file is not a database");
    std::fs::write(&database, good).unwrap();
    // Addresses that are already taken, for clients and for administrators.
    let taken = take("127.0.0.1:0");
    let taken = taken.local_addr().unwrap();
    let mut operator = Operator::of(&proxy);
    for variable in ["mysql-interfaces", "admin-mysql_ifaces"] {
        let was = operator.row(&format!("SELECT variable_value FROM disk.global_variables WHERE variable_name='{variable}'"));
        let put = |value: &str| format!("UPDATE disk.global_variables SET variable_value='{value}' WHERE variable_name='{variable}'");
        operator.ok(&put(&taken.to_string()));
        let said = operator.refused("PROXYSQL RESTART");
        assert!(said.contains(&format!("cannot listen on {taken}: ")), "{said}");
        operator.ok(&put(&was));
    }
    // Nothing has ended, and now it starts again.
    assert_eq!(get(&mut client, WHO), "a");
    client.run("COMMIT").unwrap();
    drop(client);
    operator.ok("PROXYSQL RESTART");
    wait_starts(&proxy, 2);
}

#[test]
fn what_waits_for_the_next_start_is_told_by_each_load() {
    let proxy = before_a().start().unwrap();
    let mut operator = Operator::of(&proxy);
    let mut load = |threads: &str, module: &str| {
        operator.ok(&format!("SET mysql-threads={threads}"));
        let told = operator.ok(&format!("LOAD MYSQL {module} TO RUNTIME")).info;
        told.contains(&format!("mysql-threads: '{threads}' takes effect at the next start; until then '2' is in force"))
    };
    assert!(load("4", "VARIABLES"));
    assert!(load("4", "VARIABLES"), "it waits still");
    assert!(!load("4", "USERS"));
    assert!(!load("2", "VARIABLES"), "as it runs");
    operator.ok("SET mysql-eventslog_filename='/nonexistent/dir/q'");
    let told = operator.ok("LOAD MYSQL VARIABLES TO RUNTIME").info;
    assert!(told.contains("mysql-eventslog_filename: directory /nonexistent/dir does not exist"), "{told}");
}

/// An image's start script for ProxySQL starts this program; what means nothing here is told, and a restart keeps the name.
#[test]
fn proxysqls_command_line_starts() {
    let link = std::env::temp_dir().join(format!("tidegate-by-name-{}", std::process::id()));
    std::fs::create_dir_all(&link).unwrap();
    let name = link.join("proxysql");
    std::os::unix::fs::symlink(lab::tidegate::find_program().unwrap(), &name).unwrap();
    let mut proxy = before_a().program(&name).start().unwrap();
    // Its last line is written a moment after its ports are open.
    wait_starts(&proxy, 1);
    let at = proxy.log().len() as u64;
    proxy.start_again(&["--idle-threads", "--no-version-check", "-e", "-M", "-S", "/tmp/admin.sock"]).unwrap();
    let log = proxy.log_since(at).0;
    for option in ["--idle-threads", "--no-version-check", "--exit-on-error", "--no-monitor", "--admin-socket"] {
        assert!(log.contains(&format!("{option} is ignored: ")), "{option}: {log}");
    }
    wait_starts(&proxy, 2);
    Operator::of(&proxy).ok("PROXYSQL RESTART");
    wait_starts(&proxy, 3);
    let command = std::fs::read(format!("/proc/{}/cmdline", proxy.pid())).unwrap();
    assert!(command.starts_with(name.as_os_str().as_encoded_bytes()), "{}", String::from_utf8_lossy(&command));
    std::fs::remove_dir_all(&link).unwrap();
}

/// With scripts forbidden on the command line, an administrator's password lets nobody run a program, also after PROXYSQL RESTART.
#[test]
fn scripts_can_be_forbidden() {
    let mark = std::env::temp_dir().join(format!("tidegate-{}-forbidden", std::process::id()));
    let proxy = Tidegate::builder().variable("threads", 1).arg("--no-scripts").start().unwrap();
    for start in 1..=2 {
        wait::until("it to be ready", LIMIT, || (proxy.log().matches("is ready").count() == start).then_some(())).unwrap();
        let mut admin = proxy.admin().unwrap();
        let job = "REPLACE INTO scheduler (id, active, interval_ms, filename, arg1) VALUES (1, 1, 100, '/bin/touch', '";
        let job = format!("{job}{}')", mark.display());
        for sql in [&*job, "LOAD SCHEDULER TO RUNTIME", "SAVE SCHEDULER TO DISK"] {
            admin.run(sql).unwrap().check().unwrap();
        }
        let told = "SELECT COUNT(*) FROM stats_tidegate_scheduler WHERE id=1 AND last_output LIKE '%--no-scripts%'";
        wait::until("it to be told", LIMIT, || (admin.run(told).ok()?.scalar().ok()?? == "1").then_some(())).unwrap();
        assert!(!mark.exists());
        admin.run("PROXYSQL RESTART").unwrap();
    }
}
