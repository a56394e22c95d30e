//! The session's [`Door`]: how questions reach the server at hand, and within which limits.
//!
//! It also notes what an answer leaves on the connection. What a question clobbers is read first, by the [`Asker`].

use super::Session;
use super::backends::Backends;
use super::connection::Connection;
use super::guard::{guarded, unless_killed};
use crate::backends::backend::{Backend, put_command, put_query};
use crate::net::buffer::BufferPool;
use session_state::collected::Collected;
use session_state::door::{Asker, Door, Rescued};
use session_state::held::Held;
use session_state::pins::Pins;
use session_state::question::Question;
use session_state::server_info::ServerInfo;
use session_state::state::Text;
use std::io;
use std::ops::{Deref, DerefMut};
use std::time::Duration;
use wire::command::Command;
use wire::flags::Capabilities;

/// Appends the command that asks this.
fn put(question: &Question<'_>, out: &mut Vec<u8>, caps: Capabilities) {
    match question {
        Question::Status => put_command(out, Command::Ping, &[]),
        Question::Enter(schema) => put_command(out, Command::InitDb, schema),
        _ => put_query(out, question.text().as_bytes(), caps),
    }
}

/// Sends questions together, and reads the reply to each. What they clobber is lost: a session asks by an [`Asker`].
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

impl Door for Backends {
    /// Within the limit of [`guarded`].
    async fn exchange(&mut self, questions: Rescued<'_>) -> io::Result<Vec<Collected>> {
        let Self { backend: held, worker, handle, .. } = self;
        let Some(backend) = held.as_mut() else { return Err(io::Error::other("no backend")) };
        let replies = guarded(worker, handle, exchange(backend, questions.questions(), &worker.buffers)).await;
        if replies.is_err() {
            held.mark_broken();
        }
        replies
    }

    fn held(&self) -> Option<&Held> {
        self.backend.as_ref().map(|backend| &backend.core.held)
    }

    fn held_mut(&mut self) -> Option<&mut Held> {
        self.backend.as_mut().map(|backend| &mut backend.core.held)
    }

    fn info(&self) -> Option<&ServerInfo> {
        self.backend.as_ref().map(|backend| &*backend.core.info)
    }

    fn caps(&self) -> Capabilities {
        self.backend.caps()
    }

    fn ran_last(&self) -> bool {
        self.backend.ran_last_for(self.handle.id)
    }

    fn pins_mut(&mut self) -> &mut Pins {
        &mut self.pins
    }

    fn now_ms(&self) -> u64 {
        self.worker.clock.now_ms()
    }

    fn handles_warnings(&self) -> bool {
        self.lane.settings().handle_warnings != 0
    }

    fn close_backend(&mut self) {
        self.backend = None;
    }

    fn set_idle_limit(&mut self, ms: u64) {
        self.handle.set_own_idle_limit(ms);
    }
}

/// Where the proxy asks the server at hand: an [`Asker`], and what needs sockets, pools and other servers.
pub(super) struct ServerDoor<'a>(pub Asker<'a, Backends>);

impl<'a> Deref for ServerDoor<'a> {
    type Target = Asker<'a, Backends>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for ServerDoor<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// The door of a session, or of its [`Effects`](super::effects::Effects), beside the other parts: a method would borrow those too.
macro_rules! door {
    ($session:expr) => {
        $crate::session::door::ServerDoor(session_state::door::Asker {
            at: &mut $session.at,
            facts: &mut $session.facts,
            status: &mut $session.client.status,
        })
    };
}
pub(super) use door;

impl ServerDoor<'_> {
    /// Waits for GTIDs, as long as `limit` and the client let it.
    ///
    /// # Errors
    /// As for [`Asker::ask`], and when the time is over.
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
    /// As for [`Asker::ask`].
    pub(super) async fn enter(&mut self, schema: &Text) -> io::Result<Collected> {
        self.will_ask(&[Question::Enter(schema)]).await?;
        let Backends { backend, worker, handle, .. } = &mut *self.at;
        let Some(backend) = backend.as_mut() else { return Err(io::Error::other("no backend")) };
        guarded(worker, handle, backend.init_db(schema, &worker.buffers)).await
    }
}

impl Session {
    /// Where the proxy asks for this session.
    pub(super) fn door(&mut self) -> ServerDoor<'_> {
        door!(self)
    }
}

#[cfg(test)]
#[path = "door_tests.rs"]
mod tests;
