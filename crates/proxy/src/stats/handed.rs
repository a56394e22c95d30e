//! What was counted, on its way to the process that takes this one's place: there it is added to what that counts.
//!
//! All of it goes before that process is in charge, so that no value falls. What is counted here afterwards follows.

use super::collect;
use super::source::ProxyStats;
use crate::workers::ask::{ask, ask_all};
use meter::commands::CommandSums;
use meter::digest::Digest;
use meter::digest_bounds;
use meter::digest_table::{Counted, DigestKey, Sums};
use meter::errors::ErrorTable;
use meter::histogram::Histogram;
use meter::server_counts::{LatencyClass, ServerMeter};
use meter::spread::Spread;
use model::HostgroupId;
use model::stats::Reading;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// See the module. Times are of the process clock, which goes on there.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    counters: Vec<(Box<str>, u64)>,
    digests: Vec<DigestRecord>,
    servers: Vec<ServerRecord>,
    errors: ErrorTable,
    commands: Vec<(Box<str>, CommandSums)>,
    /// Matches of query rules, by rule id. An older version does not send them.
    #[serde(default)]
    rule_hits: Vec<(u32, u64)>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DigestRecord {
    hostgroup: i64,
    schema: Box<[u8]>,
    user: Box<str>,
    client: Option<IpAddr>,
    hash: u64,
    text: Box<[u8]>,
    sums: Sums,
    /// An older version does not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spread: Option<Box<Spread>>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerRecord {
    hostgroup: HostgroupId,
    host: Arc<str>,
    port: u16,
    connects_ok: u64,
    connects_failed: u64,
    queries: u64,
    bytes_sent: u64,
    bytes_received: u64,
    latency: Vec<(Box<str>, Histogram)>,
}

/// What tells a digest's record from others.
type DigestId<'a> = (i64, &'a [u8], &'a str, Option<IpAddr>, u64);

impl DigestRecord {
    fn id(&self) -> DigestId<'_> {
        (self.hostgroup, &self.schema, &self.user, self.client, self.hash)
    }

    fn since(self, earlier: &HashMap<DigestId<'_>, &Self>) -> Self {
        let Some(before) = earlier.get(&self.id()).copied() else { return self };
        let sums = self.sums.since(&before.sums);
        let spread = match (self.spread, &before.spread) {
            (Some(now), Some(before)) => Some(Box::new(now.since(before))),
            (now, _) => now,
        };
        Self { sums, spread, ..self }
    }
}

impl ServerRecord {
    fn id(&self) -> (HostgroupId, &str, u16) {
        (self.hostgroup, &self.host, self.port)
    }

    fn since(self, earlier: &[Self]) -> Self {
        let Some(before) = earlier.iter().find(|before| before.id() == self.id()) else { return self };
        Self {
            connects_ok: self.connects_ok.saturating_sub(before.connects_ok),
            connects_failed: self.connects_failed.saturating_sub(before.connects_failed),
            queries: self.queries.saturating_sub(before.queries),
            bytes_sent: self.bytes_sent.saturating_sub(before.bytes_sent),
            bytes_received: self.bytes_received.saturating_sub(before.bytes_received),
            latency: each_since(self.latency, &before.latency, Histogram::since),
            ..self
        }
    }
}

/// Each value minus the earlier one of the same name.
fn each_since<K: PartialEq, V>(now: Vec<(K, V)>, earlier: &[(K, V)], since: impl Fn(&V, &V) -> V) -> Vec<(K, V)> {
    let minus = |(name, value): (K, V)| {
        let value = match earlier.iter().find(|(known, _)| *known == name) {
            Some((_, before)) => since(&value, before),
            None => value,
        };
        (name, value)
    };
    now.into_iter().map(minus).collect()
}

impl Counts {
    /// What was counted since `earlier`.
    fn since(self, earlier: &Self) -> Self {
        let known: HashMap<_, _> = earlier.digests.iter().map(|digest| (digest.id(), digest)).collect();
        let digests = self.digests.into_iter().map(|digest| digest.since(&known));
        let hits: HashMap<u32, u64> = earlier.rule_hits.iter().copied().collect();
        let rule_hits = self.rule_hits.into_iter().map(|(id, now)| (id, now.saturating_sub(hits.get(&id).copied().unwrap_or_default())));
        Self {
            // They wrap around, as those of workers do.
            counters: each_since(self.counters, &earlier.counters, |now, before| now.wrapping_sub(*before)),
            digests: digests.filter(|digest| digest.sums.count > 0).collect(),
            servers: self.servers.into_iter().map(|server| server.since(&earlier.servers)).collect(),
            errors: self.errors.since(&earlier.errors),
            commands: each_since(self.commands, &earlier.commands, CommandSums::since),
            rule_hits: rule_hits.filter(|(_, hits)| *hits > 0).collect(),
        }
    }

    /// The same without texts of digests, which take the most memory.
    fn in_short(&self) -> Self {
        let digests = self.digests.iter().map(|digest| DigestRecord { text: Box::default(), ..digest.clone() });
        Self {
            counters: self.counters.clone(),
            digests: digests.collect(),
            servers: self.servers.clone(),
            errors: self.errors.clone(),
            commands: self.commands.clone(),
            rule_hits: self.rule_hits.clone(),
        }
    }
}

impl ProxyStats {
    /// All that was counted here.
    pub(crate) fn counts(&self) -> Counts {
        let mut handed = self.handed();
        let all = self.count_up();
        *handed = Some(all.in_short());
        all
    }

    /// What was counted since the last call of this or of [`ProxyStats::counts`].
    pub(crate) fn more_counts(&self) -> Counts {
        let mut handed = self.handed();
        let all = self.count_up();
        let now = all.in_short();
        match handed.replace(now) {
            Some(earlier) => all.since(&earlier),
            None => all,
        }
    }

    /// Nothing counts as handed over any more. If it is being counted just now, the memory is freed by the next hand-over only.
    pub(crate) fn forget_handed(&self) {
        if let Ok(mut handed) = self.handed.try_lock() {
            *handed = None;
        }
    }

    fn count_up(&self) -> Counts {
        let shared = &self.shared;
        let mut counters: Vec<(Box<str>, u64)> = Vec::new();
        for (name, value) in ask_all(shared, |worker| worker.counters.values()).into_iter().flatten() {
            match counters.iter_mut().find(|(known, _)| **known == *name) {
                Some((_, sum)) => *sum = sum.wrapping_add(value),
                None => counters.push((name.into(), value)),
            }
        }
        let mut totals = self.digests();
        collect::drain_digests(shared, &mut totals);
        let digests = totals.rows().map(|(key, sums, spread)| {
            let DigestKey { hostgroup, schema, user, client, digest } = key;
            let Digest { hash, text, len: _ } = &**digest;
            let (schema, user, text) = (schema.clone(), user.clone(), text.clone());
            DigestRecord {
                hostgroup: *hostgroup,
                schema,
                user,
                client: *client,
                hash: *hash,
                text,
                sums: *sums,
                spread: spread.cloned().map(Box::new),
            }
        });
        let digests = digests.collect();
        let baselines = self.baselines();
        let servers = collect::servers(shared).into_iter().filter_map(|(id, meter)| {
            let (server, base) = (self.server(id)?, baselines.get(&id).copied().unwrap_or_default());
            let since = |now: u64, then: u64| now.saturating_sub(then);
            Some(ServerRecord {
                hostgroup: server.key.hostgroup,
                host: Arc::clone(&server.key.host),
                port: server.key.port,
                connects_ok: since(server.counts.connects_ok.load(Ordering::Relaxed), base.connects_ok),
                connects_failed: since(server.counts.connects_failed.load(Ordering::Relaxed), base.connects_failed),
                queries: since(meter.queries, base.queries),
                bytes_sent: since(meter.bytes_sent, base.bytes_sent),
                bytes_received: since(meter.bytes_received, base.bytes_received),
                latency: meter.latency().map(|(class, histogram)| (class.name().into(), histogram.clone())).collect(),
            })
        });
        let errors = collect::errors(shared, Reading::Keep);
        let commands = collect::commands(shared).rows().map(|(name, sums)| (name.into(), *sums)).collect();
        let rule_hits = shared.in_force.load().rules.hits().filter(|(_, hits)| *hits > 0).collect();
        Counts { counters, digests, servers: servers.collect(), errors, commands, rule_hits }
    }

    /// Adds what another process has counted.
    pub(crate) fn add_counts(&self, counts: Counts) {
        let Counts { counters, digests, servers, errors, commands, rule_hits } = counts;
        let shared = &self.shared;
        if !rule_hits.is_empty() {
            shared.in_force.load().rules.add_hits(&rule_hits);
        }
        let bounds = digest_bounds(&shared.in_force.load().snapshot.vars, shared.mailboxes.len());
        for DigestRecord { hostgroup, schema, user, client, hash, text, sums, spread } in digests {
            let len = text.len() as u64;
            let digest = Arc::new(Digest { hash, text, len });
            let key = Arc::new(DigestKey { hostgroup, schema, user, client, digest });
            self.digests().add(Counted { key, sums, spread }, bounds);
        }
        let mut meters = Vec::new();
        for record in servers {
            let ServerRecord { hostgroup, host, port, connects_ok, connects_failed, queries, bytes_sent, bytes_received, latency } = record;
            let all = shared.hostgroup(hostgroup).servers();
            let Some(server) = all.iter().find(|server| server.key.host == host && server.key.port == port) else { continue };
            server.counts.connects_ok.fetch_add(connects_ok, Ordering::Relaxed);
            server.counts.connects_failed.fetch_add(connects_failed, Ordering::Relaxed);
            let mut meter = ServerMeter::default();
            (meter.queries, meter.bytes_sent, meter.bytes_received) = (queries, bytes_sent, bytes_received);
            for (name, histogram) in latency {
                if let Some(class) = LatencyClass::ALL.iter().find(|class| class.name() == &*name) {
                    meter.take_over(*class, histogram);
                }
            }
            meters.push(((hostgroup, server.index), meter));
        }
        // They are sums over workers: which one has them makes no difference.
        ask(shared, 0, move |worker| {
            worker.counters.add(&counters);
            worker.meter.errors.borrow_mut().add(errors);
            let mut classes = worker.meter.commands.borrow_mut();
            commands.iter().for_each(|(name, sums)| classes.add_named(name, sums));
            let mut table = worker.meter.servers.borrow_mut();
            meters.iter().for_each(|(id, meter)| table.meter(*id).add(meter));
        });
    }
}
