//! Byte-level scanning that the lexer and the digest text share: character classes, and where names,
//! literals, comments and numbers end. All functions take the whole text and an offset, and give an
//! offset that is at most the text's length.

use memchr::{memchr, memchr2};

use crate::multibyte::MultiByte;
use crate::token::TokenKind;

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Class {
    Other,
    Space,
    /// May start an unquoted identifier.
    Letter,
    Digit,
    Quote,
    DoubleQuote,
    Backtick,
    /// `[`: opens a name under `MSSQL`.
    Bracket,
    At,
    Dot,
    Colon,
    Question,
    /// `#`, `-`, `/` and `*`: may belong to a comment.
    Comment,
}

const fn class_of(byte: u8) -> Class {
    match byte {
        b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => Class::Space,
        b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$' | 0x80.. => Class::Letter,
        b'0'..=b'9' => Class::Digit,
        b'\'' => Class::Quote,
        b'"' => Class::DoubleQuote,
        b'`' => Class::Backtick,
        b'[' => Class::Bracket,
        b'@' => Class::At,
        b'.' => Class::Dot,
        b':' => Class::Colon,
        b'?' => Class::Question,
        b'#' | b'-' | b'/' | b'*' => Class::Comment,
        _ => Class::Other,
    }
}

pub(crate) const CLASS: [Class; 256] = {
    let mut table = [Class::Other; 256];
    let mut byte = 0u8;
    loop {
        table[byte as usize] = class_of(byte);
        if byte == u8::MAX {
            break;
        }
        byte += 1;
    }
    table
};

const NAME: [bool; 256] = {
    let mut table = [false; 256];
    let mut at = 0;
    while at < table.len() {
        table[at] = matches!(CLASS[at], Class::Letter | Class::Digit);
        at += 1;
    }
    table
};

#[inline]
pub(crate) fn class(byte: u8) -> Class {
    CLASS[usize::from(byte)]
}

/// A character that may stand inside an unquoted identifier.
#[inline]
pub(crate) fn is_name(byte: u8) -> bool {
    NAME[usize::from(byte)]
}

/// A character that may stand inside the unquoted name of a user variable.
#[inline]
pub(crate) fn is_variable(byte: u8) -> bool {
    is_name(byte) || byte == b'.'
}

/// Offset of the first byte from `from` on that cannot stand in an identifier.
///
/// Eight bytes at a time, without a branch per byte: the lengths of words are hard to predict for a branch predictor.
#[inline]
pub(crate) fn name_end(sql: &[u8], from: usize) -> usize {
    let mut rest = sql.get(from..).unwrap_or_default();
    let mut at = from;
    while let Some((chunk, more)) = rest.split_first_chunk::<8>() {
        let others = !name_bytes(u64::from_le_bytes(*chunk)) & HIGH_BITS;
        if others != 0 {
            return at + (others.trailing_zeros() / 8) as usize;
        }
        at += 8;
        rest = more;
    }
    at + rest.iter().position(|&byte| !is_name(byte)).unwrap_or(rest.len())
}

pub(crate) const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// The high bit of each byte that may stand in an identifier.
#[inline]
fn name_bytes(bytes: u64) -> u64 {
    let low = bytes & !HIGH_BITS;
    let lower = low | (0x20 * ONES);
    let known = in_range(lower, b'a', b'z') | in_range(low, b'0', b'9');
    let signs = in_range(low, b'_', b'_') | in_range(low, b'$', b'$');
    bytes | known | signs
}

pub(crate) const ONES: u64 = 0x0101_0101_0101_0101;

/// The high bit of each byte of `low` (all below 0x80) in `first..=last`; other bits are noise.
#[inline]
pub(crate) fn in_range(low: u64, first: u8, last: u8) -> u64 {
    let from_first = low + ONES * u64::from(0x80 - first);
    let past_last = low + ONES * u64::from(0x7f - last);
    from_first & !past_last
}

/// Offset after the literal or name that opens at `open`, and that `quote` closes.
#[inline]
pub(crate) fn quoted_end(sql: &[u8], open: usize, quote: u8, backslash: bool) -> usize {
    let mut at = open + 1;
    loop {
        let rest = sql.get(at..).unwrap_or_default();
        let hit = if backslash { memchr2(quote, b'\\', rest) } else { memchr(quote, rest) };
        let Some(hit) = hit else { return sql.len() };
        at += hit;
        let goes_on = sql[at] != quote || sql.get(at + 1) == Some(&quote);
        if !goes_on {
            return at + 1;
        }
        at += 2;
    }
}

/// Whether the `-` at `at` begins a comment: a second one follows, and then a blank, a control character or nothing.
#[inline]
pub(crate) fn is_dash_comment(sql: &[u8], at: usize, charset: MultiByte) -> bool {
    sql.get(at + 1) == Some(&b'-') && sql.get(at + 2).is_none_or(|&third| charset.is_after_dashes(third))
}

/// Offset after the comment whose `/*` stands at `open`; the end of the text when it is not closed.
pub(crate) fn comment_end(sql: &[u8], open: usize) -> usize {
    let mut at = open + 2;
    while let Some(hit) = memchr(b'*', sql.get(at..).unwrap_or_default()) {
        at += hit + 1;
        if sql.get(at) == Some(&b'/') {
            return at + 1;
        }
    }
    sql.len()
}

/// Offset of the content when a version comment opens at `open`, past its version digits.
pub(crate) fn version_comment(sql: &[u8], open: usize) -> Option<usize> {
    let mark = match sql.get(open + 2)? {
        b'!' => open + 3,
        b'M' if sql.get(open + 3) == Some(&b'!') => open + 4,
        _ => return None,
    };
    let digits = sql[mark..].iter().take(6).take_while(|byte| byte.is_ascii_digit()).count();
    Some(if digits >= 5 { mark + digits } else { mark })
}

/// Whether some servers skip the version comment at `open` while others run it: for their version, or because it is MariaDB's own (`/*M!`).
pub(crate) fn is_skipped_by_some(sql: &[u8], open: usize) -> bool {
    condition(sql, open).is_some()
}

/// Which servers run a version comment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Condition {
    /// MariaDB alone: `/*M!`.
    pub(crate) mariadb_only: bool,
    /// Versions from this one on (80016, 101103); 0 without digits.
    pub(crate) from: u32,
}

/// The condition of the version comment at `open`; `None` when every server runs it, and of anything else.
pub(crate) fn condition(sql: &[u8], open: usize) -> Option<Condition> {
    let mariadb_only = sql.get(open + 2) == Some(&b'M');
    let content = version_comment(sql, open)?;
    let digits = &sql[open + if mariadb_only { 4 } else { 3 }..content];
    // Six digits stand for versions from 10.0 on.
    let always_runs = digits.len() < 6 && digits < b"50700".as_slice();
    let from = digits.iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0'));
    (mariadb_only || !always_runs).then_some(Condition { mariadb_only, from })
}

/// Where servers that skip the version comment at `open` continue. None if every server runs it. Two places if they do not agree.
pub(crate) fn skipped_to(sql: &[u8], open: usize) -> Option<(usize, usize)> {
    if !is_skipped_by_some(sql, open) {
        return None;
    }
    let nested = nested_comment_end(sql, open);
    #[cfg(test)]
    SEARCHED.set(SEARCHED.get() + nested - open);
    // To MySQL MariaDB's own is any comment.
    Some((nested, if sql.get(open + 2) == Some(&b'M') { comment_end(sql, open) } else { nested }))
}

#[cfg(test)]
thread_local! {
    /// Bytes that were searched for the ends of version comments.
    pub(crate) static SEARCHED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Like [`comment_end`], of a comment in which comments may stand.
fn nested_comment_end(sql: &[u8], open: usize) -> usize {
    let mut at = open + 2;
    while let Some(hit) = memchr2(b'*', b'/', sql.get(at..).unwrap_or_default()) {
        at += hit;
        match (sql[at], sql.get(at + 1)) {
            (b'*', Some(b'/')) => return at + 2,
            (b'/', Some(b'*')) => at = comment_end(sql, at),
            _ => at += 1,
        }
    }
    sql.len()
}

/// Offset of the end of the line that `from` is in.
pub(crate) fn line_end(sql: &[u8], from: usize) -> usize {
    let rest = sql.get(from..).unwrap_or_default();
    memchr(b'\n', rest).map_or(sql.len(), |hit| from + hit)
}

/// A token that starts with a digit or with `.` and a digit: a number, or a name such as `2024_sales`.
#[inline]
pub(crate) fn number(sql: &[u8], start: usize) -> (TokenKind, usize) {
    let end = digits_end(sql, start);
    let plain = sql.get(end).is_none_or(|&byte| byte != b'.' && !is_name(byte));
    if plain { (TokenKind::Number, end) } else { long_number(sql, start, end) }
}

/// A number with more than the integer digits that end at `digits`, or a name.
fn long_number(sql: &[u8], start: usize, digits: usize) -> (TokenKind, usize) {
    if sql[start] == b'0'
        && let Some(end) = radix_number(sql, start)
    {
        return (TokenKind::Number, end);
    }
    let is_integer = sql.get(digits) != Some(&b'.');
    let at = if is_integer { digits } else { digits_end(sql, digits + 1) };
    if let Some(end) = exponent_end(sql, at) {
        return (TokenKind::Number, end);
    }
    if is_integer && sql.get(at).is_some_and(|&byte| is_name(byte)) {
        return (TokenKind::Word, name_end(sql, at));
    }
    (TokenKind::Number, at)
}

fn radix_number(sql: &[u8], start: usize) -> Option<usize> {
    let is_digit = match sql.get(start + 1)? {
        b'x' => u8::is_ascii_hexdigit,
        b'b' => |byte: &u8| matches!(byte, b'0' | b'1'),
        _ => return None,
    };
    let end = name_end(sql, start + 2);
    let digits = &sql[start + 2..end];
    (!digits.is_empty() && digits.iter().all(is_digit)).then_some(end)
}

fn digits_end(sql: &[u8], from: usize) -> usize {
    let rest = sql.get(from..).unwrap_or_default();
    from + rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len())
}

/// End of `e5`, `E+5`, `e-5` at `at`.
fn exponent_end(sql: &[u8], at: usize) -> Option<usize> {
    if !matches!(sql.get(at)?, b'e' | b'E') {
        return None;
    }
    let signed = matches!(sql.get(at + 1), Some(b'+' | b'-'));
    let digits = at + 1 + usize::from(signed);
    let end = digits_end(sql, digits);
    let ends = end > digits && (signed || !sql.get(end).is_some_and(|&byte| is_name(byte)));
    ends.then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_at_a_time_agrees_with_the_table() {
        for byte in 0..=u8::MAX {
            for at in 0..12 {
                let mut text = *b"aZ09_$\xffqwert";
                text[at] = byte;
                let want = text.iter().position(|&byte| !is_name(byte)).unwrap_or(text.len());
                assert_eq!(name_end(&text, 0), want, "{byte:#x} at {at}");
            }
        }
    }
}
