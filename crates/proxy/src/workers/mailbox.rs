//! Messages to a worker: new clients, backends that change hands, kills. Off the hot path.

use crate::backends::backend::DetachedBackend;
use crate::hostgroups::choice::Needs;
use crate::net::stream::DetachedSocket;
use crate::workers::worker::Worker;
use session_state::class::LaneKey;
use std::collections::{HashSet, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;

/// What KILL does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum KillKind {
    /// End the statement that runs.
    Query,
    /// End the session.
    Connection,
}

/// What a worker is asked from outside.
pub(crate) type WorkerQuestion = Box<dyn FnOnce(&Rc<Worker>) + Send>;

/// A message to a worker.
pub(crate) enum Mail {
    /// A client to serve.
    Accept {
        /// Its socket.
        socket: DetachedSocket,
        /// Its address as the kernel sees it; None on Unix sockets.
        peer: Option<SocketAddr>,
        /// The listener's address.
        local: Option<SocketAddr>,
    },
    /// A backend for this worker's waiters, from a worker that did not need it.
    Backend(Box<DetachedBackend>),
    /// Worker `from` has waiters for this lane and no way to connect: please hand over an idle backend.
    Wanted {
        /// Whose backends serve it.
        lane: LaneKey,
        /// What it asks of the server, and of the backend.
        needs: Needs,
        /// Where no idle backend will do, another one may be closed to make room for a new one.
        makes_room: bool,
        /// Who asks.
        from: usize,
    },
    /// KILL of a session of this worker.
    Kill {
        /// The session's id.
        id: u64,
        /// Statement or session.
        kind: KillKind,
    },
    /// Servers were laid out anew, or a hold began or ended: serve who waits, end what must end.
    Arranged,
    /// Run this on the worker. It must be short: sessions wait.
    Ask(WorkerQuestion),
    /// Ask the servers what they are, before the first client comes.
    Probe,
    /// Write to the log what this worker does and knows.
    Report,
    /// The process stops: end idle sessions now, busy ones when they are idle.
    Drain,
    /// The process stops now: end every session.
    Stop,
}

/// What waits.
#[derive(Default)]
struct MailQueue {
    mails: VecDeque<Mail>,
    /// One of them is [`Mail::Arranged`]: another one would tell nothing new.
    arranged: bool,
    /// The KILLs among them, each of which waits once.
    kills: HashSet<(u64, KillKind)>,
    /// The same for [`Mail::Wanted`]: a worker that waits asks again and again.
    wanted: HashSet<(LaneKey, Needs, bool, usize)>,
}

impl MailQueue {
    fn put(&mut self, mail: Mail) {
        let is_new = match &mail {
            Mail::Arranged => !std::mem::replace(&mut self.arranged, true),
            Mail::Kill { id, kind } => self.kills.insert((*id, *kind)),
            Mail::Wanted { lane, needs, makes_room, from } => self.wanted.insert((lane.clone(), *needs, *makes_room, *from)),
            _ => true,
        };
        if is_new {
            self.mails.push_back(mail);
        }
    }

    fn take(&mut self) -> Option<Mail> {
        let mail = self.mails.pop_front()?;
        match &mail {
            Mail::Arranged => self.arranged = false,
            Mail::Kill { id, kind } => _ = self.kills.remove(&(*id, *kind)),
            Mail::Wanted { lane, needs, makes_room, from } => _ = self.wanted.remove(&(lane.clone(), *needs, *makes_room, *from)),
            _ => {}
        }
        Some(mail)
    }
}

/// One worker's mail. INVARIANT: bounded by what sends it (one accept thread with a connection limit, as many
/// backends as `max_connections` allow, one `Wanted` a worker, lane and kind of wish, two `Kill`s a session, one `Arranged`).
#[derive(Default)]
pub(crate) struct Mailbox {
    queue: Mutex<MailQueue>,
    notify: Notify,
}

impl Mailbox {
    /// Puts a message in and wakes the worker.
    pub(crate) fn send(&self, mail: Mail) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).put(mail);
        self.notify.notify_one();
    }

    /// Waits for the next message.
    pub(crate) async fn receive(&self) -> Mail {
        loop {
            if let Some(mail) = self.queue.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return mail;
            }
            self.notify.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::HostgroupId;
    use session_state::class::Class;
    use std::sync::Arc;
    use wire::flags::Capabilities;

    #[test]
    fn what_was_laid_out_anew_is_told_once_for_as_long_as_it_waits() {
        let mut queue = MailQueue::default();
        let is_arranged = |mail: Option<Mail>| matches!(mail, Some(Mail::Arranged));
        for mail in [Mail::Arranged, Mail::Report, Mail::Arranged, Mail::Arranged] {
            queue.put(mail);
        }
        assert!(is_arranged(queue.take()) && !queue.arranged);
        queue.put(Mail::Arranged);
        assert!(matches!(queue.take(), Some(Mail::Report)));
        assert!(is_arranged(queue.take()), "it came after the first was taken");
        assert!(queue.take().is_none());
    }

    #[test]
    fn what_is_wanted_already_is_not_asked_for_again() {
        let snapshot = crate::bed::snapshot(&[(0, "a")], "mysql_users = ( { username=\"u\" } )");
        let lane = LaneKey { hostgroup: HostgroupId(0), user: Arc::clone(&snapshot.users["u"]), class: Class::of(Capabilities::default()) };
        let other = LaneKey { class: Class::of(Capabilities::FOUND_ROWS), ..lane.clone() };
        let wanted = |lane: &LaneKey, from| Mail::Wanted { lane: lane.clone(), needs: Needs::default(), makes_room: true, from };
        let mut queue = MailQueue::default();
        for _ in 0..1_000 {
            queue.put(wanted(&lane, 1));
        }
        queue.put(wanted(&lane, 2));
        queue.put(wanted(&other, 1));
        let asked: Vec<_> = std::iter::from_fn(|| queue.take()).collect();
        assert_eq!(asked.len(), 3);
        queue.put(wanted(&lane, 1));
        assert!(matches!(queue.take(), Some(Mail::Wanted { from: 1, .. })), "it came after the first was taken");
        assert!(queue.wanted.is_empty());
    }

    #[test]
    fn a_kill_that_waits_already_is_not_put_in_again() {
        let mut queue = MailQueue::default();
        for _ in 0..1_000 {
            queue.put(Mail::Kill { id: 7, kind: KillKind::Query });
        }
        queue.put(Mail::Kill { id: 7, kind: KillKind::Connection });
        queue.put(Mail::Kill { id: 8, kind: KillKind::Query });
        let mut killed = Vec::new();
        while let Some(mail) = queue.take() {
            let Mail::Kill { id, kind } = mail else { panic!("only KILLs were put in") };
            killed.push((id, kind));
        }
        assert_eq!(killed, [(7, KillKind::Query), (7, KillKind::Connection), (8, KillKind::Query)]);
        queue.put(Mail::Kill { id: 7, kind: KillKind::Query });
        assert!(matches!(queue.take(), Some(Mail::Kill { id: 7, .. })), "it came after the first was taken");
        assert!(queue.kills.is_empty());
    }
}
