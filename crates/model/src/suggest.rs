//! "Did you mean": the nearest known name to one that was mistyped.

/// The nearest of `known` by edit distance (ASCII case ignored). None beyond 4 edits, or beyond a third of the name's length: then it is no
/// slip.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.len() / 3).clamp(1, 4);
    known
        .into_iter()
        .filter(|candidate| candidate.len().abs_diff(name.len()) <= limit)
        .map(|candidate| (distance(name.as_bytes(), candidate.as_bytes()), candidate))
        .filter(|(edits, _)| *edits <= limit)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// `; did you mean 'x'?`, or nothing.
pub(crate) fn hint(suggestion: &Option<impl AsRef<str>>) -> String {
    match suggestion {
        Some(name) => format!("; did you mean '{}'?", name.as_ref()),
        None => String::new(),
    }
}

/// How many letters must be replaced, added or taken away to make one word of the other; ASCII case does not count.
pub fn edits(left: &str, right: &str) -> usize {
    distance(left.as_bytes(), right.as_bytes())
}

/// Levenshtein distance over bytes, one row at a time.
fn distance(left: &[u8], right: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.iter().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(!a.eq_ignore_ascii_case(b));
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_slips_and_nothing_else() {
        let known = ["threads", "max_connections", "port"];
        assert_eq!(nearest("thread", known), Some("threads"));
        assert_eq!(nearest("MAX_CONECTIONS", known), Some("max_connections"));
        assert_eq!(nearest("prot", known), None);
        assert_eq!(nearest("porte", known), Some("port"));
        assert_eq!(nearest("zebra", known), None);
        assert_eq!(nearest("", known), None);
    }
}
