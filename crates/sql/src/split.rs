//! Cuts a text into its statements.

use crate::analyze::is_opening;
use crate::keywords::{Kw, lookup};
use crate::kind::classify;
use crate::token::{LexMode, Lexer, Token, TokenKind};
use std::ops::Range;

/// The non-empty top-level statements of `sql`, each without its `;`.
///
/// Literals and comments are respected. A statement with a body (`CREATE PROCEDURE`,
/// `BEGIN NOT ATOMIC`, ...) reaches to the end of the text.
pub fn split(sql: &[u8], mode: LexMode) -> Split<'_> {
    Split { lexer: Lexer::new(sql, mode), from: 0 }
}

/// As [`split`]: where each statement stands in `sql`.
pub fn split_places(sql: &[u8], mode: LexMode) -> impl Iterator<Item = Range<usize>> {
    let mut split = split(sql, mode);
    std::iter::from_fn(move || split.next_place())
}

/// Iterator over statements; made by [`split`].
#[derive(Clone, Debug)]
pub struct Split<'a> {
    lexer: Lexer<'a>,
    from: usize,
}

impl<'a> Iterator for Split<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let place = self.next_place()?;
        self.lexer.sql().get(place)
    }
}

impl Split<'_> {
    fn next_place(&mut self) -> Option<Range<usize>> {
        let sql = self.lexer.sql();
        let mut begun = false;
        let mut whole_text = false;
        loop {
            let token = self.lexer.token();
            match token.kind {
                TokenKind::End => {
                    let place = self.from..sql.len();
                    self.from = sql.len();
                    return begun.then_some(place);
                }
                TokenKind::Punct(b';') if !whole_text => {
                    let place = self.from..token.start;
                    self.from = token.end;
                    self.lexer.end_statement();
                    if begun {
                        return Some(place);
                    }
                }
                kind if !begun && !is_opening(kind) => {
                    begun = true;
                    whole_text = is_whole_text(&token, &self.lexer);
                }
                _ => {}
            }
        }
    }
}

/// Whether the statement that begins with this token reaches to the end of the text.
fn is_whole_text(first: &Token, rest: &Lexer<'_>) -> bool {
    let kw = if first.kind == TokenKind::Word { lookup(first.text(rest.sql())) } else { Kw::None };
    classify(kw, rest).whole_text
}

/// Whether the text's first statement reaches to its end, whatever `;` is in it.
pub(crate) fn has_body(sql: &[u8], mode: LexMode) -> bool {
    let mut lexer = Lexer::new(sql, mode);
    loop {
        let token = lexer.token();
        match token.kind {
            TokenKind::End | TokenKind::Punct(b';') => return false,
            kind if !is_opening(kind) => return is_whole_text(&token, &lexer),
            _ => {}
        }
    }
}
