//! What a session asks of the connection that it holds, if it holds one.

use crate::backends::backend::Backend;
use crate::workers::worker::Worker;
use model::fleet::SignalKind;
use session_state::facts::SessionFacts;
use session_state::held::Tracking;
use session_state::wants::Wants;
use std::sync::Arc;
use wire::flags::{Capabilities, StatusFlags};
use wire::packet::HEADER;
use wire::reframe::ReplyFacts;

/// See the module.
pub(super) trait Connection {
    /// Are the client's own tracking settings in force? Then the server reports less than it changes, or nothing.
    fn tells_by_clients_wish(&self) -> bool;
    /// Is its server cut off from its cluster?
    fn is_cut_off(&self) -> bool;
    /// The server's own autocommit.
    fn autocommit_default(&self) -> bool;
    /// Whether the proxy itself, or the client, has set this (or it decides nothing of what the proxy is told).
    fn is_our_tracking(&self, name: &str, value: &[u8]) -> bool;
    /// The collation that SET NAMES gives a character set, where neither names another and the session has not chosen its own.
    fn usual_collation(&self, wants: &Wants, charset: &str) -> Option<&'static str>;
    /// The server at hand, as it is remembered of a replica: its address, and what it calls itself.
    fn server_at_hand(&self) -> Option<(String, Box<str>)>;
    /// Whether the backend may hold what nobody knows of. The session has it to itself, for as long as nobody waits for its place.
    fn keeps_unseen(&self) -> bool;
    /// What was agreed upon with the server.
    fn caps(&self) -> Capabilities;
    /// The connection failed after the answer: the next statement finds out what that means.
    fn mark_broken(&mut self);
    /// The connection broke; or it was given up, which says nothing new of the server.
    fn tell_of_loss(&self, worker: &Worker);
    /// The time to finish on its server is over.
    fn must_leave(&self, now_ms: u64) -> bool;
    /// The reply that its input holds begins with this byte.
    fn begins_with(&self, byte: u8) -> bool;
    /// It ran the last statement of the session with this id.
    fn ran_for(&mut self, session: u64);
    /// Its server has answered the session with this id: what it knows of the session is of this statement.
    fn note_answered(&mut self, session: u64, facts: &mut SessionFacts, reply: &ReplyFacts);
    /// Whether it ran the last statement of the session with this id.
    fn ran_last_for(&self, session: u64) -> bool;
}

impl Connection for Option<Backend> {
    fn tells_by_clients_wish(&self) -> bool {
        self.as_ref().is_some_and(|b| b.core.held.tracking() == Tracking::Clients)
    }

    fn is_cut_off(&self) -> bool {
        self.as_ref().is_some_and(|b| b.core.server.standing.is_cut_off())
    }

    fn autocommit_default(&self) -> bool {
        self.as_ref().is_none_or(|b| b.core.info.status.contains(StatusFlags::AUTOCOMMIT))
    }

    fn is_our_tracking(&self, name: &str, value: &[u8]) -> bool {
        let Some(core) = self.as_ref().map(|backend| &backend.core).filter(|core| core.held.tracking() == Tracking::Ours) else {
            return true;
        };
        match name {
            "session_track_schema" | "session_track_state_change" => value.eq_ignore_ascii_case(b"ON") || value == b"1",
            "session_track_system_variables" => {
                let ours = core.info.tracking.get().map(|tracking| Arc::clone(&tracking.ours));
                let value = format!("'{}'", String::from_utf8_lossy(value));
                ours.is_none_or(|ours| ours.contains(&value))
            }
            _ => true,
        }
    }

    fn usual_collation(&self, wants: &Wants, charset: &str) -> Option<&'static str> {
        let is_chosen = wants.state.variables.get("character_set_collations").is_some();
        let default = self.as_ref()?.core.info.default_of(charset).filter(|_| !is_chosen)?;
        Some(default.name)
    }

    fn server_at_hand(&self) -> Option<(String, Box<str>)> {
        let core = self.as_ref().map(|backend| &backend.core)?;
        let address = format!("{}:{}", core.server.key.host, core.server.key.port);
        let identity = core.held.member().map(|member| &**member).unwrap_or(&address).into();
        Some((address, identity))
    }

    fn keeps_unseen(&self) -> bool {
        self.as_ref().is_some_and(|backend| backend.core.held.must_reset() && !backend.core.held.tracks())
    }

    fn caps(&self) -> Capabilities {
        self.as_ref().map(|backend| backend.core.caps).unwrap_or_default()
    }

    fn mark_broken(&mut self) {
        if let Some(backend) = self.as_mut() {
            backend.link.stream().shutdown();
        }
    }

    fn tell_of_loss(&self, worker: &Worker) {
        if let Some(backend) = self.as_ref().filter(|b| !b.core.server.is_cut() && !b.core.server.standing.is_cut_off()) {
            worker.shared.signal(&backend.core.server, SignalKind::ConnectionLost);
        }
    }

    fn must_leave(&self, now_ms: u64) -> bool {
        self.as_ref().is_some_and(|backend| backend.core.server.standing.leave_at_ms() <= now_ms)
    }

    fn begins_with(&self, byte: u8) -> bool {
        self.as_ref().is_some_and(|backend| backend.input.filled().get(HEADER) == Some(&byte))
    }

    fn ran_for(&mut self, session: u64) {
        if let Some(backend) = self.as_mut() {
            backend.core.held.ran_for(session);
        }
    }

    fn note_answered(&mut self, session: u64, facts: &mut SessionFacts, reply: &ReplyFacts) {
        facts.answered(reply);
        self.ran_for(session);
    }

    fn ran_last_for(&self, session: u64) -> bool {
        self.as_ref().is_some_and(|backend| backend.core.held.ran_last_for(session))
    }
}
