//! A replication cluster that proxies heal, and what they say of it.

use std::time::Duration;

use lab::etcd::Etcd;
use lab::healing::promoting;
use lab::replication::Replication;
use lab::tidegate::{Builder, Setting};
use lab::{Flavor, Server, Tidegate, wait};

use super::LIMIT;

/// Waits until a query of the admin port has this answer.
pub(crate) fn wait_for(proxy: &Tidegate, sql: &str, wanted: &str) {
    let ask = || proxy.admin().ok()?.scalar(sql).ok()?;
    let found = wait::until(sql, 2 * LIMIT, || ask().filter(|said| said == wanted).map(drop));
    assert!(found.is_ok(), "{sql}: {:?}, not {wanted}", ask());
}

pub(crate) fn cluster(flavor: Flavor, replicas: usize) -> Replication {
    lab::healing::cluster(flavor, replicas, false).unwrap()
}

/// The proxy promotes alone; `healing` are more columns of its row.
pub(crate) fn full(healing: &[(&str, Setting)]) -> Builder {
    promoting(healing).admin_variable("healing_alone", true)
}

/// One of several proxies promotes.
pub(crate) fn full_by(etcd: &Etcd) -> Builder {
    full_at(&etcd.endpoints())
}

/// The same, by other addresses of etcd.
pub(crate) fn full_at(endpoints: &str) -> Builder {
    promoting(&[]).admin_variable("shared_config_endpoints", endpoints)
}

pub(crate) fn with_servers(builder: Builder, servers: &Replication) -> Builder {
    servers.replicas.iter().fold(builder.backend(0, &servers.primary), |builder, replica| builder.backend(0, replica))
}

pub(crate) fn healing(proxy: &Tidegate, column: &str) -> String {
    proxy.admin().unwrap().scalar(format!("SELECT {column} FROM stats_tidegate_healing")).unwrap().unwrap_or_default()
}

pub(crate) fn ready(proxy: &Tidegate) {
    let is_ready = || proxy.admin().ok()?.scalar("SELECT verdict || ready FROM stats_tidegate_healing").ok()?;
    let found = wait::until("a ready cluster", 2 * LIMIT, || is_ready().filter(|said| said == "alive1").map(drop));
    assert!(found.is_ok(), "{:?}: {}", is_ready(), healing(proxy, "blocked_by"));
    // A proxy that has just begun to look promotes nobody.
    std::thread::sleep(Duration::from_secs(3));
}

pub(crate) fn events(proxy: &Tidegate) -> Vec<String> {
    let sql = "SELECT port, from_state, to_state, why FROM stats_tidegate_events WHERE kind = 'healing' ORDER BY sequence";
    let rows = proxy.admin().unwrap().run(sql).unwrap().table().unwrap();
    rows.iter().map(|row| row.iter().map(|field| field.clone().unwrap_or_default()).collect::<Vec<_>>().join("|")).collect()
}

/// The server that the last plan promoted.
pub(crate) fn promoted<'a>(proxy: &Tidegate, servers: &'a Replication) -> &'a Server {
    let told = || Some(healing(proxy, "last_plan")).filter(|told| told.contains("was promoted in place of"));
    let told = wait::until("a promotion", 3 * LIMIT, told);
    let told =
        told.unwrap_or_else(|_| panic!("{} {} {:#?}", healing(proxy, "verdict || blocked_by"), healing(proxy, "last_plan"), events(proxy)));
    println!("{told}");
    servers.replicas.iter().find(|replica| told.starts_with(&replica.address())).unwrap()
}

/// What the last plan says to be lost.
pub(crate) fn reported(proxy: &Tidegate) -> u64 {
    let told = healing(proxy, "last_plan");
    lab::healing::reported(&told).unwrap_or_else(|| panic!("{told}"))
}

/// Waits until a server is beside the writer as what this says.
pub(crate) fn wait_standing(proxy: &Tidegate, server: &Server, wanted: &[&str]) -> String {
    let sql = format!("SELECT rejoin, rejoin_why FROM stats_tidegate_healing_servers WHERE port = {}", server.port());
    let ask = || {
        let row = proxy.admin().ok()?.run(&sql).ok()?.table().ok()?.into_iter().next()?;
        Some((row[0].clone().unwrap_or_default(), row[1].clone().unwrap_or_default()))
    };
    let found = wait::until("a standing", 4 * LIMIT, || ask().map(|(standing, _)| standing).filter(|one| wanted.contains(&one.as_str())));
    found.unwrap_or_else(|_| panic!("{wanted:?}: {:?} {:#?}", ask(), events(proxy)))
}
