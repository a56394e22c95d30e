//! `lab serve`: one database server, or a topology of three, with the proxy before it when asked for, for programs that are
//! not Rust tests.
//!
//! Prints one line of JSON when all of it answers, then waits for the end of its standard input, or for a signal. The
//! proxy gets few backend connections, so that clients must share them.

use std::io::Write;
use std::path::Path;
use std::thread;

use lab::tidegate::Builder;
use lab::topology::Kind;
use lab::{Flavor, LabError, Options, Server, Tidegate, Topology};
use tokio::signal::unix::{SignalKind, signal};

/// Users of the lab's servers that the proxy knows too, with their passwords.
const USERS: &[(&str, &str)] = &[("root", ""), ("app", "app-pass"), ("empty", "")];
/// The largest packet that server and proxy take: more than the 20 MB of the drivers' largest value.
const MAX_PACKET_BYTES: i64 = 64 << 20;

/// Arguments of `lab serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which server: mariadb or mysql.
    #[arg(long, default_value = "mariadb", value_parser = ["mariadb", "mysql"])]
    flavor: String,
    /// Three servers instead of one: replication (semi-synchronous), galera, group (Group Replication), aurora (a stand-in).
    #[arg(long, value_parser = ["replication", "galera", "group", "aurora"])]
    topology: Option<String>,
    /// Start the proxy before it.
    #[arg(long)]
    tidegate: bool,
    /// Backend connections that the proxy may have.
    #[arg(long, default_value_t = 4)]
    backends: u16,
    /// Threads of the proxy.
    #[arg(long, default_value_t = 1)]
    threads: u16,
    /// Unix sockets: the proxy listens on `tidegate.sock` of its directory too, and reaches the server by the server's.
    #[arg(long)]
    socket: bool,
    /// A variable of the proxy's group `mysql_variables`, as NAME=VALUE; may be given again.
    #[arg(long, value_name = "NAME=VALUE")]
    variable: Vec<String>,
    /// An argument of the server; may be given again.
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    server_arg: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), LabError> {
    if let Some(name) = &args.topology {
        return serve_topology(args, name);
    }
    let server = Server::start(flavor(&args.flavor), &server_options(args))?;
    let proxy = if args.tidegate { Some(start_proxy(args, &server)?) } else { None };
    println!("{}", description(&server, proxy.as_ref()));
    // A reader at the other end of a pipe waits for this line.
    let _ = std::io::stdout().flush();
    wait_for_the_end()?;
    if let Some(proxy) = proxy {
        proxy.stop()?;
    }
    Ok(())
}

fn serve_topology(args: &Args, name: &str) -> Result<(), LabError> {
    let kind = match name {
        "galera" => Kind::Galera,
        "group" => Kind::Group,
        "aurora" => Kind::Aurora,
        _ => Kind::Replication(flavor(&args.flavor)),
    };
    let topology = kind.start(&Options::new().args(args.server_arg.iter().cloned()))?;
    let proxy = if args.tidegate { Some(with_variables(args, topology.proxied()).start()?) } else { None };
    println!("{}", describe_topology(&topology, proxy.as_ref()));
    let _ = std::io::stdout().flush();
    wait_for_the_end()?;
    proxy.map_or(Ok(()), |proxy| proxy.stop())
}

fn describe_topology(topology: &Topology, proxy: Option<&Tidegate>) -> String {
    let described = |(server, (host, port)): (&Server, (String, u16))| {
        let (flavor, pid, socket) = (server.flavor().name(), server.pid(), quoted(&server.socket()));
        format!(r#"{{"flavor":"{flavor}","host":"{host}","port":{port},"pid":{pid},"socket":{socket}}}"#)
    };
    let servers: Vec<String> = topology.servers().into_iter().zip(topology.endpoints()).map(described).collect();
    let (name, proxy) = (topology.name(), describe_proxy(proxy));
    format!(r#"{{"topology":"{name}","servers":[{}],"tidegate":{proxy}}}"#, servers.join(","))
}

fn flavor(name: &str) -> Flavor {
    match name {
        "mysql" => Flavor::Mysql,
        _ => Flavor::Mariadb,
    }
}

fn server_options(args: &Args) -> Options {
    Options::new().tls().arg(format!("--max-allowed-packet={MAX_PACKET_BYTES}")).args(args.server_arg.iter().cloned())
}

fn start_proxy(args: &Args, server: &Server) -> Result<Tidegate, LabError> {
    let socket = server.socket().display().to_string();
    let (host, port) = if args.socket { (socket.as_str(), 0) } else { (server.host(), server.port()) };
    let mut builder = Tidegate::builder()
        .server_with(0, host, port, &[("max_connections", i64::from(args.backends).into())])
        .variable("threads", i64::from(args.threads))
        .variable("enable_load_data_local_infile", true)
        .variable("max_allowed_packet", MAX_PACKET_BYTES);
    for (name, password) in USERS {
        builder = builder.user(name, password, 0);
    }
    with_variables(args, builder).start()
}

fn with_variables(args: &Args, mut builder: Builder) -> Builder {
    if args.socket {
        builder = builder.socket();
    }
    for setting in &args.variable {
        let (name, value) = setting.split_once('=').unwrap_or((setting, "true"));
        builder = builder.variable(name, value);
    }
    builder
}

/// Addresses as JSON, on one line. Paths and numbers here need no escaping but of backslash and quote.
fn description(server: &Server, proxy: Option<&Tidegate>) -> String {
    let dir = server.datadir();
    let ca = dir.parent().unwrap_or(Path::new("/")).join("ca.pem");
    let proxy = describe_proxy(proxy);
    format!(
        r#"{{"flavor":"{}","host":"{}","port":{},"pid":{},"socket":{},"ca":{},"tidegate":{proxy}}}"#,
        server.flavor().name(),
        server.host(),
        server.port(),
        server.pid(),
        quoted(&server.socket()),
        quoted(&ca)
    )
}

fn describe_proxy(proxy: Option<&Tidegate>) -> String {
    let described = |proxy: &Tidegate| {
        let (host, port, admin, pid, dir) = (proxy.host(), proxy.port(), proxy.admin_port(), proxy.pid(), quoted(proxy.dir()));
        format!(r#"{{"host":"{host}","port":{port},"admin_port":{admin},"pid":{pid},"dir":{dir}}}"#)
    };
    proxy.map_or("null".to_owned(), described)
}

fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Until standard input ends, or SIGINT or SIGTERM comes.
fn wait_for_the_end() -> Result<(), LabError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| LabError::io("start the runtime", source))?;
    runtime.block_on(async {
        let on = |kind| signal(kind).map_err(|source| LabError::io("wait for signals", source));
        let (mut interrupt, mut terminate) = (on(SignalKind::interrupt())?, on(SignalKind::terminate())?);
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = input_ended() => {}
        }
        Ok(())
    })
}

/// Standard input has no readiness to wait for when it is a file, so a thread reads it. It ends with the process.
async fn input_ended() {
    let (sender, ended) = tokio::sync::oneshot::channel();
    thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = sender.send(());
    });
    let _ = ended.await;
}
