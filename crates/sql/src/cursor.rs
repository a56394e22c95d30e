//! A lexer with one token of look-ahead, for the statement parsers.

use std::borrow::Cow;

use crate::keywords::{Kw, lookup};
use crate::multibyte::MultiByte;
use crate::token::{LexMode, Lexer, Token, TokenKind};

#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    lexer: Lexer<'a>,
    token: Token,
    kw: Kw,
}

impl<'a> Cursor<'a> {
    /// At the first token of `sql`, past leading `;`.
    pub(crate) fn new(sql: &'a [u8], mode: LexMode) -> Self {
        let mut cursor = Self::from_lexer(Lexer::new(sql, mode));
        while cursor.eat_punct(b';') {}
        cursor
    }

    /// At the lexer's next token.
    pub(crate) fn from_lexer(mut lexer: Lexer<'a>) -> Self {
        let token = lexer.token();
        let kw = keyword(&lexer, &token);
        Cursor { lexer, token, kw }
    }

    /// Reads on behind the current token.
    pub(crate) fn rest(&self) -> Lexer<'a> {
        self.lexer.clone()
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    pub(crate) fn kind(&self) -> TokenKind {
        self.token.kind
    }

    /// The current token's keyword, [`Kw::None`] when it is no word.
    pub(crate) fn kw(&self) -> Kw {
        self.kw
    }

    pub(crate) fn text(&self) -> &'a [u8] {
        self.token.text(self.lexer.sql())
    }

    pub(crate) fn bump(&mut self) {
        self.token = self.lexer.token();
        self.kw = keyword(&self.lexer, &self.token);
    }

    pub(crate) fn at_end(&self) -> bool {
        self.token.kind == TokenKind::End
    }

    /// At the end of this statement: end of text or `;`.
    pub(crate) fn at_statement_end(&self) -> bool {
        self.at_end() || self.token.is(b';')
    }

    pub(crate) fn eat(&mut self, kw: Kw) -> bool {
        let hit = self.kw == kw;
        if hit {
            self.bump();
        }
        hit
    }

    pub(crate) fn eat_any(&mut self, any: &[Kw]) -> bool {
        let hit = any.contains(&self.kw);
        if hit {
            self.bump();
        }
        hit
    }

    /// Eats a word that is no keyword of the proxy's; `word` in lower case.
    pub(crate) fn eat_word(&mut self, word: &[u8]) -> bool {
        let hit = self.token.kind == TokenKind::Word && self.text().eq_ignore_ascii_case(word);
        if hit {
            self.bump();
        }
        hit
    }

    /// On a mismatch the cursor does not move.
    pub(crate) fn eat_all(&mut self, words: &[Kw]) -> bool {
        let mut ahead = self.clone();
        let hit = words.iter().all(|&kw| ahead.eat(kw));
        if hit {
            *self = ahead;
        }
        hit
    }

    pub(crate) fn eat_punct(&mut self, punct: u8) -> bool {
        let hit = self.token.is(punct);
        if hit {
            self.bump();
        }
        hit
    }

    /// True when nothing but `;` is left.
    pub(crate) fn done(&mut self) -> bool {
        while self.eat_punct(b';') {}
        self.at_end()
    }

    /// An identifier without its quotes.
    pub(crate) fn name(&mut self) -> Option<Cow<'a, [u8]>> {
        let name = match self.token.kind {
            TokenKind::Word => Cow::Borrowed(self.text()),
            TokenKind::QuotedName => unquote_name(self.text()),
            _ => return None,
        };
        self.bump();
        Some(name)
    }

    /// An identifier without its quotes, in lower case.
    pub(crate) fn lower_name(&mut self) -> Option<String> {
        lower(&self.name()?)
    }
}

fn keyword(lexer: &Lexer<'_>, token: &Token) -> Kw {
    if token.kind == TokenKind::Word { lookup(token.text(lexer.sql())) } else { Kw::None }
}

/// Lower-case text; `None` when it is not UTF-8.
pub(crate) fn lower(bytes: &[u8]) -> Option<String> {
    Some(std::str::from_utf8(bytes).ok()?.to_lowercase())
}

/// Text as it is; `None` when it is not UTF-8.
pub(crate) fn utf8(bytes: &[u8]) -> Option<String> {
    Some(std::str::from_utf8(bytes).ok()?.to_owned())
}

/// The content of a quoted identifier, doubled quotes undone.
pub fn unquote_name(text: &[u8]) -> Cow<'_, [u8]> {
    let Some((&quote, rest)) = text.split_first() else {
        return Cow::Borrowed(text);
    };
    let quote = if quote == b'[' { b']' } else { quote };
    let content = rest.strip_suffix(&[quote]).unwrap_or(rest);
    if !content.contains(&quote) {
        return Cow::Borrowed(content);
    }
    Cow::Owned(undouble(content, quote, false, MultiByte::Plain))
}

/// The value of a string literal.
pub(crate) fn unquote_string(text: &[u8], mode: LexMode) -> Vec<u8> {
    let Some((&quote, rest)) = text.split_first() else {
        return Vec::new();
    };
    let content = rest.strip_suffix(&[quote]).unwrap_or(rest);
    undouble(content, quote, !mode.no_backslash_escapes, mode.multi_byte)
}

fn undouble(content: &[u8], quote: u8, backslash: bool, multi_byte: MultiByte) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len());
    let mut rest = content;
    while let Some((character, after)) = multi_byte.split_first(rest) {
        rest = after;
        let escapes = character == b"\\" && backslash;
        if !escapes && character != [quote] {
            out.extend_from_slice(character);
            continue;
        }
        let next = rest.split_first();
        rest = next.map_or(rest, |(_, after)| after);
        out.push(match next {
            Some((&next, _)) if escapes => escaped(next),
            Some((&next, _)) => next,
            None => character.first().copied().unwrap_or(quote),
        });
    }
    out
}

/// MySQL manual 11.1.1, "Special Character Escape Sequences".
fn escaped(byte: u8) -> u8 {
    match byte {
        b'0' => 0,
        b'b' => 8,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'Z' => 26,
        other => other,
    }
}
