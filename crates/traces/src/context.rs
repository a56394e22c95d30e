//! The trace that a client's statement belongs to: `traceparent`, in a query attribute or a comment.
//!
//! Both come from a client, so they are read strictly: a value that breaks the W3C's Trace Context is none.

use std::fmt::Write as _;
use std::ops::Range;

/// A trace's id; never all zeros.
pub type TraceId = [u8; 16];

/// The span that a statement belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The same for all spans of the trace.
    pub trace_id: TraceId,
    /// The span of the client that sent the statement.
    pub span_id: [u8; 8],
    /// Whether the client says that the trace is kept.
    pub is_sampled: bool,
}

/// A version 00 has so many bytes; later ones begin with as many.
const LENGTH: usize = 55;

impl Parent {
    /// Reads `00-<32 digits>-<16 digits>-<2 digits>`. A later version may have more behind another `-`.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (fixed, rest) = text.split_at_checked(LENGTH)?;
        let version: [u8; 1] = hex(fixed.get(..2)?)?;
        let is_whole = match version {
            [0] => rest.is_empty(),
            [0xff] => false,
            _ => rest.is_empty() || rest.starts_with(b"-"),
        };
        let dashes = [2, 35, 52].iter().all(|at| fixed.get(*at) == Some(&b'-'));
        let trace_id: TraceId = hex(fixed.get(3..35)?)?;
        let span_id: [u8; 8] = hex(fixed.get(36..52)?)?;
        let [flags] = hex::<1>(fixed.get(53..)?)?;
        let is_valid = is_whole && dashes && trace_id != [0; 16] && span_id != [0; 8];
        is_valid.then_some(Self { trace_id, span_id, is_sampled: flags & 1 != 0 })
    }

    /// Of a comment as sqlcommenter makes it, at the end of a statement or before it: `/*traceparent='00-...-01'*/`, among other pairs.
    pub fn of_comment(sql: &[u8]) -> Option<Self> {
        let of = |place: Option<Range<usize>>| sql.get(place?).and_then(Self::of_pairs);
        of(last_comment(sql)).or_else(|| of(first_comment(sql)))
    }

    /// The same, and the statement without it: the rest of the comment stays, and an empty comment is removed. None if it cannot be
    /// removed: from a comment that is code or a hint, or if the statement is only a comment.
    ///
    /// `is_outside` says whether the text behind this beginning is in no comment or string: `/* a /*traceparent='...'*/` is one comment.
    pub fn lift(sql: &[u8], is_outside: impl Fn(&[u8]) -> bool) -> Option<(Self, Vec<u8>)> {
        let of = |place: Option<Range<usize>>| {
            let place = place?;
            Some((sql.get(place.clone()).and_then(Self::of_pairs)?, place))
        };
        let (parent, place) = of(last_comment(sql)).or_else(|| of(first_comment(sql)))?;
        let (before, inner, after) = (sql.get(..place.start - 2)?, sql.get(place.clone())?, sql.get(place.end + 2..)?);
        if ["!", "M!", "+"].iter().any(|code| inner.starts_with(code.as_bytes())) || !is_outside(before) {
            return None;
        }
        let is_of_trace = |pair: &&[u8]| pair.trim_ascii().starts_with(b"traceparent='") || pair.trim_ascii().starts_with(b"tracestate='");
        let rest: Vec<&[u8]> = inner.split(|byte| *byte == b',').filter(|pair| !is_of_trace(pair)).collect();
        let text = match rest.iter().all(|pair| pair.trim_ascii().is_empty()) {
            false => [before, b"/*", &rest.join(&b','), b"*/", after].concat(),
            true if after.trim_ascii().is_empty() => before.trim_ascii_end().to_vec(),
            true => [before, after].concat().trim_ascii_start().to_vec(),
        };
        (!text.trim_ascii().is_empty()).then_some((parent, text))
    }

    /// Whether a statement could have such a comment: cheap, and true for none without a comment at its end or beginning.
    pub fn may_be_in(sql: &[u8]) -> bool {
        sql.trim_ascii_start().starts_with(b"/*") || without_end(sql).ends_with(b"*/")
    }

    fn of_pairs(comment: &[u8]) -> Option<Self> {
        let pairs = comment.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        let quoted = pairs.filter_map(|pair| pair.strip_prefix(b"traceparent='")).find_map(|value| value.strip_suffix(b"'"));
        Self::parse(quoted?)
    }
}

/// The comment that ends a statement, without its marks. Comments do not nest.
fn last_comment(sql: &[u8]) -> Option<Range<usize>> {
    let inner = without_end(sql).strip_suffix(b"*/")?;
    let at = inner.windows(2).rposition(|two| two == b"/*")?;
    Some(at + 2..inner.len())
}

/// Without blanks and a semicolon at the end.
fn without_end(sql: &[u8]) -> &[u8] {
    let sql = sql.trim_ascii_end();
    sql.strip_suffix(b";").unwrap_or(sql).trim_ascii_end()
}

/// The comment that a statement begins with.
fn first_comment(sql: &[u8]) -> Option<Range<usize>> {
    let inner = sql.trim_ascii_start().strip_prefix(b"/*")?;
    let (begin, length) = (sql.len() - inner.len(), inner.windows(2).position(|two| two == b"*/")?);
    Some(begin..begin + length)
}

/// Digits of base 16, in small letters as the standard wants them.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = value(*high)? << 4 | value(*low)?;
    }
    Some(bytes)
}

/// An id as logs and other programs write it.
pub fn shown(id: &[u8]) -> String {
    id.iter().fold(String::with_capacity(2 * id.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_parent_is_read_and_shown() {
        let parent = Parent::parse(GOOD.as_bytes()).unwrap();
        assert_eq!(shown(&parent.trace_id), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(shown(&parent.span_id), "b7ad6b7169203331");
        assert!(parent.is_sampled);
        assert!(!Parent::parse(GOOD.replace("-01", "-00").as_bytes()).unwrap().is_sampled);
        assert!(Parent::parse(GOOD.replace("-01", "-03").as_bytes()).unwrap().is_sampled, "other flags are no matter");
        assert!(Parent::parse(format!("cc{}", &GOOD[2..]).as_bytes()).is_some(), "a later version");
        assert!(Parent::parse(format!("cc{}-more", &GOOD[2..]).as_bytes()).is_some());
    }

    #[test]
    fn what_is_not_exactly_one_is_none() {
        let bad = [
            String::new(),
            GOOD[..54].to_owned(),
            format!("{GOOD}-more"),
            format!("{GOOD} "),
            format!("ff{}", &GOOD[2..]),
            format!("cc{}more", &GOOD[2..]),
            GOOD.to_uppercase(),
            GOOD.replace('-', "_"),
            GOOD.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            GOOD.replace("b7ad6b7169203331", &"0".repeat(16)),
            GOOD.replace('7', "g"),
        ];
        for text in bad {
            assert_eq!(Parent::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn comments_are_read_where_sqlcommenter_puts_them() {
        let is_found = |sql: String| Parent::of_comment(sql.as_bytes()).is_some();
        assert!(is_found(format!("SELECT 1 /*traceparent='{GOOD}'*/")));
        assert!(is_found(format!("SELECT 1 /*action='run+this%2A',traceparent='{GOOD}',tracestate='a%3D1'*/ ; ")));
        assert!(is_found(format!("SELECT /* first */ 1 /*db_driver='x', traceparent='{GOOD}'*/")));
        assert!(is_found(format!("/*traceparent='{GOOD}'*/ SELECT 1")));
        assert!(!is_found(format!("SELECT '/*traceparent=''{GOOD}''*/'")), "a string");
        assert!(!is_found(format!("SELECT '/*traceparent='{GOOD}'*/' FROM t")), "in the middle");
        assert!(!is_found(format!("SELECT 1 /*xtraceparent='{GOOD}'*/")));
        assert!(!is_found(format!("SELECT 1 /*traceparent='{GOOD}*/")));
        assert!(!is_found(format!("SELECT 1 /*!traceparent='{GOOD}'*/")), "code, not a comment");
        assert!(!is_found("*/".to_owned()) && !is_found("/*/".to_owned()));
    }

    #[test]
    fn a_parent_is_lifted_out_and_the_rest_stays() {
        let lifted = |sql: &str| {
            let sql = sql.replace("TP", &format!("traceparent='{GOOD}'"));
            let found = Parent::lift(sql.as_bytes(), |before| !before.ends_with(b" a ")).map(|(_, text)| String::from_utf8(text).unwrap());
            assert!(found.is_none() || Parent::may_be_in(sql.as_bytes()) && Parent::of_comment(sql.as_bytes()).is_some());
            found
        };
        for (sql, rest) in [
            ("SELECT 1 /*TP*/", "SELECT 1"),
            ("SELECT 1/*TP*/;", "SELECT 1;"),
            ("/*TP*/ SELECT 1", "SELECT 1"),
            ("  /*TP*/SELECT 1", "SELECT 1"),
            ("SELECT 1 /*action='a%2Cb',TP,tracestate='x%3D1'*/", "SELECT 1 /*action='a%2Cb'*/"),
            ("SELECT 1 /*TP, route='r' */ ", "SELECT 1 /* route='r' */ "),
            ("SELECT /*+ hint */ 1 /* TP */", "SELECT /*+ hint */ 1"),
        ] {
            assert_eq!(lifted(sql).as_deref(), Some(rest), "{sql}");
        }
        for sql in
            ["SELECT 1", "/*TP*/", " /*TP*/ ; ", "SELECT 1 /*!, TP*/", "SELECT 1 /*M!,TP*/", "SELECT 1 /*+ a,TP*/", "SELECT '/*TP*/'"]
        {
            assert!(lifted(sql).is_none_or(|rest| rest.trim() == ";"), "{sql}");
        }
        assert_eq!(lifted("SELECT 1 /* a /*TP*/"), None);
    }

    proptest! {
        #[test]
        fn nothing_that_a_client_sends_is_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120), at in 0usize..60) {
            let _ = Parent::parse(&bytes);
            let _ = (Parent::of_comment(&bytes), Parent::lift(&bytes, |_| true), Parent::may_be_in(&bytes));
            let mut near = GOOD.as_bytes().to_vec();
            near.splice(at.min(near.len())..at.min(near.len()), bytes.iter().take(3).copied());
            let _ = Parent::parse(&near);
        }
    }
}
