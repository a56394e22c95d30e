//! SpookyHash V2, 64-bit result.
//!
//! The digest value that ProxySQL shows (`0x%016llX`) is this hash with seed 0
//! over the digest text. The algorithm is Bob Jenkins' public-domain
//! SpookyHash V2; inputs under 192 bytes take its short path.

const CONST: u64 = 0xdead_beef_dead_beef;
const LANES: usize = 12;
const BLOCK: usize = LANES * 8;
const SHORT_BELOW: usize = 2 * BLOCK;

const MIX_ROT: [u32; LANES] = [11, 32, 43, 31, 17, 28, 39, 57, 55, 54, 22, 46];
const END_ROT: [u32; LANES] = [44, 15, 34, 21, 38, 33, 10, 13, 38, 53, 42, 54];
const SHORT_MIX_ROT: [u32; 12] = [50, 52, 30, 41, 54, 48, 38, 37, 62, 34, 5, 36];
const SHORT_END_ROT: [u32; 11] = [15, 52, 26, 51, 28, 9, 47, 54, 32, 25, 63];

/// SpookyHash V2 `Hash64(data, seed)`.
pub fn spooky_hash64(data: &[u8], seed: u64) -> u64 {
    if data.len() < SHORT_BELOW { short(data, seed) } else { long(data, seed) }
}

/// [`spooky_hash64`] of data that comes in pieces.
#[derive(Clone, Debug)]
pub(crate) struct SpookyStream {
    seed: u64,
    state: [u64; LANES],
    /// Data that fills no whole block yet; all data as long as it may be short.
    rest: Vec<u8>,
    is_long: bool,
}

impl SpookyStream {
    pub(crate) fn new(seed: u64) -> Self {
        SpookyStream { seed, state: long_begin(seed), rest: Vec::with_capacity(SHORT_BELOW), is_long: false }
    }

    pub(crate) fn add(&mut self, data: &[u8]) {
        self.rest.extend_from_slice(data);
        self.is_long |= self.rest.len() >= SHORT_BELOW;
        if self.is_long {
            let whole = self.rest.len() - self.rest.len() % BLOCK;
            for block in self.rest[..whole].chunks_exact(BLOCK) {
                long_mix(&mut self.state, block);
            }
            self.rest.drain(..whole);
        }
    }

    pub(crate) fn finish(self) -> u64 {
        if self.is_long { long_end(self.state, &self.rest) } else { short(&self.rest, self.seed) }
    }
}

/// Little-endian load of up to eight bytes; missing bytes read as zero.
fn load(bytes: &[u8]) -> u64 {
    if let Some(chunk) = bytes.first_chunk::<8>() {
        return u64::from_le_bytes(*chunk);
    }
    bytes.iter().rev().fold(0, |word, &byte| (word << 8) | u64::from(byte))
}

fn short(data: &[u8], seed: u64) -> u64 {
    let mut state = [seed, seed, CONST, CONST];
    let mut blocks = data.chunks_exact(32);
    for block in blocks.by_ref() {
        let (front, back) = block.split_at(16);
        short_absorb(&mut state, front);
        state[0] = state[0].wrapping_add(load(back));
        state[1] = state[1].wrapping_add(load(&back[8..]));
    }
    let mut rest = blocks.remainder();
    if rest.len() >= 16 {
        short_absorb(&mut state, rest);
        rest = &rest[16..];
    }
    state[3] = state[3].wrapping_add((data.len() as u64) << 56);
    if rest.is_empty() {
        state[2] = state[2].wrapping_add(CONST);
        state[3] = state[3].wrapping_add(CONST);
    } else {
        state[2] = state[2].wrapping_add(load(rest));
        state[3] = state[3].wrapping_add(load(rest.get(8..).unwrap_or_default()));
    }
    short_end(state)
}

fn short_absorb(state: &mut [u64; 4], front: &[u8]) {
    state[2] = state[2].wrapping_add(load(front));
    state[3] = state[3].wrapping_add(load(&front[8..]));
    for (step, rot) in SHORT_MIX_ROT.into_iter().enumerate() {
        let lane = (step + 2) % 4;
        state[lane] = state[lane].rotate_left(rot).wrapping_add(state[(lane + 1) % 4]);
        state[(lane + 2) % 4] ^= state[lane];
    }
}

fn short_end(mut state: [u64; 4]) -> u64 {
    for (step, rot) in SHORT_END_ROT.into_iter().enumerate() {
        let (to, from) = ((step + 3) % 4, (step + 2) % 4);
        state[to] ^= state[from];
        state[from] = state[from].rotate_left(rot);
        state[to] = state[to].wrapping_add(state[from]);
    }
    state[0]
}

fn long(data: &[u8], seed: u64) -> u64 {
    let mut state = long_begin(seed);
    let mut blocks = data.chunks_exact(BLOCK);
    for block in blocks.by_ref() {
        long_mix(&mut state, block);
    }
    long_end(state, blocks.remainder())
}

fn long_begin(seed: u64) -> [u64; LANES] {
    std::array::from_fn(|lane| if lane % 3 == 2 { CONST } else { seed })
}

/// `rest` is what follows the last whole block.
fn long_end(mut state: [u64; LANES], rest: &[u8]) -> u64 {
    let mut last = [0u8; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    last[BLOCK - 1] = u8::try_from(rest.len()).unwrap_or(0);
    for (lane, word) in state.iter_mut().zip(last.chunks_exact(8)) {
        *lane = lane.wrapping_add(load(word));
    }
    for _ in 0..3 {
        end_partial(&mut state);
    }
    state[0]
}

#[inline]
fn long_mix(state: &mut [u64; LANES], block: &[u8]) {
    for (lane, word) in block.chunks_exact(8).enumerate() {
        let (next, before) = ((lane + 1) % LANES, (lane + 11) % LANES);
        state[lane] = state[lane].wrapping_add(load(word));
        state[(lane + 2) % LANES] ^= state[(lane + 10) % LANES];
        state[before] ^= state[lane];
        state[lane] = state[lane].rotate_left(MIX_ROT[lane]);
        state[before] = state[before].wrapping_add(state[next]);
    }
}

fn end_partial(state: &mut [u64; LANES]) {
    for (lane, rot) in END_ROT.into_iter().enumerate() {
        let (next, before) = ((lane + 1) % LANES, (lane + 11) % LANES);
        state[before] = state[before].wrapping_add(state[next]);
        state[(lane + 2) % LANES] ^= state[before];
        state[next] = state[next].rotate_left(rot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_digest() {
        assert_eq!(spooky_hash64(b"SELECT c FROM sbtest1 WHERE id=?", 0), 0xBF00_1A0C_1378_1C1D);
    }

    #[test]
    fn pieces_make_the_hash_of_the_whole() {
        let data: Vec<u8> = (0..1_000u32).map(|n| n.to_le_bytes()[0]).collect();
        for len in [0, 1, 95, 96, 97, 191, 192, 193, 287, 288, 1_000] {
            for piece in [1, 7, 96, 190, 1_000] {
                let mut stream = SpookyStream::new(0);
                data[..len].chunks(piece).for_each(|piece| stream.add(piece));
                assert_eq!(stream.finish(), spooky_hash64(&data[..len], 0), "{len} bytes by {piece}");
            }
        }
    }

    /// The verification code that SMHasher publishes for SpookyHash V2 (64 bit):
    /// keys of 0..=255 bytes, seeds 256..=1, and one 2048-byte key over the results.
    #[test]
    fn smhasher_verification() {
        let key: Vec<u8> = (0..=255).collect();
        let hashes: Vec<u8> = (0..256usize).flat_map(|len| spooky_hash64(&key[..len], 256 - len as u64).to_le_bytes()).collect();
        let code = spooky_hash64(&hashes, 0) & 0xffff_ffff;
        assert_eq!(code, 0x972C_4BDC);
    }
}
