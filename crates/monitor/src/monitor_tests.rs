//! The lags that the data plane gets, which are those that statements with a limit are routed by.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use model::fleet::{Bound, Fleet, HostgroupLoad, Layout, Measured, RoleKeeper};
use model::snapshot::ReadOnlyCheck;
use model::{HostgroupId, ServerAddr};
use tokio::runtime::{Builder, Runtime};
use topology::{AuroraInstance, CheckKind, Lag, ProbeError, SourcesView};

use crate::lane::Checked;
use crate::monitor::{Monitor, Running, lock};
use crate::probe::{AuroraRow, Found};
use crate::testing::snapshot;

/// A data plane that only remembers the last measurement of each server.
#[derive(Default)]
struct Plane {
    measured: Mutex<BTreeMap<ServerAddr, Measured>>,
}

impl Fleet for Plane {
    fn arrange(&self, _layout: Layout) {}

    fn measured(&self, server: &ServerAddr, measured: Measured) {
        lock(&self.measured).insert(server.clone(), measured);
    }

    fn looked_at(&self, _server: &ServerAddr) {}

    fn moved(&self, _host: &str, _gone: &[IpAddr]) {}

    fn hold(&self, _hostgroup: HostgroupId, _is_held: bool) {}

    fn load(&self, _hostgroup: HostgroupId) -> HostgroupLoad {
        HostgroupLoad::default()
    }

    fn bound(&self, _hostgroup: HostgroupId) -> Vec<Bound> {
        Vec::new()
    }

    fn in_use(&self, _server: &ServerAddr, _hostgroup: Option<HostgroupId>) -> u32 {
        0
    }

    fn received(&self, _server: &ServerAddr) -> Option<u64> {
        None
    }
}

/// A monitor whose checks are made up.
struct Bed {
    monitor: Arc<Monitor>,
    plane: Arc<Plane>,
    _runtime: Runtime,
}

impl Bed {
    fn new(text: &str) -> Self {
        let runtime = Builder::new_current_thread().build().unwrap();
        let (monitor, plane) = (Monitor::new(), Arc::<Plane>::default());
        monitor.configure(&snapshot(text));
        assert!(monitor.begin(Running { fleet: plane.clone(), runtime: runtime.handle().clone() }));
        Self { monitor, plane, _runtime: runtime }
    }

    fn checked(&self, host: &str, kind: CheckKind, outcome: Result<Found, ProbeError>) {
        self.monitor.checked(Checked { addr: addr(host), kind, started_us: 0, took_us: 1, timeout_ms: 100, outcome });
        self.monitor.take_sightings();
    }

    fn last(&self, host: &str) -> Measured {
        lock(&self.plane.measured).get(&addr(host)).copied().unwrap_or_default()
    }
}

fn addr(host: &str) -> ServerAddr {
    ServerAddr { host: host.into(), port: 3306 }
}

#[test]
fn a_lag_ends_with_its_check() {
    let limited = "mysql_servers = ( { hostgroup=5, address=\"a\", port=3306, max_replication_lag=10 },
      { hostgroup=5, address=\"b\", port=3306 } )";
    let unlimited = limited.replace(", max_replication_lag=10", "");
    let off = format!("mysql_variables = {{ monitor_enabled=false }}\n{limited}");
    for end in [unlimited, off] {
        let bed = Bed::new(limited);
        bed.checked("a", CheckKind::Lag, Ok(Found::Lag(Lag::Behind(5_000))));
        bed.checked("a", CheckKind::Ping, Ok(Found::Ping(100)));
        assert_eq!(bed.last("a").lag_ms, Some(5_000));
        bed.monitor.configure(&snapshot(&end));
        assert_eq!(bed.last("a").lag_ms, None, "at once: {end}");
        bed.checked("a", CheckKind::Lag, Ok(Found::Lag(Lag::Behind(5_000))));
        bed.checked("a", CheckKind::Ping, Ok(Found::Ping(200)));
        assert_eq!((bed.last("a").latency_us, bed.last("a").lag_ms), (150, None), "{end}");
    }
}

#[test]
fn a_view_of_aurora_tells_the_lag_of_each_instance() {
    let bed = Bed::new(
        "mysql_servers = ( { hostgroup=1, address=\"a.x\", port=3306 }, { hostgroup=2, address=\"b.x\", port=3306 } )
         mysql_aws_aurora_hostgroups = ( { writer_hostgroup=1, reader_hostgroup=2, domain_name=\".x\" } )",
    );
    let row = |name: &str, is_writer, lag_ms| AuroraRow {
        instance: AuroraInstance { server_id: name.to_owned(), is_writer, lag_ms, age_ms: 10, cpu: 1 },
        session_id: String::new(),
        updated: String::new(),
    };
    for (lag_ms, expected) in [(4_000, 4_030), (0, 0), (AuroraInstance::LAG_UNKNOWN_MS, AuroraInstance::LAG_UNKNOWN_MS + 30)] {
        let view = vec![row("a", true, 0), row("b", false, lag_ms)];
        bed.checked("b.x", CheckKind::Aurora, Ok(Found::Aurora(view)));
        assert_eq!((bed.last("a.x").lag_ms, bed.last("b.x").lag_ms), (Some(0), Some(expected)), "add_lag_ms is 30");
        assert_eq!((bed.last("a.x").is_source, bed.last("b.x").is_source), (true, false));
    }
    bed.checked("b.x", CheckKind::Ping, Ok(Found::Ping(100)));
    assert!(bed.last("b.x").lag_ms.is_some());
}

#[test]
fn a_writer_is_the_source_where_lag_is_limited() {
    let cluster = |limit: &str| {
        format!(
            "mysql_servers = ( {{ hostgroup=1, address=\"a\", port=3306 }}, {{ hostgroup=2, address=\"b\", port=3306 {limit} }} )
             mysql_replication_hostgroups = ( {{ writer_hostgroup=1, reader_hostgroup=2 }} )"
        )
    };
    for (limit, is_limited) in [(", max_replication_lag=10", true), ("", false)] {
        let bed = Bed::new(&cluster(limit));
        bed.checked("a", CheckKind::Sources, Ok(Found::Sources(SourcesView::default())));
        for (host, is_read_only, lag) in [("a", false, Lag::NotReplica), ("b", true, Lag::Behind(0))] {
            bed.checked(host, CheckKind::ReadOnly(ReadOnlyCheck::ReadOnly), Ok(Found::ReadOnly(is_read_only)));
            bed.checked(host, CheckKind::Lag, Ok(Found::Lag(lag)));
        }
        let both = ["a", "b"].map(|host| (bed.last(host).lag_ms, bed.last(host).is_source));
        assert_eq!(both, [(None, is_limited), (is_limited.then_some(0), false)], "{limit}");
    }
    let bed = Bed::new("mysql_servers = ( { hostgroup=5, address=\"a\", port=3306, max_replication_lag=10 } )");
    for (lag, expected) in [(Lag::NotReplica, true), (Lag::Member, false), (Lag::Behind(0), false)] {
        bed.checked("a", CheckKind::Lag, Ok(Found::Lag(lag)));
        assert_eq!(bed.last("a").is_source, expected, "in no cluster: {lag:?}");
    }
}

#[test]
fn an_unknown_lag_is_estimated() {
    let bed = Bed::new("mysql_servers = ( { hostgroup=5, address=\"a\", port=3306, max_replication_lag=10 } )");
    bed.checked("a", CheckKind::Lag, Ok(Found::Lag(Lag::Unknown)));
    assert_eq!(bed.last("a").lag_ms, Some(60_000), "nothing was ever known: monitor_slave_lag_when_null");
    bed.checked("a", CheckKind::Lag, Ok(Found::Lag(Lag::Behind(3_000))));
    bed.checked("a", CheckKind::Lag, Ok(Found::Lag(Lag::Unknown)));
    let is_grown = |lag_ms: Option<u64>| lag_ms.is_some_and(|ms| (3_000..60_000).contains(&ms));
    assert!(is_grown(bed.last("a").lag_ms), "{:?}", bed.last("a"));
    for _ in 0..3 {
        bed.checked("a", CheckKind::Lag, Err(ProbeError::Timeout));
        assert!(is_grown(bed.last("a").lag_ms), "{:?}", bed.last("a"));
    }
    for _ in 0..3 {
        bed.checked("a", CheckKind::Lag, Err(ProbeError::Failed("1146".to_owned())));
    }
    assert_eq!(bed.last("a").lag_ms, None, "what cannot be asked limits nothing");
}
