//! The digest that operators see: its text and hash, made once for each statement that the hot path tells apart.
//!
//! `sql::analyze` gives a key in one pass without building a text; a worker remembers which digest a key stands for.

use hashbrown::HashMap;
use model::MysqlVariables;
use sql::{DigestOptions, Grouping, LexMode};
use std::sync::Arc;

/// A digest. Two with the same hash are the same.
#[derive(Debug, Eq)]
pub(crate) struct Digest {
    /// SpookyHash V2 of the text's first `query_digests_max_digest_length` bytes.
    pub hash: u64,
    /// The normalised text, as long as is kept.
    pub text: Box<[u8]>,
}

impl PartialEq for Digest {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
    }
}

impl std::hash::Hash for Digest {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

/// A digest as every table and log writes it.
pub(crate) fn shown(hash: u64) -> String {
    format!("0x{hash:016X}")
}

/// How texts are made: the `mysql-query_digests_*` variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DigestRules {
    options: DigestOptions,
    /// Bytes of a text that are hashed and kept.
    max_text: usize,
}

impl DigestRules {
    /// As the variables say.
    pub(crate) fn from_variables(vars: &MysqlVariables) -> Self {
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let options = DigestOptions {
            grouping: Grouping { values: size(vars.query_digests_grouping_limit), rows: size(vars.query_digests_groups_grouping_limit) },
            lowercase: vars.query_digests_lowercase,
            replace_null: vars.query_digests_replace_null,
            no_digits: vars.query_digests_no_digits,
            keep_comment: vars.query_digests_keep_comment,
            max_query_length: size(vars.query_digests_max_query_length),
            lex: LexMode::default(),
        };
        Self { options, max_text: size(vars.query_digests_max_digest_length) }
    }

    /// List limits, which [`sql::analyze_with`] must be given for its key to stand for one text.
    pub(crate) fn grouping(&self) -> Grouping {
        self.options.grouping
    }

    /// Comments are part of the text, but not of the hot path's key.
    pub(crate) fn keeps_comments(&self) -> bool {
        self.options.keep_comment
    }

    /// The digest of a statement.
    pub(crate) fn digest(&self, sql: &[u8], lex: LexMode) -> Digest {
        let mut text = Vec::new();
        // A digest keeps names, and a password may stand as one.
        let sql = &sql::without_named_passwords(sql, lex);
        sql::digest_text(sql, &DigestOptions { lex, ..self.options }, &mut text);
        text.truncate(self.max_text);
        Digest { hash: sql::spooky_hash64(&text, 0), text: text.into() }
    }
}

/// Digests remembered by a worker.
const MAX_KNOWN: usize = 50_000;
/// Bytes of text that they may have.
const MAX_KNOWN_BYTES: usize = 32 << 20;

/// The digests that a worker has met, by the hot path's key. Forgotten all at once when there are too many.
#[derive(Default)]
pub(crate) struct KnownDigests {
    by_key: HashMap<u64, Arc<Digest>, foldhash::fast::RandomState>,
    bytes: usize,
}

impl KnownDigests {
    /// The digest of this key, if it was met.
    pub(crate) fn get(&self, key: u64) -> Option<&Arc<Digest>> {
        self.by_key.get(&key)
    }

    /// The digest of this key; `make` is called when it was not met yet.
    pub(crate) fn get_or_make(&mut self, key: u64, make: impl FnOnce() -> Digest) -> Arc<Digest> {
        if let Some(known) = self.by_key.get(&key) {
            return Arc::clone(known);
        }
        if self.by_key.len() >= MAX_KNOWN || self.bytes >= MAX_KNOWN_BYTES {
            self.clear();
        }
        let digest = Arc::new(make());
        self.bytes += digest.text.len();
        self.by_key.insert(key, Arc::clone(&digest));
        digest
    }

    /// Forgets all: texts are made otherwise from here on.
    pub(crate) fn clear(&mut self) {
        self.by_key.clear();
        self.bytes = 0;
    }

    /// Bytes that the texts take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.by_key.capacity() * size_of::<(u64, Arc<Digest>)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_hash_end_where_the_setting_says() {
        let mut vars = MysqlVariables { query_digests_max_digest_length: 16, ..Default::default() };
        let rules = DigestRules::from_variables(&vars);
        let digest = rules.digest(b"SELECT a, b, c FROM t WHERE x = 1", LexMode::default());
        assert_eq!(&*digest.text, b"SELECT a,b,c FRO");
        assert_eq!(digest.hash, sql::spooky_hash64(b"SELECT a,b,c FRO", 0));
        vars.query_digests_lowercase = true;
        let lower = DigestRules::from_variables(&vars).digest(b"SELECT 1", LexMode::default());
        assert_eq!(&*lower.text, b"select ?");
    }

    #[test]
    fn a_text_is_made_once_and_memory_is_bounded() {
        let mut known = KnownDigests::default();
        let make = |n: u64| move || Digest { hash: n, text: vec![b'x'; 100].into() };
        let first = known.get_or_make(1, make(1));
        let again = known.get_or_make(1, || unreachable!("it is known"));
        assert!(Arc::ptr_eq(&first, &again));
        for n in 0..MAX_KNOWN as u64 * 2 {
            known.get_or_make(n, make(n));
            assert!(known.by_key.len() <= MAX_KNOWN);
        }
    }
}
