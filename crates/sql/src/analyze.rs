//! The hot path: one pass over a statement for its kind, its facts and its key.
//!
//! No allocation; the cost is a few nanoseconds a token, and a `memchr` over literals.

use crate::digest::Grouping;
use crate::facts::Facts;
use crate::key::Key;
use crate::keywords::{Kw, fold_head, head_at, lookup, lookup_with};
use crate::kind::{Class, Kind, classify};
use crate::token::{Builtins, LexMode, Lexer, Token, TokenKind};
use crate::versions;

/// The result of one pass over the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Analysis {
    /// The kind of the first statement.
    pub kind: Kind,
    /// The facts of all statements in the text.
    pub facts: Facts,
    /// Hash of the normalised text. Two statements with equal values have the same digest text
    /// (under the same [`Grouping`]); it is not the digest that operators see.
    pub digest: u64,
}

impl Analysis {
    /// Of no statement.
    pub const NONE: Self = Self { kind: Kind::Other, facts: Facts::NONE, digest: 0 };

    /// Of a command that is no statement, by its byte.
    #[must_use]
    pub const fn of_command(byte: u8) -> Self {
        Self { digest: byte as u64, ..Self::NONE }
    }
}

/// Analyzes `sql` with the default grouping limits.
#[inline]
pub fn analyze(sql: &[u8], mode: LexMode) -> Analysis {
    analyze_with(sql, mode, Grouping::default())
}

/// Analyzes `sql`; `grouping` must be the one that digest texts are made with.
pub fn analyze_with(sql: &[u8], mode: LexMode, grouping: Grouping) -> Analysis {
    let mut scan = Scan::new(sql, mode, grouping);
    while scan.step() {}
    scan.finish()
}

/// Whether a statement stands partly in a version comment that some servers skip. They run the rest, which is another statement:
/// `/*M!999999 a */ SET @x = 1` has no verb here, and is a SET there. A statement within a single such comment runs whole or not at all.
/// The rest of a data definition is mostly one, too: [`versions`].
struct Versions<'a> {
    lexer: Lexer<'a>,
    begun_in: Option<Option<usize>>,
}

impl Versions<'_> {
    /// Reads one token; the answer once it is known.
    fn step(&mut self) -> Option<bool> {
        let token = self.lexer.token();
        match token.kind {
            TokenKind::End => return Some(false),
            TokenKind::Punct(b';') => {
                self.begun_in = None;
                self.lexer.end_statement();
            }
            _ if *self.begun_in.get_or_insert(self.lexer.skipped_comment()) != self.lexer.skipped_comment() => return Some(true),
            _ => {}
        }
        None
    }
}

/// [`analyze_with`] for a long text in pieces. Between two pieces the caller can serve other sessions.
pub struct AnalysisInTurns<'a> {
    scan: Scan<'a>,
    /// Once the scan is over, where the text asks for a second reading.
    versions: Option<Versions<'a>>,
}

impl<'a> AnalysisInTurns<'a> {
    /// Reads nothing yet.
    #[must_use]
    pub fn new(sql: &'a [u8], mode: LexMode, grouping: Grouping) -> Self {
        Self { scan: Scan::new(sql, mode, grouping), versions: None }
    }

    /// Reads on for so many bytes, and to the end of the token there; the analysis once all was read.
    pub fn turn(&mut self, bytes: usize) -> Option<Analysis> {
        if self.versions.is_none() {
            let end = self.scan.lexer.position().saturating_add(bytes);
            while self.scan.step() {
                if self.scan.lexer.position() >= end {
                    return None;
                }
            }
            if !self.scan.may_be_split() {
                return Some(self.scan.analysis(false));
            }
        }
        let scan = &self.scan;
        let versions = self.versions.get_or_insert_with(|| scan.versions());
        let end = versions.lexer.position().saturating_add(bytes);
        loop {
            if let Some(is_split) = versions.step() {
                return Some(scan.analysis(is_split));
            }
            if versions.lexer.position() >= end {
                return None;
            }
        }
    }
}

pub(crate) struct Scan<'a> {
    sql: &'a [u8],
    pub(crate) lexer: Lexer<'a>,
    key: Key,
    pub(crate) facts: Facts,
    first: Option<Kind>,
    /// The statement that is being read; `None` before its first word.
    current: Option<Class>,
    /// A `;` ended the first statement.
    ended: bool,
    last: TokenKind,
    last_kw: Kw,
    last_end: usize,
    /// The keyword before the (qualified) name that is being read.
    lead: Kw,
    qualified: bool,
    /// A query was met inside a data definition.
    query_met: bool,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(sql: &'a [u8], mode: LexMode, grouping: Grouping) -> Self {
        Scan {
            sql,
            lexer: Lexer::new(sql, mode),
            key: Key::new(grouping),
            facts: Facts::NONE,
            first: None,
            current: None,
            ended: false,
            last: TokenKind::End,
            last_kw: Kw::None,
            last_end: 0,
            lead: Kw::None,
            qualified: false,
            query_met: false,
        }
    }

    fn finish(self) -> Analysis {
        let is_split = self.may_be_split() && self.is_split();
        let facts = self.all_facts(is_split);
        Analysis { kind: self.first.unwrap_or(Kind::Empty), facts, digest: self.key.finish() }
    }

    /// Has to be read again, for [`Versions`]?
    fn may_be_split(&self) -> bool {
        let comments = self.lexer.comments_met();
        comments.contains(Facts::VERSIONED) && !comments.contains(Facts::TORN)
    }

    fn versions(&self) -> Versions<'a> {
        Versions { lexer: Lexer::new(self.sql, self.lexer.mode()), begun_in: None }
    }

    #[cold]
    fn is_split(&self) -> bool {
        let mut versions = self.versions();
        loop {
            if let Some(is_split) = versions.step() {
                return is_split;
            }
        }
    }

    fn all_facts(&self, is_split: bool) -> Facts {
        // The rest of a data definition is mostly a data definition, too.
        let is_alike = || self.first == Some(Kind::Ddl) && self.facts.is_quiet() && versions::defines_in_each(self.sql, self.lexer.mode());
        let torn = if is_split && !is_alike() { Facts::TORN } else { Facts::NONE };
        self.facts | self.lexer.comments_met() | torn
    }

    /// As [`Self::finish`], with the result of a second reading.
    fn analysis(&self, is_split: bool) -> Analysis {
        let facts = self.all_facts(is_split);
        Analysis { kind: self.first.unwrap_or(Kind::Empty), facts, digest: self.key.clone().finish() }
    }

    /// Reads one token; false at the end.
    #[inline]
    pub(crate) fn step(&mut self) -> bool {
        let token = self.lexer.token_inline();
        let mut kw = Kw::None;
        match token.kind {
            TokenKind::End => return false,
            TokenKind::Word => kw = self.word(&token),
            TokenKind::Number | TokenKind::String => self.value(&token),
            TokenKind::Placeholder => {
                self.facts |= Facts::PLACEHOLDER;
                self.value(&token);
            }
            TokenKind::Punct(byte) => self.punct(byte, &token),
            TokenKind::QuotedName => kw = self.quoted_name(&token),
            TokenKind::UserVariable => self.user_variable(&token),
            TokenKind::SystemVariable => self.system_variable(&token),
            TokenKind::PrefixedString => {
                self.begin_other();
                let prefix = u64::from(self.sql[token.start]);
                self.key.word(prefix, b"x", token.spaced, false);
                self.key.value(false);
            }
            TokenKind::Assign => self.assign(&token),
        }
        self.last = token.kind;
        self.last_kw = kw;
        self.last_end = token.end;
        true
    }

    fn kind(&self) -> Kind {
        self.current.map_or(Kind::Other, |class| class.kind)
    }

    #[inline]
    fn begin(&mut self, kw: Kw) {
        if self.current.is_none() {
            self.begin_statement(kw);
        }
    }

    #[inline(never)]
    fn begin_statement(&mut self, kw: Kw) {
        let class = classify(kw, &self.lexer);
        self.current = Some(class);
        self.first.get_or_insert(class.kind);
        self.query_met = false;
        if self.ended {
            self.facts |= Facts::MULTI;
        }
        if class.may_end {
            self.facts |= Facts::TORN;
        }
        match class.kind {
            // MariaDB's `ANALYZE INSERT`: rows come back, and no insert id.
            _ if kw == Kw::Analyze => self.facts |= Facts::RETURNING,
            Kind::Call => self.facts |= Facts::UNKNOWN_FUNCTION,
            Kind::GetDiagnostics => self.facts |= Facts::DIAGNOSTICS,
            _ => {}
        }
    }

    /// A statement that starts with something that is no word.
    #[inline]
    fn begin_other(&mut self) {
        if self.current.is_none() {
            self.begin(Kw::None);
        }
    }

    #[inline]
    fn word(&mut self, token: &Token) -> Kw {
        let head = head_at(self.sql, token.start, token.len());
        let text = token.text(self.sql);
        let joined = self.last == TokenKind::Punct(b'.');
        let kw = lookup_with(head, text);
        self.begin(kw);
        self.enter_name(joined);
        self.key.word(head, text, token.spaced, !joined && kw.precedes_value());
        if kw == Kw::None {
            if fold_head(head, token.len()) == SESSION {
                self.facts |= session_track(text);
            }
            if opens_dollar_quote(text) {
                self.facts |= Facts::TORN;
            }
            if joined && self.lexer.mode().oracle && [b"nextval", b"currval"].iter().any(|word| text.eq_ignore_ascii_case(*word)) {
                // `sequence.nextval`
                self.facts |= Facts::UNKNOWN_FUNCTION;
            }
        } else if !kw.has_no_role() {
            self.facts |= self.word_facts(kw);
            self.query_met |= kw == Kw::Select;
        }
        kw
    }

    #[inline]
    fn enter_name(&mut self, joined: bool) {
        self.qualified = joined;
        if !joined {
            self.lead = self.last_kw;
        }
    }

    #[inline]
    fn word_facts(&self, kw: Kw) -> Facts {
        match (kw, self.last_kw) {
            (Kw::SqlCalcFoundRows, _) => Facts::CALC_FOUND_ROWS,
            (Kw::Offset, _) => Facts::OFFSET,
            (Kw::Limit, _) => self.limit(),
            (Kw::Temporary, _) => Facts::TEMPORARY,
            (Kw::Update, Kw::For) | (Kw::Share, Kw::For | Kw::In) => Facts::LOCKING_READ,
            (Kw::Value, Kw::Previous) => Facts::UNKNOWN_FUNCTION,
            (Kw::Value, Kw::None) if self.last_is(b"next") => Facts::UNKNOWN_FUNCTION,
            (Kw::Variables, _) if self.kind() == Kind::Show => Facts::VARIABLES,
            (Kw::Outfile | Kw::Dumpfile, Kw::Into) => Facts::INTO_FILE,
            (Kw::Returning, _) if matches!(self.kind(), Kind::Insert | Kind::Replace) => Facts::RETURNING,
            _ if kw.is_variable_table() => Facts::VARIABLES,
            _ => Facts::NONE,
        }
    }

    /// `LIMIT 1, 2`
    #[inline(never)]
    fn limit(&self) -> Facts {
        let mut ahead = self.lexer.clone();
        ahead.token();
        if ahead.token().is(b',') { Facts::OFFSET } else { Facts::NONE }
    }

    fn last_is(&self, word: &[u8]) -> bool {
        let text = self.sql.get(..self.last_end).unwrap_or_default();
        text.len() >= word.len() && text[text.len() - word.len()..].eq_ignore_ascii_case(word)
    }

    #[inline]
    fn value(&mut self, token: &Token) {
        self.begin_other();
        self.key.value(token.spaced);
    }

    #[inline]
    fn punct(&mut self, byte: u8, token: &Token) {
        match byte {
            b'(' => {
                if self.current.is_some() {
                    let facts = self.call_facts(token);
                    self.facts |= facts;
                }
            }
            b';' => self.semicolon(),
            b'=' if self.last == TokenKind::UserVariable && self.kind() == Kind::Set => {
                self.facts |= Facts::USER_VARIABLE_ASSIGN;
            }
            _ => self.begin_other(),
        }
        self.key.punct(byte, token.spaced);
    }

    fn semicolon(&mut self) {
        match self.current {
            Some(class) if class.whole_text => {}
            current => {
                self.ended |= current.is_some();
                self.current = None;
                self.lexer.end_statement();
            }
        }
    }

    /// Facts of the function call whose `(` was met, if it is one.
    #[inline]
    fn call_facts(&mut self, parenthesis: &Token) -> Facts {
        match self.last {
            TokenKind::Word | TokenKind::QuotedName if !self.qualified => match self.last_kw {
                Kw::None => self.unknown_call(),
                Kw::LastInsertId => self.last_insert_id(),
                Kw::FoundRows => Facts::FOUND_ROWS,
                Kw::RowCount => Facts::ROW_COUNT,
                Kw::GetLock => Facts::GET_LOCK,
                Kw::ReleaseLock | Kw::ReleaseAllLocks => Facts::RELEASE_LOCK,
                Kw::ConnectionId => Facts::CONNECTION_ID,
                Kw::Values | Kw::Row => {
                    // `CREATE TABLE t AS VALUES (f())`
                    self.query_met = true;
                    Facts::NONE
                }
                Kw::Default if self.may_take_a_number() => self.unknown_call(),
                kw if kw.is_always_built_in() => Facts::NONE,
                kw => self.perhaps_stored(kw, parenthesis),
            },
            TokenKind::Word | TokenKind::QuotedName => self.unknown_call(),
            _ => Facts::NONE,
        }
    }

    /// Does `DEFAULT(column)` evaluate the column's default here? MariaDB does, and takes a number from a sequence where the default is
    /// `NEXTVAL(s)`. A change takes such numbers for any row, said or not.
    #[inline(never)]
    fn may_take_a_number(&self) -> bool {
        let reads = matches!(self.kind(), Kind::Select | Kind::Explain | Kind::Show | Kind::Do);
        reads && self.lexer.mode().builtins != Builtins::MySql
    }

    /// The same of a word that is not always built in.
    #[inline(never)]
    fn perhaps_stored(&self, kw: Kw, parenthesis: &Token) -> Facts {
        let between = self.sql.get(self.last_end..parenthesis.start).unwrap_or_default();
        if kw.may_be_stored(between, self.lexer.mode()) { self.unknown_call() } else { Facts::NONE }
    }

    /// `name (`: a stored function, unless the name is a table's, an index's or an alias.
    #[inline(never)]
    fn unknown_call(&self) -> Facts {
        let inserts = self.lead == Kw::HighPriority && matches!(self.kind(), Kind::Insert | Kind::Replace);
        let is_object = precedes_object(self.lead) || inserts;
        let no_calls = match self.kind() {
            Kind::Ddl | Kind::CreateTemporaryTable => !self.query_met,
            kind => kind == Kind::Grant,
        };
        if is_object || no_calls { Facts::NONE } else { Facts::UNKNOWN_FUNCTION }
    }

    #[inline(never)]
    fn last_insert_id(&self) -> Facts {
        let reads = self.lexer.clone().token().is(b')');
        if reads { Facts::LAST_INSERT_ID } else { Facts::LAST_INSERT_ID | Facts::LAST_INSERT_ID_SET }
    }

    #[inline]
    fn quoted_name(&mut self, token: &Token) -> Kw {
        self.begin_other();
        self.enter_name(self.last == TokenKind::Punct(b'.'));
        let head = head_at(self.sql, token.start, token.len());
        let text = token.text(self.sql);
        self.key.word(head, text, token.spaced, false);
        self.facts |= inner_name_facts(text);
        called_by_quoted_name(text)
    }

    #[inline(never)]
    fn user_variable(&mut self, token: &Token) {
        self.begin_other();
        self.raw(token);
        if self.is_account(token) {
            return;
        }
        self.facts |= Facts::USER_VARIABLE;
        let assigns = self.last_kw == Kw::Into || self.kind_assigns();
        if assigns {
            self.facts |= Facts::USER_VARIABLE_ASSIGN;
        }
    }

    fn kind_assigns(&self) -> bool {
        matches!(self.kind(), Kind::Call | Kind::LoadData | Kind::GetDiagnostics | Kind::Compound)
    }

    /// `user@host`: no variable.
    fn is_account(&self, token: &Token) -> bool {
        let touches = token.start == self.last_end && matches!(self.last, TokenKind::Word | TokenKind::QuotedName | TokenKind::String);
        let names_accounts = matches!(self.kind(), Kind::Grant | Kind::Ddl | Kind::Show | Kind::SetPassword | Kind::SetRole | Kind::Other);
        touches && names_accounts
    }

    #[inline(never)]
    fn system_variable(&mut self, token: &Token) {
        self.begin_other();
        self.raw(token);
        self.facts |= Facts::SYSTEM_VARIABLE;
        let name = variable_name(token.text(self.sql));
        self.facts |= match lookup(name) {
            Kw::LastInsertId | Kw::Identity => Facts::LAST_INSERT_ID,
            Kw::PseudoThreadId => Facts::CONNECTION_ID,
            Kw::WarningCount | Kw::ErrorCount => Facts::DIAGNOSTICS,
            _ => session_track(name),
        };
    }

    #[inline(never)]
    fn assign(&mut self, token: &Token) {
        self.begin_other();
        if self.last == TokenKind::UserVariable {
            self.facts |= Facts::USER_VARIABLE_ASSIGN;
        }
        self.key.punct(b':', token.spaced);
        self.key.punct(b'=', false);
    }

    /// Hashes a token as it is written.
    fn raw(&mut self, token: &Token) {
        let head = head_at(self.sql, token.start, token.len());
        self.key.word(head, token.text(self.sql), token.spaced, false);
    }
}

/// `$$`, `$tag$`: MySQL 9 reads a string up to the same once more, other servers a name.
#[inline]
fn opens_dollar_quote(word: &[u8]) -> bool {
    word.first() == Some(&b'$') && word[1..].contains(&b'$')
}

/// After this word a name before `(` is a table's, a column's or an alias.
pub(crate) fn precedes_object(kw: Kw) -> bool {
    matches!(
        kw,
        Kw::Into
            | Kw::Table
            | Kw::References
            | Kw::Insert
            | Kw::Replace
            | Kw::Ignore
            | Kw::Delayed
            | Kw::LowPriority
            | Kw::As
            | Kw::With
            | Kw::Recursive
    )
}

const SESSION: u64 = u64::from_le_bytes(*b"session\x7f");

fn session_track(name: &[u8]) -> Facts {
    const PREFIX: &[u8] = b"session_track";
    let hit = name.len() >= PREFIX.len() && name[..PREFIX.len()].eq_ignore_ascii_case(PREFIX);
    if hit { Facts::SESSION_TRACK } else { Facts::NONE }
}

/// A function of the server's that the proxy must know of may be called by its name in quotes.
pub(crate) fn called_by_quoted_name(quoted: &[u8]) -> Kw {
    let kw = quoted.get(1..quoted.len().saturating_sub(1)).map_or(Kw::None, lookup);
    match kw {
        Kw::LastInsertId | Kw::FoundRows | Kw::RowCount | Kw::GetLock | Kw::ReleaseLock | Kw::ReleaseAllLocks | Kw::ConnectionId => kw,
        _ => Kw::None,
    }
}

fn inner_name_facts(quoted: &[u8]) -> Facts {
    let Some(inner) = quoted.get(1..quoted.len().saturating_sub(1)) else {
        return Facts::NONE;
    };
    if lookup(inner).is_variable_table() { Facts::VARIABLES } else { session_track(inner) }
}

/// The last component of `@@scope.name`, without quotes.
pub(crate) fn variable_name(text: &[u8]) -> &[u8] {
    let name = text.get(2..).unwrap_or_default();
    let name = name.iter().rposition(|&byte| byte == b'.').map_or(name, |dot| &name[dot + 1..]).trim_ascii();
    name.strip_prefix(b"`").and_then(|name| name.strip_suffix(b"`")).unwrap_or(name)
}

/// May stand before a statement's first word.
#[inline]
pub(crate) fn is_opening(kind: TokenKind) -> bool {
    kind == TokenKind::Punct(b'(')
}
