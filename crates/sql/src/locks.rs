//! `GET_LOCK` and `RELEASE_LOCK` calls in a statement.

use crate::analyze::called_by_quoted_name;
use crate::cursor::{Cursor, lower, unquote_string};
use crate::keywords::Kw;
use crate::split::has_body;
use crate::token::{LexMode, TokenKind};

/// A call of a user-level lock function. Names are in lower case, as the server ignores their case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockCall {
    /// `GET_LOCK(name, timeout)`; `None` when the name is not a literal, or the call may run more than once.
    Get(Option<String>),
    /// `RELEASE_LOCK(name)`; `None` when the name is not a literal, or the call may not run (`RELEASE_ALL_LOCKS()` too).
    Release(Option<String>),
    /// `RELEASE_ALL_LOCKS()`.
    ReleaseAll,
}

/// Words of statements that run a call more than once, or not at all. They may be names too, which does no harm.
const UNSURE: [&[u8]; 17] = [
    b"from",
    b"where",
    b"having",
    b"limit",
    b"fetch",
    b"union",
    b"except",
    b"intersect",
    b"minus",
    b"values",
    b"table",
    b"with",
    b"group",
    b"order",
    b"into",
    b"procedure",
    b"benchmark",
];

/// The lock calls of one statement, in the order of the text. Those of a routine that it defines do not run.
pub fn lock_names(sql: &[u8], mode: LexMode) -> Vec<LockCall> {
    let mut calls = Vec::new();
    let mut cursor = Cursor::new(sql, mode);
    let verb = cursor.kw();
    if matches!(verb, Kw::Create | Kw::Alter) && has_body(sql, mode) {
        return calls;
    }
    let runs_once = matches!(verb, Kw::Select | Kw::Do | Kw::Set) && !is_unsure(cursor.clone());
    let mut depth = 0_usize;
    // The call is all of an element of the list, so far.
    let mut begins = false;
    while !cursor.at_end() {
        let kw = if cursor.kind() == TokenKind::QuotedName { called_by_quoted_name(cursor.text()) } else { cursor.kw() };
        let is_call = matches!(kw, Kw::GetLock | Kw::ReleaseLock | Kw::ReleaseAllLocks);
        let is_whole = runs_once && depth == 0 && begins && is_call && is_whole_element(cursor.clone());
        let token = cursor.token();
        match token.kind {
            TokenKind::Punct(b'(') => depth += 1,
            TokenKind::Punct(b')') => depth = depth.saturating_sub(1),
            _ => {}
        }
        begins = match verb {
            Kw::Set => token.is(b'=') || token.kind == TokenKind::Assign,
            _ => token.is(b',') || matches!(kw, Kw::Select | Kw::Do),
        };
        cursor.bump();
        if !is_call || !cursor.token().is(b'(') {
            continue;
        }
        depth += 1;
        cursor.bump();
        let name = || literal_argument(&cursor, mode).filter(|_| is_whole);
        calls.push(match kw {
            Kw::GetLock => LockCall::Get(name()),
            Kw::ReleaseAllLocks if is_whole && verb != Kw::Set => LockCall::ReleaseAll,
            _ => LockCall::Release(name().filter(|_| verb != Kw::Set)),
        });
    }
    calls
}

fn is_unsure(mut cursor: Cursor<'_>) -> bool {
    while !cursor.at_end() {
        if cursor.kind() == TokenKind::Word && UNSURE.iter().any(|word| cursor.text().eq_ignore_ascii_case(word)) {
            return true;
        }
        cursor.bump();
    }
    false
}

/// `f(...)` and nothing behind it but its alias.
fn is_whole_element(mut cursor: Cursor<'_>) -> bool {
    cursor.bump();
    let mut depth = 0_usize;
    while !cursor.at_end() {
        let token = cursor.token();
        cursor.bump();
        if token.is(b'(') {
            depth += 1;
        } else if token.is(b')') {
            depth = depth.saturating_sub(1);
            if depth == 0 {
                break;
            }
        }
    }
    cursor.at_statement_end() || cursor.token().is(b',') || cursor.kw() == Kw::As
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
