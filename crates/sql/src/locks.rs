//! `GET_LOCK` and `RELEASE_LOCK` calls in a statement.

use crate::analyze::called_by_quoted_name;
use crate::cursor::{Cursor, lower, unquote_string};
use crate::keywords::Kw;
use crate::token::{LexMode, TokenKind};

/// A call of a user-level lock function. Names are in lower case, as the server ignores their case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockCall {
    /// `GET_LOCK(name, timeout)`; `None` when the name is not a literal.
    Get(Option<String>),
    /// `RELEASE_LOCK(name)`; `None` when the name is not a literal.
    Release(Option<String>),
    /// `RELEASE_ALL_LOCKS()`.
    ReleaseAll,
}

/// The lock calls of `sql`, in the order of the text.
pub fn lock_names(sql: &[u8], mode: LexMode) -> Vec<LockCall> {
    let mut calls = Vec::new();
    let mut cursor = Cursor::new(sql, mode);
    while !cursor.at_end() {
        let kw = if cursor.kind() == TokenKind::QuotedName { called_by_quoted_name(cursor.text()) } else { cursor.kw() };
        cursor.bump();
        if !matches!(kw, Kw::GetLock | Kw::ReleaseLock | Kw::ReleaseAllLocks) || !cursor.token().is(b'(') {
            continue;
        }
        cursor.bump();
        calls.push(match kw {
            Kw::GetLock => LockCall::Get(literal_argument(&cursor, mode)),
            Kw::ReleaseLock => LockCall::Release(literal_argument(&cursor, mode)),
            _ => LockCall::ReleaseAll,
        });
    }
    calls
}

fn literal_argument(cursor: &Cursor<'_>, mode: LexMode) -> Option<String> {
    if cursor.kind() != TokenKind::String {
        return None;
    }
    let mut after = cursor.clone();
    after.bump();
    let alone = after.token().is(b',') || after.token().is(b')');
    if alone { lower(&unquote_string(cursor.text(), mode)) } else { None }
}
