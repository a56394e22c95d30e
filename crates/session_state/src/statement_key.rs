//! What makes two prepared statements the same: text, schema, and the settings that decide at PREPARE.

use crate::state::{Text, Variables};
use foldhash::fast::FixedState;
use serde::{Deserialize, Serialize};
use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a prepared statement is the same as, for look-ups. Each execution is one, so the hash is made with the key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatementKey {
    hash: u64,
    meaning: Meaning,
}

impl From<Meaning> for StatementKey {
    fn from(meaning: Meaning) -> Self {
        Self { hash: FixedState::default().hash_one(&meaning), meaning }
    }
}

impl Deref for StatementKey {
    type Target = Meaning;

    fn deref(&self) -> &Meaning {
        &self.meaning
    }
}

impl Hash for StatementKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// A prepared statement's text, in a schema, under settings that change what it means.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meaning {
    /// Current schema at PREPARE.
    pub schema: Option<Text>,
    /// Variables that change how the text is read (sql_mode and character sets), joined; on MySQL all that decide at PREPARE.
    pub mode: Text,
    /// User variables that it names, where a server gives them their types at PREPARE (MySQL since 8.0.22).
    pub user_variables: Option<ValuesAtPrepare>,
    /// The SQL text.
    pub text: Text,
    /// Parameter types (2 bytes each) that it is executed with, where a server settles a statement's types by its executions
    /// (MySQL since 8.0.22): executed with others before, it would convert values. None until it is executed.
    pub types: Option<Text>,
}

/// User variables as they were at a PREPARE.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum ValuesAtPrepare {
    /// Their literals; NULL for one that was not set.
    Known(Variables),
    /// The server alone had a value: no other PREPARE is this one.
    Unknown(u64),
}

impl ValuesAtPrepare {
    /// Such that nobody knows, of one PREPARE.
    pub fn unknown() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self::Unknown(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl StatementKey {
    /// Bytes of its text, and of the values it goes with.
    pub fn bytes(&self) -> usize {
        let values = match &self.user_variables {
            Some(ValuesAtPrepare::Known(values)) => values.entries().iter().map(|(_, literal)| literal.len()).sum(),
            _ => 0,
        };
        self.text.len() + values
    }

    /// The same for equal ones.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The statement as it is prepared, before any execution.
    pub fn as_prepared(self: &Arc<Self>) -> Arc<Self> {
        match self.types {
            None => Arc::clone(self),
            Some(_) => Arc::new(Meaning { types: None, ..self.meaning.clone() }.into()),
        }
    }
}

impl Meaning {
    /// The same in another process: what only a server knew is not what any other PREPARE has.
    pub fn taken_over(self) -> Self {
        let is_unknown = matches!(self.user_variables, Some(ValuesAtPrepare::Unknown(_)));
        let user_variables = if is_unknown { Some(ValuesAtPrepare::unknown()) } else { self.user_variables };
        Self { user_variables, ..self }
    }
}
