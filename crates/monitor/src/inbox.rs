//! Traffic's signals until the monitor's thread takes them: merged and bounded. A caller never waits for longer than an insertion.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use model::fleet::{Signal, SignalKind};
use model::{HostgroupId, ServerAddr};
use tokio::sync::Notify;

/// Most different signals that wait. The thread empties the inbox at once; only a fleet that fails whole fills it.
const SIGNALS_MAX: usize = 4_096;

/// The fate of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It waits.
    New,
    /// One like it waits already.
    Merged,
    /// Too many wait.
    Dropped,
}

/// See the module. One a process.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    waiting: Mutex<HashSet<(ServerAddr, HostgroupId, SignalKind)>>,
    filled: Notify,
}

impl Inbox {
    /// Queues a signal, unless the same one waits already.
    pub(crate) fn put(&self, signal: Signal) -> Taken {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let signal = (signal.server, signal.hostgroup, signal.kind);
        if waiting.contains(&signal) {
            return Taken::Merged;
        }
        if waiting.len() >= SIGNALS_MAX {
            return Taken::Dropped;
        }
        waiting.insert(signal);
        drop(waiting);
        self.filled.notify_one();
        Taken::New
    }

    /// Waits until there is something to take.
    pub(crate) async fn filled(&self) {
        self.filled.notified().await;
    }

    /// Everything that waits.
    pub(crate) fn take(&self) -> Vec<Signal> {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.into_iter().map(|(server, hostgroup, kind)| Signal { server, hostgroup, kind }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signal(port: u16) -> Signal {
        Signal { server: ServerAddr { host: "db".into(), port }, hostgroup: HostgroupId(1), kind: SignalKind::ReadOnly }
    }

    #[test]
    fn signals_are_merged_and_bounded() {
        let inbox = Inbox::default();
        assert_eq!((inbox.put(signal(1)), inbox.put(signal(1)), inbox.put(signal(2))), (Taken::New, Taken::Merged, Taken::New));
        assert_eq!(inbox.take().len(), 2);
        assert_eq!(inbox.put(signal(1)), Taken::New);
        for port in 2..=4_096 {
            assert_eq!(inbox.put(signal(port)), Taken::New);
        }
        assert_eq!((inbox.put(signal(4_097)), inbox.put(signal(1))), (Taken::Dropped, Taken::Merged));
        assert_eq!(inbox.take().len(), 4_096);
    }
}
