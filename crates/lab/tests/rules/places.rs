//! Pins keep a connection, not statements: state stays in one hostgroup, while other statements go where rules send them.

use super::common::{LIMIT, Peer};
use super::{hostgroup, proxy, servers, sessions};
use lab::client::{Encoding, Execution, Outcome, Param, ResultSet};
use lab::fault::Relay;
use lab::tidegate::Setting;
use lab::{Client, ConnectOptions, Tidegate, wait};
use wire::command::Command;

const SPLIT: (&str, &str) = ("attributes", r#"{"read_write_split": {"writer": 1, "reader": 2}}"#);

/// A table that is on both servers, empty.
fn table(name: &str) {
    for server in servers() {
        server.sql(&format!("CREATE OR REPLACE TABLE test.{name} (n INT)")).unwrap();
    }
}

/// How many rows each server has of it.
fn rows(name: &str) -> [String; 2] {
    [0, 1].map(|server| servers()[server].scalar(&format!("SELECT COUNT(*) FROM test.{name}")).unwrap().unwrap())
}

fn split(more: &[(&str, Setting)]) -> Tidegate {
    let [one, two] = servers();
    let builder = Tidegate::builder().backend(1, one).backend(2, two).user_with("app", "app-pass", 1, &[(SPLIT.0, SPLIT.1.into())]);
    more.iter().fold(builder, |builder, (name, value)| builder.variable(name, value.clone())).start().unwrap()
}

fn pins(proxy: &Tidegate) -> String {
    let sql =
        "SELECT COALESCE(GROUP_CONCAT(hostgroup || reason), '') FROM (SELECT hostgroup, reason FROM stats_tidegate_pins ORDER BY 1, 2)";
    proxy.admin().unwrap().scalar(sql).unwrap().unwrap()
}

/// Without multiplexing a session has a connection of its own in each hostgroup, and statements go where they belong.
#[test]
fn without_multiplexing_a_split_session_writes_to_the_writer() {
    table("own_place");
    let proxy = split(&[("multiplexing", false.into())]);
    for (n, mut peer) in (1..).zip(sessions(&proxy)) {
        let mut ids = Vec::new();
        for _ in 0..3 {
            peer.exec("SELECT n FROM own_place");
            peer.exec("INSERT INTO own_place VALUES (1)");
            ids.push(peer.get("SELECT CONNECTION_ID() + 0"));
        }
        assert_eq!(rows("own_place"), [(3 * n).to_string(), "0".into()]);
        ids.dedup();
        assert_eq!(ids.len(), 1, "{ids:?}");
        assert_eq!(pins(&proxy), "1multiplexing_off,2multiplexing_off");
        drop(peer);
        wait::until("its connections to be free", LIMIT, || pins(&proxy).is_empty().then_some(())).unwrap();
    }
}

/// A statement that begins while a read-only transaction is open commits that transaction, and may write.
#[test]
fn what_follows_a_transaction_that_reads_is_not_drawn_to_the_reader() {
    table("after_reading");
    let ways: [(&[&str], &[&str]); 3] = [
        (&["BEGIN"], &["COMMIT"]),
        (&["SAVEPOINT one", "START TRANSACTION READ WRITE"], &["ROLLBACK"]),
        (&["SET completion_type = 1", "begin  work;"], &["COMMIT AND NO CHAIN"]),
    ];
    let proxy = split(&[]);
    for (begins, ends) in ways {
        for mut peer in sessions(&proxy) {
            peer.exec("START TRANSACTION READ ONLY");
            assert_eq!(hostgroup(&mut peer, "SELECT @@port"), 2);
            let before = rows("after_reading")[1].clone();
            peer.exec_all(begins);
            peer.exec("INSERT INTO after_reading VALUES (1)");
            assert_eq!(peer.get("SELECT ROW_COUNT()"), "1");
            peer.exec_all(ends);
            assert_eq!(rows("after_reading")[1], before, "{begins:?}");
            peer.exec("INSERT INTO after_reading VALUES (2)");
            assert_eq!(pins(&proxy), "", "{begins:?}");
        }
    }
    assert_eq!(rows("after_reading"), ["10", "0"]);
    let open = "SELECT COUNT(*) FROM information_schema.innodb_trx";
    wait::until_transactions("no transaction to be open", LIMIT, || (servers()[1].scalar(open).unwrap()? == "0").then_some(())).unwrap();
}

/// State that such a transaction left stays on its connection, and a refusal by the server ends nothing.
#[test]
fn a_transaction_that_reads_keeps_what_it_has() {
    table("kept_reading");
    let proxy = split(&[]);
    let reads = ["START TRANSACTION READ ONLY", "SELECT n FROM kept_reading"];
    let [mut text, mut binary] = sessions(&proxy);
    for peer in [&mut text, &mut binary] {
        peer.exec_all(&reads);
        peer.exec("SELECT 5 INTO @left");
        peer.exec("BEGIN");
        assert_eq!(peer.get("SELECT @left"), "5");
        peer.exec("ROLLBACK");
        peer.exec_all(&reads);
        text_prepared(peer);
        peer.exec("ROLLBACK");
    }
    text.exec_all(&reads);
    assert_eq!(text.fails("BEGIN tran"), 1064);
    assert_eq!(text.fails("INSERT INTO kept_reading VALUES (1)"), 1792, "it is open still");
    assert_eq!(text.fails("XA START 'x'"), 1400);
    text.exec_all(&["COMMIT", "INSERT INTO kept_reading VALUES (2)"]);
    assert_eq!(text.fails("XA COMMIT 'nobodys'"), 1397);
    assert_eq!(pins(&proxy), "", "what is refused begins nothing");
    text.exec_all(&reads);
    assert_eq!(text.fails("BEGIN \u{a0}"), 1064);
    assert_eq!(text.fails("INSERT INTO kept_reading VALUES (1)"), 1792);
    text.exec_all(&["ROLLBACK", "SET sql_mode = 'ORACLE'"]);
    text.exec_all(&reads);
    assert_eq!(text.fails("BEGIN"), 1064);
    assert_eq!(text.fails("INSERT INTO kept_reading VALUES (1)"), 1792);
    text.exec("ROLLBACK");
    assert_eq!(rows("kept_reading"), ["1", "0"]);
}

/// PREPARE, BEGIN, EXECUTE.
fn text_prepared(peer: &mut Peer) {
    peer.exec_all(&["PREPARE kept FROM 'SELECT 7'", "BEGIN"]);
    assert_eq!(peer.get("EXECUTE kept"), "7");
    peer.exec("DEALLOCATE PREPARE kept");
}

#[test]
fn a_pin_of_a_rule_keeps_the_connection_of_its_hostgroup() {
    table("ruled_place");
    let reads = [("match_digest", "^SELECT".into()), ("destination_hostgroup", 2.into()), ("multiplex", 0.into()), ("apply", 1.into())];
    let proxy = proxy(&[&reads]).start().unwrap();
    let [mut peer, _] = sessions(&proxy);
    let id = peer.get("SELECT CONNECTION_ID() + 0");
    peer.exec("INSERT INTO ruled_place VALUES (1)");
    peer.exec_all(&["BEGIN", "INSERT INTO ruled_place VALUES (2)"]);
    assert_eq!(hostgroup(&mut peer, "SELECT @@port"), 1, "a transaction stays where it is");
    peer.exec("COMMIT");
    assert_eq!(rows("ruled_place"), ["2", "0"]);
    assert_eq!(peer.get("SELECT CONNECTION_ID() + 0"), id);
}

/// A pin to one shard sends no statement of another shard there.
#[test]
fn what_is_for_another_shard_goes_there() {
    table("shard2");
    let shard = [("match_digest", "shard2".into()), ("destination_hostgroup", 2.into()), ("apply", 1.into())];
    let reads = [("match_digest", "^SELECT @@port".into()), ("destination_hostgroup", 2.into()), ("apply", 1.into())];
    let proxy = proxy(&[&shard, &reads]).start().unwrap();
    let cases: [(&str, &str, &str); 4] = [
        ("SELECT GET_LOCK('place', 0)", "user_lock", "SELECT RELEASE_LOCK('place')"),
        ("CREATE TEMPORARY TABLE left_here (n INT)", "temporary_table", "DROP TEMPORARY TABLE left_here"),
        ("PREPARE left_here FROM 'SELECT 1'", "text_prepare", "DEALLOCATE PREPARE left_here"),
        ("EXECUTE IMMEDIATE 'SET @here = 1'", "session_state", ""),
    ];
    for (n, (begins, reason, ends)) in (1..).zip(cases) {
        let mut peer = Peer::through(&proxy, Encoding::Text);
        peer.exec("INSERT INTO shard2 VALUES (0)");
        peer.exec(begins);
        let id = peer.get("SELECT CONNECTION_ID() + 0");
        peer.exec("INSERT INTO shard2 VALUES (1)");
        assert_eq!(rows("shard2"), ["0".into(), (2 * n).to_string()], "{begins}");
        assert_eq!(pins(&proxy), format!("1{reason}"), "{begins}");
        assert_eq!(hostgroup(&mut peer, "SELECT @@port"), 2, "{begins}");
        assert_eq!(peer.get("SELECT CONNECTION_ID() + 0"), id, "{begins}: what was left is kept");
        if !ends.is_empty() {
            peer.exec("SELECT * FROM shard2");
            peer.exec(ends);
            wait::until("the pin to end", LIMIT, || pins(&proxy).is_empty().then_some(())).unwrap();
        }
    }
}

/// A statement that names a temporary table goes to it, whatever rules say.
#[test]
fn a_temporary_table_draws_statements() {
    table("not_drawn");
    let reads = [("match_digest", "^SELECT".into()), ("destination_hostgroup", 2.into()), ("apply", 1.into())];
    let proxy = proxy(&[&reads]).start().unwrap();
    for mut peer in sessions(&proxy) {
        peer.exec("CREATE TEMPORARY TABLE drawn (n INT)");
        peer.exec("INSERT INTO drawn VALUES (7)");
        assert_eq!(hostgroup(&mut peer, "SELECT @@port"), 2);
        assert_eq!(peer.get("SELECT n FROM `drawn`"), "7");
        assert_eq!(hostgroup(&mut peer, "SELECT @@port, 'drawn'"), 2, "that is no name");
        assert_eq!(peer.get("SELECT COUNT(*) FROM not_drawn USE KEY (), drawn"), "0");
        peer.exec("ALTER TABLE drawn RENAME TO other");
        assert_eq!(peer.get("SELECT n FROM other"), "7");
        peer.reset_connection().unwrap().check().unwrap();
        assert_eq!(peer.fails("SELECT n FROM other"), 1146);
        wait::until("the pin to end", LIMIT, || pins(&proxy).is_empty().then_some(())).unwrap();
    }
}

/// COM_SET_OPTION holds for the connections that a session left elsewhere, too; sessions of the other kind do not get them.
#[test]
fn an_option_reaches_what_was_left_elsewhere() {
    let there = [("match_digest", "there".into()), ("destination_hostgroup", 2.into()), ("apply", 1.into())];
    let proxy = proxy(&[&there]).start().unwrap();
    let mut peer = Peer::through(&proxy, Encoding::Text);
    let two = "SELECT 1 AS there; SELECT 2";
    assert_eq!(peer.get("SELECT GET_LOCK('place', 0) AS there"), "1");
    assert_eq!(hostgroup(&mut peer, "SELECT @@port"), 1);
    assert_eq!(peer.fails(two), 1064);
    assert_eq!(hostgroup(&mut peer, "SELECT @@port"), 1);
    peer.set_option(0).unwrap().check().unwrap();
    assert_eq!(peer.exec(two).results.len(), 2);
    assert_eq!(peer.get("SELECT RELEASE_LOCK('place') AS there"), "1");
    wait::until("the pin to end", LIMIT, || pins(&proxy).is_empty().then_some(())).unwrap();
    let mut plain = Peer::through(&proxy, Encoding::Text);
    assert_eq!(plain.fails(two), 1064);
}

/// Locks are free when a reset or a change of user is answered, also in other hostgroups; and soon where only the proxy has lost the
/// connection.
#[test]
fn locks_are_free_when_a_reset_is_answered() {
    let [one, two] = servers();
    let relay = Relay::to(&two.address()).unwrap();
    let there = [("match_digest", "there".into()), ("destination_hostgroup", 2.into()), ("apply", 1.into())];
    let proxy = Tidegate::builder()
        .backend(1, one)
        .server(2, "127.0.0.1", relay.port())
        .user("app", "app-pass", 1)
        .variable("threads", 1)
        .variable("monitor_enabled", false)
        .rules(&[&there])
        .start()
        .unwrap();
    // It has certainly run for longer than connections that are opened from now on: it counts whole seconds.
    let uptime = || two.sql("SHOW GLOBAL STATUS LIKE 'Uptime'").unwrap().rows().unwrap().field(0, "Value").unwrap();
    wait::until("the server to have run for a while", LIMIT, || (uptime().parse::<u64>().unwrap() >= 3).then_some(())).unwrap();
    let is_free = || two.scalar("SELECT IS_FREE_LOCK('place')").unwrap().as_deref() == Some("1");
    let options = proxy.options("app", "app-pass").database("test").timeout(LIMIT);
    let resets: [fn(&mut Peer, &ConnectOptions); 2] =
        [|peer, _| drop(peer.reset_connection().unwrap().check().unwrap()), |peer, options| peer.change_user(options).map(drop).unwrap()];
    for reset in resets {
        let mut peer = Peer::with(&options, Encoding::Text);
        assert_eq!(peer.get("SELECT GET_LOCK('place', 0) AS there"), "1");
        peer.disturb();
        relay.delay(100);
        reset(&mut peer, &options);
        assert!(is_free());
        relay.delay(0);
        assert_eq!(peer.get("SELECT GET_LOCK('place', 0) AS there"), "1");
        relay.cut_near();
        assert!(!is_free());
        reset(&mut peer, &options);
        wait::until("the lost connection to be ended", LIMIT, || is_free().then_some(())).unwrap();
    }
}

/// State that a reader keeps for a session does not keep the session from writing on the writer.
#[test]
fn a_session_that_left_something_on_a_reader_writes() {
    table("of_reader");
    for server in servers() {
        server.sql("CREATE OR REPLACE FUNCTION test.sets() RETURNS INT BEGIN SET @of_view = 5; RETURN 1; END").unwrap();
        server.sql("CREATE OR REPLACE VIEW test.set_by_view AS SELECT test.sets() AS n").unwrap();
    }
    let proxy = split(&[]);
    for mut peer in sessions(&proxy) {
        let [before, _] = rows("of_reader");
        peer.exec("SELECT n FROM set_by_view");
        peer.exec("INSERT INTO of_reader VALUES (1)");
        assert_eq!(peer.get("SELECT SQL_CALC_FOUND_ROWS 1 UNION SELECT 2 LIMIT 1"), "1");
        peer.exec("INSERT INTO of_reader VALUES (2)");
        assert_eq!(peer.get("SELECT FOUND_ROWS()"), "2");
        peer.exec_all(&["BEGIN", "INSERT INTO of_reader VALUES (3)", "COMMIT"]);
        let [after, none] = rows("of_reader").map(|rows| rows.parse::<u32>().unwrap());
        assert_eq!((after - before.parse::<u32>().unwrap(), none), (3, 0));
    }
}

/// State on a server that is taken away ends the session only when a statement needs it.
#[test]
fn what_was_left_is_lost_with_its_server() {
    table("lost_place");
    let shard = [("match_digest", "lost_place".into()), ("destination_hostgroup", 2.into()), ("apply", 1.into())];
    let proxy = proxy(&[&shard]).variable("monitor_enabled", false).start().unwrap();
    let mut peer = Peer::through(&proxy, Encoding::Text);
    peer.exec("CREATE TEMPORARY TABLE left_behind (n INT)");
    peer.exec("INSERT INTO lost_place VALUES (1)");
    set_status(&proxy, 1, "OFFLINE_HARD");
    until_unused(&proxy, 1);
    peer.exec("INSERT INTO lost_place VALUES (2)");
    set_status(&proxy, 1, "ONLINE");
    peer.exec("INSERT INTO lost_place VALUES (3)");
    assert_eq!(peer.fails("SELECT n FROM left_behind"), lab::SERVER_LOST);
    assert_eq!(rows("lost_place"), ["0", "3"]);
}

/// Rules: `SELECT n FROM ...` is for hostgroup 2.
fn reads_elsewhere() -> Tidegate {
    let reads = [("match_digest", "^SELECT n FROM".into()), ("destination_hostgroup", 2.into()), ("apply", 1.into())];
    proxy(&[&reads]).start().unwrap()
}

fn set_status(proxy: &Tidegate, hostgroup: u32, status: &str) {
    let mut admin = proxy.admin().unwrap();
    admin.run(format!("UPDATE mysql_servers SET status='{status}' WHERE hostgroup_id={hostgroup}")).unwrap();
    admin.run("LOAD MYSQL SERVERS TO RUNTIME").unwrap().check().unwrap();
}

fn until_unused(proxy: &Tidegate, hostgroup: u32) {
    let used = format!("SELECT ConnUsed FROM stats_mysql_connection_pool WHERE hostgroup={hostgroup}");
    let mut admin = proxy.admin().unwrap();
    wait::until("the connection to be closed", LIMIT, || (admin.scalar(&used).unwrap().as_deref() == Some("0")).then_some(())).unwrap();
}

/// Rules: what mentions `shard2` is for hostgroup 2.
fn sharded() -> Tidegate {
    let shard = [("match_pattern", "shard2".into()), ("destination_hostgroup", 2.into()), ("apply", 1.into())];
    proxy(&[&shard]).start().unwrap()
}

/// The column of a shard's table has the name of a temporary table; and each shard has one of that name.
#[test]
fn a_column_is_no_temporary_table() {
    table("of_shard2");
    let proxy = sharded();
    for (n, mut peer) in (1..).zip(sessions(&proxy)) {
        peer.exec("CREATE TEMPORARY TABLE n (a INT)");
        peer.exec("INSERT INTO of_shard2(n) VALUES (1)");
        assert_eq!(rows("of_shard2"), ["0".into(), n.to_string()]);
        peer.exec("CREATE TEMPORARY TABLE n (b INT) /* shard2 */");
        peer.exec("INSERT INTO n(b) VALUES (2) /* shard2 */");
        peer.exec("INSERT INTO n(a) VALUES (1)");
        assert_eq!([peer.get("SELECT * FROM n"), peer.get("SELECT * FROM n /* shard2 */")], ["1", "2"]);
        peer.exec("DROP TEMPORARY TABLE n /* shard2 */");
        assert_eq!(pins(&proxy), "1temporary_table");
        peer.exec("DROP TEMPORARY TABLE n");
        wait::until("the pins to end", LIMIT, || pins(&proxy).is_empty().then_some(())).unwrap();
    }
}

/// User variables move to another shard with their value, whichever server computed it.
#[test]
fn user_variables_go_along() {
    table("with_shard2");
    table("counted");
    for server in servers() {
        server.sql("CREATE OR REPLACE PROCEDURE test.gives(IN v INT) BEGIN EXECUTE IMMEDIATE CONCAT('SET @given = ', v); END").unwrap();
    }
    let proxy = sharded();
    let written = || servers()[1].scalar("SELECT GROUP_CONCAT(IFNULL(n, 'NULL')) FROM test.with_shard2").unwrap().unwrap_or_default();
    for mut peer in sessions(&proxy) {
        servers()[1].sql("TRUNCATE test.with_shard2").unwrap();
        peer.exec_all(&["SELECT GET_LOCK('along', 0)", "SELECT COUNT(*) + 7 INTO @counted FROM counted"]);
        peer.exec("INSERT INTO with_shard2 VALUES (@counted)");
        peer.exec("INSERT INTO with_shard2 VALUES (@never_set)");
        assert_eq!(written(), "7,NULL");
        peer.exec("CALL gives(5)");
        peer.exec("INSERT INTO with_shard2 VALUES (@given)");
        peer.exec("CALL gives(6)");
        peer.exec("SELECT 1 FROM with_shard2 LIMIT 0");
        peer.exec("INSERT INTO with_shard2 VALUES (@given + 0)");
        assert_eq!(written(), "7,NULL,5,6");
        peer.exec("SELECT COUNT(*) + 8 INTO @counted FROM counted");
        peer.exec("SELECT 1 FROM with_shard2 LIMIT 0");
        peer.exec("SET @counted = 9 /* shard2 */");
        peer.exec("INSERT INTO with_shard2 VALUES (@counted)");
        assert_eq!(peer.get("SELECT @counted /* shard2 */"), "9");
        assert_eq!(written(), "7,NULL,5,6,9");
        assert_eq!(peer.get("SELECT @counted"), "9");
        assert_eq!(written(), "7,NULL,5,6,9");
        assert_eq!(rows("with_shard2")[0], "0");
        peer.exec("SELECT RELEASE_LOCK('along')");
        peer.reset_connection().unwrap().check().unwrap();
    }
}

#[test]
fn prepared_names_are_of_their_shard() {
    let proxy = sharded();
    let [mut peer, _] = sessions(&proxy);
    peer.exec_all(&["PREPARE here FROM 'SELECT 1'", "PREPARE there FROM 'SELECT 2' /* shard2 */"]);
    assert_eq!([peer.get("EXECUTE here"), peer.get("EXECUTE there"), peer.get("EXECUTE here")], ["1", "2", "1"]);
    peer.exec_all(&["DEALLOCATE PREPARE there", "DEALLOCATE PREPARE here"]);
    wait::until("the pins to end", LIMIT, || pins(&proxy).is_empty().then_some(())).unwrap();
}

/// BEGIN releases locked tables.
#[test]
fn locked_tables_end_with_a_transaction() {
    table("locked_shard2");
    table("locked");
    let proxy = sharded();
    for mut peer in sessions(&proxy) {
        for begin in ["BEGIN", "START TRANSACTION"] {
            peer.exec("LOCK TABLES locked WRITE");
            assert_eq!(pins(&proxy), "1lock_tables");
            peer.exec_all(&[begin, "COMMIT", "INSERT INTO locked_shard2 VALUES (1)"]);
            assert_eq!(pins(&proxy), "");
        }
    }
    assert_eq!(rows("locked_shard2"), ["0", "4"]);
}

/// A schema is entered where its statements go: it need not be anywhere else.
#[test]
fn schemas_are_shards() {
    let [one, two] = servers();
    for (server, schema) in [(one, "only_one"), (two, "only_two"), (two, "ruled_two")] {
        server.sql(&format!("CREATE OR REPLACE DATABASE {schema}")).unwrap();
        server.sql(&format!("CREATE TABLE {schema}.t AS SELECT @@port AS port")).unwrap();
        server.sql(&format!("GRANT ALL ON {schema}.* TO app@'%'")).unwrap();
    }
    let ruled = [("schemaname", "ruled_two".into()), ("destination_hostgroup", 2.into()), ("apply", 1.into())];
    let fast = [
        ("username", "app".into()),
        ("schemaname", "only_two".into()),
        ("flagIN", 0.into()),
        ("destination_hostgroup", 2.into()),
        ("comment", "".into()),
    ];
    let proxy = proxy(&[&ruled]).row("mysql_query_rules_fast_routing", &fast).start().unwrap();
    for (schema, hostgroup) in [("only_one", 1), ("only_two", 2), ("ruled_two", 2)] {
        let port = servers()[hostgroup - 1].port().to_string();
        let options = || proxy.options("app", "app-pass").timeout(LIMIT);
        let mut at_login = Peer::with(&options().database(schema), Encoding::Text);
        assert_eq!(at_login.get("SELECT port FROM t"), port, "{schema}");
        let [mut used, mut entered] = [(); 2].map(|()| Peer::with(&options().database("only_one"), Encoding::Text));
        used.exec(&format!("USE {schema}"));
        entered.init_db(schema).unwrap().check().unwrap();
        for peer in [&mut used, &mut entered] {
            assert_eq!(peer.get("SELECT port FROM t"), port, "{schema}");
            peer.exec("USE only_one");
            assert_eq!(peer.get("SELECT port FROM t"), one.port().to_string());
        }
    }
    let refused = Client::connect(&proxy.options("app", "app-pass").database("nowhere")).err().unwrap();
    assert!(refused.to_string().contains("1044"), "{refused}");
}

/// Long data go where their execution goes, and commands that name no statement go where the schema is.
#[test]
fn long_data_goes_where_its_statement_does() {
    let [one, two] = servers();
    for server in servers() {
        server.sql("CREATE OR REPLACE DATABASE long2").unwrap();
        server.sql("GRANT ALL ON long2.* TO app@'%'").unwrap();
    }
    two.sql("CREATE TABLE long2.only_two (m TEXT)").unwrap();
    for server in servers() {
        server.sql("CREATE TABLE long2.docs (m TEXT)").unwrap();
    }
    let ruled = [("schemaname", "long2".into()), ("destination_hostgroup", 2.into()), ("apply", 1.into())];
    let hinted = [("match_pattern", "aside".into()), ("destination_hostgroup", 1.into()), ("apply", 1.into())];
    let proxy = proxy(&[&hinted, &ruled]).start().unwrap();
    let mut client = Client::connect(&proxy.options("app", "app-pass").database("long2").timeout(LIMIT)).unwrap();
    let statement = client.prepare("INSERT INTO docs VALUES (?)").unwrap();
    let put = |client: &mut Client| {
        client.send_long_data(&statement, 0, b"long ").unwrap();
        client.send_long_data(&statement, 0, b"data").unwrap();
        client.execute(&statement, &[Param::Long]).unwrap().check().unwrap();
    };
    put(&mut client);
    // Also where the session is kept by something else.
    client.run("CREATE TEMPORARY TABLE aside (n INT)").unwrap();
    put(&mut client);
    let docs = [one, two].map(|server| server.scalar("SELECT COALESCE(GROUP_CONCAT(m), '') FROM long2.docs").unwrap().unwrap());
    assert_eq!(docs, ["", "long data,long data"]);
    client.run("DROP TEMPORARY TABLE aside").unwrap();
    client.send_command(Command::FieldList, b"only_two\0").unwrap();
    assert!(String::from_utf8_lossy(&client.recv_packet().unwrap()).contains("only_two"), "its columns are listed");
}

/// An execution uses its long data up, also one that no server sees.
#[test]
fn long_data_is_for_one_execution() {
    let [one, _] = servers();
    one.sql("CREATE OR REPLACE TABLE test.used_up (m TEXT)").unwrap();
    let proxy = proxy(&[]).start().unwrap();
    let mut admin = proxy.admin().unwrap();
    let mut client = proxy.connect_app().unwrap();
    let statement = client.prepare("INSERT INTO used_up VALUES (?)").unwrap();
    let mut rule = |answer: &str| {
        admin.run("DELETE FROM mysql_query_rules").unwrap();
        if !answer.is_empty() {
            let columns = format!("rule_id, active, match_pattern, apply, {answer}");
            admin.run(format!("INSERT INTO mysql_query_rules ({columns}) VALUES (1, 1, '^INSERT', 1, 'answered')")).unwrap();
        }
        admin.run("LOAD MYSQL QUERY RULES TO RUNTIME").unwrap();
    };
    for (n, answer) in (1..).zip(["error_msg", "OK_msg"]) {
        rule(answer);
        client.send_long_data(&statement, 0, b"old").unwrap();
        client.execute(&statement, &[Param::Long]).unwrap();
        wait::until("nothing to be kept", LIMIT, || pins(&proxy).is_empty().then_some(())).unwrap();
        rule("");
        client.send_long_data(&statement, 0, b"new").unwrap();
        client.execute(&statement, &[Param::Long]).unwrap().check().unwrap();
        let all = one.scalar("SELECT GROUP_CONCAT(m) FROM test.used_up").unwrap().unwrap();
        assert_eq!(all, ["new"; 2][..n].join(","));
    }
}

/// While its rows are read, other statements go where they belong.
#[test]
fn an_open_cursor_keeps_its_place_and_nothing_else() {
    table("cursor_place");
    for server in servers() {
        server.sql("INSERT INTO test.cursor_place SELECT seq FROM mysql.help_topic, (SELECT 1 AS seq) AS s LIMIT 6").unwrap();
    }
    let proxy = reads_elsewhere();
    let mut client = proxy.connect_app().unwrap();
    let select = client.prepare("SELECT n FROM cursor_place").unwrap();
    for closes in 0..4 {
        let how = Execution { cursor: true, ..Execution::default() };
        let opened = client.execute_with(&select, &[], how).unwrap();
        let Some(Outcome::Rows(ResultSet { columns, .. })) = opened.results.into_iter().next() else { panic!("no rows") };
        for _ in 0..2 {
            assert_eq!(client.fetch(&select, &columns, 2).unwrap().rows.len(), 2);
            client.run("INSERT INTO cursor_place VALUES (0)").unwrap();
            client.run("BEGIN").unwrap();
            client.run("INSERT INTO cursor_place VALUES (0)").unwrap();
            client.run("COMMIT").unwrap();
        }
        match closes {
            0 => drop(client.reset_statement(&select).unwrap()),
            1 => drop(client.execute(&select, &[]).unwrap()),
            2 => drop(client.fetch(&select, &columns, 100).unwrap()),
            _ => client.close_statement(&select).unwrap(),
        }
        wait::until("nothing to be kept", LIMIT, || pins(&proxy).is_empty().then_some(())).unwrap();
        let written = 6 + 4 * (closes + 1);
        assert_eq!(rows("cursor_place"), [written.to_string(), "6".into()], "{closes}");
    }
}

/// A transaction keeps the session from where the cursor is: whatever ends it is heard all the same.
#[test]
fn a_cursor_elsewhere_ends_within_a_transaction() {
    table("cursor_ends");
    servers()[1].sql("INSERT INTO test.cursor_ends VALUES (1), (2), (3)").unwrap();
    let proxy = reads_elsewhere();
    let prepared = || servers()[1].sql("SHOW GLOBAL STATUS LIKE 'Prepared_stmt_count'").unwrap().rows().unwrap().field(0, "Value").unwrap();
    let mut client = proxy.connect_app().unwrap();
    for ends in 0..3 {
        let before = prepared();
        let select = client.prepare("SELECT n FROM cursor_ends").unwrap();
        client.execute_with(&select, &[], Execution { cursor: true, ..Execution::default() }).unwrap().check().unwrap();
        client.run("BEGIN").unwrap();
        client.run("INSERT INTO cursor_ends VALUES (0)").unwrap();
        let cannot = client.fetch(&select, &select.columns, 1).unwrap().end.unwrap_err();
        assert_eq!(cannot.code, 1105);
        match ends {
            0 => assert!(matches!(client.reset_statement(&select).unwrap(), Outcome::Ok(_))),
            // The execution goes to the server of the transaction.
            1 => assert_eq!(client.execute(&select, &[]).unwrap().rows().unwrap().rows.len(), 2),
            _ => {}
        }
        client.close_statement(&select).unwrap();
        client.run("COMMIT").unwrap();
        wait::until("nothing to be kept", LIMIT, || pins(&proxy).is_empty().then_some(())).unwrap();
        wait::until("no statement to be left", LIMIT, || (prepared() <= before).then_some(())).unwrap();
    }
    assert_eq!(rows("cursor_ends"), ["3", "3"]);
}

/// A cursor that was lost with its server elsewhere is gone, and nothing else.
#[test]
fn a_cursor_that_is_lost_elsewhere_is_told_once() {
    table("cursor_lost");
    servers()[1].sql("INSERT INTO test.cursor_lost VALUES (1), (2), (3)").unwrap();
    let proxy = reads_elsewhere();
    let mut client = proxy.connect_app().unwrap();
    let select = client.prepare("SELECT n FROM cursor_lost").unwrap();
    client.execute_with(&select, &[], Execution { cursor: true, ..Execution::default() }).unwrap().check().unwrap();
    client.run("INSERT INTO cursor_lost VALUES (0)").unwrap();
    for status in ["OFFLINE_HARD", "ONLINE"] {
        set_status(&proxy, 2, status);
        until_unused(&proxy, 2);
    }
    assert_eq!(client.fetch(&select, &select.columns, 1).unwrap().end.unwrap_err().code, 1421);
    for _ in 0..2 {
        assert_eq!(client.query("SELECT n FROM cursor_lost").unwrap().rows().unwrap().rows.len(), 3);
        assert_eq!(client.execute(&select, &[]).unwrap().rows().unwrap().rows.len(), 3);
    }
    assert_eq!(pins(&proxy), "");
}

/// A prepared statement is of the schema that it was prepared in.
#[test]
fn executions_are_routed_by_the_schema_of_the_prepare() {
    for server in servers() {
        server.sql("CREATE OR REPLACE DATABASE prepared2").unwrap();
        server.sql("CREATE TABLE prepared2.t (n INT)").unwrap();
        server.sql("GRANT ALL ON prepared2.* TO app@'%'").unwrap();
    }
    let ruled = [("schemaname", "prepared2".into()), ("destination_hostgroup", 2.into()), ("apply", 1.into())];
    let proxy = proxy(&[&ruled]).start().unwrap();
    let mut client = Client::connect(&proxy.options("app", "app-pass").database("prepared2").timeout(LIMIT)).unwrap();
    let statement = client.prepare("INSERT INTO t VALUES (1)").unwrap();
    client.execute(&statement, &[]).unwrap().check().unwrap();
    client.run("USE test").unwrap();
    client.execute(&statement, &[]).unwrap().check().unwrap();
    let counts = [0, 1].map(|server| servers()[server].scalar("SELECT COUNT(*) FROM prepared2.t").unwrap().unwrap());
    assert_eq!(counts, ["0", "2"]);
}

/// No client waits for its answer any more.
#[test]
fn a_delayed_statement_whose_client_left_is_not_run() {
    table("delayed_place");
    let delay = [("match_digest", "^INSERT INTO delayed_place".into()), ("delay", 1000.into()), ("apply", 1.into())];
    let proxy = proxy(&[&delay]).start().unwrap();
    let mut client = proxy.connect_app().unwrap();
    client.send_query("INSERT INTO delayed_place VALUES (1)").unwrap();
    let mut admin = proxy.admin().unwrap();
    let sessions = "SELECT COUNT(*) FROM stats_mysql_processlist WHERE user='app'";
    wait::until("it is delayed", LIMIT, || {
        let delayed = format!("{sessions} AND info LIKE 'INSERT INTO delayed_place%'");
        (admin.scalar(delayed).unwrap()? == "1").then_some(())
    })
    .unwrap();
    client.cut();
    wait::until("its session to end", LIMIT, || (admin.scalar(sessions).unwrap()? == "0").then_some(())).unwrap();
    assert_eq!(rows("delayed_place"), ["0", "0"]);
}
