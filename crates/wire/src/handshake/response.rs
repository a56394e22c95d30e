//! The client's answer to the greeting: a TLS request, or the login itself (HandshakeResponse41).

use crate::codec::{Reader, put_lenenc_bytes, put_nul_bytes, put_u32};
use crate::error::{Result, WireError};
use crate::flags::Capabilities;

/// Length of a TLS request's payload, in bytes.
const SSL_REQUEST: usize = 32;
/// Length of the filler before MariaDB's extended capabilities, in bytes.
const FILLER: usize = 19;

/// The fields that a TLS request and a login share. As a packet of its own: "TLS from here on".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SslRequest {
    /// The client's abilities and wishes.
    pub capabilities: Capabilities,
    /// The client's longest packet, in bytes; servers use their own limit.
    pub max_packet: u32,
    /// The collation's id, its low 8 bits.
    pub collation: u8,
}

impl SslRequest {
    /// Reads a TLS request; `None` when the payload is a login instead.
    pub fn parse(payload: &[u8]) -> Result<Option<Self>> {
        let start = Self::read(&mut Reader::new(payload))?;
        let asks = payload.len() == SSL_REQUEST && start.capabilities.contains(Capabilities::SSL);
        Ok(asks.then_some(start))
    }

    /// Appends the 32 bytes of payload.
    pub fn write(&self, out: &mut Vec<u8>) {
        put_u32(out, self.capabilities.mysql_bits());
        put_u32(out, self.max_packet);
        out.push(self.collation);
        out.extend_from_slice(&[0; FILLER]);
        let is_mysql = self.capabilities.contains(Capabilities::LONG_PASSWORD);
        put_u32(out, if is_mysql { 0 } else { self.capabilities.mariadb_bits() });
    }

    /// Reads the shared fields; a client from before 4.1 is [`WireError::OldClient`].
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let low = u32::from(reader.u16()?);
        if !Capabilities::from_parts(low, 0).contains(Capabilities::PROTOCOL_41) {
            return Err(WireError::OldClient);
        }
        let mysql = low | u32::from(reader.u16()?) << 16;
        let (max_packet, collation) = (reader.u32()?, reader.u8()?);
        reader.bytes(FILLER)?;
        let extended = reader.u32()?;
        let is_mysql = Capabilities::from_parts(mysql, 0).contains(Capabilities::LONG_PASSWORD);
        let capabilities = Capabilities::from_parts(mysql, if is_mysql { 0 } else { extended });
        Ok(Self { capabilities, max_packet, collation })
    }
}

/// The login of a client from before MySQL 4.1 (HandshakeResponse320), without its password. HAProxy's `mysql-check user NAME pre-41` sends
/// one, followed by COM_QUIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OldLogin<'a> {
    /// The client's abilities: 16 bits without CLIENT_PROTOCOL_41.
    pub capabilities: Capabilities,
    /// The user's name.
    pub user: &'a [u8],
    /// Whether an answer to the scramble follows the name.
    pub has_password: bool,
}

impl<'a> OldLogin<'a> {
    /// Reads a login that [`HandshakeResponse::parse`] calls [`WireError::OldClient`].
    pub fn parse(payload: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(payload);
        let capabilities = Capabilities::from_parts(u32::from(reader.u16()?), 0);
        // The longest packet.
        reader.bytes(3)?;
        let user = reader.nul_bytes_or_rest();
        // The length of the answer, or an answer that ends with a NUL.
        let has_password = reader.peek().is_some_and(|first| first != 0);
        Ok(Self { capabilities, user, has_password })
    }
}

/// HandshakeResponse41, borrowed from its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakeResponse<'a> {
    /// The client's abilities and wishes.
    pub capabilities: Capabilities,
    /// The client's longest packet, in bytes; servers use their own limit.
    pub max_packet: u32,
    /// The collation's id, its low 8 bits.
    pub collation: u8,
    /// The user's name.
    pub user: &'a [u8],
    /// The answer to the scramble, by [`Self::plugin`].
    pub auth_response: &'a [u8],
    /// The schema to begin in; `None` unless CLIENT_CONNECT_WITH_DB.
    pub schema: Option<&'a [u8]>,
    /// The plugin that made the answer; `None` unless CLIENT_PLUGIN_AUTH.
    pub plugin: Option<&'a [u8]>,
    /// The connection attributes' block; see [`attributes`]. Empty when there are none.
    pub attributes: &'a [u8],
    /// The zstd level 1..=22; 0 unless CLIENT_ZSTD_COMPRESSION_ALGORITHM.
    pub zstd_level: u8,
}

impl<'a> HandshakeResponse<'a> {
    /// Reads a login. Drivers leave trailing fields out that their flags promise; those read as absent.
    pub fn parse(payload: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(payload);
        let SslRequest { capabilities, max_packet, collation } = SslRequest::read(&mut reader)?;
        let user = reader.nul_bytes()?;
        let auth_response = read_auth_response(&mut reader, capabilities)?;
        let schema = capabilities.contains(Capabilities::CONNECT_WITH_DB).then(|| reader.nul_bytes_or_rest());
        let plugin = capabilities.contains(Capabilities::PLUGIN_AUTH).then(|| reader.nul_bytes_or_rest());
        let mut attributes: &[u8] = &[];
        if capabilities.contains(Capabilities::CONNECT_ATTRS) && !reader.is_empty() {
            attributes = reader.lenenc_bytes()?;
        }
        let mut zstd_level = 0;
        if capabilities.contains(Capabilities::ZSTD_COMPRESSION) && !reader.is_empty() {
            zstd_level = reader.u8()?;
        }
        Ok(Self { capabilities, max_packet, collation, user, auth_response, schema, plugin, attributes, zstd_level })
    }

    /// Appends the payload. The capability bits decide which fields go out, so set them to match; an answer longer than
    /// 255 bytes needs CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA.
    pub fn write(&self, out: &mut Vec<u8>) {
        let caps = self.capabilities;
        SslRequest { capabilities: caps, max_packet: self.max_packet, collation: self.collation }.write(out);
        put_nul_bytes(out, self.user);
        if caps.contains(Capabilities::PLUGIN_AUTH_LENENC) {
            put_lenenc_bytes(out, self.auth_response);
        } else if caps.contains(Capabilities::SECURE_CONNECTION) {
            put_short_bytes(out, self.auth_response);
        } else {
            put_nul_bytes(out, self.auth_response);
        }
        if caps.contains(Capabilities::CONNECT_WITH_DB) {
            put_nul_bytes(out, self.schema.unwrap_or_default());
        }
        if caps.contains(Capabilities::PLUGIN_AUTH) {
            put_nul_bytes(out, self.plugin.unwrap_or_default());
        }
        if caps.contains(Capabilities::CONNECT_ATTRS) {
            put_lenenc_bytes(out, self.attributes);
        }
        if caps.contains(Capabilities::ZSTD_COMPRESSION) {
            out.push(self.zstd_level);
        }
    }
}

/// The answer to the scramble, in the one of three shapes that the flags name.
fn read_auth_response<'a>(reader: &mut Reader<'a>, caps: Capabilities) -> Result<&'a [u8]> {
    if caps.contains(Capabilities::PLUGIN_AUTH_LENENC) {
        return reader.lenenc_bytes();
    }
    if caps.contains(Capabilities::SECURE_CONNECTION) {
        return read_short_bytes(reader);
    }
    Ok(reader.nul_bytes_or_rest())
}

/// A string with a 1-byte length.
pub(super) fn read_short_bytes<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8]> {
    let len = reader.u8()?;
    reader.bytes(usize::from(len))
}

/// Appends a string with a 1-byte length; it is cut after 255 bytes.
pub(super) fn put_short_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
    out.push(len);
    out.extend_from_slice(&bytes[..usize::from(len)]);
}

/// The (name, value) pairs of a connection attributes block. Ends at the first malformed pair.
#[must_use]
pub fn attributes(block: &[u8]) -> Attributes<'_> {
    Attributes { left: Reader::new(block) }
}

/// Appends one pair to a connection attributes block.
pub fn put_attribute(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    put_lenenc_bytes(block, name);
    put_lenenc_bytes(block, value);
}

/// Iterator over connection attributes; see [`attributes`].
#[derive(Debug, Clone)]
pub struct Attributes<'a> {
    left: Reader<'a>,
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let pair = self.left.lenenc_bytes().and_then(|name| Ok((name, self.left.lenenc_bytes()?)));
        if pair.is_err() {
            self.left.rest();
        }
        pair.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BASE: Capabilities = Capabilities::PROTOCOL_41.union(Capabilities::SECURE_CONNECTION).union(Capabilities::LONG_PASSWORD);

    fn login(capabilities: Capabilities) -> HandshakeResponse<'static> {
        HandshakeResponse {
            capabilities,
            max_packet: 1 << 24,
            collation: 255,
            user: b"app",
            auth_response: &[7; 20],
            schema: capabilities.contains(Capabilities::CONNECT_WITH_DB).then_some(b"shop"),
            plugin: capabilities.contains(Capabilities::PLUGIN_AUTH).then_some(b"mysql_native_password"),
            attributes: if capabilities.contains(Capabilities::CONNECT_ATTRS) { b"\x01a\x012" } else { b"" },
            zstd_level: if capabilities.contains(Capabilities::ZSTD_COMPRESSION) { 3 } else { 0 },
        }
    }

    #[test]
    fn every_mix_of_optional_fields_round_trips() {
        let optional = [
            Capabilities::CONNECT_WITH_DB,
            Capabilities::PLUGIN_AUTH,
            Capabilities::PLUGIN_AUTH_LENENC,
            Capabilities::CONNECT_ATTRS,
            Capabilities::ZSTD_COMPRESSION,
        ];
        for mix in 0..1u32 << optional.len() {
            let caps = optional.iter().enumerate().filter(|(n, _)| mix >> n & 1 == 1).fold(BASE, |caps, (_, bit)| caps | *bit);
            let mut out = Vec::new();
            login(caps).write(&mut out);
            assert_eq!(HandshakeResponse::parse(&out).unwrap(), login(caps));
            assert_eq!(SslRequest::parse(&out), Ok(None));
        }
        assert_eq!(attributes(b"\x01a\x012").collect::<Vec<_>>(), [(&b"a"[..], &b"2"[..])]);
    }

    #[test]
    fn mariadb_extended_capabilities() {
        let caps = Capabilities::PROTOCOL_41 | Capabilities::SSL | Capabilities::MARIADB_CLIENT_CACHE_METADATA;
        let request = SslRequest { capabilities: caps, max_packet: 9, collation: 45 };
        let mut out = Vec::new();
        request.write(&mut out);
        assert_eq!(out.len(), 32);
        assert_eq!(SslRequest::parse(&out), Ok(Some(request)));
    }

    #[test]
    fn old_clients_are_named() {
        assert_eq!(HandshakeResponse::parse(&[5, 0, 0, 0, 1, b'u', 0]), Err(WireError::OldClient));
        for (payload, user, has_password) in [
            (&b"\x00\x80\x00\x00\x01check\0\0"[..], &b"check"[..], false),
            (b"\x00\x80\x00\x00\x01check\0", b"check", false),
            (b"\x00\x80\x00\x00\x01\0\0", b"", false),
            (b"\x05\x20\x00\x00\x01u\0scramble\0", b"u", true),
        ] {
            let login = OldLogin::parse(payload).unwrap();
            assert_eq!((login.user, login.has_password), (user, has_password));
        }
        assert!(OldLogin::parse(b"\x00\x80\x00").is_err());
    }

    #[test]
    fn promised_fields_may_be_missing() {
        let mut out = Vec::new();
        login(BASE).write(&mut out);
        out[0] |= Capabilities::CONNECT_WITH_DB.mysql_bits() as u8;
        out[2] |= (Capabilities::CONNECT_ATTRS.mysql_bits() >> 16) as u8;
        assert_eq!(HandshakeResponse::parse(&out).unwrap().schema, Some(&b""[..]));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(tail: Vec<u8>, caps: u32) {
            let mut bytes = (caps | 512).to_le_bytes().to_vec();
            bytes.extend_from_slice(&[0; 28]);
            bytes.extend_from_slice(&tail);
            if let Ok(login) = HandshakeResponse::parse(&bytes) {
                attributes(login.attributes).for_each(drop);
                login.write(&mut Vec::new());
            }
            let _ = HandshakeResponse::parse(&tail);
            let _ = SslRequest::parse(&tail);
        }
    }
}
