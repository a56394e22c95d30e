//! The query cache: rows between the two protocols, and executions worded as plain statements.

use ::sql::{LexMode, Lexer, TokenKind};

use crate::input::Input;
use crate::proxy_cache::columns::Coding;
use crate::proxy_cache::rows::{ResultProtocol, convert};
use crate::proxy_cache::wording::{Bound, with_literals};

/// Any row: what becomes of it goes back to one image. The input: a byte, of which the lowest bit says the row's form and the
/// others the number of columns; their types, flags (its low byte) and decimals, three bytes a column; the rest is the row.
pub fn rows(data: &[u8]) {
    let mut input = Input::new(data);
    let head = input.byte();
    let codings: Vec<Coding> = (0..(head >> 1) % 8).filter_map(|_| coding(&mut input)).collect();
    let from = if head & 1 == 0 { ResultProtocol::Text } else { ResultProtocol::Binary };
    let to = from.other();
    let Some(other) = converted(input.rest(), &codings, to) else { return };
    match converted(&other, &codings, from) {
        Some(back) => assert_eq!(converted(&back, &codings, to).as_ref(), Some(&other), "there and back is one image"),
        // A binary row that no server sends, such as one with a minus zero, may have no text that a server would.
        None => assert_eq!(from, ResultProtocol::Binary, "what became of a text row reads again"),
    }
}

fn converted(row: &[u8], codings: &[Coding], to: ResultProtocol) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    convert(row, codings, to, &mut out).map(|()| out)
}

/// From the fixed part of a column definition.
fn coding(input: &mut Input<'_>) -> Option<Coding> {
    let (type_code, flags, decimals) = (input.byte(), input.byte(), input.byte());
    Coding::of(&[0x0c, 45, 0, 4, 0, 0, 0, type_code, flags, 0, decimals, 0, 0])
}

/// Any statement with any parameters: what comes out is one piece of SQL without placeholders, of as many statements. The input: a
/// byte of flags (the lowest bit: types have names), then as pieces the types, the NULL bitmap and the values; the rest is
/// the statement.
pub fn wording(data: &[u8]) {
    let mut input = Input::new(data);
    let named = input.byte() & 1 == 1;
    let mut piece = || input.piece().unwrap_or_default();
    let bound = Bound { types: piece(), named, nulls: piece(), values: piece() };
    let text = input.rest();
    let mode = LexMode::default();
    let Some(worded) = with_literals(text, mode, bound) else { return };
    let show = String::from_utf8_lossy(&worded);
    assert_eq!(count(&worded, TokenKind::Placeholder), 0, "nothing is left open: {show}");
    assert_eq!(count(&worded, TokenKind::Punct(b';')), count(text, TokenKind::Punct(b';')), "values end no statement: {show}");
}

/// Tokens of a kind.
fn count(text: &[u8], kind: TokenKind) -> usize {
    let mut lexer = Lexer::new(text, LexMode::default());
    std::iter::from_fn(|| Some(lexer.token().kind).filter(|kind| *kind != TokenKind::End)).filter(|found| *found == kind).count()
}
