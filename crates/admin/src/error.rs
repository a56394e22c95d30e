//! Why the admin interface refused something.

use std::path::Path;

/// The ways in which a statement or a start can fail. Displays as the text after `ProxySQL Admin Error: `.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// SQLite's own words.
    #[error("{0}")]
    Sql(String),
    /// A configuration was refused: how many faults, and the first few of them.
    #[error("{}", faults(.0))]
    Config(Vec<model::ConfigError>),
    /// A database was refused: its name, and every fault of it.
    #[error("{}", of_database(.0, .1))]
    Database(String, Vec<String>),
    /// The command cannot be carried out.
    #[error("{0}")]
    Refused(String),
    /// A file could not be read or written.
    #[error("{file}: {reason}")]
    File {
        /// The path as it was given.
        file: String,
        /// The system's words.
        reason: String,
    },
}

impl AdminError {
    /// A file could not be read or written, for a reason of the system's.
    pub(crate) fn file(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self::File { file: path.display().to_string(), reason: reason.to_string() }
    }

    /// SQLite's error does not help an operator who misspelt a command: `advice` replaces it, if it has a hint.
    pub(crate) fn of_no_command(self, advice: impl FnOnce() -> Option<String>) -> Self {
        match self {
            Self::Sql(text) if text.contains("syntax error") => advice().map_or(Self::Sql(text), Self::Refused),
            other => other,
        }
    }

    /// A table that does not exist: `meant` finds the one that was probably meant.
    pub(crate) fn of_no_table(self, meant: impl FnOnce(&str) -> Option<String>) -> Self {
        self.of_none("no such table: ", meant)
    }

    /// The same of a column.
    pub(crate) fn of_no_column(self, meant: impl FnOnce(&str) -> Option<String>) -> Self {
        self.of_none("no such column: ", meant)
    }

    fn of_none(self, lead: &str, meant: impl FnOnce(&str) -> Option<String>) -> Self {
        match self {
            Self::Sql(text) => {
                let meant = text.strip_prefix(lead).and_then(meant);
                Self::Sql(meant.map_or(text.clone(), |meant| format!("{text}; did you mean {meant}?")))
            }
            other => other,
        }
    }

    /// Two truths.
    pub(crate) fn declarative_and_shared() -> Self {
        Self::Refused(
            "--declarative takes the configuration from a file, admin-shared_config_endpoints takes it from etcd: use only one of them"
                .to_owned(),
        )
    }

    /// A file that would be the whole configuration has none.
    pub(crate) fn blank(path: &Path) -> Self {
        Self::file(path, "the file has no group of variables and no table, so it cannot be the whole configuration; nothing is changed")
    }
}

/// Changes of the configuration are refused. SQLite's words come first, as ProxySQL answers them.
pub(crate) const READ_ONLY: &str =
    "attempt to write a readonly database: admin-read_only is set, or PROXYSQL READONLY was given; PROXYSQL READWRITE ends it";

/// How many faults an error text names.
const NAMED_FAULTS: usize = 5;

fn faults(errors: &[model::ConfigError]) -> String {
    let named: Vec<String> = errors.iter().take(NAMED_FAULTS).map(ToString::to_string).collect();
    match errors.len() {
        0 | 1 => named.join(""),
        n if n <= NAMED_FAULTS => format!("{n} faults: {}", named.join("; ")),
        n => format!("{n} faults, of which the first {NAMED_FAULTS}: {}", named.join("; ")),
    }
}

/// Each fault on a line of its own, with the file's name.
fn of_database(file: &str, faults: &[String]) -> String {
    let lines: Vec<String> = faults.iter().map(|fault| format!("{file}: {fault}")).collect();
    match lines.len() {
        1 => lines.join(""),
        n => format!("{n} faults:\n{}", lines.join("\n")),
    }
}

impl From<rusqlite::Error> for AdminError {
    fn from(error: rusqlite::Error) -> Self {
        match error {
            rusqlite::Error::SqliteFailure(_, Some(text)) => Self::Sql(text),
            rusqlite::Error::SqlInputError { msg, .. } => Self::Sql(msg),
            other => Self::Sql(other.to_string()),
        }
    }
}
