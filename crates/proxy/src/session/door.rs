//! The door through which the proxy asks the server of a session: [`Door::ask`].
//!
//! INVARIANT: the door first reads what a question [clobbers](Question::clobbers) and only the server knows, so that no caller has to.
//! It also notes what an answer leaves on the connection.

use super::Session;
use super::backends::Backends;
use super::connection::Connection;
use super::guard::{guarded, unless_killed};
use crate::backends::backend::{Backend, put_command, put_query};
use crate::net::buffer::BufferPool;
use session_state::collected::Collected;
use session_state::facts::{SessionFacts, Unread};
use session_state::pins::PinReason;
use session_state::question::{KeptFact, Question, numbers_in};
use session_state::state::Text;
use std::io;
use std::time::Duration;
use wire::command::Command;
use wire::flags::{Capabilities, StatusFlags};

/// Appends the command that asks this.
fn put(question: &Question<'_>, out: &mut Vec<u8>, caps: Capabilities) {
    match question {
        Question::Status => put_command(out, Command::Ping, &[]),
        Question::Enter(schema) => put_command(out, Command::InitDb, schema),
        _ => put_query(out, question.text().as_bytes(), caps),
    }
}

/// Sends questions together, and reads the reply to each. What they clobber is lost: a session asks by its [`Door`].
///
/// # Errors
/// The connection is of no use any more. What the server refuses is an answer.
pub(super) async fn exchange(backend: &mut Backend, questions: &[Question<'_>], pool: &BufferPool) -> io::Result<Vec<Collected>> {
    let mut out = Vec::with_capacity(128);
    questions.iter().for_each(|question| put(question, &mut out, backend.core.caps));
    backend.start_exchange()?;
    backend.link.write_all(&out).await?;
    let mut replies = Vec::with_capacity(questions.len());
    for question in questions {
        let reply = backend.collect(question.reply_kind(), question.needs_packets(), pool).await?;
        backend.core.asked(&reply);
        replies.push(reply);
    }
    Ok(replies)
}

/// Where the proxy asks the server at hand. It has what a question may change: where the session works, what it knows of its last
/// statement, and the status that its client sees.
pub(super) struct Door<'a> {
    /// Where the session works.
    pub at: &'a mut Backends,
    /// What it knows of its last statement.
    pub facts: &'a mut SessionFacts,
    pub status: &'a mut StatusFlags,
}

/// The door of a session, or of its [`Effects`](super::effects::Effects), beside the other parts: a method would borrow those too.
macro_rules! door {
    ($session:expr) => {
        $crate::session::question::Door { at: &mut $session.at, facts: &mut $session.facts, status: &mut $session.client.status }
    };
}
pub(super) use door;

impl Door<'_> {
    /// Asks the server at hand, within the limit of [`guarded`].
    ///
    /// # Errors
    /// There is no backend, or its connection is of no use any more. What the server refuses is an answer.
    pub(super) async fn ask(&mut self, question: Question<'_>) -> io::Result<Collected> {
        let mut replies = self.ask_all(&[question]).await?;
        replies.pop().ok_or_else(|| io::Error::other("no reply"))
    }

    /// Asks several questions in one round trip. Returns the reply to each.
    ///
    /// # Errors
    /// As for [`Door::ask`].
    pub(super) async fn ask_all(&mut self, questions: &[Question<'_>]) -> io::Result<Vec<Collected>> {
        self.will_ask(questions).await?;
        let Backends { backend, worker, handle, .. } = &mut *self.at;
        let Some(backend) = backend.as_mut() else { return Err(io::Error::other("no backend")) };
        let replies = guarded(worker, handle, exchange(backend, questions, &worker.buffers)).await;
        if replies.is_err() {
            self.at.backend.mark_broken();
        }
        replies
    }

    /// Waits for GTIDs, as long as `limit` and the client let it.
    ///
    /// # Errors
    /// As for [`Door::ask`], and when the time is over.
    pub(super) async fn wait(&mut self, question: &str, limit: Duration) -> io::Result<Collected> {
        let questions = [Question::Wait(question)];
        self.will_ask(&questions).await?;
        let Backends { backend, worker, handle, .. } = &mut *self.at;
        let Some(backend) = backend.as_mut() else { return Err(io::Error::other("no backend")) };
        let in_time = async {
            let replies = tokio::time::timeout(limit, exchange(backend, &questions, &worker.buffers)).await;
            replies.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "the server did not report its GTID in time")))
        };
        let mut replies = unless_killed(handle, in_time).await?;
        replies.pop().ok_or_else(|| io::Error::other("no reply"))
    }

    /// Enters a schema.
    ///
    /// # Errors
    /// As for [`Door::ask`].
    pub(super) async fn enter(&mut self, schema: &Text) -> io::Result<Collected> {
        self.will_ask(&[Question::Enter(schema)]).await?;
        let Backends { backend, worker, handle, .. } = &mut *self.at;
        let Some(backend) = backend.as_mut() else { return Err(io::Error::other("no backend")) };
        guarded(worker, handle, backend.init_db(schema, &worker.buffers)).await
    }

    /// Reads what these questions clobber, where only the server at hand knows it. For questions that are asked otherwise than by
    /// [`Door::ask`], or when facts are needed before they are asked.
    ///
    /// # Errors
    /// As for [`Door::ask`].
    pub(super) async fn will_ask(&mut self, questions: &[Question<'_>]) -> io::Result<()> {
        let clobbers = |fact| questions.iter().any(|question| question.clobbers().contains(&fact));
        let unread = self.facts.unread();
        let clobbered = Unread {
            warnings: unread.warnings && clobbers(KeptFact::Warnings),
            last_insert_id: unread.last_insert_id && clobbers(KeptFact::InsertId),
            found_rows: unread.found_rows && clobbers(KeptFact::FoundRows),
        };
        // A backend that ran nothing of the session knows nothing of its last statement.
        if clobbered.any() && self.at.backend.ran_last_for(self.at.handle.id) {
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
    /// As for [`Door::ask`]. Without a backend nothing is read.
    pub(super) async fn read(&mut self, wanted: Unread) -> io::Result<()> {
        let Backends { backend, worker, handle, pins, .. } = &mut *self.at;
        let (Some(backend), true) = (backend.as_mut(), wanted.any()) else { return Ok(()) };
        // One of the two questions clobbers what the other one reads. MySQL even leaves a warning of its own, of FOUND_ROWS(), which
        // the client would be shown on a connection that it keeps.
        let asks = wanted.last_insert_id || wanted.found_rows;
        let unread = self.facts.unread();
        let shows = !pins.set().is_empty() && !self.facts.knows_warnings();
        let warnings = wanted.warnings || asks && (unread.warnings || shows);
        let all = [warnings.then_some(Question::Warnings), asks.then_some(Question::InsertIdAndFoundRows)];
        let questions: Vec<Question<'_>> = all.into_iter().flatten().collect();
        self.facts.lose_row_count();
        let replies = guarded(worker, handle, exchange(backend, &questions, &worker.buffers)).await;
        let Ok(mut replies) = replies else {
            self.at.backend.mark_broken();
            return replies.map(drop);
        };
        let status = replies.last().map(|reply| reply.ok.status).unwrap_or_default();
        if asks && let Some(reply) = replies.pop() {
            let [id, found_rows] = reply.rows.first().map_or([None; 2], |row| numbers_in(row));
            if let Some(found_rows) = found_rows.filter(|_| wanted.found_rows || unread.found_rows) {
                self.facts.learn_found_rows(found_rows);
            }
            if let Some(id) = id.filter(|_| wanted.last_insert_id) {
                self.facts.insert_id.read(id, backend.core.held.has_insert_id(id));
            }
        }
        if warnings && let Some(reply) = replies.pop() {
            self.facts.read_warnings(reply, backend.core.caps);
        }
        self.note_open(status);
        Ok(())
    }

    /// An error does not say whether it left a transaction open (autocommit=0); the reply to a question does.
    fn note_open(&mut self, status: StatusFlags) {
        let open = StatusFlags::IN_TRANS | StatusFlags::IN_TRANS_READONLY;
        *self.status = (*self.status & !open) | (status & open);
        if status.contains(StatusFlags::IN_TRANS) {
            let now_ms = self.at.worker.clock.now_ms();
            self.at.pins.begin(PinReason::Transaction, now_ms, 0);
        }
    }
}

impl Session {
    /// Where the proxy asks for this session.
    pub(super) fn door(&mut self) -> Door<'_> {
        door!(self)
    }
}

impl Door<'_> {
    /// Reads what is unread, as far as it is wanted. False when the connection failed: nothing is lost but the warnings, and the
    /// best word on the id is the reply's.
    pub(super) async fn read_or_lose(&mut self) -> bool {
        self.forget_unhandled();
        let unread = self.facts.unread();
        if !unread.any() || self.read(unread).await.is_ok() {
            return true;
        }
        self.facts.lose_backend();
        self.at.backend = None;
        false
    }

    /// With `handle_warnings=0` a session that gives its backend back forgets its warnings, and a round trip is saved.
    pub(super) fn forget_unhandled(&mut self) {
        if self.at.lane.settings().handle_warnings == 0 && self.facts.unread().warnings {
            self.facts.forget_warnings();
        }
    }
}

#[cfg(test)]
#[path = "question_tests.rs"]
mod tests;
