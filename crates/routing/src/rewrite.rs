//! A `replace_pattern`: text, and references `\0`..`\9` to groups of the match. `\\` is a backslash.
//!
//! Source: pcrecpp(3), "Replace"; RE2's `Rewrite` reads the same.

use std::ops::Range;

/// A replacement, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rewrite {
    parts: Vec<Part>,
    /// Every match is replaced, not only the first.
    global: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(Vec<u8>),
    Group(usize),
}

impl Rewrite {
    /// Reads a replacement for a pattern with so many groups.
    pub(crate) fn parse(text: &str, groups: usize, global: bool) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut plain = Vec::new();
        let mut bytes = text.bytes();
        while let Some(byte) = bytes.next() {
            match (byte, byte == b'\\') {
                (_, false) => plain.push(byte),
                _ => match bytes.next() {
                    Some(b'\\') => plain.push(b'\\'),
                    Some(digit) if digit.is_ascii_digit() => {
                        let group = usize::from(digit - b'0');
                        if group > groups {
                            return Err(format!("\\{group} names a group that the pattern does not have; it has {groups}"));
                        }
                        parts.push(Part::Text(std::mem::take(&mut plain)));
                        parts.push(Part::Group(group));
                    }
                    _ => return Err("'\\' must be followed by a digit or by '\\'".to_owned()),
                },
            }
        }
        parts.push(Part::Text(plain));
        Ok(Self { parts, global })
    }

    /// Begins to replace in `text`.
    pub(crate) fn begin<'a>(&'a self, text: &'a [u8]) -> Replacing<'a> {
        Replacing { rewrite: self, text, out: Vec::new(), copied: 0, met: false }
    }
}

/// A replacement under way.
pub(crate) struct Replacing<'a> {
    rewrite: &'a Rewrite,
    text: &'a [u8],
    out: Vec<u8>,
    copied: usize,
    met: bool,
}

impl Replacing<'_> {
    /// Takes one match, whose groups `group` gives; false when no more are wanted.
    pub(crate) fn take(&mut self, group: impl Fn(usize) -> Option<Range<usize>>) -> bool {
        let Some(whole) = group(0) else {
            return false;
        };
        self.met = true;
        self.out.extend_from_slice(self.text.get(self.copied..whole.start).unwrap_or_default());
        self.copied = whole.end;
        for part in &self.rewrite.parts {
            match part {
                Part::Text(text) => self.out.extend_from_slice(text),
                Part::Group(index) => {
                    let range = group(*index).unwrap_or(0..0);
                    self.out.extend_from_slice(self.text.get(range).unwrap_or_default());
                }
            }
        }
        self.rewrite.global
    }

    /// The new text, if anything was replaced.
    pub(crate) fn finish(mut self) -> Option<Vec<u8>> {
        self.out.extend_from_slice(self.text.get(self.copied..).unwrap_or_default());
        self.met.then_some(self.out)
    }
}
