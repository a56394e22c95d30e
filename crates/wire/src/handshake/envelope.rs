//! The envelopes that authentication plugins talk in: AuthSwitchRequest and AuthMoreData.

use crate::codec::{Reader, put_nul_bytes};
use crate::error::{Result, WireError};

/// First byte of an AuthSwitchRequest.
pub const AUTH_SWITCH: u8 = 0xfe;
/// First byte of an AuthMoreData.
pub const AUTH_MORE_DATA: u8 = 0x01;
/// The plugin that the one-byte request of old servers means.
const OLD_PLUGIN: &[u8] = b"mysql_old_password";
/// Length of the usual scramble with its NUL, in bytes.
const SCRAMBLE_AND_NUL: usize = 21;

/// "Answer again, with this plugin and this scramble."
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuthSwitchRequest<'a> {
    /// The plugin's name; `mysql_old_password` when the request was the lone byte 0xfe.
    pub plugin: &'a [u8],
    /// The plugin's data: 20 bytes of scramble without the NUL behind it, or other data of the plugin. MariaDB's ed25519 has 32 bytes,
    /// whose last byte may be 0.
    pub data: &'a [u8],
}

impl<'a> AuthSwitchRequest<'a> {
    /// Reads a payload that begins with 0xfe.
    pub fn parse(payload: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(payload);
        if reader.u8()? != AUTH_SWITCH {
            return Err(WireError::Malformed("not an AuthSwitchRequest"));
        }
        if reader.is_empty() {
            return Ok(Self { plugin: OLD_PLUGIN, data: &[] });
        }
        let plugin = reader.nul_bytes()?;
        let data = reader.rest();
        let scramble = data.strip_suffix(&[0]).filter(|_| data.len() == SCRAMBLE_AND_NUL);
        Ok(Self { plugin, data: scramble.unwrap_or(data) })
    }

    /// Appends the payload; 20 bytes of scramble get their NUL.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(AUTH_SWITCH);
        put_nul_bytes(out, self.plugin);
        out.extend_from_slice(self.data);
        if self.data.len() + 1 == SCRAMBLE_AND_NUL {
            out.push(0);
        }
    }
}

/// The data of an AuthMoreData payload (which begins with 0x01).
pub fn auth_more_data(payload: &[u8]) -> Result<&[u8]> {
    match payload.split_first() {
        Some((&AUTH_MORE_DATA, data)) => Ok(data),
        _ => Err(WireError::Malformed("not an AuthMoreData")),
    }
}

/// Appends an AuthMoreData payload.
pub fn put_auth_more_data(out: &mut Vec<u8>, data: &[u8]) {
    out.push(AUTH_MORE_DATA);
    out.extend_from_slice(data);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switch_round_trips() {
        for data in [&[7u8; 20][..], &[0; 32], b""] {
            let request = AuthSwitchRequest { plugin: b"client_ed25519", data };
            let mut out = Vec::new();
            request.write(&mut out);
            assert_eq!(AuthSwitchRequest::parse(&out).unwrap(), request);
        }
    }

    #[test]
    fn one_byte_means_the_old_password() {
        assert_eq!(AuthSwitchRequest::parse(&[0xfe]).unwrap().plugin, OLD_PLUGIN);
        assert!(AuthSwitchRequest::parse(&[0xfe, b'x']).is_err());
        assert!(AuthSwitchRequest::parse(&[]).is_err());
    }

    #[test]
    fn more_data() {
        let mut out = Vec::new();
        put_auth_more_data(&mut out, b"\x04");
        assert_eq!(auth_more_data(&out), Ok(&b"\x04"[..]));
        assert!(auth_more_data(&[2]).is_err());
    }
}
