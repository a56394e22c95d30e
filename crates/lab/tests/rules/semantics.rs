//! Conditions, chains and actions of rules, one line a case, in both protocols.

use super::bed::{Bed, own_port};
use super::common::{LIMIT, Peer};
use super::{hostgroup, proxy, servers, sessions};
use lab::client::Encoding;
use lab::tidegate::Setting;
use lab::{Client, ConnectOptions, Tidegate, wait};
use std::time::{Duration, Instant};
use wire::command::Command;
use wire::flags::{Capabilities, StatusFlags};

/// Rules, and to which hostgroup `SELECT @@port AS one` and `SELECT @@port AS two` go.
type Case = (&'static [&'static str], usize, usize);

const TO_TWO: &str = "destination_hostgroup=2; apply=1";

const CASES: &[Case] = &[
    (&[], 1, 1),
    (&["username='app'; destination_hostgroup=2"], 2, 2),
    (&["username='App'; destination_hostgroup=2"], 1, 1),
    (&["schemaname='test'; destination_hostgroup=2"], 2, 2),
    (&["schemaname='other'; destination_hostgroup=2"], 1, 1),
    (&["client_addr='127.0.0.1'; destination_hostgroup=2"], 2, 2),
    (&["client_addr='127.%'; destination_hostgroup=2"], 2, 2),
    (&["client_addr='10.%'; destination_hostgroup=2"], 1, 1),
    (&["client_addr='%'; destination_hostgroup=2"], 2, 2),
    (&["proxy_addr='127.0.0.1'; destination_hostgroup=2"], 2, 2),
    (&["proxy_addr='127.0.0.2'; destination_hostgroup=2"], 1, 1),
    (&["proxy_port=1; destination_hostgroup=2"], 1, 1),
    (&["match_digest='AS one'; destination_hostgroup=2"], 2, 1),
    (&["match_digest='as ONE'; destination_hostgroup=2"], 2, 1),
    (&["match_digest='as ONE'; re_modifiers=''; destination_hostgroup=2"], 1, 1),
    (&["match_pattern='AS one$'; negate_match_pattern=1; destination_hostgroup=2"], 1, 2),
    (&["match_digest='AS one'; negate_match_pattern=1; destination_hostgroup=2"], 1, 2),
    (&["match_digest='AS one'; match_pattern='two'; destination_hostgroup=2"], 1, 1),
    // Later rules replace earlier ones, until one applies.
    (&["destination_hostgroup=1", "match_digest='one'; destination_hostgroup=2"], 2, 1),
    (&["destination_hostgroup=1; apply=1", "match_digest='one'; destination_hostgroup=2"], 1, 1),
    // Flags.
    (&["flagIN=1; destination_hostgroup=2"], 1, 1),
    (&["match_digest='one'; flagOUT=7", "flagIN=7; destination_hostgroup=2"], 2, 1),
    (&["match_digest='one'; flagOUT=7", "destination_hostgroup=2"], 1, 2),
    (&["match_digest='one'; flagOUT=7; apply=1", "flagIN=7; destination_hostgroup=2"], 1, 1),
    (&["flagIN=7; destination_hostgroup=2", "flagOUT=7"], 1, 1),
    // Weights of nothing are never chosen; flagOUT outweighs them.
    (
        &[
            "match_digest='one'; attributes='{\"flagOUTs\":[{\"id\":5,\"weight\":0},{\"id\":6,\"weight\":4}]}'",
            "flagIN=6; destination_hostgroup=2",
        ],
        2,
        1,
    ),
    (&["flagOUT=8; attributes='{\"flagOUTs\":[{\"id\":6,\"weight\":4}]}'", "flagIN=8; match_digest='one'; destination_hostgroup=2"], 2, 1),
];

#[test]
fn conditions_and_chains() {
    let mut bed = Bed::start();
    let mut sessions = bed.sessions();
    for (rules, one, two) in CASES {
        bed.load(rules);
        for peer in &mut sessions {
            let went = ["one", "two"].map(|name| hostgroup(peer, &format!("SELECT @@port AS {name}")));
            assert_eq!(went, [*one, *two], "{:?} {rules:?}", peer.encoding);
        }
    }
    let port = own_port(&bed);
    bed.load(&[&format!("proxy_port={port}; {TO_TWO}")]);
    assert!(sessions.iter_mut().all(|peer| hostgroup(peer, "SELECT @@port AS one") == 2));
    let digest = bed.digest_of("SELECT @@port AS one");
    bed.load(&[&format!("digest='{digest}'; {TO_TWO}")]);
    for peer in &mut sessions {
        assert_eq!(["one", "two"].map(|name| hostgroup(peer, &format!("SELECT @@port AS {name}"))), [2, 1]);
    }
}

#[test]
fn weighted_flags_share_statements_out() {
    let mut bed = Bed::start();
    let weights = r#"{"flagOUTs":[{"id":5,"weight":3},{"id":6,"weight":1}]}"#;
    bed.load(&[&format!("attributes='{weights}'"), "flagIN=5; destination_hostgroup=2", "flagIN=6; destination_hostgroup=1"]);
    for mut peer in bed.sessions() {
        let went = (0..400).filter(|_| hostgroup(&mut peer, "SELECT @@port") == 2).count();
        assert!((230..=360).contains(&went), "{went} of 400 for a weight of 3 in 4");
    }
}

#[test]
fn the_next_query_begins_where_a_rule_says() {
    let mut bed = Bed::start();
    bed.load(&[
        "match_digest='AS first'; next_query_flagIN=4; apply=1",
        "flagIN=4; match_digest='AS back'; next_query_flagIN=0; destination_hostgroup=2; apply=1",
        "flagIN=4; destination_hostgroup=2; apply=1",
    ]);
    for mut peer in bed.sessions() {
        let went =
            ["AS a", "AS first", "AS a", "AS a", "AS back", "AS a"].map(|name| hostgroup(&mut peer, &format!("SELECT @@port {name}")));
        assert_eq!(went, [1, 1, 2, 2, 2, 1], "{:?}", peer.encoding);
        assert_eq!(hostgroup(&mut peer, "SELECT @@port AS first"), 1);
        peer.reset_connection().unwrap().check().unwrap();
        assert_eq!(hostgroup(&mut peer, "SELECT @@port AS a"), 1, "a reset begins the rules anew");
    }
}

#[test]
fn results_are_cached_and_prepared_statements_are_delayed_once() {
    let mut bed = Bed::start();
    super::servers()[0].sql("CREATE OR REPLACE TABLE test.cached (n INT) SELECT 1 AS n").unwrap();
    bed.load(&["match_digest='FROM cached'; cache_ttl=600000; apply=1", "match_digest='AS late'; delay=300; apply=1"]);
    for mut peer in bed.sessions() {
        assert_eq!(peer.get("SELECT n FROM cached"), "1");
        super::servers()[0].sql("UPDATE test.cached SET n=n+1").unwrap();
        assert_eq!(peer.get("SELECT n FROM cached"), "1");
        super::servers()[0].sql("UPDATE test.cached SET n=1").unwrap();
    }
    let mut peer = bed.session(Encoding::Binary);
    let began = Instant::now();
    let statement = peer.prepare("SELECT @@port AS late").unwrap();
    let prepared = began.elapsed();
    peer.execute(&statement, &[]).unwrap();
    assert!(began.elapsed() - prepared >= Duration::from_millis(300));
    assert!(prepared < Duration::from_millis(300), "{prepared:?}");
}

/// Rules are asked with the client's own text, at every execution too.
#[test]
fn a_rewritten_statement_obeys_the_rest_of_its_rules() {
    let mut bed = Bed::start();
    super::servers()[0].sql("CREATE OR REPLACE TABLE test.renamed (n INT) SELECT 1 AS n").unwrap();
    bed.load(&[
        "match_digest='AS mytag'; destination_hostgroup=2",
        "match_pattern='AS mytag'; replace_pattern='AS othertag'; apply=1",
        "match_pattern='CONNECTION_ID'; destination_hostgroup=2; apply=1",
        "match_pattern='sleep_a'; replace_pattern='SLEEP'; timeout=300; apply=1",
        "match_pattern='FROM old_name'; replace_pattern='FROM renamed'; cache_ttl=600000; apply=1",
        "match_pattern='AS first'; replace_pattern='AS second'; next_query_flagIN=4; delay=300; multiplex=0; apply=1",
        "flagIN=4; destination_hostgroup=2; apply=1",
    ]);
    for mut peer in bed.sessions() {
        assert_eq!(hostgroup(&mut peer, "SELECT @@port AS mytag"), 2);
        assert_eq!(hostgroup(&mut peer, "SELECT @@port, CONNECTION_ID()"), 2);
        assert_eq!(peer.fails("SELECT sleep_a(5)"), 1907);
        assert_eq!(peer.get("SELECT n FROM old_name"), "1");
        super::servers()[0].sql("UPDATE test.renamed SET n=n+1").unwrap();
        assert_eq!(peer.get("SELECT n FROM old_name"), "1", "it is cached");
        super::servers()[0].sql("UPDATE test.renamed SET n=1").unwrap();
        let began = Instant::now();
        assert_eq!(hostgroup(&mut peer, "SELECT @@port AS first"), 1);
        assert!(began.elapsed() >= Duration::from_millis(300));
        assert_eq!(bed.admin.scalar("SELECT COUNT(*) FROM stats_tidegate_pins").unwrap().as_deref(), Some("1"), "{:?}", peer.encoding);
        assert_eq!(hostgroup(&mut peer, "SELECT @@port"), 2);
    }
}

#[test]
fn user_variables_pin_unless_a_rule_says_otherwise() {
    let mut bed = Bed::start();
    bed.change("VARIABLES", &["SET mysql-carry_user_variables_max_length=0"]);
    bed.load(&["match_digest='AS two'; destination_hostgroup=2; apply=1", "match_digest='free'; multiplex=2; apply=1"]);
    for mut peer in bed.sessions() {
        peer.exec("SELECT @free := 1+1");
        assert_eq!(hostgroup(&mut peer, "SELECT @@port AS two, @free"), 2);
        peer.exec("SELECT @a := 1+1");
        assert_eq!(hostgroup(&mut peer, "SELECT @@port AS two, @a"), 1, "the variable is there");
        assert_eq!(hostgroup(&mut peer, "SELECT @@port AS two"), 2);
    }
}

#[test]
fn rules_choose_what_is_logged() {
    let mut bed = Bed::start();
    bed.change("VARIABLES", &["SET mysql-eventslog_filename='events'", "SET mysql-eventslog_format=2"]);
    bed.load(&["match_digest='AS logged'; log=1; apply=1", "match_digest='AS secret'; log=0; apply=1"]);
    for mut peer in bed.sessions() {
        hostgroup(&mut peer, "SELECT @@port AS secret");
        hostgroup(&mut peer, "SELECT @@port AS logged");
        hostgroup(&mut peer, "SELECT @@port AS other");
    }
    let log = wait::until("the log", LIMIT, || Some(query_log(&mut bed)).filter(|log| log.contains("COM_STMT_EXECUTE"))).unwrap();
    assert!(log.contains("AS logged") && !log.contains("AS secret") && !log.contains("AS other"), "{log}");
    // Preparations that come to nothing, by a server's or a rule's word.
    bed.load(&["match_digest='^DELETE'; log=1; error_msg='no deletes'; apply=1", "match_digest='FROM nowhere'; log=1; apply=1"]);
    let mut peer = bed.session(Encoding::Binary);
    for (sql, code) in [("SELECT 1 FROM nowhere", 1146), ("DELETE FROM nowhere", 1148)] {
        assert_eq!(peer.fails(sql), code);
        let what = format!("{sql} in the log");
        let log = wait::until(&what, LIMIT, || Some(query_log(&mut bed)).filter(|log| log.contains(sql))).unwrap();
        let line = log.lines().find(|line| line.contains(sql)).unwrap();
        assert!(line.contains("COM_STMT_PREPARE"), "{line}");
    }
}

/// By rule and by user: statements take places in time, and are told when the next one is too far away.
#[test]
fn statements_a_second_are_limited() {
    let mut bed = Bed::start();
    let refused = "SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name='tidegate_queries_pace_refused'";
    bed.load(&["match_digest='AS paced'; attributes='{\"max_queries_per_second\": 2}'; destination_hostgroup=1; apply=1"]);
    bed.change("VARIABLES", &["SET mysql-max_queries_wait_ms=0"]);
    for mut peer in bed.sessions() {
        let before: u32 = bed.admin.scalar(refused).unwrap().unwrap().parse().unwrap();
        let outcomes: Vec<_> = (0..5).map(|_| peer.ask("SELECT @@port AS paced")).collect();
        let errors: Vec<u16> = outcomes.into_iter().filter_map(|outcome| outcome.err().map(|error| error.code)).collect();
        assert!(!errors.is_empty() && errors.iter().all(|code| *code == 1226), "{errors:?}");
        assert_eq!(hostgroup(&mut peer, "SELECT @@port AS other"), 1, "others are not held up");
        let after: u32 = bed.admin.scalar(refused).unwrap().unwrap().parse().unwrap();
        assert_eq!(after - before, errors.len() as u32);
    }
    // They wait, where they may: ten statements at a hundred a second, after the burst.
    bed.load(&["match_digest='AS paced'; attributes='{\"max_queries_per_second\": 100}'; destination_hostgroup=1; apply=1"]);
    bed.change("VARIABLES", &["SET mysql-max_queries_wait_ms=60000"]);
    let mut peer = bed.session(Encoding::Text);
    let began = std::time::Instant::now();
    for _ in 0..40 {
        hostgroup(&mut peer, "SELECT @@port AS paced");
    }
    assert!(began.elapsed() >= std::time::Duration::from_millis(290), "{:?}", began.elapsed());
    // A user's limit counts for all of its sessions.
    bed.change("VARIABLES", &["SET mysql-max_queries_wait_ms=0"]);
    bed.admin.run("UPDATE mysql_users SET attributes='{\"max_queries_per_second\": 1}' WHERE username='app'").unwrap();
    bed.admin.run("LOAD MYSQL USERS TO RUNTIME").unwrap();
    let mut peers = [bed.session(Encoding::Text), bed.session(Encoding::Text)];
    let outcomes: Vec<_> = peers.iter_mut().map(|peer| peer.ask("SELECT 1").err().map(|error| error.code)).collect();
    assert_eq!(outcomes, [None, Some(1226)]);
}

#[test]
fn logged_queries_are_kept_in_memory_and_dumped() {
    let mut bed = Bed::start();
    bed.load(&["match_digest='AS logged'; log=1; apply=1"]);
    let lines = |bed: &mut Bed, table: &str| {
        let rows = bed.admin.query(format!("SELECT query, event_type, username FROM {table} ORDER BY id")).unwrap().table().unwrap();
        rows.into_iter().map(|row| row.into_iter().flatten().collect::<Vec<_>>().join("|")).collect::<Vec<_>>()
    };
    let (memory, disk) = ("stats_mysql_query_events", "stats_history.history_mysql_query_events");
    let run = |bed: &mut Bed| {
        for mut peer in bed.sessions() {
            hostgroup(&mut peer, "SELECT @@port AS logged");
            hostgroup(&mut peer, "SELECT @@port AS other");
        }
    };
    let dump =
        |bed: &mut Bed, to: &str| bed.admin.run(format!("DUMP EVENTSLOG FROM BUFFER TO {to}")).unwrap().status().unwrap().affected_rows;
    run(&mut bed);
    assert_eq!(dump(&mut bed, "BOTH"), 0, "nothing is kept by default");
    bed.change("VARIABLES", &["SET mysql-eventslog_buffer_history_size=100", "SET mysql-eventslog_buffer_max_query_length=128"]);
    run(&mut bed);
    assert!(lines(&mut bed, memory).is_empty(), "not before a dump");
    assert_eq!(dump(&mut bed, "BOTH"), 3, "a query, a PREPARE and its execution");
    for table in [memory, disk] {
        let seen = lines(&mut bed, table);
        assert_eq!(seen, ["0", "17", "16"].map(|event| format!("SELECT @@port AS logged|{event}|app")), "{table}");
    }
    assert_eq!(dump(&mut bed, "BOTH"), 0, "they have left the buffer");
    run(&mut bed);
    assert_eq!((dump(&mut bed, "DISK"), lines(&mut bed, memory).len(), lines(&mut bed, disk).len()), (3, 3, 6));
    run(&mut bed);
    assert_eq!((dump(&mut bed, "MEMORY"), lines(&mut bed, memory).len(), lines(&mut bed, disk).len()), (3, 6, 6));
    // By itself, when the period is over.
    bed.admin.run("SET admin-stats_mysql_eventslog_sync_buffer_to_disk=1").unwrap();
    bed.admin.run("LOAD ADMIN VARIABLES TO RUNTIME").unwrap();
    run(&mut bed);
    wait::until("the buffer to be saved", LIMIT, || (lines(&mut bed, disk).len() == 9).then_some(())).unwrap();
}

/// The records of the query log so far.
fn query_log(bed: &mut Bed) -> String {
    bed.admin.run("PROXYSQL FLUSH LOGS").unwrap();
    let files = std::fs::read_dir(bed.proxy.dir()).unwrap().map(|file| file.unwrap().path());
    let logs = files.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("events.")));
    logs.map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

/// Its text leaves the session's input before the file comes, and is looked at again when it has ended.
#[test]
fn a_load_of_a_clients_file_is_known_by_its_text() {
    let mut bed = Bed::start();
    super::servers()[0].sql("CREATE OR REPLACE TABLE test.loaded (s VARCHAR(20))").unwrap();
    bed.change(
        "VARIABLES",
        &[
            "SET mysql-enable_load_data_local_infile='true'",
            "SET mysql-eventslog_filename='events'",
            "SET mysql-eventslog_format=2",
            "SET mysql-eventslog_default_log=1",
        ],
    );
    let mut client = Client::connect(
        &bed.proxy.options("app", "app-pass").database("test").with(Capabilities::LOCAL_FILES | Capabilities::MULTI_STATEMENTS),
    )
    .unwrap();
    client.set_infile_handler(Box::new(|_| Some(b"one\ntwo\n".to_vec())));
    let load = "LOAD DATA LOCAL INFILE 'some.txt' INTO TABLE loaded";
    let both = format!("{load}; {load}");
    for (sql, rows) in [(load, "2"), (both.as_str(), "6")] {
        client.run(sql).unwrap();
        assert_eq!(client.scalar("SELECT COUNT(*) FROM loaded").unwrap().as_deref(), Some(rows), "{sql}");
    }
    let digests = bed.admin.query("SELECT digest_text FROM stats_mysql_query_digest").unwrap().table().unwrap();
    let texts: Vec<String> = digests.into_iter().map(|row| row[0].clone().unwrap()).collect();
    assert!(texts.iter().any(|text| text == "LOAD DATA LOCAL INFILE ? INTO TABLE loaded"), "{texts:#?}");
    assert!(!texts.iter().any(String::is_empty), "{texts:#?}");
    let log = wait::until("the log", LIMIT, || Some(query_log(&mut bed)).filter(|log| log.contains("COUNT(*)"))).unwrap();
    assert!(log.contains(&format!("\"query\":\"{load}\"")) && !log.contains("\"query\":\"\""), "{log}");
    bed.load(&["match_digest='^load data local infile . into table loaded$'; error_msg='no files'; apply=1"]);
    let refused = client.query(load).unwrap();
    assert_eq!(refused.err().map(|error| (error.code, error.message.clone())), Some((1148, "no files".to_owned())));
}

#[test]
fn comments_are_obeyed_for_those_who_may() {
    let mut bed = Bed::start();
    for mut peer in bed.sessions() {
        assert_eq!(hostgroup(&mut peer, "SELECT /* hostgroup=2 */ @@port"), 1);
        assert_eq!(hostgroup(&mut peer, "SELECT /* hostgroup=x */ @@port"), 1);
    }
    let mut misread = || bed.admin.scalar("SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name='tidegate_comments_misread'");
    assert_eq!(misread().unwrap().as_deref(), Some("0"), "nothing is read of those who may not");
    let mut free = Client::connect(&bed.proxy.options("empty", "")).unwrap();
    let ports = ["SELECT @@port", "SELECT /* hostgroup=2 */ @@port"].map(|sql| free.scalar(sql).unwrap().unwrap());
    assert_eq!(ports, super::servers().each_ref().map(|server| server.port().to_string()));
    // Text after the number does not undo the hint, and EXPLAIN ROUTE reports it.
    let odd = "SELECT /* hostgroup=2,create_new_connection=1 */ @@port";
    for encoding in [Encoding::Text, Encoding::Binary] {
        let mut free = Peer::with(&bed.proxy.options("empty", ""), encoding);
        assert_eq!(hostgroup(&mut free, odd), 2);
    }
    assert!(misread().unwrap().unwrap().parse::<u64>().unwrap() >= 2);
    let told = bed.admin.query(format!("EXPLAIN ROUTE '{odd}' USER empty")).unwrap().table().unwrap();
    let told: Vec<String> = told.into_iter().map(|row| row.into_iter().flatten().collect::<Vec<_>>().join("|")).collect();
    assert!(
        told.iter().any(|line| line.starts_with("comment|not understood|hostgroup=2,create_new_connection=1: taken as 2;")),
        "{told:#?}"
    );
}

/// The server's own number of the connection that runs it. CONNECTION_ID() and @@pseudo_thread_id are the session's.
const CONNECTION: &str = "SELECT id FROM information_schema.processlist WHERE info LIKE '%made for it%'";
const ON_A_NEW_CONNECTION: &str =
    "SELECT /* create_new_connection=1 */ id FROM information_schema.processlist WHERE info LIKE '%made for it%'";

#[test]
fn a_statement_has_a_connection_made_for_it() {
    let mut bed = Bed::start();
    let ids = |peer: &mut Peer| [CONNECTION, ON_A_NEW_CONNECTION, ON_A_NEW_CONNECTION].map(|sql| peer.get(sql).parse::<u64>().unwrap());
    for mut peer in bed.sessions() {
        let [pooled, same, still] = ids(&mut peer);
        assert_eq!((same, still), (pooled, pooled), "those who may not get what is there");
    }
    for encoding in [Encoding::Text, Encoding::Binary] {
        let mut free = Peer::with(&bed.proxy.options("empty", ""), encoding);
        let [pooled, new, newer] = ids(&mut free);
        assert!(pooled < new && new < newer, "{pooled} {new} {newer}");
        free.exec("BEGIN");
        let [held, same, still] = ids(&mut free);
        assert_eq!((same, still), (held, held), "a transaction stays where it is");
        free.exec("COMMIT");
        assert!(free.get(CONNECTION).parse::<u64>().unwrap() <= newer, "it is used again later");
    }
    bed.change("SERVERS", &["UPDATE mysql_servers SET max_connections=1"]);
    let mut free = Client::connect(&bed.proxy.options("empty", "")).unwrap();
    let mut id = |sql| free.scalar(sql).unwrap().unwrap().parse::<u64>().unwrap();
    let (pooled, new) = (id(CONNECTION), id(ON_A_NEW_CONNECTION));
    assert!(new > pooled, "the idle one makes room for it");
    assert_eq!(id(CONNECTION), new);
}

#[test]
fn who_waits_for_a_new_connection_holds_nobody_up() {
    let mut bed = Bed::start();
    let [mut one, mut other] = [(); 2].map(|()| Client::connect(&bed.proxy.options("empty", "")).unwrap());
    bed.change("SERVERS", &["INSERT INTO mysql_hostgroup_attributes (hostgroup_id, throttle_connections_per_sec) VALUES (1, 1)"]);
    one.run("SELECT 1").unwrap();
    // One a second: this takes the second's, the next one has to wait.
    one.run("SELECT /* create_new_connection=1 */ 1").unwrap();
    one.send_query("SELECT /* create_new_connection=1 */ 1").unwrap();
    let waiters = |bed: &mut Bed| bed.admin.scalar("SELECT waiters FROM stats_tidegate_waits WHERE hostgroup=1").unwrap().unwrap();
    wait::until("it waits", LIMIT, || (waiters(&mut bed) == "1").then_some(())).unwrap();
    other.run("SELECT 1").unwrap();
    assert_eq!(waiters(&mut bed), "1", "it waits still");
    one.recv_reply(Encoding::Text).unwrap().check().unwrap();
}

#[test]
fn fast_routing_is_for_what_no_rule_applied_to() {
    let mut bed = Bed::start();
    bed.admin.run("INSERT INTO mysql_query_rules_fast_routing VALUES ('app', 'test', 0, 2, ''), ('', 'test', 3, 2, '')").unwrap();
    for (rules, one, two) in [
        (&["match_digest='nothing'; destination_hostgroup=1; apply=1"][..], 2, 2),
        (&["match_digest='one'; destination_hostgroup=1; apply=1"], 1, 2),
        (&["match_digest='one'; destination_hostgroup=1"], 2, 2),
        (&["flagOUT=5", "flagIN=5; match_digest='one'; flagOUT=3"], 2, 1),
    ] {
        bed.load(rules);
        for mut peer in bed.sessions() {
            let went = ["one", "two"].map(|name| hostgroup(&mut peer, &format!("SELECT @@port AS {name}")));
            assert_eq!(went, [one, two], "{rules:?}");
        }
    }
}

/// With autocommit off a plain read that a rule sends elsewhere begins no transaction there, unless that is wanted.
#[test]
fn reads_of_a_session_without_autocommit_are_no_transaction() {
    const READ: &str = "SELECT port FROM whoami";
    for server in servers() {
        server.sql("CREATE OR REPLACE TABLE test.no_autocommit (n INT)").unwrap();
        server.sql("CREATE OR REPLACE TABLE test.whoami AS SELECT @@port AS port").unwrap();
    }
    let count = |server: usize| servers()[server].scalar("SELECT COUNT(*) FROM test.no_autocommit").unwrap().unwrap();
    let reads = [("match_digest", "^SELECT port".into()), ("destination_hostgroup", 2.into()), ("apply", 1.into())];
    let proxy = proxy(&[&reads]).start().unwrap();
    for capabilities in [ConnectOptions::MODERN, ConnectOptions::CLASSIC] {
        let mut client = Client::connect(&proxy.options("app", "app-pass").database("test").capabilities(capabilities)).unwrap();
        client.run("SET autocommit=0").unwrap();
        let reply = client.query(READ).unwrap();
        assert!(!reply.status().unwrap().status.contains(StatusFlags::AUTOCOMMIT), "the client has it off");
    }
    for (n, mut peer) in (1..).zip(sessions(&proxy)) {
        peer.exec("SET autocommit=0");
        for _ in 0..2 {
            let flags = peer.ask(READ).status().unwrap().status;
            assert!(!flags.intersects(StatusFlags::AUTOCOMMIT | StatusFlags::IN_TRANS), "{flags:?}");
            assert_eq!(peer.ask("SELECT port, no_column FROM whoami").err().unwrap().code, 1054);
            assert_eq!(hostgroup(&mut peer, READ), 2);
            peer.exec("INSERT INTO no_autocommit VALUES (1)");
            assert_eq!(hostgroup(&mut peer, READ), 1, "it is part of the transaction");
            assert_eq!(peer.get("SELECT @@autocommit"), "0");
            peer.exec("ROLLBACK");
        }
        assert_eq!(hostgroup(&mut peer, READ), 2);
        peer.exec("INSERT INTO no_autocommit VALUES (1)");
        peer.exec("COMMIT");
        assert_eq!([count(0), count(1)], [n.to_string(), "0".into()]);
        assert_eq!(hostgroup(&mut peer, &format!("{READ} FOR UPDATE")), 2);
        assert_eq!(hostgroup(&mut peer, "SELECT @@port"), 2, "what locks is a transaction");
        peer.exec("COMMIT");
        for on in ["1", "0", "1"] {
            peer.exec(&format!("SET autocommit={on}"));
            assert_eq!(hostgroup(&mut peer, READ), 2);
            assert_eq!(peer.get("SELECT @@autocommit"), on);
            peer.exec("COMMIT");
        }
    }
}

/// A transaction of autocommit=0, also one that begins with a read, runs where BEGIN would run: later statements may write.
#[test]
fn a_transaction_of_autocommit_off_is_where_begin_would_be() {
    let [one, two] = servers();
    for server in servers() {
        server.sql("CREATE OR REPLACE TABLE test.off_at_home (n INT)").unwrap();
        server.sql("CREATE OR REPLACE TABLE test.whose AS SELECT @@port AS port").unwrap();
        server.sql("CREATE DATABASE IF NOT EXISTS test_shard").unwrap();
        server.sql("CREATE OR REPLACE TABLE test_shard.whose AS SELECT @@port AS port").unwrap();
    }
    let count = |server: usize| servers()[server].scalar("SELECT COUNT(*) FROM test.off_at_home").unwrap().unwrap();
    let shard: &[(&str, Setting)] = &[
        ("rule_id", 1.into()),
        ("active", 1.into()),
        ("schemaname", "test_shard".into()),
        ("destination_hostgroup", 2.into()),
        ("apply", 1.into()),
    ];
    let reads: &[(&str, Setting)] = &[
        ("rule_id", 2.into()),
        ("active", 1.into()),
        ("match_digest", "^SELECT".into()),
        ("destination_hostgroup", 2.into()),
        ("apply", 1.into()),
    ];
    let mut written = 0;
    for setting in ["autocommit_false_is_transaction", "enforce_autocommit_on_reads"] {
        for persistent in [1, 0] {
            let proxy = Tidegate::builder()
                .backend(1, one)
                .backend(2, two)
                .user_with("app", "app-pass", 1, &[("transaction_persistent", persistent.into())])
                .variable("threads", 1)
                .variable(setting, true)
                .row("mysql_query_rules", shard)
                .row("mysql_query_rules", reads)
                .start()
                .unwrap();
            for mut peer in sessions(&proxy) {
                let read = "SELECT port FROM whose";
                assert_eq!(hostgroup(&mut peer, read), 2, "autocommit is on");
                for _ in 0..2 {
                    peer.exec("SET autocommit=0");
                    assert_eq!(hostgroup(&mut peer, read), 1, "{setting}");
                    peer.exec("INSERT INTO off_at_home VALUES (1)");
                    assert_eq!(hostgroup(&mut peer, read), 1, "{setting}");
                    peer.exec("COMMIT");
                    written += 1;
                    assert_eq!([count(0), count(1)], [written.to_string(), "0".into()], "{setting}, {persistent}");
                    assert_eq!(hostgroup(&mut peer, read), 1, "{setting}: the next one");
                    peer.exec("SET autocommit=1");
                    assert_eq!(hostgroup(&mut peer, read), 2, "{setting}: autocommit is on again");
                }
                // A rule that sends all of a schema elsewhere would send a BEGIN there, too.
                peer.exec("USE test_shard");
                peer.exec("SET autocommit=0");
                assert_eq!(hostgroup(&mut peer, read), 2, "{setting}");
                assert_eq!(hostgroup(&mut peer, "SELECT @@port"), 2, "{setting}");
                peer.exec("COMMIT");
                peer.exec("SET autocommit=1");
            }
        }
    }
}

/// With autocommit off, a statement that may write begins a transaction at a cluster's writer, not among its readers.
#[test]
fn no_transaction_of_autocommit_off_begins_among_a_clusters_readers() {
    for server in servers() {
        server.sql("CREATE OR REPLACE TABLE test.locked AS SELECT @@port AS port").unwrap();
    }
    let reads: &[(&str, Setting)] = &[("match_digest", "^SELECT".into()), ("destination_hostgroup", 2.into()), ("apply", 1.into())];
    let roles = [("writer_hostgroup", 1.into()), ("reader_hostgroup", 2.into())];
    let builder = proxy(&[reads]).variable("monitor_enabled", false).row("mysql_replication_hostgroups", &roles);
    let proxy = builder.start().unwrap();
    for mut peer in sessions(&proxy) {
        let locks = "SELECT port FROM locked FOR UPDATE";
        assert_eq!(hostgroup(&mut peer, locks), 2, "the rule says so");
        peer.exec("SET autocommit=0");
        assert_eq!(hostgroup(&mut peer, "SELECT port FROM locked"), 2, "it runs alone");
        assert_eq!(hostgroup(&mut peer, locks), 1);
        assert_eq!(hostgroup(&mut peer, "SELECT port FROM locked"), 1, "it is part of the transaction");
        peer.exec("COMMIT");
    }
}

#[test]
fn the_firewall_lets_pass_what_is_listed() {
    let mut bed = Bed::start();
    for mut peer in bed.sessions() {
        peer.get("SELECT @@port AS listed");
    }
    let digest = bed.digest_of("SELECT @@port AS listed");
    only_this_is_listed(&mut bed, &digest);
    for (mode, passes) in [("PROTECTING", false), ("DETECTING", true), ("OFF", true)] {
        bed.change("FIREWALL", &[&format!("UPDATE mysql_firewall_whitelist_users SET mode='{mode}'")]);
        for mut peer in bed.sessions() {
            assert_eq!(hostgroup(&mut peer, "SELECT @@port AS listed"), 1);
            let reply = peer.ask("SELECT @@port AS other");
            let error = reply.err().map(|error| (error.code, error.message.clone()));
            assert_eq!(error, (!passes).then(|| (1148, "not listed".to_owned())), "{mode}");
        }
    }
    bed.change("FIREWALL", &["UPDATE mysql_firewall_whitelist_users SET mode='PROTECTING'"]);
    // It is the client's text that is listed, whatever rules make of it.
    bed.change(
        "QUERY RULES",
        &["INSERT INTO mysql_query_rules (rule_id, active, match_pattern, replace_pattern, apply) VALUES (1, 1, 'AS listed', 'AS rewritten', 1)"],
    );
    for mut peer in bed.sessions() {
        assert_eq!(hostgroup(&mut peer, "SELECT @@port AS listed"), 1);
    }
    bed.session(Encoding::Text).exec_all(ABOUT_THE_SESSION);
    let log = bed.proxy.log();
    assert!(log.contains("Firewall blocked unknown query") && log.contains("Firewall detected unknown query"));
}

/// The firewall lets this digest of the user pass, and no other one.
fn only_this_is_listed(bed: &mut Bed, digest: &str) {
    bed.change(
        "FIREWALL",
        &[
            "INSERT INTO mysql_firewall_whitelist_users (active, username, client_address, mode) VALUES (1, 'app', '', 'PROTECTING')",
            &format!(
                "INSERT INTO mysql_firewall_whitelist_rules (active, username, client_address, schemaname, flagIN, digest, comment) \
                 VALUES (1, 'app', '', 'test', 0, '{digest}', '')"
            ),
        ],
    );
    bed.change("VARIABLES", &["SET mysql-firewall_whitelist_enabled=true", "SET mysql-firewall_whitelist_errormsg='not listed'"]);
}

/// The guards judge the whole text of a digest, though tables keep only its beginning.
#[test]
fn guards_read_what_no_table_shows() {
    let mut bed = Bed::start();
    let columns: Vec<String> = (0..1_100).map(|n| format!("'x' AS column_{n}")).collect();
    let listed = format!("SELECT @@port AS port, {}", columns.join(", "));
    let with_a_tail = format!("{listed} UNION ALL SELECT SLEEP(0), {}", columns.join(", "));
    bed.load(&["match_digest='SLEEP'; error_msg='no function'"]);
    assert!(bed.session(Encoding::Text).ask(&listed).err().is_none());
    // The text of the other one looks the same.
    let digest = bed.admin.scalar("SELECT digest FROM stats_mysql_query_digest WHERE digest_text LIKE '%column_9%'").unwrap().unwrap();
    for mut peer in bed.sessions() {
        assert!(peer.ask(&listed).err().is_none());
        assert_eq!(peer.ask(&with_a_tail).err().map(|error| error.message.clone()).as_deref(), Some("no function"));
    }
    bed.load(&[]);
    let kept = bed.admin.scalar("SELECT MAX(LENGTH(digest_text)) FROM stats_mysql_query_digest").unwrap();
    assert_eq!(kept.as_deref(), Some("2048"), "query_digests_max_digest_length");
    only_this_is_listed(&mut bed, &digest);
    for mut peer in bed.sessions() {
        assert!(peer.ask(&listed).err().is_none());
        assert_eq!(peer.ask(&with_a_tail).err().map(|error| error.message.clone()).as_deref(), Some("not listed"));
    }
    // More than rules may read is refused where a rule would have to read it, and nowhere else.
    bed.change("VARIABLES", &["SET mysql-firewall_whitelist_enabled=false", "SET mysql-query_digests_max_match_length=65536"]);
    let long = format!("{listed}, {}", (0..1_500).map(|n| format!("'x' AS another_{n:0>50}")).collect::<Vec<_>>().join(", "));
    let message = |peer: &mut Peer| peer.ask(&long).err().map(|error| error.message.clone()).unwrap_or_default();
    assert_ne!(message(&mut bed.session(Encoding::Text)), routing_refusal());
    bed.load(&["match_digest='SLEEP'; destination_hostgroup=2"]);
    assert_eq!(message(&mut bed.session(Encoding::Text)), routing_refusal());
    let counted =
        bed.admin.scalar("SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name='tidegate_digests_too_long'").unwrap();
    assert_eq!(counted.as_deref(), Some("1"));
}

/// The proxy's warning for a digest that is too long to be judged.
fn routing_refusal() -> &'static str {
    "The statement's digest text is longer than mysql-query_digests_max_match_length, and query rules with match_digest apply to it"
}

/// Commands beside COM_QUERY that reach a server, each with a body that a server would act on.
fn commands_that_act() -> [(Command, Vec<u8>); 11] {
    let dump = [&4_u32.to_le_bytes()[..], &0_u16.to_le_bytes(), &99_u32.to_le_bytes()].concat();
    let by_gtid = [&0_u16.to_le_bytes()[..], &99_u32.to_le_bytes(), &[0; 4], &4_u64.to_le_bytes(), &[0; 4]].concat();
    let register = [&99_u32.to_le_bytes()[..], &[0; 3], &3306_u16.to_le_bytes(), &[0; 8]].concat();
    [
        (Command::CreateDb, b"made".to_vec()),
        (Command::DropDb, b"test".to_vec()),
        (Command::FieldList, b"t\0".to_vec()),
        (Command::ProcessInfo, Vec::new()),
        (Command::ProcessKill, 1_u32.to_le_bytes().to_vec()),
        (Command::Shutdown, vec![0]),
        (Command::Debug, Vec::new()),
        (Command::Refresh, vec![128]),
        (Command::RegisterSlave, register),
        (Command::BinlogDump, dump),
        (Command::BinlogDumpGtid, by_gtid),
    ]
}

/// Commands are judged as the SQL that they stand for. Those that stop a server, or read all that it wrote, need a setting or a right.
#[test]
fn no_command_passes_beside_the_firewall() {
    let mut bed = Bed::start();
    let answers = |bed: &Bed| {
        let each = commands_that_act().map(|(command, body)| {
            let reply = bed.session(Encoding::Text).command(command, &body).unwrap();
            (command, reply.err().map(|error| error.code))
        });
        each.to_vec()
    };
    // Without the firewall a setting and a right are asked for nevertheless.
    for (command, code) in answers(&bed).into_iter().skip(5) {
        assert_eq!(code, Some(1227), "{command:?}");
    }
    bed.change(
        "FIREWALL",
        &["INSERT INTO mysql_firewall_whitelist_users (active, username, client_address, mode) VALUES (1, 'app', '', 'PROTECTING')"],
    );
    bed.change("VARIABLES", &["SET mysql-firewall_whitelist_enabled=true", "SET mysql-forward_administrative_commands=true"]);
    for (command, code) in answers(&bed) {
        let expected = match command {
            Command::RegisterSlave | Command::BinlogDump | Command::BinlogDumpGtid => 1227,
            _ => 1148,
        };
        assert_eq!(code, Some(expected), "{command:?}");
    }
    bed.change("VARIABLES", &["SET mysql-firewall_whitelist_enabled=false"]);
    bed.change(
        "QUERY RULES",
        &["INSERT INTO mysql_query_rules (rule_id, active, match_pattern, error_msg, apply) VALUES (1, 1, '^(SHOW COLUMNS|KILL) ', 'no', 1)"],
    );
    for (command, body) in [(Command::FieldList, b"t\0".to_vec()), (Command::ProcessKill, 1_u32.to_le_bytes().to_vec())] {
        assert_eq!(bed.session(Encoding::Text).command(command, &body).unwrap().err().map(|error| error.code), Some(1148));
    }
    let mut peer = bed.session(Encoding::Text);
    let refused = peer.command(Command::Refresh, &[16]).unwrap().err().map(|error| error.message.clone());
    assert!(refused.is_some_and(|text| text.contains("RELOAD")), "FLUSH STATUS reaches the server, which has the last word");
    assert_eq!(hostgroup(&mut peer, "SELECT @@port"), 1);
}

/// Statements that applications and their drivers send about the session itself.
const ABOUT_THE_SESSION: &[&str] = &[
    "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
    "set autocommit=0",
    "SET @@session.autocommit = ON",
    "SET character_set_results = NULL",
    "SET SESSION character_set_results = utf8mb4",
    "USE test",
    "COMMIT",
    "rollback;",
];

#[test]
fn what_is_about_the_session_is_no_matter_of_rules() {
    let mut bed = Bed::start();
    bed.load(&[
        "match_digest='^(INSERT|SELECT|BEGIN)'; destination_hostgroup=2; apply=1",
        "match_pattern='^(.*)$'; replace_pattern='nonsense \\1'; cache_ttl=1000; delay=60000; next_query_flagIN=9",
        "error_msg='denied'; apply=1",
    ]);
    super::servers()[1].sql("CREATE OR REPLACE TABLE test.allowed (n INT)").unwrap();
    let mut peer = bed.session(Encoding::Text);
    peer.exec_all(ABOUT_THE_SESSION);
    peer.exec_all(&["BEGIN", "INSERT INTO allowed VALUES (1)"]);
    assert_eq!(hostgroup(&mut peer, "SELECT @@port"), 2);
    peer.exec("COMMIT");
    assert_eq!(peer.get("SELECT COUNT(*) FROM allowed"), "1");
    let hits = bed.admin.query("SELECT rule_id, hits FROM stats_mysql_query_rules ORDER BY 1").unwrap().table().unwrap();
    assert_eq!(hits.iter().map(|row| row[1].clone().unwrap()).collect::<Vec<_>>(), ["4", "0", "0"]);
    let counted = bed.admin.scalar("SELECT SUM(count_star) FROM stats_mysql_query_digest WHERE digest_text='COMMIT'").unwrap();
    assert_eq!(counted.as_deref(), Some("2"));
    for sql in ABOUT_THE_SESSION {
        let quoted = sql.replace('\'', "''");
        let told = bed.admin.query(format!("EXPLAIN ROUTE '{quoted}'")).unwrap().table().unwrap();
        let steps: Vec<String> = told.iter().map(|row| row[0].clone().unwrap_or_default()).collect();
        assert!(steps.iter().any(|step| step == "rules") && !steps.iter().any(|step| step == "answer"), "{sql}: {told:?}");
    }
    // A statement of this kind that needs a server goes to the one that the rules choose.
    bed.load(&["destination_hostgroup=2; error_msg='denied'; apply=1"]);
    let mut other = bed.session(Encoding::Text);
    let used = |bed: &mut Bed| bed.admin.scalar("SELECT SUM(Queries) FROM stats_mysql_connection_pool WHERE hostgroup=1").unwrap();
    let before = used(&mut bed);
    other.exec("SET NAMES utf8mb3 COLLATE utf8mb3_bin");
    assert_eq!(used(&mut bed), before, "nothing went to hostgroup 1");
    // Any statement beyond these forms is judged.
    for sql in ["COMMIT AND CHAIN", "SET NAMES utf8mb4, @a = 1", "SET sql_mode=''", "/* hostgroup=1 */ COMMIT"] {
        assert_eq!(other.fails(sql), 1148, "{sql}");
    }
}

#[test]
fn an_explained_route_begins_at_a_listener() {
    let mut bed = Bed::start();
    let port = own_port(&bed);
    bed.load(&[&format!("proxy_port={port}; proxy_addr='127.0.0.1'; {TO_TWO}"), "proxy_port=1; destination_hostgroup=3; apply=1"]);
    let mut ask = |on: &str| {
        let told = bed.admin.query(format!("EXPLAIN ROUTE 'SELECT 1'{on}")).unwrap();
        let rows = told.table().unwrap_or_else(|error| panic!("{on}: {error}"));
        rows.into_iter().map(|row| row.into_iter().flatten().collect::<Vec<_>>().join("|")).collect::<Vec<String>>()
    };
    for (on, hostgroup) in [
        (String::new(), 2),
        (format!(" ON '127.0.0.1:{port}'"), 2),
        (format!(" ON '127.0.0.2:{port}'"), 1),
        (" USER app ON '10.0.0.1:1'".to_owned(), 3),
        (" ON '/run/some.sock'".to_owned(), 1),
    ] {
        let told = ask(&on);
        assert!(told.iter().any(|line| line.starts_with(&format!("hostgroup|{hostgroup}|"))), "{on}: {told:#?}");
        let line = told.iter().find(|line| line.starts_with("listener|assumed|")).unwrap();
        let is_known = on.is_empty() || on == format!(" ON '127.0.0.1:{port}'");
        assert_eq!(line.contains("no such listener"), !is_known, "{on}: {line}");
    }
    assert!(bed.admin.query("EXPLAIN ROUTE 'SELECT 1' ON 'nowhere'").unwrap().err().unwrap().message.contains("nowhere"));
}
