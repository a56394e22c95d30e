//! `lab demo`: a MariaDB primary with two GTID replicas, and the proxy before them with its log on the terminal. With `--fleet` there are
//! two proxies, and etcd, in which they share their configuration.

use std::time::Duration;

use lab::etcd::{self, Etcd};
use lab::tidegate::Builder;
use lab::{Client, Flavor, LabError, Options, Replication, Tidegate, wait};
use tokio::signal::unix::{SignalKind, signal};

/// ProxySQL's usual ports; other ones are used if these are taken.
const USUAL_PORTS: (u16, u16) = (6033, 6032);
/// The web page's.
const USUAL_WEB_PORT: u16 = 6080;
/// How often the proxy's log is carried to the terminal.
const LOG_INTERVAL: Duration = Duration::from_millis(200);
/// How long two proxies may take to agree.
const SHARED_LIMIT: Duration = Duration::from_secs(20);
/// Hostgroup of the primary.
const WRITER: i64 = 0;
/// Hostgroup of the replicas.
const READER: i64 = 1;

/// Arguments of `lab demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run a write and a read through the proxy, stop everything, and say whether all went well.
    #[arg(long)]
    check: bool,
    /// MySQL instead of MariaDB.
    #[arg(long)]
    mysql: bool,
    /// How many replicas.
    #[arg(long, default_value_t = 2)]
    replicas: usize,
    /// Two proxies that share their configuration, and etcd.
    #[arg(long)]
    fleet: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), LabError> {
    let flavor = if args.mysql { Flavor::Mysql } else { Flavor::Mariadb };
    println!("starting a {} primary and {} replicas", flavor.name(), args.replicas);
    let topology = Replication::start(flavor, args.replicas, &Options::new())?;
    topology.allow_switchover()?;
    let etcd = args.fleet.then(|| Etcd::start(etcd::Options::default())).transpose()?;
    let proxies = match &etcd {
        None => vec![configuration(&topology).start()?],
        Some(etcd) => {
            let one = || configuration(&topology).admin_variable("shared_config_endpoints", etcd.endpoints().as_str()).start();
            let two = vec![one()?, one()?];
            wait::until("etcd to be reached", SHARED_LIMIT, || two[0].admin().ok()?.run("CONFIG SHARE").ok().map(drop))?;
            two
        }
    };
    println!("{}", introduction(&topology, &proxies, etcd.as_ref()));
    if args.check {
        check(&topology, &proxies[0])?;
        if let [one, two] = &proxies[..] {
            check_shared(one, two)?;
        }
    } else {
        foreground(&proxies)?;
    }
    for proxy in &proxies {
        proxy.stop()?;
    }
    println!("stopped");
    Ok(())
}

/// A change on one proxy is in force on the other.
fn check_shared(one: &Tidegate, two: &Tidegate) -> Result<(), LabError> {
    let mut admin = one.admin()?;
    admin.run("INSERT INTO mysql_users (username, password) VALUES ('fleet', 'x')")?;
    admin.run("LOAD MYSQL USERS TO RUNTIME")?;
    let asked = "SELECT COUNT(*) FROM runtime_mysql_users WHERE username = 'fleet' AND frontend = 1";
    wait::until("the other proxy to have the user", SHARED_LIMIT, || (two.admin().ok()?.scalar(asked).ok()?? == "1").then_some(()))?;
    println!("check: a LOAD on one proxy is in force on both");
    Ok(())
}

/// The primary takes writes, the replicas take all plain reads.
fn configuration(topology: &Replication) -> Builder {
    let mut builder = Tidegate::builder().preferred_ports(USUAL_PORTS.0, USUAL_PORTS.1).web_port(USUAL_WEB_PORT);
    builder = builder.backend(WRITER, &topology.primary);
    for replica in &topology.replicas {
        builder = builder.backend(READER, replica);
    }
    builder
        .variable("switchover_manages_read_only", true)
        .variable("replication_username", "repl")
        .variable("replication_password", "repl-pass")
        .variable("monitor_writer_is_also_reader", false)
        .user_with("app", "app-pass", WRITER, &[("attributes", r#"{"read_write_split": true}"#.into())])
        .row("mysql_replication_hostgroups", &[("writer_hostgroup", WRITER.into()), ("reader_hostgroup", READER.into())])
}

fn introduction(topology: &Replication, proxies: &[Tidegate], etcd: Option<&Etcd>) -> String {
    let proxy = &proxies[0];
    let mut text = format!("\n  primary      {}\n", topology.primary.address());
    for replica in &topology.replicas {
        text.push_str(&format!("  replica      {}\n", replica.address()));
    }
    for proxy in proxies {
        text.push_str(&format!("  a proxy      {} (administrators: 127.0.0.1:{})\n", proxy.address(), proxy.admin_port()));
    }
    if let Some(etcd) = etcd {
        text.push_str(&format!("  etcd         {}\n", etcd.endpoints()));
    }
    text.push_str("\nconnect with\n\n");
    text.push_str(&format!("  mariadb -h127.0.0.1 -P{} -uapp -papp-pass test\n", proxy.port()));
    text.push_str(&format!("\nand look at it with\n\n  mariadb -h127.0.0.1 -P{} -uadmin -padmin\n", proxy.admin_port()));
    text.push_str("  > SELECT hostgroup, digest_text, count_star FROM stats_mysql_query_digest;\n");
    text.push_str("  > EXPLAIN ROUTE 'SELECT * FROM t FOR UPDATE' USER app;\n");
    if etcd.is_some() {
        text.push_str("  > SELECT * FROM stats_tidegate_proxies;\n");
        text.push_str("  > SET mysql-max_connections = 2000; LOAD MYSQL VARIABLES TO RUNTIME;   -- in force on both\n");
        text.push_str("  > CONFIG HISTORY SHARED;\n");
    }
    if let Some(port) = proxy.web_port() {
        text.push_str(&format!("\nor open http://127.0.0.1:{port} in a browser: user admin, password admin\n"));
    }
    text.push_str("\nPlain reads of tables go to the replicas; writes, transactions and locking reads go to the primary.\n");
    text.push_str("A statement that asks for @@hostname or @@port always goes to the primary. To see the split, run\n\n");
    text.push_str("  > CREATE TABLE t (i INT PRIMARY KEY); INSERT INTO t VALUES (1); SELECT i FROM t;\n");
    text.push_str("\nand look at `hostgroup` in stats_mysql_query_digest: 0 is the primary, 1 are the replicas.\n");
    text.push_str("\nCtrl-C stops everything.\n");
    text
}

/// A write and a read through the proxy.
fn check(topology: &Replication, proxy: &Tidegate) -> Result<(), LabError> {
    let mut client: Client = proxy.connect_app()?;
    client.run("CREATE TABLE demo(i INT PRIMARY KEY)")?;
    client.run("INSERT INTO demo VALUES(42)")?;
    topology.wait_caught_up()?;
    let read = client.scalar("SELECT i FROM demo")?;
    if read.as_deref() != Some("42") {
        return Err(LabError::Protocol(format!("wrote 42, read {read:?}")));
    }
    let asked = "SELECT hostgroup FROM stats_mysql_query_digest WHERE digest_text = 'SELECT i FROM demo'";
    let hostgroup = proxy.admin()?.scalar(asked)?;
    if hostgroup != Some(READER.to_string()) {
        return Err(LabError::Protocol(format!("the read went to hostgroup {hostgroup:?}")));
    }
    println!("check: wrote to the primary and read from a replica");
    client.quit()
}

/// Shows the proxy's log until a signal comes or the proxy ends.
fn foreground(proxies: &[Tidegate]) -> Result<(), LabError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| LabError::io("start the runtime", source))?;
    runtime.block_on(async {
        let on = |kind| signal(kind).map_err(|source| LabError::io("wait for signals", source));
        let (mut interrupt, mut terminate) = (on(SignalKind::interrupt())?, on(SignalKind::terminate())?);
        let mut tick = tokio::time::interval(LOG_INTERVAL);
        let mut shown = vec![0; proxies.len()];
        loop {
            tokio::select! {
                _ = interrupt.recv() => return Ok(()),
                _ = terminate.recv() => return Ok(()),
                _ = tick.tick() => proxies.iter().zip(&mut shown).for_each(|(proxy, shown)| *shown = show_log(proxy, *shown)),
            }
            if let Some(status) = proxies.iter().find_map(Tidegate::exit_status) {
                let (name, status) = ("tidegate".to_owned(), status.to_string());
                return Err(LabError::Exited { name, status, log_tail: String::new() });
            }
        }
    })
}

/// Prints the log from byte `shown` on. Returns the place for the next call.
fn show_log(proxy: &Tidegate, shown: u64) -> u64 {
    let (text, now) = proxy.log_since(shown);
    print!("{text}");
    now
}
