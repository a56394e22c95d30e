//! Facts that the proxy knows without asking: row counts, connection id, warning counts.

use crate::analyze::{called_by_quoted_name, variable_name};
use crate::cursor::Cursor;
use crate::keywords::{Kw, lookup};
use crate::token::{LexMode, TokenKind};

/// A value that belongs to the session, not to the server that runs the statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fact {
    /// `FOUND_ROWS()`.
    FoundRows,
    /// `ROW_COUNT()`.
    RowCount,
    /// `CONNECTION_ID()`.
    ConnectionId,
    /// `@@pseudo_thread_id`, which is the same until it is set.
    PseudoThreadId,
    /// `@@warning_count`.
    WarningCount,
    /// `@@error_count`.
    ErrorCount,
}

impl Fact {
    /// Whether the value is the connection's id.
    pub fn is_connection(self) -> bool {
        matches!(self, Fact::ConnectionId | Fact::PseudoThreadId)
    }
}

/// The fact that `SELECT fact [[AS] alias] [FROM DUAL] [;]` asks for, if that is all of the statement.
pub fn single_fact_select(sql: &[u8], mode: LexMode) -> Option<Fact> {
    let mut cursor = Cursor::new(sql, mode);
    if !cursor.eat(Kw::Select) {
        return None;
    }
    let (fact, _) = fact_at(&mut cursor)?;
    let ends = |cursor: &Cursor<'_>| cursor.at_statement_end() || cursor.kw() == Kw::From;
    if !ends(&cursor) {
        alias(&mut cursor)?;
    }
    if cursor.eat(Kw::From) && !cursor.eat(Kw::Dual) {
        return None;
    }
    cursor.done().then_some(fact)
}

fn alias(cursor: &mut Cursor<'_>) -> Option<()> {
    let said = cursor.eat(Kw::As);
    let bare = cursor.kind() == TokenKind::QuotedName || is_plain(cursor.kw());
    let fits = match cursor.kind() {
        TokenKind::String | TokenKind::QuotedName => true,
        TokenKind::Word => said || bare,
        _ => false,
    };
    cursor.bump();
    fits.then_some(())
}

fn is_plain(kw: Kw) -> bool {
    kw == Kw::None || kw.has_no_role()
}

/// Reads a fact at the cursor and gives the offset after it; does not move when there is none.
pub(crate) fn fact_at(cursor: &mut Cursor<'_>) -> Option<(Fact, usize)> {
    if cursor.kind() == TokenKind::SystemVariable {
        let fact = variable_fact(cursor.text())?;
        let end = cursor.token().end;
        cursor.bump();
        return Some((fact, end));
    }
    let quoted = if cursor.kind() == TokenKind::QuotedName { called_by_quoted_name(cursor.text()) } else { Kw::None };
    let fact = match (cursor.kw(), quoted) {
        (Kw::FoundRows, _) | (_, Kw::FoundRows) => Fact::FoundRows,
        // In quotes it is no function.
        (Kw::RowCount, _) => Fact::RowCount,
        (Kw::ConnectionId, _) | (_, Kw::ConnectionId) => Fact::ConnectionId,
        _ => return None,
    };
    let mut ahead = cursor.clone();
    ahead.bump();
    if !ahead.eat_punct(b'(') || !ahead.token().is(b')') {
        return None;
    }
    let end = ahead.token().end;
    ahead.bump();
    *cursor = ahead;
    Some((fact, end))
}

fn variable_fact(text: &[u8]) -> Option<Fact> {
    let scope = text.get(2..)?.split(|&byte| byte == b'.').next().filter(|_| text.contains(&b'.'));
    let own = scope.is_none_or(|scope| matches!(lookup(scope.trim_ascii()), Kw::Session | Kw::Local));
    match lookup(variable_name(text)) {
        Kw::WarningCount if own => Some(Fact::WarningCount),
        Kw::ErrorCount if own => Some(Fact::ErrorCount),
        Kw::PseudoThreadId if own => Some(Fact::PseudoThreadId),
        _ => None,
    }
}
