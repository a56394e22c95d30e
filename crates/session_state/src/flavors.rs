//! One session on servers of several families: collations that only one of them has.
//!
//! On a server that does not know it, a collation is its character set's default. The session's own comes back with a server
//! that does, unless it chose another one meanwhile.

use crate::server_info::ServerInfo;
use crate::state::{CLIENT_COLLATION, RESULTS_COLLATION, State, Text, type_of_null};
use std::sync::Arc;
use wire::charset::{self, Collation};

/// What stands in for collations of a session's own.
#[derive(Default)]
pub struct StandIns {
    variables: Vec<StandIn>,
    /// User variables: names, the session's own literals, and what stands in for them.
    literals: Vec<(Arc<str>, Text, Text)>,
}

struct StandIn {
    variable: Arc<str>,
    own: Text,
    instead: &'static str,
}

fn known(info: &ServerInfo, name: &[u8]) -> Option<&'static Collation> {
    info.collation_named(std::str::from_utf8(name).ok()?)
}

/// What a server takes a collation for that it does not know; None for one that it knows, or whose character set it has not.
fn instead(name: &[u8], info: &ServerInfo) -> Option<&'static Collation> {
    if known(info, name).is_some() {
        return None;
    }
    info.default_of(charset::by_name(std::str::from_utf8(name).ok()?)?.charset)
}

/// Puts in `state` what a server like this takes for collations that it does not know.
pub fn adapt(state: &mut State, info: &ServerInfo) -> StandIns {
    let mut put = StandIns::default();
    let is_collation = |name: &str| name.starts_with("collation_") || [CLIENT_COLLATION, RESULTS_COLLATION].contains(&name);
    for (name, value) in state.variables.entries().iter().filter(|(name, _)| is_collation(name)) {
        if let Some(collation) = instead(value, info) {
            put.variables.push(StandIn { variable: Arc::clone(name), own: Arc::clone(value), instead: collation.name });
        }
    }
    for one in &put.variables {
        state.variables.set(&one.variable, Some(one.instead.as_bytes()));
    }
    for (name, literal) in state.user_variables.entries() {
        if let Some(plain) = without_unknown_collation(literal, info) {
            put.literals.push((Arc::clone(name), Arc::clone(literal), plain.as_bytes().into()));
        }
    }
    for (name, _, plain) in &put.literals {
        state.user_variables.set(name, Some(plain));
    }
    put
}

/// A literal without its collation, where a server like this does not know that.
fn without_unknown_collation(literal: &[u8], info: &ServerInfo) -> Option<String> {
    let literal = std::str::from_utf8(literal).ok()?;
    let value = type_of_null(literal).unwrap_or(literal);
    let (text, collation) = value.rsplit_once(" COLLATE ")?;
    let is_unknown = known(info, collation.trim_matches('`').as_bytes()).is_none();
    is_unknown.then(|| format!("{text}{}", literal.get(value.len()..).unwrap_or_default()))
}

impl StandIns {
    /// Whether nothing is stood in for.
    pub fn is_empty(&self) -> bool {
        self.variables.is_empty() && self.literals.is_empty()
    }

    /// Gives the state back what is still stood in for.
    pub fn undo(self, state: &mut State) {
        for (name, own, plain) in self.literals {
            if state.user_variables.get(&name) == Some(&plain) {
                state.user_variables.set(&name, Some(&own));
            }
        }
        for one in self.variables {
            if state.variables.get(&one.variable).is_some_and(|value| **value == *one.instead.as_bytes()) {
                state.variables.set(&one.variable, Some(&one.own));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::info;
    use crate::server_info::InfoRecord;
    use wire::charset::Flavor;

    fn collations(state: &State) -> Vec<String> {
        let names = ["collation_connection", RESULTS_COLLATION];
        names.iter().filter_map(|name| state.variables.get(name)).map(|v| String::from_utf8_lossy(v).into_owned()).collect()
    }

    fn state(collation: &str) -> State {
        let mut state = State::default();
        state.variables.set("collation_connection", Some(collation.as_bytes()));
        state.variables.set(RESULTS_COLLATION, Some(collation.as_bytes()));
        state
    }

    /// Before any connection has asked.
    #[test]
    fn a_version_tells_which_of_mysqls_names_mariadb_took_over() {
        let of = |version| info(Flavor::MariaDb, version).login_collation(255).map(|collation| collation.name);
        assert_eq!(of("10.11.6-MariaDB-0+deb12u1"), None);
        assert_eq!(of("11.4.4-MariaDB"), None);
        assert_eq!(of("11.4.5-MariaDB-log"), Some("utf8mb4_0900_ai_ci"));
        assert_eq!(of("12.1-MariaDB"), Some("utf8mb4_0900_ai_ci"));
    }

    /// Fleets hold both kinds of MariaDB; a process of an earlier version handed versions over as they were greeted with.
    #[test]
    fn a_version_has_its_prefix_where_it_is_asked_for() {
        for (flavor, version, with_prefix) in [
            (Flavor::MariaDb, "10.11.6-MariaDB", "5.5.5-10.11.6-MariaDB"),
            (Flavor::MariaDb, "5.5.68-MariaDB", "5.5.68-MariaDB"),
            (Flavor::MariaDb, "11.0.2-MariaDB", "11.0.2-MariaDB"),
            (Flavor::MySql, "5.5.5-m3", "5.5.5-m3"),
            (Flavor::MySql, "9.7.0", "9.7.0"),
        ] {
            let info = info(flavor, version);
            assert_eq!((info.announced(false), info.announced(true)), (version.to_owned(), with_prefix.to_owned()));
            let handed = ServerInfo { version: with_prefix.to_owned(), ..info };
            assert_eq!(InfoRecord::of(&handed).info().version, version);
        }
    }

    #[test]
    fn what_one_family_does_not_know_is_the_default_there() {
        let (mysql, mariadb) = (info(Flavor::MySql, "9.7.0"), info(Flavor::MariaDb, "10.11.6"));
        for (wanted, server, got) in [
            ("utf8mb4_0900_ai_ci", &mariadb, "utf8mb4_general_ci"),
            ("utf8mb4_uca1400_ai_ci", &mysql, "utf8mb4_0900_ai_ci"),
            ("utf8mb4_0900_ai_ci", &mysql, "utf8mb4_0900_ai_ci"),
            ("utf8mb4_0900_ai_ci", &info(Flavor::MySql, "5.7.44"), "utf8mb4_general_ci"),
            ("utf8mb4_uca1400_ai_ci", &info(Flavor::MySql, "5.5.9"), "utf8mb4_general_ci"),
            ("latin1_swedish_ci", &mariadb, "latin1_swedish_ci"),
            ("gb18030_chinese_ci", &mariadb, "gb18030_chinese_ci"),
            ("utf8mb4_uca1400_ai_ci", &mariadb, "utf8mb4_uca1400_ai_ci"),
            ("utf8mb4_uca1400_ai_ci", &info(Flavor::MariaDb, "10.10.2-MariaDB"), "utf8mb4_uca1400_ai_ci"),
            ("utf8mb4_uca1400_ai_ci", &info(Flavor::MariaDb, "10.5.29-MariaDB"), "utf8mb4_general_ci"),
        ] {
            let mut state = state(wanted);
            adapt(&mut state, server);
            assert_eq!(collations(&state), [got, got], "{wanted} on {}", server.version);
        }
    }

    #[test]
    fn the_own_one_comes_back_unless_another_was_chosen() {
        let mut state = state("utf8mb4_0900_ai_ci");
        let put = adapt(&mut state, &info(Flavor::MariaDb, "10.11.6"));
        state.variables.set("collation_connection", Some(b"utf8mb4_bin"));
        put.undo(&mut state);
        assert_eq!(collations(&state), ["utf8mb4_bin", "utf8mb4_0900_ai_ci"]);
    }
}
