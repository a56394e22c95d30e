//! What a column definition says about its values: how they look in a text row and in a binary row.
//!
//! Source: "Column Definition", "Binary Protocol Resultset Row". Only a column whose values have one exact image in the
//! other protocol is carried over; the rest ([`Coding::Apart`]) keeps a result to the protocol it came in.

use wire::codec::Reader;

/// How a column's values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// The same bytes with the same length in both: text, decimals, blobs, BIT, ENUM, SET, JSON, geometry, vectors.
    Bytes,
    /// An integer.
    Integer(Integer),
    /// YEAR: two bytes, or digits to this width.
    Year(u8),
    /// A date.
    Date,
    /// Date and time with so many decimals.
    DateTime(u8),
    /// A time with so many decimals.
    Time(u8),
    /// Not to be converted, unless NULL: floating point (each protocol rounds in its own way), padded integers, types
    /// and decimals that we do not know.
    Apart,
}

/// A binary integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Integer {
    /// 1, 2, 4 or 8.
    pub bytes: usize,
    /// Whether it may be below zero.
    pub is_signed: bool,
}

/// Column flag UNSIGNED_FLAG.
const UNSIGNED: u16 = 1 << 5;
/// Column flag ZEROFILL_FLAG.
const ZEROFILL: u16 = 1 << 6;
/// The fixed part at the end of a definition: its length (1), character set (2), length (4), type (1), flags (2), decimals
/// (1), filler (2).
const FIXED: usize = 13;
/// Most decimals of a second; larger numbers mean "not fixed".
const MAX_DECIMALS: u8 = 6;

impl Coding {
    /// Reads a column definition. The names before the fixed part, of which MariaDB has more under
    /// MARIADB_CLIENT_EXTENDED_METADATA, do not matter.
    pub(crate) fn of(definition: &[u8]) -> Option<Self> {
        let fixed = definition.get(definition.len().checked_sub(FIXED)?..)?;
        let mut reader = Reader::new(fixed);
        if reader.u8().ok()? != 0x0c {
            return None;
        }
        let _charset = reader.u16().ok()?;
        let width = reader.u32().ok()?;
        let type_code = reader.u8().ok()?;
        let flags = reader.u16().ok()?;
        let decimals = reader.u8().ok()?;
        Some(Self::from_type(type_code, flags, width, decimals))
    }

    fn from_type(type_code: u8, flags: u16, width: u32, decimals: u8) -> Self {
        match type_code {
            1 => Self::integer(1, flags),
            2 => Self::integer(2, flags),
            3 | 9 => Self::integer(4, flags),
            8 => Self::integer(8, flags),
            13 if width == 4 => Self::Year(4),
            10 | 14 => Self::Date,
            7 | 12 if decimals <= MAX_DECIMALS => Self::DateTime(decimals),
            11 if decimals <= MAX_DECIMALS => Self::Time(decimals),
            0 | 6 | 15 | 16 | 242 | 245..=255 => Self::Bytes,
            _ => Self::Apart,
        }
    }

    fn integer(bytes: usize, flags: u16) -> Self {
        match flags & ZEROFILL {
            0 => Self::Integer(Integer { bytes, is_signed: flags & UNSIGNED == 0 }),
            _ => Self::Apart,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A definition of a column called `c` as servers send it.
    pub(crate) fn definition(type_code: u8, flags: u16, width: u32, decimals: u8) -> Vec<u8> {
        let mut out = b"\x03def\x01d\x01t\x01t\x01c\x01c\x0c\x2d\0".to_vec();
        out.extend_from_slice(&width.to_le_bytes());
        out.push(type_code);
        out.extend_from_slice(&flags.to_le_bytes());
        out.extend_from_slice(&[decimals, 0, 0]);
        out
    }

    #[test]
    fn codings() {
        let of = |type_code, flags, decimals| Coding::of(&definition(type_code, flags, 4, decimals));
        let integer = |bytes, is_signed| Some(Coding::Integer(Integer { bytes, is_signed }));
        assert_eq!(of(8, UNSIGNED | 1, 0), integer(8, false));
        assert_eq!(of(9, 0, 0), integer(4, true));
        assert_eq!(of(3, ZEROFILL | UNSIGNED, 0), Some(Coding::Apart));
        assert_eq!(of(13, ZEROFILL | UNSIGNED, 0), Some(Coding::Year(4)));
        assert_eq!(of(12, 0, 3), Some(Coding::DateTime(3)));
        assert_eq!(of(11, 0, 31), Some(Coding::Apart));
        assert_eq!(of(246, 0, 2), Some(Coding::Bytes));
        assert_eq!(of(5, 0, 31), Some(Coding::Apart));
        assert_eq!(Coding::of(b"short"), None);
    }
}
