//! What the text of a statement says of its effects on a session, as far as the server's word is not needed.

use crate::charsets;
use crate::routines::has_word;
use crate::setting::assignments;
use crate::wants::Wants;
use crate::words::{contains, contains_word};
use sql::{Analysis, Facts, Kind, LexMode, Lexer, MultiByte, Target, Token, TokenKind, Value};
use wire::reframe::ReplyFacts;

/// What a value that a text gives sql_mode may have in it, so that text is read in another way; combined modes too.
const MODES_OF_TEXT: [&[u8]; 8] = [b"ANSI", b"NO_BACKSLASH_ESCAPES", b"ORACLE", b"IGNORE_SPACE", b"MSSQL", b"DB2", b"MAXDB", b"POSTGRESQL"];

impl Wants {
    /// Does what assigns user variables change how text is read, or in which character set and collation it is?
    pub fn changes_its_text(&self, sql: &[u8], analysis: &Analysis, reply: &ReplyFacts, read_by: LexMode) -> bool {
        let decides = |name: &str| name == "sql_mode" || charsets::is_one(name);
        let changes = |assignment: sql::Assignment| match assignment.target {
            Target::Session(name) => decides(&name),
            Target::Names { .. } | Target::CharacterSet(_) => true,
            _ => false,
        };
        let is_told = || reply.variables.iter().any(|(name, _)| decides(name));
        // MariaDB does not tell of a SET that is written with @@.
        let is_said = || assignments(sql, analysis, read_by).into_iter().any(changes);
        analysis.facts.contains(Facts::USER_VARIABLE_ASSIGN) && (self.lex != read_by || is_told() || is_said())
    }

    /// Did one of several statements change how text is read? The session has the state from before them.
    pub fn is_read_anew(&self, sql: &[u8], reply: &ReplyFacts) -> bool {
        reply.variables.iter().any(|(name, value)| {
            let before = self.state.variables.get(name).map_or(&b""[..], |value| value);
            match &**name {
                "sql_mode" => [before, value].into_iter().any(reads_text),
                "character_set_client" => differ_on(sql, MultiByte::of(before), MultiByte::of(value)),
                _ => false,
            }
        })
    }

    /// The same of a SET that servers do not report: MariaDB none that is written with @@, and no server what the `clients` own
    /// tracking settings leave out.
    pub fn is_read_anew_untold(&self, sql: &[u8], clients: bool) -> bool {
        let names = [b"sql_mode".as_slice(), b"character_set_client"];
        let may_change = |one: &[u8]| clients || contains(one, b"@@") && names.iter().any(|name| contains(one, name));
        let text = |value: &Value| match value {
            Value::Literal(text) | Value::Word(text) => Some(text.trim_matches(['\'', '"']).to_owned()),
            Value::Default | Value::Expression => None,
        };
        let changes = |assignment: &sql::Assignment| match (&assignment.target, text(&assignment.value)) {
            (Target::Session(name), value) if name == "sql_mode" => value.is_none_or(|mode| {
                let before = self.state.variables.get(name).map_or(&b""[..], |value| value);
                reads_text(before) || may_read_text(mode.as_bytes())
            }),
            (Target::Session(name), value) if name == "character_set_client" => {
                value.is_none_or(|charset| differ_on(sql, self.lex.multi_byte, MultiByte::of(charset.as_bytes())))
            }
            (Target::Names { .. } | Target::CharacterSet(_), value) if clients => {
                value.is_none_or(|charset| differ_on(sql, self.lex.multi_byte, MultiByte::of(charset.as_bytes())))
            }
            _ => false,
        };
        sql::split(sql, self.lex)
            .filter(|one| may_change(one) && sql::analyze(one, self.lex).kind == Kind::Set)
            .any(|one| sql::parse_set(one, self.lex).is_none_or(|all| all.iter().any(changes)))
    }

    /// Does the text, where it is DROP DATABASE, name the session's own schema?
    pub fn drops_its_schema(&self, sql: &[u8]) -> bool {
        let word = |behind| verb(sql, self.lex, behind).unwrap_or_default();
        let own = || self.state.schema.as_deref().and_then(|schema| std::str::from_utf8(schema).ok());
        word(0) == "DROP" && ["DATABASE", "SCHEMA"].contains(&&*word(1)) && own().is_some_and(|own| has_word(sql, own))
    }

    /// Does the text say all that its statements may have done to the session's state, so that nothing needs to be reported? Not where
    /// other code may run: a table may have a trigger, or be a view that calls a function.
    pub fn is_told_by_text(&self, sql: &[u8], analysis: &Analysis) -> bool {
        let is_told = |one: &[u8], each: &Analysis| match each.kind {
            _ if each.facts.intersects(Facts::UNKNOWN_CODE) => false,
            Kind::Set => sql::parse_set(one, self.lex).is_some() && !sql::names_table(one, self.lex, |_, _| true),
            Kind::Select | Kind::Show | Kind::Explain | Kind::Do => {
                !sql::names_table(one, self.lex, |schema, table| !self.is_of_server(schema, table))
            }
            Kind::Use => !each.facts.contains(Facts::VERSIONED),
            kind => matches!(kind, Kind::Begin | Kind::Commit | Kind::Rollback),
        };
        if analysis.facts.contains(Facts::MULTI) {
            !analysis.facts.intersects(Facts::UNKNOWN_CODE)
                && sql::split(sql, self.lex).all(|one| is_told(one, &sql::analyze(one, self.lex)))
        } else {
            is_told(sql, analysis)
        }
    }
}

/// Does this value of sql_mode, as a server tells it, decide how text is read?
fn reads_text(sql_mode: &[u8]) -> bool {
    LexMode::SQL_MODES.iter().any(|word| contains_word(sql_mode, word.as_bytes()))
}

/// The same of a value as a text gives it: one that is no list of words (a number, a literal with an introducer) may be any.
fn may_read_text(sql_mode: &[u8]) -> bool {
    let is_list = sql_mode.iter().all(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b','));
    !is_list || MODES_OF_TEXT.iter().any(|word| contains(sql_mode, word))
}

/// Is this text perhaps another one in the other of these character sets?
fn differ_on(sql: &[u8], before: MultiByte, after: MultiByte) -> bool {
    before != after && !(before.reads_alike(sql) && after.reads_alike(sql))
}

/// Kinds of statements that leave the session's state alone, but for what stored code does.
pub fn changes_data_at_most(kind: Kind) -> bool {
    matches!(kind, Kind::Select | Kind::Insert | Kind::Update | Kind::Delete | Kind::Replace | Kind::Show | Kind::Explain)
}

/// The word of a statement behind this many tokens, in upper case; None when it is none, or in quotes.
pub fn verb(sql: &[u8], lex: sql::LexMode, behind: usize) -> Option<String> {
    let token = token_at(sql, lex, behind).filter(|token| token.kind == TokenKind::Word)?;
    Some(String::from_utf8_lossy(token.text(sql)).to_ascii_uppercase())
}

/// The token behind so many others; `;` ahead of them all does not count.
pub fn token_at(sql: &[u8], lex: sql::LexMode, behind: usize) -> Option<Token> {
    let mut lexer = Lexer::new(sql, lex);
    std::iter::from_fn(|| Some(lexer.token())).skip_while(|token| token.is(b';')).nth(behind)
}

/// May a user variable have other names? MySQL has one for those that differ by an accent only (`@é` is `@e`), and all servers read
/// names in the character set that the connection has when they are sent.
pub fn may_name_others(name: &str) -> bool {
    !name.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_may_be_another_in_another_character_set() {
        let [latin, central, gbk] = [&b"latin1"[..], b"cp1250", b"gbk"].map(MultiByte::of);
        let (ascii, blank) = (b"SELECT 'a'".as_slice(), b"SELECT\xa01".as_slice());
        for (text, before, after, expected) in [
            (ascii, latin, central, false),
            (blank, latin, central, true),
            (blank, latin, latin, false),
            (ascii, latin, gbk, true),
            (ascii, gbk, latin, true),
            (blank, gbk, gbk, false),
        ] {
            assert_eq!(differ_on(text, before, after), expected, "{text:?} in {before:?}, then {after:?}");
        }
    }

    #[test]
    fn a_variable_may_have_other_names_where_accents_count_for_nothing() {
        assert!(may_name_others("\u{e9}") && may_name_others("a\u{df}"));
        assert!(!may_name_others("e_1$") && !may_name_others(""));
    }
}
