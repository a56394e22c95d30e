//! LOAD DATA LOCAL INFILE: the client's file, streamed to the server. Whatever ends a statement ends the wait for either of them.

use super::backends::Backends;
use super::command::too_large;
use super::end::End;
use super::fault::{Certainty, Fault};
use super::frontend::Frontend;
use super::guard::guarded;
use super::hand::AtHand;
use super::plan::Plan;
use super::relay::LOOK_AGAIN;
use crate::backends::backend::Backend;
use crate::clients::session_handle::Signal;
use crate::net::buffer::CHUNK;
use crate::workers::worker::Worker;
use sql::{Facts, Kind};
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use wire::packet::{self, HEADER, MAX_PAYLOAD};
use wire::reframe::Reframe;
use wire::reply::ReplyKind;
use wire::{Capabilities, codes};

/// The first word of a statement that loads a file.
const LOAD: &[u8] = b"LOAD";

/// What ended a wait while a client's data goes to its server.
enum InfileEvent {
    /// All was sent.
    Sent,
    /// The client sent so many bytes, or could not be read.
    Read(io::Result<usize>),
    Signal(Signal),
    /// It is time to look whether the client is still there.
    Waits,
}

/// The frames of a file, as they pass.
#[derive(Default)]
struct Frames {
    /// The server's number of the next one.
    server_seq: u8,
    /// The client's number of the next one.
    next_seq: u8,
    /// Bytes of the last one that are still to come.
    skip: usize,
    /// The last one was full: the next one goes on with its packet, be it empty.
    goes_on: bool,
    /// The empty packet was met.
    ended: bool,
}

impl Frames {
    /// Looks over the frames at hand up to the end of the file, and renumbers them as the server counts; returns how many bytes
    /// may go.
    fn pass(&mut self, bytes: &mut [u8]) -> usize {
        let mut pos = 0;
        loop {
            let n = self.skip.min(bytes.len() - pos);
            pos += n;
            self.skip -= n;
            if self.skip > 0 || self.ended {
                return pos;
            }
            let Some((len, seq)) = bytes.get(pos..).and_then(packet::header) else { return pos };
            if let Some(byte) = bytes.get_mut(pos + 3) {
                *byte = self.server_seq;
            }
            self.server_seq = self.server_seq.wrapping_add(1);
            self.next_seq = seq.wrapping_add(1);
            pos += HEADER;
            self.ended = len == 0 && !self.goes_on;
            self.goes_on = len == MAX_PAYLOAD;
            self.skip = len;
        }
    }
}

impl Backends {
    /// The server's last word, where it closed the connection for a packet that is longer than it takes.
    pub(super) async fn too_long_for_server(&mut self) -> Option<End> {
        let backend = self.backend.as_mut()?;
        let answer = backend.collect(ReplyKind::Simple, false, &self.worker.buffers);
        let error = guarded(&self.worker, &self.handle, answer).await.ok()?.error;
        error.filter(|error| error.code == codes::NET_PACKET_TOO_LARGE).map(|_| too_large())
    }
}

impl Frontend {
    /// Whether a server may ask for a file of the client's: the client said that it has some, and its text may load one. A text of
    /// several statements, and SET STATEMENT, may if the word is in it; stored programs cannot.
    pub(super) fn may_send_file(&self, plan: &Plan) -> bool {
        let analysis = &plan.analysis;
        self.caps.contains(Capabilities::LOCAL_FILES)
            && match analysis.kind {
                Kind::LoadData | Kind::Execute | Kind::Compound => true,
                kind if kind == Kind::SetStatement || analysis.facts.contains(Facts::MULTI) => {
                    let sent = plan.rewritten.as_deref().unwrap_or(if self.joined.is_empty() { self.input.filled() } else { &self.joined });
                    sent.windows(LOAD.len()).any(|word| word.eq_ignore_ascii_case(LOAD))
                }
                _ => false,
            }
    }

    /// Takes the command out of the input: what follows it there is the file. Its text is kept for what is done when it has ended.
    /// After the first file of several statements nothing is left to take.
    fn make_room_for_file(&mut self) {
        if std::mem::replace(&mut self.streamed_input, true) {
            return;
        }
        let is_kept = !self.joined.is_empty();
        while let Some((len, _)) = packet::header(self.input.filled()) {
            if !is_kept {
                self.joined = self.input.filled().get(HEADER..HEADER + len).unwrap_or_default().to_vec();
            }
            self.input.consume((HEADER + len).min(self.input.len()));
            if len < MAX_PAYLOAD {
                break;
            }
        }
    }

    async fn next_sent(&mut self, at: &mut Backends, sent: &mut usize, n: usize) -> io::Result<InfileEvent> {
        let Backends { backend, handle, .. } = at;
        let input = &self.input;
        let Some(backend) = backend.as_mut() else { return Err(io::ErrorKind::NotConnected.into()) };
        let bytes = input.filled().get(..n).unwrap_or_default();
        let sending = poll_fn(|cx| {
            while let Some(rest) = bytes.get(*sent..).filter(|rest| !rest.is_empty()) {
                match backend.link.poll_send(cx, rest)? {
                    Poll::Ready(taken) => *sent += taken,
                    Poll::Pending => break,
                }
            }
            if *sent >= bytes.len() && backend.link.poll_flush(cx)?.is_ready() {
                return Poll::Ready(Ok(InfileEvent::Sent));
            }
            handle.poll_signal(cx).map_or(Poll::Pending, |signal| Poll::Ready(Ok(InfileEvent::Signal(signal))))
        });
        tokio::time::timeout(LOOK_AGAIN, sending).await.unwrap_or(Ok(InfileEvent::Waits))
    }

    async fn next_read(&mut self, at: &mut Backends) -> io::Result<InfileEvent> {
        let Self { link: front, input, .. } = self;
        let Backends { backend, worker, handle, .. } = at;
        let Some(backend) = backend.as_mut() else { return Err(io::ErrorKind::NotConnected.into()) };
        poll_fn(|cx| {
            if let Poll::Ready(read) = front.poll_read(cx, input, &worker.buffers) {
                return Poll::Ready(Ok(InfileEvent::Read(read)));
            }
            hear(backend, worker, cx)?;
            handle.poll_signal(cx).map_or(Poll::Pending, |signal| Poll::Ready(Ok(InfileEvent::Signal(signal))))
        })
        .await
    }

    /// Sends the first `n` bytes of the input to the server.
    pub(super) async fn send_data(&mut self, at: &mut Backends, hand: &mut AtHand, n: usize) -> Result<(), Fault> {
        let mut sent = 0;
        loop {
            match self.next_sent(at, &mut sent, n).await {
                Ok(InfileEvent::Sent) => return Ok(()),
                Ok(InfileEvent::Signal(signal)) => hand.interrupt(at, signal)?,
                // What it sent may wait to be read, and its end behind that.
                Ok(_) if self.link.stream().is_read_closed() => return Err(End::ClientGone.into()),
                Ok(_) => {}
                Err(e) => {
                    return match Box::pin(at.too_long_for_server()).await {
                        Some(end) => Err(end.into()),
                        None => Err(at.lost_before(&e)),
                    };
                }
            }
        }
    }

    /// Waits for more of the file. A server that answers early is dealt with when the client has sent all of it, and one that is
    /// gone at once.
    async fn read_file(&mut self, at: &mut Backends, hand: &mut AtHand) -> Result<(), Fault> {
        self.input.reserve(self.input.len() + HEADER, &at.worker.buffers);
        loop {
            match self.next_read(at).await {
                Ok(InfileEvent::Read(Ok(0))) => return Err(End::ClientGone.into()),
                Ok(InfileEvent::Read(Ok(_))) => return Ok(()),
                Ok(InfileEvent::Read(Err(e))) => return Err(End::ClientError(e).into()),
                Ok(InfileEvent::Signal(signal)) => hand.interrupt(at, signal)?,
                Ok(_) => {}
                Err(e) => return Err(at.lost_before(&e)),
            }
        }
    }

    /// The server asked for a file and the client was told: passes the client's packets on until the empty one.
    /// The client's command is in the input before the file's packets.
    pub(super) async fn send_clients_file(&mut self, at: &mut Backends, hand: &mut AtHand, reframe: &mut Reframe<'_>) -> Result<(), Fault> {
        self.make_room_for_file();
        let mut frames = Frames { server_seq: reframe.server_seq(), next_seq: reframe.next_seq(), ..Frames::default() };
        loop {
            let n = frames.pass(self.input.filled_mut());
            if n > 0 {
                self.send_data(at, hand, n).await.map_err(answering)?;
                self.input.consume(n);
            }
            if frames.ended {
                break;
            }
            if n == 0 {
                self.read_file(at, hand).await.map_err(answering)?;
            }
        }
        self.command_seq = frames.next_seq;
        reframe.infile_sent(self.answer_seq());
        if at.handle.is_timed_out() {
            reframe.set_timed_out();
        }
        Ok(())
    }
}

/// Keeps what the server says while it is not its turn; an error when it is gone.
fn hear(backend: &mut Backend, worker: &Worker, cx: &mut Context<'_>) -> io::Result<()> {
    while backend.input.len() < CHUNK && backend.link.poll_readable(cx).is_ready() {
        match backend.link.poll_read(cx, &mut backend.input, &worker.buffers)? {
            Poll::Ready(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Poll::Ready(_) => {}
            Poll::Pending => break,
        }
    }
    backend.input.release(&worker.buffers);
    Ok(())
}

/// The client was asked for its file: no other answer to its statement can begin.
fn answering(fault: Fault) -> Fault {
    match fault {
        Fault::Lost { text, pins, .. } => Fault::Lost { certainty: Certainty::Answering, text, pins },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(len: usize, seq: u8) -> Vec<u8> {
        let len_bytes = u32::try_from(len).unwrap_or(0).to_le_bytes();
        let mut frame = vec![len_bytes[0], len_bytes[1], len_bytes[2], seq];
        frame.resize(HEADER + len, b'x');
        frame
    }

    #[test]
    fn an_empty_frame_after_a_full_one_is_not_the_end() {
        let mut file = [frame(MAX_PAYLOAD, 9), frame(0, 10), frame(3, 11), frame(0, 12), b"next".to_vec()].concat();
        let whole = file.len() - 4;
        let mut frames = Frames { server_seq: 2, ..Frames::default() };
        assert_eq!(frames.pass(&mut file), whole);
        assert!(frames.ended);
        assert_eq!((frames.server_seq, frames.next_seq), (6, 13));
        // In pieces, as they come.
        let mut frames = Frames::default();
        let (first, rest) = file.split_at_mut(HEADER + MAX_PAYLOAD + 2);
        assert_eq!(frames.pass(first), HEADER + MAX_PAYLOAD);
        assert!(!frames.ended);
        assert_eq!(frames.pass(&mut [&first[HEADER + MAX_PAYLOAD..], rest].concat()), whole - HEADER - MAX_PAYLOAD);
        assert!(frames.ended);
    }
}
