//! Settings for the client's side: the rate at which it is sent data, and the treatment of an unknown collation.

use crate::common::{LIMIT, Peer, server};
use crate::{BOTH, admin, proxy, set};
use lab::client::Encoding;
use lab::{Client, ConnectOptions, Flavor, LabError, wait};
use std::io::Read;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

const ENCODINGS: [Encoding; 2] = [Encoding::Text, Encoding::Binary];
/// Bytes a second.
const RATE: i64 = 2_000_000;

#[test]
fn a_client_is_sent_so_much_a_second() {
    for flavor in BOTH {
        let proxy = proxy(flavor, &[("throttle_max_bytes_per_second_to_client", RATE.into())]);
        for encoding in ENCODINGS {
            let (mut peer, mut other) = (Peer::through(&proxy, encoding), Peer::through(&proxy, encoding));
            let began = Instant::now();
            assert!(peer.get("SELECT REPEAT('abcdefgh', 524288)") == "abcdefgh".repeat(524_288), "{flavor:?} {encoding:?}");
            let took = began.elapsed();
            assert!(took >= Duration::from_millis(1_500) && took < LIMIT, "{flavor:?} {encoding:?}: {took:?}");
            // Bytes sent in one second delay the next second, for each client separately.
            let began = Instant::now();
            assert_eq!(other.get("SELECT 1"), "1");
            assert!(began.elapsed() < Duration::from_millis(500), "{flavor:?} {encoding:?}: {:?}", began.elapsed());
        }
        let mut admin = admin(&proxy);
        set(&mut admin, "throttle_max_bytes_per_second_to_client", "0");
        let mut peer = Peer::through(&proxy, Encoding::Text);
        let began = Instant::now();
        assert_eq!(peer.get("SELECT REPEAT('abcdefgh', 524288)").len(), 4 << 20);
        assert!(began.elapsed() < Duration::from_millis(1_500), "{flavor:?}: {:?}", began.elapsed());
    }
}

/// Forty rows of a megabyte.
const LONG: &str = "SELECT REPEAT('x', 1000000) FROM (SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5) a, \
                    (SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4) b, (SELECT 1 UNION ALL SELECT 2) c";

#[test]
fn what_a_slow_client_is_not_sent_yet_stays_with_the_server() {
    for flavor in BOTH {
        let proxy = proxy(flavor, &[("throttle_max_bytes_per_second_to_client", RATE.into())]);
        let mut slow = Peer::through(&proxy, Encoding::Text);
        slow.disturb();
        let (memory, time) = (proxy.rss_bytes().unwrap(), proxy.cpu_ticks().unwrap());
        slow.send_query(LONG).unwrap();
        thread::sleep(Duration::from_millis(1_500));
        let (grown, spent) = (proxy.rss_bytes().unwrap().saturating_sub(memory), proxy.cpu_ticks().unwrap() - time);
        assert!(grown < 8 << 20, "{flavor:?}: {grown} bytes more");
        assert!(spent < 40, "{flavor:?}: {spent} ticks of waiting");
        // A kill is heard though there is always more at hand; the rest comes at once.
        let began = Instant::now();
        proxy.connect_app().unwrap().run(format!("KILL QUERY {}", slow.connection_id())).unwrap();
        let reply = slow.recv_reply(Encoding::Text).unwrap();
        assert_eq!(reply.err().unwrap().code, 1317, "{flavor:?}");
        assert!(began.elapsed() < Duration::from_secs(5), "{flavor:?}: {:?}", began.elapsed());
        assert_eq!(slow.get("SELECT 1"), "1");
    }
}

/// Unknown to MariaDB 10.11 and to MySQL 9.7.
const NOBODYS: u8 = 100;
const CHARSETS: &str = "SELECT CONCAT_WS(' ', @@character_set_client, @@character_set_results, @@collation_connection)";

fn error(result: Result<impl Sized, LabError>) -> u16 {
    match result {
        Err(LabError::Server { code, .. }) => code,
        Err(error) => panic!("{error}"),
        Ok(_) => 0,
    }
}

#[test]
fn a_collation_that_nobody_knows_is_handled_as_set() {
    for flavor in BOTH {
        // MySQL 8 clients ask for a collation that MariaDB does not know.
        let unknown: &[u8] = if flavor == Flavor::Mariadb { &[NOBODYS, 255] } else { &[NOBODYS] };
        let proxy = proxy(flavor, &[]);
        let mut admin = admin(&proxy);
        let options = |collation: u8| proxy.options("app", "app-pass").database("test").charset(collation).timeout(LIMIT);
        let told = |id: u8| proxy.log().lines().filter(|line| line.contains(&format!("asks for collation {id},"))).count();
        wait::until("the servers are known", LIMIT, || proxy.connect_app().ok()?.run("SELECT 1").ok()).unwrap();
        for id in unknown {
            let direct = ConnectOptions::tcp(server(flavor).address(), "app", "app-pass").charset(*id);
            let expected = Client::connect(&direct).unwrap().scalar(CHARSETS).unwrap();
            for (mode, lines) in [(2, 0), (3, 0), (1, 1), (0, 1)] {
                set(&mut admin, "handle_unknown_charset", &mode.to_string());
                for _ in 0..4 {
                    if mode == 0 {
                        assert_eq!(error(Client::connect(&options(*id))), 1273, "{flavor:?} {id}");
                    } else {
                        let mut client = Client::connect(&options(*id)).unwrap();
                        assert_eq!(client.scalar(CHARSETS).unwrap(), expected, "{flavor:?} {id} {mode}");
                    }
                }
                // Once for each worker.
                assert!((lines..=2 * lines).contains(&told(*id)), "{flavor:?} {id} {mode}: {}", proxy.log());
            }
        }
        Client::connect(&options(0)).expect("0 names none");
        let mut client = Client::connect(&options(45)).unwrap();
        assert_eq!(client.scalar("SELECT @@collation_connection").unwrap().as_deref(), Some("utf8mb4_general_ci"));
        assert_eq!(error(client.change_user(&options(NOBODYS))), 1273, "{flavor:?}: COM_CHANGE_USER names one too");
    }
}

/// No client can use such a character set; its refusal does not affect other clients of the same user.
#[test]
fn a_character_set_that_no_client_can_have_is_refused_at_the_login() {
    // ucs2, utf16, utf16le, utf32.
    const WIDE: [u8; 4] = [35, 54, 56, 60];
    for flavor in BOTH {
        let proxy = proxy(flavor, &[]);
        let mut other = Client::connect(&proxy.options("app", "app-pass").charset(45).timeout(LIMIT)).unwrap();
        other.run("SELECT 1").unwrap();
        for id in WIDE {
            let direct = ConnectOptions::tcp(server(flavor).address(), "app", "app-pass").charset(id);
            let expected = error(Client::connect(&direct));
            let options = proxy.options("app", "app-pass").charset(id).timeout(LIMIT);
            assert_eq!((expected, error(Client::connect(&options))), (1231, 1231), "{flavor:?} {id}");
            let mut changing = proxy.connect_app().unwrap();
            assert_eq!(error(changing.change_user(&options)), 1231, "{flavor:?} {id}");
        }
        other.run("SELECT 1").unwrap();
    }
}

/// The same bytes are two names in two character sets.
#[test]
fn users_names_are_read_in_the_clients_character_set() {
    for flavor in BOTH {
        for (name, says) in [("jürgen", "umlaut"), ("jÃ¼rgen", "misread")] {
            let create = format!("CREATE USER IF NOT EXISTS '{name}' IDENTIFIED BY '{says}'");
            let root = ConnectOptions::unix(server(flavor).socket(), "root", "").charset(45);
            let mut root = Client::connect(&root).unwrap();
            root.run(create).unwrap();
            root.run(format!("GRANT SELECT ON test.* TO '{name}'")).unwrap();
        }
        let server = server(flavor);
        let builder = lab::Tidegate::builder().backend(0, server);
        let proxy = builder.user("jürgen", "umlaut", 0).user("jÃ¼rgen", "misread", 0).start().unwrap();
        for address in [server.address(), proxy.address()] {
            let options =
                |password: &str, charset: u8| ConnectOptions::tcp(address.clone(), "jürgen", password).charset(charset).timeout(LIMIT);
            for (password, charset, wrong) in [("umlaut", 45, 8), ("misread", 8, 45)] {
                let mut client = Client::connect(&options(password, charset)).unwrap();
                let user = client.scalar("SELECT HEX(CONVERT(USER() USING utf8mb4))").unwrap().unwrap();
                assert!(user.starts_with(if charset == 45 { "6AC3BC72" } else { "6AC383C2BC72" }), "{user}");
                assert_eq!(error(Client::connect(&options(password, wrong))), 1045, "{flavor:?} {password}");
                client.change_user(&options(password, charset)).unwrap();
                assert_eq!(client.scalar("SELECT 1").unwrap().as_deref(), Some("1"));
            }
        }
    }
}

#[test]
fn without_a_host_cache_nobody_is_locked_out() {
    let proxy = proxy(Flavor::Mariadb, &[("client_host_cache_size", 100.into()), ("client_host_error_counts", 2.into())]);
    let mut admin = admin(&proxy);
    let wrong = |proxy: &lab::Tidegate| assert!(Client::connect(&proxy.options("app", "wrong")).is_err());
    let is_let_in = |proxy: &lab::Tidegate| proxy.connect_app().is_ok();
    wrong(&proxy);
    wrong(&proxy);
    assert!(!is_let_in(&proxy));
    set(&mut admin, "client_host_cache_size", "0");
    assert!(is_let_in(&proxy));
    wrong(&proxy);
    wrong(&proxy);
    assert!(is_let_in(&proxy));
    assert_eq!(admin.scalar("SELECT COUNT(*) FROM stats_mysql_client_host_cache").unwrap().unwrap(), "0");
    set(&mut admin, "client_host_cache_size", "100");
    assert!(is_let_in(&proxy), "what was counted is forgotten");
}

#[test]
fn a_login_that_is_not_finished_in_time_is_a_failed_one() {
    let proxy = proxy(
        Flavor::Mariadb,
        &[("client_host_cache_size", 100.into()), ("client_host_error_counts", 1.into()), ("connect_timeout_client", 500.into())],
    );
    let mut admin = admin(&proxy);
    let mut counted = || admin.scalar("SELECT COUNT(*) FROM stats_mysql_client_host_cache WHERE error_count = 1").unwrap().unwrap();
    let mut silent = TcpStream::connect(proxy.address()).unwrap();
    silent.set_read_timeout(Some(LIMIT)).unwrap();
    silent.read_to_end(&mut Vec::new()).unwrap();
    wait::until("the address is counted", LIMIT, || (counted() == "1").then_some(())).unwrap();
    assert!(proxy.connect_app().is_err(), "its address is turned away");
}
