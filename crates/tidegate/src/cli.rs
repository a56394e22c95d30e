//! The command line: ProxySQL's words, and a few more.

use crate::top::TopOptions;
use clap::{Parser, Subcommand};
use std::ffi::OsString;
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

impl Cli {
    /// For PROXYSQL RESTART: what held for one start only is left out, so that what was saved since holds.
    pub fn again(&self) -> Self {
        Self { initial: false, reload: false, no_start: false, ..self.clone() }
    }

    /// The arguments that say this.
    pub fn arguments(&self) -> Vec<OsString> {
        // Named one by one, so that a new one is not forgotten.
        let Self { command: _, config, datadir, foreground, initial, reload, declarative, no_start, log_level } = self;
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
        ];
        arguments.extend(flags.iter().filter(|(_, is_given)| **is_given).map(|(flag, _)| OsString::from(flag)));
        arguments.push(format!("--log-level={}", log_level.as_str().to_lowercase()).into());
        arguments
    }
}

/// What to do instead of serving.
#[derive(Subcommand, Debug, Clone)]
pub enum Command {
    /// Check a configuration file and say what is wrong or doubtful in it.
    Check {
        /// The file.
        file: PathBuf,
        /// Refuse what ProxySQL would start with and pass over, as the file's setting `strict` does.
        #[arg(long)]
        strict: bool,
    },
    /// Show a running proxy, live: traffic, servers, pins, slowest digests.
    Top(TopOptions),
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
        assert_eq!(again("tidegate --declarative --no-start --config=--initial"), "--config=--initial --declarative --log-level=info");
    }
}
