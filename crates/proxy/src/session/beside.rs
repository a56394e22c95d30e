//! What is beside a session: copies of its statements for a mirror, its shadow in a rehearsal, its capture, its copy in a rehearsal in mode
//! `all`. Shadow, capture and copy hear replies through one listener. `listening.rs` lists the moments at which they hear of a command.

use super::captured::SessionCapture;
use super::copied::SessionCopy;
use super::rehearsed::Rehearsed;
use crate::mirror::{Ear, Strand};
use crate::shadow::Listener;
use crate::workers::clock::Clock;
use rehearsal::{Answer, Form};
use std::rc::Rc;
use wire::flags::Capabilities;

/// See the module. Boxed in the session: most have none of it.
#[derive(Default)]
pub(super) struct Beside {
    /// The copies of its statements, once there was one.
    pub strand: Option<Rc<Strand>>,
    /// What it has to do with rehearsals.
    pub rehearsed: Rehearsed,
    /// What it has to do with captures.
    pub captured: SessionCapture,
    /// What it has to do with rehearsals in mode `all`.
    pub copied: SessionCopy,
    /// Hears the reply at hand, if a rehearsal or a capture wants it.
    listener: Option<Listener>,
    /// What it heard, and how long the server took, us.
    heard: Option<(Answer, u64)>,
    /// When the statement at hand was sent: process clock, us.
    sent_us: Option<u64>,
}

impl Beside {
    /// A statement is about to run, whose reply is heard if its rows come in a `form`, with and without these columns.
    pub(super) fn listen_for(&mut self, form: Option<Form>, left_out: Vec<Box<str>>, clock: Clock) {
        self.listener = form.map(|form| Listener::new(form, clock, left_out));
        (self.heard, self.sent_us) = (None, None);
    }

    /// The reply to the statement at hand begins, on a connection with these capabilities.
    pub(super) fn reply_begins(&mut self, caps: Capabilities) {
        if let Some(listener) = self.listener.as_mut() {
            listener.begins(caps);
        }
    }

    /// As [`Self::reply_begins`], for a statement that was sent at this time (process clock, us) and answered since.
    pub(super) fn reply_began(&mut self, caps: Capabilities, sent_us: u64) {
        if let Some(listener) = self.listener.as_mut() {
            listener.begins_at(caps, sent_us);
        }
    }

    /// A statement of the proxy's own is about to run: what was heard so far, for [`Self::put_back`].
    pub(super) fn set_aside(&mut self) -> Option<Listener> {
        let fresh = self.listener.as_ref().map(Listener::anew);
        std::mem::replace(&mut self.listener, fresh)
    }

    /// The client gets the answer to its statement, not that to the proxy's own.
    pub(super) fn put_back(&mut self, listener: Option<Listener>) {
        self.listener = listener;
    }

    /// The next bytes of the reply at hand, as the server sent them; true if they are the last ones.
    pub(super) fn hears(&mut self, bytes: &[u8]) -> bool {
        let Some(listener) = self.listener.as_mut() else { return false };
        listener.hears(bytes);
        let is_done = listener.is_done();
        if is_done {
            self.captured.reply_ends();
            self.copied.reply_ends(listener.error());
        }
        is_done
    }

    /// What was answered, and how long the server took, us; None if the reply did not come whole.
    pub(super) fn answer(&mut self) -> Option<&(Answer, u64)> {
        if let Some(listener) = self.listener.take() {
            self.sent_us = listener.sent_us();
            self.heard = listener.finish();
        }
        self.heard.as_ref()
    }

    /// When the statement that was answered was sent: process clock, us.
    pub(super) fn sent_us(&self) -> Option<u64> {
        self.sent_us
    }
}
