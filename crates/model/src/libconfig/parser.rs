//! Tokens to a tree, by recursive descent with a depth limit.

use std::iter::Peekable;
use std::vec::IntoIter;

use super::MAX_DEPTH;
use super::lexer::{Spanned, Token};
use super::value::{Entry, Node, Position, Value};
use crate::error::{ConfigError, ErrorKind};

/// Reads one stream of tokens.
pub(super) struct Parser {
    tokens: Peekable<IntoIter<Spanned>>,
    /// The place of the last token, for errors at the end of the file.
    last: Position,
    depth: usize,
}

impl Parser {
    pub(super) fn new(tokens: Vec<Spanned>) -> Self {
        let start = Position { file: "".into(), line: 1, column: 1 };
        let last = tokens.last().map_or(start, |token| token.at.clone());
        Self { tokens: tokens.into_iter().peekable(), last, depth: 0 }
    }

    /// A whole file: entries up to the end.
    pub(super) fn file(mut self) -> Result<Vec<Entry>, ConfigError> {
        self.entries(None)
    }

    /// `name = value` until `end`, or the end of the file when that is `None`.
    fn entries(&mut self, end: Option<char>) -> Result<Vec<Entry>, ConfigError> {
        let mut entries = Vec::new();
        loop {
            match (self.tokens.next(), end) {
                (None, None) => return Ok(entries),
                (None, Some(_)) => return Err(self.at_end("'}'")),
                (Some(Spanned { token: Token::Punct(c), .. }), Some(end)) if c == end => return Ok(entries),
                (Some(Spanned { token: Token::Punct(';' | ','), .. }), _) => {}
                (Some(Spanned { token: Token::Name(name), at }), _) => {
                    entries.push(self.entry(name, at)?);
                }
                (Some(other), _) => return Err(refuse(other.at, ErrorKind::Expected("a name"))),
            }
        }
    }

    fn entry(&mut self, name: String, at: Position) -> Result<Entry, ConfigError> {
        match self.tokens.next() {
            Some(Spanned { token: Token::Punct('=' | ':'), .. }) => {}
            Some(other) => {
                return Err(refuse(other.at, ErrorKind::Expected("'=' or ':' after the name")));
            }
            None => return Err(self.at_end("'=' or ':' after the name")),
        }
        let node = self.value()?;
        Ok(Entry { name, at, node })
    }

    fn value(&mut self) -> Result<Node, ConfigError> {
        let Some(Spanned { token, at }) = self.tokens.next() else {
            return Err(self.at_end("a value"));
        };
        let value = match token {
            Token::Boolean(value) => Value::Boolean(value),
            Token::Integer(value) => Value::Integer(value),
            Token::Float(text) => Value::Float(text),
            Token::Text(text) => self.joined(text.into_bytes()),
            Token::Bytes(bytes) => self.joined(bytes),
            Token::Punct('{') => self.nested(&at, |p| p.entries(Some('}')).map(Value::Group))?,
            Token::Punct('(') => self.nested(&at, |p| p.values(')').map(Value::List))?,
            Token::Punct('[') => self.nested(&at, |p| p.values(']').map(Value::Array))?,
            _ => return Err(refuse(at, ErrorKind::Expected("a value"))),
        };
        Ok(Node { value, at })
    }

    /// `bytes` and the strings that follow them at once.
    fn joined(&mut self, mut bytes: Vec<u8>) -> Value {
        let is_string = |spanned: &Spanned| matches!(spanned.token, Token::Text(_) | Token::Bytes(_));
        while let Some(Spanned { token, .. }) = self.tokens.next_if(is_string) {
            match token {
                Token::Text(more) => bytes.extend_from_slice(more.as_bytes()),
                Token::Bytes(more) => bytes.extend_from_slice(&more),
                _ => {}
            }
        }
        String::from_utf8(bytes).map_or_else(|error| Value::Bytes(error.into_bytes()), Value::Text)
    }

    fn nested(&mut self, at: &Position, inner: impl FnOnce(&mut Self) -> Result<Value, ConfigError>) -> Result<Value, ConfigError> {
        if self.depth == MAX_DEPTH {
            return Err(refuse(at.clone(), ErrorKind::TooDeep(MAX_DEPTH)));
        }
        self.depth += 1;
        let value = inner(self)?;
        self.depth -= 1;
        Ok(value)
    }

    /// Values until `end`. Commas between them may be missing or doubled.
    fn values(&mut self, end: char) -> Result<Vec<Node>, ConfigError> {
        let mut values = Vec::new();
        loop {
            match self.tokens.peek().map(|spanned| &spanned.token) {
                None => return Err(self.at_end(if end == ')' { "')'" } else { "']'" })),
                Some(Token::Punct(c)) if *c == end => break drop(self.tokens.next()),
                Some(Token::Punct(',')) => drop(self.tokens.next()),
                Some(_) => values.push(self.value()?),
            }
        }
        Ok(values)
    }

    fn at_end(&self, expected: &'static str) -> ConfigError {
        refuse(self.last.clone(), ErrorKind::UnexpectedEnd(expected))
    }
}

fn refuse(at: Position, kind: ErrorKind) -> ConfigError {
    ConfigError::new(at, "", kind)
}
