//! Cuts a fuzzer's bytes into numbers and pieces. Never fails: what is not there reads as zero or empty.

use wire::Capabilities;

/// The bytes that are left.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// All of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// One byte.
    pub fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// Eight bytes, little-endian.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Capability bits: four bytes, MySQL's; MariaDB's are not set.
    pub fn caps(&mut self) -> Capabilities {
        Capabilities::from_parts(u32::from_le_bytes(self.array()), 0)
    }

    /// A piece with one byte of length before it; shorter at the end. `None` when nothing is left.
    pub fn piece(&mut self) -> Option<&'a [u8]> {
        let (len, rest) = self.0.split_first()?;
        let (piece, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        self.0 = rest;
        Some(piece)
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let (taken, rest) = self.0.split_at(N.min(self.0.len()));
        array[..taken.len()].copy_from_slice(taken);
        self.0 = rest;
        array
    }
}

/// Calls `each` with consecutive pieces of `bytes`, cut where `cuts` says: pseudo-random lengths of 1 to 40 bytes.
pub fn pieces(bytes: &[u8], mut cuts: u64) -> impl Iterator<Item = &[u8]> {
    let mut left = bytes;
    std::iter::from_fn(move || {
        if left.is_empty() {
            return None;
        }
        cuts = cuts.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let long = (cuts >> 60) == 0;
        let len = 1 + (cuts >> 33) as usize % if long { 40 } else { 5 };
        let (piece, rest) = left.split_at(len.min(left.len()));
        left = rest;
        Some(piece)
    })
}
