//! The life of a statement: the steps of serving one, in order. The comment before each step names its file.
//!
//! A text and an execution of a prepared statement take the same steps. Where a step differs, it branches by the [`Form`].

use super::Session;
use super::command::Incoming;
use super::door::door;
use super::end::End;
use super::frontend::Frontend;
use super::local::{ends_transaction, may_be_answered_here};
use super::plan::Plan;
use super::query::asks_for_facts;
use super::route::TextCommand;
use super::statements::Statements;
use crate::workers::counters::count;
use session_state::wants::Wants;
use sql::{Analysis, Kind};
use wire::reframe::ReplyFacts;

/// A statement that the client wants run.
#[derive(Clone, Copy)]
pub(super) struct Statement {
    /// The command that it came with, or that a rule put in its place.
    pub command: Incoming,
    /// What it is.
    pub analysis: Analysis,
    /// How it came.
    pub form: Form,
}

/// How a statement came.
#[derive(Clone, Copy)]
pub(super) enum Form {
    /// COM_QUERY.
    Text {
        /// Where its text begins in the command's body, behind query attributes.
        start: usize,
    },
    /// COM_STMT_EXECUTE.
    Execution {
        /// The client's statement.
        id: u32,
        /// With a cursor, or without.
        phase: TextCommand,
    },
    /// COM_STMT_BULK_EXECUTE.
    Bulk {
        /// The client's statement.
        id: u32,
    },
}

impl Session {
    /// Serves a statement.
    pub(super) async fn serve_statement(&mut self, statement: &mut Statement) -> Result<(), End> {
        // Where it goes, and how it is run: route.rs.
        if !self.hand.goes_home_undirected(&mut self.at) && !self.direct_statement(statement).await? {
            return Ok(());
        }
        // What needs no server: local.rs.
        if may_be_answered_here(&statement.analysis) && self.answer_here(statement).await? {
            return Ok(());
        }
        // What is sent: query.rs, execute.rs.
        let mut plan = Plan::new(statement.analysis);
        if !self.plan(statement, &mut plan).await? {
            if let Some(beside) = self.beside.as_mut() {
                beside.is_answered_unsent();
            }
            return Ok(());
        }
        // What the query cache has: cached.rs.
        if self.hand.directions.cache_ttl_ms.is_some() && Box::pin(self.answer_from_cache(statement)).await? {
            return Ok(());
        }
        // A copy for the mirror: mirrored.rs.
        if self.hand.directions.mirror.is_some() {
            self.mirror_statement(statement);
        }
        // Whether a shadow will repeat it, or a capture has it: listening.rs.
        self.listening_begins(statement);
        plan.heard = Some((statement.form, self.worker.shared.rehearsals.epoch()));
        // A backend (acquire.rs), the session's state on it (sync.rs), statement and reply (relay.rs); again where that is safe: run.rs.
        let mut reply = ReplyFacts::default();
        let result = self.run_plan(statement.command, &plan, &mut reply).await;
        // What is counted, before more is asked of the server: measure.rs.
        self.measure(statement, Some(result.as_ref().map(|()| &reply)));
        // What the client is told where it did not run: fault.rs.
        if let Err(fault) = result {
            return self.report(fault).await;
        }
        // What it did: effects.rs and its kin, by query.rs and execute.rs.
        self.note_outcome(statement, &plan, &reply).await?;
        // What would be lost is read, and the backend given back: settle.rs.
        self.settle(&statement.analysis, &reply, |session, id| {
            session.statements.shows_insert_id(&session.client, &session.wants, statement, id)
        })
        .await?;
        if self.beside.is_some() {
            self.rehearsal_ends(statement);
        }
        Ok(())
    }

    /// Decides where it goes; false where it was answered.
    async fn direct_statement(&mut self, statement: &mut Statement) -> Result<bool, End> {
        let is_to_run = match statement.form {
            Form::Text { start } => match self.direct(statement.command, start, &statement.analysis, TextCommand::Query).await? {
                Some((command, analysis, _)) => {
                    (statement.command, statement.analysis) = (command, analysis);
                    true
                }
                None => false,
            },
            Form::Execution { id, phase } => self.direct_execution(id, phase).await?,
            Form::Bulk { id } => self.direct_execution(id, TextCommand::Execution).await?,
        };
        if !is_to_run {
            self.measure(statement, None);
            if let Some(beside) = self.beside.as_mut() {
                beside.stops();
            }
            if let Form::Execution { id, .. } | Form::Bulk { id } = statement.form {
                self.forget_long_data(id).await?;
            }
        }
        Ok(is_to_run)
    }

    async fn answer_here(&mut self, statement: &Statement) -> Result<bool, End> {
        let analysis = statement.analysis;
        let is_answered = match statement.form {
            Form::Text { start } => {
                if self.facts.is_refused && analysis.kind == Kind::Set {
                    self.effects().make_way_for(statement.command, start, &analysis);
                }
                self.answered_here(statement.command, start, &analysis).await?
            }
            Form::Execution { id, .. } => Box::pin(self.answer_prepared_here(id)).await?,
            Form::Bulk { .. } => false,
        };
        if is_answered {
            count(&self.worker.counters.answered_here);
            let reply = ReplyFacts::default();
            // The end of a transaction is counted where it would have gone.
            self.measure(statement, ends_transaction(analysis.kind).then_some(Ok(&reply)));
        }
        Ok(is_answered)
    }

    /// False where it was answered.
    async fn plan(&mut self, statement: &Statement, plan: &mut Plan) -> Result<bool, End> {
        if !self.at.pins.set().is_empty() && asks_for_facts(&plan.analysis) {
            if self.at.finds_another(self.hand.directions.needs) {
                // Planned to ask this backend, it would ask another one.
                self.facts.lose_backend();
            }
            Box::pin(door!(self).read_facts_for(&self.wants, &plan.analysis)).await;
        }
        match statement.form {
            Form::Text { start } => self.router().plan_text(&self.facts, statement.command, start, plan),
            Form::Execution { id, .. } => return self.plan_execution(statement.command, id, plan).await,
            Form::Bulk { id } => self.statements.plan_bulk(&self.client, statement.command, id, plan),
        }
        Ok(true)
    }

    async fn answer_from_cache(&mut self, statement: &Statement) -> Result<bool, End> {
        let is_answered = match statement.form {
            Form::Text { start } => self.query_from_cache(statement.command, start, &statement.analysis).await?,
            Form::Execution { id, .. } => self.execution_from_cache(statement.command, id).await?,
            Form::Bulk { .. } => false,
        };
        if is_answered {
            self.measure(statement, None);
        }
        Ok(is_answered)
    }

    async fn note_outcome(&mut self, statement: &Statement, plan: &Plan, reply: &ReplyFacts) -> Result<(), End> {
        match statement.form {
            Form::Text { start } => {
                self.note_text(statement.command, start, plan, reply).await;
                Ok(())
            }
            Form::Execution { id, .. } | Form::Bulk { id } => self.note_execution(statement.command, id, plan, reply).await,
        }
    }
}

impl Statements {
    fn shows_insert_id(&self, client: &Frontend, wants: &Wants, statement: &Statement, insert_id: u64) -> bool {
        match statement.form {
            Form::Text { start } => client.text_insert_id_is_certain(wants, statement.command, start, insert_id),
            Form::Execution { id, .. } | Form::Bulk { id } => {
                self.execution_insert_id_is_certain(client, wants, statement.command, id, insert_id)
            }
        }
    }
}

#[cfg(test)]
#[path = "prepared_tests.rs"]
mod tests;
