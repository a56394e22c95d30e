//! The assignments of a `SET`, if all of it is understood.
//!
//! MySQL manual 15.7.6 "SET Statements", MariaDB "SET". If any part is not understood, the result is `None`: the caller must then assume
//! that the statement changes any state.

use std::collections::HashSet;

use crate::cursor::{Cursor, lower, unquote_name, unquote_string, utf8};
use crate::keywords::Kw;
use crate::token::{LexMode, Lexer, TokenKind};

/// One assignment of a `SET` statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The variable or setting that is assigned.
    pub target: Target,
    /// The assigned value. [`Value::Default`] for targets that carry their values themselves.
    pub value: Value,
}

/// The target of an assignment. Names are in lower case, without quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A session variable: `x`, `SESSION x`, `LOCAL x`, `@@x`, `@@session.x`, `@@local.x`.
    Session(String),
    /// `@@transaction_read_only`, `@@transaction_isolation` and their older names without a scope: of the next transaction only.
    NextTransaction(String),
    /// A global variable: `GLOBAL x`, `@@global.x`; also what `SET GLOBAL TRANSACTION` stands for.
    Global(String),
    /// `PERSIST x`, `PERSIST_ONLY x` and their `@@` forms.
    Persist(String),
    /// A user variable `@x`.
    User(String),
    /// `SET NAMES`; both `None` for `SET NAMES DEFAULT`.
    Names {
        /// Character set, lower case.
        charset: Option<String>,
        /// Collation, lower case.
        collation: Option<String>,
    },
    /// `SET CHARACTER SET`, `SET CHARSET`; `None` for `DEFAULT`.
    CharacterSet(Option<String>),
    /// `SET SESSION TRANSACTION ...`.
    TransactionSession {
        /// As `transaction_isolation` shows it: `READ-COMMITTED`, ...
        isolation: Option<String>,
        /// `READ ONLY` or `READ WRITE`.
        read_only: Option<bool>,
    },
}

/// Variables that are the next transaction's when `@@` is all that stands before them (MySQL manual 15.3.7).
const TRANSACTION: [&str; 4] = ["transaction_isolation", "transaction_read_only", "tx_isolation", "tx_read_only"];

/// An assigned value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A literal as it is written: `'abc'`, `5`, `-1.5`, `NULL`, `TRUE`, `0x41`, `_utf8mb4'x'`.
    Literal(String),
    /// A bare word, without quotes: `ON`, `utf8mb4`, `STRICT_ALL_TABLES`.
    Word(String),
    /// `DEFAULT`.
    Default,
    /// Anything else.
    Expression,
}

/// The traits in `SET TRANSACTION`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransactionTraits {
    /// As `transaction_isolation` shows it: `READ-UNCOMMITTED`, `READ-COMMITTED`,
    /// `REPEATABLE-READ` or `SERIALIZABLE`.
    pub isolation: Option<String>,
    /// `READ ONLY` or `READ WRITE`.
    pub read_only: Option<bool>,
}

/// Parses one `SET` statement; `None` when it is not fully understood.
pub fn parse_set(sql: &[u8], mode: LexMode) -> Option<Vec<Assignment>> {
    let mut cursor = Cursor::new(sql, mode);
    if !cursor.eat(Kw::Set) || matches!(cursor.kw(), Kw::Role | Kw::Password) {
        return None;
    }
    let mut parser = Parser { cursor, mode, sql, sticky_global: false };
    if let Some(assignments) = parser.scoped_transaction()? {
        return Some(assignments);
    }
    let mut assignments = Vec::new();
    loop {
        assignments.push(parser.assignment()?);
        if !parser.cursor.eat_punct(b',') {
            break;
        }
    }
    parser.cursor.done().then_some(assignments)
}

/// Parses `SET TRANSACTION ...` without a scope: the traits of the next transaction only.
pub fn parse_set_transaction(sql: &[u8], mode: LexMode) -> Option<TransactionTraits> {
    let mut cursor = Cursor::new(sql, mode);
    if !(cursor.eat(Kw::Set) && cursor.eat(Kw::Transaction)) {
        return None;
    }
    let traits = transaction_traits(&mut cursor)?;
    cursor.done().then_some(traits)
}

fn transaction_traits(cursor: &mut Cursor<'_>) -> Option<TransactionTraits> {
    let mut traits = TransactionTraits::default();
    loop {
        if cursor.eat_all(&[Kw::Isolation, Kw::Level]) {
            traits.isolation = Some(isolation_level(cursor)?.to_owned());
        } else if cursor.eat(Kw::Read) {
            traits.read_only = Some(cursor.kw() == Kw::Only);
            if !cursor.eat_any(&[Kw::Only, Kw::Write]) {
                return None;
            }
        } else {
            return None;
        }
        if !cursor.eat_punct(b',') {
            return Some(traits);
        }
    }
}

fn isolation_level(cursor: &mut Cursor<'_>) -> Option<&'static str> {
    const LEVELS: [(&[Kw], &str); 4] = [
        (&[Kw::Repeatable, Kw::Read], "REPEATABLE-READ"),
        (&[Kw::Read, Kw::Committed], "READ-COMMITTED"),
        (&[Kw::Read, Kw::Uncommitted], "READ-UNCOMMITTED"),
        (&[Kw::Serializable], "SERIALIZABLE"),
    ];
    LEVELS.into_iter().find_map(|(words, name)| cursor.eat_all(words).then_some(name))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Unsaid,
    Session,
    Global,
    Persist,
}

impl Scope {
    fn of(kw: Kw) -> Option<Scope> {
        match kw {
            Kw::Session | Kw::Local => Some(Scope::Session),
            Kw::Global => Some(Scope::Global),
            Kw::Persist | Kw::PersistOnly => Some(Scope::Persist),
            _ => None,
        }
    }

    fn target(self, name: String) -> Target {
        match self {
            Scope::Unsaid | Scope::Session => Target::Session(name),
            Scope::Global => Target::Global(name),
            Scope::Persist => Target::Persist(name),
        }
    }
}

struct Parser<'a> {
    cursor: Cursor<'a>,
    mode: LexMode,
    sql: &'a [u8],
    /// A GLOBAL or PERSIST word came: servers disagree about an unscoped name after it.
    sticky_global: bool,
}

impl Parser<'_> {
    /// `SET SESSION TRANSACTION ...`, `SET GLOBAL TRANSACTION ...`; the outer `None` is "not understood".
    fn scoped_transaction(&mut self) -> Option<Option<Vec<Assignment>>> {
        let mut ahead = self.cursor.clone();
        let scope = Scope::of(ahead.kw());
        ahead.bump();
        if scope.is_none() || !ahead.eat(Kw::Transaction) {
            return Some(None);
        }
        let traits = transaction_traits(&mut ahead)?;
        if !ahead.done() {
            return None;
        }
        match scope? {
            Scope::Global => Some(Some(global_transaction(traits))),
            Scope::Session => {
                let TransactionTraits { isolation, read_only } = traits;
                let target = Target::TransactionSession { isolation, read_only };
                Some(Some(vec![Assignment { target, value: Value::Default }]))
            }
            Scope::Unsaid | Scope::Persist => None,
        }
    }

    fn assignment(&mut self) -> Option<Assignment> {
        match self.cursor.kind() {
            TokenKind::UserVariable => self.user_variable(),
            TokenKind::SystemVariable => self.system_variable(),
            TokenKind::Word | TokenKind::QuotedName => self.named(),
            _ => None,
        }
    }

    fn user_variable(&mut self) -> Option<Assignment> {
        let name = user_variable_name(self.cursor.text(), self.mode)?;
        self.cursor.bump();
        self.assigned(Target::User(name))
    }

    fn system_variable(&mut self) -> Option<Assignment> {
        let text = lower(self.cursor.text().get(2..)?)?;
        self.cursor.bump();
        let parts: Vec<&str> = text.split('.').map(|part| part.trim().trim_matches('`')).collect();
        let target = match parts.as_slice() {
            [name] if self.sticky_global || name.is_empty() => return None,
            [name] if TRANSACTION.contains(name) => Target::NextTransaction((*name).to_owned()),
            [name] => Scope::Unsaid.target((*name).to_owned()),
            [scope, name] => Scope::of(crate::keywords::lookup(scope.as_bytes()))?.target((*name).to_owned()),
            _ => return None,
        };
        self.assigned(target)
    }

    fn named(&mut self) -> Option<Assignment> {
        if let Some(special) = self.special() {
            return special;
        }
        let scope = self.scope();
        if scope == Scope::Unsaid && self.sticky_global {
            return None;
        }
        let name = self.cursor.lower_name()?;
        if self.cursor.token().is(b'.') {
            return None; // a structured variable (key cache) or a trigger's NEW.column
        }
        self.assigned(scope.target(name))
    }

    fn scope(&mut self) -> Scope {
        let Some(scope) = Scope::of(self.cursor.kw()) else {
            return Scope::Unsaid;
        };
        self.cursor.bump();
        self.sticky_global = scope != Scope::Session;
        scope
    }

    /// The forms without `=`; `None` when this is not one of them.
    fn special(&mut self) -> Option<Option<Assignment>> {
        let mut ahead = self.cursor.clone();
        ahead.bump();
        if ahead.token().is(b'=') || ahead.kind() == TokenKind::Assign {
            return None;
        }
        if self.cursor.eat(Kw::Names) {
            return Some(self.names());
        }
        let charset =
            self.cursor.eat(Kw::Charset) || self.cursor.eat_all(&[Kw::Character, Kw::Set]) || self.cursor.eat_all(&[Kw::Char, Kw::Set]);
        charset.then(|| self.character_set())
    }

    fn names(&mut self) -> Option<Assignment> {
        let charset = self.charset_name()?;
        let value = charset.clone().map_or(Value::Default, Value::Word);
        let collation = if self.cursor.eat(Kw::Collate) { self.charset_name()? } else { None };
        Some(Assignment { target: Target::Names { charset, collation }, value })
    }

    fn character_set(&mut self) -> Option<Assignment> {
        let charset = self.charset_name()?;
        let value = charset.clone().map_or(Value::Default, Value::Word);
        Some(Assignment { target: Target::CharacterSet(charset), value })
    }

    /// A character set or collation name, quoted or not; inner `None` for `DEFAULT`.
    fn charset_name(&mut self) -> Option<Option<String>> {
        if self.cursor.eat(Kw::Default) {
            return Some(None);
        }
        if self.cursor.kind() == TokenKind::String {
            let name = lower(&unquote_string(self.cursor.text(), self.mode))?;
            self.cursor.bump();
            return Some(Some(name));
        }
        self.cursor.lower_name().map(Some)
    }

    fn assigned(&mut self, target: Target) -> Option<Assignment> {
        let assigns = self.cursor.token().is(b'=') || self.cursor.kind() == TokenKind::Assign;
        if !assigns {
            return None;
        }
        self.cursor.bump();
        let value = self.value()?;
        Some(Assignment { target, value })
    }

    /// The value up to the next top-level comma or the end; `None` when there is none.
    fn value(&mut self) -> Option<Value> {
        let first = self.cursor.clone();
        let mut tokens = 0usize;
        let mut depth = 0usize;
        let mut end = 0;
        while !self.cursor.at_end() {
            let token = self.cursor.token();
            match token.kind {
                TokenKind::Punct(b',' | b';') if depth == 0 => break,
                TokenKind::Punct(b'(') => depth += 1,
                TokenKind::Punct(b')') => depth = depth.checked_sub(1)?,
                _ => {}
            }
            tokens += 1;
            end = token.end;
            self.cursor.bump();
        }
        match tokens {
            0 => None,
            1 => Some(self.single(first)),
            2 => Some(self.pair(first, end)),
            _ => Some(Value::Expression),
        }
    }

    fn single(&self, token: Cursor<'_>) -> Value {
        let text = token.text();
        match (token.kind(), token.kw()) {
            (TokenKind::Word, Kw::Default) => Value::Default,
            (TokenKind::Word, Kw::Null | Kw::True | Kw::False) | (TokenKind::Number | TokenKind::String | TokenKind::PrefixedString, _) => {
                literal(text)
            }
            (TokenKind::Word, _) => utf8(text).map_or(Value::Expression, Value::Word),
            (TokenKind::QuotedName, _) => utf8(&unquote_name(text)).map_or(Value::Expression, Value::Word),
            _ => Value::Expression,
        }
    }

    /// A signed number, or a string with a character set introducer.
    fn pair(&self, first: Cursor<'_>, end: usize) -> Value {
        let start = first.token().start;
        let signed = first.token().is(b'-') || first.token().is(b'+');
        let introduced = first.kind() == TokenKind::Word && first.text().starts_with(b"_");
        let mut second = first;
        second.bump();
        let fits = match second.kind() {
            TokenKind::Number => signed,
            TokenKind::String | TokenKind::PrefixedString => introduced,
            _ => false,
        };
        if fits { literal(self.sql.get(start..end).unwrap_or_default()) } else { Value::Expression }
    }
}

fn literal(text: &[u8]) -> Value {
    utf8(text).map_or(Value::Expression, Value::Literal)
}

fn global_transaction(traits: TransactionTraits) -> Vec<Assignment> {
    let set = |name: &str, value: &str| Assignment { target: Target::Global(name.to_owned()), value: Value::Word(value.to_owned()) };
    let isolation = traits.isolation.map(|level| set("transaction_isolation", &level));
    let read_only = traits.read_only.map(|on| set("transaction_read_only", if on { "ON" } else { "OFF" }));
    isolation.into_iter().chain(read_only).collect()
}

/// The user variables that a statement mentions, in lower case, each once; `None` when a name cannot be read.
pub fn user_variables(sql: &[u8], mode: LexMode) -> Option<Vec<String>> {
    let mut lexer = Lexer::new(sql, mode);
    let (mut names, mut met) = (Vec::new(), HashSet::new());
    loop {
        let token = lexer.token();
        match token.kind {
            TokenKind::End => return Some(names),
            TokenKind::UserVariable => {
                let name = user_variable_name(token.text(sql), mode)?;
                if met.insert(name.clone()) {
                    names.push(name);
                }
            }
            _ => {}
        }
    }
}

/// The name in `@name`, `` @`name` ``, `@'name'`; lower case, as such names ignore case.
pub(crate) fn user_variable_name(text: &[u8], mode: LexMode) -> Option<String> {
    let name = text.get(1..)?;
    match name.first()? {
        b'`' => lower(&unquote_name(name)),
        b'\'' | b'"' => lower(&unquote_string(name, mode)),
        _ => lower(name),
    }
}
