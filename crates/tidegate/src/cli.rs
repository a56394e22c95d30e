//! The command line.

use clap::Parser;
use std::path::PathBuf;

/// Tidegate, a proxy for MySQL and MariaDB.
#[derive(Parser, Debug)]
#[command(version)]
pub struct Cli {
    /// Configuration file, in the format of proxysql.cnf.
    #[arg(short = 'c', long = "config", default_value = "/etc/tidegate.cnf")]
    pub config: PathBuf,
    /// Data directory; stands before the file's `datadir`.
    #[arg(short = 'D', long = "datadir")]
    pub datadir: Option<PathBuf>,
    /// Stay in the foreground and log to the terminal.
    ///
    /// Tidegate always stays in the foreground; this only keeps the log on the terminal when the file names an `errorlog`.
    #[arg(short = 'f', long = "foreground")]
    pub foreground: bool,
    /// How much is logged: error, warn, info, debug or trace.
    #[arg(long, default_value = "info")]
    pub log_level: tracing::Level,
}
