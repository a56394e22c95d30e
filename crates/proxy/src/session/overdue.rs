//! A statement that runs alone, on a server that is not to be used any more, may end by itself. But one whose words or whose
//! answer were lost on the way (a firewall that forgot the connection, say) never ends: the server is asked from another
//! connection whether it runs there at all. Where it does not, its connection is ended and the statement given up; so it is where
//! the server cannot be reached from here, though the monitor still sees it.

use super::backends::Backends;
use super::fault::{Certainty, Fault};
use super::hand::AtHand;
use crate::backends::side_connection::{Target, Unanswered, ask_aside};
use crate::hostgroups::pool::HostgroupPool;
use crate::workers::worker::Worker;
use std::cell::Cell;
use std::io;
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

/// What looks at a statement found.
pub(super) struct Watch {
    /// When the statement began (process clock, ms).
    since_ms: u64,
    next_look_ms: Cell<u64>,
    /// In a row, without finding it.
    missed: Cell<u32>,
    /// It does not run, and never will: its connection was ended, or is cut.
    is_over: Cell<bool>,
}

impl AtHand {
    /// Asks, from time to time, whether the statement at hand runs on its server; an error when it does not.
    pub(super) fn watch_overdue(&mut self, at: &mut Backends, now_ms: u64) -> Result<(), Fault> {
        let (_, since_ms) = at.handle.activity();
        let Some(backend) = &at.backend else { return Ok(()) };
        let begin = || Rc::new(Watch { since_ms, next_look_ms: Cell::new(now_ms), missed: Cell::new(0), is_over: Cell::new(false) });
        let watch = Rc::clone(match self.watch.take_if(|watch| watch.since_ms != since_ms) {
            Some(_) => self.watch.insert(begin()),
            None => self.watch.get_or_insert_with(begin),
        });
        if watch.is_over.get() {
            let why = "the proxy stopped using the server, and the statement or its reply was lost";
            return Err(at.lost(&io::Error::other(why), Certainty::Unknown));
        }
        if watch.next_look_ms.get() <= now_ms {
            watch.next_look_ms.set(u64::MAX);
            let (worker, pool) = (Rc::clone(&at.worker), Rc::clone(&at.pool));
            let target = Target::of(&worker, &pool, &backend.core);
            tokio::task::spawn_local(async move { watch.look(&worker, &pool, &target).await });
        }
        Ok(())
    }
}

impl Watch {
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
