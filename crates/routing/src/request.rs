//! The facts about a statement that is to be routed.

use std::borrow::Cow;

/// The digest of a statement. It is asked for only when the statement's key was not seen before.
pub trait Digest {
    /// The hash that operators see.
    fn hash(&self) -> u64;
    /// The whole normalised text, or None if it is longer than rules may read. Never a part of it: the rest would pass every
    /// `match_digest`.
    fn text(&self) -> Option<Cow<'_, [u8]>>;
}

/// A digest that was made already.
#[derive(Debug, Clone, Copy)]
pub struct KnownDigest<'a> {
    /// The hash that operators see.
    pub hash: u64,
    /// The whole normalised text.
    pub text: &'a [u8],
}

impl Digest for KnownDigest<'_> {
    fn hash(&self) -> u64 {
        self.hash
    }

    fn text(&self) -> Option<Cow<'_, [u8]>> {
        Some(Cow::Borrowed(self.text))
    }
}

/// A statement and its sender.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The user, as he logged in.
    pub user: &'a [u8],
    /// The session's schema; empty for none.
    pub schema: &'a [u8],
    /// The client's address; `None` when it is not known, which only `%` matches.
    pub client_addr: Option<&'a str>,
    /// The listener's address.
    pub proxy_addr: &'a str,
    /// The listener's port; 0 for a socket.
    pub proxy_port: u16,
    /// Two statements with the same key have the same digest: `sql::Analysis::digest`, for one.
    pub digest_key: u64,
    /// The digest, made when it is asked for.
    pub digest: &'a dyn Digest,
    /// As the client sent it.
    pub text: &'a [u8],
    /// The first flag: the session's `next_query_flagIN`, else 0.
    pub flag_in: u32,
    /// The statement's first comment, if this user's comments are obeyed and the statement has one.
    pub comment: Option<&'a [u8]>,
}

/// The class of a statement, apart from its text: everything that rules can tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ClassKey {
    pub digest: u64,
    pub user: u32,
    pub schema: u32,
    pub client_addr: u32,
    pub proxy_addr: u32,
    pub proxy_port: u16,
    pub flag_in: u32,
}
