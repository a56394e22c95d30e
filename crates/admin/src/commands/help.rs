//! HELP and SHOW COMMANDS, and the hint at the nearest command after an unknown one.
//!
//! A command's help stands in its own line of the tables ([`super::Help`]). LOAD and SAVE have a topic for each module and move.

use super::{Answer, Command, TABLES, for_all, layers, open, refuse, rows};
use crate::engine::Ask;
use crate::engine::statement::{Statement, tokens, unquoted};

pub(super) const COMMANDS: &[Command] = &[
    for_all(open("HELP", |_, ask| help(ask))).help("HELP [command]", "What commands do, with an example of each.", "HELP LOAD"),
    for_all(open("SHOW COMMANDS", |_, ask| list(ask))).help(
        "SHOW COMMANDS [LIKE 'pattern']",
        "All commands, what they do, and an example of each.",
        "SHOW COMMANDS LIKE '%USERS%'",
    ),
];

/// Words of a question that are looked at: no command has as many.
const WORDS_MAX: usize = 24;
/// Bytes of a pattern: all administrators wait while it is compared.
const PATTERN_MAX: usize = 256;

/// The help of one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Topic {
    /// Its words, with `[...]` for optional ones and small letters for values.
    pub form: String,
    /// Its effect, in a sentence or two.
    pub what: String,
    /// A statement that works as it is.
    pub example: String,
}

/// All topics. Of equally near ones the first is suggested.
pub(super) fn topics() -> Vec<Topic> {
    let written = TABLES.iter().flat_map(|table| table.iter()).filter_map(|command| command.help);
    let written = written.map(|help| Topic { form: help.form.to_owned(), what: help.what.to_owned(), example: help.example.to_owned() });
    written.chain(layers::topics()).collect()
}

/// `HELP [words]`. A single topic comes as `name, description, example`, which MySQL's command line clients print as a page. Several come
/// as a list with a category, as those clients expect.
fn help(ask: &Ask<'_>) -> Answer {
    let asked = unquoted(ask.statement.rest(1));
    let words: Vec<String> = tokens(&asked).take(WORDS_MAX).map(|token| token.text.to_ascii_uppercase()).collect();
    let is_general = words.is_empty() || words == ["CONTENTS"];
    let mut found = topics();
    if !is_general {
        let begins = |topic: &Topic| fixed_words(&topic.form).len() >= words.len() && fixed_words(&topic.form)[..words.len()] == words[..];
        let holds = |topic: &Topic| words.iter().all(|word| fixed_words(&topic.form).contains(word));
        let exact = found.iter().filter(|topic| begins(topic)).cloned().collect::<Vec<_>>();
        found = if exact.is_empty() { found.into_iter().filter(holds).collect() } else { exact };
    }
    match &found[..] {
        [] => refuse(match begun_like(&words).or_else(|| nearest(&words)) {
            Some(topic) => format!("there is no command {}; did you mean {}?", words.join(" "), topic.form),
            None => format!("there is no command {}: SHOW COMMANDS lists them all", words.join(" ")),
        }),
        [topic] => Ok(list_of(&["name", "description", "example"], vec![topic.clone()], false)),
        _ => Ok(list_of(&["category", "command", "description", "example"], found, true)),
    }
}

/// A command whose first words are spelt nearly so.
fn begun_like(words: &[String]) -> Option<Topic> {
    let is_like = |meant: &[String]| meant.len() >= words.len() && words.iter().zip(meant).all(|(word, meant)| is_slip(word, meant));
    topics().into_iter().find(|topic| is_like(&fixed_words(&topic.form)))
}

fn list_of(columns: &[&str], mut topics: Vec<Topic>, with_category: bool) -> crate::reply::Reply {
    topics.sort_by(|a, b| a.form.cmp(&b.form));
    let line = |topic: Topic| {
        let category = with_category.then(|| topic.form.split(' ').next().unwrap_or_default().to_owned());
        category.into_iter().chain([topic.form, topic.what, topic.example]).map(Some).collect()
    };
    rows(columns, topics.into_iter().map(line).collect())
}

/// `SHOW COMMANDS [LIKE 'pattern']`
fn list(ask: &Ask<'_>) -> Answer {
    let statement = ask.statement;
    let pattern = match statement.head.len() {
        2 => None,
        4 if statement.is(2, "LIKE") && statement.word(3).len() <= PATTERN_MAX => Some(statement.word(3).to_ascii_uppercase()),
        _ => return refuse("the command is: SHOW COMMANDS [LIKE 'pattern']"),
    };
    let wanted = |topic: &Topic| pattern.as_ref().is_none_or(|pattern| is_like(&topic.form.to_ascii_uppercase(), pattern));
    Ok(list_of(&["command", "description", "example"], topics().into_iter().filter(wanted).collect(), false))
}

/// SQL's LIKE: `%` stands for any text, `_` for one letter.
fn is_like(text: &str, pattern: &str) -> bool {
    let (text, pattern): (Vec<char>, Vec<char>) = (text.chars().collect(), pattern.chars().collect());
    // matches[j]: the pattern so far matches the first j letters.
    let mut matches: Vec<bool> = (0..=text.len()).map(|j| j == 0).collect();
    for letter in pattern {
        let before = matches.clone();
        for j in 0..=text.len() {
            matches[j] = match letter {
                '%' => before[j] || (j > 0 && matches[j - 1]),
                _ => j > 0 && before[j - 1] && (letter == '_' || letter == text[j - 1]),
            };
        }
    }
    matches[text.len()]
}

/// The words of a form that are written as they stand: not values, nor what may be left out.
fn fixed_words(form: &str) -> Vec<String> {
    let is_fixed = |word: &&str| word.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_' || letter == '.');
    let mut is_optional = false;
    let mandatory = form.split(' ').filter(|word| {
        is_optional |= word.starts_with('[');
        let is_out = is_optional;
        is_optional &= !word.contains(']');
        !is_out
    });
    mandatory.filter(is_fixed).map(str::to_owned).collect()
}

/// The hint for a statement that is neither a command nor SQL. None for SQL with a fault, of which SQLite says more.
pub(crate) fn advice(statement: &Statement) -> Option<String> {
    const SQL: &str = "SELECT|INSERT|REPLACE|UPDATE|DELETE|WITH|VALUES|CREATE|DROP|ALTER|PRAGMA|ANALYZE|REINDEX|ATTACH|DETACH";
    if statement.is(0, SQL) {
        return None;
    }
    let words: Vec<String> = statement.head.iter().map(|token| token.text.to_ascii_uppercase()).collect();
    let first = words.first()?;
    let is_verb = topics().iter().any(|topic| fixed_words(&topic.form).first() == Some(first));
    if let Some(word) = SQL.split('|').find(|word| !is_verb && gap(first, word) <= 0.25) {
        return Some(format!("there is no command {first}; did you mean {word}?"));
    }
    Some(match nearest(&words) {
        Some(topic) => format!("there is no such command; did you mean {}? HELP {} says more", topic.form, topic.form.split(' ').next()?),
        None if is_verb => format!("there is no such {first}: HELP {first} lists what there is"),
        None => format!("there is no command {first}: SHOW COMMANDS lists them all"),
    })
}

/// A word that is missing or too many.
const MISSING: f64 = 0.45;
/// A word too many behind the last one of the command.
const TAIL: f64 = 0.1;
/// A value that a command wants.
const VALUE: f64 = 0.02;

/// Most that a command and one of `count` words that was meant differ by, in words. Of two words, one must be right and the other alike.
fn most(count: usize) -> f64 {
    if count <= 2 { 0.54 } else { (0.25 * to_f64(count) + 0.15).min(1.4) }
}

/// The command that was meant, if one is near enough.
fn nearest(words: &[String]) -> Option<Topic> {
    // Of two that are equally near, the one with fewer values is meant.
    let values = |topic: &Topic| to_f64(topic.form.split(' ').count() - fixed_words(&topic.form).len());
    // The verb counts most: a different verb is as bad as a missing word.
    let verb = |topic: &Topic| match (words.first(), fixed_words(&topic.form).first()) {
        (Some(written), Some(meant)) if is_slip(written, meant) => 0.0,
        _ => MISSING,
    };
    let cost = |topic: &Topic| distance(words, &fixed_words(&topic.form)) + VALUE * values(topic) + verb(topic);
    let scored = topics().into_iter().map(|topic| (cost(&topic), topic));
    let near = scored.filter(|(cost, topic)| *cost <= most(fixed_words(&topic.form).len()));
    near.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, topic)| topic)
}

/// How many words differ between a statement and a command's fixed words: an edit distance with parts of words.
fn distance(written: &[String], meant: &[String]) -> f64 {
    let mut row: Vec<f64> = (0..=meant.len()).map(|n| MISSING * to_f64(n)).collect();
    for (i, word) in written.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = MISSING * to_f64(i + 1);
        for (j, other) in meant.iter().enumerate() {
            let gap = gap(word, other);
            // Two words that are not alike are one missing and one too many.
            let replaced = diagonal + if is_slip(word, other) { gap } else { 2.0 * MISSING };
            let extra = if j + 1 == meant.len() { TAIL } else { MISSING };
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + MISSING).min(diagonal + extra);
        }
    }
    row[meant.len()]
}

/// Whether two words are spellings of one: two letters that change places are half of a word of four.
fn is_slip(written: &str, meant: &str) -> bool {
    gap(written, meant) <= if meant.len() <= 5 { 0.5 } else { 0.4 }
}

/// How much two words differ, 0 to 1. A prefix is nearly the same: `RUN`, `RUNTIME`.
fn gap(written: &str, meant: &str) -> f64 {
    if written == meant {
        return 0.0;
    }
    // No spelling of it, and perhaps of megabytes.
    if written.len() > 2 * meant.len() + 8 {
        return 1.0;
    }
    if written.len() >= 3 && meant.starts_with(written) {
        return 0.1;
    }
    model::edits(written, meant).min(written.len().max(meant.len())) as f64 / to_f64(written.len().max(meant.len()).max(1))
}

/// Counts of words and letters are small.
fn to_f64(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{Role, find};

    fn meant(text: &str) -> String {
        advice(&Statement::parse(text)).unwrap_or_else(|| "SQL".to_owned())
    }

    #[test]
    fn every_command_of_administrators_has_help() {
        // Statements of ProxySQL's tools that have no effect here.
        let foreign = ["CLUSTER_NODE_UUID", "MEMPROFILE", "COREDUMP", "SIGNAL", "PULL VERSION", "LDAP"];
        let all = TABLES.iter().flat_map(|table| table.iter());
        let without = all.filter(|command| {
            command.needs == Role::Admin && command.help.is_none() && !foreign.iter().any(|word| command.words.contains(word))
        });
        assert_eq!(without.map(|command| command.words).collect::<Vec<_>>(), Vec::<&str>::new());
    }

    #[test]
    fn every_example_is_a_command() {
        for topic in topics() {
            assert!(find(&Statement::parse(&topic.example)).is_some(), "{topic:?}");
            assert!(!topic.what.is_empty() && topic.what.ends_with('.'), "{topic:?}");
        }
    }

    #[test]
    fn slips_find_what_was_meant() {
        for (written, wanted) in [
            ("LOAD MYSQL RULES TO RUN", "LOAD MYSQL QUERY RULES TO RUNTIME"),
            ("LOAD MYSQL USRES TO RUNTIME", "LOAD MYSQL USERS TO RUNTIME"),
            ("LOAD MYSQL SERVERS", "LOAD MYSQL SERVERS TO RUNTIME"),
            ("SAVE MYSQL SERVER TO DISC", "SAVE MYSQL SERVERS TO DISK"),
            ("load mysql variables runtime", "LOAD MYSQL VARIABLES TO RUNTIME"),
            ("SHOW PROCESLIST", "SHOW PROCESSLIST"),
            ("SWICHOVER HOSTGROUP 0 TO 'a:1'", "SWITCHOVER HOSTGROUP n TO"),
            ("LOAD MYSQL USR app TO RUNTIME", "LOAD MYSQL USER name TO RUNTIME"),
            ("CONFIG DIF", "CONFIG DIFF"),
            ("PROXYSQL FLUSH LOG", "PROXYSQL FLUSH LOGS"),
            ("HLEP", "HELP"),
        ] {
            assert!(meant(written).contains(&format!("did you mean {wanted}")), "{written}: {}", meant(written));
        }
        assert_eq!(meant("SELEC 1"), "there is no command SELEC; did you mean SELECT?");
        let long = format!("{} x", "Y".repeat(1 << 20));
        assert!(meant(&long).starts_with("there is no command"), "a word of a megabyte is no slip");
        assert_eq!(meant("XYZZY"), "there is no command XYZZY: SHOW COMMANDS lists them all");
        assert_eq!(meant("SHOW NONSENSE"), "there is no such SHOW: HELP SHOW lists what there is");
        assert_eq!(meant("SELECT FROM WHERE"), "SQL");
    }

    #[test]
    fn like_is_sqls() {
        for (text, pattern, is) in [("ABC", "A%", true), ("ABC", "%B%", true), ("ABC", "A_C", true), ("ABC", "A", false), ("", "%", true)] {
            assert_eq!(is_like(text, pattern), is, "{text} {pattern}");
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_panics(sql in "[A-Za-z%_' ]{0,60}|.{0,40}") {
            let _ = advice(&Statement::parse(&sql));
        }
    }
}
