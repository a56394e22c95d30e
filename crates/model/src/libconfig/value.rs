//! The parser's tree. Every part knows its place in the file.

use std::fmt;
use std::sync::Arc;

/// A place in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// The file's name, as it was given or included.
    pub file: Arc<str>,
    /// From 1.
    pub line: u32,
    /// In bytes, from 1.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// A value and where it begins.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Without its place.
    pub value: Value,
    /// The place of its first byte.
    pub at: Position,
}

/// A value behind a name.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `true` or `false`, in any letter case.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// A number with a point or exponent, as it was written.
    Float(String),
    /// With escapes resolved, and adjacent strings joined.
    Text(String),
    /// The same, if the bytes are not UTF-8: only passwords may be so.
    Bytes(Vec<u8>),
    /// `{ name = value ... }`
    Group(Vec<Entry>),
    /// `( value, ... )`
    List(Vec<Node>),
    /// `[ value, ... ]`
    Array(Vec<Node>),
}

impl Value {
    /// The value's type with an article, for error messages.
    pub fn describe(&self) -> &'static str {
        match self {
            Self::Boolean(_) => "a boolean",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a number with a fraction",
            Self::Text(_) => "a string",
            Self::Bytes(_) => "a string that is not UTF-8",
            Self::Group(_) => "a group { }",
            Self::List(_) => "a list ( )",
            Self::Array(_) => "an array [ ]",
        }
    }

    /// A scalar as text; `None` for groups, lists and arrays.
    pub fn scalar_text(&self) -> Option<String> {
        match self {
            Self::Boolean(value) => Some(value.to_string()),
            Self::Integer(value) => Some(value.to_string()),
            Self::Float(text) | Self::Text(text) => Some(text.clone()),
            Self::Bytes(_) | Self::Group(_) | Self::List(_) | Self::Array(_) => None,
        }
    }
}

/// One `name = value`.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// As spelled in the file.
    pub name: String,
    /// The place of the name.
    pub at: Position,
    /// The value behind `=` or `:`.
    pub node: Node,
}
