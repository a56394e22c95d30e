//! The compressed protocol: frames of zlib or zstd around the stream of packets.
//!
//! A frame is 3 bytes of length, 1 byte of sequence id, 3 bytes of length before compression (0: not compressed), and the data. Frames and
//! packets need not begin together. A connection has one [`Compressor`] and one [`Decompressor`]. The frames have their own sequence ids,
//! which begin at 0 with each command; an answer continues the question's ids. Source: "Compression" (MySQL protocol pages).
//!
//! INVARIANT: a frame never yields more than it declared, and none declares more than 16 MiB.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Decoder, Encoder, InBuffer, Operation, OutBuffer};

use crate::codec::put_u24;
use crate::error::{Result, WireError};
use crate::packet::{self, HEADER};

/// Length of a frame's header, in bytes.
pub const FRAME_HEADER: usize = 7;
/// Shorter data is sent as it is, in bytes; servers have the same limit.
pub const MIN_COMPRESS: usize = 50;
/// How much goes into one frame, in bytes before compression. Level 1 of zlib makes noise an eighth longer, and that must fit a frame.
const CHUNK: usize = 0xe0_00_00;
/// Output that compression makes room for at a time, bytes.
const ROOM: usize = 16 << 10;
/// Largest window that a zstd frame may ask for, as a power of two: a whole frame.
const ZSTD_WINDOW_LOG_MAX: u32 = 24;

/// How frames are compressed; agreed in the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Method {
    /// CLIENT_COMPRESS, level 0..=9.
    Zlib {
        /// 0 (none) to 9 (smallest); servers use 6.
        level: u32,
    },
    /// CLIENT_ZSTD_COMPRESSION_ALGORITHM, level 1..=22.
    Zstd {
        /// 1 (fastest) to 22 (smallest); servers use 3.
        level: i32,
    },
}

/// Packs a stream of packets into frames.
///
/// A frame ends with a packet, unless the packet is longer than a frame: some clients read a packet from two frames at most. So the start
/// of an unfinished packet is kept, compressed, until its end has come.
pub struct Compressor {
    engine: Packer,
    next_seq: u8,
    packets: Packets,
    /// The frame at hand: its data, compressed so far, the first few bytes as they are, and how many have come.
    packed: Vec<u8>,
    short: Vec<u8>,
    plain_len: usize,
}

/// The position in a stream of packets.
#[derive(Debug, Default)]
struct Packets {
    /// The header at hand, as far as it has come.
    header: Vec<u8>,
    /// Bytes of the packet at hand that have not come.
    left: usize,
}

impl Packets {
    /// These bytes come next.
    fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.left > 0 {
                let passed = self.left.min(bytes.len());
                self.left -= passed;
                bytes = &bytes[passed..];
                continue;
            }
            let taken = (HEADER - self.header.len()).min(bytes.len());
            self.header.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if let Some((len, _)) = packet::header(&self.header) {
                self.left = len;
                self.header.clear();
            }
        }
    }

    /// Whether the last one is whole.
    fn is_whole(&self) -> bool {
        self.left == 0 && self.header.is_empty()
    }
}

/// A method's state; heavy parts are made when first needed.
enum Packer {
    Zlib(Compress),
    Zstd { level: i32, engine: Option<Encoder<'static>> },
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compressor").field("next_seq", &self.next_seq).finish_non_exhaustive()
    }
}

impl Compressor {
    /// A compressor at sequence id 0. Levels out of range are brought into it.
    #[must_use]
    pub fn new(method: Method) -> Self {
        let engine = match method {
            Method::Zlib { level } => Packer::Zlib(Compress::new(Compression::new(level.min(9)), true)),
            Method::Zstd { level } => Packer::Zstd { level: level.clamp(1, 22), engine: None },
        };
        Self { engine, next_seq: 0, packets: Packets::default(), packed: Vec::new(), short: Vec::new(), plain_len: 0 }
    }

    /// Begins a command: the next frame has sequence id 0.
    pub fn reset(&mut self) {
        self.next_seq = 0;
    }

    /// The next frame's sequence id.
    #[must_use]
    pub fn next_seq(&self) -> u8 {
        self.next_seq
    }

    /// Whether no packet is unfinished.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.packets.is_whole() && self.plain_len == 0
    }

    /// Sets the next frame's sequence id. To answer, set it to [`Decompressor::next_seq`].
    pub fn set_seq(&mut self, next_seq: u8) {
        self.next_seq = next_seq;
    }

    /// Appends the frames that `packets` complete: any piece of the stream of packets. What came of a packet that is not whole yet is
    /// in none of them.
    pub fn compress(&mut self, packets: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let mut rest = packets;
        while !rest.is_empty() {
            let (piece, more) = rest.split_at(rest.len().min(CHUNK - self.plain_len));
            rest = more;
            self.packets.pass(piece);
            self.take(piece)?;
            if self.plain_len == CHUNK || rest.is_empty() && self.packets.is_whole() {
                self.frame(out)?;
            }
        }
        Ok(())
    }

    /// Bytes of the frame at hand.
    fn take(&mut self, piece: &[u8]) -> Result<()> {
        if self.plain_len + piece.len() < MIN_COMPRESS {
            self.short.extend_from_slice(piece);
        } else {
            if self.plain_len < MIN_COMPRESS {
                self.engine.begin()?;
                let short = std::mem::take(&mut self.short);
                self.engine.pack(&short, &mut self.packed)?;
            }
            self.engine.pack(piece, &mut self.packed)?;
        }
        self.plain_len += piece.len();
        Ok(())
    }

    /// Appends the frame at hand.
    fn frame(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let mut data = std::mem::take(&mut self.short);
        let mut plain_len = std::mem::take(&mut self.plain_len);
        if plain_len < MIN_COMPRESS {
            plain_len = 0;
        } else {
            self.engine.finish(&mut self.packed)?;
            data = std::mem::take(&mut self.packed);
        }
        put_u24(out, u32::try_from(data.len()).unwrap_or(0)); // A frame's, with what compression adds at worst.
        out.push(self.next_seq);
        put_u24(out, u32::try_from(plain_len).unwrap_or(0)); // at most CHUNK
        out.extend_from_slice(&data);
        self.next_seq = self.next_seq.wrapping_add(1);
        Ok(())
    }
}

const FAILED: WireError = WireError::Compression("cannot compress");

impl Packer {
    fn begin(&mut self) -> Result<()> {
        match self {
            Self::Zlib(engine) => engine.reset(),
            Self::Zstd { engine: Some(engine), .. } => engine.reinit().map_err(|_| FAILED)?,
            Self::Zstd { level, engine } => *engine = Some(Encoder::new(*level).map_err(|_| FAILED)?),
        }
        Ok(())
    }

    /// Appends what comes of `data`, compressed, so far.
    fn pack(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Zlib(engine) => {
                let begin = engine.total_in();
                loop {
                    let taken = usize::try_from(engine.total_in() - begin).map_err(|_| FAILED)?;
                    let Some(rest) = data.get(taken..).filter(|rest| !rest.is_empty()) else { return Ok(()) };
                    out.reserve(ROOM);
                    engine.compress_vec(rest, out, FlushCompress::None).map_err(|_| FAILED)?;
                }
            }
            Self::Zstd { engine: None, .. } => Err(FAILED),
            Self::Zstd { engine: Some(engine), .. } => {
                let mut from = InBuffer::around(data);
                while from.pos() < data.len() {
                    append(out, |to| engine.run(&mut from, to))?;
                }
                Ok(())
            }
        }
    }

    /// Appends the end of a frame.
    fn finish(&mut self, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Zlib(engine) => loop {
                out.reserve(ROOM);
                if engine.compress_vec(&[], out, FlushCompress::Finish).map_err(|_| FAILED)? == Status::StreamEnd {
                    return Ok(());
                }
            },
            Self::Zstd { engine: None, .. } => Err(FAILED),
            Self::Zstd { engine: Some(engine), .. } => {
                while append(out, |to| engine.finish(to, true))? > 0 {}
                Ok(())
            }
        }
    }
}

/// Lets zstd append to `out`. Returns zstd's result.
fn append(out: &mut Vec<u8>, run: impl FnOnce(&mut OutBuffer<'_, [u8]>) -> std::io::Result<usize>) -> Result<usize> {
    let start = out.len();
    out.resize(start + ROOM, 0);
    let mut to = OutBuffer::around(&mut out[start..]);
    let answer = run(&mut to);
    let given = to.pos();
    out.truncate(start + given);
    answer.map_err(|_| FAILED)
}

/// Unpacks frames into the stream of packets while bytes arrive. Neither a frame nor its content is ever kept whole.
pub struct Decompressor {
    engine: Unpacker,
    /// The header of the frame at hand, as far as it has come.
    head: [u8; FRAME_HEADER],
    head_len: usize,
    /// Bytes of the frame's data that have not come, bytes that it has yet to give, and how it holds them.
    rest: Rest,
    next_seq: u8,
}

/// The rest of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// No frame has begun.
    Nothing,
    /// Data as they are.
    Plain { coming: usize },
    /// Compressed data.
    Packed { coming: usize, plain: usize, has_ended: bool },
}

/// A method's state; heavy parts are made when first needed.
enum Unpacker {
    Zlib(Decompress),
    Zstd(Option<Decoder<'static>>),
}

impl std::fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decompressor").field("next_seq", &self.next_seq).field("rest", &self.rest).finish_non_exhaustive()
    }
}

const BROKEN: WireError = WireError::Compression("data is broken, or longer or shorter than declared");

impl Decompressor {
    /// A decompressor at the beginning of a stream.
    #[must_use]
    pub fn new(method: Method) -> Self {
        let engine = match method {
            Method::Zlib { .. } => Unpacker::Zlib(Decompress::new(true)),
            Method::Zstd { .. } => Unpacker::Zstd(None),
        };
        Self { engine, head: [0; FRAME_HEADER], head_len: 0, rest: Rest::Nothing, next_seq: 0 }
    }

    /// One more than the last frame's sequence id. Drivers differ in how they count, so frames out of order are no error.
    #[must_use]
    pub fn next_seq(&self) -> u8 {
        self.next_seq
    }

    /// Continues with the sequence id of another one's [`Self::next_seq`].
    pub fn set_seq(&mut self, next_seq: u8) {
        self.next_seq = next_seq;
    }

    /// Begins a command: [`Self::next_seq`] is 0 until a frame comes.
    pub fn reset(&mut self) {
        self.next_seq = 0;
    }

    /// True between two frames; false when a frame is not whole yet, or has not given all that it holds.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.head_len == 0 && self.rest == Rest::Nothing
    }

    /// Whether the frame at hand has come, and holds more than there was room for: [`Self::feed`] gives it without more bytes.
    #[must_use]
    pub fn has_more(&self) -> bool {
        matches!(self.rest, Rest::Packed { coming: 0, .. })
    }

    /// Takes bytes from the peer, cut anywhere, and appends their content, at most `room` bytes. Returns the number of bytes taken: all,
    /// unless there was no room. After an error the stream cannot be continued.
    pub fn feed(&mut self, bytes: &[u8], mut room: usize, out: &mut Vec<u8>) -> Result<usize> {
        let mut left = bytes;
        loop {
            match self.rest {
                Rest::Nothing => {
                    let (taken, rest) = left.split_at(left.len().min(FRAME_HEADER - self.head_len));
                    self.head[self.head_len..self.head_len + taken.len()].copy_from_slice(taken);
                    (self.head_len, left) = (self.head_len + taken.len(), rest);
                    if self.head_len < FRAME_HEADER {
                        return Ok(bytes.len());
                    }
                    self.begin()?;
                }
                Rest::Plain { coming } => {
                    let (taken, rest) = left.split_at(left.len().min(coming).min(room));
                    out.extend_from_slice(taken);
                    (room, left) = (room - taken.len(), rest);
                    self.rest = if taken.len() == coming { Rest::Nothing } else { Rest::Plain { coming: coming - taken.len() } };
                    if self.rest != Rest::Nothing {
                        return Ok(bytes.len() - left.len());
                    }
                }
                Rest::Packed { coming, plain, has_ended } => {
                    let data = &left[..left.len().min(coming)];
                    let start = out.len();
                    out.resize(start + plain.min(room), 0);
                    let turn = self.engine.unpack(data, &mut out[start..]);
                    out.truncate(start + turn.as_ref().map_or(0, |turn| turn.given));
                    let turn = turn?;
                    (room, left) = (room - turn.given, &left[turn.taken..]);
                    let (coming, plain) = (coming - turn.taken, plain - turn.given);
                    let has_ended = turn.has_ended || (has_ended && turn.taken == 0);
                    self.rest = match (coming, plain, has_ended) {
                        (0, 0, true) => Rest::Nothing,
                        // There is nothing more in it, or no more than was declared would fit.
                        (0, _, true) | (0, 0, false) => return Err(BROKEN),
                        _ => Rest::Packed { coming, plain, has_ended },
                    };
                    let is_stuck = turn.taken == 0 && turn.given == 0;
                    if self.rest != Rest::Nothing && is_stuck {
                        let waits = data.is_empty() && coming > 0 || room == 0 && plain > 0;
                        return if waits { Ok(bytes.len() - left.len()) } else { Err(BROKEN) };
                    }
                }
            }
        }
    }

    /// A frame's header is there.
    fn begin(&mut self) -> Result<()> {
        let [a, b, c, seq, d, e, f] = self.head;
        let [coming, plain] =
            [[a, b, c], [d, e, f]].map(|[low, middle, high]| usize::from(low) | usize::from(middle) << 8 | usize::from(high) << 16);
        self.head_len = 0;
        self.next_seq = seq.wrapping_add(1);
        self.rest = match (coming, plain) {
            (0, 0) => Rest::Nothing,
            (_, 0) => Rest::Plain { coming },
            _ => {
                self.engine.begin()?;
                Rest::Packed { coming, plain, has_ended: false }
            }
        };
        Ok(())
    }
}

/// The result of one turn of unpacking.
struct Turn {
    taken: usize,
    given: usize,
    /// The compressed stream is over.
    has_ended: bool,
}

impl Unpacker {
    /// A compressed stream begins.
    fn begin(&mut self) -> Result<()> {
        match self {
            Self::Zlib(engine) => engine.reset(true),
            Self::Zstd(Some(engine)) => engine.reinit().map_err(|_| BROKEN)?,
            Self::Zstd(none) => {
                let mut engine = Decoder::new().map_err(|_| BROKEN)?;
                engine.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX)).map_err(|_| BROKEN)?;
                *none = Some(engine);
            }
        }
        Ok(())
    }

    /// Takes as much of `data`, and yields as much of its content, as fits into `out`.
    fn unpack(&mut self, data: &[u8], out: &mut [u8]) -> Result<Turn> {
        match self {
            Self::Zlib(engine) => {
                let (was_in, was_out) = (engine.total_in(), engine.total_out());
                let status = engine.decompress(data, out, FlushDecompress::None).map_err(|_| BROKEN)?;
                let taken = usize::try_from(engine.total_in() - was_in).map_err(|_| BROKEN)?;
                let given = usize::try_from(engine.total_out() - was_out).map_err(|_| BROKEN)?;
                // Nothing may follow the stream's end.
                match status {
                    Status::StreamEnd if taken < data.len() => Err(BROKEN),
                    _ => Ok(Turn { taken, given, has_ended: status == Status::StreamEnd }),
                }
            }
            Self::Zstd(None) => Err(BROKEN),
            Self::Zstd(Some(engine)) => {
                let (mut from, mut to) = (InBuffer::around(data), OutBuffer::around(out));
                let wanted = engine.run(&mut from, &mut to).map_err(|_| BROKEN)?;
                let (taken, given) = (from.pos(), to.pos());
                Ok(Turn { taken, given, has_ended: wanted == 0 && (taken > 0 || given > 0) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const METHODS: [Method; 2] = [Method::Zlib { level: 6 }, Method::Zstd { level: 3 }];

    fn packet_of(data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put_u24(&mut out, u32::try_from(data.len()).unwrap());
        out.push(0);
        out.extend_from_slice(data);
        out
    }

    fn pack(method: Method, packet: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Compressor::new(method).compress(packet, &mut out).unwrap();
        out
    }

    /// Lengths of frames before compression, those that are not compressed included.
    fn frames(mut bytes: &[u8]) -> Vec<usize> {
        let u24 = |bytes: &[u8]| usize::from(bytes[0]) | usize::from(bytes[1]) << 8 | usize::from(bytes[2]) << 16;
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let (len, plain) = (u24(bytes), u24(&bytes[4..]));
            all.push(if plain == 0 { len } else { plain });
            bytes = &bytes[FRAME_HEADER + len..];
        }
        all
    }

    /// mysql-connector-python's pure form reads two frames at most for a packet.
    #[test]
    fn a_frame_ends_with_a_packet_however_its_bytes_come() {
        for method in METHODS {
            for cut in [1, 3, 4, 5, 100, 65_536, 1_000_000] {
                let packets = [packet_of(&[b'x'; 900_000]), packet_of(b"y"), packet_of(&[b'z'; 70_000])].concat();
                let (mut compressor, mut out) = (Compressor::new(method), Vec::new());
                packets.chunks(cut).for_each(|piece| compressor.compress(piece, &mut out).unwrap());
                let (mut at, mut ends) = (0, Vec::new());
                for len in frames(&out) {
                    at += len;
                    ends.push(at);
                }
                let borders = [900_004, 900_009, 970_013];
                assert!(ends.iter().all(|end| borders.contains(end)), "{cut}: {ends:?}");
                let mut plain = Vec::new();
                Decompressor::new(method).feed(&out, usize::MAX, &mut plain).unwrap();
                assert!(plain == packets, "{cut}");
            }
            let longest = pack(method, &packet_of(&vec![b'x'; 0xff_ff_ff]));
            assert_eq!(frames(&longest), [CHUNK, 0xff_ff_ff + 4 - CHUNK]);
        }
    }

    #[test]
    fn short_data_is_not_compressed() {
        for method in METHODS {
            let frame = pack(method, b"\x01\0\0\0\x0e");
            assert_eq!(frame, b"\x05\0\0\0\0\0\0\x01\0\0\0\x0e");
        }
    }

    #[test]
    fn a_frame_from_the_protocol_page() {
        let frame = [
            0x22, 0, 0, 0, 0x32, 0, 0, 0x78, 0x9c, 0xd3, 0x63, 0x60, 0x60, 0x60, 0x2e, 0x4e, 0xcd, 0x49, 0x4d, 0x2e, 0x51, 0x50, 0x32,
            0x30, 0x34, 0x32, 0x36, 0x31, 0x35, 0x33, 0xb7, 0xb0, 0xc4, 0xcd, 0x52, 0x02, 0, 0x0c, 0xd1, 0x0a, 0x6c,
        ];
        let mut out = Vec::new();
        Decompressor::new(METHODS[0]).feed(&frame, usize::MAX, &mut out).unwrap();
        assert_eq!(out, b"\x2e\0\0\0\x03select \"012345678901234567890123456789012345\"");
    }

    #[test]
    fn long_streams_and_sequence_ids() {
        let mut random = 1_u64;
        let mut next = || {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (random >> 56) as u8
        };
        let noise: Vec<u8> = (0..3_000_000).map(|_| next()).collect();
        // Level 1 of zlib makes noise an eighth longer.
        for method in METHODS.into_iter().chain((1..=9).map(|level| Method::Zlib { level })) {
            for data in [&packet_of(&[b'a'; 3_000_000]), &packet_of(&noise)] {
                let mut compressor = Compressor::new(method);
                compressor.set_seq(254);
                let mut out = Vec::new();
                compressor.compress(data, &mut out).unwrap();
                let (mut decompressor, mut plain) = (Decompressor::new(method), Vec::new());
                decompressor.feed(&out, usize::MAX, &mut plain).unwrap();
                assert_eq!(decompressor.next_seq(), 255);
                assert!(decompressor.is_idle());
                assert!(plain == **data);
            }
        }
    }

    #[test]
    fn a_wrong_declaration_is_refused() {
        for method in METHODS {
            let good = pack(method, &packet_of(&[b'x'; 196]));
            for declared in [199u8, 201] {
                let mut bad = good.clone();
                bad[4] = declared;
                let mut out = vec![1];
                assert!(Decompressor::new(method).feed(&bad, usize::MAX, &mut out).is_err());
                assert!(out.len() <= 1 + 200);
            }
        }
    }

    /// Neither the declared length nor the content takes memory before it is asked for.
    #[test]
    fn a_frame_gives_no_more_than_there_is_room_for() {
        for method in METHODS {
            // Its header is one of its letters.
            let bomb = pack(method, &vec![b'x'; CHUNK]);
            assert!(bomb.len() < 40_000, "{}", bomb.len());
            let (mut decompressor, mut at, mut total) = (Decompressor::new(method), 0, 0);
            while !decompressor.is_idle() || at == 0 {
                let mut out = Vec::new();
                at += decompressor.feed(&bomb[at..], 1_000, &mut out).unwrap();
                assert!(out.len() <= 1_000 && out.capacity() <= 2_000 && out.iter().all(|byte| *byte == b'x'));
                total += out.len();
                assert!(decompressor.is_idle() || at < bomb.len() || decompressor.has_more());
            }
            assert_eq!((at, total), (bomb.len(), CHUNK));
            let mut none = Vec::new();
            let begun = Decompressor::new(method).feed(&[1, 0, 0, 0, 0xff, 0xff, 0xff, bomb[7]], 1_000, &mut none);
            assert!(none.is_empty() && (begun.is_err() || begun.unwrap() == 8));
        }
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same(data in prop::collection::vec(0u8..4, 0..2000), cut in 1usize..500, room in 1usize..300, zstd: bool) {
            let method = METHODS[usize::from(zstd)];
            let data = packet_of(&data);
            let packed = pack(method, &data);
            let (mut decompressor, mut plain) = (Decompressor::new(method), Vec::new());
            for piece in packed.chunks(cut) {
                let mut at = 0;
                while at < piece.len() || decompressor.has_more() {
                    at += decompressor.feed(&piece[at..], room, &mut plain).unwrap();
                }
            }
            prop_assert!(decompressor.is_idle());
            prop_assert_eq!(plain, data);
        }

        #[test]
        fn no_bytes_panic(data: Vec<u8>, plain_len in 0u8..255, zstd: bool) {
            let mut frame = vec![data.len() as u8, 0, 0, 0, plain_len, 0, 0];
            frame.extend_from_slice(&data);
            let _ = Decompressor::new(METHODS[usize::from(zstd)]).feed(&frame, usize::MAX, &mut Vec::new());
        }
    }
}
