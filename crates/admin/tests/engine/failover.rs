//! Orders about roles go to the operator's implementation, and no other session waits for them.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use admin::{Precedence, Reply, Role, SessionInfo, bootstrap};
use model::fleet::{Operator, Told};
use model::{HostgroupId, ServerAddr};

use crate::bed::{Bed, FILE, options};

/// Records its orders; a DRAIN lasts until the test lets it end.
struct Hands {
    told: Mutex<Vec<String>>,
    drains: Mutex<mpsc::Receiver<()>>,
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
}

fn bed() -> (Bed, Arc<Hands>, mpsc::Sender<()>) {
    let datadir = Arc::new(tempfile::tempdir().unwrap());
    let (end, drains) = mpsc::channel();
    let hands = Arc::new(Hands { told: Mutex::default(), drains: Mutex::new(drains) });
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
    assert_eq!(bed.refused("FAILBACK HOSTGROUP 1"), "1 has nowhere to go back to");
    assert!(bed.refused("SWITCHOVER HOSTGROUP 1").contains("the command is: SWITCHOVER HOSTGROUP n TO"));
    let told = hands.told.lock().unwrap().clone();
    assert_eq!(told[4..], ["pause 1 true", "pause 1 false", "undrain db2:3306"]);
}

#[test]
fn without_an_operator_the_error_says_what_is_missing() {
    assert!(Bed::new().refused("DRAIN SERVER 'db1:3306'").contains("mysql-monitor_enabled"));
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
