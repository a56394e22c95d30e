//! A session on a model server: commands in, answers out, and their effects.

use super::login::{self, Packets};
use super::prepared::Statements;
use super::reply::Answer;
use super::sql::{self, Expr, Scope, Statement, Target};
use super::state::{SCHEMAS, SessionState, global, names};
use super::{Handle, Server, Transaction};
use crate::net::End;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;
use wire::Command;
use wire::flags::{Capabilities, StatusFlags};

/// The text of error 1290.
const READ_ONLY: &str = "The MySQL server is running with the --read-only option so it cannot execute this statement";

struct Session<'a> {
    server: &'a Server,
    handle: Rc<Handle>,
    id: u32,
    caps: Capabilities,
    state: SessionState,
    statements: Statements,
    /// When the proxy sent the command at hand.
    sent: Instant,
    /// When it sent the one that bound the session to this server: by a transaction, or by other state of its own.
    bound_since: Option<Instant>,
}

/// Serves a connection to its end.
pub(super) async fn run(server: &Server, end: End, id: u32, handle: Rc<Handle>) {
    if let Err(e) = serve(server, end, id, handle).await {
        server.trace.note(|| format!("db{} connection {id}: {e}", server.id));
    }
}

async fn serve(server: &Server, end: End, id: u32, handle: Rc<Handle>) -> io::Result<()> {
    let mut packets = Packets::new(end);
    tokio::time::sleep(server.some_time()).await;
    let Some(who) = login::log_in(server, &mut packets, id).await? else { return Ok(()) };
    let mut state = SessionState::new(server.flavor, who.collation);
    state.schema = who.schema;
    let sent = Instant::now();
    let mut session = Session { server, handle, id, caps: who.caps, state, statements: Statements::default(), sent, bound_since: None };
    server.trace.note(|| format!("db{} connection {id}: '{}' logged in", server.id, who.user));
    loop {
        let payload = packets.receive().await?;
        session.sent = packets.end.read_sent().unwrap_or_else(Instant::now);
        session.handle.is_busy.set(true);
        let Some(bytes) = session.command(&payload, packets.seq).await else { return Ok(()) };
        session.handle.is_busy.set(false);
        packets.end.write_all(&bytes).await?;
    }
}

impl Session<'_> {
    fn status(&self) -> StatusFlags {
        let mut status = StatusFlags::default();
        status.set(StatusFlags::AUTOCOMMIT, self.state.autocommit());
        status.set(StatusFlags::IN_TRANS, self.state.transaction.is_some());
        status
    }

    /// Does one command; None ends the session.
    async fn command(&mut self, payload: &[u8], seq: u8) -> Option<Vec<u8>> {
        let (byte, body) = payload.split_first()?;
        let command = Command::from_u8(*byte)?;
        let text = String::from_utf8_lossy(body).into_owned();
        let (answer, is_binary) = match command {
            Command::Quit => return None,
            Command::Ping => (Answer::default(), false),
            Command::InitDb => (self.use_schema(&text), false),
            Command::ResetConnection => (self.reset(), false),
            Command::Query => (self.query(&text).await, false),
            Command::StmtPrepare => match self.statements.prepare(&text, self.caps, self.status()) {
                Ok(packets) => return Some(packets),
                Err(text) => (Answer::error(1064, b"42000", text), false),
            },
            Command::StmtExecute => match self.statements.bind(payload, self.caps) {
                Some(statement) => (self.execute(statement).await, true),
                None => (Answer::error(1243, b"HY000", "Unknown prepared statement handler"), false),
            },
            Command::StmtClose => {
                self.statements.close(payload);
                return Some(Vec::new());
            }
            _ => (Answer::error(1047, b"08S01", "Unknown command"), false),
        };
        self.handle.in_transaction.set(self.state.transaction.is_some());
        self.bound_since = self.is_bound().then(|| self.bound_since.unwrap_or(self.sent));
        Some(answer.write(seq, self.status(), self.caps, is_binary))
    }

    fn is_bound(&self) -> bool {
        let state = &self.state;
        let holds_lock = || self.server.state().locks.values().any(|owner| *owner == self.id);
        state.transaction.is_some() || !state.temporary.is_empty() || state.user_variables.contains_key("own") || holds_lock()
    }

    async fn query(&mut self, text: &str) -> Answer {
        self.server.trace.note(|| format!("db{} connection {}: {text}", self.server.id, self.id));
        match sql::parse(text) {
            Ok(statement) => self.execute(statement).await,
            Err(text) => Answer::error(1064, b"42000", text),
        }
    }

    async fn execute(&mut self, statement: Statement) -> Answer {
        self.handle.killed.set(false);
        // A crash in this moment finds the statement not done, or done and not answered.
        tokio::time::sleep(self.server.some_time()).await;
        let keeps_warnings = statement == Statement::ShowWarnings;
        let answer = self.perform(statement).await;
        if !keeps_warnings {
            self.state.warnings = answer.error.iter().map(|(code, _, text)| (*code, text.clone())).collect();
        }
        tokio::time::sleep(self.server.some_time()).await;
        if let Some((code, _, text)) = &answer.error {
            self.server.trace.note(|| format!("db{} connection {}: error {code}: {text}", self.server.id, self.id));
        }
        answer
    }

    async fn perform(&mut self, statement: Statement) -> Answer {
        match statement {
            Statement::Insert { table, op } => self.insert(&table, op.unwrap_or_default()).await,
            Statement::Select { list, table, op } => self.select(&list, table.as_deref(), op.flatten()).await,
            Statement::Begin => match self.commit().await {
                None => {
                    self.begin();
                    Answer::default()
                }
                Some(error) => error,
            },
            Statement::Commit => self.commit().await.unwrap_or_default(),
            Statement::Rollback => {
                self.state.transaction = None;
                Answer::default()
            }
            Statement::Set(all) => self.set(&all).await,
            Statement::Use(schema) => self.use_schema(&schema),
            Statement::CreateTemporary(name) => match self.state.temporary.insert(name, Vec::new()) {
                None => self.changed(),
                Some(_) => Answer::error(1050, b"42S01", "Table already exists"),
            },
            Statement::DropTemporary(name) => match self.state.temporary.remove(&name) {
                Some(_) => self.changed(),
                None => Answer::error(1051, b"42S02", "Unknown table"),
            },
            Statement::ShowWarnings => {
                let row = |(code, text): &(u16, String)| vec![Some("Error".to_owned()), Some(code.to_string()), Some(text.clone())];
                rows(&["Level", "Code", "Message"], self.state.warnings.iter().map(row).collect())
            }
            Statement::ShowVariables => {
                let row = |name: &str| vec![Some(name.to_owned()), self.state.variable(name)];
                rows(&["Variable_name", "Value"], names().filter(|n| !n.ends_with("insert_id")).map(row).collect())
            }
            Statement::Do => Answer::default(),
            Statement::Processlist(id) => {
                let row = |is_busy: bool| vec![Some(if is_busy { "Query" } else { "Sleep" }.to_owned()), Some(self.id.to_string())];
                let found = self.server.is_busy(u32::try_from(id).unwrap_or(0));
                rows(&["COMMAND", "CONNECTION_ID()"], found.map(row).into_iter().collect())
            }
            Statement::Uptime => {
                let seconds = self.server.state().started.elapsed().as_secs();
                rows(&["Variable_name", "Value"], vec![vec![Some("Uptime".to_owned()), Some(seconds.to_string())]])
            }
            Statement::State => rows(&["STATE"], Vec::new()),
            Statement::Views => rows(&["0", "TABLE_TYPE", "VIEW_DEFINITION"], Vec::new()),
            Statement::Kill { is_query, id } => {
                if self.server.kill(u32::try_from(id).unwrap_or(0), is_query) {
                    Answer::default()
                } else {
                    Answer::error(1094, b"HY000", format!("Unknown thread id: {id}"))
                }
            }
        }
    }

    fn begin(&mut self) {
        self.state.transaction = Some(Vec::new());
    }

    fn changed(&self) -> Answer {
        let mut answer = Answer::default();
        self.state.put_changed(&mut answer.changes);
        answer
    }

    fn use_schema(&mut self, schema: &str) -> Answer {
        if !SCHEMAS.contains(&schema) {
            return Answer::error(1049, b"42000", format!("Unknown database '{schema}'"));
        }
        self.state.schema = Some(schema.to_owned());
        let mut answer = self.changed();
        self.state.put_schema(&mut answer.changes);
        answer
    }

    fn reset(&mut self) -> Answer {
        self.state.reset();
        self.statements.clear();
        let id = self.id;
        self.server.state().locks.retain(|_, owner| *owner != id);
        Answer::default()
    }

    async fn insert(&mut self, table: &str, op: i64) -> Answer {
        if let Some(rows) = self.state.temporary.get_mut(table) {
            rows.push(op);
            return Answer { affected: 1, ..Answer::default() };
        }
        if table != "t" {
            return Answer::error(1146, b"42S02", format!("Table '{table}' doesn't exist"));
        }
        self.server.oracle.write_arrived(self.server.id, op, self.bound_since.unwrap_or(self.sent), self.sent);
        if self.server.state().read_only {
            return Answer::error(1290, b"HY000", READ_ONLY);
        }
        let insert_id = self.state.insert_id.take().unwrap_or_else(|| self.server.oracle.next_insert_id());
        self.state.last_insert_id = insert_id;
        let answer = Answer { affected: 1, insert_id, ..Answer::default() };
        match self.state.transaction.as_mut() {
            Some(ops) => ops.push(op),
            None => {
                self.state.transaction = Some(vec![op]);
                if self.state.autocommit()
                    && let Some(error) = self.commit().await
                {
                    return error;
                }
            }
        }
        answer
    }

    /// Ends the open transaction, if there is one; an error when it cannot be committed, and then it is rolled back.
    async fn commit(&mut self) -> Option<Answer> {
        let ops = self.state.transaction.take().filter(|ops| !ops.is_empty())?;
        let server = self.server;
        if server.state().read_only {
            return Some(Answer::error(1290, b"HY000", READ_ONLY));
        }
        let id = server.oracle.next_transaction();
        server.trace.note(|| format!("db{} connection {}: transaction {id} of {ops:?} is in the log", server.id, self.id));
        let place = {
            let mut state = server.state();
            let term = state.term;
            state.relay.push(Transaction { id, term, ops });
            state.relay.len() - 1
        };
        server.tell();
        if !server.state().waits_for_replica {
            server.apply_all();
        }
        loop {
            let moved = server.moved.notified();
            if server.state().applied > place {
                return None;
            }
            moved.await;
        }
    }

    async fn set(&mut self, all: &[(Target, Expr)]) -> Answer {
        let mut changed = Vec::new();
        let was_autocommit = self.state.autocommit();
        for (target, value) in all {
            match (target, value) {
                (Target::Names, Expr::Call(_, arguments)) => {
                    let mut texts = arguments.iter().map(|a| self.state.value_of("collation_connection", a));
                    let (charset, collation) = (texts.next().flatten(), texts.next().flatten());
                    self.state.set_names(&charset.unwrap_or_default(), &collation.unwrap_or_default());
                    let names = ["character_set_client", "character_set_connection", "character_set_results", "collation_connection"];
                    changed.extend(names.map(str::to_owned));
                }
                (Target::Session(name), value) => {
                    if global(name).is_none() {
                        return Answer::error(1193, b"HY000", format!("Unknown system variable '{name}'"));
                    }
                    let Some(value) = self.state.value_of(name, value) else {
                        return Answer::error(1232, b"42000", format!("Incorrect argument type to variable '{name}'"));
                    };
                    self.state.set_variable(name, &value);
                    changed.push(name.clone());
                }
                (Target::User(name), value) => match self.state.value_of(name, value) {
                    Some(value) => drop(self.state.user_variables.insert(name.clone(), value)),
                    None => drop(self.state.user_variables.remove(name)),
                },
                (Target::Global(_) | Target::Names, _) => return Answer::error(1227, b"42000", "Access denied"),
            }
        }
        if !was_autocommit
            && self.state.autocommit()
            && let Some(error) = self.commit().await
        {
            // As MySQL does: the assignment has failed too.
            self.state.set_variable("autocommit", "OFF");
            return error;
        }
        let mut answer = self.changed();
        changed.iter().for_each(|name| self.state.put_variable(&mut answer.changes, name));
        answer
    }

    async fn select(&mut self, list: &[Expr], table: Option<&str>, op: Option<i64>) -> Answer {
        if let [Expr::Call(name, arguments)] = list
            && name == "SLEEP"
        {
            return self.sleep(arguments).await;
        }
        let columns: Vec<String> = list.iter().map(|e| format!("{e:?}")).collect();
        let rows = match table {
            None => vec![None],
            Some("t") => {
                if !self.state.autocommit() && self.state.transaction.is_none() {
                    self.begin();
                }
                vec![Some(self.count(op.unwrap_or_default()))]
            }
            Some(name) => match self.state.temporary.get(name) {
                Some(rows) => rows.iter().copied().map(Some).collect(),
                None => return Answer::error(1146, b"42S02", format!("Table '{name}' doesn't exist")),
            },
        };
        let mut values = Vec::new();
        for row in rows {
            values.push(list.iter().map(|e| self.value(e, row)).collect());
        }
        Answer { rows: Some((columns, values)), ..Answer::default() }
    }

    /// How often an op was written, as this session sees it.
    fn count(&self, op: i64) -> i64 {
        let committed = self.server.state().rows.get(&op).copied().unwrap_or(0);
        self.server.oracle.read(self.server.id, op, committed, self.sent);
        let own = self.state.transaction.iter().flatten().filter(|o| **o == op).count();
        i64::from(committed) + i64::try_from(own).unwrap_or(0)
    }

    fn value(&mut self, expr: &Expr, row: Option<i64>) -> Option<String> {
        match expr {
            Expr::Null | Expr::Default | Expr::Parameter => None,
            Expr::Number(n) => Some(n.to_string()),
            Expr::Text(t) => Some(t.clone()),
            Expr::Column(_) => row.map(|n| n.to_string()),
            Expr::User(name) => self.state.user_variables.get(name).cloned(),
            Expr::Assign(name, value) => {
                let value = self.value(value, row)?;
                self.state.user_variables.insert(name.clone(), value.clone());
                Some(value)
            }
            Expr::System(_, name) if name == "server_id" => Some(self.server.id.to_string()),
            Expr::System(Scope::Global, name) if name == "read_only" => Some(u8::from(self.server.state().read_only).to_string()),
            Expr::System(Scope::Global, name) => global(name).map(str::to_owned),
            Expr::System(Scope::Session, name) => {
                let value = self.state.variable(name)?;
                Some(match value.as_str() {
                    "ON" => "1".to_owned(),
                    "OFF" => "0".to_owned(),
                    _ => value,
                })
            }
            Expr::Call(name, arguments) => self.call(name, arguments),
        }
    }

    fn call(&mut self, name: &str, arguments: &[Expr]) -> Option<String> {
        let lock = match arguments.first() {
            Some(Expr::Text(name)) => name.clone(),
            _ => String::new(),
        };
        match name {
            "DATABASE" => self.state.schema.clone(),
            "LAST_INSERT_ID" => Some(self.state.last_insert_id.to_string()),
            "CONNECTION_ID" => Some(self.id.to_string()),
            "GET_LOCK" => {
                let owner = *self.server.state().locks.entry(lock).or_insert(self.id);
                Some(u8::from(owner == self.id).to_string())
            }
            "RELEASE_LOCK" => {
                let mut state = self.server.state();
                let owner = state.locks.get(&lock).copied()?;
                if owner == self.id {
                    state.locks.remove(&lock);
                }
                Some(u8::from(owner == self.id).to_string())
            }
            _ => None,
        }
    }

    /// SLEEP(): the argument is in ms here. 1 when it was interrupted.
    async fn sleep(&self, arguments: &[Expr]) -> Answer {
        let ms = match arguments.first() {
            Some(Expr::Number(ms)) => u64::try_from(*ms).unwrap_or(0),
            _ => 0,
        };
        let interrupted = self.handle.interrupted.notified();
        let slept = tokio::time::timeout(Duration::from_millis(ms), interrupted).await;
        rows(&["SLEEP"], vec![vec![Some(u8::from(slept.is_ok()).to_string())]])
    }
}

fn rows(columns: &[&str], rows: Vec<Vec<Option<String>>>) -> Answer {
    Answer { rows: Some((columns.iter().map(|c| (*c).to_owned()).collect(), rows)), ..Answer::default() }
}
