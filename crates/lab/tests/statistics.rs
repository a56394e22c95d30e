//! Counters while real clients talk to a real server, read inside the process: the proxy runs in this one.

#![allow(clippy::unwrap_used, clippy::expect_used)] // tests may panic

#[path = "common/in_process.rs"]
mod in_process;

use std::collections::BTreeMap;
use std::fs;
use std::ops::Deref;
use std::thread;
use std::time::Duration;

use in_process::InProcess;
use lab::client::Param;
use lab::tidegate::Builder;
use lab::{Client, ConnectOptions, Mariadb, Options, Server, Tidegate, wait};
use model::control::{DataPlane, Flush};
use model::stats::{Reading, StatsSource, Value};

/// A data plane with two workers.
struct Bed(InProcess);

impl Bed {
    fn start(server: &Server) -> Self {
        Self::start_with(|b| b.backend(0, server))
    }

    fn start_with(more: impl FnOnce(Builder) -> Builder) -> Self {
        let builder = more(Tidegate::builder())
            .app_user()
            .variable("threads", 2)
            .variable("long_query_time", 200)
            .variable("show_processlist_extended", 1)
            .variable("eventslog_filename", "queries")
            .variable("eventslog_format", 2)
            .variable("eventslog_default_log", 1)
            .variable("auditlog_filename", "audit");
        Self(InProcess::start("statistics", builder, None))
    }

    fn connect(&self) -> Client {
        Client::connect(&ConnectOptions::tcp(&self.address, "app", "app-pass").database("test")).unwrap()
    }

    /// Rows of a table, by their columns' names.
    fn rows(&self, name: &str, reading: Reading) -> Vec<BTreeMap<&'static str, String>> {
        let table = self.control.tables().into_iter().find(|t| t.name == name).unwrap();
        let text = |value: Value| match value {
            Value::Null => "NULL".to_owned(),
            Value::Integer(n) => n.to_string(),
            Value::Text(text) => text,
        };
        let named = |row: Vec<Value>| table.columns.iter().map(|c| c.name).zip(row.into_iter().map(text)).collect();
        self.control.rows(table, reading).into_iter().map(named).collect()
    }

    /// The one row for which `fits`.
    fn row(&self, name: &str, fits: impl Fn(&BTreeMap<&'static str, String>) -> bool) -> BTreeMap<&'static str, String> {
        let rows = self.rows(name, Reading::Keep);
        let found: Vec<_> = rows.iter().filter(|row| fits(row)).cloned().collect();
        assert_eq!(found.len(), 1, "{name}: {rows:#?}");
        found.into_iter().next().unwrap()
    }

    fn global(&self, name: &str) -> u64 {
        self.row("stats_mysql_global", |row| row["Variable_Name"] == name)["Variable_Value"].parse().unwrap()
    }

    fn log(&self, name: &str) -> Vec<String> {
        let files = fs::read_dir(&self.dir).unwrap().map(|e| e.unwrap().path());
        let mut files: Vec<_> = files.filter(|p| p.file_name().unwrap().to_str().unwrap().starts_with(name)).collect();
        files.sort();
        files.iter().flat_map(|f| fs::read_to_string(f).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()).collect()
    }
}

impl Deref for Bed {
    type Target = InProcess;

    fn deref(&self) -> &InProcess {
        &self.0
    }
}

#[test]
fn what_clients_do_is_counted_where_it_happens() {
    let server = Mariadb::start(&Options::new()).unwrap();
    server.sql("CREATE TABLE test.t (id INT PRIMARY KEY)").unwrap();
    let proxy = Bed::start(&server);
    let mut clients = [proxy.connect(), proxy.connect()];

    // Text: two workers, one digest.
    for n in 0..6_usize {
        clients[n % 2].query(format!("INSERT INTO t VALUES ({n})")).unwrap();
    }
    let insert = proxy.row("stats_mysql_query_digest", |row| row["digest_text"].starts_with("INSERT"));
    let shown =
        ["hostgroup", "schemaname", "username", "digest_text", "count_star", "sum_rows_affected", "sum_rows_sent"].map(|c| &*insert[c]);
    assert_eq!(shown, ["0", "test", "app", "INSERT INTO t VALUES (?)", "6", "6", "0"]);
    let (least, most, sum): (u64, u64, u64) =
        (insert["min_time"].parse().unwrap(), insert["max_time"].parse().unwrap(), insert["sum_time"].parse().unwrap());
    assert!(0 < least && least <= most && most <= sum);

    // Prepared: the same row for both clients, and the list of statements.
    let statements = clients.each_mut().map(|client| client.prepare("SELECT id FROM t WHERE id < ?").unwrap());
    for (client, statement) in clients.iter_mut().zip(&statements) {
        client.execute(statement, &[Param::UInt(4)]).unwrap();
    }
    let select = proxy.row("stats_mysql_query_digest", |row| row["digest_text"].starts_with("SELECT id"));
    assert_eq!((&*select["count_star"], &*select["sum_rows_sent"]), ("2", "8"));
    let listed = proxy.rows("stats_mysql_prepared_statements_info", Reading::Keep);
    let held: u64 = listed.iter().map(|row| row["ref_count_client"].parse::<u64>().unwrap()).sum();
    assert!(
        held == 2 && listed.iter().all(|row| row["digest"] == select["digest"] && row["num_params"] == "1" && row["num_columns"] == "1")
    );
    assert_eq!((proxy.global("Stmt_Client_Active_Total"), proxy.global("Stmt_Client_Active_Unique")), (2, 1));

    // Errors, commands, slow statements.
    assert!(clients[0].query("INSERT INTO t VALUES (0)").is_err() || proxy.rows("stats_mysql_errors", Reading::Keep).len() == 1);
    let error = proxy.row("stats_mysql_errors", |row| row["errno"] == "1062");
    assert!(error["username"] == "app" && error["last_error"].starts_with("Duplicate entry"), "{error:?}");
    let inserts = proxy.row("stats_mysql_commands_counters", |row| row["Command"] == "INSERT");
    assert_eq!(inserts["Total_cnt"], "7");
    clients[0].query("SELECT SLEEP(0.3)").unwrap();
    assert_eq!(proxy.global("Slow_queries"), 1);

    // Statements with several results: all of them count.
    let both = "UPDATE t SET id = id + 100; SELECT id FROM t; SELECT id FROM t WHERE id < 102; UPDATE t SET id = id - 100";
    clients[0].set_option(0).unwrap();
    clients[0].query(both).unwrap();
    clients[0].set_option(1).unwrap();
    let several = proxy.row("stats_mysql_query_digest", |row| row["digest_text"].starts_with("UPDATE"));
    assert_eq!((&*several["sum_rows_affected"], &*several["sum_rows_sent"]), ("12", "8"));
    let names: Vec<_> = proxy.rows("stats_mysql_global", Reading::Keep).into_iter().map(|mut row| row.remove("Variable_Name")).collect();
    assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len(), "a name is there twice: {names:?}");

    // Servers.
    let pool = proxy.row("stats_mysql_connection_pool", |_| true);
    let number = |name: &str| pool[name].parse::<u64>().unwrap();
    assert_eq!((number("Queries"), number("ConnERR"), &*pool["status"]), (11, 0, "ONLINE"));
    assert!(number("ConnOK") >= 1 && number("ConnFree") >= 1 && number("ConnUsed") == 0 && number("MaxConnUsed") >= 1);
    assert!(number("Bytes_data_sent") > 300 && number("Bytes_data_recv") > 100);
    assert_eq!(proxy.rows("stats_mysql_free_connections", Reading::Keep).len() as u64, number("ConnFree"));
    let latency = proxy.row("stats_tidegate_latency", |row| row["kind"] == "read");
    assert!(latency["count"] == "3" && latency["max_us"].parse::<u64>().unwrap() >= 300_000, "{latency:?}");

    // Pins: the user, the reason and the statement.
    clients[1].query("BEGIN").unwrap();
    let pin = proxy.row("stats_tidegate_pins", |_| true);
    assert_eq!((&*pin["reason"], &*pin["user"], &*pin["digest_text"]), ("transaction", "app", "BEGIN"));
    let summary = proxy.row("stats_tidegate_pins_summary", |row| row["reason"] == "transaction");
    assert_eq!((&*summary["sessions"], &*summary["began_total"]), ("1", "1"));
    assert_eq!(proxy.global("Active_Transactions"), 1);
    clients[1].query("COMMIT").unwrap();
    assert!(proxy.rows("stats_tidegate_pins", Reading::Keep).is_empty());

    // The process list, while a statement runs.
    let sessions = proxy.rows("stats_mysql_processlist", Reading::Keep);
    assert!(sessions.len() == 2 && sessions.iter().all(|row| row["command"] == "Sleep" && row["db"] == "test"), "{sessions:#?}");
    let [mut first, second] = clients;
    let busy = thread::spawn(move || first.query("SELECT SLEEP(20) /* long */").map(|_| first));
    let running = wait::until("the statement to be listed", Duration::from_secs(10), || {
        proxy.rows("stats_mysql_processlist", Reading::Keep).into_iter().find(|row| row["info"].contains("SLEEP(20)"))
    })
    .unwrap();
    assert_eq!((&*running["command"], &*running["hostgroup"], &*running["user"]), ("Query", "0", "app"));
    assert!(running["srv_port"] != "NULL" || running["srv_host"].starts_with('/'));
    assert!(running["extended_info"].contains("backend_thread_id"));
    assert!(proxy.control.kill_session(running["SessionID"].parse().unwrap()));
    let _ = busy.join().unwrap();

    // Logs.
    drop(second);
    assert!(Client::connect(&ConnectOptions::tcp(&proxy.address, "app", "wrong")).is_err());
    assert_eq!(proxy.global("Access_Denied_Wrong_Password"), 1);
    wait::until("the sessions to be over", Duration::from_secs(10), || (proxy.global("Client_Connections_connected") == 0).then_some(()))
        .unwrap();
    proxy.control.flush(Flush::Logs).unwrap();
    let queries: Vec<serde_json::Value> = proxy.log("queries.").iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let logged = |event: &str| queries.iter().filter(|q| q["event"] == event).count();
    assert_eq!((logged("COM_QUERY"), logged("COM_STMT_PREPARE"), logged("COM_STMT_EXECUTE")), (12, 2, 2));
    assert!(queries.iter().any(|q| q["query"] == both && q["rows_affected"] == 12 && q["rows_sent"] == 8));
    assert!(queries.iter().any(|q| q["digest"] == *insert["digest"] && q["rows_affected"] == 1 && q["hostgroup_id"] == 0));
    let audit: Vec<serde_json::Value> = proxy.log("audit.").iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events = |event: &str| audit.iter().filter(|a| a["event"] == event).count();
    assert_eq!((events("MySQL_Client_Connect_OK"), events("MySQL_Client_Connect_ERR"), events("MySQL_Client_Close")), (2, 1, 2));
    let refused = audit.iter().find(|a| a["event"] == "MySQL_Client_Connect_ERR").unwrap();
    assert!(refused["username"] == "app" && refused["extra_info"].as_str().unwrap().contains("Access denied"));

    // Reset.
    assert!(!proxy.rows("stats_mysql_query_digest", Reading::Reset).is_empty());
    assert!(proxy.rows("stats_mysql_query_digest", Reading::Keep).is_empty());
}

/// A refused login is a row: of the user, or without a name where there is no such user.
#[test]
fn refused_logins_are_counted_by_user() {
    let proxy = Bed::start_with(|b| b);
    let fails = |user: &str| Client::connect(&ConnectOptions::tcp(&proxy.address, user, "wrong")).is_err();
    assert!(fails("app") && fails("app") && fails("stranger") && fails("another"));
    let rows = proxy.rows("stats_mysql_errors", Reading::Keep);
    let columns = ["hostgroup", "hostname", "errno", "count_star", "username", "client_address"];
    let mut found: Vec<_> = rows.iter().map(|row| columns.map(|column| &*row[column])).collect();
    found.sort_unstable();
    assert_eq!(found, [["0", "", "1045", "2", "", "127.0.0.1"], ["0", "", "1045", "2", "app", "127.0.0.1"]], "{rows:#?}");
    // Two workers saw them in the same second: either was last.
    let is_last = |name: &str| rows.iter().any(|row| row["last_error"].contains(&format!("'{name}'@'127.0.0.1'")));
    assert!(is_last("another") || is_last("stranger"), "{rows:#?}");
}

/// Statements that the proxy answers itself are counted too, without a server, and are in the query log.
#[test]
fn errors_of_the_proxy_are_counted() {
    let server = Mariadb::start(&Options::new()).unwrap();
    server.sql("CREATE TABLE test.t (id INT PRIMARY KEY)").unwrap();
    let proxy = Bed::start_with(|b| {
        let refused = [("rule_id", 1.into()), ("active", 1.into()), ("match_digest", "refused".into()), ("error_msg", "not here".into())];
        let away = [("rule_id", 2.into()), ("active", 1.into()), ("match_digest", "nowhere".into()), ("destination_hostgroup", 9.into())];
        let slow = [("rule_id", 3.into()), ("active", 1.into()), ("match_digest", "slow".into()), ("timeout", 200.into())];
        b.backend(0, &server)
            .row("mysql_query_rules", &refused)
            .row("mysql_query_rules", &away)
            .row("mysql_query_rules", &slow)
            .variable("connect_timeout_server_max", 300)
    });
    let mut client = proxy.connect();
    let mut fails = |sql: &str| client.query(sql).unwrap().err().unwrap().code;
    assert_eq!(fails("SELECT 1 AS refused"), 1148);
    assert_eq!(fails("SELECT 1 AS refused"), 1148);
    assert_eq!(fails("SELECT 1 AS nowhere"), 9001);
    assert_eq!(fails("SELECT SLEEP(5) AS slow"), 1907);
    assert_eq!(fails("INSERT INTO t VALUES (1, 2)"), 1136);
    assert_eq!(fails("SELECT 1 FROM missing"), 1146);
    let mut prepares = |sql: &str| client.prepare(sql).is_err();
    assert!(prepares("SELECT 1 AS refused") && prepares("SELECT 2 FROM missing") && prepares("SELECT 2 AS nowhere"));

    let rows = proxy.rows("stats_mysql_errors", Reading::Keep);
    let columns = ["hostgroup", "errno", "count_star", "username", "client_address", "schemaname"];
    let mut own: Vec<_> = rows.iter().filter(|row| row["hostname"].is_empty()).map(|row| columns.map(|c| &*row[c])).collect();
    own.sort_unstable();
    let wanted = [["0", "1148", "3", "app", "127.0.0.1", "test"], ["9", "9001", "2", "app", "127.0.0.1", "test"]];
    assert_eq!(own, wanted, "{rows:#?}");
    assert!(
        rows.iter().any(|row| row["errno"] == "9001" && row["last_error"].contains("the hostgroup has no server") && row["port"] == "0")
    );
    let of_server =
        |errno: &str| rows.iter().find(|row| row["errno"] == errno && !row["hostname"].is_empty()).map(|row| &*row["count_star"]);
    assert_eq!([of_server("1136"), of_server("1146"), of_server("1907")], [Some("1"), Some("2"), Some("1")], "{rows:#?}");
    let metrics = proxy.control.metrics();
    let errors = metrics.iter().find(|m| m.name == "proxysql_mysql_error_total").unwrap();
    let label = |sample: &model::stats::Sample, name| sample.labels.iter().find(|l| l.0 == name).unwrap().1.clone();
    assert!(errors.samples.iter().any(|s| label(s, "code") == "9001" && label(s, "hostgroup") == "9" && s.value == 2.0), "{errors:#?}");

    proxy.control.flush(Flush::Logs).unwrap();
    let queries: Vec<serde_json::Value> = proxy.log("queries.").iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let logged = |code: u64| queries.iter().filter(|q| q["errno"] == code && !q["error"].as_str().unwrap().is_empty()).count();
    assert_eq!([1148, 9001, 1907, 1136, 1146].map(logged), [3, 2, 1, 1, 2], "{queries:#?}");
    assert_eq!(queries.iter().filter(|q| q["errno"].is_null()).count(), 0);
}

/// A hostgroup that may open one connection a second: a waiting session is shown with this reason, and its error names it.
#[test]
fn a_throttle_is_named_by_those_whom_it_keeps_waiting() {
    let server = Mariadb::start(&Options::new()).unwrap();
    let proxy = Bed::start_with(|b| {
        b.backend(0, &server).variable("throttle_connections_per_sec_to_hostgroup", 1).variable("connect_timeout_server_max", 2500)
    });
    let [mut holder, mut waiter] = [proxy.connect(), proxy.connect()];
    holder.query("BEGIN").unwrap();
    let mut others: Vec<Client> = (0..4).map(|_| proxy.connect()).collect();
    for other in &mut others {
        other.send_query("BEGIN").unwrap();
    }
    let asked = thread::spawn(move || waiter.query("BEGIN").unwrap().err().cloned());
    wait::until("the one that waits to be listed", Duration::from_secs(2), || {
        let rows = proxy.rows("stats_mysql_processlist", Reading::Keep);
        rows.iter().any(|row| row["command"] == "Connect" && row["hostgroup"] == "0").then_some(())
    })
    .unwrap();
    let mut errors: Vec<_> = asked.join().unwrap().into_iter().collect();
    for other in &mut others {
        errors.extend(other.recv_reply(lab::client::Encoding::Text).unwrap().err().cloned());
    }
    assert!(!errors.is_empty());
    for error in errors {
        let text = error.to_lab_error().to_string();
        assert!(error.code == 9001 && text.contains("the proxy opens only 1 connections a second"), "{text}");
    }
    assert!(proxy.global("Server_Connections_delayed") >= 1);
}

/// Each pin has its own beginning and statement.
#[test]
fn each_pin_tells_how_it_began() {
    let server = Mariadb::start(&Options::new()).unwrap();
    let proxy = Bed::start(&server);
    let mut client = proxy.connect();
    let pin = |reason: &str| proxy.row("stats_tidegate_pins", |row| row["reason"] == reason);
    let age = |reason: &str| pin(reason)["since_ms"].parse::<u64>().unwrap();
    client.query("CREATE TEMPORARY TABLE tmp (a INT)").unwrap();
    wait::until("the table to be old", Duration::from_secs(10), || (age("temporary_table") >= 1000).then_some(())).unwrap();
    client.query("SELECT GET_LOCK('x', 1)").unwrap();
    wait::until("the lock to be older", Duration::from_secs(10), || (age("user_lock") >= 500).then_some(())).unwrap();
    client.query("BEGIN").unwrap();
    let rows = proxy.rows("stats_tidegate_pins", Reading::Keep);
    let ages: Vec<u64> = rows.iter().map(|row| row["since_ms"].parse().unwrap()).collect();
    let [transaction, table, lock] = ages[..] else { panic!("{rows:#?}") };
    assert!(transaction + 300 < lock && lock + 700 < table, "{rows:#?}");
    let texts = ["temporary_table", "user_lock", "transaction"].map(|reason| pin(reason)["digest_text"].clone());
    assert_eq!(texts, ["CREATE TEMPORARY TABLE tmp (a INT)", "SELECT GET_LOCK(?,?)", "BEGIN"]);
    client.query("DROP TEMPORARY TABLE tmp").unwrap();
    assert_eq!(proxy.rows("stats_tidegate_pins", Reading::Keep).len(), 2);
    let rows = proxy.rows("stats_tidegate_pins_summary", Reading::Keep);
    let longest = |reason: &str| rows.iter().find(|row| row["reason"] == reason).unwrap()["longest_ms"].parse::<u64>().unwrap();
    assert!(longest("transaction") + 300 < longest("user_lock") && longest("temporary_table") == 0);
}

/// A rule's time limit counts from when the statement may run.
#[test]
fn a_delay_is_not_part_of_the_time_limit() {
    let server = Mariadb::start(&Options::new()).unwrap();
    let proxy = Bed::start_with(|b| {
        let rule =
            [("rule_id", 1.into()), ("active", 1.into()), ("match_digest", "late".into()), ("delay", 900.into()), ("timeout", 300.into())];
        b.backend(0, &server).row("mysql_query_rules", &rule)
    });
    let mut client = proxy.connect();
    assert!(client.query("SELECT 1 AS late").unwrap().err().is_none());
    assert_eq!(client.query("SELECT SLEEP(5) AS late").unwrap().err().unwrap().code, 1907);
}

/// Passwords in statements are not written down, nor a server's quotes of such statements; a schema appears as it is entered.
#[test]
fn what_logs_and_tables_leave_out() {
    let server = Mariadb::start(&Options::new()).unwrap();
    let proxy = Bed::start_with(|b| b.backend(0, &server));
    let mut client = proxy.connect();
    for sql in [
        "CREATE USER u1 IDENTIFIED BY 'S3cret'",
        "SET PASSWORD FOR nobody = PASSWORD('S3cret')",
        "START SLAVE USER='x' PASSWORD='S3cret'",
        "CREATE USER u2 IDENTIFIED BY 'S3cret' oops 'S3cret'",
    ] {
        let _ = client.query(sql).unwrap();
    }
    let _ = client.prepare("CREATE USER u5 IDENTIFIED BY 'S3cret'").unwrap();
    let listed = proxy.row("stats_mysql_prepared_statements_info", |_| true);
    assert_eq!(listed["query"], "CREATE USER u5 IDENTIFIED BY ?");
    let errors = proxy.rows("stats_mysql_errors", Reading::Keep);
    assert!(errors.iter().any(|row| row["errno"] == "1064" && row["last_error"].ends_with("near '...' at line 1")), "{errors:#?}");
    assert!(!format!("{errors:?}").contains("S3cret"), "{errors:#?}");
    for schema in ["information_schema", "test"] {
        client.init_db(schema).unwrap().ok().unwrap();
    }
    // A statement is logged after its answer, and before the next command.
    client.ping().unwrap();
    proxy.control.flush(Flush::Logs).unwrap();
    let queries = proxy.log("queries.");
    assert!(queries.len() == 5 && queries.iter().all(|line| !line.contains("S3cret") && line.contains('?')), "{queries:#?}");
    let audit: Vec<serde_json::Value> = proxy.log("audit.").iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let entered: Vec<_> = audit.iter().filter(|a| a["event"] == "MySQL_Client_Init_DB").map(|a| a["schemaname"].clone()).collect();
    assert_eq!(entered, ["information_schema", "test"]);
}
