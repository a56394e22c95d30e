//! Bytes to tokens. Knows nothing of grammar or files: `@include` is an ordinary token.

use std::sync::Arc;

use super::value::Position;
use crate::error::{ConfigError, ErrorKind};

/// The smallest meaningful piece of a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    Name(String),
    Text(String),
    /// A string that is not UTF-8.
    Bytes(Vec<u8>),
    Integer(i64),
    Float(String),
    Boolean(bool),
    /// One of `= : ; , { } ( ) [ ]`.
    Punct(char),
    /// `@include`; the file's name follows as `Text`.
    Include,
}

/// A token and where it begins.
#[derive(Debug, Clone)]
pub(super) struct Spanned {
    pub token: Token,
    pub at: Position,
}

/// Walks one file's bytes.
pub(super) struct Lexer<'a> {
    bytes: &'a [u8],
    next: usize,
    line: u32,
    line_start: usize,
    file: Arc<str>,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(bytes: &'a [u8], file: Arc<str>) -> Self {
        let next = if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        Self { bytes, next, line: 1, line_start: next, file }
    }

    /// The place of the next byte.
    pub(super) fn position(&self) -> Position {
        let column = u32::try_from(self.next - self.line_start).unwrap_or(u32::MAX).saturating_add(1);
        Position { file: self.file.clone(), line: self.line, column }
    }

    /// The next token, or `None` at the end of the file.
    pub(super) fn next_token(&mut self) -> Result<Option<Spanned>, ConfigError> {
        self.skip_blanks()?;
        let at = self.position();
        let Some(byte) = self.peek() else {
            return Ok(None);
        };
        let token = match byte {
            b'=' | b':' | b';' | b',' | b'{' | b'}' | b'(' | b')' | b'[' | b']' => {
                self.advance();
                Token::Punct(char::from(byte))
            }
            b'"' => self.string(&at)?,
            b'@' => self.include(&at)?,
            b'0'..=b'9' | b'.' | b'+' | b'-' => self.number(&at)?,
            b'A'..=b'Z' | b'a'..=b'z' | b'*' | b'_' => self.word(),
            other => return Err(self.error(at, ErrorKind::UnexpectedByte(other))),
        };
        Ok(Some(Spanned { token, at }))
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.next).copied()
    }

    fn peek_second(&self) -> Option<u8> {
        self.bytes.get(self.next + 1).copied()
    }

    fn advance(&mut self) {
        if self.peek() == Some(b'\n') {
            self.line = self.line.saturating_add(1);
            self.line_start = self.next + 1;
        }
        self.next += 1;
    }

    fn take_while(&mut self, keep: impl Fn(u8) -> bool) -> &'a [u8] {
        let start = self.next;
        while self.peek().is_some_and(&keep) {
            self.advance();
        }
        &self.bytes[start..self.next]
    }

    fn skip_blanks(&mut self) -> Result<(), ConfigError> {
        loop {
            match (self.peek(), self.peek_second()) {
                (Some(b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c), _) => self.advance(),
                (Some(b'#'), _) | (Some(b'/'), Some(b'/')) => drop(self.take_while(|b| b != b'\n')),
                (Some(b'/'), Some(b'*')) => self.block_comment()?,
                _ => return Ok(()),
            }
        }
    }

    fn block_comment(&mut self) -> Result<(), ConfigError> {
        let at = self.position();
        self.advance();
        self.advance();
        while let Some(byte) = self.peek() {
            let ends = byte == b'*' && self.peek_second() == Some(b'/');
            self.advance();
            if ends {
                self.advance();
                return Ok(());
            }
        }
        Err(self.error(at, ErrorKind::Unterminated("comment")))
    }

    fn string(&mut self, at: &Position) -> Result<Token, ConfigError> {
        self.advance();
        let mut text = Vec::new();
        loop {
            match self.peek() {
                None => return Err(self.error(at.clone(), ErrorKind::Unterminated("string"))),
                Some(b'"') => break self.advance(),
                Some(b'\\') => self.escape(&mut text),
                Some(byte) => {
                    text.push(byte);
                    self.advance();
                }
            }
        }
        Ok(String::from_utf8(text).map_or_else(|error| Token::Bytes(error.into_bytes()), Token::Text))
    }

    /// Reads an escape. An unknown one stands for itself, backslash included, as in libconfig: people write
    /// regular expressions such as `"^\d+"` into rules.
    fn escape(&mut self, text: &mut Vec<u8>) {
        self.advance();
        let plain = match self.peek() {
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'r') => b'\r',
            Some(b'f') => 0x0c,
            Some(b'a') => 0x07,
            Some(b'b') => 0x08,
            Some(b'v') => 0x0b,
            Some(byte @ (b'\\' | b'"')) => byte,
            Some(b'x') => return self.hex_escape(text),
            _ => return text.push(b'\\'),
        };
        text.push(plain);
        self.advance();
    }

    fn hex_escape(&mut self, text: &mut Vec<u8>) {
        let digits = self.bytes.get(self.next + 1..self.next + 3);
        let value = digits.and_then(|d| Some(hex_digit(d[0])? << 4 | hex_digit(d[1])?));
        match value {
            Some(byte) => {
                text.push(byte);
                self.next += 3;
            }
            None => text.push(b'\\'),
        }
    }

    fn include(&mut self, at: &Position) -> Result<Token, ConfigError> {
        self.advance();
        match self.take_while(is_word_byte) {
            b"include" => Ok(Token::Include),
            _ => Err(self.error(at.clone(), ErrorKind::UnexpectedByte(b'@'))),
        }
    }

    fn word(&mut self) -> Token {
        let word = String::from_utf8_lossy(self.take_while(is_word_byte)).into_owned();
        match word {
            word if word.eq_ignore_ascii_case("true") => Token::Boolean(true),
            word if word.eq_ignore_ascii_case("false") => Token::Boolean(false),
            word => Token::Name(word),
        }
    }

    fn number(&mut self, at: &Position) -> Result<Token, ConfigError> {
        let start = self.next;
        self.advance();
        loop {
            let after_exponent = matches!(self.bytes[self.next - 1], b'e' | b'E') && !is_hex(&self.bytes[start..self.next]);
            match self.peek() {
                Some(byte) if byte.is_ascii_alphanumeric() || byte == b'.' => self.advance(),
                Some(b'+' | b'-') if after_exponent => self.advance(),
                _ => break,
            }
        }
        let text = String::from_utf8_lossy(&self.bytes[start..self.next]).into_owned();
        read_number(&text).ok_or_else(|| self.error(at.clone(), ErrorKind::BadNumber(text)))
    }

    fn error(&self, at: Position, kind: ErrorKind) -> ConfigError {
        ConfigError::new(at, "", kind)
    }
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'*')
}

fn is_hex(text: &[u8]) -> bool {
    text.starts_with(b"0x") || text.starts_with(b"0X")
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// An integer (`12`, `-3`, `0x1f`, `5L`, `5LL`) or a float.
fn read_number(text: &str) -> Option<Token> {
    let bare = text.trim_end_matches('L');
    let is_integer_suffix = text.len() - bare.len() <= 2;
    if let Some(digits) = bare.strip_prefix("0x").or_else(|| bare.strip_prefix("0X")) {
        let is_plain = digits.bytes().all(|b| b.is_ascii_hexdigit()) && is_integer_suffix;
        return is_plain.then(|| i64::from_str_radix(digits, 16).ok()).flatten().map(Token::Integer);
    }
    let digits = bare.strip_prefix(['+', '-']).unwrap_or(bare);
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) && is_integer_suffix {
        return bare.parse().ok().map(Token::Integer);
    }
    let is_float = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') && bare.len() == text.len();
    (is_float && text.parse::<f64>().is_ok()).then(|| Token::Float(text.to_owned()))
}
