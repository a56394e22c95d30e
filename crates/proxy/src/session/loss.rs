//! A connection to a server is lost, or of no use any more: whether what runs on it is ended, and what that means for the session.

use super::backends::Backends;
use super::connection::Connection;
use super::fault::{Certainty, Fault};
use crate::backends::backend::Backend;
use crate::backends::cleaning;
use crate::backends::side_connection::{Loss, end_lost_connection};
use session_state::pins::WISHES;
use std::io;
use std::rc::Rc;
use wire::flags::StatusFlags;

/// How a connection fails that was closed from without.
pub(super) const CLOSED: [io::ErrorKind; 6] = [
    io::ErrorKind::UnexpectedEof,
    io::ErrorKind::ConnectionReset,
    io::ErrorKind::ConnectionAborted,
    io::ErrorKind::BrokenPipe,
    io::ErrorKind::NotConnected,
    io::ErrorKind::WriteZero,
];

/// Whether a connection failed so because it was closed from without.
pub(super) fn was_closed(e: &io::Error) -> bool {
    e.raw_os_error().is_some() || CLOSED.contains(&e.kind())
}

/// The connection of what runs failed so, or is given up: while the statement runs on the server, its transaction keeps its locks, and
/// what is replayed would wait for them.
fn loss_by(e: &io::Error) -> Loss {
    if was_closed(e) { Loss::Closed } else { Loss::GivenUp }
}

impl Backends {
    /// The backend is gone, and with it what pinned the session to it.
    pub(super) fn pinned_backend_lost(&mut self, why: &str) -> Fault {
        self.backend.tell_of_loss(&self.worker);
        let core = self.backend.as_ref().map(|backend| &backend.core);
        let is_open = core.is_some_and(|core| core.has_assigned_gtid || core.held.status().contains(StatusFlags::IN_TRANS));
        // What its server keeps for as long as it keeps the connection.
        if is_open || self.replaying.is_some() || !self.pins.set().without(WISHES).is_empty() {
            self.end_lost(Loss::Closed);
        }
        let lost = self.backend.take();
        let text = lost.map_or_else(|| why.to_owned(), |backend| format!("{}: {why}", backend.core.server.key.addr()));
        Fault::Lost { certainty: Certainty::NeverSent, text, pins: self.pins.set() }
    }

    /// What runs or is open on the backend at hand is ended by its server, unless that is taken for dead.
    pub(super) fn end_lost(&mut self, loss: Loss) {
        if let Some(backend) = self.backend.take_if(|backend| !backend.core.server.is_severed()) {
            tokio::task::spawn_local(end_lost_connection(Rc::clone(&self.worker), Rc::clone(&self.pool), backend, loss));
        }
    }

    /// The backend at hand is of no use any more. A command whose answer is outstanding may run on, and wait for a lock: it is
    /// ended.
    pub(super) fn discard_backend(&mut self) {
        if self.backend.as_ref().is_some_and(Backend::is_owed) {
            self.end_lost(Loss::Closed);
        }
        self.backend = None;
    }

    pub(super) fn lost(&mut self, e: &io::Error, certainty: Certainty) -> Fault {
        if certainty == Certainty::Unknown {
            self.backend.tell_of_loss(&self.worker);
            self.end_lost(loss_by(e));
        }
        match self.pinned_backend_lost(&e.to_string()) {
            Fault::Lost { text, pins, .. } => Fault::Lost { certainty, text, pins },
            other => other,
        }
    }

    /// The connection failed before the statement was sent.
    pub(super) fn lost_before(&mut self, e: &std::io::Error) -> Fault {
        if self.backend.as_ref().is_some_and(Backend::is_owed) && !was_closed(e) {
            // What went before may run on.
            self.backend.tell_of_loss(&self.worker);
            self.end_lost(loss_by(e));
        }
        match self.pinned_backend_lost(&e.to_string()) {
            Fault::Lost { text, pins, .. } => Fault::Lost { certainty: Certainty::NeverSent, text, pins },
            other => other,
        }
    }

    /// Rolls back what is open on the backend at hand, which then serves others if its server is used.
    pub(super) fn leave_transaction(&mut self) {
        let Some(backend) = self.backend.take() else { return };
        let (worker, pool, pins) = (Rc::clone(&self.worker), Rc::clone(&self.pool), self.pins.set());
        tokio::task::spawn_local(cleaning::abandon(worker, pool, backend, pins, false));
    }
}
