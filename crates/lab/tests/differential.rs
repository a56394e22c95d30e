//! Generated session scripts, direct and through the proxy, with fixed seeds. `lab differential` plays more of them.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;

use common::{proxy_with, server};
use lab::differential::Campaign;
use lab::{ConnectOptions, Flavor};

/// Fewer backends than sessions, so that no session can keep one.
const BACKENDS: usize = 2;
const SESSIONS: usize = 6;

fn plays_the_same(flavor: Flavor, scripts: u64) {
    let server = server(flavor);
    let backends = i64::try_from(BACKENDS).unwrap();
    let proxy = proxy_with(server, backends, |builder| builder.variable("connect_timeout_server_max", 1500));
    let campaign = Campaign {
        flavor,
        direct: ConnectOptions::tcp(server.address(), "app", "app-pass").timeout(common::LIMIT),
        proxied: proxy.options("app", "app-pass").timeout(common::LIMIT),
        root: ConnectOptions::unix(server.socket(), "root", ""),
        sessions: SESSIONS,
        backends: BACKENDS,
        shrink_plays: 60,
    };
    let summary = campaign.run(20_250_101, scripts, |_| ()).unwrap();
    let shown: Vec<String> = summary.differences.iter().map(ToString::to_string).collect();
    assert!(shown.is_empty(), "{} scripts, {} steps:\n{}", summary.scripts, summary.steps, shown.join("\n"));
}

#[test]
#[ignore = "differences are left: lab differential --survey"]
fn mariadb() {
    plays_the_same(Flavor::Mariadb, 300);
}

#[test]
#[ignore = "differences are left: lab differential --survey"]
fn mysql() {
    plays_the_same(Flavor::Mysql, 60);
}
