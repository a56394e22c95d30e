//! A model server's side of the login.

use super::{Flavor, Server};
use crate::net::End;
use std::io;
use wire::auth::server::{Account, ServerAuth, Step, Stored};
use wire::auth::{Channel, Plugin};
use wire::flags::{Capabilities, StatusFlags};
use wire::handshake::{Greeting, HandshakeResponse};
use wire::packet::{self, HEADER};

/// The password of every user.
pub(crate) const PASSWORD: &[u8] = b"secret";

const CAPABILITIES: Capabilities = Capabilities::PROTOCOL_41
    .union(Capabilities::FOUND_ROWS)
    .union(Capabilities::LONG_FLAG)
    .union(Capabilities::CONNECT_WITH_DB)
    .union(Capabilities::TRANSACTIONS)
    .union(Capabilities::SECURE_CONNECTION)
    .union(Capabilities::MULTI_RESULTS)
    .union(Capabilities::PS_MULTI_RESULTS)
    .union(Capabilities::PLUGIN_AUTH)
    .union(Capabilities::PLUGIN_AUTH_LENENC)
    .union(Capabilities::CONNECT_ATTRS)
    .union(Capabilities::SESSION_TRACK)
    .union(Capabilities::DEPRECATE_EOF);

/// Packets over a connection.
pub(crate) struct Packets {
    pub end: End,
    input: Vec<u8>,
    /// Sequence id of the next packet sent.
    pub seq: u8,
}

impl Packets {
    /// Packets over this connection.
    pub(crate) fn new(end: End) -> Self {
        Self { end, input: Vec::new(), seq: 0 }
    }

    /// The next packet's payload.
    pub(crate) async fn receive(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some((len, seq)) = packet::header(&self.input)
                && self.input.len() >= HEADER + len
            {
                let rest = self.input.split_off(HEADER + len);
                let payload = self.input.split_off(HEADER);
                self.input = rest;
                self.seq = seq.wrapping_add(1);
                return Ok(payload);
            }
            if self.end.read(&mut self.input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Sends one packet.
    pub(crate) async fn send(&mut self, payload: &[u8]) -> io::Result<()> {
        let mut out = Vec::new();
        packet::put_packet(&mut out, &mut self.seq, payload);
        self.end.write_all(&out).await
    }
}

/// A login of a client.
pub(super) struct LoggedIn {
    pub user: String,
    /// The abilities of both sides.
    pub caps: Capabilities,
    /// Collation of the handshake.
    pub collation: u8,
    /// The schema asked for.
    pub schema: Option<String>,
}

/// Lets a client in; None when it may not.
pub(super) async fn log_in(server: &Server, packets: &mut Packets, id: u32) -> io::Result<Option<LoggedIn>> {
    let mut capabilities = CAPABILITIES;
    capabilities.set(Capabilities::LONG_PASSWORD, server.flavor == Flavor::MySql);
    let scramble: [u8; 20] = std::array::from_fn(|i| 40 + u8::try_from(i).unwrap_or(0));
    let greeting = Greeting {
        server_version: server.flavor.version().as_bytes().to_vec(),
        connection_id: id,
        scramble: scramble.to_vec(),
        capabilities,
        collation: 45,
        status: StatusFlags::AUTOCOMMIT,
        plugin: Plugin::Native.name().as_bytes().to_vec(),
    };
    let mut payload = Vec::new();
    greeting.write(&mut payload);
    packets.send(&payload).await?;
    let payload = packets.receive().await?;
    let response = HandshakeResponse::parse(&payload).map_err(|e| io::Error::other(e.to_string()))?;
    let caps = response.capabilities & capabilities;
    let account = Account { stored: Stored::Clear(PASSWORD), fast: None, additional: None, key: None };
    let step = ServerAuth::new(scramble, Plugin::Native, Channel::Plain).start(&account, response.plugin, response.auth_response);
    let known = matches!(step, Ok(Step::Done(_)));
    let answer = if known { super::reply::Answer::default() } else { super::reply::Answer::error(1045, b"28000", "Access denied") };
    let bytes = answer.write(packets.seq, StatusFlags::AUTOCOMMIT, caps, false);
    packets.end.write_all(&bytes).await?;
    Ok(known.then(|| LoggedIn {
        user: String::from_utf8_lossy(response.user).into_owned(),
        caps,
        collation: response.collation,
        schema: response.schema.filter(|s| !s.is_empty()).map(|s| String::from_utf8_lossy(s).into_owned()),
    }))
}
