//! Names of functions and procedures in a statement that are not built in.
//!
//! For callers that know the effect of some of them. Only statements with [`Facts::UNKNOWN_FUNCTION`] have any. Finding the names reads the
//! statement a second time.

use crate::analyze::Scan;
use crate::cursor::Cursor;
use crate::digest::Grouping;
use crate::facts::Facts;
use crate::token::{LexMode, Token, TokenKind};

/// A called routine by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A function or procedure: `name` or `schema.name`, without quotes, in lower case.
    Named(String),
    /// A sequence, or something whose name cannot be read.
    Unnamed,
}

/// Everything for which `analyze` sets [`Facts::UNKNOWN_FUNCTION`], in the order of the text; a call may be told twice.
pub fn unknown_calls(sql: &[u8], mode: LexMode) -> Vec<Call> {
    let mut scan = Scan::new(sql, mode, Grouping::default());
    let mut calls = Vec::new();
    // The last three tokens: a call's name, perhaps with its schema, stands before the parenthesis.
    let mut last: [Option<Token>; 3] = [None; 3];
    loop {
        let token = scan.lexer.clone().token();
        scan.facts = Facts::NONE;
        if !scan.step() {
            return calls;
        }
        if scan.facts.contains(Facts::UNKNOWN_FUNCTION) {
            let name = match token.is(b'(') {
                true => last[2].and_then(|name| name_before(sql, mode, last, name)),
                // CALL stands before the name.
                false if token.text(sql).eq_ignore_ascii_case(b"call") => name_at(Cursor::from_lexer(scan.lexer.clone())),
                false => None,
            };
            calls.push(name.map_or(Call::Unnamed, Call::Named));
        }
        last = [last[1], last[2], Some(token)];
    }
}

fn name_before(sql: &[u8], mode: LexMode, last: [Option<Token>; 3], name: Token) -> Option<String> {
    let start = match last {
        [Some(schema), Some(dot), _] if dot.is(b'.') && matches!(schema.kind, TokenKind::Word | TokenKind::QuotedName) => schema.start,
        _ => name.start,
    };
    name_at(Cursor::new(sql.get(start..name.end)?, mode))
}

fn name_at(mut cursor: Cursor<'_>) -> Option<String> {
    let first = cursor.lower_name()?;
    if !cursor.eat_punct(b'.') {
        return Some(first);
    }
    Some(format!("{first}.{}", cursor.lower_name()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::analyze;

    #[test]
    fn names() {
        let cases: [(&str, &[&str]); 9] = [
            ("SELECT 1", &[]),
            ("SELECT count(*), f(1) FROM t", &["f"]),
            ("SELECT shop . `Total`(1), F(g(2))", &["shop.total", "f", "g"]),
            ("CALL p(1)", &["p", "p"]),
            ("CALL shop.p", &["shop.p"]),
            ("SELECT NEXT VALUE FOR s", &["?"]),
            ("SELECT nextval(s)", &["nextval"]),
            ("SELECT is_free_lock('a')", &["is_free_lock"]),
            ("INSERT INTO t (a) VALUES (f())", &["f"]),
        ];
        for (sql, expected) in cases {
            let calls = unknown_calls(sql.as_bytes(), LexMode::default());
            let names: Vec<&str> = calls.iter().map(|call| if let Call::Named(name) = call { name } else { "?" }).collect();
            assert_eq!(names, expected, "{sql}");
            let fact = analyze(sql.as_bytes(), LexMode::default()).facts.contains(Facts::UNKNOWN_FUNCTION);
            assert_eq!(fact, !expected.is_empty(), "{sql}");
        }
    }
}
