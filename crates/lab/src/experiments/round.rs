//! One round: load, a change, the wait until writes flow again, the audit.

use std::time::{Duration, Instant};

use crate::error::LabError;
use crate::failover::{Audit, Clients, Clock, Load, Route, Tally};
use crate::server::Server;
use crate::wait;

/// Clients work this long before anything happens to them.
const LEAD: Duration = Duration::from_millis(700);
/// And this long after writes flow again.
const TAIL: Duration = Duration::from_millis(500);
/// But at least this long after the change began, so that the time lines of all contenders have one length.
const SHOWN: Duration = Duration::from_millis(1_350);
/// Writes that do not flow after this long are taken for lost; the round is reported without a first write.
const FLOW_LIMIT: Duration = Duration::from_secs(40);

/// The state after a change.
#[derive(Debug)]
pub struct Changed<'a> {
    /// The server that has all rows in the end.
    pub writer: &'a Server,
    /// From when on the new writer took writes; None when the writer stayed.
    pub writable: Option<Instant>,
}

/// The clients' view of a change.
#[derive(Clone, Debug)]
pub struct Round {
    /// The figures.
    pub tally: Tally,
    /// The rows.
    pub audit: Audit,
    /// Whether writes flowed again.
    pub is_flowing: bool,
}

/// Makes the clients' table, fresh, and waits until readers have it.
pub fn prepare(writer: &Server, readers: &[&Server]) -> Result<(), LabError> {
    let mut root = writer.root()?;
    root.run("DROP TABLE IF EXISTS test.writes")?;
    root.run(Clients::TABLE)?;
    root.run("INSERT INTO test.writes(n, id) VALUES(1, 0)")?;
    let there = |server: &Server| server.scalar("SELECT id FROM test.writes WHERE n = 1").ok().flatten().map(drop);
    readers.iter().try_for_each(|server| {
        let what = format!("port {} to have the clients' table", server.port());
        wait::until(&what, FLOW_LIMIT, || there(server))
    })?;
    // Ids begin above 2^32: this row was only to be waited for.
    root.run("DELETE FROM test.writes WHERE n = 1").map(drop)
}

/// Runs `change` while clients work, and waits until writes flow again.
pub fn run<'a>(route: &Route, load: Load, change: impl FnOnce() -> Result<Changed<'a>, LabError>) -> Result<Round, LabError> {
    let clock = Clock::start();
    let clients = Clients::start(load, route, clock);
    let lead_us = u64::try_from(LEAD.as_micros()).unwrap_or(u64::MAX);
    let works = wait::until("clients to write", FLOW_LIMIT, || (clients.last_write_us() > lead_us).then_some(()));
    if let Err(error) = works {
        let failure = clients.stop().failures().next().map(|(_, failure)| failure.text.clone());
        return Err(LabError::Protocol(format!("{error}; the first error: {failure:?}")));
    }
    let change_us = clock.now_us();
    let changed = change();
    let flows_from = changed.as_ref().ok().and_then(|changed| changed.writable).map_or(clock.now_us(), |at| clock.at_us(at));
    let is_flowing = wait::until("writes", FLOW_LIMIT, || (clients.last_write_us() > flows_from).then_some(())).is_ok();
    let shown = SHOWN.saturating_sub(Duration::from_micros(clock.now_us().saturating_sub(change_us)));
    std::thread::sleep(TAIL.max(shown));
    let recording = clients.stop();
    let changed = changed?;
    let tally = Tally::of(&recording, change_us, changed.writable.map(|at| clock.at_us(at)));
    Ok(Round { tally, audit: Audit::of(&recording, changed.writer)?, is_flowing })
}
