//! Waiting for a command and taking it apart.

use super::Session;
use super::backends::Backends;
use super::end::End;
use super::frontend::Frontend;
use super::long_data::MIN_LONG_DATA;
use crate::clients::session_handle::{Activity, SessionHandle, Signal};
use crate::limits::overload;
use crate::net::buffer::{CHUNK, WINDOW, grown};
use crate::workers::worker::Worker;
use session_state::pins::is_kept;
use sql::Analysis;
use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use wire::codes;
use wire::command::Command;
use wire::packet::{self, HEADER, MAX_PAYLOAD};

/// A whole command at the front of the session's input (or the start of one that is streamed).
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    /// Its command byte, raw.
    pub byte: u8,
    /// Bytes in the input, headers included.
    pub wire_len: usize,
    /// It came in more than one frame (or a rule rewrote it), and its payload is in `joined`.
    pub joined: bool,
    /// A rule rewrote it: the input does not hold what is sent.
    pub rewritten: bool,
}

enum Waited {
    Read(usize),
    Signal(Signal),
}

impl Session {
    /// Waits for the next command. The input is consumed by [`Frontend::command_done`].
    /// None when the session has been idle for a while.
    pub(super) async fn next_command(&mut self) -> Result<Option<Incoming>, End> {
        loop {
            if let Some(command) = self.client.framed(&self.at)? {
                return Ok(Some(command));
            }
            if self.client.input.is_empty() {
                if !self.at.is_pinned() && self.worker.shared.is_draining() {
                    return Err(End::Shutdown);
                }
                if self.worker.shared.has_successor() {
                    Box::pin(self.hand_over(None)).await?;
                }
                self.client.input.release(&self.worker.buffers);
                self.handle.set_activity(Activity::Idle, self.worker.clock.now_ms());
            } else {
                let wanted = self.client.wanted();
                self.client.input.reserve(wanted, &self.worker.buffers);
                if !self.handle.is_idle() {
                    // A part of the next command holds up no limit, and more of it puts none off.
                    self.handle.set_activity(Activity::Idle, self.worker.clock.now_ms());
                }
            }
            match self.client.wait_for_client(&self.at).await? {
                Waited::Read(0) => return Err(End::Quit),
                Waited::Read(_) => {}
                Waited::Signal(Signal::Park) => {
                    self.handle.clear_signal();
                    if self.client.input.is_empty() {
                        return Ok(None);
                    }
                }
                Waited::Signal(Signal::GiveBack)
                    if self.facts.is_insert_delay_over(&self.at.pins, self.worker.clock.now_ms()) || keeps_in_vain(&self.at) =>
                {
                    self.handle.clear_signal();
                    self.facts.end_insert_delay(&mut self.at.pins);
                    let nothing = Analysis::NONE;
                    Box::pin(self.settle_silent(&nothing)).await?;
                    self.at.publish_session(&self.client, &self.wants);
                }
                Waited::Signal(signal) => {
                    self.at.disturbed(signal)?;
                    if matches!(signal, Signal::Demoted | Signal::Cut) {
                        Box::pin(self.replay_idle()).await?;
                    }
                }
            }
        }
    }
}

impl Frontend {
    /// Bytes that must be in the input to go on with the command at its front.
    fn wanted(&self) -> usize {
        let mut wanted = HEADER;
        let bytes = self.input.filled();
        let mut at = 0;
        while let Some((len, _)) = bytes.get(at..).and_then(packet::header) {
            at += HEADER + len;
            wanted = at;
            if len < MAX_PAYLOAD {
                break;
            }
            wanted += HEADER;
        }
        // Growing by steps: a client that announces 16 MiB and sends nothing owns one step only.
        wanted.min(grown(bytes.len()).max(CHUNK))
    }

    /// The command at the front of the input, if all of it (or all that is needed of it) is there.
    fn framed(&mut self, at: &Backends) -> Result<Option<Incoming>, End> {
        let bytes = self.input.filled();
        let Some((len, seq)) = packet::header(bytes) else { return Ok(None) };
        if seq != 0 {
            return Err(End::Protocol {
                code: codes::NET_PACKETS_OUT_OF_ORDER,
                sqlstate: "08S01",
                text: "Got packets out of order".into(),
            });
        }
        if len == 0 {
            // Servers take it for COM_SLEEP, which they do not know.
            self.command_seq = 1;
            return Ok(Some(Incoming { byte: Command::Sleep as u8, wire_len: HEADER, joined: false, rewritten: false }));
        }
        check_size(&at.worker, len)?;
        let bytes = self.input.filled();
        let Some(&byte) = bytes.get(HEADER) else { return Ok(None) };
        // Long data is passed on as it arrives, whatever its length.
        self.command_seq = 1;
        if byte == Command::StmtSendLongData as u8 && len > WINDOW && bytes.len() >= HEADER + MIN_LONG_DATA {
            return Ok(Some(Incoming { byte, wire_len: HEADER + len, joined: false, rewritten: false }));
        }
        if len == MAX_PAYLOAD {
            return self.joined_command(at, byte);
        }
        if bytes.len() < HEADER + len {
            return Ok(None);
        }
        Ok(Some(Incoming { byte, wire_len: HEADER + len, joined: false, rewritten: false }))
    }

    /// A command of several frames: joins their payloads once all are there.
    fn joined_command(&mut self, at: &Backends, byte: u8) -> Result<Option<Incoming>, End> {
        let bytes = self.input.filled();
        let mut end = 0;
        let mut total = 0;
        loop {
            let Some((len, seq)) = bytes.get(end..).and_then(packet::header) else { return Ok(None) };
            self.command_seq = seq.wrapping_add(1);
            end += HEADER + len;
            total += len;
            // Frame by frame: a command need not have an end.
            check_size(&at.worker, total)?;
            if len < MAX_PAYLOAD {
                break;
            }
        }
        if bytes.len() < end {
            return Ok(None);
        }
        self.joined.clear();
        self.joined.reserve(total);
        let mut rest = bytes.get(..end).unwrap_or_default();
        let mut starts = Vec::new();
        let mut start = 0;
        while let Some((len, _)) = packet::header(rest) {
            self.joined.extend_from_slice(rest.get(HEADER..HEADER + len).unwrap_or_default());
            rest = rest.get(HEADER + len..).unwrap_or_default();
            starts.push(start);
            start += HEADER + len;
        }
        // Inside compressed frames a client's numbers may jump; a server in clear wants them in a row.
        for (seq, start) in (0_u8..=255).cycle().zip(starts) {
            if let Some(byte) = self.input.filled_mut().get_mut(start + 3) {
                *byte = seq;
            }
        }
        Ok(Some(Incoming { byte, wire_len: end, joined: true, rewritten: false }))
    }

    async fn wait_for_client(&mut self, at: &Backends) -> Result<Waited, End> {
        let Self { link: front, input, .. } = self;
        let Backends { worker, handle, .. } = at;
        let waited = poll_fn(|cx| {
            // Bytes first: a command that has arrived is served before the session is told to stop.
            if front.poll_readable(cx).is_ready() {
                match front.poll_read(cx, input, &worker.buffers) {
                    Poll::Ready(result) => return Poll::Ready(result.map(Waited::Read)),
                    Poll::Pending => input.release(&worker.buffers),
                }
            }
            match handle.poll_signal(cx) {
                Some(signal) => Poll::Ready(Ok(Waited::Signal(signal))),
                None => Poll::Pending,
            }
        });
        waited.await.map_err(End::ClientError)
    }
}

impl Backends {
    /// A signal came while the client was silent.
    fn disturbed(&mut self, signal: Signal) -> Result<(), End> {
        match signal {
            // Nothing runs: as a server, KILL QUERY then does nothing.
            Signal::KillQuery | Signal::QueryTimeout | Signal::GiveUp | Signal::Park | Signal::HandOver => {
                self.handle.clear_signal();
                Ok(())
            }
            Signal::GiveBack => {
                self.handle.clear_signal();
                self.give_back();
                Ok(())
            }
            Signal::Demoted | Signal::Cut => {
                self.handle.clear_signal();
                self.leave_idle();
                Ok(())
            }
            Signal::Drain if self.is_pinned() => {
                // A transaction may finish; the drain's own deadline ends what does not.
                self.handle.clear_signal();
                Ok(())
            }
            Signal::Drain | Signal::Stop => Err(End::Shutdown),
            Signal::TransactionTimeout => Err(End::TransactionTimeout),
            Signal::IdleTimeout => Err(End::Idle),
            Signal::KillConnection => Err(End::Killed),
        }
    }
}

/// Whether pins keep the backend, and no setting says so any more.
fn keeps_in_vain(at: &Backends) -> bool {
    !at.pins.set().is_empty() && !is_kept(at.pins.set(), &at.lane.settings())
}

/// Why a session ends that waits for the rest of what its client sends.
pub(super) fn ended(handle: &SessionHandle, cx: &Context<'_>) -> Option<End> {
    match handle.poll_signal(cx)? {
        Signal::KillConnection => Some(End::Killed),
        Signal::TransactionTimeout => Some(End::TransactionTimeout),
        Signal::IdleTimeout => Some(End::Idle),
        Signal::Stop => Some(End::Shutdown),
        // What becomes of the server or of the statement is seen when all of it is there.
        _ => None,
    }
}

/// What servers say of a packet that is longer than they take, before they close the connection.
pub(super) fn too_large() -> End {
    End::Protocol {
        code: codes::NET_PACKET_TOO_LARGE,
        sqlstate: "08S01",
        text: "Got a packet bigger than 'max_allowed_packet' bytes".into(),
    }
}

/// A command of so many bytes, or more, is refused as the server would refuse it.
pub(super) fn check_size(worker: &Worker, len: usize) -> Result<(), End> {
    if len as u64 > worker.snapshot().vars.max_allowed_packet {
        return Err(too_large());
    }
    if len > overload::LARGE && worker.shared.memory.step() >= overload::Step::LargeCommands {
        worker.shared.memory.refused_commands.fetch_add(1, Ordering::Relaxed);
        return Err(End::Protocol {
            code: codes::OUT_OF_RESOURCES,
            sqlstate: "HY000",
            text: "Out of memory: the proxy is close to its mysql-memory_budget, so it refuses commands longer than 64 KiB".into(),
        });
    }
    Ok(())
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
