//! One client of the load: a non-blocking socket, its login, its one command at a time.
//!
//! Commands are shorter than any socket buffer and only sent when the last reply is complete, so a write always takes all.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use wire::Capabilities;

use super::login::{Login, Step};
use super::reply::{Expect, ReplyReader};
use super::work::{QUIT, Request, Work};
use crate::error::{IoContext, LabError};

/// The state of a connection after bytes arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing yet.
    Waiting,
    /// Logged in and prepared: commands can be sent.
    Ready,
    /// A reply came in full and was right.
    Replied,
}

#[derive(Debug)]
enum Phase {
    Login(Box<Login>),
    Preparing,
    Idle,
    Busy,
}

/// One client.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    phase: Phase,
    reader: ReplyReader,
    request: Request,
    /// When the command in flight was sent; for a new connection, when it began to connect.
    pub since: Instant,
}

impl Connection {
    /// Connects to `address` (loopback: this does not wait) as client number `index`.
    pub fn open(address: SocketAddr, work: &Work, index: usize) -> Result<Connection, LabError> {
        let since = Instant::now();
        let stream = TcpStream::connect(address).context(|| format!("connect to {address}"))?;
        stream.set_nonblocking(true).context(|| "make a socket non-blocking".to_owned())?;
        stream.set_nodelay(true).context(|| "set TCP_NODELAY".to_owned())?;
        let phase = Phase::Login(Box::default());
        Ok(Connection { stream, phase, reader: ReplyReader::new(false), request: Request::new(work, index, 0), since })
    }

    /// Sends the next command. Only when the last is done.
    pub fn send(&mut self, now: Instant) -> Result<(), LabError> {
        let written = self.stream.write(self.request.next_packet());
        self.since = now;
        self.phase = Phase::Busy;
        self.reader.begin(Expect::Result);
        whole(written)
    }

    /// As [`Connection::send`], for a new connection whose clock runs since it began to connect.
    pub fn send_first(&mut self) -> Result<(), LabError> {
        self.send(self.since)
    }

    /// Whether a command can be sent.
    pub fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// Says goodbye; drop it then.
    pub fn quit(&mut self) -> Result<(), LabError> {
        whole(self.stream.write(&QUIT))
    }

    /// Reads once. `work` and `index` are those of [`Connection::open`].
    pub fn on_readable(&mut self, buffer: &mut [u8], work: &Work, index: usize) -> Result<Progress, LabError> {
        let count = match self.stream.read(buffer) {
            Ok(0) => return Err(LabError::Protocol("the peer closed a connection".to_owned())),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Progress::Waiting),
            Err(error) => return Err(LabError::io("read from a peer", error)),
        };
        let bytes = &buffer[..count];
        match &mut self.phase {
            Phase::Busy => self.on_reply(bytes),
            Phase::Login(login) => match login.feed(bytes)? {
                Step::Wait => Ok(Progress::Waiting),
                Step::Send(packet) => whole(self.stream.write(&packet)).map(|()| Progress::Waiting),
                Step::Accepted(capabilities) => self.logged_in(capabilities, work),
            },
            Phase::Preparing => self.on_prepared(bytes, work, index),
            Phase::Idle => Err(LabError::Protocol("bytes that nobody asked for".to_owned())),
        }
    }

    fn on_reply(&mut self, bytes: &[u8]) -> Result<Progress, LabError> {
        let Some(reply) = self.reader.feed(bytes)? else {
            return Ok(Progress::Waiting);
        };
        self.request.check(&reply)?;
        self.phase = Phase::Idle;
        Ok(Progress::Replied)
    }

    fn logged_in(&mut self, capabilities: Capabilities, work: &Work) -> Result<Progress, LabError> {
        self.reader = ReplyReader::new(!capabilities.contains(Capabilities::DEPRECATE_EOF));
        let Some(prepare) = work.to_prepare() else {
            self.phase = Phase::Idle;
            return Ok(Progress::Ready);
        };
        self.reader.begin(Expect::Prepared);
        self.phase = Phase::Preparing;
        whole(self.stream.write(&prepare)).map(|()| Progress::Waiting)
    }

    fn on_prepared(&mut self, bytes: &[u8], work: &Work, index: usize) -> Result<Progress, LabError> {
        let Some(reply) = self.reader.feed(bytes)? else {
            return Ok(Progress::Waiting);
        };
        self.request = Request::new(work, index, reply.statement_id());
        self.phase = Phase::Idle;
        Ok(Progress::Ready)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// A write must have taken everything: nothing sent here is longer than a few hundred bytes.
fn whole(written: io::Result<usize>) -> Result<(), LabError> {
    written.map(|_| ()).context(|| "write to a peer".to_owned())
}
