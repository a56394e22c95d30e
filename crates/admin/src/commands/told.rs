//! A statement for the log, without secrets.
//!
//! Only known words are written: keywords, names of tables, columns and settings, and signs. Everything else is `?`. So a text with quotes,
//! comments or backslashes that SQLite reads differently reveals nothing more.

use model::Setting;
use model::config::TABLES;

use super::Command;
use crate::engine::statement::{Statement, tokens};

/// Bytes of a statement that a log gets.
const LONGEST: usize = 4 << 10;

/// Words of SQL and of commands, in lower case.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "abort", "add", "all", "alter", "and", "as", "asc", "begin", "between", "by", "case", "cast", "check", "collate", "column", "commit",
    "config", "conflict", "constraint", "create", "cross", "current_timestamp", "default", "delete", "desc", "describe", "distinct", "do",
    "drop", "else", "end", "escape", "except", "exists", "explain", "fail", "file", "first", "following", "for", "foreign", "from", "full",
    "glob", "group", "having", "if", "ignore", "in", "index", "inner", "insert", "instead", "intersect", "into", "is", "isnull", "join",
    "key", "last", "left", "like", "limit", "match", "names", "natural", "not", "nothing", "notnull", "null", "nulls", "of", "offset",
    "on", "or", "order", "outer", "over", "partition", "plan", "pragma", "primary", "query", "recursive", "references", "reindex",
    "release", "rename", "replace", "returning", "right", "rollback", "row", "rows", "savepoint", "select", "set", "show", "table", "temp",
    "temporary", "then", "to", "transaction", "trigger", "truncate", "union", "unique", "update", "using", "vacuum", "values", "view",
    "virtual", "when", "where", "window", "with", "without",
    "global", "session", "local", "logentry", "count", "coalesce", "concat", "lower", "upper", "max", "min", "sum", "length",
    "main", "disk", "stats", "monitor", "stats_history", "global_variables", "variable_name", "variable_value",
];

/// `statement` with a `?` for each value and each unknown word. `command` is the matching command; None is SQL.
pub(super) fn masked(statement: &Statement, command: Option<&Command>) -> String {
    match command {
        Some(command) if command.sets() => assignments(&statement.text),
        // Its words are in our own table, and what may follow are names and numbers, up to a semicolon: another statement may be there.
        Some(command) if !command.takes_texts() => words(&statement.text, true),
        _ => words(&statement.text, false),
    }
}

/// Every value of a SET, however it is written, is `?`.
fn assignments(text: &str) -> String {
    let (mut out, mut is_value) = (Out::default(), false);
    for token in tokens(text) {
        if out.is_full {
            break;
        }
        let word = token.text.as_str();
        match (token.is_quoted, word) {
            (false, "=") if !is_value => {
                out.push("=", token.start, token.end);
                is_value = true;
            }
            // A comma within a value may begin what only looks like a name: an unknown one stays masked.
            (false, ",") => {
                out.push(",", token.start, token.end);
                is_value = false;
            }
            (false, word) if !is_value && (is_known(word) || word == ":") => out.push(word, token.start, token.end),
            _ => out.mask(token.start, token.end),
        }
    }
    out.text
}

/// `shows_all` words, or those that are known.
fn words(text: &str, mut shows_all: bool) -> String {
    let mut out = Out::default();
    for token in tokens(text) {
        if out.is_full {
            break;
        }
        shows_all &= token.is_quoted || token.text != ";";
        let is_sign = !token.text.chars().any(char::is_alphanumeric);
        if !token.is_quoted && (is_sign || shows_all || is_known(&token.text)) {
            out.push(&token.text, token.start, token.end);
        } else {
            out.mask(token.start, token.end);
        }
    }
    out.text
}

/// Whether all parts of `a.b` are known, or it is a setting.
fn is_known(word: &str) -> bool {
    let bare = word.trim_start_matches("@@");
    let is_table = |part: &str| {
        let part = part.strip_prefix("runtime_").unwrap_or(part);
        TABLES.iter().any(|table| table.name.eq_ignore_ascii_case(part))
    };
    let is_column = |part: &str| TABLES.iter().flat_map(|table| table.columns).any(|column| column.name.eq_ignore_ascii_case(part));
    let is_word = |part: &str| WORDS.contains(&part.to_ascii_lowercase().as_str());
    Setting::by_full_name(bare).is_some()
        || bare.split('.').all(|part| part.is_empty() || is_word(part) || is_table(part) || is_column(part))
}

/// The text so far.
#[derive(Default)]
struct Out {
    text: String,
    /// The end of the last token, and whether it was masked.
    end: usize,
    was_masked: bool,
    is_full: bool,
}

impl Out {
    fn push(&mut self, word: &str, start: usize, end: usize) {
        self.add(word, start, end, false);
    }

    fn mask(&mut self, start: usize, end: usize) {
        // Tokens without a blank between them are one value: `x'00'`, `p@ss!word`.
        if self.was_masked && start == self.end {
            self.end = end;
        } else {
            self.add("?", start, end, true);
        }
    }

    fn add(&mut self, word: &str, start: usize, end: usize, is_masked: bool) {
        if self.is_full {
            return;
        }
        if self.text.len() + word.len() + 1 > LONGEST {
            self.text.push_str(" ...");
            self.is_full = true;
            return;
        }
        if start > self.end && !self.text.is_empty() {
            self.text.push(' ');
        }
        self.text.push_str(word);
        (self.end, self.was_masked) = (end, is_masked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(sql: &str) -> String {
        let statement = Statement::parse(sql);
        masked(&statement, super::super::find(&statement).as_ref())
    }

    #[test]
    fn a_log_has_no_values() {
        for (sql, wanted) in [
            ("SET mysql-monitor_password=s3cret", "SET mysql-monitor_password=?"),
            ("SET mysql-monitor_password = s3cret, mysql-threads=4", "SET mysql-monitor_password = ?, mysql-threads=?"),
            ("SET GLOBAL admin-admin_credentials='admin:s3cret'", "SET GLOBAL admin-admin_credentials=?"),
            ("SET mysql-monitor_password=s3cret!x,y", "SET mysql-monitor_password=?,?"),
            ("SET s3cret", "SET ?"),
            ("/* it's */ UPDATE mysql_users SET password='s3cret'", "UPDATE mysql_users SET password=?"),
            ("-- don't\nUPDATE mysql_users SET password='s3cret'", "UPDATE mysql_users SET password=?"),
            (
                "UPDATE mysql_users SET comment='c:\\', password='s3cret' WHERE username='a'",
                "UPDATE mysql_users SET comment=?, password=? WHERE username=?",
            ),
            ("WITH a AS (SELECT 1) UPDATE mysql_users SET password='s3cret'", "WITH ? AS (SELECT ?) UPDATE mysql_users SET password=?"),
            ("INSERT INTO main.mysql_users VALUES ('anna', \"it''s\", 1)", "INSERT INTO main.mysql_users VALUES (?, ?, ?)"),
            ("INSERT INTO mysql_users (username) VALUES (x'73')", "INSERT INTO mysql_users (username) VALUES (?)"),
            ("KILL 7", "KILL 7"),
            ("SAVE CONFIG TO FILE '/a/b'", "SAVE CONFIG TO FILE ?"),
            ("LOGENTRY s3cret", "LOGENTRY ?"),
        ] {
            assert_eq!(told(sql), wanted, "{sql}");
        }
    }

    /// SQLite ends a line's comment where we see none, and the other way round: whatever is read wrongly, no value is shown.
    #[test]
    fn what_is_read_otherwise_shows_nothing() {
        for before in ["--don't\n", "#'\n", "/*!50000 ' */", "--\"\n", "`", "'", "\"", "[it's] ", "--`", "/* /* ' */"] {
            for after in ["", " -- '", " /* '", " '", "#"] {
                for sql in
                    ["UPDATE mysql_users SET password='s3cret'", "SET mysql-monitor_password=s3cret", "INSERT INTO x VALUES (s3cret)"]
                {
                    let text = told(&format!("{before}{sql}{after}"));
                    assert!(!text.contains("s3cret"), "{before}{sql}{after}: {text}");
                }
            }
        }
    }

    #[test]
    fn a_log_line_is_bounded() {
        let long = format!("INSERT INTO mysql_users VALUES {}", "('a', 'b'), ".repeat(10_000));
        let text = told(&long);
        assert!(text.len() <= LONGEST + 4 && text.ends_with(" ..."), "{}", text.len());
    }

    proptest::proptest! {
        #[test]
        fn no_secret_is_shown(before in "[-'\"`/*# a;=,()]{0,20}", after in "[-'\"`/*# a;=,()]{0,20}") {
            let text = told(&format!("{before}UPDATE mysql_users SET password='s3cret'{after}"));
            proptest::prop_assert!(!text.contains("s3cret"), "{}", text);
        }
    }
}
