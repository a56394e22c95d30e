//! `read_only` of one server: read, set, and whether we may.

use super::control::Control;
use crate::client::{Fault, Rows, is_on};
use crate::probe;
use crate::statements;
use wire::codes;

/// A server's `read_only` settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gate {
    /// OFF, ON, or another word of MariaDB 12, in capitals.
    read_only: String,
    /// Always false on MariaDB, which has no such thing.
    super_read_only: bool,
}

impl Gate {
    /// The values of a writer.
    pub(super) fn open() -> Self {
        Self { read_only: "OFF".to_owned(), super_read_only: false }
    }

    /// Whether any client can write.
    pub(super) fn is_open(&self) -> bool {
        !probe::is_read_only(&self.read_only)
    }

    /// The server's values. Errors: it does not answer, or its word for `read_only` is unknown.
    pub(super) async fn of(server: &mut Control) -> Result<Self, String> {
        let sql = if server.version().is_mariadb {
            "SELECT @@global.read_only AS read_only"
        } else {
            "SELECT @@global.read_only AS read_only, @@global.super_read_only AS super_read_only"
        };
        let rows = server.ask(sql).await?;
        let told = |name| rows.first().and_then(|row| row.text(name));
        let read_only = told("read_only").and_then(word).ok_or_else(|| format!("{}: {sql}: not a known answer", server.addr))?;
        Ok(Self { read_only, super_read_only: told("super_read_only").is_some_and(is_on) })
    }

    /// As a switchover closes it: on MySQL also for those with privileges.
    pub(super) fn closed(server: &Control) -> Self {
        Self { read_only: "ON".to_owned(), super_read_only: !server.version().is_mariadb }
    }

    /// The statements that set these values. On MySQL `super_read_only=1` sets `read_only` too, and `read_only=0` clears both.
    fn set_by(&self, is_mariadb: bool) -> Vec<String> {
        let all = |statements: &[&str]| statements.iter().map(|sql| (*sql).to_owned()).collect();
        match (self.read_only.as_str(), self.super_read_only) {
            ("OFF", _) => all(&["SET GLOBAL read_only=0"]),
            (_, true) => all(&["SET GLOBAL super_read_only=1"]),
            ("ON", false) if is_mariadb => all(&["SET GLOBAL read_only=1"]),
            ("ON", false) => all(&["SET GLOBAL read_only=1", "SET GLOBAL super_read_only=0"]),
            (word, false) => vec![format!("SET GLOBAL read_only='{word}'")],
        }
    }

    pub(super) async fn set(&self, server: &mut Control) -> Result<(), String> {
        for sql in self.set_by(server.version().is_mariadb) {
            let outcome = server.try_do("read_only is set", &sql).await;
            permitted(server, &sql, outcome)?;
        }
        Ok(())
    }
}

/// A value of `read_only` as a word that can be set again.
fn word(value: &str) -> Option<String> {
    match value {
        "0" => Some("OFF".to_owned()),
        "1" => Some("ON".to_owned()),
        word => word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_').then(|| word.to_ascii_uppercase()),
    }
}

/// Asks for what cannot be: a server says whether we may set it before it says that this is no value.
const IMPOSSIBLE: &str = "SET GLOBAL read_only='whether this user may'";

/// An error if this user may not set it, or if that is not known.
pub(super) async fn may_set(server: &mut Control) -> Result<(), String> {
    match server.try_ask(IMPOSSIBLE).await {
        Err(fault) if fault.code() == Some(codes::WRONG_VALUE_FOR_VAR) => Ok(()),
        outcome => permitted(server, IMPOSSIBLE, outcome),
    }
}

/// The privileges to set it, if this user lacks them. An error if the server did not say.
pub(super) async fn lacks_right_to_set(server: &mut Control) -> Result<Option<&'static str>, String> {
    match server.try_ask(IMPOSSIBLE).await {
        Err(fault) if fault.code() == Some(codes::WRONG_VALUE_FOR_VAR) => Ok(None),
        Err(fault) if is_denied(&fault) => Ok(Some(statements::read_only_privilege(server.version()))),
        outcome => permitted(server, IMPOSSIBLE, outcome).map(|()| None),
    }
}

fn is_denied(fault: &Fault) -> bool {
    matches!(fault.code(), Some(codes::DBACCESS_DENIED | codes::ACCESS_DENIED | codes::SPECIFIC_ACCESS_DENIED | codes::TABLEACCESS_DENIED))
}

/// An error if another session has changed it.
pub(super) async fn is_still(server: &mut Control, gate: &Gate) -> Result<(), String> {
    let now = Gate::of(server).await?;
    let is = if probe::is_read_only(&now.read_only) { "read-only" } else { "writable" };
    if now == *gate {
        Ok(())
    } else {
        Err(format!("another program changed read_only of {} during the switchover: the server is {is} now", server.addr))
    }
}

/// The error of a statement that needs a privilege, with the privilege's name.
fn permitted(server: &Control, sql: &str, outcome: Result<Rows, Fault>) -> Result<(), String> {
    outcome.map(drop).map_err(|fault| {
        if is_denied(&fault) {
            let privilege = statements::read_only_privilege(server.version());
            return format!("{}: the monitor's user may not set read_only: GRANT {privilege} ({fault})", server.addr);
        }
        format!("{}: {sql}: {fault}", server.addr)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_put_back_as_it_was() {
        let set_by = |value, is_mariadb| Gate { read_only: word(value).unwrap(), super_read_only: false }.set_by(is_mariadb);
        assert_eq!(set_by("0", true), ["SET GLOBAL read_only=0"]);
        assert_eq!(set_by("ON", true), set_by("1", true));
        assert_eq!(set_by("No_Lock_No_Admin", true), ["SET GLOBAL read_only='NO_LOCK_NO_ADMIN'"]);
        assert_eq!(set_by("1", false), ["SET GLOBAL read_only=1", "SET GLOBAL super_read_only=0"]);
        assert_eq!([word("it's"), word("OFF")], [None, Some("OFF".to_owned())]);
    }
}
