//! A small blocking client for the admin port and for servers of a replay: log in, ask, read text rows, or pass replies on as they come. Over TCP it speaks TLS where the port offers that. Without, the
//! password is proven by a scramble or goes out under RSA, never in clear.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use model::settings::BackendSslVerify;
use model::snapshot::TlsParams;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use wire::auth::Channel;
use wire::auth::client::{ClientAuth, ClientSecret, ClientStep};
use wire::codec::Reader;
use wire::handshake::{Greeting, HandshakeResponse, SslRequest};
use wire::message::{EOF, ERR, ErrPacket, OK};
use wire::packet::{self, HEADER, MAX_PAYLOAD};
use wire::{Capabilities, query};

use crate::reply::Reply;

/// Limit for connecting and for each read and write.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The largest packet that a server is told to send, bytes.
const MAX_PACKET: u32 = 64 << 20;
/// For all that is said until the login is over.
const LOGIN: Limit = Limit { bytes: 1 << 20, time: Duration::from_secs(30) };
/// Most columns of an answer.
const COLUMNS: usize = 4_096;
/// Memory of a row and of a value beside the bytes that came, bytes.
const OVERHEAD: usize = 32;
/// utf8mb4_general_ci.
const COLLATION: u8 = 45;
/// The capabilities that the login asks for.
const WANTED: Capabilities = Capabilities::LOGIN.union(Capabilities::DEPRECATE_EOF);

/// One value; `None` is NULL.
pub type Field = Option<String>;

/// How much of an answer is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Memory for a whole answer, bytes.
    pub bytes: u64,
    /// Time for a whole answer.
    pub time: Duration,
}

/// Why nothing more can be asked on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// An answer had more bytes than its limit.
    TooLong,
    /// Anything else.
    Lost,
}

/// A socket that is read up to a time: a limit for each read is none for all of them.
struct Timed<S> {
    socket: S,
    until: Instant,
}

impl<S> Timed<S> {
    fn new(socket: S) -> Self {
        Self { socket, until: Instant::now() + LOGIN.time }
    }
}

impl<S: Read> Read for Timed<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if Instant::now() >= self.until {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the reply was not complete in time"));
        }
        self.socket.read(buffer)
    }
}

impl<S: Write> Write for Timed<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// How bytes get there.
enum Line {
    Unix(Timed<UnixStream>),
    Tcp(Timed<TcpStream>),
    Tls(Box<StreamOwned<ClientConnection, Timed<TcpStream>>>),
    /// TLS could not begin.
    Lost,
}

impl Line {
    fn channel(&self) -> Channel {
        if matches!(self, Self::Tcp(_)) { Channel::Plain } else { Channel::Secure }
    }

    /// How long a single read may take.
    fn wait_at_most(&mut self, time: Duration) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.socket.set_read_timeout(Some(time)),
            Self::Tcp(socket) => socket.socket.set_read_timeout(Some(time)),
            Self::Tls(stream) => stream.sock.socket.set_read_timeout(Some(time)),
            Self::Lost => Ok(()),
        }
    }

    fn read_until(&mut self, until: Instant) {
        match self {
            Self::Unix(socket) => socket.until = until,
            Self::Tcp(socket) => socket.until = until,
            Self::Tls(stream) => stream.sock.until = until,
            Self::Lost => {}
        }
    }
}

impl Read for Line {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.read(buffer),
            Self::Tcp(socket) => socket.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
            Self::Lost => Ok(0),
        }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.write(bytes),
            Self::Tcp(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
            Self::Lost => Ok(0),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Self::Tls(stream) = self { stream.flush() } else { Ok(()) }
    }
}

/// A connection that is logged in.
pub struct Client {
    line: Line,
    caps: Capabilities,
    seq: u8,
    limit: Limit,
    /// Bytes of the limit that are left.
    left: u64,
    fault: Option<Fault>,
}

impl Client {
    /// Connects to `host:port`, or to a Unix socket if `target` has a slash. Over TCP, TLS is used if the server offers it, with any
    /// certificate. With `ca`, TLS is required, with a certificate from the CAs of that file.
    pub fn connect(target: &str, user: &str, password: &str, ca: Option<&Path>) -> Result<Self> {
        Self::connect_with(target, user, password, ca, Capabilities::empty())
    }

    /// The same with further capabilities, as far as the server has them.
    pub fn connect_with(target: &str, user: &str, password: &str, ca: Option<&Path>, more: Capabilities) -> Result<Self> {
        let line = open(target).with_context(|| format!("cannot connect to {target}"))?;
        let mut client = Self { line, caps: more, seq: 0, limit: LOGIN, left: LOGIN.bytes, fault: None };
        client.log_in(user, password, ca).with_context(|| format!("cannot log in to {target}"))?;
        Ok(client)
    }

    /// Begins TLS, if this is TCP, and the port offers it.
    fn secure(&mut self, offered: Capabilities, ca: Option<&Path>) -> Result<()> {
        if !matches!(self.line, Line::Tcp(_)) {
            return Ok(());
        }
        if !offered.contains(Capabilities::SSL) {
            return if ca.is_some() { bail!("the peer offers no TLS") } else { Ok(()) };
        }
        self.caps |= Capabilities::SSL;
        let mut payload = Vec::new();
        SslRequest { capabilities: self.caps, max_packet: MAX_PACKET, collation: COLLATION }.write(&mut payload);
        self.send(&payload)?;
        let verify = if ca.is_some() { BackendSslVerify::Ca } else { BackendSslVerify::Off };
        let config =
            tls::to_service(&TlsParams { ca: ca.map(Path::to_owned), verify, ..TlsParams::default() }).map_err(|why| anyhow!(why))?;
        // Proxies are listed by any of their names: none is asked for.
        let connection = ClientConnection::new(config, ServerName::IpAddress(IpAddr::from(Ipv4Addr::UNSPECIFIED).into()))?;
        if let Line::Tcp(socket) = std::mem::replace(&mut self.line, Line::Lost) {
            self.line = Line::Tls(Box::new(StreamOwned::new(connection, socket)));
        }
        Ok(())
    }

    fn log_in(&mut self, user: &str, password: &str, ca: Option<&Path>) -> Result<()> {
        let first = self.receive()?;
        self.check(&first)?;
        let greeting = Greeting::parse(&first)?;
        self.caps = (WANTED | self.caps) & greeting.capabilities;
        self.secure(greeting.capabilities, ca)?;
        let channel = self.line.channel();
        let mut auth = ClientAuth::new(ClientSecret::Clear(password.as_bytes()), channel);
        let answer = auth.begin(&greeting.plugin, &greeting.scramble)?;
        let mut payload = Vec::new();
        HandshakeResponse {
            capabilities: self.caps,
            max_packet: MAX_PACKET,
            collation: COLLATION,
            user: user.as_bytes(),
            auth_response: &answer.response,
            schema: None,
            plugin: Some(answer.plugin.name().as_bytes()),
            attributes: &[],
            zstd_level: 0,
        }
        .write(&mut payload);
        self.send(&payload)?;
        loop {
            let payload = self.receive()?;
            match auth.feed(&payload)? {
                ClientStep::Send(answer) => self.send(&answer)?,
                ClientStep::Wait => {}
                ClientStep::Accepted => return Ok(()),
                ClientStep::Refused => self.check(&payload)?,
            }
        }
    }

    /// Why this connection is of no more use, if so.
    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// The rows of a statement; none for one without rows. A refusal is an error that leaves the connection usable.
    pub fn rows(&mut self, sql: &str, limit: Limit) -> Result<Result<Vec<Vec<Field>>, String>> {
        (self.limit, self.left) = (limit, limit.bytes);
        self.line.read_until(Instant::now() + limit.time);
        let rows = self.ask(sql);
        if rows.is_err() {
            // The rest of the answer may still come.
            self.fault = self.fault.or(Some(Fault::Lost));
        }
        rows
    }

    /// What both sides agreed upon.
    pub fn capabilities(&self) -> Capabilities {
        self.caps
    }

    /// Sends a command, which begins with its byte, without waiting for anything.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn send_command(&mut self, payload: &[u8]) -> Result<()> {
        self.seq = 0;
        self.send(payload)
    }

    /// Passes the bytes of a reply on as they come, until `hears` says that it is complete. At most `within` passes between two pieces.
    ///
    /// # Errors
    /// The connection is lost, or the server was silent for too long.
    pub fn hear_reply(&mut self, within: Duration, hears: &mut dyn FnMut(&[u8]) -> bool) -> Result<()> {
        let mut buffer = vec![0; 16 << 10];
        self.line.wait_at_most(within)?;
        loop {
            self.line.read_until(Instant::now() + within);
            let read = self.line.read(&mut buffer)?;
            if read == 0 {
                bail!("the connection was cut");
            }
            if hears(buffer.get(..read).unwrap_or_default()) {
                return Ok(());
            }
        }
    }

    fn ask(&mut self, sql: &str) -> Result<Result<Vec<Vec<Field>>, String>> {
        self.seq = 0;
        let mut payload = Vec::new();
        query::put_query(&mut payload, sql.as_bytes(), self.caps);
        self.send(&payload)?;
        let first = self.receive()?;
        match first.first() {
            Some(&ERR) => return Ok(Err(self.error_text(&first)?)),
            Some(&OK) | None => return Ok(Ok(Vec::new())),
            Some(_) => {}
        }
        let columns = usize::try_from(Reader::new(&first).lenenc()?)?;
        if columns > COLUMNS {
            bail!("an answer has {columns} columns");
        }
        let ends = if self.caps.contains(Capabilities::DEPRECATE_EOF) { 0 } else { 1 };
        for _ in 0..columns + ends {
            self.receive()?;
        }
        let mut rows = Vec::new();
        loop {
            let payload = self.receive()?;
            match payload.first() {
                Some(&EOF) if payload.len() < MAX_PAYLOAD => return Ok(Ok(rows)),
                Some(&ERR) => return Ok(Err(self.error_text(&payload)?)),
                _ => {
                    self.take(OVERHEAD * (1 + columns))?;
                    rows.push(row(&payload, columns)?);
                }
            }
        }
    }

    fn check(&self, payload: &[u8]) -> Result<()> {
        if payload.first() == Some(&ERR) {
            bail!("{}", self.error_text(payload)?);
        }
        Ok(())
    }

    fn error_text(&self, payload: &[u8]) -> Result<String> {
        let error = ErrPacket::parse(payload, self.caps)?;
        Ok(format!("{} ({})", Reply::reason(&String::from_utf8_lossy(error.message)), error.code))
    }

    fn send(&mut self, payload: &[u8]) -> Result<()> {
        let mut out = Vec::new();
        packet::put_packet(&mut out, &mut self.seq, payload);
        self.line.write_all(&out)?;
        Ok(self.line.flush()?)
    }

    /// Counts the bytes of an answer, and fails beyond the limit.
    fn take(&mut self, bytes: usize) -> Result<()> {
        match self.left.checked_sub(u64::try_from(bytes)?) {
            Some(left) => self.left = left,
            None => {
                self.fault = Some(Fault::TooLong);
                bail!("an answer has more than {} bytes", self.limit.bytes);
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<Vec<u8>> {
        let mut payload = Vec::new();
        loop {
            let mut head = [0; HEADER];
            self.line.read_exact(&mut head)?;
            let (len, seq) = packet::header(&head).context("no packet header")?;
            self.seq = seq.wrapping_add(1);
            self.take(HEADER + len)?;
            let read = (&mut self.line).take(len as u64).read_to_end(&mut payload)?;
            if read < len {
                bail!("the connection was cut");
            }
            if len < MAX_PAYLOAD {
                return Ok(payload);
            }
        }
    }
}

fn row(payload: &[u8], columns: usize) -> Result<Vec<Field>> {
    let mut reader = Reader::new(payload);
    let mut fields = Vec::with_capacity(columns);
    for _ in 0..columns {
        let len = reader.lenenc_opt()?;
        fields.push(match len {
            Some(len) => Some(String::from_utf8_lossy(reader.bytes(usize::try_from(len)?)?).into_owned()),
            None => None,
        });
    }
    Ok(fields)
}

fn open(target: &str) -> Result<Line> {
    if target.contains('/') {
        let socket = UnixStream::connect(target)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_write_timeout(Some(TIMEOUT))?;
        return Ok(Line::Unix(Timed::new(socket)));
    }
    let address = target.to_socket_addrs()?.next().context("the name has no address")?;
    let socket = TcpStream::connect_timeout(&address, TIMEOUT)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.set_write_timeout(Some(TIMEOUT))?;
    Ok(Line::Tcp(Timed::new(socket)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::thread;
    use wire::message::OkPacket;

    const LIMIT: Limit = Limit { bytes: 100_000, time: Duration::from_secs(20) };
    /// Writes an answer's packets through the function that it gets.
    type Answer = fn(&mut dyn FnMut(&[u8]) -> io::Result<()>);

    /// The client's result of a question, with `answer` from a server that accepts any login. Also the time that it took.
    fn asked(limit: Limit, answer: Answer) -> (Result<usize>, Client, Duration) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let capabilities = Capabilities::LOGIN | Capabilities::DEPRECATE_EOF;
            let (plugin, scramble) = (b"mysql_native_password".to_vec(), vec![7; 20]);
            let greeting = Greeting { capabilities, plugin, scramble, server_version: b"8".to_vec(), ..Greeting::default() };
            let (mut payload, mut seq, mut out, mut input) = (Vec::new(), 0, Vec::new(), [0; 4_096]);
            greeting.write(&mut payload);
            packet::put_packet(&mut out, &mut seq, &payload);
            socket.write_all(&out).unwrap();
            let _ = socket.read(&mut input).unwrap();
            (payload, out, seq) = (Vec::new(), Vec::new(), 2);
            OkPacket::default().write(&mut payload, OK, capabilities);
            packet::put_packet(&mut out, &mut seq, &payload);
            socket.write_all(&out).unwrap();
            let _ = socket.read(&mut input).unwrap();
            let mut seq = 1;
            answer(&mut |payload| {
                let mut out = Vec::new();
                packet::put_packet(&mut out, &mut seq, payload);
                // Byte by byte, so that each read has something.
                out.chunks(payload.len().clamp(1, 4)).try_for_each(|some| socket.write_all(some))
            });
        });
        let mut client = Client::connect(&path.display().to_string(), "me", "secret", None).unwrap();
        let begun = Instant::now();
        let rows = client.rows("CONFIG REVISION", limit).map(|rows| rows.unwrap().len());
        (rows, client, begun.elapsed())
    }

    #[test]
    fn an_answer_without_end_is_cut_off() {
        let endless: [Answer; 4] = [
            // Rows, and rows of one byte; columns; one packet.
            |say| {
                let _ = say(&[1]).and_then(|()| say(b"column"));
                while say(&[9; 10]).is_ok() {}
            },
            |say| {
                let _ = say(&[1]).and_then(|()| say(b"column"));
                while say(&[0xfb]).is_ok() {}
            },
            |say| {
                let _ = say(&[0xfc, 0, 16]);
                while say(b"column").is_ok() {}
            },
            |say| drop(say(&vec![1; 1 << 20])),
        ];
        for (n, answer) in endless.into_iter().enumerate() {
            let (rows, client, _) = asked(LIMIT, answer);
            assert!(format!("{:#}", rows.unwrap_err()).contains("more than 100000 bytes"), "{n}");
            assert_eq!(client.fault(), Some(Fault::TooLong), "{n}");
        }
        let (rows, client, _) = asked(LIMIT, |say| drop(say(&[0xfd, 0xff, 0xff, 0xff])));
        assert!(format!("{:#}", rows.unwrap_err()).contains("columns"));
        assert_eq!(client.fault(), Some(Fault::Lost));
    }

    #[test]
    fn an_answer_that_trickles_is_cut_off() {
        let limit = Limit { time: Duration::from_millis(300), ..LIMIT };
        let (rows, client, took) = asked(limit, |say| {
            let _ = say(&[1]).and_then(|()| say(b"column"));
            while say(&[2, b'a', b'b']).is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        });
        assert!(format!("{:#}", rows.unwrap_err()).contains("not complete in time"));
        assert!(client.fault() == Some(Fault::Lost) && took < TIMEOUT, "{took:?}");
    }

    #[test]
    fn an_answer_within_its_limits_is_read() {
        let (rows, client, _) = asked(LIMIT, |say| {
            let _ = say(&[1]).and_then(|()| say(b"column"));
            for _ in 0..100 {
                say(&[2, b'a', b'b']).unwrap();
            }
            say(&[EOF, 0, 0, 0, 0]).unwrap();
        });
        assert_eq!((rows.unwrap(), client.fault()), (100, None));
    }
}
