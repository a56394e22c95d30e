//! The audit log's lines about sessions of the admin port.

use std::sync::Arc;
use std::time::{Duration, Instant};

use admin::outside::{Outside, OutsideParts};
use admin::{Precedence, Role, SessionInfo};
use lab::client::{Client, ConnectOptions};
use model::Listen;
use model::control::{AdminAction, AdminEvent};

use crate::bed::Bed;

/// An engine with an open admin port, and the port's address.
fn port() -> (Bed, Outside, String) {
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
    (bed, outside, address.to_string())
}

/// The audit log's events, once there are this many.
fn noted(bed: &Bed, count: usize) -> Vec<AdminEvent> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while bed.plane.audits.lock().unwrap().len() < count {
        assert!(Instant::now() < deadline, "{:?}", bed.plane.audits);
        std::thread::yield_now();
    }
    bed.plane.audits.lock().unwrap().clone()
}

#[test]
fn sessions_of_the_admin_port_are_noted() {
    let (bed, outside, address) = port();
    let options = |password: &str| ConnectOptions::tcp(address.clone(), "admin", password);
    Client::connect(&options("wrong")).unwrap_err();
    let client = Client::connect(&options("admin").database("stats")).unwrap();
    assert!(matches!(bed.reply(Role::Admin, "SELECT 1"), admin::Reply::Rows { .. }));
    client.quit().unwrap();
    let noted = noted(&bed, 4);
    let actions: Vec<AdminAction> = noted.iter().map(|event| event.action).collect();
    assert_eq!(actions, [AdminAction::ConnectErr, AdminAction::ConnectOk, AdminAction::Quit, AdminAction::Close]);
    assert!(noted.iter().all(|event| event.user == "admin" && event.client.starts_with("127.0.0.1:") && event.connected_at_ms > 0));
    assert!(noted[0].extra.as_ref().is_some_and(|why| why.starts_with("Access denied")), "{noted:?}");
    assert_eq!((noted[3].schema.as_str(), noted[3].session_id), ("stats", noted[1].session_id));
    outside.stop();
}

/// COM_CHANGE_USER is a login of its own: the lines name the user that was proven.
#[test]
fn a_change_of_the_user_is_noted() {
    let (bed, outside, address) = port();
    let options = |user: &str, password: &str| ConnectOptions::tcp(address.clone(), user, password);
    let mut client = Client::connect(&options("admin", "admin")).unwrap();
    client.change_user(&options("stats", "stats").database("monitor")).unwrap();
    client.change_user(&options("admin", "wrong")).unwrap_err();
    let noted = noted(&bed, 4);
    let lines: Vec<_> = noted.iter().map(|event| (event.action, event.user.as_str(), event.schema.as_str())).collect();
    let wanted = [
        (AdminAction::ConnectOk, "admin", ""),
        (AdminAction::ConnectOk, "stats", "monitor"),
        (AdminAction::ConnectErr, "admin", ""),
        (AdminAction::Close, "stats", "monitor"),
    ];
    assert_eq!(lines, wanted);
    assert!(noted[2].extra.as_ref().is_some_and(|why| why.starts_with("Access denied")), "{noted:?}");
    outside.stop();
}

/// The audit log's line about one statement of the page's console.
fn told(bed: &Bed, sql: &str) -> Option<String> {
    let line = AdminEvent {
        action: AdminAction::Statement,
        session_id: 1,
        user: "admin".to_owned(),
        schema: String::new(),
        client: "127.0.0.1:1".to_owned(),
        connected_at_ms: 1,
        is_tls: false,
        extra: None,
    };
    let session = SessionInfo { user: "admin".to_owned(), audit: Some(Box::new(line)), ..SessionInfo::default() };
    bed.plane.audits.lock().unwrap().clear();
    bed.runtime.block_on(bed.handle.execute(Role::Admin, &session, sql.as_bytes().to_vec()));
    let told = bed.plane.audits.lock().unwrap().clone();
    assert!(told.len() < 2, "{told:?}");
    told.into_iter().next().map(|event| event.extra.unwrap())
}

#[test]
fn what_changes_something_is_noted_by_sqlites_word() {
    let bed = Bed::new();
    for sql in [
        "SELECT 1",
        "SELECT * FROM mysql_users",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "EXPLAIN UPDATE mysql_users SET active=0",
        "/* x */ SHOW MYSQL USERS",
        "DESC mysql_users",
        "SELECT @@mysql-threads",
        "CONFIG DIFF",
        "CONFIG HISTORY",
        "SELECT CONFIG FILE",
        "PRAGMA table_info(mysql_users)",
        "",
    ] {
        assert_eq!(told(&bed, sql), None, "{sql}");
    }
    for (sql, extra) in [
        ("WITH a AS (SELECT 1) UPDATE mysql_users SET password='s3cret'", "WITH ? AS (SELECT ?) UPDATE mysql_users SET password=?"),
        ("/* it's */ UPDATE mysql_users SET password='s3cret'", "UPDATE mysql_users SET password=?"),
        ("SET mysql-monitor_password=s3cret", "SET mysql-monitor_password=?"),
        ("SELECT CONFIG INTO OUTFILE '/nowhere/s3cret'", "SELECT CONFIG INTO OUTFILE ?"),
        ("EXPLAIN s3cret 's3cret'", "EXPLAIN ? ?"),
        ("SELECT * FROM stats_mysql_query_digest_reset", "SELECT * FROM ?"),
        ("LOAD MYSQL USERS TO RUNTIME", "LOAD MYSQL USERS TO RUNTIME"),
        ("KILL 7", "KILL 7"),
        ("DELETE FROM disk.mysql_users WHERE username = s3cret", "DELETE FROM disk.mysql_users WHERE username = ?"),
    ] {
        assert_eq!(told(&bed, sql).as_deref(), Some(extra), "{sql}");
    }
}
