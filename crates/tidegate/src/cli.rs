//! The command line: ProxySQL's words, and a few more.

use crate::top::TopOptions;
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Where the configuration is looked for when none is named.
pub const DEFAULT_CONFIG: &str = "/etc/tidegate.cnf";

/// Tidegate, a proxy for MySQL and MariaDB.
#[derive(Parser, Debug, Clone)]
#[command(version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do instead of serving.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Configuration file, in the format of proxysql.cnf [default: /etc/tidegate.cnf, if it exists]
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
    /// How much is logged: error, warn, info, debug or trace.
    #[arg(long, default_value = "info")]
    pub log_level: tracing::Level,
}

/// What to do instead of serving.
#[derive(Subcommand, Debug, Clone)]
pub enum Command {
    /// Check a configuration file and say what is wrong or doubtful in it.
    Check {
        /// The file.
        file: PathBuf,
    },
    /// Show a running proxy, live: traffic, servers, pins, slowest digests.
    Top(TopOptions),
}
