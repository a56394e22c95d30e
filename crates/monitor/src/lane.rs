//! A lane: checks of one server that share a connection and run one after the other.
//!
//! A server has up to three lanes. A slow check (`SHOW REPLICA STATUS` while replication is stopped, a topology table, a login) then delays
//! no check that decides roles. A lane is a task that ends when it is aborted or its plan is dropped, and its connection with it. If the
//! server ends an idle connection, the lane looks at once: a crash is seen before the next check is due.

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::ServerAddr;
use tokio::sync::watch;
use topology::{Check, CheckKind, ProbeError};

use crate::client::{self, Access, Connection, Connector, Fault};
use crate::clock::{unix_us, whole};
use crate::monitor::Monitor;
use crate::probe::{self, Found, ProbeSettings};
use crate::timetable::Timetable;

/// Least time between two looks for that reason: a server that ends every connection at once is not to be asked in a loop.
const HURRY_MIN: Duration = Duration::from_millis(100);

/// Which checks share a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// Pings and role checks: quick, and they decide.
    Roles,
    /// Checks that may block or be slow.
    Background,
    /// A connection of its own each time.
    Login,
}

impl Lane {
    /// The lane of a check.
    pub(crate) fn of(kind: CheckKind) -> Self {
        match kind {
            CheckKind::Ping | CheckKind::ReadOnly(_) | CheckKind::Galera | CheckKind::Group => Self::Roles,
            CheckKind::Lag | CheckKind::Gtids | CheckKind::Sources | CheckKind::Aurora | CheckKind::BufferPool => Self::Background,
            // It is so rare that a server would end an idle connection before.
            CheckKind::Connect | CheckKind::RdsTopology => Self::Login,
        }
    }
}

/// A lane's checks and their settings; a new plan replaces it while the lane runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LanePlan {
    /// At most one of each kind.
    pub(crate) checks: Vec<Check>,
    /// How the server is reached.
    pub(crate) access: Access,
    pub(crate) settings: ProbeSettings,
    /// Time over which first checks are spread.
    pub(crate) spread: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Checked {
    pub(crate) addr: ServerAddr,
    pub(crate) kind: CheckKind,
    /// When it began, Unix us.
    pub(crate) started_us: u64,
    pub(crate) took_us: u64,
    /// How long it was allowed to take, ms.
    pub(crate) timeout_ms: u64,
    /// The finding, or the error.
    pub(crate) outcome: Result<Found, ProbeError>,
}

/// Makes the checks of one lane for as long as there is a plan.
pub(crate) async fn run(monitor: Arc<Monitor>, addr: ServerAddr, mut plans: watch::Receiver<Arc<LanePlan>>) {
    let mut table = Timetable::default();
    let mut line = Line::default();
    let mut plan = Arc::clone(&plans.borrow_and_update());
    table.set(&plan.checks, Instant::now(), plan.spread);
    loop {
        if plans.has_changed().is_err() {
            return;
        }
        if plans.has_changed().unwrap_or_default() {
            plan = Arc::clone(&plans.borrow_and_update());
            table.set(&plan.checks, Instant::now(), plan.spread);
        }
        let Some((due, kind)) = table.next() else {
            let _ = plans.changed().await;
            continue;
        };
        let now = Instant::now();
        if due > now {
            tokio::select! {
                biased;
                _ = plans.changed() => plans.mark_changed(),
                () = line.ended() => line.close(&mut table),
                () = tokio::time::sleep_until(due.into()) => {}
            }
            continue;
        }
        table.begin(kind, now);
        if let Some(check) = plan.checks.iter().find(|check| check.kind == kind) {
            let started_us = unix_us();
            let had_connection = line.open.is_some();
            let outcome = line.check(&monitor.connector, check, &plan).await;
            // The server ended an open connection: it may have crashed, so the next checks are due at once.
            if had_connection && line.open.is_none() && outcome.is_err() {
                line.close(&mut table);
            }
            let took_us = whole(now.elapsed().as_micros());
            monitor.checked(Checked { addr: addr.clone(), kind, started_us, took_us, timeout_ms: check.timeout_ms, outcome });
        }
    }
}

/// A lane's connection, if there is one.
#[derive(Debug, Default)]
struct Line {
    open: Option<Open>,
    hurried: Option<Instant>,
}

#[derive(Debug)]
struct Open {
    connection: Connection,
    access: Access,
    /// The last check over it failed: rights, passwords and much else hold as they were when it was opened.
    is_doubted: bool,
}

impl Open {
    /// Whether it serves, and is as it would be opened now.
    fn is_for(&self, access: &Access, connector: &Connector) -> bool {
        let host = &access.server.key.host;
        !self.is_doubted && self.access == *access && self.connection.peer().is_none_or(|ip| connector.resolver.stands_for(host, ip))
    }
}

impl Line {
    /// Makes one check, in its time. What takes longer takes the connection with it, as the answer may still come.
    async fn check(&mut self, connector: &Connector, check: &Check, plan: &LanePlan) -> Result<Found, ProbeError> {
        let limit = Duration::from_millis(check.timeout_ms);
        match tokio::time::timeout(limit, self.attempt(connector, check.kind, plan)).await {
            Ok(outcome) => outcome.map_err(Fault::into_probe_error),
            Err(_) => {
                self.open = None;
                let host = &plan.access.server.key.host;
                if connector.resolver.is_unresolved(host) {
                    Err(ProbeError::Unresolved(format!("the name '{host}' was not resolved within {} ms", check.timeout_ms)))
                } else {
                    Err(ProbeError::Timeout)
                }
            }
        }
    }

    /// A connection that was idle may have been closed for that alone: then a fresh one decides.
    async fn attempt(&mut self, connector: &Connector, kind: CheckKind, plan: &LanePlan) -> Result<Found, Fault> {
        if Lane::of(kind) == Lane::Login {
            let mut connection = client::open(connector, &plan.access).await?;
            let outcome = probe::look(kind, &mut connection, &plan.settings).await;
            if !outcome.as_ref().is_err_and(Fault::breaks_connection) {
                connection.quit().await;
            }
            return outcome;
        }
        let is_reused = self.open.as_ref().is_some_and(|open| open.is_for(&plan.access, connector));
        if !is_reused && let Some(open) = self.open.take() {
            open.connection.quit().await;
        }
        match self.ask(connector, kind, plan).await {
            Err(fault) if is_reused && fault.breaks_connection() => self.ask(connector, kind, plan).await,
            outcome => outcome,
        }
    }

    async fn ask(&mut self, connector: &Connector, kind: CheckKind, plan: &LanePlan) -> Result<Found, Fault> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => {
                let connection = client::open(connector, &plan.access).await?;
                Open { connection, access: plan.access.clone(), is_doubted: false }
            }
        };
        let outcome = probe::look(kind, &mut open.connection, &plan.settings).await;
        if !outcome.as_ref().is_err_and(Fault::breaks_connection) {
            open.is_doubted = outcome.is_err();
            self.open = Some(open);
        }
        outcome
    }

    /// Waits until the server ends the connection.
    async fn ended(&mut self) {
        match &mut self.open {
            Some(open) => open.connection.ended().await,
            None => std::future::pending().await,
        }
    }

    /// It has been lost: whatever else is looked at over it is looked at now.
    fn close(&mut self, table: &mut Timetable) {
        self.open = None;
        let now = Instant::now();
        if self.hurried.is_none_or(|last| now.saturating_duration_since(last) >= HURRY_MIN) {
            self.hurried = Some(now);
            table.hurry(now);
        }
    }
}
