//! Waits for a backend that must not last: exchanges of our own have a time limit and end with a kill of the session.

use super::acquire::interruption;
use super::fault::Fault;
use crate::clients::session_handle::{SessionHandle, Signal};
use crate::servers::server::ServerShared;
use crate::workers::worker::Worker;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// Limit where `connect_timeout_server_max` sets none.
const FALLBACK_LIMIT: Duration = Duration::from_secs(10);

/// An exchange of our own with a backend: at most `connect_timeout_server_max`, and no longer than the session lives.
pub(super) async fn guarded<T>(worker: &Worker, handle: &SessionHandle, exchange: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let limit = match worker.snapshot().vars.connect_timeout_server_max {
        0 => FALLBACK_LIMIT,
        ms => Duration::from_millis(ms),
    };
    match tokio::time::timeout(limit, until(handle, Signal::GiveUp, exchange)).await {
        Ok(result) => result,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} ms", limit.as_millis()))),
    }
}

/// The same for what is worth nothing on a server that must be left: it ends with the time to finish there. The session is woken
/// then (see [`SessionHandle::leave_by`]).
pub(super) async fn guarded_on<T>(
    worker: &Worker,
    handle: &SessionHandle,
    server: &ServerShared,
    exchange: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let mut exchange = pin!(exchange);
    let while_used = poll_fn(|cx| match exchange.as_mut().poll(cx) {
        Poll::Pending if server.standing.leave_at_ms() <= worker.shared.clock.now_ms() => Poll::Ready(Err(left())),
        polled => polled,
    });
    guarded(worker, handle, while_used).await
}

/// The time to finish on a server is over.
pub(super) fn left() -> io::Error {
    io::Error::other("the proxy stopped using the server")
}

/// Sending a statement: ends when the statement or the session is killed or has had its time.
pub(super) async fn unless_killed<T>(handle: &SessionHandle, exchange: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    until(handle, Signal::KillQuery, exchange).await
}

/// A wait for something other than a backend: ends when the statement or the session is killed. What becomes of servers
/// meanwhile does not end it: that is looked at when one is used next.
pub(super) async fn paused<T>(handle: &SessionHandle, wait: impl Future<Output = T>) -> Result<T, Fault> {
    let mut wait = pin!(wait);
    poll_fn(|cx| match wait.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(Ok(result)),
        Poll::Pending => interruption(handle, cx).map_or(Poll::Pending, |fault| Poll::Ready(Err(fault))),
    })
    .await
}

async fn until<T>(handle: &SessionHandle, least: Signal, exchange: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let mut exchange = pin!(exchange);
    poll_fn(|cx| {
        if let Poll::Ready(result) = exchange.as_mut().poll(cx) {
            return Poll::Ready(result);
        }
        match handle.poll_signal(cx) {
            Some(signal) if signal >= least => Poll::Ready(Err(io::Error::new(io::ErrorKind::Interrupted, "killed"))),
            _ => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    #[tokio::test]
    async fn a_pause_ends_with_kills_and_not_with_servers() {
        let handle = SessionHandle::new(1, 0);
        for gone in [Signal::Cut, Signal::Demoted, Signal::Drain] {
            handle.signal(gone);
            let long = tokio::time::timeout(Duration::from_millis(1), paused(&handle, pending::<()>())).await;
            assert!(long.is_err(), "{gone:?} ended it");
        }
        handle.signal(Signal::KillQuery);
        assert!(matches!(paused(&handle, pending::<()>()).await, Err(Fault::Error { code: 1317, .. })));
        handle.signal(Signal::QueryTimeout);
        assert!(matches!(paused(&handle, pending::<()>()).await, Err(Fault::Error { code: 1907, .. })));
        handle.signal(Signal::Stop);
        assert!(matches!(paused(&handle, pending::<()>()).await, Err(Fault::End(_))));
        assert!(paused(&handle, ready(())).await.is_ok(), "what is done is done");
    }
}
