//! Traffic's signals until the monitor's thread takes them: merged, bounded and in order. A caller waits for an insertion at most.
//!
//! INVARIANT: of signals that contradict each other, such as a failed connect and a recovery, the last one is taken last.

use std::collections::HashMap;
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

#[derive(Debug, Default)]
struct Waiting {
    /// Each signal with its turn: that of its last report.
    turns: HashMap<(ServerAddr, HostgroupId, SignalKind), u64>,
    next_turn: u64,
}

/// See the module. One a process.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    waiting: Mutex<Waiting>,
    filled: Notify,
}

impl Inbox {
    /// Queues a signal. One that waits already moves to the end.
    pub(crate) fn put(&self, signal: Signal) -> Taken {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let signal = (signal.server, signal.hostgroup, signal.kind);
        let turn = waiting.next_turn;
        waiting.next_turn += 1;
        if let Some(known) = waiting.turns.get_mut(&signal) {
            *known = turn;
            return Taken::Merged;
        }
        if waiting.turns.len() >= SIGNALS_MAX {
            return Taken::Dropped;
        }
        waiting.turns.insert(signal, turn);
        drop(waiting);
        self.filled.notify_one();
        Taken::New
    }

    /// Waits until there is something to take.
    pub(crate) async fn filled(&self) {
        self.filled.notified().await;
    }

    /// Everything that waits, in the order of the last reports.
    pub(crate) fn take(&self) -> Vec<Signal> {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        let mut signals: Vec<_> = waiting.turns.into_iter().collect();
        signals.sort_unstable_by_key(|(_, turn)| *turn);
        signals.into_iter().map(|((server, hostgroup, kind), _)| Signal { server, hostgroup, kind }).collect()
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

    #[test]
    fn signals_are_taken_in_the_order_of_their_last_reports() {
        use SignalKind::{ConnectFailed, Recovered};
        for kinds in [[ConnectFailed, Recovered], [Recovered, ConnectFailed]] {
            let inbox = Inbox::default();
            for kind in [kinds[1], kinds[0], kinds[1]] {
                inbox.put(Signal { kind, ..signal(1) });
            }
            assert_eq!(inbox.take().into_iter().map(|signal| signal.kind).collect::<Vec<_>>(), kinds);
        }
    }
}
