//! Leaving a server that is not to be used any more: moving silently where nothing is lost, finishing where something
//! is, and a clear error when the time for that is over.
//!
//! What pins a session decides. State that is carried, and pins that are only an operator's wish, move at the next
//! statement. A transaction that wrote and can be said again moves as soon as another server has the role. Any other may
//! finish for `demotion_grace_ms`; then it is rolled back by closing the connection, the client is told once, and the session
//! goes on elsewhere. Other state is lost with the server, and ends the session. On a server that drains transactions may finish,
//! and other state has `drain_grace_ms`.
//! A statement that runs alone may end by itself, if it runs (see the module `overdue`), but not on a server that is cut off: there it may wait for ever, so it is
//! given up when the time is over, which is told as for a server that was killed, or repeated if it only reads.
//! INVARIANT: a statement that is not part of anything begun before never goes to a server that is out of use.

use super::backends::Backends;
use super::connection::Connection;
use super::door::ServerDoor;
use super::end::End;
use super::fault::{Certainty, Fault};
use super::frontend::Frontend;
use super::hand::AtHand;
use super::recovery::Recovery;
use crate::backends::backend::Backend;
use crate::backends::side_connection::{self, KilledBy};
use crate::clients::session_handle::Leaving;
use crate::hostgroups::choice::Needs;
use crate::workers::counters::count;
use crate::workers::safety::Safety;
use session_state::facts::SessionFacts;
use session_state::pins::{PinReason, TRANSACTION, WISHES};
use sql::Analysis;
use std::io;
use wire::codes;
use wire::flags::StatusFlags;

/// How long a server that is to be left may take to answer a statement that was killed, ms. It is shorter than for other
/// kills: the session goes on elsewhere.
const GIVE_UP_AFTER_MS: u64 = 2000;

/// What becomes of the backend at hand when a statement begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackendAtStart {
    /// The statement runs on it.
    AtHand,
    /// There is none, or it was given up: any will do.
    None,
    /// It is gone, and what was open on it is opened again on another.
    Moves,
}

/// What to do with a statement that has not ended when the time to finish on its server is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    /// Its answer is passing already: it may finish.
    Finishes,
    /// What is lost with the backend can be said again on another one.
    Moves,
    /// It is waited for, unless its server is cut off.
    MayNeverEnd,
}

impl Frontend {
    /// The server answered with an error that may say something of the server.
    pub(super) fn tell_of_error(&self, at: &Backends, code: u16, message: &[u8]) {
        if let Some(backend) = &at.backend {
            let read_only = self.status.contains(StatusFlags::IN_TRANS_READONLY);
            at.worker.shared.server_erred(&backend.core.server, code, message, read_only);
        }
    }
}

impl Recovery {
    /// Whether the next statement, which needs this, runs on the backend at hand.
    pub(super) fn keeps_backend(&mut self, door: &mut ServerDoor<'_>, needs: Needs) -> Result<BackendAtStart, Fault> {
        let pins = door.at.pins.set();
        let is_free = pins.without(WISHES).is_empty();
        let moves = !is_free && self.is_movable(door.at, door.facts);
        let is_only_opened = moves && self.is_only_opened();
        let is_overtaken = moves && self.is_overtaken(door.at);
        let finds_another = door.at.finds_another(needs);
        let at = &mut *door.at;
        let Some(backend) = at.backend.as_mut() else {
            // Its server is gone, and with it what pinned the session there.
            let is_bare = is_free || pins.contains(PinReason::Replication);
            if moves && self.is_stranded() {
                self.replay_is_due(door.0.at, door.0.facts);
            }
            if is_bare && !pins.is_empty() {
                door.facts.lose_backend();
            }
            return match (is_bare, moves) {
                (true, _) => Ok(BackendAtStart::None),
                (false, true) => Ok(BackendAtStart::Moves),
                (false, false) => Err(self.server_left(door)),
            };
        };
        if finds_another {
            at.give_up_backend();
            if !pins.is_empty() {
                door.facts.lose_backend();
            }
            return Ok(BackendAtStart::None);
        }
        let server = &backend.core.server;
        let now_ms = at.worker.clock.now_ms();
        if moves
            && (server.is_cut()
                || server.standing.leave_at_ms() <= now_ms
                || is_overtaken
                || !server.standing.is_usable(now_ms) && is_only_opened)
        {
            at.leave_transaction();
            self.replay_is_due(door.0.at, door.0.facts);
            return Ok(BackendAtStart::Moves);
        }
        if let Some(why) = server.standing.why_cut() {
            return Err(at.pinned_backend_lost(why));
        }
        if server.standing.leave_at_ms_with(pins) <= now_ms {
            return Err(self.server_left(door));
        }
        if backend.link.is_silent() {
            return Ok(BackendAtStart::AtHand);
        }
        let lost = at.pinned_backend_lost("the server closed the connection");
        if !moves {
            return Err(lost);
        }
        self.replay_is_due(door.0.at, door.0.facts);
        Ok(BackendAtStart::Moves)
    }

    /// The last look before a statement goes out: may it begin on the backend at hand? If not, the backend is closed: it is
    /// noted to have what was to go ahead of the statement, which was never sent.
    pub(super) fn may_begin(&mut self, at: &mut Backends, facts: &mut SessionFacts) -> bool {
        let Some(backend) = at.backend.as_ref() else { return true };
        if backend.core.server.standing.is_usable(at.worker.clock.now_ms()) || Safety::LastLook.is_off() {
            return true;
        }
        if at.pins.set().without(WISHES).is_empty() {
            if !at.pins.set().is_empty() {
                facts.lose_backend();
            }
            at.backend = None;
            return false;
        }
        // A transaction that was only opened is as good as none.
        let begins = self.is_movable(at, facts) && self.is_only_opened();
        if begins {
            at.leave_transaction();
        }
        !begins
    }

    /// What to do with a statement if the time is over before its answer is here.
    pub(super) fn when_overdue(&self, at: &Backends, client: &Frontend, facts: &SessionFacts, began: bool, analysis: &Analysis) -> Overdue {
        match began {
            true => Overdue::Finishes,
            false if self.reply_hasher.is_some() && self.is_undone_with_backend(at, client, facts, analysis) => Overdue::Moves,
            false => Overdue::MayNeverEnd,
        }
    }

    /// The session had to leave its server: what it had there is gone.
    fn server_left(&mut self, door: &mut ServerDoor<'_>) -> Fault {
        let pins = door.at.pins.set();
        door.at.backend = None;
        let rest = pins.without(TRANSACTION).without(WISHES);
        if !rest.is_empty() {
            let text = format!(
                "Lost connection to server during query: the server no longer serves hostgroup {} (the session was pinned: {pins})",
                door.at.pool.shared.id
            );
            return Fault::End(End::BackendLost(text));
        }
        let failed = self.transcript.as_mut().and_then(|transcript| transcript.failed.take());
        self.forget_transaction(door);
        count(&door.at.worker.counters.transactions_left);
        let id = door.at.pool.shared.id;
        let text = match failed.as_deref() {
            Some(why) => format!("The server of hostgroup {id} was lost, and the transaction was rolled back: {why}"),
            None => format!(
                "The server no longer serves hostgroup {id} and demotion_grace_ms is over: the transaction was rolled back and can be \
                 run again"
            ),
        };
        Fault::error(codes::SERVER_LEFT, b"HY000", text)
    }

    /// The server lost its role before the transaction was committed, and it cannot be said again: it is rolled back there.
    pub(super) fn commit_refused_for_good(&mut self, door: &mut ServerDoor<'_>, error: &str) -> Fault {
        door.at.backend = None;
        door.facts.insert_id.lose_backend();
        self.forget_transaction(door);
        count(&door.at.worker.counters.replays_failed);
        let text = format!(
            "The server no longer serves hostgroup {}. The transaction was rolled back, and the proxy cannot replay it ({error})",
            door.at.pool.shared.id
        );
        Fault::error(codes::SERVER_LEFT, b"HY000", text)
    }
}

impl AtHand {
    /// The time to finish on its server is over while its statement runs: the statement is ended by the server, which
    /// says what became of it, if it does so in time. A statement of its own, outside of anything, may end by itself, as long as
    /// it runs.
    pub(super) fn hurry_up(&mut self, at: &mut Backends) -> Result<(), Fault> {
        let is_free = at.pins.set().without(WISHES).is_empty();
        let now_ms = at.worker.shared.clock.now_ms();
        let Some(backend) = at.backend.as_mut() else { return Ok(()) };
        // `killed` says this of an earlier statement, too.
        let is_killed = backend.core.kill.is_some();
        if is_killed || backend.core.server.standing.leave_at_ms() > now_ms {
            return Ok(());
        }
        if is_free {
            return self.watch_overdue(at, now_ms);
        }
        backend.core.killed = true;
        side_connection::kill_statement(&at.worker, &at.pool, backend, KilledBy::Proxy);
        at.handle.give_up_at(now_ms + GIVE_UP_AFTER_MS);
        Ok(())
    }
}

impl Overdue {
    /// Gives the statement at hand up with its backend, if it is time to. Whether it was applied is not known: a server that is cut off
    /// may be joined again and go on, and what it sent last may have been heard.
    pub(super) fn give_up_if_due(self, at: &mut Backends) -> Option<Fault> {
        let is_cut_off = at.backend.is_cut_off();
        let may_wait = match self {
            Self::Finishes => true,
            Self::Moves => false,
            Self::MayNeverEnd => !is_cut_off,
        };
        if may_wait || !at.backend.must_leave(at.worker.shared.clock.now_ms()) {
            return None;
        }
        let why = if is_cut_off {
            "the server is cut off from its cluster and did not answer within demotion_grace_ms"
        } else {
            "the proxy stopped using the server"
        };
        Some(at.lost(&io::Error::other(why), Certainty::Unknown))
    }
}

impl Backends {
    /// Whether the next statement, which needs this, runs on another backend: nothing but wishes keeps this one, and it is not to be
    /// used any more, or is gone.
    pub(super) fn finds_another(&self, needs: Needs) -> bool {
        let now_ms = self.worker.clock.now_ms();
        let is_unfit = |backend: &Backend| {
            let server = &backend.core.server;
            self.pool.shared.is_held() || !server.takes_work(now_ms) || backend.core.is_astray() || !needs.accept(server)
        };
        self.pins.set().without(WISHES).is_empty() && self.backend.as_ref().is_none_or(is_unfit)
    }

    /// The client is silent, and the server is not to be used any more (or the hostgroup is held): what is open there is
    /// closed, which rolls back and frees its locks; the client is told at its next statement. Where nothing is open, the
    /// backend goes back.
    pub(super) fn leave_idle(&mut self) {
        let now_ms = self.worker.shared.clock.now_ms();
        self.handle.may_stay();
        if let Some(places) = &mut self.places {
            places.look_after(&self.handle, now_ms);
        }
        let Some(backend) = &self.backend else { return };
        let server = &backend.core.server;
        let pins = self.pins.set();
        if pins.without(WISHES).is_empty() && (self.pool.shared.is_held() || !server.keeps_idle()) {
            self.give_up_backend();
            return self.handle.row.held.set(None);
        }
        if server.is_cut() {
            // The next statement finds it closed, as if the server had done it.
            backend.link.stream().shutdown();
        } else if server.standing.leave_at_ms_with(pins) <= now_ms {
            self.backend = None;
            self.handle.row.held.set(None);
        } else {
            let at_ms = server.standing.disturb_at_ms(pins, now_ms).min(self.handle.leave_at_ms());
            self.handle.leave_by(at_ms, Leaving::Demoted, now_ms);
        }
    }
}

#[cfg(test)]
#[path = "leave_tests.rs"]
mod tests;
