//! LOAD while clients work: a new server takes traffic, a removed one loses it, and an open transaction notices nothing.

use std::thread;

use lab::{Client, Tidegate};

use crate::bed::{Operator, WHO, alone, before_a, code, get, insert_server, new_server, servers, wait_connections};

/// Opens sessions in transactions until one runs on server `name`; returns that session and the others.
fn until_one_is_on(proxy: &Tidegate, name: &str) -> Vec<Client> {
    let mut sessions = Vec::new();
    for _ in 0..60 {
        let mut client = proxy.connect_app().unwrap();
        client.run("BEGIN").unwrap();
        let found = get(&mut client, WHO);
        sessions.push(client);
        if found == name {
            return sessions;
        }
    }
    panic!("{name} takes no traffic");
}

#[test]
fn a_new_server_takes_traffic_and_a_removed_one_leaves() {
    let [a, b, _] = servers();
    let proxy = before_a().start().unwrap();
    let mut operator = Operator::of(&proxy);
    let mut open = proxy.connect_app().unwrap();
    open.run("BEGIN").unwrap();
    assert_eq!(get(&mut open, WHO), "a");
    operator.all(&[&insert_server(0, b), "LOAD MYSQL SERVERS TO RUNTIME"]);
    drop(until_one_is_on(&proxy, "b"));

    operator.all(&[&format!("DELETE FROM mysql_servers WHERE port={}", a.port()), "LOAD MYSQL SERVERS TO RUNTIME"]);
    let mut client = proxy.connect_app().unwrap();
    for _ in 0..20 {
        assert_eq!(get(&mut client, WHO), "b");
    }
    assert_eq!(get(&mut open, WHO), "a", "a transaction stays where it is");
    let removed = format!("SELECT status FROM runtime_mysql_servers WHERE port={}", a.port());
    assert_eq!(operator.rows(&removed), ["OFFLINE_HARD"], "as long as it has connections");
    open.run("COMMIT").unwrap();
    assert_eq!(get(&mut open, WHO), "b");
    operator.until(&removed, &[]);
}

#[test]
fn offline_hard_ends_transactions_and_says_why() {
    let proxy = before_a().start().unwrap();
    let mut operator = Operator::of(&proxy);
    let mut open = proxy.connect_app().unwrap();
    open.run("BEGIN").unwrap();
    assert_eq!(get(&mut open, WHO), "a");
    operator.all(&["UPDATE mysql_servers SET status='OFFLINE_HARD'", "LOAD MYSQL SERVERS TO RUNTIME"]);
    let told = open.query(WHO).unwrap();
    let told = told.err().unwrap();
    assert_eq!(told.code, lab::SERVER_LOST);
    assert!(told.message.contains("OFFLINE_HARD") && told.message.contains("transaction"), "{}", told.message);
}

/// OFFLINE_SOFT: the server gets no new work, and open transactions may finish.
#[test]
fn a_server_is_drained() {
    let (old, [_, b, _]) = (new_server(), servers());
    old.sql("CREATE TABLE test.who (name VARCHAR(9))").unwrap();
    old.sql("INSERT INTO test.who VALUES ('old')").unwrap();
    let proxy = Tidegate::builder().backend(0, &old).app_user().variable("threads", 2).start().unwrap();
    let mut operator = Operator::of(&proxy);
    let mut open = proxy.connect_app().unwrap();
    open.run("BEGIN").unwrap();
    assert_eq!(get(&mut open, WHO), "old");
    let mut idle: Vec<_> = (0..3).map(|_| proxy.connect_app().unwrap()).collect();
    for client in &mut idle {
        assert_eq!(get(client, WHO), "old");
    }
    let status = |status: &str| format!("UPDATE mysql_servers SET status='{status}' WHERE port={}", old.port());
    operator.all(&[&insert_server(0, b), &status("OFFLINE_SOFT"), "LOAD MYSQL SERVERS TO RUNTIME"]);
    for client in &mut idle {
        assert_eq!(get(client, WHO), "b");
    }
    wait_connections(&old, 1);
    let shown = format!("SELECT status FROM runtime_mysql_servers WHERE port={}", old.port());
    assert_eq!(operator.rows(&shown), ["OFFLINE_SOFT"]);
    assert_eq!(get(&mut open, WHO), "old");
    open.run("COMMIT").unwrap();
    wait_connections(&old, 0);
    assert_eq!(get(&mut open, WHO), "b");
    operator.all(&[&status("ONLINE"), "LOAD MYSQL SERVERS TO RUNTIME"]);
    drop(until_one_is_on(&proxy, "old"));
}

#[test]
fn a_raised_limit_of_connections_holds() {
    limits(&[2, 4]);
}

#[test]
fn a_lowered_limit_of_connections_holds() {
    limits(&[4, 2]);
}

/// Each limit is loaded, and then reached and kept by clients that all want a connection at once.
fn limits(limits: &[u32]) {
    let server = new_server();
    let proxy = Tidegate::builder()
        .server_with(0, server.host(), server.port(), &[("max_connections", 2.into())])
        .app_user()
        .variable("threads", 2)
        .variable("connect_timeout_server_max", 60_000)
        .start()
        .unwrap();
    let mut operator = Operator::of(&proxy);
    let mut load = |limit: u32| {
        operator.all(&[&format!("UPDATE mysql_servers SET max_connections={limit}"), "LOAD MYSQL SERVERS TO RUNTIME"]);
    };
    let busy = || {
        let mut client = proxy.connect_app().unwrap();
        client.send_query("SELECT SLEEP(0.3)").unwrap();
        client
    };
    let together = |limit: u64| {
        let mut clients: Vec<_> = (0..8).map(|_| busy()).collect();
        let mut most = 0;
        let mut root = server.root().unwrap();
        thread::scope(|scope| {
            let readers: Vec<_> = clients.iter_mut().map(|c| scope.spawn(|| c.recv_reply(lab::client::Encoding::Text).unwrap())).collect();
            while readers.iter().any(|reader| !reader.is_finished()) {
                let sql = "SELECT COUNT(*) FROM information_schema.processlist WHERE user='app' AND info LIKE 'SELECT SLEEP%'";
                most = most.max(get(&mut root, sql).parse::<u64>().unwrap());
            }
        });
        assert_eq!(most, limit);
    };
    for limit in limits {
        load(*limit);
        together(u64::from(*limit));
    }
}

#[test]
fn users_come_and_go() {
    let [_, b, _] = servers();
    let proxy = before_a().backend(1, b).start().unwrap();
    let mut operator = Operator::of(&proxy);
    let login = |user: &str, password: &str| Client::connect(&proxy.options(user, password).database("test"));
    // Both servers know `empty`: a user without a password.
    assert_eq!(code(&login("empty", "")), 1045);
    operator.ok("INSERT INTO mysql_users (username, password, default_hostgroup) VALUES ('empty', '', 1)");
    assert_eq!(code(&login("empty", "")), 1045, "not loaded yet");
    operator.ok("LOAD MYSQL USERS TO RUNTIME");
    let mut empty = login("empty", "").unwrap();
    assert_eq!(get(&mut empty, "SELECT 1"), "1");

    operator.all(&["UPDATE mysql_users SET default_hostgroup=1 WHERE username='app'", "LOAD MYSQL USERS TO RUNTIME"]);
    let mut moved = login("app", "app-pass").unwrap();
    assert_eq!(get(&mut moved, WHO), "b");
    operator.all(&["UPDATE mysql_users SET max_connections=1 WHERE username='app'", "LOAD MYSQL USERS TO RUNTIME"]);
    assert_eq!(code(&login("app", "app-pass")), 1226);
    operator.all(&["UPDATE mysql_users SET max_connections=10, active=0 WHERE username='app'", "LOAD MYSQL USERS TO RUNTIME"]);
    assert_eq!(code(&login("app", "app-pass")), 1045, "not active");
    operator.all(&["UPDATE mysql_users SET active=1, password='other' WHERE username='app'", "LOAD MYSQL USERS TO RUNTIME"]);
    assert_eq!(code(&login("app", "app-pass")), 1045, "another password");
    operator.all(&["DELETE FROM mysql_users WHERE username='empty'", "LOAD MYSQL USERS TO RUNTIME"]);
    assert_eq!(code(&login("empty", "")), 1045, "removed");
}

#[test]
fn variables_hold_at_once() {
    let proxy = before_a().start().unwrap();
    let mut operator = Operator::of(&proxy);
    let mut client = proxy.connect_app().unwrap();
    assert_eq!(get(&mut client, "SELECT SLEEP(0.01)"), "0");
    operator.all(&["SET mysql-default_query_timeout=1000", "SET mysql-max_connections=1", "LOAD MYSQL VARIABLES TO RUNTIME"]);
    assert_ne!(client.query("SELECT SLEEP(30)").unwrap().scalar().ok().flatten().as_deref(), Some("0"), "was stopped");
    assert_eq!(code(&proxy.connect_app()), 1040);
    operator.all(&["SET mysql-max_connections=100", "LOAD MYSQL VARIABLES TO RUNTIME"]);
    drop(proxy.connect_app().unwrap());
    operator.ok("SET mysql-threads=3");
    let info = operator.ok("LOAD MYSQL VARIABLES TO RUNTIME").info;
    assert!(info.contains("mysql-threads"), "{info}");
}

#[test]
fn a_transaction_survives_every_load() {
    let proxy = before_a().start().unwrap();
    let mut operator = Operator::of(&proxy);
    servers()[0].sql("CREATE OR REPLACE TABLE test.survives (n INT)").unwrap();
    let mut client = proxy.connect_app().unwrap();
    client.run("BEGIN").unwrap();
    let modules = ["MYSQL SERVERS", "MYSQL USERS", "MYSQL VARIABLES", "MYSQL QUERY RULES", "ADMIN VARIABLES", "MYSQL FIREWALL"];
    for module in modules {
        client.run("INSERT INTO survives VALUES (1)").unwrap();
        operator.ok(&format!("LOAD {module} TO RUNTIME"));
    }
    client.run("INSERT INTO survives VALUES (1)").unwrap();
    operator.ok("CONFIG APPLY");
    assert_eq!(get(&mut client, "SELECT COUNT(*) FROM survives"), "7");
    assert_eq!(servers()[0].scalar("SELECT COUNT(*) FROM test.survives").unwrap().as_deref(), Some("0"));
    client.run("ROLLBACK").unwrap();
    assert_eq!(get(&mut client, "SELECT COUNT(*) FROM survives"), "0");
}

/// Clients that never pause, through a hundred loads of two configurations.
#[test]
fn loads_lose_no_statement() {
    let [a, b, _] = servers();
    let proxy = before_a().start().unwrap();
    let mut operator = Operator::of(&proxy);
    let done = std::sync::atomic::AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = proxy.connect_app().unwrap();
                    let (mut seen, mut count) = (std::collections::BTreeSet::new(), 0);
                    while !done.load(relaxed) {
                        seen.insert(get(&mut client, WHO));
                        count += 1;
                    }
                    (seen, count)
                })
            })
            .collect();
        for round in 0..100 {
            let server = [a, b][round % 2];
            operator.all(&["DELETE FROM mysql_servers", &insert_server(0, server), "LOAD MYSQL SERVERS TO RUNTIME"]);
        }
        done.store(true, relaxed);
        for client in clients {
            let (seen, count) = client.join().unwrap();
            assert!(count > 0 && seen.iter().all(|name| ["a", "b"].contains(&name.as_str())), "{count} {seen:?}");
        }
    });
    operator.until("SELECT port FROM runtime_mysql_servers", &[&b.port().to_string()]);
}

/// Which certificates clients are shown, and whether the last ones that were put there are in use.
#[test]
fn certificates_are_told() {
    let proxy = alone().start().unwrap();
    let mut operator = Operator::of(&proxy);
    let load =
        "SELECT Variable_Value FROM stats_proxysql_global WHERE Variable_Name IN ('TLS_Load_Count', 'TLS_Last_Load_Result') ORDER BY 1";
    assert_eq!(operator.rows(load), ["1", "SUCCESS"]);
    let shown = "SELECT cert_type, file_path, days_until_expiry > 3600, not_after > not_before, loaded_at > 0 FROM stats_tls_certificates";
    let file = |name: &str| proxy.dir().join(name).display().to_string();
    let both = [format!("server|{}|1|1|1", file("proxysql-cert.pem")), format!("ca|{}|1|1|1", file("proxysql-ca.pem"))];
    assert_eq!(operator.rows(shown), both);
    let fingerprints = "SELECT sha256_fingerprint FROM stats_tls_certificates";
    let before = operator.rows(fingerprints);
    std::fs::write(file("proxysql-cert.pem"), "none").unwrap();
    operator.refused("PROXYSQL RELOAD TLS");
    assert_eq!((operator.rows(load), operator.rows(fingerprints)), (vec!["1".to_owned(), "FAILED".to_owned()], before.clone()));
    for name in ["proxysql-cert.pem", "proxysql-ca.pem", "proxysql-key.pem"] {
        std::fs::remove_file(file(name)).unwrap();
    }
    operator.ok("PROXYSQL RELOAD TLS");
    assert_eq!(operator.rows(load), ["2", "SUCCESS"]);
    assert_ne!(operator.rows(fingerprints), before);
    operator.all(&["SET mysql-have_ssl='false'", "LOAD MYSQL VARIABLES TO RUNTIME"]);
    assert_eq!(operator.rows(shown), Vec::<String>::new());
}
