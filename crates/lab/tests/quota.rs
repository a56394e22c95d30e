//! The limit of a user's connections in a hostgroup: it holds over all workers, sessions wait in order, and other users do not wait.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests may panic

mod common;

use common::{LIMIT, Peer};
use lab::client::Encoding;
use lab::tidegate::{Builder, Setting};
use lab::{Client, Flavor, Options, Server, Tidegate, wait};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const WORKERS: i64 = 3;
const APP: &str = "SELECT COUNT(*) FROM information_schema.processlist WHERE user='app'";

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start(Flavor::Mariadb, &Options::new()).unwrap())
}

/// `app` with these attributes, and `empty` without a limit.
fn proxy(attributes: &str) -> Builder {
    let attributes: [(&str, Setting); 1] = [("attributes", attributes.into())];
    let builder = Tidegate::builder().backend(0, server()).variable("threads", WORKERS).user_with("app", "app-pass", 0, &attributes);
    builder.user("empty", "", 0)
}

fn backends_of_app() -> u32 {
    server().root().unwrap().scalar(APP).unwrap().unwrap().parse().unwrap()
}

/// The tests count the same user's connections on one server: one at a time.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    wait::until("nobody of the test before is left", LIMIT, || (backends_of_app() == 0).then_some(())).unwrap();
    turn
}

#[test]
fn a_user_never_has_more_than_its_limit_on_all_workers_together() {
    let _turn = alone();
    let proxy = proxy(r#"{"max_backend_connections_per_user": 2}"#).start().unwrap();
    let done = AtomicBool::new(false);
    let most = thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Ordering::Acquire) {
                most = most.max(backends_of_app());
            }
            most
        });
        let clients: Vec<_> = (0..12)
            .map(|n| {
                let proxy = &proxy;
                // Two kinds of connections: an idle one of one kind must make room for the other.
                let encoding = [Encoding::Text, Encoding::Binary][n % 2];
                scope.spawn(move || {
                    let mut peer = Peer::through(proxy, encoding);
                    for _ in 0..20 {
                        peer.exec("BEGIN");
                        assert_eq!(peer.get("SELECT 1 + SLEEP(0.002)"), "1");
                        peer.exec("COMMIT");
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().unwrap();
        }
        done.store(true, Ordering::Release);
        watcher.join().unwrap()
    });
    assert_eq!(most, 2, "as many as it may, and no more");
}

#[test]
fn connections_of_another_kind_make_room() {
    let _turn = alone();
    let proxy = proxy(r#"{"max_backend_connections_per_user": 1, "comment_directives": true}"#).start().unwrap();
    let options = proxy.options("app", "app-pass").timeout(LIMIT);
    let found_rows = options.clone().with(wire::Capabilities::FOUND_ROWS);
    let mut clients: Vec<Client> = [&options, &found_rows, &options, &found_rows].map(|options| Client::connect(options).unwrap()).into();
    for round in 0..5 {
        for client in &mut clients {
            assert_eq!(client.scalar("SELECT 1").unwrap().unwrap(), "1", "round {round}");
        }
    }
    let id = |client: &mut Client, sql: &str| client.scalar(sql).unwrap().unwrap().parse::<u64>().unwrap();
    let before = id(&mut clients[0], "SELECT id FROM information_schema.processlist WHERE info LIKE '%kind%'");
    let sql = "SELECT /* create_new_connection=1 */ id FROM information_schema.processlist WHERE info LIKE '%kind%'";
    assert!(id(&mut clients[0], sql) > before);
    // The server lists one that the proxy has closed until it has read that.
    wait::until("the one before to be gone", LIMIT, || (backends_of_app() == 1).then_some(())).unwrap();
}

#[test]
fn the_error_says_so_and_nobody_else_waits() {
    let _turn = alone();
    let proxy = proxy(r#"{"max_backend_connections_per_user": 1}"#).variable("connect_timeout_server_max", 300).start().unwrap();
    // One on each worker.
    let mut holders: Vec<Client> = (0..WORKERS).map(|_| proxy.connect_app().unwrap()).collect();
    holders[0].run("BEGIN").unwrap();
    for waiter in &mut holders[1..] {
        let error = waiter.query("SELECT 1").unwrap().err().cloned().unwrap();
        assert_eq!(error.code, 9001);
        let expected = "all 1 connections of user 'app' (max_backend_connections_per_user) are in use";
        assert!(error.message.contains(expected), "{}", error.message);
    }
    for waiter in &mut holders[1..] {
        waiter.send_query("SELECT 1").unwrap();
    }
    let mut others: Vec<Client> = (0..WORKERS * 2).map(|_| Client::connect(&proxy.options("empty", "")).unwrap()).collect();
    for other in &mut others {
        // Sessions that wait at their limit would time out first.
        assert_eq!(other.scalar("SELECT 1").unwrap().unwrap(), "1");
    }
    holders[0].run("COMMIT").unwrap();
}

#[test]
fn who_waits_is_served_in_order() {
    let _turn = alone();
    let proxy = proxy(r#"{"max_backend_connections_per_user": 1}"#).start().unwrap();
    let mut admin = wait::until("the admin port", LIMIT, || proxy.admin().ok()).unwrap();
    server().sql("CREATE OR REPLACE TABLE test.served (place INT PRIMARY KEY AUTO_INCREMENT, who INT)").unwrap();
    let mut holder = Peer::through(&proxy, Encoding::Text);
    holder.exec("BEGIN");
    holder.get("SELECT 1");
    let mut waiters: Vec<Client> = Vec::new();
    for who in 0..6 {
        let mut client = Peer::through(&proxy, Encoding::Text).into_client();
        client.send_query(format!("INSERT INTO test.served (who) VALUES ({who})")).unwrap();
        waiters.push(client);
        let waiting = (who + 1).to_string();
        let sql = "SELECT SUM(waiters) FROM stats_tidegate_waits";
        wait::until("it waits", LIMIT, || (admin.scalar(sql).unwrap()? == waiting).then_some(())).unwrap();
        // Among workers the order is kept to within a millisecond.
        thread::sleep(std::time::Duration::from_millis(3));
    }
    holder.exec("COMMIT");
    for waiter in &mut waiters {
        waiter.recv_reply(Encoding::Text).unwrap().check().unwrap();
    }
    let order = server().root().unwrap().scalar("SELECT GROUP_CONCAT(who ORDER BY place) FROM test.served").unwrap().unwrap();
    assert_eq!(order, "0,1,2,3,4,5");
}

#[test]
fn the_nearest_limit_holds_and_is_shown() {
    let _turn = alone();
    let proxy = proxy("").variable("max_backend_connections_per_user", 50).start().unwrap();
    let mut admin = wait::until("the admin port", LIMIT, || proxy.admin().ok()).unwrap();
    let mut shown = |statements: &[&str]| {
        for sql in statements {
            admin.run(sql).unwrap();
        }
        let all = admin.query("SHOW EFFECTIVE SETTINGS FOR USER app HOSTGROUP 0").unwrap().table().unwrap();
        let find = |name: &str| {
            let line = all.iter().find(|line| line[0].as_deref() == Some(name)).unwrap_or_else(|| panic!("no {name}"));
            format!("{} {}", line[1].as_deref().unwrap(), line[2].as_deref().unwrap())
        };
        [
            find("mysql-max_backend_connections_per_user"),
            find("mysql-throttle_connections_per_sec_to_hostgroup"),
            find("mysql-free_connections_pct"),
            find("mysql_users.max_connections"),
        ]
    };
    assert_eq!(shown(&[]), ["50 global", "1000000 global", "10 global", "10000 user"]);
    let of_hostgroup = [
        "INSERT INTO mysql_hostgroup_attributes (hostgroup_id, throttle_connections_per_sec, hostgroup_settings) \
         VALUES (0, 77, '{\"max_backend_connections_per_user\": 3}')",
        "LOAD MYSQL SERVERS TO RUNTIME",
    ];
    assert_eq!(shown(&of_hostgroup), ["3 hostgroup", "77 hostgroup", "10 hostgroup", "10000 user"]);
    let of_user = [
        "UPDATE mysql_users SET max_connections=20, attributes='{\"max_backend_connections_per_user\": 1}' WHERE username='app'",
        "LOAD MYSQL USERS TO RUNTIME",
    ];
    assert_eq!(shown(&of_user), ["1 user", "77 hostgroup", "10 hostgroup", "20 user"]);
    // It holds for the sessions that are there.
    let [mut one, mut other] = [(); 2].map(|()| Peer::through(&proxy, Encoding::Text));
    one.exec("BEGIN");
    one.get("SELECT 1");
    other.send_query("SELECT 1").unwrap();
    let waiters = "SELECT SUM(waiters) FROM stats_tidegate_waits";
    wait::until("the other one waits", LIMIT, || (admin.scalar(waiters).unwrap()? == "1").then_some(())).unwrap();
    one.exec("COMMIT");
    other.recv_reply(Encoding::Text).unwrap().check().unwrap();
}

/// As many as the server lets the user have is no reason to fail: one of these will be free.
#[test]
fn who_meets_a_limit_of_the_server_waits() {
    for flavor in [Flavor::Mariadb, Flavor::Mysql] {
        let server = Server::start(flavor, &Options::new()).unwrap();
        server.sql("ALTER USER app WITH MAX_USER_CONNECTIONS 2").unwrap();
        let builder = Tidegate::builder().backend(0, &server).variable("threads", WORKERS).app_user().user("empty", "", 0);
        let proxy = builder.start().unwrap();
        thread::scope(|scope| {
            for n in 0..8 {
                // Two kinds of connections.
                let more = [wire::Capabilities::default(), wire::Capabilities::FOUND_ROWS][n % 2];
                let options = proxy.options("app", "app-pass").timeout(LIMIT).with(more);
                scope.spawn(move || {
                    let mut client = Client::connect(&options).unwrap();
                    for _ in 0..5 {
                        let reply = client.query("SELECT SLEEP(0.05)").unwrap();
                        assert_eq!(reply.err(), None, "{flavor:?}");
                    }
                });
            }
        });
    }
}

#[test]
fn who_has_no_connection_at_a_limit_of_the_server_is_told_so_and_is_in_nobodys_way() {
    for (flavor, code) in [(Flavor::Mariadb, 1226), (Flavor::Mysql, 1226), (Flavor::Mariadb, 1203)] {
        let limited = Options::new().arg("--max-user-connections=1");
        let server = Server::start(flavor, &if code == 1203 { limited } else { Options::new() }).unwrap();
        if code == 1226 {
            server.sql("ALTER USER app WITH MAX_USER_CONNECTIONS 1").unwrap();
        }
        let other = Client::connect(&lab::ConnectOptions::tcp(server.address(), "app", "app-pass")).unwrap();
        let builder = Tidegate::builder().backend(0, &server).variable("threads", 1).app_user().user("empty", "", 0);
        let proxy = builder.variable("connect_timeout_server_max", 2000).start().unwrap();
        let mut app = Client::connect(&proxy.options("app", "app-pass").timeout(LIMIT)).unwrap();
        app.send_query("SELECT 1").unwrap();
        let mut admin = wait::until("the admin port", LIMIT, || proxy.admin().ok()).unwrap();
        let refused = "SELECT SUM(ConnERR) FROM stats_mysql_connection_pool";
        wait::until("it was refused", LIMIT, || (admin.scalar(refused).unwrap()? != "0").then_some(())).unwrap();
        let mut empty = Client::connect(&proxy.options("empty", "")).unwrap();
        assert_eq!(empty.scalar("SELECT 1").unwrap().unwrap(), "1", "another user does not wait");
        let error = app.recv_reply(Encoding::Text).unwrap().err().cloned().unwrap();
        assert_eq!(error.code, 9001, "{flavor:?}: {}", error.message);
        assert!(error.message.contains(&format!("ERROR {code}")), "{flavor:?}: {}", error.message);
        let refusals: u32 = admin.scalar(refused).unwrap().unwrap().parse().unwrap();
        assert!(refusals <= 10, "{refusals} logins in two seconds");
        other.quit().unwrap();
        app.run("SELECT 1").unwrap();
    }
}

/// A limit on one server is no reason to wait for it while another server has room.
#[test]
fn a_limit_of_one_server_is_not_the_others() {
    let [limited, other] = [(); 2].map(|()| Server::start(Flavor::Mariadb, &Options::new()).unwrap());
    limited.sql("ALTER USER app WITH MAX_USER_CONNECTIONS 1").unwrap();
    let _holder = Client::connect(&lab::ConnectOptions::tcp(limited.address(), "app", "app-pass")).unwrap();
    let weight: [(&str, Setting); 1] = [("weight", 100.into())];
    let builder = Tidegate::builder()
        .server_with(0, limited.host(), limited.port(), &weight)
        .backend(0, &other)
        .app_user()
        .variable("threads", WORKERS);
    let proxy = builder.variable("connect_timeout_server_max", 3000).start().unwrap();
    let asked_at_once: Vec<Client> = (0..20)
        .map(|_| {
            let mut client = Client::connect(&proxy.options("app", "app-pass").timeout(LIMIT)).unwrap();
            client.send_query("SELECT @@port, SLEEP(4)").unwrap();
            client
        })
        .collect();
    for mut client in asked_at_once {
        let reply = client.recv_reply(Encoding::Text).unwrap();
        assert_eq!(reply.table().unwrap()[0][0].as_deref(), Some(&*other.port().to_string()));
    }
}

/// Limits by the hour do not pass in any time that a client waits.
#[test]
fn a_limit_by_the_hour_is_told_at_once() {
    let server = Server::start(Flavor::Mariadb, &Options::new()).unwrap();
    server.sql("ALTER USER app WITH MAX_CONNECTIONS_PER_HOUR 1").unwrap();
    drop(Client::connect(&lab::ConnectOptions::tcp(server.address(), "app", "app-pass")).unwrap());
    let proxy = Tidegate::builder().backend(0, &server).app_user().variable("connect_timeout_server_max", 60_000).start().unwrap();
    let mut client = Client::connect(&proxy.options("app", "app-pass").timeout(LIMIT)).unwrap();
    let error = client.query("SELECT 1").unwrap().err().cloned().unwrap();
    assert_eq!(error.code, 1226, "{}", error.message);
}
