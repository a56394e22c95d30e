//! What a server's connection has of the session that used it last, as far as the proxy knows: state, session tracking, status,
//! LAST_INSERT_ID(), warnings.
//!
//! Every backend has one. INVARIANT: the fields are private. A method says what happened at the server, and no caller decides what
//! follows from it.

use crate::state::{CHARSETS, State, Text, Variables};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use wire::charset::{Collation, Flavor};
use wire::flags::StatusFlags;
use wire::reframe::ReplyFacts;

/// MySQL's variable that makes a server report the GTIDs of writes.
pub const TRACK_GTIDS: &str = "session_track_gtids";
/// The variable that decides how a server reads names and statements.
pub const CLIENT_CHARSET: &str = "character_set_client";
/// A variable that follows the schema.
const SCHEMA_COLLATION: &str = "collation_database";
/// The value of a variable that is not known: no session wants it, so the variable is set before the next statement.
const UNKNOWN: &[u8] = b"?";

/// Which session-tracking settings the connection has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tracking {
    /// The server does not track sessions: it is asked after each SET, and what a statement may have left unseen is never lent on.
    #[default]
    None,
    /// Everything, as the proxy wants it.
    Ours,
    /// The client's own, because a statement may show them.
    Clients,
}

/// See the module.
pub struct Held(HeldRecord);

/// The same as plain values, for the process that takes over.
#[derive(Clone, Default)]
pub struct HeldRecord {
    /// Schema and variables.
    pub state: State,
    /// Session tracking settings.
    pub tracking: Tracking,
    /// The server was asked to report the GTIDs of writes (MySQL).
    pub tells_gtids: bool,
    /// Statements may have left what the proxy does not know: the connection is reset before another session gets it.
    pub must_reset: bool,
    /// Statements may have left what no reset takes back (a role that stored code set, unreported locks): the connection is closed.
    pub outlives_reset: bool,
    /// `@@server_uuid` of the server, or on MariaDB `@@server_id`, where it was asked for.
    pub member: Option<Arc<str>>,
    /// LAST_INSERT_ID(), where it is known.
    pub last_insert_id: Option<u64>,
    /// The diagnostics area may hold warnings.
    pub has_warnings: bool,
    /// The schema that the server refused last.
    pub refused_schema: Option<Text>,
    /// Status flags of the last reply.
    pub status: StatusFlags,
    /// The session whose statement ran last.
    pub session: Option<u64>,
}

/// What is known.
impl Held {
    /// Schema and variables.
    pub fn state(&self) -> &State {
        &self.0.state
    }

    /// Session tracking settings.
    pub fn tracking(&self) -> Tracking {
        self.0.tracking
    }

    /// Whether the server reports what changes in the session. INVARIANT: nothing is concluded from silence where it does not.
    pub fn tracks(&self) -> bool {
        self.0.tracking != Tracking::None
    }

    /// Whether the server reports the GTIDs of writes because the proxy asked for them.
    pub fn tells_gtids(&self) -> bool {
        self.0.tells_gtids
    }

    /// Whether the connection is to be reset before another session gets it.
    pub fn must_reset(&self) -> bool {
        self.0.must_reset
    }

    /// Whether the connection is to be closed where others are reset.
    pub fn outlives_reset(&self) -> bool {
        self.0.outlives_reset
    }

    /// The server's own name for itself, where it was asked for.
    pub fn member(&self) -> Option<&Arc<str>> {
        self.0.member.as_ref()
    }

    /// LAST_INSERT_ID(), where it is known.
    pub fn last_insert_id(&self) -> Option<u64> {
        self.0.last_insert_id
    }

    /// Whether the diagnostics area may hold warnings.
    pub fn has_warnings(&self) -> bool {
        self.0.has_warnings
    }

    /// Whether the server refused this schema last.
    pub fn has_refused(&self, schema: &Text) -> bool {
        self.0.refused_schema.as_ref() == Some(schema)
    }

    /// Whether the last statement that ran was this session's: what the server knows of its last statement is that session's.
    pub fn ran_last_for(&self, session: u64) -> bool {
        self.0.session == Some(session)
    }

    /// Status flags of the last reply.
    pub fn status(&self) -> StatusFlags {
        self.0.status
    }

    /// All of it.
    pub fn record(&self) -> &HeldRecord {
        &self.0
    }

    /// What another process knew.
    pub fn of(record: HeldRecord) -> Self {
        Self(record)
    }
}

/// What happened to the connection as a whole.
impl Held {
    /// A login succeeded; its reply had these status flags.
    pub fn logged_in(status: StatusFlags) -> Self {
        Self(HeldRecord { status, last_insert_id: Some(0), ..HeldRecord::default() })
    }

    /// The handshake's collation, which sets the character sets of the connection.
    pub fn began_with(&mut self, collation: &Collation) {
        self.0.state.variables.set_names(collation);
    }

    /// COM_CHANGE_USER succeeded: all state is gone, also the schema. What outlives a reset outlives this.
    pub fn logged_in_again(&mut self) {
        self.0.state = State::default();
        self.0.last_insert_id = Some(0);
        (self.0.has_warnings, self.0.tells_gtids, self.0.must_reset) = (false, false, false);
    }

    /// COM_RESET_CONNECTION succeeded: all state is gone but the schema, and servers differ in the character sets that they go back to.
    pub fn was_reset(&mut self) {
        let schema = self.0.state.schema.take();
        self.logged_in_again();
        self.0.state.schema = schema;
        self.charsets_changed_unseen();
        if self.0.state.schema.is_some() {
            // MariaDB keeps the schema, but not its character set: the schema is entered again.
            self.0.state.variables.set(SCHEMA_COLLATION, Some(UNKNOWN));
        }
    }

    /// Something may have set other character sets (`init_connect`).
    pub fn charsets_changed_unseen(&mut self) {
        for name in CHARSETS {
            self.0.state.variables.set(name, Some(UNKNOWN));
        }
    }

    /// The server named itself, or did not answer.
    pub fn named_itself(&mut self, member: Option<Arc<str>>) {
        self.0.member = member;
    }
}

/// What happened to the session's state.
impl Held {
    /// The session is in this schema, and its character set came with it.
    pub fn entered(&mut self, schema: Option<Text>) {
        self.0.state.enter_schema(schema);
    }

    /// The server refused to enter this schema.
    pub fn refused(&mut self, schema: &Text) {
        self.0.refused_schema = Some(schema.clone());
    }

    /// One SET gave the connection all variables of `want`; `set` is its text.
    pub fn was_set(&mut self, set: &str, want: &State) {
        self.0.tells_gtids &= !set.contains(TRACK_GTIDS);
        self.0.state.variables = want.variables.clone();
        self.0.state.user_variables = want.user_variables.clone();
    }

    /// Statements that were sent again brought the connection to this state.
    pub fn was_brought_to(&mut self, state: &State) {
        self.0.state = state.clone();
    }

    /// The character set in which the server reads statements was set to this one.
    pub fn reads_in(&mut self, charset: &str) {
        self.0.state.variables.set(CLIENT_CHARSET, Some(charset.as_bytes()));
    }

    /// A variable has this value (None: its default), and the session's variables are `wanted`.
    pub fn variable_changed(&mut self, name: &str, value: Option<&[u8]>, wanted: &Variables) {
        if self.0.state.variables == *wanted {
            return;
        }
        self.0.state.variables.set(name, value);
        if self.0.state.variables == *wanted {
            self.found_equal_to(wanted);
        }
    }

    /// A user variable has this value, an SQL literal.
    pub fn user_variable_changed(&mut self, name: &str, literal: &str) {
        self.0.state.user_variables.set(name, Some(literal.as_bytes()));
    }

    /// The server forgot all user variables.
    pub fn user_variables_gone(&mut self) {
        self.0.state.user_variables = Variables::default();
    }

    /// The session's variables were found to be the same: one copy serves both, and the next comparison is that of two pointers.
    pub fn found_equal_to(&mut self, wanted: &Variables) {
        self.0.state.variables.share(wanted);
    }

    /// Something ran of which the proxy does not know what it left.
    pub fn ran_unseen(&mut self) {
        self.0.must_reset = true;
    }

    /// Something ran that may have left what no reset takes back.
    pub fn ran_lasting(&mut self) {
        self.0.outlives_reset = true;
    }
}

/// What happened to session tracking.
impl Held {
    /// A fresh connection was set up for tracking, or the server has none.
    pub fn began_tracking(&mut self, tracking: Tracking) {
        self.0.tracking = tracking;
    }

    /// A SET of the proxy's own gave it these settings. The client may have changed whether GTIDs are reported: `sets_gtids` says that
    /// the SET put that back, too. Settings that are the proxy's again ask for GTIDs anew.
    pub fn tracks_as(&mut self, tracking: Tracking, sets_gtids: bool) {
        self.0.tells_gtids &= tracking == Tracking::Clients && !sets_gtids;
        self.0.tracking = tracking;
    }

    /// The client changed which changes are reported.
    pub fn client_chose_tracking(&mut self) {
        self.0.tracking = Tracking::Clients;
    }

    /// The proxy asked for the GTIDs of writes.
    pub fn asked_for_gtids(&mut self) {
        self.0.tells_gtids = true;
    }

    /// The client chose whether GTIDs are reported.
    pub fn client_chose_gtids(&mut self) {
        self.0.tells_gtids = false;
    }
}

/// What replies said.
impl Held {
    /// A reply ended with these status flags.
    pub fn has_status(&mut self, status: StatusFlags) {
        self.0.status = status;
    }

    /// A statement of this session was answered.
    pub fn ran_for(&mut self, session: u64) {
        self.0.session = Some(session);
    }

    /// Statements of several sessions were answered: what is left of them is of none.
    pub fn ran_for_several(&mut self) {
        self.0.session = None;
    }

    /// A client's statement was answered, and it is none of those that leave the diagnostics area alone.
    pub fn answered(&mut self, reply: &ReplyFacts, flavor: Flavor) {
        // MariaDB forgets old warnings only when a statement reads a table.
        let keeps = flavor == Flavor::MariaDb && self.0.has_warnings;
        self.0.has_warnings = reply.error.is_some() || reply.warned || keeps;
    }

    /// A statement failed, and its error stays in the diagnostics area.
    pub fn failed(&mut self) {
        self.0.has_warnings = true;
    }

    /// A statement of the proxy's own succeeded with so many warnings.
    pub fn succeeded(&mut self, warnings: u16) {
        self.0.has_warnings |= warnings > 0;
    }

    /// A statement without warnings took the place of those before.
    pub fn warnings_cleared(&mut self) {
        self.0.has_warnings = false;
    }

    /// LAST_INSERT_ID() is this. Returns what it was before, as far as that was known.
    pub fn has_insert_id(&mut self, id: u64) -> Option<u64> {
        self.0.last_insert_id.replace(id)
    }

    /// LAST_INSERT_ID() may have changed.
    pub fn insert_id_changed_unseen(&mut self) {
        self.0.last_insert_id = None;
    }
}

#[cfg(test)]
#[path = "held_tests.rs"]
mod tests;
