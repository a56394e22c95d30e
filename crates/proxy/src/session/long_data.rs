//! COM_STMT_SEND_LONG_DATA: a parameter's bytes, passed on as they arrive. It has no answer: what goes wrong is said at the execution.

use super::Session;
use super::backends::Backends;
use super::command::{Incoming, check_size};
use super::door::door;
use super::end::{End, SERVER_LOST, SERVER_LOST_STATE};
use super::fault::{Fault, end_of_pinned};
use super::frontend::Frontend;
use super::guard::guarded;
use super::relay::Outgoing;
use super::statements::Statements;
use super::sync::Ahead;
use crate::clients::session_handle::Activity;
use session_state::collected::ServerError;
use session_state::question::Question;
use sql::{Analysis, Kind};
use wire::command::Command;
use wire::message::ErrPacket;
use wire::packet::{self, HEADER, MAX_PAYLOAD};
use wire::prepared::{put_stmt_id, stmt_id};

/// The shortest COM_STMT_SEND_LONG_DATA: command, statement, parameter.
pub(super) const MIN_LONG_DATA: usize = 7;

/// The least `max_allowed_packet` that any version of a server has by default, bytes.
const TAKEN_BY_ALL: u32 = 1 << 20;

/// Where a streamed command stands.
#[derive(Clone, Copy, Default)]
pub(super) struct Streamed {
    /// Bytes of the current frame not yet taken from the input.
    left: usize,
    /// The current frame is full: another one follows.
    full: bool,
    /// The current frame's sequence id, as the server counts.
    seq: u8,
    /// Bytes of the packet so far, the current frame with them.
    total: u32,
}

impl Session {
    /// COM_STMT_SEND_LONG_DATA: passed on as it arrives, no answer; what goes wrong is said at the execution.
    pub(super) async fn long_data(&mut self, command: Incoming) -> Result<(), End> {
        let (len, _) = packet::header(self.client.input.filled()).unwrap_or_default();
        // MySQL answers one without its parameter's number, though this command has no answer.
        let is_whole = len >= MIN_LONG_DATA;
        self.client.streamed = Streamed { left: HEADER + len, full: len == MAX_PAYLOAD, seq: 0, total: size(len) };
        self.client.streamed_input = true;
        let id = self.statements.named_statement_streamed(&self.at, &self.client);
        let result = match id.filter(|_| is_whole) {
            Some(id) => {
                // The first of it decides where all of it goes; to where its cursor is open, if it has one.
                if self.statements.has_cursor(id) {
                    Box::pin(self.statements.travel_to_cursor_or_end(&mut door!(self), id)).await;
                } else if !self.statements.any_long_data() {
                    Box::pin(self.travel_ahead(id)).await;
                }
                self.pass_long_data(command, id).await
            }
            None => Ok(()),
        };
        match (result, id) {
            (Err(Fault::End(end)), _) => return Err(end),
            (Err(Fault::Error { code, sqlstate, text } | Fault::Refused { code, sqlstate, text, .. }), Some(id)) => {
                self.statements.fail_long_data(id, ServerError { code, sqlstate, message: text });
                self.client.skip_long_data(&self.at).await?;
                return self.settle_silent(&Analysis::NONE).await;
            }
            (Err(Fault::Lost { text, pins, .. }), _) if !pins.is_empty() => return Err(end_of_pinned(&text, pins)),
            (Err(Fault::Lost { text, .. }), Some(id)) => {
                let sqlstate = SERVER_LOST_STATE.as_bytes().first_chunk().copied().unwrap_or(ErrPacket::GENERAL);
                self.statements.fail_long_data(id, ServerError { code: SERVER_LOST, sqlstate, message: text.into_bytes() });
            }
            _ => {}
        }
        self.client.skip_long_data(&self.at).await
    }

    /// Gets a backend that has the statement; returns the server's id of it.
    async fn ready_for_long_data(&mut self, analysis: &Analysis, id: u32) -> Result<u32, Fault> {
        self.obtain().await?;
        // A rehearsal may have begun while it waited.
        self.finds_copying();
        let ahead = self.sync(analysis).await?;
        self.send_statement(&ahead, Outgoing::Bytes(&[])).await?;
        self.statements.forget_types_of_others(&mut self.at, id).await?;
        let mut back = Ahead::default();
        let server_id = self.prepared_on_backend(id, &mut back).await;
        self.send_unless_lost(&back).await;
        server_id
    }

    async fn pass_long_data(&mut self, command: Incoming, id: u32) -> Result<(), Fault> {
        let analysis = Analysis::of_command(command.byte);
        // Nothing of the data is sent yet: another server may do as well.
        let harmless = Analysis { kind: Kind::Show, ..analysis };
        self.recovery.forget_retries();
        let mut patience = None;
        let server_id = loop {
            match self.ready_for_long_data(&analysis, id).await {
                Ok(server_id) => break server_id,
                Err(fault) => {
                    let patience = patience.get_or_insert_with(|| Box::new(self.hand.patience(&self.at)));
                    Box::pin(self.once_more(patience, fault, &harmless)).await?;
                }
            }
        };
        self.statements.mark(id, |marks| marks.long_data = true);
        self.statements.set_apart(&mut self.at, id);
        self.statements.note_cursors(&mut self.at, analysis.digest);
        if let Some(payload) = self.client.input.filled_mut().get_mut(HEADER..) {
            let _ = put_stmt_id(payload, server_id);
        }
        if let Some(backend) = self.at.backend.as_mut() {
            backend.link.start_command();
        }
        let mut frame = HEADER + packet::header(self.client.input.filled()).map_or(0, |(len, _)| len);
        loop {
            let full = frame == HEADER + MAX_PAYLOAD;
            while frame > 0 {
                let n = frame.min(self.client.input.len());
                if n > 0 {
                    self.capture_data(id, n);
                    self.copy_data(id, n);
                    self.client.send_data(&mut self.at, &mut self.hand, n).await?;
                    self.client.input.consume(n);
                    frame -= n;
                    self.client.streamed.left = frame;
                } else {
                    self.client.read_data(&self.at, 1).await?;
                }
            }
            self.client.streamed.full = full;
            if !full {
                return Box::pin(self.was_taken()).await;
            }
            frame = self.client.next_frame_len(&self.at).await?;
        }
    }

    /// Asks the server whether it took a packet that is longer than some servers take: it says so in place of an answer.
    async fn was_taken(&mut self) -> Result<(), Fault> {
        if self.client.streamed.total <= TAKEN_BY_ALL {
            return Ok(());
        }
        self.door().will_ask(&[Question::Status]).await.map_err(|e| self.at.lost_before(&e))?;
        let Some(backend) = self.at.backend.as_mut() else { return Ok(()) };
        // What it said already is there to be read, though nothing can be sent any more.
        let sent = guarded(&self.worker, &self.handle, backend.send(Command::Ping, &[])).await;
        let is_refused = self.at.too_long_for_server().await;
        match (is_refused, sent) {
            (Some(end), _) => Err(end.into()),
            (None, Err(e)) => Err(self.at.lost_before(&e)),
            (None, Ok(())) => Ok(()),
        }
    }
}

impl Frontend {
    /// Length of the frame that continues a packet over 16 MiB, header included.
    async fn next_frame_len(&mut self, at: &Backends) -> Result<usize, End> {
        loop {
            if let Some((len, _)) = packet::header(self.input.filled()) {
                let seq = self.streamed.seq.wrapping_add(1);
                if let Some(byte) = self.input.filled_mut().get_mut(3) {
                    *byte = seq;
                }
                let total = self.streamed.total.saturating_add(size(len));
                // Servers answer this one, though the command has no answer.
                check_size(&at.worker, usize::try_from(total).unwrap_or(usize::MAX))?;
                self.streamed = Streamed { left: HEADER + len, full: len == MAX_PAYLOAD, seq, total };
                return Ok(HEADER + len);
            }
            self.read_data(at, HEADER).await?;
        }
    }

    /// Waits for more of the client's data. Meanwhile it is as idle as one that has sent a part of any other command.
    async fn read_data(&mut self, at: &Backends, wanted: usize) -> Result<(), End> {
        at.handle.set_activity(Activity::Idle, at.worker.clock.now_ms());
        let read = self.read_more(at, wanted).await;
        at.handle.set_activity(Activity::Running, at.worker.shared.clock.now_ms());
        read
    }

    /// Reads past what is left of the command: all of it, when it could not be passed on.
    async fn skip_long_data(&mut self, at: &Backends) -> Result<(), End> {
        loop {
            while self.streamed.left > 0 {
                let n = self.streamed.left.min(self.input.len());
                if n > 0 {
                    self.input.consume(n);
                    self.streamed.left -= n;
                } else {
                    self.read_data(at, 1).await?;
                }
            }
            if !self.streamed.full {
                return Ok(());
            }
            self.next_frame_len(at).await?;
        }
    }
}

/// The length of a frame: three bytes say it.
fn size(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

impl Statements {
    fn fail_long_data(&mut self, id: u32, why: ServerError) {
        if let Some(statement) = self.get_mut(id) {
            statement.failed = Some(why);
        }
    }

    /// As [`Self::named_statement`], for a packet of which only the start is there.
    fn named_statement_streamed(&self, at: &Backends, client: &Frontend) -> Option<u32> {
        let id = self.meant_statement(at, stmt_id(client.input.filled().get(HEADER..)?).ok()?);
        self.get(id).map(|_| id)
    }
}
