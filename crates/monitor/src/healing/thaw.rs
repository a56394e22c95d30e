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
use super::orders::{Left, Opening};
use super::promote::{Field, heir_of, settle_record};
use crate::monitor::Monitor;
use crate::operator::{Tenure, resume};

/// The part of it that can be ended now.
#[derive(Debug)]
pub(super) struct Thaw {
    /// The record, if it is that of several proxies; this proxy's file otherwise.
    record: Option<Record>,
    /// Of the file: the promotion of which it is not known whether its server was opened.
    opening: Option<Opening>,
    due: Vec<(Arc<Server>, Vec<Stopped>)>,
    left: Vec<Stopped>,
    /// What is seen of the server that the plan promotes.
    heir: Heir,
}

impl Thaw {
    /// What this proxy left while it was alone (`own`), then what the record says.
    pub(super) fn all(field: &Field<'_>, facts: &Facts, own: &Left, lease: &Lease, (record, seen): (Record, Heir)) -> Vec<Self> {
        let of_record = if *lease == Lease::Alone { None } else { Self::of_record(field, facts, lease, (record, seen)) };
        Self::of_file(field, facts, own).into_iter().chain(of_record).collect()
    }

    fn of_file(field: &Field<'_>, facts: &Facts, own: &Left) -> Option<Self> {
        let Left { stopped, opening } = own;
        let (mut due, left) = due(field, facts, stopped);
        let heir = opening.as_ref().map(|opening| &opening.heir);
        // Whether it was opened is asked again, under the lock.
        if let Some(heir) = heir.filter(|heir| answers(facts, heir)) {
            due.entry(heir.clone()).or_default();
        }
        let is_open = heir_of(&Record { heir: heir.cloned(), ..Record::default() }, facts) == Heir::Open;
        let is_over = !is_open && due.is_empty() && left == *stopped;
        let heir = if is_open { Heir::Open } else { Heir::Silent };
        (!is_over).then(|| Self { record: None, opening: opening.clone(), due: known(field, due), left, heir })
    }

    fn of_record(field: &Field<'_>, facts: &Facts, lease: &Lease, (record, seen): (Record, Heir)) -> Option<Self> {
        let (mut due, left) = due(field, facts, &record.stopped);
        // Whether it was opened is asked again, under the lock.
        if let Some(heir) = heir(&record).filter(|heir| answers(facts, heir)) {
            due.entry(heir.clone()).or_default();
        }
        let is_settled = turn(lease, &record) != Turn::Settle || matches!(settle(&record, seen), Settled::Unclear(_));
        let is_over = is_settled && (record.stopped.is_empty() || (due.is_empty() && left == record.stopped));
        (!is_over).then(|| Self { record: Some(record), opening: None, due: known(field, due), left, heir: seen })
    }

    /// Puts it back, and writes down what is left.
    pub(super) async fn run(mut self, monitor: &Arc<Monitor>, tenure: &Tenure, writer: HostgroupId) {
        for (server, all) in std::mem::take(&mut self.due) {
            let addr = server.key.addr();
            let is_heir = self.record.as_ref().map_or(self.opening.as_ref().map(|opening| &opening.heir), heir) == Some(&addr);
            match resume(monitor, tenure, &server, &all, self.record.is_some()).await {
                Ok(open) => {
                    self.left.retain(|one| one.server != addr);
                    self.heir = if is_heir { Heir::of(open) } else { self.heir };
                }
                Err(why) => {
                    tracing::warn!("{addr}: its channel is stopped and cannot be started: {why}");
                    if is_heir && self.record.is_some() {
                        return;
                    }
                }
            }
        }
        self.end(monitor, writer).await;
    }

    /// Writes down what came of it.
    async fn end(self, monitor: &Arc<Monitor>, writer: HostgroupId) {
        let Self { record, opening, left, heir, .. } = self;
        let written = match record {
            Some(record) => end_plan(monitor, writer, record, left, heir).await,
            None => end_own(monitor, writer, (left, opening), heir).await,
        };
        if let Err(why) = written {
            tracing::warn!("healing of hostgroup {writer}: {why}");
        }
    }
}

/// Writes down what is left of this proxy's plan, and what is seen of the server that it promotes. A server that was not opened was not
/// promoted.
async fn end_own(
    monitor: &Arc<Monitor>,
    writer: HostgroupId,
    (left, opening): (Vec<Stopped>, Option<Opening>),
    seen: Heir,
) -> Result<(), String> {
    let me = Arc::clone(monitor);
    let written = tokio::task::spawn_blocking(move || {
        let orders = &me.healing.orders;
        orders.stop(writer, left)?;
        match seen {
            Heir::Open => orders.was_opened(writer),
            Heir::Closed => orders.was_not_opened(writer),
            Heir::Silent | Heir::Gone => Ok(()),
        }
    });
    written.await.map_err(|e| e.to_string())??;
    if let Some(Opening { heir, .. }) = opening.filter(|_| seen == Heir::Closed) {
        tracing::info!("healing of hostgroup {writer}: {heir} was not opened: the plan of an earlier process did not end");
        monitor.decide(|topology, now_ms| topology.forget_fork(now_ms, writer, &heir));
    }
    Ok(())
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
    use crate::healing::Promoted;
    use crate::healing::orders::unix_ms;
    use crate::healing::promote::Promoting;
    use crate::testing::{server, snapshot};
    use model::fleet::RoleKeeper;
    use model::snapshot::ReadOnlyCheck;
    use topology::Fork;
    use topology::healing::{Brakes, Death, Due, Replica, Verdict, choose, due as due_now};

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
            let own = Left { stopped: own.to_vec(), opening: None };
            let all = Thaw::all(&field, &facts, &own, lease, (record.clone(), Heir::Closed));
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

    #[tokio::test]
    async fn a_server_that_a_lone_proxy_did_not_open_was_not_promoted() {
        const TEN: HostgroupId = HostgroupId(10);
        let snapshot = snapshot(
            "admin_variables = { healing_alone=true }
            mysql_servers = ( { address=\"a\", hostgroup=10 }, { address=\"b\", hostgroup=10 } )
            mysql_replication_hostgroups = ( { writer_hostgroup=10, reader_hostgroup=11 } )
            mysql_healing = ( { writer_hostgroup=10, mode=\"full\" } )",
        );
        let servers = ["a", "b"].map(|host| server(host, 3306));
        let field = Field { policy: &snapshot.healing[&TEN], servers: &servers, check: Some(ReadOnlyCheck::ReadOnly) };
        let facts = |is_open| {
            let replica = Replica { silence: None, is_open, ..Replica::silent(addr("b"), "") };
            Facts { replicas: vec![replica], ..Facts::default() }
        };
        let silent = Facts { replicas: vec![Replica::silent(addr("b"), "gone")], ..Facts::default() };
        for (seen, is_promoted) in [(Heir::Closed, false), (Heir::Open, true)] {
            let monitor = Monitor::new();
            monitor.configure(&snapshot);
            let (heir, from, had) = (addr("b"), vec![addr("a")], topology::GtidSet::default());
            let fork = Fork { writer: TEN, heir: heir.clone(), at_ms: 0, from, had, is_exact: true, is_noted: true };
            monitor.decide(|topology, now_ms| topology.note_fork(now_ms, &fork));
            let orders = &monitor.healing.orders;
            orders.stop(TEN, vec![Stopped::receiver(addr("b"), String::new(), Some(addr("a")))]).unwrap();
            orders.will_open(TEN, Promoted { heir, at_ms: unix_ms(), is_acknowledged: false }).unwrap();
            let is_held = || {
                let facts = facts(false);
                let brakes = Brakes { looked_ms: u64::MAX, ..Promoting::new().brakes(&monitor, &field) };
                due_now(Verdict::Alive, &choose(&facts, field.policy), &Death::default(), &brakes) != Due::Rest
            };
            let all = |facts: &Facts| Thaw::all(&field, facts, &orders.left(TEN), &Lease::Alone, (Record::default(), Heir::Silent));
            assert!(all(&silent).is_empty() && is_held(), "it may have been opened");
            let mut thaw = all(&facts(seen == Heir::Open)).pop().unwrap();
            // The server is asked under its lock, unless it is seen to write.
            assert_eq!((thaw.due.len(), thaw.heir), if is_promoted { (0, Heir::Open) } else { (1, Heir::Silent) });
            (thaw.heir, thaw.left) = (seen, Vec::new());
            thaw.end(&monitor, TEN).await;
            assert_eq!((orders.left(TEN), orders.promoted(TEN).is_some()), (Left::default(), is_promoted));
            assert_eq!((monitor.past(TEN).0.len(), is_held()), (usize::from(is_promoted), is_promoted));
        }
    }
}
