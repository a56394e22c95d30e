//! Replicas that ask for the binlog: how a dump begins, and where it may.
//!
//! A dump by GTID goes on at any server. One by file and position goes on at the server that it was read on (see the module `positions`).
//! Once it has begun, bytes pass unread (see the module `passthrough`).

use super::Session;
use super::backends::Backends;
use super::command::Incoming;
use super::connection::Connection;
use super::end::End;
use super::fault::Fault;
use super::leave::Overdue;
use super::passthrough::Passage;
use super::plan::Plan;
use super::relay::Outgoing;
use crate::clients::replica::{self, Replica};
use crate::servers::positions::Position;
use crate::workers::counters::count;
use session_state::pins::{PinReason, PinSet};
use sql::Analysis;
use wire::codes;
use wire::command::Command;
use wire::packet::HEADER;
use wire::reframe::ReplyFacts;
use wire::reply::ReplyKind;

/// First byte of an error packet.
const ERROR: u8 = 0xff;

/// Pins of a session that streams the binlog.
pub(super) const STREAMS: PinSet = PinSet::of(&[PinReason::Replication, PinReason::ReplicationGtid]);

impl Session {
    /// COM_REGISTER_SLAVE, COM_BINLOG_DUMP, COM_BINLOG_DUMP_GTID: from here the connection is the replica's.
    pub(super) async fn replicate(&mut self, command: Incoming) -> Result<(), End> {
        let now = self.worker.clock.now_ms();
        let analysis = Analysis::of_command(command.byte);
        let plan = Plan { reply: ReplyKind::Simple, ..Plan::new(analysis) };
        let was_replicas = self.at.pins.set().contains(PinReason::Replication);
        let mut reply = ReplyFacts::default();
        let result = if command.byte == Command::RegisterSlave as u8 {
            self.at.pins.begin(PinReason::Replication, now, analysis.digest);
            self.run_plan(command, &plan, &mut reply).await
        } else {
            match self.begin_dump(command, &analysis).await {
                // Servers close the connection when a dump has ended: bytes pass until a side closes.
                Ok(true) => {
                    self.client.input.consume(command.wire_len);
                    return Err(Box::pin(self.pump(Passage::endless())).await);
                }
                Ok(false) => self.relay_to(&plan, &mut reply).await,
                Err(fault) => Err(fault),
            }
        };
        if !was_replicas && (result.is_err() || reply.error.is_some()) {
            self.at.pins.end(PinReason::Replication);
        }
        match result {
            Ok(()) => {
                self.facts.leave_warnings(self.worker.shared.flavor());
                self.effects().note_status(&analysis, &reply);
                self.settle(&analysis, &reply, |_, _| false).await
            }
            Err(fault) => self.report(fault).await,
        }
    }

    /// Asks the server for its binlog, and waits for the beginning of its answer: false when that is an error, which is still to be
    /// passed on and leaves the session what it was.
    async fn begin_dump(&mut self, command: Incoming, analysis: &Analysis) -> Result<bool, Fault> {
        let literal = |name| self.wants.non_null_user_variable(name).cloned();
        let (connect_state, uuid) = (literal("slave_connect_state"), literal("replica_uuid").or_else(|| literal("slave_uuid")));
        let by_gtid = command.byte == Command::BinlogDumpGtid as u8 || connect_state.is_some();
        let body = self.client.body(command);
        let replica = Replica::asking(command.byte, body, connect_state.as_deref(), uuid.as_deref(), self.worker.clock.now_ms());
        let begins_anew = replica::begins_anew(body);
        let ahead = loop {
            self.obtain().await?;
            if let Some(replica) = replica.as_ref().filter(|_| !by_gtid) {
                self.door().learn_server().await?;
                if !begins_anew {
                    replica.may_go_on(&self.at)?;
                }
            }
            let ahead = self.sync(analysis).await?;
            if self.recovery.may_begin(&mut self.at, &mut self.facts) {
                break ahead;
            }
        };
        self.at.pins.begin(PinReason::Replication, self.worker.clock.now_ms(), analysis.digest);
        self.send_statement(&ahead, Outgoing::AsItCame(command.wire_len)).await?;
        let first = loop {
            if let Some(first) = self.at.backend.as_ref().and_then(|backend| backend.input.filled().get(HEADER)) {
                break *first;
            }
            self.client.read_backend(&mut self.at, &mut self.hand, HEADER + 1, Overdue::MayNeverEnd).await?;
        };
        let has_begun = first != ERROR;
        if let Some(replica) = replica.filter(|_| has_begun) {
            replica.goes_on(&self.at, by_gtid);
            self.handle.set_replica(replica);
        }
        if has_begun && by_gtid {
            self.at.pins.end(PinReason::Replication);
            self.at.pins.begin(PinReason::ReplicationGtid, self.worker.clock.now_ms(), analysis.digest);
            self.at.publish_session(&self.client, &self.wants);
        }
        Ok(has_begun)
    }
}

impl Replica {
    /// A replica goes on from a file and a position: refuses where it read those on another server than the one at hand. The number of the
    /// error stops a replica, which others would have tried again.
    fn may_go_on(&self, at: &Backends) -> Result<(), Fault> {
        let Some((here, identity)) = at.backend.server_at_hand() else { return Ok(()) };
        let (id, user) = (self.server_id, &at.user.name);
        let Err(before) = at.worker.shared.positions.may_go_on(user, id, &identity) else { return Ok(()) };
        count(&at.worker.counters.positions_refused);
        let text = format!(
            "Tidegate: replica {id} read on {before} last, and {here} serves now, where {} means something else: use GTIDs, or give it a \
             position of {here} and tell the proxy's admin port FORGET REPLICA {id}",
            self.from
        );
        if let Some(line) = at.pool.shared.told.due_about(user, &text, at.worker.shared.clock.now_ms()) {
            tracing::warn!("user '{user}': {line}");
        }
        Err(Fault::error(codes::MASTER_FATAL_ERROR_READING_BINLOG, b"HY000", text))
    }

    /// The server at hand sends the binlog to this replica, whose next position is one of that server.
    fn goes_on(&self, at: &Backends, by_gtid: bool) {
        let (positions, user) = (&at.worker.shared.positions, &at.user.name);
        let Some((server, identity)) = at.backend.server_at_hand().filter(|_| !by_gtid) else {
            return positions.goes_by_gtid(user, self.server_id);
        };
        positions.reads(Position {
            user: user.as_ref().into(),
            server_id: self.server_id,
            server: server.into(),
            identity,
            from: self.from.clone(),
            since_ms: self.since_ms,
            refused: 0,
        });
    }
}
