//! A session waits for a KILL QUERY of its own that is on its way, before the next statement runs on the connection.

use super::backends::Backends;
use super::fault::Fault;
use super::guard::paused;
use crate::clients::session_handle::SessionHandle;
use crate::statements::kill::Kill;
use std::pin::pin;
use std::time::Duration;

/// How long the next statement on a connection waits for a KILL QUERY that is on its way to end the one before.
const LATE_KILL_WAIT: Duration = Duration::from_secs(2);

impl Backends {
    /// The statement is over: no KILL QUERY goes out for it any more, and one that is on its way is not to end the next one.
    pub(super) async fn statement_is_over(&mut self) {
        let Some(kill) = self.backend.as_mut().and_then(|backend| backend.core.kill.take()) else { return };
        if kill.withdraw() {
            // Rare, and perhaps long.
            Box::pin(await_over(&kill, &self.handle, LATE_KILL_WAIT)).await;
        }
    }
}

/// Waits until none is on its way any more, but not for longer than `limit`. Nothing is there for other kills to end, so they do
/// not end it; what ends the session does.
async fn await_over(kill: &Kill, handle: &SessionHandle, limit: Duration) {
    let mut over = pin!(tokio::time::timeout(limit, kill.over()));
    while let Err(Fault::Error { .. }) = paused(handle, over.as_mut()).await {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::session_handle::Signal;
    use crate::session::bed::Bed;
    use std::time::Instant;
    use tokio::task::LocalSet;
    use wire::charset::Flavor::MySql;

    #[tokio::test]
    async fn a_kill_that_is_repeated_is_sent_once_and_puts_nothing_off() {
        let all = async {
            let mut bed = Bed::new("").on(MySql);
            let clock = bed.worker.shared.clock;
            bed.handle.begin_command(clock.now_ms());
            let session = &mut *bed;
            assert!(session.hand.interrupt(&mut session.at, Signal::KillQuery).is_ok());
            let first_ms = clock.now_ms();
            std::thread::sleep(Duration::from_millis(20));
            assert!(session.hand.interrupt(&mut session.at, Signal::KillQuery).is_ok());
            assert_eq!(bed.worker.counters.killed_queries.get(), 1);
            bed.handle.check_deadlines(first_ms + 5_001);
            assert_eq!(bed.handle.pending(), Some(Signal::GiveUp), "5 s after the first one");
        };
        LocalSet::new().run_until(all).await;
    }

    #[tokio::test]
    async fn other_kills_do_not_end_the_wait_and_the_sessions_end_does() {
        let (kill, handle, limit) = (Kill::default(), SessionHandle::new(1, 0), Duration::from_millis(50));
        let _out = kill.begin();
        for signal in [Signal::KillQuery, Signal::QueryTimeout, Signal::GiveUp, Signal::Cut] {
            handle.signal(signal);
            let began = Instant::now();
            await_over(&kill, &handle, limit).await;
            assert!(began.elapsed() >= limit, "{signal:?} ended it");
        }
        handle.signal(Signal::KillConnection);
        let ended = tokio::time::timeout(Duration::from_secs(60), await_over(&kill, &handle, Duration::from_secs(3600))).await;
        assert!(ended.is_ok());
        assert_eq!(handle.pending(), Some(Signal::KillConnection), "it is still to be dealt with");
    }
}
