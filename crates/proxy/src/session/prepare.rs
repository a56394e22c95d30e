//! COM_STMT_PREPARE, and having a statement prepared on whatever backend serves its execution.

use super::Session;
use super::backends::Backends;
use super::command::Incoming;
use super::end::End;
use super::fault::Fault;
use super::frontend::Frontend;
use super::prepare_settings::settles_at_prepare;
use super::query::asks_now;
use super::relay::Outgoing;
use super::route::{StatementText, TextCommand};
use super::statements::{ClientStatement, Marks, Original};
use super::substituted::substituted;
use crate::backends::backend::prepare_ok;
use crate::workers::worker::is_long;
use meter::prepared::Side;
use session_state::collected::{Collected, ServerError};
use session_state::facts::SessionFacts;
use session_state::facts::is_about_diagnostics;
use session_state::state::Text;
use session_state::statement_key::{Meaning, StatementKey};
use session_state::wants::Wants;
use sql::{Analysis, Facts, Kind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::codes;
use wire::flags::Capabilities;
use wire::packet::HEADER;
use wire::reframe::{Reframe, ReplyFacts};
use wire::reply::ReplyKind;

/// Most statements a client may have prepared at once (a server's default `max_prepared_stmt_count`).
const MAX_STATEMENTS: usize = 16382;

impl Session {
    /// Serves COM_STMT_PREPARE.
    pub(super) async fn prepare(&mut self, command: Incoming) -> Result<(), End> {
        self.statements.forget_latest();
        if self.statements.len() >= MAX_STATEMENTS {
            let text = format!("Can't create more than max_prepared_stmt_count statements (current value: {MAX_STATEMENTS})");
            return self.client.send_error(&mut self.at, codes::MAX_PREPARED_STMT_COUNT_REACHED, "42000", &text).await;
        }
        let (held, longest) = (self.statements.bytes(), self.worker.snapshot().vars.max_stmts_bytes_per_client);
        if held > 0 && (held + self.client.body(command).len()) as u64 > longest {
            let text = format!(
                "Can't create more than {longest} bytes of prepared statements (mysql-max_stmts_bytes_per_client): close some first"
            );
            return self.client.send_error(&mut self.at, codes::MAX_PREPARED_STMT_COUNT_REACHED, "42000", &text).await;
        }
        let (command, parent) = self.client.lift_trace(&self.at, &mut self.hand, &self.wants, command, 0);
        let text = self.client.body(command);
        let analysis = if is_long(text) {
            Box::pin(self.worker.analyze_in_turns(text, self.wants.lex)).await
        } else {
            self.worker.analyze(text, self.wants.lex)
        };
        let said = analysis;
        let (command, analysis, original) = if self.hand.goes_home_undirected(&mut self.at) {
            (command, analysis, None)
        } else {
            match self.direct(command, 0, &analysis, TextCommand::Prepare).await? {
                Some(directed) => directed,
                None => {
                    self.account().preparation_refused(self.client.body(command), &analysis, None);
                    return Ok(());
                }
            }
        };
        let text = self.client.prepared_text(&self.at, &self.facts, &self.wants, command, &analysis);
        let original = original.or_else(|| (*text != *self.client.body(command)).then(|| self.client.body(command).into()));
        let fact = sql::single_fact_select(self.client.body(command), self.wants.lex);
        let user_variables = self.wants.named_variables(&self.at.pins, settles_at_prepare(&self.worker), &text, &analysis);
        let key = Meaning {
            schema: self.wants.state.schema.clone(),
            mode: self.client.mode(&self.wants, &self.worker),
            user_variables,
            text,
            types: None,
        };
        let key = self.worker.memory.borrow_mut().intern_statement(key.into());
        let statement = ClientStatement {
            on_backend: Arc::clone(&key),
            key,
            analysis,
            lex: self.wants.lex,
            original: original.map(|text| Arc::new(Original { text, analysis: said })),
            params: 0,
            types: Vec::new(),
            settled_types: None,
            fact,
            marks: Marks::default(),
            apart: None,
            failed: None,
            parent,
            holder: None,
        };
        if self.at.pins.set().is_empty()
            && let Some((packets, caps, params)) = self.client.remembered_reply(&self.at, &self.wants, &statement.key)
        {
            if self.facts.has_diagnostics() {
                // It is a statement for them.
                return self.answer_prepare(statement, Collected { raw: packets, ..Collected::default() }, caps).await;
            }
            return self.answer_prepared(statement, packets, caps, params).await;
        }
        match self.prepare_afresh(&statement).await {
            Ok(reply) => {
                let caps = self.at.backend.as_ref().map_or(Capabilities::default(), |b| b.core.caps);
                self.answer_prepare(statement, reply, caps).await
            }
            Err(fault) => {
                self.account().preparation_refused(&statement.key.text, &statement.analysis, Some(&fault));
                self.report(fault).await
            }
        }
    }

    /// Asks a backend, whatever is remembered.
    async fn prepare_afresh(&mut self, statement: &ClientStatement) -> Result<Collected, Fault> {
        // Preparing has no effect: it may be done again anywhere.
        let harmless = Analysis { kind: Kind::Show, facts: Facts::NONE, digest: statement.analysis.digest };
        self.recovery.forget_retries();
        let mut patience = self.hand.patience(&self.at);
        loop {
            let fault = match self.try_prepare(statement).await {
                Ok(reply) => match self.refused_to_prepare(&reply, &harmless) {
                    Some(fault) => fault,
                    None => return Ok(reply),
                },
                Err(fault) => fault,
            };
            Box::pin(self.once_more(&mut patience, fault, &harmless)).await?;
        }
    }

    async fn try_prepare(&mut self, statement: &ClientStatement) -> Result<Collected, Fault> {
        self.obtain().await?;
        let plain = Analysis::NONE;
        let ahead = if self.causal.has_defined(&self.at, &self.hand) {
            let asked = StatementText { text: &statement.key.text, analysis: &statement.analysis, phase: TextCommand::Prepare };
            let must_stay = self.router().names_what_is_kept(asked);
            self.sync_causally(&plain, must_stay).await?
        } else {
            self.sync(&plain).await?
        };
        self.send_statement(&ahead, Outgoing::Bytes(&[])).await?;
        if let Some(old) = self.at.backend.as_mut().and_then(|b| b.core.statements.remove(&statement.key)) {
            self.at.close_on_backend(&[old]).await?;
        }
        self.prepare_on_backend(&statement.key).await
    }

    /// Passes a backend's answer to PREPARE on.
    async fn answer_prepare(&mut self, statement: ClientStatement, reply: Collected, caps: Capabilities) -> Result<(), End> {
        // Preparing SHOW WARNINGS leaves the warnings standing.
        let keeps = is_about_diagnostics(&statement.analysis) && reply.error.is_none();
        let kind = if keeps { Kind::ShowWarnings } else { Kind::Other };
        let analysis = Analysis { kind, facts: Facts::NONE, digest: statement.analysis.digest };
        if self.facts.has_diagnostics() {
            self.facts.keep_warnings(self.facts.leaves_warnings(self.worker.shared.flavor(), &statement.analysis, &statement.key.text));
        }
        let mut facts = ReplyFacts { error: reply.error.as_ref().map(|e| e.code), ..ReplyFacts::default() };
        match (&reply.error, prepare_ok(&reply.raw)) {
            (Some(error @ ServerError { code, sqlstate, message }), _) => {
                self.copy_refused_prepare(&statement.key, &statement.analysis, *code);
                self.account().preparation_refused(&statement.key.text, &statement.analysis, Some(&Fault::server(error.clone())));
                let state = String::from_utf8_lossy(sqlstate).into_owned();
                self.client.send_error_at(&mut self.at, self.client.answer_seq(), *code, &state, message).await?;
            }
            (None, Some(ok)) => {
                (facts.warnings, facts.warned) = (ok.warnings, ok.warnings > 0);
                self.answer_prepared(statement, reply.raw, caps, ok.params).await?;
            }
            (None, None) => return Err(End::BackendLost("malformed answer to COM_STMT_PREPARE".into())),
        }
        match reply.error {
            None => self.settle_uncounted(&analysis, &facts).await,
            Some(_) => self.settle(&analysis, &facts, |_, _| true).await,
        }
    }

    /// Settles after a command that is no statement of which rows are counted.
    pub(super) async fn settle_uncounted(&mut self, analysis: &Analysis, facts: &ReplyFacts) -> Result<(), End> {
        self.facts.keep_counts();
        self.settle(analysis, facts, |_, _| true).await
    }

    /// Sends a server's answer to PREPARE under the session's own statement id.
    async fn answer_prepared(
        &mut self,
        mut statement: ClientStatement,
        mut packets: Vec<u8>,
        caps: Capabilities,
        params: u16,
    ) -> Result<(), End> {
        statement.params = params;
        let columns = prepare_ok(&packets).map_or(0, |ok| ok.columns);
        let listed = self.worker.meter.list_prepared(&self.at.user.name, &statement.key, self.wants.lex, (columns, params));
        statement.holder = Some(listed.hold(Side::Client));
        let id = self.statements.insert(statement);
        self.preparation_ended(id);
        if let Some(slot) = packets.get_mut(HEADER + 1..HEADER + 5) {
            slot.copy_from_slice(&id.to_le_bytes());
        }
        let mut out = Vec::new();
        let mut facts = ReplyFacts::default();
        let mut reframe = Reframe::new(ReplyKind::Prepare, caps, self.client.caps, None, self.client.current_status());
        reframe.set_next_seq(self.client.answer_seq());
        match reframe.process(&mut packets, &mut out, &mut facts) {
            Ok(p) => {
                let bytes = if p.direct { packets } else { out };
                self.client.write_front(&self.at, &bytes).await
            }
            Err(e) => Err(End::BackendLost(e.to_string())),
        }
    }
}

impl Frontend {
    /// The text as servers get it: what is constant for the session is put in.
    fn prepared_text(&self, at: &Backends, facts: &SessionFacts, wants: &Wants, command: Incoming, analysis: &Analysis) -> Text {
        let text = self.body(command);
        let constant = analysis.facts.contains(Facts::CONNECTION_ID)
            && !analysis.facts.intersects(Facts::FOUND_ROWS | Facts::ROW_COUNT | Facts::DIAGNOSTICS);
        if constant && asks_now(analysis.kind) && sql::single_fact_select(text, wants.lex).is_none() {
            return substituted(facts, at, wants, text, analysis).into();
        }
        text.into()
    }
}

impl Frontend {
    /// A server's fresh answer to the same PREPARE.
    fn remembered_reply(&self, at: &Backends, wants: &Wants, key: &Arc<StatementKey>) -> Option<(Vec<u8>, Capabilities, u16)> {
        if key.user_variables.is_some() {
            // Whatever they are later, the server settles their types now.
            return None;
        }
        let epoch = at.worker.shared.ddl_epoch.load(Ordering::Acquire);
        let info = at.pool.one_version()?;
        let settings = self.column_settings(wants, &at.worker);
        let memory = at.worker.memory.borrow();
        let max_age = at.worker.snapshot().vars.prepared_metadata_max_age;
        let known = memory.prepared(&at.place(&info), (key, &settings), epoch, at.worker.clock.now_ms(), max_age)?;
        Some((known.packets.clone(), known.caps, known.params))
    }
}
