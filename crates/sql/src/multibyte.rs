//! Character sets that cannot be read byte by byte. In some, the second byte of a character may be a backslash or a backtick. In others, a
//! byte from 0x80 up is a blank, or a control character that makes a comment of `--`. Characters are recognised as servers do it.

use crate::bytes;

/// How the bytes of a text make characters, as far as that matters to the lexer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
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
    /// `latin1` and other character sets with a no-break space at 0xa0.
    Latin1,
    /// `latin2`.
    Latin2,
    /// `hebrew`.
    Hebrew,
    /// `cp1250`.
    Cp1250,
    /// `latin7`.
    Latin7,
    /// `cp866`, `cp852`, `keybcs2`: a no-break space at 0xff.
    Cp866,
    /// `cp850`.
    Cp850,
    /// `hp8`.
    Hp8,
    /// `macroman`.
    MacRoman,
    /// `cp1251`, `cp1257`, `macce`: DEL is no control character.
    Cp1251,
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
            () if ["latin1", "latin5", "dec8", "greek", "armscii8", "geostd8"].into_iter().any(is) => MultiByte::Latin1,
            () if is("latin2") => MultiByte::Latin2,
            () if is("hebrew") => MultiByte::Hebrew,
            () if is("cp1250") => MultiByte::Cp1250,
            () if is("latin7") => MultiByte::Latin7,
            () if ["cp866", "cp852", "keybcs2"].into_iter().any(is) => MultiByte::Cp866,
            () if is("cp850") => MultiByte::Cp850,
            () if is("hp8") => MultiByte::Hp8,
            () if is("macroman") => MultiByte::MacRoman,
            () if ["cp1251", "cp1257", "macce"].into_iter().any(is) => MultiByte::Cp1251,
            () => MultiByte::Plain,
        }
    }

    /// Is this text the same in all character sets?
    pub fn reads_alike(self, text: &[u8]) -> bool {
        match self {
            MultiByte::Plain => true,
            _ if self.has_long_characters() => false,
            _ => text.iter().all(|&byte| byte < 0x7f),
        }
    }

    /// Is each byte a character?
    pub(crate) fn is_single(self) -> bool {
        self != MultiByte::Plain && !self.has_long_characters()
    }

    fn has_long_characters(self) -> bool {
        matches!(self, MultiByte::Sjis | MultiByte::Gbk | MultiByte::Big5 | MultiByte::Gb18030)
    }

    /// The blank from 0x80 up.
    #[inline]
    fn blank(self) -> Option<u8> {
        match self {
            MultiByte::Latin1 | MultiByte::Latin2 | MultiByte::Hebrew | MultiByte::Cp1250 | MultiByte::Latin7 => Some(0xa0),
            MultiByte::Cp866 => Some(0xff),
            _ => None,
        }
    }

    /// A blank that no ASCII text has.
    #[inline]
    pub(crate) fn is_blank(self, byte: u8) -> bool {
        self != MultiByte::Plain && self.blank() == Some(byte)
    }

    /// Whether `--` and this byte begin a comment: it is a blank or a control character.
    pub(crate) fn is_after_dashes(self, byte: u8) -> bool {
        let controls: &[u8] = match self {
            MultiByte::Latin1 => &[0x7f, 0xa0],
            MultiByte::Latin2 => &[0xa0],
            MultiByte::Hebrew => &[0x7f, 0xa0, 0xfd, 0xfe],
            MultiByte::Cp1250 => &[0x7f, 0x80, 0x81, 0x83, 0x88, 0x90, 0x98, 0xa0],
            MultiByte::Latin7 => &[0x7f, 0x81, 0x83, 0x88, 0x8a, 0x8c, 0x90, 0x98, 0x9a, 0x9c, 0x9f, 0xa0, 0xa1, 0xa5],
            MultiByte::Cp866 => &[0xff],
            MultiByte::Cp850 => &[0x7f, 0xff],
            MultiByte::Hp8 => return byte <= b' ' || matches!(byte, 0x7f..=0xa0 | 0xb1 | 0xb2 | 0xf2..=0xf5 | 0xff),
            MultiByte::MacRoman => &[0x80, 0xcb, 0xe5],
            MultiByte::Cp1251 => &[],
            MultiByte::Plain | MultiByte::Sjis | MultiByte::Gbk | MultiByte::Big5 | MultiByte::Gb18030 => &[0x7f],
        };
        byte <= b' ' || controls.contains(&byte)
    }

    /// As much of the text as a number that begins at `start` can take; a blank ends it.
    pub(crate) fn number_text(self, sql: &[u8], start: usize) -> &[u8] {
        if self.blank().is_none() {
            return sql;
        }
        let mut end = self.long_name_end(sql, start);
        for joins in [b".".as_slice(), b"+-"] {
            if sql.get(end).is_some_and(|byte| joins.contains(byte)) {
                end = self.long_name_end(sql, end + 1);
            }
        }
        sql.get(..end).unwrap_or(sql)
    }

    /// Length of the character of several bytes at `at`; `None` where none stands.
    fn character(self, sql: &[u8], at: usize) -> Option<usize> {
        let (&lead, &trail) = (sql.get(at)?, sql.get(at + 1)?);
        let (leads, trails) = match self {
            MultiByte::Sjis => (matches!(lead, 0x81..=0x9f | 0xe0..=0xfc), matches!(trail, 0x40..=0x7e | 0x80..=0xfc)),
            MultiByte::Big5 => (matches!(lead, 0xa1..=0xf9), matches!(trail, 0x40..=0x7e | 0xa1..=0xfe)),
            MultiByte::Gbk | MultiByte::Gb18030 => (matches!(lead, 0x81..=0xfe), matches!(trail, 0x40..=0x7e | 0x80..=0xfe)),
            _ => return None,
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
        if self == MultiByte::Plain || self.blank().is_none() && !self.has_long_characters() {
            bytes::name_end(sql, from)
        } else {
            self.long_name_end(sql, from)
        }
    }

    #[cold]
    fn long_name_end(self, sql: &[u8], mut at: usize) -> usize {
        while let Some(&byte) = sql.get(at) {
            match self.character(sql, at) {
                Some(len) => at += len,
                None if bytes::is_name(byte) && !self.is_blank(byte) => at += 1,
                None => break,
            }
        }
        at
    }

    /// [`bytes::quoted_end`] in this character set.
    #[inline]
    pub(crate) fn quoted_end(self, sql: &[u8], open: usize, quote: u8, backslash: bool) -> usize {
        if !self.has_long_characters() {
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
    use crate::token::{LexMode, Lexer, TokenKind};

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
    fn blanks() {
        let words = |charset: &str, sql: &[u8]| {
            let mode = LexMode { multi_byte: MultiByte::of(charset.as_bytes()), ..LexMode::default() };
            let mut lexer = Lexer::new(sql, mode);
            let mut words = Vec::new();
            loop {
                let token = lexer.token();
                if token.kind == TokenKind::End {
                    return words;
                }
                words.push(token.text(sql).to_vec());
            }
        };
        type Words = &'static [&'static [u8]];
        let cases: [(&str, &[u8], Words); 13] = [
            ("latin1", b"LOCK\xa0TABLES\xa0t", &[b"LOCK", b"TABLES", b"t"]),
            ("utf8mb4", b"LOCK\xa0TABLES", &[b"LOCK\xa0TABLES"]),
            ("latin1", b"\xa0@x\xa0=\xa05\xa0,@@\xa0y", &[b"@x", b"=", b"5", b",", b"@", b"@", b"y"]),
            ("latin1", b"@@a\xa0.\xa0b\xa0c", &[b"@@a\xa0.\xa0b", b"c"]),
            ("latin1", b"1.5e3\xa01e5\xa0.5\xa00x41\xa0a1\xa01a\xa0", &[b"1.5e3", b"1e5", b".5", b"0x41", b"a1", b"1a"]),
            ("latin1", b"1e+5\xa0+1+1", &[b"1e+5", b"+", b"1", b"+", b"1"]),
            ("latin1", b"'a\xa0'`b\xa0`\xe4\xa0", &[b"'a\xa0'", b"`b\xa0`", b"\xe4"]),
            ("latin1", b"a--\xa0b\nc--\x80d", &[b"a", b"c", b"-", b"-", b"\x80d"]),
            ("cp866", b"FOR\xffUPDATE\xa0--\x7fa", &[b"FOR", b"UPDATE\xa0", b"-", b"-", &[0x7f], b"a"]),
            ("hp8", b"a\xa0b--\x9fc", &[b"a\xa0b"]),
            ("cp1250", b"a\xa0b--\x81c", &[b"a", b"b"]),
            ("cp850", b"a\xffb--\xffc", &[b"a\xffb"]),
            ("cp1251", b"a\xa0b--\xa0c", &[b"a\xa0b", b"-", b"-", b"\xa0c"]),
        ];
        for (charset, sql, expected) in cases {
            assert_eq!(words(charset, sql), expected, "{charset} {}", sql.escape_ascii());
        }
        assert!(MultiByte::Latin1.reads_alike(b"SET a = 1") && !MultiByte::Latin1.reads_alike(b"SET\xa0a = 1"));
        assert!(!MultiByte::Gbk.reads_alike(b"SET a = 1"));
    }

    /// Names that a blank ends are read once.
    #[test]
    fn many_blanks() {
        let text = b"1\xa0a\xa0@b\xa0.5\xa0".repeat(200_000);
        let mode = LexMode { multi_byte: MultiByte::Latin1, ..LexMode::default() };
        let mut lexer = Lexer::new(&text, mode);
        let mut count = 0;
        while lexer.token().kind != TokenKind::End {
            count += 1;
        }
        assert_eq!(count, 800_000);
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
