//! One socket, TCP or Unix, in clear or under TLS, with polled reads and writes.
//!
//! Reads and writes are tried first and wait only when the socket would block. TLS is rustls driven by hand, so that a
//! backend can move between workers ([`Stream::detach`]) and so that idle TLS clients own no more than rustls' state.

use crate::net::buffer::{Buffer, BufferPool};
use rustix::net::{self, RecvFlags, SendFlags};
use rustls::{ClientConnection, ServerConnection};
use serde::{Deserialize, Serialize};
use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::pin::pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
#[cfg(feature = "sim")]
use tokio::io::ReadBuf;
use tokio::io::{Interest, Ready};
use tokio::net::{TcpStream, UnixStream};
use wire::auth::Channel;

/// The plain socket under a stream.
pub(crate) enum Socket {
    /// TCP with TCP_NODELAY on.
    Tcp(TcpStream),
    /// A Unix stream socket.
    Unix(UnixStream),
    /// The simulator's.
    #[cfg(feature = "sim")]
    Memory(Box<dyn crate::sim::Pipe>),
}

/// A socket that belongs to no runtime, on its way to another worker or process.
pub enum DetachedSocket {
    /// TCP.
    Tcp(std::net::TcpStream),
    /// Unix.
    Unix(std::os::unix::net::UnixStream),
    /// The simulator's.
    #[cfg(feature = "sim")]
    Memory(Box<dyn crate::sim::Pipe>),
}

/// A stream that belongs to no runtime.
pub(crate) struct DetachedStream {
    socket: DetachedSocket,
    tls: Option<Box<tls::Session>>,
}

/// What another process needs to know of a stream, besides its socket.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamRecord {
    tls: Option<tls::TlsRecord>,
}

impl StreamRecord {
    /// The stream over this socket.
    ///
    /// # Errors
    /// The system's words, or that the keys do not fit.
    pub(crate) fn attach(self, socket: DetachedSocket) -> io::Result<Stream> {
        let tls = self.tls.map(tls::Session::resume).transpose()?.map(Box::new);
        Ok(Stream { socket: socket.attach()?, tls })
    }
}

/// A socket with optional TLS on it.
pub(crate) struct Stream {
    socket: Socket,
    tls: Option<Box<tls::Session>>,
}

impl Socket {
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(s) => s.poll_read_ready(cx),
            Self::Unix(s) => s.poll_read_ready(cx),
            #[cfg(feature = "sim")]
            Self::Memory(s) => s.poll_read_ready(cx).map(Ok),
        }
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(s) => s.poll_write_ready(cx),
            Self::Unix(s) => s.poll_write_ready(cx),
            #[cfg(feature = "sim")]
            Self::Memory(s) => s.poll_write_ready(cx).map(Ok),
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, space: &mut [u8]) -> Poll<io::Result<usize>> {
        #[cfg(feature = "sim")]
        if let Self::Memory(s) = self {
            let mut buf = ReadBuf::new(space);
            ready!(s.poll_read(cx, &mut buf))?;
            return Poll::Ready(Ok(buf.filled().len()));
        }
        let len = space.len();
        loop {
            ready!(self.poll_read_ready(cx))?;
            let receive = |socket: BorrowedFd<'_>| net::recv(socket, &mut *space, RecvFlags::empty()).map(|(n, _)| n);
            if let Some(result) = self.once(Interest::READABLE, len, receive) {
                return Poll::Ready(result);
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        #[cfg(feature = "sim")]
        if let Self::Memory(s) = self {
            return s.poll_write(cx, bytes);
        }
        loop {
            ready!(self.poll_write_ready(cx))?;
            if let Some(result) = self.try_write(bytes) {
                return Poll::Ready(result);
            }
        }
    }

    /// Writes as much as there is room for; None when there is none.
    fn try_write(&self, bytes: &[u8]) -> Option<io::Result<usize>> {
        self.once(Interest::WRITABLE, bytes.len(), |socket| net::send(socket, bytes, SendFlags::NOSIGNAL))
    }

    /// Tries what the runtime thinks can be done; None when it cannot. What takes or gives less than `len` bytes also tells the
    /// runtime to wait for the next readiness event, which saves the system call that would only say "would block". The
    /// calls are the kernel's own: those of the C library would be points where a thread may be cancelled, which costs as much as
    /// all else that is done for them here.
    fn once(
        &self,
        interest: Interest,
        len: usize,
        call: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Option<io::Result<usize>> {
        let mut done = None;
        let attempt = |socket: BorrowedFd<'_>| {
            let n = call(socket)?;
            done = Some(n);
            if 0 < n && n < len { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        };
        let tried = match self {
            Self::Tcp(s) => s.try_io(interest, || attempt(s.as_fd())),
            Self::Unix(s) => s.try_io(interest, || attempt(s.as_fd())),
            #[cfg(feature = "sim")]
            Self::Memory(_) => Err(io::ErrorKind::Unsupported.into()),
        };
        match (done, tried) {
            (Some(n), _) => Some(Ok(n)),
            (None, Err(e)) if e.kind() == io::ErrorKind::WouldBlock => None,
            (None, tried) => Some(tried.map(|()| 0)),
        }
    }

    /// The peer has sent its last byte, though there may be some that were not read yet.
    fn is_read_closed(&self) -> bool {
        let is_closed = |ready: Poll<io::Result<Ready>>| matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed());
        let mut cx = Context::from_waker(Waker::noop());
        match self {
            Self::Tcp(s) => is_closed(pin!(s.ready(Interest::READABLE)).poll(&mut cx)),
            Self::Unix(s) => is_closed(pin!(s.ready(Interest::READABLE)).poll(&mut cx)),
            #[cfg(feature = "sim")]
            Self::Memory(_) => false,
        }
    }

    /// Whether nothing waits to be read and the peer has not closed. That the runtime takes the socket to be readable proves nothing:
    /// a read that filled its space exactly leaves it so. Then the kernel is asked, and the runtime learns its answer.
    fn is_silent(&self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        let mut byte = [0];
        while let Poll::Ready(known) = self.poll_read_ready(&mut cx) {
            let peek = |socket: BorrowedFd<'_>| net::recv(socket, &mut byte[..], RecvFlags::PEEK).map(|(n, _)| n);
            if known.is_err() || self.once(Interest::READABLE, 1, peek).is_some() {
                return false;
            }
        }
        true
    }

    fn detach(self) -> io::Result<DetachedSocket> {
        Ok(match self {
            Self::Tcp(s) => DetachedSocket::Tcp(s.into_std()?),
            Self::Unix(s) => DetachedSocket::Unix(s.into_std()?),
            #[cfg(feature = "sim")]
            Self::Memory(s) => DetachedSocket::Memory(s),
        })
    }
}

impl DetachedSocket {
    /// A connected socket of another process.
    ///
    /// # Errors
    /// The system's words.
    pub fn given(socket: OwnedFd) -> io::Result<Self> {
        let is_unix = socket2::SockRef::from(&socket).local_addr()?.is_unix();
        Ok(if is_unix { Self::Unix(socket.into()) } else { Self::Tcp(socket.into()) })
    }

    /// Its descriptor, for another process.
    ///
    /// # Errors
    /// The simulator's has none.
    pub fn into_descriptor(self) -> io::Result<OwnedFd> {
        match self {
            Self::Tcp(socket) => Ok(socket.into()),
            Self::Unix(socket) => Ok(socket.into()),
            #[cfg(feature = "sim")]
            Self::Memory(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Registers the socket with the runtime of the calling thread.
    pub(crate) fn attach(self) -> io::Result<Socket> {
        Ok(match self {
            Self::Tcp(s) => {
                s.set_nonblocking(true)?;
                Socket::Tcp(TcpStream::from_std(s)?)
            }
            Self::Unix(s) => {
                s.set_nonblocking(true)?;
                Socket::Unix(UnixStream::from_std(s)?)
            }
            #[cfg(feature = "sim")]
            Self::Memory(s) => Socket::Memory(s),
        })
    }
}

impl DetachedStream {
    /// Registers the stream with the runtime of the calling thread.
    pub(crate) fn attach(self) -> io::Result<Stream> {
        Ok(Stream { socket: self.socket.attach()?, tls: self.tls })
    }
}

/// Lets rustls, which reads through `std::io`, read a readiness-driven socket: "would block" is what [`Poll::Pending`] is. As
/// with [`Socket::poll_read`], a short read leaves the socket known to be empty.
struct Polled<'a, 'b>(&'a mut Socket, &'a mut Context<'b>);

impl Read for Polled<'_, '_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.0.poll_read(self.1, buf) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// The same for what it writes; whoever waits for room asks the socket.
struct NonBlocking<'a>(&'a Socket);

impl Write for NonBlocking<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.try_write(buf).unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream {
    /// A stream in clear.
    pub(crate) fn new(socket: Socket) -> Self {
        Self { socket, tls: None }
    }

    /// True under TLS or on a Unix socket: a password may pass in clear.
    pub(crate) fn is_secure(&self) -> bool {
        self.tls.is_some() || matches!(self.socket, Socket::Unix(_))
    }

    /// What passwords may pass on.
    pub(crate) fn channel(&self) -> Channel {
        match &self.socket {
            _ if self.tls.is_some() => Channel::Secure,
            Socket::Unix(_) => Channel::Local,
            _ => Channel::Plain,
        }
    }

    /// Our end of a TCP connection.
    pub(crate) fn local_addr(&self) -> Option<std::net::SocketAddr> {
        match &self.socket {
            Socket::Tcp(socket) => socket.local_addr().ok(),
            Socket::Unix(_) => None,
            #[cfg(feature = "sim")]
            Socket::Memory(_) => None,
        }
    }

    /// The server's end of a TCP connection.
    pub(crate) fn peer_ip(&self) -> Option<std::net::IpAddr> {
        match &self.socket {
            Socket::Tcp(socket) => socket.peer_addr().ok().map(|address| address.ip()),
            Socket::Unix(_) => None,
            #[cfg(feature = "sim")]
            Socket::Memory(_) => None,
        }
    }

    /// The descriptor's number, for operators.
    pub(crate) fn descriptor(&self) -> i32 {
        match &self.socket {
            Socket::Tcp(socket) => socket.as_raw_fd(),
            Socket::Unix(socket) => socket.as_raw_fd(),
            #[cfg(feature = "sim")]
            Socket::Memory(_) => -1,
        }
    }

    /// Closes both directions at once, whatever is under way: the peer and whoever waits for bytes notice.
    pub(crate) fn shutdown(&self) {
        let done = match &self.socket {
            Socket::Tcp(socket) => socket2::SockRef::from(socket).shutdown(std::net::Shutdown::Both),
            Socket::Unix(socket) => socket2::SockRef::from(socket).shutdown(std::net::Shutdown::Both),
            #[cfg(feature = "sim")]
            Socket::Memory(pipe) => pipe.shutdown(),
        };
        if let Err(e) = done {
            tracing::debug!("a connection was closed already: {e}");
        }
    }

    /// What the peer has not acknowledged when the connection is closed is not sent any more.
    pub(crate) fn forget_unsent(&self) {
        if let Socket::Tcp(socket) = &self.socket
            && let Err(e) = socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO))
        {
            tracing::debug!("SO_LINGER: {e}");
        }
    }

    /// Whether the peer has sent its last byte, though some may wait to be read. Where bytes wait, reading does not tell.
    pub(crate) fn is_read_closed(&self) -> bool {
        self.socket.is_read_closed()
    }

    /// Whether nothing is to be read and the peer has not closed. Costs no system call where the runtime knows so. Never decide
    /// that by [`Stream::poll_readable`]: it may be ready where nothing waits.
    pub(crate) fn is_silent(&mut self) -> bool {
        match self.tls {
            // All that waits is read there, until the kernel has nothing more.
            Some(_) => self.poll_readable(&mut Context::from_waker(Waker::noop())).is_pending(),
            None => self.socket.is_silent(),
        }
    }

    /// Asks the kernel whether nothing waits to be read, and the peer has not closed: for a socket that its runtime was given just
    /// now, which does not know yet.
    pub(crate) fn is_silent_to_kernel(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let looked = match &self.socket {
            Socket::Tcp(socket) => socket2::SockRef::from(socket).peek(&mut byte),
            Socket::Unix(socket) => socket2::SockRef::from(socket).peek(&mut byte),
            #[cfg(feature = "sim")]
            Socket::Memory(pipe) => return pipe.poll_read_ready(&mut Context::from_waker(Waker::noop())).is_pending(),
        };
        looked.is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
    }

    /// A copy of the socket, for another process: it is closed when all copies are.
    ///
    /// # Errors
    /// The process has too many open.
    pub(crate) fn copy(&self) -> io::Result<DetachedSocket> {
        Ok(match &self.socket {
            Socket::Tcp(socket) => DetachedSocket::Tcp(socket.as_fd().try_clone_to_owned()?.into()),
            Socket::Unix(socket) => DetachedSocket::Unix(socket.as_fd().try_clone_to_owned()?.into()),
            #[cfg(feature = "sim")]
            Socket::Memory(pipe) => DetachedSocket::Memory(pipe.copy()),
        })
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The TLS session that began here, if any.
    pub(crate) fn tls(&self) -> Option<&rustls::Connection> {
        self.tls.as_deref().and_then(tls::Session::connection)
    }

    /// Makes it one that another process can go on with; false while it is not at rest.
    pub(crate) fn carry(&mut self) -> bool {
        self.tls.as_deref_mut().is_none_or(tls::Session::carry)
    }

    /// What another process needs to know of it, besides the socket; None where it cannot go now.
    pub(crate) fn record(&self) -> Option<StreamRecord> {
        match &self.tls {
            None => Some(StreamRecord { tls: None }),
            Some(tls) => tls.record().map(|tls| StreamRecord { tls: Some(tls) }),
        }
    }

    /// Takes the stream from this thread's runtime.
    pub(crate) fn detach(self) -> io::Result<DetachedStream> {
        Ok(DetachedStream { socket: self.socket.detach()?, tls: self.tls })
    }

    /// Accepts TLS from the client; `early` holds bytes that came in the same segment as the SSLRequest.
    pub(crate) async fn accept_tls(&mut self, connection: ServerConnection, early: &[u8]) -> io::Result<()> {
        self.handshake(rustls::Connection::Server(connection), early).await
    }

    /// Opens TLS towards a server.
    pub(crate) async fn connect_tls(&mut self, connection: ClientConnection) -> io::Result<()> {
        self.handshake(rustls::Connection::Client(connection), &[]).await
    }

    async fn handshake(&mut self, connection: rustls::Connection, mut early: &[u8]) -> io::Result<()> {
        let mut tls = Box::new(tls::Session::new(connection));
        while !early.is_empty() {
            tls.read_tls(&mut early)?;
            tls.process_new_packets()?;
        }
        self.tls = Some(tls);
        loop {
            self.flush().await?;
            let Some(tls) = self.tls.as_mut() else { return Ok(()) };
            if !tls.is_handshaking() {
                return Ok(());
            }
            let socket = &mut self.socket;
            poll_fn(|cx| fill_tls(socket, tls, cx)).await?;
        }
    }

    /// Ready when bytes (or the end of the stream) may wait: worth a read, which says whether they do. Costs no system call, but
    /// under TLS: there bytes are taken in as far as they are the protocol's own, such as a session ticket, which are nothing to read.
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(tls) = self.tls.as_mut() else { return self.socket.poll_read_ready(cx).map(|_| ()) };
        while tls.wants_read() {
            if !matches!(ready!(fill_tls(&mut self.socket, tls, cx)), Ok(n) if n > 0) {
                // The next read says how it ended.
                break;
            }
        }
        Poll::Ready(())
    }

    /// Reads into `buffer`'s space; 0 is the end of the stream.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer, pool: &BufferPool) -> Poll<io::Result<usize>> {
        let Some(tls) = self.tls.as_mut() else {
            let n = ready!(self.socket.poll_read(cx, buffer.space(pool)))?;
            buffer.advance(n);
            return Poll::Ready(Ok(n));
        };
        loop {
            match tls.read(buffer.space(pool)) {
                Ok(n) => {
                    buffer.advance(n);
                    return Poll::Ready(Ok(n));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                // A peer that closes without close_notify: the end, as for a plain socket.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Poll::Ready(Ok(0)),
                Err(e) => return Poll::Ready(Err(e)),
            }
            if ready!(fill_tls(&mut self.socket, tls, cx))? == 0 {
                return Poll::Ready(Ok(0));
            }
        }
    }

    /// Takes as many of `bytes` as there is room for; TLS may hold them back until [`Stream::poll_flush`].
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let Some(tls) = self.tls.as_mut() else {
            return self.socket.poll_write(cx, bytes);
        };
        loop {
            let n = tls.write(bytes)?;
            if n > 0 {
                return Poll::Ready(Ok(n));
            }
            ready!(drain_tls(&self.socket, tls, cx))?;
        }
    }

    /// Sends what TLS holds back; nothing to do in clear.
    async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// The same, polled.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.tls.as_mut() {
            Some(tls) => drain_tls(&self.socket, tls, cx),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Says goodbye to the TLS peer as far as that goes without waiting.
    pub(crate) fn close_notify(&mut self) {
        if let Some(tls) = self.tls.as_mut() {
            tls.send_close_notify();
            let _ = tls.write_tls(&mut NonBlocking(&self.socket));
        }
    }
}

/// Reads TLS records from the socket into rustls; 0 is the end of the stream.
fn fill_tls(socket: &mut Socket, tls: &mut tls::Session, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
    match tls.read_tls(&mut Polled(socket, cx)) {
        Ok(n) => {
            if let Err(e) = tls.process_new_packets() {
                // The peer should learn which alert ended the connection.
                let _ = tls.write_tls(&mut NonBlocking(socket));
                return Poll::Ready(Err(e));
            }
            Poll::Ready(Ok(n))
        }
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        Err(e) => Poll::Ready(Err(e)),
    }
}

fn drain_tls(socket: &Socket, tls: &mut tls::Session, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    while tls.wants_write() {
        match tls.write_tls(&mut NonBlocking(socket)) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => ready!(socket.poll_write_ready(cx))?,
            Err(e) => return Poll::Ready(Err(e)),
        }
    }
    Poll::Ready(Ok(()))
}

/// A peer that breaks the protocol.
pub(crate) fn invalid(e: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, e)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_waits_is_seen_before_the_runtime_has_looked() {
        let attached = |socket: std::os::unix::net::UnixStream| Stream::new(DetachedSocket::Unix(socket).attach().unwrap());
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        let near = attached(near);
        assert!(near.is_silent_to_kernel());
        drop(far);
        assert!(!near.is_silent_to_kernel());
        let (near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
        far.write_all(b"!").unwrap();
        assert!(!attached(near).is_silent_to_kernel());
    }
}
