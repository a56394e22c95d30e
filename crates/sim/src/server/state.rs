//! A session's state on a model server.

use super::sql::{Expr, Scope};
use std::collections::BTreeMap;
use wire::charset;
use wire::session_state::{Change, put_change};

/// Schemas that exist.
pub(crate) const SCHEMAS: [&str; 3] = ["one", "two", "three"];

/// Which product a server plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavor {
    /// MySQL 8.0.
    MySql,
    /// MariaDB 10.11.
    MariaDb,
}

impl Flavor {
    /// The version of the greeting.
    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::MySql => "8.0.36",
            Self::MariaDb => "5.5.5-10.11.6-MariaDB",
        }
    }

    fn wire(self) -> charset::Flavor {
        match self {
            Self::MySql => charset::Flavor::MySql,
            Self::MariaDb => charset::Flavor::MariaDb,
        }
    }
}

/// Variables and their global values.
const VARIABLES: &[(&str, &str)] = &[
    ("autocommit", "ON"),
    ("time_zone", "SYSTEM"),
    ("sql_mode", ""),
    ("group_concat_max_len", "1048576"),
    ("sort_buffer_size", "262144"),
    ("lock_wait_timeout", "86400"),
    ("net_write_timeout", "60"),
    ("wait_timeout", "28800"),
    ("collation_connection", "utf8mb4_general_ci"),
    ("character_set_client", "utf8mb4"),
    ("character_set_connection", "utf8mb4"),
    ("character_set_results", "utf8mb4"),
    ("session_track_system_variables", "autocommit,character_set_client,character_set_connection,character_set_results,time_zone"),
    ("session_track_schema", "ON"),
    ("session_track_state_change", "OFF"),
    ("session_track_gtids", "OFF"),
    ("last_insert_id", "0"),
    ("insert_id", "0"),
];

/// The global value of a variable.
pub(super) fn global(name: &str) -> Option<&'static str> {
    VARIABLES.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
}

/// Names of all variables.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    VARIABLES.iter().map(|(n, _)| *n)
}

/// The state of one session.
#[derive(Clone, Debug)]
pub(super) struct SessionState {
    pub schema: Option<String>,
    /// Variables that differ from the global ones.
    variables: BTreeMap<String, String>,
    /// `@x`.
    pub user_variables: BTreeMap<String, String>,
    pub last_insert_id: u64,
    /// The id of the next row, if `insert_id` was set.
    pub insert_id: Option<u64>,
    /// Temporary tables and their rows.
    pub temporary: BTreeMap<String, Vec<i64>>,
    /// The open transaction's writes; None if none is open.
    pub transaction: Option<Vec<i64>>,
    /// Warnings of the last statement.
    pub warnings: Vec<(u16, String)>,
    flavor: Flavor,
}

impl SessionState {
    /// After a login with this collation.
    pub(super) fn new(flavor: Flavor, collation: u8) -> Self {
        let mut state = Self {
            schema: None,
            variables: BTreeMap::new(),
            user_variables: BTreeMap::new(),
            last_insert_id: 0,
            insert_id: None,
            temporary: BTreeMap::new(),
            transaction: None,
            warnings: Vec::new(),
            flavor,
        };
        if let Some(c) = charset::collation_in(flavor.wire(), u16::from(collation)) {
            state.set_names(c.charset, c.name);
        }
        state
    }

    /// COM_RESET_CONNECTION: all but the schema.
    pub(super) fn reset(&mut self) {
        *self = Self { schema: self.schema.take(), ..Self::new(self.flavor, 45) };
    }

    /// The value of a variable.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        match name {
            "last_insert_id" | "identity" => return Some(self.last_insert_id.to_string()),
            _ => {}
        }
        self.variables.get(name).cloned().or_else(|| global(name).map(str::to_owned))
    }

    pub(super) fn set_variable(&mut self, name: &str, value: &str) {
        if name == "last_insert_id" {
            self.last_insert_id = value.parse().unwrap_or(0);
            return;
        }
        if name == "insert_id" {
            self.insert_id = value.parse().ok().filter(|id| *id != 0);
            return;
        }
        let value = match (name, value) {
            ("autocommit" | "session_track_schema" | "session_track_state_change", "1") => "ON",
            ("autocommit" | "session_track_schema" | "session_track_state_change", "0") => "OFF",
            (_, value) => value,
        };
        self.variables.insert(name.to_owned(), value.to_owned());
    }

    pub(super) fn set_names(&mut self, charset: &str, collation: &str) {
        for name in ["character_set_client", "character_set_connection", "character_set_results"] {
            self.set_variable(name, charset);
        }
        self.set_variable("collation_connection", collation);
    }

    /// Whether each statement is a transaction.
    pub(super) fn autocommit(&self) -> bool {
        self.variable("autocommit").as_deref() == Some("ON")
    }

    /// Writes an entry of the session tracker, if this variable is tracked.
    pub(super) fn put_variable(&self, out: &mut Vec<u8>, name: &str) {
        let tracked = self.variable("session_track_system_variables").unwrap_or_default();
        if tracked != "*" && !tracked.split(',').any(|t| t == name) {
            return;
        }
        let value = self.variable(name).unwrap_or_default();
        // Both servers report booleans as words.
        put_change(out, &Change::SystemVariable { name: name.as_bytes(), value: value.as_bytes() });
    }

    /// Writes the entry for a new schema, if that is tracked.
    pub(super) fn put_schema(&self, out: &mut Vec<u8>) {
        if self.variable("session_track_schema").as_deref() == Some("ON") {
            put_change(out, &Change::Schema(self.schema.as_deref().unwrap_or_default().as_bytes()));
        }
    }

    /// Writes that something changed, if that is tracked.
    pub(super) fn put_changed(&self, out: &mut Vec<u8>) {
        if self.variable("session_track_state_change").as_deref() == Some("ON") {
            put_change(out, &Change::StateChange(true));
        }
    }

    /// The value that SET assigns, as text.
    pub(super) fn value_of(&self, name: &str, value: &Expr) -> Option<String> {
        Some(match value {
            Expr::Number(n) => n.to_string(),
            Expr::Text(t) => t.clone(),
            Expr::Column(word) => word.clone(),
            Expr::Default => global(name)?.to_owned(),
            Expr::System(Scope::Global, other) => global(other)?.to_owned(),
            Expr::System(Scope::Session, other) => self.variable(other)?,
            Expr::User(other) => self.user_variables.get(other)?.clone(),
            _ => return None,
        })
    }
}
