//! Every probe on real servers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lab::{Flavor, Group, Mariadb, Mysql, Options, Replication, Server, wait};
use model::snapshot::ReadOnlyCheck;
use model::{HostgroupId, Secret, ServerAddr};
use topology::{CheckKind, Lag, Observation, ProbeError, Topology};

use super::{Found, ProbeSettings, look};
use crate::client::{Access, Connector, Fault, open};
use crate::clock::whole;
use crate::testing;

const LIMIT: Duration = Duration::from_secs(60);

fn access(server: &Server, user: &str, password: &str) -> Access {
    let server = testing::server(server.host(), server.port());
    Access { server, user: user.into(), password: Secret::from(password), wait_timeout_s: Some(80) }
}

fn ask_with(access: &Access, kind: CheckKind, settings: &ProbeSettings) -> Result<Found, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection = open(&Connector::new(), access).await?;
        let found = look(kind, &mut connection, settings).await;
        connection.quit().await;
        found
    })
}

fn ask(server: &Server, kind: CheckKind) -> Result<Found, Fault> {
    ask_with(&access(server, "monitor", "monitor"), kind, &ProbeSettings::default())
}

fn text(outcome: Result<Found, Fault>) -> String {
    outcome.unwrap_err().to_string()
}

fn denied(outcome: Result<Found, Fault>) -> String {
    match outcome.map_err(Fault::into_probe_error) {
        Err(ProbeError::Denied(text)) => text,
        other => panic!("{other:?}"),
    }
}

fn what_every_server_answers(server: &Server) {
    assert!(matches!(ask(server, CheckKind::Ping).unwrap(), Found::Ping(us) if us > 0));
    assert_eq!(ask(server, CheckKind::Connect).unwrap(), Found::Connect);
    assert_eq!(ask(server, CheckKind::ReadOnly(ReadOnlyCheck::ReadOnly)).unwrap(), Found::ReadOnly(false));
    assert_eq!(ask(server, CheckKind::ReadOnly(ReadOnlyCheck::Either)).unwrap(), Found::ReadOnly(false));
    server.sql("SET GLOBAL read_only=1").unwrap();
    assert_eq!(ask(server, CheckKind::ReadOnly(ReadOnlyCheck::ReadOnly)).unwrap(), Found::ReadOnly(true));
    assert_eq!(ask(server, CheckKind::ReadOnly(ReadOnlyCheck::Either)).unwrap(), Found::ReadOnly(true));
    assert_eq!(ask(server, CheckKind::ReadOnly(ReadOnlyCheck::Both)).unwrap(), Found::ReadOnly(false));
    server.sql("SET GLOBAL read_only=0").unwrap();
    assert_eq!(ask(server, CheckKind::Lag).unwrap(), Found::Lag(Lag::NotReplica));
    assert!(matches!(ask(server, CheckKind::BufferPool).unwrap(), Found::BufferPool(true, _)));
    assert!(text(ask(server, CheckKind::Aurora)).contains("not an Aurora instance"));
}

fn heartbeats(server: &Server) {
    server.sql("CREATE TABLE test.heartbeat (ts VARCHAR(26) NOT NULL, server_id INT PRIMARY KEY)").unwrap();
    let settings = ProbeSettings { heartbeat_table: "test.heartbeat".into(), ..ProbeSettings::default() };
    let app = access(server, "app", "app-pass");
    let lag = || ask_with(&app, CheckKind::Lag, &settings).unwrap();
    assert_eq!(lag(), Found::Lag(Lag::Unknown), "no heartbeat at all");
    server.sql("INSERT INTO test.heartbeat VALUES (SYSDATE(6) - INTERVAL 1 DAY, 1), (SYSDATE(6) - INTERVAL 5 SECOND, 2)").unwrap();
    assert!(matches!(lag(), Found::Lag(Lag::Behind(5_000..=60_000))), "{:?}", lag());
    let refused = denied(ask_with(&access(server, "monitor", "monitor"), CheckKind::Lag, &settings));
    assert!(refused.contains("SELECT ON test.heartbeat"), "{refused}");
}

/// A stand-in for the table that a Multi-AZ DB cluster of RDS has.
fn instances_of_rds(server: &Server) {
    let look = || ask(server, CheckKind::RdsTopology);
    let missing = match look().map_err(Fault::into_probe_error) {
        Err(ProbeError::Failed(text) | ProbeError::Denied(text)) => text,
        other => panic!("{other:?}"),
    };
    assert!(missing.contains("rds_topology"), "{missing}");
    server.sql("CREATE TABLE mysql.rds_topology (id INT PRIMARY KEY, endpoint VARCHAR(255), port INT)").unwrap();
    let refused = denied(look());
    assert!(refused.contains("the monitor's user needs SELECT ON mysql.rds_topology"), "{refused}");
    server.sql("GRANT SELECT ON mysql.rds_topology TO monitor@'%'").unwrap();
    assert!(text(look()).contains("does not name the three instances"), "{}", text(look()));
    let rows = [1, 2, 3].map(|n| format!("({n}, 'c-instance-{n}.x.eu-west-1.rds.amazonaws.com', 3306)")).join(", ");
    server.sql(&format!("INSERT INTO mysql.rds_topology VALUES {rows}")).unwrap();
    let Found::Rds(view) = look().unwrap() else { panic!() };
    let names: Vec<String> = view.instances().map(ToString::to_string).collect();
    assert_eq!(names, [1, 2, 3].map(|n| format!("c-instance-{n}.x.eu-west-1.rds.amazonaws.com:3306")));
    server.sql("UPDATE mysql.rds_topology SET endpoint = NULL, port = NULL WHERE id = 2").unwrap();
    assert!(text(look()).contains("c-instance-3"), "{}", text(look()));
}

#[test]
fn mariadb() {
    let server = Mariadb::start(&Options::new()).unwrap();
    what_every_server_answers(&server);
    heartbeats(&server);
    instances_of_rds(&server);
    assert!(text(ask(&server, CheckKind::ReadOnly(ReadOnlyCheck::SuperReadOnly))).contains("check_type needs @@global.super_read_only"));
    assert!(text(ask(&server, CheckKind::Group)).contains("no Group Replication"));
    let refused = denied(ask_with(&access(&server, "ed", "ed-pass"), CheckKind::Lag, &ProbeSettings::default()));
    assert!(refused.contains("REPLICA MONITOR"), "{refused}");
}

#[test]
fn mysql() {
    let server = Mysql::start(&Options::new()).unwrap();
    what_every_server_answers(&server);
    heartbeats(&server);
    instances_of_rds(&server);
    assert_eq!(ask(&server, CheckKind::ReadOnly(ReadOnlyCheck::SuperReadOnly)).unwrap(), Found::ReadOnly(false));
    assert!(text(ask(&server, CheckKind::Galera)).contains("not a Galera node"));
    let refused = denied(ask_with(&access(&server, "app", "app-pass"), CheckKind::Lag, &ProbeSettings::default()));
    assert!(refused.contains("REPLICATION CLIENT"), "{refused}");
    let group = ask(&server, CheckKind::Group);
    let refused = denied(group);
    assert!(refused.contains("SELECT ON performance_schema"), "{refused}");
    server.sql("GRANT SELECT ON performance_schema.* TO monitor@'%'").unwrap();
    let Found::Group(group) = ask(&server, CheckKind::Group).unwrap() else { panic!() };
    assert!(!super::group_view(&group, &Default::default()).viable);
}

/// A replica of its cluster's primary has a second channel, from elsewhere, that is broken.
fn channels_from_elsewhere(flavor: Flavor) {
    let Replication { primary, replicas } = Replication::start(flavor, 1, &Options::new()).unwrap();
    let replica = &replicas[0];
    // It is not running, so its lag is unknown.
    let foreign = match flavor {
        Flavor::Mariadb => "CHANGE MASTER 'foreign' TO MASTER_HOST='127.0.0.1', MASTER_PORT=1, MASTER_USER='u'",
        Flavor::Mysql => "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=1, SOURCE_USER='u' FOR CHANNEL 'foreign'",
    };
    replica.sql(foreign).unwrap();
    let lag = |peers: &[&Server], channel: &str| {
        let peers = peers.iter().map(|server| ServerAddr { host: server.host().into(), port: server.port() }).collect();
        let settings = ProbeSettings { peers, channel: channel.into(), ..ProbeSettings::default() };
        ask_with(&access(replica, "monitor", "monitor"), CheckKind::Lag, &settings).unwrap()
    };
    let until = |what: &str, peers: &[&Server], channel: &str, is_wanted: fn(Lag) -> bool| {
        let look = || matches!(lag(peers, channel), Found::Lag(lag) if is_wanted(lag)).then_some(());
        wait::until(what, LIMIT, look).unwrap();
    };
    until("it is named", &[&primary, replica], "foreign", |lag| lag == Lag::Unknown);
    until("the own channel counts", &[&primary, replica], "", |lag| matches!(lag, Lag::Behind(_)));
    until("no source is known, and all count", &[replica], "", |lag| lag == Lag::Unknown);
}

#[test]
fn channels_from_elsewhere_mariadb() {
    channels_from_elsewhere(Flavor::Mariadb);
}

#[test]
fn channels_from_elsewhere_mysql() {
    channels_from_elsewhere(Flavor::Mysql);
}

#[test]
fn a_group_with_several_primaries_has_no_primary() {
    let several = ["--loose-group-replication-single-primary-mode=OFF", "--loose-group-replication-enforce-update-everywhere-checks=ON"];
    let group = Group::start(3, &Options::new().args(several)).unwrap();
    let views = || {
        let look = |server: &Server| match ask(server, CheckKind::Group).unwrap() {
            Found::Group(found) => super::group_view(&found, &Default::default()),
            other => panic!("{other:?}"),
        };
        group.members.iter().map(look).collect::<Vec<_>>()
    };
    let several = views();
    assert!(several.iter().all(|view| view.viable && !view.read_only && view.primary.is_none()), "{several:?}");
    assert!(!several[0].view_id.is_empty() && several.iter().all(|view| view.view_id == several[0].view_id), "{several:?}");
    group.members[0].sql("SELECT group_replication_switch_to_single_primary_mode(@@server_uuid)").unwrap();
    let one = views();
    let ports: Vec<_> = one.iter().map(|view| view.primary.as_ref().map(|addr| addr.port)).collect();
    assert_eq!(ports, [Some(group.members[0].port()); 3], "{one:?}");
    assert_eq!(one.iter().map(|view| view.read_only).collect::<Vec<_>>(), [false, true, true]);
}

/// It wakes up and reports its old view. The roles that follow are those that the proxy would decide.
#[test]
fn a_member_that_was_expelled_while_it_was_frozen_serves_nothing() {
    let group = Group::start(3, &Options::new()).unwrap();
    let addr = |index: usize| ServerAddr { host: "127.0.0.1".into(), port: group.members[index].port() };
    let row = |index: usize| format!("{{ hostgroup=3, address=\"127.0.0.1\", port={} }}", addr(index).port);
    let roles = "writer_hostgroup=1, backup_writer_hostgroup=2, reader_hostgroup=3, offline_hostgroup=4, active=1, max_writers=1";
    let rows = [0, 1, 2].map(row).join(", ");
    let mut topology = Topology::new();
    topology
        .configure(&testing::snapshot(&format!("mysql_servers = ( {rows} ) mysql_group_replication_hostgroups = ( {{ {roles} }} )")), 0);
    let begun = Instant::now();
    let mut known = HashMap::new();
    let mut look = |topology: &mut Topology, index: usize| {
        let Found::Group(found) = ask(&group.members[index], CheckKind::Group).unwrap() else { panic!() };
        known.insert(found.me.clone(), addr(index));
        let view = super::group_view(&found, &known);
        topology.observe(whole(begun.elapsed().as_millis()), &addr(index), Observation::Group(Ok(view.clone())));
        view
    };
    let reads =
        |topology: &Topology| topology.layout().hostgroups[&HostgroupId(3)].iter().any(|placed| placed.server.key.addr() == addr(2));
    for index in [0, 1, 2, 0, 1, 2] {
        assert!(look(&mut topology, index).viable);
    }
    assert!(reads(&topology), "{:?}", topology.layout());
    group.members[2].sigstop();
    topology.observe(whole(begun.elapsed().as_millis()), &addr(2), Observation::Group(Err(ProbeError::Timeout)));
    let expelled =
        || (group.members[0].scalar("SELECT COUNT(*) FROM performance_schema.replication_group_members").unwrap()? == "2").then_some(());
    wait::until("the member is expelled", LIMIT, expelled).unwrap();
    group.members[2].sigcont();
    // It may notice between two looks: then it reports its own expulsion.
    for round in 0..3 {
        let view = [0, 1, 2].map(|index| look(&mut topology, index))[2].clone();
        assert!(round == 0 || !reads(&topology), "{round}: {view:?}");
    }
}

#[test]
fn every_plugin_logs_in() {
    let mysql = Mysql::start(&Options::new()).unwrap();
    let mariadb = Mariadb::start(&Options::new()).unwrap();
    let ping = |access: &Access| ask_with(access, CheckKind::Ping, &ProbeSettings::default());
    for (server, user, password) in [
        (&mysql, "monitor", "monitor"),
        (&mysql, "sha256", "sha256-pass"),
        (&mysql, "empty", ""),
        (&mariadb, "monitor", "monitor"),
        (&mariadb, "ed", "ed-pass"),
        (&mariadb, "empty", ""),
    ] {
        assert!(ping(&access(server, user, password)).is_ok(), "{user}");
        let refused = denied(ping(&access(server, user, "wrong")));
        assert!(refused.starts_with("Access denied for user"), "{refused}");
        assert!(!refused.contains("wrong"));
    }
}

#[test]
fn tls_is_used_and_wanted() {
    for server in [Mariadb::start(&Options::new().tls()).unwrap(), Mysql::start(&Options::new().tls()).unwrap()] {
        let mut access = access(&server, "tls", "tls-pass");
        let ping = |access: &Access| ask_with(access, CheckKind::Ping, &ProbeSettings::default());
        denied(ping(&access));
        access.server = Arc::new(model::snapshot::Server { use_ssl: true, ..(*access.server).clone() });
        assert!(matches!(ping(&access), Ok(Found::Ping(_))));
        let mut params = (*access.server.tls).clone();
        params.verify = model::settings::BackendSslVerify::Ca;
        access.server = Arc::new(model::snapshot::Server { tls: Arc::new(params), ..(*access.server).clone() });
        let refused = denied(ping(&access));
        assert!(refused.contains("TLS"), "the lab's authority is none of the system's: {refused}");
    }
    let plain = Mariadb::start(&Options::new()).unwrap();
    let mut access = access(&plain, "monitor", "monitor");
    access.server = Arc::new(model::snapshot::Server { use_ssl: true, ..(*access.server).clone() });
    let refused = denied(ask_with(&access, CheckKind::Ping, &ProbeSettings::default()));
    assert!(refused.contains("use_ssl=1 requires TLS"), "{refused}");
}
