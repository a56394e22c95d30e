//! The view that a session must have: the same as on a private connection.

use std::collections::{BTreeMap, BTreeSet};

/// Variables that clients change, with their defaults and the values they are given.
pub(super) const VARIABLES: [(&str, &str, [&str; 3]); 4] = [
    ("time_zone", "SYSTEM", ["+00:00", "+02:00", "SYSTEM"]),
    ("group_concat_max_len", "1048576", ["4096", "8192", "1048576"]),
    ("sort_buffer_size", "262144", ["524288", "1048576", "262144"]),
    ("lock_wait_timeout", "86400", ["1", "2", "86400"]),
];

/// A transaction as its client sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Open {
    /// The oracle's group of its writes; None while there are none.
    pub group: Option<usize>,
    /// The numbers that it wrote.
    pub ops: Vec<i64>,
    /// Nothing ran in it so far: it may move.
    pub is_bare: bool,
    /// Nothing but settings of the session, which another server can be told as well.
    pub is_only_opened: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    pub schema: String,
    /// Session variables that were set.
    pub variables: BTreeMap<&'static str, String>,
    /// User variables that were set.
    pub user_variables: BTreeMap<&'static str, String>,
    /// A user variable has a value that only the server knows of.
    pub has_own_variable: bool,
    pub autocommit: bool,
    /// LAST_INSERT_ID(); None when a failure left that open.
    pub last_insert_id: Option<u64>,
    pub transaction: Option<Open>,
    /// Temporary tables.
    pub temporary: BTreeMap<&'static str, Vec<i64>>,
    pub locks: BTreeSet<&'static str>,
    /// Prepared statements: insert, select.
    pub prepared: Option<(u32, u32)>,
}

impl Expected {
    /// After a login with this schema.
    pub(super) fn new(schema: &str) -> Self {
        Self {
            schema: schema.to_owned(),
            variables: BTreeMap::new(),
            user_variables: BTreeMap::new(),
            has_own_variable: false,
            autocommit: true,
            last_insert_id: Some(0),
            transaction: None,
            temporary: BTreeMap::new(),
            locks: BTreeSet::new(),
            prepared: None,
        }
    }

    /// Has it state that dies with its server?
    pub(super) fn is_bound(&self) -> bool {
        self.has_own_variable
            || self.transaction.as_ref().is_some_and(|t| !t.is_bare)
            || !self.temporary.is_empty()
            || !self.locks.is_empty()
    }

    /// Is a transaction all that it would lose with its server?
    pub(super) fn has_only_a_transaction(&self) -> bool {
        !self.has_own_variable && self.temporary.is_empty() && self.locks.is_empty()
    }

    /// The value of a variable.
    pub(super) fn variable(&self, name: &str) -> String {
        let default = VARIABLES.iter().find(|v| v.0 == name).map_or("", |v| v.1);
        self.variables.get(name).cloned().unwrap_or_else(|| default.to_owned())
    }
}
