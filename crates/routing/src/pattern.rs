//! One regular expression: checked when a rule is compiled, built when it is first needed.
//!
//! Building thousands of automata would make LOAD slow, and cost memory for rules that never see traffic. So only patterns that can fail
//! are built at once. Patterns run on the linear engine if they mean the same there, else on PCRE2 with JIT. A search of PCRE2's is given
//! up after so many steps ([`Backtracking`]): that counts as no match, and is counted.

use std::sync::OnceLock;

use crate::backtracking::Backtracking;
pub(crate) use crate::backtracking::LimitExceeded;
use crate::dialect::{self, Engine};
use crate::literals;
use crate::rewrite::Rewrite;

/// Patterns beyond this many bytes are built at once, as are those with counted repetitions: they may be too large.
const EAGER_LEN: usize = 512;

/// The rule's use of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// It asks whether there is one.
    Test,
    /// It replaces it, so how far it reaches matters.
    Replace,
}

/// A checked pattern.
#[derive(Debug)]
pub(crate) struct Pattern {
    engine: Runs,
    /// See [`literals::required`].
    literals: Option<Vec<Vec<u8>>>,
}

/// The engine of a pattern.
#[derive(Debug)]
enum Runs {
    /// It was checked, so that it cannot be built is not expected: then it never matches.
    Linear {
        source: String,
        is_caseless: bool,
        built: OnceLock<Option<Box<regex::bytes::Regex>>>,
    },
    Pcre2(Box<Backtracking>),
}

impl Pattern {
    /// Checks a pattern; the error is for people.
    pub(crate) fn new(text: &str, caseless: bool, engine: Engine, used: Use) -> Result<Self, String> {
        let linear = match (engine, used) {
            (Engine::Pcre, Use::Replace) => Err("how far a match reaches"),
            _ => dialect::linear(text, engine),
        };
        match (linear, engine) {
            (Ok(linear), Engine::Pcre) => Self::linear(linear, caseless).or_else(|_| Self::pcre2(text, caseless)),
            (Ok(linear), Engine::Re2) => Self::linear(linear, caseless),
            (Err(_), Engine::Pcre) => Self::pcre2(text, caseless),
            (Err(reason), Engine::Re2) => Err(format!("RE2 does not support {reason}, or not here")),
        }
    }

    fn linear(linear: dialect::Linear, caseless: bool) -> Result<Self, String> {
        let mut parser = regex_syntax::ParserBuilder::new().unicode(false).utf8(false).build();
        let parsed = parser.parse(&linear.regex).map_err(|error| one_line(&error.to_string()))?;
        let literals = literals::required(&parsed);
        let is_caseless = caseless || linear.caseless;
        let is_large = linear.regex.contains('{') || linear.regex.len() > EAGER_LEN;
        let built = if is_large {
            OnceLock::from(Some(build(&linear.regex, is_caseless).map_err(|error| one_line(&error.to_string()))?))
        } else {
            OnceLock::new()
        };
        Ok(Self { engine: Runs::Linear { source: linear.regex, is_caseless, built }, literals })
    }

    fn pcre2(text: &str, caseless: bool) -> Result<Self, String> {
        Ok(Self { engine: Runs::Pcre2(Box::new(Backtracking::new(dialect::pcre2(text), caseless)?)), literals: None })
    }

    /// Whether it matches anywhere in `text`.
    pub(crate) fn is_match(&self, text: &[u8]) -> Result<bool, LimitExceeded> {
        match &self.engine {
            Runs::Linear { .. } => Ok(self.linear_built().is_some_and(|regex| regex.is_match(text))),
            Runs::Pcre2(pattern) => pattern.is_match(text),
        }
    }

    fn linear_built(&self) -> Option<&regex::bytes::Regex> {
        let Runs::Linear { source, is_caseless, built } = &self.engine else { return None };
        built.get_or_init(|| build(source, *is_caseless).ok()).as_deref()
    }

    /// `text` with the match replaced; `None` when there is none.
    pub(crate) fn replace(&self, text: &[u8], rewrite: &Rewrite) -> Result<Option<Vec<u8>>, LimitExceeded> {
        let mut replacing = rewrite.begin(text);
        match &self.engine {
            Runs::Linear { .. } => {
                for captures in self.linear_built().into_iter().flat_map(|regex| regex.captures_iter(text)) {
                    let group = |index: usize| captures.get(index).map(|group| group.range());
                    if !replacing.take(group) {
                        break;
                    }
                }
            }
            Runs::Pcre2(pattern) => pattern.each_match(text, |group| replacing.take(group))?,
        }
        Ok(replacing.finish())
    }

    /// Groups that a replacement may name, the whole match left out.
    pub(crate) fn groups(&self) -> usize {
        match &self.engine {
            Runs::Linear { .. } => self.linear_built().map_or(0, |regex| regex.captures_len() - 1),
            Runs::Pcre2(pattern) => pattern.groups(),
        }
    }

    /// See [`literals::required`]; `None` for patterns of PCRE2.
    pub(crate) fn required_literals(&self) -> Option<&[Vec<u8>]> {
        self.literals.as_deref()
    }

    #[cfg(test)]
    fn engine_name(&self) -> &'static str {
        match self.engine {
            Runs::Linear { .. } => "linear",
            Runs::Pcre2(_) => "PCRE2",
        }
    }
}

fn build(source: &str, is_caseless: bool) -> Result<Box<regex::bytes::Regex>, regex::Error> {
    regex::bytes::RegexBuilder::new(source).unicode(false).case_insensitive(is_caseless).build().map(Box::new)
}

/// The crate draws arrows under the pattern; errors here are one line.
fn one_line(text: &str) -> String {
    text.lines().last().unwrap_or_default().trim().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::ProptestConfig;

    fn matches(engine: Engine, pattern: &str, text: &[u8]) -> bool {
        Pattern::new(pattern, true, engine, Use::Test).unwrap().is_match(text).unwrap()
    }

    #[test]
    fn patterns_keep_their_meaning() {
        use Engine::{Pcre, Re2};
        let cases: [(Engine, &str, &[u8], bool); 22] = [
            (Pcre, "^SELECT.*FOR UPDATE$", b"select 1 for update", true),
            (Pcre, "UPDATE$", b"for update\n", true),
            (Pcre, "UPDATE$", b"for update\n\n", false),
            (Re2, "UPDATE$", b"for update\n", false),
            (Pcre, "a++b", b"aab", true),
            (Pcre, "a++ab", b"aaab", false),
            (Pcre, r"\Qa.b\E", b"xa.bx", true),
            (Pcre, r"\Qa.b\E", b"xaabx", false),
            (Pcre, "^(?!.*secret)SELECT", b"select a", true),
            (Pcre, "^(?!.*secret)SELECT", b"select secret", false),
            (Pcre, "(?<=x)y", b"xy", true),
            (Pcre, r"(\w+) \1", b"ab ab", true),
            (Pcre, "SELECT.x", b"select\nx", false),
            (Pcre, "(?s)SELECT.x", b"select\nx", true),
            (Pcre, "x.y", b"x\xffy", true),
            (Pcre, r"\d\s\w", b"1\x0ba", true),
            (Re2, r"\d\s\w", b"1\x0ba", false),
            (Pcre, "[[:alpha:]]+$", b"12ab", true),
            (Pcre, "a{,2}b", b"a{,2}b", true),
            (Pcre, "", b"", true),
            (Re2, r"\bfrom\b", b"a from b", true),
            (Pcre, "\u{e9}", "\u{e9}".as_bytes(), true),
        ];
        for (engine, pattern, text, expected) in cases {
            assert_eq!(matches(engine, pattern, text), expected, "{engine:?} {pattern} {}", text.escape_ascii());
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused() {
        for (engine, pattern) in
            [(Engine::Pcre, "("), (Engine::Pcre, "["), (Engine::Re2, "a++"), (Engine::Re2, "(?=a)"), (Engine::Re2, r"(a)\1")]
        {
            let error = Pattern::new(pattern, true, engine, Use::Test).unwrap_err();
            assert!(!error.is_empty() && !error.contains('\n'), "{pattern}: {error}");
        }
    }

    #[test]
    fn the_jit_compiler_misses_nothing() {
        for pattern in ["x?ord[ab]{0,2}", "x?ord[ab]{0,2}(?!z)", "{?orders [ab]{0,2}(?!z)"] {
            let pattern = Pattern::pcre2(pattern, false).unwrap();
            assert_eq!(pattern.is_match(b"an orders ord"), Ok(true));
        }
    }

    #[test]
    fn runaway_is_stopped() {
        let pattern = Pattern::new("^(a++|a+)+(?!b)$(?<!c)c", true, Engine::Pcre, Use::Test).unwrap();
        assert_eq!(pattern.engine_name(), "PCRE2");
        let text = vec![b'a'; 60];
        let pattern = Pattern::new(r"^(a+)+\1?$", true, Engine::Pcre, Use::Test).unwrap();
        let mut text = text;
        text.push(b'!');
        assert_eq!(pattern.is_match(&text), Err(LimitExceeded));
    }

    /// Pieces of patterns, and of the texts that they may match.
    #[rustfmt::skip]
    const PIECES: &[&str] = &[
        "SELECT", "from", "orders ", "a", "b", "B", " ", "_", ".", "^", "$", "|", "(", ")", "(?:", "(?i)", "(?s)",
        "*", "+", "?", "??", "+?", "{2}", "{1,}", "{0,2}", "{,2}", "{", "}", "[ab]", "[^a]", "[]a]", "[a-", "-b]",
        "[[:alpha:]]", "[^[:space:]_]", "[", "]", "\\d", "\\w", "\\s", "\\S", "\\b", "\\B", "\\A", "\\z", "\\Q",
        "\\E", "\\.", "\\n", "\\x41", "\\\\", "-", "&&", "~~", "#", "/", "`", "'", ",", "1",
    ];
    #[rustfmt::skip]
    const TEXTS: &[&str] = &[
        "select", "FROM", "orders ", "a", "b", "B", "A", " ", "_", ".", "\n", "\r", "1", "\u{b}", "\u{e9}", "-", "{",
        "}", "[", "]", ",", "&", "~", "\\", "`",
    ];

    proptest::proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

        /// A pattern given to the linear engine means the same there as in PCRE.
        #[test]
        fn the_linear_engine_answers_as_pcre(
            pieces in proptest::collection::vec(proptest::sample::select(PIECES), 0..7),
            texts in proptest::collection::vec(proptest::collection::vec(proptest::sample::select(TEXTS), 0..6), 4),
            caseless in proptest::bool::ANY,
        ) {
            let pattern = pieces.concat();
            let Ok(linear) = dialect::linear(&pattern, Engine::Pcre) else {
                return Ok(());
            };
            let Ok(linear) = Pattern::linear(linear, caseless) else {
                return Ok(());
            };
            let pcre2 = Pattern::pcre2(&pattern, caseless);
            proptest::prop_assert!(pcre2.is_ok(), "PCRE refuses {pattern}: {pcre2:?}");
            let pcre2 = pcre2.unwrap();
            for text in texts {
                let text = text.concat();
                proptest::prop_assert_eq!(linear.is_match(text.as_bytes()), pcre2.is_match(text.as_bytes()), "{} on {:?}", pattern, text);
                let lower = text.to_ascii_lowercase().into_bytes();
                let has = |literal: &Vec<u8>| lower.windows(literal.len()).any(|window| window == literal);
                if let (Some(literals), Ok(true)) = (linear.required_literals(), linear.is_match(text.as_bytes())) {
                    proptest::prop_assert!(literals.iter().any(has), "{} needs {:?}", pattern, literals);
                }
            }
        }
    }

    #[test]
    fn both_engines_agree_on_what_both_know() {
        let texts: [&[u8]; 8] = [b"SELECT 1 FOR UPDATE", b"select a\n", b"a", b"", b"abab", b"x.y*z", b"\xff\xfe", b"1_a b"];
        for pattern in ["^SELECT", "a$", "(ab)+", r"x\.y\*", "[^a]", "^$", r"\w+\s\w", "[]a]", "a|b$", "(?i)SELECT", "[a-c]{2}"] {
            let linear = dialect::linear(pattern, Engine::Pcre).unwrap();
            for caseless in [true, false] {
                let linear = Pattern::linear(linear.clone(), caseless).unwrap();
                let pcre2 = Pattern::pcre2(pattern, caseless).unwrap();
                for text in texts {
                    assert_eq!(linear.is_match(text), pcre2.is_match(text), "{pattern} {}", text.escape_ascii());
                }
            }
        }
    }
}
