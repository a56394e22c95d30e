//! A connection in memory: two directions, each with a delay and in order, as in TCP.
//!
//! Sent data arrives, unless the connection is reset. While it is frozen nothing arrives, and neither side is told (a half-open peer, or a
//! cut between the two). After the thaw the data arrives, as TCP sends it again.

use proxy::sim::Pipe;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::ReadBuf;
use tokio::time::{Instant, Sleep};

/// Bytes under way in one direction beyond which a writer has to wait.
const WINDOW: usize = 256 << 10;

/// How a direction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The writer closed it.
    Closed,
    /// The connection was reset.
    Reset,
}

/// Bytes under way.
struct Chunk {
    due: Instant,
    sent: Instant,
    bytes: Vec<u8>,
    read: usize,
}

/// One direction.
struct Half {
    chunks: VecDeque<Chunk>,
    held: usize,
    delay: Duration,
    ending: Option<(Instant, Ending)>,
    is_frozen: bool,
    is_reader_gone: bool,
    /// The reader has shut it: whatever is under way, it reads the end.
    is_shut: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    timer: Option<Pin<Box<Sleep>>>,
}

type Shared = Arc<Mutex<Half>>;

fn lock(half: &Shared) -> MutexGuard<'_, Half> {
    half.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Half {
    fn new(delay: Duration) -> Shared {
        Arc::new(Mutex::new(Self {
            chunks: VecDeque::new(),
            held: 0,
            delay,
            ending: None,
            is_frozen: false,
            is_reader_gone: false,
            is_shut: false,
            reader: None,
            writer: None,
            timer: None,
        }))
    }

    fn wake(&mut self) {
        [self.reader.take(), self.writer.take()].into_iter().flatten().for_each(Waker::wake);
    }

    /// Nothing more arrives but this.
    fn end(&mut self, ending: Ending) {
        let now = Instant::now();
        let due = match ending {
            Ending::Closed => now + self.delay,
            Ending::Reset => {
                self.chunks.clear();
                self.held = 0;
                now
            }
        };
        if self.ending.is_none_or(|(_, before)| before == Ending::Closed) {
            self.ending = Some((due, ending));
        }
        self.wake();
    }

    /// Ready when there is data or an end to read; returns the end.
    fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<Option<Ending>> {
        loop {
            if self.is_shut {
                return Poll::Ready(Some(Ending::Closed));
            }
            self.reader = Some(cx.waker().clone());
            if self.is_frozen {
                return Poll::Pending;
            }
            let (due, what) = match (self.chunks.front(), self.ending) {
                (Some(chunk), _) => (chunk.due, None),
                (None, Some((due, ending))) => (due, Some(ending)),
                (None, None) => return Poll::Pending,
            };
            if due <= Instant::now() {
                return Poll::Ready(what);
            }
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
            if timer.deadline() != due {
                timer.as_mut().reset(due);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Is writing refused?
    fn failure(&self) -> Option<io::Error> {
        let (due, ending) = self.ending?;
        (ending == Ending::Reset && due <= Instant::now()).then(|| io::ErrorKind::BrokenPipe.into())
    }
}

/// One end of a connection. Dropping it closes the connection, unless there are copies.
#[derive(Clone)]
pub(crate) struct End {
    incoming: Shared,
    outgoing: Shared,
    _closes: Arc<Closes>,
    /// When the data read last was written.
    read_sent: Option<Instant>,
}

/// The two ends of a connection, with its delay in each direction, and a handle on the middle.
pub(super) fn pair(there: Duration, back: Duration) -> (End, End, Cable) {
    let (there, back) = (Half::new(there), Half::new(back));
    let cable = Cable { there: Arc::clone(&there), back: Arc::clone(&back) };
    (End::new(Arc::clone(&back), Arc::clone(&there)), End::new(there, back), cable)
}

impl End {
    fn new(incoming: Shared, outgoing: Shared) -> Self {
        let closes = Closes { incoming: Arc::clone(&incoming), outgoing: Arc::clone(&outgoing) };
        Self { incoming, outgoing, _closes: Arc::new(closes), read_sent: None }
    }

    /// Reads arrived data, at least one byte; 0 is the end.
    pub(crate) async fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let mut space = [0; 4096];
        let mut buf = ReadBuf::new(&mut space);
        poll_fn(|cx| Pipe::poll_read(self, cx, &mut buf)).await?;
        buffer.extend_from_slice(buf.filled());
        Ok(buf.filled().len())
    }

    pub(crate) async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let n = poll_fn(|cx| Pipe::poll_write(self, cx, bytes)).await?;
            bytes = bytes.get(n..).unwrap_or_default();
        }
        Ok(())
    }

    /// When the peer wrote the data read last.
    pub(crate) fn read_sent(&self) -> Option<Instant> {
        self.read_sent
    }
}

impl Pipe for End {
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        lock(&self.incoming).poll_arrived(cx).map(drop)
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut out = lock(&self.outgoing);
        if out.held < WINDOW || out.failure().is_some() {
            return Poll::Ready(());
        }
        out.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut half = lock(&self.incoming);
        match half.poll_arrived(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ending::Closed)) => return Poll::Ready(Ok(())),
            Poll::Ready(Some(Ending::Reset)) => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Poll::Ready(None) => {}
        }
        let now = Instant::now();
        while buf.remaining() > 0 {
            let Some(chunk) = half.chunks.front_mut().filter(|c| c.due <= now) else { break };
            let left = chunk.bytes.get(chunk.read..).unwrap_or_default();
            let n = left.len().min(buf.remaining());
            buf.put_slice(left.get(..n).unwrap_or_default());
            chunk.read += n;
            self.read_sent = Some(chunk.sent);
            if chunk.read == chunk.bytes.len() {
                half.chunks.pop_front();
            }
            half.held -= n;
        }
        if let Some(writer) = half.writer.take() {
            writer.wake();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if lock(&self.incoming).is_shut {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let mut out = lock(&self.outgoing);
        if let Some(e) = out.failure() {
            return Poll::Ready(Err(e));
        }
        if out.held >= WINDOW {
            out.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let now = Instant::now();
        if out.is_reader_gone {
            // The peer's system answers with a reset, a round trip later.
            let back = out.delay * 2;
            let mut incoming = lock(&self.incoming);
            if incoming.ending.is_none_or(|(_, e)| e == Ending::Closed) && out.ending.is_none() {
                out.ending = Some((now + back, Ending::Reset));
            }
            incoming.wake();
            return Poll::Ready(Ok(bytes.len()));
        }
        let due = out.chunks.back().map_or(now, |c| c.due).max(now + out.delay);
        out.held += bytes.len();
        out.chunks.push_back(Chunk { due, sent: now, bytes: bytes.to_vec(), read: 0 });
        if let Some(reader) = out.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn shutdown(&self) -> io::Result<()> {
        close(&self.incoming, &self.outgoing);
        Ok(())
    }

    fn copy(&self) -> Box<dyn Pipe> {
        Box::new(self.clone())
    }
}

/// Closes an end when it is dropped: with the last copy.
struct Closes {
    incoming: Shared,
    outgoing: Shared,
}

impl Drop for Closes {
    fn drop(&mut self) {
        close(&self.incoming, &self.outgoing);
    }
}

fn close(incoming: &Shared, outgoing: &Shared) {
    lock(outgoing).end(Ending::Closed);
    let mut incoming = lock(incoming);
    incoming.is_reader_gone = true;
    incoming.is_shut = true;
    incoming.chunks.clear();
    incoming.held = 0;
    incoming.wake();
}

/// The middle of a connection, through which faults act.
#[derive(Clone)]
pub(super) struct Cable {
    there: Shared,
    back: Shared,
}

impl Cable {
    /// Both ends get a reset; data on its way is lost.
    pub(super) fn reset(&self) {
        for half in [&self.there, &self.back] {
            let mut half = lock(half);
            half.is_frozen = false;
            half.end(Ending::Reset);
        }
    }

    /// Stops all arrivals, or (false) lets the held data arrive.
    pub(super) fn freeze(&self, is_frozen: bool) {
        for half in [&self.there, &self.back] {
            let mut half = lock(half);
            half.is_frozen = is_frozen;
            half.wake();
        }
    }

    /// True when both ends are gone.
    pub(super) fn is_over(&self) -> bool {
        lock(&self.there).is_reader_gone && lock(&self.back).is_reader_gone
    }
}
