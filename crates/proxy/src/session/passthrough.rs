//! 1:1 connections: `fast_forward` users, and replicas that ask for the binlog.

use super::Session;
use super::command::Incoming;
use super::end::End;
use super::query::Plan;
use crate::backend::Backend;
use crate::buffer::Buffer;
use crate::connect;
use crate::entry::Signal;
use crate::link::Link;
use crate::pins::PinReason;
use crate::stats::view::Held;
use crate::worker::Worker;
use sql::{Analysis, Facts, Kind};
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;
use wire::command::Command;
use wire::reply::ReplyKind;

enum Flow {
    ToServer,
    ToClient,
}

impl Session {
    /// Serves a `fast_forward` user: a connection of its own, packets as they come.
    pub(super) async fn pass_through(&mut self) -> End {
        match self.open_own_backend().await {
            Ok(backend) => {
                self.entry.view.held.set(Some(Held::of(&backend)));
                self.backend = Some(backend);
                let now = self.now_ms();
                self.pins.begin(PinReason::Replication, now, 0);
                self.pump().await
            }
            Err(text) => End::Protocol { code: 9001, sqlstate: "HY000", text },
        }
    }

    async fn open_own_backend(&mut self) -> Result<Backend, String> {
        let snapshot = self.worker.snapshot();
        let vars = &snapshot.vars;
        let limit = Duration::from_millis(vars.connect_timeout_server_max.max(vars.connect_timeout_server));
        let result = tokio::time::timeout(limit, async {
            loop {
                match self.try_own_backend().await {
                    Ok(backend) => return Ok(backend),
                    Err(connect::ConnectError::Login(e)) => return Err(e.to_string()),
                    Err(connect::ConnectError::Impossible(text)) => return Err(text),
                    Err(connect::ConnectError::Server(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        });
        result.await.unwrap_or_else(|_| {
            let ms = limit.as_millis();
            Err(format!("Max connect timeout reached while reaching hostgroup {} after {ms}ms", self.user.default_hostgroup))
        })
    }

    async fn try_own_backend(&self) -> Result<Backend, connect::ConnectError> {
        let unavailable = || connect::ConnectError::Server("no server has room".into());
        let (server, slot) = self.pool.reserve_any(&self.worker, &self.lane).ok_or_else(unavailable)?;
        let collation = u8::try_from(self.collation).unwrap_or(0);
        let open = connect::open_raw(&self.worker, &server, &self.lane.key, self.caps, collation, self.state.schema.as_deref(), slot);
        let limit = Duration::from_millis(self.worker.snapshot().vars.connect_timeout_server);
        tokio::time::timeout(limit, open).await.unwrap_or_else(|_| Err(unavailable()))
    }

    /// COM_REGISTER_SLAVE, COM_BINLOG_DUMP, COM_BINLOG_DUMP_GTID: from here the connection is the replica's.
    pub(super) async fn replicate(&mut self, command: Incoming) -> Result<(), End> {
        let now = self.now_ms();
        let analysis = Analysis { kind: Kind::Other, facts: Facts::NONE, digest: u64::from(command.byte) };
        let plan = Plan { reply: ReplyKind::Simple, ..Plan::new(analysis) };
        if command.byte == Command::RegisterSlave as u8 {
            self.pins.begin(PinReason::Replication, now, analysis.digest);
            return match self.run_plan(command, &plan).await {
                Ok(_) => Ok(()),
                Err(fault) => self.report(fault).await,
            };
        }
        if let Err(fault) = self.obtain().await {
            return self.report(fault).await;
        }
        if let Err(fault) = self.sync(&analysis).await {
            return self.report(fault).await;
        }
        self.pins.begin(PinReason::Replication, now, analysis.digest);
        // The dump has no end that could be told from its packets: bytes pass until a side closes.
        Err(Box::pin(self.pump()).await)
    }

    /// Passes bytes both ways, with one buffer each way, until a side closes or the session is told to end.
    async fn pump(&mut self) -> End {
        loop {
            match self.next_flow().await {
                Ok(Some(Flow::ToServer)) => {
                    let Self { input, backend, .. } = self;
                    let Some(backend) = backend.as_mut() else { return End::StreamEnded };
                    if backend.link.write_all(input.filled()).await.is_err() {
                        return End::StreamEnded;
                    }
                    input.consume(input.len());
                    input.release(&self.worker.buffers);
                }
                Ok(Some(Flow::ToClient)) => {
                    let Some(mut chunk) = self.backend.as_mut().map(|b| std::mem::take(&mut b.input)) else { return End::StreamEnded };
                    if let Err(end) = self.write_front(chunk.filled()).await {
                        return end;
                    }
                    chunk.consume(chunk.len());
                    chunk.release(&self.worker.buffers);
                }
                Ok(None) | Err(_) => return End::StreamEnded,
            }
            self.note_traffic();
            if matches!(self.entry.pending(), Some(Signal::KillConnection | Signal::Stop | Signal::Drain | Signal::Cut | Signal::Demoted)) {
                return End::Shutdown;
            }
        }
    }

    async fn next_flow(&mut self) -> io::Result<Option<Flow>> {
        let Self { front, input, backend, worker, entry, .. } = self;
        let Some(backend) = backend.as_mut() else { return Ok(None) };
        if !input.is_empty() {
            return Ok(Some(Flow::ToServer));
        }
        if !backend.input.is_empty() {
            return Ok(Some(Flow::ToClient));
        }
        poll_fn(|cx| {
            if let Poll::Ready(result) = fill(front, input, worker, cx) {
                return Poll::Ready(result.map(|n| (n > 0).then_some(Flow::ToServer)));
            }
            if let Poll::Ready(result) = fill(&mut backend.link, &mut backend.input, worker, cx) {
                return Poll::Ready(result.map(|n| (n > 0).then_some(Flow::ToClient)));
            }
            match entry.poll_signal(cx) {
                Some(Signal::KillConnection | Signal::Stop | Signal::Drain | Signal::Cut | Signal::Demoted) => Poll::Ready(Ok(None)),
                _ => Poll::Pending,
            }
        })
        .await
    }
}

fn fill(link: &mut Link, buffer: &mut Buffer, worker: &Worker, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
    if link.poll_readable(cx).is_pending() {
        return Poll::Pending;
    }
    link.poll_read(cx, buffer, &worker.buffers)
}
