//! What a statement may have left of which servers tell little or nothing: by dynamic SQL, and by stored code behind it.

use super::backends::Backends;
use super::connection::Connection;
use super::effects::Effects;
use session_state::door::Door;
use session_state::effects::{changes_data_at_most, verb};
use session_state::pins::{PinReason, Trace};
use session_state::tracked::has_set_var;
use sql::{Analysis, Facts, Kind, Lexer, TokenKind};
use std::sync::atomic::Ordering;
use wire::charset::Flavor;
use wire::codes;
use wire::reframe::ReplyFacts;

/// ER_UNKNOWN_STMT_HANDLER: there is none of that name (any more, after a PREPARE that failed).
pub(super) const UNKNOWN_STATEMENT: u16 = codes::UNKNOWN_STMT_HANDLER;

/// What MariaDB changes for a statement that says how long it waits for locks, and for it alone.
pub(super) const LOCK_TIMEOUTS: [&str; 2] = ["lock_wait_timeout", "innodb_lock_wait_timeout"];

impl Effects<'_> {
    /// On a server that does not track sessions nobody tells what a statement left by triggers, or by functions behind views: what
    /// names a table may have run some. The session keeps the connection, and it never serves another.
    pub(super) fn note_unseen(&mut self, sql: &[u8], analysis: &Analysis) {
        if !self.at.tracks_nothing() {
            return;
        }
        let is_bare = |one: &[u8], kind| runs_nothing_stored(kind) && !sql::names_table(one, self.wants.lex, |_, _| true);
        let leaves_nothing = match analysis.facts.contains(Facts::MULTI) {
            _ if analysis.facts.intersects(Facts::VERSIONED | Facts::TORN) => false,
            true => sql::split(sql, self.wants.lex).all(|one| is_bare(one, sql::analyze(one, self.wants.lex).kind)),
            false => is_bare(sql, analysis.kind),
        };
        if let Some(backend) = self.at.backend.as_mut().filter(|_| !leaves_nothing) {
            backend.core.held.ran_unseen();
        }
    }

    /// EXECUTE, EXECUTE IMMEDIATE: servers do not tell of temporary tables that dynamic SQL makes, nor of roles.
    pub(super) fn note_dynamic(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) {
        let trace = match sql::prepared_name(sql, self.wants.lex) {
            Some(_) if reply.error == Some(UNKNOWN_STATEMENT) => Trace::Nothing,
            Some(name) => self.at.pins.trace_of(&name),
            None => self.wants.trace_of(sql),
        };
        if trace != Trace::Nothing {
            self.at.pin(PinReason::SessionState, analysis);
        }
        if matches!(trace, Trace::Definition | Trace::Anything) {
            self.at.worker.shared.anything_was_defined();
        }
        if trace == Trace::Anything {
            self.at.pin(PinReason::Role, analysis);
        }
    }

    /// The server says that state changed, and nothing above explains it: stored code did it, be it behind a trigger or a view.
    pub(super) fn note_unexplained(&mut self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) {
        if !reply.state_change {
            return;
        }
        let stored_code =
            matches!(analysis.kind, Kind::Call | Kind::Compound | Kind::Do) || analysis.facts.contains(Facts::UNKNOWN_FUNCTION);
        // A table made of a view's rows; on MySQL also of a variable that was never set and is NULL now.
        let is_silent = reply.schema.is_none() && reply.variables.is_empty();
        let word = |one: &[u8], behind| verb(one, self.wants.lex, behind).unwrap_or_default();
        let fills = |one: &[u8]| is_silent && word(one, 0) == "CREATE" && ["TABLE", "OR"].contains(&&*word(one, 1));
        let is_quiet = |one: &[u8], kind| kind == Kind::LoadData || changes_data_at_most(kind) || kind == Kind::Ddl && fills(one);
        let changes_nothing_itself = if analysis.facts.contains(Facts::MULTI) {
            sql::split(sql, self.wants.lex).all(|one| is_quiet(one, sql::analyze(one, self.wants.lex).kind))
        } else {
            is_quiet(sql, analysis.kind)
        };
        let waits =
            || reply.variables.iter().all(|(name, _)| LOCK_TIMEOUTS.contains(&&**name)) && self.has_own_lock_timeouts(sql, analysis, reply);
        if changes_nothing_itself && !stored_code && (has_set_var(sql, analysis) || waits()) {
            // The hint (or NOWAIT) does it, and undoes it. Perhaps a trigger did more, which others must not meet.
            if let Some(backend) = self.at.backend.as_mut() {
                backend.core.held.ran_unseen();
            }
            return;
        }
        if stored_code || changes_nothing_itself {
            self.at.pin(PinReason::SessionState, analysis);
            if let Some(backend) = self.at.backend.as_mut().filter(|backend| backend.core.info.flavor == Flavor::MariaDb) {
                // It tells of a role as of any change.
                backend.core.held.ran_lasting();
            }
        }
        if let Some(backend) = self.at.backend.as_ref().filter(|_| changes_nothing_itself && !stored_code) {
            backend.core.server.has_loud_triggers.store(true, Ordering::Relaxed);
        }
    }

    /// Does MariaDB tell of lock timeouts that a statement, being one, had for itself?
    pub(super) fn has_own_lock_timeouts(&self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts) -> bool {
        let may_set = matches!(analysis.kind, Kind::Set | Kind::Call | Kind::Compound | Kind::Execute | Kind::Do);
        !may_set
            && !analysis.facts.contains(Facts::MULTI)
            && reply.variables.iter().any(|(name, _)| LOCK_TIMEOUTS.contains(&&**name))
            && self.at.is_on(Flavor::MariaDb)
            && limits_waiting(sql, self.wants.lex)
    }
}

impl Backends {
    /// Notes that, so that [`Worker::make_places`](crate::workers::worker::Worker::make_places) finds the session. False where something else
    /// keeps the backend, or nothing.
    pub(super) fn keep_unseen(&self) -> bool {
        let keeps = self.pins.set().is_empty() && self.backend.keeps_unseen();
        self.handle.keeps_unseen.set(keeps);
        if let Some(backend) = self.backend.as_ref().filter(|_| keeps) {
            backend.core.server.is_known_silent.store(true, Ordering::Relaxed);
        }
        keeps
    }
}

/// Kinds of statements that run no stored code where they name neither a table nor a function of their own.
fn runs_nothing_stored(kind: Kind) -> bool {
    use Kind::{
        Begin, Commit, Deallocate, Do, Empty, Kill, Prepare, ReleaseSavepoint, Rollback, RollbackTo, Savepoint, Select, Set,
        SetTransaction, Show, ShowCountErrors, ShowCountWarnings, ShowErrors, ShowWarnings, Use,
    };
    matches!(
        kind,
        Begin
            | Commit
            | Deallocate
            | Do
            | Empty
            | Kill
            | Prepare
            | ReleaseSavepoint
            | Rollback
            | RollbackTo
            | Savepoint
            | Select
            | Set
            | SetTransaction
            | Show
            | ShowCountErrors
            | ShowCountWarnings
            | ShowErrors
            | ShowWarnings
            | Use
    )
}

/// Does the text say how long it waits for locks: `NOWAIT`, `WAIT 5`?
fn limits_waiting(sql: &[u8], lex: sql::LexMode) -> bool {
    let mut lexer = Lexer::new(sql, lex);
    let mut waits = false;
    let tokens = std::iter::from_fn(|| Some(lexer.token()).filter(|token| token.kind != TokenKind::End));
    for token in tokens {
        let is = |word: &[u8]| token.kind == TokenKind::Word && token.text(sql).eq_ignore_ascii_case(word);
        if is(b"nowait") || waits && token.kind == TokenKind::Number {
            return true;
        }
        waits = is(b"wait");
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_limited_by_words_of_the_text() {
        let limits = |sql: &str| limits_waiting(sql.as_bytes(), sql::LexMode::default());
        for sql in ["SELECT 1 FROM t FOR UPDATE nowait", "(SELECT 1 FROM t LOCK IN SHARE MODE WAIT /* s */ 5);"] {
            assert!(limits(sql), "{sql}");
        }
        for sql in ["SELECT wait, 5 FROM `nowait`", "SELECT 'NOWAIT' FROM t FOR UPDATE -- WAIT 5", "SELECT 1 FROM t WAIT"] {
            assert!(!limits(sql), "{sql}");
        }
    }
}
