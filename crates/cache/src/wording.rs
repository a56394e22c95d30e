//! The text that an execution of a prepared statement has in common with a plain statement.
//!
//! `SELECT c FROM t WHERE id=?` with 5 and `SELECT c FROM t WHERE id=5` give the same rows. That does not hold wherever a
//! placeholder may stand: in `SELECT ?` or `?+1` the type of a parameter shows in the result. So placeholders are replaced
//! only where they are a whole operand of a comparison, a value in a list after IN, or a count after LIMIT; otherwise the
//! answer is `None`. Pure.

use super::params::put_literal;
use sql::{LexMode, Lexer, Token, TokenKind};
use wire::codec::Reader;

/// The parameters of an execution, cut out of its packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bound<'a> {
    /// Two bytes each: the type, and 0x80 when unsigned; then a name, if `named`.
    pub types: &'a [u8],
    /// Whether the types have names (CLIENT_QUERY_ATTRIBUTES).
    pub named: bool,
    /// NULL bitmap.
    pub nulls: &'a [u8],
    /// Values of those that are not NULL.
    pub values: &'a [u8],
}

/// Words after which a placeholder is a whole operand, if what follows allows it.
const BEFORE: &[&str] = &["LIKE", "BETWEEN", "AND", "LIMIT", "OFFSET"];
/// Words that end an operand.
const AFTER: &[&str] = &[
    "AND",
    "OR",
    "XOR",
    "AS",
    "FROM",
    "WHERE",
    "JOIN",
    "INNER",
    "LEFT",
    "RIGHT",
    "CROSS",
    "NATURAL",
    "GROUP",
    "HAVING",
    "ORDER",
    "LIMIT",
    "OFFSET",
    "UNION",
    "EXCEPT",
    "INTERSECT",
    "THEN",
];

/// YEAR and INT24: no server takes parameters of these types for numbers, so they are not what a literal is.
const REFUSED: [u8; 2] = [13, 9];

/// The statement with literals in place of its placeholders.
pub(crate) fn with_literals(text: &[u8], mode: LexMode, bound: Bound<'_>) -> Option<Vec<u8>> {
    // Comments that servers read: what is text and what is not depends on the server's version.
    if text.windows(3).any(|three| matches!(three, b"/*!" | b"/*M")) {
        return None;
    }
    let mut out = Vec::with_capacity(text.len() + bound.values.len() + 16);
    let mut values = Values::new(bound);
    let mut context = Context::default();
    let mut lexer = Lexer::new(text, mode);
    let mut copied = 0;
    loop {
        let token = lexer.token();
        match token.kind {
            TokenKind::End => break,
            TokenKind::Placeholder => {
                let next = lexer.clone().token();
                if !context.takes_operand(&token) || !ends_operand(&next, text) {
                    return None;
                }
                out.extend_from_slice(text.get(copied..token.start)?);
                values.put_next(mode, &mut out)?;
                copied = token.end;
            }
            _ => {}
        }
        context.pass(&token, text);
    }
    out.extend_from_slice(text.get(copied..)?);
    values.are_used_up().then_some(out)
}

/// A literal would run into a word that touches it: `?AND` is two tokens, `5AND` is one.
fn ends_operand(next: &Token, text: &[u8]) -> bool {
    match next.kind {
        TokenKind::End | TokenKind::Punct(b')' | b',' | b';') => true,
        TokenKind::Word => next.spaced && is_one_of(next.text(text), AFTER),
        _ => false,
    }
}

fn is_one_of(word: &[u8], words: &[&str]) -> bool {
    words.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(word))
}

/// What stands before a placeholder.
#[derive(Default)]
struct Context {
    before: Before,
    /// Parentheses open inside the list after an IN; 0 outside.
    list: usize,
    /// After LIMIT, among its numbers.
    in_limit: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Before {
    /// Nothing that makes an operand of what follows.
    #[default]
    Other,
    /// A word of [`BEFORE`].
    Word,
    /// `=`, or the first of `<` and `>`.
    Comparison,
    /// `<` right after `<`, or `>` right after `>`: a shift. Or `->`.
    Shift(usize),
    /// A single `<`, `>` or `-`, which ended here: a second one may follow.
    Angle(u8, usize),
    /// The word IN.
    In,
    /// `(` or `,`.
    Separator,
}

impl Context {
    fn takes_operand(&self, placeholder: &Token) -> bool {
        match self.before {
            Before::Comparison => true,
            Before::Angle(byte, _) => byte != b'-',
            Before::Word => placeholder.spaced,
            Before::Separator => self.list > 0 || self.in_limit,
            Before::Shift(_) | Before::In | Before::Other => false,
        }
    }

    /// Steps over a token.
    fn pass(&mut self, token: &Token, text: &[u8]) {
        let word = if token.kind == TokenKind::Word { token.text(text) } else { &[] };
        self.pass_list(token);
        self.in_limit = match token.kind {
            TokenKind::Number | TokenKind::Placeholder | TokenKind::Punct(b',') => self.in_limit,
            _ => is_one_of(word, &["LIMIT", "OFFSET"]),
        };
        self.before = match token.kind {
            TokenKind::Word if word.eq_ignore_ascii_case(b"IN") => Before::In,
            TokenKind::Word if is_one_of(word, BEFORE) => Before::Word,
            TokenKind::Punct(b'(' | b',') => Before::Separator,
            TokenKind::Punct(b'=') => Before::Comparison,
            TokenKind::Punct(byte @ (b'<' | b'>' | b'-')) => self.angle(byte, token),
            _ => Before::Other,
        };
    }

    /// `<` and `>` compare, `<>` and `<=>` too; `<<`, `>>` and `->` do not.
    fn angle(&self, byte: u8, token: &Token) -> Before {
        match self.before {
            Before::Angle(b'<', end) if byte == b'>' && end == token.start => Before::Comparison,
            Before::Angle(_, end) | Before::Shift(end) if end == token.start => Before::Shift(token.end),
            _ => Before::Angle(byte, token.end),
        }
    }

    /// A list after IN holds values only: a word in it makes it something else.
    fn pass_list(&mut self, token: &Token) {
        self.list = match token.kind {
            TokenKind::Punct(b'(') if self.list > 0 || self.before == Before::In => self.list + 1,
            TokenKind::Punct(b')') => self.list.saturating_sub(1),
            TokenKind::Placeholder | TokenKind::Number | TokenKind::String | TokenKind::Punct(b',' | b'-') => self.list,
            _ => 0,
        };
    }
}

/// Reads the values one by one.
struct Values<'a> {
    types: Reader<'a>,
    named: bool,
    nulls: &'a [u8],
    values: Reader<'a>,
    index: usize,
}

impl<'a> Values<'a> {
    fn new(bound: Bound<'a>) -> Self {
        let (types, values) = (Reader::new(bound.types), Reader::new(bound.values));
        Self { types, named: bound.named, nulls: bound.nulls, values, index: 0 }
    }

    fn put_next(&mut self, mode: LexMode, out: &mut Vec<u8>) -> Option<()> {
        let [type_code, flags] = self.types.array().ok()?;
        if self.named {
            self.types.lenenc_bytes().ok()?;
        }
        let is_null = self.nulls.get(self.index / 8)? >> (self.index % 8) & 1 == 1;
        self.index += 1;
        if REFUSED.contains(&type_code) {
            return None;
        }
        if is_null {
            out.extend_from_slice(b"NULL");
            return Some(());
        }
        put_literal(type_code, flags & 0x80 != 0, &mut self.values, mode, out)
    }

    fn are_used_up(&self) -> bool {
        self.types.is_empty() && self.values.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every placeholder is bound to the LONGLONG 5.
    fn fives(text: &str) -> Option<String> {
        let count = text.matches('?').count();
        let values = [5i64.to_le_bytes().as_slice()].repeat(count).concat();
        let bound = Bound { types: &[8, 0].repeat(count), nulls: &vec![0; count.div_ceil(8)], values: &values, named: false };
        with_literals(text.as_bytes(), LexMode::default(), bound).map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn what_servers_read_otherwise_is_no_literal() {
        let worded = |types: [u8; 2], nulls: u8, values: &[u8]| {
            let bound = Bound { types: &types, nulls: &[nulls], values, named: false };
            with_literals(b"SELECT c FROM t LIMIT ?", LexMode::default(), bound).is_some()
        };
        assert!(worded([3, 0], 0, &[5, 0, 0, 0]));
        assert!(worded([3, 0], 1, &[]) && worded([6, 0], 1, &[]), "NULL");
        assert!(!worded([6, 0], 0, &[]), "NULL without its bit");
        assert!(!worded([9, 0], 0, &[5, 0, 0, 0]) && !worded([9, 0], 1, &[]), "INT24");
        assert!(!worded([246, 0], 0, b"\x015") && !worded([0, 0], 0, b"\x015"), "DECIMAL");
    }

    #[test]
    fn operands_become_literals() {
        for (text, expected) in [
            ("SELECT c FROM t WHERE id=?", "SELECT c FROM t WHERE id=5"),
            ("SELECT c FROM t WHERE id = ? AND b <> ?", "SELECT c FROM t WHERE id = 5 AND b <> 5"),
            ("SELECT c FROM t WHERE a<=? AND b >= ? OR c < ? LIMIT ?, ?", "SELECT c FROM t WHERE a<=5 AND b >= 5 OR c < 5 LIMIT 5, 5"),
            ("SELECT c FROM t WHERE a<=>? AND b LIKE ? limit ? offset ?", "SELECT c FROM t WHERE a<=>5 AND b LIKE 5 limit 5 offset 5"),
            ("SELECT c FROM t WHERE a IN (?, ?,1) AND b BETWEEN ? AND ?", "SELECT c FROM t WHERE a IN (5, 5,1) AND b BETWEEN 5 AND 5"),
            ("SELECT c FROM t WHERE (a,b) in ((?,?),(?,?))", "SELECT c FROM t WHERE (a,b) in ((5,5),(5,5))"),
            ("SELECT c FROM t WHERE b = '?' AND a = ?", "SELECT c FROM t WHERE b = '?' AND a = 5"),
        ] {
            let count = if text.contains("'?'") { None } else { Some(expected.to_owned()) };
            match count {
                Some(expected) => assert_eq!(fives(text), Some(expected), "{text}"),
                None => {
                    let bound = Bound { types: &[8, 0], nulls: &[0], values: &5i64.to_le_bytes(), named: false };
                    assert_eq!(with_literals(text.as_bytes(), LexMode::default(), bound).unwrap(), expected.as_bytes());
                }
            }
        }
    }

    #[test]
    fn elsewhere_the_type_of_a_parameter_shows() {
        for text in [
            "SELECT ?",
            "SELECT a, ? FROM t",
            "SELECT c FROM t WHERE id = ? + 1",
            "SELECT c FROM t WHERE id = -?",
            "SELECT c FROM t WHERE id = 1 - ?",
            "SELECT c FROM t WHERE a >> ? = 1",
            "SELECT c FROM t WHERE a = 1 << ?",
            "SELECT c FROM t WHERE f(?) = 1",
            "SELECT c FROM t WHERE a IN (SELECT b, ? FROM u)",
            "SELECT c FROM t WHERE a IN (f(?))",
            "SELECT c FROM t WHERE a IN (1) AND f(1, ?)",
            "SELECT c FROM t WHERE a=?AND b=1",
            "SELECT c FROM t LIMIT?",
            "SELECT c FROM t WHERE a = ? COLLATE utf8mb4_bin",
            "SELECT c FROM t WHERE /*!50000 a = ? */",
            "SELECT c->? FROM t",
            "SELECT c FROM t WHERE ? = a",
        ] {
            assert_eq!(fives(text), None, "{text}");
        }
    }

    #[test]
    fn null_and_surplus_values() {
        let text = b"SELECT c FROM t WHERE a <=> ?";
        let null = Bound { types: &[8, 0], nulls: &[1], values: &[], named: false };
        assert_eq!(with_literals(text, LexMode::default(), null).unwrap(), b"SELECT c FROM t WHERE a <=> NULL");
        let surplus = Bound { types: &[8, 0], nulls: &[1], values: &[1], named: false };
        assert_eq!(with_literals(text, LexMode::default(), surplus), None);
        let named = Bound { types: &[8, 0, 1, b'n'], nulls: &[1], values: &[], named: true };
        assert_eq!(with_literals(text, LexMode::default(), named).unwrap(), b"SELECT c FROM t WHERE a <=> NULL");
        assert_eq!(with_literals(b"SELECT 1", LexMode::default(), Bound::default()).unwrap(), b"SELECT 1");
    }
}
