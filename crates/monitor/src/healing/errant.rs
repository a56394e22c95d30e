//! Transactions that a server has and the writer lacks, for operators: `stats_tidegate_errant`. They are read once from the server's binary
//! log, over a connection like a replica's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::ServerAddr;
use model::snapshot::Server;
use model::stats::Value;
use tokio::task::JoinHandle;
use topology::GtidSet;
use topology::healing::{Facts, Standing, Tended};

use super::board::Seen;
use crate::binlog::{self, TRANSACTIONS_MAX, Transaction, Wanted};
use crate::clock::whole;
use crate::log::date_time;
use crate::monitor::Monitor;

/// Longest time for one server.
const LIMIT: Duration = Duration::from_secs(60);

/// Of a transaction with compressed events, for example.
const PARTIAL: &str = "it has events that the proxy does not read: tables may be missing";

/// What was read of a server.
#[derive(Debug)]
pub(super) struct Read {
    /// The transactions that were wanted.
    extra: GtidSet,
    found: Result<Vec<Transaction>, String>,
    /// Of each whether a client of this proxy got OK for it.
    acknowledged: Vec<bool>,
}

/// See the module. One server at a time.
#[derive(Debug, Default)]
pub(super) struct Errant {
    all: BTreeMap<ServerAddr, Arc<Read>>,
    under_way: Option<(ServerAddr, JoinHandle<Read>)>,
}

impl Errant {
    /// Begins to read what was not read yet. Returns what is known.
    pub(super) async fn round(
        &mut self,
        monitor: &Arc<Monitor>,
        (servers, facts): (&[Arc<Server>], &Facts),
        tended: &[Tended],
        had: &GtidSet,
    ) -> BTreeMap<ServerAddr, Arc<Read>> {
        if let Some((server, work)) = self.under_way.take_if(|(_, work)| work.is_finished())
            && let Ok(mut read) = work.await
        {
            let gtids: Vec<String> = read.found.iter().flatten().map(|done| done.gtid.clone()).collect();
            read.acknowledged = monitor.running().map(|running| running.fleet.acknowledged(&gtids)).unwrap_or_default();
            self.all.insert(server, Arc::new(read));
        }
        let errant = || tended.iter().filter(|one| one.standing == Standing::Errant);
        self.all.retain(|addr, _| errant().any(|one| one.addr == *addr));
        let is_read = |one: &&Tended| self.all.get(&one.addr).is_some_and(|read| read.extra == one.extra);
        let next = errant().find(|one| !is_read(one)).filter(|_| self.under_way.is_none());
        let next = next.and_then(|one| Some((one, wanted(monitor, (servers, facts), one, had)?)));
        if let Some((one, wanted)) = next {
            let (monitor, extra) = (Arc::clone(monitor), one.extra.clone());
            let work = async move {
                let found = tokio::time::timeout(LIMIT, binlog::read(&monitor.connector, &wanted)).await;
                let found = found.unwrap_or_else(|_| Err(format!("the binary log was not read within {} s", LIMIT.as_secs())));
                Read { extra, found, acknowledged: Vec::new() }
            };
            self.under_way = Some((one.addr.clone(), tokio::spawn(work)));
        }
        self.all.clone()
    }
}

fn wanted(monitor: &Monitor, (servers, facts): (&[Arc<Server>], &Facts), one: &Tended, had: &GtidSet) -> Option<Wanted> {
    let snapshot = monitor.snapshot();
    let vars = &snapshot.vars;
    let (user, password) = if vars.replication_username.is_empty() {
        (&vars.monitor_username, &vars.monitor_password)
    } else {
        (&vars.replication_username, &vars.replication_password)
    };
    let replica = facts.replicas.iter().find(|replica| replica.addr == one.addr)?;
    Some(Wanted {
        server: servers.iter().find(|server| server.key.addr() == one.addr).cloned()?,
        user: user.as_str().into(),
        password: password.clone(),
        id: replica.id.clone(),
        but: replica.executed.but_for(&one.extra, had),
    })
}

/// How many there are, at least: of MariaDB the last one of each server that wrote is known before its log was read.
pub(super) fn count(seen: &Seen) -> u64 {
    let has = seen.facts.primary.as_ref().and_then(|primary| primary.latest.as_ref().or(primary.executed.as_ref()));
    let count = |one: &Tended| match seen.errant.get(&one.addr).map(|read| &read.found) {
        Some(Ok(found)) if !found.is_empty() => whole(found.len() as u128),
        _ => has.map_or(0, |has| one.extra.missing_in(has)).max(whole(one.extra.each(TRANSACTIONS_MAX).len() as u128)),
    };
    seen.tended.iter().map(count).fold(0, u64::saturating_add)
}

/// The rows of a cluster.
pub(super) fn rows(seen: &Seen) -> Vec<Vec<Value>> {
    seen.tended.iter().filter(|one| !one.extra.is_empty()).flat_map(|one| of_server(seen, one)).collect()
}

fn of_server(seen: &Seen, one: &Tended) -> Vec<Vec<Value>> {
    let begin =
        |gtid: &str| -> Vec<Value> { vec![seen.policy.writer.0.into(), (&*one.addr.host).into(), one.addr.port.into(), gtid.into()] };
    let read = seen.errant.get(&one.addr);
    let unread = |note: &str| {
        let row = |gtid: String| {
            let mut row = begin(&gtid);
            row.extend([Value::Null, Value::Null, Value::Null, Value::Null, Value::Null, "unknown".into(), note.into()]);
            row
        };
        one.extra.each(TRANSACTIONS_MAX).into_iter().map(row).collect()
    };
    match read.map(|read| (&read.found, &read.acknowledged)) {
        None => unread("the binary log is not read yet"),
        Some((Err(why), _)) => unread(why),
        Some((Ok(found), _)) if found.is_empty() => unread("they are in no binary log"),
        Some((Ok(found), acknowledged)) => {
            let rows = found.iter().enumerate();
            rows.map(|(place, done)| [begin(&done.gtid), details(done, acknowledged.get(place) == Some(&true))].concat()).collect()
        }
    }
}

fn details(done: &Transaction, is_acknowledged: bool) -> Vec<Value> {
    let tables: Vec<&str> = done.tables.iter().map(String::as_str).collect();
    vec![
        date_time(u64::from(done.time_s) * 1_000_000).into(),
        tables.join(",").into(),
        done.rows.into(),
        done.head.as_str().into(),
        done.bytes.into(),
        if is_acknowledged { "yes" } else { "unknown" }.into(),
        if done.is_partial { PARTIAL } else { "" }.into(),
    ]
}
