//! ProxySQL's tables about peers: `stats_proxysql_servers_status`, `_metrics`, `_checksums`; this proxy is in them if it is listed.

use std::sync::atomic::Ordering;

use model::stats::{Metric, Reading, StatsColumn, StatsSchema, StatsSource, StatsTable, Value, stat};

use super::super::board;
use super::{Peer, Peers, Relation, relation};

const fn table(
    name: &'static str,
    columns: &'static [StatsColumn],
    primary_key: &'static [&'static str],
    help: &'static str,
) -> StatsTable {
    StatsTable { schema: StatsSchema::Stats, name, columns, primary_key, has_reset: false, help }
}

static STATUS: StatsTable = table(
    "stats_proxysql_servers_status",
    &[
        stat("hostname", "VARCHAR"),
        stat("port", "INT"),
        stat("weight", "INT"),
        stat("master", "VARCHAR"),
        stat("global_version", "INT"),
        stat("check_age_us", "INT"),
        stat("ping_time_us", "INT"),
        stat("checks_OK", "INT"),
        stat("checks_ERR", "INT"),
    ],
    &["hostname", "port"],
    "Results of the checks of peers in proxysql_servers; global_version is the peer's revision",
);

static METRICS: StatsTable = table(
    "stats_proxysql_servers_metrics",
    &[
        stat("hostname", "VARCHAR"),
        stat("port", "INT"),
        stat("weight", "INT"),
        stat("comment", "VARCHAR"),
        stat("response_time_ms", "INT"),
        stat("Uptime_s", "INT"),
        stat("last_check_ms", "INT"),
        stat("Queries", "INT"),
        stat("Client_Connections_connected", "INT"),
        stat("Client_Connections_created", "INT"),
    ],
    &["hostname", "port"],
    "Counters of peers in proxysql_servers, read every admin-cluster_check_status_frequency checks",
);

static CHECKSUMS: StatsTable = table(
    "stats_proxysql_servers_checksums",
    &[
        stat("hostname", "VARCHAR"),
        stat("port", "INT"),
        stat("name", "VARCHAR"),
        stat("version", "INT"),
        stat("epoch", "INT"),
        stat("checksum", "VARCHAR"),
        stat("changed_at", "INT"),
        stat("updated_at", "INT"),
        stat("diff_check", "INT"),
    ],
    &["hostname", "port", "name"],
    "Configuration modules of peers in proxysql_servers; diff_check counts consecutive checks with a difference",
);

static OWNED: &[&StatsTable] = &[&STATUS, &METRICS, &CHECKSUMS];

impl StatsSource for Peers {
    fn tables(&self) -> Vec<&'static StatsTable> {
        OWNED.iter().copied().chain([&board::TABLE]).collect()
    }

    fn metrics(&self) -> Vec<Metric> {
        let state = self.lock();
        if state.peers.is_empty() {
            Vec::new()
        } else {
            vec![board::conflict(state.conflict.is_some()), board::too_large(self.too_large.load(Ordering::Relaxed))]
        }
    }

    fn rows(&self, table: &'static StatsTable, _: Reading) -> Vec<Vec<Value>> {
        let state = self.lock();
        let number = |number: u64| Value::from(number);
        let checked = |peer: &Peer| i64::try_from(peer.checked.map_or(0, |when| when.elapsed().as_micros())).unwrap_or(i64::MAX);
        let each = |make: &dyn Fn(&Peer) -> Vec<Value>| -> Vec<Vec<Value>> {
            let row = |((host, port), peer): (&(String, u16), &Peer)| {
                let mut row: Vec<Value> = vec![host.as_str().into(), (*port).into(), peer.weight.into()];
                row.extend(make(peer));
                row
            };
            state.peers.iter().map(row).collect()
        };
        match table.name {
            "stats_proxysql_servers_status" => each(&|peer| {
                let revision = peer.line.as_ref().and_then(|line| line.descent.as_ref()).map_or(0, |one| one.revision.number);
                let (ok, err) = (peer.checks_ok.into(), peer.checks_err.into());
                vec!["NO".into(), number(revision), checked(peer).into(), peer.ping_us.into(), ok, err]
            }),
            "stats_proxysql_servers_metrics" => each(&|peer| {
                let times: [Value; 3] = [(peer.ping_us / 1_000).into(), peer.uptime_s.into(), (checked(peer) / 1_000).into()];
                let counts: [Value; 3] = [peer.queries.into(), peer.clients_connected.into(), peer.clients_created.into()];
                [peer.comment.as_str().into()].into_iter().chain(times).chain(counts).collect()
            }),
            "stats_proxysql_servers_checksums" => {
                let all = state.peers.iter().flat_map(|(at, peer)| peer.checksums.iter().map(move |sum| (at, sum)));
                let row = |((host, port), (name, sum)): (&(String, u16), (&String, &super::PeerChecksum))| {
                    let text = (sum.version.into(), sum.epoch.into(), sum.checksum.as_str().into());
                    let when = (sum.changed_at.into(), sum.updated_at.into(), sum.differs.into());
                    vec![host.as_str().into(), (*port).into(), name.as_str().into(), text.0, text.1, text.2, when.0, when.1, when.2]
                };
                all.map(row).collect()
            }
            // This proxy, and those that answer.
            "stats_tidegate_proxies" if !state.peers.is_empty() => {
                let mine = state.descent.as_ref();
                let own = mine.map_or(0, |one| one.revision.number);
                let refused = state.refused.as_ref().map(|(_, why)| why.clone());
                let error = state.conflict.clone().or(refused).unwrap_or_default();
                let (name, uuid, address, version) = (&self.name, &self.uuid, &self.address, &self.version);
                let newest = state.peers.values().filter_map(|peer| peer.line.as_ref()?.descent.as_ref());
                let newest = newest.filter(|one| relation(mine, Some(one)) == Relation::Newer).map(|one| one.revision.number).max();
                let wanted = newest.unwrap_or(own);
                let text = |text: &str| Value::from(text);
                let mut rows = vec![vec![
                    text(name),
                    text(uuid),
                    text(address),
                    text(version),
                    number(own),
                    number(wanted),
                    state.since.into(),
                    error.into(),
                    Value::Integer(1),
                ]];
                for ((host, port), peer) in &state.peers {
                    let Some(line) = peer.line.as_ref().filter(|line| line.uuid != self.uuid) else { continue };
                    let number_of = line.descent.as_ref().map_or(0, |one| one.revision.number);
                    let at = format!("{host}:{port}");
                    rows.push(vec![
                        text(&line.name),
                        text(&line.uuid),
                        at.into(),
                        text(&line.version),
                        number(number_of),
                        number(number_of.max(own)),
                        Value::Integer(0),
                        text(&peer.error),
                        Value::Integer(0),
                    ]);
                }
                rows
            }
            _ => Vec::new(),
        }
    }
}
