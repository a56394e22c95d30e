//! Statements that the proxy answers itself: a SET whose effect is known, warnings that were read before the backend
//! was lent on, KILL of a session.

use super::Session;
use super::backends::Backends;
use super::causal::token::token_order;
use super::command::Incoming;
use super::end::End;
use super::frontend::Frontend;
use super::respond::Made;
use crate::workers::mailbox::KillKind;
use session_state::facts::{Diagnostics, SessionFacts};
use session_state::setting::AUTOCOMMIT;
use session_state::tableless::words;
use session_state::wants::Wants;
use sql::{Analysis, Facts, Kill, KillTarget, Kind};
use std::sync::atomic::Ordering;
use wire::codec::{Reader, put_lenenc_bytes};
use wire::codes;
use wire::flags::{Capabilities, StatusFlags};
use wire::message::{OK, OkPacket};
use wire::packet::{self, HEADER};
use wire::reframe::Patch;
use wire::reply::{Frame, ReplyKind, Step, Tracker};
use wire::session_state::{Change, put_change};

/// Which rows of the remembered warnings are asked for.
struct WarningRange {
    errors_only: bool,
    skip: u64,
    count: u64,
}

impl Session {
    /// Answers a COM_QUERY without a backend, if that is possible.
    pub(super) async fn answered_here(&mut self, command: Incoming, start: usize, analysis: &Analysis) -> Result<bool, End> {
        if matches!(analysis.kind, Kind::Show | Kind::Set)
            && let Some(order) = token_order(self.client.sql_text(command, start), self.wants.lex)
        {
            Box::pin(self.causal.obey_token_order(&mut self.at, &mut self.client, &mut self.facts, order)).await?;
            return Ok(true);
        }
        match analysis.kind {
            // Rare, and long.
            Kind::Kill => Box::pin(self.client.answer_kill(&mut self.at, &mut self.facts, &self.wants, command, start)).await,
            Kind::Set if self.at.backend.is_none() && self.at.pins.set().is_empty() => self.answer_set(command, start, analysis).await,
            Kind::Commit | Kind::Rollback => {
                let sql = self.client.sql_text(command, start).to_vec();
                self.client.answer_idle_end(&mut self.at, &mut self.facts, &self.wants, &sql, analysis).await
            }
            // What follows it in the text has to run: SessionFacts::substitute().
            Kind::ShowWarnings | Kind::ShowErrors
                if self.facts.knows_diagnostics(self.at.backend.is_some()) && !analysis.facts.contains(Facts::MULTI) =>
            {
                self.client.answer_warnings(&mut self.at, &mut self.facts, command, start, analysis).await
            }
            _ => Ok(false),
        }
    }

    /// A SET statement that a server has accepted before, word for word: its effect is noted and goes out with the next
    /// statement that needs a backend.
    async fn answer_set(&mut self, command: Incoming, start: usize, analysis: &Analysis) -> Result<bool, End> {
        let plain = !analysis.facts.intersects(Facts::MULTI | Facts::USER_VARIABLE | Facts::SESSION_TRACK | Facts::SYSTEM_VARIABLE);
        if !plain || !self.wants.state_is_ordinary(self.client.sql_text(command, start)) {
            return Ok(false);
        }
        let Some(info) = self.at.pool.one_version() else { return Ok(false) };
        let (place, sql) = (self.at.place(&info), self.client.sql_text(command, start));
        let rights_changed_ms = self.worker.shared.rights_changed_ms.load(Ordering::Acquire);
        let effect = self.worker.memory.borrow().set_effect(&place, sql, self.worker.clock.now_ms(), rights_changed_ms);
        let Some(effect) = effect else { return Ok(false) };
        if self.at.lane.settings().autocommit_false_is_transaction && effect.changes.iter().any(|(name, _)| &**name == AUTOCOMMIT) {
            // It has to keep a backend from here on.
            return Ok(false);
        }
        for (name, value) in &effect.changes {
            self.effects().note_learnt_variable(name, value);
        }
        self.wants.chosen.note(effect.decided);
        let leaves_warnings = self.facts.leaves_warnings(self.worker.shared.flavor(), analysis, self.client.sql_text(command, start));
        self.facts.note_success(leaves_warnings);
        let kept = self.client.told_changes(&effect.told);
        let mut status = self.client.current_status();
        status.set(StatusFlags::SESSION_STATE_CHANGED, !kept.is_empty());
        let ok = OkPacket { affected_rows: 0, last_insert_id: 0, status, warnings: 0, info: b"", session_state: &kept };
        let mut payload = Vec::with_capacity(16 + kept.len());
        ok.write(&mut payload, OK, self.client.caps);
        self.client.send_payload(&mut self.at, &payload).await?;
        Ok(true)
    }

    /// The same for an execution of a prepared statement with this text.
    pub(super) async fn answer_prepared_here(&mut self, id: u32) -> Result<bool, End> {
        let Some(statement) = self.statements.get(id) else { return Ok(false) };
        let (analysis, text) = (statement.analysis, statement.key.text.clone());
        let kind = analysis.kind;
        match kind {
            Kind::Commit | Kind::Rollback => {
                self.client.answer_idle_end(&mut self.at, &mut self.facts, &self.wants, &text, &analysis).await
            }
            Kind::ShowWarnings | Kind::ShowErrors if self.facts.knows_diagnostics(self.at.backend.is_some()) => match wanted(&text, kind) {
                Some(wanted) => self.client.send_warnings(&mut self.at, &mut self.facts, &wanted, true).await,
                None => Ok(false),
            },
            Kind::Kill => self.client.kill_by_text(&mut self.at, &mut self.facts, &self.wants, &text).await,
            _ => Ok(false),
        }
    }
}

impl Frontend {
    /// No server has anything of this session, and none would begin anything with its COMMIT or tell more of it than an OK.
    fn has_nothing_to_end(&self, at: &Backends, wants: &Wants) -> bool {
        let open = StatusFlags::IN_TRANS | StatusFlags::IN_TRANS_READONLY;
        let decides = ["completion_type", "session_track_transaction_info"];
        at.backend.is_none()
            && at.pins.set().is_empty()
            && self.status.contains(StatusFlags::AUTOCOMMIT)
            && !self.status.intersects(open)
            && decides.iter().all(|name| wants.state.variables.get(name).is_none())
    }
}

impl Frontend {
    fn told_changes(&self, told: &[session_state::setting::Change]) -> Vec<u8> {
        let mut kept = Vec::new();
        if let Some(filter) = &self.filter {
            for (name, value) in told {
                let change = Change::SystemVariable { name: name.as_bytes(), value };
                if filter.wants(&change) {
                    put_change(&mut kept, &change);
                }
            }
            if filter.state_change {
                put_change(&mut kept, &Change::StateChange(true));
            }
        }
        kept
    }

    async fn send_warnings(
        &mut self,
        at: &mut Backends,
        facts: &mut SessionFacts,
        wanted: &WarningRange,
        binary: bool,
    ) -> Result<bool, End> {
        let Some(diagnostics) = facts.diagnostics() else { return Ok(false) };
        let packets = choose_rows(diagnostics, wanted, RowForm { binary, only_rows: false });
        let caps = diagnostics.caps;
        facts.answered_here(-1);
        Ok(self.send_made(at, packets, caps).await? == Made::Sent)
    }

    /// SHOW WARNINGS / SHOW ERRORS from what was read before the backend was lent on.
    async fn answer_warnings(
        &mut self,
        at: &mut Backends,
        facts: &mut SessionFacts,
        command: Incoming,
        start: usize,
        analysis: &Analysis,
    ) -> Result<bool, End> {
        let Some(wanted) = wanted(self.sql_text(command, start), analysis.kind) else { return Ok(false) };
        self.send_warnings(at, facts, &wanted, false).await
    }

    /// Kills a session of the same user, notes how that ended, and answers.
    pub(super) async fn kill_session(&mut self, at: &mut Backends, facts: &mut SessionFacts, id: u64, kind: KillKind) -> Result<(), End> {
        let Some((code, sqlstate, text)) = refused_kill(at, id, kind) else {
            at.worker.shared.kill(id, kind);
            // MariaDB keeps older warnings over a KILL.
            facts.note_success(at.worker.shared.serves_mariadb());
            return self.send_ok(at).await;
        };
        facts.note_own_error(code, sqlstate, text.as_bytes());
        self.send_error(at, code, &String::from_utf8_lossy(&sqlstate), &text).await?;
        if id == at.handle.id && kind == KillKind::Connection { Err(End::Quit) } else { Ok(()) }
    }

    async fn kill_by_text(&mut self, at: &mut Backends, facts: &mut SessionFacts, wants: &Wants, text: &[u8]) -> Result<bool, End> {
        let Some(kill) = sql::parse_kill(text, wants.lex, at.handle.id) else { return Ok(false) };
        let Kill { target: KillTarget::Connection(id) | KillTarget::Query(id), .. } = kill;
        if id < crate::workers::worker::FIRST_SESSION_ID / 2 || at.worker.shared.user_of(id).is_none() {
            return Ok(false);
        }
        let kind = if matches!(kill.target, KillTarget::Query(_)) { KillKind::Query } else { KillKind::Connection };
        self.kill_session(at, facts, id, kind).await?;
        Ok(true)
    }

    /// KILL of a session by the id that clients see; other ids are the server's own and go to it.
    async fn answer_kill(
        &mut self,
        at: &mut Backends,
        facts: &mut SessionFacts,
        wants: &Wants,
        command: Incoming,
        start: usize,
    ) -> Result<bool, End> {
        let text = self.sql_text(command, start).to_vec();
        self.kill_by_text(at, facts, wants, &text).await
    }

    /// COMMIT or ROLLBACK where there is nothing to end.
    async fn answer_idle_end(
        &mut self,
        at: &mut Backends,
        facts: &mut SessionFacts,
        wants: &Wants,
        sql: &[u8],
        analysis: &Analysis,
    ) -> Result<bool, End> {
        let is_bare = !analysis.facts.intersects(Facts::MULTI | Facts::VERSIONED | Facts::TORN) && is_bare_end(sql);
        if !is_bare || !self.has_nothing_to_end(at, wants) {
            return Ok(false);
        }
        let leaves_warnings = facts.leaves_warnings(at.worker.shared.flavor(), analysis, sql);
        facts.note_success(leaves_warnings);
        self.send_ok(at).await?;
        Ok(true)
    }
}

/// The error that this KILL gets instead of an OK, if it gets one: number, SQLSTATE and text.
fn refused_kill(at: &Backends, id: u64, kind: KillKind) -> Option<(u16, [u8; 5], String)> {
    let shared = &at.worker.shared;
    let Some(user) = shared.user_of(id) else {
        return Some((codes::NO_SUCH_THREAD, *b"HY000", format!("Unknown thread id: {id}")));
    };
    if *user != *at.user.name {
        return Some((codes::KILL_DENIED, *b"HY000", format!("You are not owner of thread {id}")));
    }
    let (code, text) = match kind {
        KillKind::Connection if shared.serves_mariadb() => (codes::CONNECTION_KILLED, "Connection was killed"),
        _ => (codes::QUERY_INTERRUPTED, "Query execution was interrupted"),
    };
    (id == at.handle.id).then(|| (code, *b"70100", text.to_owned()))
}

/// The rows of a SHOW WARNINGS or SHOW ERRORS with this text, where the session has them.
pub(super) fn known_warnings(facts: &SessionFacts, sql: &[u8], kind: Kind) -> Option<Patch> {
    let diagnostics = facts.diagnostics()?;
    let packets = choose_rows(diagnostics, &wanted(sql, kind)?, RowForm { binary: false, only_rows: true });
    Some(Patch::Rows { columns: Diagnostics::COLUMNS as u64, packets })
}

/// Whether a statement of this kind is ever answered by the proxy.
pub(super) fn may_be_answered_here(analysis: &Analysis) -> bool {
    ends_transaction(analysis.kind) || matches!(analysis.kind, Kind::Show | Kind::Set | Kind::Kill | Kind::ShowWarnings | Kind::ShowErrors)
}

/// Does a statement of this kind end a transaction?
pub(super) fn ends_transaction(kind: Kind) -> bool {
    matches!(kind, Kind::Commit | Kind::Rollback)
}

/// `COMMIT [WORK]` and `ROLLBACK [WORK]`, and nothing behind it.
fn is_bare_end(sql: &[u8]) -> bool {
    let words = words(sql);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    matches!(words.as_slice(), ["COMMIT" | "ROLLBACK"] | ["COMMIT" | "ROLLBACK", "WORK"])
}

/// `SHOW WARNINGS [LIMIT [offset,] count]` and the same for ERRORS; None when it is put otherwise.
fn wanted(sql: &[u8], kind: Kind) -> Option<WarningRange> {
    let words = words(sql);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |w: &str| w.parse::<u64>().ok();
    let (skip, count) = match words.as_slice() {
        ["SHOW", "WARNINGS" | "ERRORS"] => (0, u64::MAX),
        ["SHOW", _, "LIMIT", count] => (0, number(count)?),
        ["SHOW", _, "LIMIT", skip, ",", count] | ["SHOW", _, "LIMIT", count, "OFFSET", skip] => (number(skip)?, number(count)?),
        _ => return None,
    };
    Some(WarningRange { errors_only: kind == Kind::ShowErrors, skip, count })
}

/// How rows are wanted.
#[derive(Clone, Copy)]
struct RowForm {
    /// As the binary protocol has them.
    binary: bool,
    /// Without what comes before and behind them.
    only_rows: bool,
}

/// The remembered reply with the rows that are asked for, renumbered.
fn choose_rows(diagnostics: &Diagnostics, wanted: &WarningRange, form: RowForm) -> Vec<u8> {
    let mut tracker = Tracker::new(ReplyKind::Results, diagnostics.caps & !Capabilities::SESSION_TRACK);
    let mut out = Vec::with_capacity(diagnostics.packets.len());
    let mut rest = diagnostics.packets.as_slice();
    let (mut seq, mut seen, mut kept) = (1, 0, 0);
    while let Some((len, _)) = packet::header(rest) {
        let Some(payload) = rest.get(HEADER..HEADER + len) else { break };
        rest = rest.get(HEADER + len..).unwrap_or_default();
        if let Ok(Step::Frame(Frame::Row)) = tracker.frame(len, payload) {
            if wanted.errors_only && payload.get(1..6) != Some(b"Error") {
                continue;
            }
            seen += 1;
            if seen <= wanted.skip || kept >= wanted.count {
                continue;
            }
            kept += 1;
            if let Some(row) = binary_row(payload).filter(|_| form.binary) {
                packet::put_packet(&mut out, &mut seq, &row);
                continue;
            }
        } else if form.only_rows {
            continue;
        }
        packet::put_packet(&mut out, &mut seq, payload);
    }
    out
}

/// A text row of SHOW WARNINGS (Level, Code, Message) as the binary protocol has it: Code is an integer of 4 bytes.
fn binary_row(text: &[u8]) -> Option<Vec<u8>> {
    let mut r = Reader::new(text);
    let (level, code, message) = (r.lenenc_bytes().ok()?, r.lenenc_bytes().ok()?, r.lenenc_bytes().ok()?);
    let code: u32 = std::str::from_utf8(code).ok()?.parse().ok()?;
    let mut row = vec![0, 0];
    put_lenenc_bytes(&mut row, level);
    row.extend_from_slice(&code.to_le_bytes());
    put_lenenc_bytes(&mut row, message);
    Some(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_a_transaction_and_no_more() {
        for sql in ["COMMIT", "rollback;", "/* a */ Commit Work -- b", "ROLLBACK WORK ;"] {
            assert!(is_bare_end(sql.as_bytes()), "{sql}");
        }
        for sql in
            ["COMMIT AND CHAIN", "COMMIT RELEASE", "ROLLBACK TO a", "ROLLBACK WORK TO SAVEPOINT a", "COMMIT AND NO CHAIN", "XA COMMIT 'a'"]
        {
            assert!(!is_bare_end(sql.as_bytes()), "{sql}");
        }
    }

    #[test]
    fn reads_the_forms_of_show_warnings() {
        let w = wanted(b"show warnings limit 2, 5;", Kind::ShowWarnings).unwrap();
        assert_eq!((w.skip, w.count, w.errors_only), (2, 5, false));
        let w = wanted(b"SHOW ERRORS LIMIT 1 OFFSET 3", Kind::ShowErrors).unwrap();
        assert_eq!((w.skip, w.count, w.errors_only), (3, 1, true));
        assert!(wanted(b"/* a */ SHOW /* x */ WARNINGS -- b", Kind::ShowWarnings).is_some());
        assert!(wanted(b"SHOW WARNINGS LIMIT ?", Kind::ShowWarnings).is_none());
    }
}

#[cfg(test)]
#[path = "local_tests.rs"]
mod local_tests;
