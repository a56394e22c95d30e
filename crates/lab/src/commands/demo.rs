//! `lab demo`: a MariaDB primary with two GTID replicas, and the proxy before them with its log on the terminal.

use std::time::Duration;

use lab::tidegate::Builder;
use lab::{Client, Flavor, LabError, Options, Replication, Tidegate};
use tokio::signal::unix::{SignalKind, signal};

/// ProxySQL's usual ports; others are taken when these are not free.
const USUAL_PORTS: (u16, u16) = (6033, 6032);
/// How often the proxy's log is carried to the terminal.
const LOG_INTERVAL: Duration = Duration::from_millis(200);
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
}

pub(crate) fn run(args: &Args) -> Result<(), LabError> {
    let flavor = if args.mysql { Flavor::Mysql } else { Flavor::Mariadb };
    println!("starting a {} primary and {} replicas", flavor.name(), args.replicas);
    let topology = Replication::start(flavor, args.replicas, &Options::new())?;
    let proxy = configuration(&topology).start()?;
    println!("{}", introduction(&topology, &proxy));
    if args.check {
        check(&topology, &proxy)?;
    } else {
        foreground(&proxy)?;
    }
    proxy.stop()?;
    println!("stopped");
    Ok(())
}

/// The primary takes writes, the replicas take reads.
fn configuration(topology: &Replication) -> Builder {
    let mut builder = Tidegate::builder().preferred_ports(USUAL_PORTS.0, USUAL_PORTS.1);
    builder = builder.backend(WRITER, &topology.primary);
    for replica in &topology.replicas {
        builder = builder.backend(READER, replica);
    }
    builder
        .user_with("app", "app-pass", WRITER, &[("attributes", r#"{"read_write_split": true}"#.into())])
        .row("mysql_replication_hostgroups", &[("writer_hostgroup", WRITER.into()), ("reader_hostgroup", READER.into())])
}

fn introduction(topology: &Replication, proxy: &Tidegate) -> String {
    let mut text = format!("\n  primary      {}\n", topology.primary.address());
    for replica in &topology.replicas {
        text.push_str(&format!("  replica      {}\n", replica.address()));
    }
    text.push_str(&format!("  the proxy    {}\n\nconnect with\n\n", proxy.address()));
    text.push_str(&format!("  mariadb -h127.0.0.1 -P{} -uapp -papp-pass test\n", proxy.port()));
    text.push_str(&format!("\nand look at it with\n\n  mariadb -h127.0.0.1 -P{} -uadmin -padmin\n", proxy.admin_port()));
    text.push_str("  > SELECT hostgroup, digest_text, count_star FROM stats_mysql_query_digest;\n");
    text.push_str("  > EXPLAIN ROUTE 'SELECT * FROM t FOR UPDATE' USER app;\n");
    text.push_str("\nreads go to the replicas, all else to the primary; Ctrl-C stops everything\n");
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
fn foreground(proxy: &Tidegate) -> Result<(), LabError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| LabError::io("start the runtime", source))?;
    runtime.block_on(async {
        let on = |kind| signal(kind).map_err(|source| LabError::io("wait for signals", source));
        let (mut interrupt, mut terminate) = (on(SignalKind::interrupt())?, on(SignalKind::terminate())?);
        let mut tick = tokio::time::interval(LOG_INTERVAL);
        let mut shown = 0;
        loop {
            tokio::select! {
                _ = interrupt.recv() => return Ok(()),
                _ = terminate.recv() => return Ok(()),
                _ = tick.tick() => shown = show_log(proxy, shown),
            }
            if let Some(status) = proxy.exit_status() {
                let (name, status) = ("tidegate".to_owned(), status.to_string());
                return Err(LabError::Exited { name, status, log_tail: String::new() });
            }
        }
    })
}

/// Prints what the log has gained since byte `shown`; gives the place for the next time.
fn show_log(proxy: &Tidegate, shown: u64) -> u64 {
    let (text, now) = proxy.log_since(shown);
    print!("{text}");
    now
}
