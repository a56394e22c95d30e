//! Throw-away database servers on loopback: real ones, started in well under a second, gone when dropped.
//!
//! Every server has these users: `root` without a password (socket and TCP), `app`/`app-pass` with all rights on `test` and on databases
//! named `test_...`, `empty` without a password, `tls`/`tls-pass` only over TLS, `monitor`/`monitor`, `repl`/`repl-pass`. MariaDB also has
//! `native`/`native-pass` and `ed`/`ed-pass` (ed25519), MySQL `sha256`/`sha256-pass`. MySQL's other users have caching_sha2_password.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::Signal;

use crate::client::{Client, ConnectOptions, Reply};
use crate::dirs;
use crate::error::LabError;
use crate::flavor::{Flavor, Installation, flag};
use crate::network::Site;
use crate::port::Port;
use crate::process::Process;
use crate::template::Seed;
use crate::{certs, template};

/// The address of servers without a network of their own.
const LOOPBACK: &str = "127.0.0.1";

/// A start normally takes 0.3 s; the limit is for a loaded machine.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Orderly stop. Servers flush little, the limit is generous.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// The differences from a default start.
#[derive(Clone, Debug, Default)]
pub struct Options {
    args: Vec<OsString>,
    envs: Vec<(String, OsString)>,
    server_id: Option<u32>,
    tls: bool,
    seed: Seed,
    site: Option<Arc<Site>>,
    mariadb: Option<String>,
}

impl Options {
    /// A server with small settings, a server id of its own, no binary log on MariaDB.
    pub fn new() -> Options {
        Options::default()
    }

    /// The MariaDB of this version that `scripts/setup mariadb-VERSION` unpacked, such as `11.8`.
    pub fn mariadb(mut self, version: &str) -> Options {
        self.mariadb = Some(version.to_owned());
        self
    }

    /// Whether both name the same version of MariaDB.
    pub(crate) fn is_of_another_version(&self, other: &Options) -> bool {
        self.mariadb != other.mariadb
    }

    /// Adds a server argument, such as `--log-bin=bin`; later arguments win.
    pub fn arg(mut self, arg: impl Into<OsString>) -> Options {
        self.args.push(arg.into());
        self
    }

    /// Adds several server arguments.
    pub fn args<S: Into<OsString>>(mut self, args: impl IntoIterator<Item = S>) -> Options {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets `server_id` (default: a number that no other server of this process has).
    pub fn server_id(mut self, id: u32) -> Options {
        self.server_id = Some(id);
        self
    }

    /// Gives the server a certificate from the lab's own authority, see [`Server::ca_pem`]. Without this MariaDB has no TLS,
    /// and MySQL has TLS with a certificate it made itself.
    pub fn tls(mut self) -> Options {
        self.tls = true;
        self
    }

    /// A crash loses nothing that was acknowledged, neither from the tables nor from the binary log, and leaves no page half
    /// written. On a memory file system that costs little.
    pub fn durable(self) -> Options {
        self.args(["--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1", "--innodb-doublewrite=ON"])
    }

    /// Sets a variable of the server's environment.
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Options {
        self.envs.push((name.to_owned(), value.into()));
        self
    }

    /// Runs the server in a network of its own, where it can be cut off; see [`crate::network`].
    pub fn site(mut self, site: &Arc<Site>) -> Options {
        self.site = Some(Arc::clone(site));
        self
    }

    /// Starts from another prepared data directory than the plain one.
    pub(crate) fn seed(mut self, seed: Seed) -> Options {
        self.seed = seed;
        self
    }
}

/// MariaDB of this machine.
#[derive(Debug)]
pub struct Mariadb;

impl Mariadb {
    /// Starts one and waits until it answers.
    pub fn start(options: &Options) -> Result<Server, LabError> {
        Server::start(Flavor::Mariadb, options)
    }
}

/// Oracle's MySQL as unpacked by `scripts/setup mysql`.
#[derive(Debug)]
pub struct Mysql;

impl Mysql {
    /// Starts one and waits until it answers.
    pub fn start(options: &Options) -> Result<Server, LabError> {
        Server::start(Flavor::Mysql, options)
    }
}

/// One running (or killed, or stopped) database server. Killed and its files removed when dropped.
#[derive(Debug)]
pub struct Server {
    flavor: Flavor,
    name: String,
    host: String,
    dir: PathBuf,
    port: Port,
    command: Command,
    ca_pem: Option<String>,
    process: Mutex<Process>,
    /// The network lives as long as the server.
    _site: Option<Arc<Site>>,
}

impl Server {
    /// Starts a server of `flavor` from a copy of its template and waits until it answers.
    pub fn start(flavor: Flavor, options: &Options) -> Result<Server, LabError> {
        let server = Server::launch(flavor, options)?;
        server.wait_ready()?;
        Ok(server)
    }

    /// Starts a server without waiting for it, so that several can start at the same time; see [`Server::wait_ready`].
    pub fn launch(flavor: Flavor, options: &Options) -> Result<Server, LabError> {
        Server::launch_with(flavor, options, &[])
    }

    /// As [`Server::launch`], with arguments for this first start only.
    pub(crate) fn launch_with(flavor: Flavor, options: &Options, once: &[String]) -> Result<Server, LabError> {
        let installation = match &options.mariadb {
            Some(version) => Installation::unpacked_mariadb(version)?,
            None => Installation::find(flavor)?,
        };
        let dir = dirs::instance(flavor.name())?;
        template::copy_to(&installation, options.seed, &dir.join("data"))?;
        let port = Port::reserve()?;
        let host = options.site.as_ref().map_or(LOOPBACK, |site| site.host()).to_owned();
        let mut command = command(&installation, &dir, &host, &port, options);
        let ca_pem = if options.tls { Some(add_tls(&mut command, &dir)?) } else { None };
        command.args(&options.args).envs(options.envs.iter().map(|(name, value)| (name, value)));
        let command = options.site.as_ref().map_or_else(|| again(&command), |site| site.enter(&command));
        let name = format!("{} on port {}", flavor.name(), port.number());
        let process = Mutex::new(Process::start(&name, again(&command).args(once), &dir.join("log"))?);
        Ok(Server { flavor, name, host, dir, port, command, ca_pem, process, _site: options.site.clone() })
    }

    /// Waits until the server answers on its socket and its port; fails at once, with its log, when it ends instead.
    pub fn wait_ready(&self) -> Result<(), LabError> {
        let socket = self.socket();
        self.process().wait_ready(START_LIMIT, || greets(&socket))
    }

    /// Which product it is.
    pub fn flavor(&self) -> Flavor {
        self.flavor
    }

    /// `127.0.0.1`, unless it has a network of its own.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// TCP port; stays the same over [`Server::restart`].
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// `host:port`.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host(), self.port())
    }

    /// Path of the unix socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("sock")
    }

    /// The data directory.
    pub fn datadir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// The authority that signed the certificate, when [`Options::tls`] was asked for.
    pub fn ca_pem(&self) -> Option<&str> {
        self.ca_pem.as_deref()
    }

    /// Process id of the server as it runs now.
    pub fn pid(&self) -> u32 {
        self.process().pid()
    }

    /// Everything the server wrote to its error log.
    pub fn log(&self) -> String {
        self.process().log()
    }

    /// Connects as `root` over the unix socket.
    pub fn root(&self) -> Result<Client, LabError> {
        Client::connect(&ConnectOptions::unix(self.socket(), "root", ""))
    }

    /// Runs one statement as `root` on a connection of its own; a server's error is an `Err`.
    pub fn sql(&self, statement: &str) -> Result<Reply, LabError> {
        self.root()?.run(statement)
    }

    /// The first field of the first row of a query run as `root`; `None` for NULL or no row.
    pub fn scalar(&self, query: &str) -> Result<Option<String>, LabError> {
        self.sql(query)?.scalar()
    }

    /// Kills it as a crash would; [`Server::restart`] brings it back.
    pub fn kill9(&self) {
        self.process().kill9();
    }

    /// Freezes it: connections stay, nothing answers. Returns when none of its threads runs any more.
    pub fn sigstop(&self) {
        self.process().freeze();
    }

    /// Ends a [`Server::sigstop`].
    pub fn sigcont(&self) {
        self.process().signal(Signal::CONT);
    }

    /// Orderly shutdown.
    pub fn stop(&self) -> Result<(), LabError> {
        self.process().stop(STOP_LIMIT)
    }

    /// Stops it in good order if it runs, and starts it again on the same port and data; waits until it answers.
    pub fn restart(&self) -> Result<(), LabError> {
        self.restart_with::<&str>(&[])
    }

    /// As [`Server::restart`], with more arguments for this one start.
    pub fn restart_with<S: AsRef<str>>(&self, args: &[S]) -> Result<(), LabError> {
        self.relaunch(args)?;
        self.wait_ready()
    }

    /// As [`Server::restart_with`], without waiting for the server to answer.
    pub fn relaunch<S: AsRef<str>>(&self, args: &[S]) -> Result<(), LabError> {
        let mut process = self.process();
        if process.exit_status().is_none() {
            process.stop(STOP_LIMIT)?;
        }
        let _ = fs::remove_file(self.socket());
        let mut command = again(&self.command);
        command.args(args.iter().map(AsRef::as_ref));
        *process = Process::start(&self.name, &command, &self.dir.join("log"))?;
        Ok(())
    }

    /// Runs the server's program to its end with more arguments, while the server itself does not run. Returns its output.
    pub(crate) fn run_aside(&self, args: &[&str]) -> Result<String, LabError> {
        let log = self.dir.join("aside.log");
        let _ = fs::remove_file(&log);
        let process = Process::start(&self.name, again(&self.command).args(args), &log)?;
        process.wait_exit(START_LIMIT)?;
        Ok(process.log())
    }

    /// How the server ended, if it did.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        self.process().exit_status()
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill9();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The command line of one instance, without the caller's own arguments.
fn command(installation: &Installation, dir: &Path, host: &str, port: &Port, options: &Options) -> Command {
    static NEXT_ID: AtomicU32 = AtomicU32::new(1);
    let id = options.server_id.unwrap_or_else(|| NEXT_ID.fetch_add(1, Ordering::Relaxed));
    let mut command = installation.server_command(&dir.join("data"));
    command
        .arg(flag("--socket", &dir.join("sock")))
        .arg(flag("--pid-file", &dir.join("pid")))
        .arg(flag("--tmpdir", dir))
        .arg(format!("--bind-address={host}"))
        .arg(format!("--report-host={host}"))
        .arg(format!("--port={}", port.number()))
        .arg(format!("--report-port={}", port.number()))
        .arg(format!("--server-id={id}"));
    command
}

/// A copy: a `Command` cannot be cloned.
fn again(command: &Command) -> Command {
    let mut copy = Command::new(command.get_program());
    copy.args(command.get_args());
    copy.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
    copy
}

/// Writes a certificate for the server and adds the flags that use it; gives the authority's PEM.
fn add_tls(command: &mut Command, dir: &Path) -> Result<String, LabError> {
    let files = certs::write_server_files(dir)?;
    command.arg(flag("--ssl-ca", &files.ca)).arg(flag("--ssl-cert", &files.certificate)).arg(flag("--ssl-key", &files.key));
    Ok(files.ca_pem)
}

/// Whether a server sends its greeting on this unix socket (an error packet such as "too many connections" is no greeting).
pub(crate) fn greets(socket: &Path) -> Option<()> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let mut start = [0_u8; 5];
    stream.read_exact(&mut start).ok()?;
    (start[4] == 10).then_some(())
}
