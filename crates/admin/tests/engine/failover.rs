//! Orders about roles go to the operator's implementation, and no other session waits for them.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use admin::{Precedence, Reply, Role, SessionInfo, bootstrap};
use model::fleet::{HealOrder, HealedStep, HealingStep, Operator, Told};
use model::{HostgroupId, ServerAddr};

use crate::bed::{Bed, FILE, options};

/// Records its orders; a DRAIN lasts until the test lets it end.
struct Hands {
    told: Mutex<Vec<String>>,
    drains: Mutex<mpsc::Receiver<()>>,
    steps: Mutex<Vec<(u64, HealedStep)>>,
}

impl Hands {
    fn note(&self, what: String) -> Result<String, String> {
        self.told.lock().unwrap().push(what.clone());
        Ok(what)
    }
}

impl Operator for Hands {
    fn switchover(&self, hostgroup: HostgroupId, to: &ServerAddr, timeout_ms: Option<u64>) -> Result<Told, String> {
        let text = self.note(format!("switchover {hostgroup} to {to} in {timeout_ms:?}"))?;
        Ok(Told { text, warnings: vec!["db3 is not a replica of db2".to_owned()] })
    }

    fn failback(&self, hostgroup: HostgroupId) -> Result<String, String> {
        Err(format!("{hostgroup} has nowhere to go back to"))
    }

    fn accept(&self, hostgroup: HostgroupId, from: Option<&ServerAddr>) -> Result<String, String> {
        self.note(format!("accept {hostgroup} from {}", from.map(ToString::to_string).unwrap_or_default()))
    }

    fn pause(&self, hostgroup: HostgroupId, is_paused: bool) -> Result<String, String> {
        self.note(format!("pause {hostgroup} {is_paused}"))
    }

    fn drain(&self, server: &ServerAddr, _: Option<u64>) -> Result<String, String> {
        self.drains.lock().unwrap().recv().unwrap();
        Ok(format!("{server} is drained"))
    }

    fn undrain(&self, server: &ServerAddr) -> Result<String, String> {
        self.note(format!("undrain {server}"))
    }

    fn adopt(&self, server: &ServerAddr) -> Result<String, String> {
        self.note(format!("adopt {server}"))
    }

    fn suspend_healing(&self, hostgroup: Option<HostgroupId>, limit: Option<Duration>, by: &str) -> Result<String, String> {
        self.note(format!("suspend {hostgroup:?} {limit:?} by {by}"))
    }

    fn resume_healing(&self, hostgroup: Option<HostgroupId>) -> Result<String, String> {
        self.note(format!("resume {hostgroup:?}"))
    }

    fn acknowledge_healing(&self, hostgroup: HostgroupId) -> Result<String, String> {
        self.note(format!("acknowledge {hostgroup}"))
    }

    fn explain_healing(&self, hostgroup: HostgroupId, dies: Option<&ServerAddr>) -> Result<Vec<HealingStep>, String> {
        let said = dies.map_or_else(|| "the writer".to_owned(), ToString::to_string);
        if hostgroup.0 > 1 {
            return Err(format!("no advice is given for hostgroup {hostgroup}"));
        }
        Ok(vec![HealingStep { step: "open".into(), server: "db2:3306".into(), statement: said, undo: String::new() }])
    }

    fn heal(&self, order: &HealOrder, by: &str) -> Result<String, String> {
        self.note(format!("heal {} to {:?} losing {:?} by {by}", order.hostgroup, order.to, order.losing))
    }

    fn explain_heal(&self, order: &HealOrder) -> Result<Vec<HealingStep>, String> {
        self.explain_healing(order.hostgroup, None)
    }

    fn rejoin(&self, server: &ServerAddr, discarding: Option<u64>) -> Result<String, String> {
        self.note(format!("rejoin {server} {discarding:?}"))
    }

    fn healed_steps(&self) -> Vec<(u64, HealedStep)> {
        self.steps.lock().unwrap().clone()
    }

    fn forget_healed_steps(&self, last: u64) {
        self.steps.lock().unwrap().retain(|(number, _)| *number > last);
    }

    fn healing_remarks(&self) -> Vec<(HostgroupId, String)> {
        vec![(HostgroupId(1), "db2:3306: its heartbeats are slow".to_owned())]
    }
}

fn bed() -> (Bed, Arc<Hands>, mpsc::Sender<()>) {
    let datadir = Arc::new(tempfile::tempdir().unwrap());
    let (end, drains) = mpsc::channel();
    let hands = Arc::new(Hands { told: Mutex::default(), drains: Mutex::new(drains), steps: Mutex::default() });
    let boot = bootstrap(options(datadir.path(), FILE, Precedence::Database)).unwrap().with_operator(hands.clone());
    (Bed::start(boot, datadir), hands, end)
}

#[test]
fn orders_reach_the_operator_and_its_answer_the_administrator() {
    let (bed, hands, _end) = bed();
    assert_eq!(bed.ok("SWITCHOVER HOSTGROUP 1 TO 'db2:3306' TIMEOUT 500"), "switchover 1 to db2:3306 in Some(500)");
    let warned = |warnings: &[String]| warnings == ["db3 is not a replica of db2"];
    let reply = bed.reply(Role::Admin, "SWITCHOVER HOSTGROUP 1 TO 'db2:3306'");
    assert!(matches!(&reply, Reply::Ok { warnings, .. } if warned(warnings)), "SHOW WARNINGS lists them: {reply:?}");
    assert_eq!(bed.ok("ACCEPT CLUSTER HOSTGROUP 1"), "accept 1 from ");
    assert_eq!(bed.ok("ACCEPT CLUSTER HOSTGROUP 1 FROM 'db2'"), "accept 1 from db2:3306");
    bed.ok("PAUSE HOSTGROUP 1");
    bed.ok("RESUME HOSTGROUP 1");
    bed.ok("UNDRAIN SERVER 'db2:3306'");
    bed.ok("ADOPT SERVER 'db2:3306'");
    assert!(bed.ok("SUSPEND HEALING HOSTGROUP 1 FOR 60 SECONDS").starts_with("suspend Some(HostgroupId(1)) Some(60s) by "));
    assert_eq!(bed.ok("RESUME HEALING"), "resume None");
    assert_eq!(bed.ok("ACKNOWLEDGE HEALING HOSTGROUP 1"), "acknowledge 1");
    assert!(bed.ok("HEAL HOSTGROUP 1 FORCE LOSING 3").starts_with("heal 1 to None losing Some(3) by "));
    assert_eq!(bed.rows("HEAL HOSTGROUP 1 DRY RUN"), ["open|db2:3306|the writer|"]);
    assert_eq!(bed.ok("REJOIN SERVER 'db2:3306'"), "rejoin db2:3306 None");
    assert_eq!(bed.refused("FAILBACK HOSTGROUP 1"), "1 has nowhere to go back to");
    assert!(bed.refused("SWITCHOVER HOSTGROUP 1").contains("the command is: SWITCHOVER HOSTGROUP n TO"));
    let told = hands.told.lock().unwrap().clone();
    assert_eq!(told[4..8], ["pause 1 true", "pause 1 false", "undrain db2:3306", "adopt db2:3306"]);
}

#[test]
fn steps_of_plans_are_moved_into_the_history() {
    let (bed, hands, _end) = bed();
    let step = |number: u64, statement: &str| {
        let step = HealedStep {
            at_unix_us: 1_764_000_000_000_000 + number,
            plan: "promotion",
            number: Some(7),
            epoch: None,
            by: String::new(),
            writer: Some(HostgroupId(1)),
            server: ServerAddr { host: "db2".into(), port: 3306 },
            step: "it is opened".to_owned(),
            statement: statement.to_owned(),
            result: "ok".to_owned(),
            took_ms: 3,
        };
        (number, step)
    };
    bed.ok("SET admin-stats_history_day_days=36500");
    bed.ok("LOAD ADMIN VARIABLES TO RUNTIME");
    *hands.steps.lock().unwrap() = vec![step(1, "SET GLOBAL read_only=0"), step(2, "")];
    let sql = "SELECT plan, plan_id, epoch IS NULL, writer_hostgroup, hostname, port, statement, result, took_ms \
               FROM stats_history.history_tidegate_healing ORDER BY rowid";
    let wanted = ["promotion|7|1|1|db2|3306|SET GLOBAL read_only=0|ok|3", "promotion|7|1|1|db2|3306|NULL|ok|3"];
    assert_eq!(bed.rows(sql), wanted);
    assert!(hands.steps.lock().unwrap().is_empty());
    *hands.steps.lock().unwrap() = vec![step(3, "x")];
    assert_eq!(bed.rows(sql).len(), 3);
}

#[test]
fn hooks_are_rows_of_a_table() {
    let (bed, _, _end) = bed();
    bed.ok("INSERT INTO mysql_healing_hooks (writer_hostgroup, moment, command) VALUES (1, 'fence', 'power off')");
    assert!(bed.refused("INSERT INTO mysql_healing_hooks (writer_hostgroup, moment, command) VALUES (1, 'later', 'a')").contains("CHECK"));
    bed.ok("LOAD MYSQL SERVERS TO RUNTIME");
    assert_eq!(bed.rows("SELECT moment, command, timeout_ms, required FROM runtime_mysql_healing_hooks"), ["fence|power off|10000|0"]);
    bed.ok("UPDATE mysql_healing_hooks SET command='/bin/sh'");
    assert!(bed.refused("LOAD MYSQL SERVERS TO RUNTIME").contains("without a slash"));
}

#[test]
fn advice_is_asked_for_and_its_remarks_come_with_a_load() {
    let (bed, _hands, _end) = bed();
    assert_eq!(bed.rows("EXPLAIN HEALING HOSTGROUP 1"), ["open|db2:3306|the writer|"]);
    assert_eq!(bed.rows("explain healing hostgroup 1 if 'db3' dies"), ["open|db2:3306|db3:3306|"]);
    assert_eq!(bed.refused("EXPLAIN HEALING HOSTGROUP 7"), "no advice is given for hostgroup 7");
    assert!(bed.refused("EXPLAIN HEALING HOSTGROUP x").contains("the command is: EXPLAIN HEALING HOSTGROUP n [IF 'host:port' DIES]"));

    let loaded = bed.ok("LOAD MYSQL SERVERS TO RUNTIME");
    assert!(loaded.contains("mysql_healing, writer_hostgroup=1, column mode: db2:3306: its heartbeats are slow"), "{loaded}");
    assert!(!bed.ok("LOAD MYSQL USERS TO RUNTIME").contains("heartbeats"));
    // Without the operator's word that no other proxy promotes, mode full is refused, and what was in force stays.
    bed.ok("INSERT INTO mysql_healing (writer_hostgroup) VALUES (1)");
    bed.ok("LOAD MYSQL SERVERS TO RUNTIME");
    bed.ok("UPDATE mysql_healing SET mode='full'");
    let refused = bed.refused("LOAD MYSQL SERVERS TO RUNTIME");
    assert!(
        refused.contains("SET admin-healing_alone='true'") && refused.contains("Several proxies need a shared configuration in etcd"),
        "{refused}"
    );
    assert_eq!(bed.rows("SELECT mode, dead_ms, loss, site FROM runtime_mysql_healing"), ["advise|4000|reported|same"]);
    bed.ok("SET admin-healing_alone='true'");
    bed.ok("LOAD ADMIN VARIABLES TO RUNTIME");
    bed.ok("LOAD MYSQL SERVERS TO RUNTIME");
    assert_eq!(bed.rows("SELECT mode, block_ms FROM runtime_mysql_healing"), ["full|3600000"]);
    bed.ok("SET admin-healing_alone='false'");
    assert!(bed.refused("LOAD ADMIN VARIABLES TO RUNTIME").contains("mode 'full' promotes servers"));
    bed.ok("SET admin-healing_alone='true'");
    bed.ok("INSERT INTO proxysql_servers (hostname, port) VALUES ('p2', 6032)");
    assert!(bed.refused("LOAD PROXYSQL SERVERS TO RUNTIME").contains("proxysql_servers has rows"));
    bed.ok("DELETE FROM proxysql_servers");
    assert!(bed.refused("INSERT INTO mysql_healing (writer_hostgroup, mode) VALUES (2, 'sometimes')").contains("CHECK"));
    bed.ok("UPDATE mysql_healing SET mode='off'");
    bed.ok("INSERT INTO mysql_healing_servers (hostname, promotion) VALUES ('db9', 'never')");
    let loaded = bed.ok("LOAD MYSQL SERVERS TO RUNTIME");
    assert!(loaded.contains("db9:3306 is not in mysql_servers"), "{loaded}");
    assert_eq!(bed.rows("SELECT hostname, port, promotion FROM runtime_mysql_healing_servers"), ["db9|3306|never"]);
}

#[test]
fn without_an_operator_the_error_says_what_is_missing() {
    assert!(Bed::new().refused("DRAIN SERVER 'db1:3306'").contains("mysql-monitor_enabled"));
    assert!(Bed::new().refused("EXPLAIN HEALING HOSTGROUP 1").contains("mysql-monitor_enabled"));
}

#[test]
fn others_are_served_while_an_order_is_under_way_and_few_are() {
    let (bed, _hands, end) = bed();
    let session = SessionInfo { user: "admin".to_owned(), peer: "127.0.0.1".to_owned(), connection_id: 1, ..SessionInfo::default() };
    let drains: Vec<_> = (0..5)
        .map(|n| {
            let (handle, session) = (bed.handle.clone(), session.clone());
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                runtime.block_on(handle.execute(Role::Admin, &session, format!("DRAIN SERVER 'db{n}:3306'").into_bytes()))
            })
        })
        .collect();
    // One order too many is refused, whichever it is. The engine serves other sessions meanwhile.
    let refused = loop {
        assert_eq!(bed.rows("SELECT 1"), ["1"]);
        if let Some(at) = drains.iter().position(|drain| drain.is_finished()) {
            break at;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    (0..4).for_each(|_| end.send(()).unwrap());
    for (at, drain) in drains.into_iter().enumerate() {
        match drain.join().unwrap() {
            Reply::Err { text, .. } => assert!(at == refused && text.contains("already under way"), "{at}: {text}"),
            Reply::Ok { info, .. } => assert_eq!(info, format!("db{at}:3306 is drained")),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(bed.ok("RESUME HOSTGROUP 1"), "pause 1 false");
}
