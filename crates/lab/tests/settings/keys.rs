//! The file of TLS keys: those of both sides while it is wanted, for its owner alone.

use crate::common::{LIMIT, server};
use crate::{admin, wait};
use lab::tidegate::Setting;
use lab::{Client, Tidegate};
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The sessions of which the file has keys: their client randoms. Each line must be one of NSS's.
fn sessions(file: &Path) -> HashSet<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().map(|line| {
        let [label, random, secret] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(label.starts_with("CLIENT_") || label.starts_with("SERVER_") || label == "EXPORTER_SECRET", "{line}");
        assert!(random.len() == 64 && is_hex(random) && is_hex(secret), "{line}");
        random.to_owned()
    });
    lines.collect()
}

/// Two clients with TLS, each in a transaction: two backends.
fn pair(proxy: &Tidegate) -> [Client; 2] {
    [(); 2].map(|()| {
        let mut client = Client::connect(&proxy.options("app", "app-pass").tls().timeout(LIMIT)).unwrap();
        client.run("BEGIN").unwrap();
        client
    })
}

#[test]
fn keys_are_written_while_they_are_wanted() {
    for flavor in crate::BOTH {
        let server = server(flavor);
        let row: [(&str, Setting); 2] = [("use_ssl", 1.into()), ("max_connections", 8.into())];
        let builder = Tidegate::builder().server_with(0, server.host(), server.port(), &row).app_user().variable("threads", 1);
        let proxy = builder.admin_variable("ssl_keylog_file", "keys.txt").start().unwrap();
        let (mut admin, file, moved) = (admin(&proxy), proxy.dir().join("keys.txt"), proxy.dir().join("keys.old"));
        let first = pair(&proxy);
        wait::until("keys of two clients and a backend", LIMIT, || (sessions(&file).len() >= 3).then_some(())).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o077, 0, "{flavor:?}");
        // If the file was moved away, it is created again.
        fs::rename(&file, &moved).unwrap();
        admin.run("PROXYSQL FLUSH LOGS").unwrap();
        let second = pair(&proxy);
        wait::until("keys of two clients and two backends", LIMIT, || (sessions(&file).len() >= 4).then_some(())).unwrap();
        assert!(sessions(&file).is_disjoint(&sessions(&moved)), "{flavor:?}");
        let mut load = |value: &str| {
            admin.run(format!("SET admin-ssl_keylog_file='{value}'")).unwrap();
            admin.query("LOAD ADMIN VARIABLES TO RUNTIME").unwrap().err().map(|error| error.message.clone())
        };
        for wrong in [".", "nowhere/keys.txt"] {
            assert!(load(wrong).is_some_and(|text| text.contains("admin-ssl_keylog_file")), "{flavor:?} {wrong}");
        }
        assert_eq!(load(""), None);
        let before = fs::metadata(&file).unwrap().len();
        let third = pair(&proxy);
        assert_eq!(fs::metadata(&file).unwrap().len(), before, "{flavor:?}: not wanted any more");
        drop((first, second, third));
    }
}
