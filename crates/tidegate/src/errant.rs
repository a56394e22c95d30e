//! `tidegate errant dump HOST:PORT --to FILE`: what a former writer has and the writer lacks, as a binary log file.
//!
//! Reads from the server itself, over a connection like a replica's. The proxy is asked who writes, and for the account, unless both are
//! given: then it need not run.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::admin::client::{Client, Limit};
use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use model::{Secret, ServerAddr};
use monitor::{Account, Dumped, ErrantDump};

use crate::admin_login::AdminLogin;
use crate::init;

/// A few rows.
const LIMIT: Limit = Limit { bytes: 1 << 20, time: Duration::from_secs(30) };

/// What to do with transactions that only a former writer has.
#[derive(Subcommand, Debug, Clone)]
pub(crate) enum Errant {
    /// Write them into a file that mysqlbinlog or mariadb-binlog reads. Changes nothing on any server.
    Dump(DumpOptions),
}

/// Which server, and where to.
#[derive(Args, Debug, Clone)]
pub(crate) struct DumpOptions {
    /// The former writer: host:port. It must be read-only.
    server: String,
    /// The file. It must not exist. Its mode is 0600, as it holds data.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Most MiB of the file. If the transactions take more, there is no file.
    #[arg(long, value_name = "MIB", default_value_t = 1_024)]
    limit_mib: u64,
    /// The server that writes now; by default as the proxy sees it.
    #[arg(long, value_name = "HOST:PORT")]
    writer: Option<String>,
    /// An account on both servers, with REPLICATION SLAVE; by default the proxy's mysql-replication_username, else its monitor's user.
    ///
    /// Its password is read from --server-password-file, from the environment variable MYSQL_PWD, or asked for. The default account needs an
    /// administrator's login (-u admin).
    #[arg(long, value_name = "USER")]
    server_user: Option<String>,
    /// A file that holds the password of --server-user.
    #[arg(long, value_name = "FILE", requires = "server_user")]
    server_password_file: Option<PathBuf>,
    /// Use TLS towards the servers. Certificates are not verified.
    #[arg(long)]
    ssl: bool,
    #[command(flatten)]
    login: AdminLogin,
}

/// Carries it out.
///
/// # Errors
/// Why there is no file.
pub(crate) fn run(errant: &Errant) -> Result<()> {
    let Errant::Dump(options) = errant;
    let server = init::address(&options.server)?;
    if options.to.exists() {
        bail!("{} exists: name another file", options.to.display());
    }
    let mut proxy = None;
    let mut ask = |sql: &str| -> Result<Vec<Vec<Option<String>>>> {
        let client: &mut Client = match &mut proxy {
            Some(client) => client,
            none => none.insert(options.login.connect()?),
        };
        client.rows(sql, LIMIT)?.map_err(|refused| anyhow!("{refused}"))
    };
    let writer = match &options.writer {
        Some(writer) => init::address(writer)?,
        None => writer_of(&mut ask, &server)?,
    };
    let (user, password) = match &options.server_user {
        Some(user) => (user.clone(), init::server_password(user, options.server_password_file.as_deref())?),
        None => account(&mut ask)?,
    };
    let account = Account { user, password, use_ssl: options.ssl };
    let dump = ErrantDump { server, writer, account, limit: options.limit_mib.saturating_mul(1 << 20) };
    let dumped = write(&dump, &options.to)?;
    println!("{}", told(&dump, &dumped, &options.to));
    Ok(())
}

/// Who writes in the cluster that has this server.
fn writer_of(ask: &mut impl FnMut(&str) -> Result<Vec<Vec<Option<String>>>>, server: &ServerAddr) -> Result<ServerAddr> {
    let host = server.host.replace('\'', "''");
    let rows = ask(&format!(
        "SELECT writer.hostname, writer.port FROM stats_tidegate_healing_servers writer JOIN stats_tidegate_healing_servers other \
         ON other.writer_hostgroup = writer.writer_hostgroup WHERE writer.role = 'writer' AND other.hostname = '{host}' AND other.port = {}",
        server.port
    ))?;
    let row = rows.first().and_then(|row| Some((row.first()?.clone()?, row.get(1)?.clone()?)));
    let (host, port) = row.with_context(|| {
        format!("the proxy does not know who writes beside {server} (stats_tidegate_healing_servers): name the writer with --writer")
    })?;
    Ok(ServerAddr { host: host.as_str().into(), port: port.parse().context("the writer's port")? })
}

/// The replication account, else the monitor's.
fn account(ask: &mut impl FnMut(&str) -> Result<Vec<Vec<Option<String>>>>) -> Result<(String, Secret)> {
    let rows =
        ask("SELECT variable_name, variable_value FROM runtime_global_variables WHERE variable_name IN ('mysql-replication_username', \
         'mysql-replication_password', 'mysql-monitor_username', 'mysql-monitor_password')")
        .context("the account cannot be read: log in as an administrator (-u admin), or name an account with --server-user")?;
    let value = |name: &str| {
        let row = rows.iter().find(|row| row.first().is_some_and(|known| known.as_deref() == Some(name)));
        row.and_then(|row| row.get(1).cloned().flatten()).unwrap_or_default()
    };
    let accounts = ["replication", "monitor"].map(|of| (value(&format!("mysql-{of}_username")), value(&format!("mysql-{of}_password"))));
    let found = accounts.into_iter().find(|(user, password)| !user.is_empty() && !password.is_empty());
    let (user, password) = found.context("the proxy shows no account with a password: name one with --server-user")?;
    Ok((user, Secret::new(password)))
}

/// A file that cannot be completed does not stay.
fn write(dump: &ErrantDump, path: &Path) -> Result<Dumped> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).with_context(|| path.display().to_string())?;
    let mut out = BufWriter::new(file);
    let written = monitor::dump_errant(dump, &mut out).map_err(|why| anyhow!("{why}")).and_then(|dumped| {
        out.flush()?;
        File::sync_all(out.get_ref())?;
        Ok(dumped)
    });
    if written.is_err() {
        // It is ours: it was not there before.
        std::fs::remove_file(path).with_context(|| path.display().to_string())?;
    }
    written
}

/// What is there now, and what to do with it.
fn told(dump: &ErrantDump, dumped: &Dumped, path: &Path) -> String {
    // Applied with their old GTIDs, the transactions would count as those of the dead writer.
    let (program, client) =
        if dumped.is_mariadb { ("mariadb-binlog", "sed '/gtid_seq_no/d' | mariadb") } else { ("mysqlbinlog --skip-gtids", "mysql") };
    let (first, last) = dumped.gtids.clone().unwrap_or_default();
    let count = if dumped.transactions == 1 { "1 transaction".to_owned() } else { format!("{} transactions", dumped.transactions) };
    format!(
        "wrote {} with {count} of {} that {} lacks: {first} to {last}, {} bytes\n\
         read it:  {program} --verbose --base64-output=DECODE-ROWS {}\n\
         apply it: {program} {} | {client} ... on {}, once you have read it",
        path.display(),
        dump.server,
        dump.writer,
        dumped.bytes,
        path.display(),
        path.display(),
        dump.writer,
    )
}
