//! What a session notes of the statement at hand, for the case that it is traced: when each attempt began, had a connection, was sent and
//! ended. It is noted while traces go anywhere, since only a statement's end tells whether it is kept.
//!
//! Others note by [`AtHand::traced`], which does nothing for a statement without a trail.
//!
//! INVARIANT: nothing is allocated for a statement that is not kept, but a session's first; where nothing is traced there is no trail.

use super::backends::Backends;
use super::command::Incoming;
use super::end::End;
use super::fault::Fault;
use super::frontend::Frontend;
use super::hand::AtHand;
use super::measure::{Account, Measured, error_of};
use super::pipeline::{Form, Statement};
use super::statements::Statements;
use crate::clients::processlist::HeldConnection;
use crate::workers::worker::Worker;
use meter::digest::shown;
use meter::digest_table::Sums;
use session_state::wants::Wants;
use sql::{Analysis, Facts, LexMode, Lexer, TokenKind};
use std::cell::Cell;
use traces::{Answered, Attempt, Failure, MAX_ATTEMPTS, MAX_TEXT, Outcome, Parent, Record, TraceId};
use wire::charset::Flavor;
use wire::reframe::ReplyFacts;

/// Name of the query attribute that says which trace a statement belongs to.
const TRACEPARENT: &[u8] = b"traceparent";

/// Whether a word behind this beginning of a text is a word, and no part of a comment or string.
fn is_outside(before: &[u8], lex: LexMode) -> bool {
    let text = [before, b" x"].concat();
    let mut lexer = Lexer::new(&text, lex);
    loop {
        let token = lexer.token();
        if token.kind == TokenKind::End || token.end >= text.len() {
            return token.kind == TokenKind::Word && token.start > before.len();
        }
    }
}

/// See the module. Times are of the process clock, us.
#[derive(Default)]
pub(super) struct Trail {
    attempts: Vec<Noted>,
    /// How many there were.
    tried: u32,
    is_held: bool,
    is_replayed: bool,
    is_mariadb: bool,
    /// What was lifted out of the command's text.
    lifted: Option<Parent>,
    parent: Cell<Option<Parent>>,
    /// The trace that the statement is in, once that is known.
    trace_id: Cell<Option<TraceId>>,
}

/// The plain path reads the clock once: when a backend is at hand, which is then sent the statement at once.
#[derive(Default)]
struct Noted {
    /// None: it had a backend at once.
    began_us: Option<u64>,
    held_us: Option<u64>,
    sent_us: Option<u64>,
    /// What goes ahead of the statement took exchanges.
    has_synced: bool,
    /// None: with the statement.
    ended_us: Option<u64>,
    held: Option<HeldConnection>,
    failure: Option<Failure>,
}

impl Account<'_> {
    /// The statement with this trail has ended: hands it to the exporter if it is kept. None: the proxy answered it.
    pub(super) fn trace(
        &self,
        trail: &Trail,
        statement: Measured<'_>,
        analysis: &Analysis,
        result: Option<Result<&ReplyFacts, &Fault>>,
        sums: &Sums,
    ) {
        let error = match result {
            Some(result) => error_of(result).map(|(code, _)| code),
            None => self.at.handle.own_error_code(),
        };
        let outcome = Outcome {
            duration_us: sums.sum_us,
            failed: error.is_some() || matches!(result, Some(Err(_))),
            is_retried: trail.tried > 1,
            is_replayed: trail.is_replayed,
            is_held: trail.is_held,
        };
        let shared = &self.at.worker.shared;
        let (parent, now_us) = (trail.parent.get(), self.hand.began_us + sums.sum_us);
        let Some(why) = shared.traces.keeps(parent.as_ref(), outcome, now_us, || self.at.worker.random.next()) else { return };
        let Some(trace_id) = trail.trace_id.get().or_else(traces::new_trace_id) else { return };
        trail.trace_id.set(Some(trace_id));
        let digest = self.at.worker.meter.digest(analysis, statement.text(), self.wants.lex);
        shared.traces.write(Record {
            trace_id,
            parent,
            why,
            began_us: self.hand.began_us,
            ended_us: now_us,
            ended_unix_us: crate::workers::clock::unix_us(),
            text: digest.text.get(..MAX_TEXT).unwrap_or(&digest.text).into(),
            digest: shown(digest.hash),
            is_execution: matches!(statement, Measured::Execution(..)),
            is_mariadb: trail.is_mariadb,
            session: self.at.handle.id,
            user: self.at.user.name.as_ref().into(),
            schema: self.wants.state.schema.as_deref().map(Into::into),
            client: self.client.peer,
            rule: self.hand.directions.rule.map(Into::into),
            answered: if trail.tried > 0 { Answered::Server } else { Answered::Proxy },
            error,
            rows_sent: sums.rows_sent,
            rows_affected: sums.rows_affected,
            attempts: trail.attempts.iter().map(|noted| attempt(&self.at.worker, noted, now_us)).collect(),
            tried: trail.tried,
            is_replayed: trail.is_replayed,
            is_held: trail.is_held,
        });
    }
}

impl Frontend {
    /// Lifts the client's span out of a text's comment, where that is asked for: from here on the command is without it.
    pub(super) fn lift_trace(
        &mut self,
        at: &Backends,
        hand: &mut AtHand,
        wants: &Wants,
        command: Incoming,
        start: usize,
    ) -> (Incoming, Option<Parent>) {
        if !at.worker.snapshot().vars.trace_lift_comments {
            return (command, None);
        }
        let (text, lex) = (self.sql_text(command, start), wants.lex);
        let Some((parent, rest)) = Parent::lift(text, |before| is_outside(before, lex)) else { return (command, None) };
        hand.traced(|trail| trail.lifts(parent));
        (self.replace_text(command, start, &rest), Some(parent))
    }
}

impl Trail {
    /// A command has come.
    pub(super) fn begins(&mut self) {
        self.attempts.clear();
        (self.tried, self.is_held, self.is_replayed, self.lifted) = (0, false, false, None);
        self.parent.set(None);
        self.trace_id.set(None);
    }

    /// What was lifted out of the command's text.
    fn lifts(&mut self, parent: Parent) {
        self.lifted = Some(parent);
    }

    /// The statement asks for a backend.
    pub(super) fn attempt_begins(&mut self) {
        self.tried += 1;
        self.attempts.truncate(MAX_ATTEMPTS - 1);
        self.attempts.push(Noted::default());
    }

    /// It has to wait for one, or to open one.
    pub(super) fn attempt_waits(&mut self, at: &Backends) {
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.began_us.get_or_insert_with(|| at.worker.shared.clock.now_us());
        }
    }

    /// It has one.
    pub(super) fn attempt_has_backend(&mut self, at: &Backends) {
        let Some(backend) = at.backend.as_ref() else { return };
        self.is_mariadb = backend.core.info.flavor == Flavor::MariaDb;
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.held_us = Some(at.worker.shared.clock.now_us());
            attempt.held = Some(backend.shown());
        }
    }

    /// What goes ahead of the statement takes exchanges.
    pub(super) fn attempt_syncs(&mut self) {
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.has_synced = true;
        }
    }

    /// The backend is ready, and the statement goes out.
    pub(super) fn attempt_sends(&mut self, at: &Backends) {
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.sent_us = if attempt.has_synced { Some(at.worker.shared.clock.now_us()) } else { attempt.held_us };
        }
    }

    /// It was sent together with others, at `sent_us` (process clock).
    pub(super) fn attempt_rode(&mut self, at: &Backends, sent_us: u64) {
        if let Some(attempt) = self.attempts.last_mut() {
            (attempt.held_us, attempt.sent_us) = (Some(sent_us), Some(sent_us));
            attempt.held = at.handle.row.held.get();
        }
    }

    /// The attempt is over.
    pub(super) fn attempt_ends(&mut self, at: &Backends, result: Result<&ReplyFacts, &Fault>) {
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.ended_us = result.is_err().then(|| at.worker.shared.clock.now_us());
            attempt.failure = match result {
                Err(Fault::Lost { .. } | Fault::End(End::BackendLost(_))) => Some(Failure::Lost),
                Err(Fault::End(_)) => Some(Failure::Ended),
                result => error_of(result).map(|(code, _)| Failure::Error(code)),
            };
        }
    }

    /// It waits in its pool's queue, or for replays of others.
    pub(super) fn waits(&mut self, at: &Backends, lets_others_go_first: bool) {
        let now_ms = at.worker.clock.now_ms();
        self.is_held |= lets_others_go_first || !at.pool.servers().iter().any(|server| server.standing.is_usable(now_ms));
    }

    /// Its transaction was replayed.
    pub(super) fn replayed(&mut self) {
        self.is_replayed = true;
    }

    /// The trace that the statement at hand is in.
    pub(super) fn trace_id(&self) -> Option<TraceId> {
        self.trace_id.get()
    }

    /// Finds what the client says of a trace: its query attribute, or its comment.
    pub(super) fn find_parent(&self, client: &Frontend, statements: &Statements, statement: &Statement) {
        let (payload, caps) = (client.payload(statement.command), client.caps);
        let (attribute, text, lifted) = match statement.form {
            Form::Text { start } => {
                (wire::query::query_attribute(payload, caps, TRACEPARENT), client.sql_text(statement.command, start), self.lifted)
            }
            Form::Execution { id, .. } | Form::Bulk { id } => {
                let Some(prepared) = statements.get(id) else { return };
                (wire::prepared::execute_attribute(payload, prepared.params, caps, TRACEPARENT), &*prepared.key.text, prepared.parent)
            }
        };
        let of_comment =
            || lifted.or_else(|| statement.analysis.facts.contains(Facts::COMMENT).then(|| Parent::of_comment(text)).flatten());
        let parent = attribute.and_then(Parent::parse).or_else(of_comment);
        self.parent.set(parent);
        self.trace_id.set(parent.map(|parent| parent.trace_id));
    }
}

fn attempt(worker: &Worker, noted: &Noted, statement_ended_us: u64) -> Attempt {
    let ended_us = noted.ended_us.unwrap_or(statement_ended_us);
    let server = noted.held.and_then(|held| {
        let (hostgroup, index) = held.server;
        worker.pool(hostgroup).servers().get(index).map(|server| server.key.clone())
    });
    Attempt {
        began_us: noted.began_us.or(noted.held_us).unwrap_or(ended_us),
        held_us: noted.held_us,
        sent_us: noted.sent_us,
        ended_us,
        server,
        thread_id: noted.held.map_or(0, |held| held.thread_id),
        failure: noted.failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_a_comment_or_string_is_not_outside() {
        for (before, is) in [
            ("", true),
            ("SELECT 1", true),
            ("SELECT 1 ", true),
            ("SELECT /* a */ 'b' /*+ c */", true),
            ("SELECT 1 -- a\n", true),
            ("SELECT 1; ", true),
            ("SELECT 1 /* a ", false),
            ("SELECT 'a", false),
            ("SELECT \"a", false),
            ("SELECT `a", false),
            ("SELECT 1 -- a", false),
            ("SELECT 1 # a", false),
        ] {
            assert_eq!(is_outside(before.as_bytes(), LexMode::default()), is, "{before}");
        }
    }
}
