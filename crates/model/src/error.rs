//! Why a configuration was refused: where, what, and what would be allowed.

use std::sync::Arc;

use crate::libconfig::Position;
use crate::settings::SettingError;
use crate::suggest::hint;

/// The place of a row or value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// Name, line and column.
    File(Position),
    /// In a row of SQL: the table and the row's key, as `mysql_query_rules, rule_id=7`.
    Row(Arc<str>),
}

impl Origin {
    /// The place in a file; `None` for a row of SQL.
    pub fn position(&self) -> Option<&Position> {
        match self {
            Self::File(position) => Some(position),
            Self::Row(_) => None,
        }
    }

    /// The row that begins here, as another row's error names it.
    pub(crate) fn row_name(&self) -> String {
        match self {
            Self::File(position) => format!("the row at line {}", position.line),
            Self::Row(label) => format!("the row {}", label.split_once(", ").map_or(&**label, |(_, key)| key)),
        }
    }
}

impl From<Position> for Origin {
    fn from(position: Position) -> Self {
        Self::File(position)
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(position) => position.fmt(f),
            Self::Row(label) => f.write_str(label),
        }
    }
}

/// One fault of a configuration. Displays as `proxysql.cnf:12:5: mysql_variables.threads: 0 is out of range 1..255`, or as
/// `mysql_query_rules, rule_id=7, column match_digest: ...` for a row of SQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The place; `None` if the file could not be opened or the value came from elsewhere.
    pub at: Option<Origin>,
    /// `table.column`, a group, or empty for syntax.
    pub subject: String,
    /// The fault, without its place.
    pub kind: ErrorKind,
}

impl ConfigError {
    /// A fault at a place.
    pub fn new(at: impl Into<Origin>, subject: impl Into<String>, kind: ErrorKind) -> Self {
        Self { at: Some(at.into()), subject: subject.into(), kind }
    }
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.place(), self.kind)
    }
}

impl ConfigError {
    /// The place with a colon behind it.
    fn place(&self) -> String {
        let at = match (&self.at, self.subject.split_once('.')) {
            (Some(Origin::Row(label)), Some((_, column))) => {
                // The label names the rule.
                let column = column.split_once(" of rule ").map_or(column, |(column, _)| column);
                return format!("{label}, column {column}: ");
            }
            (Some(Origin::Row(label)), None) => return format!("{label}: "),
            (Some(at), _) => format!("{at}: "),
            (None, _) => String::new(),
        };
        match self.subject.as_str() {
            "" => at,
            subject => format!("{at}{subject}: "),
        }
    }

    /// Place and words of a fault with which ProxySQL starts. None for a fault that is refused.
    pub fn tolerated(&self) -> Option<String> {
        Some(format!("{}{}", self.place(), self.kind.tolerated()?))
    }
}

impl std::error::Error for ConfigError {}

impl ErrorKind {
    /// The proxy's way around a fault with which ProxySQL starts; None for all others. The setting `strict` refuses both.
    pub fn tolerated(&self) -> Option<String> {
        match self {
            Self::Unknown { what, suggestion } => Some(format!("unknown {what}, ignored{}", hint(suggestion))),
            Self::Setting(SettingError::Unknown { suggestion }) => Some(format!("unknown variable, ignored{}", hint(suggestion))),
            Self::DuplicateKey { .. } | Self::GivenAgain { .. } => Some(format!("{self}; the later value holds")),
            Self::FalseForNumber => Some(format!("{self}; read as 0")),
            Self::GroupForList => Some(format!("{self}; read as one")),
            _ => None,
        }
    }
}

/// The ways in which a configuration can be wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ErrorKind {
    /// A file cannot be read.
    #[error("cannot read '{file}': {reason}")]
    Unreadable {
        /// The file, as it was named.
        file: String,
        /// The system's words.
        reason: String,
    },
    /// A byte that begins no token.
    #[error("unexpected character '{}'", .0.escape_ascii())]
    UnexpectedByte(u8),
    /// A string or comment that does not end.
    #[error("{0} is never closed")]
    Unterminated(&'static str),
    /// Strings and texts must be UTF-8.
    #[error("string is not UTF-8")]
    NotUtf8,
    /// Something like a number that is none, or does not fit 64 bits.
    #[error("'{0}' is not a number")]
    BadNumber(String),
    /// The parser expected this token.
    #[error("expected {0}")]
    Expected(&'static str),
    /// The parser expected this token, but the file ends.
    #[error("expected {0}, but the file ends")]
    UnexpectedEnd(&'static str),
    /// Nesting beyond the limit.
    #[error("nested deeper than {0}")]
    TooDeep(usize),
    /// More tokens than the limit.
    #[error("more than {0} tokens")]
    TooLarge(usize),
    /// A file that includes itself, directly or not.
    #[error("'{0}' includes itself")]
    IncludeCycle(String),
    /// Includes nested beyond the limit.
    #[error("files included deeper than {0}")]
    IncludeDepth(usize),
    /// More includes than the limit.
    #[error("more than {0} files included")]
    IncludeCount(usize),
    /// A name that is not known here.
    #[error("unknown {what}{}", hint(suggestion))]
    Unknown {
        /// `group, table or setting`, `column`, ...
        what: &'static str,
        /// The nearest known name, if one is near.
        suggestion: Option<&'static str>,
    },
    /// A name given twice in one group.
    #[error("given twice; first at line {first_line}")]
    GivenTwice {
        /// The line of the first one, counted from 1.
        first_line: u32,
    },
    /// A name given twice in one group, in two spellings or under an alias.
    #[error("given by another name too, at line {first_line}")]
    GivenAgain {
        /// The line of the first one, counted from 1.
        first_line: u32,
    },
    /// `false` where a number is needed.
    #[error("must be a number, not false")]
    FalseForNumber,
    /// A group `{ }` where a list of rows is needed.
    #[error("must be a list ( ) of groups {{ }}, not a group {{ }}")]
    GroupForList,
    /// Two rows of a table with one key.
    #[error("same {columns} as {first}")]
    DuplicateKey {
        /// In words, as the error shows them.
        columns: String,
        /// The first row: `the row at line 7`.
        first: String,
    },
    /// A value of another type was needed.
    #[error("must be {expected}, not {found}")]
    WrongType {
        /// In words, as the error shows it.
        expected: &'static str,
        /// In words, as the error shows it.
        found: String,
    },
    /// A column that has no default.
    #[error("must be given")]
    Missing,
    /// A number outside of the column's range.
    #[error("{value} is out of range {min}..{max}")]
    OutOfRange {
        /// The number as it was given, outside of the range.
        value: i64,
        /// Smallest allowed value.
        min: i64,
        /// Largest allowed value.
        max: i64,
    },
    /// One of a few words was needed.
    #[error("'{text}' is not allowed; allowed are {}", allowed.join(", "))]
    NotAllowed {
        /// The text as it was given.
        text: String,
        /// In the spelling in which they are kept.
        allowed: &'static [&'static str],
    },
    /// Text that should be JSON and is not, or is not the JSON that is needed.
    #[error("bad JSON: {0}")]
    BadJson(String),
    /// A regular expression, or the text that replaces its match, that cannot be used.
    #[error("cannot be used: {0}")]
    Pattern(String),
    /// A row that breaks a rule of its table.
    #[error("{0}")]
    Rule(&'static str),
    /// A hostgroup that another row claims.
    #[error("{0}")]
    Claimed(String),
    /// See [`SettingError`].
    #[error(transparent)]
    Setting(#[from] SettingError),
}
