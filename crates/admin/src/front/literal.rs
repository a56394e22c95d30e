//! Parameters of the binary protocol as literals of SQLite's dialect.
//!
//! Source: "Binary Protocol Value" in MySQL's protocol pages.

use wire::WireError;
use wire::codec::Reader;

pub(super) const NULL: &[u8] = b"NULL";
/// In a parameter's flags: unsigned.
const UNSIGNED: u8 = 0x80;

/// A parameter's type as the client sends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ParamType {
    /// MYSQL_TYPE_*.
    pub code: u8,
    /// 0x80: unsigned.
    pub flags: u8,
}

/// Reads the next value and writes it as a literal.
pub(super) fn read(given: ParamType, values: &mut Reader<'_>) -> Result<Vec<u8>, WireError> {
    let is_unsigned = given.flags & UNSIGNED != 0;
    Ok(match given.code {
        6 => NULL.to_vec(),
        1 => integer(is_unsigned, u64::from(values.u8()?), 8),
        2 | 13 => integer(is_unsigned, u64::from(values.u16()?), 16),
        3 | 9 => integer(is_unsigned, u64::from(values.u32()?), 32),
        8 => integer(is_unsigned, values.u64()?, 64),
        4 => float(f64::from(f32::from_le_bytes(values.array()?))),
        5 => float(f64::from_le_bytes(values.array()?)),
        7 | 10 | 12 | 14 | 17 | 18 => short(values, date_time)?,
        11 | 19 => short(values, time)?,
        0 | 246 => number_or_text(values.lenenc_bytes()?),
        15 | 16 | 242 | 245 | 247..=255 => text(values.lenenc_bytes()?),
        _ => return Err(WireError::Malformed("unknown parameter type")),
    })
}

/// Bytes as a text literal; as a blob where they are not text.
pub(super) fn text(bytes: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(bytes) {
        // SQLite's parser stops at a NUL.
        Ok(text) if !text.contains('\0') => format!("'{}'", text.replace('\'', "''")).into_bytes(),
        Ok(_) => format!("CAST(x'{}' AS TEXT)", hex(bytes)).into_bytes(),
        Err(_) => format!("x'{}'", hex(bytes)).into_bytes(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The low `bits` of `raw`, with their sign unless unsigned.
fn integer(is_unsigned: bool, raw: u64, bits: u32) -> Vec<u8> {
    let unused = 64 - bits;
    if is_unsigned { raw.to_string() } else { (((raw << unused).cast_signed()) >> unused).to_string() }.into_bytes()
}

fn float(value: f64) -> Vec<u8> {
    match value {
        v if v.is_nan() => NULL.to_vec(),
        v if v.is_infinite() => if v > 0.0 { "9e999" } else { "-9e999" }.as_bytes().to_vec(),
        v => format!("{v:?}").into_bytes(),
    }
}

/// DECIMAL comes as text: a number if it looks like one.
fn number_or_text(bytes: &[u8]) -> Vec<u8> {
    let is_number = std::str::from_utf8(bytes).is_ok_and(|t| t.parse::<f64>().is_ok_and(f64::is_finite));
    if is_number { bytes.to_vec() } else { text(bytes) }
}

/// A value with a length of one byte, read by `show`.
fn short(values: &mut Reader<'_>, show: fn(&mut Reader<'_>) -> Result<String, WireError>) -> Result<Vec<u8>, WireError> {
    let len = usize::from(values.u8()?);
    Ok(format!("'{}'", show(&mut Reader::new(values.bytes(len)?))?).into_bytes())
}

fn date_time(fields: &mut Reader<'_>) -> Result<String, WireError> {
    if fields.is_empty() {
        return Ok("0000-00-00".to_owned());
    }
    let date = format!("{:04}-{:02}-{:02}", fields.u16()?, fields.u8()?, fields.u8()?);
    if fields.is_empty() {
        return Ok(date);
    }
    Ok(format!("{date} {}", clock(0, fields)?))
}

fn time(fields: &mut Reader<'_>) -> Result<String, WireError> {
    if fields.is_empty() {
        return Ok("00:00:00".to_owned());
    }
    let sign = if fields.u8()? == 1 { "-" } else { "" };
    let days = fields.u32()?;
    Ok(format!("{sign}{}", clock(u64::from(days) * 24, fields)?))
}

/// Hours, minutes, seconds and perhaps microseconds.
fn clock(more_hours: u64, fields: &mut Reader<'_>) -> Result<String, WireError> {
    let whole = format!("{:02}:{:02}:{:02}", more_hours + u64::from(fields.u8()?), fields.u8()?, fields.u8()?);
    if fields.is_empty() { Ok(whole) } else { Ok(format!("{whole}.{:06}", fields.u32()?)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(code: u8, flags: u8, bytes: &[u8]) -> String {
        String::from_utf8(read(ParamType { code, flags }, &mut Reader::new(bytes)).unwrap()).unwrap()
    }

    #[test]
    fn every_kind_of_value() {
        let cases: [(u8, u8, &[u8], &str); 16] = [
            (6, 0, b"", "NULL"),
            (1, 0, b"\xff", "-1"),
            (1, UNSIGNED, b"\xff", "255"),
            (2, 0, b"\x00\x80", "-32768"),
            (8, 0, &[0xff; 8], "-1"),
            (8, UNSIGNED, &[0xff; 8], "18446744073709551615"),
            (5, 0, &1.5f64.to_le_bytes(), "1.5"),
            (4, 0, &2f32.to_le_bytes(), "2.0"),
            (5, 0, &f64::INFINITY.to_le_bytes(), "9e999"),
            (253, 0, b"\x04it's", "'it''s'"),
            (252, 0, b"\x02\xff\x00", "x'ff00'"),
            (254, 0, b"\x02a\x00", "CAST(x'6100' AS TEXT)"),
            (246, 0, b"\x041.50", "1.50"),
            (12, 0, b"\x07\xea\x07\x0b\x15\x04\x05\x06", "'2026-11-21 04:05:06'"),
            (10, 0, b"\x04\xea\x07\x0b\x15", "'2026-11-21'"),
            (11, 0, b"\x0c\x01\x01\0\0\0\x02\x03\x04\x05\0\0\0", "'-26:03:04.000005'"),
        ];
        for (code, flags, bytes, literal) in cases {
            assert_eq!(shown(code, flags, bytes), literal);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(code: u8, flags: u8, bytes: Vec<u8>) {
            let _ = read(ParamType { code, flags }, &mut Reader::new(&bytes));
        }

        #[test]
        fn text_is_one_quoted_piece(value in "[^\0]{0,20}") {
            let literal = text(value.as_bytes());
            prop_assert_eq!(super::super::split::statements(&literal), [&literal[..]]);
        }
    }
}
