//! A TLS session: one that began here, which rustls drives, or one that another process began.
//!
//! Of the first kind, the state for another process is kept aside. That is the end of the last received record, and the secrets behind the
//! keys of TLS 1.3, which rustls reports only during the handshake.

use super::carried::{Carried, Cipher, HalfRecord, TlsRecord};
use rustls::{ConnectionTrafficSecrets, ProtocolVersion};
use std::cell::RefCell;
use std::io::{self, Read, Write};
use zeroize::Zeroizing;

/// The traffic secrets of both directions from the handshake of TLS 1.3.
#[derive(Default)]
pub(crate) struct Secrets {
    client: Zeroizing<Vec<u8>>,
    server: Zeroizing<Vec<u8>>,
}

thread_local! {
    /// The secrets of the handshake that this thread works on.
    static LAST: RefCell<Option<Box<Secrets>>> = const { RefCell::new(None) };
}

/// Rustls' name for the client's secret.
const OF_CLIENT: &str = "CLIENT_TRAFFIC_SECRET_0";
const OF_SERVER: &str = "SERVER_TRAFFIC_SECRET_0";

/// Whether a handshake's secret is one that is kept.
pub(crate) fn is_kept(label: &str) -> bool {
    label == OF_CLIENT || label == OF_SERVER
}

/// Keeps a secret of the handshake that this thread is at.
pub(crate) fn keep(label: &str, secret: &[u8]) {
    LAST.with_borrow_mut(|last| {
        let last = last.get_or_insert_default();
        let of = if label == OF_CLIENT { &mut last.client } else { &mut last.server };
        *of = Zeroizing::new(secret.to_vec());
    });
}

/// The last end of a record in the received bytes.
#[derive(Default)]
struct Boundary {
    head: [u8; 5],
    head_len: usize,
    /// Bytes of the record at hand that have not come.
    left: usize,
}

impl Boundary {
    fn pass(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            if self.left > 0 {
                let n = self.left.min(bytes.len());
                self.left -= n;
                bytes = &bytes[n..];
                continue;
            }
            if let Some(place) = self.head.get_mut(self.head_len) {
                *place = *first;
            }
            self.head_len += 1;
            bytes = rest;
            if self.head_len == self.head.len() {
                self.left = usize::from(u16::from_be_bytes([self.head[3], self.head[4]]));
                self.head_len = 0;
            }
        }
    }

    fn is_whole(&self) -> bool {
        self.left == 0 && self.head_len == 0
    }
}

/// Reads, and notes where records end.
struct Noted<'a>(&'a mut dyn Read, &'a mut Boundary);

impl Read for Noted<'_> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        let n = self.0.read(space)?;
        self.1.pass(space.get(..n).unwrap_or_default());
        Ok(n)
    }
}

/// One that began here.
pub struct Begun {
    connection: rustls::Connection,
    boundary: Boundary,
    secrets: Option<Box<Secrets>>,
}

/// See the module.
#[allow(clippy::large_enum_variant)] // whoever has one has it boxed
pub enum Session {
    /// It began here.
    Begun(Begun),
    /// It began in another process, or is to go on in one.
    Carried(Carried),
    /// It could not be made ready for another process, and is over.
    Lost,
}

fn lost() -> io::Error {
    io::Error::other("the TLS session is lost")
}

impl Session {
    /// `connection` must be at the start of its handshake.
    pub fn new(connection: rustls::Connection) -> Self {
        Self::Begun(Begun { connection, boundary: Boundary::default(), secrets: None })
    }

    /// One of another process.
    ///
    /// # Errors
    /// Its keys do not fit.
    pub fn resume(record: TlsRecord) -> io::Result<Self> {
        Carried::new(record).map(Self::Carried)
    }

    /// The connection, where it began here.
    pub fn connection(&self) -> Option<&rustls::Connection> {
        match self {
            Self::Begun(begun) => Some(&begun.connection),
            Self::Carried(_) | Self::Lost => None,
        }
    }

    /// Makes it one that another process can go on with; false while it is not at rest. It goes on here all the same.
    pub fn carry(&mut self) -> bool {
        let Self::Begun(begun) = self else { return matches!(self, Self::Carried(_)) };
        let connection = &begun.connection;
        let is_tls13 = connection.protocol_version() == Some(ProtocolVersion::TLSv1_3);
        let is_at_rest = !connection.is_handshaking() && connection.wants_read() && !connection.wants_write() && begun.boundary.is_whole();
        if !is_at_rest || is_tls13 && begun.secrets.is_none() {
            return false;
        }
        let Self::Begun(begun) = std::mem::replace(self, Self::Lost) else { return false };
        match begun.carried(is_tls13) {
            Ok(carried) => {
                *self = Self::Carried(carried);
                true
            }
            Err(e) => {
                // It said that it was at rest.
                debug_assert!(false, "{e}");
                false
            }
        }
    }

    /// The state for another process; None if it cannot move now.
    pub fn record(&self) -> Option<TlsRecord> {
        match self {
            Self::Carried(carried) => carried.record(),
            Self::Begun(_) | Self::Lost => None,
        }
    }

    /// As rustls' methods of these names.
    pub fn is_handshaking(&self) -> bool {
        matches!(self, Self::Begun(begun) if begun.connection.is_handshaking())
    }

    /// Whether more is to be read before there is something for the caller.
    pub fn wants_read(&self) -> bool {
        match self {
            Self::Begun(begun) => begun.connection.wants_read(),
            Self::Carried(carried) => carried.wants_read(),
            Self::Lost => false,
        }
    }

    /// Whether something is to be sent.
    pub fn wants_write(&self) -> bool {
        match self {
            Self::Begun(begun) => begun.connection.wants_write(),
            Self::Carried(carried) => carried.wants_write(),
            Self::Lost => false,
        }
    }

    /// Reads once from the peer; 0 is its end.
    ///
    /// # Errors
    /// The reader's.
    pub fn read_tls(&mut self, from: &mut dyn Read) -> io::Result<usize> {
        match self {
            Self::Begun(begun) => begun.connection.read_tls(&mut Noted(from, &mut begun.boundary)),
            Self::Carried(carried) => carried.read_tls(from),
            Self::Lost => Err(lost()),
        }
    }

    /// Opens the received records.
    ///
    /// # Errors
    /// The peer broke the protocol. The alert for it then waits to be sent.
    pub fn process_new_packets(&mut self) -> io::Result<()> {
        match self {
            Self::Begun(begun) => {
                let is_new = begun.connection.is_handshaking();
                let opened = begun.connection.process_new_packets();
                if is_new && let Some(secrets) = LAST.take() {
                    begun.secrets = Some(secrets);
                }
                opened.map(drop).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
            }
            Self::Carried(carried) => carried.process_new_packets(),
            Self::Lost => Err(lost()),
        }
    }

    /// Writes once from the bytes that wait to be sent.
    ///
    /// # Errors
    /// The writer's.
    pub fn write_tls(&mut self, to: &mut dyn Write) -> io::Result<usize> {
        match self {
            Self::Begun(begun) => begun.connection.write_tls(to),
            Self::Carried(carried) => carried.write_tls(to),
            Self::Lost => Err(lost()),
        }
    }

    /// Accepts plain bytes to be sent; 0 if earlier ones must be sent first.
    ///
    /// # Errors
    /// They cannot be accepted.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Begun(begun) => begun.connection.writer().write(bytes),
            Self::Carried(carried) => carried.write(bytes),
            Self::Lost => Err(lost()),
        }
    }

    /// Reads plain bytes: 0 is the peer's goodbye.
    ///
    /// # Errors
    /// `WouldBlock` where there are none yet; `UnexpectedEof` where the peer has closed without a goodbye.
    pub fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Begun(begun) => begun.connection.reader().read(space),
            Self::Carried(carried) => carried.read(space),
            Self::Lost => Err(lost()),
        }
    }

    /// Tells the peer that no more is sent.
    pub fn send_close_notify(&mut self) {
        match self {
            Self::Begun(begun) => begun.connection.send_close_notify(),
            Self::Carried(carried) => carried.send_close_notify(),
            Self::Lost => {}
        }
    }
}

impl Begun {
    /// Takes the next keys, as either side may at any time in TLS 1.3, and asks the peer for the same; false in TLS 1.2.
    #[cfg(test)]
    pub(crate) fn refresh_keys(&mut self) -> bool {
        self.connection.refresh_traffic_keys().is_ok()
    }

    fn carried(self, is_tls13: bool) -> Result<Carried, String> {
        let is_server = matches!(self.connection, rustls::Connection::Server(_));
        let extracted = self.connection.dangerous_extract_secrets().map_err(|e| e.to_string())?;
        let Secrets { client, server } = self.secrets.map(|secrets| *secrets).unwrap_or_default();
        let (reads, writes) = if is_server { (client, server) } else { (server, client) };
        let (reads, writes) = (half(extracted.rx, reads)?, half(extracted.tx, writes)?);
        Carried::new(TlsRecord { is_tls13, reads, writes, received: Vec::new() }).map_err(|e| e.to_string())
    }
}

fn half((next, secrets): (u64, ConnectionTrafficSecrets), secret: Zeroizing<Vec<u8>>) -> Result<HalfRecord, String> {
    let (cipher, key, iv) = match &secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Cipher::Aes128Gcm, key, iv),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Cipher::Aes256Gcm, key, iv),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (Cipher::Chacha20Poly1305, key, iv),
        _ => return Err("a cipher that is not known".to_owned()),
    };
    let iv = iv.as_ref().try_into().map_err(|_| "an IV of another length")?;
    Ok(HalfRecord { cipher, key: Zeroizing::new(key.as_ref().to_vec()), iv, next, secret })
}
