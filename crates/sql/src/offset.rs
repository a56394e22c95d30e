//! How many rows a query's LIMIT leaves out at the front: FOUND_ROWS() counts them with those that are sent.

use crate::token::{LexMode, Lexer, Token, TokenKind};

/// The offset of a text's outermost LIMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offset {
    /// The statement has no offset.
    None,
    /// The number of skipped rows.
    Rows(u64),
    /// The offset is a parameter or a variable, or servers count differently: UNION and similar, parentheses around a query, several
    /// statements.
    Unclear,
}

/// Reads the offset of a single query.
pub fn offset(sql: &[u8], mode: LexMode) -> Offset {
    const SETS: [&[u8]; 4] = [b"UNION", b"EXCEPT", b"INTERSECT", b"MINUS"];
    let mut lexer = Lexer::new(sql, mode);
    let (mut depth, mut found, mut is_first) = (0u32, Offset::None, true);
    let mut token = lexer.token();
    loop {
        let word = |word: &[u8]| token.kind == TokenKind::Word && token.text(sql).eq_ignore_ascii_case(word);
        match token.kind {
            TokenKind::End => return found,
            TokenKind::Punct(b'(') if is_first => return Offset::Unclear,
            TokenKind::Punct(b'(') => depth += 1,
            TokenKind::Punct(b')') => depth = depth.saturating_sub(1),
            TokenKind::Punct(b';') => {
                return if lexer.token().kind == TokenKind::End { found } else { Offset::Unclear };
            }
            _ if depth > 0 => {}
            _ if SETS.iter().any(|set| word(set)) => return Offset::Unclear,
            _ if word(b"LIMIT") => {
                let first = lexer.token();
                token = lexer.token();
                if token.is(b',') {
                    found = rows(&first, sql);
                } else {
                    continue;
                }
            }
            // `LIMIT 2 OFFSET 1`, `OFFSET 1 ROWS`; else it is a name.
            _ if word(b"OFFSET") => {
                let next = lexer.token();
                if matches!(next.kind, TokenKind::Number | TokenKind::Placeholder) {
                    found = rows(&next, sql);
                } else {
                    token = next;
                    continue;
                }
            }
            _ => {}
        }
        is_first = false;
        token = lexer.token();
    }
}

fn rows(token: &Token, sql: &[u8]) -> Offset {
    let number = || std::str::from_utf8(token.text(sql)).ok()?.parse().ok();
    number().map_or(Offset::Unclear, Offset::Rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Facts, analyze};

    #[test]
    fn offsets() {
        use Offset::{None, Rows, Unclear};
        for (sql, expected) in [
            ("SELECT a FROM t", None),
            ("SELECT a FROM t LIMIT 2", None),
            ("SELECT a FROM t LIMIT 2 OFFSET 1", Rows(1)),
            ("select a from t limit 5, 100", Rows(5)),
            ("SELECT a FROM t LIMIT 2 OFFSET 1 FOR UPDATE", Rows(1)),
            ("SELECT a FROM t ORDER BY a OFFSET 2 ROWS", Rows(2)),
            ("SELECT a FROM t ORDER BY a OFFSET 1 ROW FETCH FIRST 2 ROWS ONLY;", Rows(1)),
            ("WITH c AS (SELECT a FROM t LIMIT 3 OFFSET 7) SELECT a FROM c LIMIT 2 OFFSET 1", Rows(1)),
            ("SELECT a FROM (SELECT a FROM t LIMIT 3 OFFSET 1) d", None),
            ("SELECT a FROM (SELECT a FROM t LIMIT 3 OFFSET 1) d LIMIT 1", None),
            ("SELECT offset FROM t LIMIT 1", None),
            ("SELECT offset, `limit` FROM t WHERE offset = 3 LIMIT 1, 2", Rows(1)),
            ("SELECT a FROM t LIMIT ?, ?", Unclear),
            ("SELECT a FROM t LIMIT 1 OFFSET ?", Unclear),
            ("SELECT a FROM t UNION SELECT a FROM t LIMIT 2 OFFSET 1", Unclear),
            ("(SELECT a FROM t LIMIT 2 OFFSET 1) LIMIT 1", Unclear),
            ("SELECT 1 LIMIT 1, 2; SELECT 3", Unclear),
        ] {
            assert_eq!(offset(sql.as_bytes(), LexMode::default()), expected, "{sql}");
            let is_told = analyze(sql.as_bytes(), LexMode::default()).facts.contains(Facts::OFFSET);
            assert!(is_told || expected == None, "{sql}");
        }
        assert!(!analyze(b"SELECT a FROM t LIMIT 10", LexMode::default()).facts.contains(Facts::OFFSET));
    }
}
