//! Hears a reply, of the original or of the shadow: its answer, and when it was complete.

use crate::mirror::Ear;
use crate::workers::clock::Clock;
use rehearsal::{Answer, AnswerReader, Form};
use wire::flags::Capabilities;

/// See the module.
pub(crate) struct Listener {
    form: Form,
    clock: Clock,
    /// Columns whose values are left out.
    left_out: Vec<Box<str>>,
    reader: Option<AnswerReader>,
    began_us: u64,
    ended_us: u64,
}

impl Listener {
    /// Hears nothing yet. Times are of `clock`.
    pub(crate) fn new(form: Form, clock: Clock, left_out: Vec<Box<str>>) -> Self {
        Self { form, clock, left_out, reader: None, began_us: 0, ended_us: 0 }
    }

    /// One that hears as this one does, and has heard nothing yet.
    pub(crate) fn anew(&self) -> Self {
        Self::new(self.form, self.clock, self.left_out.clone())
    }

    /// A reply begins, to a statement that was sent at this time, us. A statement that is sent again begins anew.
    pub(crate) fn begins_at(&mut self, caps: Capabilities, sent_us: u64) {
        self.reader = Some(AnswerReader::new(self.form, caps).leaving_out(&self.left_out));
        self.began_us = sent_us;
    }

    /// The reply is complete.
    pub(crate) fn is_done(&self) -> bool {
        self.reader.as_ref().is_some_and(AnswerReader::is_done)
    }

    /// The error that was heard so far.
    pub(crate) fn error(&self) -> Option<u16> {
        self.reader.as_ref().and_then(AnswerReader::error)
    }

    /// When the statement was sent: process clock, us. None: it was not.
    pub(crate) fn sent_us(&self) -> Option<u64> {
        self.reader.as_ref().map(|_| self.began_us)
    }

    /// The answer, and how long it took from the first byte that was awaited to the last one that came, us. None: the reply is not
    /// complete, or could not be read.
    pub(crate) fn finish(self) -> Option<(Answer, u64)> {
        let answer = self.reader?.finish()?;
        Some((answer, self.ended_us.saturating_sub(self.began_us)))
    }
}

impl Ear for Listener {
    fn begins(&mut self, caps: Capabilities) {
        self.begins_at(caps, self.clock.now_us());
    }

    fn hears(&mut self, bytes: &[u8]) {
        let Some(reader) = self.reader.as_mut().filter(|reader| !reader.is_done()) else { return };
        reader.feed(bytes);
        if reader.is_done() {
            self.ended_us = self.clock.now_us();
        }
    }
}
