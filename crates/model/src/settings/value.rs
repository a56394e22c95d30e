//! The types a setting can have: how each is read, checked and shown.

use std::fmt;

use crate::cidr::NetworkSet;
use crate::listen::Listen;
use crate::secret::Secret;
use crate::settings::SettingError;

/// Type and range of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `true`, `false`, `1` or `0`.
    Boolean,
    /// A whole number, `min..=max`.
    Integer {
        /// Smallest allowed value.
        min: u64,
        /// Largest allowed value.
        max: u64,
        /// The unit, for error texts.
        unit: Unit,
    },
    /// Text that [`TextRule`] accepts.
    Text(TextRule),
    /// Text that is never logged.
    Secret(TextRule),
    /// One of these words, in any letter case.
    Words(&'static [&'static str]),
}

/// The unit of an integer. Displays as a suffix with a leading blank: ` ms`, or nothing for plain counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A plain number without a unit.
    Count,
    /// ` ms`.
    Milliseconds,
    /// ` µs`.
    Microseconds,
    /// ` s`.
    Seconds,
    /// ` bytes`.
    Bytes,
    /// ` MiB`.
    Mebibytes,
    /// ` %`.
    Percent,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Count => "",
            Self::Milliseconds => " ms",
            Self::Microseconds => " µs",
            Self::Seconds => " s",
            Self::Bytes => " bytes",
            Self::Mebibytes => " MiB",
            Self::Percent => " %",
        })
    }
}

/// The rule for a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextRule {
    /// Every text, the empty one too.
    Any,
    /// Anything; `(null)` is read as empty, which means unset (ProxySQL shows unset so).
    Nullable,
    /// At least one character.
    NonEmpty,
    /// No control characters, such as line feeds.
    OneLine,
    /// The base name of a log file: must not end in `/`.
    FileBase,
    /// A list for [`Listen::parse_list`].
    Listeners,
    /// A list for [`NetworkSet`].
    Networks,
    /// IPv4 or IPv6, without a port.
    Address,
    /// Empty, or `schema.table`, where either may be in backquotes.
    TableName,
    /// `user:password`, separated by `;`.
    Logins,
    /// A character set that MySQL or MariaDB has.
    Charset,
    /// Empty, or a URL that begins with `http://` or `https://` and names no user.
    HttpUrl,
    /// A decimal number, `0` to `1`.
    Ratio,
    /// `name=value`, separated by commas; empty for none.
    Pairs,
}

fn is_http_url(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let host = rest.and_then(|rest| rest.split(['/', '?']).next()).unwrap_or_default();
    !host.is_empty() && !host.contains('@') && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Character sets of MySQL and MariaDB.
const CHARSETS: &[&str] = &[
    "armscii8", "ascii", "big5", "binary", "cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852", "cp866", "cp932", "dec8", "eucjpms",
    "euckr", "gb18030", "gb2312", "gbk", "geostd8", "greek", "hebrew", "hp8", "keybcs2", "koi8r", "koi8u", "latin1", "latin2", "latin5",
    "latin7", "macce", "macroman", "sjis", "swe7", "tis620", "ucs2", "ujis", "utf16", "utf16le", "utf32", "utf8", "utf8mb3", "utf8mb4",
];

impl TextRule {
    /// `text` as it is kept, or why it is refused.
    fn apply(self, text: &str) -> Result<&str, String> {
        match self {
            Self::Any => {}
            Self::Nullable if text.eq_ignore_ascii_case("(null)") => return Ok(""),
            Self::Nullable => {}
            Self::NonEmpty if text.is_empty() => return Err("must not be empty".to_owned()),
            Self::NonEmpty => {}
            Self::OneLine if text.chars().any(char::is_control) => return Err("must not contain control characters".to_owned()),
            Self::OneLine => {}
            Self::FileBase if text.ends_with('/') => return Err("must not end in '/'".to_owned()),
            Self::FileBase => {}
            Self::Listeners => drop(Listen::parse_list(text).map_err(|e| e.to_string())?),
            Self::Networks => drop(text.parse::<NetworkSet>().map_err(|e| e.to_string())?),
            Self::Address => drop(text.parse::<std::net::IpAddr>().map_err(|_| "must be an IP address".to_owned())?),
            Self::TableName if text.is_empty() || is_table_name(text) => {}
            Self::TableName => return Err("must be schema.table".to_owned()),
            Self::Logins if text.is_empty() => return Err("must not be empty".to_owned()),
            Self::Logins if text.split(';').filter(|login| !login.is_empty()).all(is_login) => {}
            Self::Logins => return Err("must be user:password, separated by ';'".to_owned()),
            Self::Charset if CHARSETS.iter().any(|known| known.eq_ignore_ascii_case(text)) => {}
            Self::Charset => return Err(format!("must be one of {}", CHARSETS.join(", "))),
            Self::HttpUrl if text.is_empty() || is_http_url(text) => {}
            Self::HttpUrl => return Err("must be a URL that begins with http:// or https://, without a user".to_owned()),
            Self::Ratio if text.parse::<f64>().is_ok_and(|ratio| (0.0..=1.0).contains(&ratio)) => {}
            Self::Ratio => return Err("must be a number from 0 to 1".to_owned()),
            Self::Pairs if text.split(',').all(|pair| pair.trim().is_empty() || pair.trim().find('=').is_some_and(|at| at > 0)) => {}
            Self::Pairs => return Err("must be name=value, separated by commas".to_owned()),
        }
        Ok(text)
    }
}

fn is_login(login: &str) -> bool {
    login.split_once(':').is_some_and(|(user, _)| !user.is_empty())
}

fn is_table_name(text: &str) -> bool {
    let is_word = |word: &str| {
        let bare = word.strip_prefix('`').and_then(|w| w.strip_suffix('`')).unwrap_or(word);
        !bare.is_empty() && bare.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    text.split_once('.').is_some_and(|(schema, table)| is_word(schema) && is_word(table))
}

/// A Rust type that a setting can have.
pub trait SettingValue: Sized {
    /// The type of a default in the registry.
    type Literal;
    /// The value that a default in the registry stands for.
    fn from_literal(literal: Self::Literal) -> Self;
    /// Reads and checks a value.
    fn parse(text: &str, kind: &Kind) -> Result<Self, SettingError>;
    /// The value in the form that `parse` reads.
    fn show(&self) -> String;
}

impl SettingValue for bool {
    type Literal = bool;

    fn from_literal(literal: bool) -> Self {
        literal
    }

    fn parse(text: &str, _: &Kind) -> Result<Self, SettingError> {
        match text.trim() {
            "1" => Ok(true),
            "0" => Ok(false),
            word if word.eq_ignore_ascii_case("true") => Ok(true),
            word if word.eq_ignore_ascii_case("false") => Ok(false),
            _ => Err(SettingError::NotBoolean { text: text.to_owned() }),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl SettingValue for u64 {
    type Literal = u64;

    fn from_literal(literal: u64) -> Self {
        literal
    }

    /// Stricter than ProxySQL, which reads `4x` as 4 and `x` as 0: both are refused. `false` is 0.
    fn parse(text: &str, kind: &Kind) -> Result<Self, SettingError> {
        let (min, max, unit) = match *kind {
            Kind::Integer { min, max, unit } => (min, max, unit),
            _ => (0, u64::MAX, Unit::Count),
        };
        let digits = match text.trim() {
            word if word.eq_ignore_ascii_case("false") => "0",
            digits => digits,
        };
        if !is_integer(digits) {
            return Err(SettingError::NotInteger { text: text.to_owned(), min, max, unit });
        }
        let in_range = digits.parse().ok().filter(|value| (min..=max).contains(value));
        in_range.ok_or_else(|| SettingError::OutOfRange { value: digits.to_owned(), min, max, unit })
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl SettingValue for String {
    type Literal = &'static str;

    fn from_literal(literal: &'static str) -> Self {
        literal.to_owned()
    }

    fn parse(text: &str, kind: &Kind) -> Result<Self, SettingError> {
        let Kind::Text(rule) = kind else {
            return Ok(text.to_owned());
        };
        let kept = rule.apply(text);
        kept.map(str::to_owned).map_err(|reason| SettingError::BadText { text: text.to_owned(), reason })
    }

    fn show(&self) -> String {
        self.clone()
    }
}

impl SettingValue for Secret {
    type Literal = &'static str;

    fn from_literal(literal: &'static str) -> Self {
        Self::from(literal)
    }

    fn parse(text: &str, kind: &Kind) -> Result<Self, SettingError> {
        let Kind::Secret(rule) = kind else {
            return Ok(Self::from(text));
        };
        let kept = rule.apply(text);
        kept.map(Self::from).map_err(|reason| SettingError::BadText { text: "***".to_owned(), reason })
    }

    fn show(&self) -> String {
        self.expose_text()
    }
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

/// A plain number.
pub(super) const fn count(min: u64, max: u64) -> Kind {
    Kind::Integer { min, max, unit: Unit::Count }
}

/// A time in milliseconds.
pub(super) const fn ms(min: u64, max: u64) -> Kind {
    Kind::Integer { min, max, unit: Unit::Milliseconds }
}

/// A time in microseconds.
pub(super) const fn us(min: u64, max: u64) -> Kind {
    Kind::Integer { min, max, unit: Unit::Microseconds }
}

/// A time in seconds.
pub(super) const fn secs(min: u64, max: u64) -> Kind {
    Kind::Integer { min, max, unit: Unit::Seconds }
}

pub(super) const fn bytes(min: u64, max: u64) -> Kind {
    Kind::Integer { min, max, unit: Unit::Bytes }
}

pub(super) const fn mebibytes(min: u64, max: u64) -> Kind {
    Kind::Integer { min, max, unit: Unit::Mebibytes }
}

/// A share of a hundred.
pub(super) const PERCENT: Kind = Kind::Integer { min: 0, max: 100, unit: Unit::Percent };
pub(super) const BOOL: Kind = Kind::Boolean;
/// Any text.
pub(super) const TEXT: Kind = Kind::Text(TextRule::Any);
/// Any text, or unset.
pub(super) const NULLABLE: Kind = Kind::Text(TextRule::Nullable);
