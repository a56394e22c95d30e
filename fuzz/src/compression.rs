//! The compressed protocol: whatever the cut, the same bytes; never more than the frames declare.

use wire::compress::{Compressor, Decompressor, FRAME_HEADER, Method};

use crate::input::pieces;

/// The most that the frames of an input may declare in all, in bytes; more is not tried, for speed.
const MAX_DECLARED: usize = 4 << 20;

/// The input: a byte (bit 0: zstd; bit 1: the rest is a packet to pack and unpack, else compressed frames), 8 bytes for
/// where it is cut, then the rest.
pub fn check(data: &[u8]) {
    let Some((&[flags, ref cuts @ ..], data)) = data.split_first_chunk::<9>() else { return };
    let method = if flags & 1 == 0 { Method::Zlib { level: 6 } } else { Method::Zstd { level: 3 } };
    let cuts = u64::from_le_bytes(*cuts);
    if flags & 2 == 0 {
        return unpack(method, data, cuts);
    }
    // As a packet: frames end with packets.
    let Some([size @ .., 0]) = u32::try_from(data.len()).ok().map(u32::to_le_bytes) else { return };
    let packet = [&size[..], &[0], data].concat();
    let (mut packed, mut compressor) = (Vec::new(), Compressor::new(method));
    for piece in pieces(&packet, cuts) {
        compressor.compress(piece, &mut packed).expect("data can be packed");
    }
    compressor.compress(&packet, &mut packed).expect("data can be packed");
    assert_eq!(unpack_in(method, pieces(&packed, cuts)), Ok([&packet[..], &packet].concat()));
}

fn unpack(method: Method, frames: &[u8], cuts: u64) {
    let declared = declared(frames);
    if declared > MAX_DECLARED {
        return;
    }
    let whole = unpack_in(method, [frames].into_iter());
    if let Ok(plain) = &whole {
        assert!(plain.len() <= declared, "{} bytes, {declared} declared", plain.len());
    }
    assert_eq!(unpack_in(method, pieces(frames, cuts)).is_ok(), whole.is_ok());
    if whole.is_ok() {
        assert_eq!(unpack_in(method, pieces(frames, cuts)), whole);
    }
}

/// Feeds the pieces; what they held, or the error.
fn unpack_in<'a>(method: Method, pieces: impl Iterator<Item = &'a [u8]>) -> wire::error::Result<Vec<u8>> {
    let (mut decompressor, mut plain) = (Decompressor::new(method), Vec::new());
    for piece in pieces {
        decompressor.feed(piece, usize::MAX, &mut plain)?;
    }
    Ok(plain)
}

/// How many bytes the frames say that they hold, one that is not whole too.
fn declared(mut frames: &[u8]) -> usize {
    let mut sum = 0;
    while let Some((head, rest)) = frames.split_first_chunk::<FRAME_HEADER>() {
        let [len, plain] = [[head[0], head[1], head[2], 0], [head[4], head[5], head[6], 0]].map(|bytes| u32::from_le_bytes(bytes) as usize);
        sum += if plain == 0 { len } else { plain };
        let Some(rest) = rest.get(len..) else { break };
        frames = rest;
    }
    sum
}
