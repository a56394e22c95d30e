//! Packets over a TCP, unix or TLS stream, with or without the compressed protocol. Blocking.
//!
//! Sequence numbers are checked on every packet read: a proxy that gets one wrong must not pass a test.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};
use wire::auth::Channel as Secrecy;

use super::options::{Compression, Target};
use super::tls;
use crate::error::{IoContext, LabError};

/// Payloads below this are sent uncompressed inside a compressed frame, as real clients do.
const MIN_COMPRESS: usize = 50;
const MAX_PAYLOAD: usize = wire::packet::MAX_PAYLOAD;

/// The operating system's stream, plain or under TLS.
#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    /// Only while TLS is being put in place.
    Gone,
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(s) => s.read(buf),
            Stream::Unix(s) => s.read(buf),
            Stream::Tls(s) => s.read(buf),
            Stream::Gone => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(s) => s.write(buf),
            Stream::Unix(s) => s.write(buf),
            Stream::Tls(s) => s.write(buf),
            Stream::Gone => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Tcp(s) => s.flush(),
            Stream::Unix(s) => s.flush(),
            Stream::Tls(s) => s.flush(),
            Stream::Gone => Ok(()),
        }
    }
}

/// A connection as a source and sink of packets.
#[derive(Debug)]
pub(super) struct Channel {
    stream: Stream,
    compression: Option<Compression>,
    compressed_seq: u8,
    /// Decompressed bytes not yet taken.
    inflated: Vec<u8>,
    /// The next packet's sequence number, in either direction.
    pub(super) seq: u8,
}

impl Channel {
    pub(super) fn open(target: &Target, timeout: Duration) -> Result<Channel, LabError> {
        let stream = match target {
            Target::Tcp(address) => Stream::Tcp(open_tcp(address, timeout)?),
            Target::Unix(path) => {
                let stream = UnixStream::connect(path).context(|| format!("connect to {}", path.display()))?;
                stream.set_read_timeout(Some(timeout)).context(|| "set a timeout".to_owned())?;
                stream.set_write_timeout(Some(timeout)).context(|| "set a timeout".to_owned())?;
                Stream::Unix(stream)
            }
        };
        Ok(Channel { stream, compression: None, compressed_seq: 0, inflated: Vec::new(), seq: 0 })
    }

    /// Puts TLS on the stream; the server must have read the SSL request.
    pub(super) fn start_tls(&mut self, is_tls12: bool) -> Result<(), LabError> {
        match std::mem::replace(&mut self.stream, Stream::Gone) {
            Stream::Tcp(mut tcp) => {
                let mut session = tls::unverified_session(is_tls12)?;
                session.complete_io(&mut tcp).context(|| "TLS handshake".to_owned())?;
                self.stream = Stream::Tls(Box::new(StreamOwned::new(session, tcp)));
                Ok(())
            }
            other => {
                self.stream = other;
                Err(LabError::Protocol("this client does TLS over TCP only".to_owned()))
            }
        }
    }

    pub(super) fn try_clone_tcp(&self) -> Option<TcpStream> {
        match &self.stream {
            Stream::Tcp(tcp) => tcp.try_clone().ok(),
            _ => None,
        }
    }

    /// The certificate that the server showed (DER); None without TLS.
    pub(super) fn certificate(&self) -> Option<&[u8]> {
        match &self.stream {
            Stream::Tls(tls) => tls.conn.peer_certificates()?.first().map(|cert| &cert[..]),
            _ => None,
        }
    }

    /// The secrecy that passwords may rely on.
    pub(super) fn secrecy(&self) -> Secrecy {
        match self.stream {
            Stream::Tls(_) => Secrecy::Secure,
            Stream::Unix(_) => Secrecy::Local,
            _ => Secrecy::Plain,
        }
    }

    pub(super) fn compress(&mut self, algorithm: Compression) {
        self.compression = Some(algorithm);
    }

    /// A new command: both sequences start again.
    pub(super) fn begin_command(&mut self) {
        self.seq = 0;
        self.compressed_seq = 0;
    }

    /// Sends one payload, split into packets of 16 MiB where needed.
    pub(super) fn send(&mut self, payload: &[u8]) -> Result<(), LabError> {
        let mut bytes = Vec::with_capacity(payload.len() + 4);
        wire::packet::put_packet(&mut bytes, &mut self.seq, payload);
        self.send_bytes(&bytes)
    }

    /// Sends bytes that are packets already (or are wrong on purpose).
    pub(super) fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), LabError> {
        let framed = match self.compression {
            None => bytes.to_vec(),
            Some(algorithm) => {
                let mut out = Vec::new();
                for part in bytes.chunks(MAX_PAYLOAD) {
                    put_compressed(&mut out, &mut self.compressed_seq, algorithm, part)?;
                }
                out
            }
        };
        let sent = self.stream.write_all(&framed).and_then(|()| self.stream.flush());
        sent.context(|| "send".to_owned())
    }

    /// Receives one payload, joined from its packets.
    pub(super) fn recv(&mut self) -> Result<Vec<u8>, LabError> {
        let mut payload = Vec::new();
        loop {
            let mut header = [0_u8; 4];
            self.take(&mut header)?;
            let [a, b, c, seq] = header;
            if seq != self.seq {
                return Err(LabError::Protocol(format!("packet number {seq} where {} was due", self.seq)));
            }
            self.seq = seq.wrapping_add(1);
            let len = usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16;
            let start = payload.len();
            payload.resize(start + len, 0);
            self.take(&mut payload[start..])?;
            if len < MAX_PAYLOAD {
                return Ok(payload);
            }
        }
    }

    /// Closes both directions without a COM_QUIT.
    pub(super) fn shutdown(&mut self) {
        let _ = match &self.stream {
            Stream::Tcp(s) => s.shutdown(std::net::Shutdown::Both),
            Stream::Unix(s) => s.shutdown(std::net::Shutdown::Both),
            Stream::Tls(s) => s.sock.shutdown(std::net::Shutdown::Both),
            Stream::Gone => Ok(()),
        };
    }

    /// The local TCP address, if it is TCP.
    pub(super) fn local_addr(&self) -> Option<SocketAddr> {
        match &self.stream {
            Stream::Tcp(s) => s.local_addr().ok(),
            Stream::Tls(s) => s.sock.local_addr().ok(),
            Stream::Unix(_) | Stream::Gone => None,
        }
    }

    fn take(&mut self, into: &mut [u8]) -> Result<(), LabError> {
        if self.compression.is_none() {
            return self.stream.read_exact(into).context(|| "receive".to_owned());
        }
        while self.inflated.len() < into.len() {
            self.inflate_frame()?;
        }
        into.copy_from_slice(&self.inflated[..into.len()]);
        self.inflated.drain(..into.len());
        Ok(())
    }

    /// Reads one compressed frame. Source: "Compressed Packet" in MySQL's protocol pages.
    fn inflate_frame(&mut self) -> Result<(), LabError> {
        let mut header = [0_u8; 7];
        self.stream.read_exact(&mut header).context(|| "receive".to_owned())?;
        let [a, b, c, seq, d, e, f] = header;
        let length = usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16;
        let plain = usize::from(d) | usize::from(e) << 8 | usize::from(f) << 16;
        self.compressed_seq = seq.wrapping_add(1);
        let mut body = vec![0_u8; length];
        self.stream.read_exact(&mut body).context(|| "receive".to_owned())?;
        if plain == 0 {
            self.inflated.extend_from_slice(&body);
            return Ok(());
        }
        let bytes = match self.compression {
            Some(Compression::Zstd(_)) => zstd::bulk::decompress(&body, plain).context(|| "zstd".to_owned())?,
            _ => {
                let mut bytes = Vec::with_capacity(plain);
                let mut decoder = flate2::read::ZlibDecoder::new(body.as_slice());
                decoder.read_to_end(&mut bytes).context(|| "zlib".to_owned())?;
                bytes
            }
        };
        if bytes.len() != plain {
            return Err(LabError::Protocol(format!("compressed frame says {plain} bytes, holds {}", bytes.len())));
        }
        self.inflated.extend_from_slice(&bytes);
        Ok(())
    }
}

fn open_tcp(address: &str, timeout: Duration) -> Result<TcpStream, LabError> {
    let what = || format!("connect to {address}");
    let resolved = address.to_socket_addrs().context(what)?.next();
    let resolved = resolved.ok_or_else(|| LabError::io(what(), io::ErrorKind::NotFound.into()))?;
    let stream = TcpStream::connect_timeout(&resolved, timeout).context(what)?;
    let set = stream
        .set_nodelay(true)
        .and_then(|()| stream.set_read_timeout(Some(timeout)))
        .and_then(|()| stream.set_write_timeout(Some(timeout)));
    set.context(|| "set up the socket".to_owned())?;
    Ok(stream)
}

fn put_compressed(out: &mut Vec<u8>, seq: &mut u8, algorithm: Compression, part: &[u8]) -> Result<(), LabError> {
    let squeezed = if part.len() < MIN_COMPRESS { None } else { Some(deflate(algorithm, part)?) };
    // A frame that would grow is sent as it is.
    let (body, plain) = match &squeezed {
        Some(bytes) if bytes.len() < part.len() => (bytes.as_slice(), part.len()),
        _ => (part, 0),
    };
    put_u24(out, body.len());
    out.push(*seq);
    put_u24(out, plain);
    out.extend_from_slice(body);
    *seq = seq.wrapping_add(1);
    Ok(())
}

fn deflate(algorithm: Compression, part: &[u8]) -> Result<Vec<u8>, LabError> {
    match algorithm {
        Compression::Zstd(level) => zstd::bulk::compress(part, level).context(|| "zstd".to_owned()),
        Compression::Zlib => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(part).and_then(|()| encoder.finish()).context(|| "zlib".to_owned())
        }
    }
}

fn put_u24(out: &mut Vec<u8>, value: usize) {
    out.extend_from_slice(&value.to_le_bytes()[..3]);
}
