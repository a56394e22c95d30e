//! Reads a reply of any length and keeps only its numbers. An [`Ear`] hears its bytes.
//!
//! INVARIANT: no more than one packet that must be understood whole (an OK, an error) is held; rows are forgotten as
//! they come.

use crate::backends::backend::Backend;
use crate::net::buffer::BufferPool;
use crate::net::stream::invalid;
use session_state::collected::{OkReply, ServerError};
use std::io;
use wire::flags::{Capabilities, StatusFlags};
use wire::packet::{self, HEADER};
use wire::reply::{Frame, ReplyKind, Step, Tracker};

/// Largest packet that is read whole, bytes.
const MAX_WHOLE: usize = 4 << 20;

/// Hears the bytes of a reply as they come.
pub(crate) trait Ear {
    /// A reply begins, on a connection with these capabilities.
    fn begins(&mut self, caps: Capabilities);
    /// The next bytes, header by header.
    fn hears(&mut self, bytes: &[u8]);
}

/// Nobody listens.
impl Ear for () {
    fn begins(&mut self, _: Capabilities) {}
    fn hears(&mut self, _: &[u8]) {}
}

/// What is known of a reply.
#[derive(Debug, Default)]
pub(crate) struct Discarded {
    /// Rows changed.
    pub affected_rows: u64,
    /// Rows sent.
    pub rows: u64,
    /// Warnings.
    pub warnings: u16,
    /// All status flags of all its parts.
    pub status: StatusFlags,
    /// The error that ended it.
    pub error: Option<ServerError>,
}

/// Reads the reply to a COM_QUERY.
///
/// # Errors
/// The connection failed, broke the protocol, or waits for a client's file: it cannot be used any more.
pub(crate) async fn discard(backend: &mut Backend, pool: &BufferPool, ear: &mut impl Ear) -> io::Result<Discarded> {
    let caps = backend.core.caps;
    ear.begins(caps);
    let mut tracker = Tracker::new(ReplyKind::Results, caps);
    let mut reply = Discarded::default();
    while !tracker.is_done() {
        let bytes = backend.input.filled();
        let Some((len, _)) = packet::header(bytes) else {
            read_more(backend, HEADER, pool).await?;
            continue;
        };
        let body = bytes.get(HEADER..bytes.len().min(HEADER + len)).unwrap_or_default();
        match tracker.frame(len, body).map_err(invalid)? {
            Step::Need(wanted) if wanted > MAX_WHOLE => return Err(invalid("a packet of the reply is too long")),
            Step::Need(wanted) => read_more(backend, HEADER + wanted, pool).await?,
            Step::Frame(Frame::LocalInfile) => return Err(invalid("a mirrored statement requests a file from the client")),
            Step::Frame(frame) => {
                reply.note(frame, body, &tracker, caps);
                skip(backend, HEADER + len, pool, ear).await?;
            }
        }
    }
    backend.core.held.has_status(tracker.status());
    backend.input.release(pool);
    Ok(reply)
}

impl Discarded {
    fn note(&mut self, frame: Frame, body: &[u8], tracker: &Tracker, caps: Capabilities) {
        match frame {
            Frame::Row => self.rows += 1,
            Frame::Ok | Frame::ResultEnd => {
                self.affected_rows += OkReply::read(body, tracker, caps).affected_rows;
                self.warnings = tracker.warnings();
                self.status |= tracker.status();
            }
            Frame::Err => self.error = Some(ServerError::read(body, caps)),
            _ => {}
        }
    }
}

/// Forgets the next `n` bytes of the stream.
async fn skip(backend: &mut Backend, mut n: usize, pool: &BufferPool, ear: &mut impl Ear) -> io::Result<()> {
    loop {
        let here = n.min(backend.input.len());
        ear.hears(backend.input.filled().get(..here).unwrap_or_default());
        backend.input.consume(here);
        n -= here;
        if n == 0 {
            return Ok(());
        }
        read_more(backend, 1, pool).await?;
    }
}

/// Reads at least a byte, with room for `wanted` in all.
async fn read_more(backend: &mut Backend, wanted: usize, pool: &BufferPool) -> io::Result<()> {
    backend.input.reserve(wanted, pool);
    match backend.link.read(&mut backend.input, pool).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}
