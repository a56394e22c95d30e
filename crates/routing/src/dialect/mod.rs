//! Two dialects of regular expressions, and their common part with the engine that runs in linear time.
//!
//! [`linear`] rewrites a pattern for the `regex` crate if it provably means the same there. It knows the meaning of each
//! construct in PCRE 8 and in RE2, and gives up at the first unknown one. It spells out its output (`$` of PCRE becomes
//! `(?:\n?\z)`, punctuation becomes `\xHH`), so other features of that crate do not matter.
//! [`pcre2`](fn@pcre2) mends the few constructs that PCRE2 reads differently than PCRE 8.
//!
//! Patterns work on bytes: letter case and `\w`, `\d`, `\s`, `\b` are ASCII's.
//! Sources: pcrepattern(3) of PCRE 8.45, pcre2compat(3), RE2's wiki page "Syntax".

mod class;
mod mend;

pub(crate) use mend::pcre2;

/// The dialect that rules are written in: `mysql-query_processor_regex`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Engine {
    /// 1: PCRE.
    #[default]
    Pcre,
    /// 2: RE2.
    Re2,
}

impl Engine {
    /// Reads the setting's number; anything but 2 is PCRE.
    pub fn from_setting(value: u64) -> Self {
        if value == 2 { Self::Re2 } else { Self::Pcre }
    }
}

/// A pattern for the `regex` crate without Unicode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Linear {
    pub regex: String,
    /// It begins with `(?i)`, which is left out of `regex`.
    pub caseless: bool,
}

/// Rewrites a pattern for the linear engine; the error says which construct stands in the way.
pub(crate) fn linear(pattern: &str, engine: Engine) -> Result<Linear, &'static str> {
    let mut scan = Scan { engine, text: pattern.as_bytes(), at: 0, out: String::new(), can_repeat: false, depth: 0, is_multi_line: false };
    let caseless = scan.leading_flags()?;
    while scan.at < scan.text.len() {
        scan.step()?;
    }
    Ok(Linear { regex: scan.out, caseless })
}

struct Scan<'a> {
    engine: Engine,
    text: &'a [u8],
    at: usize,
    out: String,
    /// The last part can be repeated.
    can_repeat: bool,
    /// Groups that are open.
    depth: usize,
    /// RE2's `(?m)` was met.
    is_multi_line: bool,
}

const UNKNOWN_ESCAPE: &str = "an escape that the dialect does not have";

impl Scan<'_> {
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    fn rest(&self) -> &[u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// `(?i)`, `(?s)` and `(?is)` at the very start; the first of them is the caller's to see to.
    fn leading_flags(&mut self) -> Result<bool, &'static str> {
        let (length, caseless, dot_all) = match self.rest() {
            [b'(', b'?', b'i', b')', ..] => (4, true, false),
            [b'(', b'?', b's', b')', ..] => (4, false, true),
            [b'(', b'?', b'i', b's', b')', ..] | [b'(', b'?', b's', b'i', b')', ..] => (5, true, true),
            _ => return Ok(false),
        };
        self.at += length;
        if dot_all {
            self.out.push_str("(?s)");
        }
        Ok(caseless)
    }

    fn step(&mut self) -> Result<(), &'static str> {
        let byte = self.text[self.at];
        match byte {
            b'\\' => return self.escape(),
            b'[' => return class::read(self),
            b'(' => return self.open(),
            b'*' | b'+' | b'?' => return self.repeat(1),
            b'{' => return self.braces(),
            b'$' => self.dollar()?,
            b')' => self.raw(")", true),
            b'|' => self.raw("|", false),
            b'^' => self.raw("^", false),
            b'.' => self.raw(".", true),
            _ => self.literal(byte)?,
        }
        if byte == b')' {
            self.depth = self.depth.saturating_sub(1);
        }
        self.at += 1;
        Ok(())
    }

    fn raw(&mut self, text: &str, can_repeat: bool) {
        self.out.push_str(text);
        self.can_repeat = can_repeat;
    }

    /// One byte that stands for itself.
    fn literal(&mut self, byte: u8) -> Result<(), &'static str> {
        if !byte.is_ascii() {
            return Err("letters beyond ASCII");
        }
        push_literal(&mut self.out, byte);
        self.can_repeat = true;
        Ok(())
    }

    fn escape(&mut self) -> Result<(), &'static str> {
        let escaped = self.peek(1).ok_or("'\\' at the end")?;
        self.at += 2;
        let is_re2 = self.engine == Engine::Re2;
        match escaped {
            b'd' | b'D' | b'w' | b'W' => self.raw(&format!("\\{}", char::from(escaped)), true),
            // RE2's \s has no vertical tab.
            b's' if is_re2 => self.raw("[\\t\\n\\f\\r ]", true),
            b'S' if is_re2 => self.raw("[^\\t\\n\\f\\r ]", true),
            b's' | b'S' => self.raw(&format!("\\{}", char::from(escaped)), true),
            b'b' | b'B' => self.raw(&format!("\\{}", char::from(escaped)), false),
            b'A' => self.raw("\\A", false),
            b'z' => self.raw("\\z", false),
            b'C' => self.raw("(?s:.)", true),
            b'Q' => return self.quoted(),
            b'E' if !is_re2 => {}
            b'v' if is_re2 => self.literal(0x0b)?,
            _ => {
                let byte = self.single_escape(escaped)?;
                return self.literal(byte);
            }
        }
        Ok(())
    }

    /// An escape that stands for one byte, in and out of classes; the position is after `escaped`.
    fn single_escape(&mut self, escaped: u8) -> Result<u8, &'static str> {
        match escaped {
            b'n' => Ok(b'\n'),
            b'r' => Ok(b'\r'),
            b't' => Ok(b'\t'),
            b'f' => Ok(0x0c),
            b'a' => Ok(0x07),
            b'x' => self.hex(),
            b'p' | b'P' => Err("Unicode properties"),
            b'0'..=b'9' => Err("back-references and octal escapes"),
            byte if byte.is_ascii() && !byte.is_ascii_alphanumeric() => Ok(byte),
            _ => Err(UNKNOWN_ESCAPE),
        }
    }

    fn hex(&mut self) -> Result<u8, &'static str> {
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(self.peek(0)), digit(self.peek(1))) else {
            return Err("\\x without two hex digits");
        };
        self.at += 2;
        let value = u8::try_from(high << 4 | low).unwrap_or(u8::MAX);
        if value.is_ascii() { Ok(value) } else { Err("bytes beyond ASCII") }
    }

    /// `\Q...\E`; what repeats after it repeats its last byte.
    fn quoted(&mut self) -> Result<(), &'static str> {
        while self.at < self.text.len() {
            if self.rest().starts_with(b"\\E") {
                self.at += 2;
                return Ok(());
            }
            self.literal(self.text[self.at])?;
            self.at += 1;
        }
        Ok(())
    }

    fn open(&mut self) -> Result<(), &'static str> {
        self.depth += 1;
        let (text, length) = match self.rest() {
            [b'(', b'*', ..] if self.engine == Engine::Pcre => return Err("verbs"),
            [b'(', b'?', b':', ..] => ("(?:".to_owned(), 3),
            [b'(', b'?', ..] if self.engine == Engine::Re2 => self.re2_group()?,
            [b'(', b'?', ..] => return Err("look-around, conditions, atomic groups or inner options"),
            _ => ("(".to_owned(), 1),
        };
        self.at += length;
        self.raw(&text, false);
        Ok(())
    }

    /// RE2's `(?P<name>`, `(?<name>`, `(?flags)` and `(?flags:`.
    fn re2_group(&mut self) -> Result<(String, usize), &'static str> {
        const UNKNOWN: &str = "look-around, conditions, atomic groups or unknown options";
        let inner = self.text.get(self.at + 2..).unwrap_or_default();
        let named = inner.strip_prefix(b"P<").or_else(|| inner.strip_prefix(b"<"));
        if let Some(name) = named {
            let end = name.iter().position(|byte| *byte == b'>').ok_or(UNKNOWN)?;
            let is_name = end > 0 && name[..end].iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
            // Nothing asks for the name.
            return if is_name { Ok(("(".to_owned(), self.text.len() - self.at - name.len() + end + 1)) } else { Err(UNKNOWN) };
        }
        let flags = inner.iter().take_while(|byte| b"imsU-".contains(byte)).count();
        let end = inner.get(flags).copied().filter(|byte| matches!(byte, b')' | b':')).ok_or(UNKNOWN)?;
        if flags == 0 {
            return Err(UNKNOWN);
        }
        self.is_multi_line |= inner[..flags].contains(&b'm');
        if end == b')' {
            self.depth -= 1;
        }
        let text = std::str::from_utf8(&inner[..=flags]).map_err(|_| UNKNOWN)?;
        Ok((format!("(?{text}"), flags + 3))
    }

    /// `*`, `+`, `?`, or braces of `length` bytes, and a `?` that makes it lazy.
    fn repeat(&mut self, length: usize) -> Result<(), &'static str> {
        if !self.can_repeat {
            return Err("a repetition of nothing");
        }
        let operator = self.rest().get(..length).unwrap_or_default();
        let operator = String::from_utf8_lossy(operator).into_owned();
        self.at += length;
        self.raw(&operator, false);
        match self.peek(0) {
            Some(b'?') => {
                self.at += 1;
                self.raw("?", false);
                Ok(())
            }
            Some(b'+') => Err("possessive repetitions"),
            _ => Ok(()),
        }
    }

    fn braces(&mut self) -> Result<(), &'static str> {
        match repetition(self.rest()) {
            Some(length) => self.repeat(length),
            None => {
                self.at += 1;
                self.literal(b'{')
            }
        }
    }

    /// PCRE's `$` also matches before a newline that ends the text. As nothing looks at how far a match reaches, the
    /// newline may be eaten where nothing else can follow.
    fn dollar(&mut self) -> Result<(), &'static str> {
        if self.engine == Engine::Re2 {
            self.raw(if self.is_multi_line { "$" } else { "\\z" }, false);
            return Ok(());
        }
        let after = self.text.get(self.at + 1..).unwrap_or_default();
        let ends = after.iter().all(|byte| *byte == b')') || (self.depth == 0 && after.first() == Some(&b'|'));
        if !ends {
            return Err("'$' before the end");
        }
        self.raw("(?:\\n?\\z)", false);
        Ok(())
    }
}

/// The length of `{n}`, `{n,}` or `{n,m}`; anything else stands for itself.
fn repetition(text: &[u8]) -> Option<usize> {
    let end = text.iter().position(|byte| *byte == b'}')?;
    let inner = text.get(1..end)?;
    let mut parts = inner.split(|byte| *byte == b',');
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    let first = parts.next().is_some_and(is_number);
    let second = parts.next().is_none_or(|part| part.is_empty() || is_number(part));
    (first && second && parts.next().is_none()).then_some(end + 1)
}

fn push_literal(out: &mut String, byte: u8) {
    if byte.is_ascii_alphanumeric() || matches!(byte, b' ' | b'_') {
        out.push(char::from(byte));
    } else {
        out.push_str(&format!("\\x{byte:02X}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_both_know() {
        let cases = [
            ("^SELECT.*FOR UPDATE$", "^SELECT.*FOR UPDATE(?:\\n?\\z)"),
            (r"^SELECT \* FROM `t`", r"^SELECT \x2A FROM \x60t\x60"),
            (r"a{2,3}b{,3}c{x}", r"a{2,3}b\x7B\x2C3\x7Dc\x7Bx\x7D"),
            (r"[]a-z[:digit:]\d^-]", r"[\x5Da-z[:digit:]\d\x5E\x2D]"),
            (r"\Qa.b\E+", r"a\x2Eb+"),
            ("(?i)(?:a|b)??", "(?:a|b)??"),
            ("a$|b", "a(?:\\n?\\z)|b"),
            ("(a$)", "(a(?:\\n?\\z))"),
        ];
        for (pattern, expected) in cases {
            assert_eq!(linear(pattern, Engine::Pcre).map(|linear| linear.regex), Ok(expected.to_owned()), "{pattern}");
        }
    }

    #[test]
    fn what_only_pcre_knows() {
        for pattern in [
            "a++", "(?=a)", "(?!a)", "(?<=a)b", r"(a)\1", "(?>a)", r"\Ka", r"(a$|b)c", "é", r"\h", "^*", "a{2}{3}", "(*UTF)a", "[a",
            r"[\b]",
        ] {
            assert!(linear(pattern, Engine::Pcre).is_err(), "{pattern}");
        }
    }
}
