//! The statement key: a 64-bit hash of the normalised token stream.
//!
//! It is made in the same pass that classifies the statement, and is the key of everything remembered per statement. Literals do not count.
//! Runs of literals in parentheses, and rows of such runs, are folded with the limits of [`Grouping`], as in the digest text.
//! INVARIANT: two statements with the same key have the same digest text under the same grouping (barring hash collisions). The reverse
//! does not hold: letter case, blanks that the digest text drops, and version comments may give several keys for one text.

use crate::digest::Grouping;

const MIX_A: u64 = 0x9E37_79B9_7F4A_7C15;
const MIX_B: u64 = 0xD6E8_FEB8_6659_FD93;

const TAG_VALUE: u64 = 1;
const TAG_COMMA: u64 = 2;
const TAG_OPEN: u64 = 3;
const TAG_CLOSE: u64 = 4;
const TAG_MORE_VALUES: u64 = 5;
const TAG_MORE_ROWS: u64 = 6;
const TAG_PUNCT: u64 = 0x100;
const TAG_WORD: u64 = 0x200;

/// The last token, as far as folding needs it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// A sign that follows is unary.
    Operator,
    Open,
    Comma,
    Value,
    /// A row that was folded: `(?,?,?,...)`.
    Row,
    Other,
}

/// A token that is hashed only when it turns out not to be folded away.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    Nothing,
    CommaAfterValue,
    CommaAfterRow,
}

#[derive(Clone)]
pub(crate) struct Key {
    hash: u64,
    grouping: Grouping,
    last: Last,
    held: Held,
    /// A unary sign and whether it was spaced; it is dropped in front of a value.
    sign: Option<(u8, bool)>,
    depth: u32,
    run: usize,
    foldable: bool,
    /// Only values and commas since the last `(`.
    pure: bool,
    in_chain: bool,
    rows: usize,
    /// The hash before the current row's leading comma.
    row_base: u64,
}

impl Key {
    #[inline]
    pub(crate) fn new(grouping: Grouping) -> Self {
        Key {
            hash: MIX_B,
            grouping,
            last: Last::Operator,
            held: Held::Nothing,
            sign: None,
            depth: 0,
            run: 0,
            foldable: false,
            pure: false,
            in_chain: false,
            rows: 0,
            row_base: 0,
        }
    }

    pub(crate) fn finish(mut self) -> u64 {
        self.flush();
        fold_multiply(self.hash, MIX_A)
    }

    #[inline]
    fn mix(&mut self, input: u64) {
        self.hash = fold_multiply(self.hash ^ input, MIX_A);
    }

    #[inline]
    fn flush(&mut self) {
        if self.held != Held::Nothing {
            self.held = Held::Nothing;
            self.mix(TAG_COMMA);
        }
        if let Some((sign, spaced)) = self.sign.take() {
            self.mix(TAG_PUNCT | u64::from(sign) | (u64::from(spaced) << 16));
        }
    }

    /// A literal or a placeholder.
    #[inline]
    pub(crate) fn value(&mut self, spaced: bool) {
        let spaced = self.sign.take().map_or(spaced, |(_, sign_spaced)| sign_spaced);
        if self.held == Held::CommaAfterValue {
            self.run += 1;
            let limit = self.grouping.values + 1;
            if self.run > limit {
                self.held = Held::Nothing;
                if self.run == limit + 1 {
                    self.mix(TAG_MORE_VALUES);
                }
                self.last = Last::Value;
                return;
            }
            self.flush();
            self.mix(TAG_VALUE);
        } else {
            self.flush();
            self.run = 1;
            self.foldable = self.depth > 0 && self.last != Last::Operator;
            let spaced = spaced && !matches!(self.last, Last::Open | Last::Comma);
            self.mix(TAG_VALUE | (u64::from(spaced) << 16));
        }
        self.last = Last::Value;
    }

    /// A word or a quoted name: its first eight bytes and the rest.
    #[inline]
    pub(crate) fn word(&mut self, head: u64, word: &[u8], spaced: bool, precedes_value: bool) {
        self.start_other();
        let tag = TAG_WORD | word.len() as u64 | (u64::from(spaced) << 40);
        self.hash = fold_multiply(self.hash ^ head, MIX_A ^ (tag << 16));
        if word.len() > 8 {
            self.tail(&word[8..]);
        }
        self.last = if precedes_value { Last::Operator } else { Last::Other };
    }

    #[inline]
    fn tail(&mut self, mut rest: &[u8]) {
        while let Some((chunk, more)) = rest.split_first_chunk::<8>() {
            self.hash = fold_multiply(self.hash ^ u64::from_le_bytes(*chunk), MIX_B);
            rest = more;
        }
        let last = rest.iter().rev().fold(0, |word, &byte| (word << 8) | u64::from(byte));
        self.hash = fold_multiply(self.hash ^ last, MIX_B);
    }

    /// Any single byte that has no method of its own.
    #[inline]
    pub(crate) fn punct(&mut self, byte: u8, spaced: bool) {
        match byte {
            b',' => self.comma(),
            b'(' => self.open(spaced),
            b')' => self.close(),
            b'+' | b'-' if matches!(self.last, Last::Operator | Last::Open | Last::Comma) => {
                if self.sign.is_some() {
                    self.start_other();
                    self.last = Last::Operator;
                }
                self.sign = Some((byte, spaced));
            }
            _ => {
                self.start_other();
                self.mix(TAG_PUNCT | u64::from(byte) | (u64::from(spaced) << 16));
                self.last = if is_operator(byte) { Last::Operator } else { Last::Other };
            }
        }
    }

    #[inline]
    fn start_other(&mut self) {
        self.flush();
        self.run = 0;
        self.pure = false;
    }

    #[inline]
    fn comma(&mut self) {
        match self.last {
            Last::Value if self.foldable => self.held = Held::CommaAfterValue,
            Last::Row => {
                self.row_base = self.hash;
                self.held = Held::CommaAfterRow;
            }
            last => {
                self.flush();
                self.mix(TAG_COMMA);
                self.run = 0;
                self.pure &= last == Last::Value;
            }
        }
        self.last = Last::Comma;
    }

    #[inline]
    fn open(&mut self, spaced: bool) {
        self.in_chain = self.held == Held::CommaAfterRow;
        let spaced = spaced && !matches!(self.last, Last::Open | Last::Comma);
        self.flush();
        if !self.in_chain {
            self.rows = 0;
        }
        self.mix(TAG_OPEN | (u64::from(spaced) << 16));
        self.depth = self.depth.saturating_add(1);
        self.run = 0;
        self.pure = true;
        self.last = Last::Open;
    }

    #[inline]
    fn close(&mut self) {
        let whole = self.held == Held::Nothing && self.sign.is_none() && self.last == Last::Value;
        self.flush();
        let folded_row = whole && self.pure && self.foldable && self.run > self.grouping.values + 1;
        self.mix(TAG_CLOSE);
        self.depth = self.depth.saturating_sub(1);
        self.pure = false;
        self.run = 0;
        self.last = Last::Other;
        if folded_row && self.grouping.rows > 0 {
            self.fold_row();
        }
    }

    #[inline]
    fn fold_row(&mut self) {
        self.last = Last::Row;
        self.rows = if self.in_chain { self.rows + 1 } else { 1 };
        if self.rows > self.grouping.rows {
            self.hash = self.row_base;
            if self.rows == self.grouping.rows + 1 {
                self.mix(TAG_MORE_ROWS);
            }
        }
    }
}

fn is_operator(byte: u8) -> bool {
    matches!(byte, b'=' | b'<' | b'>' | b'!' | b'+' | b'-' | b'*' | b'/' | b'%' | b'|' | b'&' | b'^' | b'~')
}

#[inline]
pub(crate) fn fold_multiply(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product as u64) ^ ((product >> 64) as u64)
}
