//! The lexer: SQL bytes to tokens, without allocation.
//!
//! It follows the lexical rules of MySQL and MariaDB (MySQL manual 11, "Language
//! Structure") under the session's [`LexMode`]. The content of a version comment
//! (`/*!40101 ... */`, `/*M! ... */`) is read as SQL, because a server runs it.
//! Bytes from 0x80 up count as identifier characters, and all bytes of a character that has several. Every input gives tokens;
//! an unfinished literal or comment reaches to the end of the text.
//!
//! INVARIANT: `Token::end > Token::start` except for [`TokenKind::End`], so a scan ends.

use crate::bytes::{
    self, Class, class, comment_end, is_dash_comment, is_variable, line_end, name_end, number, skipped_to, version_comment,
};
use crate::facts::Facts;
use crate::multibyte::MultiByte;

/// Lexer state that depends on the session's `sql_mode` and character set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LexMode {
    /// `ANSI_QUOTES`: a double quote delimits an identifier, not a string.
    pub ansi_quotes: bool,
    /// `NO_BACKSLASH_ESCAPES`: a backslash is an ordinary character.
    pub no_backslash_escapes: bool,
    /// MariaDB's `ORACLE`: `BEGIN` begins a block.
    pub oracle: bool,
    /// Characters of several bytes, by `character_set_client`.
    pub multi_byte: MultiByte,
    /// `IGNORE_SPACE`: blanks may stand between a built-in function's name and its parenthesis.
    pub ignore_space: bool,
    /// MariaDB's `MSSQL`: `[x]` is an identifier.
    #[serde(default)]
    pub brackets: bool,
    /// Which functions are built in.
    pub builtins: Builtins,
}

impl LexMode {
    /// The words of a `sql_mode` that change how a server splits text into tokens, or where a statement ends. Combined modes (`ANSI`,
    /// `DB2`) stand in a session's value together with the words that they imply. The other words change the meaning of an expression
    /// (`PIPES_AS_CONCAT`, `HIGH_NOT_PRECEDENCE`) or of a value.
    pub const SQL_MODES: [&str; 5] = ["ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "ORACLE", "IGNORE_SPACE", "MSSQL"];

    /// The same character set and functions under a `sql_mode` of which `has` tells the words.
    pub fn under(self, has: impl Fn(&str) -> bool) -> LexMode {
        let [ansi_quotes, no_backslash_escapes, oracle, ignore_space, brackets] = Self::SQL_MODES.map(has);
        LexMode { ansi_quotes, no_backslash_escapes, oracle, ignore_space, brackets, ..self }
    }
}

/// The server family whose built-in functions hide stored ones of their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Builtins {
    /// The functions that MySQL and MariaDB share: the server that reads the text is unknown.
    #[default]
    Common,
    /// MySQL's.
    MySql,
    /// MariaDB's.
    MariaDb,
}

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// The text is used up.
    End,
    /// A keyword or an unquoted identifier.
    Word,
    /// An identifier in backticks, in double quotes under `ANSI_QUOTES`, or in brackets under `MSSQL`.
    QuotedName,
    /// `'...'`, or `"..."` without `ANSI_QUOTES`.
    String,
    /// `x'...'`, `b'...'` or `n'...'`.
    PrefixedString,
    /// A number without its sign: `5`, `1.5e3`, `.5`, `0x41`, `0b1`.
    Number,
    /// `?`.
    Placeholder,
    /// `@name`, `` @`name` ``, `@'name'` or `@"name"`.
    UserVariable,
    /// `@@name` or `@@scope.name`.
    SystemVariable,
    /// `:=`.
    Assign,
    /// Any other single byte.
    Punct(u8),
}

/// One token: its kind and where it stands in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The kind, without the text.
    pub kind: TokenKind,
    /// Offset of the first byte.
    pub start: usize,
    /// Offset after the last byte.
    pub end: usize,
    /// Blank space or a comment stands before it.
    pub spaced: bool,
}

impl Token {
    /// The token's bytes.
    #[inline]
    pub fn text<'a>(&self, sql: &'a [u8]) -> &'a [u8] {
        sql.get(self.start..self.end).unwrap_or_default()
    }

    /// True for this one-byte token.
    #[inline]
    pub fn is(&self, punct: u8) -> bool {
        self.kind == TokenKind::Punct(punct)
    }

    /// Length in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }
}

/// Reads tokens from left to right. Cheap to clone, for looking ahead.
#[derive(Clone, Debug)]
pub struct Lexer<'a> {
    sql: &'a [u8],
    pos: usize,
    mode: LexMode,
    /// Version comments that are open.
    version_depth: u32,
    /// The end of the outermost comment for servers that skip it; 0 if none does.
    skipped_to: usize,
    /// A `.` that joins names was the last token: what follows is a name even if it starts with a digit.
    after_dot: bool,
    /// The last token was a name: a `.` that touches it joins names.
    after_name: bool,
    /// [`Facts::COMMENT`], [`Facts::TORN`] and [`Facts::VERSIONED`].
    comments_met: Facts,
}

impl<'a> Lexer<'a> {
    /// `mode` must be that of the session.
    pub fn new(sql: &'a [u8], mode: LexMode) -> Self {
        Lexer { sql, pos: 0, mode, version_depth: 0, skipped_to: 0, after_dot: false, after_name: false, comments_met: Facts::NONE }
    }

    /// The offset from which the next token is read.
    #[inline]
    pub(crate) fn position(&self) -> usize {
        self.pos
    }

    /// How the text is read.
    #[inline]
    pub(crate) fn mode(&self) -> LexMode {
        self.mode
    }

    /// Of the comments so far: [`Facts::COMMENT`], [`Facts::TORN`], [`Facts::VERSIONED`].
    #[inline]
    pub(crate) fn comments_met(&self) -> Facts {
        if self.version_depth == 0 { self.comments_met } else { self.comments_met | self.left_open() }
    }

    /// A version comment is not closed: servers that skip it may continue within text that is read as something else.
    fn left_open(&self) -> Facts {
        if self.skipped_to == 0 || self.skipped_to >= self.sql.len() { Facts::NONE } else { Facts::TORN }
    }

    /// The open version comment that some servers skip, by where they go on; `None` outside of one.
    pub(crate) fn skipped_comment(&self) -> Option<usize> {
        (self.version_depth > 0 && self.skipped_to != 0).then_some(self.skipped_to)
    }

    /// The text that is read.
    #[inline]
    pub fn sql(&self) -> &'a [u8] {
        self.sql
    }

    /// [`TokenKind::End`] at the end, again and again.
    pub fn token(&mut self) -> Token {
        self.token_inline()
    }

    /// A statement is over, and the next one is read by itself: servers forget a version comment that is open.
    pub(crate) fn end_statement(&mut self) {
        if self.version_depth > 0 {
            // Servers that skip the comment continue elsewhere.
            if self.skipped_to != 0 {
                self.comments_met |= Facts::TORN;
            }
            self.version_depth = 0;
        }
    }

    /// The next token; for the hot loop, where it must stay in registers.
    #[inline(always)]
    pub(crate) fn token_inline(&mut self) -> Token {
        let before = self.pos;
        self.skip_blank();
        let (start, spaced) = (self.pos, self.pos > before);
        let (kind, end) = self.scan(start, spaced);
        self.pos = end;
        self.after_dot = kind == TokenKind::Punct(b'.') && self.after_name;
        self.after_name = matches!(kind, TokenKind::Word | TokenKind::QuotedName);
        Token { kind, start, end, spaced }
    }

    #[inline]
    fn byte(&self, at: usize) -> Option<u8> {
        self.sql.get(at).copied()
    }

    #[inline(always)]
    fn scan(&self, start: usize, spaced: bool) -> (TokenKind, usize) {
        let Some(byte) = self.byte(start) else {
            return (TokenKind::End, start);
        };
        match class(byte) {
            Class::Letter => self.word(start, byte),
            Class::Digit if self.after_dot => (TokenKind::Word, self.mode.multi_byte.name_end(self.sql, start)),
            Class::Digit => self.number(start),
            Class::Quote => (TokenKind::String, self.string_end(start, byte)),
            Class::DoubleQuote if self.mode.ansi_quotes => self.quoted_name(start, byte),
            Class::DoubleQuote => (TokenKind::String, self.string_end(start, byte)),
            Class::Backtick => self.quoted_name(start, byte),
            Class::Bracket if self.mode.brackets => self.quoted_name(start, b']'),
            Class::At => self.variable(start),
            Class::Dot => self.dot(start, spaced),
            Class::Colon if self.byte(start + 1) == Some(b'=') => (TokenKind::Assign, start + 2),
            Class::Question => (TokenKind::Placeholder, start + 1),
            _ => (TokenKind::Punct(byte), start + 1),
        }
    }

    #[inline(always)]
    fn word(&self, start: usize, first: u8) -> (TokenKind, usize) {
        if self.mode.multi_byte != MultiByte::Plain && first >= 0x80 {
            return (TokenKind::Word, self.mode.multi_byte.name_end(self.sql, start));
        }
        let end = self.mode.multi_byte.name_end(self.sql, start + 1);
        if end == start + 1 && self.byte(end) == Some(b'\'') && !self.after_dot {
            let prefixed = matches!(first, b'x' | b'X' | b'b' | b'B' | b'n' | b'N');
            if prefixed {
                return (TokenKind::PrefixedString, self.string_end(end, b'\''));
            }
        }
        (TokenKind::Word, end)
    }

    /// A number, or a name that begins with digits.
    #[inline]
    fn number(&self, start: usize) -> (TokenKind, usize) {
        match number(self.mode.multi_byte.number_text(self.sql, start), start) {
            (TokenKind::Word, _) if self.mode.multi_byte != MultiByte::Plain => {
                (TokenKind::Word, self.mode.multi_byte.name_end(self.sql, start))
            }
            number => number,
        }
    }

    #[inline]
    fn string_end(&self, open: usize, quote: u8) -> usize {
        self.mode.multi_byte.quoted_end(self.sql, open, quote, !self.mode.no_backslash_escapes)
    }

    fn quoted_name(&self, open: usize, quote: u8) -> (TokenKind, usize) {
        (TokenKind::QuotedName, self.mode.multi_byte.quoted_end(self.sql, open, quote, false))
    }

    fn dot(&self, start: usize, spaced: bool) -> (TokenKind, usize) {
        let joins = self.after_name && !spaced;
        if !joins && self.byte(start + 1).is_some_and(|next| next.is_ascii_digit()) {
            return self.number(start);
        }
        (TokenKind::Punct(b'.'), start + 1)
    }

    fn variable(&self, start: usize) -> (TokenKind, usize) {
        match self.byte(start + 1) {
            Some(b'@') => self.system_variable(start),
            Some(b'`') => (TokenKind::UserVariable, self.mode.multi_byte.quoted_end(self.sql, start + 1, b'`', false)),
            Some(quote @ (b'\'' | b'"')) => (TokenKind::UserVariable, self.string_end(start + 1, quote)),
            Some(byte) if self.is_variable(byte) => {
                let mut end = start + 1;
                while self.byte(end).is_some_and(|byte| self.is_variable(byte)) {
                    end += 1;
                }
                (TokenKind::UserVariable, end)
            }
            _ => (TokenKind::Punct(b'@'), start + 1),
        }
    }

    fn is_variable(&self, byte: u8) -> bool {
        is_variable(byte) && !self.mode.multi_byte.is_blank(byte)
    }

    /// `@@name`, and as many `.name` as follow; blanks may surround a dot.
    fn system_variable(&self, start: usize) -> (TokenKind, usize) {
        let mut end = self.part_end(start + 2);
        if end == start + 2 {
            return (TokenKind::Punct(b'@'), start + 1);
        }
        loop {
            let dot = self.blanks_end(end);
            if self.byte(dot) != Some(b'.') {
                break;
            }
            let part = self.blanks_end(dot + 1);
            let part_end = self.part_end(part);
            if part_end == part {
                break;
            }
            end = part_end;
        }
        (TokenKind::SystemVariable, end)
    }

    fn part_end(&self, at: usize) -> usize {
        match self.byte(at) {
            Some(b'`') => self.mode.multi_byte.quoted_end(self.sql, at, b'`', false),
            _ if self.mode.multi_byte.is_single() => self.mode.multi_byte.name_end(self.sql, at),
            _ => name_end(self.sql, at),
        }
    }

    fn blanks_end(&self, mut at: usize) -> usize {
        while self.byte(at).is_some_and(|byte| class(byte) == Class::Space || self.mode.multi_byte.is_blank(byte)) {
            at += 1;
        }
        at
    }

    #[inline(always)]
    fn skip_blank(&mut self) {
        while let Some(byte) = self.byte(self.pos) {
            match class(byte) {
                Class::Space => self.pos += 1,
                Class::Comment if self.skip_comment(byte) => {}
                Class::Letter if byte >= 0x80 && self.mode.multi_byte.is_blank(byte) => self.pos += 1,
                _ => return,
            }
        }
    }

    /// Steps over a comment, or over a version comment's opening or closing mark.
    #[inline(never)]
    fn skip_comment(&mut self, byte: u8) -> bool {
        let next = self.byte(self.pos + 1);
        match (byte, next) {
            (b'#', _) => self.skip_line(),
            (b'-', _) if is_dash_comment(self.sql, self.pos, self.mode.multi_byte) => self.skip_line(),
            (b'/', Some(b'*')) => self.open_comment(),
            (b'*', Some(b'/')) if self.version_depth > 0 => {
                self.version_depth -= 1;
                self.pos += 2;
                if self.version_depth == 0 && self.skipped_to != 0 && self.skipped_to != self.pos {
                    self.comments_met |= Facts::TORN;
                }
            }
            _ => return false,
        }
        true
    }

    fn skip_line(&mut self) {
        self.pos = line_end(self.sql, self.pos);
    }

    fn open_comment(&mut self) {
        if let Some(content) = version_comment(self.sql, self.pos) {
            self.enter_version_comment();
            self.pos = content;
        } else {
            self.comments_met |= Facts::COMMENT;
            self.pos = comment_end(self.sql, self.pos);
        }
    }

    fn enter_version_comment(&mut self) {
        if bytes::is_skipped_by_some(self.sql, self.pos) {
            self.comments_met |= Facts::VERSIONED;
        }
        // Servers do not count how deep they are.
        if self.version_depth > 0 {
            self.comments_met |= Facts::TORN;
        }
        self.version_depth += 1;
        // The end is searched only while it can change the result: the search may take as long as the text is.
        if !self.comments_met.contains(Facts::TORN) {
            let ends = skipped_to(self.sql, self.pos);
            self.skipped_to = ends.map_or(0, |(end, _)| end);
            if ends.is_some_and(|(end, other)| end != other) {
                self.comments_met |= Facts::TORN;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::analyze;

    #[test]
    fn version_comments_with_two_ends() {
        for (sql, expected) in [
            ("SELECT 1 /*!99999 ' */ , f() /* ' */", true),
            ("SELECT 1 /*!99999 ` */ , f() /* ` */", true),
            ("SELECT 1 /*!99999 -- */ , f()\n */", true),
            ("SELECT 1 /*!99999 ' */ , f(), '", true),
            ("SELECT 1 /*!99999 ; ' */ , f() -- '", true),
            ("SELECT 1 /*!999999 \"a */ b\" */", true),
            ("SELECT 1 /*!50700 'a */ b' */", true),
            ("SELECT 1 /*!100000 'a */ b' */", true),
            ("SELECT 1 /*M! 'a */ b' */", true),
            ("SELECT 1 /*M! /* a */ ' */ f() /* ' */", true),
            ("SELECT 1 /*!40101 /*!99999 ' */ */ , f() /* ' */", true),
            ("SELECT 1 /*!40101 'a */ b' */", false),
            ("SELECT 1 /*! 'a */ b' */", false),
            ("SELECT 1 /*!99999 , f() */", true),
            ("SELECT 1 /*!99999 /* a */ , f() */", true),
            ("SELECT 1 /*M!100100 , f() */", true),
            ("SELECT 1 /*!99999 , f()", true),
            ("/*!99999 SELECT 1, f() */", false),
            ("/*!99999 SELECT 1, f()", false),
            ("/*!99999 SELECT 1 */; SELECT f()", false),
            ("/*M!999999\\- enable the sandbox mode */ SET @x = 'lit'", true),
            ("/*M!999999\\- enable the sandbox mode */", false),
            ("/*M!999999\\- enable the sandbox mode */; SET @x = 'lit'", false),
            ("/*!80000 SET */ @x = 1", true),
            ("SET /*!80000 GLOBAL */ sort_buffer_size = 1", true),
            ("/*!80016 SELECT */ /*!80023 1 */", true),
            ("/*!80016 SELECT 1 */; /*!80023 SELECT 1 */", false),
            ("SELECT 1 /*!80016 */ + 1", false),
            ("SELECT 1 /*!99999 ; SELECT f()", true),
            ("SELECT 1 /*!40101 ; SELECT f()", false),
            (
                "/*!50003 CREATE*/ /*!50017 DEFINER=`a`@`b`*/ /*!50003 TRIGGER t BEFORE INSERT ON u FOR EACH ROW BEGIN SET @a = 1; END */;",
                false,
            ),
            ("/*!80000 SET SESSION information_schema_stats_expiry=0 */; SELECT '*/'", false),
        ] {
            assert_eq!(analyze(sql.as_bytes(), LexMode::default()).facts.contains(Facts::TORN), expected, "{sql}");
        }
    }

    /// The work to find the ends of version comments grows with the text, not with its square.
    #[test]
    fn many_version_comments() {
        const COUNT: usize = 2000;
        for (part, end) in [
            ("/*!99999 ", ""),
            ("/*!99999 ", "*/"),
            ("/*!99999 ;", ""),
            ("/*!99999 ;", "*/"),
            ("/*!99999 */", ""),
            ("/*!99999 1*/;", ""),
            ("/*!99999 '*/' ", ""),
            ("/*!99999 /* */ ", "*/"),
            ("/*M!99999 ;", ""),
            ("/*!40101 ;/*!99999 ", ""),
            ("; /*!99999 /*", " */"),
        ] {
            let text = format!("SELECT 1 {}{end}", part.repeat(COUNT));
            bytes::SEARCHED.set(0);
            analyze(text.as_bytes(), LexMode::default());
            assert!(bytes::SEARCHED.get() <= 4 * text.len(), "{part}: {} of {}", bytes::SEARCHED.get(), text.len());
        }
    }
}
