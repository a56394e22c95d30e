//! COM_QUERY: understand, answer here or run, note the effects, settle.

use super::Session;
use super::acquire::{Certainty, Fault};
use super::command::Incoming;
use super::end::End;
use super::relay::Outgoing;
use crate::backend::put_command;
use crate::counters::count;
use crate::reframe::{Patch, ReplyFacts};
use sql::{Analysis, Facts, Kind};
use wire::command::Command;
use wire::flags::Capabilities;
use wire::query::split_query;
use wire::reply::ReplyKind;

/// A statement ready to run.
pub struct Plan {
    /// What it is.
    pub analysis: Analysis,
    /// The shape of its reply.
    pub reply: ReplyKind,
    /// A number that the session knows better than the backend.
    pub patch: Option<Patch>,
    /// The command's bytes when they are not the client's.
    pub rewritten: Option<Vec<u8>>,
    /// The client's prepared statement that it names.
    pub statement: Option<u32>,
}

impl Plan {
    /// A plan that sends the client's own bytes.
    pub fn new(analysis: Analysis) -> Self {
        Self { analysis, reply: ReplyKind::Results, patch: None, rewritten: None, statement: None }
    }
}

impl Session {
    /// Serves COM_QUERY.
    pub(super) async fn query(&mut self, command: Incoming) -> Result<(), End> {
        let (start, analysis) = {
            let body = self.body(command);
            let start = match self.caps.contains(Capabilities::QUERY_ATTRIBUTES) {
                true => split_query(self.payload(command), self.caps).map_or(0, |parts| parts.sql.start - 1),
                false => 0,
            };
            (start, sql::analyze(body.get(start..).unwrap_or_default(), self.lex))
        };
        if self.answered_here(command, start, &analysis).await? {
            count(&self.worker.counters.answered_here);
            return Ok(());
        }
        let mut plan = Plan::new(analysis);
        self.substitute(command, start, &mut plan);
        let began_us = self.worker.shared.clock.now_us();
        let result = self.run_plan(command, &plan).await;
        let time_us = self.worker.shared.clock.now_us().saturating_sub(began_us);
        self.count_digest(command, start, &analysis, time_us);
        let reply = match result {
            Ok(reply) => reply,
            Err(fault) => return self.report(fault).await,
        };
        self.note_effects(command, start, &analysis, &reply);
        if analysis.kind == Kind::Set {
            let sql = self.sql_text(command, start).to_vec();
            Box::pin(self.learn_set(&sql, &analysis, &reply)).await;
        }
        if self.facts.diagnostics.is_some() {
            self.facts.keeps_warnings = self.leaves_warnings(&analysis, self.sql_text(command, start));
        }
        self.settle(&analysis, &reply, |session, id| {
            let body = session.body(command);
            sql::insert_id_is_certain(body.get(start..).unwrap_or_default(), session.lex, id)
        })
        .await
    }

    /// The text of the statement.
    pub(super) fn sql_text(&self, command: Incoming, start: usize) -> &[u8] {
        self.body(command).get(start..).unwrap_or_default()
    }

    /// Runs a statement; a lost connection is made good where it is certain that nothing happened.
    pub(super) async fn run_plan(&mut self, command: Incoming, plan: &Plan) -> Result<ReplyFacts, Fault> {
        let mut tries = self.worker.snapshot.vars.query_retries_on_failure.saturating_add(1);
        loop {
            match self.try_plan(command, plan).await {
                Err(Fault::Lost { certainty, text }) if tries > 0 && self.may_retry(certainty, &plan.analysis) => {
                    tries -= 1;
                    count(&self.worker.counters.retries);
                    tracing::debug!("session {}: statement sent again: {text}", self.entry.id);
                }
                result => return result,
            }
        }
    }

    async fn try_plan(&mut self, command: Incoming, plan: &Plan) -> Result<ReplyFacts, Fault> {
        self.obtain().await?;
        let ahead = self.sync(&plan.analysis).await?;
        let readied = match plan.statement {
            Some(id) => self.ready_execution(command, id).await?,
            None => None,
        };
        let outgoing = match readied.as_ref().or(plan.rewritten.as_ref()) {
            Some(bytes) => Outgoing::Bytes(bytes),
            None => Outgoing::AsItCame(command.wire_len),
        };
        self.send_statement(&ahead, outgoing).await?;
        self.relay(plan.reply, plan.patch).await
    }

    /// A statement may be sent again only when it had no effect: it never arrived, or it is a plain read of which the
    /// client has seen nothing.
    fn may_retry(&self, certainty: Certainty, analysis: &Analysis) -> bool {
        let changes = Facts::LOCKING_READ
            | Facts::GET_LOCK
            | Facts::RELEASE_LOCK
            | Facts::USER_VARIABLE_ASSIGN
            | Facts::UNKNOWN_FUNCTION
            | Facts::MULTI
            | Facts::INTO_FILE
            | Facts::LAST_INSERT_ID_SET;
        let plain_read = matches!(analysis.kind, Kind::Select | Kind::Show | Kind::Explain) && !analysis.facts.intersects(changes);
        match certainty {
            Certainty::NeverSent => true,
            Certainty::Unknown => plain_read,
            Certainty::Answering => false,
        }
    }

    /// Tells the client of a fault; the session goes on where it can.
    pub(super) async fn report(&mut self, fault: Fault) -> Result<(), End> {
        match fault {
            Fault::End(end) => Err(end),
            Fault::Error { code, sqlstate, text } => {
                self.facts.row_count = -1;
                let state = String::from_utf8_lossy(&sqlstate).into_owned();
                self.send_error_at(self.answer_seq(), code, &state, &text).await?;
                // The backend was not touched by the statement; an unpinned session gives it back.
                self.give_back();
                Ok(())
            }
            Fault::Lost { certainty: Certainty::Answering, text } => {
                Err(End::BackendLost(format!("Lost connection to server during query: {text}")))
            }
            Fault::Lost { text, .. } => {
                tracing::warn!("session {}: connection to the server lost during a statement: {text}", self.entry.id);
                let text = format!("Lost connection to server during query ({text})");
                self.send_error(2013, "HY000", &text).await
            }
        }
    }

    /// Puts what only the session knows into the statement: CONNECTION_ID(), FOUND_ROWS(), ROW_COUNT(), counts.
    fn substitute(&self, command: Incoming, start: usize, plan: &mut Plan) {
        let own = Facts::CONNECTION_ID | Facts::FOUND_ROWS | Facts::ROW_COUNT | Facts::DIAGNOSTICS;
        if !plan.analysis.facts.intersects(own) && !matches!(plan.analysis.kind, Kind::ShowCountWarnings | Kind::ShowCountErrors) {
            return;
        }
        let counted = match plan.analysis.kind {
            Kind::ShowCountWarnings => Some(sql::Fact::WarningCount),
            Kind::ShowCountErrors => Some(sql::Fact::ErrorCount),
            _ => None,
        };
        if let Some(fact) = counted.filter(|_| self.pins.set().is_empty()) {
            plan.patch = Some(Patch { value: self.facts.of(fact, self.entry.id), binary: false });
            return;
        }
        let sql = self.sql_text(command, start);
        if let Some(fact) = sql::single_fact_select(sql, self.lex) {
            if fact == sql::Fact::ConnectionId || self.pins.set().is_empty() {
                plan.patch = Some(Patch { value: self.facts.of(fact, self.entry.id), binary: false });
            }
            return;
        }
        // On a pinned session the backend knows all but the connection id.
        let backend_knows = plan.analysis.facts.intersects(Facts::FOUND_ROWS | Facts::ROW_COUNT | Facts::DIAGNOSTICS);
        if !self.pins.set().is_empty() && (backend_knows || !plan.analysis.facts.contains(Facts::CONNECTION_ID)) {
            return;
        }
        if plan.analysis.kind == Kind::GetDiagnostics {
            return;
        }
        let text = self.substituted(sql);
        let prefix = self.body(command).get(..start).unwrap_or_default();
        let mut out = Vec::with_capacity(text.len() + prefix.len() + 8);
        put_command(&mut out, Command::Query, &[prefix, &text].concat());
        plan.rewritten = Some(out);
    }

    /// The text with the calls replaced by numbers.
    pub(super) fn substituted(&self, sql: &[u8]) -> Vec<u8> {
        sql::substitute_facts(sql, self.lex, |fact| self.facts.of(fact, self.entry.id))
    }

    pub(super) fn count_digest(&self, command: Incoming, start: usize, analysis: &Analysis, time_us: u64) {
        self.worker.memory.borrow_mut().count_digest(analysis.digest, time_us, || {
            let mut text = Vec::new();
            sql::digest_text(self.sql_text(command, start), &sql::DigestOptions::default(), &mut text);
            text
        });
    }
}
