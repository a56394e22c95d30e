//! After a statement: what must be read before the backend is lent on, then giving it back.

use super::Session;
use super::backends::Backends;
use super::connection::Connection;
use super::door::{ServerDoor, door};
use super::end::End;
use super::failed::may_have_left;
use super::frontend::Frontend;
use super::guard::guarded;
use super::hand::AtHand;
use super::statements::Statements;
use crate::backends::connect;
use session_state::facts::SessionFacts;
use session_state::held::Tracking;
use session_state::insert_id::may_prove;
use session_state::pins::PinReason;
use session_state::question::Question;
use sql::{Analysis, Kind};
use wire::codec::Reader;
use wire::codes;
use wire::flags::StatusFlags;
use wire::reframe::ReplyFacts;

/// Errors that come with the end of the whole transaction, or may: a row that has changed under the snapshot (MariaDB's
/// `innodb_snapshot_isolation`), lock wait timeout (`innodb_rollback_on_timeout`), deadlock, failure of a cluster at COMMIT (Galera,
/// Group Replication).
pub(super) const ROLLS_BACK: [u16; 6] = [
    codes::CHECKREAD,
    codes::ERROR_DURING_COMMIT,
    codes::LOCK_WAIT_TIMEOUT,
    codes::LOCK_DEADLOCK,
    codes::RUN_HOOK_ERROR,
    codes::TRANSACTION_ROLLBACK_DURING_COMMIT,
];

impl Session {
    /// Ends a statement: reads what the session must know, gives the backend back when no pin holds.
    /// `certain` says whether text and parameters prove that an insert id was generated.
    pub(super) async fn settle(
        &mut self,
        analysis: &Analysis,
        reply: &ReplyFacts,
        certain: impl Fn(&Self, u64) -> bool,
    ) -> Result<(), End> {
        self.at.backend.note_answered(self.handle.id, &mut self.facts, reply);
        if reply.error.is_some() || reply.warnings > 0 {
            Box::pin(self.look_after(analysis, reply)).await;
        }
        self.remember(analysis, reply, certain);
        self.let_backend_go(analysis).await
    }

    /// What an error may have left or ended, and warnings for the log.
    async fn look_after(&mut self, analysis: &Analysis, reply: &ReplyFacts) {
        if let Some(code) = reply.error.filter(|code| may_have_left(analysis, *code)) {
            Box::pin(self.effects().look_after_failure(analysis, code)).await;
        }
        if self.client.may_have_ended(&self.at, &self.hand, analysis, reply) {
            self.ask_for_status(analysis).await;
        }
        if reply.warnings > 0 && reply.error.is_none() && self.worker.meter.rules().logs_warnings {
            self.door().log_warnings(analysis).await;
        }
    }

    /// Gives the backend back after something that ended pins without an answer.
    pub(super) async fn settle_silent(&mut self, analysis: &Analysis) -> Result<(), End> {
        self.let_backend_go(analysis).await
    }

    /// Reads what is unread and gives the backend back, when no pin holds.
    async fn let_backend_go(&mut self, analysis: &Analysis) -> Result<(), End> {
        self.handle.keeps_unseen.set(false);
        if !self.at.lane.settings().multiplexing && self.at.backend.is_some() {
            let now = self.worker.clock.now_ms();
            self.at.pins.begin(PinReason::MultiplexingOff, now, analysis.digest);
        } else {
            // It may have been switched on again.
            self.at.pins.end(PinReason::MultiplexingOff);
        }
        self.hand.note_rule(&mut self.at, analysis);
        self.client.note_autocommit(&mut self.at, analysis);
        if self.is_let_go_at_once() { Ok(()) } else { Box::pin(self.let_go_later(analysis)).await }
    }

    /// Gives the backend back if there is nothing to read, or leaves it where a pin holds that is none to look at.
    fn is_let_go_at_once(&mut self) -> bool {
        if self.recovery.assigned_gtid.is_some() || self.at.pins.only_stored_code().is_some() || self.at.pins.only_variables().is_some() {
            return false;
        }
        if !self.at.pins.set().is_empty() {
            return true;
        }
        let keeps_tracking = self.at.backend.tells_by_clients_wish();
        if keeps_tracking
            || self.facts.unread().any()
            || self.at.backend.keeps_unseen()
            || self.causal.lacks_gtids(&self.at)
            || self.at.lane.settings().connection_delay_multiplex_ms > 0
        {
            return false;
        }
        self.at.give_back();
        true
    }

    async fn let_go_later(&mut self, analysis: &Analysis) -> Result<(), End> {
        if self.recovery.assigned_gtid.is_some() {
            Box::pin(self.recovery.clear_gtid_ended(&mut door!(self))).await;
        }
        if self.at.pins.only_stored_code().is_some() {
            Box::pin(self.door().read_stored_code(analysis)).await;
        }
        if self.at.pins.only_variables().is_some() {
            Box::pin(self.effects().learn_user_variables(analysis)).await;
        }
        self.let_go_unpinned().await
    }

    /// Reads what is unread and gives the backend back, unless a pin holds.
    async fn let_go_unpinned(&mut self) -> Result<(), End> {
        if !self.at.pins.set().is_empty() {
            return Ok(());
        }
        if self.at.backend.tells_by_clients_wish() {
            self.door().restore_tracking().await;
        }
        if !self.door().read_or_lose().await {
            return Ok(());
        }
        if self.causal.lacks_gtids(&self.at) {
            Box::pin(self.causal.ask_for_gtids(&mut door!(self))).await;
        }
        let delay_ms = self.at.lane.settings().connection_delay_multiplex_ms;
        if delay_ms > 0 && self.at.pins.set().is_empty() {
            self.handle.hold_backend_until(self.worker.shared.clock.now_ms() + delay_ms);
        } else if self.at.pool.shared.is_place_wanted(&self.at.user.name) || !self.at.keep_unseen() {
            self.at.give_back();
        }
        Ok(())
    }

    /// Asks the server whether a transaction is open.
    async fn ask_for_status(&mut self, analysis: &Analysis) {
        if let Ok(reply) = self.door().ask(Question::Status).await {
            self.effects().note_status(analysis, &ReplyFacts { status: Some(reply.ok.status), ..ReplyFacts::default() });
        }
    }

    /// Notes the facts of a reply that later statements may ask for.
    pub(super) fn remember(&mut self, analysis: &Analysis, reply: &ReplyFacts, certain: impl Fn(&Self, u64) -> bool) {
        self.statements.note_counts_of(&mut self.facts, analysis, reply);
        if self.facts.note_diagnostics(analysis, reply)
            && let Some(backend) = self.at.backend.as_mut()
        {
            backend.core.held.answered(reply, backend.core.info.flavor);
        }
        let is_certain = may_prove(analysis, reply) && certain(self, reply.last_insert_id);
        let held = self.at.backend.as_mut().map(|backend| &mut backend.core.held);
        self.facts.note_insert_id(held, analysis, reply, is_certain);
    }
}

impl Frontend {
    /// Where `autocommit_false_is_transaction` is on, autocommit=0 is as good as an open transaction.
    fn note_autocommit(&mut self, at: &mut Backends, analysis: &Analysis) {
        let is_off = !self.status.contains(StatusFlags::AUTOCOMMIT) && at.lane.settings().autocommit_false_is_transaction;
        if is_off && at.backend.is_some() {
            let now = at.worker.clock.now_ms();
            at.pins.begin(PinReason::AutocommitOff, now, analysis.digest);
            at.handle.set_transaction(true, now);
        } else if at.pins.set().contains(PinReason::AutocommitOff) {
            at.pins.end(PinReason::AutocommitOff);
            at.handle.set_transaction(at.pins.set().contains(PinReason::Transaction), at.worker.clock.now_ms());
        }
    }

    /// An error says nothing of the transaction: did it end with this one, or begin (autocommit=0)?
    fn may_have_ended(&self, at: &Backends, hand: &AtHand, analysis: &Analysis, reply: &ReplyFacts) -> bool {
        if reply.error.is_some() && !self.status.contains(StatusFlags::AUTOCOMMIT) && at.pins.set().is_empty() && !hand.directions.alone {
            return true;
        }
        let ends = matches!(analysis.kind, Kind::Commit | Kind::Rollback | Kind::Begin | Kind::Set | Kind::Ddl);
        reply.error.is_some_and(|code| ends || ROLLS_BACK.contains(&code)) && at.pins.set().contains(PinReason::Transaction)
    }
}

impl Statements {
    /// Notes FOUND_ROWS() and ROW_COUNT().
    pub(super) fn note_counts_of(&mut self, facts: &mut SessionFacts, analysis: &Analysis, reply: &ReplyFacts) {
        if facts.note_counts(analysis, reply) {
            self.count_behind(0);
        }
    }
}

impl ServerDoor<'_> {
    /// Notes ROW_COUNT() of a bulk execution. INSERT and REPLACE count all rows of parameters, as the reply does; any other statement
    /// counts what the last row of parameters changed, which only the server knows.
    pub(super) async fn note_bulk_count(&mut self, analysis: &Analysis, reply: &ReplyFacts) {
        let is_sum = matches!(analysis.kind, Kind::Insert | Kind::Replace) || reply.affected_rows == 0;
        if is_sum || reply.error.is_some() || reply.had_rows {
            return;
        }
        if !self.at.pins.set().is_empty() {
            return self.facts.leave_row_count();
        }
        if let Ok(told) = self.ask(Question::RowCount).await
            && let Some(count) = told.rows.first().and_then(|row| Reader::new(row).lenenc_bytes().ok())
            && let Some(count) = std::str::from_utf8(count).ok().and_then(|count| count.parse().ok())
        {
            self.facts.learn_row_count(count);
        }
    }

    /// Puts the proxy's own tracking settings in place of the client's.
    async fn restore_tracking(&mut self) {
        let at = &mut *self.at;
        let Some(backend) = at.backend.as_mut() else { return };
        let Ok(set) = guarded(&at.worker, &at.handle, connect::our_tracking(&at.worker, backend)).await else {
            at.backend = None;
            return;
        };
        let is_set = self.ask(Question::Set(&set)).await.is_ok_and(|reply| reply.error.is_none());
        match self.at.backend.as_mut().filter(|_| is_set) {
            Some(backend) => backend.core.held.tracks_as(Tracking::Ours, false),
            None => self.at.backend = None,
        }
    }
}

#[cfg(test)]
#[path = "settle_tests.rs"]
mod settle_tests;
