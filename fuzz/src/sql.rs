//! SQL text under every `sql_mode` that matters: the analysis, the parsers of single statements, and rewriting.

use std::cell::RefCell;

use sql::{Builtins, Fact, Facts, Kind, LexMode, Lexer, MultiByte, TokenKind};

/// Modes that change how text is read: each alone, and some together.
#[must_use]
pub fn modes() -> [LexMode; 10] {
    let plain = LexMode::default();
    let of = |multi_byte| LexMode { multi_byte, ..plain };
    [
        plain,
        LexMode { no_backslash_escapes: true, ..plain },
        LexMode { ansi_quotes: true, oracle: true, ..plain },
        LexMode { ansi_quotes: true, no_backslash_escapes: true, ..of(MultiByte::Sjis) },
        of(MultiByte::Sjis),
        of(MultiByte::Gbk),
        of(MultiByte::Big5),
        of(MultiByte::Gb18030),
        LexMode { ignore_space: true, ..of(MultiByte::Latin1) },
        LexMode { builtins: Builtins::MariaDb, ..of(MultiByte::Cp866) },
    ]
}

/// Tokens, analysis and splitting. The input is the text.
pub fn analyze(text: &[u8]) {
    for mode in modes() {
        tokens(text, mode);
        let analysis = sql::analyze(text, mode);
        if let Some(shape) = sql::shape_of(text, mode) {
            assert_eq!(sql::analyze(&shape, mode), analysis);
        }
        let parts: Vec<&[u8]> = sql::split(text, mode).collect();
        assert_eq!(parts.is_empty(), analysis.kind == Kind::Empty);
        assert_eq!(parts.len() > 1, analysis.facts.contains(Facts::MULTI));
        if let Some(first) = parts.first() {
            // Alone, a final `--` is a comment.
            assert!(first.ends_with(b"--") || sql::analyze(first, mode).kind == analysis.kind, "{analysis:?}");
        }
        assert!(parts.iter().map(|part| part.len() + 1).sum::<usize>() <= text.len() + 1);
        let _ = sql::first_comment(text, mode).inspect(|comment| assert!(comment.len() <= 1023));
    }
}

fn tokens(text: &[u8], mode: LexMode) {
    let (mut lexer, mut at) = (Lexer::new(text, mode), 0);
    loop {
        let token = lexer.token();
        assert!(token.start >= at && token.end <= text.len());
        if token.kind == TokenKind::End {
            return;
        }
        assert!(token.end > token.start);
        at = token.end;
    }
}

/// The parsers of single statements. The input is the text.
pub fn parsers(text: &[u8]) {
    for mode in modes() {
        let _ = sql::parse_set(text, mode);
        let _ = sql::parse_set_transaction(text, mode);
        let _ = sql::parse_use(text, mode);
        let _ = sql::parse_kill(text, mode, 1);
        let _ = sql::parse_transaction(text, mode);
        let _ = sql::temporary_tables(text, mode);
        let _ = sql::user_variables(text, mode);
        let _ = sql::names_table(text, mode, |_, name| {
            assert!(name.len() <= text.len());
            false
        });
        let _ = sql::lock_names(text, mode);
        let _ = sql::prepared_name(text, mode);
        let _ = sql::single_fact_select(text, mode);
    }
}

/// Session facts put into the text, and what the text proves about an insert id. The input is the text.
pub fn rewrite(text: &[u8]) {
    for mode in modes() {
        substitute(text, mode);
        insert_id(text, mode);
    }
}

fn substitute(text: &[u8], mode: LexMode) {
    let asked = RefCell::new(Vec::new());
    let value = |fact: Fact| {
        asked.borrow_mut().push(fact);
        Some(if fact == Fact::RowCount { -1 } else { 42 })
    };
    let once = sql::substitute_facts(text, mode, value);
    let mut replaced = asked.take();
    if replaced.is_empty() {
        assert_eq!(once, text);
    }
    assert_eq!(sql::substitute_facts(text, mode, |_| None), text, "what is not known is left to the server");
    // These are still said, where nobody asks for them.
    replaced.retain(|fact| matches!(fact, Fact::FoundRows | Fact::RowCount));
    sql::substitute_facts(&once, mode, value);
    assert_eq!(asked.take(), replaced, "facts are left in {:?}", String::from_utf8_lossy(&once));
}

/// An id that stands in the text is not proven to be the server's.
fn insert_id(text: &[u8], mode: LexMode) {
    let mut lexer = Lexer::new(text, mode);
    assert!(!sql::insert_id_is_certain(text, mode, 0));
    let _ = sql::insert_id_is_certain(text, mode, 7);
    loop {
        let token = lexer.token();
        if token.kind == TokenKind::End {
            return;
        }
        let number = std::str::from_utf8(token.text(text)).ok().and_then(|text| text.parse().ok());
        if let (TokenKind::Number, Some(id)) = (token.kind, number) {
            assert!(!sql::insert_id_is_certain(text, mode, id), "{id} is in the text");
        }
    }
}
