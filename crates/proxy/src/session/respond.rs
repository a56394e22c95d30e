//! Answers that the proxy makes itself.

use super::backends::Backends;
use super::end::End;
use super::frontend::Frontend;
use crate::clients::session_handle::Signal;
use crate::net::link::Sent;
use crate::workers::counters::count;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use wire::flags::Capabilities;
use wire::message::{EOF, ErrPacket, OK, OkPacket, put_eof};
use wire::reframe::{Reframe, ReplyFacts};
use wire::reply::ReplyKind;
use wire::{codes, packet};

/// How long a client may refuse to take bytes, ms: as a server's `net_write_timeout`.
const WRITE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

/// What became of an answer that the proxy made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    /// The client has it.
    Sent,
    /// It could not be translated, and nothing was sent.
    Not,
}

impl Frontend {
    /// Sends result packets as a server with the capabilities `caps` would have sent them.
    pub(super) async fn send_made(&mut self, at: &mut Backends, mut packets: Vec<u8>, caps: Capabilities) -> Result<Made, End> {
        let mut out = Vec::new();
        let mut facts = ReplyFacts::default();
        let mut reframe = Reframe::new(ReplyKind::Results, caps, self.caps, self.filter.as_deref(), self.current_status());
        reframe.set_next_seq(self.answer_seq());
        let Ok(processed) = reframe.process(&mut packets, &mut out, &mut facts) else { return Ok(Made::Not) };
        self.write_front(at, if processed.direct { &packets } else { &out }).await?;
        Ok(Made::Sent)
    }

    /// Sends an OK packet as the whole answer to a command.
    pub(super) async fn send_ok(&mut self, at: &mut Backends) -> Result<(), End> {
        self.send_ok_with(at, b"").await
    }

    /// The same with a text for people.
    pub(super) async fn send_ok_with(&mut self, at: &mut Backends, info: &[u8]) -> Result<(), End> {
        let status = self.current_status();
        let ok = OkPacket { affected_rows: 0, last_insert_id: 0, status, warnings: 0, info, session_state: b"" };
        let mut payload = Vec::with_capacity(16);
        ok.write(&mut payload, OK, self.caps);
        self.send_payload(at, &payload).await
    }

    /// Sends the EOF packet that answers COM_SET_OPTION.
    pub(super) async fn send_eof(&mut self, at: &mut Backends) -> Result<(), End> {
        let mut payload = Vec::with_capacity(16);
        if self.caps.contains(wire::flags::Capabilities::DEPRECATE_EOF) {
            let ok =
                OkPacket { affected_rows: 0, last_insert_id: 0, status: self.current_status(), warnings: 0, info: b"", session_state: b"" };
            ok.write(&mut payload, EOF, self.caps);
        } else {
            put_eof(&mut payload, 0, self.current_status());
        }
        self.send_payload(at, &payload).await
    }

    /// Sends an error as the whole answer to a command; the session goes on.
    pub(super) async fn send_error(&mut self, at: &mut Backends, code: u16, sqlstate: &str, text: &str) -> Result<(), End> {
        self.send_error_at(at, self.answer_seq(), code, sqlstate, text.as_bytes()).await
    }

    /// As [`Frontend::send_error`], with the sequence id that is due (an answer had begun).
    pub(super) async fn send_error_at(
        &mut self,
        at: &mut Backends,
        mut seq: u8,
        code: u16,
        sqlstate: &str,
        text: &[u8],
    ) -> Result<(), End> {
        count(&at.worker.counters.own_errors);
        if !at.handle.error_is_counted.get() {
            at.handle.set_own_error(Some((code, text.into())));
        }
        let mut state = ErrPacket::GENERAL;
        if let Some(given) = sqlstate.as_bytes().first_chunk() {
            state = *given;
        }
        let mut payload = Vec::with_capacity(text.len() + 16);
        ErrPacket { code, sqlstate: state, message: text }.write(&mut payload, self.caps);
        let mut out = Vec::with_capacity(payload.len() + 8);
        packet::put_packet(&mut out, &mut seq, &payload);
        self.write_front(at, &out).await
    }

    /// Sends one packet as the whole answer.
    pub(super) async fn send_payload(&mut self, at: &mut Backends, payload: &[u8]) -> Result<(), End> {
        let mut out = Vec::with_capacity(payload.len() + 8);
        let mut seq = self.answer_seq();
        packet::put_packet(&mut out, &mut seq, payload);
        self.write_front(at, &out).await
    }

    /// Writes to the client, no faster than `throttle_max_bytes_per_second_to_client` allows.
    pub(super) async fn write_front(&mut self, at: &Backends, bytes: &[u8]) -> Result<(), End> {
        let sent = self.write_front_at_once(at, bytes)?;
        if sent.is_all { Ok(()) } else { self.write_front_rest(at, bytes.get(sent.taken..).unwrap_or_default()).await }
    }

    /// The same as far as that goes without waiting; the rest is for [`Frontend::write_front_rest`].
    pub(super) fn write_front_at_once(&mut self, at: &Backends, bytes: &[u8]) -> Result<Sent, End> {
        match at.worker.snapshot().vars.throttle_max_bytes_per_second_to_client {
            0 => self.link.send_at_once(bytes).map_err(End::ClientError),
            _ => Ok(Sent::NONE),
        }
    }

    /// Writes what was left to do, and waits for it. Boxed, for it is rare and arms a timer.
    pub(super) async fn write_front_rest(&mut self, at: &Backends, rest: &[u8]) -> Result<(), End> {
        match at.worker.snapshot().vars.throttle_max_bytes_per_second_to_client {
            // Where nothing is left, some of it is still held back.
            rate if rate > 0 && !rest.is_empty() => Box::pin(self.write_paced(at, rest, rate)).await,
            _ => Box::pin(self.write_waiting(at, rest)).await,
        }
    }

    /// Writes to the client; a kill, a client that does not read for long, or the end of the server at hand ends the wait.
    pub(super) async fn write_waiting(&mut self, at: &Backends, bytes: &[u8]) -> Result<(), End> {
        let (handle, backend) = (&at.handle, &at.backend);
        let is_cut = || backend.as_ref().is_some_and(|backend| backend.core.server.is_cut());
        let mut write = pin!(self.link.write_all(bytes));
        let interrupted = poll_fn(|cx| {
            if let Poll::Ready(result) = write.as_mut().poll(cx) {
                return Poll::Ready(Ok(result));
            }
            match handle.poll_signal(cx) {
                Some(Signal::KillConnection) => Poll::Ready(Err(End::Killed)),
                Some(Signal::Stop) => Poll::Ready(Err(End::Shutdown)),
                Some(Signal::TransactionTimeout) => Poll::Ready(Err(End::TransactionTimeout)),
                Some(Signal::Cut) if is_cut() => Poll::Ready(Err(End::ServerCut)),
                // Seen when the server is read again.
                Some(Signal::Cut | Signal::KillQuery | Signal::QueryTimeout) => Poll::Pending,
                Some(_) => {
                    handle.clear_signal();
                    Poll::Pending
                }
                None => Poll::Pending,
            }
        });
        match tokio::time::timeout(WRITE_TIMEOUT, interrupted).await {
            Ok(result) => result?.map_err(End::ClientError),
            Err(_) => Err(End::WriteTimeout),
        }
    }

    /// ER_MALFORMED_PACKET.
    pub(super) async fn malformed(&mut self, at: &mut Backends) -> Result<(), End> {
        self.send_error(at, codes::MALFORMED_PACKET, "HY000", "Malformed communication packet.").await
    }
}
