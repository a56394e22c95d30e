//! Random scripts, and what each answer must be.

use super::connection::{Connection, Reply};
use super::session::{Expected, Open, VARIABLES};
use crate::net::Network;
use crate::oracle::{Fate, Oracle};
use crate::proxies::Proxies;
use crate::random::Random;
use crate::server::SCHEMAS;
use crate::trace::Trace;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use wire::Command;
use wire::flags::StatusFlags;
use wire::reply::ReplyKind;

/// Number of the error by which the proxy tells that a connection to a server was lost.
const SERVER_LOST: u16 = 1927;
/// An answer that takes longer never comes.
const ANSWER_WITHIN: Duration = Duration::from_secs(100);
/// A connection whose server was lost with what bound the session to it is closed within this.
const CLOSED_WITHIN: Duration = Duration::from_secs(5);

/// The conditions of this world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// `connect_timeout_server_max`, ms.
    pub hold_ms: u64,
    /// Longest that a write may take while a healthy writer is visible to everybody, ms.
    pub liveness_ms: u64,
    /// There are fewer connections than clients: waiting may end in error 9001 without a fault.
    pub is_crowded: bool,
    /// `transaction_replay` is on.
    pub replays: bool,
    /// Longest pause between statements, ms.
    pub pause_ms: u64,
}

/// A client: one that writes (user `app`) or one that reads from replicas (`ro`).
pub(crate) struct Client {
    /// Tells the clients apart in the trace.
    pub id: usize,
    /// False for a client that only reads.
    pub writes: bool,
    /// The proxy's processes.
    pub proxy: Rc<Proxies>,
    /// For connects to the proxy.
    pub network: Arc<Network>,
    /// Judges the answers.
    pub oracle: Rc<Oracle>,
    /// The log of the run.
    pub trace: Trace,
    /// Of this client alone.
    pub random: Random,
    /// The conditions that it may count on.
    pub terms: Terms,
}

/// The connection is over.
struct Broken;

struct Session<'a> {
    client: &'a mut Client,
    connection: Connection,
    expected: Expected,
}

impl Client {
    /// Runs scripts until `end`.
    pub(crate) async fn run(mut self, end: Instant) {
        while Instant::now() < end {
            let statements = self.random.within(1..=60);
            self.one_session(statements, end).await;
            self.pause().await;
        }
        self.last_session().await;
    }

    async fn pause(&mut self) {
        let ms = self.random.below(self.terms.pause_ms + 1);
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    async fn connect(&mut self) -> Option<Session<'_>> {
        let (near, far) = self.network.client_pair();
        let port = 10_000 + u16::try_from(self.id).unwrap_or(0);
        self.proxy.accept(Box::new(far), std::net::SocketAddr::from(([127, 0, 0, 1], port)));
        let schema = *self.random.pick(&SCHEMAS);
        let user = if self.writes { "app" } else { "ro" };
        match tokio::time::timeout(ANSWER_WITHIN, Connection::log_in(near, user, schema)).await {
            Ok(Ok(connection)) => Some(Session { client: self, connection, expected: Expected::new(schema) }),
            Ok(Err(e)) => {
                self.oracle.violation(format!("client {} cannot log in: {e}", self.id));
                None
            }
            Err(_) => {
                self.oracle.violation(format!("client {} hangs in its login", self.id));
                None
            }
        }
    }

    async fn one_session(&mut self, statements: u64, end: Instant) {
        let Some(mut session) = self.connect().await else { return };
        for _ in 0..statements {
            if Instant::now() >= end || session.step().await.is_err() {
                break;
            }
            session.client.pause().await;
        }
        session.leave().await;
    }

    /// When all is well again: everything works.
    async fn last_session(&mut self) {
        let Some(mut session) = self.connect().await else { return };
        let _ = session.check_state().await;
        if session.client.writes {
            let _ = session.write().await;
        }
        let _ = session.read().await;
        session.leave().await;
    }
}

impl Drop for Session<'_> {
    /// Uncommitted writes must not appear.
    fn drop(&mut self) {
        if let Some(group) = self.expected.transaction.take().and_then(|t| t.group) {
            self.client.oracle.decide(group, Fate::Failed);
        }
    }
}

impl Session<'_> {
    fn wrong(&self, text: impl std::fmt::Display) {
        self.client.oracle.violation(format!("client {}: {text}", self.client.id));
    }

    async fn leave(&mut self) {
        if self.client.random.chance(50) {
            let _ = self.connection.send(Command::Quit, &[]).await;
            let _ = tokio::time::timeout(CLOSED_WITHIN, self.connection.closed()).await;
        }
    }

    /// Sends a command and reads its answer.
    async fn ask(&mut self, command: Command, body: &[u8], kind: ReplyKind, shown: &str) -> Result<Reply, Broken> {
        let (id, started) = (self.client.id, Instant::now());
        self.client.trace.note(|| format!("client {id} asks: {shown}"));
        let is_binary = command == Command::StmtExecute;
        let exchange = async {
            self.connection.send(command, body).await?;
            self.connection.reply(kind, is_binary).await
        };
        let reply = match tokio::time::timeout(ANSWER_WITHIN, exchange).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(e)) => {
                self.client.trace.note(|| format!("client {id}: {e}"));
                self.client.oracle.count("connections lost");
                if self.client.oracle.faults() == 0 {
                    self.wrong(format_args!("connection lost without a fault: {e} after {shown}"));
                }
                return Err(Broken);
            }
            Err(_) => {
                self.wrong(format_args!("hang: no answer to {shown}"));
                return Err(Broken);
            }
        };
        self.client.oracle.count("statements");
        self.client.trace.note(|| format!("client {id} is answered: {:?} {:?}", reply.error, reply.rows));
        if let Some((code, text)) = reply.error.clone() {
            self.judge(code, &text, started, shown).await?;
        } else if shown != "BEGIN" && kind != ReplyKind::Prepare {
            self.begun(shown);
        }
        if reply.error.is_none() && kind != ReplyKind::Prepare {
            self.check_status(&reply, shown);
        }
        Ok(reply)
    }

    /// Something ran in the open transaction.
    fn begun(&mut self, shown: &str) {
        if let Some(open) = self.expected.transaction.as_mut() {
            open.is_bare = false;
            open.is_only_opened &= ["SET ", "USE ", "COM_INIT_DB"].iter().any(|setting| shown.starts_with(setting));
        }
    }

    async fn query(&mut self, sql: &str) -> Result<Reply, Broken> {
        self.ask(Command::Query, sql.as_bytes(), ReplyKind::Results, sql).await
    }

    /// Is this error one that may be, now?
    async fn judge(&mut self, code: u16, text: &str, started: Instant, shown: &str) -> Result<(), Broken> {
        let held = started.elapsed();
        let least = Duration::from_millis(self.client.terms.hold_ms.saturating_sub(10));
        self.client.oracle.count(match code {
            SERVER_LOST => "server lost",
            9001 => "error 9001",
            1290 => "error 1290",
            _ => "other errors",
        });
        let is_bound = self.expected.is_bound();
        let is_only_opened = self.expected.transaction.as_ref().is_some_and(|open| open.is_only_opened);
        let moves = (self.client.terms.replays || is_only_opened) && self.expected.has_only_a_transaction();
        if code != 9001 {
            self.begun(shown);
        }
        let quiet = self.client.oracle.faults() == 0;
        match code {
            9001 if is_bound && !moves => self.wrong(format_args!("a pinned session was told to wait: {text} ({shown})")),
            9001 if held < least => self.wrong(format_args!("refused, not held, after {} ms: {text}", held.as_millis())),
            9001 if self.client.terms.is_crowded => {}
            _ if quiet => self.wrong(format_args!("error {code} without a fault: {text} ({shown})")),
            SERVER_LOST if text.starts_with("Connection was killed") => return Err(Broken),
            SERVER_LOST if is_bound => {
                if tokio::time::timeout(CLOSED_WITHIN, self.connection.closed()).await.is_err() {
                    self.wrong(format_args!("the server with the session's state was lost, and the session goes on: {text} ({shown})"));
                }
                return Err(Broken);
            }
            SERVER_LOST | 9001 | 1290 => {}
            // A demoted server was left for good, and with it the transaction.
            9004 => {
                if let Some(group) = self.expected.transaction.take().and_then(|t| t.group) {
                    self.client.oracle.decide(group, Fate::Failed);
                }
            }
            // The connection ends with it.
            1053 => return Err(Broken),
            _ => self.wrong(format_args!("error {code}: {text} ({shown})")),
        }
        Ok(())
    }

    /// The flags of an answer are those of a private connection. A statement that begins or ends a transaction is looked at
    /// by its caller.
    fn check_status(&self, reply: &Reply, shown: &str) {
        if reply.status.contains(StatusFlags::AUTOCOMMIT) != self.expected.autocommit && !shown.contains("autocommit") {
            self.wrong(format_args!("autocommit should be {} ({shown})", self.expected.autocommit));
        }
    }

    fn check_transaction(&self, reply: &Reply) {
        if reply.error.is_none() && reply.status.contains(StatusFlags::IN_TRANS) != self.expected.transaction.is_some() {
            self.wrong(format_args!(
                "the server's status says {:?}, a transaction should be {:?}",
                reply.status, self.expected.transaction
            ));
        }
    }

    /// One random thing.
    async fn step(&mut self) -> Result<(), Broken> {
        let in_transaction = self.expected.transaction.is_some();
        match self.client.random.below(100) {
            0..=24 if self.client.writes => self.write().await,
            0..=39 => self.read().await,
            40..=51 => self.check_state().await,
            52..=58 if in_transaction => self.end_transaction().await,
            52..=58 => self.begin().await,
            59..=64 if in_transaction => self.end_transaction().await,
            59..=62 => self.set_variable().await,
            63..=65 => self.set_user_variable().await,
            66..=68 => self.use_schema().await,
            69..=70 if !in_transaction => self.toggle_autocommit().await,
            71..=76 => self.temporary().await,
            77..=81 => self.lock().await,
            82..=83 => self.own_variable().await,
            84..=86 => self.sleep().await,
            87..=88 => self.vanish().await,
            89..=99 => self.execute().await,
            _ => self.read().await,
        }
    }

    /// A write took this long: was it held up while it need not have been?
    fn check_liveness(&self, started: Instant) {
        if self.client.terms.is_crowded {
            return;
        }
        let Some(calm) = self.client.oracle.calm_since() else { return };
        let waited = Instant::now() - started.max(calm);
        if waited > Duration::from_millis(self.client.terms.liveness_ms) {
            self.wrong(format_args!("liveness: a write took {} ms while a healthy writer was visible", waited.as_millis()));
        }
    }

    /// A number to write, its group, and whether it is alone in it.
    fn next_op(&mut self) -> (i64, usize, bool) {
        let oracle = &self.client.oracle;
        let alone = self.expected.autocommit && self.expected.transaction.is_none();
        if alone {
            let (op, group) = oracle.new_op(Fate::Unknown);
            return (op, group, true);
        }
        match self.expected.transaction.as_ref().and_then(|t| t.group) {
            Some(group) => (oracle.op_in(group), group, false),
            None => {
                let (op, group) = oracle.new_op(Fate::Open);
                (op, group, false)
            }
        }
    }

    async fn write(&mut self) -> Result<(), Broken> {
        let (op, group, alone) = self.next_op();
        let started = Instant::now();
        let result = self.query(&format!("INSERT INTO t (op) VALUES ({op})")).await;
        self.wrote(op, group, alone, started, result)
    }

    /// Derives a write's fate from its answer.
    fn wrote(&mut self, op: i64, group: usize, alone: bool, started: Instant, result: Result<Reply, Broken>) -> Result<(), Broken> {
        self.check_liveness(started);
        let oracle = Rc::clone(&self.client.oracle);
        let Ok(reply) = result else {
            if !alone {
                oracle.decide(group, Fate::Failed);
            }
            return Err(Broken);
        };
        match (&reply.error, alone) {
            (None, true) => oracle.decide(group, Fate::Acknowledged(Instant::now())),
            (None, false) => {
                let open = self.expected.transaction.get_or_insert(Open::default());
                open.group = Some(group);
                open.ops.push(op);
            }
            (Some((SERVER_LOST, _)), true) => {}
            (Some(_), true) => oracle.decide(group, Fate::Failed),
            (Some(_), false) => oracle.leave_out(op),
        }
        match &reply.error {
            None => self.expected.last_insert_id = Some(reply.insert_id),
            Some(_) => self.expected.last_insert_id = None,
        }
        self.check_transaction(&reply);
        Ok(())
    }

    async fn read(&mut self) -> Result<(), Broken> {
        let Some(op) = self.choose_op() else { return Ok(()) };
        let reply = self.query(&format!("SELECT n FROM t WHERE op = {op}")).await?;
        self.have_read(op, &reply);
        Ok(())
    }

    /// An op to look for: in a transaction often its own.
    fn choose_op(&mut self) -> Option<i64> {
        let own: Vec<i64> = self.expected.transaction.iter().flat_map(|t| t.ops.clone()).collect();
        if !own.is_empty() && self.client.random.chance(60) {
            Some(*self.client.random.pick(&own))
        } else {
            self.client.oracle.some_op(&mut self.client.random)
        }
    }

    /// Reads of server state are checked by the servers. A transaction must see its own writes.
    fn have_read(&mut self, op: i64, reply: &Reply) {
        if reply.error.is_some() {
            return;
        }
        if !self.expected.autocommit && self.expected.transaction.is_none() {
            self.expected.transaction = Some(Open::default());
        }
        let is_own = self.expected.transaction.as_ref().is_some_and(|t| t.ops.contains(&op));
        let seen = reply.rows.first().and_then(|r| r.first().cloned()).flatten();
        if is_own && seen.as_deref() != Some("1") {
            self.wrong(format_args!("a transaction does not see its own op {op}: {seen:?}"));
        }
        self.check_transaction(reply);
    }

    async fn begin(&mut self) -> Result<(), Broken> {
        let reply = self.query("BEGIN").await?;
        if reply.error.is_none() {
            self.expected.transaction = Some(Open { is_bare: true, is_only_opened: true, ..Open::default() });
            self.check_transaction(&reply);
        }
        Ok(())
    }

    async fn end_transaction(&mut self) -> Result<(), Broken> {
        match self.client.random.below(10) {
            0..=2 => self.roll_back().await,
            3 if !self.expected.autocommit => self.commit("SET autocommit=1").await,
            _ => self.commit("COMMIT").await,
        }
    }

    async fn roll_back(&mut self) -> Result<(), Broken> {
        let reply = self.query("ROLLBACK").await?;
        if reply.error.is_none()
            && let Some(group) = self.expected.transaction.take().and_then(|t| t.group)
        {
            self.client.oracle.decide(group, Fate::Failed);
        }
        self.check_transaction(&reply);
        Ok(())
    }

    async fn commit(&mut self, how: &str) -> Result<(), Broken> {
        let oracle = Rc::clone(&self.client.oracle);
        let Some(open) = self.expected.transaction.clone() else { return Ok(()) };
        if let Some(group) = open.group {
            oracle.decide(group, Fate::Unknown);
        }
        let result = self.query(how).await;
        let Ok(reply) = result else {
            // From here on the fate is unknown.
            self.expected.transaction = None;
            return Err(Broken);
        };
        if !matches!(reply.error, Some((9001, _))) {
            self.expected.transaction = None;
        }
        let fate = match &reply.error {
            None => Fate::Acknowledged(Instant::now()),
            Some((SERVER_LOST, _)) => Fate::Unknown,
            Some(_) => Fate::Failed,
        };
        if let Some(group) = open.group {
            oracle.decide(group, fate);
        }
        if reply.error.is_none() && how.contains("autocommit") {
            self.expected.autocommit = true;
        }
        self.check_transaction(&reply);
        Ok(())
    }

    async fn check_state(&mut self) -> Result<(), Broken> {
        let names: Vec<String> = VARIABLES.iter().map(|v| format!("@@session.{}", v.0)).collect();
        let sql = format!("SELECT DATABASE(), {}, @@session.autocommit, @u1, @u2, LAST_INSERT_ID()", names.join(", "));
        let reply = self.query(&sql).await?;
        if reply.error.is_some() {
            return Ok(());
        }
        let mut wanted = vec![Some(self.expected.schema.clone())];
        wanted.extend(VARIABLES.iter().map(|v| Some(self.expected.variable(v.0))));
        wanted.push(Some(u8::from(self.expected.autocommit).to_string()));
        wanted.extend(["u1", "u2"].map(|name| self.expected.user_variables.get(name).cloned()));
        let mut seen = reply.rows.first().cloned().unwrap_or_default();
        let id = seen.pop().flatten();
        if seen != wanted {
            self.wrong(format_args!("session equality: the session shows {seen:?}, should be {wanted:?}"));
        }
        if let Some(wanted) = self.expected.last_insert_id.map(|id| id.to_string())
            && id.as_ref() != Some(&wanted)
        {
            self.wrong(format_args!("session equality: LAST_INSERT_ID() is {id:?}, should be {wanted}"));
        }
        self.check_transaction(&reply);
        Ok(())
    }

    async fn set_variable(&mut self) -> Result<(), Broken> {
        let (name, _, values) = *self.client.random.pick(&VARIABLES);
        let value = *self.client.random.pick(&values);
        let literal = if value.bytes().all(|b| b.is_ascii_digit()) { value.to_owned() } else { format!("'{value}'") };
        let reply = self.query(&format!("SET SESSION {name} = {literal}")).await?;
        if reply.error.is_none() {
            self.expected.variables.insert(name, value.to_owned());
        }
        Ok(())
    }

    async fn set_user_variable(&mut self) -> Result<(), Broken> {
        let name = *self.client.random.pick(&["u1", "u2"]);
        let value = self.client.random.below(1_000_000_000);
        let reply = self.query(&format!("SET @{name} = {value}")).await?;
        if reply.error.is_none() {
            self.expected.user_variables.insert(name, value.to_string());
        }
        Ok(())
    }

    async fn use_schema(&mut self) -> Result<(), Broken> {
        if !self.expected.temporary.is_empty() {
            // The model's temporary tables have no schema; a server's could not be found from another schema.
            return Ok(());
        }
        let schema = *self.client.random.pick(&SCHEMAS);
        let reply = if self.client.random.chance(50) {
            self.query(&format!("USE {schema}")).await?
        } else {
            self.ask(Command::InitDb, schema.as_bytes(), ReplyKind::Simple, "COM_INIT_DB").await?
        };
        if reply.error.is_none() {
            self.expected.schema = schema.to_owned();
        }
        Ok(())
    }

    async fn toggle_autocommit(&mut self) -> Result<(), Broken> {
        let on = !self.expected.autocommit;
        let reply = self.query(&format!("SET autocommit={}", u8::from(on))).await?;
        if reply.error.is_none() {
            self.expected.autocommit = on;
            if reply.status.contains(StatusFlags::AUTOCOMMIT) != on {
                self.wrong("SET autocommit had no effect");
            }
        }
        Ok(())
    }

    async fn temporary(&mut self) -> Result<(), Broken> {
        let name = *self.client.random.pick(&["tmp1", "tmp2"]);
        let Some(rows) = self.expected.temporary.get(name).cloned() else {
            let reply = self.query(&format!("CREATE TEMPORARY TABLE {name} (a INT)")).await?;
            if reply.error.is_none() {
                self.expected.temporary.insert(name, Vec::new());
            }
            return Ok(());
        };
        match self.client.random.below(4) {
            0 => {
                let reply = self.query(&format!("DROP TEMPORARY TABLE {name}")).await?;
                if reply.error.is_none() {
                    self.expected.temporary.remove(name);
                }
            }
            1 => {
                let value = i64::try_from(self.client.random.below(1_000_000)).unwrap_or(0);
                let reply = self.query(&format!("INSERT INTO {name} (a) VALUES ({value})")).await?;
                if let (None, Some(rows)) = (&reply.error, self.expected.temporary.get_mut(name)) {
                    rows.push(value);
                }
            }
            _ => {
                let reply = self.query(&format!("SELECT a FROM {name}")).await?;
                let seen: Vec<Option<String>> = reply.rows.iter().filter_map(|r| r.first().cloned()).collect();
                let wanted: Vec<Option<String>> = rows.iter().map(|n| Some(n.to_string())).collect();
                if reply.error.is_none() && seen != wanted {
                    self.wrong(format_args!("temporary table {name} has {seen:?}, should be {wanted:?}"));
                }
            }
        }
        Ok(())
    }

    async fn lock(&mut self) -> Result<(), Broken> {
        let name = *self.client.random.pick(&["l1", "l2", "l3"]);
        let held = self.expected.locks.contains(name);
        let call = if held { format!("SELECT RELEASE_LOCK('{name}')") } else { format!("SELECT GET_LOCK('{name}', 0)") };
        let reply = self.query(&call).await?;
        let got = reply.rows.first().and_then(|r| r.first().cloned()).flatten();
        match (reply.error.is_none(), held, got.as_deref()) {
            (true, true, got) => {
                self.expected.locks.remove(name);
                if got != Some("1") {
                    self.wrong(format_args!("lock {name} was held, and RELEASE_LOCK() says {got:?}"));
                }
            }
            (true, false, Some("1")) => drop(self.expected.locks.insert(name)),
            // Another session has the lock: nothing is held, and the pin from the call ends here.
            (true, false, _) => drop(self.query(&format!("SELECT RELEASE_LOCK('{name}')")).await?),
            (false, ..) => {}
        }
        Ok(())
    }

    /// A user variable whose value the proxy does not know.
    async fn own_variable(&mut self) -> Result<(), Broken> {
        let value = self.client.random.below(1_000_000).to_string();
        let reply = self.query(&format!("SELECT @own := {value}")).await?;
        if reply.error.is_some() {
            return Ok(());
        }
        self.expected.has_own_variable = true;
        self.client.pause().await;
        let reply = self.query("SELECT @own").await?;
        if reply.error.is_none() && reply.rows != [[Some(value.clone())]] {
            self.wrong(format_args!("@own is {:?}, should be {value}", reply.rows));
        }
        Ok(())
    }

    async fn sleep(&mut self) -> Result<(), Broken> {
        let ms = self.client.random.below(400);
        self.query(&format!("SELECT SLEEP({ms})")).await.map(drop)
    }

    /// The client is gone, perhaps while its statement runs.
    async fn vanish(&mut self) -> Result<(), Broken> {
        if self.client.random.chance(60) {
            let (op, group, alone) = self.next_op();
            let sql = if self.client.writes && self.client.random.chance(70) {
                format!("INSERT INTO t (op) VALUES ({op})")
            } else {
                "SELECT SLEEP(300)".to_owned()
            };
            let id = self.client.id;
            self.client.trace.note(|| format!("client {id} asks and vanishes: {sql}"));
            let _ = self.connection.send(Command::Query, sql.as_bytes()).await;
            let wait = self.client.random.below(30);
            tokio::time::sleep(Duration::from_millis(wait)).await;
            if !alone {
                self.client.oracle.decide(group, Fate::Failed);
            }
        }
        Err(Broken)
    }

    async fn execute(&mut self) -> Result<(), Broken> {
        let Some((insert, select)) = self.prepare().await? else { return Ok(()) };
        let writes = self.client.writes && self.client.random.chance(50);
        if writes {
            let (op, group, alone) = self.next_op();
            let started = Instant::now();
            let result = self.execute_with(insert, op, "insert").await;
            return self.wrote(op, group, alone, started, result);
        }
        let Some(op) = self.choose_op() else { return Ok(()) };
        let reply = self.execute_with(select, op, "select").await?;
        self.have_read(op, &reply);
        Ok(())
    }

    async fn execute_with(&mut self, id: u32, op: i64, what: &str) -> Result<Reply, Broken> {
        let mut body = id.to_le_bytes().to_vec();
        body.extend_from_slice(&[0, 1, 0, 0, 0, 0, 1, 8, 0]);
        body.extend_from_slice(&op.to_le_bytes());
        self.ask(Command::StmtExecute, &body, ReplyKind::Results, &format!("execution of the {what} with {op}")).await
    }

    async fn prepare(&mut self) -> Result<Option<(u32, u32)>, Broken> {
        if self.expected.prepared.is_none() {
            let mut ids = Vec::new();
            for text in ["INSERT INTO t (op) VALUES (?)", "SELECT n FROM t WHERE op = ?"] {
                let reply = self.ask(Command::StmtPrepare, text.as_bytes(), ReplyKind::Prepare, text).await?;
                if reply.error.is_none() {
                    ids.push(u32::try_from(reply.insert_id).unwrap_or(0));
                }
            }
            self.expected.prepared = match ids[..] {
                [insert, select] => Some((insert, select)),
                _ => None,
            };
        }
        Ok(self.expected.prepared)
    }
}
