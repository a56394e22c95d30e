//! The head of a file, which anybody can read, and its trailer.

use wire::WireError;
use wire::codec::{Reader, put_lenenc, put_lenenc_bytes};

/// The first bytes of each file.
pub(crate) const MAGIC: &[u8; 8] = b"TGCAPTUR";
/// Readers refuse files of a higher one.
pub const MAJOR: u16 = 1;
/// A higher one adds what readers may skip.
pub const MINOR: u16 = 0;
/// Longest header and longest trailer, bytes.
pub(crate) const MAX_HEADER: usize = 1 << 20;

const NAME: u64 = 1;
const PROGRAM: u64 = 2;
const HOST: u64 = 3;
const STARTED_UNIX_US: u64 = 4;
const STARTED_US: u64 = 5;
const SERVER: u64 = 6;
const OPTIONS: u64 = 7;

/// A server that was there when the capture began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerAt {
    /// Its hostgroup.
    pub hostgroup: u32,
    /// `host:port`.
    pub address: String,
    /// What it calls its version; empty if the proxy had no connection to it yet.
    pub version: String,
}

/// What a file says of itself. It is not sealed: statements and schemas are no part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The capture's name.
    pub name: String,
    /// The proxy's version.
    pub program: String,
    /// The proxy's host.
    pub host: String,
    /// When the capture began, Unix us.
    pub started_unix_us: u64,
    /// The same by the process clock, us, as records have it.
    pub started_us: u64,
    /// The servers.
    pub servers: Vec<ServerAt>,
    /// What the operator ordered.
    pub options: String,
}

impl Header {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (tag, text) in [(NAME, &self.name), (PROGRAM, &self.program), (HOST, &self.host), (OPTIONS, &self.options)] {
            put_part(tag, text.as_bytes(), &mut out);
        }
        for (tag, number) in [(STARTED_UNIX_US, self.started_unix_us), (STARTED_US, self.started_us)] {
            put_part(tag, &number.to_le_bytes(), &mut out);
        }
        for server in &self.servers {
            let mut part = Vec::new();
            put_lenenc(&mut part, u64::from(server.hostgroup));
            put_lenenc_bytes(&mut part, server.address.as_bytes());
            put_lenenc_bytes(&mut part, server.version.as_bytes());
            put_part(SERVER, &part, &mut out);
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let (mut reader, mut header) = (Reader::new(bytes), Self::default());
        while !reader.is_empty() {
            let (tag, part) = (reader.lenenc()?, reader.lenenc_bytes()?);
            let text = || String::from_utf8_lossy(part).into_owned();
            match tag {
                NAME => header.name = text(),
                PROGRAM => header.program = text(),
                HOST => header.host = text(),
                OPTIONS => header.options = text(),
                STARTED_UNIX_US => header.started_unix_us = Reader::new(part).u64()?,
                STARTED_US => header.started_us = Reader::new(part).u64()?,
                SERVER => header.servers.push(server(part)?),
                _ => {}
            }
        }
        Ok(header)
    }
}

fn put_part(tag: u64, part: &[u8], out: &mut Vec<u8>) {
    put_lenenc(out, tag);
    put_lenenc_bytes(out, part);
}

fn server(part: &[u8]) -> Result<ServerAt, WireError> {
    let mut reader = Reader::new(part);
    let hostgroup = u32::try_from(reader.lenenc()?).map_err(|_| WireError::Malformed("a hostgroup is too large"))?;
    let mut text = || reader.lenenc_bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    Ok(ServerAt { hostgroup, address: text()?, version: text()? })
}

/// How a capture ended, and what it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trailer {
    /// Why it ended, in words.
    pub reason: String,
    /// When, us of the process clock.
    pub ended_us: u64,
    /// Commands.
    pub commands: u64,
    /// Sessions.
    pub sessions: u64,
    /// Gaps in sessions.
    pub gaps: u64,
}

impl Trailer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_lenenc_bytes(&mut out, self.reason.as_bytes());
        [self.ended_us, self.commands, self.sessions, self.gaps].iter().for_each(|number| put_lenenc(&mut out, *number));
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes);
        let reason = String::from_utf8_lossy(reader.lenenc_bytes()?).into_owned();
        let mut number = || reader.lenenc();
        Ok(Self { reason, ended_us: number()?, commands: number()?, sessions: number()?, gaps: number()? })
    }
}
