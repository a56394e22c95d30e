//! OK, ERR and EOF: the three short answers.
//!
//! Source: "OK_Packet", "ERR_Packet", "EOF_Packet". Servers differ from the page in one point: they send the info text length-encoded with
//! and without CLIENT_SESSION_TRACK. So it is written that way, and read that way first.

use crate::codec::{Reader, put_lenenc, put_lenenc_bytes, put_u16};
use crate::error::{Result, WireError};
use crate::flags::{Capabilities, StatusFlags};

/// First byte of an OK packet.
pub const OK: u8 = 0x00;
/// First byte of an EOF packet, and of the OK packet that ends rows under CLIENT_DEPRECATE_EOF.
pub const EOF: u8 = 0xfe;
/// First byte of an ERR packet.
pub const ERR: u8 = 0xff;

/// An OK packet's fields, borrowed from its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OkPacket<'a> {
    /// Rows changed, or found under CLIENT_FOUND_ROWS.
    pub affected_rows: u64,
    /// First AUTO_INCREMENT value of the statement; 0 when there is none.
    pub last_insert_id: u64,
    /// The server's state after the statement.
    pub status: StatusFlags,
    /// Number of warnings, capped at 65535.
    pub warnings: u16,
    /// Text such as `Rows matched: 1  Changed: 1  Warnings: 0`; often empty.
    pub info: &'a [u8],
    /// Session-track entries (see [`crate::session_state`]), less their length; empty when there are none.
    pub session_state: &'a [u8],
}

impl<'a> OkPacket<'a> {
    /// Reads an OK payload that begins with 0x00 or 0xfe. `caps` are those agreed with the sender.
    pub fn parse(payload: &'a [u8], caps: Capabilities) -> Result<Self> {
        let mut reader = Reader::new(payload);
        if !matches!(reader.u8()?, OK | EOF) {
            return Err(WireError::Malformed("not an OK packet"));
        }
        let mut ok = Self { affected_rows: reader.lenenc()?, last_insert_id: reader.lenenc()?, ..Self::default() };
        if caps.contains(Capabilities::PROTOCOL_41) {
            ok.status = StatusFlags(reader.u16()?);
            ok.warnings = reader.u16()?;
        } else if caps.contains(Capabilities::TRANSACTIONS) {
            ok.status = StatusFlags(reader.u16()?);
        }
        if !caps.contains(Capabilities::SESSION_TRACK) {
            ok.info = untracked_info(&mut reader);
        } else if !reader.is_empty() {
            ok.info = reader.lenenc_bytes()?;
            if ok.status.contains(StatusFlags::SESSION_STATE_CHANGED) {
                // MariaDB puts up to three zero bytes ahead while the schema's character set is ucs2, utf16 or utf32.
                while ok.session_state.is_empty() && !reader.is_empty() {
                    let (all, mut behind) = (reader.remaining(), reader);
                    behind.lenenc()?;
                    ok.session_state = match reader.lenenc_bytes() {
                        Ok(state) => state,
                        // MariaDB 10.2 counts the length's own bytes along: all that is left is the state.
                        Err(_) if is_misframed(payload, all, behind.remaining()) => {
                            reader = behind;
                            reader.rest()
                        }
                        Err(e) => return Err(e),
                    };
                }
            }
        }
        Ok(ok)
    }

    /// Appends the payload; `header` is [`OK`] or [`EOF`]. `caps` are the receiver's. Without CLIENT_SESSION_TRACK the session state and
    /// its flag are left out; with it the flag agrees with the packet.
    pub fn write(&self, out: &mut Vec<u8>, header: u8, caps: Capabilities) {
        let tracked = caps.contains(Capabilities::SESSION_TRACK) && !self.session_state.is_empty();
        let mut status = self.status;
        status.set(StatusFlags::SESSION_STATE_CHANGED, tracked);
        out.push(header);
        put_lenenc(out, self.affected_rows);
        put_lenenc(out, self.last_insert_id);
        if caps.contains(Capabilities::PROTOCOL_41) {
            put_u16(out, status.bits());
            put_u16(out, self.warnings);
        } else if caps.contains(Capabilities::TRANSACTIONS) {
            put_u16(out, status.bits());
        }
        if tracked || !self.info.is_empty() {
            put_lenenc_bytes(out, self.info);
        }
        if tracked {
            put_lenenc_bytes(out, self.session_state);
        }
    }
}

/// Does the packet end with a session state of `left` bytes whose length, with which it takes `all` bytes, says two bytes more?
/// MariaDB 10.2 sends that where the length takes more than one byte.
fn is_misframed(payload: &[u8], all: usize, left: usize) -> bool {
    let said = payload.get(payload.len().saturating_sub(all)..).and_then(|end| end.get(..3));
    let claimed = left.checked_add(2).and_then(|claimed| u16::try_from(claimed).ok()).map(u16::to_le_bytes);
    left > 250 && claimed.is_some_and(|[low, high]| said == Some(&[0xfc, low, high]))
}

/// The info text when no session state can follow: length-encoded as servers send it, else the page's `string<EOF>`.
fn untracked_info<'a>(reader: &mut Reader<'a>) -> &'a [u8] {
    let mut encoded = *reader;
    match encoded.lenenc_bytes() {
        Ok(info) if encoded.is_empty() => info,
        _ => reader.rest(),
    }
}

/// An ERR packet's fields, borrowed from its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrPacket<'a> {
    /// The server's error number, such as 1045. 0xffff from MariaDB is a progress report, not an error.
    pub code: u16,
    /// Five ASCII characters; `HY000` when the packet had none.
    pub sqlstate: [u8; 5],
    /// The text, in the connection's character set.
    pub message: &'a [u8],
}

impl<'a> ErrPacket<'a> {
    /// SQLSTATE for "general error".
    pub const GENERAL: [u8; 5] = *b"HY000";

    /// Reads an ERR payload, with or without a SQLSTATE: before the capabilities are agreed there is none, so the
    /// marker decides, whatever `caps` say.
    pub fn parse(payload: &'a [u8], caps: Capabilities) -> Result<Self> {
        let mut reader = Reader::new(payload);
        if reader.u8()? != ERR {
            return Err(WireError::Malformed("not an ERR packet"));
        }
        let code = reader.u16()?;
        let marked = reader.peek() == Some(b'#') && reader.remaining() >= 6;
        let marked = marked && (caps.contains(Capabilities::PROTOCOL_41) || caps == Capabilities::empty());
        let mut sqlstate = Self::GENERAL;
        if marked {
            reader.u8()?;
            sqlstate = reader.array()?;
        }
        Ok(Self { code, sqlstate, message: reader.rest() })
    }

    /// Appends the payload. Without CLIENT_PROTOCOL_41 in `caps` (nothing agreed yet) the SQLSTATE is left out.
    pub fn write(&self, out: &mut Vec<u8>, caps: Capabilities) {
        out.push(ERR);
        put_u16(out, self.code);
        if caps.contains(Capabilities::PROTOCOL_41) {
            out.push(b'#');
            out.extend_from_slice(&self.sqlstate);
        }
        out.extend_from_slice(self.message);
    }
}

/// Appends an EOF payload (protocol 4.1).
pub fn put_eof(out: &mut Vec<u8>, warnings: u16, status: StatusFlags) {
    out.push(EOF);
    put_u16(out, warnings);
    put_u16(out, status.bits());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN: Capabilities = Capabilities::PROTOCOL_41;
    const TRACK: Capabilities = PLAIN.union(Capabilities::SESSION_TRACK);

    #[test]
    fn ok_as_a_server_sends_it() {
        let update = b"\0\x01\0\x02\0\0\0\x28Rows matched: 1  Changed: 1  Warnings: 0";
        for caps in [PLAIN, TRACK] {
            let ok = OkPacket::parse(update, caps).unwrap();
            assert_eq!((ok.affected_rows, ok.info), (1, &b"Rows matched: 1  Changed: 1  Warnings: 0"[..]));
            let mut out = Vec::new();
            ok.write(&mut out, OK, caps);
            assert_eq!(out, update);
        }
    }

    #[test]
    fn info_without_a_length_is_read_too() {
        assert_eq!(OkPacket::parse(b"\0\0\0\x02\0\0\0hello", PLAIN).unwrap().info, b"hello");
    }

    #[test]
    fn session_state_only_for_those_who_asked() {
        let ok = OkPacket {
            status: StatusFlags::AUTOCOMMIT | StatusFlags::SESSION_STATE_CHANGED,
            session_state: b"\x01\x02\x01a",
            ..OkPacket::default()
        };
        let mut tracked = Vec::new();
        ok.write(&mut tracked, OK, TRACK);
        assert_eq!(OkPacket::parse(&tracked, TRACK).unwrap(), ok);
        let mut plain = Vec::new();
        ok.write(&mut plain, EOF, PLAIN);
        assert_eq!(plain, [0xfe, 0, 0, 2, 0, 0, 0]);
    }

    /// As MariaDB 10.11 answers `USE` of a schema with the character set utf32, and SET in it.
    #[test]
    fn session_state_behind_zero_bytes() {
        let entered = b"\0\0\0\0@\0\0\0\0\0\0\x08\x01\x03\x02d3\x02\x011";
        assert_eq!(OkPacket::parse(entered, TRACK).unwrap().session_state, b"\x01\x03\x02d3\x02\x011");
        let set = b"\0\0\0\x02@\0\0\0\0\x13\0\x0e\nautocommit\x02ON\x02\x011";
        assert_eq!(OkPacket::parse(set, TRACK).unwrap().session_state, b"\0\x0e\nautocommit\x02ON\x02\x011");
        assert_eq!(OkPacket::parse(b"\0\0\0\0@\0\0\0\0\0", TRACK).unwrap().session_state, b"");
    }

    #[test]
    fn err_with_and_without_sqlstate() {
        let err = ErrPacket { code: 1045, sqlstate: *b"28000", message: b"Access denied" };
        let mut out = Vec::new();
        err.write(&mut out, PLAIN);
        assert_eq!(ErrPacket::parse(&out, PLAIN).unwrap(), err);
        assert_eq!(ErrPacket::parse(&out, Capabilities::empty()).unwrap(), err);
        let mut early = Vec::new();
        err.write(&mut early, Capabilities::empty());
        assert_eq!(early[3..], *b"Access denied");
        assert_eq!(ErrPacket::parse(&early, PLAIN).unwrap().sqlstate, ErrPacket::GENERAL);
    }

    #[test]
    fn eof() {
        let mut out = Vec::new();
        put_eof(&mut out, 3, StatusFlags::AUTOCOMMIT);
        assert_eq!(out, [0xfe, 3, 0, 2, 0]);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>, caps: u64) {
            let caps = Capabilities(caps);
            let _ = OkPacket::parse(&bytes, caps);
            let _ = ErrPacket::parse(&bytes, caps);
        }
    }
}
