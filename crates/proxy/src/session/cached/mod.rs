//! The query cache, as a session uses it: only statements whose rule gives a `cache_ttl` come here.
//!
//! INVARIANT: nothing is answered from the cache inside a transaction or while anything pins the session.

use super::Session;
use super::backends::Backends;
use super::command::Incoming;
use super::end::End;
use super::frontend::Frontend;
use super::guard::paused;
use super::query::text_offset;
use super::respond::Made;
use crate::statements::stmt_cache::asked;
use cache::{Asked, AskedExecution, Asker, CachePolicy, Entry, Key, Look, ResultProtocol};
use session_state::class::Class;
use session_state::wants::Wants;
use sql::{Analysis, Facts, Offset};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::flags::Capabilities;
use wire::query::split_query;

impl Session {
    /// Answers a COM_QUERY from the cache; false when it must be run. What it then answers may fill the cache.
    pub(super) async fn query_from_cache(&mut self, command: Incoming, start: usize, analysis: &Analysis) -> Result<bool, End> {
        let attribute_count = if self.client.caps.contains(Capabilities::QUERY_ATTRIBUTES) {
            split_query(self.client.payload(command), self.client.caps).map_or(0, |parts| parts.attribute_count)
        } else {
            0
        };
        let text = self.client.sql_text(command, start);
        let asked = Asked::Text { sql: text, attribute_count };
        let key = self.client.cache_key(&self.at, &self.wants, &asked, (analysis, text));
        let offset = if analysis.facts.contains(Facts::OFFSET) { text_offset(text, self.wants.lex) } else { Offset::None };
        let keeps_warnings = self.facts.leaves_warnings(self.worker.shared.flavor(), analysis, text);
        self.look_in_cache(key, ResultProtocol::Text, Leaves { offset, keeps_warnings }).await
    }

    /// The same for an execution of the prepared statement `id`.
    pub(super) async fn execution_from_cache(&mut self, command: Incoming, id: u32) -> Result<bool, End> {
        let mode = self.client.mode(&self.wants, &self.worker);
        let Some(statement) = self.statements.get(id).filter(|s| !s.is_bound()) else { return Ok(false) };
        let asked = Asked::Execution(AskedExecution {
            statement: asked(&statement.key),
            mode: &mode,
            lex: self.wants.lex,
            params: statement.params,
            types: &statement.types,
            payload: self.client.payload(command),
            caps: self.client.caps,
        });
        let (analysis, text) = (&statement.analysis, &*statement.key.text);
        let key = self.client.cache_key(&self.at, &self.wants, &asked, (analysis, text));
        let offset = if analysis.facts.contains(Facts::OFFSET) {
            self.statements.executed_offset(&self.at, &self.client, &self.wants, command, id)
        } else {
            Offset::None
        };
        let keeps_warnings = self.facts.leaves_warnings(self.worker.shared.flavor(), analysis, text);
        self.look_in_cache(key, ResultProtocol::Binary, Leaves { offset, keeps_warnings }).await
    }

    async fn look_in_cache(&mut self, key: Option<Key>, form: ResultProtocol, leaves: Leaves) -> Result<bool, End> {
        let (Some(key), Some(ttl_ms)) = (key, self.hand.directions.cache_ttl_ms) else { return Ok(false) };
        if leaves.offset == Offset::Unclear {
            // FOUND_ROWS() after it is the server's to know.
            return Ok(false);
        }
        let since_ms = if self.worker.shared.has_successor() {
            // What is revoked in the other process is not known here.
            self.worker.shared.clock.now_ms() + 1
        } else {
            self.worker.shared.rights_changed_ms.load(Ordering::Acquire)
        };
        let policy = CachePolicy { ttl_ms: u64::from(ttl_ms.get()), keeps_empty: self.hand.directions.cache_empty_result, since_ms };
        let entry = match self.worker.shared.cache.look(key, form, policy, self.worker.shared.clock.now_ms()) {
            Look::Hit(entry) => entry,
            Look::Lead(fill) => {
                self.hand.fill = Some(Box::new(fill));
                return Ok(false);
            }
            Look::Follow(waiting) => match Box::pin(paused(&self.handle, waiting.wait())).await {
                Ok(Some(entry)) => entry,
                Ok(None) => return Ok(false),
                Err(fault) => {
                    Box::pin(self.report(fault)).await?;
                    return Ok(true);
                }
            },
            Look::Off => return Ok(false),
        };
        if matches!(leaves.offset, Offset::Rows(1..)) && entry.rows() == 0 {
            return Ok(false);
        }
        let is_answered = self.client.answer_from_cache(&mut self.at, &entry, form).await?;
        if is_answered {
            self.facts.answered_from_cache(entry.rows(), leaves.keeps_warnings);
            self.facts.skipped_rows(leaves.offset);
        }
        Ok(is_answered)
    }
}

/// What an answer leaves in the session, by the statement.
#[derive(Clone, Copy)]
struct Leaves {
    /// Rows that a LIMIT leaves out at the front.
    offset: Offset,
    /// Warnings of before stay.
    keeps_warnings: bool,
}

impl Frontend {
    async fn answer_from_cache(&mut self, at: &mut Backends, entry: &Arc<Entry>, form: ResultProtocol) -> Result<bool, End> {
        let mut packets = Vec::new();
        let is_made = entry.write_reply(form, self.current_status(), &mut packets).is_some();
        Ok(is_made && self.send_made(at, packets, entry.caps()).await? != Made::Not)
    }

    /// The key of a statement with this text. A call may write or read what is the connection's own (a sequence, a lock), unless the
    /// user's attributes declare it safe.
    fn cache_key(&self, at: &Backends, wants: &Wants, asked: &Asked<'_>, (analysis, text): (&Analysis, &[u8])) -> Option<Key> {
        if !at.pins.set().is_empty() || at.backend.is_some() {
            return None;
        }
        let statement = routing::Statement { text, mode: wants.lex, analysis: *analysis };
        if !routing::calls_are_safe(&statement, &at.user.attributes.safe_functions) {
            return None;
        }
        let asker = Asker {
            user: &at.user.name,
            hostgroup: at.pool.shared.id,
            collation: self.collation,
            meaning: Class::of(self.caps).capabilities(),
            schema: wants.state.schema.as_deref(),
            variables: wants.state.variables.entries(),
            has_user_variables: !wants.state.user_variables.is_empty(),
            status: self.current_status(),
        };
        at.worker.shared.cache.key(&asker, asked, analysis)
    }
}
