//! What a statement may leave of which servers tell little or nothing, as far as its text says.

use crate::effects::changes_data_at_most;
use crate::pins::Trace;
use crate::tracked::is_observed;
use crate::wants::Wants;
use crate::words::contains;
use sql::{Analysis, Facts, Kind};
use wire::reframe::ReplyFacts;

/// Tables of accounts and rights in the schema `mysql`. MariaDB's `user` is a view of its own, which calls built-in functions only.
const GRANTS: [&[u8]; 8] =
    [b"user", b"global_priv", b"db", b"tables_priv", b"columns_priv", b"procs_priv", b"proxies_priv", b"roles_mapping"];

impl Wants {
    /// What the text that this PREPARE or EXECUTE IMMEDIATE gives leaves behind.
    pub fn trace_of(&self, sql: &[u8]) -> Trace {
        let Some(text) = sql::dynamic_text(sql, self.lex) else { return Trace::Anything };
        let analysis = sql::analyze(&text, self.lex);
        let tracing = Facts::USER_VARIABLE_ASSIGN
            | Facts::GET_LOCK
            | Facts::RELEASE_LOCK
            | Facts::CALC_FOUND_ROWS
            | Facts::MULTI
            | Facts::LAST_INSERT_ID_SET
            | Facts::UNKNOWN_FUNCTION;
        match analysis.kind {
            _ if mentions_role(&text) || analysis.facts.contains(Facts::TORN) => Trace::Anything,
            Kind::Call | Kind::Compound => Trace::Anything,
            kind if changes_data_at_most(kind) && !analysis.facts.intersects(tracing) => Trace::Nothing,
            _ if analysis.facts.contains(Facts::MULTI) => Trace::Definition,
            kind if changes_data_at_most(kind) || matches!(kind, Kind::Set | Kind::Do) => Trace::State,
            _ => Trace::Definition,
        }
    }

    /// Did the server enter another schema, and come back to the session's own? It tells of both as of one change.
    pub fn returns_to_its_schema(&self, reply: &ReplyFacts) -> bool {
        reply.state_change && reply.schema.as_deref().is_some_and(|schema| *schema == *self.state.schema.as_deref().unwrap_or_default())
    }

    /// Does that explain the change? No trigger and no view may have run; what a routine did is judged by its body.
    pub fn only_moved(&self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) -> bool {
        let is_known = changes_data_at_most(analysis.kind) || matches!(analysis.kind, Kind::Do | Kind::Call);
        is_known
            && !analysis.facts.intersects(Facts::MULTI | Facts::VERSIONED | Facts::TORN | Facts::USER_VARIABLE)
            && !reply.is_garbled
            && reply.variables.iter().all(|(name, _)| is_observed(name))
            && (only_describes(sql, analysis) || !sql::names_table(sql, self.lex, |schema, table| !self.is_of_server(schema, table)))
    }

    /// Is it a table of the server's own, behind which no view and no trigger is that somebody else made?
    pub fn is_of_server(&self, schema: Option<&[u8]>, table: &[u8]) -> bool {
        let is = |schema: &[u8], one: &[u8]| schema.eq_ignore_ascii_case(one);
        let Some(schema) = schema.or(self.state.schema.as_deref()) else { return false };
        is(schema, b"information_schema")
            || is(schema, b"performance_schema")
            || is(schema, b"mysql") && GRANTS.iter().any(|one| is(table, one))
    }
}

/// Does the statement show how tables are made, and no row of them? Servers open views for it, which MariaDB reports as a change of
/// schema, and run none of the functions in them (MariaDB 10.11, 11.8; EXPLAIN of a read does there).
fn only_describes(sql: &[u8], analysis: &Analysis) -> bool {
    let reads = |words: &[&[u8]]| words.iter().any(|word| contains(sql, word));
    match analysis.kind {
        Kind::Show => !reads(&[b"select"]) && !sql.contains(&b'('),
        Kind::Explain => {
            !reads(&[b"select", b"insert", b"replace", b"update", b"delete", b"with", b"values", b"table", b"for", b"analyze", b"="])
                && !sql.contains(&b'(')
        }
        _ => false,
    }
}

/// Whether a text may say SET ROLE or MariaDB's SET SESSION AUTHORIZATION: no reset takes either back.
pub fn mentions_role(sql: &[u8]) -> bool {
    contains(sql, b"role") || mentions_authorization(sql)
}

/// Whether a text may say `SET SESSION AUTHORIZATION u@h` (MariaDB 12): the session goes on as another account.
pub fn mentions_authorization(sql: &[u8]) -> bool {
    contains(sql, b"authorization")
}
