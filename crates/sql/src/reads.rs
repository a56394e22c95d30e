//! The tables that a read names, for callers that look up their definitions. None may be missing; extra ones do no harm.

use crate::cursor::unquote_name;
use crate::tables::{WITH_FROM, is_one_of};
use crate::token::{LexMode, Lexer, Token, TokenKind};

/// More of them are not told.
const MOST: usize = 32;
/// Longest name, bytes.
const LONGEST: usize = 64;
/// No list of tables goes on behind these. All are reserved: no alias is called so.
const ENDS: &[&[u8]] = &[b"WHERE", b"GROUP", b"ORDER", b"HAVING", b"LIMIT", b"UNION"];
/// May stand where a table may, and is none.
const NO_TABLES: &[&[u8]] = &[b"SELECT", b"WITH", b"VALUES", b"TABLE", b"DUAL"];
/// Statements that an EXPLAIN may run, beside a read.
const CHANGES: &[&[u8]] = &[b"INSERT", b"REPLACE", b"UPDATE", b"DELETE"];

/// A name that a read uses as a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableName {
    /// Its schema, where one is said.
    pub schema: Option<String>,
    /// Without quotes, as written.
    pub name: String,
}

/// Every table that a single SELECT, TABLE or EXPLAIN of one names. Names of common table expressions, and now and then another word, are
/// among them. None if that is uncertain: unreadable text, names beyond plain ASCII, or too many.
pub fn read_tables(sql: &[u8], mode: LexMode) -> Option<Vec<TableName>> {
    let mut all: Vec<TableName> = Vec::new();
    let (mut here, mut outer) = (Place::default(), Vec::new());
    let mut last: &[u8] = b"";
    let mut lexer = Lexer::new(sql, mode);
    let mut token = lexer.token();
    loop {
        let (text, after_dot) = (token.text(sql), last == b".");
        if is_one_of(last, CHANGES) && !token.is(b'(') {
            return None;
        }
        let is_word = token.kind == TokenKind::Word;
        if here.expects && (token.kind == TokenKind::QuotedName || is_word && !is_one_of(text, NO_TABLES)) {
            let is_lateral = is_word && text.eq_ignore_ascii_case(b"LATERAL");
            let first = name_of(&token, sql)?;
            token = lexer.token();
            let mut second = None;
            while token.is(b'.') {
                let part = name_of(&lexer.token(), sql)?;
                second.get_or_insert(part);
                token = lexer.token();
            }
            let found = match second {
                Some(name) => TableName { schema: Some(first), name },
                None => TableName { schema: None, name: first },
            };
            if !all.contains(&found) {
                all.push(found);
            }
            if all.len() > MOST {
                return None;
            }
            here.expects = is_lateral;
            last = b"";
            continue;
        }
        match token.kind {
            TokenKind::End => return Some(all),
            TokenKind::Word if !after_dot => here.word(text, last),
            TokenKind::Punct(b'(') => {
                outer.push(here);
                here = Place { lists: here.expects, is_call: is_one_of(last, WITH_FROM), ..here };
            }
            TokenKind::Punct(b')') => here = Place { expects: false, ..outer.pop()? },
            TokenKind::Punct(b',') => here.expects = here.lists,
            // `.t` is a table of no schema; `{OJ ...}` may be a join.
            TokenKind::Punct(b'.') => {}
            TokenKind::Punct(b'{') if here.expects => return None,
            TokenKind::Punct(b';') => here = Place::default(),
            _ if here.expects => return None,
            _ => {}
        }
        last = match token.kind {
            TokenKind::Word if after_dot => b"",
            TokenKind::Word | TokenKind::Punct(b'.') => text,
            _ => b"",
        };
        token = lexer.token();
    }
}

/// The words that may stand at a place within one pair of parentheses.
#[derive(Clone, Copy, Default)]
struct Place {
    /// A table.
    expects: bool,
    /// A comma may be followed by another one.
    lists: bool,
    /// Arguments of a function: its FROM has none.
    is_call: bool,
}

impl Place {
    fn word(&mut self, word: &[u8], last: &[u8]) {
        let is = |one: &[u8]| word.eq_ignore_ascii_case(one);
        let after = |one: &[u8]| last.eq_ignore_ascii_case(one);
        if is(b"FROM") {
            // `IS DISTINCT FROM` compares.
            self.expects = !self.is_call && !after(b"DISTINCT");
            self.lists |= self.expects;
        } else if is(b"JOIN") || is(b"TABLE") || is(b"STRAIGHT_JOIN") && !after(b"SELECT") {
            (self.expects, self.lists) = (true, true);
        } else {
            self.expects = false;
            // Not `USE INDEX FOR ORDER BY (...)`.
            if is(b"SELECT") || is(b"VALUES") || is_one_of(word, ENDS) && !after(b"FOR") {
                self.lists = false;
            }
        }
    }
}

fn name_of(token: &Token, sql: &[u8]) -> Option<String> {
    let name = match token.kind {
        TokenKind::QuotedName => unquote_name(token.text(sql)),
        TokenKind::Word => token.text(sql).into(),
        _ => return None,
    };
    let is_plain = |byte: &u8| (b' '..0x7f).contains(byte) && !matches!(byte, b'\'' | b'\\');
    let is_fit = !name.is_empty() && name.len() <= LONGEST && name.iter().all(is_plain);
    is_fit.then(|| String::from_utf8_lossy(&name).into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn names(sql: &str) -> Option<String> {
        let all = read_tables(sql.as_bytes(), LexMode::default())?;
        let shown = |table: &TableName| table.schema.iter().chain([&table.name]).cloned().collect::<Vec<_>>().join(".");
        Some(all.iter().map(shown).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn every_table_is_told() {
        for (sql, expected) in [
            ("SELECT 1", ""),
            ("SELECT x FROM v", "v"),
            ("select a, b from t1, `v` as c where d in (1, e) order by f, g limit 1, 2", "t1 v"),
            ("SELECT * FROM t1 USE KEY (i), v", "t1 v"),
            ("SELECT * FROM t1 USE INDEX FOR ORDER BY (i), v", "t1 v"),
            ("SELECT * FROM t1 USE INDEX FOR GROUP BY (i) JOIN v", "t1 v"),
            ("SELECT * FROM t1 JOIN t2 ON t1.value = t2.value AND t1.select = 1, v", "t1 t2 v"),
            ("SELECT * FROM t1 STRAIGHT_JOIN v", "t1 v"),
            ("SELECT STRAIGHT_JOIN 1, a FROM v", "v"),
            ("SELECT * FROM (t1 LEFT JOIN (t2, v) USING (a, b)), t3 x", "t1 t2 v t3"),
            ("SELECT * FROM (SELECT a, b FROM v) x, w", "v w"),
            ("SELECT (SELECT MAX(a) FROM db . v) FROM `d``b`.t1 WHERE a IN (TABLE w)", "db.v d`b.t1 w"),
            ("SELECT * FROM .v, 2w, d.3x", "v 2w d.3x"),
            ("WITH z AS (SELECT x FROM v), y AS (TABLE w) SELECT * FROM z", "v w z"),
            ("TABLE v ORDER BY a, b", "v"),
            ("TABLE v UNION TABLE w", "v w"),
            ("EXPLAIN ANALYZE SELECT * FROM v", "v"),
            ("EXPLAIN FORMAT='JSON' SELECT REPLACE(a, 'b', 'c') FROM v", "v"),
            ("ANALYZE FORMAT=JSON SELECT * FROM v", "v"),
            ("SELECT EXTRACT(YEAR FROM a), TRIM('x' FROM b), TRIM((SELECT a FROM v)) FROM t1", "v t1"),
            ("SELECT a IS DISTINCT FROM b FROM v", "v"),
            ("SELECT DISTINCT a FROM v", "v"),
            ("SELECT * FROM t1, LATERAL (SELECT * FROM v) x", "t1 LATERAL v"),
            ("SELECT * FROM JSON_TABLE('[]', '$' COLUMNS (a INT PATH '$')) j, v", "JSON_TABLE v"),
            ("SELECT a FROM value, temporary, v UNION SELECT a, b FROM w", "value temporary v w"),
            ("SELECT /*! * FROM v */", "v"),
            ("SELECT * FROM (VALUES (1, a), (2, b)) v, w", "w"),
            ("SELECT {d '2020-01-01'}, a FROM DUAL;", ""),
            ("SELECT a, SUM(b) OVER (PARTITION BY c, d ORDER BY e, f) FROM v WINDOW w AS (ORDER BY g, h)", "v"),
        ] {
            assert_eq!(names(sql).as_deref(), Some(expected), "{sql}");
        }
    }

    #[test]
    fn what_is_not_certain_is_not_told() {
        let many: String = (0..40).map(|n| format!(" JOIN t{n}")).collect();
        for sql in [
            "SELECT * FROM {OJ v LEFT JOIN w ON 1}",
            "SELECT * FROM t, {x v}",
            "SELECT * FROM `\u{e9}`",
            "SELECT * FROM `a'b`",
            "SELECT * FROM `a\\b`",
            "SELECT * FROM \"v\"",
            "SELECT * FROM ?",
            "EXPLAIN ANALYZE UPDATE t, v SET t.a = v.a",
            "EXPLAIN INSERT INTO t SELECT * FROM v",
            "SELECT 1)",
            &format!("SELECT * FROM v{many}"),
        ] {
            assert_eq!(names(sql), None, "{sql}");
        }
    }
}
