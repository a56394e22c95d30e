//! Remembers the analysis of a statement for all texts that differ from it only in numbers and strings.
//!
//! Applications send the same few hundred texts with other values. The *shape* of a text has each number as `0` and each string empty. One
//! pass makes it, which needs only the class of each byte. It gives up on everything that would need a lexer: comments, backslashes, double
//! quotes, variables. INVARIANT: a text and its shape have the same [`Analysis`], so that of the shape holds for the text. A shape is
//! compared whole, never by its hash alone.

use memchr::{memchr, memchr2};

use crate::analyze::{Analysis, analyze_with};
use crate::bytes::{HIGH_BITS, ONES, in_range, is_name};
use crate::digest::Grouping;
use crate::key::fold_multiply;
use crate::multibyte::MultiByte;
use crate::token::LexMode;

/// Longest text that has a shape, bytes.
const MAX_SHAPED: usize = 1024;

/// Shapes remembered, a power of two.
const SLOTS: usize = 2048;

/// Room for a shape, and for the last eight bytes of one to be read as a word.
type Room = [u8; MAX_SHAPED + 8];

/// The handling of a byte outside of strings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Nothing: it stands in the shape as it is.
    Plain,
    Digit,
    Quote,
    Backtick,
    Dot,
    Dash,
    /// A letter, unless characters have several bytes.
    High,
    /// More than this pass understands.
    Strange,
}

const CLASSES: [Class; 256] = {
    let mut table = [Class::Plain; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            b'0'..=b'9' => Class::Digit,
            b'\'' => Class::Quote,
            b'`' => Class::Backtick,
            b'.' => Class::Dot,
            b'-' => Class::Dash,
            0x80.. => Class::High,
            b'\t' | b'\n' | b'\r' => Class::Plain,
            ..b' ' | 0x7f | b'"' | b'#' | b'/' | b'@' | b'\\' => Class::Strange,
            _ => Class::Plain,
        };
        byte += 1;
    }
    table
};

/// Bytes between which digits are a number, and nothing else.
const fn is_apart(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b',' | b'=' | b'<' | b'>' | b'+' | b'-' | b'*' | b'%')
}

/// Writes the shape of `sql` and answers its length; `None` when the text would have to be read for it.
fn shape(sql: &[u8], mode: LexMode, room: &mut Room) -> Option<usize> {
    if sql.len() > MAX_SHAPED || mode.brackets {
        return None;
    }
    let is_plain = mode.multi_byte == MultiByte::Plain;
    let (mut at, mut len) = (0, 0);
    loop {
        // Most bytes ask for nothing: eight at a time.
        let word = word_at(sql, at);
        let plain = (asking(word).trailing_zeros() / 8) as usize;
        *room.get_mut(len..)?.first_chunk_mut()? = word.to_le_bytes();
        (at, len) = (at + plain, len + plain);
        if plain == 8 {
            continue;
        }
        let Some(&byte) = sql.get(at) else { return Some(len) };
        let last = len.checked_sub(1).and_then(|last| room.get(last)).copied();
        // The bytes that are taken from the text, and their replacement.
        let (taken, put) = match CLASSES[usize::from(byte)] {
            Class::Plain => (1, None),
            Class::Digit => {
                if begins_number(room.get(..len)?) {
                    number(sql.get(at..)?).map_or((1, None), |taken| (taken, Some(&b"0"[..])))
                } else {
                    (1, None)
                }
            }
            Class::Quote => (string(sql.get(at..)?, is_plain)?, Some(&b"''"[..])),
            Class::Backtick => {
                let name = sql.get(at + 1..)?;
                let name = name.get(..memchr(b'`', name)?)?;
                (is_plain || name.is_ascii()).then_some((name.len() + 2, None))?
            }
            Class::Dot => {
                let joins = last.is_some_and(|last| is_name(last) || last == b'`');
                let next = sql.get(at + 1).is_some_and(|next| next.is_ascii_alphabetic() || matches!(next, b'_' | b'`' | b'*'));
                (joins && next).then_some((1, None))?
            }
            Class::Dash => (sql.get(at + 1) != Some(&b'-')).then_some((1, None))?,
            Class::High => is_plain.then_some((1, None))?,
            Class::Strange => return None,
        };
        let put = put.unwrap_or(sql.get(at..at + taken)?);
        room.get_mut(len..len + put.len())?.copy_from_slice(put);
        (at, len) = (at + taken, len + put.len());
    }
}

/// Eight bytes from `at` on, in little endian order; zeros behind the end.
#[inline]
fn word_at(sql: &[u8], at: usize) -> u64 {
    let rest = sql.get(at..).unwrap_or_default();
    match (rest.first_chunk::<8>(), sql.last_chunk::<8>()) {
        (Some(word), _) => u64::from_le_bytes(*word),
        (None, Some(_)) if rest.is_empty() => 0,
        (None, Some(last)) => u64::from_le_bytes(*last) >> (8 * (8 - rest.len())),
        (None, None) => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// The high bit of each byte that may ask for something; those that do not, as a closer look shows, only cost time.
#[inline]
fn asking(word: u64) -> u64 {
    let low = word & !HIGH_BITS;
    let controls = !(low + (0x80 - 0x20) * ONES);
    let above = word | (low + ONES);
    // `@` and the backtick.
    let marks = in_range(low & !(0x20 * ONES), b'@', b'@') | in_range(low, b'\\', b'\\');
    (controls | above | marks | in_range(low, b'"', b'\'') | in_range(low, b'-', b'9')) & HIGH_BITS
}

/// Digits that follow this are a number of their own, and not the rest of `t1` or of `1e-5`.
fn begins_number(before: &[u8]) -> bool {
    match before {
        [.., b'e' | b'E', b'+' | b'-'] => false,
        [.., last] => is_apart(*last) || *last == b'(',
        [] => false,
    }
}

/// Length of the number at the front, when nothing can make anything else of it.
fn number(text: &[u8]) -> Option<usize> {
    let digits = |from: usize| text.get(from..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut end = digits(0);
    if text.get(end) == Some(&b'.') {
        let fraction = digits(end + 1);
        end += (fraction > 0).then_some(fraction + 1)?;
    }
    text.get(end).is_none_or(|&next| is_apart(next) || matches!(next, b')' | b';')).then_some(end)
}

/// Length of the string at the front, up to its first quote: of a doubled one the second half is taken for another string.
fn string(text: &[u8], is_plain: bool) -> Option<usize> {
    let rest = text.get(1..)?;
    let end = memchr2(b'\'', b'\\', rest)?;
    let content = rest.get(..end)?;
    (rest.get(end) == Some(&b'\'') && (is_plain || content.is_ascii())).then_some(end + 2)
}

/// A shape with its analysis.
struct Known {
    mode: LexMode,
    analysis: Analysis,
    shape: Box<[u8]>,
}

#[derive(Default)]
struct Slot {
    known: Option<Box<Known>>,
    /// Hash of the shape that was looked for here last, and was not known: one that comes once only takes no other's place.
    missed: u64,
}

/// The shapes that were seen more than once, as many as there is room for: at most 2,048 of at most 1 KiB each.
pub struct Shapes {
    slots: Box<[Slot]>,
    room: Box<Room>,
    grouping: Grouping,
}

impl Default for Shapes {
    fn default() -> Self {
        let slots = (0..SLOTS).map(|_| Slot::default()).collect();
        Self { slots, room: Box::new([0; MAX_SHAPED + 8]), grouping: Grouping::default() }
    }
}

impl Shapes {
    /// The same result as [`analyze_with`].
    pub fn analyze(&mut self, sql: &[u8], mode: LexMode, grouping: Grouping) -> Analysis {
        if grouping != self.grouping {
            *self = Self { grouping, ..Self::default() };
        }
        let Some(len) = shape(sql, mode, &mut self.room) else {
            return analyze_with(sql, mode, grouping);
        };
        let hash = hash(&mut self.room, len, mode);
        let shape = self.room.get(..len).unwrap_or_default();
        let slot = &mut self.slots[hash as usize % SLOTS];
        if let Some(known) = slot.known.as_deref().filter(|known| *known.shape == *shape && known.mode == mode) {
            return known.analysis;
        }
        let analysis = analyze_with(sql, mode, grouping);
        if slot.missed == hash {
            slot.known = Some(Box::new(Known { mode, analysis, shape: shape.into() }));
        }
        slot.missed = hash;
        analysis
    }
}

/// Of the first `len` bytes and the mode.
fn hash(room: &mut Room, len: usize, mode: LexMode) -> u64 {
    const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
    if let Some(end) = room.get_mut(len..).and_then(|rest| rest.first_chunk_mut::<8>()) {
        *end = [0; 8];
    }
    let flags = [mode.ansi_quotes, mode.no_backslash_escapes, mode.oracle, mode.ignore_space];
    let flags = flags.into_iter().fold(len as u64, |all, flag| all << 1 | u64::from(flag));
    let begin = flags << 16 | (mode.multi_byte as u64) << 8 | mode.builtins as u64;
    let words = room.get(..len.next_multiple_of(8)).unwrap_or_default().as_chunks::<8>().0;
    words.iter().fold(begin, |hash, word| fold_multiply(hash ^ u64::from_le_bytes(*word), MIX))
}

/// The shape of a text, for tests: its analysis is the text's.
pub fn shape_of(sql: &[u8], mode: LexMode) -> Option<Vec<u8>> {
    let mut room = [0; MAX_SHAPED + 8];
    let len = shape(sql, mode, &mut room)?;
    room.get(..len).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sql: &str) -> Option<String> {
        shape_of(sql.as_bytes(), LexMode::default()).map(|shape| String::from_utf8(shape).unwrap())
    }

    #[test]
    fn numbers_and_strings_are_left_out() {
        for (sql, shape) in [
            ("SELECT c FROM sbtest1 WHERE id=12345", "SELECT c FROM sbtest1 WHERE id=0"),
            ("SELECT `a 1`.b FROM t1 WHERE c IN (1, 22,333) AND d < -1.50", "SELECT `a 1`.b FROM t1 WHERE c IN (0, 0,0) AND d < -0"),
            ("INSERT INTO t VALUES ('it''s', 'x', '')", "INSERT INTO t VALUES ('''', '', '')"),
            ("SELECT 0x1F, 1e5, a1, 12a, x'12', 5", "SELECT 0x1F, 1e5, a1, 12a, x'', 0"),
            ("SELECT 1e-51, -51", "SELECT 1e-51, -0"),
            ("12", "12"),
            ("", ""),
        ] {
            assert_eq!(of(sql).as_deref(), Some(shape), "{sql}");
        }
    }

    #[test]
    fn whatever_asks_for_something_is_met() {
        for byte in 0..=u8::MAX {
            let met = asking(u64::from(byte) << 24) & 0x80 << 24 != 0;
            assert!(met || CLASSES[usize::from(byte)] == Class::Plain, "{byte:#x}");
        }
        let text = b"0123456789";
        for (from, to) in (0..=10).flat_map(|to| (0..=to).map(move |from| (from, to))) {
            let mut expected = [0; 8];
            let rest = &text[from..to];
            let taken = rest.len().min(8);
            expected[..taken].copy_from_slice(&rest[..taken]);
            assert_eq!(word_at(&text[..to], from).to_le_bytes(), expected, "{from}..{to}");
        }
    }

    #[test]
    fn what_needs_a_lexer_has_no_shape() {
        for sql in [
            "SELECT 1 -- 2",
            "SELECT 1 /* 2 */",
            "SELECT 1 # 2",
            "SELECT \"a\"",
            "SELECT 'a\\'b'",
            "SELECT 'a",
            "SELECT `a",
            "SELECT @a",
            "SELECT t. 5",
            "SELECT .5",
            "SELECT 5.",
            "SELECT\x0b5",
        ] {
            assert_eq!(of(sql), None, "{sql}");
        }
        assert_eq!(of(&"x".repeat(MAX_SHAPED + 1)), None);
        let sjis = LexMode { multi_byte: MultiByte::Sjis, ..LexMode::default() };
        assert_eq!(shape_of(b"SELECT '\x83\x5c'", sjis), None);
        assert_eq!(shape_of(b"SELECT 'a'", sjis).unwrap(), b"SELECT ''");
    }

    #[test]
    fn a_shape_is_known_from_the_second_time_on_and_for_its_mode_and_grouping() {
        let (mut shapes, mode, grouping) = (Shapes::default(), LexMode::default(), Grouping::default());
        let known = |shapes: &Shapes| shapes.slots.iter().filter(|slot| slot.known.is_some()).count();
        for (text, expected) in [("SELECT 1", 0), ("SELECT 23", 1), ("SELECT 456", 1)] {
            assert_eq!(shapes.analyze(text.as_bytes(), mode, grouping), analyze_with(text.as_bytes(), mode, grouping));
            assert_eq!(known(&shapes), expected, "{text}");
        }
        let oracle = LexMode { oracle: true, ..mode };
        for text in ["BEGIN SELECT 1; END", "BEGIN SELECT 22; END", "BEGIN SELECT 3; END"] {
            for mode in [mode, oracle] {
                assert_eq!(shapes.analyze(text.as_bytes(), mode, grouping), analyze_with(text.as_bytes(), mode, grouping), "{text}");
            }
        }
        let list = b"SELECT a FROM t WHERE b IN (1,2,3,4,5,6)";
        for values in [1, 1, 1, 2, 2, 2] {
            let grouping = Grouping { values, ..grouping };
            assert_eq!(shapes.analyze(list, mode, grouping), analyze_with(list, mode, grouping));
        }
        assert_eq!(known(&shapes), 1, "what was known for another grouping is forgotten");
    }

    #[test]
    fn shapes_are_bounded() {
        let mut shapes = Shapes::default();
        for n in 0..3 * SLOTS {
            for _ in 0..2 {
                shapes.analyze(format!("SELECT c{n}").as_bytes(), LexMode::default(), Grouping::default());
            }
        }
        let known = shapes.slots.iter().filter(|slot| slot.known.is_some()).count();
        assert!(known > SLOTS / 2, "{known}");
        assert_eq!(shapes.slots.len(), SLOTS);
    }
}
