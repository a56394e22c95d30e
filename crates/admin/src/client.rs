//! A small blocking client for the admin port: log in, ask, read text rows. Over TCP it speaks TLS where the port offers that. Without, the
//! password is proven by a scramble or goes out under RSA, never in clear.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

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

/// Limit for connecting and for each read and write.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Largest answer packet that is taken, bytes.
const MAX_PACKET: u32 = 64 << 20;
/// utf8mb4_general_ci.
const COLLATION: u8 = 45;
/// What is asked for.
const WANTED: Capabilities = Capabilities::LOGIN.union(Capabilities::DEPRECATE_EOF);

/// One value; `None` is NULL.
pub type Field = Option<String>;

/// How bytes get there.
enum Line {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    /// TLS could not begin.
    Lost,
}

impl Line {
    fn channel(&self) -> Channel {
        if matches!(self, Self::Tcp(_)) { Channel::Plain } else { Channel::Secure }
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
}

impl Client {
    /// Connects to `host:port`, or to a Unix socket when `target` has a slash in it. Over TCP with TLS, where that is offered: with any
    /// certificate, or only with one from the CAs of the file `ca`, and then not without.
    pub fn connect(target: &str, user: &str, password: &str, ca: Option<&Path>) -> Result<Self> {
        let line = open(target).with_context(|| format!("cannot connect to {target}"))?;
        let mut client = Self { line, caps: Capabilities::empty(), seq: 0 };
        client.log_in(user, password, ca).with_context(|| format!("cannot log in to {target}"))?;
        Ok(client)
    }

    /// Begins TLS, if this is TCP, and the port offers it.
    fn secure(&mut self, offered: Capabilities, ca: Option<&Path>) -> Result<()> {
        if !matches!(self.line, Line::Tcp(_)) {
            return Ok(());
        }
        if !offered.contains(Capabilities::SSL) {
            return if ca.is_some() { bail!("it offers no TLS") } else { Ok(()) };
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
        self.caps = WANTED & greeting.capabilities;
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

    /// The rows of a statement; none for one without rows. A refusal is an error that leaves the connection usable.
    pub fn rows(&mut self, sql: &str) -> Result<Result<Vec<Vec<Field>>, String>> {
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
                _ => rows.push(row(&payload, columns)?),
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
        Ok(format!("{} ({})", String::from_utf8_lossy(error.message), error.code))
    }

    fn send(&mut self, payload: &[u8]) -> Result<()> {
        let mut out = Vec::new();
        packet::put_packet(&mut out, &mut self.seq, payload);
        self.line.write_all(&out)?;
        Ok(self.line.flush()?)
    }

    fn receive(&mut self) -> Result<Vec<u8>> {
        let mut payload = Vec::new();
        loop {
            let mut head = [0; HEADER];
            self.line.read_exact(&mut head)?;
            let (len, seq) = packet::header(&head).context("no packet header")?;
            self.seq = seq.wrapping_add(1);
            if payload.len() + len > MAX_PACKET as usize {
                bail!("an answer is too long");
            }
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
        return Ok(Line::Unix(socket));
    }
    let address = target.to_socket_addrs()?.next().context("the name has no address")?;
    let socket = TcpStream::connect_timeout(&address, TIMEOUT)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.set_write_timeout(Some(TIMEOUT))?;
    Ok(Line::Tcp(socket))
}
