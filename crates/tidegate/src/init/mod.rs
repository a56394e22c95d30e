//! `tidegate init`: looks at a server, finds the servers that belong to it, and writes a complete configuration file.
//!
//! Nothing is changed on any server unless `--create-accounts` is given, and no file is overwritten unless `--force` is.

mod password;
mod plan;

use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use model::{Secret, ServerAddr};
use monitor::{Account, Survey};
use plan::{Choices, Kind, Plan};

/// The data directory of packages.
const PACKAGE_DATADIR: &str = "/var/lib/tidegate";
/// The part of the descriptors that clients may use. The rest is for servers and for the process itself.
const CLIENTS_SHARE: (u64, u64) = (3, 4);
/// Most clients that a new file allows, whatever the limit of open files is.
const CLIENTS_MAX: u64 = 10_000;

/// What is looked at, and what is written.
#[derive(Args, Debug, Clone)]
pub(crate) struct InitOptions {
    /// A server of the cluster: host, host:port, or the path of a Unix socket.
    #[arg(long, value_name = "HOST:PORT")]
    server: String,
    /// An account that may read replication status and, with --create-accounts, create accounts.
    ///
    /// Its password is read from --password-file, from the environment variable MYSQL_PWD, or asked for.
    #[arg(long, default_value = "root")]
    user: String,
    /// A file that holds the password of --user.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Use TLS towards the servers, now and in the file. Certificates are not verified.
    #[arg(long)]
    ssl: bool,
    /// The file that is written.
    #[arg(short, long, default_value = "tidegate.cnf")]
    output: PathBuf,
    /// Overwrite the file.
    #[arg(long)]
    force: bool,
    /// The applications' user.
    ///
    /// If the environment variable TIDEGATE_APP_PASSWORD is set, the account exists and has that password. Otherwise a password is generated.
    #[arg(long, default_value = "app")]
    app_user: String,
    /// The monitor's user.
    ///
    /// If the environment variable TIDEGATE_MONITOR_PASSWORD is set, the account exists and has that password. Otherwise a password is generated.
    #[arg(long, default_value = "tidegate_monitor")]
    monitor_user: String,
    /// The schema on which the applications' user gets its rights.
    #[arg(long)]
    database: Option<String>,
    /// Run the CREATE USER and GRANT statements instead of printing them only.
    #[arg(long)]
    create_accounts: bool,
    /// Where clients connect to.
    #[arg(long, default_value = "0.0.0.0:6033")]
    listen: String,
    /// Where administrators connect to.
    #[arg(long, default_value = "127.0.0.1:6032")]
    admin_listen: String,
}

/// Looks, writes the file, creates or prints the accounts, and checks the file.
///
/// # Errors
/// What cannot be reached, read or written. The file is written before accounts are created, so that no generated password is lost.
pub(crate) fn init(options: &InitOptions) -> Result<()> {
    if options.output.exists() && !options.force {
        bail!("{} exists: name another file with --output, or overwrite it with --force", options.output.display());
    }
    let first = address(&options.server)?;
    let account = Account {
        user: options.user.clone(),
        password: server_password(&options.user, options.password_file.as_deref())?,
        use_ssl: options.ssl,
    };
    let survey = monitor::survey(&first, &account).map_err(|why| anyhow::anyhow!("{first}: {why}"))?;
    let plan = plan::plan(&survey);
    say_what_was_found(&plan, &survey);
    let existing = |name: &str| std::env::var(name).ok().filter(|password| !password.is_empty());
    let (app, monitor) = (existing("TIDEGATE_APP_PASSWORD"), existing("TIDEGATE_MONITOR_PASSWORD"));
    let (has_app, has_monitor) = (app.is_some(), monitor.is_some());
    let choices = choices(options, app, monitor)?;
    let statements = plan::accounts(&plan, &choices, has_app, has_monitor);
    if options.create_accounts {
        refuse_existing(options, &plan, &account, &[(has_app, &choices.app.0), (has_monitor, &choices.monitor.0)])?;
    }
    write(&options.output, &plan::file(&plan, &choices))?;
    println!("\nwrote {}, which holds passwords", options.output.display());
    create_accounts(options, &plan, &account, &choices, &statements)?;
    println!("\n$ tidegate check {}", options.output.display());
    crate::check::check(&options.output, false)?;
    say_what_next(options, &plan);
    Ok(())
}

/// `db1`, `db1:3307`, `[::1]:3306`, `/run/mysqld/mysqld.sock`.
pub(crate) fn address(text: &str) -> Result<ServerAddr> {
    if text.starts_with('/') {
        return Ok(ServerAddr { host: text.into(), port: 0 });
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if host.ends_with(']') || !host.contains(':') => {
            (host, port.parse().ok().filter(|port| *port != 0).with_context(|| format!("{text}: {port} is no port"))?)
        }
        _ => (text, 3306),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        bail!("{text}: a host, host:port or the path of a Unix socket is needed");
    }
    Ok(ServerAddr { host: host.into(), port })
}

/// From a file, the environment, or the terminal.
pub(crate) fn server_password(user: &str, file: Option<&Path>) -> Result<Secret> {
    if let Some(path) = file {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        return Ok(Secret::new(text.trim_end_matches(['\r', '\n'])));
    }
    match std::env::var("MYSQL_PWD") {
        Ok(password) => Ok(Secret::new(password)),
        Err(_) => password::ask(&format!("password of {user}: ")),
    }
}

fn choices(options: &InitOptions, app: Option<String>, monitor: Option<String>) -> Result<Choices> {
    // Absolute: started from another directory, the proxy must not find an empty one.
    let datadir = if Path::new(PACKAGE_DATADIR).is_dir() { PathBuf::from(PACKAGE_DATADIR) } else { std::path::absolute("data")? };
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(CLIENTS_MAX * 2);
    let or_new = |password: Option<String>| password.map_or_else(password::generate, Ok);
    let (app_password, monitor_password) = (or_new(app)?, or_new(monitor)?);
    let named = [
        ("--app-user", &options.app_user),
        ("TIDEGATE_APP_PASSWORD", &app_password),
        ("--monitor-user", &options.monitor_user),
        ("TIDEGATE_MONITOR_PASSWORD", &monitor_password),
    ];
    for (what, text) in named {
        if text.chars().any(|c| c == '\\' || c.is_control()) {
            bail!("{what}: backslashes and control characters cannot be written into the file");
        }
    }
    Ok(Choices {
        datadir: datadir.display().to_string(),
        listen: options.listen.clone(),
        admin_listen: options.admin_listen.clone(),
        admin_password: password::generate()?,
        app: (options.app_user.clone(), app_password),
        database: options.database.clone(),
        monitor: (options.monitor_user.clone(), monitor_password),
        threads: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
        max_connections: (files * CLIENTS_SHARE.0 / CLIENTS_SHARE.1).clamp(1, CLIENTS_MAX),
        use_ssl: options.ssl,
    })
}

fn say_what_was_found(plan: &Plan<'_>, survey: &Survey) {
    let kind = match plan.kind {
        Kind::Alone => "one server, without replicas",
        Kind::Replication => "a primary and its replicas",
        Kind::Galera => "a Galera cluster",
        Kind::Group => "a replication group",
        Kind::Aurora => "an Aurora instance",
    };
    println!("found {kind}:");
    for server in &survey.servers {
        let flavor = if server.is_mariadb { "MariaDB" } else { "MySQL" };
        let mode = if server.read_only { "ON" } else { "OFF" };
        let (major, minor, patch) = server.number;
        let sources: Vec<String> = server.sources.iter().map(ToString::to_string).collect();
        let follows = if sources.is_empty() { String::new() } else { format!(", replicates from {}", sources.join(" and ")) };
        println!("  {}  {flavor} {major}.{minor}.{patch}, read_only={mode}{follows}", server.addr);
    }
    for note in &plan.notes {
        println!("  note: {note}");
    }
}

/// A file that only its owner may read. One that is overwritten keeps its owner, group and mode: a package's service reads it by its group.
fn write(path: &Path, text: &str) -> Result<()> {
    let named = || path.display().to_string();
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    // A file that another user left there would keep its owner.
    let _ = std::fs::remove_file(&new);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new).with_context(named)?;
    if let Ok(old) = std::fs::metadata(path) {
        fchown(&file, Some(old.uid()), Some(old.gid())).with_context(named)?;
        file.set_permissions(std::fs::Permissions::from_mode(old.mode() & 0o640)).with_context(named)?;
    }
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).with_context(named)?;
    std::fs::rename(&new, path).with_context(named)
}

fn writer<'a>(plan: &Plan<'a>) -> Result<&'a ServerAddr> {
    let found = plan.rows.iter().find(|(_, server)| !server.read_only);
    found.map(|(_, server)| &server.addr).context("no server takes writes: no account can be created")
}

/// Generated passwords are for new accounts: an account that exists keeps its password, and nothing is created at all.
fn refuse_existing(options: &InitOptions, plan: &Plan<'_>, account: &Account, wanted: &[(bool, &String)]) -> Result<()> {
    let addr = writer(plan)?;
    let new: Vec<&str> = wanted.iter().filter(|(exists, _)| !exists).map(|(_, user)| user.as_str()).collect();
    let found = monitor::existing_accounts(addr, account, &new).map_err(|why| anyhow::anyhow!("{addr}: {why}"))?;
    let Some(user) = found.first() else { return Ok(()) };
    let (variable, option) =
        if *user == options.app_user { ("TIDEGATE_APP_PASSWORD", "--app-user") } else { ("TIDEGATE_MONITOR_PASSWORD", "--monitor-user") };
    bail!("the account '{user}'@'%' exists on {addr}: set {variable} to its password, or name another user with {option}")
}

/// Accounts are created on the writer and reach the other servers by replication.
fn create_accounts(options: &InitOptions, plan: &Plan<'_>, account: &Account, choices: &Choices, statements: &[String]) -> Result<()> {
    if options.create_accounts {
        let addr = writer(plan)?;
        monitor::execute(addr, account, statements)
            .map_err(|why| anyhow::anyhow!("{addr}: {why}. The accounts are not complete; the file holds their passwords"))?;
        println!("created the accounts on {addr}");
        try_accounts(addr, choices, options.ssl);
        return Ok(());
    }
    println!("\nrun this on the server that takes writes (--create-accounts does it):\n");
    for statement in statements {
        println!("  {statement};");
    }
    Ok(())
}

/// An anonymous account of this machine's name takes the place of `'user'@'%'`: the server then refuses the new passwords.
fn try_accounts(addr: &ServerAddr, choices: &Choices, use_ssl: bool) {
    for (user, password) in [&choices.app, &choices.monitor] {
        let account = Account { user: user.clone(), password: Secret::new(password.as_str()), use_ssl };
        if let Err(why) = monitor::execute(addr, &account, &["DO 0".to_owned()]) {
            println!("warning: {addr} refuses the new account '{user}': {why}");
            println!("  If SELECT host FROM mysql.user WHERE user = '' returns rows, drop these anonymous accounts.");
        }
    }
}

fn say_what_next(options: &InitOptions, plan: &Plan<'_>) {
    let port = options.listen.rsplit_once(':').map_or("6033", |(_, port)| port);
    let admin_port = options.admin_listen.rsplit_once(':').map_or("6032", |(_, port)| port);
    println!("\nstart the proxy, and connect through it; the passwords are in {}:\n", options.output.display());
    println!("  tidegate -c {}", options.output.display());
    println!("  mariadb -h127.0.0.1 -P{port} -u{} -p", options.app_user);
    println!("  mariadb -h127.0.0.1 -P{admin_port} -uadmin -p -e \"SELECT * FROM runtime_mysql_servers\"");
    println!("  tidegate top -u admin 127.0.0.1:{admin_port}          # asks for nothing: the password is in TIDEGATE_ADMIN_PASSWORD");
    if options.database.is_none() {
        println!("\nthe user {} has no rights yet: GRANT it what your application needs (--database does it)", options.app_user);
    }
    if plan.rows.len() > 1 {
        println!(
            "\nA statement that asks for @@hostname always goes to the writer. To see the split, read from a table, then ask the admin port:"
        );
        println!("  SELECT hostgroup, digest_text, count_star FROM stats_mysql_query_digest");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_as_people_name_them() {
        let named = |text: &str| address(text).map(|addr| (addr.host.to_string(), addr.port)).ok();
        assert_eq!(named("db1"), Some(("db1".to_owned(), 3306)));
        assert_eq!(named("10.0.0.1:3307"), Some(("10.0.0.1".to_owned(), 3307)));
        assert_eq!(named("[::1]:3307"), Some(("::1".to_owned(), 3307)));
        assert_eq!(named("::1"), Some(("::1".to_owned(), 3306)));
        assert_eq!(named("/run/mysqld/mysqld.sock"), Some(("/run/mysqld/mysqld.sock".to_owned(), 0)));
        for bad in ["", ":3306", "db1:0", "db1:70000", "db1:x"] {
            assert_eq!(named(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_file_is_its_owners_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.cnf");
        write(&path, "one").unwrap();
        write(&path, "two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        write(&path, "three").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640, "not for everybody");
    }
}
