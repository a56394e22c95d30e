//! What a session wants of a connection after a statement: as servers tell it, and as the text says where they do not.

use crate::backends::cleaning::{self, ResetError};
use crate::backends::connect::prepare_again;
use crate::bed::info;
use crate::session::Wants;
use crate::session::bed::{Bed, analysis, error, ok, ok_open, packet_of, result_of, told};
use crate::session::setting::assignments;
use session_state::chosen::Chosen;
use session_state::held::Tracking;
use session_state::literals::is_bare_null;
use session_state::state::Diff;
use sql::{LexMode, MultiByte};
use std::sync::atomic::Ordering;
use wire::charset::Flavor::{MariaDb, MySql};
use wire::reframe::ReplyFacts;

/// The values of these session variables; `-` for a default.
fn values(bed: &Bed, names: &[&str]) -> Vec<String> {
    let value = |name: &&str| bed.wants.state.variables.get(name).map_or("-".into(), |value| String::from_utf8_lossy(value).into_owned());
    names.iter().map(value).collect()
}

/// What a user variable is carried as.
fn carried(bed: &Bed, name: &str) -> Option<String> {
    bed.wants.state.user_variables.get(name).map(|literal| String::from_utf8_lossy(literal).into_owned())
}

#[tokio::test]
async fn what_a_server_tells_is_wanted_and_had() {
    for (flavor, text, said, name, expected) in [
        (MySql, "SET sql_mode = 'ANSI'", ("sql_mode", "REAL_AS_FLOAT,ANSI"), "sql_mode", "REAL_AS_FLOAT,ANSI"),
        (MySql, "SET autocommit = 0", ("autocommit", "OFF"), "autocommit", "OFF"),
        (MySql, "SET autocommit = 1", ("autocommit", "ON"), "autocommit", "-"),
        (MySql, "SET timestamp = 5", ("timestamp", "5.000000"), "timestamp", "5.000000"),
        (MySql, "SET timestamp = DEFAULT", ("timestamp", "1764325200.000000"), "timestamp", "-"),
        (
            MySql,
            "SET transaction_isolation = 'SERIALIZABLE'",
            ("transaction_isolation", "SERIALIZABLE"),
            "transaction_isolation",
            "SERIALIZABLE",
        ),
        (MariaDb, "SET tx_isolation = 'SERIALIZABLE'", ("transaction_isolation", "SERIALIZABLE"), "tx_isolation", "SERIALIZABLE"),
        (MariaDb, "SET storage_engine = MyISAM", ("default_storage_engine", "MyISAM"), "default_storage_engine", "MyISAM"),
        // Events, not wishes.
        (MariaDb, "INSERT INTO t VALUES (1)", ("last_gtid", "0-1-7"), "last_gtid", "-"),
        (MySql, "SELECT 1", ("statement_id", "7"), "statement_id", "-"),
        // They are gone again when the statement is over.
        (MariaDb, "SET STATEMENT sort_buffer_size = 4096 FOR SELECT 1", ("sort_buffer_size", "4096"), "sort_buffer_size", "-"),
        (MySql, "SELECT /*+ SET_VAR(sort_buffer_size = 4096) */ 1", ("sort_buffer_size", "262144"), "sort_buffer_size", "-"),
    ] {
        let mut bed = Bed::new("").on(flavor);
        bed.ran(text, &told(&[said]));
        assert_eq!(values(&bed, &[name]), [expected], "{flavor:?}: {text}");
        assert_eq!(bed.at.backend.as_ref().unwrap().core.held.state().variables, bed.wants.state.variables, "{flavor:?}: {text}");
    }
}

#[tokio::test]
async fn what_was_assigned_last_has_the_last_word() {
    let mut bed = Bed::new("").on(MySql);
    bed.ran("SET character_set_server = latin1", &told(&[("character_set_server", "latin1")]));
    assert_eq!(values(&bed, &["character_set_server", "collation_server"]), ["latin1", "-"]);
    bed.ran("SET collation_server = utf8mb4_bin", &told(&[("collation_server", "utf8mb4_bin")]));
    assert_eq!(values(&bed, &["character_set_server", "collation_server"]), ["-", "utf8mb4_bin"]);
}

#[tokio::test]
async fn a_mode_decides_how_text_is_read() {
    for (mode, expected) in [
        ("ANSI_QUOTES,STRICT_ALL_TABLES", (true, false, false, false)),
        ("ORACLE,PIPES_AS_CONCAT", (false, true, false, false)),
        ("IGNORE_SPACE", (false, false, true, false)),
        ("PIPES_AS_CONCAT,ANSI_QUOTES,IGNORE_SPACE,MSSQL,NO_KEY_OPTIONS", (true, false, true, true)),
        ("STRICT_ALL_TABLES", (false, false, false, false)),
        ("", (false, false, false, false)),
    ] {
        let mut bed = Bed::new("").on(MariaDb);
        bed.ran("SET sql_mode = 'x'", &told(&[("sql_mode", mode)]));
        let lex = bed.wants.lex;
        assert_eq!((lex.ansi_quotes, lex.oracle, lex.ignore_space, lex.brackets), expected, "{mode}");
    }
    let mut bed = Bed::new("").on(MySql);
    bed.ran("SET NAMES gbk", &told(&[("character_set_client", "gbk")]));
    assert_eq!(bed.wants.lex.multi_byte, MultiByte::of(b"gbk"));
}

#[tokio::test]
async fn a_schema_is_as_the_server_says() {
    let entered = |schema: &str| ReplyFacts { schema: Some(schema.as_bytes().into()), state_change: true, ..ok() };
    let mut bed = Bed::new("").on(MySql);
    bed.wants.state.variables.set("collation_database", Some(b"latin1_bin"));
    bed.ran("USE other", &entered("other"));
    assert_eq!((bed.wants.state.schema.as_deref(), values(&bed, &["collation_database"])), (Some(&b"other"[..]), vec!["-".to_owned()]));
    bed.ran("DROP SCHEMA other", &entered(""));
    assert_eq!((bed.wants.state.schema.as_deref(), bed.at.backend.as_ref().unwrap().core.held.state().schema.as_deref()), (None, None));
    bed.ran("USE nonsense", &error(1049));
    assert_eq!(bed.wants.state.schema, None);
}

/// A session on a server that does not track sessions.
fn on_a_silent_server() -> Bed {
    let mut bed = Bed::new("").on(MariaDb);
    bed.at.backend.as_mut().unwrap().core.held.began_tracking(Tracking::None);
    bed
}

#[tokio::test]
async fn where_servers_tell_nothing_they_are_asked() {
    let charsets = ["utf8mb4", "latin1", "latin1", "latin1", "latin1_swedish_ci"];
    let names = "SELECT CAST(@@session.character_set_client AS BINARY),CAST(@@session.character_set_connection AS BINARY),\
        CAST(@@session.character_set_results AS BINARY),CAST(@@session.collation_connection AS BINARY)";
    for (text, question, answers, names, expected, pins) in [
        (
            "SET sql_mode = concat(@@sql_mode, ',ANSI'), long_query_time = 1e1",
            "SELECT CAST(@@session.sql_mode AS BINARY),CAST(@@session.long_query_time AS BINARY)",
            &[&["ANSI", "10.000000"][..]][..],
            &["sql_mode", "long_query_time"][..],
            &["ANSI", "10.000000"][..],
            &[][..],
        ),
        ("SET sql_warnings = TRUE", "SELECT CAST(@@session.sql_warnings AS BINARY)", &[&["1"]], &["sql_warnings"], &["1"], &[]),
        ("SET autocommit = 0", "SELECT CAST(@@session.autocommit AS BINARY)", &[&["0"]], &["autocommit"], &["OFF"], &[]),
        (
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
            "SELECT CAST(@@session.tx_isolation AS BINARY)",
            &[&["READ-COMMITTED"]],
            &["tx_isolation"],
            &["READ-COMMITTED"],
            &[],
        ),
        // It changes sql_big_selects along.
        (
            "SET max_join_size = 5",
            "SELECT CAST(@@session.max_join_size AS BINARY),CAST(@@session.sql_big_selects AS BINARY)",
            &[&["5", "0"]],
            &["max_join_size", "sql_big_selects"],
            &["5", "0"],
            &[],
        ),
        ("SET insert_id = 7", "SELECT CAST(@@session.insert_id AS BINARY)", &[&["7"]], &["insert_id"], &["-"], &["session_state"]),
        (
            "SET NAMES latin1",
            names,
            &[&charsets[1..], &charsets],
            &["character_set_client", "character_set_results", "collation_connection"],
            &["latin1", "latin1", "latin1_swedish_ci"],
            &[],
        ),
        (
            "SET CHARACTER SET latin1",
            names,
            &[&["latin1", "utf8mb4", "latin1", "utf8mb4_bin"], &["latin1", "latin1", "utf8mb4", "latin1", "utf8mb4_bin"]],
            &["character_set_client", "character_set_connection", "collation_connection"],
            &["latin1", "utf8mb4", "utf8mb4_bin"],
            &[],
        ),
    ] {
        let mut bed = on_a_silent_server();
        bed.answers(&answers.iter().map(|row| result_of(&[row])).collect::<Vec<_>>());
        bed.ran(text, &ok());
        let analysis = bed.analysis(text);
        bed.effects().learn_set(text.as_bytes(), &analysis, &ok()).await;
        assert_eq!(values(&bed, names), expected, "{text}");
        assert_eq!(bed.pins(), pins, "{text}");
        assert_eq!(bed.sent()[0], question, "{text}");
    }
}

/// A shadow chooses what the client has not named, also where the SET is answered without a server.
#[tokio::test]
async fn a_session_knows_whether_its_client_named_its_collation() {
    let tells = told(&["character_set_client", "character_set_connection", "character_set_results"].map(|name| (name, "utf8mb4")));
    let shadow = info(MariaDb, "12.3.1-MariaDB");
    let of_shadow = |bed: &Bed| {
        let mut state = bed.wants.state.clone();
        bed.chosen_in(&mut state).leave_to(&shadow, &mut state);
        state.variables.get("collation_connection").map(|value| String::from_utf8_lossy(value).into_owned())
    };
    let own = "utf8mb4_uca1400_ai_ci";
    for (text, expected) in [("SET NAMES utf8mb4", "DEFAULT"), ("SET NAMES utf8mb4 COLLATE utf8mb4_uca1400_ai_ci", own)] {
        let mut bed = Bed::new("").on(MariaDb);
        bed.answers(&[result_of(&[&["utf8mb4", "utf8mb4", "utf8mb4", "utf8mb4", own]])]);
        bed.ran(text, &tells);
        let analysis = bed.analysis(text);
        let untold = bed.effects().learn_set(text.as_bytes(), &analysis, &tells).await.unwrap();
        assert_eq!(values(&bed, &["collation_connection"]), [own], "{text}");
        assert_eq!(of_shadow(&bed).as_deref(), Some(expected), "{text}");
        bed.effects().remember_set(text.as_bytes(), &analysis, &tells, &untold);
        bed.at.backend = None;
        bed.wants.chosen = Chosen::default();
        let command = bed.says(text);
        assert!(bed.answered_here(command, 0, &analysis).await.unwrap(), "{text}");
        assert_eq!(of_shadow(&bed).as_deref(), Some(expected), "{text}, answered here");
    }
}

#[tokio::test]
async fn a_server_that_takes_the_tracker_settings_and_tells_nothing_is_believed_nothing() {
    let mut bed = Bed::new("").on(MySql);
    bed.answers(&[packet_of(&ok())]);
    let mut backend = bed.at.backend.take().unwrap();
    prepare_again(&bed.worker, &mut backend).await.unwrap();
    assert!(!backend.core.held.tracks() && backend.core.server.is_known_silent.load(Ordering::Relaxed));
    assert_eq!(cleaning::reset(&bed.worker, &mut backend, false).await, Err(ResetError::Unsupported), "a new one is the answer");
    assert_eq!(cleaning::reset(&bed.worker, &mut backend, true).await, Err(ResetError::Unsupported));
    let mut there = bed.wants.state.clone();
    there.variables.set("timestamp", Some(b"86400"));
    backend.core.held.was_brought_to(&there);
    assert_eq!(backend.core.diff_to(&bed.wants.state), Diff::Reset { change_user: false });
}

#[tokio::test]
async fn where_servers_tell_nothing_use_names_the_schema() {
    let mut bed = on_a_silent_server();
    bed.ran("USE other", &ok());
    assert_eq!(bed.wants.state.schema.as_deref(), Some(&b"other"[..]));
    for text in ["DROP DATABASE another", "DROP TABLE other", "CREATE DATABASE IF NOT EXISTS other"] {
        bed.ran(text, &ok());
        assert_eq!(bed.wants.state.schema.as_deref(), Some(&b"other"[..]), "{text}");
    }
    bed.ran("drop schema IF EXISTS `other`", &error(1008));
    assert_eq!(bed.wants.state.schema.as_deref(), Some(&b"other"[..]));
    bed.ran("drop schema IF EXISTS `other`", &ok());
    assert_eq!(bed.wants.state.schema, None);
    assert_eq!(bed.at.backend.as_ref().unwrap().core.held.state().schema, None);
}

#[tokio::test]
async fn where_servers_tell_nothing_what_may_have_run_stored_code_serves_nobody_else() {
    for (text, unseen, pins) in [
        ("SELECT 1", false, &[][..]),
        ("SELECT @@version, NOW()", false, &[]),
        ("SET sql_mode = ''", false, &[]),
        ("BEGIN", false, &[]),
        ("COMMIT", false, &[]),
        ("SELECT 1; SELECT 2", false, &[]),
        ("INSERT INTO t VALUES (1)", true, &[]),
        ("SELECT a FROM v", true, &[]),
        ("SET @a = (SELECT MAX(a) FROM v)", true, &["user_variable"]),
        ("SELECT 1; DELETE FROM t", true, &[]),
        ("SELECT 1 /*!50001 FROM v */", true, &[]),
        ("CREATE TABLE u AS SELECT 1", true, &[]),
        ("SELECT f()", false, &["session_state"]),
        ("CALL p()", true, &["session_state"]),
    ] {
        let mut bed = on_a_silent_server();
        bed.ran(text, &ok());
        assert_eq!(bed.at.backend.as_ref().unwrap().core.held.must_reset(), unseen, "{text}");
        assert_eq!(bed.pins(), pins, "{text}");
        bed = Bed::new("").on(MariaDb);
        bed.ran(text, &ok());
        assert!(!bed.at.backend.as_ref().unwrap().core.held.must_reset(), "{text}: others tell");
    }
}

#[tokio::test]
async fn what_no_server_tells_is_kept_for_its_session_and_closed_for_another() {
    let mut bed = on_a_silent_server();
    bed.ran("SELECT a FROM v", &ok());
    let analysis = bed.analysis("SELECT a FROM v");
    bed.settle_silent(&analysis).await.unwrap();
    assert!(bed.at.backend.is_some() && bed.handle.keeps_unseen.get() && bed.pins().is_empty());
    bed.at.pool.shared.queue.set_oldest(0, 1);
    let gives_back = async {
        bed.settle_silent(&analysis).await.unwrap();
        tokio::task::yield_now().await;
    };
    tokio::task::LocalSet::new().run_until(gives_back).await;
    assert!(bed.at.backend.is_none() && !bed.handle.keeps_unseen.get(), "somebody waits");
    assert_eq!(bed.at.pool.idle(0), 0, "it is closed");
}

#[tokio::test]
async fn user_variables_are_carried_as_literals_that_mean_the_same_anywhere() {
    for (text, expected) in [
        ("SET @a = 5", Some("5")),
        ("SET @a = -5.5", Some("-5.5")),
        ("SET @a := 'x'", Some("_utf8mb4 x'78' COLLATE `utf8mb4_general_ci`")),
        ("SET @a = NULL", Some("_binary'',@`a`=NULL")),
        ("SET @a = UUID()", None),
        ("SET @a = @b", None),
        ("SET @a = (SELECT 1)", None),
    ] {
        let mut bed = Bed::new("").on(MariaDb);
        bed.ran(text, &ok());
        assert_eq!(carried(&bed, "a").as_deref(), expected, "{text}");
        assert_eq!(bed.pins().is_empty(), expected.is_some(), "{text}");
        assert_eq!(bed.at.backend.as_ref().unwrap().core.held.state().user_variables, bed.wants.state.user_variables, "{text}");
    }
}

#[tokio::test]
async fn a_null_keeps_the_type_of_its_variable() {
    let mut bed = Bed::new("").on(MySql);
    bed.ran("SET @a = NULL", &ok());
    assert!(is_bare_null(carried(&bed, "a").unwrap().as_bytes()));
    bed.ran("SET @a = 5", &ok());
    bed.ran("SET @a = NULL", &ok());
    assert_eq!(carried(&bed, "a").as_deref(), Some("5,@`a`=NULL"));
    bed.ran("SET @a = UUID()", &ok());
    bed.ran("SET @a = NULL", &ok());
    assert_eq!(bed.effects().user_variables().null_for("a"), None, "which type it has is not known");
    assert_eq!(bed.pins(), ["user_variable"]);
}

#[tokio::test]
async fn so_many_user_variables_are_carried_and_no_longer_ones() {
    let mut bed = Bed::new("").on(MySql);
    let bed = &mut *bed;
    let carry = |bed: &mut crate::session::Session, name: &str, literal: &str| bed.effects().user_variables().assign(name, literal);
    let long = format!("'{}'", "x".repeat(64 << 10));
    assert!(!carry(bed, "a", &long));
    for i in 0..session_state::state::MOST_USER_VARIABLES {
        assert!(carry(bed, &format!("v{i}"), "1"), "{i}");
    }
    assert!(!carry(bed, "one_more", "1"));
    assert!(carry(bed, "v0", "2"), "it has its place");
}

#[tokio::test]
async fn a_set_that_failed_may_have_left_what_came_before() {
    for (text, code, expected) in [
        ("SET sql_mode = 'nonsense'", 1231, &[][..]),
        ("SET nonsense = 1", 1193, &[]),
        // It is asked which of them are in force.
        ("SET unique_checks = 1, sql_mode = 'nonsense'", 1231, &[]),
        ("SET @a = 1, sql_mode = 'nonsense'", 1231, &["user_variable"]),
        // Those act once: no question tells whether they did.
        ("SET timestamp = 5, sql_mode = 'nonsense'", 1231, &["session_state"]),
        ("SET insert_id = 5, sql_mode = 'nonsense'", 1231, &["session_state"]),
        ("SET sql_mode = (@a := 'nonsense')", 1231, &["user_variable", "session_state"]),
    ] {
        let mut bed = Bed::new("").on(MySql);
        bed.ran(text, &error(code));
        assert_eq!(bed.pins(), expected, "{text}");
    }
}

#[test]
fn a_set_that_a_server_took_means_the_same_in_any_session() {
    let is_repeatable = |text: &str, reply: &ReplyFacts| {
        let all = assignments(text.as_bytes(), &analysis(text), LexMode::default());
        Wants::default().repeatable_effect(&all, reply, &[]).is_some()
    };
    for (text, variables, expected) in [
        ("SET time_zone = '+02:00'", &[("time_zone", "+02:00")][..], true),
        ("SET sql_mode = 'ANSI', autocommit = 0", &[("sql_mode", "ANSI"), ("autocommit", "OFF")], true),
        ("SET optimizer_switch = 'mrr=on'", &[("optimizer_switch", "mrr=on,index_merge=off")], false),
        ("SET sql_mode = DEFAULT", &[("sql_mode", "ANSI")], false),
        ("SET sql_mode = CONCAT(@@sql_mode, ',ANSI')", &[("sql_mode", "ANSI")], false),
        ("SET insert_id = 5", &[("insert_id", "5")], false),
        ("SET timestamp = 5", &[("timestamp", "5")], false),
        ("SET GLOBAL sql_mode = 'ANSI'", &[], false),
        ("SET CHARACTER SET latin1", &[("character_set_client", "latin1")], false),
        ("SET max_join_size = 5", &[("max_join_size", "5"), ("sql_big_selects", "OFF")], false),
        // Something else did that.
        ("SET time_zone = '+02:00'", &[("time_zone", "+02:00"), ("sql_mode", "ANSI")], false),
    ] {
        assert_eq!(is_repeatable(text, &told(variables)), expected, "{text}");
    }
}

#[test]
fn a_session_takes_its_collations_to_servers_that_do_not_know_them() {
    let (mysql, mariadb) = (info(MySql, "9.7.0"), info(MariaDb, "10.11.6"));
    let mut wants = Wants::default();
    wants.state.variables.set("collation_connection", Some(b"utf8mb4_0900_ai_ci"));
    assert!(!wants.come_to(&mysql) && wants.stand_ins.is_none());
    wants.come_to(&mariadb);
    let collation = |wants: &Wants| wants.state.variables.get("collation_connection").unwrap().to_vec();
    assert_eq!((collation(&wants), wants.stand_ins.is_some()), (b"utf8mb4_general_ci".to_vec(), true));
    wants.come_to(&mysql);
    assert_eq!((collation(&wants), wants.stand_ins.is_none()), (b"utf8mb4_0900_ai_ci".to_vec(), true));
    // What is a function of the one is a stored function of the other.
    let mut wants = Wants { family: mariadb.family, ..Wants::default() };
    wants.lex.builtins = sql::Builtins::MariaDb;
    assert!(wants.come_to(&mysql) && !wants.come_to(&mariadb), "it was read as one for another flavor, once");
}

#[test]
fn a_prepared_text_leaves_what_its_statement_leaves() {
    use session_state::pins::Trace;
    for (text, expected) in [
        ("PREPARE s FROM 'SELECT a FROM t'", Trace::Nothing),
        ("PREPARE s FROM 'INSERT INTO t VALUES (?)'", Trace::Nothing),
        ("PREPARE s FROM 'SET @a = 1'", Trace::State),
        ("PREPARE s FROM 'SELECT @a := 1'", Trace::State),
        ("PREPARE s FROM 'SELECT GET_LOCK(1, 1)'", Trace::State),
        ("PREPARE s FROM 'SELECT f()'", Trace::State),
        ("PREPARE s FROM 'CREATE TEMPORARY TABLE t (a INT)'", Trace::Definition),
        ("PREPARE s FROM 'CREATE FUNCTION f() RETURNS INT RETURN 1'", Trace::Definition),
        ("PREPARE s FROM 'CALL p()'", Trace::Anything),
        ("PREPARE s FROM 'SET ROLE r'", Trace::Anything),
        ("PREPARE s FROM @text", Trace::Anything),
    ] {
        assert_eq!(Wants::default().trace_of(text.as_bytes()), expected, "{text}");
    }
}

#[tokio::test]
async fn a_schema_that_was_entered_and_left_explains_a_change() {
    let moved = |schema: &str| ReplyFacts { schema: Some(schema.as_bytes().into()), state_change: true, ..ok() };
    let bed = Bed::new("");
    assert!(bed.wants.returns_to_its_schema(&moved("shop")));
    assert!(!bed.wants.returns_to_its_schema(&moved("other")) && !bed.wants.returns_to_its_schema(&ok()));
    for (text, reply, expected) in [
        ("SELECT f()", moved("shop"), true),
        ("CALL p()", moved("shop"), true),
        // Views are opened, and nothing in them runs.
        ("SELECT COUNT(*) FROM information_schema.COLUMNS", moved("shop"), true),
        ("SHOW TABLE STATUS FROM other", moved("shop"), true),
        ("SHOW COLUMNS FROM other.v", moved("shop"), true),
        ("DESCRIBE other.v", moved("shop"), true),
        ("SELECT user FROM mysql.user", moved("shop"), true),
        ("SELECT 1 FROM mysql.user, other.v", moved("shop"), false),
        ("SELECT 1 FROM mysql.v", moved("shop"), false),
        ("SELECT 1 FROM user", moved("shop"), false),
        ("SHOW TABLE STATUS FROM other WHERE Name = (SELECT a FROM v)", moved("shop"), false),
        ("EXPLAIN SELECT a FROM v", moved("shop"), false),
        ("ANALYZE SELECT a FROM v", moved("shop"), false),
        ("SHOW COLUMNS FROM other.v", moved("other"), true),
        // A trigger or a view may have run.
        ("INSERT INTO t VALUES (1)", moved("shop"), false),
        ("SELECT a FROM v", moved("shop"), false),
        ("CREATE TABLE t (a INT)", moved("shop"), false),
        ("SELECT f(@a)", moved("shop"), false),
        ("CALL p()", ReplyFacts { is_garbled: true, ..moved("shop") }, false),
        ("CALL p()", ReplyFacts { variables: told(&[("sql_mode", "")]).variables, ..moved("shop") }, false),
    ] {
        assert_eq!(bed.wants.only_moved(text.as_bytes(), &analysis(text), &reply), expected, "{text}");
    }
}

#[tokio::test]
async fn tracking_that_stored_code_changed_tells_no_more() {
    let schema = "session_track_schema";
    for (text, value, expected) in
        [("INSERT INTO t VALUES (1)", "OFF", true), ("INSERT INTO t VALUES (1)", "ON", false), ("CALL p()", "OFF", true)]
    {
        let mut bed = Bed::new("").on(MySql);
        bed.ran(text, &ReplyFacts { state_change: false, ..told(&[(schema, value)]) });
        assert_eq!(bed.pins().contains(&"session_state"), expected, "{text} {value}");
    }
    let mut bed = Bed::new("").on(MySql);
    bed.ran("SET session_track_schema = OFF", &told(&[(schema, "OFF")]));
    assert!(bed.pins().is_empty());
    assert_eq!(bed.at.backend.as_ref().unwrap().core.held.tracking(), Tracking::Clients, "a statement may show it");
    assert!(bed.client.tracking_wish.as_ref().is_some_and(|wish| !wish.schema));
}

#[tokio::test]
async fn while_the_clients_tracking_holds_other_code_is_not_believed_to_be_silent() {
    for (text, expected) in [
        ("SET session_track_schema = OFF, NAMES latin1", false),
        ("SET session_track_schema = OFF; SET NAMES latin1; SELECT 1", false),
        ("SELECT @@session_track_schema", false),
        ("SHOW VARIABLES LIKE 'session_track%'", false),
        ("SELECT * FROM performance_schema.session_variables", false),
        ("BEGIN; SET session_track_schema = OFF; COMMIT", false),
        ("SET session_track_schema = (SELECT a FROM v)", true),
        ("SET session_track_schema = f()", true),
        ("SET session_track_schema = OFF, nonsense", true),
        ("INSERT INTO t VALUES (@@session_track_schema)", true),
        ("SELECT 1; UPDATE t SET a = @@session_track_schema", true),
        ("SELECT @@session_track_schema FROM v", true),
        ("SELECT * FROM performance_schema.session_variables, v", true),
        ("SET session_track_schema = OFF; DROP SCHEMA shop", true),
        ("SET session_track_schema = OFF; /*!80000 USE other */", true),
        ("SET session_track_system_variables = ''; SET sql_mode = 'ANSI'; SELECT \"a\"", true),
        ("SET session_track_system_variables = ''; SET sql_mode = 4; SELECT 1", true),
        ("SET session_track_system_variables = ''; SET NAMES gbk; SELECT 'a'", true),
    ] {
        let mut bed = Bed::new("").on(MariaDb);
        bed.at.backend.as_mut().unwrap().core.held.client_chose_tracking();
        bed.ran(text, &ok());
        assert_eq!(bed.pins().contains(&"session_state"), expected, "{text}");
    }
    let mut bed = Bed::new("").on(MariaDb);
    bed.ran("INSERT INTO t VALUES (1)", &ok());
    assert!(bed.pins().is_empty(), "under the proxy's own settings silence is believed");
    let mut bed = Bed::new("").on(MySql);
    bed.at.backend.as_mut().unwrap().core.held.client_chose_tracking();
    bed.ran("SET session_track_schema = OFF; USE other", &ok());
    assert_eq!(bed.wants.state.schema.as_deref(), Some(&b"other"[..]), "no server reports it");
}

#[tokio::test]
async fn a_mode_that_a_text_gives_untold_may_be_any_that_reads_text() {
    for (mode, expected) in [
        ("'STRICT_ALL_TABLES'", false),
        ("''", false),
        ("'ANSI'", true),
        ("'MSSQL'", true),
        ("'DB2,STRICT_ALL_TABLES'", true),
        ("'maxdb'", true),
        ("POSTGRESQL", true),
        ("4", true),
        ("_latin1 0x414e5349", true),
        ("DEFAULT", true),
    ] {
        let mut bed = Bed::new("").on(MariaDb);
        bed.ran(&format!("SET @@sql_mode = {mode}; SELECT 1"), &ok());
        assert_eq!(bed.pins().contains(&"session_state"), expected, "{mode}");
    }
}

#[tokio::test]
async fn a_transaction_that_follows_another_at_once_has_its_own_time() {
    for (text, reply, expected) in [
        ("COMMIT AND CHAIN", ok_open(), true),
        ("ROLLBACK AND CHAIN", ok_open(), true),
        ("BEGIN", ok_open(), true),
        ("START TRANSACTION READ ONLY", ok_open(), true),
        ("COMMIT; BEGIN", ok_open(), true),
        ("INSERT INTO t VALUES (1); COMMIT; BEGIN; INSERT INTO t VALUES (2)", ok_open(), true),
        ("INSERT INTO t VALUES (1)", ok_open(), false),
        ("ROLLBACK TO s", ok_open(), false),
        ("SAVEPOINT s; ROLLBACK TO s", ok_open(), false),
        ("/*!80000 COMMIT AND CHAIN */", ok_open(), false),
        ("COMMIT; BEGIN", error(1064), false),
    ] {
        let mut bed = Bed::new("").on(MySql);
        bed.ran("BEGIN", &ok_open());
        bed.handle.set_transaction(false, 0);
        bed.handle.set_transaction(true, 7);
        bed.ran(text, &reply);
        assert_eq!(bed.handle.transaction_since_ms() != 7, expected, "{text}");
        assert!(bed.pins().contains(&"transaction"), "{text}");
    }
}

#[test]
fn a_text_means_the_same_under_ordinary_settings() {
    let mut wants = Wants::default();
    for (mode, sql, expected) in [
        (None, "SET sql_mode = 'ANSI'", true),
        (Some("default_collation_for_utf8mb4"), "SET NAMES utf8mb4", false),
        (Some("old_mode"), "SET NAMES utf8", false),
        (Some("time_zone"), "SET NAMES utf8", true),
    ] {
        wants.state = Default::default();
        mode.iter().for_each(|name| wants.state.variables.set(name, Some(b"x")));
        assert_eq!(wants.state_is_ordinary(sql.as_bytes()), expected, "{mode:?} {sql}");
    }
    wants.lex = LexMode { ansi_quotes: true, ..LexMode::default() };
    assert!(!wants.state_is_ordinary(b"SET sql_mode = \"ANSI\""), "quotes mean something else");
}
