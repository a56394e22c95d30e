//! Character sets of a session: the server is asked for those in force after each change.

use super::connection::Connection;
use super::door::ServerDoor;
use super::wants::Wants;
use crate::statements::memory::Change;
use session_state::charsets::{HIDING, Hidden, told_collation};
use session_state::definition;
use session_state::question::Question;
use session_state::state::{CHARSETS, CLIENT_COLLATION, RESULTS_COLLATION, is_wide};
use sql::MultiByte;
use wire::charset::Flavor;
use wire::codec::Reader;

impl Wants {
    /// Asks the held backend for the character sets in force, and notes them with what the statement did to the `hidden`
    /// collations. False when not all is known.
    pub(super) async fn ask_for_charsets(&mut self, door: &mut ServerDoor<'_>, hidden: &[Hidden; 2]) -> bool {
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
                    is_known &= told.is_some() || kept == CLIENT_COLLATION && at.backend.is_on(Flavor::MySql);
                    self.set_variable(at, kept, told.map(str::as_bytes));
                }
            }
        }
        is_known
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
