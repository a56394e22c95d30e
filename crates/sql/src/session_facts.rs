//! Facts that the proxy knows without asking: row counts, connection id, warning counts.

use crate::analyze::variable_name;
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
    /// `@@warning_count`.
    WarningCount,
    /// `@@error_count`.
    ErrorCount,
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
    let bare = cursor.kind() == TokenKind::QuotedName || matches!(cursor.kw(), Kw::None | Kw::Known);
    let fits = match cursor.kind() {
        TokenKind::String | TokenKind::QuotedName => true,
        TokenKind::Word => said || bare,
        _ => false,
    };
    cursor.bump();
    fits.then_some(())
}

/// Reads a fact at the cursor and gives the offset after it; does not move when there is none.
fn fact_at(cursor: &mut Cursor<'_>) -> Option<(Fact, usize)> {
    if cursor.kind() == TokenKind::SystemVariable {
        let fact = variable_fact(cursor.text())?;
        let end = cursor.token().end;
        cursor.bump();
        return Some((fact, end));
    }
    let fact = match cursor.kw() {
        Kw::FoundRows => Fact::FoundRows,
        Kw::RowCount => Fact::RowCount,
        Kw::ConnectionId => Fact::ConnectionId,
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
        _ => None,
    }
}

/// Copies `sql` with each session fact replaced by the number that `value` gives for it.
///
/// A fact that is a whole column of a top-level select list keeps its column name by an alias.
pub fn substitute_facts(sql: &[u8], mode: LexMode, value: impl Fn(Fact) -> i64) -> Vec<u8> {
    let mut out = Vec::with_capacity(sql.len() + 16);
    let mut cursor = Cursor::new(sql, mode);
    let mut copied = 0;
    let mut list = SelectList::default();
    while !cursor.at_end() {
        let start = cursor.token().start;
        let qualified = list.after_dot;
        let fact = if qualified { None } else { fact_at(&mut cursor) };
        let Some((fact, end)) = fact else {
            list.note(&cursor);
            cursor.bump();
            continue;
        };
        out.extend_from_slice(sql.get(copied..start).unwrap_or_default());
        push_number(&mut out, value(fact));
        let source = sql.get(start..end).unwrap_or_default();
        if list.at_column_start && ends_column(&cursor) && !source.contains(&b'`') {
            out.extend_from_slice(b" AS `");
            out.extend_from_slice(source);
            out.push(b'`');
        }
        list.at_column_start = false;
        copied = end;
    }
    out.extend_from_slice(sql.get(copied..).unwrap_or_default());
    out
}

/// Where the scan stands relative to the outermost select list.
#[derive(Default)]
struct SelectList {
    depth: usize,
    inside: bool,
    at_column_start: bool,
    after_dot: bool,
}

impl SelectList {
    fn note(&mut self, cursor: &Cursor<'_>) {
        self.at_column_start = false;
        self.after_dot = cursor.token().is(b'.');
        match (cursor.kind(), cursor.kw()) {
            (TokenKind::Punct(b'('), _) => self.depth += 1,
            (TokenKind::Punct(b')'), _) => self.depth = self.depth.saturating_sub(1),
            (TokenKind::Punct(b','), _) if self.depth == 0 => self.at_column_start = self.inside,
            (_, Kw::Select) if self.depth == 0 => {
                self.inside = true;
                self.at_column_start = true;
            }
            (_, Kw::From | Kw::Where | Kw::Limit | Kw::Into) if self.depth == 0 => self.inside = false,
            _ => {}
        }
    }
}

fn ends_column(cursor: &Cursor<'_>) -> bool {
    cursor.at_statement_end() || cursor.token().is(b',') || matches!(cursor.kw(), Kw::From | Kw::Limit | Kw::Where | Kw::Into | Kw::Union)
}

fn push_number(out: &mut Vec<u8>, number: i64) {
    let text = if number < 0 { format!("({number})") } else { number.to_string() };
    out.extend_from_slice(text.as_bytes());
}
