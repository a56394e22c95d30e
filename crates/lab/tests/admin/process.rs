//! What an operator does to the process: pause, resume, stop, restart, kill.

use lab::{Client, LabError, Tidegate, wait};

use crate::bed::{LIMIT, Operator, WHO, before_a, get};

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

#[test]
fn a_session_is_killed() {
    let proxy = before_a().start().unwrap();
    let mut operator = Operator::of(&proxy);
    let [mut one, mut two] = [(), ()].map(|()| proxy.connect_app().unwrap());
    one.run("BEGIN").unwrap();
    get(&mut one, WHO);
    let listed = operator.rows("SELECT SessionID FROM stats_mysql_processlist ORDER BY 1");
    assert_eq!(listed, [one.connection_id().to_string(), two.connection_id().to_string()]);
    operator.ok(&format!("KILL CONNECTION {}", one.connection_id()));
    wait::until("the session to end", LIMIT, || one.query("SELECT 1").map_or(true, |r| r.err().is_some()).then_some(())).unwrap();
    assert_eq!(get(&mut two, WHO), "a");
    operator.until("SELECT SessionID FROM stats_mysql_processlist", &[&two.connection_id().to_string()]);
    operator.refused(&format!("KILL CONNECTION {}", one.connection_id()));
    two.send_query("SELECT SLEEP(100)").unwrap();
    operator.until("SELECT COUNT(*) FROM stats_mysql_processlist WHERE info LIKE 'SELECT SLEEP%'", &["1"]);
    operator.ok(&format!("KILL {}", two.connection_id()));
    assert!(two.recv_reply(lab::client::Encoding::Text).map_or(true, |reply| reply.err().is_some()));
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

#[test]
fn a_restart_reads_what_was_saved() {
    let proxy = before_a().start().unwrap();
    let mut operator = Operator::of(&proxy);
    operator.all(&["SET mysql-threads=3", "LOAD MYSQL VARIABLES TO RUNTIME", "SAVE MYSQL VARIABLES TO DISK"]);
    let pid = proxy.pid();
    operator.ok("PROXYSQL RESTART");
    wait::until("the new process to be ready", LIMIT, || (proxy.log().matches("is ready").count() == 2).then_some(())).unwrap();
    assert_eq!(proxy.pid(), pid);
    assert!(proxy.exit_status().is_none(), "the same process");
    let mut operator = Operator::of(&proxy);
    assert_eq!(operator.row("SELECT @@mysql-threads"), "3");
    assert_eq!(get(&mut proxy.connect_app().unwrap(), WHO), "a");
}
