//! A MySQL connection's bytes in both directions: a [`Stream`], and the compressed protocol where it was agreed.
//!
//! Above this module there are only plain packets.

use crate::net::buffer::{Buffer, BufferPool, WINDOW};
use crate::net::stream::{DetachedSocket, DetachedStream, Stream, StreamRecord, invalid};
use serde::{Deserialize, Serialize};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker, ready};
use wire::compress::{Compressor, Decompressor, Method};
use wire::packet::{self, HEADER};

/// Bytes that a link compresses or decompresses before others have the worker: with zlib two or three milliseconds.
const TURN: usize = WINDOW;

/// Compression state of one link; boxed, for most links have none.
pub(crate) struct Compression {
    method: Method,
    compressor: Compressor,
    decompressor: Decompressor,
    raw: Buffer,
    /// Unpacked and not yet read: from `plain_at` on.
    plain: Vec<u8>,
    plain_at: usize,
    /// Packed; what `poll_send` took is on its way from `out_at` on.
    out: Vec<u8>,
    out_at: usize,
    /// What is written next begins with a command.
    begins: bool,
    /// Bytes that were packed and unpacked since others had the worker.
    work: usize,
}

impl Compression {
    /// Fresh state, for use right after the authentication's OK.
    pub(crate) fn new(method: Method) -> Box<Self> {
        let (compressor, decompressor) = (Compressor::new(method), Decompressor::new(method));
        Box::new(Self {
            method,
            compressor,
            decompressor,
            raw: Buffer::default(),
            plain: Vec::new(),
            plain_at: 0,
            out: Vec::new(),
            out_at: 0,
            begins: false,
            work: 0,
        })
    }
}

impl Compression {
    /// Packs the first of these bytes; how many. Towards a server each command begins a frame of its own: while it answers one it
    /// forgets what else was in the frame.
    fn pack(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.forget_sent();
        let mut packed = 0;
        while let Some(rest) = bytes.get(packed..).filter(|rest| !rest.is_empty() && packed < TURN) {
            let len = if !self.begins {
                rest.len().min(TURN)
            } else {
                self.compressor.reset();
                let len = command_len(rest);
                self.begins = len < rest.len();
                if self.begins { len } else { len.min(TURN) }
            };
            self.compressor.compress(rest.get(..len).unwrap_or_default(), &mut self.out).map_err(invalid)?;
            packed += len;
        }
        self.work += packed;
        Ok(packed)
    }

    /// Lets others have the worker where this link has taken its turn of it: compression takes milliseconds.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.work < TURN {
            return Poll::Ready(());
        }
        self.work = 0;
        // It is polled once, which is what makes the runtime wake this task after the others.
        pin!(tokio::task::yield_now()).poll(cx)
    }

    fn forget_sent(&mut self) {
        self.out.clear();
        self.out_at = 0;
        if self.out.capacity() > WINDOW {
            self.out = Vec::new();
        }
    }

    fn has_plain(&self) -> bool {
        self.plain_at < self.plain.len()
    }

    /// Moves as much of what is unpacked as fits the buffer; the rest stays for the next read.
    fn move_plain(&mut self, buffer: &mut Buffer, pool: &BufferPool) -> usize {
        let from = self.plain.get(self.plain_at..).unwrap_or_default();
        let space = buffer.space(pool);
        let n = from.len().min(space.len());
        for (to, from) in space.iter_mut().zip(from) {
            *to = *from;
        }
        buffer.advance(n);
        self.plain_at += n;
        if !self.has_plain() {
            self.plain_at = 0;
            self.plain = Vec::new();
        }
        n
    }

    /// Whether there is more to unpack without another read.
    fn has_packed(&self) -> bool {
        !self.raw.is_empty() || self.decompressor.has_more()
    }

    /// Unpacks what was received, as much as a window holds.
    fn unpack(&mut self) -> Result<(), wire::WireError> {
        let taken = self.decompressor.feed(self.raw.filled(), TURN, &mut self.plain)?;
        self.raw.consume(taken);
        self.work += self.plain.len();
        // What is sent next answers it, unless it begins with a command.
        self.compressor.set_seq(self.decompressor.next_seq());
        Ok(())
    }
}

/// How many of these bytes, which begin with a command, are its packets: the next one begins with sequence id 0.
fn command_len(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some((len, _)) = bytes.get(at..).and_then(packet::header) {
        at += HEADER + len;
        if bytes.get(at..).and_then(packet::header).is_some_and(|(_, seq)| seq == 0) {
            return at;
        }
    }
    bytes.len()
}

/// A stream of plain packets.
pub(crate) struct Link {
    stream: Stream,
    compression: Option<Box<Compression>>,
    traffic: Traffic,
}

/// What became of bytes that were to be sent without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    /// How many of them were taken.
    pub taken: usize,
    /// Whether nothing is left to do: all were taken, and none is held back.
    pub is_all: bool,
}

impl Sent {
    /// There was nothing to send.
    pub(crate) const ALL: Sent = Sent { taken: 0, is_all: true };
    /// Nothing was tried.
    pub(crate) const NONE: Sent = Sent { taken: 0, is_all: false };
}

/// Bytes of packets, before compression and TLS: sent, received.
type Traffic = (u64, u64);

/// What another process needs to know of a link, besides its socket.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkRecord {
    stream: StreamRecord,
    compression: Option<CompressionRecord>,
    traffic: Traffic,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CompressionRecord {
    method: Method,
    /// Sequence ids of the next frame that is sent, and that is read.
    sends: u8,
    reads: u8,
    begins: bool,
}

impl LinkRecord {
    /// The link over this socket.
    ///
    /// # Errors
    /// The system's words.
    pub(crate) fn attach(self, socket: DetachedSocket) -> io::Result<Link> {
        let Self { stream, compression, traffic } = self;
        let compression = compression.map(|CompressionRecord { method, sends, reads, begins }| {
            let mut compression = Compression::new(method);
            compression.compressor.set_seq(sends);
            compression.decompressor.set_seq(reads);
            compression.begins = begins;
            compression
        });
        Ok(Link { stream: stream.attach(socket)?, compression, traffic })
    }
}

/// A link on its way to another worker.
pub(crate) struct DetachedLink {
    stream: DetachedStream,
    compression: Option<Box<Compression>>,
    traffic: Traffic,
}

impl DetachedLink {
    /// Registers the link with the runtime of the calling thread.
    pub(crate) fn attach(self) -> io::Result<Link> {
        Ok(Link { stream: self.stream.attach()?, compression: self.compression, traffic: self.traffic })
    }
}

impl Link {
    /// A link without compression.
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream, compression: None, traffic: (0, 0) }
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The stream below, to start TLS on it or to close it.
    pub(crate) fn stream_mut(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// From here on packets travel compressed.
    pub(crate) fn compress(&mut self, compression: Box<Compression>) {
        self.compression = Some(compression);
    }

    /// Takes the link from this thread's runtime.
    pub(crate) fn detach(self) -> io::Result<DetachedLink> {
        Ok(DetachedLink { stream: self.stream.detach()?, compression: self.compression, traffic: self.traffic })
    }

    /// What another process needs to go on with it; None where bytes of it are in this process that are not the socket's.
    pub(crate) fn record(&self) -> Option<LinkRecord> {
        let Self { stream, compression, traffic } = self;
        let compression = match compression.as_deref() {
            None => None,
            Some(Compression { method, compressor, decompressor, raw, plain, plain_at, out, out_at, begins, work: _ }) => {
                let is_at_rest = raw.is_empty() && *plain_at >= plain.len() && *out_at >= out.len() && decompressor.is_idle();
                let record =
                    CompressionRecord { method: *method, sends: compressor.next_seq(), reads: decompressor.next_seq(), begins: *begins };
                Some((is_at_rest && compressor.is_idle()).then_some(record)?)
            }
        };
        Some(LinkRecord { stream: stream.record()?, compression, traffic: *traffic })
    }

    /// Whether nothing is to be read, not even a part of a frame, and the peer has not closed: so is a connection between two replies.
    pub(crate) fn is_silent(&mut self) -> bool {
        self.compression.as_ref().is_none_or(|c| !c.has_plain() && c.raw.is_empty() && c.decompressor.is_idle()) && self.stream.is_silent()
    }

    /// Ready when bytes (or the end of the stream) may wait: worth a read. Whether a connection is alive, [`Link::is_silent`] says.
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.compression.as_ref().is_some_and(|c| c.has_plain() || c.has_packed()) {
            return Poll::Ready(());
        }
        self.stream.poll_readable(cx)
    }

    /// Bytes of packets received since [`Link::take_traffic`].
    pub(crate) fn received(&self) -> u64 {
        self.traffic.1
    }

    /// Bytes of packets sent and received since this was last asked.
    pub(crate) fn take_traffic(&mut self) -> (u64, u64) {
        std::mem::take(&mut self.traffic)
    }

    /// Reads plain packets' bytes into `buffer`; 0 is the end of the stream.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer, pool: &BufferPool) -> Poll<io::Result<usize>> {
        let n = ready!(self.poll_read_plain(cx, buffer, pool))?;
        self.traffic.1 += n as u64;
        Poll::Ready(Ok(n))
    }

    fn poll_read_plain(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer, pool: &BufferPool) -> Poll<io::Result<usize>> {
        let Some(c) = self.compression.as_mut() else {
            return self.stream.poll_read(cx, buffer, pool);
        };
        loop {
            if c.has_plain() {
                return Poll::Ready(Ok(c.move_plain(buffer, pool)));
            }
            if c.has_packed() {
                ready!(c.poll_turn(cx));
                c.unpack().map_err(invalid)?;
                c.raw.release(pool);
                if c.has_plain() || c.has_packed() {
                    continue;
                }
            }
            if ready!(self.stream.poll_read(cx, &mut c.raw, pool))? == 0 {
                return Poll::Ready(Ok(0));
            }
        }
    }

    /// Reads plain packets' bytes into `buffer`; 0 is the end of the stream.
    pub(crate) async fn read(&mut self, buffer: &mut Buffer, pool: &BufferPool) -> io::Result<usize> {
        poll_fn(|cx| self.poll_read(cx, buffer, pool)).await
    }

    /// Sends whole packets (or parts of them; the receiver joins), and what is held back.
    pub(crate) async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        poll_fn(|cx| {
            while !bytes.is_empty() {
                let taken = ready!(self.poll_send(cx, bytes))?;
                bytes = bytes.get(taken..).unwrap_or_default();
            }
            self.poll_flush(cx)
        })
        .await
    }

    /// Takes as many of `bytes` as there is room for; some may be held back until [`Link::poll_flush`].
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(cx))?;
        let taken = match self.compression.as_mut() {
            None => ready!(self.stream.poll_write(cx, bytes))?,
            Some(c) => {
                ready!(c.poll_turn(cx));
                c.pack(bytes)?
            }
        };
        self.traffic.0 += taken as u64;
        Poll::Ready(if taken == 0 && !bytes.is_empty() { Err(io::ErrorKind::WriteZero.into()) } else { Ok(taken) })
    }

    /// Ready when all is sent that [`Link::poll_send`] took.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(c) = self.compression.as_mut() {
            while let Some(rest) = c.out.get(c.out_at..).filter(|rest| !rest.is_empty()) {
                match ready!(self.stream.poll_write(cx, rest))? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    n => c.out_at += n,
                }
            }
            c.forget_sent();
        }
        self.stream.poll_flush(cx)
    }

    /// Sends what goes without waiting; the rest is for [`Link::write_all`].
    pub(crate) fn send_at_once(&mut self, bytes: &[u8]) -> io::Result<Sent> {
        if self.compression.as_ref().is_some_and(|c| c.work >= TURN) {
            return Ok(Sent::NONE);
        }
        let cx = &mut Context::from_waker(Waker::noop());
        let taken = match self.poll_send(cx, bytes) {
            Poll::Ready(taken) => taken?,
            Poll::Pending => 0,
        };
        let is_all = taken == bytes.len() && matches!(self.poll_flush(cx)?, Poll::Ready(()));
        Ok(Sent { taken, is_all })
    }

    /// With compression, the sequence id of the next frame sent: packets inside it count on from there.
    pub(crate) fn frame_seq(&self) -> Option<u8> {
        self.compression.as_ref().map(|c| c.compressor.next_seq())
    }

    /// Packets have sequence ids that count from the command on; inside compressed frames those mean little.
    pub(crate) fn numbers_packets(&self) -> bool {
        self.compression.is_none()
    }

    /// With compression: whether no packet was taken in part. A write that ended early may have left one, and what is sent next would
    /// be read as the rest of it. Without compression this is always true: whoever sends packets in parts knows where they end.
    pub(crate) fn is_between_packets(&self) -> bool {
        self.compression.as_ref().is_none_or(|c| c.compressor.is_idle())
    }

    /// What is sent next answers a command of one frame that has not come yet.
    pub(crate) fn begin_answer(&mut self) {
        if let Some(c) = self.compression.as_mut() {
            c.compressor.set_seq(1);
        }
    }

    /// A new command begins: compressed sequence ids start again at 0.
    pub(crate) fn start_command(&mut self) {
        if let Some(c) = self.compression.as_mut() {
            c.decompressor.reset();
            c.begins = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::buffer::CHUNK;
    use std::cell::Cell;
    use std::os::unix::net::UnixStream;

    /// More than a socket takes at once.
    const MUCH: usize = 3 << 20;

    fn pair() -> (Link, Link) {
        let link = |socket| Link::new(Stream::new(DetachedSocket::Unix(socket).attach().unwrap()));
        let (near, far) = UnixStream::pair().unwrap();
        (link(near), link(far))
    }

    async fn read(link: &mut Link, len: usize) -> Vec<u8> {
        let (pool, mut buffer, mut all) = (BufferPool::default(), Buffer::default(), Vec::new());
        while all.len() < len {
            assert!(link.read(&mut buffer, &pool).await.unwrap() > 0);
            all.extend_from_slice(buffer.filled());
            buffer.consume(buffer.len());
        }
        all
    }

    /// A packet of so many bytes, with its header.
    fn packet_of(len: usize, byte: impl Fn() -> u8) -> Vec<u8> {
        let size = u32::try_from(len - HEADER).unwrap().to_le_bytes();
        [size[0], size[1], size[2], 0].into_iter().chain(std::iter::repeat_with(byte)).take(len).collect()
    }

    /// One that no compression makes shorter.
    fn noise(len: usize) -> Vec<u8> {
        let random = crate::workers::clock::Random::new(7);
        packet_of(len, || random.next().to_le_bytes()[7])
    }

    #[tokio::test]
    async fn what_does_not_go_at_once_goes_later() {
        for method in [None, Some(Method::Zlib { level: 1 }), Some(Method::Zstd { level: 1 })] {
            let (mut near, mut far) = pair();
            if let Some(method) = method {
                near.compress(Compression::new(method));
                far.compress(Compression::new(method));
            }
            let (few, much) = (noise(100), noise(MUCH));
            // From here on the runtime knows that there is room.
            near.write_all(&few).await.unwrap();
            assert_eq!(near.send_at_once(b"").unwrap(), Sent::ALL);
            assert_eq!(near.send_at_once(&few).unwrap(), Sent { taken: few.len(), is_all: true });
            let sent = near.send_at_once(&much).unwrap();
            assert!(!sent.is_all, "{method:?}: {sent:?}");
            let wanted = 2 * few.len() + much.len();
            let (sent, all) = tokio::join!(near.write_all(&much[sent.taken..]), read(&mut far, wanted));
            sent.unwrap();
            assert!(all == [few.clone(), few, much].concat(), "{method:?}: other bytes");
            assert_eq!(near.take_traffic().0, wanted as u64, "{method:?}");
        }
    }

    #[tokio::test]
    async fn a_write_that_ends_early_leaves_a_packet_in_part() {
        for method in [Method::Zlib { level: 1 }, Method::Zstd { level: 1 }] {
            let (mut near, mut far) = pair();
            near.compress(Compression::new(method));
            far.compress(Compression::new(method));
            assert!(near.is_between_packets());
            let (few, much) = (noise(100), noise(MUCH));
            // From here on the runtime knows that there is room.
            near.write_all(&few).await.unwrap();
            assert!(near.is_between_packets());
            let both = [few, much].concat();
            let sent = near.send_at_once(&both).unwrap();
            assert!(!sent.is_all && !near.is_between_packets(), "{method:?}: {sent:?}");
            let (rest, all) = tokio::join!(near.write_all(&both[sent.taken..]), read(&mut far, 100 + both.len()));
            rest.unwrap();
            assert!(near.is_between_packets() && all[100..] == both, "{method:?}");
        }
    }

    /// What becomes few bytes is sent and read without a wait, and others have the worker all the while.
    #[tokio::test]
    async fn a_link_that_compresses_takes_turns() {
        for method in [Method::Zlib { level: 6 }, Method::Zstd { level: 3 }] {
            let (mut near, mut far) = pair();
            near.compress(Compression::new(method));
            far.compress(Compression::new(method));
            let turns = &Cell::new(0);
            let others = async {
                loop {
                    tokio::task::yield_now().await;
                    turns.set(turns.get() + 1);
                }
            };
            let within = async |work: &mut dyn FnMut(&mut Context<'_>) -> Poll<()>| {
                let before = turns.get();
                poll_fn(work).await;
                turns.get() - before
            };
            let work = async {
                let much = packet_of(MUCH, || b'x');
                let mut sending = pin!(near.write_all(&much));
                let sent = within(&mut |cx| sending.as_mut().poll(cx).map(Result::unwrap)).await;
                let mut reading = pin!(read(&mut far, MUCH));
                let read = within(&mut |cx| reading.as_mut().poll(cx).map(drop)).await;
                [sent, read]
            };
            let counts = tokio::select! { counts = work => counts, () = others => unreachable!("it has no end") };
            assert!(counts.iter().all(|turns| *turns >= MUCH / TURN - 2), "{method:?}: {counts:?}");
        }
    }

    fn tcp_pair() -> (Link, Link) {
        let link = |socket| Link::new(Stream::new(DetachedSocket::Tcp(socket).attach().unwrap()));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (link(near), link(listener.accept().unwrap().0))
    }

    /// Reads into a buffer of this size, in one go as long as it fits.
    async fn read_into(link: &mut Link, size: usize, len: usize) {
        let (pool, mut buffer, mut read) = (BufferPool::default(), Buffer::default(), 0);
        buffer.reserve(size, &pool);
        while read < len {
            read += link.read(&mut buffer, &pool).await.unwrap();
            buffer.consume(buffer.len());
        }
    }

    #[tokio::test]
    async fn a_connection_of_which_all_was_read_is_silent_whatever_the_length() {
        let methods = [None, Some(Method::Zlib { level: 1 }), Some(Method::Zstd { level: 1 })];
        let lengths = [CHUNK, WINDOW].map(|size| (size - 12..=size + 12).map(move |len| (size, len)));
        for (pair, method) in [pair as fn() -> (Link, Link), tcp_pair].iter().flat_map(|pair| methods.map(|method| (pair, method))) {
            let (mut near, mut far) = pair();
            if let Some(method) = method {
                near.compress(Compression::new(method));
                far.compress(Compression::new(method));
            }
            for (size, len) in lengths.clone().into_iter().flatten() {
                let bytes = noise(len);
                let (sent, ()) = tokio::join!(far.write_all(&bytes), read_into(&mut near, size, len));
                sent.unwrap();
                assert!(near.is_silent(), "{method:?}: {len} bytes");
            }
            far.write_all(b"\x01\0\0\0!").await.unwrap();
            poll_fn(|cx| near.poll_readable(cx)).await;
            assert!(!near.is_silent(), "{method:?}: a byte waits");
            read_into(&mut near, CHUNK, 5).await;
            assert!(near.is_silent());
            drop(far);
            poll_fn(|cx| near.poll_readable(cx)).await;
            assert!(!near.is_silent(), "{method:?}: it was closed");
        }
    }

    #[tokio::test]
    async fn nobody_takes_what_is_sent_to_a_closed_connection() {
        let (mut near, far) = pair();
        near.write_all(b"anybody?").await.unwrap();
        drop(far);
        near.send_at_once(b"anybody?").unwrap_err();
    }
}
