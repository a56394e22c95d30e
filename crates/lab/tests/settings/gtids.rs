//! GTIDs of a client's own writes: MySQL sends them to sessions with `session_track_gtids`.

use crate::common::{LIMIT, Peer};
use crate::{admin, set};
use lab::client::{Encoding, Reply};
use lab::tidegate::Setting;
use lab::{ConnectOptions, Flavor, Options, Server, Tidegate};
use std::sync::OnceLock;
use wire::session_state::Change;

const ASK: &str = "SET SESSION session_track_gtids=OWN_GTID";

/// A MySQL server that has GTIDs, for all tests of this file.
fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let options = Options::new().args(["--log-bin=bin", "--gtid-mode=ON", "--enforce-gtid-consistency=ON"]);
        let server = Server::start(Flavor::Mysql, &options).unwrap();
        server.sql("CREATE TABLE test.told (i INT)").unwrap();
        server
    })
}

/// Two backends on one worker, so that sessions share them.
fn proxy(variables: &[(&str, Setting)]) -> Tidegate {
    let builder = Tidegate::builder().server_with(0, server().host(), server().port(), &[("max_connections", 2.into())]);
    let builder = builder.app_user().variable("threads", 1);
    variables.iter().fold(builder, |builder, (name, value)| builder.variable(name, value.clone())).start().unwrap()
}

fn gtids(reply: &Reply) -> Option<String> {
    let changes = reply.ok().unwrap().changes().unwrap();
    changes.into_iter().find_map(|change| match change {
        Change::Gtids(gtids) => Some(String::from_utf8_lossy(gtids).into_owned()),
        _ => None,
    })
}

/// Writes: whether the client was told a GTID, which must then be that of the write.
fn is_told(peer: &mut Peer) -> bool {
    let Some(told) = gtids(&peer.exec("INSERT INTO test.told VALUES (1)")) else { return false };
    let is_ours = format!("SELECT GTID_SUBSET('{told}', @@GLOBAL.gtid_executed)");
    assert_eq!(server().scalar(&is_ours).unwrap().as_deref(), Some("1"), "{told}");
    true
}

fn backends() -> String {
    server().scalar("SELECT COUNT(*) FROM information_schema.processlist WHERE user='app'").unwrap().unwrap()
}

#[test]
fn who_asks_is_told() {
    let proxy = proxy(&[]);
    for encoding in [Encoding::Text, Encoding::Binary] {
        let options = ConnectOptions::tcp(server().address(), "app", "app-pass").database("test").timeout(LIMIT);
        let mut direct = Peer::with(&options, encoding);
        assert!(!is_told(&mut direct));
        direct.exec(ASK);
        assert!(is_told(&mut direct), "the test itself");
        drop(direct);

        let [mut asks, mut asks_not, mut holder] = [(); 3].map(|()| Peer::through(&proxy, encoding));
        assert!(!is_told(&mut asks));
        asks.exec(ASK);
        assert!(is_told(&mut asks) && is_told(&mut asks), "{encoding:?}");
        assert!(!is_told(&mut asks_not), "{encoding:?}: on the same backend");
        assert_eq!(
            (asks.get("SELECT @@session_track_gtids"), asks_not.get("SELECT @@session_track_gtids")),
            ("OWN_GTID".into(), "OFF".into())
        );
        // Another session has the backend: this one continues on a second backend.
        holder.exec("BEGIN");
        assert!(is_told(&mut asks), "{encoding:?}: on another backend");
        assert_eq!(backends(), "2");
        assert!(!is_told(&mut asks_not), "{encoding:?}: there too");
        holder.exec("COMMIT");
        // A transaction's GTID comes with its end.
        asks.exec("BEGIN");
        assert!(!is_told(&mut asks));
        assert!(gtids(&asks.exec("COMMIT")).is_some());
        asks.exec("SET SESSION session_track_gtids=OFF");
        assert!(!is_told(&mut asks));
        asks.exec("SET @@session.session_track_gtids='OWN_GTID', group_concat_max_len=4711");
        assert!(is_told(&mut asks));
        asks_not.disturb();
        assert_eq!(asks.get("SELECT @@group_concat_max_len"), "4711", "what is set beside it is carried too");
        asks.reset_connection().unwrap();
        assert!(!is_told(&mut asks), "{encoding:?}: after a reset");
    }
}

#[test]
fn nobody_is_told_where_it_is_off() {
    let proxy = proxy(&[("client_session_track_gtid", false.into())]);
    let mut admin = admin(&proxy);
    for encoding in [Encoding::Text, Encoding::Binary] {
        let mut asks = Peer::through(&proxy, encoding);
        asks.exec(ASK);
        for is_on in [false, true, false] {
            set(&mut admin, "client_session_track_gtid", &is_on.to_string());
            assert_eq!(is_told(&mut asks), is_on, "{encoding:?}");
        }
        assert_eq!(asks.get("SELECT @@session_track_gtids"), "OWN_GTID", "its setting stands");
    }
}

#[test]
fn all_are_told_where_that_is_the_default() {
    let proxy = proxy(&[("default_session_track_gtids", "OWN_GTID".into())]);
    for encoding in [Encoding::Text, Encoding::Binary] {
        let mut peer = Peer::through(&proxy, encoding);
        assert!(is_told(&mut peer), "{encoding:?}");
        peer.exec("SET SESSION session_track_gtids=OFF");
        assert!(!is_told(&mut peer), "{encoding:?}: its own setting");
        peer.reset_connection().unwrap();
        assert!(is_told(&mut peer), "{encoding:?}: a reset brings the default back");
    }
}
