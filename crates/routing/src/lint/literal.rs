//! Patterns for digests that need a number or a string: a digest has `?` there, so they never match.
//!
//! Reported only if it is certain: the pattern holds a text that every match has, and the digest of that text is another one.

use model::snapshot::QueryRule;
use model::{About, Remark};
use regex_syntax::hir::{Class, Hir, HirKind};
use sql::DigestOptions;

use super::remark;
use crate::dialect::{self, Engine};

/// A remark on the pattern of a rule's `match_digest`.
pub(super) fn in_digest(rule: &QueryRule, engine: Engine) -> Option<Remark> {
    let pattern = rule.match_digest.as_deref()?;
    let may_have_some = pattern.contains("\\d") || pattern.bytes().any(|byte| byte.is_ascii_digit() || is_quote(byte));
    let linear = dialect::linear(pattern, engine).ok().filter(|_| may_have_some)?;
    let parsed = regex_syntax::ParserBuilder::new().unicode(false).utf8(false).build().parse(&linear.regex).ok()?;
    let mut needed = Needed::default();
    needed.read(&parsed);
    let literal = needed.runs.iter().find_map(|run| literal(run))?;
    let then = if rule.negate_match_pattern { "it never matches, and being negated always holds" } else { "it never matches" };
    let text = format!(
        "matches '{}', but digests have ? in place of numbers and strings: {then}; write \\? there, or use match_pattern",
        String::from_utf8_lossy(literal).escape_debug()
    );
    Some(remark(rule.rule_id, "match_digest", About::Dead, text))
}

/// Texts that every match has, each in one piece. Classes of digits and blanks stand there as one of theirs.
#[derive(Default)]
struct Needed {
    runs: Vec<Vec<u8>>,
    /// The last run is over.
    is_cut: bool,
}

impl Needed {
    fn read(&mut self, hir: &Hir) {
        match hir.kind() {
            HirKind::Empty => {}
            HirKind::Literal(literal) => self.push(&literal.0),
            HirKind::Capture(group) => self.read(&group.sub),
            HirKind::Concat(parts) => parts.iter().for_each(|part| self.read(part)),
            HirKind::Class(class) => match stand_in(class) {
                Some(byte) => self.push(&[byte]),
                None => self.is_cut = true,
            },
            HirKind::Repetition(repetition) => match (repetition.sub.kind(), repetition.min) {
                // Blanks or none: the digest is the same.
                (HirKind::Class(class), 0) if stand_in(class) == Some(b' ') => {}
                (HirKind::Class(class), 1..) if stand_in(class).is_some() => self.read(&repetition.sub),
                _ => self.is_cut = true,
            },
            HirKind::Look(_) | HirKind::Alternation(_) => self.is_cut = true,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        match self.runs.last_mut().filter(|_| !self.is_cut) {
            Some(run) => run.extend_from_slice(bytes),
            None => self.runs.push(bytes.to_vec()),
        }
        self.is_cut = false;
    }
}

/// A byte that stands for a class of digits or of blanks.
fn stand_in(class: &Class) -> Option<u8> {
    let is_all = |is_one: fn(u8) -> bool| match class {
        Class::Bytes(class) => class.iter().all(|range| (range.start()..=range.end()).all(is_one)),
        Class::Unicode(class) => {
            class.iter().all(|range| (range.start()..=range.end()).all(|letter| u8::try_from(letter).is_ok_and(is_one)))
        }
    };
    match () {
        () if is_all(|byte| byte.is_ascii_digit()) => Some(b'1'),
        () if is_all(|byte| byte.is_ascii_whitespace() || byte == 0x0b) => Some(b' '),
        () => None,
    }
}

/// The number or string in a text, with the sign or word before it, that the text's digest does not have.
fn literal(run: &[u8]) -> Option<&[u8]> {
    // Within a quoted name or a comment anything may stand.
    if run.contains(&b'`') || run.windows(2).any(|pair| pair == b"/*" || pair == b"*/") {
        return None;
    }
    let mut digest = Vec::new();
    sql::digest_text(run, &DigestOptions::default(), &mut digest);
    let found = (1..run.len()).filter_map(|at| {
        let before = run[..at].iter().rposition(|byte| !byte.is_ascii_whitespace())?;
        let has_sign = matches!(run[before], b'=' | b'<' | b'>' | b'(' | b',');
        let is_apart = before + 1 < at;
        let end = match run[at] {
            byte if byte.is_ascii_digit() && (has_sign || is_apart) => at + number(&run[at..])?,
            byte if is_quote(byte) && has_sign => run.len().min(at + 2),
            _ => return None,
        };
        let word = || run[..before].iter().rposition(u8::is_ascii_whitespace).map_or(0, |blank| blank + 1);
        Some(&run[if has_sign { before } else { word() }..end])
    });
    // The digest of the whole text decides, because it knows the literals.
    let bare = |text: &[u8]| text.iter().filter(|byte| !byte.is_ascii_whitespace()).map(u8::to_ascii_lowercase).collect::<Vec<u8>>();
    let digest = bare(&digest);
    found.into_iter().find(|piece| {
        let piece = bare(piece);
        !digest.windows(piece.len()).any(|window| window == piece)
    })
}

/// The length of the number at the start of `text`; `None` when it goes on as a name.
fn number(text: &[u8]) -> Option<usize> {
    let length = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let is_name = text.get(length).is_some_and(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$' | 0x80..));
    (!is_name).then_some(length)
}

fn is_quote(byte: u8) -> bool {
    matches!(byte, b'\'' | b'"')
}
