//! Views behind which code writes: no text of a read shows it, so what a read names is looked up before it counts as harmless,
//! where that matters (a read that may have run already, a transaction that only read).
//!
//! Asked is the server, with the session's own rights: what is no view is harmless, and so is a view that calls nothing but
//! built-in functions, and whose own tables are. What cannot be seen is not. It is remembered for `prepared_metadata_max_age`, or until
//! a data definition. INVARIANT: no proof, no harmlessness.

use super::Session;
use super::command::Incoming;
use super::door::ServerDoor;
use super::fault::Fault;
use super::frontend::Frontend;
use super::plan::Plan;
use super::relay::Outgoing;
use super::statements::Statements;
use crate::workers::worker::Worker;
use session_state::certainty::{self, Refusal};
use session_state::question::Question;
use session_state::views::{Found, SchemaTable, TableQuestion, found_in, located, tables_behind};
use session_state::wants::Wants;
use sql::{Facts, Kind};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::reframe::ReplyError;

/// How deep views of views are looked into.
const DEEPEST: usize = 4;
/// Names that are asked for at a time.
const MOST: usize = 64;
impl Session {
    /// Gets a backend for a read that may have run already, and asks there whether it may run again.
    pub(super) async fn may_read_again(&mut self, command: Incoming, plan: &Plan) -> Result<bool, Fault> {
        let Some(tables) = self.statements.tables_of(&self.client, &self.wants, &self.worker, command, plan) else { return Ok(false) };
        if tables.is_empty() {
            return Ok(true);
        }
        self.obtain().await?;
        if !self.hand.is_not_causal(&self.at) {
            // What it must see has to be there before the question begins a transaction (autocommit=0).
            let ahead = self.sync_causally(&plan.analysis, false).await?;
            self.send_statement(&ahead, Outgoing::Bytes(&[])).await?;
        }
        self.door().are_harmless(tables).await
    }
}

impl ServerDoor<'_> {
    /// Those of the tables of which it is not known that reading them runs no code that may write; an error where one is known that may.
    pub(super) fn unproven(&self, mut tables: Vec<SchemaTable>) -> Result<Vec<SchemaTable>, ()> {
        let at = &*self.at;
        let Some(info) = at.backend.as_ref().map(|backend| Arc::clone(&backend.core.info)) else { return Ok(tables) };
        let (epoch, now_ms) = (at.worker.shared.ddl_epoch.load(Ordering::Acquire), at.worker.clock.now_ms());
        let max_age_ms = at.worker.snapshot().vars.prepared_metadata_max_age;
        let (memory, place) = (at.worker.memory.borrow(), at.place(&info));
        let mut writes = false;
        tables.retain(|table| {
            let known = memory.is_harmless(&place, (&table.schema, &table.name), epoch, now_ms, max_age_ms);
            writes |= known == Some(false);
            known.is_none()
        });
        if writes { Err(()) } else { Ok(tables) }
    }
}

impl Statements {
    /// Whether the session reads texts as it did when it prepared this statement.
    pub(super) fn is_read_as_prepared(&self, client: &Frontend, wants: &Wants, worker: &Worker, id: u32) -> bool {
        self.get(id).is_none_or(|statement| *statement.key.mode == *client.mode(wants, worker))
    }

    /// What a read reads; None where that is not certain.
    pub(super) fn tables_of(
        &self,
        client: &Frontend,
        wants: &Wants,
        worker: &Worker,
        command: Incoming,
        plan: &Plan,
    ) -> Option<Vec<SchemaTable>> {
        let text = self.text_of(client, command, plan);
        // Only a SHOW with a condition may read what it names.
        if plan.analysis.kind == Kind::Show && !text.contains(&b'(') {
            return Some(Vec::new());
        }
        if plan.analysis.facts.contains(Facts::VERSIONED) {
            return None;
        }
        if plan.statement.is_some_and(|id| !self.is_read_as_prepared(client, wants, worker, id)) {
            return None;
        }
        let statement = plan.statement.and_then(|id| self.get(id));
        let own = statement.map_or(wants.state.schema.as_ref(), |statement| statement.key.schema.as_ref());
        located(sql::read_tables(text, wants.lex)?, own.map(|own| &**own))
    }
}

impl ServerDoor<'_> {
    /// Asks the backend at hand what these are; None where it does not tell.
    async fn look_up(&mut self, asked: &[TableQuestion]) -> Result<Option<Vec<Found>>, Fault> {
        let tables: Vec<&SchemaTable> = asked.iter().map(|one| &one.table).collect();
        let reply = match self.ask(Question::Tables(&tables)).await {
            Ok(reply) => reply,
            Err(e) => return Err(self.at.lost_before(&e)),
        };
        let Some(error) = &reply.error else { return Ok(found_in(&reply.rows, asked.len())) };
        let told = ReplyError { code: error.code, sqlstate: error.sqlstate, message: &error.message, unasked: reply.unasked };
        match certainty::refusal(&told) {
            // It says nothing of the tables: another server may.
            Some(Refusal::Leaving | Refusal::NeverRead | Refusal::NotReady) => {
                Err(self.at.lost_before(&io::Error::other(error.to_string())))
            }
            _ => Ok(None),
        }
    }

    /// Whether reading these runs no code that may write, as far as is known, or as the backend at hand says.
    pub(super) async fn are_harmless(&mut self, tables: Vec<SchemaTable>) -> Result<bool, Fault> {
        let Ok(tables) = self.unproven(tables) else { return Ok(false) };
        if tables.is_empty() {
            return Ok(true);
        }
        let Some(info) = self.at.backend.as_ref().map(|backend| Arc::clone(&backend.core.info)) else {
            return Err(self.at.pinned_backend_lost("no backend"));
        };
        let epoch = self.at.worker.shared.ddl_epoch.load(Ordering::Acquire);
        let mut harmless = vec![true; tables.len()];
        let of = |(root, table): (usize, &SchemaTable)| TableQuestion { table: table.clone(), root, may_be_missing: true };
        let mut asked: Vec<TableQuestion> = tables.iter().enumerate().map(of).collect();
        for _ in 0..=DEEPEST {
            if asked.is_empty() || asked.len() > MOST {
                break;
            }
            let Some(found) = self.look_up(&asked).await? else { return Ok(false) };
            let mut next = Vec::new();
            for (one, found) in asked.iter().zip(found) {
                let goes_on = match found {
                    Found::Nothing => one.may_be_missing,
                    Found::Table => true,
                    Found::View(definition) => match tables_behind(&definition, &one.table, info.flavor) {
                        Some(behind) => {
                            next.extend(behind.into_iter().map(|(table, may_be_missing)| TableQuestion {
                                table,
                                root: one.root,
                                may_be_missing,
                            }));
                            true
                        }
                        None => false,
                    },
                };
                if let Some(harmless) = harmless.get_mut(one.root) {
                    *harmless &= goes_on;
                }
            }
            // Of what is not harmless nothing more needs to be known.
            next.retain(|one: &TableQuestion| harmless.get(one.root) == Some(&true));
            asked = next;
        }
        for one in asked {
            if let Some(harmless) = harmless.get_mut(one.root) {
                *harmless = false;
            }
        }
        let now_ms = self.at.worker.clock.now_ms();
        let mut memory = self.at.worker.memory.borrow_mut();
        for (table, is_harmless) in tables.iter().zip(&harmless) {
            memory.learn_table(&self.at.place(&info), (&table.schema, &table.name), *is_harmless, epoch, now_ms);
        }
        Ok(harmless.iter().all(|is_harmless| *is_harmless))
    }

    /// The same as [`Self::are_harmless`], and since when (worker's clock, ms) that is known at least.
    pub(super) async fn are_harmless_since(&mut self, tables: Vec<SchemaTable>) -> Result<(bool, u64), Fault> {
        let is_harmless = self.are_harmless(tables.clone()).await?;
        let now_ms = self.at.worker.clock.now_ms();
        let Some(info) = self.at.backend.as_ref().map(|backend| Arc::clone(&backend.core.info)) else { return Ok((is_harmless, now_ms)) };
        let (memory, place) = (self.at.worker.memory.borrow(), self.at.place(&info));
        let known_ms = tables.iter().filter_map(|table| memory.harmless_since_ms(&place, (&table.schema, &table.name)));
        Ok((is_harmless, known_ms.min().unwrap_or(now_ms)))
    }
}
