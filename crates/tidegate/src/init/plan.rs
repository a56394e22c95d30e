//! Makes a configuration file, and the accounts that it needs, from a survey. Pure: no server, no clock, no random numbers.

use std::fmt::Write as _;

use model::ServerAddr;
use monitor::{Membership, Survey, Visited};

/// Hostgroup of the server that takes writes.
const WRITER: u32 = 0;
/// Hostgroup of the servers that take reads.
const READER: u32 = 1;
/// Share of a server's `max_connections` that the proxy may use; the rest is for administrators, monitoring and replication.
const CONNECTIONS_SHARE: (u64, u64) = (4, 5);
/// The limit of a server that does not report its `max_connections`.
const CONNECTIONS: u64 = 100;
/// Replication lag in seconds beyond which a replica takes no reads.
const MAX_LAG_S: u32 = 10;

/// The operator's decisions, and the limits of this machine.
#[derive(Debug, Clone)]
pub(super) struct Choices {
    /// The proxy's data directory.
    pub datadir: String,
    /// The listeners for clients.
    pub listen: String,
    /// The listener for administrators.
    pub admin_listen: String,
    /// For the account `admin`.
    pub admin_password: String,
    /// The applications' user and its password.
    pub app: (String, String),
    /// The schema on which the applications' user gets its rights.
    pub database: Option<String>,
    /// The monitor's user and its password.
    pub monitor: (String, String),
    /// Worker threads: one a core.
    pub threads: u64,
    /// Most clients, by the limit of open files.
    pub max_connections: u64,
    /// TLS towards the servers.
    pub use_ssl: bool,
}

/// Kinds of clusters, by how their writer is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Alone,
    Replication,
    Galera,
    Group,
    Aurora,
}

/// The layout: which server stands in which hostgroup.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub kind: Kind,
    /// Rows of `mysql_servers`.
    pub rows: Vec<(u32, &'a Visited)>,
    /// Tasks and facts for the operator.
    pub notes: Vec<String>,
}

/// Decides the layout. `survey` has one server at least.
pub(super) fn plan(survey: &Survey) -> Plan<'_> {
    let servers = &survey.servers;
    let is = |want: fn(&Membership) -> bool| servers.iter().any(|server| want(&server.membership));
    let kind = if is(|m| matches!(m, Membership::Aurora)) {
        Kind::Aurora
    } else if is(|m| matches!(m, Membership::Galera { .. })) {
        Kind::Galera
    } else if is(|m| matches!(m, Membership::Group { .. })) {
        Kind::Group
    } else if servers.len() > 1 || !survey.unseen.is_empty() || servers.iter().any(|server| !server.sources.is_empty()) {
        Kind::Replication
    } else {
        Kind::Alone
    };
    let mut notes = Vec::new();
    let rows = match kind {
        Kind::Alone => servers.iter().map(|server| (WRITER, server)).collect(),
        Kind::Aurora => {
            notes.push(
                "this is Aurora: list the cluster endpoint's instances in mysql_servers and add a row of mysql_aws_aurora_hostgroups with \
                 the domain_name of your instances"
                    .to_owned(),
            );
            servers.iter().map(|server| (WRITER, server)).collect()
        }
        Kind::Galera | Kind::Group => members(kind, servers, &mut notes),
        Kind::Replication => replication(servers, &mut notes),
    };
    let seen = servers.iter().filter_map(|server| match &server.membership {
        Membership::Galera { size, .. } => Some(*size),
        _ => None,
    });
    if let Some(size) = seen.max().filter(|size| *size > rows.len()) {
        notes.push(format!("the cluster has {size} nodes, of which {} were found: add the others to mysql_servers", rows.len()));
    }
    for (addr, why) in &survey.unseen {
        notes.push(format!("{addr} is not in the file: other servers name it, but it cannot be reached ({why})"));
    }
    Plan { kind, rows, notes }
}

/// Nodes and members all start in the writer hostgroup: the monitor moves them to where their state belongs.
fn members<'a>(kind: Kind, servers: &'a [Visited], notes: &mut Vec<String>) -> Vec<(u32, &'a Visited)> {
    let belongs = |server: &&Visited| match kind {
        Kind::Galera => matches!(server.membership, Membership::Galera { .. }),
        _ => matches!(server.membership, Membership::Group { .. }),
    };
    for server in servers.iter().filter(|server| !belongs(server)) {
        notes.push(format!("{} is not in the file: it is not a member of the cluster", server.addr));
    }
    servers.iter().filter(belongs).map(|server| (WRITER, server)).collect()
}

fn replication<'a>(servers: &'a [Visited], notes: &mut Vec<String>) -> Vec<(u32, &'a Visited)> {
    let is_source = |server: &Visited| !server.read_only && server.sources.is_empty();
    // In a ring every server replicates: the only one that may be written to is the writer.
    let is_only_one = !servers.iter().any(is_source) && servers.iter().filter(|server| !server.read_only).count() == 1;
    let writes = |server: &Visited| is_source(server) || (is_only_one && !server.read_only);
    if !servers.iter().any(writes) {
        notes.push("no server has read_only=OFF and replicates from none: nothing takes writes until one does".to_owned());
    }
    if servers.iter().filter(|server| writes(server)).count() > 1 {
        notes.push("several servers have read_only=OFF and replicate from none: only the first one takes writes".to_owned());
    }
    let has_writer = servers.iter().any(writes);
    for server in servers.iter().filter(|server| has_writer && !server.read_only && !writes(server)) {
        notes.push(format!("{} replicates and has read_only=OFF: set read_only=ON there and in its configuration file", server.addr));
    }
    let mut rows: Vec<_> = servers.iter().map(|server| (if writes(server) { WRITER } else { READER }, server)).collect();
    rows.sort_by_key(|(hostgroup, _)| *hostgroup);
    rows
}

pub(super) fn file(plan: &Plan<'_>, choices: &Choices) -> String {
    let Choices { datadir, listen, admin_listen, admin_password, app, monitor, threads, max_connections, .. } = choices;
    let has_reader = plan.rows.len() > 1 && matches!(plan.kind, Kind::Replication | Kind::Galera | Kind::Group);
    let mut text = format!(
        "# Written by `tidegate init`. The format is proxysql.cnf's; `tidegate check FILE` reads it.\ndatadir = {}\n\n",
        quoted(datadir)
    );
    let _ = writeln!(text, "admin_variables =\n{{");
    let _ = writeln!(text, "  mysql_ifaces = {}", quoted(admin_listen));
    let _ = writeln!(text, "  admin_credentials = {}\n}}\n", quoted(&format!("admin:{admin_password}")));
    let _ = writeln!(text, "mysql_variables =\n{{");
    let _ = writeln!(text, "  interfaces = {}", quoted(listen));
    let _ = writeln!(text, "  threads = {threads}                     # one worker a core");
    let _ = writeln!(text, "  max_connections = {max_connections}         # clients");
    let _ = writeln!(text, "  monitor_username = {}", quoted(&monitor.0));
    let _ = writeln!(text, "  monitor_password = {}", quoted(&monitor.1));
    if plan.kind == Kind::Replication && has_reader {
        let _ = writeln!(text, "  monitor_writer_is_also_reader = false     # plain reads go to replicas only");
    }
    let _ = writeln!(text, "}}\n\nmysql_servers =\n(");
    let rows: Vec<String> = plan.rows.iter().map(|(hostgroup, server)| row(*hostgroup, server, plan.kind, choices)).collect();
    let _ = writeln!(text, "{}\n)\n", rows.join(",\n"));
    text.push_str(cluster(plan.kind));
    let split = if has_reader { ", attributes = \"{\\\"read_write_split\\\": true}\"" } else { "" };
    let _ = writeln!(
        text,
        "mysql_users =\n(\n  {{ username = {}, password = {}, default_hostgroup = {WRITER}{split} }}\n)",
        quoted(&app.0),
        quoted(&app.1)
    );
    text
}

fn row(hostgroup: u32, server: &Visited, kind: Kind, choices: &Choices) -> String {
    let most = if server.max_connections == 0 { CONNECTIONS } else { server.max_connections * CONNECTIONS_SHARE.0 / CONNECTIONS_SHARE.1 };
    let ServerAddr { host, port } = &server.addr;
    let lag = if kind == Kind::Replication { format!(", max_replication_lag = {MAX_LAG_S}") } else { String::new() };
    let ssl = if choices.use_ssl { ", use_ssl = 1" } else { "" };
    format!("  {{ hostgroup = {hostgroup}, address = {}, port = {port}, max_connections = {}{lag}{ssl} }}", quoted(host), most.max(1))
}

/// The row that makes a cluster of the hostgroups.
fn cluster(kind: Kind) -> &'static str {
    match kind {
        Kind::Alone | Kind::Aurora => "",
        Kind::Replication => {
            "# The server with read_only=OFF is in hostgroup 0, the others in 1, as the monitor sees them.\n\
             mysql_replication_hostgroups =\n(\n  { writer_hostgroup = 0, reader_hostgroup = 1, check_type = \"read_only\" }\n)\n\n"
        }
        Kind::Galera => {
            "# One node takes writes (0), the others take reads (1) and are ready to take over (2).\n\
             mysql_galera_hostgroups =\n(\n  { writer_hostgroup = 0, reader_hostgroup = 1, backup_writer_hostgroup = 2, offline_hostgroup = 3, \
             max_writers = 1, writer_is_also_reader = 2 }\n)\n\n"
        }
        Kind::Group => {
            "# The primary takes writes (0), the secondaries take reads (1).\n\
             mysql_group_replication_hostgroups =\n(\n  { writer_hostgroup = 0, reader_hostgroup = 1, backup_writer_hostgroup = 2, \
             offline_hostgroup = 3, max_writers = 1 }\n)\n\n"
        }
    }
}

/// The statements that create the accounts which do not exist yet.
pub(super) fn accounts(plan: &Plan<'_>, choices: &Choices, has_app: bool, has_monitor: bool) -> Vec<String> {
    let (user, password) = &choices.monitor;
    let monitor = account(user);
    let mut statements = vec![format!("CREATE USER {monitor} IDENTIFIED BY {}", literal(password))];
    let is_split = |server: &Visited| server.is_mariadb && server.number >= (10, 5, 2);
    statements.push(match plan.rows.first() {
        Some((_, server)) if is_split(server) => format!("GRANT BINLOG MONITOR, SLAVE MONITOR ON *.* TO {monitor}"),
        _ => format!("GRANT REPLICATION CLIENT ON *.* TO {monitor}"),
    });
    if plan.kind == Kind::Group || (plan.kind == Kind::Galera && plan.rows.first().is_some_and(|(_, server)| !server.is_mariadb)) {
        statements.push(format!("GRANT SELECT ON performance_schema.* TO {monitor}"));
    }
    if has_monitor {
        statements.clear();
    }
    if !has_app {
        let app = account(&choices.app.0);
        statements.push(format!("CREATE USER {app} IDENTIFIED BY {}", literal(&choices.app.1)));
        if let Some(database) = &choices.database {
            let rights =
                "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, INDEX, REFERENCES, EXECUTE, CREATE TEMPORARY TABLES, LOCK TABLES";
            statements.push(format!("GRANT {rights} ON `{}`.* TO {app}", database.replace('`', "``")));
        }
    }
    statements
}

fn account(user: &str) -> String {
    format!("{}@'%'", literal(user))
}

/// A text for SQL that holds under every `sql_mode`: quotes are doubled, and the callers have refused backslashes.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A text for the configuration file.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(host: &str, read_only: bool, source: Option<&str>, membership: Membership) -> Visited {
        let addr = |host: &str| ServerAddr { host: host.into(), port: 3306 };
        Visited {
            addr: addr(host),
            version: "10.11.6-MariaDB".to_owned(),
            is_mariadb: true,
            number: (10, 11, 6),
            read_only,
            max_connections: 151,
            sources: source.map(addr).into_iter().collect(),
            identity: host.to_owned(),
            membership,
        }
    }

    fn choices() -> Choices {
        Choices {
            datadir: "data".to_owned(),
            listen: "0.0.0.0:6033".to_owned(),
            admin_listen: "127.0.0.1:6032".to_owned(),
            admin_password: "a".to_owned(),
            app: ("app".to_owned(), "it's \"so\"".to_owned()),
            database: Some("shop".to_owned()),
            monitor: ("monitor".to_owned(), "m".to_owned()),
            threads: 2,
            max_connections: 2048,
            use_ssl: false,
        }
    }

    /// The file is read back and compiles.
    fn compiled(plan: &Plan<'_>) -> model::Config {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tidegate.cnf");
        std::fs::write(&path, file(plan, &choices())).unwrap();
        let (config, notices) = model::load(&path).unwrap();
        assert!(notices.is_empty(), "{notices:?}");
        model::Snapshot::compile(&config).unwrap();
        config
    }

    fn hostgroups(config: &model::Config) -> Vec<(Option<i64>, String)> {
        config.rows("mysql_servers").iter().map(|row| (row.integer("hostgroup_id"), row.text("hostname").unwrap().to_owned())).collect()
    }

    #[test]
    fn a_primary_with_replicas_is_a_replication_cluster() {
        let servers = vec![
            server("r1", true, Some("p"), Membership::Asynchronous),
            server("p", false, None, Membership::Asynchronous),
            server("r2", false, Some("p"), Membership::Asynchronous),
        ];
        let unseen = vec![(ServerAddr { host: "r3".into(), port: 3306 }, "Access denied".to_owned())];
        let survey = Survey { servers, unseen };
        let plan = plan(&survey);
        assert_eq!(plan.kind, Kind::Replication);
        let config = compiled(&plan);
        assert_eq!(hostgroups(&config), [(Some(0), "p".to_owned()), (Some(1), "r1".to_owned()), (Some(1), "r2".to_owned())]);
        assert_eq!(config.rows("mysql_replication_hostgroups").len(), 1);
        assert_eq!(config.rows("mysql_users")[0].secret("password").map(model::Secret::expose_text), Some("it's \"so\"".to_owned()));
        assert!(plan.notes.iter().any(|note| note.starts_with("r2:3306 replicates and has read_only=OFF")), "{:?}", plan.notes);
        assert!(plan.notes.iter().any(|note| note.starts_with("r3:3306 is not in the file")), "{:?}", plan.notes);
    }

    #[test]
    fn in_a_ring_the_only_writable_server_writes() {
        let servers = vec![server("a", false, Some("b"), Membership::Asynchronous), server("b", true, Some("a"), Membership::Asynchronous)];
        let survey = Survey { servers, unseen: Vec::new() };
        let plan = plan(&survey);
        assert_eq!((plan.rows[0].0, &*plan.rows[0].1.addr.host, plan.notes.len()), (WRITER, "a", 0), "{:?}", plan.notes);
    }

    #[test]
    fn one_server_needs_no_cluster() {
        let survey = Survey { servers: vec![server("p", false, None, Membership::Asynchronous)], unseen: Vec::new() };
        let plan = plan(&survey);
        assert_eq!((plan.kind, plan.notes.len()), (Kind::Alone, 0));
        let config = compiled(&plan);
        assert_eq!(config.rows("mysql_replication_hostgroups").len(), 0);
        assert_eq!(config.rows("mysql_servers")[0].integer("max_connections"), Some(120));
        assert_eq!(config.rows("mysql_users")[0].text("attributes").unwrap_or_default(), "");
    }

    #[test]
    fn nodes_and_members_have_their_tables() {
        let group = Membership::Group { members: Vec::new(), is_primary: true };
        for (membership, table) in
            [(Membership::Galera { nodes: Vec::new(), size: 2 }, "mysql_galera_hostgroups"), (group, "mysql_group_replication_hostgroups")]
        {
            let servers = vec![server("a", false, None, membership.clone()), server("b", false, None, membership)];
            let survey = Survey { servers, unseen: Vec::new() };
            let config = compiled(&plan(&survey));
            assert_eq!((config.rows(table).len(), config.rows("mysql_servers").len()), (1, 2), "{table}");
        }
    }

    #[test]
    fn accounts_have_the_rights_that_their_server_knows() {
        let mut servers = vec![server("p", false, None, Membership::Asynchronous)];
        let all = |servers: &Vec<Visited>, has_app| {
            let survey = Survey { servers: servers.clone(), unseen: Vec::new() };
            accounts(&plan(&survey), &choices(), has_app, false)
        };
        let statements = all(&servers, false);
        assert_eq!(statements[1], "GRANT BINLOG MONITOR, SLAVE MONITOR ON *.* TO 'monitor'@'%'");
        assert_eq!(statements[2], "CREATE USER 'app'@'%' IDENTIFIED BY 'it''s \"so\"'");
        assert!(statements[3].contains("ON `shop`.* TO 'app'@'%'"), "{statements:?}");
        servers[0] = Visited { is_mariadb: false, number: (9, 7, 0), ..servers[0].clone() };
        assert_eq!(all(&servers, true)[1], "GRANT REPLICATION CLIENT ON *.* TO 'monitor'@'%'");
        assert_eq!(all(&servers, true).len(), 2);
    }
}
