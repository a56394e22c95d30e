//! Puts values that the session knows into a statement's text, in place of FOUND_ROWS() and similar functions.
//!
//! The replacement has the function's type, length and flags on MariaDB and MySQL. A column of a select list that computes with such values
//! keeps its name by an alias, in subqueries too, because the outer query may use that name.
//! INVARIANT: an alias is added only if the column certainly ends there and has none.

use crate::cursor::Cursor;
use crate::keywords::Kw;
use crate::session_facts::{Fact, fact_at};
use crate::statements::set_statement_body;
use crate::token::{LexMode, Lexer, TokenKind};

/// Copies `sql`, one statement, with each session fact replaced by an expression of the number from `value`. If that is None, the server
/// computes the fact. A definition is not changed, except for the query of CREATE TABLE, which runs at once.
pub fn substitute_facts(sql: &[u8], mode: LexMode, value: impl Fn(Fact) -> Option<i64>) -> Vec<u8> {
    let mut scan = Scan { sql, mode, out: Vec::with_capacity(sql.len() + 64), copied: 0, columns: vec![None] };
    let mut cursor = Cursor::new(sql, mode);
    let assigns = cursor.kw() == Kw::Set;
    let from = asking_from(sql, mode);
    let mut after_dot = false;
    while !cursor.at_end() {
        let start = cursor.token().start;
        let mut ahead = cursor.clone();
        let asks = !after_dot && from.is_some_and(|from| start >= from);
        let fact = if asks { fact_at(&mut ahead) } else { None };
        // The target of an assignment is no value.
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
    if scan.columns.len() == 1 {
        scan.end_column();
    }
    scan.copy_to(sql.len());
    scan.out
}

/// Where `sql` begins to ask for facts as it runs; None for a definition, whose expressions run later.
fn asking_from(sql: &[u8], mode: LexMode) -> Option<usize> {
    // Of `SET STATEMENT x=1 FOR ...`: what follows FOR.
    let run = set_statement_body(sql, mode).unwrap_or(sql);
    let cursor = Cursor::new(run, mode);
    match cursor.kw() {
        Kw::Create => query_of_table(cursor).map(|query| sql.len() - run.len() + query),
        Kw::Alter => None,
        _ => Some(0),
    }
}

/// The start of the query in `CREATE [OR REPLACE] [TEMPORARY] TABLE ... SELECT`; None for other definitions.
fn query_of_table(mut create: Cursor<'_>) -> Option<usize> {
    create.bump();
    if create.eat_word(b"or") {
        create.bump();
    }
    create.eat(Kw::Temporary);
    if !create.eat(Kw::Table) {
        return None;
    }
    while create.kw() != Kw::Select {
        if create.at_statement_end() {
            return None;
        }
        create.bump();
    }
    Some(create.token().start)
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

/// The state of the scan within a column.
struct Column {
    /// Offset of its first token, of its last one, and after that.
    start: usize,
    last_start: usize,
    end: usize,
    /// Kinds of the last token but one, and of the last one.
    last: [TokenKind; 2],
    has_fact: bool,
    has_as: bool,
    /// How many CASE have no END yet.
    cases: usize,
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
    /// For each open parenthesis, and outside of all: the column of the select list that is read there, if one is.
    columns: Vec<Option<Column>>,
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
        self.push(TokenKind::Punct(b')'), start, end);
        self.columns.iter_mut().flatten().for_each(|column| column.has_fact = true);
    }

    fn push(&mut self, kind: TokenKind, start: usize, end: usize) {
        if let Some(Some(column)) = self.columns.last_mut() {
            column.push(kind, start, end);
        }
    }

    /// Takes the column that is read where the scan is.
    fn take_column(&mut self) -> Option<Column> {
        self.columns.last_mut().and_then(Option::take)
    }

    /// Follows the select lists, from a token that is no fact.
    fn note(&mut self, cursor: &Cursor<'_>) {
        let token = cursor.token();
        if token.is(b'(') {
            self.push(cursor.kind(), token.start, token.end);
            self.columns.push(None);
            return;
        }
        if token.is(b')') {
            self.end_column();
            if self.columns.len() > 1 {
                self.columns.pop();
                self.push(cursor.kind(), token.start, token.end);
            }
            return;
        }
        let reads = self.columns.last().is_some_and(Option::is_some);
        if cursor.kw() == Kw::Select || reads && token.is(b',') {
            self.end_column();
            if let Some(column) = self.columns.last_mut() {
                *column = Some(Column::new());
            }
        } else if reads && ends_list(cursor) {
            self.end_column();
        } else if let Some(Some(column)) = self.columns.last_mut() {
            column.note(cursor);
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
        let Some(column) = self.take_column().filter(|column| column.has_fact && column.is_unnamed() && self.is_whole(column)) else {
            return;
        };
        let name = self.sql.get(column.start..column.end).unwrap_or_default();
        let plain = name.len() <= LONGEST_NAME && name.iter().all(|byte| matches!(byte, b' '..=b'~') && *byte != b'\\');
        if plain {
            self.copy_to(column.end);
            self.out.extend_from_slice(b" AS `");
            for part in name.split_inclusive(|byte| *byte == b'`') {
                self.out.extend_from_slice(part);
                if part.ends_with(b"`") {
                    self.out.push(b'`');
                }
            }
            self.out.push(b'`');
        }
    }
}

impl Column {
    fn new() -> Self {
        Self { start: 0, last_start: 0, end: 0, last: [TokenKind::End; 2], has_fact: false, has_as: false, cases: 0 }
    }

    /// A token of the column that is no parenthesis and no fact.
    fn note(&mut self, cursor: &Cursor<'_>) {
        let (token, text) = (cursor.token(), cursor.text());
        let is_word = cursor.kind() == TokenKind::Word;
        if self.end == 0 && is_one_of(text, MODIFIERS) {
            return;
        }
        let ends_case = is_word && self.cases > 0 && is_one_of(text, &["end"]);
        self.cases += usize::from(cursor.kw() == Kw::Case);
        self.cases -= usize::from(ends_case);
        // These are no names.
        let kind = if is_word && (ends_case || is_one_of(text, VALUES)) { TokenKind::Number } else { cursor.kind() };
        self.push(kind, token.start, token.end);
        self.has_as |= cursor.kw() == Kw::As;
    }
}

/// Words that are values, and reserved on both products.
const VALUES: &[&str] = &["null", "true", "false"];

/// Longer names than this are not given: servers cut theirs.
const LONGEST_NAME: usize = 200;

/// Words that may stand between SELECT and its first column.
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

/// Words that may follow a select list and are no name on either product. Other such words are taken for aliases.
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
    cursor.at_statement_end() || is_one_of(cursor.text(), CLAUSES)
}

fn is_one_of(text: &[u8], words: &[&str]) -> bool {
    words.iter().any(|word| text.eq_ignore_ascii_case(word.as_bytes()))
}
