//! The kind of a statement, from its first words.

use crate::body;
use crate::cursor::Cursor;
use crate::keywords::Kw;
use crate::token::{Lexer, TokenKind};

/// The kind of a statement, as far as a proxy must tell kinds apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `SELECT`, `(SELECT ...)`, `WITH ... SELECT`, `VALUES ROW(...)`, `TABLE t`.
    Select,
    /// `INSERT`.
    Insert,
    /// `REPLACE`.
    Replace,
    /// `UPDATE`, also after `WITH`.
    Update,
    /// `DELETE`, also after `WITH`.
    Delete,
    /// `SET` of variables, names, character set, or of session or global transaction characteristics.
    Set,
    /// `SET TRANSACTION ...` without a scope: for the next transaction only.
    SetTransaction,
    /// MariaDB `SET STATEMENT ... FOR ...`.
    SetStatement,
    /// `SET ROLE`.
    SetRole,
    /// `SET PASSWORD`.
    SetPassword,
    /// `USE`.
    Use,
    /// `BEGIN`, `START TRANSACTION`.
    Begin,
    /// `COMMIT`.
    Commit,
    /// `ROLLBACK` of the whole transaction.
    Rollback,
    /// `SAVEPOINT`.
    Savepoint,
    /// `ROLLBACK TO`.
    RollbackTo,
    /// `RELEASE SAVEPOINT`.
    ReleaseSavepoint,
    /// `CALL`.
    Call,
    /// `DO`.
    Do,
    /// `SHOW WARNINGS`.
    ShowWarnings,
    /// `SHOW ERRORS`.
    ShowErrors,
    /// `SHOW COUNT(*) WARNINGS`.
    ShowCountWarnings,
    /// `SHOW COUNT(*) ERRORS`.
    ShowCountErrors,
    /// Any other `SHOW`.
    Show,
    /// `EXPLAIN`, `DESCRIBE`, `DESC`, and MariaDB's `ANALYZE` of a query.
    Explain,
    /// `CREATE TEMPORARY ...`.
    CreateTemporaryTable,
    /// `DROP [TEMPORARY] TABLE`.
    DropTable,
    /// Other data definition, table maintenance, and stored program definitions: commits implicitly.
    Ddl,
    /// `LOCK TABLES`.
    LockTables,
    /// `UNLOCK TABLES`.
    UnlockTables,
    /// `FLUSH TABLES ... WITH READ LOCK`, `FLUSH TABLES ... FOR EXPORT`.
    FlushReadLock,
    /// `BACKUP LOCK`, `BACKUP STAGE` (MariaDB), `LOCK INSTANCE FOR BACKUP` (MySQL): UNLOCK TABLES does not end it.
    BackupLock,
    /// Any other `FLUSH`.
    Flush,
    /// `PREPARE`.
    Prepare,
    /// `EXECUTE`, `EXECUTE IMMEDIATE`.
    Execute,
    /// `DEALLOCATE PREPARE`, `DROP PREPARE`.
    Deallocate,
    /// `KILL`.
    Kill,
    /// `LOAD DATA`, `LOAD XML`.
    LoadData,
    /// Any `XA` statement.
    Xa,
    /// `HANDLER`.
    Handler,
    /// `GET [CURRENT | STACKED] DIAGNOSTICS`.
    GetDiagnostics,
    /// `SIGNAL`, `RESIGNAL`.
    Signal,
    /// Accounts and privileges: `GRANT`, `REVOKE`, `CREATE USER`, `SET DEFAULT ROLE`, ...
    Grant,
    /// A compound statement outside a stored program (MariaDB): `BEGIN NOT ATOMIC`, `IF`, `LOOP`, ... In sql_mode ORACLE it is any `BEGIN
    /// ...` but that of a transaction. Also statements without a kind of their own.
    Compound,
    /// Nothing but blanks, comments and `;`.
    Empty,
    /// Anything else.
    Other,
}

/// A kind, and whether a `;` can end the statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) kind: Kind,
    /// The body may hold `;`: the statement reaches to the end of the text.
    pub(crate) whole_text: bool,
    /// It may end before the text does: what follows was not read.
    pub(crate) may_end: bool,
}

impl Class {
    const fn of(kind: Kind) -> Self {
        Class { kind, whole_text: false, may_end: false }
    }

    const fn whole(kind: Kind) -> Self {
        Class { kind, whole_text: true, may_end: false }
    }
}

/// Classifies by the first keyword `kw`; `rest` stands after it.
#[inline]
pub(crate) fn classify(kw: Kw, rest: &Lexer<'_>) -> Class {
    let kind = match kw {
        Kw::Select | Kw::Values | Kw::Table => Kind::Select,
        Kw::Insert => Kind::Insert,
        Kw::Update => Kind::Update,
        Kw::Delete => Kind::Delete,
        Kw::Replace => Kind::Replace,
        Kw::Commit => Kind::Commit,
        _ => return classify_rest(kw, rest),
    };
    Class::of(kind)
}

fn classify_rest(kw: Kw, rest: &Lexer<'_>) -> Class {
    let (mut next, oracle) = (Cursor::from_lexer(rest.clone()), rest.mode().oracle);
    let kind = match kw {
        Kw::Begin => return begin(next, oracle),
        Kw::Create | Kw::Alter => return create(kw, next),
        Kw::If | Kw::While | Kw::Loop | Kw::Repeat | Kw::For | Kw::Case => {
            return Class::whole(Kind::Compound);
        }
        Kw::Set => set(&mut next),
        Kw::With => with(next),
        Kw::Use => Kind::Use,
        Kw::Start if next.kw() == Kw::Transaction => Kind::Begin,
        Kw::Rollback => rollback(&mut next),
        Kw::Savepoint => Kind::Savepoint,
        Kw::Release if next.kw() == Kw::Savepoint => Kind::ReleaseSavepoint,
        Kw::Call => Kind::Call,
        Kw::Do => Kind::Do,
        Kw::Show => show(&mut next),
        Kw::Explain | Kw::Describe | Kw::Desc => Kind::Explain,
        Kw::Analyze => analyze(next),
        Kw::Drop => drop_kind(&mut next),
        Kw::Rename if next.kw() == Kw::User => Kind::Grant,
        Kw::Optimize | Kw::Repair | Kw::Check | Kw::Truncate | Kw::Rename => Kind::Ddl,
        Kw::Install | Kw::Uninstall | Kw::Import => Kind::Ddl,
        Kw::Lock => lock(next.kw()),
        Kw::Unlock if matches!(next.kw(), Kw::Tables | Kw::Table) => Kind::UnlockTables,
        Kw::Flush => flush(next),
        Kw::Backup => backup(next),
        Kw::Prepare => Kind::Prepare,
        Kw::Execute => Kind::Execute,
        Kw::Deallocate => Kind::Deallocate,
        Kw::Kill => Kind::Kill,
        Kw::Load if matches!(next.kw(), Kw::Data | Kw::Xml) => Kind::LoadData,
        Kw::Xa => Kind::Xa,
        Kw::Handler => Kind::Handler,
        Kw::Get => Kind::GetDiagnostics,
        Kw::Signal | Kw::Resignal => Kind::Signal,
        Kw::Grant | Kw::Revoke => Kind::Grant,
        // ORACLE: `DECLARE ... BEGIN`, `<<label>> BEGIN`.
        _ if oracle || next.token().is(b':') => return Class::whole(Kind::Compound),
        _ => Kind::Other,
    };
    Class::of(kind)
}

fn begin(mut next: Cursor<'_>, oracle: bool) -> Class {
    let is_block = if oracle { !next.at_statement_end() && next.kw() != Kw::Work } else { next.eat_all(&[Kw::Not, Kw::Atomic]) };
    if is_block {
        return Class::whole(Kind::Compound);
    }
    Class::of(Kind::Begin)
}

/// `CREATE` and `ALTER`: the object's word may follow `OR REPLACE`, `DEFINER = x@y`, `AGGREGATE`, ...
fn create(verb: Kw, mut next: Cursor<'_>) -> Class {
    while !next.at_statement_end() {
        match next.kw() {
            object @ (Kw::Procedure | Kw::Function | Kw::Trigger | Kw::Event | Kw::Package) => {
                return Class { may_end: !body::is_all(object, next.rest()), ..Class::whole(Kind::Ddl) };
            }
            Kw::User | Kw::Role => return Class::of(Kind::Grant),
            Kw::Temporary if verb == Kw::Create => return Class::of(Kind::CreateTemporaryTable),
            Kw::Table | Kw::View | Kw::Index | Kw::Database => break,
            _ if next.eat_word(b"definer") => account(&mut next),
            _ if OTHER_OBJECTS.iter().any(|word| next.eat_word(word)) => break,
            _ => next.bump(),
        }
        if next.token().is(b'(') {
            break;
        }
    }
    Class::of(Kind::Ddl)
}

/// Objects without a body, whose names may be any word.
const OTHER_OBJECTS: [&[u8]; 5] = [b"schema", b"server", b"tablespace", b"sequence", b"library"];

/// `= user@host`, `= CURRENT_USER()`; nothing behind the DEFINER of `SQL SECURITY DEFINER`.
fn account(next: &mut Cursor<'_>) {
    if !next.eat_punct(b'=') {
        return;
    }
    next.bump();
    if next.eat_punct(b'(') {
        next.eat_punct(b')');
    }
    if next.kind() == TokenKind::UserVariable {
        next.bump();
    }
}

fn set(next: &mut Cursor<'_>) -> Kind {
    match next.kw() {
        Kw::Transaction => Kind::SetTransaction,
        Kw::Statement => Kind::SetStatement,
        Kw::Role | Kw::Password => assignment_or(next),
        Kw::Default => {
            next.bump();
            if next.kw() == Kw::Role { Kind::Grant } else { Kind::Set }
        }
        _ => Kind::Set,
    }
}

/// `SET ROLE x` and `SET PASSWORD = x`; no variable has either name.
fn assignment_or(next: &Cursor<'_>) -> Kind {
    if next.kw() == Kw::Role { Kind::SetRole } else { Kind::SetPassword }
}

/// The statement after the common table expressions.
fn with(mut next: Cursor<'_>) -> Kind {
    let mut depth = 0usize;
    while !next.at_statement_end() {
        match (next.kind(), next.kw()) {
            (TokenKind::Punct(b'('), _) => depth += 1,
            (TokenKind::Punct(b')'), _) => depth = depth.saturating_sub(1),
            (_, kw) if depth == 0 => match kw {
                Kw::Select | Kw::Values | Kw::Table => return Kind::Select,
                Kw::Update => return Kind::Update,
                Kw::Delete => return Kind::Delete,
                Kw::Insert => return Kind::Insert,
                Kw::Replace => return Kind::Replace,
                _ => {}
            },
            _ => {}
        }
        next.bump();
    }
    // `WITH c AS (...) (SELECT ...)`: no verb outside parentheses, and only a query may stand so.
    Kind::Select
}

fn rollback(next: &mut Cursor<'_>) -> Kind {
    next.eat(Kw::Work);
    if next.kw() == Kw::To { Kind::RollbackTo } else { Kind::Rollback }
}

fn show(next: &mut Cursor<'_>) -> Kind {
    match next.kw() {
        Kw::Warnings => Kind::ShowWarnings,
        Kw::Errors => Kind::ShowErrors,
        Kw::Count => show_count(next),
        _ => Kind::Show,
    }
}

fn show_count(next: &mut Cursor<'_>) -> Kind {
    next.bump();
    let counts = next.eat_punct(b'(') && next.eat_punct(b'*') && next.eat_punct(b')');
    match next.kw() {
        Kw::Warnings if counts => Kind::ShowCountWarnings,
        Kw::Errors if counts => Kind::ShowCountErrors,
        _ => Kind::Show,
    }
}

/// `ANALYZE TABLE` is maintenance; MariaDB's `ANALYZE <statement>` runs the statement.
fn analyze(mut next: Cursor<'_>) -> Kind {
    while !next.at_statement_end() {
        match next.kw() {
            Kw::Table | Kw::Tables => return Kind::Ddl,
            Kw::Select | Kw::With => return Kind::Explain,
            Kw::Update => return Kind::Update,
            Kw::Delete => return Kind::Delete,
            Kw::Insert => return Kind::Insert,
            Kw::Replace => return Kind::Replace,
            _ => next.bump(),
        }
    }
    Kind::Explain
}

fn drop_kind(next: &mut Cursor<'_>) -> Kind {
    next.eat(Kw::Temporary);
    match next.kw() {
        Kw::Table | Kw::Tables => Kind::DropTable,
        Kw::User | Kw::Role => Kind::Grant,
        Kw::Prepare => Kind::Deallocate,
        _ => Kind::Ddl,
    }
}

fn lock(next: Kw) -> Kind {
    match next {
        Kw::Tables | Kw::Table => Kind::LockTables,
        Kw::Instance => Kind::BackupLock,
        _ => Kind::Other,
    }
}

/// A statement that releases a lock takes none.
fn backup(mut next: Cursor<'_>) -> Kind {
    let ends = next.kw() == Kw::Unlock || next.eat_word(b"stage") && next.eat_word(b"end");
    if ends { Kind::Other } else { Kind::BackupLock }
}

fn flush(mut next: Cursor<'_>) -> Kind {
    while !next.at_statement_end() {
        let locks = next.eat_all(&[Kw::With, Kw::Read]) || next.eat_all(&[Kw::For, Kw::Export]);
        if locks {
            return Kind::FlushReadLock;
        }
        next.bump();
    }
    Kind::Flush
}
