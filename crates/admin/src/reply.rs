//! A session's request to the engine, and the engine's reply.

use std::borrow::Cow;
use std::sync::Arc;

use model::control::AdminEvent;
use wire::codes;

/// How ProxySQL begins its errors. Scripts look for it.
const PROXYSQLS: &str = "ProxySQL Admin Error: ";
/// The answer to changes during an upgrade.
const FROZEN: &str = "another process takes over, so this one accepts no more changes: connect again";

/// The rights of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// It may do everything.
    Admin,
    /// Read statistics and monitor tables.
    Stats,
}

/// The session that sent a statement, for hints, history and audit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionInfo {
    /// The name that was used at the login.
    pub user: String,
    /// The client's address, or `localhost` for a Unix socket.
    pub peer: String,
    /// The id that the greeting gave it.
    pub connection_id: u32,
    /// The schema chosen with USE, if any.
    pub schema: Option<String>,
    /// Warnings of the last statement that was none about warnings.
    pub warnings: Arc<[String]>,
    /// The audit log's line for each statement of this session that changes something, without its text. None: no lines.
    pub audit: Option<Box<AdminEvent>>,
}

/// The answer to one statement. All values are text, as ProxySQL sends them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A result set, perhaps empty.
    Rows {
        /// In the order of the values.
        columns: Vec<String>,
        /// One value a column; `None` is NULL.
        rows: Vec<Vec<Option<Vec<u8>>>>,
    },
    /// Success without rows.
    Ok {
        /// Rows that were changed.
        affected: u64,
        /// The id that was given to a row of a table that numbers its rows; else 0.
        insert_id: u64,
        /// Text for people, often empty.
        info: String,
        /// The lines of SHOW WARNINGS.
        warnings: Vec<String>,
    },
    /// It was refused, and nothing changed.
    Err {
        /// MySQL's error number.
        code: u16,
        /// Five characters.
        sqlstate: &'static str,
        /// The reason, without ProxySQL's words before it: see [`Reply::for_clients`].
        text: String,
    },
}

impl Reply {
    /// Done, and nothing to say.
    pub fn done() -> Self {
        Self::Ok { affected: 0, insert_id: 0, info: String::new(), warnings: Vec::new() }
    }

    /// An error as the admin interface sends it: 1045 / 28000, as ProxySQL does for everything.
    pub fn refused(text: impl std::fmt::Display) -> Self {
        Self::Err { code: codes::ACCESS_DENIED, sqlstate: "28000", text: text.to_string() }
    }

    /// Another process is about to take over, so that nothing changes here. That process may fail: the statement can be repeated.
    pub(crate) fn frozen() -> Self {
        Self::refused(FROZEN)
    }

    /// Whether it is [`Self::frozen`].
    pub(crate) fn is_frozen(&self) -> bool {
        matches!(self, Self::Err { text, .. } if text == FROZEN)
    }

    /// An error's text as clients of the admin port know it from ProxySQL. MySQL's own errors have none of it.
    pub fn for_clients(code: u16, text: &str) -> Cow<'_, str> {
        match code {
            codes::ACCESS_DENIED | codes::NO_SUCH_TABLE => format!("{PROXYSQLS}{text}").into(),
            _ => text.into(),
        }
    }

    /// The reason in what another proxy's admin port answered.
    pub fn reason(text: &str) -> &str {
        text.strip_prefix(PROXYSQLS).unwrap_or(text)
    }
}
