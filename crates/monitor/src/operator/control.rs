//! A connection to a server for orders, beside those of the probes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::snapshot::Server;
use model::{Secret, ServerAddr};
use topology::CheckKind;

use super::journal::Running;
use crate::client::{Access, Connection, Fault, Rows, Version, open};
use crate::clock::{unix_us, whole};
use crate::healing::Sight;
use crate::lane::Checked;
use crate::monitor::{Account, Monitor};
use crate::probe::{self, Found, ProbeSettings};
use crate::statements::{self, Credentials, Pointing};

/// A connection may be idle until its order's deadline, and for so long beyond it: undoing is over by then.
const IDLE_BEYOND: Duration = Duration::from_secs(15);
/// In place of a password.
const HIDDEN: &str = "***";

/// See the module.
pub(super) struct Control {
    pub(super) addr: ServerAddr,
    monitor: Arc<Monitor>,
    connection: Connection,
}

impl Control {
    /// Logs in as the monitor's user, for an order with this deadline.
    pub(super) async fn open(monitor: &Arc<Monitor>, server: &Arc<Server>, deadline: Instant) -> Result<Self, String> {
        let addr = server.key.addr();
        // Longer than the probes' limit: a switchover's connection is idle while it waits for sessions, and holds a lock.
        let idle = deadline.saturating_duration_since(Instant::now()) + IDLE_BEYOND;
        let access = Access { wait_timeout_s: Some(idle.as_secs()), ..Account::of(&monitor.snapshot()).access(server) };
        let connection = open(&monitor.connector, &access).await.map_err(|fault| format!("{addr}: {fault}"))?;
        Ok(Self { addr, monitor: Arc::clone(monitor), connection })
    }

    /// The version that the greeting gave.
    pub(super) fn version(&self) -> &Version {
        self.connection.version()
    }

    /// Asks; the error names server and statement.
    pub(super) async fn ask(&mut self, sql: &str) -> Result<Rows, String> {
        self.try_ask(sql).await.map_err(|fault| format!("{}: {sql}: {fault}", self.addr))
    }

    /// Asks; the caller interprets the error.
    pub(super) async fn try_ask(&mut self, sql: &str) -> Result<Rows, Fault> {
        self.connection.query(sql).await
    }

    /// As [`Control::try_ask`], for a statement that changes something or belongs to a plan: it is a row of the history. `step` says what it
    /// is for.
    pub(super) async fn try_do(&mut self, step: &str, sql: &str) -> Result<Rows, Fault> {
        let running = Running::new(&self.monitor, &self.addr, step, sql.to_owned());
        let outcome = self.try_ask(sql).await;
        running.ended(outcome.as_ref().map(drop).map_err(ToString::to_string));
        outcome
    }

    /// The first value of the answer; empty for none.
    pub(super) async fn value(&mut self, sql: &str) -> Result<String, String> {
        Ok(self.ask(sql).await?.scalar().unwrap_or_default().to_owned())
    }

    /// The first value of the answer, for use in another statement. An error if it holds anything but letters, digits and these marks,
    /// because any server may answer at the address.
    pub(super) async fn plain(&mut self, sql: &str, marks: &str) -> Result<String, String> {
        let value = self.value(sql).await?;
        if is_plain(&value, marks) { Ok(value) } else { Err(format!("{}: {sql}: not a known answer", self.addr)) }
    }

    /// The rows of `SHOW REPLICA STATUS`, one per channel.
    pub(super) async fn channels(&mut self) -> Result<Rows, String> {
        probe::channels(&mut self.connection).await.map_err(|fault| format!("{}: {fault}", self.addr))
    }

    /// Whether it receives changes of other servers.
    pub(super) async fn replicates(&mut self) -> Result<bool, String> {
        probe::replicates(&mut self.connection).await.map_err(|fault| format!("{}: {fault}", self.addr))
    }

    /// What it says that has to do with healing.
    pub(super) async fn sight(&mut self) -> Result<Sight, String> {
        crate::healing::look(&mut self.connection).await.map_err(|fault| format!("{}: {fault}", self.addr))
    }

    /// Has it do something about its channels; the error says `what`, never the statement.
    pub(super) async fn tell(&mut self, sql: &str, what: &str) -> Result<(), String> {
        self.tell_all(sql, what, None).await
    }

    /// Sets a global variable.
    pub(super) async fn tell_setting(&mut self, sql: &str) -> Result<(), String> {
        self.try_do("a variable is set", sql).await.map(drop).map_err(|fault| format!("{}: {sql}: {fault}", self.addr))
    }

    /// Points a stopped channel.
    pub(super) async fn change(&mut self, to: &Pointing<'_>) -> Result<(), String> {
        statements::plain_texts(&mut self.connection).await?;
        let sql = statements::point(self.connection.version(), to);
        let hidden = to.credentials.map(|account| Credentials { user: account.user.clone(), password: Secret::from(HIDDEN) });
        let shown =
            hidden.as_ref().map(|hidden| statements::point(self.connection.version(), &Pointing { credentials: Some(hidden), ..*to }));
        self.tell_all(&sql, &format!("its channel is pointed at {}", to.source), shown).await
    }

    /// `shown` is the statement without its password, if it has one.
    async fn tell_all(&mut self, sql: &str, what: &str, shown: Option<String>) -> Result<(), String> {
        let has_secret = shown.is_some();
        let running = Running::new(&self.monitor, &self.addr, what, shown.unwrap_or_else(|| sql.to_owned()));
        let needs = if sql.starts_with("RESET") { statements::FORGET_PRIVILEGE } else { statements::privilege(self.connection.version()) };
        let told = statements::tell(&mut self.connection, sql, needs, has_secret).await;
        running.ended(told.clone());
        told.map_err(|why| format!("{}: {what}: {why}", self.addr))
    }

    /// The id of this connection, for KILL.
    pub(super) async fn id(&mut self) -> Result<u64, String> {
        const SQL: &str = "SELECT CONNECTION_ID()";
        let value = self.value(SQL).await?;
        value.parse().map_err(|_| format!("{}: {SQL}: not a known answer", self.addr))
    }

    /// Makes a check as the probes do, and decides by it.
    pub(super) async fn look(&mut self, kind: CheckKind) -> Result<Found, String> {
        let (started_us, begun) = (unix_us(), Instant::now());
        let settings = ProbeSettings::of(&self.monitor.snapshot());
        let outcome = probe::look(kind, &mut self.connection, &settings).await;
        let answer = outcome.as_ref().map(Found::clone).map_err(|fault| format!("{}: {fault}", self.addr));
        let outcome = outcome.map_err(Fault::into_probe_error);
        let took_us = whole(begun.elapsed().as_micros());
        self.monitor.checked(Checked { addr: self.addr.clone(), kind, started_us, took_us, timeout_ms: 0, outcome });
        // The order's next step may depend on the result.
        self.monitor.take_sightings();
        answer
    }
}

fn is_plain(text: &str, marks: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || marks.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_again_ends_no_literal() {
        const GTIDS: &str = "-:,_ ";
        for text in ["", "0-1-5,7-2-9", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7:tag_1:9, 3e11fa47-71ca-11e1-9e33-c80aa9429563:1"] {
            assert!(is_plain(text, GTIDS), "{text}");
        }
        for text in ["0-1-5',0) UNION SELECT 1 INTO OUTFILE '/tmp/x' -- ", "0-1-5\\", "0-1-5\"", "0-1-5)", "0-1-5;", "0-1-\u{2019}", "\0"] {
            assert!(!is_plain(text, GTIDS), "{text}");
        }
        assert!(!is_plain("a b", "-"));
    }
}
