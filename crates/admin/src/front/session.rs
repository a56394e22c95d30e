//! A session of the admin port: one command after the other, each answered before the next is read.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use wire::codec::Reader;
use wire::prepared::PrepareOk;
use wire::{Capabilities, Command};

use super::answer::{self, Follows, Form};
use super::login::{Known, Login};
use super::prepared::{Fault, Statements};
use super::seats::Held;
use super::{End, Shared, split};
use crate::reply::{Reply, Role, SessionInfo};
use crate::statement::Statement;
use wire::codes;

/// Largest command, bytes.
const MAX_COMMAND: usize = 64 << 20;
/// How long a login may take.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(10);
/// COM_SET_OPTION: several statements in one command are allowed.
const MULTI_STATEMENTS_ON: u16 = 0;
/// COM_SET_OPTION: they are not.
const MULTI_STATEMENTS_OFF: u16 = 1;

/// A client that logged in.
struct Session {
    login: Login,
    shared: Arc<Shared>,
    seat: Held,
    info: SessionInfo,
    role: Role,
    statements: Statements,
}

/// The session's course after a command.
enum Next {
    /// It reads the next command.
    Command,
    /// The client said goodbye.
    Quit,
}

/// Serves a connection until it ends. Returns the reason.
pub(super) async fn serve(login: Login, id: u32, seat: Held, shared: Arc<Shared>) -> End {
    let settings = shared.settings();
    let entering = timeout(LOGIN_TIMEOUT, login.run(id, &settings));
    let entered = tokio::select! {
        biased;
        () = seat.told_to_leave() => return End::MadeRoom,
        entered = entering => entered,
    };
    let (mut login, known) = match entered {
        Ok(Ok(entered)) => entered,
        Ok(Err(end)) => return end,
        Err(_) => return End::LoginTimeout,
    };
    if known.role != Role::Admin && shared.seats.count() > settings.max_connections {
        return login.refuse(codes::CON_COUNT, "08004", "Too many connections".to_owned()).await;
    }
    let info =
        SessionInfo { user: known.user, peer: login.peer.host.clone(), connection_id: id, schema: known.schema, ..SessionInfo::default() };
    login.trace.enters(info.schema.as_deref());
    let mut session = Session { login, shared, seat, info, role: known.role, statements: Statements::default() };
    let end = session.run().await.unwrap_or_else(|end| end);
    session.login.packets.close().await;
    end
}

impl Session {
    async fn run(&mut self) -> Result<End, End> {
        let proof = std::mem::take(&mut self.login.proof);
        answer::put_welcome(&mut self.login.packets, self.login.caps, &proof).await?;
        loop {
            self.login.packets.flush().await?;
            self.seat.waits();
            let idle = self.shared.settings().idle_timeout;
            let payload = tokio::select! {
                biased;
                () = self.seat.told_to_leave() => return Ok(End::MadeRoom),
                command = timeout(idle, self.login.packets.command(MAX_COMMAND)) => match command {
                    Err(_) => return Ok(End::Idle),
                    Ok(Ok(None)) => return Ok(End::Gone),
                    Ok(Ok(Some(payload))) => payload,
                    Ok(Err(e)) => return Err(self.unreadable(e).await),
                },
            };
            self.seat.works();
            if let Next::Quit = self.command(&payload).await? {
                return Ok(End::Quit);
            }
        }
    }

    /// The packet cannot be read, and so nothing after it.
    async fn unreadable(&mut self, error: io::Error) -> End {
        let (code, text) = match error.kind() {
            io::ErrorKind::FileTooLarge => (codes::NET_PACKET_TOO_LARGE, "Got a packet bigger than 'max_allowed_packet' bytes"),
            io::ErrorKind::InvalidData => (codes::NET_PACKETS_OUT_OF_ORDER, "Got packets out of order"),
            _ => return error.into(),
        };
        self.login.refuse(code, "08S01", text.to_owned()).await
    }

    async fn command(&mut self, payload: &[u8]) -> Result<Next, End> {
        let Some((&byte, body)) = payload.split_first() else {
            self.error(codes::MALFORMED_PACKET, "HY000", "Malformed communication packet").await?;
            return Ok(Next::Command);
        };
        match Command::from_u8(byte) {
            Some(Command::Quit) => return Ok(Next::Quit),
            Some(Command::Query) => self.query(body).await?,
            Some(Command::Ping) => self.done().await?,
            Some(Command::InitDb) => self.init_db(body).await?,
            Some(Command::FieldList) => self.field_list(body).await?,
            Some(Command::ChangeUser) => self.change_user(payload).await?,
            Some(Command::ResetConnection) => self.reset().await?,
            Some(Command::SetOption) => self.set_option(body).await?,
            Some(Command::Statistics) => self.statistics().await?,
            Some(Command::ProcessInfo) => self.run_sql(b"SHOW PROCESSLIST".to_vec(), Form::Text, Follows::Nothing).await.map(drop)?,
            Some(Command::ProcessKill) => self.process_kill(body).await?,
            Some(Command::StmtPrepare) => self.prepare(body).await?,
            Some(Command::StmtExecute) => self.execute(payload).await?,
            Some(Command::StmtSendLongData) => self.statements.long_data(payload),
            Some(Command::StmtClose) => self.statements.close(payload),
            Some(Command::StmtReset) => match self.statements.reset(payload) {
                Ok(()) => self.done().await?,
                Err(fault) => self.fault(fault).await?,
            },
            _ => self.error(codes::UNKNOWN_COM, "08S01", "Unknown command").await?,
        }
        Ok(Next::Command)
    }

    async fn query(&mut self, sql: &[u8]) -> Result<(), End> {
        let statements = split::statements(sql);
        match statements.as_slice() {
            // Nothing but comments, or one statement: the engine reads the text as it came.
            [] | [_] => self.run_sql(sql.to_vec(), Form::Text, Follows::Nothing).await.map(drop),
            _ if !self.login.caps.contains(Capabilities::MULTI_STATEMENTS) => {
                let text = "several statements in one command, which this client did not ask for";
                self.error(codes::ACCESS_DENIED, "28000", &Reply::for_clients(codes::ACCESS_DENIED, text)).await
            }
            [first @ .., last] => {
                for one in first {
                    if !self.run_sql(one.to_vec(), Form::Text, Follows::Another).await? {
                        return Ok(());
                    }
                }
                self.run_sql(last.to_vec(), Form::Text, Follows::Nothing).await.map(drop)
            }
        }
    }

    /// Executes one statement and puts its answer; false when it failed, which ends a series.
    async fn run_sql(&mut self, sql: Vec<u8>, form: Form, follows: Follows) -> Result<bool, End> {
        let schema = std::str::from_utf8(&sql).ok().and_then(|text| Statement::parse(text).used_schema().map(str::to_ascii_lowercase));
        let keeps_warnings = split::keeps_warnings(&sql);
        let reply = self.shared.engine.execute(self.role, &self.info, sql).await;
        let failed = matches!(reply, Reply::Err { .. });
        if schema.is_some() && !failed {
            self.info.schema = schema;
        }
        if !keeps_warnings {
            self.info.warnings = match &reply {
                Reply::Ok { warnings, .. } => warnings.as_slice().into(),
                Reply::Rows { .. } | Reply::Err { .. } => Arc::default(),
            };
        }
        answer::put_reply(&mut self.login.packets, self.login.caps, &reply, form, follows).await?;
        Ok(!failed)
    }

    async fn init_db(&mut self, name: &[u8]) -> Result<(), End> {
        let sql = [b"USE `", name, b"`"].concat();
        self.run_sql(sql, Form::Text, Follows::Nothing).await.map(drop)
    }

    /// The columns of a table, from its description: reading the table itself might reset counters.
    async fn field_list(&mut self, body: &[u8]) -> Result<(), End> {
        let table = String::from_utf8_lossy(Reader::new(body).nul_bytes_or_rest()).replace('`', "``");
        let sql = format!("SHOW FIELDS FROM `{table}`").into_bytes();
        let reply = self.shared.engine.execute(self.role, &self.info, sql).await;
        let (packets, caps) = (&mut self.login.packets, self.login.caps);
        let Reply::Rows { rows, .. } = &reply else {
            return Ok(answer::put_reply(packets, caps, &reply, Form::Text, Follows::Nothing).await?);
        };
        /// NULL as a length-encoded string: no default.
        const NO_DEFAULT: u8 = 0xfb;
        for name in rows.iter().filter_map(|row| row.first()?.as_deref()) {
            answer::put_column(packets, &String::from_utf8_lossy(name), 0, Some(NO_DEFAULT)).await?;
        }
        Ok(answer::put_end(packets, caps, Follows::Nothing).await?)
    }

    async fn change_user(&mut self, payload: &[u8]) -> Result<(), End> {
        let settings = self.shared.settings();
        let proving = timeout(LOGIN_TIMEOUT, self.login.change(payload, &settings));
        let Known { user, role, schema } = proving.await.map_err(|_| End::LoginTimeout)??;
        (self.info.user, self.info.schema, self.role) = (user, schema, role);
        self.login.trace.enters(self.info.schema.as_deref());
        self.info.warnings = Arc::default();
        self.statements = Statements::default();
        self.done().await
    }

    async fn reset(&mut self) -> Result<(), End> {
        self.info.warnings = Arc::default();
        self.statements = Statements::default();
        self.done().await
    }

    async fn set_option(&mut self, body: &[u8]) -> Result<(), End> {
        match Reader::new(body).u16() {
            Ok(MULTI_STATEMENTS_ON) => self.login.caps.insert(Capabilities::MULTI_STATEMENTS),
            Ok(MULTI_STATEMENTS_OFF) => self.login.caps.remove(Capabilities::MULTI_STATEMENTS),
            _ => return self.error(codes::UNKNOWN_COM, "08S01", "Unknown command").await,
        }
        Ok(answer::put_end(&mut self.login.packets, self.login.caps, Follows::Nothing).await?)
    }

    async fn statistics(&mut self) -> Result<(), End> {
        let (uptime_s, threads) = (self.shared.started.elapsed().as_secs(), self.shared.seats.count());
        Ok(self.login.packets.put(format!("Uptime: {uptime_s}  Threads: {threads}").as_bytes()).await?)
    }

    async fn process_kill(&mut self, body: &[u8]) -> Result<(), End> {
        match Reader::new(body).u32() {
            Ok(id) => self.run_sql(format!("KILL CONNECTION {id}").into_bytes(), Form::Text, Follows::Nothing).await.map(drop),
            Err(_) => self.error(codes::MALFORMED_PACKET, "HY000", "Malformed communication packet").await,
        }
    }

    async fn prepare(&mut self, sql: &[u8]) -> Result<(), End> {
        let (stmt_id, params) = match self.statements.prepare(sql) {
            Ok(prepared) => prepared,
            Err(fault) => return self.fault(fault).await,
        };
        let (packets, caps) = (&mut self.login.packets, self.login.caps);
        let mut payload = Vec::new();
        // Columns are not known before the execution, whose answer describes them; clients have to cope with that anyway.
        PrepareOk { stmt_id, params, ..PrepareOk::default() }.write(&mut payload, caps);
        packets.put(&payload).await?;
        for _ in 0..params {
            answer::put_column(packets, "?", 0, None).await?;
        }
        if params > 0 {
            answer::put_columns_end(packets, caps, Follows::Nothing).await?;
        }
        Ok(())
    }

    async fn execute(&mut self, payload: &[u8]) -> Result<(), End> {
        match self.statements.execute(payload, self.login.caps) {
            Ok(sql) => self.run_sql(sql, Form::Binary, Follows::Nothing).await.map(drop),
            Err(fault) => self.fault(fault).await,
        }
    }

    async fn done(&mut self) -> Result<(), End> {
        Ok(answer::put_done(&mut self.login.packets, self.login.caps).await?)
    }

    async fn fault(&mut self, fault: Fault) -> Result<(), End> {
        let (code, sqlstate, text) = fault.describe();
        self.error(code, sqlstate, &text).await
    }

    async fn error(&mut self, code: u16, sqlstate: &str, text: &str) -> Result<(), End> {
        Ok(answer::put_err(&mut self.login.packets, self.login.caps, code, sqlstate, text).await?)
    }
}

/// A connection for which there is no seat: it is told so before the greeting, as MySQL does.
pub(super) async fn turn_away(mut login: Login) {
    let _ = timeout(Duration::from_secs(1), login.refuse(codes::CON_COUNT, "08004", "Too many connections".to_owned())).await;
    login.packets.close().await;
}
