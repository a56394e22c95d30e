//! Read/write split without rules: certain reads go to a reader, all other statements to the writer.
//!
//! A pure function of the statement and of the session's state. It errs towards the writer: a statement of unknown kind is no read. Rules
//! win over it: a destination that a rule or a comment names is not split.

use model::snapshot::{ReadWriteSplit, UserSplit};
use model::{HostgroupId, Snapshot, User};
use sql::{Analysis, Call, Facts, Kind, LexMode};

use crate::route::{Decider, Route};

/// The side of the split that a statement goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The writer's hostgroup, also for a statement that is not certain to be a read.
    Writer,
    /// The reader's hostgroup, for plain reads only.
    Reader,
    /// The backend that the session keeps.
    Stay,
}

/// The session's state that decides about a split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionFacts {
    /// An open transaction, or an equivalent state that the session keeps until its end.
    pub transaction: Transaction,
    /// autocommit=0: every statement is part of a transaction.
    pub autocommit_off: bool,
    /// The session keeps its backend, for whatever reason.
    pub pinned: bool,
}

/// The open transaction's kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Transaction {
    /// No transaction is open.
    #[default]
    None,
    /// It may write.
    ReadWrite,
    /// It was begun READ ONLY.
    ReadOnly,
}

/// A statement, as the tokenizer sees it.
#[derive(Debug, Clone, Copy)]
pub struct Statement<'a> {
    /// As the client sent it.
    pub text: &'a [u8],
    /// How its literals end.
    pub mode: LexMode,
    /// The result of `sql::analyze`.
    pub analysis: Analysis,
}

/// Facts that make a SELECT more than a read, or its answer a matter of the server.
const NOT_A_READ: Facts = Facts::LOCKING_READ
    .union(Facts::GET_LOCK)
    .union(Facts::RELEASE_LOCK)
    .union(Facts::USER_VARIABLE_ASSIGN)
    .union(Facts::LAST_INSERT_ID_SET)
    .union(Facts::INTO_FILE)
    .union(Facts::SYSTEM_VARIABLE)
    .union(Facts::VARIABLES)
    .union(Facts::DIAGNOSTICS)
    .union(Facts::MULTI)
    .union(Facts::TORN);

/// Decides for a statement. `safe_functions` are names in lower case of stored functions and procedures without side
/// effects, as `name` or `schema.name`.
pub fn side(statement: &Statement<'_>, session: &SessionFacts, safe_functions: &[Box<str>]) -> Side {
    if session.pinned {
        return Side::Stay;
    }
    match session.transaction {
        Transaction::ReadOnly => return Side::Reader,
        Transaction::ReadWrite => return Side::Writer,
        Transaction::None => {}
    }
    let analysis = &statement.analysis;
    if analysis.kind == Kind::Begin {
        return if begins_read_only(statement) { Side::Reader } else { Side::Writer };
    }
    if session.autocommit_off || analysis.facts.intersects(NOT_A_READ) {
        return Side::Writer;
    }
    let reads = match analysis.kind {
        // INTO a file or a user variable is among the facts; INTO anything else is an error outside stored programs.
        Kind::Select | Kind::Call => true,
        // SHOW, DESCRIBE, EXPLAIN and ANALYZE are not split. Tools use them to check what they have just made, and a question about the
        // server itself means the writer.
        _ => false,
    };
    if reads && calls_are_safe(statement, safe_functions) { Side::Reader } else { Side::Writer }
}

/// The pair of hostgroups that splits a statement for `route`'s destination, if a split is switched on there.
///
/// The user's attributes hold for statements without a decision. The hostgroup's attributes also hold for fast routing, which decides by
/// users and schemas, not by kinds of statements.
pub fn split_of(snapshot: &Snapshot, user: &User, route: &Route) -> Option<ReadWriteSplit> {
    let default = user.default_hostgroup;
    let destination = route.destination_hostgroup.unwrap_or(default);
    match (route.decider, user.attributes.read_write_split) {
        (Decider::Rule(_) | Decider::Comment, _) | (_, UserSplit::Off) => None,
        (Decider::Nobody, UserSplit::On(split)) => Some(split),
        (Decider::Nobody | Decider::FastRouting, _) => of_hostgroup(snapshot, destination),
    }
}

fn of_hostgroup(snapshot: &Snapshot, writer: HostgroupId) -> Option<ReadWriteSplit> {
    let reader = snapshot.hostgroup(writer)?.attributes.split_reader?;
    Some(ReadWriteSplit { writer, reader })
}

fn begins_read_only(statement: &Statement<'_>) -> bool {
    // Of what stands in a version comment, some servers run nothing.
    let is_certain = !statement.analysis.facts.intersects(Facts::MULTI | Facts::TORN | Facts::VERSIONED);
    is_certain && sql::parse_transaction(statement.text, statement.mode).read_only == Some(true)
}

/// Every call of something that is not built in is declared safe, in lower case as `name` or `schema.name`.
pub fn calls_are_safe(statement: &Statement<'_>, safe: &[Box<str>]) -> bool {
    if !statement.analysis.facts.contains(Facts::UNKNOWN_FUNCTION) {
        return true;
    }
    let is_safe = |call: &Call| match call {
        Call::Named(name) => safe.iter().any(|safe| **safe == **name),
        Call::Unnamed => false,
    };
    !safe.is_empty() && sql::unknown_calls(statement.text, statement.mode).iter().all(is_safe)
}
