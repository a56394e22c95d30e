//! Which tables a statement names: the names that stand where tables do, and no columns or aliases that are called alike.

use crate::cursor::unquote_name;
use crate::token::{LexMode, Lexer, Token, TokenKind};
use std::borrow::Cow;

/// Words before a list of tables.
pub(crate) const LISTS: &[&[u8]] = &[b"FROM", b"JOIN", b"STRAIGHT_JOIN", b"UPDATE", b"TABLE", b"TABLES"];
/// A table follows.
pub(crate) const ONE: &[&[u8]] = &[b"INTO", b"REFERENCES", b"HANDLER"];
/// A table follows where a statement begins so.
const VERBS: &[&[u8]] = &[b"INSERT", b"REPLACE", b"DELETE", b"TRUNCATE", b"DESCRIBE", b"DESC", b"EXPLAIN", b"ANALYZE", b"HANDLER"];
/// May stand before the table that follows.
const BETWEEN: &[&[u8]] =
    &[b"IGNORE", b"LOW_PRIORITY", b"HIGH_PRIORITY", b"DELAYED", b"QUICK", b"TEMPORARY", b"IF", b"NOT", b"EXISTS", b"LATERAL", b"SEQUENCE"];
/// No list of tables goes on behind these.
const ENDS: &[&[u8]] = &[
    b"SELECT",
    b"WHERE",
    b"SET",
    b"VALUES",
    b"VALUE",
    b"GROUP",
    b"ORDER",
    b"HAVING",
    b"LIMIT",
    b"UNION",
    b"EXCEPT",
    b"INTERSECT",
    b"WINDOW",
];
/// Of these, what may be called so where a table stands.
const NAMES: &[&[u8]] = &[b"VALUE", b"WINDOW", b"EXCEPT", b"INTERSECT"];
/// Functions with FROM among their arguments.
pub(crate) const WITH_FROM: &[&[u8]] = &[b"EXTRACT", b"TRIM", b"SUBSTRING", b"SUBSTR", b"MID"];

/// Whether `is_meant` accepts a table that the text names, given its schema, if any, and its name, without quotes. A table that a `CREATE`
/// makes does not count, but the tables that it copies do.
pub fn names_table(sql: &[u8], mode: LexMode, mut is_meant: impl FnMut(Option<&[u8]>, &[u8]) -> bool) -> bool {
    let mut scan = Scan::default();
    let mut lexer = Lexer::new(sql, mode);
    let mut token = lexer.token();
    while token.kind != TokenKind::End {
        let is_name = matches!(token.kind, TokenKind::Word | TokenKind::QuotedName);
        if !is_name || !scan.is_table(&token, sql) {
            scan.passes(&token, sql);
            token = lexer.token();
            continue;
        }
        let first = name_of(&token, sql);
        token = lexer.token();
        let mut second = None;
        if token.kind == TokenKind::Punct(b'.') {
            second = Some(name_of(&lexer.token(), sql));
            token = lexer.token();
        }
        let is_made = std::mem::take(&mut scan.makes);
        let (schema, table) = second.as_deref().map_or((None, &*first), |table| (Some(&*first), table));
        if !is_made && is_meant(schema, table) {
            return true;
        }
        scan.here.expects = false;
        scan.last = b"";
    }
    false
}

fn name_of<'a>(token: &Token, sql: &'a [u8]) -> Cow<'a, [u8]> {
    match token.kind {
        TokenKind::QuotedName => unquote_name(token.text(sql)),
        _ => token.text(sql).into(),
    }
}

/// Whether it is one of them, in any case of letters.
pub(crate) fn is_one_of(word: &[u8], words: &[&[u8]]) -> bool {
    words.iter().any(|one| one.eq_ignore_ascii_case(word))
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

#[derive(Default)]
struct Scan<'a> {
    here: Place,
    outer: Vec<Place>,
    /// The statement's first word.
    verb: &'a [u8],
    /// The word before; empty for any other token.
    last: &'a [u8],
    /// The next word is a name, whatever it says.
    after_dot: bool,
    /// The next word is none of the statement's: `{OJ t1 LEFT JOIN t2 ON 1}`.
    after_brace: bool,
    /// The next table is one that the statement makes.
    makes: bool,
}

impl<'a> Scan<'a> {
    fn is_table(&self, token: &Token, sql: &[u8]) -> bool {
        let word = token.text(sql);
        let is_reserved = || [LISTS, ONE, BETWEEN, ENDS].iter().any(|words| is_one_of(word, words)) && !is_one_of(word, NAMES);
        let is_keyword = || is_reserved() || self.is_verb(word);
        self.here.expects && !self.after_brace && (token.kind == TokenKind::QuotedName || !is_keyword())
    }

    fn is_verb(&self, word: &[u8]) -> bool {
        (self.verb.is_empty() || is_one_of(self.last, &[b"EXPLAIN", b"DESCRIBE", b"DESC", b"ANALYZE"])) && is_one_of(word, VERBS)
    }

    fn passes(&mut self, token: &Token, sql: &'a [u8]) {
        let word = match token.kind {
            TokenKind::Word if !self.after_dot => token.text(sql),
            _ => b"",
        };
        self.after_dot = token.kind == TokenKind::Punct(b'.');
        let opens_brace = token.kind == TokenKind::Punct(b'{') && self.here.expects;
        let after_brace = std::mem::replace(&mut self.after_brace, opens_brace);
        match token.kind {
            TokenKind::Word if after_brace => {}
            TokenKind::Punct(b'{') if opens_brace => {}
            TokenKind::Word => self.word(word),
            TokenKind::Punct(b'(') => {
                self.outer.push(self.here);
                // `REPLACE(a, ...)` is a function.
                let expects = self.here.expects && !is_one_of(self.last, VERBS);
                self.here = Place { expects, lists: expects, is_call: is_one_of(self.last, WITH_FROM) };
            }
            TokenKind::Punct(b')') => self.here = Place { expects: false, ..self.outer.pop().unwrap_or_default() },
            TokenKind::Punct(b',') => self.here.expects = self.here.lists,
            TokenKind::Punct(b';') => *self = Self::default(),
            _ => self.here.expects = false,
        }
        self.last = word;
    }

    fn word(&mut self, word: &'a [u8]) {
        let verb_is = |words| is_one_of(self.verb, words);
        // ON UPDATE, FOR UPDATE, ON DUPLICATE KEY UPDATE, IS DISTINCT FROM.
        let is_other = is_one_of(word, &[b"UPDATE"]) && is_one_of(self.last, &[b"KEY", b"FOR", b"ON"])
            || is_one_of(word, &[b"FROM"]) && (self.here.is_call || is_one_of(self.last, &[b"DISTINCT"]));
        let follows = is_one_of(word, ONE)
            || self.is_verb(word)
            || is_one_of(word, &[b"LIKE"]) && verb_is(&[b"CREATE"])
            || is_one_of(word, &[b"ON"]) && verb_is(&[b"CREATE", b"DROP"])
            || is_one_of(word, &[b"IN"]) && verb_is(&[b"SHOW"])
            || is_one_of(word, &[b"USING"]) && verb_is(&[b"DELETE"]);
        // Not those of `USE KEY FOR ORDER BY (...)`.
        let ends = is_one_of(word, ENDS) && !is_one_of(self.last, &[b"FOR"])
            || is_one_of(word, &[b"KEY"]) && is_one_of(self.last, &[b"DUPLICATE"]);
        if !is_other && (is_one_of(word, LISTS) || follows) {
            self.makes = verb_is(&[b"CREATE"]) && is_one_of(word, &[b"TABLE", b"SEQUENCE"]);
            self.here.expects = true;
            self.here.lists |= is_one_of(word, LISTS) || is_one_of(word, &[b"DELETE", b"USING"]);
        } else if ends {
            (self.here.expects, self.here.lists) = (false, false);
        } else if !is_one_of(word, BETWEEN) {
            self.here.expects = false;
        }
        if self.verb.is_empty() {
            self.verb = word;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(sql: &str) -> bool {
        names_table(sql.as_bytes(), LexMode::default(), |schema, table| {
            schema.is_none_or(|schema| schema == b"db") && table.eq_ignore_ascii_case(b"v")
        })
    }

    #[test]
    fn tables_are_named_where_tables_stand() {
        for sql in [
            "SELECT * FROM v",
            "select a from t1, `v` where 1",
            "SELECT * FROM t1 JOIN t2 ON t1.a = t2.a, V x",
            "SELECT * FROM (t1 LEFT JOIN v USING (a))",
            "SELECT * FROM (v)",
            "SELECT (SELECT MAX(a) FROM db.v) FROM t1",
            "SELECT a FROM t1 WHERE a IN (SELECT a FROM v)",
            "WITH c AS (SELECT * FROM v) SELECT * FROM c",
            "INSERT INTO v VALUES (1)",
            "INSERT v VALUES (1)",
            "INSERT IGNORE v(a) SELECT 1",
            "REPLACE LOW_PRIORITY INTO `v` SET a = 1",
            "INSERT INTO t1 SELECT a FROM v ON DUPLICATE KEY UPDATE a = 1",
            "UPDATE t1, v SET t1.a = v.a",
            "UPDATE v SET a = 1",
            "DELETE FROM v",
            "DELETE t1, v FROM t1 JOIN v",
            "DELETE FROM t1 USING t1 JOIN v",
            "TRUNCATE v",
            "TRUNCATE TABLE v",
            "DROP TEMPORARY TABLE IF EXISTS t1, v",
            "ALTER TABLE v ADD b INT",
            "CREATE INDEX i ON v(a)",
            "CREATE TABLE t1 LIKE v",
            "CREATE TABLE t1 SELECT * FROM v",
            "DESCRIBE v",
            "SHOW COLUMNS IN v",
            "SHOW CREATE TABLE v",
            "LOCK TABLES t1 READ, v WRITE",
            "LOAD DATA INFILE 'x' INTO TABLE v",
            "EXPLAIN INSERT v VALUES (1)",
            "TABLE v",
            "HANDLER v OPEN",
            "SELECT 1; SELECT * FROM v",
            "SELECT * FROM t1 USE KEY (i), v",
            "SELECT * FROM t1 USE INDEX FOR ORDER BY (i), v",
            "SELECT * FROM t1 JOIN t2 ON t1.value = t2.where, v",
            "INSERT INTO t1 SELECT 1 FROM t2 IGNORE KEY FOR JOIN (i), v ON DUPLICATE KEY UPDATE a = 1",
            "SELECT * FROM value, v",
            "SELECT * FROM window JOIN v",
            "SELECT * FROM {OJ v LEFT JOIN w ON 1}",
            "SELECT * FROM t1, { oj (v) LEFT JOIN w ON 1 }",
        ] {
            assert!(names(sql), "{sql}");
        }
    }

    #[test]
    fn columns_and_others_are_none() {
        for sql in [
            "INSERT INTO t1(v) VALUES (777)",
            "INSERT INTO t1 SET v = 1",
            "INSERT INTO t1(a, v) VALUES (1, 2) ON DUPLICATE KEY UPDATE a = 1, v = 2",
            "INSERT INTO t1 SELECT a FROM t2 ON DUPLICATE KEY UPDATE a = 1, v = 2",
            "SELECT a, v FROM t1",
            "SELECT a AS v FROM t1",
            "SELECT t1.v FROM t1 WHERE v = 1 ORDER BY a, v",
            "SELECT * FROM t1 v, t2",
            "SELECT * FROM other.v",
            "SELECT * FROM v.t1",
            "SELECT * FROM t1 GROUP BY a, v",
            "SELECT REPLACE(v, 'a', 'b'), TRUNCATE(v, 2), INSERT(v, 1, 2, 'x')",
            "SELECT EXTRACT(YEAR FROM v), TRIM('x' FROM v) FROM t1",
            "SELECT a IS DISTINCT FROM v FROM t1",
            "UPDATE t1 SET a = 1, v = 2",
            "SELECT * FROM t1 FOR UPDATE",
            "SELECT 'v', @v, \"v\"",
            "CREATE TEMPORARY TABLE v (a INT)",
            "CREATE TEMPORARY TABLE IF NOT EXISTS v (a INT)",
            "CREATE TABLE t1 (v INT, KEY (v))",
            "INSERT INTO value VALUE (1, v)",
            "INSERT t1 (a) VALUE (v)",
            "SELECT a FROM t1 EXCEPT SELECT v FROM t2",
            "SELECT a FROM t1 USE INDEX FOR GROUP BY (i), t2",
            "SELECT COUNT(*) INTO @v FROM t1",
            "SELECT {d '2024-01-01'}, {v '1'} FROM {OJ t1 LEFT JOIN w ON t1.v}",
            "SET v = 1",
            "CALL v()",
            "DESC",
            "(((",
            ")))v",
        ] {
            assert!(!names(sql), "{sql}");
        }
    }
}
