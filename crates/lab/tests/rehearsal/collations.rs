//! The next version has other default collations: the shadow gets those that the client will get there.
//!
//! 'ß' is 'ss' by `utf8mb4_uca1400_ai_ci`, the default of utf8mb4 from MariaDB 11.5 on, and not by `utf8mb4_general_ci`.

use super::common::{LIMIT, Peer};
use super::{Rehearsal, proxy, whole};
use lab::client::Encoding;
use lab::{Flavor, Options, Server};

const TABLE: [&str; 2] = ["CREATE TABLE test.items (id INT PRIMARY KEY)", "INSERT INTO test.items VALUES (1), (2), (3)"];

/// A read whose answer depends on the connection's collation. It is known by its column.
fn read(column: &str) -> String {
    format!("SELECT COUNT(*) AS {column} FROM items WHERE 'ß' = 'ss'")
}

/// Sessions with these collations: the id of the login, what the client says, the column of its read, and whether it gets the default.
const SESSIONS: [(u8, &[&str], &str, bool); 6] = [
    (45, &[], "by_login", true),
    (46, &[], "by_other_login", false),
    (45, &["SET NAMES utf8mb4"], "by_names", true),
    (8, &["SET NAMES latin1", "SET NAMES utf8mb4"], "by_later_names", true),
    (45, &["SET NAMES utf8mb4 COLLATE utf8mb4_general_ci"], "named", false),
    (45, &["SET NAMES utf8mb4", "SET collation_connection = utf8mb4_general_ci"], "assigned", false),
];

/// A MariaDB 11.8 as the shadow of one of an earlier version, in mode `reads`.
fn reads(remedy: &[&str]) -> Vec<(&'static str, String)> {
    let original = Server::start(Flavor::Mariadb, &Options::new()).unwrap();
    let shadow = Server::start(Flavor::Mariadb, &Options::new().mariadb("11.8")).unwrap();
    for server in [&original, &shadow] {
        TABLE.iter().for_each(|sql| drop(server.sql(sql).unwrap()));
    }
    shadow.sql("SET GLOBAL read_only=1").unwrap();
    remedy.iter().for_each(|sql| drop(shadow.sql(sql).unwrap()));
    let proxy = proxy(&original, &shadow, &[("rechecks_per_s", 1000.into())]);
    let mut rehearsal = Rehearsal::start(&proxy);
    for encoding in [Encoding::Text, Encoding::Binary] {
        for (charset, says, column, _) in SESSIONS {
            let mut peer = Peer::with(&proxy.options("app", "app-pass").database("test").timeout(LIMIT).charset(charset), encoding);
            says.iter().for_each(|sql| peer.exec_text(sql));
            assert_eq!(peer.get(&read(column)), "0", "the original's clients have its own collation: {column}");
        }
    }
    rehearsal.settled();
    println!("{}", rehearsal.page());
    SESSIONS.map(|(_, _, column, _)| (column, rehearsal.classes(&format!("%AS {column} FROM items%")))).into()
}

#[test]
fn reads_run_in_the_collation_that_the_next_version_gives() {
    for ((column, found), (_, _, _, is_default)) in reads(&[]).into_iter().zip(SESSIONS) {
        assert_eq!(found, if is_default { "rows 2" } else { "same 2" }, "{column}");
    }
}

#[test]
fn a_new_server_with_the_old_default_answers_the_same() {
    for (column, found) in reads(&["SET GLOBAL character_set_collations = 'utf8mb4=utf8mb4_general_ci'"]) {
        assert_eq!(found, "same 2", "{column}");
    }
}

/// Sessions that have said their SET NAMES before the copy begins.
#[test]
fn whole_sessions_begin_in_the_collation_that_the_next_version_gives() {
    let servers = whole::servers(Flavor::Mariadb);
    TABLE.iter().for_each(|sql| drop(servers.primary.sql(sql).unwrap()));
    servers.wait_caught_up().unwrap();
    let proxy = whole::proxy(&servers, &[]);
    let begun = SESSIONS.map(|(charset, says, column, is_default)| {
        let options = proxy.options("app", "app-pass").database("test").timeout(LIMIT).charset(charset);
        let mut peer = Peer::with(&options, Encoding::Text);
        says.iter().for_each(|sql| peer.exec_text(sql));
        peer.exec("SELECT COUNT(*) FROM items");
        (peer, column, is_default)
    });
    let mut rehearsal = Rehearsal::start(&proxy);
    for (mut peer, column, is_default) in begun {
        assert_eq!(peer.get(&read(column)), "0");
        rehearsal.settled();
        let found = rehearsal.classes(&format!("%AS {column} FROM items%"));
        assert_eq!(found, if is_default { "rows 1" } else { "same 1" }, "{column}\n{}", rehearsal.page());
    }
}
