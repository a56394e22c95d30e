//! Waits for a backend that must not last: exchanges of our own have a time limit and end with a kill of the session.

use crate::entry::{Entry, Signal};
use crate::worker::Worker;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// Limit where `connect_timeout_server_max` sets none.
const FALLBACK_LIMIT: Duration = Duration::from_secs(10);

/// An exchange of our own with a backend: at most `connect_timeout_server_max`, and no longer than the session lives.
pub async fn guarded<T>(worker: &Worker, entry: &Entry, exchange: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let limit = match worker.snapshot.vars.connect_timeout_server_max {
        0 => FALLBACK_LIMIT,
        ms => Duration::from_millis(ms),
    };
    match tokio::time::timeout(limit, until(entry, Signal::GiveUp, exchange)).await {
        Ok(result) => result,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} ms", limit.as_millis()))),
    }
}

/// Sending a statement: ends when the statement or the session is killed or has had its time.
pub async fn unless_killed<T>(entry: &Entry, exchange: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    until(entry, Signal::KillQuery, exchange).await
}

async fn until<T>(entry: &Entry, least: Signal, exchange: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let mut exchange = pin!(exchange);
    poll_fn(|cx| {
        if let Poll::Ready(result) = exchange.as_mut().poll(cx) {
            return Poll::Ready(result);
        }
        match entry.poll_signal(cx) {
            Some(signal) if signal >= least => Poll::Ready(Err(io::Error::new(io::ErrorKind::Interrupted, "killed"))),
            _ => Poll::Pending,
        }
    })
    .await
}
