//! The port as a client sees it: real sockets, real packets, a fake engine.

mod bed;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bed::{Bed, settings};
use lab::client::{Client, ConnectOptions, Outcome, Param, Value};
use rustls::ServerConfig;
use tls::ServerTls;
use wire::auth::hash::{certificate_proof, native_stored};
use wire::{Capabilities, Command};

fn tls() -> Arc<ServerTls> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = rustls_pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    let config = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = config.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    Arc::new(ServerTls::new(Arc::new(config), made.cert.der()))
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn logins_of_every_kind() {
    let bed = Bed::start(settings(Some(tls())));
    for plugin in ["mysql_native_password", "caching_sha2_password"] {
        for options in [bed.options("admin", "admin"), bed.options("admin", "admin").tls()] {
            let mut client = Client::connect(&options.plugin(plugin)).unwrap();
            assert_eq!(client.scalar("who").unwrap().unwrap(), "Admin admin 127.0.0.1 None");
        }
    }
    // Clients of MariaDB believe in a certificate without a CA by this.
    let mut sent = bed.options("admin", "admin").tls();
    sent.capabilities.remove(Capabilities::LONG_PASSWORD);
    let client = Client::connect(&sent).unwrap();
    let fingerprint = wire::auth::hash::sha256(&[client.certificate().unwrap()]);
    let proof = certificate_proof(&native_stored(b"admin"), &client.greeting().scramble, &fingerprint);
    assert_eq!(client.login_status().info.as_bytes(), proof);
    let mut stats = Client::connect(&bed.options("stats", "stats").database("monitor")).unwrap();
    assert_eq!(stats.scalar("who").unwrap().unwrap(), r#"Stats stats 127.0.0.1 Some("monitor")"#);
    let mut monitor = Client::connect(&bed.options("monitor", "monitor")).unwrap();
    assert!(monitor.scalar("who").unwrap().unwrap().starts_with("Stats"));
    for (user, password, using) in [("admin", "wrong", "YES"), ("nobody", "x", "YES"), ("admin", "", "NO")] {
        let (code, text) = bed.refusal(&bed.options(user, password));
        assert_eq!((code, text), (1045, format!("Access denied for user '{user}'@'127.0.0.1' (using password: {using})")));
    }
}

#[test]
fn guesses_are_answered_one_a_second() {
    let mut bed = Bed::start(settings(None));
    bed.apply(|settings| settings.most_failures = 2).unwrap();
    for _ in 0..3 {
        assert_eq!(bed.refusal(&bed.options("admin", "wrong")).0, 1045);
    }
    let began = std::time::Instant::now();
    assert_eq!(bed.refusal(&bed.options("nobody", "wrong")).0, 1045);
    assert!(began.elapsed() >= std::time::Duration::from_millis(900), "whatever name is said");
    bed.admin();
    bed.apply(|settings| settings.most_failures = 0).unwrap();
    let began = std::time::Instant::now();
    (0..20).for_each(|_| assert_eq!(bed.refusal(&bed.options("admin", "wrong")).0, 1045));
    assert!(began.elapsed() < std::time::Duration::from_secs(15), "0 is no limit");
}

#[test]
fn a_stored_hash_takes_tls_or_rsa() {
    let hash = wire::auth::crypt::generate(b"secret", b"01234567890123456789");
    let mut config = model::Config::default();
    config.admin.set("mysql_ifaces", "127.0.0.1:0").unwrap();
    config.admin.set("admin_credentials", &format!("root:{hash}")).unwrap();
    let bed = Bed::start(super::FrontSettings::read(&config, Some(tls())).unwrap());
    for options in [bed.options("root", "secret"), bed.options("root", "secret").tls()] {
        assert!(Client::connect(&options.clone().plugin("caching_sha2_password")).is_ok());
        assert!(Client::connect(&options).is_ok(), "switched to a plugin that can prove it");
    }
    assert_eq!(bed.refusal(&bed.options("root", "wrong")).0, 1045);
}

#[test]
fn unix_sockets_and_live_changes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("admin.sock");
    let mut bed = Bed::start(settings(None));
    let mut before = bed.admin();
    let old = bed.options("admin", "admin");
    bed.apply(|s| s.listen = vec![model::Listen::Unix(path.clone())]).unwrap();
    assert_eq!(bed.admin().scalar("who").unwrap().unwrap(), "Admin admin localhost None");
    assert_eq!(before.scalar("x").unwrap().unwrap(), "x", "sessions outlive the listener they came by");
    assert!(Client::connect(&old).is_err(), "nobody listens there any more");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = model::Listen::Tcp(taken.local_addr().unwrap());
    assert!(bed.apply(|s| s.listen = vec![busy]).is_err());
    bed.admin();
    drop(bed);
    assert!(!path.exists());
}

#[test]
fn an_address_that_overlaps_the_old_one() {
    let mut bed = Bed::start(settings(None));
    let model::Listen::Tcp(address) = bed.addresses[0].clone() else { panic!() };
    bed.apply(|s| s.listen = model::Listen::parse_list(&format!("0.0.0.0:{}", address.port())).unwrap()).unwrap();
    bed.apply(|s| s.listen = model::Listen::parse_list(&format!("127.0.0.1:{}", address.port())).unwrap()).unwrap();
    bed.admin();
}

#[test]
fn results_old_and_new_clients() {
    let bed = Bed::start(settings(None));
    for capabilities in [ConnectOptions::MODERN, ConnectOptions::CLASSIC] {
        let mut client = Client::connect(&bed.options("admin", "admin").capabilities(capabilities)).unwrap();
        let reply = client.run("null").unwrap();
        assert_eq!(reply.table().unwrap(), [[None, Some("v".to_owned()), None]]);
        let column = &reply.rows().unwrap().columns[1];
        assert_eq!((column.name.as_str(), column.kind, column.charset), ("b", 253, 33));
        let reply = client.run("ok").unwrap();
        let status = reply.ok().unwrap();
        assert_eq!((status.affected_rows, status.last_insert_id, status.info.as_str(), status.warnings), (7, 5, "seven", 1));
        let reply = client.query("fail").unwrap();
        let error = reply.err().unwrap();
        assert_eq!((error.code, error.sqlstate.as_str(), error.message.as_str()), (1045, "28000", "ProxySQL Admin Error: no"));
    }
}

#[test]
fn packets_beyond_16_mib() {
    let bed = Bed::start(settings(None));
    let mut client = bed.admin();
    let value = client.scalar("rows 1 20000000").unwrap().unwrap();
    assert_eq!(value.len(), 20_000_000);
    let long = format!("/* {} */ x", "y".repeat(17 << 20));
    assert_eq!(client.scalar(&long).unwrap().unwrap().len(), long.len());
}

#[test]
fn commands() {
    let bed = Bed::start(settings(None));
    let mut client = bed.admin();
    assert!(client.ping().unwrap().err().is_none());
    assert!(client.init_db("disk").unwrap().err().is_none());
    assert!(client.scalar("who").unwrap().unwrap().ends_with(r#"Some("disk")"#));
    client.run("USE `stats`").unwrap();
    assert!(client.scalar("who").unwrap().unwrap().ends_with(r#"Some("stats")"#));
    assert!(client.statistics().unwrap().starts_with("Uptime: "));
    assert!(client.reset_connection().unwrap().err().is_none());
    client.change_user(&bed.options("stats", "stats").database("main")).unwrap();
    assert_eq!(client.scalar("who").unwrap().unwrap(), r#"Stats stats 127.0.0.1 Some("main")"#);
    client.send_command(Command::FieldList, b"t\0%").unwrap();
    let names: Vec<Vec<u8>> = (0..3).map(|_| client.recv_packet().unwrap()).collect();
    assert!(names[0].windows(2).any(|w| w == b"id") && names[1].windows(4).any(|w| w == b"name") && names[2][0] == 0xfe);
    assert_eq!(client.command(Command::Debug, b"").unwrap().err().unwrap().code, 1047);
    assert!(client.change_user(&bed.options("stats", "wrong")).is_err());
    let quitting = bed.admin();
    quitting.quit().unwrap();
}

#[test]
fn several_statements_for_those_who_asked() {
    let bed = Bed::start(settings(None));
    let mut client = bed.admin();
    assert_eq!(client.query("a; b").unwrap().err().unwrap().code, 1045);
    assert_eq!(client.scalar("a;").unwrap().unwrap(), "a;");
    client.set_option(0).unwrap();
    let reply = client.run("a; ok; ';' ;").unwrap();
    assert_eq!(reply.results.len(), 3);
    let reply = client.query("a; fail; b").unwrap();
    assert_eq!(reply.results.len(), 2);
    assert!(matches!(&reply.results[1], Outcome::Err(error) if error.code == 1045));
    let mut asked = Client::connect(&bed.options("admin", "admin").with(Capabilities::MULTI_STATEMENTS)).unwrap();
    assert_eq!(asked.run("a;b").unwrap().results.len(), 2);
}

#[test]
fn prepared_statements() {
    let bed = Bed::start(settings(None));
    for capabilities in [ConnectOptions::MODERN, ConnectOptions::CLASSIC] {
        let mut client = Client::connect(&bed.options("admin", "admin").capabilities(capabilities)).unwrap();
        let statement = client.prepare("echo ? '?' ? ? ?").unwrap();
        assert_eq!((statement.params.len(), statement.columns.len()), (4, 0));
        let params = [Param::Int(-5), Param::Text("it's".into()), Param::Null, Param::Double(0.5)];
        let reply = client.execute(&statement, &params).unwrap();
        assert_eq!(reply.rows().unwrap().rows[0].values, [Value::Bytes(b"echo -5 '?' 'it''s' NULL 0.5".to_vec())]);
        client.send_long_data(&statement, 1, b"lo").unwrap();
        client.send_long_data(&statement, 1, b"ng").unwrap();
        let reply = client.execute(&statement, &[Param::UInt(u64::MAX), Param::Long, Param::Null, Param::Null]).unwrap();
        assert_eq!(reply.rows().unwrap().rows[0].values, [Value::Bytes(b"echo 18446744073709551615 '?' 'long' NULL NULL".to_vec())]);
        let nulls = client.prepare("null").unwrap();
        let reply = client.execute(&nulls, &[]).unwrap();
        assert_eq!(reply.rows().unwrap().rows[0].values, [Value::Null, Value::Bytes(b"v".to_vec()), Value::Null]);
        client.close_statement(&nulls).unwrap();
        assert_eq!(client.execute(&nulls, &[]).unwrap().err().unwrap().code, 1243);
    }
}

#[test]
fn a_slow_reader_holds_up_nobody() {
    let bed = Bed::start(settings(None));
    let mut slow = bed.admin();
    slow.send_query("rows 300 1000000").unwrap();
    let mut quick = bed.admin();
    for _ in 0..50 {
        assert_eq!(quick.scalar("x").unwrap().unwrap(), "x");
    }
    let rows = slow.recv_reply(lab::client::Encoding::Text).unwrap();
    assert_eq!(rows.rows().unwrap().rows.len(), 300);
}

#[test]
fn a_local_admin_gets_in_whoever_holds_the_seats() {
    let mut settings = settings(None);
    settings.max_connections = 1;
    let bed = Bed::start(settings);
    let mut sockets: Vec<TcpStream> = Vec::new();
    let model::Listen::Tcp(address) = bed.addresses[0].clone() else { panic!() };
    for _ in 0..40 {
        let mut socket = TcpStream::connect(address).unwrap();
        let mut head = [0; 4];
        socket.read_exact(&mut head).unwrap();
        sockets.push(socket);
    }
    assert_eq!(bed.admin().scalar("x").unwrap().unwrap(), "x");
    let (code, text) = bed.refusal(&bed.options("stats", "stats"));
    assert_eq!((code, text.as_str()), (1040, "Too many connections"));
    drop(sockets);
    wait_until("seats are given back", || bed.connections() == 0);
}

#[test]
fn idle_sessions_end() {
    let mut settings = settings(None);
    settings.idle_timeout = Duration::from_millis(50);
    let bed = Bed::start(settings);
    let mut client = bed.admin();
    wait_until("the idle session ends", || bed.connections() == 0);
    assert!(client.query("x").is_err());
}

#[test]
fn what_is_no_protocol_ends_the_session_alone() {
    let bed = Bed::start(settings(None));
    let mut client = bed.admin();
    client.send_bytes(&[1, 0, 0, 9, 14]).unwrap();
    let packet = client.recv_packet();
    assert!(packet.is_err() || packet.unwrap()[0] == 0xff);
    let model::Listen::Tcp(address) = bed.addresses[0].clone() else { panic!() };
    let mut garbage = TcpStream::connect(address).unwrap();
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let _ = garbage.read_to_end(&mut Vec::new());
    assert_eq!(bed.admin().scalar("x").unwrap().unwrap(), "x");
}
