//! The command line: ProxySQL's words, and a few more.

use crate::errant::Errant;
use crate::init::InitOptions;
use crate::rehearsal::Rehearsal;
use crate::replay::ReplayOptions;
use crate::top::TopOptions;
use crate::upgrade::UpgradeOptions;
use clap::{Args, Parser, Subcommand};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The paths that hold if neither command line nor file names others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Defaults {
    /// The configuration file, which need not be there.
    pub config: &'static str,
    /// The data directory.
    pub datadir: &'static str,
}

impl Defaults {
    /// By the program's name: called `proxysql`, it uses ProxySQL's paths.
    pub(crate) fn of(program: &OsStr) -> Self {
        if Path::new(program).file_name() == Some(OsStr::new("proxysql")) {
            Self { config: "/etc/proxysql.cnf", datadir: "/var/lib/proxysql" }
        } else {
            Self { config: "/etc/tidegate.cnf", datadir: "." }
        }
    }

    pub(crate) fn here() -> Self {
        Self::of(&program_name())
    }
}

/// The name that this process was started by.
pub(crate) fn program_name() -> OsString {
    std::env::args_os().next().unwrap_or_default()
}

/// The version, and the commit and profile that it was built from.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("TIDEGATE_BUILD"), ")");

/// Tidegate, a proxy for MySQL and MariaDB.
#[derive(Parser, Debug, Clone)]
#[command(version = VERSION, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    /// What to do instead of serving.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Configuration file, in the format of proxysql.cnf [default: /etc/tidegate.cnf, if it exists]
    ///
    /// A program that is called `proxysql` looks for /etc/proxysql.cnf, and its data directory is /var/lib/proxysql.
    #[arg(short = 'c', long = "config")]
    pub config: Option<PathBuf>,
    /// Data directory; stands before the file's `datadir`.
    #[arg(short = 'D', long = "datadir", visible_short_alias = 'd')]
    pub datadir: Option<PathBuf>,
    /// Stay in the foreground and log to the terminal.
    ///
    /// Tidegate always stays in the foreground; this only keeps the log on the terminal when the file names an `errorlog`.
    #[arg(short = 'f', long = "foreground")]
    pub foreground: bool,
    /// Start from the file: proxysql.db is renamed to proxysql.db.bak.
    #[arg(long, conflicts_with_all = ["reload", "declarative"])]
    pub initial: bool,
    /// Lay the file's rows over those of proxysql.db.
    #[arg(long, conflicts_with = "declarative")]
    pub reload: bool,
    /// The file is the truth: it holds at every start, and is applied again when it changes.
    #[arg(long)]
    pub declarative: bool,
    /// Do not accept clients until PROXYSQL START.
    #[arg(short = 'n', long = "no-start")]
    pub no_start: bool,
    /// Run no program, whatever an administrator orders: none of the scheduler, of REST routes or of healing.
    #[arg(long)]
    pub no_scripts: bool,
    /// How much is logged: error, warn, info, debug or trace.
    #[arg(long, default_value = "info")]
    pub log_level: tracing::Level,
    /// Stay as a small parent of the process that serves, also over an upgrade: for containers.
    #[arg(long)]
    pub supervise: bool,
    /// Take the place of the process that started this one, which speaks over standard input.
    #[arg(long, hide = true)]
    pub take_over: bool,
    /// ProxySQL's words that mean nothing here.
    #[command(flatten)]
    pub passed_over: PassedOver,
}

/// What images, charts and init scripts give ProxySQL, and what this program passes over.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct PassedOver {
    #[arg(long, hide = true)]
    idle_threads: bool,
    #[arg(long, hide = true)]
    no_version_check: bool,
    #[arg(short = 'e', long, hide = true)]
    exit_on_error: bool,
    #[arg(short = 'r', long, hide = true)]
    reuseport: bool,
    #[arg(short = 'M', long, hide = true)]
    no_monitor: bool,
    #[arg(short = 'S', long, hide = true, value_name = "PATH")]
    admin_socket: Option<PathBuf>,
    #[arg(short = 'U', long, hide = true, value_name = "UUID")]
    uuid: Option<String>,
    #[arg(long, hide = true)]
    sqlite3_server: bool,
    #[arg(long, hide = true)]
    clickhouse_server: bool,
}

impl PassedOver {
    pub(crate) fn notes(&self) -> Vec<String> {
        let Self {
            idle_threads,
            no_version_check,
            exit_on_error,
            reuseport,
            no_monitor,
            admin_socket,
            uuid,
            sqlite3_server,
            clickhouse_server,
        } = self;
        let known = [
            (*idle_threads, "--idle-threads", "idle sessions cost no thread"),
            (*no_version_check, "--no-version-check", "nothing is asked of a vendor"),
            (*exit_on_error, "--exit-on-error", "there is no parent process; restarts are the service manager's work"),
            (*reuseport, "--reuseport", "workers share the listeners"),
            (*no_monitor, "--no-monitor", "the monitor runs; mysql-monitor_enabled=false switches it off"),
            (admin_socket.is_some(), "--admin-socket", "use admin-mysql_ifaces for the admin port's addresses and sockets"),
            (uuid.is_some(), "--uuid", "the file's uuid names this proxy"),
            (*sqlite3_server, "--sqlite3-server", "not part of this proxy"),
            (*clickhouse_server, "--clickhouse-server", "not part of this proxy"),
        ];
        known.iter().filter(|(is_given, ..)| *is_given).map(|(_, option, why)| format!("{option} is ignored: {why}")).collect()
    }
}

impl Cli {
    /// For PROXYSQL RESTART: options for a single start are left out, so that the configuration saved since then holds.
    pub(crate) fn again(&self) -> Self {
        Self {
            initial: false,
            reload: false,
            no_start: false,
            supervise: false,
            take_over: false,
            passed_over: PassedOver::default(),
            ..self.clone()
        }
    }

    /// The command line that gives these options.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        // Named one by one, so that a new one is not forgotten.
        let Self {
            command: _,
            config,
            datadir,
            foreground,
            initial,
            reload,
            declarative,
            no_start,
            no_scripts,
            log_level,
            supervise: _,
            take_over: _,
            passed_over: _,
        } = self;
        let mut arguments = Vec::new();
        for (option, path) in [("--config", config), ("--datadir", datadir)] {
            if let Some(path) = path {
                let mut argument = OsString::from(option);
                argument.push("=");
                argument.push(path);
                arguments.push(argument);
            }
        }
        let flags = [
            ("--foreground", foreground),
            ("--initial", initial),
            ("--reload", reload),
            ("--declarative", declarative),
            ("--no-start", no_start),
            ("--no-scripts", no_scripts),
        ];
        arguments.extend(flags.iter().filter(|(_, is_given)| **is_given).map(|(flag, _)| OsString::from(flag)));
        arguments.push(format!("--log-level={}", log_level.as_str().to_lowercase()).into());
        arguments
    }
}

/// What to do instead of serving.
#[derive(Subcommand, Debug, Clone)]
pub(crate) enum Command {
    /// Look at a server, find its replicas or cluster members, and write a complete configuration file.
    Init(InitOptions),
    /// Check a configuration file and say what is wrong or doubtful in it.
    Check {
        /// The file.
        file: PathBuf,
        /// Refuse what ProxySQL would start with and pass over, as the file's setting `strict` does.
        #[arg(long)]
        strict: bool,
    },
    /// Have a new process take a running one's place, without a client's noticing.
    Upgrade(UpgradeOptions),
    /// Show a running proxy, live: traffic, servers, pins, slowest digests.
    Top(TopOptions),
    /// Save transactions that only a former writer has.
    #[command(subcommand)]
    Errant(Errant),
    /// Judge a rehearsal of an upgrade on a running proxy.
    #[command(subcommand)]
    Rehearsal(Rehearsal),
    /// Replay captured traffic against a server, compare the answers, and print a verdict. Exit code: 0 SAFE, 2 NOT ENOUGH, 1 NOT SAFE or
    /// an error.
    Replay(ReplayOptions),
    /// Write man pages and shell completions into a directory, for packages.
    #[command(hide = true)]
    Manual {
        /// The directory.
        directory: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_has_the_arguments_that_still_hold() {
        let again = |args: &str| {
            let cli = Cli::try_parse_from(args.split_whitespace()).unwrap().again();
            let arguments = cli.arguments();
            let read = Cli::try_parse_from([OsString::from("tidegate")].iter().chain(&arguments)).unwrap();
            assert_eq!(format!("{read:?}"), format!("{cli:?}"), "they are read as they are meant");
            arguments.join(OsString::from(" ").as_os_str()).into_string().unwrap()
        };
        assert_eq!(again("tidegate"), "--log-level=info");
        assert_eq!(again("tidegate -fn -c a=b.cnf --initial"), "--config=a=b.cnf --foreground --log-level=info");
        assert_eq!(again("tidegate --reload -nd/n --log-level DEBUG"), "--datadir=/n --log-level=debug");
        assert_eq!(again("tidegate -M -S /x --idle-threads"), "--log-level=info");
        assert_eq!(again("tidegate --declarative --no-start --config=--initial"), "--config=--initial --declarative --log-level=info");
    }

    #[test]
    fn proxysqls_words_are_passed_over_with_a_note() {
        let notes = |args: &str| Cli::try_parse_from(args.split_whitespace()).unwrap().passed_over.notes();
        assert_eq!(notes("tidegate -f -c a.cnf"), Vec::<String>::new());
        let told = notes("proxysql --idle-threads --no-version-check -e -r -M -S /run/a.sock -U u --sqlite3-server --clickhouse-server -f");
        assert_eq!(told.len(), 9, "{told:#?}");
        assert_eq!(told[0], "--idle-threads is ignored: idle sessions cost no thread");
        assert_eq!(notes("proxysql -fMe --admin-socket=/x").len(), 3);
    }

    #[test]
    fn a_program_called_proxysql_has_its_places() {
        let places = |program: &str| {
            let Defaults { config, datadir } = Defaults::of(OsStr::new(program));
            (config, datadir)
        };
        let proxysql = ("/etc/proxysql.cnf", "/var/lib/proxysql");
        let own = ("/etc/tidegate.cnf", ".");
        assert_eq!(["proxysql", "/usr/bin/proxysql", "./proxysql"].map(places), [proxysql; 3]);
        assert_eq!(["tidegate", "/usr/bin/tidegate", "/opt/proxysql/tidegate", "proxysql-admin", ""].map(places), [own; 5]);
    }
}
