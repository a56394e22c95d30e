//! What plans of earlier processes left: channels that are stopped, and a record that says less than what was done.
//!
//! Notes of this proxy's file and the shared record are of different plans. Neither waits for the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::snapshot::{HookMoment, Server};
use model::{HostgroupId, ServerAddr};
use topology::healing::{Facts, Heir, Lease, Phase, Record, Settled, Stopped, Turn, settle, turn};

use super::hooks::{self, Told};
use super::promote::{Field, settle_record};
use crate::monitor::Monitor;
use crate::operator::{Tenure, resume};

/// The part of it that can be ended now.
#[derive(Debug)]
pub(super) struct Thaw {
    /// The record, if it is that of several proxies; this proxy's file otherwise.
    record: Option<Record>,
    due: Vec<(Arc<Server>, Vec<Stopped>)>,
    left: Vec<Stopped>,
    /// What is seen of the server that the plan promotes.
    heir: Heir,
}

impl Thaw {
    /// What this proxy stopped while it was alone (`own`), then what the record says.
    pub(super) fn all(field: &Field<'_>, facts: &Facts, own: &[Stopped], lease: &Lease, (record, seen): (Record, Heir)) -> Vec<Self> {
        let of_record = if *lease == Lease::Alone { None } else { Self::of_record(field, facts, lease, (record, seen)) };
        Self::of_file(field, facts, own).into_iter().chain(of_record).collect()
    }

    fn of_file(field: &Field<'_>, facts: &Facts, stopped: &[Stopped]) -> Option<Self> {
        let (due, left) = due(field, facts, stopped);
        let is_over = stopped.is_empty() || (due.is_empty() && left == stopped);
        (!is_over).then(|| Self { record: None, due: known(field, due), left, heir: Heir::Silent })
    }

    fn of_record(field: &Field<'_>, facts: &Facts, lease: &Lease, (record, seen): (Record, Heir)) -> Option<Self> {
        let (mut due, left) = due(field, facts, &record.stopped);
        // Whether it was opened is asked again, under the lock.
        if let Some(heir) = heir(&record).filter(|heir| answers(facts, heir)) {
            due.entry(heir.clone()).or_default();
        }
        let is_settled = turn(lease, &record) != Turn::Settle || matches!(settle(&record, seen), Settled::Unclear(_));
        let is_over = is_settled && (record.stopped.is_empty() || (due.is_empty() && left == record.stopped));
        (!is_over).then(|| Self { record: Some(record), due: known(field, due), left, heir: seen })
    }

    /// Puts it back, and writes down what is left.
    pub(super) async fn run(mut self, monitor: &Arc<Monitor>, tenure: &Tenure, writer: HostgroupId) {
        for (server, all) in std::mem::take(&mut self.due) {
            let addr = server.key.addr();
            let is_heir = self.record.as_ref().and_then(heir) == Some(&addr);
            match resume(monitor, tenure, &server, &all, self.record.is_some()).await {
                Ok(open) => {
                    self.left.retain(|one| one.server != addr);
                    self.heir = if is_heir { Heir::of(open) } else { self.heir };
                }
                Err(why) => {
                    tracing::warn!("{addr}: its channel is stopped and cannot be started: {why}");
                    if is_heir {
                        return;
                    }
                }
            }
        }
        let Self { record, left, heir, .. } = self;
        let written = if let Some(record) = record {
            end_plan(monitor, writer, record, left, heir).await
        } else {
            let monitor = Arc::clone(monitor);
            let written = tokio::task::spawn_blocking(move || monitor.healing.orders.stop(writer, left)).await;
            written.unwrap_or_else(|e| Err(e.to_string()))
        };
        if let Err(why) = written {
            tracing::warn!("healing of hostgroup {writer}: {why}");
        }
    }
}

/// Writes down that a plan of another healer is over, and what is left of it. A promotion that ends by that has its event and its programs
/// of `after` here.
async fn end_plan(monitor: &Arc<Monitor>, writer: HostgroupId, record: Record, left: Vec<Stopped>, heir: Heir) -> Result<(), String> {
    let Record { plan, healer, from, heir: new, .. } = record;
    let is_opened = Arc::new(AtomicBool::new(false));
    let opens = Arc::clone(&is_opened);
    let written = monitor.write_record(writer, true, move |now| {
        opens.store(settle_record(now, &plan, &left, heir)?, Ordering::Release);
        Ok(())
    });
    written.await?;
    if let Some(new) = new.filter(|_| is_opened.load(Ordering::Acquire)) {
        let reason = format!("{healer} did not end this promotion, so this proxy did");
        tracing::info!("healing of hostgroup {writer}: {new}: promoted: {reason}");
        monitor.note_rejoin(writer, &new, "promoted", &reason);
        let told = Told { old: from, new: Some(new), reason, ..Told::default() };
        // The log has what failed.
        let _ = hooks::run(monitor, writer, HookMoment::After, &told).await;
    }
    Ok(())
}

/// The server that a plan may have opened.
fn heir(record: &Record) -> Option<&ServerAddr> {
    record.heir.as_ref().filter(|_| record.phase == Phase::Fork)
}

fn answers(facts: &Facts, addr: &ServerAddr) -> bool {
    facts.replicas.iter().any(|one| one.addr == *addr && one.silence.is_none() && !one.is_open)
}

/// What is put back where servers answer and do not write, and what stays noted. A server that is gone, or that writes, needs nothing.
fn due(field: &Field<'_>, facts: &Facts, stopped: &[Stopped]) -> (BTreeMap<ServerAddr, Vec<Stopped>>, Vec<Stopped>) {
    let is_known = |addr: &ServerAddr| field.servers.iter().any(|server| server.key.addr() == *addr);
    let writes = |addr: &ServerAddr| facts.primary.as_ref().is_some_and(|primary| primary.addr == *addr && facts.is_alive);
    let mut due: BTreeMap<ServerAddr, Vec<Stopped>> = BTreeMap::new();
    for one in stopped.iter().filter(|one| answers(facts, &one.server)) {
        due.entry(one.server.clone()).or_default().push(one.clone());
    }
    let left = stopped.iter().filter(|one| is_known(&one.server) && !writes(&one.server)).cloned().collect();
    (due, left)
}

fn known(field: &Field<'_>, due: BTreeMap<ServerAddr, Vec<Stopped>>) -> Vec<(Arc<Server>, Vec<Stopped>)> {
    let server = |addr: &ServerAddr| field.servers.iter().find(|server| server.key.addr() == *addr).cloned();
    due.into_iter().filter_map(|(addr, all)| Some((server(&addr)?, all))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{server, snapshot};
    use topology::healing::Replica;

    fn addr(host: &str) -> ServerAddr {
        ServerAddr { host: host.into(), port: 3306 }
    }

    #[test]
    fn notes_of_the_file_do_not_hide_a_plan_that_nobody_ended() {
        let shared = "admin_variables = { shared_config_endpoints=\"http://127.0.0.1:2379\" }
            mysql_servers = ( { address=\"a\", hostgroup=10 } )
            mysql_replication_hostgroups = ( { writer_hostgroup=10, reader_hostgroup=11 } )
            mysql_healing = ( { writer_hostgroup=10, mode=\"full\" } )";
        let snapshot = snapshot(shared);
        let servers = ["a", "b", "c"].map(|host| server(host, 3306));
        let field = Field { policy: &snapshot.healing[&HostgroupId(10)], servers: &servers, check: None };
        let replica = |host: &str| Replica { silence: None, is_open: false, ..Replica::silent(addr(host), "") };
        let facts = Facts { replicas: vec![replica("b"), replica("c")], ..Facts::default() };
        let stopped = |host: &str| Stopped::receiver(addr(host), String::new(), Some(addr("a")));
        let mut record = Record::default();
        record.begin("p", "two", &addr("a"), Vec::new());
        record.fork(&addr("b"), topology::GtidSet::default(), 5);
        let begun = |own: &[Stopped], lease: &Lease, record: &Record| {
            let all = Thaw::all(&field, &facts, own, lease, (record.clone(), Heir::Closed));
            let servers = |thaw: &Thaw| thaw.due.iter().map(|(server, _)| server.key.addr()).collect::<Vec<_>>();
            all.iter().map(|thaw| (thaw.record.is_some(), servers(thaw))).collect::<Vec<_>>()
        };
        let of_record = (true, vec![addr("b")]);
        assert_eq!(begun(&[], &Lease::Own(9), &record), std::slice::from_ref(&of_record));
        assert_eq!(begun(&[stopped("c")], &Lease::Own(9), &record), [(false, vec![addr("c")]), of_record.clone()]);
        // Of a server that does not answer.
        assert_eq!(begun(&[stopped("a")], &Lease::Own(9), &record), [of_record]);
        assert_eq!(begun(&[stopped("c")], &Lease::Alone, &record), [(false, vec![addr("c")])]);
        assert!(begun(&[], &Lease::Own(9), &Record::default()).is_empty());
        assert_eq!(begun(&[stopped("gone")], &Lease::Alone, &Record::default()), [(false, vec![])], "it is noted no more");
    }
}
