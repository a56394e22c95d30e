//! A whole reply to a statement of the proxy's own.

use serde::{Deserialize, Serialize};
use wire::flags::{Capabilities, StatusFlags};
use wire::message::{ErrPacket, OkPacket};
use wire::packet;
use wire::reply::Tracker;

/// An OK packet's content.
#[derive(Clone, Debug, Default)]
pub struct OkReply {
    /// Rows changed.
    pub affected_rows: u64,
    /// Generated id.
    pub last_insert_id: u64,
    /// Status flags.
    pub status: StatusFlags,
    /// How many warnings it left.
    pub warnings: u16,
    /// What the session tracker says, as it came.
    pub session_state: Vec<u8>,
}

/// A whole reply to a statement of our own.
#[derive(Clone, Debug, Default)]
pub struct Collected {
    /// The last OK (or the end of the last result set).
    pub ok: OkReply,
    /// The error that ended it.
    pub error: Option<ServerError>,
    /// Payloads of the rows.
    pub rows: Vec<Vec<u8>>,
    /// It is an error that the server sent before it had read the command.
    pub unasked: bool,
    /// All packets with their headers, as received (when asked for).
    pub raw: Vec<u8>,
}

/// An ERR packet of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerError {
    /// MySQL error number.
    pub code: u16,
    /// SQLSTATE.
    pub sqlstate: [u8; 5],
    /// Text.
    pub message: Vec<u8>,
}

impl OkReply {
    /// Reads an OK (or end-of-rows) packet; what a plain EOF does not say stays zero.
    pub fn read(payload: &[u8], tracker: &Tracker, caps: Capabilities) -> Self {
        let mut reply = Self { status: tracker.status(), warnings: tracker.warnings(), ..Self::default() };
        let plain_eof = payload.first() == Some(&wire::message::EOF) && payload.len() < 7;
        if let (false, Ok(ok)) = (plain_eof, OkPacket::parse(payload, caps)) {
            reply.affected_rows = ok.affected_rows;
            reply.last_insert_id = ok.last_insert_id;
            reply.session_state = ok.session_state.to_vec();
        }
        reply
    }
}

impl ServerError {
    /// Reads an ERR packet; a malformed one becomes error 1835 (ER_MALFORMED_PACKET).
    pub fn read(payload: &[u8], caps: Capabilities) -> Self {
        match ErrPacket::parse(payload, caps) {
            Ok(e) => Self { code: e.code, sqlstate: e.sqlstate, message: e.message.to_vec() },
            Err(_) => Self { code: 1835, sqlstate: *b"HY000", message: b"Malformed packet".to_vec() },
        }
    }
}

impl std::fmt::Display for ServerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ERROR {} ({}): {}", self.code, String::from_utf8_lossy(&self.sqlstate), String::from_utf8_lossy(&self.message))
    }
}

/// The payloads of whole packets, one behind the other.
pub fn packets(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (len, _) = packet::header(bytes)?;
        let payload = bytes.get(packet::HEADER..packet::HEADER + len)?;
        bytes = bytes.get(packet::HEADER + len..)?;
        Some(payload)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::packet::put_packet;

    #[test]
    fn a_packet_that_is_not_whole_is_none() {
        let mut bytes = Vec::new();
        put_packet(&mut bytes, &mut 0, b"one");
        put_packet(&mut bytes, &mut 1, b"other");
        for (len, expected) in [(bytes.len(), 2), (bytes.len() - 1, 1), (packet::HEADER + 3, 1), (packet::HEADER, 0), (0, 0)] {
            assert_eq!(packets(&bytes[..len]).count(), expected, "{len}");
        }
    }
}
