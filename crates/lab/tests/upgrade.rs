//! A new process takes the proxy's place while clients are connected: PROXYSQL UPGRADE.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

mod common;

use common::{LIMIT, proxy_with, server};
use lab::client::Compression;
use lab::tidegate::SOCKET;
use lab::{Client, ConnectOptions, Flavor, Tidegate};

fn scalar(client: &mut Client, sql: &str) -> String {
    client.scalar(sql).unwrap().unwrap_or_else(|| "NULL".to_owned())
}

/// One client of each kind of connection that goes along.
fn kinds(proxy: &Tidegate) -> Vec<(&'static str, ConnectOptions)> {
    let tcp = || proxy.options("app", "app-pass").database("test").timeout(LIMIT);
    let unix = ConnectOptions::unix(proxy.dir().join(SOCKET), "app", "app-pass").database("test").timeout(LIMIT);
    vec![("tcp", tcp()), ("unix", unix), ("zlib", tcp().compression(Compression::Zlib))]
}

fn sessions_go_on(flavor: Flavor) {
    let server = server(flavor);
    let mut proxy = proxy_with(server, 20, |builder| builder.socket());
    let mut clients: Vec<_> = kinds(&proxy).into_iter().map(|(kind, options)| (kind, Client::connect(&options).unwrap())).collect();
    let before: Vec<_> = clients.iter_mut().map(|(_, client)| scalar(client, "SELECT CONNECTION_ID()")).collect();
    for (n, (_, client)) in clients.iter_mut().enumerate() {
        client.run(format!("SET @mine = {n}, sql_mode = 'ANSI_QUOTES'")).unwrap();
        client.run("CREATE TEMPORARY TABLE own (id INT)").unwrap();
        client.run(format!("INSERT INTO own VALUES ({n})")).unwrap();
    }
    proxy.upgrade(None).unwrap();
    for (n, (kind, client)) in clients.iter_mut().enumerate() {
        assert_eq!(scalar(client, "SELECT CONNECTION_ID()"), before[n], "{kind}");
        assert_eq!(scalar(client, "SELECT @mine"), n.to_string(), "{kind}");
        assert_eq!(scalar(client, "SELECT \"id\" FROM own"), n.to_string(), "{kind}");
    }
}

#[test]
fn sessions_go_on_mariadb() {
    sessions_go_on(Flavor::Mariadb);
}
