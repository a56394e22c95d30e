//! Stored routines: where servers look for one, and what its body may leave on a connection that servers do not report.

use crate::collected::Collected;
use crate::definition;
use crate::server_info::builtins_of;
use crate::words::contains_word;
use sql::{LexMode, Routine};
use std::rc::Rc;
use wire::charset::{self, Flavor};
use wire::codec::Reader;

/// NULL in a row of text.
const SQL_NULL: u8 = 0xfb;
/// Character sets in which a byte below 0x80 is that character and no part of another.
const READABLE: [&str; 6] = ["utf8mb4", "utf8mb3", "utf8", "latin1", "ascii", "binary"];

/// What a stored routine may leave on its connection that servers do not report.
#[derive(Clone, Debug)]
pub enum Body {
    /// There is none of that name, as far as the user may know.
    Missing,
    /// It was not understood, or the user may not read it.
    Unreadable,
    /// It was read.
    Read {
        /// It leaves something itself.
        leaves: bool,
        /// Perhaps a role, which no reset takes away.
        role: bool,
        /// It may name tables, or reads user variables, which MySQL makes NULL then.
        has_more: bool,
        /// It may create, alter or drop tables or views.
        defines: bool,
        /// What it calls, with schemas.
        calls: Rc<[Routine]>,
    },
}

/// The routine where servers look for it; None where they do not look in a schema.
pub fn located(routine: Routine, schema: Option<&[u8]>) -> Option<Routine> {
    let own = || std::str::from_utf8(schema?).ok().map(str::to_owned);
    let schema = routine.schema.or_else(own)?;
    Some(Routine { schema: Some(schema), ..routine })
}

/// Does it mean the same in every character set?
pub fn is_plain(routine: &Routine) -> bool {
    routine.name.is_ascii() && routine.schema.as_ref().is_none_or(|schema| schema.is_ascii())
}

/// May the answer have lost characters that its character set does not have?
pub fn is_lossy(reply: &Collected, flavor: Flavor) -> bool {
    let collation = definition::all(&reply.raw).nth(2).and_then(|column| charset::collation_in(flavor, column.collation));
    collation.is_none_or(|collation| collation.charset != "utf8mb4") && reply.rows.first().is_some_and(|row| row.contains(&b'?'))
}

/// What the answer to SHOW CREATE says: name, sql_mode, definition (NULL: not to be read), and more.
pub fn body_in(reply: &Collected, flavor: Flavor, routine: &Routine) -> Option<Body> {
    let collation = charset::collation_in(flavor, definition::all(&reply.raw).nth(2)?.collation)?;
    let mut row = Reader::new(reply.rows.first()?);
    let _name = row.lenenc_bytes().ok()?;
    let sql_mode = row.lenenc_bytes().ok()?;
    if row.peek()? == SQL_NULL || !READABLE.contains(&collation.charset) {
        return None;
    }
    let mode = LexMode { builtins: builtins_of(flavor), ..LexMode::default() }.under(|word| contains_word(sql_mode, word.as_bytes()));
    let code = sql::stored(row.lenenc_bytes().ok()?, mode)?;
    let schema = routine.schema.as_ref().map(String::as_bytes);
    let calls: Vec<Routine> = code.calls.into_iter().filter_map(|called| located(called, schema)).collect();
    let leaves = code.variables || code.state || !calls.iter().all(is_plain);
    Some(Body::Read { leaves, role: code.role, has_more: code.tables || code.reads, defines: code.defines, calls: calls.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routine(schema: Option<&str>, name: &str) -> Routine {
        Routine { is_procedure: true, schema: schema.map(str::to_owned), name: name.to_owned() }
    }

    #[test]
    fn a_routine_without_a_schema_is_looked_for_in_the_sessions() {
        for (own, sessions, expected) in [
            (Some("a"), Some(&b"b"[..]), Some("a")),
            (Some("a"), None, Some("a")),
            (None, Some(b"b"), Some("b")),
            (None, None, None),
            (None, Some(b"\xff"), None),
        ] {
            let found = located(routine(own, "p"), sessions);
            assert_eq!(found.as_ref().and_then(|routine| routine.schema.as_deref()), expected, "{own:?} {sessions:?}");
            assert!(found.is_none_or(|routine| routine.name == "p"));
        }
    }

    #[test]
    fn a_name_means_the_same_everywhere_only_in_ascii() {
        for (schema, name, expected) in [(None, "p", true), (Some("s"), "p", true), (None, "\u{e9}", false), (Some("\u{e9}"), "p", false)] {
            assert_eq!(is_plain(&routine(schema, name)), expected, "{schema:?} {name}");
        }
    }
}
