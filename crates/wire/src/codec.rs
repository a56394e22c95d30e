//! Integers and strings of the protocol: a checked reader over a slice, and the writers that match it.
//!
//! Source: "Protocol::Integers" and "Protocol::Strings". All integers are little-endian.
//! INVARIANT: a reader never moves past its end; short input is [`WireError::Malformed`].

use crate::error::{Result, WireError};

/// The error of a packet that ends inside a field.
const SHORT: WireError = WireError::Malformed("packet is too short");

/// A cursor over one payload. Every read is checked; a failed read leaves the position unspecified but in range.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    /// Fails if fewer are left.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, tail) = self.left.split_at_checked(n).ok_or(SHORT)?;
        self.left = tail;
        Ok(head)
    }

    /// Exactly `N` bytes, as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, tail) = self.left.split_first_chunk::<N>().ok_or(SHORT)?;
        self.left = tail;
        Ok(*head)
    }

    /// `int<1>`.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// `int<2>`.
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// `int<3>`, 0..=0xff_ff_ff.
    pub fn u24(&mut self) -> Result<u32> {
        let [a, b, c] = self.array()?;
        Ok(u32::from_le_bytes([a, b, c, 0]))
    }

    /// `int<4>`.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// `int<8>`.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// `int<lenenc>`; NULL (0xfb) and the ERR marker (0xff) are malformed here.
    pub fn lenenc(&mut self) -> Result<u64> {
        self.lenenc_opt()?.ok_or(WireError::Malformed("NULL where a length was due"))
    }

    /// `int<lenenc>`, or `None` for the text protocol's NULL (0xfb).
    pub fn lenenc_opt(&mut self) -> Result<Option<u64>> {
        Ok(Some(match self.u8()? {
            first @ 0..=0xfa => u64::from(first),
            0xfb => return Ok(None),
            0xfc => u64::from(self.u16()?),
            0xfd => u64::from(self.u24()?),
            0xfe => self.u64()?,
            0xff => return Err(WireError::Malformed("0xff is not a length")),
        }))
    }

    /// `string<lenenc>`.
    pub fn lenenc_bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.lenenc()?;
        self.bytes(usize::try_from(len).map_err(|_| SHORT)?)
    }

    /// `string<NUL>`: the bytes before the next NUL, which is consumed. No NUL is malformed.
    pub fn nul_bytes(&mut self) -> Result<&'a [u8]> {
        let at = memchr::memchr(0, self.left).ok_or(WireError::Malformed("string has no end"))?;
        let text = self.bytes(at)?;
        self.u8()?;
        Ok(text)
    }

    /// As [`Reader::nul_bytes`], but a missing NUL means "up to the end": what several drivers send last in a packet.
    pub fn nul_bytes_or_rest(&mut self) -> &'a [u8] {
        match memchr::memchr(0, self.left) {
            Some(at) => {
                let text = &self.left[..at];
                self.left = &self.left[at + 1..];
                text
            }
            None => self.rest(),
        }
    }

    /// All that is left (`string<EOF>`); never fails.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.left)
    }

    /// How many bytes are left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.left.len()
    }

    /// True when nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// The next byte, not consumed.
    #[must_use]
    pub fn peek(&self) -> Option<u8> {
        self.left.first().copied()
    }
}

/// Appends `int<2>`.
pub fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends `int<3>`; the top byte of `value` is dropped, so keep it in 0..=0xff_ff_ff.
pub fn put_u24(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes()[..3]);
}

/// Appends `int<4>`.
pub fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends `int<lenenc>` in its shortest form.
pub fn put_lenenc(out: &mut Vec<u8>, value: u64) {
    let bytes = value.to_le_bytes();
    match value {
        0..=0xfa => out.push(bytes[0]),
        0xfb..=0xffff => {
            out.push(0xfc);
            out.extend_from_slice(&bytes[..2]);
        }
        0x1_0000..=0xff_ffff => {
            out.push(0xfd);
            out.extend_from_slice(&bytes[..3]);
        }
        _ => {
            out.push(0xfe);
            out.extend_from_slice(&bytes);
        }
    }
}

/// Appends `string<lenenc>`.
pub fn put_lenenc_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_lenenc(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends `string<NUL>`. A NUL inside `bytes` would end the string early for the reader, so the rest is dropped.
pub fn put_nul_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
    out.extend_from_slice(&bytes[..end]);
    out.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn integers_are_little_endian() {
        let mut reader = Reader::new(&[1, 2, 0, 3, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 9]);
        assert_eq!(reader.u8(), Ok(1));
        assert_eq!(reader.u16(), Ok(2));
        assert_eq!(reader.u24(), Ok(3));
        assert_eq!(reader.u32(), Ok(4));
        assert_eq!(reader.u64(), Ok(5));
        assert_eq!(reader.peek(), Some(9));
        assert_eq!(reader.rest(), [9]);
        assert!(reader.is_empty());
        assert!(reader.u8().is_err());
    }

    #[test]
    fn null_and_the_error_marker_are_not_lengths() {
        assert_eq!(Reader::new(&[0xfb]).lenenc_opt(), Ok(None));
        assert!(Reader::new(&[0xfb]).lenenc().is_err());
        assert!(Reader::new(&[0xff]).lenenc_opt().is_err());
    }

    #[test]
    fn a_length_beyond_the_packet_is_malformed() {
        let mut huge = vec![0xfe];
        huge.extend_from_slice(&u64::MAX.to_le_bytes());
        assert!(Reader::new(&huge).lenenc_bytes().is_err());
    }

    #[test]
    fn nul_strings() {
        let mut reader = Reader::new(b"ab\0cd");
        assert_eq!(reader.nul_bytes(), Ok(&b"ab"[..]));
        assert!(reader.nul_bytes().is_err());
        assert_eq!(Reader::new(b"cd").nul_bytes_or_rest(), b"cd");
        let mut out = Vec::new();
        put_nul_bytes(&mut out, b"a\0b");
        assert_eq!(out, b"a\0");
    }

    proptest! {
        #[test]
        fn lenenc_round_trips(value: u64, shift in 0u32..64) {
            let value = value >> shift;
            let mut out = Vec::new();
            put_lenenc(&mut out, value);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.lenenc(), Ok(value));
            prop_assert!(reader.is_empty());
        }
    }
}
