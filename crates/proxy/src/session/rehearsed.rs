//! A session that takes part in a rehearsal: its reads are given to its [`Shadow`] once they were answered.

use super::Session;
use super::pipeline::{Form, Statement};
use super::route::TextCommand;
use super::route::is_plain_read;
use crate::mirror::MAX_TEXT;
use crate::shadow::{Repeated, Shadow};
use rehearsal::{Reads, Skip};
use session_state::chosen::Chosen;
use session_state::pins::{self, PinReason, PinSet};
use session_state::state::{State, Text};
use sql::Facts;
use std::rc::Rc;
use std::sync::Arc;
use wire::command::Command;
use wire::flags::StatusFlags;

/// Facts of reads whose answer only this session's connection knows.
const OWN: Facts =
    Facts::LAST_INSERT_ID.union(Facts::FOUND_ROWS).union(Facts::ROW_COUNT).union(Facts::CONNECTION_ID).union(Facts::TEMPORARY);

/// Pins that do not change what a read answers. Transactions are looked at apart.
const HARMLESS: PinSet = PinSet::of(&[
    PinReason::Cursor,
    PinReason::LongData,
    PinReason::UserLock,
    PinReason::Handler,
    PinReason::TextPrepare,
    PinReason::ReplicationGtid,
]);

/// What a session has to do with rehearsals.
#[derive(Default)]
pub(super) struct Rehearsed {
    /// What ran when the session was looked at.
    epoch: u64,
    shadow: Option<Rc<Shadow>>,
    /// The statement at hand is to be repeated.
    is_meant: bool,
}

impl Session {
    /// How rows of the answer to the statement at hand come, if a rehearsal repeats it.
    pub(super) fn rehearsal_wants(&mut self, statement: &Statement) -> Option<rehearsal::Form> {
        let epoch = self.worker.shared.rehearsals.epoch();
        if epoch == 0 {
            return None;
        }
        let shadow = self.shadow_in(epoch);
        let decided = shadow.as_ref().map(|shadow| self.repeatable(shadow, statement));
        let form = match (decided, shadow) {
            (Some(Ok(form)), _) => form,
            (Some(Err(why)), Some(shadow)) => {
                shadow.run.skip(why);
                None
            }
            _ => None,
        };
        self.beside.get_or_insert_default().rehearsed.is_meant = form.is_some();
        form
    }

    /// The statement was answered, and the session is done with it.
    pub(super) fn rehearsal_ends(&mut self, statement: &Statement) {
        let Some(beside) = self.beside.as_mut().filter(|beside| beside.rehearsed.is_meant) else { return };
        beside.rehearsed.is_meant = false;
        let Some(shadow) = beside.rehearsed.shadow.clone() else { return };
        let Some((answer, time_us)) = beside.answer().cloned() else { return shadow.run.skip(Skip::Original) };
        let Some(mut copy) = self.copy_for(statement, shadow.run.plan.shadow) else { return shadow.run.skip(Skip::Form) };
        copy.is_guarded = true;
        copy.chosen_in = Some((shadow.run.plan.shadow, self.chosen_in(&mut copy.state)));
        let digest = self.worker.digest(copy.text(), copy.lex, &copy.analysis);
        shadow.admit(&self.worker, Repeated { copy, digest, answer, time_us });
    }

    /// Who chose the collations of this state, which is the session's, for a server of another version than those that serve it.
    pub(super) fn chosen_in(&self, state: &mut State) -> Chosen {
        let held = self.at.backend.as_ref().map(|backend| Arc::clone(&backend.core.info));
        let original = held.or_else(|| self.at.pool.one_version()).or_else(|| self.worker.shared.info.get());
        self.wants.chosen.settle(original.as_deref(), state)
    }

    /// The session's shadow, if one of the rehearsals that run wants it.
    fn shadow_in(&mut self, epoch: u64) -> Option<Rc<Shadow>> {
        let now_ms = self.worker.shared.clock.now_ms();
        let known = self.beside.as_ref().map(|beside| &beside.rehearsed).filter(|known| known.epoch == epoch);
        if let Some(known) = known {
            let shadow = known.shadow.clone()?;
            if shadow.run.ended_ms(now_ms).is_some() {
                self.worker.shared.rehearsals.expire(now_ms);
            }
            return shadow.is_active(now_ms).then_some(shadow);
        }
        let before = self.beside.as_mut().and_then(|beside| beside.rehearsed.shadow.take());
        let before = before.filter(|shadow| shadow.run.ended_ms(now_ms).is_none());
        let shadow = before.or_else(|| Shadow::of(&self.worker, self.handle.id, &self.at.user.name));
        self.beside.get_or_insert_default().rehearsed = Rehearsed { epoch, shadow: shadow.clone(), is_meant: false };
        shadow.filter(|shadow| shadow.is_active(now_ms))
    }

    /// The session has another user: whether a rehearsal wants it is decided anew.
    pub(super) fn forget_rehearsal(&mut self) {
        if let Some(beside) = self.beside.as_mut() {
            beside.rehearsed = Rehearsed::default();
        }
        self.log_in_copy();
    }

    /// How rows of the answer come, if the statement is one that the rehearsal repeats.
    fn repeatable(&self, shadow: &Shadow, statement: &Statement) -> Result<Option<rehearsal::Form>, Skip> {
        let (analysis, plan) = (&statement.analysis, &shadow.run.plan);
        let Some((text, id)) = self.copied_text(statement) else { return Ok(None) };
        let (prepared, schema) = (id.and_then(|id| self.statements.get(id)), self.schema_of(statement));
        let is_meant = self.at.hostgroup() == plan.source && plan.is_for_schema(schema.map_or(&[][..], |schema| schema));
        if !is_meant {
            return Ok(None);
        }
        if Reads::of(text, self.wants.lex, analysis) == Reads::Perhaps {
            return Err(Skip::Hidden);
        }
        if !is_plain_read(&self.wants, &self.at, text, analysis) {
            return Ok(None);
        }
        let is_plain = match statement.form {
            Form::Text { .. } => true,
            Form::Execution { phase, .. } => {
                matches!(phase, TextCommand::Execution) && statement.command.byte == Command::StmtExecute as u8
            }
            Form::Bulk { .. } => false,
        };
        let pins = self.at.pins.set().without(pins::TRANSACTION).without(pins::WISHES).without(HARMLESS);
        match () {
            () if analysis.facts.intersects(OWN) => Err(Skip::SessionFact),
            () if self.may_write() => Err(Skip::Transaction),
            () if !pins.is_empty() => Err(Skip::PinnedState),
            () if !is_plain || prepared.is_some_and(|prepared| prepared.marks.long_data) => Err(Skip::Form),
            () if self.client.payload(statement.command).len() + text.len() >= MAX_TEXT => Err(Skip::TooLong),
            () if prepared.is_some() => Ok(Some(rehearsal::Form::Binary)),
            () => Ok(Some(rehearsal::Form::Text)),
        }
    }

    /// The schema in which a statement looks up its names: of a prepared one, that of its PREPARE.
    fn schema_of(&self, statement: &Statement) -> Option<&Text> {
        match statement.form {
            Form::Text { .. } => self.wants.state.schema.as_ref(),
            Form::Execution { id, .. } | Form::Bulk { id } => self.statements.get(id)?.key.schema.as_ref(),
        }
    }

    /// The statement runs in a transaction that may write.
    fn may_write(&self) -> bool {
        let status = self.client.current_status();
        let is_open = status.contains(StatusFlags::IN_TRANS) || self.client.is_autocommit_off();
        is_open && !status.contains(StatusFlags::IN_TRANS_READONLY)
    }
}

/// Columns of the answer whose values the rehearsals that run leave out.
pub(super) fn left_out_of_comparison(session: &Session, statement: &Statement) -> Vec<Box<str>> {
    let Some(beside) = session.beside.as_ref() else { return Vec::new() };
    let of_reads = beside.rehearsed.shadow.as_ref().filter(|_| beside.rehearsed.is_meant).map(|shadow| &shadow.run.plan);
    let plan = of_reads.or_else(|| beside.copied.plan());
    let Some(plan) = plan.filter(|plan| plan.ignores.iter().any(|row| row.column.is_some())) else { return Vec::new() };
    let text = session.copied_text(statement).map_or(&[][..], |(text, _)| text);
    let digest = session.worker.digest(text, session.wants.lex, &statement.analysis);
    rehearsal::left_out(&plan.ignores, digest.hash, session.schema_of(statement).map_or(&[][..], |schema| schema))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::bed::Bed;
    use ::rehearsal::{Form as RowForm, Run};

    const ROW: &str = r#"mysql_rehearsals = (
        { name="new", source_hostgroup=1, shadow_hostgroup=2, percent=100, users="anna", schemas="shop" } )"#;

    /// A session of which a rehearsal wants all.
    fn bed() -> (Bed, Rc<Shadow>) {
        let bed = Bed::new(ROW);
        let plan = Arc::clone(&bed.worker.snapshot().rehearsals[0]);
        bed.worker.shared.rehearsals.start(Run::new(plan, Default::default(), (0, 0), None), 0).unwrap();
        let shadow = Shadow::of(&bed.worker, bed.handle.id, "anna").unwrap();
        assert!(Shadow::of(&bed.worker, bed.handle.id, "bert").is_none());
        (bed, shadow)
    }

    fn decided(bed: &mut Bed, shadow: &Shadow, text: &str) -> Result<Option<RowForm>, Skip> {
        let (command, analysis) = (bed.says(text), bed.analysis(text));
        bed.repeatable(shadow, &Statement { command, analysis, form: Form::Text { start: 0 } })
    }

    #[tokio::test]
    async fn only_certain_reads_are_repeated() {
        let (mut bed, shadow) = bed();
        for (text, expected) in [
            ("SELECT a FROM t", Ok(Some(RowForm::Text))),
            ("SELECT a FROM t WHERE b = @c", Ok(Some(RowForm::Text))),
            ("UPDATE t SET a = 1", Ok(None)),
            ("SELECT a FROM t FOR UPDATE", Ok(None)),
            ("SELECT unknown_function(a) FROM t", Ok(None)),
            ("SELECT GET_LOCK('a', 1)", Ok(None)),
            ("SELECT @a := 1", Ok(None)),
            ("SELECT 1; SELECT 2", Err(Skip::Hidden)),
            ("UPDATE t SET a = 1; COMMIT", Ok(None)),
            ("EXECUTE s USING @a", Err(Skip::Hidden)),
            ("EXECUTE IMMEDIATE 'SELECT 1'", Err(Skip::Hidden)),
            ("CALL p()", Err(Skip::Hidden)),
            ("DO own_function()", Err(Skip::Hidden)),
            ("SHOW TABLES", Ok(None)),
            ("SELECT a FROM t WHERE id = LAST_INSERT_ID()", Err(Skip::SessionFact)),
            ("SELECT FOUND_ROWS()", Err(Skip::SessionFact)),
        ] {
            assert_eq!(decided(&mut bed, &shadow, text), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn state_of_the_connection_leaves_a_read_out() {
        const TEXT: &str = "SELECT a FROM t";
        let open = StatusFlags::AUTOCOMMIT | StatusFlags::IN_TRANS;
        for (pin, expected) in [
            (PinReason::Rule, Ok(Some(RowForm::Text))),
            (PinReason::FoundRows, Ok(Some(RowForm::Text))),
            (PinReason::TemporaryTable, Err(Skip::PinnedState)),
            (PinReason::SessionState, Err(Skip::PinnedState)),
            (PinReason::LockTables, Err(Skip::PinnedState)),
        ] {
            let (mut bed, shadow) = bed();
            bed.pin(&[pin]);
            assert_eq!(decided(&mut bed, &shadow, TEXT), expected, "{}", pin.name());
        }
        for (status, expected) in [
            (StatusFlags::AUTOCOMMIT, Ok(Some(RowForm::Text))),
            (open, Err(Skip::Transaction)),
            (open | StatusFlags::IN_TRANS_READONLY, Ok(Some(RowForm::Text))),
            (StatusFlags::empty(), Err(Skip::Transaction)),
        ] {
            let (mut bed, shadow) = bed();
            bed.client.status = status;
            assert_eq!(decided(&mut bed, &shadow, TEXT), expected, "{status:?}");
        }
    }

    #[tokio::test]
    async fn another_user_takes_part_only_if_it_is_meant() {
        let (mut bed, _) = bed();
        let epoch = bed.worker.shared.rehearsals.epoch();
        for (name, is_meant) in [("anna", true), ("bert", false), ("anna", true)] {
            let mut user = (*bed.at.user).clone();
            user.name = name.into();
            bed.at.user = user.into();
            bed.forget_rehearsal();
            assert_eq!((0..2).map(|_| bed.shadow_in(epoch).is_some()).collect::<Vec<_>>(), [is_meant; 2], "{name}");
        }
    }

    #[tokio::test]
    async fn other_schemas_and_hostgroups_take_no_part() {
        let (mut bed, shadow) = bed();
        bed.wants.state.schema = Some(b"elsewhere"[..].into());
        assert_eq!(decided(&mut bed, &shadow, "SELECT 1"), Ok(None));
        let (mut bed, shadow) = self::bed();
        bed.at.go_to(model::HostgroupId(2));
        assert_eq!(decided(&mut bed, &shadow, "SELECT 1"), Ok(None));
    }
}
