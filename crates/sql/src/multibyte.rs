//! Character sets in which the second byte of a character may be a backslash or a backtick, so that text cannot be read byte by
//! byte. What is taken for a character is what servers take for one.

use crate::bytes;

/// How the bytes of a text make characters, as far as that matters to the lexer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MultiByte {
    /// No character has a byte below 0x80 but for ASCII's own.
    #[default]
    Plain,
    /// `sjis`, `cp932`.
    Sjis,
    /// `gbk`.
    Gbk,
    /// `big5`.
    Big5,
    /// `gb18030`.
    Gb18030,
}

impl MultiByte {
    /// That of a server's character set.
    pub fn of(charset: &[u8]) -> Self {
        let is = |name: &str| charset.eq_ignore_ascii_case(name.as_bytes());
        match () {
            () if is("sjis") || is("cp932") => MultiByte::Sjis,
            () if is("gbk") => MultiByte::Gbk,
            () if is("big5") => MultiByte::Big5,
            () if is("gb18030") => MultiByte::Gb18030,
            () => MultiByte::Plain,
        }
    }

    /// Length of the character of several bytes at `at`; `None` where none stands.
    fn character(self, sql: &[u8], at: usize) -> Option<usize> {
        let (&lead, &trail) = (sql.get(at)?, sql.get(at + 1)?);
        let (leads, trails) = match self {
            MultiByte::Plain => return None,
            MultiByte::Sjis => (matches!(lead, 0x81..=0x9f | 0xe0..=0xfc), matches!(trail, 0x40..=0x7e | 0x80..=0xfc)),
            MultiByte::Big5 => (matches!(lead, 0xa1..=0xf9), matches!(trail, 0x40..=0x7e | 0xa1..=0xfe)),
            MultiByte::Gbk | MultiByte::Gb18030 => (matches!(lead, 0x81..=0xfe), matches!(trail, 0x40..=0x7e | 0x80..=0xfe)),
        };
        if leads && trails {
            return Some(2);
        }
        let is_long = self == MultiByte::Gb18030
            && leads
            && trail.is_ascii_digit()
            && matches!(sql.get(at + 2), Some(0x81..=0xfe))
            && sql.get(at + 3).is_some_and(u8::is_ascii_digit);
        is_long.then_some(4)
    }

    /// The first character's bytes, and the rest; `None` at the end.
    pub(crate) fn split_first(self, text: &[u8]) -> Option<(&[u8], &[u8])> {
        let len = self.character(text, 0).unwrap_or(1);
        text.split_at_checked(len)
    }

    /// [`bytes::name_end`] in this character set.
    #[inline]
    pub(crate) fn name_end(self, sql: &[u8], from: usize) -> usize {
        if self == MultiByte::Plain { bytes::name_end(sql, from) } else { self.long_name_end(sql, from) }
    }

    #[cold]
    fn long_name_end(self, sql: &[u8], mut at: usize) -> usize {
        while let Some(&byte) = sql.get(at) {
            match self.character(sql, at) {
                Some(len) => at += len,
                None if bytes::is_name(byte) => at += 1,
                None => break,
            }
        }
        at
    }

    /// [`bytes::quoted_end`] in this character set.
    #[inline]
    pub(crate) fn quoted_end(self, sql: &[u8], open: usize, quote: u8, backslash: bool) -> usize {
        if self == MultiByte::Plain {
            return bytes::quoted_end(sql, open, quote, backslash);
        }
        self.long_quoted_end(sql, open, quote, backslash)
    }

    #[cold]
    fn long_quoted_end(self, sql: &[u8], open: usize, quote: u8, backslash: bool) -> usize {
        let mut at = open + 1;
        while let Some(&byte) = sql.get(at) {
            match self.character(sql, at) {
                Some(len) => at += len,
                None if backslash && byte == b'\\' => at += 2,
                None if byte != quote => at += 1,
                None if sql.get(at + 1) == Some(&quote) => at += 2,
                None => return at + 1,
            }
        }
        sql.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters() {
        let cases: [(&str, &[u8], Option<usize>); 13] = [
            ("cp932", b"\x95\x5c", Some(2)),
            ("SJIS", b"\x83\x60", Some(2)),
            ("sjis", b"\xb1\x5c", None),
            ("sjis", b"\x95'", None),
            ("gbk", b"\xbf\x5c", Some(2)),
            ("gbk", b"\x80\x5c", None),
            ("gbk", b"\xbf", None),
            ("big5", b"\xa5\x5c", Some(2)),
            ("big5", b"\x95\x5c", None),
            ("gb18030", b"\x81\x5c", Some(2)),
            ("gb18030", b"\x81\x30\x81\x30", Some(4)),
            ("gb18030", b"\x81\x30\x81'", None),
            ("utf8mb4", b"\x95\x5c", None),
        ];
        for (charset, text, expected) in cases {
            assert_eq!(MultiByte::of(charset.as_bytes()).character(text, 0), expected, "{charset} {text:x?}");
        }
    }

    #[test]
    fn plain_text_ends_where_it_does_in_other_character_sets() {
        for text in ["'a''b\\'c' d", "'a", "'a\\", "`a``b` c", "'\\\\' a"] {
            let (sql, quote) = (text.as_bytes(), text.as_bytes()[0]);
            for backslash in [true, false] {
                assert_eq!(MultiByte::Gbk.quoted_end(sql, 0, quote, backslash), bytes::quoted_end(sql, 0, quote, backslash), "{text}");
            }
        }
    }
}
