//! Why a session must keep its backend, since when, and what ends it.
//!
//! A pin routes, it never fails a statement. Each reason has an event that ends it; what cannot be ended by a
//! statement ends with COM_RESET_CONNECTION, COM_CHANGE_USER or the session.

use crate::state::{MOST_USER_VARIABLES, Text};
use model::snapshot::Effective;
use serde::{Deserialize, Serialize};
use sql::Routine;
use std::fmt;

/// State that cannot be carried to another backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum PinReason {
    /// An open transaction; ends when the server reports none.
    Transaction,
    /// SAVEPOINT with autocommit=0 before the server calls it a transaction; ends with COMMIT, ROLLBACK or a statement that
    /// commits.
    Savepoint,
    /// `SET TRANSACTION` for the next transaction only; ends with COMMIT or ROLLBACK.
    NextTransaction,
    /// An XA transaction; ends with XA COMMIT or XA ROLLBACK.
    Xa,
    /// Temporary tables; ends when the last one is dropped.
    TemporaryTable,
    /// LOCK TABLES, FLUSH TABLES WITH READ LOCK, backup locks; ends with UNLOCK TABLES (or its like).
    LockTables,
    /// GET_LOCK(); ends when each lock was released.
    UserLock,
    /// A user variable whose value the proxy does not know; ends when it was asked for, or with a reset.
    UserVariable,
    /// PREPARE in SQL text; ends when each was deallocated.
    TextPrepare,
    /// A HANDLER is open; ends with HANDLER ... CLOSE of each.
    Handler,
    /// A cursor is open on a prepared statement; ends with its last row, its reset or its close.
    Cursor,
    /// COM_STMT_SEND_LONG_DATA was sent; ends with the execution or reset of the statement.
    LongData,
    /// SQL_CALC_FOUND_ROWS; ends with the next result, of FOUND_ROWS() itself too; SHOW WARNINGS is none.
    FoundRows,
    /// A SET, stored code or dynamic SQL that changed session state in a way that could not be followed; ends with a reset.
    SessionState,
    /// The connection is a replica's: its binlog stream passes through.
    Replication,
    /// The connection streams the binlog by GTID: its client goes on from there on any server of the cluster; ends with the session.
    ReplicationGtid,
    /// Multiplexing is switched off by a setting.
    MultiplexingOff,
    /// `auto_increment_delay_multiplex`: statements are still to be counted down.
    AutoIncrementDelay,
    /// A query rule with multiplex=0; ends with a rule with multiplex=1, or a reset.
    Rule,
    /// autocommit=0 where `autocommit_false_is_transaction` is on; ends with autocommit=1.
    AutocommitOff,
    /// SET ROLE; ends with the session: no reset brings a user's own roles back.
    Role,
    /// A routine was called whose body is not known; ends when it was read, and is a `SessionState` then unless the body is harmless.
    StoredCode,
}

impl PinReason {
    /// All reasons, in the order of their bits.
    pub const ALL: [Self; 22] = [
        Self::Transaction,
        Self::Savepoint,
        Self::NextTransaction,
        Self::Xa,
        Self::TemporaryTable,
        Self::LockTables,
        Self::UserLock,
        Self::UserVariable,
        Self::TextPrepare,
        Self::Handler,
        Self::Cursor,
        Self::LongData,
        Self::FoundRows,
        Self::SessionState,
        Self::Replication,
        Self::ReplicationGtid,
        Self::MultiplexingOff,
        Self::AutoIncrementDelay,
        Self::Rule,
        Self::AutocommitOff,
        Self::Role,
        Self::StoredCode,
    ];

    /// The name shown to operators.
    pub fn name(self) -> &'static str {
        match self {
            Self::Transaction => "transaction",
            Self::Savepoint => "savepoint",
            Self::NextTransaction => "next_transaction",
            Self::Xa => "xa",
            Self::TemporaryTable => "temporary_table",
            Self::LockTables => "lock_tables",
            Self::UserLock => "user_lock",
            Self::UserVariable => "user_variable",
            Self::TextPrepare => "text_prepare",
            Self::Handler => "handler",
            Self::Cursor => "cursor",
            Self::LongData => "long_data",
            Self::FoundRows => "found_rows",
            Self::SessionState => "session_state",
            Self::Replication => "replication",
            Self::ReplicationGtid => "replication_gtid",
            Self::MultiplexingOff => "multiplexing_off",
            Self::AutoIncrementDelay => "auto_increment_delay",
            Self::Rule => "rule",
            Self::AutocommitOff => "autocommit_off",
            Self::Role => "role",
            Self::StoredCode => "stored_code",
        }
    }

    fn bit(self) -> u32 {
        1 << (self as u8)
    }
}

/// Pins that end by themselves: with a transaction or a statement, because they are only a wish, or because their session is cut when its
/// server is left.
pub const PASSING: PinSet = PinSet::of(&[
    PinReason::Transaction,
    PinReason::Savepoint,
    PinReason::NextTransaction,
    PinReason::Cursor,
    PinReason::LongData,
    PinReason::FoundRows,
    PinReason::ReplicationGtid,
    PinReason::MultiplexingOff,
    PinReason::AutoIncrementDelay,
    PinReason::Rule,
    PinReason::AutocommitOff,
]);

/// Calls that a session remembers until they are read.
const MOST_CALLS: usize = 64;

/// The reasons that hold now.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<PinReason>", from = "Vec<PinReason>")]
pub struct PinSet(u32);

impl From<PinSet> for Vec<PinReason> {
    fn from(set: PinSet) -> Self {
        set.iter().collect()
    }
}

impl From<Vec<PinReason>> for PinSet {
    fn from(reasons: Vec<PinReason>) -> Self {
        Self::of(&reasons)
    }
}

impl PinSet {
    /// True when the backend may serve others.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True when `reason` holds.
    pub fn contains(self, reason: PinReason) -> bool {
        self.0 & reason.bit() != 0
    }

    /// True when one of `other` holds.
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Those of both.
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those that are not in `other`.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// A set of these reasons.
    pub const fn of(reasons: &[PinReason]) -> Self {
        let (mut bits, mut i) = (0, 0);
        while i < reasons.len() {
            bits |= 1 << (reasons[i] as u8);
            i += 1;
        }
        Self(bits)
    }

    /// The reasons, for listing.
    pub fn iter(self) -> impl Iterator<Item = PinReason> {
        PinReason::ALL.into_iter().filter(move |r| self.contains(*r))
    }
}

/// The names of the reasons, as `stats_tidegate_pins` has them: `transaction, user_lock`.
impl fmt::Display for PinSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, reason) in self.iter().enumerate() {
            write!(f, "{}{}", if at == 0 { "" } else { ", " }, reason.name())?;
        }
        Ok(())
    }
}

impl fmt::Debug for PinSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(PinReason::name)).finish()
    }
}

/// What dynamic SQL leaves on a connection that a session would have to know of, as far as its text is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trace {
    /// Nothing.
    Nothing,
    /// What a reset takes away.
    State,
    /// The same, and data may be defined otherwise than before.
    Definition,
    /// Perhaps a role, which none does.
    Anything,
}

/// A call of a stored routine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredCall {
    /// The routine, with its schema.
    pub routine: Routine,
    /// Where there is no such routine, nothing ran, or a function of the server's.
    pub may_be_missing: bool,
    /// The statement failed as where there is no such routine. If there is one, it may have left anything.
    pub has_failed: bool,
    /// The server told of a change, which is explained if the routine names no tables and no user variables.
    pub is_bare: bool,
}

/// Pins under which user variables may have values that are not known.
pub const UNSEEN: PinSet = PinSet::of(&[PinReason::UserVariable, PinReason::SessionState, PinReason::StoredCode]);

/// Locks whose names a pin counts; of others only a release of all ends it.
const MOST_LOCKS: usize = 1_000;
/// Bytes of a lock's name that are kept. Servers take 64 characters.
const LONGEST_LOCK_NAME: usize = 256;

/// Names that a pin counts: temporary tables, locks, text-prepared statements.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CountedNames {
    /// Schema and name, as they were written.
    tables: Vec<(Text, String)>,
    /// A temporary table may have another name by now.
    renamed: bool,
    locks: Vec<String>,
    /// Names, and what their texts leave behind.
    statements: Vec<(String, Trace)>,
    handlers: u32,
    /// FLUSH TABLES WITH READ LOCK.
    reads_only: bool,
    /// User variables whose values are not known; None when it is not known either which.
    variables: Option<Vec<String>>,
    /// User variables that were asked for, or set elsewhere, since something here may have changed any.
    told: Vec<String>,
    /// A lock (or table, ...) whose name was not a literal: only a release of all ends the pin.
    unknown_locks: u32,
    /// Calls of routines whose bodies are not known.
    calls: Vec<StoredCall>,
    /// How many definitions of routines there were at the first of them.
    routines_defined: u32,
    /// How the pins began that are not the first.
    later: Vec<Began>,
}

/// A pin, and how it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Began {
    /// The pin.
    pub reason: PinReason,
    /// Worker clock, ms.
    pub since_ms: u64,
    /// Digest of the statement that began it.
    pub digest: u64,
}

/// A session's pins.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pins {
    set: PinSet,
    /// The pin that began while there was no first one; those that began beside it are in `names`.
    first: Option<PinReason>,
    /// How it began: worker clock (ms), digest.
    first_began: (u64, u64),
    names: Option<Box<CountedNames>>,
}

impl Pins {
    /// They are of another process, where so many definitions of routines were known; here are `now`.
    pub fn count_definitions_anew(&mut self, then: u32, now: u32) {
        if let Some(names) = self.names.as_mut() {
            // What was defined since the calls is not known by name here: one definition more than there are stands for all.
            names.routines_defined = if names.routines_defined == then { now } else { now.wrapping_sub(1) };
        }
    }

    /// The reasons that hold now.
    pub fn set(&self) -> PinSet {
        self.set
    }

    /// How the pins began: one of them, and the others.
    pub fn began(&self) -> (Option<Began>, &[Began]) {
        let (since_ms, digest) = self.first_began;
        (self.first.map(|reason| Began { reason, since_ms, digest }), self.names.as_ref().map_or(&[], |names| &names.later))
    }

    /// Begins a pin, unless it holds already.
    pub fn begin(&mut self, reason: PinReason, now_ms: u64, digest: u64) {
        if let Some(names) = self.names.as_mut().filter(|_| UNSEEN.contains(reason)) {
            names.told = Vec::new();
        }
        if self.set.contains(reason) {
            return;
        }
        self.set.0 |= reason.bit();
        match self.first {
            None => (self.first, self.first_began) = (Some(reason), (now_ms, digest)),
            Some(_) => self.names().later.push(Began { reason, since_ms: now_ms, digest }),
        }
    }

    /// What this reason stands for is over.
    pub fn end(&mut self, reason: PinReason) {
        if !self.set.contains(reason) {
            return;
        }
        self.set.0 &= !reason.bit();
        if self.first == Some(reason) {
            self.first = None;
        } else if let Some(names) = self.names.as_mut() {
            names.later.retain(|began| began.reason != reason);
        }
    }

    /// The backend's state is gone or fresh: no pin holds.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn names(&mut self) -> &mut CountedNames {
        self.names.get_or_insert_default()
    }

    /// A temporary table was created.
    pub fn table_created(&mut self, name: (Text, String), now_ms: u64, digest: u64) {
        let tables = &mut self.names().tables;
        if !tables.contains(&name) {
            tables.push(name);
        }
        self.begin(PinReason::TemporaryTable, now_ms, digest);
    }

    /// Schema and name of each temporary table; None when they are not known.
    pub fn temporary_tables(&self) -> Option<&[(Text, String)]> {
        self.names.as_ref().filter(|names| !names.renamed).map(|names| names.tables.as_slice())
    }

    /// Something was renamed: which temporary tables there are is not known until a reset.
    pub fn tables_renamed(&mut self) {
        if self.set.contains(PinReason::TemporaryTable) {
            self.names().renamed = true;
        }
    }

    /// These tables were dropped, all of them; unknown names are not temporary ones.
    pub fn tables_dropped(&mut self, dropped: &[(Text, String)]) {
        if !self.set.contains(PinReason::TemporaryTable) {
            return;
        }
        let names = self.names();
        names.tables.retain(|table| !dropped.contains(table));
        if names.tables.is_empty() && !names.renamed {
            self.end(PinReason::TemporaryTable);
        }
    }

    /// GET_LOCK; None when the name is not a literal.
    pub fn lock_taken(&mut self, name: Option<String>, now_ms: u64, digest: u64) {
        let names = self.names();
        match name {
            Some(name) if name.len() <= LONGEST_LOCK_NAME && names.locks.len() < MOST_LOCKS => names.locks.push(name),
            _ => names.unknown_locks = names.unknown_locks.saturating_add(1),
        }
        self.begin(PinReason::UserLock, now_ms, digest);
    }

    /// RELEASE_LOCK (None: a name we could not read, which ends nothing).
    pub fn lock_released(&mut self, name: Option<&str>) {
        if !self.set.contains(PinReason::UserLock) {
            return;
        }
        let names = self.names();
        if let Some(i) = name.and_then(|name| names.locks.iter().position(|l| l == name)) {
            names.locks.swap_remove(i);
        }
        if names.locks.is_empty() && names.unknown_locks == 0 {
            self.end(PinReason::UserLock);
        }
    }

    /// RELEASE_ALL_LOCKS.
    pub fn locks_released(&mut self) {
        if let Some(names) = self.names.as_mut() {
            names.locks.clear();
            names.unknown_locks = 0;
        }
        self.end(PinReason::UserLock);
    }

    /// User variables were given values that are not known; None when it is not known which, or their values cannot be had.
    pub fn variables_computed(&mut self, variables: Option<Vec<String>>, now_ms: u64, digest: u64) {
        let began = self.set.contains(PinReason::UserVariable);
        let known = &mut self.names().variables;
        if !began {
            *known = Some(Vec::new());
        }
        match (known.as_mut(), variables) {
            (Some(known), Some(variables)) => {
                let mut new = variables.into_iter();
                while known.len() <= MOST_USER_VARIABLES
                    && let Some(name) = new.next()
                {
                    if !known.contains(&name) {
                        known.push(name);
                    }
                }
            }
            _ => *known = None,
        }
        // With more of them nobody asks for their values.
        known.take_if(|known| known.len() > MOST_USER_VARIABLES);
        self.begin(PinReason::UserVariable, now_ms, digest);
    }

    /// Whether this user variable may have another value here than is known.
    pub fn hides(&self, name: &str) -> bool {
        self.is_computed(name) || self.set.intersects(UNSEEN.without(PinSet::of(&[PinReason::UserVariable])))
    }

    /// Whether its value is known all the same.
    pub fn is_told(&self, name: &str) -> bool {
        self.names.as_ref().is_some_and(|names| names.told.iter().any(|told| told == name))
    }

    /// The value of a user variable is known now.
    pub fn variable_known(&mut self, name: &str) {
        if !self.hides(name) {
            return;
        }
        let names = self.names();
        if names.told.len() < MOST_USER_VARIABLES && !names.told.iter().any(|told| told == name) {
            names.told.push(name.to_owned());
        }
        if let Some(known) = names.variables.as_mut() {
            known.retain(|computed| computed != name);
            if known.is_empty() {
                self.end(PinReason::UserVariable);
            }
        }
    }

    /// The user variables to ask for, when nothing else keeps the backend.
    pub fn only_variables(&self) -> Option<&[String]> {
        let names = self.names.as_ref().filter(|_| self.set == PinSet::of(&[PinReason::UserVariable]))?;
        names.variables.as_deref()
    }

    /// Was this user variable given a value that is not known?
    fn is_computed(&self, variable: &str) -> bool {
        let named = self.names.as_ref().and_then(|names| names.variables.as_ref());
        self.set.contains(PinReason::UserVariable) && named.is_none_or(|named| named.iter().any(|name| name == variable))
    }

    /// Routines were called whose bodies are not known.
    pub fn stored_code_called(&mut self, calls: Vec<StoredCall>, routines_defined: u32, now_ms: u64, digest: u64) {
        let began = self.set.contains(PinReason::StoredCode);
        let names = self.names();
        if !began {
            names.routines_defined = routines_defined;
        }
        let known = &mut names.calls;
        for call in calls {
            // Beyond that nobody reads them.
            if known.len() < MOST_CALLS && !known.contains(&call) {
                known.push(call);
            }
        }
        self.begin(PinReason::StoredCode, now_ms, digest);
    }

    /// The calls whose routines are to be read, when nothing keeps the backend but them, or user variables that can be asked for.
    pub fn only_stored_code(&self) -> Option<&[StoredCall]> {
        let asked_for = PinSet::of(&[PinReason::StoredCode, PinReason::UserVariable]);
        let is_alone = self.set.contains(PinReason::StoredCode) && self.set.without(asked_for).is_empty();
        self.names.as_ref().filter(|_| is_alone).map(|names| &*names.calls)
    }

    /// How many definitions of routines there were when the first of those routines was called.
    pub fn routines_defined(&self) -> u32 {
        self.names.as_ref().map_or(0, |names| names.routines_defined)
    }

    /// The routines were read; what they leave has pins of its own.
    pub fn stored_code_judged(&mut self) {
        if let Some(names) = self.names.as_mut() {
            names.calls = Vec::new();
        }
        self.end(PinReason::StoredCode);
    }

    /// PREPARE name FROM ...
    pub fn statement_prepared(&mut self, name: String, trace: Trace, now_ms: u64, digest: u64) {
        let statements = &mut self.names().statements;
        statements.retain(|(known, _)| *known != name);
        statements.push((name, trace));
        self.begin(PinReason::TextPrepare, now_ms, digest);
    }

    /// What an EXECUTE of this statement leaves behind.
    pub fn trace_of(&self, name: &str) -> Trace {
        let found = self.names.as_ref().and_then(|names| names.statements.iter().find(|(known, _)| known == name));
        found.map_or(Trace::Anything, |(_, trace)| *trace)
    }

    /// Whether it was prepared, and not deallocated.
    pub fn has_statement(&self, name: &str) -> bool {
        self.names.as_ref().is_some_and(|names| names.statements.iter().any(|(known, _)| known == name))
    }

    /// LOCK TABLES; `globally`: FLUSH TABLES WITH READ LOCK.
    pub fn tables_locked(&mut self, globally: bool, now_ms: u64, digest: u64) {
        if globally {
            self.names().reads_only = true;
        }
        self.begin(PinReason::LockTables, now_ms, digest);
    }

    /// BEGIN ends LOCK TABLES, and no FLUSH TABLES WITH READ LOCK.
    pub fn transaction_begun(&mut self) {
        if self.set.contains(PinReason::LockTables) && !self.names().reads_only {
            self.end(PinReason::LockTables);
        }
    }

    /// UNLOCK TABLES.
    pub fn tables_unlocked(&mut self) {
        if self.set.contains(PinReason::LockTables) {
            self.names().reads_only = false;
            self.end(PinReason::LockTables);
        }
    }

    /// DEALLOCATE PREPARE name.
    pub fn statement_deallocated(&mut self, name: &str) {
        let statements = &mut self.names().statements;
        statements.retain(|(known, _)| known != name);
        if statements.is_empty() {
            self.end(PinReason::TextPrepare);
        }
    }

    /// HANDLER t OPEN.
    pub fn handler_opened(&mut self, now_ms: u64, digest: u64) {
        self.names().handlers += 1;
        self.begin(PinReason::Handler, now_ms, digest);
    }

    /// HANDLER t CLOSE.
    pub fn handler_closed(&mut self) {
        let names = self.names();
        names.handlers = names.handlers.saturating_sub(1);
        if names.handlers == 0 {
            self.end(PinReason::Handler);
        }
    }
}

/// Pins that only say that the session is to keep what it has: another backend serves as well.
pub const WISHES: PinSet =
    PinSet::of(&[PinReason::MultiplexingOff, PinReason::Rule, PinReason::AutoIncrementDelay, PinReason::AutocommitOff]);

/// Pins that are gone with the transaction. What is lost is told by an error, as for a deadlock.
pub const TRANSACTION: PinSet =
    PinSet::of(&[PinReason::Transaction, PinReason::Savepoint, PinReason::NextTransaction, PinReason::FoundRows]);

/// Whether an idle session keeps its backend under these settings.
pub fn is_kept(pins: PinSet, settings: &Effective) -> bool {
    let rest = pins.without(PinSet::of(&[PinReason::MultiplexingOff, PinReason::AutoIncrementDelay]));
    let is_multiplexing_off = pins.contains(PinReason::MultiplexingOff) && !settings.multiplexing;
    let is_delayed = pins.contains(PinReason::AutoIncrementDelay) && settings.auto_increment_delay_multiplex > 0;
    let is_held = pins.is_empty() && settings.connection_delay_multiplex_ms > 0;
    !rest.is_empty() || is_multiplexing_off || is_delayed || is_held
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::settings::MysqlVariables;

    #[test]
    fn an_error_names_reasons_as_the_tables_do() {
        let both = PinSet::of(&[PinReason::Transaction, PinReason::UserLock]);
        assert_eq!(both.to_string(), "transaction, user_lock");
        assert_eq!(PinSet::default().to_string(), "");
    }

    #[test]
    fn a_pin_ends_with_its_event_only() {
        let mut p = Pins::default();
        let table = |schema: &str, name: &str| (Text::from(schema.as_bytes()), name.to_owned());
        p.table_created(table("db", "a"), 5, 77);
        p.table_created(table("db", "B"), 6, 78);
        let began = Began { reason: PinReason::TemporaryTable, since_ms: 5, digest: 77 };
        assert_eq!(p.began(), (Some(began), &[][..]));
        p.tables_dropped(&[table("db", "a"), table("db", "other")]);
        assert!(p.set().contains(PinReason::TemporaryTable));
        p.tables_dropped(&[table("db", "b"), table("other", "B")]);
        assert!(p.set().contains(PinReason::TemporaryTable));
        p.tables_dropped(&[table("db", "B")]);
        assert!(p.set().is_empty());
        assert_eq!(p.began(), (None, &[][..]));
        p.tables_renamed();
        p.table_created(table("db", "a"), 7, 79);
        p.tables_renamed();
        p.tables_dropped(&[table("db", "a")]);
        assert!(p.set().contains(PinReason::TemporaryTable));
    }

    #[test]
    fn locks_count_and_unknown_names_hold_on() {
        let mut p = Pins::default();
        p.lock_taken(Some("x".into()), 0, 0);
        p.lock_taken(Some("x".into()), 0, 0);
        p.lock_released(Some("x"));
        assert!(!p.set().is_empty());
        p.lock_released(Some("x"));
        assert!(p.set().is_empty());
        p.lock_taken(None, 0, 0);
        p.lock_released(None);
        p.lock_released(Some("x"));
        assert!(!p.set().is_empty());
        p.locks_released();
        assert!(p.set().is_empty());
    }

    #[test]
    fn names_of_locks_are_bounded() {
        let mut p = Pins::default();
        p.lock_taken(Some("x".repeat(60_000)), 0, 0);
        assert!(p.names().locks.is_empty());
        (0..2 * MOST_LOCKS).for_each(|_| p.lock_taken(Some("x".into()), 0, 0));
        assert_eq!(p.names().locks.len(), MOST_LOCKS);
        (0..2 * MOST_LOCKS).for_each(|_| p.lock_released(Some("x")));
        assert!(!p.set().is_empty(), "some names are not known");
        p.locks_released();
        assert!(p.set().is_empty());
    }

    #[test]
    fn too_many_variables_are_not_known() {
        let mut p = Pins::default();
        let names = |n: usize| Some((0..n).map(|i| format!("a{i}")).collect());
        p.variables_computed(names(MOST_USER_VARIABLES), 0, 0);
        p.variables_computed(names(MOST_USER_VARIABLES), 0, 0);
        assert_eq!(p.only_variables().map(<[String]>::len), Some(MOST_USER_VARIABLES));
        p.variables_computed(names(40_000), 0, 0);
        assert_eq!(p.only_variables(), None);
        assert!(p.set().contains(PinReason::UserVariable));
    }

    #[test]
    fn stored_code_is_read_when_nothing_else_pins() {
        let routine = Routine { is_procedure: true, schema: Some("s".into()), name: "p".into() };
        let call = StoredCall { routine, may_be_missing: false, has_failed: false, is_bare: false };
        let mut p = Pins::default();
        assert_eq!(p.only_stored_code(), None);
        p.begin(PinReason::Transaction, 0, 0);
        p.stored_code_called(vec![call.clone(), call.clone()], 3, 0, 0);
        p.stored_code_called(vec![call.clone()], 4, 0, 0);
        assert_eq!(p.routines_defined(), 3);
        assert_eq!(p.only_stored_code(), None);
        p.end(PinReason::Transaction);
        p.variables_computed(Some(vec!["x".into()]), 0, 0);
        assert_eq!(p.only_stored_code(), Some(&[call][..]));
        assert_eq!(p.only_variables(), None);
        p.stored_code_judged();
        assert!(p.only_variables().is_some());
    }

    #[test]
    fn reasons_are_independent() {
        let mut p = Pins::default();
        p.begin(PinReason::Transaction, 0, 0);
        p.begin(PinReason::Cursor, 0, 0);
        p.end(PinReason::Transaction);
        assert_eq!(p.set().iter().collect::<Vec<_>>(), [PinReason::Cursor]);
    }

    #[test]
    fn every_pin_knows_how_it_began() {
        let began = |reason, since_ms, digest| Began { reason, since_ms, digest };
        let mut p = Pins::default();
        p.begin(PinReason::Xa, 1, 10);
        p.begin(PinReason::Transaction, 2, 20);
        p.begin(PinReason::Transaction, 3, 30);
        p.begin(PinReason::Cursor, 4, 40);
        let (xa, transaction, cursor) =
            (began(PinReason::Xa, 1, 10), began(PinReason::Transaction, 2, 20), began(PinReason::Cursor, 4, 40));
        assert_eq!(p.began(), (Some(xa), &[transaction, cursor][..]));
        p.end(PinReason::Xa);
        p.end(PinReason::Transaction);
        assert_eq!(p.began(), (None, &[cursor][..]));
        p.begin(PinReason::Transaction, 5, 50);
        assert_eq!(p.began(), (Some(began(PinReason::Transaction, 5, 50)), &[cursor][..]));
        p.end(PinReason::Cursor);
        p.end(PinReason::Transaction);
        assert!(p.set().is_empty() && p.began() == (None, &[][..]));
    }

    #[test]
    fn every_reason_has_its_own_bit_and_name() {
        for (i, r) in PinReason::ALL.into_iter().enumerate() {
            assert_eq!(r as usize, i);
            assert!(PinReason::ALL.into_iter().filter(|o| o.name() == r.name()).count() == 1);
        }
    }

    /// The settings as they are, changed so.
    fn settings(change: impl FnOnce(&mut Effective)) -> Effective {
        let mut settings = Effective::from_variables(&MysqlVariables::default());
        change(&mut settings);
        settings
    }

    #[test]
    fn a_pin_that_is_a_wish_keeps_a_backend_as_long_as_its_setting_does() {
        let plain = settings(|_| {});
        let off = settings(|settings| settings.multiplexing = false);
        let delay = settings(|settings| settings.auto_increment_delay_multiplex = 5);
        let lingers = settings(|settings| settings.connection_delay_multiplex_ms = 5);
        let of = |reasons: &[PinReason]| PinSet::of(reasons);
        let (wish, insert, transaction) = (PinReason::MultiplexingOff, PinReason::AutoIncrementDelay, PinReason::Transaction);
        for (pins, expected) in [
            (of(&[]), [false, false, false, true]),
            (of(&[wish]), [false, true, false, false]),
            (of(&[insert]), [false, false, true, false]),
            (of(&[wish, insert]), [false, true, true, false]),
            (of(&[transaction]), [true; 4]),
            (of(&[wish, transaction]), [true; 4]),
        ] {
            let kept = [&plain, &off, &delay, &lingers].map(|settings| is_kept(pins, settings));
            assert_eq!(kept, expected, "{pins:?}");
        }
    }
}
