//! `read_only` of one server: read, set, and whether we may.

use super::control::Control;
use crate::client::{Fault, Rows, is_on};

/// What the monitor's user needs to set `read_only`.
const NEEDED: &str = "the monitor's user needs READ_ONLY ADMIN (MariaDB), SYSTEM_VARIABLES_ADMIN and CONNECTION_ADMIN (MySQL)";

/// What keeps a server from taking writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gate {
    read_only: bool,
    /// Always false on MariaDB, which has no such thing.
    super_read_only: bool,
}

impl Gate {
    /// As the writer has it.
    pub(super) const OPEN: Self = Self { read_only: false, super_read_only: false };

    /// As it is now.
    pub(super) async fn of(server: &mut Control) -> Result<Self, String> {
        let sql = match server.version().is_mariadb {
            true => "SELECT @@global.read_only AS read_only",
            false => "SELECT @@global.read_only AS read_only, @@global.super_read_only AS super_read_only",
        };
        let rows = server.ask(sql).await?;
        let is_set = |name| rows.first().and_then(|row| row.text(name)).is_some_and(is_on);
        Ok(Self { read_only: is_set("read_only"), super_read_only: is_set("super_read_only") })
    }

    /// As a switchover closes it: on MySQL also for those with privileges.
    pub(super) fn closed(server: &Control) -> Self {
        Self { read_only: true, super_read_only: !server.version().is_mariadb }
    }

    /// What sets it so. On MySQL `super_read_only=1` sets `read_only` too, and `read_only=0` takes both off.
    fn set_by(self, is_mariadb: bool) -> &'static [&'static str] {
        match (self.read_only, self.super_read_only) {
            (false, _) => &["SET GLOBAL read_only=0"],
            (true, true) => &["SET GLOBAL super_read_only=1"],
            (true, false) if is_mariadb => &["SET GLOBAL read_only=1"],
            (true, false) => &["SET GLOBAL read_only=1", "SET GLOBAL super_read_only=0"],
        }
    }

    /// Sets it.
    pub(super) async fn set(self, server: &mut Control) -> Result<(), String> {
        for sql in self.set_by(server.version().is_mariadb) {
            let outcome = server.try_ask(sql).await;
            permitted(server, sql, outcome)?;
        }
        Ok(())
    }
}

/// Asks for what cannot be: a server says whether we may set it before it says that this is no value.
pub(super) async fn may_set(server: &mut Control) -> Result<(), String> {
    const IMPOSSIBLE: &str = "SET GLOBAL read_only='whether this user may'";
    const ER_WRONG_VALUE_FOR_VAR: u16 = 1231;
    match server.try_ask(IMPOSSIBLE).await {
        Err(fault) if fault.code() == Some(ER_WRONG_VALUE_FOR_VAR) => Ok(()),
        outcome => permitted(server, IMPOSSIBLE, outcome),
    }
}

/// An error when somebody else has changed it.
pub(super) async fn is_still(server: &mut Control, gate: Gate) -> Result<(), String> {
    let now = Gate::of(server).await?;
    let is = if now.read_only { "read-only" } else { "writable" };
    match now == gate {
        true => Ok(()),
        false => Err(format!("somebody else has changed whether {} may write while this was under way: now it is {is}", server.addr)),
    }
}

/// What a statement that needs a privilege was answered.
fn permitted(server: &Control, sql: &str, outcome: Result<Rows, Fault>) -> Result<(), String> {
    outcome.map(drop).map_err(|fault| match fault.code() {
        Some(1044 | 1045 | 1227 | 1142) => format!("{}: {sql}: {fault}; {NEEDED}", server.addr),
        _ => format!("{}: {sql}: {fault}", server.addr),
    })
}
