//! Cuts a configuration's text into parts. The text's own lines decide where, so that a changed row changes one part only.

use aws_lc_rs::digest::{SHA256, digest};

/// Least bytes of a part, except the last one.
const LEAST: usize = 4 << 10;
/// Most bytes of a part. etcd takes 1.5 MiB in one request, which base64 makes 1.1.
const MOST: usize = 512 << 10;
/// A line ends a part when this many low bits of its hash are 0: once in 512 lines.
const BITS: u64 = 9;

/// SHA-256 as text.
pub fn sum(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in digest(&SHA256, bytes).as_ref() {
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// The parts of a text, in order; together they are the text.
pub(crate) fn cut(text: &str) -> Vec<&[u8]> {
    let bytes = text.as_bytes();
    let (mut parts, mut begin, mut at) = (Vec::new(), 0, 0);
    while at < bytes.len() {
        let end = bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| at + length + 1);
        let is_cut = end - begin >= LEAST && hash(&bytes[at..end]) & ((1 << BITS) - 1) == 0;
        at = end;
        while at - begin > MOST {
            parts.push(&bytes[begin..begin + MOST]);
            begin += MOST;
        }
        if is_cut && at > begin {
            parts.push(&bytes[begin..at]);
            begin = at;
        }
    }
    if begin < bytes.len() {
        parts.push(&bytes[begin..]);
    }
    parts
}

/// FNV-1a, with its high bits folded into the low ones.
fn hash(line: &[u8]) -> u64 {
    let hash = line.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn rows(count: usize) -> Vec<String> {
        (0..count).map(|id| format!("    {{ rule_id={id}, active=1, match_digest=\"^SELECT {}\" }},\n", id * 7919)).collect()
    }

    #[test]
    fn a_changed_row_changes_one_part_or_two() {
        let mut lines = rows(10_000);
        let sums = |lines: &[String]| cut(&lines.concat()).into_iter().map(sum).collect::<BTreeSet<_>>();
        let before = sums(&lines);
        assert!(before.len() > 8, "{} parts", before.len());
        lines[5_000].push_str("    { rule_id=10001 },\n");
        lines.remove(4_000);
        assert!(sums(&lines).difference(&before).count() <= 3);
    }

    #[test]
    fn a_line_that_is_too_long_is_cut() {
        let text = "x".repeat(3 * MOST + 1);
        let lengths: Vec<usize> = cut(&text).iter().map(|part| part.len()).collect();
        assert_eq!(lengths, [MOST, MOST, MOST, 1]);
    }

    proptest! {
        #[test]
        fn parts_are_the_text(text in "([a-z]{0,400}\n){0,200}[a-z]{0,9}") {
            let parts = cut(&text);
            prop_assert_eq!(parts.concat(), text.as_bytes());
            prop_assert!(parts.iter().all(|part| !part.is_empty() && part.len() <= MOST));
        }
    }
}
