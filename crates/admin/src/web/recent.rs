//! The last hour by digest and by server: what each did in slices of 20 s. One reader for all viewers, while the page is enabled.
//!
//! The proxy counts since its start; a slice is how much its counters have grown. INVARIANT: at most 180 slices are kept, each with the
//! 100 digests that took most time and the 32 busiest servers. Reading takes at most one percent of a core: after a slow read the next
//! one comes later.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use handover::Sockets;
use hyper::body::Bytes;
use model::stats::{Metric, Reading, StatsSource, Value};
use serde_json::json;

use super::samples::{Times, quantile};
use crate::clock::now_ms;

/// Time between two reads.
const EVERY: Duration = Duration::from_secs(20);
/// A read may take this part of the time: one percent.
const SHARE: u32 = 100;
/// Slices that are kept: an hour of them.
const KEPT: usize = 180;
/// Digests of a slice, those with the most time.
const MOST_DIGESTS: usize = 100;
/// Servers of a slice, those with the most statements.
const MOST_SERVERS: usize = 32;
/// Rows of an answer.
const MOST_ROWS: usize = 1_000;
/// Bytes of a digest's text that are kept.
const MAX_TEXT: usize = 512;
/// The columns read, without percentiles: these cover all time.
const TABLE: &str = "stats_mysql_query_digest";
/// Columns of the table that name a row: hostgroup, schema, user, client, digest.
const KEY_COLUMNS: usize = 5;
const TEXT_COLUMN: usize = 5;
/// Columns of the table that grow: `count_star`, `sum_time`, `sum_rows_affected`, `sum_rows_sent`.
const GROWING: [usize; 4] = [6, 9, 12, 13];
const TIME: usize = 1;
const STATEMENT_SECONDS: &str = "tidegate_statement_seconds";

/// Counters of a digest, in the order of [`GROWING`].
type Sums = [i64; GROWING.len()];

/// The values that name a row: the key and the digest's text.
type Name = Vec<Value>;

/// Statements of a server, by the upper bound of their time.
type Servers = BTreeMap<(String, String), Times>;

/// The changes of counters between two reads.
struct Slice {
    at_ms: u64,
    length_ms: u64,
    digests: Vec<(Arc<Name>, Sums)>,
    /// Digests beyond [`MOST_DIGESTS`] together.
    others: Sums,
    servers: Vec<Server>,
}

/// A server's statements in a slice.
struct Server {
    hostgroup: String,
    endpoint: String,
    count: f64,
    /// p50, p95 and p99, µs.
    quantiles: [Option<f64>; 3],
}

/// The counters at the last read.
#[derive(Default)]
struct Before {
    at_ms: u64,
    /// By the hash of the digest's key.
    digests: HashMap<u64, Sums>,
    servers: Servers,
    /// Names that a kept slice has, by the same hash.
    names: HashMap<u64, Weak<Name>>,
}

/// See the module.
pub(super) struct Recent {
    sources: Arc<Vec<Arc<dyn StatsSource>>>,
    slices: Mutex<VecDeque<Slice>>,
}

impl Recent {
    /// Nothing yet.
    pub(super) fn new(sources: Arc<Vec<Arc<dyn StatsSource>>>) -> Self {
        Self { sources, slices: Mutex::default() }
    }

    /// Reads the counters again and again, while this process is in charge.
    pub(super) async fn keep_reading(&self, sockets: &Sockets) {
        let mut before = None::<Before>;
        loop {
            if !sockets.is_in_charge() {
                before = None;
                tokio::time::sleep(EVERY).await;
                continue;
            }
            let (sources, old) = (Arc::clone(&self.sources), before.take());
            let began = Instant::now();
            // Sources may block for a moment.
            let Ok((now, slice)) = tokio::task::spawn_blocking(move || read(&sources, old)).await else { return };
            before = Some(now);
            slice.into_iter().for_each(|slice| self.keep(slice));
            tokio::time::sleep(EVERY.max(began.elapsed() * SHARE)).await;
        }
    }

    fn keep(&self, slice: Slice) {
        let mut slices = self.slices.lock().unwrap_or_else(PoisonError::into_inner);
        if slices.len() >= KEPT {
            slices.pop_front();
        }
        slices.push_back(slice);
    }

    /// The answer to a query, as JSON: `digest=<hash>` gives one digest over time, `servers` all servers over time, `minutes=<n>` the
    /// digests of the last minutes together.
    pub(super) fn show(&self, query: &str) -> Bytes {
        let slices = self.slices.lock().unwrap_or_else(PoisonError::into_inner);
        let value_of = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        let shown = match (value_of("digest"), value_of("minutes").and_then(|minutes| minutes.parse::<u64>().ok())) {
            (Some(digest), _) => one_digest(&slices, digest),
            (None, Some(minutes)) => together(&slices, now_ms().saturating_sub(minutes.saturating_mul(60_000))),
            (None, None) => all_servers(&slices),
        };
        shown.to_string().into()
    }
}

/// Reads all counters. There is no slice at first: what happened before is not of a known time.
fn read(sources: &[Arc<dyn StatsSource>], before: Option<Before>) -> (Before, Option<Slice>) {
    let table_of = |source: &Arc<dyn StatsSource>| source.tables().into_iter().find(|table| table.name == TABLE);
    let rows = sources.iter().filter_map(|source| Some(source.rows(table_of(source)?, Reading::Keep))).flatten().collect();
    let servers = servers_of(&sources.iter().flat_map(|source| source.metrics()).collect::<Vec<_>>());
    advance(now_ms(), rows, servers, before)
}

fn advance(at_ms: u64, rows: Vec<Vec<Value>>, servers: Servers, before: Option<Before>) -> (Before, Option<Slice>) {
    let is_first = before.is_none();
    let before = before.unwrap_or_default();
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let mut now = Before { at_ms, digests: HashMap::with_capacity(rows.len()), servers, names: before.names };
    now.names.retain(|_, name| name.strong_count() > 0);
    let mut grown = Vec::new();
    for row in rows {
        let (Some(key), Some(sums)) = (row.get(..KEY_COLUMNS).map(|key| hasher.hash_one(key)), sums_of(&row)) else { continue };
        let growth = growth(&sums, before.digests.get(&key));
        now.digests.insert(key, sums);
        if growth[0] > 0 && !is_first {
            grown.push((key, row, growth));
        }
    }
    if is_first {
        return (now, None);
    }
    let mut others = Sums::default();
    if grown.len() > MOST_DIGESTS {
        grown.select_nth_unstable_by_key(MOST_DIGESTS, |(_, _, sums)| std::cmp::Reverse(sums[TIME]));
        grown.drain(MOST_DIGESTS..).for_each(|(_, _, sums)| add(&mut others, &sums));
    }
    let mut named = |(key, row, sums)| {
        let known = now.names.get(&key).and_then(Weak::upgrade);
        let name = known.unwrap_or_else(|| Arc::new(name_of(row)));
        now.names.insert(key, Arc::downgrade(&name));
        (name, sums)
    };
    let digests = grown.into_iter().map(&mut named).collect();
    let length_ms = at_ms.saturating_sub(before.at_ms).max(1);
    let slice = Slice { at_ms, length_ms, digests, others, servers: served(&now.servers, &before.servers) };
    (now, Some(slice))
}

fn sums_of(row: &[Value]) -> Option<Sums> {
    let mut sums = Sums::default();
    for (sum, column) in sums.iter_mut().zip(GROWING) {
        let Value::Integer(number) = row.get(column)? else { return None };
        *sum = *number;
    }
    Some(sums)
}

/// How much counters grew. Counters that were set to zero, or are new, grew from zero.
fn growth(now: &Sums, before: Option<&Sums>) -> Sums {
    let before = before.filter(|before| before[0] <= now[0]).copied().unwrap_or_default();
    std::array::from_fn(|at| now[at].saturating_sub(before[at]).max(0))
}

fn add(sum: &mut Sums, more: &Sums) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(*more));
}

fn name_of(mut row: Vec<Value>) -> Name {
    row.truncate(TEXT_COLUMN + 1);
    if let Some(Value::Text(text)) = row.get_mut(TEXT_COLUMN) {
        let end = (0..=MAX_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        text.shrink_to_fit();
    }
    row
}

/// The time of statements by server.
fn servers_of(metrics: &[Metric]) -> Servers {
    let mut servers = Servers::new();
    let samples = metrics.iter().filter(|metric| metric.name == STATEMENT_SECONDS).flat_map(|metric| &metric.samples);
    for sample in samples.filter(|sample| sample.suffix == "_bucket") {
        let label = |name| sample.labels.iter().find(|(label, _)| *label == name).map(|(_, value)| value.clone());
        if let (Some(hostgroup), Some(endpoint)) = (label("hostgroup"), label("endpoint")) {
            servers.entry((hostgroup, endpoint)).or_default().add(sample);
        }
    }
    servers
}

fn served(now: &Servers, before: &Servers) -> Vec<Server> {
    let none = Times::default();
    let one = |((hostgroup, endpoint), times): (&(String, String), &Times)| {
        let old = before.get(&(hostgroup.clone(), endpoint.clone())).unwrap_or(&none);
        let count = times.all() - old.all();
        let quantiles = [0.5, 0.95, 0.99].map(|part| quantile(times, old, part));
        (count > 0.0).then(|| Server { hostgroup: hostgroup.clone(), endpoint: endpoint.clone(), count, quantiles })
    };
    let mut servers: Vec<_> = now.iter().filter_map(one).collect();
    servers.sort_by(|a, b| b.count.total_cmp(&a.count));
    servers.truncate(MOST_SERVERS);
    servers
}

fn one_digest(slices: &VecDeque<Slice>, digest: &str) -> serde_json::Value {
    let is_it = |name: &Name| matches!(name.get(KEY_COLUMNS - 1), Some(Value::Text(hash)) if hash == digest);
    let row = |slice: &Slice| {
        let mut found = slice.digests.iter().filter(|(name, _)| is_it(name)).peekable();
        // A digest that is not listed ran for too short a time, or not at all.
        if found.peek().is_none() && slice.others[0] > 0 {
            return json!([slice.at_ms, slice.length_ms, null, null, null, null]);
        }
        let mut sums = Sums::default();
        found.for_each(|(_, more)| add(&mut sums, more));
        json!([slice.at_ms, slice.length_ms, sums[0], sums[1], sums[2], sums[3]])
    };
    let columns = ["at", "length_ms", "count_star", "sum_time", "sum_rows_affected", "sum_rows_sent"];
    json!({ "columns": columns, "rows": slices.iter().map(row).collect::<Vec<_>>() })
}

fn all_servers(slices: &VecDeque<Slice>) -> serde_json::Value {
    let row = |slice: &Slice, server: &Server| {
        let [p50, p95, p99] = server.quantiles.map(|us| us.map(f64::round));
        json!([slice.at_ms, slice.length_ms, server.hostgroup, server.endpoint, server.count, p50, p95, p99])
    };
    let rows: Vec<_> = slices.iter().flat_map(|slice| slice.servers.iter().map(move |server| row(slice, server))).collect();
    json!({ "columns": ["at", "length_ms", "hostgroup", "server", "count", "p50_us", "p95_us", "p99_us"], "rows": rows })
}

/// Digests of all slices that ended since a time. `others` is the time of those that are not listed.
fn together(slices: &VecDeque<Slice>, since_ms: u64) -> serde_json::Value {
    let mut digests = HashMap::<*const Name, (&Name, Sums)>::new();
    let (mut others, mut length_ms) = (Sums::default(), 0);
    for slice in slices.iter().filter(|slice| slice.at_ms > since_ms) {
        length_ms += slice.length_ms;
        add(&mut others, &slice.others);
        for (name, sums) in &slice.digests {
            add(&mut digests.entry(Arc::as_ptr(name)).or_insert((name, Sums::default())).1, sums);
        }
    }
    let mut digests: Vec<_> = digests.into_values().collect();
    digests.sort_by_key(|(_, sums)| std::cmp::Reverse(sums[TIME]));
    digests.iter().skip(MOST_ROWS).for_each(|(_, sums)| add(&mut others, sums));
    let text = |value: &Value| match value {
        Value::Null => serde_json::Value::Null,
        Value::Integer(number) => number.to_string().into(),
        Value::Text(text) => text.clone().into(),
    };
    let row = |(name, sums): &(&Name, Sums)| {
        name.iter().map(text).chain(sums.iter().map(|sum| sum.to_string().into())).collect::<Vec<serde_json::Value>>()
    };
    let columns = [
        "hostgroup",
        "schemaname",
        "username",
        "client_address",
        "digest",
        "digest_text",
        "count_star",
        "sum_time",
        "sum_rows_affected",
        "sum_rows_sent",
    ];
    let rows: Vec<_> = digests.iter().take(MOST_ROWS).map(row).collect();
    json!({ "length_ms": length_ms, "others_us": others[TIME], "columns": columns, "rows": rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(digest: &str, count: i64, time: i64) -> Vec<Value> {
        let mut row: Vec<Value> =
            vec![0_i64.into(), "shop".into(), "anna".into(), "".into(), digest.into(), format!("text of {digest}").into()];
        row.extend([count, 1, 2, time, 1, 1, 0, count * 2].map(Value::from));
        row
    }

    fn slices(reads: Vec<Vec<Vec<Value>>>) -> VecDeque<Slice> {
        let (mut before, mut slices) = (None, VecDeque::new());
        for (at, rows) in reads.into_iter().enumerate() {
            let (now, slice) = advance(1_000 * (at as u64 + 1), rows, Servers::new(), before);
            before = Some(now);
            slices.extend(slice);
        }
        slices
    }

    #[test]
    fn a_slice_is_what_the_counters_grew_by() {
        let reads = vec![
            vec![row("0xA", 100, 5_000)],
            vec![row("0xA", 110, 6_000), row("0xB", 1, 50)],
            // Both were reset.
            vec![row("0xA", 3, 30)],
            vec![row("0xA", 3, 30), row("0xB", 2, 70)],
        ];
        let slices = slices(reads);
        let shown = one_digest(&slices, "0xA");
        assert_eq!(shown["rows"], json!([[2_000, 1_000, 10, 1_000, 0, 20], [3_000, 1_000, 3, 30, 0, 6], [4_000, 1_000, 0, 0, 0, 0]]));
        let all = together(&slices, 0);
        assert_eq!(all["length_ms"], 3_000);
        assert_eq!(all["rows"][0], json!(["0", "shop", "anna", "", "0xA", "text of 0xA", "13", "1030", "0", "26"]));
        assert_eq!(all["rows"][1][6], "3");
        let last = together(&slices, 3_000);
        assert_eq!((&last["length_ms"], last["rows"].as_array().unwrap().len()), (&json!(1_000), 1));
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_rest_is_added_up() {
        let many = (0..300).map(|n| row(&format!("0x{n}"), 1, n)).collect();
        let slices = slices(vec![Vec::new(), many]);
        let all = together(&slices, 0);
        assert_eq!(all["rows"].as_array().unwrap().len(), MOST_DIGESTS);
        assert_eq!(all["rows"][0][4], "0x299");
        assert_eq!(all["others_us"], json!((0..200).sum::<i64>()));
        assert_eq!(one_digest(&slices, "0x7")["rows"][0][2], json!(null), "it may have run");
        let long =
            name_of(vec![Value::Null, Value::Null, Value::Null, Value::Null, "0x1".into(), "é".repeat(MAX_TEXT).into(), 1_i64.into()]);
        assert!(matches!(&long[TEXT_COLUMN], Value::Text(text) if text.len() == MAX_TEXT) && long.len() == TEXT_COLUMN + 1);

        let recent = Recent::new(Arc::default());
        for at_ms in 0..1_000 {
            recent.keep(Slice { at_ms, length_ms: 1, digests: Vec::new(), others: Sums::default(), servers: Vec::new() });
        }
        assert_eq!(recent.slices.lock().unwrap().len(), KEPT);
    }

    #[test]
    fn servers_have_the_percentiles_of_a_slice() {
        let times = |counts: [f64; 3]| Times([1_000, 4_000, u64::MAX].into_iter().zip(counts).collect());
        let server = |counts| Servers::from([(("0".to_owned(), "db1:3306".to_owned()), times(counts))]);
        let idle = ("1".to_owned(), "db2:3306".to_owned());
        let mut before = server([1_000.0, 1_000.0, 1_000.0]);
        before.insert(idle.clone(), times([5.0, 5.0, 5.0]));
        let mut now = server([1_000.0, 1_100.0, 1_100.0]);
        now.insert(idle, times([5.0, 5.0, 5.0]));
        let found = served(&now, &before);
        assert_eq!(found.len(), 1, "an idle server has no percentiles");
        assert_eq!((found[0].endpoint.as_str(), found[0].count), ("db1:3306", 100.0));
        assert!((1_900.0..2_100.0).contains(&found[0].quantiles[0].unwrap()));
    }
}
