//! The client's prepared statements: its ids, and what each stands for.

use crate::state::Text;
use crate::stats::prepared::Holder;
use crate::stmt_cache::StatementKey;
use model::HostgroupId;
use sql::{Analysis, Fact};
use std::collections::HashMap;
use std::sync::Arc;

/// One statement as the client sees it.
pub struct ClientStatement {
    /// What it is the same as, on any backend.
    pub key: Arc<StatementKey>,
    /// The same as the held backend knows it, since the last execution.
    pub on_backend: Arc<StatementKey>,
    /// What its text says.
    pub analysis: Analysis,
    /// What the client prepared, where servers have another text.
    pub original: Option<Arc<Original>>,
    /// Parameters.
    pub params: u16,
    /// Types the client bound last; servers that have not seen them are told.
    pub types: Vec<u8>,
    /// Where a server settles types by executions: those that the values have had, NULL aside.
    pub settled_types: Option<Text>,
    /// It is `SELECT` of just this fact, which the session knows.
    pub fact: Option<Fact>,
    /// COM_STMT_SEND_LONG_DATA was sent since the last execution.
    pub long_data: bool,
    /// Its cursor is open, in this hostgroup.
    pub cursor: Option<HostgroupId>,
    /// Why long data could not be passed on: said at the execution, as servers do.
    pub failed: Option<String>,
    /// Its place in the list of prepared statements.
    pub holder: Option<Holder>,
}

/// A client's own text in the place of which servers have another: rules are asked with this one.
pub struct Original {
    /// The text.
    pub text: Text,
    /// What it says.
    pub analysis: Analysis,
}

impl ClientStatement {
    /// Whether its long data or its cursor is with a backend's statement.
    pub fn is_bound(&self) -> bool {
        self.long_data || self.cursor.is_some()
    }

    /// Bytes of its texts.
    fn bytes(&self) -> usize {
        self.key.bytes() + self.original.as_ref().map_or(0, |original| original.text.len())
    }

    /// Is it the same for backends as the client has it, with the types it binds?
    pub fn is_on_backend_as_bound(&self) -> bool {
        self.on_backend.types == self.settled_types && Arc::ptr_eq(&self.on_backend.text, &self.key.text)
    }
}

/// The statements of a session; ids are never used twice.
#[derive(Default)]
pub struct Statements {
    by_id: HashMap<u32, ClientStatement, foldhash::fast::FixedState>,
    /// Bytes of their texts.
    bytes: usize,
    /// The highest id.
    last: u32,
    /// It is that of the last PREPARE: none has failed since.
    is_latest: bool,
}

/// MariaDB: "the statement prepared last".
const LAST_PREPARED: u32 = u32::MAX;

impl Statements {
    /// Adds a statement; answers the client's id.
    pub fn insert(&mut self, statement: ClientStatement) -> u32 {
        self.last = self.last.wrapping_add(1).max(1);
        self.bytes += statement.bytes();
        if let Some(old) = self.by_id.insert(self.last, statement) {
            self.bytes -= old.bytes();
        }
        self.is_latest = true;
        self.last
    }

    /// A PREPARE began: nothing is the one prepared last until it has succeeded.
    pub fn forget_latest(&mut self) {
        self.is_latest = false;
    }

    /// The id that a client of MariaDB means; 0 for none.
    pub fn resolve(&self, id: u32) -> u32 {
        match id {
            LAST_PREPARED if self.is_latest => self.last,
            LAST_PREPARED => 0,
            id => id,
        }
    }

    /// The statement with this id.
    pub fn get(&self, id: u32) -> Option<&ClientStatement> {
        self.by_id.get(&id)
    }

    /// The statement with this id, to change it.
    pub fn get_mut(&mut self, id: u32) -> Option<&mut ClientStatement> {
        self.by_id.get_mut(&id)
    }

    /// Forgets a statement.
    pub fn remove(&mut self, id: u32) -> Option<ClientStatement> {
        let gone = self.by_id.remove(&id);
        self.bytes -= gone.as_ref().map_or(0, ClientStatement::bytes);
        if self.by_id.is_empty() {
            self.clear();
        }
        gone
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.by_id = HashMap::default();
        self.bytes = 0;
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Bytes of their texts.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Is a cursor open in a hostgroup?
    pub fn any_cursor(&self, hostgroup: HostgroupId) -> bool {
        self.by_id.values().any(|s| s.cursor == Some(hostgroup))
    }

    /// Has any statement long data waiting?
    pub fn any_long_data(&self) -> bool {
        self.by_id.values().any(|s| s.long_data)
    }
}
