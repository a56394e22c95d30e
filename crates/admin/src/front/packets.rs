//! Packets over a socket, with or without TLS. Both their length and the time without reads by the peer are limited.
//!
//! Reads never go beyond a packet: the next bytes stay in the kernel. So TLS can begin between two packets, and bytes from before are not
//! taken for encrypted ones.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use wire::packet::{self, HEADER, MAX_PAYLOAD};

/// Written to the socket whenever so many bytes have gathered.
const WRITE_CHUNK: usize = 64 << 10;
/// How long a write may wait for a peer that does not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// A socket, or a test's replacement.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Reads and writes the packets of one connection, and counts their sequence.
pub(super) struct Packets {
    io: Box<dyn Duplex>,
    out: Vec<u8>,
    /// The sequence number of the next packet, either way.
    seq: u8,
}

impl Packets {
    /// Packets over `io`.
    pub(super) fn new(io: impl Duplex + 'static) -> Self {
        Self { io: Box::new(io), out: Vec::new(), seq: 0 }
    }

    /// Answers the client's TLS handshake.
    pub(super) async fn accept_tls(mut self, config: Arc<ServerConfig>) -> io::Result<Self> {
        self.flush().await?;
        let io = TlsAcceptor::from(config).accept(self.io).await?;
        Ok(Self { io: Box::new(io), ..self })
    }

    /// The next command, which begins a new sequence. `None` when the client is gone.
    pub(super) async fn command(&mut self, limit: usize) -> io::Result<Option<Vec<u8>>> {
        self.seq = 0;
        self.read(limit).await
    }

    /// The next payload of the current sequence. `None` when the client is gone.
    ///
    /// # Errors
    /// `InvalidData` for a packet out of order, `FileTooLarge` for a payload beyond `limit` bytes.
    pub(super) async fn read(&mut self, limit: usize) -> io::Result<Option<Vec<u8>>> {
        let mut payload = Vec::new();
        loop {
            let mut head = [0; HEADER];
            match self.io.read_exact(&mut head).await {
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                other => other?,
            };
            let Some((len, seq)) = packet::header(&head) else { return Ok(None) };
            if seq != self.seq {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "packets out of order"));
            }
            self.seq = seq.wrapping_add(1);
            if payload.len() + len > limit {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            let read = (&mut self.io).take(len as u64).read_to_end(&mut payload).await?;
            if read < len {
                return Ok(None);
            }
            if len < MAX_PAYLOAD {
                return Ok(Some(payload));
            }
        }
    }

    /// Adds a payload to what goes out; much of it goes out at once.
    pub(super) async fn put(&mut self, payload: &[u8]) -> io::Result<()> {
        packet::put_packet(&mut self.out, &mut self.seq, payload);
        if self.out.len() >= WRITE_CHUNK { self.flush().await } else { Ok(()) }
    }

    /// Sends a payload and flushes it.
    pub(super) async fn send(&mut self, payload: &[u8]) -> io::Result<()> {
        self.put(payload).await?;
        self.flush().await
    }

    /// Sends all that was put.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        for chunk in self.out.chunks(WRITE_CHUNK) {
            timeout(WRITE_TIMEOUT, self.io.write_all(chunk)).await??;
        }
        timeout(WRITE_TIMEOUT, self.io.flush()).await??;
        self.out.clear();
        self.out.shrink_to(WRITE_CHUNK);
        Ok(())
    }

    /// Says goodbye, as far as the peer listens.
    pub(super) async fn close(mut self) {
        let _ = timeout(Duration::from_secs(1), self.io.shutdown()).await;
    }
}
