use super::*;
use crate::session::bed::{Bed, HOME, OTHER, analysis, rows};
use wire::charset::Flavor::MySql;

const READS_TO_OTHER: &str = "mysql_query_rules = ( { rule_id=1, active=1, match_digest=\"^SELECT\", destination_hostgroup=2, apply=1 } )";
const CLUSTER: &str = "mysql_replication_hostgroups = ( { writer_hostgroup=1, reader_hostgroup=2 } )";
const SPLIT: &str = r#"{ username="anna", password="x", default_hostgroup=1,
    attributes="{\"read_write_split\": {\"writer\": 1, \"reader\": 2}, \"safe_functions\": [\"harmless\"]}" }"#;

impl Bed {
    fn decided(&self, text: &str, phase: TextCommand) -> Decision {
        let asked = StatementText { text: text.as_bytes(), analysis: &self.analysis(text), phase };
        self.router().decide(&self.worker.in_force(), asked, None)
    }

    fn goes_to(&self, text: &str) -> HostgroupId {
        self.decided(text, TextCommand::Query).hostgroup
    }
}

fn goes_home(config: &str) -> bool {
    let session = &mut *Bed::new(config);
    session.hand.goes_home_undirected(&mut session.at)
}

#[tokio::test]
async fn without_rules_all_goes_home_undecided() {
    assert!(goes_home(""));
    assert!(!goes_home(READS_TO_OTHER));
    assert!(!goes_home("mysql_variables = { default_query_delay = 5 }"), "a delay is a direction");
    let bed = Bed::new("");
    for text in ["SELECT 1", "BEGIN", "SET @a = 1", "nonsense"] {
        let decision = bed.decided(text, TextCommand::Query);
        assert_eq!((decision.hostgroup, decision.directions), (HOME, Directions::default()), "{text}");
    }
}

#[tokio::test]
async fn a_split_sends_what_only_reads_to_readers() {
    let bed = Bed::of_user(SPLIT, "");
    for (text, expected) in [
        ("SELECT a FROM t", OTHER),
        ("SELECT NOW(), COUNT(*) FROM t", OTHER),
        ("SELECT harmless(a) FROM t", OTHER),
        ("SELECT a FROM t FOR UPDATE", HOME),
        ("SELECT a FROM t LOCK IN SHARE MODE", HOME),
        ("SELECT unknown(a) FROM t", HOME),
        ("SELECT GET_LOCK('a', 1)", HOME),
        ("SELECT @@server_id", HOME),
        ("SELECT a INTO OUTFILE 'f' FROM t", HOME),
        ("SELECT a INTO @a FROM t", HOME),
        ("SHOW TABLES", HOME),
        ("INSERT INTO t VALUES (1)", HOME),
        ("SELECT 1; DELETE FROM t", HOME),
        ("BEGIN", HOME),
        ("START TRANSACTION READ ONLY", OTHER),
        ("START TRANSACTION READ WRITE", HOME),
        ("SET @a = 1", HOME),
        ("USE shop", HOME),
        ("CREATE TABLE t (a INT)", HOME),
    ] {
        assert_eq!(bed.goes_to(text), expected, "{text}");
    }
    let read = bed.decided("SELECT a FROM t", TextCommand::Query);
    assert_eq!(read.directions.writer, Some(HOME), "if a reader refuses it");
    assert_eq!(bed.decided("DELETE FROM t", TextCommand::Query).directions.writer, None);
    assert_eq!(bed.decided("SELECT a FROM t", TextCommand::Cursor).hostgroup, HOME, "what follows until it is closed may write");
    assert_eq!(bed.decided("SELECT a FROM t", TextCommand::Execution).hostgroup, OTHER);
}

#[tokio::test]
async fn a_split_keeps_reads_with_what_the_writer_has_of_the_session() {
    let mut bed = Bed::of_user(SPLIT, "").on(MySql);
    bed.ran("CREATE TEMPORARY TABLE u (a INT)", &crate::session::bed::ok());
    assert_eq!(bed.goes_to("SELECT a FROM t"), HOME);
    let mut bed = Bed::of_user(SPLIT, "").on(MySql);
    bed.pin(&[PinReason::MultiplexingOff]);
    assert_eq!(bed.goes_to("SELECT a FROM t"), OTHER, "a wish keeps no statement");
    let mut bed = Bed::of_user(SPLIT, "");
    bed.client.status = StatusFlags::default();
    assert_eq!(bed.goes_to("SELECT a FROM t"), HOME, "with autocommit off it begins a transaction, which may write");
}

#[tokio::test]
async fn a_destination_of_a_rule_is_not_split() {
    let rule = "mysql_query_rules = ( { rule_id=1, active=1, match_digest=\"^SELECT a FROM special\", destination_hostgroup=1, apply=1 } )";
    let bed = Bed::of_user(SPLIT, rule);
    assert_eq!((bed.goes_to("SELECT a FROM special"), bed.goes_to("SELECT a FROM t")), (HOME, OTHER));
    assert_eq!(bed.decided("SELECT a FROM special", TextCommand::Query).directions.rule.map(u32::from), Some(1));
}

#[tokio::test]
async fn with_autocommit_off_a_transaction_begins_where_it_may_write() {
    let off = |config: &str| {
        let mut bed = Bed::new(&format!("{READS_TO_OTHER}\n{config}"));
        bed.client.status = StatusFlags::default();
        bed
    };
    let counts = "mysql_variables = { autocommit_false_is_transaction = true }";
    let enforced = "mysql_variables = { enforce_autocommit_on_reads = true }";
    for (config, text, expected, alone) in [
        ("", "SELECT a FROM t", OTHER, true),
        ("", "SELECT a FROM t FOR UPDATE", OTHER, false),
        ("", "UPDATE t SET a = 1", HOME, false),
        (CLUSTER, "SELECT a FROM t", OTHER, true),
        // What locks begins a transaction, and none among readers.
        (CLUSTER, "SELECT a FROM t FOR UPDATE", HOME, false),
        (counts, "SELECT a FROM t", HOME, false),
        (enforced, "SELECT a FROM t", HOME, false),
    ] {
        let decision = off(config).decided(text, TextCommand::Query);
        assert_eq!((decision.hostgroup, decision.directions.alone), (expected, alone), "{config}: {text}");
    }
    assert!(!Bed::new(READS_TO_OTHER).decided("SELECT a FROM t", TextCommand::Query).directions.alone, "autocommit is on anyway");
    assert!(!off("").decided("SELECT a FROM t", TextCommand::Cursor).directions.alone, "its rows come later");
}

#[tokio::test]
async fn what_rules_and_comments_say_is_followed() {
    let rules = r#"mysql_query_rules = (
        { rule_id=1, active=1, match_digest="^DELETE", error_msg="not today", apply=1 },
        { rule_id=2, active=1, match_digest="^UPDATE", retries=0, timeout=1500, multiplex=0, log=1, apply=1 },
        { rule_id=3, active=1, match_digest="^SELECT .* FROM cached", cache_ttl=2000, cache_empty_result=0, apply=1 },
        { rule_id=4, active=1, match_pattern="old", replace_pattern="new", apply=1 } )"#;
    let bed = Bed::new(rules);
    let decided = |text| bed.decided(text, TextCommand::Query);
    assert_eq!(decided("DELETE FROM t").route.unwrap().error_msg.as_deref(), Some("not today"));
    let update = decided("UPDATE t SET a = 1");
    assert_eq!((update.directions.retries, update.directions.multiplex), (Some(0), Some(RuleMultiplex::Off)));
    assert_eq!((update.directions.log, update.route.unwrap().timeout_ms), (Some(true), Some(1500)));
    let cached = decided("SELECT a FROM cached").directions;
    assert_eq!((cached.cache_ttl_ms.map(u32::from), cached.cache_empty_result), (Some(2000), Some(false)));
    assert_eq!(decided("SELECT a FROM old").route.unwrap().rewritten.as_deref(), Some(&b"SELECT a FROM new"[..]));
    assert!(decided("SELECT 1").route.is_none());
    let comment = "SELECT /* hostgroup=2 */ 1";
    let obeys = r#"{ username="anna", password="x", default_hostgroup=1, attributes="{\"comment_directives\": true}" }"#;
    assert_eq!((Bed::of_user(obeys, "").goes_to(comment), Bed::new(rules).goes_to(comment)), (OTHER, HOME));
}

#[tokio::test]
async fn a_rewritten_statement_is_judged_as_the_server_gets_it() {
    let rules = r#"mysql_query_rules = (
        { rule_id=1, active=1, match_pattern="FROM jobs$", replace_pattern="FROM jobs FOR UPDATE", apply=1 } )"#;
    let mut bed = Bed::of_user(SPLIT, rules);
    for (text, expected) in [("SELECT a FROM jobs", HOME), ("SELECT a FROM others", OTHER)] {
        let decided = [TextCommand::Query, TextCommand::Prepare].map(|phase| bed.decided(text, phase).hostgroup);
        assert_eq!(decided, [expected; 2], "{text}");
    }
    bed.client.status = StatusFlags::default();
    assert!(!bed.decided("SELECT a FROM jobs", TextCommand::Query).directions.alone, "its locks are the transaction's");
}

/// The rules that had sent the session elsewhere are removed.
#[tokio::test]
async fn what_is_left_elsewhere_is_found_without_rules() {
    let mut bed = Bed::new("").on(MySql);
    bed.door().travel(OTHER).await;
    bed.connect(MySql);
    bed.pin(&[PinReason::Rule]);
    {
        let session = &mut *bed;
        assert!(!session.hand.goes_home_undirected(&mut session.at));
    }
    assert_eq!(bed.goes_to("INSERT INTO t VALUES (1)"), HOME);
    bed.ran("SELECT GET_LOCK('a', 1)", &rows(1));
    bed.door().travel(HOME).await;
    assert_eq!((bed.at.pool.shared.id, bed.goes_to("SELECT RELEASE_LOCK('a')"), bed.goes_to("SELECT 1")), (HOME, OTHER, HOME));
}

#[tokio::test]
async fn a_comment_creates_no_hostgroup() {
    let obeys = r#"{ username="anna", password="x", default_hostgroup=1, attributes="{\"comment_directives\": true}" }"#;
    let bed = Bed::of_user(obeys, "");
    let known = bed.worker.shared.hostgroups().len();
    let decided = bed.decided("/* hostgroup=4711 */ SELECT 1", TextCommand::Query);
    assert_eq!(decided.hostgroup, HOME);
    assert!(decided.route.unwrap().error_msg.unwrap().contains("no hostgroup 4711 is configured"));
    assert_eq!(bed.decided("/* mirror=4711 */ SELECT 1", TextCommand::Query).directions.mirror, None);
    assert!(bed.decided("/* mirror=2 */ SELECT 1", TextCommand::Query).directions.mirror.is_some());
    assert_eq!(bed.worker.shared.hostgroups().len(), known);
}

#[test]
fn what_only_changes_the_session_is_carried_to_any_server() {
    for (text, expected) in [
        ("USE shop", true),
        ("SET NAMES utf8mb4", true),
        ("SET @a = 1", true),
        ("SET sql_mode = 'ANSI', @a = 'x'", true),
        ("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", true),
        // For the transaction that comes next, where it runs.
        ("SET TRANSACTION READ ONLY", false),
        ("SET GLOBAL max_connections = 1", false),
        ("SET PERSIST max_connections = 1", false),
        ("SET @a = (SELECT MAX(a) FROM t)", false),
        ("SET @a = UUID()", false),
        ("SET insert_id = 7", false),
        ("SET sql_mode = ''; DELETE FROM t", false),
        ("SELECT 1", false),
    ] {
        let wants = Wants::default();
        assert_eq!(wants.only_changes_session(text.as_bytes(), &analysis(text)), expected, "{text}");
    }
}

#[tokio::test]
async fn a_rule_keeps_the_connection_that_a_session_holds() {
    let rule = "mysql_query_rules = ( { rule_id=1, active=1, match_digest=\"^SELECT\", multiplex=0, apply=1 } )";
    let mut bed = Bed::new(rule).on(MySql);
    bed.hand.directions = bed.decided("SELECT 1", TextCommand::Query).directions;
    bed.ran("SELECT 1", &rows(1));
    let select = bed.analysis("SELECT 1");
    {
        let session = &mut *bed;
        session.hand.note_rule(&mut session.at, &select)
    };
    assert_eq!(bed.pins(), ["rule"]);
    let mut bed = Bed::new(rule);
    bed.hand.directions.multiplex = Some(RuleMultiplex::Off);
    {
        let session = &mut *bed;
        session.hand.note_rule(&mut session.at, &select)
    };
    assert!(bed.pins().is_empty(), "there is no connection to keep");
}
