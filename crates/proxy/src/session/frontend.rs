//! The client's side of a session: its socket, what was agreed with it, and where the exchange of packets stands.

use super::backends::Backends;
use super::command::{Incoming, ended};
use super::end::End;
use super::login::{SCRAMBLE, host_of};
use super::long_data::Streamed;
use crate::net::buffer::Buffer;
use crate::net::link::Link;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::Poll;
use wire::flags::{Capabilities, StatusFlags};
use wire::packet::HEADER;
use wire::reframe::{LASTING, TrackFilter};

/// See the module.
pub(super) struct Frontend {
    pub link: Link,
    /// What arrived and was not taken yet.
    pub input: Buffer,
    /// Negotiated with the client.
    pub caps: Capabilities,
    /// Collation id of the client's handshake.
    pub collation: u16,
    pub zstd_level: u8,
    /// Of the greeting; COM_CHANGE_USER proves against it again.
    pub scramble: [u8; SCRAMBLE],
    pub peer: Option<SocketAddr>,
    /// The client's IP address as rules see it; none on a Unix socket.
    pub addr: Option<Box<str>>,
    /// The address that the client connected to, as rules see it.
    pub proxy_addr: Rc<(Box<str>, u16)>,
    /// Status flags as the client last saw them.
    pub status: StatusFlags,
    /// For clients with CLIENT_SESSION_TRACK.
    pub filter: Option<Box<TrackFilter>>,
    /// The client's own `session_track_...` settings, once it changed them.
    pub tracking_wish: Option<Box<TrackFilter>>,
    /// Multi-frame commands, joined.
    pub joined: Vec<u8>,
    /// The command was taken from the input piece by piece: what is left there is not its own.
    pub streamed_input: bool,
    /// Where a streamed command stands.
    pub streamed: Streamed,
    /// The client has a part of an answer of which the rest is not to come.
    pub is_half_told: bool,
    /// Sequence id that follows the command's last frame.
    pub command_seq: u8,
    /// Sequence id of the next packet of a login under way.
    pub login_seq: u8,
}

impl Frontend {
    /// A client that has just logged in.
    pub(super) fn new(link: Link, caps: Capabilities, collation: u16, scramble: [u8; SCRAMBLE], proxy_addr: Rc<(Box<str>, u16)>) -> Self {
        Self {
            link,
            input: Buffer::default(),
            caps,
            collation,
            zstd_level: 0,
            scramble,
            peer: None,
            addr: None,
            proxy_addr,
            status: StatusFlags::AUTOCOMMIT,
            filter: None,
            tracking_wish: None,
            joined: Vec::new(),
            streamed_input: false,
            streamed: Streamed::default(),
            is_half_told: false,
            command_seq: 1,
            login_seq: 0,
        }
    }

    /// Sequence id of the first packet of an answer: it follows the command's last, or that of the compressed frames.
    pub(super) fn answer_seq(&self) -> u8 {
        self.link.frame_seq().unwrap_or(self.command_seq)
    }

    /// Whether an error may follow what the client was sent. The client would read it as the rest of an unfinished answer or packet.
    pub(super) fn may_be_told(&self) -> bool {
        !self.is_half_told && self.link.is_between_packets()
    }

    /// The command's payload without its command byte.
    pub(super) fn body(&self, command: Incoming) -> &[u8] {
        self.payload(command).get(1..).unwrap_or_default()
    }

    /// Its address; none on a Unix socket.
    pub(super) fn ip(&self) -> Option<IpAddr> {
        self.peer.map(|peer| peer.ip())
    }

    /// Status flags for answers of our own: as the server's last ones, less what belonged to that reply.
    pub(super) fn current_status(&self) -> StatusFlags {
        self.status & LASTING
    }

    /// The client's address, as accounts name it.
    pub(super) fn host(&self) -> String {
        host_of(self.peer)
    }

    pub(super) fn is_autocommit_off(&self) -> bool {
        !self.current_status().contains(StatusFlags::AUTOCOMMIT)
    }

    /// The command's payload, command byte first.
    pub(super) fn payload(&self, command: Incoming) -> &[u8] {
        // A command that was followed by a client's file has left the input.
        if command.joined || self.streamed_input {
            return &self.joined;
        }
        self.input.filled().get(HEADER..command.wire_len).unwrap_or_default()
    }

    /// Puts a rule's text in the place of the client's: from here on the command is that.
    pub(super) fn replace_text(&mut self, command: Incoming, start: usize, text: &[u8]) -> Incoming {
        let prefix = self.body(command).get(..start).unwrap_or_default();
        let mut payload = Vec::with_capacity(1 + prefix.len() + text.len());
        payload.push(command.byte);
        payload.extend_from_slice(prefix);
        payload.extend_from_slice(text);
        self.joined = payload;
        Incoming { joined: true, rewritten: true, ..command }
    }

    /// The text of the statement.
    pub(super) fn sql_text(&self, command: Incoming, start: usize) -> &[u8] {
        self.body(command).get(start..).unwrap_or_default()
    }

    /// The command has been dealt with: its bytes go.
    pub(super) fn command_done(&mut self, at: &Backends, command: Incoming) {
        self.input.consume(command.wire_len);
        if !self.joined.is_empty() {
            self.joined = Vec::new();
        }
        if self.input.is_empty() {
            self.input.release(&at.worker.buffers);
        }
    }

    /// Reads more of what a client has begun to send, until `wanted` bytes have room; a session that is killed meanwhile ends.
    pub(super) async fn read_more(&mut self, at: &Backends, wanted: usize) -> Result<(), End> {
        let Self { link: front, input, .. } = self;
        let Backends { worker, handle, .. } = at;
        input.reserve(wanted, &worker.buffers);
        let read = poll_fn(|cx| match front.poll_read(cx, input, &worker.buffers) {
            Poll::Ready(result) => Poll::Ready(result.map_err(End::ClientError)),
            Poll::Pending => ended(handle, cx).map_or(Poll::Pending, |end| Poll::Ready(Err(end))),
        });
        match read.await? {
            0 => Err(End::ClientGone),
            _ => Ok(()),
        }
    }
}
