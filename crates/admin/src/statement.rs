//! A statement as commands see it: comments gone, blanks and trailing semicolons trimmed, the first words apart.

/// One piece of a statement's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    /// The word, or what stood in quotes.
    pub text: String,
    /// Whether it stood in quotes: then it is no keyword.
    pub is_quoted: bool,
    /// Its first byte in the statement.
    pub start: usize,
    /// The byte after it.
    pub end: usize,
}

/// A statement cut into tokens.
#[derive(Debug, Clone, Default)]
pub(crate) struct Statement {
    /// The statement without comments and trailing semicolons.
    pub text: String,
    /// Its first tokens, enough for every command's words.
    pub head: Vec<Token>,
    /// Whether it held nothing but comments, of which one was.
    pub was_comment: bool,
}

/// How many tokens a command may look at.
const HEAD: usize = 24;

impl Statement {
    /// Reads a statement. Quotes are SQLite's: doubled inside, no backslashes.
    pub(crate) fn parse(sql: &str) -> Self {
        let text = without_comments(sql);
        let text = text.trim_matches(|letter: char| letter.is_whitespace() || letter == ';' || letter == '\0').to_owned();
        let head = tokens(&text).take(HEAD).collect();
        Self { was_comment: text.is_empty() && sql.contains("/*"), head, text }
    }

    /// The token at `index`; empty when there is none.
    pub(crate) fn word(&self, index: usize) -> &str {
        self.head.get(index).map_or("", |token| &token.text)
    }

    /// Whether the token at `index` is this keyword. `*` stands for any token, `|` parts alternatives.
    pub(crate) fn is(&self, index: usize, pattern: &str) -> bool {
        match self.head.get(index) {
            None => false,
            Some(_) if pattern == "*" => true,
            Some(token) => !token.is_quoted && pattern.split('|').any(|word| word.eq_ignore_ascii_case(&token.text)),
        }
    }

    /// Whether the tokens from `index` on are these words.
    pub(crate) fn has(&self, index: usize, pattern: &str) -> bool {
        pattern.split(' ').enumerate().all(|(at, word)| self.is(index + at, word))
    }

    /// The name that `USE name` asks for.
    pub(crate) fn used_schema(&self) -> Option<&str> {
        self.is(0, "USE").then(|| self.word(1))
    }

    /// The text behind the first `count` tokens, as written.
    pub(crate) fn rest(&self, count: usize) -> &str {
        let from = match count.checked_sub(1) {
            None => 0,
            Some(last) => self.head.get(last).map_or(self.text.len(), |token| token.end),
        };
        self.text.get(from..).unwrap_or_default().trim()
    }
}

/// The tokens of `text`. A word is a run of letters, digits and `_ . - @ $`; any other sign stands alone.
pub(crate) fn tokens(text: &str) -> impl Iterator<Item = Token> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        at += text.get(at..)?.find(|letter: char| !letter.is_whitespace())?;
        let (start, first) = (at, text.get(at..)?.chars().next()?);
        if matches!(first, '\'' | '"' | '`') {
            let (inner, end) = quoted(text, start, first);
            at = end;
            return Some(Token { text: inner, is_quoted: true, start, end });
        }
        let length = match text[start..].find(|letter| !is_word(letter)) {
            Some(0) => first.len_utf8(),
            Some(length) => length,
            None => text.len() - start,
        };
        at = start + length;
        Some(Token { text: text[start..at].to_owned(), is_quoted: false, start, end: at })
    })
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '.' | '-' | '@' | '$')
}

/// The text between the quotes at `start`, and its end. An unclosed quote ends with the text.
fn quoted(text: &str, start: usize, quote: char) -> (String, usize) {
    let mut inner = String::new();
    let mut letters = text[start + 1..].char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        if letter != quote {
            inner.push(letter);
        } else if letters.next_if(|(_, next)| *next == quote).is_some() {
            inner.push(quote);
        } else {
            return (inner, start + 1 + at + 1);
        }
    }
    (inner, text.len())
}

/// A value as people write it: in quotes or bare.
pub(crate) fn unquoted(text: &str) -> String {
    let text = text.trim();
    match text.chars().next() {
        Some(quote @ ('\'' | '"' | '`')) if quoted(text, 0, quote).1 == text.len() => quoted(text, 0, quote).0,
        _ => text.to_owned(),
    }
}

/// `text` as an SQL string, with quotes doubled.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn without_comments(sql: &str) -> String {
    let mut out = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some(at) = rest.find(['\'', '"', '`', '/', '-', '#']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = match rest.as_bytes() {
            [b'\'' | b'"' | b'`', ..] => {
                let quote = rest.chars().next().unwrap_or('\'');
                let end = quoted(rest, 0, quote).1;
                out.push_str(&rest[..end]);
                end
            }
            [b'/', b'*', ..] => {
                out.push(' ');
                rest.find("*/").map_or(rest.len(), |end| end + 2)
            }
            [b'#', ..] => rest.find('\n').unwrap_or(rest.len()),
            [b'-', b'-', next, ..] if next.is_ascii_whitespace() => rest.find('\n').unwrap_or(rest.len()),
            [b'-', b'-'] => rest.len(),
            _ => {
                out.push_str(&rest[..1]);
                1
            }
        };
        rest = &rest[length..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_go_and_quotes_stay() {
        let cases = [
            (" /* x */ SELECT 1 ; ", "SELECT 1"),
            ("SELECT '/* no */' -- yes\n, 2;;", "SELECT '/* no */' \n, 2"),
            ("SELECT 'it''s -- # /*'", "SELECT 'it''s -- # /*'"),
            ("SELECT 1--1 # c", "SELECT 1--1"),
            ("/*!40101 SET NAMES utf8 */", ""),
            ("SELECT 'open", "SELECT 'open"),
        ];
        for (sql, text) in cases {
            assert_eq!(Statement::parse(sql).text, text, "{sql}");
        }
        assert!(Statement::parse("/*!40101 SET NAMES utf8 */").was_comment);
        assert!(!Statement::parse(" ; ").was_comment);
    }

    #[test]
    fn words_and_rest() {
        let statement = Statement::parse("load  mysql\tUSER `a b` to\nruntime");
        assert!(statement.has(0, "LOAD MYSQL USER * TO RUN|RUNTIME"));
        assert_eq!(statement.word(3), "a b");
        assert_eq!(Statement::parse("LOGENTRY  what 'ever' it is ;").rest(1), "what 'ever' it is");
        assert_eq!(unquoted(" 'it''s' "), "it's");
        assert_eq!(unquoted("'a' 'b'"), "'a' 'b'");
    }

    #[test]
    fn use_names_a_schema() {
        for (sql, schema) in [
            ("USE main", Some("main")),
            (" use `disk` ; ", Some("disk")),
            ("/* x */ USE disk", Some("disk")),
            ("USE disk -- x", Some("disk")),
            ("# x\nUSE/**/disk", Some("disk")),
            ("useful", None),
            ("SELECT 1 -- use disk", None),
            ("u", None),
        ] {
            assert_eq!(Statement::parse(sql).used_schema(), schema, "{sql}");
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_panics(sql in ".{0,60}|[-'\"`/*# aé;]{0,40}") {
            let statement = Statement::parse(&sql);
            for index in 0..4 {
                let _ = (statement.word(index), statement.rest(index));
            }
            let _ = unquoted(&sql);
        }
    }
}
