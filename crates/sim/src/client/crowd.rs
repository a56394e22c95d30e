//! Clients that only read, one statement after the other. Together they want more connections than there are, so that their reads share
//! them. Every second one executes a prepared statement.

use super::connection::{Connection, Reply};
use crate::net::Network;
use crate::oracle::Oracle;
use crate::proxies::Proxies;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use wire::Command;
use wire::reply::ReplyKind;

/// An answer that takes longer never comes.
const ANSWER_WITHIN: Duration = Duration::from_secs(100);
/// Between two statements: time passes only while all wait.
const PAUSE: Duration = Duration::from_millis(2);
/// Their ports begin here, behind those of other clients.
const PORTS: u16 = 20_000;

/// One of them.
pub(crate) struct Reader {
    /// Its number.
    pub id: u16,
    /// Whom it talks to.
    pub proxy: Rc<Proxies>,
    /// What is in between.
    pub network: Arc<Network>,
    /// Who knows what must be true.
    pub oracle: Rc<Oracle>,
}

impl Reader {
    /// Reads until `end`: each statement asks for a number of its own.
    pub(crate) async fn run(self, end: Instant) {
        let mut number = i64::from(self.id) * 1_000_000;
        while Instant::now() < end {
            let Ok((mut connection, prepared)) = self.connect().await else { continue };
            while Instant::now() < end {
                number += 1;
                match tokio::time::timeout(ANSWER_WITHIN, ask(&mut connection, prepared, number)).await {
                    Ok(Ok(reply)) => self.check(number, &reply),
                    Ok(Err(_)) => break,
                    Err(_) => return self.oracle.violation(format!("reader {} waits for ever", self.id)),
                }
                match connection.hears_more(PAUSE).await {
                    Ok(false) => {}
                    Ok(true) => return self.oracle.violation(format!("reader {} got more than the answer to {number}", self.id)),
                    Err(_) => break,
                }
            }
        }
    }

    /// A connection, and the statement that was prepared on it.
    async fn connect(&self) -> io::Result<(Connection, Option<u32>)> {
        let (near, far) = self.network.client_pair();
        self.proxy.accept(Box::new(far), std::net::SocketAddr::from(([127, 0, 0, 1], PORTS + self.id)));
        tokio::time::sleep(PAUSE).await;
        let mut connection = Connection::log_in(near, "app", crate::server::SCHEMAS[0]).await?;
        if self.id.is_multiple_of(2) {
            return Ok((connection, None));
        }
        connection.send(Command::StmtPrepare, b"SELECT ?").await?;
        let reply = connection.reply(ReplyKind::Prepare, false).await?;
        let id = u32::try_from(reply.insert_id).ok().filter(|_| reply.error.is_none());
        id.map(|id| (connection, Some(id))).ok_or_else(|| io::ErrorKind::Other.into())
    }

    fn check(&self, number: i64, reply: &Reply) {
        let expected = [[Some(number.to_string())]];
        if reply.error.is_none() && reply.rows != expected {
            self.oracle.violation(format!("reader {} asked for {number} and got {:?}", self.id, reply.rows));
        }
        self.oracle.count(if reply.error.is_none() { "reads in a crowd" } else { "errors in a crowd" });
    }
}

async fn ask(connection: &mut Connection, prepared: Option<u32>, number: i64) -> io::Result<Reply> {
    match prepared {
        None => connection.send(Command::Query, format!("SELECT {number}").as_bytes()).await?,
        Some(id) => {
            let parts = [&id.to_le_bytes()[..], &[0, 1, 0, 0, 0, 0, 1, 8, 0], &number.to_le_bytes()];
            connection.send(Command::StmtExecute, &parts.concat()).await?;
        }
    }
    connection.reply(ReplyKind::Results, prepared.is_some()).await
}
