//! What a session wants of a connection, and how its texts are read.
//!
//! It is the session's own: whatever connection serves it is brought to this state before a statement runs.

use crate::chosen::Chosen;
use crate::flavors::{StandIns, adapt};
use crate::server_info::{Family, ServerInfo, charset_of};
use crate::state::{State, Text};
use sql::{Builtins, LexMode};
use wire::charset;

/// Variables that say what names of character sets mean.
pub const DECIDE_CHARSETS: [&str; 3] = ["default_collation_for_utf8mb4", "character_set_collations", "old_mode"];

/// See the module.
pub struct Wants {
    /// Schema, character sets, variables.
    pub state: State,
    /// Who chose its collations.
    pub chosen: Chosen,
    /// How its texts are read, as its `sql_mode` and its server's flavor say.
    pub lex: LexMode,
    /// Which servers know its collations.
    pub family: Family,
    /// What stands in for those that other servers do not know.
    pub stand_ins: Option<Box<StandIns>>,
}

impl Default for Wants {
    fn default() -> Self {
        let (state, chosen) = (State::default(), Chosen::default());
        Self { state, chosen, lex: LexMode::default(), family: Family::MySql, stand_ins: None }
    }
}

impl Wants {
    /// The session came to a server: one of another family than its state was learnt on may not know all of it. Returns whether the
    /// statement was read as one for another flavor, so that a stored function may have gone unseen.
    pub fn come_to(&mut self, info: &ServerInfo) -> bool {
        if info.family == self.family {
            return false;
        }
        let is_of_other_flavor = info.flavor != self.family.flavor();
        if let Some(put) = self.stand_ins.take() {
            put.undo(&mut self.state);
        }
        self.stand_ins = Some(Box::new(adapt(&mut self.state, info))).filter(|put| !put.is_empty());
        self.family = info.family;
        is_of_other_flavor && std::mem::replace(&mut self.lex.builtins, Builtins::Common) != Builtins::Common
    }

    /// The tables that are made or dropped, with their schemas.
    pub fn temporary_tables(&self, sql: &[u8]) -> Vec<(Text, String)> {
        let own = || self.state.schema.clone().unwrap_or_else(|| (*b"").into());
        let tables = sql::temporary_tables(sql, self.lex).into_iter();
        tables.map(|(schema, table)| (schema.map_or_else(own, |schema| schema.as_bytes().into()), table)).collect()
    }

    /// False under settings under which this SET text might mean something else.
    pub fn state_is_ordinary(&self, sql: &[u8]) -> bool {
        !self.lex.ansi_quotes
            && !self.lex.no_backslash_escapes
            && self.lex.multi_byte.reads_alike(sql)
            && DECIDE_CHARSETS.iter().all(|name| self.state.variables.get(name).is_none())
    }

    /// A name of the client's, as servers keep and tell it. `collation` is that of the client's handshake, `info` is what a server said of itself. What is no text in the session's character set stays as it is: servers
    /// refuse it.
    pub fn in_utf8(&self, info: Option<&ServerInfo>, collation: u16, name: &[u8]) -> Text {
        let charset = match self.state.variables.get("character_set_client") {
            Some(charset) => charset,
            None => charset_of(info, collation).as_bytes(),
        };
        charset::to_utf8(charset, name).unwrap_or(name.into()).as_ref().into()
    }
}

#[cfg(test)]
#[path = "wants_tests.rs"]
mod tests;
