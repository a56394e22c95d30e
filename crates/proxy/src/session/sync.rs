//! Bringing the held backend to the session's state before a statement.
//!
//! What cannot fail travels in the same write as the statement; all else is answered first.

use super::Session;
use super::backends::Backends;
use super::door::{ServerDoor, door};
use super::fault::Fault;
use super::frontend::Frontend;
use super::hand::AtHand;
use crate::backends::backend::{Backend, put_query};
use crate::backends::cleaning::{self, ResetError};
use crate::statements::memory::AnswerSource;
use crate::workers::counters::count;
use crate::workers::safety::Safety;
use crate::workers::worker::Worker;
use session_state::effects::changes_data_at_most;
use session_state::facts::is_about_diagnostics;
use session_state::facts::{OwnError, SessionFacts, Unread};
use session_state::held::{TRACK_GTIDS, Tracking};
use session_state::pins::WISHES;
use session_state::question::Question;
use session_state::setting::AUTOCOMMIT;
use session_state::state::{self, Diff, State};
use session_state::wants::Wants;
use sql::{Analysis, Facts, Kind};
use std::sync::Arc;
use wire::charset::Flavor;
use wire::codes;
use wire::flags::{Capabilities, StatusFlags};
use wire::session_state::is_variable_name;

/// ER_UNKNOWN_SYSTEM_VARIABLE, ER_INCORRECT_GLOBAL_LOCAL_VAR: of a variable that no session can set.
const UNKNOWN: [u16; 2] = [codes::UNKNOWN_SYSTEM_VARIABLE, codes::INCORRECT_GLOBAL_LOCAL_VAR];

/// Facts of a statement that may show how session tracking is set.
const SHOWS_TRACKING: Facts = Facts::SESSION_TRACK.union(Facts::VARIABLES);

/// What is to be sent ahead of the statement in the same write.
#[derive(Default)]
pub(super) struct Ahead {
    /// Whole packets.
    pub packets: Vec<u8>,
    /// How many replies to them come first.
    pub replies: u32,
    /// How many come after those to what gives the backend an assigned GTID.
    pub gtid_replies: u32,
}

impl Ahead {
    pub(super) fn put_query(&mut self, sql: &str, caps: Capabilities) {
        put_query(&mut self.packets, sql.as_bytes(), caps);
        self.replies += 1;
    }
}

impl Session {
    /// Brings the backend to the session's state for this statement.
    pub(super) async fn sync(&mut self, analysis: &Analysis) -> Result<Ahead, Fault> {
        let mut ahead = Ahead::default();
        let entering = analysis.kind == Kind::Use && analysis.facts.is_empty();
        match entering && self.at.pins.set().without(WISHES).is_empty() {
            // The one that it leaves may be gone.
            true => self.sync_but_schema(&mut ahead).await?,
            false if self.hand.directions.alone => self.sync_but_autocommit(&mut ahead).await?,
            false => self.sync_state(&mut ahead).await?,
        }
        self.sync_tracking(analysis).await?;
        if self.facts.needs_insert_id(&self.wants.state, || ids_in_triggers(&self.worker), analysis) && !Safety::InsertIdSync.is_off() {
            if self.facts.insert_id.is_undecided() {
                self.door().read_insert_id().await?;
            }
            let id = self.facts.insert_id.to_tell();
            if let Some(backend) = self.at.backend.as_mut().filter(|b| b.core.held.last_insert_id() != Some(id)) {
                ahead.put_query(&Question::GiveInsertId(id).text(), backend.core.caps);
                backend.core.held.has_insert_id(id);
            }
        }
        if self.at.backend.as_ref().is_some_and(|b| b.core.held.has_warnings()) || ahead.replies > 0 {
            let is_asked = is_about_diagnostics(analysis);
            let shows = (entering || is_asked) && self.facts.own_error().is_none();
            let keeps = !is_asked && self.client.may_keep_backend(&self.at, &self.hand, analysis);
            self.at.clear_warnings(shows, keeps, &mut ahead);
        }
        Ok(ahead)
    }

    pub(super) async fn sync_state(&mut self, ahead: &mut Ahead) -> Result<(), Fault> {
        for last in [false, false, true] {
            let Some(backend) = self.at.backend.as_mut().filter(|_| !Safety::StateSync.is_off()) else { return Ok(()) };
            match backend.core.diff_to(&self.wants.state) {
                Diff::Identical => {
                    backend.core.held.found_equal_to(&self.wants.state.variables);
                    return Ok(());
                }
                Diff::Reset { .. } if !self.at.pins.set().without(WISHES).is_empty() => return Ok(()),
                Diff::Reset { change_user } => self.reset_backend(change_user).await?,
                Diff::Steps { schema, set, sure } => {
                    count(&self.worker.counters.state_syncs);
                    if let Some(schema) = schema
                        && !self.door().may_enter(&schema).await?
                    {
                        return Box::pin(self.sync_without_schema(ahead)).await;
                    }
                    let Some(mut set) = set else { return Ok(()) };
                    if self.client.caps.contains(Capabilities::IGNORE_SPACE) {
                        set = state::keeping_ignore_space(&set);
                    }
                    let pinned = !self.at.pins.set().is_empty();
                    match door!(self).sync_set(&self.wants.state, &set, sure, ahead).await {
                        // It may be the way back that the server refuses; another connection need not go it.
                        Err(Fault::Error { .. }) if !last && !pinned => self.obtain().await?,
                        result => {
                            if let Err(Fault::Error { code, text, .. }) = &result {
                                forget_unknown(&mut self.wants, &self.at, *code, text);
                            }
                            return result;
                        }
                    }
                }
            }
        }
        Err(self.at.pinned_backend_lost("the proxy could not restore the session's state on the connection"))
    }

    /// Brings the backend to the session's state, but leaves it in the schema it is in, if any.
    async fn sync_but_schema(&mut self, ahead: &mut Ahead) -> Result<(), Fault> {
        let there = self.at.backend.as_ref().and_then(|b| b.core.held.state().schema.clone());
        let own = std::mem::replace(&mut self.wants.state.schema, there);
        let result = self.sync_state(ahead).await;
        self.wants.state.schema = own;
        result
    }

    /// Brings the backend to the session's state, but for autocommit, which is on there.
    async fn sync_but_autocommit(&mut self, ahead: &mut Ahead) -> Result<(), Fault> {
        let own = self.wants.state.variables.get(AUTOCOMMIT).cloned();
        self.wants.state.variables.set(AUTOCOMMIT, None);
        let result = self.sync_state(ahead).await;
        self.wants.state.variables.set(AUTOCOMMIT, own.as_deref());
        result
    }

    /// The session's schema is gone, or its user has no rights there any more. On a connection of its own the session would keep
    /// the name: what needs no schema runs, and what needs one fails.
    async fn sync_without_schema(&mut self, ahead: &mut Ahead) -> Result<(), Fault> {
        let own = self.wants.state.schema.take();
        let result = self.sync_state(ahead).await;
        self.wants.state.schema = own;
        result
    }

    async fn reset_backend(&mut self, change_user: bool) -> Result<(), Fault> {
        let Some(mut backend) = self.at.backend.take() else { return Ok(()) };
        count(&self.worker.counters.resets);
        match cleaning::reset(&self.worker, &mut backend, change_user).await {
            Ok(()) => {
                self.at.backend = Some(backend);
                Ok(())
            }
            // Another connection serves as well; this one is closed.
            Err(ResetError::Unsupported | ResetError::Failed) => {
                self.at.backend = Some(backend);
                self.at.discard_backend();
                self.obtain().await
            }
        }
    }

    /// Session tracking is the proxy's own, but for a statement that may show its settings.
    async fn sync_tracking(&mut self, analysis: &Analysis) -> Result<(), Fault> {
        let shows = analysis.facts.intersects(SHOWS_TRACKING);
        let Some(backend) = self.at.backend.as_mut() else { return Ok(()) };
        let wanted = match backend.core.held.tracking() {
            Tracking::Ours if shows => Tracking::Clients,
            Tracking::Clients if !shows => Tracking::Ours,
            _ => return Ok(()),
        };
        let gtids = wanted == Tracking::Clients && self.at.pins.set().is_empty() && backend.core.held.tells_gtids();
        let clients = self.client.clients_tracking(&self.at, &self.wants, gtids);
        let Some(backend) = self.at.backend.as_mut() else { return Ok(()) };
        let set = match wanted {
            Tracking::Clients => clients,
            _ => match crate::backends::connect::our_tracking(&self.worker, backend).await {
                Ok(ours) => ours.to_string(),
                Err(e) => return Err(self.at.lost_before(&e)),
            },
        };
        self.door().ask(Question::Set(&set)).await.map_err(|e| self.at.lost_before(&e))?;
        if let Some(backend) = self.at.backend.as_mut() {
            backend.core.held.tracks_as(wanted, gtids);
        }
        Ok(())
    }
}

impl Backends {
    /// The backend's warnings are another session's, or of the SET that goes ahead (MySQL warns of utf8mb3, and counts warnings
    /// once more with COM_INIT_DB): a statement without any comes between, where this one `shows` them, or leaves them for the next
    /// one to show on the same backend, which the session may keep.
    fn clear_warnings(&mut self, shows: bool, keeps: bool, ahead: &mut Ahead) {
        let is_anothers = |backend: &&mut Backend| self.pins.set().is_empty() || !backend.core.held.ran_last_for(self.handle.id);
        let Some(backend) = self.backend.as_mut().filter(is_anothers) else { return };
        // MySQL forgets them with any statement.
        let leaves = keeps && backend.core.held.has_warnings() && backend.core.info.flavor == Flavor::MariaDb;
        if shows || leaves {
            ahead.put_query(CLEAR_WARNINGS, backend.core.caps);
            backend.core.held.warnings_cleared();
        }
    }
}

impl Frontend {
    /// May the session be pinned once the statement has run?
    fn may_keep_backend(&self, at: &Backends, hand: &AtHand, analysis: &Analysis) -> bool {
        let is_quiet = changes_data_at_most(analysis.kind) && analysis.facts.is_empty();
        let is_off = hand.directions.multiplex.is_some() || !at.lane.settings().multiplexing;
        !is_quiet || is_off || !self.status.contains(StatusFlags::AUTOCOMMIT)
    }
}

impl Frontend {
    /// The SET that gives the backend the client's own tracking settings; that for GTIDs only where the proxy changed it.
    fn clients_tracking(&self, at: &Backends, wants: &Wants, gtids: bool) -> String {
        let defaults = at.backend.as_ref().and_then(|b| b.core.info.tracking.get()).map(|t| t.defaults.clone()).unwrap_or_default();
        let (names, schema, state_change) = match self.tracking_wish.as_deref() {
            Some(f) => (f.system_variables.join(","), f.schema, f.state_change),
            None => (defaults.system_variables.unwrap_or_default(), defaults.schema, defaults.state_change),
        };
        let on = |b: bool| if b { "ON" } else { "OFF" };
        let names = names.replace(['\\', '\''], "");
        let own = wants.state.variables.get(TRACK_GTIDS).filter(|value| is_variable_name(value));
        let own = own.and_then(|value| std::str::from_utf8(value).ok()).unwrap_or("DEFAULT");
        let gtids = if gtids { format!(",session_track_gtids={own}") } else { String::new() };
        format!(
            "SET SESSION session_track_system_variables=_latin1'{names}',session_track_schema={},session_track_state_change={}{gtids}",
            on(schema),
            on(state_change)
        )
    }
}

impl AtHand {
    /// Whether the backend is as the session wants it for this statement, so that there is nothing for [`Session::sync`] to do. False
    /// also where that takes more than a look.
    pub(super) fn is_in_sync(&self, at: &mut Backends, wants: &Wants, facts: &SessionFacts, analysis: &Analysis) -> bool {
        if self.directions.alone
            || analysis.kind == Kind::Use
            || analysis.facts.intersects(SHOWS_TRACKING)
            || facts.needs_insert_id(&wants.state, || ids_in_triggers(&at.worker), analysis)
        {
            return false;
        }
        let Some(backend) = at.backend.as_mut() else { return false };
        let held = &mut backend.core.held;
        if held.has_warnings() || held.tracking() == Tracking::Clients || wants.state != *held.state() {
            return false;
        }
        held.found_equal_to(&wants.state.variables);
        true
    }
}

/// May triggers read LAST_INSERT_ID()?
fn ids_in_triggers(worker: &Worker) -> bool {
    worker.snapshot().vars.last_insert_id_in_triggers
}

/// No server has the variable that an error names, or none lets it be set, though one did: its servers were replaced by others.
/// The client is told so by this error; without it each statement would fail.
fn forget_unknown(wants: &mut Wants, at: &Backends, code: u16, message: &[u8]) {
    if !UNKNOWN.contains(&code) || !at.worker.shared.is_of_one_version() {
        return;
    }
    let name = message.split(|byte| *byte == b'\'').nth(1).and_then(|name| std::str::from_utf8(name).ok());
    if let Some(name) = name.map(str::to_ascii_lowercase) {
        wants.state.variables.set(&name, None);
    }
}

impl ServerDoor<'_> {
    /// What goes ahead of a statement on a pinned backend takes the place of what that backend alone knows of the statement before:
    /// this one asks for it, so it is read before the statement is planned.
    pub(super) async fn read_facts_for(&mut self, wants: &Wants, analysis: &Analysis) {
        let tells_id = self.facts.needs_insert_id(&wants.state, || ids_in_triggers(&self.at.worker), analysis);
        let sets = tells_id || analysis.facts.intersects(SHOWS_TRACKING);
        let asks = tells_id && self.facts.insert_id.is_undecided();
        let ahead = [sets.then_some(Question::Set("")), asks.then_some(Question::InsertIdAndFoundRows)];
        let ahead: Vec<Question<'_>> = ahead.into_iter().flatten().collect();
        // The statement finds out what a connection that fails now means.
        let _ = self.will_ask(&ahead).await;
    }

    async fn sync_set(&mut self, want: &State, set: &str, sure: bool, ahead: &mut Ahead) -> Result<(), Fault> {
        let door = &mut self.0;
        let (now, session) = (door.at.worker.clock.now_ms(), door.at.with_own_rights());
        let Some(backend) = door.at.backend.as_mut() else { return Ok(()) };
        let core = &backend.core;
        let (server, info, user) = (Arc::clone(&core.server), Arc::clone(&core.info), Arc::clone(&core.lane.user));
        let (hostgroup, class) = (server.key.hostgroup, core.lane.class);
        let place = AnswerSource { hostgroup, server: Some(server.index), version: &info.version, user: &user.name, class, session };
        let known = sure && door.at.worker.memory.borrow().is_accepted(&place, set, now);
        if known {
            ahead.put_query(set, backend.core.caps);
        } else {
            match door.ask(Question::Set(set)).await {
                Ok(reply) => {
                    if let Some(e) = reply.error {
                        // Not known which of the assignments stand: the connection is of no use.
                        door.at.backend = None;
                        door.facts.is_refused = true;
                        door.at.worker.memory.borrow_mut().forget_sets();
                        return Err(Fault::server(e));
                    }
                    // MariaDB keeps warnings over statements without tables: whether there are any must be known each time.
                    if reply.ok.warnings == 0 || info.flavor == Flavor::MySql {
                        door.at.worker.memory.borrow_mut().accept(&place, set, now);
                    }
                }
                Err(e) => return Err(door.at.lost_before(&e)),
            }
        }
        if let Some(backend) = door.at.backend.as_mut() {
            backend.core.held.was_set(set, want);
        }
        Ok(())
    }

    /// Finds out whether LAST_INSERT_ID() is the session's or the backend's.
    pub(super) async fn read_insert_id(&mut self) -> Result<(), Fault> {
        let wanted = Unread { last_insert_id: true, ..Unread::default() };
        self.read(wanted).await.map_err(|e| self.at.lost_before(&e))
    }

    /// Makes the held backend fail as the session did, so that it tells of that error.
    pub(super) async fn raise_own_error(&mut self) -> Result<(), Fault> {
        let Some(signal) = self.facts.own_error().map(OwnError::signal).filter(|_| self.at.backend.is_some()) else { return Ok(()) };
        self.ask(Question::Raise(&signal)).await.map_err(|e| self.at.lost_before(&e)).map(drop)
    }

    /// Enters the session's schema; false where it is refused and the backend can serve without one.
    async fn may_enter(&mut self, schema: &session_state::state::Text) -> Result<bool, Fault> {
        let is_pinned = !self.at.pins.set().without(WISHES).is_empty();
        let Some(core) = self.at.backend.as_ref().map(|backend| &backend.core) else { return Ok(true) };
        let has_none = core.held.state().schema.is_none();
        if is_pinned && has_none && core.held.has_refused(schema) {
            // Once is enough while a pin holds: the error takes the place of what SHOW WARNINGS shows.
            return Ok(false);
        }
        match self.sync_schema(schema).await {
            Err(fault) if is_schema_refused(&fault) && (has_none || !is_pinned) => {
                if let Some(backend) = self.at.backend.as_mut() {
                    backend.core.held.refused(schema);
                }
                Ok(false)
            }
            entered => entered.map(|()| true),
        }
    }

    /// The schema is never changed in the same write as the statement: if it is gone, the statement must not run.
    pub(super) async fn sync_schema(&mut self, schema: &session_state::state::Text) -> Result<(), Fault> {
        count(&self.at.worker.counters.backend_init_dbs);
        if self.at.backend.is_none() {
            return Ok(());
        }
        match self.enter(schema).await {
            Ok(reply) => reply.error.map_or(Ok(()), |error| Err(Fault::server(error))),
            Err(e) => Err(self.at.lost_before(&e)),
        }
    }
}

/// Is it what a server says of a schema that does not exist (1049), or that the user may not use (1044)?
pub(super) fn is_schema_refused(fault: &Fault) -> bool {
    matches!(fault, Fault::Error { code: codes::DBACCESS_DENIED | codes::BAD_DB, .. })
}

/// A statement without effect that has no warnings. MariaDB forgets old ones only when a table is read.
const CLEAR_WARNINGS: &str = "DO (SELECT 1 FROM (SELECT 1) tidegate)";

#[cfg(test)]
#[path = "sync_tests.rs"]
mod tests;
