//! The proxy in the place of Percona's ProxySQL image for its XtraDB Cluster operator, as far as the proxy is concerned.
//!
//! * The program is called `proxysql`, and runs as user 1001 of group 0, on the operator's ports.
//! * Only some directories of its root are writable.
//! * A script writes its file and copies certificates before the start.
//! * The SQL of the operator and of side containers comes as text and prepared.
//!
//! Needs root, and a network of its own for the ports. The operator's `proxysql-admin` is a program of its own, and not tested here.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use lab::client::{Param, Reply};
use lab::process::Process;
use lab::{Client, ConnectOptions, Flavor, LabError, Network, Options, Server, certs, dirs, tidegate, wait};

const LIMIT: Duration = Duration::from_secs(60);
const WRITER: i64 = 11;
const READER: i64 = 10;

/// The template from which the start script makes the configuration file.
const TEMPLATE: &str = r#"datadir="/var/lib/proxysql"
admin_variables =
{
    admin_credentials="proxyadmin:ADMIN_PASSWORD"
    mysql_ifaces="0.0.0.0:6032"
    cluster_username="proxyadmin"
    cluster_password="ADMIN_PASSWORD"
    refresh_interval=2000
    restapi_enabled=true
    restapi_address="0.0.0.0"
    restapi_port=6070
}
mysql_variables =
{
    interfaces="0.0.0.0:3306;0.0.0.0:33062"
    monitor_username="monitor"
    monitor_password="MONITOR_PASSWORD"
    monitor_galera_healthcheck_interval=1000
    monitor_ping_interval=1000
    threads=2
    max_connections=2048
    server_version="8.0.32"
    have_ssl=true
}
"#;

/// The steps of an entry point: the file from a template, certificates to where the proxy looks for them, then the program.
const ENTRY: &str = r#"#!/bin/bash
set -o errexit
name=$(hostname -f 2>/dev/null || hostname)
scratch=$(mktemp)
sed -e "s/ADMIN_PASSWORD/$PROXY_ADMIN_PASSWORD/" -e "s/MONITOR_PASSWORD/$MONITOR_PASSWORD/" /opt/percona/proxysql.cnf > "$scratch"
cat "$scratch" > /etc/proxysql/proxysql.cnf
printf 'export PROXYSQL_HOSTNAME=%s\n' "$name" > /etc/proxysql-admin.cnf
rm "$scratch"
cp /etc/proxysql/ssl/tls.key /var/lib/proxysql/proxysql-key.pem
cp /etc/proxysql/ssl/tls.crt /var/lib/proxysql/proxysql-cert.pem
cp /etc/proxysql/ssl/ca.crt /var/lib/proxysql/proxysql-ca.pem
if touch /usr/here /opt/here /etc/here 2>/dev/null; then echo 'the root can be written' >&2; exit 1; fi
exec "$@"
"#;

/// A root like the image's, made of this machine's: read-only, except for the directories to which the operator expects to write.
const ROOT: &str = r#"set -e
root=$1; shift
mount -t tmpfs root "$root"
mkdir -p "$root"/{usr,proc,dev,tmp,etc/proxysql,opt/percona,var/lib/proxysql}
for link in bin lib lib64 sbin; do [ ! -L "/$link" ] || cp -a "/$link" "$root/$link"; done
cp "$1/proxysql" "$1/entry.sh" "$1/proxysql.cnf" "$root/opt/percona/"
printf 'nobody:x:65534:65534::/:/bin/false\n' > "$root/etc/passwd"
touch "$root/etc/proxysql-admin.cnf"
mount --bind /usr "$root/usr"
mount -o remount,bind,ro "$root/usr"
mount --bind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount --bind "$1/etc" "$root/etc/proxysql"
mount --bind "$1/data" "$root/var/lib/proxysql"
mount --bind "$1/admin.cnf" "$root/etc/proxysql-admin.cnf"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
mount -o remount,bind,ro "$root"
exec chroot --userspec=1001:0 --groups=0 "$root" /usr/bin/env PATH=/opt/percona:/usr/bin \
  /opt/percona/entry.sh proxysql -f -c /etc/proxysql/proxysql.cnf --reload
"#;

/// A pod: the database and the proxy, in one network.
struct Pod {
    dir: PathBuf,
    network: Network,
    server: Server,
}

impl Pod {
    fn new() -> Option<Self> {
        if !Network::possible() {
            eprintln!("not tested: it needs root and the program ip");
            return None;
        }
        let network = Network::new(1).unwrap();
        let server = Server::start(Flavor::Mysql, &Options::new().site(&network.sites[0])).unwrap();
        let dir = dirs::instance("operator").unwrap();
        for (name, text) in [("entry.sh", ENTRY), ("proxysql.cnf", TEMPLATE), ("admin.cnf", "")] {
            fs::write(dir.join(name), text).unwrap();
        }
        for name in ["entry.sh", "proxysql.cnf"] {
            fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::copy(tidegate::find_program().unwrap(), dir.join("proxysql")).unwrap();
        for name in ["root", "etc", "etc/ssl", "data"] {
            fs::create_dir(dir.join(name)).unwrap();
        }
        let made = certs::write_server_files(&dir).unwrap();
        for (from, to) in [(&made.key, "tls.key"), (&made.certificate, "tls.crt"), (&made.ca, "ca.crt")] {
            fs::copy(from, dir.join("etc/ssl").join(to)).unwrap();
            fs::set_permissions(dir.join("etc/ssl").join(to), fs::Permissions::from_mode(0o640)).unwrap();
        }
        // Of the group 0, as a volume's files; the user has no name.
        for name in ["etc", "data", "admin.cnf"] {
            chown(dir.join(name), Some(1001), Some(0)).unwrap();
        }
        Some(Self { dir, network, server })
    }

    fn host(&self) -> &str {
        self.network.sites[0].host()
    }

    /// The container `proxysql`, once its admin port answers.
    fn start(&self, password: &str) -> Process {
        let mut command = Command::new("unshare");
        command.args(["--mount", "bash", "-c"]).arg(ROOT).arg("root.sh").arg(self.dir.join("root")).arg(&self.dir);
        command.env("PROXY_ADMIN_USER", "proxyadmin").env("PROXY_ADMIN_PASSWORD", password).env("MONITOR_PASSWORD", "monitor");
        let process = Process::start("proxysql", &self.network.sites[0].enter(&command), &self.dir.join("log")).unwrap();
        process.wait_ready(LIMIT, || TcpStream::connect((self.host(), 6032)).ok()).unwrap();
        process
    }

    fn connect(&self, port: u16, user: &str, password: &str) -> Result<Client, LabError> {
        Client::connect(&ConnectOptions::tcp(format!("{}:{port}", self.host()), user, password).timeout(LIMIT))
    }

    fn metrics(&self) -> String {
        let mut socket = TcpStream::connect((self.host(), 6070)).unwrap();
        write!(socket, "GET /metrics HTTP/1.1\r\nHost: proxysql-0\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn text(value: &str) -> Param {
    Param::Text(value.to_owned())
}

/// As Go's driver sends it: prepared, with parameters.
fn prepared(operator: &mut Client, sql: &str, params: &[Param]) -> Reply {
    let statement = operator.prepare(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    let reply = operator.execute(&statement, params).unwrap_or_else(|e| panic!("{sql}: {e}"));
    assert!(reply.err().is_none(), "{sql}: {:?}", reply.err());
    operator.close_statement(&statement).unwrap();
    reply
}

fn rows(reply: Reply) -> Vec<String> {
    let line = |row: Vec<Option<String>>| row.into_iter().map(|value| value.unwrap_or("NULL".to_owned())).collect::<Vec<_>>().join("|");
    reply.table().unwrap().into_iter().map(line).collect()
}

#[test]
fn it_runs_as_the_operator_starts_it() {
    let Some(pod) = Pod::new() else { return };
    let (host, port) = (pod.server.host().to_owned(), pod.server.port());
    let process = pod.start("first");
    let mut operator = pod.connect(6032, "proxyadmin", "first").unwrap();
    assert!(pod.dir.join("data/proxysql.db").exists());
    assert!(fs::read_to_string(pod.dir.join("admin.cnf")).unwrap().starts_with("export PROXYSQL_HOSTNAME="));

    // Nodes, users and rules, as the side containers' scripts have them written.
    for hostgroup in [WRITER, READER] {
        let insert = "INSERT INTO mysql_servers (hostgroup_id, hostname, port, weight, status) VALUES (?, ?, ?, ?, ?)";
        let values = [Param::Int(hostgroup), text(&host), Param::Int(port.into()), Param::Int(1000), text("ONLINE")];
        prepared(&mut operator, insert, &values);
    }
    let user = "INSERT INTO mysql_users (username, password, active, default_hostgroup) VALUES (?, ?, 1, ?)";
    prepared(&mut operator, user, &[text("app"), text("app-pass"), Param::Int(WRITER)]);
    let galera = "INSERT INTO mysql_galera_hostgroups (writer_hostgroup, backup_writer_hostgroup, reader_hostgroup, offline_hostgroup, active) \
                  VALUES (?, ?, ?, ?, 0)";
    prepared(&mut operator, galera, &[11, 12, 10, 13].map(Param::Int));
    for (id, pattern, hostgroup) in [(1, "^SELECT.*FOR UPDATE", WRITER), (2, "^SELECT ", READER)] {
        let rule = "INSERT INTO mysql_query_rules (rule_id, active, username, match_digest, destination_hostgroup, apply) VALUES (?, 1, ?, ?, ?, 1)";
        prepared(&mut operator, rule, &[Param::Int(id), text("app"), text(pattern), Param::Int(hostgroup)]);
    }
    for module in ["MYSQL SERVERS", "MYSQL USERS", "MYSQL QUERY RULES"] {
        prepared(&mut operator, &format!("LOAD {module} TO RUNTIME"), &[]);
        operator.run(format!("SAVE {module} TO DISK")).unwrap();
    }
    let seen =
        "SELECT hostgroup_id, hostname, status FROM runtime_mysql_servers WHERE hostgroup_id IN (?, ?) AND port = ? ORDER BY hostgroup_id";
    let found = rows(prepared(&mut operator, seen, &[Param::Int(READER), Param::Int(WRITER), Param::Int(port.into())]));
    assert_eq!(found, [format!("10|{host}|ONLINE"), format!("11|{host}|ONLINE")]);
    for sql in [
        "SELECT variable_value FROM global_variables WHERE variable_name = ?",
        "SELECT variable_value FROM runtime_global_variables WHERE variable_name = ?",
    ] {
        assert_eq!(rows(prepared(&mut operator, sql, &[text("mysql-interfaces")])), ["0.0.0.0:3306;0.0.0.0:33062"]);
    }

    // Both ports serve applications, with the certificate of the volume; the third has metrics.
    for port in [3306, 33062] {
        let options = ConnectOptions::tcp(format!("{}:{port}", pod.host()), "app", "app-pass").tls().timeout(LIMIT);
        let mut app = Client::connect(&options).unwrap();
        assert_eq!(app.scalar("SELECT CONNECTION_ID() > 0").unwrap().as_deref(), Some("1"), "port {port}");
    }
    assert!(pod.metrics().contains("proxysql_client_connections"));
    let monitored = "SELECT COUNT(*) > 0 FROM mysql_server_ping_log WHERE ping_error IS NULL";
    wait::until("a ping of the monitor", LIMIT, || (operator.scalar(monitored).ok()?? == "1").then_some(())).unwrap();

    // New passwords of system users: by SQL, prepared, into force and onto disk.
    pod.server.sql("ALTER USER monitor@'%' IDENTIFIED BY 'monitor-second'").unwrap();
    let set = "UPDATE global_variables SET variable_value = ? WHERE variable_name = ?";
    for (name, value) in [
        ("mysql-monitor_password", "monitor-second"),
        ("admin-cluster_password", "second"),
        ("admin-admin_credentials", "proxyadmin:second"),
    ] {
        prepared(&mut operator, set, &[text(value), text(name)]);
    }
    for sql in [
        "LOAD MYSQL VARIABLES TO RUNTIME",
        "SAVE MYSQL VARIABLES TO DISK",
        "LOAD ADMIN VARIABLES TO RUNTIME",
        "SAVE ADMIN VARIABLES TO DISK",
    ] {
        prepared(&mut operator, sql, &[]);
    }
    assert!(pod.connect(6032, "proxyadmin", "first").is_err());
    let mut operator = pod.connect(6032, "proxyadmin", "second").unwrap();
    let since = operator.scalar("SELECT MAX(time_start_us) FROM mysql_server_ping_log").unwrap().unwrap();
    let again = format!("SELECT COUNT(*) > 0 FROM mysql_server_ping_log WHERE ping_error IS NULL AND time_start_us > {since}");
    wait::until("a ping with the new password", LIMIT, || (operator.scalar(&again).ok()?? == "1").then_some(())).unwrap();

    // The pod starts again on its volume, and the operator's file is laid over the saved configuration.
    drop(operator);
    process.stop(LIMIT).unwrap();
    let process = pod.start("third");
    assert!(pod.connect(6032, "proxyadmin", "second").is_err());
    let mut operator = pod.connect(6032, "proxyadmin", "third").unwrap();
    assert_eq!(operator.scalar("SELECT COUNT(*) FROM runtime_mysql_query_rules").unwrap().as_deref(), Some("2"));
    let mut app = pod.connect(3306, "app", "app-pass").unwrap();
    assert_eq!(app.scalar("SELECT 1").unwrap().as_deref(), Some("1"));
    drop((app, operator));
    process.stop(LIMIT).unwrap();
}
