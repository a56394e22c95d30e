//! Character sets of a session: what a statement changed of them, and text that keeps its own.
//!
//! Servers tell of them only in part: a SET of one variable changes others, and results have a collation that no
//! variable shows. So a server is asked after each change ([`Session::ask_for_charsets`]); the collation of the results
//! is in the answer's column definitions. Values of user variables are kept in a form that means the same under every
//! character set and sql_mode ([`portable`]).

use super::Session;
use super::definition;
use super::guard::guarded;
use crate::memory::Change;
use crate::reframe::ReplyFacts;
use crate::state::{RESULTS_COLLATION, State, is_charset_name, is_wide};
use sql::{LexMode, MultiByte, Target};
use wire::charset::{self, Flavor};
use wire::codec::Reader;

/// One question for all that a change of one may have changed: a text as results have it, then the names in plain bytes.
const QUESTION: &str = "SELECT @@character_set_client,CAST(@@character_set_client AS BINARY),CAST(@@character_set_connection AS BINARY),\
    CAST(@@character_set_results AS BINARY),CAST(@@collation_connection AS BINARY)";
/// In the question's order, and what the answer's definitions say.
const ALL: [&str; 5] =
    ["character_set_client", "character_set_connection", "character_set_results", "collation_connection", RESULTS_COLLATION];

/// Is it one of the variables that decide how text travels?
pub fn is_one(name: &str) -> bool {
    ALL.contains(&name)
}

/// Did the statement change how text travels?
pub fn changed_by(reply: &ReplyFacts) -> bool {
    reply.error.is_none() && reply.variables.iter().any(|(name, _)| is_one(name))
}

/// Which variables an assignment decides, whatever their values were before; None when that depends on more than the
/// statement.
pub fn decided_by(target: &Target) -> Option<&'static [&'static str]> {
    match target {
        Target::Names { .. } => Some(&ALL),
        // The connection's character set becomes that of the schema.
        Target::CharacterSet(_) => None,
        Target::Session(name) => Some(match name.as_str() {
            "character_set_client" => &["character_set_client"],
            "character_set_results" => &["character_set_results", RESULTS_COLLATION],
            "character_set_connection" | "collation_connection" => &["character_set_connection", "collation_connection"],
            _ => &[],
        }),
        _ => Some(&[]),
    }
}

impl Session {
    /// Asks the held backend for the character sets in force, and notes them. False when there is no answer.
    pub(super) async fn ask_for_charsets(&mut self) -> bool {
        let Some(backend) = self.backend.as_mut() else { return false };
        let exchange = async {
            backend.send_query(QUESTION).await?;
            backend.collect(wire::reply::ReplyKind::Results, true, &self.worker.buffers).await
        };
        let Ok(reply) = guarded(&self.worker, &self.entry, exchange).await else { return false };
        let flavor = self.backend.as_ref().map_or(Flavor::MySql, |b| b.core.info.flavor);
        let Some(row) = reply.rows.first() else { return false };
        let mut values = Reader::new(row);
        let _as_results_have_it = values.lenenc_bytes();
        for name in ALL.iter().take(4) {
            // NULL (0xfb) is no string: results without a conversion.
            let value = values.lenenc_bytes().map(<[u8]>::to_vec).unwrap_or_default();
            self.set_variable(name, Some(&value));
        }
        let results = self.state.variables.get("character_set_results").is_some_and(|value| !value.is_empty());
        let collation =
            definition::all(&reply.raw).next().and_then(|first| charset::collation_in(flavor, first.collation)).filter(|_| results);
        self.set_variable(RESULTS_COLLATION, collation.map(|collation| collation.name.as_bytes()));
        true
    }

    /// Text is read from here on as the session's `character_set_client` has it.
    pub(super) fn read_client_charset(&mut self) {
        let charset = self.state.variables.get("character_set_client");
        self.lex.multi_byte = charset.map_or(MultiByte::Plain, |charset| MultiByte::of(charset));
    }

    /// Are results in a character set in which ASCII is not itself?
    pub(super) fn has_wide_results(&self) -> bool {
        self.state.variables.get("character_set_results").is_some_and(|charset| is_wide(charset))
    }

    /// The values now, of variables that a statement decides.
    pub(super) fn charset_changes(&self, names: &[&'static str]) -> Vec<Change> {
        let value = |name: &str| self.state.variables.get(name).cloned().unwrap_or_else(|| (*b"").into());
        names.iter().map(|name| ((*name).into(), value(name))).collect()
    }
}

/// Digits as plain bytes: MariaDB writes numbers too in the character set of the results.
pub fn narrow(digits: &[u8]) -> Option<String> {
    String::from_utf8(digits.iter().copied().filter(|byte| *byte != 0).collect()).ok()
}

/// ASCII in a character set in which it is not itself.
pub fn widened(text: &str, charset: &[u8]) -> Vec<u8> {
    let units = text.bytes();
    match charset {
        b"utf32" => units.flat_map(|byte| [0, 0, 0, byte]).collect(),
        b"utf16le" => units.flat_map(|byte| [byte, 0]).collect(),
        _ => units.flat_map(|byte| [0, byte]).collect(),
    }
}

/// Character sets in which a byte below 0x80 may be the second half of a character.
const AMBIGUOUS: &[&str] = &["big5", "gbk", "gb2312", "gb18030", "sjis", "cp932", "euckr", "ujis", "eucjpms"];

/// A literal in a form that means the same under every character set and sql_mode; None when that is not certain.
pub fn portable(literal: &str, lex: LexMode, state: &State) -> Option<String> {
    if !literal.contains(['\'', '"']) || is_of_digits(literal) {
        return Some(literal.to_owned());
    }
    let text = unquoted(literal, lex)?;
    let variable =
        |name| state.variables.get(name).and_then(|value| std::str::from_utf8(value).ok()).filter(|value| is_charset_name(value));
    let (client, connection) = (variable("character_set_client")?, variable("character_set_connection")?);
    let collation = variable("collation_connection")?;
    let ascii = text.is_ascii();
    if !ascii && AMBIGUOUS.contains(&client) {
        return None;
    }
    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    let same_bytes = client == connection || client == "binary" || ascii && !is_wide(connection.as_bytes());
    Some(match same_bytes {
        true => format!("_{connection} x'{hex}' COLLATE `{collation}`"),
        false => format!("CONVERT(_{client} x'{hex}' USING {connection}) COLLATE `{collation}`"),
    })
}

/// Is it `x'41'` or `b'01'`, perhaps with an introducer?
fn is_of_digits(literal: &str) -> bool {
    let is_word = |word: &str| word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let Some((before, rest)) = literal.split_once('\'') else { return false };
    let (introducer, sign) = before.split_at(before.len().saturating_sub(1));
    let introducer = introducer.trim_ascii_end();
    matches!(sign, "x" | "X" | "b" | "B")
        && (introducer.is_empty() || introducer.starts_with('_') && is_word(introducer) && introducer.len() + 1 < before.len())
        && rest.strip_suffix('\'').is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// What a string literal says, without its quotes and escapes.
fn unquoted(literal: &str, lex: LexMode) -> Option<String> {
    let quote = literal.chars().next().filter(|quote| *quote == '\'' || *quote == '"' && !lex.ansi_quotes)?;
    let mut rest = literal.strip_prefix(quote)?.strip_suffix(quote)?.chars();
    let mut text = String::with_capacity(literal.len());
    while let Some(character) = rest.next() {
        match character {
            '\\' if !lex.no_backslash_escapes => match rest.next()? {
                '0' => text.push('\0'),
                'b' => text.push('\u{8}'),
                'n' => text.push('\n'),
                'r' => text.push('\r'),
                't' => text.push('\t'),
                'Z' => text.push('\u{1a}'),
                // Kept for LIKE.
                wildcard @ ('%' | '_') => text.extend(['\\', wildcard]),
                other => text.push(other),
            },
            // A quote within is doubled.
            _ if character == quote => text.push(rest.next().filter(|second| *second == quote)?),
            _ => text.push(character),
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(client: &str, connection: &str, collation: &str) -> State {
        let mut state = State::default();
        for (name, value) in
            [("character_set_client", client), ("character_set_connection", connection), ("collation_connection", collation)]
        {
            state.variables.set(name, Some(value.as_bytes()));
        }
        state
    }

    #[test]
    fn text_keeps_its_character_set() {
        let latin1 = state("latin1", "latin1", "latin1_bin");
        let mode = LexMode::default();
        assert_eq!(portable("'a''b\\n'", mode, &latin1).unwrap(), "_latin1 x'6127620a' COLLATE `latin1_bin`");
        assert_eq!(portable("\"\"", mode, &latin1).unwrap(), "_latin1 x'' COLLATE `latin1_bin`");
        let mixed = state("utf8mb4", "latin1", "latin1_bin");
        assert_eq!(portable("'\u{e4}'", mode, &mixed).unwrap(), "CONVERT(_utf8mb4 x'c3a4' USING latin1) COLLATE `latin1_bin`");
        assert_eq!(portable("'a'", mode, &mixed).unwrap(), "_latin1 x'61' COLLATE `latin1_bin`");
        let wide = state("utf8mb4", "utf16", "utf16_bin");
        assert_eq!(portable("'a'", mode, &wide).unwrap(), "CONVERT(_utf8mb4 x'61' USING utf16) COLLATE `utf16_bin`");
        assert_eq!(portable("'\u{e4}'", mode, &state("gbk", "gbk", "gbk_bin")), None);
    }

    #[test]
    fn escapes_follow_the_mode() {
        let latin1 = state("latin1", "latin1", "latin1_bin");
        let plain = LexMode { no_backslash_escapes: true, ..LexMode::default() };
        assert_eq!(portable("'a\\n'", plain, &latin1).unwrap(), "_latin1 x'615c6e' COLLATE `latin1_bin`");
        assert_eq!(portable("'\\%'", LexMode::default(), &latin1).unwrap(), "_latin1 x'5c25' COLLATE `latin1_bin`");
        for same in ["5", "-1.5", "TRUE", "0x41", "x'41'", "B'01'", "_latin1 x'41'", "_utf8mb4 0x41", "_binary  X'27'"] {
            assert_eq!(portable(same, LexMode::default(), &latin1).as_deref(), Some(same));
        }
        for other in
            ["_latin1'a'", "_latin1x'41'", "_utf8mb4'\\'; DROP TABLE t -- '", "N'a'", "n\"a\"", "_x'41'", "x'4''1'", "x'41'b'", "'"]
        {
            assert_eq!(portable(other, LexMode::default(), &latin1), None, "{other}");
        }
        let garbled = state("latin1", "latin1 x'41',@q:=", "latin1_bin`,@q:='1");
        assert_eq!(portable("'a'", LexMode::default(), &garbled), None, "a server may call a character set anything");
        let quotes = LexMode { ansi_quotes: true, ..LexMode::default() };
        assert_eq!(portable("\"a\"", quotes, &latin1), None);
    }
}
