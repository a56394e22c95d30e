//! A new process takes the proxy's place while clients are connected: PROXYSQL UPGRADE.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;

use common::{LIMIT, server};
use lab::client::{Compression, Execution, Param, Prepared};
use lab::process::is_there;
use lab::replication::{Replication, follow_at};
use lab::tidegate::SOCKET;
use lab::{Client, ConnectOptions, Flavor, LabError, Options, Server, Tidegate, wait};
use rustix::process::{Pid, Signal};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Upgrades of one proxy, one after the other.
const TIMES: usize = 5;

fn scalar(client: &mut Client, sql: &str) -> String {
    client.scalar(sql).unwrap().unwrap_or_else(|| "NULL".to_owned())
}

/// How clients connect.
fn kinds(proxy: &Tidegate, flavor: Flavor) -> Vec<(&'static str, ConnectOptions)> {
    let tcp = || proxy.options("app", "app-pass").database("test").timeout(LIMIT);
    let unix = ConnectOptions::unix(proxy.dir().join(SOCKET), "app", "app-pass").database("test").timeout(LIMIT);
    let mut kinds = vec![
        ("tcp", tcp()),
        ("unix", unix),
        ("zlib", tcp().compression(Compression::Zlib)),
        ("tls 1.3", tcp().tls()),
        ("tls 1.2", tcp().tls12()),
        ("tls and zlib", tcp().tls().compression(Compression::Zlib)),
    ];
    if flavor == Flavor::Mysql {
        kinds.push(("zstd", tcp().compression(Compression::Zstd(3))));
    }
    kinds
}

/// Checks that a client still has its state; the number is that of the upgrade.
type Look = Box<dyn FnMut(&mut Client, usize)>;

/// A client with one kind of state.
struct Kept {
    name: String,
    client: Client,
    id: String,
    look: Look,
}

fn query(sql: impl Into<String>, wanted: &str) -> Look {
    let (sql, wanted) = (sql.into(), wanted.to_owned());
    Box::new(move |client, _| assert_eq!(scalar(client, &sql), wanted, "{sql}"))
}

fn shown_warnings(client: &mut Client) -> String {
    format!("{:?}", client.run("SHOW WARNINGS").unwrap().table().unwrap())
}

/// Brings a client into a state; the text is the client's own.
type Begin = fn(&mut Client, &str) -> Look;

/// Every kind of state that a session may have.
const STATES: &[(&str, Begin)] = &[
    ("user variable", |client, own| {
        client.run(format!("SET @mine = '{own}'")).unwrap();
        query("SELECT @mine", own)
    }),
    ("set", |client, _| {
        client.run("SET sql_mode = 'ANSI_QUOTES', SESSION group_concat_max_len = 4321").unwrap();
        query("SELECT @@group_concat_max_len + \"n\" FROM (SELECT 1 AS \"n\") AS t", "4322")
    }),
    ("schema", |client, _| {
        client.run("USE information_schema").unwrap();
        query("SELECT DATABASE()", "information_schema")
    }),
    ("temporary table", |client, own| {
        client.run("CREATE TEMPORARY TABLE own (id VARCHAR(40))").unwrap();
        client.run(format!("INSERT INTO own VALUES ('{own}')")).unwrap();
        query("SELECT id FROM own", own)
    }),
    ("transaction", |client, own| {
        client.run("BEGIN").unwrap();
        client.run(format!("INSERT INTO kept VALUES ('{own}', 0)")).unwrap();
        let own = own.to_owned();
        Box::new(move |client, turn| {
            client.run(format!("UPDATE kept SET turn = turn + 1 WHERE own = '{own}'")).unwrap();
            assert_eq!(scalar(client, &format!("SELECT turn FROM kept WHERE own = '{own}'")), (turn + 1).to_string());
        })
    }),
    ("lock", |client, own| {
        let name = own.replace(' ', "_");
        assert_eq!(scalar(client, &format!("SELECT GET_LOCK('{name}', 0)")), "1");
        query(format!("SELECT IS_USED_LOCK('{name}') IS NOT NULL"), "1")
    }),
    ("insert id", |client, _| {
        client.run("INSERT INTO numbered VALUES ()").unwrap();
        let id = scalar(client, "SELECT LAST_INSERT_ID()");
        query("SELECT LAST_INSERT_ID()", &id)
    }),
    ("prepared statement", |client, own| {
        let statement = client.prepare("SELECT CONCAT(?, '-', CONNECTION_ID() > 0)").unwrap();
        let own = own.to_owned();
        Box::new(move |client, _| {
            let reply = client.execute(&statement, &[Param::Text(own.clone())]).unwrap();
            assert_eq!(reply.scalar().unwrap().unwrap(), format!("{own}-1"));
        })
    }),
    ("prepared in text", |client, own| {
        client.run(format!("PREPARE own FROM 'SELECT ''{own}'' AS own'")).unwrap();
        query("EXECUTE own", own)
    }),
    ("warnings", |client, _| {
        client.run("SELECT CAST('abc' AS SIGNED)").unwrap();
        let shown = shown_warnings(client);
        assert!(shown.contains("abc"), "{shown}");
        Box::new(move |client, _| assert_eq!(shown_warnings(client), shown))
    }),
    ("cursor", |client, _| {
        let statement = client.prepare("SELECT own FROM cursor_rows ORDER BY own").unwrap();
        let opened = client.execute_with(&statement, &[], Execution { cursor: true, ..Execution::default() }).unwrap();
        let columns = opened.rows().unwrap().columns.clone();
        Box::new(move |client, turn| {
            let row = client.fetch(&statement, &columns, 1).unwrap();
            assert_eq!(row.field(0, "own"), Some(format!("{turn:03}")));
        })
    }),
    ("long data", |client, own| {
        let statement = client.prepare("SELECT CONCAT(?, '')").unwrap();
        client.send_long_data(&statement, 0, own.as_bytes()).unwrap();
        let (mut statement, own): (Option<Prepared>, _) = (Some(statement), own.to_owned());
        Box::new(move |client, _| {
            let Some(statement) = statement.take() else { return };
            let reply = client.execute_with(&statement, &[Param::Long], Execution::default()).unwrap();
            assert_eq!(reply.scalar().unwrap().unwrap(), own);
        })
    }),
];

fn sessions_go_on(flavor: Flavor, use_ssl: i64) {
    let server = server(flavor);
    server.sql("DROP TABLE IF EXISTS test.kept, test.numbered, test.cursor_rows").unwrap();
    server.sql("CREATE TABLE test.kept (own VARCHAR(60) PRIMARY KEY, turn INT)").unwrap();
    server.sql("CREATE TABLE test.numbered (id INT AUTO_INCREMENT PRIMARY KEY)").unwrap();
    server.sql("CREATE TABLE test.cursor_rows (own CHAR(3) PRIMARY KEY)").unwrap();
    let rows: Vec<String> = (0..50).map(|n| format!("('{n:03}')")).collect();
    server.sql(&format!("INSERT INTO test.cursor_rows VALUES {}", rows.join(","))).unwrap();
    let own = [("max_connections", 300.into()), ("use_ssl", use_ssl.into())];
    let builder = Tidegate::builder().server_with(0, server.host(), server.port(), &own).app_user().variable("threads", 2).socket();
    let mut proxy = builder.start().unwrap();
    let mut kept = Vec::new();
    for (kind, options) in kinds(&proxy, flavor) {
        for (state, begin) in STATES {
            let name = format!("{kind} {state}");
            let mut client = Client::connect(&options).unwrap();
            let id = scalar(&mut client, "SELECT CONNECTION_ID()");
            let look = begin(&mut client, &name);
            kept.push(Kept { name, client, id, look });
        }
    }
    for turn in 0..TIMES {
        proxy.upgrade(None).unwrap();
        for Kept { name, client, look, .. } in &mut kept {
            eprintln!("upgrade {turn}: {name}");
            look(client, turn);
        }
    }
    for Kept { name, client, id, .. } in &mut kept {
        assert_eq!(scalar(client, "SELECT CONNECTION_ID()"), *id, "{name}");
        if name.contains("transaction") {
            client.run("COMMIT").unwrap();
            assert_eq!(scalar(client, &format!("SELECT turn FROM kept WHERE own = '{name}'")), TIMES.to_string());
        }
    }
}

/// Over servers' connections in clear, and under TLS.
#[test]
fn sessions_go_on_mariadb() {
    sessions_go_on(Flavor::Mariadb, 0);
    sessions_go_on(Flavor::Mariadb, 1);
}

#[test]
fn sessions_go_on_mysql() {
    sessions_go_on(Flavor::Mysql, 0);
    sessions_go_on(Flavor::Mysql, 1);
}

/// Work of the clients until they are told to stop: each adds one to its own row in transactions, and reads it back.
struct Load {
    stop: Arc<AtomicBool>,
    workers: Vec<JoinHandle<(u64, Duration)>>,
    comers: Vec<JoinHandle<u64>>,
}

impl Load {
    fn begin(proxy: &Tidegate, flavor: Flavor, server: &Server, clients: usize) -> Self {
        server.sql("DROP TABLE IF EXISTS test.counted").unwrap();
        server.sql("CREATE TABLE test.counted (own INT PRIMARY KEY, n INT)").unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let kinds = kinds(proxy, flavor);
        let workers = (0..clients).map(|own| {
            let (stop, options) = (Arc::clone(&stop), kinds[own % kinds.len()].1.clone());
            std::thread::spawn(move || work(&options, own, &stop))
        });
        let workers = workers.collect();
        let comers = (0..2).map(|n| {
            let (stop, options) = (Arc::clone(&stop), kinds[n * 3].1.clone());
            std::thread::spawn(move || {
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    let mut client = Client::connect(&options).unwrap();
                    assert_eq!(scalar(&mut client, "SELECT 1"), "1");
                    count += 1;
                }
                count
            })
        });
        let comers = comers.collect();
        Self { stop, workers, comers }
    }

    /// Stops the clients, none of which may have seen an error, and compares their counts with the rows of the server.
    fn end(self, server: &Server) {
        self.stop.store(true, Ordering::Relaxed);
        let came: u64 = self.comers.into_iter().map(|comer| comer.join().unwrap()).sum();
        let (mut longest, mut all) = (Vec::new(), 0);
        for (own, worker) in self.workers.into_iter().enumerate() {
            let (done, waited) = worker.join().unwrap();
            let mut direct = Client::connect(&ConnectOptions::app(server).database("test")).unwrap();
            assert_eq!(scalar(&mut direct, &format!("SELECT n FROM counted WHERE own = {own}")), done.to_string(), "client {own}");
            longest.push(waited);
            all += done;
        }
        longest.sort();
        let (median, most) = (longest[longest.len() / 2], longest[longest.len() - 1]);
        eprintln!("{all} transactions, {came} connects; longest wait for an answer: median of the clients {median:?}, most {most:?}");
        assert!(all > 0 && came > 0);
    }
}

/// Works until `stop`; returns the number of transactions, and the longest time that one statement took.
fn work(options: &ConnectOptions, own: usize, stop: &AtomicBool) -> (u64, Duration) {
    let mut client = Client::connect(options).unwrap();
    let id = scalar(&mut client, "SELECT CONNECTION_ID()");
    client.run(format!("INSERT INTO counted VALUES ({own}, 0)")).unwrap();
    let read = client.prepare("SELECT n FROM counted WHERE own = ?").unwrap();
    let (mut done, mut longest) = (0, Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        let steps = ["BEGIN".to_owned(), format!("UPDATE counted SET n = n + 1 WHERE own = {own}"), "COMMIT".to_owned()];
        for step in steps {
            let began = Instant::now();
            client.run(step).unwrap();
            longest = longest.max(began.elapsed());
        }
        done += 1;
        let began = Instant::now();
        let seen = client.execute(&read, &[Param::Int(own as i64)]).unwrap().scalar().unwrap();
        longest = longest.max(began.elapsed());
        assert_eq!(seen, Some(done.to_string()), "client {own}");
    }
    assert_eq!(scalar(&mut client, "SELECT CONNECTION_ID()"), id);
    (done, longest)
}

/// More than is asked for here: LAB_UPGRADE_CLIENTS, LAB_UPGRADE_TIMES, and LAB_UPGRADE_OTHER, a program to change to and back from.
fn asked(name: &str, usual: usize) -> usize {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

fn nobody_notices(flavor: Flavor) {
    let server = server(flavor);
    let limits = [("max_connections", 300.into())];
    let builder = Tidegate::builder().server_with(0, server.host(), server.port(), &limits).app_user().variable("threads", 2).socket();
    let mut proxy = builder.start().unwrap();
    let load = Load::begin(&proxy, flavor, server, asked("LAB_UPGRADE_CLIENTS", 20));
    let own = lab::tidegate::find_program().unwrap();
    let other = std::env::var_os("LAB_UPGRADE_OTHER").map_or_else(|| own.clone(), PathBuf::from);
    let mut took = Vec::new();
    for time in 0..asked("LAB_UPGRADE_TIMES", 10) {
        let began = Instant::now();
        proxy.upgrade(Some(if time % 2 == 0 { &other } else { &own })).unwrap();
        took.push(began.elapsed());
    }
    took.sort();
    eprintln!("an upgrade took {:?}, at most {:?}", took[took.len() / 2], took[took.len() - 1]);
    load.end(server);
}

lab::each!(nobody_notices);

/// A program of this text in the proxy's directory.
fn script(proxy: &Tidegate, name: &str, text: &str) -> PathBuf {
    let path = proxy.dir().join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Processes that this one has started.
fn children(pid: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let parent = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok()
    };
    all.filter(|child| parent(*child) == Some(pid)).collect()
}

#[test]
fn a_process_that_cannot_take_over_changes_nothing() {
    let server = server(Flavor::Mariadb);
    let builder = Tidegate::builder().backend(0, server).app_user().admin_variable("upgrade_timeout", 3000).variable("threads", 2);
    let mut proxy = builder.start().unwrap();
    let mut client = proxy.connect_app().unwrap();
    client.run("CREATE TEMPORARY TABLE own (id INT)").unwrap();
    let program = lab::tidegate::find_program().unwrap();
    let few = script(&proxy, "few", &format!("ulimit -n 12; exec {} \"$@\"", program.display()));
    let slow = script(&proxy, "slow", "exec sleep 60");
    let mute = script(&proxy, "mute", "exec sleep 0.1");
    let config = std::fs::read(proxy.config_file()).unwrap();
    let cases = [
        (PathBuf::from("relative"), "give an absolute path"),
        (proxy.dir().join("absent"), "No such file"),
        (proxy.config_file(), "Permission denied"),
        (PathBuf::from("/bin/false"), "ended before it was ready"),
        (mute, "ended before it was ready"),
        (slow, "was not ready within 3000 ms"),
        (few, "the new process may open 12 files"),
        (PathBuf::from("broken configuration"), "is not usable"),
    ];
    for (path, wanted) in cases {
        let is_broken = path.ends_with("broken configuration");
        let path = if is_broken { program.clone() } else { path };
        if is_broken {
            std::fs::write(proxy.config_file(), "mysql_variables = {").unwrap();
        }
        let error = proxy.admin().unwrap().run(format!("PROXYSQL UPGRADE '{}'", path.display())).unwrap_err().to_string();
        assert!(error.contains(wanted), "{}: {error}", path.display());
        assert!(children(proxy.pid()).is_empty(), "{wanted}: nothing is left of it");
        // Nothing is frozen, and everybody is served.
        let mut admin = proxy.admin().unwrap();
        admin.run("LOAD MYSQL VARIABLES TO RUNTIME").unwrap().ok().unwrap();
        client.run("INSERT INTO own VALUES (1)").unwrap().ok().unwrap();
        proxy.connect_app().unwrap();
    }
    std::fs::write(proxy.config_file(), config).unwrap();
    // A busy machine may take longer for it than the limit that `slow` was held to.
    let mut admin = proxy.admin().unwrap();
    for sql in ["SET admin-upgrade_timeout = 60000", "LOAD ADMIN VARIABLES TO RUNTIME"] {
        admin.run(sql).unwrap().ok().unwrap();
    }
    proxy.upgrade(None).unwrap();
    assert_eq!(scalar(&mut client, "SELECT COUNT(*) FROM own"), "8");
}

/// Works on after errors; returns the count of transactions. The server has the same count, or one more where a COMMIT had no answer.
fn endure(options: &ConnectOptions, own: usize, stop: &AtomicBool) -> u64 {
    let mut done: u64 = 0;
    while !stop.load(Ordering::Relaxed) {
        let attempt = |done: &mut u64| -> Result<(), LabError> {
            let mut client = Client::connect(options)?;
            let seen: u64 = client.scalar(format!("SELECT n FROM counted WHERE own = {own}"))?.map_or(0, |n| n.parse().unwrap());
            assert!(seen == *done || seen == *done + 1, "client {own}: {seen} after {done}");
            *done = seen;
            while !stop.load(Ordering::Relaxed) {
                client.run("BEGIN")?.check()?;
                client.run(format!("UPDATE counted SET n = n + 1 WHERE own = {own}"))?.check()?;
                client.run("COMMIT")?.check()?;
                *done += 1;
            }
            Ok(())
        };
        let _ = attempt(&mut done);
    }
    done
}

/// One of the two is killed at any moment: the other one serves, and no transaction is lost or done twice.
#[test]
fn whoever_dies_the_other_one_serves_on() {
    let server = server(Flavor::Mariadb);
    server.sql("DROP TABLE IF EXISTS test.counted").unwrap();
    server.sql("CREATE TABLE test.counted (own INT PRIMARY KEY, n INT)").unwrap();
    let own = [("max_connections", 100.into())];
    let builder = Tidegate::builder().server_with(0, server.host(), server.port(), &own).app_user().variable("threads", 2).socket();
    let mut proxy = builder.start().unwrap();
    let kinds = kinds(&proxy, Flavor::Mariadb);
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..12)
        .map(|own| {
            server.sql(&format!("INSERT INTO test.counted VALUES ({own}, 0)")).unwrap();
            let (stop, options) = (Arc::clone(&stop), kinds[own % kinds.len()].1.clone().timeout(Duration::from_secs(3)));
            std::thread::spawn(move || endure(&options, own, &stop))
        })
        .collect();
    let mut outcomes = [0; 3];
    for round in 0..24_u64 {
        let (before, kills_heir) = (proxy.pid(), round % 2 == 0);
        let mut admin = proxy.admin().unwrap();
        // The serving process may not have noticed yet that its heir is gone.
        wait::until("nothing to be frozen", LIMIT, || admin.run("LOAD MYSQL VARIABLES TO RUNTIME").ok()).unwrap();
        admin.send_query("PROXYSQL UPGRADE").unwrap();
        let heir = wait::until("the new process", LIMIT, || children(before).first().copied()).unwrap();
        // At any time of what takes about this long.
        std::thread::sleep(Duration::from_millis(round * 20));
        let killed = if kills_heir { heir } else { before };
        let _ = rustix::process::kill_process(Pid::from_raw(killed as i32).unwrap(), Signal::KILL);
        wait::until("the killed one to end", LIMIT, || (!is_there(killed)).then_some(())).unwrap();
        // A heir that had not taken over goes too, and a process that had handed all over.
        let serves = wait::until("who is left to serve, or nobody", LIMIT, || {
            let left: Vec<u32> = [before, heir].into_iter().filter(|pid| is_there(*pid)).collect();
            let serves = || proxy.connect_app().is_ok_and(|mut client| client.scalar("SELECT 1").is_ok());
            match left[..] {
                [] => Some(None),
                [one] if serves() => Some(Some(one)),
                _ => None,
            }
        });
        match serves.unwrap() {
            Some(pid) if pid == before => outcomes[0] += 1,
            Some(pid) => {
                outcomes[1] += 1;
                proxy.follow(&pid.to_string()).unwrap();
            }
            None => {
                outcomes[2] += 1;
                assert!(!kills_heir || !is_there(before));
                proxy.start_again(&[]).unwrap();
            }
        }
    }
    eprintln!("the old one served on {} times, the new one {}, nobody was left {}", outcomes[0], outcomes[1], outcomes[2]);
    stop.store(true, Ordering::Relaxed);
    for (own, client) in clients.into_iter().enumerate() {
        let done = client.join().unwrap();
        let mut direct = Client::connect(&ConnectOptions::app(server).database("test")).unwrap();
        let n: u64 = scalar(&mut direct, &format!("SELECT n FROM counted WHERE own = {own}")).parse().unwrap();
        assert!(n == done || n == done + 1, "client {own}: {n} after {done}");
    }
}

/// A session whose statement runs stays in the old process until it is answered: it counts in the new one, and KILL finds it.
#[test]
fn what_the_old_process_still_has_counts() {
    let server = server(Flavor::Mariadb);
    let builder = Tidegate::builder().backend(0, server).user_with("app", "app-pass", 0, &[("max_connections", 2.into())]);
    let mut proxy = builder.variable("threads", 2).variable("drain_timeout", 20_000).start().unwrap();
    let mut busy = proxy.connect_app().unwrap();
    let mut idle = proxy.connect_app().unwrap();
    let id = scalar(&mut busy, "SELECT CONNECTION_ID()");
    busy.send_query("SELECT SLEEP(15)").unwrap();
    let sleeps = || server.scalar("SELECT COUNT(*) FROM information_schema.processlist WHERE info = 'SELECT SLEEP(15)'").unwrap();
    wait::until("the statement to run", LIMIT, || (sleeps().as_deref() == Some("1")).then_some(())).unwrap();
    let answer = proxy.admin().unwrap().run("PROXYSQL UPGRADE").unwrap().ok().unwrap().info.clone();
    // The admin interface of the new one answers once that is in charge, which is then seen in its log.
    wait::until("the new process to be in charge", LIMIT, || proxy.log().contains("has taken over as process").then_some(())).unwrap();
    assert_eq!(scalar(&mut idle, "SELECT 1"), "1");
    let error = proxy.connect_app().unwrap_err().to_string();
    assert!(error.contains("max_user_connections"), "{error}");
    idle.run(format!("KILL QUERY {id}")).unwrap().ok().unwrap();
    // MariaDB answers a SLEEP that is killed with 1.
    let killed = busy.recv_reply(lab::client::Encoding::Text);
    assert!(sleeps().as_deref() == Some("0"), "{killed:?}");
    proxy.follow(&answer).unwrap();
    assert_eq!(scalar(&mut busy, "SELECT CONNECTION_ID()"), id);
    drop(busy);
    wait::until("its place to be free", LIMIT, || proxy.connect_app().ok()).unwrap();
}

/// SIGUSR2, and the command line.
#[test]
fn an_upgrade_can_be_asked_for_in_other_ways() {
    let server = server(Flavor::Mariadb);
    let mut proxy = Tidegate::builder().backend(0, server).app_user().variable("threads", 2).start().unwrap();
    let mut client = proxy.connect_app().unwrap();
    client.run("SET @own = 7").unwrap();
    proxy.signal(Signal::USR2);
    let heir = wait::until("the new process", LIMIT, || children(proxy.pid()).first().copied()).unwrap();
    proxy.follow(&heir.to_string()).unwrap();
    assert_eq!(scalar(&mut client, "SELECT @own"), "7");
    let program = lab::tidegate::find_program().unwrap();
    let upgrade = |args: &[&str]| std::process::Command::new(&program).arg("upgrade").args(args).output().unwrap();
    for by_pid in [true, false] {
        let pid = proxy.pid().to_string();
        let datadir = proxy.dir().display().to_string();
        let done = upgrade(&if by_pid { ["--pid", &pid] } else { ["--datadir", &datadir] });
        let text = String::from_utf8(done.stdout).unwrap();
        assert!(done.status.success(), "{text}{}", String::from_utf8_lossy(&done.stderr));
        proxy.follow(&text).unwrap();
        assert_eq!(scalar(&mut client, "SELECT @own"), "7");
    }
    let refused = upgrade(&["--pid", &proxy.pid().to_string(), "--binary", "/does/not/exist"]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("/does/not/exist"), "{refused:?}");
    let nobody = upgrade(&["--pid", "1"]);
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("not a Tidegate process of this machine"), "{nobody:?}");
    proxy.stop().unwrap();
}

/// A process that takes the name of another process's socket is not asked, and the death of a new process after its answer is reported.
#[test]
fn who_asks_for_an_upgrade_is_told_the_truth() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    use std::process::{Command, Stdio};
    let program = lab::tidegate::find_program().unwrap();
    let mut other = Command::new("sleep").arg("60").spawn().unwrap();
    let name = SocketAddr::from_abstract_name(format!("tidegate-{}", other.id())).unwrap();
    let impostor = UnixListener::bind_addr(&name).unwrap();
    let fooled = Command::new(&program).args(["upgrade", "--pid", &other.id().to_string()]).output().unwrap();
    let (mut asked, mut heard) = (impostor.accept().unwrap().0, Vec::new());
    std::io::Read::read_to_end(&mut asked, &mut heard).unwrap();
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(!fooled.status.success() && heard.is_empty(), "{fooled:?} {heard:?}");
    let said = String::from_utf8_lossy(&fooled.stderr);
    assert!(said.contains(&format!("process {} of user", std::process::id())), "{said}");

    let builder = Tidegate::builder().backend(0, server(Flavor::Mariadb)).app_user().variable("drain_timeout", 60_000);
    let proxy = builder.variable("threads", 2).start().unwrap();
    let mut busy = proxy.connect_app().unwrap();
    busy.send_query("SELECT SLEEP(20)").unwrap();
    let asks = Command::new(&program)
        .args(["upgrade", "--pid", &proxy.pid().to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let heir = wait::until("the new process", LIMIT, || children(proxy.pid()).first().copied()).unwrap();
    wait::until("the new process to be in charge", LIMIT, || proxy.log().contains("has taken over as process").then_some(())).unwrap();
    rustix::process::kill_process(Pid::from_raw(heir as i32).unwrap(), Signal::KILL).unwrap();
    let told = asks.wait_with_output().unwrap();
    assert!(!told.status.success(), "{told:?}");
    assert!(String::from_utf8_lossy(&told.stderr).contains("this one keeps serving"), "{told:?}");
    wait::until("the old one to serve", LIMIT, || proxy.connect_app().ok()).unwrap();
}

/// Configurations that are loaded and not saved, and edits in memory, move to the new process, as do a pause and orders.
#[test]
fn configuration_goes_on_as_it_is() {
    let server = server(Flavor::Mariadb);
    let mut proxy = Tidegate::builder().backend(0, server).app_user().variable("threads", 2).start().unwrap();
    let mut admin = proxy.admin().unwrap();
    let address = format!("{}:{}", server.host(), server.port());
    for sql in [
        "INSERT INTO mysql_query_rules (rule_id, active, match_digest, error_msg, apply) VALUES (7, 1, '^SELECT . AS seven', 'no sevens', 1)",
        "LOAD MYSQL QUERY RULES TO RUNTIME",
        "INSERT INTO mysql_query_rules (rule_id, active, match_digest) VALUES (8, 1, '^SELECT 8')",
        "SET mysql-max_connections = 777",
        "LOAD MYSQL VARIABLES TO RUNTIME",
        "SET mysql-max_connections = 778",
        &format!("DRAIN SERVER '{address}'"),
    ] {
        admin.run(sql).unwrap().ok().unwrap();
    }
    let look = |admin: &mut Client, sql: &str| admin.run(sql).unwrap().table().unwrap();
    let tables = [
        "SELECT rule_id FROM mysql_query_rules ORDER BY 1",
        "SELECT rule_id FROM runtime_mysql_query_rules ORDER BY 1",
        "SELECT rule_id FROM disk.mysql_query_rules ORDER BY 1",
        "SELECT variable_value FROM global_variables WHERE variable_name = 'mysql-max_connections'",
        "SELECT variable_value FROM runtime_global_variables WHERE variable_name = 'mysql-max_connections'",
        "SELECT name, version, epoch, checksum FROM runtime_checksums_values ORDER BY 1",
        "SELECT hostgroup_id, hostname, port, status FROM runtime_mysql_servers",
    ];
    let before: Vec<_> = tables.iter().map(|sql| look(&mut admin, sql)).collect();
    drop(admin);
    proxy.upgrade(None).unwrap();
    let mut admin = proxy.admin().unwrap();
    for (sql, before) in tables.iter().zip(before) {
        assert_eq!(look(&mut admin, sql), before, "{sql}");
    }
    admin.run(format!("UNDRAIN SERVER '{address}'")).unwrap().ok().unwrap();
    let mut client = proxy.connect_app().unwrap();
    let error = client.run("SELECT 7 AS seven").unwrap_err().to_string();
    assert!(error.contains("no sevens"), "{error}");
    admin.run("PAUSE HOSTGROUP 0").unwrap().ok().unwrap();
    let error = admin.run("PROXYSQL UPGRADE").unwrap_err().to_string();
    assert!(error.contains("RESUME HOSTGROUP 0 first"), "{error}");
    admin.run("RESUME HOSTGROUP 0").unwrap().ok().unwrap();
    admin.run("PROXYSQL PAUSE").unwrap().ok().unwrap();
    drop(admin);
    proxy.upgrade(None).unwrap();
    assert!(proxy.connect_app().is_err(), "it is paused");
    assert_eq!(scalar(&mut client, "SELECT 8"), "8");
    proxy.admin().unwrap().run("PROXYSQL RESUME").unwrap().ok().unwrap();
    proxy.connect_app().unwrap();
    assert_eq!(std::fs::read_to_string(proxy.dir().join("tidegate.lock")).unwrap().trim(), proxy.pid().to_string());
}

/// `fast_forward` users, whose bytes pass unread.
#[test]
fn what_passes_unread_goes_along() {
    let server = server(Flavor::Mariadb);
    let own = [("max_connections", 50.into())];
    let builder = Tidegate::builder().server_with(0, server.host(), server.port(), &own).variable("threads", 2);
    let mut proxy = builder.user_with("app", "app-pass", 0, &[("fast_forward", 1.into())]).start().unwrap();
    let options = proxy.options("app", "app-pass").database("test").timeout(LIMIT);
    let mut clients: Vec<_> =
        [options.clone(), options.clone().tls(), options.clone().tls12()].iter().map(|o| Client::connect(o).unwrap()).collect();
    let stop = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = [options.clone(), options.tls()]
        .into_iter()
        .map(|options| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let mut client = Client::connect(&options).unwrap();
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    count += 1;
                    assert_eq!(
                        scalar(&mut client, &format!("SELECT LENGTH(CONCAT({count}, REPEAT('x', 100000))) - 100000")),
                        count.to_string().len().to_string()
                    );
                    let rows = client.run("SELECT seq FROM seq_1_to_20000").unwrap().table().unwrap();
                    assert_eq!(rows.len(), 20_000);
                }
                count
            })
        })
        .collect();
    for client in &mut clients {
        client.run("SET @own = 5").unwrap();
    }
    for _ in 0..5 {
        proxy.upgrade(None).unwrap();
        for client in &mut clients {
            assert_eq!(scalar(client, "SELECT @own"), "5");
        }
    }
    stop.store(true, Ordering::Relaxed);
    assert!(busy.into_iter().all(|client| client.join().unwrap() > 0));
}

/// Idle connections move, however many there are, and if no client is connected too.
#[test]
fn servers_see_no_reconnects() {
    let server = Server::start(Flavor::Mariadb, &Options::new()).unwrap();
    let builder = Tidegate::builder().backend(0, &server).app_user().variable("threads", 2);
    let mut proxy = builder.variable("free_connections_pct", 100).variable("monitor_enabled", false).start().unwrap();
    let mut clients: Vec<_> = (0..100).map(|_| proxy.connect_app().unwrap()).collect();
    for sql in ["BEGIN", "SELECT 1", "COMMIT"] {
        clients.iter_mut().for_each(|client| drop(client.run(sql).unwrap()));
    }
    drop(clients);
    let clients = "SELECT variable_value FROM stats_mysql_global WHERE variable_name = 'Client_Connections_connected'";
    let left = || scalar(&mut proxy.admin().unwrap(), clients);
    wait::until("the clients to be gone", LIMIT, || (left() == "0").then_some(())).unwrap();
    let mut root = server.root().unwrap();
    let mut open = || root.run("SELECT id FROM information_schema.processlist WHERE user = 'app' ORDER BY id").unwrap().table().unwrap();
    let before = open();
    assert!(before.len() > 50, "{} connections", before.len());
    proxy.upgrade(None).unwrap();
    assert_eq!(open(), before);
}

#[test]
fn what_was_counted_goes_on() {
    let server = server(Flavor::Mariadb);
    let mut proxy = Tidegate::builder().backend(0, server).app_user().variable("threads", 2).start().unwrap();
    let mut client = proxy.connect_app().unwrap();
    let number = |proxy: &Tidegate, sql: &str| scalar(&mut proxy.admin().unwrap(), sql).parse::<u64>().unwrap();
    let counted = [
        // None until the old process's counts are there.
        "SELECT COALESCE(SUM(count_star), 0) FROM stats_mysql_query_digest WHERE digest_text = 'SELECT ? AS counted'",
        "SELECT queries FROM stats_mysql_connection_pool",
        "SELECT variable_value FROM stats_mysql_global WHERE variable_name = 'Questions'",
        "SELECT Total_cnt FROM stats_mysql_commands_counters WHERE Command = 'SELECT'",
        "SELECT COALESCE(SUM(count_star), 0) FROM stats_mysql_errors WHERE errno = 1146",
    ];
    for round in 1..=3 {
        for _ in 0..10 {
            client.run("SELECT 1 AS counted").unwrap();
            client.run("DO (SELECT 1 FROM missing)").unwrap_err();
        }
        let before = counted.map(|sql| number(&proxy, sql));
        assert_eq!(before[0], round * 10);
        assert!(before[1] >= round * 10 && before[2] >= round * 10, "{before:?}");
        assert_eq!((before[3], before[4]), (round * 10, round * 10));
        proxy.upgrade(None).unwrap();
        let after = wait::until("the counts to arrive", LIMIT, || {
            let after = counted.map(|sql| number(&proxy, sql));
            (after[0] == before[0] && after[3..] == before[3..]).then_some(after)
        });
        let after = after.unwrap();
        assert!(after[1] >= before[1] && after[2] >= before[2], "{before:?}, then {after:?}");
    }
}

/// In a container the first process stays: it follows those that take over, and ends as the last one does.
#[test]
fn a_parent_stays_over_upgrades() {
    let server = server(Flavor::Mariadb);
    for is_killed in [false, true] {
        let proxy = Tidegate::builder().backend(0, server).app_user().variable("threads", 2).arg("--supervise").start().unwrap();
        let mut client = proxy.connect_app().unwrap();
        client.run("SET @own = 7").unwrap();
        let serves = || children(proxy.pid()).first().copied();
        for _ in 0..3 {
            let before = serves().unwrap();
            proxy.admin().unwrap().run("PROXYSQL UPGRADE").unwrap().ok().unwrap();
            wait::until("another process to serve", LIMIT, || (!is_there(before)).then_some(())).unwrap();
            wait::until("its heir", LIMIT, || serves().filter(|pid| *pid != before)).unwrap();
            assert_eq!(scalar(&mut client, "SELECT @own"), "7");
            assert!(proxy.exit_status().is_none(), "the parent stays");
        }
        if is_killed {
            rustix::process::kill_process(Pid::from_raw(serves().unwrap() as i32).unwrap(), Signal::KILL).unwrap();
            assert_eq!(proxy.wait_exit().unwrap().code(), Some(128 + 9));
        } else {
            client.quit().unwrap();
            proxy.stop().unwrap();
        }
        assert!(proxy.connect_app().is_err());
    }
}

/// A replica that replicates through the proxy keeps its stream, and operators see it.
fn a_replica_keeps_its_stream(flavor: Flavor) {
    let servers = Replication::start(flavor, 1, &Options::new()).unwrap();
    let (primary, leaf) = (&servers.primary, &servers.replicas[0]);
    primary.sql("CREATE TABLE test.streamed (i INT PRIMARY KEY, filler TEXT)").unwrap();
    servers.wait_caught_up().unwrap();
    let replicates = [("attributes", r#"{"replication": true}"#.into())];
    let builder = Tidegate::builder().backend(0, primary).app_user().user_with("repl", "repl-pass", 0, &replicates).variable("threads", 2);
    let mut proxy = builder.start().unwrap();
    follow_at(leaf, proxy.host(), proxy.port()).unwrap();
    let table = "SELECT server_id, server_uuid, user, server, asked_from, bytes FROM stats_tidegate_replicas";
    let shown = |proxy: &Tidegate| proxy.admin().ok()?.run(table).ok()?.table().ok()?.into_iter().next();
    let first = wait::until("the stream", LIMIT, || shown(&proxy)).unwrap();
    let expected = |name: &str| leaf.scalar(&format!("SELECT @@{name}")).unwrap();
    assert_eq!((first[0].clone(), first[2].as_deref()), (expected("server_id"), Some("repl")));
    if flavor == Flavor::Mysql {
        assert_eq!(first[1], expected("server_uuid"));
    }
    assert_eq!(first[3], Some(format!("127.0.0.1:{}", primary.port())));
    assert!(first[4].as_deref().is_some_and(|from| from.contains('-')), "{first:?}");
    let dumps = "SELECT GROUP_CONCAT(id) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'";
    let before = primary.scalar(dumps).unwrap();
    assert!(before.is_some());
    let stop = Arc::new(AtomicBool::new(false));
    let (mut app, stopped) = (proxy.connect_app().unwrap(), Arc::clone(&stop));
    let writer = std::thread::spawn(move || {
        let mut count = 0;
        while !stopped.load(Ordering::Relaxed) {
            app.run(format!("INSERT INTO streamed VALUES ({count}, REPEAT('x', 10000))")).unwrap();
            count += 1;
        }
        count
    });
    for _ in 0..5 {
        proxy.upgrade(None).unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    let count: u64 = writer.join().unwrap();
    let there = || (leaf.scalar("SELECT COUNT(*) FROM test.streamed").ok()??.parse() == Ok(count)).then_some(());
    wait::until("the replica to have all", LIMIT, there).unwrap();
    assert_eq!(primary.scalar(dumps).unwrap(), before, "it did not connect again");
    let last = wait::until("the stream's bytes", LIMIT, || {
        let row = shown(&proxy)?;
        (row[5].as_ref()?.parse::<u64>().ok()? >= count * 10_000).then_some(row)
    });
    let last = last.unwrap();
    assert_eq!(last[..5], first[..5]);
}

lab::each!(a_replica_keeps_its_stream);

/// A process that has taken over and then freezes is killed, and the old one goes on with the sessions that it still has.
#[test]
fn a_process_that_freezes_is_given_up() {
    let server = server(Flavor::Mariadb);
    let proxy = Tidegate::builder().backend(0, server).app_user().variable("threads", 2).variable("drain_timeout", 60_000).start().unwrap();
    let mut busy = proxy.connect_app().unwrap();
    busy.run("CREATE TEMPORARY TABLE own (id INT)").unwrap();
    let id = scalar(&mut busy, "SELECT CONNECTION_ID()");
    let mut holder = Client::connect(&ConnectOptions::app(server)).unwrap();
    assert_eq!(scalar(&mut holder, "SELECT GET_LOCK('freezes', 0)"), "1");
    busy.send_query("SELECT GET_LOCK('freezes', 60)").unwrap();
    let waits = || server.scalar("SELECT COUNT(*) FROM information_schema.processlist WHERE info = 'SELECT GET_LOCK(''freezes'', 60)'");
    wait::until("the statement to run", LIMIT, || (waits().ok()?.as_deref() == Some("1")).then_some(())).unwrap();
    let answer = proxy.admin().unwrap().run("PROXYSQL UPGRADE").unwrap().ok().unwrap().info.clone();
    wait::until("the new process to be in charge", LIMIT, || proxy.log().contains("has taken over as process").then_some(())).unwrap();
    let heir: i32 = answer.split(' ').find_map(|word| word.parse().ok()).unwrap();
    rustix::process::kill_process(Pid::from_raw(heir).unwrap(), Signal::STOP).unwrap();
    holder.quit().unwrap();
    busy.recv_reply(lab::client::Encoding::Text).unwrap();
    let limit = Duration::from_secs(30);
    wait::until("the heir to be given up", limit, || (!is_there(heir as u32)).then_some(())).unwrap();
    assert_eq!(scalar(&mut busy, "SELECT COUNT(*) FROM own"), "0");
    assert_eq!(scalar(&mut busy, "SELECT CONNECTION_ID()"), id);
    wait::until("new clients to be served", LIMIT, || proxy.connect_app().ok()?.scalar("SELECT 1").ok()).unwrap();
    proxy.admin().unwrap().run("LOAD MYSQL USERS TO RUNTIME").unwrap().ok().unwrap();
    busy.quit().unwrap();
    proxy.stop().unwrap();
}

/// If scripts are forbidden, no other program is started either.
#[test]
fn no_other_program_is_started_where_scripts_are_forbidden() {
    let server = server(Flavor::Mariadb);
    let mut proxy = Tidegate::builder().backend(0, server).app_user().variable("threads", 2).arg("--no-scripts").start().unwrap();
    for _ in 0..2 {
        let error = proxy.upgrade(Some(&PathBuf::from("/bin/true"))).unwrap_err().to_string();
        assert!(error.contains("--no-scripts"), "{error}");
        proxy.upgrade(None).unwrap();
    }
}
