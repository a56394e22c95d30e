//! The digest text, and the key under which it is remembered.

use sql::{DigestOptions, Grouping, LexMode, analyze, digest_text, spooky_hash64};

use crate::input::Input;

/// The input: a byte for the options, one for the place of a change (in 256ths of the text), one for its length, then the
/// text; the change comes from the text's end.
pub fn check(data: &[u8]) {
    let mut input = Input::new(data);
    let (flags, place, len) = (input.byte(), usize::from(input.byte()), usize::from(input.byte()));
    let text = input.rest();
    every_option(text, flags);
    idempotent(text);
    let (text, change) = text.split_at(text.len() - (len % 8).min(text.len()));
    let at = text.len() * place / 256;
    key_decides(text, &[&text[..at], change, &text[at..]].concat());
}

fn digest(text: &[u8], options: &DigestOptions) -> Vec<u8> {
    let mut out = Vec::new();
    digest_text(text, options, &mut out);
    out
}

fn every_option(text: &[u8], flags: u8) {
    let on = |bit: u8| flags & bit != 0;
    let lex = LexMode { ansi_quotes: on(16), no_backslash_escapes: on(32), ..LexMode::default() };
    let grouping = if on(64) { Grouping { values: 1, rows: 0 } } else { Grouping { values: 2, rows: 1 } };
    let max_query_length = if on(128) { 16 } else { 16 + text.len() / 2 };
    let options =
        DigestOptions { lowercase: on(1), replace_null: on(2), no_digits: on(4), keep_comment: on(8), lex, max_query_length, grouping };
    let mut out = b"before".to_vec();
    digest_text(text, &options, &mut out);
    let written = out.strip_prefix(b"before").expect("what was there before");
    assert!(written.len() <= max_query_length);
    assert_eq!(written, digest(text, &options), "what was there before counts");
    let whole = digest(text, &DigestOptions { max_query_length: usize::MAX, ..options });
    let digested = sql::digest(text, &options);
    assert_eq!((digested.hash, digested.len), (spooky_hash64(&whole, 0), whole.len() as u64));
}

fn idempotent(text: &[u8]) {
    let options = DigestOptions::default();
    let once = digest(text, &options);
    // What now follows `--` may make it a comment, and `...2` holds a number.
    let excused = |part: &[u8]| once.windows(part.len()).any(|window| window == part);
    if !excused(b"--") && !excused(b"...") {
        assert_eq!(String::from_utf8_lossy(&digest(&once, &options)), String::from_utf8_lossy(&once));
    }
}

/// Equal keys mean equal texts.
fn key_decides(left: &[u8], right: &[u8]) {
    let (mode, options) = (LexMode::default(), DigestOptions::default());
    if analyze(left, mode).digest == analyze(right, mode).digest {
        assert_eq!(
            String::from_utf8_lossy(&digest(left, &options)),
            String::from_utf8_lossy(&digest(right, &options)),
            "{:?} and {:?} have one key",
            String::from_utf8_lossy(left),
            String::from_utf8_lossy(right)
        );
    }
}
