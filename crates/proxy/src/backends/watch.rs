//! Looks whether a statement runs at all on a server that is not to be used any more: its words or its reply may have been lost on the way
//! (a firewall that forgot the connection, say), and then it never ends.
//!
//! The server is asked from another connection. If it does not run there, its connection is ended, and the statement is given up. It is
//! given up too if the server cannot be reached from here, though the monitor still sees it.

use super::backend::BackendState;
use super::side_connection::{Target, Unanswered, ask_aside};
use crate::hostgroups::pool::HostgroupPool;
use crate::workers::worker::Worker;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use wire::codec::Reader;

/// Time between two looks, ms. What is on its way when one is taken has arrived before the next.
const LOOK_AGAIN_MS: u64 = 1000;

/// How long a look may take: an idle connection that does not answer, and then a new one.
const LOOK_WAIT: Duration = Duration::from_secs(2);

/// Looks in a row that must find it not running.
const LOOKS: u32 = 2;

/// What a look found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// The server has the connection, and nothing runs there.
    Idle,
    /// It runs, or nobody knows.
    MayRun,
    /// Nothing passes between the proxy and the server.
    Nothing,
}

/// What looks at the statement of one connection found.
pub(crate) struct Watch {
    next_look_ms: Cell<u64>,
    /// In a row, without finding it.
    missed: Cell<u32>,
    /// It does not run, and never will: its connection was ended, or is cut.
    is_over: Cell<bool>,
}

impl Watch {
    /// The first look is due at `now_ms` (process clock).
    pub(crate) fn new(now_ms: u64) -> Rc<Self> {
        Rc::new(Self { next_look_ms: Cell::new(now_ms), missed: Cell::new(0), is_over: Cell::new(false) })
    }

    /// It found that the statement does not run.
    #[cfg(test)]
    pub(crate) fn over() -> Rc<Self> {
        let watch = Self::new(u64::MAX);
        watch.is_over.set(true);
        watch
    }

    /// Whether the statement does not run, and never will.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Begins another look at the statement of this connection, if one is due.
    pub(crate) fn look_if_due(self: &Rc<Self>, worker: &Rc<Worker>, pool: &Rc<HostgroupPool>, core: &BackendState, now_ms: u64) {
        if self.next_look_ms.get() > now_ms {
            return;
        }
        self.next_look_ms.set(u64::MAX);
        let (watch, worker, pool, target) = (Rc::clone(self), Rc::clone(worker), Rc::clone(pool), Target::of(worker, pool, core));
        tokio::task::spawn_local(async move { watch.look(&worker, &pool, &target).await });
    }

    async fn look(&self, worker: &Rc<Worker>, pool: &Rc<HostgroupPool>, target: &Target) {
        let id = target.thread_id;
        let ask = async |sql: String| ask_aside(worker, pool, target, &sql, LOOK_WAIT).await;
        let seen = match ask(format!("SELECT COMMAND,CONNECTION_ID() FROM information_schema.PROCESSLIST WHERE ID={id}")).await {
            Ok((reply, own)) if matches!(reply.rows.as_slice(), [row] if is_idle(row, own)) => Seen::Idle,
            Err(Unanswered::Late(_)) => Seen::Nothing,
            Ok(_) | Err(Unanswered::Failed(_) | Unanswered::Withdrawn | Unanswered::Ended) => Seen::MayRun,
        };
        self.missed.set(if seen == Seen::MayRun { 0 } else { self.missed.get() + 1 });
        if self.missed.get() >= LOOKS {
            // Where nothing passes, no answer will come either.
            self.is_over.set(seen == Seen::Nothing || ask(format!("KILL {id}")).await.is_ok());
        }
        let pause_ms = if seen == Seen::Nothing { 0 } else { LOOK_AGAIN_MS };
        self.next_look_ms.set(worker.shared.clock.now_ms() + pause_ms);
    }
}

/// Whether it says that the connection runs nothing. A server that is a proxy itself knows connections by other numbers than those
/// behind it, and shows others' under ours: it counts only where who asked has the number that it was told at login.
fn is_idle(row: &[u8], asked_by: u32) -> bool {
    let mut reader = Reader::new(row);
    // The connection that was asked may have results in UTF-16 or UTF-32.
    let mut text = || Some(reader.lenenc_bytes().ok()?.iter().copied().filter(|b| *b != 0).collect::<Vec<u8>>());
    let (Some(command), Some(own)) = (text(), text()) else { return false };
    command == b"Sleep" && own == asked_by.to_string().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::codec::put_lenenc_bytes;

    #[test]
    fn only_an_idle_connection_of_the_server_that_was_asked_counts() {
        let row = |texts: &[&[u8]]| {
            let mut row = Vec::new();
            texts.iter().for_each(|text| put_lenenc_bytes(&mut row, text));
            row
        };
        assert!(is_idle(&row(&[b"Sleep", b"4711"]), 4711));
        assert!(is_idle(&row(&[b"\0S\0l\0e\0e\0p", b"\x004\x007\x001\x001"]), 4711), "UTF-16");
        assert!(!is_idle(&row(&[b"Query", b"4711"]), 4711));
        assert!(!is_idle(&row(&[b"Sleep", b"4712"]), 4711), "behind a proxy");
        assert!(!is_idle(&row(&[b"Sleep"]), 4711));
        assert!(!is_idle(b"\xfb\xfb", 4711), "NULL");
    }
}
