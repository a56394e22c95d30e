//! The digest text: a statement with its literals replaced, as ProxySQL writes it.
//!
//! One pass that writes straight into the output and folds lists by truncating it.
//! Rules: ProxySQL 2.x documentation, "Query digest" (`mysql-query_digests_*` variables).
//! As there, a double-quoted text is a literal and backticks are not special. Unlike there, a backticked name with other than name
//! characters and blanks is copied unchanged. So a quote inside such a name cannot shift the literals after it. Under `ANSI_QUOTES`, which
//! ProxySQL does not know, a double-quoted text is a name and is copied too.

use crate::bytes::{Class, class, comment_end, is_dash_comment, is_name, is_variable, line_end, number, version_comment};
use crate::keywords::{Kw, lookup};
use crate::split::has_body;
use crate::spooky::SpookyStream;
use crate::token::{LexMode, TokenKind};

/// How many values and rows a list keeps before the rest becomes `...`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grouping {
    /// Values kept in a list (`query_digests_grouping_limit`), 1..=2089.
    pub values: usize,
    /// Rows kept (`query_digests_groups_grouping_limit`), 0..=2089; 0 keeps all.
    pub rows: usize,
}

impl Default for Grouping {
    fn default() -> Self {
        Grouping { values: 3, rows: 10 }
    }
}

/// The `mysql-query_digests_*` settings that change the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigestOptions {
    /// List limits.
    pub grouping: Grouping,
    /// Lower-case everything that is copied.
    pub lowercase: bool,
    /// `NULL` becomes `?`.
    pub replace_null: bool,
    /// Runs of digits inside words become `?`.
    pub no_digits: bool,
    /// Keep comments as they are.
    pub keep_comment: bool,
    /// Bytes of the text that are written. The hash of a [`Digested`] is that of the whole text.
    pub max_query_length: usize,
    /// How literals end. ProxySQL knows only the default mode.
    pub lex: LexMode,
}

impl Default for DigestOptions {
    fn default() -> Self {
        DigestOptions {
            grouping: Grouping::default(),
            lowercase: false,
            replace_null: false,
            no_digits: false,
            keep_comment: false,
            max_query_length: 65_000,
            lex: LexMode::default(),
        }
    }
}

/// Appends the digest text of `sql` to `out`.
pub fn digest_text(sql: &[u8], opts: &DigestOptions, out: &mut Vec<u8>) {
    let mut writer = Writer::new(sql, opts, out);
    while writer.step() {}
    writer.finish();
}

/// The result of [`digest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digested {
    /// [`spooky_hash64`](crate::spooky_hash64) of the whole digest text, with seed 0.
    pub hash: u64,
    /// The text's first [`DigestOptions::max_query_length`] bytes.
    pub text: Vec<u8>,
    /// Bytes of the whole text.
    pub len: u64,
}

/// Reads all of `sql`, however long, and keeps as much of the digest text as `opts` says. Beside that it takes memory for one token
/// and one run of signs or semicolons, not for the text.
pub fn digest(sql: &[u8], opts: &DigestOptions) -> Digested {
    const PIECE: usize = 16 << 10;
    digest_in_pieces(sql, opts, PIECE)
}

fn digest_in_pieces(sql: &[u8], opts: &DigestOptions, piece: usize) -> Digested {
    let whole = DigestOptions { max_query_length: usize::MAX, ..*opts };
    let mut out = Vec::new();
    let mut writer = Writer::new(sql, &whole, &mut out);
    let mut hash = SpookyStream::new(0);
    let mut digested = Digested { hash: 0, text: Vec::new(), len: 0 };
    let mut take = |text: &[u8]| {
        let room = opts.max_query_length.saturating_sub(digested.text.len());
        digested.text.extend_from_slice(text.get(..room).unwrap_or(text));
        digested.len += text.len() as u64;
        hash.add(text);
    };
    let mut full = piece;
    while writer.step() {
        if writer.out.len() >= full {
            let settled = writer.settled();
            take(&writer.out[..settled]);
            writer.forget(settled);
            full = writer.out.len() * 2 + piece;
        }
    }
    writer.finish();
    take(&out);
    digested.hash = hash.finish();
    digested
}

/// The content of the first plain `/* ... */` comment, blanks trimmed: where ProxySQL looks for
/// directives. At most 1023 bytes.
pub fn first_comment(sql: &[u8], mode: LexMode) -> Option<&[u8]> {
    let mut at = 0;
    while let Some(&byte) = sql.get(at) {
        at = match byte {
            b'\'' => mode.multi_byte.quoted_end(sql, at, byte, !mode.no_backslash_escapes),
            b'"' => mode.multi_byte.quoted_end(sql, at, byte, !mode.no_backslash_escapes && !mode.ansi_quotes),
            b'`' => mode.multi_byte.quoted_end(sql, at, byte, false),
            b'[' if mode.brackets => mode.multi_byte.quoted_end(sql, at, b']', false),
            0x80.. => mode.multi_byte.name_end(sql, at).max(at + 1),
            b'#' => line_end(sql, at),
            b'-' if is_dash_comment(sql, at, mode.multi_byte) => line_end(sql, at),
            b'/' if sql.get(at + 1) == Some(&b'*') => match version_comment(sql, at) {
                Some(content) => content,
                None => return comment_content(sql, at),
            },
            _ => at + 1,
        };
    }
    None
}

fn comment_content(sql: &[u8], open: usize) -> Option<&[u8]> {
    const LONGEST: usize = 1023;
    let text = sql.get(open + 2..comment_end(sql, open))?;
    let content = text.strip_suffix(b"*/")?;
    Some(content.get(..LONGEST).unwrap_or(content).trim_ascii())
}

/// The last part that was written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prev {
    Start,
    Open,
    Comma,
    /// `+ - * / %`.
    Arithmetic,
    /// Any other operator.
    Operator,
    Value,
    /// `(?,?,?,...)`.
    Row,
    Word {
        precedes_value: bool,
    },
    Other,
}

impl Prev {
    fn takes_sign(self) -> bool {
        match self {
            Prev::Start | Prev::Open | Prev::Comma | Prev::Arithmetic | Prev::Operator => true,
            Prev::Word { precedes_value } => precedes_value,
            Prev::Value | Prev::Row | Prev::Other => false,
        }
    }
}

/// State before a run of unary signs, to go back to when a value follows.
#[derive(Clone, Copy)]
struct Sign {
    len: usize,
    space: bool,
    prev: Prev,
}

struct Writer<'a> {
    sql: &'a [u8],
    opts: &'a DigestOptions,
    out: &'a mut Vec<u8>,
    base: usize,
    pos: usize,
    /// Blank space was read since the last token.
    space: bool,
    prev: Prev,
    /// Length of the output just after a `.` that joins names: digits there are a name.
    joining_dot: Option<usize>,
    sign: Option<Sign>,
    version_depth: usize,
    /// The start of the statement, and whether it has a body, so that no `;` ends it.
    statement: usize,
    has_body: Option<bool>,
    /// The backtick that closes the name being read.
    name_close: Option<usize>,
    depth: usize,
    /// Values in the current run, 0 when there is none, and where its first one stands.
    run: usize,
    run_start: usize,
    /// Only values and commas since the last `(`.
    pure: bool,
    /// The last comma follows a folded row; the current row follows such a comma.
    after_row: bool,
    in_chain: bool,
    rows: usize,
    row_end: usize,
}

impl<'a> Writer<'a> {
    fn new(sql: &'a [u8], opts: &'a DigestOptions, out: &'a mut Vec<u8>) -> Self {
        let base = out.len();
        Writer {
            sql,
            opts,
            out,
            base,
            pos: 0,
            space: false,
            prev: Prev::Start,
            joining_dot: None,
            sign: None,
            version_depth: 0,
            statement: 0,
            has_body: None,
            name_close: None,
            depth: 0,
            run: 0,
            run_start: 0,
            pure: false,
            after_row: false,
            in_chain: false,
            rows: 0,
            row_end: 0,
        }
    }

    /// Bytes of the output, from its beginning on, that nothing that follows can change. The last byte is not among them.
    fn settled(&self) -> usize {
        let tail = self.out.iter().rev().take_while(|byte| matches!(byte, b' ' | b';')).count();
        let mut end = self.out.len().saturating_sub(tail.max(1));
        if let Some(sign) = self.sign {
            end = end.min(sign.len);
        }
        if self.run > 0 {
            end = end.min(self.run_start);
        }
        let chain_goes_on = self.prev == Prev::Row || self.prev == Prev::Comma && self.after_row || self.in_chain && self.pure;
        if self.rows > 0 && chain_goes_on {
            end = end.min(self.row_end);
        }
        end
    }

    /// Takes the first bytes of the output away.
    fn forget(&mut self, len: usize) {
        self.out.drain(..len);
        self.row_end = self.row_end.saturating_sub(len);
        self.run_start = self.run_start.saturating_sub(len);
        self.joining_dot = self.joining_dot.and_then(|at| at.checked_sub(len));
        if let Some(sign) = &mut self.sign {
            sign.len = sign.len.saturating_sub(len);
        }
    }

    fn finish(self) {
        self.out.truncate(self.base + self.opts.max_query_length.min(self.out.len() - self.base));
        while self.out.len() > self.base && matches!(self.out.last(), Some(b' ' | b';')) {
            self.out.pop();
        }
    }

    /// Reads one token; false at the end or when the text is long enough.
    fn step(&mut self) -> bool {
        let Some(&byte) = self.sql.get(self.pos) else {
            return false;
        };
        let at = self.pos;
        match class(byte) {
            Class::Space => {
                self.space = true;
                self.pos += 1;
            }
            Class::Letter if self.opts.lex.multi_byte.is_blank(byte) => {
                self.space = true;
                self.pos += 1;
            }
            Class::Letter => self.word(self.opts.lex.multi_byte.name_end(self.sql, at)),
            Class::Digit => self.number(),
            Class::Quote | Class::DoubleQuote => self.string(byte),
            Class::Backtick => self.backtick(),
            Class::Bracket if self.opts.lex.brackets => self.bracket(),
            Class::Question => self.value(at + 1),
            Class::Comment if self.comment(byte) => {}
            Class::Dot if self.starts_number() => self.number(),
            Class::At if self.sql.get(at + 1).is_some_and(|&next| self.is_variable(next)) => self.user_variable(at + 1),
            _ => {
                if byte == b';' {
                    self.semicolon();
                }
                self.punct(byte);
            }
        }
        self.out.len() - self.base <= self.opts.max_query_length
    }

    /// The end of a statement is that of a version comment that is open.
    fn semicolon(&mut self) {
        let text = self.sql.get(self.statement..).unwrap_or_default();
        if !*self.has_body.get_or_insert_with(|| has_body(text, self.opts.lex)) {
            (self.statement, self.has_body) = (self.pos + 1, None);
            self.version_depth = 0;
        }
    }

    fn starts_number(&self) -> bool {
        !self.joins_names() && self.sql.get(self.pos + 1).is_some_and(u8::is_ascii_digit)
    }

    /// A `.` here belongs to the name before it.
    fn joins_names(&self) -> bool {
        let lex = self.opts.lex;
        let closes = |byte: &u8| *byte == b'`' || *byte == b']' && lex.brackets || *byte == b'"' && lex.ansi_quotes;
        let quoted = self.out.len() > self.base && self.out.last().is_some_and(closes);
        !self.space && (quoted || matches!(self.prev, Prev::Word { .. }))
    }

    /// Writes the space that was read, unless the rules drop it.
    fn gap(&mut self, dropped: bool) {
        let wanted = std::mem::take(&mut self.space) && !dropped;
        if wanted && !matches!(self.prev, Prev::Start | Prev::Open | Prev::Comma) {
            self.out.push(b' ');
        }
    }

    /// Ends any run: something other than a value, a comma or a sign comes.
    fn break_run(&mut self) {
        self.sign = None;
        self.run = 0;
        self.pure = false;
    }

    fn copy(&mut self, end: usize) {
        let text = self.sql.get(self.pos..end).unwrap_or_default();
        let from = self.out.len();
        if self.opts.no_digits {
            self.copy_without_digits(text);
        } else {
            self.out.extend_from_slice(text);
        }
        if self.opts.lowercase {
            self.out[from..].make_ascii_lowercase();
        }
        self.pos = end;
    }

    fn copy_without_digits(&mut self, text: &[u8]) {
        let mut in_digits = false;
        for &byte in text {
            let masks = byte.is_ascii_digit() && self.out.len() > self.base;
            if !masks {
                self.out.push(byte);
            } else if !in_digits {
                self.out.push(b'?');
            }
            in_digits = masks;
        }
    }

    fn word(&mut self, end: usize) {
        let text = self.sql.get(self.pos..end).unwrap_or_default();
        let kw = lookup(text);
        if kw == Kw::Null && self.opts.replace_null {
            return self.value(end);
        }
        self.break_run();
        self.gap(false);
        self.copy(end);
        self.prev = Prev::Word { precedes_value: kw.precedes_value() };
    }

    fn is_variable(&self, byte: u8) -> bool {
        is_variable(byte) && !self.opts.lex.multi_byte.is_blank(byte)
    }

    /// `@name`, dots included: they join nothing to it.
    fn user_variable(&mut self, name: usize) {
        let rest = self.sql.get(name..).unwrap_or_default();
        let end = rest.iter().position(|&byte| !self.is_variable(byte)).map_or(self.sql.len(), |len| name + len);
        self.break_run();
        self.gap(false);
        self.copy(end);
        self.prev = Prev::Word { precedes_value: false };
    }

    fn number(&mut self) {
        let len = self.out.len();
        let names_variable = !self.space && len > self.base && self.out.last() == Some(&b'@');
        // `a. .5`: the second dot begins a number, whatever the first one joins.
        let joined = self.joining_dot == Some(len) && self.sql.get(self.pos) != Some(&b'.');
        if names_variable || joined {
            return self.word(self.opts.lex.multi_byte.name_end(self.sql, self.pos));
        }
        match number(self.opts.lex.multi_byte.number_text(self.sql, self.pos), self.pos) {
            (TokenKind::Word, _) => self.word(self.opts.lex.multi_byte.name_end(self.sql, self.pos)),
            (_, end) => self.value(end),
        }
    }

    fn string(&mut self, quote: u8) {
        let lex = self.opts.lex;
        let is_name = quote == b'"' && lex.ansi_quotes;
        let end = lex.multi_byte.quoted_end(self.sql, self.pos, quote, !(lex.no_backslash_escapes || is_name));
        if is_name { self.quoted_name(end, quote) } else { self.value(end) }
    }

    /// A backtick opens a name, or closes one that is read like other text. The text behind an unclosed one is treated as a cut literal.
    fn backtick(&mut self) {
        if std::mem::take(&mut self.name_close) == Some(self.pos) {
            return self.punct(b'`');
        }
        let end = self.opts.lex.multi_byte.quoted_end(self.sql, self.pos, b'`', false);
        let inner = self.sql.get(self.pos + 1..end - 1).filter(|_| self.sql[end - 1] == b'`');
        let Some(inner) = inner else {
            return self.value(end);
        };
        if inner.iter().all(|&byte| is_name(byte) || matches!(byte, b' ' | b'.')) {
            self.name_close = Some(end - 1);
            return self.punct(b'`');
        }
        self.name_as_it_is(end);
    }

    /// `[name]`.
    fn bracket(&mut self) {
        let end = self.opts.lex.multi_byte.quoted_end(self.sql, self.pos, b']', false);
        self.quoted_name(end, b']');
    }

    /// A name that ends at `end` with `close`. The text behind an unclosed one is treated as a cut literal.
    fn quoted_name(&mut self, end: usize, close: u8) {
        if end > self.pos + 1 && self.sql[end - 1] == close { self.name_as_it_is(end) } else { self.value(end) }
    }

    fn name_as_it_is(&mut self, end: usize) {
        self.break_run();
        self.gap(false);
        self.copy(end);
        self.prev = Prev::Other;
    }

    /// Writes the placeholder of a literal that ends at `end`.
    fn value(&mut self, end: usize) {
        self.pos = end;
        if let Some(sign) = self.sign.take() {
            self.out.truncate(sign.len);
            self.space = sign.space;
            self.prev = sign.prev;
        }
        if self.prev == Prev::Comma && self.run > 0 {
            self.next_in_run();
        } else {
            self.gap(self.prev == Prev::Arithmetic);
            self.run = usize::from(self.depth > 0 && self.prev != Prev::Arithmetic);
            self.run_start = self.out.len();
            self.out.push(b'?');
        }
        self.space = false;
        self.prev = Prev::Value;
    }

    fn next_in_run(&mut self) {
        let keep = self.opts.grouping.values;
        self.run += 1;
        if self.run <= keep + 1 {
            self.out.push(b'?');
        } else if self.run == keep + 2 {
            self.out.truncate(self.run_start + 2 * keep);
            self.out.extend_from_slice(b"...");
        } else {
            self.out.pop();
        }
    }

    fn punct(&mut self, byte: u8) {
        match byte {
            b',' => self.comma(),
            b'(' => self.open(),
            b')' => self.close(),
            b'+' | b'-' if self.prev.takes_sign() => self.unary(byte),
            _ => self.other(byte),
        }
        self.pos += 1;
    }

    fn other(&mut self, byte: u8) {
        self.break_run();
        let joins = byte == b'.' && self.joins_names();
        let arithmetic = matches!(byte, b'+' | b'-' | b'*' | b'/' | b'%');
        self.gap(arithmetic && self.prev == Prev::Value);
        self.out.push(byte);
        self.joining_dot = joins.then_some(self.out.len());
        self.prev = match byte {
            _ if arithmetic => Prev::Arithmetic,
            b'=' | b'<' | b'>' | b'!' | b'|' | b'&' | b'^' | b'~' => Prev::Operator,
            _ => Prev::Other,
        };
    }

    fn unary(&mut self, byte: u8) {
        self.sign.get_or_insert(Sign { len: self.out.len(), space: self.space, prev: self.prev });
        self.gap(false);
        self.out.push(byte);
        self.prev = Prev::Arithmetic;
    }

    fn comma(&mut self) {
        self.sign = None;
        if self.prev != Prev::Value {
            self.run = 0;
            self.pure = false;
        }
        self.after_row = self.prev == Prev::Row;
        self.gap(true);
        self.out.push(b',');
        self.prev = Prev::Comma;
    }

    fn open(&mut self) {
        self.break_run();
        self.in_chain = self.prev == Prev::Comma && self.after_row;
        if !self.in_chain {
            self.rows = 0;
        }
        self.gap(false);
        self.out.push(b'(');
        self.depth += 1;
        self.pure = true;
        self.prev = Prev::Open;
    }

    fn close(&mut self) {
        let folded = self.pure && self.prev == Prev::Value && self.run > self.opts.grouping.values + 1;
        self.break_run();
        self.gap(true);
        self.out.push(b')');
        self.depth = self.depth.saturating_sub(1);
        self.prev = Prev::Other;
        if folded && self.opts.grouping.rows > 0 {
            self.end_row();
        }
    }

    fn end_row(&mut self) {
        let keep = self.opts.grouping.rows;
        self.prev = Prev::Row;
        self.rows = if self.in_chain { self.rows + 1 } else { 1 };
        if self.rows > keep {
            self.out.truncate(self.row_end);
        }
        if self.rows == keep + 1 {
            self.out.extend_from_slice(b",...");
        }
        self.row_end = self.out.len();
    }

    /// Reads a comment, or a version comment's opening or closing mark.
    fn comment(&mut self, byte: u8) -> bool {
        let at = self.pos;
        let end = match (byte, self.sql.get(at + 1)) {
            (b'#', _) => line_end(self.sql, at),
            (b'-', _) if is_dash_comment(self.sql, at, self.opts.lex.multi_byte) => line_end(self.sql, at),
            (b'/', Some(b'*')) => match version_comment(self.sql, at) {
                Some(content) => {
                    self.version_depth += 1;
                    return self.blank(content);
                }
                None => comment_end(self.sql, at),
            },
            (b'*', Some(b'/')) if self.version_depth > 0 => {
                self.version_depth -= 1;
                return self.blank(at + 2);
            }
            _ => return false,
        };
        if !self.opts.keep_comment {
            return self.blank(end);
        }
        self.break_run();
        self.gap(false);
        self.out.extend_from_slice(self.sql.get(at..end).unwrap_or_default());
        self.prev = Prev::Other;
        self.pos = end;
        true
    }

    fn blank(&mut self, end: usize) -> bool {
        self.space = true;
        self.pos = end;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spooky::spooky_hash64;
    use proptest::prelude::*;

    fn whole(sql: &[u8], opts: &DigestOptions) -> Vec<u8> {
        let mut text = Vec::new();
        digest_text(sql, &DigestOptions { max_query_length: usize::MAX, ..*opts }, &mut text);
        text
    }

    #[test]
    fn what_is_kept_is_cut_and_what_is_judged_is_not() {
        let opts = DigestOptions { max_query_length: 16, ..DigestOptions::default() };
        let said = |tail: &str| digest(format!("SELECT a, b, c FROM t WHERE x = 1{tail}").as_bytes(), &opts);
        assert_eq!(said("").text, b"SELECT a,b,c FRO");
        assert_eq!((said("").len, said(" ").hash), (31, spooky_hash64(b"SELECT a,b,c FROM t WHERE x = ?", 0)));
        assert_ne!(said("").hash, said(" UNION SELECT secret FROM u").hash);
        assert_eq!(said("").text, said(" UNION SELECT secret FROM u").text);
    }

    #[test]
    fn a_long_text_is_not_held() {
        let sql = [b"SELECT 1".to_vec(), b"+f(x),now(),(1,2,3,4,5,6),(7,8,9,10,11,12),-1".repeat(100_000)].concat();
        let digested = digest(&sql, &DigestOptions { max_query_length: 2_048, ..DigestOptions::default() });
        let text = whole(&sql, &DigestOptions::default());
        assert_eq!((digested.hash, digested.len), (spooky_hash64(&text, 0), text.len() as u64));
        assert_eq!(digested.text, text[..2_048]);
    }

    #[rustfmt::skip]
    const PIECES: &[&str] = &[
        "SELECT ", "a", "tbl_9", "1", "-1", "'x'", ",", ",", "(", ")", "(1,2,3,4,5,6)", ",(1,2,3,4,5,6)", ",(1,2,3,4,5,6)", "(1,2,3,4,5,-6),",
        "- ", "+", "*", "=", ".", ".5", "@", "@@", "@v.1", " ", ";", "; ", "`b`", "`c`.", "`d'e`", "/* c */", "/*!50000 ", "*/", "# x\n",
        "NULL", "LIMIT ", "IN ", "VALUES", "\"s\"", "?", "?,?,?,?,?",
    ];

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

        #[test]
        fn pieces_of_a_text_are_the_text(
            words in proptest::collection::vec(proptest::sample::select(PIECES), 0..80),
            piece in 1..12_usize,
            (values, rows) in (1..4_usize, 0..3_usize),
            (replace_null, no_digits, keep_comment) in any::<(bool, bool, bool)>(),
        ) {
            let sql = words.concat().into_bytes();
            let grouping = Grouping { values, rows };
            let opts = DigestOptions { grouping, replace_null, no_digits, keep_comment, ..DigestOptions::default() };
            let text = whole(&sql, &opts);
            let digested = digest_in_pieces(&sql, &opts, piece);
            prop_assert_eq!(String::from_utf8_lossy(&digested.text), String::from_utf8_lossy(&text));
            prop_assert_eq!((digested.hash, digested.len), (spooky_hash64(&text, 0), text.len() as u64));
        }
    }
}
