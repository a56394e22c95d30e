//! Table-driven tests of the statement parsers.

use sql::*;

const MODE: LexMode = LexMode {
    ansi_quotes: false,
    no_backslash_escapes: false,
    oracle: false,
    multi_byte: MultiByte::Plain,
    ignore_space: false,
    brackets: false,
    builtins: Builtins::Common,
};

fn session(name: &str, value: Value) -> Assignment {
    Assignment { target: Target::Session(name.into()), value }
}

fn word(text: &str) -> Value {
    Value::Word(text.into())
}

fn literal(text: &str) -> Value {
    Value::Literal(text.into())
}

#[test]
fn set_understood() {
    let names = |charset: Option<&str>, collation: Option<&str>| Target::Names {
        charset: charset.map(Into::into),
        collation: collation.map(Into::into),
    };
    let cases: Vec<(&str, Vec<Assignment>)> = vec![
        ("SET autocommit=0", vec![session("autocommit", literal("0"))]),
        (
            "set SESSION SQL_MODE = 'ANSI', wait_timeout := 5;",
            vec![session("sql_mode", literal("'ANSI'")), session("wait_timeout", literal("5"))],
        ),
        (
            "SET @@session.x=ON, @@y=DEFAULT, @@local.z=-1.5",
            vec![session("x", word("ON")), session("y", Value::Default), session("z", literal("-1.5"))],
        ),
        (
            "SET x=NULL, y=TRUE, z=0x41, w=_utf8mb4'x'",
            vec![
                session("x", literal("NULL")),
                session("y", literal("TRUE")),
                session("z", literal("0x41")),
                session("w", literal("_utf8mb4'x'")),
            ],
        ),
        (
            "SET x=CONCAT(@@x,',STRICT'), y=@a, z=1+1",
            vec![session("x", Value::Expression), session("y", Value::Expression), session("z", Value::Expression)],
        ),
        ("SET `x` = `abc`", vec![session("x", word("abc"))]),
        (
            "SET @@tx_read_only=1, tx_read_only=1",
            vec![
                Assignment { target: Target::NextTransaction("tx_read_only".into()), value: literal("1") },
                session("tx_read_only", literal("1")),
            ],
        ),
        ("SET GLOBAL x=1", vec![Assignment { target: Target::Global("x".into()), value: literal("1") }]),
        ("SET @@global.x=1", vec![Assignment { target: Target::Global("x".into()), value: literal("1") }]),
        ("SET PERSIST x=1", vec![Assignment { target: Target::Persist("x".into()), value: literal("1") }]),
        (
            "SET @A='b', @`c d`=2, @'e'=3",
            vec![
                Assignment { target: Target::User("a".into()), value: literal("'b'") },
                Assignment { target: Target::User("c d".into()), value: literal("2") },
                Assignment { target: Target::User("e".into()), value: literal("3") },
            ],
        ),
        ("SET NAMES utf8mb4", vec![Assignment { target: names(Some("utf8mb4"), None), value: word("utf8mb4") }]),
        ("SET NAMES 'UTF8' COLLATE 'utf8_bin'", vec![Assignment { target: names(Some("utf8"), Some("utf8_bin")), value: word("utf8") }]),
        ("SET NAMES DEFAULT", vec![Assignment { target: names(None, None), value: Value::Default }]),
        ("/*!40101 SET NAMES binary */;", vec![Assignment { target: names(Some("binary"), None), value: word("binary") }]),
        ("SET CHARACTER SET latin1", vec![Assignment { target: Target::CharacterSet(Some("latin1".into())), value: word("latin1") }]),
        ("SET charset DEFAULT", vec![Assignment { target: Target::CharacterSet(None), value: Value::Default }]),
        (
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY",
            vec![Assignment {
                target: Target::TransactionSession { isolation: Some("READ-COMMITTED".into()), read_only: Some(true) },
                value: Value::Default,
            }],
        ),
        (
            "SET GLOBAL TRANSACTION READ WRITE",
            vec![Assignment { target: Target::Global("transaction_read_only".into()), value: word("OFF") }],
        ),
        (
            "SET NAMES utf8, autocommit=1",
            vec![Assignment { target: names(Some("utf8"), None), value: word("utf8") }, session("autocommit", literal("1"))],
        ),
    ];
    for (text, want) in cases {
        assert_eq!(parse_set(text.as_bytes(), MODE), Some(want), "{text}");
    }
}

#[test]
fn set_not_understood() {
    let cases = [
        "SELECT 1",
        "SET",
        "SET x",
        "SET x=",
        "SET x=1,",
        "SET x=1; SELECT 1",
        "SET TRANSACTION READ ONLY",
        "SET PASSWORD = 'x' FOR y",
        "SET ROLE x",
        "SET hot.key_buffer_size=1",
        "SET GLOBAL x=1, y=2",
        "SET STATEMENT x=1 FOR SELECT 1",
        "SET x=1)",
        "SET RESOURCE GROUP g",
        "SET NAMES",
        "SET @@a.b.c=1",
    ];
    for text in cases {
        let got = parse_set(text.as_bytes(), MODE);
        assert!(got.is_none(), "{text}: {got:?}");
    }
}

#[test]
fn one_shot_transaction() {
    let parse = |text: &str| parse_set_transaction(text.as_bytes(), MODE);
    let want = TransactionTraits { isolation: Some("SERIALIZABLE".into()), read_only: None };
    assert_eq!(parse("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"), Some(want));
    assert_eq!(parse("SET SESSION TRANSACTION READ ONLY"), None);
    assert_eq!(parse("SET TRANSACTION ISOLATION LEVEL CHAOS"), None);
}

#[test]
fn uses() {
    let parse = |text: &str| parse_use(text.as_bytes(), MODE);
    assert_eq!(parse("use db"), Some(b"db".to_vec()));
    assert_eq!(parse(" /* x */ USE `a``b` ;"), Some(b"a`b".to_vec()));
    assert_eq!(parse("USE 1db"), Some(b"1db".to_vec()));
    assert_eq!(parse("use a b"), None);
    assert_eq!(parse("use a; select 1"), None);
}

#[test]
fn kills() {
    let parse = |text: &str| parse_kill(text.as_bytes(), MODE, 9);
    let hard = |target| Some(Kill { target, soft: false });
    assert_eq!(parse("KILL 5"), hard(KillTarget::Connection(5)));
    assert_eq!(parse("kill connection 5;"), hard(KillTarget::Connection(5)));
    assert_eq!(parse("KILL QUERY 7"), hard(KillTarget::Query(7)));
    assert_eq!(parse("KILL HARD QUERY 7"), hard(KillTarget::Query(7)));
    assert_eq!(parse("KILL SOFT 7"), Some(Kill { target: KillTarget::Connection(7), soft: true }));
    assert_eq!(parse("KILL connection_id()"), hard(KillTarget::Connection(9)));
    assert_eq!(parse("KILL QUERY `CONNECTION_ID`( )"), hard(KillTarget::Query(9)));
    for text in [
        "KILL",
        "KILL @a",
        "KILL CONNECTION_ID()+1",
        "KILL ROW_COUNT()",
        "KILL CONNECTION_ID",
        "KILL 5+1",
        "KILL QUERY ID 5",
        "KILL USER bob",
        "KILL -5",
        "KILL 1.5",
    ] {
        assert_eq!(parse(text), None, "{text}");
    }
}

#[test]
fn transactions() {
    let parse = |text: &str| parse_transaction(text.as_bytes(), MODE);
    let none = TransactionControl::default();
    assert_eq!(parse("BEGIN"), none);
    assert_eq!(
        parse("START TRANSACTION READ ONLY, WITH CONSISTENT SNAPSHOT"),
        TransactionControl { read_only: Some(true), consistent_snapshot: true, ..none }
    );
    assert_eq!(parse("START TRANSACTION READ WRITE").read_only, Some(false));
    assert_eq!(parse("COMMIT AND CHAIN").chain, Some(true));
    assert_eq!(parse("COMMIT WORK AND NO CHAIN RELEASE"), TransactionControl { chain: Some(false), release: Some(true), ..none });
    assert_eq!(parse("ROLLBACK NO RELEASE").release, Some(false));
}

#[test]
fn temporary() {
    let parse = |text: &str| {
        let tables = temporary_tables(text.as_bytes(), MODE).into_iter();
        tables.map(|(schema, table)| schema.map_or(table.clone(), |schema| format!("{schema}.{table}"))).collect::<Vec<_>>()
    };
    assert_eq!(parse("CREATE TEMPORARY TABLE T (a int)"), ["T"]);
    assert_eq!(parse("CREATE OR REPLACE TEMPORARY TABLE `D`.`T` AS SELECT 1"), ["D.T"]);
    assert_eq!(parse("create temporary table if not exists a.b like c"), ["a.b"]);
    assert_eq!(parse("DROP TEMPORARY TABLE IF EXISTS a, B.c"), ["a", "B.c"]);
    assert_eq!(parse("DROP TABLES a RESTRICT"), ["a"]);
    assert!(parse("CREATE TABLE a (b int)").is_empty());
    assert!(parse("DROP VIEW a").is_empty());
}

#[test]
fn locks() {
    let parse = |text: &str| lock_names(text.as_bytes(), MODE);
    let name = |text: &str| Some(text.to_owned());
    assert_eq!(parse("SELECT GET_LOCK('A''b', 10)"), [LockCall::Get(name("a'b"))]);
    assert_eq!(parse("SELECT get_lock(concat('a'), 1)"), [LockCall::Get(None)]);
    assert_eq!(parse("SELECT get_lock('a' 'b', 1)"), [LockCall::Get(None)]);
    assert_eq!(parse("DO RELEASE_LOCK('a'), release_all_locks()"), [LockCall::Release(name("a")), LockCall::ReleaseAll,]);
    assert!(parse("SELECT 'get_lock(1)'").is_empty());
    assert_eq!(parse("SELECT 1, RELEASE_LOCK('a') AS r; "), [LockCall::Release(name("a"))]);
    assert_eq!(parse("SET @a = 1, @x = GET_LOCK('a', 1)"), [LockCall::Get(name("a"))]);
    for may_not_run in [
        "SELECT IF(0, RELEASE_LOCK('a'), 1)",
        "SELECT RELEASE_LOCK('a') FROM t WHERE 0",
        "SELECT RELEASE_LOCK('a') WHERE 0",
        "SELECT RELEASE_ALL_LOCKS() LIMIT 0",
        "SELECT 0 AND RELEASE_LOCK('a')",
        "SELECT RELEASE_LOCK('a') AND 0",
        "SELECT CASE WHEN 0 THEN RELEASE_LOCK('a') END",
        "SELECT (SELECT RELEASE_LOCK('a'))",
        "SET @x = IF(0, RELEASE_LOCK('a'), 1)",
        "EXPLAIN SELECT RELEASE_ALL_LOCKS()",
        "CREATE VIEW v AS SELECT RELEASE_LOCK('a')",
        "UPDATE t SET a = RELEASE_LOCK('a')",
        "PREPARE s FROM 'DO 1' /* DO */, RELEASE_LOCK('a')",
    ] {
        assert_eq!(parse(may_not_run), [LockCall::Release(None)], "{may_not_run}");
    }
    for may_run_often in [
        "SELECT GET_LOCK('a', 0) FROM t",
        "SELECT NULLIF(GET_LOCK('a', 0), 1)",
        "DO BENCHMARK(3, GET_LOCK('a', 0))",
        "SELECT 1 WHERE GET_LOCK('a', 0)",
        "INSERT INTO t VALUES (GET_LOCK('a', 0))",
    ] {
        assert_eq!(parse(may_run_often), [LockCall::Get(None)], "{may_run_often}");
    }
    assert!(parse("CREATE PROCEDURE p() BEGIN DO GET_LOCK('a', 0); DO RELEASE_ALL_LOCKS(); END").is_empty());
}

#[test]
fn prepared() {
    let parse = |text: &str| prepared_name(text.as_bytes(), MODE);
    assert_eq!(parse("PREPARE S1 FROM 'select 1'").as_deref(), Some("s1"));
    assert_eq!(parse("EXECUTE `S 1` USING @a").as_deref(), Some("s 1"));
    assert_eq!(parse("DEALLOCATE PREPARE s").as_deref(), Some("s"));
    assert_eq!(parse("drop prepare s;").as_deref(), Some("s"));
    assert_eq!(parse("EXECUTE IMMEDIATE 'select 1'"), None);
    assert_eq!(parse("DROP TABLE s"), None);
}

#[test]
fn single_facts() {
    let parse = |text: &str| single_fact_select(text.as_bytes(), MODE);
    let cases = [
        ("SELECT FOUND_ROWS()", Some(Fact::FoundRows)),
        ("select row_count ( ) AS n from dual;", Some(Fact::RowCount)),
        ("SELECT CONNECTION_ID() id", Some(Fact::ConnectionId)),
        ("SELECT CONNECTION_ID() 'id'", Some(Fact::ConnectionId)),
        ("SELECT @@warning_count", Some(Fact::WarningCount)),
        ("SELECT @@session.error_count AS `from`", Some(Fact::ErrorCount)),
        ("SELECT @@global.warning_count", None),
        ("SELECT @@pseudo_thread_id", Some(Fact::PseudoThreadId)),
        ("SELECT `found_rows`()", Some(Fact::FoundRows)),
        ("SELECT FOUND_ROWS()+1", None),
        ("SELECT FOUND_ROWS(), 1", None),
        ("SELECT FOUND_ROWS() FROM t", None),
        ("SELECT FOUND_ROWS() LIMIT 1", None),
        ("SELECT LAST_INSERT_ID()", None),
        ("SELECT FOUND_ROWS(); SELECT 1", None),
    ];
    for (text, want) in cases {
        assert_eq!(parse(text), want, "{text}");
    }
}

#[test]
fn substitution() {
    let value = |fact| match fact {
        Fact::FoundRows => 7,
        Fact::RowCount => -1,
        Fact::ConnectionId | Fact::PseudoThreadId => 9,
        Fact::WarningCount => 2,
        Fact::ErrorCount => 1,
    };
    const ROWS: &str = "IF(1,-1,ROW_COUNT())";
    const FOUND: &str = "IF(1,7,FOUND_ROWS())";
    let cases = [
        ("SELECT FOUND_ROWS()", format!("SELECT {FOUND} AS `FOUND_ROWS()`")),
        ("SELECT FOUND_ROWS() AS n", format!("SELECT {FOUND} AS n")),
        ("SELECT FOUND_ROWS() n", format!("SELECT {FOUND} n")),
        ("SELECT FOUND_ROWS() 'n', 1", format!("SELECT {FOUND} 'n', 1")),
        ("SELECT 1, ROW_COUNT(), 2 FROM t", format!("SELECT 1, {ROWS} AS `ROW_COUNT()`, 2 FROM t")),
        ("SELECT FOUND_ROWS()+1;", format!("SELECT {FOUND}+1 AS `FOUND_ROWS()+1`;")),
        ("SELECT 1 + ROW_COUNT() ORDER BY 1", format!("SELECT 1 + {ROWS} AS `1 + ROW_COUNT()` ORDER BY 1")),
        ("SELECT ROW_COUNT() + 1 r", format!("SELECT {ROWS} + 1 r")),
        ("SELECT ROW_COUNT() + x LIMIT 1", format!("SELECT {ROWS} + x AS `ROW_COUNT() + x` LIMIT 1")),
        ("SELECT FOUND_ROWS() rows", format!("SELECT {FOUND} rows")),
        ("SELECT ROW_COUNT() + offset", format!("SELECT {ROWS} + offset AS `ROW_COUNT() + offset`")),
        ("SELECT ROW_COUNT() + group", format!("SELECT {ROWS} + group")),
        ("SELECT ROW_COUNT() IS NULL", format!("SELECT {ROWS} IS NULL AS `ROW_COUNT() IS NULL`")),
        ("SELECT DISTINCT ROW_COUNT() FROM t", format!("SELECT DISTINCT {ROWS} AS `ROW_COUNT()` FROM t")),
        ("SELECT IF(ROW_COUNT(), 1, 2), 3", format!("SELECT IF({ROWS}, 1, 2) AS `IF(ROW_COUNT(), 1, 2)`, 3")),
        ("SELECT ROW_COUNT() + `x`", format!("SELECT {ROWS} + `x` AS `ROW_COUNT() + ``x```")),
        ("SELECT ROW_COUNT() `x`", format!("SELECT {ROWS} `x`")),
        (
            "INSERT INTO t SELECT ROW_COUNT() ON DUPLICATE KEY UPDATE a=1",
            format!("INSERT INTO t SELECT {ROWS} AS `ROW_COUNT()` ON DUPLICATE KEY UPDATE a=1"),
        ),
        ("UPDATE t SET a=CONNECTION_ID() WHERE b=@@warning_count", "UPDATE t SET a=CAST(9 AS UNSIGNED) WHERE b=(2|NULLIF(0,1))".to_owned()),
        ("SELECT (SELECT ROW_COUNT())", format!("SELECT (SELECT {ROWS} AS `ROW_COUNT()`) AS `(SELECT ROW_COUNT())`")),
        ("SELECT x.`ROW_COUNT()` FROM (SELECT ROW_COUNT()) x", format!("SELECT x.`ROW_COUNT()` FROM (SELECT {ROWS} AS `ROW_COUNT()`) x")),
        ("SELECT * FROM (SELECT 1, ROW_COUNT() r) x", format!("SELECT * FROM (SELECT 1, {ROWS} r) x")),
        (
            "WITH c AS (SELECT 1 a, FOUND_ROWS() FROM t) SELECT `FOUND_ROWS()` FROM c",
            format!("WITH c AS (SELECT 1 a, {FOUND} AS `FOUND_ROWS()` FROM t) SELECT `FOUND_ROWS()` FROM c"),
        ),
        (
            "((SELECT ROW_COUNT()) UNION ALL SELECT IF(ROW_COUNT(), (SELECT 1), 2) LIMIT 1) ORDER BY `ROW_COUNT()`",
            format!(
                "((SELECT {ROWS} AS `ROW_COUNT()`) UNION ALL SELECT IF({ROWS}, (SELECT 1), 2) AS `IF(ROW_COUNT(), (SELECT 1), 2)` \
                 LIMIT 1) ORDER BY `ROW_COUNT()`"
            ),
        ),
        (
            "SELECT TRIM(LEADING 'x' FROM ROW_COUNT()), 2",
            format!("SELECT TRIM(LEADING 'x' FROM {ROWS}) AS `TRIM(LEADING 'x' FROM ROW_COUNT())`, 2"),
        ),
        ("SELECT CAST(ROW_COUNT() AS CHAR)", format!("SELECT CAST({ROWS} AS CHAR) AS `CAST(ROW_COUNT() AS CHAR)`")),
        ("SELECT CAST(ROW_COUNT() AS CHAR) x FROM t", format!("SELECT CAST({ROWS} AS CHAR) x FROM t")),
        (
            "SELECT CASE WHEN ROW_COUNT() THEN 1 ELSE 2 END FROM t",
            format!("SELECT CASE WHEN {ROWS} THEN 1 ELSE 2 END AS `CASE WHEN ROW_COUNT() THEN 1 ELSE 2 END` FROM t"),
        ),
        ("SELECT CASE ROW_COUNT() WHEN 1 THEN 1 END end", format!("SELECT CASE {ROWS} WHEN 1 THEN 1 END end")),
        ("SELECT ROW_COUNT() end", format!("SELECT {ROWS} end")),
        ("SELECT (ROW_COUNT()", format!("SELECT ({ROWS}")),
        ("SELECT ROW_COUNT()) x", format!("SELECT {ROWS} AS `ROW_COUNT()`) x")),
        ("SELECT `found_rows`(), `row_count`()", format!("SELECT {FOUND} AS ```found_rows``()`, `row_count`()")),
        ("CREATE TABLE u SELECT ROW_COUNT()", format!("CREATE TABLE u SELECT {ROWS} AS `ROW_COUNT()`")),
        (
            "CREATE OR REPLACE TEMPORARY TABLE u (a INT DEFAULT (CONNECTION_ID())) AS (SELECT ROW_COUNT() a)",
            format!("CREATE OR REPLACE TEMPORARY TABLE u (a INT DEFAULT (CONNECTION_ID())) AS (SELECT {ROWS} a)"),
        ),
        ("CREATE TABLE u (a INT DEFAULT (CONNECTION_ID()))", "CREATE TABLE u (a INT DEFAULT (CONNECTION_ID()))".to_owned()),
        ("CREATE VIEW v AS SELECT CONNECTION_ID()", "CREATE VIEW v AS SELECT CONNECTION_ID()".to_owned()),
        ("CREATE FUNCTION f() RETURNS INT RETURN ROW_COUNT()", "CREATE FUNCTION f() RETURNS INT RETURN ROW_COUNT()".to_owned()),
        ("SELECT ROW_COUNT()='x'", format!("SELECT {ROWS}='x' AS `ROW_COUNT()='x'`")),
        ("SELECT ROW_COUNT()='x", format!("SELECT {ROWS}='x")),
        ("SELECT ROW_COUNT()='''", format!("SELECT {ROWS}='''")),
        ("(SELECT ROW_COUNT())", format!("(SELECT {ROWS} AS `ROW_COUNT()`)")),
        ("SELECT 'FOUND_ROWS()' /* ROW_COUNT() */", "SELECT 'FOUND_ROWS()' /* ROW_COUNT() */".to_owned()),
        ("SELECT db.found_rows()", "SELECT db.found_rows()".to_owned()),
        ("SELECT @@pseudo_thread_id = 5", "SELECT (9|NULLIF(0,1)) = 5 AS `@@pseudo_thread_id = 5`".to_owned()),
        ("SET @@session.pseudo_thread_id=5", "SET @@session.pseudo_thread_id=5".to_owned()),
        ("/*!40019 SET @@pseudo_thread_id:=5*/", "/*!40019 SET @@pseudo_thread_id:=5*/".to_owned()),
        ("SET @x = @@pseudo_thread_id", "SET @x = (9|NULLIF(0,1))".to_owned()),
        ("INSERT INTO t VALUES (CONNECTION_ID(),1)", "INSERT INTO t VALUES (CAST(9 AS UNSIGNED),1)".to_owned()),
    ];
    for (text, want) in cases {
        let got = substitute_facts(text.as_bytes(), MODE, |fact| Some(value(fact)));
        assert_eq!(String::from_utf8(got).unwrap(), want, "{text}");
    }
    for text in [
        "ALTER EVENT purge DO BEGIN DELETE FROM a; INSERT INTO log VALUES (ROW_COUNT()); END",
        "ALTER VIEW v AS SELECT FOUND_ROWS()",
        "ALTER TABLE t ADD c INT DEFAULT (ROW_COUNT())",
        "SET STATEMENT max_statement_time = 1 FOR ALTER VIEW v AS SELECT FOUND_ROWS()",
        "SET STATEMENT max_statement_time = 1 FOR CREATE VIEW v AS SELECT FOUND_ROWS()",
    ] {
        let got = substitute_facts(text.as_bytes(), MODE, |fact| Some(value(fact)));
        assert_eq!(String::from_utf8(got).unwrap(), text, "a definition");
    }
    let text = "SET STATEMENT max_statement_time = 1 FOR CREATE TABLE u SELECT FOUND_ROWS() a";
    let got = substitute_facts(text.as_bytes(), MODE, |fact| Some(value(fact)));
    assert_eq!(String::from_utf8(got).unwrap(), text.replace("FOUND_ROWS()", FOUND));
}

#[test]
fn insert_ids() {
    let certain = [
        "INSERT INTO t VALUES (NULL, 'a', 5, -5, NOW(), DEFAULT)",
        "INSERT INTO t (a, b) VALUES ('x', 1.5), ('y', CURRENT_TIMESTAMP)",
        "insert ignore db.`t` set a='x', `b`=NOW(6), t.c=6;",
        "REPLACE INTO t VALUE ('x')",
        "INSERT INTO t VALUES ()",
        "INSERT INTO t VALUES ('550e8400-e29b-41d4-a716-446655440000')",
        "INSERT INTO t VALUES ('2024-05-01 10:00:42', TRUE)",
        "INSERT INTO t PARTITION (p0) (a) VALUES (41)",
    ];
    for text in certain {
        assert!(insert_id_is_certain(text.as_bytes(), MODE, 42), "{text}");
    }
    let uncertain = [
        "INSERT INTO t VALUES (42)",
        "INSERT INTO t VALUES (-42)",
        "INSERT INTO t VALUES (042)",
        "INSERT INTO t VALUES ('42')",
        "INSERT INTO t VALUES (' 42x')",
        "INSERT INTO t VALUES ('\\42')",
        "INSERT INTO t VALUES ('4\\2')",
        "INSERT INTO t VALUES ('4' '2')",
        "INSERT INTO t VALUES (41.6)",
        "INSERT INTO t VALUES (0x2A)",
        "INSERT INTO t VALUES (x'2A')",
        "INSERT INTO t VALUES (4.2e1)",
        "INSERT INTO t VALUES (NOW(42))",
        "INSERT INTO t VALUES (?)",
        "INSERT INTO t VALUES (41+1)",
        "INSERT INTO t VALUES (@a)",
        "INSERT INTO t VALUES (f())",
        "INSERT INTO t VALUES (a)",
        "INSERT INTO t SELECT 1",
        "INSERT INTO t (a) SELECT 1",
        "INSERT INTO t TABLE u",
        "INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a=1",
        "INSERT INTO t VALUES (1) RETURNING id",
        "INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)",
        "UPDATE t SET a=1",
    ];
    for text in uncertain {
        assert!(!insert_id_is_certain(text.as_bytes(), MODE, 42), "{text}");
    }
    // The caller compares bound values; a text has none.
    for text in ["INSERT INTO t VALUES (?, 5, ?)", "INSERT INTO t SET a = ?, b = NOW()"] {
        assert!(prepared_insert_id_is_certain(text.as_bytes(), MODE, 42), "{text}");
        assert!(!insert_id_is_certain(text.as_bytes(), MODE, 42), "{text}");
    }
    for text in ["INSERT INTO t VALUES (? + 1)", "INSERT INTO t VALUES (?, 42)", "INSERT INTO t VALUES (?) ON DUPLICATE KEY UPDATE a = ?"] {
        assert!(!prepared_insert_id_is_certain(text.as_bytes(), MODE, 42), "{text}");
    }
    assert!(!insert_id_is_certain(b"INSERT INTO t VALUES (TRUE)", MODE, 1));
    assert!(!insert_id_is_certain(b"INSERT INTO t VALUES (1)", MODE, 0));
    assert!(!insert_id_is_certain(b"INSERT INTO t VALUES (999999999999)", MODE, 2_147_483_647));
}
