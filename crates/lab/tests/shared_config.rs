//! Several proxies with one configuration, kept in a real etcd.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

use std::collections::HashSet;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::etcd::{Etcd, Options};
use lab::{Client, Flavor, LabError, Network, Replication, Server, Tidegate, certs, dirs, wait};

const LIMIT: Duration = Duration::from_secs(30);

fn etcd(members: usize) -> Etcd {
    Etcd::start(Options { members, ..Options::default() }).unwrap()
}

fn builder(endpoints: &str) -> lab::tidegate::Builder {
    Tidegate::builder().admin_variable("shared_config_endpoints", endpoints).variable("monitor_enabled", false)
}

fn proxies<const N: usize>(etcd: &Etcd) -> [Tidegate; N] {
    std::array::from_fn(|_| builder(&etcd.endpoints()).start().unwrap())
}

fn get(proxy: &Tidegate, sql: &str) -> String {
    proxy.admin().unwrap().scalar(sql).unwrap().unwrap_or_default()
}

/// The answer to an administrator: the text of an OK, or of the error.
fn order(proxy: &Tidegate, sql: &str) -> Result<String, String> {
    match proxy.admin().unwrap().run(sql) {
        Ok(reply) => Ok(reply.ok().map(|ok| ok.info.clone()).unwrap_or_default()),
        Err(LabError::Server { message: text, .. }) => Err(text),
        Err(other) => panic!("{sql}: {other}"),
    }
}

fn edit(proxy: &Tidegate, statements: &[&str]) {
    let mut admin = proxy.admin().unwrap();
    for sql in statements {
        admin.run(*sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

/// Changes the users of one proxy.
fn add_user(proxy: &Tidegate, name: &str) -> Result<String, String> {
    edit(proxy, &[&format!("INSERT INTO mysql_users (username, password) VALUES ('{name}', 'x')")]);
    order(proxy, "LOAD MYSQL USERS TO RUNTIME")
}

fn users(proxy: &Tidegate) -> String {
    get(proxy, "SELECT GROUP_CONCAT(username) FROM (SELECT DISTINCT username FROM runtime_mysql_users ORDER BY username)")
}

/// SHA-256 as text.
fn sum(text: &str) -> String {
    let mut child = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    wait::until(what, LIMIT, || is_so().then_some(())).unwrap();
}

fn applied(proxy: &Tidegate) -> u64 {
    get(proxy, "SELECT applied FROM stats_tidegate_proxies WHERE is_this").parse().unwrap_or_default()
}

fn error(proxy: &Tidegate) -> String {
    get(proxy, "SELECT error FROM stats_tidegate_proxies WHERE is_this")
}

fn name(proxy: &Tidegate) -> String {
    get(proxy, "SELECT name FROM stats_tidegate_proxies WHERE is_this")
}

/// Until all proxies know that so many live.
fn all_know(proxies: &[&Tidegate], count: usize) {
    for proxy in proxies {
        eventually("every proxy is known", || get(proxy, "SELECT COUNT(*) FROM stats_tidegate_proxies") == count.to_string());
    }
}

#[test]
fn a_load_on_one_proxy_is_in_force_on_all_and_what_is_local_stays() {
    let etcd = etcd(3);
    let [one, two, three] = proxies(&etcd);
    all_know(&[&one, &two, &three], 3);
    add_user(&one, "anna").unwrap();
    for proxy in [&two, &three] {
        eventually("the user is everywhere", || users(proxy) == "anna");
        assert_eq!(get(proxy, "SELECT COUNT(*) FROM mysql_users"), "1", "memory follows");
        assert_eq!(get(proxy, "SELECT COUNT(*) FROM disk.mysql_users"), "1", "and so does disk");
        assert!(
            get(proxy, "SELECT variable_value FROM runtime_global_variables WHERE variable_name = 'mysql-interfaces'")
                .contains(&proxy.port().to_string())
        );
    }
    edit(&two, &["SET mysql-max_connections = 123", "LOAD MYSQL VARIABLES TO RUNTIME"]);
    eventually("a variable is everywhere", || get(&one, "SELECT @@mysql-max_connections") == "123");
    assert_eq!(applied(&two), 2);
    let by = get(&one, "CONFIG HISTORY SHARED");
    assert_eq!(by, "2");
    // A variable of its own is no revision.
    edit(&two, &["SET mysql-eventslog_filename = 'mine'", "LOAD MYSQL VARIABLES TO RUNTIME"]);
    assert_eq!(applied(&two), 2);
    assert!(order(&three, "CONFIG ROLLBACK SHARED 1").is_ok());
    eventually("what was holds again", || get(&two, "SELECT @@mysql-max_connections") == "10000" && applied(&two) == 3);
    assert_eq!(get(&two, "SELECT @@mysql-eventslog_filename"), "mine");
}

/// LAB_LOADS says how many LOADs there are in all.
#[test]
fn of_changes_at_the_same_time_each_is_in_the_history_or_refused() {
    let each = std::env::var("LAB_LOADS").map_or(120, |loads| loads.parse::<usize>().unwrap()).div_ceil(3);
    let etcd = etcd(3);
    let proxies: [Tidegate; 3] = proxies(&etcd);
    order(&proxies[0], "CONFIG SHARE").unwrap();
    all_know(&proxies.each_ref(), 3);
    for proxy in &proxies {
        eventually("every proxy has the first revision", || applied(proxy) == 1);
    }
    let began = Instant::now();
    let tell = |proxy: &Tidegate, p: usize| {
        let (mut admin, mut taken) = (proxy.admin().unwrap(), Vec::new());
        for user in (0..each).map(|n| format!("u{p}-{n}")) {
            admin.run(format!("INSERT OR REPLACE INTO mysql_users (username, password) VALUES ('{user}', 'x')")).unwrap();
            match admin.run("LOAD MYSQL USERS TO RUNTIME") {
                Ok(_) => taken.push(user),
                Err(LabError::Server { message: text, .. }) => {
                    assert!(text.contains("the shared configuration is at"), "{text}");
                    admin.run("CONFIG REBASE").map(drop).unwrap_or_else(|error| panic!("{error}"));
                }
                Err(other) => panic!("{other}"),
            }
        }
        taken
    };
    let taken: Vec<String> = thread::scope(|scope| {
        let tell = &tell;
        let tellers: Vec<_> = proxies.iter().enumerate().map(|(p, proxy)| scope.spawn(move || tell(proxy, p))).collect();
        tellers.into_iter().flat_map(|teller| teller.join().unwrap()).collect()
    });
    let last = taken.len() + 1;
    println!("{} LOADs on three proxies within {:?}: {} are in force, the others were refused", 3 * each, began.elapsed(), taken.len());
    let sums = || {
        proxies
            .iter()
            .map(|proxy| (applied(proxy), get(proxy, "SELECT checksum FROM runtime_checksums_values WHERE name = 'mysql_users'")))
            .collect::<Vec<_>>()
    };
    eventually("all are equal", || sums().iter().all(|sum| *sum == sums()[0] && sum.0 == last as u64));
    let history = proxies[0].admin().unwrap().run("CONFIG HISTORY SHARED").unwrap().table().unwrap();
    assert!(history.len() >= last.min(50) && history.len() <= 60, "{} of {last} revisions", history.len());
    assert!(last > each, "{last}");
    let known = users(&proxies[1]);
    let known: HashSet<&str> = known.split(',').collect();
    assert!(taken.iter().all(|user| known.contains(&**user)), "what was taken is in force at the end");
}

#[test]
fn what_is_edited_here_is_laid_over_what_others_changed() {
    let etcd = etcd(1);
    let [one, two] = proxies(&etcd);
    edit(&one, &["INSERT INTO mysql_users (username, password) VALUES ('anna', 'x'), ('bert', 'x')"]);
    order(&one, "CONFIG APPLY").unwrap();
    eventually("both have it", || users(&two) == "anna,bert");
    edit(
        &two,
        &["UPDATE mysql_users SET max_connections = 7 WHERE username = 'bert'", "INSERT INTO mysql_query_rules (rule_id) VALUES (5)"],
    );
    edit(&one, &["UPDATE mysql_users SET max_connections = 3 WHERE username = 'anna'"]);
    order(&one, "LOAD MYSQL USERS TO RUNTIME").unwrap();
    eventually("the other one has it", || applied(&two) == 2);
    // No other proxy has changed the rules.
    order(&two, "LOAD MYSQL QUERY RULES TO RUNTIME").unwrap();
    let refused = order(&two, "LOAD MYSQL USERS TO RUNTIME").unwrap_err();
    assert!(refused.contains("MYSQL USERS in memory is based on 1") && refused.contains("CONFIG REBASE"), "{refused}");
    let differences = two.admin().unwrap().run("CONFIG DIFF SHARED").unwrap().table().unwrap();
    assert_eq!(differences.len(), 2, "{differences:?}");
    let said = order(&two, "CONFIG REBASE").unwrap();
    assert!(said.contains("MYSQL USERS"), "{said}");
    order(&two, "LOAD MYSQL USERS TO RUNTIME").unwrap();
    let both =
        "SELECT GROUP_CONCAT(max_connections) FROM (SELECT max_connections FROM runtime_mysql_users WHERE frontend ORDER BY username)";
    eventually("both changes hold", || get(&one, both) == "3,7");
    // The same row, changed by both.
    edit(&two, &["UPDATE mysql_users SET max_connections = 70 WHERE username = 'anna'"]);
    edit(&one, &["UPDATE mysql_users SET max_connections = 30 WHERE username = 'anna'"]);
    order(&one, "LOAD MYSQL USERS TO RUNTIME").unwrap();
    eventually("the other one has it", || applied(&two) == applied(&one));
    let refused = order(&two, "CONFIG REBASE").unwrap_err();
    assert!(refused.contains("username=anna") && refused.contains("CONFIG REBASE MINE"), "{refused}");
    order(&two, "CONFIG REBASE MINE").unwrap();
    order(&two, "LOAD MYSQL USERS TO RUNTIME").unwrap();
    eventually("mine holds", || get(&one, both) == "70,7");
}

/// Once its edits are gone, memory has nothing left to merge.
#[test]
fn memory_that_was_brought_up_to_date_is_not_behind() {
    let etcd = etcd(1);
    let [one, two] = proxies(&etcd);
    add_user(&one, "anna").unwrap();
    eventually("both have it", || users(&two) == "anna");
    let limits = |proxy: &Tidegate| get(proxy, "SELECT MAX(max_connections) FROM runtime_mysql_users");
    let comments = |proxy: &Tidegate| get(proxy, "SELECT MAX(comment) FROM runtime_mysql_users");
    let edited = "UPDATE mysql_users SET comment = comment || 'x'";
    for (limit, back) in [
        ["SAVE MYSQL USERS FROM RUNTIME", edited],
        ["LOAD MYSQL USERS FROM DISK", edited],
        ["DELETE FROM mysql_users", "INSERT INTO main.mysql_users SELECT * FROM disk.mysql_users"],
    ]
    .iter()
    .enumerate()
    {
        edit(&two, &["INSERT INTO mysql_users (username, password) VALUES ('mine', 'x')"]);
        edit(&one, &[&format!("UPDATE mysql_users SET max_connections = {}", limit + 5), "LOAD MYSQL USERS TO RUNTIME"]);
        eventually("the other one has it", || limits(&two) == limits(&one));
        assert!(order(&two, "LOAD MYSQL USERS TO RUNTIME").unwrap_err().contains("is based on"));
        edit(&two, back);
        order(&two, "LOAD MYSQL USERS TO RUNTIME").unwrap_or_else(|error| panic!("{back:?}: {error}"));
        eventually("both have it", || comments(&one) == comments(&two));
    }
}

#[test]
fn without_etcd_a_proxy_serves_and_starts_by_what_it_had() {
    let mut etcd = etcd(1);
    let [one, mut two] = proxies(&etcd);
    add_user(&one, "anna").unwrap();
    eventually("both have it", || users(&two) == "anna");
    etcd.kill9(0);
    eventually("it is known that etcd is away", || error(&one).contains("etcd does not answer"));
    let refused = add_user(&one, "bert").unwrap_err();
    assert!(refused.contains("not reachable since") && refused.contains("Nothing was changed"), "{refused}");
    assert_eq!(users(&one), "anna");
    // Changes that only this proxy has are still possible.
    order(&one, "SET mysql-eventslog_filename = 'mine'").unwrap();
    order(&one, "LOAD MYSQL VARIABLES TO RUNTIME").unwrap();
    two.start_again(&[]).unwrap();
    assert_eq!((users(&two), applied(&two)), ("anna".to_owned(), 1));
    etcd.start_again(0, false).unwrap();
    eventually("a change is taken again", || order(&one, "LOAD MYSQL USERS TO RUNTIME").is_ok());
    eventually("both have it", || users(&two) == "anna,bert");
}

/// The network between one proxy and etcd is cut, and nothing else: packets sent there vanish.
#[test]
fn a_proxy_that_is_cut_off_from_etcd_serves_and_comes_back_equal() {
    if !Network::possible() {
        return eprintln!("not tested: networks need root and the program ip");
    }
    let network = Network::new(1).unwrap();
    network.join().unwrap();
    let site = &network.sites[0];
    let etcd = Etcd::start(Options { site: Some(site), ..Options::default() }).unwrap();
    let server = Server::start(Flavor::Mariadb, &lab::Options::new()).unwrap();
    let [one, two] =
        [site.host(), site.group_host()].map(|host| builder(&etcd.endpoint_at(0, host)).backend(0, &server).app_user().start().unwrap());
    all_know(&[&one, &two], 2);
    add_user(&one, "anna").unwrap();
    eventually("both have it", || users(&two) == "anna,app");
    let mut client = two.connect_app().unwrap();

    site.cut_from_group(true).unwrap();
    let cut = Instant::now();
    eventually("the reason is told", || error(&two).contains("etcd does not answer"));
    println!("cut off from etcd, which it says after {:?}", cut.elapsed());
    add_user(&one, "bert").unwrap();
    let refused = add_user(&two, "cleo").unwrap_err();
    assert!(refused.contains("not reachable since") && refused.contains("Nothing was changed"), "{refused}");
    assert_eq!(users(&two), "anna,app");
    for client in [&mut client, &mut two.connect_app().unwrap()] {
        assert_eq!(client.scalar("SELECT 1").unwrap().as_deref(), Some("1"));
    }
    eventually("the other one knows it as gone", || get(&one, "SELECT COUNT(*) FROM stats_tidegate_proxies") == "1");

    site.cut_from_group(false).unwrap();
    let joined = Instant::now();
    eventually("it has what it missed", || users(&two) == "anna,app,bert" && applied(&two) == applied(&one));
    println!("joined again, and equal after {:?}", joined.elapsed());
    assert_eq!(error(&two), "");
    // The refused change is still in its memory.
    order(&two, "CONFIG REBASE").unwrap();
    order(&two, "LOAD MYSQL USERS TO RUNTIME").unwrap();
    eventually("both have it", || users(&one) == "anna,app,bert,cleo");
    all_know(&[&one, &two], 2);
    assert_eq!(client.scalar("SELECT 1").unwrap().as_deref(), Some("1"));
}

#[test]
fn a_wiped_etcd_takes_nothing_from_anybody() {
    let mut etcd = etcd(1);
    let [one, mut two] = proxies(&etcd);
    add_user(&one, "anna").unwrap();
    eventually("both have it", || users(&two) == "anna");
    two.kill9();
    add_user(&one, "bert").unwrap();
    etcd.start_again(0, true).unwrap();
    eventually("it is known that etcd is empty", || error(&one).contains("etcd has lost the shared configuration"));
    assert_eq!(users(&one), "anna,bert");
    assert!(add_user(&one, "cleo").unwrap_err().contains("CONFIG SHARE"));
    // A proxy that is new there may not decide either.
    let fresh = builder(&etcd.endpoints()).start().unwrap();
    all_know(&[&one, &fresh], 2);
    let refused = add_user(&fresh, "dora").unwrap_err();
    assert!(refused.contains("newer than this proxy's 0") && refused.contains("CONFIG SHARE there"), "{refused}");
    fresh.stop().unwrap();
    two.start_again(&[]).unwrap();
    all_know(&[&one, &two], 2);
    assert_eq!(users(&two), "anna");
    // A proxy with an older revision may not publish its own.
    let refused = order(&two, "CONFIG SHARE").unwrap_err();
    assert!(refused.contains("newer than this proxy's 1"), "{refused}");
    assert!(order(&one, "CONFIG SHARE").unwrap().contains("revision 3"));
    eventually("the other one has it", || users(&two) == "anna,bert");
    order(&one, "LOAD MYSQL USERS TO RUNTIME").unwrap();
    eventually("it goes on", || users(&two) == "anna,bert,cleo");
}

/// Two proxies at revision 5, and etcd as it was at revision 3.
fn restored(etcd: &mut Etcd) -> [Tidegate; 2] {
    let [one, two] = proxies(etcd);
    all_know(&[&one, &two], 2);
    for user in ["u1", "u2", "u3"] {
        add_user(&one, user).unwrap();
    }
    eventually("both have it", || applied(&two) == 3);
    let dir = dirs::instance("etcd-snapshot").unwrap();
    let file = dir.join("snapshot");
    etcd.save(&file).unwrap();
    for user in ["u4", "u5"] {
        add_user(&two, user).unwrap();
    }
    eventually("both have it", || applied(&one) == 5);
    etcd.restore(&file).unwrap();
    std::fs::remove_dir_all(dir).unwrap();
    for proxy in [&one, &two] {
        eventually("what etcd lost is told", || {
            let why = error(proxy);
            why.contains("etcd has revision 3") && why.contains("the newer revision 5") && why.contains("CONFIG REBASE MINE")
        });
    }
    [one, two]
}

const ALL: &str = "u1,u2,u3,u4,u5";

#[test]
fn a_restored_etcd_loses_nothing_that_a_proxy_has() {
    let mut etcd = etcd(3);
    let [one, two] = restored(&mut etcd);
    let refused = add_user(&one, "u6").unwrap_err();
    assert!(refused.contains("the newer revision") && refused.contains("Nothing was changed"), "{refused}");
    assert!(one.log().contains("the newer revision"));
    let conflict = |proxy: &Tidegate| get(proxy, "SHOW PROMETHEUS METRICS").contains("\ntidegate_config_conflict 1\n");
    eventually("the metric says so", || conflict(&one));
    // A new proxy takes the revision in etcd, and may not change it.
    let third = builder(&etcd.endpoints()).start().unwrap();
    all_know(&[&one, &two, &third], 3);
    eventually("it has what etcd has", || applied(&third) == 3);
    let refused = add_user(&third, "x").unwrap_err();
    assert!(refused.contains("2 of the proxies would refuse the change") && refused.contains("CONFIG REBASE MINE"), "{refused}");
    assert!(order(&third, "CONFIG ROLLOUT TO 20 PERCENT").unwrap_err().contains("would refuse"));
    // The commands without MINE or SHARED are refused, so that no choice is made by accident.
    for sql in ["CONFIG REBASE", "CONFIG SHARE"] {
        let refused = order(&one, sql).unwrap_err();
        assert!(refused.contains("CONFIG REBASE MINE") && refused.contains("CONFIG REBASE SHARED"), "{refused}");
    }
    assert_eq!((users(&one), users(&two), users(&third)), (ALL.to_owned(), ALL.to_owned(), "u1,u2,u3".to_owned()));
    let said = order(&one, "CONFIG REBASE MINE").unwrap();
    assert!(said.contains("revision 6 is shared") && said.contains("replaces 3"), "{said}");
    for proxy in [&one, &two, &third] {
        eventually("it holds everywhere", || users(proxy) == ALL && applied(proxy) == 6 && error(proxy).is_empty());
    }
    eventually("the metric says so no more", || !conflict(&one));
    // The refused change is still in memory.
    order(&one, "LOAD MYSQL USERS TO RUNTIME").unwrap();
    order(&third, "CONFIG REBASE MINE").unwrap();
    eventually("it goes on", || users(&two) == format!("{ALL},u6"));
}

#[test]
fn a_restored_etcd_that_went_on_without_them_is_not_followed() {
    let mut etcd = etcd(1);
    let [mut one, mut two] = restored(&mut etcd);
    one.stop().unwrap();
    two.stop().unwrap();
    let third = builder(&etcd.endpoints()).start().unwrap();
    all_know(&[&third], 1);
    eventually("it has what etcd has", || applied(&third) == 3);
    // The snapshot has the lines of those that were stopped, until their leases end.
    if add_user(&third, "n1").is_err() {
        eventually("nobody is ahead", || order(&third, "LOAD MYSQL USERS TO RUNTIME").is_ok());
    }
    for user in ["n2", "n3", "n4"] {
        add_user(&third, user).unwrap();
    }
    // Its lineage is on disk.
    one.start_again(&[]).unwrap();
    two.start_again(&[]).unwrap();
    for proxy in [&one, &two] {
        eventually("it is told", || {
            error(proxy).contains("etcd has revision 7") && error(proxy).contains("does not derive from this proxy's")
        });
        assert_eq!((users(proxy).as_str(), applied(proxy)), (ALL, 5));
    }
    let refused = add_user(&one, "u6").unwrap_err();
    assert!(refused.contains("does not derive from") && refused.contains("Nothing was changed"), "{refused}");
    edit(&one, &["DELETE FROM mysql_users WHERE username = 'u6'"]);
    assert_eq!(order(&one, "CONFIG DIFF SHARED").map(drop), Ok(()));
    let said = order(&one, "CONFIG REBASE MINE").unwrap();
    assert!(said.contains("revision 8 is shared") && said.contains("replaces 7"), "{said}");
    for proxy in [&one, &two, &third] {
        eventually("it holds everywhere", || users(proxy) == ALL && applied(proxy) == 8 && error(proxy).is_empty());
    }
    add_user(&third, "u6").unwrap();
    eventually("it goes on", || users(&two) == format!("{ALL},u6"));
}

#[test]
fn who_takes_what_a_restored_etcd_has_drops_its_own() {
    let mut etcd = etcd(1);
    let [one, two] = restored(&mut etcd);
    order(&one, "CONFIG REBASE SHARED").unwrap();
    assert_eq!((users(&one).as_str(), applied(&one)), ("u1,u2,u3", 3));
    let newer = "SELECT COUNT(*) FROM stats_tidegate_proxies WHERE NOT is_this AND applied = 5";
    eventually("one knows what two has", || get(&one, newer) == "1");
    let refused = add_user(&one, "x").unwrap_err();
    assert!(refused.contains(&name(&two)) && refused.contains("would refuse the change"), "{refused}");
    order(&two, "CONFIG REBASE SHARED").unwrap();
    eventually("nobody is ahead", || order(&one, "LOAD MYSQL USERS TO RUNTIME").is_ok());
    eventually("both have it", || users(&two) == "u1,u2,u3,x" && error(&two).is_empty());
}

/// A proxy of an older version writes manifests without a lineage, and is followed by numbers.
#[test]
fn a_manifest_without_a_lineage_is_taken_by_its_number() {
    let etcd = etcd(1);
    let [one, two] = proxies(&etcd);
    add_user(&one, "u1").unwrap();
    add_user(&one, "u2").unwrap();
    eventually("both have it", || applied(&two) == 2);
    let key = "/tidegate/main/live/config";
    let mut manifest: serde_json::Value = serde_json::from_str(etcd.ctl(0, &["get", "--print-value-only", key]).unwrap().trim()).unwrap();
    assert_eq!(manifest.as_object_mut().unwrap().remove("lineage").unwrap().as_array().unwrap().len(), 1);
    (manifest["number"], manifest["id"]) = (5.into(), "by-an-older-version".into());
    etcd.put(key, manifest.to_string().as_bytes()).unwrap();
    for proxy in [&one, &two] {
        eventually("it is taken", || applied(proxy) == 5 && error(proxy).is_empty());
    }
    add_user(&two, "u3").unwrap();
    eventually("it goes on", || users(&one) == "u1,u2,u3" && applied(&one) == 6);
}

#[test]
fn members_that_die_or_stop_are_left_for_others() {
    let mut etcd = etcd(3);
    let [one, two] = proxies(&etcd);
    add_user(&one, "u0").unwrap();
    for n in 0..3 {
        etcd.freeze(n);
        eventually("a change is taken", || order(&one, "LOAD MYSQL USERS TO RUNTIME").is_ok());
        let user = format!("v{n}");
        edit(&one, &[&format!("INSERT INTO mysql_users (username, password) VALUES ('{user}', 'x')")]);
        eventually("a change is taken", || order(&one, "LOAD MYSQL USERS TO RUNTIME").is_ok());
        eventually("the other one has it", || users(&two).contains(&user));
        etcd.thaw(n);
        etcd.wait_ready().unwrap();
        etcd.kill9(n);
        let user = format!("w{n}");
        edit(&two, &[&format!("INSERT INTO mysql_users (username, password) VALUES ('{user}', 'x')")]);
        eventually("a change is taken", || order(&two, "LOAD MYSQL USERS TO RUNTIME").is_ok());
        eventually("the other one has it", || users(&one).contains(&user));
        etcd.start_again(n, false).unwrap();
    }
    assert_eq!(users(&one), "u0,v0,v1,v2,w0,w1,w2");
}

#[test]
fn a_proxy_that_was_away_over_a_compaction_catches_up() {
    let etcd = etcd(1);
    let [one, two] = proxies(&etcd);
    add_user(&one, "anna").unwrap();
    eventually("both have it", || users(&two) == "anna");
    two.signal(rustix::process::Signal::STOP);
    for n in 0..25 {
        add_user(&one, &format!("u{n}")).unwrap();
    }
    let status = etcd.ctl(0, &["endpoint", "status", "--write-out=json"]).unwrap();
    let revision: String = status.split("\"revision\":").nth(1).unwrap().chars().take_while(char::is_ascii_digit).collect();
    etcd.ctl(0, &["compact", &revision]).unwrap();
    two.signal(rustix::process::Signal::CONT);
    eventually("it has caught up", || applied(&two) == 26 && users(&two).contains("u24"));
}

#[test]
fn tls_users_and_tokens_that_run_out() {
    let dir = dirs::instance("etcd-certificates").unwrap();
    let files = certs::write_server_files(&dir).unwrap();
    let etcd = Etcd::start(Options { tls: Some(&files), token_ttl_s: Some(2), ..Options::default() }).unwrap();
    for command in [
        "user add root:root-pass",
        "role add root",
        "user grant-role root root",
        "role add proxies",
        "role grant-permission proxies readwrite /tidegate/ --prefix=true",
        "user add tidegate:pass-1",
        "user grant-role tidegate proxies",
        "auth enable",
    ] {
        etcd.ctl(0, &command.split(' ').collect::<Vec<_>>()).unwrap();
    }
    let with = |password: &str| {
        let own = builder(&etcd.endpoints()).admin_variable("shared_config_ca", files.ca.display().to_string().as_str());
        own.admin_variable("shared_config_username", "tidegate").admin_variable("shared_config_password", password).start().unwrap()
    };
    let (one, two) = (with("pass-1"), with("pass-1"));
    all_know(&[&one, &two], 2);
    add_user(&one, "anna").unwrap();
    eventually("both have it", || users(&two) == "anna");
    // Longer than a token lives, and longer than a lease does.
    let later = std::time::Instant::now() + Duration::from_secs(17);
    eventually("time has passed", || std::time::Instant::now() > later);
    add_user(&two, "bert").unwrap();
    eventually("both have it", || users(&one) == "anna,bert");
    all_know(&[&one, &two], 2);
    let other = with("wrong");
    eventually("the reason is told", || error(&other).contains("user tidegate"));
    assert!(!error(&other).contains("wrong") && !other.log().contains("wrong"));
    assert_eq!(users(&other), "");
    let without = builder(&etcd.endpoints()).start().unwrap();
    eventually("a certificate that is not trusted is named", || error(&without).contains("TLS"));
    for proxy in [&one, &two] {
        assert!(!proxy.log().contains("pass-1"));
    }
    let _ = std::fs::remove_dir_all(dir);
}

#[test]
fn a_file_that_is_reloaded_beside_etcd_is_told_to_have_no_effect() {
    let etcd = etcd(1);
    let [one, mut two] = proxies(&etcd);
    add_user(&one, "anna").unwrap();
    eventually("both have it", || users(&two) == "anna");
    let file = two.config_file();
    let before = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{before}\nmysql_users = ( {{ username=\"bert\", password=\"x\" }} )\n")).unwrap();
    two.start_again(&["--reload"]).unwrap();
    assert!(two.log().contains("--reload changes nothing in MYSQL USERS"), "{}", two.log());
    assert_eq!(users(&two), "anna");
    // A configuration file has no effect with `--initial` either.
    two.start_again(&["--initial"]).unwrap();
    eventually("it takes what is shared", || users(&two) == "anna");
    assert!(two.log().contains("replaces this proxy's initial configuration in MYSQL USERS"), "{}", two.log());
}

#[test]
fn what_cannot_be_applied_is_refused_and_named() {
    let etcd = etcd(1);
    let [one, two] = proxies(&etcd);
    add_user(&one, "anna").unwrap();
    eventually("both have it", || users(&two) == "anna");
    let key = "/tidegate/main/live/config";
    let good = etcd.ctl(0, &["get", "--print-value-only", key]).unwrap().trim().to_owned();
    let with = |from: &str, to: &str| {
        assert!(good.contains(from), "{good}");
        etcd.ctl(0, &["put", key, &good.replace(from, to)]).unwrap();
    };
    // Of a version to come.
    with("\"format\":1", "\"format\":2");
    eventually("it is told", || error(&two).contains("that this version does not know"));
    // An older revision than the one that this proxy has.
    with("\"number\":1", "\"number\":0");
    eventually("it is told", || error(&two).contains("the newer revision"));
    // No manifest at all, and one whose parts are not there.
    etcd.ctl(0, &["put", key, "{}"]).unwrap();
    eventually("it is told", || error(&two).contains("cannot be read"));
    let manifest = |number: u64, text: &str, parts: &str| {
        let cluster = good.split("\"cluster\":\"").nth(1).unwrap().split('"').next().unwrap();
        let rest = r#""author":"a","proxy":"p","time":1,"command":"c""#;
        format!(
            r#"{{"format":1,"cluster":"{cluster}","version":"9","number":{number},"id":"n{number}","sha256":"{}","bytes":{},"parts":["{parts}"],{rest}}}"#,
            sum(text),
            text.len()
        )
    };
    etcd.put(key, manifest(9, "x", &sum("x")).as_bytes()).unwrap();
    eventually("it is told", || error(&one).contains("revision 9: part") && error(&one).contains("is missing"));
    // A damaged part, and one with a variable of a version to come.
    let part = |text: &str| format!("/tidegate/main/parts/{}", sum(text));
    etcd.put(&part("y"), b"no zstd").unwrap();
    etcd.put(key, manifest(10, "y", &sum("y")).as_bytes()).unwrap();
    eventually("it is told", || error(&one).contains("is damaged"));
    let text = "mysql_variables = { from_the_future=1 }";
    etcd.put(&part(text), &zstd::bulk::compress(text.as_bytes(), 1).unwrap()).unwrap();
    etcd.put(key, manifest(11, text, &sum(text)).as_bytes()).unwrap();
    eventually("it is told", || error(&one).contains("from_the_future"));
    for proxy in [&one, &two] {
        assert_eq!((users(proxy), applied(proxy)), ("anna".to_owned(), 1));
        assert!(add_user(proxy, "bert").is_err());
    }
    // An order of an operator's takes what is there, once it can be read.
    etcd.ctl(0, &["del", "--prefix", "/tidegate/main/"]).unwrap();
    eventually("it is empty", || error(&one).contains("CONFIG SHARE"));
    order(&one, "CONFIG SHARE").unwrap();
    eventually("all is well", || error(&two).is_empty() && applied(&two) == applied(&one));
}

/// A client with write access below the prefix may name parts that unpack to far more than their size, any number of times.
#[test]
fn no_more_of_etcd_is_kept_than_is_allowed() {
    let etcd = etcd(1);
    let [one, two] = proxies(&etcd);
    add_user(&one, "anna").unwrap();
    eventually("both have it", || users(&two) == "anna");
    let peak = |proxy: &Tidegate| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", proxy.pid())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim().trim_end_matches(" kB").to_owned();
        peak.parse::<u64>().unwrap() >> 10
    };
    let before = peak(&two);
    let key = "/tidegate/main/live/config";
    let head: serde_json::Value = serde_json::from_str(etcd.ctl(0, &["get", "--print-value-only", key]).unwrap().trim()).unwrap();
    etcd.put("/tidegate/main/parts/bomb", &zstd::bulk::compress(&vec![b' '; 512 << 20], 1).unwrap()).unwrap();
    let small = "x".repeat(100_000);
    etcd.put(&format!("/tidegate/main/parts/{}", sum(&small)), &zstd::bulk::compress(small.as_bytes(), 1).unwrap()).unwrap();
    let too_large = |proxy: &Tidegate| {
        let metrics = get(proxy, "SHOW PROMETHEUS METRICS");
        metrics.lines().find_map(|line| line.strip_prefix("tidegate_config_too_large_total ")).unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(too_large(&two), 0);
    for (number, bytes, parts, why) in [
        (2, 1 << 20, vec!["bomb".to_owned()], "more than the declared 1048576 bytes"),
        (3, 60 << 20, vec!["bomb".to_owned(); 1_000], "more than the declared 62914560 bytes"),
        (4, 1 << 20, vec![sum(&small); 20_000], "more than the declared 1048576 bytes"),
        (5, 1 << 20, vec![sum(&small)], "less than declared"),
        (6, 1_u64 << 40, vec!["bomb".to_owned()], "admin-shared_config_max_bytes"),
    ] {
        let mut manifest = head.clone();
        for (name, value) in
            [("number", number.into()), ("id", number.to_string().into()), ("bytes", bytes.into()), ("parts", parts.into())]
        {
            manifest[name] = value;
        }
        etcd.put(key, manifest.to_string().as_bytes()).unwrap();
        for proxy in [&one, &two] {
            eventually("it is refused", || error(proxy).contains(&format!("revision {number}")) && error(proxy).contains(why));
        }
    }
    assert!(too_large(&one) > 0 && too_large(&two) > 0);
    let grown = peak(&two) - before;
    assert!(grown < 150, "{grown} MiB");
    // The limit holds for listed and watched keys too.
    etcd.put(key, head.to_string().as_bytes()).unwrap();
    eventually("all is well", || error(&two).is_empty());
    edit(&two, &["SET admin-shared_config_max_bytes = 1048576", "LOAD ADMIN VARIABLES TO RUNTIME"]);
    for n in 0..3 {
        etcd.put(&format!("/tidegate/main/live/orders/{n}"), &vec![b' '; 400_000]).unwrap();
    }
    eventually("they are refused", || error(&two).contains("has more than 1048576 bytes"));
    etcd.ctl(0, &["del", "--prefix", "/tidegate/main/live/orders/"]).unwrap();
    eventually("all is well", || error(&two).is_empty() && order(&two, "LOAD MYSQL USERS TO RUNTIME").is_ok());
    // A configuration that is too large is not published.
    let insert = "INSERT INTO mysql_query_rules (rule_id, match_digest) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n \
                  WHERE i < 20) SELECT i, HEX(ZEROBLOB(40000)) FROM n";
    edit(&two, &[insert]);
    let refused = order(&two, "LOAD MYSQL QUERY RULES TO RUNTIME").unwrap_err();
    assert!(refused.contains("the configuration has more than 1048576 bytes"), "{refused}");
}

#[test]
fn some_proxies_try_a_revision_before_the_others() {
    let etcd = etcd(1);
    let [one, two, three] = proxies(&etcd);
    let all = [&one, &two, &three];
    add_user(&one, "anna").unwrap();
    all_know(&all, 3);
    for proxy in all {
        eventually("all have it", || applied(proxy) == 1);
    }
    edit(&one, &["INSERT INTO mysql_users (username, password) VALUES ('bert', 'x')"]);
    assert!(order(&one, "CONFIG ROLLOUT TO 'nobody'").unwrap_err().contains("is not in stats_tidegate_proxies"));
    assert!(order(&one, "CONFIG ROLLOUT TO 100 PERCENT").is_err());
    order(&one, &format!("CONFIG ROLLOUT TO '{}'", name(&two))).unwrap();
    eventually("one tries it", || users(&two) == "anna,bert");
    assert_eq!((users(&one), users(&three)), ("anna".to_owned(), "anna".to_owned()));
    assert!(add_user(&three, "cleo").unwrap_err().contains("CONFIG PROMOTE or CONFIG ABORT"));
    assert_eq!(get(&one, "SELECT GROUP_CONCAT(wanted) FROM (SELECT wanted FROM stats_tidegate_proxies ORDER BY wanted)"), "1,1,2");
    order(&three, "CONFIG PROMOTE").unwrap();
    for proxy in all {
        eventually("all have it", || users(proxy) == "anna,bert" && applied(proxy) == 3);
    }
    // Aborted by hand, while the proxy that tries the change is being restarted.
    edit(&one, &["INSERT INTO mysql_users (username, password) VALUES ('dora', 'x')"]);
    order(&one, "CONFIG ROLLOUT TO 30 PERCENT").unwrap();
    let trying = || all.iter().filter(|proxy| users(proxy).contains("dora")).count();
    eventually("one tries it", || trying() == 1);
    order(&two, "CONFIG ABORT").unwrap();
    eventually("nobody has it", || trying() == 0 && all.iter().all(|proxy| applied(proxy) == 5));
}

/// Two proxies, of which the second one tries a revision.
fn trial(etcd: &Etcd) -> [Tidegate; 2] {
    let [one, two] = proxies(etcd);
    all_know(&[&one, &two], 2);
    order(&one, "CONFIG SHARE").unwrap();
    eventually("both have it", || applied(&two) == 1);
    edit(&one, &["INSERT INTO mysql_users (username, password) VALUES ('anna', 'x')"]);
    [one, two]
}

/// Its port is taken, or it would leave the shared configuration.
#[test]
fn a_trial_that_this_proxy_cannot_put_in_force_is_not_shared() {
    let etcd = etcd(1);
    let [one, two] = trial(&etcd);
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port();
    for (change, named) in [
        (format!("SET admin-restapi_enabled=1, admin-restapi_port={port}"), "admin-restapi_port: cannot listen on "),
        ("SET admin-shared_config_cluster='other'".to_owned(), "cannot change the place of the shared configuration"),
    ] {
        edit(&one, &[&change]);
        let refused = order(&one, &format!("CONFIG ROLLOUT TO '{}'", name(&one))).unwrap_err();
        assert!(refused.contains(named), "{refused}");
        edit(&one, &["SAVE ADMIN VARIABLES FROM RUNTIME"]);
    }
    assert_eq!(one.admin().unwrap().run("CONFIG HISTORY SHARED").unwrap().table().unwrap().len(), 1);
    assert_eq!((users(&one), users(&two)), (String::new(), String::new()));
    order(&one, &format!("CONFIG ROLLOUT TO '{}'", name(&one))).unwrap();
    assert_eq!(users(&one), "anna");
}

#[test]
fn a_trial_whose_proxy_is_gone_is_taken_back() {
    let etcd = etcd(1);
    let [one, two] = trial(&etcd);
    order(&one, &format!("CONFIG ROLLOUT TO '{}'", name(&two))).unwrap();
    eventually("it is tried", || users(&two) == "anna");
    two.kill9();
    // Its lease ends, and the revision with it.
    eventually("it is taken back", || applied(&one) == 3);
    assert!(one.log().contains("which tried the revision, is gone"));
    assert_eq!(users(&one), "");
}

#[test]
fn a_trial_that_a_proxy_refuses_is_taken_back() {
    let etcd = etcd(1);
    let [one, two] = trial(&etcd);
    // As a proxy of a version to come would publish it.
    let key = "/tidegate/main/live/config";
    let head = etcd.ctl(0, &["get", "--print-value-only", key]).unwrap().trim().to_owned();
    let text = "mysql_variables = { from_the_future=1 }";
    etcd.put(&format!("/tidegate/main/parts/{}", sum(text)), &zstd::bulk::compress(text.as_bytes(), 1).unwrap()).unwrap();
    let mut manifest: serde_json::Value = serde_json::from_str(&head).unwrap();
    let before = manifest.clone();
    let uuid = get(&two, "SELECT uuid FROM stats_tidegate_proxies WHERE is_this");
    manifest["rollout"] = serde_json::json!({ "to": [uuid], "before": before });
    for (name, value) in [
        ("number", 2.into()),
        ("id", "next".into()),
        ("sha256", sum(text).into()),
        ("bytes", text.len().into()),
        ("parts", vec![sum(text)].into()),
    ] {
        manifest[name] = value;
    }
    etcd.put(key, manifest.to_string().as_bytes()).unwrap();
    eventually("it is taken back", || applied(&one) == 3 && applied(&two) == 3);
    let by = one.admin().unwrap().run("CONFIG HISTORY SHARED").unwrap().table().unwrap();
    assert!(format!("{:?}", by[0]).contains("CONFIG ABORT"), "{by:?}");
    assert_eq!(users(&two), "");
}

#[test]
fn a_trial_with_more_errors_than_before_is_taken_back() {
    let etcd = etcd(1);
    let server = &Server::start(Flavor::Mariadb, &lab::Options::new()).unwrap();
    let [one, two] = std::array::from_fn(|_| builder(&etcd.endpoints()).backend(0, server).app_user().start().unwrap());
    all_know(&[&one, &two], 2);
    order(&one, "CONFIG SHARE").unwrap();
    eventually("both have it", || applied(&two) == 1);
    let mut client = two.connect_app().unwrap();
    for _ in 0..100 {
        client.run("SELECT 1").unwrap();
    }
    edit(&one, &["INSERT INTO mysql_query_rules (rule_id, active, match_digest, error_msg) VALUES (1, 1, '^SELECT', 'no')"]);
    order(&one, &format!("CONFIG ROLLOUT TO '{}'", name(&two))).unwrap();
    eventually("it is taken back", || {
        let _ = client.run("SELECT 1");
        applied(&one) == 3
    });
    let log = two.log();
    assert!(log.contains("of 100 statements fail"), "{log}");
    eventually("statements succeed again", || client.run("SELECT 1").is_ok());
}

#[test]
fn an_upgrade_keeps_its_place_among_the_proxies() {
    let etcd = etcd(1);
    let [one, mut two] = proxies(&etcd);
    add_user(&one, "anna").unwrap();
    eventually("both have it", || users(&two) == "anna");
    // Edits in memory that are based on an older revision are kept through an upgrade.
    edit(&two, &["INSERT INTO mysql_users (username, password) VALUES ('cleo', 'x')"]);
    add_user(&one, "bert").unwrap();
    eventually("both have it", || applied(&two) == 2);
    two.upgrade(None).unwrap();
    all_know(&[&one, &two], 2);
    let line = format!("/tidegate/main/live/proxies/{}", get(&two, "SELECT uuid FROM stats_tidegate_proxies WHERE is_this"));
    assert_eq!(etcd.ctl(0, &["del", &line]).unwrap().trim(), "1");
    all_know(&[&one, &two], 2);
    assert!(order(&two, "LOAD MYSQL USERS TO RUNTIME").unwrap_err().contains("CONFIG REBASE"));
    order(&two, "CONFIG REBASE").unwrap();
    eventually("etcd is reached", || order(&two, "LOAD MYSQL USERS TO RUNTIME").is_ok());
    eventually("both have it", || users(&one) == "anna,bert,cleo");
    two.stop().unwrap();
    eventually("who has stopped is gone", || get(&one, "SELECT COUNT(*) FROM stats_tidegate_proxies") == "1");
}

/// A primary and a replica behind two proxies that share a configuration.
fn before_servers(etcd: &Etcd, servers: &Replication) -> [Tidegate; 2] {
    servers.primary.sql("CREATE TABLE test.t(who INT, n INT, UNIQUE(who, n))").unwrap();
    servers.primary.sql("GRANT READ_ONLY ADMIN ON *.* TO monitor@'%'").unwrap();
    servers.wait_caught_up().unwrap();
    let [one, two] = std::array::from_fn(|_| {
        let builder = builder(&etcd.endpoints())
            .app_user()
            .variable("monitor_enabled", true)
            .variable("switchover_manages_read_only", true)
            .variable("switchover_repoints", false);
        let builder = builder.row("mysql_replication_hostgroups", &[("writer_hostgroup", 0.into()), ("reader_hostgroup", 1.into())]);
        builder.backend(0, &servers.primary).backend(1, &servers.replicas[0]).start().unwrap()
    });
    all_know(&[&one, &two], 2);
    order(&one, "CONFIG SHARE").unwrap();
    eventually("both have it", || applied(&two) == 1);
    [one, two]
}

#[test]
fn a_pause_and_a_drain_hold_for_all_proxies_and_for_those_that_come() {
    let etcd = etcd(1);
    let servers = Replication::start(Flavor::Mariadb, 1, &lab::Options::new()).unwrap();
    let [one, mut two] = before_servers(&etcd, &servers);
    let replica = servers.replicas[0].port();
    let held = |proxy: &Tidegate| get(proxy, "SELECT COUNT(*) FROM stats_tidegate_holds");
    let status =
        |proxy: &Tidegate| get(proxy, &format!("SELECT status FROM runtime_mysql_servers WHERE port = {replica} AND hostgroup_id = 1"));
    order(&one, "PAUSE HOSTGROUP 0").unwrap();
    order(&one, &format!("DRAIN SERVER '127.0.0.1:{replica}'")).unwrap();
    eventually("both hold", || held(&two) == "1" && held(&one) == "1");
    eventually("both drain", || status(&two) != "ONLINE" && status(&one) != "ONLINE");
    two.start_again(&[]).unwrap();
    eventually("who comes holds too", || held(&two) == "1");
    eventually("who comes drains too", || status(&two) != "ONLINE");
    order(&two, "RESUME HOSTGROUP 0").unwrap();
    order(&two, &format!("UNDRAIN SERVER '127.0.0.1:{replica}'")).unwrap();
    eventually("both go on", || held(&one) == "0" && held(&two) == "0");
    eventually("both use it", || status(&one) == "ONLINE" && status(&two) == "ONLINE");
    assert!(order(&one, "DRAIN SERVER 'nowhere:1'").is_err());
    assert_eq!(etcd.ctl(0, &["get", "--prefix", "--keys-only", "/tidegate/main/live/orders/"]).unwrap().trim(), "");
}

#[test]
fn a_switchover_of_one_proxy_is_waited_for_by_the_other() {
    let times: usize = std::env::var("LAB_ROLE_CHANGES").ok().and_then(|times| times.parse().ok()).unwrap_or(4);
    let etcd = etcd(1);
    let servers = Replication::start(Flavor::Mariadb, 1, &lab::Options::new()).unwrap();
    let proxies = before_servers(&etcd, &servers);
    let (stop, written, slowest) = (AtomicBool::new(false), AtomicUsize::new(0), Mutex::new([Duration::ZERO; 2]));
    thread::scope(|scope| {
        for (p, proxy) in proxies.iter().enumerate() {
            for who in 0..8 {
                let (stop, written, slowest) = (&stop, &written, &slowest);
                scope.spawn(move || {
                    let mut client = proxy.connect_app().unwrap();
                    for n in 0.. {
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                        let began = Instant::now();
                        client.run(format!("INSERT INTO t VALUES ({}, {n})", p * 100 + who)).unwrap_or_else(|error| panic!("{error}"));
                        written.fetch_add(1, Ordering::Relaxed);
                        let mut slowest = slowest.lock().unwrap();
                        slowest[p] = slowest[p].max(began.elapsed());
                    }
                });
            }
        }
        let (mut old, mut new) = (&servers.primary, &servers.replicas[0]);
        for turn in 0..times {
            let before = written.load(Ordering::Relaxed);
            eventually("clients write", || written.load(Ordering::Relaxed) > before + 100);
            let said = order(&proxies[turn % 2], &format!("SWITCHOVER HOSTGROUP 0 TO '127.0.0.1:{}' TIMEOUT 20000", new.port()));
            let said = said.unwrap_or_else(|why| {
                stop.store(true, Ordering::Relaxed);
                panic!("{why}")
            });
            println!("{said}");
            assert!(said.contains("other proxies wait too"), "{said}");
            let other = &proxies[(turn + 1) % 2];
            eventually("the other one knows", || {
                get(other, "SELECT GROUP_CONCAT(port) FROM runtime_mysql_servers WHERE hostgroup_id = 0 AND status = 'ONLINE'")
                    == new.port().to_string()
            });
            new.sql("STOP SLAVE").unwrap();
            lab::replication::follow(old, new).unwrap();
            std::mem::swap(&mut old, &mut new);
            wait::until("the new one follows", LIMIT, || (new.scalar("SELECT COUNT(*) FROM test.t").ok()?? != "0").then_some(())).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let rows = if times.is_multiple_of(2) { &servers.primary } else { &servers.replicas[0] }
        .scalar("SELECT COUNT(*) FROM test.t")
        .unwrap()
        .unwrap();
    assert_eq!(rows, written.load(Ordering::Relaxed).to_string(), "every write that was acknowledged is there, once");
    let [one, two] = *slowest.lock().unwrap();
    println!("{rows} writes over {times} switchovers; longest wait of a client at one proxy {one:?}, at the other {two:?}");
}

#[test]
fn a_proxy_that_cannot_wait_ends_the_switchover_of_another() {
    let etcd = etcd(1);
    let servers = Replication::start(Flavor::Mariadb, 1, &lab::Options::new()).unwrap();
    let [one, two] = before_servers(&etcd, &servers);
    let to = format!("SWITCHOVER HOSTGROUP 0 TO '127.0.0.1:{}' TIMEOUT 3000", servers.replicas[0].port());
    let mut client = two.connect_app().unwrap();
    client.run("SELECT GET_LOCK('mine', 1)").unwrap();
    let refused = order(&one, &to).unwrap_err();
    assert!(refused.contains(&name(&two)) && refused.contains("user_lock") && refused.contains("nothing had been changed"), "{refused}");
    client.run("SELECT RELEASE_LOCK('mine')").unwrap();
    // One that has stopped in the middle of whatever it did.
    two.signal(rustix::process::Signal::STOP);
    let began = Instant::now();
    let refused = order(&one, &to).unwrap_err();
    assert!(refused.contains("has not confirmed"), "{refused}");
    assert!(began.elapsed() < Duration::from_secs(4));
    eventually("its lease ends", || get(&one, "SELECT COUNT(*) FROM stats_tidegate_proxies") == "1");
    order(&one, &to).unwrap();
    two.signal(rustix::process::Signal::CONT);
    let mut client = two.connect_app().unwrap();
    eventually("the other one writes there", || client.run("INSERT INTO t VALUES (1, 1)").is_ok());
    assert_eq!(servers.replicas[0].scalar("SELECT COUNT(*) FROM test.t").unwrap().unwrap(), "1");
}

#[test]
fn many_rules_and_users_are_shared_and_a_change_moves_little() {
    let (rules, people): (usize, usize) = match std::env::var("LAB_LARGE") {
        Ok(_) => (10_000, 100_000),
        Err(_) => (2_000, 5_000),
    };
    let etcd = etcd(1);
    let [one, two] = proxies(&etcd);
    let mut admin = one.admin().unwrap();
    let numbers = |count: usize| format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})");
    let make = |admin: &mut Client, sql: String| admin.run(sql).map(drop).unwrap();
    make(
        &mut admin,
        format!(
            "INSERT INTO mysql_query_rules (rule_id, active, match_digest, destination_hostgroup) {} SELECT i, 1, '^SELECT ' || (i * 7919) || ' FROM t' || i, i % 10 FROM n",
            numbers(rules)
        ),
    );
    make(
        &mut admin,
        format!("INSERT INTO mysql_users (username, password) {} SELECT 'user' || i, 'pass' || (i * 104729) FROM n", numbers(people)),
    );
    let began = std::time::Instant::now();
    admin.run("CONFIG APPLY").unwrap();
    println!("published {rules} rules and {people} users after {:?}", began.elapsed());
    wait::until("the other one has it", LIMIT * 4, || (applied(&two) == 1).then_some(())).unwrap();
    println!("in force on the other one after {:?}", began.elapsed());
    let count = |what: &str| get(&two, &format!("SELECT COUNT(*) FROM {what}"));
    assert_eq!((count("runtime_mysql_query_rules"), count("mysql_users")), (rules.to_string(), people.to_string()));
    let parts = || {
        etcd.ctl(0, &["get", "--prefix", "--keys-only", "/tidegate/main/parts/"]).unwrap().lines().filter(|line| !line.is_empty()).count()
    };
    let before = parts();
    admin.run("UPDATE mysql_query_rules SET destination_hostgroup = 11 WHERE rule_id = 77").unwrap();
    let began = std::time::Instant::now();
    admin.run("LOAD MYSQL QUERY RULES TO RUNTIME").unwrap();
    wait::until("the other one has it", LIMIT * 4, || (applied(&two) == 2).then_some(())).unwrap();
    println!("one changed rule is everywhere after {:?}; {} of {} parts are new", began.elapsed(), parts() - before, before);
    assert!(parts() - before <= 3 && before >= 3, "{} of {before}", parts() - before);
}
