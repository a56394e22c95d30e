//! COM_QUERY: understand, answer here or run, note the effects, settle.

use super::Session;
use super::acquire::{Certainty, Fault};
use super::charsets;
use super::command::Incoming;
use super::effects::contains;
use super::end::{End, SERVER_LOST, SERVER_LOST_STATE};
use super::leave::Kept;
use super::local::ends_transaction;
use super::relay::Outgoing;
use super::route::{Phase, packets_of};
use super::sync::{Ahead, is_about_diagnostics};
use super::tableless::reads_table;
use crate::backend::put_command;
use crate::causal::Writing;
use crate::counters::count;
use crate::pins::PinReason;
use crate::safety::Safety;
use crate::state::is_wide;
use sql::{Analysis, Facts, Kind};
use wire::codec::put_lenenc_bytes;
use wire::command::Command;
use wire::flags::Capabilities;
use wire::packet::{HEADER, MAX_PAYLOAD, put_packet};
use wire::query::split_query;
use wire::reframe::{Patch, ReplyFacts};
use wire::reply::ReplyKind;

/// A statement ready to run.
pub struct Plan {
    /// What it is.
    pub analysis: Analysis,
    /// The shape of its reply.
    pub reply: ReplyKind,
    /// For each result, what the session knows better than the backend.
    pub patches: Vec<Option<Patch>>,
    /// The command's bytes when they are not the client's.
    pub rewritten: Option<Vec<u8>>,
    /// The client's prepared statement that it names.
    pub statement: Option<u32>,
}

impl Plan {
    /// A plan that sends the client's own bytes.
    pub fn new(analysis: Analysis) -> Self {
        Self { analysis, reply: ReplyKind::Results, patches: Vec::new(), rewritten: None, statement: None }
    }

    /// How the statement is seen by what brings a backend to the session's state. The text USE may run in any schema. An execution of USE
    /// may not: MariaDB goes back to the schema that it found, unless that is the prepared statement's.
    fn as_synced(&self) -> Analysis {
        match self.analysis.kind {
            Kind::Use if self.statement.is_some() => Analysis { kind: Kind::Other, ..self.analysis },
            _ => self.analysis,
        }
    }

    /// The body of the command that is sent in place of the client's; None too when it takes several packets.
    pub fn sent_body(&self) -> Option<&[u8]> {
        self.rewritten.as_deref().filter(|packets| packets.len() < MAX_PAYLOAD)?.get(HEADER + 1..)
    }
}

impl Session {
    /// Serves COM_QUERY.
    pub(super) async fn query(&mut self, command: Incoming) -> Result<(), End> {
        let (start, analysis) = {
            let body = self.body(command);
            let start = match self.caps.contains(Capabilities::QUERY_ATTRIBUTES) {
                // What is no text to us may be one to the server.
                true => match split_query(self.payload(command), self.caps) {
                    Ok(parts) => parts.sql.start - 1,
                    Err(_) => return self.malformed().await,
                },
                false => 0,
            };
            (start, self.worker.analyze(body.get(start..).unwrap_or_default(), self.lex))
        };
        let (command, analysis) = match self.needs_no_direction() {
            true => (command, analysis),
            false => match self.direct(command, start, &analysis, Phase::Query).await? {
                Some((command, analysis, _)) => (command, analysis),
                None => {
                    self.query_ended(command, start, &analysis, None);
                    return Ok(());
                }
            },
        };
        if self.facts.is_refused && analysis.kind == Kind::Set {
            self.make_way_for(command, start, &analysis);
        }
        if Self::may_be_answered_here(&analysis) && self.answered_here(command, start, &analysis).await? {
            count(&self.worker.counters.answered_here);
            let reply = ReplyFacts::default();
            // Counted where it would have gone.
            self.query_ended(command, start, &analysis, ends_transaction(analysis.kind).then_some(Ok(&reply)));
            return Ok(());
        }
        if self.directions.cache_ttl_ms.is_some() && Box::pin(self.query_from_cache(command, start, &analysis)).await? {
            self.query_ended(command, start, &analysis, None);
            return Ok(());
        }
        if !self.pins.set().is_empty() && asks_for_facts(&analysis) {
            Box::pin(self.read_before(&analysis)).await;
        }
        let mut plan = Plan::new(analysis);
        self.substitute(command, start, &mut plan);
        if command.rewritten && plan.rewritten.is_none() {
            plan.rewritten = Some(packets_of(self.payload(command)));
        }
        self.mirror(command, start, &analysis);
        let mut reply = ReplyFacts::default();
        let result = self.run_plan(command, &plan, &mut reply).await;
        self.query_ended(command, start, &analysis, Some(result.as_ref().map(|()| &reply)));
        if let Err(fault) = result {
            return self.report(fault).await;
        }
        self.note_effects(command, start, &analysis, &reply);
        self.note_said(command, &plan, &reply);
        if analysis.facts.contains(Facts::MULTI) {
            let (warnings, found_rows) = self.several_keep(self.sql_text(command, start));
            self.facts.keeps_warnings = warnings;
            self.facts.keeps_found_rows = found_rows || self.is_refused_whole(&analysis, &reply);
        } else if self.facts.has_diagnostics() {
            self.facts.keeps_warnings = self.leaves_warnings(&analysis, self.sql_text(command, start));
        }
        self.note_counts(&analysis, &reply);
        if self.lacks_first_insert_id() {
            Box::pin(self.learn_first_insert_id()).await;
        }
        if Self::teaches(&analysis, &reply) {
            let sql = self.sql_text(command, start).to_vec();
            if let Some(untold) = Box::pin(self.learn_set(&sql, &analysis, &reply)).await {
                self.remember_set(&sql, &analysis, &reply, &untold);
            }
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

    /// Runs a statement, and writes down in `reply` what its answer said; a lost connection or a refusal is made good where it is
    /// certain that nothing happened.
    pub(super) async fn run_plan(&mut self, command: Incoming, plan: &Plan, reply: &mut ReplyFacts) -> Result<(), Fault> {
        self.forget_retries();
        let mut patience = None;
        if plan.analysis.facts.contains(Facts::UNKNOWN_FUNCTION) {
            self.facts.routines_defined = self.worker.shared.routines_defined.count();
        }
        self.give_label(command, plan);
        let result = loop {
            match self.try_plan(command, plan, reply).await {
                Ok(()) => break Ok(()),
                // Rare, and long.
                Err(fault) => {
                    let patience = patience.get_or_insert_with(|| Box::new(self.patience()));
                    match Box::pin(self.run_again(patience, fault, command, plan)).await {
                        Ok(()) => {}
                        Err(fault) => break Err(fault),
                    }
                }
            }
        };
        if self.fill.is_some() {
            self.end_fill(result.is_ok());
        }
        if self.label.is_some() {
            Box::pin(self.label_after()).await;
        }
        result
    }

    /// Brings the backend at hand to the session's state for this statement. Returns what is to be sent ahead of it.
    async fn sync_plan(&mut self, plan: &Plan) -> Result<Ahead, Fault> {
        match self.is_not_causal() {
            true => self.sync(&plan.as_synced()).await,
            false => self.sync_causally(&plan.as_synced()).await,
        }
    }

    async fn try_plan(&mut self, command: Incoming, plan: &Plan, reply: &mut ReplyFacts) -> Result<(), Fault> {
        if self.label.is_some()
            && let Some(settled) = Box::pin(self.settle_commit()).await?
        {
            *reply = settled;
            return Ok(());
        }
        let (ahead, readied) = loop {
            match self.obtain_at_once()? {
                Kept::AtHand => {}
                kept => self.obtain_later(kept).await?,
            }
            let mut ahead = match self.is_not_causal() && self.is_in_sync(&plan.as_synced()) {
                true => Ahead::default(),
                // Exchanges of its own, or something to send ahead.
                false => Box::pin(self.sync_plan(plan)).await?,
            };
            if self.facts.own_error.is_some() && is_about_diagnostics(&plan.analysis) {
                Box::pin(self.raise_own_error()).await?;
            }
            if self.label.is_some()
                && let Some(settled) = Box::pin(self.settle_write(&mut ahead)).await?
            {
                *reply = settled;
                return Ok(());
            }
            if self.label.is_some() {
                Box::pin(self.learn_member()).await?;
            }
            let readied = match plan.statement {
                Some(id) => match self.found_on_backend_as_bound(id) {
                    Some(server_id) => self.with_server_id(command, id, server_id),
                    None => match Box::pin(self.ready_execution(command, id, &mut ahead)).await {
                        Ok(readied) => readied,
                        Err(fault) => {
                            Box::pin(self.send_unless_lost(&ahead)).await;
                            return Err(fault);
                        }
                    },
                },
                None => None,
            };
            // Readying may have taken round trips, in which the server may have lost its role.
            if self.may_begin() {
                break (ahead, readied);
            }
        };
        let outgoing = match readied.as_ref().or(plan.rewritten.as_ref()) {
            Some(bytes) => Outgoing::Bytes(bytes),
            None => Outgoing::AsItCame(command.wire_len),
        };
        if self.label.is_some() {
            *reply = Box::pin(self.run_labelled(ahead, outgoing, command, plan)).await?;
            return Ok(());
        }
        self.send_statement(&ahead, outgoing).await?;
        self.relay_to(plan, reply).await?;
        if self.lane.causal().writes == Writing::Remembered {
            self.note_written(&plan.analysis, reply);
        }
        Ok(())
    }

    /// Tells the client of a fault; the session goes on where it can.
    pub(super) async fn report(&mut self, fault: Fault) -> Result<(), End> {
        self.fault_reported(&fault);
        match fault {
            Fault::End(end) => Err(end),
            Fault::Error { code, sqlstate, text } => {
                self.facts.note_own_error(code, sqlstate, &text);
                let state = String::from_utf8_lossy(&sqlstate).into_owned();
                self.send_error_at(self.answer_seq(), code, &state, &text).await?;
                // The backend was not touched by the statement; an unpinned session gives it back.
                self.give_back();
                Ok(())
            }
            Fault::Lost { certainty: Certainty::Answering, text, pins } if pins.is_empty() => {
                Err(End::BackendLost(format!("Lost connection to server during query: {text}")))
            }
            // What the session has is gone with the backend.
            Fault::Lost { text, pins, .. } if !pins.is_empty() => Err(super::acquire::end_of_pinned(&self.told_with_gap(&text), pins)),
            Fault::Lost { certainty: Certainty::Unknown, .. } if Safety::HonestLoss.is_off() => self.send_ok().await,
            Fault::Lost { text, .. } => {
                tracing::warn!("session {}: connection to the server lost during a statement: {text}", self.entry.id);
                let text = format!("Lost connection to server during query ({text})");
                self.send_error(SERVER_LOST, SERVER_LOST_STATE, &text).await
            }
            Fault::Refused { code, sqlstate, text, .. } => Box::pin(self.report(Fault::Error { code, sqlstate, text })).await,
        }
    }

    /// Puts what only the session knows into the statement: CONNECTION_ID(), FOUND_ROWS(), ROW_COUNT(), counts.
    fn substitute(&self, command: Incoming, start: usize, plan: &mut Plan) {
        let several = plan.analysis.facts.contains(Facts::MULTI);
        if !asks_for_facts(&plan.analysis) {
            return;
        }
        let sql = self.sql_text(command, start);
        if several {
            plan.patches = self.patches(sql, &plan.analysis);
            if !plan.analysis.facts.intersects(OWN) {
                return;
            }
        } else if let Some(patch) = self.patch(sql, plan.analysis.kind) {
            plan.patches = vec![Some(patch)];
            return;
        } else if sql::single_fact_select(sql, self.lex).is_some() || !asks_now(plan.analysis.kind) {
            return;
        }
        let text = self.substituted(sql, &plan.analysis);
        let prefix = self.body(command).get(..start).unwrap_or_default();
        let mut out = Vec::with_capacity(text.len() + prefix.len() + 8);
        put_command(&mut out, Command::Query, &[prefix, &text].concat());
        plan.rewritten = Some(out);
    }

    /// The rows of a statement that asks for nothing but what the session knows; None for one that it need not know of.
    fn patch(&self, sql: &[u8], kind: Kind) -> Option<Patch> {
        let fact = match kind {
            Kind::ShowCountWarnings => sql::Fact::WarningCount,
            Kind::ShowCountErrors => sql::Fact::ErrorCount,
            Kind::ShowWarnings | Kind::ShowErrors => return self.known_warnings(sql, kind),
            _ => sql::single_fact_select(sql, self.lex)?,
        };
        let value = self.knows(fact).then(|| self.facts.of(fact, self.entry.id))?;
        let wide = self.state.variables.get("character_set_results").filter(|charset| is_wide(charset));
        Some(match wide.filter(|_| self.worker.shared.serves_mariadb()) {
            Some(charset) => wide_row(value, charset),
            None => Patch::Number { value, binary: false },
        })
    }

    /// The same for the first statements of a text, of which each has one result: as long as they leave the diagnostics of the
    /// statement before.
    fn patches(&self, sql: &[u8], analysis: &Analysis) -> Vec<Option<Patch>> {
        if analysis.facts.intersects(Facts::VERSIONED | Facts::TORN) {
            // The server may read other statements there.
            return Vec::new();
        }
        let statements = sql::split(sql, self.lex).map(|one| (one, sql::analyze(one, self.lex)));
        let showing = statements.take_while(|(one, each)| self.leaves_diagnostics(each, one));
        showing.map(|(one, each)| self.patch(one, each.kind).filter(|_| shows_diagnostics(each.kind))).collect()
    }

    /// The text with the calls replaced by numbers. Of several statements those behind the first are told only what those before
    /// them leave as it was.
    pub(super) fn substituted(&self, sql: &[u8], analysis: &Analysis) -> Vec<u8> {
        let value = |fact| self.knows(fact).then(|| self.facts.of(fact, self.entry.id));
        if !analysis.facts.contains(Facts::MULTI) {
            let is_answer = is_answer(sql, analysis.kind);
            return sql::substitute_facts(sql, self.lex, |fact| value(fact).filter(|_| is_answer || !fact.is_connection()));
        }
        let (mut out, mut copied) = (Vec::with_capacity(sql.len() + 64), 0);
        let (mut row_count, mut diagnostics, mut found_rows) = (true, true, true);
        for place in sql::split_places(sql, self.lex) {
            let one = sql.get(place.clone()).unwrap_or_default();
            let each = sql::analyze(one, self.lex);
            if asks_now(each.kind) {
                let is_answer = is_answer(one, each.kind);
                out.extend_from_slice(sql.get(copied..place.start).unwrap_or_default());
                out.extend(sql::substitute_facts(one, self.lex, |fact| {
                    let stands = match fact {
                        fact if fact.is_connection() && !is_answer => false,
                        sql::Fact::ConnectionId => true,
                        sql::Fact::FoundRows => found_rows,
                        sql::Fact::WarningCount | sql::Fact::ErrorCount => diagnostics,
                        sql::Fact::RowCount | sql::Fact::PseudoThreadId => row_count,
                    };
                    value(fact).filter(|_| stands)
                }));
                copied = place.end;
            }
            row_count &= each.kind == Kind::GetDiagnostics;
            diagnostics = diagnostics && self.leaves_diagnostics(&each, one);
            found_rows &= leaves_found_rows(&each, one);
        }
        out.extend_from_slice(sql.get(copied..).unwrap_or_default());
        out
    }

    /// Do all statements of this text leave the warnings, and FOUND_ROWS(), of the statement before?
    fn several_keep(&self, sql: &[u8]) -> (bool, bool) {
        let (mut warnings, mut found_rows) = (self.facts.has_diagnostics(), true);
        for one in sql::split(sql, self.lex) {
            let each = sql::analyze(one, self.lex);
            warnings = warnings && (self.leaves_diagnostics(&each, one) || self.leaves_warnings(&each, one));
            found_rows &= leaves_found_rows(&each, one);
        }
        (warnings, found_rows)
    }

    /// Does the session know this better than its backend?
    pub(super) fn knows(&self, fact: sql::Fact) -> bool {
        let may_be_set = fact == sql::Fact::PseudoThreadId && self.pins.set().contains(PinReason::SessionState);
        self.pins.set().is_empty() || !may_be_set && !self.facts.is_with_backend(fact)
    }
}

/// The row of a number as MariaDB writes it in a character set in which ASCII is not itself.
fn wide_row(value: i64, charset: &[u8]) -> Patch {
    let digits = charsets::widened(&value.to_string(), charset);
    let (mut row, mut packets) = (Vec::with_capacity(digits.len() + 1), Vec::new());
    put_lenenc_bytes(&mut row, &digits);
    put_packet(&mut packets, &mut 0, &row);
    Patch::Rows { columns: 1, packets }
}

/// What the session knows better than its backend, where a statement asks for it by name.
const OWN: Facts = Facts::CONNECTION_ID.union(Facts::FOUND_ROWS).union(Facts::ROW_COUNT).union(Facts::DIAGNOSTICS);

/// Does the statement ask for what the session may know better than its backend?
fn asks_for_facts(analysis: &Analysis) -> bool {
    analysis.facts.intersects(OWN) || shows_diagnostics(analysis.kind)
}

/// Does a statement of this kind ask for facts as it runs? Stored code asks later, of whatever session calls it.
pub fn asks_now(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Select
            | Kind::Insert
            | Kind::Replace
            | Kind::Update
            | Kind::Delete
            | Kind::Set
            | Kind::SetStatement
            | Kind::Do
            | Kind::Call
            | Kind::Show
            | Kind::Explain
            | Kind::Kill
            | Kind::LoadData
            // CREATE TABLE ... SELECT.
            | Kind::Ddl
            | Kind::CreateTemporaryTable
    )
}

/// Do the values of a statement reach the client or a variable, and nothing else? Where tables are read or written the connection's id is the
/// server's: that is the one that its own tables know. KILL of the session's own id finds no thread, and ends no connection.
fn is_answer(sql: &[u8], kind: Kind) -> bool {
    kind == Kind::Kill || matches!(kind, Kind::Select | Kind::Set) && !reads_table(sql)
}

/// Are its rows the diagnostics of the statement before, or their number?
pub fn shows_diagnostics(kind: Kind) -> bool {
    matches!(kind, Kind::ShowWarnings | Kind::ShowErrors | Kind::ShowCountWarnings | Kind::ShowCountErrors)
}

/// Does a statement among others leave FOUND_ROWS() as it was? Alone it is judged by its reply.
fn leaves_found_rows(analysis: &Analysis, sql: &[u8]) -> bool {
    let leaves = matches!(
        analysis.kind,
        Kind::ShowWarnings
            | Kind::ShowErrors
            | Kind::Insert
            | Kind::Replace
            | Kind::Update
            | Kind::Delete
            | Kind::Set
            | Kind::Use
            | Kind::Begin
            | Kind::Commit
            | Kind::Rollback
    );
    leaves && !analysis.facts.intersects(Facts::UNKNOWN_CODE) && !contains(sql, b"select")
}
