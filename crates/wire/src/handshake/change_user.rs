//! COM_CHANGE_USER: a login on a connection that is already there.

use super::response::{put_short_bytes, read_short_bytes};
use crate::codec::{Reader, put_lenenc_bytes, put_nul_bytes, put_u16};
use crate::command::Command;
use crate::error::{Result, WireError};
use crate::flags::Capabilities;

/// COM_CHANGE_USER's fields, borrowed from its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeUser<'a> {
    /// The new user's name.
    pub user: &'a [u8],
    /// The answer to the greeting's scramble, at most 255 bytes.
    pub auth_response: &'a [u8],
    /// The schema to begin in; empty for none.
    pub schema: &'a [u8],
    /// The collation's id; `None` when an old client leaves it out.
    pub collation: Option<u16>,
    /// The plugin that made the answer; `None` unless CLIENT_PLUGIN_AUTH.
    pub plugin: Option<&'a [u8]>,
    /// The connection attributes' block; see [`super::attributes`]. Empty when there are none.
    pub attributes: &'a [u8],
}

impl<'a> ChangeUser<'a> {
    /// Reads a payload that begins with the command byte. `caps` are those agreed with the client.
    pub fn parse(payload: &'a [u8], caps: Capabilities) -> Result<Self> {
        let mut reader = Reader::new(payload);
        if reader.u8()? != Command::ChangeUser as u8 {
            return Err(WireError::Malformed("not COM_CHANGE_USER"));
        }
        let user = reader.nul_bytes()?;
        let auth_response =
            if caps.contains(Capabilities::SECURE_CONNECTION) { read_short_bytes(&mut reader)? } else { reader.nul_bytes()? };
        let mut change = Self { user, auth_response, schema: reader.nul_bytes_or_rest(), collation: None, plugin: None, attributes: &[] };
        if reader.remaining() < 2 {
            return Ok(change);
        }
        change.collation = Some(reader.u16()?);
        change.plugin = caps.contains(Capabilities::PLUGIN_AUTH).then(|| reader.nul_bytes_or_rest());
        if caps.contains(Capabilities::CONNECT_ATTRS) && !reader.is_empty() {
            change.attributes = reader.lenenc_bytes()?;
        }
        Ok(change)
    }

    /// Appends the payload, command byte first. `caps` are those agreed with the server.
    pub fn write(&self, out: &mut Vec<u8>, caps: Capabilities) {
        out.push(Command::ChangeUser as u8);
        put_nul_bytes(out, self.user);
        if caps.contains(Capabilities::SECURE_CONNECTION) {
            put_short_bytes(out, self.auth_response)
        } else {
            put_nul_bytes(out, self.auth_response)
        }
        put_nul_bytes(out, self.schema);
        let Some(collation) = self.collation else { return };
        put_u16(out, collation);
        if caps.contains(Capabilities::PLUGIN_AUTH) {
            put_nul_bytes(out, self.plugin.unwrap_or_default());
        }
        if caps.contains(Capabilities::CONNECT_ATTRS) {
            put_lenenc_bytes(out, self.attributes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn round_trips() {
        let caps = Capabilities::PROTOCOL_41 | Capabilities::SECURE_CONNECTION | Capabilities::PLUGIN_AUTH | Capabilities::CONNECT_ATTRS;
        let full = ChangeUser {
            user: b"app",
            auth_response: &[1; 32],
            schema: b"",
            collation: Some(309),
            plugin: Some(b"caching_sha2_password"),
            attributes: b"\x01a\x01b",
        };
        let short = ChangeUser { collation: None, plugin: None, attributes: b"", ..full };
        for change in [full, short] {
            let mut out = Vec::new();
            change.write(&mut out, caps);
            assert_eq!(ChangeUser::parse(&out, caps).unwrap(), change);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(mut bytes: Vec<u8>, caps: u64) {
            bytes.insert(0, 0x11);
            let _ = ChangeUser::parse(&bytes, Capabilities(caps));
        }
    }
}
