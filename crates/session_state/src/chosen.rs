//! Who chose a session's collations: its login, the server, or the client by name.
//!
//! A session's state has each collation by name, as the server that served the session resolved it: so it is the same on every connection.
//! A server of another version may have other defaults, and clients that come to it get those. [`Chosen::leave_to`] makes of a session's
//! state the one that such a server gives the client. It is for shadows and captures, never for a connection that serves clients.

use crate::server_info::ServerInfo;
use crate::state::{CLIENT_COLLATION, PAIRS, RESULTS_COLLATION, SERVERS_OWN, State, names};
use crate::wants::DECIDE_CHARSETS;
use serde::{Deserialize, Serialize};
use sql::{Assignment, Target, Value};
use wire::charset::{self, Flavor};

/// Who chose a collation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Choice {
    /// Not known: the server, where it is the default of its character set.
    #[default]
    Unknown,
    /// The login, by its id.
    Login,
    /// The server: the client named the character set alone.
    Server,
    /// The client by name, or the schema.
    Named,
}

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chosen {
    /// The collations of client and results, which a login and SET NAMES give.
    names: Choice,
    /// `collation_connection`.
    connection: Choice,
    /// The id of the login.
    login: u16,
}

/// What a SET decides of that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    names: Option<Choice>,
    connection: Option<Choice>,
}

impl Decided {
    /// What these assignments decide. If there are none, something else changed the collations.
    pub fn by(assignments: &[Assignment]) -> Self {
        if assignments.is_empty() {
            return Self { names: Some(Choice::Unknown), connection: Some(Choice::Unknown) };
        }
        let mut decided = Self::default();
        for Assignment { target, value } in assignments {
            match target {
                Target::Names { charset, collation } => {
                    let choice = match (charset, collation) {
                        (_, Some(_)) => Choice::Named,
                        (Some(_), None) => Choice::Server,
                        (None, None) => Choice::Unknown,
                    };
                    decided = Self { names: Some(choice), connection: Some(choice) };
                }
                // The connection's is that of the schema.
                Target::CharacterSet(_) => decided.connection = Some(Choice::Named),
                Target::Session(name) if name == "collation_connection" => {
                    let is_named = matches!(value, Value::Literal(_) | Value::Word(_));
                    decided.connection = Some(if is_named { Choice::Named } else { Choice::Unknown });
                }
                Target::Session(name) if name == "character_set_connection" => decided.connection = Some(Choice::Unknown),
                _ => {}
            }
        }
        decided
    }
}

impl Choice {
    /// What this server takes in place of a collation of the session; None for the same.
    fn instead(self, login: u16, collation: &[u8], info: &ServerInfo) -> Option<&'static str> {
        match self {
            Self::Server => Some(SERVERS_OWN),
            Self::Login => {
                let of_login = info.collation_of(login)?;
                let known = charset::by_name(std::str::from_utf8(collation).ok()?)?;
                // MariaDB takes the id of a default for whatever is the default there; MySQL takes it as it is.
                let is_default = info.flavor == Flavor::MariaDb && of_login.default_for.contains(Flavor::MariaDb);
                (known.charset == of_login.charset).then_some(if is_default { SERVERS_OWN } else { of_login.name })
            }
            Self::Named | Self::Unknown => None,
        }
    }
}

impl Chosen {
    /// The session has logged in with this collation id.
    pub fn by_login(id: u16) -> Self {
        Self { names: Choice::Login, connection: Choice::Login, login: id }
    }

    /// A SET decided this.
    pub fn note(&mut self, decided: Decided) {
        self.names = decided.names.unwrap_or(self.names);
        self.connection = decided.connection.unwrap_or(self.connection);
    }

    /// Decides what is not known, by the defaults of the server that serves a session in this state. Where `collation_server` and
    /// `collation_database` are such a default, the state has the character set in their place: who chose those is never known.
    pub fn settle(self, original: Option<&ServerInfo>, state: &mut State) -> Self {
        if DECIDE_CHARSETS.iter().any(|name| state.variables.get(name).is_some()) {
            // The client has chosen the defaults too.
            return Self { names: Choice::Named, connection: Choice::Named, ..self };
        }
        // The character set of which a collation is the default.
        let of_default = |collation: &[u8]| {
            let known = charset::by_name(std::str::from_utf8(collation).ok()?)?;
            original?.default_of(known.charset).filter(|usual| usual.name == known.name).map(|usual| usual.charset)
        };
        let settled = |choice: Choice, name: &str| match choice {
            Choice::Unknown if state.variables.get(name).is_some_and(|value| of_default(value).is_some()) => Choice::Server,
            Choice::Unknown => Choice::Named,
            known => known,
        };
        // Client and results have the same collation, where they have one.
        let of_names = if state.variables.get(CLIENT_COLLATION).is_some() { CLIENT_COLLATION } else { RESULTS_COLLATION };
        let chosen = Self { names: settled(self.names, of_names), connection: settled(self.connection, "collation_connection"), ..self };
        for (charset, collation) in PAIRS {
            if let Some(of) = state.variables.get(collation).and_then(|value| of_default(value)) {
                state.variables.set(collation, None);
                state.variables.set(charset, Some(of.as_bytes()));
            }
        }
        chosen
    }

    /// Makes of a session's state the one in which it would be, had its client come to this server. All is [settled](Self::settle).
    pub fn leave_to(self, info: &ServerInfo, state: &mut State) {
        if (self.names, self.connection) == (Choice::Login, Choice::Login)
            && state.variables.get("character_set_client").is_none()
            && let Some(collation) = info.login_collation(self.login)
        {
            // The original did not know this id.
            state.variables.set_names(collation);
        }
        let before = state.variables.clone();
        for (choice, name) in [(self.names, CLIENT_COLLATION), (self.names, RESULTS_COLLATION), (self.connection, "collation_connection")] {
            let instead = state.variables.get(name).and_then(|collation| choice.instead(self.login, collation, info));
            if let Some(instead) = instead {
                state.variables.set(name, Some(instead.as_bytes()));
            }
        }
        if names(state).is_none() {
            // Only where all character sets are known, one SET gives them.
            state.variables = before;
        }
    }
}

#[cfg(test)]
#[path = "chosen_tests.rs"]
mod tests;
