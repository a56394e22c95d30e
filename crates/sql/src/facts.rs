//! The constructs that a statement mentions, as a set of bits.
//!
//! Facts come from the text alone. They err on the safe side: a fact may be set although the server would not act on it, never the other
//! way round.

use std::ops::{BitOr, BitOrAssign};

/// A set of facts about a statement's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Facts(u32);

impl Facts {
    /// Nothing noteworthy.
    pub const NONE: Facts = Facts(0);
    /// Reads the session's last insert id: `LAST_INSERT_ID(`, `@@identity`, `@@last_insert_id`.
    pub const LAST_INSERT_ID: Facts = Facts(1);
    /// `LAST_INSERT_ID(expr)`: stores a new last insert id in the session.
    pub const LAST_INSERT_ID_SET: Facts = Facts(1 << 1);
    /// `FOUND_ROWS(`.
    pub const FOUND_ROWS: Facts = Facts(1 << 2);
    /// `SQL_CALC_FOUND_ROWS`.
    pub const CALC_FOUND_ROWS: Facts = Facts(1 << 3);
    /// `ROW_COUNT(`.
    pub const ROW_COUNT: Facts = Facts(1 << 4);
    /// Mentions a user variable `@x`.
    pub const USER_VARIABLE: Facts = Facts(1 << 5);
    /// May assign a user variable: `@x :=`, `SET @x =`, `INTO @x`, `CALL p(@x)`,
    /// `LOAD DATA ... (@x)`, `GET DIAGNOSTICS @x =`.
    pub const USER_VARIABLE_ASSIGN: Facts = Facts(1 << 6);
    /// Mentions a system variable `@@x`.
    pub const SYSTEM_VARIABLE: Facts = Facts(1 << 7);
    /// `GET_LOCK(`.
    pub const GET_LOCK: Facts = Facts(1 << 8);
    /// `RELEASE_LOCK(` or `RELEASE_ALL_LOCKS(`.
    pub const RELEASE_LOCK: Facts = Facts(1 << 9);
    /// `CONNECTION_ID(` or `@@pseudo_thread_id`.
    pub const CONNECTION_ID: Facts = Facts(1 << 10);
    /// `@@warning_count`, `@@error_count` or `GET DIAGNOSTICS`.
    pub const DIAGNOSTICS: Facts = Facts(1 << 11);
    /// A second, non-empty statement follows a `;`.
    pub const MULTI: Facts = Facts(1 << 12);
    /// Calls something that is no built-in function (or CALLs a procedure, or reads a
    /// sequence): its body may read or change any session state.
    pub const UNKNOWN_FUNCTION: Facts = Facts(1 << 13);
    /// Names a variable that starts with `session_track`.
    pub const SESSION_TRACK: Facts = Facts(1 << 14);
    /// `SHOW ... VARIABLES`, or a table of variables in information_schema or performance_schema.
    pub const VARIABLES: Facts = Facts(1 << 15);
    /// `FOR UPDATE`, `FOR SHARE` or `LOCK IN SHARE MODE`.
    pub const LOCKING_READ: Facts = Facts(1 << 16);
    /// The keyword `TEMPORARY`.
    pub const TEMPORARY: Facts = Facts(1 << 17);
    /// A plain comment was met (see [`crate::first_comment`]); optimizer hints count.
    pub const COMMENT: Facts = Facts(1 << 18);
    /// `INTO OUTFILE` or `INTO DUMPFILE`: a SELECT with a side effect on the server.
    pub const INTO_FILE: Facts = Facts(1 << 19);
    /// A `?` placeholder.
    pub const PLACEHOLDER: Facts = Facts(1 << 20);
    /// `INSERT ... RETURNING`, `REPLACE ... RETURNING` and `ANALYZE ...` (MariaDB): the reply has rows, and no insert id.
    pub const RETURNING: Facts = Facts(1 << 21);
    /// A server may run the text differently than it was read. Either a statement stands partly in a version comment that some servers skip
    /// (`/*!99999 a */ SET @x = 1`). Or such a comment ends elsewhere for servers that skip it (`/*!99999 ' */ f() /* ' */`). Or text
    /// follows a stored program whose end is uncertain, or `$$` opens a string or a name.
    pub const TORN: Facts = Facts(1 << 22);
    /// A version comment that only some servers run: its effect may be missing.
    pub const VERSIONED: Facts = Facts(1 << 23);
    /// A LIMIT may leave out rows at the front: `LIMIT 1, 2`, `OFFSET`.
    pub const OFFSET: Facts = Facts(1 << 24);
    /// Not of a text: a bulk execution that the server runs once for each row of parameters. Rows before one that fails stay.
    pub const ROW_BY_ROW: Facts = Facts(1 << 25);
    /// Code may run that the text does not show.
    pub const UNKNOWN_CODE: Facts = Facts::UNKNOWN_FUNCTION.union(Facts::TORN);

    /// True when every fact of `other` is in this set.
    #[inline]
    pub const fn contains(self, other: Facts) -> bool {
        self.0 & other.0 == other.0
    }

    /// True when at least one fact of `other` is in this set.
    #[inline]
    pub const fn intersects(self, other: Facts) -> bool {
        self.0 & other.0 != 0
    }

    /// True when nothing was noticed.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Both sets; usable in constants.
    #[inline]
    pub const fn union(self, other: Facts) -> Facts {
        Facts(self.0 | other.0)
    }

    /// This set without those of `other`.
    #[inline]
    pub const fn without(self, other: Facts) -> Facts {
        Facts(self.0 & !other.0)
    }

    /// Nothing in it can leave state behind or show any: comments and placeholders.
    pub(crate) const fn is_quiet(self) -> bool {
        Facts::COMMENT.union(Facts::VERSIONED).union(Facts::PLACEHOLDER).contains(self)
    }

    /// The facts in words, for people.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        NAMES.iter().filter(move |(fact, _)| self.contains(*fact)).map(|(_, name)| *name)
    }

    /// The raw bits, for packing.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

/// Facts in words.
const NAMES: &[(Facts, &str)] = &[
    (Facts::LAST_INSERT_ID, "reads LAST_INSERT_ID()"),
    (Facts::LAST_INSERT_ID_SET, "sets LAST_INSERT_ID()"),
    (Facts::FOUND_ROWS, "FOUND_ROWS()"),
    (Facts::CALC_FOUND_ROWS, "SQL_CALC_FOUND_ROWS"),
    (Facts::ROW_COUNT, "ROW_COUNT()"),
    (Facts::USER_VARIABLE, "user variable"),
    (Facts::USER_VARIABLE_ASSIGN, "assigns a user variable"),
    (Facts::SYSTEM_VARIABLE, "system variable"),
    (Facts::GET_LOCK, "GET_LOCK()"),
    (Facts::RELEASE_LOCK, "RELEASE_LOCK()"),
    (Facts::CONNECTION_ID, "CONNECTION_ID()"),
    (Facts::DIAGNOSTICS, "reads the diagnostics area"),
    (Facts::MULTI, "several statements"),
    (Facts::UNKNOWN_FUNCTION, "stored function or procedure"),
    (Facts::SESSION_TRACK, "session_track variable"),
    (Facts::VARIABLES, "shows variables"),
    (Facts::LOCKING_READ, "locking read"),
    (Facts::TEMPORARY, "TEMPORARY"),
    (Facts::COMMENT, "comment"),
    (Facts::INTO_FILE, "INTO OUTFILE or DUMPFILE"),
    (Facts::PLACEHOLDER, "placeholder"),
    (Facts::RETURNING, "INSERT ... RETURNING or ANALYZE"),
    (Facts::TORN, "cannot be read with certainty"),
    (Facts::VERSIONED, "version comment"),
    (Facts::OFFSET, "LIMIT with an offset"),
    (Facts::ROW_BY_ROW, "bulk execution"),
];

impl BitOr for Facts {
    type Output = Facts;

    #[inline]
    fn bitor(self, other: Facts) -> Facts {
        self.union(other)
    }
}

impl BitOrAssign for Facts {
    #[inline]
    fn bitor_assign(&mut self, other: Facts) {
        self.0 |= other.0;
    }
}
