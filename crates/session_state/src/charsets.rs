//! Character sets of a session: what a statement changed of them, and text that keeps its own.
//!
//! Servers tell of them only in part: a SET of one variable changes others, so a server is asked after each change
//! ([`Question::Charsets`]). `character_set_client` and `character_set_results` hold a collation each that no variable
//! shows: what made it is kept ([`hidden_after`]). Values of user variables are kept in a form that means the same under every
//! character set and sql_mode ([`portable`]).

use crate::definition;
use crate::door::{Asker, Door};
use crate::question::Question;
use crate::server_info::Family;
use crate::setting::Change;
use crate::state::{CHARSETS, CLIENT_COLLATION, RESULTS_COLLATION, State, is_charset_name, is_wide};
use crate::wants::Wants;
use sql::{Assignment, LexMode, MultiByte, Target, Value};
use wire::charset::{self, Flavor};
use wire::codec::Reader;
use wire::reframe::ReplyFacts;

/// Variables that hold a collation which no variable shows, and under which name that is kept.
pub const HIDING: [(&str, &str); 2] = [("character_set_client", CLIENT_COLLATION), ("character_set_results", RESULTS_COLLATION)];

/// What a statement did to one of the two collations that no variable shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// Nothing.
    Kept,
    /// SET NAMES gave it: it is the connection's.
    Names,
    /// SET NAMES gave this one, and the connection has another.
    Of(&'static str),
    /// The variable was assigned alone, by a name: that gives the same on each connection.
    Alone,
    /// More than the text decides.
    Unknown,
}

/// What these assignments did to the hidden collations of client and results. With `versioned` they may not have run; what the
/// server told of without one of them was done by something else. `usual` is the collation that SET NAMES gives a character set.
pub fn hidden_after(
    assignments: &[Assignment],
    versioned: bool,
    reply: &ReplyFacts,
    usual: impl Fn(&str) -> Option<&'static str>,
) -> [Hidden; 2] {
    let mut hidden = [Hidden::Kept; 2];
    let mut given = None;
    for assignment in assignments {
        let is_number = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
        let by_name = match &assignment.value {
            Value::Default => Hidden::Unknown,
            // The number of a collation.
            Value::Literal(text) if is_number(text) => Hidden::Unknown,
            _ => Hidden::Alone,
        };
        match &assignment.target {
            Target::Names { charset, collation } => {
                hidden = [Hidden::Names; 2];
                given = match collation {
                    Some(name) => charset::by_name(name).map(|known| known.name),
                    None => charset.as_deref().and_then(&usual),
                };
            }
            Target::CharacterSet(charset) => hidden = [if charset.is_some() { Hidden::Alone } else { Hidden::Unknown }; 2],
            Target::Session(name) if matches!(name.as_str(), "character_set_connection" | "collation_connection") => {
                let other = given.map_or(Hidden::Unknown, Hidden::Of);
                hidden.iter_mut().filter(|one| **one == Hidden::Names).for_each(|one| *one = other);
            }
            Target::Session(name) => {
                HIDING.iter().zip(&mut hidden).filter(|((of, _), _)| of == name).for_each(|(_, one)| *one = by_name);
            }
            _ => {}
        }
    }
    for ((name, _), one) in HIDING.iter().zip(&mut hidden) {
        let is_told = reply.variables.iter().any(|(told, _)| **told == **name);
        if is_told && *one == Hidden::Kept || !is_told && versioned && *one != Hidden::Kept {
            *one = Hidden::Unknown;
        }
    }
    hidden
}

/// The collation that a column definition names. MariaDB gives uca1400 the number of an older one.
pub fn told_collation(family: Family, id: u16) -> Option<&'static str> {
    let collation = charset::collation_in(family.flavor(), id)?;
    let is_sure = |name: &str| name.ends_with("_bin") || name.ends_with("_general_ci");
    let is_unicode = charset::is_utf8(collation.charset.as_bytes()) || is_wide(collation.charset.as_bytes());
    (family != Family::MariaDbUca1400 || !is_unicode || is_sure(collation.name)).then_some(collation.name)
}

/// Is it one of the variables that decide how text travels?
pub fn is_one(name: &str) -> bool {
    CHARSETS.contains(&name)
}

/// Did the statement change how text travels?
pub fn changed_by(reply: &ReplyFacts) -> bool {
    reply.error.is_none() && reply.variables.iter().any(|(name, _)| is_one(name))
}

/// Which variables an assignment decides, whatever their values were before; None when that depends on more than the
/// statement.
pub fn decided_by(target: &Target) -> Option<&'static [&'static str]> {
    match target {
        Target::Names { .. } => Some(CHARSETS),
        // The connection's character set becomes that of the schema.
        Target::CharacterSet(_) => None,
        Target::Session(name) => Some(match name.as_str() {
            "character_set_client" => &["character_set_client", CLIENT_COLLATION],
            "character_set_results" => &["character_set_results", RESULTS_COLLATION],
            "character_set_connection" | "collation_connection" => &["character_set_connection", "collation_connection"],
            _ => &[],
        }),
        _ => Some(&[]),
    }
}

impl Wants {
    /// Asks the held backend for the character sets in force, and notes them with what the statement did to the `hidden`
    /// collations. False when not all is known.
    pub async fn ask_for_charsets<D: Door>(&mut self, door: &mut Asker<'_, D>, hidden: &[Hidden; 2]) -> bool {
        let Ok(reply) = door.ask(Question::Charsets).await else { return false };
        let at = &mut *door.at;
        let Some(row) = reply.rows.first() else { return false };
        let mut values = Reader::new(row);
        let _as_results_have_it = values.lenenc_bytes();
        for name in CHARSETS.iter().take(4) {
            // NULL (0xfb) is no string: results without a conversion.
            let value = values.lenenc_bytes().map(<[u8]>::to_vec).unwrap_or_default();
            self.set_variable(at, name, Some(&value));
        }
        let connection = self.state.variables.get("collation_connection").cloned();
        let mut is_known = true;
        for ((variable, kept), hidden) in HIDING.into_iter().zip(hidden) {
            let is_none = self.state.variables.get(variable).is_none_or(|value| value.is_empty());
            match hidden {
                Hidden::Kept => {}
                _ if is_none => self.set_variable(at, kept, None),
                Hidden::Names => self.set_variable(at, kept, connection.as_deref()),
                Hidden::Of(collation) => self.set_variable(at, kept, Some(collation.as_bytes())),
                Hidden::Alone => self.set_variable(at, kept, None),
                Hidden::Unknown => {
                    let told = || told_collation(self.family, definition::all(&reply.raw).next()?.collation);
                    let told = if kept == RESULTS_COLLATION { told() } else { None };
                    // MySQL has none for the client.
                    is_known &= told.is_some() || kept == CLIENT_COLLATION && at.is_on(Flavor::MySql);
                    self.set_variable(at, kept, told.map(str::as_bytes));
                }
            }
        }
        is_known
    }

    /// Text is read from here on as the session's `character_set_client` has it.
    pub fn read_client_charset(&mut self) {
        let charset = self.state.variables.get("character_set_client");
        self.lex.multi_byte = charset.map_or(MultiByte::Plain, |charset| MultiByte::of(charset));
    }

    /// Are results in a character set in which ASCII is not itself?
    pub fn has_wide_results(&self) -> bool {
        self.state.variables.get("character_set_results").is_some_and(|charset| is_wide(charset))
    }

    /// The values now, of variables that a statement decides.
    pub fn charset_changes(&self, names: &[&'static str]) -> Vec<Change> {
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
    Some(if same_bytes {
        format!("_{connection} x'{hex}' COLLATE `{collation}`")
    } else {
        format!("CONVERT(_{client} x'{hex}' USING {connection}) COLLATE `{collation}`")
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
    fn a_hidden_collation_is_what_made_it() {
        use Hidden::{Alone, Kept, Names, Of, Unknown};
        let usual = |charset: &str| (charset == "latin1").then_some("latin1_swedish_ci");
        let told = |names: &[&str]| {
            let variables = names.iter().map(|name| ((*name).into(), b"utf8mb4"[..].into())).collect();
            ReplyFacts { variables, ..ReplyFacts::default() }
        };
        let all = told(&["character_set_client", "character_set_connection", "character_set_results"]);
        let after = |sql: &str, versioned, reply: &ReplyFacts| {
            hidden_after(&sql::parse_set(sql.as_bytes(), LexMode::default()).unwrap_or_default(), versioned, reply, usual)
        };
        for (sql, hidden) in [
            ("SET NAMES utf8mb4", [Names, Names]),
            ("SET NAMES utf8mb4 COLLATE utf8mb4_bin, sql_mode=''", [Names, Names]),
            ("SET NAMES utf8mb4, character_set_results=NULL", [Names, Alone]),
            ("SET character_set_client=latin1, NAMES utf8mb4", [Names, Names]),
            ("SET NAMES utf8mb4, collation_connection=utf8mb4_bin", [Unknown, Unknown]),
            ("SET NAMES utf8mb4 COLLATE utf8mb4_bin, collation_connection=utf8mb4_general_ci", [Of("utf8mb4_bin"); 2]),
            ("SET NAMES latin1, collation_connection=latin1_bin", [Of("latin1_swedish_ci"); 2]),
            ("SET CHARACTER SET latin1", [Alone, Alone]),
            ("SET @@character_set_client=latin1, character_set_results=DEFAULT", [Alone, Unknown]),
            ("SET character_set_client=46", [Unknown, Unknown]),
            ("CALL p()", [Unknown, Unknown]),
        ] {
            assert_eq!(after(sql, false, &all), hidden, "{sql}");
        }
        let nothing = told(&[]);
        assert_eq!(after("SET collation_connection=utf8mb4_bin", false, &told(&["collation_connection"])), [Kept, Kept]);
        assert_eq!(after("SET @@character_set_client=latin1", false, &nothing), [Alone, Kept], "MariaDB does not tell of it");
        assert_eq!(after("SET NAMES utf8mb4", true, &nothing), [Unknown, Unknown]);
        assert_eq!(after("SET NAMES utf8mb4", true, &all), [Names, Names]);
    }

    #[test]
    fn numbers_of_unicode_collations_tell_little_where_uca1400_is() {
        for (family, id, name) in [
            (Family::MariaDb, 224, Some("utf8mb4_unicode_ci")),
            (Family::MySql, 224, Some("utf8mb4_unicode_ci")),
            (Family::MariaDbUca1400, 224, None),
            (Family::MariaDbUca1400, 46, Some("utf8mb4_bin")),
            (Family::MariaDbUca1400, 8, Some("latin1_swedish_ci")),
        ] {
            assert_eq!(told_collation(family, id), name, "{id} of {family:?}");
        }
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
