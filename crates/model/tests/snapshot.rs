//! The compiled form of a configuration.
#![allow(clippy::unwrap_used)] // tests, helpers included, may panic

use std::path::Path;
use std::sync::Arc;

use model::settings::BackendSslVerify;
use model::snapshot::NativeHash;
use model::{Address, HostgroupId, Password, Secret, ServerStatus, Snapshot, parse};

fn compiled(text: &str) -> Snapshot {
    let (config, _) = parse(text, "p.cnf").unwrap_or_else(|errors| panic!("{errors:#?}"));
    Snapshot::compile(&config).unwrap()
}

#[test]
fn servers_are_grouped() {
    let snapshot = compiled(
        r#"mysql_servers = (
            { address="db1" hostgroup=10 weight=5 use_ssl=1 compression=1 status="offline_soft" max_connections=7 },
            { address="/run/m.sock" port=0 hostgroup=10 use_ssl=1 },
            { address="db1" port=3307 hostgroup=20 } )"#,
    );
    let ids: Vec<u32> = snapshot.hostgroups.keys().map(|id| id.0).collect();
    assert_eq!(ids, [10, 20]);
    let servers = &snapshot.hostgroup(HostgroupId(10)).unwrap().servers;
    assert_eq!(servers[0].address, Address::Tcp { host: "db1".into(), port: 3306 });
    assert_eq!((servers[0].status, servers[0].weight, servers[0].max_connections), (ServerStatus::OfflineSoft, 5, 7));
    assert!(servers[0].use_ssl && servers[0].compression);
    assert_eq!(servers[1].address, Address::Unix("/run/m.sock".into()));
    assert!(!servers[1].use_ssl, "sockets never use TLS");
    assert_eq!(servers[0].key.to_string(), "10/db1:3306");
}

/// The operator's status holds, even SHUNNED.
#[test]
fn every_status_is_taken_as_it_is_configured() {
    let snapshot =
        compiled(r#"mysql_servers = ( { address="a" hostgroup=1 status="shunned" }, { address="b" hostgroup=1 status="OFFLINE_HARD" } )"#);
    let servers = &snapshot.hostgroup(HostgroupId(1)).unwrap().servers;
    assert_eq!([servers[0].status, servers[1].status], [ServerStatus::Shunned, ServerStatus::OfflineHard]);
}

#[test]
fn attributes_stand_in_for_variables() {
    let snapshot = compiled(
        r#"mysql_variables = { free_connections_pct=30 init_connect="SET @a=1" }
           mysql_servers = ( { address="a" hostgroup=1 }, { address="a" hostgroup=2 }, { address="a" hostgroup=3 } )
           mysql_hostgroup_attributes = ( { hostgroup_id=2 },
             { hostgroup_id=3 init_connect="SET @b=2" multiplex=0 throttle_connections_per_sec=9 } )"#,
    );
    let of = |id| &snapshot.hostgroup(HostgroupId(id)).unwrap().attributes;
    assert_eq!((of(1).free_connections_pct, &*of(1).init_connect, of(1).multiplex), (30, "SET @a=1", true));
    assert_eq!((of(2).free_connections_pct, &*of(2).init_connect), (10, "SET @a=1"));
    assert_eq!((&*of(3).init_connect, of(3).multiplex, of(3).throttle_connections_per_sec), ("SET @b=2", false, 9));
}

#[test]
fn multiplexing_off_is_off_everywhere() {
    let snapshot = compiled(
        r#"mysql_variables = { multiplexing=false } mysql_users = ( { username="u" } )
           mysql_hostgroup_attributes = ( { hostgroup_id=2 multiplex=1 } )"#,
    );
    let of = |id| snapshot.effective(snapshot.users.get("u").unwrap(), HostgroupId(id));
    assert!(!of(2).multiplexing && !of(7).multiplexing);
}

#[test]
fn tls_parameters_by_server_and_user() {
    let snapshot = compiled(
        r#"mysql_variables = { ssl_p2s_ca="global.pem" ssl_p2s_key="global.key" backend_ssl_verify="identity" }
           mysql_servers = ( { address="a" use_ssl=1 }, { address="b" use_ssl=1 }, { address="c" } )
           mysql_servers_ssl_params = ( { hostname="a" ssl_ca="a.pem" }, { hostname="a" username="u" ssl_ca="u.pem" },
             { hostname="b" username="u" tls_version="TLSv1.3" }, { hostname="c" port=1 ssl_ca="other.pem" } )"#,
    );
    let servers = &snapshot.hostgroup(HostgroupId(0)).unwrap().servers;
    let ca = |index: usize, user| servers[index].tls_for(user).ca.as_deref();
    assert_eq!((ca(0, "u"), ca(0, "x")), (Some(Path::new("u.pem")), Some(Path::new("a.pem"))));
    assert_eq!((ca(1, "u"), ca(1, "x")), (None, Some(Path::new("global.pem"))));
    assert_eq!(servers.iter().map(|server| server.has_own_tls("u")).collect::<Vec<_>>(), [true, true, false]);
    assert!(!servers[0].has_own_tls("x"));
    assert_eq!(ca(2, "u"), Some(Path::new("global.pem")));
    assert_eq!(servers[0].tls.key, None, "a row replaces the global parameters whole");
    assert_eq!(servers[0].tls.verify, BackendSslVerify::Identity);
    assert_eq!(servers[1].tls_for("u").tls_version.as_deref(), Some("TLSv1.3"));
}

#[test]
fn users_have_two_halves() {
    let snapshot = compiled(
        r#"mysql_users = ( { username="both" password="p" default_schema="s" },
             { username="halves" password="front" backend=0 default_hostgroup=3 },
             { username="halves" password="back" frontend=0 },
             { username="off" active=0 },
             { username="iso" attributes="{\"default-transaction_isolation\":\"READ COMMITTED\"}" } )"#,
    );
    let both = snapshot.frontend_user(b"both").unwrap();
    assert!(Arc::ptr_eq(both, snapshot.backend_user(b"both").unwrap()));
    assert_eq!(snapshot.default_schema(both), "s");
    let front = snapshot.frontend_user(b"halves").unwrap();
    assert_eq!((&front.password, front.default_hostgroup), (&Password::Clear(Secret::from("front")), HostgroupId(3)));
    assert_eq!(snapshot.backend_user(b"halves").unwrap().password, Password::Clear(Secret::from("back")));
    assert_eq!(snapshot.default_schema(front), "");
    assert!(snapshot.frontend_user(b"off").is_none() && snapshot.frontend_user(b"\xff").is_none());
    let isolation = &snapshot.frontend_user(b"iso").unwrap().attributes.default_transaction_isolation;
    assert_eq!(isolation.as_deref(), Some("READ COMMITTED"));
    assert!(!format!("{snapshot:?}").contains("front\""), "passwords stay out of Debug");
}

#[test]
fn passwords_are_recognised() {
    let sha2 = format!("$A$005${}", "x".repeat(63));
    let cases = [
        ("", Password::Empty),
        ("p", Password::Clear(Secret::from("p"))),
        ("*94BDCEBE19083CE2A1F959FD02F964C7AF4CFC2Z", Password::Clear(Secret::from("*94BDCEBE19083CE2A1F959FD02F964C7AF4CFC2Z"))),
        ("*00000000000000000000000000000000000000fF", {
            let mut hash = [0; 20];
            hash[19] = 255;
            Password::NativeHash(NativeHash(hash))
        }),
        (&sha2, Password::CachingSha2Hash(Secret::from(sha2.as_str()))),
        ("$A$005$short", Password::Clear(Secret::from("$A$005$short"))),
    ];
    for (text, expected) in cases {
        assert_eq!(Password::read(&Secret::from(text)), expected, "{text}");
    }
}

#[test]
fn listeners_and_networks_are_read() {
    let snapshot =
        compiled(r#"mysql_variables = { interfaces="127.0.0.1:6033;[::1]:6033;/tmp/x.sock" proxy_protocol_networks="10.0.0.0/8" }"#);
    let shown: Vec<String> = snapshot.listen.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["127.0.0.1:6033", "[::1]:6033", "/tmp/x.sock"]);
    assert!(snapshot.proxy_networks.contains("10.1.1.1".parse().unwrap()));
}

#[test]
fn variables_assigned_by_hand_are_checked() {
    let mut config = model::Config::default();
    config.mysql.interfaces = "nonsense".to_owned();
    let errors = Snapshot::compile(&config).unwrap_err();
    assert_eq!(errors[0].to_string(), "mysql_variables.interfaces: 'nonsense': 'nonsense' is neither ip:port, [ipv6]:port nor /path");
}

#[test]
fn servers_that_are_found_have_defaults() {
    let row =
        |json: &str| format!(r#"mysql_hostgroup_attributes = ( {{ hostgroup_id=1 servers_defaults="{}" }} )"#, json.replace('"', "\\\""));
    let snapshot = compiled(&row(r#"{"weight": 7, "use_ssl": 1}"#));
    let defaults = &snapshot.hostgroup(HostgroupId(1)).unwrap().attributes.servers_defaults;
    assert_eq!((defaults.weight, defaults.max_connections, defaults.use_ssl), (Some(7), None, Some(true)));
    for (json, fault) in
        [(r#"{"weight": -1}"#, "'weight' must be"), (r#"{"use_ssl": 2}"#, "'use_ssl' must be"), (r#"{"wait": 2}"#, "'wait' is unknown")]
    {
        let errors = parse(&row(json), "p.cnf").unwrap_err();
        let named = |text: &str| text.contains("mysql_hostgroup_attributes.servers_defaults") && text.contains(fault);
        assert!(errors.iter().any(|e| named(&e.to_string())), "{json}: {errors:?}");
    }
}

#[test]
fn lag_that_is_unknown_can_be_a_hostgroups_own() {
    let snapshot = compiled(
        r#"mysql_hostgroup_attributes = (
            { hostgroup_id=1 hostgroup_settings="{\"monitor_slave_lag_when_null\": 5}" },
            { hostgroup_id=2 hostgroup_settings="{\"monitor_slave_lag_when_null\": -1}" } )"#,
    );
    let seconds = |id| snapshot.effective_in(HostgroupId(id)).monitor_slave_lag_when_null;
    assert_eq!((seconds(1), seconds(2)), (5, 60));
}
