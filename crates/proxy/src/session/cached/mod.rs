//! The query cache, as a session uses it: only statements whose rule gives a `cache_ttl` come here.
//!
//! INVARIANT: nothing is answered from the cache inside a transaction or while anything pins the session.

use super::Session;
use super::backends::Backends;
use super::command::Incoming;
use super::end::End;
use super::frontend::Frontend;
use super::guard::paused;
use super::respond::Made;
use crate::statements::stmt_cache::asked;
use cache::{Asked, AskedExecution, Asker, CachePolicy, Entry, Key, Look, ResultProtocol};
use session_state::class::Class;
use session_state::facts::SessionFacts;
use session_state::wants::Wants;
use sql::Analysis;
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
        let asked = Asked::Text { sql: self.client.sql_text(command, start), attribute_count };
        let key = self.client.cache_key(&self.at, &self.wants, &asked, analysis);
        self.look_in_cache(key, ResultProtocol::Text).await
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
        let key = self.client.cache_key(&self.at, &self.wants, &asked, &statement.analysis);
        self.look_in_cache(key, ResultProtocol::Binary).await
    }

    async fn look_in_cache(&mut self, key: Option<Key>, form: ResultProtocol) -> Result<bool, End> {
        let (Some(key), Some(ttl_ms)) = (key, self.hand.directions.cache_ttl_ms) else { return Ok(false) };
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
        self.client.answer_from_cache(&mut self.at, &mut self.facts, &entry, form).await
    }
}

impl Frontend {
    async fn answer_from_cache(
        &mut self,
        at: &mut Backends,
        facts: &mut SessionFacts,
        entry: &Arc<Entry>,
        form: ResultProtocol,
    ) -> Result<bool, End> {
        let mut packets = Vec::new();
        if entry.write_reply(form, self.current_status(), &mut packets).is_none()
            || self.send_made(at, packets, entry.caps()).await? == Made::Not
        {
            return Ok(false);
        }
        facts.answered_from_cache(entry.rows());
        Ok(true)
    }

    fn cache_key(&self, at: &Backends, wants: &Wants, asked: &Asked<'_>, analysis: &Analysis) -> Option<Key> {
        if !at.pins.set().is_empty() || at.backend.is_some() {
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
