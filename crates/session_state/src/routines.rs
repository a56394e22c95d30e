//! Data definitions that may have made another stored routine of one that was called before.

use sql::Routine;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Definitions that are remembered; what was called before the oldest one may be another routine by now.
const MOST: usize = 64;
/// Longest text that is remembered, bytes; a longer one may be of any routine.
const LONGEST: usize = 1024;

/// The latest definitions, by their texts.
#[derive(Debug, Default)]
pub struct Definitions {
    /// How many there were, modulo 2³². It changes while `texts` is locked.
    count: AtomicU32,
    /// The last of them; None may be of any routine.
    texts: Mutex<VecDeque<Option<Box<[u8]>>>>,
}

impl Definitions {
    fn texts(&self) -> MutexGuard<'_, VecDeque<Option<Box<[u8]>>>> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there were so far, modulo 2³².
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// A definition of routines, or of what holds them, was run; None for one whose text is not known.
    pub fn note(&self, text: Option<&[u8]>) {
        let mut texts = self.texts();
        if texts.len() == MOST {
            texts.pop_front();
        }
        // Servers compare names without accents.
        let is_told = |text: &&[u8]| text.len() <= LONGEST && text.is_ascii();
        texts.push_back(text.filter(is_told).map(Into::into));
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// May a routine that was called when there were `count` definitions be another one now, going by the names in their texts?
    pub fn may_have_changed(&self, routine: &Routine, count: u32) -> bool {
        if self.count() == count {
            return false;
        }
        let texts = self.texts();
        let later = self.count().wrapping_sub(count) as usize;
        if later > texts.len() {
            return true;
        }
        let is_of_schemas = |text: &[u8]| ["database", "schema"].into_iter().any(|word| has_word(text, word));
        let names_schema = |text: &[u8]| routine.schema.as_ref().is_none_or(|schema| has_word(text, schema));
        let names = |text: &[u8]| has_word(text, &routine.name) || is_of_schemas(text) && names_schema(text);
        texts.iter().rev().take(later).any(|text| text.as_ref().is_none_or(|text| names(text)))
    }
}

/// Is it in the text, as a word of its own or in a way that cannot be told?
pub fn has_word(text: &[u8], word: &str) -> bool {
    let in_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || !byte.is_ascii();
    if word.is_empty() || !word.bytes().all(in_word) {
        return true;
    }
    let is_word = |at: usize| {
        let before = at.checked_sub(1).and_then(|at| text.get(at)).copied();
        let after = text.get(at + word.len()).copied();
        !before.is_some_and(in_word) && !after.is_some_and(in_word)
    };
    let mut parts = text.windows(word.len()).enumerate();
    parts.any(|(at, part)| part.eq_ignore_ascii_case(word.as_bytes()) && is_word(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routine(schema: &str, name: &str) -> Routine {
        Routine { is_procedure: true, schema: Some(schema.into()), name: name.into() }
    }

    #[test]
    fn definitions_are_of_what_they_name() {
        let definitions = Definitions::default();
        definitions.note(Some(b"DROP PROCEDURE p"));
        let before = definitions.count();
        assert!(!definitions.may_have_changed(&routine("s", "p"), before), "it was defined before");
        for text in ["DROP DATABASE s_x", "create procedure s2.p2() select 1", "CREATE DATABASE `s$`"] {
            definitions.note(Some(text.as_bytes()));
        }
        assert!(!definitions.may_have_changed(&routine("s", "p"), before));
        for text in [
            "DROP DATABASE S",
            "CREATE OR REPLACE FUNCTION P() RETURNS INT RETURN 1",
            "ALTER PROCEDURE x.`p` COMMENT ''",
            "drop schema/**/`s`;",
        ] {
            let before = definitions.count();
            definitions.note(Some(text.as_bytes()));
            assert!(definitions.may_have_changed(&routine("s", "p"), before), "{text}");
        }
    }

    #[test]
    fn what_is_not_known_may_be_of_any() {
        let definitions = Definitions::default();
        let long = vec![b'x'; LONGEST + 1];
        for text in [None, Some(&long[..]), Some("DROP PROCEDURE \u{f1}".as_bytes())] {
            let before = definitions.count();
            definitions.note(text);
            assert!(definitions.may_have_changed(&routine("s", "p"), before));
            assert!(!definitions.may_have_changed(&routine("s", "p"), definitions.count()));
        }
        let before = definitions.count();
        for _ in 0..MOST {
            definitions.note(Some(b"DROP DATABASE other"));
        }
        assert!(!definitions.may_have_changed(&routine("s", "p"), before));
        assert!(definitions.may_have_changed(&routine("s", "a`b"), before), "quoted in another way");
        definitions.note(Some(b"DROP DATABASE other"));
        assert!(definitions.may_have_changed(&routine("s", "p"), before), "the oldest are forgotten");
    }
}
