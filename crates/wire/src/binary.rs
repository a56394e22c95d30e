//! Values of the binary protocol, as far as their length: parameters of prepared statements and query attributes.
//!
//! Source: "Binary Protocol Value". Values are found, not decoded.

use crate::codec::Reader;
use crate::error::{Result, WireError};

/// How a type's values are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// An integer of so many bytes.
    Integer(usize),
    /// MYSQL_TYPE_FLOAT: 4 bytes, IEEE 754.
    Float,
    /// MYSQL_TYPE_DOUBLE: 8 bytes, IEEE 754.
    Double,
    /// A date or time: a length, then the fields.
    Temporal,
    /// Text: a number as text, or a string.
    Text,
    /// A length-encoded number, then as many bytes.
    Bytes,
}

impl Layout {
    /// The layout of a MYSQL_TYPE_* code. Any other code is malformed: without a length, nothing after it can be found. Codes that clients
    /// do not send, and servers read differently, are left out: INT24, YEAR, and a NULL that is not marked as one. MySQL 9.7 reads all
    /// three as strings.
    pub(crate) fn of(type_code: u8) -> Result<Self> {
        Ok(match type_code {
            1 => Self::Integer(1),
            2 => Self::Integer(2),
            3 => Self::Integer(4),
            8 => Self::Integer(8),
            4 => Self::Float,
            5 => Self::Double,
            7 | 10..=12 | 14 | 17..=19 => Self::Temporal,
            0 | 15 | 246..=248 | 253 | 254 => Self::Text,
            16 | 242 | 245 | 249..=252 | 255 => Self::Bytes,
            _ => return Err(WireError::Malformed("unknown parameter type")),
        })
    }

    /// The next value of this layout, less its length.
    pub(crate) fn read<'a>(self, reader: &mut Reader<'a>) -> Result<&'a [u8]> {
        match self {
            Self::Integer(len) => reader.bytes(len),
            Self::Float => reader.bytes(4),
            Self::Double => reader.bytes(8),
            Self::Temporal | Self::Text | Self::Bytes => reader.lenenc_bytes(),
        }
    }
}

/// Length of a NULL bitmap for so many parameters, in bytes.
pub(crate) const fn bitmap_len(count: usize) -> usize {
    count.div_ceil(8)
}

/// True when the bitmap says NULL; a bitmap that is too short says no.
pub(crate) fn is_null(bitmap: &[u8], index: usize) -> bool {
    bitmap.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1)
}

/// The parameters' type codes from a types block: 2 bytes each, each followed by a name when `named`.
pub(crate) fn type_codes(types: &[u8], named: bool) -> impl Iterator<Item = Result<u8>> + '_ {
    let mut reader = Reader::new(types);
    std::iter::from_fn(move || (!reader.is_empty()).then(|| type_code(&mut reader, named)))
        .scan(false, |failed, code| (!std::mem::replace(failed, code.is_err())).then_some(code))
}

/// One entry of a types block.
pub(crate) fn type_code(reader: &mut Reader<'_>, named: bool) -> Result<u8> {
    let code = reader.u8()?;
    reader.u8()?; // 0x80: unsigned
    if named {
        reader.lenenc_bytes()?;
    }
    Ok(code)
}

/// The value of the first parameter of this name, if it is text or bytes. `types` is a types block with names; values that are not in
/// `values` (long data) make what follows them unreadable.
pub(crate) fn named_value<'a>(types: &[u8], nulls: &[u8], values: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    let (mut types, mut values) = (Reader::new(types), Reader::new(values));
    for index in 0.. {
        let code = types.u8().ok()?;
        types.u8().ok()?;
        let name = types.lenenc_bytes().ok()?;
        let is_wanted = name == wanted;
        if is_null(nulls, index) {
            if is_wanted {
                return None;
            }
            continue;
        }
        let layout = Layout::of(code).ok()?;
        let value = layout.read(&mut values).ok()?;
        if is_wanted {
            return matches!(layout, Layout::Text | Layout::Bytes).then_some(value);
        }
    }
    None
}
