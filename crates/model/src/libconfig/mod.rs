//! ProxySQL's dialect of libconfig: text in, a tree of values with positions out.
//!
//! `name = value` or `name : value`; groups `{}`, lists `()`, arrays `[]`; strings with escapes, adjacent strings
//! joined; integers (decimal, `0x`, `L` suffix), floats, booleans; comments `#`, `//`, `/* */`; settings
//! separated by `;`, `,` or nothing; `@include "file"` wherever a token may stand, relative to the including file.
//! Grammar: the libconfig manual, "Configuration Files".
//!
//! INVARIANT: no input makes it panic, recurse deeper than [`MAX_DEPTH`] or hold more than [`MAX_TOKENS`] tokens.

mod include;
mod lexer;
mod parser;
mod value;

pub use include::{Includes, LocalFiles, NoIncludes, read_regular};
pub use value::{Entry, Node, Position, Value};

use crate::error::ConfigError;

/// How deep groups, lists and arrays may nest.
pub const MAX_DEPTH: usize = 32;
/// How deep files may include files (libconfig's own limit).
pub const MAX_INCLUDE_DEPTH: usize = 10;
/// How many files may be included in all.
pub const MAX_INCLUDES: usize = 1_000;
/// How many tokens a configuration may have, included files counted.
pub const MAX_TOKENS: usize = 10_000_000;

/// Parses a whole configuration: the entries of its outermost group. `name` is the file's name in positions and
/// the base of relative includes, which `includes` reads. A syntax error ends the parse, so there is only ever one.
pub fn parse(bytes: &[u8], name: &str, includes: &mut dyn Includes) -> Result<Vec<Entry>, ConfigError> {
    let tokens = include::tokens(bytes, name, includes)?;
    parser::Parser::new(tokens).file()
}
