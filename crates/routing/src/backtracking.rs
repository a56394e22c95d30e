//! A pattern for PCRE2, with a budget for the whole search.
//!
//! PCRE2 limits its steps for each place where a match may begin, so a text of `n` bytes may take `n` times that. Here a search takes
//! [`SEARCH_STEPS`] in all, or a few per byte: each beginning gets its share. A beginning that needs more is tried by itself with
//! [`STEPS_ALONE`] steps, the first one with [`STEPS_FIRST`]. A search with more than [`ALONE_MAX`] such beginnings is given up.
//! Steps and beginnings are counted, not time, so that a rule's effect does not depend on the machine's load.

use std::ops::Range;
use std::sync::OnceLock;

use pcre2::bytes::{CaptureLocations, Regex, RegexBuilder};

/// Steps of one search, at most, as long as no beginning needs more than its share; less than a millisecond.
const SEARCH_STEPS: usize = 1 << 19;
/// The least share of one beginning, steps.
const SHARE_MIN: usize = 64;
/// Texts up to these lengths (bytes) have a compiled form each, whose beginnings share the steps; longer ones the last.
const LENGTHS: [usize; 4] = [1 << 8, 1 << 11, 1 << 14, 1 << 17];
/// Steps of one beginning that needs more than its share.
const STEPS_ALONE: u32 = 100_000;
/// Steps of the first beginning of a search that needs more than its share: the only one of a pattern that begins with `^`.
const STEPS_FIRST: u32 = 1_000_000;
/// Beginnings of one search that may need more than their share.
const ALONE_MAX: u32 = 20;
/// Beginnings of one search that are tried one by one to find those; some milliseconds.
const WALK_MAX: u32 = 1 << 15;
/// Bytes of stack that PCRE2's JIT may use for one match.
const JIT_STACK: usize = 1 << 20;

/// The search was given up: too many steps, or too deep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LimitExceeded;

/// See the module.
#[derive(Debug)]
pub(crate) struct Backtracking {
    source: String,
    is_caseless: bool,
    groups: usize,
    searching: [OnceLock<Option<Regex>>; LENGTHS.len()],
    walking: [OnceLock<Option<Regex>>; LENGTHS.len()],
    alone: OnceLock<Option<Regex>>,
    first: OnceLock<Option<Regex>>,
}

/// The rest of a search's budget.
#[derive(Debug)]
struct Budget {
    is_begun: bool,
    alone: u32,
    walk: u32,
}

impl Backtracking {
    /// Checks a pattern; the error is for people.
    pub(crate) fn new(source: String, is_caseless: bool) -> Result<Self, String> {
        // Without the prefix of the compiled forms, so that offsets in the error are the operator's.
        let checked = RegexBuilder::new().caseless(is_caseless).build(&source).map_err(|error| error.to_string())?;
        let (searching, walking, alone, first) = Default::default();
        Ok(Self { source, is_caseless, groups: checked.captures_len() - 1, searching, walking, alone, first })
    }

    /// Whether it matches anywhere in `text`.
    pub(crate) fn is_match(&self, text: &[u8]) -> Result<bool, LimitExceeded> {
        let mut budget = Budget::default();
        self.search(text, 0, &mut budget, |regex, from| Ok(regex.find_at(text, from)?.map(drop))).map(|found| found.is_some())
    }

    /// Gives the groups of each match in turn, until `take` has enough.
    pub(crate) fn each_match(
        &self,
        text: &[u8],
        mut take: impl FnMut(&dyn Fn(usize) -> Option<Range<usize>>) -> bool,
    ) -> Result<(), LimitExceeded> {
        let mut budget = Budget::default();
        let (mut from, mut last_end) = (0, None);
        while from <= text.len() {
            let found = self.search(text, from, &mut budget, |regex, from| {
                let mut groups = regex.capture_locations();
                let found = regex.captures_read_at(&mut groups, text, from)?.map(|found| found.start()..found.end());
                Ok(found.map(|whole| (whole, groups)))
            })?;
            let Some((whole, groups)) = found else { return Ok(()) };
            // An empty match right behind another one does not count.
            let is_repeated = whole.is_empty() && last_end == Some(whole.end);
            from = if whole.is_empty() { whole.end + 1 } else { whole.end };
            if is_repeated {
                continue;
            }
            last_end = Some(whole.end);
            if !take(&|index| groups_range(&groups, index)) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Groups that a replacement may name, the whole match left out.
    pub(crate) fn groups(&self) -> usize {
        self.groups
    }

    /// The first match that begins at `from` or later.
    fn search<T>(
        &self,
        text: &[u8],
        mut from: usize,
        budget: &mut Budget,
        attempt: impl Fn(&Regex, usize) -> Result<Option<T>, pcre2::Error>,
    ) -> Result<Option<T>, LimitExceeded> {
        let class = LENGTHS.iter().position(|longest| text.len() <= *longest).unwrap_or(LENGTHS.len() - 1);
        let share = u32::try_from((SEARCH_STEPS / LENGTHS[class]).max(SHARE_MIN)).unwrap_or(u32::MAX);
        let Some(searching) = self.searching[class].get_or_init(|| self.build("", "", share)) else { return Ok(None) };
        loop {
            if let Ok(found) = attempt(searching, from) {
                return Ok(found);
            }
            // Some beginning from here on needs more than its share.
            let walking = self.walking[class].get_or_init(|| self.only_here(share)).as_ref().ok_or(LimitExceeded)?;
            while let Ok(found) = attempt(walking, from) {
                budget.walk = budget.walk.checked_sub(1).ok_or(LimitExceeded)?;
                if found.is_some() || from >= text.len() {
                    return Ok(found);
                }
                from += 1;
            }
            let alone = budget.next(self).ok_or(LimitExceeded)?;
            if let Some(found) = attempt(alone, from).map_err(|_| LimitExceeded)? {
                return Ok(Some(found));
            }
            from += 1;
            if from > text.len() {
                return Ok(None);
            }
        }
    }

    /// A form that matches only where a search begins. None for a pattern that cannot be held to that.
    fn only_here(&self, steps: u32) -> Option<Regex> {
        self.build(r"\G(?:", ")", steps)
    }

    fn build(&self, before: &str, behind: &str, steps: u32) -> Option<Regex> {
        // PCRE2 must not look ahead for the start of a match: PCRE2 10.45's JIT finds no `x?ord[ab]{0,2}` in "ord".
        let source = format!("(*NO_START_OPT)(*LIMIT_MATCH={steps}){before}{}{behind}", self.source);
        let mut builder = RegexBuilder::new();
        builder.caseless(self.is_caseless).jit_if_available(true).max_jit_stack_size(Some(JIT_STACK));
        builder.build(&source).ok()
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self { is_begun: false, alone: ALONE_MAX, walk: WALK_MAX }
    }
}

impl Budget {
    /// The form for a beginning that needs more than its share; None when there were too many.
    fn next<'a>(&mut self, pattern: &'a Backtracking) -> Option<&'a Regex> {
        self.alone = self.alone.checked_sub(1)?;
        if !std::mem::replace(&mut self.is_begun, true) {
            pattern.first.get_or_init(|| pattern.only_here(STEPS_FIRST)).as_ref()
        } else {
            pattern.alone.get_or_init(|| pattern.only_here(STEPS_ALONE)).as_ref()
        }
    }
}

fn groups_range(groups: &CaptureLocations, index: usize) -> Option<Range<usize>> {
    groups.get(index).map(|(start, end)| start..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pattern(source: &str) -> Backtracking {
        Backtracking::new(source.to_owned(), true).unwrap()
    }

    /// The detector of "1=1" that firewalls use, on a word of 4,000 letters and on a text of 64 KiB.
    #[test]
    fn a_search_that_explodes_is_given_up() {
        let detector = pattern(r"(\w+)\s*(\w*)\s*=\s*\1");
        assert_eq!(detector.is_match(&[b'a'; 4_000]), Err(LimitExceeded));
        assert_eq!(detector.is_match(&b"ab ".repeat(21_000)), Ok(false));
        assert_eq!(detector.is_match(b"SELECT * FROM t WHERE 1 = 1"), Ok(true));
        let told = detector.each_match(&[b'a'; 4_000], |_| true);
        assert_eq!(told, Err(LimitExceeded));
    }

    /// A search with few beginnings is no explosion, if each takes linear time.
    #[test]
    fn long_statements_are_searched() {
        let long = [b"INSERT INTO t VALUES(".to_vec(), b"'some text', ".repeat(20_000), b"1)".to_vec()].concat();
        assert_eq!(pattern("^(?!.*secret)INSERT").is_match(&long), Ok(true));
        assert_eq!(pattern("^(?!.*text)INSERT").is_match(&long), Ok(false));
        assert_eq!(pattern("(?<=, )1\\)$").is_match(&long), Ok(true));
        let heavy_in_the_midst = [b"x ".repeat(400), vec![b'a'; 600], b" = 1 or 2=2".to_vec()].concat();
        assert_eq!(pattern(r"(\d+)\s*=\s*\1").is_match(&heavy_in_the_midst), Ok(true));
    }

    #[test]
    fn each_match_is_given_once() {
        let spans = |source: &str, text: &str| {
            let mut spans = Vec::new();
            let take = |group: &dyn Fn(usize) -> Option<Range<usize>>| {
                spans.extend(group(0));
                true
            };
            pattern(source).each_match(text.as_bytes(), take).unwrap();
            spans
        };
        assert_eq!(spans("a*", "baac"), [0..0, 1..3, 4..4]);
        assert_eq!(spans("(?=b)|a", "aba"), [0..1, 2..3]);
        assert_eq!(spans("x", "axbx"), [1..2, 3..4]);
    }

    proptest! {
        /// It finds what PCRE2 finds by itself.
        #[test]
        fn budgets_change_no_answer(text in "[ab1= ]{0,60}", choice in 0..5_usize) {
            let source = [r"(\w+)\s*=\s*\1", r"(a+)+b", r"(?<=a)b", r"\b(\w)\1", "(?:a|b)*="][choice];
            let plain = RegexBuilder::new().caseless(true).build(source).unwrap();
            prop_assert_eq!(pattern(source).is_match(text.as_bytes()), Ok(plain.is_match(text.as_bytes()).unwrap()));
            let mut spans = Vec::new();
            pattern(source).each_match(text.as_bytes(), |group| { spans.extend(group(0)); true }).unwrap();
            let expected: Vec<_> = plain.find_iter(text.as_bytes()).map(|found| found.unwrap()).map(|m| m.start()..m.end()).collect();
            prop_assert_eq!(spans, expected);
        }
    }
}
