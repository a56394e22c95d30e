//! The digest that operators see: its text and hash, made once for each statement that the hot path tells apart.
//!
//! `sql::analyze` gives a key in one pass without building a text; a worker remembers which digest a key stands for.

use hashbrown::HashMap;
use model::MysqlVariables;
use sql::{Analysis, DigestOptions, Facts, Grouping, LexMode};
use std::borrow::Cow;
use std::sync::Arc;

/// A digest. Two with the same hash are the same.
#[derive(Debug, Eq)]
pub struct Digest {
    /// SpookyHash V2 of the whole normalised text.
    pub hash: u64,
    /// The beginning of that text: as much as is kept.
    pub text: Box<[u8]>,
    /// Bytes of the whole text.
    pub len: u64,
}

/// The digest of a statement for query rules, which read the whole text and not what is kept of it.
pub struct Judged<'a> {
    /// The digest, of whose text only the beginning is kept.
    pub digest: &'a Digest,
    /// How the whole text is made.
    pub rules: &'a DigestRules,
    /// The statement.
    pub sql: &'a [u8],
    /// How it is read.
    pub lex: LexMode,
}

impl Judged<'_> {
    /// What stands for the digest in memories: comments that it has are no part of the statement's own key.
    pub fn key(&self, analysis: &Analysis) -> u64 {
        if self.rules.keeps_comments() && analysis.facts.contains(Facts::COMMENT) { self.digest.hash } else { analysis.digest }
    }
}

impl routing::Digest for Judged<'_> {
    fn hash(&self) -> u64 {
        self.digest.hash
    }

    fn text(&self) -> Option<Cow<'_, [u8]>> {
        if self.digest.len == self.digest.text.len() as u64 {
            return Some(Cow::Borrowed(&self.digest.text));
        }
        (self.digest.len <= self.rules.max_match).then(|| Cow::Owned(self.rules.whole_text(self.sql, self.lex)))
    }
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
pub fn shown(hash: u64) -> String {
    format!("0x{hash:016X}")
}

/// How texts are made: the `mysql-query_digests_*` variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigestRules {
    options: DigestOptions,
    /// Bytes of a text that rules may read.
    max_match: u64,
}

impl DigestRules {
    /// As the variables say.
    pub fn from_variables(vars: &MysqlVariables) -> Self {
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let options = DigestOptions {
            grouping: Grouping { values: size(vars.query_digests_grouping_limit), rows: size(vars.query_digests_groups_grouping_limit) },
            lowercase: vars.query_digests_lowercase,
            replace_null: vars.query_digests_replace_null,
            no_digits: vars.query_digests_no_digits,
            keep_comment: vars.query_digests_keep_comment,
            max_query_length: size(vars.query_digests_max_digest_length),
            lex: LexMode::default(),
        };
        Self { options, max_match: vars.query_digests_max_match_length }
    }

    /// List limits, which [`sql::analyze_with`] must be given for its key to stand for one text.
    pub fn grouping(&self) -> Grouping {
        self.options.grouping
    }

    /// Comments are part of the text, but not of the hot path's key.
    pub(crate) fn keeps_comments(&self) -> bool {
        self.options.keep_comment
    }

    /// The digest of a statement; passwords in it are left out.
    pub fn digest(&self, sql: &[u8], lex: LexMode) -> Digest {
        // A digest keeps names, and a password may stand as one.
        let sql = &sql::without_named_passwords(sql, lex);
        let sql::Digested { hash, text, len } = sql::digest(sql, &DigestOptions { lex, ..self.options });
        Digest { hash, text: text.into(), len }
    }

    fn whole_text(&self, sql: &[u8], lex: LexMode) -> Vec<u8> {
        let sql = &sql::without_named_passwords(sql, lex);
        let mut text = Vec::new();
        sql::digest_text(sql, &DigestOptions { lex, max_query_length: usize::MAX, ..self.options }, &mut text);
        text
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
    fn the_setting_cuts_the_text_and_not_the_hash() {
        let mut vars = MysqlVariables { query_digests_max_digest_length: 16, ..Default::default() };
        let rules = DigestRules::from_variables(&vars);
        let digest = rules.digest(b"SELECT a, b, c FROM t WHERE x = 1", LexMode::default());
        assert_eq!(&*digest.text, b"SELECT a,b,c FRO");
        assert_eq!(digest.hash, sql::spooky_hash64(b"SELECT a,b,c FROM t WHERE x = ?", 0));
        vars.query_digests_lowercase = true;
        let lower = DigestRules::from_variables(&vars).digest(b"SELECT 1", LexMode::default());
        assert_eq!(&*lower.text, b"select ?");
    }

    #[test]
    fn comments_that_are_kept_are_part_of_the_key() {
        let key = |sql: &[u8], keeps: bool| {
            let rules = DigestRules::from_variables(&MysqlVariables { query_digests_keep_comment: keeps, ..Default::default() });
            let lex = LexMode::default();
            let digest = rules.digest(sql, lex);
            Judged { digest: &digest, rules: &rules, sql, lex }.key(&sql::analyze(sql, lex))
        };
        let (one, other): (&[u8], &[u8]) = (b"/* to_writer */ SELECT 1", b"/* to_reader */ SELECT 1");
        assert_eq!(key(one, false), key(other, false));
        assert_ne!(key(one, true), key(other, true));
        assert_eq!(key(b"SELECT 1", true), key(b"SELECT 1", false));
    }

    #[test]
    fn rules_read_the_whole_text_or_none() {
        let judged = |sql: &[u8], max_match: u64| {
            let vars =
                MysqlVariables { query_digests_max_digest_length: 16, query_digests_max_match_length: max_match, ..Default::default() };
            let rules = DigestRules::from_variables(&vars);
            let lex = LexMode::default();
            let digest = rules.digest(sql, lex);
            routing::Digest::text(&Judged { digest: &digest, rules: &rules, sql, lex }).map(|text| text.into_owned())
        };
        let sql = b"SELECT a, b, c FROM t WHERE x = 1";
        assert_eq!(judged(sql, 31).as_deref(), Some(&b"SELECT a,b,c FROM t WHERE x = ?"[..]));
        assert_eq!(judged(sql, 30), None);
        assert_eq!(judged(b"SELECT 1", 1).as_deref(), Some(&b"SELECT ?"[..]), "what is kept costs nothing");
    }

    #[test]
    fn a_text_is_made_once_and_memory_is_bounded() {
        let mut known = KnownDigests::default();
        let make = |n: u64| move || Digest { hash: n, text: vec![b'x'; 100].into(), len: 100 };
        let first = known.get_or_make(1, make(1));
        let again = known.get_or_make(1, || unreachable!("it is known"));
        assert!(Arc::ptr_eq(&first, &again));
        for n in 0..MAX_KNOWN as u64 * 2 {
            known.get_or_make(n, make(n));
            assert!(known.by_key.len() <= MAX_KNOWN);
        }
    }
}
