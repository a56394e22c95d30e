//! Sending to a client no faster than `throttle_max_bytes_per_second_to_client` allows.
//!
//! Nothing is queued: the session waits before it writes, and reads no more of the server's reply meanwhile. What was sent is paid
//! for by waiting before the next bytes, so that a short answer is never late for its own sake.

use super::backends::Backends;
use super::end::End;
use super::frontend::Frontend;
use crate::clients::session_handle::{SessionHandle, Signal};
use crate::workers::clock::Clock;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// Pieces that a second's bytes are sent in.
const PIECES_A_SECOND: u64 = 20;
/// The smallest piece, bytes.
const MIN_PIECE: u64 = 512;

impl Frontend {
    /// Writes to the client at `rate` bytes a second.
    pub(super) async fn write_paced(&mut self, at: &Backends, bytes: &[u8], rate: u64) -> Result<(), End> {
        // Compressed, each write becomes a frame, and some clients want a packet in one.
        let piece = match self.link.frame_seq() {
            Some(_) => bytes.len(),
            None => usize::try_from((rate / PIECES_A_SECOND).max(MIN_PIECE)).unwrap_or(usize::MAX),
        };
        for piece in bytes.chunks(piece.max(1)) {
            // What is left of the answer of a statement that was killed, or is to be, is sent at once.
            let is_to_end = matches!(at.handle.pending(), Some(Signal::KillQuery | Signal::QueryTimeout))
                || at.backend.as_ref().is_some_and(|backend| backend.core.kill.is_some());
            if !is_to_end {
                at.handle.wait_for_turn(at.worker.shared.clock, rate, piece.len()).await?;
            }
            self.write_waiting(at, piece).await?;
        }
        Ok(())
    }
}

impl SessionHandle {
    /// Waits until what was sent before is paid for, and takes a turn to send `len` bytes.
    async fn wait_for_turn(&self, clock: Clock, rate: u64, len: usize) -> Result<(), End> {
        let wait_us = self.paid_until_us.get().saturating_sub(clock.now_us());
        if wait_us > 0 {
            let mut sleep = pin!(tokio::time::sleep(Duration::from_micros(wait_us)));
            poll_fn(|cx| {
                if sleep.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Ok(()));
                }
                match self.poll_signal(cx) {
                    Some(Signal::KillConnection) => Poll::Ready(Err(End::Killed)),
                    Some(Signal::Stop) => Poll::Ready(Err(End::Shutdown)),
                    Some(Signal::TransactionTimeout) => Poll::Ready(Err(End::TransactionTimeout)),
                    Some(Signal::KillQuery | Signal::QueryTimeout) => Poll::Ready(Ok(())),
                    // Seen when the server is read again.
                    _ => Poll::Pending,
                }
            })
            .await?;
        }
        let cost_us = u64::try_from(len).unwrap_or(u64::MAX).saturating_mul(1_000_000) / rate.max(1);
        // A pause of the client's own earns nothing; a wait that took longer than it should is made good.
        let from_us = if wait_us > 0 { self.paid_until_us.get() } else { clock.now_us() };
        self.paid_until_us.set(from_us.saturating_add(cost_us));
        Ok(())
    }
}
