//! What a statement has with a backend's: a cursor that is open, long data that waits for the execution. For as long that one of the
//! backend's is the statement's alone, though others have its text.

use super::Session;
use super::backends::Backends;
use super::door::ServerDoor;
use super::end::End;
use super::fault::Fault;
use super::statements::{ClientStatement, Statements};
use session_state::facts::SessionFacts;
use session_state::pins::PinReason;
use session_state::statement_key::Meaning;
use sql::{Analysis, Facts};
use std::sync::Arc;
use wire::charset::Flavor;
use wire::flags::StatusFlags;
use wire::reframe::ReplyFacts;

/// Types of parameters of which long data is read as such: VARCHAR, the BLOBs and TEXTs, VAR_STRING and STRING.
const TEXTS: [u8; 7] = [15, 249, 250, 251, 252, 253, 254];

impl Session {
    /// An execution that no server has seen uses its long data up all the same.
    pub(super) async fn forget_long_data(&mut self, id: u32) -> Result<(), End> {
        if let Some(statement) = self.statements.get_mut(id) {
            statement.failed = None;
        }
        let Some(statement) = self.statements.get(id).filter(|statement| statement.marks.long_data) else { return Ok(()) };
        let analysis = statement.analysis;
        // With its cursor, as an execution does.
        self.statements.mark(id, std::mem::take);
        self.statements.forget_on_backend(&mut self.at, id).await?;
        self.statements.note_cursors(&mut self.at, analysis.digest);
        self.settle_silent(&analysis).await
    }

    /// An execution that no server sees is over.
    pub(super) async fn settle_without(&mut self, id: u32) -> Result<(), End> {
        self.forget_long_data(id).await?;
        self.settle_silent(&Analysis::NONE).await
    }
}

impl Statements {
    /// On MySQL the next execution of a statement that had a cursor may send rows that are not what its columns say, so nobody
    /// executes it again.
    fn spend(&self, at: &mut Backends, id: u32) {
        if let (Some(statement), Some(backend)) = (self.get(id), at.backend.as_mut())
            && backend.core.info.flavor == Flavor::MySql
            && let Some(prepared) = statement.of(&mut backend.core.statements)
        {
            prepared.is_spent = true;
        }
    }

    /// The held backend's statement, which has something of this one, is for nobody else.
    pub(super) fn set_apart(&mut self, at: &mut Backends, id: u32) {
        if let (Some(statement), Some(backend)) = (self.get_mut(id), at.backend.as_mut())
            && statement.apart.is_none()
        {
            statement.apart = backend.core.statements.set_apart(&statement.on_backend);
        }
    }

    /// MariaDB reads long data in the place of what another execution has bound as a number as that number. So the held backend's
    /// statement is closed if it was bound otherwise than this client binds.
    pub(super) async fn forget_types_of_others(&mut self, at: &mut Backends, id: u32) -> Result<(), Fault> {
        let Some((statement, backend)) = self.get(id).zip(at.backend.as_mut()) else { return Ok(()) };
        let is_safe = |types: &[u8]| types.chunks(2).all(|one| one.first().is_some_and(|kind| TEXTS.contains(kind)));
        let is_foreign = statement.apart.is_none()
            && backend.core.info.flavor == Flavor::MariaDb
            && statement.of(&mut backend.core.statements).is_some_and(|p| p.bound_types != statement.types && !is_safe(&p.bound_types));
        if is_foreign { self.forget_on_backend(at, id).await.map_err(Fault::End) } else { Ok(()) }
    }

    /// The held backend's statement has nothing of this one any more: it is for others again, with the types that it has settled.
    pub(super) async fn share(&mut self, at: &mut Backends, id: u32) -> Result<(), End> {
        let Some(statement) = self.get_mut(id) else { return Ok(()) };
        let Some((apart, backend)) = statement.apart.take().zip(at.backend.as_mut()) else { return Ok(()) };
        let prepared = &mut backend.core.statements;
        let (before, now) = (&statement.on_backend.types, &statement.settled_types);
        let gone = if before == now {
            prepared.share(apart, Arc::clone(&statement.on_backend))
        } else if before.is_none() {
            // What settled them was its first execution.
            statement.on_backend = Arc::new(Meaning { types: now.clone(), ..(**statement.on_backend).clone() }.into());
            prepared.share(apart, Arc::clone(&statement.on_backend))
        } else {
            prepared.remove_apart(apart)
        };
        at.close_on_backend(gone.as_slice()).await.or_else(unless_ended)?;
        at.shrink_statements().await.or_else(unless_ended)
    }

    /// Closes the statement on the held backend: whoever executes it next prepares it anew.
    pub(super) async fn forget_on_backend(&mut self, at: &mut Backends, id: u32) -> Result<(), End> {
        let Some(statement) = self.get_mut(id) else { return Ok(()) };
        let apart = statement.apart.take();
        let Some(backend) = at.backend.as_mut() else { return Ok(()) };
        let gone = match apart {
            Some(apart) => backend.core.statements.remove_apart(apart),
            None => backend.core.statements.remove(&statement.on_backend),
        };
        at.close_on_backend(gone.as_slice()).await.or_else(unless_ended)
    }

    /// A cursor is over.
    pub(super) async fn cursor_ended(&mut self, at: &mut Backends, id: u32) -> Result<(), End> {
        self.mark(id, |marks| marks.cursor = None);
        if self.get(id).is_some_and(ClientStatement::is_bound) { Ok(()) } else { self.share(at, id).await }
    }

    /// The backend with the cursors of this hostgroup is lost.
    pub(super) fn lose_cursors_at(&mut self, at: &mut Backends) {
        self.lose_cursors(at.hostgroup());
        self.note_cursors(at, 0);
    }

    /// Pins for cursors and long data, from the statements' own marks.
    pub(super) fn note_cursors(&mut self, at: &mut Backends, digest: u64) {
        let now = at.worker.clock.now_ms();
        for (reason, open) in [(PinReason::Cursor, self.any_cursor(at.hostgroup())), (PinReason::LongData, self.any_long_data())] {
            if open {
                at.pins.begin(reason, now, digest);
            } else {
                at.pins.end(reason);
            }
        }
    }

    /// FOUND_ROWS() will be known without a question if all rows behind this cursor are fetched.
    fn count_from_cursor(&mut self, facts: &mut SessionFacts, id: u32) {
        if self.get(id).is_some_and(|statement| !statement.analysis.facts.contains(Facts::CALC_FOUND_ROWS)) {
            self.count_behind(id);
            facts.count_from_zero();
        }
    }

    /// These rows were fetched.
    pub(super) fn count_fetched_rows(&mut self, facts: &mut SessionFacts, id: u32, reply: &ReplyFacts) {
        if self.counted_behind() == id {
            let is_last = reply.status.is_some_and(|status| status.contains(StatusFlags::LAST_ROW_SENT));
            facts.count_fetched(reply.rows.unwrap_or_default(), is_last);
        }
    }

    /// After an execution of a statement that has something with a backend's, or had.
    pub(super) async fn executed_apart(
        &mut self,
        at: &mut Backends,
        facts: &mut SessionFacts,
        id: u32,
        reply: &ReplyFacts,
    ) -> Result<(), End> {
        if self.get(id).is_some_and(ClientStatement::is_bound) {
            // Its cursor is open.
            self.set_apart(at, id);
            self.spend(at, id);
            self.count_from_cursor(facts, id);
            return Ok(());
        }
        match reply.error {
            // What was wrong with long data stays with the server's statement until a reset, for whoever executes it.
            Some(_) => self.forget_on_backend(at, id).await,
            None => self.share(at, id).await,
        }
    }

    /// To where the statement's cursor is open.
    pub(super) async fn travel_to_cursor(&mut self, door: &mut ServerDoor<'_>, id: u32) {
        if let Some(hostgroup) = self.get(id).and_then(|statement| statement.marks.cursor) {
            door.travel(hostgroup).await;
        }
    }

    /// The same; while a transaction or the like keeps the session from going there, the cursor is ended instead.
    pub(super) async fn travel_to_cursor_or_end(&mut self, door: &mut ServerDoor<'_>, id: u32) {
        self.travel_to_cursor(door, id).await;
        let Some(elsewhere) = self.get(id).and_then(|s| s.marks.cursor).filter(|place| *place != door.at.hostgroup()) else {
            return;
        };
        self.mark(id, |marks| marks.cursor = None);
        let apart = self.get_mut(id).and_then(|statement| statement.apart.take());
        let is_last = !self.any_cursor(elsewhere);
        door.at.end_cursor_elsewhere(elsewhere, apart, is_last).await;
    }

    /// The statement is executed again: its cursor is over, and MySQL would send columns without rows. Long data that was sent since is
    /// with the same statement of the server, to which both are left.
    pub(super) async fn end_cursor_ahead(&mut self, door: &mut ServerDoor<'_>, id: u32) -> Result<(), End> {
        self.travel_to_cursor_or_end(door, id).await;
        if self.get(id).is_some_and(|statement| statement.marks.long_data) {
            return Ok(());
        }
        self.cursor_ended(door.at, id).await?;
        self.note_cursors(door.at, 0);
        Ok(())
    }
}

/// A backend that was lost is found to be so by the next statement.
fn unless_ended(fault: Fault) -> Result<(), End> {
    match fault {
        Fault::End(end) => Err(end),
        _ => Ok(()),
    }
}
