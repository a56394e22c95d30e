//! Executions of prepared statements of several sessions under way on one connection (`mysql-pipeline_depth`): each gets its own rows,
//! whatever becomes of the statement or the connection, and whatever the client agreed upon.

#![allow(clippy::unwrap_used, clippy::expect_used)] // tests may panic

mod common;

use common::pipelining::{AGAIN, BOTH, Line, PIPELINED, admin, eager, number, run_short};
use common::{LIMIT, proxy_with, server};
use lab::client::{Encoding, Execution, Param, Prepared, Reply};
use lab::{Client, ConnectOptions, Flavor, Server, Tidegate, wait};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use wire::Capabilities;

/// A client: every second one ends results with EOF packets, and is told nothing of its session. `more` is agreed upon, too.
fn session(proxy: &Tidegate, number: usize, more: Capabilities) -> Client {
    let capabilities = if number.is_multiple_of(2) { ConnectOptions::MODERN } else { ConnectOptions::CLASSIC };
    let options = proxy.options("app", "app-pass").database("test").timeout(LIMIT);
    Client::connect(&options.capabilities(capabilities.union(more))).unwrap()
}

fn plain_session(proxy: &Tidegate, number: usize) -> Client {
    session(proxy, number, Capabilities::empty())
}

/// A session that reads the row of its own key again and again.
struct Reader {
    session: Client,
    key: usize,
    sql: &'static str,
    statement: Option<Prepared>,
    executed: usize,
}

/// What readers execute: a number, a text, and all columns of a table that changes.
const TEXTS: [&str; 3] =
    ["SELECT id, v FROM owned WHERE id = ?", "SELECT id, v FROM owned WHERE v = ?", "SELECT * FROM owned WHERE id = ? LIMIT 5"];

impl Reader {
    fn new(proxy: &Tidegate, key: usize, more: Capabilities) -> Self {
        Self { session: session(proxy, key, more), key, sql: TEXTS[key / 3 % 3], statement: None, executed: 0 }
    }

    /// Every seventh read is a text. The statement is prepared again after every twentieth. Types are sent with the first execution and now and then.
    fn reads_own(&mut self) {
        self.executed += 1;
        if self.executed.is_multiple_of(7) {
            let row = self.session.run(format!("SELECT id, v FROM owned WHERE id = {}", self.key)).unwrap().table().unwrap();
            return self.checks(&row);
        }
        if self.executed.is_multiple_of(20)
            && let Some(statement) = self.statement.take()
        {
            self.session.close_statement(&statement).unwrap();
        }
        let is_first = self.statement.is_none();
        let statement = self.statement.get_or_insert_with(|| self.session.prepare(self.sql).unwrap());
        let param = if self.sql.contains("v = ?") { Param::Text(format!("v{}", self.key)) } else { Param::Int(self.key as i64) };
        let how = Execution { reuse_types: !is_first && !self.executed.is_multiple_of(3), ..Execution::default() };
        let row = self.session.execute_with(statement, &[param], how).unwrap().table().unwrap();
        self.checks(&row);
    }

    fn checks(&self, rows: &[Vec<Option<String>>]) {
        let [row] = rows else { panic!("{rows:?} for {}", self.key) };
        assert_eq!(row[..2], [Some(self.key.to_string()), Some(format!("v{}", self.key))]);
    }
}

fn owned(server: &Server, keys: usize) {
    let rows: Vec<String> = (0..keys).map(|key| format!("({key}, 'v{key}')")).collect();
    server.sql("CREATE TABLE test.owned (id INT PRIMARY KEY, v VARCHAR(20), KEY (v))").unwrap();
    server.sql(&format!("INSERT INTO test.owned VALUES {}", rows.join(","))).unwrap();
}

#[test]
fn each_of_many_sessions_gets_its_own_rows_though_connections_are_killed_and_the_table_changes() {
    const SESSIONS: usize = 54;
    let attributes = Capabilities::QUERY_ATTRIBUTES;
    for (flavor, more) in [(Flavor::Mariadb, Capabilities::empty()), (Flavor::Mysql, Capabilities::empty()), (Flavor::Mysql, attributes)] {
        let server = server(flavor);
        owned(server, SESSIONS);
        let proxy = proxy_with(server, 2, |builder| eager(builder, 1_000));
        (0..SESSIONS / 3).for_each(|key| {
            let mut reader = Reader::new(&proxy, key, more);
            (0..300).for_each(|_| reader.reads_own());
        });
        let (done, answers) = (AtomicBool::new(false), AtomicU64::new(0));
        let (mut root, mut admin) = (server.root().unwrap(), admin(&proxy));
        thread::scope(|scope| {
            for key in 0..SESSIONS {
                let (mut reader, done, answers) = (Reader::new(&proxy, key, more), &done, &answers);
                scope.spawn(move || {
                    while !done.load(Ordering::Acquire) {
                        reader.reads_own();
                        answers.fetch_add(1, Ordering::AcqRel);
                    }
                });
            }
            let goes_on = |admin: &mut Client| {
                let most = number(admin, PIPELINED) + 500;
                wait::until("executions are under way together", LIMIT, || (number(admin, PIPELINED) > most).then_some(()))
            };
            let seen = (0..3).try_for_each(|column| {
                goes_on(&mut admin)?;
                let id = root.scalar("SELECT id FROM information_schema.processlist WHERE user = 'app' LIMIT 1")?.unwrap();
                // It may have gone meanwhile.
                root.query(format!("KILL {id}"))?;
                goes_on(&mut admin)?;
                root.run(format!("ALTER TABLE test.owned ADD COLUMN c{column} INT DEFAULT {column}")).map(drop)
            });
            let after = goes_on(&mut admin);
            done.store(true, Ordering::Release);
            seen.and(after).unwrap();
        });
        let (together, all) = (number(&mut admin, PIPELINED), answers.into_inner());
        assert!(together > all / 4, "{flavor:?}: {together} of {all} only");
        server.sql("DROP TABLE test.owned").unwrap();
    }
}

fn answer(session: &mut Client) -> Reply {
    session.recv_reply(Encoding::Binary).unwrap()
}

/// On each of the two connections it is prepared, and known to be quick.
fn learn(proxy: &Tidegate, sql: &str, param: &str) {
    run_short(proxy);
    let mut sessions: Vec<Client> = (0..2).map(|_| plain_session(proxy, 0)).collect();
    let statements: Vec<Prepared> = sessions.iter_mut().map(|session| session.prepare(sql).unwrap()).collect();
    let execute = |session: &mut Client, statement| {
        let params = [Param::Text(param.to_owned())];
        drop(session.execute(statement, &params).unwrap().check().unwrap());
    };
    (0..300).for_each(|_| execute(&mut sessions[0], &statements[0]));
    sessions.iter_mut().for_each(|session| drop(session.run("BEGIN").unwrap()));
    sessions.iter_mut().zip(&statements).for_each(|(session, statement)| execute(session, statement));
    sessions.iter_mut().for_each(|session| drop(session.run("COMMIT").unwrap()));
}

#[test]
fn warnings_errors_cursors_and_long_replies_are_as_ever() {
    for flavor in BOTH {
        let proxy = proxy_with(server(flavor), 2, |builder| eager(builder, 1_000).variable("threads", 1));
        for (sql, quick, odd) in [
            ("SELECT CAST(? AS UNSIGNED)", "5", "x"),
            ("SELECT JSON_EXTRACT('{}', ?)", "$.a", "$$$"),
            ("SELECT REPEAT(?, 10000)", "a", "abcdefgh"),
        ] {
            learn(&proxy, sql, quick);
            let mut line = Line::new(&proxy, [(); 2].map(|()| plain_session(&proxy, 0)));
            let mut sessions: Vec<Client> = (0..4).map(|kind| plain_session(&proxy, kind)).collect();
            let statements: Vec<Prepared> = sessions.iter_mut().map(|session| session.prepare(sql).unwrap()).collect();
            for (n, session) in sessions.iter_mut().enumerate() {
                // The third one has a cursor, and a connection for itself.
                let how = Execution { cursor: n == 2, ..Execution::default() };
                let param = Param::Text(if n == 1 { odd } else { quick }.to_owned());
                line.asks(|| session.send_execute(statements[n].id, &[param], how).unwrap());
            }
            let (again, together) = (number(&mut line.admin, AGAIN), number(&mut line.admin, PIPELINED));
            line.moves();
            let mut direct = Client::connect(&ConnectOptions::app(server(flavor)).timeout(LIMIT)).unwrap();
            let statement = direct.prepare(sql).unwrap();
            let mut expected = |param: &str| {
                let reply = direct.execute(&statement, &[Param::Text(param.to_owned())]).unwrap();
                let warnings = direct.run("SHOW WARNINGS").unwrap().table().unwrap();
                (reply.table().ok(), reply.err().map(|e| e.code), warnings)
            };
            let (plain, strange) = (expected(quick), expected(odd));
            for (n, session) in sessions.iter_mut().enumerate() {
                let reply = answer(session);
                if n == 2 {
                    let columns = reply.rows().unwrap().columns.clone();
                    let fetched = session.fetch(&statements[n], &columns, 10).unwrap();
                    let rows: Vec<_> = fetched.rows.iter().map(|row| row.text()).collect();
                    assert_eq!(Some(rows), plain.0, "{flavor:?} {sql}");
                    continue;
                }
                let (rows, code, warnings) = if n == 1 { &strange } else { &plain };
                assert_eq!((reply.table().ok(), reply.err().map(|e| e.code)), (rows.clone(), *code), "{flavor:?} {sql} {n}");
                assert_eq!(session.run("SHOW WARNINGS").unwrap().table().unwrap(), *warnings, "{flavor:?} {sql} {n}");
            }
            assert_eq!(number(&mut line.admin, PIPELINED), together + 2, "{flavor:?} {sql}");
            assert_eq!(number(&mut line.admin, AGAIN), again + 1, "{flavor:?} {sql}");
        }
    }
}
