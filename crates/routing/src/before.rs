//! Statements that applications and their drivers send about the session itself. Neither rules nor the firewall judge them, so a
//! set of rules that lists what may run need not list them. ProxySQL answers the same ones before its rules.

use sql::{Assignment, Facts, Kind, Target, Value};

use crate::split::Statement;

/// Session variables whose SET, alone in its statement, is one of them. `SET NAMES` is another.
const VARIABLES: [&str; 3] = ["autocommit", "character_set_results", "character_set_server"];

/// Facts that a statement of this kind does not have: then it is more than it looks like.
const NOT_PLAIN: Facts = Facts::MULTI.union(Facts::COMMENT).union(Facts::USER_VARIABLE).union(Facts::VERSIONED).union(Facts::TORN);

/// Whether a COM_QUERY concerns only the session, in a plain form. That is `COMMIT` or `ROLLBACK` without more words, `USE`, `SET NAMES`,
/// or a SET of one of a few variables to a literal.
pub fn precedes_rules(statement: &Statement<'_>) -> bool {
    if statement.analysis.facts.intersects(NOT_PLAIN) {
        return false;
    }
    match statement.analysis.kind {
        Kind::Commit => is_word(statement.text, b"commit"),
        Kind::Rollback => is_word(statement.text, b"rollback"),
        Kind::Use => sql::parse_use(statement.text, statement.mode).is_some(),
        Kind::Set => {
            let assignments = sql::parse_set(statement.text, statement.mode).unwrap_or_default();
            matches!(assignments.as_slice(), [only] if is_about_session(only))
        }
        _ => false,
    }
}

fn is_word(text: &[u8], word: &[u8]) -> bool {
    let text = text.trim_ascii();
    text.strip_suffix(b";").unwrap_or(text).trim_ascii_end().eq_ignore_ascii_case(word)
}

fn is_about_session(assignment: &Assignment) -> bool {
    match &assignment.target {
        Target::Names { .. } => true,
        Target::Session(name) => VARIABLES.contains(&name.as_str()) && assignment.value != Value::Expression,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sql::LexMode;

    fn precedes(text: &str) -> bool {
        let (text, mode) = (text.as_bytes(), LexMode::default());
        precedes_rules(&Statement { text, mode, analysis: sql::analyze(text, mode) })
    }

    #[test]
    fn plain_statements_about_the_session() {
        for text in [
            "COMMIT",
            " commit ; ",
            "Rollback",
            "USE shop",
            "use `my shop`;",
            "SET NAMES utf8mb4",
            "set names 'utf8mb4' collate 'utf8mb4_general_ci'",
            "SET NAMES DEFAULT",
            "SET autocommit=0",
            "SET @@session.autocommit = OFF",
            "SET SESSION autocommit := 1",
            "SET character_set_results = NULL",
            "SET SESSION character_set_server=latin1",
        ] {
            assert!(precedes(text), "{text}");
        }
    }

    #[test]
    fn what_is_more_than_that() {
        for text in [
            "COMMIT WORK",
            "COMMIT AND CHAIN",
            "ROLLBACK TO SAVEPOINT a",
            "COMMIT; DELETE FROM t",
            "/* hostgroup=2 */ COMMIT",
            "SET NAMES utf8mb4, @a=1",
            "SET autocommit=0, sql_mode=''",
            "SET autocommit=(SELECT 1)",
            "SET autocommit=@a",
            "SET GLOBAL autocommit=0",
            "SET sql_mode=''",
            "SET CHARACTER SET utf8mb4",
            "BEGIN",
            "SELECT 1",
            "USE",
        ] {
            assert!(!precedes(text), "{text}");
        }
    }
}
