//! The parameters of an execution, as SQL literals.
//!
//! The literals are for a cache key: they never go to a server. Two properties are owed. Different values give different
//! literals, and a literal means in a comparison what the parameter means. A value without such a literal is `None`; its
//! execution then has a key of its own.
//!
//! Source: "COM_STMT_EXECUTE", "Binary Protocol Value"; MySQL manual, "Literal Values".

use sql::LexMode;
use wire::codec::Reader;
use wire::temporal::{Clock, Moment, Shape, Span};

/// Appends the value of type `type_code`, next in `reader`, as a literal.
pub(crate) fn put_literal(type_code: u8, is_unsigned: bool, reader: &mut Reader<'_>, mode: LexMode, out: &mut Vec<u8>) -> Option<()> {
    match type_code {
        1 | 2 | 3 | 8 => put_integer(integer_len(type_code), is_unsigned, reader, out),
        4 => put_double(f64::from(f32::from_le_bytes(reader.array().ok()?)), out),
        5 => put_double(f64::from_le_bytes(reader.array().ok()?), out),
        15 | 253 | 254 => put_string(reader.lenenc_bytes().ok()?, mode, out),
        249..=252 => {
            out.extend_from_slice(b"_binary");
            put_string(reader.lenenc_bytes().ok()?, mode, out)
        }
        10 => put_temporal(out, b"DATE'", |out| Moment::read(reader)?.put_text(Shape::Date, out)),
        7 | 12 => put_temporal(out, b"TIMESTAMP'", |out| {
            let moment = Moment::read(reader)?;
            moment.put_text(Shape::DateTime(decimals(&moment.clock)), out)
        }),
        11 => put_temporal(out, b"TIME'", |out| {
            let span = Span::read(reader)?;
            span.put_text(decimals(&span.clock), out)
        }),
        _ => None,
    }
}

fn integer_len(type_code: u8) -> usize {
    match type_code {
        1 => 1,
        2 => 2,
        8 => 8,
        _ => 4,
    }
}

fn put_integer(len: usize, is_unsigned: bool, reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Option<()> {
    let bytes = reader.bytes(len).ok()?;
    let is_negative = !is_unsigned && bytes.last().is_some_and(|last| last & 0x80 != 0);
    let mut wide = [if is_negative { 0xff } else { 0 }; 16];
    wide.get_mut(..len)?.copy_from_slice(bytes);
    let value = i128::from_le_bytes(wide);
    // As text, the least BIGINT is a decimal below zero.
    if value == i128::from(i64::MIN) {
        return None;
    }
    out.extend_from_slice(value.to_string().as_bytes());
    Some(())
}

/// With an exponent it is a DOUBLE; without one it would be a DECIMAL. Rust writes the shortest digits that read back as
/// the same number.
fn put_double(value: f64, out: &mut Vec<u8>) -> Option<()> {
    if !value.is_finite() {
        return None;
    }
    out.extend_from_slice(format!("{value:e}").as_bytes());
    Some(())
}

/// As `mysql_real_escape_string` writes it, so that clients that escape on their own write the same. ASCII only: under
/// some character sets (gbk, sjis, ...) other bytes change what a backslash means.
fn put_string(text: &[u8], mode: LexMode, out: &mut Vec<u8>) -> Option<()> {
    if !text.is_ascii() {
        return None;
    }
    out.push(b'\'');
    for byte in text {
        match escaped(*byte).filter(|_| !mode.no_backslash_escapes) {
            Some(letter) => out.extend_from_slice(&[b'\\', letter]),
            None if *byte == b'\'' => out.extend_from_slice(b"''"),
            None => out.push(*byte),
        }
    }
    out.push(b'\'');
    Some(())
}

fn escaped(byte: u8) -> Option<u8> {
    Some(match byte {
        0 => b'0',
        b'\n' => b'n',
        b'\r' => b'r',
        0x1a => b'Z',
        b'\\' | b'\'' | b'"' => byte,
        _ => return None,
    })
}

fn decimals(clock: &Clock) -> u8 {
    if clock.micro == 0 { 0 } else { 6 }
}

fn put_temporal(out: &mut Vec<u8>, open: &[u8], put: impl FnOnce(&mut Vec<u8>) -> Option<()>) -> Option<()> {
    out.extend_from_slice(open);
    put(out)?;
    out.push(b'\'');
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sql::{Lexer, TokenKind};

    fn literal(type_code: u8, is_unsigned: bool, value: &[u8]) -> Option<String> {
        let mut out = Vec::new();
        let mut reader = Reader::new(value);
        put_literal(type_code, is_unsigned, &mut reader, LexMode::default(), &mut out)?;
        assert!(reader.is_empty());
        Some(String::from_utf8(out).unwrap())
    }

    #[test]
    fn literals_of_every_type() {
        let cases: [(u8, bool, &[u8], Option<&str>); 21] = [
            (1, false, b"\xff", Some("-1")),
            (1, true, b"\xff", Some("255")),
            (2, false, b"\x05\0", Some("5")),
            (3, false, b"\xfe\xff\xff\xff", Some("-2")),
            (8, true, b"\xff\xff\xff\xff\xff\xff\xff\xff", Some("18446744073709551615")),
            (8, false, b"\0\0\0\0\0\0\0\x80", None),
            (5, false, &1.5f64.to_le_bytes(), Some("1.5e0")),
            (5, false, &1e300f64.to_le_bytes(), Some("1e300")),
            (5, false, &f64::NAN.to_le_bytes(), None),
            (4, false, &0.1f32.to_le_bytes(), Some("1.0000000149011612e-1")),
            // LIMIT refuses a DECIMAL, and takes the number that looks the same.
            (246, false, b"\x05-1.50", None),
            (9, false, b"\x05\0\0\0", None),
            (253, false, b"\x04it's", Some("'it\\'s'")),
            (254, false, b"\x02a\\", Some("'a\\\\'")),
            (253, false, b"\x02\xc3\xa4", None),
            (252, false, b"\x01x", Some("_binary'x'")),
            (10, false, b"\x04\xe8\x07\x02\x1d", Some("DATE'2024-02-29'")),
            (12, false, b"\x04\xe8\x07\x02\x1d", Some("TIMESTAMP'2024-02-29 00:00:00'")),
            (7, false, b"\x0b\xe8\x07\x02\x1d\x01\x02\x03\x04\0\0\0", Some("TIMESTAMP'2024-02-29 01:02:03.000004'")),
            (11, false, b"\x08\x01\x02\0\0\0\x03\x04\x05", Some("TIME'-51:04:05'")),
            (16, false, b"\x01\x01", None),
        ];
        for (type_code, is_unsigned, value, expected) in cases {
            assert_eq!(literal(type_code, is_unsigned, value).as_deref(), expected, "{type_code} {value:?}");
        }
    }

    #[test]
    fn without_backslash_escapes_only_the_quote_is_doubled() {
        let mut out = Vec::new();
        let mode = LexMode { no_backslash_escapes: true, ..LexMode::default() };
        put_literal(253, false, &mut Reader::new(b"\x04a'\\\n"), mode, &mut out).unwrap();
        assert_eq!(out, b"'a''\\\n'");
    }

    proptest! {
        /// A string stays inside its quotes, whatever it holds, and comes back from them.
        #[test]
        fn a_string_is_one_token(text in "[\\x00-\\x7f]{0,40}", plain: bool) {
            let mode = LexMode { no_backslash_escapes: plain, ..LexMode::default() };
            let mut value = Vec::new();
            wire::codec::put_lenenc_bytes(&mut value, text.as_bytes());
            let mut out = Vec::new();
            put_literal(253, false, &mut Reader::new(&value), mode, &mut out).unwrap();
            let token = Lexer::new(&out, mode).token();
            prop_assert_eq!((token.kind, token.start, token.end), (TokenKind::String, 0, out.len()));
        }

        #[test]
        fn doubles_are_told_apart(a: f64, b: f64) {
            prop_assume!(a.is_finite() && b.is_finite() && a.to_bits() != b.to_bits());
            prop_assert_ne!(literal(5, false, &a.to_le_bytes()), literal(5, false, &b.to_le_bytes()));
        }

        #[test]
        fn no_bytes_panic(type_code: u8, is_unsigned: bool, value: Vec<u8>) {
            let _ = put_literal(type_code, is_unsigned, &mut Reader::new(&value), LexMode::default(), &mut Vec::new());
        }
    }
}
