//! The server's first packet, HandshakeV10.

use crate::codec::{Reader, put_nul_bytes, put_u16, put_u32};
use crate::error::{Result, WireError};
use crate::flags::{Capabilities, StatusFlags};
use crate::message::ErrPacket;

/// The only handshake protocol version that is spoken.
pub const PROTOCOL_VERSION: u8 = 10;
/// The prefix of the version of MariaDB before 11, for clients that compare numbers. It keeps replicas of MySQL 5.5 from reading the major
/// version as 1.
const MARIADB_PREFIX: &[u8] = b"5.5.5-";
/// Length of the scramble's first part, in bytes.
const PART_1: usize = 8;
/// The least length of the scramble's second part, in bytes, with its NUL.
const PART_2: usize = 13;

/// HandshakeV10, owned: it is read once a connection and then kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Greeting {
    /// The version text as it is on the wire, such as `9.7.1` or `5.5.5-10.11.6-MariaDB`.
    pub server_version: Vec<u8>,
    /// The server's number for this connection (its low 32 bits).
    pub connection_id: u32,
    /// The scramble, 20 bytes from today's servers (8 from those before 4.1), less its NUL.
    pub scramble: Vec<u8>,
    /// The server's abilities.
    pub capabilities: Capabilities,
    /// The default collation's id, its low 8 bits.
    pub collation: u8,
    /// The server's state.
    pub status: StatusFlags,
    /// The default authentication plugin; empty when there is none.
    pub plugin: Vec<u8>,
}

impl Greeting {
    /// Reads a greeting. An ERR packet (too many connections, host blocked) is [`WireError::ServerRefused`].
    pub fn parse(payload: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(payload);
        match reader.u8()? {
            PROTOCOL_VERSION => {}
            crate::message::ERR => return Err(refused(payload)),
            other => return Err(WireError::ProtocolVersion(other)),
        }
        let mut greeting = Self { server_version: reader.nul_bytes()?.to_vec(), connection_id: reader.u32()?, ..Self::default() };
        greeting.scramble.extend_from_slice(reader.bytes(PART_1)?);
        reader.u8()?; // filler
        let low = reader.u16()?;
        greeting.capabilities = Capabilities(u64::from(low));
        if !reader.is_empty() {
            greeting.parse_long(low, &mut reader)?;
        }
        Ok(greeting)
    }

    /// The part behind the low capability bits, since 4.1.
    fn parse_long(&mut self, low: u16, reader: &mut Reader<'_>) -> Result<()> {
        self.collation = reader.u8()?;
        self.status = StatusFlags(reader.u16()?);
        let mysql = u32::from(low) | u32::from(reader.u16()?) << 16;
        let scramble_len = usize::from(reader.u8()?);
        reader.bytes(6)?; // filler
        let extended = reader.u32()?;
        let is_mysql = Capabilities::from_parts(mysql, 0).contains(Capabilities::LONG_PASSWORD);
        self.capabilities = Capabilities::from_parts(mysql, if is_mysql { 0 } else { extended });
        if self.capabilities.contains(Capabilities::SECURE_CONNECTION) {
            let wanted = PART_2.max(scramble_len.saturating_sub(PART_1));
            let part = reader.bytes(wanted.min(reader.remaining()))?;
            self.scramble.extend_from_slice(part.strip_suffix(&[0]).unwrap_or(part));
        }
        if self.capabilities.contains(Capabilities::PLUGIN_AUTH) {
            self.plugin = reader.nul_bytes_or_rest().to_vec(); // 5.5.7-5.5.9 leave the NUL out (bug 59453)
        }
        Ok(())
    }

    /// Appends the payload. Without CLIENT_LONG_PASSWORD the extended capabilities go into the filler, as MariaDB does.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mysql = self.capabilities.mysql_bits().to_le_bytes();
        let (part_1, part_2) = self.scramble.split_at(self.scramble.len().min(PART_1));
        let has_plugin = self.capabilities.contains(Capabilities::PLUGIN_AUTH);
        out.push(PROTOCOL_VERSION);
        put_nul_bytes(out, &self.server_version);
        put_u32(out, self.connection_id);
        out.extend_from_slice(part_1);
        out.resize(out.len() + PART_1 - part_1.len(), 0);
        out.push(0);
        out.extend_from_slice(&mysql[..2]);
        out.push(self.collation);
        put_u16(out, self.status.bits());
        out.extend_from_slice(&mysql[2..]);
        let scramble_len = PART_1 + PART_2.max(part_2.len() + 1);
        out.push(if has_plugin { u8::try_from(scramble_len).unwrap_or(u8::MAX) } else { 0 });
        out.extend_from_slice(&[0; 6]);
        let is_mysql = self.capabilities.contains(Capabilities::LONG_PASSWORD);
        put_u32(out, if is_mysql { 0 } else { self.capabilities.mariadb_bits() });
        if self.capabilities.contains(Capabilities::SECURE_CONNECTION) {
            out.extend_from_slice(part_2);
            out.resize(out.len() + scramble_len - PART_1 - part_2.len(), 0);
        }
        if has_plugin {
            put_nul_bytes(out, &self.plugin);
        }
    }

    /// True for MariaDB: by its capability bits, else by its version text.
    #[must_use]
    pub fn is_mariadb(&self) -> bool {
        !self.capabilities.contains(Capabilities::LONG_PASSWORD) || memchr::memmem::find(&self.server_version, b"MariaDB").is_some()
    }

    /// The version text without the prefix `5.5.5-` of MariaDB before 11.0: the same as the server's VERSION().
    #[must_use]
    pub fn version(&self) -> &[u8] {
        match self.server_version.strip_prefix(MARIADB_PREFIX) {
            Some(version) if self.is_mariadb() => version,
            _ => &self.server_version,
        }
    }
}

/// The ERR packet that came instead of a greeting, as an error.
fn refused(payload: &[u8]) -> WireError {
    match ErrPacket::parse(payload, Capabilities::empty()) {
        Ok(err) => WireError::ServerRefused(err.code),
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn greeting(capabilities: Capabilities, version: &[u8]) -> Greeting {
        Greeting {
            server_version: version.to_vec(),
            connection_id: 0x0102_0304,
            scramble: (1..=20).collect(),
            capabilities: capabilities | Capabilities::SECURE_CONNECTION | Capabilities::PLUGIN_AUTH,
            collation: 45,
            status: StatusFlags::AUTOCOMMIT,
            plugin: b"mysql_native_password".to_vec(),
        }
    }

    #[test]
    fn mysql_round_trips_without_extended_capabilities() {
        let sent = greeting(Capabilities::LONG_PASSWORD, b"9.7.1");
        let mut out = Vec::new();
        sent.write(&mut out);
        assert_eq!(Greeting::parse(&out).unwrap(), sent);
        assert!(!sent.is_mariadb());
        let (scramble_len, part_2) = (out[out.len() - 22 - 13 - 11], &out[out.len() - 22 - 13..][..13]);
        assert_eq!(scramble_len, 21);
        assert_eq!(part_2, [9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 0]);
    }

    #[test]
    fn mariadb_round_trips_with_extended_capabilities() {
        let sent = greeting(Capabilities::MARIADB_CLIENT_STMT_BULK_OPERATIONS, b"5.5.5-10.11.6-MariaDB");
        let mut out = Vec::new();
        sent.write(&mut out);
        let got = Greeting::parse(&out).unwrap();
        assert_eq!(got, sent);
        assert!(got.is_mariadb());
        assert_eq!(got.version(), b"10.11.6-MariaDB");
    }

    #[test]
    fn an_error_instead_of_a_greeting() {
        assert_eq!(Greeting::parse(b"\xff\x10\x04Too many connections"), Err(WireError::ServerRefused(1040)));
        assert_eq!(Greeting::parse(&[9]), Err(WireError::ProtocolVersion(9)));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(mut bytes: Vec<u8>) {
            let _ = Greeting::parse(&bytes);
            bytes.splice(0..0, [10, b'5', 0]);
            if let Ok(greeting) = Greeting::parse(&bytes) {
                greeting.write(&mut Vec::new());
            }
        }
    }
}
