//! What the audit log is told of sessions of the admin port.

use std::sync::Arc;
use std::time::{Duration, Instant};

use admin::outside::{Outside, OutsideParts};
use admin::{Precedence, Role};
use lab::client::{Client, ConnectOptions};
use model::Listen;
use model::control::AdminAction;

use crate::bed::Bed;

#[test]
fn sessions_of_the_admin_port_are_noted() {
    let file = "admin_variables = { mysql_ifaces=\"127.0.0.1:0\" }";
    let bed = Bed::open(Arc::new(tempfile::tempdir().unwrap()), file, Precedence::Database);
    let (_tell, tls) = tokio::sync::watch::channel(None);
    let parts = OutsideParts {
        engine: bed.handle.clone(),
        sources: Vec::new(),
        board: Arc::default(),
        tls,
        is_ready: Arc::new(|| Ok(())),
        sockets: handover::Sockets::fresh(),
    };
    let outside = Outside::start(parts).unwrap();
    let Listen::Tcp(address) = outside.addresses().mysql[0].clone() else { panic!() };
    let options = |password: &str| ConnectOptions::tcp(address.to_string(), "admin", password);
    Client::connect(&options("wrong")).unwrap_err();
    let client = Client::connect(&options("admin").database("stats")).unwrap();
    assert!(matches!(bed.reply(Role::Admin, "SELECT 1"), admin::Reply::Rows { .. }));
    client.quit().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while bed.plane.audits.lock().unwrap().len() < 4 {
        assert!(Instant::now() < deadline, "{:?}", bed.plane.audits);
        std::thread::yield_now();
    }
    let noted = bed.plane.audits.lock().unwrap().clone();
    let actions: Vec<AdminAction> = noted.iter().map(|event| event.action).collect();
    assert_eq!(actions, [AdminAction::ConnectErr, AdminAction::ConnectOk, AdminAction::Quit, AdminAction::Close]);
    assert!(noted.iter().all(|event| event.user == "admin" && event.client.starts_with("127.0.0.1:") && event.connected_at_ms > 0));
    assert!(noted[0].extra.as_ref().is_some_and(|why| why.starts_with("Access denied")), "{noted:?}");
    assert_eq!((noted[3].schema.as_str(), noted[3].session_id), ("stats", noted[1].session_id));
    outside.stop();
}
