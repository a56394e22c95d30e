//! Does a statement read a table? MariaDB forgets older warnings only when one does.
//!
//! Pure: what is asked of a statement's text. The forms were measured on MariaDB 10.11.

use sql::{Kind, LexMode, Lexer, TokenKind};

/// What SHOW shows without reading a table.
const SHOWN: &[&[&str]] = &[
    &["CREATE", "DATABASE"],
    &["CREATE", "FUNCTION"],
    &["CREATE", "PROCEDURE"],
    &["CREATE", "SCHEMA"],
    &["FULL", "PROCESSLIST"],
    &["GRANTS"],
    &["PRIVILEGES"],
    &["PROCESSLIST"],
];

/// Statements of these kinds read a table when they have a FROM.
const PLAIN: &[Kind] = &[
    Kind::Begin,
    Kind::Commit,
    Kind::Rollback,
    Kind::Savepoint,
    Kind::RollbackTo,
    Kind::ReleaseSavepoint,
    Kind::Xa,
    Kind::Set,
    Kind::SetTransaction,
    Kind::SetRole,
    Kind::Use,
    Kind::UnlockTables,
    Kind::Kill,
    Kind::Do,
    Kind::Select,
    Kind::Prepare,
    Kind::Deallocate,
    Kind::Empty,
];

/// Most words that tell.
const WORDS: usize = 10;

/// Does MariaDB keep older warnings over a statement of this kind and with this text?
pub fn leaves_warnings(kind: Kind, sql: &[u8]) -> bool {
    if PLAIN.contains(&kind) {
        return !reads_table(sql);
    }
    let words = words(sql);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["SHOW", what @ ..] => SHOWN.iter().any(|shown| what.starts_with(shown)),
        ["EXPLAIN" | "DESCRIBE" | "DESC", "SELECT", ..] => !reads_table(sql),
        ["HELP", ..] => true,
        _ => false,
    }
}

/// Has the statement a FROM, but for FROM DUAL? That of a string or comment counts too.
pub fn reads_table(sql: &[u8]) -> bool {
    let from = |word: &[u8]| word.get(..4).is_some_and(|from| from.eq_ignore_ascii_case(b"from")) && word.ends_with(b" ");
    sql.windows(5).enumerate().any(|(at, word)| from(word) && !names_dual(sql.get(at + 5..).unwrap_or_default()))
}

/// Does the text begin with DUAL, and nothing beside it?
fn names_dual(text: &[u8]) -> bool {
    let (name, rest) = text.trim_ascii_start().split_at_checked(4).unwrap_or_default();
    let ends = rest.trim_ascii_start().first().is_none_or(|next| !matches!(next, b',' | b'.'));
    let goes_on = |next: &u8| next.is_ascii_alphanumeric() || matches!(next, b'_' | b'$' | 0x80..);
    name.eq_ignore_ascii_case(b"dual") && ends && !rest.first().is_some_and(goes_on)
}

/// The first words of a statement in upper case, without comments.
pub fn words(sql: &[u8]) -> Vec<String> {
    let mut lexer = Lexer::new(sql, LexMode::default());
    let mut words = Vec::new();
    while words.len() < WORDS {
        let token = lexer.token();
        if token.kind == TokenKind::End || token.is(b';') {
            break;
        }
        words.push(String::from_utf8_lossy(token.text(sql)).to_ascii_uppercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_stay_where_no_table_is_read() {
        let stay = [
            "SELECT 1",
            "select 1 from dual",
            "SELECT 1 FROM  DUAL WHERE 1=1;",
            "SET time_zone='UTC'",
            "SHOW GRANTS",
            "show create procedure p",
            "/* c */ SHOW CREATE FUNCTION f",
            "SHOW FULL PROCESSLIST",
            "EXPLAIN SELECT 1",
            "HELP 'contents'",
            "BEGIN",
        ];
        let go = [
            "SELECT 1 FROM t",
            "SELECT 1 FROM dual, t",
            "SELECT 1 FROM dual_t",
            "SELECT 1 FROM dual.t",
            "SHOW TABLES",
            "SHOW CREATE TABLE t",
            "SHOW VARIABLES",
            "EXPLAIN SELECT * FROM t",
            "DESCRIBE t",
            "CHECK TABLE t",
            "INSERT INTO t VALUES(1)",
        ];
        let answer = |sql: &str| leaves_warnings(sql::analyze(sql.as_bytes(), LexMode::default()).kind, sql.as_bytes());
        for sql in stay {
            assert!(answer(sql), "{sql}");
        }
        for sql in go {
            assert!(!answer(sql), "{sql}");
        }
    }
}
