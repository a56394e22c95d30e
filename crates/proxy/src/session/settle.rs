//! After a statement: what must be read before the backend is lent on, then giving it back.

use super::Session;
use super::attachments::Attachments;
use super::charsets;
use super::end::End;
use super::facts::Diagnostics;
use super::facts::SessionFacts;
use super::failed::may_have_left;
use super::guard::guarded;
use super::question::Question;
use super::sync::is_about_diagnostics;
use super::tableless;
use crate::backend::{Backend, put_query};
use crate::cleaning;
use crate::connect;
use crate::held::Tracking;
use crate::pins::{PinReason, PinSet, is_kept};
use sql::{Analysis, Facts, Kind, Offset};
use std::io;
use std::rc::Rc;
use wire::codec::Reader;
use wire::codes;
use wire::command::Command;
use wire::flags::StatusFlags;
use wire::reframe::ReplyFacts;
use wire::reply::ReplyKind;

/// Errors that come with the end of the whole transaction, or may: a row that has changed under the snapshot (MariaDB's
/// `innodb_snapshot_isolation`), lock wait timeout (`innodb_rollback_on_timeout`), deadlock, failure of a cluster at COMMIT (Galera,
/// Group Replication).
const ROLLS_BACK: [u16; 6] = [
    codes::CHECKREAD,
    codes::ERROR_DURING_COMMIT,
    codes::LOCK_WAIT_TIMEOUT,
    codes::LOCK_DEADLOCK,
    codes::RUN_HOOK_ERROR,
    codes::TRANSACTION_ROLLBACK_DURING_COMMIT,
];

/// What is to be read from a backend before it is lent on.
#[derive(Clone, Copy, Default)]
pub(super) struct Unread {
    pub warnings: bool,
    pub last_insert_id: bool,
    pub found_rows: bool,
}

impl Unread {
    pub(super) fn any(self) -> bool {
        self.warnings || self.last_insert_id || self.found_rows
    }
}

impl Session {
    /// Ends a statement: reads what the session must know, gives the backend back when no pin holds.
    /// `certain` says whether text and parameters prove that an insert id was generated.
    pub(super) async fn settle(
        &mut self,
        analysis: &Analysis,
        reply: &ReplyFacts,
        certain: impl Fn(&Self, u64) -> bool,
    ) -> Result<(), End> {
        if reply.error.is_some() || reply.warnings > 0 {
            Box::pin(self.look_after(analysis, reply)).await;
        }
        let unread = self.remember(analysis, reply, certain);
        self.let_go(analysis, unread).await
    }

    /// What an error may have left or ended, and warnings for the log.
    async fn look_after(&mut self, analysis: &Analysis, reply: &ReplyFacts) {
        if let Some(code) = reply.error.filter(|code| may_have_left(analysis, *code)) {
            Box::pin(self.look_after_failure(analysis, code)).await;
        }
        if self.may_have_ended(analysis, reply) {
            self.ask_for_status(analysis).await;
        }
        if reply.warnings > 0 && reply.error.is_none() && self.worker.meter.rules().logs_warnings {
            self.log_warnings(analysis).await;
        }
    }

    /// Gives the backend back after something that ended pins without an answer.
    pub(super) async fn settle_silent(&mut self, analysis: &Analysis) -> Result<(), End> {
        let warnings = self.facts.warnings > 0 && self.facts.diagnostics.is_none();
        let last_insert_id = !self.facts.insert_id.is_known();
        self.let_go(analysis, Unread { warnings, last_insert_id, found_rows: false }).await
    }

    /// Reads what is unread and gives the backend back, when no pin holds.
    async fn let_go(&mut self, analysis: &Analysis, unread: Unread) -> Result<(), End> {
        self.entry.keeps_unseen.set(false);
        if !self.at.lane.settings().multiplexing && self.at.backend.is_some() {
            let now = self.now_ms();
            self.at.pins.begin(PinReason::MultiplexingOff, now, analysis.digest);
        } else {
            // It may have been switched on again.
            self.at.pins.end(PinReason::MultiplexingOff);
        }
        self.note_rule(analysis);
        self.note_autocommit(analysis);
        if self.is_let_go_at_once(unread) { Ok(()) } else { Box::pin(self.let_go_later(analysis, unread)).await }
    }

    /// Gives the backend back if there is nothing to read, or leaves it where a pin holds that is none to look at.
    fn is_let_go_at_once(&mut self, unread: Unread) -> bool {
        if self.recovery.assigned_gtid.is_some() || self.at.pins.only_stored_code().is_some() || self.at.pins.only_variables().is_some() {
            return false;
        }
        if !self.at.pins.set().is_empty() {
            return true;
        }
        let keeps_tracking = self.at.tells_by_clients_wish();
        let unread = Unread { found_rows: self.facts.found_rows_with_backend, ..unread };
        if keeps_tracking
            || unread.any()
            || self.at.keeps_unseen()
            || self.lacks_gtids()
            || self.at.lane.settings().connection_delay_multiplex_ms > 0
        {
            return false;
        }
        self.at.give_back();
        true
    }

    async fn let_go_later(&mut self, analysis: &Analysis, mut unread: Unread) -> Result<(), End> {
        if self.recovery.assigned_gtid.is_some() {
            Box::pin(self.unlabel_ended(&mut unread.warnings)).await;
        }
        if self.at.pins.only_stored_code().is_some() {
            unread = Box::pin(self.read_stored_code(analysis, unread)).await;
        }
        if self.at.pins.only_variables().is_some() {
            return Box::pin(self.learn_user_variables(analysis, unread)).await;
        }
        self.let_go_unpinned(unread).await
    }

    /// Reads what is unread and gives the backend back, unless a pin holds.
    pub(super) async fn let_go_unpinned(&mut self, unread: Unread) -> Result<(), End> {
        if !self.at.pins.set().is_empty() {
            return Ok(());
        }
        if self.at.tells_by_clients_wish() {
            self.at.restore_tracking().await;
        }
        if !self.read_or_lose(Unread { found_rows: self.facts.found_rows_with_backend, ..unread }).await {
            return Ok(());
        }
        if self.lacks_gtids() {
            Box::pin(self.ask_for_gtids()).await;
        }
        let delay_ms = self.at.lane.settings().connection_delay_multiplex_ms;
        if delay_ms > 0 && self.at.pins.set().is_empty() {
            self.entry.hold_backend_until(self.worker.shared.clock.now_ms() + delay_ms);
        } else if self.at.pool.shared.is_place_wanted(&self.user.name) || !self.at.keep_unseen() {
            self.at.give_back();
        }
        Ok(())
    }

    /// Reads what is unread, as far as it is wanted. False when the connection failed: nothing is lost but the warnings, and the
    /// best word on the id is the reply's.
    pub(super) async fn read_or_lose(&mut self, unread: Unread) -> bool {
        let unread = self.facts.only_handled(&self.at, unread);
        if !unread.any() || self.read_unread(unread).await.is_ok() {
            return true;
        }
        if unread.warnings {
            (self.facts.warnings, self.facts.errors) = (0, 0);
        }
        self.facts.insert_id.lose_backend();
        self.facts.found_rows_with_backend = false;
        self.at.backend = None;
        false
    }

    /// Where `autocommit_false_is_transaction` is on, autocommit=0 is as good as an open transaction.
    fn note_autocommit(&mut self, analysis: &Analysis) {
        let is_off = !self.client.status.contains(StatusFlags::AUTOCOMMIT) && self.at.lane.settings().autocommit_false_is_transaction;
        if is_off && self.at.backend.is_some() {
            let now = self.now_ms();
            self.at.pins.begin(PinReason::AutocommitOff, now, analysis.digest);
            self.entry.set_transaction(true, now);
        } else if self.at.pins.set().contains(PinReason::AutocommitOff) {
            self.at.pins.end(PinReason::AutocommitOff);
            self.entry.set_transaction(self.at.pins.set().contains(PinReason::Transaction), self.now_ms());
        }
    }

    /// An error says nothing of the transaction: did it end with this one, or begin (autocommit=0)?
    fn may_have_ended(&self, analysis: &Analysis, reply: &ReplyFacts) -> bool {
        if reply.error.is_some()
            && !self.client.status.contains(StatusFlags::AUTOCOMMIT)
            && self.at.pins.set().is_empty()
            && !self.hand.directions.alone
        {
            return true;
        }
        let ends = matches!(analysis.kind, Kind::Commit | Kind::Rollback | Kind::Begin | Kind::Set | Kind::Ddl);
        reply.error.is_some_and(|code| ends || ROLLS_BACK.contains(&code)) && self.at.pins.set().contains(PinReason::Transaction)
    }

    /// Asks the server whether a transaction is open.
    async fn ask_for_status(&mut self, analysis: &Analysis) {
        let Some(backend) = self.at.backend.as_mut() else { return };
        let question = async {
            backend.send(Command::Ping, &[]).await?;
            backend.collect(ReplyKind::Simple, false, &self.worker.buffers).await
        };
        match guarded(&self.worker, &self.entry, question).await {
            Ok(reply) => self.note_status(analysis, &ReplyFacts { status: Some(reply.ok.status), ..ReplyFacts::default() }),
            // The next statement finds it closed.
            Err(_) => backend.link.stream().shutdown(),
        }
    }

    /// Notes the facts of a reply that later statements may ask for.
    pub(super) fn remember(&mut self, analysis: &Analysis, reply: &ReplyFacts, certain: impl Fn(&Self, u64) -> bool) -> Unread {
        let mut unread = Unread::default();
        let failed = reply.error.is_some();
        let kept = std::mem::take(&mut self.facts.keeps_warnings) && !failed && !reply.warned;
        let read = std::mem::take(&mut self.facts.warnings_read);
        if !keeps_diagnostics(analysis) && !kept {
            self.facts.warnings = if failed { 1 } else { reply.warnings };
            self.facts.errors = u16::from(failed);
            self.facts.own_error = None;
            if !read {
                self.facts.diagnostics = None;
                // Those of an earlier statement of the text may still stand.
                unread.warnings = failed || reply.warned;
            }
            if let Some(backend) = self.at.backend.as_mut() {
                backend.core.held.answered(reply, backend.core.info.flavor);
            }
        } else {
            // Left standing on the backend that the session may give back now.
            unread.warnings = self.facts.is_unread();
        }
        if !std::mem::take(&mut self.facts.counts_noted) {
            self.remember_counts(analysis, reply);
        }
        unread.last_insert_id = self.remember_insert_id(analysis, reply, certain);
        unread
    }

    /// Notes FOUND_ROWS() and ROW_COUNT() before the proxy asks anything, which counts there too.
    pub(super) fn note_counts(&mut self, analysis: &Analysis, reply: &ReplyFacts) {
        self.remember_counts(analysis, reply);
        self.facts.counts_noted = true;
    }

    /// Notes FOUND_ROWS() and ROW_COUNT().
    fn remember_counts(&mut self, analysis: &Analysis, reply: &ReplyFacts) {
        let unclear =
            matches!(analysis.kind, Kind::Call | Kind::Compound | Kind::Execute) || analysis.facts.intersects(Facts::MULTI | Facts::TORN);
        self.facts.row_count_with_backend = unclear && reply.error.is_none();
        self.statements.count_behind(0);
        self.facts.row_count = match (reply.error, reply.rows) {
            (None, None) if analysis.kind == Kind::GetDiagnostics && !unclear => self.facts.row_count,
            (None, None) => i64::try_from(reply.affected_rows).unwrap_or(i64::MAX),
            _ => -1,
        };
        if std::mem::take(&mut self.facts.keeps_found_rows) {
            return;
        }
        if unclear || reply.is_behind_cursor() || analysis.facts.contains(Facts::CALC_FOUND_ROWS) {
            self.facts.found_rows_with_backend = true;
        } else if counts_found_rows(analysis, reply) {
            self.facts.found_rows_with_backend = false;
        }
        if let Some(rows) = reply.rows.filter(|_| counts_found_rows(analysis, reply)) {
            self.facts.found_rows = rows;
        } else if analysis.kind == Kind::Select && reply.error.is_none() && !reply.had_rows {
            // SELECT ... INTO: its rows are told as changed ones.
            self.facts.found_rows = reply.affected_rows;
        }
    }

    /// Notes ROW_COUNT() of a bulk execution. INSERT and REPLACE count all rows of parameters, as the reply does; any other statement
    /// counts what the last row of parameters changed, which only the server knows.
    pub(super) async fn note_bulk_count(&mut self, analysis: &Analysis, reply: &ReplyFacts) {
        let is_sum = matches!(analysis.kind, Kind::Insert | Kind::Replace) || reply.affected_rows == 0;
        if is_sum || reply.error.is_some() || reply.had_rows {
            return;
        }
        if !self.at.pins.set().is_empty() {
            self.facts.row_count_with_backend = true;
            return;
        }
        // A question that reads no table leaves the warnings standing on MariaDB, which alone has this command.
        if let Ok(told) = self.at.ask(Question::RowCount).await
            && let Some(count) = told.rows.first().and_then(|row| Reader::new(row).lenenc_bytes().ok())
            && let Some(count) = std::str::from_utf8(count).ok().and_then(|count| count.parse().ok())
        {
            self.facts.row_count = count;
        }
    }

    /// Reads the warnings of the statement that just ran.
    pub(super) async fn read_warnings(&mut self) -> io::Result<()> {
        self.read_unread(Unread { warnings: true, ..Unread::default() }).await
    }

    /// Finds out whether LAST_INSERT_ID() is the session's or the backend's.
    pub(super) async fn read_insert_id(&mut self) -> io::Result<()> {
        self.read_unread(Unread { last_insert_id: true, ..Unread::default() }).await
    }

    /// Questions take the place of what the statement before said of itself. Reads what only the backend knows of that, also where
    /// the session stays pinned: it has to know. `unread` says whether warnings are to be read. False when the connection failed.
    pub(super) async fn read_before_asking(&mut self, unread: Unread) -> bool {
        self.facts.row_count_with_backend = false;
        let (last_insert_id, found_rows) = (!self.facts.insert_id.is_known(), self.facts.found_rows_with_backend);
        let unread = Unread { warnings: unread.warnings || found_rows, last_insert_id, found_rows };
        let unread = self.facts.only_handled(&self.at, unread);
        let is_read = !unread.any() || self.read_unread(unread).await.is_ok();
        if !is_read {
            self.at.found_broken();
        }
        is_read
    }

    /// Reads warnings, LAST_INSERT_ID() and FOUND_ROWS() in one round trip; the client has its answer already.
    pub(super) async fn read_unread(&mut self, unread: Unread) -> io::Result<()> {
        let Some(backend) = self.at.backend.as_mut() else { return Ok(()) };
        // The questions have counts of their own.
        self.facts.row_count_with_backend = false;
        let pool = &self.worker.buffers;
        let mut out = Vec::with_capacity(64);
        if unread.warnings {
            put_query(&mut out, b"SHOW WARNINGS", backend.core.caps);
        }
        let asks = unread.last_insert_id || unread.found_rows;
        if asks {
            put_query(&mut out, b"SELECT LAST_INSERT_ID(),FOUND_ROWS()", backend.core.caps);
        }
        backend.start_exchange()?;
        guarded(&self.worker, &self.entry, backend.link.write_all(&out)).await?;
        let mut status = backend.core.held.status();
        if unread.warnings {
            let reply = guarded(&self.worker, &self.entry, backend.collect(ReplyKind::Results, true, pool)).await?;
            let errors = reply.rows.iter().filter(|row| row.get(1..6) == Some(b"Error")).count();
            self.facts.errors = u16::try_from(errors).unwrap_or(u16::MAX);
            self.facts.warnings = u16::try_from(reply.rows.len()).unwrap_or(u16::MAX).max(self.facts.warnings);
            status = reply.ok.status;
            let diagnostics = Diagnostics { packets: reply.raw, caps: backend.core.caps };
            self.facts.diagnostics = Some(Box::new(diagnostics));
        }
        if asks {
            let reply = guarded(&self.worker, &self.entry, backend.collect(ReplyKind::Results, false, pool)).await?;
            status = reply.ok.status;
            // MySQL warns of FOUND_ROWS().
            backend.core.asked(&reply);
            let [id, found_rows] = reply.rows.first().map_or([None; 2], |row| numbers_in(row));
            if let Some(found_rows) = found_rows.filter(|_| unread.found_rows) {
                (self.facts.found_rows, self.facts.found_rows_with_backend) = (found_rows, false);
            }
            if let Some(id) = id.filter(|_| unread.last_insert_id) {
                self.facts.insert_id.read(id, backend.core.held.has_insert_id(id));
            }
        }
        // An error does not say whether it left a transaction open (autocommit=0); these replies do.
        self.client.status = (self.client.status & !(StatusFlags::IN_TRANS | StatusFlags::IN_TRANS_READONLY))
            | (status & (StatusFlags::IN_TRANS | StatusFlags::IN_TRANS_READONLY));
        if status.contains(StatusFlags::IN_TRANS) {
            let now = self.now_ms();
            self.at.pins.begin(PinReason::Transaction, now, 0);
        }
        Ok(())
    }
}

impl SessionFacts {
    /// FOUND_ROWS() of a query with a LIMIT: the rows that its offset skipped count with those that were sent. Where none were sent,
    /// there may have been fewer than that, and only the server knows.
    pub(super) fn skipped_rows(&mut self, offset: Offset) {
        match offset {
            _ if self.found_rows_with_backend => {}
            Offset::None | Offset::Rows(0) => {}
            Offset::Rows(rows) if self.found_rows > 0 => self.found_rows = self.found_rows.saturating_add(rows),
            Offset::Rows(_) | Offset::Unclear => self.found_rows_with_backend = true,
        }
    }

    /// With `handle_warnings=0` a session that gives its backend back forgets its warnings, and a round trip is saved.
    pub(super) fn only_handled(&mut self, at: &Attachments, unread: Unread) -> Unread {
        if unread.warnings && at.lane.settings().handle_warnings == 0 {
            (self.warnings, self.errors) = (0, 0);
            return Unread { warnings: false, ..unread };
        }
        unread
    }

    /// Does one of several statements leave the diagnostics as they were?
    pub(super) fn leaves_diagnostics(&self, at: &Attachments, analysis: &Analysis, sql: &[u8]) -> bool {
        // MySQL clears them for a SELECT that shows their numbers.
        keeps_diagnostics(analysis) || is_about_diagnostics(analysis) && self.leaves_warnings(at, analysis, sql)
    }

    /// MariaDB keeps the warnings of an earlier statement as long as statements read no table.
    pub(super) fn leaves_warnings(&self, at: &Attachments, analysis: &Analysis, sql: &[u8]) -> bool {
        let mariadb = at.worker.shared.serves_mariadb();
        mariadb && self.has_diagnostics() && tableless::leaves_warnings(analysis.kind, sql)
    }

    /// A command that is no statement: MariaDB keeps warnings over it.
    pub(super) fn leave_warnings(&mut self, at: &Attachments) {
        let mariadb = at.worker.shared.serves_mariadb();
        self.keeps_warnings = mariadb && self.has_diagnostics();
    }
}

impl Attachments {
    /// Whether pins keep the backend, and no setting says so any more.
    pub(super) fn keeps_in_vain(&self) -> bool {
        !self.pins.set().is_empty() && !is_kept(self.pins.set(), &self.lane.settings())
    }

    /// Gives an unpinned backend back to the pool.
    pub(super) fn give_back(&mut self) {
        if self.pins.set().is_empty()
            && let Some(backend) = self.backend.take()
        {
            self.lend_on(backend);
        }
    }

    /// A backend that nothing pins goes back to its pool, to be reset first where it must; one that owes an answer is ended.
    pub(super) fn lend_on(&self, backend: Backend) {
        if !backend.core.held.must_reset() && !backend.is_owed() {
            return self.pool.release_to(&self.worker, &self.lane, backend);
        }
        let (worker, pool) = (Rc::clone(&self.worker), Rc::clone(&self.pool));
        tokio::task::spawn_local(cleaning::abandon(worker, pool, backend, PinSet::default(), false));
    }

    async fn restore_tracking(&mut self) {
        let Some(backend) = self.backend.as_mut() else { return };
        let Ok(set) = guarded(&self.worker, &self.entry, connect::our_tracking(&self.worker, backend)).await else {
            self.backend = None;
            return;
        };
        match guarded(&self.worker, &self.entry, backend.query(&set, &self.worker.buffers)).await {
            Ok(reply) if reply.error.is_none() => {
                backend.core.held.tracks_as(Tracking::Ours, false);
            }
            _ => self.backend = None,
        }
    }
}

/// Is the statement, being one, such that it leaves the diagnostics as they were, whatever it says?
fn keeps_diagnostics(analysis: &Analysis) -> bool {
    let is_about = is_about_diagnostics(&Analysis { facts: Facts::NONE, ..*analysis });
    is_about && !analysis.facts.contains(Facts::MULTI)
}

/// Is FOUND_ROWS() another one after this reply? Statements without rows leave it alone, and so do those that show diagnostics and
/// those whose rows are what they changed (RETURNING).
pub(super) fn counts_found_rows(analysis: &Analysis, reply: &ReplyFacts) -> bool {
    let leaves =
        matches!(analysis.kind, Kind::ShowWarnings | Kind::ShowErrors | Kind::Insert | Kind::Replace | Kind::Update | Kind::Delete);
    reply.error.is_none() && reply.rows.is_some() && !leaves
}

/// May FOUND_ROWS() count rows that a LIMIT left out at the front?
pub(super) fn leaves_out_rows(analysis: &Analysis, reply: &ReplyFacts) -> bool {
    analysis.facts.contains(Facts::OFFSET) && analysis.kind == Kind::Select && counts_found_rows(analysis, reply)
}

/// The numbers in the first two columns of a row; None for what is none.
fn numbers_in(row: &[u8]) -> [Option<u64>; 2] {
    let mut columns = wire::codec::Reader::new(row);
    [(); 2].map(|()| charsets::narrow(columns.lenenc_bytes().ok()?)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sql::LexMode;
    use wire::codec::put_lenenc_bytes;

    fn analysis(text: &str) -> Analysis {
        sql::analyze(text.as_bytes(), LexMode::default())
    }

    #[test]
    fn rows_count_unless_they_are_diagnostics_or_what_was_changed() {
        let reply = |rows, error| ReplyFacts { rows, error, ..ReplyFacts::default() };
        for (text, reply, expected) in [
            ("SELECT a FROM t", reply(Some(0), None), true),
            ("SHOW TABLES", reply(Some(2), None), true),
            ("CALL p()", reply(Some(2), None), true),
            ("CALL p()", reply(None, None), false),
            ("SELECT a FROM t", reply(Some(1), Some(1317)), false),
            ("SHOW WARNINGS", reply(Some(1), None), false),
            ("SHOW ERRORS", reply(Some(1), None), false),
            ("DELETE FROM t RETURNING a", reply(Some(1), None), false),
        ] {
            assert_eq!(counts_found_rows(&analysis(text), &reply), expected, "{text}, {:?}", reply.rows);
        }
    }

    #[test]
    fn numbers_are_read_in_whatever_character_set_they_come() {
        let row = |columns: &[&[u8]]| {
            let mut row = Vec::new();
            columns.iter().for_each(|column| put_lenenc_bytes(&mut row, column));
            numbers_in(&row)
        };
        assert_eq!(row(&[b"7", b"18446744073709551615"]), [Some(7), Some(u64::MAX)]);
        assert_eq!(row(&[b"\x004\x002", b"x"]), [Some(42), None]);
        assert_eq!(row(&[b"7"]), [Some(7), None]);
        assert_eq!(numbers_in(&[0xfb]), [None, None], "NULL");
    }
}

#[cfg(test)]
#[path = "settle_tests.rs"]
mod settle_tests;
