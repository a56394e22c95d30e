//! The real proxy as a child process, with a configuration written for the test.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::client::{Client, ConnectOptions};
use crate::dirs;
use crate::error::{IoContext, LabError};
use crate::port::Port;
use crate::process::Process;
use crate::server::Server;

const START_LIMIT: Duration = Duration::from_secs(90);
/// In its directory: used as `/etc/resolv.conf`, if it exists.
const NAME_SERVER: &str = "resolv.conf";
/// In its directory: the Unix socket for applications, if it was asked for.
pub const SOCKET: &str = "tidegate.sock";
/// Number of the error by which the proxy tells that a connection to a server was lost.
pub const SERVER_LOST: u16 = 1927;
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// One value in the configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// A whole number.
    Int(i64),
    /// `true` or `false`.
    Bool(bool),
    /// A quoted string.
    Text(String),
}

impl From<i64> for Setting {
    fn from(value: i64) -> Self {
        Setting::Int(value)
    }
}

impl From<bool> for Setting {
    fn from(value: bool) -> Self {
        Setting::Bool(value)
    }
}

impl From<&str> for Setting {
    fn from(value: &str) -> Self {
        Setting::Text(value.to_owned())
    }
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Setting::Int(value) => write!(f, "{value}"),
            Setting::Bool(value) => write!(f, "{value}"),
            Setting::Text(value) => write!(f, "\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")),
        }
    }
}

/// A row of a list in the configuration: names and values in order.
type Entry = Vec<(String, Setting)>;

/// The proxy's configuration. Rows have ProxySQL's column names.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    lists: Vec<(&'static str, Vec<Entry>)>,
    mysql_variables: Entry,
    admin_variables: Entry,
    args: Vec<String>,
    program: Option<PathBuf>,
    ports: Option<(u16, u16)>,
    web_port: Option<u16>,
    has_socket: bool,
    name_server: Option<Ipv4Addr>,
}

/// Copies a row written as a literal.
fn entry(fields: &[(&str, Setting)]) -> Entry {
    fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

impl Builder {
    /// Adds a row to any list of `proxysql.cnf`, such as `mysql_query_rules`.
    pub fn row(mut self, list: &'static str, fields: &[(&str, Setting)]) -> Builder {
        match self.lists.iter_mut().find(|(name, _)| *name == list) {
            Some((_, rows)) => rows.push(entry(fields)),
            None => self.lists.push((list, vec![entry(fields)])),
        }
        self
    }

    /// Adds active query rules, numbered from 1.
    pub fn rules(self, rules: &[&[(&str, Setting)]]) -> Builder {
        rules.iter().zip(1_i64..).fold(self, |builder, (rule, id)| {
            let row = [&[("rule_id", id.into()), ("active", 1.into())][..], *rule].concat();
            builder.row("mysql_query_rules", &row)
        })
    }

    /// Adds a server to a hostgroup.
    pub fn server(self, hostgroup: i64, host: &str, port: u16) -> Builder {
        self.server_with(hostgroup, host, port, &[])
    }

    /// Adds a server with more columns, such as `max_connections`.
    pub fn server_with(self, hostgroup: i64, host: &str, port: u16, more: &[(&str, Setting)]) -> Builder {
        let mut fields = vec![("address", host.into()), ("port", i64::from(port).into()), ("hostgroup", hostgroup.into())];
        fields.extend(more.iter().cloned());
        self.row("mysql_servers", &fields)
    }

    /// Adds a lab server to a hostgroup.
    pub fn backend(self, hostgroup: i64, server: &Server) -> Builder {
        self.server(hostgroup, server.host(), server.port())
    }

    /// Adds a user.
    pub fn user(self, name: &str, password: &str, default_hostgroup: i64) -> Builder {
        self.user_with(name, password, default_hostgroup, &[])
    }

    /// Adds a user with more columns, such as `transaction_persistent`.
    pub fn user_with(self, name: &str, password: &str, hostgroup: i64, more: &[(&str, Setting)]) -> Builder {
        let mut fields = vec![("username", name.into()), ("password", password.into()), ("default_hostgroup", hostgroup.into())];
        fields.extend(more.iter().cloned());
        self.row("mysql_users", &fields)
    }

    /// Adds the lab's user `app`.
    pub fn app_user(self) -> Builder {
        self.user("app", "app-pass", 0)
    }

    /// Sets a variable of the group `mysql_variables`, named without its `mysql-` prefix.
    pub fn variable(mut self, name: &str, value: impl Into<Setting>) -> Builder {
        self.mysql_variables.push((name.to_owned(), value.into()));
        self
    }

    /// Sets a variable of the group `admin_variables`, named without its `admin-` prefix.
    pub fn admin_variable(mut self, name: &str, value: impl Into<Setting>) -> Builder {
        self.admin_variables.push((name.to_owned(), value.into()));
        self
    }

    /// Adds a command line argument.
    pub fn arg(mut self, arg: impl Into<String>) -> Builder {
        self.args.push(arg.into());
        self
    }

    /// Listens on these ports (applications, admin) if they are free; else, and by default, on any.
    pub fn preferred_ports(mut self, port: u16, admin_port: u16) -> Builder {
        self.ports = Some((port, admin_port));
        self
    }

    /// Listens on the Unix socket [`SOCKET`] of its directory too.
    pub fn socket(mut self) -> Builder {
        self.has_socket = true;
        self
    }

    /// Asks this name server, on port 53, instead of the machine's. Needs root.
    pub fn name_server(mut self, address: Ipv4Addr) -> Builder {
        self.name_server = Some(address);
        self
    }

    /// Uses this program instead of looking for one.
    pub fn program(mut self, path: impl Into<PathBuf>) -> Builder {
        self.program = Some(path.into());
        self
    }

    /// Serves the web page on loopback, on this port if it is free.
    pub fn web_port(mut self, port: u16) -> Builder {
        self.web_port = Some(port);
        self
    }

    /// The text of `proxysql.cnf`, with the given ports.
    pub fn config(&self, port: u16, admin_port: u16, datadir: &Path) -> String {
        let mut text = format!("datadir={}\n", Setting::Text(datadir.display().to_string()));
        let admin = [("mysql_ifaces", Setting::Text(format!("127.0.0.1:{admin_port}")))];
        push_group(&mut text, "admin_variables", &entry(&admin), &self.admin_variables);
        let socket = if self.has_socket { format!(";{}", datadir.join(SOCKET).display()) } else { String::new() };
        let mysql = [
            ("interfaces", Setting::Text(format!("127.0.0.1:{port}{socket}"))),
            ("monitor_username", "monitor".into()),
            ("monitor_password", "monitor".into()),
        ];
        push_group(&mut text, "mysql_variables", &entry(&mysql), &self.mysql_variables);
        for (name, rows) in &self.lists {
            let rows: Vec<String> = rows.iter().map(|row| format!("    {{ {} }}", fields(row, ", "))).collect();
            text.push_str(&format!("{name} =\n(\n{}\n)\n", rows.join(",\n")));
        }
        text
    }

    /// Starts the proxy and waits until its port answers.
    pub fn start(&self) -> Result<Tidegate, LabError> {
        let program = self.program.clone().map_or_else(find_program, Ok)?;
        let dir = dirs::instance("tidegate")?;
        let (port, admin_port) = match self.ports {
            Some((port, admin_port)) => (Port::prefer(port)?, Port::prefer(admin_port)?),
            None => (Port::reserve()?, Port::reserve()?),
        };
        let config = dir.join("proxysql.cnf");
        let web_port = self.web_port.map(Port::prefer).transpose()?;
        let mut told = self.clone();
        if let Some(port) = &web_port {
            let variables: [(&str, Setting); 3] =
                [("web_enabled", true.into()), ("web_address", "127.0.0.1".into()), ("web_port", i64::from(port.number()).into())];
            told = variables.into_iter().fold(told, |told, (name, value)| told.admin_variable(name, value));
        }
        let text = told.config(port.number(), admin_port.number(), &dir);
        fs::write(&config, text).context(|| format!("write {}", config.display()))?;
        fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).context(|| format!("protect {}", config.display()))?;
        if let Some(address) = self.name_server {
            let file = dir.join(NAME_SERVER);
            fs::write(&file, format!("nameserver {address}\n")).context(|| format!("write {}", file.display()))?;
        }
        let process = launch(&program, &dir, &self.args)?;
        let tidegate = Tidegate { program, process, dir, port, admin_port, web_port };
        tidegate.wait_ready()?;
        Ok(tidegate)
    }
}

/// Starts the program with the files in `dir`.
fn launch(program: &Path, dir: &Path, args: &[String]) -> Result<Process, LabError> {
    let names = dir.join(NAME_SERVER);
    let mut command = if !names.exists() {
        Command::new(program)
    } else {
        // With a view of its own of the file system.
        let script = "mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]).arg(names).arg(program);
        command
    };
    command.arg("-f").arg("-c").arg(dir.join("proxysql.cnf")).arg("-D").arg(dir).args(args);
    Process::start("tidegate", &command, &dir.join("log"))
}

/// A section of variables: the lab's own first, then the test's, of which the last of a name wins.
fn push_group(text: &mut String, name: &str, ours: &Entry, theirs: &Entry) {
    let mut merged: Entry = Vec::new();
    for (key, value) in ours.iter().chain(theirs) {
        merged.retain(|(known, _)| known != key);
        merged.push((key.clone(), value.clone()));
    }
    text.push_str(&format!("{name} =\n{{\n    {}\n}}\n", fields(&merged, "\n    ")));
}

fn fields(entry: &Entry, separator: &str) -> String {
    let parts: Vec<String> = entry.iter().map(|(name, value)| format!("{name}={value}")).collect();
    parts.join(separator)
}

/// A running proxy. Killed and its files removed when dropped; when that happens in a failing test its log is printed.
#[derive(Debug)]
pub struct Tidegate {
    program: PathBuf,
    process: Process,
    dir: PathBuf,
    port: Port,
    admin_port: Port,
    web_port: Option<Port>,
}

impl Tidegate {
    /// Begins a configuration.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Always `127.0.0.1`.
    pub fn host(&self) -> &'static str {
        "127.0.0.1"
    }

    /// The port for applications.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The port of the admin interface.
    pub fn admin_port(&self) -> u16 {
        self.admin_port.number()
    }

    /// The port of the web page, if it was asked for.
    pub fn web_port(&self) -> Option<u16> {
        self.web_port.as_ref().map(Port::number)
    }

    /// `host:port` for applications.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// Its directory: configuration, log and data.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Everything it logged so far.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Its log since byte `offset`, and the offset for the next call.
    pub fn log_since(&self, offset: u64) -> (String, u64) {
        self.process.log_since(offset)
    }

    /// Options to connect through it.
    pub fn options(&self, user: &str, password: &str) -> ConnectOptions {
        ConnectOptions::tcp(self.address(), user, password)
    }

    /// Connects through it as `app` with schema `test`.
    pub fn connect_app(&self) -> Result<Client, LabError> {
        Client::connect(&self.options("app", "app-pass").database("test"))
    }

    /// For connections to the admin interface.
    pub fn admin_options(&self) -> ConnectOptions {
        ConnectOptions::tcp(format!("127.0.0.1:{}", self.admin_port()), "admin", "admin")
    }

    /// Connects to the admin interface.
    pub fn admin(&self) -> Result<Client, LabError> {
        Client::connect(&self.admin_options())
    }

    /// Resident memory in bytes.
    pub fn rss_bytes(&self) -> Result<u64, LabError> {
        self.process.rss_bytes()
    }

    /// Processor time used so far, in clock ticks of 10 ms.
    pub fn cpu_ticks(&self) -> Result<u64, LabError> {
        self.process.cpu_ticks()
    }

    /// The configuration file.
    pub fn config_file(&self) -> PathBuf {
        self.dir.join("proxysql.cnf")
    }

    /// Kills it if it runs, and starts it again on the same ports and files with these arguments; waits until it answers.
    pub fn start_again(&mut self, args: &[&str]) -> Result<(), LabError> {
        self.kill9();
        let listens = !args.iter().any(|arg| ["-n", "--no-start"].contains(arg));
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.process = launch(&self.program, &self.dir, &args)?;
        if listens { self.wait_ready() } else { self.wait_admin() }
    }

    /// Has a process of this program (None for its own) take its place, and waits for its end. Answers how long the admin command took.
    pub fn upgrade(&mut self, program: Option<&Path>) -> Result<Duration, LabError> {
        let command = program.map_or("PROXYSQL UPGRADE".to_owned(), |path| format!("PROXYSQL UPGRADE '{}'", path.display()));
        let began = std::time::Instant::now();
        let info = self.admin()?.run(command)?.ok()?.info.clone();
        let took = began.elapsed();
        self.follow(&info)?;
        Ok(took)
    }

    /// A process takes its place, as the answer to PROXYSQL UPGRADE says: waits for the end of the one before.
    pub fn follow(&mut self, answer: &str) -> Result<(), LabError> {
        let pid = answer.split(' ').find_map(|word| word.parse().ok());
        let pid = pid.ok_or_else(|| LabError::Protocol(format!("no process takes over: {answer}")))?;
        self.process.follow(pid, STOP_LIMIT)?;
        Ok(())
    }

    /// Waits until its port answers.
    pub fn wait_ready(&self) -> Result<(), LabError> {
        let address = self.address();
        self.process.wait_ready(START_LIMIT, || TcpStream::connect(&address).ok())?;
        // The last to open.
        self.wait_admin()
    }

    fn wait_admin(&self) -> Result<(), LabError> {
        let admin = format!("127.0.0.1:{}", self.admin_port());
        self.process.wait_ready(START_LIMIT, || TcpStream::connect(&admin).ok()).map(drop)
    }

    /// Waits for its end, however it comes.
    pub fn wait_exit(&self) -> Result<std::process::ExitStatus, LabError> {
        self.process.wait_exit(STOP_LIMIT)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Kills it as a crash would.
    pub fn kill9(&self) {
        self.process.kill9();
    }

    /// `SIGTERM`; fails unless it ends with exit code 0 in time.
    pub fn stop(&self) -> Result<(), LabError> {
        self.process.stop(STOP_LIMIT)
    }

    /// How it ended, if it did.
    pub fn exit_status(&self) -> Option<std::process::ExitStatus> {
        self.process.exit_status()
    }
}

impl Drop for Tidegate {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("---- tidegate's log\n{}---- end of tidegate's log", self.log());
        }
        self.kill9();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The proxy's program: `TIDEGATE_BIN`; else the one built beside the running test or program, in the same profile.
pub fn find_program() -> Result<PathBuf, LabError> {
    if let Some(path) = env::var_os("TIDEGATE_BIN") {
        let path = PathBuf::from(path);
        return if path.exists() { Ok(path) } else { Err(LabError::NoFile(path)) };
    }
    let own = env::current_exe().context(|| "find this program".to_owned())?;
    // Tests run from target/<profile>/deps/, binaries from target/<profile>/.
    let found = own.ancestors().skip(1).take(2).map(|dir| dir.join("tidegate")).find(|path| path.is_file());
    found.ok_or_else(|| LabError::Missing { program: "tidegate".to_owned(), remedy: "cargo build -p tidegate" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_text() {
        let text = Tidegate::builder()
            .server_with(1, "127.0.0.1", 3306, &[("max_connections", 5.into())])
            .user("a\"b", "p", 1)
            .variable("threads", 2)
            .variable("threads", 4)
            .config(6033, 6032, Path::new("/d"));
        assert!(text.contains("threads=4") && !text.contains("threads=2"));
        assert!(text.contains(r#"username="a\"b""#));
        assert!(text.contains("hostgroup=1, max_connections=5 }"));
        assert!(text.contains(r#"interfaces="127.0.0.1:6033""#));
    }
}
