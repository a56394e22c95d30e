//! Whether the insert id of an OK packet must have been generated.
//!
//! After INSERT or REPLACE the OK packet carries one of two values (MySQL manual, `mysql_insert_id()`). It is the first generated
//! AUTO_INCREMENT value, which `LAST_INSERT_ID()` then returns too. If none was generated, it is the last value that the statement gave
//! explicitly, and `LAST_INSERT_ID()` keeps its old value. The text decides if no value in it can have become that id. Assignments by a
//! trigger cannot be seen here.

use crate::cursor::Cursor;
use crate::keywords::Kw;
use crate::token::{LexMode, TokenKind};

/// Longest text that is read again, bytes.
const LONG: usize = 64 << 10;

/// Whether the text proves that the server generated `id`, the insert id of the OK packet.
///
/// Only a single `INSERT` or `REPLACE` with `VALUES`, `VALUE` or `SET` and plain values can prove it: literals other than `id`, `NULL`,
/// `DEFAULT`, and functions like `NOW()`. No allocation.
///
/// A text of more than 64 KiB proves nothing: asking the server takes less time than reading so much again.
pub fn insert_id_is_certain(sql: &[u8], mode: LexMode, id: u64) -> bool {
    prepared_insert_id_is_certain(sql, mode, id) && !has_placeholder(sql, mode)
}

/// As [`insert_id_is_certain`] for a prepared statement: placeholders are taken as values that are
/// not `id`; the caller compares the values that were bound to them.
pub fn prepared_insert_id_is_certain(sql: &[u8], mode: LexMode, id: u64) -> bool {
    if id == 0 || is_clamp(id) || sql.len() > LONG {
        return false;
    }
    let mut cursor = Cursor::new(sql, mode);
    if !cursor.eat_any(&[Kw::Insert, Kw::Replace]) {
        return false;
    }
    let Some(assigns) = skip_head(&mut cursor) else {
        return false;
    };
    if assigns { assigned_values(&mut cursor, id) } else { listed_values(&mut cursor, id) }
}

/// A text statement with a bare `?` is not one that a server accepts.
fn has_placeholder(sql: &[u8], mode: LexMode) -> bool {
    if !sql.contains(&b'?') {
        return false;
    }
    let mut cursor = Cursor::new(sql, mode);
    while !cursor.at_end() {
        if cursor.kind() == TokenKind::Placeholder {
            return true;
        }
        cursor.bump();
    }
    false
}

/// Values to which an integer column clamps a value that is too large, outside strict mode.
fn is_clamp(id: u64) -> bool {
    const SIGNED_BITS: [u32; 5] = [7, 15, 23, 31, 63];
    const UNSIGNED_BITS: [u32; 5] = [8, 16, 24, 32, 64];
    SIGNED_BITS.iter().chain(&UNSIGNED_BITS).any(|bits| id == u64::MAX >> (64 - bits))
}

/// Steps over the table and its columns; true when `SET` follows, false for `VALUES`.
fn skip_head(cursor: &mut Cursor<'_>) -> Option<bool> {
    let mut depth = 0usize;
    while !cursor.at_statement_end() {
        match (cursor.kind(), cursor.kw()) {
            (TokenKind::Punct(b'('), _) => depth += 1,
            (TokenKind::Punct(b')'), _) => depth = depth.checked_sub(1)?,
            (TokenKind::Punct(b'.' | b','), _) | (TokenKind::QuotedName, _) => {}
            (TokenKind::Word, Kw::Select | Kw::With | Kw::Table) => return None,
            (TokenKind::Word, Kw::Values | Kw::Value) if depth == 0 => {
                cursor.bump();
                return Some(false);
            }
            (TokenKind::Word, Kw::Set) if depth == 0 => {
                cursor.bump();
                return Some(true);
            }
            (TokenKind::Word, _) => {}
            _ => return None,
        }
        cursor.bump();
    }
    None
}

/// `(v, v), (v, v)` to the end of the statement.
fn listed_values(cursor: &mut Cursor<'_>, id: u64) -> bool {
    while !cursor.at_statement_end() {
        let fits = match cursor.kind() {
            TokenKind::Punct(b'(' | b')' | b',') => {
                cursor.bump();
                true
            }
            _ => value(cursor, id),
        };
        if !fits {
            return false;
        }
    }
    cursor.done()
}

/// `column = v, column = v` to the end of the statement.
fn assigned_values(cursor: &mut Cursor<'_>, id: u64) -> bool {
    loop {
        let mut named = skip_name(cursor);
        while cursor.eat_punct(b'.') {
            named = skip_name(cursor);
        }
        if !named || !cursor.eat_punct(b'=') || !value(cursor, id) {
            return false;
        }
        if !cursor.eat_punct(b',') {
            return cursor.done();
        }
    }
}

fn skip_name(cursor: &mut Cursor<'_>) -> bool {
    let is_name = matches!(cursor.kind(), TokenKind::Word | TokenKind::QuotedName);
    if is_name {
        cursor.bump();
    }
    is_name
}

/// One plain value that cannot be `id`.
fn value(cursor: &mut Cursor<'_>, id: u64) -> bool {
    let negative = cursor.token().is(b'-');
    if negative || cursor.token().is(b'+') {
        cursor.bump();
        return cursor.kind() == TokenKind::Number && literal(cursor, id);
    }
    match (cursor.kind(), cursor.kw()) {
        (TokenKind::Number | TokenKind::String, _) => literal(cursor, id),
        (TokenKind::Placeholder, _) => ends_value(cursor),
        (_, Kw::Null) => ends_value(cursor),
        (_, Kw::Default) => ends_value(cursor),
        (_, Kw::True | Kw::False) => id != 1 && ends_value(cursor),
        (_, kw) if kw.is_stamp_function() => stamp(cursor, id),
        _ => false,
    }
}

fn literal(cursor: &mut Cursor<'_>, id: u64) -> bool {
    let text = cursor.text();
    let differs = match cursor.kind() {
        TokenKind::Number => number_differs(text, id),
        _ => string_differs(text.get(1..).unwrap_or_default(), id),
    };
    differs && ends_value(cursor)
}

/// Steps over the value; what follows must end it.
fn ends_value(cursor: &mut Cursor<'_>) -> bool {
    cursor.bump();
    cursor.at_statement_end() || cursor.token().is(b',') || cursor.token().is(b')')
}

/// `NOW()`, `NOW(6)`, `CURRENT_TIMESTAMP`.
fn stamp(cursor: &mut Cursor<'_>, id: u64) -> bool {
    cursor.bump();
    if cursor.eat_punct(b'(') {
        if cursor.kind() == TokenKind::Number {
            if !number_differs(cursor.text(), id) {
                return false;
            }
            cursor.bump();
        }
        if !cursor.eat_punct(b')') {
            return false;
        }
    }
    cursor.at_statement_end() || cursor.token().is(b',') || cursor.token().is(b')')
}

/// A string converts by its leading number. A backslash where the number could start or go on
/// may hide a digit, so it counts as equal.
fn string_differs(content: &[u8], id: u64) -> bool {
    let blank = content.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let rest = &content[blank..];
    let sign = usize::from(matches!(rest.first(), Some(b'+' | b'-')));
    let rest = &rest[sign..];
    let len = rest.iter().take_while(|&&byte| is_number_byte(byte)).count();
    if rest.get(len) == Some(&b'\\') {
        return false;
    }
    let starts = rest.first().is_some_and(|byte| byte.is_ascii_digit() || *byte == b'.');
    !starts || number_differs(&rest[..len], id)
}

fn is_number_byte(byte: u8) -> bool {
    byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-')
}

/// Both signs are compared: a negative value may come back as its two's complement.
fn number_differs(text: &[u8], id: u64) -> bool {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let Some(integer) = decimal(&text[..digits]) else {
        return false;
    };
    match text.get(digits) {
        None => integer != id && integer.wrapping_neg() != id,
        // A fraction rounds to one of its neighbours.
        Some(b'.') if !text[digits..].iter().any(|byte| matches!(byte, b'e' | b'E')) => {
            let up = integer.wrapping_add(1);
            ![integer, up, integer.wrapping_neg(), up.wrapping_neg()].contains(&id)
        }
        // A date such as 2024-05-01 converts to its year.
        Some(b'-' | b'+') => integer != id && integer.wrapping_neg() != id,
        Some(b'e' | b'E') => match scaled(integer, &text[digits + 1..]) {
            Some(value) => value != id && value.wrapping_neg() != id,
            None => false,
        },
        // Hexadecimal and bit literals, fractions with an exponent: not followed.
        Some(_) => false,
    }
}

/// `integer` times ten to the power that `exponent` starts with; `None` for a negative power.
fn scaled(integer: u64, exponent: &[u8]) -> Option<u64> {
    let unsigned = exponent.strip_prefix(b"+").unwrap_or(exponent);
    if unsigned.first() == Some(&b'-') {
        return None;
    }
    let digits = unsigned.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let power = decimal(&unsigned[..digits])?.min(20);
    Some((0..power).fold(integer, |value, _| value.saturating_mul(10)))
}

/// An unsigned decimal; too large ones saturate (the caller refuses ids at the limits).
fn decimal(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |value, digit| Some(value.saturating_mul(10).saturating_add(u64::from(digit.checked_sub(b'0')?))))
}
