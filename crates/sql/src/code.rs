//! Stored code: the routines that a text calls, and the state that a routine's body may leave on its connection without a report by the
//! server.
//!
//! Reported state does not matter here: SET of variables by their plain names, the schema, temporary tables, transactions. A word counts
//! wherever it stands, even as a column's name. A harmless routine that is suspected costs a connection; a harmful one that is missed would
//! cost more.

use crate::analyze::{analyze, called_by_quoted_name, precedes_object, variable_name};
use crate::cursor::{Cursor, unquote_name, utf8};
use crate::facts::Facts;
use crate::keywords::{Kw, lookup};
use crate::kind::Kind;
use crate::split::{has_body, split};
use crate::token::{Builtins, LexMode, Lexer, Token, TokenKind};

/// A stored procedure or function, as a text names it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Routine {
    /// A procedure: CALL names it.
    pub is_procedure: bool,
    /// Its schema, where the text says it.
    pub schema: Option<String>,
    /// Without quotes.
    pub name: String,
}

/// The state that code may leave behind without a report by the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code {
    /// It may assign user variables.
    pub variables: bool,
    /// It names user variables.
    pub reads: bool,
    /// A reset takes it away.
    pub state: bool,
    /// Perhaps a role, which no reset takes away.
    pub role: bool,
    /// It may name tables: triggers may run, and what views call.
    pub tables: bool,
    /// It may create, alter or drop tables or views, also by dynamic SQL. Temporary tables do not count: servers report them.
    pub defines: bool,
    /// The called routines that are not built in.
    pub calls: Vec<Routine>,
}

/// The routines that a text calls which `analyze` gives [`Facts::UNKNOWN_FUNCTION`]; also loadable functions, and built-in ones that are
/// not known here. None when a name cannot be read.
pub fn routines(sql: &[u8], mode: LexMode) -> Option<Vec<Routine>> {
    let mut all = Vec::new();
    for one in split(sql, mode) {
        let analysis = analyze(one, mode);
        let defines = analysis.kind == Kind::Ddl && has_body(one, mode);
        if analysis.facts.contains(Facts::UNKNOWN_FUNCTION) && !defines {
            let mut reader = Reader::new(one, mode);
            while reader.step() {}
            if reader.unread_name {
                return None;
            }
            all.append(&mut reader.code.calls);
        }
    }
    Some(all)
}

/// The state that a compound statement outside a routine may leave behind.
pub fn compound(sql: &[u8], mode: LexMode) -> Code {
    Reader::new(sql, mode).read()
}

/// The state that a routine may leave behind, by its `CREATE ...` from SHOW CREATE. None if that is not understood.
pub fn stored(definition: &[u8], mode: LexMode) -> Option<Code> {
    let mut reader = Reader::new(definition, mode);
    // `CREATE DEFINER=a@b AGGREGATE FUNCTION f(`: accounts are quoted.
    let mut kw = Kw::None;
    for _ in 0..16 {
        let token = reader.lexer.token();
        kw = if token.kind == TokenKind::Word { lookup(token.text(definition)) } else { Kw::None };
        if matches!(kw, Kw::Procedure | Kw::Function) {
            break;
        }
    }
    let name = reader.lexer.token();
    let is_named = matches!(name.kind, TokenKind::Word | TokenKind::QuotedName) && reader.lexer.token().is(b'(');
    (matches!(kw, Kw::Procedure | Kw::Function) && is_named).then(|| reader.read())
}

/// Built-in functions for which `analyze` sets [`Facts::UNKNOWN_FUNCTION`], because they read state of the connection or of the server.
/// They leave nothing behind for other sessions. No stored function of such a name can be called without its schema. Functions of one
/// server family are included for that family only.
pub fn is_native(name: &str, mariadb: bool) -> bool {
    const BOTH: &[&str] = &["is_free_lock", "is_used_lock"];
    const MARIADB: &[&str] = &["nextval", "lastval", "setval", "wsrep_last_seen_gtid", "wsrep_last_written_gtid"];
    const MYSQL: &[&str] = &["ps_current_thread_id", "ps_thread_id"];
    let own = if mariadb { MARIADB } else { MYSQL };
    BOTH.iter().chain(own).any(|native| native.eq_ignore_ascii_case(name)) || lookup(name.as_bytes()).is_built_in(mariadb)
}

/// Words of statements that a parenthesis may follow; no expression has them but `until`.
const STATEMENT_WORDS: [&[u8]; 4] = [b"elseif", b"until", b"exit", b"cursor"];

/// Words of statements that name tables, or anything else that stands in a schema.
const TABLE_WORDS: &[&[u8]] = &[
    b"from",
    b"join",
    b"insert",
    b"update",
    b"delete",
    b"table",
    b"tables",
    b"truncate",
    b"load",
    b"create",
    b"alter",
    b"drop",
    b"rename",
    b"show",
    b"desc",
    b"describe",
    b"explain",
    b"analyze",
    b"check",
    b"checksum",
    b"optimize",
    b"repair",
    b"cache",
    b"import",
    b"help",
    b"grant",
    b"revoke",
    b"handler",
    b"references",
];

type Read = Option<(Token, Kw)>;

struct Reader<'a> {
    sql: &'a [u8],
    lexer: Lexer<'a>,
    mode: LexMode,
    /// The last four tokens; the newest is the last one.
    last: [Read; 4],
    code: Code,
    unread_name: bool,
    /// CALL was read, and no `;` since.
    in_call: bool,
    /// INTO was read, and only a list of names since.
    in_into: bool,
    /// Parentheses that are open.
    open: usize,
    /// The outermost of them that holds arguments of a function that is not built in; 0 if none does.
    arguments: usize,
}

impl<'a> Reader<'a> {
    fn new(sql: &'a [u8], mode: LexMode) -> Self {
        Reader {
            sql,
            lexer: Lexer::new(sql, mode),
            mode,
            last: [None; 4],
            code: Code::default(),
            unread_name: false,
            in_call: false,
            in_into: false,
            open: 0,
            arguments: 0,
        }
    }

    fn read(mut self) -> Code {
        while self.step() {}
        let torn = self.lexer.comments_met().contains(Facts::TORN);
        // In sql_mode ORACLE a procedure is called by its name alone.
        self.code.state |= torn || self.unread_name || self.mode.oracle;
        self.code
    }

    fn step(&mut self) -> bool {
        let token = self.lexer.token();
        let mut kw = Kw::None;
        match token.kind {
            TokenKind::End => return false,
            TokenKind::Word => {
                kw = lookup(token.text(self.sql));
                if !self.is_after(b'.') {
                    self.word(&token, kw);
                }
            }
            TokenKind::QuotedName if !self.is_after(b'.') => {
                self.code.state |= is_of_connection(&unquote_name(token.text(self.sql)));
            }
            TokenKind::UserVariable => {
                self.code.reads = true;
                self.code.variables |= self.may_assign();
            }
            TokenKind::Punct(b'@') => self.code.variables = true,
            TokenKind::SystemVariable => self.code.state |= is_of_transactions(variable_name(token.text(self.sql))),
            // `SET @@x = 1`: MariaDB does not report it.
            TokenKind::Assign | TokenKind::Punct(b'=') => {
                self.code.state |= self.newest().is_some_and(|(last, _)| last.kind == TokenKind::SystemVariable);
            }
            TokenKind::Punct(b'(') => {
                let is_call = self.parenthesis(&token);
                self.open += 1;
                if is_call && self.arguments == 0 {
                    self.arguments = self.open;
                }
            }
            TokenKind::Punct(b')') => {
                if self.open == self.arguments {
                    self.arguments = 0;
                }
                self.open = self.open.saturating_sub(1);
            }
            TokenKind::Punct(b';') => (self.open, self.arguments) = (0, 0),
            _ => {}
        }
        self.note_place(&token, kw);
        self.last = [self.last[1], self.last[2], self.last[3], Some((token, kw))];
        true
    }

    /// May the user variable that was read be assigned where it stands? `@a = 1` may be a comparison too. MariaDB's functions have OUT
    /// parameters: `SET a = f(@b)`.
    fn may_assign(&self) -> bool {
        let next = self.lexer.clone().token();
        let is_argument = self.arguments > 0 && self.mode.builtins != Builtins::MySql;
        self.in_call || self.in_into || is_argument || next.kind == TokenKind::Assign || next.is(b'=')
    }

    fn note_place(&mut self, token: &Token, kw: Kw) {
        self.in_call = !token.is(b';') && (self.in_call || kw == Kw::Call);
        // `INTO a, @b`, `INTO s.t`: names, with commas or dots between them.
        let goes_on = token.is(b',') || token.is(b'.') || self.last_kw() == Kw::Into || self.is_after(b',') || self.is_after(b'.');
        self.in_into = kw == Kw::Into || self.in_into && goes_on;
    }

    fn newest(&self) -> Read {
        self.last[3]
    }

    fn last_kw(&self) -> Kw {
        self.newest().map_or(Kw::None, |(_, kw)| kw)
    }

    fn is_after(&self, punct: u8) -> bool {
        self.newest().is_some_and(|(token, _)| token.is(punct))
    }

    fn last_is(&self, words: &[&[u8]]) -> bool {
        let Some((token, _)) = self.newest().filter(|(token, _)| token.kind == TokenKind::Word) else { return false };
        words.iter().any(|word| token.text(self.sql).eq_ignore_ascii_case(word))
    }

    fn word(&mut self, token: &Token, kw: Kw) {
        let text = token.text(self.sql);
        let is = |words: &[&[u8]]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
        let next = || self.lexer.clone().token();
        let leaves = match kw {
            Kw::Flush | Kw::Unlock | Kw::Backup | Kw::Prepare | Kw::Execute | Kw::Deallocate | Kw::Xa | Kw::Names => true,
            Kw::GetLock | Kw::ReleaseLock | Kw::ReleaseAllLocks => true,
            // `LOCK IN SHARE MODE`
            Kw::Lock => lookup(next().text(self.sql)) != Kw::In,
            // `DECLARE EXIT HANDLER`
            Kw::Handler => !self.last_is(&[b"continue", b"exit", b"undo"]),
            Kw::Transaction => self.last_kw() != Kw::Start,
            Kw::Statement => self.last_kw() == Kw::Set,
            // `SET x = 1, CHARACTER SET latin1`; CHARSET() is a function too.
            Kw::Character | Kw::Charset => self.last_kw() == Kw::Set || self.is_after(b',') && !next().is(b'('),
            _ if is(&[b"language"]) => !next().text(self.sql).eq_ignore_ascii_case(b"sql"),
            _ => is(&[b"resource"]) || is_of_connection(text),
        };
        self.code.state |= leaves;
        self.code.role |= kw == Kw::Role;
        self.code.defines |= self.defines(kw);
        self.code.tables |= is(TABLE_WORDS) || is(&[b"replace"]) && !next().is(b'(');
        if kw == Kw::Call {
            self.call();
        }
    }

    /// Does this word begin a data definition? TRUNCATE leaves a table's definition as it is.
    fn defines(&self, kw: Kw) -> bool {
        let ahead = || Cursor::from_lexer(self.lexer.clone());
        match kw {
            Kw::Create => {
                let mut ahead = ahead();
                ahead.eat_all(&[Kw::Or, Kw::Replace]);
                ahead.kw() != Kw::Temporary
            }
            Kw::Drop => !matches!(ahead().kw(), Kw::Temporary | Kw::Prepare),
            Kw::Alter | Kw::Rename | Kw::Execute => true,
            _ => false,
        }
    }

    /// Reads the rest of a CALL.
    fn call(&mut self) {
        let mut ahead = self.lexer.clone();
        let first = ahead.token();
        let second = ahead.token();
        let (schema, name) = if second.is(b'.') { (Some(first), ahead.token()) } else { (None, first) };
        let is_longer = schema.is_some() && ahead.token().is(b'.');
        if is_longer { self.unread_name = true } else { self.called(true, schema, name) }
    }

    /// `(` was read: a function is called, if a name stands before it. Is it one that is not built in?
    fn parenthesis(&mut self, parenthesis: &Token) -> bool {
        let [before_schema, schema, dot, name] = self.last;
        let Some((name, kw)) = name.filter(|(name, _)| matches!(name.kind, TokenKind::Word | TokenKind::QuotedName)) else { return false };
        let is_qualified = dot.is_some_and(|(dot, _)| dot.is(b'.'));
        let lead = if is_qualified { before_schema } else { dot };
        let lead = lead.map_or(Kw::None, |(_, kw)| kw);
        // Of a name with a schema the word before is not at hand.
        let before_lead = schema.filter(|_| !is_qualified).map_or(Kw::None, |(_, kw)| kw);
        let inserts = lead == Kw::HighPriority && matches!(before_lead, Kw::Insert | Kw::Replace);
        if lead == Kw::Call || precedes_object(lead) || inserts {
            return false;
        }
        if is_qualified {
            match schema.filter(|(schema, _)| matches!(schema.kind, TokenKind::Word | TokenKind::QuotedName)) {
                Some((schema, _)) => self.called(false, Some(schema), name),
                None => self.unread_name = true,
            }
            return true;
        }
        let text = name.text(self.sql);
        let is_quoted = name.kind == TokenKind::QuotedName;
        if is_quoted && called_by_quoted_name(text) != Kw::None {
            self.code.state |= matches!(called_by_quoted_name(text), Kw::GetLock | Kw::ReleaseLock | Kw::ReleaseAllLocks);
            return false;
        }
        // `UNTIL (a)` follows a statement.
        let is_statement =
            |word: &&[u8]| text.eq_ignore_ascii_case(word) && (**word != *b"until" || dot.is_some_and(|(dot, _)| dot.is(b';')));
        let between = self.sql.get(name.end..parenthesis.start).unwrap_or_default();
        let is_known = kw != Kw::None && (kw.is_always_built_in() || !kw.may_be_stored(between, self.mode))
            || !is_quoted && STATEMENT_WORDS.iter().any(is_statement);
        if !is_known {
            self.called(false, None, name);
        }
        !is_known
    }

    fn called(&mut self, is_procedure: bool, schema: Option<Token>, name: Token) {
        let read = |token: Token| match token.kind {
            TokenKind::Word => utf8(token.text(self.sql)),
            TokenKind::QuotedName => utf8(&unquote_name(token.text(self.sql))),
            _ => None,
        };
        let routine = match schema {
            Some(schema) => read(schema).zip(read(name)).map(|(schema, name)| Routine { is_procedure, schema: Some(schema), name }),
            None => read(name).map(|name| Routine { is_procedure, schema: None, name }),
        };
        match routine {
            Some(routine) if self.code.calls.contains(&routine) => {}
            Some(routine) => self.code.calls.push(routine),
            None => self.unread_name = true,
        }
    }
}

/// A variable of which servers do not tell all.
fn is_of_connection(name: &[u8]) -> bool {
    is_of_transactions(name) || is_of_text(name) || is_of_tracking(name)
}

/// A variable that acts only on the next transaction if it is set with @@.
fn is_of_transactions(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 4] = [b"tx_isolation", b"tx_read_only", b"transaction_isolation", b"transaction_read_only"];
    NAMES.iter().any(|one| name.eq_ignore_ascii_case(one))
}

/// A variable that decides which changes servers report.
fn is_of_tracking(name: &[u8]) -> bool {
    begins(name, b"session_track_")
}

/// A variable that decides how text travels: what routines do to it is undone in part when they end.
fn is_of_text(name: &[u8]) -> bool {
    begins(name, b"character_set_") || begins(name, b"collation_")
}

fn begins(name: &[u8], prefix: &[u8]) -> bool {
    name.len() > prefix.len() && name[..prefix.len()].eq_ignore_ascii_case(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode() -> LexMode {
        LexMode::default()
    }

    fn names(calls: &[Routine]) -> Vec<String> {
        let kind = |routine: &Routine| if routine.is_procedure { "call " } else { "" };
        let schema = |routine: &Routine| routine.schema.as_ref().map_or_else(String::new, |schema| format!("{schema}."));
        calls.iter().map(|routine| format!("{}{}{}", kind(routine), schema(routine), routine.name)).collect()
    }

    #[test]
    fn what_a_text_calls() {
        let cases: [(&str, &[&str]); 20] = [
            ("SELECT 1", &[]),
            ("SELECT HIGH_PRIORITY f()", &["f"]),
            ("SELECT HIGH_PRIORITY s.f()", &["s.f"]),
            ("INSERT HIGH_PRIORITY t (a) VALUES (g())", &["g"]),
            ("SELECT count (1), any_value(1), to_char(1), work(), max(1)", &["count", "any_value", "to_char", "work"]),
            ("SELECT until(1)", &["until"]),
            ("CREATE TABLE t AS VALUES (f())", &["f"]),
            ("SELECT count(*), F(1), f(g(2)) FROM t", &["F", "f", "g"]),
            ("CALL p(1, h(2))", &["call p", "h"]),
            ("CALL Shop . `P`", &["call Shop.P"]),
            ("SELECT Shop.`Total`(1)", &["Shop.Total"]),
            ("SELECT NEXT VALUE FOR s", &[]),
            ("SELECT nextval(s)", &["nextval"]),
            ("INSERT INTO t (a) VALUES (f())", &["f"]),
            ("SELECT 1; CALL p; DO f()", &["call p", "f"]),
            ("CREATE FUNCTION g() RETURNS INT RETURN (SELECT f())", &[]),
            ("CREATE TABLE t AS SELECT f()", &["f"]),
            ("SET @a = f()", &["f"]),
            ("SET STATEMENT max_statement_time = 1 FOR SELECT f()", &["f"]),
            ("BEGIN NOT ATOMIC CALL p(); CALL p(); END", &["call p"]),
        ];
        for (sql, expected) in cases {
            assert_eq!(names(&routines(sql.as_bytes(), mode()).unwrap_or_default()), expected, "{sql}");
        }
        assert_eq!(routines(b"CALL a.b.c()", mode()), None);
        assert_eq!(routines(b"SELECT \xff()", mode()), None);
    }

    /// As SHOW CREATE gives it.
    fn body(body: &str) -> Code {
        let definition = format!("CREATE DEFINER=`root`@`%` PROCEDURE `p`(in a int, OUT b INT)\n{body}");
        stored(definition.as_bytes(), mode()).unwrap_or_default()
    }

    #[test]
    fn harmless_bodies() {
        for text in [
            "BEGIN INSERT INTO t(s) VALUES('@x'); SELECT LAST_INSERT_ID() AS inside; END",
            "BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END; START TRANSACTION; DELETE FROM t; COMMIT; END",
            "SELECT a INTO b FROM t LOCK IN SHARE MODE",
            "READS SQL DATA COMMENT 'FLUSH' BEGIN IF (a = 1) THEN SET b = 2; ELSEIF (a = 2) THEN SET time_zone = '+01:00'; END IF; END",
            "BEGIN DECLARE n INT DEFAULT 0; DECLARE c CURSOR FOR SELECT v FROM t; l: LOOP FETCH c INTO n; LEAVE l; END LOOP; END",
            "BEGIN REPEAT SET a = a + 1; UNTIL (a > 5) END REPEAT; WHILE (a < 5) DO SET a = 1; END WHILE; END",
            "BEGIN GET DIAGNOSTICS b = ROW_COUNT; SELECT t.lock, @@sql_mode, CHARSET('a'), b; CREATE TEMPORARY TABLE x (n INT); END",
            "BEGIN INSERT INTO t (a) SELECT MAX(a) FROM t AS u (a); /* @x FLUSH */ END",
            "RETURN @app_user",
            "BEGIN SET a = IFNULL(@v, 'none'); INSERT INTO t.log VALUES (@v, @w); INSERT INTO t SELECT @v, a INTO b; END",
            "BEGIN IF @v IS NULL THEN SIGNAL SQLSTATE '45000'; END IF; SELECT @v; END",
            "BEGIN DECLARE s VARCHAR(20) CHARACTER SET utf8mb4; SELECT `flush`, CONCAT(s, GREATEST(a, 1)) FROM `role`; END",
        ] {
            assert_eq!(Code { tables: false, reads: false, ..body(text) }, Code::default(), "{text}");
        }
    }

    #[test]
    fn bodies_that_name_tables() {
        for text in ["RETURN 1", "BEGIN SET b = REPLACE(a, 1, 2); SELECT b, `from`; END", "BEGIN DECLARE i INT; SELECT 1 INTO i; END"] {
            assert!(!body(text).tables, "{text}");
        }
        for text in ["RETURN (SELECT 1 FROM t)", "INSERT t VALUES (1)", "REPLACE t VALUES (1)", "BEGIN UPDATE t SET a = 1; END", "TABLE t"]
        {
            assert!(body(text).tables, "{text}");
        }
    }

    #[test]
    fn bodies_that_define() {
        for text in [
            "ALTER TABLE t ADD c INT",
            "BEGIN CREATE OR REPLACE VIEW v AS SELECT 1; END",
            "BEGIN DROP TABLE t; END",
            "RENAME TABLE t TO u",
            "BEGIN PREPARE s FROM @q; EXECUTE s; DEALLOCATE PREPARE s; END",
        ] {
            assert!(body(text).defines, "{text}");
        }
        for text in [
            "BEGIN CREATE TEMPORARY TABLE t (a INT); DROP TEMPORARY TABLE t; END",
            "CREATE OR REPLACE TEMPORARY TABLE t (a INT)",
            "TRUNCATE TABLE t",
            "BEGIN PREPARE s FROM 'ALTER TABLE t ADD c INT'; DROP PREPARE s; END",
            "INSERT INTO t VALUES ('ALTER TABLE t'); SELECT t.drop, `create` FROM t",
        ] {
            assert!(!body(text).defines, "{text}");
        }
    }

    #[test]
    fn bodies_that_leave_something() {
        for text in [
            "SELECT 5 INTO @x",
            "BEGIN GET DIAGNOSTICS @n = ROW_COUNT; END",
            "CALL g6(@e)",
            "SELECT 5, 6 INTO a, @x",
            "SET a = 1, @x = 2",
            "BEGIN IF a THEN CALL g6(a, f(@e)); END IF; END",
            "SELECT @x:=5",
            "SET a = g(@e)",
            "SET a = 1 + s.g(IFNULL(@e, 1))",
            "SET @`a b` = 1",
            "BEGIN IF (@`v` := 1) THEN SET a = 1; END IF; END",
        ] {
            assert!(body(text).variables, "{text}");
        }
        for text in [
            "SET TRANSACTION READ ONLY",
            "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            "SET @@tx_read_only = 1",
            "SET @@session.time_zone = '+01:00'",
            "SET @@x := 1",
            "BEGIN SET session_track_state_change = 0; SET session_track_system_variables = ''; END",
            "SET a = 1, SESSION `session_track_schema` = OFF",
            "FLUSH TABLES WITH READ LOCK",
            "FLUSH TABLES t WITH READ LOCK",
            "LOCK INSTANCE FOR BACKUP",
            "BACKUP LOCK t",
            "UNLOCK TABLES",
            "SET b = GET_LOCK('a', 0)",
            "SET b = `get_lock`('a', 0)",
            "BEGIN PREPARE s FROM 'SELECT 1'; END",
            "EXECUTE IMMEDIATE 'select 5 into @v'",
            "HANDLER t OPEN",
            "XA START 'x'",
            "SET NAMES latin1",
            "SET CHARACTER SET latin1",
            "SET a = 1, CHARACTER SET latin1",
            "SET RESOURCE GROUP g",
            "SET STATEMENT sql_log_bin=0 FOR SET time_zone = '+01:00'",
            "LANGUAGE JAVASCRIPT AS $$ f() $$",
            "SELECT 1 /*!999999 ' */ , 2 /* ' */",
        ] {
            assert!(body(text).state, "{text}");
        }
        for text in ["SET a = g(1) + @e", "SELECT g(1); SET a = IFNULL(@e, (SELECT MAX(b) FROM t))"] {
            assert!(!body(text).variables, "{text}");
        }
        let mysql = LexMode { builtins: Builtins::MySql, ..mode() };
        let read = stored(b"CREATE DEFINER=`a`@`%` PROCEDURE `p`(OUT a INT) SET a = g(@e)", mysql);
        assert_eq!(read.map(|code| code.variables), Some(false), "no function of MySQL has OUT parameters");
        assert!(body("SET ROLE NONE").role);
        assert!(body("BEGIN SET DEFAULT ROLE r FOR u; END").role);
        let oracle = LexMode { oracle: true, ..mode() };
        assert!(stored(b"CREATE DEFINER=\"a\"@\"%\" PROCEDURE \"p\"() AS BEGIN q; END", oracle).is_none_or(|code| code.state));
    }

    #[test]
    fn functions_of_one_family() {
        for (name, mysql, mariadb) in [
            ("any_value", true, false),
            ("To_Char", false, true),
            ("count", false, false),
            ("rank", true, false),
            ("work", true, false),
            ("statement", false, false),
            ("area", false, true),
            ("f", false, false),
            ("nextval", false, true),
            ("is_used_lock", true, true),
        ] {
            assert_eq!((is_native(name, false), is_native(name, true)), (mysql, mariadb), "{name}");
        }
    }

    #[test]
    fn what_a_body_calls() {
        let text = "BEGIN DECLARE c CURSOR FOR SELECT f(1); CALL q(); CALL s.r(g(2)); DO h(); ALTER EVENT e DISABLE; SET a = late(); END";
        assert_eq!(names(&body(text).calls), ["f", "call q", "call s.r", "g", "h", "late"]);
        let quoted = LexMode { ansi_quotes: true, ..mode() };
        let code = stored(b"CREATE DEFINER=\"r\"@\"%\" FUNCTION \"f\"() RETURNS int RETURN \"g\"(\"h\")", quoted);
        assert_eq!(names(&code.unwrap_or_default().calls), ["g"]);
        assert_eq!(stored(b"CREATE TABLE t (a INT)", mode()), None);
        assert_eq!(stored(b"", mode()), None);
    }
}
