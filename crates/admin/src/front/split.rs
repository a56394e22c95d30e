//! Finds the ends of statements, and parameters, in text of SQLite's dialect.
//!
//! As SQLite reads it, quotes are escaped by doubling, and a backslash is an ordinary character. Comments are `-- ...` and `/* ... */`. One
//! that begins with `/*!` counts as a statement, since mysqldump sends such.

/// The part that begins at an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    /// A blank or a comment up to here.
    Blank(usize),
    /// A quoted text or name up to here.
    Quoted(usize),
    /// `;`
    Semicolon,
    /// `?`
    Placeholder,
    /// Any other byte.
    Other,
}

/// The statements of a text, less the semicolons. Those of blanks and comments alone are left out. CREATE TRIGGER holds
/// semicolons, so a text that begins with it is one statement.
pub(crate) fn statements(sql: &[u8]) -> Vec<&[u8]> {
    if is_trigger(sql) {
        return vec![sql];
    }
    let (mut found, mut start, mut has_content, mut at) = (Vec::new(), 0, false, 0);
    while at < sql.len() {
        let piece = piece(sql, at);
        match piece {
            Piece::Semicolon if has_content => found.extend(sql.get(start..at)),
            Piece::Semicolon | Piece::Blank(_) => {}
            _ => has_content = true,
        }
        at = end(piece, at);
        if piece == Piece::Semicolon {
            (start, has_content) = (at, false);
        }
    }
    if has_content {
        found.extend(sql.get(start..));
    }
    found
}

/// The offsets of all `?` outside of quotes and comments.
pub(crate) fn placeholders(sql: &[u8]) -> Vec<usize> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < sql.len() {
        let piece = piece(sql, at);
        if piece == Piece::Placeholder {
            found.push(at);
        }
        at = end(piece, at);
    }
    found
}

/// Whether a statement concerns the one before, like SHOW WARNINGS: the last warnings then stay.
pub(crate) fn keeps_warnings(sql: &[u8]) -> bool {
    let mut at = 0;
    while let Some(Piece::Blank(end)) = (at < sql.len()).then(|| piece(sql, at)) {
        at = end;
    }
    let begins = |words: &[u8]| sql.get(at..at + words.len()).is_some_and(|found| found.eq_ignore_ascii_case(words));
    begins(b"SHOW ") || begins(b"SELECT @@")
}

fn is_trigger(sql: &[u8]) -> bool {
    let mut words = sql.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let is = |word: Option<&[u8]>, names: &[&[u8]]| word.is_some_and(|w| names.iter().any(|n| w.eq_ignore_ascii_case(n)));
    if !is(words.next(), &[b"CREATE"]) {
        return false;
    }
    let second = words.next();
    is(second, &[b"TRIGGER"]) || is(second, &[b"TEMP", b"TEMPORARY"]) && is(words.next(), &[b"TRIGGER"])
}

fn end(piece: Piece, at: usize) -> usize {
    match piece {
        Piece::Blank(end) | Piece::Quoted(end) => end,
        Piece::Semicolon | Piece::Placeholder | Piece::Other => at + 1,
    }
}

fn piece(sql: &[u8], at: usize) -> Piece {
    let rest = sql.get(at..).unwrap_or_default();
    match rest {
        [b';', ..] => Piece::Semicolon,
        [b'?', ..] => Piece::Placeholder,
        [quote @ (b'\'' | b'"' | b'`'), ..] => Piece::Quoted(quoted_end(sql, at, *quote)),
        [b'[', ..] => Piece::Quoted(after(sql, at, b"]")),
        [b'-', b'-', ..] => Piece::Blank(after(sql, at, b"\n")),
        [b'/', b'*', b'!', ..] => Piece::Quoted(after(sql, at + 2, b"*/")),
        [b'/', b'*', ..] => Piece::Blank(after(sql, at + 2, b"*/")),
        [byte, ..] if byte.is_ascii_whitespace() => Piece::Blank(at + 1),
        _ => Piece::Other,
    }
}

/// Behind the next `mark`; the end of the text when there is none.
fn after(sql: &[u8], from: usize, mark: &[u8]) -> usize {
    let rest = sql.get(from..).unwrap_or_default();
    rest.windows(mark.len()).position(|window| window == mark).map_or(sql.len(), |at| from + at + mark.len())
}

/// Behind the closing quote.
fn quoted_end(sql: &[u8], start: usize, quote: u8) -> usize {
    let mut at = start + 1;
    while let Some(byte) = sql.get(at) {
        match (*byte == quote, sql.get(at + 1) == Some(&quote)) {
            (true, true) => at += 2,
            (true, false) => return at + 1,
            (false, _) => at += 1,
        }
    }
    sql.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(sql: &str) -> Vec<String> {
        statements(sql.as_bytes()).into_iter().map(|s| String::from_utf8(s.to_vec()).unwrap()).collect()
    }

    #[test]
    fn semicolons_that_end_and_those_that_do_not() {
        assert_eq!(split("a; b ;"), ["a", " b "]);
        assert_eq!(split(";; ; -- x\n /* ; */"), Vec::<String>::new());
        for one in ["'a;''b'", "\"a;\"", "`a;`", "[a;]", "a -- ;\n b", "a /* ; */ b", "/*!40101 SET a=1; */", "'open;", r"'a\'"] {
            assert_eq!(split(one), [one]);
        }
        assert_eq!(split("create temp TRIGGER t BEGIN a; b; END;").len(), 1);
    }

    #[test]
    fn placeholders_outside_of_quotes() {
        assert_eq!(placeholders(b"? '?' \"?\" -- ?\n /* ? */ ?"), [0, 24]);
    }

    #[test]
    fn statements_about_warnings_keep_them() {
        for (sql, keeps) in [
            ("SHOW WARNINGS", true),
            (" /* c */ show count(*) warnings", true),
            ("select @@warning_count", true),
            ("SELECT 1", false),
            ("", false),
            ("SHOWN", false),
        ] {
            assert_eq!(keeps_warnings(sql.as_bytes()), keeps, "{sql}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics_and_parts_are_of_the_text(sql in "[a;'\"`\\[\\]/*!\n ?-]{0,40}") {
            for part in statements(sql.as_bytes()) {
                prop_assert!(sql.contains(std::str::from_utf8(part).unwrap()));
            }
            for at in placeholders(sql.as_bytes()) {
                prop_assert_eq!(sql.as_bytes()[at], b'?');
            }
        }

        #[test]
        fn quoting_hides_everything(inner in "[^\0]{0,20}") {
            let text = format!("'{}'", inner.replace('\'', "''"));
            let joined = format!("{text};{text}");
            prop_assert_eq!(statements(joined.as_bytes()), [text.as_bytes(), text.as_bytes()]);
        }
    }
}
