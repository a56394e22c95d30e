//! Reads SQL text as MySQL and MariaDB would, as far as a proxy needs it.
//!
//! [`analyze()`] is the hot path: one pass, no allocation. It gives the statement's [`Kind`], the [`Facts`] that it mentions, and a key for
//! everything remembered about it. [`digest_text`] and [`spooky_hash64`] make the digest that operators see. The parsers (`parse_*` and
//! friends) understand the few statements that the proxy acts on. They are called only if the analysis says so, and answer "not understood"
//! rather than guess.
//!
//! Pure: no IO, no clock, no randomness, no globals. Any bytes are accepted.

mod analyze;
mod body;
mod builtins;
mod bytes;
mod calls;
mod code;
mod cursor;
mod digest;
mod facts;
mod insert_id;
mod key;
mod keywords;
mod kind;
mod locks;
mod multibyte;
mod offset;
mod reads;
mod secret;
mod session_facts;
mod set;
mod shape;
mod split;
mod spooky;
mod statements;
mod substitute;
mod tables;
mod token;
mod versions;

pub use analyze::{Analysis, AnalysisInTurns, analyze, analyze_with};
pub use calls::{Call, unknown_calls};
pub use code::{Code, Routine, compound, is_native, routines, stored};
pub use cursor::unquote_name;
pub use digest::{DigestOptions, Digested, Grouping, digest, digest_text, first_comment};
pub use facts::Facts;
pub use insert_id::{insert_id_is_certain, prepared_insert_id_is_certain};
pub use kind::Kind;
pub use locks::{LockCall, lock_names};
pub use multibyte::MultiByte;
pub use offset::{Offset, offset};
pub use reads::{TableName, read_tables};
pub use secret::{
    carries_password, error_may_carry_password, shown, shown_in_any_mode, without_literals, without_named_passwords, without_quoted,
};
pub use session_facts::{Fact, single_fact_select};
pub use set::{Assignment, Target, TransactionTraits, Value, parse_set, parse_set_transaction, user_variables};
pub use shape::{Shapes, shape_of};
pub use split::{Split, split, split_places};
pub use spooky::spooky_hash64;
pub use statements::{
    Kill, KillTarget, TransactionControl, dynamic_text, parse_kill, parse_transaction, parse_use, prepared_name, set_statement_body,
    temporary_tables,
};
pub use substitute::substitute_facts;
pub use tables::names_table;
pub use token::{Builtins, LexMode, Lexer, Token, TokenKind};
