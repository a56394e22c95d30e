//! Small parsers: `USE`, `KILL`, transaction control, temporary tables, prepared statement names.

use crate::cursor::{Cursor, lower, unquote_string, utf8};
use crate::keywords::Kw;
use crate::session_facts::{Fact, fact_at};
use crate::token::{LexMode, TokenKind};

/// The schema of a `USE` statement, without quotes; `None` when it is no well-formed `USE`.
pub fn parse_use(sql: &[u8], mode: LexMode) -> Option<Vec<u8>> {
    let mut cursor = Cursor::new(sql, mode);
    if !cursor.eat(Kw::Use) {
        return None;
    }
    let schema = cursor.name()?.into_owned();
    cursor.done().then_some(schema)
}

/// The target of a `KILL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillTarget {
    /// End the connection with this id.
    Connection(u64),
    /// End only the statement that the connection with this id runs now.
    Query(u64),
}

/// A `KILL` that the proxy can carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kill {
    /// The connection or the statement to end.
    pub target: KillTarget,
    /// MariaDB `KILL SOFT`: leave operations alone that an interruption would damage.
    pub soft: bool,
}

/// Parses `KILL [HARD | SOFT] [CONNECTION | QUERY] n`, where n may be `CONNECTION_ID()`: `own_id`; `None` for other expressions,
/// for MariaDB's `KILL QUERY ID n` and `KILL USER name`.
pub fn parse_kill(sql: &[u8], mode: LexMode, own_id: u64) -> Option<Kill> {
    let mut cursor = Cursor::new(sql, mode);
    if !cursor.eat(Kw::Kill) {
        return None;
    }
    let soft = cursor.kw() == Kw::Soft;
    cursor.eat_any(&[Kw::Hard, Kw::Soft]);
    let query = cursor.kw() == Kw::Query;
    cursor.eat_any(&[Kw::Connection, Kw::Query]);
    let id = if cursor.kind() == TokenKind::Number {
        let id = std::str::from_utf8(cursor.text()).ok()?.parse().ok()?;
        cursor.bump();
        id
    } else {
        matches!(fact_at(&mut cursor)?, (Fact::ConnectionId, _)).then_some(own_id)?
    };
    let target = if query { KillTarget::Query(id) } else { KillTarget::Connection(id) };
    cursor.done().then_some(Kill { target, soft })
}

/// The options of `BEGIN`, `START TRANSACTION`, `COMMIT` and `ROLLBACK`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionControl {
    /// `READ ONLY` or `READ WRITE`, when said.
    pub read_only: Option<bool>,
    /// `WITH CONSISTENT SNAPSHOT`.
    pub consistent_snapshot: bool,
    /// `AND [NO] CHAIN`, when said; else `completion_type` decides.
    pub chain: Option<bool>,
    /// `[NO] RELEASE`, when said; else `completion_type` decides.
    pub release: Option<bool>,
}

/// Reads the options of a transaction control statement. Unknown words are passed over.
pub fn parse_transaction(sql: &[u8], mode: LexMode) -> TransactionControl {
    let mut cursor = Cursor::new(sql, mode);
    let mut control = TransactionControl::default();
    cursor.bump();
    while !cursor.at_statement_end() {
        if cursor.eat_all(&[Kw::Read, Kw::Only]) {
            control.read_only = Some(true);
        } else if cursor.eat_all(&[Kw::Read, Kw::Write]) {
            control.read_only = Some(false);
        } else if cursor.eat_all(&[Kw::Consistent, Kw::Snapshot]) {
            control.consistent_snapshot = true;
        } else if cursor.eat_all(&[Kw::No, Kw::Chain]) {
            control.chain = Some(false);
        } else if cursor.eat_all(&[Kw::No, Kw::Release]) {
            control.release = Some(false);
        } else if cursor.eat(Kw::Chain) {
            control.chain = Some(true);
        } else if cursor.eat(Kw::Release) {
            control.release = Some(true);
        } else {
            cursor.bump();
        }
    }
    control
}

/// The tables that `CREATE TEMPORARY TABLE` makes or `DROP [TEMPORARY] TABLE` drops, as written: schema (if given) and name. Empty for
/// other statements, and if the text is not understood.
pub fn temporary_tables(sql: &[u8], mode: LexMode) -> Vec<(Option<String>, String)> {
    let mut cursor = Cursor::new(sql, mode);
    if cursor.eat(Kw::Create) {
        cursor.eat_all(&[Kw::Or, Kw::Replace]);
        let fits = cursor.eat(Kw::Temporary) && (cursor.eat(Kw::Table) || cursor.eat_word(b"sequence"));
        cursor.eat_all(&[Kw::If, Kw::Not, Kw::Exists]);
        return if fits { table_name(&mut cursor).into_iter().collect() } else { Vec::new() };
    }
    if !cursor.eat(Kw::Drop) {
        return Vec::new();
    }
    cursor.eat(Kw::Temporary);
    if !cursor.eat_any(&[Kw::Table, Kw::Tables]) && !cursor.eat_word(b"sequence") {
        return Vec::new();
    }
    cursor.eat_all(&[Kw::If, Kw::Exists]);
    table_names(&mut cursor)
}

fn table_names(cursor: &mut Cursor<'_>) -> Vec<(Option<String>, String)> {
    let mut names = Vec::new();
    while let Some(name) = table_name(cursor) {
        names.push(name);
        if !cursor.eat_punct(b',') {
            break;
        }
    }
    names
}

fn table_name(cursor: &mut Cursor<'_>) -> Option<(Option<String>, String)> {
    let first = utf8(&cursor.name()?)?;
    if !cursor.eat_punct(b'.') {
        return Some((None, first));
    }
    Some((Some(first), utf8(&cursor.name()?)?))
}

/// The name in `PREPARE name`, `EXECUTE name`, `DEALLOCATE PREPARE name` and `DROP PREPARE name`, in
/// lower case; `None` for `EXECUTE IMMEDIATE` and for other statements.
pub fn prepared_name(sql: &[u8], mode: LexMode) -> Option<String> {
    let mut cursor = Cursor::new(sql, mode);
    let named = cursor.eat(Kw::Prepare)
        || cursor.eat(Kw::Execute)
        || cursor.eat_all(&[Kw::Deallocate, Kw::Prepare])
        || cursor.eat_all(&[Kw::Drop, Kw::Prepare]);
    if !named || cursor.kw() == Kw::Immediate {
        return None;
    }
    lower(&cursor.name()?)
}

/// The statement after FOR in MariaDB's `SET STATEMENT x=1 FOR ...`.
pub fn set_statement_body(sql: &[u8], mode: LexMode) -> Option<&[u8]> {
    let mut cursor = Cursor::new(sql, mode);
    if !cursor.eat_all(&[Kw::Set, Kw::Statement]) {
        return None;
    }
    let mut depth = 0_usize;
    while !cursor.at_end() {
        match cursor.kind() {
            TokenKind::Punct(b'(') => depth += 1,
            TokenKind::Punct(b')') => depth = depth.saturating_sub(1),
            _ if depth == 0 && cursor.kw() == Kw::For => return sql.get(cursor.token().end..),
            _ => {}
        }
        cursor.bump();
    }
    None
}

/// The statement in `PREPARE name FROM 'statement'` and `EXECUTE IMMEDIATE 'statement'`; `None` if it is no literal.
pub fn dynamic_text(sql: &[u8], mode: LexMode) -> Option<Vec<u8>> {
    let mut cursor = Cursor::new(sql, mode);
    if cursor.eat(Kw::Prepare) {
        cursor.name()?;
        if !cursor.eat(Kw::From) {
            return None;
        }
    } else if !cursor.eat_all(&[Kw::Execute, Kw::Immediate]) {
        return None;
    }
    if cursor.kind() != TokenKind::String {
        return None;
    }
    let text = unquote_string(cursor.text(), mode);
    cursor.bump();
    // Two literals beside each other are one.
    let is_whole = cursor.at_statement_end() || cursor.eat_word(b"using");
    is_whole.then_some(text)
}
