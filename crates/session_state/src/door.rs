//! The door through which the proxy asks the server of a session: [`Asker::ask`].
//!
//! [`Door`] is what this needs of the place where a session works. The crate `proxy` has it with sockets, tests have a table of
//! answers. INVARIANT: what a question [clobbers](Question::clobbers) and only the server knows is read before the question is asked.
//! No caller can forget it: [`Door::exchange`] takes [`Rescued`] questions, and only an [`Asker`] makes those.

use crate::collected::Collected;
use crate::facts::{SessionFacts, Unread};
use crate::held::Held;
use crate::pins::{PinReason, Pins};
use crate::question::{KeptFact, Question, numbers_in};
use crate::server_info::ServerInfo;
use std::io;
use wire::charset::Flavor;
use wire::flags::{Capabilities, StatusFlags};

/// Questions that may be asked: nothing that they clobber is lost.
pub struct Rescued<'a>(&'a [Question<'a>]);

impl<'a> Rescued<'a> {
    /// The questions, in the order of their replies.
    pub fn questions(&self) -> &'a [Question<'a>] {
        self.0
    }
}

/// Where a session works: the connection that it holds, if it holds one, and what keeps it there.
#[expect(async_fn_in_trait, reason = "sessions stay on their thread, so that no future has to be Send")]
pub trait Door {
    /// Sends questions together to the server at hand, and returns the reply to each.
    ///
    /// # Errors
    /// There is no backend, or its connection is of no use any more, which is noted. What the server refuses is an answer.
    async fn exchange(&mut self, questions: Rescued<'_>) -> io::Result<Vec<Collected>>;

    /// What the connection at hand has of the session; None without one.
    fn held(&self) -> Option<&Held>;

    /// The same, to note what happened there.
    fn held_mut(&mut self) -> Option<&mut Held>;

    /// What the server at hand says of itself.
    fn info(&self) -> Option<&ServerInfo>;

    /// What was agreed upon with the server at hand.
    fn caps(&self) -> Capabilities;

    /// Whether the connection at hand ran the last statement of this session.
    fn ran_last(&self) -> bool;

    /// What keeps the session on the connection at hand.
    fn pins_mut(&mut self) -> &mut Pins;

    /// The worker's clock, ms.
    fn now_ms(&self) -> u64;

    /// Whether the session keeps warnings of a backend that it gives back (`handle_warnings`).
    fn handles_warnings(&self) -> bool;

    /// The connection at hand is closed.
    fn close_backend(&mut self);

    /// The session's own `wait_timeout`, ms; 0 for none.
    fn set_idle_limit(&mut self, ms: u64);

    /// Whether the server at hand is one of these.
    #[inline]
    fn is_on(&self, flavor: Flavor) -> bool {
        self.info().is_some_and(|info| info.flavor == flavor)
    }

    /// Whether the server at hand reports nothing of what statements change.
    #[inline]
    fn tracks_nothing(&self) -> bool {
        self.held().is_some_and(|held| !held.tracks())
    }
}

/// Asks the server at hand. It has what a question may change: where the session works, what it knows of its last statement, and the
/// status that its client sees.
pub struct Asker<'a, D> {
    /// Where the session works.
    pub at: &'a mut D,
    /// What it knows of its last statement.
    pub facts: &'a mut SessionFacts,
    /// Status flags as its client saw them last.
    pub status: &'a mut StatusFlags,
}

impl<D: Door> Asker<'_, D> {
    /// Asks the server at hand.
    ///
    /// # Errors
    /// As for [`Door::exchange`].
    pub async fn ask(&mut self, question: Question<'_>) -> io::Result<Collected> {
        let mut replies = self.ask_all(&[question]).await?;
        replies.pop().ok_or_else(|| io::Error::other("no reply"))
    }

    /// Asks several questions in one round trip. Returns the reply to each.
    ///
    /// # Errors
    /// As for [`Door::exchange`].
    pub async fn ask_all(&mut self, questions: &[Question<'_>]) -> io::Result<Vec<Collected>> {
        self.will_ask(questions).await?;
        self.at.exchange(Rescued(questions)).await
    }

    /// Reads what these questions clobber, where only the server at hand knows it. For questions that are asked otherwise than by
    /// [`Self::ask`], or when facts are needed before they are asked.
    ///
    /// # Errors
    /// As for [`Door::exchange`].
    pub async fn will_ask(&mut self, questions: &[Question<'_>]) -> io::Result<()> {
        let clobbers = |fact| questions.iter().any(|question| question.clobbers().contains(&fact));
        let unread = self.facts.unread();
        let clobbered = Unread {
            warnings: unread.warnings && clobbers(KeptFact::Warnings),
            last_insert_id: unread.last_insert_id && clobbers(KeptFact::InsertId),
            found_rows: unread.found_rows && clobbers(KeptFact::FoundRows),
        };
        // A backend that ran nothing of the session knows nothing of its last statement.
        if clobbered.any() && self.at.ran_last() {
            Box::pin(self.read(clobbered)).await?;
        }
        if clobbers(KeptFact::RowCount) {
            self.facts.lose_row_count();
        }
        Ok(())
    }

    /// Reads facts of the session's last statement in one round trip; the client has its answer already.
    ///
    /// # Errors
    /// As for [`Door::exchange`]. Without a backend nothing is read.
    pub async fn read(&mut self, wanted: Unread) -> io::Result<()> {
        if self.at.held().is_none() || !wanted.any() {
            return Ok(());
        }
        // One of the two questions clobbers what the other one reads. MySQL even leaves a warning of its own, of FOUND_ROWS(), which
        // the client would be shown on a connection that it keeps.
        let asks = wanted.last_insert_id || wanted.found_rows;
        let unread = self.facts.unread();
        let shows = !self.at.pins_mut().set().is_empty() && !self.facts.knows_warnings();
        let warnings = wanted.warnings || asks && (unread.warnings || shows);
        let all = [warnings.then_some(Question::Warnings), asks.then_some(Question::InsertIdAndFoundRows)];
        let questions: Vec<Question<'_>> = all.into_iter().flatten().collect();
        self.facts.lose_row_count();
        let mut replies = self.at.exchange(Rescued(&questions)).await?;
        let status = replies.last().map(|reply| reply.ok.status).unwrap_or_default();
        if asks && let Some(reply) = replies.pop() {
            let [id, found_rows] = reply.rows.first().map_or([None; 2], |row| numbers_in(row));
            if let Some(found_rows) = found_rows.filter(|_| wanted.found_rows || unread.found_rows) {
                self.facts.learn_found_rows(found_rows);
            }
            if let Some(id) = id.filter(|_| wanted.last_insert_id) {
                let had = self.at.held_mut().and_then(|held| held.has_insert_id(id));
                self.facts.insert_id.read(id, had);
            }
        }
        if warnings && let Some(reply) = replies.pop() {
            self.facts.read_warnings(reply, self.at.caps());
        }
        self.note_open(status);
        Ok(())
    }

    /// An error does not say whether it left a transaction open (autocommit=0); the reply to a question does.
    fn note_open(&mut self, status: StatusFlags) {
        let open = StatusFlags::IN_TRANS | StatusFlags::IN_TRANS_READONLY;
        *self.status = (*self.status & !open) | (status & open);
        if status.contains(StatusFlags::IN_TRANS) {
            let now_ms = self.at.now_ms();
            self.at.pins_mut().begin(PinReason::Transaction, now_ms, 0);
        }
    }

    /// Reads what is unread, as far as it is wanted. False when the connection failed: nothing is lost but the warnings, and the
    /// best word on the id is the reply's.
    pub async fn read_or_lose(&mut self) -> bool {
        self.forget_unhandled();
        let unread = self.facts.unread();
        if !unread.any() || self.read(unread).await.is_ok() {
            return true;
        }
        self.facts.lose_backend();
        self.at.close_backend();
        false
    }

    /// With `handle_warnings=0` a session that gives its backend back forgets its warnings, and a round trip is saved.
    pub fn forget_unhandled(&mut self) {
        if self.facts.unread().warnings && !self.at.handles_warnings() {
            self.facts.forget_warnings();
        }
    }
}

#[cfg(test)]
#[path = "door_tests.rs"]
mod tests;
