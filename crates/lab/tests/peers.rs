//! Several proxies that list each other in proxysql_servers, without etcd.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

use std::time::Duration;

use lab::port::Port;
use lab::{LabError, Tidegate, wait};

const LIMIT: Duration = Duration::from_secs(30);

/// Proxies that list each other and themselves.
fn peers<const N: usize>(more: impl Fn(usize, lab::tidegate::Builder) -> lab::tidegate::Builder) -> [Tidegate; N] {
    let ports: [(u16, u16); N] = std::array::from_fn(|_| (Port::reserve().unwrap().number(), Port::reserve().unwrap().number()));
    std::array::from_fn(|n| {
        let mut builder = Tidegate::builder()
            .preferred_ports(ports[n].0, ports[n].1)
            .variable("monitor_enabled", false)
            .admin_variable("admin_credentials", "admin:admin;cluster:cluster-pass")
            .admin_variable("cluster_username", "cluster")
            .admin_variable("cluster_password", "cluster-pass")
            .admin_variable("cluster_check_interval_ms", 50);
        for (_, admin) in ports {
            builder = builder.row("proxysql_servers", &[("hostname", "127.0.0.1".into()), ("port", i64::from(admin).into())]);
        }
        let proxy = more(n, builder).start().unwrap();
        assert_eq!(proxy.admin_port(), ports[n].1);
        proxy
    })
}

fn get(proxy: &Tidegate, sql: &str) -> String {
    proxy.admin().unwrap().scalar(sql).unwrap().unwrap_or_default()
}

fn order(proxy: &Tidegate, sql: &str) -> Result<String, String> {
    match proxy.admin().unwrap().run(sql) {
        Ok(reply) => Ok(reply.ok().map(|ok| ok.info.clone()).unwrap_or_default()),
        Err(LabError::Server { message, .. }) => Err(message),
        Err(other) => panic!("{sql}: {other}"),
    }
}

fn add_user(proxy: &Tidegate, name: &str) {
    order(proxy, &format!("INSERT INTO mysql_users (username, password) VALUES ('{name}', 'x')")).unwrap();
    order(proxy, "LOAD MYSQL USERS TO RUNTIME").unwrap();
}

fn users(proxy: &Tidegate) -> String {
    get(proxy, "SELECT GROUP_CONCAT(username) FROM (SELECT DISTINCT username FROM runtime_mysql_users ORDER BY username)")
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    wait::until(what, LIMIT, || is_so().then_some(())).unwrap();
}

fn applied(proxy: &Tidegate) -> String {
    get(proxy, "SELECT applied FROM stats_tidegate_proxies WHERE is_this")
}

fn error(proxy: &Tidegate) -> String {
    get(proxy, "SELECT error FROM stats_tidegate_proxies WHERE is_this")
}

#[test]
fn a_load_on_one_peer_reaches_the_others_and_outlasts_restarts() {
    let [one, mut two, three] = peers(|_, builder| builder);
    add_user(&one, "anna");
    for proxy in [&two, &three] {
        eventually("the user is everywhere", || users(proxy) == "anna");
        assert_eq!(get(proxy, "SELECT COUNT(*) FROM disk.mysql_users"), "1");
        assert!(get(proxy, "SELECT @@mysql-interfaces").contains(&proxy.port().to_string()));
    }
    order(&two, "SET mysql-max_connections = 77").unwrap();
    order(&two, "LOAD MYSQL VARIABLES TO RUNTIME").unwrap();
    eventually("a variable is everywhere", || get(&one, "SELECT @@mysql-max_connections") == "77" && applied(&three) == "2");
    // A change loaded on one proxy while another was down reaches the other at its start, which gives nothing older to the rest.
    two.kill9();
    add_user(&three, "bert");
    eventually("the others have it", || users(&one) == "anna,bert");
    two.start_again(&[]).unwrap();
    eventually("who was away has it", || users(&two) == "anna,bert" && applied(&two) == "3");
    // A change that was not saved survives a restart, with its version.
    add_user(&two, "cleo");
    two.start_again(&[]).unwrap();
    eventually("all have it", || [&one, &two, &three].iter().all(|proxy| users(proxy) == "anna,bert,cleo"));
    assert_eq!(error(&one), "");
}

#[test]
fn changes_of_two_peers_at_the_same_time_are_a_conflict_that_waits() {
    let [one, two] = peers(|_, builder| builder);
    add_user(&one, "anna");
    eventually("both have it", || users(&two) == "anna");
    let frozen = || two.signal(rustix::process::Signal::STOP);
    frozen();
    add_user(&one, "bert");
    one.signal(rustix::process::Signal::STOP);
    two.signal(rustix::process::Signal::CONT);
    // It may have been about to pull: it cannot, now.
    add_user(&two, "cleo");
    one.signal(rustix::process::Signal::CONT);
    for proxy in [&one, &two] {
        eventually("the conflict is told", || error(proxy).contains("conflict with"));
    }
    assert_eq!((users(&one), users(&two)), ("anna,bert".to_owned(), "anna,cleo".to_owned()), "nobody wins by himself");
    let refused = order(&one, "CONFIG REBASE").unwrap_err();
    assert!(refused.contains("CONFIG REBASE MINE"), "{refused}");
    order(&one, "CONFIG REBASE MINE").unwrap();
    eventually("one holds everywhere", || users(&two) == "anna,bert" && error(&two).is_empty() && error(&one).is_empty());
    add_user(&two, "dora");
    eventually("it goes on", || users(&one) == "anna,bert,dora");
}

/// Adds to the contents of a proxy's file.
fn write_to_file(proxy: &Tidegate, text: &str) {
    let file = proxy.config_file();
    let before = std::fs::read_to_string(&file).unwrap();
    std::fs::write(file, format!("{before}\n{text}\n")).unwrap();
}

/// As a playbook does.
#[test]
fn the_same_statements_on_every_peer_are_one_revision() {
    let proxies: [Tidegate; 3] = peers(|_, builder| builder);
    let tell = |proxy: &Tidegate, steps: &[&str]| steps.iter().for_each(|sql| drop(order(proxy, sql).unwrap()));
    let rule = |id: u32| format!("INSERT OR REPLACE INTO mysql_query_rules (rule_id, active) VALUES ({id}, 1)");
    for round in 0..3 {
        let (user, rule) = (format!("INSERT OR REPLACE INTO mysql_users (username, password) VALUES ('u{round}', 'x')"), rule(round + 1));
        std::thread::scope(|scope| {
            for (n, proxy) in proxies.iter().enumerate() {
                let users = [user.as_str(), "LOAD MYSQL USERS TO RUNTIME"];
                let rules = [rule.as_str(), "LOAD MYSQL QUERY RULES TO RUNTIME"];
                scope.spawn(move || if n == 1 { tell(proxy, &[rules, users].concat()) } else { tell(proxy, &[users, rules].concat()) });
            }
        });
        // By whatever ways they came there.
        let rules = |proxy: &Tidegate| get(proxy, "SELECT COUNT(*) FROM runtime_mysql_query_rules").parse::<u32>().unwrap();
        for proxy in &proxies {
            eventually("it is in force, and nobody is in conflict", || {
                error(proxy).is_empty() && users(proxy).split(',').count() as u32 == round + 1 && rules(proxy) == round + 1
            });
        }
        let one = &proxies[round as usize];
        order(one, &format!("SET mysql-max_connections = {}", 70 + round)).unwrap();
        order(one, "LOAD MYSQL VARIABLES TO RUNTIME").unwrap();
        for proxy in &proxies {
            eventually("what one of them loads next is everywhere", || {
                get(proxy, "SELECT @@mysql-max_connections") == (70 + round).to_string()
            });
        }
    }
}

#[test]
fn the_same_content_by_different_ways_is_no_conflict() {
    let [one, two] = peers(|_, builder| builder);
    let (users_first, rules_first) = (
        ["INSERT INTO mysql_users (username, password) VALUES ('anna', 'x')", "LOAD MYSQL USERS TO RUNTIME"],
        ["INSERT INTO mysql_query_rules (rule_id) VALUES (1)", "LOAD MYSQL QUERY RULES TO RUNTIME"],
    );
    let tell = |proxy: &Tidegate, steps: &[[&str; 2]; 2]| steps.as_flattened().iter().for_each(|sql| drop(order(proxy, sql).unwrap()));
    two.signal(rustix::process::Signal::STOP);
    tell(&one, &[users_first, rules_first]);
    one.signal(rustix::process::Signal::STOP);
    two.signal(rustix::process::Signal::CONT);
    tell(&two, &[rules_first, users_first]);
    one.signal(rustix::process::Signal::CONT);
    let known = |proxy: &Tidegate| get(proxy, "CONFIG REVISION");
    for proxy in [&one, &two] {
        eventually("each knows the other's name for it", || known(proxy).contains("\"equal\":[") && error(proxy).is_empty());
    }
    add_user(&two, "bert");
    eventually("what comes next is taken", || users(&one) == "anna,bert" && error(&one).is_empty());
    add_user(&one, "cleo");
    eventually("on either side", || users(&two) == "anna,bert,cleo" && error(&two).is_empty());
}

#[test]
fn a_load_without_a_change_gives_what_the_file_has_to_empty_peers() {
    for sql in ["LOAD MYSQL USERS TO RUNTIME", "CONFIG SHARE"] {
        let [one, two] = peers(|n, builder| {
            let user = [("username", "anna".into()), ("password", "x".into())];
            if n == 0 { builder.row("mysql_users", &user) } else { builder }
        });
        for proxy in [&one, &two] {
            eventually("that they differ is told", || error(proxy).contains("no peer has a revision yet"));
        }
        assert!(get(&one, "SHOW PROMETHEUS METRICS").contains("\ntidegate_config_conflict 1\n"));
        // The one that has nothing takes nothing away.
        order(&two, "LOAD MYSQL USERS TO RUNTIME").unwrap();
        assert_eq!((applied(&two).as_str(), users(&one).as_str()), ("0", "anna"));
        order(&one, sql).unwrap();
        eventually("the empty one has it", || users(&two) == "anna" && applied(&two) == "1");
        for proxy in [&one, &two] {
            eventually("nothing differs", || error(proxy).is_empty());
        }
        assert!(two.log().contains("replaces this proxy's initial configuration in MYSQL USERS"), "{}", two.log());
        let refused = order(&two, "CONFIG SHARE").unwrap_err();
        assert!(refused.contains("a shared configuration exists already: this proxy has revision 1"), "{refused}");
    }
}

#[test]
fn a_file_that_is_reloaded_beside_peers_is_told_to_have_no_effect() {
    let [one, mut two] = peers(|_, builder| builder);
    add_user(&one, "anna");
    eventually("both have it", || users(&two) == "anna");
    two.start_again(&["--reload"]).unwrap();
    assert!(!two.log().contains("--reload changes nothing"), "the file says nothing new");
    write_to_file(&two, "mysql_users = ( { username=\"bert\", password=\"x\" } )");
    two.start_again(&["--reload"]).unwrap();
    assert!(two.log().contains("--reload changes nothing in MYSQL USERS"), "{}", two.log());
    assert_eq!(users(&two), "anna");
    // These are the commands that the line names.
    order(&two, "LOAD MYSQL USERS FROM CONFIG").unwrap();
    order(&two, "LOAD MYSQL USERS TO RUNTIME").unwrap();
    eventually("it is everywhere", || users(&one).contains("bert"));
}

#[test]
fn a_module_with_no_checks_before_sync_is_each_peers_own() {
    let [one, two] = peers(|n, builder| match n {
        0 => builder,
        _ => builder
            .admin_variable("cluster_mysql_users_diffs_before_sync", 0)
            .admin_variable("cluster_admin_variables_diffs_before_sync", 0),
    });
    add_user(&one, "anna");
    order(&one, "SET mysql-max_connections = 77").unwrap();
    order(&one, "LOAD MYSQL VARIABLES TO RUNTIME").unwrap();
    eventually("the variable is there", || get(&two, "SELECT @@mysql-max_connections") == "77");
    assert_eq!(users(&two), "");
    add_user(&two, "bert");
    order(&two, "SET mysql-max_connections = 78").unwrap();
    order(&two, "LOAD MYSQL VARIABLES TO RUNTIME").unwrap();
    eventually("the variable is there", || get(&one, "SELECT @@mysql-max_connections") == "78");
    assert_eq!((users(&one), users(&two)), ("anna".to_owned(), "bert".to_owned()));
}

#[test]
fn proxysqls_tables_tell_the_truth() {
    let [one, two] = peers(|_, builder| builder.admin_variable("cluster_check_status_frequency", 1));
    add_user(&one, "anna");
    eventually("both have it", || users(&two) == "anna");
    // As a chart's health check asks.
    let differing = "SELECT COUNT(*) FROM stats_proxysql_servers_checksums WHERE diff_check > 0";
    let listed = "SELECT COUNT(*) FROM stats_proxysql_servers_checksums WHERE name = 'mysql_users'";
    for proxy in [&one, &two] {
        eventually("nothing differs", || get(proxy, listed) == "2" && get(proxy, differing) == "0");
        let of = |column: &str, table: &str| {
            get(proxy, &format!("SELECT GROUP_CONCAT({column}) FROM (SELECT {column} FROM {table} ORDER BY port)"))
        };
        eventually("both versions are known", || of("global_version", "stats_proxysql_servers_status") == "1,1");
        eventually("checks go on", || get(proxy, "SELECT MIN(checks_OK) FROM stats_proxysql_servers_status").parse::<u64>().unwrap() > 3);
        eventually("metrics are there", || of("Uptime_s", "stats_proxysql_servers_metrics").split(',').all(|uptime| uptime != "0"));
        let sums = "SELECT COUNT(DISTINCT checksum) FROM stats_proxysql_servers_checksums WHERE name = 'mysql_users'";
        assert_eq!(get(proxy, sums), "1");
    }
    let own = "SELECT checksum FROM runtime_checksums_values WHERE name = 'mysql_users'";
    assert_eq!(get(&one, own), get(&two, own));
    two.kill9();
    eventually("a peer that is gone is told", || {
        get(&one, "SELECT MAX(checks_ERR) FROM stats_proxysql_servers_status").parse::<u64>().unwrap() > 0
    });
    // Only administrators may read the configuration that peers pull.
    let mut stats = lab::Client::connect(&lab::ConnectOptions::tcp(format!("127.0.0.1:{}", one.admin_port()), "stats", "stats")).unwrap();
    assert!(stats.run("CONFIG REVISION TEXT").is_err());
}

#[test]
fn a_configuration_that_is_larger_than_allowed_is_not_pulled() {
    let [one, two] = peers(|n, builder| if n == 0 { builder } else { builder.admin_variable("shared_config_max_bytes", 1_048_576) });
    let insert = |count: u32| {
        format!(
            "INSERT OR REPLACE INTO mysql_query_rules (rule_id, active, comment) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n \
             WHERE i < {count}) SELECT i, 1, HEX(ZEROBLOB(40000)) FROM n"
        )
    };
    let rules = |proxy: &Tidegate| get(proxy, "SELECT COUNT(*) FROM runtime_mysql_query_rules");
    for (count, is_taken) in [(5, true), (40, false)] {
        order(&one, &insert(count)).unwrap();
        order(&one, "LOAD MYSQL QUERY RULES TO RUNTIME").unwrap();
        if is_taken {
            eventually("it is taken", || rules(&two) == count.to_string());
        }
    }
    eventually("it is refused", || error(&two).contains("more than 1048576 bytes (admin-shared_config_max_bytes)"));
    assert!(!get(&two, "SHOW PROMETHEUS METRICS").contains("tidegate_config_too_large_total 0"));
    assert_eq!(rules(&two), "5");
    order(&one, "DELETE FROM mysql_query_rules WHERE rule_id > 3").unwrap();
    order(&one, "LOAD MYSQL QUERY RULES TO RUNTIME").unwrap();
    eventually("the next one is taken", || rules(&two) == "3" && error(&two).is_empty());
}

/// Peers exchange configurations under TLS if the admin port has it, and with a CA they accept no other host as a peer.
#[test]
fn what_is_pulled_travels_under_tls() {
    for has_tls in [true, false] {
        let [one, two] = peers(|_, builder| builder.variable("have_ssl", has_tls).variable("auditlog_filename", "audit"));
        add_user(&one, "anna");
        eventually("the other one has it", || users(&two) == "anna");
        let audit = || {
            let files =
                std::fs::read_dir(one.dir()).unwrap().flatten().filter(|file| file.file_name().to_string_lossy().starts_with("audit"));
            files.map(|file| std::fs::read_to_string(file.path()).unwrap()).collect::<String>()
        };
        let is_login = |line: &&str| line.contains("\"cluster\"") && line.contains("Admin_Connect_OK");
        eventually("the login is in the log", || audit().lines().any(|line| is_login(&line)));
        let text = audit();
        let logins: Vec<&str> = text.lines().filter(is_login).collect();
        assert!(logins.iter().all(|line| line.contains("\"ssl\":true") == has_tls), "{logins:?}");
        // One's certificate is not from two's CA.
        let trusts = |ca: &Tidegate| {
            order(&two, &format!("SET admin-shared_config_ca = '{}'", ca.dir().join("proxysql-ca.pem").display())).unwrap();
            order(&two, "LOAD ADMIN VARIABLES TO RUNTIME").unwrap();
        };
        trusts(&two);
        let why = if has_tls { "certificate" } else { "the peer offers no TLS" };
        let peer = format!("peer 127.0.0.1:{}: ", one.admin_port());
        eventually("the peer is refused", || two.log().lines().any(|line| line.contains(&peer) && line.contains(why)));
        if has_tls {
            trusts(&one);
            add_user(&one, "bert");
            eventually("the peer is one again", || users(&two) == "anna,bert");
        }
    }
}
