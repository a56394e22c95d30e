//! What follows from the record that several proxies share, with a decider that says what the test wants.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::fleet::{Decider, HealingView, Operator, RecordChange, RoleKeeper};
use model::{HostgroupId, ServerAddr};
use topology::healing::{Channel, Facts, LinkState, LinkThread, Phase, Primary, Record, Replica, ServerVersion, Standing, Verdict};
use topology::{GtidSet, ServerId};

use super::promote::{Promoting, proved};
use super::shared::Noted;
use super::tend::{Ground, Tending};
use crate::monitor::{Monitor, lock};
use crate::testing::snapshot;

const TEN: HostgroupId = HostgroupId(10);
const TWENTY: HostgroupId = HostgroupId(20);

/// etcd, as the test has it. Hostgroup 20's record cannot be written.
#[derive(Debug, Default)]
struct Said(Mutex<HealingView>);

impl Decider for Said {
    fn name(&self) -> String {
        "one".to_owned()
    }

    fn view(&self, writer: HostgroupId) -> HealingView {
        let view = lock(&self.0).clone();
        if writer == TEN { view } else { HealingView { away: view.away, ..HealingView::default() } }
    }

    fn clusters(&self) -> BTreeSet<HostgroupId> {
        lock(&self.0).record.iter().map(|_| TEN).collect()
    }

    fn scope(&self) -> String {
        "scope".to_owned()
    }

    fn lead(&self, _wanted: &BTreeSet<HostgroupId>, _limit: Duration) {}

    fn write(&self, writer: HostgroupId, _as_healer: bool, mut change: RecordChange) -> Result<i64, String> {
        if writer != TEN {
            return Err("etcd does not answer".to_owned());
        }
        let mut view = lock(&self.0);
        let text = change(view.record.as_ref().map(|(text, _)| text.as_str()))?;
        view.record = Some((text, 8));
        Ok(8)
    }
}

fn at(host: &str) -> ServerAddr {
    ServerAddr { host: host.into(), port: 3306 }
}

/// Two clusters; `mode` is that of hostgroup 10, empty for no row.
fn config(mode: &str, endpoints: &str, is_watched: bool) -> String {
    let row = if mode.is_empty() { String::new() } else { format!("{{ writer_hostgroup=10, mode=\"{mode}\" }}") };
    format!(
        "admin_variables = {{ shared_config_endpoints=\"{endpoints}\" }}\n\
         mysql_variables = {{ monitor_enabled={is_watched} }}\n\
         mysql_servers = ( {{ address=\"a\", hostgroup=10 }}, {{ address=\"b\", hostgroup=10 }}, {{ address=\"d\", hostgroup=20 }} )\n\
         mysql_replication_hostgroups = ( {{ writer_hostgroup=10, reader_hostgroup=11 }}, {{ writer_hostgroup=20, reader_hostgroup=21 }} )\n\
         mysql_healing = ( {row} )"
    )
}

const ETCD: &str = "http://127.0.0.1:2379";

/// A plan that promotes `b` in place of `a`.
fn record(plan: &str, phase: Phase) -> Record {
    let mut record = Record::default();
    record.begin(plan, "one", &at("a"), Vec::new());
    if matches!(phase, Phase::Fork | Phase::Open | Phase::Rest) {
        record.fork(&at("b"), GtidSet::default(), 5);
    }
    match phase {
        Phase::Open => record.open(),
        Phase::Rest => record.undo("why", Vec::new(), 5),
        Phase::Plan | Phase::Fork => {}
    }
    record
}

struct Proxy {
    monitor: Arc<Monitor>,
    etcd: Arc<Said>,
    noted: Noted,
}

impl Proxy {
    fn new(mode: &str) -> Self {
        let (monitor, etcd) = (Monitor::new(), Arc::new(Said::default()));
        monitor.keep_decider(Arc::clone(&etcd) as Arc<dyn Decider>);
        let proxy = Self { monitor, etcd, noted: Noted::new() };
        proxy.load(&config(mode, ETCD, true));
        proxy
    }

    fn load(&self, text: &str) {
        self.monitor.configure(&snapshot(text));
    }

    /// etcd says this; then the proxy follows it.
    fn hear(&mut self, away: Option<&str>, text: Option<String>) -> &mut Self {
        let record = text.map(|text| (text, 7));
        *lock(&self.etcd.0) = HealingView { away: away.map(str::to_owned), record, ..HealingView::default() };
        self.follow()
    }

    fn read(&mut self, record: &Record) -> &mut Self {
        self.hear(None, Some(serde_json::to_string(record).unwrap()))
    }

    fn follow(&mut self) -> &mut Self {
        self.monitor.follow_once(&mut self.noted);
        self
    }

    /// The clusters in which `a` may not write.
    fn barred(&self) -> Vec<HostgroupId> {
        let barred = self.monitor.barred().into_iter().filter(|(_, servers)| servers.contains_key(&at("a")));
        barred.map(|(writer, _)| writer).collect()
    }

    fn forks(&self) -> usize {
        self.monitor.past(TEN).0.len()
    }
}

#[test]
fn servers_are_excluded_only_while_the_record_is_followed() {
    for next in [config("off", ETCD, true), config("", ETCD, true), config("rejoin", "", true), config("rejoin", ETCD, false)] {
        for mode in ["full", "rejoin"] {
            let mut proxy = Proxy::new(mode);
            proxy.read(&record("p", Phase::Open));
            assert_eq!(proxy.barred(), [TEN]);
            proxy.load(&config(mode, ETCD, true));
            assert_eq!(proxy.follow().barred(), [TEN], "a LOAD that changes nothing");
            proxy.load(&next);
            assert!(proxy.follow().barred().is_empty(), "{next}");
        }
    }
}

#[test]
fn while_the_record_is_not_known_all_stays_as_it_is() {
    let mut proxy = Proxy::new("full");
    proxy.read(&record("p", Phase::Fork));
    assert_eq!((proxy.barred(), proxy.forks()), (vec![TEN], 1));
    for (away, text) in [(None, Some("?")), (Some("etcd was not read yet"), None), (None, Some(r#"{"phase": "later"}"#))] {
        proxy.hear(away, text.map(str::to_owned));
        assert_eq!((proxy.barred(), proxy.forks()), (vec![TEN], 1), "{away:?} {text:?}");
    }
    // etcd says that there is none: somebody has deleted it.
    assert!(proxy.hear(None, None).barred().is_empty());
}

#[test]
fn what_was_noted_of_a_plan_is_forgotten_only_where_that_plan_was_undone() {
    let mut proxy = Proxy::new("full");
    proxy.read(&record("p", Phase::Fork)).read(&record("q", Phase::Rest));
    assert_eq!(proxy.forks(), 1, "another plan says nothing of it");
    proxy.hear(None, None);
    assert_eq!(proxy.forks(), 1);
    proxy.read(&record("p", Phase::Rest));
    assert_eq!(proxy.forks(), 0);
}

#[test]
fn an_outcast_is_let_in_by_an_order_in_every_mode() {
    for mode in ["rejoin", "full"] {
        let mut proxy = Proxy::new(mode);
        assert!(proxy.monitor.acknowledge(TEN).unwrap_err().contains("etcd has no record of it"), "{mode}");
        proxy.read(&record("p", Phase::Open));
        let why = proxy.monitor.barred()[&TEN][&at("a")].clone();
        assert!(why.contains("or by ACKNOWLEDGE HEALING"), "{why}");
        let told = proxy.monitor.acknowledge(TEN).unwrap();
        assert!(told.contains("its last promotion is acknowledged"), "{told}");
        assert!(proxy.follow().barred().is_empty());
    }
}

#[test]
fn who_leads_in_mode_rejoin_ends_what_a_promotion_left() {
    for (mode, phase, wanted) in [("rejoin", Phase::Open, true), ("rejoin", Phase::Rest, false), ("full", Phase::Rest, true)] {
        let mut proxy = Proxy::new(mode);
        proxy.read(&record("p", phase));
        let policy = Arc::clone(&proxy.monitor.snapshot().healing[&TEN]);
        let would_lead = Promoting::new().would_lead(&proxy.monitor, &policy, Verdict::Alive);
        assert_eq!(would_lead, wanted, "{mode} {phase:?}");
    }
}

/// `c` writes, and `b`, which has this, follows it.
fn returned(has: &str) -> Facts {
    let set = |text: &str| GtidSet::parse(text).unwrap();
    let runs = LinkThread { state: LinkState::Runs, error: None };
    let channel = Channel {
        name: String::new(),
        source: at("c"),
        is_from_primary: true,
        is_by_gtid: true,
        position: String::new(),
        receiver: runs.clone(),
        applier: runs,
        delay_s: 0,
        has_filters: false,
        lag_ms: None,
        heard_ms: None,
        heartbeat_ms: None,
    };
    let replica = Replica {
        silence: None,
        id: ServerId::new(Some(2), Some("bb")),
        executed: set(has),
        received: set(has),
        has_gtids: true,
        is_closed: true,
        logs: true,
        channel: Some(channel),
        channels: 1,
        ..Replica::silent(at("b"), "")
    };
    let primary = Primary {
        addr: at("c"),
        id: ServerId::new(Some(3), Some("cc")),
        version: ServerVersion::default(),
        executed: Some(set("aa:1-5")),
        latest: None,
        purged: GtidSet::default(),
        acknowledged: GtidSet::default(),
        is_strict: false,
        semi_sync: None,
        age_ms: 0,
        site: "".into(),
    };
    Facts { primary: Some(primary), is_alive: true, replicas: vec![replica] }
}

/// Its promotion was given up, so no proxy knows of a fork.
#[tokio::test]
async fn an_outcast_of_the_record_has_to_be_proved() {
    let mut proxy = Proxy::new("full");
    let record = Record { outcasts: vec![at("b")], ..Record::default() };
    proxy.read(&record);
    assert_eq!(proxy.forks(), 0);
    let writers = [at("c")];
    let ground = Ground { writer: TEN, servers: &[], writers: &writers, foreign: &[] };
    let mut tending = Tending::default();
    let found = tending.round(&proxy.monitor, &ground, &returned("aa:1-5,bb:1"), Verdict::Alive).await.tended;
    assert_eq!((found[0].standing, found[0].is_out), (Standing::Errant, true), "{}", found[0].why);
    assert!(proved(&record, &found).is_empty());
    let found = tending.round(&proxy.monitor, &ground, &returned("aa:1-5"), Verdict::Alive).await.tended;
    assert_eq!((found[0].standing, found[0].is_out), (Standing::Follows, false), "{}", found[0].why);
    assert_eq!(proved(&record, &found), [at("b")]);
    proxy.read(&Record::default());
    let found = tending.round(&proxy.monitor, &ground, &returned("aa:1-5,bb:1"), Verdict::Alive).await.tended;
    assert!(!found[0].is_out, "ACKNOWLEDGE HEALING has let it in");

    lock(&proxy.monitor.healing.returned).insert(at("b"));
    tending.round(&proxy.monitor, &ground, &returned("aa:1-5"), Verdict::Alive).await;
    proxy.read(&record);
    let found = tending.round(&proxy.monitor, &ground, &returned("aa:1-5,bb:1"), Verdict::Alive).await.tended;
    assert_eq!((found[0].standing, found[0].is_out), (Standing::Errant, true), "it wrote after it had followed: {}", found[0].why);
}

#[test]
fn a_suspension_says_for_whom_it_holds() {
    let mut proxy = Proxy::new("");
    let refused = proxy.monitor.suspend(None, None, "ann").unwrap_err();
    assert!(refused.contains("nothing was suspended"), "{refused}");
    proxy.load(&config("full", ETCD, true));
    let told = proxy.monitor.suspend(None, None, "ann").unwrap();
    assert!(told.starts_with("healing of hostgroup 10 is suspended until RESUME HEALING: no proxy promotes a server"), "{told}");
    assert!(told.ends_with("Rows that are added to mysql_healing later are not suspended"), "{told}");
    let both = config("full", ETCD, true).replace("mode=\"full\" }", "mode=\"full\" }, { writer_hostgroup=20, mode=\"advise\" }");
    proxy.load(&both);
    let told = proxy.monitor.suspend(None, None, "ann").unwrap();
    let wanted = "on all proxies for hostgroup 10, and on this proxy only for hostgroup 20: etcd does not answer";
    assert!(told.contains(wanted), "{told}");
    let told = proxy.monitor.suspend(Some(TWENTY), None, "ann").unwrap();
    assert!(told.contains("It holds on this proxy only: etcd does not answer"), "{told}");
    assert!(proxy.follow().monitor.suspended(TEN).is_some());
}

#[test]
fn a_suspension_ends_though_its_row_is_gone() {
    for next in ["off", ""] {
        let mut proxy = Proxy::new("full");
        proxy.monitor.suspend(None, None, "ann").unwrap();
        proxy.load(&config(next, ETCD, true));
        assert!(proxy.follow().monitor.suspended(TEN).is_some(), "{next}");
        proxy.monitor.resume(None).unwrap();
        assert_eq!(proxy.follow().monitor.suspended(TEN), None, "{next}");
    }
}

#[test]
fn healing_goes_on_only_if_no_suspension_is_known() {
    for mode in ["full", ""] {
        let mut proxy = Proxy::new(mode);
        proxy.hear(Some("etcd was not read yet"), None);
        for hostgroup in [None, Some(TEN)] {
            let refused = proxy.monitor.resume(hostgroup).unwrap_err();
            assert!(refused.contains("may stay suspended") && refused.contains("etcd was not read yet"), "{mode} {hostgroup:?}: {refused}");
        }
        proxy.hear(None, None);
        assert_eq!(proxy.monitor.resume(None).unwrap(), "healing goes on");
        let mut suspended = record("p", Phase::Rest);
        suspended.suspended = Some(topology::healing::Suspension { until_ms: None, by: "ann".to_owned() });
        proxy.read(&suspended).hear(Some("etcd was not read yet"), None);
        assert!(proxy.monitor.resume(Some(TEN)).is_err());
        proxy.read(&suspended);
        assert_eq!(proxy.monitor.resume(Some(TEN)).unwrap(), "healing goes on");
    }
}
