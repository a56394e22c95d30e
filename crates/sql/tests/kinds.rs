//! Table-driven tests of statement kinds, facts and splitting.

use sql::*;

fn kind(sql: &str) -> Kind {
    analyze(sql.as_bytes(), LexMode::default()).kind
}

fn facts(sql: &str) -> Facts {
    analyze(sql.as_bytes(), LexMode::default()).facts
}

#[test]
fn kinds() {
    let cases = [
        ("", Kind::Empty),
        (" /* x */ ; -- y", Kind::Empty),
        ("select 1", Kind::Select),
        ("(select 1) union (select 2)", Kind::Select),
        ("((select 1))", Kind::Select),
        ("/* c */ # d\n -- e\n SELECT 1", Kind::Select),
        ("; select 1", Kind::Select),
        ("/*!50000 select */ 1", Kind::Select),
        ("VALUES ROW(1,2)", Kind::Select),
        ("TABLE t", Kind::Select),
        ("WITH a AS (SELECT 1) SELECT * FROM a", Kind::Select),
        ("WITH RECURSIVE a(n) AS (SELECT 1 UNION SELECT n+1 FROM a) UPDATE t, a SET x=1", Kind::Update),
        ("WITH a AS (SELECT 1) DELETE FROM t", Kind::Delete),
        ("WITH a AS (SELECT 1) (SELECT * FROM a)", Kind::Select),
        ("insert into t values (1)", Kind::Insert),
        ("replace into t values (1)", Kind::Replace),
        ("UPDATE t SET a=1", Kind::Update),
        ("delete from t", Kind::Delete),
        ("/*!40101 SET NAMES utf8 */;", Kind::Set),
        ("/*M!100616 SET NOTE_VERBOSITY=0 */;", Kind::Set),
        ("/*!999999\\- enable the sandbox mode */", Kind::Other),
        ("set @a = 1", Kind::Set),
        ("SET SESSION TRANSACTION READ ONLY", Kind::Set),
        ("SET GLOBAL TRANSACTION READ ONLY", Kind::Set),
        ("SET TRANSACTION READ ONLY", Kind::SetTransaction),
        ("SET STATEMENT max_statement_time=1 FOR SELECT 1", Kind::SetStatement),
        ("SET ROLE admin", Kind::SetRole),
        ("SET DEFAULT ROLE admin TO bob", Kind::Grant),
        ("SET PASSWORD = 'x'", Kind::SetPassword),
        ("USE db", Kind::Use),
        ("BEGIN", Kind::Begin),
        ("BEGIN WORK", Kind::Begin),
        ("START TRANSACTION READ ONLY", Kind::Begin),
        ("START REPLICA", Kind::Other),
        ("BEGIN NOT ATOMIC SELECT 1; END", Kind::Compound),
        ("IF @a THEN SELECT 1; END IF", Kind::Compound),
        ("COMMIT AND CHAIN", Kind::Commit),
        ("ROLLBACK", Kind::Rollback),
        ("ROLLBACK WORK TO SAVEPOINT a", Kind::RollbackTo),
        ("ROLLBACK TO a", Kind::RollbackTo),
        ("SAVEPOINT a", Kind::Savepoint),
        ("RELEASE SAVEPOINT a", Kind::ReleaseSavepoint),
        ("CALL p()", Kind::Call),
        ("DO SLEEP(1)", Kind::Do),
        ("SHOW WARNINGS LIMIT 1", Kind::ShowWarnings),
        ("SHOW ERRORS", Kind::ShowErrors),
        ("SHOW COUNT(*) WARNINGS", Kind::ShowCountWarnings),
        ("SHOW COUNT( * ) ERRORS", Kind::ShowCountErrors),
        ("SHOW TABLES", Kind::Show),
        ("EXPLAIN UPDATE t SET a=1", Kind::Explain),
        ("DESC t", Kind::Explain),
        ("describe t", Kind::Explain),
        ("ANALYZE SELECT 1", Kind::Explain),
        ("ANALYZE FORMAT=JSON UPDATE t SET a=1", Kind::Update),
        ("ANALYZE TABLE t", Kind::Ddl),
        ("CREATE TEMPORARY TABLE t (a int)", Kind::CreateTemporaryTable),
        ("CREATE OR REPLACE TEMPORARY TABLE t (a int)", Kind::CreateTemporaryTable),
        ("DROP TEMPORARY TABLE t", Kind::DropTable),
        ("DROP TABLE IF EXISTS t", Kind::DropTable),
        ("CREATE TABLE t (a int)", Kind::Ddl),
        ("CREATE TABLE user (event int)", Kind::Ddl),
        ("ALTER TABLE t ADD COLUMN user int", Kind::Ddl),
        ("CREATE DEFINER=`a`@`b` PROCEDURE p() BEGIN SELECT 1; SELECT 2; END", Kind::Ddl),
        ("CREATE DEFINER=a@b SQL SECURITY DEFINER VIEW v AS SELECT role FROM t", Kind::Ddl),
        ("CREATE SQL SECURITY DEFINER VIEW v AS SELECT user FROM t", Kind::Ddl),
        ("TRUNCATE t", Kind::Ddl),
        ("LOCK TABLES t READ", Kind::LockTables),
        ("LOCK TABLE t WRITE", Kind::LockTables),
        ("UNLOCK TABLES", Kind::UnlockTables),
        ("LOCK INSTANCE FOR BACKUP", Kind::BackupLock),
        ("FLUSH TABLES WITH READ LOCK", Kind::FlushReadLock),
        ("FLUSH TABLES a, b FOR EXPORT", Kind::FlushReadLock),
        ("BACKUP STAGE START", Kind::BackupLock),
        ("BACKUP LOCK a.b", Kind::BackupLock),
        ("BACKUP STAGE END", Kind::Other),
        ("BACKUP UNLOCK", Kind::Other),
        ("FLUSH STATUS", Kind::Flush),
        ("PREPARE s FROM 'select 1'", Kind::Prepare),
        ("EXECUTE s", Kind::Execute),
        ("DEALLOCATE PREPARE s", Kind::Deallocate),
        ("DROP PREPARE s", Kind::Deallocate),
        ("KILL 5", Kind::Kill),
        ("LOAD DATA LOCAL INFILE 'x' INTO TABLE t", Kind::LoadData),
        ("XA START 'x'", Kind::Xa),
        ("HANDLER t OPEN", Kind::Handler),
        ("GET DIAGNOSTICS @n = NUMBER", Kind::GetDiagnostics),
        ("SIGNAL SQLSTATE '45000'", Kind::Signal),
        ("GRANT ALL ON *.* TO a@b", Kind::Grant),
        ("CREATE USER a@b", Kind::Grant),
        ("ALTER USER a@b", Kind::Grant),
        ("DROP USER a@b", Kind::Grant),
        ("RENAME USER a TO b", Kind::Grant),
        ("RENAME TABLE a TO b", Kind::Ddl),
        ("?", Kind::Other),
        ("hello", Kind::Other),
    ];
    for (sql, want) in cases {
        assert_eq!(kind(sql), want, "{sql}");
    }
}

#[test]
fn exact_facts() {
    use Facts as F;
    let cases = [
        ("SELECT c FROM t WHERE id=1", F::NONE),
        ("SELECT LAST_INSERT_ID()", F::LAST_INSERT_ID),
        ("SELECT last_insert_id ( )", F::LAST_INSERT_ID),
        ("SELECT last_insert_id", F::NONE),
        ("UPDATE t SET a=LAST_INSERT_ID(a+1)", F::LAST_INSERT_ID | F::LAST_INSERT_ID_SET),
        ("INSERT INTO t(a) VALUES(1) RETURNING id", F::RETURNING),
        ("REPLACE INTO t(a) SELECT 1 returning *", F::RETURNING),
        ("DELETE FROM t RETURNING id", F::NONE),
        ("SELECT @@identity", F::LAST_INSERT_ID | F::SYSTEM_VARIABLE),
        ("SELECT @@session.last_insert_id", F::LAST_INSERT_ID | F::SYSTEM_VARIABLE),
        ("SELECT @@SESSION . `Last_Insert_Id`", F::LAST_INSERT_ID | F::SYSTEM_VARIABLE),
        ("SELECT 'LAST_INSERT_ID()'", F::NONE),
        ("SELECT SQL_CALC_FOUND_ROWS 1", F::CALC_FOUND_ROWS),
        ("SELECT FOUND_ROWS()", F::FOUND_ROWS),
        ("SELECT ROW_COUNT()", F::ROW_COUNT),
        ("SELECT @a", F::USER_VARIABLE),
        ("SELECT @`a b`, @'x', @\"y\"", F::USER_VARIABLE),
        ("SELECT @a:=@a+1", F::USER_VARIABLE | F::USER_VARIABLE_ASSIGN),
        ("SELECT 1 INTO @a", F::USER_VARIABLE | F::USER_VARIABLE_ASSIGN),
        ("SET @a=1", F::USER_VARIABLE | F::USER_VARIABLE_ASSIGN),
        ("SET sql_mode=@a", F::USER_VARIABLE),
        ("SET autocommit:=1", F::NONE),
        ("GRANT ALL ON *.* TO a@b, 'c'@'d'", F::NONE),
        ("SHOW GRANTS FOR a@b", F::NONE),
        ("SELECT GET_LOCK('a',1)", F::GET_LOCK),
        ("SELECT RELEASE_LOCK('a')", F::RELEASE_LOCK),
        ("SELECT RELEASE_ALL_LOCKS()", F::RELEASE_LOCK),
        ("SELECT CONNECTION_ID()", F::CONNECTION_ID),
        ("SELECT @@pseudo_thread_id", F::CONNECTION_ID | F::SYSTEM_VARIABLE),
        ("SELECT @@warning_count", F::DIAGNOSTICS | F::SYSTEM_VARIABLE),
        ("GET DIAGNOSTICS @n = NUMBER", F::DIAGNOSTICS | F::USER_VARIABLE | F::USER_VARIABLE_ASSIGN),
        ("SELECT 1; SELECT 2", F::MULTI),
        ("SELECT 1;", F::NONE),
        ("SELECT 1;;  -- x", F::NONE),
        ("SELECT ';'", F::NONE),
        ("CREATE PROCEDURE p() BEGIN SELECT 1; SELECT 2; END", F::NONE),
        ("SELECT f(1)", F::UNKNOWN_FUNCTION),
        ("SELECT `count`(1)", F::UNKNOWN_FUNCTION),
        ("SELECT db.count(1)", F::UNKNOWN_FUNCTION),
        ("SELECT count(1), max(a), concat('a', now())", F::NONE),
        ("SELECT * FROM t WHERE a IN (1,2) AND (b=1 OR EXISTS (SELECT 1))", F::NONE),
        ("INSERT INTO t (a) VALUES (1) ON DUPLICATE KEY UPDATE a=VALUES(a)", F::NONE),
        ("INSERT IGNORE db.`t`(a) VALUES (1)", F::NONE),
        ("INSERT t(a) VALUES (f(1))", F::UNKNOWN_FUNCTION),
        ("INSERT INTO t SELECT f(1)", F::UNKNOWN_FUNCTION),
        ("CREATE TABLE t (a varchar(10), key k(a))", F::NONE),
        ("CREATE TABLE t AS SELECT f(1)", F::UNKNOWN_FUNCTION),
        ("WITH c(a) AS (SELECT 1) SELECT * FROM c", F::NONE),
        ("CALL p", F::UNKNOWN_FUNCTION),
        ("SELECT NEXTVAL(s)", F::UNKNOWN_FUNCTION),
        ("SELECT NEXT VALUE FOR s", F::UNKNOWN_FUNCTION),
        ("SET session_track_schema=1", F::SESSION_TRACK),
        ("SELECT @@session_track_gtids", F::SESSION_TRACK | F::SYSTEM_VARIABLE),
        ("SHOW VARIABLES LIKE 'a'", F::VARIABLES),
        ("SHOW SESSION VARIABLES", F::VARIABLES),
        ("SELECT * FROM performance_schema.session_variables", F::VARIABLES),
        ("SELECT * FROM `information_schema`.`SESSION_VARIABLES`", F::VARIABLES),
        ("SELECT variables FROM t", F::NONE),
        ("SELECT 1 FOR UPDATE", F::LOCKING_READ),
        ("SELECT 1 FOR SHARE SKIP LOCKED", F::LOCKING_READ),
        ("SELECT 1 LOCK IN SHARE MODE", F::LOCKING_READ),
        ("DROP TEMPORARY TABLE t", F::TEMPORARY),
        ("SELECT /* x */ 1", F::COMMENT),
        ("SELECT 1 INTO OUTFILE '/tmp/x'", F::INTO_FILE),
        ("SELECT ?", F::PLACEHOLDER),
        ("SELECT 'it''s @a', 'x\\'@b', \"@c\", `@d`", F::NONE),
    ];
    for (sql, want) in cases {
        assert_eq!(facts(sql), want, "{sql}");
    }
}

/// Keywords and names before a parenthesis that are no calls of stored functions.
#[test]
fn ordinary_parentheses() {
    let cases = [
        "SELECT a FROM t PARTITION (p0) USE INDEX FOR ORDER BY (i) WHERE (a) AND(b) OR NOT(c) HAVING(d) LIMIT 1",
        "SELECT CAST(a AS DECIMAL(10,2)), CAST(b AS UNSIGNED), CONVERT(c USING utf8), CHAR(65), INTERVAL(1,2)",
        "SELECT SUM(a) OVER (PARTITION BY b), RANK() OVER w FROM t WINDOW w AS (ORDER BY (c))",
        "SELECT 1 UNION ALL (SELECT 2) EXCEPT (SELECT 3) INTERSECT (SELECT 4)",
        "SELECT CASE(a) WHEN(1) THEN(2) ELSE(3) END, a IN(1), b BETWEEN(1)AND(2), c LIKE('x'), d REGEXP('y')",
        "SELECT * FROM a JOIN(b) ON(a.x=b.x) LEFT JOIN c USING(y), LATERAL(SELECT 1) d, (VALUES ROW(1)) AS e(f)",
        "SELECT JSON_EXTRACT(a,'$.b'), GROUP_CONCAT(DISTINCT(c) ORDER BY d SEPARATOR ','), MATCH(e) AGAINST('f')",
        "SELECT DATE_ADD(NOW(), INTERVAL 1 DAY), EXTRACT(YEAR FROM a), UUID(), RAND(), TRIM(BOTH 'x' FROM b), MOD(a,2)",
        "SELECT * FROM JSON_TABLE('[]', '$[*]' COLUMNS(a INT PATH '$.a')) AS j WHERE a > ANY(SELECT 1) XOR(b)",
        "INSERT INTO a.b PARTITION (p) (c) VALUES(1),(2) AS n(m) ON DUPLICATE KEY UPDATE c=IF(n.m,1,VALUES(c))",
        "INSERT LOW_PRIORITY IGNORE INTO `b`(c) SELECT COALESCE(d,0) FROM e",
        "LOAD DATA INFILE 'x' INTO TABLE t (a, b)",
        "DELETE FROM t WHERE(a=1)ORDER BY FIELD(a,1,2)",
        "GRANT SELECT (a) ON t TO u",
    ];
    let mode = LexMode { builtins: Builtins::MySql, ..LexMode::default() };
    for sql in cases {
        assert!(!analyze(sql.as_bytes(), mode).facts.contains(Facts::UNKNOWN_FUNCTION), "{sql}");
    }
}

#[test]
fn lexer_modes() {
    let ansi = LexMode { ansi_quotes: true, ..LexMode::default() };
    let plain = LexMode { no_backslash_escapes: true, ..LexMode::default() };
    let sql = br#"SELECT "f"(1)"#;
    assert_eq!(analyze(sql, ansi).facts, Facts::UNKNOWN_FUNCTION);
    assert_eq!(analyze(sql, LexMode::default()).facts, Facts::NONE);
    let sql = br"SELECT '\', @a, ''";
    assert_eq!(analyze(sql, plain).facts, Facts::USER_VARIABLE);
    assert_eq!(analyze(sql, LexMode::default()).facts, Facts::NONE);
}

#[test]
fn splits() {
    let cases: &[(&str, &[&str])] = &[
        ("", &[]),
        (";;", &[]),
        ("select 1", &["select 1"]),
        ("select 1;", &["select 1"]),
        ("select ';' ; /* ; */ select `;`;", &["select ';' ", " /* ; */ select `;`"]),
        ("create procedure p() begin select 1; end; select 2", &["create procedure p() begin select 1; end; select 2"]),
        ("use a; begin not atomic select 1; end", &["use a", " begin not atomic select 1; end"]),
        ("a; -- ;\nb", &["a", " -- ;\nb"]),
        ("a; --\x7f;\nb", &["a", " --\x7f;\nb"]),
        ("/*! ; */ a", &[" */ a"]),
    ];
    for (sql, want) in cases {
        let got: Vec<_> = split(sql.as_bytes(), LexMode::default()).map(|part| std::str::from_utf8(part).unwrap()).collect();
        assert_eq!(&got, want, "{sql}");
    }
}

#[test]
fn characters_that_end_in_a_backslash() {
    let sets: [(&str, &[u8], &[u8]); 5] = [
        ("sjis", b"\x95\x5c", b"\x83\x60"),
        ("cp932", b"\x95\x5c", b"\x83\x60"),
        ("gbk", b"\xbf\x5c", b"\x81\x60"),
        ("big5", b"\xa5\x5c", b"\xa4\x60"),
        ("gb18030", b"\x81\x5c", b"\x81\x60"),
    ];
    for (charset, backslash, backtick) in sets {
        let mode = LexMode { multi_byte: MultiByte::of(charset.as_bytes()), ..LexMode::default() };
        for (before, character, after) in [
            ("SELECT '", backslash, "', GET_LOCK('a', 0)"),
            ("SELECT \"", backslash, "\", GET_LOCK('a', 0)"),
            ("SELECT `", backtick, "`, GET_LOCK('a', 0)"),
            ("SELECT 1 AS x", backtick, ", GET_LOCK('a', 0), 2 AS `x`"),
            ("SELECT 1 AS 2", backtick, ", GET_LOCK('a', 0), 2 AS `x`"),
            ("SELECT a.", backtick, ", GET_LOCK('a', 0), 2 AS `x` FROM a"),
        ] {
            let sql = [before.as_bytes(), character, after.as_bytes()].concat();
            assert!(analyze(&sql, mode).facts.contains(Facts::GET_LOCK), "{charset} {before}");
            assert!(!analyze(&sql, LexMode::default()).facts.contains(Facts::GET_LOCK), "{charset} {before}");
        }
        let two = [b"SELECT '", backslash, b"'; SET @a = 1"].concat();
        assert_eq!(split(&two, mode).count(), 2, "{charset}");
        // A backslash escapes a byte, not a character.
        let escaped = [b"SELECT '\\", backslash, b"', GET_LOCK('a', 0) '"].concat();
        assert_eq!(analyze(&escaped, mode).facts, Facts::NONE, "{charset}");
        let lock = [b"SELECT GET_LOCK('", backslash, b"', 0)"].concat();
        assert_eq!(sql::lock_names(&lock, mode).len(), 1, "{charset}");
    }
}

/// Text behind the definition of a stored program is another statement.
#[test]
fn ends_of_definitions() {
    let alone = [
        "CREATE PROCEDURE p() SELECT 1",
        "CREATE PROCEDURE p() SELECT 1; ",
        "CREATE PROCEDURE p() BEGIN END",
        "CREATE PROCEDURE p() BEGIN SELECT 1; END;;",
        "CREATE DEFINER=root@localhost PROCEDURE s.p(IN a INT, OUT b VARCHAR(10)) MODIFIES SQL DATA SQL SECURITY INVOKER COMMENT 'x' \
            BEGIN SELECT 1; SELECT 2; END p -- done",
        "CREATE DEFINER=CURRENT_USER() PROCEDURE p() l: BEGIN SELECT 1; LEAVE l; END l;",
        "CREATE FUNCTION f(a INT) RETURNS VARCHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DETERMINISTIC BEGIN SET a = 1; RETURN a; END",
        "CREATE OR REPLACE FUNCTION f() RETURNS INT UNSIGNED READS SQL DATA BEGIN RETURN (SELECT CASE WHEN 1 THEN 2 END); END",
        "CREATE TRIGGER t BEFORE INSERT ON u FOR EACH ROW BEGIN IF NEW.a < 0 THEN SET NEW.a = 0; END IF; SET NEW.b = 1; END;",
        "CREATE TRIGGER t BEFORE INSERT ON u FOR EACH ROW FOLLOWS v BEGIN SET NEW.a = 0; SET NEW.b = 1; END",
        "CREATE TRIGGER t BEFORE INSERT ON u FOR EACH ROW SET NEW.a = 1;",
        "CREATE EVENT e ON SCHEDULE EVERY 1 DAY COMMENT 'x' DO BEGIN DELETE FROM t; DELETE FROM u; END",
        "ALTER EVENT e DO BEGIN DELETE FROM t; DELETE FROM u; END;",
        "ALTER PROCEDURE p COMMENT 'x';",
        "CREATE PROCEDURE p() BEGIN DECLARE EXIT HANDLER FOR NOT FOUND, SQLSTATE '42000' BEGIN ROLLBACK; END; \
            DECLARE CONTINUE HANDLER FOR gone BEGIN END; WHILE a DO BEGIN SET a = 0; END; END WHILE; SELECT start, end FROM t; \
            CASE a WHEN 1 THEN BEGIN SELECT 1; END; ELSE SELECT 2; END CASE; LOOP BEGIN SELECT 1; END; END LOOP; \
            SELECT CASE a WHEN b THEN CASE c WHEN 1 THEN 'x' END ELSE NULL END, t.end; REPEAT SET a = 1; UNTIL a END REPEAT; \
            IF a THEN BEGIN SELECT 1; END; ELSEIF b THEN SELECT 1; ELSE BEGIN SELECT 3; END; END IF; END",
        "/*!50003 CREATE*/ /*!50017 DEFINER=`a`@`b`*/ /*!50003 TRIGGER t BEFORE INSERT ON u FOR EACH ROW BEGIN SET @a = 1; SET @b = 2; END */;",
        "CREATE SCHEMA event; SELECT 1",
        "CREATE SCHEMA IF NOT EXISTS event; SELECT 1; SELECT 2",
        "CREATE DEFINER=user@localhost PROCEDURE p() BEGIN UNLOCK TABLES; SELECT 1; END",
        "CREATE TABLE event (a INT); SELECT 1",
    ];
    for sql in alone {
        assert!(!facts(sql).contains(Facts::TORN), "{sql}");
    }
    let more = [
        "CREATE PROCEDURE p() SELECT 1; LOCK TABLES t WRITE",
        "CREATE PROCEDURE p() BEGIN SELECT 1; END; LOCK TABLES t WRITE",
        "CREATE PROCEDURE p() BEGIN END; LOCK TABLES t WRITE; END",
        "CREATE PROCEDURE p() DO (1); LOCK TABLES t WRITE; SELECT 1 BEGIN; SELECT 1; END",
        "CREATE PROCEDURE begin() SELECT 1; LOCK TABLES t WRITE; SELECT 1 AS END",
        "CREATE PROCEDURE p() SELECT (1) begin; LOCK TABLES t WRITE; SELECT 1 AS END",
        "CREATE TRIGGER t BEFORE INSERT ON begin FOR EACH ROW SET NEW.a = 1; LOCK TABLES t WRITE; SELECT 1 AS END",
        "CREATE TRIGGER t BEFORE INSERT ON u FOR EACH ROW FOLLOWS begin SET NEW.a = 1; LOCK TABLES t WRITE; SELECT 1 AS END",
        "ALTER EVENT e COMMENT 'x'; SET TRANSACTION READ ONLY",
        "ALTER PROCEDURE p COMMENT 'x'; LOCK TABLES t WRITE",
        "CREATE EVENT begin ON SCHEDULE AT NOW() DO DELETE FROM t; LOCK TABLES t WRITE; SELECT 1 AS END",
        "CREATE PROCEDURE p() BEGIN SELECT begin FROM t; END; LOCK TABLES t WRITE; END",
        "CREATE PROCEDURE p() BEGIN DO begin; END; LOCK TABLES t WRITE; END",
        "CREATE PROCEDURE p() BEGIN SELECT CASE WHEN 1 THEN begin ELSE begin END; END; LOCK TABLES t WRITE; END",
        "CREATE PROCEDURE p() BEGIN SELECT CASE WHEN 1 THEN end ELSE begin END; END; LOCK TABLES t WRITE; END",
        "CREATE PROCEDURE p() BEGIN DECLARE begin CONDITION FOR 1; DECLARE EXIT HANDLER FOR begin SELECT 1; END; LOCK TABLES t WRITE; END",
        "CREATE PROCEDURE p() BEGIN DECLARE EXIT HANDLER FOR 1051 SELECT begin FROM t; END; LOCK TABLES t WRITE; END",
        "CREATE PROCEDURE p() BEGIN SELECT do begin FROM t; END; LOCK TABLES t WRITE; END",
        "CREATE PROCEDURE p() BEGIN /*!99999 BEGIN */ SELECT 1; END; LOCK TABLES t WRITE; SELECT 1; END",
        "CREATE PROCEDURE p() BEGIN SELECT 1; END x y; SELECT 1",
        "CREATE SERVER event FOREIGN DATA WRAPPER mysql OPTIONS (HOST 'x'); CREATE PROCEDURE p() SELECT 1; LOCK TABLES t WRITE",
    ];
    for sql in more {
        assert!(facts(sql).contains(Facts::TORN), "{sql}");
    }
}

#[test]
fn dollar_quotes() {
    for (sql, expected) in [
        ("CREATE LIBRARY l LANGUAGE JAVASCRIPT AS $$ ' $$; SELECT GET_LOCK('l', 0); -- '", true),
        ("SELECT $a$ ' $a$ , f() -- '", true),
        ("SELECT $\u{e4}_1$ ' $\u{e4}_1$", true),
        ("SELECT a$b$c, $x, `$$`, '$$', @$$ FROM $t", false),
    ] {
        assert_eq!(facts(sql).contains(Facts::TORN), expected, "{sql}");
    }
}

/// Whether a name before a parenthesis may be a stored function depends on the server, and on the text between.
#[test]
fn names_of_stored_functions() {
    let calls = |sql: &str, builtins, ignore_space| {
        let mode = LexMode { builtins, ignore_space, ..LexMode::default() };
        analyze(sql.as_bytes(), mode).facts.contains(Facts::UNKNOWN_FUNCTION)
    };
    // For a server that is not known, MySQL, MariaDB.
    let cases = [
        ("SELECT f(1)", [true, true, true]),
        ("SELECT count(1), now(), MAX(a), substr(a, 1), date_add(a, INTERVAL 1 DAY), md5(a)", [false; 3]),
        ("SELECT abs (1), last_insert_id ( ), if (1, 2, 3), char (1), concat (a), date (a), week (a), POINT (1, 2)", [false; 3]),
        ("SELECT any_value(a), is_uuid(b), uuid_to_bin(c), regexp_like(d, e), gtid_subset(a, b)", [true, false, true]),
        ("SELECT to_char(a)", [true, true, false]),
        ("SELECT add_months(a, 1), chr(1), lengthb(a), encrypt(a), sformat(a, 1), json_query(a, 'b')", [true, true, false]),
        ("SELECT median(a) OVER ()", [true, true, false]),
        ("SELECT rank() OVER (), lag(a) OVER w FROM t WINDOW w AS (ORDER BY b)", [false; 3]),
        ("SELECT rank () OVER ()", [true, false, true]),
        ("SELECT count (1)", [true; 3]),
        ("SELECT now ()", [true; 3]),
        ("SELECT sum/**/(a)", [true; 3]),
        ("SELECT sysdate ()", [true, true, false]),
        ("SELECT work()", [true, false, true]),
        ("SELECT data(1)", [true, false, true]),
        ("SELECT query(1)", [true, false, true]),
        ("SELECT statement(1)", [true; 3]),
        ("SELECT until(1)", [true; 3]),
        ("SELECT HIGH_PRIORITY f()", [true; 3]),
        ("INSERT HIGH_PRIORITY t (a) VALUES (1)", [false; 3]),
        ("INSERT HIGH_PRIORITY INTO t (a) VALUES (1)", [false; 3]),
        ("INSERT INTO data (work, query) VALUES (1, 2)", [false; 3]),
        ("CREATE TABLE work (data (1))", [false; 3]),
        ("CREATE TABLE x VALUES ROW(f())", [true; 3]),
        ("CREATE TABLE x AS VALUES (f())", [true; 3]),
        (
            "CREATE TABLE x (a INT, KEY k (a)) PARTITION BY RANGE COLUMNS (a) (PARTITION p VALUES LESS THAN (1), PARTITION q VALUES IN (2))",
            [false; 3],
        ),
        ("SELECT a MEMBER OF ('[1]')", [true, false, true]),
    ];
    for (sql, expected) in cases {
        for (builtins, expected) in [Builtins::Common, Builtins::MySql, Builtins::MariaDb].into_iter().zip(expected) {
            assert_eq!(calls(sql, builtins, false), expected, "{sql} {builtins:?}");
        }
    }
    assert!(!calls("SELECT count (1), now ()", Builtins::MySql, true));
    assert!(calls("SELECT count /**/ (1)", Builtins::MySql, true));
    let oracle = LexMode { oracle: true, ..LexMode::default() };
    for (sql, expected) in [("SELECT s.nextval", true), ("SELECT s.CurrVal FROM dual", true), ("SELECT nextval", false)] {
        assert_eq!(analyze(sql.as_bytes(), oracle).facts.contains(Facts::UNKNOWN_FUNCTION), expected, "{sql}");
    }
}

/// MariaDB 10.11 and 11.8: `]]` within a name is a `]`, backslashes and other quotes mean nothing there, and a name may be empty.
#[test]
fn brackets_are_names_under_mssql() {
    let mssql = LexMode { brackets: true, ansi_quotes: true, ignore_space: true, ..LexMode::default() };
    let locks = Facts::GET_LOCK;
    for (sql, under, without) in [
        ("SELECT 1 AS ['], GET_LOCK('a', 1)", locks, Facts::NONE),
        ("SELECT 1 AS [x]]'], GET_LOCK('a', 1) -- '", locks, Facts::NONE),
        ("SELECT 1 AS [/*], GET_LOCK('a', 1), 2 AS [*/]", locks, Facts::COMMENT),
        ("SELECT 1 AS [#], GET_LOCK('a', 1)", locks, Facts::NONE),
        ("SELECT 1 AS [\\], GET_LOCK('a', 1)", locks, locks),
        ("SELECT 1 AS [;], 2", Facts::NONE, Facts::MULTI),
        ("SELECT 1 AS [@a]", Facts::NONE, Facts::USER_VARIABLE),
        ("SELECT 1 AS [GET_LOCK(]", Facts::NONE, locks),
        ("SELECT [GET_LOCK]('a', 1)", locks, Facts::NONE),
        ("SELECT [f](1), a[1]", Facts::UNKNOWN_FUNCTION, Facts::NONE),
        ("SELECT '[', f(1), ']'", Facts::UNKNOWN_FUNCTION, Facts::UNKNOWN_FUNCTION),
        ("SELECT [], f(1)", Facts::UNKNOWN_FUNCTION, Facts::UNKNOWN_FUNCTION),
        ("SELECT 1 AS [f(1)", Facts::NONE, Facts::UNKNOWN_FUNCTION),
    ] {
        assert_eq!(analyze(sql.as_bytes(), mssql).facts, under, "{sql}");
        assert_eq!(analyze(sql.as_bytes(), LexMode::default()).facts, without, "{sql} in another mode");
    }
    let sjis = LexMode { multi_byte: MultiByte::of(b"sjis"), ..mssql };
    assert_eq!(analyze(b"SELECT 1 AS [\x81], f(1)]", sjis).facts, Facts::NONE, "the second byte of a character closes nothing");
    assert_eq!(&*unquote_name(b"[a]]b]"), b"a]b");
    assert_eq!(parse_use(b"USE [a b]", mssql).as_deref(), Some(&b"a b"[..]));
    assert_eq!(temporary_tables(b"CREATE TEMPORARY TABLE [s].[t] (a INT)", mssql), [(Some("s".into()), "t".into())]);
    let digest = |sql: &[u8]| {
        let mut out = Vec::new();
        digest_text(sql, &DigestOptions { lex: mssql, ..DigestOptions::default() }, &mut out);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(digest(b"SELECT [it's 5].[a] , 7"), "SELECT [it's 5].[a],?");
}

#[test]
fn a_default_may_take_a_number_where_nothing_is_changed() {
    let calls =
        |sql: &str, builtins| analyze(sql.as_bytes(), LexMode { builtins, ..LexMode::default() }).facts.contains(Facts::UNKNOWN_FUNCTION);
    for (sql, expected) in [
        ("SELECT DEFAULT(n) FROM t", true),
        ("SELECT a FROM t WHERE n > DEFAULT (n)", true),
        ("ANALYZE SELECT DEFAULT(n) FROM t", true),
        ("DO (SELECT DEFAULT(n) FROM t)", true),
        ("INSERT INTO t VALUES (DEFAULT)", false),
        ("UPDATE t SET n = DEFAULT(n)", false),
        ("CREATE TABLE t (a INT DEFAULT (1))", false),
        ("SELECT default_value FROM t", false),
    ] {
        assert_eq!(calls(sql, Builtins::MariaDb), expected, "{sql}");
        assert_eq!(calls(sql, Builtins::Common), expected, "{sql}");
        assert!(!calls(sql, Builtins::MySql), "{sql}");
    }
    assert_eq!(routines(b"SELECT DEFAULT(n) FROM t", LexMode::default()), Some(Vec::new()), "it leaves nothing");
}

#[test]
fn blanks_of_single_byte_character_sets() {
    let latin1 = LexMode { multi_byte: MultiByte::of(b"latin1"), ..LexMode::default() };
    for (sql, kind, fact) in [
        (b"LOCK\xa0TABLES t WRITE".as_slice(), Kind::LockTables, Facts::NONE),
        (b"SELECT * FROM t FOR\xa0UPDATE", Kind::Select, Facts::LOCKING_READ),
        (b"SELECT GET_LOCK\xa0('a', 0)", Kind::Select, Facts::GET_LOCK),
        (b"SELECT 8--\xa0'\n, GET_LOCK('L',0) -- '", Kind::Select, Facts::GET_LOCK),
        (b"SELECT 5 INTO\xa0@x", Kind::Select, Facts::USER_VARIABLE | Facts::USER_VARIABLE_ASSIGN),
        (b"CREATE\xa0TEMPORARY TABLE t (a INT)", Kind::CreateTemporaryTable, Facts::TEMPORARY),
    ] {
        let analysis = analyze(sql, latin1);
        assert_eq!((analysis.kind, analysis.facts), (kind, fact), "{}", sql.escape_ascii());
    }
}
