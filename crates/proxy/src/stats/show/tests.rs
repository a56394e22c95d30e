//! Tables and metrics over workers that run, without clients and servers: what they counted is put into their meters.

use super::*;
use crate::workers::ask::{ask, ask_all};
use crate::workers::in_force::InForce;
use crate::workers::mailbox::Mail;
use crate::workers::shared::Shared;
use crate::workers::worker::Worker;
use meter::digest_table::Sums;
use meter::{Ended, error_key};
use model::stats::{StatsSchema, StatsSource};
use model::{Config, HostgroupId, Snapshot};
use rehearsal::{Class, Compared, Run};
use session_state::class::LaneKey;
use sql::LexMode;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

const CONFIG: &str = r#"
mysql_servers = (
    { address = "db1", port = 3306, hostgroup = 1 },
    { address = "db2", port = 3307, hostgroup = 2, status = "OFFLINE_SOFT" }
)
mysql_users = ( { username = "anna", password = "x", default_hostgroup = 1, max_connections = 7 } )
"#;

/// Two workers.
struct Bed {
    shared: Arc<Shared>,
    stats: ProxyStats,
    workers: Vec<JoinHandle<()>>,
}

impl Bed {
    fn new() -> Self {
        let (config, _): (Config, _) = model::parse(CONFIG, "test.cnf").unwrap();
        let snapshot = Arc::new(Snapshot::compile(&config).unwrap());
        let in_force = Arc::new(InForce::compile(snapshot, None).unwrap());
        let shared = Arc::new(Shared::new(in_force, None, 2, None));
        let start = |index| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || crate::workers::work::run(index, shared).unwrap())
        };
        let workers = (0..2).map(start).collect();
        Self { stats: ProxyStats::new(Arc::clone(&shared)), shared, workers }
    }

    fn rows(&self, name: &str, reading: Reading) -> Rows {
        let table = self.stats.tables().into_iter().find(|t| t.name == name).unwrap();
        let rows = self.stats.rows(table, reading);
        assert!(rows.iter().all(|row| row.len() == table.columns.len()), "{name}");
        rows
    }

    /// Rows with the columns of these names, as text.
    fn columns(&self, name: &str, columns: &[&str]) -> Vec<Vec<String>> {
        let table = self.stats.tables().into_iter().find(|t| t.name == name).unwrap();
        let place = |c: &&str| table.columns.iter().position(|column| column.name == *c).unwrap();
        let places: Vec<_> = columns.iter().map(place).collect();
        let shown = |value: &Value| match value {
            Value::Null => "NULL".to_owned(),
            Value::Integer(n) => n.to_string(),
            Value::Text(text) => text.clone(),
        };
        let mut rows: Vec<Vec<_>> =
            self.rows(name, Reading::Keep).iter().map(|row| places.iter().map(|i| shown(&row[*i])).collect()).collect();
        rows.sort();
        rows
    }

    /// A statement on a worker.
    fn run(&self, worker: usize, sql: &'static str, time_us: u64) {
        ask(&self.shared, worker, move |worker| statement(worker, sql, time_us)).unwrap();
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.shared.mailboxes.iter().for_each(|mailbox| mailbox.send(Mail::Stop));
        self.workers.drain(..).for_each(|worker| worker.join().unwrap());
    }
}

fn statement(worker: &Rc<Worker>, sql: &str, time_us: u64) {
    let analysis = sql::analyze_with(sql.as_bytes(), LexMode::default(), worker.meter.grouping());
    worker.meter.count(&Ended {
        analysis: &analysis,
        sql: sql.as_bytes(),
        lex: LexMode::default(),
        hostgroup: Some(HostgroupId(1)),
        server: Some((HostgroupId(1), 0)),
        schema: b"shop",
        user: "anna",
        client: None,
        sums: Sums::one(time_us, 0, 1, worker.shared.clock.now_ms()),
    });
}

#[test]
fn tables_are_described_once_and_fully() {
    let tables: Vec<_> = TABLES.iter().copied().flatten().collect();
    let names: HashSet<_> = tables.iter().map(|t| t.table.name).collect();
    assert_eq!(names.len(), tables.len());
    for table in tables {
        let columns: HashSet<_> = table.table.columns.iter().map(|c| c.name).collect();
        assert!(table.table.primary_key.iter().all(|key| columns.contains(key)), "{}", table.table.name);
        assert!(!table.table.help.is_empty() && table.table.schema == StatsSchema::Stats);
    }
}

#[test]
fn every_table_has_rows_of_its_width_when_nothing_has_happened() {
    let bed = Bed::new();
    for table in bed.stats.tables() {
        let rows = bed.stats.rows(table, Reading::Keep);
        assert!(rows.iter().all(|row| row.len() == table.columns.len()), "{}", table.name);
    }
    assert_eq!(bed.columns("stats_mysql_users", &["username", "frontend_connections", "frontend_max_connections"]), [["anna", "0", "7"]]);
}

#[test]
fn digests_of_all_workers_add_up_and_reset_begins_anew() {
    let bed = Bed::new();
    for n in 0..4 {
        bed.run(n % 2, "SELECT 1", 100 + n as u64);
    }
    bed.run(0, "SELECT a FROM t", 5);
    let columns = ["hostgroup", "schemaname", "username", "digest_text", "count_star", "sum_time", "min_time", "max_time"];
    let expected =
        [["1", "shop", "anna", "SELECT ?", "4", "406", "100", "103"], ["1", "shop", "anna", "SELECT a FROM t", "1", "5", "5", "5"]];
    assert_eq!(bed.columns("stats_mysql_query_digest", &columns), expected);
    assert_eq!(bed.columns("stats_mysql_query_digest", &columns), expected, "reading changes nothing");
    assert_eq!(bed.rows("stats_mysql_query_digest", Reading::Reset).len(), 2);
    assert!(bed.rows("stats_mysql_query_digest", Reading::Keep).is_empty());
    bed.run(1, "SELECT 1", 1);
    assert_eq!(bed.columns("stats_mysql_query_digest", &["count_star"]), [["1"]]);
}

/// A rehearsal of hostgroup 1 that begins now.
fn rehearsal(bed: &Bed, seconds: Option<u64>) -> Arc<Run> {
    let row = "mysql_rehearsals = ( { name=\"new\", source_hostgroup=1, shadow_hostgroup=2, percent=100 } )";
    let (config, _): (Config, _) = model::parse(row, "test.cnf").unwrap();
    let plan = Arc::clone(&Snapshot::compile(&config).unwrap().rehearsals[0]);
    let now_ms = bed.shared.clock.now_ms();
    let before = ran_before(&bed.stats, &plan);
    bed.shared.rehearsals.start(Run::new(plan, Default::default(), (now_ms, 0), seconds).with_before(before), now_ms).unwrap()
}

/// Equal answers to a statement.
fn compared(bed: &Bed, run: &Run, sql: &'static str, count: u64) {
    let digest = ask(&bed.shared, 0, move |worker| {
        let analysis = sql::analyze_with(sql.as_bytes(), LexMode::default(), worker.meter.grouping());
        worker.digest(sql.as_bytes(), LexMode::default(), &analysis).hash
    });
    let (digest, text) = (digest.unwrap(), sql.as_bytes());
    for _ in 0..count {
        run.findings().tally.add(&Compared { digest, text, class: Class::Same, ignored: None, is_rechecked: false, times_us: [10, 10] });
    }
}

#[test]
fn statements_that_may_read_count_in_the_coverage() {
    let bed = Bed::new();
    // What ran before does not count.
    bed.run(0, "SELECT b FROM t", 1_000_000);
    bed.run(0, "SELECT a FROM t", 500_000);
    let run = rehearsal(&bed, None);
    (0..30).for_each(|_| bed.run(0, "SELECT a FROM t", 96));
    compared(&bed, &run, "SELECT a FROM t", 30);
    for (sql, time_us, expected) in [
        ("INSERT INTO t VALUES (1)", 9_000, ["100.0", "SAFE"]),
        ("EXECUTE s USING @a", 120, ["96.0", "SAFE"]),
        ("CALL p()", 2_880, ["49.0", "NOT ENOUGH"]),
    ] {
        bed.run(1, sql, time_us);
        assert_eq!(bed.columns("stats_tidegate_rehearsals", &["coverage_percent", "verdict"]), [expected], "{sql}");
    }
    let page = rehearsal_page(&bed.stats, "new").unwrap();
    assert!(page.iter().any(|(part, text)| *part == "unseen" && text.ends_with("CALL p()")), "{page:?}");
}

#[test]
fn the_verdict_of_an_ended_rehearsal_stands() {
    let bed = Bed::new();
    let run = rehearsal(&bed, Some(600));
    (0..30).for_each(|_| bed.run(0, "SELECT a FROM t", 96));
    compared(&bed, &run, "SELECT a FROM t", 30);
    let headline = || rehearsal_page(&bed.stats, "new").unwrap().swap_remove(0).1;
    assert!(headline().starts_with("new: running, ") && headline().contains(" of 600 s, "), "{}", headline());
    bed.shared.rehearsals.stop("new", bed.shared.clock.now_ms()).unwrap();
    let verdict = || bed.columns("stats_tidegate_rehearsals", &["state", "coverage_percent", "verdict"]);
    assert_eq!(verdict(), [["ended", "100.0", "SAFE"]]);
    bed.run(0, "SELECT b FROM t", 5_000);
    assert_eq!(verdict(), [["ended", "100.0", "SAFE"]], "later statements do not count");
    bed.rows("stats_mysql_query_digest", Reading::Reset);
    assert_eq!(verdict(), [["ended", "100.0", "SAFE"]], "a reset does not count");
    assert!(headline().starts_with("new: ended after ") && headline().contains(" s (STOP), "), "{}", headline());
}

#[test]
fn percentiles_stand_in_a_table_of_their_own() {
    let bed = Bed::new();
    for n in 0..200 {
        bed.run(n % 2, "SELECT 1", 1_000);
    }
    bed.run(0, "SELECT 1", 500_000);
    bed.run(0, "SELECT a FROM t", 5);
    let columns = ["digest_text", "count_star", "p50_us", "p95_us", "p99_us"];
    let rows = bed.columns("stats_tidegate_query_digest", &columns);
    assert_eq!(rows, [["SELECT ?", "201", "1000", "1000", "1000"], ["SELECT a FROM t", "1", "NULL", "NULL", "NULL"]]);
}

#[test]
fn servers_show_what_passed_and_only_the_table_is_reset() {
    let bed = Bed::new();
    bed.run(0, "SELECT 1", 100);
    bed.run(1, "INSERT INTO t VALUES (1)", 900);
    ask_all(&bed.shared, |worker| worker.meter.count_traffic((HostgroupId(1), 0), (10, 20)));
    bed.shared.hostgroup(HostgroupId(1)).servers()[0].counts.connected(true, 3);
    let columns = ["hostgroup", "srv_host", "srv_port", "status", "ConnOK", "MaxConnUsed", "Queries", "Bytes_data_sent", "Bytes_data_recv"];
    let idle = ["2", "db2", "3307", "OFFLINE_SOFT", "0", "0", "0", "0", "0"];
    let busy = ["1", "db1", "3306", "ONLINE", "1", "3", "2", "20", "40"];
    assert_eq!(bed.columns("stats_mysql_connection_pool", &columns), [busy, idle]);
    assert_eq!(bed.rows("stats_mysql_connection_pool", Reading::Reset).len(), 2);
    let fresh = ["1", "db1", "3306", "ONLINE", "0", "0", "0", "0", "0"];
    assert_eq!(bed.columns("stats_mysql_connection_pool", &columns), [fresh, idle]);
    let queries = metric(&bed, "proxysql_connpool_conns_queries_total");
    assert_eq!(queries.get("endpoint=db1:3306,hostgroup=1"), Some(&2.0), "metrics only grow");
    let latency = bed.columns("stats_tidegate_latency", &["srv_host", "kind", "count", "max_us"]);
    assert_eq!(latency, [["db1", "read", "1", "100"], ["db1", "write", "1", "900"]]);
    bed.rows("stats_tidegate_latency", Reading::Reset);
    assert!(bed.rows("stats_tidegate_latency", Reading::Keep).is_empty());
}

#[test]
fn sums_over_the_process_do_not_shrink_with_the_servers() {
    let bed = Bed::new();
    bed.run(0, "SELECT 1", 100);
    ask_all(&bed.shared, |worker| worker.meter.count_traffic((HostgroupId(1), 0), (10, 20)));
    bed.shared.hostgroup(HostgroupId(1)).servers()[0].counts.connected(true, 3);
    let sums = || {
        let bytes = metric(&bed, "proxysql_queries_backends_bytes_total");
        (bytes, metric(&bed, "proxysql_server_connections_total")["status=created"])
    };
    let before = sums();
    let (config, _) = model::parse(&CONFIG.replace("hostgroup = 1 }", "hostgroup = 5 }"), "test.cnf").unwrap();
    bed.shared.configure_hostgroups(&Arc::new(Snapshot::compile(&config).unwrap()));
    assert_eq!(bed.columns("stats_mysql_connection_pool", &["hostgroup"]), [["2"], ["5"]]);
    assert_eq!((sums(), before.1), (before, 1.0));
}

#[test]
fn errors_of_all_workers_add_up() {
    let bed = Bed::new();
    ask_all(&bed.shared, |worker| {
        let server = worker.pool(HostgroupId(1)).servers()[0].clone();
        let key = error_key(&server.key, "anna", b"shop", 1146);
        worker.meter.count_error(key, None, b"no such table", worker.clock.now_ms());
    });
    let columns = ["hostname", "port", "username", "errno", "count_star", "last_error"];
    assert_eq!(bed.columns("stats_mysql_errors", &columns), [["db1", "3306", "anna", "1146", "2", "no such table"]]);
    assert_eq!(metric(&bed, "mysql_error_total").into_values().collect::<Vec<_>>(), [2.0]);
    bed.rows("stats_mysql_errors", Reading::Reset);
    assert!(bed.rows("stats_mysql_errors", Reading::Keep).is_empty());
}

#[test]
fn what_another_process_counts_comes_in_parts() {
    let (old, new) = (Bed::new(), Bed::new());
    let shown = || {
        let digests = new.columns("stats_mysql_query_digest", &["digest_text", "count_star", "sum_time", "min_time", "max_time"]);
        let commands = new.columns("stats_mysql_commands_counters", &["Command", "Total_cnt", "Total_Time_us"]);
        let selects = commands.into_iter().find(|row| row[0] == "SELECT").unwrap();
        let queries = new.columns("stats_mysql_connection_pool", &["srv_host", "Queries"]);
        let errors = new.columns("stats_mysql_errors", &["errno", "count_star"]);
        (digests, selects[1..].join(" "), queries[0][1].clone(), errors)
    };
    let questions = |bed: &Bed, count: u64| {
        ask(&bed.shared, 1, move |worker| crate::workers::counters::add(&worker.counters.questions, count)).unwrap();
    };
    let fail = |bed: &Bed| {
        ask(&bed.shared, 0, |worker| {
            let server = worker.pool(HostgroupId(1)).servers()[0].clone();
            let key = error_key(&server.key, "anna", b"shop", 1146);
            worker.meter.count_error(key, None, b"no such table", worker.clock.now_ms());
        })
        .unwrap();
    };
    let asked =
        || new.shared.mailboxes.iter().enumerate().filter_map(|(at, _)| ask(&new.shared, at, |w| w.counters.questions.get())).sum::<u64>();
    (0..2).for_each(|worker| old.run(worker, "SELECT 1", 100));
    new.run(0, "SELECT 1", 200);
    questions(&old, 10);
    fail(&old);
    new.stats.add_counts(old.stats.counts());
    let first = [["SELECT ?", "3", "400", "100", "200"].map(str::to_owned).to_vec()];
    let errors = |count: &str| vec![vec!["1146".to_owned(), count.to_owned()]];
    assert_eq!(shown(), (first.to_vec(), "3 400".to_owned(), "3".to_owned(), errors("1")));
    assert_eq!(asked(), 10);
    old.run(1, "SELECT 1", 50);
    old.run(0, "SELECT a FROM t", 7);
    questions(&old, 5);
    fail(&old);
    new.stats.add_counts(old.stats.more_counts());
    let digests = [["SELECT ?", "4", "450", "50", "200"], ["SELECT a FROM t", "1", "7", "7", "7"]];
    let all = (digests.map(|row| row.map(str::to_owned).to_vec()).to_vec(), "5 457".to_owned(), "5".to_owned(), errors("2"));
    assert_eq!(shown(), all);
    new.stats.add_counts(old.stats.more_counts());
    assert_eq!((shown(), asked()), (all, 15), "nothing more was counted");
    old.stats.forget_handed();
    let third = Bed::new();
    third.stats.add_counts(old.stats.more_counts());
    let again = third.columns("stats_mysql_query_digest", &["digest_text", "count_star"]);
    assert_eq!(again, [["SELECT ?", "3"], ["SELECT a FROM t", "1"]], "a process that takes over later gets all");
}

#[test]
fn commands_are_counted_over_all_workers() {
    let bed = Bed::new();
    (0..2).for_each(|worker| bed.run(worker, "SELECT 1", 700));
    let rows = bed.columns("stats_mysql_commands_counters", &["Command", "Total_cnt", "Total_Time_us", "cnt_1ms"]);
    assert_eq!(rows.len(), 54);
    assert!(rows.contains(&["SELECT", "2", "1400", "2"].map(str::to_owned).to_vec()));
}

#[test]
fn a_worker_that_does_not_answer_is_left_out() {
    let mut bed = Bed::new();
    bed.run(0, "SELECT 1", 1);
    bed.run(1, "SELECT 1", 1);
    bed.shared.mailboxes[1].send(Mail::Stop);
    bed.workers.remove(1).join().unwrap();
    assert_eq!(bed.columns("stats_mysql_query_digest", &["count_star"]), [["1"]]);
}

#[test]
fn pins_are_summed_up_by_reason() {
    let bed = Bed::new();
    let rows = bed.columns("stats_tidegate_pins_summary", &["reason", "sessions", "longest_ms", "began_total"]);
    assert_eq!(rows.len(), session_state::pins::PinReason::ALL.len());
    assert!(rows.contains(&["transaction", "0", "0", "0"].map(str::to_owned).to_vec()));
}

#[test]
fn connects_that_failed_are_errors_of_their_server() {
    let bed = Bed::new();
    ask(&bed.shared, 0, |worker| {
        let server = worker.pool(HostgroupId(1)).servers()[0].clone();
        let user = worker.snapshot().frontend_user(b"anna").unwrap().clone();
        let class = session_state::class::Class::of(Default::default());
        let lane = LaneKey { hostgroup: HostgroupId(1), user, class };
        let refused: Result<(), _> = Err(crate::backends::connect::ConnectError::Server("refused".into()));
        crate::backends::connect::counted(worker, &server, &lane, &refused);
        let full = session_state::collected::ServerError { code: 1040, sqlstate: *b"08004", message: b"Too many connections".to_vec() };
        let full: Result<(), _> = Err(crate::backends::connect::ConnectError::Closed(full));
        crate::backends::connect::counted(worker, &server, &lane, &full);
    });
    let errors = bed.columns("stats_mysql_errors", &["errno", "last_error"]);
    assert_eq!(errors, [["1040", "Too many connections"], ["2003", "refused"]]);
    assert_eq!(bed.columns("stats_mysql_connection_pool", &["srv_host", "ConnERR"])[0], ["db1", "2"]);
}

/// A family's samples by their labels.
fn metric(bed: &Bed, name: &str) -> BTreeMap<String, f64> {
    let metrics = bed.stats.metrics();
    let family = metrics.iter().find(|m| m.name == name).unwrap();
    let labels = |labels: &[(&str, String)]| labels.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(",");
    family.samples.iter().map(|s| (format!("{}{}", s.suffix, labels(&s.labels)), s.value)).collect()
}

#[test]
fn metrics_have_names_and_no_sample_twice() {
    let bed = Bed::new();
    bed.run(0, "SELECT 1", 100);
    let metrics = bed.stats.metrics();
    let mut names = HashSet::new();
    for family in &metrics {
        assert!(names.insert(family.name), "{} is there twice", family.name);
        let mut samples = HashSet::new();
        for sample in &family.samples {
            assert!(samples.insert((sample.suffix, &sample.labels)), "{}: {:?}", family.name, sample.labels);
        }
    }
    let traffic = metric(&bed, "proxysql_queries_frontends_bytes_total");
    assert_eq!(traffic.keys().collect::<Vec<_>>(), ["traffic_flow=received", "traffic_flow=sent"]);
    let latency = metric(&bed, "tidegate_statement_seconds");
    let of = "endpoint=db1:3306,hostgroup=1,kind=read";
    assert_eq!(latency[&format!("_bucket{of},le=0.000064")], 0.0);
    assert_eq!(latency[&format!("_bucket{of},le=0.000256")], 1.0);
    assert_eq!(latency[&format!("_bucket{of},le=+Inf")], 1.0);
    assert_eq!((latency[&format!("_count{of}")], latency[&format!("_sum{of}")]), (1.0, 0.0001));
}

/// Names that dashboards made for ProxySQL ask for.
#[test]
fn what_dashboards_ask_for_is_there() {
    let bed = Bed::new();
    let metrics = bed.stats.metrics();
    for name in [
        "proxysql_mysql_listener_paused",
        "proxysql_fds_in_use",
        "proxysql_query_processor_time_seconds_total",
        "proxysql_backend_query_time_seconds_total",
        "proxysql_connpool_memory_bytes",
        "proxysql_mysql_query_rules_memory_bytes",
        "proxysql_mysql_firewall_rules_table_bytes",
        "proxysql_mirror_queue_lengths",
        "proxysql_gtid_consistent_queries_total",
        "proxysql_jemalloc_bytes",
    ] {
        assert!(metrics.iter().any(|family| family.name == name), "{name}");
    }
    let open = metric(&bed, "proxysql_fds_in_use")[""];
    assert!(open > 2.0, "{open}");
    let memory = bed.columns("stats_memory_metrics", &["Variable_Name"]).concat();
    for name in [
        "jemalloc_resident",
        "Auth_memory",
        "query_digest_memory",
        "mysql_query_rules_memory",
        "mysql_firewall_users_table",
        "mysql_firewall_users_config",
        "mysql_firewall_rules_table",
        "mysql_firewall_rules_config",
        "stack_memory_mysql_threads",
        "stack_memory_admin_threads",
        "stack_memory_cluster_threads",
    ] {
        assert!(memory.iter().any(|known| known == name), "{name}: {memory:?}");
    }
    assert!(bed.columns("stats_mysql_global", &["Variable_Name"]).concat().iter().any(|name| name == "mysql_listener_paused"));
}
