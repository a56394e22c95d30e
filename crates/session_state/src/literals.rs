//! Values of user variables as literals, by which they are carried to other connections.
//!
//! INVARIANT: a server that has the value's character set and collation refuses no literal made here, and the literal gives a
//! variable of the same type, value, character set and collation, under every sql_mode and character set of a session. What cannot
//! be had so has no literal.

use crate::charsets;
use crate::collected::Collected;
use crate::definition::{self, Definition};
use crate::question::COLUMNS_OF_VARIABLE;
use crate::state::{is_charset_name, is_wide, type_of_null};
use std::borrow::Cow;
use wire::codec::Reader;

/// Column types of the protocol that user variables have ([Column Definition](https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_com_query_response_text_resultset_column_definition.html)).
const DECIMAL: [u8; 2] = [0, 246];
const INTEGERS: [u8; 5] = [1, 2, 3, 8, 9];
const DOUBLES: [u8; 2] = [4, 5];
const STRINGS: [u8; 7] = [15, 249, 250, 251, 252, 253, 254];
/// Character sets in which any byte is a character, or may be.
const ONE_BYTE: [&str; 9] = ["binary", "latin1", "latin2", "latin5", "latin7", "cp1250", "cp1251", "cp1256", "koi8r"];
/// NULL in a row of text.
const SQL_NULL: u8 = 0xfb;
/// UNSIGNED_FLAG of a column definition.
const UNSIGNED: u16 = 32;
/// Longest literal that is kept for its type alone, bytes.
const LONGEST_TYPE: usize = 128;
/// What gives a variable the type that it has when it was never anything but NULL: text without a character set.
pub const NO_TYPE: &str = "_binary''";

/// The literal of a NULL. NULL itself leaves a variable the type that it has, so one of the right type is assigned before it.
pub fn null_of(name: &str, of_type: &str) -> String {
    format!("{of_type},@`{}`=NULL", name.replace('`', "``"))
}

/// Is it the literal of a variable that was never anything but NULL?
pub fn is_bare_null(literal: &[u8]) -> bool {
    std::str::from_utf8(literal).is_ok_and(|literal| type_of_null(literal) == Some(NO_TYPE))
}

/// Is it the literal of a NULL, of whatever type?
pub fn is_null(literal: &[u8]) -> bool {
    std::str::from_utf8(literal).is_ok_and(|literal| type_of_null(literal).is_some())
}

/// A short literal of the same type, character set and collation; None when that is not certain.
pub fn of_type(literal: &str) -> Option<Cow<'_, str>> {
    let literal = type_of_null(literal).unwrap_or(literal);
    if literal.len() <= LONGEST_TYPE {
        return Some(literal.into());
    }
    // `_latin1 x'6162' COLLATE ...`: the digits go.
    let (before, rest) = literal.split_once('\'')?;
    let (digits, after) = rest.split_once('\'')?;
    let is_hex = before.ends_with(['x', 'X']) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| format!("{before}''{after}").into())
}

/// What the answer to [`Question::UserVariables`](crate::question::Question::UserVariables) says, one literal for each variable; None
/// where one cannot be had.
pub fn literals(reply: &Collected, names: &[String]) -> Option<Vec<String>> {
    let mut row = Reader::new(reply.rows.first()?);
    let mut column = || -> Option<Option<Vec<u8>>> {
        match row.peek()? {
            SQL_NULL => row.u8().ok().map(|_| None),
            _ => row.lenenc_bytes().ok().map(|bytes| Some(bytes.to_vec())),
        }
    };
    let mut literals = Vec::new();
    for (definition, name) in definition::all(&reply.raw).step_by(COLUMNS_OF_VARIABLE).zip(names) {
        let value = Value {
            definition,
            text: column()?,
            is_null: charsets::narrow(&column()??)? == "1",
            charset: String::from_utf8(column()??).ok()?,
            collation: String::from_utf8(column()??).ok()?,
            digits: column()?.and_then(|digits| String::from_utf8(digits).ok()),
        };
        literals.push(value.literal(name)?);
    }
    Some(literals)
}

/// A variable's value, as the server told it.
struct Value {
    definition: Definition,
    /// None for NULL, and for what is too long.
    text: Option<Vec<u8>>,
    is_null: bool,
    charset: String,
    collation: String,
    /// The bytes of a string or of a number's text, in hex.
    digits: Option<String>,
}

impl Value {
    fn literal(&self, name: &str) -> Option<String> {
        let is_unsigned = self.definition.flags & UNSIGNED != 0;
        let sign = if is_unsigned { "UNSIGNED" } else { "SIGNED" };
        let kind = self.definition.kind;
        if self.is_null {
            // A NULL has a type too, and a character set.
            let of_type = match kind {
                kind if STRINGS.contains(&kind) && self.charset != "binary" => {
                    self.is_named().then(|| format!("_{} x'' COLLATE {}", self.charset, self.collation))?
                }
                kind if INTEGERS.contains(&kind) => format!("CAST(0 AS {sign})"),
                kind if DOUBLES.contains(&kind) => "0e0".to_owned(),
                kind if DECIMAL.contains(&kind) => "0.0".to_owned(),
                _ => NO_TYPE.to_owned(),
            };
            return Some(null_of(name, &of_type));
        }
        if STRINGS.contains(&kind) {
            return self.string();
        }
        // MariaDB's IF() makes 38 decimals of a decimal number's own.
        let exact = if DECIMAL.contains(&kind) { Some(unhex(self.digits.as_deref()?)?) } else { None };
        let text = &*charsets::narrow(exact.as_deref().or(self.text.as_deref())?).filter(|text| is_number(text))?;
        match kind {
            // A number of 18 digits is a signed one.
            kind if INTEGERS.contains(&kind) && !is_unsigned && text.len() <= 18 => Some(text.to_owned()),
            kind if INTEGERS.contains(&kind) => Some(format!("CAST('{text}' AS {sign})")),
            kind if DOUBLES.contains(&kind) && text.contains('e') => Some(text.to_owned()),
            kind if DOUBLES.contains(&kind) => Some(format!("{text}e0")),
            kind if DECIMAL.contains(&kind) && text.contains('.') => Some(text.to_owned()),
            kind if DECIMAL.contains(&kind) => Some(format!("CAST('{text}' AS DECIMAL(65))")),
            _ => None,
        }
    }

    /// Character set and collation can stand in a statement.
    fn is_named(&self) -> bool {
        is_charset_name(&self.charset) && is_charset_name(&self.collation)
    }

    fn string(&self) -> Option<String> {
        let digits = self.digits.as_deref().filter(|digits| self.is_named() && is_well_formed(&self.charset, digits))?;
        Some(match self.charset.as_str() {
            "binary" => format!("_binary X'{digits}'"),
            charset => format!("_{charset} X'{digits}' COLLATE {}", self.collation),
        })
    }
}

/// Would a server take these bytes for text in this character set? What is not sure is not carried.
fn is_well_formed(charset: &str, digits: &str) -> bool {
    let Some(bytes) = unhex(digits) else { return false };
    match charset {
        "utf8mb4" => std::str::from_utf8(&bytes).is_ok(),
        "utf8" | "utf8mb3" => std::str::from_utf8(&bytes).is_ok_and(|text| text.chars().all(|character| character.len_utf8() <= 3)),
        charset => bytes.is_ascii() && !is_wide(charset.as_bytes()) || ONE_BYTE.contains(&charset),
    }
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()).collect()
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn literal(kind: u8, flags: u16, text: Option<&str>) -> Option<String> {
        let value = Value {
            definition: Definition { collation: 63, kind, flags },
            text: text.map(|text| text.as_bytes().to_vec()),
            is_null: text.is_none(),
            charset: "utf8mb4".to_owned(),
            collation: "utf8mb4_bin".to_owned(),
            digits: text.map(|text| text.bytes().map(|byte| format!("{byte:02X}")).collect()),
        };
        value.literal("v`")
    }

    #[test]
    fn types_are_kept() {
        let cases = [
            (8, 0, Some("-5"), "-5"),
            (8, UNSIGNED, Some("5"), "CAST('5' AS UNSIGNED)"),
            (8, 0, Some("-9223372036854775808"), "CAST('-9223372036854775808' AS SIGNED)"),
            (8, UNSIGNED, None, "CAST(0 AS UNSIGNED),@`v```=NULL"),
            (5, 0, Some("0.1"), "0.1e0"),
            (5, 0, Some("-1e100"), "-1e100"),
            (246, 0, Some("1.50"), "1.50"),
            (246, 0, Some("6"), "CAST('6' AS DECIMAL(65))"),
            (253, 0, Some("a'"), "_utf8mb4 X'6127' COLLATE utf8mb4_bin"),
            (253, 0, Some(""), "_utf8mb4 X'' COLLATE utf8mb4_bin"),
            (253, 0, None, "_utf8mb4 x'' COLLATE utf8mb4_bin,@`v```=NULL"),
            (5, 0, None, "0e0,@`v```=NULL"),
            (246, 0, None, "0.0,@`v```=NULL"),
            (6, 0, None, "_binary'',@`v```=NULL"),
        ];
        for (kind, flags, text, expected) in cases {
            assert_eq!(literal(kind, flags, text).as_deref(), Some(expected), "{kind} {text:?}");
        }
        assert_eq!(literal(8, 0, Some("1;DROP")), None);
        assert_eq!(literal(255, 0, Some("1")), None, "no user variable is a geometry");
    }

    #[test]
    fn a_null_keeps_its_type() {
        let long = "61".repeat(100);
        let cases = [
            ("5", Some("5")),
            ("'a'", Some("'a'")),
            ("_binary'',@`v`=NULL", Some("_binary''")),
            (&*format!("_latin1 x'{long}' COLLATE `latin1_bin`"), Some("_latin1 x'' COLLATE `latin1_bin`")),
            (
                &*format!("CONVERT(_utf8mb4 x'{long}' USING latin1) COLLATE `latin1_bin`"),
                Some("CONVERT(_utf8mb4 x'' USING latin1) COLLATE `latin1_bin`"),
            ),
            (&*format!("_binary X'{long}'"), Some("_binary X''")),
            (&*format!("'{long} x'"), None),
            (&*format!("_utf8mb4'{long} x'"), None),
            (&*format!("0x{long}"), None),
        ];
        for (literal, expected) in cases {
            assert_eq!(of_type(literal).as_deref(), expected, "{literal}");
        }
        assert_eq!(type_of_null(&null_of("a`b", "0.0")), Some("0.0"));
        assert_eq!(type_of_null("'0.0,@`a`=NULL'"), None);
        assert!(is_bare_null(b"_binary'',@`v`=NULL") && !is_bare_null(b"0e0,@`v`=NULL"));
    }

    #[test]
    fn text_that_servers_refuse_is_not_carried() {
        let cases = [
            ("utf8mb4", "C3A4", true),
            ("utf8mb4", "FF", false),
            ("utf8mb4", "EDA0BD", false),
            ("utf8mb3", "F09F9880", false),
            ("latin1", "FF", true),
            ("ascii", "FF", false),
            ("sjis", "41", true),
            ("sjis", "8341", false),
            ("ucs2", "0041", false),
            ("utf8mb4", "", true),
        ];
        for (charset, digits, expected) in cases {
            assert_eq!(is_well_formed(charset, digits), expected, "{charset} {digits}");
        }
    }
}
