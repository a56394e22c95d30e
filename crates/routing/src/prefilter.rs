//! Finds, with one search of a text, the few rules whose pattern can match it.

use aho_corasick::{AhoCorasick, MatchKind};
use std::collections::BTreeMap;

use crate::pattern::Pattern;

/// Literals of many patterns, and which rule each belongs to. Rules are named by their place.
#[derive(Debug, Default)]
pub(crate) struct Prefilter {
    searcher: Option<AhoCorasick>,
    /// The rules of each literal, in the searcher's order.
    owners: Vec<Vec<u32>>,
    /// Whether the rule at this place has literals, so that it can be passed over.
    is_filtered: Vec<bool>,
}

impl Prefilter {
    /// Takes the pattern of each rule that has one.
    pub(crate) fn new<'a>(patterns: impl Iterator<Item = Option<&'a Pattern>>) -> Self {
        let mut owners: BTreeMap<Vec<u8>, Vec<u32>> = BTreeMap::new();
        let mut is_filtered = Vec::new();
        for (place, pattern) in (0..).zip(patterns) {
            let literals = pattern.and_then(Pattern::required_literals);
            is_filtered.push(literals.is_some());
            for literal in literals.into_iter().flatten() {
                owners.entry(literal.clone()).or_default().push(place);
            }
        }
        let mut builder = AhoCorasick::builder();
        builder.ascii_case_insensitive(true).match_kind(MatchKind::Standard);
        match builder.build(owners.keys()) {
            Ok(searcher) if !owners.is_empty() => Self { searcher: Some(searcher), owners: owners.into_values().collect(), is_filtered },
            _ => Self { searcher: None, owners: Vec::new(), is_filtered: vec![false; is_filtered.len()] },
        }
    }

    /// Whether the rule may be passed over when [`Prefilter::candidates`] does not name it.
    pub(crate) fn is_filtered(&self, rule: u32) -> bool {
        usize::try_from(rule).ok().and_then(|place| self.is_filtered.get(place)).is_some_and(|is| *is)
    }

    /// The filtered rules whose pattern may match `text`, ascending, in place of what `out` holds.
    pub(crate) fn candidates(&self, text: &[u8], out: &mut Vec<u32>) {
        out.clear();
        let Some(searcher) = &self.searcher else {
            return;
        };
        let mut seen = vec![false; self.owners.len()];
        for found in searcher.find_overlapping_iter(text) {
            let literal = found.pattern().as_usize();
            if !std::mem::replace(&mut seen[literal], true) {
                out.extend_from_slice(&self.owners[literal]);
            }
        }
        out.sort_unstable();
        out.dedup();
    }
}
