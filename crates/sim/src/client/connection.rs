//! A client's connection to the proxy.

use crate::net::End;
use crate::server::Packets;
use std::io;
use std::time::Duration;
use wire::Command;
use wire::auth::Channel;
use wire::auth::client::{ClientAuth, ClientSecret, ClientStep};
use wire::codec::Reader;
use wire::flags::{Capabilities, StatusFlags};
use wire::handshake::{Greeting, HandshakeResponse};
use wire::message::{ERR, ErrPacket, OkPacket};
use wire::reply::{Frame, ReplyKind, Step, Tracker};

/// The answer to a statement.
#[derive(Clone, Debug, Default)]
pub(super) struct Reply {
    /// Number and text of an error.
    pub error: Option<(u16, String)>,
    /// 0 if none was generated.
    pub insert_id: u64,
    /// Status flags of the last packet.
    pub status: StatusFlags,
    /// Values as text; None is NULL.
    pub rows: Vec<Vec<Option<String>>>,
}

/// See the module.
pub(super) struct Connection {
    packets: Packets,
    caps: Capabilities,
}

const WANTED: Capabilities =
    Capabilities::LOGIN.union(Capabilities::CONNECT_WITH_DB).union(Capabilities::MULTI_RESULTS).union(Capabilities::DEPRECATE_EOF);

fn broken(e: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, e.to_string())
}

impl Connection {
    /// Logs in; the error is that of the network, or the server's refusal.
    pub(super) async fn log_in(end: End, user: &str, schema: &str) -> io::Result<Self> {
        let mut packets = Packets::new(end);
        let payload = packets.receive().await?;
        let greeting = Greeting::parse(&payload).map_err(broken)?;
        let caps = WANTED & greeting.capabilities;
        let mut auth = ClientAuth::new(ClientSecret::Clear(crate::server::PASSWORD), Channel::Plain);
        let first = auth.begin(&greeting.plugin, &greeting.scramble).map_err(broken)?;
        let mut payload = Vec::new();
        HandshakeResponse {
            capabilities: caps,
            max_packet: 1 << 24,
            collation: 45,
            user: user.as_bytes(),
            auth_response: &first.response,
            schema: Some(schema.as_bytes()),
            plugin: Some(first.plugin.name().as_bytes()),
            attributes: &[],
            zstd_level: 0,
        }
        .write(&mut payload);
        packets.send(&payload).await?;
        loop {
            let packet = packets.receive().await?;
            match auth.feed(&packet).map_err(broken)? {
                ClientStep::Send(answer) => packets.send(&answer).await?,
                ClientStep::Wait => {}
                ClientStep::Accepted => return Ok(Self { packets, caps }),
                ClientStep::Refused => return Err(broken(String::from_utf8_lossy(&packet))),
            }
        }
    }

    /// The payload is the command's byte and `body`.
    pub(super) async fn send(&mut self, command: Command, body: &[u8]) -> io::Result<()> {
        self.packets.seq = 0;
        self.packets.send(&[&[command as u8], body].concat()).await
    }

    /// Reads a whole reply; `is_binary` says how rows are written.
    pub(super) async fn reply(&mut self, kind: ReplyKind, is_binary: bool) -> io::Result<Reply> {
        let mut tracker = Tracker::new(kind, self.caps);
        let mut reply = Reply::default();
        let mut columns = 0;
        while !tracker.is_done() {
            let payload = self.packets.receive().await?;
            let Step::Frame(frame) = tracker.frame(payload.len(), &payload).map_err(broken)? else {
                return Err(broken("a frame that cannot be understood"));
            };
            match frame {
                Frame::ColumnCount(n) => columns = usize::try_from(n).unwrap_or(0),
                Frame::Row if is_binary => reply.rows.push(binary_row(&payload, columns)?),
                Frame::Row => reply.rows.push(text_row(&payload)?),
                Frame::Err if payload.first() == Some(&ERR) => {
                    let e = ErrPacket::parse(&payload, self.caps).map_err(broken)?;
                    reply.error = Some((e.code, String::from_utf8_lossy(e.message).into_owned()));
                }
                Frame::Ok | Frame::ResultEnd => {
                    if let Ok(ok) = OkPacket::parse(&payload, self.caps) {
                        reply.insert_id = ok.last_insert_id;
                    }
                }
                Frame::Prepared => {
                    reply.insert_id = u64::from(wire::prepared::PrepareOk::parse(&payload, self.caps).map_err(broken)?.stmt_id);
                }
                _ => {}
            }
        }
        reply.status = tracker.status();
        Ok(reply)
    }

    /// Whether the proxy says more within this time.
    pub(super) async fn hears_more(&mut self, within: Duration) -> io::Result<bool> {
        match tokio::time::timeout(within, self.packets.receive()).await {
            Ok(received) => received.map(|_| true),
            Err(_) => Ok(false),
        }
    }

    /// Waits until the proxy closes the connection.
    pub(super) async fn closed(&mut self) {
        while self.packets.receive().await.is_ok() {}
    }
}

fn text_row(payload: &[u8]) -> io::Result<Vec<Option<String>>> {
    let mut reader = Reader::new(payload);
    let mut row = Vec::new();
    while !reader.is_empty() {
        if reader.peek() == Some(0xfb) {
            reader.u8().map_err(broken)?;
            row.push(None);
        } else {
            row.push(Some(String::from_utf8_lossy(reader.lenenc_bytes().map_err(broken)?).into_owned()));
        }
    }
    Ok(row)
}

fn binary_row(payload: &[u8], columns: usize) -> io::Result<Vec<Option<String>>> {
    let mut reader = Reader::new(payload);
    reader.u8().map_err(broken)?;
    let nulls = reader.bytes((columns + 9) / 8).map_err(broken)?;
    let mut row = Vec::new();
    for i in 0..columns {
        let is_null = nulls.get((i + 2) / 8).is_some_and(|byte| byte & (1 << ((i + 2) % 8)) != 0);
        row.push(if is_null { None } else { Some(String::from_utf8_lossy(reader.lenenc_bytes().map_err(broken)?).into_owned()) });
    }
    Ok(row)
}
