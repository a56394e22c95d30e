//! Statements that carry passwords, for logs and other records of statements.
//!
//! Known statements are read by position. In others, names decide, on the safe side. A column, option or variable counts if it is named
//! like a password and is compared, assigned or inserted.

use crate::analyze::analyze;
use crate::cursor::unquote_name;
use crate::digest::{DigestOptions, digest_text};
use crate::kind::Kind;
use crate::tables::{LISTS, ONE};
use crate::token::{LexMode, Lexer, Token, TokenKind};
use std::borrow::Cow;

/// The meaning of a token for the next one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    Nothing,
    /// `IDENTIFIED`: BY, WITH or VIA.
    Way,
    /// `PASSWORD`, `MASTER_PASSWORD`, ...: a value, or whose it is.
    Value,
    /// `UPPER(password)`, `password NOT`: a value if it is compared.
    Comparison,
    /// `password COLLATE`: the name of a collation.
    Collation,
    /// `CONNECTION`, or `OPTION_LIST`, of a table that is elsewhere: a string, which may be `mysql://user:password@host`.
    Place,
    /// `COMMENT`: a string, which may tell Spider a password.
    Comment,
    /// `INSERT` or `REPLACE`: anything but the parenthesis of the function.
    Target,
}

/// What was read before a name that a literal may be compared with or given to. Numbers count: texts of one digest are judged alike.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    /// A literal, perhaps in parentheses.
    Literal,
    /// A comparison behind it, or INTO behind any literal: `'x' =`, `SELECT 'x' INTO`.
    Compared,
    /// And then a name: `'x' = users`, `'x' = UPPER`.
    Name,
}

impl Before {
    /// Behind another token, which is no literal. `passes` tells the words that may stand before or behind a comparison.
    fn then(self, kind: TokenKind, compares: bool, passes: bool) -> Self {
        match (self, kind) {
            (Before::Literal | Before::Compared, _) if compares => Before::Compared,
            (Before::Literal | Before::Compared, TokenKind::Word) if passes => self,
            (Before::Literal, TokenKind::Punct(b')')) | (Before::Compared, TokenKind::Punct(b'(')) => self,
            (Before::Compared, TokenKind::Word | TokenKind::QuotedName | TokenKind::UserVariable) => Before::Name,
            (Before::Name, TokenKind::Punct(b'.' | b'(' | b',')) => Before::Compared,
            _ => Before::Nothing,
        }
    }
}

/// Words that compare what stands before them. `CASE password WHEN 'x'` does, too.
const COMPARISONS: &[&[u8]] = &[b"IN", b"LIKE", b"REGEXP", b"RLIKE", b"BETWEEN", b"WHEN"];

/// Strings of strings are looked into so deep: `PREPARE s FROM "SET PASSWORD = '...'"`.
const DEPTH: u8 = 2;

/// Does a text say `IDENTIFIED BY`, `SET PASSWORD`, `PASSWORD(...)`, `MASTER_PASSWORD = ...`, `CONNECTION='...'` or the like?
pub fn carries_password(sql: &[u8], mode: LexMode) -> bool {
    carries(sql, mode, DEPTH)
}

fn carries(sql: &[u8], mode: LexMode, depth: u8) -> bool {
    let mut lexer = Lexer::new(sql, mode);
    let (mut asks, mut inserts, mut has_statements) = (Asks::Nothing, false, false);
    // Of the statement: whether it has a literal, how many parentheses are open, and the innermost of them that holds a password's name.
    let (mut before, mut has_literal, mut open, mut holds_name) = (Before::Nothing, false, 0_usize, 0_usize);
    loop {
        let token = lexer.token();
        let text = sql.get(token.start..token.end).unwrap_or_default();
        let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word.as_bytes()));
        let is_text = is_text(&token, sql);
        let is_literal = is_text || matches!(token.kind, TokenKind::Number | TokenKind::Placeholder);
        let compares = match token.kind {
            TokenKind::Assign | TokenKind::Punct(b'=' | b'<' | b'>' | b'!') => true,
            TokenKind::Word => is_one_of(COMPARISONS, text),
            _ => false,
        };
        match (asks, token.kind) {
            (_, TokenKind::End) => return false,
            (Asks::Way, TokenKind::Word) if is(&["BY", "WITH", "VIA"]) => return true,
            (Asks::Value, TokenKind::Word) if is(&["FOR"]) => return true,
            // In the list of columns.
            (Asks::Value, TokenKind::Punct(b',' | b')')) if inserts => return true,
            (Asks::Place, _) if is_text => return true,
            (Asks::Comment, _) if is_text && text.to_ascii_lowercase().windows(8).any(|w| w == b"password") => return true,
            (Asks::Target, kind) => inserts = kind != TokenKind::Punct(b'('),
            (_, TokenKind::Punct(b';')) => (inserts, has_literal, open, holds_name) = (false, false, 0, 0),
            (Asks::Value | Asks::Comparison, _) if compares => return true,
            (Asks::Value, TokenKind::Punct(b'(')) => return true,
            (Asks::Value, _) if is_text => return true,
            _ if is_text && has_statements && depth > 0 && carries(inner(text), mode, depth - 1) => return true,
            _ => {}
        }
        let names_password = match token.kind {
            TokenKind::Word | TokenKind::QuotedName | TokenKind::SystemVariable | TokenKind::UserVariable => names_password(text),
            _ => false,
        };
        if names_password && before == Before::Compared {
            return true;
        }
        // `(name, password) = ('a', 'x')`, `STRCMP(password, 'x') = 0`
        let ends_with_name = token.is(b')') && open > 0 && open == holds_name;
        match token.kind {
            TokenKind::Punct(b'(') => open += 1,
            TokenKind::Punct(b')') => open = open.saturating_sub(1),
            _ => {}
        }
        if names_password || ends_with_name {
            holds_name = open;
        }
        before = match token.kind {
            _ if is_literal => Before::Literal,
            TokenKind::Word if has_literal && is(&["INTO"]) => Before::Compared,
            kind => before.then(kind, compares, is(&["NOT", "BINARY"])),
        };
        has_literal |= is_literal;
        asks = match token.kind {
            _ if asks == Asks::Collation => Asks::Comparison,
            _ if ends_with_name => Asks::Comparison,
            TokenKind::Word if matches!(asks, Asks::Value | Asks::Comparison) && is(&["NOT", "SOUNDS"]) => Asks::Comparison,
            TokenKind::Word if matches!(asks, Asks::Value | Asks::Comparison) && is(&["COLLATE"]) => Asks::Collation,
            TokenKind::Word if is(&["IDENTIFIED"]) => Asks::Way,
            TokenKind::Word if is(&["INSERT", "REPLACE"]) => Asks::Target,
            TokenKind::Word if is(&["CONNECTION", "OPTION_LIST"]) => Asks::Place,
            TokenKind::QuotedName if unquote_name(text).eq_ignore_ascii_case(b"CONNECTION") => Asks::Place,
            TokenKind::Word if is(&["COMMENT"]) => Asks::Comment,
            TokenKind::Punct(b'=') if asks == Asks::Comment => Asks::Comment,
            // Within a string, quotes have a backslash.
            TokenKind::Punct(b'=' | b'\\') if asks == Asks::Place => Asks::Place,
            _ if names_password => Asks::Value,
            _ => Asks::Nothing,
        };
        has_statements |= token.kind == TokenKind::Word && is(&["PREPARE", "EXECUTE", "SET"]);
    }
}

/// A string, or a name in double quotes: who wrote it may not know that `ANSI_QUOTES` is set.
fn is_text(token: &Token, sql: &[u8]) -> bool {
    matches!(token.kind, TokenKind::String | TokenKind::PrefixedString) || is_double_quoted(token, sql)
}

fn is_double_quoted(token: &Token, sql: &[u8]) -> bool {
    token.kind == TokenKind::QuotedName && token.text(sql).starts_with(b"\"")
}

/// A string without its quotes, as it is written.
fn inner(quoted: &[u8]) -> &[u8] {
    quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default()
}

/// Names of columns, options and variables with these ends are a password's, or as good as one.
const SECRET_NAMES: &[&[u8]] = &[
    b"password",
    b"passwd",
    b"pwd",
    b"pass",
    b"passphrase",
    b"secret",
    b"authentication_string",
    b"wsrep_sst_auth",
    b"api_key",
    b"apikey",
];
/// Functions one of whose arguments is a key.
const KEYED_FUNCTIONS: &[&[u8]] = &[b"aes_encrypt", b"aes_decrypt", b"des_encrypt", b"des_decrypt", b"encode", b"decode", b"kdf"];
/// User variables that are named so hold one as often as not.
const SECRET_VARIABLES: &[&[u8]] = &[b"@p", b"@pw"];

fn names_password(name: &[u8]) -> bool {
    let name = name.strip_suffix(b"`").or_else(|| name.strip_suffix(b"\"")).or_else(|| name.strip_suffix(b"]")).unwrap_or(name);
    let ends_so =
        |word: &[u8]| name.len().checked_sub(word.len()).and_then(|at| name.get(at..)).is_some_and(|end| end.eq_ignore_ascii_case(word));
    SECRET_NAMES.iter().any(|word| ends_so(word)) || is_one_of(KEYED_FUNCTIONS, name) || is_one_of(SECRET_VARIABLES, name)
}

fn is_one_of(words: &[&[u8]], name: &[u8]) -> bool {
    words.iter().any(|word| name.eq_ignore_ascii_case(word))
}

/// A statement as it may be written down: by its digest text if it carries a password.
pub fn shown(sql: &[u8], mode: LexMode) -> Cow<'_, [u8]> {
    if carries_password(sql, mode) { Cow::Owned(without_literals(sql, mode)) } else { Cow::Borrowed(sql) }
}

/// As [`shown`], for a session whose reading of quotes and backslashes is unknown. If the text carries a password in any of these modes, it
/// is shown up to its first quote.
pub fn shown_in_any_mode(sql: &[u8]) -> Cow<'_, [u8]> {
    let modes = [(false, false), (true, false), (false, true), (true, true)];
    let mut texts = modes.into_iter().map(|(ansi_quotes, no_backslash_escapes)| {
        let mode = LexMode { ansi_quotes, no_backslash_escapes, ..LexMode::default() };
        carries_password(sql, mode).then(|| without_literals(sql, mode))
    });
    let first = texts.next().flatten();
    match (first, texts.collect::<Vec<_>>()) {
        (None, others) if others.iter().all(Option::is_none) => Cow::Borrowed(sql),
        // It means the same in all of them.
        (Some(text), others) if others.iter().all(|other| other.as_ref() == Some(&text)) => Cow::Owned(text),
        _ => Cow::Owned(without_quoted(&without_names(sql, LexMode::default()))),
    }
}

/// Its digest text, without passwords that stand as names.
pub fn without_literals(sql: &[u8], mode: LexMode) -> Vec<u8> {
    let options = DigestOptions { max_query_length: 1 << 20, lex: mode, ..DigestOptions::default() };
    let mut text = Vec::new();
    digest_text(&without_named_passwords(sql, mode), &options, &mut text);
    text
}

/// Whether a server's error may quote a password, from the text or from the statement that it prepares or executes.
pub fn error_may_carry_password(sql: &[u8], mode: LexMode) -> bool {
    matches!(analyze(sql, mode).kind, Kind::Prepare | Kind::Execute) || carries_password(sql, mode)
}

/// The text with a placeholder for each password that stands as a name, which a digest would keep.
pub fn without_named_passwords(sql: &[u8], mode: LexMode) -> Cow<'_, [u8]> {
    if carries_password(sql, mode) { Cow::Owned(without_names(sql, mode)) } else { Cow::Borrowed(sql) }
}

/// The text with a placeholder for a password that is no string: IDENTIFIED BY `x`. Of names in double quotes, those stay that stand where
/// tables do: any other may be a password that was meant as a string.
fn without_names(sql: &[u8], mode: LexMode) -> Vec<u8> {
    let (mut out, mut copied) = (Vec::with_capacity(sql.len()), 0);
    let mut lexer = Lexer::new(sql, mode);
    let (mut is_way, mut is_password, mut is_table) = (false, false, false);
    loop {
        let token = lexer.token();
        let text = token.text(sql);
        let is = |word: &str| text.eq_ignore_ascii_case(word.as_bytes());
        let is_named = match token.kind {
            TokenKind::End => break,
            TokenKind::QuotedName if is_double_quoted(&token, sql) => is_password || !is_table || carries(inner(text), mode, 1),
            TokenKind::QuotedName => is_password,
            TokenKind::Word => is_password && !is("PASSWORD") && !is("RANDOM"),
            _ => false,
        };
        if is_named {
            out.extend_from_slice(sql.get(copied..token.start).unwrap_or_default());
            out.push(b'?');
            copied = token.end;
        }
        is_password = is_way && is("BY") || is_password && is("PASSWORD");
        is_way = is("IDENTIFIED");
        is_table = token.is(b'.') || token.kind == TokenKind::Word && (is_one_of(LISTS, text) || is_one_of(ONE, text));
    }
    out.extend_from_slice(sql.get(copied..).unwrap_or_default());
    out
}

/// A server's error text up to its first quotation. The place in the statement is kept.
pub fn without_quoted(text: &[u8]) -> Vec<u8> {
    const PLACE: &[u8] = b" at line ";
    let Some(from) = text.iter().position(|byte| matches!(byte, b'\'' | b'"' | b'`')) else { return text.to_vec() };
    let digits = text.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let place = text.len().saturating_sub(digits + PLACE.len()).max(from);
    let place = text.get(place..).filter(|place| digits > 0 && place.starts_with(PLACE)).unwrap_or_default();
    [text.get(..from).unwrap_or_default(), b"'...'", place].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_that_stands_as_a_name_is_in_no_digest() {
        let text = |sql: &'static [u8]| String::from_utf8(without_named_passwords(sql, LexMode::default()).into_owned()).unwrap();
        assert_eq!(text(b"ALTER USER a IDENTIFIED BY secret"), "ALTER USER a IDENTIFIED BY ?");
        assert_eq!(text(b"SELECT a FROM b"), "SELECT a FROM b");
    }

    #[test]
    fn a_password_in_double_quotes_is_in_no_digest_of_ansi_quotes() {
        let ansi = LexMode { ansi_quotes: true, ..LexMode::default() };
        for sql in [
            "CREATE USER u IDENTIFIED BY \"S3cret\"",
            "UPDATE \"users\" SET \"password\" = \"S3cret\"",
            "INSERT INTO \"users\" (name, password) VALUES (\"a\", \"S3cret\")",
            "CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (PASSWORD \"S3cret\")",
            "CREATE TABLE f (id INT) ENGINE=FEDERATED CONNECTION=\"mysql://u:S3cret@h/d/t\"",
            "PREPARE s FROM \"SET PASSWORD = 'S3cret'\"",
            "SET @s = \"ALTER USER u IDENTIFIED BY 'S3cret'\"",
        ] {
            let text = String::from_utf8(without_literals(sql.as_bytes(), ansi)).unwrap();
            assert!(text.contains('?') && !text.contains("S3cret"), "{sql}: {text}");
        }
        let text = without_literals(b"SELECT a FROM \"d\".\"t\" WHERE password = 'S3cret'", ansi);
        assert_eq!(String::from_utf8(text).unwrap(), "SELECT a FROM \"d\".\"t\" WHERE password = ?");
    }

    #[test]
    fn errors_of_what_is_prepared_or_executed_may_tell_anything() {
        let may = |sql: &[u8]| error_may_carry_password(sql, LexMode::default());
        assert!(may(b"PREPARE s FROM @q") && may(b"EXECUTE s") && may(b"SET PASSWORD='x'"));
        assert!(!may(b"SELECT 1"));
    }

    #[test]
    fn passwords_are_not_shown() {
        for sql in [
            "CREATE USER u1 IDENTIFIED BY 'S3cret'",
            "create user if not exists u2 identified via mysql_native_password using password('S3cret')",
            "ALTER USER u IDENTIFIED WITH caching_sha2_password AS '$A$005$S3cret'",
            "SET PASSWORD FOR u1 = PASSWORD('S3cret')",
            "set password='S3cret",
            "CHANGE MASTER TO master_host='x', MASTER_PASSWORD='S3cret'",
            "CHANGE REPLICATION SOURCE TO SOURCE_PASSWORD = 'S3cret'",
            "GRANT USAGE ON *.* TO u1 IDENTIFIED BY 'S3cret'",
            "CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (USER 'x', PASSWORD 'S3cret', HOST 'h')",
            "/* c S3cret */ create user /*!50000 u4 */ identified by 'S3cret'",
            "PREPARE s FROM \"CREATE USER u9 IDENTIFIED BY 'S3cret'\"",
            "EXECUTE IMMEDIATE 'CREATE USER u10 IDENTIFIED BY \\'S3cret\\''",
            "SET @s = 'PREPARE s FROM \"SET PASSWORD = ''S3cret''\"'",
            "start slave user='x' password='S3cret'",
            "START GROUP_REPLICATION USER='x', PASSWORD='S3cret'",
            "select 1; create user u11 identified by 'S3cret'",
            "UPDATE users SET `password` = 'S3cret' WHERE id = 3",
            "INSERT INTO u1 (name,password) VALUES ('a','S3cret')",
            "insert ignore u1 (`Password`, name) values ('S3cret', 'a')",
            "REPLACE INTO u1 (password) SELECT 'S3cret'",
            "SELECT 1; INSERT INTO u1 (u_password) VALUES ('S3cret')",
            "DO SLEEP(1); PREPARE s FROM \"ALTER USER u IDENTIFIED BY 'S3cret'\"",
            "SELECT 1; SET @x=\"ALTER USER u IDENTIFIED BY 'S3cret'\"",
            "BEGIN NOT ATOMIC EXECUTE IMMEDIATE \"ALTER USER u IDENTIFIED BY 'S3cret'\"; END",
            "CREATE TABLE f (id INT) ENGINE=FEDERATED CONNECTION='mysql://u:S3cret@h:3306/d/t'",
            "create table f engine=federated connection 'mysql://u:S3cret@h/d/t'",
            "ALTER TABLE f CONNECTION = \"mysql://u:S3cret@h/d/t\"",
            "CREATE TABLE c ENGINE=CONNECT table_type=MYSQL `connection`='mysql://u:S3cret@h/d/t'",
            "CREATE TABLE j ENGINE=CONNECT table_type=JDBC option_list='User=u,Password=S3cret'",
            "CREATE TABLE p (id INT) ENGINE=SPIDER PARTITION BY HASH (id) (PARTITION a CONNECTION='host \"h\", password \"S3cret\"')",
            "EXECUTE IMMEDIATE 'CREATE TABLE f (id INT) ENGINE=FEDERATED CONNECTION=\\'mysql://u:S3cret@h/d/t\\''",
            "CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (PASSWORD'S3cret')",
            "ALTER SERVER s OPTIONS (USER 'x', PASSWORD \"S3cret\")",
            "SET GLOBAL wsrep_sst_auth = 'user:S3cret'",
            "UPDATE mysql.user SET authentication_string = 'S3cret' WHERE user = 'a'",
            "SELECT * FROM users WHERE passwd='S3cret' AND name = 'a'",
            "UPDATE accounts SET pwd = 'S3cret'",
            "SELECT 1 FROM a WHERE pass='S3cret'",
            "SELECT AES_DECRYPT(card, 'S3cret') FROM cards",
            "INSERT INTO cards VALUES (AES_ENCRYPT('4111', 'S3cret'))",
            "SET @p='S3cret', @other = 5",
            "SET @api_key := 'S3cret'",
            "CREATE TABLE s (id INT) ENGINE=SPIDER COMMENT='host \"h\", password \"S3cret\"'",
            "CREATE USER u1 IDENTIFIED BY `S3cret`",
            "CREATE USER u1 IDENTIFIED BY PASSWORD S3cret, u2 IDENTIFIED BY S3cret",
            "SELECT 1 FROM u WHERE password IN ('S3cret')",
            "SELECT 1 FROM u WHERE password NOT IN ('a', 'S3cret')",
            "SELECT 1 FROM u WHERE password LIKE 'S3cret'",
            "SELECT 1 FROM u WHERE `password` NOT LIKE _utf8mb4'S3cret'",
            "SELECT 1 FROM u WHERE password REGEXP 'S3cret' OR password RLIKE 'S3cret'",
            "SELECT 1 FROM u WHERE password BETWEEN 'S3cret' AND 'S3creu'",
            "SELECT 1 FROM u WHERE password <> 'S3cret'",
            "SELECT 1 FROM u WHERE password != 'S3cret'",
            "SELECT 1 FROM u WHERE password <=> 'S3cret'",
            "SELECT 1 FROM u WHERE password >= 'S3cret'",
            "SELECT 1 FROM u WHERE password SOUNDS LIKE 'S3cret'",
            "SELECT 1 FROM u WHERE password COLLATE utf8mb4_bin = 'S3cret'",
            "SELECT 1 FROM u WHERE UPPER(password)='S3cret'",
            "SELECT 1 FROM u WHERE UPPER(TRIM(u.password)) COLLATE utf8mb4_bin LIKE 'S3cret'",
            "SELECT 1 FROM u WHERE (name, password) = ('a', 'S3cret')",
            "SELECT 1 FROM u WHERE (password, name) IN (('S3cret', 'a'))",
            "SELECT 1 FROM u WHERE STRCMP(password, 'S3cret') = 0",
            "SELECT 1 FROM u WHERE STRCMP('S3cret', password) = 0",
            "SELECT CASE password WHEN 'S3cret' THEN 1 END FROM u",
            "SELECT 1 FROM u WHERE 'S3cret' = password",
            "SELECT 1 FROM u WHERE 5 = password",
            "SELECT 1 FROM u WHERE 'S3cret' <=> u.`password`",
            "SELECT 1 FROM u WHERE 'S3cret' LIKE BINARY UPPER(password)",
            "SELECT 1 FROM u WHERE MD5('S3cret') = password",
            "SELECT 'S3cret' INTO @password",
            "SELECT 'S3cret', 5 INTO @my_password, @n",
            "SELECT 1, 'S3cret' INTO @n, @password",
        ] {
            let text = String::from_utf8(shown(sql.as_bytes(), LexMode::default()).into_owned()).unwrap();
            assert!(text.contains('?') && !text.contains("S3cret"), "{sql}: {text}");
        }
        for sql in [
            "SELECT password FROM users WHERE id = 3",
            "SELECT identified, 'by' FROM t",
            "SELECT 'IDENTIFIED BY \"x\"'",
            "ALTER USER u PASSWORD EXPIRE",
            "INSERT INTO t (a, b) VALUES ('IDENTIFIED BY', 'x')",
            "SELECT REPLACE(password, 'a', 'b'), INSERT(password, 1, 1, 'x') FROM users",
            "INSERT INTO t (a) VALUES (1); SELECT name, password, 'x' FROM users",
            "GRANT INSERT (password) ON t TO u",
            "KILL CONNECTION 3",
            "SELECT connection, 'x' FROM t",
            "SELECT UPPER(password), 'x' FROM users WHERE name = 'a'",
            "SELECT COUNT(password) FROM users WHERE name = 'a' AND password IS NOT NULL",
            "SELECT * FROM a WHERE id IN (SELECT id FROM users WHERE password IS NULL) AND name = 'a'",
            "SELECT * FROM users WHERE 'a' = name AND password IS NULL",
            "CREATE TABLE t (id INT, password VARCHAR(9) NOT NULL, KEY (password)) COMMENT='x'",
            "SELECT password FROM users; SELECT 'x' = 'y'",
            "",
        ] {
            assert_eq!(shown(sql.as_bytes(), LexMode::default()), sql.as_bytes());
        }
    }

    #[test]
    fn a_text_whose_mode_is_not_known_shows_no_password() {
        let text = |sql: &str| String::from_utf8(shown_in_any_mode(sql.as_bytes()).into_owned()).unwrap();
        assert_eq!(text("UPDATE users SET comment='c:\\', password='S3cret'"), "UPDATE users SET comment='...'");
        assert_eq!(text("UPDATE users SET comment='c:\\\\', password='S3cret'"), "UPDATE users SET comment=?,password=?");
        assert_eq!(text("SELECT 'c:\\', 'x'"), "SELECT 'c:\\', 'x'");
        assert_eq!(text("CREATE USER u IDENTIFIED BY 'S3cret'"), "CREATE USER u IDENTIFIED BY ?");
        let quoted = text("SET PASSWORD FOR \"a\\\" = 'S3cret'");
        assert!(!quoted.contains("S3cret"), "{quoted}");
        for before in ["'\\'", "\"\\\"", "\"'\"", "'\"'", "/* ' */", "`'`"] {
            let sql = format!("UPDATE u SET a = {before}, password = 'S3cret'");
            assert!(!text(&sql).contains("S3cret"), "{sql}: {}", text(&sql));
        }
    }

    #[test]
    fn a_servers_words_without_what_they_quote() {
        for (said, shown) in [
            ("syntax error near 'user='x' password='S3cret'' at line 1", "syntax error near '...' at line 1"),
            ("near '''S3cret' x' at line 12", "near '...' at line 12"),
            ("failed for 'u'@'%', near 'S3cret", "failed for '...'"),
            ("near 'S3cret", "near '...'"),
            ("no quotes", "no quotes"),
        ] {
            assert_eq!(String::from_utf8(without_quoted(said.as_bytes())).unwrap(), shown);
        }
    }
}
