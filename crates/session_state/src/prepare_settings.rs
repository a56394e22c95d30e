//! The settings that decide at PREPARE, joined in one text that a statement keeps as long as it lives.

use crate::pins::Pins;
use crate::state::{CHARSETS, CLIENT_COLLATION, RESULTS_COLLATION, Variables};
use crate::statement_key::ValuesAtPrepare;
use crate::wants::{DECIDE_CHARSETS, Wants};
use sql::{Analysis, Facts};
use wire::codec::{Reader, put_lenenc_bytes};

/// Settings that decide how a statement's text is read, and what its columns look like.
const MODE: [&str; 6] =
    ["sql_mode", "character_set_client", "collation_connection", "character_set_results", CLIENT_COLLATION, RESULTS_COLLATION];

/// Stands for a value that is empty: no value at all means that the session never set the variable.
const EMPTY: &[u8] = b"\x01";

/// Of other settings, those that act at the execution, or that no transaction lets be changed and changed back.
const LATER: &[&str] = &[
    "autocommit",
    "character_set_database",
    "collation_database",
    "completion_type",
    "foreign_key_checks",
    "identity",
    "insert_id",
    "last_insert_id",
    "max_execution_time",
    "sql_log_bin",
    "timestamp",
    "unique_checks",
    "xa_detach_on_prepare",
];

/// The same, for whole families.
const LATER_ALL: &[&str] = &["binlog_", "gtid_", "innodb_", "net_", "pseudo_", "rand_seed", "session_track_", "transaction_", "tx_"];

impl Wants {
    /// The user variables that the statement names, where they decide at PREPARE: where the servers settle types there.
    pub fn named_variables(&self, pins: &Pins, settles: bool, text: &[u8], analysis: &Analysis) -> Option<ValuesAtPrepare> {
        let names = analysis.facts.intersects(Facts::USER_VARIABLE | Facts::USER_VARIABLE_ASSIGN);
        (names && settles).then(|| self.values_at_prepare(pins, text))
    }

    /// The session's variables, but for those that decided at the PREPARE: these as they were. `settles` says whether the servers
    /// settle more than how text is read there.
    pub fn variables_then(&self, settles: bool, mode: &[u8]) -> Variables {
        split(mode, &self.state.variables, settles)
    }
}

/// The values in what [`join`] made that decide how the text is read.
pub fn head(mode: &[u8]) -> impl Iterator<Item = &[u8]> {
    mode.splitn(MODE.len() + 1, |byte| *byte == 0).take(MODE.len())
}

/// The session variables that decide at PREPARE, joined: how text is read, what columns look like, what names of character sets mean.
/// `with_others` includes those that decide on MySQL only.
pub fn join(variables: &Variables, ignores_space: bool, with_others: bool) -> Vec<u8> {
    let mut mode = Vec::new();
    for name in MODE {
        mode.extend_from_slice(variables.get(name).map_or(&b""[..], |value| if value.is_empty() { EMPTY } else { &**value }));
        mode.push(0);
    }
    // MariaDB adds it to sql_mode by itself.
    mode.push(u8::from(ignores_space));
    for (name, value) in variables.entries().iter().filter(|(name, _)| decides(name, with_others)) {
        put_lenenc_bytes(&mut mode, name.as_bytes());
        put_lenenc_bytes(&mut mode, value);
    }
    mode
}

/// The variables of now with those of then that [`join`] put into `mode`.
fn split(mode: &[u8], now: &Variables, with_others: bool) -> Variables {
    let mut then = now.clone();
    let mut parts = mode.splitn(MODE.len() + 1, |byte| *byte == 0);
    for (name, value) in MODE.iter().zip(parts.by_ref()) {
        then.set(name, if value == EMPTY { Some(b"") } else { Some(value).filter(|value| !value.is_empty()) });
    }
    for (name, _) in now.entries().iter().filter(|(name, _)| decides(name, with_others)) {
        then.set(name, None);
    }
    let mut others = Reader::new(parts.next().and_then(|rest| rest.get(1..)).unwrap_or_default());
    while let (Ok(name), Ok(value)) = (others.lenenc_bytes(), others.lenenc_bytes()) {
        then.set(&String::from_utf8_lossy(name), Some(value));
    }
    then
}

/// Does this variable, which is none of [`MODE`], decide at PREPARE, on MySQL (`with_others`) or everywhere?
fn decides(name: &str, with_others: bool) -> bool {
    if !with_others {
        return DECIDE_CHARSETS.contains(&name);
    }
    let is_later = LATER.contains(&name) || LATER_ALL.iter().any(|family| name.starts_with(family)) || name.ends_with("_timeout");
    !(is_later || MODE.contains(&name) || CHARSETS.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(all: &[(&str, &str)]) -> Variables {
        let mut variables = Variables::default();
        for (name, value) in all {
            variables.set(name, Some(value.as_bytes()));
        }
        variables
    }

    #[test]
    fn what_decided_comes_back_and_all_else_stays() {
        let charset = ("character_set_client", "latin1");
        let then = variables(&[("autocommit", "OFF"), charset, ("lc_time_names", "de_DE"), ("sql_mode", "ANSI")]);
        let now = variables(&[("autocommit", "ON"), charset, ("default_week_format", "3"), ("net_read_timeout", "5")]);
        let expected = [("autocommit", "ON"), charset, ("lc_time_names", "de_DE"), ("net_read_timeout", "5"), ("sql_mode", "ANSI")];
        assert_eq!(split(&join(&then, false, true), &now, true), variables(&expected));
    }

    #[test]
    fn an_empty_value_is_not_the_servers_own() {
        let then = variables(&[("character_set_results", ""), ("sql_mode", "")]);
        let now = variables(&[("sql_mode", "STRICT_TRANS_TABLES")]);
        assert_ne!(join(&then, false, true), join(&Variables::default(), false, true));
        assert_eq!(split(&join(&then, false, true), &now, true), then);
        assert_eq!(split(&join(&Variables::default(), false, true), &now, true), Variables::default());
    }

    #[test]
    fn a_session_that_set_nothing_has_a_short_mode() {
        let plain = variables(&[("autocommit", "OFF"), ("character_set_connection", "utf8mb4"), ("innodb_lock_wait_timeout", "1")]);
        assert_eq!(join(&plain, true, true), [0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(join(&variables(&[("lc_time_names", "de_DE")]), false, false), [0; 7]);
        assert_eq!(split(&[0; 7], &plain, true), plain);
        // They say what `utf8` is, and the collation of a character set that has none, on MariaDB too.
        let charsets = variables(&[("old_mode", "")]);
        assert_ne!(join(&charsets, false, false), [0; 7]);
        assert_eq!(split(&join(&charsets, false, false), &Variables::default(), false), charsets);
        let others = variables(&[("lc_time_names", "de_DE")]);
        assert_eq!(split(&[0; 7], &others, false), others);
    }
}
