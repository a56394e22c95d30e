//! The rows of `stats_tidegate_servers`: where each server stands, since when and why, and how far it is behind.

use std::collections::BTreeMap;

use model::fleet::{Layout, Placement};
use model::snapshot::{RoleGroup, RoleKind, ServerStatus, Snapshot};
use model::stats::Value;
use model::{HostgroupId, ServerAddr};
use topology::{CheckKind, Lag};

use crate::lane::Checked;
use crate::monitor::{Monitor, error_text, lock};
use crate::probe::Found;

/// Since when each server has its status in each hostgroup.
#[derive(Debug, Default)]
pub(crate) struct Since {
    revision: u64,
    statuses: BTreeMap<(HostgroupId, ServerAddr), (ServerStatus, u64)>,
}

impl Since {
    /// Takes a layout that holds from `now_ms` on. An older one than the last is passed over.
    pub(crate) fn note(&mut self, layout: &Layout, now_ms: u64) {
        if layout.revision < self.revision {
            return;
        }
        let old = std::mem::take(&mut self.statuses);
        let entry = |(id, placement): (&HostgroupId, &Placement)| {
            let key = (*id, placement.server.key.addr());
            let kept = old.get(&key).filter(|(status, _)| *status == placement.status);
            let value = kept.copied().unwrap_or((placement.status, now_ms));
            (key, value)
        };
        let placed = layout.hostgroups.iter().flat_map(|(id, placed)| placed.iter().map(move |placement| (id, placement)));
        self.statuses = placed.map(entry).collect();
        self.revision = layout.revision;
    }

    /// When the server got the status that it has there; `now_ms` for one that was never noted.
    fn of(&self, id: HostgroupId, addr: &ServerAddr, now_ms: u64) -> u64 {
        self.statuses.get(&(id, addr.clone())).map_or(now_ms, |(_, since_ms)| *since_ms)
    }
}

pub(super) fn rows(monitor: &Monitor) -> Vec<Vec<Value>> {
    let (snapshot, layout, now_ms) = (monitor.snapshot(), monitor.layout(), monitor.clock.now_ms());
    let (lags, measured) = (latest_lags(monitor), monitor.measured_for_lag());
    let since = lock(&monitor.since);
    let row = |id: HostgroupId, placement: &Placement| {
        let addr = placement.server.key.addr();
        let group = snapshot.roles.iter().find(|group| group.hostgroups().any(|claimed| claimed == id));
        let lag = lags.get(&addr).filter(|_| measured.contains(&addr));
        let (repl_lag, note) = match lag {
            Some(checked) => shown(checked),
            None => (None, unmeasured(&snapshot, measured.contains(&addr)).to_owned()),
        };
        let is_stray = group.is_some_and(|group| is_stray(group, &layout, &addr, lag.and_then(told)));
        vec![
            id.0.into(),
            (&*addr.host).into(),
            addr.port.into(),
            group.map(|group| group.writer.0).into(),
            group.map(|group| role(group, id)).unwrap_or_default().into(),
            placement.status.as_str().into(),
            now_ms.saturating_sub(since.of(id, &addr, now_ms)).into(),
            (&*placement.why).into(),
            repl_lag.into(),
            note.into(),
            u32::from(is_stray).into(),
        ]
    };
    layout.hostgroups.iter().flat_map(|(id, placed)| placed.iter().map(|placement| row(*id, placement))).collect()
}

/// The last result of the lag check of each server.
fn latest_lags(monitor: &Monitor) -> BTreeMap<ServerAddr, Checked> {
    lock(&monitor.log).results(CheckKind::Lag).map(|checked| (checked.addr.clone(), checked.clone())).collect()
}

fn told(checked: &Checked) -> Option<Lag> {
    match checked.outcome {
        Ok(Found::Lag(lag)) => Some(lag),
        _ => None,
    }
}

/// The lag that a check found, s, or why it found none.
fn shown(checked: &Checked) -> (Option<u64>, String) {
    match &checked.outcome {
        Ok(Found::Lag(Lag::Behind(ms))) => (Some(ms / 1_000), String::new()),
        Ok(Found::Lag(Lag::NotReplica)) => (None, "replicates from no server".to_owned()),
        Ok(Found::Lag(Lag::Member)) => (None, "member of a cluster without replicas".to_owned()),
        Ok(_) => (None, "unknown: a replication thread is stopped or broken".to_owned()),
        Err(error) => (None, format!("the check fails: {}", error_text(error, checked.timeout_ms))),
    }
}

/// Why a server has no result of a lag check.
fn unmeasured(snapshot: &Snapshot, is_measured: bool) -> &'static str {
    match (snapshot.vars.monitor_enabled, is_measured) {
        (false, _) => "not measured: mysql-monitor_enabled=false",
        (true, true) => "not measured yet",
        (true, false) => "not measured: max_replication_lag=0",
    }
}

/// Whether a server grows old: it replicates from no server and does not write, while another server of its cluster writes.
fn is_stray(group: &RoleGroup, layout: &Layout, addr: &ServerAddr, lag: Option<Lag>) -> bool {
    let placed = layout.hostgroups.get(&group.writer).map(Vec::as_slice).unwrap_or_default();
    let mut writers = placed.iter().filter(|placement| placement.status == ServerStatus::Online).peekable();
    let is_replicated = matches!(group.kind, RoleKind::Replication(_));
    is_replicated && lag == Some(Lag::NotReplica) && writers.peek().is_some() && writers.all(|writer| writer.server.key.addr() != *addr)
}

fn role(group: &RoleGroup, id: HostgroupId) -> &'static str {
    match id {
        id if id == group.writer => "writer",
        id if id == group.reader => "reader",
        id if group.backup_writer == Some(id) => "backup_writer",
        _ => "offline",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use topology::ProbeError;

    use super::*;

    const CONFIG: &str = "mysql_servers = ( { hostgroup=1, address=\"a\", port=3306 }, { hostgroup=2, address=\"b\", port=3306 } )
        mysql_replication_hostgroups = ( { writer_hostgroup=1, reader_hostgroup=2 } )";

    fn compiled() -> Arc<Snapshot> {
        Arc::new(Snapshot::compile(&model::parse(CONFIG, "t.cnf").unwrap().0).unwrap())
    }

    fn addr(host: &str) -> ServerAddr {
        ServerAddr { host: host.into(), port: 3306 }
    }

    #[test]
    fn a_status_counts_from_its_change() {
        let mut layout = Layout::as_configured(&compiled());
        let mut since = Since::default();
        since.note(&layout, 10);
        let shunned = |layout: &mut Layout, status| layout.hostgroups.get_mut(&HostgroupId(2)).unwrap()[0].status = status;
        for (revision, status, now_ms) in [(1, ServerStatus::Online, 20), (2, ServerStatus::Shunned, 30), (3, ServerStatus::Online, 40)] {
            layout.revision = revision;
            shunned(&mut layout, status);
            since.note(&layout, now_ms);
        }
        assert_eq!(since.of(HostgroupId(2), &addr("b"), 99), 40, "the recovery");
        assert_eq!(since.of(HostgroupId(1), &addr("a"), 99), 10, "nothing happened to it");
        layout.revision = 2;
        shunned(&mut layout, ServerStatus::Shunned);
        since.note(&layout, 50);
        assert_eq!(since.of(HostgroupId(2), &addr("b"), 99), 40, "an older layout");
        layout.revision = 4;
        layout.hostgroups.clear();
        since.note(&layout, 60);
        assert!(since.statuses.is_empty(), "servers that are gone are not kept");
    }

    #[test]
    fn lag_is_a_number_or_a_reason() {
        let shown = |outcome| {
            let (started_us, took_us, timeout_ms) = (0, 5, 800);
            shown(&Checked { addr: addr("b"), kind: CheckKind::Lag, started_us, took_us, timeout_ms, outcome })
        };
        assert_eq!(shown(Ok(Found::Lag(Lag::Behind(7_900)))), (Some(7), String::new()));
        for (outcome, why) in [
            (Ok(Found::Lag(Lag::NotReplica)), "replicates from no server"),
            (Ok(Found::Lag(Lag::Unknown)), "unknown: a replication thread"),
            (Err(ProbeError::Timeout), "the check fails: timeout"),
        ] {
            let (lag, note) = shown(outcome);
            assert!(lag.is_none() && note.starts_with(why), "{note}");
        }
        assert_eq!(unmeasured(&compiled(), false), "not measured: max_replication_lag=0");
        assert_eq!(unmeasured(&compiled(), true), "not measured yet");
    }

    #[test]
    fn a_reader_without_a_source_is_stray_while_another_server_writes() {
        let snapshot = compiled();
        let mut layout = Layout::as_configured(&snapshot);
        let group = snapshot.roles[0].clone();
        let judged = |layout: &Layout, host, lag| is_stray(&group, layout, &addr(host), lag);
        assert!(judged(&layout, "b", Some(Lag::NotReplica)));
        assert!(!judged(&layout, "b", Some(Lag::Behind(0))) && !judged(&layout, "b", Some(Lag::Member)) && !judged(&layout, "b", None));
        assert!(!judged(&layout, "a", Some(Lag::NotReplica)), "it writes");
        layout.hostgroups.get_mut(&HostgroupId(1)).unwrap()[0].status = ServerStatus::Shunned;
        assert!(!judged(&layout, "b", Some(Lag::NotReplica)), "no server writes");
    }
}
