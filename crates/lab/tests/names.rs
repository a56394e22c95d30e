//! Servers that are known by name: a slow name server, and a name that is moved while its old address lives.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lab::port::Port;
use lab::{Client, Mariadb, Options, Server, Tidegate, wait};

const LIMIT: Duration = Duration::from_secs(30);
const NAME: &str = "writer.test";
const APP: &str = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'app'";

/// Answers for every name alike.
struct NameServer {
    address: Ipv4Addr,
    answer: Arc<Mutex<Ipv4Addr>>,
    delay_ms: Arc<AtomicU64>,
}

impl NameServer {
    /// None where port 53 is not to be had.
    fn start(answer: Ipv4Addr, delay_ms: u64) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let id = std::process::id().wrapping_mul(31).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)).to_be_bytes();
        let address = Ipv4Addr::new(127, id[1] | 64, id[2], id[3].clamp(1, 254));
        let Ok(socket) = UdpSocket::bind((address, 53)) else {
            eprintln!("not tested: a name server needs root");
            return None;
        };
        let server = Self { address, answer: Arc::new(Mutex::new(answer)), delay_ms: Arc::new(AtomicU64::new(delay_ms)) };
        let (answer, delay_ms) = (Arc::clone(&server.answer), Arc::clone(&server.delay_ms));
        thread::spawn(move || {
            let mut question = [0; 512];
            while let Ok((len, client)) = socket.recv_from(&mut question) {
                let reply = reply_to(&question[..len], *answer.lock().unwrap_or_else(PoisonError::into_inner));
                let (socket, delay_ms) = (socket.try_clone().unwrap(), delay_ms.load(Ordering::Relaxed));
                thread::spawn(move || {
                    thread::sleep(Duration::from_millis(delay_ms));
                    let _ = socket.send_to(&reply, client);
                });
            }
        });
        Some(server)
    }

    fn moves_to(&self, address: Ipv4Addr) {
        *self.answer.lock().unwrap() = address;
    }
}

/// An A record for a question that asks for one, else none (RFC 1035, section 4).
fn reply_to(question: &[u8], address: Ipv4Addr) -> Vec<u8> {
    const HEADER: usize = 12;
    let name_len = question[HEADER..].iter().position(|byte| *byte == 0).unwrap() + 1;
    let asked = &question[HEADER..HEADER + name_len + 4];
    let is_a = asked[name_len..name_len + 2] == [0, 1];
    let mut reply = [&question[..2], &[0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0], asked].concat();
    if is_a {
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4]);
        reply.extend(address.octets());
    }
    reply
}

/// Passes connections to a port of this address on to the server.
fn forward(address: Ipv4Addr, port: u16, server: &Server) {
    let listener = TcpListener::bind((address, port)).unwrap();
    let target = (server.host().parse::<IpAddr>().unwrap(), server.port());
    thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(target)) else { continue };
            for (mut from, mut to) in [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)] {
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
}

fn who(client: &mut Client) -> String {
    client.scalar("SELECT @@port").unwrap().unwrap()
}

#[test]
fn a_name_server_that_is_slower_than_a_connect_may_be_delays_the_first_one_only() {
    let Some(names) = NameServer::start(Ipv4Addr::LOCALHOST, 1_500) else { return };
    let server = Mariadb::start(&Options::new()).unwrap();
    let builder = Tidegate::builder().server(0, NAME, server.port()).app_user().name_server(names.address);
    let proxy = builder.variable("connect_timeout_server_max", 10_000).start().unwrap();
    let mut client = proxy.connect_app().unwrap();
    let begun = Instant::now();
    assert_eq!(who(&mut client), server.port().to_string());
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    // One that is not there in time at all.
    names.delay_ms.store(4_000, Ordering::Relaxed);
    let proxy = builder_like(&names, &server).start().unwrap();
    let told = proxy.connect_app().unwrap().query("SELECT 1").unwrap().err().map(|e| (e.code, e.message.clone())).unwrap();
    assert!(told.0 == 9001 && told.1.contains("was not resolved within 1000 ms"), "{told:?}");
    wait::until("the late answer", LIMIT, || proxy.connect_app().ok()?.query("SELECT 1").ok()?.err().is_none().then_some(())).unwrap();
}

fn builder_like(names: &NameServer, server: &Server) -> lab::tidegate::Builder {
    let builder = Tidegate::builder().server(0, NAME, server.port()).app_user().name_server(names.address);
    builder.variable("connect_timeout_server_max", 1_500)
}

/// A proxy whose server is the name, and a port at which each of the addresses leads to a server of its own.
fn proxy_of_both(names: &NameServer, addresses: [Ipv4Addr; 2], servers: &[Server; 2]) -> (Tidegate, Port) {
    let port = Port::reserve().unwrap();
    addresses.iter().zip(servers).for_each(|(address, server)| forward(*address, port.number(), server));
    let builder = Tidegate::builder().server(0, NAME, port.number()).app_user().name_server(names.address).variable("threads", 1);
    let timing = [("monitor_local_dns_cache_ttl", 1_000), ("monitor_local_dns_cache_refresh_interval", 300)];
    let proxy = timing.iter().fold(builder, |builder, (name, ms)| builder.variable(name, *ms)).start().unwrap();
    (proxy, port)
}

#[test]
fn a_name_that_is_moved_takes_its_connections_along() {
    const OLD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 11);
    const NEW: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 12);
    let Some(names) = NameServer::start(OLD, 0) else { return };
    let servers = [0, 1].map(|_| Mariadb::start(&Options::new()).unwrap());
    let (proxy, _port) = proxy_of_both(&names, [OLD, NEW], &servers);
    let [old, new] = [0, 1].map(|n: usize| servers[n].port().to_string());
    let [mut idle, mut busy, mut free] = [(); 3].map(|()| proxy.connect_app().unwrap());
    for client in [&mut idle, &mut busy] {
        client.run("BEGIN").unwrap();
        assert_eq!(who(client), old);
    }
    idle.run("COMMIT").unwrap();
    assert_eq!(who(&mut free), old);
    names.moves_to(NEW);
    let count = |n: usize| servers[n].scalar(APP).unwrap().unwrap();
    wait::until("idle connections to go", LIMIT, || (count(0) == "1").then_some(())).unwrap();
    for client in [&mut idle, &mut free] {
        assert_eq!(who(client), new);
    }
    assert_eq!(who(&mut busy), old, "a transaction may finish");
    busy.run("COMMIT").unwrap();
    assert_eq!(who(&mut busy), new);
    wait::until("the last one to go", LIMIT, || (count(0) == "0").then_some(())).unwrap();
    let mut admin = proxy.admin().unwrap();
    let event = admin.run("SELECT * FROM stats_tidegate_events").unwrap().table().unwrap();
    let is_told = |row: &Vec<Option<String>>| {
        let has = |wanted: &str| row.iter().flatten().any(|field| field == wanted);
        has("address") && has("127.0.0.11") && has("127.0.0.12")
    };
    assert_eq!(event.iter().filter(|row| is_told(row)).count(), 1, "{event:?}");
    assert!(proxy.log().contains("address: 127.0.0.11 -> 127.0.0.12"));
}

/// The number of a connection belongs to a different connection on the server to which the name leads now.
#[test]
fn a_kill_goes_where_its_statement_runs() {
    const OLD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 13);
    const NEW: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 14);
    let Some(names) = NameServer::start(OLD, 0) else { return };
    let servers = [0, 1].map(|_| Mariadb::start(&Options::new()).unwrap());
    // So that there is room for the same number on the other one.
    for _ in 0..100 {
        servers[0].root().unwrap();
    }
    let (proxy, _port) = proxy_of_both(&names, [OLD, NEW], &servers);
    let [mut victim, mut other] = [(); 2].map(|()| proxy.connect_app().unwrap());
    victim.send_query("SELECT SLEEP(20), 'victim'").unwrap();
    let id = "SELECT id FROM information_schema.processlist WHERE user='app' AND info LIKE '%victim%'";
    let number: u32 = wait::until("it to run", LIMIT, || servers[0].scalar(id).unwrap()).unwrap().parse().unwrap();
    names.moves_to(NEW);
    let new = servers[1].port().to_string();
    wait::until("the name to be moved", LIMIT, || (who(&mut other) == new).then_some(())).unwrap();
    let mut innocent = loop {
        let client = servers[1].root().unwrap();
        assert!(client.connection_id() <= number, "the number was not to be had");
        if client.connection_id() == number {
            break client;
        }
    };
    innocent.send_query("SELECT SLEEP(5), 'innocent'").unwrap();
    other.run(format!("KILL QUERY {}", victim.connection_id())).unwrap();
    let text = lab::client::Encoding::Text;
    let reply = victim.recv_reply(text).unwrap();
    assert!(reply.err().is_some() || reply.scalar().unwrap().as_deref() == Some("1"), "{reply:?}");
    assert_eq!(innocent.recv_reply(text).unwrap().scalar().unwrap().as_deref(), Some("0"), "it was not meant");
}

/// No cluster of RDS: servers whose table says that they are the three instances of one, under names of RDS's domain.
#[test]
fn instances_of_an_rds_cluster_are_found_by_what_one_of_them_says() {
    let Some(names) = NameServer::start(Ipv4Addr::LOCALHOST, 0) else { return };
    let servers = [0, 1, 2].map(|_| Mariadb::start(&Options::new()).unwrap());
    let name = |n: usize| format!("c-instance-{}.x.eu-west-1.rds.amazonaws.com", n + 1);
    let rows = [0, 1, 2].map(|n| format!("({n}, '{}', {})", name(n), servers[n].port())).join(", ");
    for (n, server) in servers.iter().enumerate() {
        server.sql("CREATE TABLE mysql.rds_topology (id INT PRIMARY KEY, endpoint VARCHAR(255), port INT)").unwrap();
        server.sql(&format!("INSERT INTO mysql.rds_topology VALUES {rows}")).unwrap();
        server.sql("GRANT SELECT ON mysql.rds_topology TO monitor@'%'").unwrap();
        server.sql(&format!("SET GLOBAL read_only={}", u8::from(n > 0))).unwrap();
    }
    let builder = Tidegate::builder().server(0, &name(0), servers[0].port()).app_user().name_server(names.address);
    let builder = builder.row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())]);
    let timing = [("monitor_read_only_interval", 100), ("monitor_aws_rds_topology_discovery_interval", 2)];
    let proxy = timing.iter().fold(builder, |builder, (name, value)| builder.variable(name, *value)).start().unwrap();
    let mut admin = proxy.admin().unwrap();
    let mut placed = || -> Vec<(String, String)> {
        let sql = "SELECT hostgroup_id, port FROM runtime_mysql_servers WHERE status='ONLINE' ORDER BY hostgroup_id, hostname";
        let table = admin.run(sql).unwrap().table().unwrap();
        table.iter().map(|row| (row[0].clone().unwrap(), row[1].clone().unwrap())).collect()
    };
    let place = |hostgroup: &str, n: usize| (hostgroup.to_owned(), servers[n].port().to_string());
    let readers = [0, 1, 2].map(|n| place("1", n));
    let with_writer = |n: usize| [&[place("0", n)][..], &readers].concat();
    wait::until("all three", LIMIT, || (placed() == with_writer(0)).then_some(())).unwrap();
    let mut client = proxy.connect_app().unwrap();

    // One that was found takes over, and stays when the configuration is put in force again.
    servers[0].sql("SET GLOBAL read_only=1").unwrap();
    servers[1].sql("SET GLOBAL read_only=0").unwrap();
    wait::until("the new writer", LIMIT, || (placed() == with_writer(1)).then_some(())).unwrap();
    assert_eq!(who(&mut client), servers[1].port().to_string());
    proxy.admin().unwrap().run("LOAD MYSQL SERVERS TO RUNTIME").unwrap();
    assert_eq!(placed(), with_writer(1));

    // A table that is gone changes nothing, and is said once for each server that is asked.
    servers.iter().for_each(|server| drop(server.sql("DROP TABLE mysql.rds_topology").unwrap()));
    let told = || proxy.log().matches("not an instance of an RDS Multi-AZ DB cluster").count();
    wait::until("to be told", LIMIT, || (told() == 3).then_some(())).unwrap();
    let asked = || -> u64 {
        let table = servers[0].sql("SHOW GLOBAL STATUS LIKE 'Com_select'").unwrap().table().unwrap();
        table[0][1].clone().unwrap().parse().unwrap()
    };
    let before = asked();
    wait::until("many checks", LIMIT, || (asked() > before + 40).then_some(())).unwrap();
    assert_eq!((placed(), told()), (with_writer(1), 3));

    // Off, it is as if nothing had been found.
    let mut operator = proxy.admin().unwrap();
    operator.run("SET mysql-monitor_aws_rds_topology_discovery_interval=0").unwrap();
    operator.run("LOAD MYSQL VARIABLES TO RUNTIME").unwrap();
    assert_eq!(placed(), [place("1", 0)]);
}
