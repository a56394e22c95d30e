//! Cuts a text into its statements.

use crate::analyze::is_opening;
use crate::keywords::{Kw, lookup};
use crate::kind::classify;
use crate::token::{LexMode, Lexer, TokenKind};

/// The non-empty top-level statements of `sql`, each without its `;`.
///
/// Literals and comments are respected. A statement with a body (`CREATE PROCEDURE`,
/// `BEGIN NOT ATOMIC`, ...) reaches to the end of the text.
pub fn split(sql: &[u8], mode: LexMode) -> Split<'_> {
    Split { lexer: Lexer::new(sql, mode), from: 0 }
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
        let sql = self.lexer.sql();
        let mut begun = false;
        let mut whole_text = false;
        loop {
            let token = self.lexer.token();
            match token.kind {
                TokenKind::End => {
                    let statement = sql.get(self.from..).unwrap_or_default();
                    self.from = sql.len();
                    return begun.then_some(statement);
                }
                TokenKind::Punct(b';') if !whole_text => {
                    let statement = &sql[self.from..token.start];
                    self.from = token.end;
                    self.lexer.end_statement();
                    if begun {
                        return Some(statement);
                    }
                }
                kind if !begun && !is_opening(kind) => {
                    begun = true;
                    let kw = if kind == TokenKind::Word { lookup(token.text(sql)) } else { Kw::None };
                    whole_text = classify(kw, &self.lexer).whole_text;
                }
                _ => {}
            }
        }
    }
}
