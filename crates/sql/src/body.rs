//! Whether the definition of a stored program is all of its text. A server ends it by its grammar and continues behind the `;`. Without the
//! grammar that end is only certain if the body is a `BEGIN ... END` that is understood.

use crate::facts::Facts;
use crate::keywords::{Kw, lookup};
use crate::token::{Lexer, Token, TokenKind};

/// Is the text that `rest` reads on, behind `CREATE PROCEDURE` and the like, surely one definition? What may follow is `;`.
pub(crate) fn is_all(object: Kw, rest: Lexer<'_>) -> bool {
    let mut reader = Reader { sql: rest.sql(), lexer: rest, object, last: None, last_kw: Kw::None, parentheses: 0 };
    match reader.head() {
        Head::Whole => true,
        // Some servers skip some version comments.
        Head::Body => reader.body() && reader.ends(true) && !reader.lexer.comments_met().intersects(Facts::VERSIONED | Facts::TORN),
        Head::Ended => reader.ends(false),
    }
}

/// The part behind the head of a definition.
enum Head {
    /// The end of the text.
    Whole,
    /// `BEGIN`, which is read, and surely begins the body.
    Body,
    /// A `;`, which is read; before it perhaps a body of another sort.
    Ended,
}

/// An open construct in a body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    /// A block: `BEGIN`, which ends with `END`.
    Block,
    /// The statement `CASE`, which ends with `END CASE`.
    Case,
    /// The expression `CASE`.
    Choice,
}

/// How deep a body is understood.
const DEEPEST: usize = 32;

struct Reader<'a> {
    sql: &'a [u8],
    lexer: Lexer<'a>,
    object: Kw,
    last: Option<Token>,
    last_kw: Kw,
    parentheses: usize,
}

impl Reader<'_> {
    /// The next token, and the keyword that it is: not behind a dot.
    fn next(&mut self) -> (Token, Kw) {
        let token = self.lexer.token();
        let is_word = token.kind == TokenKind::Word && !self.is_behind(b'.');
        match token.kind {
            TokenKind::Punct(b'(') => self.parentheses += 1,
            TokenKind::Punct(b')') => self.parentheses = self.parentheses.saturating_sub(1),
            _ => {}
        }
        (token, if is_word { lookup(token.text(self.sql)) } else { Kw::None })
    }

    fn pass(&mut self, token: Token, kw: Kw) {
        (self.last, self.last_kw) = (Some(token), kw);
    }

    fn is_behind(&self, punct: u8) -> bool {
        self.last.is_some_and(|last| last.is(punct))
    }

    fn last_is(&self, words: &[&str]) -> bool {
        self.last.is_some_and(|last| self.is(&last, words))
    }

    fn is(&self, token: &Token, words: &[&str]) -> bool {
        token.kind == TokenKind::Word && words.iter().any(|word| token.text(self.sql).eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Reads on to the body.
    fn head(&mut self) -> Head {
        // Only what may stand between the parameters and the body was read since they ended.
        let mut is_ready = false;
        let mut is_decided = false;
        loop {
            let (token, kw) = self.next();
            match token.kind {
                TokenKind::End => return Head::Whole,
                TokenKind::Punct(b';') => return Head::Ended,
                _ if is_ready && kw == Kw::Begin && self.parentheses == 0 => return Head::Body,
                _ if is_ready => is_ready = self.parentheses > 0 || token.is(b')') || self.stands_before_body(&token),
                _ if is_decided => {}
                _ => {
                    is_ready = self.makes_ready(&token);
                    is_decided = is_ready;
                }
            }
            self.pass(token, kw);
        }
    }

    /// Whether a body may follow this token.
    fn makes_ready(&self, token: &Token) -> bool {
        match self.object {
            Kw::Procedure | Kw::Function => token.is(b')') && self.parentheses == 0,
            Kw::Trigger => self.is(token, &["row"]) && self.last_is(&["each"]),
            Kw::Event => self.is(token, &["do"]),
            _ => false,
        }
    }

    /// May this stand between what [`Self::makes_ready`] and the body? No statement begins with such a word.
    fn stands_before_body(&self, token: &Token) -> bool {
        const OF_ROUTINES: &[&str] = &[
            "comment",
            "language",
            "sql",
            "not",
            "deterministic",
            "contains",
            "no",
            "reads",
            "modifies",
            "data",
            "security",
            "definer",
            "invoker",
            "returns",
            "unsigned",
            "signed",
            "zerofill",
            "precision",
            "varying",
            "charset",
            "character",
            "collate",
            "binary",
            "ascii",
            "unicode",
            "byte",
            "varchar",
            "char",
        ];
        let is_name = matches!(token.kind, TokenKind::Word | TokenKind::QuotedName);
        let is_label = is_name && self.lexer.clone().token().is(b':') || token.is(b':');
        is_label
            || match self.object {
                Kw::Trigger => self.is(token, &["follows", "precedes"]) || is_name && self.last_is(&["follows", "precedes"]),
                Kw::Procedure | Kw::Function => {
                    self.is(token, OF_ROUTINES)
                        || token.kind == TokenKind::String
                        || self.is(token, &["set"]) && self.last_is(&["character"])
                        || is_name && self.last_is(&["returns", "charset", "set", "collate"])
                }
                _ => false,
            }
    }

    /// Reads the body behind its BEGIN, with its END; false if it is not understood.
    fn body(&mut self) -> bool {
        let mut open = [Open::Block; DEEPEST];
        let mut depth = 1;
        let mut is_start = true;
        // Only conditions were read since `HANDLER FOR`; a WHILE waits for its DO.
        let (mut handles, mut waits) = (false, false);
        (self.last, self.last_kw) = (None, Kw::Begin);
        loop {
            let (token, kw) = self.next();
            let in_choice = open[depth - 1] == Open::Choice;
            let mut starts = false;
            let mut opens = None;
            match kw {
                _ if token.kind == TokenKind::End => return false,
                Kw::Begin if is_start || handles && self.last_kw != Kw::For && !self.is_behind(b',') => {
                    opens = Some(Open::Block);
                    starts = true;
                }
                Kw::Case if self.last_is(&["end"]) => {}
                Kw::Case if is_start => opens = Some(Open::Case),
                Kw::Case => opens = Some(Open::Choice),
                Kw::Then | Kw::Else => starts = !in_choice,
                Kw::Loop | Kw::Repeat => starts = is_start,
                Kw::While if is_start => waits = true,
                Kw::Do if waits && !is_start && self.parentheses == 0 => (starts, waits) = (true, false),
                _ if self.is(&token, &["end"]) && !self.is_behind(b'.') => match self.end(open[depth - 1], is_start) {
                    None => return false,
                    Some(false) => {}
                    Some(true) => {
                        depth -= 1;
                        if depth == 0 {
                            return true;
                        }
                    }
                },
                _ if token.is(b';') && in_choice => return false,
                _ if token.is(b';') => (starts, waits) = (true, false),
                // `label: BEGIN`
                _ if token.is(b':') => starts = true,
                _ => {}
            }
            if let Some(one) = opens {
                let Some(place) = open.get_mut(depth) else { return false };
                *place = one;
                depth += 1;
            }
            handles = match kw {
                Kw::For => self.last_kw == Kw::Handler,
                _ => handles && self.is_condition(&token),
            };
            is_start = starts;
            self.pass(token, kw);
        }
    }

    /// Whether the `END` just read closes the innermost construct. None if that is uncertain.
    fn end(&mut self, open: Open, is_start: bool) -> Option<bool> {
        if open == Open::Choice {
            return self.ends_value().then_some(true);
        }
        if !is_start {
            // A name.
            return Some(false);
        }
        let next = self.lexer.clone().token();
        let next = if next.kind == TokenKind::Word { lookup(next.text(self.sql)) } else { Kw::None };
        match (next, open) {
            (Kw::If | Kw::Loop | Kw::Repeat | Kw::While | Kw::For, _) => Some(false),
            (Kw::Case, Open::Case) => Some(true),
            (Kw::Case, _) | (_, Open::Case) => None,
            _ => Some(true),
        }
    }

    /// Was a value read last, so that no name can follow?
    fn ends_value(&self) -> bool {
        let Some(last) = self.last else { return false };
        match last.kind {
            TokenKind::Word => matches!(self.last_kw, Kw::None | Kw::Null | Kw::True | Kw::False),
            TokenKind::Punct(byte) => byte == b')',
            TokenKind::Assign | TokenKind::End => false,
            _ => true,
        }
    }

    /// May this stand among the conditions of a handler?
    fn is_condition(&self, token: &Token) -> bool {
        match token.kind {
            TokenKind::String | TokenKind::Number | TokenKind::Punct(b',') => true,
            // A name is one by itself.
            TokenKind::Word | TokenKind::QuotedName => {
                self.is(token, &["sqlexception", "sqlwarning", "sqlstate", "value", "not", "found"])
                    || self.last_kw == Kw::For
                    || self.is_behind(b',')
            }
            _ => false,
        }
    }

    /// Does nothing follow but `;`? With `labelled`, a label may stand before it.
    fn ends(&mut self, labelled: bool) -> bool {
        let mut token = self.lexer.token();
        if labelled && matches!(token.kind, TokenKind::Word | TokenKind::QuotedName) {
            token = self.lexer.token();
        }
        while token.is(b';') {
            token = self.lexer.token();
        }
        token.kind == TokenKind::End
    }
}
