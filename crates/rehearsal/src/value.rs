//! A value in canonical bytes: the text and the binary protocol give the same bytes for the same value.
//!
//! Numbers are decimals without leading zeros, temporal values are text without trailing zeros of the fraction, floats are rounded to
//! 12 digits (FLOAT: 6). A second form keeps all digits of floats. All other values are their bytes. Types and encodings: MySQL protocol
//! pages "Column Definition" and "Binary Protocol Resultset".

use std::io::Write as _;
use wire::WireError;
use wire::codec::Reader;
use wire::temporal::{Clock, Moment, Shape, Span};

const TINY: u8 = 1;
const SHORT: u8 = 2;
const LONG: u8 = 3;
const FLOAT: u8 = 4;
const DOUBLE: u8 = 5;
const TIMESTAMP: u8 = 7;
const LONGLONG: u8 = 8;
const INT24: u8 = 9;
const DATE: u8 = 10;
const TIME: u8 = 11;
const DATETIME: u8 = 12;
const YEAR: u8 = 13;
/// UNSIGNED_FLAG of a column.
const UNSIGNED: u16 = 32;

/// The type of a column, as its definition has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnType {
    /// Number of the type.
    pub kind: u8,
    /// Flags of the definition.
    pub flags: u16,
}

impl ColumnType {
    pub(crate) fn is_float(self) -> bool {
        matches!(self.kind, FLOAT | DOUBLE)
    }
}

/// A row in canonical bytes.
#[derive(Debug, Default)]
pub(crate) struct Canonical {
    /// Floats are rounded.
    pub rounded: Vec<u8>,
    /// Floats have all digits; empty where the row has no float.
    pub exact: Vec<u8>,
    has_floats: bool,
    scratch: Vec<u8>,
}

impl Canonical {
    /// Begins a row of these columns.
    pub(crate) fn begin(&mut self, has_floats: bool) {
        self.rounded.clear();
        self.exact.clear();
        self.has_floats = has_floats;
    }

    /// SQL's NULL.
    pub(crate) fn put_null(&mut self) {
        self.rounded.push(0);
        if self.has_floats {
            self.exact.push(0);
        }
    }

    /// A value of the text protocol.
    pub(crate) fn put_text(&mut self, column: ColumnType, bytes: &[u8]) {
        match column.kind {
            TINY | SHORT | LONG | LONGLONG | INT24 | YEAR => {
                let (sign, digits) = match bytes.strip_prefix(b"-") {
                    Some(digits) => (&b"-"[..], digits),
                    None => (&b""[..], bytes),
                };
                let zeros = digits.iter().take(digits.len().saturating_sub(1)).take_while(|digit| **digit == b'0').count();
                let digits = digits.get(zeros..).unwrap_or_default();
                self.put_parts(&[sign, digits]);
            }
            FLOAT | DOUBLE => match std::str::from_utf8(bytes).ok().and_then(|text| text.trim().parse::<f64>().ok()) {
                Some(number) => self.put_float(column.kind, number),
                None => self.put_parts(&[bytes]),
            },
            TIMESTAMP | DATETIME | TIME => self.put_parts(&[without_zeros(bytes)]),
            _ => self.put_parts(&[bytes]),
        }
    }

    /// The next value of a row of the binary protocol.
    pub(crate) fn put_binary(&mut self, column: ColumnType, row: &mut Reader<'_>) -> Result<(), WireError> {
        let is_unsigned = column.flags & UNSIGNED != 0;
        match column.kind {
            TINY => self.put_integer(row.array::<1>()?, is_unsigned),
            SHORT | YEAR => self.put_integer(row.array::<2>()?, is_unsigned || column.kind == YEAR),
            LONG | INT24 => self.put_integer(row.array::<4>()?, is_unsigned),
            LONGLONG => self.put_integer(row.array::<8>()?, is_unsigned),
            FLOAT => self.put_float(FLOAT, f64::from(f32::from_le_bytes(row.array::<4>()?))),
            DOUBLE => self.put_float(DOUBLE, f64::from_le_bytes(row.array::<8>()?)),
            DATE | DATETIME | TIMESTAMP | TIME => {
                let mut text = std::mem::take(&mut self.scratch);
                text.clear();
                let read = put_temporal(column.kind, row, &mut text);
                self.put_parts(&[without_zeros(&text)]);
                self.scratch = text;
                read.ok_or(WireError::Malformed("a date or time"))?;
            }
            _ => {
                let bytes = row.lenenc_bytes()?;
                self.put_parts(&[bytes]);
            }
        }
        Ok(())
    }

    fn put_integer<const N: usize>(&mut self, bytes: [u8; N], is_unsigned: bool) {
        let is_negative = !is_unsigned && bytes.last().is_some_and(|high| high & 0x80 != 0);
        let mut wide = [if is_negative { 0xff } else { 0 }; 16];
        wide.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        let mut text = std::mem::take(&mut self.scratch);
        text.clear();
        // Writing to a vector cannot fail.
        let _ = write!(text, "{}", i128::from_le_bytes(wide));
        self.put_parts(&[&text]);
        self.scratch = text;
    }

    fn put_float(&mut self, kind: u8, number: f64) {
        // Minus zero is zero.
        let number = if number == 0.0 { 0.0 } else { number };
        let mut text = std::mem::take(&mut self.scratch);
        text.clear();
        let _ = if kind == FLOAT { write!(text, "{number:.5e}") } else { write!(text, "{number:.11e}") };
        put(&mut self.rounded, &[&text]);
        put(&mut self.exact, &[&number.to_bits().to_le_bytes()]);
        self.scratch = text;
    }

    fn put_parts(&mut self, parts: &[&[u8]]) {
        put(&mut self.rounded, parts);
        if self.has_floats {
            put(&mut self.exact, parts);
        }
    }
}

/// One value: that it is none of NULL, its length, its bytes.
fn put(out: &mut Vec<u8>, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    out.push(1);
    out.extend_from_slice(&(len as u64).to_le_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// A temporal value without the zeros that end its fraction.
fn without_zeros(text: &[u8]) -> &[u8] {
    if !text.contains(&b'.') {
        return text;
    }
    let zeros = text.iter().rev().take_while(|byte| **byte == b'0').count();
    let text = text.get(..text.len() - zeros).unwrap_or_default();
    text.strip_suffix(b".").unwrap_or(text)
}

/// Appends the text of a binary value with six decimals. None where it has no such text.
fn put_temporal(kind: u8, row: &mut Reader<'_>, out: &mut Vec<u8>) -> Option<()> {
    match kind {
        TIME => Span::read(row)?.put_text(6, out),
        DATE => Moment { clock: Clock::default(), ..Moment::read(row)? }.put_text(Shape::Date, out),
        _ => Moment::read(row)?.put_text(Shape::DateTime(6), out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::codec::put_lenenc_bytes;

    fn column(kind: u8, flags: u16) -> ColumnType {
        ColumnType { kind, flags }
    }

    fn text(column: ColumnType, value: &str) -> (Vec<u8>, Vec<u8>) {
        let mut canonical = Canonical::default();
        canonical.begin(column.is_float());
        canonical.put_text(column, value.as_bytes());
        (canonical.rounded, canonical.exact)
    }

    fn binary(column: ColumnType, value: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mut canonical = Canonical::default();
        canonical.begin(column.is_float());
        let mut reader = Reader::new(value);
        canonical.put_binary(column, &mut reader).unwrap();
        assert!(reader.is_empty());
        (canonical.rounded, canonical.exact)
    }

    #[test]
    fn both_protocols_give_the_same() {
        let with_length = |bytes: &[u8]| [&[u8::try_from(bytes.len()).unwrap()], bytes].concat();
        let of_text = |value: &[u8]| {
            let mut out = Vec::new();
            put_lenenc_bytes(&mut out, value);
            out
        };
        for (kind, flags, said, sent) in [
            (TINY, 0, "-1", vec![0xff]),
            (TINY, UNSIGNED, "255", vec![0xff]),
            (SHORT, 0, "00012", vec![12, 0]),
            (LONG, 0, "-2147483648", (i32::MIN).to_le_bytes().to_vec()),
            (LONG, UNSIGNED, "4294967295", vec![0xff; 4]),
            (INT24, 0, "-8388608", (-8_388_608_i32).to_le_bytes().to_vec()),
            (LONGLONG, UNSIGNED, "18446744073709551615", vec![0xff; 8]),
            (LONGLONG, 0, "-9223372036854775808", i64::MIN.to_le_bytes().to_vec()),
            (YEAR, UNSIGNED, "2026", 2026_u16.to_le_bytes().to_vec()),
            (YEAR, UNSIGNED, "0000", vec![0, 0]),
            (DOUBLE, 0, "1.5", 1.5_f64.to_le_bytes().to_vec()),
            (DOUBLE, 0, "-0", 0.0_f64.to_le_bytes().to_vec()),
            (DOUBLE, 0, "1e100", 1e100_f64.to_le_bytes().to_vec()),
            (DATE, 0, "2026-11-28", with_length(&[0xea, 7, 11, 28])),
            (DATE, 0, "0000-00-00", with_length(&[])),
            (DATETIME, 0, "2026-11-28 00:00:00", with_length(&[0xea, 7, 11, 28])),
            (DATETIME, 0, "2026-11-28 01:02:03.000000", with_length(&[0xea, 7, 11, 28, 1, 2, 3])),
            (TIMESTAMP, 0, "2026-11-28 01:02:03.500000", with_length(&[0xea, 7, 11, 28, 1, 2, 3, 0x20, 0xa1, 7, 0])),
            (DATETIME, 0, "0000-00-00 00:00:00", with_length(&[])),
            (TIME, 0, "00:00:00", with_length(&[])),
            (TIME, 0, "-26:00:01", with_length(&[1, 1, 0, 0, 0, 2, 0, 1])),
            (TIME, 0, "01:02:03.25", with_length(&[0, 0, 0, 0, 0, 1, 2, 3, 0x90, 0xd0, 3, 0])),
            (246, 0, "10.50", of_text(b"10.50")),
            (253, 0, "it's", of_text(b"it's")),
            (252, 0, "", of_text(b"")),
        ] {
            let column = column(kind, flags);
            assert_eq!(text(column, said), binary(column, &sent), "{kind}: {said}");
        }
    }

    #[test]
    fn digits_beyond_the_twelfth_are_another_form() {
        let double = column(DOUBLE, 0);
        let (one, other) = (text(double, "0.1234567890123"), text(double, "0.1234567890124"));
        assert_eq!(one.0, other.0);
        assert_ne!(one.1, other.1);
        assert_ne!(text(double, "0.12345678901").0, text(double, "0.12345678902").0);
        let float = column(FLOAT, 0);
        assert_eq!(text(float, "3.14159").0, binary(float, &std::f32::consts::PI.to_le_bytes()).0, "servers write six digits");
    }

    #[test]
    fn borders_of_values_count() {
        let varchar = column(253, 0);
        let row = |values: &[Option<&str>]| {
            let mut canonical = Canonical::default();
            canonical.begin(false);
            values.iter().for_each(|value| match value {
                None => canonical.put_null(),
                Some(value) => canonical.put_text(varchar, value.as_bytes()),
            });
            canonical.rounded.clone()
        };
        let rows =
            [row(&[Some("a"), Some("bc")]), row(&[Some("ab"), Some("c")]), row(&[Some(""), None]), row(&[None, Some("")]), row(&[None])];
        for (i, one) in rows.iter().enumerate() {
            assert!(rows.iter().skip(i + 1).all(|other| one != other), "{i}");
        }
    }

    #[test]
    fn a_value_that_is_cut_off_is_an_error() {
        let mut canonical = Canonical::default();
        for (kind, bytes) in
            [(LONG, &[1_u8, 2][..]), (DATETIME, &[7, 1, 2]), (DATETIME, &[5, 0, 0, 0, 0, 0]), (TIME, &[1, 0]), (253, &[5, 1])]
        {
            assert!(canonical.put_binary(column(kind, 0), &mut Reader::new(bytes)).is_err(), "{kind}");
        }
    }
}
