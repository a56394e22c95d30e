//! Stored code that a statement names: servers tell only of a part of what it leaves on its connection, so what is not known
//! to leave nothing keeps the backend, whether the statement succeeded or failed. Triggers, and functions behind views, no text shows.
//!
//! What is known: the operator declares it (`safe_functions`), or the body was read: SHOW CREATE on the session's own backend, when
//! nothing else keeps it, with the session's own rights. A body counts for `prepared_metadata_max_age`, or until a data definition.

use super::backends::Backends;
use super::door::ServerDoor;
use super::effects::Effects;
use session_state::door::Door;
use session_state::effects::changes_data_at_most;
use session_state::facts::FailedCalls;
use session_state::pins::{PinReason, StoredCall};
use session_state::question::Question;
use session_state::state::Text;
use session_state::stored::{Body, body_in, is_lossy, is_plain, located};
use session_state::words::contains;
use sql::{Analysis, Facts, Kind, Routine};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::charset::Flavor;
use wire::codes;
use wire::reframe::ReplyFacts;

/// What is said where there is no such routine, or no such schema: ER_BAD_DB_ERROR, ER_PROCACCESS_DENIED_ERROR too.
const NOT_THERE: [u16; 3] = [codes::BAD_DB, codes::SP_DOES_NOT_EXIST, codes::PROCACCESS_DENIED];
/// Routines that one statement may run, by what its text and their bodies call; one with more keeps its backend.
const MOST: usize = 32;
/// What is known of the routines that a statement runs.
enum Verdict {
    /// They may have left this.
    Known(LeftByCode),
    /// This one's body was not read, or too long ago.
    Unread(Routine),
}

/// What routines may have left.
#[derive(Clone, Copy, Default)]
struct LeftByCode {
    /// Session state that servers do not report.
    state: bool,
    /// The same, and perhaps a role.
    role: bool,
    /// Data may be defined otherwise than before. A body that cannot be read does not count: users who may not read bodies are common, and
    /// each CALL would end what is remembered.
    defines: bool,
}

impl LeftByCode {
    fn note(self, at: &mut Backends, analysis: &Analysis) {
        if self.defines {
            at.worker.shared.anything_was_defined();
        }
        if self.state || self.role {
            at.pin_unknown(self.role, analysis);
        }
    }
}

impl Effects<'_> {
    /// Notes what a statement may have left by the routines that it calls, and by the code that it is. `schema` is where names are
    /// looked up that have none.
    pub(super) fn note_stored_code(&mut self, sql: &[u8], schema: Option<&Text>, analysis: &Analysis, reply: &ReplyFacts) {
        self.facts.failed_calls = FailedCalls::Unknown;
        if self.client.is_refused_whole(analysis, reply) {
            return;
        }
        let several = analysis.facts.contains(Facts::MULTI);
        if several || analysis.kind == Kind::Compound {
            // Its user variables are in the text, and are noted as any others.
            let leaves = |one: &[u8]| sql::analyze(one, self.wants.lex).kind == Kind::Compound && sql::compound(one, self.wants.lex).state;
            if sql::split(sql, self.wants.lex).any(leaves) {
                self.at.pin(PinReason::SessionState, analysis);
            }
        }
        if !analysis.facts.contains(Facts::UNKNOWN_FUNCTION) {
            return;
        }
        // Of several statements a later one may have dropped what ran. In which schema each ran is not known when one may be USE.
        let defines = several && sql::split(sql, self.wants.lex).any(|one| sql::analyze(one, self.wants.lex).kind == Kind::Ddl);
        // The schema is as it was: what went on in another one says no more than that.
        let moved = reply.state_change && reply.schema.is_some();
        let may_have_moved = several && (reply.schema.is_some() || self.at.tracks_nothing());
        let Some(routines) = sql::routines(sql, self.wants.lex).filter(|all| all.len() <= MOST && !defines) else {
            return self.at.pin(PinReason::SessionState, analysis);
        };
        let mariadb = self.at.is_on(Flavor::MariaDb);
        let is_read_alike = !several && !analysis.facts.intersects(Facts::VERSIONED.union(Facts::TORN));
        let not_there = is_read_alike && reply.error.is_some_and(|code| NOT_THERE.contains(&code));
        let is_question = changes_data_at_most(analysis.kind) || analysis.kind == Kind::Do;
        let has_failed = not_there && matches!(analysis.kind, Kind::Call | Kind::Select | Kind::Do) && !self.tells_after_failures();
        let (mut calls, mut only_natives) = (Vec::new(), is_read_alike && is_question);
        for routine in routines {
            if !routine.is_procedure && routine.schema.is_none() && sql::is_native(&routine.name, mariadb) {
                continue;
            }
            only_natives = false;
            if self.at.user.attributes.declares_safe(routine.schema.as_deref(), &routine.name) && !has_failed {
                continue;
            }
            // A loadable function, or one that was not there to be called.
            let may_be_loadable = !routine.is_procedure && routine.schema.is_none();
            let may_be_missing = !several && (may_be_loadable || not_there);
            let is_lost = may_have_moved && routine.schema.is_none() || !is_plain(&routine);
            match located(routine, schema.map(|schema| &**schema)).filter(|routine| !is_lost && is_plain(routine)) {
                Some(routine) => calls.push(StoredCall { routine, may_be_missing, has_failed, is_bare: moved }),
                None if may_be_missing && !is_lost && schema.is_none() => {}
                None => return self.at.pin(PinReason::SessionState, analysis),
            }
        }
        // What is not there may be a function of the server's, and the error another one's.
        let is_named = |call: &StoredCall| contains(&reply.message, call.routine.name.as_bytes());
        self.facts.failed_calls = match has_failed && calls.iter().any(is_named) {
            _ if only_natives => FailedCalls::Natives,
            true => FailedCalls::Judged,
            false => FailedCalls::Unknown,
        };
        if self.at.tracks_nothing() && !calls.is_empty() {
            // Also what its body sets, and a tracker tells.
            return self.at.pin(PinReason::SessionState, analysis);
        }
        let defined = self.facts.routines_defined;
        let verdict = self.door().judge(&calls, &[], defined);
        match verdict {
            Verdict::Known(left) => left.note(self.at, analysis),
            // What is pinned so is never asked.
            Verdict::Unread(_) if self.at.pins.set().contains(PinReason::SessionState) => {}
            Verdict::Unread(_) => {
                let now = self.at.worker.clock.now_ms();
                self.at.pins.stored_code_called(calls, defined, now, analysis.digest);
            }
        }
    }
}

impl ServerDoor<'_> {
    /// Asks the held backend for a routine's body, and remembers it.
    async fn ask_for_body(&mut self, routine: &Routine) -> io::Result<Body> {
        let epoch = self.at.worker.shared.ddl_epoch.load(Ordering::Acquire);
        let Some(info) = self.at.backend.as_ref().map(|backend| Arc::clone(&backend.core.info)) else { return Ok(Body::Unreadable) };
        let reply = self.ask(Question::Body(routine)).await?;
        if is_lossy(&reply, info.flavor) {
            // Others, who read it in other characters, may understand it.
            return Ok(Body::Unreadable);
        }
        let body = match &reply.error {
            Some(error) if error.code == codes::SP_DOES_NOT_EXIST => Body::Missing,
            Some(_) => Body::Unreadable,
            None => body_in(&reply, info.flavor, routine).unwrap_or(Body::Unreadable),
        };
        let now_ms = self.at.worker.clock.now_ms();
        self.at.worker.memory.borrow_mut().learn_body(&self.at.place(&info), routine, body.clone(), epoch, now_ms);
        Ok(body)
    }

    /// Reads the bodies of the routines that keep the backend, where nothing else does.
    pub(super) async fn read_stored_code(&mut self, analysis: &Analysis) {
        let Some(calls) = self.at.pins.only_stored_code().map(<[StoredCall]>::to_vec) else { return };
        self.forget_unhandled();
        let (mut fresh, defined) = (Vec::new(), self.at.pins.routines_defined());
        let verdict = loop {
            match self.judge(&calls, &fresh, defined) {
                Verdict::Unread(routine) if fresh.len() < MOST => match self.ask_for_body(&routine).await {
                    Ok(body) => fresh.push((routine, body)),
                    // The next statement finds the connection closed.
                    Err(_) => return,
                },
                verdict => break verdict,
            }
        };
        match verdict {
            Verdict::Known(left) => left.note(self.at, analysis),
            Verdict::Unread(_) => self.at.pin_unknown(false, analysis),
        }
        self.at.pins.stored_code_judged();
    }
}

impl ServerDoor<'_> {
    /// What these calls leave, by the bodies that were just read and those that are remembered. `defined` is how many definitions
    /// of routines there were before they ran.
    fn judge(&self, calls: &[StoredCall], fresh: &[(Routine, Body)], defined: u32) -> Verdict {
        let at = &*self.at;
        let Some(info) = at.backend.as_ref().map(|backend| Arc::clone(&backend.core.info)) else {
            return Verdict::Known(LeftByCode { state: true, ..LeftByCode::default() });
        };
        let (epoch, now_ms) = (at.worker.shared.ddl_epoch.load(Ordering::Acquire), at.worker.clock.now_ms());
        let max_age_ms = at.worker.snapshot().vars.prepared_metadata_max_age;
        let (memory, place) = (at.worker.memory.borrow(), at.place(&info));
        let mariadb = info.flavor == Flavor::MariaDb;
        let mut all = calls.to_vec();
        let (mut next, mut left) = (0, LeftByCode::default());
        while let Some(StoredCall { routine, may_be_missing, has_failed, is_bare }) = all.get(next).cloned() {
            next += 1;
            let just_read = fresh.iter().find(|(read, _)| *read == routine).map(|(_, body)| body);
            let Some(body) = just_read.or_else(|| memory.body(&place, &routine, epoch, now_ms, max_age_ms)) else {
                return Verdict::Unread(routine);
            };
            left.state |= at.worker.shared.routines_defined.may_have_changed(&routine, defined);
            match body {
                Body::Missing => left.state |= !may_be_missing,
                Body::Unreadable => left.state = true,
                Body::Read { leaves, role, has_more, defines, calls } => {
                    left.state |= *leaves || has_failed || is_bare && *has_more;
                    left.role |= *role;
                    left.defines |= *defines;
                    for called in calls.iter() {
                        // What its definer may run, its caller need not be allowed to see.
                        let may_be_missing = !called.is_procedure && sql::is_native(&called.name, mariadb);
                        let call = StoredCall { routine: called.clone(), may_be_missing, has_failed: false, is_bare };
                        let is_safe = [called.schema.as_deref(), None]
                            .into_iter()
                            .any(|schema| at.user.attributes.declares_safe(schema, &called.name));
                        if !is_safe && !all.contains(&call) {
                            all.push(call);
                        }
                    }
                }
            }
            if all.len() > MOST {
                left.state = true;
                break;
            }
        }
        Verdict::Known(left)
    }
}

#[cfg(test)]
#[path = "stored_tests.rs"]
mod stored_tests;
