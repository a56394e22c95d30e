//! Literals that a text must contain, in any letter case, for a pattern to match it.
//!
//! They let thousands of patterns be passed over with one search. A pattern without any, or with short ones only, is
//! always tried; that costs time, never a wrong answer.

use regex_syntax::hir::{Hir, HirKind};

/// Shorter literals occur everywhere.
const SHORTEST: usize = 3;
/// A pattern that may begin in more ways than this is always tried.
const MOST: usize = 16;

/// Literals in lower case of which every match contains at least one; `None` when nothing is certain.
pub(crate) fn required(parsed: &Hir) -> Option<Vec<Vec<u8>>> {
    of(parsed).filter(|literals| shortest(literals) >= SHORTEST)
}

fn of(hir: &Hir) -> Option<Vec<Vec<u8>>> {
    match hir.kind() {
        HirKind::Literal(literal) => Some(vec![literal.0.to_ascii_lowercase()]),
        HirKind::Capture(group) => of(&group.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => of(&repetition.sub),
        HirKind::Concat(parts) => parts.iter().filter_map(of).max_by_key(|literals| shortest(literals)),
        HirKind::Alternation(branches) => {
            let mut all: Vec<Vec<u8>> = Vec::new();
            for branch in branches {
                all.extend(of(branch)?);
            }
            (all.len() <= MOST).then_some(all)
        }
        HirKind::Empty | HirKind::Look(_) | HirKind::Class(_) | HirKind::Repetition(_) => None,
    }
}

fn shortest(literals: &[Vec<u8>]) -> usize {
    literals.iter().map(Vec::len).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_certain_one() {
        let cases: [(&str, Option<&[&str]>); 6] = [
            ("^SELECT .* FROM orders", Some(&[" from orders"])),
            ("^(?:INSERT|UPDATE)", Some(&["insert", "update"])),
            ("(?:abc)*de", None),
            ("(abc)+", Some(&["abc"])),
            ("abc|.", None),
            (".*", None),
        ];
        for (pattern, expected) in cases {
            let expected = expected.map(|words| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>());
            let parsed = regex_syntax::parse(pattern).unwrap();
            assert_eq!(required(&parsed), expected, "{pattern}");
        }
    }
}
