//! Puts what the session knows into a statement's text: values in place of FOUND_ROWS() and its like.
//!
//! What takes a fact's place has its very type, length and flags on MariaDB and MySQL, and a column of a top-level select
//! list that computes with facts keeps its name by an alias. INVARIANT: an alias is added only where it is certain that
//! the column ends there and has none.

use crate::cursor::Cursor;
use crate::keywords::Kw;
use crate::session_facts::{Fact, fact_at};
use crate::token::{LexMode, Lexer, TokenKind};

/// Copies `sql` with each session fact replaced by an expression of the number that `value` gives for it; None leaves it to
/// the server.
pub fn substitute_facts(sql: &[u8], mode: LexMode, value: impl Fn(Fact) -> Option<i64>) -> Vec<u8> {
    let mut scan = Scan { sql, mode, out: Vec::with_capacity(sql.len() + 64), copied: 0, depth: 0, column: None };
    let mut cursor = Cursor::new(sql, mode);
    let assigns = cursor.kw() == Kw::Set;
    let mut after_dot = false;
    while !cursor.at_end() {
        let start = cursor.token().start;
        let mut ahead = cursor.clone();
        let fact = if after_dot { None } else { fact_at(&mut ahead) };
        // What is set is no value.
        let fact = fact.filter(|_| !(assigns && matches!(ahead.kind(), TokenKind::Assign | TokenKind::Punct(b'='))));
        after_dot = false;
        if let Some((fact, end, value)) = fact.and_then(|(fact, end)| Some((fact, end, value(fact)?))) {
            scan.replace(start, end, &replacement(fact, value));
            cursor = ahead;
        } else {
            after_dot = cursor.token().is(b'.');
            scan.note(&cursor);
            cursor.bump();
        }
    }
    scan.end_column();
    scan.copy_to(sql.len());
    scan.out
}

/// An expression with this value and the metadata of the fact, measured on both products.
fn replacement(fact: Fact, value: i64) -> String {
    match fact {
        // The fact is still said, and never asked: it gives the type, and MySQL its warning of FOUND_ROWS().
        Fact::FoundRows => format!("IF(1,{value},FOUND_ROWS())"),
        Fact::RowCount => format!("IF(1,{value},ROW_COUNT())"),
        Fact::ConnectionId => format!("CAST({value} AS UNSIGNED)"),
        // The NULLIF makes it a column that might be NULL, as system variables are.
        Fact::WarningCount | Fact::ErrorCount | Fact::PseudoThreadId => format!("({value}|NULLIF(0,1))"),
    }
}

/// What the scan knows of the column it is in.
struct Column {
    /// Offset of its first token, of its last one, and after that.
    start: usize,
    last_start: usize,
    end: usize,
    /// Kinds of the last token but one, and of the last one.
    last: [TokenKind; 2],
    has_fact: bool,
    has_as: bool,
}

impl Column {
    fn push(&mut self, kind: TokenKind, start: usize, end: usize) {
        if self.end == 0 {
            self.start = start;
        }
        (self.last_start, self.end) = (start, end);
        self.last = [self.last[1], kind];
    }

    /// Certain to be whole and to have no alias: it ends with an operand that cannot be one.
    fn is_unnamed(&self) -> bool {
        let is_operand = |kind| !matches!(kind, TokenKind::Punct(punct) if punct != b')');
        let [before, last] = self.last;
        let could_be_alias = matches!(last, TokenKind::Word | TokenKind::QuotedName | TokenKind::String) && is_operand(before);
        !self.has_as && !could_be_alias && is_operand(last)
    }
}

struct Scan<'a> {
    sql: &'a [u8],
    mode: LexMode,
    out: Vec<u8>,
    copied: usize,
    /// Of parentheses.
    depth: usize,
    /// Within a top-level select list only.
    column: Option<Column>,
}

impl Scan<'_> {
    fn copy_to(&mut self, end: usize) {
        self.out.extend_from_slice(self.sql.get(self.copied..end).unwrap_or_default());
        self.copied = end;
    }

    fn replace(&mut self, start: usize, end: usize, text: &str) {
        self.copy_to(start);
        self.out.extend_from_slice(text.as_bytes());
        self.copied = end;
        if let Some(column) = self.column.as_mut() {
            column.push(TokenKind::Punct(b')'), start, end);
            column.has_fact = true;
        }
    }

    /// Follows the select list, from a token that is no fact.
    fn note(&mut self, cursor: &Cursor<'_>) {
        let (token, outermost) = (cursor.token(), self.depth == 0);
        match cursor.kind() {
            TokenKind::Punct(b'(') => self.depth += 1,
            TokenKind::Punct(b')') => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        let begins = cursor.kw() == Kw::Select || self.column.is_some() && token.is(b',');
        if outermost && begins {
            self.end_column();
            self.column = Some(Column::new());
        } else if outermost && ends_list(cursor) {
            self.end_column();
        } else if let Some(column) = self.column.as_mut() {
            let modifier = column.end == 0 && is_one_of(cursor.text(), MODIFIERS);
            if !modifier {
                column.push(cursor.kind(), token.start, token.end);
            }
            column.has_as |= outermost && cursor.kw() == Kw::As;
        }
    }

    /// It does not end with a literal or a quoted name that the text never closes.
    fn is_whole(&self, column: &Column) -> bool {
        let last = self.sql.get(column.last_start..column.end).unwrap_or_default();
        let padded = [last, b" "].concat();
        let mut lexer = Lexer::new(&padded, self.mode);
        let ends = std::iter::from_fn(|| Some(lexer.token()).filter(|token| token.kind != TokenKind::End).map(|token| token.end));
        column.end < self.sql.len() || ends.last() == Some(last.len())
    }

    /// Gives the column that ends its name, where facts were replaced in it.
    fn end_column(&mut self) {
        let Some(column) = self.column.take().filter(|column| column.has_fact && column.is_unnamed() && self.is_whole(column)) else {
            return;
        };
        let name = self.sql.get(column.start..column.end).unwrap_or_default();
        let plain = name.len() <= LONGEST_NAME && name.iter().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'`' | b'\\'));
        if plain {
            self.copy_to(column.end);
            self.out.extend_from_slice(b" AS `");
            self.out.extend_from_slice(name);
            self.out.push(b'`');
        }
    }
}

impl Column {
    fn new() -> Self {
        Self { start: 0, last_start: 0, end: 0, last: [TokenKind::End; 2], has_fact: false, has_as: false }
    }
}

/// Longer names than this are not given: servers cut theirs.
const LONGEST_NAME: usize = 200;

/// What may stand between SELECT and its first column.
const MODIFIERS: &[&str] = &[
    "all",
    "distinct",
    "distinctrow",
    "high_priority",
    "straight_join",
    "sql_small_result",
    "sql_big_result",
    "sql_buffer_result",
    "sql_cache",
    "sql_no_cache",
    "sql_calc_found_rows",
];

/// What may follow a select list and is no name on either product. Other words that may do so are taken for aliases.
const CLAUSES: &[&str] = &[
    "from",
    "into",
    "where",
    "group",
    "having",
    "order",
    "limit",
    "fetch",
    "for",
    "lock",
    "procedure",
    "union",
    "except",
    "intersect",
    "on",
];

fn ends_list(cursor: &Cursor<'_>) -> bool {
    cursor.at_statement_end() || cursor.token().is(b')') || is_one_of(cursor.text(), CLAUSES)
}

fn is_one_of(text: &[u8], words: &[&str]) -> bool {
    words.iter().any(|word| text.eq_ignore_ascii_case(word.as_bytes()))
}
